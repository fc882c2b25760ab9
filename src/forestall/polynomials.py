"""The constant, the inputs and their products: trends that go on beyond the records."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float

from forestall.arrays import Array


def polynomials(z: Float[Array, "n d"], order: int) -> Float[Array, "n p"]:
    """List the constant, the inputs and, for order 2, their products."""
    parts = [np.ones((len(z), 1)), z]
    if order == 2:
        i, j = np.triu_indices(z.shape[1])
        # Off the diagonal a product stands for two: (z'w)^2 counts it twice.
        parts.append(z[:, i] * z[:, j] * np.where(i == j, 1.0, np.sqrt(2.0)))
    return np.concatenate(parts, axis=1)


def polynomial_gradient(
    z: Float[Array, "n d"], weights: Float[Array, " p"], order: int
) -> Float[Array, "n d"]:
    """Differentiate a weighted sum of :func:`polynomials` by the inputs."""
    d = z.shape[1]
    out = np.tile(weights[1 : 1 + d], (len(z), 1))
    if order == 2:
        i, j = np.triu_indices(d)
        B = np.zeros((d, d))
        B[i, j] = weights[1 + d :] * np.where(i == j, 1.0, np.sqrt(2.0))
        out += z @ (B + B.T)
    return out
