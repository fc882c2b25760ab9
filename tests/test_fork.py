"""Variables that go one of two ways, and stories of outcomes that do."""

from dataclasses import replace

import numpy as np
import pytest
from scipy.special import expit
from scipy.stats import binom

import forestall
from forestall import Problem, Search, StagedRehearsal, store, tasks
from forestall.fork import Fork, ForkAt, Within, parted
from forestall.functions import Functions
from forestall.law import LawAt
from forestall.scale.supply import state_of, supplied
from forestall.simulate import simulate

QUICK = StagedRehearsal(
    n_draws=32,
    n_paths=32,
    search=Search(n_screened=64, n_kept=12, n_starts=2, n_steps=4, n_draws=8),
)
TREATED = Problem(
    context=["age"],
    covariates=["state"],
    actions={"dose": (-2.0, 2.0)},
    outcomes=["health"],
    desired=["0.3 <= health <= 1.7"],
    order=["age", "state", "dose", "health"],
)
GRID = np.array([[x, a] for x in (-0.8, 0.0, 0.8) for a in (-1.5, -0.7, 0.0, 0.7, 1.5)])


def cured(age, state, dose, rng):
    """The dose moves how often it helps, and nothing else."""
    helps = rng.random(np.shape(state)) < expit(2.0 * dose)
    return np.where(helps, 1.0, -1.0) + 0.3 * state + 0.2 * rng.normal(size=len(state))


def farther(age, state, dose, rng):
    """Age moves how often it helps, and the dose how much is won or lost."""
    helps = rng.random(np.shape(state)) < expit(2.0 * age)
    size = 1.0 + 0.3 * dose
    noise = 0.15 * rng.normal(size=len(state))
    return np.where(helps, size, -size) + 0.3 * state + noise


def none_or_some(age, state, dose, rng):
    """Most are not ill at all; a dose keeps more from it."""
    ill = rng.random(np.shape(state)) < expit(-1.0 - dose + age)
    return np.where(ill, 3.0 + 0.5 * state + 0.2 * rng.normal(size=len(state)), 0.0)


def records(effect, n, seed=0):
    rng = np.random.default_rng(seed)
    age, state = rng.uniform(-1.0, 1.0, n), rng.normal(size=n)
    dose = np.clip(0.4 * age + 0.4 * state + 0.6 * rng.normal(size=n), -2.0, 2.0)
    health = effect(age, state, dose, rng)
    return {"age": age, "state": state, "dose": dose, "health": health}


def truth(effect, ends, n=100_000):
    told = []
    for age, dose in GRID:
        rng = np.random.default_rng(1)
        y = effect(np.full(n, age), rng.normal(size=n), np.full(n, dose), rng)
        told.append(np.mean((ends[0] <= y) & (y <= ends[1])))
    return np.array(told)


def inputs(history):
    z = np.column_stack([history["age"], history["state"], history["dose"]])
    return (z - z.mean(axis=0)) / z.std(axis=0)


def asked(policy):
    return policy.evaluate({"age": GRID[:, 0]}, GRID[:, [1]])


@pytest.mark.parametrize("effect", [cured, farther, none_or_some])
@pytest.mark.parametrize("n", [300, 2000])
def test_two_ways_are_told_apart(effect, n):
    history = records(effect, n)
    upper = parted(inputs(history), history["health"]).upper
    middle = 0.3 * history["state"] if effect is not none_or_some else 1.0
    assert np.mean(upper == (history["health"] > middle)) > 0.99


@pytest.mark.parametrize("shift", ["none", "slope", "square"])
def test_noise_with_two_modes_is_no_fork(shift, rng):
    """Where inputs move the mean alone, residuals of a common mean say as much."""
    z = rng.normal(size=(1000, 3))
    mean = {"none": 0.0, "slope": z[:, 0] - z[:, 1], "square": z[:, 0] ** 2}[shift]
    noise = rng.choice([-0.9, 0.9], 1000) + 0.3 * rng.normal(size=1000)
    assert parted(z, mean + noise) is None


@pytest.mark.parametrize("law", ["normal", "uniform", "exponential", "poisson", "t"])
@pytest.mark.parametrize("louder", [False, True])
def test_noise_with_one_mode_is_no_fork(law, louder, rng):
    z = rng.normal(size=(800, 3))
    noise = {
        "normal": rng.normal(size=800),
        "uniform": rng.uniform(-1.0, 1.0, 800),
        "exponential": rng.exponential(size=800),
        "poisson": rng.poisson(3.0, 800).astype(float),
        "t": rng.standard_t(2.0, 800),
    }[law]
    v = z[:, 0] + noise * (np.exp(0.7 * z[:, 1]) if louder else 1.0)
    assert parted(z, v) is None
    assert parted(z, noise) is None


@pytest.mark.parametrize("n", [150, 300, 600])
def test_many_inputs_do_not_make_a_fork(n, rng):
    for _ in range(5):
        z = rng.normal(size=(n, 20))
        assert parted(z, z[:, 0] + rng.normal(size=n)) is None


def counted(n, seed, most):
    rng = np.random.default_rng(seed)
    debt = rng.normal(size=n)
    rate = 0.7 * debt + rng.normal(size=n)
    came = rng.binomial(most, coming(debt, rate)).astype(float)
    return {"debt": debt, "rate": rate, "came": came}


def coming(debt, rate):
    return expit(0.5 - 1.5 * (rate - 0.5) ** 2 - debt)


@pytest.mark.parametrize(("most", "least"), [(2, 2), (4, 3)])
def test_what_has_a_few_values_is_told_one_by_one(most, least):
    problem = Problem(
        context=["debt"],
        actions={"rate": (-2.0, 2.0)},
        outcomes=["came"],
        desired=[f"came >= {least}"],
    )
    true = binom.sf(least - 1, most, coming(*GRID.T))
    policy = QUICK.fit(problem, counted(1000, 0, most))
    assert policy.system.outcomes[0].law.n_ways == most + 1
    told = policy.evaluate({"debt": GRID[:, 0]}, GRID[:, [1]])
    errors = told.probability - true
    held = (told.lower <= true) & (true <= told.upper)
    assert abs(np.mean(errors)) < 0.015
    assert np.sqrt(np.mean(np.square(errors))) < 0.045
    assert np.mean(held) > 0.7


def test_a_value_of_a_few_that_hardly_any_has_is_no_way(rng):
    z, v = rng.normal(size=(500, 2)), np.zeros(500)
    v[:8], v[8:12] = 1.0, 2.0
    assert parted(z, v) is None


def test_a_few_wrong_entries_do_not_hide_that_there_are_few_values():
    history = counted(1000, 0, 2)
    z = np.column_stack([history["debt"], history["rate"]])
    history["came"][:3] = 99.0
    upper = parted(z, history["came"]).upper
    assert 100 < upper.sum() < 900


@pytest.mark.parametrize("n", [50, 250])
def test_few_records_do_not_tell_three_values_apart(n, rng):
    assert parted(rng.normal(size=(n, 1)), rng.integers(0, 3, n) * 1.0) is None


def costs(x, a, rng):
    """Nothing, or about seven and now and then far more."""
    free = rng.random(len(x)) < expit(0.5 + x - a)
    return np.where(free, 0.0, np.exp(1 + 0.5 * x + 0.4 * rng.normal(size=len(x))))


def capped(x, a, rng):
    """A score that ends at one."""
    score = x + a - 0.4 * a**2 + 0.6 * rng.normal(size=len(x))
    return np.minimum(1.0, score)


@pytest.mark.parametrize(("effect", "desired"), [(costs, "<= 2"), (capped, ">= 0.9")])
def test_an_end_that_many_share_is_a_way_of_its_own(effect, desired):
    problem = Problem(
        context=["x"],
        actions={"a": (-2.0, 2.0)},
        outcomes=["y"],
        desired=[f"y {desired}"],
    )
    true = np.array(
        [
            problem.region.contains(
                effect(np.full(100_000, x), a, np.random.default_rng(1))[:, None]
            ).mean()
            for x, a in GRID
        ]
    )
    rng = np.random.default_rng(0)
    x = rng.normal(size=1000)
    a = 0.6 * x + rng.normal(size=1000)
    policy = QUICK.fit(problem, {"x": x, "a": a, "y": effect(x, a, rng)})
    assert policy.system.outcomes[0].law.n_ways == 2
    told = policy.evaluate({"x": GRID[:, 0]}, GRID[:, [1]])
    errors = told.probability - true
    assert np.sqrt(np.mean(np.square(errors))) < 0.06


def cut_off(x, a, rng):
    """A cost that would be below zero for some is none for them."""
    return np.maximum(0.0, 1.0 + x - 1.2 * a + rng.normal(size=len(x)))


def mostly_unchanged(x, a, rng):
    """For a fifth nothing changes, else it gets better or worse."""
    still = rng.random(len(x)) < 0.2
    return np.where(still, 0.0, x + a + rng.normal(size=len(x)))


def scored(x, a, rng):
    """A score of whole points from 0 to 10."""
    score = 6.0 + 2.0 * x + 1.5 * a + 2.0 * rng.normal(size=len(x))
    return np.clip(np.round(score), 0.0, 10.0)


def rarely_dear(x, a, rng):
    """Hardly anybody has a cost."""
    dear = rng.random(len(x)) < np.clip(0.04 * (1.0 + 0.5 * a), 0.0, 1.0)
    return np.where(dear, 1.0 + rng.gamma(2.0, size=len(x)), 0.0)


SHARED = [
    (cut_off, ["<= 0"], 1000),
    (mostly_unchanged, [">= 0", "> 0"], 1000),
    (scored, [">= 10"], 1000),
    (rarely_dear, ["<= 0"], 1000),
    (costs, ["<= 0"], 120),
]


@pytest.mark.parametrize(("effect", "desires", "n"), SHARED)
def test_how_often_a_shared_value_is_reached_is_told_without_bias(effect, desires, n):
    """Before, what strayed from another way reached beyond, by up to .2."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=n)
    a = 0.6 * x + rng.normal(size=n)
    problem = Problem(
        context=["x"],
        actions={"a": (-2.0, 2.0)},
        outcomes=["y"],
        desired=[f"y {desires[0]}"],
    )
    policy = QUICK.fit(problem, {"x": x, "a": a, "y": effect(x, a, rng)})
    at = GRID[np.abs(GRID[:, 1] - 0.6 * GRID[:, 0]) < 1.5]
    outcomes = [effect(*np.tile(each, (100_000, 1)).T, rng)[:, None] for each in at]
    for desired in desires:
        asked = policy.for_region([f"y {desired}"])
        true = [asked.problem.region.contains(y).mean() for y in outcomes]
        told = asked.evaluate({"x": at[:, 0]}, at[:, [1]])
        errors = told.probability - np.array(true)
        few = n < 1000
        assert abs(np.mean(errors)) < (0.06 if few else 0.03)
        assert np.sqrt(np.mean(errors**2)) < (0.15 if few else 0.06)


def test_nothing_lies_beyond_an_end():
    rng = np.random.default_rng(0)
    x = rng.normal(size=500)
    a = 0.6 * x + rng.normal(size=500)
    problem = Problem(
        context=["x"], actions={"a": (-2.0, 2.0)}, outcomes=["y"], desired=["y <= 0"]
    )
    policy = QUICK.fit(problem, {"x": x, "a": a, "y": cut_off(x, a, rng)})
    seen = simulate(policy, {"x": -0.5}, {"a": 1.0}).outcomes
    assert seen.min() > -1e-6
    assert 0.5 < np.mean(seen < 1e-6) < 1.0


def test_both_ends_may_be_ways(rng):
    z = rng.normal(size=(1000, 1))
    v = np.clip(z[:, 0] + rng.normal(size=1000), -1.0, 0.8)
    found = parted(z, v)
    np.testing.assert_array_equal(found.upper, v == 0.8)
    np.testing.assert_array_equal(found.limits, [[-np.inf, 0.8], [-np.inf, np.inf]])
    below = parted(z[~found.upper], v[~found.upper])
    np.testing.assert_array_equal(below.upper, v[~found.upper] > -1.0)
    np.testing.assert_array_equal(below.limits, [[-np.inf, np.inf], [-1.0, np.inf]])


def test_a_value_between_others_is_the_end_of_those_below(rng):
    z = rng.normal(size=(1000, 1))
    v = z[:, 0] + rng.normal(size=1000)
    v[np.abs(v) < 0.3] = 0.0
    found = parted(z, v)
    np.testing.assert_array_equal(found.upper, v > 0.0)
    np.testing.assert_array_equal(found.limits, [[-np.inf, np.inf], [0.0, np.inf]])
    below = parted(z[~found.upper], v[~found.upper])
    np.testing.assert_array_equal(below.upper, v[~found.upper] == 0.0)


@pytest.mark.parametrize("step", [0.1, 0.25, 0.5])
def test_rounded_values_are_no_ways(step, rng):
    z = rng.normal(size=(1000, 1))
    for v in (z[:, 0] + rng.normal(size=1000), rng.uniform(-3.0, 3.0, 1000)):
        assert parted(z, step * np.round(v / step)) is None


def test_few_records_and_no_inputs_are_no_fork(rng):
    v = np.where(rng.random(60) < 0.5, 1.0, -1.0) + 0.1 * rng.normal(size=60)
    assert parted(rng.normal(size=(60, 2)), v) is None
    assert parted(np.empty((500, 0)), np.tile(v, 9)[:500]) is None


@pytest.mark.parametrize("name", ["bank", "non-syn1", "bermuda", "random-3"])
def test_hardly_any_benchmark_has_forks(name):
    task = tasks.get(name)
    data = supplied(task.problem, task.history(1000, seed=0), seed=0).sample
    state = state_of(data)
    for k in range(1, state.shape[1]):
        assert parted(state[:, :k], state[:, k]) is None


def fork_at(rng, share):
    grid = np.linspace(-1.0, 1.0, 201)
    law = LawAt(grid, np.linspace(0.0, 1.0, 201), np.ones(400), None)
    low, high = np.full(400, -2.0), 2.0 + 0.5 * rng.normal(size=400)
    return ForkAt(np.full(400, share), (low, high), (law, law))


@pytest.mark.parametrize("share", [1e-9, 0.2, 0.5, 1.0 - 1e-9])
def test_a_fork_has_as_much_below_a_value_as_its_quantiles_say(rng, share):
    fork, u = fork_at(rng, share), rng.uniform(0.001, 0.999, 400)
    np.testing.assert_allclose(fork.cdf(fork.quantile(u)), u, atol=1e-3)


@pytest.mark.parametrize(("lower", "upper"), [(-0.4, np.inf), (-np.inf, 0.6)])
def test_a_law_within_limits_is_the_law_in_proportion(rng, lower, upper):
    law = fork_at(rng, 0.5).laws[0]
    ends = np.full(400, lower), np.full(400, upper)
    within, u = Within.of(law, *ends), rng.uniform(0.001, 0.999, 400)
    t = within.quantile(u)
    assert (t >= lower).all()
    assert (t <= upper).all()
    np.testing.assert_allclose(within.cdf(t), u, atol=1e-6)
    kept = np.clip(law.cdf(ends[1]) - law.cdf(ends[0]), 0.0, 1.0)
    inside = (np.abs(t - lower) > 0.02) & (np.abs(t - upper) > 0.02)
    slope = law.density(t) / kept
    np.testing.assert_allclose(within.density(t)[inside], slope[inside])


@pytest.mark.parametrize(("lower", "upper"), [(3.0, np.inf), (-np.inf, -3.0)])
def test_a_law_that_lies_beyond_its_limit_is_at_it(rng, lower, upper):
    law = fork_at(rng, 0.5).laws[0]
    within = Within.of(law, np.full(400, lower), np.full(400, upper))
    end = lower if np.isfinite(lower) else upper
    t = within.quantile(rng.uniform(0.001, 0.999, 400))
    np.testing.assert_array_equal(t, end)
    assert (within.cdf(np.full(400, end + 1e-6)) == 1.0).all()
    assert (within.cdf(np.full(400, end - 1e-6)) == 0.0).all()
    assert (within.density(t) == 0.0).all()


def test_a_fork_is_steep_where_its_share_rises(rng):
    fork, t = fork_at(rng, 0.3), rng.uniform(-4.0, 4.0, 400)
    # Where one of the ways begins or ends, the slope jumps.
    edges = [off + end for off in fork.offsets for end in (-1.0, 1.0)]
    inside = np.min([np.abs(t - edge) for edge in edges], axis=0) > 0.02
    rise = (fork.cdf(t + 1e-4) - fork.cdf(t - 1e-4)) / 2e-4
    np.testing.assert_allclose(fork.density(t)[inside], rise[inside], atol=1e-6)


@pytest.mark.parametrize(
    ("effect", "ends"), [(cured, (0.3, 1.7)), (none_or_some, (-0.5, 0.5))]
)
def test_what_follows_a_fork_is_told_without_bias(effect, ends):
    """With a common mean and residuals about it this was off by up to .18."""
    problem = replace(TREATED, desired=[f"{ends[0]} <= health <= {ends[1]}"])
    true, off, held = truth(effect, ends), [], []
    for seed in range(2):
        policy = QUICK.fit(problem, records(effect, 600, seed))
        told = asked(policy)
        off.append(told.probability - true)
        held.append((told.lower <= true) & (true <= told.upper))
    assert np.abs(np.mean(off)) < 0.02
    assert np.abs(off).max() < 0.12
    assert np.mean(held) > 0.75


def test_what_moves_the_ways_apart_is_learned():
    true = truth(farther, (0.3, 1.7))
    told = asked(QUICK.fit(TREATED, records(farther, 800)))
    assert np.abs(told.probability - true).mean() < 0.04


def test_advice_moves_the_share_of_the_better_way():
    decisions = QUICK.fit(TREATED, records(cured, 600)).recommend({"age": [0.0]})
    assert decisions.verdict == ["act"]
    assert decisions.actions[0, 0] > 1.0


def test_three_ways_are_a_fork_of_which_one_forks_again(rng):
    history = records(cured, 600)
    third = rng.random(600) < expit(history["age"])
    history["health"] += np.where((history["health"] > 0.0) & third, 5.0, 0.0)
    law = QUICK.fit(TREATED, history).system.outcomes[0].law
    assert isinstance(law, Fork)
    assert [isinstance(way.law, Fork) for way in law.ways] == [True, False]


def test_a_covariate_may_fork(rng):
    """A dose that helps or not, and a covariate between that shows it."""
    problem = Problem(
        context=["age"],
        covariates=["shown"],
        actions={"dose": (-2.0, 2.0)},
        outcomes=["health"],
        desired=["health >= 0.5"],
        order=["age", "dose", "shown", "health"],
    )
    history = records(cured, 1000)
    shown = history["health"]
    columns = {"age": history["age"], "dose": history["dose"], "shown": shown}
    columns["health"] = shown + 0.5 * rng.normal(size=1000)
    policy = QUICK.fit(problem, columns)
    assert isinstance(policy.system.nodes[-1].law, Fork)
    y = lambda a, n=100_000: (  # noqa: E731
        np.where(np.random.default_rng(2).random(n) < expit(2 * a), 1.0, -1.0)
        + np.hypot(np.hypot(0.3, 0.2), 0.5) * np.random.default_rng(3).normal(size=n)
    )
    doses = np.array([-0.8, 0.0, 0.8])
    told = policy.evaluate({"age": np.zeros(3)}, doses[:, None])
    true = [np.mean(y(a) >= 0.5) for a in doses]
    np.testing.assert_allclose(told.probability, true, atol=0.1)


@pytest.fixture(scope="module")
def policy():
    return QUICK.fit(TREATED, records(cured, 400))


def test_what_a_fork_consists_of_is_drawn_with_seeds_of_its_own(monkeypatch):
    seeds, made = [], Functions._child

    def spied(self, k, state):
        child = made(self, k, state)
        seeds.append(child.parts.seed)
        return child

    monkeypatch.setattr(Functions, "_child", spied)
    history = counted(1000, 0, 4)
    problem = Problem(
        context=["debt"],
        actions={"rate": (-2.0, 2.0)},
        outcomes=["came"],
        desired=["came >= 2"],
    )
    QUICK.fit(problem, history)
    assert len(seeds) >= 6
    assert len(set(seeds)) == len(seeds)


def test_a_fork_with_stray_values_is_not_said_to_be_misjudged(rng):
    x = rng.uniform(-1.0, 1.0, 500)
    a = rng.normal(size=500)
    cost = 1000.0 + 100.0 * x + 80.0 * rng.normal(size=500)
    cost = np.where(rng.random(500) < expit(a), cost, 0.0)
    cost[np.flatnonzero(cost == 0.0)[:3]] = [0.5, 0.5, 1.0]
    problem = Problem(
        context=["x"], actions={"a": (-2.0, 2.0)}, outcomes=["y"], desired=["y <= 500"]
    )
    told = QUICK.fit(problem, {"x": x, "a": a, "y": cost}).diagnostics()
    (fit,) = [fit for fit in told.mechanisms if fit.name == "y"]
    assert fit.n_ways == 2
    assert fit.misjudged is None
    assert fit.inside == pytest.approx(0.9, abs=0.05)


def test_diagnostics_tell_of_a_fork(policy):
    said = str(policy.diagnostics())
    assert "it goes one of 2 ways" in said
    (health,) = [fit for fit in policy.diagnostics().mechanisms if fit.name == "health"]
    assert 0.8 < health.inside < 0.98


def test_a_policy_with_a_fork_survives_saving(policy, tmp_path):
    loaded = store.load(policy.save(tmp_path / "forked.forestall"))
    np.testing.assert_array_equal(asked(loaded).upper, asked(policy).upper)


def test_forks_of_large_histories_come_from_the_sample(recwarn):
    policy = forestall.StagedRehearsal(n_draws=16, n_paths=16, search=QUICK.search).fit(
        TREATED, records(cured, 6000)
    )
    assert isinstance(policy.system.outcomes[0].law, Fork)
    true = truth(cured, (0.3, 1.7))
    assert np.abs(asked(policy).probability - true).mean() < 0.03


def test_ablations_have_no_forks():
    history = records(cured, 300)
    for method in (
        StagedRehearsal(local_laws=False),
        StagedRehearsal(recentred=False),
    ):
        law = method.fit(TREATED, history).system.outcomes[0].law
        assert not isinstance(law, Fork)
