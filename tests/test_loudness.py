"""Where records are louder is found, with how sure that is, and not invented."""

import numpy as np
import pytest
from scipy.special import expit

from forestall.loudness import Hearing, Loudness


def inputs(n=1_000, d=3, seed=0):
    return np.random.default_rng(seed).normal(size=(n, d))


def louder(z):
    return 0.3 + 1.4 * expit(2.0 * z[:, 0])


def learned(z, residuals, n_draws=0):
    return Loudness.of(z, residuals, n_draws, np.random.default_rng(1))


def log_error(loudness, z, truth, draw=0):
    off = np.log(loudness(z, draw)) - np.log(truth(z))
    return off - off.mean()


@pytest.mark.parametrize("law", ["normal", "exponential", "uniform"])
def test_loudness_is_found_whatever_the_law(law):
    z, rng = inputs(), np.random.default_rng(2)
    noise = {
        "normal": rng.normal,
        "exponential": lambda size: rng.exponential(size=size) - 1.0,
        "uniform": lambda size: rng.uniform(-1.0, 1.0, size),
    }[law](size=len(z))
    found = learned(z, louder(z) * noise)
    assert np.sqrt(np.mean(log_error(found, inputs(seed=3), louder) ** 2)) < 0.15


def test_only_what_matters_is_evaluated():
    z = inputs()
    residuals = louder(z) * np.random.default_rng(2).normal(size=len(z))
    found = learned(z, residuals, n_draws=40)
    owner = found.terms.groups
    s, h = len(found.terms.sloped), len(found.terms.hilly)
    along = np.r_[found.terms.sloped, found.terms.hilly, -1][owner]
    there = found.weights[1:] != 0.0
    assert there[:, along == 0].any(axis=1).all()
    assert there[:, along != 0].mean() < 0.25
    assert owner.max(initial=0) <= s + h


def test_what_two_inputs_do_together_is_found_too():
    def truth(t):
        return np.exp(0.6 * np.sin(1.5 * t[:, 0]) * t[:, 1])

    z = inputs(n=3_000, d=2)
    found = learned(z, truth(z) * np.random.default_rng(2).normal(size=len(z)))
    off = log_error(found, inputs(seed=3, d=2), truth)
    assert np.sqrt(np.mean(off**2)) < 0.6 * np.log(truth(inputs(seed=3, d=2))).std()


def uneven(n, seed):
    """How far the loudness of equal noise seems to vary."""
    z = inputs(n=n, seed=seed)
    found = learned(z, np.random.default_rng(100 + seed).normal(size=n))
    return 0.0 if found is None else np.log(found(z, 0)).std()


def test_equal_noise_is_seldom_called_uneven():
    found = np.array([uneven(1_000, seed) for seed in range(20)])
    assert np.mean(found > 0.05) <= 0.2
    assert np.median(found) < 0.03


def test_draws_are_as_far_apart_as_the_estimate_is_off():
    off, apart = [], []
    at = inputs(n=200, seed=9)
    for seed in range(12):
        z = inputs(seed=50 + seed)
        noise = np.random.default_rng(seed).normal(size=len(z))
        found = learned(z, louder(z) * noise, n_draws=40)
        draws = np.stack([log_error(found, at, louder, k) for k in range(1, 41)])
        off.append(log_error(found, at, louder))
        apart.append(draws.std(axis=0))
    ratio = np.sqrt(np.mean(np.square(off)) / np.mean(np.square(apart)))
    assert 0.6 < ratio < 1.6


def test_beyond_the_usual_it_stays_as_it_is():
    z = inputs()
    found = learned(z, louder(z) * np.random.default_rng(2).normal(size=len(z)))
    far = np.array([[3.0, 0.0, 0.0], [300.0, 0.0, 0.0]])
    near, farther = found(far, 0)
    assert near == pytest.approx(farther, rel=0.02)


def test_residuals_of_one_value_and_variables_without_inputs_have_no_loudness():
    z = inputs(n=50)
    assert learned(z, np.zeros(50)) is None
    assert learned(z[:, :0], np.random.default_rng(0).normal(size=50)) is None


@pytest.mark.parametrize("n", [12, 20, 50])
def test_a_few_records_are_seldom_called_uneven(n):
    found = np.array([uneven(n, seed) for seed in range(20)])
    assert np.mean(found > 0.3) <= 0.2


@pytest.mark.parametrize("n", [4, 20, 300])
def test_a_variable_that_its_inputs_settle_has_a_finite_loudness(n):
    rng = np.random.default_rng(n)
    z = rng.integers(0, 2, (n, 2)).astype(float)
    found = learned(z, 1e-9 * z[:, 0] - 1e-3 * z[:, 1] * z[:, 0], n_draws=3)
    if found is not None:
        assert np.isfinite(found(z, 3)).all()


def test_loudness_by_sums_over_batches_is_that_of_all_records():
    z, rng = inputs(n=3_000), np.random.default_rng(2)
    residuals = louder(z) * rng.normal(size=len(z))
    hearing = Hearing.of(z[:500], residuals[:500])
    whole = hearing.count(z, residuals)
    parts = [slice(0, 700), slice(700, 701), slice(701, None)]
    added = sum(
        (hearing.count(z[part], residuals[part]) for part in parts[1:]),
        hearing.count(z[parts[0]], residuals[parts[0]]),
    )
    one, other = (
        hearing.loudness(din, z[:500], 3, np.random.default_rng(0))(z, 2)
        for din in (whole, added)
    )
    np.testing.assert_allclose(one, other, rtol=1e-9)


def test_more_records_tell_loudness_better_and_know_it():
    off, spread = {}, {}
    z, rng = inputs(n=40_000), np.random.default_rng(2)
    residuals = louder(z) * rng.normal(size=len(z))
    hearing, points = Hearing.of(z[:1_000], residuals[:1_000]), inputs(seed=3)
    for n in (1_000, 40_000):
        din = hearing.count(z[:n], residuals[:n])
        found = hearing.loudness(din, z[:1_000], 40, np.random.default_rng(0))
        off[n] = np.sqrt(np.mean(log_error(found, points, louder) ** 2))
        draws = [log_error(found, points, louder, draw) for draw in range(1, 41)]
        spread[n] = np.sqrt(np.mean(np.var(draws, axis=0)))
    assert off[40_000] < 0.4 * off[1_000]
    assert spread[40_000] < 0.6 * spread[1_000]
    assert off[40_000] < 2.5 * spread[40_000]


def test_few_records_over_and_over_are_no_accident():
    rng = np.random.default_rng(1)
    which, x, a = rng.integers(0, 20, 4000), *rng.normal(size=(2, 20))
    z = np.stack([x, a], axis=1)[which]
    residuals = rng.normal(size=20)[which]
    spread = Loudness.of(z, residuals, 4, rng)
    assert spread is None or np.isfinite(spread(z, 0)).all()


def test_roughly_is_the_same_to_seven_digits(rng):
    z = rng.normal(size=(400, 3))
    residuals = np.exp(0.6 * z[:, 0] + 0.5 * np.sin(2.0 * z[:, 1])) * rng.normal(
        size=400
    )
    loudness = Loudness.of(z, residuals, 6, rng)
    far = np.concatenate([z, 30.0 * z])
    for draw in range(7):
        exact = loudness(far, draw)
        np.testing.assert_allclose(loudness.roughly(far, draw), exact, rtol=1e-5)
