"""How the cost of a fit and of decisions grows.

Run: python benchmarks/speed/growth.py
Measures fits against the number of records, the rank and the number of contexts'
columns, and decisions against the number of records, the rank, the columns and the
number of contexts decided for. Times are of the processor, one BLAS thread, the least
of several; the exponent is that of a line through the logarithms, over all sizes and
over the last two. Prints a Markdown table; writes benchmarks/results/speed/growth.csv
and docs/images/growth.png. Takes a few minutes.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from common import least, write
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


def exponent(sizes: list[float], seconds: list[float]) -> float:
    return float(np.polyfit(np.log(sizes), np.log(seconds), 1)[0])


def table(found: dict[Series, list[dict[str, object]]]) -> str:
    lines = [
        "| cost | method | against | sizes | seconds | exponent | at the end |",
        "|---|---|---|---|---|---|---|",
    ]
    for series, rows in found.items():
        n, t = ([float(row[k]) for row in rows] for k in ("size", "seconds"))
        lines.append(
            f"| {series.cost} | {series.method} | {series.panel} "
            f"| {series.sizes[0]:,} to {series.sizes[-1]:,} | {t[0]:.3g} to {t[-1]:.3g} "
            f"| {exponent(n, t):.2f} | {exponent(n[-2:], t[-2:]):.2f} |"
        )
    return "\n".join(lines)


def draw(found: dict[Series, list[dict[str, object]]]) -> None:
    names = list(dict.fromkeys(series.panel for series in found))
    figure = panels(len(names), width=3.3, height=3.8)
    for axes, name in zip(figure.axes, names, strict=True):
        for series, rows in found.items():
            if series.panel == name:
                n, t = ([float(row[k]) for row in rows] for k in ("size", "seconds"))
                axes.loglog(
                    n,
                    t,
                    "o-" if series.cost == "fit" else "s--",
                    color=COLOUR[series.method],
                    ms=4,
                    lw=1.4,
                    label=f"{series.cost}, {series.method}: {exponent(n, t):.2f}",
                )
        axes.set(xlabel=name, title=f"against {name}")
        legend(axes)
    figure.axes[0].set_ylabel("seconds of one core")
    IMAGE.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(IMAGE)


def main() -> None:
    warnings.simplefilter("ignore")
    with threadpool_limits(limits=1):
        found = {series: list(series.rows()) for series in SERIES}
    print(table(found))
    write("growth", [row for rows in found.values() for row in rows])
    draw(found)


if __name__ == "__main__":
    main()
