"""Decisions for a stream: each written once, whatever stops the run."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import tracemalloc
import warnings
from functools import cache
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.dataset as ds
import pytest
from pyarrow import parquet

from forestall import NestedRehearsal, Problem
from forestall.baselines import NoAction
from forestall.errors import DataError, ExtrapolationWarning, ForestallWarning
from forestall.scale import Sink, recommend_stream
from forestall.scale.decide import digest

N = 400


def make_problem():
    return Problem(
        context=["x1", "sector"],
        actions={"dose": (-1.0, 1.0)},
        outcomes=["y"],
        desired=["y >= 0.2"],
    )


def make_history(n=60):
    rng = np.random.default_rng(0)
    x1, dose = rng.normal(size=(2, n))
    sector = rng.choice(["farm", "steel"], n)
    y = x1 + dose + 0.1 * rng.normal(size=n)
    return pd.DataFrame({"x1": x1, "sector": sector, "dose": dose, "y": y})


def make_contexts(n=N, start=0):
    rows = np.arange(start, start + n)
    x1 = np.sin(rows.astype(float))
    sector = np.array(["farm", "steel"])[rows % 2]
    return pa.table({"id": rows, "x1": x1, "sector": sector, "idle": rows})


@cache
def policy():
    return NoAction().fit(make_problem(), make_history())


def written(path, lengths=(150, 0, 250)):
    path.mkdir()
    starts = np.cumsum([0, *lengths])
    for k, n in enumerate(lengths):
        parquet.write_table(make_contexts(n, int(starts[k])), path / f"{k}.parquet")
    return path


def read(folder):
    return ds.dataset(str(folder)).to_table()


def parts(folder):
    return sorted(p.name for p in Path(folder).glob("part-*"))


@pytest.fixture
def contexts(tmp_path):
    return written(tmp_path / "contexts")


@pytest.fixture
def out(tmp_path):
    return tmp_path / "decisions"


def refused(text, *args, **options):
    with pytest.raises(DataError, match=re.escape(text)):
        recommend_stream(*args, **options)


@pytest.mark.parametrize("method", [NoAction(), NestedRehearsal()])
def test_the_decisions_are_those_of_the_table_in_memory(contexts, out, method):
    fitted = method.fit(make_problem(), make_history())
    told = recommend_stream(fitted, contexts, out, batch_rows=64, identifier="id")
    whole = fitted.recommend(make_contexts())
    found, expected = read(out), whole.to_frame()
    assert found.column_names == ["id", *expected.column_names]
    assert found["id"].to_pylist() == list(range(N))
    assert found["verdict"].to_pylist() == whole.verdict
    for name in ("dose", "probability", "lower", "no_action", "support"):
        np.testing.assert_allclose(found[name], expected[name], atol=1e-9)
    assert (told.rows, told.resumed) == (N, 0)
    counts = {k: whole.verdict.count(k) for k in ("act", "leave", "abstain")}
    assert {k: getattr(told, k) for k in counts} == counts
    assert str(told).startswith(f"{N} contexts: {counts['act']} act, ")


def test_parts_are_called_by_their_rows(contexts, out):
    recommend_stream(policy(), contexts, out, batch_rows=100)
    assert parts(out) == [
        "part-000000000000-000000000100.parquet",
        "part-000000000100-000000000150.parquet",
        "part-000000000150-000000000250.parquet",
        "part-000000000250-000000000350.parquet",
        "part-000000000350-000000000400.parquet",
    ]


def test_a_run_that_was_stopped_does_the_rest_only(contexts, out):
    def stop(done, total):
        assert total == N
        if done >= 150:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        recommend_stream(policy(), contexts, out, batch_rows=100, progress=stop)
    before = {name: (out / name).stat().st_mtime_ns for name in parts(out)}
    assert len(before) == 2
    told = recommend_stream(policy(), contexts, out, batch_rows=100)
    assert (told.rows, told.resumed, told.leave) == (N, 150, N)
    assert {name: (out / name).stat().st_mtime_ns for name in before} == before
    again = recommend_stream(policy(), contexts, out, batch_rows=100)
    assert (again.rows, again.resumed) == (N, N)
    assert read(out).num_rows == N


# Each stops the process the third time that something is written, with no chance to
# tidy up.
STOPS = {
    "half a part": """
def stop(table, file, **options):
    count[0] += 1
    whole = io.BytesIO()
    write_table(table, whole, **options)
    if count[0] == 3:
        file.write(whole.getvalue()[: len(whole.getvalue()) // 2])
        file.flush()
        os.kill(os.getpid(), signal.SIGKILL)
    file.write(whole.getvalue())
write_table, pq.write_table = pq.write_table, stop
""",
    "after a part has its name": """
def stop(source, target):
    count[0] += 1
    replace(source, target)
    if count[0] == 3:
        os.kill(os.getpid(), signal.SIGKILL)
replace, os.replace = os.replace, stop
""",
    "before the run has its name": """
os.replace = lambda *_: os.kill(os.getpid(), signal.SIGKILL)
""",
}
RUN = """
import io, os, signal, sys
import pyarrow.parquet as pq
sys.path.insert(0, sys.argv[1])
from test_scale_decide import policy, recommend_stream
count, fitted = [0], policy()
{stop}
recommend_stream(fitted, sys.argv[2], sys.argv[3], batch_rows=60, identifier="id")
"""


@pytest.mark.parametrize("stop", STOPS)
def test_no_row_is_lost_or_doubled_when_the_process_is_killed(contexts, out, stop):
    code = RUN.format(stop=STOPS[stop])
    arguments = [str(Path(__file__).parent), str(contexts), str(out)]
    ended = subprocess.run(
        [sys.executable, "-c", code, *arguments], capture_output=True, check=False
    )
    assert ended.returncode == -signal.SIGKILL, ended.stderr.decode()
    done = {name: (out / name).read_bytes() for name in parts(out)}
    left = [p.name for p in out.iterdir() if p.name.startswith(".")]
    assert bool(left) == (stop != "after a part has its name")
    told = recommend_stream(policy(), contexts, out, batch_rows=60, identifier="id")
    assert read(out)["id"].to_pylist() == list(range(N))
    assert {name: (out / name).read_bytes() for name in done} == done
    assert told.resumed == sum(parquet.read_metadata(out / p).num_rows for p in done)
    assert not [p for p in out.glob(".part-*")]


def test_the_folder_of_another_run_is_refused(contexts, out):
    recommend_stream(policy(), contexts, out, batch_rows=100)
    kept = parts(out)
    text = "Expected the folder of the same run; got"
    refused(text, policy(), contexts, out, batch_rows=50)
    refused("batch_rows was 100 and is 50", policy(), contexts, out, batch_rows=50)
    refused("policy was", policy(), contexts, out, batch_rows=100, fingerprint="v2")
    refused("identifier was None and is 'id'", policy(), contexts, out,
            batch_rows=100, identifier="id")  # fmt: skip
    parquet.write_table(make_contexts(3), contexts / "9.parquet")
    refused("contexts was", policy(), contexts, out, batch_rows=100)
    assert parts(out) == kept


def test_resuming_can_be_ruled_out(contexts, out):
    recommend_stream(policy(), contexts, out, resume=False)
    text = "Expected a new folder, because resume=False; got"
    refused(text, policy(), contexts, out, resume=False)


def test_a_folder_with_other_files_is_refused(contexts, tmp_path):
    text = "with 3 other files, first '0.parquet'. Name another folder."
    refused(text, policy(), contexts, contexts)
    file = tmp_path / "file"
    file.write_text("")
    refused("Expected a folder to write decisions to", policy(), contexts, file)


def test_an_unreadable_manifest_is_refused(contexts, out):
    out.mkdir()
    (out / "_forestall.json").write_text("{")
    refused("Expected what a run is in", policy(), contexts, out)


def test_a_finished_part_that_is_damaged_is_named(contexts, out):
    recommend_stream(policy(), contexts, out)
    (out / parts(out)[0]).write_bytes(b"")
    refused("Delete this file and run again", policy(), contexts, out)
    (out / parts(out)[0]).unlink()
    assert recommend_stream(policy(), contexts, out).resumed == 250
    assert read(out).num_rows == N


def test_the_manifest_says_what_was_written(contexts, out):
    recommend_stream(policy(), contexts, out, fingerprint="v1")
    told = json.loads((out / "_forestall.json").read_text())
    assert told["run"]["policy"] == "v1"
    assert told["run"]["contexts"]["rows"] == N
    assert told["run"]["contexts"]["files"] == 3
    assert told["finished"] == {"rows": N, "act": 0, "leave": N, "abstain": 0}


def test_no_contexts_give_a_table_without_rows(tmp_path, out):
    contexts = written(tmp_path / "none", lengths=(0, 0))
    assert recommend_stream(policy(), contexts, out).rows == 0
    frame = policy().recommend(make_contexts(1)).to_frame()
    assert read(out).schema.names == frame.column_names
    assert read(out).num_rows == 0


def test_warnings_of_many_batches_are_given_once(tmp_path, out):
    table = make_contexts().to_pandas()
    table.loc[[5, 7, 333], "sector"] = "mining"
    table.loc[250:, "x1"] = 1e4
    path = tmp_path / "odd.parquet"
    table.to_parquet(path)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        told = recommend_stream(policy(), path, out, batch_rows=20)
    assert told.abstain == 3
    texts = {each.category: str(each.message) for each in caught}
    assert len(caught) == len(texts) == 2
    assert re.match(
        r"In 2 batches, first in that from row 0 of '.*odd\.parquet': 2 of 20 contexts "
        r"cannot be read; their rows abstain\. The first, in row 5: Expected a known ",
        texts[ForestallWarning],
    )
    assert texts[ExtrapolationWarning].startswith("In 8 batches, first in that from ")


def test_a_context_column_that_one_file_lacks_is_an_error_before_anything(
    contexts, out
):
    table = make_contexts(5).drop_columns(["x1"])
    parquet.write_table(table, contexts / "9.parquet")
    refused(
        "9.parquet': Expected the column 'x1' in the contexts", policy(), contexts, out
    )
    assert not out.exists()


def test_an_identifier_of_two_types_is_refused(contexts, out):
    table = make_contexts(5)
    table = table.set_column(0, "id", table["id"].cast(pa.string()))
    parquet.write_table(table, contexts / "9.parquet")
    text = "got 'id' as string, which is int64 in the first"
    refused(text, policy(), contexts, out, identifier="id")


def test_an_identifier_called_like_a_decision_is_refused(tmp_path, out):
    path = tmp_path / "a.parquet"
    parquet.write_table(
        make_contexts(5).rename_columns(["verdict", "x1", "sector", "i"]), path
    )
    text = "got 'verdict'. Rename it in the contexts."
    refused(text, policy(), path, out, identifier="verdict")


def test_memory_does_not_grow_with_the_number_of_contexts(tmp_path):
    def peak(n):
        path, held = tmp_path / f"{n}.parquet", []
        parquet.write_table(make_contexts(n), path)
        base = pa.total_allocated_bytes()
        see = lambda *_: held.append(pa.total_allocated_bytes() - base)  # noqa: E731
        tracemalloc.start()
        recommend_stream(
            policy(), path, tmp_path / f"out-{n}", batch_rows=150, progress=see
        )
        python = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return python, max(held)

    peak(150)
    (small, small_arrow), (large, large_arrow) = peak(450), peak(2400)
    assert large < 1.5 * small
    assert large_arrow < 1.5 * small_arrow + (1 << 16)


def test_a_digest_tells_policies_apart_and_outlives_fitting_anew():
    again = NoAction().fit(make_problem(), make_history())
    other = NoAction().fit(make_problem(), make_history(61))
    assert digest(again) == digest(policy())
    assert digest(other) != digest(policy())
    assert digest(policy().for_region(["y >= 0.3"])) != digest(policy())


def test_a_part_is_not_there_when_it_could_not_be_written(out, monkeypatch):
    sink = Sink.open(out, {"policy": "v1"})

    def full(*_):
        raise OSError("No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        sink.write(0, make_contexts(5), {"act": 5})
    assert sorted(p.name for p in out.iterdir()) == ["_forestall.json"]
    assert sink.finished() == {}


STREAMS = {
    "a folder": lambda path: path,
    "a pattern": lambda path: str(path / "*.parquet"),
    "a pattern of any suffix": lambda path: path / "0.*",
    "a dataset": lambda path: ds.dataset(str(path)),
}


@pytest.mark.parametrize("kind", STREAMS)
def test_recommend_names_what_takes_a_stream_and_that_takes_it(tmp_path, kind):
    contexts = STREAMS[kind](written(tmp_path / "in"))
    with pytest.raises(DataError, match="taken by fit and recommend_to"):
        policy().recommend(contexts)
    told = policy().recommend_to(tmp_path / "out", contexts)
    assert told.rows == (150 if "any suffix" in kind else N)


def test_recommend_names_what_takes_a_frame_of_dask():
    dd = pytest.importorskip("dask.dataframe")
    frame = dd.from_pandas(make_contexts(20).to_pandas(), npartitions=2)
    with pytest.raises(DataError, match=r"DataFrame\. Convert .* and recommend_to\."):
        policy().recommend(frame)


def test_what_is_no_stream_is_not_sent_elsewhere():
    with pytest.raises(DataError, match=r"got int\. Convert it to one of these\.$"):
        policy().recommend(3)
