"""Running a plan: unit by unit, on one or more processes, from where it stopped."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import (
    FIRST_COMPLETED,
    Executor,
    Future,
    ProcessPoolExecutor,
    wait,
)
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from forestall.bench.plan import Plan
from forestall.bench.progress import Progress
from forestall.bench.record import Record, check_same_plan, read_record
from forestall.bench.results import (
    COLUMNS,
    Row,
    Unit,
    append,
    complete_units,
    read_rows,
    to_csv,
)
from forestall.bench.score import Trial, Yardstick, assess, yardsticks
from forestall.errors import PlanError
from forestall.files import write_text


def run(
    plan: Plan,
    out: str | Path | None = None,
    *,
    fresh: bool = False,
    jobs: int = 1,
    progress: bool = True,
) -> Path:
    """Run a plan, or what is missing of it, and give the path of the results.

    Each unit, a method on one task and seed, is on the disk before the next begins;
    a run that was stopped in whatever way goes on after the last one.

    Args:
        plan: What to run.
        out: The CSV file; by default where :attr:`Plan.default_out` says. A JSON file
            of the same name records the plan, the code and the machine.
        fresh: Throw away what is there and begin anew.
        jobs: Processes at once. The results are the same; timings are fair with one.
        progress: Show how far it is, and how long it will take.
    """
    out = plan.default_out if out is None else Path(out)
    _check(out, jobs)
    done, record = _resume(plan, out, fresh, jobs)
    work = _missing(plan, done)
    if work:
        _carry_out(plan, work, out, record, progress)
        done = complete_units(read_rows(out), plan.contexts)
    _settle(plan, done, out)
    return out


@dataclass(frozen=True)
class Work:
    """What is missing of one trial.

    Args:
        trial: The task and seed.
        methods: The labels of the methods not run yet.
        truth: The oracles, when a finished unit tells them.
    """

    trial: Trial
    methods: tuple[str, ...]
    truth: list[Yardstick] | None

    @property
    def steps(self) -> int:
        """How many jobs it takes."""
        return len(self.methods) + (self.truth is None)


def _check(out: Path, jobs: int) -> None:
    if out.suffix != ".csv":
        raise PlanError(
            f"Expected a results file that ends in .csv; got {str(out)!r}. The record "
            f"of the run is written beside it and ends in .json."
        )
    if jobs < 1:
        raise PlanError(f"Expected jobs of 1 or more; got {jobs}.")


def _resume(
    plan: Plan, out: Path, fresh: bool, jobs: int
) -> tuple[dict[Unit, list[Row]], Record]:
    """Read what is there, and leave the file with complete units only."""
    told = read_record(out.with_suffix(".json"))
    earlier = [] if told is None else told["runs"]
    record = Record(out.with_suffix(".json"), plan, jobs, earlier)
    if fresh or not out.exists():
        _check_replaceable(out)
        # The old results go before the new record comes, never the other way round.
        out.unlink(missing_ok=True)
        record.earlier = []
        record.write(complete=False)
        write_text(out, to_csv([], header=True))
        return {}, record
    check_same_plan(plan, told, out)
    done = complete_units(read_rows(out), plan.contexts)
    _rewrite(out, [row for rows in done.values() for row in rows])
    return done, record


def _check_replaceable(out: Path) -> None:
    """Raise rather than overwrite a table that no benchmark has written."""
    if not out.exists() or out.stat().st_size == 0:
        return
    with out.open(encoding="utf-8", errors="replace") as file:
        first = file.readline()
    if not first.startswith(",".join(COLUMNS[:4])):
        raise PlanError(
            f"Expected {str(out)!r} to be the results of a benchmark, because they "
            f"would be replaced; it is something else. Name another --out."
        )


def _rewrite(out: Path, rows: Sequence[Row]) -> None:
    text = to_csv(rows, header=True)
    if out.read_bytes() != text.encode():
        write_text(out, text)


def _settle(plan: Plan, done: dict[Unit, list[Row]], out: Path) -> None:
    """Put the rows into the order of the plan, in whatever order they came."""
    order = (
        (trial.task, trial.seed, label)
        for trial in plan.trials()
        for label in plan.methods
    )
    _rewrite(out, [row for unit in order for row in done[unit]])


def _missing(plan: Plan, done: dict[Unit, list[Row]]) -> list[Work]:
    work = []
    for trial in plan.trials():
        units = {label: (trial.task, trial.seed, label) for label in plan.methods}
        told = [done[unit] for unit in units.values() if unit in done]
        methods = tuple(label for label, unit in units.items() if unit not in done)
        truth = [Yardstick.of(row) for row in told[0]] if told else None
        if methods:
            work.append(Work(trial, methods, truth))
    return work


def _carry_out(
    plan: Plan, work: Sequence[Work], out: Path, record: Record, shown: bool
) -> None:
    total = sum(each.steps for each in work)
    with _executor(record.jobs) as executor, Progress(total, shown=shown) as progress:
        for result in Schedule(plan, deque(work), executor, record.jobs).results():
            if isinstance(result, Trial):
                progress.found_oracles(result)
                continue
            append(out, result)
            record.units += 1
            record.write(complete=False)
            progress.finished(result)
    record.write(complete=True)


@dataclass
class Schedule:
    """Keeps as many jobs running as allowed; a trial's oracles come first.

    Args:
        plan: Where the methods are.
        waiting: Trials not begun.
        executor: What runs the jobs.
        jobs: How many at once.
    """

    plan: Plan
    waiting: deque[Work]
    executor: Executor
    jobs: int
    ready: deque[tuple[Trial, str, list[Yardstick]]] = field(default_factory=deque)
    running: dict[Future[Any], Work | None] = field(default_factory=dict)

    def results(self) -> Iterator[list[Row] | Trial]:
        """Give each unit's rows, and each trial whose oracles are found."""
        while self.waiting or self.ready or self.running:
            while len(self.running) < self.jobs and (self.ready or self.waiting):
                self._begin()
            done, _ = wait(self.running, return_when=FIRST_COMPLETED)
            for future in done:
                work = self.running.pop(future)
                if work is None:
                    yield future.result()
                else:
                    self._know(work, future.result())
                    yield work.trial

    def _begin(self) -> None:
        """Start the next job; units before oracles, so that nothing waits unsaved."""
        if not self.ready:
            work = self.waiting.popleft()
            if work.truth is None:
                self.running[self.executor.submit(yardsticks, work.trial)] = work
                return
            self._know(work, work.truth)
        trial, label, truth = self.ready.popleft()
        method = self.plan.methods[label]
        future = self.executor.submit(assess, trial, label, method, truth)
        self.running[future] = None

    def _know(self, work: Work, truth: list[Yardstick]) -> None:
        self.ready.extend((work.trial, label, truth) for label in work.methods)


class Inline(Executor):
    """Runs each job at once, in this process."""

    def submit(
        self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any
    ) -> Future[Any]:
        """Run the job; what it raises is raised here."""
        future: Future[Any] = Future()
        future.set_result(fn(*args, **kwargs))
        return future


def _executor(jobs: int) -> Executor:
    if jobs == 1:
        return Inline()
    # Forking a process whose BLAS has threads can hang; a fresh one cannot.
    context = multiprocessing.get_context("spawn")
    return ProcessPoolExecutor(jobs, mp_context=context, initializer=_begin_worker)


def _begin_worker() -> None:
    # An interrupt reaches every process of a terminal; the parent alone handles it.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    """Leave when the parent was killed; nobody would tell us otherwise."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)
