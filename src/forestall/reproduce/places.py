"""Where plans are read from, and where results, figures and the page go."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from forestall.errors import PlanError

PLANS = Path("benchmarks") / "plans" / "reproduce"
RESULTS = Path("benchmarks") / "results" / "reproduce"
PAGE = Path("docs") / "results.md"
# Beside the page, whose links say so.
IMAGES = Path("images") / "reproduce"


@dataclass(frozen=True)
class Places:
    """The folders and files of one reproduction.

    Args:
        plans: Where the committed plans are.
        results: The folder of the results, CSV files.
        page: The page that is generated from them.
    """

    plans: Path
    results: Path
    page: Path

    @classmethod
    def of(cls, out: Path | None = None) -> Places:
        """Find the checkout; write into it, or into ``out`` where that is named."""
        root = checkout()
        if out is None:
            return cls(root / PLANS, root / RESULTS, root / PAGE)
        return cls(root / PLANS, out, out / PAGE.name)

    @property
    def images(self) -> Path:
        """The folder of the figures."""
        return self.page.parent / IMAGES


def checkout() -> Path:
    """Find the repository: above this file, or above the current folder."""
    for folder in _candidates():
        if (folder / PLANS).is_dir():
            return folder
    raise PlanError(
        f"Expected the committed plans, {PLANS.as_posix()}, in a folder above the "
        f"package or above {str(Path.cwd())!r}; found none. Run the command in a "
        f"checkout of the repository."
    )


def _candidates() -> Iterator[Path]:
    yield from Path(__file__).resolve().parents
    here = Path.cwd()
    yield from (here, *here.parents)
