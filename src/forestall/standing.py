"""How methods stand beside each other on one history, and which to use."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from forestall.nuisance import LinearFit
from forestall.value import Difference, Estimate, difference, refusal

# A smaller difference than this is none that anybody would notice.
NEGLIGIBLE = 0.01

# From the simplest to the most demanding, with what each assumes.
ASSUMES = {
    "NoAction": "nothing",
    "LinearOptimal": "linear, with Gaussian noise",
    "CARE": "linear, Gaussian; box-like region",
    "MICNS": "linear, Gaussian; enough is enough",
    "QWZ23": "linear, Gaussian; coefficients uncertain",
    "NestedRehearsal": "smooth; no covariates between actions",
    "StagedRehearsal": "smooth mechanisms along the order",
    "ConditionalRehearsal": "smooth; contexts are all confounders",
    "GradRehearsal": "flows along the order",
}
OTHERWISE = "see its documentation"


@dataclass(frozen=True, eq=False, kw_only=True)
class Row:
    """What the records say of one method.

    Args:
        label: What the method is called.
        kind: The name of its class.
        assumes: What it takes for granted, in a few words.
        failed: Why it could not be judged at all; empty where it could.
        value: The value of following its verdicts: its action where it says act, the
            natural course elsewhere. Of a method without verdicts: of always acting.
        always: The value of taking its action whatever the verdict.
        gain: How much better following it is than no action, record by record.
        claimed: What the method itself expects of being followed: model-based, and no
            evidence.
        verdicts: Whether it gives verdicts other than ``leave``.
        extrapolated: For which share of the records its action is extrapolation.
        folds: How many times it was fitted.
        fit_seconds: How long a fit took.
        decision_seconds: How long a decision took.
        remarks: What else there is to know.
    """

    label: str
    kind: str
    assumes: str
    failed: str = ""
    value: Estimate | None = None
    always: Estimate | None = None
    gain: Difference | None = None
    claimed: float = np.nan
    verdicts: bool = True
    extrapolated: float = np.nan
    folds: int = 0
    fit_seconds: float = np.nan
    decision_seconds: float = np.nan
    remarks: tuple[str, ...] = ()

    @property
    def refused(self) -> str:
        """Why there is no estimate; empty where there is one."""
        return self.failed or (self.value.refused if self.value else "")

    def to_dict(self) -> dict[str, Any]:
        """Give it as plain numbers and text."""
        blank = refusal("", 0)
        value, always = self.value or blank, self.always or blank
        gain = self.gain or Difference(np.nan, np.nan, np.nan)
        return {
            "method": self.label,
            "assumes": self.assumes,
            "value": value.value,
            "lower": value.lower,
            "upper": value.upper,
            "gain": gain.value,
            "gain_lower": gain.lower,
            "gain_upper": gain.upper,
            "effective": value.effective,
            "shift": value.shift,
            "reached": value.reached,
            "records": value.records,
            "acted": value.acted,
            "always": always.value,
            "always_lower": always.lower,
            "always_upper": always.upper,
            "always_effective": always.effective,
            "claimed": self.claimed,
            "extrapolated": self.extrapolated,
            "folds": self.folds,
            "fit_seconds": self.fit_seconds,
            "decision_seconds": self.decision_seconds,
            "refused": self.refused,
            "remarks": " ".join(self.remarks),
        }


@dataclass(frozen=True, eq=False, kw_only=True)
class Comparison:
    """Every method on one history; prints as a table.

    Args:
        rows: One for each method.
        records: How many records were used.
        left_out: How many were not, because there were too many.
        folds: In how many parts the records were split.
        good: The share of records that came out well.
        linear: Whether the outcomes look linear and Gaussian.
        steps: In how many steps the actions are set.
        backend: The kind of table that :meth:`to_frame` gives.
    """

    rows: tuple[Row, ...]
    records: int
    left_out: int
    folds: int
    good: float
    linear: LinearFit
    steps: int
    backend: Any = field(default=None, repr=False)

    @property
    def advice(self) -> str:
        """Which method to use here, and why, in a sentence or two."""
        return " ".join(text for text in (self._choice(), self._unjudged()) if text)

    @property
    def best(self) -> Row | None:
        """The method with the highest estimate; None where there is none."""
        judged = [row for row in self.rows if not row.refused]
        return max(judged, key=_value_of, default=None)

    @property
    def choice(self) -> Row | None:
        """The simplest of the methods that cannot be told from the best."""
        best = self.best
        if best is None:
            return None
        judged = [row for row in self.rows if not row.refused]
        return next(row for row in sorted(judged, key=_rank) if _ties(row, best))

    def to_dict(self) -> dict[str, Any]:
        """Give everything as plain lists, numbers and text."""
        choice = self.choice
        return {
            "records": self.records,
            "left_out": self.left_out,
            "folds": self.folds,
            "good": self.good,
            "choice": None if choice is None else choice.label,
            "advice": self.advice,
            "methods": [row.to_dict() for row in self.rows],
        }

    def to_frame(self) -> Any:
        """Give the rows as a table of the kind that the history came in."""
        rows = [row.to_dict() for row in self.rows]
        columns = {name: [row[name] for row in rows] for name in rows[0]}
        if self.backend is None:
            return {name: np.array(column) for name, column in columns.items()}
        import narwhals as nw

        return nw.from_dict(columns, backend=self.backend).to_native()

    def __str__(self) -> str:
        """Write the table and the advice in plain lines."""
        heads = ("method", "value", "90 % interval", "effective", "acts", "assumes")
        cells = [heads, *(_cells(row) for row in self.rows)]
        widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
        lines = [
            "  ".join(c.ljust(w) for c, w in zip(row, widths, strict=True)).rstrip()
            for row in cells
        ]
        return "\n".join([*lines, "", self.advice])

    def _choice(self) -> str:
        choice, best = self.choice, self.best
        if choice is None or best is None:
            return "These records cannot tell the methods apart: none could be judged."
        told = _told(choice)
        judged = [row for row in self.rows if not row.refused]
        if choice.kind == "NoAction" and judged == [choice] and len(self.rows) > 1:
            return f"Nothing but no action ({told}) could be judged by these records."
        if choice.kind == "NoAction":
            return (
                f"Leave things as they are ({told}): by these records no method that "
                f"could be judged is credibly better."
            )
        every = len(judged) == len(self.rows)
        why = "it does best" if every else "it does best of what could be judged"
        if choice is not best:
            why = f"it is the simplest that cannot be told from the best ({best.label})"
        if choice.kind == "LinearOptimal":
            sound = "and" if self.linear.fine else "but"
            why += f", {sound} {self.linear}"
        return f"Use {choice.label} ({told}): {why}."

    def _unjudged(self) -> str:
        silent: dict[str, list[str]] = {}
        for row in self.rows:
            if row.value and row.value.refused:
                silent.setdefault(row.value.refused.rstrip("."), []).append(row.label)
        return " ".join(
            f"Nothing can be said of {', '.join(labels)}: {why}."
            for why, labels in silent.items()
        )


def _value_of(row: Row) -> float:
    return row.value.value if row.value else -np.inf


def _rank(row: Row) -> int:
    known = list(ASSUMES)
    return known.index(row.kind) if row.kind in known else len(known)


def _ties(row: Row, best: Row) -> bool:
    """Whether the records cannot tell a method from the best one."""
    if row is best:
        return True
    assert row.value is not None
    assert best.value is not None
    behind = difference(best.value.psi, row.value.psi)
    return not behind.lower > 0.0 or behind.value < NEGLIGIBLE


def _told(row: Row) -> str:
    assert row.value is not None
    v = row.value
    return f"{v.value:.0%} good, 90 % interval {v.lower:.0%} to {v.upper:.0%}"


def _cells(row: Row) -> tuple[str, ...]:
    if row.failed or row.value is None:
        return (row.label, "-", "-", "-", "-", row.assumes)
    v = row.value
    range_ = "-" if v.refused else f"{v.lower:.0%} to {v.upper:.0%}"
    value = "-" if v.refused else f"{v.value:.1%}"
    size = "-" if np.isnan(v.effective) else f"{np.floor(v.effective):.0f}"
    return (row.label, value, range_, size, f"{v.acted:.0%}", row.assumes)
