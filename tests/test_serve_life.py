"""The service as a process: started, renewed, wounded and stopped."""

import csv
import importlib
import json
import os
import shutil
import signal
import socket
import threading
import time
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from forestall import NestedRehearsal
from forestall.errors import ForestallError
from forestall.serve import run
from forestall.serve.server import is_loopback, listening
from forestall.store import save
from serving import CONTEXT, Process, post, raw, request
from worlds import LENDING, lending

ROOT = Path(__file__).parents[1]
SECRET = {"score": 0.1357924680, "debt": 0.5, "name": "Rumpelstiltskin"}


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("policies")
    policies = [NestedRehearsal().fit(LENDING, lending(n)) for n in (60, 80)]
    for k, policy in enumerate(policies):
        save(policy, folder / f"{k}.forestall")
    return folder, policies


@pytest.fixture
def path(files, tmp_path):
    return shutil.copy(files[0] / "0.forestall", tmp_path / "lending.forestall")


@pytest.fixture
def process(path, tmp_path, request):
    started = Process(path, tmp_path, workers=getattr(request, "param", 1))
    yield started
    started.stop()


one_and_two_workers = pytest.mark.parametrize("process", [1, 2], indirect=True)


class Clients:
    """Clients that ask one after another until told to stop."""

    def __init__(self, url, count=4):
        self.url, self.enough, self.answers = url, threading.Event(), []
        self.faults = []
        self.threads = [threading.Thread(target=self._ask) for _ in range(count)]

    def __enter__(self):
        for thread in self.threads:
            thread.start()
        return self

    def __exit__(self, *_):
        self.enough.set()
        for thread in self.threads:
            thread.join()

    def _ask(self):
        with httpx.Client(timeout=30) as client:
            while not self.enough.is_set():
                try:
                    answer = client.post(
                        f"{self.url}/v1/recommend", json={"contexts": [CONTEXT]}
                    )
                    self.answers.append(answer)
                except httpx.HTTPError as error:
                    self.faults.append(error)


def told(answer):
    return answer.json()["decisions"][0]["probability"]


def wait_until(true, seconds=20):
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end
        time.sleep(0.05)


def fingerprint(url):
    return httpx.get(f"{url}/healthz").json()["fingerprint"]


@one_and_two_workers
def test_a_newer_file_is_served_without_losing_a_request(files, path, process):
    policies = files[1]
    old, new = (policy.recommend(CONTEXT)[0].probability for policy in policies)
    assert abs(old - new) > 1e-6
    first = fingerprint(process.url)
    with Clients(process.url) as clients:
        time.sleep(0.5)
        save(policies[1], path)
        process.wait_for("policy loaded", process.wait_for("serving")["workers"])
        assert fingerprint(process.url) != first
        time.sleep(0.5)
    assert not clients.faults
    assert {answer.status_code for answer in clients.answers} == {200}
    values = [told(answer) for answer in clients.answers]
    near = [[abs(v - p) < 1e-9 for p in (old, new)] for v in values]
    assert all(any(pair) for pair in near)
    assert near[0] == [True, False]
    assert near[-1] == [False, True]


def test_a_broken_newer_file_changes_nothing(path, process):
    first = fingerprint(process.url)
    for content in (b"", b"no policy at all " * 100):
        fresh = path.with_suffix(".new")
        fresh.write_bytes(content)
        os.replace(fresh, path)
        count = len([line for line in process.log if "kept" in line["event"]]) + 1
        process.wait_for("policy kept: the newer file cannot be loaded", count)
        answer = post(process.url, "recommend", {"contexts": [CONTEXT]})
        assert answer.status_code == 200
    path.unlink()
    time.sleep(1.2)
    assert fingerprint(process.url) == first


@one_and_two_workers
def test_a_stop_finishes_what_was_accepted_and_lets_nobody_in(process):
    rows = lending(4_000, seed=3)
    pairs = zip(rows["score"].tolist(), rows["debt"].tolist(), strict=True)
    body = {"contexts": [{"score": score, "debt": debt} for score, debt in pairs]}
    answers = []
    ask = lambda: answers.append(post(process.url, "recommend", body))  # noqa: E731
    threads = [threading.Thread(target=ask) for _ in range(3)]
    for thread in threads:
        thread.start()
    wait_until(lambda: _waiting(process.url) == 3)
    with _begun(process.url) as (connection, rest):
        process.process.send_signal(signal.SIGTERM)
        wait_until(lambda: _refuses(process.url))
        assert process.process.poll() is None
        connection.sendall(rest)
        assert connection.recv(65536).startswith(b"HTTP/1.1 200 ")
    assert process.stop() == 0
    for thread in threads:
        thread.join()
    assert [answer.status_code for answer in answers] == [200] * 3
    assert {len(answer.json()["decisions"]) for answer in answers} == {4_000}
    assert process.log[-1]["event"] == "stopped"


@contextmanager
def _begun(url):
    """A request whose head has been accepted; gives the connection and the rest."""
    body = json.dumps({"contexts": [CONTEXT]}).encode()
    whole = request(body, extra=b"expect: 100-continue\r\n")
    with socket.create_connection(_address(url), timeout=20) as connection:
        connection.sendall(whole[: -len(body)])
        assert connection.recv(65536).startswith(b"HTTP/1.1 100 ")
        yield connection, body


def _address(url):
    host, port = url.removeprefix("http://").split(":")
    return host, int(port)


def _refuses(url):
    try:
        socket.create_connection(_address(url), timeout=5).close()
    except ConnectionRefusedError:
        return True
    return False


def _waiting(url):
    lines = httpx.get(f"{url}/metrics").text.splitlines()
    (line,) = [x for x in lines if x.startswith("forestall_queue_requests ")]
    return float(line.split()[1])


def test_the_log_holds_a_line_for_each_request_and_no_value(process):
    post(process.url, "recommend", {"contexts": [SECRET]})
    post(process.url, "recommend", {"contexts": [{**SECRET, "debt": "Rumpel"}]})
    post(process.url, "recommend", {"contexts": [{"score": SECRET["score"]}]})
    httpx.get(f"{process.url}/Rumpelstiltskin?score=0.1357924680")
    raw(process.url, b"Rumpelstiltskin 0.1357924680\r\n\r\n")
    raw(process.url, request(json.dumps({"contexts": [SECRET]}).encode()[:-5]))
    process.stop()
    text = "".join(process.lines)
    assert "Rumpel" not in text
    assert "13579" not in text
    found = [line for line in process.log if line["event"] == "request"]
    lines = [line for line in found if line["path"] == "/v1/recommend"]
    assert [line["status"] for line in lines[:3]] == [200, 200, 422]
    keys = {"time", "level", "event", "method", "path", "status", "ms", "rows"}
    assert all(set(line) == keys | {"request_id"} for line in found)
    assert lines[0]["rows"] == 1
    assert [line["path"] for line in found if line["status"] == 404] == ["other"]


def test_workers_share_the_arrays_and_one_that_is_killed_is_replaced(path, tmp_path):
    process = Process(path, tmp_path, workers=2)
    try:
        before = process.children()
        assert [_mapped(pid, path) for pid in before] == [True, True]
        with Clients(process.url) as clients:
            time.sleep(1.0)
            os.kill(before[0], signal.SIGKILL)
            wait_until(lambda: len(set(process.children()) - set(before)) == 1)
            time.sleep(0.5)
            for _ in range(20):
                answer = post(process.url, "recommend", {"contexts": [CONTEXT]})
                assert answer.status_code == 200
        # Only those that the killed one was about to answer are lost.
        assert len(clients.faults) <= len(clients.threads)
        assert {answer.status_code for answer in clients.answers} == {200}
        count = httpx.get(f"{process.url}/metrics").text
        assert 'path="/v1/recommend",status="200"' in count
    finally:
        assert process.stop() == 0


def _mapped(pid, path):
    with open(f"/proc/{pid}/maps") as file:
        return str(path) in file.read()


def test_it_does_not_start_open_to_the_network_without_a_token(path):
    for host in ("0.0.0.0", "::", "192.168.1.2", "example.com"):
        with pytest.raises(ForestallError, match=r"because others can reach") as error:
            run(path, host=host)
        assert "Pass one (FORESTALL_TOKEN or --token;" in str(error.value)


def test_a_token_must_be_hard_to_guess(path):
    for token in ("", "secret", "with spaces in it, long", "ümlaut-" * 4):
        with pytest.raises(ForestallError, match=r"Expected a token of at least 16"):
            run(path, token=token)


def test_loopback_is_told_from_the_rest():
    assert all(map(is_loopback, ["localhost", "127.0.0.1", "127.1.2.3", "::1"]))
    others = ["0.0.0.0", "::", "10.0.0.1", "localhost.example", ""]
    assert not any(map(is_loopback, others))


def test_what_cannot_be_served_is_told_at_the_start(path, tmp_path):
    with pytest.raises(ForestallError, match=r"nothing\.forestall"):
        run(tmp_path / "nothing.forestall", port=0)
    with pytest.raises(ForestallError, match="Expected workers above zero"):
        run(path, workers=0)
    with pytest.raises(ForestallError, match="Choose another port"):
        run(path, port=70_000)


def test_the_measured_service_passes_and_a_worse_one_is_told(monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "benchmarks")
    service = importlib.import_module("service")
    with (ROOT / "benchmarks" / "results" / "service.csv").open() as file:
        (row,) = csv.DictReader(file)
    assert (row["n"], row["clients"], row["seconds"]) == ("1000", "64", "60.0")
    assert service.failures(row) == []
    slow = 3 * float(row["noop_p99_ms"]) + float(row["batch_ms"]) + 0.2
    grown = service.GROWTH * float(row["rss_mb_before"]) + 0.2
    for name, value, text in (
        ("errors", 1, "Expected no error"),
        ("p99_ms", slow, "Expected a 99th percentile"),
        ("rss_mb_after", grown, "Expected memory that does not grow"),
        ("many_seconds", 61.0, "Expected 10,000 contexts in one request"),
    ):
        (told,) = service.failures({**row, name: value})
        assert told.startswith(text)


def test_answers_do_not_wait_for_the_client_to_confirm_their_first_part():
    with listening("127.0.0.1", 0) as listener:
        with socket.create_connection(listener.getsockname()):
            accepted, _ = listener.accept()
        with accepted:
            at_once = accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
    assert at_once != 0
