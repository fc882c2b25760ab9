"""The service: every endpoint, in front of one policy."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from fastapi import FastAPI
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp
from threadpoolctl import threadpool_limits

from forestall.errors import ForestallError
from forestall.method import Policy
from forestall.serve import refusal, static
from forestall.serve.batching import Batcher, Busy, Late
from forestall.serve.bodies import (
    LandscapeBody,
    OutcomesBody,
    RecommendBody,
    WhatIfBody,
)
from forestall.serve.description import described, documented
from forestall.serve.guard import Guard
from forestall.serve.held import Held, Load, Shelf, source_of
from forestall.serve.landscape import checked, landscape
from forestall.serve.limits import Limits
from forestall.serve.metrics import Metrics
from forestall.serve.questions import (
    Outcomes,
    Question,
    Recommend,
    WhatIf,
    check_actions,
    check_context,
    check_contexts,
)
from forestall.serve.reading import Reader, unless_gone
from forestall.serve.refusal import Refusal

# Rows that are answered soon, whether or not their client still waits.
SHORT = 16


@dataclass(eq=False)
class Service:
    """What the endpoints share.

    Args:
        shelf: Holds the policy.
        batcher: Asks it.
        reader: Reads bodies.
        limits: What a request may ask.
        metrics: What is counted.
    """

    shelf: Shelf
    batcher: Batcher
    reader: Reader
    limits: Limits
    metrics: Metrics

    async def ask(
        self, request: Request, question: Question, rows: Sequence[Any]
    ) -> list[Any]:
        """Ask the policy, beside the other requests."""
        if len(rows) <= SHORT:
            return await self._asked(question, rows)
        return await unless_gone(request, self._asked(question, rows))

    async def _asked(self, question: Question, rows: Sequence[Any]) -> list[Any]:
        try:
            with self.metrics.queue.track_inprogress():
                return await self.batcher.ask(question, rows)
        except Busy:
            raise refusal.full(self.limits.queue) from None
        except Late:
            raise refusal.late(self.limits.seconds) from None

    async def recommend(self, request: Request) -> Response:
        """Choose an action for each context."""
        body = await self.reader.read(request, RecommendBody)
        policy = self._policy(request, len(body.contexts))
        check_contexts(policy, body.contexts)
        only = None if body.only is None else tuple(body.only)
        question = Recommend(policy, only, body.at_most)
        return _decisions(await self.ask(request, question, body.contexts))

    async def whatif(self, request: Request) -> Response:
        """Assess given actions, one for each context or one for all of them."""
        body = await self.reader.read(request, WhatIfBody)
        policy = self._policy(request, len(body.contexts))
        check_contexts(policy, body.contexts)
        given = body.actions
        actions = [given] * len(body.contexts) if isinstance(given, dict) else given
        if len(actions) != len(body.contexts):
            raise Refusal(
                422,
                f"Expected one action for each of {len(body.contexts)} contexts; got "
                f"{len(actions)}. Send as many, or one object for all.",
            )
        for row in [given] if isinstance(given, dict) else given:
            check_actions(policy, row, all_=True)
        rows = list(zip(body.contexts, actions, strict=True))
        return _decisions(await self.ask(request, WhatIf(policy), rows))

    async def landscape(self, request: Request) -> Response:
        """Assess a grid over one action or two, for one context."""
        body = await self.reader.read(request, LandscapeBody)
        points = body.points ** len(body.over)
        policy = self._policy(request, points, "points")
        checked(policy, body)
        return _json(await landscape(policy, body, partial(self.ask, request)))

    async def outcomes(self, request: Request) -> Response:
        """Simulate what may come of one context; never records."""
        body = await self.reader.read(request, OutcomesBody)
        policy = self._policy(request, 1)
        question = Outcomes(policy)
        check_context(policy, body.context)
        check_actions(policy, body.actions or {}, all_=False)
        rows = [(body.context, body.actions, body.draws)]
        (draws,) = await self.ask(request, question, rows)
        return _json({"outcomes": list(policy.problem.outcomes), "draws": draws})

    async def policy(self) -> Response:
        """Say what the policy is about: names and rounded ranges."""
        held, limits = self.shelf.current, self.limits
        told = {
            **held.summary.told,
            "fingerprint": held.fingerprint,
            "limits": {"rows": limits.rows, "body_bytes": limits.body_bytes},
        }
        return _json(told)

    async def healthz(self) -> Response:
        """Say whether the service is ready, and with which policy."""
        held = self.shelf.current
        loaded = held.loaded.isoformat(timespec="seconds")
        told = {"status": "ready", "fingerprint": held.fingerprint, "loaded": loaded}
        return _json(told)

    async def exported(self) -> Response:
        """Give the metrics as Prometheus reads them."""
        return Response(self.metrics.text(), media_type=self.metrics.kind)

    def _policy(self, request: Request, rows: int, what: str = "contexts") -> Policy:
        request.scope["state"]["rows"] = rows
        if rows > self.limits.rows:
            raise refusal.too_many(rows, self.limits.rows, what)
        return self.shelf.current.policy


def create_app(
    policy: Policy | str | Path | Load,
    *,
    limits: Limits | None = None,
    token: str | None = None,
) -> ASGIApp:
    """Make the service as an ASGI application.

    Args:
        policy: A policy, the path of a saved one, or a function that makes one.
        limits: What a request may ask.
        token: What clients have to send; without one only this machine is served.
    """
    limits = limits or Limits()
    metrics = Metrics.new()
    shelf = Shelf(source_of(policy), metrics.loaded)
    shelf.open()
    batcher = Batcher(limits, metrics.batch)
    service = Service(shelf, batcher, Reader(limits), limits, metrics)
    app = FastAPI(
        title="forestall",
        docs_url=None,
        redoc_url=None,
        openapi_url=None,
        lifespan=lambda _: _running(service),
    )
    _add_routes(app, service)
    _add_handlers(app)
    app.add_route("/openapi.json", _openapi(app, shelf, token is not None))
    return Guard(app, token, metrics.request)


@asynccontextmanager
async def _running(service: Service) -> AsyncIterator[None]:
    """Answer batches and look for a newer policy, as long as the service lives."""
    tasks = [
        asyncio.create_task(service.batcher.run()),
        asyncio.create_task(service.shelf.watch()),
    ]
    # More threads than one for the linear algebra of small batches only wait.
    with threadpool_limits(limits=1):
        yield
        for task in tasks:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task
        service.batcher.close()


def _add_routes(app: FastAPI, service: Service) -> None:
    for route in documented(service):
        app.add_api_route(
            route.path,
            route.endpoint,
            methods=[route.method],
            response_model=None,
            summary=route.summary,
            responses=route.responses,
            openapi_extra=route.extra,
            operation_id=route.name,
        )
    app.add_route("/", _page)
    app.add_route("/static/{name}", _static)


async def _page(request: Request) -> Response:
    return _sent(request, "index.html")


async def _static(request: Request) -> Response:
    return _sent(request, request.path_params["name"])


def _sent(request: Request, name: str) -> Response:
    found = static.asset(name)
    if found is None:
        raise Refusal(404, "Expected a file of the page; there is none of this name.")
    age = 86_400 if name == static.PLOTLY else 0
    headers = {"etag": found.etag, "cache-control": f"max-age={age}, must-revalidate"}
    if request.headers.get("if-none-match") == found.etag:
        return Response(status_code=304, headers=headers)
    return Response(found.body, headers=headers, media_type=found.kind)


def _openapi(app: FastAPI, shelf: Shelf, secured: bool) -> Any:
    made: dict[str, dict[str, Any]] = {}

    async def openapi(request: Request) -> Response:
        del request
        held: Held = shelf.current
        if held.fingerprint not in made:
            made.clear()
            made[held.fingerprint] = described(app.openapi(), held, secured)
        return _json(made[held.fingerprint])

    return openapi


def _add_handlers(app: FastAPI) -> None:
    async def refused(request: Request, error: Exception) -> Response:
        del request
        assert isinstance(error, Refusal)
        return error.response()

    async def unfit(request: Request, error: Exception) -> Response:
        del request
        return Refusal(422, str(error)).response()

    async def unknown(request: Request, error: Exception) -> Response:
        del request
        assert isinstance(error, HTTPException)
        text = {
            404: "Expected a path that /openapi.json describes; got another.",
            405: "Expected a method that /openapi.json describes; got another.",
        }.get(error.status_code, str(error.detail))
        return Refusal(error.status_code, text, error.headers).response()

    async def failed(request: Request, error: Exception) -> Response:
        del error
        return refusal.broken(request.scope["state"]["request_id"]).response()

    app.add_exception_handler(Exception, failed)
    app.add_exception_handler(Refusal, refused)
    app.add_exception_handler(ForestallError, unfit)
    app.add_exception_handler(HTTPException, unknown)


def _json(told: Any) -> Response:
    return Response(json.dumps(told, allow_nan=False), media_type="application/json")


def _decisions(rows: list[str]) -> Response:
    text = f'{{"decisions": [{", ".join(rows)}]}}'
    return Response(text, media_type="application/json")
