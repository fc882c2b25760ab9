r"""How a variable strays from its mean: recentred conditional mean embeddings.

The law of a residual given the inputs is that of all leave-one-out residuals, distorted
by how often residuals stay below each of a few levels near those inputs. The embedding
of the residual given the inputs, evaluated at the indicators of these levels, says how
often; away from the records it falls back to the law of all residuals. So the law may
be skewed, have several modes, and change its spread with the inputs.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float
from scipy.linalg import svd
from scipy.special import ndtr

from forestall.arrays import Array
from forestall.expansion import pivoted_cholesky
from forestall.kernels import gram, median_bandwidth

LEVELS = 15
CENTRES = 40
GRID = 400
# The smoothing of the residuals' law, as a share of Silverman's width: enough for a
# gradient, too little to matter.
SMOOTHING = 0.25
PENALTIES = np.geomspace(1e-3, 1e3, 13)


@dataclass(frozen=True, eq=False)
class Law:
    r"""The law of residuals, for the records' own weights and for draws of them.

    Column 0 weighs all records alike; the others are draws of the Bayesian bootstrap,
    which say how well so many residuals show their law.

    Args:
        grid: Equally spaced values of the residual.
        below: The share of residuals below each of them, a column for each draw.
        distortion: How the law changes with the inputs; ``None`` where it does not.
    """

    grid: Float[Array, " g"]
    below: Float[Array, "g s"]
    distortion: Distortion | None

    @classmethod
    def of(
        cls,
        z: Float[Array, "n d"],
        residuals: Float[Array, " n"],
        n_draws: int,
        rng: np.random.Generator,
        *,
        local: bool = True,
    ) -> Law:
        """Learn the law of the residuals, and whether it changes with the inputs."""
        n = len(residuals)
        spread = float(residuals.std()) or 1e-12
        width = SMOOTHING * 1.06 * spread * n**-0.2
        ends = residuals.min() - 4 * width, residuals.max() + 4 * width
        grid = np.linspace(*ends, GRID)
        weights = np.full((n, 1 + n_draws), 1.0 / n)
        weights[:, 1:] = rng.dirichlet(np.ones(n), size=n_draws).T
        below = ndtr((grid[:, None] - residuals) / width) @ weights
        return cls(grid, below, Distortion.of(z, residuals) if local else None)

    def cdf(
        self, t: Float[Array, "m n"], z: Float[Array, "n d"], draw: int
    ) -> Float[Array, "m n"]:
        """How likely the residual is at most each ``t``, given the inputs ``z``."""
        level = np.interp(t, self.grid, self.below[:, draw], left=0.0, right=1.0)
        if self.distortion is None:
            return level
        shares = self.distortion(z)
        return np.stack([shares.apply(row) for row in level])

    def density(
        self, t: Float[Array, "m n"], z: Float[Array, "n d"], draw: int
    ) -> Float[Array, "m n"]:
        """The slope of :meth:`cdf` in ``t``."""
        step = self.grid[1] - self.grid[0]
        ends = np.concatenate([t + step, t - step])
        above, below = np.split(self.cdf(ends, z, draw), 2)
        return (above - below) / (2 * step)

    def quantile(
        self, u: Float[Array, " n"], z: Float[Array, "n d"], draw: int
    ) -> Float[Array, " n"]:
        """The residual that is exceeded with probability ``1 - u``, given ``z``."""
        level = u if self.distortion is None else self.distortion(z).undo(u)
        return np.interp(level, self.below[:, draw], self.grid)


@dataclass(frozen=True, eq=False)
class Distortion:
    """How often residuals stay below each level, as a function of the inputs.

    Args:
        mean: The mean of the inputs' features, subtracted from them.
        centres: Centres of a Gaussian kernel, in units of its width.
        bandwidth: The width for each input.
        weights: What each feature adds to the share below each level.
    """

    mean: Float[Array, " q"]
    centres: Float[Array, "m d"]
    bandwidth: Float[Array, " d"]
    weights: Float[Array, "q k"]

    @classmethod
    def of(
        cls, z: Float[Array, "n d"], residuals: Float[Array, " n"]
    ) -> Distortion | None:
        """Regress the indicators on the inputs; ``None`` where that does not help."""
        levels = np.arange(1, LEVELS + 1) / (LEVELS + 1)
        target = residuals[:, None] <= np.quantile(residuals, levels)
        centred = target - target.mean(axis=0)
        bandwidth = median_bandwidth(z, 1.0)
        pivots, _ = pivoted_cholesky(z / bandwidth, min(CENTRES, len(z)), 1e-3)
        centres = (z / bandwidth)[pivots]
        Psi = gram(z / bandwidth, centres)
        mean = Psi.mean(axis=0)
        weights = _ridge_if_it_helps(Psi - mean, centred)
        return None if weights is None else cls(mean, centres, bandwidth, weights)

    def __call__(self, z: Float[Array, "n d"]) -> Shares:
        """Give the shares below the levels near each input."""
        features = gram(z / self.bandwidth, self.centres)
        # Off the records the kernel vanishes, and so must the distortion.
        near = np.minimum(1.0, 2.0 * features.max(axis=1))
        levels = np.arange(1, LEVELS + 1) / (LEVELS + 1)
        shares = levels + near[:, None] * ((features - self.mean) @ self.weights)
        shares = np.maximum.accumulate(np.clip(shares, 0.0, 1.0), axis=1)
        ends = np.ones((len(z), 1))
        return Shares(np.concatenate([0.0 * ends, shares, ends], axis=1))


@dataclass(frozen=True, eq=False)
class Shares:
    """For each point, how much lies below each of equally spaced levels."""

    values: Float[Array, "n k"]

    def apply(self, level: Float[Array, " n"]) -> Float[Array, " n"]:
        """Turn a level of the common law into the share below it here."""
        position = np.clip(level, 0.0, 1.0) * (LEVELS + 1)
        k = np.minimum(position.astype(int), LEVELS)
        rows = np.arange(len(level))
        low, high = self.values[rows, k], self.values[rows, k + 1]
        return low + (position - k) * (high - low)

    def undo(self, u: Float[Array, " n"]) -> Float[Array, " n"]:
        """Turn a share into the level of the common law that has it below here."""
        k = np.clip((self.values < u[:, None]).sum(axis=1) - 1, 0, LEVELS)
        rows = np.arange(len(u))
        low, high = self.values[rows, k], self.values[rows, k + 1]
        part = (u - low) / np.maximum(high - low, 1e-9)
        return (k + np.clip(part, 0.0, 1.0)) / (LEVELS + 1)


def _ridge_if_it_helps(
    Psi: Float[Array, "n q"], target: Float[Array, "n k"]
) -> Float[Array, "q k"] | None:
    """Choose the penalty by leave-one-out error; ``None`` when the mean does better."""
    U, s, Vt = svd(Psi, full_matrices=False)
    projected = U.T @ target
    best: tuple[float, Array] | None = None
    for penalty in PENALTIES:
        shrink = s**2 / (s**2 + penalty)
        leverage = (U**2) @ shrink + 1.0 / len(Psi)
        left_out = (target - U @ (shrink[:, None] * projected)) / (1 - leverage)[
            :, None
        ]
        gain = (target**2 - left_out**2).sum(axis=1)
        # Better than the mean by more than chance.
        sure = gain.mean() - 2.0 * gain.std() / np.sqrt(len(gain))
        if sure > 0 and (best is None or gain.mean() > best[0]):
            weights = Vt.T @ ((shrink / s)[:, None] * projected)
            best = (float(gain.mean()), weights)
    return None if best is None else best[1]
