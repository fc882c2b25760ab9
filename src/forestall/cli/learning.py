"""The commands that learn from a history: ``check``, ``fit`` and ``compare``."""

from __future__ import annotations

import shlex
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from forestall import screen
from forestall.cli.cluster import spread
from forestall.cli.methods import (
    METHODS,
    class_named,
    method_named,
    shared_by,
    size_text,
)
from forestall.cli.options import Cluster, History, Json, Question, Records, Step
from forestall.cli.tables import check_distinct
from forestall.errors import SpecError, warn

if TYPE_CHECKING:
    from forestall.diagnostics import Diagnostics
    from forestall.method import Policy
    from forestall.problem import Problem

SUFFIX = ".forestall"
# What no problem file is called.
TABLES = (".csv", ".parquet", ".feather", ".arrow")


def check(
    problem: Question,
    history: History,
    step: Step = None,
    deep: Annotated[
        bool,
        typer.Option(
            "--deep", help="Learn from it too: what predicts what, what is missing."
        ),
    ] = False,
    as_json: Json = False,
) -> None:
    """Check a history against its problem.

    Shows what each column is for, whether causes can be told from coincidence, ranges,
    and how much the actions varied. Exits with 0 when the history can be used and with
    2 when it cannot.
    """
    with screen.status("Reading and checking") as update:
        from forestall.check import check as examine

        question = read_question(problem, step)
        report = examine(question, history)
        told = _diagnosed(question, history, update) if deep else None
    if as_json:
        more = {} if told is None else {"diagnostics": told.to_dict()}
        screen.show_json({**report.to_dict(), **more})
        return
    from forestall.screen.check import show_report

    show_report(report, told)


def fit(
    problem: Question,
    history: Records,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out",
            "-o",
            help="Where to save the policy; else beside the question.",
            show_default=False,
        ),
    ] = None,
    method: Annotated[
        str,
        typer.Option(help=f"How to learn: {', '.join(METHODS)}. Staged suits most."),
    ] = "staged",
    approximation: Annotated[
        str | None,
        typer.Option(
            metavar="KIND:SIZE",
            help="Quicker and rougher: nystrom:500 or fourier:500.",
            show_default=False,
        ),
    ] = None,
    jobs: Annotated[
        int, typer.Option(min=1, help="Processes at once, for staged.")
    ] = 1,
    step: Step = None,
    cluster: Cluster = None,
    as_json: Json = False,
) -> None:
    """Learn a policy from a history and save it."""
    place = out or problem.with_suffix(SUFFIX)
    check_distinct(place, problem, history)
    with screen.status("Reading") as update:
        from forestall import store

        question = read_question(problem, step)
        learner = method_named(method, approximation)
        together = shared_by(jobs, method)
        update(f"Learning ({type(learner).__name__})")
        start = time.perf_counter()
        with spread(history, cluster) as records:
            policy = learner.fit(question, records, **together)
        seconds = time.perf_counter() - start
        update("Saving")
        store.save(policy, place)
        saved = store.about(place)
    if remark := size_text(learner, _held(policy, saved["history"]["records"])):
        warn(remark)
    from forestall.screen.learn import learned, show_learned

    told = learned(policy, saved, seconds)
    if as_json:
        screen.show_json({**told.to_dict(), "files": [str(place)]})
    else:
        show_learned(told)
        screen.show_files([place])


def compare(
    problem: Question,
    history: History,
    methods: Annotated[
        str | None,
        typer.Option(help="Their names, with commas; else all.", show_default=False),
    ] = None,
    folds: Annotated[int, typer.Option(help="Parts to split the records into.")] = 5,
    seed: Annotated[int, typer.Option(min=0, help="Which split.")] = 0,
    patience: Annotated[
        float, typer.Option(min=0.0, help="Seconds for each method.")
    ] = 120.0,
    step: Step = None,
    as_json: Json = False,
) -> None:
    """Judge every method on a history: which to use?

    By the records alone, each part of them judged by what the others taught.
    """
    with screen.status("Reading") as update:
        from threadpoolctl import threadpool_limits

        from forestall.comparison import compare as judge

        question = read_question(problem, step)
        names = [class_named(name.strip()) for name in (methods or "").split(",")]
        # Two threads that wait for each other make a short job a long one.
        with threadpool_limits(1):
            told = judge(
                question,
                history,
                names if methods else None,
                folds,
                seed,
                patience=patience,
                progress=update,
            )
    if as_json:
        screen.show_json(told.to_dict())
        return
    from forestall.screen.compare import show_comparison

    show_comparison(told)


def read_question(path: Path, step: int | None) -> Problem:
    """Read a problem file, for one time step where one is named."""
    from forestall.problem import Problem

    if path.suffix.lower() in TABLES:
        raise SpecError(
            f"Expected a problem file first and the history second; got the table "
            f"{str(path)!r} as the problem. Swap them, or write a problem file with: "
            f"forestall init {shlex.quote(str(path))}"
        )
    question = Problem.from_file(path)
    return question if step is None else question.at(step)


def _held(policy: Policy, records: int) -> int:
    """How many of the records there were to choose from: a sample, where many."""
    return int(getattr(getattr(policy, "data", None), "n", records))


def _diagnosed(
    question: Problem, history: Path, update: Callable[[str], None]
) -> Diagnostics:
    update("Learning how each variable follows from those before it")
    from threadpoolctl import threadpool_limits

    from forestall.diagnostics import diagnose
    from forestall.staged import StagedRehearsal

    # Two threads that wait for each other make a short job a long one.
    with threadpool_limits(1):
        policy = StagedRehearsal().fit(question, history)
        update("Looking for where advice is least sure")
        return diagnose(policy)
