"""Requests that wait at the same time are answered together."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

from forestall.serve.limits import Limits
from forestall.serve.questions import Question, ask

# Rows of the first batch, before it is known how long one takes.
FIRST = 16


class Busy(Exception):
    """Too many requests wait already."""


class Late(Exception):
    """The answer did not come in time."""


@dataclass(eq=False)
class Job:
    """The rows of one request, answered in as many batches as it takes."""

    question: Question
    rows: Sequence[Any]
    future: asyncio.Future[list[Any]]
    taken: int = 0
    answers: list[Any] = field(default_factory=list)

    def take(self, room: int) -> Sequence[Any]:
        """Take the next rows, at most ``room``."""
        rows = self.rows[self.taken : self.taken + room]
        self.taken += len(rows)
        return rows

    def give(self, answers: list[Any]) -> None:
        """Note answers, and hand them over with the last."""
        self.answers += answers
        if len(self.answers) == len(self.rows) and not self.future.done():
            self.future.set_result(self.answers)

    def fail(self, error: BaseException) -> None:
        """Hand an error over."""
        if not self.future.done():
            self.future.set_exception(error)


Part = tuple[Job, Sequence[Any]]


class Batcher:
    """A queue of requests, and one thread that answers them batch by batch.

    Args:
        limits: How many may wait, and how many rows are answered at a time.
        watch: Called after every batch with its rows and seconds.
    """

    def __init__(self, limits: Limits, watch: Callable[[int, float], None]) -> None:
        """Start with nothing to do."""
        self.limits = limits
        self._watch = watch
        self._waiting: deque[Job] = deque()
        self._rows = 0
        self._wake = asyncio.Event()
        self._pace: dict[type[Question], float] = {}
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="policy")

    async def ask(self, question: Question, rows: Sequence[Any]) -> list[Any]:
        """Wait for the answers to some rows."""
        if not rows:
            return []
        if not self._has_room(len(rows)):
            raise Busy
        job = Job(question, rows, asyncio.get_running_loop().create_future())
        self._waiting.append(job)
        self._rows += len(rows)
        self._wake.set()
        try:
            async with asyncio.timeout(self.limits.seconds):
                return await job.future
        except TimeoutError:
            raise Late from None
        finally:
            self._rows -= len(rows)

    def _has_room(self, rows: int) -> bool:
        """Tell whether one more request may wait; the first always may."""
        crowded = self._rows + rows > self.limits.queue_rows
        return len(self._waiting) < self.limits.queue and not (self._rows and crowded)

    async def run(self) -> None:
        """Answer whatever comes, until cancelled."""
        loop = asyncio.get_running_loop()
        while True:
            self._wake.clear()
            if not self._waiting:
                await self._wake.wait()
                await asyncio.sleep(self.limits.window)
            batch = self._gathered()
            if batch:
                start = time.monotonic()
                told = await loop.run_in_executor(self._thread, _answered, batch)
                self._handed_over(batch, told, time.monotonic() - start)

    def close(self) -> None:
        """Let the thread end."""
        self._thread.shutdown(wait=False, cancel_futures=True)

    def _gathered(self) -> list[Part]:
        """Take rows of the oldest question and of those equal to it."""
        self._waiting = deque(j for j in self._waiting if not j.future.done())
        if not self._waiting:
            return []
        question = self._waiting[0].question
        room, batch, others = self._room(question), list[Part](), deque[Job]()
        unfinished = []
        for job in self._waiting:
            if not room or job.question != question:
                others.append(job)
                continue
            rows = job.take(room)
            room -= len(rows)
            batch.append((job, rows))
            if job.taken < len(job.rows):
                unfinished.append(job)
        # A long request goes to the end, so that short ones need not wait for it.
        self._waiting = others + deque(unfinished)
        return batch

    def _room(self, question: Question) -> int:
        """How many rows to answer at a time, so that it takes no longer than agreed."""
        most = min(self.limits.batch, question.policy.block)
        pace = self._pace.get(type(question))
        wanted = FIRST if pace is None else self.limits.batch_seconds / max(pace, 1e-9)
        return int(max(1, min(most, wanted)))

    def _handed_over(self, batch: list[Part], told: list[Any], seconds: float) -> None:
        rows = sum(len(part) for _, part in batch)
        self._pace[type(batch[0][0].question)] = seconds / rows
        self._watch(rows, seconds)
        for (job, _), answers in zip(batch, told, strict=True):
            if isinstance(answers, BaseException):
                job.fail(answers)
            else:
                job.give(answers)


def _answered(batch: list[Part]) -> list[Any]:
    """Answer all parts at once; where that fails, each by itself."""
    question = batch[0][0].question
    together = [row for _, rows in batch for row in rows]
    try:
        answers = iter(ask(question, together))
        return [[next(answers) for _ in rows] for _, rows in batch]
    except Exception as error:
        if len(batch) == 1:
            return [error]
        # One odd request must not spoil those that happened to wait beside it.
        return [_answered([part])[0] for part in batch]
