"""The value of a policy by records alone: laws, against a truth that is known."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from forestall import Problem, RehearsalGraph, tasks
from forestall.hindsight import Hindsight, steps_of
from forestall.nuisance import ActionLaw, Family, LinearFit
from forestall.observations import Observations
from forestall.value import (
    TOO_FEW,
    Scores,
    Step,
    corrections,
    difference,
    effective_size,
    estimate,
    mean_of,
)

PROBLEM = Problem(
    context=["x"],
    covariates=["u"],
    actions={"a": (-3.0, 3.0)},
    outcomes=["y"],
    desired=["y >= 0"],
    order=["x", "u", "a", "y"],
)
ONE = (Step((), (), (0,)),)


def world(n, seed, action=None):
    """A confounded world with overlap; what is set cuts what usually sets it."""
    rng = np.random.default_rng(seed)
    x, u = rng.normal(size=(2, n))
    e, d = rng.normal(size=(2, n))
    a = 0.5 * x + 0.7 * u + d if action is None else action(x)
    y = np.sin(a) + 0.8 * u - 0.3 * x + 0.5 * e
    return {"x": x, "u": u, "a": a, "y": y}


def policy(x):
    return 0.8 + 0.3 * x


def truth(action=None):
    return float((world(400_000, 99, action)["y"] >= 0).mean())


def judged(problem, records, actions, seed=0, folds=4, acted=None):
    data = Observations.read(problem, records)
    steps = steps_of(list(problem.actions), problem.identification())
    rng = np.random.default_rng(seed)
    fold = rng.permutation(data.n) % folds
    scale = data.schema.actions
    a = (actions.reshape(data.n, -1) - scale.means) / scale.scales
    parts = []
    for f in range(folds):
        rows = np.flatnonzero(fold != f)
        judge = Hindsight.of(data, steps, problem.region, rows, rng)
        m = judge.regressions(judge.rows, a[judge.rows])
        parts.append(judge.scored(np.flatnonzero(fold == f), a[fold == f], m))
    scores = Scores.joined(parts)
    taken = np.ones(data.n, bool) if acted is None else acted[scores.rows]
    return estimate(scores, steps, taken, data.good)


def known_scores(records, m, f, n):
    """Scores with an outcome regression and a density that are given."""
    x, u, a = (records[k] for k in "xua")
    return Scores(
        rows=np.arange(n),
        under=m(x, u, policy(x))[:, None],
        taken=m(x, u, a)[:, None],
        distance=(a - policy(x))[:, None],
        density=f(x, u, a)[:, None],
        sd=np.ones(1),
        near=np.ones(n, dtype=bool),
    )


def right_m(x, u, a):
    from scipy.special import ndtr

    return ndtr((np.sin(a) + 0.8 * u - 0.3 * x) / 0.5)


def right_f(x, u, a):
    return np.exp(-0.5 * (a - 0.5 * x - 0.7 * u) ** 2) / np.sqrt(2 * np.pi)


def wrong_m(x, u, a):
    return np.clip(0.5 + 0.4 * np.tanh(x - a), 0, 1)


def wrong_f(x, u, a):
    return np.exp(-0.5 * ((a - x) / 2) ** 2) / (2 * np.sqrt(2 * np.pi))


@pytest.mark.parametrize(
    ("m", "f", "right"),
    [
        (right_m, right_f, True),
        (right_m, wrong_f, True),
        (wrong_m, right_f, True),
        (wrong_m, wrong_f, False),
    ],
    ids=["both right", "density wrong", "regression wrong", "both wrong"],
)
def test_one_right_model_of_the_two_is_enough_and_none_is_not(m, f, right):
    n = 40_000
    records = world(n, 1)
    told = estimate(
        known_scores(records, m, f, n), ONE, np.ones(n, bool), records["y"] >= 0
    )
    assert (abs(told.value - truth(policy)) < 0.02) == right


def test_the_interval_covers_the_true_value_in_most_histories():
    true = truth(policy)
    told = []
    for seed in range(12):
        records = world(250, seed)
        told.append(judged(PROBLEM, records, policy(records["x"]), seed))
    kept = [each for each in told if not each.refused]
    assert len(kept) >= 8
    covered = [each.lower <= true <= each.upper for each in kept]
    assert np.mean(covered) >= 0.7
    assert abs(np.mean([each.value for each in kept]) - true) < 0.05
    # Taken at face value, records near such actions would say something else.
    records = world(50_000, 3)
    near = np.abs(records["a"] - policy(records["x"])) < 0.1
    assert abs((records["y"][near] >= 0).mean() - true) > 0.03


def test_covariates_between_actions_are_judged_step_by_step():
    problem = Problem(
        context=["x"],
        covariates=["u"],
        actions={"a": (-2.0, 2.0), "b": (-2.0, 2.0)},
        outcomes=["y"],
        desired=["y >= 0"],
        order=["x", "a", "u", "b", "y"],
    )

    def draw(n, seed, do=False):
        e = np.random.default_rng(seed).normal(size=(5, n))
        x = e[0]
        a = 0.5 + 0.2 * x if do else 0.5 * x + e[1]
        u = 0.8 * a + e[2]
        b = 0.3 - 0.2 * x if do else 0.6 * u + e[3]
        return {"x": x, "a": a, "u": u, "b": b, "y": b - u + 0.5 * e[4]}

    steps = steps_of(["a", "b"], problem.identification())
    assert [(s.covariates, s.before, s.now) for s in steps] == [
        ((), (), (0,)),
        (("u",), (0,), (1,)),
    ]
    true = float((draw(300_000, 9, do=True)["y"] >= 0).mean())
    told = []
    for seed in range(3):
        records = draw(400, seed)
        x = records["x"]
        actions = np.column_stack([0.5 + 0.2 * x, 0.3 - 0.2 * x])
        told.append(judged(problem, records, actions, seed))
    assert abs(np.mean([np.nanmean(each.psi) for each in told]) - true) < 0.06


def test_a_policy_that_does_what_history_did_has_the_observed_share():
    records = world(400, 5)
    told = judged(PROBLEM, records, records["a"])
    assert told.value == pytest.approx((records["y"] >= 0).mean(), abs=0.03)
    assert told.reached > 0.98


def test_leaving_everything_alone_is_worth_what_came_of_it():
    records = world(200, 5)
    told = judged(PROBLEM, records, records["a"], acted=np.zeros(200, bool))
    assert told.value == (records["y"] >= 0).mean()
    assert (told.acted, told.effective, told.shift) == (0.0, 200.0, 0.0)


def test_actions_that_nobody_took_are_refused():
    records = world(200, 5)
    told = judged(PROBLEM, records, np.full(200, 2.9) + 2 * np.sign(records["x"]))
    assert told.refused
    assert np.isnan([told.value, told.lower, told.upper]).all()
    few = np.zeros(200, bool)
    few[:20] = True
    assert judged(PROBLEM, records, policy(records["x"]), acted=few).refused == TOO_FEW


def test_estimates_are_the_same_every_time():
    records = world(150, 2)
    one, other = (judged(PROBLEM, records, policy(records["x"])) for _ in range(2))
    np.testing.assert_array_equal(one.psi, other.psi)


def test_a_graph_that_shows_a_bias_leaves_no_steps():
    graph = RehearsalGraph([("a", "y"), ("x", "a")], [("a", "y")], bidirected="latent")
    problem = Problem(
        context=["x"],
        actions={"a": (0, 1)},
        outcomes=["y"],
        desired=["y >= 0"],
        graph=graph,
    )
    assert steps_of(["a"], problem.identification()) == ()


def test_a_graph_that_clears_what_lies_between_needs_one_step():
    task = tasks.get("lin-syn1")
    names = list(task.problem.actions)
    assert len(steps_of(names, task.problem.identification())) == 2
    with_graph = task.problem_with_graph().identification()
    assert len(steps_of(names, with_graph)) == 1


@given(
    arrays(float, 12, elements=st.floats(0.01, 10)),
    arrays(float, 12, elements=st.floats(-1, 1)),
)
def test_corrections_average_to_the_weighted_mean(w, missed):
    told = corrections(w, missed)
    assert told.mean() == pytest.approx(np.average(missed, weights=w), abs=1e-9)


@given(arrays(float, (9, 1), elements=st.floats(0.0, 10)))
def test_effective_sizes_lie_between_none_and_all(W):
    size = effective_size(W)
    assert 0.0 <= size <= 9.0 + 1e-9
    assert effective_size(np.ones((9, 1))) == pytest.approx(9.0)


def test_a_density_adds_up_to_one_and_knows_where_the_spread_changes():
    rng = np.random.default_rng(0)
    z = rng.uniform(-1, 1, (400, 1))
    a = z[:, 0] + (0.5 + 0.4 * z[:, 0]) * rng.uniform(-1.7, 1.7, 400)
    law = ActionLaw.fit(Family(z), a)
    grid = np.linspace(-12, 12, 2001)
    for at in (-0.9, 0.0, 0.9):
        told = law.density(grid, np.full((2001, 1), at))
        assert np.trapezoid(told, grid) == pytest.approx(1.0, abs=0.01)
    spread = np.abs(
        law.deviations(np.array([0.9, -0.9]) + 1.0, z[:2] * 0 + [[0.9], [-0.9]])
    )
    assert spread[1] > 1.2 * spread[0]


def test_a_linear_world_looks_linear_and_a_bent_one_does_not():
    rng = np.random.default_rng(0)
    z = rng.normal(size=(300, 2))
    e = rng.normal(size=300)
    assert LinearFit.of(Family(z), (z @ [1.0, 2.0] + e)[:, None]).fine
    bent = LinearFit.of(Family(z), (np.sin(3 * z[:, 0]) + 0.2 * e)[:, None])
    assert not bent.fine
    assert "misses by" in str(bent)
    odd = LinearFit.of(Family(z), (z @ [1.0, 2.0] + e**3)[:, None])
    assert "does not look Gaussian" in str(odd) or "misses by" in str(odd)


def test_differences_use_the_records_that_both_were_judged_on():
    one = np.array([1.0, 2.0, np.nan, 4.0])
    other = np.array([0.0, np.nan, 5.0, 2.0])
    assert difference(one, other).value == 1.5
    assert np.isnan(mean_of(np.array([1.0])).value)
