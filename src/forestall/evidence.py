r"""Linear regression in which groups of features have to earn their place.

.. math:: y = \sum_g \Psi_g w_g + e, \quad w_g \sim N(0, v_g I), \quad e \sim N(0, s)

The variances are those under which the target is likeliest, found by MacKay's fixed
point. A group without which it would be nearly as likely is left out.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float, Int
from scipy.linalg import LinAlgError, cho_solve, cholesky, solve_triangular

from forestall.arrays import Array

STEPS = 40
# What one of many groups gains in log probability by luck, and the variance, beside
# that of the noise, below which it is nothing.
LUCK, LEAST = 3.0, 1e-4
# The shares of the target's variance with which groups and noise set out, and the least
# that is left to the noise: where features explain everything there would be none.
START, START_NOISE, LEAST_NOISE = 0.3, 0.8, 1e-3
# What rounding may take from a diagonal, as a share of its largest entry.
ROUNDING = 1e-12


@dataclass(frozen=True, eq=False)
class Posterior:
    """What is known of the weights, given the variances.

    Args:
        kept: The features whose group was kept.
        weights: The mean of their weights.
        root: A root of their covariance.
        volume: The logarithm of how much narrower they are than before.
    """

    kept: Bool[Array, " q"]
    weights: Float[Array, " k"]
    root: Float[Array, "k k"]
    volume: float


@dataclass(frozen=True, eq=False)
class Variances:
    """The variance of the weights of each group, zero where it is left out."""

    groups: Float[Array, " g"]
    noise: float


@dataclass(frozen=True, eq=False)
class Evidence:
    r"""How likely the target is, by sums over records.

    Args:
        gram: :math:`\Psi^\top \Psi`, of centred features.
        cross: :math:`\Psi^\top y`.
        square: :math:`y^\top y`, of a centred target.
        n: The number of records.
        groups: The group of each feature.
    """

    gram: Float[Array, "q q"]
    cross: Float[Array, " q"]
    square: float
    n: int
    groups: Int[Array, " q"]

    @classmethod
    def of(
        cls,
        Psi: Float[Array, "n q"],
        y: Float[Array, " n"],
        groups: Int[Array, " q"],
    ) -> Evidence:
        """Sum up centred records."""
        return cls(Psi.T @ Psi, Psi.T @ y, float(y @ y), len(y), groups)

    def posterior(self) -> Posterior | None:
        """Keep the groups that help; ``None`` where none does."""
        if self.square <= 0.0 or not len(self.groups):
            return None
        found = self._pruned(self._fixed())
        return self._solved(found) if found.groups.any() else None

    def log(self, at: Variances) -> float:
        """The log probability of the target, but for a constant."""
        told = self._solved(at)
        left = self.square - self.cross[told.kept] @ told.weights
        spread = 0.5 * self.n * np.log(at.noise) + told.volume
        return float(-0.5 * left / at.noise - spread)

    def _fixed(self) -> Variances:
        """Go towards the variances under which the target is likeliest."""
        n_groups = int(self.groups.max()) + 1
        usual = self.square / self.n
        at = Variances(np.full(n_groups, START * usual / n_groups), START_NOISE * usual)
        for _ in range(STEPS):
            found = self._solved(at)
            kept, weights = found.kept, found.weights
            groups = self.groups[kept]
            # How many of its weights the records tell, of each group.
            told = 1.0 - np.sum(found.root**2, axis=1) / at.groups[groups]
            told = np.bincount(groups, told, n_groups)
            squares = np.bincount(groups, weights**2, n_groups)
            fitted = self.gram[np.ix_(kept, kept)] @ weights
            left = self.square - weights @ (2.0 * self.cross[kept] - fitted)
            noise = float(left / max(self.n - told.sum(), 1.0))
            noise = max(noise, LEAST_NOISE * usual)
            variances = squares / np.maximum(told, 1e-8)
            at = Variances(np.where(variances > LEAST * noise, variances, 0.0), noise)
            if not at.groups.any():
                break
        return at

    def _pruned(self, at: Variances) -> Variances:
        """Leave groups out, the weakest first, where that costs little."""
        highest = self.log(at)
        for g in np.argsort(at.groups).tolist():
            if at.groups[g] > 0.0:
                less = at.groups.copy()
                less[g] = 0.0
                without = Variances(less, at.noise)
                if (log := self.log(without)) > highest - LUCK:
                    at, highest = without, log
        return at

    def _solved(self, at: Variances) -> Posterior:
        """Solve for the weights."""
        kept = at.groups[self.groups] > 0.0
        scale = np.sqrt(at.groups[self.groups[kept]])
        A = scale[:, None] * self.gram[np.ix_(kept, kept)] * scale / at.noise
        A[np.diag_indices(len(A))] += 1.0
        try:
            L = cholesky(A, lower=True)
        except LinAlgError:
            # Few different records, over and over, leave hardly any noise.
            A[np.diag_indices(len(A))] += ROUNDING * A.diagonal().max()
            L = cholesky(A, lower=True)
        weights = scale * cho_solve((L, True), scale * self.cross[kept]) / at.noise
        root = scale[:, None] * solve_triangular(L, np.eye(len(L)), lower=True, trans=1)
        return Posterior(kept, weights, root, float(np.log(np.diag(L)).sum()))
