"""The exact path: thin forms change nothing, and memory stays within bounds."""

import tracemalloc

import numpy as np
import pytest

from forestall import FitError, ForestallWarning, NestedRehearsal, Problem
from forestall.kernels import Gaussian, gram, triangle
from forestall.ridge import Ridge
from forestall.solution import check_size
from forestall.systems import Exact, unknown
from forestall.thin import Above, Thick, Thin, ThinRidge, gram_of, ridge_of
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
    slim, thick = ridge_of(kernel, v, 1e-4), Ridge.of(K.copy(), 1e-4)
    thin = gram_of(kernel, v, thick)
    assert isinstance(thin, Thin)
    z = rng.normal(size=(1500, 4))
    np.testing.assert_allclose(thin.times(z), K @ z, atol=1e-9)
    assert isinstance(slim, ThinRidge)
    near = kernel(v, rng.normal(size=(5, d)))
    for b in (z, near):
        np.testing.assert_allclose(slim.solve(b), thick.solve(b), atol=1e-8)
        np.testing.assert_allclose(slim.explained(b), thick.explained(b), rtol=1e-7)


@pytest.mark.parametrize("n", [7, 600])
def test_what_has_no_thin_form_is_written_beside_a_factor(n, rng):
    v, kernel = rng.normal(size=(n, 6)), Gaussian(np.full(6, 1.5))
    other = rng.normal(size=(n, 6))
    ridge = ridge_of(kernel, other, 1e-4)
    assert isinstance(ridge, Ridge)
    factor = np.tril(ridge.factor)
    thick = gram_of(kernel, v, ridge)
    assert isinstance(thick, Above)
    # In the same memory, and neither disturbs the other.
    assert thick.upper is ridge.factor
    np.testing.assert_array_equal(np.tril(ridge.factor), factor)
    z, K = rng.normal(size=(n, 3)), kernel(v, v)
    for each in (thick, Thick(kernel.triangle(v))):
        np.testing.assert_allclose(each.times(z), K @ z, atol=1e-10)
        assert each.times(np.empty((n, 0))).shape == (n, 0)
    alone = Ridge.on(kernel, other, 1e-4)
    np.testing.assert_array_equal(ridge.solve(z), alone.solve(z))
    np.testing.assert_array_equal(ridge.explained(z), alone.explained(z))


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
    assert isinstance(thick.systems.covariates, Above)
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


def peak_matrices(method, n, rng):
    history = {name: rng.normal(size=n) for name in WIDE.variables}
    NestedRehearsal().fit(WIDE, {name: v[:50] for name, v in history.items()})
    tracemalloc.start()
    systems = method.fit(WIDE, history).systems
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert isinstance(systems, Exact)
    assert isinstance(systems.covariates, Above)
    assert isinstance(systems.outer, Ridge)
    assert isinstance(systems.unaltered, Ridge)
    return systems, peak / (8 * n**2)


def test_an_exact_fit_takes_little_more_than_two_matrices(rng):
    systems, peak = peak_matrices(NestedRehearsal(), 2000, rng)
    assert systems.unaltered is systems.outer
    assert peak <= 2.3


def test_widths_from_the_records_take_little_more_than_three(rng, monkeypatch):
    # Few records choose widths as wide as this noise deserves; thin forms aside.
    monkeypatch.setattr("forestall.leaving.RECORDS", 60)
    monkeypatch.setattr("forestall.thin.MOST", 1)
    systems, peak = peak_matrices(NestedRehearsal(bandwidth="auto"), 2000, rng)
    assert systems.unaltered is not systems.outer
    assert peak <= 3.3


@pytest.mark.parametrize("bandwidth", [0.5, "auto"])
@pytest.mark.parametrize("most", [1, 400])
def test_a_block_solves_each_system_once(bandwidth, most, monkeypatch):
    monkeypatch.setattr("forestall.leaving.RECORDS", 60)
    problem, history = WORLDS["lending"]
    records = history(300)
    monkeypatch.setattr("forestall.thin.Thin.of", thin_covariates(most))
    policy = NestedRehearsal(bandwidth=bandwidth).fit(problem, records)
    systems, solved = policy.systems, []
    # What is solved once and for all is, by the first decision.
    policy.recommend({name: records[name][:1] for name in problem.context})
    monkeypatch.setattr(Ridge, "solve", noting(Ridge.solve, solved))
    monkeypatch.setattr(Ridge, "explained", noting(Ridge.explained, solved))
    policy.recommend({name: records[name][:20] for name in problem.context})
    each = {id(ridge) for ridge in (systems.inner, systems.outer, systems.unaltered)}
    if isinstance(systems.covariates, Thin) and bandwidth == "auto":
        each -= {id(systems.outer)}
    assert len(solved) == len(each)
    assert set(solved) == each


def thin_covariates(most):
    """Let one-dimensional points be thin, where that is asked for; contexts never."""
    found = Thin.of

    def of(kernel, v):
        return found(kernel, v) if most > 1 and v.shape[1] == 1 else None

    return of


def noting(method, solved):
    def noted(self, b):
        solved.append(id(self))
        return method(self, b)

    return noted


@pytest.mark.parametrize("bandwidth", [0.5, "auto"])
def test_what_is_solved_beforehand_is_what_each_block_would_solve(
    bandwidth, monkeypatch
):
    monkeypatch.setattr("forestall.leaving.RECORDS", 60)
    monkeypatch.setattr("forestall.thin.Thin.of", thin_covariates(400))
    problem, history = WORLDS["lending"]
    records = history(300)
    policy = NestedRehearsal(bandwidth=bandwidth).fit(problem, records)
    x = policy.data.x[:20]
    systems, rows = policy.systems, policy.setting.k_e(policy.data.x, x)
    reach = systems._adjusted(rows)
    gamma = systems.outer.solve(rows)
    weights = systems.covariates.times(gamma)
    prior = np.einsum("nq,nq->q", gamma, weights) + unknown(gamma.sum(axis=0))
    np.testing.assert_allclose(reach.weights, weights, atol=1e-10)
    np.testing.assert_allclose(reach.prior, prior, atol=1e-10)


def test_too_many_records_are_told_of_low_rank():
    with pytest.raises(FitError, match=r"GB. Use approximation=Nystrom\(rank=500\)"):
        check_size(1_000_000)
    with pytest.warns(ForestallWarning, match=r"use approximation=Nystrom\(rank=500\)"):
        check_size(10_000)
