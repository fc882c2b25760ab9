"""Decisions as a Parquet dataset, written so that a stopped run can go on."""

from __future__ import annotations

import contextlib
import json
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from uuid import uuid4

import pyarrow as pa
import pyarrow.parquet as pq

from forestall.errors import DataError
from forestall.files import write_text
from forestall.scale.source import MANIFEST

FORMAT = 1
PART = re.compile(r"part-(\d{12})-(\d{12})\.parquet")
# Under this name in a part's footer stands what was counted of it.
COUNTS = b"forestall"


@dataclass(frozen=True, eq=False)
class Sink:
    """A folder of parts, each one written whole or not at all.

    A part is written under a hidden name, forced to the disk, and then renamed: what
    has its name is finished, whenever the machine stops.

    Args:
        folder: Where the parts are.
        run: What this run is, as plain JSON: parts of another one must not be mixed
            with its own.
    """

    folder: Path
    run: Mapping[str, Any]
    _layout: list[pa.Schema] = field(default_factory=list, init=False, repr=False)

    @classmethod
    def open(
        cls, folder: str | Path, run: Mapping[str, Any], *, resume: bool = True
    ) -> Sink:
        """Begin a run in a new or empty folder, or go on with the same run."""
        folder = Path(folder)
        _check_folder(folder)
        run = json.loads(json.dumps({"format": FORMAT, **run}))
        if (folder / MANIFEST).exists():
            _check_same(folder, run, resume)
        else:
            _check_empty(folder)
            folder.mkdir(parents=True, exist_ok=True)
            write_text(folder / MANIFEST, json.dumps({"run": run}, indent=2) + "\n")
            _sync(folder)
        for left in folder.glob(".part-*"):
            left.unlink(missing_ok=True)
        return cls(folder, run)

    def has(self, start: int, stop: int) -> bool:
        """Whether the part of these rows is finished."""
        return self._path(start, stop).exists()

    def finished(self) -> dict[int, int]:
        """Give the row after the last of each finished part, by its first row."""
        found = filter(None, (PART.fullmatch(p.name) for p in self.folder.iterdir()))
        return {int(match[1]): int(match[2]) for match in found}

    def write(self, start: int, table: pa.Table, counts: Mapping[str, int]) -> Path:
        """Write the rows from ``start`` on as a part, with what was counted of them."""
        self._check_layout(table.schema)
        noted = {**(table.schema.metadata or {}), COUNTS: json.dumps(dict(counts))}
        path = self._path(start, start + table.num_rows)
        # On a cluster two workers may come to write the same part.
        hidden = path.with_name(f".{path.name}.{uuid4().hex}")
        try:
            with open(hidden, "wb") as file:
                marked = table.replace_schema_metadata(noted)
                pq.write_table(marked, file, compression="zstd")
                file.flush()
                os.fsync(file.fileno())
            os.replace(hidden, path)
        except BaseException:
            hidden.unlink(missing_ok=True)
            raise
        _sync(self.folder)
        return path

    def counts(self, start: int, stop: int) -> dict[str, int]:
        """Read back what was counted of a finished part."""
        path = self._path(start, stop)
        try:
            noted = pq.read_schema(path).metadata[COUNTS]
            return {str(k): int(v) for k, v in json.loads(noted).items()}
        except (OSError, ValueError, KeyError, TypeError, pa.ArrowException) as error:
            raise DataError(
                f"Expected a finished part of decisions at {str(path)!r}; got what "
                f"cannot be read: {error!r}. Delete this file and run again: only its "
                f"rows are decided anew."
            ) from error

    def finish(self, summary: Mapping[str, Any]) -> None:
        """Note that every row is written."""
        told = {"run": dict(self.run), "finished": dict(summary)}
        write_text(self.folder / MANIFEST, json.dumps(told, indent=2) + "\n")
        _sync(self.folder)

    def _path(self, start: int, stop: int) -> Path:
        return self.folder / f"part-{start:012d}-{stop:012d}.parquet"

    def _check_layout(self, schema: pa.Schema) -> None:
        """Check that the parts can be read as one table."""
        if not self._layout:
            self._layout.append(self._written_layout() or schema)
        expected = self._layout[0]
        for name in schema.names:
            known = name in expected.names
            if not known or schema.field(name).type != expected.field(name).type:
                was = expected.field(name).type if known else "absent"
                raise DataError(
                    f"Expected the same columns in every part of {str(self.folder)!r}; "
                    f"got {name!r} as {schema.field(name).type}, which is {was} in the "
                    f"first. Write the contexts so that the column has one type."
                )

    def _written_layout(self) -> pa.Schema | None:
        done = sorted(self.finished().items())
        return pq.read_schema(self._path(*done[0])) if done else None


def _check_folder(folder: Path) -> None:
    if folder.exists() and not folder.is_dir():
        raise DataError(
            f"Expected a folder to write decisions to; got the file {str(folder)!r}. "
            f"Name another path."
        )


def _check_empty(folder: Path) -> None:
    if not folder.exists():
        return
    # A run that stopped before its manifest had its name leaves a hidden file.
    files = sorted(p.name for p in folder.iterdir() if not p.name.startswith("."))
    if files:
        raise DataError(
            f"Expected a new or empty folder, or that of a stopped run; got "
            f"{str(folder)!r} with {len(files)} other files, first {files[0]!r}. Name "
            f"another folder."
        )


def _check_same(folder: Path, run: Mapping[str, Any], resume: bool) -> None:
    known = _known_run(folder)
    if not resume:
        raise DataError(
            f"Expected a new folder, because resume=False; got {str(folder)!r}, which "
            f"holds the decisions of a run. Name another folder, delete this one, or "
            f"leave resume=False out to go on with it."
        )
    differing = [k for k in {**run, **known} if run.get(k) != known.get(k)]
    if differing:
        told = "; ".join(
            f"{k} was {known.get(k)!r} and is {run.get(k)!r}" for k in differing
        )
        raise DataError(
            f"Expected the folder of the same run; got {str(folder)!r}, in which "
            f"another one wrote: {told}. Repeat that run exactly to go on with it, or "
            f"name another folder."
        )


def _known_run(folder: Path) -> dict[str, Any]:
    try:
        told = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
        return dict(told["run"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise DataError(
            f"Expected what a run is in {str(folder / MANIFEST)!r}; got what cannot be "
            f"read: {error!r}. Name another folder."
        ) from error


def _sync(folder: Path) -> None:
    """Force the names in a folder to the disk, where the system can."""
    with contextlib.suppress(OSError):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
