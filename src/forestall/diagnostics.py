"""What a fitted policy knows and what it does not, for people to read."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
from jaxtyping import Bool, Float, Int

from forestall.arrays import Array
from forestall.decisions import Decisions
from forestall.encoding import Categorical
from forestall.errors import SpecError
from forestall.findings import (
    ActionOverlap,
    ContextRelevance,
    Diagnostics,
    IndicatorFit,
    Need,
)
from forestall.method import Policy
from forestall.observations import Observations, Schema
from forestall.overlap import (
    Leeway,
    Part,
    between,
    leeway,
    leeways,
    parts_of,
)
from forestall.quality import learned
from forestall.rehearsal import Noise, Rehearsal
from forestall.ridge import Ridge
from forestall.simulate import brisk

__all__ = ["Diagnostics", "diagnose"]

# Historical contexts for which advice is sought, to see where it is least sure.
ADVISED = 24
# Records on which the relevance of contexts is measured.
MEASURED = 200
# Advice less sure than the average by this much, in probability, stands out.
STANDS_OUT = 0.03
# Contexts that a part needs for its mean to count for half.
SHRUNK = 3
NEEDS = 3


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
        policy.misfit,
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
