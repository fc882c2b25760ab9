"""Errors as HTTP answers: one shape for all, ``{"error": "..."}``."""

from __future__ import annotations

import json
from collections.abc import Mapping

from starlette.responses import Response


class Refusal(Exception):
    """A request that is not answered, and why.

    Args:
        status: The HTTP status.
        text: What was expected, what came, what to do.
        headers: Further headers of the answer.
    """

    def __init__(
        self, status: int, text: str, headers: Mapping[str, str] | None = None
    ) -> None:
        """Note status and text."""
        super().__init__(text)
        self.status, self.text, self.headers = status, text, dict(headers or {})

    def response(self) -> Response:
        """Write it as an answer."""
        return Response(
            json.dumps({"error": self.text}),
            self.status,
            self.headers,
            media_type="application/json",
        )


# What is left of a body that is not read would be taken for the next request.
CLOSE = {"connection": "close"}


def too_long(limit: int) -> Refusal:
    """A body over the limit."""
    return Refusal(
        413,
        f"Expected a body of at most {limit} bytes; got more. Send fewer contexts at a "
        f"time.",
        CLOSE,
    )


def too_many(rows: int, limit: int, what: str = "contexts") -> Refusal:
    """More rows than the limit."""
    return Refusal(
        413,
        f"Expected at most {limit} {what} in one request; got {rows}. Send several "
        f"requests.",
    )


def too_slow(seconds: float) -> Refusal:
    """A body that did not come in time."""
    return Refusal(
        408,
        f"Expected the whole body within {seconds:g} seconds; got only a part. Send it "
        f"at once.",
        CLOSE,
    )


def not_json(kind: str) -> Refusal:
    """A body of another type."""
    got = "another type" if kind else "no Content-Type"
    return Refusal(
        415,
        f"Expected a body of the type application/json; got {got}. Set the header "
        f"Content-Type: application/json.",
        CLOSE,
    )


def no_token() -> Refusal:
    """A missing or wrong token."""
    return Refusal(
        401,
        "Expected the token of this service; got none, or another. Send the header "
        "Authorization: Bearer TOKEN.",
        {"www-authenticate": "Bearer", **CLOSE},
    )


def misdirected() -> Refusal:
    """A request that was meant for another host."""
    return Refusal(
        421,
        "Expected a request for this machine itself, because the service has no "
        "token; got another Host. Ask 127.0.0.1 or localhost, or start the service "
        "with a token.",
        CLOSE,
    )


def full(queue: int) -> Refusal:
    """Too many requests that wait."""
    return Refusal(
        429,
        f"Expected at most {queue} requests at a time, and not too many long ones; got "
        f"more. Ask again later.",
        {"retry-after": "1", **CLOSE},
    )


def late(seconds: float) -> Refusal:
    """An answer that did not come in time."""
    return Refusal(
        503,
        f"Expected an answer within {seconds:g} seconds; it takes longer. Ask for less "
        f"at a time, or later.",
        {"retry-after": "5"},
    )


def ending() -> Refusal:
    """A service that is being stopped."""
    return Refusal(
        503,
        "Expected a running service; it is being stopped. Ask again later.",
        {"retry-after": "5", **CLOSE},
    )


def broken(request_id: str) -> Refusal:
    """An error of ours."""
    return Refusal(
        500,
        f"Something went wrong inside the service; the log tells more under the "
        f"request id {request_id}.",
    )
