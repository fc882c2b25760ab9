"""The law of a variable with two values: its log odds tell how often it has each.

A default, a readmission, a yes or a no: what inputs move are its odds, so that no trend
leads beyond never and always.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float
from scipy.special import expit

from forestall.arrays import Array

# By fewer records than this, numbers may have two values by chance.
FEWEST = 10


@dataclass(frozen=True)
class Coin:
    """The law of what has one of two values."""

    low: float
    high: float

    @classmethod
    def of(cls, v: Float[Array, " n"]) -> Coin | None:
        """Name the two values; ``None`` where there are more of them, or one."""
        if len(v) < FEWEST:
            return None
        low, high = float(v.min()), float(v.max())
        two = bool(((v == low) | (v == high)).all())
        return cls(low, high) if two and low < high else None

    def mean(self, odds: Float[Array, "*n"]) -> Float[Array, "*n"]:
        """The mean of the value, by its log odds."""
        return self.low + (self.high - self.low) * expit(odds)

    def at(self, z: Float[Array, "n d"], draw: int, mean: Float[Array, " n"]) -> CoinAt:
        """Fix the log odds, which are its mean; inputs and draw do not tell more."""
        del z, draw
        return CoinAt(self.low - mean, self.high - mean, expit(mean))


@dataclass(frozen=True, eq=False)
class CoinAt:
    """The law of the difference between value and log odds, at each of some odds.

    Args:
        low: The difference where it has the lower value.
        high: The difference where it has the higher one.
        heads: How often that is so.
    """

    low: Float[Array, " n"]
    high: Float[Array, " n"]
    heads: Float[Array, " n"]

    @property
    def rise(self) -> Float[Array, " n"]:
        """How much the value rises with the log odds, on average."""
        return (self.high - self.low) * self._slope

    def cdf(self, t: Float[Array, " n"]) -> Float[Array, " n"]:
        """How likely the difference is at most ``t``."""
        share = np.where(t < self.high, 1.0 - self.heads, 1.0)
        return np.where(t < self.low, 0.0, share)

    def density(self, t: Float[Array, " n"]) -> Float[Array, " n"]:
        """How fast the share below a value falls with the log odds."""
        between = (self.low <= t) & (t < self.high)
        return np.where(between, self._slope, 0.0)

    def quantile(self, u: Float[Array, " n"]) -> Float[Array, " n"]:
        """The difference that is exceeded with probability ``1 - u``."""
        return np.where(u < 1.0 - self.heads, self.low, self.high)

    @property
    def _slope(self) -> Float[Array, " n"]:
        return self.heads * (1.0 - self.heads)
