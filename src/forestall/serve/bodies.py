"""What requests and answers look like, as pydantic models."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    FailFast,
    Field,
    ValidationError,
    WithJsonSchema,
)

from forestall.cells import LARGEST

LONGEST_TEXT = 1_000
LONGEST_NAME = 100
MOST_DRAWS = 2_000
MOST_POINTS = 100

NUMBER: dict[str, Any] = {"type": "number", "minimum": -LARGEST, "maximum": LARGEST}
TEXT: dict[str, Any] = {"type": "string", "maxLength": LONGEST_TEXT}
CELL: dict[str, Any] = {"anyOf": [NUMBER, TEXT, {"type": "boolean"}, {"type": "null"}]}


def _number(value: Any) -> Any:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError(f"Expected a number; got {_kind(value)}.")
    if not -LARGEST <= value <= LARGEST:
        raise ValueError(
            f"Expected a finite number from -{LARGEST:g} to {LARGEST:g}; got another. "
            f"Correct it, or use a larger unit."
        )
    return value


def _cell(value: Any) -> Any:
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str):
        if len(value) > LONGEST_TEXT:
            raise ValueError(
                f"Expected text of at most {LONGEST_TEXT} characters; got {len(value)}."
            )
        return value
    if isinstance(value, int | float):
        return _number(value)
    raise ValueError(
        f"Expected a number, text, true, false or null; got {_kind(value)}."
    )


def _whole(value: Any) -> Any:
    # JSON does not tell 3 from 3.0, and a boolean is no number there.
    if isinstance(value, float) and math.isfinite(value) and value.is_integer():
        return int(value)
    if isinstance(value, bool) or not isinstance(value, int):
        raise ValueError(f"Expected a whole number; got {_kind(value)}.")
    return value


def _kind(value: Any) -> str:
    kinds = {str: "text", bool: "a boolean", list: "an array", dict: "an object"}
    return kinds.get(type(value), "null" if value is None else "a number")


def _context(row: dict[str, Any]) -> dict[str, Any]:
    return _each(row, _cell)


def _actions(row: dict[str, Any]) -> dict[str, Any]:
    return _each(row, _number)


def _each(row: dict[str, Any], check: Callable[[Any], Any]) -> dict[str, Any]:
    for name, value in row.items():
        try:
            check(value)
        except ValueError as error:
            raise ValueError(f"{error} It is called {name[:LONGEST_NAME]!r}.") from None
    return row


def _given(rows: Any) -> Any:
    """Check one object of actions, or a list of them, up to the first fault."""
    for row in rows if isinstance(rows, list) else [rows]:
        if not isinstance(row, dict):
            raise ValueError(
                f"Expected an object of actions, or an array of them; got {_kind(row)}."
            )
        _actions(row)
    return rows


ROW: dict[str, Any] = {"type": "object", "additionalProperties": NUMBER}
# One check for a whole object: a million wrong values are one error.
Context = Annotated[
    dict[str, Any],
    AfterValidator(_context),
    WithJsonSchema({"type": "object", "additionalProperties": CELL}),
]
Actions = Annotated[
    dict[str, Any],
    AfterValidator(_actions),
    WithJsonSchema(ROW),
]
Given = Annotated[
    Any,
    AfterValidator(_given),
    WithJsonSchema({"anyOf": [ROW, {"type": "array", "items": ROW}]}),
]
Contexts = Annotated[list[Context], FailFast()]
Whole = Annotated[int, BeforeValidator(_whole)]
# Beside None, bounds must stand with the number, or the document does not tell them.
Few = Annotated[int, Field(ge=1, le=1_000), BeforeValidator(_whole)]
Name = Annotated[str, Field(max_length=LONGEST_TEXT)]


class Body(BaseModel):
    """A request; a field that is not known is an error."""

    model_config = ConfigDict(extra="forbid", strict=True)


class RecommendBody(Body):
    """For which contexts an action is wanted."""

    contexts: Contexts
    only: list[Name] | None = Field(
        None, description="The actions that may be altered; the others come naturally."
    )
    at_most: Few | None = Field(
        None, description="How many of them may be altered together."
    )


class WhatIfBody(Body):
    """Which actions are to be assessed, for which contexts."""

    contexts: Contexts
    actions: Given = Field(
        description="One object for each context, or one for all of them."
    )


class LandscapeBody(Body):
    """Over which actions the probability is wanted, for one context."""

    context: Context
    over: list[Name] = Field(min_length=1, max_length=2)
    at: Actions | None = Field(
        None,
        description="Where the other actions are held; by default as recommended.",
    )
    points: Whole = Field(41, ge=2, le=MOST_POINTS, description="Points on each axis.")


class OutcomesBody(Body):
    """What is simulated: one context, with actions set or left to come naturally."""

    context: Context
    actions: Actions | None = Field(
        None, description="An action that is not named comes naturally."
    )
    draws: Whole = Field(300, ge=1, le=MOST_DRAWS)


class ErrorAnswer(BaseModel):
    """What was expected, what came instead, and what to do about it."""

    error: str


Share = Annotated[float, Field(ge=0, le=1)]


class DecisionRow(BaseModel):
    """One decision; a number that is not known is null."""

    actions: dict[str, float | None]
    probability: Share | None
    lower: Share | None
    upper: Share | None
    no_action: Share | None
    support: Share
    extrapolates: bool
    verdict: Literal["act", "leave", "abstain"]
    explanation: str


class DecisionsAnswer(BaseModel):
    """One decision for each context, in their order."""

    decisions: list[DecisionRow]


Line = list[Share | None]
Grid = Line | list[Line]


class LandscapeAnswer(BaseModel):
    """The probability over one action (lists) or two (a row for each of the first)."""

    over: list[str]
    axes: list[list[float]]
    at: dict[str, float]
    probability: Grid
    lower: Grid
    upper: Grid
    support: Grid
    extrapolates: list[bool] | list[list[bool]]
    no_action: Share | None


class OutcomesAnswer(BaseModel):
    """Simulated outcomes, one row for each draw; never records."""

    outcomes: list[str]
    draws: list[list[float | None]]


class ContextField(BaseModel):
    """One context variable: a rounded range that holds most of history, or levels."""

    name: str
    kind: Literal["number", "category", "ordinal"]
    low: float | None = None
    high: float | None = None
    typical: Any = None
    categories: list[Any] | None = None


class ActionField(BaseModel):
    """One action: its feasible interval, and a rounded usual value."""

    name: str
    low: float
    high: float
    typical: float


class Constraint(BaseModel):
    """One side of the desired region: sum of ``normal * outcomes <= offset``."""

    text: str
    normal: list[float]
    offset: float


class PolicyAnswer(BaseModel):
    """What the policy is about; no record, no value of a record."""

    method: str
    contexts: list[ContextField]
    actions: list[ActionField]
    outcomes: list[str]
    desired: str
    constraints: list[Constraint]
    identification: str
    valid: bool | None
    records: int | None
    can: dict[str, bool]
    limits: dict[str, float]
    fingerprint: str
    versions: dict[str, str]


class HealthAnswer(BaseModel):
    """Whether the service is ready, and with which policy."""

    status: Literal["ready"]
    fingerprint: str
    loaded: str


def fault_text(error: ValidationError) -> str:
    """Say what is wrong with a body, without the values that came in it."""
    found = error.errors(include_url=False, include_input=False)
    # Of the ways in which a choice fails, the one that we put into words.
    told = next((each for each in found if _own(each)), found[0])
    places = [str(place) for place in told["loc"] if "[" not in str(place)]
    where = ".".join(places)[:LONGEST_NAME] or "the body"
    text = _own(told) or f"{told['msg']}."
    return f"In {where}: {text} See /openapi.json for what is expected."


def _own(told: Mapping[str, Any]) -> str:
    cause = told.get("ctx", {}).get("error")
    return str(cause) if isinstance(cause, ValueError) else ""
