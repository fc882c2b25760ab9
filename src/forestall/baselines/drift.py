r"""Coefficients that drift, followed by an ensemble of online gradient descents.

Each member descends the squared error of one record after the other with a step of its
own, in whitened inputs; exponential weights follow whichever member predicts best. The
last weighted mean is the estimate for what comes next.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from forestall.arrays import Array
from forestall.ascent import is_positive
from forestall.baselines.linear_gaussian import LEAST, Coefficients, LinearGaussian
from forestall.baselines.linear_policy import is_whole
from forestall.errors import SpecError

# The share of the weight that is spread anew after every record, so that a member
# which was bad for long can come back when the drift changes its pace.
SHARE = 0.01
# No member leaves the ball of this radius, in standard deviations of the target: the
# largest steps would carry it away for ever.
RADIUS = 10.0
# The spread is judged by the latest errors, this share of the records.
LATEST = 0.25
# Directions of the inputs that barely vary count as this share of the largest.
FLOOR = 1e-3


@dataclass(frozen=True, kw_only=True)
class Drift:
    """How drifting coefficients are followed; the records come in order of time.

    Args:
        smallest: The smallest step.
        largest: The largest step.
        n_steps: How many steps, evenly spaced by their logarithms.
    """

    smallest: float = 1e-3
    largest: float = 10.0
    n_steps: int = 13

    def __post_init__(self) -> None:
        """Check the steps."""
        ends = (self.smallest, self.largest)
        if not all(map(is_positive, ends)) or self.smallest > self.largest:
            raise SpecError(
                f"Expected smallest and largest above zero, in this order; got "
                f"{self.smallest!r} and {self.largest!r}. Use 1e-3 and 10."
            )
        if not is_whole(self.n_steps) or self.n_steps < 1:
            raise SpecError(
                f"Expected n_steps whole and at least 1; got {self.n_steps!r}. Use 13."
            )

    @property
    def steps(self) -> Float[Array, " j"]:
        """The step of each member."""
        return np.geomspace(self.smallest, self.largest, self.n_steps)

    def coefficients(self, model: LinearGaussian) -> Coefficients:
        """Follow every equation of a model to the end of the records."""
        found = [
            followed(model.inputs_of(e), model.targets_of(e), self.steps)
            for e in model.equations
        ]
        return model.coefficients(
            [each.intercept for each in found],
            [each.slopes for each in found],
            [each.sd for each in found],
        )


@dataclass(frozen=True, eq=False)
class Followed:
    """One equation as it stands after the last record."""

    intercept: float
    slopes: Float[Array, " p"]
    sd: float


def followed(
    z: Float[Array, "n p"], v: Float[Array, " n"], steps: Float[Array, " j"]
) -> Followed:
    """Follow one equation through its records.

    Args:
        z: The inputs, in order of time.
        v: The targets.
        steps: The step of each member of the ensemble.
    """
    mean = z.mean(axis=0)
    whitening = _whitening(z - mean)
    phi = np.column_stack([np.ones(len(z)), (z - mean) @ whitening])
    level, scale = float(v.mean()), float(v.std()) or 1.0
    ensemble = _Ensemble(phi.shape[1], steps)
    errors = np.array(
        [ensemble.learn(p, t) for p, t in zip(phi, (v - level) / scale, strict=True)]
    )
    w = scale * ensemble.mean
    latest = errors[-max(2, int(LATEST * len(errors))) :]
    sd = scale * float(np.sqrt(np.mean(latest**2)))
    slopes = whitening @ w[1:]
    return Followed(level + float(w[0] - mean @ slopes), slopes, max(sd, LEAST))


class _Ensemble:
    """Members with different steps, and how much each is trusted."""

    def __init__(self, p: int, steps: Float[Array, " j"]) -> None:
        # A step of one would go all the way to fitting the record itself.
        self.steps = steps / p
        self.w = np.zeros((len(steps), p))
        self.weights = np.full(len(steps), 1.0 / len(steps))
        self.variance = 1.0

    @property
    def mean(self) -> Float[Array, " p"]:
        return self.weights @ self.w

    def learn(self, phi: Float[Array, " p"], v: float) -> float:
        """Take one record in; give the error made in predicting it."""
        error = v - float(self.mean @ phi)
        errors = v - self.w @ phi
        self._weigh(errors**2)
        self.variance += 0.05 * (error**2 - self.variance)
        self.w += (self.steps * errors)[:, None] * phi
        length = np.linalg.norm(self.w, axis=1, keepdims=True)
        self.w *= np.minimum(1.0, RADIUS / np.maximum(length, RADIUS))
        return error

    def _weigh(self, losses: Float[Array, " j"]) -> None:
        gap = (losses - losses.min()) / (2.0 * max(self.variance, LEAST))
        weights = self.weights * np.exp(-np.minimum(gap, 50.0))
        weights /= weights.sum()
        self.weights = (1.0 - SHARE) * weights + SHARE / len(weights)


def _whitening(z: Float[Array, "n p"]) -> Float[Array, "p p"]:
    if z.shape[1] == 0:
        return np.empty((0, 0))
    variance, axes = np.linalg.eigh(z.T @ z / len(z))
    return axes / np.sqrt(np.maximum(variance, FLOOR**2 * max(variance[-1], LEAST**2)))
