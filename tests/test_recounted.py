"""Hyperparameters chosen again by sums over all records: algebra, then stories."""

import numpy as np
import pytest
from scipy.optimize import check_grad

from forestall import Problem, StagedRehearsal
from forestall.building import Builder
from forestall.draft import ROUGH, Draft
from forestall.likeliest import everything, guessed, recounted, refined
from forestall.likelihood import curved, owners
from forestall.lowrank import Nystrom, RandomFourier
from forestall.observations import Observations
from forestall.scale.supply import Held
from forestall.select import Alternatives, Choice

GROUPS = np.array([0, 1, 1])
LAID = Choice(
    np.array([0.5, 0.1, 0.1]),
    0.02,
    0.3,
    0.2,
    np.array([1.5, 2.0, 2.0]),
    np.array([0, 1]),
    np.array([0.2, 0.1]),
)
# Log variances: curves, bends, noise; slopes, widths and hills of two variables.
THETA = np.log([0.05, 0.1, 0.3, 0.2, 0.4, 1.5, 2.0, 0.3, 0.05])
SPANS = [None, Nystrom(rank=30), RandomFourier(n_features=40)]


@pytest.fixture
def records(rng):
    z = rng.normal(size=(120, 3))
    z[:, 2] = z[:, 2] > 0
    return z, np.sin(z[:, 0]) + 0.4 * z[:, 1] * z[:, 2] + 0.4 * rng.normal(size=120)


def drafted(records, choice=LAID, approximation=None, n_draws=4):
    rng = np.random.default_rng(1)
    return Draft.of(*records, Alternatives((choice,)), n_draws, rng, approximation)


@pytest.mark.parametrize("approximation", SPANS)
@pytest.mark.parametrize("even", [True, False])
def test_the_likelihood_by_sums_is_that_of_the_records(
    records, approximation, even, rng
):
    z, v = records
    draft = drafted(records, approximation=approximation)
    loudness = None if even else rng.uniform(0.05, 0.4, size=len(v))
    counted = draft.likelihood(draft.count(z, v, loudness), GROUPS)
    Phi = draft.span(z) / np.sqrt(counted.laid)
    owned = owners(GROUPS, 6, LAID.hilly, 9, sum(draft.span.sizes[1:]))
    variances = np.exp(THETA)[owned]
    variances[0] = 1.0
    y, noise = (v - draft.mean) / draft.scale, np.exp(THETA[2])
    usual = np.ones(len(v)) if even else loudness / draft.scale**2 / LAID.noise
    K = (Phi * variances) @ Phi.T + noise * np.diag(usual)
    slow = 0.5 * y @ np.linalg.solve(K, y) + 0.5 * np.linalg.slogdet(K)[1]
    if not even:
        # How loud records are is no matter of choice: a constant.
        slow -= 0.5 * np.log(usual).sum()
    assert counted.height(THETA) == pytest.approx(slow, abs=1e-7)
    error = check_grad(lambda t: counted(t)[0], lambda t: counted(t)[1], THETA)
    assert error < 1e-4


def test_widths_stay_as_they_were_laid_out(records):
    draft = drafted(records)
    open_to = recounted(LAID, draft.likelihood(draft.count(*records), GROUPS))
    for choice in open_to.choices:
        np.testing.assert_allclose(choice.widths, LAID.widths)


PLAIN = Choice(
    np.array([0.4, 0.2, 0.2]),
    0.0,
    0.0,
    0.15,
    LAID.widths,
    np.array([1]),
    np.array([0.3]),
)
BENT = Choice(np.array([0.4, 0.2, 0.2]), 0.1, 0.2, 0.15, LAID.widths)


@pytest.mark.parametrize("choice", [PLAIN, BENT])
def test_what_is_kept_is_as_if_nothing_else_had_been_laid_out(records, choice):
    z, v = records
    draft = drafted(records)
    alone = drafted(records, choice)
    rng = np.random.default_rng(0)
    kept, moments = draft.under(Alternatives((choice,)), draft.count(z, v), rng)
    points = np.random.default_rng(2).normal(size=(50, 3))
    told, slow = (
        each.settled(sums, z, v)
        for each, sums in ((kept, moments), (alone, alone.count(z, v)))
    )
    first = np.array([0])
    # Bends have the centres of the wider layout, of which there may be more.
    atol = 1e-4 if choice is PLAIN else 0.03
    np.testing.assert_allclose(told(points, first), slow(points, first), atol=atol)
    np.testing.assert_allclose(told.leverage, slow.leverage, atol=atol)
    assert len(told.trend) == len(slow.trend)
    assert bool(len(told.centres)) is bool(len(slow.centres)) is choice.bends


def test_draws_are_those_of_what_is_kept(records):
    z, v = records
    open_to = Alternatives((BENT, PLAIN), (0.6, 0.4))
    draft, rng = drafted(records, n_draws=600), np.random.default_rng(3)
    kept, moments = draft.under(open_to, draft.count(z, v), rng)
    both = kept.settled(moments, z, v)
    points = rng.normal(size=(30, 3))
    values = both(points, np.arange(601))
    for k, choice in enumerate(open_to.choices):
        alone = drafted(records, choice, n_draws=600)
        told = alone.settled(alone.count(z, v), z, v)(points, np.arange(601))
        own = 1 + np.flatnonzero(kept.members == k)
        ratio = values[:, own].std(axis=1) / told[:, 1:].std(axis=1)
        assert ratio.mean() == pytest.approx(1.0, abs=0.15)
        assert not both.bumps[:, own].any() or choice.bends


def test_many_records_keep_what_few_do_not_show(rng):
    z = rng.normal(size=(20_000, 3))
    v = z[:, 0] + 0.12 * np.sin(2.0 * z[:, 1]) + rng.normal(size=20_000)
    v = (v - v.mean()) / v.std()
    few, groups = slice(2000), np.arange(3)
    open_to = refined(guessed(z[few], v[few], groups), z[few], v[few], groups)
    assert 1 not in open_to.whole.hilly
    laid = everything(open_to.whole, curved(z))
    draft = Draft.of(z[few], v[few], Alternatives((laid,)), 0, rng, None, len(z))
    again = recounted(laid, draft.likelihood(draft.count(z, v), groups)).whole
    assert again.hilly.tolist() == [1]
    assert not again.bends
    assert again.quadratic < 1e-4


DRIFTING = Problem(
    context=["x"], actions={"a": (-2.0, 2.0)}, outcomes=["y"], desired=["y >= 0.5"]
)


def drifting(n, bow):
    rng = np.random.default_rng(0)
    x = rng.normal(size=n)
    a = 0.5 * x + rng.normal(size=n)
    y = x - a + bow * np.sin(x * a) + rng.normal(size=n)
    return {"x": x, "a": a, "y": y}


def outcome_of(bow):
    data = Observations.read(DRIFTING, drifting(20_000, bow))
    supply = Held.of(data, 2000)
    parts = StagedRehearsal(n_draws=64).parts
    system = Builder(parts, DRIFTING, supply).learned().system
    return data, system.outcomes[0].mechanism


def test_a_straight_mechanism_of_many_records_stays_small():
    _, mechanism = outcome_of(0.0)
    assert len(mechanism.trend) == 3
    assert not len(mechanism.centres)


def test_a_faint_bend_is_learned_and_its_doubt_is_honest():
    data, mechanism = outcome_of(0.15)
    assert len(mechanism.centres)
    x, a = data.x[:1000, 0], data.a[:1000, 0]
    raw_x = x * data.schema.context.scales[0] + data.schema.context.means[0]
    raw_a = a * data.schema.actions.scales[0] + data.schema.actions.means[0]
    truth = raw_x - raw_a + 0.15 * np.sin(raw_x * raw_a)
    truth = (truth - data.schema.outcomes.means[0]) / data.schema.outcomes.scales[0]
    told = mechanism(np.stack([x, a], axis=1), np.arange(65))
    off = (told[:, 0] - truth) / told[:, 1:].std(axis=1)
    assert np.sqrt(np.mean(off**2)) < 1.6


def test_no_number_of_records_makes_bends_as_smooth_as_their_kernel(rng):
    z = rng.normal(size=(300, 3))
    v = np.sin(z[:, 0] * z[:, 1]) + 0.3 * rng.normal(size=300)
    draft = drafted((z, v), BENT, n_draws=200)
    moments = draft.count(np.tile(z, (2000, 1)), np.tile(v, 2000))
    mechanism = draft.settled(moments, z, v)
    spread = mechanism(z, np.arange(1, 201)).std(axis=1) / mechanism.scale
    assert np.median(spread) == pytest.approx(np.sqrt(ROUGH * BENT.noise), rel=0.3)


def test_a_straight_mean_has_nothing_rough(records):
    draft = drafted(records, PLAIN, n_draws=20)
    assert draft.rough.shape == (0, 20)
