"""Tasks made of a table and a graph: every type of variable, against known worlds."""

from __future__ import annotations

import pickle
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from sklearn.ensemble import (
    HistGradientBoostingClassifier,
    HistGradientBoostingRegressor,
)

from forestall import Problem, RehearsalGraph, tasks
from forestall.errors import DataError, GraphError, SpecError
from forestall.tasks.boosted import CHUNK, class_forests, mean_forest
from forestall.tasks.task import Task
from forestall.tasks.typed import BoostedLevel, BoostedNumber, TypedGenerator

N = 3_000
GRAPH = "digraph {age -> grade; {age site} -> dose; {age grade dose} -> marker}"
PROBLEM = Problem(
    context=["age", "site", "grade"],
    actions={"dose": (0.0, 100.0)},
    outcomes=["marker"],
    desired=["marker >= 1"],
    graph=GRAPH,
    categorical=["site"],
)
GENERATOR = TypedGenerator(discrete=("grade",))


def records(n: int = N) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(3)
    age = rng.uniform(20.0, 80.0, n)
    site = rng.choice([1.0, 2.0, 5.0], n, p=[0.5, 0.3, 0.2])
    grade = 1.0 + (rng.random(n) < age / 100) + (rng.random(n) < 0.3)
    bonus = np.select([site == 2.0, site == 5.0], [1.0, -0.5], 0.0)
    dose = np.expm1(1.0 + 0.01 * age + bonus * 0.5 + rng.normal(0.0, 0.3, n)).clip(0.0)
    marker = -2.0 + 0.5 * dose + 0.5 * (grade - 2.0) + rng.normal(0.0, 0.5, n)
    columns = {"age": age, "site": site, "grade": grade}
    return {**columns, "dose": dose, "marker": marker}


@pytest.fixture(scope="module")
def table():
    return records()


@pytest.fixture(scope="module")
def task(table):
    return tasks.from_data(PROBLEM, table, generator=GENERATOR)


def mechanisms(task):
    return {node.name: node.mechanism for node in task.model.nodes}


def fitted_regressor(rng, n=400, d=4, **options):
    z = rng.normal(size=(n, d)).round(1)
    y = z[:, 0] * z[:, 1] + np.sin(2 * z[:, 2]) + rng.normal(0.0, 0.1, n)
    options = {"max_iter": 21, "max_leaf_nodes": 8, **options}
    return HistGradientBoostingRegressor(**options).fit(z, y)


FITTED = fitted_regressor(np.random.default_rng(0))
FOREST = mean_forest(FITTED)
CELLS = st.floats(-4.0, 4.0).map(lambda v: round(v, 2))


@given(arrays(float, (7, 4), elements=CELLS))
def test_masks_give_what_the_walk_through_the_trees_gives(z):
    np.testing.assert_allclose(FOREST([*z.T]), FITTED.predict(z), rtol=1e-12)


def test_values_on_the_cuts_go_the_same_way():
    cuts = FOREST.cuts[0]
    z = np.zeros((len(cuts), 4))
    z[:, 0] = cuts
    np.testing.assert_allclose(FOREST([*z.T]), FITTED.predict(z), rtol=1e-12)


@given(st.permutations([(), (3, 1), (5,), (3, 5)]))
def test_masks_broadcast(shapes):
    rng = np.random.default_rng(1)
    features = [rng.normal(size=shape) for shape in shapes]
    whole = np.stack(np.broadcast_arrays(*features), axis=-1).reshape(-1, 4)
    got = FOREST(features)
    assert got.shape == (3, 5)
    np.testing.assert_allclose(got.ravel(), FITTED.predict(whole), rtol=1e-12)


def test_many_rows_are_taken_in_pieces(rng):
    features = [rng.normal(size=s) for s in ((7, 1), (), (CHUNK // 2 + 3,), (7, 1))]
    whole = np.stack(np.broadcast_arrays(*features), axis=-1).reshape(-1, 4)
    np.testing.assert_allclose(FOREST(features).ravel(), FITTED.predict(whole))
    assert FOREST([f[:0] if f.ndim == 1 else f for f in features]).shape == (7, 0)


@pytest.mark.parametrize("leaves", [2, 3, 5, 8])
@pytest.mark.parametrize("n_trees", [1, 8, 9])
def test_trees_of_any_size_are_evaluated(rng, leaves, n_trees):
    fitted = fitted_regressor(rng, max_leaf_nodes=leaves, max_iter=n_trees)
    z = rng.normal(size=(50, 4))
    np.testing.assert_allclose(mean_forest(fitted)([*z.T]), fitted.predict(z))


def test_a_forest_of_small_and_large_trees_is_evaluated(rng):
    # Few records: some trees find fewer splits than they may have.
    fitted = fitted_regressor(rng, n=90, min_samples_leaf=15)
    sizes = {t[0].get_n_leaf_nodes() for t in fitted._predictors}
    assert len(sizes) > 1
    z = rng.normal(size=(50, 4))
    np.testing.assert_allclose(mean_forest(fitted)([*z.T]), fitted.predict(z))


def test_trees_without_a_split_are_a_constant(rng):
    flat = fitted_regressor(rng, n=30, min_samples_leaf=30)
    z = rng.normal(size=(5, 4))
    np.testing.assert_allclose(mean_forest(flat)([*z.T]), flat.predict(z))


@pytest.mark.parametrize("n_levels", [2, 3])
def test_chances_are_those_of_the_classifier(rng, n_levels):
    z = rng.normal(size=(500, 3))
    level = np.digitize(z[:, 0] + rng.normal(0, 0.5, 500), [0.0, 1.0][: n_levels - 1])
    fitted = HistGradientBoostingClassifier(max_iter=9, max_leaf_nodes=8).fit(z, level)
    p = class_forests(fitted)([*z.T])
    assert p.shape == (500, n_levels)
    np.testing.assert_allclose(p, fitted.predict_proba(z), rtol=1e-10)


def test_every_variable_gets_the_mechanism_of_its_type(task):
    found = mechanisms(task)
    assert isinstance(found["grade"], BoostedLevel)
    assert isinstance(found["dose"], BoostedNumber)
    assert found["dose"].logged
    assert not found["marker"].logged
    assert [n.name for n in task.model.nodes if not n.parents] == ["age", "site"]


def test_the_task_tells_methods_the_order_and_follows_the_graph(task):
    assert isinstance(task, Task)
    assert task.problem.graph is None
    order = (("age", "site"), ("grade",), ("dose",), ("marker",))
    assert task.problem.tiers == order
    assert set(task.graph.edges) == set(RehearsalGraph.read(GRAPH).edges)
    assert task.problem.categorical == ("site",)


def test_roots_have_their_frequencies_and_discrete_variables_their_levels(task, table):
    made = task.history(20_000, seed=0)
    for name in ("site", "grade"):
        assert set(made[name]) == set(table[name])
        for level in set(table[name]):
            share = (table[name] == level).mean()
            assert (made[name] == level).mean() == pytest.approx(share, abs=0.02)
    assert set(made["age"]) <= set(table["age"])


def test_a_level_depends_on_its_parents_as_in_the_records(task, table):
    def rise(records):
        age, grade = records["age"], records["grade"]
        return grade[age > 65.0].mean() - grade[age < 35.0].mean()

    assert rise(table) > 0.3
    assert rise(task.history(20_000, seed=0)) == pytest.approx(rise(table), abs=0.03)


def test_an_alteration_has_the_effect_it_has_in_truth(task):
    x = {"age": 50.0, "site": 1.0, "grade": 2.0}
    for dose in (4.0, 6.0, 8.0):
        rng = np.random.default_rng(0)
        made = task.model.sample(20_000, rng, given=x, do={"dose": dose})["marker"]
        assert made.mean() == pytest.approx(-2.0 + 0.5 * dose, abs=0.15)
        assert made.std() == pytest.approx(0.5, abs=0.08)


def test_a_category_is_no_number(task):
    doses = {}
    for site in (1.0, 2.0, 5.0):
        given = {"age": 50.0, "site": site, "grade": 2.0}
        sample = task.model.sample(20_000, np.random.default_rng(0), given=given)
        doses[site] = np.log1p(sample["dose"]).mean()
    assert doses[2.0] - doses[1.0] == pytest.approx(0.5, abs=0.1)
    assert doses[5.0] - doses[1.0] == pytest.approx(-0.25, abs=0.1)


def test_generated_values_stay_where_values_were_seen(task, table):
    made = task.history(20_000, seed=2)
    for name in ("dose", "marker"):
        low, high = table[name].min(), table[name].max()
        assert low <= made[name].min() <= made[name].max() <= high


def test_alterations_are_confined_to_the_quantiles_and_the_problem(task, table):
    expected = np.quantile(table["dose"], [0.01, 0.99])
    np.testing.assert_allclose(task.problem.actions["dose"], expected)
    narrow = replace(PROBLEM, actions={"dose": (3.0, 5.0)})
    made = tasks.from_data(narrow, table, generator=GENERATOR)
    assert made.problem.actions["dose"] == (3.0, 5.0)


def test_the_oracle_finds_the_dose_and_beats_no_action(task):
    x = {"age": 50.0, "site": 1.0, "grade": 2.0}
    action, p = task.oracle(x)
    natural = task.success(x, None, 20_000, seed=0)
    assert p > natural + 0.3
    assert action["dose"] > 7.0
    supported = task.supported_oracle(x)[1]
    assert natural < supported < p + 0.015


def test_many_actions_at_once_have_the_successes_they_have_alone(task):
    x = {"age": 50.0, "site": 2.0, "grade": 1.0}
    a = np.linspace(*task.problem.actions["dose"], 40)[:, None]
    together = task.successes(x, a, 1_000, seed=4)
    for i in (0, 17, 39):
        assert together[i] == task.success(x, a[i], 1_000, seed=4)


def test_fitting_twice_gives_the_same_task_and_leaves_the_records_alone(table):
    before = {k: v.copy() for k, v in table.items()}
    one, two = (tasks.from_data(PROBLEM, table, generator=GENERATOR) for _ in range(2))
    for name, values in one.history(500, seed=0).items():
        np.testing.assert_array_equal(values, two.history(500, seed=0)[name])
        np.testing.assert_array_equal(table[name], before[name])


def test_a_fitted_model_can_be_sent_to_another_process(task):
    sent = pickle.loads(pickle.dumps(task.model))
    again = sent.sample(50, np.random.default_rng(0))
    for name, values in task.model.sample(50, np.random.default_rng(0)).items():
        np.testing.assert_array_equal(values, again[name])


def test_any_table_will_do(table, task):
    pandas = pytest.importorskip("pandas")
    made = tasks.from_data(PROBLEM, pandas.DataFrame(table), generator=GENERATOR)
    expected = task.history(100, seed=0)["marker"]
    np.testing.assert_array_equal(made.history(100, seed=0)["marker"], expected)


def test_rows_with_gaps_are_dropped_when_the_problem_says_so(table):
    holed = {**table, "age": table["age"].copy()}
    holed["age"][:5] = np.nan
    with pytest.raises(DataError, match=r"'age' has 5 missing"):
        tasks.from_data(PROBLEM, holed)
    made = tasks.from_data(replace(PROBLEM, missing="drop"), holed)
    assert np.isfinite(made.history(50, seed=0)["age"]).all()


def test_what_is_nonnegative_may_be_said(table):
    plain = TypedGenerator(discrete=("grade",), nonnegative=())
    assert not mechanisms(tasks.from_data(PROBLEM, table, generator=plain))[
        "dose"
    ].logged
    wrong = TypedGenerator(nonnegative=("marker",))
    with pytest.raises(DataError, match=r"no negative value of 'marker', .*; got -"):
        tasks.from_data(PROBLEM, table, generator=wrong)


def with_graph(graph):
    return replace(
        PROBLEM, graph=graph, order=[["age", "site"], "grade", "dose", "marker"]
    )


REFUSED = [
    (with_graph(None), GraphError, r"a problem with a graph, .*got none\. Give one"),
    (
        with_graph("digraph {grade; dose -> marker; age -> site [dir=both]}"),
        GraphError,
        r"directed edges only; got 'age' <-> 'site'",
    ),
    (
        with_graph("digraph {age; site; grade; h -> {dose marker}; dose -> marker}"),
        GraphError,
        r"got 'h', which has no role there",
    ),
    (
        replace(PROBLEM, actions={"dose": (90.0, 100.0)}),
        SpecError,
        r"interval of 'dose' that meets what the records show, .*got \[90, 100\]",
    ),
    (
        replace(PROBLEM, categorical=["age"]),
        DataError,
        r"2 to 100 levels; got 3000 values of 'age'",
    ),
]


@pytest.mark.parametrize(("problem", "error", "message"), REFUSED)
def test_what_cannot_become_a_task_is_refused(table, problem, error, message):
    with pytest.raises(error, match=message):
        tasks.from_data(problem, table)


def test_an_unknown_name_in_the_generator_is_refused(table):
    with pytest.raises(SpecError, match=r"'discrete' to name .*got 'grad'.*'grade'\?"):
        tasks.from_data(PROBLEM, table, generator=TypedGenerator(discrete=("grad",)))


def test_text_is_refused(table):
    named = {**table, "site": np.array(["a", "b", "c"])[np.arange(N) % 3]}
    with pytest.raises(DataError, match=r"numbers in the column 'site'; got text"):
        tasks.from_data(PROBLEM, named)
