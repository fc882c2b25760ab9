"""Kernel ridge regression: one Cholesky factor, many right-hand sides."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float
from scipy.linalg import LinAlgError, cho_factor, cho_solve, solve_triangular

from forestall.arrays import Array
from forestall.errors import FitError

# The 95 % quantile of the standard normal law: 90 % lie within it on both sides.
Z = 1.6448536269514722


@dataclass(frozen=True, eq=False)
class Ridge:
    r"""The matrix :math:`K + N \lambda I`, factored once.

    Args:
        factor: The lower Cholesky factor; what stands above its diagonal is noise.
    """

    factor: Float[Array, "n n"]

    @classmethod
    def of(cls, K: Float[Array, "n n"], penalty: float) -> Ridge:
        r"""Factor :math:`K + N \lambda I` in the memory of ``K``.

        Args:
            K: The Gram matrix; overwritten.
            penalty: The penalty :math:`\lambda`. The paper's factor :math:`N` is
                applied here and nowhere else.
        """
        n = len(K)
        K[np.diag_indices(n)] += n * penalty
        try:
            # LAPACK wants columns; the transpose of a symmetric matrix is itself.
            factor, _ = cho_factor(K.T, lower=True, overwrite_a=True)
        except LinAlgError as error:
            raise FitError(
                f"Expected a kernel matrix that can be factored; got one that is "
                f"singular to rounding at penalty {penalty:g} with {n} records. Raise "
                f"the penalty, e.g. to 1e-6."
            ) from error
        return cls(factor)

    def solve(self, b: Float[Array, "n ..."]) -> Float[Array, "n ..."]:
        r"""Solve :math:`(K + N \lambda I) z = b` for one or many right-hand sides."""
        return cho_solve((self.factor, True), b, check_finite=False)

    def explained(self, v: Float[Array, "n q"]) -> Float[Array, " q"]:
        r"""Compute :math:`v^\top (K + N \lambda I)^{-1} v` for each column."""
        half = solve_triangular(self.factor, v, lower=True, check_finite=False)
        return np.einsum("nq,nq->q", half, half)


@dataclass(frozen=True, eq=False)
class Belief:
    """Mean and deviation of a probability, in the Gaussian-process reading."""

    mean: Float[Array, " q"]
    deviation: Float[Array, " q"]

    @classmethod
    def of(
        cls,
        alpha: Float[Array, " n"],
        v: Float[Array, "n q"],
        prior: Float[Array, " q"],
        ridge: Ridge,
        scale: float,
    ) -> Belief:
        """Ridge estimate at the kernel columns ``v``, and what they leave unknown."""
        # Paper: J may leave [0, 1]; a probability may not.
        mean = np.clip(alpha @ v, 0.0, 1.0)
        unknown = np.maximum(prior - ridge.explained(v), 0.0)
        return cls(mean, np.sqrt(scale * unknown))

    @property
    def lower(self) -> Float[Array, " q"]:
        """The lower end of the 90 % interval."""
        return np.clip(self.mean - Z * self.deviation, 0.0, 1.0)

    @property
    def upper(self) -> Float[Array, " q"]:
        """The upper end of the 90 % interval."""
        return np.clip(self.mean + Z * self.deviation, 0.0, 1.0)

    def surely_above(self, other: Belief) -> Float[Array, " q"]:
        """How much this exceeds ``other`` at least, with 95 % belief."""
        # Both are learned from the same records, so they err together; taking them as
        # independent is cautious.
        doubt = np.hypot(self.deviation, other.deviation)
        return self.mean - other.mean - Z * doubt
