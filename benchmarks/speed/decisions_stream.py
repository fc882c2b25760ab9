"""Contexts from Parquet to decisions in Parquet: memory, speed, and the price of it.

Run: python benchmarks/speed/decisions_stream.py [--contexts N] [--quick] [--out FOLDER]
Fits ``NestedRehearsal(approximation=Nystrom(rank=200))`` to 5,000 records of non-syn1,
writes N contexts (10^6 unless told) to a folder of Parquet files, and has a process of
its own decide for all of them. In the middle that process is killed; another one goes
on. Then every context must have one decision, the same as ``recommend`` gives for
the table in memory, in blocks of the same size.

Prints, of the process that went on, the contexts per second and the most memory that it
held, before the first decision and at the end; and the ratio of its time for a context
to that of ``recommend`` on the same contexts in memory. Both are the least of several,
in turns; times are of the processor for the ratio, of the clock for contexts per
second. One BLAS thread. Writes benchmarks/results/speed/decisions_stream.csv.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
import warnings
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
from common import folder, options, peak_megabytes, write
from threadpoolctl import threadpool_limits

import forestall
from forestall import NestedRehearsal, Policy, tasks
from forestall.lowrank import Nystrom
from forestall.scale import recommend_stream

TASK, N, RANK, FILE_ROWS, ROUNDS = "non-syn1", 5_000, 200, 250_000, 2
BATCH_ROWS, QUICK = 16_384, 40_000
POLL = 0.01


@dataclass(frozen=True)
class Place:
    """Where the policy, the contexts and the decisions are."""

    home: Path
    batch_rows: int

    @property
    def policy(self) -> Path:
        return self.home / "policy"

    @property
    def contexts(self) -> Path:
        return self.home / "contexts"

    def start(self, out: Path) -> subprocess.Popen[str]:
        command = [sys.executable, __file__, "--decide", str(self.home), str(out)]
        command.append(str(self.batch_rows))
        return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def decide(home: str, out: str, batch_rows: str) -> None:
    """Decide for everything, in this process, and tell what it took."""
    warnings.simplefilter("ignore")
    place = Place(Path(home), int(batch_rows))
    policy, before = forestall.load(place.policy), peak_megabytes()
    with threadpool_limits(limits=1):
        start = time.process_time()
        told = recommend_stream(
            policy,
            place.contexts,
            out,
            batch_rows=place.batch_rows,
            identifier="id",
        )
        seconds = time.process_time() - start
    found = {
        "rows": told.rows,
        "act": told.act,
        "resumed": told.resumed,
        "seconds": seconds,
        "wall": told.seconds,
        "before": before,
        "peak": peak_megabytes(),
    }
    print(json.dumps(found))


def write_contexts(place: Path, n: int) -> None:
    place.mkdir()
    for k, start in enumerate(range(0, n, FILE_ROWS)):
        rows = min(FILE_ROWS, n - start)
        columns = {"id": np.arange(start, start + rows)}
        table = pa.table(columns | dict(tasks.get(TASK).contexts(rows, seed=k)))
        pq.write_table(table, place / f"{k:05d}.parquet")


def prepared(home: Path, n: int, records: int, rank: int) -> Place:
    """Save a policy and the contexts to decide for."""
    place = Place(home, min(BATCH_ROWS, max(1, n // 16)))
    task = tasks.get(TASK)
    method = NestedRehearsal(approximation=Nystrom(rank=rank))
    method.fit(task.problem, task.history(records, seed=0)).save(place.policy)
    write_contexts(place.contexts, n)
    return place


def stopped(place: Path, run: subprocess.Popen[str], half: int) -> None:
    """Kill a run when it has written half of its files."""
    while len(list(place.glob("part-*"))) < half:
        if run.poll() is not None:
            raise SystemExit("The run ended before it could be stopped in the middle.")
        time.sleep(POLL)
    run.kill()
    run.communicate()


def gone_on(place: Place, out: Path, n: int) -> dict[str, float]:
    """Stop a run in the middle, and have another one go on."""
    stopped(out, place.start(out), -(-n // place.batch_rows) // 2)
    run = place.start(out)
    told, _ = run.communicate()
    if run.returncode:
        raise SystemExit("The run could not go on.")
    found: dict[str, float] = json.loads(told)
    return found


def blocks(place: Place, first: int) -> list[pa.Table]:
    """The contexts from one on, cut as a stream cuts them: at the ends of files, too.

    Other blocks round otherwise, and an ascent may then turn elsewhere.
    """
    found, start = [], 0
    for path in sorted(place.contexts.iterdir()):
        table = pq.read_table(path)
        for i in range(0, len(table), place.batch_rows):
            if start + i >= first:
                found.append(table.slice(i, place.batch_rows))
        start += len(table)
    return found


def in_memory(policy: Policy, parts: list[pa.Table]) -> tuple[float, list[pa.Table]]:
    """Decide block by block; give the seconds and the decisions."""
    start = time.process_time()
    told = [policy.recommend(part).to_frame() for part in parts]
    return time.process_time() - start, told


def check(out: Path, n: int, first: int, told: list[pa.Table]) -> None:
    """Every context once, and decided as in memory."""
    decided = ds.dataset(str(out)).to_table().sort_by("id")
    if not np.array_equal(decided["id"].to_numpy(), np.arange(n)):
        raise SystemExit(f"Expected {n} decisions, one of each; got {len(decided)}.")
    rest, expected = decided.slice(first), pa.concat_tables(told)
    for name in (*tasks.get(TASK).problem.actions, "probability"):
        ours, theirs = (each[name].to_numpy() for each in (rest, expected))
        if not np.allclose(ours, theirs, atol=1e-9, equal_nan=True):
            raise SystemExit(f"Expected the decisions of memory; {name!r} differs.")


def one_round(place: Place, out: Path, n: int) -> dict[str, float]:
    found = gone_on(place, out, n)
    resumed = int(found["resumed"])
    if not (found["rows"] == n and 0 < resumed < n):
        raise SystemExit(f"Expected to go on in the middle of {n}; got {found}.")
    policy = forestall.load(place.policy)
    with threadpool_limits(limits=1):
        seconds, told = in_memory(policy, blocks(place, resumed))
    check(out, n, resumed, told)
    for name in ("seconds", "wall"):
        found[name] /= n - resumed
    return found | {"memory": seconds / (n - resumed)}


def measure(place: Place, n: int, rounds: int) -> dict[str, object]:
    outs = [place.home / f"decisions-{k}" for k in range(rounds)]
    found = [one_round(place, out, n) for out in outs]
    least = {k: min(f[k] for f in found) for k in ("seconds", "wall", "memory")}
    return {
        "contexts": n,
        "act": int(found[0]["act"]),
        "resumed": int(found[0]["resumed"]),
        "rounds": rounds,
        "contexts_per_second": round(1 / least["wall"]),
        "in_memory_per_second": round(1 / least["memory"]),
        "ratio_to_memory": round(least["seconds"] / least["memory"], 3),
        "peak_mb_before": round(max(f["before"] for f in found)),
        "peak_mb": round(max(f["peak"] for f in found)),
    }


def main(asked: argparse.Namespace) -> None:
    warnings.simplefilter("ignore")
    n = asked.contexts or (QUICK if asked.quick else 10**6)
    records, rank = (500, 50) if asked.quick else (N, RANK)
    with threadpool_limits(limits=1), tempfile.TemporaryDirectory() as home:
        place = prepared(Path(home), n, records, rank)
        found = {"task": TASK, "records": records, "rank": rank}
        found |= measure(place, n, ROUNDS)
    print(", ".join(f"{name} {value}" for name, value in found.items()))
    write("decisions_stream", [found], folder(asked))


if __name__ == "__main__":
    if sys.argv[1:2] == ["--decide"]:
        decide(*sys.argv[2:])
    else:
        asked = options(__doc__)
        asked.add_argument("--contexts", type=lambda text: int(float(text)))
        main(asked.parse_args())
