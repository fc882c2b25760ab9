r"""The action that puts the most draws inside the region, by mixed-integer program.

.. math:: \max_{z, e} \sum_i e_i \quad\text{s.t.}\quad
    a_{ik}^\top z - h_{ik} \le (1 - e_i)\,\alpha_{ik},\quad l \le z \le u,
    \quad e_i \in \{0, 1\}

with the tightest constants, :math:`\alpha_{ik} = \max(0, \max_{l \le z \le u}
a_{ik}^\top z - h_{ik})`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Bool, Float

from forestall.arrays import Array
from forestall.baselines.cuts import Cell, Cuts
from forestall.baselines.sweep import climb, sweep
from forestall.errors import FitError

# What scipy's milp reports.
OPTIMAL, LIMIT, INFEASIBLE = 0, 1, 2


def most_inside(cuts: Cuts, seconds: float) -> Cell:
    """Find the action that puts the most draws inside the region.

    Args:
        cuts: Where each draw is inside.
        seconds: After so long the best action so far is taken.
    """
    if len(cuts.lower) == 1:
        return sweep(cuts)
    z = climb(cuts)
    program = Program.of(cuts, at_least=int(cuts.inside(z).sum()) + 1)
    if program is None:
        return cuts.centred(z, proven=True)
    solved = program.solved(seconds)
    if solved.x is not None:
        found = np.clip(solved.x[: len(z)], cuts.lower, cuts.upper)
        z = np.stack([z, found])[int(cuts.counts(np.stack([z, found])).argmax())]
    # A program that asks for more than is known already, and has no solution, proves
    # that nothing better exists.
    return cuts.centred(z, proven=solved.status in (OPTIMAL, INFEASIBLE))


@dataclass(frozen=True, eq=False)
class Program:
    r"""The program over the draws for which the action matters.

    Args:
        cuts: The draws that some action puts inside and some action does not.
        alpha: The constants :math:`\alpha`.
        at_least: How many of these draws have to be inside.
    """

    cuts: Cuts
    alpha: Float[Array, "n l"]
    at_least: int

    @classmethod
    def of(cls, cuts: Cuts, at_least: int) -> Program | None:
        """Leave out what is decided anyway; ``None`` where more cannot be had."""
        centre = 0.5 * (cuts.upper + cuts.lower)
        reach = np.abs(cuts.slopes) @ (0.5 * (cuts.upper - cuts.lower))
        middle = cuts.slopes @ centre - cuts.room
        always: Bool[Array, " n"] = (middle + reach <= 0).all(axis=1)
        never: Bool[Array, " n"] = (middle - reach > 0).any(axis=1)
        open_ = ~always & ~never
        missing = at_least - int(always.sum())
        if missing > open_.sum():
            return None
        kept = Cuts(cuts.slopes[open_], cuts.room[open_], cuts.lower, cuts.upper)
        return cls(kept, np.maximum(0.0, middle + reach)[open_], missing)

    def solved(self, seconds: float) -> Any:
        """Run HiGHS; where it breaks down, once more without its presolve."""
        told = self._run(seconds, presolve=True)
        if told.status in (OPTIMAL, LIMIT, INFEASIBLE):
            return told
        again = self._run(seconds, presolve=False)
        if again.status in (OPTIMAL, LIMIT, INFEASIBLE):
            return again
        raise FitError(
            f"Expected HiGHS to solve a mixed-integer program of "
            f"{len(self.alpha)} draws; got, also without presolve: {again.message} "
            f"Use fewer draws, or scale outcomes and actions that differ by orders "
            f"of magnitude."
        )

    def _run(self, seconds: float, *, presolve: bool) -> Any:
        from scipy.optimize import Bounds, LinearConstraint, milp

        n, d = len(self.alpha), len(self.cuts.lower)
        return milp(
            np.append(np.zeros(d), -np.ones(n)),
            integrality=np.append(np.zeros(d), np.ones(n)),
            bounds=Bounds(
                np.append(self.cuts.lower, np.zeros(n)),
                np.append(self.cuts.upper, np.ones(n)),
            ),
            constraints=[
                LinearConstraint(self._matrix(), ub=self._bounds()),
                LinearConstraint(np.append(np.zeros(d), np.ones(n)), lb=self.at_least),
            ],
            options={"time_limit": seconds, "presolve": presolve},
        )

    def _matrix(self) -> Any:
        from scipy.sparse import csc_array, hstack

        draw, row = np.nonzero(self.alpha > 0)
        switches = csc_array(
            (self.alpha[draw, row], (np.arange(len(draw)), draw)),
            shape=(len(draw), len(self.alpha)),
        )
        return hstack([csc_array(self.cuts.slopes[draw, row]), switches], format="csc")

    def _bounds(self) -> Float[Array, " r"]:
        bound = self.cuts.room + self.alpha
        return bound[self.alpha > 0]
