"""The theorems and NHANES as short tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from forestall.bench.table import figure, markdown
from forestall.reproduce import theory
from forestall.reproduce.paper import printed
from forestall.reproduce.sheet import Line, is_short, read_either, read_sheet
from forestall.reproduce.survey import ATTRITION, LIKENESS
from forestall.tasks.nhanes import ACTIONS, COVARIATES, OUTCOMES

# The sharpest points, where the leading term is all there is.
LAST = 3
PROMISED = -1 / 8


def by(lines: Sequence[Line], key: str) -> dict[str, list[Line]]:
    """Group lines by a column, in their order."""
    groups: dict[str, list[Line]] = {}
    for line in lines:
        groups.setdefault(line[key], []).append(line)
    return groups


def column(lines: Sequence[Line], name: str) -> list[float]:
    """Read a column as numbers."""
    return [float(line[name]) for line in lines]


def surrogate(folder: Path) -> str:
    """Theorem 1: the gap under its bound, and the rate at which it falls."""
    rows = []
    for case, lines in by(read_sheet(folder, theory.SURROGATE), "case").items():
        etas, gaps = column(lines, "eta"), column(lines, "gap")
        tightest = max(np.divide(gaps, column(lines, "bound")))
        rate = theory.slope(etas[-LAST:], gaps[-LAST:])
        rows.append([case, f"{tightest:.2f}", f"{rate:.2f}"])
    heads = ["law and region", "largest gap / bound", "fitted exponent of η"]
    return markdown(heads, rows, heads[:1]) if rows else ""


def mean_errors(lines: Sequence[Line]) -> tuple[list[float], list[float]]:
    """The sizes, and the mean error over histories at each."""
    groups = by(lines, "n")
    return [float(n) for n in groups], [
        float(np.mean(column(each, "error"))) for each in groups.values()
    ]


def estimator(folder: Path) -> str:
    """Theorem 2: the mean error by the number of records, and the fitted rates."""
    groups = by(read_either(folder, theory.ESTIMATOR), "estimator")
    if not groups:
        return ""
    rows, rates = [], {}
    sizes = mean_errors(next(iter(groups.values())))[0]
    for name, lines in groups.items():
        errors = mean_errors(lines)[1]
        rates[name] = theory.slope(sizes, errors)
        cells = [figure(error) for error in errors]
        rows.append([NAMES[name], *cells, f"{rates[name]:.3f}"])
    heads = ["method", *(f"N = {n:,.0f}" for n in sizes), "fitted exponent of N"]
    short = " (The short version.)" * is_short(folder, theory.ESTIMATOR)
    return f"{markdown(heads, rows)}\n\n{_rates(sizes, rates)}{short}"


def _rates(sizes: Sequence[float], rates: Mapping[str, float]) -> str:
    """Set the fitted exponents beside that of the bound over the same sizes."""
    order = theory.slope(sizes, theory.order_of_bound(np.array(sizes)).tolist())
    ours = rates[theory.PACED]
    against = "faster" if ours < order else "slower"
    return (
        f"At these penalties the error falls like N^({ours:.3f}). The promise for "
        f"large N is N^({PROMISED:.3f}), but the four terms of the bound together fall "
        f"like N^({order:.3f}) over these N, so here the error falls {against} than "
        f"the order that bounds it: the dotted line of the figure, with the least "
        f"constant that keeps it above, is what these sizes can show of the theorem, "
        f"and no proof of the rate. In the confounded world the exponents are "
        f"{rates[theory.NESTED]:.3f} for the nested estimator and "
        f"{rates[theory.SINGLE]:.3f} for the single one."
    )


NAMES = {
    theory.PACED: "nested, penalties as in the theorem",
    theory.NESTED: "nested, confounded world, penalty 1e-3",
    theory.SINGLE: "single, confounded world, penalty 1e-3",
}


def attrition(folder: Path) -> str:
    """Who was left after every rule."""
    rows = [
        [line["rule"], f"{int(line['removed']):,}", f"{int(line['left']):,}"]
        for line in read_sheet(folder, ATTRITION)
    ]
    heads = ["kept when", "removed", "left"]
    return markdown(heads, rows, heads[:1]) if rows else ""


def likeness(folder: Path) -> str:
    """How like the survey the generated records are, the paper's figure beside ours."""
    told = {line["name"]: line["value"] for line in read_sheet(folder, LIKENESS)}
    if not told:
        return ""
    cycles = [f"{k[-1]} {int(v):,}" for k, v in told.items() if k.startswith("cycle")]
    theirs = printed("nhanes", "generator", "correlation_mae").value
    return (
        f"{int(told['rows']):,} participants (the paper: "
        f"{printed('nhanes', 'cohort', 'rows').value:,.0f}), by cycle "
        f"{', '.join(cycles)}; SHA-256 of the identifiers "
        f"`{told['fingerprint']}`. Mean absolute error of the correlations "
        f"**{float(told['correlation_mae']):.4f}** (the paper: {theirs:.4f}). A judge "
        f"tells generated records from real ones with an AUC of "
        f"{float(told['told_apart']):.3f}, and shuffled columns from real ones with "
        f"{float(told['told_apart_when_shuffled']):.3f}. In the desired region lie "
        f"{float(told['desired']):.1%} of the participants and "
        f"{float(told['desired_generated']):.1%} of the generated records."
    )


# The variables as the paper's summary of the benchmark lists them.
PRINTED = {
    "actionable": "BMI, CalIntake, CarbIntake, FiberIntake, Sedentary_min",
    "others": "SBP, DBP, TotalCholesterol, HDL",
    "outcomes": "HbA1c, FPG",
}


def benchmark(folder: Path) -> str:
    """The paper's summary of the benchmark, the paper's figures beside ours."""
    told = {line["name"]: line["value"] for line in read_sheet(folder, LIKENESS)}
    if not told:
        return ""
    cases = printed("nhanes", "cohort", "rows").value
    theirs = printed("nhanes", "generator", "correlation_mae").value
    heads = ["NHANES", "here", "the paper"]
    rows = [
        ["complete cases", f"{int(told['rows']):,}", f"{cases:,.0f}"],
        ["actionable variables", ", ".join(ACTIONS), PRINTED["actionable"]],
        ["non-actionable intermediates", ", ".join(COVARIATES), PRINTED["others"]],
        ["outcomes", ", ".join(OUTCOMES), PRINTED["outcomes"]],
        [
            "MAE of correlations",
            f"{float(told['correlation_mae']):.4f}",
            f"{theirs:.4f}",
        ],
    ]
    return markdown(heads, rows, heads)
