"""What a person at a terminal is told when a service starts, on a real terminal."""

import json
import os
import pty
import re
import signal
import subprocess
import sys
import threading

import httpx
import pytest

from forestall import NestedRehearsal
from forestall.serve.greeting import greeting
from forestall.serve.server import browsable
from forestall.store import about, save
from serving import TOKEN
from worlds import LENDING, lending


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    place = tmp_path_factory.mktemp("greeting") / "lending.forestall"
    return save(NestedRehearsal().fit(LENDING, lending(60)), place)


class Served:
    """``forestall serve`` with its error stream at a terminal, or at a pipe."""

    def __init__(self, path, terminal, *options):
        """Start it."""
        command = [sys.executable, "-m", "forestall", "serve", str(path), "--port=0"]
        self.ours, theirs = pty.openpty() if terminal else os.pipe()
        self.process = subprocess.Popen(
            [*command, *options],
            stdout=subprocess.DEVNULL,
            stderr=theirs,
            env={**os.environ, "TERM": "xterm"},
        )
        os.close(theirs)
        self.said, self.serving = "", threading.Event()
        self.reader = threading.Thread(target=self._read)
        self.reader.start()

    def _read(self):
        while chunk := self._chunk():
            self.said += chunk.decode().replace("\r\n", "\n")
            if '"serving"' in self.said:
                self.serving.set()

    def _chunk(self):
        try:
            return os.read(self.ours, 65536)
        except OSError:
            return b""

    def stopped(self, ask):
        """Wait until it serves, ask, stop it as Ctrl+C does; give what was said."""
        try:
            assert self.serving.wait(60), self.said
            ask(self.said)
        finally:
            self.process.send_signal(signal.SIGINT)
            code = self.process.wait(30)
            self.reader.join()
            os.close(self.ours)
        assert code == 0
        return self.said


def logged(said):
    return [json.loads(line) for line in said.splitlines() if line.startswith("{")]


@pytest.mark.parametrize("workers", [1, 2])
def test_on_a_terminal_the_service_says_what_it_serves_and_where(path, workers):
    def ask(said):
        page, described = re.findall(r"(http://\S+(?:/|json))\n", said)
        assert "text/html" in httpx.get(page).headers["content-type"]
        assert "/v1/whatif" in httpx.get(described).json()["paths"]

    said = Served(path, True, f"--workers={workers}").stopped(ask)
    # A bar that was shown while loading leaves signs of its own.
    text = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", said)
    first = text.index("Serving lending.forestall: advice on rate, learned from 60")
    assert text.index("Loading") < first < text.index('"serving"')
    assert "Press Ctrl+C to stop." in text
    events = [each["event"] for each in logged(text)]
    assert events == ["serving", "request", "request", "stopped"]


@pytest.mark.parametrize(("terminal", "options"), [(False, []), (True, ["--json"])])
def test_a_log_that_no_person_reads_is_json_and_nothing_else(path, terminal, options):
    def ask(said):
        assert httpx.get(f"{logged(said)[0]['url']}/healthz").status_code == 200

    said = Served(path, terminal, *options).stopped(ask)
    assert len(logged(said)) == len(said.splitlines()) == 3


def test_a_token_is_asked_for_but_never_shown(path):
    told = about(path)
    open_, closed = (
        greeting("lending.forestall", told, "http://127.0.0.1:8000", token)
        for token in (None, TOKEN)
    )
    assert TOKEN not in closed
    assert "token" not in open_
    assert set(closed.splitlines()) - set(open_.splitlines()) == {
        "Whoever asks needs the token; the page prompts for it."
    }


@pytest.mark.parametrize(
    ("address", "expected"),
    [
        ("http://0.0.0.0:8000", "http://localhost:8000"),
        ("http://[::]:8000", "http://localhost:8000"),
        ("http://[::1]:8000", "http://[::1]:8000"),
        ("http://127.0.0.1:8000", "http://127.0.0.1:8000"),
    ],
)
def test_a_browser_is_sent_to_an_address_that_it_can_open(address, expected):
    assert browsable(address) == expected
