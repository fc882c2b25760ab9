"""The command ``forestall reproduce``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from forestall import screen

HELP = (
    "What: table1, scalability, eta, regularisation, subsets, figures, theory, nhanes, "
    "or all."
)


def reproduce(
    what: Annotated[list[str], typer.Argument(help=HELP)],
    quick: Annotated[
        bool, typer.Option("--quick", help="The short versions: minutes, not hours.")
    ] = False,
    jobs: Annotated[int, typer.Option(min=1, help="Processes at once.")] = 1,
    out: Annotated[
        Path | None,
        typer.Option(
            help="Folder for results, figures and page; else those of the checkout.",
            show_default=False,
        ),
    ] = None,
    fresh: Annotated[
        bool, typer.Option("--fresh", help="Begin anew; else go on where it stopped.")
    ] = False,
) -> None:
    """Make tables and figures of the paper anew, and the page of results.

    What was run before is not run again; a run that was stopped goes on.
    """
    from forestall.reproduce.steps import run

    written = run(
        what,
        quick=quick,
        jobs=jobs,
        out=out,
        fresh=fresh,
        progress=lambda text: screen.say(text, "bold"),
        bars=True,
    )
    screen.show_files(written)
