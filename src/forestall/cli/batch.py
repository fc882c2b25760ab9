"""Many decisions: at once where they fit into memory, else as a stream."""

from __future__ import annotations

import glob
import shutil
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from forestall import screen
from forestall.cli.cluster import spread
from forestall.cli.tables import DASH, columns_of, format_of, is_lines, write
from forestall.decisions import Decisions
from forestall.errors import DataError, SpecError
from forestall.method import Policy
from forestall.observations import Schema
from forestall.scale.supply import STREAMED
from forestall.staged import StagedPolicy
from forestall.table import Table

if TYPE_CHECKING:
    import pyarrow as pa

    from forestall.scale.decide import Written

# Seconds after which a stream says how far it is, and then again.
PATIENCE = 2.0
ROW = "row"


@dataclass(frozen=True, eq=False)
class Asked:
    """A policy and how it is asked.

    Args:
        policy: What decides.
        only: The actions that may be altered, or all.
        at_most: How many of them together, or any number.
        jobs: How many processes share the work.
    """

    policy: Policy
    only: tuple[str, ...] | None = None
    at_most: int | None = None
    jobs: int = 1

    def __post_init__(self) -> None:
        """Check that the policy can be asked so."""
        narrowed = self.only is not None or self.at_most is not None
        if narrowed and not isinstance(self.policy, StagedPolicy):
            raise SpecError(
                f"Expected a staged policy for --only and --at-most; got "
                f"{type(self.policy).__name__}. Fit one with --method staged."
            )

    @property
    def schema(self) -> Schema:
        """How the user's columns become numbers."""
        return self.policy.schema

    @property
    def block(self) -> int:
        """How many contexts to decide before it is said how far a stream is."""
        # Processes that wait for each other after every block lose a third of the time.
        return self.policy.block * (4 * self.jobs if self.jobs > 1 else 1)

    @property
    def fingerprint(self) -> str:
        """What tells it from another policy, or one asked otherwise."""
        from forestall.scale.decide import digest

        narrowed = self.only is not None or self.at_most is not None
        how = f" only {self.only}, at most {self.at_most}" if narrowed else ""
        return digest(self.policy) + how

    def recommend(self, contexts: Any) -> Decisions:
        """Choose an action for each row of ``contexts``."""
        if not isinstance(self.policy, StagedPolicy):
            return self.policy.recommend(contexts, jobs=self.jobs)
        return self.policy.recommend(
            contexts, only=self.only, at_most=self.at_most, jobs=self.jobs
        )


def decide(asked: Asked, contexts: Any, name: str) -> list[Decisions]:
    """Decide for a table in memory, part by part, with a bar on a terminal."""
    n, block = Table.read(contexts).n, asked.policy.block
    if asked.jobs > 1 or n <= block:
        with screen.status(f"Deciding for {n:,} contexts") as update:
            if asked.jobs > 1:
                update(f"Deciding for {n:,} contexts in {asked.jobs} processes")
            return [asked.recommend(contexts)]
    from forestall.scale.source import Batch, Place
    from forestall.scale.warned import Warned

    told, warned, none = [], Warned(), pa_table({})
    with screen.bar(n, "Deciding") as advance:
        for start in range(0, n, block):
            part = _rows(contexts, start, block)
            with warned.gather(Batch(none, Place(start, name, start))):
                told.append(asked.recommend(part))
            advance("Deciding", len(told[-1]))
    warned.tell()
    return told


def pa_table(columns: Any) -> pa.Table:
    """Make a table of Arrow."""
    import pyarrow as pa

    return pa.table(columns) if isinstance(columns, dict) else columns


def _rows(contexts: Any, start: int, count: int) -> Any:
    if isinstance(contexts, dict):
        return {k: v[start : start + count] for k, v in contexts.items()}
    return contexts.slice(start, count)


def as_table(told: Sequence[Decisions], contexts: Any, keep: Sequence[str]) -> pa.Table:
    """Put decisions under each other, beside what is kept of their contexts."""
    import pyarrow as pa

    table = pa.concat_tables([pa_table(each.to_frame()) for each in told])
    return beside(columns_of(contexts, keep), table, 0)


def beside(kept: dict[str, Any], table: pa.Table, first: int) -> pa.Table:
    """Put kept columns first, or the number of each row where none are."""
    import numpy as np

    for name in kept:
        if name in table.column_names:
            raise DataError(
                f"Expected columns for --keep that are called otherwise than those of "
                f"decisions; got {name!r}. Rename it in the contexts."
            )
    if not kept:
        taken = ROW in table.column_names
        name = "row of contexts" if taken else ROW
        kept = {name: np.arange(first, first + table.num_rows)}
    for k, (name, column) in enumerate(kept.items()):
        table = table.add_column(k, name, pa_table({name: column})[name])
    return table


def counted(told: Sequence[Decisions]) -> dict[str, int]:
    """Count rows and verdicts."""
    counts = Counter(verdict for each in told for verdict in each.verdict)
    verdicts = {k: counts[k] for k in ("act", "leave", "abstain")}
    return {"rows": counts.total(), **verdicts}


def is_stream(contexts: Path, out: Path | None, cluster: str | None) -> bool:
    """Tell what must not be held in memory, or is to become a folder."""
    text = str(contexts)
    into_folder = out is not None and str(out) != DASH and not out.suffix
    asked = into_folder or cluster is not None
    if text == DASH or is_lines(contexts):
        if asked:
            raise DataError(
                f"Expected files that can be read in parts for --cluster, and for a "
                f"folder of decisions: .csv, .parquet, .feather or .arrow; got "
                f"{text!r}. Convert it, or leave --cluster out and name a file with -o."
            )
        return False
    many = contexts.is_dir() or (glob.has_magic(text) and not contexts.exists())
    large = contexts.is_file() and contexts.stat().st_size > STREAMED
    return many or large or asked


def stream(
    asked: Asked,
    contexts: Path,
    out: Path | None,
    keep: Sequence[str],
    cluster: str | None,
) -> Written:
    """Decide for files that need not fit into memory, into a folder or one file."""
    from forestall.scale.decide import recommend_stream

    if out is None or str(out) == DASH:
        raise DataError(
            f"Expected -o with a file or a folder, because {str(contexts)!r} is "
            f"decided for as a stream; got none. Name a folder, e.g. -o decisions: a "
            f"run that is stopped goes on there."
        )
    if len(keep) > 1:
        raise DataError(
            f"Expected one column for --keep, because {str(contexts)!r} is decided for "
            f"as a stream; got {len(keep)}: {', '.join(keep)}. Keep an identifier, and "
            f"join the rest by it."
        )
    one_file = bool(out.suffix)
    if one_file:
        format_of(out)
    folder = out.with_name(f"{out.name}.parts") if one_file else out
    with screen.status("Deciding") as update:
        with spread(contexts, cluster) as records:
            written = recommend_stream(
                asked,
                records,
                folder,
                identifier=keep[0] if keep else None,
                fingerprint=asked.fingerprint,
                progress=_progress(update),
            )
        if one_file:
            update("Writing")
            write(_parts(folder, bool(keep)), out, format_of(out))
            shutil.rmtree(folder)
    return written


def _parts(folder: Path, kept: bool) -> Iterator[pa.Table]:
    from pyarrow import parquet

    first = 0
    for path in sorted(folder.glob("part-*.parquet")):
        table = parquet.read_table(path).replace_schema_metadata(None)
        yield table if kept else beside({}, table, first)
        first += table.num_rows


def _progress(update: Callable[[str], None]) -> Callable[[int, int | None], None]:
    """Say how far a stream is; now and then in lines, where there is no terminal."""
    since = time.monotonic()

    def tell(done: int, total: int | None) -> None:
        nonlocal since
        of = "" if total is None else f" of {total:,}"
        text = f"{done:,}{of} contexts decided"
        update(text)
        if not sys.stderr.isatty() and time.monotonic() - since > PATIENCE:
            since = time.monotonic()
            screen.say(text)

    return tell
