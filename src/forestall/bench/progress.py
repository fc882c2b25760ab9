"""How far a benchmark is, and how long it will take."""

from __future__ import annotations

import time
from collections.abc import Sequence
from types import TracebackType

import numpy as np
from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.progress import Progress as Bar

from forestall.bench.results import Row
from forestall.bench.score import Trial


class Progress:
    """A bar on a terminal, a line for each finished unit elsewhere.

    Args:
        total: How many jobs there are.
        shown: Whether to show anything.
        console: Where; by default the error stream, so that results can be piped.
    """

    def __init__(
        self, total: int, *, shown: bool, console: Console | None = None
    ) -> None:
        """Begin at none of the jobs."""
        self.total = total
        self.done = 0
        self.console = console or Console(stderr=True, quiet=not shown)
        self.start = time.monotonic()
        self.bar = Bar(
            TextColumn("{task.description}", markup=False),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TimeRemainingColumn(),
            console=self.console,
            disable=not shown or not self.console.is_terminal,
            # Units take unlike times: judge the speed by many of them.
            speed_estimate_period=600.0,
        )
        self.task = self.bar.add_task("oracles", total=total)

    def __enter__(self) -> Progress:
        """Begin to show."""
        self.bar.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Leave the terminal as it was."""
        self.bar.stop()

    def found_oracles(self, trial: Trial) -> None:
        """Count a trial's oracles."""
        self._advance(f"{trial.task} seed {trial.seed}: oracles")

    def finished(self, rows: Sequence[Row]) -> None:
        """Count a unit."""
        row = rows[0]
        self._advance(f"{row.task} seed {row.seed}: {row.method}, {_outcome(rows)}")

    def _advance(self, text: str) -> None:
        self.done += 1
        if self.bar.disable:
            left = f"{self.done}/{self.total}, {self._left()} left"
            self.console.out(f"{text} ({left})", highlight=False)
        self.bar.update(self.task, advance=1, description=text)

    def _left(self) -> str:
        passed = time.monotonic() - self.start
        seconds = round(passed / self.done * (self.total - self.done))
        return f"{seconds // 60}:{seconds % 60:02d}"


def _outcome(rows: Sequence[Row]) -> str:
    good = [row.success for row in rows if not row.error]
    if not good:
        return f"failed: {rows[0].error}"
    return f"success {np.mean(good):.3f}"
