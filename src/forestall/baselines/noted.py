"""Linear policies that have something to say about how an action was chosen."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from jaxtyping import Float

from forestall.arrays import Array
from forestall.baselines.linear_policy import LinearMethod, LinearPolicy
from forestall.decisions import Assessment
from forestall.errors import SpecError
from forestall.observations import Observations
from forestall.problem import Problem
from forestall.scale.supply import everything


@dataclass(frozen=True, eq=False)
class Choice:
    """The action of one context, standardised, and a remark on it.

    Args:
        a: The action.
        note: A sentence for the reason; empty where there is nothing to add.
    """

    a: Float[Array, " d_a"]
    note: str = ""


@dataclass(frozen=True, kw_only=True)
class NotedMethod(LinearMethod):
    """A linear method whose choices carry remarks."""

    def fit(self, problem: Problem, history: Any) -> NotedPolicy:
        """Learn a policy from historical records."""
        policy = self.learned(problem, everything(problem, history))
        policy.warn()
        return policy

    @abstractmethod
    def learned(self, problem: Problem, data: Observations) -> NotedPolicy:
        """Fit the model."""

    def choose(
        self, policy: LinearPolicy, x: Float[Array, "q d_x"]
    ) -> Float[Array, "q d_a"]:
        """Choose an action for each context, inside the box; all standardised."""
        assert isinstance(policy, NotedPolicy)
        return stacked(policy.choices(x), len(policy.schema.lower))


@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class NotedPolicy(LinearPolicy):
    """A fitted linear-Gaussian model whose choices carry remarks."""

    @abstractmethod
    def choices(self, x: Float[Array, "q d_x"]) -> Sequence[Choice]:
        """Choose an action for each context, and say how that went."""

    def answer(
        self, x: Float[Array, "q d_x"], a: Float[Array, "q d_a"] | None
    ) -> Assessment:
        """Assess given actions, or choose them and remark on that."""
        if a is not None:
            return super().answer(x, a)
        # The same context is not thought about twice.
        once, back = np.unique(x, axis=0, return_inverse=True)
        found = self.choices(once)
        chosen = [found[k] for k in back.ravel().tolist()]
        told = self.answer(x, stacked(chosen, len(self.schema.lower)))
        return replace(told, notes=np.array([each.note for each in chosen], dtype=str))


def stacked(choices: Sequence[Choice], d_a: int) -> Float[Array, "q {d_a}"]:
    """Put the actions under each other."""
    return np.array([each.a for each in choices], dtype=float).reshape(-1, d_a)


def check_share(name: str, value: object) -> None:
    """Raise unless ``value`` is a probability strictly between 0 and 1."""
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if not number or not 0 < float(value) < 1:  # type: ignore[arg-type]
        raise SpecError(
            f"Expected {name} between 0 and 1, both excluded; got {value!r}. Give a "
            f"probability, e.g. 0.7."
        )
