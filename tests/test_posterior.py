"""Draws of hyperparameters: against enumeration first, then stories."""

from itertools import product

import numpy as np
import pytest
from scipy.special import logsumexp

from forestall import Problem, StagedRehearsal
from forestall.building import Builder
from forestall.draft import ROUGH, Draft
from forestall.likeliest import guessed, refined
from forestall.lowrank import Nystrom, RandomFourier
from forestall.observations import Observations
from forestall.posterior import GRID, HIGHEST, Chain, Drawn, Groups, Kind, drawn
from forestall.scale.supply import Held
from forestall.select import Alternatives, Choice
from forestall.woodbury import Woodbury
from worlds import learned_mean

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
PLAIN = Choice(
    np.array([0.2, 0.4]),
    0.0,
    0.0,
    0.12,
    np.array([1.5, 3.0]),
    np.array([0]),
    np.array([0.3]),
)
WHOLE = Choice(
    np.array([0.5, 0.4]),
    0.02,
    0.8,
    0.05,
    np.array([1.5, 3.0]),
    np.array([0, 1]),
    np.array([0.3, 0.2]),
)


def likely(Phi, y, variances, noise):
    """The log likelihood as it is defined, weights integrated out."""
    K = (Phi * variances) @ Phi.T + noise * np.eye(len(y))
    return -0.5 * (y @ np.linalg.solve(K, y) + np.linalg.slogdet(K)[1])


def grid_of(noise, n):
    """The variances that a group may have, and the log probability of each."""
    least = min(0.5 * np.sqrt(noise / n), 0.1)
    deviations = np.geomspace(least, HIGHEST, GRID)
    slab = -3.0 * deviations
    return np.r_[0.0, deviations**2], slab - logsumexp(slab)


@pytest.fixture
def faint(rng):
    """A slope and three hills that so few records leave in doubt."""
    Phi = np.column_stack([np.ones(40), rng.normal(size=(40, 4))])
    y = 0.25 * Phi[:, 1] + 0.2 * Phi[:, 3] + rng.normal(size=40)
    return Phi, y, Groups.owned(np.array([0, 1, 1, 1]), np.array([0, 2]))


def test_variances_are_drawn_as_often_as_they_are_likely(faint):
    Phi, y, groups = faint
    grid, slab = grid_of(1.0, 40)
    # A slope is there as likely as not; hills one time in four where there is more
    # than slopes, which is as likely as not.
    believed = [np.r_[np.log(0.5), np.log(0.5) + slab]]
    believed.append(np.r_[np.log(0.875), np.log(0.125) + slab])
    told = np.empty((len(grid), len(grid)))
    for i, j in product(range(len(grid)), repeat=2):
        variances = np.r_[1.0, grid[i], np.full(3, grid[j])]
        told[i, j] = likely(Phi, y, variances, 1.0) + believed[0][i] + believed[1][j]
    shares = np.exp(told - logsumexp(told))
    rng = np.random.default_rng(1)
    sums = Woodbury.of(Phi, y, np.ones(40))
    chain = Chain(sums, groups, np.zeros(2), 1.0, rng, known=True)
    seen = np.zeros_like(shares)
    for _ in range(6000):
        chain.step()
        i, j = np.searchsorted(grid, chain.variances)
        seen[i, j] += 1.0 / 6000
    for axis in (0, 1):
        one, other = seen.sum(axis=axis), shares.sum(axis=axis)
        np.testing.assert_allclose(np.cumsum(one), np.cumsum(other), atol=0.04)
    assert seen[0, 0] == pytest.approx(shares[0, 0], abs=0.04)


def test_variances_of_overlapping_groups_add_up(rng):
    Phi = np.column_stack([np.ones(40), rng.normal(size=(40, 2))])
    y = 0.5 * Phi[:, 1] + rng.normal(size=40)
    alone, both = int(Kind.ONE_OF_MANY), int(Kind.ALL_OF_MANY)
    members = np.array([1]), np.array([2]), np.array([1, 2])
    groups = Groups(members, np.array([alone, alone, both]), 3)
    grid, slab = grid_of(1.0, 40)
    told = np.empty((len(grid),) * 3)
    # Of two each is there with a chance that has the density 2 (1 - p).
    believed = np.log([[1 / 2, 1 / 6], [1 / 6, 1 / 6]])
    for at in product(range(len(grid)), repeat=3):
        i, j, k = at
        variances = np.r_[1.0, grid[i] + grid[k], grid[j] + grid[k]]
        belief = believed[int(i > 0), int(j > 0)] + np.log([0.75, 0.25][int(k > 0)])
        # There is nothing of it as likely as not, to begin with.
        belief = np.log(0.5 * np.exp(belief) + 0.5 * (not any(at)))
        belief += sum(slab[v - 1] for v in at if v)
        told[at] = likely(Phi, y, variances, 1.0) + belief
    shares = np.exp(told - logsumexp(told))
    sums = Woodbury.of(Phi, y, np.ones(40))
    chain = Chain(sums, groups, np.zeros(3), 1.0, rng, known=True)
    seen = np.zeros((2, 2, 2))
    for _ in range(12_000):
        chain.step()
        seen[tuple((chain.variances > 0.0).astype(int))] += 1.0 / 12_000
    for at in product((0, 1), repeat=3):
        parts = tuple(slice(1, None) if v else slice(0, 1) for v in at)
        assert seen[at] == pytest.approx(shares[parts].sum(), abs=0.03)


def test_what_is_plain_beside_hardly_any_noise_is_never_lost():
    n = 5000
    for seed in range(20):
        rng = np.random.default_rng(seed)
        far = rng.standard_t(3, size=n) ** 2
        far = 1000.0 * (far - far.mean()) / far.std()
        Phi = np.column_stack([np.ones(n), far, far, rng.normal(size=n)])
        y = far / 1000.0 + 0.001 * rng.normal(size=n)
        groups = Groups.owned(np.arange(3), np.full(3, int(Kind.ONE_OF_MANY)))
        sums = Woodbury.of(Phi, y, np.ones(n))
        chain = Chain(sums, groups, np.full(3, 0.3), 1e-3, rng)
        for _ in range(100):
            chain.step()
            assert chain.variances[:2].any()


def test_the_noise_is_drawn_as_often_as_it_is_likely(rng):
    Phi = np.column_stack([np.ones(30), rng.normal(size=30)])
    y = 0.4 * Phi[:, 1] + 0.7 * rng.normal(size=30)
    groups = Groups.owned(np.array([0]), np.array([0]))
    grid, slab = grid_of(0.5, 30)
    believed = np.r_[np.log(0.5), np.log(0.5) + slab]
    logs = np.linspace(np.log(0.1), np.log(3.0), 80)
    # Of the logarithm of the noise nothing is believed.
    told = np.array(
        [
            [likely(Phi, y, np.r_[1.0, v], np.exp(s)) + b for s in logs]
            for v, b in zip(grid, believed, strict=True)
        ]
    )
    shares = np.exp(told - logsumexp(told))
    chain = Chain(Woodbury.of(Phi, y, np.ones(30)), groups, np.zeros(1), 0.5, rng)
    noises, there = [], []
    for _ in range(6000):
        chain.step()
        noises.append(np.log(chain.noise))
        there.append(chain.variances[0] > 0.0)
    assert np.mean(there) == pytest.approx(1.0 - shares[0].sum(), abs=0.03)
    mean = shares.sum(axis=0) @ logs
    spread = np.sqrt(shares.sum(axis=0) @ (logs - mean) ** 2)
    assert np.mean(noises) == pytest.approx(mean, abs=0.1 * spread)
    assert np.std(noises) == pytest.approx(spread, rel=0.1)


def test_of_many_products_those_are_found_that_are_there(rng):
    n, p = 400, 60
    Phi = np.column_stack([np.ones(n), rng.normal(size=(n, p))])
    y = 0.5 * Phi[:, 3] - 0.4 * Phi[:, 40] + rng.normal(size=n)
    kinds = np.full(p, int(Kind.ONE_OF_MANY))
    groups = Groups.owned(np.arange(p), kinds)
    chain = Chain(Woodbury.of(Phi, y, np.ones(n)), groups, np.zeros(p), 2.0, rng)
    there = []
    for _ in range(60):
        chain.step()
        there.append(chain.variances > 0.0)
    often = np.mean(there[12:], axis=0)
    assert often[[2, 39]].min() > 0.99
    assert np.delete(often, [2, 39]).mean() < 0.05


def test_a_chain_that_sets_out_straight_finds_what_is_there():
    n, p = 600, 120
    kinds = np.repeat([int(Kind.ONE_OF_MANY), int(Kind.HILLS)], p // 2)
    groups, found = Groups.owned(np.arange(p), kinds), []
    for seed in range(12):
        rng = np.random.default_rng(seed)
        Phi = np.column_stack([np.ones(n), rng.normal(size=(n, p))])
        y = 0.25 * Phi[:, 7] + rng.normal(size=n)
        sums, nothing = Woodbury.of(Phi, y, np.ones(n)), np.zeros(p)

        def chain(_, sums=sums, nothing=nothing, rng=rng):
            return Chain(sums, groups, nothing, 1.0, rng)

        told = drawn(Alternatives((PLAIN,)), chain, 2, rng)
        found.append((told.variances[:, 7] > 0.0).mean())
    # Had it believed in what is straight from the outset, .8.
    assert np.mean(found) > 0.9


@pytest.mark.parametrize("d", [1, 2, 19, 20])
def test_a_few_products_stand_together_and_set_out_together(d, rng):
    z = rng.normal(size=(300, d))
    choice = Choice(np.ones(d), 0.3, 0.0, 0.5, np.ones(d))
    draft = Draft.of(z, z[:, 0], choice, 4, rng)
    chain = draft.chain(draft.count(z, z[:, 0]), np.arange(d), choice, rng)
    own, together = (
        chain.variances[chain.groups.kinds == kind]
        for kind in (Kind.ONE_OF_MANY, Kind.ALL_OF_MANY)
    )
    # One product is all of them, and more than two hundred would take long.
    assert together.tolist() == ([0.3] if d in (2, 19) else [])
    assert set(own) == ({0.0} if d in (2, 19) else {0.3})


@pytest.fixture(scope="module")
def records():
    rng = np.random.default_rng(0)
    z = rng.normal(size=(300, 2))
    return z, np.sin(z[:, 0] * z[:, 1]) + 0.3 * rng.normal(size=300)


def laid(records, choice=WHOLE, approximation=None, n_draws=N_DRAWS):
    rng = np.random.default_rng(1)
    return Draft.of(*records, choice, n_draws, rng, approximation)


def variances_of(draft, choice):
    """The variance that each function of a draft has under other hyperparameters."""
    _, m, f = draft.span.sizes
    heights = np.repeat(choice.heights[draft.choice.hilly], draft.choice.shape.tops)
    quadratic, smooth = np.full(3, choice.quadratic), np.full(m + f, choice.smooth)
    return np.concatenate([[1.0], choice.linear, quadratic, heights, smooth])


def in_turns(draft, choices):
    """Hyperparameters for each draw, those of each choice in turn."""
    each = [variances_of(draft, choice) for choice in choices]
    n = N_DRAWS // len(choices)
    return Drawn(np.tile(each, (n, 1)), np.tile([c.noise for c in choices], n))


SPANS = [None, Nystrom(rank=60), RandomFourier(n_features=400)]


@pytest.mark.parametrize("approximation", SPANS)
def test_each_draw_is_as_if_its_hyperparameters_were_the_only_ones(
    records, approximation
):
    draft = laid(records, approximation=approximation)
    kept, moments = draft.under(in_turns(draft, [BENT, PLAIN]), draft.count(*records))
    both = kept.settled(moments, *records)
    points = np.random.default_rng(2).normal(size=(40, 2))
    values = both(points, np.arange(1 + N_DRAWS))
    means = []
    for k, choice in enumerate((BENT, PLAIN)):
        own = np.arange(1 + k, 1 + N_DRAWS, 2)
        only = laid(records, choice, approximation)
        alone = only.settled(only.count(*records), *records)
        told = alone(points, np.arange(1 + N_DRAWS))
        spread = told[:, 1:].std(axis=1)
        off = (values[:, own].mean(axis=1) - told[:, 0]) / spread
        assert np.abs(off).max() < 5.0 / np.sqrt(len(own))
        ratio = values[:, own].std(axis=1) / spread
        assert ratio.mean() == pytest.approx(1.0, abs=0.15)
        means.append(told[:, 0])
    # The mean is that of all worlds, and no draw without bends pays for any.
    np.testing.assert_allclose(values[:, 0], np.mean(means, axis=0), atol=0.02)
    plain = np.arange(2, 1 + N_DRAWS, 2)
    assert not both.bumps[:, plain].any()
    assert not both.waves[:, plain].any()


def test_what_no_draw_has_is_not_kept(records):
    draft = laid(records)
    kept, moments = draft.under(in_turns(draft, [PLAIN]), draft.count(*records))
    told = kept.settled(moments, *records)
    only = laid(records, PLAIN)
    slow = only.settled(only.count(*records), *records)
    assert not len(told.centres)
    assert len(told.trend) == len(slow.trend) == 1 + 2 + 9
    points, first = np.random.default_rng(2).normal(size=(50, 2)), np.array([0])
    np.testing.assert_allclose(told(points, first), slow(points, first), atol=1e-4)
    np.testing.assert_allclose(told.leverage, slow.leverage, atol=1e-4)


def test_draws_set_out_from_either_start_as_often_as_it_is_likely(rng):
    open_to = Alternatives((BENT, PLAIN), (0.7, 0.3))
    for _ in range(20):
        members = open_to.members(96, rng)
        # Evenly: also among the few with which an action is chosen.
        for part in (members, members[:32], members[32:]):
            assert np.mean(part == 1) == pytest.approx(0.3, abs=0.06)
    assert not Alternatives((BENT,)).members(50, rng).any()


def test_starts_of_two_mechanisms_have_nothing_to_do_with_each_other(rng):
    open_to = Alternatives((BENT, PLAIN), (0.6, 0.4))
    both = [
        np.mean(open_to.members(96, rng) * open_to.members(96, rng)) for _ in range(300)
    ]
    assert np.mean(both) == pytest.approx(0.16, abs=0.01)
    assert np.std(both) < 0.04


def test_what_the_records_decide_is_not_left_open(rng):
    z = rng.normal(size=(600, 2))
    noise = 0.3 * rng.normal(size=600)
    together = starts_of(z, np.sin(2.0 * z[:, 0] * z[:, 1]) + noise)
    assert len(together.choices) == 1
    assert together.choices[0].smooth > 0.1
    straight = starts_of(z, z @ np.array([1.0, -0.5]) + noise)
    assert max(zip(straight.shares, straight.choices, strict=True))[1].smooth < 1e-3
    assert straight.shares[0] > 0.8


def starts_of(z, v):
    y, groups = (v - v.mean()) / v.std(), np.arange(z.shape[1])
    return refined(guessed(z, y, groups), z, y, groups)


def shares_of(mechanism):
    """How often draws have a slope, and hills, of each variable."""
    trend = mechanism.trend[:, 1:] != 0.0
    d, tops = len(mechanism.choice.linear), mechanism.choice.shape.tops
    hills = np.zeros(d)
    rising = trend[len(trend) - mechanism.choice.n_hills :].reshape(-1, tops, 64)
    hills[mechanism.choice.hilly] = rising.any(axis=1).mean(axis=1)
    return trend[1 : 1 + d].mean(axis=1), hills


def bent_by(mechanism, z):
    """How far draws stray from the nearest plane, in units of the output."""
    values = mechanism(z, np.arange(1, 65)) / mechanism.scale
    plane = np.column_stack([np.ones(len(z)), z])
    return np.sqrt(np.mean((values - plane @ np.linalg.lstsq(plane, values)[0]) ** 2))


def test_what_inputs_do_alone_are_hills_and_an_irrelevant_one_has_none(rng):
    z = rng.normal(size=(500, 3))
    v = np.sin(2 * z[:, 0]) + z[:, 1] + 0.3 * rng.normal(size=500)
    mechanism = learned_mean(z, v, 64, rng)
    slopes, hills = shares_of(mechanism)
    assert slopes[1] == hills[0] == 1.0
    assert max(hills[1:]) < 0.5
    # A slope that no record would notice may be there.
    assert np.abs(mechanism.trend[3, 1:]).max() < 0.1


def test_a_straight_mean_is_told_to_be_straight():
    straight = []
    for seed in range(6):
        rng = np.random.default_rng(seed)
        z = rng.normal(size=(1000, 3))
        v = z @ np.array([1.0, 0.7, -1.0]) + rng.normal(size=1000)
        mechanism = learned_mean(z, v, 64, rng)
        more = mechanism.trend[4:, 1:].any(axis=0) | mechanism.bumps[:, 1:].any(axis=0)
        straight.append(1.0 - more.mean())
    assert np.mean(straight) > 0.65


def test_far_from_the_records_faint_curves_are_not_ruled_out():
    def curved(z):
        x, y, a = z.T
        alone = -0.1 * x**2 + 0.15 * y**2 + 0.2 * a**2
        return -x + 2.0 * y + 3.0 * a + alone + 0.1 * (x * y + x * a + y * a)

    off = []
    for seed in range(7):
        rng = np.random.default_rng(seed)
        x = rng.normal(size=(1000, 2))
        # The action hardly ever left what the context makes of it.
        a = (x[:, 0] - x[:, 1] + 0.15 * rng.normal(size=1000)) / 1.4
        z = np.column_stack([x, a])
        mechanism = learned_mean(z, curved(z) + 0.3 * rng.normal(size=1000), 64, rng)
        far = rng.normal(size=(40, 3))
        told = mechanism(far, np.arange(1, 65))
        off.append((told.mean(axis=1) - curved(far)) / told.std(axis=1))
    # With products that only stand alone, 1.5.
    assert np.sqrt(np.mean(np.square(off))) < 1.3


def test_hills_that_nobody_asked_for_go_also_beside_little_noise(rng):
    z = rng.normal(size=(300, 6))
    v = z[:, 0] + 0.03 * rng.normal(size=300)
    mechanism = learned_mean(z, v, 64, rng)
    slopes, hills = shares_of(mechanism)
    assert slopes[0] == 1.0
    assert np.mean(np.r_[slopes[1:], hills[1:]]) < 0.3
    assert bent_by(mechanism, z) < 0.01


def test_what_the_records_leave_open_the_draws_cover():
    def faint(z):
        return 0.4 * np.sin(1.5 * z[:, 0]) + 0.15 * z[:, 1]

    covered = []
    for seed in range(8):
        rng = np.random.default_rng(seed)
        z, points = rng.normal(size=(400, 2)), rng.normal(size=(60, 2))
        v = faint(z) + 0.8 * rng.normal(size=400)
        values = learned_mean(z, v, 100, rng)(points, np.arange(1, 101))
        lower, upper = np.quantile(values, [0.05, 0.95], axis=1)
        truth = faint(points)
        covered.append(np.mean((lower <= truth) & (truth <= upper)))
    assert 0.75 < np.mean(covered) < 0.97


def test_many_records_keep_what_few_do_not_show(rng):
    z = rng.normal(size=(20_000, 3))
    v = z[:, 0] + 0.12 * np.sin(2.0 * z[:, 1]) + rng.normal(size=20_000)
    few, many = (learned_mean(z[:n], v[:n], 64, rng, 1000) for n in (1000, 20_000))
    assert shares_of(few)[1][1] < 0.5
    assert shares_of(many)[1][1] == 1.0
    assert shares_of(many)[1][2] < 0.3


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


def test_a_straight_mechanism_of_many_records_stays_straight():
    data, mechanism = outcome_of(0.0)
    sizes = (mechanism.trend[:, 1:] != 0.0).sum(axis=0)
    assert np.median(sizes) == 3
    assert bent_by(mechanism, np.column_stack([data.x, data.a])) < 0.02


def test_a_faint_bend_is_learned_and_its_doubt_is_honest():
    data, mechanism = outcome_of(0.15)
    assert mechanism.bumps[:, 1:].any(axis=0).mean() > 0.9
    x, a = data.x[:1000, 0], data.a[:1000, 0]
    raw_x = x * data.schema.context.scales[0] + data.schema.context.means[0]
    raw_a = a * data.schema.actions.scales[0] + data.schema.actions.means[0]
    truth = raw_x - raw_a + 0.15 * np.sin(raw_x * raw_a)
    truth = (truth - data.schema.outcomes.means[0]) / data.schema.outcomes.scales[0]
    told = mechanism(np.stack([x, a], axis=1), np.arange(65))
    off = (told[:, 0] - truth) / told[:, 1:].std(axis=1)
    assert np.sqrt(np.mean(off**2)) < 1.6


def test_no_number_of_records_makes_bends_as_smooth_as_their_kernel(records):
    z, v = records
    draft = laid(records, BENT, n_draws=200)
    moments = draft.count(np.tile(z, (2000, 1)), np.tile(v, 2000))
    mechanism = draft.settled(moments, z, v)
    spread = mechanism(z, np.arange(1, 201)).std(axis=1) / mechanism.scale
    assert np.median(spread) == pytest.approx(np.sqrt(ROUGH * BENT.noise), rel=0.3)


def test_a_straight_mean_has_nothing_rough(records):
    assert laid(records, PLAIN, n_draws=20).rough.shape == (0, 20)
