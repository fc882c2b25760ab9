"""How variables become columns of an array: standardised numbers and indicators."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Bool, Float

from forestall.arrays import Array
from forestall.cells import (
    LARGEST,
    Cells,
    foreign,
    from_objects,
    label,
    plain,
    reads_as_number,
    shown,
)
from forestall.errors import DataError, nearest


class Column(ABC):
    """How one variable becomes columns of an array."""

    name: str

    @property
    @abstractmethod
    def width(self) -> int:
        """The number of array columns."""

    @abstractmethod
    def unreadable(self, cells: Cells) -> Bool[Array, " n"]:
        """Where a cell has no encoding."""

    @abstractmethod
    def encode(self, cells: Cells) -> Float[Array, "n width"]:
        """Encode each cell; an unreadable one as a neutral value."""

    @abstractmethod
    def fault(self, value: Any) -> str:
        """Say what is wrong with an unreadable value."""


@dataclass(frozen=True)
class Numeric(Column):
    """A number in standard units: ``(value - mean) / scale``."""

    name: str
    mean: float
    scale: float

    @staticmethod
    def fit(cells: Cells) -> Numeric:
        """Take mean and standard deviation from the records."""
        values = cells.numbers()
        low, high = float(values.min()), float(values.max())
        # Rounding gives a constant column a tiny spread; it must have none.
        if low == high:
            return Numeric(cells.name, low, 1.0)
        # In units of the range, squares of small numbers do not vanish.
        unit = high - low
        mean = low + unit * float(((values - low) / unit).mean())
        return Numeric(cells.name, mean, unit * float(((values - mean) / unit).std()))

    @property
    def width(self) -> int:
        """One column."""
        return 1

    def unreadable(self, cells: Cells) -> Bool[Array, " n"]:
        """Where there is no number, or one that is too large for any distance."""
        values = cells.readings()
        return ~((np.abs(values) <= LARGEST) & (np.abs(self._z(values)) <= LARGEST))

    def encode(self, cells: Cells) -> Float[Array, "n 1"]:
        """Standardise; an unreadable cell is at the mean."""
        z = np.where(self.unreadable(cells), 0.0, self._z(cells.readings()))
        return z[:, None]

    def fault(self, value: Any) -> str:
        """Say what is wrong with an unreadable value."""
        got = math.nan if value is None else plain(value)
        (read,) = from_objects(self.name, [value]).readings()
        if LARGEST < abs(read) < math.inf:
            return (
                f"Expected a number up to {LARGEST:g} for {self.name!r}; got {got!r}, "
                f"which is too large to be worked with. Correct it."
            )
        if math.isfinite(read):
            return (
                f"Expected a number near those of history for {self.name!r}, "
                f"{self.mean:.4g} give or take {self.scale:.4g}; got {got!r}, which is "
                f"too far from them to be worked with. Correct it."
            )
        return (
            f"Expected a finite number for {self.name!r}; got {got!r}."
            f"{pointed(got) or ' Give its value.'}"
        )

    def _z(self, values: Float[Array, " n"]) -> Float[Array, " n"]:
        with np.errstate(over="ignore", invalid="ignore"):
            return (values - self.mean) / self.scale


@dataclass(frozen=True)
class Categorical(Column):
    """A category as indicators, one for each level that history has seen.

    Indicators are 0 and 1: two different levels are at squared distance 2, as two
    typical records of a standardised number are.
    """

    name: str
    levels: tuple[str | bool | int | float, ...]

    @staticmethod
    def fit(cells: Cells) -> Categorical:
        """Take the levels from the records, sorted."""
        labels = cells.labels()
        levels = sorted(set(labels), key=lambda v: (isinstance(v, str), v))
        if len(levels) > max(20, len(labels) / 2):
            raise DataError(
                f"Expected categories that recur in the column {cells.name!r}; got "
                f"{len(levels)} different values in {len(labels)} records, e.g. "
                f"{shown(levels, 3)}, which looks like an identifier. Leave it out, "
                f"or group its values."
            )
        return Categorical(cells.name, tuple(levels))

    @property
    def width(self) -> int:
        """One column for each level."""
        return len(self.levels)

    def unreadable(self, cells: Cells) -> Bool[Array, " n"]:
        """Where a value is missing or no known level."""
        return self._codes(cells) < 0

    def encode(self, cells: Cells) -> Float[Array, "n width"]:
        """Set the indicator of each value; an unreadable cell is the first level."""
        return np.eye(self.width)[np.maximum(self._codes(cells), 0)]

    def fault(self, value: Any) -> str:
        """Say what is wrong with an unreadable value."""
        return (
            f"Expected a known category for {self.name!r} ({shown(self.levels)}); "
            f"got {self._got(label(value))}"
        )

    def _got(self, value: Any) -> str:
        if value is None:
            return "none. Give its value."
        if odd := foreign(value):
            return f"{odd.what}, {value!r}. {odd.remedy}"
        twin = [k for k in self.levels if _said(k) == _said(value)]
        if twin and type(twin[0]) is not type(value):
            return (
                f"the {_word(value)} {value!r}, not the {_word(twin[0])} {twin[0]!r}. "
                f"Convert it."
            )
        texts = [k for k in self.levels if isinstance(k, str)]
        close = nearest(value, texts) if isinstance(value, str) else ""
        return (
            f"{value!r}, which no record has. Map it to a known one, or add records."
            f"{close}"
        )

    def _codes(self, cells: Cells) -> Array:
        code = {level: k for k, level in enumerate(self.levels)}
        codes = [-1 if foreign(v) else code.get(v, -1) for v in cells.labels()]
        return np.array(codes, dtype=int)


def pointed(value: Any) -> str:
    """Say how decimals are written, where a comma was."""
    text = str(value).replace(",", ".", 1)
    wrong = isinstance(value, str) and text != value and reads_as_number(text)
    return f" Write decimals with a point: {text}." if wrong else ""


def _said(level: Any) -> str:
    return str(level).strip().lower()


def _word(level: Any) -> str:
    if isinstance(level, str):
        return "text"
    return "boolean" if isinstance(level, bool) else "number"


@dataclass(frozen=True)
class Block:
    """The variables of one role, side by side in one array."""

    columns: tuple[Column, ...]

    @property
    def names(self) -> tuple[str, ...]:
        """The variables, in order."""
        return tuple(column.name for column in self.columns)

    @property
    def width(self) -> int:
        """The number of array columns."""
        return sum(column.width for column in self.columns)

    @property
    def slices(self) -> dict[str, slice]:
        """The array columns of each variable."""
        ends = np.cumsum([column.width for column in self.columns], dtype=int).tolist()
        return {
            column.name: slice(end - column.width, end)
            for column, end in zip(self.columns, ends, strict=True)
        }

    @property
    def means(self) -> Float[Array, " width"]:
        """The value in the user's unit that becomes 0; 0 for an indicator."""
        return self._per_column("mean", 0.0)

    @property
    def scales(self) -> Float[Array, " width"]:
        """The length in the user's unit that becomes 1; 1 for an indicator."""
        return self._per_column("scale", 1.0)

    def encode(self, cells: Mapping[str, Cells], n: int) -> Float[Array, "{n} width"]:
        """Encode the cells of ``n`` rows."""
        parts = [column.encode(cells[column.name]) for column in self.columns]
        return np.ascontiguousarray(np.concatenate([np.empty((n, 0)), *parts], axis=1))

    def faults(self, cells: Mapping[str, Cells], n: int) -> tuple[str | None, ...]:
        """Say for each of ``n`` rows what cannot be encoded, or None."""
        found: dict[int, list[str]] = {}
        for column in self.columns:
            values = cells[column.name].values
            for row in np.flatnonzero(column.unreadable(cells[column.name])).tolist():
                found.setdefault(row, []).append(column.fault(values[row]))
        return tuple(" ".join(found[i]) if i in found else None for i in range(n))

    def _per_column(self, field: str, default: float) -> Float[Array, " width"]:
        values = [np.full(c.width, getattr(c, field, default)) for c in self.columns]
        return np.concatenate([np.empty(0), *values])
