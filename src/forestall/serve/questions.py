"""What the service asks of a policy: many rows at a time, an answer for each."""

from __future__ import annotations

import inspect
import json
import math
import warnings
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from forestall.cells import reads_as_number
from forestall.decisions import Decision, Decisions
from forestall.encoding import Block, Categorical, Numeric
from forestall.errors import DataError, SpecError, nearest
from forestall.method import Policy
from forestall.rehearsal import Rehearsal
from forestall.simulate import brisk, simulate, system_of
from forestall.staged import subsets_of
from forestall.table import Table

Row = Mapping[str, Any]
# Paths through each simulated system; a power of two.
PATHS = 16
# Deviations from the mean beyond which a row is answered by itself.
FAR = 100.0


@dataclass(frozen=True)
class Question(ABC):
    """Rows of equal questions may be answered together."""

    policy: Policy

    @abstractmethod
    def answers(self, rows: Sequence[Any]) -> list[Any]:
        """Answer each row."""

    def odd(self, row: Any) -> bool:
        """Tell whether a row is so far out that it is better answered by itself."""
        del row
        return False


@dataclass(frozen=True)
class Recommend(Question):
    """Which action is best? Rows are contexts, answers the text of JSON objects."""

    only: tuple[str, ...] | None = None
    at_most: int | None = None

    def __post_init__(self) -> None:
        """Check that the policy can leave actions alone, where that is asked for."""
        asked = self.only is not None or self.at_most is not None
        if asked and not can_restrict(self.policy):
            raise SpecError(
                f"Expected a policy that can leave actions to their natural course, "
                f"for only and at_most; got {type(self.policy).__name__}, which sets "
                f"all of them. Leave out only and at_most, or fit StagedRehearsal()."
            )
        # Here already: without contexts nobody else would look at the names.
        if asked:
            subsets_of(tuple(self.policy.problem.actions), self.only, self.at_most)

    def odd(self, row: Row) -> bool:
        """Tell whether a context is absurd."""
        return far(self.policy.schema.context, row)

    def answers(self, rows: Sequence[Row]) -> list[str]:
        """Choose an action for each context."""
        contexts, policy = columns(self.policy.schema.context.names, rows), self.policy
        asked: dict[str, Any] = {"only": self.only, "at_most": self.at_most}
        given = {name: value for name, value in asked.items() if value is not None}
        return [row_text(each) for each in policy.recommend(contexts, **given)]


@dataclass(frozen=True)
class WhatIf(Question):
    """How good is this action? Rows are pairs of context and actions."""

    def odd(self, row: tuple[Row, Row]) -> bool:
        """Tell whether a context or an action is absurd."""
        schema = self.policy.schema
        return far(schema.context, row[0]) or far(schema.actions, row[1])

    def answers(self, rows: Sequence[tuple[Row, Row]]) -> list[str]:
        """Assess the action of each row."""
        contexts, actions = zip(*rows, strict=True)
        return [row_text(each) for each in evaluated(self.policy, contexts, actions)]


@dataclass(frozen=True)
class Points(Question):
    """How good are many actions for one context, roughly? Rows are actions.

    Args:
        policy: Who is asked.
        rough: How many draws and paths, where the policy rehearses.
        context: The context.
        held: The actions that are the same for all rows.
    """

    rough: tuple[int, int]
    context: Row
    held: Row

    def answers(self, rows: Sequence[Row]) -> list[Decision]:
        """Assess the actions of each row."""
        policy = brisk(self.policy, *self.rough)
        actions = [{**self.held, **row} for row in rows]
        return list(evaluated(policy, [self.context] * len(rows), actions))


@dataclass(frozen=True)
class Outcomes(Question):
    """What may come of it? Rows are contexts, actions and the number of draws."""

    def __post_init__(self) -> None:
        """Check that the policy can simulate."""
        system_of(self.policy)

    def answers(self, rows: Sequence[tuple[Row, Row | None, int]]) -> list[Any]:
        """Simulate each row."""
        return [self._drawn(*row) for row in rows]

    def _drawn(self, context: Row, actions: Row | None, draws: int) -> list[Any]:
        worlds = -(-draws // PATHS)
        told = simulate(
            self.policy, context, actions, n_worlds=worlds, n_paths=PATHS
        ).outcomes
        kept = np.linspace(0, len(told) - 1, draws).astype(int)
        return [[finite(value) for value in row] for row in told[kept].tolist()]


def ask(question: Question, rows: Sequence[Any]) -> list[Any]:
    """Answer rows without a word to the terminal: warnings quote what came in."""
    odd = [question.odd(row) for row in rows]
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        plain = [row for row, apart in zip(rows, odd, strict=True) if not apart]
        told = iter(question.answers(plain) if plain else [])
        return [
            question.answers([row])[0] if apart else next(told)
            for row, apart in zip(rows, odd, strict=True)
        ]


def far(block: Block, row: Row) -> bool:
    """Tell whether a number is absurdly far from history.

    Distances to the others of its batch would lose their digits to it.
    """
    for column in block.columns:
        value = row[column.name]
        if isinstance(column, Numeric) and reads_as_number(value):
            z = 0.0 if value is None else (float(value) - column.mean) / column.scale
            if abs(z) > FAR:
                return True
    return False


def evaluated(
    policy: Policy, contexts: Sequence[Row], actions: Sequence[Row]
) -> Decisions:
    """Assess the actions of each context."""
    schema = policy.schema
    return policy.evaluate(
        columns(schema.context.names, contexts), columns(schema.actions.names, actions)
    )


def columns(names: Sequence[str], rows: Sequence[Row]) -> dict[str, list[Any]]:
    """Turn rows into columns."""
    return {name: [row[name] for row in rows] for name in names}


def can_restrict(policy: Policy) -> bool:
    """Tell whether a policy can leave some actions to their natural course."""
    return "only" in inspect.signature(policy.recommend).parameters


def can_simulate(policy: Policy) -> bool:
    """Tell whether a policy can draw what may come of a context."""
    return isinstance(getattr(policy, "system", None), Rehearsal)


def check_contexts(policy: Policy, rows: Sequence[Row]) -> None:
    """Check that every context has every variable; what they hold is told by row."""
    names = policy.schema.context.names
    for i, row in enumerate(rows):
        if any(name not in row for name in names):
            try:
                Table.read({name: row[name] for name in row}).select(names, "a context")
            except DataError as error:
                raise DataError(f"In contexts.{i}: {error}") from None


def check_context(policy: Policy, row: Row) -> None:
    """Check that one context can be read: a number or a known category each."""
    Table.read(dict(row)).select(policy.schema.context.names, "the context")
    for column in policy.schema.context.columns:
        value = row[column.name]
        if isinstance(column, Categorical):
            known = any(_same(value, level) for level in column.levels)
        else:
            known = isinstance(value, int | float) and not isinstance(value, bool)
        if not known:
            raise DataError(column.fault(value))


def check_actions(policy: Policy, row: Row, *, all_: bool) -> None:
    """Check the names of given actions; ``all_`` demands every one of them."""
    names = policy.schema.actions.names
    for name in row:
        if name not in names:
            raise SpecError(
                f"Expected actions of the problem ({', '.join(names)}); got {name!r}."
                f"{nearest(name, names)}"
            )
    absent = [name for name in names if name not in row]
    if all_ and absent:
        raise DataError(
            f"Expected a value for every action ({', '.join(names)}); missing: "
            f"{', '.join(absent)}. Give its value."
        )


def row_text(decision: Decision) -> str:
    """Write one decision as JSON; what is not finite is null."""
    row = {
        "actions": {name: finite(v) for name, v in decision.actions.items()},
        "probability": finite(decision.probability),
        "lower": finite(decision.lower),
        "upper": finite(decision.upper),
        "no_action": finite(decision.no_action),
        "support": finite(decision.support) or 0.0,
        "extrapolates": decision.extrapolates,
        "verdict": decision.verdict,
        "explanation": str(decision),
    }
    return json.dumps(row, allow_nan=False)


def finite(value: float) -> float | None:
    """Give a number that JSON can hold, or None."""
    return value if math.isfinite(value) else None


def _same(value: Any, level: Any) -> bool:
    return value == level and isinstance(value, bool) == isinstance(level, bool)
