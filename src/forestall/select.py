r"""The hyperparameters of a mechanism, and what they mean.

A mechanism is a Gaussian process whose kernel continues what the data say:

.. math:: k(z, z') = 1 + \sum_g s_g z_g^\top z'_g + s_q (z^\top z')^2
    + \sum_g h_g b(z_g)^\top b(z'_g)
    + s_f \exp\Big(-\tfrac12 \sum_g |z_g - z'_g|^2 / \rho_g^2\Big) + s_e \delta

The linear and the quadratic part are a trend that goes on where there are no data; the
hills :math:`b` bend it along one variable alone, and the Gaussian part bends it along
all of them together. A variable whose :math:`s_g` and :math:`h_g` vanish, and whose
width :math:`\rho_g` is large against its spread, does not matter.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np
from jaxtyping import Float, Int

from forestall.arrays import Array
from forestall.hills import COARSE, Hills

# Among so many draws in a row, structures are as frequent as they are likely.
EVENLY = 16


@dataclass(frozen=True, eq=False)
class Choice:
    r"""The hyperparameters of one mechanism, for a standardised output.

    Args:
        linear: The prior variance :math:`s_g` of the slope of each input column.
        quadratic: The prior variance :math:`s_q` of the quadratic trend.
        smooth: The variance :math:`s_f` of the Gaussian part.
        noise: The variance :math:`s_e` of the noise.
        widths: The width :math:`\rho` of each input column.
        hilly: The input columns that have hills.
        hills: The prior variance :math:`h_g` of the hills of each of these.
        shape: What hills are like.
    """

    linear: Float[Array, " d"]
    quadratic: float
    smooth: float
    noise: float
    widths: Float[Array, " d"]
    hilly: Int[Array, " h"] = field(default_factory=lambda: np.empty(0, dtype=int))
    hills: Float[Array, " h"] = field(default_factory=lambda: np.empty(0))
    shape: Hills = COARSE

    @property
    def bends(self) -> bool:
        """Whether the Gaussian part is more than nothing."""
        return self.smooth > 0.0

    @property
    def n_hills(self) -> int:
        """How many functions the hills are."""
        return self.shape.tops * len(self.hilly)

    @property
    def heights(self) -> Float[Array, " d"]:
        """The prior variance of the hills of each input column, zero without them."""
        heights = np.zeros(len(self.linear))
        heights[self.hilly] = self.hills
        return heights


@dataclass(frozen=True, eq=False)
class Alternatives:
    """The hyperparameters of one structure, or of several that are left open.

    Whether inputs bend a mean together or only each for itself may make no difference
    to how likely the records are, and much to what is told between and beyond them. So
    draws set out from both, from each as often as it is likely.

    Args:
        choices: Those of each, the likeliest first.
        shares: How likely each is.
    """

    choices: tuple[Choice, ...]
    shares: tuple[float, ...] = (1.0,)

    @property
    def whole(self) -> Choice:
        """Lay out functions that hold those of every structure."""
        first, *others = self.choices
        if not others:
            return first
        bent = max(self.choices, key=lambda choice: choice.smooth)
        heights = np.max([choice.heights for choice in self.choices], axis=0)
        (hilly,) = np.nonzero(heights)
        return replace(
            bent,
            linear=np.max([choice.linear for choice in self.choices], axis=0),
            quadratic=max(choice.quadratic for choice in self.choices),
            noise=min(choice.noise for choice in self.choices),
            hilly=hilly,
            hills=heights[hilly],
        )

    def of_noise(self, noise: float) -> Alternatives:
        """Let all have the same noise."""
        choices = tuple(replace(choice, noise=noise) for choice in self.choices)
        return replace(self, choices=choices)

    def members(self, n_draws: int, rng: np.random.Generator) -> Int[Array, " s"]:
        """Say of which structure each draw is, evenly from the first to the last.

        In an order of its own: what one mechanism is like says nothing of the others.
        """
        n_blocks = -(-n_draws // EVENLY)
        places = rng.permuted(np.tile(np.arange(EVENLY), (n_blocks, 1)), axis=1)
        levels = (places + rng.random((n_blocks, 1))) / EVENLY
        ends = np.cumsum(self.shares[:-1])
        return np.searchsorted(ends, levels.ravel()[:n_draws], side="right")
