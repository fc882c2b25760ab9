"""Multi-start projected gradient ascent, for all contexts at once."""

from __future__ import annotations

import numbers
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import numpy as np
from jaxtyping import Float, Int

from forestall.arrays import Array
from forestall.errors import SpecError
from forestall.expansion import Expansion

# Steps taken on one evaluation of the gradient.
LONGEST = 5
# From one evaluation to the next a gradient is not taken to grow by more than this.
FASTEST = 2.0
# Starts are ranked by where they would be so many strides ahead.
AHEAD = 2.0
# A stride that went too far is shortened to this.
SLOWER = 0.25
# How far aside of the records starts lie, in standard deviations.
ASIDE = 0.01


@runtime_checkable
class Objective(Protocol):
    """Whatever can be climbed: one function of the action for each context."""

    def value_and_gradient(
        self, a: Float[Array, "q s d"]
    ) -> tuple[Float[Array, "q s"], Float[Array, "q s d"]]:
        """Evaluate and differentiate each function at its own points."""


@dataclass(frozen=True, kw_only=True)
class Ascent:
    r"""How to climb (algorithm 1, phase 3).

    Args:
        n_starts: The number of starts :math:`K`.
        step_size: The rate :math:`\nu`, in standardised actions.
        n_steps: The number of steps :math:`T`, which the paper leaves open.
        halve_every: After so many steps the worse half of the starts is given up;
            ``None`` keeps them all to the end, as the paper does.
        stride: How many steps are taken on one evaluation of the gradient, which is
            continued by its trend in between; 1 evaluates each, as the paper does.
            ``None`` is a tenth of the steps, at most 5.
    """

    n_starts: int = 20
    step_size: float = 0.2
    n_steps: int = 50
    halve_every: int | None = 5
    stride: int | None = None

    def __post_init__(self) -> None:
        """Check that there is something to climb with."""
        for name in ("n_starts", "n_steps", "halve_every", "stride"):
            value = getattr(self, name)
            left = name in ("halve_every", "stride") and value is None
            if not left and not (isinstance(value, int) and value > 0):
                raise SpecError(f"Expected {name} above zero and whole; got {value!r}.")
        if not is_positive(self.step_size):
            raise SpecError(f"Expected step_size above zero; got {self.step_size!r}.")

    def climb(
        self,
        objective: Objective,
        starts: Float[Array, "q s d"],
        lower: Float[Array, " d"],
        upper: Float[Array, " d"],
    ) -> Float[Array, "q d"]:
        """Climb from every start, and return each context's best point."""
        # Paper: the last iterate of each start. A fixed step can go downhill, so the
        # best point on the way counts; starts outside the box are projected first; half
        # of the starts go whenever it is clear which lag behind; and not every step
        # evaluates the gradient. The path and its length stay the paper's: further up,
        # at the top of J, decisions are worse, for J is wrong there.
        if isinstance(objective, Expansion):
            objective = objective.within(lower, upper)
        climbers, done = _Climbers(np.clip(starts, lower, upper)), 0
        while True:
            climbers.look(*objective.value_and_gradient(climbers.a))
            if done == self.n_steps:
                return climbers.summit()
            stride = min(self._stride, self.n_steps - done)
            if self._stride == 1:
                a = climbers.stepped(self.step_size)
            else:
                a = climbers.strode(self.step_size, stride)
            climbers.a = np.clip(a, lower, upper)
            if (
                self.halve_every
                and done % self.halve_every + stride >= self.halve_every
            ):
                climbers.halve(0.0 if self._stride == 1 else AHEAD)
            done += stride

    @property
    def _stride(self) -> int:
        return self.stride or min(LONGEST, max(1, self.n_steps // 10))


class _Climbers:
    """All starts of all contexts on their way.

    Attributes:
        a: Where they are.
        best: Where they were highest.
        highest: How high that was.
        gradient: The gradient where they are.
        slope: The gradient where they were highest.
        before: The gradient where they were highest before that.
        pace: How much shorter than asked for their strides are.
    """

    def __init__(self, a: Float[Array, "q s d"]) -> None:
        self.a, self.best = a, a
        self.highest = np.full(a.shape[:2], -np.inf)
        self.gradient = self.slope = self.before = np.zeros(a.shape)
        self.pace = np.ones((*a.shape[:2], 1))

    def look(self, value: Float[Array, "q s"], gradient: Float[Array, "q s d"]) -> None:
        """Remember where they were highest."""
        higher = (value > self.highest)[..., None]
        self.highest = np.maximum(value, self.highest)
        self.best = np.where(higher, self.a, self.best)
        self.gradient, self.before = gradient, self.slope
        self.slope = np.where(higher, gradient, self.slope)
        self.pace = np.where(higher, self.pace, SLOWER * self.pace)

    def stepped(self, rate: float) -> Float[Array, "q s d"]:
        """Take one plain step."""
        return self.a + rate * self.gradient

    def strode(self, rate: float, stride: int) -> Float[Array, "q s d"]:
        """Take many steps at once from the best point.

        The gradient of each is taken to be that of the one before times a constant. A
        start that has gone too far is thus back at its best point, and goes on more
        slowly.
        """
        fixed = self.before == 0.0
        ratio = np.where(fixed, 1.0, self.slope / np.where(fixed, 1.0, self.before))
        ratio = np.clip(ratio, 0.0, FASTEST) ** (1.0 / stride)
        steps = np.ones(ratio.shape)
        for _ in range(stride - 1):
            steps *= ratio
            steps += 1.0
        return self.best + rate * self.pace * steps * self.slope

    def halve(self, ahead: float) -> None:
        """Give up the half of each context's starts that leads less high.

        Args:
            ahead: For how many moves like the next one the slope is thought to last.
        """
        if self.a.shape[1] == 1:
            return
        gain = np.einsum("qsd,qsd->qs", self.a - self.best, self.slope)
        order = np.argsort(-(self.highest + ahead * gain), axis=1, kind="stable")
        kept = order[:, : (order.shape[1] + 1) // 2]
        for name, v in vars(self).items():
            setattr(self, name, _taken(v, kept))

    def summit(self) -> Float[Array, "q d"]:
        """Each context's highest point."""
        return _taken(self.best, self.highest.argmax(axis=1)[:, None])[:, 0]


def _taken(v: Float[Array, "q s ..."], rows: Int[Array, "q k"]) -> Array:
    return np.take_along_axis(v, rows.reshape(*rows.shape, *[1] * (v.ndim - 2)), axis=1)


def is_positive(value: object) -> bool:
    """Tell whether a hyperparameter is a positive, finite number."""
    return isinstance(value, numbers.Real) and 0.0 < float(value) < np.inf


def aside(actions: Float[Array, "n d"]) -> Float[Array, "n d"]:
    """Move actions of history a little, each in a way that is its own.

    Where there is nothing to climb a start is given out, and that must be no person's
    own action. Which way does not depend on the other records, nor on their order.
    """
    # A hash (splitmix64); its multiplications are meant to overflow.
    bits = np.round(1e6 * actions).astype(np.int64).view(np.uint64)
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        bits = (bits ^ (bits >> np.uint64(shift))) * np.uint64(factor)
    return actions + ASIDE * (2.0 * (bits >> np.uint64(11)) / 2**53 - 1.0)


def top_starts(
    omega: Float[Array, "q n"], actions: Float[Array, "n d"], n_starts: int
) -> Float[Array, "q s d"]:
    r"""Start at the records with the largest positive weights :math:`\omega_i(x)`."""
    # Paper: does not say what happens without enough positive weights. The record of
    # the largest weight then stands in for the others, positive or not.
    k = min(n_starts, omega.shape[1])
    # Rows in a row: the weights often come as the transpose of what was computed.
    low = np.negative(omega, order="C")
    top = np.argpartition(low, k - 1, axis=1)[:, :k]
    order = np.argsort(np.take_along_axis(low, top, axis=1), axis=1, kind="stable")
    top = np.take_along_axis(top, order, axis=1)
    positive = np.take_along_axis(low, top, axis=1) < 0
    return actions[np.where(positive, top, top[:, :1])]
