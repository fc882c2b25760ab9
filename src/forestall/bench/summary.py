"""Summaries of a results file: one method on one task."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from jaxtyping import Float, Int

from forestall.arrays import Array
from forestall.bench.results import Row, read_rows

# Beyond this many standard errors of Monte Carlo, chance does not explain it.
SURELY = 3.0

# Where less than this can be gained, a share of it is Monte Carlo error.
LEAST_REACH = 0.01

VERDICTS = ("act", "leave", "abstain")
FIGURES = (
    "success",
    "verdict_success",
    "no_action",
    "oracle",
    "supported_oracle",
    "extrapolates",
    "fit_seconds",
    "decide_seconds",
)


@dataclass(frozen=True, kw_only=True)
class Summary:
    r"""One method on one task.

    Standard errors take seeds as clusters: rows of one seed share a history, so they
    are summed before they are squared,
    :math:`\sqrt{\tfrac{S}{S-1} \sum_s (\sum_{i \in s} e_i)^2} / n`. With equally many
    rows in each seed this is the standard deviation of the seeds' means divided by
    :math:`\sqrt S`. With one seed there is none: NaN.

    Args:
        task: The task's name.
        method: The method's label.
        n_rows: Rows, seeds times contexts.
        n_failed: Rows in which the method failed; all that follows leaves them out.
        n_seeds: Seeds in which it did not.
        success: The mean true success of the candidates.
        success_se: Its standard error.
        verdict_success: The mean true success when the verdicts are followed.
        regret_of_verdict: No action minus that; above zero the verdicts do harm.
        claimed: The mean of (probability - predicted no action) where the verdict is
            ``act``, of zero elsewhere: how much better the method says to make it.
        no_action: The mean true success of no action, in the same rows.
        oracle: The mean true success of the best actions.
        supported_oracle: The same among the actions that history supports.
        lift_share: (success - no action) / (oracle - no action), of the means; NaN
            where the oracle gains less than .01.
        lift_share_se: Its standard error, by the delta method.
        supported_lift_share: The same against the supported oracle.
        verdict_lift_share: The same when the verdicts are followed.
        coverage: Share of acted rows whose interval holds the true success.
        coverage_se: Its standard error; contexts of one history err together.
        width: The mean width of these intervals.
        bias: The mean of (probability - true success) over acted rows.
        act: The share of the verdict ``act``; ``leave`` and ``abstain`` likewise.
        leave: The share of ``leave``.
        abstain: The share of ``abstain``.
        extrapolates: The share of candidates that are called extrapolations.
        fit_seconds: The median time of a fit.
        decide_seconds: The median time of a decision.
        above_oracle: Whether the success lies above the oracle by more than Monte
            Carlo error: a bug, or another protocol.
    """

    task: str
    method: str
    n_rows: int
    n_failed: int
    n_seeds: int
    success: float
    success_se: float
    verdict_success: float
    regret_of_verdict: float
    claimed: float
    no_action: float
    oracle: float
    supported_oracle: float
    lift_share: float
    lift_share_se: float
    supported_lift_share: float
    verdict_lift_share: float
    coverage: float
    coverage_se: float
    width: float
    bias: float
    act: float
    leave: float
    abstain: float
    extrapolates: float
    fit_seconds: float
    decide_seconds: float
    above_oracle: bool


def summarise(path: str | Path) -> list[Summary]:
    """Summarise a results file, a line for each task and method, in its order."""
    groups: dict[tuple[str, str], list[Row]] = {}
    for row in read_rows(path):
        groups.setdefault((row.task, row.method), []).append(row)
    return [summarise_rows(rows) for rows in groups.values()]


def summarise_rows(rows: Sequence[Row]) -> Summary:
    """Summarise the rows of one task and method."""
    sound = [row for row in rows if not row.error]
    column = {name: _column(sound, name) for name in FIGURES}
    seeds = np.array([row.seed for row in sound], dtype=int)
    success, no_action = column["success"], column["no_action"]
    gain, reach = success - no_action, column["oracle"] - no_action
    lift_share = _ratio(gain, reach)
    verdicts = [row.verdict for row in sound]
    act, leave, abstain = (_mean([v == each for v in verdicts]) for each in VERDICTS)
    acted = _Acted.of([row for row in sound if row.verdict == "act"])
    return Summary(
        task=rows[0].task,
        method=rows[0].method,
        n_rows=len(rows),
        n_failed=len(rows) - len(sound),
        n_seeds=len(set(seeds.tolist())),
        success=_mean(success),
        success_se=clustered_error(success - _mean(success), seeds),
        verdict_success=_mean(column["verdict_success"]),
        regret_of_verdict=_mean(no_action - column["verdict_success"]),
        claimed=_claimed(sound),
        no_action=_mean(no_action),
        oracle=_mean(column["oracle"]),
        supported_oracle=_mean(column["supported_oracle"]),
        lift_share=lift_share,
        lift_share_se=clustered_error(gain - lift_share * reach, seeds)
        / (abs(_mean(reach)) or math.nan),
        supported_lift_share=_ratio(gain, column["supported_oracle"] - no_action),
        verdict_lift_share=_ratio(column["verdict_success"] - no_action, reach),
        coverage=acted.coverage,
        coverage_se=acted.coverage_se,
        width=acted.width,
        bias=acted.bias,
        act=act,
        leave=leave,
        abstain=abstain,
        extrapolates=_mean(column["extrapolates"]),
        fit_seconds=_median(column["fit_seconds"]),
        decide_seconds=_median(column["decide_seconds"]),
        above_oracle=_above_oracle(sound),
    )


def clustered_error(e: Float[Array, " n"], seeds: Int[Array, " n"]) -> float:
    """The standard error of the mean of residuals ``e``, with seeds as clusters."""
    _, cluster = np.unique(seeds, return_inverse=True)
    sums = np.bincount(cluster, weights=e)
    s = len(sums)
    if s < 2:
        return math.nan
    return float(np.sqrt(s / (s - 1) * np.sum(sums**2)) / len(e))


@dataclass(frozen=True)
class _Acted:
    """How honest the method is where it acts."""

    coverage: float
    coverage_se: float
    width: float
    bias: float

    @classmethod
    def of(cls, rows: Sequence[Row]) -> _Acted:
        success, probability = _column(rows, "success"), _column(rows, "probability")
        lower, upper = _column(rows, "lower"), _column(rows, "upper")
        known = ~np.isnan(lower) & ~np.isnan(upper)
        inside = ((lower <= success) & (success <= upper))[known]
        seeds = np.array([row.seed for row in rows], dtype=int)[known]
        bias = probability - success
        return cls(
            _mean(inside),
            clustered_error(inside - _mean(inside), seeds),
            _mean((upper - lower)[known]),
            _mean(bias[~np.isnan(bias)]),
        )


def _claimed(rows: Sequence[Row]) -> float:
    gain = _column(rows, "probability") - _column(rows, "predicted_no_action")
    acted = np.array([row.verdict == "act" for row in rows], dtype=bool)
    claimed = np.where(acted, gain, 0.0)
    return _mean(claimed[~np.isnan(claimed)])


def _above_oracle(rows: Sequence[Row]) -> bool:
    if not rows:
        return False
    p, q = _column(rows, "success"), _column(rows, "oracle")
    # Common draws make the difference less noisy than this; better not to cry wolf.
    variance = (p * (1 - p) + q * (1 - q)) / _column(rows, "draws")
    return bool(np.sum(p - q) > SURELY * np.sqrt(np.sum(variance)) + 1e-12)


def _column(rows: Iterable[Row], name: str) -> Float[Array, " n"]:
    return np.array([getattr(row, name) for row in rows], dtype=float)


def _mean(values: Array | Sequence[bool]) -> float:
    return float(np.mean(values)) if len(values) else math.nan


def _median(values: Float[Array, " n"]) -> float:
    return float(np.median(values)) if len(values) else math.nan


def _ratio(gain: Float[Array, " n"], reach: Float[Array, " n"]) -> float:
    below = _mean(reach)
    # Where nothing can be gained, no share of it can be.
    return _mean(gain) / below if below >= LEAST_REACH else math.nan
