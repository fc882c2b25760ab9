"""Rows of a Gaussian kernel, and the widths that the median heuristic gives it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from forestall.arrays import Array

# Beyond this many records the median of their distances is settled; all pairs of
# 100,000 would be 40 GB.
MEDIAN_RECORDS = 2000


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

    def __mul__(self, other: Gaussian) -> Gaussian:
        """Make the product kernel over the concatenated blocks (assumption 1)."""
        return Gaussian(np.concatenate([self.bandwidth, other.bandwidth]))


def gram(v: Float[Array, "n d"], c: Float[Array, "m d"]) -> Float[Array, "n m"]:
    """Evaluate the Gaussian kernel of width one, in one array and in place."""
    if not c.size:
        return np.ones((len(v), len(c)))
    # Distances lose digits to cancellation far from the origin, so move there first.
    centre = c.mean(axis=0)
    v, c = v - centre, c - centre
    rows = v @ c.T
    rows -= 0.5 * np.einsum("nd,nd->n", v, v)[:, None]
    rows -= 0.5 * np.einsum("md,md->m", c, c)[None, :]
    return np.exp(rows, out=rows)


def median_bandwidth(v: Float[Array, "n d"], factor: float) -> Float[Array, " d"]:
    """Take the median distance between two records, times ``factor``.

    Where more than half of all pairs coincide, as in a block of few categories,
    the median is zero and the root mean square distance stands in for it.
    """
    from scipy.spatial.distance import pdist

    n, d = v.shape
    if n > MEDIAN_RECORDS:
        # Sorted first, so that the order of the records does not matter.
        v = v[np.lexsort(v.T)][:: -(-n // MEDIAN_RECORDS)]
    distances = pdist(v) if d and n > 1 else np.zeros(1)
    width = np.median(distances) or np.sqrt(np.mean(distances**2)) or 1.0
    return np.full(d, factor * width)
