"""Lines are doubted where the records bend, and only there."""

import numpy as np
import pytest

from forestall import ForestallWarning, Problem, baselines, tasks
from forestall.baselines.linear_gaussian import LinearGaussian
from forestall.baselines.linearity import bent
from forestall.observations import Observations


def bends(name, n=1000, seed=0):
    task = tasks.get(name)
    data = Observations.read(task.problem, task.history(n, seed=seed))
    return bent(LinearGaussian.fit(task.problem, data))


@pytest.mark.parametrize("name", ["lin-syn1", "bermuda", "bank"])
def test_linear_worlds_are_left_alone(name):
    assert [bends(name, seed=seed) for seed in range(3)] == [()] * 3


def test_curved_worlds_are_named_by_what_is_curved():
    assert bends("non-syn1") == ("Y",)
    assert set(bends("non-syn2")) >= {"U1", "U2"}


def test_noise_alone_is_no_bend():
    rng = np.random.default_rng(0)
    problem = Problem(
        context=["x"], actions={"a": (-1.0, 1.0)}, outcomes=["y"], desired=["y >= 0"]
    )
    flagged = 0
    for _ in range(100):
        x, a, noise = rng.standard_t(3, size=(3, 40))
        data = Observations.read(problem, {"x": x, "a": a, "y": x - a + noise})
        flagged += bool(bent(LinearGaussian.fit(problem, data)))
    assert flagged <= 2


@pytest.mark.parametrize(
    "method",
    [
        baselines.CARE(n_draws=20),
        baselines.LinearOptimal(n_draws=20),
        baselines.MICNS(n_draws=20),
        baselines.QWZ23(n_draws=20, n_worlds=20, n_fresh=100),
    ],
    ids=lambda method: type(method).__name__,
)
def test_no_linear_method_claims_an_improvement_in_a_curved_world(method):
    task = tasks.get("non-syn1")
    with pytest.warns(ForestallWarning, match="The records are not linear in Y, so no"):
        policy = method.fit(task.problem, task.history(300, seed=0))
    assert "act" not in policy.recommend(task.contexts(3, seed=0)).verdict
