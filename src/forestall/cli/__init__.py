"""The command line: from a table of history to advice, and the studies behind it.

What is heavy is imported inside the commands, so that help comes at once.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Annotated

import typer

from forestall import data_cli
from forestall.cli import deciding, learning, sharing, starting, studying
from forestall.cli.guard import INTERRUPTED, guarded

__all__ = ["app", "main"]

app = typer.Typer(
    name="forestall",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    # Help in boxes takes twice as long to appear.
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def main() -> None:
    """Run the command line; the entry point."""
    for stream in (sys.stdout, sys.stderr):
        # A name that the terminal cannot show must not end the command.
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")
    try:
        app(prog_name="forestall")
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)


def _show_version(wanted: bool) -> bool:
    if wanted:
        from forestall import __version__

        print(f"forestall {__version__}")
        raise typer.Exit
    return wanted


@app.callback()
def _forestall(
    version: Annotated[
        bool,
        typer.Option(
            "--version",
            help="Show the version and exit.",
            callback=_show_version,
            is_eager=True,
        ),
    ] = False,
) -> None:
    """Which feasible action, chosen now, makes the desired outcome most likely?

    Learned from historical records alone. Start with: forestall demo, or, with records
    of your own: forestall init history.csv
    """


COMMANDS: tuple[tuple[Callable[..., None], str], ...] = (
    (starting.init, "init history.csv -o problem.toml"),
    (learning.check, "check problem.toml history.csv"),
    (learning.fit, "fit problem.toml history.csv -o lending.forestall"),
    (deciding.recommend, "recommend lending.forestall contexts.csv -o decisions.csv"),
    (
        deciding.whatif,
        "whatif lending.forestall --context credit_score=0.3 --action rate=0.4",
    ),
    (sharing.report, "report lending.forestall contexts.csv -o report.html"),
    (sharing.serve, "serve lending.forestall --port 8000"),
    (learning.compare, "compare problem.toml history.csv --folds 5"),
    (studying.demo, "demo --seed 3 --out my-demo"),
    (studying.tasks, "tasks --json"),
    (studying.bench, "bench benchmarks/plans/smoke.toml --jobs 2"),
    (studying.reproduce, "reproduce table1 --quick"),
)

for _command, _example in COMMANDS:
    app.command(epilog=f"Example: forestall {_example}")(guarded(_command))
app.add_typer(data_cli.make_app(guarded), name="data")
