"""The commands that ask a policy: ``recommend`` and ``whatif``."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from forestall import screen
from forestall.cli.options import Cluster, Fitted, Json

if TYPE_CHECKING:
    from forestall.cli.batch import Asked
    from forestall.decisions import Decisions


def recommend(
    file: Fitted,
    contexts: Annotated[
        Path,
        typer.Argument(
            help="The cases: CSV, Parquet or JSON Lines, a folder, or - for stdin."
        ),
    ],
    out: Annotated[
        Path | None,
        typer.Option(
            "--out",
            "-o",
            help="Where to write: .csv, .parquet, .jsonl, a folder, or - for stdout.",
            show_default=False,
        ),
    ] = None,
    format_: Annotated[
        str,
        typer.Option("--format", help="Of stdin and stdout: csv, parquet or jsonl."),
    ] = "csv",
    keep: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAMES",
            help="Columns of the contexts to copy, such as an identifier.",
            show_default=False,
        ),
    ] = None,
    only: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAMES", help="Actions that may be altered.", show_default=False
        ),
    ] = None,
    at_most: Annotated[
        int | None,
        typer.Option(help="How many of them together.", show_default=False),
    ] = None,
    jobs: Annotated[int, typer.Option(min=1, help="Processes at once.")] = 1,
    cluster: Cluster = None,
    as_json: Json = False,
) -> None:
    """Choose an action for each context.

    Folders, and files that do not fit into memory, are streamed; a run that was stopped
    goes on where it was when the same command is given again.
    """
    from forestall.cli.tables import check_distinct, check_format

    check_format(format_)
    check_distinct(out, file, contexts)
    with screen.status("Loading"):
        from forestall.cli.batch import Asked, is_stream
        from forestall.store import load

        policy = load(file)
        asked = Asked(policy, _names(only), at_most, jobs)
    kept = _names(keep) or ()
    if is_stream(contexts, out, cluster):
        _recommend_stream(asked, contexts, out, kept, cluster, as_json)
    else:
        _recommend_table(asked, contexts, out, kept, format_, as_json)


def _recommend_stream(
    asked: Asked,
    contexts: Path,
    out: Path | None,
    keep: tuple[str, ...],
    cluster: str | None,
    as_json: bool,
) -> None:
    from forestall.cli.batch import stream

    written = stream(asked, contexts, out, keep, cluster)
    names = ("rows", "act", "leave", "abstain", "resumed")
    counts = {name: getattr(written, name) for name in names}
    _tell(counts, out or written.folder, as_json)


def _recommend_table(
    asked: Asked,
    contexts: Path,
    out: Path | None,
    keep: tuple[str, ...],
    format_: str,
    as_json: bool,
) -> None:
    from forestall.cli.batch import as_table, counted, decide
    from forestall.cli.tables import DASH, columns_of, format_of, read, write

    target = Path(DASH) if out is None else out
    kind = format_ if str(target) == DASH else format_of(target)
    with screen.status("Reading"):
        given = read(contexts, format_)
        columns_of(given, keep)
    told = decide(asked, given, str(contexts))
    if str(target) == DASH and as_json:
        screen.show_json({"decisions": _plain(told, given, keep)})
    elif out is None and sys.stdout.isatty():
        from forestall.screen.decide import show_decisions

        show_decisions(told, counted(told))
    else:
        write([as_table(told, given, keep)], target, kind)
        if str(target) != DASH:
            _tell(counted(told), target, as_json)


def _plain(told: list[Decisions], contexts: Any, keep: tuple[str, ...]) -> list[Any]:
    from forestall.cli.tables import columns_of
    from forestall.screen.decide import plain_decision

    kept = {k: v.to_pylist() for k, v in columns_of(contexts, keep).items()}
    decisions = [each for some in told for each in some]
    return [
        {"row": i, **{k: v[i] for k, v in kept.items()}, **plain_decision(each)}
        for i, each in enumerate(decisions)
    ]


def _tell(counts: dict[str, int], out: Path, as_json: bool) -> None:
    if as_json:
        screen.show_json({**counts, "files": [str(out)]})
        return
    verdicts = ", ".join(f"{counts[k]:,} {k}" for k in ("act", "leave", "abstain"))
    before = counts.get("resumed", 0)
    resumed = f" ({before:,} of them decided before)" if before else ""
    print(f"{counts['rows']:,} contexts{resumed}: {verdicts}")
    screen.show_files([out])


def _names(values: list[str] | None) -> tuple[str, ...] | None:
    if values is None:
        return None
    parts = (part.strip() for value in values for part in value.split(","))
    return tuple(dict.fromkeys(part for part in parts if part))


def whatif(
    file: Fitted,
    context: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=VALUE",
            help="One context of the case; once for each.",
            show_default=False,
        ),
    ] = None,
    context_file: Annotated[
        Path | None,
        typer.Option(
            help="The contexts as one JSON object; - for stdin.", show_default=False
        ),
    ] = None,
    action: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=VALUE",
            help="What to set; once for each action.",
            show_default=False,
        ),
    ] = None,
    as_json: Json = False,
) -> None:
    """Say what an action would do for one context.

    Its probability with its interval stands beside no action and the advice.
    """
    with screen.status("Loading") as update:
        from forestall.cli.asking import actions_of, case_of
        from forestall.screen.decide import plain_decision, show_whatif
        from forestall.store import load

        policy = load(file)
        case = case_of(policy, context or [], context_file)
        given = actions_of(policy, action or [])
        update("Deciding")
        advice = policy.recommend(case)[0]
        asked = policy.evaluate(case, given)[0] if given else None
    if not as_json:
        show_whatif(advice, asked)
        return
    told = None if asked is None else plain_decision(asked)
    screen.show_json(
        {"context": case, "whatif": told, "recommendation": plain_decision(advice)}
    )
