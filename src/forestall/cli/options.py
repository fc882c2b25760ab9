"""Arguments and options that several commands share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

Json = Annotated[
    bool, typer.Option("--json", help="Print JSON for machines instead of tables.")
]
Question = Annotated[Path, typer.Argument(help="The question, a TOML file.")]
History = Annotated[Path, typer.Argument(help="The records: CSV or Parquet.")]
Records = Annotated[
    Path, typer.Argument(help="The records: CSV or Parquet, or a folder of such files.")
]
Fitted = Annotated[Path, typer.Argument(help="What 'forestall fit' has written.")]
Step = Annotated[
    int | None,
    typer.Option(
        help="Time step, where there is a graph for each.", show_default=False
    ),
]
Cluster = Annotated[
    str | None,
    typer.Option(
        metavar="ADDRESS",
        help="Have a Dask cluster do it, e.g. tcp://scheduler:8786.",
        show_default=False,
    ),
]
