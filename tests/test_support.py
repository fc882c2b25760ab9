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


def test_the_horizon_sees_combinations_nobody_has_had(rng):
    t = rng.uniform(size=500)
    x = np.column_stack([t, t]) * 3
    block = Block((Numeric("a", 0.0, 1.0), Numeric("b", 0.0, 1.0)))
    remarks = Horizon.of(block, x).remarks(np.array([[0.2, 2.8], [1.5, 1.5]]))
    assert remarks == ["no record has a context like this one.", None]
