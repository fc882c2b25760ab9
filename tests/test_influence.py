"""How far residuals move a mean: as they are, or by their score."""

import numpy as np
import pytest

from forestall import Problem, StagedRehearsal
from forestall.influence import STRAY, Influence, tamed

LAWS = {
    "normal": lambda rng, n: rng.normal(size=n),
    "heavy": lambda rng, n: rng.standard_t(2, size=n),
    "skewed": lambda rng, n: np.exp(0.8 * rng.normal(size=n)),
    "two modes": lambda rng, n: rng.choice([-1.0, 1.0], n) + 0.4 * rng.normal(size=n),
    "contaminated": lambda rng, n: np.where(
        rng.random(n) < 0.15, 4.0 * rng.exponential(size=n), 0.5 * rng.normal(size=n)
    ),
}


def location(influence, v, start):
    """Where what moves the mean cancels out, by steps from some start."""
    for _ in range(20):
        start += float(influence(v - start).mean())
    return start


@pytest.mark.parametrize("seed", range(3))
def test_normal_residuals_are_heard_as_they_are(seed):
    r = LAWS["normal"](np.random.default_rng(seed), 1000)
    influence = Influence.of(r, r)
    low, high = tamed(r, STRAY)
    assert influence.is_plain
    np.testing.assert_allclose(influence(r), np.clip(r, low, high))


@pytest.mark.parametrize(
    ("law", "gain"),
    [("heavy", 0.85), ("skewed", 0.6), ("two modes", 0.5), ("contaminated", 0.8)],
)
def test_a_location_is_found_with_less_error_by_scores(law, gain):
    rng = np.random.default_rng(0)
    r = LAWS[law](rng, 1000)
    scored, plain = Influence.of(r, r), Influence.clipped(r)
    assert not scored.is_plain
    # Other records of the same law, fifty at a time.
    found = {
        name: np.std([location(each, LAWS[law](rng, 50), 0.0) for _ in range(300)])
        for name, each in {"scored": scored, "plain": plain}.items()
    }
    assert found["scored"] < np.sqrt(gain) * found["plain"]


@pytest.mark.parametrize("law", list(LAWS))
def test_a_unit_changes_nothing(law):
    r = LAWS[law](np.random.default_rng(1), 500)
    one, other = Influence.of(r, r), Influence.of(1e4 * r + 3.0, r)
    np.testing.assert_allclose(one(r), (other(1e4 * r + 3.0) - shift(one, other)) / 1e4)


def shift(one, other):
    """A clipped residual is heard with the level that it has."""
    return 3.0 if one.is_plain else 0.0


def test_what_strays_furthest_says_least():
    r = LAWS["heavy"](np.random.default_rng(2), 2000)
    influence = Influence.of(r, r)
    assert abs(influence(np.array([50.0]))[0]) < 0.5 * abs(
        influence(np.array([1.5]))[0]
    )


def test_a_step_moves_by_as_much_as_all_residuals_do():
    r = LAWS["contaminated"](np.random.default_rng(3), 4000)
    influence = Influence.of(r, r)
    moved = influence(r + 0.05).mean() - influence(r - 0.05).mean()
    assert moved == pytest.approx(0.1, rel=0.15)


@pytest.mark.parametrize(
    "v",
    [
        np.round(np.random.default_rng(0).normal(size=1000)),
        np.maximum(np.random.default_rng(0).normal(size=1000), 0.0),
        np.repeat(np.arange(5.0), 200),
    ],
    ids=["rounded", "cut off", "counted"],
)
def test_values_that_recur_are_heard_as_they_are(v):
    assert Influence.of(v - v.mean(), v).is_plain


def test_few_records_are_heard_as_they_are():
    r = LAWS["two modes"](np.random.default_rng(0), 60)
    assert Influence.of(r, r).is_plain


def test_residuals_without_a_spread_are_heard_as_they_are():
    r = np.r_[np.zeros(90), 5.0, -5.0]
    np.testing.assert_array_equal(Influence.of(r, np.arange(92.0))(r), r)


@pytest.mark.parametrize("law", ["two modes", "contaminated"])
def test_a_slope_is_found_with_less_error(law, monkeypatch):
    problem = Problem(
        context=["x"], actions={"a": (-1.0, 1.0)}, outcomes=["y"], desired=["y >= 0"]
    )
    errors = {True: [], False: []}
    for seed in range(3):
        rng = np.random.default_rng(seed)
        x, a = rng.normal(size=(2, 400))
        noise = LAWS[law](rng, 400)
        history = {"x": x, "a": a, "y": x - 0.5 * a + noise}
        for scored in errors:
            method = StagedRehearsal(n_draws=8, n_paths=16)
            with monkeypatch.context() as patch:
                if not scored:
                    patch.setattr(Influence, "of", lambda r, _: Influence.clipped(r))
                outcome = method.fit(problem, history).system.outcomes[0]
            z = np.stack([np.zeros(2), [-1.0, 1.0]], axis=1)
            low, high = outcome.mechanism(z, np.array([0]))[:, 0]
            unit = np.std(history["y"]) / np.std(a)
            errors[scored].append(abs(unit * (high - low) / 2.0 + 0.5))
    assert np.mean(errors[True]) < 0.8 * np.mean(errors[False])


def test_noise_with_unequal_modes_is_neither_misled_nor_overconfident():
    problem = Problem(
        context=["x"], actions={"a": (-1.0, 1.0)}, outcomes=["y"], desired=["y >= 0"]
    )
    off = []
    for seed in range(4):
        rng = np.random.default_rng(seed)
        x, a = rng.normal(size=(2, 300))
        noise = 5.0 * (rng.random(300) < 0.2) + 0.1 * rng.normal(size=300)
        y = x - 0.5 * a + noise
        method = StagedRehearsal(n_draws=24, n_paths=16)
        outcome = method.fit(problem, {"x": x, "a": a, "y": y}).system.outcomes[0]
        ends = outcome.mechanism(np.array([[0.0, -1.0], [0.0, 1.0]]), np.arange(25))
        slopes = np.std(y) / np.std(a) * (ends[1] - ends[0]) / 2.0
        off.append([abs(slopes[0] + 0.5), slopes[1:].std()])
    error, deviation = np.transpose(off)
    assert error.max() < 0.05
    assert np.sqrt(np.mean((error / deviation) ** 2)) < 2.0


def test_repeated_records_do_not_judge_themselves():
    rng = np.random.default_rng(0)
    for distinct, times in ((200, 25), (100, 50), (30, 166)):
        r = np.repeat(rng.normal(size=distinct), times)
        assert Influence.of(r, r).is_plain


def test_a_gap_between_two_narrow_modes_leaves_nothing_undefined():
    rng = np.random.default_rng(0)
    r = np.where(rng.random(5000) < 0.2, 5.0, 0.0) + 1e-12 * rng.normal(size=5000)
    influence = Influence.of(r, np.arange(5000.0))
    assert np.isfinite(influence(np.linspace(-1.0, 6.0, 1000))).all()
