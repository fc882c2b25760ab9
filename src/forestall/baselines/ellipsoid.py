r"""The cheapest action that keeps an ellipsoid of outcomes inside the region.

.. math:: \min_z\ (z - z_0)^\top W (z - z_0) \quad\text{s.t.}\quad
    m_k^\top (m_0 + B z) + r \sqrt{m_k^\top \Sigma m_k} \le d_k, \quad l \le z \le u
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import numpy as np
from jaxtyping import Float
from scipy.optimize import linprog

from forestall.arrays import Array
from forestall.errors import FitError, MissingExtraError

# Tried one after the other; the first is the one asked for.
SOLVERS = ("CLARABEL", "OSQP", "SCS")
# The ellipsoid that is asked for is smaller by this much than the largest that fits,
# so that rounding leaves the program a solution.
SPARE = 1e-6


def convex() -> ModuleType:
    """Load cvxpy, or say how to install it."""
    try:
        # An extra, and seconds to load.
        import cvxpy
    except ImportError as error:
        raise MissingExtraError("cvxpy", "convex") from error
    module: ModuleType = cvxpy
    return module


@dataclass(frozen=True, eq=False)
class Plan:
    """What is done in one context.

    Args:
        z: The action.
        radius: The radius of its ellipsoid, in standard deviations: what was asked
            for, or less where that is out of reach.
    """

    z: Float[Array, " d_a"]
    radius: float


@dataclass(frozen=True, eq=False)
class Ellipsoid:
    r"""The program, but for what depends on the context.

    Args:
        slopes: The rows :math:`m_k^\top B`.
        sds: The standard deviations :math:`\sqrt{m_k^\top \Sigma m_k}`.
        cost: The matrix :math:`W`.
        lower: The lowest feasible actions.
        upper: The highest feasible actions.
    """

    slopes: Float[Array, "l d_a"]
    sds: Float[Array, " l"]
    cost: Float[Array, "d_a d_a"]
    lower: Float[Array, " d_a"]
    upper: Float[Array, " d_a"]

    def radii(
        self, z: Float[Array, "q d_a"], room: Float[Array, "q l"]
    ) -> Float[Array, " q"]:
        r"""How large an ellipsoid fits around each action; negative outside.

        Args:
            z: The actions.
            room: The slacks :math:`d_k - m_k^\top m_0` of each context.
        """
        return ((room - z @ self.slopes.T) / self.sds).min(axis=1)

    def cheapest(
        self, z0: Float[Array, "q d_a"], room: Float[Array, "q l"], radius: float
    ) -> Iterator[Plan]:
        """Find the cheapest action of each context.

        Args:
            z0: Where an alteration costs nothing.
            room: The slacks of each context.
            radius: The radius that is asked for.
        """
        program = _Program.of(self)
        for start, slack in zip(z0, room, strict=True):
            most = self.largest(slack)
            reached = min(radius, most - SPARE * (1.0 + abs(most)))
            z = program.solved(start, slack - reached * self.sds)
            yield Plan(np.clip(z, self.lower, self.upper), reached)

    def largest(self, room: Float[Array, " l"]) -> float:
        """Find the radius of the largest ellipsoid that any action keeps inside."""
        d = len(self.lower)
        box = zip(self.lower, self.upper, strict=True)
        solved = linprog(
            np.append(np.zeros(d), -1.0),
            A_ub=np.column_stack([self.slopes, self.sds]),
            b_ub=room,
            bounds=[*box, (None, None)],
        )
        if solved.status != 0:
            raise FitError(
                f"Expected HiGHS to find the largest ellipsoid inside the region; "
                f"got: {solved.message} Scale outcomes and actions that differ by "
                f"orders of magnitude."
            )
        return float(solved.x[-1])


@dataclass(frozen=True, eq=False)
class _Program:
    """The program as cvxpy knows it, compiled once for many contexts."""

    z: Any
    z0: Any
    bound: Any
    problem: Any

    @classmethod
    def of(cls, ellipsoid: Ellipsoid) -> _Program:
        cp = convex()
        d = len(ellipsoid.lower)
        z, z0 = cp.Variable(d), cp.Parameter(d)
        bound = cp.Parameter(len(ellipsoid.sds))
        root = _root(ellipsoid.cost)
        limits = [
            ellipsoid.slopes @ z <= bound,
            z >= ellipsoid.lower,
            z <= ellipsoid.upper,
        ]
        cost = cp.sum_squares(root @ (z - z0))
        return cls(z, z0, bound, cp.Problem(cp.Minimize(cost), limits))

    def solved(
        self, z0: Float[Array, " d_a"], bound: Float[Array, " l"]
    ) -> Float[Array, " d_a"]:
        self.z0.value, self.bound.value = z0, bound
        told = []
        for solver in SOLVERS:
            status = self._status(solver)
            if status == "optimal":
                return np.array(self.z.value, dtype=float)
            told.append(f"{solver} says {status}")
        raise FitError(
            f"Expected a solution of the convex program, which has one; got none: "
            f"{'; '.join(told)}. Scale outcomes and actions that differ by orders of "
            f"magnitude, or give another cost."
        )

    def _status(self, solver: str) -> str:
        cp = convex()
        with warnings.catch_warnings():
            # An inaccurate answer is not taken, but asked of the next solver.
            warnings.simplefilter("ignore")
            try:
                self.problem.solve(solver=solver)
            except cp.SolverError as error:
                return f"error ({error})"
        return str(self.problem.status)


def _root(W: Float[Array, "d d"]) -> Float[Array, "d d"]:
    """Give R with R'R = W."""
    values, axes = np.linalg.eigh(W)
    return (axes * np.sqrt(np.maximum(values, 0.0))).T
