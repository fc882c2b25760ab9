r"""Which functions a mean has, and how large they are, as far as the records tell.

Weights of functions that stand and fall together, a group, have one prior variance,
which may be nothing; of a function in several groups these add up. Draws are from the
posterior of all variances and of the noise, by Gibbs sampling: how likely each variance
:math:`v'` of a group is, beside its present :math:`v` and given those of all others, is
known in closed form. With

.. math:: M = \Phi^\top K^{-1} \Phi, \quad r = \Phi^\top K^{-1} y, \quad D = v' - v,

weights integrated out of :math:`K`, the eigenvalues :math:`d_i` of the group's block of
:math:`M`, and its part of :math:`r` along their axes, :math:`\rho`,

.. math:: \log p(v') - \log p(v) =
    \tfrac12 \sum_i \Big( \frac{D \rho_i^2}{1 + D d_i} - \log(1 + D d_i) \Big).

Then :math:`M` and :math:`r` change by as many ranks as the group has functions.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import IntEnum
from functools import cached_property

import numpy as np
from jaxtyping import Float, Int
from scipy.linalg import cho_solve, cholesky, solve_triangular
from scipy.special import betaln

from forestall.arrays import Array
from forestall.likelihood import SIMPLICITY
from forestall.select import Alternatives, Choice
from forestall.woodbury import Woodbury

# The deviations that a group may have, if any, for a standardised output: from what no
# record would notice, each as likely as its neighbours, and less so the larger it is (a
# penalised-complexity prior).
GRID, UNNOTICED, LOWEST, HIGHEST = 34, 0.5, 0.1, 4.0
# How likely there is nothing but slopes, or nothing where there are no slopes, before
# anything is seen.
STRAIGHT = 0.5
# Steps that are made before the first draw, the first of these without believing in
# what is straight, and from each draw to the next: where inputs go along with each
# other, a chain is long at one of several ways to tell the same.
BURN, OPEN, APART = 40, 20, 4
# The least noise, where functions explain everything; what rounding may leave of a
# share, or of a determinant; and how plain a function may be, beside the noise, before
# what the records say without it cancels out.
LEAST_NOISE, ROUNDING, TINY, PLAIN = 1e-4, 1e-12, 1e-300, 1e6


class Kind(IntEnum):
    """How likely a group is there; one of many others seldom is."""

    SLOPE = 0
    ONE_OF_MANY = 1
    HILLS = 2
    ALL_OF_MANY = 3
    BENDS = 4


@dataclass(frozen=True, eq=False)
class Groups:
    """Functions that stand and fall together.

    A function may be in several groups: then their variances add up. The first function
    is the constant, which is in none and always there.

    Args:
        members: The functions of each group.
        kinds: The kind of each group.
        n: The number of functions.
    """

    members: tuple[Int[Array, " _"], ...]
    kinds: Int[Array, " g"]
    n: int

    @classmethod
    def owned(cls, owner: Int[Array, " q"], kinds: Int[Array, " g"]) -> Groups:
        """Let every function but the constant have one group, of that number."""
        members = tuple(1 + np.flatnonzero(owner == k) for k in range(len(kinds)))
        return cls(members, kinds, 1 + len(owner))

    def each(self, variances: Float[Array, " g"]) -> Float[Array, " q"]:
        """Give the variance of each function, by those of the groups."""
        out = np.bincount(self._rows, variances[self._owners], self.n)
        out[0] = 1.0
        return out

    @cached_property
    def _rows(self) -> Int[Array, " m"]:
        return np.concatenate([np.empty(0, dtype=int), *self.members])

    @cached_property
    def _owners(self) -> Int[Array, " m"]:
        return np.repeat(np.arange(len(self.members)), list(map(len, self.members)))

    @property
    def beliefs(self) -> Float[Array, "k 2"]:
        """How many groups of each kind are there, and are not, before any is seen.

        A variable has a slope as likely as not. Where there is more than slopes, it has
        hills one time in four, and so has the mean a curve of everything; bends are as
        likely as not, and of many groups one is to be expected, however many they are.
        """
        many = max(1.0, float(np.sum(self.kinds == Kind.ONE_OF_MANY)))
        return np.array([[1.0, 1.0], [1.0, many], [1.0, 3.0], [1.0, 3.0], [1.0, 1.0]])


@dataclass(frozen=True, eq=False)
class Drawn:
    """Draws of the variance of each function, and of the noise."""

    variances: Float[Array, "s q"]
    noises: Float[Array, " s"]


class Chain:
    """Goes from one set of variances to the next, to each as often as it is likely.

    Attributes:
        variances: The variance of each group.
        noise: The variance of the noise.
    """

    def __init__(
        self,
        sums: Woodbury,
        groups: Groups,
        variances: Float[Array, " g"],
        noise: float,
        rng: np.random.Generator,
        *,
        known: bool = False,
    ) -> None:
        """Set out from some variances.

        Args:
            sums: Sums over the records, of functions of unit variance.
            groups: Which of them stand and fall together.
            variances: The variance of each group.
            noise: The variance of the noise.
            rng: What tosses are made with.
            known: Whether the noise is known.
        """
        self.sums, self.groups, self.rng, self.known = sums, groups, rng, known
        self.variances, self.noise = variances.astype(float), noise
        self._members = groups.members
        self._single = np.array([len(rows) == 1 for rows in self._members], dtype=bool)
        self._first = np.array([rows[0] for rows in self._members])
        self._squares = [sums.gram[np.ix_(rows, rows)] for rows in self._members]
        self._loudest = np.array([squares.max() for squares in self._squares])
        least = min(UNNOTICED * np.sqrt(noise / sums.n), LOWEST)
        deviations = np.geomspace(least, HIGHEST, GRID)
        self._grid = np.r_[0.0, deviations**2]
        self._slab = -SIMPLICITY * deviations
        self._slab -= np.log(np.exp(self._slab).sum())
        self._settle()

    def step(self, *, straight: float = STRAIGHT) -> None:
        """Draw the noise, then the variance of one group after the other.

        Args:
            straight: How likely there is nothing but slopes.
        """
        if not self.known:
            self.noise = self._drawn_noise()
        self._settle()
        belief = self._belief(straight)
        order = self.rng.permutation(len(self.variances))
        while len(order):
            awake = ~self._single[order] | (self.variances[order] > 0.0)
            if awake[0]:
                self._move(int(order[0]), belief[order[0]])
                order = order[1:]
            else:
                asleep = order[: int(awake.argmax()) or None]
                order = order[self._wake(asleep, belief[asleep]) :]

    def _belief(self, straight: float) -> Float[Array, "g k"]:
        """The log probability of every variance of each group, given which are there.

        How many groups of a kind there are is not known beforehand, but drawn; and so
        is whether there are any but slopes.
        """
        kinds, there = self.groups.kinds, self.variances > 0.0
        beliefs = self.groups.beliefs
        seen = [np.bincount(kinds, side, len(Kind)) for side in (there, ~there)]
        chances = np.asarray(self.rng.beta(*(beliefs.T + seen)))
        if not there[kinds != Kind.SLOPE].any():
            none = straight + (1.0 - straight) * _none_at_all(beliefs[1:], seen[1][1:])
            if self.rng.random() * none < straight:
                chances[1:] = 0.0
        # Never quite never: what is plain to see ends what is straight at once.
        chance = np.clip(chances[kinds], ROUNDING, 1.0 - ROUNDING)[:, None]
        return np.concatenate([np.log1p(-chance), np.log(chance) + self._slab], axis=1)

    def _present(self) -> tuple[Int[Array, " k"], Float[Array, " k"]]:
        """The functions that are there, and their deviations."""
        prior = self.groups.each(self.variances)
        (there,) = np.nonzero(prior)
        return there, np.sqrt(prior[there])

    def weights(self) -> tuple[Float[Array, " q"], Float[Array, " q"]]:
        """The mean of the weights, given the present variances, and a draw of them."""
        there, root = self._present()
        B, target = self._scaled(there, root)
        mean, tossed = self._tossed_weights(B, target)
        out = np.zeros((2, self.groups.n))
        out[:, there] = root * mean, root * tossed
        return out[0], out[1]

    def _drawn_noise(self) -> float:
        """Draw the variance of the noise, given weights that are drawn for it."""
        squares, (B, target) = self.sums.squares, self._scaled(*self._present())
        _, w = self._tossed_weights(B, target)
        left = max(squares - 2.0 * w @ target + w @ B @ w, 0.0)
        return max(float(0.5 * left / self.rng.gamma(0.5 * self.sums.n)), LEAST_NOISE)

    def _scaled(
        self, there: Int[Array, " p"], root: Float[Array, " p"]
    ) -> tuple[Float[Array, "p p"], Float[Array, " p"]]:
        """The sums of some functions, in units of their deviations."""
        gram = self.sums.gram[np.ix_(there, there)]
        return root[:, None] * gram * root, root * self.sums.target[there]

    def _tossed_weights(
        self, B: Float[Array, "p p"], target: Float[Array, " p"]
    ) -> tuple[Float[Array, " p"], Float[Array, " p"]]:
        L = _factor(B, self.noise)
        mean = np.asarray(cho_solve((L, True), target, check_finite=False))
        tossed = np.sqrt(self.noise) * self.rng.normal(size=len(mean))
        return mean, mean + _solved(L, tossed, trans=1)

    def _settle(self) -> None:
        """Sum up what the records say of each function beside those that are there.

        Of :math:`M` only what is asked for is ever formed: it is the sums over the
        records less a product of two narrow matrices, which changes make wider.
        """
        s, (there, root) = self.sums, self._present()
        T = root[:, None] * s.gram[there]
        L = _factor(T[:, there] * root, self.noise)
        half, solved = _solved(L, T), _solved(L, root * s.target[there])
        p, q = half.shape
        most = p + sum(map(len, self._members))
        self._rank, self._tall, self._wide = p, np.empty((q, most)), np.empty((most, q))
        self._tall[:, :p], self._wide[:p] = half.T / self.noise, half
        self._diagonal = (np.diag(s.gram) - np.sum(half**2, axis=0)) / self.noise
        self._r = (s.target - half.T @ solved) / self.noise

    def _across(self, rows: Int[Array, " b"]) -> Float[Array, "q b"]:
        """Some columns of M."""
        less = self._tall[:, : self._rank] @ self._wide[: self._rank, rows]
        return self.sums.gram[:, rows] / self.noise - less

    def _move(self, k: int, belief: Float[Array, " k"]) -> None:
        """Draw the variance of one group."""
        rows = self._members[k]
        if self.variances[k] * self._loudest[k] > PLAIN * self.noise:
            # Of sums with it nothing but rounding would be left without it.
            self.variances[k] = 0.0
            self._settle()
        less = self._tall[rows, : self._rank] @ self._wide[: self._rank, rows]
        block = self._squares[k] / self.noise - less
        if len(rows) == 1:
            d, rho = block[0], self._r[rows]
        else:
            d, axes = np.linalg.eigh(block)
            rho = axes.T @ self._r[rows]
        gains = _gains(self._grid[:, None] - self.variances[k], d, rho).sum(axis=1)
        self._change(k, float(self._grid[_tossed(belief + gains, self.rng)]))

    def _change(self, k: int, variance: float) -> None:
        rows, step = self._members[k], variance - self.variances[k]
        if step == 0.0:
            return
        self.variances[k] = variance
        across = self._across(rows)
        if len(rows) == 1:
            turned = (step / (1.0 + step * across[rows[0], 0])) * across.T
        else:
            inner = np.eye(len(rows)) + step * across[rows]
            turned = step * np.linalg.solve(inner, across.T)
        new = slice(self._rank, self._rank + len(rows))
        self._tall[:, new], self._wide[new], self._rank = across, turned, new.stop
        self._diagonal -= np.einsum("qb,bq->q", across, turned)
        self._r = self._r - self._r[rows] @ turned

    def _wake(self, asleep: Int[Array, " a"], belief: Float[Array, "a k"]) -> int:
        """Draw the variances of groups of one function that is not there, in order.

        As long as none wakes nothing changes, so they are tossed for all at once.

        Returns:
            How many were tossed for: up to the first that wakes, or all.
        """
        at = self._first[asleep]
        told = belief.T + _gains(self._grid[:, None], self._diagonal[at], self._r[at])
        told -= told.max(axis=0)
        there = np.exp(told[1:]).sum(axis=0)
        chance = there / (there + np.exp(told[0]))
        (awake,) = np.nonzero(self.rng.random(len(asleep)) < chance)
        if not len(awake):
            return len(asleep)
        i = int(awake[0])
        k = 1 + _tossed(told[1:, i], self.rng)
        self._change(int(asleep[i]), float(self._grid[k]))
        return i + 1


def drawn(
    starts: Alternatives,
    chain: Callable[[Choice], Chain],
    n_draws: int,
    rng: np.random.Generator,
) -> Drawn:
    """Draw by a chain from each start, from each as often as it is likely.

    A chain seldom finds from bends to none, or back, by itself.

    Args:
        starts: Hyperparameters to set out from.
        chain: Makes the chain from one of them.
        n_draws: How many to draw.
        rng: Decides which draw is from which start.
    """
    members, found = starts.members(n_draws, rng), {}
    for start in np.unique(members).tolist():
        own = chain(starts.choices[start])
        # What is straight seldom tries anything else: at first nothing is.
        for k in range(BURN):
            own.step(straight=0.0 if k < OPEN else STRAIGHT)
        for i in np.flatnonzero(members == start).tolist():
            for _ in range(APART):
                own.step()
            found[i] = own.groups.each(own.variances), own.noise
    variances, noises = zip(*(found[i] for i in range(n_draws)), strict=True)
    return Drawn(np.array(variances), np.array(noises))


def _none_at_all(beliefs: Float[Array, "k 2"], n: Float[Array, " k"]) -> float:
    """How likely none of so many groups of each kind is there, by what is believed."""
    there, absent = beliefs.T
    return float(np.exp(betaln(there, absent + n) - betaln(there, absent)).prod())


def _factor(B: Float[Array, "k k"], noise: float) -> Float[Array, "k k"]:
    A = B.copy()
    A[np.diag_indices(len(A))] += noise
    return np.asarray(cholesky(A, lower=True, overwrite_a=True, check_finite=False))


def _solved(
    L: Float[Array, "k k"], b: Float[Array, "k ..."], trans: int = 0
) -> Float[Array, "k ..."]:
    return solve_triangular(L, b, lower=True, trans=trans, check_finite=False)


def _gains(
    D: Float[Array, "k 1"], d: Float[Array, " b"], rho: Float[Array, " b"]
) -> Float[Array, "k b"]:
    """The gain in log probability along each axis."""
    stretched = np.maximum(1.0 + D * d, TINY)
    return 0.5 * (D * rho**2 / stretched - np.log(stretched))


def _tossed(told: Float[Array, " k"], rng: np.random.Generator) -> int:
    """Choose one by its log probability."""
    shares = np.cumsum(np.exp(told - told.max()))
    return int(np.searchsorted(shares, rng.random() * shares[-1], side="right"))
