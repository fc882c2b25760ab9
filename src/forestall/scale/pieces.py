"""Records in pieces that can be read anywhere: files, or a frame's partitions."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate
from typing import Any

import pyarrow as pa

from forestall.scale.parts import TablePart
from forestall.scale.sending import computed, dask, sent
from forestall.scale.source import Source


class Pieces(ABC):
    """Records in pieces that can be read anywhere."""

    @abstractmethod
    def check(self, columns: Sequence[str], where: str) -> None:
        """Check that there are such columns."""

    @abstractmethod
    def rows(self) -> int | None:
        """Count the rows where that is cheap; else ``None``."""

    @abstractmethod
    def empty(self, columns: Sequence[str]) -> pa.Table:
        """Give a table of these columns without rows."""

    @abstractmethod
    def mark(self) -> dict[str, Any]:
        """Give what tells these records from others, as plain JSON."""

    @abstractmethod
    def sources(self, columns: Sequence[str], rows: int) -> list[Any]:
        """Make a task for each piece, which gives its columns as a stream."""


@dataclass(frozen=True, eq=False)
class Files(Pieces):
    """Files, the large ones in runs of rows."""

    source: Source

    def check(self, columns: Sequence[str], where: str) -> None:
        """Look into every file."""
        self.source.check(columns, where)

    def rows(self) -> int | None:
        """Count by what the files say."""
        return self.source.rows()

    def empty(self, columns: Sequence[str]) -> pa.Table:
        """Give a table like the first file."""
        return self.source.empty(columns)

    def mark(self) -> dict[str, Any]:
        """Give the mark of a stream: a run may go on with or without a cluster."""
        return self.source.mark()

    def sources(self, columns: Sequence[str], rows: int) -> list[Any]:
        """Send every worker the names of its files."""
        pieces = self.source.ready(columns).split(rows)
        return [sent(piece) for piece in pieces]


@dataclass(frozen=True, eq=False)
class Frame(Pieces):
    """A Dask DataFrame, by its partitions."""

    frame: Any
    client: Any

    def check(self, columns: Sequence[str], where: str) -> None:
        """Look at the names."""
        names = [str(name) for name in self.frame.columns]
        table = pa.table({name: pa.array([], pa.float64()) for name in names})
        Source((TablePart("the frame", table),)).check(columns, where)

    def rows(self) -> int:
        """Count the rows of every partition."""
        return sum(self.lengths)

    def empty(self, columns: Sequence[str]) -> pa.Table:
        """Give a table like the frame's own prototype."""
        table = pa.Table.from_pandas(self.frame._meta, preserve_index=False)
        return table.select(list(columns))

    def mark(self) -> dict[str, Any]:
        """Give the rows, and what Dask knows the frame by."""
        token = dask().base.tokenize(self.frame)
        return {"partitions": len(self.lengths), "rows": self.rows(), "digest": token}

    def sources(self, columns: Sequence[str], rows: int) -> list[Any]:
        """Take the columns of each partition, with the row numbers of the whole."""
        del rows
        firsts = accumulate(self.lengths, initial=0)
        framed = dask().delayed(_framed, pure=False)
        parts = self.frame[list(columns)].to_delayed()
        return [
            framed(part, f"partition {k}", first)
            for k, (part, first) in enumerate(zip(parts, firsts, strict=False))
        ]

    @cached_property
    def lengths(self) -> list[int]:
        """The number of rows of each partition, by one column of them."""
        count = dask().delayed(len, pure=False)
        parts = self.frame[[self.frame.columns[0]]].to_delayed()
        return [int(n) for n in computed(self.client, [count(part) for part in parts])]


def _framed(frame: Any, name: str, first: int) -> Source:
    table = pa.Table.from_pandas(frame, preserve_index=False)
    return Source((TablePart(name, table),), first)
