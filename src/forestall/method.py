"""What every method shares: fitting, deciding, and saying so honestly."""

from __future__ import annotations

import warnings
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from jaxtyping import Float

from forestall.arrays import Array
from forestall.decisions import Assessment, Decisions, Judge
from forestall.errors import ExtrapolationWarning, ForestallWarning
from forestall.identify import Criterion, Identification
from forestall.observations import ContextRows, Schema
from forestall.problem import Problem
from forestall.support import Horizon

# Contexts answered at a time, so that memory does not grow with the batch.
BLOCK = 512


@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class Policy(ABC):
    """A fitted method: answers many contexts at once.

    Args:
        problem: The problem it was fitted to.
        schema: How the user's columns become numbers, and back.
        horizon: What contexts history has seen.
    """

    problem: Problem
    schema: Schema
    horizon: Horizon

    @property
    def identification(self) -> Identification:
        """What is adjusted for, and whether that is enough."""
        return self.problem.identification()

    @property
    @abstractmethod
    def criterion(self) -> Criterion:
        """Whether the formula that this method estimates is the effect asked for."""

    def __repr__(self) -> str:
        """Name the method; the records it holds stay out of logs."""
        return f"<{type(self).__name__} for {', '.join(self.problem.actions)}>"

    def recommend(self, contexts: Any) -> Decisions:
        """Choose an action for each row of ``contexts``.

        Args:
            contexts: A table of contexts, or one mapping of names to values.
        """
        rows = self.schema.encode_contexts(contexts)
        return self._decide(rows, None)

    def evaluate(self, contexts: Any, actions: Any) -> Decisions:
        """Assess given actions, row by row: what if we did this?

        Args:
            contexts: A table of contexts, or one mapping of names to values.
            actions: A table or an array with a row for each context, or one mapping
                for all of them.
        """
        rows = self.schema.encode_contexts(contexts)
        a = self.schema.actions_from_table(actions, rows.n)
        inside = (a >= self.schema.lower) & (a <= self.schema.upper)
        return self._decide(rows, a, [not row.all() for row in inside])

    def probability(self, contexts: Any, actions: Any) -> Array:
        """Estimate how likely a good outcome is under the given actions."""
        return self.evaluate(contexts, actions).probability

    @abstractmethod
    def for_region(self, desired: Any) -> Policy:
        """Ask for another desired region, without fitting anew."""

    @abstractmethod
    def answer(
        self, x: Float[Array, "q d_x"], a: Float[Array, "q d_a"] | None
    ) -> Assessment:
        """Assess the actions ``a``, or the best ones where it is ``None``.

        Everything is standardised. Contexts come in blocks of bounded size.
        """

    def _decide(
        self,
        rows: ContextRows,
        a: Float[Array, "q d_a"] | None,
        infeasible: list[bool] | None = None,
    ) -> Decisions:
        blocks = [
            self.answer(rows.x[i : i + BLOCK], None if a is None else a[i : i + BLOCK])
            for i in range(0, max(1, rows.n), BLOCK)
        ]
        judge = Judge(self.criterion, self.horizon.remarks(rows.x), infeasible)
        self._warn(rows, judge.unheard)
        told = Assessment.joined(blocks)
        return Decisions.judged(rows, told, self.schema, self.identification, judge)

    def _warn(self, rows: ContextRows, unheard: Sequence[str | None]) -> None:
        faults = [text for text in rows.faults if text]
        if faults:
            warnings.warn(
                f"{len(faults)} of {rows.n} contexts cannot be read; their rows "
                f"abstain. The first: {faults[0]}",
                ForestallWarning,
                stacklevel=4,
            )
        far = [t for t, f in zip(unheard, rows.faults, strict=True) if t and not f]
        if far:
            warnings.warn(
                f"{len(far)} of {rows.n} contexts lie far outside history; what "
                f"is said of them is extrapolation. The first: {far[0]}",
                ExtrapolationWarning,
                stacklevel=4,
            )


class Method(ABC):
    """Hyperparameters only. Fitting makes a policy and changes nothing here."""

    @abstractmethod
    def fit(self, problem: Problem, history: Any) -> Policy:
        """Learn a policy from historical records.

        Args:
            problem: The question.
            history: A pandas, polars or pyarrow table, a dict of arrays, or the path
                of a CSV or Parquet file.
        """
