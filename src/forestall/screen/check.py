"""What ``forestall check`` prints."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from rich.table import Table
from rich.text import Text

from forestall.report.words import grounds
from forestall.screen import heading, percent, show, table_of

if TYPE_CHECKING:
    from forestall.check import Range, Report
    from forestall.diagnostics import Diagnostics
    from forestall.identify import Criterion, Identification


def show_report(report: Report, told: Diagnostics | None = None) -> None:
    """Print what a check has found, and what a fit has, if there was one."""
    heading("Problem")
    show(Text(str(report.problem)))
    show_grounds(report.identification)
    heading("Records")
    dropped = f", {report.dropped:,} dropped because of gaps" if report.dropped else ""
    show(f"{report.records:,} complete records{dropped}")
    show(f"{percent(report.good)} of them good:")
    for met in report.constraints:
        show(Text(f"  {percent(met.share):>7}  {met.constraint}"))
    show(_range_table(report.ranges))
    heading("Actions")
    show(_overlap_table(report))
    inside = percent(report.inside)
    show(f"{inside} of the records have every action in its feasible interval.")
    if told is not None:
        _show_diagnostics(told)
        heading("Verdict")
    for text in report.warnings:
        show(Text.assemble(("Warning: ", "yellow"), text))
    count = len(report.warnings)
    remark = f", with {count} warning{'s' * (count > 1)}" if count else ""
    if told is not None and told.misfit:
        remark += f", but no action will be called an improvement: {told.misfit}"
    show(Text(f"\nUsable{remark}.", style="bold"))


def show_grounds(found: Identification, criterion: Criterion | None = None) -> None:
    """Print what is compared with what, and whether that shows causes."""
    heading("What this rests on")
    for name, text in grounds(found, criterion):
        show(Text.assemble((f"{name}: ", "bold"), text))


def _show_diagnostics(told: Diagnostics) -> None:
    _show_thin(told)
    heading("How well each variable is predicted, by records left out")
    show(_fit_table(told))
    for text in told.remarks:
        show(Text(text))
    heading("Contexts")
    show("By how much each moves the probability of a good outcome:")
    show(_context_table(told))
    heading("What would help most")
    show(Text(told.advice))


def _show_thin(told: Diagnostics) -> None:
    for each in told.overlaps:
        if each.thin and len(each.thin) < len(each.parts):
            places = "; ".join(part.where for part in each.thin)
            show(Text(f"History says least of {each.overlap.action} where {places}."))


def _fit_table(told: Diagnostics) -> Table:
    heads = "role", "predicted", "rest varies by", "shape", "follows from", "not from"
    table = table_of("variable", *heads)
    for fit in told.mechanisms:
        rest = "" if fit.deviation is None else f"{fit.deviation:.3g}"
        if fit.n_ways > 1:
            rest += f", {fit.n_ways} ways"
        if fit.movers:
            rest += f", depends on {', '.join(fit.movers)}"
        predicted = f"{fit.explained:.0%}" if fit.predicted else "not"
        names = ", ".join(fit.relevant), ", ".join(fit.irrelevant)
        cells = (
            fit.name,
            fit.role,
            predicted,
            rest,
            fit.shape if fit.predicted else "",
            *names,
        )
        table.add_row(*map(Text, cells))
    return table


def _context_table(told: Diagnostics) -> Table:
    table = table_of("context", "without action", "with actions held", "", figures=0)
    for each in told.contexts:
        moves = (f"{100 * share:.0f} points" for share in (each.without, each.under))
        remark = "irrelevant" if each.irrelevant else ""
        table.add_row(*map(Text, (each.name, *moves, remark)))
    return table


def _range_table(ranges: Sequence[Range]) -> Table:
    table = table_of("variable", "role", "smallest", "median", "largest", "categories")
    for each in ranges:
        ends = (each.minimum, each.median, each.maximum)
        numbers = ("" if end is None else f"{end:.4g}" for end in ends)
        levels = ", ".join(f"{k} ({count:,})" for k, count in each.levels.items())
        table.add_row(*map(Text, (each.name, each.role, *numbers, levels)))
    return table


def _overlap_table(report: Report) -> Table:
    heads = "feasible", "seen", "inside", "varies given the rest", "reached"
    table = table_of("action", *heads, figures=5)
    for each in report.overlaps:
        table.add_row(
            Text(each.action),
            f"{each.lower:.4g} to {each.upper:.4g}",
            f"{each.minimum:.4g} to {each.maximum:.4g}",
            percent(each.inside),
            f"by {each.deviation:.3g}, {each.spread:.0%} of its spread",
            Text(f"{each.reach:.0%}", style="yellow" if each.thin else ""),
        )
    return table
