"""CARE: the closed form, the rectangle, and where it equals the best linear method."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize

from forestall import FitError, Polytope, baselines, tasks
from forestall.baselines.care import cheapest, principal_axes
from forestall.baselines.rectangle import inscribed
from worlds import DOSING, contexts_of, dosing

# Some worlds here are bent on purpose; that it is said is tested elsewhere.
pytestmark = pytest.mark.filterwarnings("ignore:The records are not linear")

SEEDS = st.integers(0, 10**6)
RECORDS = np.random.default_rng(0).normal(size=(200, 2))


def rotation(angle):
    c, s = np.cos(angle), np.sin(angle)
    return np.array([[c, s], [-s, c]])


def corners(rectangle, axes, far=1e3):
    low, high = (np.clip(v, -far, far) for v in (rectangle.lower, rectangle.upper))
    w = np.array([[x, y] for x in (low[0], high[0]) for y in (low[1], high[1])])
    return w @ axes


def instance(rng):
    d = int(rng.integers(1, 6))
    b = rng.normal(size=d) * rng.choice([1.0, 0.0], size=d, p=[0.9, 0.1])
    lower = -rng.uniform(0.1, 3.0, d)
    upper = rng.uniform(0.1, 3.0, d)
    return b, lower, upper, rng.uniform(lower, upper)


def test_the_closed_form_hits_its_target_on_a_thousand_instances(rng):
    for _ in range(1000):
        b, lower, upper, usual = instance(rng)
        low = np.minimum(b * lower, b * upper).sum()
        high = np.maximum(b * lower, b * upper).sum()
        target = rng.uniform(low, high)
        a = cheapest(b, np.array([target]), usual[None], lower, upper)[0]
        assert (a >= lower).all()
        assert (a <= upper).all()
        assert abs(a @ b - target) < 1e-9


def test_a_target_out_of_reach_is_neared_as_far_as_the_box_allows(rng):
    for _ in range(100):
        b, lower, upper, usual = instance(rng)
        high = np.maximum(b * lower, b * upper).sum()
        a = cheapest(b, np.array([high + 1.0]), usual[None], lower, upper)[0]
        assert abs(a @ b - high) < 1e-9
        np.testing.assert_array_equal(a[b == 0], usual[b == 0])


@given(seed=SEEDS)
@settings(max_examples=25)
def test_the_closed_form_is_the_cheapest_of_all_that_hit_the_target(seed):
    rng = np.random.default_rng(seed)
    b, lower, upper, usual = instance(rng)
    target = rng.uniform(lower, upper) @ b
    a = cheapest(b, np.array([target]), usual[None], lower, upper)[0]
    found = minimize(
        lambda z: ((z - usual) ** 2).sum(),
        a,
        jac=lambda z: 2 * (z - usual),
        bounds=list(zip(lower, upper, strict=True)),
        constraints={"type": "eq", "fun": lambda z: z @ b - target, "jac": lambda _: b},
        method="SLSQP",
    )
    assert ((a - usual) ** 2).sum() <= found.fun + 1e-6


def test_a_mean_that_no_action_moves_leaves_the_usual_one():
    usual = np.array([[0.3, -0.1]])
    a = cheapest(np.zeros(2), np.ones(1), usual, -np.ones(2), np.ones(2))
    np.testing.assert_array_equal(a, usual)


def test_a_box_along_the_axes_is_its_own_largest_rectangle():
    box = Polytope.parse(["0 <= a <= 2", "-1 <= b <= 3"], ["a", "b"])
    found = inscribed(box, np.eye(2), RECORDS)
    np.testing.assert_allclose(found.lower, [0, -1], atol=1e-9)
    np.testing.assert_allclose(found.upper, [2, 3], atol=1e-9)


def test_unbounded_sides_along_the_axes_stay_unbounded():
    quadrant = Polytope.parse(["a >= 0.5", "b <= 1"], ["a", "b"])
    found = inscribed(quadrant, np.eye(2), RECORDS)
    np.testing.assert_allclose(found.lower, [0.5, -np.inf], atol=1e-9)
    np.testing.assert_allclose(found.upper, [np.inf, 1.0], atol=1e-9)
    assert len(found.region) == 2


BOUNDED = [
    ["0 <= a <= 2", "-1 <= b <= 1"],
    ["a + b <= 1", "a >= -1", "b >= -1"],
    ["a + b <= 1", "a - b <= 1", "a >= -3"],
]
UNBOUNDED = [
    ["a >= 0", "b >= 0"],
    ["a + 2*b <= 1"],
    ["a + b <= 1", "a - b <= 1"],
    ["0 <= a - b <= 1"],
    ["a >= 50", "b >= 0"],
]


@given(angle=st.floats(0, 3.2), desired=st.sampled_from(BOUNDED + UNBOUNDED))
@settings(max_examples=20)
def test_the_rectangle_lies_inside_the_region(angle, desired):
    region = Polytope.parse(desired, ["a", "b"])
    axes = rotation(angle)
    found = inscribed(region, axes, RECORDS)
    assert (found.lower < found.upper).all()
    assert region.slack(corners(found, axes)).min() > -1e-3


@given(angle=st.floats(0.05, 1.5), desired=st.sampled_from(BOUNDED))
@settings(max_examples=8)
def test_no_sampled_rectangle_inside_is_larger(angle, desired):
    region = Polytope.parse(desired, ["a", "b"])
    axes = rotation(angle)
    found = inscribed(region, axes, RECORDS)
    rng = np.random.default_rng(0)
    centre = rng.uniform(-3, 3, (20_000, 2))
    half = rng.uniform(0, 2, (20_000, 2))
    M = region.normals @ axes.T
    inside = (centre @ M.T + half @ np.abs(M).T <= region.offsets).all(axis=1)
    areas = 4 * half[inside].prod(axis=1)
    assert np.prod(found.upper - found.lower) >= areas.max(initial=0.0) - 1e-6


def test_a_region_nowhere_near_the_records_is_refused():
    region = Polytope.parse(["a >= 5000", "b >= 0"], ["a", "b"])
    with pytest.raises(
        FitError, match="Expected part of the desired region within 100"
    ):
        inscribed(region, np.eye(2), RECORDS)


def test_correlations_that_records_cannot_show_do_not_turn_the_axes():
    covariance = np.array([[1.0, 0.03], [0.03, 1.0]])
    np.testing.assert_array_equal(principal_axes(covariance, 1000)[1], np.eye(2))
    sd, axes = principal_axes(covariance, 1_000_000)
    assert np.abs(axes[0, 1]) > 0.5
    np.testing.assert_allclose((axes.T * sd**2) @ axes, covariance)


@pytest.mark.parametrize("name", ["bermuda", "lin-syn1"])
def test_where_the_region_has_the_edges_of_the_law_it_is_the_best_linear_method(name):
    task = tasks.get(name)
    problem, history = task.problem_with_graph(), task.history(500, seed=2)
    contexts = task.contexts(8, seed=2)
    care, best = (
        method.fit(problem, history).recommend(contexts)
        for method in (baselines.CARE(), baselines.LinearOptimal())
    )
    np.testing.assert_allclose(care.probability, best.probability, atol=1e-3)
    np.testing.assert_allclose(care.actions, best.actions, atol=0.01)


def test_it_is_never_better_by_its_own_model_than_the_best_linear_method():
    history = dosing(300)
    contexts = contexts_of(DOSING, history, slice(0, 10))
    for desired in (["0.5 <= effect <= 1.5"], ["effect >= 1"], ["effect <= 0.2"]):
        care, best = (
            method.fit(DOSING, history).for_region(desired).recommend(contexts)
            for method in (baselines.CARE(), baselines.LinearOptimal())
        )
        assert (care.probability <= best.probability + 0.01).all()
