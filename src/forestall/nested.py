"""The paper's method: a nested kernel ridge estimator of the adjusted probability."""

from __future__ import annotations

import os
import warnings
from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from jaxtyping import Float

from forestall.arrays import Array
from forestall.ascent import Ascent, is_positive, top_starts
from forestall.decisions import Assessment
from forestall.errors import FitError, ForestallWarning, SpecError, nearest
from forestall.expansion import Basis, Expansion
from forestall.identify import Criterion, Identification
from forestall.kernels import Gaussian, median_bandwidth
from forestall.method import Method, Policy
from forestall.observations import Observations, good_records
from forestall.problem import Problem
from forestall.region import Polytope, ProbitDesirability
from forestall.ridge import Belief, Ridge
from forestall.support import Horizon, Support

BLOCKS = ("context", "covariates", "actions", "embedding")
# Fewer good records than this prove nothing.
FEW = 10
# From here on an exact fit takes a minute and more.
MANY = 10_000


@dataclass(frozen=True, kw_only=True)
class KernelRehearsal(Method):
    r"""Hyperparameters that the nested and the single estimator share.

    Args:
        bandwidth: Widths :math:`\sigma` as multiples of the median distance between
            records: one factor, or one for each of ``context``, ``covariates``,
            ``actions`` (the blocks of :math:`k_h`, stage 1) and ``embedding`` (the
            kernel on :math:`x` of stage 2).
        outcome_penalty: The penalty :math:`\lambda_h` of stage 1.
        context_penalty: The penalty :math:`\lambda_x` of stage 2.
        sharpness: The parameter :math:`\eta`; ``None`` chooses 5, 10 or 20 by the
            share of good records.
        ascent: How to climb to the best action.
    """

    bandwidth: float | Mapping[str, float] = 1.0
    outcome_penalty: float = 1e-4
    context_penalty: float = 1e-4
    sharpness: float | None = None
    ascent: Ascent = field(default_factory=Ascent)

    def __post_init__(self) -> None:
        """Check every hyperparameter once."""
        factors(self.bandwidth)
        if not isinstance(self.ascent, Ascent):
            raise SpecError(f"Expected ascent as an Ascent; got {self.ascent!r}.")
        for name in ("outcome_penalty", "context_penalty", "sharpness"):
            value = getattr(self, name)
            if value is not None and not is_positive(value):
                raise SpecError(f"Expected {name} above zero; got {value!r}.")

    def fit(self, problem: Problem, history: Any) -> KernelPolicy:
        """Learn a policy from historical records."""
        data = Observations.read(problem, history)
        _check_size(data.n)
        _warn_if_few_are_good(int(data.good.sum()))
        u = data.covariate_columns(self.adjusted(problem.identification()))
        return KernelPolicy.fitted(self, problem, data, u)

    @abstractmethod
    def adjusted(self, identification: Identification) -> tuple[str, ...]:
        """Name the covariates :math:`U` that are adjusted for."""


@dataclass(frozen=True, kw_only=True)
class NestedRehearsal(KernelRehearsal):
    r"""The paper's nested estimator, adjusted for the covariates before the actions.

    .. math:: \hat J_\eta(a; x) = \left(\alpha \odot k_x(x) \odot
        (K_{uu} \gamma(x))\right)^\top k_a(a)  \quad (9)

    Args and defaults as for :class:`KernelRehearsal`; one set for every problem.
    """

    def adjusted(self, identification: Identification) -> tuple[str, ...]:
        """Adjust for what precedes the first action; warn where that is not enough."""
        if identification.nested.valid is False or identification.staged:
            warnings.warn(
                f"The nested estimator may be biased here: "
                f"{identification.nested.explanation}",
                ForestallWarning,
                stacklevel=3,
            )
        return identification.adjusted


@dataclass(frozen=True, eq=False)
class Solution:
    r"""What depends on the desired region: its right-hand sides, solved.

    Args:
        sharpness: The :math:`\eta` in use.
        alpha: Stage 1 weights :math:`\alpha` for the smoothed desirability.
        alpha_hard: The same for the indicator itself.
        alpha_natural: Weights of the indicator on contexts alone: no action.
        scale: The prior variance of the indicator's function, by its likelihood.
        scale_natural: The same for no action.
    """

    sharpness: float
    alpha: Float[Array, " n"]
    alpha_hard: Float[Array, " n"]
    alpha_natural: Float[Array, " n"]
    scale: float
    scale_natural: float

    @classmethod
    def of(
        cls,
        sharpness: float | None,
        region: Polytope,
        data: Observations,
        inner: Ridge,
        outer: Ridge,
    ) -> Solution:
        """Solve for the smoothed and the hard desirability of the records."""
        hard = data.good.astype(float)
        eta = choose_sharpness(hard.mean()) if sharpness is None else sharpness
        outcomes = data.schema.outcomes
        region = region.standardised(outcomes.means, outcomes.scales)
        smooth = ProbitDesirability(region, eta)(data.y)
        alpha, alpha_hard = inner.solve(np.stack([smooth, hard], axis=1)).T
        alpha_natural = outer.solve(hard)
        n = len(hard)
        return cls(
            eta,
            alpha,
            alpha_hard,
            alpha_natural,
            # Where hardly any record is good the likelihood believes in a function that
            # is hardly ever above zero; one that may reach one is believed at least.
            max(1.0, float(hard @ alpha_hard) / n),
            max(1.0, float(hard @ alpha_natural) / n),
        )


@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class KernelPolicy(Policy):
    r"""A fitted kernel method: two Cholesky factors and the weights they gave.

    Args:
        method: The hyperparameters.
        data: The records, standardised.
        u: The covariates adjusted for; no columns when there are none.
        k_x: The factor of :math:`k_h` on contexts; ``k_u``, ``k_a`` likewise.
        k_e: The kernel on contexts that embeds :math:`U` given :math:`x` (stage 2).
        K_uu: The Gram matrix of ``u``; ``None`` when there is nothing to adjust for.
        inner: :math:`K_{hh} + N \lambda_h I`, factored.
        outer: :math:`K_{xx} + N \lambda_x I`, factored.
        solution: The weights for the desired region.
        basis: Few actions that span those of the records; ``None`` keeps them all.
        joint: The density of contexts and actions together.
    """

    method: KernelRehearsal
    data: Observations
    u: Float[Array, "n d_u"]
    k_x: Gaussian
    k_u: Gaussian
    k_a: Gaussian
    k_e: Gaussian
    K_uu: Float[Array, "n n"] | None
    inner: Ridge
    outer: Ridge
    solution: Solution
    basis: Basis | None
    joint: Support

    @classmethod
    def fitted(
        cls,
        method: KernelRehearsal,
        problem: Problem,
        data: Observations,
        u: Float[Array, "n d_u"],
    ) -> KernelPolicy:
        """Factor both systems and solve them (algorithm 1, phase 1)."""
        factor = factors(method.bandwidth)
        k_x = Gaussian(median_bandwidth(data.x, factor["context"]))
        k_e = Gaussian(median_bandwidth(data.x, factor["embedding"]))
        k_u = Gaussian(median_bandwidth(u, factor["covariates"]))
        k_a = Gaussian(median_bandwidth(data.a, factor["actions"]))
        h = np.concatenate([data.x, u, data.a], axis=1)
        inner = Ridge.of((k_x * k_u * k_a)(h, h), method.outcome_penalty)
        outer = Ridge.of(k_e(data.x, data.x), method.context_penalty)
        probes = _probes(data.schema.lower, data.schema.upper)
        return cls(
            problem=problem,
            schema=data.schema,
            horizon=Horizon.of(data.schema.context, data.x),
            method=method,
            data=data,
            u=u,
            k_x=k_x,
            k_u=k_u,
            k_a=k_a,
            k_e=k_e,
            K_uu=k_u(u, u) if u.shape[1] else None,
            inner=inner,
            outer=outer,
            solution=Solution.of(method.sharpness, problem.region, data, inner, outer),
            basis=Basis.spanning(k_a, data.a, probes),
            joint=Support.of(np.concatenate([data.x, data.a], axis=1)),
        )

    @property
    def criterion(self) -> Criterion:
        """The nested criterion."""
        return self.identification.nested

    def objective(self, contexts: Any, actions: Any) -> Array:
        r"""Evaluate the smoothed :math:`\hat J_\eta(a; x)` that the ascent climbs."""
        objective, a = self._at(contexts, actions)
        return objective(a)[:, 0]

    def gradient(self, contexts: Any, actions: Any) -> Array:
        r"""Differentiate :math:`\hat J_\eta` by the actions, in the user's units."""
        objective, a = self._at(contexts, actions)
        return objective.gradient(a)[:, 0] / self.schema.actions.scales

    def for_region(self, desired: Any) -> KernelPolicy:
        """Ask for another desired region by one more solve."""
        problem = replace(self.problem, desired=desired)
        good = good_records(problem.region, self.data.y_raw)
        data = replace(self.data, good=good)
        solution = Solution.of(
            self.method.sharpness, problem.region, data, self.inner, self.outer
        )
        return replace(self, problem=problem, data=data, solution=solution)

    def answer(
        self, x: Float[Array, "q d_x"], a: Float[Array, "q d_a"] | None
    ) -> Assessment:
        """Choose, where no action is given, and assess."""
        reach, prior = self._reach(x)
        if a is None:
            a = self._best(reach)
        told, natural = self._under(reach, prior, a), self._natural(x)
        joint = np.concatenate([x, a], axis=1)
        extrapolates = self.joint.extrapolates(joint)
        gain = told.surely_above(natural)
        unproven = extrapolates | (self.data.good.sum() < FEW)
        return Assessment(
            a,
            told.mean,
            told.lower,
            told.upper,
            natural.mean,
            # Away from the records a Gaussian kernel only repeats its prior, and a few
            # good records may be luck: no evidence of an improvement.
            np.where(unproven, np.minimum(gain, 0.0), gain),
            self.joint.score(joint),
            extrapolates,
        )

    def _reach(
        self, x: Float[Array, "q d_x"]
    ) -> tuple[Float[Array, "n q"], Float[Array, " q"]]:
        r"""Weigh the records by context and adjustment: :math:`\omega / \alpha`.

        Also gives the prior variance :math:`\gamma^\top K_{uu} \gamma` that the
        averaged function has, relative to that of a single one.
        """
        k_x = self.k_x(self.data.x, x)
        if self.K_uu is None:
            return k_x, np.ones(len(x))
        gamma = self.outer.solve(self.k_e(self.data.x, x))
        adjustment = self.K_uu @ gamma
        # Far from all contexts gamma vanishes: the mass of U that no record speaks for
        # is unknown altogether.
        unknown = 1.0 - np.clip(gamma.sum(axis=0), 0.0, 1.0)
        prior = np.einsum("nq,nq->q", gamma, adjustment) + unknown**2
        return k_x * adjustment, prior

    def _best(self, reach: Float[Array, "n q"]) -> Float[Array, "q d_a"]:
        """Climb from the best records (algorithm 1, phase 3)."""
        omega = (self.solution.alpha[:, None] * reach).T
        starts = top_starts(omega, self.data.a, self.method.ascent.n_starts)
        objective = self._expansion(omega)
        lower, upper = self.schema.lower, self.schema.upper
        return self.method.ascent.climb(objective, starts, lower, upper)

    def _expansion(self, omega: Float[Array, "q n"]) -> Expansion:
        if self.basis is not None:
            return self.basis.expand(omega)
        return Expansion(self.k_a, self.data.a, omega)

    def _under(
        self,
        reach: Float[Array, "n q"],
        prior: Float[Array, " q"],
        a: Float[Array, "q d_a"],
    ) -> Belief:
        v = reach * self.k_a(self.data.a, a)
        solution = self.solution
        return Belief.of(solution.alpha_hard, v, prior, self.inner, solution.scale)

    def _natural(self, x: Float[Array, "q d_x"]) -> Belief:
        v, prior = self.k_e(self.data.x, x), np.ones(len(x))
        solution = self.solution
        return Belief.of(
            solution.alpha_natural, v, prior, self.outer, solution.scale_natural
        )

    def _at(self, contexts: Any, actions: Any) -> tuple[Expansion, Array]:
        x = self.schema.encode_contexts(contexts).x
        a = self.schema.actions_from_table(actions, len(x))
        omega = (self.solution.alpha[:, None] * self._reach(x)[0]).T
        return Expansion(self.k_a, self.data.a, omega), a[:, None, :]


def _check_size(n: int) -> None:
    """Refuse what would not fit into memory, before it is tried."""
    needed = 3 * 8 * n**2
    if hasattr(os, "sysconf") and "SC_PHYS_PAGES" in os.sysconf_names:
        memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
        if needed > 0.6 * memory:
            raise FitError(
                f"Expected so few records that three matrices of N x N fit into memory "
                f"({memory / 1e9:.0f} GB); got {n}, which need {needed / 1e9:.0f} GB. "
                f"Fit on a sample of the rows."
            )
    if n >= MANY:
        warnings.warn(
            f"An exact fit of {n} records takes minutes and {needed / 1e9:.1f} GB.",
            ForestallWarning,
            stacklevel=3,
        )


def _warn_if_few_are_good(n_good: int) -> None:
    if n_good < FEW:
        warnings.warn(
            f"Only {n_good} records have a desired outcome; no action will be called "
            f"an improvement. Add records, or relax a constraint.",
            ForestallWarning,
            stacklevel=3,
        )


def choose_sharpness(share: float) -> float:
    r"""Choose :math:`\eta` from 5, 10 and 20 by the share of good records."""
    # Paper: larger where good records are abundant. The thresholds are ours.
    return 5.0 if share < 0.05 else 10.0 if share < 0.25 else 20.0


def factors(bandwidth: float | Mapping[str, float]) -> dict[str, float]:
    """Spell out one width factor for each block."""
    if not isinstance(bandwidth, Mapping):
        bandwidth = dict.fromkeys(BLOCKS, bandwidth)
    for name, factor in bandwidth.items():
        if name not in BLOCKS:
            raise SpecError(
                f"Expected width factors for {', '.join(BLOCKS)}; got {name!r}."
                f"{nearest(name, BLOCKS)}"
            )
        if not is_positive(factor):
            raise SpecError(
                f"Expected a width factor above zero for {name!r}; got {factor!r}."
            )
    return {name: float(bandwidth.get(name, 1.0)) for name in BLOCKS}


def _probes(
    lower: Float[Array, " d"], upper: Float[Array, " d"]
) -> Float[Array, "p d"]:
    """Spread some 256 points over the box, on a grid."""
    side = max(2, round(256 ** (1 / len(lower))))
    axes = np.linspace(lower, upper, side).T
    return np.stack(np.meshgrid(*axes), axis=-1).reshape(-1, len(lower))
