"""The server: one process or several behind one port, until they are stopped."""

from __future__ import annotations

import gc
import ipaddress
import logging
import logging.config
import math
import os
import signal
import socket
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import uvicorn
from starlette.types import ASGIApp
from uvicorn.supervisors import Multiprocess

from forestall.errors import SpecError
from forestall.serve.app import create_app
from forestall.serve.greeting import greeting
from forestall.serve.held import PolicyFile
from forestall.serve.limits import Limits
from forestall.serve.logs import log_config
from forestall.serve.metrics import SHARED
from forestall.serve.protocol import PatientProtocol, Settings
from forestall.store import about

logger = logging.getLogger("forestall.serve")

BACKLOG = 1_024
SHORTEST_TOKEN = 16
# New objects between two collections, and how often these go deeper.
COLLECTIONS = 50_000, 20, 50
# Seconds in which a worker has to say that it lives; it may be loading a policy.
HEALTHCHECK = 60


@dataclass(frozen=True)
class Worker:
    """Makes the application in every process anew."""

    path: Path
    token: str | None
    limits: Limits

    def __call__(self) -> ASGIApp:
        """Load the policy and make the application."""
        app = create_app(self.path, limits=self.limits, token=self.token)
        spare_collections()
        return app


class Workers(Multiprocess):
    """Several processes behind one port.

    Args:
        settings: How each of them serves.
        sockets: Where they listen.
        ready: Called once all of them answer.
    """

    def __init__(
        self,
        settings: Settings,
        sockets: list[socket.socket],
        ready: Callable[[], None],
    ) -> None:
        """Start with none."""
        super().__init__(settings, sockets)
        self._ready = ready

    def init_processes(self) -> None:
        """Start all of them, and wait until each has loaded the policy."""
        super().init_processes()
        while not self.should_exit.wait(0.1):
            self.handle_signals()
            self.keep_subprocess_alive()
            if all(process.is_ready() for process in self.processes):
                self._ready()
                return

    def terminate_all(self) -> None:
        """Take no more connections, and let each finish what it has accepted."""
        for each in self.sockets:
            each.close()
        super().terminate_all()


def spare_collections() -> None:
    """Keep the garbage collector off what stays, and let it come less often.

    Going through all modules again and again was most of the slowest answers' time.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(*COLLECTIONS)


def serve(
    path: str | Path,
    host: str,
    port: int,
    token: str | None,
    workers: int,
    limits: Limits,
    ready: Callable[[str], object],
) -> None:
    """Serve a saved policy until stopped; see :func:`forestall.serve.run`."""
    check_token(token)
    check_host(host, token)
    check_workers(workers)
    check_port(port)
    worker = Worker(Path(path).absolute(), token, limits)
    if workers > 1:
        # A file that cannot be loaded is an error here, not in every worker.
        PolicyFile(worker.path).load()
    app = worker if workers > 1 else worker()
    known = about(worker.path)
    with listening(host, port) as listener:
        settings = Settings(
            app,
            factory=workers > 1,
            workers=workers,
            http=PatientProtocol,
            ws="none",
            log_config=log_config(),
            access_log=False,
            proxy_headers=False,
            server_header=False,
            backlog=BACKLOG,
            timeout_keep_alive=math.ceil(limits.idle_seconds),
            timeout_graceful_shutdown=math.ceil(limits.seconds + limits.send_seconds),
            timeout_worker_healthcheck=HEALTHCHECK,
        )
        settings.limits = limits
        address = url(host, listener)
        told = {"url": address, "workers": workers, "token": token is not None}
        hello = greeting(worker.path.name, known, browsable(address), token)

        def announce() -> None:
            ready(hello)
            logger.info("serving", extra={"told": told})

        if workers == 1:
            announce()
        with stopping_quietly():
            if workers > 1:
                with shared_metrics():
                    Workers(settings, [listener], announce).run()
            else:
                uvicorn.Server(settings).run([listener])
        logger.info("stopped", extra={"told": {"url": address}})


def check_token(token: str | None) -> None:
    """Raise where a token could be guessed, or cannot be sent."""
    if token is None:
        return
    printable = token.isascii() and token.isprintable() and " " not in token
    if len(token) < SHORTEST_TOKEN or not printable:
        raise SpecError(
            f"Expected a token of at least {SHORTEST_TOKEN} letters, digits and signs "
            f"without spaces; got {len(token)} characters. Make one with: "
            f'python -c "import secrets; print(secrets.token_urlsafe())"'
        )


def check_host(host: str, token: str | None) -> None:
    """Raise where others could ask without a token."""
    if token is None and not is_loopback(host):
        raise SpecError(
            f"Expected a token, because others can reach {host!r}; got none. Pass one "
            f"(FORESTALL_TOKEN or --token; token=... in Python), or serve this machine "
            f"only, at 127.0.0.1."
        )


def check_workers(workers: int) -> None:
    """Raise unless there is at least one process."""
    if isinstance(workers, bool) or not isinstance(workers, int) or workers < 1:
        raise SpecError(
            f"Expected workers above zero and whole; got {workers!r}. Use as many as "
            f"there are cores."
        )


def check_port(port: int) -> None:
    """Raise where there cannot be such a port."""
    if isinstance(port, bool) or not isinstance(port, int) or not 0 <= port < 1 << 16:
        raise SpecError(
            f"Expected a port from 0 to 65535; got {port!r}. Choose another port, or 0 "
            f"for any that is free."
        )


def is_loopback(host: str) -> bool:
    """Tell whether only this machine can reach an address."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


@contextmanager
def listening(host: str, port: int) -> Iterator[socket.socket]:
    """Listen at an address; all processes share the socket."""
    host = host.strip("[]")
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        listener = socket.create_server((host, port), family=family, backlog=BACKLOG)
    except OSError as error:
        raise SpecError(
            f"Expected an address to listen at; {host}, port {port}, cannot be used: "
            f"{error}. Choose another port, or 0 for any that is free."
        ) from error
    with listener:
        listener.set_inheritable(True)
        # asyncio leaves this off connections whose protocol is not spelt out, and then
        # an answer in two parts waits 40 ms for the client to confirm the first.
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        yield listener


def url(host: str, listener: socket.socket) -> str:
    """Write the address as a browser takes it."""
    name = f"[{host.strip('[]')}]" if ":" in host else host
    return f"http://{name}:{listener.getsockname()[1]}"


def browsable(address: str) -> str:
    """Name this machine where an address means all that it has."""
    for everywhere in ("//0.0.0.0:", "//[::]:"):
        address = address.replace(everywhere, "//localhost:")
    return address


@contextmanager
def stopping_quietly() -> Iterator[None]:
    """Let a signal end the server and nothing else: it is raised again afterwards."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    signals = (signal.SIGINT, signal.SIGTERM)
    before = {each: signal.signal(each, lambda *_: None) for each in signals}
    try:
        yield
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)


@contextmanager
def shared_metrics() -> Iterator[None]:
    """Let processes add up their metrics in a folder."""
    with tempfile.TemporaryDirectory(prefix="forestall-") as folder:
        os.environ[SHARED] = folder
        try:
            yield
        finally:
            del os.environ[SHARED]
