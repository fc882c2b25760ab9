r"""How likely a Gaussian outcome lies in a polytope, with derivatives.

.. math:: P(\mu) = P(\mu + F e \in S), \qquad e \sim N(0, I)

Outcomes are drawn one after the other from what the region leaves them, given those
before (the sequential simulator of Geweke, Hajivassiliou and Keane), at fixed points:
exact for one outcome and for independent outcomes in a box, a quadrature for two,
quasi-Monte Carlo for more. All in logarithms, so that a region far away still tells in
which direction it lies.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float
from scipy.special import log_ndtr, logsumexp, ndtri_exp

from forestall.arrays import Array
from forestall.region import Polytope

# Implied constraints are looked for as long as there are no more than this many.
MOST_ROWS = 256
LOG_ROOT = 0.5 * np.log(2.0 * np.pi)


@dataclass(frozen=True, eq=False)
class Limits:
    """The bounds of one outcome, affine in the outcomes before it.

    Args:
        upper: The upper bounds: coefficients of what is before and, last, a constant.
        lower: The lower bounds.
    """

    upper: Float[Array, "r k"]
    lower: Float[Array, "l k"]

    def __call__(
        self, before: Float[Array, "n j d"]
    ) -> tuple[Float[Array, "n j"], Float[Array, "n j"]]:
        """Evaluate the tightest lower and upper bound."""
        shape = before.shape[:2]
        lower, upper = np.full(shape, -np.inf), np.full(shape, np.inf)
        for row in self.upper:
            upper = np.minimum(upper, before @ row[:-1] + row[-1])
        for row in self.lower:
            lower = np.maximum(lower, before @ row[:-1] + row[-1])
        return lower, upper


@dataclass(frozen=True, eq=False)
class Truncated:
    """A Gaussian law cut to the region, for each of many means.

    Args:
        log_probability: How likely the region is.
        noise: The mean of the noise :math:`e` inside the region.
        shrinkage: By how much the noise varies less there: the identity minus its
            covariance, positive semidefinite.
    """

    log_probability: Float[Array, " n"]
    noise: Float[Array, "n d"]
    shrinkage: Float[Array, "n d d"]


@dataclass(frozen=True, eq=False)
class PolytopeProbability:
    """The probability of one region under any Gaussian law.

    Args:
        limits: The bounds of each outcome given those before it.
        points: Fixed points in the unit cube, one coordinate less than outcomes.
        weights: What each point counts.
    """

    limits: tuple[Limits, ...]
    points: Float[Array, "j c"]
    weights: Float[Array, " j"]

    @classmethod
    def of(cls, region: Polytope, n_points: int = 64) -> PolytopeProbability:
        """Prepare a region.

        Args:
            region: The region, in the units in which means will be given.
            n_points: Points for two outcomes; at least eight times as many for more.
        """
        points, weights = _points(region.dim - 1, n_points)
        return cls(_eliminated(region.normals, region.offsets), points, weights)

    def __call__(
        self, mean: Float[Array, "n d"], factor: Float[Array, "m d d"]
    ) -> Float[Array, " n"]:
        """Tell how likely the region is.

        Args:
            mean: The means.
            factor: The lower Cholesky factors of the covariance, one for each mean or
                one for all.
        """
        return np.minimum(np.exp(self.log(mean, factor)), 1.0)

    def log(
        self, mean: Float[Array, "n d"], factor: Float[Array, "m d d"]
    ) -> Float[Array, " n"]:
        """Tell the logarithm of it."""
        return self._drawn(mean, factor).total

    def truncated(
        self, mean: Float[Array, "n d"], factor: Float[Array, "m d d"]
    ) -> Truncated:
        r"""Tell its logarithm, and what the derivatives are made of.

        By the mean, :math:`\log P` has the gradient :math:`F^{-\top} E[e | S]` and
        the Hessian :math:`-F^{-\top} (I - Cov[e | S]) F^{-1}`.
        """
        drawn = self._drawn(mean, factor)
        seen = np.isfinite(drawn.total)[:, None]
        share = np.exp(drawn.logs - np.where(seen, drawn.total[:, None], 0.0))
        middle, rest = drawn.last.moments()
        e = _joined(drawn.noise, middle)
        centre = np.einsum("nj,njd->nd", share, e)
        second = np.einsum("nj,njd,njc->ndc", share, e, e)
        second[:, -1, -1] += (share * rest).sum(axis=1)
        covariance = second - centre[:, :, None] * centre[:, None, :]
        return Truncated(
            drawn.total, centre, _positive(np.eye(e.shape[2]) - covariance)
        )

    def _drawn(
        self, mean: Float[Array, "n d"], factor: Float[Array, "m d d"]
    ) -> _Drawn:
        n, d = mean.shape
        factor = np.broadcast_to(factor, (n, d, d))
        # What does not vary over the points is computed once.
        logs = np.zeros((n, 1))
        y = e = np.empty((n, 1, 0))
        for k, limits in enumerate(self.limits):
            lower, upper = limits(y)
            centre = mean[:, k, None] + np.einsum("nc,njc->nj", factor[:, k, :k], e)
            sd = factor[:, k, k, None]
            cut = _Cut.of((lower - centre) / sd, (upper - centre) / sd)
            logs = logs + cut.log_kept
            if k < d - 1:
                e_k = cut.quantile(self.points[:, k])
                e, y = _joined(e, e_k), _joined(y, centre + sd * e_k)
        logs = logs + np.log(self.weights)
        return _Drawn(logs, logsumexp(logs, axis=1), e, cut)


@dataclass(frozen=True, eq=False)
class _Drawn:
    """Weighted draws: log weights and their sum, all noise but the last, its law."""

    logs: Float[Array, "n j"]
    total: Float[Array, " n"]
    noise: Float[Array, "n j c"]
    last: _Cut


@dataclass(frozen=True, eq=False)
class _Cut:
    """The standard normal law between two ends, turned to its lower tail."""

    low: Float[Array, "n j"]
    high: Float[Array, "n j"]
    sign: Float[Array, "n j"]
    log_kept: Float[Array, "n j"]

    @classmethod
    def of(cls, low: Float[Array, "n j"], high: Float[Array, "n j"]) -> _Cut:
        turned = low > -high
        low, high = np.where(turned, -high, low), np.where(turned, -low, high)
        log_high = log_ndtr(high)
        with np.errstate(divide="ignore", invalid="ignore"):
            kept = log_high + np.log(-np.expm1(log_ndtr(low) - log_high))
        kept = np.where(high > low, kept, -np.inf)
        return cls(low, high, np.where(turned, -1.0, 1.0), kept)

    def quantile(self, levels: Float[Array, " j"]) -> Float[Array, "n j"]:
        # Mirrored levels, so that a mirrored problem has a mirrored answer.
        u = np.where(self.sign > 0, levels, 1.0 - levels)
        logs = np.logaddexp(log_ndtr(self.low), np.log(u) + self.log_kept)
        e = np.clip(ndtri_exp(np.minimum(logs, 0.0)), self.low, self.high)
        return self.sign * np.where(np.isfinite(e), e, 0.0)

    def moments(self) -> tuple[Float[Array, "n j"], Float[Array, "n j"]]:
        """The mean and the variance."""
        low, high = self._density(self.low), self._density(self.high)
        mean = low - high
        ends = _times(self.low, low) - _times(self.high, high)
        return self.sign * mean, np.clip(1.0 + ends - mean**2, 0.0, 1.0)

    def _density(self, end: Float[Array, "n j"]) -> Float[Array, "n j"]:
        empty = ~np.isfinite(self.log_kept)
        kept = np.where(empty, 0.0, self.log_kept)
        return np.where(empty, 0.0, np.exp(-0.5 * end**2 - LOG_ROOT - kept))


def _joined(
    before: Float[Array, "n i k"], last: Float[Array, "n j"]
) -> Float[Array, "n j d"]:
    before = np.broadcast_to(before, (*last.shape, before.shape[2]))
    return np.concatenate([before, last[:, :, None]], axis=2)


def _times(end: Float[Array, "n j"], density: Float[Array, "n j"]) -> Array:
    return np.where(np.isfinite(end), end, 0.0) * density


def _positive(A: Float[Array, "n d d"]) -> Float[Array, "n d d"]:
    """Take away what quadrature made negative."""
    values, axes = np.linalg.eigh(0.5 * (A + np.swapaxes(A, 1, 2)))
    return (axes * np.clip(values, 0.0, 1.0)[:, None, :]) @ np.swapaxes(axes, 1, 2)


def _points(dim: int, n: int) -> tuple[Float[Array, "j c"], Float[Array, " j"]]:
    if dim == 0:
        return np.empty((1, 0)), np.ones(1)
    if dim == 1:
        nodes, weights = np.polynomial.legendre.leggauss(n)
        return 0.5 * (1.0 + nodes[:, None]), 0.5 * weights
    # Loading scipy.stats takes longer than many a decision: only where needed.
    from scipy.stats import qmc

    power = (8 * n - 1).bit_length()
    points = qmc.Sobol(dim, rng=np.random.default_rng(0)).random_base2(power)
    return np.clip(points, 1e-9, 1.0 - 1e-9), np.full(len(points), 0.5**power)


def _eliminated(M: Float[Array, "l d"], b: Float[Array, " l"]) -> tuple[Limits, ...]:
    """Bound each outcome by those before it, after Fourier and Motzkin."""
    rows = np.column_stack([M, b])
    found: list[Limits] = []
    for k in reversed(range(M.shape[1])):
        here, rows = rows[rows[:, k] != 0], rows[rows[:, k] == 0]
        here = here / np.abs(here[:, [k]])
        above, below = here[here[:, k] > 0], here[here[:, k] < 0]
        keep = [*range(k), -1]
        sign = np.append(-np.ones(k), 1.0)
        upper, lower = above[:, keep] * sign, -below[:, keep] * sign
        found.insert(0, Limits(upper, lower))
        rows = np.concatenate([rows, _implied(above, below, len(rows))])
    return tuple(found)


def _implied(
    above: Float[Array, "p c"], below: Float[Array, "q c"], n_rows: int
) -> Float[Array, "r c"]:
    """Add rows in pairs, so that the last outcome drops out."""
    pairs = (above[:, None] + below[None]).reshape(-1, above.shape[1])
    size = np.abs(pairs[:, :-1]).max(axis=1, initial=0.0)
    # A sum that cancels all but rounding bounds nothing.
    pairs = np.where(np.abs(pairs) < 1e-12, 0.0, pairs)[size > 1e-9]
    if len(pairs) + n_rows > MOST_ROWS:
        return np.empty((0, above.shape[1]))
    return pairs
