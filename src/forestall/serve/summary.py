"""What may be told of a policy: names, rounded ranges, verdicts; never a record."""

from __future__ import annotations

import math
import platform
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import numpy as np
from jaxtyping import Float

from forestall.arrays import Array
from forestall.encoding import Categorical, Column, Numeric
from forestall.method import Policy
from forestall.observations import Observations
from forestall.report.words import grounds
from forestall.serve.questions import can_restrict, can_simulate

# Ranges hold nine of ten records; what is beyond them might be about one person.
LOW, TYPICAL, HIGH = 0.05, 0.5, 0.95
# Parts of a range to which its ends are rounded, about.
STEPS = 20
# Values around a quantile that are averaged, so that it is nobody's.
TOGETHER = 10


@dataclass(frozen=True)
class Summary:
    """What is told of a policy.

    Args:
        told: The fields of ``GET /v1/policy`` that follow from the policy alone.
        context: A typical context, made of rounded values: an example.
        actions: Typical actions.
    """

    told: dict[str, Any]
    context: dict[str, Any]
    actions: dict[str, float]


def summarised(policy: Policy) -> Summary:
    """Say what a policy is about."""
    contexts = [_context_field(policy, column) for column in _columns(policy)]
    actions = [_action_field(policy, k) for k in range(len(policy.problem.actions))]
    told = {
        "method": method_name(policy),
        "contexts": contexts,
        "actions": actions,
        "outcomes": list(policy.problem.outcomes),
        "desired": str(policy.problem.region),
        "constraints": _constraints(policy),
        "identification": "\n".join(
            f"{name}: {text}"
            for name, text in grounds(policy.identification, policy.criterion)
        ),
        "valid": policy.criterion.valid,
        "records": n_records(policy),
        "can": {"restrict": can_restrict(policy), "simulate": can_simulate(policy)},
        "versions": _versions(),
    }
    return Summary(
        told,
        {field["name"]: field["typical"] for field in contexts},
        {field["name"]: field["typical"] for field in actions},
    )


def method_name(policy: Policy) -> str:
    """Name the method that a policy was fitted by."""
    method = getattr(policy, "method", None)
    return type(method or policy).__name__.removesuffix("Policy")


def n_records(policy: Policy) -> int | None:
    """Count the records that were learned from, where the policy knows."""
    return policy.schema.fingerprint.records or None


def _columns(policy: Policy) -> tuple[Column, ...]:
    return policy.schema.context.columns


def _context_field(policy: Policy, column: Column) -> dict[str, Any]:
    part = policy.schema.context.slices[column.name]
    data = getattr(policy, "data", None)
    x = data.x[:, part] if isinstance(data, Observations) else None
    if isinstance(column, Categorical):
        share = np.ones(column.width) if x is None else x.mean(axis=0)
        levels = list(column.levels)
        return {
            "name": column.name,
            "kind": "category",
            "categories": levels,
            "typical": levels[int(share.argmax())],
        }
    assert isinstance(column, Numeric)
    values = None if x is None else column.mean + column.scale * x[:, 0]
    low, typical, high = _range(values, column)
    return {
        "name": column.name,
        "kind": "number",
        "low": low,
        "high": high,
        "typical": typical,
    }


def _action_field(policy: Policy, k: int) -> dict[str, Any]:
    data, schema = getattr(policy, "data", None), policy.schema
    column = schema.actions.columns[k]
    assert isinstance(column, Numeric)
    a = data.a[:, k] if isinstance(data, Observations) else None
    values = None if a is None else column.mean + column.scale * a
    low, high = schema.bounds[k].tolist()
    typical = min(max(_range(values, column)[1], low), high)
    return {"name": column.name, "low": low, "high": high, "typical": typical}


def _range(
    values: Float[Array, " n"] | None, column: Numeric
) -> tuple[float, float, float]:
    """Give a rounded low, typical and high value; by the spread without records."""
    if values is None or len(values) < 2 * TOGETHER:
        reach = 1.645 * column.scale
        ends = column.mean - reach, column.mean, column.mean + reach
    else:
        ordered = np.sort(values)
        ends = (
            _around(ordered, LOW),
            _around(ordered, TYPICAL),
            _around(ordered, HIGH),
        )
    step = _step(ends[2] - ends[0])
    low, typical, high = (_rounded(end, step) for end in ends)
    return (low, typical, high) if low < high else (low - step, low, low + step)


def _around(ordered: Float[Array, " n"], q: float) -> float:
    """Average the values around a quantile."""
    middle = round(q * (len(ordered) - 1))
    first = min(max(0, middle - TOGETHER // 2), len(ordered) - TOGETHER)
    return float(ordered[first : first + TOGETHER].mean())


def _step(width: float) -> float:
    """A power of ten, twice or five times it, near a part of a range."""
    if not width > 0:
        return 1.0
    unit = 10.0 ** math.floor(math.log10(width / STEPS))
    return next(unit * k for k in (1, 2, 5, 10) if unit * k >= width / STEPS * 0.999)


def _rounded(value: float, step: float) -> float:
    return float(f"{round(value / step) * step:.10g}")


def _constraints(policy: Policy) -> list[dict[str, Any]]:
    region = policy.problem.region
    rows = zip(region.texts, region.normals, region.offsets, strict=True)
    return [
        {"text": text, "normal": normal.tolist(), "offset": float(offset)}
        for text, normal, offset in rows
    ]


def _versions() -> dict[str, str]:
    found = {"python": platform.python_version()}
    for name in ("forestall", "numpy", "scipy"):
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found
