"""Policies that are stored in tests/data, one set for each format there ever was.

``python tests/stored.py`` writes those of the newest format: once, when it is settled.
"""

import json
import warnings
from pathlib import Path

import numpy as np

from forestall import NestedRehearsal, Problem, Search, StagedRehearsal, store

DATA = Path(__file__).parent / "data"
FIELDS = ("actions", "probability", "lower", "upper", "no_action", "support")
SEARCH = Search(n_screened=8, n_kept=2, n_starts=1, n_steps=2, n_draws=1, n_paths=4)
METHODS = {
    "nested": NestedRehearsal(),
    "staged": StagedRehearsal(n_draws=1, n_paths=4, search=SEARCH),
    "uneven": StagedRehearsal(n_draws=1, n_paths=4, search=SEARCH),
    "tossed": StagedRehearsal(n_draws=1, n_paths=4, search=SEARCH),
    "forked": StagedRehearsal(n_draws=1, n_paths=4, search=SEARCH),
}
PROBLEM = Problem(
    context=["age", "ward"],
    covariates=["weight"],
    actions={"dose": (0.0, 2.0)},
    outcomes=["effect"],
    desired=["0.5 <= effect < 1.5"],
    graph="digraph { {age ward} -> weight -> dose -> effect; weight -> effect }",
)
CONTEXTS = {"age": [35.0, 60.0, 48.5], "ward": ["north", "south", "south"]}


def history(n=20):
    rng = np.random.default_rng(0)
    age, south = rng.normal(50, 10, n).round(1), rng.uniform(size=n) < 0.5
    weight = (70 + 0.2 * age + rng.normal(0, 5, n)).round(1)
    dose = (weight / 80 + rng.normal(0, 0.4, n)).round(2)
    effect = (dose - 0.01 * (weight - 80) + rng.normal(0, 0.2, n)).round(2)
    ward = np.where(south, "south", "north")
    columns = {"age": age, "ward": ward, "weight": weight, "dose": dose}
    return columns | {"effect": effect}


def uneven_history(n=150):
    """A history whose effect is louder for the heavy."""
    columns, rng = history(n), np.random.default_rng(1)
    loud = np.exp(0.25 * (columns["weight"] - 80.0))
    noise = (0.3 * loud * rng.normal(size=n)).round(2)
    return columns | {"effect": columns["effect"] + noise}


def tossed_history(n=60):
    """A history whose effect is there or not."""
    columns = history(n)
    return columns | {"effect": (columns["effect"] > 0.9).astype(float)}


def forked_history(n=160):
    """A history whose effect is there or not, and never quite the same."""
    columns, rng = history(n), np.random.default_rng(1)
    there = rng.random(n) < 1.0 / (1.0 + np.exp(-4.0 * (columns["dose"] - 1.0)))
    noise = (0.1 * rng.normal(size=n)).round(2)
    return columns | {"effect": 2.0 * there - 1.0 + noise}


HISTORIES = {
    "nested": history,
    "staged": history,
    "uneven": uneven_history,
    "tossed": tossed_history,
    "forked": forked_history,
}


def told(policy, actions=None):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if actions is None:
            answers = policy.recommend(CONTEXTS)
        else:
            answers = policy.evaluate(CONTEXTS, np.array(actions))
    return {k: getattr(answers, k).tolist() for k in FIELDS}


def main():
    DATA.mkdir(exist_ok=True)
    for name, method in METHODS.items():
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            policy = method.fit(PROBLEM, HISTORIES[name]())
        path = DATA / f"format-{store.FORMAT}-{name}.forestall"
        store.save(policy, path)
        text = json.dumps(told(policy), indent=1)
        path.with_suffix(".json").write_text(text + "\n", encoding="utf-8")
        print(path.name, path.stat().st_size)


if __name__ == "__main__":
    main()
