"""SAS transport files: what is written comes back, and what is damaged is named."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from forestall.data.xpt import RECORD, _from_ibm, read_xpt
from forestall.errors import DataError
from transport import ibm, write_xpt

REALS = st.floats(min_value=-1e70, max_value=1e70).filter(
    lambda v: v == 0.0 or abs(v) > 1e-70
)
TABLE = {
    "SEQN": [1.0, 2.0, 3.0],
    "LBXGH": [5.7, None, -0.1],
    "NOTE": ["left", "", "right"],
}


@pytest.fixture
def path(tmp_path):
    return write_xpt(tmp_path / "TINY_J.XPT", TABLE)


def by_hand(cell: bytes) -> float:
    sign = -1.0 if cell[0] & 0x80 else 1.0
    power = 4 * ((cell[0] & 0x7F) - 64) - 56
    return sign * math.ldexp(int.from_bytes(cell[1:].ljust(7, b"\0"), "big"), power)


@given(st.lists(REALS, min_size=1, max_size=8))
def test_every_double_survives_base_sixteen(values):
    cells = np.frombuffer(b"".join(map(ibm, values)), np.uint8).reshape(-1, 8)
    np.testing.assert_array_equal(_from_ibm(cells), values)


@given(
    st.binary(min_size=2, max_size=8).filter(lambda b: len(set(b[1:]) - {0}) > 0),
)
def test_any_bytes_are_the_number_found_by_hand(cell):
    rows = np.frombuffer(cell, np.uint8)[None]
    assert _from_ibm(rows)[0] == pytest.approx(by_hand(cell), rel=1e-15)


@pytest.mark.parametrize("code", [b".", b"_", b"A", b"Z"])
@pytest.mark.parametrize("length", [3, 8])
def test_every_code_for_a_gap_is_a_gap(code, length):
    cell = np.frombuffer(code.ljust(length, b"\0"), np.uint8)[None]
    assert np.isnan(_from_ibm(cell)[0])


def test_numbers_text_and_gaps_come_back(path):
    table = read_xpt(path)
    assert list(table) == ["SEQN", "LBXGH", "NOTE"]
    np.testing.assert_array_equal(table["LBXGH"], [5.7, np.nan, -0.1])
    assert table["NOTE"].tolist() == ["left", "", "right"]


def test_only_the_columns_asked_for_are_read_in_that_order(path):
    assert list(read_xpt(path, ("NOTE", "SEQN"))) == ["NOTE", "SEQN"]


def test_short_numbers_are_read_as_far_as_they_go(tmp_path):
    path = write_xpt(tmp_path / "A.XPT", {"v": [1.0, 0.5, 100.25, None]}, length=4)
    np.testing.assert_array_equal(read_xpt(path)["v"], [1.0, 0.5, 100.25, np.nan])


@pytest.mark.parametrize("n", [0, 1, 4, 5, 6, 9, 10, 11, 40])
def test_what_fills_the_last_record_is_no_row(tmp_path, n):
    path = write_xpt(tmp_path / "A.XPT", {"v": [float(k) for k in range(n)]})
    np.testing.assert_array_equal(read_xpt(path)["v"], np.arange(n))


def test_another_reader_reads_the_same(tmp_path):
    pandas = pytest.importorskip("pandas")
    rng = np.random.default_rng(0)
    table = {"a": rng.normal(size=57).tolist(), "b": rng.gamma(1.0, 50.0, 57).tolist()}
    path = write_xpt(tmp_path / "A.XPT", table)
    theirs = pandas.read_sas(path, format="xport")
    for name, values in read_xpt(path).items():
        np.testing.assert_allclose(values, theirs[name], rtol=1e-15)


def damaged(path, change):
    path.write_bytes(change(path.read_bytes()))
    return path


CHANGES = {
    "cut in a record": (lambda b: b[:-7], r"TINY_J\.XPT with \d+ bytes, no multiple"),
    "no rows": (lambda b: b.replace(b"OBS  ", b"SBO  "), r"TINY_J\.XPT with no rows"),
    "no columns": (lambda b: b.replace(b"NAMESTR", b"NAMELES"), r"no description"),
    "odd count": (
        lambda b: b.replace(b"0000000003000000", b"00000000x3000000"),
        r"TINY_J\.XPT with b'00x3' as the number of its columns",
    ),
    "odd column": (
        lambda b: b.replace(b"\0\x01\0\0\0\x08\0\x02", b"\0\x07\0\0\0\x08\0\x02"),
        r"an unreadable description of the column 'LBXGH'",
    ),
    "a page": (lambda b: b"<!DOCTYPE html>" + b, r"begins with b'<!DOCTYPE html>"),
    "nothing": (lambda b: b[:0], r"TINY_J\.XPT, which begins with b''"),
    "version 8": (lambda b: b"HEADER RECORD*******LIBV8" + b, r"got version 8"),
    "two tables": (lambda b: b + b[240:], r"one table in TINY_J\.XPT; got several"),
}


@pytest.mark.parametrize("what", CHANGES)
def test_a_damaged_or_foreign_file_is_named(path, what):
    change, message = CHANGES[what]
    with pytest.raises(DataError, match=message):
        read_xpt(damaged(path, change))


def test_a_file_that_breaks_off_in_a_row_is_named(path):
    write_xpt(path, {name: [1.5] * 14 for name in "uvw"})
    with pytest.raises(DataError, match=r"TINY_J\.XPT with a row that breaks off"):
        read_xpt(damaged(path, lambda b: b[:-RECORD]))


def test_a_column_that_is_not_there_is_named_with_the_file(path):
    expected = r"column 'LBXGLU' in TINY_J\.XPT; got SEQN, LBXGH, NOTE\..*right file\?"
    with pytest.raises(DataError, match=expected):
        read_xpt(path, ("SEQN", "LBXGLU"))


def test_a_file_that_is_not_there_is_named(tmp_path):
    with pytest.raises(DataError, match=r"could not read NONE\.XPT: No such file"):
        read_xpt(tmp_path / "NONE.XPT")
