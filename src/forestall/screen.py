"""What the commands print: headings, tables, sentences, JSON.

Results go to standard output; progress, warnings and errors go to standard error.
Colour appears on a terminal only.
"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.box import SIMPLE_HEAD
from rich.console import Console, RenderableType
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn
from rich.table import Table
from rich.text import Text

if TYPE_CHECKING:
    from forestall.check import Range, Report
    from forestall.demo import Story, StudyRow
    from forestall.diagnostics import Diagnostics
    from forestall.tasks.task import Task

# Where output goes to a file, a table must not be squeezed into 80 columns.
WIDTH = 120

NAMES = {
    "single estimator": "single estimator (confounded)",
    "nested estimator": "nested estimator (adjusted)",
    "oracle": "best attainable",
}
VERDICT_STYLES = {"act": "green", "leave": "", "abstain": "yellow"}


def show(*parts: RenderableType) -> None:
    """Print results."""
    # Made anew each time, because tests and pipes replace the stream.
    width = None if sys.stdout.isatty() else WIDTH
    Console(width=width, highlight=False).print(*parts)


def show_json(value: Any) -> None:
    """Print plain data as JSON; what is no number becomes null."""
    print(json.dumps(_without_nan(value), indent=2, allow_nan=False))


def say(head: str, style: str, text: str = "") -> None:
    """Print a remark on standard error, in one line."""
    _errors().print(Text.assemble((head, style), text), soft_wrap=True)


@contextmanager
def status(first: str) -> Iterator[Callable[[str], None]]:
    """Show on a terminal what is being done; gives a way to say what comes next."""
    with _errors().status(first) as shown:
        yield shown.update


@contextmanager
def bar(total: int) -> Iterator[Callable[[str], None]]:
    """Show a bar on a terminal; gives a way to advance it by one."""
    columns = TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn()
    with Progress(*columns, console=_errors(), transient=True) as progress:
        task = progress.add_task("", total=total)
        yield lambda text: progress.update(task, advance=1, description=text)


def show_files(paths: Sequence[Path]) -> None:
    """Say which files were written."""
    show()
    for path in paths:
        # Not through rich, which would break a long path; it is there to be copied.
        print(f"Written: {path}")


def show_story(story: Story) -> None:
    """Print the lending story."""
    from forestall.demo import RECORDS, bank, smoothing_text

    _heading("The lending story")
    show(
        f"A bank sets interest rates and has {RECORDS:,} loans to learn from. Industry "
        f"stability, which it cannot set, moved both the rates it asked and how the "
        f"loans went.\n"
    )
    show(Text(str(bank().problem)))
    _heading("One applicant")
    named = (f"{k.replace('_', ' ')} {v:.2f}" for k, v in story.applicant.items())
    show(", ".join(named))
    show(_options_table(story))
    show(Text(story.sentence, style="bold"))
    _heading("Is the confounded estimator always that bad?")
    show("True probabilities on this history, by how much is smoothed:")
    show(_study_table(story.smoothing))
    show(smoothing_text(story.smoothing))
    _heading("More applicants, with the truth beside the decisions")
    show(_advice_table(story))
    show(Text(f"The first in words: {story.advice[0].sentence}"))


def show_study(rows: Sequence[StudyRow]) -> None:
    """Print a study of many histories."""
    _heading(f"True probabilities over {rows[0].histories} histories")
    show(_study_table(rows))


def show_tasks(tasks: Sequence[Task], about: Mapping[str, str]) -> None:
    """Print what the tasks are about, and their structure."""
    for task in tasks:
        show(Text.assemble((f"{task.name:<9}", "bold"), about[task.name]))
    show(_tasks_table(tasks))
    show('In Python: forestall.tasks.get("bank").history(1000, seed=0)')


def show_report(report: Report, told: Diagnostics | None = None) -> None:
    """Print what a check has found, and what a fit has, if there was one."""
    _heading("Problem")
    show(Text(str(report.problem)))
    _heading("Identification")
    show(Text(str(report.identification)))
    _heading("Records")
    dropped = f", {report.dropped:,} dropped because of gaps" if report.dropped else ""
    show(f"{report.records:,} complete records{dropped}")
    show(f"{_percent(report.good)} of them good:")
    for met in report.constraints:
        show(Text(f"  {_percent(met.share):>7}  {met.constraint}"))
    show(_range_table(report.ranges))
    _heading("Actions")
    show(_overlap_table(report))
    inside = _percent(report.inside)
    show(f"{inside} of the records have every action in its feasible interval.")
    if told is not None:
        _show_diagnostics(told)
        _heading("Verdict")
    for text in report.warnings:
        show(Text.assemble(("Warning: ", "yellow"), text))
    count = len(report.warnings)
    remark = f", with {count} warning{'s' * (count > 1)}" if count else ""
    show(Text(f"\nUsable{remark}.", style="bold"))


def _show_diagnostics(told: Diagnostics) -> None:
    _show_thin(told)
    _heading("Mechanisms, by records left out")
    show(_fit_table(told))
    for text in told.remarks:
        show(Text(text))
    _heading("Contexts")
    show("By how much each moves the probability of a good outcome:")
    show(_context_table(told))
    _heading("What would help most")
    show(Text(told.advice))


def _show_thin(told: Diagnostics) -> None:
    for each in told.overlaps:
        if each.thin and len(each.thin) < len(each.parts):
            places = "; ".join(part.where for part in each.thin)
            show(Text(f"History says least of {each.overlap.action} where {places}."))


def _fit_table(told: Diagnostics) -> Table:
    heads = "role", "predicted", "rest varies by", "shape", "follows from", "not from"
    table = _table("variable", *heads)
    for fit in told.mechanisms:
        rest = "" if fit.deviation is None else f"{fit.deviation:.3g}"
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
    table = _table("context", "without action", "with actions held", "", figures=0)
    for each in told.contexts:
        moves = (f"{100 * share:.0f} points" for share in (each.without, each.under))
        remark = "irrelevant" if each.irrelevant else ""
        table.add_row(*map(Text, (each.name, *moves, remark)))
    return table


def _options_table(story: Story) -> Table:
    table = _table("", "interest rate", "believed", "true probability", figures=3)
    for option in story.options:
        rate = "as it comes" if option.action is None else f"{option.action:.2f}"
        name = NAMES.get(option.name, option.name)
        style = "bold" if option.name == "nested estimator" else ""
        cells = (name, rate, _percent(option.estimate), _percent(option.success))
        table.add_row(*cells, style=style)
    return table


def _study_table(rows: Sequence[StudyRow]) -> Table:
    heads = "eta", "no action", "nested", "single", "single worse than none"
    table = _table("kernel widths", *heads, figures=5)
    widths = [row.bandwidth for row in rows]
    for row, after in zip(rows, [*widths[1:], None], strict=True):
        table.add_row(
            f"median x {row.bandwidth:g}",
            f"{row.sharpness:g}",
            *map(_percent, (row.no_action, row.nested, row.single)),
            _worse(row),
            end_section=after != row.bandwidth,
        )
    return table


def _worse(row: StudyRow) -> Text:
    times = round(row.below * row.histories)
    plain = "yes" if times else "no"
    text = f"{times} of {row.histories}" if row.histories > 1 else plain
    return Text(text, style="red" if times else "")


def _advice_table(story: Story) -> Table:
    names = (name.replace("_", " ") for name in story.applicant)
    heads = "rate", "likely", "90 % interval", "no action", "verdict"
    table = _table(*names, *heads, "truly", "truly without", figures=9)
    for advice in story.advice:
        table.add_row(
            *(f"{value:.2f}" for value in advice.context.values()),
            f"{advice.action:.2f}",
            _percent(advice.probability),
            f"{advice.lower:.0%} to {advice.upper:.0%}",
            _percent(advice.no_action),
            Text(advice.verdict, style=VERDICT_STYLES[advice.verdict]),
            _percent(advice.success),
            _percent(advice.success_without),
        )
    return table


def _tasks_table(tasks: Sequence[Task]) -> Table:
    heads = "contexts", "covariates", "actions", "outcomes", "desired"
    table = _table("task", *heads)
    for task in tasks:
        p = task.problem
        actions = [f"{k} in [{a:g}, {b:g}]" for k, (a, b) in p.actions.items()]
        desired = tuple(dict.fromkeys(p.region.texts))
        columns = (p.context, p.covariates, actions, p.outcomes, desired)
        cells = (Text("\n".join(column)) for column in columns)
        table.add_row(Text(task.name, style="bold"), *cells, end_section=True)
    return table


def _range_table(ranges: Sequence[Range]) -> Table:
    table = _table("variable", "role", "smallest", "median", "largest", "categories")
    for each in ranges:
        ends = (each.minimum, each.median, each.maximum)
        numbers = ("" if end is None else f"{end:.4g}" for end in ends)
        levels = ", ".join(f"{k} ({count:,})" for k, count in each.levels.items())
        table.add_row(*map(Text, (each.name, each.role, *numbers, levels)))
    return table


def _overlap_table(report: Report) -> Table:
    heads = "feasible", "seen", "inside", "varies given the rest", "reached"
    table = _table("action", *heads, figures=5)
    for each in report.overlaps:
        table.add_row(
            Text(each.action),
            f"{each.lower:.4g} to {each.upper:.4g}",
            f"{each.minimum:.4g} to {each.maximum:.4g}",
            _percent(each.inside),
            f"by {each.deviation:.3g}, {each.spread:.0%} of its spread",
            Text(f"{each.reach:.0%}", style="yellow" if each.thin else ""),
        )
    return table


def _table(*heads: str, figures: int = 0) -> Table:
    """Make a table whose last ``figures`` columns hold numbers."""
    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    for k, head in enumerate(heads):
        is_figure = k >= len(heads) - figures
        table.add_column(head, justify="right" if is_figure else "left")
    return table


def _heading(text: str) -> None:
    show(Text(f"\n{text}", style="bold cyan"))


def _percent(share: float | None) -> str:
    return "-" if share is None or math.isnan(share) else f"{share:.1%}"


def _errors() -> Console:
    return Console(stderr=True, highlight=False)


def _without_nan(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {k: _without_nan(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [_without_nan(v) for v in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value
