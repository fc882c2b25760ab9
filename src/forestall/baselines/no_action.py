"""Doing nothing: the yardstick of every table."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from jaxtyping import Float

from forestall.arrays import Array
from forestall.ascent import is_positive
from forestall.decisions import Assessment
from forestall.diagnostics import Diagnostics, diagnose
from forestall.errors import FitError, SpecError
from forestall.identify import Criterion
from forestall.kernels import Gaussian, median_bandwidth
from forestall.method import Method, Policy
from forestall.nested import horizon_of
from forestall.observations import Observations, good_records
from forestall.problem import Problem
from forestall.ridge import Belief, Ridge
from forestall.scale.supply import Held, everything

# More records than this take minutes, and soon more memory than there is.
MOST = 20_000


@dataclass(frozen=True, kw_only=True)
class NoAction(Method):
    r"""Leave everything to its natural course, and estimate where that leads.

    Args:
        bandwidth: The width on contexts, as a multiple of their median distance.
        penalty: The penalty :math:`\lambda_x`.
    """

    bandwidth: float = 1.0
    penalty: float = 1e-4

    def __post_init__(self) -> None:
        """Check both."""
        for name in ("bandwidth", "penalty"):
            value = getattr(self, name)
            if not is_positive(value):
                raise SpecError(
                    f"Expected {name} above zero; got {value!r}. Leave it out for the "
                    f"default."
                )

    def fit(self, problem: Problem, history: Any) -> NoActionPolicy:
        """Learn how likely a good outcome is without action."""
        data = everything(problem, history)
        _check_size(data.n)
        kernel = Gaussian(median_bandwidth(data.x, self.bandwidth))
        ridge = Ridge.of(kernel(data.x, data.x), self.penalty)
        return NoActionPolicy(
            problem=problem,
            schema=data.schema,
            horizon=horizon_of(Held(data, data)),
            data=data,
            kernel=kernel,
            ridge=ridge,
        )


@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class NoActionPolicy(Policy):
    """Always leaves; what it calls an action is the usual one."""

    data: Observations
    kernel: Gaussian
    ridge: Ridge

    def diagnostics(self) -> Diagnostics:
        """Say how well it all fits, what matters, and which records would help."""
        return diagnose(self)

    @property
    def criterion(self) -> Criterion:
        """Nothing is altered, so nothing can be confounded."""
        return Criterion(True, None, "Nothing is altered.")

    def for_region(self, desired: Any) -> NoActionPolicy:
        """Ask for another desired region, without fitting anew."""
        problem = replace(self.problem, desired=desired)
        good = good_records(problem.region, self.data.y_raw)
        return replace(self, problem=problem, data=replace(self.data, good=good))

    def answer(
        self, x: Float[Array, "q d_x"], a: Float[Array, "q d_a"] | None
    ) -> Assessment:
        """Estimate the natural course, whatever the actions."""
        if a is None:
            usual = np.clip(0.0, self.schema.lower, self.schema.upper)
            a = np.tile(usual, (len(x), 1))
        good = self.data.good.astype(float)
        alpha = self.ridge.solve(good)
        belief = Belief.of(
            alpha,
            self.kernel(self.data.x, x),
            np.ones(len(x)),
            self.ridge,
            float(good @ alpha) / len(good),
        )
        context = self.horizon.support
        return Assessment(
            a,
            belief.mean,
            belief.lower,
            belief.upper,
            belief.mean,
            np.full(len(x), np.nan),
            context.score(x),
            context.extrapolates(x),
        )


def _check_size(n: int) -> None:
    if n > MOST:
        raise FitError(
            f"Expected at most {MOST:,} records for NoAction(), whose fit is cubic in "
            f"their number; got {n:,}. Pass a random part of them."
        )
