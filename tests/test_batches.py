"""Many contexts in one call: in blocks, in processes, and with a bar."""

import io

import numpy as np
import pytest
from rich.console import Console

from forestall import NestedRehearsal, SpecError, StagedRehearsal, method
from forestall.baselines import NoAction
from forestall.search import Search
from worlds import WORLDS, contexts_of

QUICK = Search(n_screened=16, n_kept=4, n_starts=1, n_steps=2, n_draws=4, n_paths=4)
METHODS = {
    "nested": NestedRehearsal(),
    "staged": StagedRehearsal(n_draws=4, n_paths=8, search=QUICK),
    "no action": NoAction(),
}
ARRAYS = ("actions", "probability", "lower", "upper", "no_action", "support")


@pytest.fixture(scope="module", params=METHODS)
def policy(request):
    problem, history = WORLDS["lending"]
    return METHODS[request.param].fit(problem, history(40))


@pytest.fixture(scope="module")
def nested():
    problem, history = WORLDS["lending"]
    return NestedRehearsal().fit(problem, history(60))


@pytest.fixture
def contexts():
    problem, history = WORLDS["lending"]
    return contexts_of(problem, history(7, seed=1), slice(None))


@pytest.fixture
def small_blocks(monkeypatch):
    monkeypatch.setattr(method, "FEWEST", 3)
    monkeypatch.setattr(method, "MOST", 3)


def assert_same(told, other):
    for name in ARRAYS:
        np.testing.assert_allclose(
            getattr(told, name), getattr(other, name), atol=1e-9, err_msg=name
        )
    assert np.array_equal(told.extrapolates, other.extrapolates)
    assert told.verdict == other.verdict
    assert told.reason == other.reason


def test_blocks_change_nothing(policy, contexts, monkeypatch):
    whole = policy.recommend(contexts)
    given = policy.evaluate(contexts, whole.actions)
    monkeypatch.setattr(method, "FEWEST", 3)
    monkeypatch.setattr(method, "MOST", 3)
    assert policy.block == 3
    assert_same(policy.recommend(contexts), whole)
    assert_same(policy.evaluate(contexts, whole.actions), given)


def test_no_contexts_are_no_decisions(policy):
    empty = {"score": np.empty(0), "debt": np.empty(0)}
    assert len(policy.recommend(empty)) == 0


def test_blocks_are_as_large_as_memory_allows(nested, monkeypatch):
    assert nested.block == method.MOST
    for budget in (10**6, 10**7):
        monkeypatch.setattr(method, "BUDGET", budget)
        assert 8 * nested.width * nested.block <= max(
            budget, 8 * nested.width * method.FEWEST
        )
    monkeypatch.setattr(method, "BUDGET", 1)
    assert nested.block == method.FEWEST


@pytest.mark.usefixtures("small_blocks")
def test_processes_change_nothing(nested, contexts):
    alone = nested.recommend(contexts)
    assert_same(nested.recommend(contexts, jobs=2), alone)
    given = nested.evaluate(contexts, alone.actions, jobs=2)
    assert_same(given, nested.evaluate(contexts, alone.actions))


@pytest.mark.parametrize("jobs", [0, -1, True])
def test_jobs_are_checked(nested, contexts, jobs):
    with pytest.raises(SpecError, match="Expected jobs above zero and whole; got"):
        nested.recommend(contexts, jobs=jobs)


@pytest.mark.usefixtures("small_blocks")
def test_a_long_batch_shows_a_bar_on_a_terminal(nested, contexts, monkeypatch):
    screen = io.StringIO()
    terminal = Console(file=screen, force_terminal=True)
    monkeypatch.setattr("rich.console.Console", lambda **_: terminal)
    nested.recommend(contexts)
    assert screen.getvalue() == ""
    monkeypatch.setattr(method, "PATIENCE", 0.0)
    nested.recommend(contexts)
    assert "deciding" in screen.getvalue()
    assert "/7" in screen.getvalue()


@pytest.mark.usefixtures("small_blocks")
def test_elsewhere_a_long_batch_shows_nothing(nested, contexts, monkeypatch, capsys):
    monkeypatch.setattr(method, "PATIENCE", 0.0)
    nested.recommend(contexts)
    assert capsys.readouterr() == ("", "")
