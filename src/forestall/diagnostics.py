"""What a fitted policy knows and what it does not, for people to read."""

from __future__ import annotations

import warnings
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from jaxtyping import Bool, Float, Int

from forestall.arrays import Array
from forestall.decisions import Decisions
from forestall.encoding import Categorical
from forestall.errors import SpecError
from forestall.identify import Criterion, Identification
from forestall.method import Policy
from forestall.observations import Observations, Schema
from forestall.overlap import (
    Leeway,
    Overlap,
    Part,
    PartOverlap,
    between,
    leeway,
    leeways,
    parts_of,
)
from forestall.quality import (
    DETERMINED,
    Fit,
    learned,
)
from forestall.rehearsal import Noise, Rehearsal
from forestall.ridge import Ridge
from forestall.simulate import brisk

# Historical contexts for which advice is sought, to see where it is least sure.
ADVISED = 24
# Records on which the relevance of contexts is measured.
MEASURED = 200
# A context that moves the probability by less than this does not matter.
UNMOVED = 0.01
# Advice less sure than the average by this much, in probability, stands out.
STANDS_OUT = 0.03
# Advice that is sure to within this much, in probability, needs nothing.
SURE = 0.05
# Contexts that a part needs for its mean to count for half.
SHRUNK = 3
NEEDS = 3
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
        """What is odd about the mechanisms; empty when nothing is."""
        told = [
            (fit, _twins_text(fit) + _misjudged_text(fit)) for fit in self.mechanisms
        ]
        return [f"{fit.name}:{text}" for fit, text in told if text]

    def to_dict(self) -> dict[str, Any]:
        """Give everything as plain lists, numbers and text."""
        return {
            "policy": self.policy,
            "records": self.records,
            "good": self.good,
            "identification": asdict(self.identification),
            "criterion": asdict(self.criterion),
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
            if not any(fit.misjudged for fit in self.mechanisms):
                lines.append(f"  {CALIBRATED}")
        if self.indicator is not None:
            lines += ["", indicator_text(self.indicator)]
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


def diagnose(policy: Policy) -> Diagnostics:
    """Say what a fitted policy knows and what it does not.

    Args:
        policy: Any policy that keeps its records. One with mechanisms is looked into;
            of the others identification, overlap and fit are told.
    """
    data = getattr(policy, "data", None)
    if not isinstance(data, Observations):
        raise SpecError(
            f"Expected a policy that keeps the records it learned from; got "
            f"{type(policy).__name__}, which keeps none. Fit with StagedRehearsal()."
        )
    system = getattr(policy, "system", None)
    staged = system if isinstance(system, Rehearsal) else None
    rows = np.linspace(0, data.n - 1, min(data.n, ADVISED)).astype(int)
    told = _advised(policy, data, rows)
    parts = parts_of(data.schema.context, data.x)
    return Diagnostics(
        type(policy).__name__,
        data.n,
        float(data.good.mean()),
        policy.identification,
        policy.criterion,
        tuple(each.fit() for each in learned(staged, data)) if staged else (),
        None if staged else indicator_fit(policy),
        tuple(
            ActionOverlap(each.overlap(), tuple(each.within(part) for part in parts))
            for each in leeways_of(policy)
        ),
        _contexts(staged, data) if staged else (),
        float(_widths(told).mean()),
        float(_silent(told).mean()),
        _needs(data, parts, rows, told),
    )


def leeways_of(policy: Policy) -> tuple[Leeway, ...]:
    """How far each action strayed from what was usual, by the policy's own mechanism.

    A policy without mechanisms gets a regression on what it adjusts for.
    """
    data: Observations = policy.data  # type: ignore[attr-defined]
    system = getattr(policy, "system", None)
    if not isinstance(system, Rehearsal):
        return leeways(data, policy.identification.adjusted)
    every = np.arange(data.n)
    left_out = {each.name: each.residuals[:, 0] for each in learned(system, data)}
    return tuple(
        leeway(data, k, every, left_out[name])
        for k, name in enumerate(data.schema.actions.names)
    )


def left_out_predictions(policy: Policy) -> tuple[Array, Array] | None:
    """Predict whether records are good from the others, by a kernel policy.

    Gives the predictions and what came; ``None`` where the policy does not do so.
    """
    solution = getattr(policy, "solution", None)
    inner = getattr(getattr(policy, "systems", None), "inner", None)
    if not isinstance(inner, Ridge) or solution is None:
        return None
    good = policy.data.good.astype(float)  # type: ignore[attr-defined]
    n = len(good)
    rows = np.linspace(0, n - 1, min(n, 1_000)).astype(int)
    unit = np.zeros((n, len(rows)))
    unit[rows, np.arange(len(rows))] = 1.0
    residuals = solution.alpha_hard[rows] / inner.explained(unit)
    return good[rows] - residuals, good[rows]


def indicator_fit(policy: Policy) -> IndicatorFit | None:
    """Say how well a kernel policy predicts good outcomes, by records left out."""
    found = left_out_predictions(policy)
    if found is None:
        return None
    predicted, good = found
    error = float(((np.clip(predicted, 0.0, 1.0) - good) ** 2).mean())
    variance = float(good.var())
    return IndicatorFit(1.0 - error / variance if variance else 0.0, error**0.5)


def contexts_at(schema: Schema, x: Float[Array, "m d_x"]) -> dict[str, Any]:
    """Turn encoded contexts back into columns of the user's values."""
    columns: dict[str, Any] = {}
    for column in schema.context.columns:
        values = x[:, schema.context.slices[column.name]]
        if isinstance(column, Categorical):
            columns[column.name] = [column.levels[k] for k in values.argmax(axis=1)]
        else:
            k = schema.context.slices[column.name].start
            mean, scale = schema.context.means[k], schema.context.scales[k]
            columns[column.name] = mean + scale * values[:, 0]
    return columns


def _advised(policy: Policy, data: Observations, rows: Int[Array, " m"]) -> Decisions:
    with warnings.catch_warnings():
        # That a record lies at the edge of history is no news here.
        warnings.simplefilter("ignore")
        contexts = contexts_at(data.schema, data.x[rows])
        return brisk(policy, 32, 32).recommend(contexts)


def _contexts(system: Rehearsal, data: Observations) -> tuple[ContextRelevance, ...]:
    """Permute each context among records, with actions free and with actions held."""
    rows = np.linspace(0, data.n - 1, min(data.n, MEASURED)).astype(int)
    x, rng = data.x[rows], np.random.default_rng(0)
    a = np.clip(data.a[rows], data.schema.lower, data.schema.upper)
    noise = Noise.drawn(system.n_noises, 32, 1, rng)
    held = np.ones(system.n_actions, dtype=bool)
    other = rng.permutation(len(x))

    def success(x: Array, altered: Bool[Array, " d_a"]) -> Array:
        return system.success(x, a, altered, np.array([0]), noise).value[:, 0]

    before = {flag: success(x, held if flag else ~held) for flag in (False, True)}
    found = []
    for name, part in data.schema.context.slices.items():
        mixed = x.copy()
        mixed[:, part] = x[other][:, part]
        free, fixed = (
            float(np.abs(success(mixed, held if flag else ~held) - before[flag]).mean())
            for flag in (False, True)
        )
        rest = np.concatenate([np.delete(x, part, axis=1), data.a[rows]], axis=1)
        found.append(ContextRelevance(name, free, fixed, _explained(rest, x[:, part])))
    return tuple(found)


def _explained(z: Float[Array, "m d"], v: Float[Array, "m k"]) -> float:
    """How far a linear fit explains the least explained column of ``v``."""
    if z.shape[1] > len(z) / 4:
        return 0.0
    basis = np.concatenate([np.ones((len(z), 1)), z], axis=1)
    rest = v - basis @ np.linalg.lstsq(basis, v, rcond=None)[0]
    return float(1.0 - (rest.var(axis=0) / np.maximum(v.var(axis=0), 1e-12)).max())


def _widths(told: Decisions) -> Float[Array, " m"]:
    # A method without intervals says nothing of its doubts.
    return np.nan_to_num(told.upper - told.lower)


def _silent(told: Decisions) -> Bool[Array, " m"]:
    return np.array([verdict == "abstain" for verdict in told.verdict], dtype=bool)


def _needs(
    data: Observations, parts: tuple[Part, ...], rows: Int[Array, " m"], told: Decisions
) -> tuple[Need, ...]:
    """Find the contexts and actions for which advice is least sure."""
    widths, silent = _widths(told), _silent(told)
    unsure = widths + 0.5 * silent
    found: list[tuple[float, Need]] = []
    for part in parts:
        for chosen, taken in _action_parts(data, told.actions):
            here = part.rows[rows] & chosen.rows
            excess = float((unsure[here] - unsure.mean()).sum())
            score = excess / (here.sum() + SHRUNK)
            if score > STANDS_OUT:
                need = Need(
                    f"{part.where} and {chosen.where}",
                    float(widths[here].mean()),
                    float(silent[here].mean()),
                    float(told.extrapolates[here].mean()),
                    int((part.rows & taken.rows).sum()),
                )
                found.append((score, need))
    found.sort(key=lambda pair: -pair[0])
    return tuple(need for _, need in found[:NEEDS])


def _action_parts(
    data: Observations, advised: Float[Array, "m d_a"]
) -> list[tuple[Part, Part]]:
    """Split the feasible intervals into thirds: of what is advised, and was done."""
    schema, pairs = data.schema, []
    done = data.a * schema.actions.scales + schema.actions.means
    for k, name in enumerate(schema.actions.names):
        lower, upper = schema.bounds[k].tolist()
        ends = lower + (upper - lower) / 3, upper - (upper - lower) / 3
        now, then = (between(name, v[:, k], *ends) for v in (advised, done))
        pairs += list(zip(now, then, strict=True))
    return pairs


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
    return (
        f" Its law is {odd.fault} where {odd.where}: {odd.inside:.0%} of "
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
    thin = each.thin
    if thin and len(thin) == len(each.parts):
        return [*lines, "  Thin everywhere: advice is mostly extrapolation."]
    return lines + [
        f"  Thin where {part.where}: {part.records:,} records, which reach "
        f"{part.reach:.0%} of it."
        for part in thin
    ]


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


def _listed(names: tuple[str, ...] | list[str]) -> str:
    return ", ".join(names)
