"""The paper's smaller tables: scalability, eta, penalties; and subsets of actions."""

from __future__ import annotations

from pathlib import Path

from forestall.bench import Row, Summary
from forestall.bench.summary import summarise_rows
from forestall.bench.table import figure, markdown
from forestall.reproduce.main_table import summaries
from forestall.reproduce.paper import printed
from forestall.reproduce.plans import TASKS, found
from forestall.reproduce.subsets import TOGETHER

TASK = "non-syn1"
FITS = (
    ("exact", "1k", "exact", "–"),
    ("nystrom-100", "1k", "Nystrom", "100"),
    ("nystrom-200", "1k", "Nystrom", "200"),
    ("rff-500", "1k", "random Fourier", "500"),
    ("exact", "5k", "exact", "–"),
    ("nystrom-100", "5k", "Nystrom", "100"),
)
ETAS = ("3", "5", "10", "20", "50")
FACTORS = ("0.2", "0.5", "1", "2", "5")
# The subsets that a table has room for; the file has all.
SHOWN = 8


def of_task(folder: Path, name: str, task: str = TASK) -> dict[str, Summary]:
    """Summarise the methods of a plan on one task."""
    told = summaries(folder, name)
    return {method: each for (where, method), each in told.items() if where == task}


def scalability(folder: Path) -> str:
    """Time and worth of exact and approximate fits, the paper's beside them."""
    told = {size: of_task(folder, f"scalability-{size}") for size in ("1k", "5k")}
    rows = []
    for method, size, name, rank in FITS:
        each = told[size].get(method)
        if each is None:
            continue
        faster = told[size]["exact"].fit_seconds / each.fit_seconds
        cell = f"{method}-{size}"
        rows.append(
            [
                name,
                size,
                rank,
                f"{each.fit_seconds:.3f}",
                f"{faster:.1f}",
                f"{printed('scalability', cell, 'seconds').value:.3f}",
                figure(each.success, each.success_se),
                figure(each.lift_share, digits=2),
                figure(printed("scalability", cell, "success").value),
            ]
        )
    heads = ["method", "N", "rank", "fit s", "times faster", "paper's s"]
    return markdown([*heads, "success", "lift share", "paper's success"], rows)


def eta(folder: Path) -> str:
    """Success by sharpness, the paper's below ours."""
    told = of_task(folder, "eta")
    ours = [_success(told, name) for name in (*ETAS, "chosen")]
    shares = [_share(told, name) for name in (*ETAS, "chosen")]
    theirs = [figure(printed("eta", name, "success").value) for name in ETAS]
    rows = [
        ["success", *ours],
        ["lift share", *shares],
        ["paper's success", *theirs, "–"],
    ]
    heads = ["non-syn1", *(f"η = {name}" for name in ETAS), "η chosen"]
    return markdown(heads, rows, heads[:1])


def _success(told: dict[str, Summary], name: str) -> str:
    return figure(told[name].success, told[name].success_se) if name in told else "–"


def _share(told: dict[str, Summary], name: str) -> str:
    return figure(told[name].lift_share, digits=2) if name in told else "–"


def regularisation(folder: Path) -> str:
    """Success by both penalties, the paper's in brackets."""
    told = of_task(folder, "regularisation")
    rows = [
        [f"{h} ×", *(_penalised(told, h, x) for x in FACTORS)]
        for h in FACTORS
        if f"{h}x1" in told
    ]
    corner = "λ_h by row, λ_x by column"
    table = markdown([corner, *(f"{x} ×" for x in FACTORS)], rows, [corner])
    worth = [each.success for each in told.values()]
    return (
        f"{table}\n\nAll {len(told)} lie between {figure(min(worth))} and "
        f"{figure(max(worth))}, where the oracle is {figure(told['1x1'].oracle)}: a "
        f"broad plateau, as the paper says. The fall that it prints at five times both "
        f"penalties does not show here; its defaults are not printed."
    )


def _penalised(told: dict[str, Summary], h: str, x: str) -> str:
    theirs = figure(printed("regularisation", h, x).value)
    return f"{figure(told[f'{h}x{x}'].success)} ({theirs})"


def subsets(folder: Path) -> str:
    """For each task what altering some actions is worth, the best subsets first."""
    parts = []
    for task in TASKS:
        told = ranked(folder, task)
        if told:
            parts.append(_subset_table(task, told))
    return "\n\n".join(parts)


def ranked(folder: Path, task: str) -> list[Summary]:
    """The subsets of a task's actions, the best first."""
    results = found(folder, f"subsets-{task}")
    if results is None:
        return []
    groups: dict[str, list[Row]] = {}
    for row in results.rows:
        groups.setdefault(row.method, []).append(row)
    told = [summarise_rows(rows) for rows in groups.values()]
    return sorted(told, key=lambda each: -each.success)


def size(each: Summary) -> int:
    """How many actions a subset has."""
    return len(each.method.split(TOGETHER))


def _subset_table(task: str, told: list[Summary]) -> str:
    most = max(map(size, told))
    singles = [each for each in told if size(each) == 1]
    kept = [each for k, each in enumerate(told) if k < SHOWN]
    kept += [each for each in singles if each not in kept]
    kept += [each for each in told if size(each) == most and each not in kept]
    rows = [
        [f"`{each.method}`", figure(each.success), figure(each.lift_share, digits=2)]
        for each in kept
    ]
    none, oracle = figure(told[0].no_action), figure(told[0].oracle)
    head = f"`{task}`: no action {none}, oracle with all actions {oracle}."
    if len(kept) < len(told):
        head += f" {len(kept)} of {len(told)} subsets; the file has the others."
    table = markdown(["altered", "success", "lift share"], rows, ["altered"])
    return f"{head}\n\n{table}"
