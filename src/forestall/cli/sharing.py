"""The commands that show a policy to others: ``report`` and ``serve``."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import Annotated

import typer

from forestall import screen
from forestall.cli.options import Fitted, Json
from forestall.serve.greeting import greet


def report(
    file: Fitted,
    contexts: Annotated[
        Path, typer.Argument(help="The cases: CSV, Parquet, JSON Lines, - for stdin.")
    ],
    out: Annotated[Path, typer.Option("--out", "-o", help="Where to write it.")] = Path(
        "report.html"
    ),
    figures: Annotated[
        int, typer.Option(min=0, help="For how many contexts to draw figures.")
    ] = 3,
    identifier: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="A column of the contexts that names the cases.",
            show_default=False,
        ),
    ] = None,
    format_: Annotated[
        str, typer.Option("--format", help="Of stdin: csv, parquet or jsonl.")
    ] = "csv",
    as_json: Json = False,
) -> None:
    """Write the advice, and why, as one page."""
    from forestall.cli.tables import check_distinct, check_format, read

    check_format(format_)
    check_distinct(out, file, contexts)
    with screen.status("Reading") as update:
        from forestall import report as reporting
        from forestall.store import load

        policy = load(file)
        given = read(contexts, format_)
        update("Deciding, drawing and writing")
        written = reporting.write(
            policy, given, out, figures=figures, identifier=identifier
        )
    if as_json:
        screen.show_json({"files": [str(written)]})
    else:
        screen.show_files([written])


def serve(
    file: Fitted,
    host: Annotated[
        str,
        typer.Option(help="Where to listen; others than this machine need --token."),
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535)] = 8000,
    token: Annotated[
        str | None,
        typer.Option(
            envvar="FORESTALL_TOKEN",
            help="What clients must show, as a bearer token.",
            show_default=False,
        ),
    ] = None,
    workers: Annotated[int, typer.Option(min=1, help="Processes at once.")] = 1,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print nothing but the log, which is JSON.")
    ] = False,
) -> None:
    """Answer over HTTP, and show the what-if page.

    A token in FORESTALL_TOKEN is not seen by others of this machine; one that is given
    as an option is.
    """
    with ExitStack() as loading:
        if not as_json:
            loading.enter_context(screen.status("Loading"))
        from forestall import serve as service

        def ready(text: str) -> None:
            loading.close()
            if not as_json:
                greet(text)

        service.run(
            file, host=host, port=port, token=token, workers=workers, ready=ready
        )
