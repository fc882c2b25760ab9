"""How the cost of a fit and of decisions grows.

Run: python benchmarks/speed/growth.py [--draw]
Measures fits against the number of records, the rank and the number of contexts'
columns, and decisions against the number of records, the rank, the columns and the
number of contexts decided for. Times are of the processor, one BLAS thread, the least
of several; the exponent is that of a line through the logarithms, over all sizes and
over the last two. Prints a Markdown table; writes benchmarks/results/speed/growth.csv
and docs/images/growth.png. Takes a few minutes; ``--draw`` draws what was measured.
"""

from __future__ import annotations

import csv
import sys
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from common import RESULTS, least, write
from threadpoolctl import threadpool_limits

from forestall import Method, NestedRehearsal, Policy, Problem, StagedRehearsal
from forestall.ink import COLOURS, legend, panels
from forestall.lowrank import Nystrom

IMAGE = Path(__file__).parents[2] / "docs" / "images" / "growth.png"
DECIDED = 256
COLOUR = {
    "exact": COLOURS["nested"],
    "Nystrom": COLOURS["single"],
    "staged": COLOURS["region"],
}


@dataclass(frozen=True)
class Series:
    """One cost against one size.

    Args:
        panel: What is varied.
        method: Whose cost it is.
        cost: ``"fit"``, in seconds, or ``"decide"``, in seconds for all contexts.
        sizes: The sizes.
        work: Prepares what is timed, for a size.
        repeats: How often it is measured.
    """

    panel: str
    method: str
    cost: str
    sizes: tuple[int, ...]
    work: Callable[[int], Callable[[], object]]
    repeats: int = 2

    def rows(self) -> Iterator[dict[str, object]]:
        for size in self.sizes:
            seconds = least(self.work(size), self.repeats)
            yield {
                "against": self.panel,
                "method": self.method,
                "cost": self.cost,
                "size": size,
                "seconds": round(seconds, 5),
            }


def problem(d: int) -> Problem:
    names = [f"x{k}" for k in range(d)]
    return Problem(
        context=names,
        covariates=["u"],
        actions={"a": (-2.0, 2.0)},
        outcomes=["y"],
        desired=["y >= 0.5"],
        order=[names, "u", "a", "y"],
    )


def history(n: int, d: int, seed: int = 0) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    x, u = rng.normal(size=(d, n)), rng.normal(size=n)
    a = 0.5 * u + 0.5 * rng.normal(size=n)
    y = np.sin(a + x[0]) + 0.5 * u + 0.3 * rng.normal(size=n)
    return {f"x{k}": x[k] for k in range(d)} | {"u": u, "a": a, "y": y}


def nystrom(rank: int) -> NestedRehearsal:
    return NestedRehearsal(approximation=Nystrom(rank=rank))


def fitting(method: Method, n: int, d: int = 4) -> Callable[[], Policy]:
    asked, records = problem(d), history(n, d)
    return lambda: method.fit(asked, records)


def deciding(
    method: Method, n: int, d: int = 4, contexts: int = DECIDED
) -> Callable[[], object]:
    policy, new = fitting(method, n, d)(), history(contexts, d, seed=1)
    return lambda: policy.recommend(new)


SERIES = (
    Series(
        "records",
        "exact",
        "fit",
        (500, 1_000, 2_000, 4_000),
        lambda n: fitting(NestedRehearsal(), n),
    ),
    Series(
        "records",
        "Nystrom",
        "fit",
        (5_000, 20_000, 80_000),
        lambda n: fitting(nystrom(200), n),
    ),
    Series(
        "records",
        "staged",
        "fit",
        (1_000, 5_000, 25_000),
        lambda n: fitting(StagedRehearsal(), n),
        repeats=1,
    ),
    Series(
        "rank",
        "Nystrom",
        "fit",
        (50, 100, 200, 400, 800),
        lambda m: fitting(nystrom(m), 20_000),
    ),
    Series(
        "columns",
        "Nystrom",
        "fit",
        (2, 4, 8, 16, 32),
        lambda d: fitting(nystrom(200), 10_000, d),
    ),
    Series(
        "records",
        "exact",
        "decide",
        (500, 1_000, 2_000, 4_000),
        lambda n: deciding(NestedRehearsal(), n),
    ),
    Series(
        "records",
        "Nystrom",
        "decide",
        (5_000, 20_000, 80_000),
        lambda n: deciding(nystrom(200), n),
    ),
    Series(
        "rank",
        "Nystrom",
        "decide",
        (50, 100, 200, 400, 800),
        lambda m: deciding(nystrom(m), 5_000),
    ),
    Series(
        "columns",
        "Nystrom",
        "decide",
        (2, 4, 8, 16, 32),
        lambda d: deciding(nystrom(200), 5_000, d),
    ),
    Series(
        "contexts",
        "exact",
        "decide",
        (64, 256, 1_024, 4_096),
        lambda q: deciding(NestedRehearsal(), 1_000, contexts=q),
    ),
    Series(
        "contexts",
        "Nystrom",
        "decide",
        (64, 256, 1_024, 4_096),
        lambda q: deciding(nystrom(200), 5_000, contexts=q),
    ),
    Series(
        "contexts",
        "staged",
        "decide",
        (8, 32, 128),
        lambda q: deciding(StagedRehearsal(), 1_000, contexts=q),
        repeats=1,
    ),
)


@dataclass(frozen=True)
class Line:
    """What was measured of one series."""

    panel: str
    method: str
    cost: str
    sizes: tuple[float, ...]
    seconds: tuple[float, ...]

    def exponent(self, last: int = 0) -> float:
        n, t = np.log(self.sizes[-last:]), np.log(self.seconds[-last:])
        return float(np.polyfit(n, t, 1)[0])

    def cells(self) -> tuple[str, ...]:
        return (
            self.cost,
            self.method,
            self.panel,
            f"{self.sizes[0]:,.0f} to {self.sizes[-1]:,.0f}",
            f"{self.seconds[0]:.3g} to {self.seconds[-1]:.3g}",
            f"{self.exponent():.2f}",
            f"{self.exponent(last=2):.2f}",
        )


def lines() -> list[Line]:
    with (RESULTS / "growth.csv").open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    keys = ("against", "method", "cost")
    found = []
    for key in dict.fromkeys(tuple(row[k] for k in keys) for row in rows):
        own = [row for row in rows if tuple(row[k] for k in keys) == key]
        sizes, seconds = (
            tuple(float(row[k]) for row in own) for k in ("size", "seconds")
        )
        found.append(Line(*key, sizes, seconds))
    return found


def table(found: list[Line]) -> str:
    head = ("cost", "method", "against", "sizes", "seconds", "exponent", "at the end")
    rows = [head, ("---",) * len(head), *(line.cells() for line in found)]
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def draw(found: list[Line]) -> None:
    names = list(dict.fromkeys(line.panel for line in found))
    figure = panels(len(names), width=3.3, height=4.0)
    for axes, name in zip(figure.axes, names, strict=True):
        own = [line for line in found if line.panel == name]
        axes.set(xscale="log", yscale="log", ylim=(5e-3, 60), title=f"against {name}")
        for line in own:
            axes.plot(
                line.sizes,
                line.seconds,
                "o-" if line.cost == "fit" else "s--",
                color=COLOUR[line.method],
                ms=4,
                lw=1.4,
                label=f"{line.cost}, {line.method}: {line.exponent():.2f}",
            )
        ticks = sorted({n for line in own for n in line.sizes})[:: 1 + (len(own) > 2)]
        axes.set_xticks(ticks, [f"{n:,.0f}" for n in ticks], rotation=40)
        axes.minorticks_off()
        legend(axes)
        axes.get_legend().set_bbox_to_anchor((0.5, -0.27))
    figure.axes[0].set_ylabel("seconds of one core")
    IMAGE.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(IMAGE)


def measure() -> None:
    warnings.simplefilter("ignore")
    with threadpool_limits(limits=1):
        write("growth", [row for series in SERIES for row in series.rows()])


if __name__ == "__main__":
    if "--draw" not in sys.argv[1:]:
        measure()
    print(table(lines()))
    draw(lines())
