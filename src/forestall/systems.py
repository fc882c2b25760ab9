"""The linear systems of a kernel method, factored once and solved for many contexts."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from jaxtyping import Float

from forestall.arrays import Array
from forestall.ascent import aside, top_starts
from forestall.expansion import Basis, Expansion
from forestall.kernels import Gaussian
from forestall.ridge import Belief, Ridge, Solver
from forestall.setting import Records, Setting
from forestall.solution import Solution
from forestall.thin import Gram, Thin, gram_of, ridge_of
from forestall.threads import one_thread
from forestall.waves import Waves

Objective = Expansion | Waves
Stretch = Float[Array, " d_a"] | float


class View(ABC):
    """What a fit says of some contexts: exact or of low rank, the one seam."""

    @abstractmethod
    def starts(self, n_starts: int) -> Float[Array, "q s d_a"]:
        """Name the actions from which the ascent starts."""

    @abstractmethod
    def objective(self, stretch: Stretch = 1.0) -> Objective:
        r"""Give the smoothed :math:`\hat J_\eta(a; x)`, in actions over ``stretch``."""

    @abstractmethod
    def under(self, a: Float[Array, "q d_a"]) -> Belief:
        """Believe in the probability under an action for each context."""

    @abstractmethod
    def natural(self) -> Belief:
        """Believe in the probability without action."""


class Systems(ABC):
    """What has been factored; it serves every desired region."""

    basis: Basis | None

    @abstractmethod
    def solved(self, records: Records, sharpness: float) -> Solution:
        """Solve for the desired region."""

    @abstractmethod
    def view(self, x: Float[Array, "q d_x"], solution: Solution) -> View:
        """Look at some contexts."""


@dataclass(frozen=True, eq=False)
class Exact(Systems):
    r"""Two or three factored systems of all records, and what surrounds them.

    Args:
        setting: Kernels and penalties.
        records: The records, standardised, and what is adjusted for.
        basis: Few actions that span those of the records; ``None`` keeps them all.
        covariates: The Gram matrix :math:`K_{uu}`; ``None`` when there is nothing to
            adjust for.
        inner: :math:`K_{hh} + N \lambda_h I`, factored.
        outer: :math:`K_{xx} + N \lambda_x I`, factored.
        unaltered: The same for the regression without action; the same object where
            their kernel is the same.
    """

    setting: Setting
    records: Records
    basis: Basis | None
    covariates: Gram | None
    inner: Ridge
    outer: Solver
    unaltered: Solver

    @classmethod
    @one_thread()
    def factored(cls, setting: Setting, records: Records) -> Exact:
        """Factor the systems (algorithm 1, phase 1)."""
        x, u = records.data.x, records.u
        basis = Basis.spanning(setting.k_a, records.data.a, records.probes())
        inner = Ridge.on(setting.k_h, records.h, setting.outcome_penalty)
        covariates = gram_of(setting.k_u, u, inner) if u.shape[1] else None
        outer = ridge_of(setting.k_e, x, setting.context_penalty)
        unaltered = outer
        if setting.k_n is not setting.k_e:
            unaltered = ridge_of(setting.k_n, x, setting.natural_penalty)
        return cls(setting, records, basis, covariates, inner, outer, unaltered)

    @one_thread()
    def solved(self, records: Records, sharpness: float) -> Solution:
        """Solve for the desired region."""
        region, data = records.region, records.data
        return Solution.of(sharpness, region, data, self.inner, self.unaltered)

    def view(self, x: Float[Array, "q d_x"], solution: Solution) -> ExactView:
        """Look at some contexts."""
        rows = self.setting.k_n(self.records.data.x, x)
        return ExactView(self, solution, rows, self.reach(x, rows))

    def reach(self, x: Float[Array, "q d_x"], natural: Float[Array, "n q"]) -> Reach:
        """Weigh the records by context and adjustment."""
        k_x, k_e = self.setting.k_x, self.setting.k_e
        if self.covariates is None:
            return Reach(self._rows(k_x, x, natural), np.ones(len(x)))
        reach = self._adjusted(self._rows(k_e, x, natural))
        weights = reach.weights * self._rows(k_x, x, natural)
        return replace(reach, weights=weights)

    def _adjusted(self, rows: Float[Array, "n q"]) -> Reach:
        """Weigh the records by adjustment alone."""
        if isinstance(self.covariates, Thin):
            t = self._contracted(self.covariates, rows)
            prior = np.einsum("rq,rq->q", t[:-1], t[:-1])
            return Reach(self.covariates.root @ t[:-1], prior + unknown(t[-1]))
        assert self.covariates is not None
        gamma = self.outer.solve(rows)
        adjustment = self.covariates.times(gamma)
        prior = np.einsum("nq,nq->q", gamma, adjustment) + unknown(gamma.sum(axis=0))
        if self.unaltered is not self.outer:
            return Reach(adjustment, prior)
        return Reach(adjustment, prior, np.einsum("nq,nq->q", rows, gamma))

    def _contracted(self, gram: Thin, rows: Float[Array, "n q"]) -> Float[Array, "r q"]:
        if self._embedding is not None:
            return self._embedding.T @ rows
        return self.outer.contracted(gram.and_ones, rows)

    @cached_property
    def _embedding(self) -> Float[Array, "n r"] | None:
        r"""Solve a thick outer system once for a thin :math:`K_{uu}`, for no context.

        With :math:`K_{uu} = G G^\top` all that :math:`\gamma(x)` is needed for is
        :math:`G^\top \gamma` and its sum. The first decision pays, not the fit.
        """
        if isinstance(self.outer, Ridge) and isinstance(self.covariates, Thin):
            return self.outer.solve(self.covariates.and_ones)
        return None

    def _rows(
        self, kernel: Gaussian, x: Float[Array, "q d_x"], natural: Float[Array, "n q"]
    ) -> Float[Array, "n q"]:
        """Evaluate a kernel on contexts, unless that has been done."""
        if np.array_equal(kernel.bandwidth, self.setting.k_n.bandwidth):
            return natural
        return kernel(self.records.data.x, x)


@dataclass(frozen=True, eq=False)
class Reach:
    r"""How far each record speaks for some contexts.

    Args:
        weights: By context and adjustment: :math:`\omega / \alpha`.
        prior: The prior variance :math:`\gamma^\top K_{uu} \gamma` that the averaged
            function has, relative to that of a single one.
        explained: What the records explain without action, where it fell out of this.
    """

    weights: Float[Array, "n q"]
    prior: Float[Array, " q"]
    explained: Float[Array, " q"] | None = None


@dataclass(frozen=True, eq=False)
class ExactView(View):
    """What all records say of some contexts.

    Args:
        systems: What has been factored.
        solution: The weights for the desired region.
        rows: The kernel columns of the contexts, for no action.
        reach: How far each record speaks for the contexts.
    """

    systems: Exact
    solution: Solution
    rows: Float[Array, "n q"]
    reach: Reach

    def starts(self, n_starts: int) -> Float[Array, "q s d_a"]:
        """Start by the records of the largest weights (algorithm 1, phase 3)."""
        omega = (self.solution.pull[:, None] * self.reach.weights).T
        return top_starts(omega, aside(self._actions), n_starts)

    def objective(self, stretch: Stretch = 1.0) -> Expansion:
        """Sum over the records, or over the actions that span theirs."""
        omega = (self.solution.alpha[:, None] * self.reach.weights).T
        kernel, basis = self.systems.setting.k_a, self.systems.basis
        return expanded(kernel, self._actions, omega, basis, stretch)

    def under(self, a: Float[Array, "q d_a"]) -> Belief:
        """Believe in the probability under an action for each context."""
        v = self.reach.weights * self.systems.setting.k_a(self._actions, a)
        alpha, scale = self.solution.alpha_hard, self.solution.scale
        return Belief.of(alpha, v, self.reach.prior, self.systems.inner, scale)

    def natural(self) -> Belief:
        """Believe in the probability without action."""
        v, explained = self.rows, self.reach.explained
        if explained is None:
            explained = self.systems.unaltered.explained(v)
        alpha, scale = self.solution.alpha_natural, self.solution.scale_natural
        return Belief.drawn(alpha @ v, scale * (1.0 - explained))

    @property
    def _actions(self) -> Float[Array, "n d_a"]:
        return self.systems.records.data.a


def unknown(mass: Float[Array, " q"]) -> Float[Array, " q"]:
    r"""The prior variance of what no record speaks for, given :math:`\sum_i\gamma_i`.

    Far from all contexts gamma vanishes: the mass of U that no record speaks for is
    unknown altogether.
    """
    return (1.0 - np.clip(mass, 0.0, 1.0)) ** 2


def expanded(
    kernel: Gaussian,
    actions: Float[Array, "n d_a"],
    omega: Float[Array, "q n"],
    basis: Basis | None,
    stretch: Stretch,
) -> Expansion:
    """Sum kernel functions of the action, on fewer of them where a basis is given."""
    f = Expansion(kernel, actions, omega)
    if basis is not None:
        f = basis.expand(omega)
    narrow = Gaussian(f.kernel.bandwidth / stretch)
    return Expansion(narrow, f.centres / stretch, f.weights)
