"""Everything forestall raises on purpose, as one tree.

Each message says what was expected, what came instead, and what to do about it.
"""

from __future__ import annotations

import difflib
import sys
import warnings
from collections.abc import Iterable
from types import FrameType


class ForestallError(Exception):
    """Base of every error that forestall raises on purpose."""


class SpecError(ForestallError, ValueError):
    """A problem that does not make sense, whatever the data."""


class RegionError(SpecError):
    """A desired region that cannot be read, or that is empty."""


class GraphError(SpecError):
    """A graph that cannot be read, or that is no rehearsal graph."""


class DataError(ForestallError, ValueError):
    """A table that does not fit its problem."""


class FitError(ForestallError, RuntimeError):
    """A method that could not be fitted to sound data."""


class TaskError(ForestallError, ValueError):
    """An unknown benchmark task, or a task asked for what it lacks."""


class PlanError(ForestallError, ValueError):
    """A benchmark plan that cannot be read or run."""


class StoreError(ForestallError, ValueError):
    """A policy that cannot be saved, or a file that is no saved policy."""


class MissingExtraError(ForestallError, ImportError):
    """An optional dependency that is not installed."""

    def __init__(self, package: str, extra: str) -> None:
        """Say how to install the package."""
        super().__init__(
            f"Expected the package {package!r}, which is not installed. "
            f"Install it with: pip install 'forestall[{extra}]'"
        )
        self.package, self.extra = package, extra

    def __reduce__(self) -> tuple[type[MissingExtraError], tuple[str, str]]:
        """Say how it is made anew in another process."""
        return type(self), (self.package, self.extra)


class ForestallWarning(UserWarning):
    """Something the user should know; the answer stands."""


class ExtrapolationWarning(ForestallWarning):
    """Contexts lie outside what history has seen."""


def warn(text: str, category: type[ForestallWarning] = ForestallWarning) -> None:
    """Warn, and point at the line that asked: the last one that is not ours."""
    # Between it and here lie more or fewer frames by method, and by what checks types.
    frame: FrameType | None = sys._getframe()
    level = 1
    while frame and frame.f_back and _is_ours(frame.f_globals.get("__name__", "")):
        frame, level = frame.f_back, level + 1
    warnings.warn(text, category, stacklevel=level)


def _is_ours(module: str) -> bool:
    return module.partition(".")[0] in ("forestall", "jaxtyping", "beartype")


def nearest(name: str, known: Iterable[str]) -> str:
    """Suggest the known name closest to a misspelt one, as the end of a message.

    Example:
        >>> nearest("credit_scor", ["credit_score", "rate"])
        " Did you mean 'credit_score'?"
        >>> nearest("Nut", ["Nutrients_PC1", "Light"])
        " Did you mean 'Nutrients_PC1'?"
        >>> nearest("zebra", ["credit_score", "rate"])
        ''
    """
    closest = by_nearness(name, known)[:1]
    close = [k for k in closest if _likeness(name, k) >= 0.6]
    return f" Did you mean {close[0]!r}?" if close else ""


def by_nearness(name: str, known: Iterable[str]) -> list[str]:
    """Sort known names by their likeness to a misspelt one, the closest first."""
    return sorted(known, key=lambda k: -_likeness(name, k))


def _likeness(one: str, other: str) -> float:
    """From 0 to 1, whatever the case and the spaces around; 0.6 is a likely slip."""
    short, long = sorted((one.strip().lower(), other.strip().lower()), key=len)
    ratio = difflib.SequenceMatcher(None, short, long).ratio()
    # Names are cut short as often as they are misspelt.
    return max(ratio, 0.6) if len(short) > 2 and long.startswith(short) else ratio
