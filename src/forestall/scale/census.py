"""What one pass over the records of a stream tells of how to encode them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

import numpy as np
from jaxtyping import Bool, Float

from forestall.arrays import Array
from forestall.cells import Cells
from forestall.encoding import Block
from forestall.errors import DataError
from forestall.history import Fingerprint, check_enough, checked_cells
from forestall.observations import Schema
from forestall.problem import Problem
from forestall.region import Polytope
from forestall.scale.moments import Tally
from forestall.scale.source import Batch
from forestall.table import Table


@dataclass(frozen=True)
class Met:
    """How many records meet one constraint, and which comes nearest to it."""

    count: int
    slack: float
    y: tuple[float, ...]

    def __add__(self, other: Met) -> Met:
        """Count both, and take the nearer one."""
        nearer = max(self, other, key=lambda met: (met.slack, met.y))
        return Met(self.count + other.count, nearer.slack, nearer.y)

    def text(self, constraint: str, names: tuple[str, ...]) -> str:
        """Say so, for a message."""
        if self.count:
            return f"{constraint!r} is met by {self.count}"
        pairs = zip(names, self.y, strict=True)
        near = ", ".join(f"{name} = {value:g}" for name, value in pairs)
        return f"{constraint!r} is never met, most nearly by {near}"


@dataclass(frozen=True)
class Census:
    """Counts of everything that the encoding of a history depends on.

    Two censuses of parts of a stream add up to that of the whole, in any order up to
    rounding.

    Args:
        rows: The number of rows read.
        n: The number of complete records among them.
        good: How many of these have a desired outcome.
        tallies: What was counted of each column.
        met: How nearly each constraint is met; empty where good records are.
        fingerprint: What tells these records from others.
    """

    rows: int = 0
    n: int = 0
    good: int = 0
    tallies: Mapping[str, Tally] = field(default_factory=dict)
    met: Mapping[str, Met] = field(default_factory=dict)
    fingerprint: Fingerprint = field(default_factory=Fingerprint)

    @staticmethod
    def of(problem: Problem, batch: Batch, cells: Mapping[str, Cells]) -> Census:
        """Count one batch, given what :func:`batch_cells` reads of it."""
        keep, declared = without_gaps(cells), problem.categorical
        y = outcomes(problem, cells)[keep]
        good = int(problem.region.contains(y).sum())
        return Census(
            batch.n,
            int(keep.sum()),
            good,
            {
                k: Tally.of(each, batch, keep, k in declared)
                for k, each in cells.items()
            },
            {} if good or not len(y) else _met(problem.region, y),
            Fingerprint.of({k: each.keep(keep) for k, each in cells.items()}),
        )

    def __add__(self, other: Census) -> Census:
        """Count both."""
        if not (self.rows and other.rows):
            return self if self.rows else other
        good = self.good + other.good
        return Census(
            self.rows + other.rows,
            self.n + other.n,
            good,
            {k: each + other.tallies[k] for k, each in self.tallies.items()},
            {} if good else _joined(self.met, other.met),
            self.fingerprint + other.fingerprint,
        )

    @property
    def dropped(self) -> int:
        """The number of incomplete records."""
        return self.rows - self.n

    def schema(self, problem: Problem) -> Schema:
        """Fix the encoding, after the checks that a table in memory must pass."""
        for name, tally in self.tallies.items():
            if name not in problem.categorical:
                tally.texts.check(name)
        self._check_gaps(problem)
        check_enough(problem, self._ranges(problem), self.n, self.dropped)
        bounds = np.array(list(problem.actions.values()), dtype=float)
        bounds.setflags(write=False)
        schema = Schema(
            self._block(problem, problem.context),
            self._block(problem, problem.covariates),
            self._block(problem, problem.actions),
            self._block(problem, problem.outcomes),
            bounds,
            self.fingerprint,
        )
        self._check_good(problem.region)
        return schema

    def _block(self, problem: Problem, names: Iterable[str]) -> Block:
        declared = problem.categorical
        return Block(
            tuple(self.tallies[k].column(self.n, k in declared) for k in names)
        )

    def _ranges(self, problem: Problem) -> dict[str, Cells]:
        """Give the ends of each action's range, which differ where it varies."""
        ends = {k: self.tallies[k].moments for k in problem.actions if self.tallies}
        return {
            k: Cells(k, "number", np.array([m.low, m.high])) for k, m in ends.items()
        }

    def _check_gaps(self, problem: Problem) -> None:
        if problem.missing == "drop" or not self.dropped:
            return
        gaps = {name: tally.gaps for name, tally in self.tallies.items()}
        counts = (each.text(name) for name, each in gaps.items() if each.first)
        raise DataError(
            f"Expected a finite value in every column of the problem; got gaps in "
            f"{self.dropped} of {self.rows} rows: {'; '.join(counts)}. Fill them in, "
            f"or leave those rows out with Problem(missing='drop')."
        )

    def _check_good(self, region: Polytope) -> None:
        if self.good:
            return
        lines = (met.text(text, region.names) for text, met in self.met.items())
        raise DataError(
            f"Expected at least one record with a desired outcome; got none in "
            f"{self.n}: {'; '.join(lines)}. Check units and signs, or relax a "
            f"constraint: what never happened cannot be learned."
        )


def batch_cells(problem: Problem, batch: Batch) -> dict[str, Cells]:
    """Read the columns of a problem, each of the kind that its role demands."""
    try:
        return checked_cells(problem, Table.read(batch.table))
    except DataError as error:
        raise batch.placed(error) from error


def one_by_one(problem: Problem) -> Problem:
    """Leave to the whole stream what no single batch can judge.

    Whether a column of text is one of numbers is a question of how many of its values
    read as numbers; of declared categories it is not asked.
    """
    return replace(problem, categorical=(*problem.context, *problem.covariates))


def without_gaps(cells: Mapping[str, Cells]) -> Bool[Array, " n"]:
    """Mark the rows that are complete."""
    return ~np.any([each.gaps for each in cells.values()], axis=0)


def outcomes(problem: Problem, cells: Mapping[str, Cells]) -> Float[Array, "n d_y"]:
    """Give the outcomes in the user's units."""
    return np.column_stack([cells[name].values for name in problem.outcomes])


def _met(region: Polytope, y: Float[Array, "n d_y"]) -> dict[str, Met]:
    found = {}
    for text in dict.fromkeys(region.texts):
        constraint = region.only(text)
        slack = constraint.slack(y).min(axis=1)
        row = int(slack.argmax())
        count = int(constraint.contains(y).sum())
        found[text] = Met(count, float(slack[row]), tuple(y[row].tolist()))
    return found


def _joined(one: Mapping[str, Met], other: Mapping[str, Met]) -> dict[str, Met]:
    if not (one and other):
        return dict(one or other)
    return {text: met + other[text] for text, met in one.items()}
