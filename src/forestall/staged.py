"""Our method: rehearse stage by stage, with every mechanism learned by itself."""

from __future__ import annotations

import numbers
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import combinations
from typing import Any

import numpy as np
from jaxtyping import Bool, Float, Int

from forestall.arrays import Array
from forestall.decisions import Assessment, Decisions
from forestall.diagnostics import Diagnostics, diagnose
from forestall.encoding import Categorical
from forestall.errors import ForestallWarning, SpecError, nearest
from forestall.identify import Criterion
from forestall.law import Law
from forestall.mechanism import Mechanism
from forestall.method import Method, Policy
from forestall.observations import Observations, good_records
from forestall.problem import Problem
from forestall.region import Polytope
from forestall.rehearsal import Node, Noise, Outcome, Rehearsal
from forestall.search import Box, Search
from forestall.select import Choice, choose
from forestall.spec import read_names
from forestall.support import Horizon, Support

# Records looked at to screen their actions, and to see whether the system fits.
TAKEN = 64
# A system that is off by more than this on what it has seen proves nothing.
GAP = 0.15


@dataclass(frozen=True, kw_only=True)
class StagedRehearsal(Method):
    """The sequential formula along the order, or the parents when there is a graph.

    Nothing has to be tuned. Four switches take a part away, to see what it is worth.

    Args:
        search: How the best action is looked for.
        n_draws: Functions drawn to report what is chosen, beside those to choose.
        n_paths: Residuals drawn for each variable to report; a power of two.
        recentred: Learn a mean first and the law around it, not the law alone.
        local_laws: Let the law change with the inputs.
        epistemic: Carry what the records leave unknown.
        relevance: Give every variable a width of its own.
        seed: What the draws come from.
    """

    search: Search = field(default_factory=Search)
    n_draws: int = 64
    n_paths: int = 64
    recentred: bool = True
    local_laws: bool = True
    epistemic: bool = True
    relevance: bool = True
    seed: int = 0

    def fit(self, problem: Problem, history: Any) -> StagedPolicy:
        """Learn a policy from historical records."""
        data = _sorted(Observations.read(problem, history))
        policy = StagedPolicy.fitted(self, problem, data)
        if policy.gap > GAP:
            warnings.warn(
                f"The fitted system is off by {policy.gap:.0%} on the share of good "
                f"records, so no action will be called an improvement. Outcomes that "
                f"are counted, rounded or cut off at a bound can do this; so can too "
                f"few records.",
                ForestallWarning,
                stacklevel=3,
            )
        return policy


@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class StagedPolicy(Policy):
    """A fitted system of mechanisms.

    Args:
        method: The hyperparameters.
        data: The records, standardised.
        system: The mechanisms, in order.
        joint: The density of contexts and actions together.
        subsets: Which actions may be altered together.
    """

    method: StagedRehearsal
    data: Observations
    system: Rehearsal
    joint: Support
    subsets: tuple[tuple[bool, ...], ...]

    @classmethod
    def fitted(
        cls, method: StagedRehearsal, problem: Problem, data: Observations
    ) -> StagedPolicy:
        """Learn every mechanism and its law."""
        return cls(
            problem=problem,
            schema=data.schema,
            horizon=Horizon.of(data.schema.context, data.x),
            method=method,
            data=data,
            system=_Builder(method, problem, data).system(),
            joint=Support.of(np.concatenate([data.x, data.a], axis=1)),
            subsets=((True,) * len(problem.actions),),
        )

    def diagnostics(self) -> Diagnostics:
        """Say how well it all fits, what matters, and which records would help."""
        return diagnose(self)

    @property
    def criterion(self) -> Criterion:
        """The sequential criterion."""
        return self.identification.sequential

    def recommend(
        self,
        contexts: Any,
        *,
        only: Sequence[str] | None = None,
        at_most: int | None = None,
    ) -> Decisions:
        """Choose an action for each row of ``contexts``.

        Args:
            contexts: A table of contexts, or one mapping of names to values.
            only: The actions that may be altered; the others keep their natural course.
            at_most: How many of them may be altered together.
        """
        if only is None and at_most is None:
            return super().recommend(contexts)
        subsets = _subsets(tuple(self.problem.actions), only, at_most)
        return Policy.recommend(replace(self, subsets=subsets), contexts)

    def for_region(self, desired: Any) -> StagedPolicy:
        """Ask for another desired region, without fitting anew."""
        problem = replace(self.problem, desired=desired)
        good = good_records(problem.region, self.data.y_raw)
        system = replace(self.system, region=_standardised(problem, self.data))
        return replace(
            self, problem=problem, data=replace(self.data, good=good), system=system
        )

    def answer(
        self, x: Float[Array, "q d_x"], a: Float[Array, "q d_a"] | None
    ) -> Assessment:
        """Choose on one set of draws, report on another."""
        everything = np.ones((len(x), self.system.n_actions), dtype=bool)
        if a is None:
            subsets = [np.array(subset) for subset in self.subsets]
            box = Box(self.schema.lower, self.schema.upper)
            rng = np.random.default_rng([self.method.seed, 1])
            taken = self.data.a[:: max(1, self.data.n // TAKEN)]
            search = self.method.search
            draws = self._worlds(1, search.n_draws)
            chosen = search.best(self.system, x, subsets, box, taken, draws, rng)
            a, altered = chosen.a, chosen.altered
        else:
            altered = everything
        under = self._reported(x, a, altered)
        natural = self._reported(x, a, ~everything)
        joint = np.concatenate([x, a], axis=1)
        lower, upper = np.quantile(under, [0.05, 0.95], axis=1)
        # Half how usual such an action is in such a context, half how much is known
        # of where it leads: a trend may be known where nobody has been.
        support = 0.5 * self.joint.score(joint) + 0.5 * (1.0 - (upper - lower))
        gain = np.quantile(under - natural, 0.05, axis=1)
        unproven = self._beyond(a, altered) | (self.gap > GAP)
        return Assessment(
            a,
            under.mean(axis=1),
            lower,
            upper,
            natural.mean(axis=1),
            np.where(unproven, np.minimum(gain, 0.0), gain),
            support,
            self.joint.extrapolates(joint) | unproven,
            altered,
        )

    def _worlds(self, first: int, n: int) -> Int[Array, " s"]:
        """Name drawn worlds; without epistemic spread, the mean over and over."""
        return np.arange(first, first + n) * int(self.method.epistemic)

    def _beyond(
        self, a: Float[Array, "q d_a"], altered: Bool[Array, "q d_a"]
    ) -> Bool[Array, " q"]:
        """Tell which actions lie further out than any trend can be trusted."""
        low, high = self.data.a.min(axis=0), self.data.a.max(axis=0)
        out = (a < low - (high - low)) | (a > high + (high - low))
        return (out & altered).any(axis=1)

    @cached_property
    def gap(self) -> float:
        """How far the fitted system is from the share of good records it has seen."""
        x = self.data.x[:: max(1, self.data.n // TAKEN)]
        a = np.zeros((len(x), self.system.n_actions))
        rng = np.random.default_rng([self.method.seed, 3])
        noise = Noise.drawn(self.system.n_noises, 16, 1, rng)
        nothing = np.zeros(self.system.n_actions, dtype=bool)
        told = self.system.success(x, a, nothing, np.array([0]), noise).value
        return abs(float(told.mean() - self.data.good.mean()))

    def _reported(
        self,
        x: Float[Array, "q d_x"],
        a: Float[Array, "q d_a"],
        altered: Bool[Array, "q d_a"],
    ) -> Float[Array, "q s"]:
        """Rehearse with the draws that had no part in choosing."""
        n_draws = self.method.n_draws
        draws = self._worlds(1 + self.method.search.n_draws, n_draws)
        rng = np.random.default_rng([self.method.seed, 2])
        noise = Noise.drawn(self.system.n_noises, self.method.n_paths, n_draws, rng)
        out = np.empty((len(x), n_draws))
        for subset in np.unique(altered, axis=0):
            rows = (altered == subset).all(axis=1)
            told = self.system.success(x[rows], a[rows], subset, draws, noise)
            out[rows] = told.value
        return out


def _subsets(
    actions: tuple[str, ...], only: Sequence[str] | None, at_most: int | None
) -> tuple[tuple[bool, ...], ...]:
    """List which actions may be altered together."""
    allowed = actions if only is None else read_names("only", only)
    for name in allowed:
        if name not in actions:
            raise SpecError(
                f"Expected only= to name actions ({', '.join(actions)}); got {name!r}."
                f"{nearest(name, actions)}"
            )
    if not allowed:
        raise SpecError("Expected at least one action in only=; got none.")
    whole = isinstance(at_most, numbers.Integral) and not isinstance(at_most, bool)
    if at_most is not None and not (whole and at_most > 0):
        raise SpecError(f"Expected at_most above zero and whole; got {at_most!r}.")
    if at_most is None or at_most >= len(allowed):
        return (tuple(name in allowed for name in actions),)
    return tuple(
        tuple(name in together for name in actions)
        for size in range(1, at_most + 1)
        for together in combinations(allowed, size)
    )


class _Builder:
    """Learns the mechanisms one by one."""

    def __init__(
        self, method: StagedRehearsal, problem: Problem, data: Observations
    ) -> None:
        self.method, self.problem, self.data = method, problem, data
        self.rng = np.random.default_rng([method.seed, 0])
        self.n_draws = method.search.n_draws + method.n_draws
        schema = data.schema
        self.state = np.concatenate([data.x, data.u, data.a, data.y], axis=1)
        self.columns: dict[str, slice] = {}
        start = 0
        for block in (schema.context, schema.covariates, schema.actions):
            for name, part in block.slices.items():
                self.columns[name] = slice(start + part.start, start + part.stop)
            start += block.width
        covariates = schema.covariates.columns
        self.levels = {c.name for c in covariates if isinstance(c, Categorical)}
        self.rank = {v: k for k, tier in enumerate(problem.tiers) for v in tier}
        self.parents = _parents(problem)

    def system(self) -> Rehearsal:
        actions = self.problem.actions
        last = max(self.rank[v] for v in self.problem.outcomes)
        moved = [v for v in self.columns if v not in self.problem.context]
        moved = [v for v in moved if self.rank[v] < last or v in actions]
        moved.sort(key=self._turn)
        nodes = tuple(self._node(v, moved[:k]) for k, v in enumerate(moved))
        return Rehearsal(
            nodes,
            self._outcomes(),
            _standardised(self.problem, self.data),
            self.state.shape[1],
            len(actions),
        )

    def _turn(self, name: str) -> tuple[int, int]:
        """Within a tier, covariates come before the actions that go along with them.

        Only an action that covariates of its clique follow from comes first.
        """
        if name not in self.problem.actions:
            return self.rank[name], 1
        return self.rank[name], 0 if len(self._clique(name)) > 1 else 2

    def _clique(self, name: str) -> set[str]:
        """The variables that mutually influence this one, and itself."""
        graph = self.problem.one_graph()
        if graph is None or graph.bidirected != "mutual":
            return {name}
        return set(graph.clique_of(name))

    def _node(self, name: str, before: list[str]) -> Node:
        actions = tuple(self.problem.actions)
        mates = [v for v in before if self.rank[v] == self.rank[name] and v in actions]
        mates = [v for v in mates if v not in self._clique(name)]
        if name not in actions:
            # No covariate may follow from an action of its own tier.
            before = [v for v in before if v not in mates]
            mates = []
        whole = self._learned(name, before)
        if not mates or self.parents is not None:
            return whole
        apart = self._learned(name, [v for v in before if v not in mates])
        places = tuple(actions.index(v) for v in mates)
        return replace(whole, mates=places, apart=apart)

    def _learned(self, name: str, before: list[str]) -> Node:
        inputs = self._inputs(name, before)
        values = self.state[:, self.columns[name]]
        mechanisms = tuple(self._mechanism(inputs, v) for v in values.T)
        law = None
        if name not in self.levels:
            law = self._law(inputs, mechanisms[0])
        actions = tuple(self.problem.actions)
        action = actions.index(name) if name in actions else None
        return Node(name, self.columns[name], inputs, mechanisms, law, action)

    def _inputs(self, name: str, before: list[str]) -> Int[Array, " d"]:
        """State columns of the contexts, which are known, and of what precedes."""
        known = [*self.problem.context, *before]
        if self.parents is not None:
            known = [v for v in known if v in self.parents[name]]
        columns = [
            np.arange(self.columns[v].start, self.columns[v].stop) for v in known
        ]
        return np.concatenate([np.empty(0, dtype=int), *columns])

    def _outcomes(self) -> tuple[Outcome, ...]:
        first = self.state.shape[1] - len(self.problem.outcomes)
        moved = [v for v in self.columns if v not in self.problem.context]
        outcomes = []
        for k, name in enumerate(self.problem.outcomes):
            earlier = [v for v in moved if self.rank[v] < self.rank[name]]
            inputs = self._inputs(name, earlier)
            before = np.concatenate([inputs, np.arange(first, first + k)])
            mechanism = self._mechanism(before, self.state[:, first + k])
            outcomes.append(Outcome(before, mechanism, self._law(before, mechanism)))
        return tuple(outcomes)

    def _mechanism(self, inputs: Int[Array, " d"], v: Float[Array, " n"]) -> Mechanism:
        z = self.state[:, inputs]
        groups = self._groups(inputs)
        v = _tamed(v)
        y = (v - v.mean()) / (v.std() or 1.0)
        if self.method.recentred:
            choice = choose(z, y, groups, alike=not self.method.relevance)
        else:
            flat = np.full(z.shape[1], 1e-12)
            choice = Choice(flat, 1e-12, 1e-12, 1.0, np.ones(z.shape[1]))
        return Mechanism.of(z, v, choice, self.n_draws, self.rng)

    def _law(self, inputs: Int[Array, " d"], mechanism: Mechanism) -> Law:
        return Law.of(
            self.state[:, inputs],
            mechanism.residuals,
            self.n_draws,
            self.rng,
            local=self.method.local_laws,
        )

    def _groups(self, inputs: Int[Array, " d"]) -> Int[Array, " d"]:
        owner = np.empty(self.state.shape[1], dtype=int)
        for k, part in enumerate(self.columns.values()):
            owner[part] = k
        first = self.state.shape[1] - len(self.problem.outcomes)
        owner[first:] = len(self.columns) + np.arange(len(self.problem.outcomes))
        return np.unique(owner[inputs], return_inverse=True)[1]


def _sorted(data: Observations) -> Observations:
    """Sort the records, so that the draws do not depend on their order."""
    state = np.concatenate([data.x, data.u, data.a, data.y], axis=1)
    order = np.lexsort(state.T)
    names = ("x", "u", "a", "y", "y_raw", "good")
    return replace(data, **{name: getattr(data, name)[order] for name in names})


def _parents(problem: Problem) -> dict[str, set[str]] | None:
    """The parents of each variable, where they are all that has to be known of it.

    That takes a graph without hidden causes, in which contexts follow from contexts
    only; else a context tells more than the parents do.
    """
    graph = problem.one_graph()
    if graph is None or graph.bidirected_edges:
        return None
    known, contexts = set(problem.variables), set(problem.context)
    if set(graph.nodes) - known or set(graph.parents(contexts)) - contexts:
        return None
    return {v: set(graph.parents([v])) for v in known}


def _tamed(v: Float[Array, " n"]) -> Float[Array, " n"]:
    """Pull in what lies absurdly far out: one wrong entry must not bend the mean."""
    low, middle, high = np.quantile(v, [0.25, 0.5, 0.75])
    reach = 10.0 * (high - low)
    return np.clip(v, middle - reach, middle + reach) if reach > 0 else v


def _standardised(problem: Problem, data: Observations) -> Polytope:
    """The region for standardised outcomes, its bounds moved off recorded values."""
    region, outcomes = problem.region, data.schema.outcomes
    offsets = region.offsets.copy()
    for k, m in enumerate(region.normals):
        (used,) = np.nonzero(m)
        if len(used) == 1:
            y = m[used[0]] * data.y_raw[:, used[0]]
            offsets[k] = _between_ties(y, offsets[k], bool(region.strict[k]))
    moved = Polytope(region.normals, offsets, region.strict, names=region.names)
    return moved.standardised(outcomes.means, outcomes.scales)


def _between_ties(y: Float[Array, " n"], bound: float, strict: bool) -> float:
    """Move a bound on ``y`` to the middle between the values it tells apart.

    Only where values recur: the smooth law of an outcome that is counted or rounded
    has half of a value on the wrong side of a bound that lies on it.
    """
    values, counts = np.unique(y, return_counts=True)
    inside = values < bound if strict else values <= bound
    if not inside.any() or inside.all():
        return bound
    last = int(np.flatnonzero(inside)[-1])
    if counts[last : last + 2].min() < max(2, 0.01 * len(y)):
        return bound
    return float(0.5 * (values[last] + values[last + 1]))
