"""The service over HTTP: a fitted policy behind a few endpoints, and a page."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from forestall.errors import MissingExtraError
from forestall.serve.greeting import greet
from forestall.serve.limits import Limits

if TYPE_CHECKING:
    from starlette.types import ASGIApp

    from forestall.method import Policy
    from forestall.serve.held import Load

__all__ = ["Limits", "create_app", "run"]

PARTS = ("fastapi", "uvicorn", "prometheus_client")


def create_app(
    policy: Policy | str | Path | Load,
    *,
    limits: Limits | None = None,
    token: str | None = None,
) -> ASGIApp:
    """Make the service as an ASGI application, for servers other than ours.

    Args:
        policy: A policy, the path of a saved one, or a function that makes one.
        limits: What a request may ask.
        token: What clients have to send; without one only this machine is served.
    """
    _require_parts()
    from forestall.serve.app import create_app

    return create_app(policy, limits=limits, token=token)


def run(
    path: str | Path,
    *,
    host: str = "127.0.0.1",
    port: int = 8000,
    token: str | None = None,
    workers: int = 1,
    limits: Limits | None = None,
    ready: Callable[[str], object] = greet,
) -> None:
    """Serve a saved policy over HTTP until stopped.

    Args:
        path: The saved policy. A newer file in its place is loaded while running.
        host: The address to listen at; one that others can reach needs a token.
        port: The port to listen at; 0 takes any that is free.
        token: What clients have to send as a bearer token.
        workers: How many processes share the port and the arrays of the policy.
        limits: What a request may ask.
        ready: Called with a greeting for people, once every process has loaded the
            policy; by default it is shown on a terminal.
    """
    _require_parts()
    from forestall.serve.server import serve

    serve(path, host, port, token, workers, limits or Limits(), ready)


def _require_parts() -> None:
    from importlib.util import find_spec

    for part in PARTS:
        if find_spec(part) is None:
            raise MissingExtraError(part, "serve")
