"""CSV files, whose columns get one type over all the rows of all the files."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv

from forestall.scale.parts import FilePart, reading

# In the order in which pyarrow tries them on a file that it reads as a whole.
CANDIDATES = (
    pa.int64(),
    pa.bool_(),
    pa.timestamp("ns"),
    pa.float64(),
    pa.string(),
)
BLOCK = 1 << 22


@dataclass(frozen=True)
class CsvTypes:
    """The type of each column over several files, found by reading them once.

    A reader that streams takes the types from the first rows and stops at the first
    value that does not fit; one that reads all at once does not, and neither do we.

    Args:
        paths: The files.
        found: The types so far, by column.
    """

    paths: tuple[str, ...]
    found: dict[str, pa.DataType] = field(default_factory=dict)

    def of(self, columns: Sequence[str]) -> dict[str, pa.DataType]:
        """Find the types of the columns, of the new ones by reading the files."""
        new = [name for name in columns if name not in self.found]
        if new:
            self.found.update(self._read(new))
        return {name: self.found[name] for name in columns}

    def _read(self, columns: Sequence[str]) -> dict[str, pa.DataType]:
        possible = {name: CANDIDATES for name in columns}
        text = {name: pa.string() for name in columns}
        for path in self.paths:
            with reading(path), opened(path, text) as reader:
                for piece in reader:
                    for name in reader.schema.names:
                        possible[name] = _fitting(piece[name], possible[name])
        return {name: types[0] for name, types in possible.items()}


def _fitting(
    texts: pa.Array, types: tuple[pa.DataType, ...]
) -> tuple[pa.DataType, ...]:
    if len(types) == 1:
        return types
    trimmed = pc.utf8_trim_whitespace(texts)
    return tuple(t for t in types if pa.types.is_string(t) or _fits(trimmed, t))


def _fits(texts: pa.Array, kind: pa.DataType) -> bool:
    try:
        pc.cast(texts, kind)
    except pa.ArrowInvalid:
        return False
    return True


def opened(path: str, types: dict[str, pa.DataType]) -> csv.CSVStreamingReader:
    """Open a file for the columns of ``types``, those that it has."""
    present = header(path).names
    wanted = {name: kind for name, kind in types.items() if name in present}
    # An empty field is a gap in a text column too, unless it is quoted.
    convert = csv.ConvertOptions(
        strings_can_be_null=True,
        quoted_strings_can_be_null=False,
        include_columns=list(wanted),
        column_types=wanted,
    )
    options = csv.ReadOptions(block_size=BLOCK)
    return csv.open_csv(path, read_options=options, convert_options=convert)


def header(path: str) -> pa.Schema:
    """Read the names of the columns; their types here are of the first rows only."""
    with csv.open_csv(path) as reader:
        return reader.schema


@dataclass(frozen=True)
class CsvPart(FilePart):
    """A CSV file, text in UTF-8 separated by commas."""

    types: CsvTypes

    def schema(self) -> pa.Schema:
        """Read the first line."""
        return header(self.path)

    def rows(self) -> None:
        """Nothing but reading the file tells."""
        return None

    def ready(self, columns: Sequence[str]) -> CsvPart:
        """Take the types along, which may take all files to know."""
        return CsvPart(self.path, CsvTypes((self.path,), self.types.of(columns)))

    def pieces(self, columns: Sequence[str], rows: int) -> Iterator[pa.RecordBatch]:
        """Parse block by block."""
        del rows
        with opened(self.path, self.types.of(columns)) as reader:
            yield from reader
