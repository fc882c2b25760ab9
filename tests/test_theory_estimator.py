r"""Theorem 2: the nested estimator's error falls with the number of records.

The world is linear and Gaussian, so that :math:`J_\eta` has a closed form:

    X ~ U(-1, 1),  U = X + N(0, 0.5),  A = U + N(0, s),  Y = A - 2 U + X + N(0, 0.5)

and S = {Y <= 0}. Under do(a), Y given x is Gaussian with mean a - x and variance
4 * 0.25 + 0.25. With s = 0.5 the confounder U hides the effect of A altogether: given
(x, a) alone, the mean of Y is zero whatever the action.
"""

import numpy as np
import pytest
from scipy.stats import norm

from forestall import ConditionalRehearsal, NestedRehearsal, Problem

ETA = 5.0
SIZES = (100, 200, 400, 800, 1600)
PROBLEM = Problem(
    context=["x"],
    covariates=["u"],
    actions={"a": (-2.0, 2.0)},
    outcomes=["y"],
    desired=["y <= 0"],
    order=["x", "u", "a", "y"],
)
GRID = np.array([(x, a) for x in (-0.6, 0.0, 0.6) for a in (-0.8, -0.2, 0.4, 0.8)])


def history(n, seed, s):
    rng = np.random.default_rng([seed, n])
    x = rng.uniform(-1, 1, n)
    u = x + rng.normal(0, 0.5, n)
    a = u + rng.normal(0, s, n)
    y = a - 2 * u + x + rng.normal(0, 0.5, n)
    return {"x": x, "u": u, "a": a, "y": y}


def smoothed_truth(eta):
    """E Phi(-eta Y) for Y ~ N(a - x, 1.25), eta in the unit of y."""
    mean, variance = GRID[:, 1] - GRID[:, 0], 1.25
    return norm.cdf(-eta * mean / np.sqrt(1 + eta**2 * variance))


def mean_error(method, n, seeds, s=1.0):
    errors = []
    for seed in range(seeds):
        policy = method.fit(PROBLEM, history(n, seed, s))
        J = policy.objective({"x": GRID[:, 0]}, GRID[:, 1:])
        eta = ETA / policy.schema.outcomes.scales[0]
        errors.append(np.abs(J - smoothed_truth(eta)).mean())
    return float(np.mean(errors))


def paced(n):
    """The penalties for which the paper states the rate."""
    return NestedRehearsal(
        sharpness=ETA, outcome_penalty=n ** (-1 / 4), context_penalty=n ** (-1 / 2)
    )


@pytest.fixture(scope="module")
def errors():
    return np.array([mean_error(paced(n), n, seeds=6) for n in SIZES])


def test_the_error_falls_with_the_number_of_records(errors):
    assert (np.diff(errors) < 0).all()


def test_it_falls_at_least_at_the_guaranteed_rate(errors):
    slope = np.polyfit(np.log(SIZES), np.log(errors), 1)[0]
    assert slope <= -1 / 8


def test_without_adjustment_more_records_do_not_help():
    nested = NestedRehearsal(sharpness=ETA, outcome_penalty=1e-3)
    single = ConditionalRehearsal(sharpness=ETA, outcome_penalty=1e-3)
    few, many = (mean_error(single, n, 3, s=0.5) for n in (200, 1600))
    assert many > 0.8 * few
    assert many > 2 * mean_error(nested, 1600, 3, s=0.5)


def test_the_hard_indicator_is_the_limit_of_the_smoothed_one():
    records = history(200, seed=0, s=1.0)
    contexts, actions = {"x": GRID[:, 0]}, GRID[:, 1:]
    told = NestedRehearsal().fit(PROBLEM, records).probability(contexts, actions)
    inside = (told > 0) & (told < 1)
    assert inside.sum() >= 6
    gaps = [
        np.abs(
            NestedRehearsal(sharpness=eta)
            .fit(PROBLEM, records)
            .objective(contexts, actions)
            - told
        )[inside].max()
        for eta in (5.0, 50.0, 1e8)
    ]
    assert gaps[0] > gaps[1] > gaps[2]
    assert gaps[2] < 1e-9
