"""Structures that the records leave open, each as a mechanism of its own has it."""

import numpy as np
import pytest

from forestall.draft import Draft
from forestall.likeliest import guessed, refined
from forestall.lowrank import Nystrom, RandomFourier
from forestall.select import Alternatives, Choice
from worlds import mechanism_of

N_DRAWS = 400
BENT = Choice(
    np.array([0.5, 0.1]),
    0.02,
    0.8,
    0.05,
    np.array([1.5, 3.0]),
    np.array([1]),
    np.array([0.2]),
)
# Its widths are those of no bends, and its hills are other ones.
PLAIN = Choice(
    np.array([0.2, 0.4]),
    0.1,
    0.0,
    0.12,
    np.array([9.0, 9.0]),
    np.array([0]),
    np.array([0.3]),
)


@pytest.fixture(scope="module")
def records():
    rng = np.random.default_rng(0)
    z = rng.normal(size=(300, 2))
    return z, np.sin(z[:, 0] * z[:, 1]) + 0.3 * rng.normal(size=300)


def settled(records, open_to, approximation=None):
    z, v = records
    rng = np.random.default_rng(1)
    draft = Draft.of(z, v, open_to, N_DRAWS, rng, approximation)
    return draft, draft.settled(draft.count(z, v), z, v)


@pytest.mark.parametrize("choices", [(BENT, PLAIN), (PLAIN, BENT)])
@pytest.mark.parametrize(
    "approximation", [None, Nystrom(rank=60), RandomFourier(n_features=400)]
)
def test_each_draw_is_of_its_structure_as_if_it_were_the_only_one(
    records, choices, approximation
):
    draft, both = settled(records, Alternatives(choices, (0.7, 0.3)), approximation)
    points = np.random.default_rng(2).normal(size=(40, 2))
    values = both(points, np.arange(1 + N_DRAWS))
    for k, choice in enumerate(choices):
        own = 1 + np.flatnonzero(draft.members == k)
        _, alone = settled(records, Alternatives((choice,)), approximation)
        told = alone(points, np.arange(1 + N_DRAWS))
        if k == 0:
            np.testing.assert_allclose(values[:, 0], told[:, 0], atol=0.02)
            np.testing.assert_allclose(both.residuals, alone.residuals, atol=0.02)
        spread = told[:, 1:].std(axis=1)
        off = (values[:, own].mean(axis=1) - told[:, 0]) / spread
        assert np.abs(off).max() < 5.0 / np.sqrt(len(own))
        ratio = values[:, own].std(axis=1) / spread
        assert ratio.mean() == pytest.approx(1.0, abs=0.15)


def test_draws_are_of_either_structure_as_often_as_it_is_likely(rng):
    open_to = Alternatives((BENT, PLAIN), (0.7, 0.3))
    for _ in range(20):
        members = open_to.members(96, rng)
        # Evenly: also among the few with which an action is chosen.
        for part in (members, members[:32], members[32:]):
            assert np.mean(part == 1) == pytest.approx(0.3, abs=0.06)
    assert not Alternatives((BENT,)).members(50, rng).any()


def test_structures_of_two_mechanisms_have_nothing_to_do_with_each_other(rng):
    open_to = Alternatives((BENT, PLAIN), (0.6, 0.4))
    both = [
        np.mean(open_to.members(96, rng) * open_to.members(96, rng)) for _ in range(300)
    ]
    assert np.mean(both) == pytest.approx(0.16, abs=0.01)
    assert np.std(both) < 0.04


def test_a_draw_without_bends_costs_none(records):
    draft, both = settled(records, Alternatives((PLAIN, BENT), (0.6, 0.4)))
    plain = np.r_[0, 1 + np.flatnonzero(draft.members == 0)]
    assert not both.bumps[:, plain].any()
    assert not both.waves[:, plain].any()
    assert both.bumps[:, 1 + np.flatnonzero(draft.members == 1)].all()


def test_what_the_records_decide_is_not_left_open(rng):
    z = rng.normal(size=(600, 2))
    noise = 0.3 * rng.normal(size=600)
    together = _structures(z, np.sin(2.0 * z[:, 0] * z[:, 1]) + noise)
    assert len(together.choices) == 1
    assert together.choices[0].smooth > 0.1
    straight = _structures(z, z @ np.array([1.0, -0.5]) + noise)
    assert max(zip(straight.shares, straight.choices, strict=True))[1].smooth < 1e-3
    assert straight.shares[0] > 0.8


def test_what_the_records_leave_open_widens_what_is_told():
    # A bend that so few and so loud records hardly show.
    covered, alone = [], []
    for seed in range(12):
        rng = np.random.default_rng(seed)
        z, points = rng.normal(size=(150, 2)), rng.normal(size=(60, 2))
        v = _bow(z) + 0.8 * rng.normal(size=150)
        open_to = _structures(z, v)
        if len(open_to.choices) > 1:
            draft = Draft.of(z, v, open_to, 200, rng)
            both = draft.settled(draft.count(z, v), z, v)
            one = mechanism_of(z, v, open_to.choices[0], 200, rng)
            covered.append(_held(both, points))
            alone.append(_held(one, points))
    assert len(covered) >= 4
    assert np.mean(covered) > 0.8
    assert np.mean(covered) > np.mean(alone) + 0.05


def _held(mechanism, points):
    """How often nine tenths of the draws hold the truth."""
    values = mechanism(points, np.arange(1, 201))
    lower, upper = np.quantile(values, [0.05, 0.95], axis=1)
    return np.mean((lower <= _bow(points)) & (_bow(points) <= upper))


def _bow(z):
    return np.tanh(z[:, 0] * z[:, 1]) + z[:, 0]


def _structures(z, v):
    y, groups = (v - v.mean()) / v.std(), np.arange(z.shape[1])
    return refined(guessed(z, y, groups), z, y, groups)
