"""MICNS: what its constraint guarantees, what it costs, and worlds that drift."""

import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import chi2, norm

from forestall import FitError, Problem, SpecError, tasks
from forestall.baselines import MICNS, ellipsoid
from forestall.baselines.drift import Drift, followed
from forestall.baselines.ellipsoid import Ellipsoid
from forestall.errors import MissingExtraError
from worlds import DOSING, LENDING, contexts_of, dosing, lending

# Some worlds here are bent on purpose; that it is said is tested elsewhere.
pytestmark = pytest.mark.filterwarnings("ignore:The records are not linear")

pytest.importorskip("cvxpy", reason="needs the extra convex")

REGIONS = {
    "half open": ["repaid >= 0.6"],
    "unbounded": ["repaid >= 0.6", "roi >= 0.3"],
    "a box": ["0.3 <= repaid <= 0.8", "0.2 <= roi <= 0.9"],
    "slanted": ["repaid + roi >= 0.9", "repaid - 2*roi <= 0.3"],
    "a triangle": ["repaid >= 0.3", "roi >= 0.2", "repaid + roi <= 1.5"],
    "a thin strip": ["0.5 <= repaid + roi <= 0.9"],
}
PLANE = Problem(
    context=["x"],
    actions={"a": (-3.0, 3.0), "b": (-3.0, 3.0)},
    outcomes=["y1", "y2"],
    desired=["0 <= y1 <= 4", "y2 >= 0"],
)


def plane(n, seed=0):
    rng = np.random.default_rng(seed)
    x, e, f, g = rng.normal(size=(4, n))
    a, b = 0.5 * x + e, -x + f
    common = rng.normal(size=n)
    y1 = a + 0.5 * b + x + 0.5 * common + 0.3 * rng.normal(size=n)
    y2 = b - 0.3 * a - x + 0.5 * common + 0.3 * g
    return {"x": x, "a": a, "b": b, "y1": y1, "y2": y2}


def random_program(seed, d_a=2):
    rng = np.random.default_rng(seed)
    root = rng.normal(size=(d_a, d_a))
    return Ellipsoid(
        rng.normal(size=(3, d_a)),
        rng.uniform(0.1, 1.0, 3),
        root @ root.T + 0.1 * np.eye(d_a),
        -np.ones(d_a),
        np.ones(d_a),
    ), rng.normal(1.0, 1.0, size=(1, 3))


@pytest.mark.parametrize("target", [0.3, 0.7, 0.9])
def test_the_constraint_implies_the_asked_success(target):
    policy = MICNS(target=target).fit(PLANE, plane(400))
    x = np.linspace(-1.5, 1.5, 7)[:, None]
    chosen = policy.choices(x)
    met = np.array([not choice.note for choice in chosen])
    assert met.any()
    a = np.array([choice.a for choice in chosen])
    y = policy.law.sample(x, a, 20_000, np.random.default_rng(0))
    success = policy.region.contains(y).mean(axis=1)
    assert (success[met] >= target - 0.01).all()
    assert (policy.guaranteed(x, a)[met] >= target - 1e-6).all()
    assert (success >= policy.guaranteed(x, a) - 0.01).all()


@settings(max_examples=15)
@given(st.integers(0, 10_000), st.floats(0.1, 2.0))
def test_no_action_that_meets_the_constraint_is_cheaper(seed, radius):
    program, room = random_program(seed)
    z0 = np.random.default_rng(seed).normal(size=(1, 2))
    (plan,) = program.cheapest(z0, room, radius)
    line = np.linspace(-1, 1, 41)
    z = np.stack(np.meshgrid(line, line), axis=-1).reshape(-1, 2)
    radii = program.radii(z, np.repeat(room, len(z), axis=0))
    assert plan.radius >= min(radius, radii.max() - 1e-4)
    assert program.radii(plan.z[None], room)[0] >= plan.radius - 1e-5
    assert (np.abs(plan.z) <= 1).all()
    costs = np.einsum("md,de,me->m", z - z0, program.cost, z - z0)
    cost = (plan.z - z0[0]) @ program.cost @ (plan.z - z0[0])
    assert cost <= costs[radii >= plan.radius].min(initial=np.inf) + 1e-4


def test_what_is_good_already_is_left_where_it_is():
    program, _ = random_program(0)
    z0 = np.array([[0.3, -0.2]])
    (plan,) = program.cheapest(z0, np.full((1, 3), 50.0), 1.0)
    np.testing.assert_allclose(plan.z, z0[0], atol=1e-4)
    assert plan.radius == 1.0


def test_a_target_out_of_reach_says_what_is_reachable():
    history = lending(300)
    policy = MICNS(target=0.995).fit(LENDING, history)
    contexts = contexts_of(LENDING, history, slice(0, 10))
    told = policy.recommend(contexts)
    assert all(
        "The target of over 99% is out of reach: at most" in r for r in told.reason
    )
    x = policy.schema.encode_contexts(contexts).x
    grid = np.linspace(policy.schema.lower, policy.schema.upper, 201)
    best = np.max([policy.guaranteed(x, np.tile(a, (10, 1))) for a in grid], axis=0)
    chosen = np.array([choice.a for choice in policy.choices(x)])
    assert (policy.guaranteed(x, chosen) >= best - 1e-5).all()
    assert f"at most {policy.guaranteed(x, chosen)[0]:.0%}" in told.reason[0]


def test_a_target_within_reach_adds_no_remark():
    told = MICNS(target=0.5).fit(PLANE, plane(400)).recommend({"x": [0.0, 0.5]})
    assert not any("out of reach" in reason for reason in told.reason)


def test_one_outcome_and_one_bound_have_a_closed_form():
    rng = np.random.default_rng(0)
    x, a = rng.normal(size=(2, 500))
    history = {"x": x, "a": a, "y": 2 * a + x + rng.normal(size=500)}
    problem = Problem(
        context=["x"], actions={"a": (-9.0, 9.0)}, outcomes=["y"], desired=["y >= 3"]
    )
    policy = MICNS(target=0.7).fit(problem, history)
    told = policy.recommend({"x": [0.0]})
    reach = np.sqrt(chi2.ppf(0.7, 1))
    assert told.actions[0, 0] == pytest.approx((3 + reach) / 2, abs=0.15)
    assert told.probability[0] == pytest.approx(norm.cdf(reach), abs=0.02)


def test_an_action_that_costs_more_is_altered_less():
    history = plane(400)
    contexts = {"x": [0.0]}
    usual = MICNS().fit(PLANE, history)
    natural = usual.model.natural_actions().base(np.zeros((1, 1)))
    natural = usual.schema.actions_to_units(natural)[0]
    dear_a = MICNS(cost={"a": 100.0, "b": 1.0}).fit(PLANE, history).recommend(contexts)
    dear_b = MICNS(cost=[[1, 0], [0, 100]]).fit(PLANE, history).recommend(contexts)
    moved_a, moved_b = (np.abs(t.actions[0] - natural) for t in (dear_a, dear_b))
    assert moved_a[0] < moved_b[0]
    assert moved_a[1] > moved_b[1]


def test_the_size_and_the_units_of_a_cost_do_not_matter():
    history = plane(200)
    other = history | {"a": 1000.0 * history["a"]}
    fields = PLANE.to_dict() | {"actions": {"a": (-3000.0, 3000.0), "b": (-3.0, 3.0)}}
    one = MICNS(cost={"a": 2.0, "b": 1.0}).fit(PLANE, history)
    two = MICNS(cost={"a": 2e-3, "b": 1e3}).fit(Problem.from_dict(fields), other)
    a, b = (policy.recommend({"x": [0.3]}).actions[0] for policy in (one, two))
    np.testing.assert_allclose(a * [1000.0, 1.0], b, rtol=1e-3)


@pytest.mark.parametrize(
    ("cost", "text"),
    [
        ([[1.0]], r"a 2 x 2 matrix for the actions a, b; got shape \(1, 1\)"),
        ([[1, 2], [0, 1]], "finite and symmetric matrix that is not zero"),
        ([[0, 0], [0, 0]], "finite and symmetric matrix that is not zero"),
        ([[1, 2], [2, 1]], "positive semidefinite matrix.*eigenvalue -1"),
        ("free", "cost as a matrix of numbers; got 'free'"),
        ({"a": 1.0}, "a cost for each action; missing: b"),
        ({"a": 1.0, "b": 1.0, "bb": 1.0}, r"name actions \(a, b\); got 'bb'"),
    ],
)
def test_a_cost_that_makes_no_sense_is_refused(cost, text):
    history = plane(50)
    scales = {k: (history[k] - history[k].mean()) / history[k].std() for k in "ab"}
    with pytest.raises(SpecError, match=text):
        MICNS(cost=cost).fit(PLANE, history | scales)


def test_a_target_that_is_no_probability_is_refused():
    with pytest.raises(SpecError, match=r"target between 0 and 1.*got 1\.0"):
        MICNS(target=1.0)


@pytest.mark.parametrize("region", REGIONS.values(), ids=REGIONS.keys())
def test_every_region_is_accepted(region):
    policy = MICNS().fit(LENDING, lending(200)).for_region(region)
    told = policy.recommend(contexts_of(LENDING, lending(5, seed=4), slice(None)))
    assert np.isfinite(told.probability).all()
    assert (told.lower <= told.probability).all()
    assert (told.probability <= told.upper).all()
    assert ((told.actions >= 0) & (told.actions <= 1)).all()


def test_without_cvxpy_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "cvxpy", None)
    with pytest.raises(MissingExtraError, match=r"pip install 'forestall\[convex\]'"):
        MICNS().fit(DOSING, dosing(50))


def test_a_solver_that_breaks_down_is_followed_by_another(monkeypatch):
    policy = MICNS().fit(DOSING, dosing(100))
    expected = policy.recommend({"age": 50.0}).actions
    monkeypatch.setattr(ellipsoid, "SOLVERS", ("MOSEK", "CLARABEL"))
    np.testing.assert_allclose(policy.recommend({"age": 50.0}).actions, expected)
    monkeypatch.setattr(ellipsoid, "SOLVERS", ("MOSEK", "GUROBI"))
    with pytest.raises(FitError, match=r"got none: MOSEK says error .*; GUROBI says"):
        policy.recommend({"age": 50.0})


def test_drifting_coefficients_are_followed():
    rng = np.random.default_rng(0)
    n = 1000
    z = rng.normal(size=(n, 2))
    path = np.linspace(2.0, -1.0, n)
    v = path * z[:, 0] - z[:, 1] + 0.5 + 0.1 * rng.normal(size=n)
    found = followed(z, v, Drift().steps)
    still = np.linalg.lstsq(np.column_stack([np.ones(n), z]), v, rcond=None)[0]
    assert abs(found.slopes[0] + 1.0) < 0.2 < abs(still[1] + 1.0)
    assert found.slopes[1] == pytest.approx(-1.0, abs=0.15)
    assert found.intercept == pytest.approx(0.5, abs=0.15)
    assert 0.1 <= found.sd < 0.3


@pytest.mark.parametrize("scale", [1e-3, 1.0, 1e3])
def test_where_nothing_drifts_following_comes_close_to_least_squares(scale):
    rng = np.random.default_rng(1)
    z = rng.normal(3.0, scale, size=(1500, 2))
    v = z @ [1.0, -2.0] / scale + 0.3 * rng.normal(size=1500)
    found = followed(z, v, Drift().steps)
    np.testing.assert_allclose(found.slopes * scale, [1.0, -2.0], atol=0.15)
    assert found.sd == pytest.approx(0.3, abs=0.06)


def test_a_sudden_change_is_caught_up_with():
    rng = np.random.default_rng(2)
    z = rng.normal(size=(800, 1))
    slope = np.where(np.arange(800) < 600, 1.0, -1.0)
    found = followed(z, slope * z[:, 0] + 0.1 * rng.normal(size=800), Drift().steps)
    assert found.slopes[0] == pytest.approx(-1.0, abs=0.15)


def drifting(n, seed=0):
    rng = np.random.default_rng(seed)
    x, a = rng.normal(size=(2, n))
    effect = np.linspace(1.5, -1.5, n)
    return {"x": x, "a": a, "y": effect * a + x + 0.3 * rng.normal(size=n)}


def test_in_a_world_that_drifts_the_followed_action_succeeds_and_the_other_does_not():
    problem = Problem(
        context=["x"], actions={"a": (-2.0, 2.0)}, outcomes=["y"], desired=["y >= 1"]
    )
    contexts = {"x": np.linspace(-0.5, 0.5, 5)}
    history = drifting(1200)
    told = MICNS(drift=Drift()).fit(problem, history).recommend(contexts)
    truth = norm.cdf((-1.5 * told.actions[:, 0] + contexts["x"] - 1) / 0.3)
    assert (truth > 0.7).all()
    np.testing.assert_allclose(told.probability, truth, atol=0.25)
    assert (told.upper - told.lower > 0).all()
    still = MICNS().fit(problem, history).recommend(contexts)
    assert (
        norm.cdf((-1.5 * still.actions[:, 0] + contexts["x"] - 1) / 0.3) < 0.6
    ).all()


def test_drift_has_to_be_said_by_a_drift():
    for field, text in [
        ({"n_steps": 0}, "Expected n_steps whole and at least 1; got 0"),
        ({"smallest": -1.0}, r"above zero, in this order; got -1\.0 and 10\.0"),
        ({"smallest": 20.0}, r"above zero, in this order; got 20\.0 and 10\.0"),
    ]:
        with pytest.raises(SpecError, match=text):
            Drift(**field)
    with pytest.raises(SpecError, match=r"drift as a Drift or None; got True"):
        MICNS(drift=True)


def test_on_its_home_ground_it_keeps_its_promise():
    task = tasks.get("lin-syn1")
    policy = MICNS().fit(task.problem_with_graph(), task.history(1000, 1))
    contexts = task.contexts(4, 2)
    told = policy.recommend(contexts)
    for i, decision in enumerate(told):
        x = {name: float(v[i]) for name, v in contexts.items()}
        assert task.success(x, decision.actions, 4000, 3) > 0.85
