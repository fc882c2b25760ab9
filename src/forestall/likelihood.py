"""How likely the records are under the hyperparameters of a mechanism."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from jaxtyping import Bool, Float, Int
from scipy.linalg import LinAlgError, cho_solve, cholesky
from scipy.linalg.lapack import dpotri

from forestall.arrays import Array
from forestall.hills import COARSE
from forestall.kernels import gram
from forestall.polynomials import polynomials
from forestall.woodbury import Woodbury

# Weak beliefs about the log variance of the noise and about log widths, for
# standardised data: without them a parameter that does not matter would run away.
BELIEF, BELIEF_WIDTH, DOUBT, DOUBT_WIDTH = np.log(0.1), np.log(2.0), 2.0, 1.2
# Slopes, curves and bends have to earn their place: a penalty on their deviations that
# is nothing beside data and everything without (a penalised-complexity prior).
SIMPLICITY = 3.0
# Bends and hills that are less than this beside the noise are nothing.
LEAST = 0.002
# The log variance of nothing.
NOTHING = -30.0
# The height where rounding leaves nothing.
IMPOSSIBLE = 1e10


@dataclass(frozen=True, eq=False)
class Likelihood:
    r"""The negative log posterior of the hyperparameters, with its gradient.

    These are :math:`\theta = \log(s_q, s_f, s_e, s_1 .. s_g, \rho, h)`. It takes the
    covariance of all records, which their number must allow.

    Args:
        z: The inputs.
        y: The output.
        groups: The variable behind each input column.
        loudness: The variance of each record's noise, relative to the common one.
        known: Whether that is the noise itself.
    """

    z: Float[Array, "n d"]
    y: Float[Array, " n"]
    groups: Int[Array, " d"]
    loudness: Float[Array, " n"] | float = 1.0
    known: bool = False

    @cached_property
    def curves(self) -> Float[Array, "n n"]:
        """The kernel of the quadratic trend."""
        return (self.z @ self.z.T) ** 2

    @cached_property
    def curved(self) -> Int[Array, " h"]:
        """The columns along which there may be hills; two values make a slope."""
        return curved(self.z)

    @cached_property
    def hills(self) -> Float[Array, "n b"]:
        """The hills along these columns."""
        return COARSE(self.z[:, self.curved])

    @cached_property
    def unbent(self) -> Counted | None:
        """The sums for all but bends; ``None`` where they would save nothing."""
        owned = owners(self.groups, self.curved)
        if 2 * len(owned) > len(self.y):
            return None
        Phi = np.concatenate([polynomials(self.z, 2), self.hills], axis=1)
        loudness = np.broadcast_to(self.loudness, self.y.shape)
        sums = Woodbury.of(Phi, self.y, loudness)
        return Counted(sums, owned)

    @cached_property
    def able(self) -> Bool[Array, " g"]:
        """The variables that may have hills."""
        return np.isin(np.arange(self.groups.max() + 1), self.groups[self.curved])

    def __call__(self, theta: Float[Array, " k"]) -> tuple[float, Float[Array, " k"]]:
        """Evaluate with the gradient."""
        fitted = self.fit(theta)
        if fitted is None:
            return IMPOSSIBLE, np.zeros_like(theta)
        penalty, slope = self._belief(theta)
        return fitted[0] + penalty, fitted[1] + slope

    def value(self, theta: Float[Array, " k"]) -> float:
        """Evaluate without the gradient, which is most of the work."""
        height = self.height(theta)
        return IMPOSSIBLE if height is None else height + self._belief(theta)[0]

    def _belief(self, theta: Float[Array, " k"]) -> tuple[float, Float[Array, " k"]]:
        """What is believed beforehand."""
        g = self.groups.max() + 1
        believed = np.r_[2, 3 + g : 3 + 2 * g]
        off = theta[believed] - np.r_[BELIEF, np.full(g, BELIEF_WIDTH)]
        doubt = np.r_[DOUBT, np.full(g, DOUBT_WIDTH)]
        simple = np.r_[0, 1, 3 : 3 + g, 3 + 2 * g : 3 + 3 * g]
        deviations = np.exp(0.5 * theta[simple])
        slope = np.zeros_like(theta)
        slope[believed] = off / doubt**2
        slope[simple] = 0.5 * SIMPLICITY * deviations
        penalty = 0.5 * np.sum((off / doubt) ** 2) + SIMPLICITY * deviations.sum()
        return float(penalty), slope

    def fit(self, theta: Float[Array, " k"]) -> tuple[float, Float[Array, " k"]] | None:
        """How unlikely the records are; without bends, by sums."""
        if theta[1] <= NOTHING and self.unbent is not None:
            return self.unbent(theta)
        z, B = self.z, self.hills
        quadratic, smooth, noise = np.exp(theta[:3])
        slopes, widths, heights = self._each(theta)
        solved = self._solved(theta)
        if solved is None:
            return None
        L, alpha, bends = solved
        height = self._height(L, alpha)
        # The gradient is half the trace of M = K^-1 - alpha alpha' times dK. Of the
        # inverse there is one triangle W, its diagonal halved: W + W' is all of it.
        inverse, _ = dpotri(L, lower=1, overwrite_c=1)
        W = inverse.T
        settled = np.diag(W) - alpha**2
        W[np.diag_indices(len(W))] *= 0.5
        sides = np.concatenate([z, B], axis=1)
        traces = 2.0 * np.einsum("nq,nq->q", sides, W @ sides) - (alpha @ sides) ** 2
        by_slope, by_height = np.split(traces, [z.shape[1]])
        curving = np.sum(((z * alpha[:, None]).T @ z) ** 2)
        by_curve = 2.0 * np.vdot(W, self.curves) - curving
        W *= bends
        pulls = alpha[:, None] * np.concatenate([np.ones((len(z), 1)), z], axis=1)
        pulled = pulls * (bends @ pulls)
        rows = W.sum(axis=0) + W.sum(axis=1) - pulled[:, 0]
        # The sum of M_ij (z_i - z_j)^2, without forming the differences.
        crosses = 2.0 * np.einsum("nd,nd->d", z, W @ z) - pulled[:, 1:].sum(axis=0)
        by_width = 2.0 * smooth * (rows @ z**2 - crosses) / widths**2
        hilly = np.repeat(self.groups[self.curved], COARSE.tops)
        gradient = 0.5 * np.concatenate(
            [
                [
                    quadratic * by_curve,
                    smooth * rows.sum(),
                    noise * np.sum(self.loudness * settled),
                ],
                np.bincount(self.groups, slopes * by_slope),
                np.bincount(self.groups, by_width),
                np.bincount(hilly, heights * by_height, self.groups.max() + 1),
            ]
        )
        return height, gradient

    def height(self, theta: Float[Array, " k"]) -> float | None:
        """The same without the gradient."""
        if theta[1] <= NOTHING and self.unbent is not None:
            fitted = self.unbent(theta)
            return None if fitted is None else fitted[0]
        solved = self._solved(theta)
        return None if solved is None else self._height(*solved[:2])

    def _each(self, theta: Float[Array, " k"]) -> list[Float[Array, " b"]]:
        """The slope variance and width of each column, and the height of each hill."""
        slopes, widths, heights = (
            v[self.groups] for v in np.split(np.exp(theta[3:]), 3)
        )
        return [slopes, widths, np.repeat(heights[self.curved], COARSE.tops)]

    def _solved(
        self, theta: Float[Array, " k"]
    ) -> tuple[Float[Array, "n n"], Float[Array, " n"], Float[Array, "n n"]] | None:
        """The factor of the covariance, its solution for the output, and the bends."""
        z, B = self.z, self.hills
        quadratic, smooth, noise = np.exp(theta[:3])
        slopes, widths, heights = self._each(theta)
        roots = [z * np.sqrt(slopes), B * np.sqrt(heights), np.ones((len(z), 1))]
        trend = np.concatenate(roots, axis=1)
        bends = gram(z / widths, z / widths)
        K = trend @ trend.T
        K += quadratic * self.curves
        K += smooth * bends
        K[np.diag_indices(len(K))] += noise * self.loudness
        try:
            # Of a symmetric matrix the transpose is what LAPACK reads without a copy.
            L = cholesky(K.T, lower=True, overwrite_a=True, check_finite=False)
        except LinAlgError:
            return None
        return L, cho_solve((L, True), self.y, check_finite=False), bends

    def _height(self, L: Float[Array, "n n"], alpha: Float[Array, " n"]) -> float:
        return float(0.5 * self.y @ alpha + np.log(np.diag(L)).sum())


@dataclass(frozen=True, eq=False)
class Counted:
    """The same by sums over records, without bends.

    Args:
        sums: The sums.
        owners: The parameter that is the variance of each function.
    """

    sums: Woodbury
    owners: Int[Array, " q"]

    def __call__(
        self, theta: Float[Array, " k"]
    ) -> tuple[float, Float[Array, " k"]] | None:
        """How unlikely the records are; ``None`` where rounding leaves nothing."""
        variances = np.exp(theta)[self.owners]
        variances[0] = 1.0
        told = self.sums(variances, float(np.exp(theta[2])))
        if told is None:
            return None
        value, by_variance, by_noise = told
        gradient = np.bincount(self.owners[1:], by_variance[1:], len(theta))
        gradient[2] = by_noise
        return value, gradient


def curved(z: Float[Array, "n d"]) -> Int[Array, " h"]:
    """The columns along which there may be hills; two values make a slope."""
    steps = (np.diff(np.sort(z, axis=0), axis=0) > 0.0).sum(axis=0)
    return np.flatnonzero(steps > 1)


def owners(groups: Int[Array, " d"], hilly: Int[Array, " h"]) -> Int[Array, " q"]:
    """The parameter that is the variance of each function; none for the first.

    Args:
        groups: The variable behind each input column.
        hilly: The columns that have hills.
    """
    d = len(groups)
    of_hills = 3 + 2 * (groups.max() + 1) + np.repeat(groups[hilly], COARSE.tops)
    curves = np.zeros(d * (d + 1) // 2, dtype=int)
    return np.concatenate([[-1], 3 + groups, curves, of_hills])
