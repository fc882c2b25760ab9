"""What is counted of one column of a stream; parts add up to the whole."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from jaxtyping import Bool, Float

from forestall.arrays import Array
from forestall.cells import Cells, label, reads_as_number, shown
from forestall.encoding import Categorical, Column, Numeric
from forestall.errors import DataError
from forestall.history import check_points
from forestall.scale.source import Batch, Place

# An indicator for each level: far more of them than this fit no memory.
MOST_LEVELS = 10_000


@dataclass(frozen=True)
class Moments:
    """Count, range, mean and spread of numbers.

    Args:
        n: How many there are.
        low: The smallest.
        high: The largest.
        mean: Their mean.
        m2: The sum of their squared distances from it, in units of the range, in
            which squares of small numbers do not vanish.
    """

    n: int = 0
    low: float = math.inf
    high: float = -math.inf
    mean: float = 0.0
    m2: float = 0.0

    @staticmethod
    def of(values: Float[Array, " n"]) -> Moments:
        """Count finite numbers."""
        if not len(values):
            return Moments()
        low, high = float(values.min()), float(values.max())
        if low == high:
            return Moments(len(values), low, high, low)
        unit = high - low
        mean = low + unit * float(((values - low) / unit).mean())
        m2 = float((((values - mean) / unit) ** 2).sum())
        return Moments(len(values), low, high, mean, m2)

    def __add__(self, other: Moments) -> Moments:
        """Join two sets of numbers, by the formula of Chan, Golub and LeVeque."""
        if not (self.n and other.n):
            return self if self.n else other
        n = self.n + other.n
        low, high = min(self.low, other.low), max(self.high, other.high)
        if low == high:
            return Moments(n, low, high, low)
        gap, unit = other.mean - self.mean, high - low
        m2 = self._m2_in(unit) + other._m2_in(unit)
        m2 += (gap / unit) ** 2 * self.n * other.n / n
        return Moments(n, low, high, self.mean + gap * (other.n / n), m2)

    def numeric(self, name: str) -> Numeric:
        """Standardise by these numbers."""
        if self.low == self.high:
            return Numeric(name, self.low, 1.0)
        scale = (self.high - self.low) * math.sqrt(self.m2 / self.n)
        return Numeric(name, self.mean, scale)

    def _m2_in(self, unit: float) -> float:
        return self.m2 * ((self.high - self.low) / unit) ** 2


@dataclass(frozen=True)
class Gaps:
    """The cells of a column without a value to compute with."""

    missing: int = 0
    infinite: int = 0
    first: Place | None = None

    @staticmethod
    def of(cells: Cells, batch: Batch) -> Gaps:
        """Count the gaps of one batch."""
        gaps = cells.gaps
        if not gaps.any():
            return Gaps()
        is_number = cells.kind == "number"
        infinite = int(np.isinf(cells.values).sum()) if is_number else 0
        first = batch.place(int(gaps.argmax()))
        return Gaps(int(gaps.sum()) - infinite, infinite, first)

    def __add__(self, other: Gaps) -> Gaps:
        """Count both."""
        return Gaps(
            self.missing + other.missing,
            self.infinite + other.infinite,
            _earlier(self.first, other.first),
        )

    def text(self, name: str) -> str:
        """Say how many there are, for a message."""
        counts = {"missing": self.missing, "infinite": self.infinite}
        told = " and ".join(f"{k} {what}" for what, k in counts.items() if k)
        return f"{name!r} has {told} (first in {self.first})"


@dataclass(frozen=True)
class Texts:
    """The cells of a column of text, and how many of them read as numbers."""

    total: int = 0
    readable: int = 0
    first: tuple[Place, Any] | None = None
    other: tuple[Place, Any] | None = None

    @staticmethod
    def of(cells: Cells, batch: Batch) -> Texts:
        """Count the texts of one batch; a column that is no text has none."""
        if cells.kind != "text":
            return Texts()
        values = cells.values.tolist()
        counts = Counter(v for v in values if v is not None)
        if not counts:
            return Texts()
        readable = sum(k for v, k in counts.items() if reads_as_number(v))
        others = (v for v in counts if not reads_as_number(v))
        return Texts(
            counts.total(),
            readable,
            _found(batch, values, next(iter(counts))),
            _found(batch, values, next(others, None)),
        )

    def __add__(self, other: Texts) -> Texts:
        """Count both."""
        return Texts(
            self.total + other.total,
            self.readable + other.readable,
            _earlier(self.first, other.first),
            _earlier(self.other, other.other),
        )

    def check(self, name: str) -> None:
        """Raise where most of the texts read as numbers."""
        if not self.first or 2 * self.readable < self.total:
            return
        place, value = self.other or self.first
        which, rest = (
            ("other value", "the rest") if self.other else ("value", "numbers")
        )
        raise DataError(
            f"Expected numbers or categories in the column {name!r}; got text, of "
            f"which {self.readable} of {self.total} values read as numbers. First "
            f"{which}: {value!r} in {place}. Convert {rest} to numbers or gaps, or say "
            f"that these are categories with Problem(categorical=[{name!r}])."
        )


def _found(batch: Batch, values: list[Any], value: Any) -> tuple[Place, Any] | None:
    return None if value is None else (batch.place(values.index(value)), value)


def _earlier(one: Any, other: Any) -> Any:
    """Take what comes first in the stream; a place is its row number first of all."""
    if one is None or other is None:
        return other if one is None else one
    return min(one, other)


@dataclass(frozen=True)
class Tally:
    """Everything that is counted of one column.

    Args:
        name: The column.
        kind: ``"number"``, ``"boolean"`` or ``"text"``; ``None`` before any value.
        since: Where a value of this kind was first seen.
        gaps: Its gaps, in all rows.
        texts: Its texts, in all rows.
        moments: Its numbers, in complete rows.
        levels: Its categories, in complete rows, and how often each is there.
    """

    name: str
    kind: str | None = None
    since: Place | None = None
    gaps: Gaps = field(default_factory=Gaps)
    texts: Texts = field(default_factory=Texts)
    moments: Moments = field(default_factory=Moments)
    levels: Mapping[Any, int] = field(default_factory=dict)

    @staticmethod
    def of(
        cells: Cells, batch: Batch, keep: Bool[Array, " n"], declared: bool
    ) -> Tally:
        """Count a column of one batch, of which the rows ``keep`` are complete."""
        gaps = Gaps.of(cells, batch)
        if gaps.missing + gaps.infinite == batch.n:
            # A batch of nothing but gaps says nothing of what the column holds.
            return Tally(cells.name, gaps=gaps)
        kept, is_number = cells.keep(keep), cells.kind == "number"
        return Tally(
            cells.name,
            "text" if cells.kind == "category" else cells.kind,
            batch.place(int((~cells.gaps).argmax())),
            gaps,
            Texts.of(cells, batch),
            Moments.of(kept.values) if is_number else Moments(),
            {} if is_number and not declared else _levels(kept),
        )._checked()

    def __add__(self, other: Tally) -> Tally:
        """Count both."""
        if self.kind and other.kind and self.kind != other.kind:
            raise _two_kinds(self, other)
        return Tally(
            self.name,
            self.kind or other.kind,
            _earlier(self.since, other.since),
            self.gaps + other.gaps,
            self.texts + other.texts,
            self.moments + other.moments,
            {
                k: self.levels.get(k, 0) + other.levels.get(k, 0)
                for k in {**self.levels, **other.levels}
            },
        )._checked()

    def column(self, n: int, declared: bool) -> Column:
        """Encode by what was counted in ``n`` records."""
        if self.kind == "number" and not declared:
            return self.moments.numeric(self.name)
        levels = sorted(self.levels, key=lambda v: (isinstance(v, str), v))
        if self.kind == "text" and not declared:
            values = Cells(self.name, "text", np.array(levels, dtype=object))
            named = f"Problem(categorical=[{self.name!r}])"
            hint = f"; if these are categories, say so with {named}"
            check_points(values, hint, placed=False)
        if len(levels) > max(20, n / 2):
            raise self._identifier(f"{len(levels)} different values in {n} records")
        return Categorical(self.name, tuple(levels))

    def _checked(self) -> Tally:
        if len(self.levels) > MOST_LEVELS:
            raise self._identifier(f"more than {MOST_LEVELS} different values")
        return self

    def _identifier(self, got: str) -> DataError:
        levels = sorted(self.levels, key=lambda v: (isinstance(v, str), v))
        return DataError(
            f"Expected categories that recur in the column {self.name!r}; got {got}, "
            f"e.g. {shown(levels, 3)}, which looks like an identifier. Leave it out, "
            f"or group its values."
        )


def _levels(cells: Cells) -> dict[Any, int]:
    if cells.kind != "number":
        return dict(Counter(cells.values.tolist()))
    values, counts = np.unique(cells.values, return_counts=True)
    pairs = zip(values.tolist(), counts.tolist(), strict=True)
    return {label(value): count for value, count in pairs}


def _two_kinds(one: Tally, other: Tally) -> DataError:
    first, second = sorted((one, other), key=lambda tally: tally.since or ())
    return DataError(
        f"Expected one kind of value in the column {one.name!r} of every file; got "
        f"{first.kind}s, first in {first.since}, and {second.kind}s, first in "
        f"{second.since}. Write them all alike."
    )
