"""Search on the truth: screen the whole box, then close in on the best of it."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from jaxtyping import Float

from forestall.arrays import Array

N_SCREENED = 1024
N_STARTS = 16
N_ROUNDS = 6
RADIUS = 0.2

DRAWS_TO_SCREEN = 1_000
DRAWS_TO_REFINE = 2_000
MOST_DRAWS = DRAWS_TO_REFINE * 2 ** (N_ROUNDS - 1)

Score = Callable[[Array, int], Array]


def maximise(score: Score, d: int) -> Float[Array, " d"] | None:
    """Find the best point of the unit cube.

    Screening is broad and rough. Then, in each round, the best few points move to
    their best neighbour; half of them stay, with neighbours half as far and judged on
    twice the draws, because what is left to tell apart gets smaller.

    Args:
        score: Maps points, one in a row, and a number of draws, at most
            ``MOST_DRAWS``, to the points' scores, with the same draws for all points;
            minus infinity marks what is no choice.
        d: The dimension of the cube.

    Returns:
        The point, or None when no point that was tried is a choice.
    """
    t, steps = _screen(d), _steps(d)
    p = score(t, DRAWS_TO_SCREEN)
    for k in range(N_ROUNDS):
        starts = t[np.argsort(-p, kind="stable")[: max(1, N_STARTS >> k)]]
        around = np.clip(starts[:, None] + RADIUS / 2**k * steps, 0.0, 1.0)
        p = score(around.reshape(-1, d), DRAWS_TO_REFINE * 2**k)
        p = p.reshape(around.shape[:2])
        t, p = around[np.arange(len(p)), p.argmax(axis=1)], p.max(axis=1)
    return None if np.isneginf(p).all() else t[p.argmax()]


def _screen(d: int) -> Float[Array, "m d"]:
    # The corners are there for plans that are supported at an end of every interval.
    corners = np.stack(np.meshgrid(*[[0.0, 1.0]] * d), axis=-1).reshape(-1, d)
    centre = np.full((1, d), 0.5)
    return np.concatenate([centre, corners, _sobol(d, N_SCREENED)])


def _steps(d: int) -> Float[Array, "m d"]:
    # The first step stays: closing in never loses what was found.
    around = 2.0 * _sobol(d, 4 * 2 ** min(d, 3)) - 1.0
    return np.concatenate([np.zeros((1, d)), around])


def _sobol(d: int, n: int) -> Float[Array, "n d"]:
    # Loading scipy.stats takes longer than most decisions: only when it is needed.
    from scipy.stats import qmc

    return qmc.Sobol(d, scramble=False).random(n)
