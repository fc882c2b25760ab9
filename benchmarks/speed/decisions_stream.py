"""Contexts from Parquet to decisions in Parquet: memory, speed, and the price of it.

Run: python benchmarks/speed/decisions_stream.py [CONTEXTS]
Fits a cheap policy, which leaves everything alone, writes CONTEXTS contexts (10^6
unless told) to a folder of Parquet files, and decides for all of them. Prints the rows
per second and the peak memory of the process, before and after, and the ratio of the
time for each row to that of deciding for a table in memory, which is the least of
several measurements in the same run. One BLAS thread.
Writes benchmarks/results/speed/decisions_stream.csv.
"""

from __future__ import annotations

import csv
import resource
import sys
import tempfile
import time
import warnings
from pathlib import Path

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
from threadpoolctl import threadpool_limits

from forestall import Policy, tasks
from forestall.baselines import NoAction
from forestall.scale import Written, recommend_stream

RESULTS = Path(__file__).parents[1] / "results" / "speed" / "decisions_stream.csv"
TASK, N, FILE_ROWS, REPEATS = "bank", 200, 250_000, 5
IN_MEMORY = 16_384


def peak_megabytes() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def contexts(n: int, seed: int) -> pa.Table:
    return pa.table(tasks.get(TASK).contexts(n, seed=seed))


def write_contexts(folder: Path, n: int) -> Path:
    folder.mkdir()
    for k, start in enumerate(range(0, n, FILE_ROWS)):
        table = contexts(min(FILE_ROWS, n - start), seed=k)
        pq.write_table(table, folder / f"{k:05d}.parquet")
    return folder


def seconds_in_memory(policy: Policy) -> float:
    table, times = contexts(IN_MEMORY, seed=0), []
    for _ in range(REPEATS):
        start = time.perf_counter()
        policy.recommend(table).to_frame()
        times.append(time.perf_counter() - start)
    return min(times) / IN_MEMORY


def check(told: Written, n: int) -> None:
    rows = ds.dataset(str(told.folder)).count_rows()
    if not rows == told.rows == n:
        raise SystemExit(f"Expected {n} decisions; got {rows} in {told.folder}.")


def measure(n: int, home: Path) -> dict[str, float]:
    task = tasks.get(TASK)
    policy = NoAction().fit(task.problem, task.history(N, seed=0))
    source = write_contexts(home / "contexts", n)
    in_memory = seconds_in_memory(policy)
    before = peak_megabytes()
    told = recommend_stream(policy, source, home / "decisions")
    check(told, n)
    again = recommend_stream(policy, source, home / "decisions")
    return {
        "contexts": n,
        "rows_per_second": round(n / told.seconds),
        "ratio_to_memory": round(told.seconds / n / in_memory, 3),
        "resume_seconds": round(again.seconds, 2),
        "peak_mb_before": round(before),
        "peak_mb": round(peak_megabytes()),
    }


def main() -> None:
    warnings.simplefilter("ignore")
    n = int(float(sys.argv[1])) if sys.argv[1:] else 10**6
    with threadpool_limits(limits=1), tempfile.TemporaryDirectory() as home:
        found = measure(n, Path(home))
    print(", ".join(f"{name} {value:g}" for name, value in found.items()))
    RESULTS.parent.mkdir(parents=True, exist_ok=True)
    with RESULTS.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, list(found))
        writer.writeheader()
        writer.writerow(found)


if __name__ == "__main__":
    main()
