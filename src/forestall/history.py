"""What makes a table a history: every column of one kind, no gaps, enough records."""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Bool, UInt64

from forestall.arrays import Array
from forestall.cells import LARGEST, Cells, first_text, reads_as_number
from forestall.errors import DataError
from forestall.problem import Problem
from forestall.table import Table

# Sums of 64 bits that a fingerprint consists of.
LANES = 2
# How much of the world writes decimals.
COMMA = re.compile(r"\s*[+-]?\d+,\d+\s*")
WHOLE = re.compile(r"\s*[+-]?\d+\s*")


@dataclass(frozen=True)
class Fingerprint:
    """What tells one history from another, in whatever order and batches it is read.

    Every record is hashed by itself, and the hashes are added up: so the fingerprints
    of the parts of a stream add up to that of the whole. It notices any change that was
    not made to deceive it.

    Args:
        records: The number of records.
        sums: Their hashes, added up.
    """

    records: int = 0
    sums: tuple[int, ...] = (0,) * LANES

    @staticmethod
    def of(cells: Mapping[str, Cells]) -> Fingerprint:
        """Take the fingerprint of complete records in the user's units."""
        n = len(next(iter(cells.values())).values)
        rows = np.zeros((LANES, n), dtype=np.uint64)
        for name, each in cells.items():
            bits = _bits(each)
            for lane in range(LANES):
                rows[lane] += _mixed(bits ^ np.uint64(_hashed(f"{lane} {name}")))
        return Fingerprint(n, tuple(int(_mixed(row).sum()) for row in rows))

    def __add__(self, other: Fingerprint) -> Fingerprint:
        """Join those of two parts of a history."""
        pairs = zip(self.sums, other.sums, strict=True)
        return Fingerprint(
            self.records + other.records, tuple((a + b) % 2**64 for a, b in pairs)
        )

    @property
    def sha256(self) -> str:
        """Write it as 64 hexadecimal digits."""
        return hashlib.sha256(repr((self.records, self.sums)).encode()).hexdigest()


def _bits(cells: Cells) -> UInt64[Array, " n"]:
    """Give 64 bits for each value; a number has the same ones in every kind."""
    if cells.kind == "number":
        # The sum turns minus zero into zero.
        return (cells.values + 0.0).view(np.uint64)
    seen: dict[Any, int] = {v: _label_bits(v) for v in set(cells.values.tolist())}
    bits = (seen[v] for v in cells.values.tolist())
    return np.fromiter(bits, dtype=np.uint64, count=len(cells.values))


def _label_bits(value: Any) -> int:
    if isinstance(value, str):
        return _hashed(value)
    return int(np.float64(value + 0.0).view(np.uint64))


def _hashed(text: str) -> int:
    return int.from_bytes(hashlib.sha256(text.encode("utf-8", "replace")).digest()[:8])


def _mixed(v: UInt64[Array, " n"]) -> UInt64[Array, " n"]:
    """Let every bit of a number depend on all of its bits (splitmix64)."""
    v = (v ^ (v >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    v = (v ^ (v >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return v ^ (v >> np.uint64(31))


def checked_cells(problem: Problem, table: Table) -> dict[str, Cells]:
    """Read the columns of a problem, each of the kind that its role demands."""
    cells = table.select(problem.variables, "the history")
    for name, each in cells.items():
        each.require_one_kind()
        if name in problem.actions:
            each = number(each, "action")
        elif name in problem.outcomes:
            each = number(each, "outcome")
        elif each.kind == "text" and name not in problem.categorical:
            _check_no_numbers_in_text(each)
        if each.kind == "number":
            _check_not_huge(each)
        cells[name] = each
    return cells


def complete_rows(
    problem: Problem, cells: Mapping[str, Cells], n: int
) -> Bool[Array, " {n}"]:
    """Mark the rows without a gap; a gap is an error unless gaps are dropped."""
    gaps = {name: each.gaps for name, each in cells.items()}
    anywhere = np.any(list(gaps.values()), axis=0)
    if problem.missing == "drop" or not anywhere.any():
        return ~anywhere
    counts = (_gap_text(cells[name]) for name in gaps if gaps[name].any())
    raise DataError(
        f"Expected a finite value in every column of the problem; got gaps in "
        f"{int(anywhere.sum())} of {n} rows: {'; '.join(counts)}. Fill them in, or "
        f"leave those rows out with Problem(missing='drop')."
    )


def _gap_text(cells: Cells) -> str:
    infinite = 0
    if cells.kind == "number":
        infinite = int(np.isinf(cells.values).sum())
    counts = {"missing": int(cells.gaps.sum()) - infinite, "infinite": infinite}
    text = " and ".join(f"{k} {what}" for what, k in counts.items() if k)
    return f"{cells.name!r} has {text} (first in row {int(cells.gaps.argmax())})"


def check_enough(
    problem: Problem, cells: Mapping[str, Cells], n: int, dropped: int
) -> None:
    """Check that there are enough records, and that the actions vary in them."""
    after = f" after dropping {dropped} with gaps" if dropped else ""
    if n == 0:
        raise DataError(
            f"Expected historical records; got an empty table{after}. Pass at least "
            f"as many records as there are variables."
        )
    if n < max(2, len(problem.variables)):
        raise DataError(
            f"Expected at least as many records as variables, "
            f"{max(2, len(problem.variables))}; got {n}{after}. Add records."
        )
    for name in problem.actions:
        values = cells[name].values
        if np.all(values == values[0]):
            raise DataError(
                f"Expected an action that varies in the history; got {values[0]:g} in "
                f"all {n} records of {name!r}. Its effect cannot be learned: leave it "
                f"out, or add records with other values."
            )


def number(cells: Cells, role: str) -> Cells:
    """Read an action or an outcome as numbers."""
    if cells.kind == "boolean" and role == "action":
        raise DataError(
            f"Expected a continuous action in the column {cells.name!r}; got booleans. "
            f"Yes-or-no actions are not supported; give the amount that was set."
        )
    check_points(cells)
    return Cells(cells.name, "number", cells.numbers())


def usable(cells: Cells, where: str) -> Cells:
    """Check that every number can be computed with."""
    _check_not_huge(cells)
    if cells.gaps.any():
        row = int(cells.gaps.argmax())
        raise DataError(
            f"Expected finite numbers for {cells.name!r} in {where}; got "
            f"{float(cells.values[row])!r} in row {row}. Give its value."
        )
    return cells


def with_comma(cells: Cells) -> tuple[int, str] | None:
    """Find the first number with a decimal comma, where all are so or whole."""
    if cells.kind != "text":
        return None
    texts = {i: str(v) for i, v in enumerate(cells.values.tolist()) if v is not None}
    if not all(COMMA.fullmatch(v) or WHOLE.fullmatch(v) for v in texts.values()):
        return None
    return next((found for found in texts.items() if COMMA.fullmatch(found[1])), None)


def check_points(cells: Cells, or_else: str = "", *, placed: bool = True) -> None:
    """Raise where numbers are text, because they have commas.

    Args:
        cells: The column, or the different values of it.
        or_else: What else may be done about it.
        placed: Whether the cells stand in rows, and not for the values of many.
    """
    found = with_comma(cells)
    if found is not None:
        row, text = found
        where = f"first {text!r} in row {row}" if placed else f"e.g. {text!r}"
        raise DataError(
            f"Expected numbers with decimal points in the column {cells.name!r}; got "
            f"text with a comma, {where}. Save the table with "
            f"points, and without marks between thousands: e.g. read it by "
            f"pandas.read_csv(path, decimal=',') and write it anew{or_else}."
        )


def _check_not_huge(cells: Cells) -> None:
    huge = np.isfinite(cells.values) & (np.abs(cells.values) > LARGEST)
    if huge.any():
        row = int(huge.argmax())
        raise DataError(
            f"Expected numbers up to {LARGEST:g} in the column {cells.name!r}; got "
            f"{cells.values[row]:g} in row {row}, which is too large to be worked "
            f"with. Correct it, or use a larger unit."
        )


def _check_no_numbers_in_text(cells: Cells) -> None:
    named = f"Problem(categorical=[{cells.name!r}])"
    check_points(cells, f"; if these are categories, say so with {named}")
    counts = Counter(v for v in cells.values.tolist() if v is not None)
    total = counts.total()
    readable = sum(k for value, k in counts.items() if reads_as_number(value))
    if 2 * readable < total:
        return
    row, value = first_text(cells.values)
    example = "numbers" if readable == total else "the rest"
    raise DataError(
        f"Expected numbers or categories in the column {cells.name!r}; got text, of "
        f"which {readable} of {total} values read as numbers. First "
        f"{'value' if readable == total else 'other value'}: {value!r} in row {row}. "
        f"Convert {example} to numbers or gaps, or say that these are categories with "
        f"{named}."
    )
