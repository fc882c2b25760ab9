"""Whether the records contradict a linear model."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float
from scipy.special import fdtrc

from forestall.arrays import Array
from forestall.baselines.linear_gaussian import LinearGaussian
from forestall.polynomials import polynomials

# A variable is bent where squares and products of its inputs explain more than this
# share of what the lines leave, and that is no accident.
SHARE, ACCIDENT = 0.1, 1e-4


def bent(model: LinearGaussian) -> tuple[str, ...]:
    """Name the variables that do not follow linearly from what precedes them."""
    names = [
        equation.name
        for equation in model.equations
        if equation.action is None
        and _is_bent(model.inputs_of(equation), model.targets_of(equation))
    ]
    return tuple(dict.fromkeys(names))


def _is_bent(z: Float[Array, "n p"], v: Float[Array, " n"]) -> bool:
    n = len(v)
    one, two = polynomials(z, 1), polynomials(z, 2)
    more = two.shape[1] - one.shape[1]
    free = n - two.shape[1]
    if free < 1 or not more:
        return False
    left, rest = _squares(one, v), _squares(two, v)
    if rest <= 1e-12 * left:
        return left > 1e-12 * n
    ratio = (left - rest) / more / (rest / free)
    share = 1.0 - (rest / free) / (left / (n - one.shape[1]))
    return bool(share > SHARE and fdtrc(more, free, ratio) < ACCIDENT)


def _squares(Phi: Float[Array, "n p"], v: Float[Array, " n"]) -> float:
    """The sum of squares that least squares leave."""
    weights = np.linalg.lstsq(Phi, v, rcond=None)[0]
    return float(np.sum((v - Phi @ weights) ** 2))
