"""A system of conditional flows: what follows from contexts and altered actions."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float, Int

from forestall.arrays import Array
from forestall.baselines.flow import ConditionalFlow, Training, Watcher, learn
from forestall.encoding import Categorical
from forestall.errors import FitError
from forestall.observations import Observations
from forestall.problem import Problem

Names = tuple[str, ...]


@dataclass(frozen=True, eq=False)
class Stage:
    """Variables that arise together, given what precedes them.

    Args:
        names: The variables.
        columns: Where they stand in a row of the state.
        inputs: The state columns that they follow from.
        flow: Their law.
    """

    names: Names
    columns: Int[Array, " d_v"]
    inputs: Int[Array, " d_h"]
    flow: ConditionalFlow


@dataclass(frozen=True, eq=False)
class FlowSystem:
    """Stages in order; the state holds contexts, covariates, actions and outcomes.

    Args:
        stages: What follows when every action is altered.
        natural: The outcomes given the contexts alone.
        n_contexts: The number of context columns, which come first.
        actions: The state columns of the actions.
        outcomes: The state columns of the outcomes.
    """

    stages: tuple[Stage, ...]
    natural: ConditionalFlow
    n_contexts: int
    actions: Int[Array, " d_a"]
    outcomes: Int[Array, " d_y"]

    @property
    def n_noises(self) -> int:
        """How many normal numbers one draw takes."""
        return max(sum(s.flow.dim for s in self.stages), self.natural.dim)

    def settled(self, x: Any, noise: Any) -> dict[int, Any]:
        """Roll out what no action influences: once, whatever is done.

        Args:
            x: A tensor of contexts, shape (q, d_x).
            noise: A tensor of normal numbers, shape (draws, n_noises).

        Returns:
            State columns of shape (q, 1) or (q, draws).
        """
        state = {j: x[:, [j]] for j in range(self.n_contexts)}
        return self._rolled(state, noise)

    def altered(self, settled: dict[int, Any], a: Any, noise: Any) -> Any:
        """Roll out the rest under the actions ``a``, shape (q, d_a).

        Returns:
            The outcomes, shape (q, draws, d_y).
        """
        state = dict(settled)
        state.update({int(j): a[:, [k]] for k, j in enumerate(self.actions)})
        state = self._rolled(state, noise)
        columns = [state[int(j)].expand(-1, len(noise)) for j in self.outcomes]
        return _stacked(columns)

    def left_alone(self, x: Any, noise: Any) -> Any:
        """Draw the outcomes of the natural course, shape (q, draws, d_y)."""
        return self.natural.push(x[:, None, :], noise[None, :, : self.natural.dim])

    def _rolled(self, state: dict[int, Any], noise: Any) -> dict[int, Any]:
        """Add every stage whose inputs are there, and which is not there itself."""
        for stage, e in self._noises(noise):
            ready = all(int(j) in state for j in stage.inputs)
            if ready and int(stage.columns[0]) not in state:
                values = stage.flow.push(_inputs(state, stage), e[None])
                parts = values.unbind(dim=-1)
                state |= dict(zip(stage.columns.tolist(), parts, strict=True))
        return state

    def _noises(self, noise: Any) -> Iterator[tuple[Stage, Any]]:
        start = 0
        for stage in self.stages:
            yield stage, noise[:, start : start + stage.flow.dim]
            start += stage.flow.dim


def _inputs(state: dict[int, Any], stage: Stage) -> Any:
    """Put inputs side by side, not repeated for draws that they do not vary with."""
    some = state[0]
    if not len(stage.inputs):
        return some.new_empty((len(some), 1, 0))
    return _stacked([state[int(j)] for j in stage.inputs])


def _stacked(columns: list[Any]) -> Any:
    import torch

    n = max(column.shape[1] for column in columns)
    return torch.stack([column.expand(-1, n) for column in columns], dim=-1)


def learn_system(
    problem: Problem,
    data: Observations,
    training: Training,
    seed: int,
    watch: Watcher | None,
) -> FlowSystem:
    """Learn a flow for each stage, and one for the natural course."""
    columns, state = _columns(data), _state(data)
    stages = []
    for k, (names, parents) in enumerate(plan(problem)):
        _check_numbers(names, data)
        own, inputs = _joined(columns, names), _joined(columns, parents)
        title = ", ".join(names)
        flow = learn(state[:, inputs], state[:, own], training, seed + k, title, watch)
        stages.append(Stage(names, own, inputs, flow))
    seed, title = seed + len(stages), f"{', '.join(problem.outcomes)} without action"
    return FlowSystem(
        tuple(stages),
        learn(data.x, data.y, training, seed, title, watch),
        data.x.shape[1],
        _joined(columns, tuple(problem.actions)),
        _joined(columns, tuple(problem.outcomes)),
    )


def _state(data: Observations) -> Float[Array, "n d"]:
    return np.concatenate([data.x, data.u, data.a, data.y], axis=1)


def _columns(data: Observations) -> dict[str, Array]:
    schema, start = data.schema, 0
    columns = {}
    for block in (schema.context, schema.covariates, schema.actions, schema.outcomes):
        for name, part in block.slices.items():
            columns[name] = np.arange(start + part.start, start + part.stop)
        start += block.width
    return columns


def _joined(columns: dict[str, Array], names: Names) -> Int[Array, " d"]:
    return np.concatenate([np.empty(0, dtype=int), *(columns[v] for v in names)])


def _check_numbers(names: Names, data: Observations) -> None:
    for column in data.schema.covariates.columns:
        if column.name in names and isinstance(column, Categorical):
            raise FitError(
                f"Expected covariates that are numbers, because a flow has a density; "
                f"got the category {column.name!r}. Leave it out if it neither "
                f"influences nor confounds, or fit with StagedRehearsal()."
            )


def plan(problem: Problem) -> list[tuple[Names, Names]]:
    """List what arises together under alterations of all actions, and from what.

    By the parents where a graph without hidden causes says that they are all there is
    to know; else by everything earlier, and the contexts, which are known.
    """
    by_graph = _by_graph(problem)
    return _by_order(problem) if by_graph is None else by_graph


def _by_graph(problem: Problem) -> list[tuple[Names, Names]] | None:
    graph, known = problem.one_graph(), set(problem.variables)
    if graph is None or set(graph.nodes) != known:
        return None
    hidden = graph.bidirected == "latent" and graph.bidirected_edges
    contexts = set(problem.context)
    mates = {w for v in contexts for w in graph.clique_of(v)}
    if hidden or (graph.parents(contexts) | mates) - contexts:
        return None
    fixed = contexts | set(problem.actions)
    cut = graph.alter(list(problem.actions))
    needed = cut.ancestors(list(problem.outcomes)) - fixed
    stages = []
    for clique in cut.clique_order():
        names = tuple(v for v in clique if v in needed)
        if names:
            parents = cut.parents(names)
            stages.append((names, tuple(v for v in problem.variables if v in parents)))
    return stages


def _by_order(problem: Problem) -> list[tuple[Names, Names]]:
    earlier = list(problem.context)
    fixed = {*problem.context, *problem.actions}
    rank = {v: k for k, tier in enumerate(problem.tiers) for v in tier}
    last, stages = max(rank[v] for v in problem.outcomes), []
    for k, tier in enumerate(problem.tiers[: last + 1]):
        arising = tuple(v for v in tier if v not in fixed)
        if k == last:
            arising = tuple(v for v in tier if v in problem.outcomes)
        for group, set_ in _groups(problem, arising):
            parents = {*earlier, *set_}
            inputs = tuple(v for v in problem.variables if v in parents)
            stages.append((group, inputs))
        earlier += [v for v in tier if v not in problem.context]
    return stages


def _groups(problem: Problem, names: Names) -> list[tuple[Names, Names]]:
    """Split a tier by the actions that its members follow from once they are set."""
    graph = problem.one_graph()
    mates: dict[Names, list[str]] = {}
    for v in names:
        clique = graph.clique_of(v) if graph is not None and v in graph.nodes else ()
        key = tuple(w for w in clique if w in problem.actions)
        mates.setdefault(key, []).append(v)
    return [(tuple(group), set_) for set_, group in mates.items()]
