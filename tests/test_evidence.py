"""The evidence is a normal density, and groups that do nothing are left out."""

import numpy as np
import pytest
from scipy.stats import multivariate_normal

from forestall.evidence import Evidence, Variances

GROUPS = np.array([0, 1, 1, 2])


def records(weights, n=300, seed=0, noise=1.0):
    rng = np.random.default_rng(seed)
    Psi = rng.normal(size=(n, len(weights)))
    Psi -= Psi.mean(axis=0)
    y = Psi @ np.array(weights) + noise * rng.normal(size=n)
    return Psi, y - y.mean()


def evidence(weights, **options):
    Psi, y = records(weights, **options)
    return Evidence.of(Psi, y, GROUPS)


def density(Psi, y, at):
    prior = at.groups[GROUPS]
    covariance = at.noise * np.eye(len(y)) + (Psi * prior) @ Psi.T
    return multivariate_normal(np.zeros(len(y)), covariance).logpdf(y)


def test_evidence_is_the_density_of_the_target():
    Psi, y = records([1.0, 0.5, -0.5, 0.0], n=40)
    told = Evidence.of(Psi, y, GROUPS)
    one = Variances(np.array([0.7, 0.2, 0.1]), 0.9)
    two = Variances(np.array([0.1, 0.0, 0.4]), 1.3)
    expected = density(Psi, y, one) - density(Psi, y, two)
    assert told.log(one) - told.log(two) == pytest.approx(expected, abs=1e-9)


def test_weights_are_those_of_the_posterior():
    Psi, y = records([1.0, 0.5, -0.5, 0.0])
    told = Evidence.of(Psi, y, GROUPS)
    at = told._pruned(told._fixed())
    found = told.posterior()
    kept = found.kept
    A = Psi[:, kept].T @ Psi[:, kept] / at.noise
    A += np.diag(1.0 / at.groups[GROUPS[kept]])
    covariance = np.linalg.inv(A)
    expected = covariance @ Psi[:, kept].T @ y / at.noise
    np.testing.assert_allclose(found.weights, expected, rtol=1e-9)
    np.testing.assert_allclose(found.root @ found.root.T, covariance, rtol=1e-8)


def test_no_variances_near_the_fixed_point_are_likelier():
    told = evidence([1.0, 0.5, -0.5, 0.3])
    at = told._fixed()
    for k in range(4):
        for factor in (0.9, 1.1):
            moved = np.append(at.groups, at.noise)
            moved[k] *= factor
            assert told.log(Variances(moved[:3], moved[3])) <= told.log(at) + 1e-3


def test_groups_that_help_are_kept_and_others_are_not():
    found = evidence([0.0, 0.6, -0.4, 0.0], n=1_000).posterior()
    np.testing.assert_array_equal(found.kept, [False, True, True, False])


def test_noise_alone_seldom_keeps_a_group():
    kept = [evidence([0.0] * 4, seed=seed).posterior() for seed in range(60)]
    assert sum(found is not None for found in kept) <= 12


def test_a_target_that_never_moves_tells_nothing():
    Psi, _ = records([0.0] * 4)
    assert Evidence.of(Psi, np.zeros(len(Psi)), GROUPS).posterior() is None


@pytest.mark.parametrize("n", [2, 3, 10, 300])
def test_what_is_explained_wholly_is_left_some_noise(n):
    rng = np.random.default_rng(n)
    level = rng.integers(0, 2, n)
    Psi = np.stack([level, level, 1 - level, rng.normal(size=n)], axis=1)
    Psi = Psi - Psi.mean(axis=0)
    y = 3.0 * (level - level.mean())
    found = Evidence.of(Psi, y, GROUPS).posterior()
    if found is not None:
        assert np.isfinite(found.weights).all()
        assert np.isfinite(found.root).all()


def test_fewer_records_than_features_are_no_obstacle():
    rng = np.random.default_rng(0)
    for n in range(2, 30):
        Psi, y = rng.normal(size=(n, 40)), rng.normal(size=n)
        told = Evidence.of(Psi - Psi.mean(0), y - y.mean(), np.repeat([0, 1, 2, 3], 10))
        found = told.posterior()
        assert found is None or np.isfinite(found.weights).all()
