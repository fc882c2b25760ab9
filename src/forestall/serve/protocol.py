"""Connections that end when their client is too slow, so that none is held for ever."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import h11
import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from forestall.serve.limits import Limits

# The application answers a slow body itself; the connection is cut only after that.
GRACE = 2.0

NO_HTTP = (
    "Expected a request in HTTP/1.1; got something else. Check the client, and that "
    "it uses http, not https."
)
CROWDED = (
    "Expected fewer connections; got too many at a time. Close those that are not "
    "needed, and ask again later."
)


class Settings(uvicorn.Config):
    """The settings of uvicorn, with our limits beside them."""

    limits: Limits = Limits()


class PatientProtocol(H11Protocol):
    """HTTP/1.1 with a limit on how long a client may send or read."""

    limits: Limits
    sending: asyncio.TimerHandle | None = None
    reading: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Start to wait for a request."""
        config: Any = self.config
        self.limits = config.limits
        super().connection_made(transport)
        if len(self.connections) > self.limits.connections:
            transport.write(_raw(503, "Service Unavailable", CROWDED))
            transport.close()
        else:
            self._await_request()

    def data_received(self, data: bytes) -> None:
        """Read, and wait no longer once the request is whole."""
        if self.transport.is_closing():
            return
        super().data_received(data)
        state = self.conn.their_state
        begun = state is h11.IDLE and bool(self.conn.trailing_data[0])
        if state is h11.SEND_BODY or begun:
            self._await_request()
        else:
            self._cancel("sending")

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the timers."""
        self._cancel("sending")
        self._cancel("reading")
        super().connection_lost(exc)

    def pause_writing(self) -> None:
        """Give the client a while to read."""
        super().pause_writing()
        self._await_reader()

    def resume_writing(self) -> None:
        """Go on."""
        self._cancel("reading")
        super().resume_writing()

    def on_response_complete(self) -> None:
        """Give the client a while to read the rest of a short answer too."""
        if self.transport.get_write_buffer_size():
            self._await_reader()
        super().on_response_complete()

    def send_400_response(self, msg: str) -> None:
        """Refuse what is no HTTP, in the shape of all our errors."""
        del msg
        if self.cycle is None or self.cycle.response_complete:
            self.transport.write(_raw(400, "Bad Request", NO_HTTP))
        self.transport.close()

    def _await_request(self) -> None:
        if self.sending is None:
            seconds = self.limits.send_seconds + GRACE
            self.sending = self.loop.call_later(seconds, self.transport.abort)

    def _await_reader(self) -> None:
        if self.reading is None:
            seconds = self.limits.read_seconds
            self.reading = self.loop.call_later(seconds, self._cut)

    def _cut(self) -> None:
        self.reading = None
        if self.transport.get_write_buffer_size():
            self.transport.abort()

    def _cancel(self, name: str) -> None:
        timer: asyncio.TimerHandle | None = getattr(self, name)
        if timer is not None:
            timer.cancel()
            setattr(self, name, None)


def _raw(status: int, phrase: str, text: str) -> bytes:
    body = json.dumps({"error": text}).encode()
    head = (
        f"HTTP/1.1 {status} {phrase}\r\ncontent-type: application/json\r\n"
        f"content-length: {len(body)}\r\nconnection: close\r\n\r\n"
    )
    return head.encode() + body
