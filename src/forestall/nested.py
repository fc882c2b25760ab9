"""The paper's method: a nested kernel ridge estimator of the adjusted probability."""

from __future__ import annotations

import warnings
from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from jaxtyping import Float

from forestall.arrays import Array
from forestall.ascent import Ascent, is_positive, top_starts
from forestall.choice import Choice
from forestall.decisions import Assessment
from forestall.diagnostics import Diagnostics, diagnose
from forestall.errors import ForestallWarning, SpecError
from forestall.expansion import Basis, Expansion
from forestall.identify import Criterion, Identification
from forestall.kernels import Gaussian
from forestall.method import Method, Policy
from forestall.observations import Observations, good_records
from forestall.problem import Problem
from forestall.ridge import Belief
from forestall.setting import (
    AUTO,
    PENALTY,
    Records,
    Setting,
    factors,
    settled,
    sharpened,
)
from forestall.solution import FEW, Solution, check_size, warn_if_few_are_good
from forestall.support import Horizon, Support
from forestall.systems import Systems


@dataclass(frozen=True, kw_only=True)
class KernelRehearsal(Method):
    r"""Hyperparameters that the nested and the single estimator share.

    Args:
        bandwidth: Widths :math:`\sigma` as multiples of the median distance between
            records: one factor, or one for each of ``context``, ``covariates``,
            ``actions`` (the blocks of :math:`k_h`, stage 1) and ``embedding`` (the
            kernel on :math:`x` of stage 2). ``"auto"`` chooses a width for each
            variable by leave-one-out error; the policy's ``choice`` says which.
        outcome_penalty: The penalty :math:`\lambda_h` of stage 1; ``None`` is 1e-4,
            or chosen like the widths where these are ``"auto"``.
        context_penalty: The penalty :math:`\lambda_x` of stage 2, likewise.
        sharpness: The parameter :math:`\eta`; ``None`` chooses 5, 10 or 20 by the
            share of good records, or by Brier score where widths are ``"auto"``.
        ascent: How to climb to the best action.
    """

    bandwidth: float | Mapping[str, float] | str = 1.0
    outcome_penalty: float | None = None
    context_penalty: float | None = None
    sharpness: float | None = None
    ascent: Ascent = field(default_factory=Ascent)

    def __post_init__(self) -> None:
        """Check every hyperparameter once."""
        if self.bandwidth != AUTO:
            factors(self.bandwidth)
            for name in ("outcome_penalty", "context_penalty"):
                # Spelt out, so that a table of methods says what was used.
                if getattr(self, name) is None:
                    object.__setattr__(self, name, PENALTY)
        if not isinstance(self.ascent, Ascent):
            raise SpecError(f"Expected ascent as an Ascent; got {self.ascent!r}.")
        for name in ("outcome_penalty", "context_penalty", "sharpness"):
            value = getattr(self, name)
            if value is not None and not is_positive(value):
                raise SpecError(f"Expected {name} above zero; got {value!r}.")

    def fit(self, problem: Problem, history: Any) -> KernelPolicy:
        """Learn a policy from historical records."""
        data = Observations.read(problem, history)
        check_size(data.n, 4 if self.bandwidth == AUTO else 3)
        warn_if_few_are_good(int(data.good.sum()))
        adjusted = self.adjusted(problem.identification())
        return KernelPolicy.fitted(
            self, problem, Records(data, adjusted, problem.region)
        )

    def setting(self, records: Records) -> Setting:
        """Settle kernels, penalties and sharpness for these records."""
        penalties = (self.outcome_penalty, self.context_penalty)
        return settled(records, self.bandwidth, penalties, self.sharpness)

    @abstractmethod
    def adjusted(self, identification: Identification) -> tuple[str, ...]:
        """Name the covariates :math:`U` that are adjusted for."""


@dataclass(frozen=True, kw_only=True)
class NestedRehearsal(KernelRehearsal):
    r"""The paper's nested estimator, adjusted for the covariates before the actions.

    .. math:: \hat J_\eta(a; x) = \left(\alpha \odot k_x(x) \odot
        (K_{uu} \gamma(x))\right)^\top k_a(a)  \quad (9)

    Args and defaults as for :class:`KernelRehearsal`; one set for every problem.
    """

    def adjusted(self, identification: Identification) -> tuple[str, ...]:
        """Adjust for what precedes the first action; warn where that is not enough."""
        if identification.nested.valid is False or identification.staged:
            warnings.warn(
                f"The nested estimator may be biased here: "
                f"{identification.nested.explanation}",
                ForestallWarning,
                stacklevel=3,
            )
        return identification.adjusted


@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class KernelPolicy(Policy):
    r"""A fitted kernel method: two Cholesky factors and the weights they gave.

    Args:
        method: The hyperparameters.
        records: The records, standardised, and what is adjusted for.
        systems: The linear systems, factored.
        solution: The weights for the desired region.
        basis: Few actions that span those of the records; ``None`` keeps them all.
        joint: The density of contexts and actions together.
    """

    method: KernelRehearsal
    records: Records
    systems: Systems
    solution: Solution
    basis: Basis | None
    joint: Support

    @classmethod
    def fitted(
        cls, method: KernelRehearsal, problem: Problem, records: Records
    ) -> KernelPolicy:
        """Factor the systems and solve them (algorithm 1, phase 1)."""
        data, setting = records.data, method.setting(records)
        systems = Systems.factored(setting, records)
        return cls(
            problem=problem,
            schema=data.schema,
            horizon=Horizon.of(data.schema.context, data.x),
            method=method,
            records=records,
            systems=systems,
            solution=systems.solved(records),
            basis=Basis.spanning(setting.k_a, data.a, records.probes()),
            joint=Support.of(np.concatenate([data.x, data.a], axis=1)),
        )

    @property
    def setting(self) -> Setting:
        """Kernels, penalties and sharpness."""
        return self.systems.setting

    @property
    def choice(self) -> Choice | None:
        """What the records chose, and why; ``None`` where widths were given."""
        return self.setting.choice

    @property
    def data(self) -> Observations:
        """The records, standardised."""
        return self.records.data

    @property
    def u(self) -> Float[Array, "n d_u"]:
        """The covariates adjusted for; no columns when there are none."""
        return self.systems.u

    @property
    def K_uu(self) -> Float[Array, "n n"] | None:
        """The Gram matrix of ``u``; ``None`` when there is nothing to adjust for."""
        return self.systems.K_uu

    @property
    def k_x(self) -> Gaussian:
        """The factor of :math:`k_h` on contexts."""
        return self.setting.k_x

    @property
    def k_u(self) -> Gaussian:
        """The factor of :math:`k_h` on covariates."""
        return self.setting.k_u

    @property
    def k_a(self) -> Gaussian:
        """The factor of :math:`k_h` on actions."""
        return self.setting.k_a

    @property
    def k_e(self) -> Gaussian:
        """The kernel on contexts that embeds the covariates (stage 2)."""
        return self.setting.k_e

    def diagnostics(self) -> Diagnostics:
        """Say how well it all fits, what matters, and which records would help."""
        return diagnose(self)

    @property
    def criterion(self) -> Criterion:
        """The nested criterion."""
        return self.identification.nested

    def objective(self, contexts: Any, actions: Any) -> Array:
        r"""Evaluate the smoothed :math:`\hat J_\eta(a; x)` that the ascent climbs."""
        objective, a = self._at(contexts, actions)
        return objective(a)[:, 0]

    def gradient(self, contexts: Any, actions: Any) -> Array:
        r"""Differentiate :math:`\hat J_\eta` by the actions, in the user's units."""
        objective, a = self._at(contexts, actions)
        return objective.gradient(a)[:, 0] / self.schema.actions.scales

    def for_region(self, desired: Any) -> KernelPolicy:
        """Ask for another desired region by one more solve; the widths stay."""
        problem = replace(self.problem, desired=desired)
        good = good_records(problem.region, self.data.y_raw)
        data = replace(self.data, good=good)
        records = replace(self.records, data=data, region=problem.region)
        setting = sharpened(self.setting, records, self.method.sharpness)
        systems = replace(self.systems, setting=setting)
        return replace(
            self,
            problem=problem,
            records=records,
            systems=systems,
            solution=systems.solved(records),
        )

    def answer(
        self, x: Float[Array, "q d_x"], a: Float[Array, "q d_a"] | None
    ) -> Assessment:
        """Choose, where no action is given, and assess."""
        reach, prior = self.systems.reach(x)
        if a is None:
            a = self._best(reach)
        told, natural = self._under(reach, prior, a), self._natural(x)
        joint = np.concatenate([x, a], axis=1)
        extrapolates = self.joint.extrapolates(joint)
        gain = told.surely_above(natural)
        unproven = extrapolates | (self.data.good.sum() < FEW)
        return Assessment(
            a,
            told.mean,
            told.lower,
            told.upper,
            natural.mean,
            # Away from the records a Gaussian kernel only repeats its prior, and a few
            # good records may be luck: no evidence of an improvement.
            np.where(unproven, np.minimum(gain, 0.0), gain),
            self.joint.score(joint),
            extrapolates,
        )

    def _best(self, reach: Float[Array, "n q"]) -> Float[Array, "q d_a"]:
        """Climb from the best records (algorithm 1, phase 3)."""
        omega = (self.solution.alpha[:, None] * reach).T
        starts = top_starts(omega, self.data.a, self.method.ascent.n_starts)
        s, ascent = self.setting.stretch, self.method.ascent
        lower, upper = self.schema.lower, self.schema.upper
        top = ascent.climb(self._expansion(omega, s), starts / s, lower / s, upper / s)
        return np.clip(s * top, lower, upper)

    def _expansion(
        self, omega: Float[Array, "q n"], stretch: Float[Array, " d_a"] | float
    ) -> Expansion:
        f = Expansion(self.k_a, self.data.a, omega)
        if self.basis is not None:
            f = self.basis.expand(omega)
        kernel = Gaussian(f.kernel.bandwidth / stretch)
        return Expansion(kernel, f.centres / stretch, f.weights)

    def _under(
        self,
        reach: Float[Array, "n q"],
        prior: Float[Array, " q"],
        a: Float[Array, "q d_a"],
    ) -> Belief:
        v = reach * self.k_a(self.data.a, a)
        alpha, scale = self.solution.alpha_hard, self.solution.scale
        return Belief.of(alpha, v, prior, self.systems.inner, scale)

    def _natural(self, x: Float[Array, "q d_x"]) -> Belief:
        v, prior = self.setting.k_n(self.data.x, x), np.ones(len(x))
        alpha, scale = self.solution.alpha_natural, self.solution.scale_natural
        return Belief.of(alpha, v, prior, self.systems.natural, scale)

    def _at(self, contexts: Any, actions: Any) -> tuple[Expansion, Array]:
        x = self.schema.encode_contexts(contexts).x
        a = self.schema.actions_from_table(actions, len(x))
        omega = (self.solution.alpha[:, None] * self.systems.reach(x)[0]).T
        return Expansion(self.k_a, self.data.a, omega), a[:, None, :]
