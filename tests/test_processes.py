"""Processes that share work: errors come back, and none is left behind."""

import os
import pickle
import signal
import subprocess
import sys
import time

import pytest

from forestall import errors
from forestall.processes import shared

ERRORS = [
    kind
    for kind in vars(errors).values()
    if isinstance(kind, type) and issubclass(kind, errors.ForestallError)
]
SLOW = """
import os, time
from forestall.processes import shared

def slowly(k):
    # In one piece: two processes write to the same pipe.
    os.write(1, f"{os.getpid()}\\n".encode())
    time.sleep(600)

list(shared(slowly, [(0,), (1,)], 2))
"""


def process_of(k):
    return k, os.getpid()


def failing(k):
    raise errors.MissingExtraError("cvxpy", "convex")


def is_running(pid):
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8") as file:
            return file.read().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


@pytest.mark.parametrize("kind", ERRORS, ids=lambda kind: kind.__name__)
def test_an_error_survives_the_way_back(kind):
    two = kind is errors.MissingExtraError
    error = kind("cvxpy", "convex") if two else kind("Expected this; got that.")
    back = pickle.loads(pickle.dumps(error))
    assert type(back) is kind
    assert str(back) == str(error)


def test_results_come_in_order_from_no_more_processes_than_items():
    found = list(shared(process_of, [(k,) for k in range(3)], 1000))
    assert [k for k, _ in found] == [0, 1, 2]
    assert os.getpid() not in {pid for _, pid in found}
    assert list(shared(process_of, [(7,)], 1000)) == [(7, os.getpid())]
    assert list(shared(process_of, [], 2)) == []


def test_an_error_of_another_process_is_that_of_this_one():
    with pytest.raises(errors.MissingExtraError, match=r"pip install 'forestall\[conv"):
        list(shared(failing, [(0,), (1,)], 2))


def test_a_termination_ends_all_processes(tmp_path):
    script = tmp_path / "slow.py"
    script.write_text(SLOW, encoding="utf-8")
    with subprocess.Popen(
        [sys.executable, str(script)],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as parent:
        try:
            workers = [int(parent.stdout.readline()) for _ in range(2)]
            parent.send_signal(signal.SIGTERM)
            assert parent.wait(timeout=60) == 143
        finally:
            parent.kill()
    end = time.monotonic() + 60
    while any(map(is_running, workers)):
        assert time.monotonic() < end
        time.sleep(0.1)
