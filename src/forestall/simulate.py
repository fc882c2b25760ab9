"""Outcomes and actions simulated from a fitted system, for one context.

What is shown to people is drawn from the mechanisms, never taken from the records:
those may be about persons.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from jaxtyping import Bool, Float

from forestall.arrays import Array
from forestall.errors import DataError, SpecError, nearest
from forestall.method import Policy
from forestall.rehearsal import Node, Noise, Rehearsal


@dataclass(frozen=True, eq=False)
class Simulated:
    """What may come of one context, in the user's units, one row for each path.

    Args:
        actions: The actions: as set, or as they come by themselves.
        outcomes: The outcomes.
    """

    actions: Array
    outcomes: Array


def system_of(policy: Policy) -> Rehearsal:
    """Take the mechanisms of a policy; an error where it has none."""
    system = getattr(policy, "system", None)
    if isinstance(system, Rehearsal):
        return system
    raise SpecError(
        f"Expected a policy that learned a mechanism for each variable; got "
        f"{type(policy).__name__}, which did not. Fit with StagedRehearsal()."
    )


def checked_actions(policy: Policy, actions: Mapping[str, Any]) -> dict[str, float]:
    """Read what some of the actions are set to."""
    names = policy.schema.actions.names
    for name, value in actions.items():
        if name not in names:
            raise SpecError(
                f"Expected actions of the problem ({', '.join(names)}); got {name!r}."
                f"{nearest(name, names)}"
            )
        if isinstance(value, str | bool) or not np.isscalar(value):
            raise DataError(
                f"Expected a number for the action {name!r}; got {value!r}."
            )
        if not np.isfinite(value):
            raise DataError(
                f"Expected a finite number for the action {name!r}; got {value!r}."
            )
    return {name: float(value) for name, value in actions.items()}


def simulate(
    policy: Policy,
    context: Any,
    actions: Mapping[str, Any] | None = None,
    *,
    n_worlds: int = 32,
    n_paths: int = 32,
    seed: int = 0,
) -> Simulated:
    """Draw what may come of one context, over what the records leave unknown.

    Args:
        policy: A policy with mechanisms.
        context: One context, as a mapping or a table of one row.
        actions: What is set; an action that is not named comes by itself.
        n_worlds: How many drawn systems to run.
        n_paths: How many times to run each; a power of two.
        seed: What the draws come from.
    """
    system, schema = system_of(policy), policy.schema
    x = one_context(policy, context)
    names, given = schema.actions.names, checked_actions(policy, actions or {})
    altered = np.array([name in given for name in names], dtype=bool)
    values = [given.get(name, 0.0) for name in names]
    a = (np.array(values, dtype=float) - schema.actions.means) / schema.actions.scales
    rng = np.random.default_rng(seed)
    noise = Noise.drawn(system.n_noises, n_paths, n_worlds, rng)
    known = system.outcomes[0].mechanism.trend.shape[1]
    worlds = np.linspace(min(1, known - 1), known - 1, n_worlds).astype(int).tolist()
    states = np.concatenate(
        [
            _run(system, x, a, altered, noise.of(k), draw)
            for k, draw in enumerate(worlds)
        ]
    )
    return _in_units(policy, system, states)


def brisk(policy: Policy, n_draws: int, n_paths: int) -> Policy:
    """Let a policy search and report roughly, where many answers are wanted at once."""
    method: Any = getattr(policy, "method", None)
    if not isinstance(getattr(policy, "system", None), Rehearsal):
        return policy
    rough: dict[str, Any] = {
        "search": replace(method.search, n_starts=2, n_steps=3),
        "n_draws": min(n_draws, method.n_draws),
        "n_paths": min(n_paths, method.n_paths),
    }
    changes: dict[str, Any] = {"method": replace(method, **rough)}
    return replace(policy, **changes)


def one_context(policy: Policy, context: Any) -> Float[Array, "1 d_x"]:
    """Encode the one context that is to be shown."""
    rows = policy.schema.encode_contexts(context)
    if rows.n != 1:
        raise DataError(
            f"Expected one context to show; got {rows.n}. Pass one row, e.g. a mapping "
            f"of names to values."
        )
    if rows.faults[0]:
        raise DataError(rows.faults[0])
    return rows.x


def _run(
    system: Rehearsal,
    x: Float[Array, "1 d_x"],
    a: Float[Array, " d_a"],
    altered: Bool[Array, " d_a"],
    levels: Float[Array, "v r"],
    draw: int,
) -> Float[Array, "r w"]:
    """Run all paths of one drawn system, variable by variable."""
    state = np.zeros((levels.shape[1], system.width))
    state[:, : x.shape[1]] = x
    for node, u in zip(system.nodes, levels, strict=False):
        if node.action is not None and altered[node.action]:
            state[:, node.columns] = a[node.action]
        else:
            state[:, node.columns] = _drawn(node, state[:, node.inputs], u, draw)
    first = system.width - len(system.outcomes)
    last = levels[len(system.nodes) :]
    for k, (outcome, u) in enumerate(zip(system.outcomes, last, strict=True)):
        z = state[:, outcome.inputs]
        mean = outcome.mechanism(z, np.array([draw]))[:, 0]
        state[:, first + k] = mean + outcome.law.at(z, draw, mean).quantile(u)
    return state


def _drawn(
    node: Node, z: Float[Array, "r d"], u: Float[Array, " r"], draw: int
) -> Float[Array, "r k"]:
    means = [m(z, np.array([draw]))[:, 0] for m in node.mechanisms]
    if node.law is not None:
        return (means[0] + node.law.at(z, draw, means[0]).quantile(u))[:, None]
    below = cumulated(np.stack(means, axis=1))
    level = np.minimum((below < u[:, None]).sum(axis=1), below.shape[1] - 1)
    return np.eye(below.shape[1])[level]


def cumulated(shares: Float[Array, "n k"]) -> Float[Array, "n k"]:
    """Turn estimated shares of levels into cumulated probabilities."""
    shares = np.maximum(shares, 1e-6)
    return np.cumsum(shares / shares.sum(axis=1, keepdims=True), axis=1)


def _in_units(
    policy: Policy, system: Rehearsal, states: Float[Array, "n w"]
) -> Simulated:
    schema = policy.schema
    first = system.width - len(system.outcomes)
    a = states[:, first - schema.actions.width : first]
    y = states[:, first:]
    return Simulated(
        a * schema.actions.scales + schema.actions.means,
        y * schema.outcomes.scales + schema.outcomes.means,
    )
