"""What one client may ask of the service, so that the others are served too."""

from __future__ import annotations

import math
import numbers
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

from forestall.errors import SpecError

if TYPE_CHECKING:
    Count = int
    Seconds = float
else:
    # Whatever a user passes is checked by us, with our own words.
    Count = Seconds = Any


@dataclass(frozen=True, kw_only=True)
class Limits:
    """Bounds on requests; a client that exceeds one gets an error that says so.

    Args:
        body_bytes: The longest body.
        rows: The most contexts, or points of a landscape, in one request.
        seconds: The longest that a request may wait for its answer.
        queue: The most requests that may wait at a time.
        queue_rows: The most rows that may wait at a time.
        queue_bytes: The most bytes of bodies that may be read at a time.
        batch: The most rows answered at a time.
        batch_seconds: The longest that rows are answered at a time, about: how long
            a small request may have to wait for others.
        window: Seconds that a request waits for others to be answered together.
        send_seconds: The longest that a client may take to send a request.
        read_seconds: The longest that a client may take to read its answer.
        idle_seconds: How long a connection may stay open between requests.
        connections: The most connections of one process.
    """

    body_bytes: Count = 8_000_000
    rows: Count = 10_000
    seconds: Seconds = 60.0
    queue: Count = 1_000
    queue_rows: Count = 100_000
    queue_bytes: Count = 100_000_000
    batch: Count = 256
    batch_seconds: Seconds = 0.25
    window: Seconds = 0.002
    send_seconds: Seconds = 10.0
    read_seconds: Seconds = 30.0
    idle_seconds: Seconds = 15.0
    connections: Count = 800

    def __post_init__(self) -> None:
        """Check that every bound is a positive number."""
        for field in fields(self):
            _check(field.name, getattr(self, field.name), field.type == "Count")


def _check(name: str, value: object, whole: bool) -> None:
    kind = numbers.Integral if whole else numbers.Real
    sound = isinstance(value, kind) and not isinstance(value, bool)
    if not sound or not math.isfinite(value) or value <= 0:  # type: ignore[arg-type, operator]
        word = "a whole number" if whole else "a number"
        raise SpecError(
            f"Expected {word} above zero for the limit {name}; got {value!r}. Leave it "
            f"out for the default, {getattr(Limits, name)}."
        )
