"""What ``forestall recommend`` and ``forestall whatif`` print."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from itertools import islice
from typing import Any

from rich.table import Table
from rich.text import Text

from forestall.decisions import Decision, Decisions
from forestall.screen import VERDICT_STYLES, heading, percent, show, table_of

# Decisions that are shown, and those that are said in words.
SHOWN, SAID = 50, 5


def plain_decision(decision: Decision) -> dict[str, Any]:
    """Give a decision as plain data, with the sentence that says it."""
    return {**asdict(decision), "explanation": str(decision)}


def show_decisions(told: Sequence[Decisions], counts: Mapping[str, int]) -> None:
    """Print a table of decisions, the first in words, and how many there are."""
    names = told[0].action_names
    first = list(islice((each for some in told for each in some), SHOWN))
    heads = "likely", "90 % interval", "no action", "support", "verdict"
    table = table_of("row", *names, *heads, figures=len(names) + 5)
    for row, each in enumerate(first):
        _add(table, Text(str(row)), names, each)
    show(table)
    for row, each in enumerate(first[:SAID]):
        show(Text(f"{row}: {each}"))
    verdicts = ", ".join(f"{counts[k]:,} {k}" for k in ("act", "leave", "abstain"))
    more = counts["rows"] - len(first)
    hidden = f" {more:,} are not shown; write all with -o decisions.csv." * (more > 0)
    show(Text(f"\n{counts['rows']:,} contexts: {verdicts}.{hidden}", style="bold"))


def show_whatif(advice: Decision, asked: Decision | None) -> None:
    """Print an action beside no action and the advice."""
    heading("What if")
    names = tuple(advice.actions) or tuple(asked.actions if asked else ())
    heads = "likely", "90 % interval", "no action", "support", "verdict"
    table = table_of("", *names, *heads, figures=len(names) + 5)
    blanks = ["as it comes"] * len(names)
    table.add_row("no action", *blanks, percent(advice.no_action), "", "", "", "")
    if asked is not None:
        _add(table, Text("this action"), names, asked)
    _add(table, Text("advice"), names, advice)
    show(table)
    if asked is not None:
        show(Text(asked.reason[:1].upper() + asked.reason[1:]))
    show(Text(str(advice), style="bold"))


def _add(table: Table, head: Text, names: Sequence[str], each: Decision) -> None:
    values = (each.actions.get(name, math.nan) for name in names)
    table.add_row(
        head,
        *("as it comes" if math.isnan(v) else f"{v:.4g}" for v in values),
        percent(each.probability),
        _interval(each),
        percent(each.no_action),
        f"{each.support:.2f}",
        Text(each.verdict, style=VERDICT_STYLES[each.verdict]),
    )


def _interval(each: Decision) -> str:
    if math.isnan(each.lower) or math.isnan(each.upper):
        return "-"
    return f"{each.lower:.0%} to {each.upper:.0%}"
