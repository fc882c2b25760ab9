"""What is descended to reach a desired region: distances to its centre, or its probit.

A distance is cheap and has a slope everywhere, but its minimum is not where a good
outcome is most likely; the smoothed success is. Both are here to be told apart.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Bool, Float
from scipy.optimize import linprog

from forestall.arrays import Array
from forestall.errors import RegionError
from forestall.region import Polytope


@dataclass(frozen=True, eq=False)
class Ball:
    """The largest ball in a region: its Chebyshev centre and radius."""

    centre: Float[Array, " d"]
    radius: float


def inscribed_ball(region: Polytope, y: Float[Array, "n d"]) -> Ball:
    r"""Find the largest ball in a region, within the range of history if need be.

    .. math:: \max r \quad\text{s.t.}\quad m_k^\top o + r \|m_k\| \le b_k

    Where several balls are as large, the other sides are kept as far away as can be,
    and so on, until there is one.

    Args:
        region: The desired region.
        y: Historical outcomes, in the same units; they bound an unbounded region.
    """
    M, b = region.normals, region.offsets
    if not _is_bounded(M, b):
        eye = np.eye(region.dim)
        M = np.concatenate([M, eye, -eye])
        b = np.concatenate([b, y.max(axis=0), -y.min(axis=0)])
    margins = np.full(len(b), np.nan)
    while np.isnan(margins).any():
        centre, level, tight = _roomiest(M, b, margins)
        margins[tight] = level
    return Ball(centre, float(np.min(margins)))


def _is_bounded(M: Float[Array, "l d"], b: Float[Array, " l"]) -> bool:
    ends = (*np.eye(M.shape[1]), *-np.eye(M.shape[1]))
    return all(_solved(c, M, b).status == 0 for c in ends)


def _roomiest(
    M: Float[Array, "l d"], b: Float[Array, " l"], margins: Float[Array, " l"]
) -> tuple[Float[Array, " d"], float, Bool[Array, " l"]]:
    """Maximise the least margin that is still open, keeping those that are known.

    Returns:
        The point, the margin, and which rows can have no more of it.
    """
    free = np.isnan(margins)
    norms = np.linalg.norm(M, axis=1)
    cost = np.append(np.zeros(M.shape[1]), -1.0)
    # A hair of room, or rounding would leave no point at all.
    bounds = b - norms * np.where(free, 0.0, margins - 1e-10)
    solution = _solved(cost, np.column_stack([M, norms * free]), bounds)
    if solution.status != 0:
        raise RegionError(
            f"Expected a desired region in which a largest ball can be found; the "
            f"linear program says: {solution.message} Bound the region on more sides."
        )
    price = -solution.ineqlin.marginals * free
    return solution.x[:-1], float(solution.x[-1]), free & (price >= 1e-6 * price.max())


def _solved(c: Array, M: Array, b: Array) -> Any:
    return linprog(c, A_ub=M, b_ub=b, bounds=[(None, None)] * len(c))


@dataclass(frozen=True, eq=False)
class Goal:
    """A desired region for standardised outcomes, as the losses see it.

    Args:
        region: The region.
        ball: The largest ball in it.
        sharpness: The parameter of the probit; see ``ProbitDesirability``.
    """

    region: Polytope
    ball: Ball
    sharpness: float

    def loss(self, name: str, y: Any) -> Any:
        """Average a loss over draws.

        Args:
            name: One of ``LOSSES``.
            y: A tensor of outcomes, shape (..., draws, d).
        """
        return LOSSES[name](self, y)

    def success(self, y: Any) -> Any:
        """The share of draws inside the region."""
        return (self._slack(y) >= 0.0).all(dim=-1).double().mean(dim=-1)

    def distance(self, y: Any) -> Any:
        """The distance of each draw to the centre."""
        squares = (y - y.new_tensor(self.ball.centre)).square().sum(dim=-1)
        # A root has no slope at zero.
        return (squares + 1e-12).sqrt()

    def _slack(self, y: Any) -> Any:
        M, b = y.new_tensor(self.region.normals), y.new_tensor(self.region.offsets)
        return b - y @ M.T


def _squared(goal: Goal, y: Any) -> Any:
    return goal.distance(y).square().mean(dim=-1)


def _absolute(goal: Goal, y: Any) -> Any:
    return goal.distance(y).mean(dim=-1)


def _insensitive(goal: Goal, y: Any) -> Any:
    return (goal.distance(y) - goal.ball.radius).clamp(min=0.0).mean(dim=-1)


def _huber(goal: Goal, y: Any) -> Any:
    far, r = goal.distance(y), goal.ball.radius
    near = far.clamp(max=r)
    return (near * (far - 0.5 * near)).mean(dim=-1)


def _probit(goal: Goal, y: Any) -> Any:
    """Minus the log of the smoothed success: its maximum, but slopes far away too."""
    from torch.special import log_ndtr

    w = log_ndtr(goal.sharpness * goal._slack(y)).sum(dim=-1)
    return np.log(w.shape[-1]) - w.logsumexp(dim=-1)


LOSSES: Mapping[str, Callable[[Goal, Any], Any]] = {
    "squared": _squared,
    "absolute": _absolute,
    "insensitive": _insensitive,
    "huber": _huber,
    "probit": _probit,
}
