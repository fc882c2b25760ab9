"""A tiny writer of SAS transport files, and a made-up survey in the same format."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from forestall.data.manifest import Published, digest
from forestall.data.nhanes_files import FIRST_YEAR, USED

HEADER = "HEADER RECORD*******{:<8}HEADER RECORD!!!!!!!{:<30}  "


def ibm(value: float | None, length: int = 8) -> bytes:
    """One number in base 16: a sign, an exponent from 64, a fraction below 1."""
    if value is None or math.isnan(value):
        return b".".ljust(length, b"\0")
    if value == 0.0:
        return bytes(length)
    fraction, exponent = math.frexp(abs(value))
    power = -(-exponent // 4)
    digits = int(math.ldexp(fraction, 56 + exponent - 4 * power))
    first = (0x80 if value < 0 else 0) | (power + 64)
    return (bytes([first]) + digits.to_bytes(7, "big"))[:length]


def padded(data: bytes) -> bytes:
    return data + b" " * (-len(data) % 80)


def write_xpt(
    path: Path, table: Mapping[str, Sequence[float | str | None]], length: int = 8
) -> Path:
    zeros = "0" * 30
    stamp = "15NOV26:19:05:45"
    head = [
        HEADER.format("LIBRARY", zeros),
        f"{'SAS':<8}{'SAS':<8}{'SASLIB':<8}{'6.06':<8}{'bsd4.2':<8}{'':24}{stamp}",
        f"{stamp:<80}",
        HEADER.format("MEMBER", "000000000000000001600000000140"),
        HEADER.format("DSCRPTR", zeros),
        f"{'SAS':<8}{'MADEUP':<8}{'SASDATA':<8}{'6.06':<8}{'bsd4.2':<8}{'':24}{stamp}",
        f"{stamp:<80}",
        HEADER.format("NAMESTR", f"000000{len(table):04d}" + "0" * 20),
    ]
    described, at, cells = b"", 0, []
    for k, (name, values) in enumerate(table.items()):
        is_text = any(isinstance(v, str) for v in values)
        width = max(map(len, values)) if is_text else length
        kind = 2 if is_text else 1
        numbers = np.array([kind, 0, width, k + 1], ">i2").tobytes()
        texts = f"{name:<8}{'':40}{'':8}".encode()
        described += numbers + texts + bytes(8) + b" " * 8 + bytes(4)
        described += at.to_bytes(4, "big") + bytes(52)
        code = (lambda v, w=width: v.encode().ljust(w)) if is_text else None
        cells.append([(code or (lambda v: ibm(v, length)))(v) for v in values])
        at += width
    rows = b"".join(b"".join(row) for row in zip(*cells, strict=True))
    start = "".join(head).encode()
    body = padded(described) + HEADER.format("OBS", zeros).encode() + padded(rows)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(start + body)
    return path


def published(file: str, address: str, table: Mapping[str, np.ndarray]) -> Published:
    """What a manifest says of a file that holds this table."""
    return Published(file, address, tuple(table), len(table["SEQN"]), digest(table))


def made_up_survey(
    folder: Path, n: int = 300, address: str = "http://nowhere/"
) -> tuple[Published, ...]:
    """Write every module of four cycles, with ``n`` participants each."""
    rng = np.random.default_rng(5)
    files = []
    for cycle in FIRST_YEAR:
        seqn = 1000.0 * (1 + list(FIRST_YEAR).index(cycle)) + np.arange(n)
        values = participants(n, rng)
        for module, columns in USED.items():
            if module == ("BPX" if cycle == "J" else "BPXO"):
                continue
            # The order of rows differs between published modules.
            order = rng.permutation(n)
            table = {"SEQN": seqn[order]}
            table |= {c: values[c.replace("BPXO", "BPX")][order] for c in columns}
            file = f"{module}_{cycle}.XPT"
            write_xpt(folder / file, {k: v.tolist() for k, v in table.items()})
            files.append(published(file, address + file, table))
    return tuple(files)


def participants(n: int, rng: np.random.Generator) -> dict[str, np.ndarray]:
    """People with the columns of the survey, who get heavier and sicker with age."""
    age = rng.integers(10, 81, n).astype(float)
    bmi = np.round(22 + 0.1 * age + rng.gamma(2.0, 2.0, n), 1)
    cal = np.round(rng.gamma(6.0, 350.0, n))
    values = {
        "RIDAGEYR": age,
        "RIAGENDR": rng.integers(1, 3, n).astype(float),
        "RIDRETH3": rng.choice([1.0, 2.0, 3.0, 4.0, 6.0, 7.0], n),
        "DMDEDUC2": rng.choice([1.0, 2.0, 3.0, 4.0, 5.0, 9.0], n),
        "INDFMPIR": np.round(rng.uniform(0.0, 5.0, n), 2),
        "BMXBMI": bmi,
        "BPXSY1": np.round(90 + 0.4 * age + 0.3 * bmi + rng.normal(0, 10, n)),
        "BPXDI1": np.round(50 + 0.5 * bmi + rng.normal(0, 8, n)),
        "DR1TKCAL": cal,
        "DR1TCARB": np.round(0.12 * cal * rng.uniform(0.8, 1.2, n), 1),
        "DR1TFIBE": np.round(0.008 * cal * rng.uniform(0.5, 1.5, n), 1),
        "LBXGH": np.round(4.2 + 0.01 * age + 0.02 * bmi + rng.gamma(2, 0.2, n), 1),
        "LBXGLU": np.round(60 + 0.3 * age + 0.6 * bmi + rng.gamma(2.0, 6.0, n)),
        "LBDHDD": np.round(90 - bmi + rng.normal(0, 8, n)),
        "MCQ300C": rng.choice([1.0, 2.0, 9.0], n, p=[0.4, 0.55, 0.05]),
        "PAD680": rng.choice([60.0, 240.0, 480.0, 7777.0], n),
        "LBXTC": np.round(rng.normal(190, 35, n)),
    }
    for column in ("LBXGH", "LBXGLU", "INDFMPIR", "BPXSY1"):
        values[column][rng.random(n) < 0.05] = np.nan
    return values
