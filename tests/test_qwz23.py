"""QWZ23: the sweep, the mixed-integer program, the band, and the rounds."""

import runpy
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import beta, multivariate_normal

from forestall import (
    DataError,
    FitError,
    ForestallWarning,
    Polytope,
    Problem,
    RehearsalGraph,
    SpecError,
    tasks,
)
from forestall.baselines import QWZ23
from forestall.baselines.bayes import Belief
from forestall.baselines.cuts import Cuts
from forestall.baselines.milp import Program, most_inside
from forestall.baselines.online import Inquiry
from forestall.baselines.qwz23 import pac_band
from forestall.baselines.sweep import climb, deepest, sweep
from worlds import DOSING, LENDING, contexts_of, dosing, lending

# Some worlds here are bent on purpose; that it is said is tested elsewhere.
pytestmark = pytest.mark.filterwarnings("ignore:The records are not linear")

EXAMPLE = Path(__file__).parents[1] / "docs" / "examples" / "rounds.py"
PLENTY = 30.0
REGIONS = {
    "half open": ["repaid >= 0.6"],
    "unbounded": ["repaid >= 0.6", "roi >= 0.3"],
    "a box": ["0.3 <= repaid <= 0.8", "0.2 <= roi <= 0.9"],
    "slanted": ["repaid + roi >= 0.9", "repaid - 2*roi <= 0.3"],
    "a triangle": ["repaid >= 0.3", "roi >= 0.2", "repaid + roi <= 1.5"],
    "a thin strip": ["0.5 <= repaid + roi <= 0.9"],
}


def random_cuts(seed, n, d_a, d_y=2):
    rng = np.random.default_rng(seed)
    region = Polytope(
        np.concatenate([np.eye(d_y), -np.eye(d_y)]), np.ones(2 * d_y) * 0.7
    )
    base = rng.normal(0, 1.5, size=(n, d_y))
    gain = rng.normal(size=(d_y, d_a)) + 0.3 * rng.normal(size=(n, d_y, d_a))
    return Cuts.of(region, base, gain, -np.ones(d_a), 2.0 * np.ones(d_a))


def outcomes_inside(cuts, z):
    """Count draw by draw and row by row."""
    return sum(
        all(a @ z <= h + 1e-9 for a, h in zip(rows, room, strict=True))
        for rows, room in zip(cuts.slopes, cuts.room, strict=True)
    )


@settings(max_examples=40)
@given(st.integers(0, 10_000), st.integers(1, 20))
def test_the_sweep_equals_brute_force(seed, n):
    cuts = random_cuts(seed, n, 1)
    ends = (cuts.room / cuts.slopes[:, :, 0]).ravel()
    ends = np.sort(np.append(ends[(ends > -1) & (ends < 2)], [-1.0, 2.0]))
    tried = np.concatenate([ends, 0.5 * (ends[1:] + ends[:-1])])
    most = max(outcomes_inside(cuts, np.array([z])) for z in tried)
    cell = sweep(cuts)
    assert cell.count == most
    assert outcomes_inside(cuts, cell.centre) == most
    assert -1 <= cell.centre[0] <= 2


def test_of_cells_equally_deep_the_widest_is_taken_and_its_centre():
    # Draws that succeed on [0, 1], on [2, 5] and on [4, 9].
    slopes = np.tile(np.array([[1.0], [-1.0]]), (3, 1, 1))
    room = np.array([[1.0, 0.0], [5.0, -2.0], [9.0, -4.0]])
    box = np.array([-10.0]), np.array([10.0])
    assert sweep(Cuts(slopes, room, *box)).centre == pytest.approx([4.5])
    apart = Cuts(slopes[:2], room[:2], *box)
    assert sweep(apart).centre == pytest.approx([3.5])
    assert sweep(apart).count == 1


def test_an_action_without_effect_has_the_whole_box_as_its_cell():
    cuts = Cuts(np.zeros((5, 2, 1)), np.ones((5, 2)), np.array([-1.0]), np.array([3.0]))
    assert sweep(cuts).count == 5
    assert sweep(cuts).centre == pytest.approx([1.0])
    barred = Cuts(-cuts.slopes, -cuts.room, cuts.lower, cuts.upper)
    assert sweep(barred).count == 0


def test_a_region_out_of_reach_is_approached():
    cuts = Cuts(
        np.full((3, 1, 1), -1.0), np.full((3, 1), -9.0), *np.array([[0.0], [1]])
    )
    assert sweep(cuts).count == 0
    assert sweep(cuts).centre == pytest.approx([1.0])
    both = Cuts(
        np.full((3, 1, 2), -1.0), np.full((3, 1), -9.0), np.zeros(2), np.ones(2)
    )
    assert most_inside(both, PLENTY).centre == pytest.approx([1.0, 1.0])


@settings(max_examples=12)
@given(st.integers(0, 10_000), st.integers(2, 20))
def test_the_program_is_at_least_as_good_as_any_sampled_grid(seed, n):
    cuts = random_cuts(seed, n, 2)
    cell = most_inside(cuts, PLENTY)
    line = np.linspace(-1, 2, 31)
    grid = np.stack(np.meshgrid(line, line), axis=-1).reshape(-1, 2)
    assert cell.proven
    assert cell.count >= cuts.counts(grid).max()
    assert cell.count == outcomes_inside(cuts, cell.centre)


@settings(max_examples=12)
@given(st.integers(0, 10_000))
def test_the_program_with_one_action_is_the_sweep(seed):
    cuts = random_cuts(seed, 25, 1)
    program = Program.of(cuts, at_least=0)
    decided = int((cuts.slopes @ np.zeros(1) <= cuts.room).all(axis=1).sum())
    solved = program.solved(PLENTY)
    assert cuts.inside(solved.x[:1]).sum() == sweep(cuts).count >= decided


@settings(max_examples=20)
@given(st.integers(0, 10_000))
def test_the_constants_are_valid_and_tight(seed):
    cuts = random_cuts(seed, 20, 3)
    program = Program.of(cuts, at_least=0)
    corners = np.stack(np.meshgrid(*[[-1.0, 2.0]] * 3), axis=-1).reshape(-1, 3)
    over = np.einsum("nla,ca->nlc", program.cuts.slopes, corners)
    over = (over - program.cuts.room[:, :, None]).max(axis=2)
    np.testing.assert_allclose(program.alpha, np.maximum(over, 0.0), atol=1e-12)


def test_the_centre_is_as_far_from_every_side_as_can_be():
    cuts = random_cuts(3, 40, 2)
    cell = most_inside(cuts, PLENTY)
    inside = cuts.inside(cell.centre)

    def room_around(z):
        a, h = cuts.slopes[inside].reshape(-1, 2), cuts.room[inside].ravel()
        sides = np.concatenate([(h - a @ z) / np.linalg.norm(a, axis=1), z + 1, 2 - z])
        return sides.min()

    shifts = np.random.default_rng(0).normal(0, 0.05, size=(200, 2))
    most = max(room_around(cell.centre + shift) for shift in shifts)
    assert room_around(cell.centre) >= most - 1e-9


def test_climbing_never_leaves_the_box_and_comes_close_to_the_best():
    for seed in range(4):
        cuts = random_cuts(seed, 20, 2)
        z = climb(cuts)
        assert ((z >= -1) & (z <= 2)).all()
        assert cuts.inside(z).sum() >= 0.9 * most_inside(cuts, PLENTY).count
    assert deepest(cuts, z, np.eye(2)[0]).count >= cuts.inside(z).sum()


def test_when_time_is_up_the_best_so_far_is_taken_and_flagged():
    history = dosing(300)
    policy = QWZ23(time_limit=1e-6).fit(DOSING, history)
    contexts = contexts_of(DOSING, history, slice(0, 4))
    with pytest.warns(ForestallWarning, match="out of time for 4 of 4 contexts"):
        told = policy.recommend(contexts)
    assert all("not proven to be the best" in reason for reason in told.reason)
    assert (told.probability > told.no_action).all()
    proven = QWZ23(n_worlds=50).fit(DOSING, history).recommend(contexts)
    assert not any("out of time" in reason for reason in proven.reason)


def test_a_solver_that_breaks_down_is_asked_again_and_then_it_is_said(monkeypatch):
    asked = []

    def broken(*args, options, **kwargs):
        asked.append(options["presolve"])
        return SimpleNamespace(status=4, x=None, message="Numerical difficulties.")

    monkeypatch.setattr("scipy.optimize.milp", broken)
    policy = QWZ23().fit(DOSING, dosing(100))
    with pytest.raises(FitError, match=r"also without presolve: Numerical diffic.*Use"):
        policy.recommend({"age": 50.0})
    assert asked == [True, False]


@given(st.integers(1, 500), st.data(), st.sampled_from([0.01, 0.05, 0.2]))
def test_the_band_is_the_tighter_of_two_bounds(n, data, delta):
    failures = data.draw(st.integers(0, n))
    low, high = pac_band(np.array([failures]), n, delta)
    p, q = 1 - failures / n, delta / (2 * n)
    reach = np.sqrt(np.log(2 / delta) / (2 * n))
    exact_low = (
        0.0 if failures == n else 1 - beta.ppf(1 - q, failures + 1, n - failures)
    )
    exact_high = 1.0 if failures == 0 else 1 - beta.ppf(q, failures, n - failures + 1)
    assert low[0] == pytest.approx(max(exact_low, p - reach), abs=1e-7)
    assert high[0] == pytest.approx(min(exact_high, p + reach), abs=1e-7)
    assert 0 <= low[0] <= p <= high[0] <= 1


def test_the_band_misses_no_more_often_than_it_says():
    rng = np.random.default_rng(0)
    for p in (0.02, 0.5, 0.9):
        low, high = pac_band(rng.binomial(100, 1 - p, size=4000), 100, 0.05)
        assert ((low > p) | (high < p)).mean() <= 0.05


def test_beliefs_are_those_of_bayesian_ridge():
    from sklearn.linear_model import BayesianRidge

    rng = np.random.default_rng(0)
    z = rng.normal(2.0, 1.0, size=(60, 2))
    v = z @ [1.0, -0.5] + 3.0 + rng.normal(0, 0.3, 60)
    belief, fit = Belief.of(z, v), BayesianRidge().fit(z, v)
    draws = belief.drawn(rng.standard_normal((20_000, 2)))
    np.testing.assert_allclose(belief.slopes, fit.coef_, atol=1e-9)
    np.testing.assert_allclose(draws.mean(axis=0), fit.coef_, atol=2e-3)
    np.testing.assert_allclose(np.cov(draws.T), fit.sigma_, atol=2e-4)
    assert belief.sd == pytest.approx(fit.alpha_**-0.5)
    assert belief.intercepts(belief.slopes, np.zeros(())) == pytest.approx(
        fit.intercept_
    )


def test_noise_that_is_shared_within_a_clique_is_learned():
    rng = np.random.default_rng(0)
    n, cov = 4000, np.array([[1.0, 0.8], [0.8, 1.0]])
    x, a = rng.normal(size=(2, n))
    y = np.stack([x + a, x - a], axis=1) + rng.multivariate_normal([0, 0], cov, n)
    arrows = [("x", "y1"), ("x", "y2"), ("a", "y1"), ("a", "y2"), ("x", "a")]
    problem = Problem(
        context=["x"],
        actions={"a": (-2.0, 2.0)},
        outcomes=["y1", "y2"],
        desired=["y1 >= 0", "y2 >= 0"],
        graph=RehearsalGraph(arrows, [("y1", "y2")]),
    )
    history = {"x": x, "a": a, "y1": y[:, 0], "y2": y[:, 1]}
    policy = QWZ23(n_fresh=20_000).fit(problem, history)
    told = policy.evaluate({"x": [0.0]}, {"a": 0.0})
    both = multivariate_normal([0, 0], cov).cdf([0, 0])
    assert told.probability[0] == pytest.approx(both, abs=0.02)
    scales = policy.schema.outcomes.scales
    draws = policy._draws[0].covariance * scales[:, None] * scales
    np.testing.assert_allclose(draws.mean(axis=0), cov, atol=0.06)
    assert draws[:, 0, 1].std() > 0


@pytest.mark.parametrize("region", REGIONS.values(), ids=REGIONS.keys())
def test_every_region_is_accepted(region):
    policy = QWZ23(n_worlds=300).fit(LENDING, lending(200)).for_region(region)
    contexts = contexts_of(LENDING, lending(8, seed=4), slice(None))
    told = policy.recommend(contexts)
    rates = np.linspace(0, 1, 21)
    best = np.max([policy.probability(contexts, {"rate": r}) for r in rates], axis=0)
    assert (told.probability >= best - 0.05).all()
    assert (told.lower <= told.probability).all()
    assert (told.probability <= told.upper).all()


def test_another_region_is_answered_as_if_it_had_been_fitted_for_it():
    method, desired = QWZ23(n_worlds=100), ["roi >= 0.5"]
    moved = method.fit(LENDING, lending(150)).for_region(desired)
    problem = Problem.from_dict(LENDING.to_dict() | {"desired": desired})
    fitted = method.fit(problem, lending(150))
    contexts = contexts_of(LENDING, lending(5, seed=4), slice(None))
    one, other = moved.recommend(contexts), fitted.recommend(contexts)
    np.testing.assert_allclose(one.actions, other.actions)
    assert one.reason == other.reason


def test_graphs_of_several_time_steps_are_refused_openly():
    graph = "digraph { {x a} -> y; x -> a }"
    problem = Problem(
        context=["x"],
        actions={"a": (-1, 1)},
        outcomes=["y"],
        desired=["y >= 0"],
        graph=[graph, graph],
    )
    rng = np.random.default_rng(0)
    history = {name: rng.normal(size=30) for name in ("x", "a", "y")}
    with pytest.raises(SpecError, match=r"Choose a step with problem\.at"):
        QWZ23().fit(problem, history)


@pytest.mark.parametrize(
    ("field", "text"),
    [
        ({"delta": 1.0}, r"delta between 0 and 1, both excluded; got 1\.0"),
        ({"threshold": 70.0}, "threshold between 0 and 1, both excluded; got 70"),
        ({"time_limit": 0.0}, r"time_limit above zero; got 0\.0"),
        ({"n_worlds": 0}, "n_worlds above zero and whole; got 0"),
        ({"n_fresh": True}, "n_fresh above zero and whole; got True"),
    ],
)
def test_hyperparameters_are_checked(field, text):
    with pytest.raises(SpecError, match=text):
        QWZ23(**field)


def test_on_its_home_ground_it_comes_close_to_the_oracle():
    task = tasks.get("lin-syn1")
    policy = QWZ23().fit(task.problem_with_graph(), task.history(500, 1))
    contexts = task.contexts(3, 2)
    told = policy.recommend(contexts)
    for i, decision in enumerate(told):
        x = {name: float(v[i]) for name, v in contexts.items()}
        assert task.success(x, decision.actions, 4000, 3) > 0.92
        assert decision.verdict == "act"


def test_an_inquiring_action_teaches_most_among_those_that_succeed():
    policy = QWZ23(n_worlds=200, threshold=0.6).fit(DOSING, dosing(150))
    x = policy.schema.encode_contexts({"age": 50.0}).x[0]
    cuts = policy._cuts(x)
    inquiry = Inquiry.of(policy.model, policy.beliefs.equations, x)
    best = policy._cell(x).centre
    a = policy.choices(x[None])[0].a
    assert cuts.inside(a).mean() >= 0.6
    assert inquiry.information(np.stack([a]))[0] > inquiry.information(best[None])[0]
    rng = np.random.default_rng(0)
    others = rng.uniform(cuts.lower, cuts.upper, size=(400, 2))
    others = others[cuts.counts(others) >= 0.6 * 200]
    assert inquiry.information(a[None])[0] >= inquiry.information(others).max() - 0.01


def test_information_is_that_of_a_gaussian_update():
    rng = np.random.default_rng(1)
    z, v = rng.normal(size=(50, 2)), rng.normal(size=50)
    belief = Belief.of(z, v)
    point = np.array([0.7, -2.0])
    design = np.append(1.0, point - belief.z_mean)
    prior = np.zeros((3, 3))
    prior[0, 0] = belief.sd**2 / belief.n
    prior[1:, 1:] = belief.covariance
    after = np.linalg.inv(
        np.linalg.inv(prior) + np.outer(design, design) / belief.sd**2
    )
    gained = 0.5 * (np.linalg.slogdet(prior)[1] - np.linalg.slogdet(after)[1])
    told = 0.5 * np.log1p(belief.surprise(point[None])[0])
    assert told == pytest.approx(gained)


def test_a_threshold_out_of_reach_says_what_is_reached():
    policy = QWZ23(n_worlds=100, threshold=0.99).fit(DOSING, dosing(150))
    told = policy.recommend({"age": 50.0})
    assert "The threshold of 99% is out of reach: the best action" in told.reason[0]
    plain = QWZ23(n_worlds=100).fit(DOSING, dosing(150)).recommend({"age": 50.0})
    np.testing.assert_allclose(told.actions, plain.actions)


def test_records_with_set_actions_teach_the_outcome_but_not_the_usual_action():
    policy = QWZ23(n_worlds=100).fit(LENDING, lending(60))
    more = lending(40, seed=9) | {"rate": np.linspace(0, 1, 40)}
    later = policy.updated(more)
    for equation, old, new in zip(
        policy.model.equations,
        policy.beliefs.equations,
        later.beliefs.equations,
        strict=True,
    ):
        assert new.n == (60 if equation.name == "rate" else 100)
        if equation.name == "rate":
            np.testing.assert_array_equal(old.slopes, new.slopes)
    one = policy.updated({name: float(v[0]) for name, v in more.items()})
    assert one.beliefs.equations[-1].n == 61
    assert policy.beliefs.equations[-1].n == 60
    with pytest.raises(DataError, match="'roi'"):
        policy.updated({k: v for k, v in more.items() if k != "roi"})


def test_the_example_of_rounds_runs_and_learns(capsys):
    runpy.run_path(str(EXAMPLE), run_name="__main__")
    lines = capsys.readouterr().out.splitlines()
    uncertain = [float(line.split()[-1]) for line in lines if line.startswith("round")]
    assert len(uncertain) >= 10
    assert uncertain[-1] < 0.7 * uncertain[0]
