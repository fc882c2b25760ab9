"""Tasks for a Dask cluster, sent and gathered without its noise."""

from __future__ import annotations

import pickle
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any

from forestall.errors import FitError, MissingExtraError


def sent(value: Any) -> Any:
    """Make a task that gives a value; Dask does not look into bytes."""
    # What was defined in a notebook has no module that a worker could import.
    from cloudpickle import dumps  # type: ignore[import-untyped]

    return dask().delayed(pickle.loads, pure=False)(dumps(value))


def computed(client: Any, tasks: list[Any]) -> list[Any]:
    """Have tasks done, by the current client or by threads where none is given."""
    with quietly():
        if client is not None:
            return list(client.gather(client.compute(tasks)))
        return list(dask().compute(*tasks))


def as_done(client: Any, tasks: list[Any]) -> Iterator[Any]:
    """Give what tasks give, one after the other, as they are done."""
    client = client or _current()
    if client is None:
        yield from computed(None, tasks)
        return
    from distributed import as_completed

    with quietly():
        futures = client.compute(tasks)
    with explained():
        for future in as_completed(futures):  # type: ignore[no-untyped-call]
            yield future.result()


def _current() -> Any:
    try:
        from distributed import default_client

        return default_client()  # type: ignore[no-untyped-call]
    except (ImportError, ValueError):
        return None


@contextmanager
def quietly() -> Iterator[None]:
    """Let one thread of BLAS do, and Dask keep its own remarks to itself."""
    from threadpoolctl import threadpool_limits

    with explained(), threadpool_limits(limits=1), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Sending large graph", UserWarning)
        warnings.filterwarnings("ignore", "", DeprecationWarning, module="dask")
        yield


@contextmanager
def explained() -> Iterator[None]:
    """Say in our own words that workers die of a task."""
    try:
        yield
    except Exception as error:
        if type(error).__name__ != "KilledWorker":
            raise
        raise FitError(
            f"Expected workers that outlive their tasks; got several that died of one: "
            f"{error} Give the workers more memory, and see their logs."
        ) from error


def dask() -> ModuleType:
    """Load Dask, or say what to install."""
    try:
        import dask
    except ImportError as error:
        raise MissingExtraError("dask", "scale") from error
    return dask
