"""Bodies, read within limits and checked against their models."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

from pydantic import ValidationError
from starlette.requests import ClientDisconnect, Request

from forestall.serve import refusal
from forestall.serve.bodies import Body, fault_text
from forestall.serve.limits import Limits
from forestall.serve.refusal import Refusal

# Longer bodies are parsed in a thread, beside the other requests.
LONG = 1 << 15

AnyBody = TypeVar("AnyBody", bound=Body)
Told = TypeVar("Told")


@dataclass(eq=False)
class Reader:
    """Reads bodies, as long as all together are not too long.

    Args:
        limits: How long and how slow they may be.
        held: How many bytes are being read.
    """

    limits: Limits
    held: int = 0

    async def read(self, request: Request, model: type[AnyBody]) -> AnyBody:
        """Read the body of a request as a model."""
        kind = request.headers.get("content-type", "")
        if kind.partition(";")[0].strip().lower() != "application/json":
            raise refusal.not_json(kind)
        async with self._received(request) as body:
            if len(body) > LONG:
                return await asyncio.to_thread(parsed, body, model)
            return parsed(body, model)

    @asynccontextmanager
    async def _received(self, request: Request) -> AsyncIterator[bytes]:
        most, size = self.limits.body_bytes, 0
        declared = request.headers.get("content-length", "")
        if declared.isascii() and declared.isdigit() and int(declared) > most:
            raise refusal.too_long(most)
        parts, seconds = [], self.limits.send_seconds
        try:
            async with asyncio.timeout(seconds):
                async for part in request.stream():
                    size += len(part)
                    self.held += len(part)
                    parts.append(part)
                    if size > most:
                        raise refusal.too_long(most)
                    if self.held > self.limits.queue_bytes:
                        raise refusal.full(self.limits.queue)
            yield b"".join(parts)
        except TimeoutError:
            raise refusal.too_slow(seconds) from None
        finally:
            self.held -= size


async def unless_gone(request: Request, answer: Coroutine[Any, Any, Told]) -> Told:
    """Wait for an answer as long as its client does."""
    task, gone = asyncio.create_task(answer), asyncio.create_task(_gone(request))
    try:
        await asyncio.wait({task, gone}, return_when=asyncio.FIRST_COMPLETED)
        if task.done():
            return task.result()
        raise ClientDisconnect
    finally:
        task.cancel()
        gone.cancel()


async def _gone(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


def parsed(body: bytes, model: type[AnyBody]) -> AnyBody:
    """Check a body against its model; 422 where it does not fit."""
    try:
        return model.model_validate_json(body)
    except ValidationError as error:
        raise Refusal(422, fault_text(error)) from None
