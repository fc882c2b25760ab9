"""One trial: a task and a seed, its truth, and what a method makes of it."""

from __future__ import annotations

import json
import time
import warnings
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal

import numpy as np
from threadpoolctl import threadpool_limits

from forestall import tasks
from forestall.baselines import NoAction
from forestall.bench.results import Row
from forestall.decisions import Decision, Decisions
from forestall.errors import MissingExtraError
from forestall.method import Method
from forestall.problem import Problem
from forestall.tasks.task import Task


@dataclass(frozen=True, kw_only=True)
class Trial:
    """One history and one set of contexts of one task, the same for every method.

    Args:
        task: The task's name.
        seed: The seed in the plan.
        n: Records in the history.
        contexts: How many contexts.
        draws: Monte Carlo draws behind each true success.
        problem: Whether methods are told the order only, or the graph too.
        entropy: The plan's own seed.
        wider: How far more is feasible than the task says.
    """

    task: str
    seed: int
    n: int
    contexts: int
    draws: int
    problem: Literal["order", "graph"]
    entropy: int
    wider: float = 0.0

    @property
    def truth(self) -> Task:
        """The task itself, which no method sees."""
        task = tasks.get(self.task)
        return task.widened(self.wider) if self.wider else task

    def question(self) -> Problem:
        """What a method is told of the task."""
        task = self.truth
        return task.problem_with_graph() if self.problem == "graph" else task.problem

    def history(self) -> dict[str, Any]:
        """The records, drawn anew, so that no method can spoil another's."""
        return dict(self.truth.history(self.n, self._integers[0]))

    def situations(self) -> dict[str, Any]:
        """The contexts, as a table."""
        return dict(self.truth.contexts(self.contexts, self._integers[1]))

    def situation(self, context: int) -> dict[str, float]:
        """One of the contexts."""
        return {name: float(v[context]) for name, v in self._situations.items()}

    def success(self, context: int, action: Mapping[str, float] | None) -> float:
        """Tell the truth of an action; the draws depend on the context alone."""
        x, seed = self.situation(context), self._integers[2 + context]
        return self.truth.success(x, action or None, self.draws, seed)

    def row(self, context: int, method: str, yardstick: Yardstick) -> Row:
        """Begin a row with what does not depend on the method."""
        return Row(
            task=self.task,
            method=method,
            seed=self.seed,
            context=context,
            n=self.n,
            draws=self.draws,
            no_action=yardstick.no_action,
            oracle=yardstick.oracle,
            supported_oracle=yardstick.supported_oracle,
        )

    @cached_property
    def _situations(self) -> dict[str, Any]:
        return self.situations()

    @cached_property
    def _integers(self) -> list[int]:
        """Seeds for history, contexts and each context's draws."""
        # The task's name, not its place in the plan: one more task moves no number.
        key = (zlib.crc32(self.task.encode()), self.seed)
        sequence = np.random.SeedSequence(self.entropy, spawn_key=key)
        state = sequence.generate_state(2 + self.contexts, np.uint64)
        return [int(word) for word in state]


@dataclass(frozen=True)
class Yardstick:
    """The truth of one context, whatever the method.

    Args:
        no_action: The success without action.
        oracle: The success of the best action.
        supported_oracle: The success of the best action that history supports.
    """

    no_action: float
    oracle: float
    supported_oracle: float

    @classmethod
    def of(cls, row: Row) -> Yardstick:
        """Read it back from a finished row."""
        return cls(row.no_action, row.oracle, row.supported_oracle)


def yardsticks(trial: Trial) -> list[Yardstick]:
    """Find the oracles of every context.

    They are found with many draws of their own, and then judged like a method, with
    the draws that every method is judged with: differences are sharper so.
    """
    with threadpool_limits(1):
        return [_yardstick(trial, i) for i in range(trial.contexts)]


def _yardstick(trial: Trial, context: int) -> Yardstick:
    x = trial.situation(context)
    best, _ = trial.truth.oracle(x)
    supported, _ = trial.truth.supported_oracle(x)
    actions = (None, best, supported)
    return Yardstick(*(trial.success(context, action) for action in actions))


def assess(
    trial: Trial, label: str, method: Method, truth: list[Yardstick]
) -> list[Row]:
    """Fit and judge a method; a failure becomes the error of its rows.

    Raises:
        MissingExtraError: A package is not installed: that says nothing of the method.
    """
    rows = [trial.row(i, label, stick) for i, stick in enumerate(truth)]
    # More threads would make timings and last digits depend on what else runs.
    with threadpool_limits(1), warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            told = _decide(trial, method)
        except MissingExtraError:
            raise
        except Exception as error:
            return [replace(row, error=_text(error)) for row in rows]
    noted = " | ".join(dict.fromkeys(_warning(w) for w in caught))
    return [
        _judged(trial, replace(row, warnings=noted), told, isinstance(method, NoAction))
        for row in rows
    ]


@dataclass(frozen=True)
class _Told:
    decisions: Decisions
    fit_seconds: float
    decide_seconds: float


def _decide(trial: Trial, method: Method) -> _Told:
    problem, history, contexts = trial.question(), trial.history(), trial.situations()
    start = time.perf_counter()
    policy = method.fit(problem, history)
    fitted = time.perf_counter()
    decisions = policy.recommend(contexts)
    done = time.perf_counter()
    if len(decisions) != trial.contexts:
        raise ValueError(
            f"Expected a decision for each of {trial.contexts} contexts; got "
            f"{len(decisions)}."
        )
    return _Told(decisions, fitted - start, (done - fitted) / trial.contexts)


def _judged(trial: Trial, row: Row, told: _Told, never_acts: bool) -> Row:
    decision = told.decisions[row.context]
    candidate = {} if never_acts else decision.actions
    try:
        success = trial.success(row.context, candidate)
    except Exception as error:
        return replace(row, error=_text(error))
    return replace(
        _as_told(row, decision),
        success=success,
        verdict_success=success if decision.verdict == "act" else row.no_action,
        actions=json.dumps(_shortly(candidate), separators=(",", ":")),
        fit_seconds=told.fit_seconds,
        decide_seconds=told.decide_seconds,
    )


def _as_told(row: Row, decision: Decision) -> Row:
    return replace(
        row,
        probability=decision.probability,
        lower=decision.lower,
        upper=decision.upper,
        predicted_no_action=decision.no_action,
        support=decision.support,
        extrapolates=decision.extrapolates,
        verdict=decision.verdict,
    )


def _text(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"


def _warning(caught: warnings.WarningMessage) -> str:
    return f"{caught.category.__name__}: {caught.message}"


def _shortly(action: Mapping[str, float]) -> dict[str, float]:
    """Nine digits tell an action; seventeen would double the file."""
    return {name: float(f"{value:.9g}") for name, value in action.items()}
