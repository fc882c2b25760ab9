"""Tables in and out: CSV, Parquet and JSON Lines; files, standard input and output."""

from __future__ import annotations

import glob
import io
import json
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from forestall.errors import DataError, SpecError
from forestall.files import replacing

if TYPE_CHECKING:
    import pyarrow as pa

DASH = "-"
FORMATS = ("csv", "parquet", "jsonl")
SUFFIXES = {
    ".csv": "csv",
    ".parquet": "parquet",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
}


def check_format(name: str) -> None:
    """Check what a user calls a format."""
    if name not in FORMATS:
        raise SpecError(
            f"Expected --format as one of {', '.join(FORMATS)}; got {name!r}."
        )


def format_of(out: Path) -> str:
    """Tell the format of a file to write by its suffix."""
    if out.suffix.lower() not in SUFFIXES:
        raise DataError(
            f"Expected a file to write that ends in {', '.join(SUFFIXES)}, or a folder "
            f"without any suffix; got {str(out)!r}. Name another."
        )
    return SUFFIXES[out.suffix.lower()]


def check_distinct(out: Path | None, *inputs: Path) -> None:
    """Check that nothing is overwritten that is read."""
    if out is None or not out.exists():
        return
    if any(_reads(path, out) for path in inputs):
        raise DataError(
            f"Expected another file to write than those that are read; got "
            f"{str(out)!r} for both. Name another with --out."
        )


def _reads(path: Path, out: Path) -> bool:
    """Tell whether what is read at a path, a folder or a pattern includes a file."""
    from forestall.table import READERS

    if path.is_dir():
        inside = out.resolve().is_relative_to(path.resolve())
        return inside and out.suffix.lower() in READERS
    if path.exists():
        return out.samefile(path)
    return any(out.samefile(each) for each in glob.glob(str(path), recursive=True))


def read(path: Path, format_: str) -> Any:
    """Read a table: a file by its suffix, or standard input in the format given."""
    if str(path) == DASH:
        return _from_bytes(_standard_input(), format_, "standard input")
    suffix = path.suffix.lower()
    if is_lines(path):
        return read_lines(path.read_bytes(), str(path))
    from forestall.table import READERS, read_table

    known = dict.fromkeys([*READERS, *SUFFIXES])
    if suffix not in known and (suffix or path.is_file()) and not path.is_dir():
        raise DataError(
            f"Expected the path of a {', '.join(known)} file; got {str(path)!r}. "
            f"Convert it, or pipe it in with '-' and --format {'|'.join(FORMATS)}."
        )
    return read_table(path)


def is_lines(path: Path) -> bool:
    """Tell JSON Lines by the suffix of a file."""
    return SUFFIXES.get(path.suffix.lower()) == "jsonl"


def _standard_input() -> bytes:
    data = sys.stdin.buffer.read()
    if not data.strip():
        raise DataError(
            "Expected a table on standard input; got nothing. Pipe one in, or name a "
            "file in the place of '-'."
        )
    return data


def _from_bytes(data: bytes, format_: str, name: str) -> Any:
    if format_ == "jsonl":
        return read_lines(data, name)
    import pyarrow as pa
    from pyarrow import csv, parquet

    try:
        if format_ == "parquet":
            return parquet.read_table(pa.BufferReader(data))
        gaps = csv.ConvertOptions(
            strings_can_be_null=True, quoted_strings_can_be_null=False
        )
        table = csv.read_csv(io.BytesIO(data), convert_options=gaps)
        # Names that are no UTF-8 raise when they are first asked for.
        table.column_names  # noqa: B018
        return table
    except (OSError, ValueError, pa.ArrowException) as error:
        raise DataError(
            f"Expected a readable {format_} table on {name}; got what cannot be read: "
            f"{error}. Say what it is with --format {'|'.join(FORMATS)}."
        ) from error


def read_lines(data: bytes, name: str) -> dict[str, list[Any]]:
    """Read JSON Lines, an object in each; what one of them lacks is a gap."""
    rows = [
        _object(line, k, name)
        for k, line in enumerate(data.split(b"\n"), start=1)
        if line.strip()
    ]
    if not rows:
        raise DataError(
            f"Expected an object in each line of {name!r}; got no lines. Write one for "
            f"each row."
        )
    names = dict.fromkeys(key for row in rows for key in row)
    return {key: [row.get(key) for row in rows] for key in names}


def _object(line: bytes, k: int, name: str) -> dict[str, Any]:
    try:
        found = json.loads(line.decode("utf-8-sig" if k == 1 else "utf-8"))
    except (ValueError, RecursionError) as error:
        found = str(error)
    if not isinstance(found, dict):
        raise DataError(
            f"Expected a JSON object in each line of {name!r}, such as "
            f'{{"x": 0.3}}; got something else in line {k}: {str(found)[:80]}.'
        )
    return found


def columns_of(table: Any, names: Sequence[str]) -> dict[str, Any]:
    """Take the columns that are to be kept, as columns of Arrow."""
    import pyarrow as pa

    known = list(table) if isinstance(table, dict) else table.column_names
    for name in names:
        if name not in known:
            raise DataError(
                f"Expected the column {name!r} of --keep in the contexts; got "
                f"{', '.join(map(repr, known))}."
            )
    if not isinstance(table, dict):
        return {name: table[name] for name in names}
    found = {}
    for name in names:
        try:
            found[name] = pa.array(table[name])
        except (pa.ArrowException, OverflowError):
            found[name] = pa.array([json.dumps(v) for v in table[name]])
    return found


def without_nan(table: pa.Table) -> pa.Table:
    """Leave empty what is no number: nobody reads ``nan`` as a gap."""
    import pyarrow as pa
    import pyarrow.compute as pc

    for k, column in enumerate(table.columns):
        if pa.types.is_floating(column.type):
            gap = pa.scalar(None, column.type)
            column = pc.if_else(pc.is_finite(column), column, gap)
            table = table.set_column(k, table.column_names[k], column)
    return table


def write(tables: Iterable[pa.Table], out: Path, format_: str) -> None:
    """Write tables, one under the other, to a file or to standard output."""
    parts = (without_nan(table) for table in tables)
    if str(out) != DASH:
        with replacing(out) as file:
            WRITERS[format_](parts, file)
        return
    # Columnar formats seek in what they write.
    held = io.BytesIO()
    WRITERS[format_](parts, held)
    sys.stdout.flush()
    sys.stdout.buffer.write(held.getvalue())
    sys.stdout.buffer.flush()


def _write_csv(tables: Iterator[pa.Table], file: Any) -> None:
    from pyarrow import csv

    _write_with(csv.CSVWriter, tables, file)


def _write_parquet(tables: Iterator[pa.Table], file: Any) -> None:
    from pyarrow import parquet

    _write_with(parquet.ParquetWriter, tables, file)


def _write_with(
    writer_of: Callable[..., Any], tables: Iterator[pa.Table], file: Any
) -> None:
    """Write what follows with the columns of what comes first."""
    first = next(tables)
    with writer_of(file, first.schema) as writer:
        writer.write_table(first)
        for table in tables:
            writer.write_table(table.cast(first.schema))


def _write_lines(tables: Iterator[pa.Table], file: Any) -> None:
    for table in tables:
        for row in table.to_pylist():
            text = json.dumps(row, ensure_ascii=False, default=str)
            file.write(text.encode("utf-8") + b"\n")


WRITERS: dict[str, Callable[[Iterator[Any], Any], None]] = {
    "csv": _write_csv,
    "parquet": _write_parquet,
    "jsonl": _write_lines,
}
