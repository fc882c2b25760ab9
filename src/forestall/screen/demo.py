"""What ``forestall demo`` and ``forestall tasks`` print."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from rich.table import Table
from rich.text import Text

from forestall.screen import VERDICT_STYLES, heading, percent, show, table_of

if TYPE_CHECKING:
    from forestall.demo import Story, StudyRow
    from forestall.tasks.task import Task

NAMES = {
    "single estimator": "single estimator (confounded)",
    "nested estimator": "nested estimator (adjusted)",
    "oracle": "best attainable",
}


def show_story(story: Story) -> None:
    """Print the lending story."""
    from forestall.demo import RECORDS, bank, smoothing_text

    heading("The lending story")
    show(
        f"A bank sets interest rates and has {RECORDS:,} loans to learn from. Industry "
        f"stability, which it cannot set, moved both the rates it asked and how the "
        f"loans went.\n"
    )
    show(Text(str(bank().problem)))
    heading("One applicant")
    named = (f"{k.replace('_', ' ')} {v:.2f}" for k, v in story.applicant.items())
    show(", ".join(named))
    show(_options_table(story))
    show(Text(story.sentence, style="bold"))
    heading("Is the confounded estimator always that bad?")
    show("True probabilities on this history, by how much is smoothed:")
    show(_study_table(story.smoothing))
    show(smoothing_text(story.smoothing))
    heading("More applicants, with the truth beside the decisions")
    show(_advice_table(story))
    show(Text(f"The first in words: {story.advice[0].sentence}"))


def show_study(rows: Sequence[StudyRow]) -> None:
    """Print a study of many histories."""
    heading(f"True probabilities over {rows[0].histories} histories")
    show(_study_table(rows))


def _options_table(story: Story) -> Table:
    table = table_of("", "interest rate", "believed", "true probability", figures=3)
    for option in story.options:
        rate = "as it comes" if option.action is None else f"{option.action:.2f}"
        name = NAMES.get(option.name, option.name)
        style = "bold" if option.name == "nested estimator" else ""
        cells = (name, rate, percent(option.estimate), percent(option.success))
        table.add_row(*cells, style=style)
    return table


def _study_table(rows: Sequence[StudyRow]) -> Table:
    heads = "eta", "no action", "nested", "single", "single worse than none"
    table = table_of("kernel widths", *heads, figures=5)
    widths = [row.bandwidth for row in rows]
    for row, after in zip(rows, [*widths[1:], None], strict=True):
        table.add_row(
            f"median x {row.bandwidth:g}",
            f"{row.sharpness:g}",
            *map(percent, (row.no_action, row.nested, row.single)),
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
    table = table_of(*names, *heads, "truly", "truly without", figures=9)
    for advice in story.advice:
        table.add_row(
            *(f"{value:.2f}" for value in advice.context.values()),
            f"{advice.action:.2f}",
            percent(advice.probability),
            f"{advice.lower:.0%} to {advice.upper:.0%}",
            percent(advice.no_action),
            Text(advice.verdict, style=VERDICT_STYLES[advice.verdict]),
            percent(advice.success),
            percent(advice.success_without),
        )
    return table


def show_tasks(tasks: Sequence[Task], about: Mapping[str, str]) -> None:
    """Print what the tasks are about, and their structure."""
    for task in tasks:
        show(Text.assemble((f"{task.name:<9}", "bold"), about[task.name]))
    show(_tasks_table(tasks))
    show('In Python: forestall.tasks.get("bank").history(1000, seed=0)')


def _tasks_table(tasks: Sequence[Task]) -> Table:
    heads = "contexts", "covariates", "actions", "outcomes", "desired"
    table = table_of("task", *heads)
    for task in tasks:
        p = task.problem
        actions = [f"{k} in [{a:g}, {b:g}]" for k, (a, b) in p.actions.items()]
        desired = tuple(dict.fromkeys(p.region.texts))
        columns = (p.context, p.covariates, actions, p.outcomes, desired)
        cells = (Text("\n".join(column)) for column in columns)
        table.add_row(Text(task.name, style="bold"), *cells, end_section=True)
    return table
