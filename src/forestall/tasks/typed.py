"""The typed structural generator: any table and a graph become a task.

Along the graph every variable gets a mechanism suited to its type: discrete roots are
drawn by their frequencies and other roots from their values; discrete variables with
parents come from gradient-boosted classifiers; continuous ones from gradient-boosted
regressors plus a residual drawn from those of the records, on a log scale where they
are non-negative, and clipped to the range in which they were seen.

What such a task calls the truth is this fit. It is a world in which methods can be
compared, as like the data as the graph allows; it says nothing of what an alteration
does where the data come from.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float
from threadpoolctl import threadpool_limits

from forestall.arrays import Array
from forestall.errors import DataError, GraphError, SpecError, nearest
from forestall.graph import RehearsalGraph
from forestall.history import check_enough, checked_cells, complete_rows
from forestall.identify import Tiers
from forestall.problem import Problem, require_problem
from forestall.table import Table
from forestall.tasks.boosted import (
    MOST_LEAVES,
    ClassForests,
    Forest,
    class_forests,
    mean_forest,
)
from forestall.tasks.scm import Node, StructuralModel
from forestall.tasks.task import Task

if TYPE_CHECKING:
    Names = Sequence[str]
else:
    # Whatever a user passes is checked by us, with our own words.
    Names = Any

# Beyond it a column is a measurement that happens to be called a category.
MOST_LEVELS = 100


@dataclass(frozen=True, eq=False)
class Features:
    """How parents become features of trees: a category as one flag for each level.

    Args:
        levels: The levels of each parent that is a category; empty for a number.
    """

    levels: tuple[tuple[float, ...], ...]

    def __call__(self, parents: Sequence[Array]) -> list[Array]:
        """Encode parents, each in its own shape."""
        features: list[Array] = []
        for values, levels in zip(parents, self.levels, strict=True):
            # Two levels are told apart by one cut, as numbers are.
            flags = [np.asarray(values == v, dtype=float) for v in levels]
            features += flags if len(levels) > 2 else [np.asarray(values, dtype=float)]
        return features


@dataclass(frozen=True, eq=False)
class Drawn:
    """Noise drawn from given values, each as likely as it is frequent among them."""

    values: Array

    def __call__(self, rng: np.random.Generator, n: int) -> Float[Array, " n"]:
        """Draw ``n`` values."""
        return rng.choice(self.values, n)


def chance(rng: np.random.Generator, n: int) -> Float[Array, " n"]:
    """Noise spread evenly over the unit interval."""
    return rng.random(n)


@dataclass(frozen=True, eq=False)
class BoostedNumber:
    """The mechanism of a continuous variable.

    Args:
        forest: Its mean, on a log scale if ``logged``.
        features: How its parents are encoded.
        logged: Whether the noise is added to the logarithm of one plus the value.
        support: The lowest and highest value seen.
    """

    forest: Forest
    features: Features
    logged: bool
    support: tuple[float, float]

    def __call__(self, *parents_and_noise: Array) -> Array:
        """Compute the variable."""
        *parents, noise = parents_and_noise
        value = self.forest(self.features(parents)) + noise
        return np.clip(np.expm1(value) if self.logged else value, *self.support)


@dataclass(frozen=True, eq=False)
class BoostedLevel:
    """The mechanism of a discrete variable.

    Args:
        forests: The chances of its levels.
        features: How its parents are encoded.
        levels: The levels.
    """

    forests: ClassForests
    features: Features
    levels: Array

    def __call__(self, *parents_and_noise: Array) -> Array:
        """Find the level at which the chances add up to the noise."""
        *parents, noise = parents_and_noise
        reached = self.forests(self.features(parents)).cumsum(axis=-1)[..., :-1]
        return self.levels[(noise[..., None] > reached).sum(axis=-1)]


@dataclass(frozen=True, kw_only=True)
class TypedGenerator:
    """How mechanisms are fitted to a table, by the type of each variable.

    Args:
        discrete: Ordered variables with few values, such as a grade; the problem's
            categories are discrete without being named here.
        nonnegative: Variables to model on a log scale; by default all continuous ones
            without a negative value.
        n_trees: Trees in each mechanism, for each level of a discrete one.
        learning_rate: What each tree's answer is multiplied by.
        n_folds: Residuals are those of records that a fit has not seen, in turn; in
            the records that it has seen they are too small.
        seed: Which records are in which fold.
    """

    discrete: Names = ()
    nonnegative: Names | None = None
    n_trees: int = 32
    learning_rate: float = 0.15
    n_folds: int = 3
    seed: int = 0

    def fit(
        self,
        parents: Mapping[str, Sequence[str]],
        columns: Mapping[str, Array],
        categorical: Sequence[str] = (),
    ) -> StructuralModel:
        """Fit every mechanism.

        Args:
            parents: Who influences each variable; parents come before their children.
            columns: The values of each variable, all of one length.
            categorical: The variables whose values are codes without an order.
        """
        self._check_known(columns)
        levels = {v: _levels(v, columns[v]) for v in categorical}
        # Two threads that wait for each other make a short job a long one.
        with threadpool_limits(1):
            nodes = [
                self._node(v, tuple(above), columns, levels)
                for v, above in parents.items()
            ]
        return StructuralModel(tuple(nodes))

    def _node(
        self,
        name: str,
        parents: tuple[str, ...],
        columns: Mapping[str, Array],
        levels: Mapping[str, tuple[float, ...]],
    ) -> Node:
        values = columns[name]
        if not parents:
            return Node(name, Drawn(values))
        features = Features(tuple(levels.get(p, ()) for p in parents))
        z = np.column_stack(features([columns[p] for p in parents]))
        if name in levels or name in self.discrete:
            return Node(name, chance, parents, self._level(name, z, values, features))
        logged = self._is_logged(name, values)
        y = np.log1p(values) if logged else values
        support = float(values.min()), float(values.max())
        forest = self._mean(z, y)
        mechanism = BoostedNumber(forest, features, logged, support)
        return Node(name, Drawn(self._residuals(z, y)), parents, mechanism)

    def _level(
        self, name: str, z: Float[Array, "n d"], values: Array, features: Features
    ) -> BoostedLevel:
        from sklearn.ensemble import HistGradientBoostingClassifier

        levels = np.array(_levels(name, values))
        fitted = HistGradientBoostingClassifier(
            max_iter=self.n_trees,
            learning_rate=self.learning_rate,
            max_leaf_nodes=MOST_LEAVES,
            early_stopping=False,
            random_state=self.seed,
        ).fit(z, np.searchsorted(levels, values))
        return BoostedLevel(class_forests(fitted), features, levels)

    def _mean(self, z: Float[Array, "n d"], y: Float[Array, " n"]) -> Forest:
        from sklearn.ensemble import HistGradientBoostingRegressor

        fitted = HistGradientBoostingRegressor(
            max_iter=self.n_trees,
            learning_rate=self.learning_rate,
            max_leaf_nodes=MOST_LEAVES,
            early_stopping=False,
            random_state=self.seed,
        )
        return mean_forest(fitted.fit(z, y))

    def _residuals(
        self, z: Float[Array, "n d"], y: Float[Array, " n"]
    ) -> Float[Array, " n"]:
        rng = np.random.default_rng(self.seed)
        fold = rng.permutation(len(y)) % self.n_folds
        residuals = np.empty(len(y))
        for k in range(self.n_folds):
            out = fold == k
            residuals[out] = y[out] - self._mean(z[~out], y[~out])([*z[out].T])
        return residuals

    def _is_logged(self, name: str, values: Array) -> bool:
        if self.nonnegative is None:
            return bool(values.min() >= 0.0)
        if name in self.nonnegative and values.min() < 0.0:
            raise DataError(
                f"Expected no negative value of {name!r}, which 'nonnegative' names; "
                f"got {values.min():g}. Correct it, or leave {name!r} out."
            )
        return name in self.nonnegative

    def _check_known(self, columns: Mapping[str, Array]) -> None:
        for field in ("discrete", "nonnegative"):
            for name in getattr(self, field) or ():
                if name not in columns:
                    raise SpecError(
                        f"Expected {field!r} to name variables of the problem; got "
                        f"{name!r}.{nearest(name, columns)}"
                    )


def _levels(name: str, values: Array) -> tuple[float, ...]:
    levels = np.unique(values)
    if not 2 <= len(levels) <= MOST_LEVELS:
        raise DataError(
            f"Expected a discrete variable with 2 to {MOST_LEVELS} levels; got "
            f"{len(levels)} values of {name!r}. Leave out what does not vary, and let "
            f"measurements be continuous."
        )
    return tuple(levels.tolist())


def from_data(
    problem: Problem,
    table: Any,
    *,
    name: str = "from-data",
    generator: TypedGenerator | None = None,
    reach: tuple[float, float] = (0.01, 0.99),
) -> Task:
    """Make a task of a problem with a graph and a table of its variables.

    Args:
        problem: The question, with a graph of directed edges among its variables.
        table: The records: any table that :func:`forestall.fit` accepts, all numbers.
        name: What the task is called; it is part of the seed of every sample.
        generator: How mechanisms are fitted; by default ``TypedGenerator()``.
        reach: Alterations are confined to the interval between these quantiles of the
            records, within the problem's own, because a fit knows nothing beyond. It
            is the box of the task's problem, so a policy cannot leave it; a value
            outside that is asked of the task itself is refused, not clipped.

    Example:
        >>> from forestall import Problem, tasks
        >>> rng = np.random.default_rng(0)
        >>> dose = rng.uniform(0.0, 10.0, 500)
        >>> records = {"age": rng.uniform(20.0, 80.0, 500), "dose": dose}
        >>> records["marker"] = dose + rng.normal(0.0, 1.0, 500)
        >>> task = tasks.from_data(Problem(
        ...     context=["age"], actions={"dose": (0.0, 100.0)}, outcomes=["marker"],
        ...     desired=["marker >= 8"], graph="digraph {age -> dose -> marker}",
        ... ), records)
        >>> task.success({"age": 50.0}, {"dose": 9.5}, n=1000, seed=0) > 0.8
        True
        >>> task.problem.actions["dose"][1] < 10.0
        True
    """
    require_problem(problem)
    graph = _graph(problem)
    order = problem.order or _order(problem, graph)
    columns = _columns(problem, table)
    generator = generator or TypedGenerator()
    model = generator.fit(_parents(order, graph), columns, problem.categorical)
    actions = {
        v: _reachable(v, interval, columns[v], reach)
        for v, interval in problem.actions.items()
    }
    told = replace(problem, order=order, graph=None, actions=actions)
    return Task(name, told, model)


def _graph(problem: Problem) -> RehearsalGraph:
    graph = problem.one_graph()
    if graph is None:
        raise GraphError(
            "Expected a problem with a graph, because mechanisms follow its edges; got "
            "none. Give one, e.g. Problem(..., graph='digraph {x -> a -> y}')."
        )
    if graph.bidirected_edges:
        u, v = graph.bidirected_edges[0]
        raise GraphError(
            f"Expected directed edges only; got {u!r} <-> {v!r}. Choose a direction, "
            f"or leave the edge out."
        )
    hidden = [v for v in graph.nodes if v not in problem.variables]
    if hidden:
        raise GraphError(
            f"Expected every variable of the graph in the problem; got {hidden[0]!r}, "
            f"which has no role there. What is hidden cannot be fitted: leave it out."
        )
    return graph


def _order(problem: Problem, graph: RehearsalGraph) -> Tiers:
    """Find an order that agrees with the graph and with the roles."""
    first, last = set(problem.context), graph.descendants(problem.outcomes)
    blocks = first, set(graph.nodes) - first - last, last
    split = (tuple(v for v in t if v in b) for b in blocks for t in graph.tiers())
    return tuple(tier for tier in split if tier)


def _parents(order: Tiers, graph: RehearsalGraph) -> dict[str, tuple[str, ...]]:
    """Find who influences whom, parents first."""
    names = [v for tier in order for v in tier]
    return {v: tuple(u for u in names if (u, v) in graph.edges) for v in names}


def _columns(problem: Problem, table: Any) -> dict[str, Array]:
    cells = checked_cells(problem, source := Table.read(table))
    rows = complete_rows(problem, cells, source.n)
    kept = {name: each.keep(rows) for name, each in cells.items()}
    n = int(rows.sum())
    check_enough(problem, kept, n, source.n - n)
    return {name: each.numbers() for name, each in kept.items()}


def _reachable(
    name: str,
    interval: tuple[float, float],
    values: Array,
    reach: tuple[float, float],
) -> tuple[float, float]:
    low, high = (float(q) for q in np.quantile(values, reach))
    both = max(interval[0], low), min(interval[1], high)
    if both[0] < both[1]:
        return both
    raise SpecError(
        f"Expected a feasible interval of {name!r} that meets what the records show, "
        f"[{low:g}, {high:g}]; got [{interval[0]:g}, {interval[1]:g}]. Widen it."
    )
