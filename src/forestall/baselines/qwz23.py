"""QWZ23: the action that brings the most worlds of the posterior into the region."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from jaxtyping import Float, Int
from scipy.special import betaincinv

from forestall.arrays import Array
from forestall.ascent import is_positive
from forestall.baselines.bayes import Beliefs
from forestall.baselines.cuts import Cell, Cuts
from forestall.baselines.linear_gaussian import LinearGaussian, Rehearsed
from forestall.baselines.linear_policy import is_whole
from forestall.baselines.milp import most_inside
from forestall.baselines.noted import Choice, NotedMethod, NotedPolicy, check_share
from forestall.baselines.online import Inquiry, encoded
from forestall.decisions import Assessment, Decisions, percent
from forestall.errors import SpecError, warn
from forestall.nested import density, horizon_of
from forestall.observations import ContextRows, Observations
from forestall.problem import Problem
from forestall.scale.supply import Held

# Worlds drawn to choose by: a sweep takes many, a mixed-integer program does not.
SWEPT, SOLVED = 2000, 200
LATE = (
    "The solver ran out of time; this is the best action found so far, not proven to "
    "be the best."
)


@dataclass(frozen=True, kw_only=True)
class QWZ23(NotedMethod):
    r"""Put the most draws from the posterior inside the region.

    Every drawn set of coefficients and noise gives outcomes that are affine in the
    action, :math:`y_i(z) = b_i + B_i z`. The action that brings the most of them into
    the region is found exactly: by a sweep for one action, by a mixed-integer program
    for several. Of actions that are equally good the middle is taken.

    With a ``threshold`` it asks before it answers: the most informative action is taken
    among those that succeed as often as the threshold says, and
    :meth:`QWZ23Policy.updated` learns from what came of it, round by round.

    Assumes that every variable is linear in what precedes it, with Gaussian noise. With
    a graph, what precedes are the parents; else it is everything earlier in the order.

    After Qin, Wang and Zhou, NeurIPS 2023, where each decision is one round of an
    online problem.

    Args:
        n_draws: Coefficients drawn from their posterior law, to report with.
        seed: What the draws come from.
        n_worlds: Draws of coefficients and noise to choose by; ``None`` is 2000 for one
            action and 200 for several.
        n_fresh: Draws of coefficients and noise to judge what was chosen.
        delta: The share of judgements :math:`\delta` that their band may miss.
        time_limit: Seconds for the program of one context; then the best action so far
            is taken, which the reason says.
        threshold: The success :math:`\tau` that an inquiring action must have.
    """

    n_worlds: int | None = None
    n_fresh: int = 1000
    delta: float = 0.05
    time_limit: float = 2.0
    threshold: float | None = None

    def __post_init__(self) -> None:
        """Check every hyperparameter once."""
        super().__post_init__()
        check_share("delta", self.delta)
        if self.threshold is not None:
            check_share("threshold", self.threshold)
        if not is_positive(self.time_limit):
            raise _not_above_zero("time_limit", self.time_limit)
        for name in ("n_worlds", "n_fresh"):
            value = getattr(self, name)
            left_out = name == "n_worlds" and value is None
            if not left_out and not (is_whole(value) and value > 0):
                raise _not_above_zero(name, value, " and whole")

    def learned(self, problem: Problem, data: Observations) -> QWZ23Policy:
        """Fit the model."""
        data = _sorted(data)
        model = LinearGaussian.fit(problem, data)
        beliefs = Beliefs.of(model, data.n)
        return QWZ23Policy(
            problem=problem,
            schema=data.schema,
            horizon=horizon_of(Held(data, data)),
            method=self,
            data=data,
            model=replace(model, point=beliefs.mean(model)),
            joint=density(np.concatenate([data.x, data.a], axis=1)),
            beliefs=beliefs,
        )


@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class QWZ23Policy(NotedPolicy):
    """A fitted linear-Gaussian model, and what is believed of its coefficients.

    Args:
        beliefs: The posterior law of every equation.
    """

    method: QWZ23
    beliefs: Beliefs

    def choices(self, x: Float[Array, "q d_x"]) -> Sequence[Choice]:
        """Find the action of each context."""
        cells = [self._cell(each) for each in x]
        if self.method.threshold is None:
            return [Choice(cell.centre, _note(cell)) for cell in cells]
        return [self._inquired(*pair) for pair in zip(x, cells, strict=True)]

    def answer(
        self, x: Float[Array, "q d_x"], a: Float[Array, "q d_a"] | None
    ) -> Assessment:
        """Judge by fresh draws what was chosen by others."""
        told = super().answer(x, a)
        if a is None:
            return told
        failures = self._failures(x, told.actions)
        low, high = pac_band(failures, self.method.n_fresh, self.method.delta)
        # The band knows the error of the draws only, not what their coefficients
        # leave open: it is never narrower than that.
        lower, upper = np.minimum(told.lower, low), np.maximum(told.upper, high)
        return replace(told, lower=lower, upper=upper)

    def _decide(
        self,
        rows: ContextRows,
        a: Float[Array, "q d_a"] | None,
        infeasible: list[bool] | None = None,
        *,
        jobs: int = 1,
    ) -> Decisions:
        told = super()._decide(rows, a, infeasible, jobs=jobs)
        late = sum(reason.endswith(LATE) for reason in told.reason)
        if late:
            warn(
                f"The solver ran out of time for {late} of {rows.n} contexts; the best "
                f"actions found so far are taken. Raise time_limit, now "
                f"{self.method.time_limit:g} s, or lower n_worlds."
            )
        return told

    def updated(self, records: Any) -> QWZ23Policy:
        """Learn from records in which the actions were set.

        Args:
            records: A table with every variable of the problem, or one mapping.
        """
        rows = encoded(self.problem, self.schema, records)
        model = replace(self.model, state=np.concatenate([self.model.state, rows]))
        beliefs = Beliefs.of(model, self.data.n)
        columns = np.append(model.context_columns, model.action_columns)
        return replace(
            self,
            model=replace(model, point=beliefs.mean(model)),
            joint=density(model.state[:, columns]),
            beliefs=beliefs,
        )

    def _cell(self, x: Float[Array, " d_x"]) -> Cell:
        return most_inside(self._cuts(x), self.method.time_limit)

    def _cuts(self, x: Float[Array, " d_x"]) -> Cuts:
        worlds = self._worlds
        base = worlds.law.base(x[None])[0] + worlds.noise
        gain = worlds.law.by_action
        return Cuts.of(self.region, base, gain, self.schema.lower, self.schema.upper)

    def _inquired(self, x: Float[Array, " d_x"], cell: Cell) -> Choice:
        assert self.method.threshold is not None
        cuts = self._cuts(x)
        reached = cell.count / len(cuts.room)
        if reached < self.method.threshold:
            return Choice(
                cell.centre,
                f"The threshold of {percent(self.method.threshold)} is out of reach: "
                f"the best action reaches {percent(reached)}, and is taken.",
            )
        inquiry = Inquiry.of(self.model, self.beliefs.equations, x)
        a = inquiry.most_informative(cuts, cell.centre, self.method.threshold)
        return Choice(a, _note(cell))

    def _failures(
        self, x: Float[Array, "q d_x"], a: Float[Array, "q d_a"]
    ) -> Int[Array, " q"]:
        fresh = self._fresh
        counts = [
            self.region.contains(fresh.law.mean(x_i[None], a_i[None])[0] + fresh.noise)
            for x_i, a_i in zip(x, a, strict=True)
        ]
        return np.array([int((~inside).sum()) for inside in counts], dtype=int)

    @cached_property
    def _worlds(self) -> Worlds:
        several = len(self.schema.lower) > 1
        n = self.method.n_worlds or (SOLVED if several else SWEPT)
        return self._drawn_worlds(n, 1)

    @cached_property
    def _fresh(self) -> Worlds:
        return self._drawn_worlds(self.method.n_fresh, 2)

    def _drawn_worlds(self, n: int, stream: int) -> Worlds:
        rng = np.random.default_rng([self.method.seed, stream])
        law = self.model.rehearsed(self.beliefs.drawn(self.model, n, rng))
        e = rng.standard_normal((n, law.by_noise.shape[-1]))
        return Worlds(law, np.einsum("sde,se->sd", law.by_noise, e))

    @cached_property
    def _draws(self) -> tuple[Rehearsed, Rehearsed]:
        rng = np.random.default_rng([self.method.seed, 0])
        draws = self.beliefs.drawn(self.model, self.method.n_draws, rng)
        return self.model.rehearsed(draws), self.model.natural(draws)


@dataclass(frozen=True, eq=False)
class Worlds:
    """Draws of coefficients and noise.

    Args:
        law: The law of the outcomes for each set of coefficients.
        noise: What the noise adds to the outcomes.
    """

    law: Rehearsed
    noise: Float[Array, "s d_y"]


def pac_band(
    failures: Int[Array, " q"], n: int, delta: float
) -> tuple[Float[Array, " q"], Float[Array, " q"]]:
    r"""Bound the success of decisions of which ``failures`` of ``n`` fresh draws fail.

    The tighter of two bounds that hold with probability :math:`1 - \delta`: that of
    Clopper and Pearson, for all counts at once, and that of Hoeffding.

    Example:
        >>> low, high = pac_band(np.array([0, 50, 1000]), 1000, 0.05)
        >>> low.round(3).tolist(), high.round(3).tolist()
        ([0.989, 0.916, 0.0], [1.0, 0.973, 0.011])
    """
    p, q = 1.0 - failures / n, delta / (2 * n)
    reach = np.sqrt(np.log(2 / delta) / (2 * n))
    none, all_ = failures == 0, failures == n
    some, most = np.maximum(failures, 1), np.minimum(failures, n - 1)
    low = np.where(all_, 0.0, 1.0 - betaincinv(most + 1.0, n - most, 1.0 - q))
    high = np.where(none, 1.0, 1.0 - betaincinv(some, n - some + 1.0, q))
    return np.maximum(low, p - reach), np.minimum(high, p + reach)


def _not_above_zero(name: str, value: object, kind: str = "") -> SpecError:
    return SpecError(
        f"Expected {name} above zero{kind}; got {value!r}. Leave it out for the "
        f"default."
    )


def _note(cell: Cell) -> str:
    return "" if cell.proven else LATE


def _sorted(data: Observations) -> Observations:
    """Sort the records, so that rounding does not depend on their order."""
    order = np.lexsort(np.concatenate([data.x, data.u, data.a, data.y], axis=1).T)
    names = ("x", "u", "a", "y", "y_raw", "good")
    return replace(data, **{name: getattr(data, name)[order] for name in names})
