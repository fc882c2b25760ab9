"""Slow, broken and hostile clients: each gets an error, the others their answers.

``FORESTALL_FUZZ=10000`` makes up so many bodies of each kind.
"""

import json
import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack

import httpx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from forestall import NestedRehearsal
from forestall.serve import Limits
from forestall.serve.questions import Recommend
from fuzzing import tries
from serving import CONTEXT, post, raw, request, served
from worlds import LENDING, lending

LIMITS = Limits(
    body_bytes=200_000, send_seconds=0.6, read_seconds=0.6, idle_seconds=1, seconds=20
)
GOOD = json.dumps({"contexts": [CONTEXT]}).encode()


@pytest.fixture(scope="module")
def policy():
    return NestedRehearsal().fit(LENDING, lending(60))


@pytest.fixture(scope="module")
def url(policy):
    with served(policy, limits=LIMITS) as address:
        yield address
        answer = post(address, "recommend", {"contexts": [CONTEXT]})
        assert answer.status_code == 200


def status(received):
    return int(received.split(b" ", 2)[1])


def error(received):
    head, _, body = received.partition(b"\r\n\r\n")
    assert b"application/json" in head
    return json.loads(body)["error"]


def connect(url):
    host, port = url.removeprefix("http://").split(":")
    return socket.create_connection((host, int(port)), timeout=15)


def test_a_body_that_is_half_sent_is_given_up(url):
    received = raw(url, request(GOOD[:10], length=len(GOOD)))
    assert status(received) == 408
    assert "within 0.6 seconds" in error(received)


def test_a_body_longer_than_it_says_is_cut(url):
    received = raw(url, request(GOOD + b"garbage", length=len(GOOD)))
    assert status(received) == 200


def test_a_length_that_is_no_number_is_refused(url):
    for length in ("-1", "ten", "1e3", "9" * 30):
        received = raw(url, request(GOOD, length=length))
        assert status(received) in (400, 413)
        assert error(received)


def test_two_lengths_are_refused(url):
    extra = b"content-length: 3\r\n"
    assert status(raw(url, request(GOOD, extra=extra))) == 400


@pytest.mark.parametrize(
    "data",
    [
        b"\x00\xff" * 500,
        b"hello\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        b"GET /" + b"a" * 100_000 + b" HTTP/1.1\r\n\r\n",
        b"GET / HTTP/1.1\r\n" + b"x: y\r\n" * 50_000 + b"\r\n",
    ],
)
def test_what_is_no_http_is_refused(url, data):
    received = raw(url, data)
    assert received == b"" or status(received) in (400, 431)
    if received:
        assert error(received).startswith("Expected a request in HTTP/1.1")


def test_garbage_in_chunks_is_refused(url):
    extra = b"transfer-encoding: chunked\r\n"
    head = request(b"", extra=extra).replace(b"content-length: 0\r\n", b"")
    received = raw(url, [head, b"zz\r\nnot a chunk\r\n"], pause=0.1)
    assert received == b"" or status(received) in (400, 408)


def test_an_endless_body_is_refused_as_soon_as_it_is_too_long(url):
    extra = b"transfer-encoding: chunked\r\n"
    head = request(b"", extra=extra).replace(b"content-length: 0\r\n", b"")
    chunk = b"2000\r\n" + b" " * 0x2000 + b"\r\n"
    start = time.monotonic()
    received = raw(url, [head] + [chunk] * 2_000)
    assert time.monotonic() - start < 10
    # The rest may be lost in the pipe, with the answer: the client kept on sending.
    assert received == b"" or status(received) == 413


def test_an_announced_body_that_is_too_long_is_refused_at_once(url):
    received = raw(url, request(b"{", length=10**12))
    assert status(received) == 413
    assert "at most 200000 bytes" in error(received)


@pytest.mark.parametrize(
    "body",
    [
        b"[" * 100_000,
        b'{"contexts":' * 10_000,
        b'{"contexts": [' + b'{"score": ' * 10_000,
        b'{"contexts": [{"score": ' + b"9" * 100_000 + b', "debt": 1}]}',
        b'{"contexts": [{"score": 1e' + b"9" * 1_000 + b', "debt": 1}]}',
        b'{"contexts": [{"score": "\\ud800", "debt": 1' + b"}]",
        b'{"contexts": [{"score": "\xff", "debt": 1}]}',
        b'{"contexts": [' + b"0," * 50_000 + b"0]}",
        b'{"contexts": [{' + b",".join(b'"%d": []' % i for i in range(9_999)) + b"}]}",
        b"",
        b"null",
        b"\xef\xbb\xbf{}",
        b"\x1f\x8b\x08",
    ],
    ids=range(13),
)
def test_json_made_to_harm_is_refused(url, body):
    start = time.monotonic()
    received = raw(url, request(body))
    assert status(received) == 422
    assert len(error(received)) < 1_000
    assert time.monotonic() - start < 5


def test_text_that_is_no_unicode_does_no_harm(url):
    text = b'{"contexts": [{"score": "\\ud800", "debt": 1}]}'
    assert status(raw(url, request(text))) in (200, 422)


def test_deep_json_of_a_million_levels_is_refused(policy):
    with served(policy) as url:
        received = raw(url, request(b"[" * 1_000_000))
        assert status(received) == 422


def test_slow_clients_hold_up_nobody_and_are_cut(url):
    with ExitStack() as stack:
        slow = [stack.enter_context(connect(url)) for _ in range(100)]
        for i, each in enumerate(slow):
            each.sendall([b"", b"POST /v1/rec", request(GOOD[:3], length=30)][i % 3])
        start = time.monotonic()
        assert post(url, "recommend", {"contexts": [CONTEXT]}).status_code == 200
        assert time.monotonic() - start < 0.5 + LIMITS.send_seconds
        for each in slow:
            try:
                while each.recv(4096):
                    pass
            except ConnectionError:
                pass
        assert time.monotonic() - start < 10


def test_a_client_that_dribbles_is_cut_however_busy_it_looks(url):
    head = b"POST /v1/recommend HTTP/1.1\r\nx: " + b"y" * 500
    with connect(url) as connection:
        start = time.monotonic()
        with pytest.raises(OSError, match=r"pipe|reset"):
            send(connection, [bytes([letter]) for letter in head], pause=0.05)
        assert time.monotonic() - start < 10


def test_a_client_that_does_not_read_is_cut(url):
    ask = b"GET /static/plotly.min.js HTTP/1.1\r\nhost: localhost\r\n\r\n"
    with connect(url) as connection:
        # Answers of a hundred megabytes that nobody reads.
        with pytest.raises(OSError, match=r"pipe|reset"):
            send(connection, [ask] * 100, pause=0.1)
    assert post(url, "recommend", {"contexts": [CONTEXT]}).status_code == 200


def send(connection, parts, pause):
    for part in parts:
        connection.sendall(part)
        time.sleep(pause)


def test_a_client_that_leaves_does_no_harm(url):
    body = json.dumps({"contexts": [CONTEXT] * 500}).encode()
    for cut in (20, 200, None):
        with connect(url) as connection:
            connection.sendall(request(body)[:cut])
    assert post(url, "recommend", {"contexts": [CONTEXT]}).status_code == 200


def test_nothing_is_computed_for_a_client_that_has_left(policy, monkeypatch):
    slow = Slow(monkeypatch)
    body = json.dumps({"contexts": [CONTEXT] * 500}).encode()
    with served(policy) as url:
        with connect(url) as connection:
            connection.sendall(request(body))
            wait_until(lambda: slow.calls)
        time.sleep(0.2)
        slow.gate.set()
        assert post(url, "recommend", {"contexts": [CONTEXT]}).status_code == 200
    assert slow.calls == [16, 1]


def test_too_many_connections_are_turned_away(policy):
    limits = Limits(connections=5, send_seconds=5)
    with served(policy, limits=limits) as url, ExitStack() as stack:
        for _ in range(5):
            stack.enter_context(connect(url))
        time.sleep(0.2)
        received = raw(url, b"")
        assert status(received) == 503
        assert "fewer connections" in error(received)


class Slow:
    """A gate before the policy, to see what happens while it computes."""

    def __init__(self, monkeypatch):
        self.gate, self.calls = threading.Event(), []
        plain = Recommend.answers

        def answers(question, rows):
            self.calls.append(len(rows))
            assert self.gate.wait(20)
            return plain(question, rows)

        monkeypatch.setattr(Recommend, "answers", answers)


def wait_until(true):
    end = time.monotonic() + 10
    while not true():
        assert time.monotonic() < end
        time.sleep(0.01)


def queue_length(url):
    lines = httpx.get(f"{url}/metrics").text.splitlines()
    (line,) = [x for x in lines if x.startswith("forestall_queue_requests ")]
    return float(line.split()[1])


def test_a_full_queue_refuses_and_the_rest_is_answered(policy, monkeypatch):
    slow = Slow(monkeypatch)
    with served(policy, limits=Limits(queue=3)) as url, ThreadPoolExecutor(8) as pool:
        ask = lambda: post(url, "recommend", {"contexts": [CONTEXT]})  # noqa: E731
        waiting = [pool.submit(ask)]
        wait_until(lambda: slow.calls)
        waiting += [pool.submit(ask) for _ in range(3)]
        wait_until(lambda: queue_length(url) == 4)
        refused = ask()
        assert refused.status_code == 429
        assert refused.headers["retry-after"] == "1"
        assert "at most 3 requests at a time" in refused.json()["error"]
        slow.gate.set()
        assert [each.result().status_code for each in waiting] == [200] * 4
        assert sum(slow.calls) == 4


def test_rows_that_wait_are_counted_too(policy, monkeypatch):
    slow = Slow(monkeypatch)
    limits = Limits(queue_rows=50)
    with served(policy, limits=limits) as url, ThreadPoolExecutor(2) as pool:
        ask = lambda n: post(url, "recommend", {"contexts": [CONTEXT] * n})  # noqa: E731
        first = pool.submit(ask, 100)
        wait_until(lambda: slow.calls)
        assert ask(1).status_code == 429
        slow.gate.set()
        assert first.result().status_code == 200
        assert ask(1).status_code == 200


def test_what_takes_too_long_is_told_so_and_given_up(policy, monkeypatch):
    slow = Slow(monkeypatch)
    with served(policy, limits=Limits(seconds=0.3)) as url:
        answer = post(url, "recommend", {"contexts": [CONTEXT] * 100})
        assert answer.status_code == 503
        assert "within 0.3 seconds" in answer.json()["error"]
        assert answer.headers["retry-after"]
        assert httpx.get(f"{url}/healthz").status_code == 200
        slow.gate.set()
        wait_until(
            lambda: post(url, "recommend", {"contexts": [CONTEXT]}).status_code == 200
        )
        # Sixteen rows of a hundred were begun; nobody waited for the others.
        assert slow.calls[0] == 16
        assert sum(slow.calls) < 100


def test_a_short_request_overtakes_a_long_one(policy):
    rows = lending(3_000, seed=2)
    names = ("score", "debt")
    pairs = zip(*(rows[name].tolist() for name in names), strict=True)
    body = {"contexts": [dict(zip(names, pair, strict=True)) for pair in pairs]}
    limits = Limits(batch=32)
    with served(policy, limits=limits) as url, ThreadPoolExecutor(1) as pool:
        long = pool.submit(post, url, "recommend", body)
        time.sleep(0.3)
        assert post(url, "recommend", {"contexts": [CONTEXT]}).status_code == 200
        overtaken = not long.done()
        assert len(long.result().json()["decisions"]) == 3_000
        assert overtaken


def test_a_failure_inside_is_told_without_what_came(policy, monkeypatch, caplog):
    def answers(question, rows):
        raise RuntimeError(f"cannot bear {rows}")

    monkeypatch.setattr(Recommend, "answers", answers)
    with served(policy) as url:
        secret = {"score": 0.123456789, "debt": 0.5}
        answer = post(url, "recommend", {"contexts": [secret]})
    assert answer.status_code == 500
    assert "123456789" not in answer.text
    assert answer.headers["x-request-id"] in answer.json()["error"]
    assert any(record.message == "failed" for record in caplog.records)
    assert "123456789" not in caplog.text
    told = str([getattr(record, "told", None) for record in caplog.records])
    assert "RuntimeError" in told
    assert "123456789" not in told


def test_one_failure_does_not_spoil_those_that_wait_beside_it(policy, monkeypatch):
    plain = Recommend.answers

    def answers(question, rows):
        if any(row["score"] == 0.666 for row in rows):
            raise RuntimeError("odd")
        return plain(question, rows)

    monkeypatch.setattr(Recommend, "answers", answers)
    odd = {"contexts": [{"score": 0.666, "debt": 0.5}]}
    limits = Limits(window=0.2)
    with served(policy, limits=limits) as url, ThreadPoolExecutor(6) as pool:
        bodies = [odd, {"contexts": [CONTEXT]}] * 3
        answers_ = list(pool.map(lambda body: post(url, "recommend", body), bodies))
    assert [answer.status_code for answer in answers_] == [500, 200] * 3


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(
            st.sampled_from(["contexts", "score", "debt", "rate", "over", "context"])
            | st.text(max_size=5),
            inner,
            max_size=4,
        )
    ),
    max_leaves=12,
)
NAMES = st.sampled_from(["recommend", "whatif", "landscape", "outcomes"])


@settings(max_examples=tries(100), suppress_health_check=[HealthCheck.too_slow])
@given(path=NAMES, body=JSON)
def test_any_json_gets_an_answer_or_a_clear_error(client, path, body):
    answer = client.post(f"/v1/{path}", content=json.dumps(body), headers=IS_JSON)
    assert answer.status_code in (200, 413, 422)
    if answer.status_code != 200:
        assert list(answer.json()) == ["error"]


@settings(max_examples=tries(50), suppress_health_check=[HealthCheck.too_slow])
@given(path=NAMES, body=st.binary(max_size=200))
def test_any_bytes_get_a_clear_error(client, path, body):
    answer = client.post(f"/v1/{path}", content=body, headers=IS_JSON)
    assert answer.status_code == 422
    assert list(answer.json()) == ["error"]


IS_JSON = {"content-type": "application/json"}


@pytest.fixture(scope="module")
def client(policy):
    with served(policy) as url, httpx.Client(base_url=url, timeout=30) as client:
        yield client
