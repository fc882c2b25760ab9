r"""The largest rectangle inside a polytope, with edges along given axes.

In the coordinates of the axes, where the polytope is :math:`\{ w : M w \le b \}`:

.. math:: \max \sum_i \log(u_i - l_i) \quad \text{s.t.} \quad M_+ u - M_- l \le b
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float
from scipy.optimize import linprog

from forestall.arrays import Array
from forestall.errors import FitError
from forestall.region import Polytope

# How far beyond the historical outcomes an unbounded region is looked at, in their
# standard deviations, when nothing of it lies within their range.
PADS = (0.0, 1.0, 3.0, 10.0, 100.0)
# A ball smaller than this is no room.
THIN = 1e-6
# The barrier is this many times steeper in each round, for so many rounds.
STEEPER, N_ROUNDS = 10.0, 12


@dataclass(frozen=True, eq=False)
class Rectangle:
    """A rectangle; an end may be infinite.

    Args:
        lower: The lower ends.
        upper: The upper ends.
    """

    lower: Float[Array, " d"]
    upper: Float[Array, " d"]

    @property
    def region(self) -> Polytope:
        """The same as a polytope; at least one end must be finite."""
        unit = np.eye(len(self.lower))
        up, down = np.isfinite(self.upper), np.isfinite(self.lower)
        return Polytope(
            np.concatenate([unit[up], -unit[down]]),
            np.concatenate([self.upper[up], -self.lower[down]]),
        )


def inscribed(
    region: Polytope, axes: Float[Array, "d d"], y: Float[Array, "n d"]
) -> Rectangle:
    """Find the largest rectangle in a region, along the rows of ``axes``.

    Where the region is unbounded, size is measured within the range of the historical
    outcomes ``y``; then every end is moved out as far as the region allows.
    """
    M, b = region.normals @ axes.T, region.offsets
    if _bounded(M, b):
        return _stretched(_largest(M, b, *_ball(M, b)), M, b)
    for pad in PADS:
        M_y = np.concatenate([axes.T, -axes.T])
        b_y = np.concatenate([y.max(axis=0) + pad, pad - y.min(axis=0)])
        near, ends = np.concatenate([M, M_y]), np.concatenate([b, b_y])
        centre, radius = _ball(near, ends)
        if radius > THIN:
            return _stretched(_largest(near, ends, centre, radius), M, b)
    raise FitError(
        f"Expected part of the desired region within {PADS[-1]:g} standard deviations "
        f"of the historical outcomes; got none of {str(region)!r}. Check the units of "
        f"the region."
    )


def _bounded(M: Float[Array, "l d"], b: Float[Array, " l"]) -> bool:
    d = M.shape[1]
    for c in np.concatenate([np.eye(d), -np.eye(d)]):
        told = linprog(c, A_ub=M, b_ub=b, bounds=[(None, None)] * d)
        if told.status != 0:
            return False
    return True


def _ball(
    M: Float[Array, "l d"], b: Float[Array, " l"]
) -> tuple[Float[Array, " d"], float]:
    """The centre and radius of the largest ball inside."""
    d = M.shape[1]
    told = linprog(
        np.append(np.zeros(d), -1.0),
        A_ub=np.column_stack([M, np.linalg.norm(M, axis=1)]),
        b_ub=b,
        bounds=[(None, None)] * d + [(None, None)],
    )
    if told.status != 0:
        raise FitError(
            f"Expected to find the largest ball in the desired region; got from the "
            f"linear program: {told.message} Use LinearOptimal(), which needs none."
        )
    return told.x[:-1], float(told.x[-1])


def _largest(
    M: Float[Array, "l d"],
    b: Float[Array, " l"],
    centre: Float[Array, " d"],
    radius: float,
) -> Rectangle:
    """Solve the program by a barrier; every iterate lies inside the region."""
    d = len(centre)
    A = np.concatenate([np.maximum(M, 0.0), np.minimum(M, 0.0)], axis=1)
    half = 0.5 * radius / np.sqrt(d)
    z = np.concatenate([centre + half, centre - half])
    for k in range(N_ROUNDS):
        z = _centred(z, A, b, STEEPER**k)
    return Rectangle(z[d:], z[:d])


def _centred(
    z: Float[Array, " e"], A: Float[Array, "l e"], b: Float[Array, " l"], t: float
) -> Float[Array, " e"]:
    """Minimise one barrier function by Newton steps."""
    d = len(z) // 2
    D = np.concatenate([np.eye(d), -np.eye(d)], axis=1)

    def value(z: Float[Array, " e"]) -> float:
        sides, slack = D @ z, b - A @ z
        if min(sides.min(), slack.min()) <= 0:
            return np.inf
        return float(-t * np.log(sides).sum() - np.log(slack).sum())

    for _ in range(50):
        side, slack = 1.0 / (D @ z), 1.0 / (b - A @ z)
        slope = -t * D.T @ side + A.T @ slack
        bend = t * (D.T * side**2) @ D + (A.T * slack**2) @ A
        step = -np.linalg.lstsq(bend, slope, rcond=None)[0]
        fall = float(slope @ step)
        sizes = (0.5**k for k in range(40))
        now = value(z)
        size = next((s for s in sizes if value(z + s * step) < now + 0.1 * s * fall), 0)
        z = z + size * step
        if -fall < 1e-9 or size == 0:
            break
    return z


def _stretched(
    inner: Rectangle, M: Float[Array, "l d"], b: Float[Array, " l"]
) -> Rectangle:
    """Move each end out as far as the region allows, given the other ends."""
    lower, upper = inner.lower.copy(), inner.upper.copy()
    for i in range(len(lower)):
        for sign, ends in ((1.0, upper), (-1.0, lower)):
            rows = sign * M[:, i] > 1e-12
            room = (b - _reach(M, lower, upper))[rows] / np.abs(M[rows, i])
            ends[i] += sign * max(float(room.min(initial=np.inf)), 0.0)
    return Rectangle(lower, upper)


def _reach(
    M: Float[Array, "l d"], lower: Float[Array, " d"], upper: Float[Array, " d"]
) -> Float[Array, " l"]:
    """The largest value of each constraint over a rectangle."""
    ends = np.where(M > 0, upper, lower)
    return np.where(np.abs(M) > 1e-12, M * np.where(M == 0, 0.0, ends), 0.0).sum(axis=1)
