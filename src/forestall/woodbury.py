r"""The likelihood of the records under few functions, from sums over them.

Slopes, curves and hills are few functions :math:`\Phi`, and so are bends on a few
centres. With prior variances :math:`S`, noise :math:`\sigma^2 / w` and :math:`G =
\Phi^\top W \Phi` (Woodbury),

.. math::

    A = I + S^{1/2} G S^{1/2} / \sigma^2, \qquad
    \log |K| = \log |A| + \sum \log (\sigma^2 / w),

so that a step costs the cube of the number of functions, and not of records.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float
from scipy.linalg import LinAlgError, cho_factor, cho_solve
from scipy.linalg.lapack import dpotri

from forestall.arrays import Array


@dataclass(frozen=True, eq=False)
class Woodbury:
    r"""Sums over records for a likelihood in few functions.

    Args:
        n: The number of records.
        gram: :math:`\Phi^\top W \Phi`.
        target: :math:`\Phi^\top W y`.
        squares: :math:`y^\top W y`.
        quiet: :math:`\sum \log w`.
    """

    n: int
    gram: Float[Array, "q q"]
    target: Float[Array, " q"]
    squares: float
    quiet: float = 0.0

    @classmethod
    def of(
        cls,
        Phi: Float[Array, "n q"],
        y: Float[Array, " n"],
        loudness: Float[Array, " n"],
    ) -> Woodbury:
        """Sum over the records; the louder one is, the less it counts."""
        root = 1.0 / np.sqrt(loudness)
        Phi, y = Phi * root[:, None], y * root
        quiet = float(-np.log(loudness).sum())
        return cls(len(y), Phi.T @ Phi, Phi.T @ y, float(y @ y), quiet)

    def __call__(
        self, variances: Float[Array, " q"], noise: float
    ) -> tuple[float, Float[Array, " q"], float] | None:
        """Evaluate the negative log likelihood, up to a constant.

        Args:
            variances: The prior variance of each function's weight.
            noise: The variance of the noise where it is as loud as usual.

        Returns:
            The value, and its slopes by the logarithms of the variances and of the
            noise; ``None`` where rounding leaves nothing of it.
        """
        G, root = self.gram, np.sqrt(variances)
        A = root[:, None] * G * (root / noise)
        A[np.diag_indices(len(A))] += 1.0
        try:
            factor = cho_factor(A, lower=True, overwrite_a=True, check_finite=False)
        except LinAlgError:
            return None
        theta = root * cho_solve(factor, root * self.target) / noise
        left = self.squares - self.target @ theta
        logs = 2.0 * np.log(np.diag(factor[0])).sum() + self.n * np.log(noise)
        value = 0.5 * (left / noise + logs - self.quiet)
        # What of each weight, 0 to 1, the records do not settle.
        inverse, _ = dpotri(factor[0], lower=1)
        unsettled = np.diag(inverse)
        fitted = (self.target - G @ theta) / noise
        by_variance = 0.5 * (1.0 - unsettled - variances * fitted**2)
        strays = self.squares - 2.0 * theta @ self.target + theta @ G @ theta
        free = self.n - len(G) + unsettled.sum()
        return float(value), by_variance, float(0.5 * (free - strays / noise))
