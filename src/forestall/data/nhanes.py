"""The cohort of the benchmark ``nhanes``, from the published files.

The U.S. National Health and Nutrition Examination Survey, cycles 2011-2012 (G) to
2017-2018 (J), published by the National Center for Health Statistics of the CDC: ten
modules of each cycle, merged by participant. Blood pressure is read from the
oscillometric module in the last cycle and from the older one before; codes for
"refused" and "don't know" are gaps; adults with both outcomes and no gap are kept, and
nobody else is excluded.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from jaxtyping import Bool, Int

from forestall.arrays import Array
from forestall.data import folder as data_folder
from forestall.data.manifest import Published
from forestall.data.nhanes_files import PUBLISHED
from forestall.errors import DataError

ROWS = 7465
FINGERPRINT = "947c069b643fe8e1a2243b0c4c7f539bee5394c8d1b0ae83bdef7ae720c2ca42"
YOUNGEST = 20

IDENTIFIER = "SEQN"
# The last of the names of blood pressure is that of the oscillometric module.
COLUMNS: Mapping[str, tuple[str, ...]] = {
    "Age": ("RIDAGEYR",),
    "Sex": ("RIAGENDR",),
    "Race": ("RIDRETH3",),
    "FamilyHx_Diabetes": ("MCQ300C",),
    "Education": ("DMDEDUC2",),
    "Income_Ratio": ("INDFMPIR",),
    "BMI": ("BMXBMI",),
    "CalIntake": ("DR1TKCAL",),
    "CarbIntake": ("DR1TCARB",),
    "FiberIntake": ("DR1TFIBE",),
    "Sedentary_min": ("PAD680",),
    "SBP": ("BPXSY1", "BPXOSY1"),
    "DBP": ("BPXDI1", "BPXODI1"),
    "TotalCholesterol": ("LBXTC",),
    "HDL": ("LBDHDD",),
    "HbA1c": ("LBXGH",),
    "FPG": ("LBXGLU",),
}
# "Refused" and "don't know".
SENTINELS = {
    "FamilyHx_Diabetes": (7.0, 9.0),
    "Education": (7.0, 9.0),
    "Sedentary_min": (7777.0, 9999.0),
}
# The outcomes first, then the rest in the order of their roles.
COMPLETE = ("HbA1c", "FPG", *(v for v in COLUMNS if v not in ("HbA1c", "FPG")))


@dataclass(frozen=True)
class Step:
    """What one rule of selection does.

    Args:
        rule: Who is kept.
        removed: How many rows it removes of those that the rules before have left.
        left: How many rows it leaves.
    """

    rule: str
    removed: int
    left: int


@dataclass(frozen=True, eq=False)
class Cohort:
    """The participants who were selected.

    Args:
        seqn: Their identifiers, rising.
        cycle: The letter of the cycle of each.
        columns: Their values, by the names of the benchmark.
        attrition: How they were selected.
    """

    seqn: Array
    cycle: Array
    columns: Mapping[str, Array]
    attrition: tuple[Step, ...]

    @property
    def n(self) -> int:
        """How many there are."""
        return len(self.seqn)

    @property
    def by_cycle(self) -> dict[str, int]:
        """How many there are of each cycle."""
        cycles, counts = np.unique(self.cycle, return_counts=True)
        return dict(zip(cycles.tolist(), counts.tolist(), strict=True))

    @property
    def fingerprint(self) -> str:
        """The SHA-256 of the sorted identifiers, joined by commas."""
        joined = ",".join(map(str, self.seqn.tolist()))
        return hashlib.sha256(joined.encode()).hexdigest()

    def require_the_benchmarks(self) -> None:
        """Raise unless these are the participants of the benchmark."""
        if self.fingerprint != FINGERPRINT:
            raise DataError(
                f"Expected the {ROWS} participants of the benchmark, fingerprint "
                f"{FINGERPRINT[:12]}...; got {self.n}, fingerprint "
                f"{self.fingerprint[:12]}.... Get the files anew with "
                f"`forestall data fetch nhanes`."
            )


def folder() -> Path:
    """Where the files are expected."""
    return data_folder() / "nhanes"


def require_files(
    where: Path | None = None, files: Sequence[Published] = PUBLISHED
) -> None:
    """Raise unless every file is there; none is opened."""
    for each in files:
        each.find(where or folder())


def available() -> bool:
    """Whether every file is there."""
    try:
        require_files()
    except DataError:
        return False
    return True


def read_cohort(
    where: Path | None = None, files: Sequence[Published] = PUBLISHED
) -> Cohort:
    """Read the files, merge them and select the cohort.

    Args:
        where: The folder that holds them; by default :func:`folder`.
        files: What they must be; by default as they were published.
    """
    where = where or folder()
    require_files(where, files)
    cycles = {file.file[-5]: None for file in files}
    merged = [_cycle(where, [f for f in files if f.file[-5] == c]) for c in cycles]
    whole = {v: np.concatenate([each[v] for each in merged]) for v in merged[0]}
    letters = np.repeat(list(cycles), [len(each[IDENTIFIER]) for each in merged])
    return _select(whole, letters)


def _cycle(where: Path, files: Sequence[Published]) -> dict[str, Array]:
    """Merge the modules of one cycle by participant, with our names and no codes."""
    tables = {file.file: file.read(where) for file in files}
    base = next(name for name in tables if name.startswith("DEMO_"))
    everybody = np.sort(tables[base][IDENTIFIER])
    raw: dict[str, Array] = {}
    for file, table in tables.items():
        places = _places(file, table[IDENTIFIER], base, everybody)
        for column, values in table.items():
            raw[column] = np.full(len(everybody), np.nan)
            raw[column][places] = values
    ours = {v: _without_codes(v, _either(names, raw)) for v, names in COLUMNS.items()}
    return {IDENTIFIER: everybody, **ours}


def _places(file: str, seqn: Array, base: str, everybody: Array) -> Int[Array, " n"]:
    places = np.searchsorted(everybody, seqn).clip(max=len(everybody) - 1)
    strangers = seqn[everybody[places] != seqn]
    if len(strangers):
        raise DataError(
            f"Expected participants of {base} in {file}, column {IDENTIFIER!r}; got "
            f"{strangers[0]:.0f}, who is not there, and {len(strangers) - 1} more. It "
            f"is of another cycle: get it anew."
        )
    return places


def _either(names: Sequence[str], raw: Mapping[str, Array]) -> Array:
    found = [name for name in names if name in raw]
    if not found:
        raise DataError(
            f"Expected the column {' or '.join(names)} in each cycle; got "
            f"{', '.join(raw)}. List the file that has it."
        )
    return raw[found[-1]]


def _without_codes(name: str, values: Array) -> Array:
    return np.where(np.isin(values, SENTINELS.get(name, ())), np.nan, values)


def _select(whole: Mapping[str, Array], letters: Array) -> Cohort:
    keep = np.ones(len(letters), dtype=bool)
    steps = [Step("in the survey", 0, len(keep))]
    for rule, holds in _rules().items():
        before, keep = keep, keep & holds(whole)
        steps.append(Step(rule, int(before.sum() - keep.sum()), int(keep.sum())))
    order = np.flatnonzero(keep)[np.argsort(whole[IDENTIFIER][keep])]
    return Cohort(
        seqn=whole[IDENTIFIER][order].astype(np.int64),
        cycle=letters[order],
        columns={v: whole[v][order] for v in COLUMNS},
        attrition=tuple(steps),
    )


Rule = Callable[[Mapping[str, Array]], Bool[Array, " n"]]


def _rules() -> dict[str, Rule]:
    adult: Rule = lambda table: table["Age"] >= YOUNGEST  # noqa: E731
    return {f"Age >= {YOUNGEST}": adult} | {f"{v} known": _known(v) for v in COMPLETE}


def _known(name: str) -> Rule:
    return lambda table: ~np.isnan(table[name])
