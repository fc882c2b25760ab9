"""Random tasks: truths that nobody chose, for figures that nobody can tune to.

``tasks.get("random-17")`` is ``random_task(17)``: contexts first, then covariates and
actions in a random order, outcomes last; sparse random edges along that order, every
action an influence on some outcome; mechanisms and noises from a pool. A task is kept
when it is worth solving: without action 10 to 50 % of the cases succeed, and the best
actions succeed in at least 10 % more; else the next one takes its place.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float

from forestall.arrays import Array
from forestall.errors import TaskError
from forestall.problem import Problem
from forestall.tasks.mechanisms import Recipe, random_node
from forestall.tasks.scm import Node, StructuralModel
from forestall.tasks.task import Task

N_PILOT = 4_000
NATURAL = (0.1, 0.5)
# A rough search finds less than the oracle does: what it finds is enough.
LEAST_GAIN = 0.1
MOST_ATTEMPTS = 1_000

Edges = dict[str, list[str]]


def random_task(seed: int) -> Task:
    """Draw a structural model, a problem on it, and keep the first worth solving.

    Args:
        seed: The same seed gives the same task.
    """
    if seed < 0:
        raise TaskError(f"Expected a seed of 0 or more; got {seed}.")
    for attempt in range(MOST_ATTEMPTS):
        rng = np.random.default_rng([seed, attempt])
        task = _draft(f"random-{seed}", rng)
        if task is not None and _mean_gain(task, rng) >= LEAST_GAIN:
            return task
    raise AssertionError("one draft in a few is worth solving")


@dataclass(frozen=True, eq=False)
class Skeleton:
    """Who there is, and who influences whom.

    Args:
        context: Their names; likewise for the other roles.
        middle: Covariates and actions, in the order in which they come about.
        outcomes: Their names.
        parents: Who influences each variable.
        n_levels: How many levels those have that are categories.
    """

    context: tuple[str, ...]
    middle: tuple[str, ...]
    outcomes: tuple[str, ...]
    parents: Mapping[str, Sequence[str]]
    n_levels: Mapping[str, int]

    @property
    def order(self) -> tuple[str, ...]:
        """All variables, earliest first."""
        return (*self.context, *self.middle, *self.outcomes)

    @property
    def actions(self) -> tuple[str, ...]:
        """What can be set."""
        return tuple(sorted(v for v in self.middle if v[0] == "a"))

    @property
    def covariates(self) -> tuple[str, ...]:
        """What is neither seen before nor set."""
        return tuple(sorted(v for v in self.middle if v[0] == "u"))

    def recipe(self, name: str) -> Recipe:
        """Say what a variable is to be like, by its role."""
        explained = {"a": (0.2, 0.9), "y": (0.6, 0.95)}.get(name[0], (0.3, 0.8))
        return Recipe(
            name,
            tuple(self.parents[name]),
            explained,
            # Otherwise actions among many parents would hardly matter.
            emphasis=self.actions if name[0] != "a" else (),
            n_levels=self.n_levels.get(name, 0),
        )


def _skeleton(rng: np.random.Generator) -> Skeleton:
    context = _named("x", rng.integers(1, 4))
    covariates = _named("u", rng.integers(0, 4))
    actions = _named("a", rng.integers(1, 4))
    outcomes = _named("y", rng.integers(1, 3))
    middle = tuple(rng.permutation([*covariates, *actions]).tolist())
    return Skeleton(
        context,
        middle,
        outcomes,
        _edges(context, middle, outcomes, rng),
        {
            v: int(rng.integers(2, 4))
            for v in (*context[1:], *covariates)
            if rng.random() < 0.2
        },
    )


def _named(letter: str, n: np.integer[Any]) -> tuple[str, ...]:
    return tuple(f"{letter}{i + 1}" for i in range(int(n)))


def _edges(
    context: Sequence[str],
    middle: Sequence[str],
    outcomes: Sequence[str],
    rng: np.random.Generator,
) -> Edges:
    """Draw parents among what comes earlier, and let every action lead somewhere."""
    edges: Edges = {}
    for i, name in enumerate(context):
        edges[name] = [v for v in context[:i] if rng.random() < 0.3]
    for i, name in enumerate(middle):
        few = 0 if rng.random() < 0.2 else int(rng.integers(1, 4))
        edges[name] = _some([*context, *middle[:i]], few, rng)
    for name in outcomes:
        edges[name] = _some([*context, *middle], int(rng.integers(2, 5)), rng)
    for name in reversed(middle):
        if name[0] == "a" and not _leads_to(name, outcomes, edges):
            edges[str(rng.choice(outcomes))].append(name)
    return edges


def _some(names: Sequence[str], n: int, rng: np.random.Generator) -> list[str]:
    chosen = set(rng.permutation(names)[:n].tolist())
    return [name for name in names if name in chosen]


def _leads_to(name: str, outcomes: Sequence[str], edges: Edges) -> bool:
    reached, new = {name}, {name}
    while new:
        new = {v for v, p in edges.items() if reached.intersection(p)} - reached
        reached |= new
    return bool(reached.intersection(outcomes))


def _draft(name: str, rng: np.random.Generator) -> Task | None:
    """Draw a task; None when too few or too many records are good by themselves."""
    skeleton = _skeleton(rng)
    nodes: list[Node] = []
    pilot: dict[str, Array] = {}
    for v in skeleton.order:
        node = random_node(skeleton.recipe(v), pilot, skeleton.n_levels, rng)
        parents = (pilot[p] for p in node.parents)
        pilot[v] = node.mechanism(*parents, node.noise(rng, N_PILOT))
        nodes.append(node)
    problem = _problem(skeleton, pilot, rng)
    y = np.column_stack([pilot[v] for v in skeleton.outcomes])
    low, high = NATURAL
    if not low <= problem.region.contains(y).mean() <= high:
        return None
    return Task(name, problem, StructuralModel(tuple(nodes)))


def _problem(
    skeleton: Skeleton, pilot: Mapping[str, Array], rng: np.random.Generator
) -> Problem:
    shares = (0.12, 0.45) if len(skeleton.outcomes) == 1 else (0.35, 0.75)
    return Problem(
        context=skeleton.context,
        covariates=skeleton.covariates,
        actions={v: _interval(pilot[v], rng) for v in skeleton.actions},
        outcomes=skeleton.outcomes,
        desired=[
            _constraint(v, pilot[v], rng.uniform(*shares), rng)
            for v in skeleton.outcomes
        ],
        order=_tiers(skeleton, rng),
        # Two levels are as good as a number; more are to be told apart.
        categorical=[v for v, n in skeleton.n_levels.items() if n > 2],
    )


def _interval(
    values: Float[Array, " n"], rng: np.random.Generator
) -> tuple[float, float]:
    """What was usual, and a bit more at either end."""
    low, high = np.quantile(values, [0.05, 0.95])
    below, above = rng.uniform(0.0, 0.2, 2) * (high - low)
    return round(float(low - below), 2), round(float(high + above), 2)


def _constraint(
    name: str, values: Float[Array, " n"], share: float, rng: np.random.Generator
) -> str:
    """Desire that share of an outcome's records: the upper, the lower or a band."""
    kind = rng.choice(["above", "below", "between"], p=[0.3, 0.2, 0.5])
    start = {"above": 1.0 - share, "below": 0.0}.get(kind, rng.uniform(0, 1 - share))
    low, high = np.quantile(values, [start, start + share]).round(3)
    if kind == "above":
        return f"{name} >= {low}"
    return f"{name} <= {high}" if kind == "below" else f"{low} <= {name} <= {high}"


def _tiers(skeleton: Skeleton, rng: np.random.Generator) -> list[list[str]]:
    """Group neighbours that do not influence each other, in half of the cases."""
    tiers: list[list[str]] = []
    for part in (skeleton.context, skeleton.middle):
        tiers.append([part[0]])
        for name in part[1:]:
            if set(tiers[-1]).isdisjoint(skeleton.parents[name]) and rng.random() < 0.5:
                tiers[-1].append(name)
            else:
                tiers.append([name])
    return [*tiers, list(skeleton.outcomes)]


def _mean_gain(task: Task, rng: np.random.Generator) -> float:
    """What the best of some actions gains, on draws that did not choose it."""
    lower, upper = np.array(list(task.problem.actions.values())).T
    a = rng.uniform(lower, upper, (128, len(lower)))
    contexts = np.column_stack(list(task.contexts(16, seed=0).values()))
    gains = []
    for i, x in enumerate(contexts):
        best = a[task.successes(x, a, 200, seed=2 * i).argmax()]
        none = task.success(x, None, 400, seed=2 * i + 1)
        gains.append(task.success(x, best, 400, seed=2 * i + 1) - none)
    return float(np.mean(gains))
