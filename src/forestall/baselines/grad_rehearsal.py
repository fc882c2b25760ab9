"""Grad-Rh: flows for what cannot be set, gradients for what can.

Qin, Wang and Zhou, "Gradient-based nonlinear rehearsal learning", AAAI 2025. Noise is
drawn once and pushed through the flows, so that a loss of the outcomes is a smooth
function of the actions; Adam descends it from several starts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
from jaxtyping import Bool, Float, Int
from scipy.special import ndtri

from forestall.arrays import Array
from forestall.ascent import aside
from forestall.baselines.descent import Descent
from forestall.baselines.flow import (
    Epoch,
    Training,
    Watcher,
    own_torch,
    require_flows,
)
from forestall.baselines.flow_system import FlowSystem, learn_system
from forestall.baselines.linear_policy import is_whole
from forestall.baselines.losses import LOSSES, Goal, inscribed_ball
from forestall.decisions import Assessment
from forestall.diagnostics import Diagnostics, diagnose
from forestall.errors import SpecError, nearest
from forestall.identify import Criterion
from forestall.method import Method, Policy, contradiction
from forestall.nested import density, horizon_of
from forestall.observations import Observations, good_records
from forestall.problem import Problem
from forestall.scale.supply import Held, everything
from forestall.support import Support

# Digits kept of standardised records: the order in which they were summed up must not
# show, and training would enlarge the last ones.
DIGITS = 9
# Draws of outcomes at a time. A gradient keeps some kilobytes of each.
BLOCK, DESCENT_BLOCK = 1 << 16, 1 << 13


@dataclass(frozen=True, kw_only=True)
class GradRehearsal(Method):
    r"""One conditional flow for each variable that is not set; Adam on the actions.

    Needs the extra ``flows``. The flows follow the graph, or else the order; without
    covariates the roles are the order. A flow knows no doubt about itself: there are
    intervals, and verdicts other than ``leave``, only with refits.

    Args:
        loss: What is descended, averaged over draws. With the Chebyshev centre and
            radius of the desired region, in standard units: ``"squared"`` or
            ``"absolute"`` distance to the centre, ``"insensitive"`` to what is within
            the radius, ``"huber"``; or ``"probit"``, minus the log of the smoothed
            success itself.
        select: Which of the iterates is chosen: the one with the best estimated
            ``"success"``, or, as published, the lowest ``"loss"``.
        sharpness: The parameter :math:`\eta` of the probit, in standard units.
        n_draws: Noise drawn to choose an action: points of low discrepancy, in place
            of 1000 random ones as published.
        n_starts: Starts of the descent.
        n_steps: Steps of Adam.
        step_size: The first of them; they shrink to zero.
        n_reported: Noise drawn to report what is chosen.
        n_refits: Flows fitted to resampled records, for the interval. Each takes as
            long as the fit itself.
        training: The size of the flows, and how they are fitted.
        progress: Whether to show how the fit comes along, on standard error.
        seed: What everything random comes from.
    """

    loss: str = "squared"
    select: str = "success"
    sharpness: float = 10.0
    n_draws: int = 512
    n_starts: int = 4
    n_steps: int = 60
    step_size: float = 0.4
    n_reported: int = 4096
    n_refits: int = 0
    training: Training = field(default_factory=Training)
    progress: bool = False
    seed: int = 0

    def __post_init__(self) -> None:
        """Check every field."""
        _check_known("loss", self.loss, tuple(LOSSES))
        _check_known("select", self.select, ("success", "loss"))
        for name in ("n_draws", "n_starts", "n_steps", "n_reported"):
            value = getattr(self, name)
            if not (is_whole(value) and value > 0):
                raise SpecError(f"Expected {name} above zero and whole; got {value!r}.")
        if not (is_whole(self.n_refits) and self.n_refits >= 0):
            raise SpecError(
                f"Expected n_refits of zero or more; got {self.n_refits!r}."
            )
        for name in ("sharpness", "step_size"):
            if not 0.0 < getattr(self, name) < np.inf:
                raise SpecError(
                    f"Expected a positive and finite {name}; got "
                    f"{getattr(self, name)!r}."
                )

    def fit(self, problem: Problem, history: Any) -> GradPolicy:
        """Learn a flow for every stage from historical records."""
        require_flows()
        data = _settled(everything(problem, history))
        rng = np.random.default_rng([self.seed, 9])
        samples = [data, *(_resampled(data, rng) for _ in range(self.n_refits))]
        with _watching(self.progress) as watch:
            systems = tuple(
                learn_system(problem, each, self.training, 1000 * k + self.seed, watch)
                for k, each in enumerate(samples)
            )
        return GradPolicy(
            problem=problem,
            schema=data.schema,
            horizon=horizon_of(Held(data, data)),
            method=self,
            data=data,
            systems=systems,
            joint=density(np.concatenate([data.x, data.a], axis=1)),
        )


@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class GradPolicy(Policy):
    """A fitted system of flows.

    Args:
        method: The hyperparameters.
        data: The records, standardised.
        systems: The flows; the first is fitted to all records, the others to
            resampled ones.
        joint: The density of contexts and actions together.
    """

    method: GradRehearsal
    data: Observations
    systems: tuple[FlowSystem, ...]
    joint: Support

    def diagnostics(self) -> Diagnostics:
        """Say how well it all fits, what matters, and which records would help."""
        return diagnose(self)

    @property
    def misfit(self) -> str:
        """Whether the flows contradict the share of good records they have seen."""
        return contradiction("system of flows", self.gap)

    @property
    def criterion(self) -> Criterion:
        """The sequential criterion."""
        return self.identification.sequential

    @cached_property
    def goal(self) -> Goal:
        """The desired region for standardised outcomes, with its largest ball."""
        outcomes = self.schema.outcomes
        region = self.problem.region.standardised(outcomes.means, outcomes.scales)
        return Goal(region, inscribed_ball(region, self.data.y), self.method.sharpness)

    def for_region(self, desired: Any) -> GradPolicy:
        """Ask for another desired region, without fitting anew."""
        problem = replace(self.problem, desired=desired)
        good = good_records(problem.region, self.data.y_raw)
        return replace(self, problem=problem, data=replace(self.data, good=good))

    def answer(
        self, x: Float[Array, "q d_x"], a: Float[Array, "q d_a"] | None
    ) -> Assessment:
        """Choose on one set of draws, report on another."""
        x = np.round(x, DIGITS)
        if a is None:
            a = self._chosen(x)
        under = self._successes(x, a)
        natural = self._successes(x, None)
        joint = np.concatenate([x, a], axis=1)
        lower, upper = self._interval(under)
        gain, _ = self._interval(under - natural)
        beyond = self._beyond(a)
        unproven = beyond | bool(self.misfit)
        return Assessment(
            a,
            under[:, 0],
            lower,
            upper,
            natural[:, 0],
            np.where(unproven, np.minimum(gain, 0.0), gain),
            # Half how usual such an action is in such a context, half how much is
            # known of where it leads, if that is known.
            0.5 * self.joint.score(joint) + 0.5 * self._known(joint, upper - lower),
            self.joint.extrapolates(joint) | beyond,
        )

    def _known(
        self, joint: Float[Array, "q d"], width: Float[Array, " q"]
    ) -> Float[Array, " q"]:
        return np.where(np.isnan(width), self.joint.score(joint), 1.0 - width)

    def _beyond(self, a: Float[Array, "q d_a"]) -> Bool[Array, " q"]:
        """Tell which actions lie further out than any trend can be trusted."""
        low, high = self.data.a.min(axis=0), self.data.a.max(axis=0)
        return ((a < 2 * low - high) | (a > 2 * high - low)).any(axis=1)

    @cached_property
    def gap(self) -> float:
        """How far the natural course is from the share of good records it has seen."""
        rows = np.linspace(0, self.data.n - 1, min(self.data.n, 64)).astype(int)
        told = self._successes(self.data.x[rows], None)[:, 0]
        return abs(float(told.mean() - self.data.good.mean()))

    def _interval(
        self, told: Float[Array, "q s"]
    ) -> tuple[Float[Array, " q"], Float[Array, " q"]]:
        """Take quantiles over the refits, around the fit; NaN where there are none."""
        if told.shape[1] == 1:
            return np.full(len(told), np.nan), np.full(len(told), np.nan)
        lower, upper = np.quantile(told, [0.05, 0.95], axis=1)
        return np.minimum(lower, told[:, 0]), np.maximum(upper, told[:, 0])

    def _chosen(self, x: Float[Array, "q d_x"]) -> Float[Array, "q d_a"]:
        method, system = self.method, self.systems[0]
        descent = Descent(
            system=system,
            goal=self.goal,
            lower=self.schema.lower,
            upper=self.schema.upper,
            starts=self._starts,
            loss=method.loss,
            select=method.select,
            n_starts=method.n_starts,
            n_steps=method.n_steps,
            step_size=method.step_size,
        )
        noise = _normal(method.n_draws, system.n_noises, [method.seed, 1])
        step = max(1, DESCENT_BLOCK // (method.n_starts * method.n_draws))
        parts = [descent(x[i : i + step], noise) for i in range(0, len(x), step)]
        return np.concatenate([np.empty((0, len(self.schema.lower))), *parts])

    @property
    def _starts(self) -> Float[Array, "m d_a"]:
        """Where a descent may start: in the whole box, and where history has been."""
        lower, upper = self.schema.lower, self.schema.upper
        spread = _uniform(self.method.n_starts * 4, len(lower), [self.method.seed, 2])
        rows = np.linspace(0, self.data.n - 1, len(spread)).astype(int)
        centre = 0.5 * (lower + upper)
        everywhere = lower + spread * (upper - lower)
        taken = np.clip(aside(self.data.a[rows]), lower, upper)
        return np.concatenate([centre[None], everywhere, taken])

    def _successes(
        self, x: Float[Array, "q d_x"], a: Float[Array, "q d_a"] | None
    ) -> Float[Array, "q s"]:
        """Count good draws that had no part in choosing; a column for each system."""
        n = self.method.n_reported
        out = np.empty((len(x), len(self.systems)))
        step = max(1, BLOCK // n)
        for k, system in enumerate(self.systems):
            noise = _normal(n, system.n_noises, [self.method.seed, 3])
            for i in range(0, len(x), step):
                rows = slice(i, i + step)
                y = _drawn(system, x[rows], None if a is None else a[rows], noise)
                out[rows, k] = self.goal.region.contains(y).mean(axis=1)
        return out


def _drawn(
    system: FlowSystem,
    x: Float[Array, "q d_x"],
    a: Float[Array, "q d_a"] | None,
    noise: Float[Array, "r v"],
) -> Float[Array, "q r d_y"]:
    """Draw outcomes under the actions, or of the natural course."""
    with own_torch(0) as torch, torch.no_grad():
        x_, e = torch.tensor(x), torch.tensor(noise)
        if a is None:
            return system.left_alone(x_, e).numpy()
        return system.altered(system.settled(x_, e), torch.tensor(a), e).numpy()


def _uniform(n: int, d: int, seed: list[int]) -> Float[Array, "{n} {d}"]:
    """Points of low discrepancy in the unit cube."""
    # Loading scipy.stats takes longer than many a decision: only where needed.
    from scipy.stats import qmc

    sobol = qmc.Sobol(d, rng=np.random.default_rng(seed))
    return sobol.random_base2(max(0, (n - 1).bit_length()))[:n]


def _normal(n: int, d: int, seed: list[int]) -> Float[Array, "{n} {d}"]:
    return ndtri(np.clip(_uniform(n, d, seed), 1e-9, 1.0 - 1e-9))


def _settled(data: Observations) -> Observations:
    """Sort the records, and cut digits, so that their order does not matter."""
    names = ("x", "u", "a", "y")
    cut = {name: np.round(getattr(data, name), DIGITS) for name in names}
    order = np.lexsort(np.concatenate(list(cut.values()), axis=1).T)
    return _taken(replace(data, **cut), order)


def _resampled(data: Observations, rng: np.random.Generator) -> Observations:
    return _taken(data, rng.integers(data.n, size=data.n))


def _taken(data: Observations, rows: Int[Array, " n"]) -> Observations:
    names = ("x", "u", "a", "y", "y_raw", "good")
    return replace(data, **{name: getattr(data, name)[rows] for name in names})


def _check_known(name: str, value: object, known: tuple[str, ...]) -> None:
    if value not in known:
        raise SpecError(
            f"Expected {name} to be one of {', '.join(map(repr, known))}; got "
            f"{value!r}.{nearest(str(value), known)}"
        )


@contextmanager
def _watching(shown: bool) -> Iterator[Watcher | None]:
    """Show a bar for each flow while it is fitted."""
    if not shown:
        yield None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (
        TextColumn("{task.description}"),
        BarColumn(bar_width=12),
        TextColumn("epoch {task.completed}"),
        TextColumn("{task.fields[told]}"),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=Console(stderr=True)) as bars:
        yield _bar(bars)


def _bar(bars: Any) -> Callable[[Epoch], None]:
    task: list[Any] = [None]

    def watch(epoch: Epoch) -> None:
        said = f"loss {epoch.held_out:.3f}, best {epoch.best:.3f}"
        if epoch.number == 1:
            task[0] = bars.add_task(epoch.flow, total=epoch.of, told="")
        bars.update(task[0], completed=epoch.number, told=said)

    return watch
