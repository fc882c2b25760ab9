"""What a published file must hold, and where its publisher has it."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from forestall.arrays import Array
from forestall.data.xpt import read_xpt
from forestall.errors import DataError

# Values have at most three decimals; what is smaller is rounding.
UNIT = 1e-4
GAP = np.iinfo(np.int64).min


@dataclass(frozen=True)
class Published:
    """One file of a publisher.

    What is checked is the SHA-256 of the columns that are used, as values, and not of
    the file: the same table may come with other columns, or with another date in its
    header.

    Args:
        file: Its name in the folder.
        address: Where the publisher has it.
        columns: The columns that are used, the identifier first.
        rows: How many rows it has.
        sha256: What :func:`digest` gives for these columns.
    """

    file: str
    address: str
    columns: tuple[str, ...]
    rows: int
    sha256: str

    def find(self, folder: Path) -> Path:
        """Find the file in a folder, in capitals or not."""
        for name in (self.file, self.file.lower(), f"{self.file[:-4]}.xpt"):
            if (folder / name).is_file():
                return folder / name
        raise DataError(
            f"Expected the file {self.file} in {folder}; it is not there. Get it with "
            f"`forestall data fetch nhanes`, or let FORESTALL_DATA name a folder that "
            f"has nhanes/{self.file}."
        )

    def read(self, folder: Path) -> dict[str, Array]:
        """Read the columns that are used, and check them."""
        return self.check(self.find(folder))

    def check(self, path: Path) -> dict[str, Array]:
        """Read a file, wherever it lies, and check that it is the published one."""
        table = _numbers(read_xpt(path, self.columns), self.file)
        self._check_identifiers(table[self.columns[0]])
        if (n := len(table[self.columns[0]])) != self.rows:
            raise DataError(
                f"Expected {self.rows} rows in {self.file}, as published; got {n}. It "
                f"is damaged, or of another year: {self._remedy()}"
            )
        if (got := digest(table)) != self.sha256:
            raise DataError(
                f"Expected the published values in {self.file}, columns "
                f"{', '.join(self.columns)}, with SHA-256 {self.sha256[:12]}...; got "
                f"{got[:12]}.... It is damaged, or was published anew: "
                f"{self._remedy()}"
            )
        return table

    def _check_identifiers(self, values: Array) -> None:
        name = self.columns[0]
        if not (np.isfinite(values) & (values == np.rint(values))).all():
            raise DataError(
                f"Expected whole numbers in {self.file}, column {name!r}; got others. "
                f"It is damaged: {self._remedy()}"
            )
        known, counts = np.unique(values, return_counts=True)
        if (counts > 1).any():
            raise DataError(
                f"Expected each {name} once in {self.file}; got "
                f"{known[counts > 1][0]:.0f} twice. It is damaged: {self._remedy()}"
            )

    def _remedy(self) -> str:
        return "get it with `forestall data fetch nhanes`."


def _numbers(table: Mapping[str, Array], file: str) -> dict[str, Array]:
    for name, values in table.items():
        if values.dtype != np.float64:
            raise DataError(
                f"Expected numbers in {file}, column {name!r}; got text, first "
                f"{values[:1].tolist()}. It is another file: get it anew."
            )
    # Some writers of this format turn zero into the smallest number it can hold.
    return {k: np.where(np.abs(v) < 1e-70, 0.0, v) for k, v in table.items()}


def digest(table: Mapping[str, Array]) -> str:
    """The SHA-256 of columns, whatever the order of rows and the last digits.

    Rows are sorted by the first column; every value becomes a 64-bit integer, little
    end first, of ten-thousandths, the lowest integer for a gap.
    """
    order = np.argsort(next(iter(table.values())), kind="stable")
    hashed = hashlib.sha256()
    for name, values in table.items():
        hashed.update(name.encode())
        hashed.update(_integers(values[order]).tobytes())
    return hashed.hexdigest()


def _integers(values: Array) -> Array:
    gap = np.isnan(values)
    return np.where(gap, GAP, np.rint(np.where(gap, 0.0, values) / UNIT)).astype("<i8")


def lines(text: str) -> Iterator[tuple[str, int, str]]:
    """Read a manifest: on each line a file, its rows and its SHA-256."""
    for line in text.strip().splitlines():
        file, rows, sha256 = line.split()
        yield file, int(rows), sha256
