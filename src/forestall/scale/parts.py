"""One file of a dataset, read in pieces."""

from __future__ import annotations

import hashlib
import os
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from forestall.errors import DataError, ForestallError

# Of each end of a file, so many bytes tell it from another of the same size: there
# Parquet and Arrow files keep their footers.
ENDS = 1 << 16
# Rows that are digested at a time, of what is no file.
DIGESTED = 65_536
# Of Parquet, read ahead a megabyte of each column. What is buffered beforehand, the
# default, stays in memory until the file is closed: in the end, all of it.
READING: dict[str, Any] = {"buffer_size": 1 << 20, "pre_buffer": False}


class Part(ABC):
    """Rows that are read together: a file, or a partition of something larger.

    Attributes:
        name: What a message calls it.
    """

    name: str

    @property
    def offset(self) -> int:
        """The number of its first row in its file."""
        return 0

    @abstractmethod
    def schema(self) -> pa.Schema:
        """Tell the columns, without reading the rows."""

    @abstractmethod
    def rows(self) -> int | None:
        """Count the rows where that is cheap; else ``None``."""

    @abstractmethod
    def pieces(self, columns: Sequence[str], rows: int) -> Iterator[pa.RecordBatch]:
        """Read the columns in order, in pieces of about so many rows."""

    @abstractmethod
    def mark(self) -> dict[str, Any]:
        """Give what tells this part from another, as plain JSON."""

    def ready(self, columns: Sequence[str]) -> Part:
        """Find out what reading these columns takes, to read them elsewhere."""
        del columns
        return self

    def cut(self, rows: int) -> list[Part]:
        """Cut into pieces of so many rows, where these can be read by themselves."""
        del rows
        return [self]

    def batches(self, columns: Sequence[str], rows: int) -> Iterator[pa.Table]:
        """Read the columns in order, in batches of exactly ``rows`` but the last."""
        with reading(self.name):
            yield from rebatched(self.pieces(columns, rows), rows)


@contextmanager
def reading(name: str) -> Iterator[None]:
    """Say in our own words which file cannot be read."""
    try:
        yield
    except ForestallError:
        raise
    except (OSError, ValueError, pa.ArrowException) as error:
        raise DataError(
            f"Expected a readable table in {name!r}; got what cannot be read: "
            f"{error}. Check how it was written, and that it is complete."
        ) from error


def rebatched(pieces: Iterator[pa.RecordBatch], rows: int) -> Iterator[pa.Table]:
    """Cut and join pieces so that every one but the last has ``rows`` rows."""
    held: list[pa.RecordBatch] = []
    n = 0
    for piece in pieces:
        while n + piece.num_rows >= rows:
            yield pa.Table.from_batches([*held, piece.slice(0, rows - n)])
            held, n, piece = [], 0, piece.slice(rows - n)
        if piece.num_rows:
            held.append(piece)
            n += piece.num_rows
    if n:
        yield pa.Table.from_batches(held)


@dataclass(frozen=True)
class FilePart(Part):
    """A file, at its path."""

    path: str

    @property
    def name(self) -> str:  # type: ignore[override]
        """The path, as it was given."""
        return self.path

    def mark(self) -> dict[str, Any]:
        """Give name, size, rows and a digest of both ends of the file."""
        with open(self.path, "rb") as file:
            ends = digest_of_ends(file)
        return {
            "name": Path(self.path).name,
            "bytes": os.path.getsize(self.path),
            "rows": self.rows(),
            "ends": ends,
        }


def digest_of_ends(file: Any) -> str:
    """Digest the first and the last bytes of an open file."""
    digest = hashlib.sha256(file.read(ENDS))
    size = file.seek(0, os.SEEK_END)
    file.seek(max(0, size - ENDS))
    digest.update(file.read(ENDS))
    return digest.hexdigest()[:16]


class ParquetPart(FilePart):
    """A Parquet file."""

    def schema(self) -> pa.Schema:
        """Read the columns from the footer."""
        return pq.read_schema(self.path)

    def rows(self) -> int:
        """Read the number of rows from the footer."""
        return int(pq.read_metadata(self.path).num_rows)

    def pieces(self, columns: Sequence[str], rows: int) -> Iterator[pa.RecordBatch]:
        """Decode page by page."""
        with pq.ParquetFile(self.path, **READING) as file:
            yield from file.iter_batches(batch_size=rows, columns=list(columns))

    def cut(self, rows: int) -> list[Part]:
        """Cut at multiples of so many rows."""
        ends = [*range(0, self.rows(), rows), self.rows()]
        if len(ends) <= 2:
            return [self]
        return [ParquetRun(self.path, *each) for each in pairwise(ends)]


@dataclass(frozen=True)
class ParquetRun(ParquetPart):
    """Consecutive rows of a Parquet file; of it, only row groups with such are read.

    Args:
        path: The file.
        first: The first row.
        stop: The row after the last.
    """

    first: int
    stop: int

    @property
    def offset(self) -> int:
        """The first row."""
        return self.first

    def rows(self) -> int:
        """Count the rows."""
        return self.stop - self.first

    def pieces(self, columns: Sequence[str], rows: int) -> Iterator[pa.RecordBatch]:
        """Decode the row groups, and leave out what is not asked for."""
        with pq.ParquetFile(self.path, **READING) as file:
            sizes = [
                file.metadata.row_group(k).num_rows for k in range(file.num_row_groups)
            ]
            ends = np.cumsum([0, *sizes])
            wanted = (ends[:-1] < self.stop) & (ends[1:] > self.first)
            groups = np.flatnonzero(wanted).tolist()
            row = int(ends[groups[0]])
            read = file.iter_batches(rows, row_groups=groups, columns=list(columns))
            for piece in read:
                lower, upper = (max(0, end - row) for end in (self.first, self.stop))
                row += piece.num_rows
                yield piece.slice(lower, max(0, upper - lower))
                if row >= self.stop:
                    return


class ArrowPart(FilePart):
    """An Arrow file or stream; a Feather file of version 2 is the former."""

    def schema(self) -> pa.Schema:
        """Read the columns from the head."""
        with self._open([]) as reader:
            return reader.schema

    def rows(self) -> int | None:
        """Count by the heads of the record batches; a stream has no list of them."""
        if self._is_stream():
            return None
        from pyarrow import dataset as ds

        return int(ds.dataset(self.path, format="ipc").count_rows())

    def pieces(self, columns: Sequence[str], rows: int) -> Iterator[pa.RecordBatch]:
        """Read the record batches as they were written."""
        del rows
        names = self.schema().names
        with self._open([names.index(name) for name in columns]) as reader:
            if self._is_stream():
                yield from reader
            else:
                for k in range(reader.num_record_batches):
                    yield reader.get_batch(k)

    def _open(self, fields: list[int]) -> Any:
        options = pa.ipc.IpcReadOptions(included_fields=fields)
        source = pa.memory_map(self.path)
        if self._is_stream():
            return pa.ipc.open_stream(source, options=options)
        return pa.ipc.open_file(source, options=options)

    def _is_stream(self) -> bool:
        with open(self.path, "rb") as file:
            head = file.read(5)
        if head.startswith(b"FEA1"):
            raise DataError(
                f"Expected an Arrow or Feather file of version 2 at {self.path!r}; got "
                f"version 1, which cannot be read in batches. Write it anew, e.g. with "
                f"pyarrow.feather.write_feather."
            )
        return head != b"ARROW"


class FragmentPart(Part):
    """A fragment of a pyarrow dataset, or all of one that is filtered."""

    def __init__(self, fragment: Any, schema: pa.Schema, name: str) -> None:
        """Hold on to the fragment; nothing is read."""
        self._fragment, self._schema, self.name = fragment, schema, name

    def schema(self) -> pa.Schema:
        """Give the columns of the dataset."""
        return self._schema

    def rows(self) -> int | None:
        """Count by footers, or in memory; anything else would have to be read."""
        from pyarrow import dataset as ds

        if self._whole:
            return None
        kind = getattr(self._fragment, "format", None)
        cheap = (ds.ParquetFileFormat, ds.IpcFileFormat, type(None))
        return int(self._fragment.count_rows()) if isinstance(kind, cheap) else None

    def pieces(self, columns: Sequence[str], rows: int) -> Iterator[pa.RecordBatch]:
        """Scan without running far ahead."""
        scan = self._fragment.scanner(
            **({} if self._whole else {"schema": self._schema}),
            fragment_scan_options=self._reading(),
            columns=list(columns),
            batch_size=rows,
            batch_readahead=1,
            fragment_readahead=1,
            # On a busy machine threads run far ahead, and are no faster on another.
            use_threads=False,
        )
        yield from scan.to_batches()

    def _reading(self) -> Any:
        from pyarrow import dataset as ds

        if not isinstance(
            getattr(self._fragment, "format", None), ds.ParquetFileFormat
        ):
            return None
        return ds.ParquetFragmentScanOptions(use_buffered_stream=True, **READING)

    @property
    def _whole(self) -> bool:
        from pyarrow import dataset as ds

        return isinstance(self._fragment, ds.Dataset)

    def mark(self) -> dict[str, Any]:
        """Give name, size, rows and a digest, of the ends where it is a file."""
        path = getattr(self._fragment, "path", "")
        if not path:
            told = self._digest()
            return {"name": self.name, "bytes": None, "rows": self.rows(), **told}
        files = self._fragment.filesystem
        with files.open_input_file(path) as file:
            size, ends = file.size(), digest_of_ends(file)
        return {
            "name": Path(path).name,
            "bytes": size,
            "rows": self.rows(),
            "ends": ends,
        }

    def _digest(self) -> dict[str, str]:
        """Digest every row; nothing else tells tables in memory from each other."""
        digest = hashlib.sha256()
        for table in self.batches(self._schema.names, DIGESTED):
            sink = pa.BufferOutputStream()
            with pa.ipc.new_stream(sink, table.schema) as stream:
                stream.write_table(table.combine_chunks())
            digest.update(sink.getvalue())
        return {"digest": digest.hexdigest()[:16]}


@dataclass(frozen=True, eq=False)
class TablePart(Part):
    """A table in memory: a partition of something larger.

    Args:
        name: What a message calls it.
        table: The rows.
    """

    name: str
    table: pa.Table

    def schema(self) -> pa.Schema:
        """Give the columns."""
        return self.table.schema

    def rows(self) -> int:
        """Count the rows."""
        return int(self.table.num_rows)

    def pieces(self, columns: Sequence[str], rows: int) -> Iterator[pa.RecordBatch]:
        """Cut the table."""
        yield from self.table.select(list(columns)).to_batches(max_chunksize=rows)

    def mark(self) -> dict[str, Any]:
        """Give name and rows."""
        return {"name": self.name, "bytes": None, "rows": self.rows()}
