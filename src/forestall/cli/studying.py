"""The commands that study methods: ``demo``, ``tasks``, ``bench``, ``reproduce``."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from forestall import screen
from forestall.cli.options import Json
from forestall.cli.tables import check_distinct

if TYPE_CHECKING:
    from forestall.tasks.task import Task

STUDY_SEEDS = range(10)
STUDY_SHARPNESS = (1.0, 2.0, 5.0, 10.0, 20.0)
STUDY_BANDWIDTH = (1.0, 2.0, 4.0)


def demo(
    out: Annotated[
        Path, typer.Option(help="Folder for the figure and the numbers.")
    ] = Path("forestall-demo"),
    seed: Annotated[int, typer.Option(min=0, help="Which history to learn from.")] = 0,
    study: Annotated[
        bool,
        typer.Option(
            "--study", help="Compare both estimators over 10 histories (a minute)."
        ),
    ] = False,
    figure: Annotated[
        bool, typer.Option("--figure/--no-figure", help="Draw the figure.")
    ] = True,
    as_json: Json = False,
) -> None:
    """Tell the lending story.

    A confounded estimator, an adjusted one, and the truth.
    """
    _make_folder(out)
    if study:
        _tell_study(out, as_json)
    else:
        _tell_story(out, seed, figure, as_json)


def tasks(as_json: Json = False) -> None:
    """List the tasks whose truth is known."""
    from forestall import tasks as known

    found = [known.get(name) for name in known.names()]
    about = {task.name: _about(task) for task in found}
    if not as_json:
        from forestall.screen.demo import show_tasks

        show_tasks(found, about)
        return
    screen.show_json(
        [
            {"name": t.name, "about": about[t.name], "covariates": []}
            | t.problem.to_dict()
            for t in found
        ]
    )


def bench(
    plan: Annotated[Path, typer.Argument(help="What to run, a TOML file.")],
    out: Annotated[
        Path | None, typer.Option(help="The results, a CSV file.", show_default=False)
    ] = None,
    fresh: Annotated[
        bool, typer.Option("--fresh", help="Begin anew; else go on where it stopped.")
    ] = False,
    jobs: Annotated[int, typer.Option(min=1, help="Processes at once.")] = 1,
    as_json: Json = False,
) -> None:
    """Run a benchmark plan and show its table.

    What has been run already is not run again.
    """
    from forestall import bench as harness

    check_distinct(out, plan)
    path = harness.run(harness.Plan.from_file(plan), out, fresh=fresh, jobs=jobs)
    told = harness.summarise(path)
    if as_json:
        rows = [asdict(row) for row in told]
        screen.show_json({"summary": rows, "files": [str(path)]})
    else:
        screen.show(harness.to_rich(told))
        screen.show_files([path])


def reproduce(
    what: Annotated[
        list[str],
        typer.Argument(
            help="table1, scalability, eta, regularisation, subsets, figures, theory, "
            "nhanes, or all."
        ),
    ],
    quick: Annotated[
        bool, typer.Option("--quick", help="The short versions: minutes, not hours.")
    ] = False,
    jobs: Annotated[int, typer.Option(min=1, help="Processes at once.")] = 1,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out",
            "-o",
            help="Folder for results, figures and page; else those of the checkout.",
            show_default=False,
        ),
    ] = None,
    fresh: Annotated[
        bool, typer.Option("--fresh", help="Begin anew; else go on where it stopped.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Make tables and figures of the paper anew.

    And the page of results. What was run before is not run again; a run that was
    stopped goes on.
    """
    from forestall.reproduce import run

    written = run(
        what,
        quick=quick,
        jobs=jobs,
        out=out,
        fresh=fresh,
        progress=lambda text: screen.say(text, "bold"),
        bars=not as_json,
    )
    if as_json:
        screen.show_json({"files": [str(path) for path in written]})
    else:
        screen.show_files(written)


def _tell_story(out: Path, seed: int, draw: bool, as_json: bool) -> None:
    with screen.status("Loading") as update:
        from forestall import demo as lending

        story = lending.tell(seed, update)
        update("Drawing and writing" if draw else "Writing")
        files = lending.save(story, out, draw=draw)
    if as_json:
        paths = [str(path) for path in files]
        screen.show_json({**story.to_dict(), "files": paths})
        return
    from forestall.screen.demo import show_story

    show_story(story)
    screen.show_files(files)


def _tell_study(out: Path, as_json: bool) -> None:
    from forestall import demo as lending
    from forestall.screen.demo import show_study

    with screen.bar(len(STUDY_SEEDS) * len(STUDY_BANDWIDTH)) as advance:
        rows = lending.lending_study(
            STUDY_SEEDS, STUDY_SHARPNESS, STUDY_BANDWIDTH, advance
        )
    path = lending.save_study(rows, out)
    if as_json:
        told = [vars(row) for row in rows]
        screen.show_json({"study": told, "files": [str(path)]})
    else:
        show_study(rows)
        screen.show_files([path])


def _about(task: Task) -> str:
    """Take what the first line of the task's own file says of it."""
    from importlib import import_module

    from forestall.tasks import MODULES

    doc = import_module(f"forestall.tasks.{MODULES[task.name]}").__doc__ or ""
    return doc.partition("\n")[0].partition(": ")[2]


def _make_folder(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise typer.BadParameter(
            f"Expected a folder to write to; got {str(folder)!r}: {error.strerror}. "
            f"Name another one.",
            param_hint="--out",
        ) from error
