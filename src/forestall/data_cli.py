"""The commands ``forestall data``: get published data, and check what is there."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from forestall import screen

if TYPE_CHECKING:
    from forestall.data.nhanes import Cohort
    from forestall.tasks.task import Task

SEEDS = range(5)

Name = Annotated[Literal["nhanes"], typer.Argument(help="Which data.")]
Json = Annotated[
    bool, typer.Option("--json", help="Print JSON for machines instead of tables.")
]
To = Annotated[
    Path | None,
    typer.Option(
        "--to",
        help="Folder to put them in; by default FORESTALL_DATA, else a cache.",
        show_default=False,
    ),
]
Picture = Annotated[
    Path | None,
    typer.Option(help="Draw the comparison to this file.", show_default=False),
]


def make_app(guard: Callable[..., Any]) -> typer.Typer:
    """Make the group of commands, each within ``guard``, which tells of errors."""
    app = typer.Typer(
        no_args_is_help=True,
        help="Get published data, and check what is there.",
        epilog="Example: forestall data check nhanes",
    )
    app.command(epilog="Example: forestall data fetch nhanes")(guard(fetch))
    app.command(epilog="Example: forestall data check nhanes --json")(guard(check))
    return app


def fetch(name: Name, to: To = None, as_json: Json = False) -> None:
    """Download what is missing; checked, and resumable."""
    from forestall import data
    from forestall.data.fetch import fetch as get
    from forestall.data.nhanes_files import PUBLISHED

    folder = (to or data.folder()) / name
    with screen.bar(len(PUBLISHED)) as advance:
        paths = get(PUBLISHED, folder, advance)
    if as_json:
        screen.show_json({"name": name, "files": [str(path) for path in paths]})
        return
    print(f"All {len(paths)} files are in {folder}")
    if to is not None:
        print(f"Let FORESTALL_DATA={to} name that folder.")


def check(name: Name, figure: Picture = None, as_json: Json = False) -> None:
    """Check the files and select the cohort.

    Generated records are compared with it. Exits with 0 when the cohort is that of the
    benchmark and with 2 when it is not.
    """
    with screen.status("Reading") as update:
        from forestall.data.nhanes import read_cohort

        cohort = read_cohort()
        update("Fitting the generator and comparing")
        told = describe(cohort, figure)
    if as_json:
        screen.show_json({"name": name, **told})
    else:
        _show(told)
    cohort.require_the_benchmarks()


def describe(cohort: Cohort, figure: Path | None = None) -> dict[str, Any]:
    """Say in plain data who was selected, and how like them generated records are.

    Args:
        cohort: The participants.
        figure: Where to draw the comparison; None draws nothing.
    """
    import numpy as np

    from forestall.data import likeness
    from forestall.data.nhanes import FINGERPRINT
    from forestall.tasks.nhanes import task_on

    task = task_on(cohort.columns)
    samples = [task.history(cohort.n, seed) for seed in SEEDS]
    if figure is not None:
        _draw(cohort, samples[0], figure)
    errors = [likeness.correlation_mae(cohort.columns, each) for each in samples]
    rng = np.random.default_rng(0)
    mixed = likeness.shuffled(cohort.columns, rng)
    return {
        "rows": cohort.n,
        "fingerprint": cohort.fingerprint,
        "matches": cohort.fingerprint == FINGERPRINT,
        "by_cycle": cohort.by_cycle,
        "attrition": [vars(step) for step in cohort.attrition],
        "correlation_mae": float(np.mean(errors)),
        "correlation_mae_by_seed": errors,
        "told_apart": likeness.told_apart(cohort.columns, samples[0], rng),
        "told_apart_when_shuffled": likeness.told_apart(cohort.columns, mixed, rng),
        "desired": _desired(task, cohort.columns),
        "desired_generated": _desired(task, *samples),
    }


def _desired(task: Task, *tables: Mapping[str, Any]) -> float:
    """The share of records in the desired region."""
    import numpy as np

    y = [np.concatenate([t[v] for t in tables]) for v in task.problem.outcomes]
    return float(task.problem.region.contains(np.column_stack(y)).mean())


def _draw(cohort: Cohort, generated: dict[str, Any], path: Path) -> None:
    from forestall.data.pictures import validation

    path.parent.mkdir(parents=True, exist_ok=True)
    validation(cohort.columns, generated).savefig(path)


def _show(told: dict[str, Any]) -> None:
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    table = Table(box=SIMPLE_HEAD)
    table.add_column("Kept when")
    table.add_column("Removed", justify="right")
    table.add_column("Left", justify="right")
    for step in told["attrition"]:
        table.add_row(step["rule"], f"{step['removed']:,}", f"{step['left']:,}")
    screen.show(table)
    cycles = ", ".join(f"{k} {n:,}" for k, n in told["by_cycle"].items())
    print(
        f"{told['rows']:,} participants ({cycles}), fingerprint {told['fingerprint']}"
    )
    print(
        f"Generated records, {len(SEEDS)} seeds: mean absolute error of correlations "
        f"{told['correlation_mae']:.4f}; a judge tells them apart with an AUC of "
        f"{told['told_apart']:.3f} (shuffled columns: "
        f"{told['told_apart_when_shuffled']:.3f}); in the desired region "
        f"{told['desired_generated']:.1%}, of the participants {told['desired']:.1%}."
    )
