"""The law of a variable that goes one of two ways, which its inputs may settle.

A loan is paid back or written off, a patient stays at home or is taken in for days: the
values lie about two middles with nothing between them, and how often it is the upper
one changes with the inputs. The residuals of a common mean then have modes that wander
with this mean, which no smooth law of residuals can follow. So each way has a mean and
a law of its own, and which one it is, log odds. A cost that is often none, or a score
that is capped, goes two ways likewise: the end that many share, and the rest, of which
nothing lies beyond that end. A value between others that many share (no change) is the
end of those below it. And what has a few values only (how often somebody came back) is
cut in two until each is told by itself.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float, Int
from scipy.special import expit

from forestall.arrays import Array
from forestall.coin import Coin, CoinAt
from forestall.law import Features, Law, LawAt, ridge_if_it_helps
from forestall.mechanism import Mechanism

# Fewer records than this on either way, or for each slope of its mean, or a smaller
# share of all, show no way.
FEWEST, EACH, LEAST = 50, 4, 0.05
# How far apart the ways must lie, in sums of the deviations from them: the halves of a
# normal law lie 1.3 apart, those of a uniform one 1.7.
APART = 2.2
# The middle quarter between them must be empty, but for this share of the records.
BETWEEN, EMPTY = 0.25, 0.02
# What has to change with the inputs, else residuals of a common mean say as much: which
# way it is, of whose variance they tell this share, or how far the ways lie apart.
TOLD, WIDENS = 0.02, 0.15
# So many different values are told one by one, where there are so many records for each
# of them, and at least so many on either side of a cut.
MOST, COUNTED, ASIDE = 8, 100, 20
# How many times as often as the two values beside it an end must be there to be a way,
# and as any other value one between others.
STEEP, STANDS_OUT = 1.5, 5
# Of a way that lies beyond its end with all but so much nothing is left: it is there.
NOTHING = 1e-6
# How often records are told apart anew, and by how much slopes are held back.
ROUNDS, RIDGE = 30, 1e-3


@dataclass(frozen=True, eq=False)
class Way:
    """One of the two: its mean, and how it strays from that."""

    mechanism: Mechanism
    law: Law | Coin | Fork


@dataclass(frozen=True, eq=False)
class Fork:
    """Two ways, and how often it is the upper one.

    Args:
        odds: The log odds of the upper way.
        ways: The lower and the upper one.
        limits: The lowest and the highest value that either may have.
    """

    odds: Mechanism
    ways: tuple[Way, Way]
    limits: Float[Array, "2 2"]

    @property
    def n_ways(self) -> int:
        """How many ways there are: one of these may fork again."""
        return sum(_ways_of(way.law) for way in self.ways)

    def at(self, z: Float[Array, "n d"], draw: int, mean: Float[Array, " n"]) -> ForkAt:
        """Fix the inputs, the draw, and the mean from which it strays."""
        one = np.array([draw])
        upper = np.asarray(expit(self.odds(z, one)[:, 0]))
        offsets: list[Float[Array, " n"]] = []
        laws: list[AnyLawAt] = []
        for way, (lowest, highest) in zip(self.ways, self.limits, strict=True):
            middle = way.mechanism(z, one)[:, 0]
            law: AnyLawAt = way.law.at(z, draw, middle)
            if np.isfinite(lowest) or np.isfinite(highest):
                law = Within.of(law, lowest - middle, highest - middle)
            offsets.append(middle - mean)
            laws.append(law)
        return ForkAt(upper, (offsets[0], offsets[1]), (laws[0], laws[1]))


def _ways_of(law: Law | Coin | Fork) -> int:
    if isinstance(law, Fork):
        return law.n_ways
    return 2 if isinstance(law, Coin) else 1


@dataclass(frozen=True, eq=False)
class ForkAt:
    """The law of the difference to the mean, at each of some inputs.

    Args:
        upper: How often it is the upper way.
        offsets: How far the middles of the ways lie from the mean.
        laws: How either strays from its middle.
    """

    upper: Float[Array, " n"]
    offsets: tuple[Float[Array, " n"], Float[Array, " n"]]
    laws: tuple[AnyLawAt, AnyLawAt]

    @property
    def rise(self) -> Float[Array, " n"]:
        """How much the value rises with its mean, about."""
        return np.ones(len(self.upper))

    @property
    def middle(self) -> Float[Array, " n"]:
        """The difference of the middles of both ways, as often as either is gone."""
        return (1.0 - self.upper) * self.offsets[0] + self.upper * self.offsets[1]

    def cdf(self, t: Float[Array, " n"]) -> Float[Array, " n"]:
        """How likely the difference is at most ``t``."""
        below, above = (
            law.cdf(t - off) for law, off in zip(self.laws, self.offsets, strict=True)
        )
        return (1.0 - self.upper) * below + self.upper * above

    def density(self, t: Float[Array, " n"]) -> Float[Array, " n"]:
        """The slope of :meth:`cdf`."""
        below, above = (
            law.density(t - off)
            for law, off in zip(self.laws, self.offsets, strict=True)
        )
        return (1.0 - self.upper) * below + self.upper * above

    def quantile(self, u: Float[Array, " n"]) -> Float[Array, " n"]:
        """The difference that is exceeded with probability ``1 - u``.

        The lower way first: exact where the ways do not overlap. Where they do, levels
        that are drawn evenly still give the law, in another order.
        """
        lower = 1.0 - self.upper
        low = self.offsets[0] + self.laws[0].quantile(_share(u, lower))
        high = self.offsets[1] + self.laws[1].quantile(_share(u - lower, self.upper))
        return np.where(u < lower, low, high)


@dataclass(frozen=True, eq=False)
class Within:
    """A law of which nothing lies beyond some limits; the rest of it, in proportion.

    Args:
        law: The law without limits.
        lower: The lowest difference, at each of some inputs.
        upper: The highest.
        below: How much of the law lies below the lowest.
        kept: How much lies between them.
    """

    law: AnyLawAt
    lower: Float[Array, " n"]
    upper: Float[Array, " n"]
    below: Float[Array, " n"]
    kept: Float[Array, " n"]

    @classmethod
    def of(
        cls, law: AnyLawAt, lower: Float[Array, " n"], upper: Float[Array, " n"]
    ) -> Within:
        """See how much of the law lies where."""
        below = np.where(np.isfinite(lower), law.cdf(lower), 0.0)
        above = np.where(np.isfinite(upper), law.cdf(upper), 1.0)
        return cls(law, lower, upper, below, above - below)

    @property
    def rise(self) -> Float[Array, " n"]:
        """How much the value rises with its mean."""
        return self.law.rise

    def cdf(self, t: Float[Array, " n"]) -> Float[Array, " n"]:
        """How likely the difference is at most ``t``."""
        share = (self.law.cdf(t) - self.below) / np.maximum(self.kept, NOTHING)
        # Where all of it lies beyond a limit, it is at that limit.
        nearest = np.where(np.isfinite(self.lower), self.lower, self.upper)
        share = np.where(self.kept < NOTHING, t > nearest, share)
        out: Float[Array, " n"] = np.clip(share, 0.0, 1.0)
        return np.where(t >= self.upper, 1.0, np.where(t < self.lower, 0.0, out))

    def density(self, t: Float[Array, " n"]) -> Float[Array, " n"]:
        """The slope of :meth:`cdf`."""
        within = (self.lower <= t) & (t <= self.upper) & (self.kept >= NOTHING)
        return within * self.law.density(t) / np.maximum(self.kept, NOTHING)

    def quantile(self, u: Float[Array, " n"]) -> Float[Array, " n"]:
        """The difference that is exceeded with probability ``1 - u``."""
        level = np.clip(self.below + u * self.kept, NOTHING, 1.0 - NOTHING)
        return np.clip(self.law.quantile(level), self.lower, self.upper)


AnyLawAt = LawAt | CoinAt | ForkAt | Within


def _share(u: Float[Array, " n"], of: Float[Array, " n"]) -> Float[Array, " n"]:
    return np.clip(u / np.maximum(of, 1e-9), 1e-6, 1.0 - 1e-6)


@dataclass(frozen=True, eq=False)
class Parted:
    """Which records went the upper way.

    Args:
        upper: Whether each of them did.
        limits: The lowest and the highest value that either way may have.
    """

    upper: Bool[Array, " n"]
    limits: Float[Array, "2 2"]

    @classmethod
    def at(
        cls,
        upper: Bool[Array, " n"],
        lowest: float = -np.inf,
        highest: float = np.inf,
    ) -> Parted:
        """Let the upper way have a lowest value, or the lower one a highest."""
        return cls(upper, np.array([[-np.inf, highest], [lowest, np.inf]]))


def parted(z: Float[Array, "n d"], v: Float[Array, " n"]) -> Parted | None:
    """Tell which records went the upper way; ``None`` where there are no two ways.

    Args:
        z: The inputs.
        v: The values.
    """
    if not z.shape[1]:
        return None
    values, counts = np.unique(v, return_counts=True)
    if len(values) <= MOST:
        cut = _cut(v, values, counts)
        return None if cut is None else Parted.at(cut)
    beside = _beside_shared(v, values, counts)
    if beside is not None or len(v) < 2 * FEWEST:
        return beside
    Phi = np.concatenate([np.ones((len(z), 1)), z, z**2], axis=1)
    seen = v - Phi @ _fitted(Phi, v)
    for first in (v > _split(v), seen > _split(seen)):
        upper = _settled(Phi, v, first)
        if upper is not None and _is_fork(z, Phi, v, upper):
            return Parted.at(upper)
    return None


def _cut(
    v: Float[Array, " n"], values: Float[Array, " k"], counts: Int[Array, " k"]
) -> Bool[Array, " n"] | None:
    """Cut a few values in two, so that the sides vary least.

    ``None`` where there are too few records to tell them one by one, or hardly any on
    one side of every cut.
    """
    n = int(counts.sum())
    below, total = np.cumsum(counts)[:-1], np.cumsum(counts * values)[:-1]
    sides = np.minimum(below, n - below)
    if n < COUNTED * len(values) or not (sides >= ASIDE).any():
        return None
    between = (total - below * v.mean()) ** 2 / (below * (n - below))
    k = int(np.where(sides >= ASIDE, between, -1.0).argmax())
    return v > values[k]


def _beside_shared(
    v: Float[Array, " n"], values: Float[Array, " k"], counts: Int[Array, " k"]
) -> Parted | None:
    """Part a value that many records share from the rest.

    ``None`` where none stands out: costs are often none, scores may be capped, and
    often nothing changes.
    """
    n, k = int(counts.sum()), int(counts.argmax())
    low, high = _stands_out(counts), _stands_out(counts[::-1])
    if low and (not high or counts[0] >= counts[-1]):
        return Parted.at(v > values[0], lowest=float(values[0]))
    if high:
        return Parted.at(v >= values[-1], highest=float(values[-1]))
    others = np.delete(counts, k).max()
    if counts[k] < max(FEWEST, LEAST * n, STANDS_OUT * others):
        return None
    # Of the values up to this one it is then the highest, and a way of its own.
    upper = v > values[k]
    if min(upper.sum(), n - upper.sum() - counts[k]) < ASIDE:
        return None
    return Parted.at(upper, lowest=float(values[k]))


def _stands_out(counts: Int[Array, " k"]) -> bool:
    """Whether the first value is there more often than those beside it let expect."""
    first, rest = int(counts[0]), int(counts[1:].sum())
    return min(first, rest) >= ASIDE and first >= STEEP * int(counts[1:3].max())


def _split(v: Float[Array, " n"]) -> float:
    """Where to cut values in two, so that the halves vary least."""
    s = np.sort(v)
    n, k = len(s), np.arange(1, len(s))
    total = np.cumsum(s)[:-1]
    between = (total - k * s.mean()) ** 2 / (k * (n - k))
    at = int(between.argmax())
    return float(0.5 * (s[at] + s[at + 1]))


def _settled(
    Phi: Float[Array, "n q"], v: Float[Array, " n"], upper: Bool[Array, " n"]
) -> Bool[Array, " n"] | None:
    """Fit both ways, let each record take the nearer one, and again."""
    for _ in range(ROUNDS):
        if not _are_many(Phi, upper):
            return None
        low, high = _middles(Phi, v, upper)
        nearer: Bool[Array, " n"] = np.abs(v - high) < np.abs(v - low)
        if (nearer == upper).all():
            break
        upper = nearer
    return upper


def _are_many(Phi: Float[Array, "n q"], upper: Bool[Array, " n"]) -> bool:
    """Whether there are enough records on either way to show it."""
    n, q = Phi.shape
    least = max(FEWEST, EACH * q, LEAST * n)
    return bool(min(upper.sum(), n - upper.sum()) >= least)


def _is_fork(
    z: Float[Array, "n d"],
    Phi: Float[Array, "n q"],
    v: Float[Array, " n"],
    upper: Bool[Array, " n"],
) -> bool:
    """Whether the ways lie apart, with nothing between, and follow from the inputs."""
    if not _are_many(Phi, upper):
        return False
    low, high = _middles(Phi, v, upper)
    half = 0.5 * (high - low)
    off = [(v - way)[side].std() for way, side in ((low, ~upper), (high, upper))]
    if 2.0 * float(np.median(half)) < APART * float(sum(off)):
        return False
    between = np.abs(v - 0.5 * (low + high)) < BETWEEN * np.maximum(half, 0.0)
    if (between | (half <= 0.0)).mean() > EMPTY:
        return False
    if float(half.std()) > WIDENS * float(half.mean()):
        return True
    return _told(z, upper) > TOLD


def _told(z: Float[Array, "n d"], upper: Bool[Array, " n"]) -> float:
    """The share of the variance of which way it is that inputs tell."""
    target = (upper - upper.mean())[:, None]
    Psi = Features.of(z)(z)[0]
    ridge = ridge_if_it_helps(Psi, target)
    if ridge is None:
        return 0.0
    return float(1.0 - np.var(target - Psi @ ridge.weights) / np.var(target))


def _middles(
    Phi: Float[Array, "n q"], v: Float[Array, " n"], upper: Bool[Array, " n"]
) -> tuple[Float[Array, " n"], Float[Array, " n"]]:
    low, high = (Phi @ _fitted(Phi[side], v[side]) for side in (~upper, upper))
    return low, high


def _fitted(Phi: Float[Array, "n q"], v: Float[Array, " n"]) -> Float[Array, " q"]:
    """Least squares, with slopes held back a little."""
    squares = Phi.T @ Phi
    held: Int[Array, " q"] = np.arange(1, len(squares))
    squares[held, held] += RIDGE * len(v)
    return np.linalg.solve(squares, Phi.T @ v)
