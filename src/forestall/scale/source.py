"""Rows that need not fit in memory, read in batches, in one order, again and again."""

from __future__ import annotations

import glob
import hashlib
import json
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa

from forestall.cells import shown
from forestall.errors import DataError
from forestall.scale.csv_part import CsvPart, CsvTypes
from forestall.scale.parts import ArrowPart, FragmentPart, ParquetPart, Part, reading
from forestall.table import READERS, Table

BATCH_ROWS = 65_536
# In a folder of written decisions; such folders are skipped inside other ones.
MANIFEST = "_forestall.json"
ACCEPTED = (
    "the path of a .csv, .parquet, .feather or .arrow file, of a folder of such "
    "files or a pattern such as 'data/*.parquet', a pyarrow Dataset or Table"
)


class Place(NamedTuple):
    """Where a row is: its number in the stream, its file, its number there."""

    number: int
    name: str
    row: int

    def __str__(self) -> str:
        """Say where, for a message."""
        return f"row {self.row} of {self.name!r}"


@dataclass(frozen=True, eq=False)
class Batch:
    """Consecutive rows of one file.

    Args:
        table: The rows.
        start: Where the first of them is.
    """

    table: pa.Table
    start: Place

    @property
    def n(self) -> int:
        """The number of rows."""
        return int(self.table.num_rows)

    def place(self, row: int) -> Place:
        """Say where a row of this batch is."""
        number, name, first = self.start
        return Place(number + row, name, first + row)

    def placed(self, error: DataError) -> DataError:
        """Tell of an error in this batch where in its file it is."""
        # Messages count rows from the start of the table that they speak of.
        text = re.sub(
            r"(?<=in )row (\d+)(?=[.)])",
            lambda found: str(self.place(int(found[1]))),
            str(error),
        )
        named = repr(self.start.name) in text
        return DataError(text if named else f"In {self.start.name!r}: {text}")


@dataclass(frozen=True, eq=False)
class Source:
    """Files or partitions, in one order, read as a stream of batches.

    A batch never reaches over the end of a file, so a message can name the file, and
    the batches of one file do not depend on the others.

    Args:
        parts: The files or partitions.
        first: The number of the first row, where this is a piece of a longer stream.
    """

    parts: tuple[Part, ...]
    first: int = 0

    @staticmethod
    def read(source: Any) -> Source:
        """Find the files of a path, a folder, a pattern or a dataset."""
        if isinstance(source, Source):
            return source
        if isinstance(source, str | Path):
            return Source(_file_parts(_files(source)))
        # It brings pandas along, where there is one.
        from pyarrow import dataset as ds

        if isinstance(source, pa.Table):
            source = ds.dataset(source)
        if isinstance(source, ds.Dataset):
            return Source(_fragment_parts(source))
        raise DataError(
            f"Expected {ACCEPTED}; got {type(source).__name__}. Write it to a Parquet "
            f"file and pass its path."
        )

    def batches(
        self, columns: Sequence[str], where: str, rows: int = BATCH_ROWS
    ) -> Iterator[Batch]:
        """Read the columns; ``where`` is what a message calls this table."""
        check_rows(rows)
        self.check(columns, where)
        number = self.first
        for part in self.parts:
            n = 0
            for table in part.batches(columns, rows):
                yield Batch(table, Place(number + n, part.name, part.offset + n))
                n += table.num_rows
            number += n

    def check(self, columns: Sequence[str], where: str) -> None:
        """Check that every file has the columns, before the first is read."""
        for part in self.parts:
            with reading(part.name):
                table = part.schema().empty_table()
            try:
                Table.read(table).select(columns, where)
            except DataError as error:
                raise DataError(f"In {part.name!r}: {error}") from error

    def empty(self, columns: Sequence[str]) -> pa.Table:
        """Give a table of these columns without rows."""
        return self.parts[0].schema().empty_table().select(list(columns))

    def rows(self) -> int | None:
        """Count the rows where that is cheap; else ``None``."""
        counts = [part.rows() for part in self.parts]
        known = [count for count in counts if count is not None]
        return sum(known) if len(known) == len(counts) else None

    def split(self, rows: int | None = None) -> list[Source]:
        """Give each part as a stream of its own, with the row numbers of the whole.

        Args:
            rows: Cut files of more rows than this, where that can be done.
        """
        parts = [
            each for part in self.parts for each in (part.cut(rows) if rows else [part])
        ]
        pieces, first = [], self.first
        for part in parts:
            pieces.append(replace(self, parts=(part,), first=first))
            first += _length(part)
        return pieces

    def ready(self, columns: Sequence[str]) -> Source:
        """Find out what reading these columns takes, to read them elsewhere."""
        return replace(self, parts=tuple(part.ready(columns) for part in self.parts))

    def mark(self) -> dict[str, Any]:
        """Give what tells this source from another, as plain JSON."""
        marks = [part.mark() for part in self.parts]
        counts, sizes = self.rows(), [mark["bytes"] for mark in marks]
        text = json.dumps(marks, sort_keys=True)
        return {
            "files": len(marks),
            "first": marks[0]["name"],
            "last": marks[-1]["name"],
            "bytes": None if None in sizes else sum(sizes),
            "rows": counts,
            "digest": hashlib.sha256(text.encode()).hexdigest()[:16],
        }


def check_rows(rows: Any) -> None:
    """Check a number of rows for each batch."""
    whole = isinstance(rows, int) and not isinstance(rows, bool)
    if not whole or rows < 1:
        raise DataError(
            f"Expected batch_rows whole and at least 1; got {rows!r}. Leave it out for "
            f"the default."
        )


def _length(part: Part) -> int:
    count = part.rows()
    if count is not None:
        return count
    names = part.schema().names[:1]
    return sum(table.num_rows for table in part.batches(names, BATCH_ROWS))


def _files(path: str | Path) -> list[str]:
    text = str(path)
    if Path(text).is_dir():
        files = _in_folder(Path(text))
    elif Path(text).is_file() or not glob.has_magic(text):
        files = [text]
    else:
        files = sorted(f for f in glob.glob(text, recursive=True) if Path(f).is_file())
    if not files:
        raise DataError(
            f"Expected {', '.join(READERS)} files at {text!r}; got none. Check the "
            f"path."
        )
    _check_files(text, files)
    return files


def _in_folder(folder: Path) -> list[str]:
    """List the tables in a folder and below; hidden names and results are no tables."""
    found = []
    for path in sorted(folder.iterdir()):
        if path.name.startswith((".", "_")):
            continue
        if path.is_dir() and not (path / MANIFEST).exists():
            found += _in_folder(path)
        elif path.suffix.lower() in READERS and path.is_file():
            found.append(str(path))
    return found


def _check_files(text: str, files: list[str]) -> None:
    for file in files:
        if not Path(file).is_file():
            raise DataError(
                f"Expected a file or a folder at {file!r}; there is none. Check the "
                f"path."
            )
    kinds = Counter(Path(file).suffix.lower() for file in files)
    strange = [kind for kind in kinds if kind not in READERS]
    if strange:
        raise DataError(
            f"Expected {', '.join(READERS)} files; got {text!r} with the suffix "
            f"{shown(strange)}. Convert it, or name the files to read, e.g. "
            f"'data/*.parquet'."
        )
    if len(kinds) > 1:
        counts = " and ".join(f"{k} {kind}" for kind, k in sorted(kinds.items()))
        raise DataError(
            f"Expected files of one kind at {text!r}; got {counts} files, which may be "
            f"the same rows twice. Name those to read, e.g. 'data/*{max(kinds)}'."
        )


def _file_parts(files: list[str]) -> tuple[Part, ...]:
    suffix = Path(files[0]).suffix.lower()
    if suffix == ".csv":
        types = CsvTypes(tuple(files))
        return tuple(CsvPart(file, types) for file in files)
    kind = ParquetPart if suffix == ".parquet" else ArrowPart
    return tuple(kind(file) for file in files)


def _fragment_parts(dataset: Any) -> tuple[Part, ...]:
    try:
        fragments = list(dataset.get_fragments())
    except ValueError:
        # A filtered dataset does not give its fragments away.
        return (FragmentPart(dataset, dataset.schema, "the dataset"),)
    if not fragments:
        raise DataError(
            "Expected a dataset with files; got one without any. Check its path."
        )
    names = [getattr(f, "path", f"fragment {k}") for k, f in enumerate(fragments)]
    return tuple(
        FragmentPart(fragment, dataset.schema, name)
        for fragment, name in zip(fragments, names, strict=True)
    )
