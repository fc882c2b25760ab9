"""Where records are louder is found, with how sure that is, and not invented."""

import numpy as np
import pytest
from scipy.special import expit

from forestall.loudness import Loudness


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
    found = learned(z, louder(z) * np.random.default_rng(2).normal(size=len(z)))
    named = {*found.terms.sloped.tolist(), *found.terms.hilly.tolist()}
    assert named == {0}
    assert len(found.terms.centres) == 0


def test_what_two_inputs_do_together_is_found_too():
    def truth(t):
        return np.exp(0.6 * np.sin(1.5 * t[:, 0]) * t[:, 1])

    z = inputs(n=3_000, d=2)
    found = learned(z, truth(z) * np.random.default_rng(2).normal(size=len(z)))
    off = log_error(found, inputs(seed=3, d=2), truth)
    assert np.sqrt(np.mean(off**2)) < 0.6 * np.log(truth(inputs(seed=3, d=2))).std()


def test_equal_noise_is_seldom_called_uneven():
    found = [
        learned(inputs(seed=s), np.random.default_rng(100 + s).normal(size=1_000))
        for s in range(20)
    ]
    assert sum(each is not None for each in found) <= 4


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
    assert near == pytest.approx(farther)


def test_residuals_of_one_value_and_variables_without_inputs_have_no_loudness():
    z = inputs(n=50)
    assert learned(z, np.zeros(50)) is None
    assert learned(z[:, :0], np.random.default_rng(0).normal(size=50)) is None


def test_a_few_records_are_seldom_called_uneven():
    found = [
        learned(inputs(n=n, seed=s), np.random.default_rng(100 + s).normal(size=n))
        for n in (12, 20, 50)
        for s in range(20)
    ]
    assert sum(each is not None for each in found) <= 6


@pytest.mark.parametrize("n", [4, 20, 300])
def test_a_variable_that_its_inputs_settle_has_a_finite_loudness(n):
    rng = np.random.default_rng(n)
    z = rng.integers(0, 2, (n, 2)).astype(float)
    found = learned(z, 1e-9 * z[:, 0] - 1e-3 * z[:, 1] * z[:, 0], n_draws=3)
    if found is not None:
        assert np.isfinite(found(z, 3)).all()
