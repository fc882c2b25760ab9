r"""One mechanism: how a variable follows from what precedes it, and how it strays.

The mean is a Gaussian process in finitely many functions. Draws of the whole mean are
coherent across inputs and return to the prior away from the records (pathwise
conditioning): a draw from the prior plus what the records correct in it. Of the records
only sums of products are needed, which add up over batches.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import Float, Float32, Int
from scipy.linalg import cho_factor, cho_solve, eigh, solve_triangular

from forestall.arrays import Array
from forestall.kernels import FARTHEST, quick_gram
from forestall.lowrank import Approximation
from forestall.select import Alternatives, Choice
from forestall.spanning import Spanning, trends, trends_gradient

# Random waves of the prior's Gaussian part.
WAVES = 96
# How much quieter or louder than usual a record may count as, in variance.
LOUD = np.array([0.1, 10.0])
# The draws know nothing of the doubt about hyperparameters, so they are spread by this
# much more: what it takes on random structural models 20 to 81, which no reported
# figure uses, for nine intervals of ten to hold.
DOUBT = 1.1
# The variance of bends that a sample does not show, beside that of the noise.
UNSHOWN = 0.001
# Records handled at a time.
BLOCK = 1 << 14


@dataclass(frozen=True, eq=False)
class Mechanism:
    r"""The fitted mean of one variable, draws of it, and its residuals.

    Column 0 of every array of weights is the posterior mean under the likeliest
    structure, the others are draws, under it or another.

    Args:
        choice: The hyperparameters.
        mean: The mean of the output.
        scale: The standard deviation of the output.
        trend: Weights of the polynomial and the hills.
        centres: Centres of the Gaussian part, in units of the widths.
        bumps: Their weights.
        frequencies: Frequencies of random waves: those of the prior, or of the
            Gaussian part itself.
        phases: Their phases.
        waves: Their weights.
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
        loudness: Float[Array, " n"] | None = None,
    ) -> Mechanism:
        """Learn the mean of ``v`` given ``z`` and draw functions from its posterior.

        Args:
            z: The inputs.
            v: The output.
            choice: The hyperparameters.
            n_draws: How many functions are drawn.
            rng: What they are drawn with.
            loudness: The variance of each record's noise, in the unit of the output;
                ``None`` where all are alike. A loud record says less.
        """
        draft = Draft.of(z, v, Alternatives((choice,)), n_draws, rng)
        return draft.settled(draft.count(z, v, loudness), z, v, loudness)

    def __call__(
        self, z: Float[Array, "n d"], draws: Int[Array, " s"]
    ) -> Float[Array, "n s"]:
        """Evaluate the mean (draw 0) or draws of it."""
        rows = trends(z, self.choice, len(self.trend), quick=True)
        out = rows @ self.trend[:, draws]
        t = z / self.choice.widths
        # The mean has no waves of the prior, and some draws have no bends.
        bumps, waves = self.bumps[:, draws], self.waves[:, draws]
        if bumps.any():
            out += quick_gram(t, self.centres) @ single(bumps)
        if waves.any():
            angles = self._angles(t)
            out += np.cos(angles, out=angles) @ single(waves)
        out *= self.scale
        out += self.mean
        return out

    def gradient(self, z: Float[Array, "n d"], draw: int) -> Float[Array, "n d"]:
        """Differentiate one draw by its inputs."""
        out = trends_gradient(z, self.choice, self.trend[:, draw])
        t, widths = z / self.choice.widths, self.choice.widths
        bumps, waves = self.bumps[:, draw], self.waves[:, draw]
        if bumps.any():
            rows = quick_gram(t, self.centres) * single(bumps)
            out += (rows @ self.centres - rows.sum(axis=1)[:, None] * t) / widths
        if waves.any():
            slopes = np.sin(self._angles(t)) * single(waves)
            out -= slopes @ self.frequencies / widths
        return out * self.scale

    def _angles(self, t: Float[Array, "n d"]) -> Float[Array, "n f"]:
        angles = t @ self.frequencies.T + self.phases
        # An absurd input must not overflow; where it is on a wave means nothing.
        return single(np.clip(angles, -FARTHEST, FARTHEST, out=angles))


@dataclass(frozen=True, eq=False)
class Moments:
    r"""Sums over records that suffice for a mechanism: they add up.

    Args:
        n: The number of records.
        squares: :math:`\Phi^\top W \Phi`, of the spanning functions.
        target: :math:`\Phi^\top W y`.
        waves: :math:`\Phi^\top W C`, with the waves of the prior.
    """

    n: int
    squares: Float[Array, "q q"]
    target: Float[Array, " q"]
    waves: Float[Array, "q f"]

    def __add__(self, other: Moments) -> Moments:
        """Add the sums of two batches."""
        return Moments(
            self.n + other.n,
            self.squares + other.squares,
            self.target + other.target,
            self.waves + other.waves,
        )


@dataclass(frozen=True, eq=False)
class Draft:
    """A mechanism before the records are counted: functions, and draws of the prior.

    Args:
        choice: The hyperparameters.
        mean: The mean of the output.
        scale: The standard deviation of the output.
        span: The spanning functions.
        ratios: How far each of their weights may stray under each structure that is
            left open, the likeliest first, to how far it may at most.
        noises: The variance of the noise that each structure leaves.
        members: The structure of each draw.
        n: The number of records that the functions were laid over.
        unseen: Standard normal draws, for bends that these could not show.
        own: Prior draws of their weights; zero on the centres, whose part the waves
            of the prior have.
        frequencies: Frequencies of these waves.
        phases: Their phases.
        waves: Prior draws of their weights.
        strays: Standard normal draws, for the noise that was not seen.
    """

    choice: Choice
    mean: float
    scale: float
    span: Spanning
    ratios: Float[Array, "c q"]
    noises: Float[Array, " c"]
    members: Int[Array, " s"]
    n: int
    unseen: Float[Array, "m s"]
    own: Float[Array, "q s"]
    frequencies: Float[Array, "f d"]
    phases: Float[Array, " f"]
    waves: Float[Array, "f s"]
    strays: Float[Array, "q s"]

    @classmethod
    def of(
        cls,
        z: Float[Array, "n d"],
        v: Float[Array, " n"],
        open_to: Alternatives,
        n_draws: int,
        rng: np.random.Generator,
        approximation: Approximation | None = None,
    ) -> Draft:
        """Lay the functions over the records, or a sample, and draw from the prior."""
        choice = open_to.whole
        span = Spanning.of(z, choice, approximation)
        p, m, f = span.sizes
        n_waves = WAVES if m else 0
        amplitude = np.sqrt(2.0 * choice.smooth / max(n_waves, 1))
        own = rng.normal(size=(p + m + f, n_draws))
        unseen = own[p : p + m].copy()
        own[p : p + m] = 0.0
        return cls(
            choice,
            float(v.mean()),
            float(v.std()) or 1.0,
            span,
            open_to.ratios(span.sizes),
            open_to.noises,
            open_to.members(n_draws, rng),
            len(z),
            unseen,
            own,
            rng.normal(size=(n_waves, z.shape[1])),
            rng.uniform(0.0, 2.0 * np.pi, size=n_waves),
            amplitude * rng.normal(size=(n_waves, n_draws)),
            rng.normal(size=(p + m + f, n_draws)),
        )

    def still(self) -> Draft:
        """Leave the draws out: what strays from the mean does not depend on them."""
        return replace(
            self,
            ratios=self.ratios[:1],
            noises=self.noises[:1],
            members=self.members[:0],
            unseen=self.unseen[:, :0],
            own=self.own[:, :0],
            waves=self.waves[:, :0],
            strays=self.strays[:, :0],
        )

    def count(
        self,
        z: Float[Array, "n d"],
        v: Float[Array, " n"],
        loudness: Float[Array, " n"] | None = None,
    ) -> Moments:
        """Sum up some records, block by block."""
        weights = self.choice.noise / self._noise(len(v), loudness)
        q, f = len(self.own), len(self.phases)
        total = Moments(0, np.zeros((q, q)), np.zeros(q), np.zeros((q, f)))
        for i in range(0, len(v), BLOCK):
            part = slice(i, i + BLOCK)
            total += self._block(z[part], v[part], weights[part])
        return total

    def _block(
        self, z: Float[Array, "n d"], v: Float[Array, " n"], weights: Float[Array, " n"]
    ) -> Moments:
        root = np.sqrt(weights)[:, None]
        Phi = self.span(z)
        Phi *= root
        angles = (z / self.choice.widths) @ self.frequencies.T + self.phases
        waves = np.cos(angles, out=angles)
        waves *= root
        y = (v - self.mean) / self.scale * root[:, 0]
        # Of a matrix with itself NumPy computes one triangle.
        return Moments(len(v), Phi.T @ Phi, Phi.T @ y, Phi.T @ waves)

    def settled(
        self,
        moments: Moments,
        z: Float[Array, "n d"],
        v: Float[Array, " n"],
        loudness: Float[Array, " n"] | None = None,
    ) -> Mechanism:
        """Condition on the records that were counted.

        Args:
            moments: Their sums.
            z: The inputs of those whose residuals are wanted: all, or a sample.
            v: Their output.
            loudness: The variance of their noise.
        """
        noise = self.choice.noise
        weights = np.zeros((len(self.own), 1 + self.own.shape[1]))
        waves = np.zeros((len(self.waves), weights.shape[1]))
        # Where each record has a noise of its own, structures share it.
        noises = self.noises if loudness is None else np.full_like(self.noises, noise)
        for k, ratio in enumerate(self.ratios):
            (own,) = np.nonzero(self.members == k)
            factor, theta, draws = self._conditioned(moments, ratio, noises[k], own)
            weights[:, 1 + own] = ratio[:, None] * draws
            waves[:, 1 + own] = self._bends(ratio) * DOUBT * self.waves[:, own]
            if k == 0:
                likeliest = factor, ratio * theta
        weights[:, 0] = likeliest[1]
        if moments.n > self.n:
            p, m, _ = self.span.sizes
            weights[p : p + m, 1:] += self._unshown()
        told = self._residuals(*likeliest, z, v, loudness)
        return self._mechanism(weights, waves, *told)

    def _conditioned(
        self,
        moments: Moments,
        ratio: Float[Array, " q"],
        noise: float,
        own: Int[Array, " s"],
    ) -> tuple[tuple[Array, bool], Float[Array, " q"], Float[Array, "q s"]]:
        """Condition some of the draws on the records, under one structure.

        Returns:
            The factor of the normal equations, their solution, and the draws.
        """
        squares = ratio[:, None] * moments.squares * ratio
        A = squares.copy()
        A[np.diag_indices(len(A))] += noise
        factor = cho_factor(A, lower=True, overwrite_a=True)
        target = ratio * moments.target
        theta = cho_solve(factor, target)
        prior = self.own[:, own]
        # What the prior's draws, and noise drawn along, would have shown.
        cross = self._bends(ratio) * ratio[:, None] * moments.waves
        shown = squares @ prior + cross @ self.waves[:, own]
        if len(own):
            shown += np.sqrt(noise) * _root(squares) @ self.strays[:, own]
        draws = prior + cho_solve(factor, target[:, None] - shown)
        return factor, theta, theta[:, None] + DOUBT * (draws - theta[:, None])

    def _unshown(self) -> Float[Array, "m s"]:
        """Draw bends so small that a sample of the records does not ask for them.

        By the sample the functions were chosen, so that all records cannot mend them.
        """
        bent = np.array([self._bends(ratio) > 0.0 for ratio in self.ratios])
        deviation = np.sqrt(UNSHOWN * self.choice.noise / self.choice.smooth)
        return deviation * bent[self.members] * self.unseen

    def _bends(self, ratio: Float[Array, " q"]) -> float:
        """How far bends may stray under a structure, to how far they may at most."""
        return float(ratio[-1]) if len(self.phases) else 0.0

    def _residuals(
        self,
        factor: tuple[Array, bool],
        theta: Float[Array, " q"],
        z: Float[Array, "n d"],
        v: Float[Array, " n"],
        loudness: Float[Array, " n"] | None,
    ) -> tuple[Float[Array, " n"], Float[Array, " n"]]:
        Phi = self.span(z)
        half = solve_triangular(factor[0], (Phi * self.ratios[0]).T, lower=True)
        weights = self.choice.noise / self._noise(len(v), loudness)
        leverage = np.minimum(np.einsum("pn,pn->n", half, half) * weights, 0.99)
        # In-sample residuals shrink and left-out ones carry the mean's own error, which
        # the draws carry already; these have the variance of the noise.
        strayed = v - self.mean - self.scale * (Phi @ theta)
        return strayed / np.sqrt(1.0 - leverage), leverage

    def _noise(self, n: int, loudness: Float[Array, " n"] | None) -> Float[Array, " n"]:
        noise = self.choice.noise
        if loudness is None:
            return np.full(n, noise)
        return np.clip(loudness / self.scale**2, *(noise * LOUD))

    def _mechanism(
        self,
        weights: Float[Array, "q s"],
        prior: Float[Array, "w s"],
        residuals: Float[Array, " n"],
        leverage: Float[Array, " n"],
    ) -> Mechanism:
        span = self.span
        p, m, f = span.sizes
        trend, bumps, waves = np.split(weights, [p, p + m])
        frequencies, phases = self.frequencies, self.phases
        if f:
            # A sine is a cosine a quarter later.
            frequencies = np.tile(span.frequencies, (2, 1))
            phases = np.repeat([0.0, -0.5 * np.pi], f // 2)
            waves = waves * np.sqrt(2.0 * self.choice.smooth / f)
        else:
            waves = prior
        return Mechanism(
            self.choice,
            self.mean,
            self.scale,
            trend * span.spread[:, None],
            span.centres,
            span.to_bumps(bumps),
            frequencies,
            phases,
            waves,
            residuals,
            leverage,
        )


def single(v: Float[Array, ...]) -> Float32[Array, ...]:
    """Round to seven digits: waves and bumps of a drawn world need no more."""
    return v.astype(np.float32)


def _root(A: Float[Array, "q q"]) -> Float[Array, "q q"]:
    """The symmetric square root of ``A``, which may be singular.

    Another root would serve as well, but rounding would decide which one it is.
    """
    values, axes = eigh(A)
    return (axes * np.sqrt(np.maximum(values, 0.0))) @ axes.T
