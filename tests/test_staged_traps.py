"""Worlds in which a careless system of mechanisms would be wrong."""

import numpy as np
import pytest

from forestall import ForestallWarning, Problem
from test_staged import QUICK

N = 800


def problem(**fields):
    base = {
        "context": ["x"],
        "covariates": ["u"],
        "actions": {"a": (-2.0, 2.0)},
        "outcomes": ["y"],
        "desired": ["y >= 1"],
    }
    return Problem(**(base | fields))


@pytest.fixture
def r():
    return np.random.default_rng(0)


def told(asked, history, x=1.5, **actions):
    policy = QUICK.fit(asked, history)
    return policy.evaluate({"x": [x]}, actions)


@pytest.mark.parametrize(
    "known",
    [
        {"order": [["x", "u"], "a", "y"]},
        {"order": ["u", "x", "a", "y"]},
        {"order": ["x", "u", "a", "y"]},
        {"graph": "digraph { u -> x; u -> a; u -> y; a -> y }"},
        {"graph": "digraph { hid -> {x u}; u -> a; u -> y; a -> y }"},
    ],
    ids=str,
)
def test_what_is_seen_tells_of_what_came_before_it(known, r):
    x = r.normal(size=N)
    u = 0.95 * x + 0.3 * r.normal(size=N)
    a = u + r.normal(size=N)
    y = a - 2 * u + 0.3 * r.normal(size=N)
    history = {"x": x, "u": u, "a": a, "y": y}
    assert told(problem(**known), history, a=2.0).probability[0] < 0.05


def test_a_root_has_no_inputs_and_no_trouble(r):
    x, u = r.normal(size=(2, N))
    a = x + u + r.normal(size=N)
    history = {"x": x, "u": u, "a": a, "y": a - u + r.normal(size=N)}
    graph = "digraph { x -> a; u -> a; a -> y; u -> y }"
    assert told(problem(graph=graph), history, x=0.0, a=1.0).probability[
        0
    ] == pytest.approx(0.5, abs=0.07)


def test_actions_of_one_tier_go_along_with_each_other(r):
    x, a = r.normal(size=(2, N))
    b = a + 0.1 * r.normal(size=N)
    history = {"x": x, "a": a, "b": b, "y": a - b + 0.1 * r.normal(size=N)}
    asked = problem(
        covariates=[],
        actions={"a": (-2.0, 2.0), "b": (-2.0, 2.0)},
        desired=["-0.3 <= y <= 0.3"],
    )
    decisions = told(asked, history, x=0.0, a=0.0, b=0.0)
    assert decisions.no_action[0] == pytest.approx(0.966, abs=0.05)
    policy = QUICK.fit(asked, history)
    alone = policy.recommend({"x": [0.0]}, only=["a"])
    # With a held, b strays by itself: y = a - b is good in a quarter of the cases.
    assert alone.probability[0] < 0.45


def test_covariates_of_one_tier_go_along_with_each_other(r):
    x, u = r.normal(size=(2, N))
    v = u + 0.1 * r.normal(size=N)
    a = r.normal(size=N)
    y = a + 2 * u - 2 * v + 0.1 * r.normal(size=N)
    history = {"x": x, "u": u, "v": v, "a": a, "y": y}
    asked = problem(
        covariates=["u", "v"],
        order=["x", ["u", "v"], "a", "y"],
        desired=["-1 <= y <= 1"],
    )
    assert told(asked, history, x=0.0, a=0.0).probability[0] > 0.95


@pytest.mark.parametrize("desired", ["y >= 1", "y >= 0.5", "y > 0", "y >= 0.01"])
def test_a_yes_or_no_outcome_does_not_care_how_its_bound_is_written(desired, r):
    x, a = r.normal(size=(2, N))
    y = (a + 0.5 * x + 0.5 * r.normal(size=N) > 0).astype(float)
    asked = problem(covariates=[], desired=[desired])
    decisions = told(asked, {"x": x, "a": a, "y": y}, x=0.3, a=1.0)
    assert decisions.probability[0] == pytest.approx(0.99, abs=0.06)
    assert decisions.no_action[0] == pytest.approx(0.553, abs=0.08)


@pytest.mark.parametrize("n", [100, 200, N])
@pytest.mark.parametrize("place", [0, -1])
def test_one_absurd_entry_does_not_turn_the_advice_round(r, n, place):
    x, a = r.normal(size=(2, n))
    y = a + 0.5 * r.normal(size=n)
    # In the middle, or on the outskirts, where the first look may be what is wrong.
    y[np.argsort(x**2 + a**2)[place]] = 1e6
    asked = problem(covariates=[])
    best = QUICK.fit(asked, {"x": x, "a": a, "y": y}).recommend({"x": [0.0]})
    assert best.actions[0, 0] > 1.5


def test_actions_beyond_any_trend_are_not_advised(r):
    x, a = r.normal(size=(2, N))
    history = {"x": x, "a": a, "y": a + 0.5 * r.normal(size=N)}
    asked = problem(covariates=[], actions={"a": (50.0, 60.0)})
    decisions = QUICK.fit(asked, history).recommend({"x": [0.0]})
    assert decisions.verdict == ["abstain"]
    assert decisions.extrapolates.all()


@pytest.mark.filterwarnings("ignore::forestall.ForestallWarning")
def test_what_nobody_tried_is_not_said_to_be_no_better(r):
    n = 300
    x = r.normal(size=n)
    u = 0.5 * x + 0.5 * r.normal(size=n)
    a = np.clip(0.5 * u + 0.4 * r.normal(size=n), -2.0, 2.0)
    history = {"x": x, "u": u, "a": a, "y": np.sin(2 * a) + u + 0.3 * r.normal(size=n)}
    order = ["x", "u", "a", "y"]
    asked = problem(actions={"a": (3.0, 4.0)}, desired=["y >= 0.8"], order=order)
    told = QUICK.fit(asked, history).recommend({"x": [-1.0, -0.5, 0.0, 0.5, 1.0]})
    assert told.verdict == ["abstain"] * 5


def test_a_very_wide_box_does_not_hide_history(r):
    x, a = r.normal(size=(2, N))
    history = {"x": x, "a": a, "y": a + 0.5 * r.normal(size=N)}
    asked = problem(covariates=[], actions={"a": (-1e9, 1e9)}, desired=["0 <= y <= 2"])
    decisions = QUICK.fit(asked, history).recommend({"x": [0.0]})
    assert abs(decisions.actions[0, 0] - 1.0) < 0.5
    assert decisions.verdict == ["act"]


def test_a_system_that_cannot_reproduce_its_records_says_so(r):
    x, a = r.normal(size=(2, N))
    y = a + 0.5 * r.normal(size=N)
    # Two values between others that many share: one alone would be a way of its own.
    y[np.abs(y) < 0.5] = 0.0
    y[np.abs(y - 1.1) < 0.5] = 1.1
    asked = problem(covariates=[], desired=["-0.1 <= y <= 0.1"])
    with pytest.warns(ForestallWarning, match="off by .* on the share of good"):
        policy = QUICK.fit(asked, {"x": x, "a": a, "y": y})
    decisions = policy.recommend({"x": [0.0, 1.0]})
    assert "act" not in decisions.verdict
    assert not decisions.extrapolates.any()
    assert all("the fit cannot be trusted" in why for why in decisions.reason)
    assert all("All in all the fitted system is off by" in w for w in decisions.reason)
    told = policy.diagnostics()
    assert "off by" in str(told)
    assert "off by" in told.advice
    assert "off by" in told.remarks[0]
    assert "off by" in told.to_dict()["misfit"]


def test_a_generous_interval_does_not_lead_beyond_all_trends(r):
    x, a = r.normal(size=(2, N))
    history = {"x": x, "a": a, "y": x + 1.5 * a + r.normal(size=N)}
    asked = problem(covariates=[], actions={"a": (-2.0, 99.0)}, desired=["y >= 1"])
    policy = QUICK.fit(asked, history)
    decisions = policy.recommend({"x": [0.0]})
    assert decisions.verdict == ["act"]
    again = policy.evaluate({"x": [0.0]}, decisions.actions)
    assert again.verdict == ["act"]
    beyond = policy.evaluate({"x": [0.0]}, {"a": 99.0})
    assert beyond.verdict == ["abstain"]
    assert "further out than any trend can be trusted" in beyond.reason[0]


def test_an_action_outside_its_interval_is_never_an_act(r):
    x, a = r.normal(size=(2, N))
    history = {"x": x, "a": a, "y": a + 0.5 * r.normal(size=N)}
    decisions = told(problem(covariates=[]), history, x=0.0, a=2.5)
    assert decisions.verdict == ["abstain"]
    assert "outside its feasible interval" in decisions.reason[0]


def test_an_action_that_is_left_alone_is_a_gap_in_the_frame(r):
    x, a, b = r.normal(size=(3, N))
    history = {"x": x, "a": a, "b": b, "y": a + b + 0.5 * r.normal(size=N)}
    actions = {"a": (-2.0, 2.0), "b": (-2.0, 2.0)}
    policy = QUICK.fit(problem(covariates=[], actions=actions), history)
    frame = policy.recommend({"x": [0.0]}, only=["a"]).to_frame()
    assert np.isnan(frame["b"][0])
    assert np.isfinite(frame["a"][0])


def test_members_of_a_clique_follow_an_altered_one(r):
    x, a = r.normal(size=(2, N))
    u = a + 0.1 * r.normal(size=N)
    history = {"x": x, "a": a, "u": u, "y": u + 0.1 * r.normal(size=N)}
    graph = "digraph { x -> a; x -> u; a -> u [dir=both]; u -> y }"
    decisions = told(problem(graph=graph), history, x=0.0, a=1.8)
    assert decisions.probability[0] > 0.9


@pytest.mark.parametrize("n", [8, 30, 300])
def test_an_action_that_a_protocol_has_set_is_no_obstacle(n, r):
    x = (np.arange(n) % 2).astype(float)
    u = 2.0 * x
    history = {"x": x, "u": u, "a": x - u, "y": x + r.normal(size=n)}
    asked = problem(order=["x", "u", "a", "y"])
    decision = told(asked, history, x=1.0, a=-1.0)
    assert 0.0 <= decision.lower[0] <= decision.upper[0] <= 1.0
