r"""Which functions a mean has, and how large they are, as far as the records tell.

Weights of functions that belong together, a group, have one prior deviation, which may
be nothing. Draws are from the posterior of all deviations and of the noise, by Gibbs
sampling: given those of all other groups, how likely each variance :math:`v'` of one
group is follows from its present one, :math:`v`, in closed form. With

.. math:: M = \Phi^\top K^{-1} \Phi, \quad r = \Phi^\top K^{-1} y, \quad D = v' - v,

and the eigenvalues :math:`d_i` of the group's block of :math:`M`, whose axes turn its
part of :math:`r` into :math:`\rho`,

.. math:: \log p(v') - \log p(v) =
    \tfrac12 \sum_i \Big( \frac{D \rho_i^2}{1 + D d_i} - \log(1 + D d_i) \Big),

weights integrated out. Then :math:`M` and :math:`r` change by as many ranks as the
group has functions.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float, Int
from scipy.linalg import cho_solve, cholesky, eigh, solve_triangular
from scipy.special import logsumexp

from forestall.arrays import Array
from forestall.woodbury import Woodbury

# The deviations that a group may have if it has any, for a standardised output, and
# the rate at which they are less believed (a penalised-complexity prior).
DEVIATIONS = np.geomspace(0.001, 4.0, 34)
RATE = 3.0
# Steps that are made before the first draw.
BURN = 12
LOW = 0.5


def slab() -> Float[Array, " k"]:
    """The log probability of each deviation, of a group that has any."""
    told = np.log(DEVIATIONS) - RATE * DEVIATIONS
    return told - logsumexp(told)


@dataclass(frozen=True, eq=False)
class Groups:
    """Functions that belong together.

    Args:
        owner: The group of each function; -1 for the constant, which stands alone.
        kinds: What each group is: a slope, a product, hills or bends.
    """

    owner: Int[Array, " q"]
    kinds: Int[Array, " g"]


@dataclass(frozen=True, eq=False)
class Drawn:
    """Draws of the variance of each group, and of the noise."""

    variances: Float[Array, "s g"]
    noises: Float[Array, " s"]


class Chain:
    """Goes from one set of variances to the next, as often as each is likely."""

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
        self.sums, self.groups, self.rng, self.known = sums, groups, rng, known
        self.v, self.noise = variances.astype(float).copy(), noise
        g = len(groups.kinds)
        self.members = [np.flatnonzero(groups.owner == k) for k in range(g)]
        self.single = np.array([len(m) == 1 for m in self.members], dtype=bool)
        self.first = np.array([m[0] if len(m) else 0 for m in self.members])
        low = LOW * np.sqrt(noise / sums.n)
        deviations = np.geomspace(min(low, 0.1), 4.0, 34)
        self.slab = -RATE * deviations
        self.slab -= logsumexp(self.slab)
        self.grid = np.r_[0.0, deviations**2]
        self.real = np.array([len(m) > 0 for m in self.members], dtype=bool)

    def step(self) -> None:
        kinds = self.groups.kinds
        prior = PRIORS.copy()
        prior[1, 1] = max(1.0, np.sum(kinds == 1))
        on = np.bincount(kinds, self.real & (self.v > 0), 4)
        off = np.bincount(kinds, self.real & (self.v == 0), 4)
        chances = self.rng.beta(prior[:, 0] + on, prior[:, 1] + off)
        chances[3] = 0.5
        there = np.log(np.clip(chances[self.groups.kinds], 1e-12, 1.0 - 1e-12))
        absent = np.log1p(-np.exp(there))
        self.belief = np.concatenate(
            [absent[:, None], there[:, None] + self.slab[None]], axis=1
        )
        self._settle()
        order = self.rng.permutation(len(self.v))
        resting = self.single & (self.v == 0.0)
        for k in order[~resting[order]].tolist():
            if len(self.members[k]):
                self._move(k)
        resting = self.single & (self.v == 0.0)
        self._wake(order[resting[order]])

    def _settle(self) -> None:
        """Draw the noise, given the weights, and sum up for the groups."""
        s, owner = self.sums, self.groups.owner
        prior = np.where(owner < 0, 1.0, self.v[owner])
        on = np.flatnonzero(prior > 0.0)
        root = np.sqrt(prior[on])
        T = root[:, None] * s.gram[on]
        B = T[:, on] * root
        if not self.known:
            L = self._factor(B)
            target = root * s.target[on]
            mu = cho_solve((L, True), target)
            xi = self.rng.normal(size=len(on))
            w = mu + np.sqrt(self.noise) * solve_triangular(L, xi, lower=True, trans=1)
            left = s.squares - 2.0 * w @ target + w @ B @ w
            self.noise = float(
                max(left, 1e-12 * s.squares + 1e-300)
                / 2.0
                / self.rng.gamma(0.5 * s.n)
            )
        L = self._factor(B)
        half = solve_triangular(L, T, lower=True)
        self.M = (s.gram - half.T @ half) / self.noise
        solved = solve_triangular(L, root * s.target[on], lower=True)
        self.r = (s.target - half.T @ solved) / self.noise

    def _factor(self, B: Float[Array, "k k"]) -> Float[Array, "k k"]:
        A = B.copy()
        A[np.diag_indices(len(A))] += self.noise
        return cholesky(A, lower=True)

    def _move(self, k: int) -> None:
        rows = self.members[k]
        if len(rows) == 1:
            d, rho = self.M[rows, rows], self.r[rows]
        else:
            d, axes = eigh(self.M[np.ix_(rows, rows)])
            rho = axes.T @ self.r[rows]
        told = self.belief[k] + _gain(self.grid[:, None] - self.v[k], d, rho)
        new = self.grid[_tossed(told, self.rng)]
        self._change(k, new)

    def _change(self, k: int, new: float) -> None:
        step, rows = new - self.v[k], self.members[k]
        self.v[k] = new
        if step == 0.0:
            return
        across = self.M[:, rows]
        if len(rows) == 1:
            c = step / (1.0 + step * self.M[rows[0], rows[0]])
            self.r = self.r - across[:, 0] * (c * self.r[rows[0]])
            self.M -= np.outer(across[:, 0] * c, across[:, 0])
            return
        inner = np.eye(len(rows)) + step * self.M[np.ix_(rows, rows)]
        turned = step * np.linalg.solve(inner, across.T)
        self.r = self.r - turned.T @ self.r[rows]
        self.M -= across @ turned

    def _wake(self, order: Int[Array, " k"]) -> None:
        """Give those of one function that are not there a chance, up to the first."""
        while len(order):
            at = self.first[order]
            d, rho = self.M[at, at], self.r[at]
            told = self.belief[order].T + _each(self.grid[:, None], d, rho)
            there = logsumexp(told[1:], axis=0) - told[0]
            awake = self.rng.random(len(order)) < 1.0 / (1.0 + np.exp(-there))
            if not awake.any():
                return
            i = int(awake.argmax())
            new = self.grid[1 + _tossed(told[1:, i], self.rng)]
            self._change(int(order[i]), new)
            order = order[i + 1 :]


def _each(D, d, rho):
    stretched = np.maximum(1.0 + D * d, 1e-300)
    return 0.5 * (D * rho**2 / stretched - np.log(stretched))


def _gain(D, d, rho):
    return _each(D, d, rho).sum(axis=-1)


def _tossed(told: Float[Array, " k"], rng: np.random.Generator) -> int:
    """Choose one with its log probability."""
    share = np.exp(told - told.max())
    return int(np.searchsorted(np.cumsum(share), rng.random() * share.sum()))


PRIORS = np.array([[1.0, 1.0], [1.0, 0.0], [1.0, 3.0], [1.0, 1.0]])


def several(make, members, n, rng, burn=BURN):
    """Draw by a chain for each start."""
    out = None
    for k in np.unique(members).tolist():
        chain = make(k)
        (own,) = np.nonzero(members == k)
        if out is None:
            out = np.empty((n, len(chain.v))), np.empty(n)
        for i in range(-burn, len(own)):
            chain.step()
            if i >= 0:
                out[0][own[i]], out[1][own[i]] = chain.v, chain.noise
    return Drawn(*out)
