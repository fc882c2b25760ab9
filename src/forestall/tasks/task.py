"""A task: a problem, history to learn it from, and the truth to judge decisions by."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
from jaxtyping import Float

from forestall.arrays import Array
from forestall.errors import SpecError, TaskError, nearest
from forestall.graph import RehearsalGraph
from forestall.problem import Problem
from forestall.tasks.oracle import MOST_DRAWS, maximise
from forestall.tasks.scm import StructuralModel

Row = Mapping[str, Any] | Array
Noise = Mapping[str, Array]

SUPPORTED_SDS = 3.0
DRAWS_FOR_SUPPORT = 2_000
DRAWS_TO_REPORT = 100_000
# Candidates times draws at once; beyond it arrays leave the cache.
BLOCK = 2**17


@dataclass(frozen=True, eq=False)
class Task:
    """A problem whose truth is known.

    Args:
        name: By which :func:`forestall.tasks.get` finds it.
        problem: What a method is told: the roles and the order, not the graph.
        model: The truth.
    """

    name: str
    problem: Problem
    model: StructuralModel = field(repr=False)

    def __post_init__(self) -> None:
        """Check that the model makes what the problem names."""
        if set(self.model.names) != set(self.problem.variables):
            raise SpecError(
                f"Expected the model of task {self.name!r} to make the problem's "
                f"variables, {sorted(self.problem.variables)}; got "
                f"{sorted(self.model.names)}."
            )
        self.model.check_given(dict.fromkeys(self.problem.context, 0.0))

    @cached_property
    def graph(self) -> RehearsalGraph:
        """Who influences whom in truth."""
        return RehearsalGraph(edges=self.model.edges, nodes=self.model.names)

    def problem_with_graph(self) -> Problem:
        """Give the problem with the true graph, for methods that want parents."""
        return replace(self.problem, graph=self.graph)

    def widened(self, share: float) -> Task:
        """Let more be feasible, at either end, by a share of each interval's length.

        A policy then has to know where history cannot speak.
        """
        actions = {
            name: (low - share * (high - low), high + share * (high - low))
            for name, (low, high) in self.problem.actions.items()
        }
        return replace(self, problem=replace(self.problem, actions=actions))

    def history(self, n: int, seed: int) -> dict[str, Float[Array, " n"]]:
        """Sample ``n`` records of all variables, as they come about naturally."""
        return self.model.sample(_positive(n), self._rng("history", seed))

    def contexts(self, n: int, seed: int) -> dict[str, Float[Array, " n"]]:
        """Sample ``n`` new contexts, independent of the history with that seed."""
        values = self.model.sample(_positive(n), self._rng("contexts", seed))
        return {name: values[name] for name in self.problem.context}

    def success(self, context: Row, action: Row | None, n: int, seed: int) -> float:
        """Estimate the true probability of the desired outcome, by Monte Carlo.

        Args:
            context: One context, by name, or as a row in the order of the problem.
            action: What is set, by name, or as a row in the order of the problem.
                Actions left out come about naturally; None leaves out all.
            n: How many draws.
            seed: The same seed gives the same draws for every context and action.
        """
        x = self._context(context)
        a = {} if action is None else self._action(action)
        return float(self._share(self._noise(n, seed), {**x, **a}))

    def successes(
        self, context: Row, actions: Array, n: int, seed: int
    ) -> Float[Array, " m"]:
        """Estimate the success of many actions in one context, with the same draws.

        Args:
            context: One context, as for :meth:`success`.
            actions: One action in each row, columns in the order of the problem.
            n: How many draws.
            seed: As for :meth:`success`: each row's figure is the one given there.
        """
        x = self._context(context)
        rows = np.atleast_2d(np.asarray(actions, dtype=np.float64))
        names = list(self.problem.actions)
        if rows.ndim != 2 or rows.shape[1] != len(names):
            raise TaskError(
                f"Expected one column for each action, {', '.join(names)}; got an "
                f"array of shape {np.shape(actions)}."
            )
        a = np.column_stack([self._inside(k, rows[:, j]) for j, k in enumerate(names)])
        return self._shares(self._noise(n, seed), x, a)

    def oracle(self, context: Row) -> tuple[dict[str, float], float]:
        """Find the best action on the truth, and its success.

        All actions are set, to constants; a natural policy, which reacts to what the
        context does not show, could in theory do better. The success is estimated on
        draws that the search has not seen, so that it is not flattered.
        """
        x = self._context(context)
        lower, upper = self._box
        score = lambda t, n: self._shares(  # noqa: E731
            _first(n, self._search_noise), x, lower + t * (upper - lower)
        )
        t = maximise(score, len(lower))
        assert t is not None, "every point of the box is a choice"
        return self._report(x, lower + t * (upper - lower))

    def supported_oracle(self, context: Row) -> tuple[dict[str, float], float]:
        """Find the best action among those that history supports, and its success.

        Each action, in the order of the model, lies within 3 standard deviations of
        its natural mean given the context and the actions set before it. Where that
        leaves no point of the box: no action, an empty mapping. Where it leaves only
        the edge of what is natural, the best of it may be worse than no action.
        """
        x = self._context(context)

        def score(t: Array, n: int) -> Array:
            a = self._supported(x, t)
            shares = self._shares(_first(n, self._search_noise), x, np.nan_to_num(a))
            return np.where(np.isnan(a).any(axis=1), -np.inf, shares)

        t = maximise(score, len(self.problem.actions))
        if t is None:
            return {}, float(self._share(self._report_noise, x))
        return self._report(x, self._supported(x, t[None])[0])

    def _supported(
        self, x: Mapping[str, float], t: Float[Array, "m d"]
    ) -> Float[Array, "m d"]:
        """Map the unit cube to supported actions; NaN where an interval is empty."""
        noise = _first(DRAWS_FOR_SUPPORT, self._search_noise)
        names = list(self.problem.actions)
        a: dict[str, Array] = {}
        for name in (v for v in self.model.names if v in names):
            values = self.model.propagate(noise, {**x, **a}, upto=name)[name]
            mean = values.mean(axis=-1, keepdims=True)
            reach = SUPPORTED_SDS * values.std(axis=-1, keepdims=True)
            lower, upper = self.problem.actions[name]
            low, high = np.maximum(lower, mean - reach), np.minimum(upper, mean + reach)
            at = low + t[:, [names.index(name)]] * (high - low)
            a[name] = np.where(low <= high, at, np.nan)
        return np.column_stack([a[name] for name in names])

    def _shares(
        self, noise: Noise, x: Mapping[str, float], a: Float[Array, "m d"]
    ) -> Float[Array, " m"]:
        n = len(next(iter(noise.values())))
        blocks = np.array_split(a, max(1, min(len(a), len(a) * n // BLOCK)))
        fixed = ({**x, **self._columns(block)} for block in blocks)
        shares = [self._share(noise, f) for f in fixed]
        # What no action influences has one share for all of them.
        pairs = zip(shares, blocks, strict=True)
        return np.concatenate([np.broadcast_to(s, len(b)) for s, b in pairs])

    def _columns(self, a: Float[Array, "m d"]) -> dict[str, Float[Array, "m 1"]]:
        return {name: a[:, [j]] for j, name in enumerate(self.problem.actions)}

    def _share(self, noise: Noise, fixed: Mapping[str, Any]) -> Array:
        """The share of draws in the desired region, along the last axis."""
        values = self.model.propagate(noise, fixed)
        region, good = self.problem.region, np.array(True)
        # Row by row: Polytope.contains wants the outcomes stacked, which is ten times
        # slower here, and the search asks millions of times.
        for m, b, strict in zip(
            region.normals, region.offsets, region.strict, strict=True
        ):
            used = zip(m, self.problem.outcomes, strict=True)
            y = sum(c * values[name] for c, name in used if c != 0.0)
            good = good & (y < b if strict else y <= b)
        return np.asarray(good.mean(axis=-1))

    def _report(
        self, x: Mapping[str, float], a: Float[Array, " d"]
    ) -> tuple[dict[str, float], float]:
        action = dict(zip(self.problem.actions, a.tolist(), strict=True))
        return action, float(self._share(self._report_noise, {**x, **action}))

    @cached_property
    def _box(self) -> tuple[Array, Array]:
        ends = np.array(list(self.problem.actions.values()), dtype=np.float64)
        return ends[:, 0], ends[:, 1]

    @cached_property
    def _search_noise(self) -> Noise:
        return self.model.draw(MOST_DRAWS, self._rng("search", 0))

    @cached_property
    def _report_noise(self) -> Noise:
        return self.model.draw(DRAWS_TO_REPORT, self._rng("report", 0))

    def _noise(self, n: int, seed: int) -> Noise:
        return self.model.draw(_positive(n), self._rng("success", seed))

    def _rng(self, purpose: str, seed: int) -> np.random.Generator:
        # The purpose is part of the seed: one seed, and yet independent draws.
        if seed < 0:
            raise TaskError(f"Expected a seed of 0 or more; got {seed}.")
        return np.random.default_rng([seed, *f"{self.name} {purpose}".encode()])

    def _context(self, context: Row) -> dict[str, float]:
        values = _by_name(context, list(self.problem.context), "context")
        absent = [name for name in self.problem.context if name not in values]
        if absent:
            raise TaskError(
                f"Expected a value for every context of {self.name!r}; missing: "
                f"{', '.join(absent)}."
            )
        return values

    def _action(self, action: Row) -> dict[str, float]:
        values = _by_name(action, list(self.problem.actions), "action")
        return {k: float(self._inside(k, np.array([v]))[0]) for k, v in values.items()}

    def _inside(self, name: str, a: Float[Array, " m"]) -> Float[Array, " m"]:
        lower, upper = self.problem.actions[name]
        # Undoing a standardisation may leave the box by a rounding error.
        slack = 1e-9 * (upper - lower)
        out = ~((a >= lower - slack) & (a <= upper + slack))
        if out.any():
            raise TaskError(
                f"Expected the action {name!r} in [{lower:g}, {upper:g}]; got "
                f"{a[out][0]:g}. Keep it inside its feasible interval."
            )
        return np.clip(a, lower, upper)


def _first(n: int, noise: Noise) -> Noise:
    return {name: e[:n] for name, e in noise.items()}


def _positive(n: int) -> int:
    if n < 1:
        raise TaskError(f"Expected n of 1 or more; got {n}.")
    return n


def _by_name(row: Row, names: Sequence[str], what: str) -> dict[str, float]:
    if not isinstance(row, Mapping):
        flat = np.ravel(row)
        if len(flat) != len(names):
            raise TaskError(
                f"Expected one value for each {what}, {', '.join(names)}; got "
                f"{len(flat)} values. Give them in that order, or by name."
            )
        row = dict(zip(names, flat, strict=True))
    for name in row:
        if name not in names:
            raise TaskError(
                f"Expected values for {what}s named {', '.join(names)}; got {name!r}."
                f"{nearest(name, names)}"
            )
    return {name: _number(name, value) for name, value in row.items()}


def _number(name: str, value: Any) -> float:
    try:
        number = float(np.asarray(value, dtype=np.float64).item())
    except (TypeError, ValueError) as error:
        raise TaskError(f"Expected one number for {name!r}; got {value!r}.") from error
    if not np.isfinite(number):
        raise TaskError(f"Expected a finite number for {name!r}; got {number}.")
    return number
