"""The endpoints as OpenAPI describes them, with the names of the policy in service."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from forestall.encoding import Categorical
from forestall.method import Policy
from forestall.serve.bodies import (
    CELL,
    NUMBER,
    Body,
    DecisionsAnswer,
    ErrorAnswer,
    HealthAnswer,
    LandscapeAnswer,
    LandscapeBody,
    OutcomesAnswer,
    OutcomesBody,
    PolicyAnswer,
    RecommendBody,
    WhatIfBody,
)
from forestall.serve.held import Held
from forestall.serve.questions import can_restrict, can_simulate

if TYPE_CHECKING:
    from forestall.serve.app import Service

ERRORS = {
    401: "The token is missing or wrong.",
    421: "The service has no token, and the request was meant for another host.",
}
BODY_ERRORS = {
    400: "The request is no HTTP.",
    408: "The body did not come in time.",
    413: "The body is too long, or holds too many rows.",
    415: "The body is no JSON.",
    422: "The body does not fit the policy; the text says why.",
    429: "Too many requests wait already.",
    503: "The answer did not come in time, or the service is being stopped.",
}


@dataclass(frozen=True)
class Documented:
    """One endpoint, and what is written of it."""

    path: str
    method: str
    name: str
    endpoint: Callable[..., Any]
    summary: str
    answer: type | None
    body: type[Body] | None = None
    errors: dict[int, str] = field(default_factory=lambda: ERRORS)

    @property
    def responses(self) -> dict[int | str, dict[str, Any]]:
        """The answers, errors among them."""
        found: dict[int | str, dict[str, Any]] = {
            status: {"model": ErrorAnswer, "description": text}
            for status, text in sorted(self.errors.items())
        }
        if self.answer is None:
            found[200] = {"content": {"text/plain": {"schema": {"type": "string"}}}}
        else:
            found[200] = {"model": self.answer}
        return found

    @property
    def extra(self) -> dict[str, Any]:
        """The body, which we read ourselves."""
        if self.body is None:
            return {}
        schema = self.body.model_json_schema()
        content = {"application/json": {"schema": schema}}
        return {"requestBody": {"required": True, "content": content}}


def documented(service: Service) -> list[Documented]:
    """List the endpoints."""
    both = ERRORS | BODY_ERRORS
    return [
        Documented(
            "/v1/recommend",
            "POST",
            "recommend",
            service.recommend,
            "Choose an action for each context",
            DecisionsAnswer,
            RecommendBody,
            both,
        ),
        Documented(
            "/v1/whatif",
            "POST",
            "whatif",
            service.whatif,
            "Assess given actions",
            DecisionsAnswer,
            WhatIfBody,
            both,
        ),
        Documented(
            "/v1/landscape",
            "POST",
            "landscape",
            service.landscape,
            "Assess a grid over one action or two",
            LandscapeAnswer,
            LandscapeBody,
            both,
        ),
        Documented(
            "/v1/outcomes",
            "POST",
            "outcomes",
            service.outcomes,
            "Simulate what may come of one context",
            OutcomesAnswer,
            OutcomesBody,
            both,
        ),
        Documented(
            "/v1/policy",
            "GET",
            "policy",
            service.policy,
            "Say what the policy is about",
            PolicyAnswer,
        ),
        Documented(
            "/healthz",
            "GET",
            "healthz",
            service.healthz,
            "Say whether the service is ready",
            HealthAnswer,
        ),
        Documented(
            "/metrics",
            "GET",
            "metrics",
            service.exported,
            "Metrics for Prometheus",
            None,
        ),
    ]


def described(document: dict[str, Any], held: Held, secured: bool) -> dict[str, Any]:
    """Put names and an example of the policy in service into the document."""
    document = copy.deepcopy(document)
    policy = held.policy
    schemas = _bodies(policy)
    examples = _examples(held)
    for path, schema in schemas.items():
        body = document["paths"][path]["post"]["requestBody"]
        content = body["content"]["application/json"]
        content["schema"]["properties"] |= schema
        if path == "/v1/recommend" and not can_restrict(policy):
            for name in ("only", "at_most"):
                del content["schema"]["properties"][name]
        content["examples"] = {"typical": {"value": examples[path]}}
    if not can_simulate(policy):
        del document["paths"]["/v1/outcomes"]
    if secured:
        scheme = {"type": "http", "scheme": "bearer"}
        document.setdefault("components", {})["securitySchemes"] = {"token": scheme}
        for path, operations in document["paths"].items():
            if path != "/healthz":
                for operation in operations.values():
                    operation["security"] = [{"token": []}]
    return document


def _bodies(policy: Policy) -> dict[str, dict[str, Any]]:
    names = list(policy.schema.context.names)
    contexts = {
        "type": "array",
        "items": {
            "type": "object",
            "required": names,
            "properties": {name: CELL for name in names},
            "additionalProperties": CELL,
        },
    }
    some = _some_actions(policy)
    every = {**some, "required": list(policy.problem.actions)}
    one = _one_context(policy)
    nothing = {"type": "null"}
    action = {"type": "string", "enum": list(policy.problem.actions)}
    over = {
        "type": "array",
        "items": action,
        "minItems": 1,
        "maxItems": 2,
        "uniqueItems": True,
    }
    only = {"type": "array", "items": action, "minItems": 1}
    return {
        "/v1/recommend": {"contexts": contexts, "only": {"anyOf": [only, nothing]}},
        "/v1/whatif": {
            "contexts": contexts,
            "actions": {"anyOf": [every, {"type": "array", "items": every}]},
        },
        "/v1/landscape": {
            "context": one,
            "over": over,
            "at": {"anyOf": [some, nothing]},
        },
        "/v1/outcomes": {"context": one, "actions": {"anyOf": [some, nothing]}},
    }


def _some_actions(policy: Policy) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": {name: NUMBER for name in policy.problem.actions},
        "additionalProperties": False,
    }


def _one_context(policy: Policy) -> dict[str, Any]:
    columns = policy.schema.context.columns
    return {
        "type": "object",
        "required": [column.name for column in columns],
        "properties": {
            column.name: {"enum": list(column.levels)}
            if isinstance(column, Categorical)
            else NUMBER
            for column in columns
        },
        "additionalProperties": CELL,
    }


def _examples(held: Held) -> dict[str, Any]:
    context, actions = held.summary.context, held.summary.actions
    return {
        "/v1/recommend": {"contexts": [context]},
        "/v1/whatif": {"contexts": [context], "actions": actions},
        "/v1/landscape": {"context": context, "over": list(actions)[:1], "points": 5},
        "/v1/outcomes": {"context": context, "actions": actions, "draws": 10},
    }
