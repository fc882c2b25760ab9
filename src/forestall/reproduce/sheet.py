"""Small results that are no benchmark's, as CSV files."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from forestall.files import write_text

Line = dict[str, str]

QUICK = "-quick"


def write_sheet(path: Path, rows: Sequence[Any]) -> Path:
    """Write dataclasses, or mappings with the same keys, a line each."""
    plain = [row if isinstance(row, dict) else asdict(row) for row in rows]
    text = io.StringIO()
    writer = csv.DictWriter(text, list(plain[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(plain)
    return write_text(path, text.getvalue())


def read_sheet(folder: Path, name: str) -> list[Line]:
    """Read one, as text; nothing where there is no such file."""
    path = folder / f"{name}.csv"
    if not path.exists():
        return []
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def read_either(folder: Path, name: str) -> list[Line]:
    """Read a sheet, or that of the short version where there is no other."""
    return read_sheet(folder, name) or read_sheet(folder, f"{name}{QUICK}")


def is_short(folder: Path, name: str) -> bool:
    """Whether there is a sheet of the short version only."""
    return not read_sheet(folder, name) and bool(read_either(folder, name))
