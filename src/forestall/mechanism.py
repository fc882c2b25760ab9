r"""One mechanism: how a variable follows from what precedes it, and how it strays.

The mean is a Gaussian process in finitely many functions. Draws of the whole mean are
coherent across inputs and return to the prior away from the records.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import Float, Float32, Int

from forestall.arrays import Array
from forestall.kernels import FARTHEST, gram, quick_gram
from forestall.select import Choice
from forestall.spanning import trends, trends_gradient, trends_sum

WEIGHTS = ("trend", "bumps", "waves")


@dataclass(frozen=True, eq=False)
class Mechanism:
    r"""The fitted mean of one variable, draws of it, and its residuals.

    Column 0 of every array of weights is the posterior mean, the others are draws.

    Args:
        choice: The hyperparameters.
        mean: The mean of the output.
        scale: The standard deviation of the output.
        trend: Weights of the polynomial and the hills.
        centres: Centres of the Gaussian part, in units of the widths.
        bumps: Their weights.
        frequencies: Frequencies of random waves: those of the prior, or of the
            Gaussian part itself.
        phases: Their phases.
        waves: Their weights.
        residuals: Studentised residuals, in the unit of the output.
        leverage: How much each record moves its own prediction, 0 to 1.
    """

    choice: Choice
    mean: float
    scale: float
    trend: Float[Array, "p s"]
    centres: Float[Array, "m d"]
    bumps: Float[Array, "m s"]
    frequencies: Float[Array, "f d"]
    phases: Float[Array, " f"]
    waves: Float[Array, "f s"]
    residuals: Float[Array, " n"]
    leverage: Float[Array, " n"]

    def still(self) -> Mechanism:
        """Keep the mean alone."""
        none = np.empty(0)
        return replace(
            self,
            trend=self.trend[:, :1],
            bumps=self.bumps[:, :1],
            waves=self.waves[:, :1],
            residuals=none,
            leverage=none,
        )

    def scaled(self, share: float) -> Mechanism:
        """Let the mean move by a share of what it does."""
        weights = {name: share * getattr(self, name) for name in WEIGHTS}
        return replace(self, **weights)

    def blended(self, other: Mechanism, share: float) -> Mechanism:
        """Go some of the way to the mean of another, which has the same functions."""
        weights = {
            name: (1.0 - share) * getattr(self, name) + share * getattr(other, name)
            for name in WEIGHTS
        }
        return replace(other, **weights)

    def exactly(self, z: Float[Array, "n d"]) -> Float[Array, " n"]:
        """Evaluate the mean to all digits, which sums over many records need."""
        out = trends(z, self.choice, len(self.trend)) @ self.trend[:, 0]
        t = z / self.choice.widths
        if self.bumps[:, 0].any():
            out += gram(t, self.centres) @ self.bumps[:, 0]
        if self.waves[:, 0].any():
            out += np.cos(t @ self.frequencies.T + self.phases) @ self.waves[:, 0]
        return self.mean + self.scale * out

    def __call__(
        self, z: Float[Array, "n d"], draws: Int[Array, " s"]
    ) -> Float[Array, "n s"]:
        """Evaluate the mean (draw 0) or draws of it."""
        out = trends_sum(z, self.choice, self.trend[:, draws])
        t = z / self.choice.widths
        # The mean has no waves of the prior, and some draws have no bends.
        bumps, waves = self.bumps[:, draws], self.waves[:, draws]
        if bumps.any():
            out += quick_gram(t, self.centres) @ single(bumps)
        if waves.any():
            angles = self._angles(t)
            out += np.cos(angles, out=angles) @ single(waves)
        out *= self.scale
        out += self.mean
        return out

    def gradient(self, z: Float[Array, "n d"], draw: int) -> Float[Array, "n d"]:
        """Differentiate one draw by its inputs."""
        out = trends_gradient(z, self.choice, self.trend[:, draw])
        t, widths = z / self.choice.widths, self.choice.widths
        bumps, waves = self.bumps[:, draw], self.waves[:, draw]
        if bumps.any():
            rows = quick_gram(t, self.centres) * single(bumps)
            out += (rows @ self.centres - rows.sum(axis=1)[:, None] * t) / widths
        if waves.any():
            slopes = np.sin(self._angles(t)) * single(waves)
            out -= slopes @ self.frequencies / widths
        return out * self.scale

    def _angles(self, t: Float[Array, "n d"]) -> Float[Array, "n f"]:
        # An absurd input must not overflow; where it is on a wave means nothing.
        near = single(np.clip(t, -FARTHEST, FARTHEST))
        angles = near @ single(self.frequencies).T
        angles += single(self.phases)
        return angles


def single(v: Float[Array, ...]) -> Float32[Array, ...]:
    """Round to seven digits: waves and bumps of a drawn world need no more."""
    return v.astype(np.float32)
