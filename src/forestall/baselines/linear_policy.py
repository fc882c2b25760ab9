"""What the linear methods share: fitting, reporting, and climbing in the box."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from jaxtyping import Bool, Float

from forestall.arrays import Array
from forestall.baselines.linear_gaussian import LinearGaussian, Rehearsed
from forestall.baselines.linearity import bent
from forestall.baselines.polytope_probability import PolytopeProbability
from forestall.decisions import Assessment
from forestall.diagnostics import Diagnostics, diagnose
from forestall.errors import SpecError, warn
from forestall.identify import Criterion
from forestall.method import Method, Policy, contradiction, sentence
from forestall.nested import density, horizon_of
from forestall.observations import Observations, good_records
from forestall.problem import Problem
from forestall.region import Polytope
from forestall.scale.supply import Held, everything
from forestall.support import Support

# Gaussian laws evaluated at a time.
BLOCK = 1 << 16
# Points of the quadrature to report with; to choose with there are more.
REPORTED = 16


@dataclass(frozen=True, kw_only=True)
class LinearMethod(Method):
    """Fits the linear-Gaussian model; says how to choose from it.

    Args:
        n_draws: Coefficients drawn from their posterior law, for the intervals.
        seed: What the draws come from.
    """

    n_draws: int = 200
    seed: int = 0

    def __post_init__(self) -> None:
        """Check the draws."""
        if not is_whole(self.n_draws) or self.n_draws < 2:
            raise SpecError(
                f"Expected n_draws of at least 2, because intervals are their "
                f"quantiles, and whole; got {self.n_draws!r}. Use 200."
            )
        if not is_whole(self.seed) or self.seed < 0:
            raise SpecError(
                f"Expected seed whole and not below zero; got {self.seed!r}. Use 0."
            )

    def fit(self, problem: Problem, history: Any) -> LinearPolicy:
        """Learn a policy from historical records."""
        data = everything(problem, history)
        policy = LinearPolicy(
            problem=problem,
            schema=data.schema,
            horizon=horizon_of(Held(data, data)),
            method=self,
            data=data,
            model=LinearGaussian.fit(problem, data),
            joint=density(np.concatenate([data.x, data.a], axis=1)),
        )
        policy.warn()
        return policy

    @abstractmethod
    def choose(
        self, policy: LinearPolicy, x: Float[Array, "q d_x"]
    ) -> Float[Array, "q d_a"]:
        """Choose an action for each context, inside the box; all standardised."""


@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class LinearPolicy(Policy):
    """A fitted linear-Gaussian model and a way to choose.

    Args:
        method: The hyperparameters, and how to choose.
        data: The records, standardised.
        model: The fitted equations.
        joint: The density of contexts and actions together.
    """

    method: LinearMethod
    data: Observations
    model: LinearGaussian
    joint: Support

    def __repr__(self) -> str:
        """Name the method; the records it holds stay out of logs."""
        return f"<{type(self.method).__name__} for {', '.join(self.problem.actions)}>"

    def diagnostics(self) -> Diagnostics:
        """Say how well it all fits, what matters, and which records would help."""
        return diagnose(self)

    @property
    def criterion(self) -> Criterion:
        """The sequential criterion: what precedes a variable is adjusted for."""
        return self.identification.sequential

    @cached_property
    def bent(self) -> tuple[str, ...]:
        """The variables that do not follow linearly from what precedes them."""
        return bent(self.model)

    @property
    def misfit(self) -> str:
        """What in the records contradicts the model; empty if nothing does."""
        if self.bent:
            return f"the records are not linear in {', '.join(self.bent)}"
        return contradiction("linear model", self.gap)

    def warn(self) -> None:
        """Say on fitting what speaks against the model."""
        if self.misfit:
            warn(
                f"{sentence(self.misfit)}, so no action will be called an improvement. "
                f"Try StagedRehearsal(), which assumes no lines."
            )

    def for_region(self, desired: Any) -> LinearPolicy:
        """Ask for another desired region, without fitting anew."""
        problem = replace(self.problem, desired=desired)
        good = good_records(problem.region, self.data.y_raw)
        return replace(self, problem=problem, data=replace(self.data, good=good))

    def answer(
        self, x: Float[Array, "q d_x"], a: Float[Array, "q d_a"] | None
    ) -> Assessment:
        """Choose by the least-squares coefficients, report by draws of them."""
        if a is None:
            a = self.method.choose(self, x)
        under = self._reported(self._under, x, a)
        natural = self._reported(self._natural, x, a)
        joint = np.concatenate([x, a], axis=1)
        lower, upper = np.quantile(under, [0.05, 0.95], axis=1)
        mean = under.mean(axis=1)
        gain = np.quantile(under - natural, 0.05, axis=1)
        beyond = self._beyond(a)
        unproven = beyond | bool(self.misfit)
        return Assessment(
            a,
            mean,
            np.minimum(lower, mean),
            np.maximum(upper, mean),
            natural.mean(axis=1),
            np.where(unproven, np.minimum(gain, 0.0), gain),
            # Half how usual such an action is in such a context, half how much is
            # known of where it leads: a trend may be known where nobody has been.
            0.5 * self.joint.score(joint) + 0.5 * (1.0 - (upper - lower)),
            self.joint.extrapolates(joint) | beyond,
        )

    @cached_property
    def region(self) -> Polytope:
        """The desired region, for standardised outcomes."""
        outcomes = self.schema.outcomes
        return self.problem.region.standardised(outcomes.means, outcomes.scales)

    @cached_property
    def law(self) -> Rehearsed:
        """The law of the outcomes under actions, by least squares."""
        return self.model.rehearsed()

    def usual(self, x: Float[Array, "q d_x"]) -> Float[Array, "q d_a"]:
        """The mean action of each context in history, cut to the box."""
        a = self.model.natural_actions().base(x)
        return np.clip(a, self.schema.lower, self.schema.upper)

    @cached_property
    def gap(self) -> float:
        """How far the fitted model is from the share of good records it has seen."""
        rows = np.linspace(0, self.data.n - 1, min(self.data.n, 64)).astype(int)
        x = self.data.x[np.lexsort(self.data.x.T)[rows]]
        law = self.model.natural()
        told = self._probability(law.base(x), factor_of(law))
        return abs(float(told.mean() - self.data.good.mean()))

    @cached_property
    def _draws(self) -> tuple[Rehearsed, Rehearsed]:
        rng = np.random.default_rng(self.method.seed)
        draws = self.model.posterior(self.method.n_draws, rng)
        return self.model.rehearsed(draws), self.model.natural(draws)

    @property
    def _under(self) -> Rehearsed:
        return self._draws[0]

    @property
    def _natural(self) -> Rehearsed:
        return self._draws[1]

    @cached_property
    def _probability(self) -> PolytopeProbability:
        return PolytopeProbability.of(self.region, REPORTED)

    def _reported(
        self, law: Rehearsed, x: Float[Array, "q d_x"], a: Float[Array, "q d_a"]
    ) -> Float[Array, "q s"]:
        """Tell the success of each draw of the coefficients."""
        factor, n_draws = factor_of(law), self.method.n_draws
        out = np.empty((len(x), n_draws))
        step = max(1, BLOCK // n_draws)
        for i in range(0, len(x), step):
            mean = law.mean(x[i : i + step], a[i : i + step])
            rows = len(mean)
            told = self._probability(
                mean.reshape(rows * n_draws, -1), np.tile(factor, (rows, 1, 1))
            )
            out[i : i + step] = told.reshape(rows, n_draws)
        return out

    def _beyond(self, a: Float[Array, "q d_a"]) -> Bool[Array, " q"]:
        """Tell which actions lie further out than any trend can be trusted."""
        low, high = self.data.a.min(axis=0), self.data.a.max(axis=0)
        out = (a < low - (high - low)) | (a > high + (high - low))
        return out.any(axis=1)


def is_whole(value: object) -> bool:
    """Tell whole numbers, which True and False are not."""
    return isinstance(value, int | np.integer) and not isinstance(value, bool)


def factor_of(law: Rehearsed) -> Float[Array, "s d d"]:
    """The lower Cholesky factors of a law's covariance, with an axis for draws."""
    cov = law.covariance.reshape(-1, *law.covariance.shape[-2:])
    # Collinear outcomes have no density; rounding must not make it negative.
    jitter = 1e-12 * np.trace(cov, axis1=1, axis2=2)[:, None, None]
    return np.linalg.cholesky(cov + jitter * np.eye(cov.shape[-1]))
