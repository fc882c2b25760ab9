r"""Gram matrices that are products of thin ones, to rounding.

In one or two dimensions the kernel functions of five thousand records are combinations
of a few dozen to a few hundred of them, so that :math:`K = G G^\top` with a thin
:math:`G`. That is no approximation: what is left out is rounding. But neither the
matrix nor its Cholesky factor has to be made.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float
from scipy.linalg import cho_solve
from scipy.linalg.blas import dsymm

from forestall.arrays import Array
from forestall.expansion import pivoted_cholesky
from forestall.kernels import Gaussian
from forestall.ridge import Ridge, Solver, factored

# More columns than this are not looked for: the search would cost what it saves.
MOST = 400
# The largest squared residual that counts as rounding.
TOLERANCE = 1e-14


class Gram(ABC):
    """A Gram matrix :math:`K`, in whatever form is cheap."""

    @abstractmethod
    def times(self, z: Float[Array, "n q"]) -> Float[Array, "n q"]:
        """Multiply by the matrix."""


@dataclass(frozen=True, eq=False)
class Thick(Gram):
    """A Gram matrix written out, as files of formats 1 and 2 have it.

    Args:
        lower: The matrix; what stands above its diagonal is noise.
    """

    lower: Float[Array, "n n"]

    def times(self, z: Float[Array, "n q"]) -> Float[Array, "n q"]:
        """Multiply by the matrix."""
        return dsymm(1.0, self.lower, z, lower=1) if z.size else z


@dataclass(frozen=True, eq=False)
class Above(Gram):
    """A Gram matrix written out where a factor has nothing but noise.

    Args:
        upper: The matrix, above the diagonal. What stands on and below it is the
            factor's; the diagonal of a Gaussian's Gram matrix is one.
    """

    upper: Float[Array, "n n"]

    def times(self, z: Float[Array, "n q"]) -> Float[Array, "n q"]:
        """Multiply by the matrix."""
        if not z.size:
            return z
        off = 1.0 - self.upper.diagonal()
        corrected = off[:, None] * z
        return dsymm(1.0, self.upper, z, 1.0, corrected, lower=0, overwrite_c=1)


@dataclass(frozen=True, eq=False)
class Thin(Gram):
    r"""A Gram matrix :math:`G G^\top`.

    Args:
        root: The thin matrix :math:`G`.
    """

    root: Float[Array, "n r"]

    @classmethod
    def of(cls, kernel: Gaussian, v: Float[Array, "n d"]) -> Thin | None:
        """Find the columns, or ``None`` where they would not be far fewer."""
        points, limit = v / kernel.bandwidth, min(MOST, len(v) // 8)
        if not points.size:
            return cls(np.ones((len(v), 1)))
        # Some of the points tell already that all of them need too many.
        some = points[:: -(-len(points) // (2 * MOST))]
        for each in (some, points):
            pivots, root = pivoted_cholesky(each, limit, TOLERANCE)
            if len(pivots) >= limit:
                return None
        return cls(np.ascontiguousarray(root))

    @property
    def and_ones(self) -> Float[Array, "n s"]:
        """The thin matrix, and a column of ones."""
        return np.concatenate([self.root, np.ones((len(self.root), 1))], axis=1)

    def times(self, z: Float[Array, "n q"]) -> Float[Array, "n q"]:
        """Multiply by the matrix."""
        return self.root @ (self.root.T @ z)


@dataclass(frozen=True, eq=False)
class ThinRidge(Solver):
    r"""The matrix :math:`G G^\top + N \lambda I`, by the factor of a small one.

    Args:
        root: The thin matrix :math:`G`.
        factor: The Cholesky factor of :math:`G^\top G + N \lambda I`.
        ridge: The number :math:`N \lambda`.
    """

    root: Float[Array, "n r"]
    factor: Float[Array, "r r"]
    ridge: float

    @classmethod
    def of(cls, gram: Thin, penalty: float) -> ThinRidge:
        r"""Factor the small matrix."""
        n, r = gram.root.shape
        ridge = n * penalty
        small = gram.root.T @ gram.root
        small[np.diag_indices(r)] += ridge
        told = f"at penalty {penalty:g} with {n} records"
        return cls(gram.root, factored(np.asfortranarray(small), told), ridge)

    def solve(self, b: Float[Array, "n ..."]) -> Float[Array, "n ..."]:
        r"""Solve :math:`(K + N \lambda I) z = b` for one or many right-hand sides."""
        return (b - self.root @ self._inner(self.root.T @ b)) / self.ridge

    def explained(self, v: Float[Array, "n q"]) -> Float[Array, " q"]:
        r"""Compute :math:`v^\top (K + N \lambda I)^{-1} v` for each column."""
        t = self.root.T @ v
        squares = np.einsum("nq,nq->q", v, v) - np.einsum("rq,rq->q", t, self._inner(t))
        return squares / self.ridge

    def contracted(
        self, B: Float[Array, "n k"], b: Float[Array, "n q"]
    ) -> Float[Array, "k q"]:
        r"""Compute :math:`B^\top (K + N \lambda I)^{-1} b` without the solution."""
        inner = self._inner(self.root.T @ b)
        return (B.T @ b - (B.T @ self.root) @ inner) / self.ridge

    def _inner(self, t: Float[Array, "r ..."]) -> Float[Array, "r ..."]:
        return cho_solve((self.factor, True), t, check_finite=False)


def gram_of(kernel: Gaussian, v: Float[Array, "n d"], place: Ridge) -> Gram:
    """Make a Gram matrix, thin where that is exact.

    Args:
        kernel: The kernel.
        v: The points.
        place: A factor of as many records, whose other triangle it may take.
    """
    thin = Thin.of(kernel, v)
    if thin is not None:
        return thin
    kernel.fill_above(v, place.factor)
    return Above(place.factor)


def ridge_of(kernel: Gaussian, v: Float[Array, "n d"], penalty: float) -> Solver:
    """Factor a penalised Gram matrix, by a thin one where that is exact."""
    thin = Thin.of(kernel, v) if len(v) * penalty > ROUNDING else None
    if thin is None:
        return Ridge.on(kernel, v, penalty)
    return ThinRidge.of(thin, penalty)


# Below this ridge the difference of two numbers of order N would lose every digit.
ROUNDING = 1e-4
