"""What can be learned from a history: shares, ranges, and how freely actions varied."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
from jaxtyping import Float

from forestall.arrays import Array
from forestall.cells import Cells
from forestall.encoding import Categorical
from forestall.identify import Identification
from forestall.observations import Observations
from forestall.overlap import Leeway, Overlap, leeways_given
from forestall.pieces import Layout
from forestall.problem import Problem, require_problem
from forestall.region import Polytope
from forestall.table import Table

RARE = 0.05
MANY_DROPPED = 0.2


@dataclass(frozen=True)
class Met:
    """How many records meet one constraint."""

    constraint: str
    share: float


@dataclass(frozen=True)
class Range:
    """What the records hold of one variable, in the user's unit.

    Args:
        name: The variable.
        role: Its role in the problem.
        minimum: Its smallest value; None for a category.
        median: Its median.
        maximum: Its largest value.
        levels: Records for each level of a category; empty for a number.
    """

    name: str
    role: str
    minimum: float | None = None
    median: float | None = None
    maximum: float | None = None
    levels: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class Report:
    """Whether a history can answer a problem, and how well.

    Args:
        problem: The question.
        identification: What is adjusted for, and whether that is enough.
        records: The number of complete records.
        dropped: The number left out because of gaps.
        good: The share of records with a desired outcome.
        constraints: The share that meets each constraint.
        inside: The share of records with all actions in their feasible intervals.
        ranges: What the records hold of each variable.
        overlaps: How freely history varied each action.
    """

    problem: Problem
    identification: Identification
    records: int
    dropped: int
    good: float
    constraints: tuple[Met, ...]
    inside: float
    ranges: tuple[Range, ...]
    overlaps: tuple[Overlap, ...]

    @property
    def warnings(self) -> list[str]:
        """What to know before trusting the answers; empty when nothing is amiss."""
        verdict = self.identification
        told = [_bias_text(verdict), verdict.remark, _dropped_text(self)]
        if self.good < RARE:
            told.append(
                f"Only {self.good:.1%} of the records are good: little to learn from. "
                f"Add records, or relax a constraint."
            )
        told += [_overlap_text(each) for each in self.overlaps]
        return [text for text in told if text]

    def to_dict(self) -> dict[str, Any]:
        """Give everything as plain lists, numbers and text."""
        verdict = self.identification
        return {
            "usable": True,
            "problem": self.problem.to_dict(),
            "identification": asdict(verdict),
            "records": self.records,
            "dropped": self.dropped,
            "good": self.good,
            "constraints": [asdict(each) for each in self.constraints],
            "inside": self.inside,
            "variables": [asdict(each) for each in self.ranges],
            "overlap": [{**asdict(each), "thin": each.thin} for each in self.overlaps],
            "warnings": self.warnings,
        }


def check(problem: Any, history: Any) -> Report:
    """Check a history against its problem and say what can be learned from it.

    Args:
        problem: The question.
        history: A table, a dict of arrays, or the path of a file.
    """
    require_problem(problem, history)
    identification = problem.identification()
    table = Table.read(history)
    data = Observations.read(problem, table)
    cells = _complete(table.select(problem.variables, "the history"))
    a = np.column_stack([cells[name].numbers() for name in problem.actions])
    bounds = data.schema.bounds
    inside = (a >= bounds[:, 0]) & (a <= bounds[:, 1])
    return Report(
        problem,
        identification,
        data.n,
        data.dropped,
        float(data.good.mean()),
        _met(problem.region, data.y_raw),
        float(inside.all(axis=1).mean()),
        tuple(_range(problem, data, cells[name]) for name in problem.variables),
        tuple(each.overlap() for each in _leeways(problem, data)),
    )


def _leeways(problem: Problem, data: Observations) -> tuple[Leeway, ...]:
    """How far each action strayed, given all that it follows from in our method."""
    pieces = Layout(problem, data.schema).pieces()
    inputs = {piece.name: piece.inputs for piece in pieces}
    return leeways_given(data, [inputs[name] for name in problem.actions])


def _complete(cells: Mapping[str, Cells]) -> dict[str, Cells]:
    keep = ~np.any([each.gaps for each in cells.values()], axis=0)
    return {name: each.keep(keep) for name, each in cells.items()}


def _met(region: Polytope, y: Float[Array, "n d"]) -> tuple[Met, ...]:
    return tuple(
        Met(text, float(region.only(text).contains(y).mean()))
        for text in dict.fromkeys(region.texts)
    )


def _range(problem: Problem, data: Observations, cells: Cells) -> Range:
    role = next(r for r, names in vars(problem.roles).items() if cells.name in names)
    columns = (*data.schema.context.columns, *data.schema.covariates.columns)
    column = next((c for c in columns if c.name == cells.name), None)
    if isinstance(column, Categorical):
        counts = Counter(cells.labels())
        levels = {str(level): counts[level] for level in column.levels}
        return Range(cells.name, role, levels=levels)
    values = cells.numbers()
    low, middle, high = np.quantile(values, [0.0, 0.5, 1.0]).tolist()
    return Range(cells.name, role, low, middle, high)


def _bias_text(verdict: Identification) -> str:
    if verdict.nested.valid is False:
        return f"The method nested is biased here. {verdict.nested.explanation}"
    if verdict.nested.valid is None and verdict.staged:
        return f"The method nested may be biased. {verdict.nested.explanation}"
    return ""


def _dropped_text(report: Report) -> str:
    total = report.records + report.dropped
    if report.dropped <= MANY_DROPPED * total:
        return ""
    return (
        f"{report.dropped} of {total} records were dropped because of gaps. Those that "
        f"remain may not be typical."
    )


def _overlap_text(overlap: Overlap) -> str:
    if overlap.inside < RARE:
        return (
            f"Only {overlap.inside:.1%} of the records have {overlap.action!r} in its "
            f"feasible interval [{overlap.lower:g}, {overlap.upper:g}]: almost any "
            f"advice is extrapolation. Check the unit and the interval."
        )
    if overlap.thin and overlap.too_wide:
        return (
            f"Wide interval: {overlap.action!r} may be set in [{overlap.lower:g}, "
            f"{overlap.upper:g}], but history has it between {overlap.minimum:.3g} and "
            f"{overlap.maximum:.3g} and reaches {overlap.reach:.0%} of that interval "
            f"for a typical record. Advice beyond that is extrapolation. Narrow the "
            f"interval to what was seen, or add records."
        )
    if overlap.thin:
        return (
            f"Thin overlap: given what is known beforehand, {overlap.action!r} varied "
            f"by only {overlap.deviation:.3g} ({overlap.spread:.0%} of its spread), so "
            f"history reaches {overlap.reach:.0%} of the feasible interval for a "
            f"typical record. Advice beyond that is extrapolation."
        )
    return ""
