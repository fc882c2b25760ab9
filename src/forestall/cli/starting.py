"""The command that begins: ``init`` writes a problem file for a history."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from forestall import screen
from forestall.cli.options import History, Json
from forestall.cli.tables import check_distinct
from forestall.errors import DataError, SpecError

if TYPE_CHECKING:
    from forestall.init import Draft, Records


def init(
    history: History,
    context: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAMES",
            help="Known before the decision; repeat it, or use commas.",
            show_default=False,
        ),
    ] = None,
    action: Annotated[
        list[str] | None,
        typer.Option(metavar="NAMES", help="What can be set.", show_default=False),
    ] = None,
    outcome: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAMES", help="What is to come out well.", show_default=False
        ),
    ] = None,
    covariate: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAMES",
            help="Recorded, but not known before the decision; needs --order.",
            show_default=False,
        ),
    ] = None,
    desired: Annotated[
        list[str] | None,
        typer.Option(
            metavar="TEXT",
            help="What is desired, e.g. 'approved >= 1 and roi >= 0.3'.",
            show_default=False,
        ),
    ] = None,
    interval: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=LOW..HIGH",
            help="Where an action may be set; else where 98 % of the records are.",
            show_default=False,
        ),
    ] = None,
    order: Annotated[
        str | None,
        typer.Option(
            metavar="TEXT",
            help="What precedes what, e.g. 'stability < rate'.",
            show_default=False,
        ),
    ] = None,
    categorical: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAMES",
            help="Numbers that are codes of categories.",
            show_default=False,
        ),
    ] = None,
    out: Annotated[Path, typer.Option("--out", "-o", help="Where to write it.")] = Path(
        "problem.toml"
    ),
    force: Annotated[
        bool, typer.Option("--force", help="Overwrite a file that is there.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Write a problem file for a history.

    It holds roles, intervals and what is desired. What is not given is asked for on a
    terminal. Intervals are proposed from the records; what causes what is never
    guessed.
    """
    _check_free(out, force)
    check_distinct(out, history)
    with screen.status("Reading"):
        from forestall import init as drafting

        records = drafting.Records.read(history)
        columns = tuple(records.summaries)
        draft = drafting.Draft(
            context=drafting.read_names(context or (), columns),
            covariates=drafting.read_names(covariate or (), columns),
            actions=drafting.read_names(action or (), columns),
            outcomes=drafting.read_names(outcome or (), columns),
            desired=drafting.read_desired(desired or ()),
            intervals=dict(drafting.read_interval(text) for text in interval or ()),
            order=drafting.read_order(order or "", columns),
            categorical=drafting.read_names(categorical or (), columns),
        )
    draft = _completed(draft, records, history)
    _write(draft, records, history, out, as_json)


def _check_free(out: Path, force: bool) -> None:
    if out.exists() and not force:
        raise SpecError(
            f"Expected a new file to write to; got {str(out)!r}, which is there. Name "
            f"another with -o, or overwrite it with --force."
        )


def can_ask() -> bool:
    """Tell whether there is somebody to ask."""
    return sys.stdin.isatty() and sys.stderr.isatty()


def _completed(draft: Draft, records: Records, history: Path) -> Draft:
    absent = draft.absent()
    if can_ask() and (absent or (draft.covariates and not draft.order)):
        from forestall.cli.conversation import ask

        return ask(draft, records)
    if absent:
        raise DataError(
            f"Expected --context, --action, --outcome and --desired, because there is "
            f"no terminal to ask on; missing: {', '.join(absent)}. "
            f"{_spreads(draft, records) or records.listed()} Which column of "
            f"{str(history)!r} plays which role is yours to say."
        )
    return draft


def _spreads(draft: Draft, records: Records) -> str:
    """Say how the outcomes are spread, where only the bounds are missing."""
    if draft.absent() != ["--desired"]:
        return ""
    names = records.known(draft.outcomes, "outcomes")
    return " ".join(f"Of {v!r} {records.summaries[v].spread}." for v in names)


def _write(
    draft: Draft, records: Records, history: Path, out: Path, as_json: bool
) -> None:
    from forestall.files import write_text
    from forestall.init import coded
    from forestall.problem import Problem
    from forestall.problem_file import proposed

    with screen.status("Checking"):
        text = proposed(draft, records, history.name)
        write_text(out, text)
        question = Problem.from_file(out)
    if as_json:
        screen.show_json({"problem": question.to_dict(), "files": [str(out)]})
    else:
        print(question)
        screen.show_files([out])
        print(f"Next: forestall {shlex.join(['check', str(out), str(history)])}")
    left = [name for name in records.summaries if name not in draft.used]
    if left:
        screen.say("Left out: ", "bold", ", ".join(left))
    if unsure := coded(draft, records):
        names = ", ".join(unsure)
        text = f"{names}; if these numbers are codes, say so with --categorical."
        screen.say("Taken as amounts: ", "bold", text)
