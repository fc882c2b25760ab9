"""Laws that hold for every method on every small world."""

import warnings
from dataclasses import replace

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from extras import flows_or_skip
from forestall import (
    ConditionalRehearsal,
    DataError,
    Decisions,
    ExtrapolationWarning,
    ForestallWarning,
    NestedRehearsal,
    Problem,
    Search,
    StagedRehearsal,
    baselines,
)
from forestall.baselines.flow import Training
from forestall.decisions import Assessment, Judge, Tried
from forestall.identify import Criterion
from worlds import LENDING, WORLDS, contexts_of, lending

# One world is bent: that linear methods say so is tested elsewhere.
pytestmark = pytest.mark.filterwarnings("ignore:The records are not linear")

SMALL = Search(n_screened=32, n_kept=8, n_starts=2, n_steps=2, n_draws=8, n_paths=8)
METHODS = [
    StagedRehearsal(n_draws=16, n_paths=16, search=SMALL),
    NestedRehearsal(),
    ConditionalRehearsal(),
    baselines.NoAction(),
    baselines.LinearOptimal(n_draws=50),
    baselines.CARE(n_draws=50),
    baselines.QWZ23(n_worlds=8, n_draws=20, n_fresh=50),
    baselines.MICNS(n_draws=50),
]
BRIEF = Training(n_transforms=1, n_hidden=8, n_epochs=3)
FLOWS = baselines.GradRehearsal(
    n_draws=32, n_starts=2, n_steps=3, n_reported=64, n_refits=2, training=BRIEF
)
CASES = [(method, world) for method in METHODS for world in WORLDS] + [
    pytest.param((FLOWS, world), marks=pytest.mark.heavy) for world in WORLDS
]
FIELDS = ("actions", "probability", "lower", "upper", "no_action", "support")


def name_of(value):
    return value if isinstance(value, str) else type(value).__name__


@pytest.fixture(scope="module", params=CASES, ids=lambda c: f"{name_of(c[0])}-{c[1]}")
def fitted(request):
    method, world = request.param
    if method is FLOWS:
        flows_or_skip()
    problem, history = WORLDS[world]
    records = history(120)
    return method, problem, records, method.fit(problem, records)


def test_recommends_only_feasible_values_of_known_actions(fitted):
    _, problem, records, policy = fitted
    told = policy.recommend(contexts_of(problem, records, slice(0, 30)))
    box = np.array(list(problem.actions.values()))
    assert told.actions.shape == (30, len(box))
    assert (told.actions >= box[:, 0]).all()
    assert (told.actions <= box[:, 1]).all()
    assert set(told[0].actions) == set(problem.actions)


def test_probabilities_are_probabilities_and_intervals_contain_them(fitted):
    _, problem, records, policy = fitted
    told = policy.recommend(contexts_of(problem, records, slice(0, 30)))
    for name in ("probability", "no_action", "support", "lower", "upper"):
        values = getattr(told, name)
        assert values.shape == (30,)
        assert ((values >= 0) & (values <= 1)).all()
    assert (told.lower <= told.probability).all()
    assert (told.probability <= told.upper).all()
    assert set(told.verdict) <= {"act", "leave", "abstain"}
    assert all(told.reason)


def test_no_records_own_action_is_given_out(fitted):
    _, problem, records, policy = fitted
    far = {}
    for name, values in contexts_of(problem, records, slice(0, 30)).items():
        values = np.asarray(values)
        number = values.dtype.kind == "f"
        far[name] = 12.0 * values - 11.0 * values.mean() if number else values
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ExtrapolationWarning)
        told = policy.recommend(far).actions
    taken = np.column_stack([records[name] for name in problem.actions])
    box = np.array(list(problem.actions.values()))
    # At an end of its interval an action is everybody's.
    inside = ((told > box[:, 0]) & (told < box[:, 1])).all(axis=1)
    near = np.abs(told[inside][:, None] - taken) / taken.std(axis=0)
    assert near.max(axis=2).min(initial=1.0) > 1e-6


def test_fitting_twice_gives_equal_answers(fitted):
    method, problem, records, policy = fitted
    contexts = contexts_of(problem, records, slice(0, 10))
    first, second = policy.recommend(contexts), method.fit(problem, records)
    for name in FIELDS:
        again = getattr(second.recommend(contexts), name)
        assert np.array_equal(getattr(first, name), again)


def test_the_order_of_the_records_does_not_matter(fitted):
    method, problem, records, policy = fitted
    shuffle = np.random.default_rng(5).permutation(120)
    other = method.fit(problem, {k: v[shuffle] for k, v in records.items()})
    contexts = contexts_of(problem, records, slice(0, 10))
    for name in FIELDS:
        np.testing.assert_allclose(
            getattr(policy.recommend(contexts), name),
            getattr(other.recommend(contexts), name),
            atol=1e-6,
        )


def test_each_context_is_answered_as_if_it_were_alone(fitted):
    _, problem, records, policy = fitted
    contexts = contexts_of(problem, records, slice(0, 5))
    together = policy.recommend(contexts)
    for i in range(5):
        alone = policy.recommend({k: float(v[i]) for k, v in contexts.items()})
        for name in FIELDS:
            np.testing.assert_allclose(
                getattr(alone, name)[0], getattr(together, name)[i], atol=1e-7
            )


def test_large_batches_are_answered_as_small_ones(fitted):
    _, problem, records, policy = fitted
    # Policies answer at most 256 contexts at a time.
    rows = np.arange(300) % 40
    told = policy.recommend(contexts_of(problem, records, rows))
    few = policy.recommend(contexts_of(problem, records, slice(0, 40)))
    assert len(told) == 300
    np.testing.assert_allclose(told.probability, few.probability[rows], atol=1e-9)


def test_no_contexts_give_no_decisions(fitted):
    _, problem, records, policy = fitted
    told = policy.recommend(contexts_of(problem, records, slice(0, 0)))
    assert len(told) == 0
    assert told.actions.shape == (0, len(problem.actions))
    assert list(told) == []


def test_evaluating_the_recommendation_says_the_same(fitted):
    _, problem, records, policy = fitted
    contexts = contexts_of(problem, records, slice(0, 10))
    told = policy.recommend(contexts)
    again = policy.evaluate(contexts, told.actions)
    for name in FIELDS:
        np.testing.assert_allclose(getattr(told, name), getattr(again, name), atol=1e-9)
    assert again.verdict == told.verdict
    np.testing.assert_allclose(
        policy.probability(contexts, told.actions), told.probability, atol=1e-9
    )


def test_one_mapping_of_actions_is_meant_for_every_context(fitted):
    _, problem, records, policy = fitted
    contexts = contexts_of(problem, records, slice(0, 4))
    middle = {k: (lo + hi) / 2 for k, (lo, hi) in problem.actions.items()}
    told = policy.evaluate(contexts, middle)
    np.testing.assert_allclose(told.actions, [list(middle.values())] * 4)


def test_inputs_stay_untouched(fitted):
    method, problem, records, _ = fitted
    frame = pd.DataFrame(records)
    contexts = frame[list(problem.context)].head(5)
    before = frame.copy(), contexts.copy()
    method.fit(problem, frame).recommend(contexts).to_frame()
    pd.testing.assert_frame_equal(frame, before[0])
    pd.testing.assert_frame_equal(contexts, before[1])


@pytest.mark.parametrize("make", [pd.DataFrame, pl.DataFrame, pa.table, dict])
def test_the_same_kind_of_table_comes_out(fitted, make):
    _, problem, records, policy = fitted
    contexts = make(contexts_of(problem, records, slice(0, 3)))
    frame = policy.recommend(contexts).to_frame()
    assert type(frame) is type(contexts)
    columns = (
        list(frame)
        if isinstance(frame, dict)
        else list(getattr(frame, "column_names", None) or frame.columns)
    )
    assert columns == [
        *problem.actions,
        "probability",
        "lower",
        "upper",
        "no_action",
        "support",
        "extrapolates",
        "verdict",
        "reason",
    ]


def test_a_context_of_which_nothing_can_be_said_abstains_alone(fitted):
    _, problem, records, policy = fitted
    contexts = contexts_of(problem, records, slice(0, 3))
    name = problem.context[0]
    contexts[name] = contexts[name].copy()
    contexts[name][1] = np.nan
    with pytest.warns(ForestallWarning, match="1 of 3 contexts cannot be read"):
        told = policy.recommend(contexts)
    assert told.verdict[1] == "abstain"
    assert name in told.reason[1]
    assert np.isnan(told.probability[1])
    assert told.support[1] == 0
    assert told[1].actions == {}
    box = np.array(list(problem.actions.values()))
    assert ((told.actions[1] >= box[:, 0]) & (told.actions[1] <= box[:, 1])).all()
    whole = policy.recommend(contexts_of(problem, records, slice(0, 3)))
    for row in (0, 2):
        assert told.verdict[row] == whole.verdict[row]
        assert told.probability[row] == pytest.approx(whole.probability[row], abs=1e-6)


def test_a_context_far_outside_history_is_warned_about_and_said(fitted):
    _, problem, records, policy = fitted
    contexts = contexts_of(problem, records, slice(0, 2))
    name = problem.context[0]
    contexts[name] = contexts[name] + np.array([0.0, 1e4])
    with pytest.warns(ExtrapolationWarning, match=f"{name} = .* outside the range"):
        told = policy.recommend(contexts)
    assert told.extrapolates[1]
    assert "extrapolation" in told.reason[1]
    assert told.verdict[1] != "act"


def test_warnings_point_at_the_line_that_asked(fitted):
    _, problem, records, policy = fitted
    contexts = contexts_of(problem, records, slice(0, 2))
    name = problem.context[0]
    contexts[name] = contexts[name] + 1e4
    actions = {k: low for k, (low, _) in problem.actions.items()}
    questions = [
        lambda: policy.recommend(contexts),
        lambda: policy.evaluate(contexts, actions),
        lambda: policy.probability(contexts, actions),
    ]
    if isinstance(fitted[0], StagedRehearsal):
        only = list(problem.actions)[:1]
        questions.append(lambda: policy.recommend(contexts, only=only))
    for ask in questions:
        with pytest.warns(ExtrapolationWarning) as told:
            ask()
        assert {each.filename for each in told} == {__file__}


def test_contexts_of_history_raise_no_warning(fitted):
    _, problem, records, policy = fitted
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        policy.recommend(contexts_of(problem, records, slice(None)))


def test_a_missing_context_column_is_an_error_with_the_nearest_name(fitted):
    _, problem, records, policy = fitted
    contexts = contexts_of(problem, records, slice(0, 2))
    first = problem.context[0]
    contexts[first + "_"] = contexts.pop(first)
    with pytest.raises(DataError, match=f"Did you mean '{first}_'"):
        policy.recommend(contexts)


def test_no_action_always_leaves():
    policy = baselines.NoAction().fit(LENDING, lending(100))
    told = policy.recommend(contexts_of(LENDING, lending(20, seed=3), slice(None)))
    assert set(told.verdict) == {"leave"}
    assert np.array_equal(told.probability, told.no_action)


def test_categories_and_booleans_matter_and_unknown_ones_abstain():
    rng = np.random.default_rng(0)
    n = 300
    sector = rng.choice(["farm", "shop"], n)
    owner = rng.random(n) < 0.5
    rate = rng.normal(0, 1, n)
    sign = np.where(sector == "farm", 1.0, -1.0)
    y = sign * rate + 0.3 * owner + rng.normal(0, 0.2, n)
    history = {"sector": sector, "owner": owner, "rate": rate, "y": y}
    problem = Problem(
        context=["sector", "owner"],
        actions={"rate": (-2.0, 2.0)},
        outcomes=["y"],
        desired=["y >= 0.8"],
    )
    policy = NestedRehearsal().fit(problem, history)
    contexts = {"sector": ["farm", "shop", "bank"], "owner": [True, False, True]}
    with pytest.warns(ForestallWarning, match="'bank', which no record has"):
        told = policy.recommend(contexts)
    assert told.actions[0, 0] > 0.5
    assert told.actions[1, 0] < -0.5
    assert told.verdict == ["act", "act", "abstain"]
    assert "'farm', 'shop'" in told.reason[2]


def test_a_given_action_is_judged_as_such(fitted):
    _, problem, records, policy = fitted
    contexts = contexts_of(problem, records, slice(0, 3))
    beyond = {k: hi + 0.01 * (hi - lo) for k, (lo, hi) in problem.actions.items()}
    told = policy.evaluate(contexts, beyond)
    assert all("candidate" not in reason for reason in told.reason)
    if "leave" not in told.verdict or not isinstance(fitted[0], baselines.NoAction):
        assert all("outside its feasible interval" in r for r in told.reason)


def test_decisions_can_be_sliced_and_shown_without_the_records(fitted):
    _, problem, records, policy = fitted
    told = policy.recommend(contexts_of(problem, records, slice(0, 5)))
    assert [d.verdict for d in told[1:3]] == told.verdict[1:3]
    assert repr(told).startswith("Decisions(5 contexts: ")
    assert len(repr(policy)) < 200


def test_an_action_called_like_a_column_loses_nothing():
    rng = np.random.default_rng(0)
    names = ("probability", "probability (action)")
    history = {name: rng.normal(size=50) for name in ("x", *names, "y")}
    problem = Problem(
        context=["x"],
        actions=dict.fromkeys(names, (0.0, 1.0)),
        outcomes=["y"],
        desired=["y >= 0"],
    )
    frame = NestedRehearsal().fit(problem, history).recommend({"x": [0.0]}).to_frame()
    assert len(frame) == 10


def test_a_graph_that_shows_a_bias_forbids_to_act():
    history = lending(200)
    graph = "digraph { rate -> {repaid roi}; rate -> roi; score; debt; stability;"
    graph += " market -> {rate roi} }"
    fields = LENDING.to_dict() | {"graph": graph.replace("rate -> roi;", "")}
    with pytest.warns(ForestallWarning, match="may be biased"):
        policy = NestedRehearsal().fit(Problem.from_dict(fields), history)
    told = policy.recommend(contexts_of(LENDING, history, slice(0, 5)))
    assert told.verdict == ["abstain"] * 5
    assert "The graph shows a bias" in told.reason[0]


def test_a_decision_prints_as_a_sentence():
    policy = NestedRehearsal().fit(LENDING, lending(400))
    told = policy.recommend(contexts_of(LENDING, lending(30, seed=2), slice(None)))
    assert "act" in told.verdict
    sentence = str(told[told.verdict.index("act")])
    assert sentence.startswith("Set rate to ")
    assert "a good outcome becomes" in sentence
    assert str(told).count("\n") == 10
    assert str(told).endswith("... and 20 more")
    assert isinstance(told, Decisions)


def judged(p, p0, interval, gain, *, extrapolates=True, a=3.5, tried=None, given=None):
    """Judge one action by what is said of it."""
    one = np.ones(1)
    lower, upper = interval
    told = Assessment(
        a * one[:, None],
        p * one,
        lower * one,
        upper * one,
        p0 * one,
        gain * one,
        0.0 * one,
        np.array([extrapolates]),
    )
    infeasible = None if given is None else [False]
    return Judge(Criterion(None, None, ""), [None], infeasible, tried)(told, 0)


TRIED = Tried(("a",), np.array([-2.0]), np.array([1.2]), ("-2 to 1.2",), np.ones(1) > 0)


def test_no_better_is_only_said_where_that_is_known():
    unknown = judged(0.37, 0.47, (0.0, 1.0), -0.9)
    assert unknown[0] == "abstain"
    assert "history says too little to tell whether it would help" in unknown[1]
    assert "90 % interval under 1% to over 99%" in unknown[1]
    assert judged(0.37, 0.47, (0.2, 0.45), -0.2)[0] == "leave"
    assert judged(0.37, 0.47, (0.0, 1.0), -0.9, extrapolates=False)[0] == "leave"


def test_feasible_actions_that_nobody_tried_are_said_to_be_so():
    verdict, reason = judged(0.37, 0.47, (0.0, 1.0), -0.9, tried=TRIED)
    assert verdict == "abstain"
    assert reason.endswith(
        "This is extrapolation, as no feasible a was ever tried near here: history has "
        "a from -2 to 1.2."
    )
    near = replace(TRIED, never=np.zeros(1, dtype=bool))
    said = judged(0.37, 0.47, (0.0, 1.0), -0.9, tried=near)[1]
    assert said.endswith("hardly any record has such an action and context.")


def test_what_lies_beyond_any_trend_has_no_interval():
    verdict, reason = judged(1.0, 0.1, (1.0, 1.0), 0.0, a=11.0, tried=TRIED)
    assert verdict == "abstain"
    assert reason == (
        "the best candidate reaches over 99% against 10% without action, but a lies "
        "further out than any trend can be trusted: history has a from -2 to 1.2."
    )
    given = judged(1.0, 0.1, (1.0, 1.0), 0.0, a=11.0, tried=TRIED, given=True)
    assert given[1].startswith("this action reaches over 99%")


def test_what_was_tried_is_told_of_the_records_in_their_unit():
    history = lending(100)
    policy = NestedRehearsal().fit(LENDING, history)
    tried = policy.tried
    low, high = map(float, tried.ends[0].split(" to "))
    assert low == pytest.approx(history["rate"].min(), abs=0.06)
    assert high == pytest.approx(history["rate"].max(), abs=0.06)
    assert not tried.never.any()
    assert not tried.beyond(np.zeros((3, 1))).any()
    assert tried.beyond_text(np.zeros(1), np.ones(1, dtype=bool)) == ""


def test_of_a_sample_it_is_not_said_that_nobody_tried():
    few = replace(TRIED, sampled=True)
    said = judged(0.37, 0.47, (0.0, 1.0), -0.9, tried=few)[1]
    assert said.endswith(
        "as hardly any record has a feasible a: a sample of history has a from "
        "-2 to 1.2."
    )


@pytest.mark.filterwarnings("ignore::forestall.ForestallWarning")
@pytest.mark.parametrize("kind", [NestedRehearsal, StagedRehearsal])
def test_actions_that_nobody_tried_are_named_in_the_reason(kind, rng):
    x, a = rng.normal(size=(2, 200))
    history = {"x": x, "a": a, "y": a - x + 0.5 * rng.normal(size=200)}
    problem = Problem(
        context=["x"], actions={"a": (5.0, 6.0)}, outcomes=["y"], desired=["y >= 1"]
    )
    told = kind().fit(problem, history).recommend({"x": [0.0]})
    if told.verdict[0] == "abstain":
        assert "no feasible a was ever tried near here: history has a" in told.reason[0]
    far = replace(problem, actions={"a": (50.0, 60.0)})
    told = StagedRehearsal().fit(far, history).recommend({"x": [0.0]})
    assert told.verdict == ["abstain"]
    assert "a lies further out than any trend can be trusted" in told.reason[0]


def test_where_the_action_does_nothing_no_improvement_is_claimed():
    rng = np.random.default_rng(1)
    n = 500
    x, a = rng.normal(size=(2, n))
    history = {"x": x, "a": a, "y": x + rng.normal(0, 1, n)}
    problem = Problem(
        context=["x"], actions={"a": (-1.0, 1.0)}, outcomes=["y"], desired=["y >= 0"]
    )
    told = NestedRehearsal().fit(problem, history).recommend({"x": x[:50]})
    assert told.verdict.count("act") <= 5
