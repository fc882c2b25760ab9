"""How freely history varied each action, in all and in parts of the contexts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float, Int

from forestall.arrays import Array
from forestall.encoding import Block, Categorical
from forestall.kernels import Gaussian, median_bandwidth
from forestall.observations import Observations

# Beyond this many records the regression of an action is settled well enough.
REGRESSED = 1_000
PENALTIES = (1e1, 1e-1, 1e-2, 1e-3, 1e-4, 1e-5)
# A constant added to a kernel is an intercept; a large one is hardly penalised.
INTERCEPT = 1e4
REACH_SDS = 3.0

THIN_REACH = 0.5
# Fewer records than this say little of a part of the contexts.
FEW = 20
# An action that keeps this share of its spread is steered by nothing known beforehand.
FREE = 0.9
# Digits of a value that are its own.
DIGITS = 12
# Different values up to which they are told one by one, and records for each of them.
VALUES, TOGETHER = 10, 10


@dataclass(frozen=True)
class Overlap:
    """How freely history varied one action.

    Args:
        action: The action.
        lower: The lowest feasible value.
        upper: The highest feasible value.
        minimum: The smallest value in history.
        maximum: The largest.
        inside: The share of records in the feasible interval.
        deviation: The standard deviation given what precedes it.
        spread: That deviation as a share of the action's whole standard deviation.
        reach: The share of the feasible interval within three such deviations of what
            was usual, averaged over the records.
        breadth: The share within three whole standard deviations of the mean: what
            history would reach if nothing known beforehand had steered the action.
        seen: Its values in history, where there are only a few; empty else.
    """

    action: str
    lower: float
    upper: float
    minimum: float
    maximum: float
    inside: float
    deviation: float
    spread: float
    reach: float
    breadth: float
    seen: tuple[float, ...] = ()

    @property
    def thin(self) -> bool:
        """Whether most of the feasible interval is out of history's reach."""
        return self.reach < THIN_REACH

    @property
    def too_wide(self) -> bool:
        """Whether it would be so even if nothing had steered the action."""
        return self.breadth < THIN_REACH or self.spread > FREE


@dataclass(frozen=True)
class PartOverlap:
    """How freely history varied one action in a part of the contexts.

    Args:
        where: The part, in words.
        records: How many records are there.
        deviation: The action's standard deviation given the rest, there.
        reach: The share of the feasible interval within three of them, there.
    """

    where: str
    records: int
    deviation: float
    reach: float

    @property
    def thin(self) -> bool:
        """Whether history says little of this action there."""
        return self.reach < THIN_REACH or self.records < FEW


@dataclass(frozen=True, eq=False)
class Part:
    """Some of the records: a third of a number, or a level of a category."""

    where: str
    rows: Bool[Array, " n"]


@dataclass(frozen=True, eq=False)
class Leeway:
    """How far one action strayed from what was usual, in the user's unit.

    Args:
        action: The action.
        lower: The lowest feasible value.
        upper: The highest feasible value.
        values: The values in history.
        rows: The records for which it is known what was usual.
        residuals: How far those strayed from it.
    """

    action: str
    lower: float
    upper: float
    values: Float[Array, " n"]
    rows: Int[Array, " m"]
    residuals: Float[Array, " m"]

    @property
    def usual(self) -> Float[Array, " m"]:
        """What was usual, given what was known beforehand."""
        return self.values[self.rows] - self.residuals

    def overlap(self) -> Overlap:
        """Say how freely it varied."""
        values, lower, upper = self.values, self.lower, self.upper
        deviation, whole = _rms(self.residuals), float(values.std())
        return Overlap(
            self.action,
            lower,
            upper,
            float(values.min()),
            float(values.max()),
            float(((values >= lower) & (values <= upper)).mean()),
            deviation,
            min(1.0, deviation / whole) if whole else 0.0,
            _share(lower, upper, self.usual, REACH_SDS * deviation),
            _share(lower, upper, values.mean(keepdims=True), REACH_SDS * whole),
            _few(values),
        )

    def within(self, part: Part) -> PartOverlap:
        """Say how freely it varied in a part of the contexts."""
        here = part.rows[self.rows]
        count = int(part.rows.sum())
        if not here.any():
            return PartOverlap(part.where, count, 0.0, 0.0)
        deviation = _rms(self.residuals[here])
        reach = _share(self.lower, self.upper, self.usual[here], REACH_SDS * deviation)
        return PartOverlap(part.where, count, deviation, reach)


def leeways(data: Observations, adjusted: tuple[str, ...]) -> tuple[Leeway, ...]:
    """Predict each record's actions from what is adjusted for, by the other records."""
    given = np.concatenate([data.x, data.covariate_columns(adjusted)], axis=1)
    rows = _regressed(data)
    residuals = left_out_residuals(given[rows], data.a[rows])
    return tuple(
        leeway(data, k, rows, residuals[:, k])
        for k in range(len(data.schema.actions.names))
    )


def leeways_given(
    data: Observations, inputs: Sequence[Int[Array, " _"]]
) -> tuple[Leeway, ...]:
    """Predict each record's actions, each from what precedes it, by the other records.

    Args:
        data: The records.
        inputs: What precedes each action, as columns of contexts, covariates and
            actions side by side.
    """
    rows = _regressed(data)
    state = np.concatenate([data.x, data.u, data.a], axis=1)[rows]
    found = []
    for k, columns in enumerate(inputs):
        (residuals,) = left_out_residuals(state[:, columns], data.a[rows, k][:, None]).T
        found.append(leeway(data, k, rows, residuals))
    return tuple(found)


def leeway(
    data: Observations, k: int, rows: Int[Array, " m"], residuals: Float[Array, " m"]
) -> Leeway:
    """Put action ``k`` and its standardised residuals into the user's unit."""
    actions = data.schema.actions
    mean, scale = actions.means[k], actions.scales[k]
    lower, upper = data.schema.bounds[k].tolist()
    values = _tidy(mean + scale * data.a[:, k])
    return Leeway(actions.names[k], lower, upper, values, rows, scale * residuals)


def parts_of(block: Block, v: Float[Array, "n d"]) -> tuple[Part, ...]:
    """Split the records by each variable of a block, into thirds or levels."""
    found: list[Part] = []
    for column in block.columns:
        columns = v[:, block.slices[column.name]]
        if isinstance(column, Categorical):
            found += [
                Part(f"{column.name} = {level}", columns[:, k] > 0.5)
                for k, level in enumerate(column.levels)
            ]
        else:
            mean, scale = getattr(column, "mean", 0.0), getattr(column, "scale", 1.0)
            found += thirds(column.name, mean + scale * columns[:, 0])
    return tuple(part for part in found if part.rows.any())


def thirds(name: str, values: Float[Array, " n"]) -> list[Part]:
    """Split the records at the terciles of a number; few values stay apart."""
    seen = np.unique(values)
    if len(seen) <= 3:
        return [Part(f"{name} = {value:.3g}", values == value) for value in seen]
    return between(name, values, *np.quantile(values, [1 / 3, 2 / 3]).tolist())


def between(
    name: str, values: Float[Array, " n"], low: float, high: float
) -> list[Part]:
    """Split the records at two values of a number."""
    below, above = values < low, values > high
    return [
        Part(f"{name} below {low:.3g}", below),
        Part(f"{name} from {low:.3g} to {high:.3g}", ~below & ~above),
        Part(f"{name} above {high:.3g}", above),
    ]


def left_out_residuals(
    z: Float[Array, "n d"], a: Float[Array, "n d_a"]
) -> Float[Array, "n d_a"]:
    """Predict each record's actions from the others, by whatever predicts best.

    For each action the best of linear and kernel ridge fits, down to hardly more than
    its mean: whether the rest pins an action down must not hinge on one family.
    """
    kernel = Gaussian(median_bandwidth(z, 1.0))(z, z)
    fits = [*_ridge_left_out(z @ z.T, a), *_ridge_left_out(kernel, a)]
    best = np.array([(fit**2).mean(axis=0) for fit in fits]).argmin(axis=0)
    return np.column_stack([fits[f][:, k] for k, f in enumerate(best)])


def _ridge_left_out(
    K: Float[Array, "n n"], a: Float[Array, "n d_a"]
) -> Iterator[Float[Array, "n d_a"]]:
    """Leave-one-out residuals of kernel ridge for every penalty, in closed form."""
    s, V = np.linalg.eigh(K + INTERCEPT)
    for penalty in PENALTIES:
        d = 1.0 / (np.maximum(s, 0.0) + len(K) * penalty)
        yield V @ (d[:, None] * (V.T @ a)) / (V**2 @ d)[:, None]


def _regressed(data: Observations) -> Int[Array, " m"]:
    return np.linspace(0, data.n - 1, min(data.n, REGRESSED)).astype(int)


def _tidy(values: Float[Array, " n"]) -> Float[Array, " n"]:
    """Leave out the last digits, which standardising made."""
    largest = float(np.abs(values).max()) or 1.0
    # Adding zero turns minus zero into zero.
    return np.round(values, int(DIGITS - np.ceil(np.log10(largest)))) + 0.0


def _few(values: Float[Array, " n"]) -> tuple[float, ...]:
    """List the different values of which there are a few, none a single person's."""
    seen, counts = np.unique(values, return_counts=True)
    few = len(seen) <= VALUES and counts.min() > 1
    return tuple(seen.tolist()) if few and len(values) >= TOGETHER * len(seen) else ()


def _share(
    lower: float, upper: float, centre: Float[Array, " m"], slack: float
) -> float:
    """The part of an interval that lies within ``slack`` of a centre, on average."""
    low, high = np.maximum(lower, centre - slack), np.minimum(upper, centre + slack)
    return float((np.maximum(high - low, 0.0) / (upper - lower)).mean())


def _rms(residuals: Float[Array, " m"]) -> float:
    return float(np.sqrt((residuals**2).mean()))
