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
LEAST_NOISE, ROUNDING, TINY, PLAIN = 1e-4, 1e-12, 1e-15, 1e6


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

    @cached_property
    def sizes(self) -> Int[Array, " g"]:
        """How many functions each group has."""
        return np.array([len(rows) for rows in self.members], dtype=int)

    @cached_property
    def _every(self) -> Int[Array, " m"]:
        return np.concatenate([np.zeros(1, dtype=int), *self.members])

    def each(self, variances: Float[Array, " g"]) -> Float[Array, " q"]:
        """Give the variance of each function, by those of the groups."""
        variances = np.r_[1.0, np.repeat(variances, self.sizes)]
        return np.bincount(self._every, variances, self.n)

    @property
    def beliefs(self) -> Float[Array, "k 2"]:
        """How many groups of each kind are there, and are not, before any is seen.

        A variable has a slope as likely as not. Where there is more than slopes, it has
        hills one time in four, and the mean a curve of everything nine times in ten,
        however faint; bends are as likely as not, and of many groups one is to be
        expected, however many they are.
        """
        many = max(1.0, float(np.sum(self.kinds == Kind.ONE_OF_MANY)))
        return np.array([[1.0, 1.0], [1.0, many], [1.0, 3.0], [9.0, 1.0], [1.0, 1.0]])


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
        self._alike = [
            np.flatnonzero(groups.sizes == b) for b in np.unique(groups.sizes)
        ]
        squares = np.diag(sums.gram)
        self._loudest = np.array([squares[rows].max() for rows in groups.members])
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
        for k in self.rng.permutation(len(self._alike)).tolist():
            order = self.rng.permutation(self._alike[k])
            while len(order):
                awake = self.variances[order] > 0.0
                self._leave_if_plain(int(order[0]))
                # As long as none wakes nothing changes: they are tossed for at once.
                n = 1 if awake[0] else int(awake.argmax()) or len(order)
                order = order[self._move(order[:n], belief[order[:n]]) :]

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
        mean = np.asarray(cho_solve((L, True), target))
        tossed = np.sqrt(self.noise) * self.rng.normal(size=len(mean))
        return mean, mean + solve_triangular(L, tossed, lower=True, trans=1)

    def _settle(self) -> None:
        """Sum up what the records say of each function beside those that are there.

        Of :math:`M` only what is asked for is ever formed: it is the sums over the
        records less a product of two narrow matrices, which changes make wider.
        """
        s, (there, root) = self.sums, self._present()
        T = root[:, None] * s.gram[there]
        L = _factor(T[:, there] * root, self.noise)
        half = solve_triangular(L, T, lower=True)
        solved = solve_triangular(L, root * s.target[there], lower=True)
        p, q = half.shape
        most = p + int(self.groups.sizes.sum())
        self._rank, self._tall, self._wide = p, np.empty((q, most)), np.empty((most, q))
        self._tall[:, :p], self._wide[:p] = half.T / self.noise, half
        self._diagonal = (np.diag(s.gram) - np.sum(half**2, axis=0)) / self.noise
        self._r = (s.target - half.T @ solved) / self.noise

    def _across(self, rows: Int[Array, " b"]) -> Float[Array, "q b"]:
        """Some columns of M."""
        less = self._tall[:, : self._rank] @ self._wide[: self._rank, rows]
        return self.sums.gram[:, rows] / self.noise - less

    def _leave_if_plain(self, k: int) -> None:
        """Sum up anew without a group of which else nothing but rounding is left."""
        most = self.variances[k] * self._loudest[k]
        if most > PLAIN * self.noise:
            self.variances[k] = 0.0
            self._settle()

    def _move(self, groups: Int[Array, " k"], belief: Float[Array, "k v"]) -> int:
        """Draw the variances of groups of one size, in order, until one changes.

        Args:
            groups: One of them, or several that are not there.
            belief: The log probability of each of their variances.

        Returns:
            How many were drawn.
        """
        told = belief + self._gains(groups)
        shares = np.cumsum(np.exp(told - told.max(axis=1, keepdims=True)), axis=1)
        tosses = self.rng.random((len(groups), 1)) * shares[:, -1:]
        drawn = self._grid[np.sum(shares <= tosses, axis=1)]
        changed = drawn != self.variances[groups]
        if not changed.any():
            return len(groups)
        i = int(changed.argmax())
        self._change(int(groups[i]), float(drawn[i]))
        return i + 1

    def _gains(self, groups: Int[Array, " k"]) -> Float[Array, "k v"]:
        """How much likelier each variance makes the records than the present one."""
        rows = np.stack([self.groups.members[k] for k in groups])
        if rows.shape[1] == 1:
            d, rho = self._diagonal[rows], self._r[rows]
        else:
            tall = self._tall[:, : self._rank][rows]
            wide = self._wide[: self._rank].T[rows]
            blocks = self.sums.gram[rows[:, :, None], rows[:, None]] / self.noise
            d, axes = np.linalg.eigh(blocks - tall @ wide.transpose(0, 2, 1))
            rho = np.einsum("kba,kb->ka", axes, self._r[rows])
        D = self._grid[None, :, None] - self.variances[groups, None, None]
        stretched = np.maximum(1.0 + D * d[:, None], TINY)
        gains = D * rho[:, None] ** 2 / stretched - np.log(stretched)
        return np.asarray(0.5 * gains.sum(axis=2))

    def _change(self, k: int, variance: float) -> None:
        rows, step = self.groups.members[k], variance - self.variances[k]
        self.variances[k] = variance
        across = self._across(rows)
        inner = np.eye(len(rows)) + step * across[rows]
        turned = step * np.linalg.solve(inner, across.T)
        new = slice(self._rank, self._rank + len(rows))
        self._tall[:, new], self._wide[new], self._rank = across, turned, new.stop
        self._diagonal -= np.einsum("qb,bq->q", across, turned)
        self._r = self._r - turned.T @ self._r[rows]


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
