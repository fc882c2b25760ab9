"""Decisions: an action for each context, and how sure we are of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from typing import Any, Literal, overload

import numpy as np
from jaxtyping import Bool, Float

from forestall.arrays import Array
from forestall.identify import Criterion, Identification
from forestall.observations import ContextRows, Observations, Schema
from forestall.support import MARGIN, spelt
from forestall.table import Table

Verdict = Literal["act", "leave", "abstain"]

# An improvement that is likely but not credible is left alone where it is known to
# within this much, and abstained from where it is not.
KNOWN = 0.25
# How far towards where trends end an action is sought: no rounding leads beyond.
NEARLY = 0.999
# Decisions that are said or shown one by one.
SAID = 10


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
        altered: Which actions are altered at all, the others keeping their natural
            course; ``None`` where all are.
        notes: Remarks on how each action was chosen, or ``None``.
    """

    actions: Float[Array, "q d_a"]
    probability: Float[Array, " q"]
    lower: Float[Array, " q"]
    upper: Float[Array, " q"]
    no_action: Float[Array, " q"]
    gain_lower: Float[Array, " q"]
    support: Float[Array, " q"]
    extrapolates: Bool[Array, " q"]
    altered: Bool[Array, "q d_a"] | None = None
    notes: Array | None = None

    @classmethod
    def joined(cls, parts: Sequence[Assessment]) -> Assessment:
        """Put blocks of contexts together again."""
        names = [field.name for field in fields(cls)]
        columns: Any = ([getattr(part, name) for part in parts] for name in names)
        joined: Any = (None if c[0] is None else np.concatenate(c) for c in columns)
        return cls(*joined)

    @property
    def all_altered(self) -> Bool[Array, "q d_a"]:
        """Which actions are altered, spelt out."""
        if self.altered is not None:
            return self.altered
        return np.ones(self.actions.shape, dtype=bool)

    def remarked(self, i: int, verdict: Verdict, reason: str) -> tuple[Verdict, str]:
        """Add what there is to say about how the action of context ``i`` was chosen."""
        note = "" if self.notes is None else str(self.notes[i])
        return verdict, f"{reason} {note}".strip()


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

    def _repr_html_(self) -> str:
        """The same with its verdict and its chances drawn, for a notebook."""
        from forestall import html

        return html.sentence(self.verdict, str(self), self._bars())

    def _bars(self) -> str:
        from forestall import html

        chances = self.no_action, self.probability, self.lower, self.upper
        return html.bars(*chances, advised=self.verdict == "act")


@dataclass(frozen=True, eq=False)
class Decisions:
    """An action for each context, with how likely it makes a good outcome.

    Where only some actions were to be altered (``only=``, ``at_most=``), the entries of
    the others in ``actions`` are fillers that mean nothing. ``altered`` tells which
    they are; in :meth:`to_frame` they are NaN, and a single decision leaves them out.

    Args:
        actions: The best candidate for each context whatever the verdict, in the
            user's units, columns in the order of ``problem.actions``; fillers where
            ``altered`` is false.
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
        altered: Which actions are to be set; the others keep their natural course.
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
    altered: Array
    action_names: tuple[str, ...]
    table: Table

    @classmethod
    def judged(
        cls,
        rows: ContextRows,
        assessment: Assessment,
        schema: Schema,
        identification: Identification,
        judge: Judge,
    ) -> Decisions:
        """Turn an assessment into verdicts, in the user's units."""
        faulty = np.array([fault is not None for fault in rows.faults], dtype=bool)
        strange = np.array([text is not None for text in judge.unheard], dtype=bool)
        told: list[tuple[Verdict, str]] = [
            ("abstain", fault)
            if fault
            else assessment.remarked(i, *judge(assessment, i))
            for i, fault in enumerate(rows.faults)
        ]
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
            # Where the context cannot be read, nothing is to be set.
            assessment.all_altered & ~faulty[:, None],
            schema.actions.names,
            rows.table,
        )

    def __len__(self) -> int:
        """Count the contexts."""
        return len(self.probability)

    def __iter__(self) -> Iterator[Decision]:
        """Go through the decisions one by one."""
        return (self[i] for i in range(len(self)))

    @overload
    def __getitem__(self, i: int) -> Decision: ...

    @overload
    def __getitem__(self, i: slice) -> list[Decision]: ...

    def __getitem__(self, i: int | slice) -> Decision | list[Decision]:
        """Take one context's decision, or a list of them."""
        if isinstance(i, slice):
            return [self[k] for k in range(*i.indices(len(self)))]
        pairs = zip(self.action_names, self.actions[i].tolist(), strict=True)
        return Decision(
            {k: v for (k, v), set_ in zip(pairs, self.altered[i], strict=True) if set_},
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

        An action that keeps its natural course is NaN. An action that is called like
        one of the other columns gets the suffix ``" (action)"``.
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
        names = []
        for name in self.action_names:
            while name in told or name in names:
                name += " (action)"
            names.append(name)
        left = np.where(self.altered, self.actions, np.nan)
        actions = dict(zip(names, left.T, strict=True))
        return self.table.like({**actions, **told})

    def __repr__(self) -> str:
        """Count the verdicts; the numbers are in the fields."""
        counts = Counter(self.verdict)
        told = ", ".join(f"{counts[v]} {v}" for v in ("act", "leave", "abstain"))
        return f"Decisions({len(self)} contexts: {told})"

    def __str__(self) -> str:
        """Say every decision, up to ten, in a sentence each."""
        lines = [f"{i}: {self[i]}" for i in range(min(SAID, len(self)))]
        if len(self) > SAID:
            lines.append(f"... and {len(self) - SAID} more")
        return "\n".join(lines) or "no contexts, no decisions"

    def _repr_html_(self) -> str:
        """Show the first of them as a table with bars, for a notebook."""
        from forestall import html

        heads = ("row", *self.action_names, "without", "with", "", "verdict", "reason")
        rows = (self._cells(i) for i in range(min(SAID, len(self))))
        more = len(self) - SAID
        note = f"and {more:,} more; see to_frame()" * (more > 0)
        return html.table(repr(self), heads, rows, note)

    def _cells(self, i: int) -> list[str]:
        from forestall import html

        one = self[i]
        told = {name: f"{value:.4g}" for name, value in one.actions.items()}
        # What cannot be read was answered for neutral values.
        known = not np.isnan(one.probability)
        return [
            str(i),
            *(told.get(k, "as it comes") if known else "–" for k in self.action_names),
            html.share(one.no_action),
            html.share(one.probability),
            one._bars(),
            html.badge(one.verdict),
            html.escaped(one.reason),
        ]


@dataclass(frozen=True, eq=False)
class Tried:
    """What history tried of each action, beside what is feasible.

    Args:
        names: The actions.
        lower: The smallest value of each in history, standardised.
        upper: The largest.
        ends: The same two in the user's unit, said roughly.
        never: Whether all that is feasible lies outside of what was tried.
        sampled: Whether only some of the records are known.
    """

    names: tuple[str, ...]
    lower: Float[Array, " d_a"]
    upper: Float[Array, " d_a"]
    ends: tuple[str, ...]
    never: Bool[Array, " d_a"]
    sampled: bool = False

    @classmethod
    def of(cls, data: Observations, *, sampled: bool) -> Tried:
        """Look the records up."""
        schema, actions = data.schema, data.schema.actions
        lower, upper = data.a.min(axis=0), data.a.max(axis=0)
        margin = MARGIN * (upper - lower)
        ends = np.stack([lower, upper], axis=1) * actions.scales[:, None]
        return cls(
            actions.names,
            lower,
            upper,
            tuple(spelt(*pair) for pair in (ends + actions.means[:, None]).tolist()),
            (schema.upper < lower - margin) | (schema.lower > upper + margin),
            sampled,
        )

    def beyond(self, a: Float[Array, "q d_a"]) -> Bool[Array, "q d_a"]:
        """Tell which actions lie further out than any trend can be trusted."""
        whole = self.upper - self.lower
        out: Bool[Array, "q d_a"] = (a < self.lower - whole) | (a > self.upper + whole)
        return out

    def trusted(
        self, lower: Float[Array, " d_a"], upper: Float[Array, " d_a"]
    ) -> tuple[Float[Array, " d_a"], Float[Array, " d_a"]]:
        """Leave out what lies beyond, of each action that is not beyond altogether."""
        whole = NEARLY * (self.upper - self.lower)
        low = np.maximum(lower, self.lower - whole)
        high = np.minimum(upper, self.upper + whole)
        some = low <= high
        return np.where(some, low, lower), np.where(some, high, upper)

    def unseen_text(self, altered: Bool[Array, " d_a"]) -> str:
        """Name an altered action that was never tried anywhere near; empty if none."""
        (unseen,) = np.nonzero(self.never & altered)
        if not len(unseen):
            return ""
        name, had = self.names[unseen[0]], self._had(int(unseen[0]))
        if self.sampled:
            return f"hardly any record has a feasible {name}: {had}"
        return f"no feasible {name} was ever tried near here: {had}"

    def beyond_text(self, a: Float[Array, " d_a"], altered: Bool[Array, " d_a"]) -> str:
        """Name one that lies further out than a trend is trusted; empty if none."""
        (out,) = np.nonzero(self.beyond(a[None])[0] & altered)
        if not len(out):
            return ""
        name, had = self.names[out[0]], self._had(int(out[0]))
        return f"{name} lies further out than any trend can be trusted: {had}"

    def _had(self, k: int) -> str:
        whose = "a sample of history" if self.sampled else "history"
        return f"{whose} has {self.names[k]} from {self.ends[k]}."


@dataclass(frozen=True)
class Judge:
    """What it takes to act, and how to say it.

    Args:
        criterion: Whether the method's formula gives the effect of the actions.
        unheard: Why each context is far outside history, if it is.
        infeasible: Which given actions lie outside their feasible intervals; ``None``
            where the policy chose the actions itself.
        tried: What history tried of each action; ``None`` where that is not known.
        misfit: What is wrong with the fit as a whole; empty where nothing is.
    """

    criterion: Criterion
    unheard: Sequence[str | None]
    infeasible: Sequence[bool] | None = None
    tried: Tried | None = None
    misfit: str = ""

    def __call__(self, told: Assessment, i: int) -> tuple[Verdict, str]:
        """Judge the action of context ``i``."""
        p, p0 = float(told.probability[i]), float(told.no_action[i])
        gain = float(told.gain_lower[i])
        now, without = percent(p), percent(p0)
        range_ = interval(float(told.lower[i]), float(told.upper[i]))
        caution = self._caution(told, i)
        if np.isnan(gain):
            return (
                "leave",
                f"a good outcome is {without} likely without action.{caution}",
            )
        barred = self.infeasible is not None and self.infeasible[i]
        if self.unheard[i] is not None or self.criterion.valid is False or barred:
            return "abstain", (
                f"nothing can be said with confidence; by the records a good outcome "
                f"would be {now} likely, against {without} without action.{caution}"
            )
        if gain > 0:
            better, than = beside(p, p0)
            return "act", (
                f"a good outcome becomes {better} likely ({range_}), against {than} "
                f"without action.{caution}"
            )
        unsure = bool(told.extrapolates[i] or self.misfit)
        if p <= p0 and not (unsure and told.upper[i] > p0):
            return "leave", self._no_better(now, without) + caution
        if not caution and p - p0 - gain <= KNOWN:
            return "leave", self._no_better(now, without)
        lacking = "exclude harm" if p > p0 else "tell whether it would help"
        why = f"history says too little to {lacking}"
        if self.misfit:
            why = "the fit cannot be trusted"
        return "abstain", (
            f"{self._subject} reaches {now} against {without} without action, but "
            f"{self._beyond(told, i) or f'{why} ({range_}).{caution}'}"
        )

    @property
    def _subject(self) -> str:
        return "the best candidate" if self.infeasible is None else "this action"

    def _no_better(self, now: str, without: str) -> str:
        if self.infeasible is None:
            return (
                f"no feasible action is credibly better than doing nothing "
                f"({without}); the best candidate reaches {now}."
            )
        return (
            f"this action reaches {now}, which is not credibly better than doing "
            f"nothing ({without})."
        )

    def _beyond(self, told: Assessment, i: int) -> str:
        if self.tried is None:
            return ""
        return self.tried.beyond_text(told.actions[i], told.all_altered[i])

    def _caution(self, told: Assessment, i: int) -> str:
        text = ""
        if self.unheard[i] is not None:
            text += f" This is extrapolation: {self.unheard[i]}"
        elif told.extrapolates[i]:
            text += self._extrapolation(told, i)
        if self.misfit:
            text += f" All in all {self.misfit}."
        if self.criterion.valid is False:
            text += f" The graph shows a bias: {self.criterion.explanation}"
        if self.infeasible is not None and self.infeasible[i]:
            text += " The action lies outside its feasible interval."
        return text

    def _extrapolation(self, told: Assessment, i: int) -> str:
        """Say of what sort it is, the plainest first."""
        unseen = self.tried.unseen_text(told.all_altered[i]) if self.tried else ""
        if unseen:
            return f" This is extrapolation, as {unseen}"
        return (
            " This is extrapolation: hardly any record has such an action and context."
        )


def interval(lower: float, upper: float) -> str:
    """Write a 90 % interval of a probability, its ends never as certain.

    Example:
        >>> interval(0.25, 0.999), interval(0.9999, 1.0)
        ('90 % interval 25% to over 99%', '90 % interval over 99%')
    """
    low, high = percent(lower), percent(upper)
    return f"90 % interval {low}" + f" to {high}" * (low != high)


def beside(p: float, other: float) -> tuple[str, str]:
    """Write two probabilities, finer where they would look the same.

    Example:
        >>> beside(0.3, 0.2), beside(0.003, 0.001), beside(0.99999, 0.995)
        (('30%', '20%'), ('0.30%', '0.10%'), ('over 99.99%', '99.50%'))
    """
    rough = percent(p), percent(other)
    return rough if rough[0] != rough[1] else (_finely(p), _finely(other))


def _finely(p: float) -> str:
    if p > 0.9999:
        return "over 99.99%"
    return "under 0.01%" if p < 0.0001 else f"{p:.2%}"


def percent(p: float) -> str:
    """Write a probability, never as certain.

    Example:
        >>> percent(0.999), percent(0.5), percent(0.0)
        ('over 99%', '50%', 'under 1%')
    """
    if p > 0.99:
        return "over 99%"
    return "under 1%" if p < 0.01 else f"{p:.0%}"
