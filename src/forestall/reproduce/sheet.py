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
