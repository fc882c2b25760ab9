r"""The error of kernel ridge regression when each record is left out, in closed form.

Outputs :math:`L` (a row for each record) are regressed on standardised inputs, with one
width for each variable. With :math:`G = (K + \rho I)^{-1}`, what the other records
leave of record :math:`i` needs no refitting:

.. math:: e_i = (G L)_i / G_{ii}

For stage 1 the outputs are smoothed desirabilities. For stage 2 they are the records'
coordinates in the space of the embedding, :math:`L L^\top = K_{uu}`, so that
:math:`\sum_i |e_i|^2` is the leave-one-out error of the embedding itself.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from jaxtyping import Float, Int

from forestall.arrays import Array
from forestall.errors import FitError
from forestall.ridge import Ridge

# The error of more records than this is sharp enough, and cubic in their number.
RECORDS = 400
# An error below this is none: its logarithm would be rounding.
NOTHING = 1e-12
HUGE = 1e10
# A variable that is left out is this wide, in spreads: its differences vanish.
ABSENT = 1e6
# Sums depend in their last digits on the order of the records; nothing may follow
# from that.
DECIMALS = 9


@dataclass(frozen=True, eq=False)
class Inputs:
    """What a regression is on.

    Args:
        z: The inputs, standardised.
        owners: The variable behind each column.
        medians: The width that the median heuristic gives to each column.
    """

    z: Float[Array, "n d"]
    owners: tuple[str, ...]
    medians: Float[Array, " d"]

    def __post_init__(self) -> None:
        """Round what the order of the records has a part in."""
        object.__setattr__(self, "z", np.round(self.z, DECIMALS))
        object.__setattr__(self, "medians", np.round(self.medians, DECIMALS))

    @property
    def names(self) -> tuple[str, ...]:
        """The variables, each once."""
        return tuple(dict.fromkeys(self.owners))

    @property
    def groups(self) -> Int[Array, " d"]:
        """The number of the variable behind each column."""
        return np.array([self.names.index(name) for name in self.owners], dtype=int)

    @cached_property
    def spreads(self) -> Float[Array, " g"]:
        """The standard deviation of each variable; of a category, over its columns."""
        variances = np.bincount(self.groups, self.z.var(axis=0), len(self.names))
        return np.where(variances > 0.0, np.sqrt(variances), 1.0)

    @property
    def log_medians(self) -> Float[Array, " g"]:
        """The logarithm of each variable's width by the median heuristic."""
        first = [self.owners.index(name) for name in self.names]
        return np.log(self.medians[first])

    @property
    def log_absent(self) -> Float[Array, " g"]:
        """The logarithm of the width at which each variable counts as left out."""
        return np.log(ABSENT * self.spreads)

    def squares(self) -> Float[Array, "g n n"]:
        """The squared distances of all pairs, for each variable."""
        parts = [self.z[:, self.groups == g] for g in range(len(self.names))]
        each = [((p[:, None] - p[None]) ** 2).sum(axis=2) for p in parts]
        return np.array(each).reshape(-1, len(self.z), len(self.z))


@dataclass(frozen=True, eq=False)
class LeaveOneOut:
    r"""The leave-one-out error at :math:`\theta = \log(\rho, \sigma)`.

    Args:
        squares: The squared distances of all pairs, for each variable.
        outputs: What is predicted, a row :math:`L_i` for each record.
    """

    squares: Float[Array, "g n n"]
    outputs: Float[Array, "n m"]

    def residuals(self, theta: Float[Array, " k"]) -> Float[Array, "n m"]:
        """What the others leave of each record."""
        return left_out(self._kernel(theta), float(np.exp(theta[0])), self.outputs)

    def error(self, theta: Float[Array, " k"]) -> float:
        """The mean squared error; huge where rounding decides."""
        try:
            return float((self.residuals(theta) ** 2).sum(axis=1).mean())
        except FitError:
            return HUGE

    def __call__(self, theta: Float[Array, " k"]) -> tuple[float, Float[Array, " k"]]:
        r"""Give :math:`\tfrac N2 \log` of the mean squared error, and its gradient."""
        n, ratio, K = len(self.outputs), float(np.exp(theta[0])), self._kernel(theta)
        try:
            G = inverted(K, ratio)
        except FitError:
            return HUGE, np.zeros_like(theta)
        g, V = np.diag(G), G @ self.outputs
        norms = np.einsum("nm,nm->n", V, V)
        error = float((norms / g**2).mean()) + NOTHING
        # The error changes by sum(M * dK) / N.
        M = 2.0 * (G * (norms / g**3)) @ G - 2.0 * V @ ((V / g[:, None] ** 2).T @ G)
        by_width = np.exp(-2.0 * theta[1:]) * np.tensordot(self.squares, M * K, 2)
        slope = np.append(ratio * np.trace(M), by_width)
        return 0.5 * n * float(np.log(error)), 0.5 * slope / error

    def _kernel(self, theta: Float[Array, " k"]) -> Float[Array, "n n"]:
        return np.exp(-0.5 * np.tensordot(np.exp(-2.0 * theta[1:]), self.squares, 1))


def left_out(
    K: Float[Array, "n n"], ratio: float, outputs: Float[Array, "n m"]
) -> Float[Array, "n m"]:
    """Compute what a ridge fit of the others leaves of each record's outputs."""
    G = inverted(K, ratio)
    return G @ outputs / np.diag(G)[:, None]


def inverted(K: Float[Array, "n n"], ratio: float) -> Float[Array, "n n"]:
    r"""Compute :math:`(K + \rho I)^{-1}`, whose diagonal leaving one out needs."""
    return Ridge.of(K.copy(), ratio / len(K)).solve(np.eye(len(K)))


def representative(records: Float[Array, "n d"]) -> Int[Array, " k"]:
    """Choose records evenly along their sorted order, whatever order they come in."""
    ranked = np.lexsort(np.round(records, DECIMALS).T[::-1])
    n = len(ranked)
    return ranked[np.linspace(0, n - 1, min(n, RECORDS)).astype(int)]


def coordinates(K: Float[Array, "n n"]) -> Float[Array, "n m"]:
    r"""Find :math:`L` with :math:`L L^\top = K`, leaving out what is rounding."""
    values, axes = np.linalg.eigh(K)
    kept = values > len(K) * NOTHING
    return axes[:, kept] * np.sqrt(values[kept])
