"""The functions in which a mechanism is a Bayesian linear model.

The polynomial trend and the hills, exactly; and the Gaussian part by landmarks that
span the records, or by random waves.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import Bool, Float
from scipy.linalg import solve_triangular

from forestall.arrays import Array
from forestall.expansion import pivoted_cholesky
from forestall.hills import FAR
from forestall.kernels import Gaussian, gram
from forestall.landmarks import Landmarks, chosen
from forestall.lowrank import Approximation, Nystrom, RandomFourier
from forestall.polynomials import polynomial_gradient, polynomial_sum, polynomials
from forestall.select import Choice
from forestall.waves import features, frequencies

# Centres of the Gaussian part at most, and what may be left unexplained by them as a
# share of the noise.
CENTRES, LEFT = 200, 0.02
# Below this the factor of the centres' Gram matrix is rounding.
TOLERANCE = 1e-10


@dataclass(frozen=True, eq=False)
class Spanning:
    """Functions whose weights are standard normal beforehand.

    Args:
        choice: The hyperparameters.
        spread: The prior standard deviation of the weights of polynomials and hills.
        centres: Centres of the Gaussian part, in units of the widths.
        factor: The Cholesky factor of their Gram matrix.
        frequencies: Frequencies of the waves in place of centres, in the same units.
    """

    choice: Choice
    spread: Float[Array, " p"]
    centres: Float[Array, "m d"]
    factor: Float[Array, "m m"]
    frequencies: Float[Array, "f d"]

    @classmethod
    def of(
        cls,
        z: Float[Array, "n d"],
        choice: Choice,
        approximation: Approximation | None = None,
        n_all: int | None = None,
    ) -> Spanning:
        """Lay the Gaussian part over the records.

        Args:
            z: The records, or a sample of them.
            choice: The hyperparameters.
            approximation: How; ``None`` takes the records that explain most, until the
                rest is nothing beside the noise.
            n_all: The number of records that these are a sample of, if they are.
        """
        n, d = z.shape
        spread = np.sqrt(np.concatenate([[1.0], choice.linear]))
        if choice.quadratic > 1e-3 * choice.noise / n:
            squares = np.full(d * (d + 1) // 2, np.sqrt(choice.quadratic))
            spread = np.concatenate([spread, squares])
        heights = np.repeat(np.sqrt(choice.hills), choice.shape.tops)
        spread = np.concatenate([spread, heights])
        t, nothing = z / choice.widths, np.empty((0, d))
        if not choice.bends:
            return cls(choice, spread, nothing, np.empty((0, 0)), nothing)
        if isinstance(approximation, RandomFourier):
            rng = np.random.default_rng(approximation.seed)
            half = approximation.n_features // 2
            drawn = frequencies(half, np.ones(d), approximation.orthogonal, rng)
            return cls(choice, spread, nothing, np.empty((0, 0)), drawn)
        if isinstance(approximation, Nystrom):
            penalty = choice.noise / (n * choice.smooth)
            rank, how, seed = (
                approximation.rank,
                approximation.landmarks,
                approximation.seed,
            )
            points = t[chosen(t, rank, how, penalty, seed)]
            marks = Landmarks.of(Gaussian(np.ones(d)), points, TOLERANCE)
            return cls(choice, spread, marks.centres, marks.factor, nothing)
        # More records would show what few do not.
        left = LEFT * min(1.0, n / (n_all or n))
        tolerance = max(left * choice.noise / choice.smooth, TOLERANCE)
        pivots, columns = pivoted_cholesky(t, min(CENTRES, n), tolerance)
        return cls(choice, spread, t[pivots], columns[pivots], nothing)

    def some(self, kept: Bool[Array, " q"]) -> Spanning:
        """Keep some of the functions: those that stand together, all or none."""
        p, h = len(self.spread), len(self.choice.hilly)
        tops = self.choice.shape.tops
        rising = kept[p - tops * h : p].reshape(h, tops).all(axis=1)
        choice = replace(
            self.choice,
            hilly=self.choice.hilly[rising],
            hills=self.choice.hills[rising],
        )
        bends = slice(None if kept[p:].all() else 0)
        return Spanning(
            choice,
            self.spread[kept[:p]],
            self.centres[bends],
            self.factor[bends, bends],
            self.frequencies[bends],
        )

    @property
    def sizes(self) -> tuple[int, int, int]:
        """How many functions: of the trend with its hills, on centres, waves."""
        return len(self.spread), len(self.centres), 2 * len(self.frequencies)

    def __call__(self, z: Float[Array, "n d"]) -> Float[Array, "n q"]:
        """Evaluate all functions at each point."""
        parts = [trends(z, self.choice, len(self.spread)) * self.spread]
        t, height = z / self.choice.widths, np.sqrt(self.choice.smooth)
        if len(self.centres):
            rows = gram(self.centres, t)
            bends = solve_triangular(
                self.factor, rows, lower=True, overwrite_b=True, check_finite=False
            )
            parts.append(height * bends.T)
        if len(self.frequencies):
            parts.append(height * features(t, self.frequencies))
        return np.concatenate(parts, axis=1)

    def to_bumps(self, weights: Float[Array, "m s"]) -> Float[Array, "m s"]:
        """Turn weights of orthonormal functions into weights of kernel functions."""
        if not len(self.centres):
            return weights
        whole = solve_triangular(self.factor, weights, lower=True, trans="T")
        return np.sqrt(self.choice.smooth) * whole


def trends(z: Float[Array, "n d"], choice: Choice, p: int) -> Float[Array, "n {p}"]:
    """List the polynomials and the hills, of which there are ``p`` together."""
    rows = polynomials(z, _order(choice, p))
    return np.concatenate([rows, choice.shape(z[:, choice.hilly])], axis=1)


def trends_sum(
    z: Float[Array, "n d"], choice: Choice, weights: Float[Array, "p s"]
) -> Float[Array, "n s"]:
    """Add up :func:`trends` by their weights, to seven digits of the hills.

    Of what has no weight nothing is evaluated: a draw has few of all functions.
    """
    smooth, bumps = np.split(weights, [len(weights) - choice.n_hills])
    out = polynomial_sum(z, smooth)
    hills = bumps.reshape(len(choice.hilly), choice.shape.tops, weights.shape[1])
    rising = hills.any(axis=(1, 2))
    if rising.any():
        # Clipped here already: what is absurd does not fit into seven digits.
        along = np.clip(z[:, choice.hilly[rising]], -FAR, FAR).astype(np.float32)
        out += choice.shape(along) @ hills[rising].reshape(-1, weights.shape[1])
    return out


def trends_gradient(
    z: Float[Array, "n d"], choice: Choice, weights: Float[Array, " p"]
) -> Float[Array, "n d"]:
    """Differentiate a weighted sum of :func:`trends` by the inputs."""
    smooth, bumps = np.split(weights, [len(weights) - choice.n_hills])
    out = polynomial_gradient(z, smooth)
    hills = bumps.reshape(len(choice.hilly), choice.shape.tops)
    rising = hills.any(axis=1)
    if rising.any():
        columns = choice.hilly[rising]
        out[:, columns] += choice.shape.gradient(z[:, columns], hills[rising])
    return out


def _order(choice: Choice, p: int) -> int:
    """The order of the polynomial, which is without squares where these are nothing."""
    return 1 if p - choice.n_hills == 1 + len(choice.widths) else 2
