"""Rows of a Gaussian kernel, and the widths that the median heuristic gives it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Float32

from forestall.arrays import Array

# Beyond this many records the median of their distances is settled; all pairs of
# 100,000 would be 40 GB.
MEDIAN_RECORDS = 2000
# Points that tell where the middle is, and how many widths from it all is equally far.
SAMPLE, FARTHEST = 101, 1e6
# Kernel values made at a time: two megabytes of them stay in the cache.
BLOCK = 1 << 18


@dataclass(frozen=True, eq=False)
class Gaussian:
    r"""The Gaussian kernel with one width for each dimension.

    .. math:: k(v, v') = \exp\left(-\tfrac12 \sum_d (v_d - v'_d)^2 / \sigma_d^2\right)

    Args:
        bandwidth: The widths :math:`\sigma`, in the unit of the data.

    Example:
        >>> k = Gaussian(np.array([2.0]))
        >>> k(np.array([[0.0]]), np.array([[0.0], [2.0]])).round(4).tolist()
        [[1.0, 0.6065]]
    """

    bandwidth: Float[Array, " d"]

    def __call__(
        self, v: Float[Array, "n d"], centres: Float[Array, "m d"]
    ) -> Float[Array, "n m"]:
        """Evaluate the kernel between every point and every centre."""
        return gram(v / self.bandwidth, centres / self.bandwidth)

    def triangle(self, v: Float[Array, "n d"]) -> Float[Array, "n n"]:
        """Evaluate the kernel between the points; what is above the diagonal is noise.

        The columns are contiguous, as LAPACK wants them.
        """
        return triangle(v / self.bandwidth)

    def fill_above(self, v: Float[Array, "n d"], place: Float[Array, "n n"]) -> None:
        """Write the kernel above the diagonal of a matrix of contiguous columns."""
        fill_above(v / self.bandwidth, place)

    def __mul__(self, other: Gaussian) -> Gaussian:
        """Make the product kernel over the concatenated blocks (assumption 1)."""
        return Gaussian(np.concatenate([self.bandwidth, other.bandwidth]))


def gram(v: Float[Array, "n d"], c: Float[Array, "m d"]) -> Float[Array, "n m"]:
    """Evaluate the Gaussian kernel of width one, in one array and in place."""
    if not c.size:
        return np.ones((len(v), len(c)))
    if len(v) == 1:
        # No product to speak of: the differences are cheaper, and sharper.
        return np.exp(-0.5 * _squares(np.clip(c - v, -FARTHEST, FARTHEST)))[None]
    left, right = _lifted(v, c, _middle(v, c))
    rows = np.empty((len(v), len(c)))
    step = max(1, BLOCK // len(c))
    for i in range(0, len(v), step):
        part = rows[i : i + step]
        np.matmul(left[i : i + step], right, out=part)
        np.exp(part, out=part)
    return rows


def quick_gram(v: Float[Array, "n d"], c: Float[Array, "m d"]) -> Float32[Array, "n m"]:
    """Evaluate the same with exponentials of seven digits, which are quicker.

    For centres ``c`` among the records, which are never absurd.
    """
    if not c.size:
        return np.ones((len(v), len(c)), dtype=np.float32)
    left, right = _lifted(v, c, c.mean(axis=0))
    rows = np.empty((len(v), len(c)), dtype=np.float32)
    step = max(1, BLOCK // len(c))
    for i in range(0, len(v), step):
        part = rows[i : i + step]
        # The distances are differences of large numbers, so these have all digits.
        part[...] = left[i : i + step] @ right
        np.exp(part, out=part)
    return rows


def triangle(v: Float[Array, "n d"]) -> Float[Array, "n n"]:
    """Evaluate the lower triangle of a Gram matrix, half of the exponentials."""
    n = len(v)
    if not v.size:
        return np.ones((n, n))
    left, right = _lifted(v, v, _middle(v, v))
    # Zeros that nobody touches take no memory; rows here are columns to LAPACK.
    K = np.zeros((n, n))
    step = max(1, BLOCK // n)
    for i in range(0, n, step):
        part = K[i : i + step, i:]
        np.matmul(left[i : i + step], right[:, i:], out=part)
        np.exp(part, out=part)
    return K.T


def fill_above(v: Float[Array, "n d"], place: Float[Array, "n n"]) -> None:
    """Evaluate the other triangle, in a matrix whose diagonal and lower one stay."""
    left, right = _lifted(v, v, _middle(v, v))
    rows, n = place.T, len(v)
    step = max(1, BLOCK // n)
    for i in range(0, n, step):
        part = np.exp(left[i : i + step] @ right[:, : i + step])
        rows[i : i + step, :i] = part[:, :i]
        below = np.tri(len(part), k=-1, dtype=bool)
        np.copyto(rows[i : i + step, i : i + step], part[:, i:], where=below)


def _middle(v: Float[Array, "n d"], c: Float[Array, "m d"]) -> Float[Array, " d"]:
    """The middle of the larger side, which an absurd point does not move."""
    many = v if len(v) > len(c) else c
    return np.median(many[:: -(-len(many) // SAMPLE)], axis=0)


def _lifted(
    v: Float[Array, "n d"], c: Float[Array, "m d"], middle: Float[Array, " d"]
) -> tuple[Float[Array, "n e"], Float[Array, "e m"]]:
    """Add two dimensions in which the inner product is minus half the distance."""
    # Distances lose digits to cancellation far from the origin, so move there first,
    # and stay within what matters: an absurd point must cost no other its digits.
    v, c = (np.clip(side - middle, -FARTHEST, FARTHEST) for side in (v, c))
    left, right = -0.5 * _squares(v)[:, None], -0.5 * _squares(c)[None]
    return (
        np.concatenate([v, left, np.ones((len(v), 1))], axis=1),
        # By rows: a strided product would not go through BLAS.
        np.concatenate([c.T, np.ones((1, len(c))), right]),
    )


def _squares(v: Float[Array, "n d"]) -> Float[Array, " n"]:
    return np.einsum("nd,nd->n", v, v)


def median_bandwidth(v: Float[Array, "n d"], factor: float) -> Float[Array, " d"]:
    """Take the median distance between two records, times ``factor``.

    Where more than half of all pairs coincide, as in a block of few categories,
    the median is zero and the root mean square distance stands in for it.
    """
    from scipy.spatial.distance import pdist

    n, d = v.shape
    if d and n > MEDIAN_RECORDS:
        # Sorted first, so that the order of the records does not matter.
        v = v[np.lexsort(v.T)][:: -(-n // MEDIAN_RECORDS)]
    distances = pdist(v) if d and n > 1 else np.zeros(1)
    width = (
        np.median(distances, overwrite_input=True)
        or np.sqrt(np.mean(distances**2))
        or 1.0
    )
    return np.full(d, factor * width)
