"""What depends on the desired region, solved; and what keeps a fit within bounds."""

from __future__ import annotations

import os
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from forestall.arrays import Array
from forestall.errors import FitError, warn
from forestall.observations import Observations
from forestall.region import Polytope, ProbitDesirability
from forestall.ridge import Solver

# Fewer good records than this prove nothing.
FEW = 10
# From here on an exact fit takes a minute and more.
MANY = 10_000


@dataclass(frozen=True, eq=False)
class Solution:
    r"""What depends on the desired region: its right-hand sides, solved.

    Args:
        sharpness: The :math:`\eta` in use.
        alpha: Stage 1 weights :math:`\alpha` for the smoothed desirability.
        alpha_hard: The same for the indicator itself.
        alpha_natural: Weights of the indicator on contexts alone: no action.
        pull: The weights :math:`\alpha` by which the ascent's starts are ranked. With
            low rank ``alpha`` is on landmarks and means something else.
        scale: The prior variance of the indicator's function, by its likelihood.
        scale_natural: The same for no action.
        n_good: The number of good records.
    """

    sharpness: float
    alpha: Float[Array, " n"]
    alpha_hard: Float[Array, " n"]
    alpha_natural: Float[Array, " k"]
    pull: Float[Array, " m"]
    scale: float
    scale_natural: float
    n_good: int

    @classmethod
    def of(
        cls,
        sharpness: float,
        region: Polytope,
        data: Observations,
        inner: Solver,
        natural: Solver,
    ) -> Solution:
        """Solve for the smoothed and the hard desirability of the records."""
        hard = data.good.astype(float)
        smooth = desirabilities((sharpness,), region, data)
        solved = inner.solve(np.column_stack([smooth, hard]))
        alpha, alpha_hard = solved.T
        alpha_natural = natural.solve(hard)
        n = len(hard)
        return cls(
            sharpness,
            alpha,
            alpha_hard,
            alpha_natural,
            alpha,
            believed(float(hard @ alpha_hard) / n),
            believed(float(hard @ alpha_natural) / n),
            int(data.good.sum()),
        )


def believed(likeliest: float) -> float:
    """Settle the prior variance of the indicator's function."""
    # Where hardly any record is good the likelihood believes in a function that is
    # hardly ever above zero; one that may reach one is believed at least.
    return max(1.0, likeliest)


def desirabilities(
    etas: tuple[float, ...], region: Polytope, data: Observations
) -> Float[Array, "n k"]:
    r"""Evaluate :math:`w_\eta` at the records, a column for each sharpness."""
    outcomes = data.schema.outcomes
    region = region.standardised(outcomes.means, outcomes.scales)
    return np.stack([ProbitDesirability(region, eta)(data.y) for eta in etas], axis=1)


def choose_sharpness(share: float) -> float:
    r"""Choose :math:`\eta` from 5, 10 and 20 by the share of good records."""
    # Paper: larger where good records are abundant. The thresholds are ours.
    return 5.0 if share < 0.05 else 10.0 if share < 0.25 else 20.0


def check_size(n: int, matrices: int = 3) -> None:
    """Refuse what would not fit into memory, before it is tried."""
    needed = matrices * 8 * n**2
    if hasattr(os, "sysconf") and "SC_PHYS_PAGES" in os.sysconf_names:
        memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
        if needed > 0.6 * memory:
            raise FitError(
                f"Expected so few records that {matrices} matrices of N x N fit into "
                f"memory ({memory / 1e9:.0f} GB); got {n}, which need "
                f"{needed / 1e9:.0f} GB. Use approximation=Nystrom(rank=500)."
            )
    if n >= MANY:
        warn(
            f"An exact fit of {n} records takes minutes and {needed / 1e9:.1f} GB; "
            f"use approximation=Nystrom(rank=500) for seconds."
        )


def warn_if_few_are_good(n_good: int) -> None:
    """Say when the records cannot prove an improvement."""
    if n_good < FEW:
        warn(
            f"Only {n_good} records have a desired outcome; no action will be called "
            f"an improvement. Add records, or relax a constraint."
        )
