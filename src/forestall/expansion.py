"""Fitted kernel functions of the action: evaluated, differentiated, compressed."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int
from numpy.polynomial.chebyshev import chebder, chebpts1, chebvander
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
        moments = np.concatenate([np.ones((len(c), 1)), c], axis=1)
        sums = np.empty((q, s, d + 1))
        step = max(1, BLOCK // max(1, s * len(c)))
        for i in range(0, q, step):
            part = t[i : i + step]
            rows = gram(part.reshape(-1, d), c)
            shaped = rows.reshape(*part.shape[:2], len(c))
            shaped *= self.weights[i : i + step, None, :]
            sums[i : i + step] = (rows @ moments).reshape(*part.shape[:2], d + 1)
        values = sums[:, :, 0]
        return values, (sums[:, :, 1:] - values[:, :, None] * t) / sigma

    def within(
        self, lower: Float[Array, " d"], upper: Float[Array, " d"]
    ) -> Expansion | Surface:
        """Give the same functions in the form that is cheapest inside a box."""
        sizes = _sizes((upper - lower) / self.kernel.bandwidth)
        if sizes is None or sizes[0] * sizes[1] > 2 * len(self.centres):
            return self
        return Surface.of(self, lower, upper, sizes)


@dataclass(frozen=True, eq=False)
class Surface:
    r"""One function of one or two actions for each context, by its Chebyshev series.

    A Gaussian kernel is a product over the actions and smooth on the scale of its
    width, so inside a box a dozen or two polynomials of each action give it to
    rounding. What is left to do for a point are products of small matrices: no
    exponentials, and nothing that grows with the number of centres.

    Args:
        middle: The middle of the box.
        half: Half its width, or a little where it has none.
        table: For each context the coefficients of the function and of its
            derivative by each action, side by side.
    """

    middle: Float[Array, " d"]
    half: Float[Array, " d"]
    table: Float[Array, "q p k"]

    @classmethod
    def of(
        cls,
        f: Expansion,
        lower: Float[Array, " d"],
        upper: Float[Array, " d"],
        sizes: tuple[int, int],
    ) -> Surface:
        """Interpolate in the Chebyshev points of the box."""
        sigma, d = f.kernel.bandwidth, len(lower)
        middle = (lower + upper) / 2
        # An action with one feasible value has a box without width.
        half = np.maximum((upper - lower) / 2, 0.01 * sigma)
        c, reach = (f.centres - middle) / sigma, half / sigma
        first = _series(c[:, 0], float(reach[0]), sizes[0])
        second = np.ones((len(c), 1))
        if d == 2:
            second = _series(c[:, 1], float(reach[1]), sizes[1])
        both = (first[:, :, None] * second[:, None, :]).reshape(len(c), -1)
        value = (f.weights @ both).reshape(-1, *sizes)
        slopes = [_derivative(sizes[0]) @ value, value @ _derivative(sizes[1]).T]
        return cls(middle, half, np.concatenate([value, *slopes[:d]], axis=2))

    def value_and_gradient(
        self, a: Float[Array, "q s d"]
    ) -> tuple[Float[Array, "q s"], Float[Array, "q s d"]]:
        """Evaluate and differentiate each function at its own points."""
        (q, s, d), p = a.shape, self.table.shape[1]
        sums = np.empty((q, s, d + 1))
        step = max(1, BLOCK // (16 * s * p))
        for i in range(0, q, step):
            t = (a[i : i + step] - self.middle) / self.half
            first, *second = _polynomials(t, (p, self.table.shape[2] // (d + 1)))
            rows = (first @ self.table[i : i + step]).reshape(*t.shape[:2], d + 1, -1)
            if second:
                np.einsum("qskp,qsp->qsk", rows, second[0], out=sums[i : i + step])
            else:
                sums[i : i + step] = rows[..., 0]
        return sums[:, :, 0], sums[:, :, 1:] / self.half


def _sizes(widths: Float[Array, " d"]) -> tuple[int, int] | None:
    """How many polynomials of each action it takes, by the box in kernel widths."""
    if len(widths) not in (1, 2) or not np.isfinite(widths).all():
        return None
    # Found by trial: the error of a Gaussian is then below 1e-10 anywhere in the box.
    p = np.ceil(8.0 + 3.2 * widths).astype(int).tolist()
    return p[0], p[1] if len(p) == 2 else 1


def _series(c: Float[Array, " m"], reach: float, size: int) -> Float[Array, "m p"]:
    """Expand Gaussians of width one around ``c`` in Chebyshev polynomials."""
    nodes = chebpts1(size)
    to_series = chebvander(nodes, size - 1) * (2.0 / size)
    to_series[:, 0] /= 2.0
    return np.exp(-0.5 * (reach * nodes - c[:, None]) ** 2) @ to_series


def _derivative(size: int) -> Float[Array, "p p"]:
    """The matrix that differentiates a Chebyshev series."""
    D = np.zeros((size, size))
    if size > 1:
        D[:-1] = chebder(np.eye(size))
    return D


def _polynomials(
    t: Float[Array, "q s d"], sizes: tuple[int, int]
) -> list[Float[Array, "q s _"]]:
    """Evaluate the Chebyshev polynomials of each action, by their recurrence."""
    t = np.ascontiguousarray(np.moveaxis(t, 2, 0))
    T = np.empty((max(2, *sizes), *t.shape))
    T[0], T[1], twice = 1.0, t, 2.0 * t
    for k in range(2, len(T)):
        np.multiply(twice, T[k - 1], out=T[k])
        T[k] -= T[k - 2]
    pairs = zip(range(len(t)), sizes, strict=False)
    return [np.ascontiguousarray(np.moveaxis(T[:n, k], 0, 2)) for k, n in pairs]


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
