"""A service on a port of its own, for tests over real HTTP."""

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from contextlib import contextmanager

import httpx
import uvicorn

from forestall.serve import Limits, create_app
from forestall.serve.protocol import PatientProtocol, Settings
from forestall.serve.server import listening

CONTEXT = {"score": 0.3, "debt": 0.5}
TOKEN = "a-token-that-is-long-enough"

SCRIPT = """
import sys
from forestall.serve import Limits, run

if __name__ == "__main__":
    run(sys.argv[1], port=0, workers=int(sys.argv[2]), limits=Limits(seconds=20))
"""


@contextmanager
def served(policy, *, limits=None, token=None):
    """Serve a policy in a thread; gives the address."""
    limits = limits or Limits()
    with listening("127.0.0.1", 0) as listener:
        settings = Settings(
            create_app(policy, limits=limits, token=token),
            http=PatientProtocol,
            ws="none",
            log_config=None,
            server_header=False,
            timeout_keep_alive=15,
            timeout_graceful_shutdown=10,
        )
        settings.limits = limits
        server = uvicorn.Server(settings)
        thread = threading.Thread(target=server.run, args=([listener],))
        thread.start()
        try:
            while not server.started:
                assert thread.is_alive()
                time.sleep(0.005)
            yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        finally:
            server.should_exit = True
            thread.join()


class Process:
    """A service in processes of its own, from a saved policy."""

    def __init__(self, path, folder, workers=1):
        """Start it, and wait until it answers."""
        script = folder / "serve_it.py"
        script.write_text(SCRIPT)
        self.lines = []
        env = {**os.environ, "PYTHONWARNINGS": "ignore"}
        self.process = subprocess.Popen(
            [sys.executable, str(script), str(path), str(workers)],
            stderr=subprocess.PIPE,
            text=True,
            env=env,
        )
        self.reader = threading.Thread(target=self._read)
        self.reader.start()
        self.url = self.wait_for("serving")["url"]
        self.ready()

    def _read(self):
        for line in self.process.stderr:
            self.lines.append(line)

    @property
    def log(self):
        """What was logged so far, as objects."""
        return [json.loads(line) for line in list(self.lines)]

    def wait_for(self, event, count=1, seconds=30):
        """Wait for a line in the log."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            found = [line for line in self.log if line["event"] == event]
            if len(found) >= count:
                return found[-1]
            assert self.process.poll() is None, "".join(self.lines)
            time.sleep(0.02)
        raise AssertionError(f"no {event!r} in {self.lines}")

    def ready(self):
        """Wait until it answers."""
        with httpx.Client(timeout=30) as client:
            assert client.get(f"{self.url}/healthz").status_code == 200

    def children(self):
        """The ids of the workers."""
        path = f"/proc/{self.process.pid}/task/{self.process.pid}/children"
        with open(path) as file:
            pids = [int(pid) for pid in file.read().split()]
        return [pid for pid in pids if "spawn_main" in _command(pid)]

    def stop(self):
        """Ask it to stop; gives its exit code."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        code = self.process.wait(30)
        self.reader.join()
        self.process.stderr.close()
        return code


def _command(pid):
    try:
        with open(f"/proc/{pid}/cmdline") as file:
            return file.read()
    except OSError:
        return ""


def post(url, path, body, **options):
    """Post a body as JSON."""
    return httpx.post(f"{url}/v1/{path}", json=body, timeout=30, **options)


def raw(url, data, seconds=15, pause=0.0):
    """Send bytes as they are, and give all bytes that come back."""
    host, port = url.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), timeout=seconds) as connection:
        for part in [data] if isinstance(data, bytes) else data:
            try:
                connection.sendall(part)
            except OSError:
                break
            time.sleep(pause)
        received = b""
        try:
            while part := connection.recv(65536):
                received += part
        except OSError:
            pass
        return received


def request(body, path="recommend", length=None, extra=b""):
    """Write a request as bytes."""
    length = len(body) if length is None else length
    head = (
        f"POST /v1/{path} HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: "
        f"application/json\r\nconnection: close\r\ncontent-length: {length}\r\n"
    )
    return head.encode() + extra + b"\r\n" + body
