r"""One mechanism: how a variable follows from what precedes it, and how it strays.

The mean is a Gaussian process in finitely many features: the exact polynomial trend,
and the Gaussian part on a few centres that span the records. Draws of the whole
function are coherent across inputs and return to the prior away from the records
(pathwise conditioning): a draw from the prior plus what the records correct in it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int
from scipy.linalg import cho_factor, cho_solve, solve_triangular

from forestall.arrays import Array
from forestall.expansion import pivoted_cholesky
from forestall.kernels import gram
from forestall.select import Choice

# Centres of the Gaussian part at most, and what may be left unexplained by them as a
# share of the noise.
CENTRES, LEFT = 200, 0.02
# Random features of the prior's Gaussian part.
WAVES = 96
# The draws know nothing of the doubt about the hyperparameters and the kernel, so they
# are spread by this much more. Chosen over 1 by the coverage of intervals on random
# structural models 20 to 33, which no reported figure uses.
DOUBT = 1.25


@dataclass(frozen=True, eq=False)
class Mechanism:
    r"""The fitted mean of one variable, draws of it, and its residuals.

    Column 0 of every array of weights is the posterior mean, the others are draws.

    Args:
        choice: The hyperparameters.
        mean: The mean of the output.
        scale: The standard deviation of the output.
        trend: Weights of the polynomial features.
        centres: Centres of the Gaussian part, in units of the widths.
        bumps: Their weights.
        frequencies: Frequencies of the prior's random features.
        phases: Their phases.
        waves: Their weights; zero for the mean.
        residuals: Studentised residuals, in the unit of the output.
        leverage: How much each record moves its own prediction, 0 to 1.
    """

    choice: Choice
    mean: float
    scale: float
    trend: Float[Array, "p s"]
    centres: Float[Array, "m d"]
    bumps: Float[Array, "m s"]
    frequencies: Float[Array, "f d"]
    phases: Float[Array, " f"]
    waves: Float[Array, "f s"]
    residuals: Float[Array, " n"]
    leverage: Float[Array, " n"]

    @classmethod
    def of(
        cls,
        z: Float[Array, "n d"],
        v: Float[Array, " n"],
        choice: Choice,
        n_draws: int,
        rng: np.random.Generator,
    ) -> Mechanism:
        """Learn the mean of ``v`` given ``z`` and draw functions from its posterior."""
        mean, scale = float(v.mean()), float(v.std()) or 1.0
        y = (v - mean) / scale
        basis = _Basis.of(z, choice)
        Phi = basis.features(z)
        A = Phi.T @ Phi
        A[np.diag_indices(len(A))] += choice.noise
        factor = cho_factor(A, lower=True)
        theta = cho_solve(factor, Phi.T @ y)
        half = solve_triangular(factor[0], Phi.T, lower=True)
        leverage = np.minimum(np.einsum("pn,pn->n", half, half), 0.99)
        # In-sample residuals shrink and left-out ones carry the mean's own error, which
        # the draws carry already; these have the variance of the noise.
        residuals = (y - Phi @ theta) / np.sqrt(1.0 - leverage)
        prior = _Prior.drawn(basis, choice, n_draws, rng)
        noise = rng.normal(0.0, np.sqrt(choice.noise), size=(len(y), n_draws))
        correction = cho_solve(factor, Phi.T @ (y[:, None] - prior(z) - noise))
        weights = np.concatenate([theta[:, None], correction], axis=1)
        p = len(basis.spread)
        weights[:p, 1:] += prior.trend
        weights[:, 1:] += (DOUBT - 1.0) * (weights[:, 1:] - theta[:, None])
        still = np.zeros((len(prior.waves), 1))
        return cls(
            choice,
            mean,
            scale,
            weights[:p] * basis.spread[:, None],
            basis.centres,
            basis.to_bumps(weights[p:]),
            prior.frequencies,
            prior.phases,
            np.concatenate([still, DOUBT * prior.waves], axis=1),
            residuals * scale,
            leverage,
        )

    def __call__(
        self, z: Float[Array, "n d"], draws: Int[Array, " s"]
    ) -> Float[Array, "n s"]:
        """Evaluate the mean (draw 0) or draws of it."""
        out = polynomials(z, self._order) @ self.trend[:, draws]
        if len(self.centres):
            t = z / self.choice.widths
            out += gram(t, self.centres) @ self.bumps[:, draws]
            if np.any(draws):
                angles = t @ self.frequencies.T
                angles += self.phases
                out += np.cos(angles, out=angles) @ self.waves[:, draws]
        out *= self.scale
        out += self.mean
        return out

    def gradient(self, z: Float[Array, "n d"], draw: int) -> Float[Array, "n d"]:
        """Differentiate one draw by its inputs."""
        out = _polynomial_gradient(z, self.trend[:, draw], self._order)
        if len(self.centres):
            t = z / self.choice.widths
            rows = gram(t, self.centres) * self.bumps[:, draw]
            bends = rows @ self.centres - rows.sum(axis=1)[:, None] * t
            waves = np.sin(t @ self.frequencies.T + self.phases) * self.waves[:, draw]
            out += (bends - waves @ self.frequencies) / self.choice.widths
        return out * self.scale

    @property
    def _order(self) -> int:
        return 1 if len(self.trend) == len(self.choice.widths) + 1 else 2


@dataclass(frozen=True, eq=False)
class _Basis:
    """The features in which a mechanism is a Bayesian linear model.

    Args:
        choice: The hyperparameters.
        spread: The prior standard deviation of each polynomial weight.
        centres: Centres of the Gaussian part, in units of the widths.
        factor: The Cholesky factor of their Gram matrix.
    """

    choice: Choice
    spread: Float[Array, " p"]
    centres: Float[Array, "m d"]
    factor: Float[Array, "m m"]

    @classmethod
    def of(cls, z: Float[Array, "n d"], choice: Choice) -> _Basis:
        d = z.shape[1]
        spread = np.sqrt(np.concatenate([[1.0], choice.linear]))
        if choice.quadratic > 1e-3 * choice.noise / len(z):
            squares = np.full(d * (d + 1) // 2, np.sqrt(choice.quadratic))
            spread = np.concatenate([spread, squares])
        t = z / choice.widths
        limit = min(CENTRES, len(z))
        if choice.smooth <= LEFT * choice.noise / 10:
            limit = 0
        tolerance = max(LEFT * choice.noise / choice.smooth, 1e-10)
        pivots, columns = pivoted_cholesky(t, limit, tolerance)
        return cls(choice, spread, t[pivots], columns[pivots])

    def features(self, z: Float[Array, "n d"]) -> Float[Array, "n q"]:
        d = z.shape[1]
        order = 1 if len(self.spread) == 1 + d else 2
        trend = polynomials(z, order) * self.spread
        rows = gram(self.centres, z / self.choice.widths)
        bends = solve_triangular(self.factor, rows, lower=True).T
        return np.concatenate([trend, np.sqrt(self.choice.smooth) * bends], axis=1)

    def to_bumps(self, weights: Float[Array, "m s"]) -> Float[Array, "m s"]:
        """Turn weights of orthonormal features into weights of kernel functions."""
        whole = solve_triangular(self.factor, weights, lower=True, trans="T")
        return np.sqrt(self.choice.smooth) * whole


@dataclass(frozen=True, eq=False)
class _Prior:
    """Functions drawn from the prior, by random Fourier features."""

    basis: _Basis
    trend: Float[Array, "p s"]
    frequencies: Float[Array, "f d"]
    phases: Float[Array, " f"]
    waves: Float[Array, "f s"]

    @classmethod
    def drawn(
        cls, basis: _Basis, choice: Choice, n_draws: int, rng: np.random.Generator
    ) -> _Prior:
        n_waves = WAVES if len(basis.centres) else 0
        amplitude = np.sqrt(2.0 * choice.smooth / max(n_waves, 1))
        return cls(
            basis,
            rng.normal(size=(len(basis.spread), n_draws)),
            rng.normal(size=(n_waves, len(choice.widths))),
            rng.uniform(0.0, 2.0 * np.pi, size=n_waves),
            amplitude * rng.normal(size=(n_waves, n_draws)),
        )

    def __call__(self, z: Float[Array, "n d"]) -> Float[Array, "n s"]:
        order = 1 if len(self.trend) == 1 + z.shape[1] else 2
        trend = polynomials(z, order) @ (self.trend * self.basis.spread[:, None])
        angles = (z / self.basis.choice.widths) @ self.frequencies.T + self.phases
        return trend + np.cos(angles) @ self.waves


def polynomials(z: Float[Array, "n d"], order: int) -> Float[Array, "n p"]:
    """List the constant, the inputs and, for order 2, their products."""
    parts = [np.ones((len(z), 1)), z]
    if order == 2:
        i, j = np.triu_indices(z.shape[1])
        # Off the diagonal a product stands for two: (z'w)^2 counts it twice.
        parts.append(z[:, i] * z[:, j] * np.where(i == j, 1.0, np.sqrt(2.0)))
    return np.concatenate(parts, axis=1)


def _polynomial_gradient(
    z: Float[Array, "n d"], weights: Float[Array, " p"], order: int
) -> Float[Array, "n d"]:
    d = z.shape[1]
    out = np.tile(weights[1 : 1 + d], (len(z), 1))
    if order == 2:
        i, j = np.triu_indices(d)
        B = np.zeros((d, d))
        B[i, j] = weights[1 + d :] * np.where(i == j, 1.0, np.sqrt(2.0))
        out += z @ (B + B.T)
    return out
