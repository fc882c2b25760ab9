"""How the probability changes over one action or two, for one context."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import numpy as np

from forestall.decisions import Decision
from forestall.errors import SpecError
from forestall.method import Policy
from forestall.serve.bodies import LandscapeBody
from forestall.serve.questions import (
    Points,
    Question,
    Recommend,
    check_actions,
    check_context,
    finite,
)

# Draws and paths of a policy that rehearses: for a line, and for a map.
LINE, MAP = (64, 32), (16, 16)

Ask = Callable[[Question, Sequence[Any]], Awaitable[list[Any]]]


def checked(policy: Policy, body: LandscapeBody) -> None:
    """Check the names in a request."""
    check_context(policy, body.context)
    check_actions(policy, dict.fromkeys(body.over, 0.0), all_=False)
    check_actions(policy, body.at or {}, all_=False)
    if len(set(body.over)) != len(body.over):
        raise SpecError(
            f"Expected one action in over, or two different ones; got "
            f"{', '.join(body.over)}. Name each once."
        )


async def landscape(policy: Policy, body: LandscapeBody, ask: Ask) -> dict[str, Any]:
    """Assess a grid of actions, the others held."""
    held = await _held(policy, body, ask)
    grids = [_axis(policy, name, body.points) for name in body.over]
    rough = LINE if len(grids) == 1 else MAP
    points = np.stack(np.meshgrid(*grids, indexing="ij"), axis=-1)
    rows = [
        dict(zip(body.over, point, strict=True))
        for point in points.reshape(-1, len(grids)).tolist()
    ]
    question = Points(policy, rough, body.context, held)
    told: list[Decision] = await ask(question, rows)
    shape = points.shape[:-1]

    def grid(name: str) -> Any:
        values = np.empty(len(told), dtype=object)
        values[:] = [_plain(getattr(each, name)) for each in told]
        return values.reshape(shape).tolist()

    names = ("probability", "lower", "upper", "support", "extrapolates")
    return {
        "over": body.over,
        "axes": [axis.tolist() for axis in grids],
        "at": held,
        **{name: grid(name) for name in names},
        "no_action": finite(told[0].no_action),
    }


async def _held(policy: Policy, body: LandscapeBody, ask: Ask) -> dict[str, float]:
    """Where the actions that are not shown stand."""
    given = {k: float(v) for k, v in (body.at or {}).items() if k not in body.over}
    absent = set(policy.problem.actions) - set(given) - set(body.over)
    if not absent:
        return given
    (advice,) = await ask(Recommend(policy), [body.context])
    advised = json.loads(advice)["actions"].items()
    return {k: v for k, v in advised if k in absent} | given


def _axis(policy: Policy, name: str, points: int) -> Any:
    lower, upper = policy.problem.actions[name]
    return np.linspace(lower, upper, points)


def _plain(value: float | bool) -> float | bool | None:
    return value if isinstance(value, bool) else finite(value)
