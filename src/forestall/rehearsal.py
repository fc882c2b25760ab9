"""Rehearsing: contexts and actions run through the mechanisms, stage by stage.

Every variable that is not set follows from what precedes it: the mean of its mechanism,
in one of the drawn functions, plus a residual of its law. The same draws and the same
residuals serve every context and action, so that differences between actions are not
noise, and the success of a draw is a smooth function of the actions that can be
differentiated along the path.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float, Int
from scipy.special import log_ndtr

from forestall.arrays import Array
from forestall.law import Law
from forestall.mechanism import Mechanism
from forestall.region import Polytope

# Residual vectors that stand for the joint law of several outcomes.
ATOMS = 96
# How sharply a joint outcome counts as good: a twentieth of a standard deviation.
SHARPNESS = 20.0
# Points run at a time.
BLOCK = 1 << 15


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
    """

    name: str
    columns: slice
    inputs: Int[Array, " d"]
    mechanisms: tuple[Mechanism, ...]
    law: Law | None
    action: int | None


@dataclass(frozen=True, eq=False)
class Outcome:
    """One outcome.

    Args:
        mechanism: Its mean.
        law: How it strays from it.
        ranks: Where its residual ranks, from 0 to 1, in records chosen for all outcomes
            alike: together they show how the outcomes go along with each other.
    """

    mechanism: Mechanism
    law: Law
    ranks: Float[Array, " k"]

    def atoms(
        self, z: Float[Array, "n d"], draw: int
    ) -> Float[
        Array,
        (
            k  # n
        ),
    ]:
        """The residuals of these ranks, given the inputs; one column if all alike."""
        below, grid = self.law.below[:, draw], self.law.grid
        if self.law.distortion is None:
            return np.interp(self.ranks, below, grid)[:, None]
        shares = self.law.distortion(z)
        levels = [shares.undo(np.full(len(z), rank)) for rank in self.ranks]
        return np.interp(np.stack(levels), below, grid)


@dataclass(frozen=True, eq=False)
class Noise:
    """One set of inner draws: for each node, a number from 0 to 1 for each path."""

    levels: Float[Array, "v r"]

    @classmethod
    def stratified(cls, n_nodes: int, n_paths: int, rng: np.random.Generator) -> Noise:
        """Spread the levels evenly for each node, in an order of its own."""
        even = (np.arange(n_paths) + 0.5) / n_paths
        return cls(np.stack([rng.permutation(even) for _ in range(max(1, n_nodes))]))


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
        outcomes: The outcomes, given all that precedes them.
        outcome_inputs: The state columns that precede the outcomes.
        region: The desired region, for standardised outcomes.
        width: The number of state columns; contexts come first.
        n_actions: The number of actions.
    """

    nodes: tuple[Node, ...]
    outcomes: tuple[Outcome, ...]
    outcome_inputs: Int[Array, " d"]
    region: Polytope
    width: int
    n_actions: int

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
        n_paths = noise.levels.shape[1]
        step = max(1, BLOCK // n_paths)
        parts = [
            self._block(
                x[i : i + step], a[i : i + step], altered, draws, noise, gradient
            )
            for i in range(0, len(x), step)
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
        fixed = self._fixed_means(x, a, altered, draws)
        for k, draw in enumerate(draws.tolist()):
            path = _Path.start(self, x, noise.levels.shape[1], gradient)
            means = {name: mean[:, k] for name, mean in fixed.items()}
            for v, node in enumerate(self.nodes):
                if node.action is not None and altered[node.action]:
                    path.set(node, a[:, node.action])
                else:
                    path.follow(node, noise.levels[v], draw, means.get(node.name))
            values[:, k], slopes[:, k] = self._good(path, draw)
        return Success(values, slopes if gradient else None)

    def _fixed_means(
        self,
        x: Float[Array, "p d_x"],
        a: Float[Array, "p d_a"],
        altered: Bool[Array, " d_a"],
        draws: Int[Array, " s"],
    ) -> dict[str, Float[Array, "p s"]]:
        """Evaluate nodes whose inputs do not vary: once for all draws and paths."""
        state = np.full((len(x), self.width), np.nan)
        state[:, : x.shape[1]] = x
        for node in self.nodes:
            if node.action is not None and altered[node.action]:
                state[:, node.columns] = a[:, [node.action]]
        known = ~np.isnan(state).any(axis=0)
        return {
            node.name: node.mechanisms[0](state[:, node.inputs], draws)
            for node in self.nodes
            if node.law is not None
            and known[node.inputs].all()
            and not (node.action is not None and altered[node.action])
        }

    def _good(
        self, path: _Path, draw: int
    ) -> tuple[Float[Array, " p"], Float[Array, "p d_a"]]:
        z = path.inputs(self.outcome_inputs)
        means = [
            outcome.mechanism(z, np.array([draw]))[:, 0] for outcome in self.outcomes
        ]
        if len(means) == 1:
            good, slope = self._in_interval(means[0], z, draw)
            slopes = slope[None]
        else:
            good, slopes = self._in_polytope(np.stack(means, axis=1), z, draw)
        shape = path.shape
        if not path.differentiates:
            return good.reshape(shape).mean(axis=1), np.zeros(
                (shape[0], self.n_actions)
            )
        total = np.zeros((len(z), self.n_actions))
        for outcome, slope in zip(self.outcomes, slopes, strict=True):
            by_input = outcome.mechanism.gradient(z, draw)
            total += slope[:, None] * path.chain(self.outcome_inputs, by_input)
        return (
            good.reshape(shape).mean(axis=1),
            total.reshape(*shape, self.n_actions).mean(axis=1),
        )

    def _in_interval(
        self, mean: Float[Array, " n"], z: Float[Array, "n d"], draw: int
    ) -> tuple[Float[Array, " n"], Float[Array, " n"]]:
        law = self.outcomes[0].law
        lower, upper = interval(self.region)
        good = np.ones(len(mean))
        slope = np.zeros(len(mean))
        if upper < np.inf:
            good = law.cdf(upper - mean, z, draw)
            slope -= law.density(upper - mean, z, draw)
        if lower > -np.inf:
            good = good - law.cdf(lower - mean, z, draw)
            slope += law.density(lower - mean, z, draw)
        return np.clip(good, 0.0, 1.0), slope

    def _in_polytope(
        self, means: Float[Array, "n d_y"], z: Float[Array, "n d"], draw: int
    ) -> tuple[Float[Array, " n"], Float[Array, "d_y n"]]:
        """Average over joint residuals, which keep how the outcomes go together."""
        M, b = self.region.normals, self.region.offsets
        slack = b - means @ M.T
        residuals = [outcome.atoms(z, draw) for outcome in self.outcomes]
        good, slopes = np.zeros(len(means)), np.zeros((M.shape[1], len(means)))
        for joint in zip(*residuals, strict=True):
            t = SHARPNESS * (slack - np.stack(joint, axis=-1) @ M.T)
            logs = log_ndtr(t)
            w = np.exp(logs.sum(axis=1))
            good += w
            hazard = np.exp(-0.5 * t**2 - logs) / np.sqrt(2.0 * np.pi)
            slopes -= SHARPNESS * ((w[:, None] * hazard) @ M).T
        n_atoms = len(residuals[0])
        return good / n_atoms, slopes / n_atoms


class _Path:
    """The state of all paths of a block in one drawn world, as it fills up."""

    def __init__(self, state: Array, shape: tuple[int, int], tangents: Array | None):
        self.state, self.shape, self.tangents = state, shape, tangents

    @classmethod
    def start(cls, system: Rehearsal, x: Array, n_paths: int, gradient: bool) -> _Path:
        state = np.empty((len(x) * n_paths, system.width))
        state[:, : x.shape[1]] = np.repeat(x, n_paths, axis=0)
        tangents = None
        if gradient:
            tangents = np.zeros((*state.shape, system.n_actions))
        return cls(state, (len(x), n_paths), tangents)

    @property
    def differentiates(self) -> bool:
        return self.tangents is not None

    def inputs(self, columns: Int[Array, " d"]) -> Float[Array, "n d"]:
        return self.state[:, columns]

    def set(self, node: Node, a: Float[Array, " p"]) -> None:
        self.state[:, node.columns] = np.repeat(a, self.shape[1])[:, None]
        if self.tangents is not None:
            self.tangents[:, node.columns, node.action] = 1.0

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
        value = centre + node.law.quantile(u, z, draw)
        self.state[:, node.columns] = value[:, None]
        if self.tangents is not None and self.tangents[:, node.inputs].any():
            by_input = node.mechanisms[0].gradient(z, draw)
            self.tangents[:, node.columns] = self.chain(node.inputs, by_input)[:, None]

    def chain(
        self, columns: Int[Array, " d"], by_input: Float[Array, "n d"]
    ) -> Float[Array, "n d_a"]:
        assert self.tangents is not None
        return np.einsum("nd,nda->na", by_input, self.tangents[:, columns])


def _sampled_level(
    node: Node, z: Float[Array, "n d"], u: Float[Array, " n"], draw: int
) -> Float[Array, "n k"]:
    """Choose a level with its probability: the regressions of its indicators."""
    shares = np.stack([m(z, np.array([draw]))[:, 0] for m in node.mechanisms], axis=1)
    shares = np.maximum(shares, 1e-6)
    below = np.cumsum(shares / shares.sum(axis=1, keepdims=True), axis=1)
    level = np.minimum((below < u[:, None]).sum(axis=1), shares.shape[1] - 1)
    return np.eye(shares.shape[1])[level]


def interval(region: Polytope) -> tuple[float, float]:
    """The ends of a region of one outcome."""
    ends = region.offsets / region.normals[:, 0]
    up = region.normals[:, 0] > 0
    upper = ends[up].min() if up.any() else np.inf
    lower = ends[~up].max() if (~up).any() else -np.inf
    return float(lower), float(upper)
