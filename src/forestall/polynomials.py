"""The constant, the inputs and their products: trends that go on beyond the records."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float, Int

from forestall.arrays import Array


def polynomials(z: Float[Array, "n d"], order: int) -> Float[Array, "n p"]:
    """List the constant, the inputs and, for order 2, their products."""
    parts = [np.ones((len(z), 1)), z]
    if order == 2:
        i, j, twice = _products(z.shape[1])
        parts.append(z[:, i] * z[:, j] * twice)
    return np.concatenate(parts, axis=1)


def polynomial_sum(
    z: Float[Array, "n d"], weights: Float[Array, "p s"]
) -> Float[Array, "n s"]:
    """Add them up by their weights; there may be none for products."""
    d = z.shape[1]
    out = z @ weights[1 : 1 + d] + weights[0]
    (there,) = np.nonzero(weights[1 + d :].any(axis=1))
    if len(there):
        i, j, twice = (v[there] for v in _products(d))
        out += (z[:, i] * z[:, j]) @ (twice[:, None] * weights[1 + d + there])
    return out


def polynomial_gradient(
    z: Float[Array, "n d"], weights: Float[Array, " p"]
) -> Float[Array, "n d"]:
    """Differentiate such a sum by the inputs."""
    d = z.shape[1]
    out = np.tile(weights[1 : 1 + d], (len(z), 1))
    products = weights[1 + d :]
    if products.any():
        i, j, twice = _products(d)
        B = np.zeros((d, d))
        B[i, j] = products * twice
        out += z @ (B + B.T)
    return out


def _products(
    d: int,
) -> tuple[Int[Array, " k"], Int[Array, " k"], Float[Array, " k"]]:
    """The factors of each product, and the product's own.

    Off the diagonal a product stands for two: (z'w)^2 counts it twice.
    """
    i, j = np.triu_indices(d)
    return i, j, np.where(i == j, 1.0, np.sqrt(2.0))
