import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from forestall.ascent import Ascent, top_starts
from forestall.errors import FitError, SpecError
from forestall.expansion import Basis, Expansion
from forestall.kernels import Gaussian, gram, median_bandwidth, quick_gram
from forestall.ridge import Ridge

REALS = st.floats(-3, 3, allow_subnormal=False)


def slow_gaussian(v, c, sigma):
    return np.array(
        [[np.exp(-0.5 * (((p - q) / sigma) ** 2).sum()) for q in c] for p in v]
    )


@given(v=arrays(float, (4, 2), elements=REALS), c=arrays(float, (5, 2), elements=REALS))
def test_kernel_rows_equal_the_definition(v, c):
    sigma = np.array([0.7, 2.0])
    np.testing.assert_allclose(
        Gaussian(sigma)(v, c), slow_gaussian(v, c, sigma), atol=1e-12
    )


@given(v=arrays(float, (4, 3), elements=REALS))
def test_a_product_of_kernels_is_the_kernel_of_the_joint_block(v):
    left, right = Gaussian(np.array([0.5])), Gaussian(np.array([1.5, 2.0]))
    product = left(v[:, :1], v[:, :1]) * right(v[:, 1:], v[:, 1:])
    np.testing.assert_allclose((left * right)(v, v), product, atol=1e-12)


def test_kernel_of_no_columns_is_one():
    empty = np.empty((3, 0))
    assert np.array_equal(Gaussian(np.empty(0))(empty, empty), np.ones((3, 3)))


def test_kernel_rows_keep_their_digits_far_from_the_origin(rng):
    v = rng.normal(size=(5, 2))
    near, far = Gaussian(np.ones(2))(v, v), Gaussian(np.ones(2))(v + 1e6, v + 1e6)
    np.testing.assert_allclose(near, far, atol=1e-8)


def test_median_bandwidth_is_the_median_distance(rng):
    v = rng.normal(size=(30, 3))
    distances = [np.linalg.norm(v[i] - v[j]) for i in range(30) for j in range(i)]
    np.testing.assert_allclose(median_bandwidth(v, 2.0), 2 * np.median(distances))


def test_median_bandwidth_of_a_rare_category_is_not_zero():
    v = np.eye(2)[np.array([0] * 29 + [1])]
    assert 0 < median_bandwidth(v, 1.0)[0] < np.sqrt(2)


@pytest.mark.parametrize("v", [np.zeros((5, 2)), np.empty((5, 0)), np.ones((1, 2))])
def test_median_bandwidth_of_equal_records_is_one(v):
    assert np.array_equal(median_bandwidth(v, 1.0), np.ones(v.shape[1]))


def test_ridge_solves_the_penalised_system(rng):
    v = rng.normal(size=(20, 2))
    K = Gaussian(np.ones(2))(v, v)
    b, penalty = rng.normal(size=(20, 3)), 0.01
    ridge = Ridge.of(K.copy(), penalty)
    inverse = np.linalg.inv(K + 20 * penalty * np.eye(20))
    np.testing.assert_allclose(ridge.solve(b), inverse @ b, atol=1e-9)
    np.testing.assert_allclose(
        ridge.explained(b), np.einsum("nq,nm,mq->q", b, inverse, b), atol=1e-9
    )


def test_ridge_refuses_what_is_no_kernel_matrix():
    with pytest.raises(FitError, match="Raise the penalty"):
        Ridge.of(-np.eye(3), 1e-6)


@pytest.fixture
def expansion(rng):
    kernel = Gaussian(np.array([0.8, 1.4]))
    return Expansion(kernel, rng.normal(size=(50, 2)), rng.normal(size=(3, 50)))


def test_expansion_equals_the_sum_it_stands_for(expansion, rng):
    a = rng.normal(size=(3, 4, 2))
    for q in range(3):
        rows = slow_gaussian(a[q], expansion.centres, expansion.kernel.bandwidth)
        np.testing.assert_allclose(
            expansion(a)[q], rows @ expansion.weights[q], atol=1e-10
        )


def test_expansion_gradient_matches_finite_differences(expansion, rng):
    a = rng.normal(size=(3, 4, 2))
    slopes = expansion.gradient(a)
    for j, step in enumerate(1e-6 * np.eye(2)):
        difference = (expansion(a + step) - expansion(a - step)) / 2e-6
        np.testing.assert_allclose(slopes[:, :, j], difference, atol=1e-6)


@pytest.mark.parametrize("d", [1, 2])
def test_a_spanning_basis_changes_nothing_but_the_cost(rng, d):
    actions = rng.normal(size=(1000, d))
    kernel = Gaussian(median_bandwidth(actions, 1.0))
    probes = rng.uniform(-3, 3, size=(256, d))
    basis = Basis.spanning(kernel, actions, probes)
    assert basis is not None
    assert len(basis.centres) <= 250
    weights = rng.normal(size=(2, 1000))
    whole, few = Expansion(kernel, actions, weights), basis.expand(weights)
    a = rng.uniform(-3, 3, size=(2, 50, d))
    np.testing.assert_allclose(few(a), whole(a), atol=1e-8)
    np.testing.assert_allclose(few.gradient(a), whole.gradient(a), atol=1e-7)


def test_actions_that_no_few_span_keep_all_centres(rng):
    actions = rng.normal(size=(200, 6))
    kernel = Gaussian(np.full(6, 0.3))
    assert Basis.spanning(kernel, actions, actions[:5]) is None


def test_ascent_stays_in_the_box_and_never_ends_below_its_starts(expansion, rng):
    starts = rng.normal(size=(3, 7, 2)) * 3
    lower, upper = np.array([-1.0, -0.5]), np.array([0.5, 2.0])
    best = Ascent(step_size=5.0, n_steps=20).climb(expansion, starts, lower, upper)
    assert (best >= lower).all()
    assert (best <= upper).all()
    projected = expansion(np.clip(starts, lower, upper))
    assert (expansion(best[:, None])[:, 0] >= projected.max(axis=1) - 1e-12).all()


def test_more_steps_never_end_lower(expansion, rng):
    starts = rng.normal(size=(3, 7, 2))
    ends = [
        expansion(
            Ascent(n_steps=t).climb(expansion, starts, -np.ones(2), np.ones(2))[:, None]
        )
        for t in (1, 5, 25)
    ]
    assert (np.diff(np.stack(ends), axis=0) >= 0).all()


def test_giving_up_laggards_ends_as_high_where_the_best_start_leads(expansion):
    peak = expansion.centres[expansion.weights.argmax(axis=1)]
    starts = np.concatenate([peak[:, None], peak[:, None] + 50.0], axis=1)
    wide = np.full(2, 100.0)
    ends = [
        Ascent(halve_every=h).climb(expansion, starts, -wide, wide) for h in (None, 5)
    ]
    np.testing.assert_allclose(ends[0], ends[1], atol=1e-12)


def test_ascent_finds_the_top_of_a_single_bump():
    bump = Expansion(Gaussian(np.ones(1)), np.array([[0.3]]), np.array([[1.0]]))
    ascent = Ascent(n_steps=200, step_size=0.5)
    best = ascent.climb(bump, np.array([[[-1.0]]]), -np.ones(1), np.ones(1))
    assert best[0, 0] == pytest.approx(0.3, abs=1e-6)


def test_starts_are_the_records_of_largest_positive_weight(rng):
    omega, actions = rng.normal(size=(4, 30)), rng.normal(size=(30, 2))
    starts = top_starts(omega, actions, 5)
    for q in range(4):
        order = np.argsort(-omega[q])[:5]
        assert (omega[q][order] > 0).all()
        assert np.array_equal(starts[q], actions[order])


def test_without_positive_weights_the_least_negative_record_is_the_start():
    omega, actions = np.array([[-3.0, -1.0, -2.0]]), np.array([[0.0], [1.0], [2.0]])
    assert np.array_equal(top_starts(omega, actions, 2), [[[1.0], [1.0]]])


def test_fewer_records_than_starts_are_fine():
    omega, actions = np.array([[2.0, 1.0]]), np.array([[0.0], [1.0]])
    assert np.array_equal(top_starts(omega, actions, 20), [[[0.0], [1.0]]])


@pytest.mark.parametrize("name", ["n_starts", "n_steps", "step_size", "halve_every"])
def test_an_ascent_without_steps_is_refused(name):
    value = 0.0 if name == "step_size" else 0
    with pytest.raises(SpecError, match=f"Expected {name} above zero"):
        Ascent(**{name: value})


@pytest.mark.parametrize("absurd", [1e7, 1e10, 1e200])
def test_an_absurd_point_costs_the_others_no_digits(absurd):
    rng = np.random.default_rng(0)
    records, contexts = rng.normal(size=(50, 3)), rng.normal(size=(4, 3))
    beside = contexts.copy()
    beside[1] = absurd * np.array([1.0, -1.0, 1.0])
    whole, mixed = gram(records, contexts), gram(records, beside)
    others = [0, 2, 3]
    np.testing.assert_allclose(mixed[:, others], whole[:, others], rtol=1e-12)
    assert np.all(mixed[:, 1] == 0.0)
    np.testing.assert_allclose(gram(beside, records), mixed.T, rtol=1e-9)
    np.testing.assert_allclose(gram(beside[1:2], records), mixed[:, 1:2].T)


def test_quick_exponentials_have_seven_digits():
    rng = np.random.default_rng(0)
    v, c = rng.normal(size=(70, 3)), rng.normal(size=(40, 3))
    np.testing.assert_allclose(quick_gram(v, c), gram(v, c), rtol=2e-6)


def test_many_records_of_nothing_have_a_width():
    assert median_bandwidth(np.empty((5000, 0)), 1.0).shape == (0,)
