"""The tables of docs/scale.md, each a function of the results in a folder."""

from __future__ import annotations

import csv
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

Row = dict[str, str]
NOTHING = "–"
# What the predictions are for.
ROWS, RANK, COLUMNS, PIECE = 10**9, 2_000, 10, 262_144
WORKERS, MANY = (1, 16, 128, 1_024), 128


def results(place: Path, name: str) -> list[Row]:
    with (place / f"{name}.csv").open(encoding="utf-8") as file:
        return list(csv.DictReader(file))


def markdown(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def cell(row: Row, name: str, form: str = "") -> str:
    """One value in a form; what was not measured is a dash."""
    text = row.get(name) or NOTHING
    return format(float(text), form) if form and text != NOTHING else text


def power(n: float) -> str:
    """Write a number as a power of ten, e.g. 5 × 10⁴."""
    exponent = math.floor(math.log10(n) + 1e-9)
    raised = str(exponent).translate(str.maketrans("0123456789", "⁰¹²³⁴⁵⁶⁷⁸⁹"))
    factor = f"{n / 10**exponent:.2g}"
    return ("" if factor == "1" else f"{factor} × ") + f"10{raised}"


def duration(seconds: float) -> str:
    if seconds < 100 * 60:
        return f"{seconds / 60:.2g} minutes"
    return f"{seconds / 3600:.3g} hours"


def exact(place: Path) -> str:
    head = (
        "history",
        "records",
        "fit, s",
        "two Choleskys and three Grams, s",
        "ratio",
        "`KernelRidge`, s",
        "ratio",
        "two bare systems / `KernelRidge`",
        "Choleskys' speed / a product's",
    )
    return markdown(head, (_exact(row) for row in results(place, "exact")))


def _exact(row: Row) -> list[str]:
    names = ("lapack_seconds", "ratio", "sklearn_seconds", "ratio_sklearn")
    seconds = [cell(row, name, ".2f") for name in ("fit_seconds", *names)]
    last = [cell(row, name, ".2f") for name in ("systems_sklearn", "cholesky_speed")]
    return [f"`{row['task']}`", cell(row, "n", ",.0f"), *seconds, *last]


def lowrank(place: Path) -> str:
    head = (
        "fit",
        "landmarks",
        "records",
        "seconds",
        "times faster than exact",
        "/ `Nystroem` and `Ridge`",
        "true success",
        "less exact",
    )
    return markdown(head, (_lowrank(row) for row in results(place, "lowrank")))


def _lowrank(row: Row) -> list[str]:
    return [
        row["method"],
        cell(row, "landmarks"),
        cell(row, "n", ",.0f"),
        cell(row, "fit_seconds", ".2f"),
        cell(row, "times_faster"),
        cell(row, "ratio_sklearn"),
        cell(row, "success", ".3f"),
        cell(row, "minus_exact", "+.3f"),
    ]


def decisions(place: Path) -> str:
    head = (
        "contexts",
        "stopped after",
        "a second",
        "a second in memory",
        "time / in memory",
        "memory before",
        "peak memory",
    )
    rows = [row for row in results(place, "decisions_stream") if row.get("rank")]
    if not rows:
        return "Not measured yet."
    return markdown(head, (_decided(row) for row in rows))


def _decided(row: Row) -> list[str]:
    counts = ("contexts", "resumed", "contexts_per_second", "in_memory_per_second")
    return [
        *(cell(row, name, ",.0f") for name in counts),
        cell(row, "ratio_to_memory", ".2f"),
        *(f"{row[name]} MB" for name in ("peak_mb_before", "peak_mb")),
    ]


@dataclass(frozen=True)
class Rates:
    """What one core does at one rank, and how many landmarks are kept."""

    row: Row

    def __getitem__(self, name: str) -> float:
        return float(self.row[name])

    @property
    def kept(self) -> tuple[int, int, int]:
        h, x, u = (int(self[f"kept_{name}"]) for name in "hxu")
        return h, x, u

    def seconds(self, kept: tuple[int, int, int] | None = None) -> float:
        """Seconds a row by the formula, both passes."""
        h, x, u = kept or self.kept
        squares = (h**2 + x**2) / (1e9 * self["dsyrk_gflops"])
        product = 2 * x * u / (1e9 * self["product_gflops"])
        values = (h + x + u) * 1e-9 * self["kernel_ns"]
        return squares + product + values + 1e-6 * self["survey_us_a_row"]


def known_rates(place: Path) -> dict[int, Rates]:
    return {int(row["rank"]): Rates(row) for row in results(place, "stream_rates")}


def rates(place: Path) -> str:
    head = (
        "rank m",
        "h, x, u kept",
        "s, Gflop/s",
        "p, Gflop/s",
        "e, ns",
        "c, µs",
        "formula, µs a row",
    )
    return markdown(head, (_rates(rate) for rate in known_rates(place).values()))


def _rates(rate: Rates) -> list[str]:
    return [
        cell(rate.row, "rank", ",.0f"),
        ", ".join(f"{n:,}" for n in rate.kept),
        cell(rate.row, "dsyrk_gflops", ".1f"),
        cell(rate.row, "product_gflops", ".1f"),
        cell(rate.row, "kernel_ns", ".1f"),
        cell(rate.row, "survey_us_a_row", ".1f"),
        f"{1e6 * rate.seconds():.1f}",
    ]


def overhead(row: Row, rate: Rates) -> float:
    """The factor κ by which a fit takes longer than the formula says."""
    return float(row["fit_seconds"]) / (float(row["rows"]) * rate.seconds())


def fits(place: Path) -> str:
    head = (
        "rows",
        "rank",
        "formula, s",
        "fit, s",
        "κ",
        "bare loop, s",
        "fit / bare loop",
        "peak memory",
        "staged fit, s",
        "its peak memory",
    )
    known = known_rates(place)
    rows = results(place, "stream") + [rate.row for rate in known.values()]
    body = [_fitted(row, known[int(row["rank"])]) for row in rows]
    return f"{markdown(head, body)}\n\n{_growing(results(place, 'stream'))}"


def _fitted(row: Row, rate: Rates) -> list[str]:
    memory = [cell(row, name) for name in ("peak_mb", "staged_peak_mb")]
    own, staged = (NOTHING if m == NOTHING else f"{m} MB" for m in memory)
    return [
        power(float(row["rows"])),
        cell(row, "rank", ",.0f"),
        f"{float(row['rows']) * rate.seconds():.3g}",
        cell(row, "fit_seconds", ".3g"),
        f"{overhead(row, rate):.2f}",
        cell(row, "bare_seconds", ".3g"),
        cell(row, "ratio", ".2f"),
        own,
        cell(row, "staged_seconds", ".3g"),
        staged,
    ]


def _growing(rows: list[Row]) -> str:
    n, t = (np.log([float(r[k]) for r in rows]) for k in ("rows", "fit_seconds"))
    return f"The time of the fit grows as the rows to the {np.polyfit(n, t, 1)[0]:.3f}."


def predicted(place: Path) -> str:
    known = known_rates(place)
    rate, whole = known[RANK], (RANK, RANK, RANK)
    kappas = [overhead(r, known[int(r["rank"])]) for r in results(place, "stream")]
    each = [max(kappas) * rate.seconds(kept) for kept in (rate.kept, whole)]
    head = ("workers of one core", "as measured here", f"h = x = u = {RANK:,}")
    rows = [[f"{w:,}", *(duration(ROWS * s / w) for s in each)] for w in WORKERS]
    text = (
        f"By the formula, {1e6 * rate.seconds():.0f} µs a row and "
        f"{1e6 * rate.seconds(whole):.0f} µs where all landmarks differ, with "
        f"κ = {max(kappas):.2f}, the largest of the fits above from 10⁵ rows on:"
    )
    return f"{text}\n\n{markdown(head, rows)}\n\n{_amounts(rate.kept, whole, each)}"


def _amounts(
    kept: tuple[int, int, int], whole: tuple[int, int, int], each: list[float]
) -> str:
    flops = [power(ROWS * (h**2 + x**2 + 2 * x * u)) for h, x, u in (kept, whole)]
    values = [power(ROWS * sum(sizes)) for sizes in (kept, whole)]
    sums = [8 * (h**2 + x**2 + x * u) for h, x, u in (kept, whole)]
    n_tasks, read = -(-ROWS // PIECE), 8 * COLUMNS * ROWS
    mb, gb = ([s * f for s in sums] for f in (1e-6, 1e-9 * n_tasks / MANY))
    lost = [PIECE * s / 60 for s in each]
    told = (
        f"Flops: {flops[0]} (landmarks that all differ: {flops[1]}), and {values[0]} "
        f"({values[1]}) exponentials.",
        f"Bytes read: at most {read / 1e9:.0f} GB in each of two passes; "
        f"{2 * read / MANY / 1e9:.2f} GB for each of {MANY} workers, which is "
        f"{2 * read / MANY / 1e8:.1f} s at 100 MB/s. The disk does not matter before "
        f"some thousand workers.",
        f"Bytes sent: there are {n_tasks:,} tasks, each with a sum of (h² + x² + x u) "
        f"× 8 = {mb[0]:.0f} MB ({mb[1]:.0f} MB), most of which is added up where it "
        f"was made. If all of it moved, that were {gb[0]:.1f} GB ({gb[1]:.1f} GB) for "
        f"each of {MANY} workers.",
        f"A worker that is lost costs its tasks: at most {PIECE:,} rows of each pass "
        f"that it was at, {lost[0]:.1f} minutes ({lost[1]:.1f}).",
    )
    return "\n".join(f"* {line}" for line in told)


@dataclass(frozen=True)
class Line:
    """What was measured of one cost of a method against one size."""

    panel: str
    method: str
    cost: str
    records: tuple[str, ...]
    sizes: tuple[float, ...]
    seconds: tuple[float, ...]

    def exponent(self, last: int = 0) -> float:
        n, t = np.log(self.sizes[-last:]), np.log(self.seconds[-last:])
        return float(np.polyfit(n, t, 1)[0])

    @property
    def points(self) -> dict[tuple[str, float], float]:
        return dict(
            zip(zip(self.records, self.sizes, strict=True), self.seconds, strict=True)
        )

    def beside(self, exact: Line | None) -> str:
        """The ratio to the exact method, at the largest size that both have."""
        shared = sorted(set(self.points) & set(exact.points)) if exact else []
        if not shared or exact is self:
            return NOTHING
        most = max(shared, key=lambda point: point[1])
        ratio = self.points[most] / exact.points[most]
        return f"{ratio:{',.0f' if ratio >= 10 else '.2g'}} at {most[1]:,.0f}"


def lines(place: Path) -> list[Line]:
    rows, keys = results(place, "growth"), ("against", "method", "cost")
    found = []
    for key in dict.fromkeys(tuple(row[k] for k in keys) for row in rows):
        own = [row for row in rows if tuple(row[k] for k in keys) == key]
        records = tuple(
            row["size"] if key[0] == "records" else row.get("records", key[1])
            for row in own
        )
        sizes, seconds = (
            tuple(float(row[k]) for row in own) for k in ("size", "seconds")
        )
        found.append(Line(*key, records, sizes, seconds))
    return found


def growth(place: Path) -> str:
    found = lines(place)
    exact = {(e.panel, e.cost): e for e in found if e.method == "exact"}
    head = (
        "cost",
        "method",
        "against",
        "sizes",
        "seconds",
        "exponent",
        "at the end",
        "/ exact",
    )
    return markdown(head, (_grown(e, exact.get((e.panel, e.cost))) for e in found))


def _grown(line: Line, exact: Line | None) -> list[str]:
    return [
        line.cost,
        line.method,
        line.panel,
        f"{line.sizes[0]:,.0f} to {line.sizes[-1]:,.0f}",
        f"{line.seconds[0]:.3g} to {line.seconds[-1]:.3g}",
        f"{line.exponent():.2f}",
        f"{line.exponent(last=2):.2f}",
        line.beside(exact),
    ]


TABLES: dict[str, Callable[[Path], str]] = {
    "exact": exact,
    "lowrank": lowrank,
    "decisions": decisions,
    "rates": rates,
    "fits": fits,
    "predicted": predicted,
    "growth": growth,
}
