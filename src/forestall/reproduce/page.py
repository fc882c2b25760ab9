"""The page of results: the text of ``page.md``, with the tables put in."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from pathlib import Path

from forestall.bench.table import figure, markdown
from forestall.demo import STUDIED, StudyRow
from forestall.reproduce import (
    ahead,
    differences,
    main_table,
    sensitivity,
    small_tables,
)
from forestall.reproduce.paper import printed
from forestall.reproduce.pictures import LENDING
from forestall.reproduce.plans import found_parts, times
from forestall.reproduce.sheet import read_sheet

TEXT = Path(__file__).with_name("page.md")
MARKER = re.compile(r"^<!-- ([a-z0-9-]+) -->$", re.MULTILINE)
ABSENT = "Not run yet."


def render(folder: Path) -> str:
    """Write the page from the results in a folder.

    What stands between the markers ``<!-- name: begin -->`` and ``<!-- name: end -->``
    follows from the files alone; the rest is the text.

    Args:
        folder: Where the results are, CSV files.
    """
    return MARKER.sub(
        lambda found: _block(folder, found[1]), TEXT.read_text(encoding="utf-8")
    )


def _block(folder: Path, name: str) -> str:
    inside = BLOCKS[name](folder).strip() or ABSENT
    return f"<!-- {name}: begin -->\n\n{inside}\n\n<!-- {name}: end -->"


def told(*names: str) -> Callable[[Path], str]:
    """Say how much was run of some plans."""

    def tell(folder: Path) -> str:
        parts = [part for name in names for part in found_parts(folder, name)]
        return "\n".join(f"* `{part.path.name}`: {part.told}." for part in parts)

    return tell


def main_table_time(folder: Path) -> str:
    """Say how long the main table took, both protocols together."""
    both = ("table1-paper", "table1")
    parts = [part for name in both for part in found_parts(folder, name)]
    if not parts:
        return ""
    text = f"The main table as it is shown, both protocols, took {times(parts)}."
    if all(len(part.record["runs"]) == 1 for part in parts):
        return text
    return f"{text} That adds up all runs, also those that measured some rows anew."


def where(name: str, table: Callable[[Path], str]) -> Callable[[Path], str]:
    """Make a table where there are results for it, and nothing elsewhere."""
    return lambda folder: table(folder) if found_parts(folder, name) else ""


def lending(folder: Path) -> str:
    """The lending story's numbers, the paper's beside them."""
    columns = {"no action": "none", "single estimator": "single"}
    columns["nested estimator"] = "nested"
    heads = ["method", "interest rate", "believed", "true probability", "paper's"]
    rows = []
    for line in read_sheet(folder, LENDING):
        theirs = printed("lending", "applicant", columns.get(line["name"], ""))
        rows.append([line["name"], *map(_given, _cells(line)), figure(theirs.value)])
    if not rows:
        return ""
    return f"{markdown(heads, rows)}\n\n{_lending_said(folder)}"


def _lending_said(folder: Path) -> str:
    """Say what one history shows, and what several do."""
    worth = {
        line["name"]: float(line["success"]) for line in read_sheet(folder, LENDING)
    }
    none, single, nested = (
        worth[name] for name in ("no action", "single estimator", "nested estimator")
    )
    below = "worse than none" if single < none else "no worse than none"
    always = all(row.single < row.nested for row in STUDIED)
    beside = "loses to" if single < nested else "does not lose to"
    return (
        f"On this history the single estimator {beside} the nested one, and its action "
        f"is {below}. Over {STUDIED[0].histories} histories its action is worse than "
        f"none {_often(STUDIED)}; on average it {'always' if always else 'not always'} "
        f"loses to the nested one."
    )


def _often(rows: Sequence[StudyRow]) -> str:
    widths = dict.fromkeys(row.bandwidth for row in rows)
    said = []
    for width in widths:
        shares = [row.below for row in rows if row.bandwidth == width]
        many = f"{min(shares):.0%} to {max(shares):.0%}"
        many = f"{shares[0]:.0%}" if len(set(shares)) == 1 else many
        times_it = "" if width == 1 else f"{width:g} times "
        said.append(f"in {many} of them with kernels of {times_it}the median width")
    return ", and ".join(said)


def _cells(line: dict[str, str]) -> list[str]:
    return [line[name] for name in ("action", "estimate", "success")]


def _given(text: str) -> str:
    return figure(float(text)) if text else "–"


def triangle(folder: Path) -> str:
    """Both probabilities of the triangle, the paper's beside them."""
    lines = read_sheet(folder, "triangle")
    said = [
        f"with the mean {'at the' if line['name'] == 'centroid' else ''} "
        f"{line['name']} {figure(float(line['success']))} (the paper: "
        f"{figure(printed('triangle', line['name'], 'success').value)})"
        for line in lines
    ]
    if not said:
        return ""
    text = " ".join(", ".join(said).split())
    return (
        f"The probability of the triangle is {text}. The paper prints no covariance; "
        f"ours is noise along the base, standard deviations 1.44 and 0.14, the same "
        f"for both."
    )


BLOCKS: dict[str, Callable[[Path], str]] = {
    "table1-time": main_table_time,
    "table1-told": told("table1"),
    "lift-shares": where("table1", main_table.lift_shares),
    "unlooked": ahead.unlooked,
    "ahead": ahead.ahead,
    "successes": where("table1", main_table.successes),
    "refusals": where("table1", main_table.refusals),
    "in-full": main_table.in_full,
    "papers-told": told("table1-paper"),
    "papers-contexts": main_table.spread_of_contexts,
    "papers-protocol": where("table1-paper", main_table.papers_protocol),
    "differences": differences.sentences,
    "scalability-told": told("scalability-1k", "scalability-5k"),
    "scalability": where("scalability-1k", sensitivity.scalability),
    "eta-told": told("eta"),
    "eta": where("eta", sensitivity.eta),
    "regularisation-told": told("regularisation"),
    "regularisation": where("regularisation", sensitivity.regularisation),
    "subsets-told": told("subsets"),
    "subsets": sensitivity.subsets,
    "lending": lending,
    "triangle": triangle,
    "surrogate": small_tables.surrogate,
    "estimator": small_tables.estimator,
    "benchmark": small_tables.benchmark,
    "likeness": small_tables.likeness,
    "attrition": small_tables.attrition,
}
