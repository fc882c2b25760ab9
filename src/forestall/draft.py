r"""A mechanism before and while the records are counted.

Draws of the mean are conditioned along the path: a draw from the prior plus what the
records correct in it. Of the records only sums of products are needed, which add up
over batches, and from which hyperparameters are drawn, too.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import Bool, Float, Int
from scipy.linalg import cho_factor, cho_solve, eigh
from scipy.linalg.lapack import dpotri

from forestall.arrays import Array
from forestall.lowrank import Approximation
from forestall.mechanism import Mechanism
from forestall.posterior import Chain, Drawn, Groups, Kind
from forestall.select import Choice
from forestall.spanning import Spanning
from forestall.threads import threads_for
from forestall.woodbury import Woodbury

# Random waves of the prior's Gaussian part.
WAVES = 96
# How much quieter or louder than usual a record may count as, in variance.
LOUD = (0.1, 10.0)
# No bend is as smooth as its kernel: draws have rough ones besides, of this variance
# beside that of the noise, which matters only where many records leave less open.
ROUGH = 0.001
# More products than this do not stand together: it would take long, and bends do.
TOGETHER = 200
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
class Conditioned:
    """Weights of some functions, given the records.

    Args:
        mean: Their posterior mean.
        draws: Draws of them.
        unsettled: Their posterior covariance, for unit noise.
    """

    mean: Float[Array, " k"]
    draws: Float[Array, "k s"]
    unsettled: Float[Array, "k k"]


@dataclass(frozen=True, eq=False)
class Draft:
    """A mechanism before the records are counted: functions, and draws of the prior.

    Args:
        choice: The hyperparameters by which functions were laid out.
        mean: The mean of the output.
        scale: The standard deviation of the output.
        span: The spanning functions.
        ratios: How far each of their weights may stray, to how far it was laid out: for
            each draw, or for all of them.
        noises: Likewise, the variance of the noise.
        own: Prior draws of their weights; zero on the centres, whose part the waves
            of the prior have.
        rough: Standard normal draws on the centres, for bends that are not smooth.
        frequencies: Frequencies of these waves.
        phases: Their phases.
        waves: Prior draws of their weights.
        strays: Standard normal draws, for the noise that was not seen.
        loud: How much quieter or louder than usual a record may count as, in variance.
        heard: How much of the variance of residuals moves the mean.
    """

    choice: Choice
    mean: float
    scale: float
    span: Spanning
    ratios: Float[Array, "c q"]
    noises: Float[Array, " c"]
    own: Float[Array, "q s"]
    rough: Float[Array, "m s"]
    frequencies: Float[Array, "f d"]
    phases: Float[Array, " f"]
    waves: Float[Array, "f s"]
    strays: Float[Array, "q s"]
    loud: tuple[float, float] = LOUD
    heard: float = 1.0

    @classmethod
    def of(
        cls,
        z: Float[Array, "n d"],
        v: Float[Array, " n"],
        choice: Choice,
        n_draws: int,
        rng: np.random.Generator,
        approximation: Approximation | None = None,
        n: int | None = None,
    ) -> Draft:
        """Lay the functions over the records, or a sample, and draw from the prior.

        Args:
            z: The inputs.
            v: The output.
            choice: The hyperparameters.
            n_draws: How many functions are drawn.
            rng: What they are drawn with.
            approximation: How the Gaussian part is spanned.
            n: The number of records that will be counted, if these are a sample.
        """
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
            np.ones((1, p + m + f)),
            np.array([choice.noise]),
            own,
            rough,
            rng.normal(size=(n_waves, z.shape[1])),
            rng.uniform(0.0, 2.0 * np.pi, size=n_waves),
            amplitude * rng.normal(size=(n_waves, n_draws)),
            rng.normal(size=(p + m + f, n_draws)),
        )

    def chain(
        self,
        moments: Moments,
        variables: Int[Array, " d"],
        start: Choice,
        rng: np.random.Generator,
        *,
        known: bool = False,
    ) -> Chain:
        """Set out to draw hyperparameters, given sums over the records.

        Args:
            moments: The sums.
            variables: The variable behind each input column.
            start: Where to set out.
            rng: What draws are made with.
            known: Whether the noise is known.
        """
        groups, laid = self._groups(variables), self._laid
        scales = np.outer(laid, laid)
        sums = Woodbury(
            moments.n, moments.squares / scales, moments.target / laid, moments.output
        )
        _, m, f = self.span.sizes
        each = [
            np.zeros(1),
            start.linear,
            np.full(self._n_products, start.quadratic),
            np.repeat(start.heights[self.choice.hilly], self.choice.shape.tops),
            np.full(m + f, start.smooth),
        ]
        laid_out = np.concatenate(each)
        variances = np.array([laid_out[rows].max() for rows in groups.members])
        if Kind.ALL_OF_MANY in groups.kinds:
            variances[groups.kinds == Kind.ONE_OF_MANY] = 0.0
        return Chain(sums, groups, variances, start.noise, rng, known=known)

    @property
    def _n_products(self) -> int:
        """How many products of inputs there are."""
        return len(self.span.spread) - 1 - len(self.choice.linear) - self.choice.n_hills

    @property
    def _laid(self) -> Float[Array, " q"]:
        """The deviation of each weight as it was laid out."""
        _, m, f = self.span.sizes
        bends = np.full(m + f, np.sqrt(self.choice.smooth))
        return np.concatenate([self.span.spread, bends])

    def _groups(self, variables: Int[Array, " d"]) -> Groups:
        """Let what a variable does alone stand together, and so all bends.

        Products stand alone and all together: a few may be large, but where they bend a
        mean at all, so does what goes along with them, as far as nobody can tell.
        """
        _, m, f = self.span.sizes
        of_hills = np.repeat(variables[self.choice.hilly], self.choice.shape.tops)
        n_products = self._n_products
        parts = {
            Kind.SLOPE: variables,
            Kind.ONE_OF_MANY: np.arange(n_products),
            Kind.HILLS: of_hills,
            Kind.BENDS: np.zeros(m + f, dtype=int),
        }
        kinds = np.repeat(list(parts), [len(part) for part in parts.values()])
        named = np.stack([kinds, np.concatenate(list(parts.values()))])
        groups, owner = np.unique(named, axis=1, return_inverse=True)
        alone = Groups.owned(owner.ravel(), groups[0])
        if not 1 < n_products <= TOGETHER:
            return alone
        products = 1 + np.flatnonzero(kinds == Kind.ONE_OF_MANY)
        return Groups(
            (*alone.members, products),
            np.r_[alone.kinds, int(Kind.ALL_OF_MANY)],
            alone.n,
        )

    def under(self, drawn: Drawn, moments: Moments) -> tuple[Draft, Moments]:
        """Give each draw its own hyperparameters; keep what any of them has.

        Args:
            drawn: A draw of hyperparameters for each.
            moments: Sums over records, of which those that are needed are kept.
        """
        ratios = np.sqrt(drawn.variances) / self._laid
        kept = np.asarray(ratios.any(axis=0))
        # A polynomial has all its slopes, and all products or none.
        d = len(self.choice.linear)
        products = slice(1 + d, 1 + d + self._n_products)
        kept[: 1 + d], kept[products] = True, kept[products].any()
        span = self.span.some(kept)
        waves = slice(None) if len(span.centres) else slice(0)
        draft = replace(
            self,
            choice=span.choice,
            span=span,
            ratios=ratios[:, kept],
            noises=drawn.noises,
            own=self.own[kept],
            rough=self.rough[waves],
            frequencies=self.frequencies[waves],
            phases=self.phases[waves],
            waves=self.waves[waves],
            strays=self.strays[kept],
        )
        return draft, moments.some(kept, waves)

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
        """Leave the draws out: sums do not depend on them."""
        nothing = {
            name: getattr(self, name)[:, :0]
            for name in ("own", "rough", "waves", "strays")
        }
        return replace(self, **nothing)

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
            with threads_for(len(z[part])):
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
        q, n_draws = self.own.shape
        weights, waves = (
            np.zeros((q, 1 + n_draws)),
            np.zeros((len(self.waves), n_draws)),
        )
        unsettled = np.zeros((q, q))
        root = _root(moments.squares) if n_draws else np.zeros((q, q))
        share = 1.0 / len(self.ratios)
        for k, (ratio, noise) in enumerate(zip(self.ratios, self.noises, strict=True)):
            own = slice(None) if share == 1.0 else slice(k, k + 1)
            (there,) = np.nonzero(ratio)
            waves[:, own] = self._bends(ratio) * self.waves[:, own]
            told = self._conditioned(
                moments, there, ratio[there], noise, own, root, waves[:, own]
            )
            weights[there, 0] += share * told.mean
            weights[np.ix_(there, 1 + np.arange(n_draws)[own])] = told.draws
            unsettled[np.ix_(there, there)] += share * told.unsettled
        p, m, _ = self.span.sizes
        if m:
            bent = np.array([self._bends(ratio) > 0.0 for ratio in self.ratios])
            deviation = np.sqrt(ROUGH * self.choice.noise / self.choice.smooth)
            weights[p : p + m, 1:] += deviation * bent * self.rough
        residuals = self._residuals(unsettled, weights[:, 0], z, v, loudness)
        return self._mechanism(weights, waves, *residuals)

    def _conditioned(
        self,
        moments: Moments,
        there: Int[Array, " k"],
        ratio: Float[Array, " k"],
        noise: float,
        own: slice,
        root: Float[Array, "q q"],
        waves: Float[Array, "f s"],
    ) -> Conditioned:
        """Condition some of the draws on the records, under their hyperparameters."""
        squares = ratio[:, None] * moments.squares[np.ix_(there, there)] * ratio
        A = squares.copy()
        A[np.diag_indices(len(A))] += noise
        factor = cho_factor(A, lower=True, overwrite_a=True, check_finite=False)
        target = ratio * moments.target[there]
        prior = self.own[there, own]
        # What the prior's draws, and noise drawn along, would have shown.
        cross = ratio[:, None] * moments.waves[there]
        shown = squares @ prior + cross @ waves
        shown += np.sqrt(noise) * ratio[:, None] * (root[there] @ self.strays[:, own])
        draws = prior + cho_solve(factor, target[:, None] - shown)
        inverse, _ = dpotri(factor[0], lower=1)
        inverse = np.tril(inverse) + np.tril(inverse, -1).T
        return Conditioned(
            ratio * cho_solve(factor, target),
            ratio[:, None] * draws,
            ratio[:, None] * inverse * ratio,
        )

    def _bends(self, ratio: Float[Array, " q"]) -> float:
        """How far bends may stray, to how far they were laid out."""
        return float(ratio[-1]) if len(self.phases) else 0.0

    def _residuals(
        self,
        unsettled: Float[Array, "q q"],
        theta: Float[Array, " q"],
        z: Float[Array, "n d"],
        v: Float[Array, " n"],
        loudness: Float[Array, " n"] | None,
    ) -> tuple[Float[Array, " n"], Float[Array, " n"]]:
        Phi = self.span(z)
        weights = self.choice.noise / self._noise(len(v), loudness)
        moved = np.einsum("np,np->n", Phi @ unsettled, Phi)
        leverage = np.minimum(moved * weights, 0.99)
        # In-sample residuals shrink and left-out ones carry the mean's own error, which
        # the draws carry already; these have the variance of the noise.
        strayed = v - self.mean - self.scale * (Phi @ theta)
        leverage = self.heard * leverage
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
        prior: Float[Array, "w n_draws"],
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
            waves = np.concatenate([np.zeros((len(prior), 1)), prior], axis=1)
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
