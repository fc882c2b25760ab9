"""A fit from a stream is the fit of the same records in memory."""

from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet

import forestall
from forestall import ConditionalRehearsal, NestedRehearsal, Problem, baselines
from forestall.baselines.drift import Drift
from forestall.errors import FitError, ForestallWarning, SpecError
from forestall.lowrank import Nystrom, RandomFourier
from forestall.observations import Observations
from forestall.scale import Held, Source, Streamed
from forestall.scale.supply import SAMPLE, held, in_order, is_stream, kept
from worlds import DOSING, LENDING, contexts_of, dosing, lending

N, SIZE = 900, 250
# Normal equations magnify the rounding of their sums, the more the less they are
# penalised.
STIFF = {"outcome_penalty": 1e-2, "context_penalty": 1e-2}
METHODS = [
    NestedRehearsal(approximation=Nystrom(rank=60), **STIFF),
    NestedRehearsal(approximation=Nystrom(rank=40, landmarks="kmeans"), **STIFF),
    NestedRehearsal(approximation=RandomFourier(n_features=80), **STIFF),
    NestedRehearsal(approximation=Nystrom(rank=60), bandwidth="auto", **STIFF),
    ConditionalRehearsal(approximation=Nystrom(rank=60), **STIFF),
]
RIVALS = [
    baselines.NoAction(),
    baselines.LinearOptimal(n_draws=20),
    baselines.CARE(n_draws=20),
    baselines.QWZ23(n_draws=20, n_worlds=20, n_fresh=50),
    baselines.MICNS(n_draws=20, drift=Drift()),
]


def written(history, path, pieces=3):
    path.mkdir()
    table = pa.table(history)
    for k, rows in enumerate(np.array_split(np.arange(table.num_rows), pieces)):
        part = table.slice(int(rows[0]), len(rows))
        parquet.write_table(part, path / f"{k}.parquet", row_group_size=100)
    return path


def streamed(problem, path, size=SIZE):
    return Streamed.of(problem, Source.read(path), size)


def answers(policy, problem, history):
    """What is believed of given actions: an ascent would magnify the rounding."""
    contexts = contexts_of(problem, history, slice(0, 40))
    actions = {k: (low + high) / 2 for k, (low, high) in problem.actions.items()}
    told = policy.evaluate(contexts, actions)
    return np.column_stack([told.probability, told.lower, told.upper, told.no_action])


@pytest.mark.parametrize("method", METHODS)
def test_a_stream_gives_the_fit_of_the_same_records_and_sample_in_memory(
    method, tmp_path
):
    history = lending(N)
    supply = streamed(LENDING, written(history, tmp_path / "data"))
    data = in_order(held(supply).data)
    by_stream = method.fit(LENDING, supply)
    in_memory = method.fit(LENDING, Held(data, supply.sample))
    assert by_stream.data.n == SIZE
    np.testing.assert_allclose(
        answers(by_stream, LENDING, history),
        answers(in_memory, LENDING, history),
        atol=1e-8,
    )


@pytest.mark.parametrize("method", RIVALS, ids=lambda m: type(m).__name__)
@pytest.mark.filterwarnings("ignore:The records are not linear")
def test_a_rival_reads_all_of_a_stream_into_memory_in_its_order(method, tmp_path):
    history = dosing(N)
    path = written(history, tmp_path / "data")
    by_stream, in_memory = method.fit(DOSING, path), method.fit(DOSING, history)
    np.testing.assert_allclose(by_stream.data.x, in_memory.data.x, atol=1e-12)
    np.testing.assert_allclose(
        answers(by_stream, DOSING, history),
        answers(in_memory, DOSING, history),
        atol=1e-8,
    )


def test_a_sample_of_all_records_is_the_fit_of_the_table(tmp_path):
    history, method = dosing(N), NestedRehearsal(approximation=Nystrom(rank=80))
    by_stream = method.fit(DOSING, written(history, tmp_path / "data"))
    in_memory = method.fit(DOSING, history)
    told = [answers(policy, DOSING, history) for policy in (by_stream, in_memory)]
    np.testing.assert_allclose(*told, atol=1e-6)


def test_an_exact_fit_reads_a_stream_that_fits_into_memory(tmp_path):
    history = lending(300)
    by_stream = NestedRehearsal().fit(
        LENDING, streamed(LENDING, written(history, tmp_path / "data"), 50)
    )
    in_memory = NestedRehearsal().fit(LENDING, history)
    told = [answers(policy, LENDING, history) for policy in (by_stream, in_memory)]
    np.testing.assert_allclose(*told, atol=1e-8)


def test_an_exact_fit_refuses_a_stream_that_does_not(tmp_path, monkeypatch):
    supply = streamed(LENDING, written(lending(N), tmp_path / "data"))
    monkeypatch.setattr("forestall.solution.os.sysconf", lambda _: 2_000)
    with pytest.raises(FitError, match=r"got 900, .*approximation=Nystrom\(rank=500\)"):
        NestedRehearsal().fit(LENDING, supply)


def test_of_a_stream_only_the_sample_is_kept_and_no_other_region_is_answered(tmp_path):
    supply = streamed(LENDING, written(lending(N), tmp_path / "data"))
    policy = NestedRehearsal(approximation=Nystrom(rank=50)).fit(LENDING, supply)
    assert policy.records.data.n == SIZE
    assert policy.systems.n == N
    text = "Expected all 900 records, .* got 250 of them, the sample"
    with pytest.raises(SpecError, match=text):
        policy.for_region(["roi >= 0.4"])


def test_what_is_counted_is_counted_over_all_records(tmp_path):
    history = lending(N)
    history["score"][7] = 40.0
    history["repaid"] -= 0.2
    data = Observations.read(LENDING, history)
    supply = streamed(LENDING, written(history, tmp_path / "data"))
    # A record that is not in the sample bounds what history has seen.
    assert supply.sample.x[:, 0].max() < data.x[:, 0].max()
    assert (supply.n, supply.n_good) == (data.n, int(data.good.sum()))
    np.testing.assert_allclose(supply.range, Held(data, data).range)
    policy = NestedRehearsal(approximation=Nystrom(rank=50)).fit(LENDING, supply)
    np.testing.assert_allclose(policy.horizon.upper, data.x.max(axis=0))
    assert policy.solution.n_good == supply.n_good
    assert policy.records.share == pytest.approx(data.good.mean())


def test_penalties_are_for_all_records_and_not_for_those_of_the_sample(tmp_path):
    supply = streamed(LENDING, written(lending(N), tmp_path / "data"))
    method = NestedRehearsal(approximation=Nystrom(rank=50), bandwidth="auto")
    setting = method.fit(LENDING, supply).setting
    assert setting.outcome_penalty * N == pytest.approx(setting.choice.outcome.ratio)


def test_batches_without_complete_records_change_nothing(tmp_path):
    problem, history = replace(LENDING, missing="drop"), lending(N)
    for name in ("score", "rate"):
        history[name][300:600] = np.nan
    folder = written(history, tmp_path / "data")
    method = NestedRehearsal(approximation=Nystrom(rank=50), **STIFF)
    supply = streamed(problem, folder)
    data = in_order(held(supply).data)
    told = [
        answers(method.fit(problem, each), problem, lending(40))
        for each in (supply, Held(data, supply.sample))
    ]
    assert supply.n == 600
    np.testing.assert_allclose(*told, atol=1e-8)


def test_a_table_in_memory_is_kept_whole_and_in_its_order(tmp_path):
    history = lending(6_000)
    assert not is_stream(tmp_path / "absent.parquet")
    supply = kept(LENDING, history)
    assert held(supply) is supply
    np.testing.assert_array_equal(supply.sample.y_raw[:, 0], history["repaid"])


def test_the_default_samples_a_large_table_says_so_and_counts_all(monkeypatch):
    n, counts, total = SAMPLE + 1, [], Held.total
    problem = Problem(
        context=["score"],
        actions={"rate": (0.0, 1.0)},
        outcomes=["roi"],
        desired=["roi >= 0.3"],
    )
    monkeypatch.setattr(
        Held, "total", lambda s, work: counts.append(total(s, work)) or counts[-1]
    )
    text = (
        r"There are 5,001 records: .* a sample of 5,000; means, laws and support are "
        r"learned from all of them, in low rank: with at most 200 centres each"
    )
    with pytest.warns(ForestallWarning, match=text):
        policy = forestall.fit(problem, lending(n))
    assert (policy.data.n, policy.n_records) == (SAMPLE, n)
    # One pass for means, how loud they are and support, one for the laws.
    first, laws = counts
    means, loudness, groups = first.parts
    assert {each.n for each in means.moments.values()} == {n}
    for strays in (loudness, laws):
        assert {each.n for each in strays.tallies.values()} == {n}
    assert groups.counts.sum() == n


@pytest.mark.parametrize("n", [SAMPLE - 1, SAMPLE])
def test_up_to_the_size_of_the_sample_all_records_are_kept(n):
    data = Observations.read(LENDING, lending(n))
    assert not Held.of(data).sampled
