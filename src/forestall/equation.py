"""One variable to be learned: from which others, and how loud each record of it is."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import Bool, Float, Int
from scipy.special import expit, logit

from forestall.arrays import Array
from forestall.coin import Coin
from forestall.draft import Draft, Moments
from forestall.influence import STRAY, Influence, tamed
from forestall.loudness import Loudness
from forestall.mechanism import Mechanism
from forestall.posterior import drawn
from forestall.select import Alternatives

# How many interquartile ranges a value may lie from the middle before it is absurd.
ABSURD = 10.0
# The share of records that are not on the outskirts.
MOST = 0.8
# How rare one of two values is taken to be at least, unless it is rarer among all
# records: from too near to never a step of Newton's leads too far.
RARELY = 0.002
# How often a step of Newton's is halved before none is made.
HALVINGS = 6
# The deviation of a logistic law: log odds in this unit are as large as what is
# standardised, and what is believed beforehand means the same.
LOGISTIC = math.pi / math.sqrt(3.0)


@dataclass(frozen=True, eq=False)
class Usual:
    """A look at a mean, which tells what strays from it.

    Heavy tails would make the mean unsure. Pulled in they do not, and nothing is lost:
    the law of the residuals has them as they are. Where more stray on the outskirts
    than elsewhere, nothing is pulled in there: the first look may be what is wrong.

    Args:
        mechanism: The mean by the first look.
        influence: How far residuals, in units of their spread, move the mean.
        plain: How far they do where they are not heard by their score.
        far: Residuals beyond them are those of absurd values.
        outskirts: The squared distance from the middle beyond which none is pulled in,
            or, where residuals are heard by their score, none is heard by it.
        spread: How the spread changes with the inputs; ``None`` where it does not.
    """

    mechanism: Mechanism
    influence: Influence
    plain: Influence
    far: tuple[float, float]
    outskirts: float
    spread: Loudness | None = None

    @classmethod
    def of(
        cls,
        mechanism: Mechanism,
        z: Float[Array, "n d"],
        v: Float[Array, " n"],
        residuals: Float[Array, " n"],
        spread: Loudness | None = None,
    ) -> Usual:
        """Take the spread of residuals for usual, and most of the inputs.

        Args:
            mechanism: The mean by the first look.
            z: The inputs of some records.
            v: Their output.
            residuals: How far they stray from the mean.
            spread: How that changes with the inputs.
        """
        far = tamed(residuals, ABSURD)
        if spread is not None:
            residuals = residuals / spread(z, 0)
        distance = np.sum(z**2, axis=1)
        edge = float(np.quantile(distance, MOST))
        outskirts = edge if _strays_more(residuals, distance > edge) else np.inf
        influence, plain = Influence.of(residuals, v), Influence.clipped(residuals)
        return cls(mechanism, influence, plain, far, outskirts, spread)

    def tells(
        self, z: Float[Array, "n d"], v: Float[Array, " n"], ends: tuple[float, float]
    ) -> bool:
        """Whether inputs tell of most values beyond the ends.

        A product of two inputs has values far from all others that are not absurd.
        """
        out = (v < ends[0]) | (v > ends[1])
        if not out.any():
            return True
        near = np.abs(v[out] - self._mean(z[out])) < np.abs(
            v[out] - np.clip(v[out], *ends)
        )
        return bool(near.mean() > 0.5)

    def believable(
        self, z: Float[Array, "n d"], v: Float[Array, " n"], ends: tuple[float, float]
    ) -> Float[Array, " n"]:
        """Pull in what is beyond the ends, unless its inputs tell of it."""
        (out,) = np.nonzero((v < ends[0]) | (v > ends[1]))
        if not len(out):
            return v
        mean, usual = self._mean(z[out]), np.clip(v[out], *ends)
        told = mean + np.clip(v[out] - mean, *self.far)
        nearer = np.abs(v[out] - told) < np.abs(v[out] - usual)
        tame = v.copy()
        tame[out] = np.where(nearer, told, usual)
        return tame

    def calmed(
        self, z: Float[Array, "n d"], v: Float[Array, " n"]
    ) -> Float[Array, " n"]:
        """Pull in what strays."""
        mean = self._mean(z)
        unit = 1.0 if self.spread is None else self.spread(z, 0)
        off = (v - mean) / unit
        out = v if self.influence.is_plain else mean + unit * self.plain(off)
        inside = np.sum(z**2, axis=1) <= self.outskirts
        return np.where(inside, mean + unit * self.influence(off), out)

    def off(self, z: Float[Array, "n d"], v: Float[Array, " n"]) -> Float[Array, " n"]:
        """Tell how far values are from the mean."""
        return v - self._mean(z)

    def _mean(self, z: Float[Array, "n d"]) -> Float[Array, " n"]:
        return self.mechanism(z, np.array([0]))[:, 0]


@dataclass(frozen=True, eq=False)
class Toss:
    """A look at how often a variable has the higher of two values.

    It turns each record into one of the log odds, a step of Newton's from what the look
    makes of them, with the noise that such a record has.

    Args:
        coin: The two values.
        share: How often it has the higher one among all records.
        mechanism: The mean of the log odds by the look; ``None`` before the first.
    """

    coin: Coin
    share: float
    mechanism: Mechanism | None = None

    @classmethod
    def of(cls, coin: Coin, v: Float[Array, " n"]) -> Toss:
        """Begin with what all records have in common."""
        return cls(coin, float(np.mean(v == coin.high)))

    @property
    def middle(self) -> float:
        """The log odds of the share."""
        return float(logit(self.share))

    def closer(
        self, mechanism: Mechanism, z: Float[Array, "n d"], v: Float[Array, " n"]
    ) -> Toss:
        """Look again, from these log odds, or as near to them as is not worse.

        A whole step of Newton's can lead from never to always, and back.
        """
        old, height = self.mechanism, self.likelihood(z, v)
        for share in 0.5 ** np.arange(HALVINGS):
            part = (
                mechanism.scaled(share)
                if old is None
                else old.blended(mechanism, share)
            )
            near = replace(self, mechanism=part)
            if near.likelihood(z, v) >= height:
                return near
        return self

    def likelihood(self, z: Float[Array, "n d"], v: Float[Array, " n"]) -> float:
        """How likely the records are, in logarithms."""
        odds = np.full(len(z), self.middle)
        if self.mechanism is not None:
            odds = self.mechanism(z, np.array([0]))[:, 0]
        return float(-np.logaddexp(0.0, np.where(self._high(v), -odds, odds)).sum())

    def _high(self, v: Float[Array, " n"]) -> Bool[Array, " n"]:
        return v > 0.5 * (self.coin.low + self.coin.high)

    def odds(self, z: Float[Array, "n d"], v: Float[Array, " n"]) -> Float[Array, " n"]:
        """Turn values into log odds, plus noise."""
        heads = self._heads(z)
        return logit(heads) + (self._high(v) - heads) / (heads * (1.0 - heads))

    def records(
        self, z: Float[Array, "n d"], v: Float[Array, " n"]
    ) -> tuple[Float[Array, " n"], Float[Array, " n"]]:
        """The same about their middle, in units of a logistic law, and its variance."""
        odds = (self.odds(z, v) - self.middle) / LOGISTIC
        return odds, (self(z, 0) / LOGISTIC) ** 2

    def __call__(self, z: Float[Array, "n d"], draw: int) -> Float[Array, " n"]:
        """Give the deviation of this noise."""
        heads = self._heads(z, draw)
        return np.asarray(1.0 / np.sqrt(heads * (1.0 - heads)))

    def _heads(self, z: Float[Array, "n d"], draw: int = 0) -> Float[Array, " n"]:
        if self.mechanism is None:
            return np.full(len(z), self.share)
        odds = self.mechanism(z, np.array([draw]))[:, 0]
        least = min(RARELY, 0.5 * self.share, 0.5 * (1.0 - self.share))
        return np.clip(expit(odds), least, 1.0 - least)


@dataclass(frozen=True, eq=False)
class Equation:
    """A mechanism that waits for the records to be counted.

    Args:
        inputs: The state columns it follows from.
        column: The state column it is.
        ends: Values beyond them are pulled in, unless their inputs tell of them: one
            wrong entry must not bend the mean.
        draft: The functions of its mean.
        usual: What is calm, and what strays from the usual.
        spread: How the noise changes with the inputs; ``None`` where it does not.
        quiet: The variance of the noise where the spread is one.
        starts: Where draws of its hyperparameters set out; ``None`` where there is
            nothing to draw.
    """

    inputs: Int[Array, " d"]
    column: int
    ends: tuple[float, float]
    draft: Draft
    usual: Usual | None = None
    spread: Loudness | Toss | None = None
    quiet: float = 1.0
    starts: Alternatives | None = None

    @property
    def influence(self) -> Influence | None:
        """How far residuals move the mean; ``None`` where nothing was looked at."""
        return None if self.usual is None else self.usual.influence

    def count(self, state: Float[Array, "n w"]) -> Moments:
        """Sum up some records."""
        z, v, loudness = self._read(state)
        calm = v if self.usual is None else self.usual.calmed(z, v)
        return self.draft.count(z, calm, loudness)

    def structured(
        self, moments: Moments, variables: Int[Array, " d"], rng: np.random.Generator
    ) -> tuple[Equation, Moments]:
        """Draw hyperparameters by the sums over all records; keep what is needed.

        Args:
            moments: The sums.
            variables: The variable behind each input column.
            rng: What they are drawn with.
        """
        if self.starts is None or not len(self.inputs):
            return self, moments
        draft, known = self.draft, isinstance(self.spread, Toss)
        hyperparameters = drawn(
            self.starts,
            lambda start: draft.chain(moments, variables, start, rng, known=known),
            draft.own.shape[1],
            rng,
        )
        draft, moments = draft.under(hyperparameters, moments)
        return replace(self, draft=draft), moments

    def mechanism(self, moments: Moments, state: Float[Array, "n w"]) -> Mechanism:
        """Settle the mean by all records counted, and the residuals of these."""
        return self.draft.settled(moments, *self._read(state))

    def still(self) -> Equation:
        """Leave the draws out: sums do not depend on them."""
        return replace(self, draft=self.draft.still())

    def strays(self, mean: Mechanism, state: Float[Array, "n w"]) -> Float[Array, " n"]:
        """Tell how far some records stray from a mean."""
        z, v, _ = self._read(state)
        return v - mean.exactly(z)

    def _read(
        self, state: Float[Array, "n w"]
    ) -> tuple[Float[Array, "n d"], Float[Array, " n"], Float[Array, " n"] | None]:
        z, v = state[:, self.inputs], state[:, self.column]
        if isinstance(self.spread, Toss):
            v = self.spread.odds(z, v)
        elif self.usual is None:
            v = np.clip(v, *self.ends)
        else:
            v = self.usual.believable(z, v, self.ends)
        if self.spread is None:
            return z, v, None
        return z, v, self.quiet * self.spread(z, 0) ** 2


@dataclass(frozen=True, eq=False)
class Counts:
    """The sums of several equations, by what they follow from and what they are."""

    moments: dict[tuple[int, ...], Moments]

    def __add__(self, other: Counts) -> Counts:
        """Add the sums of two batches."""
        both = zip(self.moments.items(), other.moments.values(), strict=True)
        return Counts({key: one + two for (key, one), two in both})


def _strays_more(residuals: Float[Array, " n"], there: Bool[Array, " n"]) -> bool:
    """Whether residuals stray more often there than elsewhere, and not by luck."""
    low, high = tamed(residuals, STRAY)
    strays = (residuals < low) | (residuals > high)
    expected = float(strays[~there].mean()) * int(there.sum())
    return bool(strays[there].sum() > expected + 2.0 * np.sqrt(expected) + 1.0)
