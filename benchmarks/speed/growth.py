"""How the cost of a fit and of decisions grows.

Run: python benchmarks/speed/growth.py [--draw] [--quick] [--out FOLDER]
Measures fits against the number of records, the rank, the number of random features and
of contexts' columns, and decisions against these and the number of contexts decided
for. Times are of the processor, one BLAS thread, the least
of two where one takes less than a minute; the exponent is that of a line through the
logarithms, over all sizes and over the last two; the ratio is to the exact method on as
many records, at the largest size that both have. Prints a Markdown table; writes
benchmarks/results/speed/growth.csv and docs/images/growth.png. Takes a few minutes;
``--draw`` only draws what was measured, ``--quick`` only tries the smallest sizes.
"""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from common import RESULTS, folder, least, options, write
from tables import Line, growth, lines
from threadpoolctl import threadpool_limits

from forestall import Method, NestedRehearsal, Policy, Problem, StagedRehearsal
from forestall.ink import COLOURS, legend, panels
from forestall.lowrank import Nystrom, RandomFourier

IMAGE = Path(__file__).parents[2] / "docs" / "images" / "growth.png"
DECIDED, PATIENCE = 256, 60.0
COLOUR = {
    "exact": COLOURS["nested"],
    "Nystrom": COLOURS["single"],
    "RandomFourier": COLOURS["third"],
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
        records: How many records there are, where these are not what is varied.
    """

    panel: str
    method: str
    cost: str
    sizes: tuple[int, ...]
    work: Callable[[int], Callable[[], object]]
    records: int | None = None

    def rows(self, sizes: tuple[int, ...]) -> Iterator[dict[str, object]]:
        for size in sizes:
            times, work = [], self.work(size)
            while len(times) < 2 and sum(times) < PATIENCE:
                times.append(least(work, 1))
            yield {
                "against": self.panel,
                "method": self.method,
                "cost": self.cost,
                "size": size,
                "records": self.records or size,
                "repeats": len(times),
                "seconds": round(min(times), 5),
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


def waves(n_features: int) -> NestedRehearsal:
    return NestedRehearsal(approximation=RandomFourier(n_features=n_features))


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
        (500, 1_000, 2_000, 5_000),
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
        "RandomFourier",
        "fit",
        (5_000, 20_000, 80_000),
        lambda n: fitting(waves(400), n),
    ),
    Series(
        "records",
        "staged",
        "fit",
        (1_000, 5_000, 25_000),
        lambda n: fitting(StagedRehearsal(), n),
    ),
    Series(
        "rank",
        "Nystrom",
        "fit",
        (50, 100, 200, 400, 800),
        lambda m: fitting(nystrom(m), 20_000),
        records=20_000,
    ),
    Series(
        "features",
        "RandomFourier",
        "fit",
        (100, 200, 400, 800),
        lambda k: fitting(waves(k), 20_000),
        records=20_000,
    ),
    Series(
        "columns",
        "Nystrom",
        "fit",
        (2, 4, 8, 16, 32),
        lambda d: fitting(nystrom(200), 10_000, d),
        records=10_000,
    ),
    Series(
        "records",
        "exact",
        "decide",
        (500, 1_000, 2_000, 5_000),
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
        "records",
        "RandomFourier",
        "decide",
        (5_000, 20_000, 80_000),
        lambda n: deciding(waves(400), n),
    ),
    Series(
        "rank",
        "Nystrom",
        "decide",
        (50, 100, 200, 400, 800),
        lambda m: deciding(nystrom(m), 5_000),
        records=5_000,
    ),
    Series(
        "features",
        "RandomFourier",
        "decide",
        (100, 200, 400, 800),
        lambda k: deciding(waves(k), 5_000),
        records=5_000,
    ),
    Series(
        "columns",
        "Nystrom",
        "decide",
        (2, 4, 8, 16, 32),
        lambda d: deciding(nystrom(200), 5_000, d),
        records=5_000,
    ),
    Series(
        "contexts",
        "exact",
        "decide",
        (64, 256, 1_024, 4_096),
        lambda q: deciding(NestedRehearsal(), 1_000, contexts=q),
        records=1_000,
    ),
    Series(
        "contexts",
        "Nystrom",
        "decide",
        (64, 256, 1_024, 4_096),
        lambda q: deciding(nystrom(200), 5_000, contexts=q),
        records=5_000,
    ),
    Series(
        "contexts",
        "staged",
        "decide",
        (8, 64, 128),
        lambda q: deciding(StagedRehearsal(), 1_000, contexts=q),
        records=1_000,
    ),
)


def draw(found: list[Line], image: Path) -> None:
    names = list(dict.fromkeys(line.panel for line in found))
    figure = panels(len(names), width=3.3, height=4.0)
    for axes, name in zip(figure.axes, names, strict=True):
        own = [line for line in found if line.panel == name]
        axes.set(xscale="log", yscale="log", ylim=(2e-3, 60), title=f"against {name}")
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
    image.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(image)


def measure(asked: argparse.Namespace) -> None:
    warnings.simplefilter("ignore")
    found, few = [], 2 if asked.quick else None
    with threadpool_limits(limits=1):
        for series in SERIES:
            found += series.rows(series.sizes[:few])
            print(series.cost, series.method, series.panel, found[-1], flush=True)
    write("growth", found, folder(asked))


def tell(place: Path) -> None:
    print(growth(place))
    draw(lines(place), IMAGE if place == RESULTS else place / IMAGE.name)


if __name__ == "__main__":
    parser = options(__doc__)
    parser.add_argument("--draw", action="store_true", help="measure nothing")
    asked = parser.parse_args()
    if not asked.draw:
        measure(asked)
    if folder(asked):
        tell(folder(asked))
