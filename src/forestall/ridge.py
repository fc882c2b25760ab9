"""Kernel ridge regression: one Cholesky factor, many right-hand sides."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float
from scipy.linalg import cho_solve, solve_triangular
from scipy.linalg.lapack import dpotrf

from forestall.arrays import Array
from forestall.errors import FitError
from forestall.kernels import Gaussian
from forestall.threads import threads_for

# The 95 % quantile of the standard normal law: 90 % lie within it on both sides.
Z = 1.6448536269514722


class Solver(ABC):
    r"""A penalised kernel matrix :math:`K + N \lambda I`, in whatever form is cheap."""

    @abstractmethod
    def solve(self, b: Float[Array, "n ..."]) -> Float[Array, "n ..."]:
        r"""Solve :math:`(K + N \lambda I) z = b` for one or many right-hand sides."""

    @abstractmethod
    def explained(self, v: Float[Array, "n q"]) -> Float[Array, " q"]:
        r"""Compute :math:`v^\top (K + N \lambda I)^{-1} v` for each column."""

    def contracted(
        self, B: Float[Array, "n k"], b: Float[Array, "n q"]
    ) -> Float[Array, "k q"]:
        r"""Compute :math:`B^\top (K + N \lambda I)^{-1} b`."""
        return B.T @ self.solve(b)


@dataclass(frozen=True, eq=False)
class Ridge(Solver):
    r"""The matrix :math:`K + N \lambda I`, factored once.

    Args:
        factor: The lower Cholesky factor; what stands above its diagonal is none of it.
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
        # LAPACK wants columns; the transpose of a symmetric matrix is itself.
        return cls._of_columns(K if K.flags.f_contiguous else K.T, penalty)

    @classmethod
    def on(cls, kernel: Gaussian, v: Float[Array, "n d"], penalty: float) -> Ridge:
        r"""Make one triangle of the records' Gram matrix, and factor it in place."""
        return cls._of_columns(kernel.triangle(v), penalty)

    @classmethod
    def _of_columns(cls, K: Float[Array, "n n"], penalty: float) -> Ridge:
        n = len(K)
        K[np.diag_indices(n)] += n * penalty
        return cls(factored(K, f"at penalty {penalty:g} with {n} records"))

    def solve(self, b: Float[Array, "n ..."]) -> Float[Array, "n ..."]:
        r"""Solve :math:`(K + N \lambda I) z = b` for one or many right-hand sides."""
        return cho_solve((self.factor, True), b, check_finite=False)

    def explained(self, v: Float[Array, "n q"]) -> Float[Array, " q"]:
        r"""Compute :math:`v^\top (K + N \lambda I)^{-1} v` for each column."""
        half = solve_triangular(self.factor, v, lower=True, check_finite=False)
        return np.einsum("nq,nq->q", half, half)


def factored(K: Float[Array, "n n"], where: str) -> Float[Array, "n n"]:
    """Overwrite the lower triangle of ``K`` by its Cholesky factor."""
    with threads_for(len(K)):
        factor, fault = dpotrf(K, lower=1, clean=0, overwrite_a=1)
    if fault or not np.isfinite(factor.diagonal()).all():
        raise FitError(
            f"Expected a kernel matrix that can be factored; got one that is "
            f"singular to rounding {where}. Raise the penalty, e.g. to 1e-6."
        )
    return factor


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
        ridge: Solver,
        scale: float,
    ) -> Belief:
        """Ridge estimate at the kernel columns ``v``, and what they leave unknown."""
        return cls.drawn(alpha @ v, scale * (prior - ridge.explained(v)))

    @classmethod
    def drawn(cls, mean: Float[Array, " q"], variance: Float[Array, " q"]) -> Belief:
        """Keep an estimate within the bounds of a probability, its doubt above zero."""
        # Paper: J may leave [0, 1]; a probability may not.
        mean = np.clip(mean, 0.0, 1.0)
        return cls(mean, np.sqrt(np.maximum(variance, 0.0)))

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
