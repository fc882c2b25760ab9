"""Multi-start projected gradient ascent, for all contexts at once."""

from __future__ import annotations

import numbers
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int

from forestall.arrays import Array
from forestall.errors import SpecError
from forestall.expansion import Expansion


@dataclass(frozen=True, kw_only=True)
class Ascent:
    r"""How to climb (algorithm 1, phase 3).

    Args:
        n_starts: The number of starts :math:`K`.
        step_size: The rate :math:`\nu`, in standardised actions.
        n_steps: The number of steps :math:`T`, which the paper leaves open.
        halve_every: After so many steps the worse half of the starts is given up;
            ``None`` keeps them all to the end, as the paper does.
    """

    n_starts: int = 20
    step_size: float = 0.2
    n_steps: int = 50
    halve_every: int | None = 5

    def __post_init__(self) -> None:
        """Check that there is something to climb with."""
        for name in ("n_starts", "n_steps", "halve_every"):
            value = getattr(self, name)
            kept = name == "halve_every" and value is None
            if not kept and not (isinstance(value, int) and value > 0):
                raise SpecError(f"Expected {name} above zero and whole; got {value!r}.")
        if not is_positive(self.step_size):
            raise SpecError(f"Expected step_size above zero; got {self.step_size!r}.")

    def climb(
        self,
        objective: Expansion,
        starts: Float[Array, "q s d"],
        lower: Float[Array, " d"],
        upper: Float[Array, " d"],
    ) -> Float[Array, "q d"]:
        """Climb from every start, and return each context's best point."""
        # Paper: the last iterate of each start. A fixed step can go downhill, so the
        # best point on the way counts; starts outside the box are projected first; and
        # half of the starts go whenever it is clear which lag behind.
        a = np.clip(starts, lower, upper)
        best, highest = a, np.full(a.shape[:2], -np.inf)
        for step in range(self.n_steps + 1):
            value, gradient = objective.value_and_gradient(a)
            best = np.where((value > highest)[..., None], a, best)
            highest = np.maximum(value, highest)
            a = np.clip(a + self.step_size * gradient, lower, upper)
            if self.halve_every and (step + 1) % self.halve_every == 0:
                order = np.argsort(-highest, axis=1, kind="stable")
                kept = order[:, : (order.shape[1] + 1) // 2]
                a, best, highest = (_taken(v, kept) for v in (a, best, highest))
        return _taken(best, highest.argmax(axis=1)[:, None])[:, 0]


def _taken(v: Float[Array, "q s ..."], rows: Int[Array, "q k"]) -> Array:
    return np.take_along_axis(v, rows.reshape(*rows.shape, *[1] * (v.ndim - 2)), axis=1)


def is_positive(value: object) -> bool:
    """Tell whether a hyperparameter is a positive, finite number."""
    return isinstance(value, numbers.Real) and 0.0 < float(value) < np.inf


def top_starts(
    omega: Float[Array, "q n"], actions: Float[Array, "n d"], n_starts: int
) -> Float[Array, "q s d"]:
    r"""Start at the records with the largest positive weights :math:`\omega_i(x)`."""
    # Paper: does not say what happens without enough positive weights. The record of
    # the largest weight then stands in for the others, positive or not.
    k = min(n_starts, omega.shape[1])
    top = np.argpartition(-omega, k - 1, axis=1)[:, :k]
    order = np.argsort(-np.take_along_axis(omega, top, axis=1), axis=1, kind="stable")
    top = np.take_along_axis(top, order, axis=1)
    positive = np.take_along_axis(omega, top, axis=1) > 0
    return actions[np.where(positive, top, top[:, :1])]
