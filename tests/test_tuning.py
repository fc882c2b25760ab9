"""Hyperparameters from the records alone: closed forms, gradients, laws, words."""

import numpy as np
import pytest

from forestall import (
    ConditionalRehearsal,
    FitError,
    ForestallWarning,
    NestedRehearsal,
    Problem,
    SpecError,
)
from forestall.choice import Sharpness, recalibrated_brier
from forestall.leaving import (
    RECORDS,
    Inputs,
    LeaveOneOut,
    coordinates,
    left_out,
    representative,
)
from forestall.tuning import Search, tune
from worlds import LENDING, WORLDS, contexts_of, lending

AUTO = [NestedRehearsal(bandwidth="auto"), ConditionalRehearsal(bandwidth="auto")]
FIELDS = ("actions", "probability", "lower", "upper", "no_action", "support")


def gaussian(v, widths):
    squares = (v[:, None] - v[None]) ** 2
    return np.exp(-0.5 * (squares / widths**2).sum(axis=2))


def example(n=25, m=1, seed=0):
    rng = np.random.default_rng(seed)
    z = rng.normal(size=(n, 3))
    outputs = np.sin(2 * z[:, :1]) + 0.3 * rng.normal(size=(n, m))
    return Inputs(z, ("p", "q", "q"), np.full(3, 2.0)), outputs


def test_leaving_one_out_equals_refitting_without_each_record():
    inputs, w = example(m=2)
    K, ratio = gaussian(inputs.z, np.array([0.8, 1.5, 1.5])), 0.2
    closed = left_out(K, ratio, w)
    for i in range(25):
        rest = np.arange(25) != i
        A = K[np.ix_(rest, rest)] + ratio * np.eye(24)
        predicted = K[i, rest] @ np.linalg.solve(A, w[rest])
        np.testing.assert_allclose(closed[i], w[i] - predicted, atol=1e-10)


def test_the_error_of_the_embedding_equals_refitting_without_each_record(rng):
    x, u = rng.normal(size=(2, 25, 1))
    inputs = Inputs(x, ("x",), np.ones(1))
    K, K_uu, ratio = gaussian(inputs.z, 0.9), gaussian(u, 1.1), 0.3
    held = LeaveOneOut(inputs.squares(), coordinates(K_uu))
    errors = []
    for i in range(25):
        rest = np.arange(25) != i
        A = K[np.ix_(rest, rest)] + ratio * np.eye(24)
        gamma = np.linalg.solve(A, K[rest, i])
        cross, own = gamma @ K_uu[rest, i], gamma @ K_uu[np.ix_(rest, rest)] @ gamma
        errors.append(K_uu[i, i] - 2 * cross + own)
    closed = held.error(np.log([ratio, 0.9]))
    assert closed == pytest.approx(np.mean(errors), rel=1e-8)


@pytest.mark.parametrize("m", [1, 4])
def test_the_gradient_matches_finite_differences(m):
    inputs, w = example(m=m)
    held = LeaveOneOut(inputs.squares(), w)
    for function in (held, Search(held, inputs, None)):
        theta = np.log([0.3, 0.9, 1.7])
        slope = function(theta)[1]
        for k, step in enumerate(1e-6 * np.eye(3)):
            above, below = function(theta + step)[0], function(theta - step)[0]
            assert (above - below) / 2e-6 == pytest.approx(slope[k], abs=1e-4)


@pytest.mark.parametrize("seed", range(5))
def test_the_choice_is_never_worse_than_the_median_heuristic(seed):
    inputs, w = example(n=40, seed=seed)
    noise = np.random.default_rng(seed).normal(size=w.shape)
    for outputs in (w, noise):
        chosen = tune(inputs, outputs, usual=0.004)
        held = LeaveOneOut(inputs.squares(), outputs)
        median = held.error(np.log([0.004, 2.0, 2.0]))
        assert chosen.median_error == pytest.approx(median, rel=1e-6)
        assert chosen.error <= chosen.median_error


def test_a_column_that_tells_nothing_is_left_out_and_a_category_has_one_width(rng):
    z = rng.normal(size=(200, 2))
    level = rng.integers(3, size=200)
    columns = np.column_stack([z, np.eye(3)[level]])
    owners = ("signal", "noise", "sector", "sector", "sector")
    y = np.sin(2 * z[:, 0]) * (level - 1) + 0.1 * rng.normal(size=200)
    chosen = tune(Inputs(columns, owners, np.full(5, 2.0)), y[:, None], usual=0.02)
    told = {v.name: v for v in chosen.variables}
    assert [name for name, v in told.items() if v.irrelevant] == ["noise"]
    assert len(set(chosen.widths[2:])) == 1
    assert chosen.widths[1] > 1e5
    assert chosen.error < 0.5 * chosen.median_error
    assert str(told["noise"]) == "noise: irrelevant, left out"
    assert "without it the error rises by" in str(told["signal"])


def test_a_variable_that_must_stay_is_not_left_out(rng):
    z = rng.normal(size=(60, 2))
    inputs = Inputs(z, ("signal", "noise"), np.full(2, 2.0))
    y = np.sin(2 * z[:, :1])
    for kept in ((), ("noise",)):
        told = tune(inputs, y, usual=0.006, kept=kept).variables
        assert told[1].irrelevant == (not kept)


def test_a_given_ratio_is_kept():
    inputs, w = example(n=60)
    chosen = tune(inputs, w, usual=0.006, given=0.05)
    assert chosen.ratio == pytest.approx(0.05)
    assert chosen.penalty(1000) == pytest.approx(5e-5)


def test_a_sample_of_the_records_does_not_depend_on_their_order(rng):
    v = rng.normal(size=(3 * RECORDS, 4))
    shuffle = rng.permutation(len(v))
    first, second = v[representative(v)], v[shuffle][representative(v[shuffle])]
    assert len(first) == RECORDS
    assert np.array_equal(first, second)


def test_the_score_of_a_sharpness_forgives_height_and_scale_but_not_order(rng):
    good = rng.random(500) < 0.4
    p = np.where(good, 0.7, 0.3) + 0.1 * rng.normal(size=500)
    best = recalibrated_brier(p, good)
    assert recalibrated_brier(0.2 + 0.1 * p, good) == pytest.approx(best)
    assert best < 0.06
    share = good.mean()
    assert recalibrated_brier(-p, good) == pytest.approx(share * (1 - share))
    assert recalibrated_brier(np.ones(500), good) == pytest.approx(share * (1 - share))
    chosen = Sharpness.of((5.0, 10.0), np.stack([-p, p], axis=1), good)
    assert chosen.value == 10.0
    assert str(chosen).startswith("sharpness 10: Brier score 0.2")


def with_noise(n, seed=0):
    noise = np.random.default_rng(seed + 100).normal(size=n)
    return lending(n, seed) | {"noise": noise}


NOISY = Problem.from_dict(
    LENDING.to_dict()
    | {
        "context": ["score", "debt", "noise"],
        "order": [["score", "debt", "noise"], "stability", "rate", ["repaid", "roi"]],
    }
)


@pytest.fixture(scope="module")
def noisy():
    return NestedRehearsal(bandwidth="auto").fit(NOISY, with_noise(600))


def test_an_irrelevant_context_is_left_out_and_reported(noisy):
    choice = noisy.choice
    for part in (choice.outcome, choice.embedding, choice.natural):
        assert part.error <= part.median_error
        assert {v.name: v for v in part.variables}["noise"].irrelevant
    matters = [v.name for v in choice.outcome.variables if not v.irrelevant]
    assert {"stability", "rate"} <= set(matters)
    told = str(choice)
    assert told.startswith(f"Chosen by leave-one-out error on {RECORDS} of 600 records")
    assert "noise: irrelevant, left out" in told
    assert "by the median heuristic" in told
    assert f"sharpness {noisy.solution.sharpness:g}: Brier score" in told


def test_the_order_of_more_records_than_are_sampled_does_not_matter(noisy):
    shuffle = np.random.default_rng(5).permutation(600)
    shuffled = {k: v[shuffle] for k, v in with_noise(600).items()}
    other = NestedRehearsal(bandwidth="auto").fit(NOISY, shuffled)
    assert str(other.choice) == str(noisy.choice)


def test_an_irrelevant_context_changes_no_advice(noisy):
    contexts = contexts_of(NOISY, with_noise(5, seed=1), slice(None))
    calm = noisy.recommend(contexts).probability
    moved = noisy.recommend(contexts | {"noise": contexts["noise"] + 1.0})
    np.testing.assert_allclose(moved.probability, calm, atol=1e-4)


def test_the_ratio_found_on_a_sample_becomes_the_penalty_for_all(noisy):
    setting, choice = noisy.setting, noisy.choice
    assert 600 * setting.outcome_penalty == pytest.approx(choice.outcome.ratio)
    assert 600 * setting.context_penalty == pytest.approx(choice.embedding.ratio)


def test_another_region_chooses_its_own_sharpness_and_keeps_the_widths(noisy):
    moved = noisy.for_region(["roi >= 0.7"])
    assert moved.setting.k_a is noisy.setting.k_a
    assert moved.choice.sharpness.scores != noisy.choice.sharpness.scores
    assert moved.solution.sharpness == moved.choice.sharpness.value


def test_what_is_given_is_not_chosen():
    method = NestedRehearsal(
        bandwidth="auto", outcome_penalty=1e-3, context_penalty=1e-2, sharpness=7.0
    )
    policy = method.fit(LENDING, lending(100))
    assert policy.setting.outcome_penalty == pytest.approx(1e-3)
    assert policy.setting.context_penalty == pytest.approx(1e-2)
    assert policy.setting.natural_penalty == pytest.approx(1e-2)
    assert policy.solution.sharpness == 7.0
    assert str(policy.choice).endswith("sharpness 7, as given")


def test_penalties_are_spelt_out_where_widths_are_not_chosen():
    usual = NestedRehearsal()
    assert (usual.outcome_penalty, usual.context_penalty) == (1e-4, 1e-4)
    assert NestedRehearsal(bandwidth="auto").outcome_penalty is None
    assert usual.fit(LENDING, lending(50)).choice is None


def test_a_misspelt_automatic_width_is_an_error():
    with pytest.raises(SpecError, match=r"got 'atuo'. Did you mean 'auto'"):
        NestedRehearsal(bandwidth="atuo")


def test_a_given_penalty_that_is_too_small_says_which_to_raise():
    twice = {name: np.repeat(v, 2) for name, v in lending(30).items()}
    method = NestedRehearsal(bandwidth="auto", outcome_penalty=1e-300)
    with pytest.raises(FitError, match="singular to rounding at penalty 1e-300"):
        method.fit(LENDING, twice)


@pytest.fixture(
    scope="module",
    params=[(method, world) for method in AUTO for world in WORLDS],
    ids=lambda case: f"{type(case[0]).__name__}-{case[1]}",
)
def fitted(request):
    method, world = request.param
    problem, history = WORLDS[world]
    records = history(120)
    return method, problem, records, method.fit(problem, records)


def test_fitting_twice_gives_equal_answers(fitted):
    method, problem, records, policy = fitted
    contexts = contexts_of(problem, records, slice(0, 10))
    again = method.fit(problem, records)
    assert str(again.choice) == str(policy.choice)
    first, second = policy.recommend(contexts), again.recommend(contexts)
    for name in FIELDS:
        assert np.array_equal(getattr(first, name), getattr(second, name))


def test_the_order_of_the_records_does_not_matter(fitted):
    method, problem, records, policy = fitted
    shuffle = np.random.default_rng(5).permutation(120)
    other = method.fit(problem, {k: v[shuffle] for k, v in records.items()})
    assert str(other.choice) == str(policy.choice)
    contexts = contexts_of(problem, records, slice(0, 10))
    first, second = policy.recommend(contexts), other.recommend(contexts)
    for name in FIELDS:
        a, b = getattr(first, name), getattr(second, name)
        np.testing.assert_allclose(a, b, atol=1e-6)


def test_advice_is_feasible_and_probabilities_are_probabilities(fitted):
    _, problem, records, policy = fitted
    told = policy.recommend(contexts_of(problem, records, slice(0, 30)))
    lower, upper = np.array(list(problem.actions.values())).T
    assert ((lower <= told.actions) & (told.actions <= upper)).all()
    for name in FIELDS[1:]:
        assert ((getattr(told, name) >= 0) & (getattr(told, name) <= 1)).all()
    assert (told.lower <= told.probability).all()
    assert (told.probability <= told.upper).all()


def test_evaluating_the_advice_says_the_same(fitted):
    _, problem, records, policy = fitted
    contexts = contexts_of(problem, records, slice(0, 10))
    told = policy.recommend(contexts)
    again = policy.evaluate(contexts, told.actions)
    for name in FIELDS:
        np.testing.assert_allclose(getattr(told, name), getattr(again, name), atol=1e-9)


def test_the_gradient_by_actions_matches_finite_differences(fitted, rng):
    _, problem, records, policy = fitted
    contexts = contexts_of(problem, records, slice(0, 5))
    box = policy.schema.bounds
    actions = rng.uniform(box[:, 0], box[:, 1], size=(5, len(box)))
    slopes = policy.gradient(contexts, actions)
    for j, step in enumerate(1e-6 * np.eye(len(box))):
        above = policy.objective(contexts, actions + step)
        below = policy.objective(contexts, actions - step)
        np.testing.assert_allclose((above - below) / 2e-6, slopes[:, j], atol=1e-6)


def test_constant_and_categorical_columns_are_chosen_for_too():
    records = lending(80)
    sector = np.where(records["debt"] > 0.5, "farm", "shop")
    records |= {"sector": sector, "same": np.ones(80)}
    context = ["score", "debt", "sector", "same"]
    order = [context, "stability", "rate", ["repaid", "roi"]]
    fields = LENDING.to_dict() | {"context": context, "order": order}
    policy = NestedRehearsal(bandwidth="auto").fit(Problem.from_dict(fields), records)
    told = {v.name: v for v in policy.choice.outcome.variables}
    assert list(told) == ["score", "debt", "sector", "same", "stability", "rate"]
    assert told["same"].irrelevant


def test_few_and_only_good_records_are_no_obstacle():
    records = lending(60)
    low = float(records["roi"].min()) - 1.0
    level = float(np.sort(records["roi"])[-3])
    method = NestedRehearsal(bandwidth="auto")
    fields = LENDING.to_dict()
    everything = Problem.from_dict(fields | {"desired": [f"roi >= {low}"]})
    told = method.fit(everything, records).recommend({"score": [0.5], "debt": [0.5]})
    assert told.probability[0] == pytest.approx(1.0, abs=0.05)
    hardly = Problem.from_dict(fields | {"desired": [f"roi >= {level}"]})
    with pytest.warns(ForestallWarning, match="Only 3 records"):
        told = method.fit(hardly, records).recommend({"score": [0.5], "debt": [0.5]})
    assert told.probability[0] < 0.5
