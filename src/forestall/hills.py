"""Bumps along one input alone: what it adds whatever the others are.

Nine bumps side by side make any smooth curve within three standard deviations. Beyond
them they end, and the polynomial goes on.
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Float

from forestall.arrays import Array

# Tops a width apart, so many on either side of the middle.
WIDTH, REACH = 0.75, 4
TOPS = 2 * REACH + 1
# Beyond this nothing is left of any bump, and squares must not overflow.
FAR = 9.0


def hills(z: Float[Array, "n d"]) -> Float[Array, "n b"]:
    """Evaluate the bumps of each input, one input after the other."""
    t = _steps(z)
    return np.exp(-0.5 * t * t).reshape(len(z), z.shape[1] * TOPS)


def hills_gradient(
    z: Float[Array, "n d"], weights: Float[Array, " b"]
) -> Float[Array, "n d"]:
    """Differentiate a weighted sum of them by the inputs."""
    t = _steps(z)
    w = weights.reshape(z.shape[1], TOPS).astype(z.dtype)
    return np.asarray(-np.einsum("ndb,db->nd", t * np.exp(-0.5 * t * t), w) / WIDTH)


def _steps(z: Float[Array, "n d"]) -> Float[Array, "n d t"]:
    """How many widths from each top, in the precision of the inputs."""
    near = np.clip(z, -FAR, FAR) / z.dtype.type(WIDTH)
    return np.asarray(near[:, :, None] - np.arange(-REACH, REACH + 1, dtype=z.dtype))
