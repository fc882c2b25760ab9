"""MICNS: the cheapest action whose outcomes stay in the region as often as asked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float
from scipy.special import gammainc, gammaincinv

from forestall.arrays import Array
from forestall.baselines.drift import LATEST, Drift
from forestall.baselines.ellipsoid import Ellipsoid, Plan, convex
from forestall.baselines.linear_gaussian import Coefficients, LinearGaussian, Rehearsed
from forestall.baselines.noted import Choice, NotedMethod, NotedPolicy, check_share
from forestall.decisions import percent
from forestall.errors import SpecError, nearest
from forestall.nested import density, horizon_of
from forestall.observations import Observations
from forestall.problem import Problem
from forestall.scale.supply import Held

if TYPE_CHECKING:
    Cost = Mapping[str, float] | Sequence[Sequence[float]] | None
    Followed = Drift | None
else:
    # Whatever a user passes is checked by us, with our own words.
    Cost = Followed = Any


@dataclass(frozen=True, kw_only=True)
class MICNS(NotedMethod):
    r"""The cheapest alteration with a success that is as likely as asked.

    .. math:: \min_z\ (z - z_0)^\top W (z - z_0) \quad\text{s.t.}\quad
        m_k^\top \mu(x, z) + r \sqrt{m_k^\top \Sigma m_k} \le d_k,\quad
        r^2 = F^{-1}_{\chi^2_{|Y|}}(\tau)

    The ellipsoid that holds the outcomes with probability :math:`\tau` lies in the
    region, so the success is at least :math:`\tau`, and often more. Where no action
    can do that, the one with the largest ellipsoid inside is taken, and the reason says
    what it guarantees.

    Assumes that every variable is linear in what precedes it, with Gaussian noise. With
    a graph, what precedes are the parents; else it is everything earlier in the order.

    After Du, Qin, Wang and Zhou, NeurIPS 2024. Needs the extra ``convex``.

    Args:
        n_draws: Coefficients drawn from their posterior law, for the intervals; the
            method itself takes the fitted ones for true.
        seed: What the draws come from.
        target: The probability :math:`\tau` that is asked for.
        cost: The matrix :math:`W`, in the units of the actions and the order of
            ``problem.actions``; or what a change of each named action costs, squared.
            ``None`` counts every action in its own standard deviations.
        drift: How drifting coefficients are followed, with the records in order of
            time; ``None`` takes the world to be the same at all times.
    """

    target: float = 0.7
    cost: Cost = None
    drift: Followed = None

    def __post_init__(self) -> None:
        """Check every hyperparameter once."""
        super().__post_init__()
        check_share("target", self.target)
        if self.drift is not None and not isinstance(self.drift, Drift):
            raise SpecError(
                f"Expected drift as a Drift or None; got {self.drift!r}. Write "
                f"MICNS(drift=Drift())."
            )

    def learned(self, problem: Problem, data: Observations) -> MICNSPolicy:
        """Fit the model."""
        # Said now rather than when the first action is asked for.
        convex()
        model = LinearGaussian.fit(problem, data)
        if self.drift is not None:
            model = replace(model, point=self.drift.coefficients(model))
        return MICNSPolicy(
            problem=problem,
            schema=data.schema,
            horizon=horizon_of(Held(data, data)),
            method=self,
            data=data,
            model=model,
            joint=density(np.concatenate([data.x, data.a], axis=1)),
            cost=cost_matrix(self.cost, tuple(problem.actions), data),
        )


@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class MICNSPolicy(NotedPolicy):
    """A fitted linear-Gaussian model that is altered at the least cost.

    Args:
        cost: The matrix :math:`W` in standard units.
    """

    method: MICNS
    cost: Float[Array, "d_a d_a"]

    @property
    def radius(self) -> float:
        """The radius of the ellipsoid that holds the asked share of the outcomes."""
        half = 0.5 * self.region.dim
        return float(np.sqrt(2.0 * gammaincinv(half, self.method.target)))

    @cached_property
    def ellipsoid(self) -> Ellipsoid:
        """The program of every context."""
        M, law = self.region.normals, self.law
        return Ellipsoid(
            M @ law.by_action,
            np.linalg.norm(M @ law.by_noise, axis=1),
            self.cost,
            self.schema.lower,
            self.schema.upper,
        )

    def guaranteed(
        self, x: Float[Array, "q d_x"], a: Float[Array, "q d_a"]
    ) -> Float[Array, " q"]:
        """The probability of the largest ellipsoid in the region; standardised."""
        return self._held(self.ellipsoid.radii(a, self._room(x)))

    def choices(self, x: Float[Array, "q d_x"]) -> Sequence[Choice]:
        """Solve the program of each context."""
        z0 = self.model.natural_actions().base(x)
        plans = self.ellipsoid.cheapest(z0, self._room(x), self.radius)
        return [Choice(plan.z, self._note(plan)) for plan in plans]

    def _room(self, x: Float[Array, "q d_x"]) -> Float[Array, "q l"]:
        return self.region.slack(self.law.base(x))

    def _held(self, radius: Float[Array, "*q"]) -> Float[Array, "*q"]:
        half = 0.5 * self.region.dim
        return np.asarray(gammainc(half, 0.5 * np.maximum(radius, 0.0) ** 2))

    def _note(self, plan: Plan) -> str:
        if plan.radius >= self.radius:
            return ""
        reached = float(self._held(np.array(plan.radius)))
        return (
            f"The target of {percent(self.method.target)} is out of reach: at most "
            f"{percent(reached)} can be guaranteed."
        )

    @cached_property
    def gap(self) -> float:
        """How far the fitted model is from the share of good records it has seen."""
        if self.method.drift is None:
            return super().gap
        latest = replace(self, method=replace(self.method, drift=None), data=self._late)
        return latest.gap

    @property
    def _late(self) -> Observations:
        """The latest records, which are like what comes next."""
        rows = slice(-max(2, int(LATEST * self.data.n)), None)
        names = ("x", "u", "a", "y", "y_raw", "good")
        return replace(self.data, **{k: getattr(self.data, k)[rows] for k in names})

    @cached_property
    def _draws(self) -> tuple[Rehearsed, Rehearsed]:
        if self.method.drift is None:
            return super()._draws
        rng = np.random.default_rng(self.method.seed)
        n_late = len(self._late.x)
        late = replace(self.model, state=self.model.state[-n_late:])
        draws = late.posterior(self.method.n_draws, rng)
        draws = _moved(draws, self.model.point)
        return self.model.rehearsed(draws), self.model.natural(draws)


def _moved(draws: Coefficients, point: Coefficients) -> Coefficients:
    """Keep the spread of the draws, around another point."""
    return Coefficients(
        draws.intercepts - draws.intercepts.mean(axis=0) + point.intercepts,
        draws.slopes - draws.slopes.mean(axis=0) + point.slopes,
        draws.sds / draws.sds.mean(axis=0) * point.sds,
    )


def cost_matrix(
    cost: Any, actions: tuple[str, ...], data: Observations
) -> Float[Array, "d_a d_a"]:
    """Read a cost in the units of the actions, and give it in standard units."""
    if cost is None:
        return np.eye(len(actions))
    W = np.diag(_by_name(cost, actions)) if isinstance(cost, Mapping) else _array(cost)
    d = len(actions)
    if W.shape != (d, d):
        raise SpecError(
            f"Expected cost as a {d} x {d} matrix for the actions "
            f"{', '.join(actions)}; got shape {W.shape}. Give a row for each action, "
            f"or a number for each name."
        )
    scales = data.schema.actions.scales
    W = scales[:, None] * W * scales
    size = float(np.abs(W).max(initial=0.0))
    if not np.isfinite(size) or size == 0.0 or np.abs(W - W.T).max() > 1e-9 * size:
        raise SpecError(
            f"Expected cost as a finite and symmetric matrix that is not zero; got "
            f"{np.asarray(cost).tolist() if not isinstance(cost, Mapping) else cost}. "
            f"Average it with its transpose."
        )
    least = float(np.linalg.eigvalsh(W / size).min())
    if least < -1e-9:
        raise SpecError(
            f"Expected cost as a positive semidefinite matrix, so that no change has "
            f"a negative cost; got one with the eigenvalue {least * size:.4g}. Enlarge "
            f"its diagonal."
        )
    # The size of the cost decides nothing; a solver likes it to be one.
    return 0.5 * (W + W.T) / size


def _by_name(cost: Mapping[str, float], actions: tuple[str, ...]) -> list[float]:
    for name in cost:
        if name not in actions:
            raise SpecError(
                f"Expected cost to name actions ({', '.join(actions)}); got {name!r}."
                f"{nearest(str(name), actions)}"
            )
    absent = [name for name in actions if name not in cost]
    if absent:
        raise SpecError(
            f"Expected a cost for each action; missing: {', '.join(absent)}. Give 0 "
            f"for one that costs nothing."
        )
    return [float(cost[name]) for name in actions]


def _array(cost: Any) -> Array:
    try:
        return np.array(cost, dtype=float)
    except (TypeError, ValueError):
        raise SpecError(
            f"Expected cost as a matrix of numbers; got {cost!r}. Write e.g. "
            f"[[1, 0], [0, 2]]."
        ) from None
