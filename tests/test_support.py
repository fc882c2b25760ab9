import numpy as np
import pytest

from forestall.encoding import Block, Categorical, Numeric
from forestall.support import Horizon, Support


def test_records_themselves_score_uniformly(rng):
    v = rng.normal(size=(500, 2))
    fresh = Support.of(v).score(rng.normal(size=(2000, 2)))
    assert fresh.mean() == pytest.approx(0.5, abs=0.05)
    assert 0 <= fresh.min() <= fresh.max() <= 1


def test_density_equals_a_slow_sum(rng):
    v = rng.normal(size=(30, 2)) @ np.array([[2.0, 0.5], [0.0, 0.3]])
    support = Support.of(v)
    points = v[:4] + 0.1
    width = 30 ** (-1 / 6)
    precision = np.linalg.inv(np.cov(v.T))
    slow = [
        np.log(sum(np.exp(-(p - r) @ precision @ (p - r) / 2 / width**2) for r in v))
        for p in points
    ]
    np.testing.assert_allclose(support.log_density(points), slow, atol=1e-8)


def test_leaving_a_thin_line_is_extrapolation_even_inside_the_box(rng):
    x = rng.normal(size=500)
    v = np.stack([x, x + 0.05 * rng.normal(size=500)], axis=1)
    on, off = np.array([[0.5, 0.5]]), np.array([[0.5, -0.5]])
    support = Support.of(v)
    assert support.score(on) > 0.3
    assert support.score(off) == 0
    assert support.extrapolates(off).all()
    assert not support.extrapolates(on).any()


def test_fresh_points_of_the_same_law_are_not_unheard_of(rng):
    support = Support.of(rng.uniform(size=(1000, 2)))
    assert not support.unheard_of(rng.uniform(size=(5000, 2))).any()
    assert support.unheard_of(np.array([[3.0, 0.5]])).all()


def test_constant_and_collinear_columns_are_no_trouble(rng):
    v = np.column_stack([rng.normal(size=100), np.zeros(100)])
    v = np.column_stack([v, v[:, 0]])
    score = Support.of(v).score(v)
    assert np.isfinite(score).all()


def test_the_horizon_names_the_column_that_leaves_the_range(rng):
    block = Block((Numeric("age", 50.0, 10.0), Categorical("sex", ("f", "m"))))
    x = np.column_stack([rng.normal(size=300), np.eye(2)[rng.integers(2, size=300)]])
    horizon = Horizon.of(block, x)
    usual, far = np.array([0.0, 1.0, 0.0]), np.array([9.0, 1.0, 0.0])
    remarks = horizon.remarks(np.stack([usual, far]))
    assert remarks[0] is None
    assert remarks[1].startswith("age = 140 lies outside the range ")
    assert remarks[1].endswith(" of history.")


def test_the_horizon_names_every_column_that_leaves_the_range(rng):
    x = rng.uniform(-1, 1, size=(300, 5))
    horizon = Horizon.of(Block(tuple(Numeric(k, 0.0, 1.0) for k in "abcde")), x)
    far = np.array([[0.0, 9.0, 0.0, 8.0, 0.0], [9.0, 9.0, -9.0, 9.0, 9.0]])
    two, five = horizon.remarks(far)
    assert two == (
        "b = 9 lies outside the range -1 to 1 of history, d = 8 outside -1 to 1."
    )
    assert five.startswith("a = 9 lies outside the range -1 to 1 of history, b = 9")
    assert five.endswith(", c = -9 outside -1 to 1, and 2 more.")


def test_the_horizon_sees_combinations_nobody_has_had(rng):
    t = rng.uniform(size=500)
    x = np.column_stack([t, t, rng.uniform(size=500)]) * 3
    block = Block(tuple(Numeric(k, 0.0, 1.0) for k in "abc"))
    odd, usual = np.array([[0.2, 2.8, 1.0], [1.5, 1.5, 2.0]])
    remarks = Horizon.of(block, x).remarks(np.stack([odd, usual]))
    assert remarks[0].startswith("no record has a context like this one; by its other")
    assert "values a would be about 2.8, not 0.2." in remarks[0]
    assert remarks[1] is None


def test_a_gap_that_no_column_explains_names_none(rng):
    x = rng.choice([-1.0, 1.0], size=(4000, 1)) + 0.05 * rng.normal(size=(4000, 1))
    remarks = Horizon.of(Block((Numeric("a", 0.0, 1.0),)), x).remarks(np.zeros((1, 1)))
    assert remarks == ["no record has a context like this one."]


def test_what_the_others_make_of_a_column_is_its_regression(rng):
    v = rng.normal(size=(400, 2)) @ np.array([[1.0, 0.8], [0.0, 0.5]])
    point = np.array([1.0, -1.0])
    off, spread = Support.of(v).strayed(point)
    slope, level = np.polyfit(v[:, 1], v[:, 0], 1)
    assert off[0] == pytest.approx(point[0] - level - slope * point[1], abs=1e-6)
    assert spread[0] == pytest.approx(np.std(v[:, 0] - level - slope * v[:, 1]))
