"""What ``forestall fit`` prints."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from rich.text import Text

from forestall.identify import Criterion, Identification
from forestall.method import Policy
from forestall.screen import heading, show
from forestall.screen.check import show_grounds


@dataclass(frozen=True)
class Learned:
    """What a fit has come to.

    Args:
        method: The method.
        records: The number of records.
        seconds: How long it took.
        identification: What is adjusted for.
        criterion: Whether the formula of this method is the effect asked for.
        selection: What the records chose, where they did.
    """

    method: str
    records: int
    seconds: float
    identification: Identification
    criterion: Criterion
    selection: str

    def to_dict(self) -> dict[str, Any]:
        """Give everything as plain lists, numbers and text."""
        return asdict(self)


def learned(policy: Policy, saved: Mapping[str, Any], seconds: float) -> Learned:
    """Take from a policy, and its file, what a user wants to know of it."""
    return Learned(
        method=saved["method"],
        records=saved["history"]["records"],
        seconds=seconds,
        identification=policy.identification,
        criterion=policy.criterion,
        selection=str(getattr(policy, "choice", None) or ""),
    )


def show_learned(told: Learned) -> None:
    """Print what was learned, from what, and what it rests on."""
    heading("Learned")
    show(f"{told.method} from {told.records:,} records in {told.seconds:.1f} s")
    show_grounds(told.identification, told.criterion)
    if told.selection:
        heading("Selection")
        show(Text(told.selection))
