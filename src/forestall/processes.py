"""Work that several processes share."""

from __future__ import annotations

import numbers
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from forestall.errors import SpecError


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

    Args:
        function: What is called, in other processes where ``jobs`` is above one, each
            with one thread for its linear algebra.
        items: Its arguments, each time.
        jobs: How many processes share the work.
    """
    if jobs == 1 or len(items) < 2:
        yield from (function(*each) for each in items)
        return
    from joblib import Parallel, delayed, parallel_config

    with parallel_config(backend="loky", n_jobs=jobs, inner_max_num_threads=1):
        work = Parallel(return_as="generator")
        yield from work(delayed(function)(*each) for each in items)
