"""What is counted for Prometheus: requests, their time, batches; no values."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from forestall.serve.held import Held

SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)
ROWS = (1, 2, 4, 8, 16, 32, 64, 128, 256)
# Where processes of one service add up their numbers.
SHARED = "PROMETHEUS_MULTIPROC_DIR"


@dataclass(frozen=True, eq=False)
class Metrics:
    """The counters of one process; several add up in a shared folder."""

    registry: Any
    requests: Any
    seconds: Any
    rows: Any
    batches: Any
    queue: Any
    since: Any
    kind: str

    @classmethod
    def new(cls) -> Metrics:
        """Start at zero."""
        # Which kind of number it keeps is settled when this is first imported.
        import prometheus_client as p

        forget_dead()
        own = p.CollectorRegistry()
        return cls(
            own,
            p.Counter(
                "forestall_requests",
                "Requests by method, path and status.",
                ["method", "path", "status"],
                registry=own,
            ),
            p.Histogram(
                "forestall_request_seconds",
                "Seconds from the first byte of a request to its answer.",
                ["path"],
                buckets=SECONDS,
                registry=own,
            ),
            p.Histogram(
                "forestall_batch_rows",
                "Rows answered at a time.",
                buckets=ROWS,
                registry=own,
            ),
            p.Histogram(
                "forestall_batch_seconds",
                "Seconds that rows were answered at a time.",
                buckets=SECONDS,
                registry=own,
            ),
            p.Gauge(
                "forestall_queue_requests",
                "Requests that wait to be answered, or are being answered.",
                registry=own,
                multiprocess_mode="livesum",
            ),
            p.Gauge(
                "forestall_policy_loaded_timestamp_seconds",
                "When the policy in service was loaded.",
                registry=own,
                multiprocess_mode="livemax",
            ),
            p.CONTENT_TYPE_LATEST,
        )

    def request(self, method: str, path: str, status: int, seconds: float) -> None:
        """Note a request."""
        self.requests.labels(method, path, str(status)).inc()
        self.seconds.labels(path).observe(seconds)

    def batch(self, rows: int, seconds: float) -> None:
        """Note a batch."""
        self.rows.observe(rows)
        self.batches.observe(seconds)

    def loaded(self, held: Held) -> None:
        """Note when a policy was loaded."""
        self.since.set(held.loaded.timestamp())

    def text(self) -> bytes:
        """Write the numbers of all processes as Prometheus reads them."""
        from prometheus_client import CollectorRegistry, generate_latest
        from prometheus_client.multiprocess import MultiProcessCollector

        registry = self.registry
        if os.environ.get(SHARED):
            registry = CollectorRegistry()
            MultiProcessCollector(registry)  # type: ignore[no-untyped-call]
        return generate_latest(registry)


def forget_dead() -> None:
    """Take what processes that have ended still claim to hold out of the sums."""
    folder = os.environ.get(SHARED)
    for path in Path(folder).glob("gauge_live*.db") if folder else ():
        pid = path.stem.rpartition("_")[2]
        if pid.isdigit() and not is_alive(int(pid)):
            path.unlink(missing_ok=True)


def is_alive(pid: int) -> bool:
    """Tell whether a process runs."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
