"""How likely the records are under the hyperparameters of a mechanism."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from jaxtyping import Bool, Float, Int
from scipy.linalg import LinAlgError, cho_factor, cho_solve
from scipy.linalg.lapack import dpotri

from forestall.arrays import Array
from forestall.hills import TOPS, hills
from forestall.kernels import gram
from forestall.polynomials import polynomials
from forestall.unbent import Unbent

# Weak beliefs about the log variance of the noise and about log widths, for
# standardised data: without them a parameter that does not matter would run away.
BELIEF, BELIEF_WIDTH, DOUBT, DOUBT_WIDTH = np.log(0.1), np.log(2.0), 2.0, 1.2
# Slopes, curves and bends have to earn their place: a penalty on their deviations that
# is nothing beside data and everything without (a penalised-complexity prior).
SIMPLICITY = 3.0
# The log variance of nothing.
NOTHING = -30.0


@dataclass(frozen=True, eq=False)
class Likelihood:
    """The negative log posterior of the hyperparameters, with its gradient.

    Args:
        z: The inputs.
        y: The output.
        groups: The variable behind each input column.
        loudness: The variance of each record's noise, relative to the common one.
    """

    z: Float[Array, "n d"]
    y: Float[Array, " n"]
    groups: Int[Array, " d"]
    loudness: Float[Array, " n"] | float = 1.0

    @cached_property
    def curves(self) -> Float[Array, "n n"]:
        """The kernel of the quadratic trend."""
        return (self.z @ self.z.T) ** 2

    @cached_property
    def curved(self) -> Int[Array, " h"]:
        """The columns along which there may be hills; two values make a slope."""
        columns = np.sort(self.z, axis=0)
        steps = (np.diff(columns, axis=0) > 0.0).sum(axis=0)
        return np.flatnonzero(steps > 1)

    @cached_property
    def able(self) -> Bool[Array, " g"]:
        """The variables that may have hills."""
        return np.isin(np.arange(self.groups.max() + 1), self.groups[self.curved])

    @cached_property
    def hills(self) -> Float[Array, "n b"]:
        """The hills along these columns."""
        return hills(self.z[:, self.curved])

    @cached_property
    def unbent(self) -> Unbent | None:
        """The sums for all but bends; ``None`` where they would save nothing."""
        if 2 * len(self.owners) > len(self.y):
            return None
        products = polynomials(self.z, 2)
        Phi = np.concatenate([products, self.hills], axis=1)
        return Unbent.of(Phi, self.y, np.broadcast_to(self.loudness, self.y.shape))

    @cached_property
    def owners(self) -> Int[Array, " q"]:
        """The parameter that is the variance of each function; none for the first."""
        d, g = len(self.groups), self.groups.max() + 1
        hilly = np.repeat(self.groups[self.curved], TOPS)
        curves = np.zeros(d * (d + 1) // 2, dtype=int)
        return np.concatenate([[-1], 3 + self.groups, curves, 3 + 2 * g + hilly])

    def __call__(self, theta: Float[Array, " k"]) -> tuple[float, Float[Array, " k"]]:
        r"""Evaluate at :math:`\theta = \log(s_q, s_f, s_e, s_1 .. s_g, \rho, h)`."""
        if theta[1] <= NOTHING and self.unbent is not None:
            return self._without_bends(self.unbent, theta)
        z, B = self.z, self.hills
        quadratic, smooth, noise = np.exp(theta[:3])
        slopes, widths, heights = self._each(theta)
        solved = self._solved(theta)
        if solved is None:
            return 1e10, np.zeros_like(theta)
        factor, alpha, bends = solved
        # The gradient is half the trace of this matrix times dK.
        inverse, _ = dpotri(factor, lower=1)
        M = np.tril(inverse) + np.tril(inverse, -1).T - np.outer(alpha, alpha)
        M_bends = M * bends
        by_slope = slopes * np.einsum("nd,nd->d", z, M @ z)
        # The sum of M_ij (z_i - z_j)^2, without forming the differences.
        spread = M_bends.sum(axis=1) @ z**2 - np.einsum("nd,nd->d", z, M_bends @ z)
        by_width = 2.0 * smooth * spread / widths**2
        by_height = heights * np.einsum("nb,nb->b", B, M @ B)
        hilly = np.repeat(self.groups[self.curved], TOPS)
        gradient = 0.5 * np.concatenate(
            [
                [
                    quadratic * np.vdot(M, self.curves),
                    smooth * M_bends.sum(),
                    noise * np.sum(self.loudness * np.diag(M)),
                ],
                np.bincount(self.groups, by_slope),
                np.bincount(self.groups, by_width),
                np.bincount(hilly, by_height, minlength=self.groups.max() + 1),
            ]
        )
        return self._believed(theta, self._fit(factor, alpha), gradient)

    def value(self, theta: Float[Array, " k"]) -> float:
        """Evaluate without the gradient, which is most of the work."""
        if theta[1] <= NOTHING and self.unbent is not None:
            return self._without_bends(self.unbent, theta)[0]
        solved = self._solved(theta)
        if solved is None:
            return 1e10
        fit = self._fit(*solved[:2])
        return self._believed(theta, fit, np.zeros_like(theta))[0]

    def _without_bends(
        self, unbent: Unbent, theta: Float[Array, " k"]
    ) -> tuple[float, Float[Array, " k"]]:
        variances = np.exp(theta)[self.owners]
        variances[0] = 1.0
        told = unbent(variances, float(np.exp(theta[2])))
        if told is None:
            return 1e10, np.zeros_like(theta)
        value, by_variance, by_noise = told
        gradient = np.bincount(self.owners[1:], by_variance[1:], len(theta))
        gradient[2] = by_noise
        return self._believed(theta, value, gradient)

    def _each(self, theta: Float[Array, " k"]) -> list[Float[Array, " b"]]:
        """The slope variance and width of each column, and the height of each hill."""
        slopes, widths, heights = (
            v[self.groups] for v in np.split(np.exp(theta[3:]), 3)
        )
        return [slopes, widths, np.repeat(heights[self.curved], TOPS)]

    def _solved(
        self, theta: Float[Array, " k"]
    ) -> tuple[Float[Array, "n n"], Float[Array, " n"], Float[Array, "n n"]] | None:
        """The factor of the covariance, its solution for the output, and the bends."""
        z, B = self.z, self.hills
        quadratic, smooth, noise = np.exp(theta[:3])
        slopes, widths, heights = self._each(theta)
        bends = gram(z / widths, z / widths)
        K = quadratic * self.curves
        K += smooth * bends
        K += (z * slopes) @ z.T
        K += (B * heights) @ B.T
        K += 1.0
        K[np.diag_indices(len(K))] += noise * self.loudness
        try:
            factor = cho_factor(K, lower=True, overwrite_a=True, check_finite=False)
        except LinAlgError:
            return None
        return factor[0], cho_solve(factor, self.y), bends

    def _fit(self, factor: Float[Array, "n n"], alpha: Float[Array, " n"]) -> float:
        return float(0.5 * self.y @ alpha + np.log(np.diag(factor)).sum())

    def _believed(
        self, theta: Float[Array, " k"], value: float, gradient: Float[Array, " k"]
    ) -> tuple[float, Float[Array, " k"]]:
        """Add what is believed beforehand."""
        g = self.groups.max() + 1
        believed = np.r_[2, 3 + g : 3 + 2 * g]
        off = theta[believed] - np.r_[BELIEF, np.full(g, BELIEF_WIDTH)]
        doubt = np.r_[DOUBT, np.full(g, DOUBT_WIDTH)]
        simple = np.r_[0, 1, 3 : 3 + g, 3 + 2 * g : 3 + 3 * g]
        deviations = np.exp(0.5 * theta[simple])
        gradient = gradient.copy()
        gradient[believed] += off / doubt**2
        gradient[simple] += 0.5 * SIMPLICITY * deviations
        penalty = 0.5 * np.sum((off / doubt) ** 2) + SIMPLICITY * deviations.sum()
        return float(value + penalty), gradient
