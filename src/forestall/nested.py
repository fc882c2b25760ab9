"""The paper's method: a nested kernel ridge estimator of the adjusted probability."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from jaxtyping import Float

from forestall.arrays import Array
from forestall.ascent import Ascent, is_positive
from forestall.choice import Choice
from forestall.decisions import Assessment, Tried
from forestall.diagnostics import Diagnostics, diagnose
from forestall.errors import SpecError, warn
from forestall.expansion import Basis
from forestall.identify import Criterion, Identification
from forestall.kernels import Gaussian
from forestall.lowrank import Approximation, check_approximation
from forestall.method import COLUMNS, Method, Policy
from forestall.observations import Observations, good_records
from forestall.problem import Problem
from forestall.reduced import LowRank
from forestall.scale.supply import SAMPLE, Supply, held, kept
from forestall.setting import (
    AUTO,
    PENALTY,
    Records,
    Setting,
    even,
    factors,
    settled,
    sharpened,
)
from forestall.solution import FEW, Solution, check_size, warn_if_few_are_good
from forestall.support import UNUSUAL, Horizon, Support
from forestall.systems import Exact, Objective, Systems, View
from forestall.threads import one_thread

# The density of more records than this is settled, and quadratic in their number.
JUDGED = 2_000


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
        approximation: ``None`` is the exact fit, cubic in the number of records;
            ``Nystrom(rank=200)`` or ``RandomFourier(n_features=500)`` is linear in it,
            and a decision does not depend on it.
    """

    bandwidth: float | Mapping[str, float] | str = 1.0
    outcome_penalty: float | None = None
    context_penalty: float | None = None
    sharpness: float | None = None
    ascent: Ascent = field(default_factory=Ascent)
    approximation: Approximation | None = None

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
        check_approximation(self.approximation)
        for name in ("outcome_penalty", "context_penalty", "sharpness"):
            value = getattr(self, name)
            if value is not None and not is_positive(value):
                raise SpecError(f"Expected {name} above zero; got {value!r}.")

    def fit(self, problem: Problem, history: Any) -> KernelPolicy:
        """Learn a policy from historical records."""
        method = self.approximation
        size = SAMPLE if method is None else max(SAMPLE, method.candidates)
        supply = kept(problem, history, size=size)
        if method is None:
            check_size(supply.n, 3 if self.bandwidth == AUTO else 2)
            supply = held(supply)
        warn_if_few_are_good(supply.n_good)
        adjusted = self.adjusted(problem.identification())
        return KernelPolicy.fitted(self, problem, adjusted, supply)

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
            warn(
                f"The nested estimator may be biased here: "
                f"{identification.nested.explanation}"
            )
        return identification.adjusted


@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class KernelPolicy(Policy):
    r"""A fitted kernel method: factored systems and the weights they gave.

    With low rank the answers need none of the records; they are kept for
    :meth:`for_region` and :meth:`diagnostics`. Of a stream only a sample is kept, by
    which another region cannot be asked for.

    Args:
        method: The hyperparameters.
        setting: Kernels, penalties and sharpness, as settled.
        records: The records, standardised, and what is adjusted for.
        systems: The linear systems, factored.
        solution: The weights for the desired region.
        joint: The density of contexts and actions together.
    """

    method: KernelRehearsal
    setting: Setting
    records: Records
    systems: Systems
    solution: Solution
    joint: Support

    @classmethod
    def fitted(
        cls,
        method: KernelRehearsal,
        problem: Problem,
        adjusted: tuple[str, ...],
        supply: Supply,
    ) -> KernelPolicy:
        """Factor the systems and solve them (algorithm 1, phase 1)."""
        data, counts = supply.sample, (supply.n, supply.n_good)
        known = counts if supply.sampled else None
        records = Records(data, adjusted, problem.region, known)
        with one_thread():
            setting = method.setting(records)
            # Before the systems, which fill the memory.
            horizon = horizon_of(supply)
            joint = density(np.concatenate([data.x, data.a], axis=1))
        systems: Systems
        if method.approximation is None:
            systems = Exact.factored(setting, records)
            solution = systems.solved(records, setting.sharpness)
        else:
            low = method.approximation
            systems, solution = LowRank.fitted(low, setting, records, supply)
        return cls(
            problem=problem,
            schema=data.schema,
            horizon=horizon,
            method=method,
            setting=setting,
            records=records,
            systems=systems,
            solution=solution,
            joint=joint,
        )

    @property
    def choice(self) -> Choice | None:
        """What the records chose, and why; ``None`` where widths were given."""
        return self.setting.choice

    @property
    def width(self) -> int:
        """How many numbers are held at a time to answer one context, about."""
        exact = isinstance(self.systems, Exact)
        return COLUMNS * self.data.n if exact else super().width

    @property
    def data(self) -> Observations:
        """The records, standardised."""
        return self.records.data

    @property
    def tried(self) -> Tried:
        """What history tried of each action."""
        return Tried.of(self.data, sampled=self.records.counts is not None)

    @property
    def u(self) -> Float[Array, "n d_u"]:
        """The covariates adjusted for; no columns when there are none."""
        return self.records.u

    @property
    def basis(self) -> Basis | None:
        """Few actions that span those of the records; ``None`` keeps them all."""
        return self.systems.basis

    @property
    def K_uu(self) -> Float[Array, "n n"] | None:
        """The Gram matrix of ``u``; ``None`` when there is nothing to adjust for."""
        return self.k_u(self.u, self.u) if self.u.shape[1] else None

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
        return replace(
            self,
            problem=problem,
            setting=setting,
            records=records,
            solution=self.systems.solved(records, setting.sharpness),
        )

    @one_thread()
    def answer(
        self, x: Float[Array, "q d_x"], a: Float[Array, "q d_a"] | None
    ) -> Assessment:
        """Choose, where no action is given, and assess."""
        view = self.systems.view(x, self.solution)
        if a is None:
            a = self._best(view)
        told, natural = view.under(a), view.natural()
        joint = np.concatenate([x, a], axis=1)
        support = self.joint.score(joint)
        extrapolates = support < UNUSUAL
        gain = told.surely_above(natural)
        unproven = extrapolates | (self.solution.n_good < FEW)
        return Assessment(
            a,
            told.mean,
            told.lower,
            told.upper,
            natural.mean,
            # Away from the records a Gaussian kernel only repeats its prior, and a few
            # good records may be luck: no evidence of an improvement.
            np.where(unproven, np.minimum(gain, 0.0), gain),
            support,
            extrapolates,
        )

    def _best(self, view: View) -> Float[Array, "q d_a"]:
        """Climb from the best records (algorithm 1, phase 3)."""
        s, ascent = self.setting.stretch, self.method.ascent
        lower, upper = self.schema.lower, self.schema.upper
        starts = view.starts(ascent.n_starts)
        top = ascent.climb(view.objective(s), starts / s, lower / s, upper / s)
        return np.clip(s * top, lower, upper)

    def _at(self, contexts: Any, actions: Any) -> tuple[Objective, Array]:
        x = self.schema.encode_contexts(contexts).x
        a = self.schema.actions_from_table(actions, len(x))
        return self.systems.view(x, self.solution).objective(), a[:, None, :]


def density(v: Float[Array, "n d"]) -> Support:
    """Learn the density of records, from some of them where they are many."""
    return Support.of(even(v, JUDGED))


def horizon_of(supply: Supply) -> Horizon:
    """Learn what contexts history has seen; their density from some of them."""
    data, (lower, upper) = supply.sample, supply.range
    horizon = Horizon.of(data.schema.context, even(data.x, JUDGED))
    return replace(horizon, lower=lower, upper=upper)
