"""What stands before every endpoint: who may ask, what is noted, what never leaks."""

from __future__ import annotations

import asyncio
import hmac
import logging
import time
import traceback
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from forestall.serve import refusal
from forestall.serve.refusal import Refusal

logger = logging.getLogger("forestall.serve")

# What anybody may see: no word of the policy.
OPEN = ("/", "/healthz")
STATIC = "/static/"
LOOPBACK = ("127.0.0.1", "localhost", "[::1]", "::1")

POLICY = (
    "default-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
    "object-src 'none'; img-src 'self' data: blob:; style-src 'self' 'unsafe-inline'"
)
HEADERS = {
    "content-security-policy": POLICY,
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "cross-origin-resource-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
}
# The client has gone; nobody reads this status but the log.
GONE = 499

Note = Callable[[str, str, int, float], None]


@dataclass(frozen=True, eq=False)
class Guard:
    """Wraps an application: token, host, request id, one line in the log, no leaks.

    Args:
        app: The application.
        token: What clients have to know; ``None`` serves this machine only.
        note: Called after every request with method, path, status and seconds.
    """

    app: ASGIApp
    token: str | None
    note: Note

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        start, answer = time.perf_counter(), _Answer(send, uuid.uuid4().hex[:16])
        scope.setdefault("state", {}).update(rows=None, request_id=answer.request_id)
        try:
            self._admit(scope)
            await self.app(scope, receive, answer)
        except Refusal as error:
            await answer.refuse(error, scope, receive)
        except ClientDisconnect:
            answer.status = GONE
        except asyncio.CancelledError:
            await answer.refuse(refusal.ending(), scope, receive)
            raise
        except Exception as error:
            # The application has answered it already.
            logger.error("failed", extra={"told": _failure(error, answer.request_id)})
        finally:
            self._noted(scope, answer, time.perf_counter() - start)

    def _admit(self, scope: Scope) -> None:
        headers = {name.lower(): value for name, value in scope["headers"]}
        if self.token is None:
            host = headers.get(b"host", b"").decode("latin-1")
            if host_name(host) not in LOOPBACK:
                raise refusal.misdirected()
        elif not is_open(scope["path"]):
            if not authorised(headers.get(b"authorization", b""), self.token):
                raise refusal.no_token()

    def _noted(self, scope: Scope, answer: _Answer, seconds: float) -> None:
        path, method = known_path(scope), known_method(scope["method"])
        self.note(method, path, answer.status, seconds)
        told = {
            "method": method,
            "path": path,
            "status": answer.status,
            "ms": round(1e3 * seconds, 2),
            "rows": scope["state"]["rows"],
            "request_id": answer.request_id,
        }
        logger.info("request", extra={"told": told})


@dataclass(eq=False)
class _Answer:
    """Sends an answer with our headers, and remembers its status."""

    send: Send
    request_id: str
    status: int = 500
    begun: bool = False

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.begun, self.status = True, message["status"]
            present = {name.lower() for name, _ in message["headers"]}
            extra = {**HEADERS, "x-request-id": self.request_id}
            extra.setdefault("cache-control", "no-store")
            message["headers"] = [
                *message["headers"],
                *(
                    (name.encode(), value.encode())
                    for name, value in extra.items()
                    if name.encode() not in present
                ),
            ]
        await self.send(message)

    async def refuse(self, error: Refusal, scope: Scope, receive: Receive) -> None:
        """Answer with an error, unless another answer has begun."""
        if not self.begun:
            await error.response()(scope, receive, self)


def authorised(header: bytes, token: str) -> bool:
    """Compare a bearer token in constant time."""
    scheme, _, given = header.partition(b" ")
    same = hmac.compare_digest(given.strip(), token.encode())
    return scheme.lower() == b"bearer" and same


def is_open(path: str) -> bool:
    """Tell whether a path may be seen without a token."""
    return path in OPEN or path.startswith(STATIC)


def host_name(host: str) -> str:
    """Take the port off a Host header."""
    name, colon, port = host.rpartition(":")
    return name.lower() if colon and port.isdigit() and name else host.lower()


def known_path(scope: Scope) -> str:
    """The path as we wrote it; what clients make up may be personal."""
    route: Any = scope.get("route")
    return str(getattr(route, "path", "")) or "other"


def known_method(method: str) -> str:
    """The method, where it is a usual one."""
    usual = ("GET", "POST", "HEAD", "OPTIONS", "PUT", "DELETE", "PATCH")
    return method if method in usual else "other"


def _failure(error: Exception, request_id: str) -> dict[str, Any]:
    """Say where it failed, without the message: that may quote what came in."""
    frames = traceback.extract_tb(error.__traceback__)[-3:]
    where = [f"{frame.name}:{frame.lineno}" for frame in frames]
    return {"cause": type(error).__name__, "where": where, "request_id": request_id}
