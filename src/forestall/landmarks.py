"""Records that stand for all others: how they are chosen, and the functions they span.

"Landmarks" are chosen among the records: at random, spread out as by k-means, or by how
much each would add to what the others say (approximate ridge leverage). Records are
ranked by their values first, so that their order in the table does not matter.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int
from scipy.linalg import solve_triangular
from scipy.linalg.blas import dsyrk
from scipy.linalg.lapack import dpstrf

from forestall.arrays import Array
from forestall.kernels import Gaussian, gram
from forestall.leaving import DECIMALS
from forestall.ridge import Ridge

# Landmarks are sought among so many records, or this many times their own number.
CANDIDATES = 2_000
TIMES = 20
# The pilot that judges how much each record would add, in times of the landmarks.
PILOT = 4
# Rounds in which the spread-out landmarks move to the middle of what they stand for.
ROUNDS = 3


@dataclass(frozen=True, eq=False)
class Landmarks:
    r"""The functions :math:`k(c_j, .)` of some points that do not repeat each other.

    Args:
        kernel: The kernel.
        centres: The points :math:`c_j`.
        factor: The lower Cholesky factor :math:`L` of their Gram matrix.
        early: Whether functions are made orthonormal before their products are summed.
            That takes as long again as the sum, and loses no digits to it.
    """

    kernel: Gaussian
    centres: Float[Array, "m d"]
    factor: Float[Array, "m m"]
    early: bool = False

    @classmethod
    def of(
        cls,
        kernel: Gaussian,
        points: Float[Array, "k d"],
        tolerance: float,
        early: bool = False,
    ) -> Landmarks:
        """Keep the points that add more than ``tolerance`` to those before them."""
        if not points.size:
            return cls(kernel, points[:1], np.ones((1, 1)), early)
        # A pivoted factor stops where rounding would take over; no jitter is needed,
        # and where the points lie in one or two dimensions few of them remain.
        factor, order, rank, _ = dpstrf(
            kernel.triangle(points), tol=tolerance, lower=1, overwrite_a=1
        )
        factor = np.asfortranarray(np.tril(factor[:rank, :rank]))
        return cls(kernel, points[order[:rank] - 1], factor, early)

    @property
    def rank(self) -> int:
        """The number of points kept."""
        return len(self.centres)

    def rows(self, v: Float[Array, "n d"]) -> Float[Array, "n m"]:
        """Evaluate every function at each point."""
        return self.kernel(v, self.centres)

    def whiten(self, v: Float[Array, "m ..."]) -> Float[Array, "m ..."]:
        r"""Compute :math:`L^{-1} v`, orthonormal coordinates."""
        return solve_triangular(self.factor, v, lower=True, check_finite=False)

    def unwhiten(self, v: Float[Array, "m ..."]) -> Float[Array, "m ..."]:
        r"""Compute :math:`L^{-\top} v`: weights on the functions themselves."""
        return solve_triangular(
            self.factor, v, lower=True, trans="T", check_finite=False
        )

    def squares(self, rows: Float[Array, "n m"]) -> Float[Array, "m m"]:
        """Sum the products of the functions, or of orthonormal ones; one triangle."""
        return squared(self.whiten(rows.T).T if self.early else rows)

    def orthonormal(self, squares: Float[Array, "m m"]) -> Float[Array, "m m"]:
        """Give these sums for the orthonormal functions, both triangles."""
        A = squares + np.tril(squares, -1).T
        if self.early:
            return A
        A = self.whiten(self.whiten(A).T)
        return 0.5 * (A + A.T)

    def residue(self, v: Float[Array, "n d"]) -> Float[Array, " n"]:
        """How much of each point's own function the landmarks leave out."""
        half = self.whiten(self.rows(v).T)
        return np.maximum(1.0 - np.einsum("mn,mn->n", half, half), 0.0)


def squared(rows: Float[Array, "n m"]) -> Float[Array, "m m"]:
    """Compute the lower triangle of ``rows' rows``."""
    return dsyrk(1.0, rows.T, lower=1)


Strategy = Callable[
    [Float[Array, "n d"], int, float, np.random.Generator], Int[Array, " m"]
]


def uniform(
    z: Float[Array, "n d"], rank: int, penalty: float, rng: np.random.Generator
) -> Int[Array, " m"]:
    """Draw landmarks at random."""
    del penalty
    return rng.choice(len(z), rank, replace=False)


def kmeans(
    z: Float[Array, "n d"], rank: int, penalty: float, rng: np.random.Generator
) -> Int[Array, " m"]:
    """Spread landmarks out: k-means++, and then the records nearest to the means."""
    del penalty
    means = z[_spread_out(z, rank, rng)]
    for _ in range(ROUNDS):
        nearest = _distances(z, means).argmin(axis=1)
        counts = np.bincount(nearest, minlength=rank)[:, None]
        sums = np.zeros_like(means)
        np.add.at(sums, nearest, z)
        means = np.where(counts, sums / np.maximum(counts, 1), means)
    return _snapped(_distances(z, means))


def leverage(
    z: Float[Array, "n d"], rank: int, penalty: float, rng: np.random.Generator
) -> Int[Array, " m"]:
    """Draw landmarks by what a random pilot leaves unexplained of each record."""
    pilot = z[rng.choice(len(z), min(len(z), PILOT * rank), replace=False)]
    K = gram(pilot, pilot)
    # With fewer landmarks than the penalty can tell apart every outlier would count as
    # one; the tail of the spectrum says what they can be asked to resolve.
    half = -(-rank // 2)
    tail = float(np.linalg.eigvalsh(K)[:-half].sum()) / len(K)
    penalty = max(penalty, tail / half)
    explained = Ridge.of(K, penalty).explained(gram(pilot, z))
    # Scores above one say no more than one.
    scores = np.minimum((1.0 - explained) / (len(z) * penalty), 1.0)
    scores = np.maximum(scores, 1e-12)
    return rng.choice(len(z), rank, replace=False, p=scores / scores.sum())


STRATEGIES: dict[str, Strategy] = {
    "uniform": uniform,
    "kmeans": kmeans,
    "leverage": leverage,
}


def chosen(
    points: Float[Array, "n d"], rank: int, strategy: str, penalty: float, seed: int
) -> Int[Array, " m"]:
    """Choose the rows of the landmarks.

    Args:
        points: The records, in the units of the kernel's widths.
        rank: How many; all where there are no more.
        strategy: One of ``STRATEGIES``.
        penalty: The penalty of the regression.
        seed: Of the draws.
    """
    ranked = np.lexsort(np.round(points, DECIMALS).T[::-1])
    if rank >= len(points):
        return ranked
    rng = np.random.default_rng(seed)
    n_candidates = max(CANDIDATES, TIMES * rank)
    if len(points) > n_candidates:
        ranked = ranked[np.sort(rng.choice(len(points), n_candidates, replace=False))]
    rows = STRATEGIES[strategy](points[ranked], rank, penalty, rng)
    return ranked[np.sort(rows)]


def _spread_out(
    z: Float[Array, "n d"], rank: int, rng: np.random.Generator
) -> Int[Array, " m"]:
    """Draw each landmark with a chance that grows with its distance to the others."""
    rows = [int(rng.integers(len(z)))]
    squares = _distances(z, z[rows])[:, 0]
    while len(rows) < rank:
        total = squares.sum()
        if total <= 0.0:
            left = np.setdiff1d(np.arange(len(z)), rows)
            return np.append(rows, left[: rank - len(rows)])
        rows.append(int(rng.choice(len(z), p=squares / total)))
        squares = np.minimum(squares, _distances(z, z[rows[-1:]])[:, 0])
        squares[rows] = 0.0
    return np.array(rows)


def _distances(z: Float[Array, "n d"], c: Float[Array, "m d"]) -> Float[Array, "n m"]:
    squares = -2.0 * z @ c.T
    squares += np.einsum("nd,nd->n", z, z)[:, None]
    squares += np.einsum("md,md->m", c, c)
    return np.maximum(squares, 0.0, out=squares)


def _snapped(squares: Float[Array, "n m"]) -> Int[Array, " m"]:
    """Give each mean the nearest record that no other mean has."""
    # The mean of two records is as far from one as from the other, but for rounding.
    squares = np.round(squares, DECIMALS)
    rows: list[int] = []
    for column in squares.T:
        rows.append(int(column.argmin()))
        squares[rows[-1]] = np.inf
    return np.array(rows)
