"""Variables with two values: their laws, and stories of outcomes that are yes or no."""

import numpy as np
import pytest
from scipy.special import expit

import forestall
from forestall import Problem, Search, StagedRehearsal, store
from forestall.building import Builder
from forestall.coin import FEWEST, Coin
from forestall.law import Law
from forestall.observations import Observations
from forestall.rehearsal import Noise
from forestall.scale.supply import Held

QUICK = StagedRehearsal(
    n_draws=64,
    n_paths=64,
    search=Search(n_screened=64, n_kept=12, n_starts=2, n_steps=4, n_draws=12),
)
RETURNED = Problem(
    context=["debt"],
    actions={"rate": (-2.0, 2.0)},
    outcomes=["repaid"],
    desired=["repaid >= 1"],
)
VISITED = Problem(
    context=["age"],
    covariates=["came"],
    actions={"calls": (-2.0, 2.0)},
    outcomes=["health"],
    desired=["1.5 <= health <= 2.5"],
    order=["age", "calls", "came", "health"],
)
GRID = np.array([[x, a] for x in (-1.0, 0.0, 1.0) for a in (-1.0, 0.0, 1.0)])


def chance(debt, rate, level=0.0):
    """Both more and less than the best rate are worse, and debt is bad."""
    return expit(level - 1.5 * (rate - 0.5) ** 2 - debt)


def loans(n, seed=0, level=0.0, good=1.0):
    rng = np.random.default_rng(seed)
    debt = rng.normal(size=n)
    rate = 0.7 * debt + rng.normal(size=n)
    repaid = rng.random(n) < chance(debt, rate, level)
    return {"debt": debt, "rate": rate, "repaid": np.where(repaid, good, 0.0)}


def visits(n, seed=0):
    rng = np.random.default_rng(seed)
    age = rng.normal(size=n)
    calls = 0.7 * age + rng.normal(size=n)
    came = (rng.random(n) < expit(2.0 * calls - age - 1.0)).astype(float)
    health = age + 1.5 * came + 0.5 * calls * (1 - came) + 0.5 * rng.normal(size=n)
    return {"age": age, "calls": calls, "came": came, "health": health}


def healthy(age, calls, n=100_000):
    rng = np.random.default_rng(1)
    came = rng.random(n) < expit(2.0 * calls - age - 1.0)
    health = age + 1.5 * came + 0.5 * calls * (1 - came) + 0.5 * rng.normal(size=n)
    return np.mean((health >= 1.5) & (health <= 2.5))


def asked(policy):
    (name,) = policy.problem.context
    return policy.evaluate({name: GRID[:, 0]}, GRID[:, [1]])


def test_a_coin_is_what_has_two_values():
    assert Coin.of(np.tile([0.0, 1.0], 20)) == Coin(0.0, 1.0)
    assert Coin.of(np.r_[np.full(30, 2.5), -1.0]) == Coin(-1.0, 2.5)
    assert Coin.of(np.tile([0.0, 1.0, 2.0], 20)) is None
    assert Coin.of(np.ones(20)) is None
    assert Coin.of(np.tile([0.0, 1.0], FEWEST)[: FEWEST - 1]) is None


def test_a_coin_has_its_values_as_often_as_its_odds_say(rng):
    coin, odds = Coin(-0.5, 2.0), rng.normal(size=200)
    at = coin.at(np.empty((200, 0)), 0, odds)
    u = (np.arange(1000) + 0.5) / 1000
    values = np.array([odds + at.quantile(np.full(200, each)) for each in u])
    assert set(values.round(9).ravel()) == {-0.5, 2.0}
    np.testing.assert_allclose((values > 0).mean(axis=0), expit(odds), atol=1e-3)
    np.testing.assert_allclose(coin.mean(odds), values.mean(axis=0), atol=3e-3)
    for bound, share in ((-1.0, 0.0), (-0.5, 1 - expit(odds)), (2.0, 1.0)):
        np.testing.assert_allclose(at.cdf(bound - odds), share, atol=1e-12)


@pytest.mark.parametrize("bound", [-1.0, 0.0, 1.0, 3.0])
def test_density_and_rise_are_slopes_by_the_odds(bound):
    coin, odds, step = Coin(-0.5, 2.0), np.linspace(-3, 3, 30), 1e-6

    def below(odds):
        return coin.at(np.empty((30, 0)), 0, odds).cdf(bound - odds)

    at = coin.at(np.empty((30, 0)), 0, odds)
    slope = (below(odds + step) - below(odds - step)) / (2 * step)
    np.testing.assert_allclose(-slope, at.density(bound - odds), atol=1e-6)
    rise = (coin.mean(odds + step) - coin.mean(odds - step)) / (2 * step)
    np.testing.assert_allclose(rise, at.rise, atol=1e-6)


@pytest.mark.parametrize("level", [0.5, -2.0])
def test_a_yes_or_no_is_as_likely_as_it_is(level):
    held, errors = [], []
    for seed in range(3):
        policy = QUICK.fit(RETURNED, loans(1000, seed, level))
        told, truth = asked(policy), chance(*GRID.T, level)
        errors.append(told.probability - truth)
        held.append((told.lower <= truth) & (truth <= told.upper))
        # Nothing is more than certain.
        assert told.lower.min() >= 0
        assert told.upper.max() <= 1
    assert np.sqrt(np.mean(np.square(errors))) < 0.06
    assert abs(np.mean(errors)) < 0.025
    assert np.mean(held) > 0.75


def test_the_best_action_for_a_yes_is_found():
    policy = forestall.fit(RETURNED, loans(1000))
    chosen = policy.recommend({"debt": [-1.0, 0.0, 1.0]})
    best = chance(np.array([-1.0, 0.0, 1.0]), 0.5)
    reached = chance(np.array([-1.0, 0.0, 1.0]), chosen.actions[:, 0])
    assert (reached > best - 0.03).all()


def test_a_covariate_that_is_yes_or_no_comes_as_often_as_it_does():
    policy = QUICK.fit(VISITED, visits(1000))
    told = asked(policy)
    truth = np.array([healthy(*row) for row in GRID])
    assert np.sqrt(np.mean((told.probability - truth) ** 2)) < 0.035
    held = (told.lower <= truth) & (truth <= told.upper)
    assert held.mean() > 0.6


def test_units_and_names_of_the_two_values_do_not_matter():
    one = asked(QUICK.fit(RETURNED, loans(400)))
    rescaled = Problem(
        context=["debt"],
        actions={"rate": (-2.0, 2.0)},
        outcomes=["repaid"],
        desired=["repaid > 200"],
    )
    other = asked(QUICK.fit(rescaled, loans(400, good=700.0)))
    np.testing.assert_allclose(one.probability, other.probability, atol=1e-6)


def test_one_yes_among_many_is_no_accident_of_the_law():
    history = loans(300, level=-4.0)
    history["repaid"][:] = 0.0
    history["repaid"][7] = 1.0
    policy = QUICK.fit(RETURNED, history)
    assert (asked(policy).probability < 0.1).all()


def test_the_gradient_is_that_of_the_chance():
    policy = QUICK.fit(RETURNED, loans(400))
    system = policy.system
    noise = Noise.drawn(system.n_noises, 16, 2, np.random.default_rng(0))
    altered, draws = np.array([True]), np.array([0, 3])
    x, a, step = policy.data.x[:20], policy.data.a[:20], 1e-4

    def success(a, **options):
        return system.success(x, a, altered, draws, noise, **options)

    told = success(a, gradient=True).gradient[:, :, 0]
    slope = (success(a + step).value - success(a - step).value) / (2 * step)
    np.testing.assert_allclose(told, slope, atol=2e-3)


def test_many_records_say_the_same_by_sums():
    data = Observations.read(RETURNED, loans(4000))
    systems = [
        Builder(QUICK.parts, RETURNED, Held.of(data, size)).learned().system
        for size in (4000, 1500)
    ]
    z = data.x[:300], data.a[:300]
    odds = [
        each.outcomes[0].mechanism(np.concatenate(z, axis=1), np.array([0]))[:, 0]
        for each in systems
    ]
    assert all(isinstance(each.outcomes[0].law, Coin) for each in systems)
    assert np.mean(np.abs(expit(odds[0]) - expit(odds[1]))) < 0.02


def test_what_is_told_of_it_is_in_its_own_units(tmp_path):
    policy = QUICK.fit(RETURNED, loans(600))
    (fit,) = [each for each in policy.diagnostics().mechanisms if each.name == "repaid"]
    assert 0.1 < fit.explained < 0.6
    assert fit.inside == pytest.approx(0.9, abs=0.04)
    assert fit.deviation == pytest.approx(np.sqrt(0.15), rel=0.25)
    path = tmp_path / "loans.forestall"
    store.save(policy, path)
    again = store.load(path)
    assert isinstance(again.system.outcomes[0].law, Coin)
    np.testing.assert_array_equal(asked(policy).probability, asked(again).probability)


def test_three_values_are_no_yes_or_no():
    history = loans(1000)
    history["repaid"][:10] = 0.5
    policy = QUICK.fit(RETURNED, history)
    assert not isinstance(policy.system.outcomes[0].law, Coin)
    told, truth = asked(policy), chance(*GRID.T)
    assert np.sqrt(np.mean((told.probability - truth) ** 2)) < 0.05


BOUNDS = {
    "0 <= repaid <= 0.5": False,
    "repaid <= 0": False,
    "repaid < 1": False,
    "repaid > 0": True,
    "0.2 <= repaid <= 1": True,
    "1 <= repaid": True,
}


@pytest.mark.parametrize("desired", BOUNDS)
def test_a_bound_on_a_value_means_what_it_says(desired):
    problem = Problem(
        context=["debt"],
        actions={"rate": (-2.0, 2.0)},
        outcomes=["repaid"],
        desired=[desired],
    )
    told = asked(QUICK.fit(problem, loans(600))).probability
    truth = chance(*GRID.T)
    truth = truth if BOUNDS[desired] else 1.0 - truth
    assert np.abs(told - truth).max() < 0.2
    assert np.abs(told - truth).mean() < 0.08


@pytest.mark.parametrize(
    ("desired", "good"),
    [
        ("a + b >= 2", lambda p, q: p * q),
        ("a + b < 2", lambda p, q: 1 - p * q),
        ("a + b <= 0", lambda p, q: (1 - p) * (1 - q)),
        ("a - b >= 0", lambda p, q: 1 - (1 - p) * q),
    ],
)
def test_two_answers_together_are_as_good_as_they_are(desired, good):
    rng = np.random.default_rng(0)
    x, r = rng.normal(size=(2, 600))
    p, q = expit(x + r), expit(0.5 - r)
    history = {"x": x, "r": r, "a": rng.random(600) < p, "b": rng.random(600) < q}
    problem = Problem(
        context=["x"], actions={"r": (-2, 2)}, outcomes=["a", "b"], desired=[desired]
    )
    policy = QUICK.fit(problem, {k: v.astype(float) for k, v in history.items()})
    at = GRID[:, 0] + GRID[:, 1], 0.5 - GRID[:, 1]
    truth = good(expit(at[0]), expit(at[1]))
    assert np.abs(asked(policy).probability - truth).max() < 0.15


def test_what_hardly_ever_happens_is_told_to_be_that_rare():
    rng = np.random.default_rng(0)
    debt, rate = rng.normal(size=(2, 4000))
    repaid = np.zeros(4000)
    repaid[rng.choice(4000, 8, replace=False)] = 1.0
    policy = QUICK.fit(RETURNED, {"debt": debt, "rate": rate, "repaid": repaid})
    told = asked(policy)
    assert told.probability.mean() == pytest.approx(0.002, rel=0.6)
    assert np.mean((told.lower <= 0.002) & (told.upper >= 0.002)) > 0.5


def test_without_a_mean_there_are_laws_alone():
    method = StagedRehearsal(
        n_draws=8, n_paths=16, search=QUICK.search, recentred=False
    )
    policy = method.fit(RETURNED, loans(300))
    assert isinstance(policy.system.outcomes[0].law, Law)
    told = asked(policy).probability
    assert np.ptp(told) > 0.1


@pytest.mark.parametrize("seed", range(4))
def test_one_or_two_of_many_are_rare_whatever_the_seed(seed):
    rng = np.random.default_rng(seed)
    debt, rate = rng.normal(size=(2, 300))
    repaid = np.zeros(300)
    repaid[rng.choice(300, 1 + seed % 2, replace=False)] = 1.0
    policy = QUICK.fit(RETURNED, {"debt": debt, "rate": rate, "repaid": repaid})
    told = policy.evaluate({"debt": np.linspace(-1.5, 1.5, 20)}, {"rate": np.zeros(20)})
    assert told.probability.mean() < 0.03
    assert told.upper.mean() < 0.15


@pytest.mark.parametrize(("n", "steep"), [(1000, 4.0), (1000, 12.0), (5200, 8.0)])
@pytest.mark.filterwarnings("ignore:There are 5,200 records")
def test_a_steep_chance_is_neither_lost_nor_blurred(n, steep):
    rng = np.random.default_rng(0)
    debt = rng.normal(size=n)
    rate = 0.5 * debt + rng.normal(size=n)
    repaid = (rng.random(n) < expit(steep * (debt + rate))).astype(float)
    policy = QUICK.fit(RETURNED, {"debt": debt, "rate": rate, "repaid": repaid})
    told = policy.evaluate({"debt": debt[:200]}, {"rate": rate[:200]})
    truth = expit(steep * (debt + rate)[:200])
    assert np.abs(told.probability - truth).mean() < 0.05
    assert (told.upper - told.lower).mean() < 0.15


def test_what_never_varied_is_not_in_doubt():
    history = loans(200) | {"repaid": np.ones(200)}
    told = asked(QUICK.fit(RETURNED, history))
    np.testing.assert_allclose(told.probability, 1.0, atol=1e-6)
    assert (told.lower > 0.99).all()


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("k", [5, 10, 20])
def test_steps_to_log_odds_end_where_as_many_are_told_as_there_were(k, seed):
    rng = np.random.default_rng(seed)
    debt, rate = rng.normal(size=(2, 300))
    repaid = np.zeros(300)
    repaid[rng.choice(np.flatnonzero(debt > 1.0), k, replace=False)] = 1.0
    policy = QUICK.fit(RETURNED, {"debt": debt, "rate": rate, "repaid": repaid})
    told = policy.evaluate({"debt": debt}, {"rate": rate}).probability
    assert 0.5 * k / 300 < told.mean() < 2.0 * k / 300
    assert told[debt < 0.0].mean() < 0.02


def test_three_of_many_are_not_fewer_than_three():
    rng = np.random.default_rng(0)
    z, v = rng.normal(size=(2000, 1)), np.zeros(2000)
    v[np.argsort(z[:, 0])[-3:]] = 1.0
    history = {"debt": z[:, 0], "rate": rng.normal(size=2000), "repaid": v}
    policy = QUICK.fit(RETURNED, history)
    told = policy.evaluate({"debt": [0.0, 3.0]}, {"rate": [0.0, 0.0]}).probability
    assert told[1] > told[0]
