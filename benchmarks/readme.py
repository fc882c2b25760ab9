"""Put the tables of the results into the README: python benchmarks/readme.py."""

from collections.abc import Callable
from pathlib import Path

from forestall.bench import pooled_markdown, summarise, to_markdown

ROOT = Path(__file__).parent.parent
README = ROOT / "README.md"
RESULTS = ROOT / "benchmarks" / "results"
COLUMNS = ["success", "no action", "oracle", "lift share", "by verdict", "cover"]

TABLES: dict[str, Callable[[], str]] = {
    "results": lambda: to_markdown(summarise(RESULTS / "decisions.csv"), COLUMNS),
    "unseen": lambda: pooled_markdown(summarise(RESULTS / "unseen.csv")),
    "rivals": lambda: to_markdown(summarise(RESULTS / "rivals.csv"), COLUMNS[:-1]),
}


def filled(text: str) -> str:
    """Replace what stands between the markers of each table."""
    for name, table in TABLES.items():
        begin, end = f"<!-- {name}: begin -->", f"<!-- {name}: end -->"
        before, rest = text.split(begin)
        after = rest.split(end)[1]
        text = f"{before}{begin}\n{table().strip()}\n{end}{after}"
    return text


if __name__ == "__main__":
    README.write_text(filled(README.read_text(encoding="utf-8")), encoding="utf-8")
