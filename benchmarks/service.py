"""How fast the service answers many clients at once, and whether it grows.

Run: python benchmarks/service.py [SECONDS]
Serves an exact NestedRehearsal policy of 1,000 records from a process of its own. 64
clients ask for single contexts, each as soon as it has its answer, first for a warm-up
and then for SECONDS (60 unless told); the same clients then ask a no-op, /healthz, of
the same server. Between requests a client does nothing, so the two loads differ only in
the work of the policy. One batch is one call of the library for 64 contexts, alone.
Last, 10,000 contexts in one request. Passed when there is no error, the 99th percentile
is at most 3 times that of the no-op plus one batch, the server's memory does not grow,
but for 2 % that an allocator may hold for later, and the last request ends within the
limit of the service. Else it exits with 1, after the results are written.
"""

from __future__ import annotations

import asyncio
import csv
import json
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from threadpoolctl import threadpool_limits

from forestall import NestedRehearsal, tasks
from forestall.method import Policy
from forestall.serve import Limits
from forestall.store import save

RESULTS = Path(__file__).resolve().parent / "results"
TASK, N, CLIENTS, MANY, WARM = "bank", 1_000, 64, 10_000, 5.0
GROWTH = 1.02

SERVER = """
import sys
from forestall.serve import run

if __name__ == "__main__":
    run(sys.argv[1], port=0)
"""


@dataclass
class Load:
    """What clients saw: seconds for each answer, and how many were no answer."""

    seconds: list[float] = field(default_factory=list)
    errors: int = 0

    def percentile(self, q: float) -> float:
        """A percentile in milliseconds."""
        return 1e3 * float(np.percentile(self.seconds, q))


@contextmanager
def serving(policy: Policy) -> Iterator[tuple[int, int]]:
    """Serve a policy; gives the id of the process and its port."""
    with tempfile.TemporaryDirectory() as folder:
        path, script = Path(folder) / "policy.forestall", Path(folder) / "server.py"
        save(policy, path)
        script.write_text(SERVER)
        log = Path(folder) / "log"
        with log.open("w") as file:
            process = subprocess.Popen(
                [sys.executable, str(script), str(path)], stderr=file
            )
        try:
            yield process.pid, port_of(log)
        finally:
            process.terminate()
            process.wait()


def port_of(log: Path) -> int:
    """Wait for the address in the log."""
    while not (line := log.read_text().partition("\n")[0]):
        time.sleep(0.05)
    return int(json.loads(line)["url"].rpartition(":")[2])


def resident(pid: int) -> float:
    """The memory of a process, in megabytes."""
    status = Path(f"/proc/{pid}/status").read_text()
    line = next(line for line in status.splitlines() if line.startswith("VmRSS"))
    return int(line.split()[1]) / 1024


def post(body: object) -> bytes:
    """A request for recommendations, as bytes."""
    text = json.dumps(body).encode()
    head = (
        f"POST /v1/recommend HTTP/1.1\r\nhost: localhost\r\n"
        f"content-type: application/json\r\ncontent-length: {len(text)}\r\n\r\n"
    )
    return head.encode() + text


NOTHING = b"GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n"


async def ask(
    port: int, requests: list[bytes], until: float, load: Load, key: bytes
) -> None:
    """Be one client: ask, wait for the answer, ask again."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=1 << 26)
    asked = 0
    while not asked or time.perf_counter() < until:
        start = time.perf_counter()
        writer.write(requests[asked % len(requests)])
        head = await reader.readuntil(b"\r\n\r\n")
        length = head.lower().partition(b"content-length: ")[2].partition(b"\r")[0]
        body = await reader.readexactly(int(length))
        load.seconds.append(time.perf_counter() - start)
        load.errors += not head.startswith(b"HTTP/1.1 200") or key not in body
        asked += 1
    writer.close()
    await writer.wait_closed()


async def loaded(port: int, requests: list[bytes], seconds: float, key: bytes) -> Load:
    """Let all clients ask for a while."""
    load, until = Load(), time.perf_counter() + seconds
    parts = [requests[k::CLIENTS] or requests for k in range(CLIENTS)]
    await asyncio.gather(*(ask(port, part, until, load, key) for part in parts))
    return load


def batch_seconds(policy: Policy, rows: list[dict[str, float]]) -> float:
    """The time of one call for as many contexts as there are clients: the median."""
    columns = {name: [row[name] for row in rows[:CLIENTS]] for name in rows[0]}
    times = []
    with threadpool_limits(limits=1):
        for _ in range(30):
            start = time.perf_counter()
            policy.recommend(columns)
            times.append(time.perf_counter() - start)
    return float(np.median(times))


def many(port: int, rows: list[dict[str, float]]) -> float:
    """Seconds for all contexts in one request."""

    async def once() -> float:
        load = Load()
        requests = [post({"contexts": rows})]
        await ask(port, requests, 0.0, load, b"decisions")
        assert not load.errors
        return load.seconds[0]

    return asyncio.run(once())


def measured(seconds: float) -> dict[str, object]:
    task = tasks.get(TASK)
    policy = NestedRehearsal().fit(task.problem, task.history(N, seed=0))
    contexts = task.contexts(MANY, seed=1)
    columns = {name: np.asarray(v).tolist() for name, v in contexts.items()}
    rows = [dict(zip(columns, row, strict=True)) for row in zip(*columns.values())]  # noqa: B905
    singles = [post({"contexts": [row]}) for row in rows[: 16 * CLIENTS]]
    batch = batch_seconds(policy, rows)
    with serving(policy) as (pid, port):
        asyncio.run(loaded(port, singles, WARM, b"verdict"))
        before = resident(pid)
        real = asyncio.run(loaded(port, singles, seconds, b"verdict"))
        after = resident(pid)
        nothing = asyncio.run(loaded(port, [NOTHING], seconds / 3, b"ready"))
        together = many(port, rows)
    allowed = 3 * nothing.percentile(99) + 1e3 * batch
    return {
        "n": N,
        "clients": CLIENTS,
        "seconds": seconds,
        "requests": len(real.seconds),
        "errors": real.errors + nothing.errors,
        "per_second": round(len(real.seconds) / seconds),
        "p50_ms": round(real.percentile(50), 1),
        "p99_ms": round(real.percentile(99), 1),
        "noop_per_second": round(len(nothing.seconds) / (seconds / 3)),
        "noop_p50_ms": round(nothing.percentile(50), 1),
        "noop_p99_ms": round(nothing.percentile(99), 1),
        "batch_ms": round(1e3 * batch, 1),
        "allowed_p99_ms": round(allowed, 1),
        "p99_to_allowed": round(real.percentile(99) / allowed, 3),
        "rss_mb_before": round(before, 1),
        "rss_mb_after": round(after, 1),
        "many_contexts": MANY,
        "many_seconds": round(together, 2),
    }


def failures(row: Mapping[str, object]) -> list[str]:
    """Say which criteria a row of results does not meet."""
    now = {name: float(str(value)) for name, value in row.items()}
    errors, p99, many = now["errors"], now["p99_ms"], now["many_seconds"]
    before, after = now["rss_mb_before"], now["rss_mb_after"]
    allowed, limit = 3 * now["noop_p99_ms"] + now["batch_ms"], Limits().seconds
    criteria = [
        (errors == 0, f"Expected no error; got {errors:.0f}."),
        (
            p99 <= allowed,
            f"Expected a 99th percentile of at most {allowed:.1f} ms, 3 times that of "
            f"the no-op plus one batch; got {p99:.1f} ms.",
        ),
        (
            after <= GROWTH * before,
            f"Expected memory that does not grow from {before:.1f} MB; got "
            f"{after:.1f} MB.",
        ),
        (
            many <= limit,
            f"Expected {now['many_contexts']:,.0f} contexts in one request within "
            f"{limit:.0f} s; got {many:.1f} s.",
        ),
    ]
    return [text for met, text in criteria if not met]


def main() -> None:
    warnings.simplefilter("ignore")
    row = measured(float(sys.argv[1]) if len(sys.argv) > 1 else 60.0)
    for name, value in row.items():
        print(f"{name:16} {value}")
    RESULTS.mkdir(exist_ok=True)
    with (RESULTS / "service.csv").open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, list(row), lineterminator="\n")
        writer.writeheader()
        writer.writerow(row)
    if unmet := failures(row):
        sys.exit("\n".join(unmet))


if __name__ == "__main__":
    main()
