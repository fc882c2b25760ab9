"""The command line: tell a story, check a history, compare methods, run a benchmark.

What is heavy is imported inside the commands, so that help comes at once.
"""

from __future__ import annotations

import functools
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, ParamSpec, TextIO

import typer

from forestall import data_cli, screen
from forestall.errors import ForestallError, ForestallWarning

if TYPE_CHECKING:
    from forestall.diagnostics import Diagnostics
    from forestall.problem import Problem
    from forestall.tasks.task import Task

__all__ = ["app", "main"]

BAD_INPUT = 2
INTERRUPTED = 130

STUDY_SEEDS = range(10)
STUDY_SHARPNESS = (1.0, 2.0, 5.0, 10.0, 20.0)
STUDY_BANDWIDTH = (1.0, 2.0, 4.0)

P = ParamSpec("P")
Json = Annotated[
    bool, typer.Option("--json", help="Print JSON for machines instead of tables.")
]

app = typer.Typer(
    name="forestall",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def main() -> None:
    """Run the command line; the entry point."""
    try:
        app(prog_name="forestall")
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)


def _guarded(command: Callable[P, None]) -> Callable[P, None]:
    """Turn what a user can cause into a message and an exit code."""

    @functools.wraps(command)
    def guarded(*args: P.args, **kwargs: P.kwargs) -> None:
        try:
            with _plain_warnings():
                command(*args, **kwargs)
        except ForestallError as error:
            screen.say("Error: ", "bold red", str(error))
            raise typer.Exit(BAD_INPUT) from error
        except KeyboardInterrupt as stop:
            screen.say("Interrupted.", "bold")
            raise typer.Exit(INTERRUPTED) from stop

    return guarded


@contextmanager
def _plain_warnings() -> Iterator[None]:
    """Show the library's warnings as sentences, not as lines of code."""
    with warnings.catch_warnings():
        usual = warnings.showwarning

        def show(
            message: Warning | str,
            category: type[Warning],
            filename: str,
            lineno: int,
            file: TextIO | None = None,
            line: str | None = None,
        ) -> None:
            if issubclass(category, ForestallWarning):
                screen.say("Warning: ", "yellow", str(message))
            else:
                usual(message, category, filename, lineno, file, line)

        warnings.showwarning = show
        yield


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

    Learned from historical records alone. Start with: forestall demo
    """


app.add_typer(data_cli.make_app(_guarded), name="data")


@app.command(epilog="Example: forestall demo --seed 3 --out my-demo")
@_guarded
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
    """Tell the lending story: a confounded estimator, an adjusted one, the truth."""
    _make_folder(out)
    if study:
        _tell_study(out, as_json)
    else:
        _tell_story(out, seed, figure, as_json)


@app.command(epilog="Example: forestall tasks --json")
@_guarded
def tasks(as_json: Json = False) -> None:
    """List the built-in tasks, whose truth is known."""
    from forestall import tasks as known

    found = [known.get(name) for name in known.names()]
    about = {task.name: _about(task) for task in found}
    if not as_json:
        screen.show_tasks(found, about)
        return
    screen.show_json(
        [
            {"name": t.name, "about": about[t.name], "covariates": []}
            | t.problem.to_dict()
            for t in found
        ]
    )


@app.command(epilog="Example: forestall check problem.toml history.csv")
@_guarded
def check(
    problem: Annotated[Path, typer.Argument(help="The question, a TOML file.")],
    history: Annotated[Path, typer.Argument(help="The records: CSV or Parquet.")],
    step: Annotated[
        int | None, typer.Option(help="Time step, where there is a graph for each.")
    ] = None,
    deep: Annotated[
        bool,
        typer.Option(
            "--deep", help="Learn from it too: what predicts what, what is missing."
        ),
    ] = False,
    as_json: Json = False,
) -> None:
    """Check a history against its problem: roles, identification, ranges, overlap.

    Exits with 0 when the history can be used and with 2 when it cannot.
    """
    with screen.status("Reading and checking") as update:
        from forestall.check import check as examine
        from forestall.problem import Problem

        question = Problem.from_file(problem)
        question = question if step is None else question.at(step)
        report = examine(question, history)
        told = _diagnosed(question, history, update) if deep else None
    if not as_json:
        screen.show_report(report, told)
    elif told is None:
        screen.show_json(report.to_dict())
    else:
        screen.show_json({**report.to_dict(), "diagnostics": told.to_dict()})


@app.command(epilog="Example: forestall compare problem.toml history.csv --folds 5")
@_guarded
def compare(
    problem: Annotated[Path, typer.Argument(help="The question, a TOML file.")],
    history: Annotated[Path, typer.Argument(help="The records: CSV or Parquet.")],
    methods: Annotated[
        str | None,
        typer.Option(help="Their names, with commas; else all.", show_default=False),
    ] = None,
    folds: Annotated[int, typer.Option(help="Parts to split the records into.")] = 5,
    seed: Annotated[int, typer.Option(min=0, help="Which split.")] = 0,
    patience: Annotated[
        float, typer.Option(min=0.0, help="Seconds for each method.")
    ] = 120.0,
    step: Annotated[
        int | None, typer.Option(help="Time step, where there is a graph for each.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Judge every method on a history, by its records alone, and say which to use."""
    with screen.status("Reading") as update:
        from threadpoolctl import threadpool_limits

        from forestall.comparison import compare as judge
        from forestall.problem import Problem

        question = Problem.from_file(problem)
        question = question if step is None else question.at(step)
        names = methods and [name.strip() for name in methods.split(",")]
        # Two threads that wait for each other make a short job a long one.
        with threadpool_limits(1):
            told = judge(
                question,
                history,
                names or None,
                folds,
                seed,
                patience=patience,
                progress=update,
            )
    if as_json:
        screen.show_json(told.to_dict())
    else:
        from forestall.compare_screen import show_comparison

        show_comparison(told)


@app.command(epilog="Example: forestall bench benchmarks/plans/smoke.toml --jobs 2")
@_guarded
def bench(
    plan: Annotated[Path, typer.Argument(help="What to run, a TOML file.")],
    out: Annotated[
        Path | None, typer.Option(help="The results, a CSV file.", show_default=False)
    ] = None,
    fresh: Annotated[
        bool, typer.Option("--fresh", help="Begin anew; else go on where it stopped.")
    ] = False,
    jobs: Annotated[int, typer.Option(min=1, help="Processes at once.")] = 1,
) -> None:
    """Run a benchmark plan, or what is missing of it, and show its table."""
    from forestall import bench as harness

    path = harness.run(harness.Plan.from_file(plan), out, fresh=fresh, jobs=jobs)
    screen.show(harness.to_rich(harness.summarise(path)))
    screen.show_files([path])


def _diagnosed(
    question: Problem, history: Path, update: Callable[[str], None]
) -> Diagnostics:
    update("Learning every mechanism")
    from threadpoolctl import threadpool_limits

    from forestall.diagnostics import diagnose
    from forestall.staged import StagedRehearsal

    # Two threads that wait for each other make a short job a long one.
    with threadpool_limits(1):
        policy = StagedRehearsal().fit(question, history)
        update("Looking for where advice is least sure")
        return diagnose(policy)


def _tell_story(out: Path, seed: int, draw: bool, as_json: bool) -> None:
    with screen.status("Loading") as update:
        from forestall import demo as lending

        story = lending.tell(seed, update)
        update("Drawing and writing" if draw else "Writing")
        files = lending.save(story, out, draw=draw)
    if as_json:
        paths = [str(path) for path in files]
        screen.show_json({**story.to_dict(), "files": paths})
    else:
        screen.show_story(story)
        screen.show_files(files)


def _tell_study(out: Path, as_json: bool) -> None:
    from forestall import demo as lending

    with screen.bar(len(STUDY_SEEDS) * len(STUDY_BANDWIDTH)) as advance:
        rows = lending.lending_study(
            STUDY_SEEDS, STUDY_SHARPNESS, STUDY_BANDWIDTH, advance
        )
    path = lending.save_study(rows, out)
    if as_json:
        told = [vars(row) for row in rows]
        screen.show_json({"study": told, "files": [str(path)]})
    else:
        screen.show_study(rows)
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


if __name__ == "__main__":
    main()
