"""Rehearsing: contexts and actions run through the mechanisms, stage by stage.

Every variable that is not set follows from what precedes it: the mean of its mechanism,
in one of the drawn functions, plus a residual of its law. The same draws and the same
residuals serve every context and action, so that differences between actions are not
noise, and the success of a draw is a smooth function of the actions that can be
differentiated along the path.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from jaxtyping import Bool, Float, Int

from forestall.arrays import Array
from forestall.coin import Coin
from forestall.fork import Fork
from forestall.law import Law
from forestall.mechanism import Mechanism
from forestall.region import Polytope

# Points run at a time.
BLOCK = 1 << 15
# A value this near to a bound lies on it: rounding must not decide what is good.
NEAR = 1e-9


@dataclass(frozen=True, eq=False)
class Node:
    """One variable on its way.

    Args:
        name: The variable.
        columns: Where its encoded values stand in a row of the state.
        inputs: The state columns that precede it.
        mechanisms: One for a number; one for each level of a category.
        law: How a number strays from its mean; ``None`` for a category.
        action: Its place among the actions; ``None`` for a covariate.
        mates: Actions of its own tier among its inputs. They go along with it in the
            natural course, but do not influence it.
        apart: The same variable without its mates, for when one of them is altered.
    """

    name: str
    columns: slice
    inputs: Int[Array, " d"]
    mechanisms: tuple[Mechanism, ...]
    law: Law | Coin | Fork | None
    action: int | None
    mates: tuple[int, ...] = ()
    apart: Node | None = None

    def when(self, altered: Bool[Array, " d_a"]) -> Node:
        """Choose what this variable follows from when some actions are altered."""
        if self.apart is not None and altered[list(self.mates)].any():
            return self.apart
        return self


@dataclass(frozen=True, eq=False)
class Outcome:
    """One outcome, given what precedes it and the outcomes before it.

    Args:
        inputs: The state columns it follows from.
        mechanism: Its mean.
        law: How it strays from it.
    """

    inputs: Int[Array, " d"]
    mechanism: Mechanism
    law: Law | Coin | Fork


@dataclass(frozen=True, eq=False)
class Noise:
    """One set of inner draws: for each variable, a number from 0 to 1 for each path.

    Points of low discrepancy, so that two variables do not seem to go together because
    few paths make it look so; each drawn world shifts them in its own way.

    Args:
        levels: The points, a row for each variable.
        shifts: How far each world moves them, modulo one.
    """

    levels: Float[Array, "v r"]
    shifts: Float[Array, "v s"]

    @classmethod
    def drawn(
        cls, n_variables: int, n_paths: int, n_worlds: int, rng: np.random.Generator
    ) -> Noise:
        """Draw Sobol points and their shifts."""
        # Loading scipy.stats takes longer than many a decision: only where needed.
        from scipy.stats import qmc

        points = qmc.Sobol(n_variables, rng=rng).random_base2(n_paths.bit_length() - 1)
        return cls(points.T, rng.random((n_variables, n_worlds)))

    def shared(self) -> Noise:
        """Move the points in every world as in the first: only worlds differ then."""
        return Noise(
            self.levels, np.broadcast_to(self.shifts[:, :1], self.shifts.shape)
        )

    @property
    def n_paths(self) -> int:
        """How many paths each world has."""
        return self.levels.shape[1]

    def of(self, world: int) -> Float[Array, "v r"]:
        """The levels of one world, away from the ends."""
        shifted = (self.levels + self.shifts[:, [world]]) % 1.0
        return np.clip(shifted, 1e-6, 1.0 - 1e-6)


@dataclass(frozen=True, eq=False)
class Success:
    """How likely a good outcome is: a row for each pair, a column for each draw."""

    value: Float[Array, "p s"]
    gradient: Float[Array, "p s d_a"] | None


@dataclass(frozen=True, eq=False)
class Rehearsal:
    """The fitted system.

    Args:
        nodes: Covariates and actions, in order.
        outcomes: The outcomes, in order.
        region: The desired region, for standardised outcomes.
        width: The number of state columns; contexts come first, outcomes last.
        n_actions: The number of actions.
    """

    nodes: tuple[Node, ...]
    outcomes: tuple[Outcome, ...]
    region: Polytope
    width: int
    n_actions: int

    @property
    def n_noises(self) -> int:
        """How many variables stray from their means."""
        return len(self.nodes) + len(self.outcomes)

    def success(
        self,
        x: Float[Array, "p d_x"],
        a: Float[Array, "p d_a"],
        altered: Bool[Array, " d_a"],
        draws: Int[Array, " s"],
        noise: Noise,
        *,
        gradient: bool = False,
    ) -> Success:
        """Rehearse each pair of context and action, in blocks of bounded size."""
        step = max(1, BLOCK // noise.n_paths)
        parts = [
            self._block(
                x[i : i + step], a[i : i + step], altered, draws, noise, gradient
            )
            for i in range(0, max(1, len(x)), step)
        ]
        value = np.concatenate([part.value for part in parts])
        if not gradient:
            return Success(value, None)
        return Success(value, np.concatenate([part.gradient for part in parts]))

    def _block(
        self,
        x: Float[Array, "p d_x"],
        a: Float[Array, "p d_a"],
        altered: Bool[Array, " d_a"],
        draws: Int[Array, " s"],
        noise: Noise,
        gradient: bool,
    ) -> Success:
        values = np.empty((len(x), len(draws)))
        slopes = np.empty((*values.shape, self.n_actions))
        nodes = [node.when(altered) for node in self.nodes]
        fixed = self._fixed_means(nodes, x, a, altered, draws)
        for k, draw in enumerate(draws.tolist()):
            levels = noise.of(k)
            path = _Path.start(self, x, noise.n_paths, gradient)
            means = {name: mean[:, k] for name, mean in fixed.items()}
            for v, node in enumerate(nodes):
                if node.action is not None and altered[node.action]:
                    path.set(node, a[:, node.action])
                else:
                    path.follow(node, levels[v], draw, means.get(node.name))
            last = levels[len(self.nodes) :]
            values[:, k], slopes[:, k] = self._good(path, last, draw)
        return Success(values, slopes if gradient else None)

    def _fixed_means(
        self,
        nodes: Sequence[Node],
        x: Float[Array, "p d_x"],
        a: Float[Array, "p d_a"],
        altered: Bool[Array, " d_a"],
        draws: Int[Array, " s"],
    ) -> dict[str, Float[Array, "p s"]]:
        """Evaluate nodes whose inputs do not vary: once for all draws and paths."""
        state = np.full((len(x), self.width), np.nan)
        state[:, : x.shape[1]] = x
        for node in nodes:
            if node.action is not None and altered[node.action]:
                state[:, node.columns] = a[:, [node.action]]
        known = ~np.isnan(state).any(axis=0)
        return {
            node.name: node.mechanisms[0](state[:, node.inputs], draws)
            for node in nodes
            if node.law is not None
            and known[node.inputs].all()
            and not (node.action is not None and altered[node.action])
        }

    def _good(
        self, path: _Path, levels: Float[Array, "d_y r"], draw: int
    ) -> tuple[Float[Array, " p"], Float[Array, "p d_a"]]:
        r"""Multiply up how likely each outcome keeps its bounds, given those before.

        Each outcome is then drawn from what lies within its bounds (the sequential
        simulator of Geweke, Hajivassiliou and Keane), so that dependent outcomes stay
        dependent, no path is wasted, and the product is smooth in the actions.
        """
        first = self.width - len(self.outcomes)
        good = np.ones(len(path.state))
        rise = np.zeros((len(path.state), self.n_actions))
        for k, outcome in enumerate(self.outcomes):
            z = path.inputs(outcome.inputs)
            mean = outcome.mechanism(z, np.array([draw]))[:, 0]
            lower, upper = bounds(self.region, k, path.state[:, first : first + k])
            law = outcome.law.at(z, draw, mean)
            below, above = law.cdf(lower - mean), law.cdf(upper - mean)
            kept = np.maximum(above - below, 0.0)
            if path.differentiates:
                slope = law.density(lower - mean) - law.density(upper - mean)
                by_input = outcome.mechanism.gradient(z, draw)
                step = slope[:, None] * path.chain(outcome.inputs, by_input)
                rise = kept[:, None] * rise + good[:, None] * step
            good *= kept
            if k + 1 < len(self.outcomes):
                u = below + np.tile(levels[k], path.shape[0]) * kept
                path.state[:, first + k] = mean + law.quantile(u)
        return (
            good.reshape(path.shape).mean(axis=1),
            rise.reshape(*path.shape, self.n_actions).mean(axis=1),
        )


@dataclass(eq=False)
class _Path:
    """The state of all paths of a block in one drawn world, as it fills up.

    Args:
        state: The values.
        shape: How many pairs there are, and paths of each.
        n_actions: The number of actions.
        differentiates: Whether slopes by the actions are wanted.
        altered: The action that each altered column is.
        slopes: How the columns that follow from these do.
    """

    state: Float[Array, "n w"]
    shape: tuple[int, int]
    n_actions: int
    differentiates: bool
    altered: dict[int, int] = field(default_factory=dict)
    slopes: dict[int, Float[Array, "n d_a"]] = field(default_factory=dict)

    @classmethod
    def start(cls, system: Rehearsal, x: Array, n_paths: int, gradient: bool) -> _Path:
        state = np.empty((len(x) * n_paths, system.width))
        state[:, : x.shape[1]] = np.repeat(x, n_paths, axis=0)
        return cls(state, (len(x), n_paths), system.n_actions, gradient)

    def inputs(self, columns: Int[Array, " d"]) -> Float[Array, "n d"]:
        return self.state[:, columns]

    def set(self, node: Node, a: Float[Array, " p"]) -> None:
        assert node.action is not None
        self.state[:, node.columns] = np.repeat(a, self.shape[1])[:, None]
        self.altered[node.columns.start] = node.action

    def follow(
        self,
        node: Node,
        levels: Float[Array, " r"],
        draw: int,
        mean: Float[Array, " p"] | None,
    ) -> None:
        z = self.inputs(node.inputs)
        u = np.tile(levels, self.shape[0])
        if node.law is None:
            self.state[:, node.columns] = _sampled_level(node, z, u, draw)
            return
        if mean is None:
            centre = node.mechanisms[0](z, np.array([draw]))[:, 0]
        else:
            centre = np.repeat(mean, self.shape[1])
        law = node.law.at(z, draw, centre)
        value = centre + law.quantile(u)
        self.state[:, node.columns] = value[:, None]
        moved = {*self.altered, *self.slopes}
        if self.differentiates and not moved.isdisjoint(node.inputs.tolist()):
            by_input = node.mechanisms[0].gradient(z, draw) * law.rise[:, None]
            self.slopes[node.columns.start] = self.chain(node.inputs, by_input)

    def chain(
        self, columns: Int[Array, " d"], by_input: Float[Array, "n d"]
    ) -> Float[Array, "n d_a"]:
        out = np.zeros((len(by_input), self.n_actions))
        for column, slope in zip(columns.tolist(), by_input.T, strict=True):
            if column in self.altered:
                out[:, self.altered[column]] += slope
            elif column in self.slopes:
                out += slope[:, None] * self.slopes[column]
        return out


def _sampled_level(
    node: Node, z: Float[Array, "n d"], u: Float[Array, " n"], draw: int
) -> Float[Array, "n k"]:
    """Choose a level with its probability: the regressions of its indicators."""
    shares = np.stack([m(z, np.array([draw]))[:, 0] for m in node.mechanisms], axis=1)
    shares = np.maximum(shares, 1e-6)
    below = np.cumsum(shares / shares.sum(axis=1, keepdims=True), axis=1)
    level = np.minimum((below < u[:, None]).sum(axis=1), shares.shape[1] - 1)
    return np.eye(shares.shape[1])[level]


def bounds(
    region: Polytope, k: int, before: Float[Array, "n k"]
) -> tuple[Float[Array, " n"], Float[Array, " n"]]:
    """The bounds of outcome ``k`` by the constraints in which it is the last one."""
    M, b = region.normals, region.offsets
    lower, upper = np.full(len(before), -np.inf), np.full(len(before), np.inf)
    for m, bound, strict in zip(M, b, region.strict, strict=True):
        if m[k] == 0.0 or m[k + 1 :].any():
            continue
        end = (bound - before @ m[:k]) / m[k]
        near = -NEAR if strict else NEAR
        if m[k] > 0:
            upper = np.minimum(upper, end + near)
        else:
            lower = np.maximum(lower, end - near)
    return lower, upper
