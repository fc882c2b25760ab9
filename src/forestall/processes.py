"""Work that several processes share."""

from __future__ import annotations

import numbers
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from forestall.errors import SpecError

# What a shell reports of a program that was told to end.
TERMINATED = 143


def checked_jobs(jobs: int) -> int:
    """Raise unless this many processes can share anything."""
    whole = isinstance(jobs, numbers.Integral) and not isinstance(jobs, bool)
    if not whole or jobs < 1:
        raise SpecError(
            f"Expected jobs above zero and whole; got {jobs!r}. Pass 1 to stay in this "
            f"process."
        )
    return int(jobs)


def shared(
    function: Callable[..., Any], items: Sequence[tuple[Any, ...]], jobs: int
) -> Iterator[Any]:
    """Yield what a function makes of each item, in order.

    Errors come back as they are; warnings of another process do not.

    Args:
        function: What is called, in other processes where ``jobs`` is above one, each
            with one thread for its linear algebra.
        items: Its arguments, each time.
        jobs: How many processes share the work, at most one for each item.
    """
    n_jobs = min(jobs, len(items))
    if n_jobs < 2:
        yield from (function(*each) for each in items)
        return
    from joblib import Parallel, delayed, parallel_config

    with (
        parallel_config(backend="loky", n_jobs=n_jobs, inner_max_num_threads=1),
        _ending_together(),
    ):
        work = Parallel(return_as="generator")
        yield from work(delayed(function)(*each) for each in items)


@contextmanager
def _ending_together() -> Iterator[None]:
    """Unwind when told to end, so that no process is left behind."""
    # Only the first thread has a say in what a signal does.
    first = threading.current_thread() is threading.main_thread()
    if not first or signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL:
        yield
        return
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(TERMINATED))
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
