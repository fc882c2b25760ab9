"""A fit from a Parquet file against a bare loop over the same file.

Run: python benchmarks/speed/stream.py [--quick] [--out FOLDER]
Ten columns: four contexts, three covariates, two actions, one outcome. Ours is
``NestedRehearsal(approximation=Nystrom(rank=500)).fit(problem, file)``, everything from
the path to the policy: one pass to know the encoding and to sample, the choice of
landmarks, one pass to sum, the solves.

The yardstick is one pass: it reads the same columns with ``pyarrow``, standardises them
with means and scales that it is given, and for the landmarks that our fit of the
smallest file has chosen computes, in blocks of 4,096 rows, the three sets of kernel
rows that the nested estimator needs (of contexts, covariates and actions together; of
contexts; of covariates), each as one matrix product and one exponential in place; the
two sums of squares by ``dsyrk`` into one triangle that it adds to; the product of the
second set with the third; and the products of the first two with the outcomes. It
checks nothing, samples nothing, solves nothing.

Times are of the processor, one BLAS thread, so that others on the machine count as
little as possible; the least of several, in turns, of two at 10^7 rows. Memory is the
most that a process of its own ever held for our fit. Prints both at 10^5, 10^6 and 10^7
rows, their ratio, the exponent of time in rows, and the time of a staged fit up to 10^6
rows. Writes benchmarks/results/speed/stream.csv.

Then it measures what the cost model of docs/scale.md is made of, at ranks 500 and
2,000: flops per second of ``dsyrk`` and of a product, nanoseconds for a kernel value,
microseconds a row of the first pass, and how many landmarks are kept in each set, for
in few dimensions some repeat each other; and checks it by fits of 50,000 rows. Writes
benchmarks/results/speed/stream_rates.csv. All of it takes about three quarters of an
hour.
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
import pyarrow.parquet as pq
from common import folder, least, options, peak_megabytes, write
from scipy.linalg.blas import dsyrk
from threadpoolctl import threadpool_limits

from forestall import NestedRehearsal, Problem, StagedRehearsal
from forestall.kernels import gram
from forestall.lowrank import Nystrom
from forestall.nested import KernelPolicy
from forestall.scale import Source, survey

CHUNK, ROWS, RANK = 250_000, 4_096, 500
PROBLEM = Problem(
    context=["x1", "x2", "x3", "x4"],
    covariates=["u1", "u2", "u3"],
    actions={"a1": (-2.0, 2.0), "a2": (-2.0, 2.0)},
    outcomes=["y"],
    desired=["y >= 0.5"],
    order=[["x1", "x2", "x3", "x4"], ["u1", "u2", "u3"], ["a1", "a2"], "y"],
)
METHODS = {
    "nested": NestedRehearsal(approximation=Nystrom(rank=RANK)),
    "staged": StagedRehearsal(),
}


@dataclass(frozen=True)
class Size:
    """How many rows, how often they are fitted, and whether by stages, too."""

    rows: int
    repeats: int
    staged: bool = True


SIZES = (Size(10**5, 3), Size(10**6, 2), Size(10**7, 2, staged=False))
QUICK = (Size(10_000, 2), Size(30_000, 1))


def records(n: int, seed: int) -> pa.Table:
    rng = np.random.default_rng(seed)
    x, u = rng.normal(size=(4, n)), rng.normal(size=(3, n))
    u[0] += 0.5 * x[0]
    a = 0.4 * rng.normal(size=(2, n)) + 0.5 * u[:2] + 0.3 * x[1:3]
    y = np.sin(a[0]) + a[1] * x[3] + 0.5 * u[2] * x[0] + 0.3 * rng.normal(size=n)
    return pa.table(dict(zip(PROBLEM.variables, [*x, *u, *a, y], strict=True)))


def written(path: Path, n: int) -> Path:
    with pq.ParquetWriter(path, records(1, 0).schema) as file:
        for k, start in enumerate(range(0, n, CHUNK)):
            file.write_table(records(min(CHUNK, n - start), seed=k))
    return path


class Bare:
    """The yardstick, with the landmarks and the units of a fit."""

    def __init__(self, policy: KernelPolicy) -> None:
        plan = policy.systems.plan
        blocks = (
            policy.schema.context,
            policy.schema.covariates,
            policy.schema.actions,
        )
        self.names = [name for block in blocks for name in block.names]
        self.means = np.concatenate([block.means for block in blocks])
        self.scales = np.concatenate([block.scales for block in blocks])
        self.parts = slice(0, 9), slice(0, 4), slice(4, 7)
        self.landmarks = plan.inner, plan.outer, plan.covariates
        self.sizes = [each.rank for each in self.landmarks]
        inner, outer, on_u = self.sizes
        self.squares = [np.zeros((m, m), order="F") for m in (inner, outer)]
        self.embedded = np.zeros((outer, on_u))
        self.crosses = [np.zeros((inner, 2)), np.zeros(outer)]

    def run(self, path: Path) -> None:
        columns = [*self.names, "y"]
        with pq.ParquetFile(path, pre_buffer=False) as file:
            for batch in file.iter_batches(batch_size=16 * ROWS, columns=columns):
                values = [column.to_numpy() for column in batch.columns]
                z = (np.column_stack(values[:-1]) - self.means) / self.scales
                for i in range(0, len(z), ROWS):
                    self.add(z[i : i + ROWS], values[-1][i : i + ROWS])

    def add(self, z: np.ndarray, y: np.ndarray) -> None:
        rows = [self.rows(z, k) for k in range(3)]
        for total, row in zip(self.squares, rows, strict=False):
            dsyrk(1.0, row.T, beta=1.0, c=total, lower=1, overwrite_c=1)
        self.embedded += rows[1].T @ rows[2]
        good = (y >= 0.5).astype(float)
        self.crosses[0] += rows[0].T @ np.column_stack([good, good])
        self.crosses[1] += rows[1].T @ good

    def rows(self, z: np.ndarray, k: int) -> np.ndarray:
        own = self.landmarks[k]
        v, c = (w / own.kernel.bandwidth for w in (z[:, self.parts[k]], own.centres))
        left = np.column_stack([v, -0.5 * (v * v).sum(axis=1), np.ones(len(v))])
        right = np.column_stack([c, np.ones(len(c)), -0.5 * (c * c).sum(axis=1)])
        out = left @ right.T
        return np.exp(out, out=out)


def alone(path: Path, method: str) -> dict[str, float]:
    """Fit in a process of its own, to know how much memory it takes."""
    told = subprocess.run(
        [sys.executable, __file__, "--fit", method, str(path)],
        check=True,
        capture_output=True,
        text=True,
    )
    return json.loads(told.stdout)


def fit(method: str, path: str) -> None:
    warnings.simplefilter("ignore")
    history = Source.read(path)
    with threadpool_limits(limits=1):
        start, wall = time.process_time(), time.perf_counter()
        METHODS[method].fit(PROBLEM, history)
        told = {
            "seconds": time.process_time() - start,
            "wall": time.perf_counter() - wall,
            "peak_mb": peak_megabytes(),
        }
    print(json.dumps(told))


def fitted(path: Path) -> KernelPolicy:
    with threadpool_limits(limits=1):
        return METHODS["nested"].fit(PROBLEM, Source.read(path))


def bare_seconds(policy: KernelPolicy, path: Path) -> float:
    with threadpool_limits(limits=1):
        start = time.process_time()
        Bare(policy).run(path)
        return time.process_time() - start


def measured(path: Path, size: Size, policy: KernelPolicy) -> dict[str, object]:
    """Measure fits beside the yardstick, in turns, and a staged fit."""
    ours, bare = [], []
    for _ in range(size.repeats):
        bare.append(bare_seconds(policy, path))
        ours.append(alone(path, "nested"))
    staged = alone(path, "staged") if size.staged else None
    best = min(each["seconds"] for each in ours)
    return {
        "rows": size.rows,
        "rank": RANK,
        "repeats": size.repeats,
        "fit_seconds": round(best, 2),
        "fit_wall": round(min(each["wall"] for each in ours), 2),
        "peak_mb": round(max(each["peak_mb"] for each in ours)),
        "bare_seconds": round(min(bare), 2),
        "ratio": round(best / min(bare), 3),
        "staged_seconds": round(staged["seconds"], 2) if staged else "",
        "staged_peak_mb": round(staged["peak_mb"]) if staged else "",
    }


def rates(m: int) -> dict[str, float]:
    """What one core does in the shapes of a fit of rank ``m``."""
    n = max(4_096, 3 * m // 2)
    v, c = (np.random.default_rng(k).normal(size=(s, 6)) for k, s in ((0, n), (1, m)))
    with threadpool_limits(limits=1):
        rows = gram(v, c)
        other = rows[:, ::-1].copy()
        square = least(lambda: dsyrk(1.0, rows.T, lower=1), 5)
        product = least(lambda: rows.T @ other, 5)
        kernel = least(lambda: gram(v, c), 5)
    return {
        "rank": m,
        "dsyrk_gflops": round(n * m**2 / square / 1e9, 1),
        "product_gflops": round(2 * n * m**2 / product / 1e9, 1),
        "kernel_ns": round(1e9 * kernel / (n * m), 2),
    }


def model(rate: dict[str, float]) -> float:
    """Seconds a row of the second pass: two squares, one product, three sets."""
    h, x, u = (rate[name] for name in ("kept_h", "kept_x", "kept_u"))
    squares = (h**2 + x**2) / (1e9 * rate["dsyrk_gflops"])
    product = 2 * x * u / (1e9 * rate["product_gflops"])
    return squares + product + (h + x + u) * 1e-9 * rate["kernel_ns"]


def checked(path: Path, n: int, m: int) -> dict[str, float]:
    """The rates, the landmarks that are kept, what the model says, what a fit takes."""
    method, fitted = NestedRehearsal(approximation=Nystrom(rank=m)), []
    seconds = least(lambda: fitted.append(method.fit(PROBLEM, Source.read(path))), 2)
    plan = fitted[0].systems.plan
    kept = (plan.inner.rank, plan.outer.rank, plan.covariates.rank)
    rate = rates(m) | dict(zip(("kept_h", "kept_x", "kept_u"), kept, strict=True))
    survey_seconds = least(lambda: survey(PROBLEM, Source.read(path)), 2)
    return rate | {
        "survey_us_a_row": round(1e6 * survey_seconds / n, 2),
        "model_us_a_row": round(1e6 * model(rate), 1),
        "model_seconds": round(n * model(rate) + survey_seconds, 2),
        "fit_seconds": round(seconds, 2),
    }


def tell_rates(n: int, ranks: tuple[int, ...], place: Path | None) -> None:
    found = []
    with tempfile.TemporaryDirectory() as home, threadpool_limits(limits=1):
        path = written(Path(home) / "records.parquet", n)
        for m in ranks:
            found.append({"rows": n} | checked(path, n, m))
            print(", ".join(f"{k} {v:g}" for k, v in found[-1].items()), flush=True)
    write("stream_rates", found, place)


def tell_fits(sizes: tuple[Size, ...], place: Path | None) -> None:
    found, policy = [], None
    for size in sizes:
        with tempfile.TemporaryDirectory() as home:
            path = written(Path(home) / "records.parquet", size.rows)
            policy = policy or fitted(path)
            found.append(measured(path, size, policy))
        print(", ".join(f"{k} {v}" for k, v in found[-1].items()), flush=True)
    for name in ("fit_seconds", "bare_seconds", "staged_seconds"):
        print(f"{name} grows as rows to the {exponent(found, name):.3f}")
    # At the end only: a run that was stopped must not leave half a table behind.
    write("stream", found, place)


def exponent(rows: list[dict[str, object]], name: str) -> float:
    known = [row for row in rows if row[name] != ""]
    n, t = (np.log([row[key] for row in known]) for key in ("rows", name))
    return float(np.polyfit(n, t, 1)[0])


def main(asked: argparse.Namespace) -> None:
    warnings.simplefilter("ignore")
    place = folder(asked)
    tell_fits(QUICK if asked.quick else SIZES, place)
    tell_rates(*((10_000, (RANK,)) if asked.quick else (50_000, (RANK, 2_000))), place)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--fit"]:
        fit(*sys.argv[2:])
    else:
        main(options(__doc__).parse_args())
