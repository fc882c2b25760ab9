"""Low rank against exact: equal at full rank, nearer the higher the rank, honest."""

import copy
import functools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from forestall import (
    ConditionalRehearsal,
    NestedRehearsal,
    SpecError,
    StagedRehearsal,
    tasks,
)
from forestall.kernels import Gaussian
from forestall.landmarks import STRATEGIES, Landmarks, chosen
from forestall.lowrank import Nystrom, RandomFourier
from forestall.moments import Batch, Moments, moments_of
from forestall.reduced import LowRank
from forestall.waves import Waves, features, frequencies
from worlds import WORLDS, contexts_of

N, Q = 150, 12
FULL = Nystrom(rank=10**9)
CLASSES = {"nested": NestedRehearsal, "conditional": ConditionalRehearsal}


def both(world, approximation, n=N, kind=NestedRehearsal, **fields):
    """The exact policy, the approximate one, and contexts to ask them."""
    problem, history = WORLDS[world]
    records = history(n)
    exact = kind(**fields).fit(problem, records)
    low = kind(approximation=approximation, **fields).fit(problem, records)
    return exact, low, contexts_of(problem, history(Q, seed=1), slice(None))


def actions_of(policy, rng):
    box = policy.schema.bounds
    return rng.uniform(box[:, 0], box[:, 1], size=(Q, len(box)))


@functools.cache
def plan_of(world, approximation, n=N):
    policy = both(world, approximation, n)[1]
    return policy.systems.plan, Batch.of(policy.records, policy.setting.sharpness)


@pytest.mark.parametrize("landmarks", STRATEGIES)
@pytest.mark.parametrize("world", WORLDS)
@pytest.mark.parametrize("kind", CLASSES)
def test_at_full_rank_everything_equals_the_exact_fit(world, kind, landmarks, rng):
    method = CLASSES[kind]
    full = Nystrom(rank=10**9, landmarks=landmarks)
    exact, low, contexts = both(world, full, kind=method)
    actions = actions_of(exact, rng)
    for name in ("objective", "gradient"):
        one, other = (getattr(p, name)(contexts, actions) for p in (exact, low))
        np.testing.assert_allclose(one, other, rtol=0.0, atol=1e-6)
    for one, other in (
        (exact.recommend(contexts), low.recommend(contexts)),
        (exact.evaluate(contexts, actions), low.evaluate(contexts, actions)),
    ):
        for name in ("actions", "probability", "lower", "upper", "no_action"):
            np.testing.assert_allclose(
                getattr(one, name), getattr(other, name), atol=1e-6, err_msg=name
            )
        assert one.verdict == other.verdict
        assert np.array_equal(one.support, other.support)


@pytest.mark.parametrize("penalty", [1e-2, 1e-3, 1e-4])
def test_full_rank_equals_exact_at_other_penalties(penalty, rng):
    fields = {"outcome_penalty": penalty, "context_penalty": penalty}
    exact, low, contexts = both("lending", FULL, **fields)
    actions = actions_of(exact, rng)
    one, other = (p.objective(contexts, actions) for p in (exact, low))
    np.testing.assert_allclose(one, other, rtol=0.0, atol=1e-6)


REAL = [
    ("lin-syn1", 300, 1.0),
    ("bank", 300, 1.0),
    ("lin-syn1", 600, 1.0),
    ("lin-syn1", 600, 2.0),
    ("dosing", 150, 2.0),
    ("bermuda", 150, "auto"),
]


@pytest.mark.filterwarnings("ignore:The nested estimator may be biased")
@pytest.mark.filterwarnings("ignore:.*lie far outside history")
@pytest.mark.parametrize(("name", "n", "bandwidth"), REAL)
def test_full_rank_equals_exact_on_real_tasks(name, n, bandwidth):
    task = tasks.get(name)
    contexts, history = task.contexts(64, 0), task.history(n, seed=0)
    exact, low = (
        NestedRehearsal(bandwidth=bandwidth, approximation=each).fit(
            task.problem, history
        )
        for each in (None, FULL)
    )
    one, found = exact.recommend(contexts), low.recommend(contexts)
    # The same actions, too: an ascent magnifies what it starts from.
    given = low.evaluate(contexts, one.actions)
    for other in (found, given):
        for field in ("probability", "lower", "upper", "no_action"):
            values = getattr(one, field), getattr(other, field)
            np.testing.assert_allclose(*values, rtol=0.0, atol=1e-6, err_msg=field)
    np.testing.assert_allclose(one.actions, found.actions, rtol=0.0, atol=3e-5)
    assert one.verdict == found.verdict


@pytest.mark.parametrize("world", WORLDS)
def test_when_functions_are_made_orthonormal_changes_nothing_but_digits(
    world, monkeypatch
):
    stiff = {"outcome_penalty": 1e-2, "context_penalty": 1e-2}
    early = both(world, Nystrom(rank=80), **stiff)[1]
    monkeypatch.setattr("forestall.lowrank.EARLY", 0)
    _, late, contexts = both(world, Nystrom(rank=80), **stiff)
    assert early.systems.plan.inner.early
    assert not late.systems.plan.inner.early
    middle = late.schema.bounds.mean(axis=1)
    actions = np.tile(middle, (Q, 1))
    one, other = (policy.evaluate(contexts, actions) for policy in (early, late))
    for name in ("probability", "lower", "upper", "no_action"):
        np.testing.assert_allclose(getattr(one, name), getattr(other, name), atol=1e-5)


def test_full_rank_equals_exact_where_the_records_choose_the_widths(rng):
    exact, low, contexts = both("lending", FULL, n=60, bandwidth="auto")
    assert low.choice is not None
    assert low.setting.k_n is not low.setting.k_e
    actions = actions_of(exact, rng)
    one, other = (p.evaluate(contexts, actions) for p in (exact, low))
    for name in ("probability", "no_action", "lower", "upper"):
        np.testing.assert_allclose(getattr(one, name), getattr(other, name), atol=1e-6)


def errors_of(approximations, rng, n=600):
    found = []
    for approximation in approximations:
        exact, low, contexts = both("lending", approximation, n)
        actions = actions_of(exact, np.random.default_rng(1))
        one, other = (p.objective(contexts, actions) for p in (exact, low))
        found.append(np.sqrt(((one - other) ** 2).mean()))
    return found


@pytest.mark.parametrize("landmarks", STRATEGIES)
def test_errors_fall_with_rank(landmarks, rng):
    ranks = (10, 60, 600)
    plans = [Nystrom(rank=rank, landmarks=landmarks) for rank in ranks]
    few, more, all_ = errors_of(plans, rng)
    assert few > 2 * more
    assert more > 10 * all_


@pytest.mark.parametrize("orthogonal", [True, False])
def test_errors_of_random_features_fall_with_their_number(orthogonal, rng):
    counts = (20, 200, 2000)
    plans = [RandomFourier(n_features=k, orthogonal=orthogonal) for k in counts]
    few, more, many = errors_of(plans, rng, n=200)
    assert few > more > many
    assert many < 0.05


@pytest.mark.parametrize("landmarks", STRATEGIES)
@pytest.mark.parametrize("world", WORLDS)
def test_intervals_do_not_get_narrower_as_rank_falls(world, landmarks, rng):
    widths = []
    for rank in (8, 30, 120, N):
        low = Nystrom(rank=rank, landmarks=landmarks)
        exact, policy, contexts = both(world, low)
        told = policy.evaluate(contexts, exact.recommend(contexts).actions)
        widths.append((told.upper - told.lower).mean())
    assert (np.diff(widths) <= 1e-3).all(), widths


@pytest.mark.parametrize("approximation", [Nystrom(rank=40), RandomFourier()])
def test_the_interval_does_not_shrink_away_from_history(approximation):
    problem, history = WORLDS["lending"]
    policy = NestedRehearsal(approximation=approximation).fit(problem, history(300))
    far = {"score": [3.0, 10.0, 100.0], "debt": [0.5] * 3}
    with pytest.warns(UserWarning, match="far outside history"):
        told = policy.recommend(far)
    assert (told.upper - told.lower >= 0.99).all()
    assert told.verdict == ["abstain"] * 3


@pytest.mark.parametrize(
    "approximation", [Nystrom(rank=30), RandomFourier(n_features=60)]
)
@pytest.mark.parametrize("world", WORLDS)
def test_gradients_match_finite_differences(world, approximation, rng):
    _, low, contexts = both(world, approximation)
    actions = actions_of(low, rng)
    slopes = low.gradient(contexts, actions)
    for j, step in enumerate(1e-6 * np.eye(actions.shape[1])):
        above, below = (low.objective(contexts, actions + s) for s in (step, -step))
        np.testing.assert_allclose((above - below) / 2e-6, slopes[:, j], atol=1e-5)


@pytest.mark.parametrize("approximation", [Nystrom(rank=40), RandomFourier()])
@pytest.mark.parametrize("world", WORLDS)
def test_another_region_without_refitting_equals_a_fresh_fit(world, approximation):
    problem, history = WORLDS[world]
    records, method = history(N), NestedRehearsal(approximation=approximation)
    policy, name = method.fit(problem, records), problem.outcomes[0]
    level = float(np.median(records[name]))
    moved = policy.for_region([f"{name} >= {level}"])
    fresh = method.fit(moved.problem, records)
    contexts = contexts_of(problem, history(Q, seed=1), slice(None))
    one, other = moved.recommend(contexts), fresh.recommend(contexts)
    for name in ("actions", "probability", "lower", "upper", "no_action"):
        np.testing.assert_allclose(getattr(one, name), getattr(other, name), atol=1e-9)


@pytest.mark.parametrize("approximation", [Nystrom(rank=40), RandomFourier()])
def test_diagnostics_work(approximation):
    _, low, _ = both("lending", approximation)
    assert low.diagnostics().records == N
    assert "rate" in str(low.diagnostics())


@pytest.mark.parametrize("approximation", [Nystrom(rank=40), RandomFourier()])
def test_the_order_of_the_records_does_not_matter(approximation, rng):
    problem, history = WORLDS["lending"]
    records, order = history(N), rng.permutation(N)
    contexts = contexts_of(problem, history(Q, seed=1), slice(None))
    method = NestedRehearsal(approximation=approximation)
    one = method.fit(problem, records).recommend(contexts)
    other = method.fit(problem, {k: v[order] for k, v in records.items()})
    np.testing.assert_allclose(
        one.probability, other.recommend(contexts).probability, atol=1e-6
    )


@given(split=st.integers(1, N - 1))
def test_sums_of_two_batches_are_the_sums_of_both(split):
    check_additive(*plan_of("lending", Nystrom(rank=20)), split)


@given(split=st.integers(1, N - 1))
def test_sums_of_orthonormal_functions_add_up_too(split):
    # What makes them orthonormal magnifies the last digits of the kernel.
    check_additive(*plan_of("lending", Nystrom(rank=80)), split, tolerance=1e-6)


@given(split=st.integers(1, N - 1))
def test_sums_of_waves_add_up_too(split):
    check_additive(*plan_of("dosing", RandomFourier(n_features=20)), split)


def check_additive(plan, batch, split, tolerance=1e-10):
    halves = [
        Batch(*(getattr(batch, name)[rows] for name in vars(batch)))
        for rows in (slice(0, split), slice(split, None))
    ]
    first, second = (Moments.of(plan, half) for half in halves)
    apart, together = first + second, Moments.of(plan, batch)
    for part in ("grams", "crosses"):
        one, other = getattr(apart, part), getattr(together, part)
        for name, value in vars(one).items():
            if value is not None:
                np.testing.assert_allclose(
                    value, getattr(other, name), rtol=tolerance, atol=tolerance
                )


def test_blocks_of_bounded_memory_add_up_to_the_whole(monkeypatch):
    plan, batch = plan_of("lending", Nystrom(rank=20), n=900)
    whole = Moments.of(plan, batch)
    monkeypatch.setattr("forestall.moments.BLOCK", 1)
    parts = moments_of(plan, batch)
    assert parts.grams.n == 900
    np.testing.assert_allclose(parts.grams.inner, whole.grams.inner, atol=1e-10)
    np.testing.assert_allclose(parts.crosses.inner, whole.crosses.inner, atol=1e-10)


def test_a_fit_needs_the_sums_and_not_the_records():
    _, low, _ = both("lending", Nystrom(rank=30))
    plan, setting = low.systems.plan, low.setting
    moments = moments_of(plan, Batch.of(low.records, setting.sharpness))
    systems = LowRank.of(plan, moments.grams)
    solution = systems.solution(moments.crosses, low.records, setting.sharpness)
    np.testing.assert_array_equal(solution.alpha, low.solution.alpha)
    np.testing.assert_array_equal(solution.pull, low.solution.pull)


def test_no_part_of_what_answers_grows_with_the_records():
    sizes = []
    for n in (400, 800):
        _, low, _ = both("lending", Nystrom(rank=20), n)
        sizes.append([v.shape for v in vars(low.solution).values() if np.ndim(v)])
        assert low.systems.inner.factor.shape == (20, 20)
    assert sizes[0] == sizes[1]


def test_a_policy_that_keeps_a_sample_refuses_another_region():
    _, low, _ = both("lending", Nystrom(rank=20))
    some = low.records.taken(np.arange(50))
    with pytest.raises(SpecError, match=r"Expected all 150 records.*got 50 of them"):
        low.systems.solved(some, 10.0)


@pytest.mark.parametrize("landmarks", STRATEGIES)
def test_landmarks_are_distinct_and_the_same_for_the_same_seed(landmarks, rng):
    points = rng.normal(size=(300, 3))
    first, again = (chosen(points, 40, landmarks, 1e-3, seed=3) for _ in range(2))
    assert np.array_equal(first, again)
    assert len(set(first.tolist())) == 40
    assert not np.array_equal(first, chosen(points, 40, landmarks, 1e-3, seed=4))


@pytest.mark.parametrize("landmarks", STRATEGIES)
def test_records_that_repeat_each_other_are_no_trouble(landmarks, rng):
    points = np.repeat(rng.normal(size=(5, 2)), 20, axis=0)
    assert len(set(chosen(points, 30, landmarks, 1e-3, seed=0).tolist())) == 30
    assert Landmarks.of(Gaussian(np.ones(2)), points, 1e-9).rank == 5


@pytest.mark.parametrize("landmarks", STRATEGIES)
def test_a_rank_above_the_number_of_records_takes_them_all(landmarks, rng):
    rows = chosen(rng.normal(size=(30, 2)), 31, landmarks, 1e-3, seed=0)
    assert sorted(rows.tolist()) == list(range(30))


@pytest.mark.parametrize(
    ("landmarks", "left"),
    [("kmeans", np.mean), ("leverage", lambda r: np.quantile(r, 0.95))],
)
def test_chosen_landmarks_leave_less_out_than_random_ones(landmarks, left):
    kernel, found = Gaussian(np.full(2, 0.5)), {landmarks: 0.0, "uniform": 0.0}
    for seed in range(5):
        points = np.random.default_rng(seed).normal(size=(1500, 2))
        for name in found:
            rows = chosen(points / 0.5, 60, name, 1e-4, seed)
            residue = Landmarks.of(kernel, points[rows], 1e-12).residue(points)
            found[name] += left(residue)
    assert found[landmarks] < found["uniform"]


@pytest.mark.parametrize("orthogonal", [True, False])
def test_products_of_features_estimate_the_kernel(orthogonal, rng):
    v, widths = rng.normal(size=(20, 3)), np.array([0.8, 1.5, 2.0])
    rows = features(v, frequencies(20_000, widths, orthogonal, rng))
    np.testing.assert_allclose(rows @ rows.T, Gaussian(widths)(v, v), atol=0.03)


def test_waves_are_the_sum_they_stand_for(rng):
    w, c, s = (rng.normal(size=shape) for shape in ((5, 2), (3, 5), (3, 5)))
    a = rng.normal(size=(3, 4, 2))
    values = Waves(w, c, s)(a)
    for q in range(3):
        for k in range(4):
            angles = w @ a[q, k]
            slow = c[q] @ np.cos(angles) + s[q] @ np.sin(angles)
            assert values[q, k] == pytest.approx(slow)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Nystrom(rank=0), "Expected rank whole and at least 1; got 0. Use e.g"),
        (lambda: Nystrom(landmarks="kmean"), "got 'kmean'. Did you mean 'kmeans'?"),
        (lambda: Nystrom(landmarks="best"), "got 'best'. Use one of these."),
        (lambda: Nystrom(seed=-1), "Expected seed whole and not below zero; got -1"),
        (lambda: RandomFourier(n_features=5), "as sines; got 5. Use 6."),
        (lambda: RandomFourier(n_features=0), "Expected n_features whole and at least"),
    ],
)
def test_fields_are_checked(make, message):
    with pytest.raises(SpecError) as caught:
        make()
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("sound", "name", "value", "message"),
    [
        (Nystrom(), "rank", 2.5, "Expected rank whole and at least 1; got 2.5"),
        (RandomFourier(), "orthogonal", 1, "Expected orthogonal as True or False"),
        (
            NestedRehearsal(),
            "approximation",
            "nystrom",
            "Expected approximation as None, a Nystrom or a RandomFourier; got 'nystr",
        ),
        (
            StagedRehearsal(),
            "approximation",
            "nystrom",
            "Expected approximation as None, a Nystrom or a RandomFourier; got 'nystr",
        ),
    ],
)
def test_fields_of_the_wrong_type_are_told(sound, name, value, message):
    # The annotations, which tests enforce, would speak first.
    wrong = copy.copy(sound)
    object.__setattr__(wrong, name, value)
    with pytest.raises(SpecError, match=message):
        wrong.__post_init__()


def test_methods_say_which_approximation_they_use():
    assert "rank=50" in repr(NestedRehearsal(approximation=Nystrom(rank=50)))
    assert Nystrom(rank=50) == Nystrom(rank=50)
