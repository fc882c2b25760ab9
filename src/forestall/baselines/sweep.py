"""The action that puts the most draws inside the region: exactly, along a line."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from forestall.arrays import Array
from forestall.baselines.cuts import Cell, Cuts

# Random directions that a climb tries after the coordinates, and how often it goes
# round; places it looks at first, and climbs from.
DIRECTIONS = 8
ROUNDS = 4
SCREENED = 128
STARTS = 4


@dataclass(frozen=True)
class Stretch:
    """The deepest stretch of a line.

    Args:
        start: Where it begins.
        stop: Where it ends.
        count: How many draws are inside there.
    """

    start: float
    stop: float
    count: int

    @property
    def middle(self) -> float:
        """The centre of the stretch."""
        return 0.5 * (self.start + self.stop)


def sweep(cuts: Cuts) -> Cell:
    """Find the best value of a single action, in O(n log n)."""
    origin, direction = np.zeros(1), np.ones(1)
    found = deepest(cuts, origin, direction)
    if found is None:
        return Cell(cuts.nearest(), 0)
    centre = np.clip(np.array([found.middle]), cuts.lower, cuts.upper)
    return Cell(centre, found.count)


def deepest(
    cuts: Cuts, origin: Float[Array, " d_a"], direction: Float[Array, " d_a"]
) -> Stretch | None:
    """Sweep along a line; of stretches equally deep the widest is taken."""
    start, stop = _intervals(cuts, origin, direction)
    good = start <= stop
    if not good.any():
        return None
    starts, stops = np.sort(start[good]), np.sort(stop[good])
    begun = np.searchsorted(starts, starts, side="right")
    # The first stop at or after a start ends the stretch, and counts as inside it.
    over = np.searchsorted(stops, starts, side="left")
    depth = begun - over
    width = np.where(depth == depth.max(), stops[over] - starts, -1.0)
    k = int(width.argmax())
    return Stretch(float(starts[k]), float(stops[over[k]]), int(depth[k]))


def _intervals(
    cuts: Cuts, origin: Float[Array, " d_a"], direction: Float[Array, " d_a"]
) -> tuple[Float[Array, " n"], Float[Array, " n"]]:
    """Where each draw enters the region along the line, and where it leaves."""
    slope = cuts.slopes @ direction
    room = cuts.room - cuts.slopes @ origin
    ends = _ratio(room, slope)
    stop = np.where(slope > 0, ends, np.inf).min(axis=1)
    start = np.where(slope < 0, ends, -np.inf).max(axis=1)
    barred = ((slope == 0) & (room < 0)).any(axis=1)
    low, high = _within_box(cuts, origin, direction)
    start = np.where(barred, np.inf, np.maximum(start, low))
    return start, np.where(barred, -np.inf, np.minimum(stop, high))


def _within_box(
    cuts: Cuts, origin: Float[Array, " d_a"], direction: Float[Array, " d_a"]
) -> tuple[float, float]:
    one = _ratio(cuts.lower - origin, direction)
    other = _ratio(cuts.upper - origin, direction)
    moves = direction != 0
    low = np.where(moves, np.minimum(one, other), -np.inf).max()
    return float(low), float(np.where(moves, np.maximum(one, other), np.inf).min())


def _ratio(over: Array, under: Array) -> Array:
    return over / np.where(under == 0, 1.0, under)


def climb(cuts: Cuts) -> Float[Array, " d_a"]:
    """Find a good value of several actions by sweeps along one line after another.

    No proof that it is the best; what a solver that runs out of time falls back to.
    """
    # Not drawn anew for each context: each is answered as if it were alone.
    rng = np.random.default_rng(0)
    d = len(cuts.lower)
    span = cuts.upper - cuts.lower
    z = cuts.lower + span * rng.random((SCREENED, d))
    z = np.concatenate([cuts.nearest()[None], z])
    order = np.argsort(-cuts.counts(z), kind="stable")
    ends = [_climbed(cuts, each, rng) for each in z[order[:STARTS]]]
    return ends[int(cuts.counts(np.array(ends)).argmax())]


def _climbed(
    cuts: Cuts, z: Float[Array, " d_a"], rng: np.random.Generator
) -> Float[Array, " d_a"]:
    d = len(z)
    span = cuts.upper - cuts.lower
    for _ in range(ROUNDS):
        before = cuts.inside(z).sum()
        lines = np.concatenate([np.eye(d), rng.normal(size=(DIRECTIONS, d)) * span])
        for direction in lines:
            found = deepest(cuts, z, direction)
            if found is not None:
                moved = np.clip(z + found.middle * direction, cuts.lower, cuts.upper)
                z = moved if _better(cuts, moved, z) else z
        if cuts.inside(z).sum() == before:
            break
    return z


def _better(cuts: Cuts, one: Float[Array, " d_a"], other: Float[Array, " d_a"]) -> bool:
    # Never below where it was, by rounding; equally good is a step to the middle.
    return bool(cuts.inside(one).sum() >= cuts.inside(other).sum())
