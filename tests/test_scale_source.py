"""Files read in batches: every row once, in order, and errors that name the file."""

from __future__ import annotations

import pickle
import re

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.dataset as ds
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyarrow import csv, feather, parquet

from forestall.errors import DataError
from forestall.scale import Source
from forestall.scale.parts import rebatched
from forestall.scale.source import check_rows
from forestall.table import read_table

N = 1000


def table(n=N, start=0):
    rows = np.arange(start, start + n)
    sector = np.array(["steel", "farm", None], dtype=object)[rows % 3]
    return pa.table({"row": rows, "half": rows / 2, "sector": sector, "idle": rows})


def stream_written(data, path):
    with pa.ipc.new_stream(str(path), data.schema) as writer:
        writer.write_table(data, max_chunksize=70)


WRITERS = {
    "parquet": lambda t, p: parquet.write_table(t, p, row_group_size=90),
    "feather": lambda t, p: feather.write_feather(t, str(p), chunksize=110),
    "arrow": stream_written,
    "csv": csv.write_csv,
}


def write(data, path):
    WRITERS[path.suffix[1:]](data, path)
    return path


def folder(tmp_path, suffix, lengths=(400, 0, 600)):
    starts = np.cumsum([0, *lengths])
    for k, n in enumerate(lengths):
        write(table(n, int(starts[k])), tmp_path / f"part-{k}.{suffix}")
    return tmp_path


def read(source, columns=("row", "half", "sector"), rows=130):
    return list(Source.read(source).batches(columns, "the history", rows))


def joined(batches):
    return pa.concat_tables(b.table.select(["row", "half", "sector"]) for b in batches)


@pytest.mark.parametrize("suffix", WRITERS)
def test_every_kind_of_file_gives_the_rows_of_reading_it_whole(tmp_path, suffix):
    path = write(table(), tmp_path / f"history.{suffix}")
    batches = read(path)
    whole = read_table(path).select(["row", "half", "sector"])
    assert joined(batches).to_pylist() == whole.to_pylist()
    assert [b.n for b in batches] == [130] * 7 + [90]


@pytest.mark.parametrize("suffix", WRITERS)
def test_a_folder_is_read_file_by_file_in_order_and_again(tmp_path, suffix):
    source = Source.read(folder(tmp_path, suffix))
    for _ in range(2):
        batches = read(source)
        assert joined(batches)["row"].to_pylist() == list(range(N))
        assert [b.start.number for b in batches] == [
            *(0, 130, 260, 390),
            *(400, 530, 660, 790, 920),
        ]
        assert [b.start.row for b in batches] == [
            0,
            130,
            260,
            390,
            0,
            130,
            260,
            390,
            520,
        ]
        assert batches[4].start.name.endswith(f"part-2.{suffix}")
    assert all(set(b.table.column_names) == {"row", "half", "sector"} for b in batches)


def test_a_pattern_and_a_dataset_give_the_same_rows(tmp_path):
    home = folder(tmp_path, "parquet")
    expected = joined(read(home)).to_pylist()
    for source in (
        f"{home}/part-*.parquet",
        ds.dataset(str(home)),
        ds.dataset(joined(read(home))),
        joined(read(home)),
    ):
        assert joined(read(source)).to_pylist() == expected


def test_a_filtered_dataset_is_read_as_one_part(tmp_path):
    source = ds.dataset(str(folder(tmp_path, "parquet"))).filter(ds.field("row") > 700)
    assert joined(read(source))["row"].to_pylist() == list(range(701, N))
    assert Source.read(source).rows() is None


@pytest.mark.parametrize("suffix", WRITERS)
def test_rows_are_counted_where_that_is_cheap(tmp_path, suffix):
    source = Source.read(folder(tmp_path, suffix))
    assert source.rows() == (N if suffix in ("parquet", "feather") else None)


@pytest.mark.parametrize("suffix", WRITERS)
def test_the_parts_of_a_split_source_know_their_rows(tmp_path, suffix):
    source = Source.read(folder(tmp_path, suffix))
    pieces = pickle.loads(pickle.dumps(source.split()))
    apart = [b for piece in pieces for b in read(piece)]
    together = read(source)
    assert [b.start for b in apart] == [b.start for b in together]
    assert joined(apart).equals(joined(together))


@given(lengths=st.lists(st.integers(0, 9), max_size=8), rows=st.integers(1, 12))
def test_batches_are_full_but_the_last_however_the_pieces_come(lengths, rows):
    ends = np.cumsum([0, *lengths])
    whole = pa.record_batch({"row": np.arange(ends[-1])})
    pieces = (whole.slice(int(s), n) for s, n in zip(ends, lengths, strict=False))
    found = list(rebatched(pieces, rows))
    numbers = [v for t in found for v in t["row"].to_pylist()]
    assert numbers == list(range(ends[-1]))
    assert all(t.num_rows == rows for t in found[:-1])


def test_a_number_that_comes_late_in_a_csv_file_makes_the_column_one_of_fractions(
    tmp_path,
):
    rows = 400_000
    column = np.arange(rows).astype(object)
    column[-1] = 0.5
    path = tmp_path / "late.csv"
    pd.DataFrame({"row": column, "other": "x" * 20}).to_csv(path, index=False)
    assert path.stat().st_size > 4 << 20
    types = {b.table.schema.field("row").type for b in read(path, ["row"], 65_536)}
    assert types == {pa.float64()}


@pytest.mark.parametrize(
    "texts",
    [
        ["1", "2", ""],
        ["0", "true", "false"],
        ["0.5", "1", " 2"],
        ["1", "x", ""],
        ["2020-01-01", "2021-05-05", ""],
        ["", "", ""],
        ["NA", "null", "3"],
        ['"1"', '""', '"2"'],
        ["1e5", "inf", "nan"],
    ],
)
def test_the_types_of_csv_columns_are_those_of_reading_the_file_whole(tmp_path, texts):
    path = tmp_path / "typed.csv"
    path.write_text("v,w\n" + "".join(f"{text},7\n" for text in texts))
    (batch,) = read(path, ["v"])
    whole = read_table(path)["v"]
    kinds = {pa.null(): pa.int64(), pa.date32(): pa.timestamp("ns")}
    assert batch.table["v"].type == kinds.get(whole.type, whole.type)
    assert batch.table["v"].null_count == whole.null_count


def test_csv_files_of_one_folder_have_one_type_for_each_column(tmp_path):
    (tmp_path / "a.csv").write_text("code\n1\n2\n")
    (tmp_path / "b.csv").write_text("code\n3\nX4\n")
    values = [v for b in read(tmp_path, ["code"]) for v in b.table["code"].to_pylist()]
    assert values == ["1", "2", "3", "X4"]


def refused(source, text, columns=("row",)):
    with pytest.raises(DataError, match=re.escape(text)):
        read(source, columns)


def test_a_missing_column_names_the_file(tmp_path):
    home = folder(tmp_path, "parquet")
    write(table(5).drop_columns(["half"]), home / "part-9.parquet")
    name = str(home / "part-9.parquet")
    refused(home, f"In {name!r}: Expected the column 'half' in the history", ["half"])


def test_a_column_twice_in_a_file_is_an_error(tmp_path):
    path = tmp_path / "twice.csv"
    path.write_text("row,row\n1,2\n")
    refused(path, "Expected every column name once")


def test_a_broken_file_is_named(tmp_path):
    path = tmp_path / "broken.parquet"
    path.write_bytes(b"PAR1 and nothing more")
    refused(path, f"Expected a readable table in {str(path)!r}")


def test_a_broken_line_of_a_csv_file_names_the_file(tmp_path):
    path = tmp_path / "broken.csv"
    path.write_text("row,half\n1,2\n3\n")
    refused(path, f"Expected a readable table in {str(path)!r}")


def test_feather_of_version_1_says_what_to_do(tmp_path):
    path = tmp_path / "old.feather"
    path.write_bytes(b"FEA1" + bytes(20))
    refused(path, "got version 1, which cannot be read in batches")


def test_files_of_several_kinds_may_be_the_same_rows_twice(tmp_path):
    folder(tmp_path, "csv")
    refused(folder(tmp_path, "parquet"), "got 3 .csv and 3 .parquet files")


def test_a_path_without_files_is_an_error(tmp_path):
    refused(tmp_path, "Expected .csv, .parquet, .feather, .arrow files at")
    refused(tmp_path / "absent.csv", "there is none. Check the path.")
    refused(f"{tmp_path}/*.csv", "got none. Check the path.")
    (tmp_path / "a.xlsx").write_text("")
    refused(tmp_path / "a.xlsx", "with the suffix '.xlsx'")


def test_hidden_files_and_written_decisions_are_no_contexts(tmp_path):
    home = folder(tmp_path, "parquet")
    (home / "out").mkdir()
    for name in ("_notes.csv", ".part.csv", "out/_forestall.json", "out/part.csv"):
        (home / name).write_text("row\n1\n")
    assert len(Source.read(home).parts) == 3


def test_what_is_no_source_is_refused():
    refused([1, 2], "a pyarrow Dataset or Table; got list")


@pytest.mark.parametrize("rows", [0, -1, 1.5, "many", True, None])
def test_batches_have_a_whole_number_of_rows(rows):
    text = re.escape(f"Expected batch_rows whole and at least 1; got {rows!r}.")
    with pytest.raises(DataError, match=text):
        check_rows(rows)


def test_a_mark_tells_other_contents_of_the_same_size(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text("row\n1\n2\n")
    one = Source.read(path).mark()
    assert Source.read(path).mark() == one
    path.write_text("row\n1\n3\n")
    other = Source.read(path).mark()
    assert other["bytes"] == one["bytes"]
    assert other["digest"] != one["digest"]


def datasets_of(kind, values, path):
    table = pa.table({"row": values, "id": np.arange(4)})
    if kind == "table":
        return table
    if kind == "filtered":
        return ds.dataset(table).filter(ds.field("id") > 1)
    parquet.write_table(table, path)
    return ds.dataset(str(path))


@pytest.mark.parametrize("kind", ["table", "filtered", "files"])
def test_a_mark_tells_other_contents_of_a_dataset(kind, tmp_path):
    path = tmp_path / "a.parquet"
    one, same, other = (
        Source.read(datasets_of(kind, [1.0, 2.0, 3.0, last], path)).mark()
        for last in (4.0, 4.0, 5.0)
    )
    assert same == one
    assert {**other, "digest": ""} == {**one, "digest": ""}
    assert other["digest"] != one["digest"]


@pytest.mark.parametrize("kind", ["file", "runs", "dataset"])
def test_of_a_long_parquet_file_little_is_in_memory(tmp_path, kind):
    path, n = tmp_path / "long.parquet", 1_200_000
    values = np.random.default_rng(0).normal(size=n)
    parquet.write_table(
        pa.table({"x": values, "y": values}), path, row_group_size=20_000
    )
    source = Source.read(ds.dataset(str(path)) if kind == "dataset" else path)
    before = pa.total_allocated_bytes()
    held = [
        pa.total_allocated_bytes() - before
        for piece in (source.split(150_000) if kind == "runs" else [source])
        for batch in piece.batches(["x", "y"], "the records", 10_000)
    ]
    assert len(held) == n / 10_000
    assert max(held) < path.stat().st_size / 3
