"""Random tasks: whatever the seed, a task like any other, and worth solving."""

from __future__ import annotations

import numpy as np
import pytest

from forestall import tasks
from forestall.errors import TaskError
from forestall.problem import Problem
from forestall.tasks.mechanisms import NOISES, SHAPES, RandomMechanism, Term
from forestall.tasks.random_model import random_task
from forestall.tasks.task import Task

SEEDS = range(10)
every_seed = pytest.mark.parametrize("seed", SEEDS)


def the(seed: int) -> Task:
    return tasks.get(f"random-{seed}")


def contexts(task: Task, n: int) -> list[dict[str, float]]:
    table = task.contexts(n, seed=5)
    return [{name: float(v[i]) for name, v in table.items()} for i in range(n)]


def test_random_tasks_are_found_by_name_and_not_listed():
    assert the(17) is the(17)
    assert the(17).name == "random-17"
    assert not any(name.startswith("random") for name in tasks.names())


@pytest.mark.parametrize("name", ["random-", "random-x", "random--1", "random-01"])
def test_a_random_task_without_a_proper_seed_is_refused(name):
    with pytest.raises(TaskError, match=r"or random-0, random-1 and so on; got"):
        tasks.get(name)


def test_a_negative_seed_is_refused():
    with pytest.raises(TaskError, match=r"a seed of 0 or more; got -1"):
        random_task(-1)


@every_seed
def test_the_same_seed_gives_the_same_task_and_another_another(seed):
    first, again, other = the(seed), random_task(seed), the(seed + 1)
    assert first.problem == again.problem
    assert first.problem != other.problem
    a, b = first.history(30, seed=1), again.history(30, seed=1)
    assert all((a[v] == b[v]).all() for v in a)


@every_seed
def test_a_random_problem_has_the_roles_it_should(seed):
    problem = the(seed).problem
    assert isinstance(problem, Problem)
    assert problem.graph is None
    assert 1 <= len(problem.context) <= 3
    assert len(problem.covariates) <= 3
    assert 1 <= len(problem.actions) <= 3
    assert 1 <= len(problem.outcomes) <= 2
    assert problem.tiers[-1] == problem.outcomes


@every_seed
def test_every_edge_leads_to_a_later_tier(seed):
    task = the(seed)
    rank = {v: k for k, tier in enumerate(task.problem.tiers) for v in tier}
    assert set(rank) == set(task.model.names)
    assert all(rank[parent] < rank[child] for parent, child in task.model.edges)


@every_seed
def test_every_action_influences_an_outcome(seed):
    task = the(seed)
    for action in task.problem.actions:
        assert task.graph.descendants([action]) & set(task.problem.outcomes)


@every_seed
def test_with_the_graph_the_staged_formula_is_right(seed):
    identification = the(seed).problem_with_graph().identification()
    assert identification.sequential.valid is True


@every_seed
def test_every_number_is_finite_and_of_about_unit_spread(seed):
    task = the(seed)
    history = task.history(5_000, seed=0)
    assert set(history) == set(task.problem.variables)
    for values in history.values():
        assert values.dtype == np.float64
        assert np.isfinite(values).all()
        if len(np.unique(values)) > 3:
            assert values.mean() == pytest.approx(0.0, abs=0.15)
            assert values.std() == pytest.approx(1.0, abs=0.2)


@every_seed
def test_a_category_has_few_levels_and_none_is_rare(seed):
    task = the(seed)
    history = task.history(5_000, seed=0)
    for name in task.problem.categorical:
        levels, counts = np.unique(history[name], return_counts=True)
        assert levels.tolist() == [0.0, 1.0, 2.0]
        assert counts.min() > 400


def test_some_random_tasks_have_categories_and_covariates_between_actions():
    drawn = [the(seed) for seed in range(30)]
    assert any(task.problem.categorical for task in drawn)
    verdicts = [task.problem_with_graph().identification() for task in drawn]
    assert any(each.staged for each in verdicts)
    assert any(each.nested.valid is False for each in verdicts)


@every_seed
def test_do_cuts_the_parents_and_moves_descendants_alone(seed):
    task = the(seed)
    natural = task.model.sample(200, np.random.default_rng(5))
    for action, (lower, upper) in task.problem.actions.items():
        middle = (lower + upper) / 2
        rng = np.random.default_rng(5)
        altered = task.model.sample(200, rng, do={action: middle})
        assert (altered[action] == middle).all()
        moved = task.graph.descendants([action])
        for v in set(task.model.names) - moved - {action}:
            np.testing.assert_array_equal(altered[v], natural[v])
        assert any((altered[v] != natural[v]).any() for v in task.problem.outcomes)


@every_seed
def test_the_box_of_an_action_is_what_was_usual_and_a_bit_more(seed):
    task = the(seed)
    history = task.history(5_000, seed=0)
    for action, (lower, upper) in task.problem.actions.items():
        assert 0.87 < ((history[action] >= lower) & (history[action] <= upper)).mean()
        assert history[action].min() - 0.5 < lower < upper < history[action].max() + 0.5


@every_seed
def test_without_action_some_succeed_and_not_most(seed):
    task = the(seed)
    history = task.history(20_000, seed=0)
    y = np.column_stack([history[v] for v in task.problem.outcomes])
    assert 0.08 < task.problem.region.contains(y).mean() < 0.52


@every_seed
def test_there_is_something_to_gain_on_average(seed):
    task = the(seed)
    lower, upper = np.array(list(task.problem.actions.values())).T
    a = np.random.default_rng(3).uniform(lower, upper, (200, len(lower)))
    gains = []
    for x in contexts(task, 60):
        best = a[task.successes(x, a, 300, seed=0).argmax()]
        none = task.success(x, None, 500, seed=1)
        gains.append(task.success(x, best, 500, seed=1) - none)
    assert np.mean(gains) > 0.07


@pytest.mark.parametrize("seed", [2, 3, 8])
def test_oracles_are_in_their_order(seed):
    task = the(seed)
    for x in contexts(task, 2):
        best, supported = task.oracle(x)[1], task.supported_oracle(x)[1]
        assert best > supported - 0.015
        assert best > task.success(x, None, 20_000, seed=1) - 0.015


@pytest.mark.parametrize("name", NOISES)
def test_noises_have_mean_zero_and_unit_variance(name):
    e = NOISES[name](np.random.default_rng(0), 200_000)
    assert e.mean() == pytest.approx(0.0, abs=0.01)
    assert e.std() == pytest.approx(1.0, abs=0.01)


@pytest.mark.parametrize("name", SHAPES)
def test_shapes_are_finite_far_out_and_not_flat(name):
    y = SHAPES[name](np.linspace(-1e3, 1e3, 101))
    assert np.isfinite(y).all()
    assert np.ptp(SHAPES[name](np.linspace(-1.0, 1.0, 11))) > 0.5


def test_a_mechanism_adds_its_terms_and_its_noise():
    product, linear = Term((0, 1), 2.0), Term((1,), -1.0)
    category = Term((2,), 1.0, levels=(10.0, 20.0, 30.0))
    mechanism = RandomMechanism((product, linear, category), 1.0, 1.0, 0.5)
    p, q, level = np.array([0.0]), np.array([0.4]), np.array([2.0])
    assert mechanism(p, q, level, np.array([2.0]))[0] == pytest.approx(31.6)


def test_candidates_and_draws_broadcast_through_every_mechanism():
    category = Term((0,), 1.0, levels=(0.0, 5.0))
    louder = RandomMechanism((category, Term((1,), 1.0)), louder_with=1)
    draws, candidates = np.array([0.0, 1.0, 1.0]), np.array([[-1.0], [2.0]])
    assert louder(draws, candidates, np.zeros(3)).tolist() == [
        [-1.0, 4.0, 4.0],
        [2.0, 7.0, 7.0],
    ]
    loud = louder.loudness((draws, candidates))
    assert loud[1, 0] > loud[0, 0]
