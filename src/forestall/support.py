"""How well history supports a point: its density beside that of the records."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float, Int

from forestall.arrays import Array
from forestall.encoding import Block, Numeric

# Directions that barely vary count as if they varied this much, in standard
# deviations: without a floor, rounding would decide what is unheard of.
FLOOR = 0.01
# A point less dense than this share of the records is called an extrapolation.
UNUSUAL = 0.01
# Numbers may leave the range of history by this share of it before that is said.
MARGIN = 0.1
# Kernel values handled at a time: two megabytes of them stay in the cache.
BLOCK = 1 << 18
# Records that settle most questions.
FEW = 100
# Columns out of range that are named.
NAMED = 3
# A number this many deviations off what the others make usual is what is odd.
ODD = 4.0


class Density(ABC):
    """A density of records, and what it is at the records themselves.

    Attributes:
        levels: The log density of each record given the others, sorted.
    """

    levels: Float[Array, " n"]

    @abstractmethod
    def log_density(self, v: Float[Array, "q d"]) -> Float[Array, " q"]:
        """Evaluate the log density, up to a constant."""

    def score(self, v: Float[Array, "q d"]) -> Float[Array, " q"]:
        """Rank each point's density among the records' own, from 0 to 1."""
        rank = np.searchsorted(self.levels, self.log_density(v), side="right")
        return rank / len(self.levels)

    def extrapolates(self, v: Float[Array, "q d"]) -> Bool[Array, " q"]:
        """Tell which points are less dense than nearly every record."""
        return self.score(v) < UNUSUAL


@dataclass(frozen=True, eq=False)
class Support(Density):
    """The density of whitened records, and what it is at the records themselves.

    Distances are taken after whitening, so that an action which is a function of the
    context in history, give or take a little, counts as far away as soon as it leaves
    that little.

    Args:
        whitening: The matrix that makes the records' covariance the identity, divided
            by the width of the density's kernel.
        records: The whitened records.
        levels: The log density of each record given the others, sorted.
    """

    whitening: Float[Array, "d d"]
    records: Float[Array, "n d"]
    levels: Float[Array, " n"]

    @classmethod
    def of(cls, v: Float[Array, "n d"]) -> Support:
        """Learn the density of the records ``v``."""
        whitening = whitened(v, len(v))
        records = v @ whitening
        levels = np.sort(_log_density(records, records, leave_one_out=True))
        return cls(whitening, records, levels)

    def unheard_of(self, v: Float[Array, "q d"]) -> Bool[Array, " q"]:
        """Tell which points are far less dense than any record."""
        # A fresh record falls below the lowest of n with probability 1/n; a factor
        # of e^5 below it does not happen by chance.
        lowest = self.levels[0] - 5.0
        few = self.records[:: -(-len(self.records) // FEW)]
        # A few records are enough to tell of nearly every point that it is not.
        odd = _log_density(v @ self.whitening, few, leave_one_out=False) < lowest
        odd[odd] = self.log_density(v[odd]) < lowest
        return odd

    def strayed(self, v: Float[Array, " d"]) -> Float[Array, "2 d"]:
        """How far each column is from what the others make of it, linearly.

        Beside it stands how far the records are, as a standard deviation.
        """
        precision = self.whitening @ self.whitening.T
        rows = np.concatenate([self.records, (v @ self.whitening)[None]])
        off = rows @ self.whitening.T / np.diag(precision)
        records = off[:-1]
        return np.stack([off[-1] - records.mean(axis=0), records.std(axis=0)])

    def log_density(self, v: Float[Array, "q d"]) -> Float[Array, " q"]:
        """Evaluate the log density, up to a constant."""
        return _log_density(v @ self.whitening, self.records, leave_one_out=False)


def whitened(v: Float[Array, "k d"], n: int) -> Float[Array, "d d"]:
    """Find the metric of a density of ``n`` records, by some of them."""
    d = v.shape[1]
    variance, axes = np.linalg.eigh(np.cov(v.T).reshape(d, d))
    width = n ** (-1.0 / (d + 4))
    return axes / (width * np.sqrt(np.maximum(variance, FLOOR**2)))


def _log_density(
    v: Float[Array, "q d"], records: Float[Array, "n d"], *, leave_one_out: bool
) -> Float[Array, " q"]:
    out = np.empty(len(v))
    step = max(1, BLOCK // len(records))
    norms = np.einsum("nd,nd->n", records, records)
    for i in range(0, len(v), step):
        part = v[i : i + step]
        logs = part @ records.T
        logs -= 0.5 * norms
        logs -= 0.5 * np.einsum("qd,qd->q", part, part)[:, None]
        if leave_one_out:
            own = np.arange(len(part))
            logs[own, i + own] = -np.inf
        out[i : i + step] = log_sum(logs)
    return out


def log_sum(logs: Float[Array, "q n"]) -> Float[Array, " q"]:
    """Add up what ``logs`` are the logarithms of, in place."""
    top = logs.max(axis=1)
    logs -= top[:, None]
    return top + np.log(np.exp(logs, out=logs).sum(axis=1))


@dataclass(frozen=True, eq=False)
class Horizon:
    """What contexts history has seen, to tell which new ones are unheard of.

    Args:
        support: The density of the historical contexts.
        names: The variable behind each array column.
        numeric: Which columns are numbers.
        lower: The smallest value of each column, standardised.
        upper: The largest value of each column.
        mean: The mean of each column in the user's unit.
        scale: The standard deviation of each column in the user's unit.
    """

    support: Support
    names: tuple[str, ...]
    numeric: Bool[Array, " d"]
    lower: Float[Array, " d"]
    upper: Float[Array, " d"]
    mean: Float[Array, " d"]
    scale: Float[Array, " d"]

    @classmethod
    def of(cls, block: Block, x: Float[Array, "n d"]) -> Horizon:
        """Learn from the historical contexts."""
        numeric = [
            isinstance(c, Numeric) for c in block.columns for _ in range(c.width)
        ]
        names = [c.name for c in block.columns for _ in range(c.width)]
        return cls(
            Support.of(x),
            tuple(names),
            np.array(numeric, dtype=bool),
            x.min(axis=0),
            x.max(axis=0),
            block.means,
            block.scales,
        )

    def remarks(self, x: Float[Array, "q d"]) -> list[str | None]:
        """Say of each context why it is far outside history, if it is."""
        margin = MARGIN * (self.upper - self.lower)
        outside = (x < self.lower - margin) | (x > self.upper + margin)
        outside &= self.numeric
        strange = self.support.unheard_of(x) if len(x) else np.zeros(0, dtype=bool)
        told: list[str | None] = [None] * len(x)
        for i in np.flatnonzero(strange):
            told[i] = self._unlike(x[i])
        for i in np.flatnonzero(outside.any(axis=1)):
            told[i] = self._outside(x[i], np.flatnonzero(outside[i]))
        return told

    def _outside(self, x: Float[Array, " d"], columns: Int[Array, " k"]) -> str:
        """Name the columns that leave the range of history, the first few of them."""
        first, *others = (
            (f"{self.names[j]} = {value:.4g}", spelt(lower, upper))
            for j in columns[:NAMED].tolist()
            for value, lower, upper in [self._in_units(j, x)]
        )
        text = f"{first[0]} lies outside the range {first[1]} of history"
        text += "".join(f", {value} outside {seen}" for value, seen in others)
        more = len(columns) - NAMED
        return f"{text}, and {more} more." if more > 0 else f"{text}."

    def _in_units(self, j: int, x: Float[Array, " d"]) -> list[float]:
        """Give a column of a context and the range of history in the user's unit."""
        seen = np.array([x[j], self.lower[j], self.upper[j]])
        return (self.mean[j] + self.scale[j] * seen).tolist()

    def _unlike(self, x: Float[Array, " d"]) -> str:
        """Name the number that the others explain worst, where it is clearly off."""
        text = "no record has a context like this one"
        off, spread = self.support.strayed(x)
        odd = np.where(self.numeric, np.abs(off) / np.maximum(spread, FLOOR), 0.0)
        if len(x) < 2 or odd.max() < ODD:
            return f"{text}."
        # Of two that contradict each other the first: rounding must not decide.
        j = int(np.argmax(odd > 0.999 * odd.max()))
        value, usual = self.mean[j] + self.scale[j] * np.array([x[j], x[j] - off[j]])
        return (
            f"{text}; by its other values {self.names[j]} would be about "
            f"{usual:.3g}, not {value:.4g}."
        )


def spelt(lower: float, upper: float) -> str:
    """Write a range roughly: its ends are what some person had.

    Example:
        >>> spelt(17.8, 93.4), spelt(1991.7, 2004.9), spelt(-0.0312, 12_345.6)
        ('18 to 93', '1992 to 2005', '0 to 12000')
    """
    step = 10.0 ** (np.floor(np.log10(upper - lower or abs(upper) or 1.0)) - 1)
    # Adding zero turns minus zero into zero.
    low, high = (np.round(end / step) * step + 0.0 for end in (lower, upper))
    return f"{low:.10g} to {high:.10g}"
