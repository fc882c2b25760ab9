"""CARE (Du et al., ICML 2025): convex maximisation over a canonical rectangle."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from forestall.arrays import Array
from forestall.baselines.climb import Hill
from forestall.baselines.linear_policy import LinearMethod, LinearPolicy
from forestall.baselines.polytope_probability import PolytopeProbability
from forestall.baselines.rectangle import Rectangle, inscribed

# Below this share of the largest, an action has no influence to speak of.
IDLE = 1e-12


@dataclass(frozen=True, kw_only=True)
class CARE(LinearMethod):
    r"""Maximise the probability of a rectangle along the axes of the outcomes' law.

    Along the eigenvectors of their covariance the outcomes are independent, so that the
    probability of a rectangle is a product whose logarithm is concave in the action.
    The rectangle is the region itself where it has such edges, else the largest one
    inside. For one outcome between two bounds the best action is known in closed form:
    it brings the mean as near to the middle as the box allows; the cheapest such action
    is taken, the one nearest to what is usual. What is *reported* is the probability of
    the region itself.

    Assumes that every variable is linear in what precedes it, with Gaussian noise. With
    a graph, what precedes are the parents; else it is everything earlier in the order.
    """

    def choose(
        self, policy: LinearPolicy, x: Float[Array, "q d_x"]
    ) -> Float[Array, "q d_a"]:
        """Choose in closed form where there is one, else climb."""
        law, schema = policy.law, policy.schema
        spread, axes = principal_axes(law.covariance, policy.data.n)
        rectangle = inscribed(policy.region, axes, policy.data.y)
        base, by_action = law.base(x) @ axes.T, axes @ law.by_action
        usual = policy.usual(x)
        if policy.region.dim == 1 and _two_sided(rectangle):
            target = 0.5 * (rectangle.lower[0] + rectangle.upper[0]) - base[:, 0]
            return cheapest(by_action[0], target, usual, schema.lower, schema.upper)
        probability = PolytopeProbability.of(rectangle.region)
        factor = np.diag(spread)
        return Hill(
            probability, base, by_action, factor, schema.lower, schema.upper, usual
        ).best()


def principal_axes(
    covariance: Float[Array, "d d"], n: int
) -> tuple[Float[Array, " d"], Float[Array, "d d"]]:
    """The standard deviations along the principal axes, and these axes as rows.

    Correlations that ``n`` records cannot tell from none are taken for none: otherwise
    chance would turn the axes of outcomes that vary alike.
    """
    sd = np.sqrt(np.diag(covariance))
    correlation = np.abs(covariance / np.outer(sd, sd) - np.eye(len(sd)))
    if correlation.max() <= 2.0 / np.sqrt(n):
        return sd, np.eye(len(sd))
    values, vectors = np.linalg.eigh(covariance)
    return np.sqrt(np.maximum(values, 1e-12 * values.max())), vectors.T


def cheapest(
    by_action: Float[Array, " d_a"],
    target: Float[Array, " q"],
    usual: Float[Array, "q d_a"],
    lower: Float[Array, " d_a"],
    upper: Float[Array, " d_a"],
) -> Float[Array, "q d_a"]:
    r"""The nearest action to the usual one that moves a mean to its target.

    The actions with :math:`b^\top a = t` that are nearest to :math:`a_0` in the box are
    :math:`clip(a_0 + \lambda b)`, and :math:`b^\top a` rises with :math:`\lambda` in
    straight pieces between the values where some action meets its bound.

    Args:
        by_action: The vector :math:`b`.
        target: The targets :math:`t`; one out of reach is neared as far as possible.
        usual: The usual actions :math:`a_0`, inside the box.
        lower: The lowest actions.
        upper: The highest actions.
    """
    moving = np.abs(by_action) > IDLE * np.abs(by_action).max()
    if not moving.any():
        return usual
    b = np.where(moving, by_action, 0.0)
    low, high = ((end - usual)[:, moving] / b[moving] for end in (lower, upper))
    turns = np.sort(np.concatenate([low, high], axis=1), axis=1)
    reach = np.clip(usual[:, None] + turns[:, :, None] * b, lower, upper) @ b
    goal = np.clip(target, reach[:, 0], reach[:, -1])
    after = np.clip((reach < goal[:, None]).sum(axis=1), 1, reach.shape[1] - 1)
    rows = np.arange(len(goal))
    start, width = reach[rows, after - 1], reach[rows, after] - reach[rows, after - 1]
    share = np.clip((goal - start) / np.where(width > 0, width, 1.0), 0.0, 1.0)
    first, last = turns[rows, after - 1], turns[rows, after]
    shift = first + share * (last - first)
    return np.clip(usual + shift[:, None] * b, lower, upper)


def _two_sided(rectangle: Rectangle) -> bool:
    return bool(np.isfinite([rectangle.lower, rectangle.upper]).all())
