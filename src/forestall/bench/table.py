"""Tables as functions of a results file."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence

from rich import box
from rich.console import Group, JustifyMethod
from rich.table import Table
from rich.text import Text

from forestall.bench.pool import Extreme, Pooled, pool
from forestall.bench.summary import Summary

Show = Callable[[Summary], str]

# Lines between tasks only: a line between columns would cost the width of three.
LINES = box.Box("    \n    \n────\n    \n────\n    \n    \n    \n")

# A column of a table is a line here.
WHICH: dict[str, Show] = {"task": lambda s: s.task, "method": lambda s: s.method}
WORTH: dict[str, Show] = {
    "success": lambda s: figure(s.success, s.success_se) + "*" * s.above_oracle,
    "no action": lambda s: figure(s.no_action),
    "oracle": lambda s: figure(s.oracle),
    "supp. oracle": lambda s: figure(s.supported_oracle),
    "lift share": lambda s: figure(s.lift_share, s.lift_share_se, digits=2),
    "supp. share": lambda s: figure(s.supported_lift_share, digits=2),
}
HONESTY: dict[str, Show] = {
    "by verdict": lambda s: figure(s.verdict_success),
    "harm": lambda s: figure(s.regret_of_verdict),
    "claimed": lambda s: figure(s.claimed),
    "act/leave/abstain %": lambda s: _shares(s.act, s.leave, s.abstain),
    "cover": lambda s: figure(s.coverage, s.coverage_se, digits=2),
    "width": lambda s: figure(s.width, digits=2),
    "bias": lambda s: figure(s.bias),
}
COST: dict[str, Show] = {
    "rows": lambda s: str(s.n_rows) + "†" * (s.n_failed > 0),
    "fit s": lambda s: figure(s.fit_seconds, digits=2),
    "decide ms": lambda s: figure(1000 * s.decide_seconds, digits=1),
}

LEFT = ("task", "method")

# The same for a method on all tasks.
POOLED: dict[str, Callable[[Pooled], str]] = {
    "method": lambda p: p.method,
    "tasks": lambda p: str(p.n_tasks),
    "lift share": lambda p: figure(p.lift_share, digits=2),
    "lowest": lambda p: _extreme(p.lowest_lift_share, digits=2),
    "supp. share": lambda p: figure(p.supported_lift_share, digits=2),
    "lift by verdict": lambda p: figure(p.verdict_lift_share, digits=2),
    "cover": lambda p: figure(p.coverage, digits=2),
    "width": lambda p: figure(p.width, digits=2),
    "bias": lambda p: figure(p.bias),
    "claimed": lambda p: figure(p.claimed),
    "most harm": lambda p: _extreme(p.regret_of_verdict, digits=3),
}


def to_markdown(
    summaries: Sequence[Summary],
    columns: Sequence[str] = (*WORTH, *HONESTY, *COST),
) -> str:
    """Render summaries as a Markdown table, all tasks together, and notes."""
    known = {**WORTH, **HONESTY, **COST}
    shown = {**WHICH, **{name: known[name] for name in columns}}
    tables = [markdown(list(shown), [_cells(shown, each) for each in summaries])]
    if _several_tasks(summaries):
        tables += ["Over all tasks:", pooled_markdown(summaries)]
    told = [note.replace("*", "\\*") for note in notes(summaries)]
    return "\n\n".join([*tables, *told]) + "\n"


def pooled_markdown(summaries: Sequence[Summary]) -> str:
    """Render what holds over all tasks together, a row for each method."""
    rows = [[show(each) for show in POOLED.values()] for each in pool(summaries)]
    return markdown(list(POOLED), rows)


def markdown(
    names: Sequence[str],
    rows: Sequence[Sequence[str]],
    left: Sequence[str] = LEFT,
) -> str:
    """Lay out a table in Markdown; all columns but those in ``left`` are figures."""
    heads = "| " + " | ".join(names) + " |"
    rule = "|" + "|".join("---" if name in left else "--:" for name in names) + "|"
    escaped = ([cell.replace("|", "\\|") for cell in cells] for cells in rows)
    return "\n".join([heads, rule, *(f"| {' | '.join(cells)} |" for cells in escaped)])


def to_rich(summaries: Sequence[Summary]) -> Group:
    """Render summaries for the terminal: worth, honesty, cost, all tasks, notes."""
    tables = [_narrow(columns, summaries) for columns in (WORTH, HONESTY, COST)]
    if pooled := _several_tasks(summaries):
        tables.append(_empty_table(list(POOLED)))
        for each in pooled:
            cells = (show(each).replace(" (", "\n(") for show in POOLED.values())
            tables[-1].add_row(*map(Text, cells))
    told = Text("\n".join(notes(summaries)), style="dim")
    return Group(*(part for table in tables for part in (table, "")), told)


def _several_tasks(summaries: Sequence[Summary]) -> list[Pooled]:
    """Pool the tasks, unless there is one only."""
    return pool(summaries) if len({each.task for each in summaries}) > 1 else []


def _empty_table(names: Sequence[str]) -> Table:
    table = Table(box=LINES, show_edge=False, pad_edge=False, padding=(0, 0, 0, 1))
    for name in names:
        head = name.replace(" ", "\n").replace("/", "/\n")
        side: JustifyMethod = "left" if name in LEFT else "right"
        table.add_column(head, justify=side, no_wrap=name != "method", overflow="fold")
    return table


def _narrow(columns: Mapping[str, Show], summaries: Sequence[Summary]) -> Table:
    """Lay some columns out so that they fit into 80 characters."""
    shown = {**WHICH, **columns}
    table = _empty_table(list(shown))
    before = ""
    several = len({each.method for each in summaries}) > 1
    for each in summaries:
        if several and each.task != before:
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
        "the rows in which the method acts. Harm is no action minus success by "
        "verdict. Claimed is how much better the method says to make it where it acts, "
        "and zero elsewhere."
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


def figure(value: float, error: float = math.nan, *, digits: int = 3) -> str:
    """Write a figure, with its error where there is one; a dash where it is unknown."""
    if math.isnan(value):
        return "–"
    text = _short(value, digits)
    return text if math.isnan(error) else f"{text} ± {_short(error, digits)}"


def _extreme(extreme: Extreme, *, digits: int) -> str:
    task = f" ({extreme.task})" if extreme.task else ""
    return figure(extreme.value, digits=digits) + task


def _short(value: float, digits: int) -> str:
    # Adding zero turns -0.0 into 0.0; a probability needs no digit before its point.
    text = f"{round(value, digits) + 0.0:.{digits}f}"
    return re.sub(r"^(-?)0\.", r"\1.", text)


def _shares(*shares: float) -> str:
    if any(math.isnan(share) for share in shares):
        return "–"
    return "/".join(f"{100 * share:.0f}" for share in shares)
