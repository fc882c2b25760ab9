r"""Climbing the probability of a polytope over a box of actions.

For a Gaussian outcome whose mean is affine in the action, and any convex region,
:math:`a \mapsto \log P(Y \in S)` is concave (Prekopa): a local maximum is global.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product

import numpy as np
from jaxtyping import Bool, Float, Int

from forestall.arrays import Array
from forestall.baselines.polytope_probability import PolytopeProbability

# What a step of one standard deviation away from the usual action costs, in log
# probability: too little to matter, enough to choose the nearest of equals.
PULL = 1e-6
N_STEPS = 60
N_HALVINGS = 30
# Steps shorter than this, in standard deviations, are no steps.
SHORT = 1e-9
# Heights that differ by less are equal.
EQUAL = 1e-9
# With more actions than this, corners are too many to look at.
MOST_ACTIONS = 6
# So near to a bound, as a share of the box, an action is taken to be at it.
NEAR = 0.01


@dataclass(frozen=True, eq=False)
class Hill:
    r"""The function :math:`\log P(m + B a + F e \in S)`, less a small pull.

    Args:
        probability: The probability of the region.
        base: The vectors :math:`m`, one for each context.
        by_action: The matrix :math:`B`.
        factor: The matrix :math:`F`, lower triangular.
        lower: The lowest actions.
        upper: The highest actions.
        usual: The actions to stay near to among equals, one for each context.
    """

    probability: PolytopeProbability
    base: Float[Array, "q d"]
    by_action: Float[Array, "d d_a"]
    factor: Float[Array, "d d"]
    lower: Float[Array, " d_a"]
    upper: Float[Array, " d_a"]
    usual: Float[Array, "q d_a"]

    def best(self) -> Float[Array, "q d_a"]:
        """Climb from the usual action and the middle of the box, then from corners."""
        q = len(self.base)
        middle = np.broadcast_to(0.5 * (self.lower + self.upper), self.usual.shape)
        rows = np.tile(np.arange(q), 2)
        tops = self.top(rows, np.concatenate([self.usual, middle]))
        height = self.height(rows, tops)
        # There is one top; only rounding tells the two climbs apart.
        better = height[q:] > height[:q] + EQUAL
        best = np.where(better[:, None], tops[q:], tops[:q])
        return self._from_corners(best, np.maximum(height[q:], height[:q]))

    def _from_corners(
        self, best: Float[Array, "q d_a"], height: Float[Array, " q"]
    ) -> Float[Array, "q d_a"]:
        """Climb again where a corner of the box is higher than the top that was found.

        Far from the region rounding takes its slope, and a climb can stop early.
        """
        if best.shape[1] > MOST_ACTIONS:
            return best
        rows, start, top = np.arange(len(best)), best.copy(), height.copy()
        for corner in product(*zip(self.lower, self.upper, strict=True)):
            there = self.height(rows, np.tile(corner, (len(best), 1)))
            higher = there > np.maximum(top, height + EQUAL)
            start[higher], top[higher] = corner, there[higher]
        (low,) = np.nonzero(top > height)
        best = best.copy()
        best[low] = self.top(low, start[low])
        return best

    def top(
        self, rows: Int[Array, " r"], start: Float[Array, "r d_a"]
    ) -> Float[Array, "r d_a"]:
        """Climb to the top by projected Newton steps, from any start.

        Args:
            rows: The context of each climb.
            start: Where it starts.
        """
        a = np.clip(start, self.lower, self.upper)
        live = np.arange(len(a))
        for _ in range(N_STEPS):
            if not len(live):
                break
            a[live], moved = self._step(rows[live], a[live])
            live = live[moved]
        return a

    def height(
        self, rows: Int[Array, " r"], a: Float[Array, "r d_a"]
    ) -> Float[Array, " r"]:
        """Evaluate the function for some contexts."""
        mean = self.base[rows] + a @ self.by_action.T
        log_p = self.probability.log(mean, self.factor[None])
        return log_p - self._cost(rows, a)

    def _cost(
        self, rows: Int[Array, " r"], a: Float[Array, "r d_a"]
    ) -> Float[Array, " r"]:
        return 0.5 * PULL * ((a - self.usual[rows]) ** 2).sum(axis=1)

    def _step(
        self, rows: Int[Array, " r"], a: Float[Array, "r d_a"]
    ) -> tuple[Float[Array, "r d_a"], Bool[Array, " r"]]:
        W = np.linalg.solve(self.factor, self.by_action)
        mean = self.base[rows] + a @ self.by_action.T
        cut = self.probability.truncated(mean, self.factor[None])
        slope = cut.noise @ W - PULL * (a - self.usual[rows])
        bend = np.swapaxes(W, 0, 1) @ cut.shrinkage @ W + PULL * np.eye(a.shape[1])
        free = ~self._held(a, slope)
        both = free[:, :, None] & free[:, None, :] | np.eye(a.shape[1], dtype=bool)
        bend = np.where(both, bend, 0.0)
        toward = np.linalg.solve(bend, slope[:, :, None])[:, :, 0]
        height = cut.log_probability - self._cost(rows, a)
        return self._searched(rows, a, slope, toward, height)

    def _held(
        self, a: Float[Array, "r d_a"], slope: Float[Array, "r d_a"]
    ) -> Bool[Array, "r d_a"]:
        """Tell which actions are at a bound, or nearly, that the slope pushes to."""
        # If only those at the bound were, clipped steps could creep up to it for ever
        # (Bertsekas 1982).
        left = np.clip(a + slope, self.lower, self.upper) - a
        near = NEAR * (self.upper - self.lower)
        near = np.minimum(near, np.linalg.norm(left, axis=1)[:, None])
        low, high = a <= self.lower + near, a >= self.upper - near
        return low & (slope < 0) | high & (slope > 0)

    def _searched(
        self,
        rows: Int[Array, " r"],
        a: Float[Array, "r d_a"],
        slope: Float[Array, "r d_a"],
        toward: Float[Array, "r d_a"],
        height: Float[Array, " r"],
    ) -> tuple[Float[Array, "r d_a"], Bool[Array, " r"]]:
        """Halve the step until it climbs; where none does, this is the top."""
        out, moved = a.copy(), np.zeros(len(a), dtype=bool)
        left = np.arange(len(a))
        for k in range(N_HALVINGS):
            new = np.clip(a[left] + 0.5**k * toward[left], self.lower, self.upper)
            far = np.abs(new - a[left]).max(axis=1, initial=0.0) > SHORT
            left, new = left[far], new[far]
            if not len(left):
                break
            rise = 1e-4 * (slope[left] * (new - a[left])).sum(axis=1)
            better = self.height(rows[left], new) >= height[left] + rise
            out[left[better]], moved[left[better]] = new[better], True
            left = left[~better]
        return out, moved
