"""Any table, read by column and answered in its own kind."""

from __future__ import annotations

import re
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import narwhals as nw
import numpy as np

from forestall.arrays import Array
from forestall.cells import Cells, from_array, from_objects, from_series, shown
from forestall.errors import DataError, by_nearness, nearest

ACCEPTED = (
    "a pandas or polars DataFrame, a pyarrow Table, a dict of columns, a dict of "
    "single values (one row), or the path of a .csv, .parquet, .feather or .arrow file"
)


class Table(ABC):
    """A user's table: read by column, never changed, answered in its own kind.

    Attributes:
        names: The names of its columns, those that are text.
        others: The names that are not.
        n: The number of its rows.
        single: Whether it came as a mapping of single values.
    """

    names: tuple[str, ...]
    others: tuple[Any, ...]
    n: int
    single: bool = False

    @staticmethod
    def read(source: Any) -> Table:
        """Wrap any accepted kind of table."""
        if isinstance(source, Table):
            return source
        if isinstance(source, str | Path):
            return FrameTable(read_table(source))
        if isinstance(source, Mapping):
            return MappingTable(source)
        return FrameTable(source)

    @abstractmethod
    def cells(self, name: str) -> Cells:
        """Read one column."""

    @abstractmethod
    def like(self, columns: Mapping[str, Any]) -> Any:
        """Build a table of the kind that came in, with other columns."""

    def select(self, names: Iterable[str], where: str) -> dict[str, Cells]:
        """Read the named columns; ``where`` is what a message calls this table."""
        for name in (names := tuple(names)):
            if name not in self.names:
                raise DataError(
                    f"Expected the column {name!r} in {where}; got {self._got(name)}."
                    f"{nearest(name, self.names)}{_separator_hint(self.names)}"
                )
        return {name: self.cells(name) for name in names}

    def _got(self, name: str) -> str:
        near = by_nearness(name, self.names) if len(self.names) > 10 else self.names
        if not self.others:
            return f"the columns {shown(near)}"
        text = f"the columns {shown(near)} and" if near else "only"
        return (
            f"{text} column names that are no text, first {self.others[0]!r} "
            f"({type(self.others[0]).__name__}). Rename the columns so that each name "
            f"is text"
        )


class FrameTable(Table):
    """A data frame: pandas, polars or pyarrow."""

    def __init__(self, native: Any) -> None:
        """Wrap the frame; nothing is copied."""
        arrow = nw.dependencies.get_pyarrow()
        self._batch = arrow is not None and isinstance(native, arrow.RecordBatch)
        if self._batch:
            native = arrow.Table.from_batches([native])
        self._frame = _frame(native)
        self.names, self.others = _split(self._frame.columns)
        self.n = len(self._frame)

    def cells(self, name: str) -> Cells:
        """Read one column."""
        return from_series(name, self._frame[name])

    def like(self, columns: Mapping[str, Any]) -> Any:
        """Build a frame of the same kind; one of pandas keeps its index."""
        space, columns = self._frame.__native_namespace__(), _typed(columns)
        if self._frame.implementation.is_pandas_like():
            return space.DataFrame(columns, index=self._frame.to_native().index)
        if self._batch:
            return space.RecordBatch.from_pydict(columns)
        backend = self._frame.implementation
        return nw.from_dict(columns, backend=backend).to_native()


class MappingTable(Table):
    """A dict of columns, or of single values, which is one row."""

    def __init__(self, source: Mapping[Any, Any]) -> None:
        """Check that the columns have one length."""
        scalars = [k for k, v in source.items() if _is_scalar(v)]
        self.single = bool(source) and len(scalars) == len(source)
        if scalars and not self.single:
            raise DataError(
                f"Expected columns of one length in a dict, or single values only; got "
                f"the single value {source[scalars[0]]!r} for {scalars[0]!r} among "
                f"columns. Repeat it for every row."
            )
        self._columns = {
            k: [v] if self.single else _sequence(k, v) for k, v in source.items()
        }
        self.names, self.others = _split(self._columns)
        self.n = _common_length(self._columns)

    def cells(self, name: str) -> Cells:
        """Read one column."""
        column = self._columns[name]
        if isinstance(column, np.ndarray):
            return from_array(name, column)
        if isinstance(column, list):
            return from_objects(name, column)
        return from_series(name, column)

    def like(self, columns: Mapping[str, Any]) -> dict[str, Array]:
        """Build a dict of arrays."""
        return {k: np.array(v) for k, v in _typed(columns).items()}


def _typed(columns: Mapping[str, Any]) -> dict[str, Any]:
    """Give an empty list, a column of text by convention, the type of text."""
    text = np.empty(0, dtype=str)
    return {
        name: text if isinstance(column, list) and not column else column
        for name, column in columns.items()
    }


def _split(names: Iterable[Any]) -> tuple[tuple[str, ...], tuple[Any, ...]]:
    text = tuple(name for name in names if isinstance(name, str))
    return text, tuple(name for name in names if not isinstance(name, str))


def like(template: Any, columns: Mapping[str, Any]) -> Any:
    """Build a table of the same kind as ``template``, with other columns."""
    return Table.read(template).like(columns)


def read_table(path: str | Path) -> Any:
    """Read a file into a pyarrow table, by its suffix."""
    import pyarrow as pa

    path = Path(path)
    if path.is_dir():
        raise DataError(
            f"Expected one file at {str(path)!r}; it is a folder. Name a file in it; "
            f"whole folders are taken by fit and recommend_to."
        )
    if any(mark in str(path) for mark in "*?[") and not path.exists():
        raise DataError(
            f"Expected one file at {str(path)!r}; it is a pattern. Name a file that it "
            f"fits; patterns of files are taken by fit and recommend_to."
        )
    if (path.suffix or path.exists()) and path.suffix.lower() not in READERS:
        raise DataError(
            f"Expected the path of a {', '.join(READERS)} file; got {str(path)!r}. "
            f"Convert it, or read it yourself and pass the data frame."
        )
    if not path.is_file():
        raise DataError(
            f"Expected a file at {str(path)!r}; there is none. Check the path."
        )
    try:
        return READERS[path.suffix.lower()](path)
    except (OSError, ValueError, pa.ArrowException) as error:
        raise DataError(
            f"Expected a readable {path.suffix} table in {str(path)!r}; got a file "
            f"that cannot be read: {error}. Check how it was written; "
            f"a .csv file is text in UTF-8, separated by commas."
            f"{_separator_hint(*_beginning(path))}"
        ) from error


def _separator_hint(names: Sequence[str], first: str = "") -> str:
    """Suspect a CSV file whose one column is several with another separator.

    Args:
        names: The names of its columns, as separated by commas.
        first: Its first line below them.
    """
    found = [mark for mark in ";\t|" if len(names) == 1 and mark in names[0]]
    if not found:
        return ""
    decimal = re.search(r"\d,\d", first) is not None
    options = f"sep={found[0]!r}" + ", decimal=','" * decimal
    points = " between columns and points in numbers" * decimal
    return (
        f" The single column {names[0]!r} looks like several, separated by "
        f"{found[0]!r}: save the file with commas{points}, or read it yourself, e.g. "
        f"pandas.read_csv(path, {options}), and pass the data frame."
    )


def _beginning(path: Path) -> tuple[list[str], str]:
    if path.suffix.lower() != ".csv":
        return [], ""
    with path.open(encoding="utf-8", errors="replace") as file:
        return file.readline().strip().split(","), file.readline()


def _read_csv(path: Path) -> Any:
    from pyarrow import csv

    # An empty field is a gap in a text column too, unless it is quoted.
    gaps = csv.ConvertOptions(
        strings_can_be_null=True, quoted_strings_can_be_null=False
    )
    table = csv.read_csv(path, convert_options=gaps)
    # Names that are no UTF-8 raise when they are first asked for.
    table.column_names  # noqa: B018
    return table


def _read_parquet(path: Path) -> Any:
    from pyarrow import parquet

    return parquet.read_table(path)


def _read_arrow(path: Path) -> Any:
    import pyarrow as pa

    with pa.OSFile(str(path)) as file:
        is_stream = file.read(5) not in (b"ARROW", b"FEA1")
    if is_stream:
        with pa.ipc.open_stream(str(path)) as stream:
            return stream.read_all()
    from pyarrow import feather

    return feather.read_table(path)


READERS: dict[str, Callable[[Path], Any]] = {
    ".csv": _read_csv,
    ".parquet": _read_parquet,
    ".feather": _read_arrow,
    ".arrow": _read_arrow,
}


def _frame(native: Any) -> nw.DataFrame[Any]:
    try:
        frame: Any = nw.from_native(native)
    except nw.exceptions.DuplicateError as error:
        twice = ", ".join(str(error).splitlines()[1:]).replace("- ", "")
        raise DataError(
            f"Expected every column name once; got {twice}. Rename or drop one of them."
        ) from error
    except TypeError:
        frame = None
    if isinstance(frame, nw.LazyFrame) and frame.implementation.is_polars():
        return frame.collect()
    if isinstance(frame, nw.DataFrame):
        return frame
    hint = _is_stream(native) * "; as it is, it is taken by fit and recommend_to"
    raise DataError(
        f"Expected {ACCEPTED}; got {type(native).__name__}. Convert it to one of "
        f"these{hint}."
    )


def _is_stream(native: Any) -> bool:
    # Nobody has one of these without having loaded its module.
    kinds = {"pyarrow.dataset": "Dataset", "dask.dataframe": "DataFrame"}
    return any(
        module in sys.modules and isinstance(native, getattr(sys.modules[module], kind))
        for module, kind in kinds.items()
    )


def _is_scalar(value: Any) -> bool:
    if isinstance(value, str | bytes | np.generic):
        return True
    return not (hasattr(value, "__iter__") or hasattr(value, "__array__"))


def _sequence(name: Any, value: Any) -> Any:
    """One column of a dict: a list, an array of one dimension, or a series."""
    if isinstance(value, list | tuple | range):
        return list(value)
    if isinstance(value, np.ma.MaskedArray) and value.ndim == 1:
        return value.tolist()
    arrow = nw.dependencies.get_pyarrow()
    if arrow is not None and isinstance(value, arrow.Array):
        value = arrow.chunked_array([value])
    try:
        return nw.from_native(value, series_only=True)
    except TypeError:
        array = np.asarray(value) if hasattr(value, "__array__") else None
    if array is None or array.ndim != 1:
        got = type(value).__name__ if array is None else f"{array.ndim} dimensions"
        raise DataError(
            f"Expected a list or an array of one dimension for the column {name!r}; "
            f"got {got}. Pass one value for each row."
        )
    return array


def _common_length(columns: Mapping[Any, Any]) -> int:
    lengths = {name: len(column) for name, column in columns.items()}
    first = next(iter(lengths), None)
    for name, length in lengths.items():
        if length != lengths[first]:
            raise DataError(
                f"Expected columns of one length; got {lengths[first]} rows in "
                f"{first!r} and {length} in {name!r}. Check how they were made."
            )
    return lengths[first] if lengths else 0
