"""What some records say of history, to judge policies on the others by."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from jaxtyping import Float, Int

from forestall.arrays import Array
from forestall.identify import Identification
from forestall.nuisance import REGRESSED, ActionLaw, Family, Goodness, Smoother
from forestall.observations import Observations
from forestall.region import Polytope
from forestall.value import Scores, Step

# An action within so many standard deviations of what was usual is within reach.
REACH_SDS = 3.0


def steps_of(names: Sequence[str], told: Identification) -> tuple[Step, ...]:
    """Split the actions into steps; none where no adjustment is enough."""
    if told.nested.valid or (not told.staged and told.nested.valid is None):
        return (Step(told.adjusted, (), tuple(range(len(names)))),)
    steps: list[Step] = []
    for stage in () if told.sequential.valid is False else told.stages:
        now = names.index(stage.action)
        if steps and not stage.covariates:
            last = steps.pop()
            steps.append(Step(last.covariates, last.before, (*last.now, now)))
        else:
            known = steps[-1].covariates if steps else ()
            before = (*steps[-1].before, *steps[-1].now) if steps else ()
            steps.append(Step((*known, *stage.covariates), before, (now,)))
    return tuple(steps)


@dataclass(frozen=True, eq=False)
class Hindsight:
    """What a part of the records says of history, to judge the other records by.

    Args:
        data: All records, standardised.
        steps: In which steps the actions are set.
        region: The desired region.
        rows: The records learned from.
    """

    data: Observations
    steps: tuple[Step, ...]
    region: Polytope
    rows: Int[Array, " m"]

    @classmethod
    def of(
        cls,
        data: Observations,
        steps: tuple[Step, ...],
        region: Polytope,
        rows: Int[Array, " m"],
        rng: np.random.Generator,
    ) -> Hindsight:
        """Learn from at most so many of the records as settle a regression."""
        some = rng.permutation(rows)[:REGRESSED]
        return cls(data, steps, region, np.sort(some))

    def known(
        self, step: Step, rows: Int[Array, " q"], a: Float[Array, "q d_a"]
    ) -> Float[Array, "q d"]:
        """What is known when a step is due, with the actions ``a`` before it."""
        u = self.data.covariate_columns(step.covariates)[rows]
        return np.concatenate([self.data.x[rows], u, a[:, list(step.before)]], axis=1)

    def with_now(
        self, step: Step, h: Float[Array, "q d"], a: Float[Array, "q d_a"]
    ) -> Float[Array, "q e"]:
        """Add the actions of the step itself."""
        return np.concatenate([h, a[:, list(step.now)]], axis=1)

    @cached_property
    def laws(self) -> dict[int, ActionLaw]:
        """How each action was chosen, given what was known and those before it."""
        laws = {}
        for step in self.steps:
            h = self.known(step, self.rows, self.data.a[self.rows])
            for k in step.now:
                a = self.data.a[self.rows, k]
                laws[k] = ActionLaw.fit(Family(h), a)
                h = np.column_stack([h, a])
        return laws

    @cached_property
    def families(self) -> tuple[Family, ...]:
        """The inputs of the outcome regression of each step."""
        a = self.data.a[self.rows]
        return tuple(
            Family(self.with_now(step, self.known(step, self.rows, a), a))
            for step in self.steps
        )

    @cached_property
    def goodness(self) -> Goodness:
        """How likely a good outcome is, given all that preceded it."""
        y, good = self.data.y_raw[self.rows], self.data.good[self.rows]
        return Goodness.fit(self.families[-1], y, good, self.region)

    def density(self, rows: Int[Array, " q"]) -> Float[Array, "q d_a"]:
        """The density of the actions that were taken."""
        return self._by_law(rows, self.data.a[rows], ActionLaw.density)

    def deviations(
        self, rows: Int[Array, " q"], a: Float[Array, "q d_a"]
    ) -> Float[Array, "q d_a"]:
        """How far other actions are from what was usual."""
        return self._by_law(rows, a, ActionLaw.deviations)

    def _by_law(
        self,
        rows: Int[Array, " q"],
        a: Float[Array, "q d_a"],
        ask: Callable[[ActionLaw, Array, Array], Array],
    ) -> Float[Array, "q d_a"]:
        out = np.empty(a.shape)
        for step in self.steps:
            h = self.known(step, rows, a)
            for k in step.now:
                out[:, k] = ask(self.laws[k], a[:, k], h)
                h = np.column_stack([h, a[:, k]])
        return out

    def regressions(
        self, rows: Int[Array, " q"], a: Float[Array, "q d_a"]
    ) -> list[Goodness | Smoother]:
        """The outcome regression of each step, under the policy in later steps.

        Args:
            rows: Some of the records learned from.
            a: What the policy does for them; not needed where there is but one step.
        """
        found: list[Goodness | Smoother] = [self.goodness]
        for step, later in zip(self.steps[-2::-1], self.steps[:0:-1], strict=True):
            own = self.data.a[rows]
            h = self.with_now(later, self.known(later, rows, own), a)
            inputs = self.with_now(step, self.known(step, rows, own), own)
            found.insert(0, Family(inputs).fit(_shares(found[0], h)))
        return found

    def scored(
        self,
        rows: Int[Array, " q"],
        a: Float[Array, "q d_a"],
        regressions: Sequence[Goodness | Smoother],
    ) -> Scores:
        """Judge what a policy does for records that were not learned from."""
        own, under, taken = self.data.a[rows], [], []
        for step, m in zip(self.steps, regressions, strict=True):
            h = self.known(step, rows, own)
            under.append(_shares(m, self.with_now(step, h, a)))
            taken.append(_shares(m, self.with_now(step, h, own)))
        near = np.abs(self.deviations(rows, a)) <= REACH_SDS
        return Scores(
            rows=rows,
            under=np.column_stack(under),
            taken=np.column_stack(taken),
            distance=own - a,
            density=self.density(rows),
            sd=np.array([self.laws[k].sd for k in range(a.shape[1])]),
            near=near.all(axis=1),
        )


def _shares(m: Goodness | Smoother, h: Float[Array, "q d"]) -> Float[Array, " q"]:
    return np.clip(m(h), 0.0, 1.0)
