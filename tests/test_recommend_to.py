"""Policies decide for streams of contexts as they do for tables."""

import io

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from rich.console import Console

from forestall import NestedRehearsal, SpecError, baselines, method
from forestall.errors import ForestallWarning
from forestall.scale import decide, on, recommend_stream
from forestall.table import read_table
from worlds import LENDING, contexts_of, lending


def test_a_policy_writes_the_decisions_it_would_have_made(tmp_path):
    policy = baselines.NoAction().fit(LENDING, lending(80))
    contexts = contexts_of(LENDING, lending(80), slice(0, 20))
    path = tmp_path / "contexts.parquet"
    table = pa.table({k: np.asarray(v) for k, v in contexts.items()})
    pq.write_table(table, path)
    written = policy.recommend_to(tmp_path / "out", path)
    assert written.rows == table.num_rows
    (part,) = (tmp_path / "out").glob("*.parquet")
    told = read_table(part)
    direct = policy.recommend(table)
    assert told["verdict"].to_pylist() == direct.verdict
    assert told["probability"].to_numpy() == pytest.approx(direct.probability)


def test_progress_within_a_batch_moves_no_decision_and_places_warnings(
    tmp_path, monkeypatch
):
    policy = baselines.NoAction().fit(LENDING, lending(80))
    monkeypatch.setattr(method, "FEWEST", 8)
    monkeypatch.setattr(method, "MOST", 8)
    contexts = contexts_of(LENDING, lending(80), slice(0, 20))
    table = pa.table({k: np.asarray(v) for k, v in contexts.items()})
    gap = [None if i == 13 else v for i, v in enumerate(table["score"].to_pylist())]
    path, seen = tmp_path / "contexts.parquet", []
    pq.write_table(table.set_column(0, "score", pa.array(gap)), path)
    with pytest.warns(ForestallWarning, match="from row 8 of .* in row 5: "):
        recommend_stream(
            policy, path, tmp_path / "told", progress=lambda *now: seen.append(now)
        )
    with pytest.warns(ForestallWarning, match="from row 0 of .* in row 13: "):
        recommend_stream(policy, path, tmp_path / "untold")
    assert seen == [(8, 20), (16, 20), (20, 20)]
    told, untold = (
        pq.read_table(tmp_path / name).to_pydict() for name in ("told", "untold")
    )
    assert told["verdict"].count("abstain") == 1
    for name, column in told.items():
        if name in ("verdict", "reason", "extrapolates"):
            assert column == untold[name]
        else:
            np.testing.assert_allclose(column, untold[name], atol=1e-12)


@pytest.fixture
def policy():
    return NestedRehearsal().fit(LENDING, lending(60))


@pytest.fixture
def path(tmp_path):
    found = contexts_of(LENDING, lending(50, seed=1), slice(None))
    table = pa.table({k: np.asarray(v) for k, v in found.items()})
    pq.write_table(table, tmp_path / "contexts.parquet")
    return tmp_path / "contexts.parquet"


@pytest.fixture
def small_blocks(monkeypatch):
    monkeypatch.setattr(method, "FEWEST", 8)
    monkeypatch.setattr(method, "MOST", 8)


@pytest.fixture
def screen(monkeypatch):
    written = io.StringIO()
    terminal = Console(file=written, force_terminal=True, width=100)
    monkeypatch.setattr("rich.console.Console", lambda **_: terminal)
    monkeypatch.setattr(method, "PATIENCE", 0.0)
    return written


@pytest.mark.usefixtures("small_blocks")
@pytest.mark.parametrize("jobs", [1, 2])
def test_a_long_stream_shows_its_rows_on_a_terminal(
    policy, path, tmp_path, screen, monkeypatch, jobs
):
    monkeypatch.setattr(decide, "TOGETHER", 1)
    # A second bar, of a batch, would be refused on the same terminal.
    policy.recommend_to(tmp_path / "shown", path, jobs=jobs)
    assert "deciding" in screen.getvalue()
    assert "/50" in screen.getvalue()
    screen.truncate(0)
    monkeypatch.setattr(method, "PATIENCE", 60.0)
    policy.recommend_to(tmp_path / "soon", path)
    assert "deciding" not in screen.getvalue()


@pytest.mark.usefixtures("small_blocks")
def test_who_asks_to_be_told_is_told_and_no_bar_is_shown(
    policy, path, tmp_path, screen
):
    seen = []
    recommend_stream(
        policy, path, tmp_path / "out", progress=lambda *now: seen.append(now)
    )
    assert seen[-1] == (50, 50)
    assert screen.getvalue() == ""
    policy.recommend(pq.read_table(path))
    assert "deciding" in screen.getvalue()


@pytest.mark.usefixtures("small_blocks")
def test_a_stream_shows_nothing_where_there_is_no_terminal(
    policy, path, tmp_path, monkeypatch, capsys
):
    monkeypatch.setattr(method, "PATIENCE", 0.0)
    policy.recommend_to(tmp_path / "out", path)
    assert capsys.readouterr() == ("", "")


@pytest.mark.usefixtures("small_blocks")
@pytest.mark.parametrize("told", [True, False])
def test_what_is_written_does_not_depend_on_the_number_of_processes(
    policy, path, tmp_path, told
):
    progress = (lambda *_: None) if told else None
    for jobs in (1, 2):
        out = tmp_path / f"out-{jobs}"
        recommend_stream(policy, path, out, batch_rows=30, jobs=jobs, progress=progress)
    alone, shared = (pq.read_table(tmp_path / f"out-{jobs}") for jobs in (1, 2))
    assert alone.num_rows == 50
    assert shared.equals(alone)


def test_warnings_of_a_stream_point_at_the_line_that_asked(policy, tmp_path):
    table = pa.table({name: [99.0] for name in policy.problem.context})
    pq.write_table(table, tmp_path / "far.parquet")
    with pytest.warns(ForestallWarning, match="far outside history") as told:
        policy.recommend_to(tmp_path / "out", tmp_path / "far.parquet")
    assert {each.filename for each in told} == {__file__}


def test_a_run_goes_on_with_another_number_of_processes(policy, path, tmp_path):
    policy.recommend_to(tmp_path / "out", path)
    assert policy.recommend_to(tmp_path / "out", path, jobs=2).resumed == 50


@pytest.mark.parametrize("jobs", [0, True])
def test_the_number_of_processes_is_checked(policy, path, tmp_path, jobs):
    with pytest.raises(SpecError, match="Expected jobs above zero and whole; got"):
        policy.recommend_to(tmp_path / "out", path, jobs=jobs)
    assert not (tmp_path / "out").exists()


def test_several_processes_are_refused_on_a_cluster(policy, path, tmp_path):
    pytest.importorskip("dask")
    expected = r"on a cluster, whose .*; got jobs=2\. Leave it out, and add workers"
    with pytest.raises(SpecError, match=expected):
        policy.recommend_to(tmp_path / "out", on(None, path), jobs=2)


class Bare:
    """A policy that can do no more than it must."""

    def __init__(self, policy):
        self.schema, self.policy = policy.schema, policy

    def recommend(self, contexts):
        return self.policy.recommend(contexts)


def test_a_policy_that_shares_no_work_decides_alone(policy, path, tmp_path):
    bare = Bare(policy)
    assert recommend_stream(bare, path, tmp_path / "alone").rows == 50
    with pytest.raises(SpecError, match=r"got jobs=2 for a Bare\. Leave it out\.$"):
        recommend_stream(bare, path, tmp_path / "shared", jobs=2)
