"""Put the tables of the results into the README and into pages of docs/.

Run: python benchmarks/readme.py [PAGE ...], e.g. scale.md alone; all unless told.
"""

import csv
import sys
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

from speed.tables import TABLES as OF_SPEED

from forestall.bench import pooled_markdown, summarise, to_markdown

ROOT = Path(__file__).parent.parent
README = ROOT / "README.md"
SCALE, METHODS = ROOT / "docs" / "scale.md", ROOT / "docs" / "methods.md"
RESULTS = ROOT / "benchmarks" / "results"
COLUMNS = ["success", "no action", "oracle", "lift share", "by verdict", "cover"]

TABLES: dict[str, Callable[[], str]] = {
    "results": lambda: to_markdown(summarise(RESULTS / "decisions.csv"), COLUMNS),
    "unseen": lambda: pooled("unseen"),
    "rivals": lambda: to_markdown(summarise(RESULTS / "rivals.csv"), COLUMNS[:-1]),
    "support": lambda: supported(RESULTS / "support.csv"),
}
HONEST = ["lift share", "cover", "width", "bias"]


def supported(path: Path) -> str:
    with path.open(encoding="utf-8") as file:
        row = next(csv.DictReader(file))
    area = row["area"].lstrip("0")
    return (
        f"The support score tells where an estimate is wrong: of {row['estimates']} "
        f"random feasible actions, on all tasks and ten random models, {row['wrong']} "
        f"are misjudged by more than .2, and it finds them with an area under the "
        f"curve of {area} (`python benchmarks/support.py`)."
    )


def pooled(plan: str) -> str:
    return pooled_markdown(summarise(RESULTS / f"{plan}.csv"))


def honest(plan: str) -> str:
    return to_markdown(summarise(RESULTS / f"{plan}.csv"), HONEST)


AT_SCALE: dict[str, Callable[[], str]] = {
    **{name: partial(table, RESULTS / "speed") for name, table in OF_SPEED.items()},
    "histories": lambda: honest("large-histories"),
    "large": lambda: honest("large"),
    "unchosen": lambda: pooled("large-unseen"),
}
OF_PARTS: dict[str, Callable[[], str]] = {
    "ablations": lambda: pooled("ablations"),
    "noise": lambda: pooled("ablations-noise"),
    "wide": lambda: pooled("ablations-wide"),
}
PAGES = {README: TABLES, SCALE: AT_SCALE, METHODS: OF_PARTS}


def filled(text: str, made: Mapping[str, str]) -> str:
    """Replace what stands between the markers of each table."""
    for name, table in made.items():
        begin, end = f"<!-- {name}: begin -->", f"<!-- {name}: end -->"
        before, rest = text.split(begin)
        after = rest.split(end)[1]
        text = f"{before}{begin}\n{table.strip()}\n{end}{after}"
    return text


def fill(page: Path, tables: Mapping[str, Callable[[], str]]) -> None:
    # Made before the page is read: it may be edited while they are.
    made = {name: table() for name, table in tables.items()}
    page.write_text(filled(page.read_text(encoding="utf-8"), made), encoding="utf-8")


if __name__ == "__main__":
    for page, tables in PAGES.items():
        if page.exists() and (page.name in sys.argv[1:] or not sys.argv[1:]):
            fill(page, tables)
