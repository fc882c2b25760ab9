"""A problem file to begin with: roles from the user, the rest from the records."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from forestall.cells import Cells, foreign, shown
from forestall.errors import DataError, SpecError, nearest
from forestall.history import with_comma
from forestall.identify import Tiers
from forestall.table import Table

LEVELS = (0.01, 0.1, 0.5, 0.9, 0.99)
# Whole numbers of so many different values may be codes.
FEW, OFTEN = 12, 5


@dataclass(frozen=True)
class Summary:
    """What one column of a history holds.

    Args:
        name: The column.
        kind: What its values are.
        gaps: How many of them are missing.
        distinct: How many of them differ.
        quantiles: The 1, 10, 50, 90 and 99 % quantiles of numbers; else empty.
        whole: Whether they are whole numbers.
        n: The number of rows.
        comma: The first of them, where they are numbers with decimal commas.
    """

    name: str
    kind: str
    gaps: int
    distinct: int
    quantiles: tuple[float, ...]
    whole: bool
    n: int
    comma: str | None = None

    @classmethod
    def of(cls, cells: Cells) -> Summary:
        """Look at one column."""
        there = cells.keep(~cells.gaps)
        numeric = there.kind in ("number", "boolean") and len(there.values) > 0
        values = there.numbers() if numeric else np.empty(0)
        with np.errstate(over="ignore", invalid="ignore"):
            ends = np.quantile(values, LEVELS).tolist() if numeric else []
        return cls(
            cells.name,
            _called(there),
            int(cells.gaps.sum()),
            len(set(map(repr, there.values.tolist()))),
            tuple(ends),
            there.kind == "number" and bool(np.all(values == np.round(values))),
            len(cells.gaps),
            (with_comma(there) or (0, None))[1],
        )

    @property
    def coded(self) -> bool:
        """Whether these numbers may be codes of categories."""
        few = 2 < self.distinct <= FEW and OFTEN * self.distinct <= self.n
        return self.whole and few

    def __str__(self) -> str:
        """Say it in a few words."""
        gaps = f", {self.gaps} missing" if self.gaps else ""
        if self.kind != "number" or not self.quantiles:
            return f"{self.kind}, {self.distinct} different{gaps}"
        low, _, middle, _, high = map(figure, self.quantiles)
        return f"number, mostly {low} to {high}, median {middle}{gaps}"

    @property
    def spread(self) -> str:
        """Say where its numbers lie, to choose a bound by."""
        if not self.quantiles:
            return "no numbers"
        _, low, middle, high, _ = map(figure, self.quantiles)
        return (
            f"10 % of the records are below {low}, half below {middle}, 90 % below "
            f"{high}"
        )

    def interval(self) -> tuple[float, float]:
        """Propose where an action may be set: where 98 % of the records have it."""
        self.require_amounts()
        low, high = self.quantiles[0], self.quantiles[-1]
        if not (math.isfinite(low) and math.isfinite(high)) or not low < high:
            raise DataError(
                f"Expected an action that varies in the column {self.name!r}; got "
                f"{figure(low)} in nearly all records. Say where it may be set, e.g. "
                f"--interval {self.name}=0..1, or leave it out."
            )
        return rounded(low, high)

    def require_amounts(self) -> None:
        """Raise where these cannot be the values of an action."""
        self.require_points()
        if self.kind != "number" or not self.quantiles:
            raise DataError(
                f"Expected numbers in the column {self.name!r}, because it is an "
                f"action; got {self.kind}. Give the amount that was set, as numbers."
            )

    def require_points(self) -> None:
        """Raise where numbers are text, because they have decimal commas."""
        if self.comma is not None:
            raise DataError(
                f"Expected numbers with decimal points in the column {self.name!r}; "
                f"got text such as {self.comma!r}. Save the table with points, e.g. "
                f"read it by pandas.read_csv(path, decimal=',') and write it anew; if "
                f"these are categories, say so with --categorical."
            )


def _called(cells: Cells) -> str:
    """Say what the values of a column are."""
    if cells.kind != "mixed":
        return cells.kind
    odd = next((odd for v in cells.values if (odd := foreign(v))), None)
    return odd.what if odd else "booleans among numbers"


def figure(value: float) -> str:
    """Write a number short."""
    return f"{value:.4g}"


def rounded(low: float, high: float) -> tuple[float, float]:
    """Round two ends to a hundredth of the power of ten that their distance has.

    Example:
        >>> rounded(0.02134, 0.97866)
        (0.02, 0.98)
        >>> rounded(-1234.5, 8765.4)
        (-1200.0, 8800.0)
    """
    width = high - low
    if not (math.isfinite(width) and width > 0.0):
        return low, high
    digits = 1 - math.floor(math.log10(width))
    ends = round(low, digits) + 0.0, round(high, digits) + 0.0
    return ends if ends[0] < ends[1] else (low, high)


@dataclass(frozen=True, eq=False)
class Records:
    """A history, as far as writing a question needs it.

    Args:
        table: The records.
        summaries: What each column holds.
    """

    table: Table
    summaries: Mapping[str, Summary]

    @classmethod
    def read(cls, history: Any) -> Records:
        """Look at every column."""
        table = Table.read(history)
        if table.n == 0:
            raise DataError(
                "Expected historical records; got a table without rows. Export the "
                "records themselves, with their names in the first line."
            )
        return cls(table, {k: Summary.of(table.cells(k)) for k in table.names})

    def known(self, names: Sequence[str], role: str) -> tuple[str, ...]:
        """Check that there are such columns."""
        for name in names:
            if name not in self.summaries:
                raise DataError(
                    f"Expected a column of the history for {role}; got {name!r}. "
                    f"{self.listed()}{nearest(name, self.summaries)}"
                )
        return tuple(names)

    def listed(self) -> str:
        """List the columns, for a message."""
        each = [f"{name!r} ({told})" for name, told in self.summaries.items()]
        return f"The columns are: {'; '.join(each)}."


@dataclass(frozen=True, kw_only=True)
class Draft:
    """A question in the making.

    Args:
        context: What is known before the decision.
        covariates: What is recorded, but not known then.
        actions: What can be set.
        outcomes: What should come out well.
        desired: What is desired of it.
        intervals: Feasible intervals, where they are given.
        order: What precedes what, as far as it is given.
        categorical: Numbers that are codes.
    """

    context: tuple[str, ...] = ()
    covariates: tuple[str, ...] = ()
    actions: tuple[str, ...] = ()
    outcomes: tuple[str, ...] = ()
    desired: tuple[str, ...] = ()
    intervals: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    order: Tiers = ()
    categorical: tuple[str, ...] = ()

    @property
    def used(self) -> tuple[str, ...]:
        """Every column with a role."""
        return (*self.context, *self.covariates, *self.actions, *self.outcomes)

    def absent(self) -> list[str]:
        """Name the options that are missing."""
        given = {
            "--context": self.context,
            "--action": self.actions,
            "--outcome": self.outcomes,
            "--desired": self.desired,
        }
        return [option for option, value in given.items() if not value]

    def fields(self, records: Records) -> dict[str, Any]:
        """Fill in what the records can tell; the fields of a problem file."""
        told = records.summaries
        for role in ("context", "covariates", "actions", "outcomes"):
            records.known(getattr(self, role), role)
        for name in self.used:
            if name not in self.categorical:
                told[name].require_points()
        for name in self.intervals:
            if name not in self.actions:
                raise SpecError(
                    f"Expected --interval for an action ({shown(self.actions)}); got "
                    f"{name!r}.{nearest(name, self.actions)}"
                )
        gaps = any(told[name].gaps for name in self.used)
        given = {
            "context": list(self.context),
            "covariates": list(self.covariates),
            "outcomes": list(self.outcomes),
            "desired": list(self.desired),
            "order": [list(tier) for tier in self._whole_order()],
            "categorical": list(self.categorical),
            "missing": "drop" if gaps else None,
            "actions": {
                name: list(self.intervals.get(name) or told[name].interval())
                for name in self.actions
            },
        }
        return {k: v for k, v in given.items() if v}

    def _whole_order(self) -> Tiers:
        """Put what precedes every action by its role first, what follows last."""
        if not self.order and not self.covariates:
            return ()
        placed = {name for tier in self.order for name in tier}
        lost = [v for v in (*self.covariates, *self.actions) if v not in placed]
        if lost:
            raise SpecError(self._unordered(lost))
        first = tuple(v for v in self.context if v not in placed)
        last = tuple(v for v in self.outcomes if v not in placed)
        return tuple(tier for tier in (first, *self.order, last) if tier)

    def _unordered(self, lost: list[str]) -> str:
        example = f"{', '.join(self.covariates)} < {', '.join(self.actions)}"
        return (
            f"Expected --order, which says what precedes the actions and what follows "
            f"from them, because there are covariates; not placed: {', '.join(lost)}. "
            f"Adjusting for one that the action influences hides part of its effect, "
            f"so this is not guessed. If all covariates are settled before the actions "
            f"are: --order '{example}'."
        )


def read_names(values: Sequence[str], columns: Sequence[str]) -> tuple[str, ...]:
    """Read names, several with commas between them; a column may have one in its own.

    Example:
        >>> read_names(["a, b", "c"], ["a", "b", "c"])
        ('a', 'b', 'c')
    """
    found: list[str] = []
    for value in values:
        whole = value in columns
        parts = [value] if whole else [part.strip() for part in value.split(",")]
        found += [part for part in parts if part and part not in found]
    return tuple(found)


def read_interval(text: str) -> tuple[str, tuple[float, float]]:
    """Read where an action may be set.

    Example:
        >>> read_interval("rate=0..1")
        ('rate', (0.0, 1.0))
    """
    name, _, ends = text.rpartition("=")
    try:
        low, high = (float(end) for end in ends.split(".."))
    except ValueError:
        raise SpecError(
            f"Expected --interval as NAME=LOWEST..HIGHEST, e.g. rate=0..1; got "
            f"{text!r}."
        ) from None
    return name.strip(), (low, high)


def read_desired(values: Sequence[str]) -> tuple[str, ...]:
    """Read constraints, several with ``and`` between them.

    Example:
        >>> read_desired(["approved >= 1 and 0.1 <= roi <= 0.9"])
        ('approved >= 1', '0.1 <= roi <= 0.9')
    """
    # A name in backticks may have the word in it.
    word = re.compile(r"\s+and\s+(?=(?:[^`]*`[^`]*`)*[^`]*\Z)", re.IGNORECASE)
    parts = (part.strip() for value in values for part in word.split(value))
    return tuple(part for part in parts if part)


def read_order(text: str, columns: Sequence[str]) -> Tiers:
    """Read what precedes what.

    Example:
        >>> read_order("score, age < stability < rate", [])
        (('score', 'age'), ('stability',), ('rate',))
    """
    tiers = (read_names([part], columns) for part in text.split("<"))
    return tuple(tier for tier in tiers if tier)


def coded(draft: Draft, records: Records) -> tuple[str, ...]:
    """Name the contexts and covariates whose numbers may be codes."""
    asked = (*draft.context, *draft.covariates)
    told = records.summaries
    return tuple(v for v in asked if v not in draft.categorical and told[v].coded)
