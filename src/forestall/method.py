"""What every method shares: fitting, deciding, and saying so honestly."""

from __future__ import annotations

import importlib
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jaxtyping import Float

from forestall.arrays import Array
from forestall.decisions import Assessment, Decisions, Judge, Tried
from forestall.errors import ExtrapolationWarning, warn
from forestall.identify import Criterion, Identification
from forestall.observations import ContextRows, Schema
from forestall.problem import Problem
from forestall.processes import checked_jobs, shared
from forestall.support import Horizon

if TYPE_CHECKING:
    from forestall.scale.decide import Written

# Bytes that the contexts answered at a time may take, and how many these may be.
BUDGET = 1 << 25
FEWEST, MOST = 16, 256
# Fewer contexts than this are answered sooner than another process is told of them.
WORTH_IT = 8
# Columns as long as the history that answering one context takes, about.
COLUMNS = 8
# A fit that is off by more than this on what it has seen proves nothing.
GAP = 0.15
# Seconds after which a batch, or a stream of them, shows how far it is.
PATIENCE = 2.0
# Whether a stream shows how far it is, so that its batches need not.
_SHOWN = ContextVar("shown", default=False)
Tell = Callable[[int, int | None], None]


@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class Policy(ABC):
    """A fitted method: answers many contexts at once.

    Args:
        problem: The problem it was fitted to.
        schema: How the user's columns become numbers, and back.
        horizon: What contexts history has seen.
    """

    problem: Problem
    schema: Schema
    horizon: Horizon

    @property
    def identification(self) -> Identification:
        """What is adjusted for, and whether that is enough."""
        return self.problem.identification()

    @property
    def tried(self) -> Tried | None:
        """What history tried of each action; ``None`` where no record is kept."""
        return None

    @property
    def misfit(self) -> str:
        """What is wrong with the fit as a whole; empty where nothing is."""
        return ""

    @property
    @abstractmethod
    def criterion(self) -> Criterion:
        """Whether the formula that this method estimates is the effect asked for."""

    def __repr__(self) -> str:
        """Name the method; the records it holds stay out of logs."""
        return f"<{type(self).__name__} for {', '.join(self.problem.actions)}>"

    def recommend(self, contexts: Any, *, jobs: int = 1) -> Decisions:
        """Choose an action for each row of ``contexts``.

        Args:
            contexts: A table of contexts, or one mapping of names to values.
            jobs: How many processes share the work; worth it from some seconds on.
        """
        rows = self.schema.encode_contexts(contexts)
        return self._decide(rows, None, jobs=jobs)

    def recommend_to(
        self,
        out: str | Path,
        contexts: Any,
        *,
        identifier: str | None = None,
        resume: bool = True,
        jobs: int = 1,
    ) -> Written:
        """Choose an action for each row of a stream, written as they are chosen.

        On a terminal a bar shows how far it is, once it has taken a while.

        Args:
            out: The folder for the decisions, a Parquet dataset. A run that was stopped
                goes on where it was.
            contexts: Files, a folder or a dataset of contexts.
            identifier: A column of the contexts to copy beside the decisions.
            resume: Whether to go on with a run that was stopped.
            jobs: How many processes share the work; worth it from some seconds on. It
                changes nothing of what is written. A cluster has workers instead.
        """
        from forestall.scale.decide import recommend_stream

        return recommend_stream(
            self, contexts, out, identifier=identifier, resume=resume, jobs=jobs
        )

    def showing(self) -> AbstractContextManager[Tell | None]:
        """Show how far a stream is, in the place of each batch of it."""
        return showing()

    def evaluate(self, contexts: Any, actions: Any, *, jobs: int = 1) -> Decisions:
        """Assess given actions, row by row: what if we did this?

        Args:
            contexts: A table of contexts, or one mapping of names to values.
            actions: A table or an array with a row for each context, or one mapping
                for all of them.
            jobs: How many processes share the work.
        """
        rows = self.schema.encode_contexts(contexts)
        a = self.schema.actions_from_table(actions, rows.n)
        inside = (a >= self.schema.lower) & (a <= self.schema.upper)
        return self._decide(rows, a, [not row.all() for row in inside], jobs=jobs)

    def probability(self, contexts: Any, actions: Any) -> Array:
        """Estimate how likely a good outcome is under the given actions."""
        return self.evaluate(contexts, actions).probability

    @abstractmethod
    def for_region(self, desired: Any) -> Policy:
        """Ask for another desired region, without fitting anew."""

    @abstractmethod
    def answer(
        self, x: Float[Array, "q d_x"], a: Float[Array, "q d_a"] | None
    ) -> Assessment:
        """Assess the actions ``a``, or the best ones where it is ``None``.

        Everything is standardised. Contexts come in blocks of bounded size.
        """

    def save(self, path: str | Path) -> Path:
        """Write it to one file, which :func:`forestall.load` reads back.

        Args:
            path: The file, ``lending.forestall`` say. Where the policy holds its
                records, so does the file.
        """
        # By name: what knows every method cannot stand before all of them.
        saved: Path = importlib.import_module("forestall.store").save(self, path)
        return saved

    @property
    def width(self) -> int:
        """How many numbers are held at a time to answer one context, about."""
        return COLUMNS * len(self.horizon.support.records)

    @property
    def block(self) -> int:
        """How many contexts are answered at a time, so that memory stays bounded."""
        return max(FEWEST, min(MOST, BUDGET // (8 * self.width)))

    def _decide(
        self,
        rows: ContextRows,
        a: Float[Array, "q d_a"] | None,
        infeasible: list[bool] | None = None,
        *,
        jobs: int = 1,
    ) -> Decisions:
        told = Assessment.joined(list(self._answers(rows.x, a, jobs)))
        unheard = self.horizon.remarks(rows.x)
        judge = Judge(self.criterion, unheard, infeasible, self.tried, self.misfit)
        self._warn(rows, judge.unheard)
        return Decisions.judged(rows, told, self.schema, self.identification, judge)

    def _answers(
        self, x: Float[Array, "q d_x"], a: Float[Array, "q d_a"] | None, jobs: int
    ) -> Iterable[Assessment]:
        share = max(WORTH_IT, -(-len(x) // checked_jobs(jobs)))
        step = min(self.block, share)
        parts = [slice(i, i + step) for i in range(0, max(1, len(x)), step)]
        blocks = [(x[part], None if a is None else a[part]) for part in parts]
        return shown(shared(self.answer, blocks, jobs), len(x))

    def _warn(self, rows: ContextRows, unheard: Sequence[str | None]) -> None:
        faults = [(i, text) for i, text in enumerate(rows.faults) if text]
        if faults:
            row, first = faults[0]
            warn(
                f"{len(faults)} of {rows.n} contexts cannot be read; their rows "
                f"abstain. The first, in row {row}: {first}"
            )
        far = [t for t, f in zip(unheard, rows.faults, strict=True) if t and not f]
        if far:
            warn(
                f"{len(far)} of {rows.n} contexts lie far outside history; what "
                f"is said of them is extrapolation. The first: {far[0]}",
                ExtrapolationWarning,
            )


class Method(ABC):
    """Hyperparameters only. Fitting makes a policy and changes nothing here."""

    @abstractmethod
    def fit(self, problem: Problem, history: Any) -> Policy:
        """Learn a policy from historical records.

        Args:
            problem: The question.
            history: A pandas, polars or pyarrow table, a dict of arrays, or the path
                of a CSV or Parquet file.
        """


def contradiction(fitted: str, gap: float) -> str:
    """Say that a fit contradicts the share of good records; empty if it does not.

    Example:
        >>> contradiction("system", 0.2), contradiction("system", 0.05)
        ('the fitted system is off by 20% on the share of good records', '')
    """
    if gap <= GAP:
        return ""
    return f"the fitted {fitted} is off by {gap:.0%} on the share of good records"


def sentence(text: str) -> str:
    """Begin a text with a capital."""
    return text[:1].upper() + text[1:]


def shown(parts: Iterable[Assessment], total: int) -> Iterator[Assessment]:
    """Show on a terminal how far a batch of ``total`` contexts is, after a while."""
    done = 0
    with patient() as tell:
        for part in parts:
            yield part
            done += len(part.probability)
            if not _SHOWN.get():
                tell(done, total)


@contextmanager
def showing() -> Iterator[Tell | None]:
    """Show how far a stream is, not its batches; ``None`` where there is no terminal.

    Gives what is to be told the rows done, and their total where it is known.
    """
    before = _SHOWN.set(True)
    try:
        with patient() as tell:
            yield tell if _console().is_terminal else None
    finally:
        _SHOWN.reset(before)


@contextmanager
def patient() -> Iterator[Tell]:
    """Show on a terminal how far some work is told to be, once it has taken a while."""
    start, bar = time.monotonic(), None

    def tell(done: int, total: int | None) -> None:
        nonlocal bar
        if bar is None and done != total and time.monotonic() - start > PATIENCE:
            bar = _bar(total)
        if bar is not None:
            bar.update(bar.task_ids[0], completed=done)

    try:
        yield tell
    finally:
        if bar is not None:
            bar.stop()


def _bar(total: int | None) -> Any:
    from rich.progress import MofNCompleteColumn, Progress

    columns, console = Progress.get_default_columns(), _console()
    bar = Progress(
        *columns,
        MofNCompleteColumn(),
        console=console,
        transient=True,
        disable=not console.is_terminal,
    )
    bar.add_task("deciding", total=total)
    bar.start()
    return bar


def _console() -> Any:
    from rich.console import Console

    # The error stream, so that decisions can be piped.
    return Console(stderr=True)
