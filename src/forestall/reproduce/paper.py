"""The numbers that the paper prints, typed in, to be set beside ours."""

from __future__ import annotations

import csv
import math
from dataclasses import dataclass
from functools import cache
from pathlib import Path

FILE = Path(__file__).with_name("paper.csv")


@dataclass(frozen=True)
class Printed:
    """One number of the paper.

    Args:
        value: The number.
        spread: The standard deviation beside it; NaN where none is printed.
    """

    value: float
    spread: float = math.nan


NOTHING = Printed(math.nan)


@cache
def numbers() -> dict[tuple[str, str, str], Printed]:
    """Read them all, by table, row and column."""
    with FILE.open(encoding="utf-8", newline="") as file:
        return {
            (cell["table"], cell["row"], cell["column"]): Printed(
                float(cell["value"]), float(cell["spread"] or "nan")
            )
            for cell in csv.DictReader(file)
        }


def printed(table: str, row: str, column: str) -> Printed:
    """Look one up; without a number where the paper has none.

    Example:
        >>> printed("main", "bank", "nested").value
        0.82
    """
    return numbers().get((table, row, column), NOTHING)
