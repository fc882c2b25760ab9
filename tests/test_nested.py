"""The fast estimator against the slow one, and what else the paper says of it."""

import numpy as np
import pytest

import naive
from forestall import (
    Ascent,
    ConditionalRehearsal,
    DataError,
    FitError,
    ForestallWarning,
    NestedRehearsal,
    Problem,
    SpecError,
)
from forestall.ascent import aside
from forestall.solution import check_size, choose_sharpness
from worlds import WORLDS, contexts_of

N = 40
METHODS = {
    "nested": NestedRehearsal(sharpness=7.0, ascent=Ascent(n_steps=15, n_starts=6)),
    "conditional": ConditionalRehearsal(
        sharpness=7.0,
        bandwidth={"context": 0.7, "actions": 1.3, "embedding": 0.9},
        outcome_penalty=1e-3,
        context_penalty=1e-2,
        ascent=Ascent(n_steps=15, n_starts=6, halve_every=None),
    ),
}


def slow_twin(policy):
    """The naive estimator with the same standardised records and hyperparameters."""
    data, method = policy.data, policy.method
    given = method.bandwidth
    factor = (
        given
        if isinstance(given, dict)
        else dict.fromkeys(("context", "covariates", "actions", "embedding"), given)
    )
    y, outcomes = data.y_raw, policy.schema.outcomes
    M, b = policy.problem.region.normals, policy.problem.region.offsets
    z = (y - y.mean(axis=0)) / y.std(axis=0)
    M_z, b_z = M * outcomes.scales, b - M @ outcomes.means
    w = np.array([naive.desirability(M_z, b_z, method.sharpness, row) for row in z])
    u = policy.u
    width = naive.median_width
    twin = naive.Nested(
        data.x,
        u,
        data.a,
        w,
        width(data.x) * factor["context"],
        width(u) * factor["covariates"] if u.shape[1] else 1.0,
        width(data.a) * factor["actions"],
        width(data.x) * factor.get("embedding", 1.0),
        method.outcome_penalty,
        method.context_penalty,
    )
    return twin


@pytest.fixture(params=[(w, m) for w in WORLDS for m in METHODS], ids="-".join)
def case(request):
    world, name = request.param
    problem, history = WORLDS[world]
    records = history(N)
    policy = METHODS[name].fit(problem, records)
    contexts = contexts_of(problem, history(5, seed=1), slice(None))
    return policy, contexts, slow_twin(policy)


def test_values_and_gradients_equal_the_slow_reference(case, rng):
    policy, contexts, twin = case
    box = policy.schema.bounds
    actions = rng.uniform(box[:, 0], box[:, 1], size=(5, len(box)))
    x = policy.schema.encode_contexts(contexts).x
    a = policy.schema.actions_from_table(actions, 5)
    omegas = [twin.omega(row) for row in x]
    J = [twin.J(o, row) for o, row in zip(omegas, a, strict=True)]
    slopes = [twin.gradient(o, row) for o, row in zip(omegas, a, strict=True)]
    np.testing.assert_allclose(policy.objective(contexts, actions), J, atol=1e-8)
    np.testing.assert_allclose(
        policy.gradient(contexts, actions) * policy.schema.actions.scales,
        slopes,
        atol=1e-8,
    )


def test_choices_equal_the_slow_reference(case):
    policy, contexts, twin = case
    ascent, schema = policy.method.ascent, policy.schema
    chosen = policy.recommend(contexts).actions
    for x, a in zip(schema.encode_contexts(contexts).x, chosen, strict=True):
        starts = aside(policy.data.a)
        best = twin.best(x, schema.lower, schema.upper, ascent, starts)
        np.testing.assert_allclose(a, schema.actions_to_units(best[None])[0], atol=1e-8)


def test_choices_on_a_spanning_basis_equal_the_slow_reference():
    problem, history = WORLDS["lending"]
    method = NestedRehearsal(sharpness=7.0, ascent=Ascent(n_steps=10, n_starts=4))
    policy = method.fit(problem, history(160))
    assert policy.basis is not None
    contexts = contexts_of(problem, history(3, seed=1), slice(None))
    twin, schema = slow_twin(policy), policy.schema
    chosen = policy.recommend(contexts).actions
    for x, a in zip(schema.encode_contexts(contexts).x, chosen, strict=True):
        starts = aside(policy.data.a)
        best = twin.best(x, schema.lower, schema.upper, method.ascent, starts)
        np.testing.assert_allclose(a, schema.actions_to_units(best[None])[0], atol=1e-8)


def test_reported_probability_and_interval_equal_the_slow_reference(case, rng):
    policy, contexts, twin = case
    good = policy.data.good.astype(float)
    box = policy.schema.bounds
    actions = rng.uniform(box[:, 0], box[:, 1], size=(5, len(box)))
    told = policy.evaluate(contexts, actions)
    x = policy.schema.encode_contexts(contexts).x
    a = policy.schema.actions_from_table(actions, 5)
    alpha = good @ twin.inverse_h
    scale = max(1.0, alpha @ good / N)
    for i in range(5):
        J = np.clip(twin.J(alpha * twin.reach(x[i])[0], a[i]), 0, 1)
        sd = np.sqrt(scale * max(twin.variance(x[i], a[i]), 0))
        natural = good @ twin.G @ [naive.rbf(c, x[i], twin.sigma_e) for c in twin.x]
        assert told.probability[i] == pytest.approx(J, abs=1e-8)
        assert told.no_action[i] == pytest.approx(np.clip(natural, 0, 1), abs=1e-8)
        for end, sign in ((told.lower[i], -1), (told.upper[i], 1)):
            expected = np.clip(J + sign * 1.6448536269514722 * sd, 0, 1)
            assert end == pytest.approx(expected, abs=1e-7)


def test_gradient_matches_finite_differences_in_the_users_units(case, rng):
    policy, contexts, _ = case
    box = policy.schema.bounds
    actions = rng.uniform(box[:, 0], box[:, 1], size=(5, len(box)))
    slopes = policy.gradient(contexts, actions)
    for j in range(len(box)):
        step = np.zeros(len(box))
        step[j] = 1e-6
        above = policy.objective(contexts, actions + step)
        below = policy.objective(contexts, actions - step)
        np.testing.assert_allclose((above - below) / 2e-6, slopes[:, j], atol=1e-6)


def test_another_region_without_refitting_equals_a_fresh_fit(case):
    policy, contexts, _ = case
    name = policy.problem.outcomes[0]
    level = float(np.median(policy.data.y_raw[:, 0]))
    desired = [f"{name} >= {level}"]
    moved = policy.for_region(desired)
    records = dict(zip(policy.problem.outcomes, policy.data.y_raw.T, strict=True))
    world = next(w for w in WORLDS.values() if w[0] == policy.problem)
    history = world[1](N)
    assert all(np.array_equal(history[k], v) for k, v in records.items())
    fields = policy.problem.to_dict() | {"desired": desired}
    fresh = policy.method.fit(Problem.from_dict(fields), history)
    np.testing.assert_allclose(
        moved.recommend(contexts).probability,
        fresh.recommend(contexts).probability,
        atol=1e-10,
    )
    assert policy.problem.desired != desired


def test_another_region_without_any_good_record_is_an_error():
    problem, history = WORLDS["dosing"]
    policy = NestedRehearsal().fit(problem, history(N))
    with pytest.raises(DataError, match="at least one record with a desired outcome"):
        policy.for_region(["effect >= 1000"])


def test_without_covariates_the_adjustment_is_a_vector_of_ones():
    problem, history = WORLDS["dosing"]
    records = history(N)
    nested = NestedRehearsal().fit(problem, records)
    single = ConditionalRehearsal().fit(problem, records)
    contexts = contexts_of(problem, records, slice(0, 6))
    assert nested.K_uu is None
    for name in ("actions", "probability", "lower", "upper", "no_action"):
        ours = getattr(nested.recommend(contexts), name)
        assert np.array_equal(ours, getattr(single.recommend(contexts), name))


def test_the_single_estimator_ignores_the_covariates():
    problem, history = WORLDS["lending"]
    records = history(N)
    contexts = contexts_of(problem, records, slice(0, 6))
    shuffled = {**records, "stability": records["stability"][::-1].copy()}
    method = ConditionalRehearsal()
    before = method.fit(problem, records).recommend(contexts)
    after = method.fit(problem, shuffled).recommend(contexts)
    assert np.array_equal(before.actions, after.actions)
    assert not np.allclose(
        NestedRehearsal().fit(problem, records).recommend(contexts).probability,
        NestedRehearsal().fit(problem, shuffled).recommend(contexts).probability,
    )


@pytest.mark.parametrize(
    ("share", "eta"), [(0.01, 5.0), (0.1, 10.0), (0.5, 20.0), (1.0, 20.0)]
)
def test_sharpness_grows_with_the_share_of_good_records(share, eta):
    assert choose_sharpness(share) == eta


def test_a_covariate_between_two_actions_is_warned_about():
    problem = Problem(
        context=["x"],
        covariates=["u"],
        actions={"a": (0.0, 1.0), "b": (0.0, 1.0)},
        outcomes=["y"],
        desired=["y >= 0"],
        order=["x", "a", "u", "b", "y"],
    )
    rng = np.random.default_rng(0)
    history = {name: rng.normal(size=30) for name in problem.variables}
    with pytest.warns(ForestallWarning, match="nested estimator may be biased"):
        NestedRehearsal().fit(problem, history)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"outcome_penalty": 0.0}, "Expected outcome_penalty above zero; got 0.0"),
        ({"context_penalty": -1.0}, "Expected context_penalty above zero"),
        ({"sharpness": float("nan")}, "Expected sharpness above zero"),
        ({"bandwidth": 0.0}, "Expected a width factor above zero"),
        ({"bandwidth": {"contexts": 1.0}}, "Did you mean 'context'"),
    ],
)
def test_hyperparameters_are_checked(wrong, message):
    with pytest.raises(SpecError, match=message):
        NestedRehearsal(**wrong)


def test_the_interval_does_not_shrink_away_from_history():
    problem, history = WORLDS["lending"]
    policy = NestedRehearsal().fit(problem, history(300))
    far = {"score": [0.5, 3.0, 10.0, 100.0], "debt": [0.5] * 4}
    with pytest.warns(ForestallWarning, match="far outside history"):
        told = policy.recommend(far)
    width = told.upper - told.lower
    assert (width[1:] >= 0.99).all()
    assert told.verdict[1:] == ["abstain"] * 3


def test_a_handful_of_good_records_proves_nothing():
    problem, history = WORLDS["lending"]
    records = history(300)
    level = float(np.sort(records["roi"])[-5])
    with pytest.warns(ForestallWarning, match="Only 5 records have a desired outcome"):
        policy = NestedRehearsal().fit(
            Problem.from_dict(problem.to_dict() | {"desired": [f"roi >= {level}"]}),
            records,
        )
    assert "act" not in policy.recommend(records).verdict


def test_more_records_than_fit_into_memory_are_refused_before_they_are_tried():
    with pytest.raises(FitError, match="got 1000000, which need 24000 GB"):
        check_size(1_000_000)


def test_a_singular_system_says_which_penalty_to_raise():
    problem, history = WORLDS["dosing"]
    records = {name: np.repeat(v, 2) for name, v in history(30).items()}
    with pytest.raises(FitError, match="singular to rounding at penalty 1e-300"):
        NestedRehearsal(outcome_penalty=1e-300).fit(problem, records)
