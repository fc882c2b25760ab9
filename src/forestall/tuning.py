r"""Widths and penalties from the records alone.

They make the leave-one-out error small. The ratio of noise to signal
:math:`\rho = N \lambda` is a property of the law of the data, not of how many there
are. So a ratio found on a sample of the records serves all :math:`N` of them, as the
penalty :math:`\lambda = \rho / N`.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float
from scipy.optimize import minimize

from forestall.arrays import Array
from forestall.leaving import ABSENT, DECIMALS, NOTHING, Inputs, LeaveOneOut

STEPS = 60
# Widths are looked for within these multiples of a variable's spread.
NARROWEST, WIDEST = 0.1, 30.0
RATIOS = (1e-4, 10.0)
# Weak beliefs: a narrow width has to earn its place, so that a variable that does not
# matter becomes wide; and noise is neither absent nor everything.
SIMPLICITY, RATIO, DOUBT = 1.0, 0.3, 2.0
START_FACTORS = (1.0, 3.0)
# Where variables go together there are several valleys; a sweep looks into more.
SWEEP_FACTORS = (0.1, 0.3, 1.0, 3.0, 10.0)
# Rounded, so that where a flat descent happens to end does not matter either.
LOG_DECIMALS = 2


@dataclass(frozen=True)
class Relevance:
    """What became of one variable.

    Args:
        name: The variable.
        width: Its width, in units of its spread.
        rise: By which share the error rises when the variable is left out.
    """

    name: str
    width: float
    rise: float

    @property
    def irrelevant(self) -> bool:
        """Whether it is so wide that the regression does without it."""
        return self.width >= 0.5 * ABSENT

    def __str__(self) -> str:
        """Say how much it matters."""
        if self.irrelevant:
            return f"{self.name}: irrelevant, left out"
        return (
            f"{self.name}: width {self.width:.3g} spreads; without it the error rises "
            f"by {self.rise:.1%}"
        )


@dataclass(frozen=True, eq=False)
class Tuned:
    r"""The hyperparameters of one regression, and what speaks for them.

    Args:
        widths: The width of each input column.
        ratio: The ratio of noise to signal :math:`\rho = N \lambda`.
        variables: What became of each variable.
        error: The mean squared leave-one-out error.
        median_error: The same for the median heuristic and the usual penalty.
    """

    widths: Float[Array, " d"]
    ratio: float
    variables: tuple[Relevance, ...]
    error: float
    median_error: float

    def penalty(self, n: int) -> float:
        r"""The penalty :math:`\lambda = \rho / N` for ``n`` records."""
        return self.ratio / n

    def __str__(self) -> str:
        """List the variables below the error."""
        head = (
            f"noise to signal {self.ratio:.2g}; error {self.error:.4g}, against "
            f"{self.median_error:.4g} by the median heuristic"
        )
        return "\n".join([head, *(f"  {each}" for each in self.variables)])


def tune(
    inputs: Inputs,
    outputs: Float[Array, "n m"],
    *,
    usual: float,
    given: float | None = None,
    kept: tuple[str, ...] = (),
) -> Tuned:
    r"""Choose widths and ratio by the leave-one-out error of ``outputs``.

    What is chosen is never worse than the median heuristic on these records.

    Args:
        inputs: What the regression is on; at most some hundred records.
        outputs: What it is of.
        usual: The ratio :math:`\rho` that goes with the median heuristic.
        given: A ratio to keep instead of choosing one.
        kept: Variables that are not left out.
    """
    held = LeaveOneOut(inputs.squares(), np.round(outputs, DECIMALS))
    median = np.append(np.log(usual if given is None else given), inputs.log_medians)
    worst = held.error(median)
    ends = Search(held, inputs, given, kept).ends()
    theta = next((end for end in ends if held.error(end) <= worst), median)
    return Tuned(
        np.exp(theta[1:])[inputs.groups],
        float(np.exp(theta[0])),
        _relevances(inputs, held, theta),
        held.error(theta),
        worst,
    )


def _relevances(
    inputs: Inputs, held: LeaveOneOut, theta: Float[Array, " k"]
) -> tuple[Relevance, ...]:
    widths = (np.exp(theta[1:]) / inputs.spreads).tolist()
    told = zip(inputs.names, widths, rises(held, theta, inputs), strict=True)
    return tuple(Relevance(*each) for each in told)


def rises(
    held: LeaveOneOut, theta: Float[Array, " k"], inputs: Inputs
) -> Float[Array, " g"]:
    """By which share the error rises without each variable."""
    absent, errors = inputs.log_absent, []
    for g in range(len(absent)):
        without = theta.copy()
        without[1 + g] = absent[g]
        errors.append(held.error(without) + NOTHING)
    return np.array(errors) / (held.error(theta) + NOTHING) - 1.0


@dataclass(frozen=True, eq=False)
class Search:
    """The descent to good hyperparameters.

    Args:
        held: The error to make small.
        inputs: What it is a regression on.
        given: A ratio to keep; ``None`` looks for one.
        kept: Variables that are not left out.
    """

    held: LeaveOneOut
    inputs: Inputs
    given: float | None
    kept: tuple[str, ...] = ()

    def ends(self) -> list[Float[Array, " k"]]:
        """Descend, leave out what does not earn its place, descend again.

        The first end is the one to prefer; the second has left nothing out.
        """
        ratio = np.log(RATIO if self.given is None else self.given)
        medians = self.inputs.log_medians
        starts = [np.append(ratio, medians + np.log(f)) for f in START_FACTORS]
        starts.append(self._swept(starts[0]))
        ends = [self._descended(start) for start in starts]
        theta = min(ends, key=self.value)
        thinned = self._thinned(theta)
        if not np.array_equal(thinned, theta):
            thinned = self._descended(thinned)
        return [self._rounded(thinned), self._rounded(theta)]

    def _swept(self, theta: Float[Array, " k"]) -> Float[Array, " k"]:
        """Try a few widths for one variable after the other, the last first."""
        for g in reversed(range(1, len(theta))):
            trials = np.tile(theta, (len(SWEEP_FACTORS), 1))
            trials[:, g] += np.log(SWEEP_FACTORS)
            theta = min(trials, key=self.value)
        return theta

    def _rounded(self, theta: Float[Array, " k"]) -> Float[Array, " k"]:
        rounded = np.round(theta, LOG_DECIMALS)
        return rounded if self.given is None else np.append(theta[0], rounded[1:])

    def _thinned(self, theta: Float[Array, " k"]) -> Float[Array, " k"]:
        r"""Leave out, the least first, each variable that explains no more than chance.

        A parameter costs :math:`\tfrac12 \log N` (Schwarz), and the criterion is
        :math:`\tfrac N2 \log` of the error.
        """
        n, error = len(self.held.outputs), self.held.error(theta) + NOTHING
        for g in np.argsort(rises(self.held, theta, self.inputs), kind="stable"):
            without = theta.copy()
            without[1 + g] = self._absent[g]
            risen = self.held.error(without) + NOTHING
            cheap = np.log(risen / error) <= np.log(n) / n
            if cheap and self.inputs.names[g] not in self.kept:
                theta, error = without, risen
        return theta

    def _descended(self, theta: Float[Array, " k"]) -> Float[Array, " k"]:
        bounds = self._bounds(theta)
        return minimize(
            self,
            np.clip(theta, *bounds.T),
            jac=True,
            method="L-BFGS-B",
            bounds=bounds,
            options={"maxiter": STEPS},
        ).x

    def value(self, theta: Float[Array, " k"]) -> float:
        """Weigh the error against the weak beliefs."""
        n, error = len(self.held.outputs), self.held.error(theta)
        return 0.5 * n * float(np.log(error + NOTHING)) + self._belief(theta)

    def __call__(self, theta: Float[Array, " k"]) -> tuple[float, Float[Array, " k"]]:
        """Give the value and its gradient."""
        value, gradient = self.held(theta)
        gradient[0] += (theta[0] - np.log(RATIO)) / DOUBT**2
        gradient[1:] -= SIMPLICITY * np.exp(self.inputs.log_medians - theta[1:])
        return value + self._belief(theta), gradient

    def _belief(self, theta: Float[Array, " k"]) -> float:
        narrowness = np.exp(self.inputs.log_medians - theta[1:]).sum()
        off = (theta[0] - np.log(RATIO)) / DOUBT
        return float(SIMPLICITY * narrowness + 0.5 * off**2)

    def _bounds(self, theta: Float[Array, " k"]) -> Float[Array, "k 2"]:
        """Bound the search; a ratio that is given and an absent variable stay."""
        spreads = self.inputs.spreads
        widths = np.log(np.outer(spreads, [NARROWEST, WIDEST]))
        bounds = np.concatenate([np.log([RATIOS]), widths])
        stay = np.append(self.given is not None, theta[1:] >= self._absent)
        bounds[stay] = theta[stay, None]
        return bounds

    @property
    def _absent(self) -> Float[Array, " g"]:
        return self.inputs.log_absent
