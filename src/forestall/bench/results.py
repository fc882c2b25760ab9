"""The results of a plan: one CSV, a row for each task, method, seed and context."""

from __future__ import annotations

import csv
import io
import math
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import astuple, dataclass, fields
from pathlib import Path
from typing import Any

from forestall.errors import PlanError

# A task, a seed and a method's label: what is run, written and resumed as a whole.
Unit = tuple[str, int, str]


@dataclass(frozen=True, kw_only=True)
class Row:
    """What one method did in one context, and what that is worth in truth.

    Args:
        task: The task's name.
        method: The method's label in the plan.
        seed: The seed in the plan.
        context: The context's number within the seed.
        n: Records in the history.
        draws: Monte Carlo draws behind each true success.
        success: The truth of the best candidate, whatever the verdict; of no action
            for a method that never acts.
        verdict_success: The truth of what the verdict does: the candidate when it is
            ``act``, else no action.
        no_action: The truth of no action.
        oracle: The truth of the best action, found by search on the truth.
        supported_oracle: The same among the actions that history supports.
        probability: What the method says of its candidate.
        lower: The lower end of the method's interval.
        upper: The upper end.
        predicted_no_action: What the method says of no action.
        support: How well history supports the candidate, by the method.
        extrapolates: Whether the method calls it an extrapolation.
        verdict: ``act``, ``leave`` or ``abstain``.
        actions: The candidate as JSON.
        fit_seconds: How long the fit took, for all contexts of the seed together.
        decide_seconds: How long a decision took, the mean over the seed's contexts.
        warnings: What the method warned of.
        error: How the method failed; empty when it did not.
    """

    task: str
    method: str
    seed: int
    context: int
    n: int
    draws: int
    success: float = math.nan
    verdict_success: float = math.nan
    no_action: float
    oracle: float
    supported_oracle: float
    probability: float = math.nan
    lower: float = math.nan
    upper: float = math.nan
    predicted_no_action: float = math.nan
    support: float = math.nan
    extrapolates: bool = False
    verdict: str = ""
    actions: str = ""
    fit_seconds: float = math.nan
    decide_seconds: float = math.nan
    warnings: str = ""
    error: str = ""

    @property
    def unit(self) -> Unit:
        """What this row was run and written with."""
        return self.task, self.seed, self.method


COLUMNS = tuple(f.name for f in fields(Row))

_READ: dict[str, Callable[[str], Any]] = {
    "str": str,
    "int": int,
    "float": lambda text: float(text) if text else math.nan,
    "bool": lambda text: text == "true",
}
_TYPES = {f.name: str(f.type) for f in fields(Row)}


def to_csv(rows: Iterable[Row], *, header: bool) -> str:
    """Write rows as the lines of a CSV file, one line for each."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    if header:
        writer.writerow(COLUMNS)
    writer.writerows([_cell(value) for value in astuple(row)] for row in rows)
    return text.getvalue()


def read_rows(path: str | Path) -> list[Row]:
    """Read the rows of a results file; a last line cut short is left out."""
    try:
        text = Path(path).read_bytes()
    except OSError as error:
        raise PlanError(
            f"Expected a results file; could not read {str(path)!r}: {error}."
        ) from error
    whole = text[: text.rfind(b"\n") + 1].decode(errors="replace")
    if not whole:
        return []
    names, *lines = csv.reader(io.StringIO(whole, newline=""))
    if tuple(names) != COLUMNS:
        raise PlanError(
            f"Expected a results file with the columns {', '.join(COLUMNS)}; "
            f"{str(path)!r} has {', '.join(names)}. Make it anew from its plan."
        )
    return [_row(cells, path, number) for number, cells in enumerate(lines, start=2)]


def complete_units(rows: Iterable[Row], contexts: int) -> dict[Unit, list[Row]]:
    """Group rows by unit, and keep the units that have all their contexts."""
    units: dict[Unit, list[Row]] = {}
    for row in rows:
        units.setdefault(row.unit, []).append(row)
    whole = list(range(contexts))
    return {u: rs for u, rs in units.items() if [r.context for r in rs] == whole}


def append(path: Path, rows: Sequence[Row]) -> None:
    """Add a unit to the file, and return when it is on the disk."""
    with path.open("a", encoding="utf-8", newline="") as file:
        file.write(to_csv(rows, header=False))
        file.flush()
        os.fsync(file.fileno())


def _cell(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return "" if math.isnan(value) else repr(float(value))
    # A row is a line: a torn end can then be told from a whole one.
    return " ".join(value.split()) if isinstance(value, str) else str(value)


def _row(cells: Sequence[str], path: str | Path, line: int) -> Row:
    named: Mapping[str, str] = dict(zip(COLUMNS, cells, strict=False))
    try:
        if len(cells) != len(COLUMNS):
            raise ValueError(f"{len(cells)} cells instead of {len(COLUMNS)}")
        return Row(**{name: _READ[_TYPES[name]](named[name]) for name in COLUMNS})
    except ValueError as error:
        raise PlanError(
            f"Expected a row of results in line {line} of {str(path)!r}; got "
            f"{error}. Take the line out, or make the file anew from its plan."
        ) from error
