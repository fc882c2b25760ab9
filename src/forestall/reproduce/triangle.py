"""The paper's triangle: aiming at the centre of the region is not aiming well.

The paper prints two probabilities and no covariance. Ours is noise along the base, the
same for both means; with it both come out as printed.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Float
from scipy.integrate import quad
from scipy.special import ndtr

from forestall import ink
from forestall.arrays import Array
from forestall.plots import shade
from forestall.region import Polytope

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# An equilateral triangle with an incircle of radius 1 about the origin, base below.
REGION = Polytope(
    np.array([[0.0, -1.0], [math.sqrt(3) / 2, 0.5], [-math.sqrt(3) / 2, 0.5]]),
    np.array([1.0, 1.0, 1.0]),
    names=("y1", "y2"),
)
LOW, HIGH = -1.0, 2.0
DEVIATIONS = (1.44, 0.14)


@dataclass(frozen=True)
class Aim:
    """A Gaussian outcome whose mean lies on the triangle's axis.

    Args:
        name: What it is called.
        height: The second coordinate of the mean; the first is zero.
        colour: How it is drawn.
    """

    name: str
    height: float
    colour: str

    @property
    def probability(self) -> float:
        """The probability of the triangle, slice by slice."""
        along, across = DEVIATIONS

        def slice_at(y: float) -> float:
            inside = 2 * ndtr((HIGH - y) / math.sqrt(3) / along) - 1
            away = (y - self.height) / across
            return inside * math.exp(-0.5 * away**2) / across / math.sqrt(2 * math.pi)

        return float(quad(slice_at, LOW, HIGH, points=[self.height], limit=200)[0])


AIMS = (Aim("centroid", 0.0, "nested"), Aim("elsewhere", -0.69, "region"))


def draw(axes: Axes) -> Axes:
    """Draw the triangle, both means, and where the outcomes of each fall."""
    axes.set(xlim=(-3.2, 3.2), ylim=(-1.5, 2.3), aspect="equal")
    shade(axes, REGION)
    for aim in AIMS:
        colour = ink.colour(aim.colour)
        for k in (1, 2):
            axes.plot(*_ellipse(aim, k).T, color=colour, lw=1.4, alpha=1.3 - 0.4 * k)
        text = f"mean {'at the' if aim.height == 0 else ''} {aim.name}"
        label = f"{' '.join(text.split())}: {aim.probability:.1%} inside"
        axes.plot([0.0], [aim.height], "o", color=colour, ms=6, label=label)
    axes.set_title("The same noise, two means")
    return ink.legend(axes)


def _ellipse(aim: Aim, k: int) -> Float[Array, "m 2"]:
    t = np.linspace(0, 2 * math.pi, 200)
    along, across = DEVIATIONS
    return np.column_stack([k * along * np.cos(t), aim.height + k * across * np.sin(t)])
