"""How often the intervals of decisions hold, task by task, and what others would hold.

Run: python benchmarks/intervals.py [RESULTS.csv] [--first 20]
Prints for each task of a results file the share of 90 % intervals that hold the truth
where the method acts, with its standard error (contexts of one history err together);
the same on the first histories and on the others, which tells how much of it is luck;
and what intervals would hold that were five and ten per cent narrower.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np

from forestall.bench import read_rows
from forestall.bench.results import Row
from forestall.bench.summary import clustered_error

DECISIONS = Path(__file__).parent / "results" / "decisions.csv"
WIDTHS = (1.0, 0.95, 0.9)


def held(rows: list[Row], width: float = 1.0) -> np.ndarray:
    """Whether each interval, so much narrower about its middle, holds the truth."""
    lower, upper, true = np.array([(r.lower, r.upper, r.success) for r in rows]).T
    return np.abs(true - 0.5 * (lower + upper)) <= width * 0.5 * (upper - lower)


def line(task: str, rows: list[Row], first: int) -> str:
    """A row of the table."""
    seeds = np.array([row.seed for row in rows])
    inside = held(rows).astype(float)
    error = clustered_error(inside - inside.mean(), seeds)
    parts = [inside[seeds < first], inside[seeds >= first]]
    split = [f"{part.mean():.3f}" if len(part) else "–" for part in parts]
    narrower = [f"{held(rows, width).mean():.3f}" for width in WIDTHS[1:]]
    cells = (task, f"{inside.mean():.3f} ± {error:.3f}", *split, *narrower)
    return f"| {' | '.join(cells)} |"


def main(asked: argparse.Namespace) -> None:
    """Print the table."""
    first = asked.first
    heads = ("cover", f"first {first}", "others", "5 % narrower", "10 % narrower")
    print(f"| task | {' | '.join(heads)} |\n|---|{'--:|' * len(heads)}")
    rows = [row for row in read_rows(asked.results) if row.method == asked.method]
    acts = [row for row in rows if row.verdict == "act" and not np.isnan(row.lower)]
    for task in dict.fromkeys(row.task for row in acts):
        print(line(task, [row for row in acts if row.task == task], first))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("results", nargs="?", type=Path, default=DECISIONS)
    parser.add_argument("--method", default="staged", help="a label of the plan")
    parser.add_argument("--first", type=int, default=20, help="so many histories")
    main(parser.parse_args())
