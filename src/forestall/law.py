r"""How a variable strays from its mean: recentred conditional mean embeddings.

Given the inputs, a residual has a spread that may change with them, and, divided by it,
the law of all residuals, distorted by how often they stay below each of a few levels
near those inputs. The embedding of the residual given the inputs, evaluated at the
indicators of these levels, says how often; away from the records it falls back to the
law of all residuals. So a law may be skewed, have several modes, and change with the
inputs in spread and shape.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float
from scipy.linalg import eigh, svd
from scipy.special import ndtr

from forestall.arrays import Array
from forestall.influence import Influence
from forestall.kernels import quick_gram
from forestall.loudness import Loudness, laid

LEVELS = 15
GRID = 400
# The smoothing of the residuals' law, as a share of Silverman's width: enough for a
# gradient, too little to matter.
SMOOTHING = 0.25
# With more records than this, the width falls like the square root of their number.
USUAL = 1_000
PENALTIES = np.geomspace(1e-2, 1e4, 13)
# Millions of records can show what is not worth its time: less than this share.
NEGLIGIBLE = 1e-4


@dataclass(frozen=True, eq=False)
class Law:
    r"""The law of residuals, for the records' own weights and for draws of them.

    Column 0 weighs all records alike; the others are draws of the Bayesian bootstrap,
    which say how well so many residuals show their law around its middle.

    Args:
        grid: Equally spaced values of the residual, divided by its spread.
        below: The share of residuals below each of them, a column for each draw.
        spread: How the spread changes with the inputs; ``None`` where it does not.
        distortion: How the shape does; ``None`` where it does not.
    """

    grid: Float[Array, " g"]
    below: Float[Array, "g s"]
    spread: Loudness | Spread | None
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
        influence: Influence | None = None,
    ) -> Law:
        """Learn the law of the residuals, and whether it changes with the inputs.

        Args:
            z: The inputs.
            residuals: How far records stray from their mean.
            n_draws: How many laws are drawn.
            rng: What they are drawn with.
            local: Whether the law may change with the inputs.
            influence: How far residuals moved the mean, in units of their spread.
        """
        spread = distortion = None
        if local:
            spread = Loudness.of(z, residuals, n_draws, rng)
            if spread is not None:
                residuals = residuals / spread(z, 0)
            distortion = Distortion.of(Features.of(z), z, residuals, n_draws, rng)
        n = len(residuals)
        width = smoothing(float(residuals.std()), n)
        ends = residuals.min() - 4 * width, residuals.max() + 4 * width
        grid = np.linspace(*ends, GRID)
        weights = np.full((n, 1 + n_draws), 1.0 / n)
        weights[:, 1:] = rng.dirichlet(np.ones(n), size=n_draws).T
        below = ndtr((grid[:, None] - residuals) / width) @ weights
        if influence is None:
            influence = Influence.clipped(residuals)
        return cls(*recentred(grid, below, influence), spread, distortion)

    def at(
        self,
        z: Float[Array, "n d"],
        draw: int,
        mean: Float[Array, " n"] | None = None,
    ) -> LawAt:
        """Fix the inputs and the draw; the mean does not matter."""
        del mean
        return LawAt(
            self.grid,
            self.below[:, draw],
            np.ones(len(z)) if self.spread is None else self.spread.roughly(z, draw),
            None if self.distortion is None else self.distortion(z, draw),
        )


@dataclass(frozen=True, eq=False)
class LawAt:
    """The law of a residual at each of some inputs."""

    grid: Float[Array, " g"]
    below: Float[Array, " g"]
    spread: Float[Array, " n"]
    shares: Shares | None

    @property
    def rise(self) -> Float[Array, " n"]:
        """How much the value rises with its mean."""
        return np.ones(len(self.spread))

    def cdf(self, t: Float[Array, " n"]) -> Float[Array, " n"]:
        """How likely the residual is at most ``t``."""
        level = np.interp(t / self.spread, self.grid, self.below, left=0.0, right=1.0)
        return level if self.shares is None else self.shares.apply(level)

    def density(self, t: Float[Array, " n"]) -> Float[Array, " n"]:
        """The slope of :meth:`cdf`."""
        step = (self.grid[1] - self.grid[0]) * self.spread
        return (self.cdf(t + step) - self.cdf(t - step)) / (2.0 * step)

    def quantile(self, u: Float[Array, " n"]) -> Float[Array, " n"]:
        """The residual that is exceeded with probability ``1 - u``."""
        level = u if self.shares is None else self.shares.undo(u)
        return self.spread * np.interp(level, self.below, self.grid)


@dataclass(frozen=True, eq=False)
class Features:
    """Inputs, their squares, and a Gaussian kernel on a few centres, standardised."""

    bandwidth: Float[Array, " d"]
    centres: Float[Array, "m d"]
    mean: Float[Array, " q"]
    scale: Float[Array, " q"]

    @classmethod
    def of(cls, z: Float[Array, "n d"]) -> Features:
        """Spread the centres over the records."""
        bandwidth, centres = laid(z)
        raw = np.concatenate([z, z**2, quick_gram(z / bandwidth, centres)], axis=1)
        scale = raw.std(axis=0)
        return cls(
            bandwidth, centres, raw.mean(axis=0), np.where(scale > 0, scale, 1.0)
        )

    def __call__(
        self, z: Float[Array, "n d"]
    ) -> tuple[Float[Array, "n q"], Float[Array, " n"]]:
        """Evaluate the features, and how near the records each input is, 0 to 1."""
        rows = quick_gram(z / self.bandwidth, self.centres)
        near = np.minimum(1.0, 2.0 * rows.max(axis=1, initial=0.0))
        raw = np.concatenate([z, z**2, rows], axis=1)
        return (raw - self.mean) / self.scale, near


@dataclass(frozen=True, eq=False)
class Spread:
    """How loud the residuals are, as policies saved in format 2 or older have it.

    Args:
        features: The features of the inputs.
        base: The mean of the log squared residuals.
        weights: What each feature adds to it: the estimate, then posterior draws.
        ends: The range of the fitted values, which is not left.
    """

    features: Features
    base: float
    weights: Float[Array, "s q"]
    ends: tuple[float, float]

    def __call__(self, z: Float[Array, "n d"], draw: int) -> Float[Array, " n"]:
        """Give the spread at each input, in units of the common one."""
        Psi, near = self.features(z)
        return np.exp(0.5 * near * np.clip(Psi @ self.weights[draw], *self.ends))

    roughly = __call__


@dataclass(frozen=True, eq=False)
class Distortion:
    """How often residuals stay below each level, as a function of the inputs.

    Args:
        features: The features of the inputs.
        weights: What each feature adds to the share below each level: the estimate,
            then draws from its posterior.
    """

    features: Features
    weights: Float[Array, "s q k"]

    @classmethod
    def of(
        cls,
        features: Features,
        z: Float[Array, "n d"],
        residuals: Float[Array, " n"],
        n_draws: int,
        rng: np.random.Generator,
    ) -> Distortion | None:
        """Regress the indicators on the inputs; ``None`` where that does not help."""
        levels = shared_levels()
        target = residuals[:, None] <= np.quantile(residuals, levels)
        ridge = ridge_if_it_helps(features(z)[0], target - target.mean(axis=0))
        return None if ridge is None else cls.drawn(features, ridge, n_draws, rng)

    @classmethod
    def drawn(
        cls,
        features: Features,
        ridge: Regression,
        n_draws: int,
        rng: np.random.Generator,
    ) -> Distortion:
        """Draw what the regression of the indicators leaves unknown."""
        levels = shared_levels()
        # The indicators of neighbouring levels err together, like a Brownian bridge.
        bridge = np.minimum.outer(levels, levels) - np.outer(levels, levels)
        noise = rng.normal(size=(n_draws, ridge.root.shape[1], LEVELS))
        spread = ridge.root @ noise @ np.linalg.cholesky(bridge).T
        weights = np.concatenate([ridge.weights[None], ridge.weights + spread])
        return cls(features, weights)

    def __call__(self, z: Float[Array, "n d"], draw: int) -> Shares:
        """Give the shares below the levels near each input."""
        Psi, near = self.features(z)
        shares = shared_levels() + near[:, None] * (Psi @ self.weights[draw])
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
        below: Bool[Array, "n k"] = self.values < u[:, None]
        k = np.clip(below.sum(axis=1) - 1, 0, LEVELS)
        rows = np.arange(len(u))
        low, high = self.values[rows, k], self.values[rows, k + 1]
        part = (u - low) / np.maximum(high - low, 1e-9)
        return (k + np.clip(part, 0.0, 1.0)) / (LEVELS + 1)


def shared_levels() -> Float[Array, " k"]:
    """The levels of the law of all residuals whose shares are learned."""
    return np.arange(1, LEVELS + 1) / (LEVELS + 1)


def recentred(
    grid: Float[Array, " g"], below: Float[Array, "g s"], influence: Influence
) -> tuple[Float[Array, " h"], Float[Array, "h s"]]:
    """Move every drawn law to the middle of the first.

    How well the records show where the middle is, the draws of the mean say already: it
    is where what moves the mean cancels out, to which one step of Newton's leads.
    """
    step = grid[1] - grid[0]
    # What residuals move the mean by, on average, by parts.
    shifts = np.diff(influence(grid)) @ (below[:, :1] - below)[:-1]
    more = int(np.ceil(np.abs(shifts).max() / step))
    wide = grid[0] + step * np.arange(-more, len(grid) + more)
    drawn = zip(shifts, below.T, strict=True)
    return wide, np.column_stack([np.interp(wide + t, grid, law) for t, law in drawn])


def smoothing(deviation: float, n: int) -> float:
    """The width by which the law of ``n`` residuals is smoothed.

    What it blurs must stay below what so many records leave open.
    """
    width = SMOOTHING * 1.06 * max(deviation, 1e-12) * n**-0.2
    return width * min(1.0, (USUAL / n) ** 0.3)


@dataclass(frozen=True, eq=False)
class Regression:
    """A ridge regression, and the root of what it leaves unknown, for unit noise."""

    weights: Float[Array, "q k"]
    root: Float[Array, "q r"]


def ridge_if_it_helps(
    Psi: Float[Array, "n q"], target: Float[Array, "n k"]
) -> Regression | None:
    """Choose the penalty by leave-one-out error; ``None`` when the mean does better."""
    U, s, Vt = svd(Psi, full_matrices=False)
    projected = U.T @ target
    best, highest = None, 0.0
    for penalty in PENALTIES:
        shrink = s**2 / (s**2 + penalty)
        leverage = (U**2) @ shrink + 1.0 / len(Psi)
        fitted = U @ (shrink[:, None] * projected)
        left_out = (target - fitted) / np.maximum(1.0 - leverage, 1e-3)[:, None]
        gain = float((target**2 - left_out**2).sum(axis=1).mean())
        if gain > highest:
            weights = Vt.T @ ((s / (s**2 + penalty))[:, None] * projected)
            best, highest = Regression(weights, Vt.T / np.sqrt(s**2 + penalty)), gain
    return best


def ridge_by_sums(
    gram: Float[Array, "q q"],
    cross: Float[Array, "q k"],
    squares: Float[Array, " k"],
    n: int,
) -> Regression | None:
    r"""Do the same by sums over records, with the mean leverage in place of each.

    Args:
        gram: The sums :math:`\Psi^\top \Psi`.
        cross: The sums :math:`\Psi^\top T` with the targets.
        squares: The sum of squares of each target.
        n: The number of records.
    """
    values, axes = eigh(gram)
    values, projected = np.maximum(values, 0.0), axes.T @ cross
    best, highest = None, NEGLIGIBLE * float(squares.sum())
    for penalty in PENALTIES:
        ridged = values + penalty
        fitted = ((values + 2.0 * penalty) / ridged**2) @ projected**2
        leverage = float((values / ridged).sum() + 1.0) / n
        left_out = (squares - fitted) / max(1.0 - leverage, 1e-3) ** 2
        gain = float((squares - left_out).sum())
        if gain > highest:
            weights = axes @ (projected / ridged[:, None])
            # Symmetric: of another root, rounding would decide which one it is.
            root = (axes / np.sqrt(ridged)) @ axes.T
            best, highest = Regression(weights, root), gain
    return best
