import copy
import dataclasses
import pickle
import subprocess
import sys

import networkx as nx
import numpy as np
import pandas as pd
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from forestall import (
    GraphError,
    PlanError,
    Polytope,
    Problem,
    RegionError,
    RehearsalGraph,
    SpecError,
)
from forestall.errors import by_nearness, nearest
from forestall.files import read_toml
from forestall.observations import Observations
from worlds import DOSING, LENDING

FIELDS = LENDING.to_dict()
GRAPH = """digraph {
  score -> rate; debt -> rate; stability -> rate; stability -> repaid;
  stability -> roi; rate -> repaid; rate -> roi; debt -> repaid }"""


def changed(**fields):
    return Problem.from_dict(FIELDS | fields)


@pytest.mark.parametrize(
    "problem",
    [
        LENDING,
        DOSING,
        changed(categorical=["score"], missing="drop"),
        changed(graph=GRAPH),
        changed(graph=[GRAPH, GRAPH]),
        changed(desired=(np.array([[-1.0, 0.0], [0.0, -2.0]]), np.array([-0.6, -0.6]))),
        changed(desired=["repaid > 0.6", "0.1*repaid + `roi` <= 2"]),
    ],
    ids=str,
)
def test_a_problem_survives_its_file(problem, tmp_path):
    path = problem.to_file(tmp_path / "problem.toml")
    again = Problem.from_file(path)
    assert again == problem
    assert hash(again) == hash(problem)
    assert str(again) == str(problem)
    y = np.random.default_rng(0).normal(size=(200, len(problem.outcomes)))
    assert np.array_equal(again.region.contains(y), problem.region.contains(y))


def test_problems_differ_by_any_field():
    assert LENDING != changed(missing="drop")
    assert LENDING != changed(actions={"rate": (0.0, 0.9)})
    assert LENDING != "a problem"


def test_a_problem_file_is_ten_lines_of_toml(tmp_path):
    path = tmp_path / "problem.toml"
    path.write_text(
        """
context = ["score", "debt"]
covariates = ["stability"]
outcomes = ["repaid", "roi"]
desired = ["repaid >= 0.6", "roi >= 0.3"]
order = [["score", "debt"], "stability", "rate", ["repaid", "roi"]]

[actions]
rate = [0, 1]
"""
    )
    assert Problem.from_file(path) == LENDING


def test_a_problem_prints_as_a_question():
    assert str(LENDING).splitlines() == [
        "Choose      rate in [0, 1]",
        "so that     repaid >= 0.6 and roi >= 0.3",
        "given       score, debt",
        "covariates  stability",
        "order       {score, debt} < stability < rate < {repaid, roi}",
    ]
    assert "8 directed edges" in str(changed(graph=GRAPH))


def test_its_repr_can_be_read_back():
    assert eval(repr(LENDING)) == LENDING


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"context": "score"}, r"Write \['score'\] for a single column"),
        ({"context": []}, "at least one variable in 'context'; got none"),
        ({"actions": {}}, "at least one variable in 'actions'"),
        ({"outcomes": []}, "at least one variable in 'outcomes'"),
        ({"context": ["score", 3]}, "names as text in 'context'; got 3"),
        ({"actions": ["rate"]}, "mapping from name to feasible interval"),
        ({"actions": {"rate": 1.0}}, r"interval \(lowest, highest\) .*'rate'; got 1.0"),
        ({"actions": {"rate": (0, 1, 2)}}, "'rate'; got"),
        ({"actions": {"rate": "01"}}, "'rate'; got '01'. Give two numbers"),
        ({"actions": {"rate": ("0", "1")}}, r"'rate'; got \('0', '1'\)"),
        ({"actions": {"rate": (False, True)}}, r"'rate'; got \(False, True\)"),
        ({"actions": {"rate": np.array([False, True])}}, "'rate'; got array"),
        ({"actions": {"rate": {0, 1}}}, r"'rate'; got \{0, 1\}"),
        (
            {"actions": {"rate": (-1e308, 1e308)}},
            r"within 1e\+100 for the action 'rate'; got \(-1e\+308, 1e\+308\)",
        ),
        ({"actions": {"rate": (0, 10**400)}}, r"'rate'; got \(0, inf\)"),
        (
            {"context": {"score", "debt"}},
            r"'context'; got a set, .* Write a list: \['debt', 'score'\]",
        ),
        ({"outcomes": frozenset(["roi"])}, r"Write a list: \['roi'\]"),
        ({"context": {"score": 1}}, r"'context'; got dict, \{'score': 1\}. List them"),
        ({"context": pd.DataFrame({"score": [1]})}, r"got DataFrame, shape \(1, 1\)"),
        ({"context": pd.Index([1, 2])}, "names as text in 'context'; got 1"),
        ({"order": [[], *FIELDS["order"]]}, r"got the empty \[\]. Remove it"),
        ({"order": [{"score", "debt"}, "rate"]}, "'order'; got a set"),
        ({"actions": {"rate": ("low", "high")}}, "'rate'; got"),
        ({"actions": {"rate": (1.0, 1.0)}}, r"'rate'; got \(1, 1\), which is empty"),
        ({"actions": {"rate": (2.0, 1.0)}}, r"got \(2, 1\), which is empty"),
        (
            {"actions": {"rate": (0.0, float("inf"))}},
            r"'rate'; got \(0, inf\)",
        ),
        ({"actions": {"rate": (float("nan"), 1.0)}}, "finite feasible interval"),
        ({"covariates": ["score"]}, "got 'score' in context and covariates"),
        ({"context": ["score", "score"]}, "got 'score' in context twice"),
        ({"missing": "ignore"}, "missing='error' or missing='drop'; got 'ignore'"),
        ({"categorical": ["rate"]}, "got the action 'rate'"),
        ({"categorical": ["roi"]}, "got the outcome 'roi'"),
        ({"categorical": ["scor"]}, "got 'scor'. Did you mean 'score'"),
        ({"order": ["score"]}, "missing: debt, stability, rate, repaid, roi"),
        ({"order": "score"}, "order as a list of names"),
        ({"order": [*FIELDS["order"], "rates"]}, "'rates', which has no role. Did you"),
        ({"order": [*FIELDS["order"], "rate"]}, "'rate' once in order; got it 2 times"),
        (
            {"order": ["stability", "rate", ["score", "debt"], ["repaid", "roi"]]},
            "got 'score' not before 'rate'",
        ),
        (
            {"order": [["score", "debt"], "stability", "roi", "rate", "repaid"]},
            "got 'roi' not after 'rate', which then cannot influence it",
        ),
        ({"order": None}, "because there are covariates .stability.; got neither"),
        ({"desired": "roi >= 1"}, r"Write \['roi >= 1'\]"),
        ({"desired": 3}, "list of constraints or a pair of arrays"),
        ({"graph": "digraph { score -> rate }"}, "'debt' is none"),
    ],
)
def test_a_problem_that_makes_no_sense_is_refused(fields, message):
    with pytest.raises(SpecError, match=message):
        changed(**fields)


@pytest.mark.parametrize(
    ("desired", "message"),
    [
        (["roi >= 2", "roi <= 1"], "exclude each other: 'roi >= 2' and 'roi <= 1'"),
        (["roi * repaid >= 1"], "linear"),
        (["roy >= 1"], "Did you mean 'roi'"),
        (["rate >= 1"], "'rate'"),
        ([], "constraint"),
    ],
)
def test_a_region_that_makes_no_sense_is_refused(desired, message):
    with pytest.raises(RegionError, match=message):
        changed(desired=desired)


@pytest.mark.parametrize("make", [pd.Index, np.array, pd.Series, pl.Series, tuple])
def test_names_may_come_as_an_array_or_an_index(make):
    problem = changed(context=make(["score", "debt"]), outcomes=make(["repaid", "roi"]))
    assert problem == LENDING
    assert [type(name) for name in problem.context] == [str, str]


@given(
    b=st.lists(st.integers(-3, 3), min_size=2, max_size=2),
    M=st.lists(st.integers(-3, 3), min_size=4, max_size=4),
    y=st.lists(st.integers(-9, 9), min_size=2, max_size=2),
)
def test_a_region_is_taken_by_the_names_of_its_columns(b, M, y):
    rows = np.reshape(M, (2, 2)) * 0.1 + [[0.01, 0.01], [0.01, 0.01]]
    region = Polytope.from_arrays(rows, b, ["roi", "repaid"])
    taken = region.over(["repaid", "roi"])
    assert taken.texts == region.texts
    assert taken.names == ("repaid", "roi")
    at = np.array([y], dtype=float)
    assert taken.contains(at[:, ::-1]) == region.contains(at)
    np.testing.assert_allclose(taken.slack(at[:, ::-1]), region.slack(at), atol=1e-12)


def test_a_region_in_another_order_keeps_its_texts():
    region = Polytope.parse(["roi >= 0.3", "0.1*repaid + roi < 2"], ["roi", "repaid"])
    problem = changed(desired=region)
    assert problem.region.texts == region.texts
    assert problem.region.contains(np.array([[0.0, 0.3], [0.3, 0.0]])).tolist() == [
        True,
        False,
    ]
    assert Problem.from_dict(problem.to_dict()) == problem


def test_generated_names_of_a_region_are_taken_by_position():
    region = Polytope.from_arrays([[1.0, 2.0], [0.0, -1.0]], [3.0, -0.3])
    assert changed(desired=region).region.texts == (
        "repaid + 2*roi <= 3",
        "roi >= 0.3",
    )


def test_texts_that_say_something_else_than_the_rows_are_written_anew():
    raw = Polytope.parse(["repaid >= 0.6", "roi >= 1"], ["repaid", "roi"])
    region = raw.standardised(np.array([0.0, 1.0]), np.array([1.0, 2.0]))
    problem = changed(desired=region)
    assert problem.region.texts == ("repaid >= 0.6", "roi >= 0")


@pytest.mark.parametrize(
    "region",
    [
        Polytope.parse(["rate >= 1"], ["repaid", "rate"]),
        Polytope.parse(["roi >= 1"], ["roi"]),
        Polytope.from_arrays([[1.0]], [1.0]),
    ],
    ids=str,
)
def test_a_region_over_other_outcomes_is_refused(region):
    with pytest.raises(SpecError, match="outcomes 'repaid' and 'roi'; got one over"):
        changed(desired=region)


def test_the_feasible_intervals_cannot_be_changed():
    problem = changed()
    with pytest.raises(AttributeError):
        problem.actions.update(rate=(0.0, 9.0))
    with pytest.raises(TypeError):
        problem.actions["rate"] = (0.0, 9.0)
    assert problem.actions == {"rate": (0.0, 1.0)} == dict(problem.actions)


@pytest.mark.parametrize(
    "again",
    [
        copy.copy,
        copy.deepcopy,
        dataclasses.replace,
        lambda p: pickle.loads(pickle.dumps(p)),
        lambda p: Problem(**dataclasses.asdict(p)),
    ],
)
def test_a_copied_problem_is_the_same_problem(again):
    assert again(LENDING) == LENDING
    assert again(LENDING).actions == LENDING.actions


@pytest.mark.parametrize(
    ("problem", "history", "remedy"),
    [
        (FIELDS, {}, r"got dict .* with Problem.from_dict"),
        ({}, LENDING, "got dict .* Swap the two: the problem comes first"),
        ("problem.toml", {}, r"got str .* with Problem.from_file"),
        (None, {}, r"got NoneType .* with Problem\(context="),
    ],
)
def test_what_is_no_problem_is_refused_before_the_history(problem, history, remedy):
    with pytest.raises(
        SpecError, match=f"Expected a Problem, then a history; {remedy}"
    ):
        Observations.read(problem, history)


def test_fitting_to_what_is_no_problem_says_so():
    code = "import forestall; forestall.fit({'actions': {}}, {})"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, check=False)
    assert b"SpecError: Expected a Problem, then a history; got dict" in run.stderr


def test_covariates_need_no_order_when_there_is_a_graph():
    problem = changed(order=None, graph=GRAPH)
    assert problem.identification().nested.valid is True
    assert problem.tiers[0] == ("debt", "score", "stability")


def test_without_covariates_neither_order_nor_graph_is_needed():
    assert DOSING.tiers == (("age",), ("dose", "time"), ("effect",))
    assert DOSING.identification().adjusted == ()


def test_a_graph_that_contradicts_the_order_is_refused():
    text = GRAPH.replace("score -> rate", "rate -> stability")
    with pytest.raises((SpecError, GraphError), match="stability"):
        changed(graph=text)


def test_graphs_come_as_text_networkx_or_rehearsal_graph():
    ours = RehearsalGraph.read(GRAPH)
    sources = [GRAPH, nx.DiGraph(list(ours.edges)), ours]
    assert {changed(graph=source).graph for source in sources} == {ours}


def test_a_node_without_a_role_is_a_hidden_variable():
    text = GRAPH[:-1] + "; market -> rate; market -> roi }"
    verdict = changed(graph=text).identification()
    assert verdict.nested.valid is False
    assert "market" in verdict.nested.open_path


def test_a_graph_for_each_time_step_is_chosen_by_its_step():
    later = GRAPH.replace("stability -> rate;", "")
    problem = changed(graph=[GRAPH, later])
    assert "one for each of 2 time steps" in str(problem)
    assert problem.at(0).graph == RehearsalGraph.read(GRAPH)
    assert problem.at(1).graph == RehearsalGraph.read(later)
    with pytest.raises(SpecError, match=r"problem.at\(step\), step 0 to 1"):
        problem.identification()
    for step in (2, -1, "0", 0.0, None, True):
        with pytest.raises(SpecError, match=f"time step from 0 to 1; got {step!r}"):
            problem.at(step)
    assert problem.at(np.int64(1)) == problem.at(1)


def test_a_list_of_one_graph_is_one_graph_for_all_time():
    assert changed(graph=[GRAPH]) == changed(graph=GRAPH)
    assert changed(graph=[GRAPH]).identification().nested.valid is True


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("context = [", "Expected TOML"),
        ('contexts = ["a"]', "got 'contexts'. Did you mean 'context'"),
        ('context = ["a"]', "missing: actions, outcomes, desired"),
    ],
)
def test_a_file_that_is_no_problem_says_why(text, message, tmp_path):
    path = tmp_path / "problem.toml"
    path.write_text(text)
    with pytest.raises(SpecError, match=message):
        Problem.from_file(path)


def test_a_missing_or_binary_file_says_why(tmp_path):
    with pytest.raises(SpecError, match="could not read"):
        Problem.from_file(tmp_path / "none.toml")
    (tmp_path / "binary.toml").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(SpecError, match="could not read"):
        Problem.from_file(tmp_path / "binary.toml")


def test_toml_is_read_with_the_words_of_its_reader(tmp_path):
    path = tmp_path / "plan.toml"
    path.write_text("a = 1")
    assert read_toml(path, "plan", PlanError) == {"a": 1}
    path.write_text("a = [")
    with pytest.raises(PlanError, match=r"Expected TOML in .*plan\.toml"):
        read_toml(path, "plan", PlanError)
    with pytest.raises(PlanError, match="a plan file in TOML; could not read"):
        read_toml(tmp_path / "none.toml", "plan", PlanError)


@pytest.mark.parametrize(
    ("name", "known", "suggested"),
    [
        ("Nut", ["Light", "Nutrients_PC1"], "Nutrients_PC1"),
        ("Nutrients_PC1", ["Light", "nut"], "nut"),
        ("x", ["y", " x "], " x "),
        (" X ", ["y", "x"], "x"),
        ("credit_scor", ["credit", "credit_score"], "credit_score"),
    ],
)
def test_a_name_cut_short_or_with_spaces_is_recognised(name, known, suggested):
    assert nearest(name, known) == f" Did you mean {suggested!r}?"
    assert by_nearness(name, known)[0] == suggested


def test_one_letter_in_common_suggests_nothing():
    assert nearest("y", ["year"]) == nearest("x", []) == ""


def test_a_failed_write_leaves_the_old_file_whole(tmp_path, monkeypatch):
    path = LENDING.to_file(tmp_path / "problem.toml")
    before = path.read_text()
    monkeypatch.setattr("os.replace", lambda *_: (_ for _ in ()).throw(OSError("full")))
    with pytest.raises(OSError, match="full"):
        DOSING.to_file(path)
    assert path.read_text() == before
    assert [p.name for p in tmp_path.iterdir()] == ["problem.toml"]
