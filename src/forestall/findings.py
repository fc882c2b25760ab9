"""What is said of a fitted policy: how well it learned, and what it lacks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from forestall.identify import Criterion, Identification
from forestall.overlap import Overlap, PartOverlap
from forestall.quality import DETERMINED, Fit

# A context that moves the probability by less than this does not matter.
UNMOVED = 0.01
# Advice that is sure to within this much, in probability, needs nothing.
SURE = 0.05
CALIBRATED = (
    "Everywhere about 90 % of the records lie in the central 90 % of their laws."
)


@dataclass(frozen=True)
class ActionOverlap:
    """How freely history varied one action, in all and by part of the contexts."""

    overlap: Overlap
    parts: tuple[PartOverlap, ...]

    @property
    def thin(self) -> tuple[PartOverlap, ...]:
        """The parts of which history says little."""
        return tuple(part for part in self.parts if part.thin)


@dataclass(frozen=True)
class ContextRelevance:
    """How much one context matters to a good outcome.

    Args:
        name: The context.
        without: How far it moves the probability without action, on average.
        under: How far it moves the probability under an action that is held fixed.
        determined: How far the other contexts and the actions explain it, linearly.
    """

    name: str
    without: float
    under: float
    determined: float

    @property
    def irrelevant(self) -> bool:
        """Whether a good outcome hardly depends on it."""
        return max(self.without, self.under) < UNMOVED


@dataclass(frozen=True)
class Need:
    """Where more records would help.

    Args:
        where: Which contexts and which advice.
        width: The mean width of the 90 % interval of the advice there.
        abstained: The share of contexts there without advice.
        extrapolated: The share of contexts there whose advice no record resembles.
        records: How many records are there now.
    """

    where: str
    width: float
    abstained: float
    extrapolated: float
    records: int


@dataclass(frozen=True)
class IndicatorFit:
    """How well good outcomes are predicted at once, by records left out.

    Args:
        explained: The share of the variance of "good or not" that is predicted.
        error: The root mean square error of the predicted probability.
    """

    explained: float
    error: float


@dataclass(frozen=True, eq=False)
class Diagnostics:
    """What a fitted policy knows; prints as a text, gives plain data.

    Args:
        policy: The kind of policy.
        records: The number of records it learned from.
        good: The share of them with a desired outcome.
        identification: What is adjusted for, and whether that is enough.
        criterion: Whether the formula of this policy gives the effect asked for.
        misfit: What is wrong with the fit as a whole; empty where nothing is.
        mechanisms: How well each mechanism was learned; empty without mechanisms.
        indicator: How well good outcomes are predicted, for a policy without.
        overlaps: How freely history varied each action.
        contexts: How much each context matters; empty without mechanisms.
        width: The mean width of the 90 % interval of advice for historical contexts.
        abstained: The share of them for which there is no advice.
        needs: Where more records would help, most first.
    """

    policy: str
    records: int
    good: float
    identification: Identification
    criterion: Criterion
    misfit: str
    mechanisms: tuple[Fit, ...]
    indicator: IndicatorFit | None
    overlaps: tuple[ActionOverlap, ...]
    contexts: tuple[ContextRelevance, ...]
    width: float
    abstained: float
    needs: tuple[Need, ...]

    @property
    def advice(self) -> str:
        """What would help most, in a sentence or two."""
        if self.criterion.valid is False:
            return (
                f"More records of the same kind will not help, because the effect "
                f"cannot be told from them. {self.criterion.explanation}"
            )
        if self.misfit:
            return (
                f"To find out what is wrong first, because {self.misfit}. Outcomes "
                f"that are counted, rounded or cut off at a bound can do this; so can "
                f"lines where the records bend, and too few records."
            )
        if self.needs:
            return _need_text(self.needs[0], self)
        sure = (
            f"the 90 % interval of the advice is {_points(self.width)} wide on average"
        )
        if self.width < SURE and not self.abstained:
            return f"Nothing much is missing: {sure}, and no part stands out."
        return f"More records anywhere: {sure}, and no part of the contexts stands out."

    @property
    def remarks(self) -> list[str]:
        """What is odd about mechanisms and actions; empty when nothing is."""
        told = [
            (fit, _twins_text(fit) + _misjudged_text(fit)) for fit in self.mechanisms
        ]
        odd = [f"{fit.name}:{text}" for fit, text in told if text]
        seen = [(each.overlap, seen_text(each.overlap)) for each in self.overlaps]
        odd += [f"{told.action}: {text}" for told, text in seen if text]
        return [f"All in all {self.misfit}."] * bool(self.misfit) + odd

    def to_dict(self) -> dict[str, Any]:
        """Give everything as plain lists, numbers and text."""
        return {
            "policy": self.policy,
            "records": self.records,
            "good": self.good,
            "identification": asdict(self.identification),
            "criterion": asdict(self.criterion),
            "misfit": self.misfit,
            "mechanisms": [
                {
                    **asdict(fit),
                    "relevant": list(fit.relevant),
                    "irrelevant": list(fit.irrelevant),
                    "movers": list(fit.movers),
                }
                for fit in self.mechanisms
            ],
            "indicator": None if self.indicator is None else asdict(self.indicator),
            "overlap": [
                {
                    **asdict(each.overlap),
                    "thin": each.overlap.thin,
                    "parts": [{**asdict(p), "thin": p.thin} for p in each.parts],
                }
                for each in self.overlaps
            ],
            "contexts": [
                {**asdict(each), "irrelevant": each.irrelevant}
                for each in self.contexts
            ],
            "width": self.width,
            "abstained": self.abstained,
            "needs": [asdict(need) for need in self.needs],
            "advice": self.advice,
        }

    def __str__(self) -> str:
        """Say it in plain language."""
        lines = [
            f"{self.records:,} records, {self.good:.1%} of them good.",
            f"Identification: {_VALID[self.criterion.valid]} "
            f"{self.criterion.explanation}",
        ]
        if self.mechanisms:
            lines += ["", "How well each variable is predicted, by records left out:"]
            lines += [f"  {fit_text(fit)}" for fit in self.mechanisms]
            odd = self.misfit or any(fit.misjudged for fit in self.mechanisms)
            if not odd:
                lines.append(f"  {CALIBRATED}")
        if self.indicator is not None:
            lines += ["", indicator_text(self.indicator)]
        if self.misfit:
            lines += ["", f"All in all {self.misfit}."]
        lines += ["", "How freely history varied each action:"]
        for each in self.overlaps:
            lines += [f"  {text}" for text in overlap_texts(each)]
        if self.contexts:
            lines += ["", "How much each context matters to a good outcome:"]
            lines += [f"  {context_text(each)}" for each in self.contexts]
        return "\n".join([*lines, "", f"What would help most: {self.advice}"])


_VALID = {
    True: "the effect of the actions can be told from these records.",
    False: "the effect of the actions cannot be told from these records.",
    None: "whether the effect can be told from these records cannot be checked.",
}


def _need_text(need: Need, told: Diagnostics) -> str:
    unsure = (
        f"the 90 % interval of the advice there is {_points(need.width)} wide on "
        f"average ({_points(told.width)} over all contexts)"
    )
    if need.abstained > told.abstained:
        unsure += f", for {need.abstained:.0%} of the contexts there is no advice"
    text = (
        f"More records with {need.where}: {unsure}, and {_counted(need.records)} "
        f"there among {told.records:,}."
    )
    if need.extrapolated >= 0.5 and need.records:
        text += (
            f" For {need.extrapolated:.0%} of the contexts the advice resembles none "
            f"of these: records in which the actions were not what was usual count "
            f"most."
        )
    return text


def _counted(n: int) -> str:
    return {0: "no record is", 1: "one record is"}.get(n, f"{n:,} records are")


def fit_text(fit: Fit) -> str:
    """Say how well one mechanism was learned."""
    text = f"{fit.name} ({fit.role}): "
    if not fit.predicted:
        text += "nothing that precedes it predicts it"
    else:
        text += f"{fit.explained:.0%} predicted, {_SHAPES[fit.shape]}"
        text += f" in {_listed(fit.relevant)}" if fit.relevant else ""
        text += f" (not {_listed(fit.irrelevant)})" if fit.irrelevant else ""
    if fit.n_ways > 1:
        text += f"; it goes one of {fit.n_ways} ways, with nothing between"
    if fit.deviation is not None:
        text += f"; the rest varies by {fit.deviation:.3g}"
    if fit.movers:
        text += f", by how much depends on {_listed(fit.movers)}"
    return f"{text}.{_twins_text(fit)}{_misjudged_text(fit)}"


_SHAPES = {
    "constant": "all but constant",
    "linear": "linear",
    "curved": "curved",
    "bends": "with bends",
}


def _twins_text(fit: Fit) -> str:
    if not fit.predicted:
        return ""
    near = [i.name for i in fit.inputs if i.irrelevant and i.determined > DETERMINED]
    if not near:
        return ""
    return (
        f" What is said of {_listed(near)} may only look so: in history the other "
        f"inputs nearly determine it."
    )


def _misjudged_text(fit: Fit) -> str:
    odd = fit.misjudged
    if odd is None:
        return ""
    where = f" where {odd.where}" if odd.where else ""
    return (
        f" Its law is {odd.fault}{where}: {odd.inside:.0%} of "
        f"{odd.records:,} records lie in its central 90 %."
    )


def indicator_text(fit: IndicatorFit) -> str:
    """Say how well good outcomes are predicted."""
    return (
        f"Whether a record is good: {max(fit.explained, 0):.0%} predicted by the other "
        f"records, off by {_points(fit.error)}."
    )


def overlap_texts(each: ActionOverlap) -> list[str]:
    """Say how freely one action varied, with a line for each thin part."""
    told = each.overlap
    width = told.deviation / (told.upper - told.lower)
    lines = [
        f"{told.action}: varies by {told.deviation:.3g} given the rest "
        f"({told.spread:.0%} of its spread, {width:.0%} of the feasible interval); "
        f"history reaches {told.reach:.0%} of the feasible interval."
    ]
    if told.seen:
        lines.append(f"  {seen_text(told)}")
    thin = each.thin
    if thin and len(thin) == len(each.parts):
        return [*lines, "  Thin everywhere: advice is mostly extrapolation."]
    return lines + [
        f"  Thin where {part.where}: {part.records:,} records, which reach "
        f"{part.reach:.0%} of it."
        for part in thin
    ]


def seen_text(told: Overlap) -> str:
    """Say that an action had a few values only; empty where it had more."""
    if not told.seen:
        return ""
    values = _listed([f"{value:.4g}" for value in told.seen])
    return (
        f"Only {values} were ever seen in history, yet anything from {told.lower:g} to "
        f"{told.upper:g} may be advised: what is said of other values rests on "
        f"smoothness alone."
    )


def context_text(each: ContextRelevance) -> str:
    """Say how much one context matters."""
    if not each.irrelevant:
        return (
            f"{each.name}: moves the probability by {_points(each.without)} without "
            f"action, by {_points(each.under)} when the actions are held."
        )
    text = f"{each.name}: irrelevant."
    if each.determined > DETERMINED:
        text += " It may only look so: the other variables nearly determine it."
    return text


def _points(share: float) -> str:
    points = f"{100 * share:.0f}"
    return f"{points} point" if points == "1" else f"{points} points"


def _listed(names: Sequence[str]) -> str:
    return ", ".join(names)
