"""Structures among which the records do not decide, in one set of functions.

Whether inputs bend a mean together or only each for itself may make no difference to
how likely the records are, and much to what is told between and beyond them. So draws
are of both, each as often as it is likely.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Float, Int

from forestall.arrays import Array
from forestall.hills import TOPS

if TYPE_CHECKING:
    from forestall.select import Choice

# Steps of this length along a circle leave gaps as even as can be.
GOLDEN = 0.5 * (np.sqrt(5.0) - 1.0)


@dataclass(frozen=True, eq=False)
class Alternatives:
    """The hyperparameters of one structure or several.

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
        heights = np.max([_heights(choice) for choice in self.choices], axis=0)
        (hilly,) = np.nonzero(heights)
        return replace(
            bent,
            linear=np.max([choice.linear for choice in self.choices], axis=0),
            quadratic=max(choice.quadratic for choice in self.choices),
            noise=first.noise,
            hilly=hilly,
            hills=heights[hilly],
        )

    def ratios(self, sizes: tuple[int, int, int]) -> Float[Array, "c q"]:
        """How far the weight of each function may stray, to how far it may at most.

        Args:
            sizes: How many functions: of the trend with its hills, centres, waves.
        """
        whole = self.whole
        p, m, f = sizes
        n_products = p - 1 - len(whole.linear) - TOPS * len(whole.hilly)
        rows = []
        for choice in self.choices:
            variances = np.concatenate(
                [
                    [1.0],
                    _share(choice.linear, whole.linear),
                    np.full(n_products, choice.quadratic / whole.quadratic),
                    np.repeat(_heights(choice)[whole.hilly] / whole.hills, TOPS),
                    np.full(m + f, choice.smooth / whole.smooth),
                ]
            )
            rows.append(np.sqrt(variances))
        return np.array(rows)

    def members(self, n_draws: int, start: float) -> Int[Array, " s"]:
        """Say of which structure each draw is, evenly from the first to the last."""
        levels = (start + GOLDEN * np.arange(n_draws)) % 1.0
        ends = np.cumsum(self.shares[:-1])
        return np.searchsorted(ends, levels, side="right")


def _heights(choice: Choice) -> Float[Array, " d"]:
    heights = np.zeros(len(choice.linear))
    heights[choice.hilly] = choice.hills
    return heights


def _share(part: Float[Array, " d"], whole: Float[Array, " d"]) -> Float[Array, " d"]:
    return np.divide(part, whole, out=np.ones_like(part), where=whole > 0.0)
