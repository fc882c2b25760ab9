"""What history did and what came of it, regressed: for judging policies by records.

None of this is shared with the methods that are judged: a judge who believes what the
judged believe would find them right.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from jaxtyping import Bool, Float

from forestall.arrays import Array
from forestall.kernels import Gaussian, median_bandwidth
from forestall.region import Polytope

# Beyond this many records a regression is settled well enough for this.
REGRESSED = 800
WIDTHS = (None, 1.0, 0.4)
PENALTIES = (1e1, 1e-1, 1e-2, 1e-3, 1e-4, 1e-5)
# A constant added to a kernel is an intercept; a large one is hardly penalised.
INTERCEPT = 1e4
# A spread is taken to change with the inputs by no more than this factor either way.
UNEVEN = 4.0
# The share of a wide law that keeps densities above zero where nobody has been.
WIDE, WIDTH = 0.05, 2.0
# A linear fit that misses by this share more than a curved one is no good fit.
BENT = 0.03


@dataclass(frozen=True, eq=False)
class Kernel:
    """A linear kernel with an intercept, and a Gaussian one on top where it helps."""

    gaussian: Gaussian | None

    def __call__(
        self, z: Float[Array, "n d"], centres: Float[Array, "m d"]
    ) -> Float[Array, "n m"]:
        """Evaluate it between every point and every centre."""
        linear = INTERCEPT + z @ centres.T
        return linear if self.gaussian is None else linear + self.gaussian(z, centres)


@dataclass(frozen=True, eq=False)
class Smoother:
    """A fitted ridge regression of one variable.

    Args:
        kernel: The kernel that predicted best.
        centres: The records learned from.
        weights: One for each of them.
        left_out: What each of them misses by, predicted from the others.
    """

    kernel: Kernel
    centres: Float[Array, "n d"]
    weights: Float[Array, " n"]
    left_out: Float[Array, " n"]

    def __call__(self, z: Float[Array, "q d"]) -> Float[Array, " q"]:
        """Predict."""
        return self.kernel(z, self.centres) @ self.weights

    @property
    def error(self) -> float:
        """The mean square of what is missed."""
        return float((self.left_out**2).mean())


@dataclass(frozen=True, eq=False)
class Family:
    """Ridge regressions on the same inputs, factored once for any variable.

    Args:
        z: The inputs.
    """

    z: Float[Array, "n d"]

    @cached_property
    def _factors(self) -> list[tuple[Kernel, Array, Array]]:
        factors = []
        for width in WIDTHS if self.z.shape[1] else WIDTHS[:1]:
            gaussian = width and Gaussian(median_bandwidth(self.z, width))
            kernel = Kernel(gaussian or None)
            s, V = np.linalg.eigh(kernel(self.z, self.z))
            factors.append((kernel, np.maximum(s, 0.0), V))
        return factors

    def fit(self, v: Float[Array, " n"], *, linear: bool = False) -> Smoother:
        """Regress a variable by whatever predicts left-out records best.

        Args:
            v: The variable.
            linear: Whether to stay with the linear kernel.
        """
        factors = self._factors[:1] if linear else self._factors
        fits = [
            _ridge(kernel, self.z, s, V, v, penalty)
            for kernel, s, V in factors
            for penalty in PENALTIES
        ]
        return min(fits, key=lambda fit: fit.error)


def _ridge(
    kernel: Kernel,
    z: Float[Array, "n d"],
    s: Float[Array, " n"],
    V: Float[Array, "n n"],
    v: Float[Array, " n"],
    penalty: float,
) -> Smoother:
    d = 1.0 / (s + len(z) * penalty)
    weights = V @ (d * (V.T @ v))
    return Smoother(kernel, z, weights, weights / (V**2 @ d))


@dataclass(frozen=True, eq=False)
class ActionLaw:
    """How one action was chosen in history, given what preceded it.

    Args:
        mean: What was usual.
        variance: How far the action strayed from that, squared.
        typical: The mean of that square.
        errors: The standardised deviations of the records, in order.
    """

    mean: Smoother
    variance: Smoother
    typical: float
    errors: Float[Array, " n"]

    @classmethod
    def fit(cls, family: Family, a: Float[Array, " n"]) -> ActionLaw:
        """Learn it from records."""
        mean = family.fit(a)
        squares = mean.left_out**2
        typical = float(squares.mean()) or 1.0
        law = cls(mean, family.fit(squares), typical, mean.left_out)
        # By records left out as well: fitted spreads follow their own records.
        spread = law._bounded(squares - law.variance.left_out)
        errors = mean.left_out / np.sqrt(spread)
        return cls(mean, law.variance, typical, np.sort(errors))

    @property
    def sd(self) -> float:
        """The typical deviation from what was usual."""
        return float(np.sqrt(self.typical))

    def deviations(
        self, a: Float[Array, " q"], z: Float[Array, "q d"]
    ) -> Float[Array, " q"]:
        """How far actions are from what was usual, in standard deviations."""
        return (a - self.mean(z)) / np.sqrt(self._bounded(self.variance(z)))

    def density(
        self, a: Float[Array, " q"], z: Float[Array, "q d"]
    ) -> Float[Array, " q"]:
        """The density of actions, by the deviations that history had."""
        e = self.deviations(a, z)
        width = 0.9 * len(self.errors) ** -0.2
        # Drawn together first, so that smoothing does not add to the spread.
        drawn = self.errors * np.sqrt(1.0 - width**2)
        usual = _normal((e[:, None] - drawn) / width).mean(axis=1) / width
        told = (1.0 - WIDE) * usual + WIDE * _normal(e / WIDTH) / WIDTH
        return told / np.sqrt(self._bounded(self.variance(z)))

    def _bounded(self, variance: Float[Array, " q"]) -> Float[Array, " q"]:
        return np.clip(variance, self.typical / UNEVEN, self.typical * UNEVEN)


def _normal(t: Array) -> Array:
    return np.exp(-0.5 * t**2) / np.sqrt(2.0 * np.pi)


@dataclass(frozen=True, eq=False)
class Goodness:
    """How likely a good outcome is given all that preceded it.

    Args:
        direct: A regression of whether records are good.
        means: A regression of each outcome, in the user's units; empty where regressing
            directly predicts better.
        region: The desired region.
    """

    direct: Smoother
    means: tuple[Smoother, ...]
    region: Polytope

    @classmethod
    def fit(
        cls,
        family: Family,
        y: Float[Array, "n d_y"],
        good: Bool[Array, " n"],
        region: Polytope,
    ) -> Goodness:
        """Learn it from records, by whichever way predicts left-out ones better."""
        hit = good.astype(float)
        direct = family.fit(hit)
        means = tuple(family.fit(column) for column in y.T)
        both = cls(direct, means, region)
        plain = np.clip(hit - direct.left_out, 0.0, 1.0)
        recentred = both._shares(y - both._residuals, leave_out=True)
        if ((plain - hit) ** 2).mean() <= ((recentred - hit) ** 2).mean():
            return cls(direct, (), region)
        return both

    def __call__(self, h: Float[Array, "q d"]) -> Float[Array, " q"]:
        """Predict."""
        if not self.means:
            return np.clip(self.direct(h), 0.0, 1.0)
        return self._shares(np.column_stack([mean(h) for mean in self.means]))

    @cached_property
    def _residuals(self) -> Float[Array, "n d_y"]:
        return np.column_stack([mean.left_out for mean in self.means])

    def _shares(
        self, centres: Float[Array, "q d_y"], leave_out: bool = False
    ) -> Float[Array, " q"]:
        """The share of residuals that lead from each centre into the region."""
        inside = np.array([self.region.contains(c + self._residuals) for c in centres])
        if not leave_out:
            return inside.mean(axis=1)
        own = inside.diagonal()
        return (inside.sum(axis=1) - own) / max(1, len(inside) - 1)


@dataclass(frozen=True)
class LinearFit:
    """Whether outcomes look linear in what precedes them, with Gaussian noise.

    Args:
        lost: By what share a linear fit misses left-out records by more than a curved
            one, for the outcome with the largest share.
        skewed: The largest skewness of what is missed.
        tailed: The largest excess kurtosis of it, either way.
    """

    lost: float
    skewed: float
    tailed: float

    @classmethod
    def of(cls, family: Family, y: Float[Array, "n d_y"]) -> LinearFit:
        """Look at every outcome."""
        lost, skewed, tailed = 0.0, 0.0, 0.0
        for column in y.T:
            best, linear = family.fit(column), family.fit(column, linear=True)
            ratio = linear.error / max(best.error, 1e-300)
            lost = max(lost, float(np.sqrt(ratio)) - 1.0)
            e = linear.left_out / (linear.left_out.std() or 1.0)
            skewed = max(skewed, abs(float((e**3).mean())))
            tailed = max(tailed, abs(float((e**4).mean()) - 3.0))
        return cls(lost, skewed, tailed)

    @property
    def fine(self) -> bool:
        """Whether nothing speaks against it."""
        return self.lost < BENT and self.skewed < 0.5 and self.tailed < 1.0

    def __str__(self) -> str:
        """Say it in a clause."""
        if self.fine:
            return "the outcomes look linear, with Gaussian noise"
        if self.lost >= BENT:
            return f"a linear fit of the outcomes misses by {self.lost:.0%} more"
        return "what a linear fit misses does not look Gaussian"
