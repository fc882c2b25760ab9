"""What a report tells: counts, shares, cases and origins, all as decided."""

from __future__ import annotations

import platform
import re
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import numpy as np
from jaxtyping import Float

from forestall.arrays import Array
from forestall.decisions import Decision, Decisions, Verdict
from forestall.method import Policy

VERDICTS: tuple[Verdict, ...] = ("act", "leave", "abstain")
PACKAGES = ("forestall", "numpy", "scipy")
# Context values that describe a case; those beyond are counted.
DESCRIBED = 6


@dataclass(frozen=True)
class Headline:
    """What comes of following the verdicts, by the policy's own estimates.

    Args:
        cases: How many contexts there are.
        counts: How many there are of each verdict.
        readable: How many could be read, and have chances at all.
        before: The expected share of good outcomes without any action.
        after: The share when every ``act`` is followed and nothing else is done.
        cautious: The same with every ``act`` at the lower end of its interval; NaN
            where an interval is missing.
    """

    cases: int
    counts: dict[str, int]
    readable: int
    before: float
    after: float
    cautious: float

    @classmethod
    def of(cls, told: Decisions) -> Headline:
        """Count and average."""
        acts = np.array([verdict == "act" for verdict in told.verdict], dtype=bool)
        readable = np.isfinite(told.no_action)
        return cls(
            len(told),
            {verdict: told.verdict.count(verdict) for verdict in VERDICTS},
            int(readable.sum()),
            _mean(told.no_action[readable]),
            _mean(np.where(acts, told.probability, told.no_action)[readable]),
            _mean(np.where(acts, told.lower, told.no_action)[readable]),
        )


@dataclass(frozen=True, eq=False)
class Case:
    """One context beside its decision.

    Args:
        row: Which row of the contexts it is, counted from 0.
        name: What the identifier calls it; None without one.
        values: The context by name, as it came.
        decision: The decision.
    """

    row: int
    name: str | None
    values: dict[str, str]
    decision: Decision

    @property
    def readable(self) -> bool:
        """Whether there are chances: a context that cannot be read has none."""
        return bool(np.isfinite(self.gain))

    @property
    def gain(self) -> float:
        """By how much the action would raise the chance of a good outcome."""
        return self.decision.probability - self.decision.no_action

    @property
    def described(self) -> list[tuple[str, str]]:
        """The first values by name, and how many are not shown."""
        shown = list(self.values.items())[:DESCRIBED]
        more = len(self.values) - len(shown)
        return [*shown, ("and more", f"{more} values")] if more else shown


@dataclass(frozen=True)
class Origin:
    """What is needed to get the same report again.

    Args:
        method: The name of the method.
        settings: The method with its settings, as Python would write it.
        command: What ``forestall fit --method`` calls it.
        seed: What its draws come from; None where it draws nothing.
        records: How many records it learned from; None where it does not know.
        fingerprint: What tells these records from others.
        versions: Those of Python and the packages that matter.
    """

    method: str
    settings: str
    command: str
    seed: int | None
    records: int | None
    fingerprint: str | None
    versions: dict[str, str]

    @classmethod
    def of(cls, policy: Policy) -> Origin:
        """Ask the policy."""
        method = getattr(policy, "method", None)
        name = type(method or policy).__name__.removesuffix("Policy")
        print_ = policy.schema.fingerprint
        return cls(
            name,
            f"{name}()" if method is None else repr(method),
            command_name(name),
            getattr(method, "seed", None),
            print_.records or None,
            print_.sha256 if print_.records else None,
            {"python": platform.python_version()} | {k: _version(k) for k in PACKAGES},
        )


def cases_of(
    told: Decisions, names: Sequence[str], identifier: str | None, rows: Sequence[int]
) -> list[Case]:
    """Put contexts beside their decisions.

    Args:
        told: The decisions.
        names: The contexts.
        identifier: A column that names the cases, or None.
        rows: Which of them.
    """
    extra = () if identifier is None else (identifier,)
    cells = told.table.select((*names, *extra), "the contexts")
    columns = {name: each.labels() for name, each in cells.items()}
    return [
        Case(
            i,
            None if identifier is None else text_of(columns[identifier][i]),
            {name: text_of(columns[name][i]) for name in names},
            told[i],
        )
        for i in rows
    ]


def chosen(verdicts: Sequence[str], gains: Float[Array, " n"], most: int) -> list[int]:
    """Choose cases to draw: the first to act on, then those with most to gain."""
    acts = [i for i, verdict in enumerate(verdicts) if verdict == "act"]
    left = np.nan_to_num(gains, nan=-np.inf)
    left[acts] = -np.inf
    rest = np.argsort(-left, kind="stable")[: np.isfinite(left).sum()]
    return (acts + rest.tolist())[:most]


def command_name(method: str) -> str:
    """Write the name of a method as the command line has it.

    Example:
        >>> [command_name(m) for m in ("StagedRehearsal", "LinearOptimal", "QWZ23")]
        ['staged', 'linear_optimal', 'qwz23']
    """
    short = method.removesuffix("Rehearsal") or method
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "_", short).lower()


def _mean(values: Float[Array, " n"]) -> float:
    return float(values.mean()) if len(values) else float("nan")


def text_of(value: Any) -> str:
    """Write a value of a context.

    Example:
        >>> [text_of(value) for value in (0.123456, 12345.6, 7, "north", None)]
        ['0.1235', '12346', '7', 'north', 'missing']
    """
    if value is None:
        return "missing"
    if not isinstance(value, float):
        return str(value)
    return f"{value:.0f}" if 1e4 <= abs(value) < 1e12 else f"{value:.4g}"


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "unknown"
