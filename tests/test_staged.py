"""Rehearsing stage by stage: algebra against slow simulation, and stories."""

from dataclasses import fields, is_dataclass, replace

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from scipy.special import ndtr

import forestall
from forestall import (
    ForestallWarning,
    NestedRehearsal,
    Problem,
    Search,
    SpecError,
    StagedRehearsal,
    tasks,
)
from forestall.region import Polytope
from forestall.rehearsal import NEAR, Noise, bounds
from forestall.staged import Told, quantile
from worlds import LENDING, contexts_of, lending

QUICK = StagedRehearsal(
    n_draws=24,
    n_paths=32,
    search=Search(n_screened=64, n_kept=12, n_starts=2, n_steps=4, n_draws=12),
)


@pytest.fixture(scope="module")
def policy():
    return QUICK.fit(LENDING, lending(300))


@pytest.fixture(scope="module")
def between():
    task = tasks.get("non-syn2")
    return QUICK.fit(task.problem, task.history(300, seed=0))


def arrays_of(value):
    """All arrays that an object holds, in whatever depth."""
    if isinstance(value, np.ndarray):
        return [value]
    if isinstance(value, (tuple, list)):
        return [each for part in value for each in arrays_of(part)]
    if is_dataclass(value):
        return [a for f in fields(value) for a in arrays_of(getattr(value, f.name))]
    return []


def test_processes_that_share_a_fit_change_nothing(policy):
    shared = QUICK.fit(LENDING, lending(300), jobs=2)
    alone, together = arrays_of(policy.system), arrays_of(shared.system)
    assert len(alone) == len(together) > 10
    for one, other in zip(alone, together, strict=True):
        np.testing.assert_array_equal(one, other)


def test_processes_that_share_a_large_fit_change_nothing(tmp_path):
    pq.write_table(pa.table(lending(5_200)), tmp_path / "history.parquet")
    systems = []
    for jobs in (1, 2):
        with pytest.warns(ForestallWarning, match="There are 5,200 records"):
            fitted = QUICK.fit(LENDING, tmp_path / "history.parquet", jobs=jobs)
        systems.append(arrays_of(fitted.system))
    for one, other in zip(*systems, strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("rows", [0, 1, 3, 17])
def test_processes_that_share_few_contexts_change_nothing(policy, rows):
    contexts = contexts_of(LENDING, lending(40), slice(0, rows))
    alone, together = (policy.recommend(contexts, jobs=jobs) for jobs in (1, 8))
    assert len(together) == rows
    np.testing.assert_allclose(together.actions, alone.actions, atol=1e-9)
    np.testing.assert_allclose(together.probability, alone.probability, atol=1e-9)


@pytest.mark.parametrize("jobs", [0, -1, True])
def test_no_process_cannot_share_a_fit(jobs):
    with pytest.raises(SpecError, match="Expected jobs above zero and whole; got"):
        forestall.fit(LENDING, lending(300), jobs=jobs)


def rehearsed(policy, x, a, n_paths=16, gradient=False, altered=None):
    system = policy.system
    noise = Noise.drawn(system.n_noises, n_paths, 3, np.random.default_rng(0))
    if altered is None:
        altered = np.ones(system.n_actions, dtype=bool)
    return system.success(x, a, altered, np.array([0, 1, 5]), noise, gradient=gradient)


def slow_success(policy, x, a, n, seed):
    """Simulate path by path with the mean functions: loops and plain comparisons."""
    system, rng = policy.system, np.random.default_rng(seed)
    draw = np.array([0])
    good = 0
    for _ in range(n):
        state = np.full(system.width, np.nan)
        state[: len(x)] = x
        for node in system.nodes:
            if node.action is not None:
                state[node.columns] = a[node.action]
                continue
            z = state[node.inputs][None]
            mean = node.mechanisms[0](z, draw)[0, 0]
            state[node.columns] = mean + node.law.at(z, 0).quantile(rng.random(1))[0]
        first = system.width - len(system.outcomes)
        for k, outcome in enumerate(system.outcomes):
            z = state[outcome.inputs][None]
            mean = outcome.mechanism(z, draw)[0, 0]
            stray = outcome.law.at(z, 0).quantile(rng.random(1))[0]
            state[first + k] = mean + stray
        good += bool(
            (system.region.normals @ state[first:] <= system.region.offsets).all()
        )
    return good / n


@pytest.mark.parametrize("name", ["policy", "between"])
def test_success_equals_slow_simulation(name, request):
    policy = request.getfixturevalue(name)
    x, a = policy.data.x[:2], policy.data.a[:2]
    fast = rehearsed(policy, x, a, n_paths=256).value[:, 0]
    slow = [slow_success(policy, x[i], a[i], 1500, i) for i in range(2)]
    np.testing.assert_allclose(fast, slow, atol=0.045)


@pytest.mark.parametrize("name", ["policy", "between"])
def test_the_gradient_points_where_success_rises(name, request):
    policy = request.getfixturevalue(name)
    x, a = policy.data.x[:6], 0.5 * policy.data.a[:6]
    told = rehearsed(policy, x, a, n_paths=64, gradient=True)
    slopes = np.stack(
        [
            (
                rehearsed(policy, x, a + step, 64).value
                - rehearsed(policy, x, a - step, 64).value
            )
            / 0.06
            for step in 0.03 * np.eye(a.shape[1])
        ],
        axis=2,
    )
    cosine = (slopes * told.gradient).sum() / np.sqrt(
        (slopes**2).sum() * (told.gradient**2).sum()
    )
    assert cosine > 0.95


def test_pairs_are_rehearsed_as_if_they_were_alone(policy):
    x, a = policy.data.x[:5], policy.data.a[:5]
    together = rehearsed(policy, x, a).value
    alone = [rehearsed(policy, x[i : i + 1], a[i : i + 1]).value[0] for i in range(5)]
    np.testing.assert_allclose(together, alone, atol=1e-9)


def test_bounds_come_from_the_constraints_in_which_an_outcome_is_last():
    region = Polytope.parse(["y >= 0", "y + z <= 2", "z - y >= -1"], ["y", "z"])
    before = np.array([[0.5], [1.5]])
    lower, upper = bounds(region, 0, before[:, :0])
    np.testing.assert_allclose(lower, [0.0, 0.0], atol=2 * NEAR)
    assert np.isinf(upper).all()
    lower, upper = bounds(region, 1, before)
    np.testing.assert_allclose(lower, [-0.5, 0.5])
    np.testing.assert_allclose(upper, [1.5, 0.5])


def test_dependent_outcomes_stay_dependent():
    rng = np.random.default_rng(0)
    n = 600
    x, a = rng.normal(size=(2, n))
    shared = rng.normal(size=n)
    history = {"x": x, "a": a, "y": shared, "z": shared + 0.05 * rng.normal(size=n)}
    problem = Problem(
        context=["x"],
        actions={"a": (-1.0, 1.0)},
        outcomes=["y", "z"],
        desired=["y >= 0", "z <= 0"],
    )
    told = QUICK.fit(problem, history).evaluate({"x": [0.0]}, {"a": 0.0})
    truth = np.mean((history["y"] >= 0) & (history["z"] <= 0))
    assert told.probability[0] == pytest.approx(truth, abs=0.03)
    assert told.probability[0] < 0.1


def test_what_lies_between_two_actions_is_no_trouble():
    task = tasks.get("non-syn2")
    history, contexts = task.history(600, seed=1), task.contexts(6, seed=1)

    def success(method):
        told = method.fit(task.problem, history).recommend(contexts)
        rows = [{k: float(v[i]) for k, v in contexts.items()} for i in range(6)]
        return np.mean(
            [task.success(row, told[i].actions, 1000, 3) for i, row in enumerate(rows)]
        )

    with pytest.warns(forestall.ForestallWarning, match="may be biased"):
        nested = success(NestedRehearsal())
    assert success(QUICK) > nested + 0.15


def test_the_dose_that_nobody_ever_gave_is_no_temptation():
    task = tasks.get("dosing")
    contexts = task.contexts(8, seed=2)
    told = QUICK.fit(task.problem, task.history(600, seed=2)).recommend(contexts)
    rows = [{k: float(v[i]) for k, v in contexts.items()} for i in range(8)]
    success = np.mean(
        [task.success(row, told[i].actions, 1000, 3) for i, row in enumerate(rows)]
    )
    none = np.mean([task.success(row, None, 1000, 3) for row in rows])
    best = np.mean([task.oracle(row)[1] for row in rows])
    assert success - none > 0.7 * (best - none)
    assert np.mean(told.probability) == pytest.approx(success, abs=0.1)


def test_an_action_that_does_nothing_is_not_recommended():
    task = tasks.get("placebo")
    told = QUICK.fit(task.problem, task.history(400, seed=0)).recommend(
        task.contexts(20, seed=0)
    )
    assert told.verdict.count("act") <= 1


def test_a_categorical_covariate_is_a_mechanism_too():
    rng = np.random.default_rng(2)
    n = 600
    x = rng.normal(size=n)
    sector = np.where(rng.random(n) < 1 / (1 + np.exp(-2 * x)), "farm", "shop")
    sign = np.where(sector == "farm", 1.0, -1.0)
    a = 0.5 * sign + rng.normal(size=n)
    history = {
        "x": x,
        "sector": sector,
        "a": a,
        "y": sign * a + 0.3 * rng.normal(size=n),
    }
    problem = Problem(
        context=["x"],
        covariates=["sector"],
        actions={"a": (-2.0, 2.0)},
        outcomes=["y"],
        desired=["y >= 0.5"],
        order=["x", "sector", "a", "y"],
    )
    policy = QUICK.fit(problem, history)
    told = policy.evaluate({"x": [2.0, -2.0, 0.0]}, {"a": 1.5})
    farm = 1 / (1 + np.exp(-2 * np.array([2.0, -2.0, 0.0])))
    np.testing.assert_allclose(told.probability, farm, atol=0.1)
    best = policy.recommend({"x": [2.0, -2.0]})
    assert best.actions[0, 0] > 0.8
    assert best.actions[1, 0] < -0.8


def test_only_some_actions_may_be_altered(between):
    contexts = tasks.get("non-syn2").contexts(3, seed=0)
    told = between.recommend(contexts, only=["A2"])
    assert told.altered.tolist() == [[False, True]] * 3
    assert set(told[0].actions) == {"A2"}
    both = between.recommend(contexts)
    assert both.altered.all()
    one = between.recommend(contexts, at_most=1)
    assert (one.altered.sum(axis=1) == 1).all()
    assert both.probability.mean() >= one.probability.mean() - 0.05


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"only": ["A3"]}, "name actions .A1, A2.; got 'A3'"),
        ({"only": []}, "at least one action"),
        ({"at_most": 0}, "at_most above zero and whole; got 0"),
    ],
)
def test_what_may_be_altered_is_checked(between, wrong, message):
    with pytest.raises(SpecError, match=message):
        between.recommend(tasks.get("non-syn2").contexts(1, seed=0), **wrong)


def test_a_graph_gives_every_mechanism_its_parents():
    task = tasks.get("non-syn2")
    policy = QUICK.fit(task.problem_with_graph(), task.history(200, seed=0))
    node = next(node for node in policy.system.nodes if node.name == "U2")
    assert len(node.inputs) == 2
    assert len(policy.system.outcomes[0].inputs) == 4


def test_another_region_needs_no_new_fit(policy):
    contexts = contexts_of(LENDING, lending(5, seed=3), slice(None))
    wider = policy.for_region(["repaid >= 0.3"])
    before = policy.evaluate(contexts, {"rate": 0.4}).probability
    assert (wider.evaluate(contexts, {"rate": 0.4}).probability > before).all()


@pytest.mark.parametrize(
    "without", ["recentred", "local_laws", "epistemic", "relevance"]
)
def test_every_part_can_be_taken_away(without):
    method = StagedRehearsal(**{without: False}, n_draws=8, search=QUICK.search)
    told = method.fit(LENDING, lending(150)).recommend(
        contexts_of(LENDING, lending(3, seed=1), slice(None))
    )
    assert np.isfinite(told.probability).all()
    if without == "epistemic":
        assert (told.upper - told.lower).max() < 0.15


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"n_steps": 0}, "n_steps above zero"),
        ({"caution": 1.0}, "caution as a quantile"),
    ],
)
def test_a_search_is_checked(wrong, message):
    with pytest.raises(SpecError, match=message):
        Search(**wrong)


def test_nine_of_ten_worlds_lie_between_the_ends_that_few_of_them_give(rng):
    worlds = rng.normal(size=(20_000, 64))
    between = ndtr(quantile(worlds, 0.95)) - ndtr(quantile(worlds, 0.05))
    assert between.mean() == pytest.approx(0.9, abs=0.005)
    plain = ndtr(np.quantile(worlds, [0.05, 0.95], axis=1))
    assert (plain[1] - plain[0]).mean() < 0.88


def test_a_quantile_stays_among_its_worlds_and_moves_with_them(rng):
    worlds = rng.random((50, 7))
    for p in (0.05, 0.5, 0.95):
        told = quantile(worlds, p)
        assert (told >= worlds.min(axis=1)).all()
        assert (told <= worlds.max(axis=1)).all()
        np.testing.assert_allclose(quantile(3.0 * worlds - 1.0, p), 3.0 * told - 1.0)
    np.testing.assert_allclose(quantile(np.ones((3, 1)), 0.05), 1.0)


def test_paths_that_are_few_neither_hide_nor_feign_what_is_unknown(rng):
    worlds = 0.6 + 0.005 * rng.normal(size=(500, 64))
    apart = worlds + 0.03 * rng.normal(size=worlds.shape)
    together = worlds + 0.03 * rng.normal(size=(500, 1))
    told = Told(apart, together).worlds
    # The error of the mean over all paths is as large as what is unknown here.
    off = np.hypot(0.005, 0.03 / 8.0)
    np.testing.assert_allclose(told.mean(axis=1), 0.6, atol=5 * 0.03 / 8.0)
    assert told.std(axis=1).mean() == pytest.approx(off, rel=0.05)
    assert told.std(axis=1).min() > 0.5 * off
    assert (Told(apart, together) - Told(apart, together)).worlds.std() == 0.0


def test_an_interval_of_few_paths_is_about_that_of_many(between):
    few, many = (
        replace(between, method=replace(between.method, n_paths=n)) for n in (16, 1024)
    )
    x = between.data.x[:20]
    a = between.answer(x, None).actions
    widths = [told.upper - told.lower for told in (few.answer(x, a), many.answer(x, a))]
    assert (widths[0] > 0.5 * widths[1]).all()
    assert widths[0].mean() == pytest.approx(widths[1].mean(), rel=0.2)
