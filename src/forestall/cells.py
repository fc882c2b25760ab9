"""One column of any table, read into numbers, booleans or text."""

from __future__ import annotations

import math
import numbers
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import date, time, timedelta
from decimal import Decimal
from typing import Any, Literal, NamedTuple

import narwhals as nw
import numpy as np
from jaxtyping import Bool, Float

from forestall.arrays import Array
from forestall.errors import DataError

Kind = Literal["number", "boolean", "text", "category", "mixed"]

LARGEST = 1e100
"""Larger numbers leave no room for squared distances."""


@dataclass(frozen=True, eq=False)
class Cells:
    """One column as it was read.

    Args:
        name: The name of the column.
        kind: What its values are; a ``"category"`` is one by its type in the table.
            A ``"mixed"`` column has booleans among numbers, or values such as dates:
            history must not have one, and of contexts it costs the odd rows only.
        values: float64 for numbers, with NaN for a gap; otherwise objects, with None
            for a gap.
    """

    name: str
    kind: Kind
    values: Array

    @property
    def gaps(self) -> Bool[Array, " n"]:
        """Where there is no value to compute with, infinity included."""
        if self.kind == "number":
            return ~np.isfinite(self.values)
        return np.array([v is None for v in self.values], dtype=bool)

    def numbers(self) -> Float[Array, " n"]:
        """Numbers as they are, booleans as 0 and 1; anything else is an error."""
        self.require_one_kind()
        if self.kind == "number":
            return self.values
        if self.kind == "boolean":
            return np.array([math.nan if v is None else v for v in self.values], float)
        row, value = first_text(self.values)
        raise DataError(
            f"Expected numbers in the column {self.name!r}; got text, first {value!r} "
            f"in row {row}. Convert the column to numbers."
        )

    def readings(self) -> Float[Array, " n"]:
        """Whatever reads as a number, text such as ``"640"`` too; NaN for the rest."""
        if self.kind == "number":
            return self.values
        return np.array([_reading(v) for v in self.values], dtype=float)

    def require_one_kind(self) -> None:
        """Raise where numbers, booleans or text are mixed with what is not."""
        if self.kind != "mixed":
            return
        for row, value in enumerate(self.values):
            if odd := foreign(value):
                raise DataError(
                    f"Expected numbers, booleans or text in the column {self.name!r}; "
                    f"got {odd.what}, first {value!r} in row {row}. {odd.remedy}"
                )
        raise DataError(
            f"Expected one kind of value in the column {self.name!r}; got booleans "
            f"among numbers. Make them all numbers."
        )

    def labels(self) -> list[Any]:
        """The values as categories: whole numbers as int, None for a gap."""
        if self.kind != "number":
            return self.values.tolist()
        return [label(v) for v in self.values.tolist()]

    def keep(self, rows: Bool[Array, " n"]) -> Cells:
        """Keep the rows marked true."""
        return Cells(self.name, self.kind, self.values[rows])


def from_series(name: str, series: nw.Series[Any]) -> Cells:
    """Read a column of a data frame."""
    # numpy has neither decimals nor integers of 128 bits.
    wide = isinstance(series.dtype, nw.Decimal | nw.Int128 | nw.UInt128)
    if series.dtype.is_numeric() and not wide:
        return from_array(name, series.to_numpy())
    if not isinstance(series.dtype, nw.Categorical | nw.Enum):
        return from_objects(name, series.to_list())
    cells = from_objects(name, [_level(v) for v in series.to_list()])
    if cells.kind == "mixed" or cells.gaps.all():
        return cells
    return Cells(name, "category", _objects(cells.labels()))


def _level(value: Any) -> Any:
    # A category of pandas may be anything, such as an interval.
    simple = _is_gap(value) or isinstance(value, str | numbers.Real | np.bool_)
    return value if simple else str(value)


def from_array(name: str, values: Array) -> Cells:
    """Read an array."""
    if values.dtype.kind not in "iuf":
        # ``tolist`` turns a date in nanoseconds into a bare integer.
        is_date = values.dtype.kind in "mM"
        return from_objects(name, values if is_date else values.tolist())
    with np.errstate(over="ignore"):
        return Cells(name, "number", values.astype(np.float64, copy=False))


def from_objects(name: str, values: Iterable[Any]) -> Cells:
    """Read a list of Python values."""
    found = [None if _is_gap(v) else plain(v) for v in values]
    kinds = {_kind(v) for v in found if v is not None}
    # As categories, 1 and True would be one.
    if "mixed" in kinds or {"boolean", "number"} <= kinds:
        return Cells(name, "mixed", _objects(found))
    if kinds <= {"number"}:
        return Cells(name, "number", np.array([_float(v) for v in found], dtype=float))
    kind: Kind = "boolean" if kinds == {"boolean"} else "text"
    return Cells(name, kind, _objects(found))


def _kind(value: Any) -> Kind:
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, numbers.Real | Decimal):
        return "number"
    return "text" if isinstance(value, str) else "mixed"


class Foreign(NamedTuple):
    """What a value is that no table may hold, and what to do about it."""

    what: str
    remedy: str


def foreign(value: Any) -> Foreign | None:
    """Say what a value is that is no number, boolean, text or gap; else None."""
    if value is None or _kind(value) != "mixed":
        return None
    if isinstance(value, date | time | timedelta | np.datetime64 | np.timedelta64):
        remedy = "Use a number, such as the days since a fixed day."
        return Foreign("dates or times", remedy)
    if isinstance(value, complex):
        remedy = "Give the real and imaginary parts as two columns."
        return Foreign("complex numbers", remedy)
    if isinstance(value, bytes):
        remedy = "Save the file as UTF-8, or decode the column."
        return Foreign("bytes instead of text", remedy)
    if isinstance(value, Iterable):
        return Foreign("nested values", "Give each part as a column of its own.")
    remedy = "Convert them to numbers or text."
    return Foreign(f"values of type {type(value).__name__}", remedy)


def _reading(value: Any) -> float:
    readable = isinstance(value, bool) or reads_as_number(value)
    return math.nan if foreign(value) or not readable else _float(value)


def reads_as_number(value: Any) -> bool:
    """Tell whether a value is a number, or text that reads as one."""
    if not isinstance(value, str):
        return not isinstance(value, bool)
    try:
        return "_" not in value and math.isfinite(float(value))
    except ValueError:
        return False


def first_text(values: Array) -> tuple[int, Any]:
    """The first value that is no number, or else the first value."""
    present = [(i, v) for i, v in enumerate(values.tolist()) if v is not None]
    return next((iv for iv in present if not reads_as_number(iv[1])), present[0])


def _is_gap(value: Any) -> bool:
    # By name, because pandas is not imported here.
    if value is None or type(value).__name__ in ("NAType", "NaTType"):
        return True
    if isinstance(value, Decimal):
        return value.is_nan()
    return isinstance(value, float | np.floating) and bool(value != value)


def plain(value: Any) -> Any:
    """Turn a numpy scalar into the Python value it stands for."""
    if isinstance(value, np.generic) and value.dtype.kind not in "mM":
        return value.item()
    return value


def label(value: Any) -> Any:
    """Name a category: whole numbers as int, a gap as None."""
    value = plain(value)
    if not isinstance(value, float):
        return value
    if not math.isfinite(value):
        return None
    return int(value) if value.is_integer() else value


def _float(value: Any) -> float:
    try:
        return math.nan if value is None else float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf


def _objects(values: list[Any]) -> Array:
    array = np.empty(len(values), dtype=object)
    # Lists of one length, assigned at once, would be taken for a matrix.
    for row, value in enumerate(values):
        array[row] = value
    return array


def shown(values: Sequence[Any], most: int = 10) -> str:
    """List values for a message, the first ``most`` of them."""
    text = ", ".join(repr(v) for v in values[:most]) or "none"
    more = len(values) - most
    return f"{text} and {more} more" if more > 0 else text
