"""The exact path: thin forms change nothing, and memory stays within bounds."""

import tracemalloc

import numpy as np
import pytest

from forestall import FitError, ForestallWarning, NestedRehearsal, Problem
from forestall.kernels import Gaussian, gram, triangle
from forestall.ridge import Ridge
from forestall.solution import check_size
from forestall.systems import Exact
from forestall.thin import Thick, Thin, ThinRidge, gram_of, ridge_of
from worlds import WORLDS


@pytest.mark.parametrize("n", [1, 7, 600])
def test_one_triangle_is_that_of_the_whole_matrix(n, rng):
    v = rng.normal(size=(n, 3))
    K = triangle(v)
    assert K.flags.f_contiguous
    np.testing.assert_allclose(np.tril(K), np.tril(gram(v, v)), atol=1e-12)


def test_factoring_one_triangle_equals_factoring_the_matrix(rng):
    v, kernel = rng.normal(size=(80, 2)), Gaussian(np.full(2, 0.7))
    one, other = Ridge.on(kernel, v, 1e-3), Ridge.of(kernel(v, v), 1e-3)
    b = rng.normal(size=(80, 3))
    np.testing.assert_allclose(one.solve(b), other.solve(b), atol=1e-9)
    np.testing.assert_allclose(one.explained(b), other.explained(b), atol=1e-8)


def test_a_ridge_takes_matrices_in_either_order(rng):
    v, kernel = rng.normal(size=(30, 2)), Gaussian(np.ones(2))
    b = rng.normal(size=30)
    rows, columns = kernel(v, v), np.asfortranarray(kernel(v, v))
    np.testing.assert_allclose(
        Ridge.of(rows, 1e-3).solve(b), Ridge.of(columns, 1e-3).solve(b), atol=1e-10
    )


@pytest.mark.parametrize("d", [1, 2])
def test_a_thin_form_changes_nothing_but_the_cost(d, rng):
    v, kernel = rng.normal(size=(1500, d)), Gaussian(np.full(d, 1.5))
    K = kernel(v, v)
    thin = gram_of(kernel, v)
    assert isinstance(thin, Thin)
    z = rng.normal(size=(1500, 4))
    np.testing.assert_allclose(thin.times(z), K @ z, atol=1e-9)
    np.testing.assert_allclose(thin.whole(), K, atol=1e-12)
    slim, thick = ridge_of(kernel, v, 1e-4), Ridge.of(K.copy(), 1e-4)
    assert isinstance(slim, ThinRidge)
    near = kernel(v, rng.normal(size=(5, d)))
    for b in (z, near):
        np.testing.assert_allclose(slim.solve(b), thick.solve(b), atol=1e-8)
        np.testing.assert_allclose(slim.explained(b), thick.explained(b), rtol=1e-7)


def test_what_has_no_thin_form_is_written_out(rng):
    v, kernel = rng.normal(size=(200, 6)), Gaussian(np.ones(6))
    thick = gram_of(kernel, v)
    assert isinstance(thick, Thick)
    assert isinstance(ridge_of(kernel, v, 1e-4), Ridge)
    z = rng.normal(size=(200, 3))
    np.testing.assert_allclose(thick.times(z), kernel(v, v) @ z, atol=1e-10)
    np.testing.assert_allclose(thick.whole(), kernel(v, v), atol=1e-12)
    assert thick.times(np.empty((200, 0))).shape == (200, 0)


def test_a_penalty_near_rounding_is_left_to_the_full_factor(rng):
    v, kernel = rng.normal(size=(800, 1)), Gaussian(np.full(1, 1.5))
    assert isinstance(ridge_of(kernel, v, 1e-4), ThinRidge)
    assert isinstance(ridge_of(kernel, v, 1e-8), Ridge)


def test_answers_do_not_depend_on_the_form(monkeypatch):
    problem, history = WORLDS["lending"]
    records = history(400)
    contexts = {name: records[name][:20] for name in problem.context}
    thin = NestedRehearsal(bandwidth=2.0).fit(problem, records)
    assert isinstance(thin.systems.covariates, Thin)
    monkeypatch.setattr("forestall.thin.MOST", 1)
    thick = NestedRehearsal(bandwidth=2.0).fit(problem, records)
    assert isinstance(thick.systems.covariates, Thick)
    one, other = thin.recommend(contexts), thick.recommend(contexts)
    for name in ("actions", "probability", "lower", "upper", "no_action"):
        np.testing.assert_allclose(getattr(one, name), getattr(other, name), atol=1e-6)


WIDE = Problem(
    context=[f"x{k}" for k in range(5)],
    covariates=[f"u{k}" for k in range(5)],
    actions={"a": (0.0, 1.0)},
    outcomes=["y"],
    desired=["y >= 0"],
    order=[
        [f"x{k}" for k in range(5)],
        [f"u{k}" for k in range(5)],
        "a",
        "y",
    ],
)


def test_an_exact_fit_takes_little_more_than_three_matrices(rng):
    n = 2000
    history = {name: rng.normal(size=n) for name in WIDE.variables}
    NestedRehearsal().fit(WIDE, {name: v[:50] for name, v in history.items()})
    tracemalloc.start()
    policy = NestedRehearsal().fit(WIDE, history)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert isinstance(policy.systems, Exact)
    assert isinstance(policy.systems.covariates, Thick)
    assert isinstance(policy.systems.outer, Ridge)
    assert peak <= 3.3 * 8 * n**2


def test_too_many_records_are_told_of_low_rank():
    with pytest.raises(FitError, match=r"GB. Use approximation=Nystrom\(rank=500\)"):
        check_size(1_000_000)
    with pytest.warns(ForestallWarning, match=r"use approximation=Nystrom\(rank=500\)"):
        check_size(10_000)
