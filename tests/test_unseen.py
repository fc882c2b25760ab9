"""The figures of decisions, on structural models that nobody chose."""

import warnings

import numpy as np
import pytest

import forestall
from forestall import ForestallWarning, tasks

# Models beyond those by which anything was chosen.
MODELS = range(100, 104)
CONTEXTS, DRAWS = 8, 2000

# Fits that take minutes: one process makes them for all tests.
pytestmark = pytest.mark.xdist_group("unseen")


def decided(seed):
    """What was decided, and what it is truly worth."""
    task = tasks.get(f"random-{seed}")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ForestallWarning)
        policy = forestall.fit(task.problem, task.history(1000, seed=seed))
        table = task.contexts(CONTEXTS, seed=seed)
        told = policy.recommend(table)
    rows = np.column_stack(list(table.values()))
    pairs = list(zip(rows, told.actions, strict=True))
    return told, {
        "true": np.array([task.success(x, a, DRAWS, seed=1) for x, a in pairs]),
        "none": np.array([task.success(x, None, DRAWS, seed=2) for x in rows]),
        "best": np.array([attainable(task, x) for x in rows]),
    }


def attainable(task, x):
    """What the best of many actions is worth, on draws that did not choose it."""
    lower, upper = np.array(list(task.problem.actions.values())).T
    tried = np.random.default_rng(0).uniform(lower, upper, (128, len(lower)))
    best = tried[task.successes(x, tried, 200, seed=3).argmax()]
    return task.success(x, best, DRAWS, seed=1)


@pytest.fixture(scope="module")
def figures():
    """Every model once, its contexts side by side."""
    rows = [decided(seed) for seed in MODELS]
    names = ("probability", "lower", "upper", "no_action")
    told = {k: np.concatenate([getattr(d, k) for d, _ in rows]) for k in names}
    told["acts"] = np.concatenate([np.array(d.verdict) == "act" for d, _ in rows])
    truth = {k: np.concatenate([t[k] for _, t in rows]) for k in rows[0][1]}
    return told | truth


def test_most_of_the_attainable_lift_is_reached(figures):
    lift = (figures["true"] - figures["none"]).sum()
    assert lift >= 0.9 * (figures["best"] - figures["none"]).sum()


def test_following_the_verdicts_never_costs_much(figures):
    followed = np.where(figures["acts"], figures["true"], figures["none"])
    by_model = (followed - figures["none"]).reshape(len(MODELS), CONTEXTS).mean(axis=1)
    assert by_model.min() >= -0.02


def test_intervals_cover_the_truth_about_as_often_as_they_say(figures):
    acts = figures["acts"]
    assert acts.mean() > 0.5
    inside = figures["lower"] <= figures["true"]
    inside &= figures["true"] <= figures["upper"]
    # Four fits, whose contexts err together: what is asked of many is .85 to .95.
    assert 0.7 <= inside[acts].mean() <= 1.0
    assert (figures["upper"] - figures["lower"])[acts].mean() <= 0.3


def test_reported_chances_are_not_too_high_or_too_low(figures):
    off = figures["probability"] - figures["true"]
    assert abs(off[figures["acts"]].mean()) <= 0.03
    assert abs((figures["no_action"] - figures["none"]).mean()) <= 0.03
