"""Selection, mechanisms and laws, each against what it stands for."""

from dataclasses import replace

import numpy as np
import pytest
from scipy.optimize import check_grad
from scipy.special import ndtr
from scipy.stats import kstest

from forestall import mechanism as home
from forestall.draft import Draft
from forestall.equation import ABSURD, Usual
from forestall.hills import COARSE, FAR, FINE
from forestall.influence import STRAY, Influence, tamed
from forestall.kernels import gram
from forestall.law import Law, ridge_if_it_helps
from forestall.likeliest import Selection, guessed, refined
from forestall.likelihood import NOTHING, Likelihood
from forestall.loudness import Loudness
from forestall.lowrank import Nystrom, RandomFourier
from forestall.polynomials import polynomials
from forestall.select import Choice
from forestall.spanning import trends
from worlds import mechanism_of

DRAWS = np.arange(65)


def standardised(v):
    return (v - v.mean()) / v.std()


def choose(z, y, groups):
    return refined(guessed(z, y, groups), z, y, groups).choices[0]


@pytest.fixture(scope="module")
def curved():
    rng = np.random.default_rng(0)
    z = rng.normal(size=(500, 3))
    truth = np.sin(2 * z[:, 0]) + z[:, 1] ** 2
    return z, truth, truth + 0.3 * rng.normal(size=500)


@pytest.fixture(scope="module")
def fitted(curved):
    z, _, v = curved
    choice = choose(z, standardised(v), np.arange(3))
    return mechanism_of(z, v, choice, 64, np.random.default_rng(1))


@pytest.fixture
def all_digits(monkeypatch):
    """The algebra is held to all digits; that seven do in use has its own test."""
    with_all_digits(monkeypatch)


def with_all_digits(monkeypatch):
    monkeypatch.setattr(home, "quick_gram", gram)
    monkeypatch.setattr(home, "single", lambda v: v)
    monkeypatch.setattr(home, "trends_sum", slow_sum)


def slow_sum(z, choice, weights):
    return trends(z, choice, len(weights)) @ weights


def along(p, q):
    """The kernel of the hills along one input, one bump after the other."""
    tops = COARSE.width * np.arange(-4, 5)
    return sum(
        np.exp(-0.5 * ((p - top) / COARSE.width) ** 2)
        * np.exp(-0.5 * ((q - top) / COARSE.width) ** 2)
        for top in tops
    )


def test_the_likelihood_is_that_of_a_gaussian_process(rng):
    z, y = rng.normal(size=(30, 2)), rng.normal(size=30)
    theta = np.array([-2.0, -0.5, -1.0, -0.3, 0.4, 0.2, 0.5, -1.5, -0.7])
    quadratic, smooth, noise = np.exp(theta[:3])
    slopes, widths, heights = np.split(np.exp(theta[3:]), 3)
    K = np.array(
        [
            [
                1
                + (slopes * p) @ q
                + quadratic * (p @ q) ** 2
                + heights @ along(p, q)
                + smooth * np.exp(-0.5 * (((p - q) / widths) ** 2).sum())
                for q in z
            ]
            for p in z
        ]
    ) + noise * np.eye(30)
    slow = 0.5 * y @ np.linalg.inv(K) @ y + 0.5 * np.linalg.slogdet(K)[1]
    likelihood = Likelihood(z, y, np.array([0, 1]))
    other = theta + 0.1
    without_beliefs = [likelihood.fit(t)[0] for t in (theta, other)]
    assert without_beliefs[0] == pytest.approx(slow, abs=1e-8)
    assert without_beliefs[1] != pytest.approx(slow, abs=1e-3)


def test_the_gradient_of_the_likelihood_is_right(rng):
    z, y = rng.normal(size=(40, 4)), rng.normal(size=40)
    z[:, 3] = z[:, 3] > 0
    likelihood = Likelihood(z, y, np.array([0, 1, 1, 2]))
    assert likelihood.curved.tolist() == [0, 1, 2]
    theta = np.array([-2.0, -0.5, -1, -0.3, 0.4, 0.2, 0.5, 0.1, 0.3, -1.5, -0.7, -1])
    error = check_grad(lambda t: likelihood(t)[0], lambda t: likelihood(t)[1], theta)
    assert error < 1e-4


@pytest.mark.parametrize("even", [True, False])
def test_without_bends_sums_over_records_give_the_same(rng, even):
    z, y = rng.normal(size=(90, 3)), rng.normal(size=90)
    z[:, 2] = z[:, 2] > 0
    loudness = np.ones(90) if even else rng.uniform(0.2, 5.0, size=90)
    likelihood = Likelihood(z, y, np.array([0, 0, 1]), loudness)
    assert likelihood.unbent is not None
    theta = np.array([-2.0, NOTHING, -1, -0.3, 0.4, 0.5, 0.1, -1.5, -0.7])
    value, slopes = likelihood(theta)
    assert likelihood.value(theta) == pytest.approx(value)
    vars(likelihood)["unbent"] = None
    slow, slow_slopes = likelihood(theta)
    assert value == pytest.approx(slow, abs=1e-9)
    np.testing.assert_allclose(slopes, slow_slopes, atol=1e-9)
    assert likelihood.value(theta) == pytest.approx(value)


def test_what_inputs_do_together_is_a_bend_and_an_irrelevant_one_is_wide(rng):
    z = rng.normal(size=(500, 3))
    v = np.sin(2 * z[:, 0] * z[:, 1]) + 0.2 * rng.normal(size=500)
    choice = choose(z, standardised(v), np.arange(3))
    assert choice.smooth > 0.1
    assert choice.widths[2] > 4 * max(choice.widths[:2])


def test_hills_leave_less_to_learn_where_effects_add_up(rng):
    z, points = rng.normal(size=(400, 6)), rng.normal(size=(400, 6))

    def truth(z):
        return np.sin(1.5 * z).sum(axis=1)

    v = truth(z) + 0.5 * rng.normal(size=400)
    with_hills = choose(z, standardised(v), np.arange(6))
    likelihood = Likelihood(z, standardised(v), np.arange(6))
    # No column is curved, so none has hills.
    vars(likelihood)["curved"] = np.empty(0, dtype=int)
    selection = Selection(likelihood)
    without = selection.alternatives([selection.maximised()]).choices[0]

    def off(choice):
        mechanism = mechanism_of(z, v, choice, 0, np.random.default_rng(0))
        return np.mean((mechanism(points, DRAWS[:1])[:, 0] - truth(points)) ** 2)

    assert off(with_hills) < 0.5 * off(without)


def test_hills_end_and_never_overflow():
    far = np.array([[np.finfo(float).max], [-1e300], [FAR]])
    for kind in (np.float32, np.float64):
        z = np.clip(far, -1e30, 1e30).astype(kind)
        assert max(hills(z).max() for hills in (COARSE, FINE)) < 1e-9
    assert max(hills(far).max() for hills in (COARSE, FINE)) < 1e-9


@pytest.mark.filterwarnings("error")
def test_absurd_inputs_overflow_nowhere(fitted):
    bent = mechanism_of(
        np.zeros((20, 3)), np.arange(20.0), CHOICE, 2, np.random.default_rng(0)
    )
    for mechanism in (fitted, bent):
        z = np.full((4, 3), [[1e3], [-1e20], [1e49], [1e60]])
        assert np.isfinite(mechanism(z, DRAWS[:2])[:2]).all()
        assert np.isfinite(mechanism.gradient(z[:2], 1)).all()


def test_a_category_has_no_hills(rng):
    z = np.column_stack([rng.normal(size=300), rng.integers(0, 2, size=300)])
    v = 3 * z[:, 1] + 0.1 * rng.normal(size=300)
    assert 1 not in choose(z, standardised(v), np.arange(2)).hilly


def test_a_linear_world_needs_no_bends(rng):
    z = rng.normal(size=(400, 3))
    v = z @ np.array([1.0, -2.0, 0.5]) + 0.3 * rng.normal(size=400)
    choice = choose(z, standardised(v), np.arange(3))
    assert choice.smooth < 1e-3
    assert choice.quadratic < 1e-3
    assert not len(choice.hilly)
    assert choice.noise == pytest.approx(0.09 / v.var(), rel=0.2)


def test_a_slope_that_does_not_matter_is_let_go(rng):
    z = rng.normal(size=(400, 3))
    # The first input is nearly a copy of the second; only the second matters.
    z[:, 0] = z[:, 1] + 0.1 * z[:, 0]
    v = z[:, 1] + 0.3 * rng.normal(size=400)
    choice = choose(z, standardised(v), np.arange(3))
    assert choice.linear[1] > 0.1
    assert choice.linear[0] < 0.3 * choice.linear[1]
    assert choice.linear[2] < 1e-3


def test_selection_is_deterministic(curved):
    z, _, v = curved
    first, second = (choose(z, standardised(v), np.arange(3)) for _ in range(2))
    assert np.array_equal(first.widths, second.widths)


def test_the_mean_is_near_the_truth_and_the_draws_cover_it(fitted):
    rng = np.random.default_rng(7)
    z = rng.normal(size=(400, 3)) * 0.8
    truth = np.sin(2 * z[:, 0]) + z[:, 1] ** 2
    values = fitted(z, DRAWS)
    assert np.sqrt(np.mean((values[:, 0] - truth) ** 2)) < 0.15
    lower, upper = np.quantile(values[:, 1:], [0.05, 0.95], axis=1)
    assert 0.85 <= np.mean((lower <= truth) & (truth <= upper)) <= 1.0


def test_the_mean_equals_the_exact_gaussian_process(curved):
    z, _, v = curved
    slopes = np.array([0.5, 0.5, 0.1])
    choice = Choice(slopes, 0.1, 0.8, 0.05, np.array([3.0, 3.0, 6.0]))
    mechanism = mechanism_of(z, v, choice, 4, np.random.default_rng(0))

    def kernel(p, q):
        dot = p @ q.T
        squares = (((p[:, None] - q[None]) / choice.widths) ** 2).sum(axis=2)
        trend = 1 + (slopes * p) @ q.T + choice.quadratic * dot**2
        return trend + choice.smooth * np.exp(-0.5 * squares)

    y = (v - v.mean()) / v.std()
    alpha = np.linalg.solve(kernel(z, z) + choice.noise * np.eye(len(z)), y)
    points = np.random.default_rng(3).uniform(-1.5, 1.5, size=(50, 3))
    exact = v.mean() + v.std() * kernel(points, z) @ alpha
    np.testing.assert_allclose(mechanism(points, DRAWS[:1])[:, 0], exact, atol=0.06)


CHOICE = Choice(
    np.array([0.5, 0.5, 0.1]),
    0.1,
    0.8,
    0.05,
    np.array([3.0, 3.0, 6.0]),
    np.array([0, 2]),
    np.array([0.3, 0.1]),
)


def covariance(p, q):
    squares = (((p[:, None] - q[None]) / CHOICE.widths) ** 2).sum(axis=2)
    trend = 1 + (CHOICE.linear * p) @ q.T + CHOICE.quadratic * (p @ q.T) ** 2
    for column, height in zip(CHOICE.hilly, CHOICE.hills, strict=True):
        trend += height * along(p[:, column][:, None], q[:, column])
    return trend + CHOICE.smooth * np.exp(-0.5 * squares)


def exact_mean(z, v, points, noise):
    y = (v - v.mean()) / v.std()
    K = covariance(z, z) + np.diag(noise)
    return v.mean() + v.std() * covariance(points, z) @ np.linalg.solve(K, y)


def drafted(z, v, approximation, n_draws=4):
    rng = np.random.default_rng(0)
    return Draft.of(z, v, CHOICE, n_draws, rng, approximation)


@pytest.mark.parametrize("landmarks", ["uniform", "kmeans", "leverage"])
@pytest.mark.usefixtures("all_digits")
def test_at_full_rank_landmarks_give_the_exact_mean(curved, landmarks):
    z, v = curved[0][:200], curved[2][:200]
    draft = drafted(z, v, Nystrom(rank=200, landmarks=landmarks))
    mechanism = draft.settled(draft.count(z, v), z, v)
    points = np.random.default_rng(3).uniform(-1.5, 1.5, size=(50, 3))
    exact = exact_mean(z, v, points, np.full(200, CHOICE.noise))
    np.testing.assert_allclose(mechanism(points, DRAWS[:1])[:, 0], exact, atol=1e-5)


@pytest.mark.usefixtures("all_digits")
def test_errors_fall_with_the_rank_and_with_more_waves(curved):
    z, _, v = curved
    exact = exact_mean(z, v, z[:100], np.full(len(z), CHOICE.noise))

    def off(approximation):
        draft = drafted(z, v, approximation)
        mechanism = draft.settled(draft.count(z, v), z, v)
        return np.abs(mechanism(z[:100], DRAWS[:1])[:, 0] - exact).mean()

    landmarks = [off(Nystrom(rank=rank)) for rank in (3, 20, 120)]
    assert landmarks[0] > landmarks[1] > landmarks[2]
    waves = [off(RandomFourier(n_features=n)) for n in (4, 40, 2000)]
    assert waves[0] > waves[1] > waves[2]
    assert landmarks[2] < 1e-3
    assert waves[2] < 0.05


@pytest.mark.parametrize("approximation", [None, RandomFourier(n_features=200)])
def test_draws_have_the_variance_of_the_gaussian_process(curved, approximation):
    z, v = curved[0][:150], curved[2][:150]
    draft = drafted(z, v, approximation, n_draws=600)
    mechanism = draft.settled(draft.count(z, v), z, v)
    points = np.random.default_rng(3).uniform(-2.0, 2.0, size=(30, 3))
    K = covariance(z, z) + CHOICE.noise * np.eye(len(z))
    half = covariance(points, z)
    left = covariance(points, points) - half @ np.linalg.solve(K, half.T)
    exact = v.std() * np.sqrt(np.diag(left))
    told = mechanism(points, np.arange(1, 601)).std(axis=1)
    np.testing.assert_allclose(told, exact, rtol=0.35)
    assert np.mean(told / exact) == pytest.approx(1.0, abs=0.1)


def test_a_low_rank_does_not_make_the_draws_surer(curved):
    z, _, v = curved
    points = np.random.default_rng(3).uniform(-2.0, 2.0, size=(60, 3))

    def spread(rank):
        draft = drafted(z, v, Nystrom(rank=rank), n_draws=200)
        mechanism = draft.settled(draft.count(z, v), z, v)
        return mechanism(points, np.arange(1, 201)).std(axis=1).mean()

    assert spread(5) > 0.95 * spread(150)


def test_the_sums_of_batches_add_up(curved):
    z, _, v = curved
    draft = drafted(z, v, None)
    whole, parts = draft.count(z, v), draft.count(z[:123], v[:123])
    parts += draft.count(z[123:], v[123:])
    assert whole.n == parts.n == len(v)
    for name in ("squares", "target", "waves"):
        one, two = getattr(whole, name), getattr(parts, name)
        np.testing.assert_allclose(one, two, atol=1e-10 * np.abs(one).max())


@pytest.mark.usefixtures("all_digits")
def test_loud_records_count_as_little_as_their_noise_says(curved):
    z, v = curved[0][:200], curved[2][:200]
    noise = CHOICE.noise * np.where(z[:, 0] > 0, 8.0, 0.2)
    draft = drafted(z, v, Nystrom(rank=200))
    loudness = noise * v.std() ** 2
    moments = draft.count(z, v, loudness)
    mechanism = draft.settled(moments, z, v, loudness)
    points = np.random.default_rng(3).uniform(-1.5, 1.5, size=(50, 3))
    exact = exact_mean(z, v, points, noise)
    np.testing.assert_allclose(mechanism(points, DRAWS[:1])[:, 0], exact, atol=1e-5)


@pytest.mark.usefixtures("all_digits")
def test_waves_differentiate_too(curved, rng):
    z, _, v = curved
    draft = drafted(z, v, RandomFourier(n_features=100))
    mechanism = draft.settled(draft.count(z, v), z, v)
    slopes = mechanism.gradient(z[:20], 2)
    for j, step in enumerate(1e-5 * np.eye(3)):
        ends = [mechanism(z[:20] + s * step, np.array([2]))[:, 0] for s in (1, -1)]
        np.testing.assert_allclose(slopes[:, j], (ends[0] - ends[1]) / 2e-5, atol=1e-5)


def test_seven_digits_are_enough_for_every_draw(fitted, monkeypatch, rng):
    z = rng.normal(size=(500, 3))
    quick, slope = fitted(z, DRAWS), fitted.gradient(z, 5)
    with_all_digits(monkeypatch)
    np.testing.assert_allclose(quick, fitted(z, DRAWS), atol=1e-3)
    np.testing.assert_allclose(slope, fitted.gradient(z, 5), atol=1e-2)


def looked_at(z, v):
    choice = choose(z, standardised(v), np.arange(z.shape[1]))
    return mechanism_of(z, v, choice, 0, np.random.default_rng(1))


def usual_by(z, v):
    """What is usual by a first look at some records."""
    first = looked_at(z, v)
    return Usual.of(first, z, v, first.residuals)


def test_heavy_tails_move_a_calmed_mean_less(rng):
    z = rng.normal(size=(600, 2))
    truth = np.sin(2 * z[:, 0]) + z[:, 1]
    v = truth + 0.3 * rng.standard_t(1.5, size=600)
    v = np.clip(v, *tamed(v, ABSURD))
    first = looked_at(z, v)
    again = looked_at(z, Usual.of(first, z, v, first.residuals).calmed(z, v))

    def off(mechanism):
        return np.abs(mechanism(z, DRAWS[:1])[:, 0] - truth).mean()

    assert off(again) < 0.8 * off(first)


def test_calming_leaves_all_that_is_usual_alone(rng):
    z = rng.normal(size=(600, 2))
    v = z[:, 0] + 0.1 * rng.normal(size=600)
    nearest = np.argsort((z**2).sum(axis=1))[0]
    v[nearest] += 5.0
    first = looked_at(z, v)
    calm = Usual.of(first, z, v, first.residuals).calmed(z, v)
    assert calm[nearest] < v[nearest] - 4.0
    spread = np.subtract(*np.quantile(first.residuals, [0.75, 0.25]))
    usual = np.abs(v - first(z, DRAWS[:1])[:, 0]) < 0.9 * STRAY * spread
    np.testing.assert_allclose(calm[usual], v[usual], atol=1e-9)
    assert usual.mean() > 0.95


def test_calming_leaves_the_outskirts_alone_where_the_first_look_may_be_wrong(rng):
    z = rng.normal(size=(600, 2))
    v = z[:, 0] + 0.1 * rng.normal(size=600)
    first = looked_at(z, v)
    # A step that the look does not know of, where few records are.
    beyond = z[:, 0] > 1.8
    v[beyond] += 3.0
    residuals = v - first(z, DRAWS[:1])[:, 0]
    calm = Usual.of(first, z, v, residuals).calmed(z, v)
    assert 10 < beyond.sum() < 40
    np.testing.assert_array_equal(calm[beyond], v[beyond])


def test_calming_takes_as_many_where_records_are_loud_as_where_they_are_not(rng):
    z = rng.uniform(-1, 1, size=(4000, 2))
    truth, loud = z[:, 1], np.exp(1.2 * z[:, 0])
    # Skewed: what is pulled in moves the mean, and must do so alike everywhere.
    v = truth + 0.3 * loud * (rng.exponential(size=4000) - 1.0)
    first, residuals = looked_at(z, v), v - truth
    middle = np.sum(z**2, axis=1) <= 1.0

    def loud_by(spread):
        return 1.0 if spread is None else spread(z, 0)

    def pulled(spread, side):
        usual = Usual.of(first, z, v, residuals, spread)
        usual = replace(usual, influence=Influence.clipped(residuals / loud_by(spread)))
        rows = middle & (side * z[:, 0] > 0.3)
        return np.mean(((v - usual.calmed(z, v)) / loud)[rows])

    spread = Loudness.of(z, residuals, 0, rng)
    assert pulled(None, 1) > 5 * pulled(None, -1)
    assert pulled(spread, 1) == pytest.approx(pulled(spread, -1), rel=0.5)


def test_a_value_far_from_all_others_is_believed_where_its_inputs_tell_of_it(rng):
    z = rng.standard_t(4, size=(800, 2))
    v = z[:, 0] * z[:, 1] + 0.1 * rng.normal(size=800)
    low, high = ends = tamed(v, ABSURD)
    truth, wrong = v.copy(), np.argsort((z**2).sum(axis=1))[100:103]
    v[wrong] = [50.0, -50.0, 1e6]
    sane = (low <= v) & (v <= high)
    assert np.sum(~sane) > 6
    usual = usual_by(z[sane], v[sane])
    assert usual.tells(z, v, ends)
    believed = usual.believable(z, v, ends)
    others = np.setdiff1d(np.arange(800), wrong)
    np.testing.assert_allclose(believed[others], truth[others], atol=0.5)
    assert np.abs(believed[wrong]).max() <= max(-low, high) + 2.0


def test_inputs_do_not_tell_of_heavy_tails(rng):
    z = rng.normal(size=(800, 2))
    v = z[:, 0] + 0.3 * rng.standard_t(1.5, size=800)
    low, high = ends = tamed(v, ABSURD)
    sane = (low <= v) & (v <= high)
    assert not sane.all()
    usual = usual_by(z[sane], v[sane])
    assert not usual.tells(z, v, ends)
    assert usual.tells(z[sane], v[sane], ends)
    believed = usual.believable(z, v, ends)
    assert low <= believed.min()
    assert believed.max() <= high


def test_draws_spread_out_away_from_the_records(fitted):
    near, far = np.zeros((1, 3)), np.full((1, 3), 6.0)
    spread = [fitted(z, DRAWS[1:]).std() for z in (near, far)]
    assert spread[1] > 5 * spread[0]


def test_a_trend_continues_where_there_are_no_records(rng):
    z = rng.normal(size=(400, 1))
    v = 2 * z[:, 0] + 0.1 * rng.normal(size=400)
    choice = choose(z, standardised(v), np.array([0]))
    mechanism = mechanism_of(z, v, choice, 8, rng)
    assert mechanism(np.array([[8.0]]), DRAWS[:1])[0, 0] == pytest.approx(16, abs=1.5)


@pytest.mark.parametrize("draw", [0, 5])
@pytest.mark.usefixtures("all_digits")
def test_a_mechanism_differentiates_its_draws(fitted, draw, rng):
    z = rng.normal(size=(20, 3))
    slopes = fitted.gradient(z, draw)
    for j, step in enumerate(1e-5 * np.eye(3)):
        ends = [fitted(z + s * step, np.array([draw]))[:, 0] for s in (1, -1)]
        np.testing.assert_allclose(slopes[:, j], (ends[0] - ends[1]) / 2e-5, atol=1e-5)


def test_residuals_have_the_variance_of_the_noise(fitted):
    assert fitted.residuals.std() == pytest.approx(0.3, rel=0.1)


def test_polynomials_span_the_square_of_the_product(rng):
    z = rng.normal(size=(6, 3))
    phi = polynomials(z, 2)[:, 4:]
    np.testing.assert_allclose(phi @ phi.T, (z @ z.T) ** 2, atol=1e-10)


def pit(law, z, residuals):
    return law.at(z, 0).cdf(residuals)


LAWS = {
    "plain": lambda rng, z: rng.normal(size=len(z)),
    "skewed": lambda rng, z: rng.exponential(size=len(z)) - 1,
    "loud": lambda rng, z: np.exp(0.8 * z[:, 0]) * rng.normal(size=len(z)),
    "two modes": lambda rng, z: (
        np.where(rng.random(len(z)) < 1 / (1 + np.exp(-3 * z[:, 1])), 1.0, -1.0)
        + 0.2 * rng.normal(size=len(z))
    ),
}


@pytest.mark.parametrize("kind", LAWS)
def test_fresh_residuals_are_uniform_under_the_learned_law(kind):
    rng = np.random.default_rng(3)
    z, fresh = rng.normal(size=(1000, 2)), rng.normal(size=(1000, 2))
    law = Law.of(z, LAWS[kind](rng, z), 8, rng)
    levels = pit(law, fresh, LAWS[kind](rng, fresh))
    assert kstest(levels, "uniform").statistic < 0.07
    loud = fresh[:, 0] > 0.8
    inside = np.mean((levels[loud] > 0.05) & (levels[loud] < 0.95))
    assert 0.8 < inside < 0.98


def test_a_law_that_does_not_change_is_left_alone():
    rng = np.random.default_rng(5)
    found = 0
    for _ in range(10):
        z = rng.normal(size=(300, 2))
        law = Law.of(z, rng.normal(size=300), 2, rng)
        found += law.spread is not None and np.ptp(law.spread(z, 0)) > 0.5
    assert found <= 2


@pytest.mark.parametrize("kind", LAWS)
def test_quantiles_and_shares_are_inverse(kind, rng):
    z = rng.normal(size=(400, 2))
    law = Law.of(z, LAWS[kind](rng, z), 4, rng).at(z[:50], 2)
    u = rng.uniform(0.05, 0.95, 50)
    np.testing.assert_allclose(law.cdf(law.quantile(u)), u, atol=0.02)
    t = law.quantile(u)
    assert (law.density(t) >= 0).all()
    assert (law.cdf(t + 0.1) >= law.cdf(t)).all()


def test_away_from_the_records_the_law_no_longer_changes(rng):
    z = rng.normal(size=(500, 2))
    law = Law.of(z, LAWS["loud"](rng, z), 2, rng)
    far = law.at(np.array([[10.0, 10.0], [50.0, 50.0]]), 0)
    assert far.spread[0] == pytest.approx(far.spread[1])
    assert far.spread[0] <= law.at(z, 0).spread.max()
    if far.shares is not None:
        np.testing.assert_allclose(far.shares.values[0], far.shares.values[1])


def test_draws_of_a_law_differ_by_about_as_much_as_resamples_do(rng):
    z = rng.normal(size=(400, 1))
    law = Law.of(z, rng.normal(size=400), 64, rng, local=False)
    drawn = [
        law.at(np.zeros((2, 1)), s).cdf(np.array([-1.0, 0.0])) for s in range(1, 65)
    ]
    # Of resamples whose mean is moved to that of all.
    share, density = ndtr([-1.0, 0.0]), np.exp([-0.5, 0.0]) / np.sqrt(2 * np.pi)
    deviation = np.sqrt(share * (1 - share) - density**2) / np.sqrt(400)
    np.testing.assert_allclose(np.std(drawn, axis=0), deviation, rtol=0.35)


@pytest.mark.parametrize("kind", [*LAWS, "heavy"])
def test_drawn_laws_have_one_middle(kind, rng):
    z = rng.normal(size=(500, 2))
    laws = {**LAWS, "heavy": lambda rng, z: rng.standard_t(1.5, size=len(z))}
    law = Law.of(z, laws[kind](rng, z), 64, rng, local=False)
    low, middle, high = np.interp([0.25, 0.5, 0.75], law.below[:, 0], law.grid)
    reach = STRAY * (high - low)
    near = np.clip(law.grid, middle - reach, middle + reach)
    steps = np.diff(law.below, axis=0, prepend=0.0)
    means = near @ steps
    assert np.abs(means - means[0]).max() < 0.5 * (high - low) / np.sqrt(500)
    quartiles = [np.interp(0.25, below, law.grid) for below in law.below.T]
    assert np.std(quartiles) > 0.2 * (high - low) / np.sqrt(500)


def test_a_ridge_that_does_not_help_is_none(rng):
    Psi = rng.normal(size=(200, 5))
    assert ridge_if_it_helps(Psi, (Psi[:, :1] + 0.1)) is not None
    helped = sum(
        ridge_if_it_helps(Psi, rng.normal(size=(200, 1))) is not None for _ in range(10)
    )
    assert helped < 10
