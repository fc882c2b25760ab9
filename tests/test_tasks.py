"""Every task against the same laws, and against the figures measured for it."""

from __future__ import annotations

import csv
import os
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from forestall import tasks
from forestall.errors import SpecError, TaskError
from forestall.problem import Problem
from forestall.tasks import bermuda
from forestall.tasks.scm import Node, StructuralModel, linear, normal, uniform
from forestall.tasks.task import Task

every_task = pytest.mark.parametrize("name", tasks.names())
every_task_that_acts = pytest.mark.parametrize(
    "name", [name for name in tasks.names() if name != "placebo"]
)


def rows(table: dict[str, np.ndarray]) -> list[dict[str, float]]:
    n = len(next(iter(table.values())))
    return [{name: v[i] for name, v in table.items()} for i in range(n)]


def random_actions(task: Task, m: int) -> np.ndarray:
    lower, upper = np.array(list(task.problem.actions.values())).T
    return np.random.default_rng(7).uniform(lower, upper, (m, len(lower)))


def test_names_the_tasks_of_the_paper_and_our_own():
    paper = ("lin-syn1", "bermuda", "bank", "non-syn1", "non-syn2")
    assert tasks.names() == (*paper, "dosing", "placebo", "readmission")


@every_task
def test_a_task_is_made_once_and_knows_its_name(name):
    assert tasks.get(name) is tasks.get(name)
    assert tasks.get(name).name == name


def test_an_unknown_task_is_refused_with_the_nearest_name():
    expected = r"tasks lin-syn1, .*, or random-0, .*got 'bnk'\. Did you mean 'bank'\?"
    with pytest.raises(TaskError, match=expected):
        tasks.get("bnk")


@every_task
def test_methods_are_told_the_order_and_not_the_graph(name):
    task = tasks.get(name)
    assert task.problem.graph is None
    assert task.problem.order is not None
    with_graph = task.problem_with_graph()
    assert with_graph.graph is task.graph
    assert with_graph.order == task.problem.order


@every_task
def test_every_edge_leads_to_a_later_tier(name):
    task = tasks.get(name)
    tiers = task.problem.tiers
    rank = {v: k for k, tier in enumerate(tiers) for v in tier}
    assert set(rank) == set(task.graph.nodes) == set(task.model.names)
    assert all(rank[parent] < rank[child] for parent, child in task.model.edges)
    assert set(task.graph.edges) == set(task.model.edges)


@every_task
def test_contexts_are_influenced_by_contexts_alone(name):
    task = tasks.get(name)
    assert task.graph.ancestors(task.problem.context) <= set(task.problem.context)


@every_task
def test_history_holds_every_variable_as_floats(name):
    task = tasks.get(name)
    history = task.history(50, seed=0)
    assert set(history) == set(task.problem.variables)
    assert all(v.shape == (50,) and v.dtype == np.float64 for v in history.values())
    assert all(np.isfinite(v).all() and np.ptp(v) > 0 for v in history.values())


@every_task
def test_contexts_hold_the_contexts_alone(name):
    task = tasks.get(name)
    contexts = task.contexts(7, seed=0)
    assert tuple(contexts) == task.problem.context
    assert all(v.shape == (7,) and v.dtype == np.float64 for v in contexts.values())


@every_task
@pytest.mark.parametrize("kind", ["history", "contexts"])
def test_the_same_seed_gives_the_same_sample_and_another_seed_another(name, kind):
    sample = getattr(tasks.get(name), kind)
    first, again, other = sample(20, seed=3), sample(20, seed=3), sample(20, seed=4)
    for v in first:
        np.testing.assert_array_equal(first[v], again[v])
        assert (first[v] != other[v]).any()
        # What has few values has the same few again.
        assert len(np.unique(first[v])) < 20 or not np.isin(first[v], other[v]).any()


@every_task
def test_contexts_are_not_those_of_the_history_with_the_same_seed(name):
    task = tasks.get(name)
    history, contexts = task.history(200, seed=0), task.contexts(200, seed=0)
    for v in task.problem.context:
        assert not np.isin(contexts[v], history[v]).any()


def test_tasks_do_not_share_their_draws():
    bank, other = tasks.get("bank"), tasks.get("non-syn2")
    assert not np.isin(
        bank.contexts(50, seed=0)["credit_score"], other.contexts(50, seed=0)["X1"]
    ).any()


ROOT_CONTEXTS = [
    ("lin-syn1", "X1", stats.norm(0, np.sqrt(0.1))),
    ("lin-syn1", "X2", stats.norm(0, np.sqrt(0.1))),
    ("bermuda", "Light", stats.uniform(-1.472, 1.472 + 3.314)),
    ("bank", "credit_score", stats.uniform(0, 1)),
    ("bank", "debt_to_income", stats.uniform(0, 1)),
    ("non-syn1", "X", stats.uniform(-1, 2)),
    ("non-syn2", "X1", stats.uniform(0, 1)),
    ("non-syn2", "X2", stats.uniform(0, 1)),
    ("dosing", "severity", stats.uniform(-2, 4)),
    ("placebo", "age", stats.uniform(-1, 2)),
    ("readmission", "severity", stats.uniform(-2, 4)),
]


@pytest.mark.parametrize(("name", "context", "law"), ROOT_CONTEXTS)
def test_contexts_follow_their_law(name, context, law):
    x = tasks.get(name).contexts(20_000, seed=0)[context]
    assert stats.kstest(x, law.cdf).pvalue > 1e-3


@every_task
def test_contexts_and_history_have_the_same_law(name):
    task = tasks.get(name)
    history, contexts = task.history(20_000, seed=0), task.contexts(20_000, seed=0)
    for v in task.problem.context:
        assert stats.ks_2samp(history[v], contexts[v]).pvalue > 1e-3


@every_task_that_acts
def test_do_cuts_the_parents_and_moves_descendants_alone(name):
    task = tasks.get(name)
    model = task.model
    natural = model.sample(100, np.random.default_rng(5))
    for action in task.problem.actions:
        altered = model.sample(100, np.random.default_rng(5), do={action: 0.123})
        assert (altered[action] == 0.123).all()
        moved = task.graph.descendants([action]) - {action}
        for v in set(model.names) - moved - {action}:
            np.testing.assert_array_equal(altered[v], natural[v])
        assert moved
        assert all((altered[v] != natural[v]).any() for v in moved)


@every_task
def test_a_given_context_is_held_and_the_noise_stays(name):
    task = tasks.get(name)
    x = rows(task.contexts(1, seed=1))[0]
    sample = task.model.sample(50, np.random.default_rng(2), given=x)
    assert all((sample[v] == x[v]).all() for v in x)
    free = task.model.sample(50, np.random.default_rng(2))
    for v in set(task.model.names) - task.graph.descendants(list(x)) - set(x):
        np.testing.assert_array_equal(sample[v], free[v])


def test_conditioning_agrees_with_records_near_the_context():
    task = tasks.get("non-syn2")
    x = {"X1": 0.6, "X2": 0.4}
    history = task.history(400_000, seed=0)
    near = (abs(history["X1"] - 0.6) < 0.02) & (abs(history["X2"] - 0.4) < 0.02)
    exact = task.model.sample(20_000, np.random.default_rng(0), given=x)
    for v in ("A1", "U1", "A2", "Y1"):
        gap = history[v][near].mean() - exact[v].mean()
        assert abs(gap) < 4 * history[v][near].std() / np.sqrt(near.sum()) + 0.01


CHAIN = StructuralModel(
    (
        Node("x", uniform(0.0, 1.0)),
        linear("z", normal(0.1), {"x": 2.0}, intercept=1.0),
        Node("y", normal(0.1), ("x", "z"), lambda x, z, e: x * z + e),
    )
)


def test_a_linear_node_is_the_weighted_sum_of_its_parents():
    noise = {"x": np.ones(3), "z": np.zeros(3), "y": np.zeros(3)}
    values = CHAIN.propagate(noise, {})
    assert values["z"].tolist() == [3.0] * 3
    assert values["y"].tolist() == [3.0] * 3


@settings(max_examples=25, deadline=None)
@given(z=st.lists(st.floats(-5, 5), min_size=1, max_size=6))
def test_many_candidates_at_once_are_the_candidates_one_by_one(z):
    noise = CHAIN.draw(9, np.random.default_rng(0))
    together = CHAIN.propagate(noise, {"z": np.array(z)[:, None]})["y"]
    for candidate, row in zip(z, together, strict=True):
        alone = CHAIN.propagate(noise, {"z": candidate})["y"]
        np.testing.assert_array_equal(row, alone)


def test_a_model_may_be_computed_up_to_a_variable():
    noise = CHAIN.draw(2, np.random.default_rng(0))
    assert list(CHAIN.propagate(noise, {}, upto="z")) == ["x", "z"]


def test_given_without_what_influences_it_is_refused():
    with pytest.raises(SpecError, match=r"Expected 'x' to be given, .* 'z', which is"):
        CHAIN.sample(3, np.random.default_rng(0), given={"z": 1.0})


def test_a_variable_both_given_and_set_is_refused():
    with pytest.raises(SpecError, match=r"given or set; got 'x' as both"):
        CHAIN.sample(3, np.random.default_rng(0), given={"x": 1.0}, do={"x": 1.0})


def test_setting_an_unknown_variable_is_refused():
    with pytest.raises(SpecError, match=r"variables of the model, x, z, y; got 'w'"):
        CHAIN.sample(3, np.random.default_rng(0), do={"w": 1.0})


def test_a_child_before_its_parent_is_refused():
    with pytest.raises(SpecError, match=r"the parents of 'z' before it; got 'x'"):
        StructuralModel((linear("z", normal(0.1), {"x": 2.0}),))


def test_a_node_that_comes_twice_is_refused():
    with pytest.raises(SpecError, match=r"each node once; got 'x' twice"):
        StructuralModel((Node("x", normal(1.0)), Node("x", normal(1.0))))


def task_with(context: list[str], actions: dict[str, tuple[float, float]]) -> Task:
    problem = Problem(
        context=context, actions=actions, outcomes=["y"], desired=["y >= 1"]
    )
    return Task("chain", problem, CHAIN)


def test_a_task_whose_model_makes_other_variables_is_refused():
    with pytest.raises(SpecError, match=r"'chain' to make the problem's variables"):
        task_with(["x"], {"a": (0.0, 1.0)})


def test_a_task_whose_context_is_influenced_by_an_action_is_refused():
    with pytest.raises(SpecError, match=r"Expected 'x' to be given"):
        task_with(["z"], {"x": (0.0, 1.0)})


@every_task
def test_success_is_the_share_of_the_samples_that_the_region_contains(name):
    task = tasks.get(name)
    x, a = rows(task.contexts(1, seed=2))[0], random_actions(task, 1)[0]
    action = dict(zip(task.problem.actions, a, strict=True))
    for do in ({}, action):
        sample = task.model.sample(40_000, np.random.default_rng(9), do=do, given=x)
        y = np.column_stack([sample[v] for v in task.problem.outcomes])
        p = task.problem.region.contains(y).mean()
        gap = abs(task.success(x, do, 40_000, seed=0) - p)
        assert gap < 4 * np.sqrt(2 * max(p * (1 - p), 1e-4) / 40_000)


def test_success_agrees_with_the_closed_form_on_lin_syn1():
    task, a = tasks.get("lin-syn1"), np.array([1.7, 2.9])
    mean = np.array([-a[0] + 0.9 * a[1], 1.6 * a[0] - 0.9 * a[1]])
    ends = stats.norm(mean, np.sqrt(0.1)).cdf([[0.0, 0.0], [2.0, 2.0]])
    exact = np.prod(ends[1] - ends[0])
    p = task.success({"X1": 0.1, "X2": -0.2}, a, 200_000, seed=0)
    assert 0.05 < exact < 0.95
    assert p == pytest.approx(exact, abs=0.005)


@every_task
def test_no_action_is_the_empty_action(name):
    task = tasks.get(name)
    x = rows(task.contexts(1, seed=0))[0]
    assert task.success(x, None, 500, seed=1) == task.success(x, {}, 500, seed=1)


@every_task
def test_many_actions_at_once_have_the_successes_they_have_alone(name):
    task = tasks.get(name)
    x, a = rows(task.contexts(1, seed=0))[0], random_actions(task, 300)
    together = task.successes(x, a, 1_000, seed=4)
    assert together.shape == (300,)
    for i in (0, 137, 299):
        assert together[i] == task.success(x, a[i], 1_000, seed=4)
    assert task.successes(x, a[:0], 10, seed=0).shape == (0,)


def test_an_action_left_out_comes_about_naturally():
    task = tasks.get("lin-syn1")
    x = {"X1": 0.1, "X2": 0.0}
    sample = task.model.sample(
        50_000, np.random.default_rng(0), do={"A1": 1.0}, given=x
    )
    assert sample["A2"].mean() == pytest.approx(2.0, abs=0.02)
    y = np.column_stack([sample["Y1"], sample["Y2"]])
    p = task.problem.region.contains(y).mean()
    assert task.success(x, {"A1": 1.0}, 50_000, seed=0) == pytest.approx(p, abs=0.01)


def test_what_no_action_influences_has_one_success_for_all():
    problem = Problem(
        context=["x"], actions={"a": (0.0, 1.0)}, outcomes=["y"], desired=["y >= 0"]
    )
    nodes = (Node(v, normal(1.0)) for v in ("x", "a", "y"))
    task = Task("idle", problem, StructuralModel(tuple(nodes)))
    assert set(task.graph.nodes) == {"x", "a", "y"}
    p = task.successes({"x": 0.0}, np.array([[0.0], [1.0]]), 1_000, seed=0)
    assert p[0] == p[1] == task.success({"x": 0.0}, None, 1_000, seed=0)


def test_contexts_and_actions_may_be_rows_or_hold_arrays_of_one_element():
    task = tasks.get("bank")
    plain = task.success(
        {"credit_score": 0.2, "debt_to_income": 0.7}, {"interest_rate": 0.4}, 99, seed=0
    )
    boxed = {"credit_score": np.array([0.2]), "debt_to_income": np.float64(0.7)}
    assert task.success(boxed, {"interest_rate": np.array([0.4])}, 99, seed=0) == plain
    assert task.success(np.array([0.2, 0.7]), np.array([0.4]), 99, seed=0) == plain
    assert task.successes(boxed, np.array([[0.4]]), 99, seed=0)[0] == plain


def test_a_rounding_error_outside_the_box_is_forgiven():
    task, x = tasks.get("bank"), {"credit_score": 0.2, "debt_to_income": 0.7}
    at_the_end = task.success(x, {"interest_rate": 1.0}, 99, seed=0)
    assert task.success(x, {"interest_rate": 1.0 + 1e-12}, 99, seed=0) == at_the_end


X = {"credit_score": 0.2, "debt_to_income": 0.7}
REFUSED = [
    (X, {"interest_rate": 1.2}, r"'interest_rate' in \[0, 1\]; got 1.2\. Keep it"),
    (X, {"interest_rat": 0.2}, r"got 'interest_rat'\. Did you mean 'interest_rate'\?"),
    (X, {"interest_rate": np.nan}, r"a finite number for 'interest_rate'; got nan"),
    (X, {"interest_rate": "low"}, r"one number for 'interest_rate'; got 'low'"),
    (X, np.array([0.1, 0.2]), r"one value for each action, .*; got 2 values"),
    ({"credit_score": 0.2}, None, r"every context of 'bank'; missing: debt_to_income"),
    ({**X, "age": 3.0}, None, r"contexts named credit_score, .*; got 'age'"),
    (np.array([0.2]), None, r"one value for each context, .*; got 1 values"),
    ({**X, "credit_score": [0.1, 0.2]}, None, r"one number for 'credit_score'; got"),
]


@pytest.mark.parametrize(("context", "action", "message"), REFUSED)
def test_a_context_or_action_that_makes_no_sense_is_refused(context, action, message):
    with pytest.raises(TaskError, match=message):
        tasks.get("bank").success(context, action, 10, seed=0)


@pytest.mark.parametrize(
    ("actions", "message"),
    [
        (np.array([[0.5], [-0.1]]), r"in \[0, 1\]; got -0\.1"),
        (np.array([[0.5], [np.nan]]), r"in \[0, 1\]; got nan"),
        (np.zeros((3, 2)), r"one column for each action, .* shape \(3, 2\)"),
    ],
)
def test_actions_that_make_no_sense_are_refused(actions, message):
    with pytest.raises(TaskError, match=message):
        tasks.get("bank").successes(X, actions, 10, seed=0)


def test_numbers_of_draws_and_seeds_below_their_least_are_refused():
    with pytest.raises(TaskError, match=r"n of 1 or more; got 0"):
        tasks.get("bank").history(0, seed=0)
    with pytest.raises(TaskError, match=r"a seed of 0 or more; got -1"):
        tasks.get("bank").contexts(5, seed=-1)


ERROR = 0.015


@every_task
def test_the_oracle_beats_no_action_and_random_actions(name):
    task = tasks.get(name)
    for x in rows(task.contexts(3, seed=11)):
        action, p = task.oracle(x)
        rivals = task.successes(x, random_actions(task, 200), 5_000, seed=1)
        # Over 200 rivals the luckiest error is larger than a single one.
        assert p > rivals.max() - 2 * ERROR
        assert p > task.success(x, None, 20_000, seed=1) - ERROR
        assert task.success(x, action, 20_000, seed=1) == pytest.approx(p, abs=ERROR)


@every_task
def test_the_supported_oracle_is_feasible_and_does_not_beat_the_oracle(name):
    task = tasks.get(name)
    for x in rows(task.contexts(3, seed=12)):
        action, p = task.supported_oracle(x)
        assert p < task.oracle(x)[1] + ERROR
        assert task.success(x, action, 20_000, seed=1) == pytest.approx(p, abs=ERROR)


@every_task
def test_the_supported_oracle_stays_within_three_natural_deviations(name):
    task = tasks.get(name)
    for x in rows(task.contexts(3, seed=13)):
        action, _ = task.supported_oracle(x)
        before: dict[str, float] = {}
        for v in (v for v in task.model.names if v in action):
            rng = np.random.default_rng(3)
            natural = task.model.sample(20_000, rng, do=before, given=x)[v]
            assert abs(action[v] - natural.mean()) < 3.2 * natural.std()
            before[v] = action[v]


def test_oracles_repeat_themselves_and_name_every_action():
    task = tasks.get("non-syn2")
    x = rows(task.contexts(1, seed=0))[0]
    assert task.oracle(x) == task.oracle(x)
    assert task.supported_oracle(x) == task.supported_oracle(x)
    assert list(task.oracle(x)[0]) == ["A1", "A2"]


def test_a_context_whose_natural_actions_miss_the_box_supports_no_action():
    task, x = tasks.get("lin-syn1"), {"X1": 1.0, "X2": 0.0}
    action, p = task.supported_oracle(x)
    assert action == {}
    assert p == pytest.approx(task.success(x, None, 50_000, seed=0), abs=0.005)


def test_the_oracle_of_lin_syn1_is_the_one_found_by_hand():
    # With a2 at its end, 3, both outcomes are equally safe at a1 = 5.4 / 2.6.
    action, p = tasks.get("lin-syn1").oracle({"X1": 0.0, "X2": 0.0})
    assert action["A1"] == pytest.approx(5.4 / 2.6, abs=0.05)
    assert action["A2"] == pytest.approx(3.0, abs=0.02)
    assert p == pytest.approx(0.952, abs=0.004)


def test_the_oracle_of_bermuda_reaches_the_centre_of_the_region():
    task = tasks.get("bermuda")
    x = {"Light": 0.0, "Temp": 0.0, "Sal": 0.0}
    action, p = task.oracle(x)
    mean = task.model.sample(50_000, np.random.default_rng(0), do=action, given=x)
    assert mean["NEC"].mean() == pytest.approx(1.25, abs=0.06)
    sd = 0.21 * np.sqrt(1 + 2.04926**2 + 2.51464**2)
    assert p == pytest.approx(2 * stats.norm.cdf(0.75 / sd) - 1, abs=0.006)


NO_ACTION = {
    "lin-syn1": 0.089,
    "bank": 0.561,
    "non-syn1": 0.065,
    "non-syn2": 0.131,
    "bermuda": 0.148,
    "dosing": 0.399,
    "placebo": 0.311,
    "readmission": 0.485,
}
ORACLE = {
    "lin-syn1": (0.953, 0.005, 3),
    "bank": (0.85, 0.02, 15),
    "non-syn1": (0.26, 0.03, 60),
    "non-syn2": (0.82, 0.03, 40),
    "bermuda": (0.707, 0.01, 10),
    "dosing": (0.647, 0.005, 5),
    "placebo": (0.311, 0.04, 60),
    "readmission": (0.666, 0.05, 60),
}


@every_task
def test_success_without_action_is_the_figure_measured(name):
    task = tasks.get(name)
    history = task.history(200_000, seed=0)
    y = np.column_stack([history[v] for v in task.problem.outcomes])
    share = task.problem.region.contains(y).mean()
    assert share == pytest.approx(NO_ACTION[name], abs=0.005)


@every_task
def test_success_without_action_averages_to_the_share_of_good_records(name):
    task = tasks.get(name)
    contexts = rows(task.contexts(1_000, seed=0))
    # A seed each: with the same draws for all contexts their errors would not cancel.
    p = [task.success(x, None, 100, seed=i) for i, x in enumerate(contexts)]
    assert np.mean(p) == pytest.approx(NO_ACTION[name], abs=0.025)


@every_task
def test_the_oracle_reaches_the_figure_measured(name):
    figure, tolerance, n = ORACLE[name]
    task = tasks.get(name)
    p = [task.oracle(x)[1] for x in rows(task.contexts(n, seed=0))]
    assert np.mean(p) == pytest.approx(figure, abs=tolerance)


@pytest.mark.parametrize(("x", "figure"), [(-1.0, 0.14), (1.0, 0.47)])
def test_the_oracle_of_non_syn1_spans_the_figures_measured(x, figure):
    assert tasks.get("non-syn1").oracle({"X": x})[1] == pytest.approx(figure, abs=0.01)


def test_the_action_of_placebo_moves_nothing_and_no_oracle_gains():
    task = tasks.get("placebo")
    assert task.graph.descendants(["visits"]) <= {"visits"}
    for x in rows(task.contexts(5, seed=0)):
        natural = task.success(x, None, 20_000, seed=0)
        everywhere = task.successes(x, random_actions(task, 50), 20_000, seed=0)
        assert (everywhere == natural).all()
        for oracle in (task.oracle, task.supported_oracle):
            assert oracle(x)[1] == pytest.approx(natural, abs=ERROR)


def test_the_action_of_placebo_looks_effective_until_vigour_is_known():
    h = tasks.get("placebo").history(100_000, seed=0)
    y = h["recovery"]
    naive, *_ = np.linalg.lstsq(np.column_stack([h["visits"], h["age"]]), y)
    known, *_ = np.linalg.lstsq(
        np.column_stack([h["visits"], h["age"], h["vigour"]]), y
    )
    assert naive[0] > 0.7
    assert abs(known[0]) < 0.02


DOSE_SD = np.hypot(0.3, 0.2)


def test_the_right_dose_is_one_that_history_shows():
    task = tasks.get("dosing")
    for x in (-2.0, -1.0, 0.5, 1.5, 2.0):
        action, best = task.oracle({"severity": x})
        assert abs(action["dose"] - 0.8 * x) < 3.2 * DOSE_SD
        supported = task.supported_oracle({"severity": x})[1]
        assert supported == pytest.approx(best, abs=ERROR)


def test_a_fit_that_reverts_invents_a_dose_that_nobody_gave():
    # Widths, amplitude and noise are those of the largest marginal likelihood.
    task, width = tasks.get("dosing"), np.array([1.3, 8.0, 1.6])
    h = task.history(600, seed=0)
    z = np.column_stack([h[v] for v in ("severity", "frailty", "dose")])
    mean, sd = z.mean(axis=0), z.std(axis=0)
    y = h["marker"]

    def kernel(a: np.ndarray) -> np.ndarray:
        p, q = (a - mean) / sd / width, (z - mean) / sd / width
        squares = (p**2).sum(axis=1)[:, None] + (q**2).sum(axis=1) - 2.0 * p @ q.T
        return np.exp(-0.5 * squares)

    weights = np.linalg.solve(
        7.0 * kernel(z) + 0.05 * np.eye(600), 7.0 * (y - y.mean())
    )
    residuals = y - y.mean() - kernel(z) @ weights
    doses = np.linspace(-3.0, 3.0, 121)
    told, true, far = [], [], []
    for x in task.contexts(16, seed=0)["severity"]:
        pairs = np.stack(np.meshgrid(doses, h["frailty"][:100], indexing="ij"), axis=-1)
        at = np.insert(pairs.reshape(-1, 2), 0, x, axis=1)[:, [0, 2, 1]]
        fitted = y.mean() + (kernel(at) @ weights).reshape(121, 100) + residuals[:100]
        share = (abs(fitted) <= 0.5).mean(axis=1)
        dose = doses[share.argmax()]
        told.append(share.max())
        true.append(task.success({"severity": x}, {"dose": dose}, 2_000, seed=0))
        far.append(abs(dose - 0.8 * x) > 4 * DOSE_SD)
    assert np.mean(far) > 0.5
    assert np.mean(told) > 0.6
    assert np.mean(true) < 0.3


DATA = Path(os.environ.get("FORESTALL_DATA", "")) / "bermuda" / "bermuda.csv"


@pytest.mark.skipif(
    not (os.environ.get("FORESTALL_DATA") and DATA.is_file()),
    reason="FORESTALL_DATA names no folder with bermuda/bermuda.csv",
)
def test_the_coefficients_of_bermuda_are_least_squares_on_the_measurements():
    z = _standardised(DATA)
    for child, weights in bermuda.WEIGHTS.items():
        table = np.column_stack([z[v] for v in (child, *weights)])
        table = table[np.isfinite(table).all(axis=1)]
        design = np.column_stack([table[:, 1:], np.ones(len(table))])
        fitted = np.linalg.lstsq(design, table[:, 0], rcond=None)[0]
        shipped = [*weights.values(), bermuda.INTERCEPT.get(child, 0.0)]
        np.testing.assert_allclose(fitted, shipped, atol=2e-5, err_msg=child)
    for root, (low, high) in {
        "Light": (-1.472, 3.314),
        "Nut": (-1.519, 2.710),
    }.items():
        assert np.nanmin(z[root]) == pytest.approx(low, abs=5e-4)
        assert np.nanmax(z[root]) == pytest.approx(high, abs=5e-4)


def _standardised(path: Path) -> dict[str, np.ndarray]:
    with path.open(newline="", encoding="utf-8") as lines:
        records = list(csv.DictReader(lines))
    column = {"Nut": "Nutrients_PC1"}
    z = {}
    for v in bermuda.MODEL.names:
        raw = np.array([float(r[column.get(v, v)] or "nan") for r in records])
        z[v] = (raw - np.nanmean(raw)) / np.nanstd(raw)
    return z
