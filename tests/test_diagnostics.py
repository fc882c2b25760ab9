"""What a fitted policy says of itself: fit, calibration, relevance, overlap, needs."""

import json
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from forestall import NestedRehearsal, Policy, Problem, SpecError
from forestall.baselines import NoAction
from forestall.check import check
from forestall.diagnostics import contexts_at, diagnose, leeways_of
from forestall.errors import DataError
from forestall.overlap import between, parts_of, thirds
from forestall.quality import Input, distance_from_uniform, learned, moved, steps
from forestall.simulate import brisk, simulate
from forestall.staged import StagedRehearsal
from worlds import DOSING, LENDING, dosing, learned_mean, lending

N = 200

LEVERS = Problem(
    context=["x", "idle", "kind"],
    covariates=["u"],
    actions={"a": (-2.0, 2.0)},
    outcomes=["y"],
    desired=["y >= 0.5"],
    order=[["x", "idle", "kind"], "u", "a", "y"],
)


def levers(n, *, wobble=1.0, loud=False, seed=0):
    """An idle context; an action with some freedom; noise that may grow with x."""
    rng = np.random.default_rng(seed)
    x, idle = rng.uniform(-1.5, 1.5, size=(2, n))
    kind = rng.choice(["farm", "shop", "mill"], size=n, p=[0.6, 0.3, 0.1])
    u = 0.5 * x + rng.normal(0, 0.5, n)
    a = 0.7 * x + 0.5 * u + wobble * rng.normal(0, 0.6, n)
    spread = np.exp(0.9 * x) if loud else 1.0
    y = a - 0.6 * u + 0.3 * (kind == "mill") + spread * rng.normal(0, 0.3, n)
    return {"x": x, "idle": idle, "kind": kind, "u": u, "a": a, "y": y}


@pytest.fixture(scope="module")
def policy():
    return StagedRehearsal().fit(LEVERS, levers(N))


@pytest.fixture(scope="module")
def told(policy):
    return diagnose(policy)


@pytest.fixture(scope="module")
def loud():
    return diagnose(StagedRehearsal().fit(LEVERS, levers(N, loud=True)))


@pytest.fixture(scope="module")
def pinned():
    return diagnose(StagedRehearsal().fit(LEVERS, levers(N, wobble=0.01)))


def fit_of(told, name):
    return next(fit for fit in told.mechanisms if fit.name == name)


def test_every_mechanism_is_reported_with_its_role(told):
    roles = [(fit.name, fit.role) for fit in told.mechanisms]
    assert roles == [("u", "covariate"), ("a", "action"), ("y", "outcome")]


def test_an_irrelevant_input_is_reported_so(told):
    fit = fit_of(told, "y")
    assert "idle" in fit.irrelevant
    assert fit.relevant[0] == "a"
    assert {"a", "u"} <= set(fit.relevant)
    assert "(not x, idle" in str(told) or "(not idle" in str(told)


def test_left_out_figures_are_near_the_truth_in_the_users_unit(told):
    fit = fit_of(told, "y")
    assert fit.deviation == pytest.approx(0.3, rel=0.2)
    assert 0.7 < fit.explained < 0.95
    assert fit.shape == "linear"


def test_left_out_residuals_are_those_of_refitting_without_the_record(policy):
    each = learned(policy.system, policy.data)[-1]
    mechanism, i = each.mechanisms[0], 17
    rest = np.delete(np.arange(N), i)
    again = learned_mean(
        each.z[rest], each.values[rest, 0], 200, np.random.default_rng(0)
    )
    missed = each.values[i, 0] - again(each.z[[i]], np.array([0]))[0, 0]
    # Hyperparameters are drawn anew there, and move it a little.
    assert each.residuals[i, 0] == pytest.approx(missed, rel=0.05, abs=0.05)
    assert each.residuals[i, 0] != pytest.approx(mechanism.residuals[i], rel=1e-4)


def test_on_well_specified_data_nine_of_ten_records_lie_inside(told):
    for fit in told.mechanisms:
        assert fit.inside == pytest.approx(0.9, abs=0.05)
        assert fit.distance < 1.36 / np.sqrt(N)
        assert fit.misjudged is None
    assert "Everywhere about 90 %" in str(told)


def test_a_law_that_changes_with_an_input_is_reported_so(loud, told):
    fit = fit_of(loud, "y")
    assert fit.law_changes
    assert "x" in fit.movers
    assert "x" not in fit.irrelevant
    assert not fit_of(told, "y").movers


def test_a_law_that_may_not_change_is_found_wrong_where_it_is():
    method = StagedRehearsal(local_laws=False)
    told = diagnose(method.fit(LEVERS, levers(N, loud=True)))
    fault = fit_of(told, "y").misjudged
    assert fault.where.startswith("x ")
    assert fault.fault in ("too wide", "too narrow")
    assert f"Its law is {fault.fault} where {fault.where}" in str(told)


def test_a_mechanism_that_nothing_predicts_says_so():
    found = []
    for seed in range(95, 98):
        history = levers(N)
        history["a"] = np.random.default_rng(seed).normal(size=N)
        told = diagnose(StagedRehearsal(n_draws=16, n_paths=16).fit(LEVERS, history))
        fit = fit_of(told, "a")
        found.append(fit.predicted)
        if not fit.predicted:
            assert fit.relevant == ()
            assert "a (action): nothing that precedes it predicts it" in str(told)
    # By luck something seems to, now and then.
    assert sum(found) <= 1


def test_curves_and_bends_are_told_from_lines():
    told = diagnose(StagedRehearsal().fit(DOSING, dosing(N)))
    assert fit_of(told, "dose").shape == "linear"
    assert fit_of(told, "effect").shape in ("curved", "bends")


def test_a_category_is_judged_as_a_mechanism_too(rng):
    problem = Problem(
        context=["x"],
        covariates=["mood"],
        actions={"a": (-2.0, 2.0)},
        outcomes=["y"],
        desired=["y >= 0"],
        order=["x", "mood", "a", "y"],
    )
    x = rng.normal(size=N)
    mood = np.where(x + 0.5 * rng.normal(size=N) > 0, "up", "down")
    a = rng.normal(size=N) + (mood == "up")
    y = a + 0.3 * rng.normal(size=N)
    history = {"x": x, "mood": mood, "a": a, "y": y}
    fit = fit_of(diagnose(StagedRehearsal().fit(problem, history)), "mood")
    assert fit.deviation is None
    assert fit.explained > 0.3
    assert fit.relevant == ("x",)
    assert fit.inside == pytest.approx(0.9, abs=0.07)


def test_an_action_that_is_pinned_down_has_thin_overlap(pinned, told):
    (thin,), (free,) = pinned.overlaps, told.overlaps
    assert thin.overlap.thin
    assert len(thin.thin) == len(thin.parts)
    assert "Thin everywhere" in str(pinned)
    assert thin.overlap.deviation < 0.1 * free.overlap.deviation
    assert not free.overlap.thin


def test_parts_of_the_contexts_are_thirds_and_levels(told):
    (overlap,) = told.overlaps
    places = [part.where for part in overlap.parts]
    assert [p for p in places if p.startswith("kind")] == [
        "kind = farm",
        "kind = mill",
        "kind = shop",
    ]
    assert sum(p.startswith("x ") for p in places) == 3
    by_x = [p.records for p in overlap.parts if p.where.startswith("x ")]
    assert sum(by_x) == N
    assert max(by_x) - min(by_x) <= 2


def test_a_level_with_few_records_is_thin():
    history = levers(N)
    history["kind"] = np.where(np.arange(N) < 5, "mill", "farm")
    (overlap,) = diagnose(StagedRehearsal().fit(LEVERS, history)).overlaps
    (mill,) = (part for part in overlap.parts if part.where == "kind = mill")
    assert mill.records == 5
    assert mill.thin


def test_contexts_are_ranked_by_what_they_do_to_a_good_outcome(told):
    by_name = {each.name: each for each in told.contexts}
    assert by_name["x"].without > 5 * by_name["idle"].without
    assert by_name["idle"].without < 0.05
    assert by_name["x"].determined > by_name["idle"].determined


def test_more_records_are_asked_for_where_advice_is_least_sure(rng):
    # Good outcomes need a low action, which nobody with a high x was ever given, and
    # what it does changes with x.
    x = rng.uniform(0, 1, 150)
    a = np.clip(x + rng.normal(0, 0.08, 150), 0, 1)
    y = -3 * np.abs(a - 0.15) * (1 + np.sin(6 * x)) + rng.normal(0, 0.3, 150)
    problem = Problem(
        context=["x"], actions={"a": (0.0, 1.0)}, outcomes=["y"], desired=["y >= -0.2"]
    )
    told = diagnose(StagedRehearsal().fit(problem, {"x": x, "a": a, "y": y}))
    assert told.advice in str(told)
    assert not any(need.where.startswith("x below") for need in told.needs)
    assert told.needs[0].width > told.width
    assert told.advice.startswith(f"More records with {told.needs[0].where}:")


def test_where_the_effect_cannot_be_told_more_records_are_no_help():
    problem = Problem(
        context=["x"],
        actions={"a": (0.0, 1.0)},
        outcomes=["y"],
        desired=["y >= 0.5"],
        graph="digraph { x -> a; x -> y; a -> y; hidden -> a; hidden -> y }",
    )
    rng = np.random.default_rng(0)
    x, a = rng.uniform(size=(2, 100))
    history = {"x": x, "a": a, "y": a + 0.2 * rng.normal(size=100)}
    told = diagnose(StagedRehearsal().fit(problem, history))
    assert told.criterion.valid is False
    assert told.advice.startswith("More records of the same kind will not help")
    assert "cannot be told from these records" in str(told)


def test_everything_is_plain_data(told):
    plain = json.loads(json.dumps(told.to_dict()))
    assert plain["records"] == N
    assert plain["advice"] == told.advice
    assert [each["name"] for each in plain["mechanisms"]] == ["u", "a", "y"]
    assert plain["overlap"][0]["parts"][0]["where"]


def test_diagnosing_twice_gives_the_same(policy, told):
    assert diagnose(policy).to_dict() == told.to_dict()


def test_a_kernel_policy_is_diagnosed_without_mechanisms():
    told = diagnose(NestedRehearsal().fit(LENDING, lending(150)))
    assert told.mechanisms == ()
    assert told.contexts == ()
    assert 0.0 < told.indicator.explained < 1.0
    assert 0.0 < told.indicator.error < 0.5
    assert told.overlaps[0].overlap.deviation == pytest.approx(0.2, rel=0.25)
    assert "Whether a record is good" in str(told)
    json.dumps(told.to_dict())


def test_left_out_predictions_of_a_kernel_policy_are_those_of_refitting():
    from forestall.diagnostics import left_out_predictions

    policy = NestedRehearsal().fit(LENDING, lending(60))
    predicted, good = left_out_predictions(policy)
    h = np.concatenate([policy.data.x, policy.u, policy.data.a], axis=1)
    K = (policy.k_x * policy.k_u * policy.k_a)(h, h)
    noise = 60 * policy.setting.outcome_penalty
    i, rest = 7, np.delete(np.arange(60), 7)
    alpha = np.linalg.solve(K[np.ix_(rest, rest)] + noise * np.eye(59), good[rest])
    assert predicted[i] == pytest.approx(K[i, rest] @ alpha, abs=1e-6)


def test_doing_nothing_is_diagnosed_too():
    told = diagnose(NoAction().fit(LENDING, lending(80)))
    assert told.indicator is None
    assert told.abstained == 0.0


def test_a_policy_without_records_is_refused(policy):
    class Bare(Policy):
        criterion = answer = for_region = None

    bare = Bare(problem=LEVERS, schema=policy.schema, horizon=policy.horizon)
    with pytest.raises(SpecError, match="keeps the records it learned from; got Bare"):
        diagnose(bare)


def test_both_kinds_of_policies_agree_on_how_freely_an_action_varied():
    history = lending(N)
    one = leeways_of(StagedRehearsal().fit(LENDING, history))[0].overlap()
    two = leeways_of(NestedRehearsal().fit(LENDING, history))[0].overlap()
    assert one.deviation == pytest.approx(two.deviation, rel=0.05)
    assert one.reach == pytest.approx(two.reach, abs=0.03)


def test_contexts_survive_decoding(policy):
    x = policy.data.x[:20]
    again = policy.schema.encode_contexts(contexts_at(policy.schema, x))
    np.testing.assert_allclose(again.x, x, atol=1e-12)
    assert not any(again.faults)


def test_simulated_outcomes_are_good_as_often_as_reported(policy):
    context = {"x": 0.3, "idle": 0.0, "kind": "shop"}
    action = {"a": 0.4}
    decision = policy.evaluate(context, action)[0]
    for what, said in ((action, decision.probability), (None, decision.no_action)):
        drawn = simulate(policy, context, what, n_worlds=64, n_paths=32)
        share = policy.problem.region.contains(drawn.outcomes).mean()
        assert share == pytest.approx(said, abs=0.03)
    held = simulate(policy, context, action)
    np.testing.assert_allclose(held.actions, 0.4)


def test_what_is_simulated_is_no_record(policy):
    drawn = simulate(policy, {"x": 0.3, "idle": 0.0, "kind": "shop"})
    assert not np.isin(drawn.outcomes, policy.data.y_raw).any()


@pytest.mark.parametrize(
    ("context", "actions", "error", "message"),
    [
        ({"x": [0, 1], "idle": [0, 0], "kind": ["farm"] * 2}, None, DataError, "got 2"),
        ({"x": 0, "idle": 0, "kind": "bank"}, None, DataError, "'bank'"),
        ({"x": 0, "idle": 0, "kind": "farm"}, {"b": 1}, SpecError, "got 'b'"),
        ({"x": 0, "idle": 0, "kind": "farm"}, {"a": "1"}, DataError, "'a'; got '1'"),
        ({"x": 0, "idle": 0, "kind": "farm"}, {"a": None}, DataError, "got None"),
        ({"x": 0, "idle": 0, "kind": "farm"}, {"a": np.nan}, DataError, "a finite nu"),
    ],
)
def test_what_cannot_be_simulated_is_refused(policy, context, actions, error, message):
    with pytest.raises(error, match=message):
        simulate(policy, context, actions)


def test_a_policy_without_mechanisms_cannot_be_simulated():
    policy = NestedRehearsal().fit(LENDING, lending(60))
    with pytest.raises(SpecError, match="a mechanism for each variable; got Kernel"):
        simulate(policy, {"score": 0.5, "debt": 0.5})
    assert brisk(policy, 4, 4) is policy


@given(st.floats(0.05, 0.95))
def test_an_input_moves_its_share_of_the_variance(share):
    rng = np.random.default_rng(0)
    z = rng.normal(size=(2000, 2))
    weights = np.sqrt([share, 1 - share])
    found = moved(lambda v: (v @ weights)[:, None], z, np.array([0]))
    assert found == pytest.approx(share, abs=0.08)


def test_an_input_that_moves_only_the_law_is_relevant():
    assert not Input("x", mean=0.0, law=0.8, determined=0.0).irrelevant
    assert Input("x", mean=0.001, law=0.0, determined=0.0).irrelevant


def test_an_input_that_moves_as_much_as_the_noise_is_relevant():
    assert not Input("x", 0.005, 0.0, 0.0, beside=0.5).irrelevant
    assert Input("x", 0.005, 0.0, 0.0, beside=0.1).irrelevant
    # Where there is no noise, rounding would be as large.
    assert Input("x", 1e-9, 0.0, 0.0, beside=5.0).irrelevant


def test_of_a_mean_that_is_predicted_nearly_whole_small_parts_are_told(rng):
    x, idle, a = rng.normal(size=(3, N))
    y = 10 * a + 0.3 * x + 0.4 * np.sin(3 * a) + 0.3 * rng.normal(size=N)
    problem = Problem(
        context=["x", "idle"],
        actions={"a": (-2.0, 2.0)},
        outcomes=["y"],
        desired=["y >= 5"],
    )
    history = {"x": x, "idle": idle, "a": a, "y": y}
    fit = fit_of(diagnose(StagedRehearsal().fit(problem, history)), "y")
    assert fit.explained > 0.99
    assert fit.relevant == ("a", "x")
    assert fit.irrelevant == ("idle",)
    assert fit.shape != "linear"


@pytest.fixture(scope="module")
def stepped():
    rng = np.random.default_rng(0)
    x, noise = rng.normal(size=(2, 600))
    a = rng.integers(0, 3, size=600).astype(float)
    problem = Problem(
        context=["x"], actions={"a": (0.0, 2.0)}, outcomes=["y"], desired=["y >= 1"]
    )
    history = {"x": x, "a": a, "y": a - x + 0.3 * noise}
    return diagnose(StagedRehearsal(n_draws=16, n_paths=32).fit(problem, history))


def test_the_steps_of_an_action_with_few_values_are_no_fault(stepped):
    fit = fit_of(stepped, "a")
    assert fit.misjudged is None
    assert fit.inside == pytest.approx(0.9, abs=0.04)
    assert fit.distance < 1.63 / np.sqrt(600)


def test_an_action_with_few_values_is_remarked_upon(stepped, told):
    (seen,) = [text for text in stepped.remarks if text.startswith("a: Only")]
    assert seen.startswith("a: Only 0, 1, 2 were ever seen in history, yet anything")
    assert "Only 0, 1, 2 were ever seen" in str(stepped)
    # As it was written down, whatever it was standardised by.
    assert stepped.overlaps[0].overlap.seen == (0.0, 1.0, 2.0)
    assert told.overlaps[0].overlap.seen == ()


def test_what_nothing_predicts_is_not_split_by_its_prediction(policy):
    (each,) = (one for one in learned(policy.system, policy.data) if one.name == "y")
    assert any(part.where.startswith("predicted y") for part in each._parts())
    blind = replace(each, mechanisms=each.mechanisms, values=each.values[::-1])
    assert not blind.predicted
    assert not any(part.where.startswith("predicted") for part in blind._parts())
    assert any(part.rows.all() for part in blind._parts())


@given(arrays(float, st.integers(1, 30), elements=st.sampled_from([0.0, 1.0, 3.0])))
def test_steps_of_neighbours_touch_and_what_came_once_has_none(v):
    low, high = steps(v)
    assert (low <= 0).all()
    assert (high >= 0).all()
    for value in np.unique(v):
        mine = v == value
        larger = v[v > value]
        if mine.sum() == 1:
            assert (low[mine] == 0).all()
            assert (high[mine] == 0).all()
        elif len(larger):
            np.testing.assert_allclose(high[mine], (larger.min() - value) / 2)


def test_the_check_asks_of_an_action_all_that_precedes_it(rng):
    x, noise = rng.normal(size=(2, N))
    first = x + 0.5 * rng.normal(size=N)
    between_ = first + 0.1 * rng.normal(size=N)
    second = between_ + 0.1 * rng.normal(size=N)
    history = {"x": x, "a": first, "u": between_, "b": second, "y": second + noise}
    problem = Problem(
        context=["x"],
        covariates=["u"],
        actions={"a": (-2.0, 2.0), "b": (-2.0, 2.0)},
        outcomes=["y"],
        desired=["y >= 0"],
        order=["x", "a", "u", "b", "y"],
    )
    plain = check(problem, history).overlaps
    deep = leeways_of(StagedRehearsal(n_draws=16).fit(problem, history))
    assert plain[0].deviation == pytest.approx(0.5, rel=0.2)
    assert plain[1].deviation == pytest.approx(0.1, rel=0.2)
    for one, two in zip(plain, deep, strict=True):
        assert one.deviation == pytest.approx(two.overlap().deviation, rel=0.1)


def test_the_check_of_an_action_that_nothing_precedes_takes_all_its_spread(rng):
    x, a = rng.normal(size=(2, N))
    problem = Problem(
        context=["x"],
        actions={"a": (-2.0, 2.0)},
        outcomes=["y"],
        desired=["y >= 0"],
        graph="digraph { x -> y; a -> y }",
    )
    (told,) = check(problem, {"x": x, "a": a, "y": x + a}).overlaps
    assert told.spread == pytest.approx(1.0, abs=0.02)


@given(arrays(float, 30, elements=st.floats(0, 1)))
def test_the_distance_from_uniform_is_that_of_kolmogorov_and_smirnov(levels):
    from scipy.stats import kstest

    expected = kstest(levels, "uniform").statistic
    assert distance_from_uniform(levels) == pytest.approx(expected)


@given(arrays(float, st.integers(1, 40), elements=st.floats(-5, 5)))
def test_every_record_is_in_exactly_one_third(values):
    rows = np.array([part.rows for part in thirds("v", values)])
    np.testing.assert_array_equal(rows.sum(axis=0), 1)
    rows = np.array([part.rows for part in between("v", values, -1.0, 1.0)])
    np.testing.assert_array_equal(rows.sum(axis=0), 1)


def test_parts_cover_the_records_for_each_variable(policy):
    data = policy.data
    parts = parts_of(data.schema.context, data.x)
    total = sum(int(part.rows.sum()) for part in parts)
    assert total == N * len(data.schema.context.names)
