"""The law of residuals counted over batches is the law of all of them."""

from functools import cache

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import ndtr

import forestall
from forestall import Problem, StagedRehearsal
from forestall.building import Builder
from forestall.law import Law, ridge_by_sums, ridge_if_it_helps, smoothing
from forestall.loudness import Loudness
from forestall.observations import Observations
from forestall.scale import Held
from forestall.scale.laws import BIN, Blank, Straying, binned, centres, weighed
from forestall.scale.supply import in_order, taken

ROUGH = StagedRehearsal(n_draws=4, search=forestall.Search(n_draws=2))
PROBLEM = Problem(
    context=["x"], actions={"a": (-2.0, 2.0)}, outcomes=["y"], desired=["y >= 1"]
)


def skewed(n, seed=0):
    """A linear world with noise of a gamma law."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=n)
    a = 0.5 * x + rng.normal(size=n)
    noise = (rng.gamma(2.0, size=n) - 2.0) / np.sqrt(2.0)
    return {"x": x, "a": a, "y": x + a + 0.5 * noise}


@cache
def fitted(n, size):
    """A system, all its records, and what counts their loudness and their laws."""
    data = in_order(Observations.read(PROBLEM, skewed(n)))
    supply, heard = Held.of(data, size), []
    total = Held.total
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Held, "total", lambda s, w: heard.append(w) or total(s, w))
        system = Builder(ROUGH.parts, PROBLEM, supply).learned().system
    first, laws = heard
    (loudness,) = [each for each in first.counts if isinstance(each, Straying)]
    return system, data, (loudness, laws)


def test_the_counted_law_is_that_of_all_residuals():
    system, data, _ = fitted(1_000, 300)
    state = np.concatenate([data.x, data.a, data.y], axis=1)
    outcome = system.outcomes[0].mechanism
    mean = outcome(state[:, :2], np.array([0]))[:, 0]
    slow = (data.y[:, 0] - mean) / np.sqrt(1.0 - outcome.leverage.mean())
    law = system.outcomes[0].law
    if law.spread is not None:
        slow = slow / law.spread(state[:, :2], 0)
    width = smoothing(float(slow.std()), 1_000)
    expected = [np.mean(ndtr((t - slow) / width)) for t in law.grid]
    np.testing.assert_allclose(law.below[:, 0], expected, atol=2e-3)
    assert law.grid[0] < slow.min()
    assert law.grid[-1] > slow.max()


@pytest.mark.parametrize("which", [0, 1], ids=["loudness", "laws"])
@settings(max_examples=20)
@given(cuts=st.lists(st.integers(1, 999), max_size=4))
def test_what_is_counted_does_not_depend_on_the_batches(which, cuts):
    _, data, counts = fitted(1_000, 300)
    count = counts[which]
    parts = np.split(np.arange(1_000), sorted(set(cuts)))
    first, *rest = (count(taken(data, rows)) for rows in parts)
    whole, apart = count(data), sum(rest, start=first)
    for key, tally in whole.tallies.items():
        assert apart.tallies[key].n == 1_000
        for name, value in vars(tally).items():
            other = getattr(apart.tallies[key], name)
            np.testing.assert_allclose(value, other, rtol=1e-10, atol=1e-10)


def test_blocks_add_up_to_the_whole(monkeypatch):
    _, data, (_, count) = fitted(1_000, 300)
    whole = count(data).tallies
    monkeypatch.setattr("forestall.scale.laws.BLOCK", 70)
    for key, tally in count(data).tallies.items():
        np.testing.assert_allclose(tally.counts, whole[key].counts, atol=1e-10)


def test_a_law_of_more_records_is_nearer_to_the_truth():
    from scipy.stats import gamma

    errors = {}
    for n in (5_000, 50_000):
        missed = []
        for seed in range(3):
            rng = np.random.default_rng([seed, n])
            z = rng.normal(size=(n, 1))
            r = rng.gamma(2.0, size=n) - 2.0
            blank = Blank.of(z[:5_000], r[:5_000], local=False)
            law = blank.law(blank.count(z, r), 0, rng).at(np.zeros((80, 1)), 0)
            t = np.linspace(-1.8, 6.0, 80)
            missed.append(np.abs(law.cdf(t) - gamma.cdf(t + 2.0, 2.0)).mean())
        errors[n] = np.mean(missed)
    assert errors[50_000] < 0.6 * errors[5_000]


def test_laws_of_all_records_are_nearer_to_the_truth_than_those_of_the_sample(rng):
    from scipy.stats import gamma

    system, data, _ = fitted(20_000, 300)
    outcome, unit = system.outcomes[0], data.schema.outcomes.scales[0]
    z = taken(data, slice(None, None, 200))
    z = np.concatenate([z.x, z.a], axis=1)
    residuals = outcome.mechanism.residuals
    few = Law.of(rng.normal(size=(300, 2)), residuals, 0, rng, local=False)
    t = np.linspace(-0.6, 2.0, 60)
    # What a mean is the middle of is for the records to say; the law is about it.
    state, whole = np.concatenate([data.x, data.a], axis=1), outcome.mechanism
    middle = unit * float(np.mean(data.y[:, 0] - whole(state, np.array([0]))[:, 0]))
    truth, errors = gamma.cdf(2.0 + np.sqrt(2.0) * (t - middle) / 0.5, 2.0), []
    for law in (few, outcome.law):
        told = np.array([law.at(z, 0).cdf(np.full(len(z), v / unit)) for v in t])
        errors.append(np.abs(told.mean(axis=1) - truth).mean())
    assert errors[1] < 0.5 * errors[0]


def test_shapes_that_change_with_the_inputs_are_learned_from_all_records(rng):
    n = 20_000
    z = rng.normal(size=(n, 1))
    side = np.where(rng.random(n) < ndtr(z[:, 0]), 1.0, -1.0)
    r = side + 0.2 * rng.normal(size=n)
    blank = Blank.of(z[:500], r[:500])
    law = blank.law(blank.count(z, r), 4, rng)
    at = np.array([[-1.0], [0.0], [1.0]])
    np.testing.assert_allclose(
        law.at(at, 0).cdf(np.zeros(3)), 1.0 - ndtr(at[:, 0]), atol=0.03
    )


def test_an_absurd_record_outside_the_sample_moves_nothing(rng):
    z, r = rng.normal(size=(2_000, 2)), rng.normal(size=2_000)
    r *= np.exp(0.5 * z[:, 0])
    spread = Loudness.of(z[:500], r[:500], 2, rng)
    blank = Blank.of(z[:500], r[:500], spread)
    whole = blank.count(z, r)
    z[1_000] = 1e8
    odd = blank.count(z, r)
    assert np.abs(odd.gram - whole.gram).max() < 100
    one, other = (
        blank.law(tally, 2, np.random.default_rng(0)).at(z[:50], 1).cdf(r[:50])
        for tally in (whole, odd)
    )
    np.testing.assert_allclose(one, other, atol=5e-3)


def test_draws_know_how_many_records_there_are(rng):
    for n in (400, 40_000):
        counts = binned(rng.normal(size=n))
        weights = weighed(counts, 200, rng)
        np.testing.assert_allclose(weights.sum(axis=0), 1.0)
        below = weights[centres() < 0.0].sum(axis=0)
        assert below[1:].std() == pytest.approx(0.5 / np.sqrt(n), rel=0.15)


@given(st.floats(-1e9, 1e9), st.floats(-1e-12, 1e-12))
def test_bins_keep_every_residual_about_where_it_is(value, off):
    counts = binned(np.array([value]))
    assert counts.sum() == pytest.approx(1.0)
    (seen,) = np.nonzero(counts)
    assert len(seen) <= 2
    if abs(value) < 900:
        assert counts @ centres() == pytest.approx(value, rel=BIN, abs=BIN**2)
    np.testing.assert_allclose(binned(np.array([value + off])), counts, atol=1e-9)


def test_ridge_by_sums_is_that_of_the_rows(rng):
    Psi = rng.normal(size=(4_000, 6)) @ rng.normal(size=(6, 6))
    target = Psi[:, :3] * 0.1 + rng.normal(size=(4_000, 3))
    target -= target.mean(axis=0)
    rows = ridge_if_it_helps(Psi, target)
    sums = ridge_by_sums(Psi.T @ Psi, Psi.T @ target, (target**2).sum(axis=0), len(Psi))
    np.testing.assert_allclose(sums.weights, rows.weights, atol=2e-3)
    covariance = [each.root @ each.root.T for each in (sums, rows)]
    np.testing.assert_allclose(*covariance, rtol=0.1, atol=1e-4)


def test_ridge_by_sums_that_does_not_help_is_none(rng):
    found = []
    for _ in range(10):
        Psi, target = rng.normal(size=(400, 8)), rng.normal(size=(400, 1))
        sums = Psi.T @ Psi, Psi.T @ target, (target**2).sum(axis=0)
        found.append(ridge_by_sums(*sums, 400) is None)
    assert any(found)


def test_residuals_that_do_not_stray_have_a_law():
    rng, z = np.random.default_rng(0), np.linspace(-1, 1, 200)[:, None]
    blank = Blank.of(z, np.zeros(200))
    law = blank.law(blank.count(z, np.zeros(200)), 2, rng)
    assert np.isfinite(law.below).all()
    np.testing.assert_allclose(law.at(z, 1).quantile(np.full(200, 0.5)), 0, atol=1e-9)
