"""Choosing the functions of every mean by a sample; all records then settle them."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import Bool, Float, Int

from forestall.arrays import Array
from forestall.coin import Coin
from forestall.draft import Draft, Moments
from forestall.equation import ABSURD, LOGISTIC, Equation, Toss, Usual
from forestall.fork import Fork, Way, parted
from forestall.hills import COARSE, FINE
from forestall.influence import tamed
from forestall.law import Law
from forestall.likeliest import everything, guessed, refined
from forestall.likelihood import curved
from forestall.loudness import Loudness
from forestall.lowrank import Approximation
from forestall.mechanism import Mechanism
from forestall.pieces import Key, Layout
from forestall.select import Alternatives, Choice

EVERYWHERE = (-np.inf, np.inf)
# How many steps are made to log odds, under a first guess of their functions and again
# under those that were chosen.
LOOKS = 5
# Fewer of the rarer value than this show how rare it is, and nothing else.
FEWEST = 3
# Seeds of what a fork consists of, odds and two ways, of which each may fork again: all
# different, as a heap numbers its children, and far from those of users.
CHILDREN, FAR = 3, 1_000_003
# How many steps of Newton's a mean takes where its residuals are far from normal: the
# first is from a look that heavy tails made unsure.
STEPS = 2


@dataclass(frozen=True, kw_only=True)
class Parts:
    """What a system is made with.

    Args:
        n_draws: Functions and laws drawn for each variable.
        seed: What they come from.
        recentred: Learn a mean first and the law around it, not the law alone.
        local_laws: Let the law change with the inputs.
        relevance: Give every variable a width of its own.
        approximation: How the Gaussian part of every mean is spanned.
    """

    n_draws: int
    seed: int
    recentred: bool
    local_laws: bool
    relevance: bool
    approximation: Approximation | None = None


@dataclass(frozen=True, eq=False)
class Look:
    """A first look at a mean.

    Args:
        guess: Its hyperparameters.
        draft: Its functions.
        moments: The sums by which it was settled.
        usual: What it tells of the records.
    """

    guess: Choice
    draft: Draft
    moments: Moments
    usual: Usual

    def residuals(
        self, z: Float[Array, "n d"], v: Float[Array, " n"]
    ) -> Float[Array, " n"]:
        """Tell how far records stray from it."""
        return self.draft.settled(self.moments, z, v).residuals


@dataclass(frozen=True, eq=False)
class Heard:
    """Records as the mean hears them.

    Args:
        usual: What is usual, by a look at the mean.
        calm: The output, with what strays pulled in.
        unit: The spread of each record; ``None`` where all are alike.
        quiet: The variance of the noise where the spread is one.
    """

    usual: Usual
    calm: Float[Array, " n"]
    unit: Float[Array, " n"] | None
    quiet: float

    @classmethod
    def of(cls, usual: Usual, z: Float[Array, "n d"], v: Float[Array, " n"]) -> Heard:
        """Pull in what strays, and see what noise is left."""
        calm = usual.calmed(z, v)
        if usual.spread is None:
            return cls(usual, calm, None, 1.0)
        unit = usual.spread(z, 0)
        return cls(usual, calm, unit, float(np.mean((usual.off(z, calm) / unit) ** 2)))

    def share(self, z: Float[Array, "n d"], v: Float[Array, " n"]) -> float:
        """How much of the variance of residuals moves the mean."""
        if self.usual.influence.is_plain:
            return 1.0
        unit = 1.0 if self.unit is None else self.unit
        moved, strayed = (self.usual.off(z, each) / unit for each in (self.calm, v))
        return float(min(1.0, moved.var() / strayed.var()))

    @property
    def loudness(self) -> Float[Array, " n"] | None:
        """How loud each record is, beside the others, in variance."""
        return None if self.unit is None else self.unit**2

    @property
    def noise(self) -> Float[Array, " n"] | None:
        """The variance of the noise of each record; ``None`` where all are alike."""
        return None if self.unit is None else self.quiet * self.unit**2


@dataclass(frozen=True, eq=False)
class Settled:
    """An equation that all records have settled.

    Args:
        equation: The equation, with what is drawn for it.
        mechanism: Its mean.
        law: How it strays; ``None`` where there is none, or it is yet to be counted.
    """

    equation: Equation
    mechanism: Mechanism
    law: Law | Fork | None


class Functions:
    """Lays out the equation of each variable, and settles it.

    Attributes:
        coins: The two values of each column that has no more.
    """

    def __init__(
        self,
        parts: Parts,
        layout: Layout,
        state: Float[Array, "n w"],
        n: int,
    ) -> None:
        """Look at a sample of the records.

        Args:
            parts: What the system is made with.
            layout: Where variables stand.
            state: The sample.
            n: The number of all records.
        """
        self.parts, self.layout, self.state, self.n = parts, layout, state, n
        # Without a mean there is nothing but laws.
        self.coins = [Coin.of(v) if parts.recentred else None for v in state.T]

    def variables(self, inputs: Int[Array, " d"]) -> Int[Array, " d"]:
        """Tell which columns have one width."""
        if not self.parts.relevance:
            return np.zeros_like(inputs)
        return self.layout.variables(inputs)

    def __call__(self, key: Key) -> Equation:
        """Choose the functions of a mean.

        Args:
            key: The column that it is the mean of, then those that it follows from.
        """
        column, inputs = key[0], np.array(key[1:], dtype=int)
        # A generator of its own: in which order equations are learned, and by which
        # process, changes nothing.
        rng = np.random.default_rng([self.parts.seed, 0, *key])
        z, v = self.state[:, inputs], self.state[:, column]
        if np.ptp(v) == 0.0:
            draft = self._draft(z, v, _flat(len(inputs), 0.0), rng).certain()
            return Equation(inputs, column, EVERYWHERE, draft)
        level = self.layout.is_level(column)
        if not self.parts.recentred:
            ends = EVERYWHERE if level else tamed(v, ABSURD)
            draft = self._draft(z, np.clip(v, *ends), _flat(len(inputs), 1e-12), rng)
            return Equation(inputs, column, ends, draft)
        if level:
            starts = self._refined(self._guess(inputs, v), inputs, v)
            draft = self._laid(starts, z, v, rng)
            return Equation(inputs, column, EVERYWHERE, draft, starts=starts)
        coin = self.coins[column]
        if coin is not None:
            return self._tossed(inputs, column, coin, rng)
        ends = low, high = tamed(v, ABSURD)
        look = self._look(inputs, v, (low <= v) & (v <= high))
        if not look.usual.tells(z, v, ends):
            v = np.clip(v, *ends)
            look = self._look(inputs, v, np.ones(len(v), dtype=bool))
        # What strays is pulled in; where records are louder than elsewhere, they count
        # less, from here on.
        v = look.usual.believable(z, v, ends)
        heard = self._heard(look.usual.mechanism, z, v, look.residuals(z, v))
        guess = look.guess
        if not heard.usual.influence.is_plain:
            guess = self._guess(inputs, heard.calm)
            for _ in range(STEPS):
                heard = self._closer(heard, guess, z, v)
        starts = self._refined(guess, inputs, heard.calm, heard.loudness)
        draft = self._laid(starts, z, heard.calm, rng)
        draft = replace(draft, heard=heard.share(z, v))
        usual, spread = heard.usual, heard.usual.spread
        return Equation(inputs, column, ends, draft, usual, spread, heard.quiet, starts)

    def settled(
        self, key: Key, equation: Equation, moments: Moments, with_law: bool
    ) -> Settled:
        """Draw hyperparameters by the sums over all records, and settle the mean.

        Args:
            key: What the equation is called.
            equation: Its functions.
            moments: The sums.
            with_law: Whether its law is learned, too, from the records looked at.
        """
        rng = np.random.default_rng([self.parts.seed, 5, *key])
        variables = self.variables(equation.inputs)
        equation, moments = equation.structured(moments, variables, rng)
        mechanism = equation.mechanism(moments, self.state)
        if not with_law:
            return Settled(equation, mechanism, None)
        fork = self.fork(key)
        if fork is not None:
            return Settled(equation, mechanism, fork)
        law = Law.of(
            self.state[:, equation.inputs],
            mechanism.residuals,
            self.parts.n_draws,
            rng,
            local=self.parts.local_laws,
            influence=equation.influence,
        )
        return Settled(equation, mechanism, law)

    def fork(self, key: Key) -> Fork | None:
        """Learn two ways from the records looked at; ``None`` where there are none.

        Args:
            key: The column that goes them, then those that it follows from.
        """
        if not (self.parts.recentred and self.parts.local_laws):
            return None
        column = key[0]
        found = parted(self.state[:, key[1:]], self.state[:, column])
        if found is None:
            return None
        upper, tossed = found.upper, self.state.copy()
        tossed[:, column] = upper
        toss, low, high = (
            self._child(k, state)._learned(key)
            for k, state in enumerate([tossed, self.state[~upper], self.state[upper]])
        )
        return Fork(toss.mechanism, (low, high), found.limits)

    def _child(self, k: int, state: Float[Array, "m w"]) -> Functions:
        """Look at other records, with draws of their own."""
        parts = replace(self.parts, seed=FAR + CHILDREN * self.parts.seed + k)
        return Functions(parts, self.layout, state, len(state))

    def _learned(self, key: Key) -> Way:
        """Learn one variable from the records looked at alone; it may fork again."""
        coin, equation = self.coins[key[0]], self(key)
        moments = equation.count(self.state)
        settled = self.settled(key, equation, moments, coin is None)
        law = coin or settled.law
        assert law is not None
        return Way(settled.mechanism, law)

    def _heard(
        self,
        mean: Mechanism,
        z: Float[Array, "n d"],
        v: Float[Array, " n"],
        residuals: Float[Array, " n"],
    ) -> Heard:
        """Listen to the records by how they stray from a look at their mean.

        Where they are heard by their score, then about the median: about a mean that
        lies between two modes, records on one side of it would seem loud where the look
        is wrong, and it would stay wrong.
        """
        for middle in (0.0, float(np.median(residuals))):
            about, off = replace(mean, mean=mean.mean + middle), residuals - middle
            spread = Loudness.estimated(z, off) if self.parts.local_laws else None
            heard = Heard.of(Usual.of(about, z, v, off, spread), z, v)
            if heard.usual.influence.is_plain:
                break
        return heard

    def _closer(
        self,
        heard: Heard,
        guess: Choice,
        z: Float[Array, "n d"],
        v: Float[Array, " n"],
    ) -> Heard:
        """Look at the mean again, by records as they are heard, and listen again."""
        draft = self._draft(z, heard.calm, guess)
        draft = replace(draft, heard=heard.share(z, v))
        moments = draft.count(z, heard.calm, heard.noise)
        seen = draft.settled(moments, z, v, heard.noise)
        return self._heard(seen, z, v, seen.residuals)

    def _tossed(
        self,
        inputs: Int[Array, " d"],
        column: int,
        coin: Coin,
        rng: np.random.Generator,
    ) -> Equation:
        """Choose the functions of the log odds of the higher of two values."""
        z, v = self.state[:, inputs], self.state[:, column]
        variables = self.variables(inputs)
        toss = Toss.of(coin, v)
        high = int(np.sum(v == coin.high))
        if min(high, len(v) - high) < FEWEST:
            draft = self._draft(z, np.zeros(len(v)), _flat(len(inputs), 0.0), rng)
            draft = draft.of_known_noise(toss.middle, LOGISTIC)
            return Equation(inputs, column, EVERYWHERE, draft, spread=toss)
        y, noise = toss.records(z, v)
        guess = guessed(z, y, variables, noise)
        toss = self._looked(toss, inputs, v, guess)
        y, noise = toss.records(z, v)
        starts = refined(guess, z, y, variables, noise, known=True).of_noise(1.0)
        toss = self._looked(toss, inputs, v, starts.choices[0])
        draft = self._laid(starts, z, toss.odds(z, v), rng)
        draft = draft.of_known_noise(toss.middle, LOGISTIC)
        return Equation(inputs, column, EVERYWHERE, draft, spread=toss, starts=starts)

    def _looked(
        self,
        toss: Toss,
        inputs: Int[Array, " d"],
        v: Float[Array, " n"],
        choice: Choice,
    ) -> Toss:
        """Go to the likeliest log odds, step by step."""
        z, toss = self.state[:, inputs], replace(toss, mechanism=None)
        for _ in range(LOOKS):
            odds, noise = toss.odds(z, v), toss(z, 0) ** 2
            draft = self._draft(z, odds, choice)
            draft = draft.of_known_noise(toss.middle, LOGISTIC)
            moments = draft.count(z, odds, noise)
            toss = toss.closer(draft.settled(moments, z, odds, noise), z, v)
        return toss

    def _laid(
        self,
        starts: Alternatives,
        z: Float[Array, "n d"],
        v: Float[Array, " n"],
        rng: np.random.Generator,
    ) -> Draft:
        """Leave nothing out: which functions a mean has, all records will tell."""
        if not z.shape[1]:
            return self._draft(z, v, starts.whole, rng)
        whole, shape = everything(starts.whole, curved(z)), FINE
        if len(v) == self.n:
            # No others will ask for bends that these do not ask for.
            whole, shape = replace(whole, smooth=starts.whole.smooth), COARSE
        return self._draft(z, v, replace(whole, shape=shape), rng)

    def _look(
        self, inputs: Int[Array, " d"], v: Float[Array, " n"], sane: Bool[Array, " n"]
    ) -> Look:
        """Take a first look at a mean, by some of the records."""
        z = self.state[:, inputs]
        guess = self._guess(inputs, v, sane)
        draft = self._draft(z[sane], v[sane], guess)
        moments = draft.count(z[sane], v[sane])
        seen = draft.settled(moments, z[sane], v[sane])
        usual = Usual.of(seen, z[sane], v[sane], seen.residuals)
        return Look(guess, draft, moments, usual)

    def _guess(
        self,
        inputs: Int[Array, " d"],
        v: Float[Array, " n"],
        sane: Bool[Array, " n"] | slice = slice(None),
    ) -> Choice:
        z, v = self.state[:, inputs][sane], v[sane]
        return guessed(z, _scaled(v), self.variables(inputs))

    def _refined(
        self,
        guess: Choice,
        inputs: Int[Array, " d"],
        v: Float[Array, " n"],
        loudness: Float[Array, " n"] | None = None,
    ) -> Alternatives:
        z, variables = self.state[:, inputs], self.variables(inputs)
        return refined(guess, z, _scaled(v), variables, loudness)

    def _draft(
        self,
        z: Float[Array, "n d"],
        v: Float[Array, " n"],
        choice: Choice,
        rng: np.random.Generator | None = None,
    ) -> Draft:
        """Lay functions out: with draws, or to look at their mean alone."""
        n_draws = 0 if rng is None else self.parts.n_draws
        rng = np.random.default_rng(0) if rng is None else rng
        low = self.parts.approximation
        return Draft.of(z, v, choice, n_draws, rng, low, self.n)


def _scaled(v: Float[Array, " n"]) -> Float[Array, " n"]:
    return (v - v.mean()) / (v.std() or 1.0)


def _flat(d: int, slopes: float) -> Choice:
    """The hyperparameters of a mean that hardly moves."""
    return Choice(np.full(d, slopes), 0.0, 0.0, 1.0, np.ones(d))
