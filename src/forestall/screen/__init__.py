"""What the commands print: headings, tables, sentences, JSON.

Results go to standard output; progress, warnings and errors go to standard error.
Colour appears on a terminal only. What draws is loaded when something is drawn.
"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from rich.console import Console, RenderableType
    from rich.table import Table

# Where output goes to a file, a table must not be squeezed into 80 columns.
WIDTH = 120
VERDICT_STYLES = {"act": "green", "leave": "", "abstain": "yellow"}


def show(*parts: Any) -> None:
    """Print results."""
    from rich.console import Console

    # Made anew each time, because tests and pipes replace the stream.
    width = None if sys.stdout.isatty() else WIDTH
    console = Console(width=width, highlight=False)
    console.print(*(_fitting(part, console) for part in parts))


def show_json(value: Any) -> None:
    """Print plain data as JSON; what is no number becomes null."""
    print(json.dumps(without_nan(value), indent=2, allow_nan=False))


def say(head: str, style: str = "", text: str = "") -> None:
    """Print a remark on standard error, in one line."""
    from rich.text import Text

    _errors().print(Text.assemble((head, style), text), soft_wrap=True)


@contextmanager
def status(first: str) -> Iterator[Callable[[str], None]]:
    """Show on a terminal what is being done, and for how long already.

    Gives a way to say what comes next.
    """
    from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    text, console = TextColumn("{task.description}", markup=False), _errors()
    columns = SpinnerColumn(), text, TimeElapsedColumn()
    silent = not console.is_terminal
    with Progress(
        *columns, console=console, transient=True, disable=silent
    ) as progress:
        task = progress.add_task(first, total=None)
        yield lambda text: progress.update(task, description=text)


@contextmanager
def bar(total: int, first: str = "") -> Iterator[Callable[..., None]]:
    """Show a bar on a terminal; gives a way to advance it, by one or by more."""
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
    )

    text, console = TextColumn("{task.description}", markup=False), _errors()
    columns = text, BarColumn(), MofNCompleteColumn(), TimeElapsedColumn()
    silent = not console.is_terminal
    with Progress(
        *columns, console=console, transient=True, disable=silent
    ) as progress:
        task = progress.add_task(first, total=total)

        def advance(text: str, by: int = 1) -> None:
            progress.update(task, advance=by, description=text)

        yield advance


def show_files(paths: Sequence[Path]) -> None:
    """Say which files were written."""
    print()
    for path in paths:
        # Not through rich, which would break a long path; it is there to be copied.
        print(f"Written: {path}")


def heading(text: str) -> None:
    """Print the heading of a part."""
    from rich.text import Text

    show(Text(f"\n{text}", style="bold cyan"))


def table_of(*heads: str, figures: int = 0) -> Table:
    """Make a table whose last ``figures`` columns hold numbers."""
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    for k, head in enumerate(heads):
        is_figure = k >= len(heads) - figures
        justify: Literal["left", "right"] = "right" if is_figure else "left"
        # A number that is cut short is another number.
        table.add_column(head, justify=justify, overflow="fold")
    return table


def _fitting(part: Any, console: Console) -> RenderableType:
    """Write a table row under row where it is too narrow for its numbers."""
    from rich.table import Table

    if not isinstance(part, Table):
        return part
    # At full width, because a measure is never wider than the console.
    free = console.options.update(max_width=10_000)
    fits = console.measure(part, options=free).minimum <= console.width
    return part if fits else _stacked(part)


def _stacked(table: Table) -> RenderableType:
    """Write each row as lines, with the head of its column before each cell."""
    from rich.table import Table

    lines = Table.grid(padding=(0, 2))
    for row in zip(*(column.cells for column in table.columns), strict=True):
        for column, cell in zip(table.columns, row, strict=True):
            if str(cell):
                lines.add_row(column.header, cell)
        lines.add_row("", "")
    return lines


def percent(share: float | None) -> str:
    """Write a share; a dash where there is none."""
    return "-" if share is None or math.isnan(share) else f"{share:.1%}"


def without_nan(value: Any) -> Any:
    """Copy plain data with ``None`` for what is no finite number."""
    if isinstance(value, Mapping):
        return {k: without_nan(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [without_nan(v) for v in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


def _errors() -> Console:
    from rich.console import Console

    return Console(stderr=True, highlight=False)
