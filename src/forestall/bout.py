"""One method against the records: fitted to some parts, judged on the others."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from jaxtyping import Bool, Int

from forestall.arrays import Array
from forestall.decisions import Decisions
from forestall.errors import (
    ExtrapolationWarning,
    ForestallError,
    ForestallWarning,
    SpecError,
)
from forestall.hindsight import Hindsight, steps_of
from forestall.history import checked_cells, complete_rows
from forestall.method import Method, Policy
from forestall.nuisance import REGRESSED, Family, LinearFit
from forestall.observations import Observations
from forestall.problem import Problem
from forestall.standing import ASSUMES, OTHERWISE, Row
from forestall.table import Table
from forestall.value import (
    Estimate,
    Scores,
    Step,
    difference,
    estimate,
    refusal,
)

# More records than this are not compared on: methods are fitted once for each fold.
MOST = 4_000
FEWEST_RECORDS = 50
# Contexts decided at a time before looking at the clock: first and most.
FIRST, LARGEST = 8, 256
# Records learned from for which a policy with several steps is asked as well.
ASKED = 300


@dataclass(frozen=True, eq=False)
class Records:
    """The history, split, with what each part says of the others."""

    problem: Problem
    columns: dict[str, Array]
    data: Observations
    steps: tuple[Step, ...]
    fold: Int[Array, " n"]
    judges: tuple[Hindsight, ...]
    left_out: int

    @classmethod
    def read(cls, problem: Problem, history: Any, folds: int, seed: int) -> Records:
        """Read, check and split a history."""
        rng = np.random.default_rng(seed)
        cells = _complete(problem, Table.read(history))
        n = len(next(iter(cells.values())))
        kept = np.sort(rng.permutation(n)[:MOST])
        columns = {name: column[kept] for name, column in cells.items()}
        data = Observations.read(problem, columns)
        if data.n < max(FEWEST_RECORDS, folds):
            raise SpecError(
                f"Expected at least {max(FEWEST_RECORDS, folds)} complete records to "
                f"compare methods on; got {data.n}. Add records."
            )
        steps = steps_of(list(problem.actions), problem.identification())
        fold = rng.permutation(data.n) % folds
        judges = tuple(
            Hindsight.of(data, steps, problem.region, np.flatnonzero(fold != f), rng)
            for f in range(folds)
        )
        return cls(problem, columns, data, steps, fold, judges, n - len(kept))

    def taken(self, rows: Int[Array, " m"]) -> dict[str, Array]:
        """Some of the records, as a history."""
        return {name: column[rows] for name, column in self.columns.items()}

    def contexts(self, rows: Int[Array, " m"]) -> dict[str, Array]:
        """What was known of some of the records."""
        return {name: self.columns[name][rows] for name in self.problem.context}

    def standardised(self, decisions: Decisions) -> Array:
        """What a policy does, in the units of all records."""
        actions = self.data.schema.actions
        return (decisions.actions - actions.means) / actions.scales

    @property
    def linear(self) -> LinearFit:
        """Whether the outcomes look linear in all that precedes them."""
        data, told = self.data, self.problem.identification()
        u = data.covariate_columns((*told.adjusted, *told.staged))
        rows = np.linspace(0, data.n - 1, min(data.n, REGRESSED)).astype(int)
        z = np.concatenate([data.x, u, data.a], axis=1)[rows]
        return LinearFit.of(Family(z), data.y[rows])


def _complete(problem: Problem, table: Table) -> dict[str, Array]:
    cells = checked_cells(problem, table)
    keep = complete_rows(problem, cells, table.n)
    return {name: each.values[keep] for name, each in cells.items()}


@dataclass(frozen=True, eq=False)
class Heard:
    """What a policy decided for one part of the records."""

    scores: Scores | None
    rows: Int[Array, " q"]
    acted: Bool[Array, " q"]
    told: list[Decisions]


@dataclass(eq=False)
class Bout:
    """One method, fitted and judged part by part."""

    label: str
    method: Method
    records: Records
    patience: float
    tell: Callable[[str], None]
    fits: list[float] = field(default_factory=list)
    deciding: float = 0.0
    decided: int = 0
    remarks: dict[str, None] = field(default_factory=dict)

    def row(self) -> Row:
        """Judge the method; whatever it raises becomes a row."""
        kind = type(self.method).__name__
        row = Row(label=self.label, kind=kind, assumes=ASSUMES.get(kind, OTHERWISE))
        try:
            heard = list(self._folds())
        except ForestallError as error:
            return replace(row, failed=str(error), folds=len(self.fits))
        except Exception as error:
            return replace(row, failed=f"{type(error).__name__}: {error}")
        return self._judged(row, heard)

    def _folds(self) -> Iterator[Heard]:
        start, count = time.monotonic(), len(self.records.judges)
        for f in range(count):
            self.tell(f"{self.label}: part {f + 1} of {count}")
            yield self._heard(f, start + self.patience * (f + 1) / count)
            if time.monotonic() - start > self.patience:
                return

    def _heard(self, f: int, until: float) -> Heard:
        records, judge = self.records, self.records.judges[f]
        began = time.monotonic()
        with self._listening():
            training = np.flatnonzero(records.fold != f)
            policy = self.method.fit(records.problem, records.taken(training))
            self.fits.append(time.monotonic() - began)
        rows, told = self._decided(policy, np.flatnonzero(records.fold == f), f, until)
        acted = np.array([v == "act" for d in told for v in d.verdict], dtype=bool)
        if not records.steps:
            return Heard(None, rows, acted, told)
        a = np.concatenate([records.standardised(d) for d in told])
        asked, others = judge.rows[:0], a[:0]
        if len(records.steps) > 1:
            asked, more = self._decided(policy, judge.rows, f, until, ASKED)
            others = np.concatenate([records.standardised(d) for d in more])
        scores = judge.scored(rows, a, judge.regressions(asked, others))
        return Heard(scores, rows, acted, told)

    def _decided(
        self,
        policy: Policy,
        rows: Int[Array, " m"],
        f: int,
        until: float,
        most: int | None = None,
    ) -> tuple[Int[Array, " q"], list[Decisions]]:
        """Decide in growing portions of a random order, until time is up."""
        rows = np.random.default_rng([f, len(rows)]).permutation(rows)[:most]
        told: list[Decisions] = []
        done, size, began = 0, FIRST, time.monotonic()
        while done < len(rows) and (not told or time.monotonic() < until):
            with self._listening():
                part = rows[done : done + size]
                told.append(policy.recommend(self.records.contexts(part)))
            done, size = done + len(part), min(2 * size, LARGEST)
        self.deciding += time.monotonic() - began
        self.decided += done
        return rows[:done], told

    @contextmanager
    def _listening(self) -> Iterator[None]:
        """Keep the library's warnings as remarks; others pass."""
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always", ForestallWarning)
            yield
        for each in caught:
            if not issubclass(each.category, ForestallWarning):
                warnings.warn_explicit(
                    each.message, each.category, each.filename, each.lineno
                )
            elif not issubclass(each.category, ExtrapolationWarning):
                self.remarks.setdefault(str(each.message))

    def _judged(self, row: Row, heard: Sequence[Heard]) -> Row:
        records, good = self.records, self.records.data.good
        told = [d for each in heard for d in each.told]
        acted = np.concatenate([each.acted for each in heard])
        verdicts = self._gives_verdicts(told)
        natural = np.full(len(good), np.nan)
        natural[np.concatenate([each.rows for each in heard])] = 1.0
        natural *= good
        followed = acted if verdicts else np.ones(len(acted), dtype=bool)
        value = self._estimate(heard, followed, told)
        always = None
        if row.kind != "NoAction":
            always = self._estimate(heard, np.ones(len(acted), dtype=bool), told)
        return replace(
            row,
            value=value,
            always=always,
            gain=None if value.refused else difference(value.psi, natural),
            claimed=_claimed(told, followed),
            verdicts=verdicts,
            extrapolated=float(np.concatenate([d.extrapolates for d in told]).mean()),
            folds=len(self.fits),
            fit_seconds=float(np.mean(self.fits)),
            decision_seconds=self.deciding / max(self.decided, 1),
            remarks=self._remarks(value, verdicts, len(records.judges)),
        )

    def _gives_verdicts(self, told: Sequence[Decisions]) -> bool:
        """A method that knows no doubt can only be taken at its word."""
        return any(bool(np.isfinite(d.lower).any()) for d in told)

    def _estimate(
        self, heard: Sequence[Heard], acted: Bool[Array, " q"], told: list[Decisions]
    ) -> Estimate:
        records, good = self.records, self.records.data.good
        if not acted.any():
            rows = np.concatenate([each.rows for each in heard])
            return estimate_left(rows, good)
        if not all(bool(d.altered.all()) for d in told):
            return refusal("it alters only some of the actions", len(good))
        parts = [each.scores for each in heard if each.scores is not None]
        if not parts:
            why = records.problem.identification().sequential.explanation
            return refusal(f"no adjustment is enough: {why}", len(good))
        return estimate(Scores.joined(parts), records.steps, acted, good)

    def _remarks(self, value: Estimate, verdicts: bool, folds: int) -> tuple[str, ...]:
        said = list(self.remarks)
        if not verdicts:
            said.append("It gives no verdicts: judged as always acting.")
        if value.records and value.records < self.records.data.n:
            said.append(
                f"Costly: judged on {value.records} of {self.records.data.n} records, "
                f"in {len(self.fits)} of {folds} parts; more in more than "
                f"{self.patience:g} seconds."
            )
        if not value.refused and value.shift > 0.05:
            said.append(
                f"Half or twice the kernel's width moves the value by "
                f"{100 * value.shift:.0f} points."
            )
        return tuple(said)


def estimate_left(rows: Int[Array, " q"], good: Array) -> Estimate:
    """The value of leaving things alone: what came of it."""
    none = np.zeros((len(rows), 1))
    scores = Scores(
        rows=rows,
        under=none,
        taken=none,
        distance=none,
        density=none + 1.0,
        sd=np.ones(1),
        near=np.ones(len(rows), dtype=bool),
    )
    return estimate(scores, (), np.zeros(len(rows), dtype=bool), good)


def _claimed(told: Sequence[Decisions], acted: Bool[Array, " q"]) -> float:
    under = np.concatenate([d.probability for d in told])
    without = np.concatenate([d.no_action for d in told])
    return float(np.nanmean(np.where(acted, under, without)))
