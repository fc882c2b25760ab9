"""The strongest linear method: the probability of the region itself, maximised."""

from __future__ import annotations

from dataclasses import dataclass

from jaxtyping import Float

from forestall.arrays import Array
from forestall.baselines.climb import Hill
from forestall.baselines.linear_policy import (
    LinearMethod,
    LinearPolicy,
    factor_of,
    is_whole,
)
from forestall.baselines.polytope_probability import PolytopeProbability
from forestall.errors import SpecError


@dataclass(frozen=True, kw_only=True)
class LinearOptimal(LinearMethod):
    r"""Maximise :math:`P(Y \in S \mid x, do(a))` in the linear-Gaussian model.

    Its logarithm is concave in the action for any convex region, bounded or not, so
    the top is found from any start. Among actions that are as good, the one nearest to
    what is usual in the context is taken.

    Assumes that every variable is linear in what precedes it, with Gaussian noise. With
    a graph, what precedes are the parents; else it is everything earlier in the order.

    Args:
        n_draws: Coefficients drawn from their posterior law, for the intervals.
        seed: What the draws come from.
        n_points: Points at which the probability of several outcomes is computed.
    """

    n_points: int = 64

    def __post_init__(self) -> None:
        """Check the numbers of draws and of points."""
        super().__post_init__()
        if not is_whole(self.n_points) or self.n_points < 1:
            raise SpecError(
                f"Expected n_points of at least 1 and whole; got {self.n_points!r}. "
                f"Use 64."
            )

    def choose(
        self, policy: LinearPolicy, x: Float[Array, "q d_x"]
    ) -> Float[Array, "q d_a"]:
        """Climb to the top."""
        schema, law = policy.schema, policy.law
        hill = Hill(
            PolytopeProbability.of(policy.region, self.n_points),
            law.base(x),
            law.by_action,
            factor_of(law)[0],
            schema.lower,
            schema.upper,
            policy.usual(x),
        )
        return hill.best()
