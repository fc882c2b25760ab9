"""The strongest linear method, and the probability of a polytope that it climbs."""

import warnings

import numpy as np
import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st
from scipy.stats import multivariate_normal

from forestall import (
    FitError,
    ForestallWarning,
    Polytope,
    Problem,
    SpecError,
    baselines,
    tasks,
)
from forestall.baselines.climb import Hill
from forestall.baselines.drift import Drift
from forestall.baselines.polytope_probability import PolytopeProbability
from forestall.nested import JUDGED
from worlds import DOSING, LENDING, contexts_of, dosing, lending

# Some worlds here are bent on purpose; that it is said is tested elsewhere.
pytestmark = pytest.mark.filterwarnings("ignore:The records are not linear")

REGIONS = {
    "box": ["0 <= a <= 2", "-1 <= b <= 1"],
    "quadrant": ["a >= 0", "b >= 0"],
    "half plane": ["a + 2*b <= 1"],
    "wedge": ["a + b <= 1", "a - b <= 1"],
    "triangle": ["a + b <= 1", "a >= -1", "b >= -1"],
    "strip": ["0 <= a - b <= 1"],
    "one outcome only": ["0 <= b <= 1"],
    "redundant": ["0 <= a <= 2", "a <= 5", "b >= 0", "a + b >= -9"],
}
SEEDS = st.integers(0, 10**6)


def law(seed, d):
    rng = np.random.default_rng(seed)
    A = rng.normal(size=(d, d))
    return rng.normal(size=d), np.linalg.cholesky(A @ A.T + 0.1 * np.eye(d))


def region(name):
    return Polytope.parse(REGIONS[name], ["a", "b"])


@given(seed=SEEDS)
@settings(max_examples=30)
def test_a_correlated_box_has_the_probability_that_scipy_says(seed):
    mean, F = law(seed, 2)
    told = PolytopeProbability.of(region("box"))(mean[None], F[None])[0]
    low, high = [0.0, -1.0], [2.0, 1.0]
    expected = multivariate_normal.cdf(high, mean, F @ F.T, lower_limit=low)
    assert abs(told - expected) < 1e-4


@pytest.mark.parametrize("name", REGIONS)
def test_any_region_has_the_share_of_simulated_outcomes(name, rng):
    for seed in range(3):
        mean, F = law(seed, 2)
        y = mean + rng.normal(size=(200_000, 2)) @ F.T
        told = PolytopeProbability.of(region(name))(mean[None], F[None])[0]
        assert abs(told - region(name).contains(y).mean()) < 0.006


def test_three_outcomes_have_the_share_of_simulated_ones(rng):
    cut = ["a + b <= 1", "a - b <= 0.5", "a + c <= 1", "c >= -1"]
    polytope = Polytope.parse(cut, ["a", "b", "c"])
    mean, F = law(0, 3)
    y = mean + rng.normal(size=(400_000, 3)) @ F.T
    told = PolytopeProbability.of(polytope)(mean[None], F[None])[0]
    assert abs(told - polytope.contains(y).mean()) < 0.006


def test_each_mean_may_have_a_law_of_its_own():
    laws = [law(seed, 2) for seed in range(4)]
    means, factors = (np.stack(part) for part in zip(*laws, strict=True))
    probability = PolytopeProbability.of(region("triangle"))
    together = probability(means, factors)
    alone = [probability(m[None], F[None])[0] for m, F in laws]
    np.testing.assert_allclose(together, alone, rtol=1e-12)


@given(seed=SEEDS, name=st.sampled_from(sorted(REGIONS)))
@settings(max_examples=40)
def test_minus_log_probability_is_convex_along_random_segments(seed, name):
    rng = np.random.default_rng(seed)
    _, F = law(seed, 2)
    one, other = rng.normal(scale=3.0, size=(2, 2))
    t = np.linspace(0.0, 1.0, 9)[:, None]
    points = (1 - t) * one + t * other
    cost = -PolytopeProbability.of(region(name), 128).log(points, F[None])
    bend = cost[:-2] - 2 * cost[1:-1] + cost[2:]
    assert bend.min() > -2e-3 * max(1.0, np.abs(cost).max())


@given(seed=SEEDS, name=st.sampled_from(["box", "quadrant", "triangle", "strip"]))
@example(seed=699, name="quadrant")
@example(seed=535, name="strip")
@example(seed=678, name="strip")
@settings(max_examples=30)
def test_the_moments_are_the_derivatives_of_the_logarithm(seed, name):
    mean, F = law(seed, 2)
    # With 256 points one law in a thousand is off by more.
    probability = PolytopeProbability.of(region(name), 1024)
    cut = probability.truncated(mean[None], F[None])
    gradient = np.linalg.solve(F.T, cut.noise[0])
    h = 1e-3
    around = mean + h * np.array([[1, 0], [-1, 0], [0, 1], [0, -1]])
    logs = probability.log(around, F[None])
    slopes = (logs[[0, 2]] - logs[[1, 3]]) / (2 * h)
    np.testing.assert_allclose(gradient, slopes, atol=0.02, rtol=0.02)


def test_a_region_far_away_still_tells_where_it_lies():
    probability = PolytopeProbability.of(region("box"))
    cut = probability.truncated(np.array([[500.0, -80.0]]), np.eye(2)[None])
    assert np.isfinite(cut.log_probability[0])
    np.testing.assert_allclose(cut.noise[0], [-498.0, 79.0], atol=0.1)


@given(seed=SEEDS, name=st.sampled_from(sorted(REGIONS)))
@example(seed=5314, name="half plane")
@example(seed=98, name="one outcome only")
@example(seed=245, name="strip")
@example(seed=30, name="one outcome only")
@example(seed=288, name="half plane")
@settings(max_examples=15)
def test_the_top_is_as_high_as_any_point_of_a_grid(seed, name):
    rng = np.random.default_rng(seed)
    mean, F = law(seed, 2)
    B = rng.normal(size=(2, 2))
    hill = Hill(
        PolytopeProbability.of(region(name)),
        3.0 * mean[None],
        B,
        F,
        np.array([-1.0, -2.0]),
        np.array([2.0, 1.0]),
        np.zeros((1, 2)),
    )
    side = np.linspace(0, 1, 15)
    grid = np.stack(np.meshgrid(-1 + 3 * side, -2 + 3 * side), axis=-1).reshape(-1, 2)
    heights = hill.height(np.zeros(len(grid), dtype=int), grid)
    # So far from the region the quadrature is too coarse for its own derivatives.
    assume(heights.max() > -30.0)
    best = hill.best()
    assert (best >= hill.lower).all()
    assert (best <= hill.upper).all()
    assert hill.height(np.array([0]), best)[0] >= heights.max() - 1e-3


def test_the_nearest_to_the_usual_of_equal_actions_is_taken():
    usual = np.array([[0.7, -0.2, 0.4]])
    hill = Hill(
        PolytopeProbability.of(Polytope.parse(["-1 <= y <= 1"], ["y"])),
        np.array([[-0.5]]),
        np.array([[1.0, 1.0, 0.0]]),
        np.array([[0.5]]),
        -np.ones(3),
        np.ones(3),
        usual,
    )
    # The mean has to be zero: the first two actions have to sum to 0.5, as they do.
    np.testing.assert_allclose(hill.best(), usual, atol=1e-4)


DESIRED = [
    ["repaid >= 0.6", "roi >= 0.3"],
    ["0.5 <= repaid <= 0.8", "roi <= 0.7"],
    ["repaid >= 0.6"],
    ["repaid + roi >= 1.0"],
    ["repaid - roi <= 0.3", "repaid + roi >= 0.9", "roi <= 2"],
    ["0.4 <= repaid - 0.5*roi <= 0.6"],
]


@pytest.mark.parametrize("method", [baselines.LinearOptimal(), baselines.CARE()])
def test_every_region_is_accepted_without_fitting_anew(method):
    history = lending(300)
    contexts = contexts_of(LENDING, history, slice(0, 5))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ForestallWarning)
        policy = method.fit(LENDING, history)
        for desired in DESIRED:
            told = policy.for_region(desired).recommend(contexts)
            assert np.isfinite(told.probability).all()
            assert (told.lower <= told.probability).all()
            assert (told.probability <= told.upper).all()
            assert ((told.actions >= 0) & (told.actions <= 1)).all()


def test_no_action_of_a_grid_is_reported_to_be_better():
    history = lending(300)
    contexts = contexts_of(LENDING, history, slice(0, 5))
    policy = baselines.LinearOptimal().fit(LENDING, history)
    told = policy.recommend(contexts).probability
    for rate in np.linspace(0.0, 1.0, 9).tolist():
        assert (told >= policy.probability(contexts, {"rate": rate}) - 0.01).all()


def test_bermuda_comes_within_a_hundredth_of_the_oracle():
    task = tasks.get("bermuda")
    policy = baselines.LinearOptimal().fit(task.problem, task.history(1000, seed=1))
    contexts = task.contexts(4, seed=1)
    told = policy.recommend(contexts)
    for i, decision in enumerate(told):
        context = {k: float(v[i]) for k, v in contexts.items()}
        found = task.success(context, decision.actions, 20_000, 0)
        assert found > task.oracle(context)[1] - 0.015
        assert abs(found - told.probability[i]) < 0.03
    assert set(told.verdict) == {"act"}


def test_with_the_graph_lin_syn1_is_as_good_as_it_gets():
    task = tasks.get("lin-syn1")
    problem = task.problem_with_graph()
    policy = baselines.LinearOptimal().fit(problem, task.history(1000, seed=1))
    contexts = task.contexts(4, seed=1)
    for i, decision in enumerate(policy.recommend(contexts)):
        context = {k: float(v[i]) for k, v in contexts.items()}
        assert task.success(context, decision.actions, 20_000, 0) > 0.94


def test_a_world_that_is_not_linear_is_said_to_be_so(rng):
    x, a = rng.normal(size=(2, 500))
    y = np.where(np.abs(x + a) > 0.3, 5.0, 0.0) + 0.01 * rng.normal(size=500)
    problem = Problem(
        context=["x"],
        actions={"a": (-1.0, 1.0)},
        outcomes=["y"],
        desired=["y >= 4"],
    )
    with pytest.warns(ForestallWarning, match="no action will be called"):
        policy = baselines.LinearOptimal().fit(problem, {"x": x, "a": a, "y": y})
    assert "act" not in policy.recommend({"x": x[:20]}).verdict


def test_more_records_make_narrower_intervals():
    widths = []
    for n in (60, 2000):
        history = dosing(n)
        policy = baselines.LinearOptimal().fit(DOSING, history)
        told = policy.evaluate({"age": [45.0, 50.0, 55.0]}, {"dose": 1.0, "time": 0.0})
        widths.append((told.upper - told.lower).mean())
    assert widths[1] < 0.5 * widths[0]


def test_a_useless_action_is_left(rng):
    x, a = rng.normal(size=(2, 400))
    history = {"x": x, "a": a, "y": x + rng.normal(size=400)}
    problem = Problem(
        context=["x"],
        actions={"a": (-1.0, 1.0)},
        outcomes=["y"],
        desired=["y >= 0"],
    )
    for method in (baselines.LinearOptimal(), baselines.CARE()):
        told = method.fit(problem, history).recommend({"x": [-1.0, 0.0, 1.0]})
        assert told.verdict == ["leave"] * 3


def test_too_few_draws_or_points_are_refused():
    with pytest.raises(SpecError, match=r"Expected n_draws of at least 2.*got 1"):
        baselines.LinearOptimal(n_draws=1)
    with pytest.raises(SpecError, match="Expected n_points of at least 1 and"):
        baselines.LinearOptimal(n_points=0)


@pytest.mark.parametrize(
    ("sound", "name", "value", "message"),
    [
        (
            baselines.CARE(),
            "seed",
            -1,
            "Expected seed whole and not below zero; got -1",
        ),
        (baselines.CARE(), "seed", 0.5, "Expected seed whole and not below zero"),
        (baselines.CARE(), "n_draws", 2.5, "and whole; got 2.5. Use 200."),
        (baselines.CARE(), "n_draws", "many", "and whole; got 'many'. Use 200."),
        (baselines.NoAction(), "bandwidth", -1.0, "bandwidth above zero; got -1.0"),
        (baselines.NoAction(), "penalty", 0, "Expected penalty above zero; got 0"),
        (baselines.GradRehearsal(), "n_steps", True, "zero and whole; got True"),
        (baselines.GradRehearsal(), "n_refits", 1.5, "zero or more; got 1.5"),
        (baselines.QWZ23(), "n_worlds", 2.5, "above zero and whole; got 2.5"),
        (baselines.QWZ23(), "n_fresh", None, "above zero and whole; got None"),
        (baselines.QWZ23(), "n_fresh", "a", "above zero and whole; got 'a'"),
        (baselines.QWZ23(), "time_limit", "long", "above zero; got 'long'"),
        (baselines.LinearOptimal(), "n_points", 2.5, "least 1 and whole; got 2.5"),
        (Drift(), "n_steps", 2.5, "Expected n_steps whole and at least 1; got 2.5"),
        (Drift(), "largest", "far", "in this order; got 0.001 and 'far'"),
    ],
)
def test_what_is_no_number_at_all_is_refused(sound, name, value, message):
    # The annotations, which tests enforce, would speak first.
    object.__setattr__(sound, name, value)
    with pytest.raises(SpecError) as caught:
        sound.__post_init__()
    assert message in str(caught.value)


def test_a_fit_weighs_few_of_many_records_against_each_other():
    policy = baselines.LinearOptimal(n_draws=20).fit(DOSING, dosing(5_000))
    assert policy.data.n == 5_000
    for support in (policy.joint, policy.horizon.support):
        assert len(support.levels) <= JUDGED
    np.testing.assert_array_equal(policy.horizon.lower, policy.data.x.min(axis=0))


def test_no_action_refuses_more_records_than_it_can_solve_for(monkeypatch):
    monkeypatch.setattr("forestall.baselines.no_action.MOST", 50)
    text = r"Expected at most 50 records.*got 51\. Pass a random part of them"
    with pytest.raises(FitError, match=text):
        baselines.NoAction().fit(DOSING, dosing(51))


def test_the_policy_names_its_method_and_tells_of_its_records():
    policy = baselines.LinearOptimal().fit(DOSING, dosing(100))
    assert repr(policy) == "<LinearOptimal for dose, time>"
    assert policy.diagnostics().records == 100


def test_an_unknown_baseline_is_an_attribute_error():
    with pytest.raises(AttributeError, match="has no attribute 'Oracle'"):
        _ = baselines.Oracle
    assert "LinearOptimal" in dir(baselines)
