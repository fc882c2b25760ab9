"""How many threads linear algebra takes, and that the number is left as it was."""

import os
import subprocess
import sys

import numpy as np
import pytest
from threadpoolctl import threadpool_limits

from forestall import NestedRehearsal, StagedRehearsal, posterior, ridge
from forestall.kernels import Gaussian
from forestall.mechanism import Mechanism
from forestall.threads import LARGE, _controller, one_thread, threads_for
from worlds import WORLDS

OBEDIENT = set()


def blas():
    return [each for each in _controller().info() if each["user_api"] == "blas"]


def n_threads():
    return {each["num_threads"] for each in blas() if each["filepath"] in OBEDIENT}


@pytest.fixture(autouse=True)
def two_threads():
    with threadpool_limits(2, user_api="blas"):
        # Another test may have loaded a library that takes one whatever is asked for.
        OBEDIENT.update(b["filepath"] for b in blas() if b["num_threads"] == 2)
        assert OBEDIENT
        yield
        assert n_threads() == {2}


def test_there_is_one_thread_within_and_as_many_as_before_afterwards():
    assert n_threads() == {2}
    with one_thread():
        assert n_threads() == {1}
        with one_thread():
            assert n_threads() == {1}
        assert n_threads() == {1}
    assert n_threads() == {2}


def test_an_error_restores_the_number_too():
    for context in (one_thread(), threads_for(3)):
        with pytest.raises(ZeroDivisionError), context:
            1 / 0  # noqa: B018
        assert n_threads() == {2}
    with one_thread():
        with pytest.raises(ZeroDivisionError), threads_for(LARGE):
            1 / 0  # noqa: B018
        assert n_threads() == {1}


def test_only_what_is_large_has_all_threads_again():
    with one_thread():
        with threads_for(LARGE - 1):
            assert n_threads() == {1}
        with threads_for(LARGE):
            assert n_threads() == {2}
        assert n_threads() == {1}
    with threads_for(LARGE):
        assert n_threads() == {2}


def test_there_are_never_more_threads_than_the_user_has_set():
    with threadpool_limits(1, user_api="blas"):
        with threads_for(LARGE):
            assert n_threads() == {1}
        with one_thread(), threads_for(LARGE):
            assert n_threads() == {1}
        assert n_threads() == {1}


OVERLAPPING = """
from threading import Barrier, Thread

from threadpoolctl import threadpool_info
import scipy.linalg

from forestall.threads import one_thread

barrier, seen = Barrier(2), []

def n_threads():
    return {x["num_threads"] for x in threadpool_info() if x["user_api"] == "blas"}

def first():
    with one_thread():
        barrier.wait()
        seen.append(n_threads())
        barrier.wait()
    barrier.wait()

def second():
    barrier.wait()
    with one_thread():
        barrier.wait()
        barrier.wait()

both = [Thread(target=work) for work in (first, second)]
for thread in both:
    thread.start()
for thread in both:
    thread.join()
assert seen == [{1}], seen
assert n_threads() == {2}, n_threads()
with one_thread():
    assert n_threads() == {1}, n_threads()
"""


def test_two_at_a_time_do_not_restore_what_the_other_has_set():
    # In a process of its own, where nobody holds the number already.
    env = os.environ | {"OPENBLAS_NUM_THREADS": "2"}
    subprocess.run([sys.executable, "-c", OVERLAPPING], check=True, env=env)


def noted(monkeypatch, place, name, seen):
    known = getattr(place, name)

    def noting(*args, **options):
        seen.setdefault(name, set()).update(n_threads())
        return known(*args, **options)

    monkeypatch.setattr(place, name, noting)


@pytest.mark.parametrize("large", [1, 1000])
def test_a_fit_takes_one_thread_but_for_large_factors(large, monkeypatch):
    seen = {}
    monkeypatch.setattr("forestall.threads.LARGE", large)
    noted(monkeypatch, ridge, "dpotrf", seen)
    noted(monkeypatch, Gaussian, "triangle", seen)
    noted(monkeypatch, ridge, "cho_solve", seen)
    problem, history = WORLDS["lending"]
    NestedRehearsal().fit(problem, history(200))
    factors = {2} if large == 1 else {1}
    assert seen == {"dpotrf": factors, "triangle": {1}, "cho_solve": {1}}
    assert n_threads() == {2}


def test_a_fit_that_fails_leaves_the_number_alone(monkeypatch):
    problem, history = WORLDS["lending"]
    monkeypatch.setattr(ridge, "dpotrf", lambda K, **_: (K, 1))
    with pytest.raises(ridge.FitError, match="Expected a kernel matrix"):
        NestedRehearsal().fit(problem, history(200))
    assert n_threads() == {2}


def test_decisions_take_one_thread(monkeypatch):
    problem, history = WORLDS["lending"]
    records, seen = history(200), {}
    policy = NestedRehearsal().fit(problem, records)
    noted(monkeypatch, ridge, "solve_triangular", seen)
    policy.recommend({name: records[name][:5] for name in problem.context})
    assert seen == {"solve_triangular": {1}}


def test_the_default_takes_one_thread_too(monkeypatch):
    problem, history = WORLDS["lending"]
    records, seen = history(100), {}
    noted(monkeypatch, posterior, "cholesky", seen)
    noted(monkeypatch, Mechanism, "__call__", seen)
    policy = StagedRehearsal().fit(problem, records)
    policy.recommend({name: records[name][:2] for name in problem.context})
    assert seen == {"cholesky": {1}, "__call__": {1}}
    assert n_threads() == {2}


@pytest.mark.parametrize("name", WORLDS)
def test_answers_do_not_depend_on_the_number_of_threads(name, monkeypatch):
    monkeypatch.setattr("forestall.threads.LARGE", 1)
    problem, history = WORLDS[name]
    records = history(400)
    contexts = {name: records[name][:20] for name in problem.context}
    told = []
    for n in (1, 2):
        with threadpool_limits(n, user_api="blas"):
            told.append(NestedRehearsal().fit(problem, records).recommend(contexts))
    for field in ("actions", "probability", "lower", "upper", "no_action"):
        one, two = (getattr(each, field) for each in told)
        np.testing.assert_allclose(one, two, atol=1e-6, err_msg=field)
