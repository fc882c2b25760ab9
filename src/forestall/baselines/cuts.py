"""Half spaces of actions: where each drawn world ends up in the desired region."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float, Int
from scipy.optimize import linprog

from forestall.arrays import Array
from forestall.region import Polytope

# What rounding may do to a draw on the edge of the region.
EDGE = 1e-9


@dataclass(frozen=True, eq=False)
class Cell:
    """A set of actions that put the same draws inside the region.

    Args:
        centre: The centre of the largest ball in it.
        count: How many draws are inside.
        proven: Whether no action puts more of them inside.
    """

    centre: Float[Array, " d_a"]
    count: int
    proven: bool = True


@dataclass(frozen=True, eq=False)
class Cuts:
    r"""The rows :math:`a_{ik}^\top z \le h_{ik}` of each draw :math:`i`, in a box.

    Args:
        slopes: The vectors :math:`a_{ik} = B_i^\top m_k`.
        room: The bounds :math:`h_{ik} = d_k - m_k^\top b_i`.
        lower: The lowest feasible actions.
        upper: The highest feasible actions.
    """

    slopes: Float[Array, "n l d_a"]
    room: Float[Array, "n l"]
    lower: Float[Array, " d_a"]
    upper: Float[Array, " d_a"]

    @classmethod
    def of(
        cls,
        region: Polytope,
        base: Float[Array, "n d_y"],
        gain: Float[Array, "n d_y d_a"],
        lower: Float[Array, " d_a"],
        upper: Float[Array, " d_a"],
    ) -> Cuts:
        r"""Cut the box by the outcomes :math:`b_i + B_i z` of every draw."""
        slopes = np.einsum("ld,nda->nla", region.normals, gain)
        return cls(slopes, region.slack(base), lower, upper)

    def inside(self, z: Float[Array, " d_a"]) -> Bool[Array, " n"]:
        """Tell which draws an action puts inside."""
        return (self.slopes @ z <= self.room + EDGE).all(axis=1)

    def counts(self, z: Float[Array, "m d_a"]) -> Int[Array, " m"]:
        """Count for each action how many draws it puts inside."""
        reached = np.tensordot(z, self.slopes, axes=(1, 2))
        return (reached <= self.room + EDGE).all(axis=2).sum(axis=1)

    def centred(self, z: Float[Array, " d_a"], proven: bool) -> Cell:
        """Move an action to the middle of its cell."""
        inside = self.inside(z)
        if not inside.any():
            return Cell(self.nearest(), 0, proven)
        rows = self.slopes[inside].reshape(-1, len(z))
        sides = np.concatenate([np.eye(len(z)), -np.eye(len(z))])
        bounds = np.concatenate([self.room[inside].ravel(), self.upper, -self.lower])
        centre = self._deepest(np.concatenate([rows, sides]), bounds)
        count = int(self.inside(centre).sum())
        # Rounding must not lose a draw in a cell that is hardly wider than a point.
        if count < inside.sum():
            return Cell(z, int(inside.sum()), proven)
        return Cell(centre, count, proven)

    def nearest(self) -> Float[Array, " d_a"]:
        """Where no draw can be brought inside: bring their mean closest."""
        return self._deepest(self.slopes.mean(axis=0), self.room.mean(axis=0))

    def _deepest(
        self, rows: Float[Array, "r d_a"], bounds: Float[Array, " r"]
    ) -> Float[Array, " d_a"]:
        r"""Find the action of :math:`\max r` subject to :math:`a z + r |a| \le h`."""
        d = rows.shape[1]
        # The radius may be negative, so that the program is never infeasible; rows
        # that no action moves have no length, and are left out.
        length = np.linalg.norm(rows, axis=1)
        kept = length > 0
        if not kept.any():
            return 0.5 * (self.lower + self.upper)
        box = zip(self.lower, self.upper, strict=True)
        solved = linprog(
            np.append(np.zeros(d), -1.0),
            A_ub=np.column_stack([rows, length])[kept],
            b_ub=bounds[kept],
            bounds=[*box, (None, None)],
        )
        if solved.x is None:
            return 0.5 * (self.lower + self.upper)
        return np.clip(solved.x[:-1], self.lower, self.upper)
