"""Small made-up histories and their problems, for many test files."""

from dataclasses import replace

import numpy as np

from forestall import Problem, StagedRehearsal
from forestall.draft import Draft
from forestall.functions import Functions
from forestall.pieces import Layout

LENDING = Problem(
    context=["score", "debt"],
    covariates=["stability"],
    actions={"rate": (0.0, 1.0)},
    outcomes=["repaid", "roi"],
    desired=["repaid >= 0.6", "roi >= 0.3"],
    order=[["score", "debt"], "stability", "rate", ["repaid", "roi"]],
)

DOSING = Problem(
    context=["age"],
    actions={"dose": (0.0, 2.0), "time": (-1.0, 1.0)},
    outcomes=["effect"],
    desired=["0.5 <= effect <= 1.5"],
)


def lending(n, seed=0):
    rng = np.random.default_rng(seed)
    score, debt = rng.uniform(size=(2, n))
    stability = rng.beta(2, 2, size=n)
    rate = stability + 0.5 * score + 0.5 * debt - 0.5 + rng.normal(0, 0.2, n)
    logit = 2 * stability - 1.5 * rate + 0.2 * debt + 0.4
    repaid = 1 / (1 + np.exp(-logit)) + rng.normal(0, 0.05, n)
    roi = 0.8 * rate + 0.5 * stability + rng.normal(0, 0.05, n)
    columns = (score, debt, stability, rate, repaid, roi)
    return dict(zip(LENDING.variables[:3], columns[:3], strict=True)) | {
        "rate": rate,
        "repaid": repaid,
        "roi": roi,
    }


def dosing(n, seed=0):
    rng = np.random.default_rng(seed)
    age = rng.normal(50, 10, n)
    dose = 1 + 0.02 * (age - 50) + rng.normal(0, 0.5, n)
    time = rng.normal(0, 0.7, n)
    effect = dose * np.exp(-(time**2)) + rng.normal(0, 0.2, n)
    return {"age": age, "dose": dose, "time": time, "effect": effect}


WORLDS = {"lending": (LENDING, lending), "dosing": (DOSING, dosing)}


def contexts_of(problem, history, rows):
    return {name: np.asarray(history[name])[rows] for name in problem.context}


def mechanism_of(z, v, choice, n_draws, rng, loudness=None):
    """Learn one mean by itself."""
    draft = Draft.of(z, v, choice, n_draws, rng)
    return draft.settled(draft.count(z, v, loudness), z, v, loudness)


class Numbers(Layout):
    """A state of numbers, each a variable of its own."""

    def __init__(self):
        pass

    def is_level(self, _):
        return False

    def variables(self, inputs):
        return inputs


def learned_mean(z, v, n_draws, rng, sample=None):
    """Learn one mean as a system does, hyperparameters and all."""
    state, inputs = np.column_stack([z, v]), np.arange(z.shape[1])
    parts = replace(
        StagedRehearsal().parts,
        n_draws=n_draws,
        local_laws=False,
        seed=int(rng.integers(1 << 31)),
    )
    functions = Functions(parts, Numbers(), state[:sample], len(v))
    equation = functions((z.shape[1], *inputs.tolist()))
    equation, moments = equation.structured(equation.count(state), inputs, rng)
    return equation.mechanism(moments, state[:sample])
