"""What ``forestall compare`` prints."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from rich.table import Table
from rich.text import Text

from forestall.screen import show, table_of

if TYPE_CHECKING:
    from forestall.standing import Comparison, Row
    from forestall.value import Difference, Estimate


def show_comparison(told: Comparison) -> None:
    """Print the table, what it rests on, and which method to use."""
    show(Text("\nMethods, judged by the records alone", style="bold cyan"))
    show(_basis(told))
    show(_values(told))
    show(_costs(told))
    for row in told.rows:
        for text in (row.refused, *row.remarks):
            if text:
                show(Text.assemble((f"{row.label}: ", "yellow"), text))
    show(Text(f"\n{told.advice}", style="bold"))


def _basis(told: Comparison) -> str:
    some = f" (drawn from {told.records + told.left_out:,})" if told.left_out else ""
    ways = "doubly robust"
    if told.steps > 1:
        ways += f", in {told.steps} steps because covariates lie between actions"
    return (
        f"{told.records:,} records{some} in {told.folds} parts, each judged by what "
        f"was learned from the others; {ways}. Value is the share of good outcomes had "
        f"the method's verdicts been followed, with its 90 % interval; effective is "
        f"how many records near its actions it rests on; claims is what the method "
        f"itself expects, which is no evidence."
    )


def _values(told: Comparison) -> Table:
    heads = "value", "against no action", "effective", "acts", "always acting", "claims"
    table = table_of("method", *heads, figures=6)
    choice = told.choice
    for row in told.rows:
        value = row.value
        cells = (
            _estimate(value),
            _difference(row.gain),
            "-" if value is None else _number(value.effective),
            "-" if value is None else _percent(value.acted),
            _estimate(row.always),
            _percent(row.claimed),
        )
        style = "bold green" if row is choice else ""
        table.add_row(Text(row.label), *cells, style=style)
    return table


def _costs(told: Comparison) -> Table:
    table = table_of("method", "assumes", "fit", "a decision", "records", figures=3)
    for row in told.rows:
        table.add_row(
            Text(row.label),
            Text(row.assumes),
            _seconds(row.fit_seconds),
            _seconds(row.decision_seconds),
            _judged(row),
        )
    return table


def _judged(row: Row) -> str:
    return "-" if row.value is None else f"{row.value.records:,}"


def _estimate(value: Estimate | None) -> str:
    if value is None or value.refused:
        return "-"
    return f"{value.value:.1%} ({value.lower:.0%} to {value.upper:.0%})"


def _difference(gain: Difference | None) -> str:
    if gain is None:
        return "-"
    value, low, high = (100 * v for v in (gain.value, gain.lower, gain.upper))
    return f"{value:+.1f} ({low:+.0f} to {high:+.0f})"


def _seconds(value: float) -> str:
    if math.isnan(value):
        return "-"
    return f"{value:.1f} s" if value >= 1.0 else f"{1000 * value:.3g} ms"


def _percent(share: float) -> str:
    return "-" if math.isnan(share) else f"{share:.0%}"


def _number(value: float) -> str:
    return "-" if math.isnan(value) else f"{math.floor(value):,}"
