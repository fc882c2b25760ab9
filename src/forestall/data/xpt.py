"""SAS transport files, version 5: the format in which public surveys come.

A file is a row of records of 80 bytes: headers, then a description of 140 bytes for
each column, then the rows. Numbers are IBM floating point, 2 to 8 bytes, base 16.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from jaxtyping import Float, UInt8

from forestall.arrays import Array
from forestall.errors import DataError, nearest

RECORD = 80
START = b"HEADER RECORD*******LIBRARY HEADER RECORD!!!!!!!"
NEWER = b"HEADER RECORD*******LIBV8"
MEMBER = b"HEADER RECORD*******MEMBER  HEADER RECORD!!!!!!!"
NAMES = b"HEADER RECORD*******NAMESTR HEADER RECORD!!!!!!!"
ROWS = b"HEADER RECORD*******OBS     HEADER RECORD!!!!!!!"

# A gap is a full stop, an underscore or a capital letter, followed by zeros.
GAPS = np.isin(np.arange(256), [*b"._", *range(ord("A"), ord("Z") + 1)])
BLANK = ord(" ")


@dataclass(frozen=True)
class Column:
    """How one column lies in a row.

    Args:
        name: Its name.
        numeric: Whether it holds numbers; else text.
        start: The place of its first byte.
        length: How many bytes it has.
    """

    name: str
    numeric: bool
    start: int
    length: int


def read_xpt(
    path: str | Path, columns: Sequence[str] | None = None
) -> dict[str, Array]:
    """Read columns of a SAS transport file: float64 with NaN for gaps, or text.

    Args:
        path: The file.
        columns: The names of the columns wanted; by default all.
    """
    path = Path(path)
    data = _bytes(path)
    found = {column.name: column for column in _columns(data, path)}
    for name in columns or ():
        if name not in found:
            raise DataError(
                f"Expected the column {name!r} in {path.name}; got "
                f"{', '.join(found)}.{nearest(name, found)} Is it the right file?"
            )
    rows = _rows(data, list(found.values()), path)
    return {name: _values(rows, found[name]) for name in columns or found}


def _bytes(path: Path) -> bytes:
    try:
        data = path.read_bytes()
    except OSError as error:
        raise DataError(
            f"Expected a SAS transport file; could not read {path.name}: "
            f"{error.strerror} ({path}). Check the path."
        ) from error
    if data.startswith(NEWER):
        raise DataError(
            f"Expected a SAS transport file of version 5; got version 8 in "
            f"{path.name}. Write it with the XPORT engine."
        )
    if not data.startswith(START):
        raise DataError(
            f"Expected a SAS transport file; got {path.name}, which begins with "
            f"{data[:24]!r}. It is another kind of file: get it anew."
        )
    if len(data) % RECORD:
        raise _damaged(path, f"{len(data)} bytes, no multiple of {RECORD}")
    return data


def _damaged(path: Path, got: str) -> DataError:
    return DataError(
        f"Expected a whole SAS transport file; got {path.name} with {got}. It is "
        f"damaged: get it anew."
    )


def _columns(data: bytes, path: Path) -> list[Column]:
    size, first = _described(data, path)
    count = data[first - RECORD + 54 : first - RECORD + 58]
    if not count.isdigit() or not int(count):
        raise _damaged(path, f"{count!r} as the number of its columns")
    described = (data[first + k * size :][:size] for k in range(int(count)))
    return [_column(d, path) for d in described]


def _described(data: bytes, path: Path) -> tuple[int, int]:
    """The size of a column's description, and where the first begins."""
    member, names = data.find(MEMBER), data.find(NAMES)
    if member < 0 or names < 0:
        raise _damaged(path, "no description of its columns")
    size = data[member + 74 : member + 78]
    # VAX has shorter descriptions; what is read here lies in the same place.
    return (int(size) if size.isdigit() else 140), names + RECORD


def _column(described: bytes, path: Path) -> Column:
    if len(described) < 88:
        raise _damaged(path, "a description of its columns that breaks off")
    kind, _, length = np.frombuffer(described[:6], ">i2").tolist()
    name = described[8:16].decode("latin-1").strip()
    start = int.from_bytes(described[84:88], "big")
    if kind not in (1, 2) or not name or length < 1 or (kind == 1 and length > 8):
        raise _damaged(path, f"an unreadable description of the column {name!r}")
    return Column(name, kind == 1, start, length)


def _rows(data: bytes, columns: list[Column], path: Path) -> UInt8[Array, "n w"]:
    header = data.find(ROWS)
    if header < 0:
        raise _damaged(path, "no rows")
    if data.find(MEMBER, header) >= 0:
        raise DataError(
            f"Expected one table in {path.name}; got several. Split the file."
        )
    body = np.frombuffer(data, np.uint8)[header + RECORD :]
    width = max(column.start + column.length for column in columns)
    n = len(body) // width
    rest = body[n * width :]
    if (rest != BLANK).any():
        raise _damaged(path, f"a row that breaks off after row {n}")
    rows = body[: n * width].reshape(n, width)
    return rows[: n - _padding(rows, len(rest))]


def _padding(rows: UInt8[Array, "n w"], rest: int) -> int:
    """Count the blank rows at the end, which only fill the last record."""
    most = (RECORD - 1 - rest) // rows.shape[1]
    last = rows[len(rows) - most :] if most else rows[:0]
    blank = (last == BLANK).all(axis=1)[::-1]
    return int(blank.argmin()) if not blank.all() else len(blank)


def _values(rows: UInt8[Array, "n w"], column: Column) -> Array:
    cells = rows[:, column.start : column.start + column.length]
    if column.numeric:
        return _from_ibm(cells)
    text = np.ascontiguousarray(cells).view(f"S{column.length}").ravel()
    return np.array([v.decode("latin-1").rstrip() for v in text.tolist()], dtype=object)


def _from_ibm(cells: UInt8[Array, "n k"]) -> Float[Array, " n"]:
    whole = np.zeros((len(cells), 8), dtype=np.uint8)
    whole[:, : cells.shape[1]] = cells
    bits = whole.view(">u8").ravel().astype(np.uint64)
    fraction = (bits & np.uint64(2**56 - 1)).astype(np.float64)
    exponent = (whole[:, 0] & 0x7F).astype(np.int32)
    sign = np.where(whole[:, 0] & 0x80, -1.0, 1.0)
    values = sign * np.ldexp(fraction, 4 * (exponent - 64) - 56)
    gap = GAPS[whole[:, 0]] & (whole[:, 1:] == 0).all(axis=1)
    return np.where(gap, np.nan, values)
