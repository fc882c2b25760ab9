"""A cluster that reads what a command is given."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from forestall.errors import DataError, MissingExtraError

# Seconds to wait for a cluster that does not answer.
PATIENCE = 10.0


@contextmanager
def spread(path: Path, address: str | None) -> Iterator[Any]:
    """Give files as they are, or as what a cluster reads."""
    if address is None:
        yield str(path)
        return
    from forestall.scale import on

    with _connected(address) as client:
        yield on(client, str(path))


def _connected(address: str) -> Any:
    try:
        from distributed import Client
    except ImportError as error:
        raise MissingExtraError("distributed", "scale") from error
    try:
        return Client(address, timeout=PATIENCE)  # type: ignore[no-untyped-call]
    except (OSError, ValueError) as error:
        raise DataError(
            f"Expected a Dask scheduler at {address!r}; got no answer: {error}. Start "
            f"one with 'dask scheduler', and check the address."
        ) from error
