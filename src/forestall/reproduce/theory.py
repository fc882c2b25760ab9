r"""Both theorems of the paper, measured where the truth has a closed form.

Theorem 1: :math:`|P(Y \in S) - E\,w_\eta(Y)| = O(\sqrt{\ln \eta} / \eta)`, by
quadrature. The constant follows the proof: with :math:`M_k` a bound on the density of
:math:`m_k^\top Y` and :math:`\varepsilon = \sqrt{2 \ln \eta} / \eta`, the tubes around
the hyperplanes hold at most :math:`2 \varepsilon \sum_k M_k` of the probability, and
outside of them the error is at most :math:`l\,\Phi(-\eta\varepsilon)`.

Theorem 2: :math:`\hat J_\eta` at the penalties :math:`\lambda_x = N^{-1/2}`,
:math:`\lambda_h = N^{-1/4}`, for which the bound is of the order :math:`N^{-1/8}`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np
from jaxtyping import Float
from scipy.special import ndtr

from forestall.arrays import Array
from forestall.conditional import ConditionalRehearsal
from forestall.nested import KernelRehearsal, NestedRehearsal
from forestall.problem import Problem
from forestall.region import Polytope, ProbitDesirability
from forestall.reproduce.sheet import QUICK, write_sheet

SURROGATE, ESTIMATOR = "theory-surrogate", "theory-estimator"
SMALLEST_ETA = 2.0
ETAS = 2.0 ** np.arange(1, 10)
NODES, WEIGHTS = np.polynomial.legendre.leggauss(10)
PEAK = 1 / math.sqrt(2 * math.pi)

# Theorem 2: penalties for which the paper states the rate, and the world they are
# tried in. X ~ U(-1, 1), U = X + N(0, 1/2), A = U + N(0, s), Y = A - 2U + X + N(0, 1/2)
SHARPNESS = 5.0
PACED, NESTED, SINGLE = "nested, paced", "nested", "single"
# With A = U + N(0, 1/2) the confounder hides the effect of A altogether; penalties that
# stay let an estimator that adjusts show it.
FIXED = 1e-3
SIZES = (100, 200, 400, 800, 1600)
SEEDS = tuple(range(12))
QUESTION = Problem(
    context=["x"],
    covariates=["u"],
    actions={"a": (-2.0, 2.0)},
    outcomes=["y"],
    desired=["y <= 0"],
    order=["x", "u", "a", "y"],
)
ASKED = np.array([(x, a) for x in (-0.6, 0.0, 0.6) for a in (-0.8, -0.2, 0.4, 0.8)])


@dataclass(frozen=True)
class Case:
    """A law of one outcome, and a region for it.

    Args:
        name: What the case is called.
        desired: The region.
        density: The law's density.
        low: Where the law begins, for all that matters.
        high: Where it ends.
        peak: The highest value of the density.
    """

    name: str
    desired: str
    density: Callable[[Array], Array]
    low: float
    high: float
    peak: float

    @property
    def region(self) -> Polytope:
        """The region itself."""
        return Polytope.parse([self.desired], ["y"])

    def gap(self, eta: float) -> float:
        """How far the smoothed probability is from the probability."""
        region, w = self.region, ProbitDesirability(self.region, eta)
        return abs(self._integral(lambda y: w(y) - region.contains(y), eta))

    def bound(self, eta: float) -> float:
        """What the proof promises for ``eta`` of two or more."""
        rows = len(self.region)
        tail = rows / (2 * math.sqrt(math.pi) * math.log(SMALLEST_ETA))
        constant = math.sqrt(2) * 2 * rows * self.peak + tail
        return constant * math.sqrt(math.log(eta)) / eta

    def _integral(self, f: Callable[[Array], Array], eta: float) -> float:
        """Gauss-Legendre on panels narrower than a step, cut where the region ends."""
        ends = self.region.offsets / self.region.normals[:, 0]
        inside = np.clip(ends, self.low, self.high).tolist()
        cuts = sorted({self.low, *inside, self.high})
        total = 0.0
        for low, high in pairwise(cuts):
            edges = np.linspace(low, high, 2 + int((high - low) * eta))
            half = np.diff(edges)[:, None] / 2
            y = edges[:-1, None] + half * (1 + NODES)
            total += float((half * WEIGHTS * f(y[..., None]) * self.density(y)).sum())
        return total


def gaussian(mean: float, deviation: float) -> Callable[[Array], Array]:
    """The density of a Gaussian."""
    return lambda y: PEAK / deviation * np.exp(-0.5 * ((y - mean) / deviation) ** 2)


CASES = (
    Case("Gaussian, y <= 0.9", "y <= 0.9", gaussian(0.3, 0.5), -4.2, 4.8, PEAK / 0.5),
    Case(
        "Gaussian, 0.1 <= y <= 0.9",
        "0.1 <= y <= 0.9",
        gaussian(0.3, 0.5),
        -4.2,
        4.8,
        PEAK / 0.5,
    ),
    Case("uniform on [0, 1], y <= 1", "y <= 1", np.ones_like, 0.0, 1.0, 1.0),
    Case("uniform on [0, 1], 0 <= y <= 1", "0 <= y <= 1", np.ones_like, 0.0, 1.0, 1.0),
)


@dataclass(frozen=True)
class Gap:
    """One point of theorem 1."""

    case: str
    eta: float
    gap: float
    bound: float


@dataclass(frozen=True)
class Error:
    """One point of theorem 2: the mean error on a grid of contexts and actions."""

    estimator: str
    n: int
    seed: int
    error: float


def measure_gaps(
    folder: Path, *, say: Callable[[str], object] = lambda _: None
) -> list[Path]:
    """Measure what theorem 1 bounds, by quadrature.

    Args:
        folder: Where the sheet goes.
        say: Told what is being done.
    """
    say("Theorem 1, by quadrature")
    return [write_sheet(folder / f"{SURROGATE}.csv", gaps())]


def measure_errors(
    folder: Path,
    *,
    quick: bool,
    sizes: Sequence[int] = SIZES,
    seeds: Sequence[int] = SEEDS,
    say: Callable[[str], object] = lambda _: None,
) -> list[Path]:
    """Measure what theorem 2 bounds, by simulated histories.

    Args:
        folder: Where the sheet goes.
        quick: Whether to leave out the last size and most histories.
        sizes: Records in a history.
        seeds: Which histories of each size.
        say: Told what is being done.
    """
    say("Theorem 2, by simulated histories")
    few = (sizes[:-1], seeds[:4]) if quick else (sizes, seeds)
    return [write_sheet(folder / file_of_errors(quick=quick), list(errors(*few)))]


def file_of_errors(*, quick: bool) -> str:
    """Name the sheet of theorem 2."""
    return f"{ESTIMATOR}{QUICK * quick}.csv"


def gaps() -> list[Gap]:
    """Compute the gap and its bound for every case and sharpness."""
    return [
        Gap(case.name, eta, case.gap(eta), case.bound(eta))
        for case in CASES
        for eta in ETAS.tolist()
    ]


def errors(sizes: Sequence[int], seeds: Sequence[int]) -> Iterator[Error]:
    """Fit the nested and the single estimator to histories of every size."""
    for n in sizes:
        for seed in seeds:
            for name, method, spread in (
                (PACED, paced(n), 1.0),
                (NESTED, fixed(NestedRehearsal), 0.5),
                (SINGLE, fixed(ConditionalRehearsal), 0.5),
            ):
                yield Error(name, n, seed, mean_error(method, n, seed, spread))


def paced(n: int) -> NestedRehearsal:
    """The nested estimator at the penalties for which the paper states the rate."""
    return NestedRehearsal(
        sharpness=SHARPNESS, outcome_penalty=n**-0.25, context_penalty=n**-0.5
    )


def fixed(kind: type[KernelRehearsal]) -> KernelRehearsal:
    """An estimator at penalties that do not change with the number of records."""
    return kind(sharpness=SHARPNESS, outcome_penalty=FIXED)


def mean_error(method: KernelRehearsal, n: int, seed: int, spread: float) -> float:
    """Fit one history and compare with the truth."""
    policy = method.fit(QUESTION, history(n, seed, spread))
    told = policy.objective({"x": ASKED[:, 0]}, ASKED[:, 1:])
    eta = SHARPNESS / float(policy.schema.outcomes.scales[0])
    return float(np.abs(told - smoothed_truth(eta)).mean())


def history(n: int, seed: int, spread: float) -> dict[str, Float[Array, " n"]]:
    """Draw records of the world; ``spread`` is the deviation of A given U."""
    rng = np.random.default_rng([seed, n])
    x = rng.uniform(-1, 1, n)
    u = x + rng.normal(0, 0.5, n)
    a = u + rng.normal(0, spread, n)
    y = a - 2 * u + x + rng.normal(0, 0.5, n)
    return {"x": x, "u": u, "a": a, "y": y}


def smoothed_truth(eta: float) -> Float[Array, " m"]:
    """E w(Y) under do(a): Y is Gaussian with mean a - x and variance 5/4."""
    mean = ASKED[:, 1] - ASKED[:, 0]
    return ndtr(-eta * mean / np.sqrt(1 + 1.25 * eta**2))


def order_of_bound(n: Array) -> Array:
    """What theorem 2 bounds the error by, up to a constant, at these penalties."""
    outcome, context = n**-0.25, n**-0.5
    return (
        np.sqrt(context)
        + np.sqrt(outcome)
        + 1 / np.sqrt(n * context)
        + 1 / np.sqrt(n * outcome**3)
    )


def slope(x: Sequence[float], y: Sequence[float]) -> float:
    """The exponent of a power law fitted to points."""
    return float(np.polyfit(np.log(x), np.log(y), 1)[0])
