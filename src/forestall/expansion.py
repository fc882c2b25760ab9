"""Fitted kernel functions of the action: evaluated, differentiated, compressed."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int
from scipy.linalg import solve_triangular

from forestall.arrays import Array
from forestall.kernels import Gaussian, gram

# Kernel values handled at a time: two megabytes of them stay in the cache.
BLOCK = 1 << 18
# More centres than this are not looked for: the search would cost more than it saves.
MOST = 300


@dataclass(frozen=True, eq=False)
class Expansion:
    r"""One function of the action for each context, all on the same centres.

    .. math:: f_q(a) = \sum_j \omega_{qj}\, k(c_j, a)  \quad (9)

    Args:
        kernel: The kernel of the actions, :math:`k_a`.
        centres: The points :math:`c_j`: historical actions, or fewer that span them.
        weights: The weights :math:`\omega`, a row for each context.
    """

    kernel: Gaussian
    centres: Float[Array, "m d"]
    weights: Float[Array, "q m"]

    def __call__(self, a: Float[Array, "q s d"]) -> Float[Array, "q s"]:
        """Evaluate each function at its own points."""
        return self.value_and_gradient(a)[0]

    def gradient(self, a: Float[Array, "q s d"]) -> Float[Array, "q s d"]:
        r"""Differentiate each function at its own points.

        .. math:: \nabla f(a) = \sum_j \omega_j k(c_j, a) (c_j - a) / \sigma^2
            \quad (10)
        """
        return self.value_and_gradient(a)[1]

    def value_and_gradient(
        self, a: Float[Array, "q s d"]
    ) -> tuple[Float[Array, "q s"], Float[Array, "q s d"]]:
        """Evaluate and differentiate with one pass over the kernel's rows."""
        q, s, d = a.shape
        sigma = self.kernel.bandwidth
        t, c = a / sigma, self.centres / sigma
        values, slopes = np.empty((q, s)), np.empty(a.shape)
        step = max(1, BLOCK // max(1, s * len(c)))
        for i in range(0, q, step):
            part = t[i : i + step]
            rows = gram(part.reshape(-1, d), c).reshape(*part.shape[:2], len(c))
            rows *= self.weights[i : i + step, None, :]
            values[i : i + step] = rows.sum(axis=2)
            slopes[i : i + step] = rows @ c
        return values, (slopes - values[:, :, None] * t) / sigma


@dataclass(frozen=True, eq=False)
class Basis:
    """A few actions whose kernel functions span those of all records.

    The functions :math:`k_a(a_i, .)` of a thousand records in one or two dimensions
    are linear combinations of a few dozen of them to rounding. The pivots of an
    incomplete Cholesky factorisation name these, and turn a sum over all records into
    a sum over the pivots.

    Args:
        kernel: The kernel of the actions.
        centres: The chosen actions.
        mixing: How each record's function is made of the chosen ones.
    """

    kernel: Gaussian
    centres: Float[Array, "m d"]
    mixing: Float[Array, "n m"]

    @classmethod
    def spanning(
        cls,
        kernel: Gaussian,
        actions: Float[Array, "n d"],
        probes: Float[Array, "p d"],
        tolerance: float = 1e-14,
    ) -> Basis | None:
        """Choose the pivots, or ``None`` where they would not be far fewer.

        Args:
            kernel: The kernel of the actions.
            actions: The actions of all records.
            probes: Points where the functions will be evaluated: the residual must
                be small there too, or an error at the records could grow.
            tolerance: The largest squared residual that is left.
        """
        points = np.concatenate([actions, probes]) / kernel.bandwidth
        limit = min(MOST, len(actions) // 4)
        pivots, columns = pivoted_cholesky(points, limit, tolerance)
        if len(pivots) == limit:
            return None
        n, chosen = len(actions), columns[pivots]
        mixing = solve_triangular(chosen, columns[:n].T, trans="T", lower=True).T
        return cls(kernel, points[pivots] * kernel.bandwidth, mixing)

    def expand(self, weights: Float[Array, "q n"]) -> Expansion:
        """Rewrite sums over all records as sums over the chosen actions."""
        return Expansion(self.kernel, self.centres, weights @ self.mixing)


def pivoted_cholesky(
    points: Float[Array, "n d"], limit: int, tolerance: float
) -> tuple[Int[Array, " k"], Float[Array, "n k"]]:
    """Factor the Gram matrix greedily until its largest residual is small.

    Returns:
        The pivots, at most ``limit`` of them, and their columns of the factor.
    """
    residual = np.ones(len(points))
    columns = np.zeros((len(points), limit))
    pivots: list[int] = []
    for k in range(limit):
        pivot = int(residual.argmax())
        if residual[pivot] <= tolerance:
            break
        row = gram(points[pivot : pivot + 1], points)[0]
        row -= columns[:, :k] @ columns[pivot, :k]
        columns[:, k] = row / np.sqrt(residual[pivot])
        residual = np.maximum(residual - columns[:, k] ** 2, 0.0)
        residual[pivot] = 0.0
        pivots.append(pivot)
    return np.array(pivots, dtype=int), columns[:, : len(pivots)]
