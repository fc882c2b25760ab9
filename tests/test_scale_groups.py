"""The density of groups of records: that of all kernels at full rank, near it below."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import multivariate_normal

import forestall
from forestall import Nystrom, Problem, RandomFourier, StagedRehearsal
from forestall.building import Builder
from forestall.observations import Observations
from forestall.scale import Held
from forestall.scale.groups import Gathering, Grouped, joint
from forestall.scale.supply import in_order
from forestall.support import Support
from worlds import DOSING, dosing, lending


def bent(n, seed=0):
    """Records along a bent line, and a category beside it."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=n)
    return np.column_stack(
        [x, np.sin(2 * x) + 0.2 * rng.normal(size=n), rng.integers(2, size=n)]
    )


def points(n=400):
    return np.random.default_rng(5).uniform(-2.5, 2.5, size=(n, 3))


def grouped(v, rank, sample=None):
    sample = v if sample is None else sample
    gathering = Gathering.of(sample, len(v), rank, seed=0)
    return gathering.density(gathering.count(v), sample)


def test_at_full_rank_it_is_the_density_of_all_records():
    v = bent(300)
    exact, low = Support.of(v), grouped(v, 300)
    np.testing.assert_allclose(low.log_density(points()), exact.log_density(points()))
    np.testing.assert_allclose(low.levels, exact.levels, atol=1e-9)
    np.testing.assert_array_equal(low.score(points()), exact.score(points()))


def test_records_that_repeat_each_other_change_nothing_at_full_rank():
    v = np.repeat(bent(60), 3, axis=0)
    exact, low = Support.of(v), grouped(v, 10**6)
    assert len(low.heights) == 60
    np.testing.assert_allclose(low.levels, exact.levels, atol=1e-9)
    np.testing.assert_array_equal(low.score(points()), exact.score(points()))


def test_rounding_does_not_choose_other_landmarks():
    v = bent(600)
    moved = v * (1.0 + 1e-15 * np.random.default_rng(1).choice([-4, 4], v.shape))
    one, other = (Gathering.of(each, 600, 200, seed=0).landmarks for each in (v, moved))
    np.testing.assert_allclose(one, other, rtol=1e-9)


def test_errors_fall_with_rank():
    v, errors = bent(1_500), []
    exact = Support.of(v).score(points())
    for rank in (10, 60, 400, 1_500):
        errors.append(np.abs(grouped(v, rank).score(points()) - exact).mean())
    assert errors[0] > 2 * errors[1] > 4 * errors[2] > 0
    assert errors[3] == 0


def test_the_density_is_a_slow_sum_of_normal_laws():
    v = bent(200)
    gathering = Gathering.of(v, 200, 12, seed=0)
    white = v @ gathering.whitening
    apart = np.square(white[:, None] - gathering.landmarks).sum(axis=2)
    own, slow = apart.argmin(axis=1), 0.0
    for k in range(len(gathering.landmarks)):
        part = white[own == k]
        scatter = np.cov(part.T, bias=True) if len(part) > 1 else np.zeros((3, 3))
        law = multivariate_normal(part.mean(axis=0), np.eye(3) + scatter)
        slow = slow + len(part) * law.pdf(points(20) @ gathering.whitening)
    told = gathering.density(gathering.count(v), v).log_density(points(20))
    np.testing.assert_allclose(told, np.log(slow) + 1.5 * np.log(2 * np.pi))


def test_levels_are_what_the_density_is_without_the_record():
    v = bent(80)
    gathering = Gathering.of(v, 80, 9, seed=0)
    groups = gathering.count(v)
    slow = []
    for i in range(80):
        rest = gathering.count(np.delete(v, i, axis=0))
        slow.append(gathering.density(rest, v[:1]).log_density(v[i : i + 1])[0])
    told = gathering.density(groups, v).levels
    np.testing.assert_allclose(told, np.sort(slow), atol=1e-8)


@settings(max_examples=20)
@given(cuts=st.lists(st.integers(1, 599), max_size=4))
def test_what_is_gathered_does_not_depend_on_the_batches(cuts):
    # Whole numbers lie half way between landmarks more often than not.
    v = np.round(2 * bent(600))
    gathering = Gathering.of(v[:200], 600, 15, seed=0)
    whole = gathering.count(v)
    first, *rest = (gathering.count(part) for part in np.split(v, sorted(set(cuts))))
    apart = sum(rest, start=first)
    for name, value in vars(whole).items():
        other = getattr(apart, name)
        np.testing.assert_allclose(value, other, rtol=1e-10, atol=1e-10)


def test_records_outside_the_sample_are_counted():
    v = np.concatenate([bent(3_000), bent(600, seed=1) + np.array([5, 0, 0])])
    island = np.array([[5.0, 0.0, 0.0], [5.5, 0.5, 1.0]])
    few = v[::60]
    low = grouped(v, 40, few)
    assert low.levels.shape == (60,)
    assert np.abs(low.score(island) - Support.of(v).score(island)).max() < 0.15


def test_fresh_records_score_uniformly():
    fresh = grouped(bent(4_000), 100, bent(4_000)[::8]).score(bent(2_000, seed=2))
    assert fresh.mean() == pytest.approx(0.5, abs=0.03)
    assert np.mean(fresh < 0.1) == pytest.approx(0.1, abs=0.04)


def test_an_absurd_record_costs_no_other_its_digits():
    v = bent(500)
    odd = np.concatenate([v, [[1e9, -1e9, 1e9]]])
    gathering = Gathering.of(v, 500, 40, seed=0)
    one, other = (gathering.density(gathering.count(w), v) for w in (v, odd))
    assert np.isfinite(other.log_density(np.full((1, 3), 1e300))).all()
    assert np.abs(one.score(points()) - other.score(points())).mean() < 0.02


def learned(approximation, supply):
    """The density that a staged fit tells support by, without its mechanisms."""
    method = StagedRehearsal(approximation=approximation)
    builder = Builder(method.parts, DOSING, supply)
    return builder._counts({}, {})[-1]


@pytest.mark.parametrize(
    ("approximation", "most"),
    [(Nystrom(rank=50), 50), (RandomFourier(n_features=60), 30), (None, 200)],
)
def test_a_staged_fit_of_low_rank_tells_support_by_as_many_landmarks(
    approximation, most
):
    data = in_order(Observations.read(DOSING, dosing(900)))
    density = learned(approximation, Held.of(data, 250))
    assert isinstance(density, Grouped)
    assert len(density.heights) <= most
    v = joint(data)
    error = np.abs(density.score(v) - Support.of(v).score(v)).mean()
    assert error < 0.05


@pytest.mark.parametrize("approximation", [Nystrom(rank=300), RandomFourier()])
def test_staged_support_at_full_rank_is_the_exact_one(approximation):
    data = in_order(Observations.read(DOSING, dosing(250)))
    exact, low = (learned(each, Held.of(data)) for each in (None, approximation))
    assert isinstance(exact, Support)
    v = np.random.default_rng(0).normal(size=(200, 3))
    np.testing.assert_allclose(low.score(v), exact.score(v), atol=1e-5)
    flags = [density.extrapolates(v) for density in (exact, low)]
    np.testing.assert_array_equal(*flags)


def test_support_of_a_sampled_fit_comes_from_all_records_and_is_saved(tmp_path):
    problem = Problem(
        context=["score"],
        actions={"rate": (0.0, 1.0)},
        outcomes=["roi"],
        desired=["roi >= 0.3"],
    )
    data = in_order(Observations.read(problem, lending(700)))
    supply = Held.of(data, 150)
    method = StagedRehearsal(n_draws=4, search=forestall.Search(n_draws=2))
    with pytest.warns(forestall.ForestallWarning, match="a sample of 150"):
        policy = method.fit(problem, supply)
    v = joint(data)
    told, all_ = policy.joint.score(v), Support.of(v).score(v)
    few = Support.of(joint(supply.sample)).score(v)
    assert np.abs(told - all_).mean() < 0.7 * np.abs(few - all_).mean()
    loaded = forestall.load(policy.save(tmp_path / "policy.forestall"))
    np.testing.assert_array_equal(loaded.joint.score(v), told)
    one, other = (
        each.evaluate({"score": [0.2, 0.9]}, {"rate": 0.5}) for each in (policy, loaded)
    )
    np.testing.assert_array_equal(one.support, other.support)
    np.testing.assert_array_equal(one.probability, other.probability)
