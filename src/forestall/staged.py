"""Our method: rehearse stage by stage, with every mechanism learned by itself."""

from __future__ import annotations

import numbers
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import combinations
from typing import Any

import numpy as np
from jaxtyping import Bool, Float, Int
from scipy.special import betainc

from forestall.arrays import Array
from forestall.ascent import ASIDE
from forestall.building import Builder, standardised_region
from forestall.decisions import Assessment, Decisions, Tried
from forestall.diagnostics import Diagnostics, diagnose
from forestall.errors import SpecError, nearest, warn
from forestall.functions import Parts
from forestall.identify import Criterion
from forestall.lowrank import Approximation, check_approximation
from forestall.method import Method, Policy, contradiction, sentence
from forestall.observations import Observations, good_records
from forestall.problem import Problem
from forestall.processes import checked_jobs
from forestall.rehearsal import Noise, Rehearsal
from forestall.scale.supply import Supply, supplied
from forestall.search import Box, Search
from forestall.spanning import CENTRES
from forestall.spec import read_names
from forestall.support import Density, Horizon
from forestall.threads import one_thread

# Records looked at to screen their actions, and to see whether the system fits.
TAKEN = 64


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
        approximation: How the Gaussian part of every mean is spanned, and with how
            many landmarks the support is told; ``None`` takes as many records as
            explain the mean beside the noise, at most 200, and for the support all
            records, or 200 landmarks where they are only counted.
        seed: What the draws come from.
    """

    search: Search = field(default_factory=Search)
    n_draws: int = 64
    n_paths: int = 64
    recentred: bool = True
    local_laws: bool = True
    epistemic: bool = True
    relevance: bool = True
    approximation: Approximation | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        """Check what would else be passed over in silence."""
        check_approximation(self.approximation)

    @property
    def parts(self) -> Parts:
        """What its systems are made with."""
        return Parts(
            n_draws=self.search.n_draws + self.n_draws,
            seed=self.seed,
            recentred=self.recentred,
            local_laws=self.local_laws,
            relevance=self.relevance,
            approximation=self.approximation,
        )

    def fit(self, problem: Problem, history: Any, *, jobs: int = 1) -> StagedPolicy:
        """Learn a policy from historical records.

        Args:
            problem: The question.
            history: As for :func:`forestall.fit`.
            jobs: How many processes share the work; the policy is the same. Worth it
                from some seconds on.
        """
        checked_jobs(jobs)
        supply = supplied(problem, history, seed=self.seed)
        if supply.sampled:
            warn(
                f"There are {supply.n:,} records: widths and landmarks are chosen by a "
                f"sample of {supply.sample.n:,}; means, laws and support are learned "
                f"from all of them, in low rank: with at most {CENTRES} centres each, "
                f"unless approximation= says otherwise."
            )
        policy = StagedPolicy.fitted(self, problem, supply, jobs)
        if policy.misfit:
            warn(
                f"{sentence(policy.misfit)}, so no action will be called an "
                f"improvement. Outcomes that are counted, rounded or cut off at a "
                f"bound can do this; so can too few records."
            )
        return policy


@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class StagedPolicy(Policy):
    """A fitted system of mechanisms.

    Args:
        method: The hyperparameters.
        data: The records, standardised; a sample where they are many.
        n_records: How many were learned from.
        system: The mechanisms, in order.
        joint: The density of contexts and actions together.
        subsets: Which actions may be altered together.
    """

    method: StagedRehearsal
    data: Observations
    n_records: int
    system: Rehearsal
    joint: Density
    subsets: tuple[tuple[bool, ...], ...]

    @classmethod
    @one_thread()
    def fitted(
        cls, method: StagedRehearsal, problem: Problem, supply: Supply, jobs: int
    ) -> StagedPolicy:
        """Learn every mechanism and its law."""
        data, (lower, upper) = supply.sample, supply.range
        horizon = Horizon.of(data.schema.context, data.x)
        learned = Builder(method.parts, problem, supply, jobs).learned()
        return cls(
            problem=problem,
            schema=data.schema,
            horizon=replace(horizon, lower=lower, upper=upper),
            method=method,
            data=data,
            n_records=supply.n,
            system=learned.system,
            joint=learned.density,
            subsets=((True,) * len(problem.actions),),
        )

    def diagnostics(self) -> Diagnostics:
        """Say how well it all fits, what matters, and which records would help."""
        return diagnose(self)

    @cached_property
    def tried(self) -> Tried:
        """What history tried of each action."""
        return Tried.of(self.data, sampled=self.n_records > self.data.n)

    @property
    def misfit(self) -> str:
        """Whether the system contradicts the share of good records it has seen."""
        return contradiction("system", self.gap)

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
        jobs: int = 1,
    ) -> Decisions:
        """Choose an action for each row of ``contexts``.

        Args:
            contexts: A table of contexts, or one mapping of names to values.
            jobs: How many processes share the work.
            only: The actions that may be altered; the others keep their natural course,
                and their entries in ``Decisions.actions`` are fillers.
            at_most: How many of them may be altered together.
        """
        if only is None and at_most is None:
            return super().recommend(contexts, jobs=jobs)
        subsets = subsets_of(tuple(self.problem.actions), only, at_most)
        return Policy.recommend(replace(self, subsets=subsets), contexts, jobs=jobs)

    def for_region(self, desired: Any) -> StagedPolicy:
        """Ask for another desired region, without fitting anew."""
        problem = replace(self.problem, desired=desired)
        good = good_records(problem.region, self.data.y_raw)
        system = replace(self.system, region=standardised_region(problem, self.data))
        return replace(
            self, problem=problem, data=replace(self.data, good=good), system=system
        )

    @one_thread()
    def answer(
        self, x: Float[Array, "q d_x"], a: Float[Array, "q d_a"] | None
    ) -> Assessment:
        """Choose on one set of draws, report on another."""
        everything = np.ones((len(x), self.system.n_actions), dtype=bool)
        if a is None:
            subsets = [np.array(subset) for subset in self.subsets]
            # Nothing could be proven of what lies beyond all trends.
            box = Box(*self.tried.trusted(self.schema.lower, self.schema.upper))
            rng = np.random.default_rng([self.method.seed, 1])
            taken = self._about_taken()
            search = self.method.search
            draws = self._worlds(1, search.n_draws)
            chosen = search.best(self.system, x, subsets, box, taken, draws, rng)
            a, altered = chosen.a, chosen.altered
        else:
            altered = everything
        under = self._reported(x, a, altered)
        natural = self._left_alone(x)
        gained, told, left = (
            (under - natural).worlds,
            np.clip(under.worlds, 0.0, 1.0),
            np.clip(natural.worlds, 0.0, 1.0),
        )
        joint = np.concatenate([x, a], axis=1)
        lower, upper = quantile(told, 0.05), quantile(told, 0.95)
        # Chances finer than one in so many records cannot be told.
        lower = np.maximum(lower - 1.0 / self.n_records, 0.0)
        upper = np.minimum(upper + 1.0 / self.n_records, 1.0)
        # Half how usual such an action is in such a context, half how much is known
        # of where it leads: a trend may be known where nobody has been.
        support = 0.5 * self.joint.score(joint) + 0.5 * (1.0 - (upper - lower))
        gain = quantile(gained, 0.05)
        beyond = (self.tried.beyond(a) & altered).any(axis=1)
        unproven = beyond | bool(self.misfit)
        return Assessment(
            a,
            told.mean(axis=1),
            lower,
            upper,
            left.mean(axis=1),
            np.where(unproven, np.minimum(gain, 0.0), gain),
            support,
            self.joint.extrapolates(joint) | beyond,
            altered,
        )

    def _left_alone(self, x: Float[Array, "q d_x"]) -> Told:
        """Rehearse what comes by itself, once for each different context."""
        contexts, which = np.unique(x, axis=0, return_inverse=True)
        if len(contexts) == len(x):
            contexts, which = x, np.arange(len(x))
        shape = len(contexts), self.system.n_actions
        told = self._reported(contexts, np.zeros(shape), np.zeros(shape, dtype=bool))
        return Told(told.apart[which.ravel()], told.together[which.ravel()])

    def _about_taken(self) -> Float[Array, "m d_a"]:
        """Actions of history, a little off: no person's own is given out."""
        taken = self.data.a[:: max(1, self.data.n // TAKEN)]
        rng = np.random.default_rng([self.method.seed, 4])
        return taken + ASIDE * rng.normal(size=taken.shape)

    def _worlds(self, first: int, n: int) -> Int[Array, " s"]:
        """Name drawn worlds; without epistemic spread, the mean over and over."""
        return np.arange(first, first + n) * int(self.method.epistemic)

    @cached_property
    @one_thread()
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
    ) -> Told:
        """Rehearse twice with the draws that had no part in choosing."""
        n_draws, n_paths = self.method.n_draws, self.method.n_paths
        draws = self._worlds(1 + self.method.search.n_draws, n_draws)
        rng = np.random.default_rng([self.method.seed, 2])
        first, second = (
            Noise.drawn(self.system.n_noises, n_paths, n_draws, rng) for _ in range(2)
        )
        apart, together = np.empty((2, len(x), n_draws))
        for subset in np.unique(altered, axis=0):
            rows = (altered == subset).all(axis=1)
            for out, noise in ((apart, first), (together, second.shared())):
                told = self.system.success(x[rows], a[rows], subset, draws, noise)
                out[rows] = told.value
        return Told(apart, together)


@dataclass(frozen=True, eq=False)
class Told:
    """Chances in each drawn world, rehearsed twice, or differences of chances.

    Few paths make every world look different. Paths of their own average out over the
    worlds, and tell the mean of all; the same paths in every world tell how the worlds
    differ, and that alone.

    Args:
        apart: By paths of its own in each world.
        together: By the same paths in all of them.
    """

    apart: Float[Array, "q s"]
    together: Float[Array, "q s"]

    def __sub__(self, other: Told) -> Told:
        """How much better one is than the other, world by world."""
        return Told(self.apart - other.apart, self.together - other.together)

    @property
    def worlds(self) -> Float[Array, "q s"]:
        """The worlds around their mean, and the error of that mean with them."""
        centre = self.apart.mean(axis=1, keepdims=True)
        off = self.together - self.together.mean(axis=1, keepdims=True)
        paths = np.var(self.apart - off, axis=1, keepdims=True)
        spread = np.mean(off**2, axis=1, keepdims=True)
        error = paths / self.apart.shape[1]
        return centre + off * np.sqrt(1.0 + error / np.maximum(spread, 1e-300))


def quantile(told: Float[Array, "q s"], p: float) -> Float[Array, " q"]:
    """Estimate a quantile of the law that few worlds are drawn from (Harrell, Davis).

    Between the quantiles of the sample itself lies less than was asked for: of the law
    of 64 worlds 87 % in place of 90 %.
    """
    n = told.shape[1]
    ends = betainc((n + 1) * p, (n + 1) * (1.0 - p), np.linspace(0.0, 1.0, n + 1))
    return np.sort(told, axis=1) @ np.diff(ends)


def subsets_of(
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
