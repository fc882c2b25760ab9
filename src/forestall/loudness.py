"""How loud the residuals of a variable are, as a function of its inputs."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int

from forestall.arrays import Array
from forestall.expansion import pivoted_cholesky
from forestall.hills import COARSE
from forestall.kernels import median_bandwidth, quick_gram
from forestall.mechanism import single
from forestall.posterior import Chain, Groups, Kind
from forestall.woodbury import Woodbury

CENTRES = 40
# Beyond what this share of the records has, the loudness stays as it is.
USUAL = 0.98
# A residual that happens to be tiny says little; the share of these.
TINY = 0.02
# Fewer records than this show slopes at most.
FEW = 100
# Log squares that vary by less do not vary.
TINY_VARIANCE = 1e-12
# Steps that are made before the first draw; draws whose mean the estimate is, at least.
BURN, DRAWS = 12, 32
# The variance of the noise with which draws set out, beside that of log squares.
START = 0.9


@dataclass(frozen=True, eq=False)
class Terms:
    """Slopes and hills along some inputs, and bumps on centres among all of them.

    Args:
        lower: Where each input is cut off.
        upper: Likewise.
        sloped: The inputs that have a slope.
        hilly: Those that have hills.
        bandwidth: The width of the bumps along each input.
        centres: Their centres, in units of the widths.
    """

    lower: Float[Array, " d"]
    upper: Float[Array, " d"]
    sloped: Int[Array, " s"]
    hilly: Int[Array, " h"]
    bandwidth: Float[Array, " d"]
    centres: Float[Array, "m d"]

    @classmethod
    def of(cls, z: Float[Array, "n d"]) -> Terms:
        """Give every input a slope; hills and bumps, too, where records are many."""
        lower, upper = np.quantile(z, [0.5 - USUAL / 2, 0.5 + USUAL / 2], axis=0)
        every, (bandwidth, centres) = np.arange(z.shape[1]), laid(z)
        if len(z) < FEW:
            return cls(lower, upper, every, every[:0], bandwidth, centres[:0])
        # Two values make a slope.
        steps = (np.diff(np.sort(z, axis=0), axis=0) > 0.0).sum(axis=0)
        return cls(lower, upper, every, np.flatnonzero(steps > 1), bandwidth, centres)

    @property
    def groups(self) -> Int[Array, " q"]:
        """Which functions stand and fall together: those along one input, the bumps."""
        s, h = len(self.sloped), len(self.hilly)
        each = np.arange(s + h + 1)
        return np.repeat(each, [*[1] * s, *[COARSE.tops] * h, len(self.centres)])

    def some(self, groups: Int[Array, " g"]) -> Terms:
        """Keep some groups."""
        s, h = len(self.sloped), len(self.hilly)
        of_hills = groups[(groups >= s) & (groups < s + h)] - s
        return Terms(
            self.lower,
            self.upper,
            self.sloped[groups[groups < s]],
            self.hilly[of_hills],
            self.bandwidth,
            self.centres if s + h in groups else self.centres[:0],
        )

    def __call__(self, z: Float[Array, "n d"]) -> Float[Array, "n q"]:
        """Evaluate them."""
        t = np.clip(z, self.lower, self.upper)
        parts = [t[:, self.sloped], COARSE(t[:, self.hilly])]
        if len(self.centres):
            parts.append(quick_gram(z / self.bandwidth, self.centres))
        return np.concatenate(parts, axis=1)

    def added_up(
        self, z: Float[Array, "n d"], weights: Float[Array, " q"]
    ) -> Float[Array, " n"]:
        """Add them up by their weights, to seven digits of hills and bumps."""
        t, n_slopes = np.clip(z, self.lower, self.upper), len(self.sloped)
        slopes, w = weights[:n_slopes], single(weights[n_slopes:])
        n_hills = COARSE.tops * len(self.hilly)
        out = t[:, self.sloped] @ slopes
        if n_hills:
            out += COARSE(single(t[:, self.hilly])) @ w[:n_hills]
        if len(self.centres):
            out += quick_gram(z / self.bandwidth, self.centres) @ w[n_hills:]
        return out


@dataclass(frozen=True, eq=False)
class Loudness:
    """The spread of the residuals at each input, in units of the common one.

    Args:
        terms: The functions that it follows from.
        mean: The mean of each over the records.
        weights: What each adds to the log variance: the estimate, then posterior draws.
        ends: The range of the fitted values, which is not left.
    """

    terms: Terms
    mean: Float[Array, " q"]
    weights: Float[Array, "s q"]
    ends: tuple[float, float]

    @classmethod
    def of(
        cls,
        z: Float[Array, "n d"],
        residuals: Float[Array, " n"],
        n_draws: int,
        rng: np.random.Generator,
    ) -> Loudness | None:
        """Learn it from some records; ``None`` where all are alike."""
        hearing = Hearing.of(z, residuals)
        return hearing.loudness(hearing.count(z, residuals), z, n_draws, rng)

    @classmethod
    def estimated(
        cls, z: Float[Array, "n d"], residuals: Float[Array, " n"]
    ) -> Loudness | None:
        """Learn it without draws."""
        return cls.of(z, residuals, 0, np.random.default_rng(0))

    def __call__(self, z: Float[Array, "n d"], draw: int) -> Float[Array, " n"]:
        """Give the spread at each input to all digits, which sums over records need."""
        terms, there = self._there(draw)
        if not len(there):
            return np.ones(len(z))
        return self._spread((terms(z) - self.mean[there]) @ self.weights[draw, there])

    def roughly(self, z: Float[Array, "n d"], draw: int) -> Float[Array, " n"]:
        """Give the same to seven digits, which drawn worlds need."""
        terms, there = self._there(draw)
        if not len(there):
            return np.ones(len(z))
        weights = self.weights[draw, there]
        return self._spread(terms.added_up(z, weights) - self.mean[there] @ weights)

    def _there(self, draw: int) -> tuple[Terms, Int[Array, " k"]]:
        """Leave out what has no weight: a draw has few of all functions."""
        (there,) = np.nonzero(self.weights[draw])
        return self.terms.some(np.unique(self.terms.groups[there])), there

    def _spread(self, fitted: Float[Array, " n"]) -> Float[Array, " n"]:
        return np.exp(0.5 * np.clip(fitted, *self.ends))


@dataclass(frozen=True, eq=False)
class Din:
    r"""Sums over records by which loudness is learned: they add up.

    Args:
        n: The number of records.
        rows: :math:`\Psi^\top 1`, of the functions.
        gram: :math:`\Psi^\top \Psi`.
        cross: :math:`\Psi^\top l`, with the log squared residuals.
        level: :math:`1^\top l`.
        square: :math:`l^\top l`.
    """

    n: int
    rows: Float[Array, " q"]
    gram: Float[Array, "q q"]
    cross: Float[Array, " q"]
    level: float
    square: float

    def __add__(self, other: Din) -> Din:
        """Add the sums of two batches."""
        return Din(
            self.n + other.n,
            self.rows + other.rows,
            self.gram + other.gram,
            self.cross + other.cross,
            self.level + other.level,
            self.square + other.square,
        )

    @property
    def variance(self) -> float:
        """The variance of the log squares."""
        return max(self.square / self.n - (self.level / self.n) ** 2, 0.0)

    def chain(self, groups: Int[Array, " q"], rng: np.random.Generator) -> Chain:
        """Set out to draw which functions it follows from; all are one of many."""
        mean, unit, n = self.level / self.n, np.sqrt(self.variance), self.n
        gram = np.block(
            [[np.array([[float(n)]]), self.rows], [self.rows[:, None], self.gram]]
        )
        target = np.r_[0.0, self.cross - mean * self.rows] / unit
        kinds = np.full(groups.max() + 1, int(Kind.ONE_OF_MANY))
        owned = Groups.owned(groups, kinds)
        sums = Woodbury(n, gram, target, float(n))
        return Chain(sums, owned, np.zeros(len(kinds)), START, rng)


@dataclass(frozen=True, eq=False)
class Hearing:
    """What has to be known before the loudness of residuals is counted.

    Args:
        terms: The functions that it may follow from.
        mean: The mean of each over a sample.
        scale: How much those that stand and fall together move.
        least: What is added to squares, so that all have a logarithm.
        lowest: The log square below which a residual just happens to be tiny.
        level: The mean of the log squares.
    """

    terms: Terms
    mean: Float[Array, " q"]
    scale: Float[Array, " q"]
    least: float
    lowest: float
    level: float

    @classmethod
    def of(cls, z: Float[Array, "n d"], residuals: Float[Array, " n"]) -> Hearing:
        """Lay the functions over a sample."""
        least = 1e-6 * float(residuals.var()) + 1e-300
        loud = np.log(residuals**2 + least)
        lowest = float(np.quantile(loud, TINY))
        terms = Terms.of(z)
        groups, rows = terms.groups, terms(z)
        mean = rows.mean(axis=0)
        rows -= mean
        # Groups differ in size and in how much their functions move.
        scale = np.sqrt(np.bincount(groups, rows.var(axis=0)))[groups]
        scale = np.where(scale > 0.0, scale, 1.0)
        level = float(np.maximum(loud, lowest).mean())
        return cls(terms, mean, scale, least, lowest, level)

    def count(self, z: Float[Array, "n d"], residuals: Float[Array, " n"]) -> Din:
        """Sum up some records."""
        loud = np.maximum(np.log(residuals**2 + self.least), self.lowest) - self.level
        rows = (self.terms(z) - self.mean) / self.scale
        square = float(loud @ loud)
        level = float(loud.sum())
        return Din(
            len(z), rows.sum(axis=0), rows.T @ rows, rows.T @ loud, level, square
        )

    def loudness(
        self,
        din: Din,
        z: Float[Array, "n d"],
        n_draws: int,
        rng: np.random.Generator,
    ) -> Loudness | None:
        """Regress log squares; ``None`` where there is nothing to follow from.

        Args:
            din: The sums over the records.
            z: The inputs of these, or of a sample: what is told of them is not left.
            n_draws: How many are drawn.
            rng: What they are drawn with.
        """
        groups = self.terms.groups
        if not len(groups) or din.variance <= TINY_VARIANCE:
            return None
        chain = din.chain(groups, rng)
        for _ in range(BURN):
            chain.step()
        told = []
        for _ in range(max(n_draws, DRAWS)):
            chain.step()
            told.append(chain.weights())
        means, draws = np.array(told).transpose(1, 0, 2)
        weights = np.concatenate([means.mean(axis=0)[None], draws[:n_draws]])[:, 1:]
        kept = np.asarray(weights.any(axis=0))
        if not kept.any():
            return None
        weights = weights[:, kept] * np.sqrt(din.variance) / self.scale[kept]
        terms = self.terms.some(np.unique(groups[kept]))
        mean = (self.mean + self.scale * din.rows / din.n)[kept]
        fitted = (terms(z) - mean) @ weights.T
        ends = float(fitted.min()), float(fitted.max())
        return Loudness(terms, mean, weights, ends)


def laid(z: Float[Array, "n d"]) -> tuple[Float[Array, " d"], Float[Array, "m d"]]:
    """Choose widths for bumps, and centres among the records, in units of these."""
    bandwidth = median_bandwidth(z, 1.0)
    points = z / bandwidth
    pivots, _ = pivoted_cholesky(points, min(CENTRES, len(z)), 1e-3)
    return bandwidth, points[pivots]
