"""The systems of a fit of low rank, solved from sums over the records."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from jaxtyping import Complex, Float
from scipy.linalg import cho_solve, solve_triangular

from forestall.arrays import Array
from forestall.ascent import aside, top_starts
from forestall.errors import SpecError
from forestall.expansion import Basis
from forestall.landmarks import Landmarks
from forestall.lowrank import Approximation, Plan
from forestall.moments import (
    Batch,
    Crosses,
    Grams,
    Moments,
    crosses_of,
    moments_of,
)
from forestall.observations import Observations
from forestall.region import Polytope
from forestall.ridge import Belief, factored
from forestall.scale.supply import Supply
from forestall.setting import Records, Setting
from forestall.solution import Solution, believed, desirabilities
from forestall.systems import Objective, Stretch, Systems, View, expanded, unknown
from forestall.waves import Waves


@dataclass(frozen=True, eq=False)
class Normal:
    r"""The normal equations of a ridge regression on a few functions, factored.

    Args:
        landmarks: Whose functions they are; ``None`` for functions that are
            orthonormal in themselves.
        factor: The Cholesky factor of
            :math:`A = L^{-1} \Phi^\top \Phi L^{-\top} + N \lambda I`.
        ridge: The number :math:`N \lambda`.
    """

    landmarks: Landmarks | None
    factor: Float[Array, "m m"]
    ridge: float

    @classmethod
    def of(
        cls,
        gram: Float[Array, "m m"],
        landmarks: Landmarks | None,
        n: int,
        penalty: float,
    ) -> Normal:
        r"""Factor, given one triangle of :math:`\Phi^\top \Phi`.

        Whitened equations have a condition of :math:`1 / \lambda` at most; the raw
        ones have its product with that of the landmarks' Gram matrix.
        """
        if landmarks is None:
            A = gram + np.tril(gram, -1).T
        else:
            A = landmarks.orthonormal(gram)
        A[np.diag_indices(len(A))] += n * penalty
        told = f"at penalty {penalty:g} with {n} records and {len(A)} functions"
        return cls(landmarks, factored(np.asfortranarray(A), told), n * penalty)

    def weights(self, cross: Float[Array, "m ..."]) -> Float[Array, "m ..."]:
        """Solve for the weights on the functions."""
        theta = cho_solve((self.factor, True), self._in(cross), check_finite=False)
        return theta if self.landmarks is None else self.landmarks.unwhiten(theta)

    def noise(self, v: Float[Array, "m q"]) -> Float[Array, " q"]:
        """What the records leave unknown of combinations of the functions."""
        return self.ridge * _squares(self._half(v))

    def scale(self, cross: Float[Array, " m"], good: float, n: int) -> float:
        """Settle the prior variance of the indicator's function."""
        explained = float(_squares(self._half(cross[:, None]))[0])
        return believed((good - explained) / self.ridge / n)

    def _half(self, v: Float[Array, "m q"]) -> Float[Array, "m q"]:
        white = self._in(v)
        return solve_triangular(self.factor, white, lower=True, check_finite=False)

    def _in(self, v: Float[Array, "m ..."]) -> Float[Array, "m ..."]:
        return v if self.landmarks is None else self.landmarks.whiten(v)


@dataclass(frozen=True, eq=False)
class LowRank(Systems):
    """Systems of a few functions in place of all records.

    Nothing here grows with the number of records.

    Args:
        plan: The functions.
        n: The number of records.
        basis: Few actions that span those of the landmarks; ``None`` keeps them all.
        inner: Stage 1.
        outer: Stage 2.
        unaltered: The regression without action.
        mixing: Stage 2's weights for the mean of what it embeds; ``None`` when there
            is nothing to adjust for.
    """

    plan: Plan
    n: int
    basis: Basis | None
    inner: Normal
    outer: Normal
    unaltered: Normal
    mixing: Float[Array, "o t"] | None

    @classmethod
    def of(cls, plan: Plan, grams: Grams) -> LowRank:
        """Factor the systems, given sums over all records."""
        setting, n = plan.setting, grams.n
        first = plan.inner if plan.frequencies is None else None
        inner = Normal.of(grams.inner, first, n, setting.outcome_penalty)
        outer = Normal.of(grams.outer, plan.outer, n, setting.context_penalty)
        unaltered = outer
        if grams.natural is not None:
            penalty = setting.natural_penalty
            unaltered = Normal.of(grams.natural, plan.natural, n, penalty)
        mixing = None if grams.embedded is None else outer.weights(grams.embedded)
        data, centres = plan.starters.data, plan.inner.centres
        a = centres[:, centres.shape[1] - data.a.shape[1] :]
        basis = Basis.spanning(setting.k_a, a, plan.starters.probes())
        return cls(plan, n, basis, inner, outer, unaltered, mixing)

    @classmethod
    def fitted(
        cls,
        approximation: Approximation,
        setting: Setting,
        sample: Records,
        supply: Supply,
    ) -> tuple[LowRank, Solution]:
        """Plan by a sample, sum over all records, and solve."""
        plan = approximation.plan(setting, sample, supply.n)
        moments = supply.total(Counting(plan, sample.adjusted, sample.region))
        systems = cls.of(plan, moments.grams)
        return systems, systems.solution(moments.crosses, sample, setting.sharpness)

    def solved(self, records: Records, sharpness: float) -> Solution:
        """Solve for the desired region, by one more pass over all records."""
        if records.data.n != self.n:
            raise SpecError(
                f"Expected all {self.n} records, to ask for another desired region; "
                f"got {records.data.n} of them, the sample that this policy keeps. Fit "
                f"anew with the other region."
            )
        crosses = crosses_of(self.plan, Batch.of(records, sharpness))
        return self.solution(crosses, records, sharpness)

    def solution(
        self, crosses: Crosses, records: Records, sharpness: float
    ) -> Solution:
        """Solve for the desired region, given sums over all records."""
        alpha, alpha_hard = self.inner.weights(crosses.inner).T
        starters, n = self.plan.starters, self.n
        w = desirabilities((sharpness,), records.region, starters.data)[:, 0]
        told = self.plan.functions(starters.h) @ alpha
        return Solution(
            sharpness,
            alpha,
            alpha_hard,
            self.unaltered.weights(crosses.natural),
            # The weights that these records would have in an exact fit.
            (w - told) / self.inner.ridge,
            self.inner.scale(crosses.inner[:, 1], crosses.good, n),
            self.unaltered.scale(crosses.natural, crosses.good, n),
            round(crosses.good),
        )

    def view(self, x: Float[Array, "q d_x"], solution: Solution) -> LowView:
        """Look at some contexts."""
        kind = LowView if self.plan.frequencies is None else WavyView
        return kind(self, solution, x)

    @cached_property
    def centres(self) -> Points:
        """The landmarks of stage 1."""
        d_x, d_a = self._widths
        h = self.plan.inner.centres
        return Points.of(self.plan, *np.split(h, [d_x, h.shape[1] - d_a], axis=1))

    @cached_property
    def starters(self) -> Points:
        """The records at which the ascent may start."""
        own = self.plan.starters
        return Points.of(self.plan, own.data.x, own.u, own.data.a)

    @property
    def _widths(self) -> tuple[int, int]:
        data = self.plan.starters.data
        return data.x.shape[1], data.a.shape[1]

    @cached_property
    def waves(self) -> tuple[Array, Array]:
        """The frequencies on contexts and on actions."""
        assert self.plan.frequencies is not None
        d_x, d_a = self._widths
        return self.plan.frequencies[:, :d_x], self.plan.frequencies[:, -d_a:]


@dataclass(frozen=True, eq=False)
class Counting:
    """Sums over the records of a batch for a plan.

    Args:
        plan: The functions.
        adjusted: The covariates adjusted for.
        region: The desired region.
    """

    plan: Plan
    adjusted: tuple[str, ...]
    region: Polytope

    def __call__(self, data: Observations) -> Moments:
        """Sum over some records."""
        records = Records(data, self.adjusted, self.region)
        return moments_of(self.plan, Batch.of(records, self.plan.setting.sharpness))


@dataclass(frozen=True, eq=False)
class Points:
    """Some points, split into their parts.

    Args:
        x: Their contexts.
        a: Their actions.
        mixing: How their functions of the covariates are made of the embedded ones;
            ``None`` when there is nothing to adjust for.
    """

    x: Float[Array, "m d_x"]
    a: Float[Array, "m d_a"]
    mixing: Float[Array, "p m"] | None

    @classmethod
    def of(
        cls,
        plan: Plan,
        x: Float[Array, "m d_x"],
        u: Float[Array, "m d_u"],
        a: Float[Array, "m d_a"],
    ) -> Points:
        """Express the covariates of the points by those embedded."""
        on_u = plan.covariates
        if on_u is None:
            return cls(x, a, None)
        return cls(x, a, on_u.unwhiten(on_u.whiten(on_u.rows(u).T)))


@dataclass(frozen=True, eq=False)
class LowView(View):
    """What landmarks say of some contexts.

    Args:
        systems: What has been factored.
        solution: The weights for the desired region.
        x: The contexts.
    """

    systems: LowRank
    solution: Solution
    x: Float[Array, "q d_x"]

    def starts(self, n_starts: int) -> Float[Array, "q s d_a"]:
        """Start by the records, of a few hundred, of the largest weights."""
        starters = self.systems.starters
        omega = (self.solution.pull[:, None] * self._reach(starters)).T
        return top_starts(omega, aside(starters.a), n_starts)

    def objective(self, stretch: Stretch = 1.0) -> Objective:
        """Sum over the landmarks, or over the actions that span theirs."""
        omega = (self.solution.alpha[:, None] * self._at_centres).T
        kernel, basis = self._setting.k_a, self.systems.basis
        return expanded(kernel, self.systems.centres.a, omega, basis, stretch)

    def under(self, a: Float[Array, "q d_a"]) -> Belief:
        """Believe in the probability under an action for each context."""
        v, scale = self._columns(a), self.solution.scale
        variance = self._left_out(v) + self.systems.inner.noise(v)
        return Belief.drawn(self.solution.alpha_hard @ v, scale * variance)

    def natural(self) -> Belief:
        """Believe in the probability without action."""
        v, normal = self.systems.plan.natural.rows(self.x).T, self.systems.unaltered
        left_out = np.maximum(1.0 - _squares(self.systems.plan.natural.whiten(v)), 0.0)
        variance = left_out + normal.noise(v)
        mean = self.solution.alpha_natural @ v
        return Belief.drawn(mean, self.solution.scale_natural * variance)

    def _left_out(self, v: Float[Array, "m q"]) -> Float[Array, " q"]:
        """The approximation's own variance: what the landmarks do not speak for."""
        return np.maximum(
            self._prior - _squares(self.systems.plan.inner.whiten(v)), 0.0
        )

    def _columns(self, a: Float[Array, "q d_a"]) -> Float[Array, "m q"]:
        return self._at_centres * self._setting.k_a(self.systems.centres.a, a)

    def _reach(self, points: Points) -> Float[Array, "m q"]:
        """Weigh landmarks by context and adjustment."""
        k_x = self._setting.k_x(points.x, self.x)
        if points.mixing is not None:
            k_x *= points.mixing.T @ self._embedded[: len(points.mixing)]
        return k_x

    @cached_property
    def _at_centres(self) -> Float[Array, "m q"]:
        return self._reach(self.systems.centres)

    @cached_property
    def _embedded(self) -> Float[Array, "t q"]:
        """The mean of what stage 2 embeds, given the contexts."""
        assert self.systems.mixing is not None
        return self.systems.mixing.T @ self.systems.plan.outer.rows(self.x).T

    @cached_property
    def _prior(self) -> Float[Array, " q"]:
        r"""The prior variance :math:`|\mu(x)|^2` of the averaged function.

        The landmarks see a projection of the embedding :math:`\mu` only. What is left
        of its norm is at most what is left of those that it is the mean of.
        """
        on_u, residue = self.systems.plan.covariates, self.systems.plan.residue
        if on_u is None:
            return np.ones(len(self.x))
        mass = np.clip(self._embedded[-1], 0.0, 1.0)
        seen = _squares(on_u.whiten(self._embedded[: on_u.rank]))
        return seen + residue * mass + unknown(mass)

    @property
    def _setting(self) -> Setting:
        return self.systems.plan.setting


@dataclass(frozen=True, eq=False)
class WavyView(LowView):
    """What random waves say of some contexts; landmarks say how far they are heard."""

    def objective(self, stretch: Stretch = 1.0) -> Waves:
        """Sum over the waves."""
        cosines, sines = np.split(self.solution.alpha, 2)
        weights = (cosines - 1j * sines) * self._phases
        on_a = self.systems.waves[1] * stretch
        return Waves(on_a, weights.real.copy(), -weights.imag)

    def under(self, a: Float[Array, "q d_a"]) -> Belief:
        """Believe in the probability under an action for each context."""
        waves = self._phases * np.exp(1j * (a @ self.systems.waves[1].T))
        z = np.concatenate([waves.real, waves.imag], axis=1).T
        variance = self._left_out(self._columns(a)) + self.systems.inner.noise(z)
        mean = self.solution.alpha_hard @ z
        return Belief.drawn(mean, self.solution.scale * variance)

    @cached_property
    def _phases(self) -> Complex[Array, "q f"]:
        """The waves at the contexts, averaged over the covariates."""
        on_x = self.systems.waves[0]
        phases = np.exp(1j * (self.x @ on_x.T)) / np.sqrt(len(on_x))
        on_u = self.systems.plan.covariates
        if on_u is None:
            return phases
        cosines, sines = np.split(self._embedded[on_u.rank : -1], 2)
        return phases * (cosines + 1j * sines).T


def _squares(v: Float[Array, "m q"]) -> Float[Array, " q"]:
    return np.einsum("mq,mq->q", v, v)
