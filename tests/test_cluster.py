"""A cluster of real processes gives what one machine gives, also when one is killed."""

import logging
import os
import signal
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.dataset as ds
import pytest
from pyarrow import csv, parquet

import forestall
from forestall import NestedRehearsal, Problem
from forestall.errors import DataError, FitError, MissingExtraError, SpecError
from forestall.lowrank import Nystrom
from forestall.reduced import Counting
from forestall.scale import Source, Streamed, on, recommend_stream
from forestall.scale.sending import explained
from worlds import LENDING, lending

pytest.importorskip("distributed")

# Of its own sockets and loops Dask lets go when it gets to it.
pytestmark = [
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
    pytest.mark.filterwarnings("ignore:.*:DeprecationWarning:distributed"),
]
N, SIZE = 2_400, 300
METHOD = NestedRehearsal(approximation=Nystrom(rank=40))


@pytest.fixture(scope="module")
def client():
    from distributed import Client, LocalCluster

    with (
        LocalCluster(
            n_workers=2,
            threads_per_worker=1,
            processes=True,
            dashboard_address=":0",
            memory_limit="2GB",
            silence_logs=logging.CRITICAL,
        ) as cluster,
        Client(cluster) as client,
    ):
        yield client


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("records")
    table = pa.table(lending(N))
    for k, rows in enumerate((slice(0, 1_500), slice(1_500, 1_500), slice(1_500, N))):
        part = table.slice(rows.start, rows.stop - rows.start)
        parquet.write_table(part, path / f"{k}.parquet", row_group_size=350)
    return path


@pytest.fixture(autouse=True)
def _small_pieces(monkeypatch):
    monkeypatch.setattr("forestall.scale.cluster.PIECE", 400)
    monkeypatch.setattr("forestall.scale.decide.PIECE", 400)


@dataclass(frozen=True)
class Once:
    """Kills the process that it is in, once."""

    flag: Path
    work: Any

    def __call__(self, data):
        if not self.flag.exists():
            self.flag.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return self.work(data)


@dataclass(frozen=True)
class Mortal:
    """A policy whose first batch kills its process, and its first third did not."""

    policy: Any
    flag: Path

    @property
    def schema(self):
        return self.policy.schema

    def recommend(self, contexts):
        return Once(self.flag, self.policy.recommend)(contexts)


def counting(supply):
    policy = METHOD.fit(LENDING, supply)
    return Counting(policy.systems.plan, policy.records.adjusted, LENDING.region)


def assert_same_sums(ours, theirs):
    assert ours.grams.n == theirs.grams.n
    for name in ("inner", "outer", "embedded"):
        one, other = (np.tril(getattr(each.grams, name)) for each in (ours, theirs))
        np.testing.assert_allclose(one, other, rtol=1e-10, atol=1e-10)
    for name in ("inner", "natural", "good"):
        one, other = (getattr(each.crosses, name) for each in (ours, theirs))
        np.testing.assert_allclose(one, other, rtol=1e-10, atol=1e-10)


def assert_same_survey(ours, theirs):
    assert (ours.n, ours.n_good) == (theirs.n, theirs.n_good)
    np.testing.assert_allclose(ours.range, theirs.range, rtol=1e-10)
    for name in ("x", "u", "a", "y", "y_raw"):
        one, other = (getattr(each.sample, name) for each in (ours, theirs))
        np.testing.assert_allclose(one, other, rtol=1e-10, atol=1e-10)


def kinds(folder, tmp_path):
    """The same records as Parquet files, as CSV files, and as a Dask DataFrame."""
    import dask.dataframe as dd

    table = ds.dataset(str(folder)).to_table()
    (tmp_path / "csv").mkdir()
    for k in range(2):
        part = table.slice(1_200 * k, 1_200)
        csv.write_csv(part, tmp_path / "csv" / f"{k}.csv")
    frame = dd.from_pandas(table.to_pandas(), npartitions=4)
    return [folder, ds.dataset(str(folder)), tmp_path / "csv", frame]


def test_a_cluster_surveys_and_sums_as_a_stream_does(client, folder, tmp_path):
    alone = Streamed.of(LENDING, Source.read(folder), SIZE)
    count = counting(alone)
    expected = alone.total(count)
    for records in kinds(folder, tmp_path):
        spread = on(client, records).supply(LENDING, SIZE, 0)
        assert_same_survey(spread, alone)
        assert_same_sums(spread.total(count), expected)


def test_a_worker_killed_in_mid_job_changes_no_sum(client, folder, tmp_path):
    alone = Streamed.of(LENDING, Source.read(folder), SIZE)
    count, flag = counting(alone), tmp_path / "killed"
    spread = on(client, folder).supply(LENDING, SIZE, 0)
    found = spread.total(Once(flag, count))
    assert flag.exists()
    assert_same_sums(found, alone.total(count))


def test_a_frame_is_a_history_for_the_current_client(client, folder):
    import dask.dataframe as dd

    frame = dd.from_pandas(pd.DataFrame(lending(N)), npartitions=3)
    by_frame, by_stream = (METHOD.fit(LENDING, history) for history in (frame, folder))
    contexts = {"score": [0.2, 0.7], "debt": [0.5, 0.1]}
    told = [policy.recommend(contexts) for policy in (by_frame, by_stream)]
    np.testing.assert_allclose(*(each.probability for each in told), atol=1e-6)


PRICING = Problem(
    context=["score"],
    actions={"rate": (0.0, 1.0)},
    outcomes=["roi"],
    desired=["roi >= 0.3"],
)
STAGED = forestall.StagedRehearsal(n_draws=4, search=forestall.Search(n_draws=2))


def staged_counting(supply, monkeypatch):
    """What a staged fit has every batch of these records counted by, pass by pass."""
    heard, total = [], Streamed.total
    with monkeypatch.context() as patch:
        patch.setattr(Streamed, "total", lambda s, w: heard.append(w) or total(s, w))
        with pytest.warns(forestall.ForestallWarning, match="a sample of 100"):
            STAGED.fit(PRICING, supply)
    first, second = heard
    return first, second


def test_the_sums_of_mechanisms_are_those_of_a_stream(client, folder, monkeypatch):
    alone = Streamed.of(PRICING, Source.read(folder), 100)
    first, second = staged_counting(alone, monkeypatch)
    spread = on(client, folder).supply(PRICING, 100, 0)
    found = [each.total(first).parts for each in (spread, alone)]
    moments = [means.moments for means, _, _ in found]
    loudness = [heard.tallies for _, heard, _ in found]
    groups = [gathered for _, _, gathered in found]
    laws = [each.total(second).tallies for each in (spread, alone)]
    for ours, theirs in (moments, loudness, laws):
        assert list(ours) == list(theirs)
        assert {each.n for each in ours.values()} == {N}
        for key, one in ours.items():
            assert_same_fields(one, theirs[key])
    assert groups[0].counts.sum() == N
    assert_same_fields(*groups)


def assert_same_fields(ours, theirs):
    for name, value in vars(ours).items():
        other = getattr(theirs, name)
        np.testing.assert_allclose(value, other, rtol=1e-10, atol=1e-10)


def test_mechanisms_are_counted_on_the_workers_too(client, folder):
    spread = on(client, folder).supply(PRICING, 100, 0)
    alone = Streamed.of(PRICING, Source.read(folder), 100)
    with pytest.warns(forestall.ForestallWarning, match="a sample of 100"):
        one, other = (STAGED.fit(PRICING, supply) for supply in (spread, alone))
    for ours, theirs in zip(one.system.outcomes, other.system.outcomes, strict=True):
        z, draws = one.data.x[:, [0, 0]], np.array([0])
        told = (each.mechanism(z, draws) for each in (ours, theirs))
        np.testing.assert_allclose(*told, atol=1e-8)
        for name in ("grid", "below"):
            laws = (getattr(each.law, name) for each in (ours, theirs))
            np.testing.assert_allclose(*laws, atol=1e-8)
    v = np.random.default_rng(0).normal(size=(50, 2))
    densities = (policy.joint.log_density(v) for policy in (one, other))
    np.testing.assert_allclose(*densities, atol=1e-8)


def test_decisions_of_a_cluster_are_those_of_one_machine(client, folder, tmp_path):
    policy = METHOD.fit(LENDING, lending(200))
    alone = recommend_stream(policy, folder, tmp_path / "alone", batch_rows=200)
    seen = []
    spread = recommend_stream(
        Mortal(policy, tmp_path / "killed"),
        on(client, folder),
        tmp_path / "spread",
        batch_rows=200,
        fingerprint="the same",
        progress=lambda done, total: seen.append((done, total)),
    )
    assert (tmp_path / "killed").exists()
    assert seen[-1] == (N, N)
    assert str(replace(alone, seconds=0.0, folder=spread.folder)) == str(
        replace(spread, seconds=0.0, resumed=0)
    )
    tables = [ds.dataset(str(each.folder)).to_table() for each in (alone, spread)]
    assert tables[0].equals(tables[1])
    names = [{p.name for p in each.folder.iterdir()} for each in (alone, spread)]
    assert names[0] == names[1]


def test_a_stopped_run_goes_on_with_or_without_a_cluster(client, folder, tmp_path):
    policy, out = METHOD.fit(LENDING, lending(200)), tmp_path / "out"
    recommend_stream(policy, folder, out, batch_rows=200)
    before = ds.dataset(str(out)).to_table()
    for k in (0, 3, 7):
        sorted(out.glob("part-*"))[k].unlink()
    told = recommend_stream(policy, on(client, folder), out, batch_rows=200)
    assert told.resumed == N - 3 * 200
    assert ds.dataset(str(out)).to_table().equals(before)
    again = recommend_stream(policy, folder, out, batch_rows=200)
    assert again.resumed == N


def test_a_frame_of_contexts_is_decided_by_partitions(client, tmp_path):
    import dask.dataframe as dd

    policy, contexts = METHOD.fit(LENDING, lending(200)), pd.DataFrame(lending(300))
    frame = dd.from_pandas(contexts, npartitions=3)
    told = recommend_stream(policy, frame, tmp_path / "out")
    decided = ds.dataset(str(told.folder)).to_table().to_pandas()
    expected = policy.recommend(contexts).to_frame()
    np.testing.assert_allclose(decided["rate"], expected["rate"], atol=1e-9)
    assert recommend_stream(policy, frame, tmp_path / "out").resumed == 300


def test_an_error_on_a_worker_says_where_the_record_is(client, folder, tmp_path):
    table = ds.dataset(str(folder)).to_table()
    gap = table.slice(0, 1_000).to_pandas()
    gap.loc[777, "debt"] = np.nan
    path = tmp_path / "gap.parquet"
    parquet.write_table(pa.Table.from_pandas(gap), path, row_group_size=300)
    with pytest.raises(DataError, match=r"'debt' has 1 missing \(first in row 777 of"):
        on(client, path).supply(LENDING, SIZE, 0)
    with pytest.raises(DataError, match=r"In '.*other.parquet': .*'roi'"):
        on(client, _without(path, "roi")).supply(LENDING, SIZE, 0)


def _without(path, name):
    other = path.with_name("other.parquet")
    parquet.write_table(parquet.read_table(path).drop_columns([name]), other)
    return other


def test_without_a_client_threads_do_the_work(folder):
    import dask

    alone = Streamed.of(LENDING, Source.read(folder), SIZE)
    with dask.config.set(scheduler="threads"):
        spread = on(None, folder).supply(LENDING, SIZE, 0)
        assert_same_survey(spread, alone)
        count = counting(alone)
        assert_same_sums(spread.total(count), alone.total(count))


def test_without_dask_the_error_names_the_extra(monkeypatch, folder):
    monkeypatch.setitem(sys.modules, "dask", None)
    with pytest.raises(MissingExtraError, match=r"'dask'.*forestall\[scale\]"):
        on(None, folder)


def test_the_client_comes_first(folder):
    with pytest.raises(SpecError, match=r"Expected a client .* got str\. Pass"):
        on("data/*.parquet", None)


def test_workers_that_die_of_a_task_are_told_of():
    class KilledWorker(Exception):
        pass

    with pytest.raises(FitError, match=r"several that died of one: 4 deaths\. G"):
        with explained():
            raise KilledWorker("4 deaths.")
