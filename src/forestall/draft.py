r"""A mechanism before and while the records are counted.

Draws of the mean are conditioned along the path: a draw from the prior plus what the
records correct in it. Of the records only sums of products are needed, which add up
over batches, and by which hyperparameters can be chosen anew.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import Bool, Float, Int
from scipy.linalg import cho_factor, cho_solve, eigh
from scipy.linalg.lapack import dpotri

from forestall.arrays import Array
from forestall.likelihood import Counted, owners
from forestall.lowrank import Approximation
from forestall.mechanism import Mechanism
from forestall.posterior import Chain, Groups
from forestall.select import Alternatives, Choice
from forestall.spanning import Spanning
from forestall.woodbury import Woodbury

# Random waves of the prior's Gaussian part.
WAVES = 96
# How much quieter or louder than usual a record may count as, in variance.
LOUD = (0.1, 10.0)
# The draws know nothing of the doubt about hyperparameters, so they are spread by this
# much more: what it takes on random structural models 20 to 81, which no reported
# figure uses, for nine intervals of ten to hold.
DOUBT = 1.0
# No bend is as smooth as its kernel: draws have rough ones besides, of this variance
# beside that of the noise, which matters only where many records leave less open.
ROUGH = 0.001
CHANCES = (0.5, 1.0, 0.25, 0.5)
# Records handled at a time.
BLOCK = 1 << 14


@dataclass(frozen=True, eq=False)
class Moments:
    r"""Sums over records that suffice for a mechanism: they add up.

    Args:
        n: The number of records.
        squares: :math:`\Phi^\top W \Phi`, of the spanning functions.
        target: :math:`\Phi^\top W y`.
        output: :math:`y^\top W y`.
        waves: :math:`\Phi^\top W C`, with the waves of the prior.
    """

    n: int
    squares: Float[Array, "q q"]
    target: Float[Array, " q"]
    output: float
    waves: Float[Array, "q f"]

    def __add__(self, other: Moments) -> Moments:
        """Add the sums of two batches."""
        return Moments(
            self.n + other.n,
            self.squares + other.squares,
            self.target + other.target,
            self.output + other.output,
            self.waves + other.waves,
        )

    def some(self, kept: Bool[Array, " q"], waves: slice) -> Moments:
        """Keep the sums of some functions, with some of the waves."""
        return Moments(
            self.n,
            self.squares[np.ix_(kept, kept)],
            self.target[kept],
            self.output,
            self.waves[kept, waves],
        )


@dataclass(frozen=True, eq=False)
class Draft:
    """A mechanism before the records are counted: functions, and draws of the prior.

    Args:
        choice: The hyperparameters by which functions were laid out.
        mean: The mean of the output.
        scale: The standard deviation of the output.
        span: The spanning functions.
        ratios: How far each of their weights may stray under each structure that is
            left open, the likeliest first, to how far it was laid out.
        noises: The variance of the noise that each structure leaves.
        members: The structure of each draw.
        own: Prior draws of their weights; zero on the centres, whose part the waves
            of the prior have.
        rough: Standard normal draws on the centres, for bends that are not smooth.
        frequencies: Frequencies of these waves.
        phases: Their phases.
        waves: Prior draws of their weights.
        strays: Standard normal draws, for the noise that was not seen.
        loud: How much quieter or louder than usual a record may count as, in variance.
    """

    choice: Choice
    mean: float
    scale: float
    span: Spanning
    ratios: Float[Array, "c q"]
    noises: Float[Array, " c"]
    members: Int[Array, " s"]
    own: Float[Array, "q s"]
    rough: Float[Array, "m s"]
    frequencies: Float[Array, "f d"]
    phases: Float[Array, " f"]
    waves: Float[Array, "f s"]
    strays: Float[Array, "q s"]
    loud: tuple[float, float] = LOUD

    @classmethod
    def of(
        cls,
        z: Float[Array, "n d"],
        v: Float[Array, " n"],
        open_to: Alternatives,
        n_draws: int,
        rng: np.random.Generator,
        approximation: Approximation | None = None,
        n: int | None = None,
    ) -> Draft:
        """Lay the functions over the records, or a sample, and draw from the prior.

        Args:
            z: The inputs.
            v: The output.
            open_to: The hyperparameters.
            n_draws: How many functions are drawn.
            rng: What they are drawn with.
            approximation: How the Gaussian part is spanned.
            n: The number of records that will be counted, if these are a sample.
        """
        choice = open_to.whole
        span = Spanning.of(z, choice, approximation, n)
        p, m, f = span.sizes
        n_waves = WAVES if m else 0
        amplitude = np.sqrt(2.0 * choice.smooth / max(n_waves, 1))
        own = rng.normal(size=(p + m + f, n_draws))
        rough = own[p : p + m].copy()
        own[p : p + m] = 0.0
        return cls(
            choice,
            float(v.mean()),
            float(v.std()) or 1.0,
            span,
            open_to.ratios(choice, span.sizes),
            open_to.noises,
            open_to.members(n_draws, rng),
            own,
            rough,
            rng.normal(size=(n_waves, z.shape[1])),
            rng.uniform(0.0, 2.0 * np.pi, size=n_waves),
            amplitude * rng.normal(size=(n_waves, n_draws)),
            rng.normal(size=(p + m + f, n_draws)),
        )

    def likelihood(
        self, moments: Moments, groups: Int[Array, " d"], *, known: bool = False
    ) -> Counted:
        """Tell how likely the counted records are under other hyperparameters.

        Args:
            moments: Their sums.
            groups: The variable behind each input column.
            known: Whether their noise is known.
        """
        p, m, f = self.span.sizes
        hilly = self.choice.hilly
        n_products = p - 1 - len(groups) - self.choice.n_hills
        sums = Woodbury(moments.n, moments.squares, moments.target, moments.output, 0.0)
        owned = owners(groups, n_products, hilly, self.choice.shape.tops, m + f)
        bends = np.full(m + f, self.choice.smooth)
        laid = np.concatenate([self.span.spread**2, bends])
        return Counted(groups, hilly, sums, owned, laid, known)

    def under(
        self, open_to: Alternatives, moments: Moments, rng: np.random.Generator
    ) -> tuple[Draft, Moments]:
        """Keep what these structures have, of functions and of their sums."""
        ratios = open_to.ratios(self.choice, self.span.sizes)
        kept = np.asarray(ratios.any(axis=0))
        span = self.span.some(kept)
        waves = slice(None) if len(span.centres) else slice(0)
        draft = replace(
            self,
            choice=span.choice,
            span=span,
            ratios=ratios[:, kept],
            noises=open_to.noises,
            members=open_to.members(self.own.shape[1], rng),
            own=self.own[kept],
            rough=self.rough[waves],
            frequencies=self.frequencies[waves],
            phases=self.phases[waves],
            waves=self.waves[waves],
            strays=self.strays[kept],
        )
        return draft, moments.some(kept, waves)

    def _owner(self, groups):
        p, m, f = self.span.sizes
        d, g = len(groups), int(groups.max()) + 1
        hilly, tops = self.choice.hilly, self.choice.shape.tops
        n_products = p - 1 - d - self.choice.n_hills
        owner = np.concatenate(
            [
                [-1],
                groups,
                g + np.arange(n_products),
                g + n_products + np.repeat(groups[hilly], tops),
                np.full(m + f, 2 * g + n_products),
            ]
        ).astype(int)
        laid = np.concatenate(
            [self.span.spread, np.full(m + f, np.sqrt(self.choice.smooth))]
        )
        return owner, laid, g, n_products

    def chain(self, moments, groups, start, rng, *, known=False):
        owner, laid, g, n_products = self._owner(groups)
        kinds = np.repeat([0, 1, 2, 3], [g, n_products, g, 1])
        sums = Woodbury(
            moments.n,
            moments.squares / np.outer(laid, laid),
            moments.target / laid,
            moments.output,
            0.0,
        )
        v = np.zeros(len(kinds))
        v[groups] = start.linear
        np.maximum.at(v, g + n_products + groups, start.heights)
        v[g : g + n_products] = start.quadratic
        v[-1] = start.smooth
        v[~np.isin(np.arange(len(v)), owner)] = 0.0
        noise = self.choice.noise if known else start.noise
        return Chain(sums, Groups(owner, kinds), v, noise, rng, known=known)

    def chained(self, moments, groups, told):
        """Take the structure of each draw as drawn."""
        owner, laid, g, n_products = self._owner(groups)
        d, n_draws = len(groups), self.own.shape[1]
        ratios = np.sqrt(np.where(owner < 0, 1.0, told.variances[:, owner]))
        ratios /= np.where(owner < 0, 1.0, laid)
        kept = np.asarray(ratios.any(axis=0))
        kept[: 1 + d] = True
        products = slice(1 + d, 1 + d + n_products)
        kept[products] = kept[products].any()
        span = self.span.some(kept)
        waves = slice(None) if len(span.centres) else slice(0)
        draft = replace(
            self,
            choice=span.choice,
            span=span,
            ratios=ratios[:, kept],
            noises=told.noises,
            members=np.arange(n_draws),
            own=self.own[kept],
            rough=self.rough[waves],
            frequencies=self.frequencies[waves],
            phases=self.phases[waves],
            waves=self.waves[waves],
            strays=self.strays[kept],
        )
        return draft, moments.some(kept, waves)

    def of_one_noise(self) -> Draft:
        """Let structures share the noise, where each record has one of its own."""
        return replace(self, noises=np.full_like(self.noises, self.choice.noise))

    def of_known_noise(self, mean: float, scale: float) -> Draft:
        """Take the noise of each record as it is told, and the unit of the output."""
        return replace(self, mean=mean, scale=scale, loud=(0.0, np.inf))

    def certain(self) -> Draft:
        """Let every draw be the mean: what never varied leaves nothing to be drawn."""
        nothing = {
            name: np.zeros_like(getattr(self, name))
            for name in ("own", "rough", "waves", "strays")
        }
        return replace(self, **nothing)

    def still(self) -> Draft:
        """Leave the draws out: what strays from the mean does not depend on them."""
        return replace(
            self,
            ratios=self.ratios[:1],
            noises=self.noises[:1],
            members=self.members[:0],
            own=self.own[:, :0],
            rough=self.rough[:, :0],
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
        total = Moments(0, np.zeros((q, q)), np.zeros(q), 0.0, np.zeros((q, f)))
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
        output = float(y @ y)
        return Moments(len(v), Phi.T @ Phi, Phi.T @ y, output, Phi.T @ waves)

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
        weights = np.zeros((len(self.own), 1 + self.own.shape[1]))
        waves = np.zeros((len(self.waves), weights.shape[1]))
        root = _root(moments.squares) if self.own.shape[1] else None
        spread = np.zeros((len(self.own), len(self.own)))
        for k, ratio in enumerate(self.ratios):
            (own,) = np.nonzero(self.members == k)
            factor, theta, draws = self._conditioned(
                moments, ratio, self.noises[k], own, root
            )
            weights[:, 1 + own] = ratio[:, None] * draws
            waves[:, 1 + own] = self._bends(ratio) * DOUBT * self.waves[:, own]
            share = max(len(own), 1) / max(len(self.members), 1)
            weights[:, 0] += share * ratio * theta
            inverse, _ = dpotri(factor[0], lower=1)
            inverse = np.tril(inverse) + np.tril(inverse, -1).T
            spread += share * ratio[:, None] * inverse * ratio
        likeliest = spread, weights[:, 0]
        p, m, _ = self.span.sizes
        if m:
            bent = np.array([self._bends(ratio) > 0.0 for ratio in self.ratios])
            deviation = np.sqrt(ROUGH * self.choice.noise / self.choice.smooth)
            weights[p : p + m, 1:] += deviation * bent[self.members] * self.rough
        told = self._residuals(*likeliest, z, v, loudness)
        return self._mechanism(weights, waves, *told)

    def _conditioned(
        self,
        moments: Moments,
        ratio: Float[Array, " q"],
        noise: float,
        own: Int[Array, " s"],
        root: Float[Array, "q q"] | None,
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
            shown += np.sqrt(noise) * ratio[:, None] * (root @ self.strays[:, own])
        draws = prior + cho_solve(factor, target[:, None] - shown)
        return factor, theta, theta[:, None] + DOUBT * (draws - theta[:, None])

    def _bends(self, ratio: Float[Array, " q"]) -> float:
        """How far bends may stray under a structure, to how far they may at most."""
        return float(ratio[-1]) if len(self.phases) else 0.0

    def _residuals(
        self,
        factor: Float[Array, "q q"],
        theta: Float[Array, " q"],
        z: Float[Array, "n d"],
        v: Float[Array, " n"],
        loudness: Float[Array, " n"] | None,
    ) -> tuple[Float[Array, " n"], Float[Array, " n"]]:
        Phi = self.span(z)
        weights = self.choice.noise / self._noise(len(v), loudness)
        told = np.einsum("np,np->n", Phi @ factor, Phi)
        leverage = np.clip(told * weights, 0.0, 0.99)
        # In-sample residuals shrink and left-out ones carry the mean's own error, which
        # the draws carry already; these have the variance of the noise.
        strayed = v - self.mean - self.scale * (Phi @ theta)
        return strayed / np.sqrt(1.0 - leverage), leverage

    def _noise(self, n: int, loudness: Float[Array, " n"] | None) -> Float[Array, " n"]:
        noise = self.choice.noise
        if loudness is None:
            return np.full(n, noise)
        low, high = (noise * end for end in self.loud)
        return np.clip(loudness / self.scale**2, low, high)

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


def _root(A: Float[Array, "q q"]) -> Float[Array, "q q"]:
    """The symmetric square root of ``A``, which may be singular.

    Another root would serve as well, but rounding would decide which one it is.
    """
    values, axes = eigh(A)
    return (axes * np.sqrt(np.maximum(values, 0.0))) @ axes.T
