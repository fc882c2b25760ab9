"""Tables as functions of a results file."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from jaxtyping import Float, Int
from rich import box
from rich.console import Group, JustifyMethod
from rich.table import Table
from rich.text import Text

from forestall.arrays import Array
from forestall.bench.results import Row, read_rows

# Beyond this many standard errors of Monte Carlo, chance does not explain it.
SURELY = 3.0

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
        no_action: The mean true success of no action, in the same rows.
        oracle: The mean true success of the best actions.
        supported_oracle: The same among the actions that history supports.
        lift_share: (success - no action) / (oracle - no action), of the means.
        lift_share_se: Its standard error, by the delta method.
        supported_lift_share: The same against the supported oracle.
        coverage: Share of acted rows whose interval holds the true success.
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
    no_action: float
    oracle: float
    supported_oracle: float
    lift_share: float
    lift_share_se: float
    supported_lift_share: float
    coverage: float
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
        no_action=_mean(no_action),
        oracle=_mean(column["oracle"]),
        supported_oracle=_mean(column["supported_oracle"]),
        lift_share=lift_share,
        lift_share_se=clustered_error(gain - lift_share * reach, seeds)
        / (abs(_mean(reach)) or math.nan),
        supported_lift_share=_ratio(gain, column["supported_oracle"] - no_action),
        coverage=acted.coverage,
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
    width: float
    bias: float

    @classmethod
    def of(cls, rows: Sequence[Row]) -> _Acted:
        success, probability = _column(rows, "success"), _column(rows, "probability")
        lower, upper = _column(rows, "lower"), _column(rows, "upper")
        known = ~np.isnan(lower) & ~np.isnan(upper)
        inside = (lower <= success) & (success <= upper)
        bias = probability - success
        return cls(
            _mean(inside[known]),
            _mean((upper - lower)[known]),
            _mean(bias[~np.isnan(bias)]),
        )


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
    return _mean(gain) / below if abs(below) > 1e-9 else math.nan


Show = Callable[[Summary], str]

# Lines between tasks only: a line between columns would cost the width of three.
LINES = box.Box("    \n    \n────\n    \n────\n    \n    \n    \n")

# A column of a table is a line here.
WHICH: dict[str, Show] = {"task": lambda s: s.task, "method": lambda s: s.method}
WORTH: dict[str, Show] = {
    "success": lambda s: _figure(s.success, s.success_se) + "*" * s.above_oracle,
    "no action": lambda s: _figure(s.no_action),
    "oracle": lambda s: _figure(s.oracle),
    "supp. oracle": lambda s: _figure(s.supported_oracle),
    "lift share": lambda s: _figure(s.lift_share, s.lift_share_se, digits=2),
    "supp. share": lambda s: _figure(s.supported_lift_share, digits=2),
}
HONESTY: dict[str, Show] = {
    "by verdict": lambda s: _figure(s.verdict_success),
    "act/leave/abstain %": lambda s: _shares(s.act, s.leave, s.abstain),
    "cover": lambda s: _figure(s.coverage, digits=2),
    "width": lambda s: _figure(s.width, digits=2),
    "bias": lambda s: _figure(s.bias),
    "rows": lambda s: str(s.n_rows) + "†" * (s.n_failed > 0),
    "fit s": lambda s: _figure(s.fit_seconds, digits=2),
    "decide ms": lambda s: _figure(1000 * s.decide_seconds, digits=1),
}


def to_markdown(
    summaries: Sequence[Summary], columns: Sequence[str] = (*WORTH, *HONESTY)
) -> str:
    """Render summaries as a Markdown table with its notes."""
    known = {**WORTH, **HONESTY}
    shown = {**WHICH, **{name: known[name] for name in columns}}
    heads = "| " + " | ".join(shown) + " |"
    rule = "|" + "|".join("---" if name in WHICH else "--:" for name in shown) + "|"
    rows = ([cell.replace("|", "\\|") for cell in _cells(shown, s)] for s in summaries)
    lines = [f"| {' | '.join(cells)} |" for cells in rows]
    told = "\n\n".join(notes(summaries)).replace("*", "\\*")
    return "\n".join([heads, rule, *lines, "", told]) + "\n"


def to_rich(summaries: Sequence[Summary]) -> Group:
    """Render summaries for the terminal: worth, then honesty and time, then notes."""
    told = Text("\n".join(notes(summaries)), style="dim")
    return Group(_narrow(WORTH, summaries), "", _narrow(HONESTY, summaries), "", told)


def _narrow(columns: Mapping[str, Show], summaries: Sequence[Summary]) -> Table:
    """Lay some columns out so that they fit into 80 characters."""
    shown = {**WHICH, **columns}
    table = Table(box=LINES, show_edge=False, pad_edge=False, padding=(0, 0, 0, 1))
    for name in shown:
        head = name.replace(" ", "\n").replace("/", "/\n")
        side: JustifyMethod = "left" if name in WHICH else "right"
        table.add_column(head, justify=side, no_wrap=name != "method", overflow="fold")
    before = ""
    for each in summaries:
        if each.task != before:
            table.add_section()
        task, *cells = _cells(shown, each)
        table.add_row(Text("" if task == before else task), *map(Text, cells))
        before = each.task
    return table


def notes(summaries: Sequence[Summary]) -> list[str]:
    """What a reader of the table has to know."""
    told = [
        "± is one standard error with seeds as clusters. Lift share is (success - no "
        "action) / (oracle - no action), of the means. Coverage, width and bias are of "
        "the rows in which the method acts."
    ]
    if any(each.above_oracle for each in summaries):
        told.append(
            "* success above the oracle by more than Monte Carlo error: a bug, or "
            "another protocol."
        )
    told += [
        f"† {each.method} failed in {each.n_failed} of {each.n_rows} rows of "
        f"{each.task}, which are left out; the file has the errors."
        for each in summaries
        if each.n_failed
    ]
    return told


def _cells(shown: Mapping[str, Show], summary: Summary) -> list[str]:
    return [show(summary) for show in shown.values()]


def _figure(value: float, error: float = math.nan, *, digits: int = 3) -> str:
    if math.isnan(value):
        return "–"
    text = _short(value, digits)
    return text if math.isnan(error) else f"{text} ± {_short(error, digits)}"


def _short(value: float, digits: int) -> str:
    # Adding zero turns -0.0 into 0.0; a probability needs no digit before its point.
    text = f"{round(value, digits) + 0.0:.{digits}f}"
    return re.sub(r"^(-?)0\.", r"\1.", text)


def _shares(*shares: float) -> str:
    if any(math.isnan(share) for share in shares):
        return "–"
    return "/".join(f"{100 * share:.0f}" for share in shares)
