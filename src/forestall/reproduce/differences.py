"""Where our numbers differ from the paper's, and why."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from forestall.bench import Row, Summary
from forestall.bench.table import figure
from forestall.reproduce.main_table import (
    NONE,
    OURS,
    PAPERS,
    all_rows,
    summarised,
)
from forestall.reproduce.paper import printed
from forestall.reproduce.plans import TASKS

# Figures in braces: ours by our protocol, and the paper's with a p before their name.
WHY = {
    "lin-syn1": (
        "N(0, 0.1) gives a variance here. The linear rivals come out as printed (CARE "
        "{care}, paper {p_care}). The paper's method does not: {nested} with the plain "
        "median heuristic, printed {p_nested}. The best action lies far from what was "
        "ever done in such a context (with support the oracle is {supported}, without "
        "{oracle}), where a Gaussian kernel knows nothing; the paper tunes its widths "
        "for each dataset and does not print them. No action is {none} over the "
        "contexts, printed {p_none}: a context decides it, from {least} to {most}, and "
        "the paper draws five."
    ),
    "bermuda": (
        "The noise is not printed; we take a standard deviation of 0.21 at every node, "
        "an intercept, and roots uniform over their standardised range. CARE is then "
        "{care}, printed {p_care}, and the oracle {oracle}; no action is {none}, "
        "printed {p_none}. The paper's method is {nested} without tuning, printed "
        "{p_nested}: five actions at once are sparse for one width."
    ),
    "bank": (
        "N(0, s) gives a standard deviation. The paper's method is {nested}, printed "
        "{p_nested}. CARE ({care}, printed {p_care}), MICNS ({micns}, {p_micns}), "
        "QWZ23 ({qwz23}, {p_qwz23}) and Grad-Rh ({grad}, {p_grad}) come out otherwise "
        "than printed. Here all are told the graph, the first two take the unbounded "
        "region as it is, and Grad-Rh keeps its best iterate; how the paper ran them "
        "is not printed."
    ),
    "non-syn1": (
        "N(0, s) gives a standard deviation. **The printed {p_nested} lies above the "
        "oracle of the printed equations, {oracle} over the stated distribution of "
        "contexts**, so no method can reach it there. In single contexts the oracle is "
        "from {lowest} to {highest}; five that happen to be good could give it. The "
        "paper's method is {nested} here, forestall {staged}. The rivals are below "
        "their print as well: Grad-Rh {grad} (printed {p_grad}, above the oracle), "
        "QWZ23 {qwz23} ({p_qwz23}), MICNS {micns} ({p_micns}), CARE {care} ({p_care}). "
        "The outcome is a hill over both actions, and a straight line sends A2 to the "
        "edge of its interval (CARE in {edge} of the contexts), below no action, "
        "{none}. The printed linear ones are not below their no action; what kept them "
        "there we do not know."
    ),
    "non-syn2": (
        "N(0, s) gives a standard deviation, and Pa(Y1) is (X1, U1, U2, A2). U1 comes "
        "between the two actions and moves the second one and the outcome: no single "
        "adjustment set identifies the effect, and the two-stage formula is biased. "
        "The paper's method is {nested}, printed {p_nested}; forestall, which follows "
        "the order, {staged}; the oracle {oracle}. The rivals are below their print, "
        "Grad-Rh {grad} ({p_grad}), QWZ23 {qwz23} ({p_qwz23}), MICNS {micns} "
        "({p_micns}), CARE {care} ({p_care}), and so is no action, {none} ({p_none}). "
        "Linear ones cannot follow the squares and products of these equations; where "
        "their printed lead over no action comes from we do not know. The printed "
        "deviations over five contexts are up to {p_widest}; here no action alone goes "
        "from {least} to {most} with the context."
    ),
    "nhanes": (
        "The generator is fitted anew, from the text; the paper's is not published. No "
        "action is {none} (printed {p_none} ± {p_deviation} over five contexts; here "
        "from {least} to {most}) and the oracle {oracle}, so the printed {p_nested} "
        "lies above what any action reaches here on average. The two outcomes share "
        "parents and nothing else, as the printed graph has it, so they agree less "
        "often than in the survey. QWZ23 {qwz23} (printed {p_qwz23}), MICNS {micns} "
        "({p_micns}) and CARE {care} ({p_care}) are below their print with it; "
        "Grad-Rh, {grad}, is above its own, {p_grad}, and we do not know why (it keeps "
        "its best iterate here). The paper's method is the best in print; here it "
        "is {nested} with the plain median heuristic, behind the linear rivals, and "
        "{auto} with `auto`, which chooses widths from the records. So its widths "
        "matter, and what the paper tuned for this dataset is not printed."
    ),
}
# The interval of A2 in non-syn1 ends at -1 and 1; a solver may stop short of them.
EDGE = 1 - 1e-6
THEIRS = ("none", "qwz23", "micns", "care", "grad", "nested")
METHODS = (OURS, PAPERS, "nested-auto", NONE, "qwz23", "micns", "care", "grad")


def sentences(folder: Path) -> str:
    """Say for each task that was run where ours differ from the paper's, and why."""
    rows = all_rows(folder, "table1")
    told, lines = summarised(rows), []
    for task in TASKS:
        if (task, NONE) not in told:
            continue
        known = {m: told[task, m].success for m in METHODS if (task, m) in told}
        ours = {m: figure(known.get(m, float("nan"))) for m in METHODS}
        theirs = {f"p_{m}": figure(printed("main", task, m).value) for m in THEIRS}
        ours["auto"] = ours["nested-auto"]
        words = {**ours, **theirs, **_yardsticks(told[task, NONE], rows, task)}
        lines.append(f"* `{task}`: {WHY[task].format(**words)}")
    return "\n".join(lines)


def _yardsticks(mean: Summary, rows: Sequence[Row], task: str) -> dict[str, str]:
    """What can be reached on average, and how far single contexts lie apart."""
    here = [row for row in rows if row.task == task]
    told = {
        "oracle": mean.oracle,
        "supported": mean.supported_oracle,
        "least": min(row.no_action for row in here),
        "most": max(row.no_action for row in here),
        "lowest": min(row.oracle for row in here),
        "highest": max(row.oracle for row in here),
        "p_deviation": printed("main", task, NONE).spread,
        "p_widest": max(printed("main", task, m).spread for m in THEIRS),
    }
    words = {name: figure(value) for name, value in told.items()}
    return {**words, "edge": _at_the_edge(here)}


def _at_the_edge(rows: Sequence[Row]) -> str:
    """How often CARE sets A2 to an end of its interval, where there is an A2."""
    plans = [json.loads(row.actions or "{}") for row in rows if row.method == "care"]
    set_to = [abs(plan["A2"]) for plan in plans if "A2" in plan]
    return f"{sum(v >= EDGE for v in set_to) / len(set_to):.0%}" if set_to else "–"
