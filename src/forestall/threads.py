"""How many threads linear algebra takes: one, but for what is large.

Threads wait for each other at the end of every product. Small products gain nothing
from that, and where another process keeps a core busy they take several times as long.
The number never rises above what the user or the environment has set.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from threading import RLock
from typing import Any

# Fewer rows take one thread a tenth of a second to factor: all threads could save less
# than that, and lose more.
LARGE = 2_000
# The number is the whole process's. Whoever comes first settles it and restores it; had
# others a say meanwhile, the last of them would restore what they found.
_FIRST = RLock()
_LIMITS: list[Any] = []


@contextmanager
def one_thread() -> Iterator[None]:
    """Let linear algebra take one thread."""
    with _settling() as mine:
        if not mine or _LIMITS:
            yield
            return
        with _limit() as limit:
            _LIMITS.append(limit)
            try:
                yield
            finally:
                _LIMITS.pop()


@contextmanager
def threads_for(n: int) -> Iterator[None]:
    """Let it take all threads for a matrix of so many rows, or one if they are few."""
    with _all_threads() if n >= LARGE else one_thread():
        yield


@contextmanager
def _all_threads() -> Iterator[None]:
    with _settling() as mine:
        if not mine or not _LIMITS:
            yield
            return
        _LIMITS[0].restore_original_limits()
        try:
            yield
        finally:
            _limit()


@contextmanager
def _settling() -> Iterator[bool]:
    mine = _FIRST.acquire(blocking=False)
    try:
        yield mine
    finally:
        if mine:
            _FIRST.release()


def _limit() -> Any:
    return _controller().limit(limits=1, user_api="blas")


@cache
def _controller() -> Any:
    # Looking for the libraries takes milliseconds; a decision should not.
    from threadpoolctl import ThreadpoolController

    return ThreadpoolController()
