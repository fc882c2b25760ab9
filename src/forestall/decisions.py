"""Decisions: an action for each context, and how sure we are of it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from typing import Any, Literal

import numpy as np
from jaxtyping import Bool, Float

from forestall.arrays import Array
from forestall.identify import Identification
from forestall.observations import ContextRows, Schema
from forestall.problem import Problem
from forestall.table import Table

Verdict = Literal["act", "leave", "abstain"]

# An improvement that is likely but not credible is left alone where it is known to
# within this much, and abstained from where it is not.
KNOWN = 0.25


@dataclass(frozen=True, eq=False)
class Assessment:
    r"""What a policy thinks of one action for each context; actions standardised.

    Args:
        actions: The actions assessed.
        probability: The estimate of :math:`P(Y \in S \mid x, do(a))`.
        lower: The lower end of its 90 % interval; NaN without one.
        upper: The upper end.
        no_action: The estimate of :math:`P(Y \in S \mid x)`.
        gain_lower: The 5 % quantile of the improvement over no action; NaN without.
        support: How usual the context and action are in history, 0 to 1.
        extrapolates: Whether they are hardly ever seen there.
    """

    actions: Float[Array, "q d_a"]
    probability: Float[Array, " q"]
    lower: Float[Array, " q"]
    upper: Float[Array, " q"]
    no_action: Float[Array, " q"]
    gain_lower: Float[Array, " q"]
    support: Float[Array, " q"]
    extrapolates: Bool[Array, " q"]

    @classmethod
    def joined(cls, parts: Sequence[Assessment]) -> Assessment:
        """Put blocks of contexts together again."""
        names = [field.name for field in fields(cls)]
        return cls(*(np.concatenate([getattr(p, n) for p in parts]) for n in names))


@dataclass(frozen=True, eq=False)
class Decision:
    """One context's decision; prints as a sentence."""

    actions: dict[str, float]
    probability: float
    lower: float
    upper: float
    no_action: float
    support: float
    extrapolates: bool
    verdict: Verdict
    reason: str

    def __str__(self) -> str:
        """Say the decision to somebody who has to carry it out."""
        if self.verdict == "abstain":
            return f"No advice: {self.reason}"
        if self.verdict == "leave":
            return f"Leave things as they are: {self.reason}"
        setting = ", ".join(f"{k} to {v:.4g}" for k, v in self.actions.items())
        return f"Set {setting}: {self.reason}"


@dataclass(frozen=True, eq=False)
class Decisions:
    """An action for each context, with how likely it makes a good outcome.

    Args:
        actions: The best candidate for each context whatever the verdict, in the
            user's units, columns in the order of ``problem.actions``.
        probability: The chance of a good outcome under that action.
        lower: The lower end of its 90 % interval.
        upper: The upper end of its 90 % interval.
        no_action: The chance of a good outcome without action.
        support: How usual this context and action are in history, 0 to 1.
        extrapolates: Whether history has hardly anything like them.
        verdict: ``"act"``, ``"leave"`` or ``"abstain"``.
        reason: One line for each verdict.
        identification: What the probabilities are adjusted for, and whether that is
            enough.
    """

    actions: Array
    probability: Array
    lower: Array
    upper: Array
    no_action: Array
    support: Array
    extrapolates: Array
    verdict: list[Verdict]
    reason: list[str]
    identification: Identification
    action_names: tuple[str, ...]
    table: Table

    @classmethod
    def judged(
        cls,
        problem: Problem,
        identification: Identification,
        rows: ContextRows,
        assessment: Assessment,
        unheard: Sequence[str | None],
        schema: Schema,
    ) -> Decisions:
        """Turn an assessment into verdicts, in the user's units."""
        told = [
            _judge(i, rows.faults[i], unheard[i], assessment) for i in range(rows.n)
        ]
        faulty = np.array([fault is not None for fault in rows.faults], dtype=bool)
        strange = np.array([text is not None for text in unheard], dtype=bool)
        return cls(
            schema.actions_to_units(assessment.actions),
            np.where(faulty, np.nan, assessment.probability),
            np.where(faulty, np.nan, assessment.lower),
            np.where(faulty, np.nan, assessment.upper),
            np.where(faulty, np.nan, assessment.no_action),
            np.where(faulty, 0.0, assessment.support),
            assessment.extrapolates | faulty | strange,
            [verdict for verdict, _ in told],
            [reason for _, reason in told],
            identification,
            tuple(problem.actions),
            rows.table,
        )

    def __len__(self) -> int:
        """Count the contexts."""
        return len(self.probability)

    def __iter__(self) -> Iterator[Decision]:
        """Go through the decisions one by one."""
        return (self[i] for i in range(len(self)))

    def __getitem__(self, i: int) -> Decision:
        """Take one context's decision."""
        values = (float(v) for v in self.actions[i])
        return Decision(
            dict(zip(self.action_names, values, strict=True)),
            float(self.probability[i]),
            float(self.lower[i]),
            float(self.upper[i]),
            float(self.no_action[i]),
            float(self.support[i]),
            bool(self.extrapolates[i]),
            self.verdict[i],
            self.reason[i],
        )

    def to_frame(self) -> Any:
        """Give a table of the kind that the contexts came in.

        An action that is called like one of the other columns gets the suffix
        ``" (action)"``.
        """
        told = {
            "probability": self.probability,
            "lower": self.lower,
            "upper": self.upper,
            "no_action": self.no_action,
            "support": self.support,
            "extrapolates": self.extrapolates,
            "verdict": self.verdict,
            "reason": self.reason,
        }
        names = [n + " (action)" if n in told else n for n in self.action_names]
        actions = dict(zip(names, self.actions.T, strict=True))
        return self.table.like({**actions, **told})

    def __str__(self) -> str:
        """Say every decision, up to ten, in a sentence each."""
        lines = [f"{i}: {self[i]}" for i in range(min(10, len(self)))]
        if len(self) > 10:
            lines.append(f"... and {len(self) - 10} more")
        return "\n".join(lines) or "no contexts, no decisions"


def _judge(
    i: int, fault: str | None, unheard: str | None, told: Assessment
) -> tuple[Verdict, str]:
    if fault is not None:
        return "abstain", fault
    p, p0 = float(told.probability[i]), float(told.no_action[i])
    lower, upper = float(told.lower[i]), float(told.upper[i])
    gain = float(told.gain_lower[i])
    caution = _caution(unheard, bool(told.extrapolates[i]))
    if np.isnan(gain):
        return "leave", f"a good outcome is {p0:.0%} likely without action.{caution}"
    if gain > 0:
        return "act", (
            f"a good outcome becomes {p:.0%} likely (90 % interval {lower:.0%} to "
            f"{upper:.0%}), against {p0:.0%} without action.{caution}"
        )
    if p <= p0 or (not caution and p - p0 - gain <= KNOWN):
        return "leave", (
            f"no feasible action is credibly better than doing nothing ({p0:.0%}); "
            f"the best candidate reaches {p:.0%}.{caution}"
        )
    return "abstain", (
        f"the best candidate reaches {p:.0%} against {p0:.0%} without action, but "
        f"history says too little to exclude harm (90 % interval {lower:.0%} to "
        f"{upper:.0%}).{caution}"
    )


def _caution(unheard: str | None, extrapolates: bool) -> str:
    if unheard is not None:
        return f" This is extrapolation: {unheard}"
    if extrapolates:
        return (
            " This is extrapolation: hardly any record has such an action and context."
        )
    return ""
