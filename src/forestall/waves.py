"""Random Fourier features: functions of the action that are sums of waves."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from forestall.arrays import Array

# Wave values handled at a time: two megabytes of them stay in the cache.
BLOCK = 1 << 18


@dataclass(frozen=True, eq=False)
class Waves:
    r"""One function of the action for each context, all on the same frequencies.

    .. math:: f_q(a) = \sum_j c_{qj} \cos(w_j^\top a) + s_{qj} \sin(w_j^\top a)

    Args:
        frequencies: The frequencies :math:`w_j`.
        cosines: The weights :math:`c`, a row for each context.
        sines: The weights :math:`s`.
    """

    frequencies: Float[Array, "f d"]
    cosines: Float[Array, "q f"]
    sines: Float[Array, "q f"]

    def __call__(self, a: Float[Array, "q s d"]) -> Float[Array, "q s"]:
        """Evaluate each function at its own points."""
        return self.value_and_gradient(a)[0]

    def gradient(self, a: Float[Array, "q s d"]) -> Float[Array, "q s d"]:
        """Differentiate each function at its own points."""
        return self.value_and_gradient(a)[1]

    def value_and_gradient(
        self, a: Float[Array, "q s d"]
    ) -> tuple[Float[Array, "q s"], Float[Array, "q s d"]]:
        """Evaluate and differentiate with one pass over the waves."""
        q, s, _ = a.shape
        values, slopes = np.empty((q, s)), np.empty(a.shape)
        step = max(1, BLOCK // max(1, s * len(self.frequencies)))
        for i in range(0, q, step):
            part = slice(i, i + step)
            angles = a[part] @ self.frequencies.T
            cos, sin = np.cos(angles), np.sin(angles, out=angles)
            c, z = self.cosines[part, None], self.sines[part, None]
            values[part] = (c * cos + z * sin).sum(axis=2)
            slopes[part] = (z * cos - c * sin) @ self.frequencies
        return values, slopes


def frequencies(
    n: int, widths: Float[Array, " d"], orthogonal: bool, rng: np.random.Generator
) -> Float[Array, "n d"]:
    """Draw frequencies whose waves have the Gaussian kernel for their mean product.

    Args:
        n: How many.
        widths: The widths of the kernel.
        orthogonal: Draw them in orthogonal blocks, which spreads them more evenly.
        rng: The source of randomness.
    """
    d = len(widths)
    raw = rng.normal(size=(n, d))
    if orthogonal and d > 1:
        blocks = [np.linalg.qr(rng.normal(size=(d, d)))[0] for _ in range(-(-n // d))]
        raw = np.linalg.norm(raw, axis=1)[:, None] * np.concatenate(blocks)[:n]
    return raw / widths


def features(
    v: Float[Array, "n d"], frequencies: Float[Array, "f d"]
) -> Float[Array, "n m"]:
    """Evaluate the cosines and sines, scaled to a sum of squares of one."""
    f, angles = len(frequencies), v @ frequencies.T
    rows = np.empty((len(v), 2 * f))
    np.cos(angles, out=rows[:, :f])
    np.sin(angles, out=rows[:, f:])
    rows /= np.sqrt(f)
    return rows
