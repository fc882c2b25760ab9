"""What a person with a table, and no knowledge of methods, reads on the screen."""

import csv
import json
import math
import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

import forestall
from forestall import Problem, cli
from forestall.cells import LARGEST, from_objects
from forestall.encoding import Numeric
from forestall.report.words import grounds
from forestall.serve.static import page_folder
from worlds import DOSING, LENDING, dosing, lending

N = 60
ROLES = {"score": "context", "stability": "covariate", "rate": "action", "roi": "y"}
# Words of those who know how it is computed.
INSIDERS = re.compile(
    r"formula|adjusted for|integrated out|low rank|identification|mechanism|kernel",
    re.IGNORECASE,
)


def invoke(*args):
    return CliRunner().invoke(cli.app, [str(arg) for arg in args])


def write_csv(path, columns, delimiter=","):
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, delimiter=delimiter)
        writer.writerow(columns)
        writer.writerows(zip(*columns.values(), strict=True))
    return path


def with_commas(values):
    return [f"{value:.3f}".replace(".", ",") for value in values]


@pytest.fixture
def problem(tmp_path):
    return LENDING.to_file(tmp_path / "problem.toml")


@pytest.fixture
def history(tmp_path):
    return write_csv(tmp_path / "history.csv", lending(N))


@pytest.mark.parametrize("kind", ["nystrom", "fourier"])
@pytest.mark.parametrize("size", [20, N, N + 2, 500])
def test_an_approximation_larger_than_the_history_is_told(
    problem, history, tmp_path, kind, size
):
    out = tmp_path / "p.forestall"
    result = invoke(
        *("fit", problem, history, "-o", out, "--method", "nested", "--json"),
        *("--approximation", f"{kind}:{size}"),
    )
    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout)["records"] == N
    assert ("Warning: --approximation asks for" in result.stderr) == (size > N)
    if size > N:
        assert f"asks for {size} " in result.stderr
        assert f"there are {N}" in result.stderr


def test_processes_share_what_the_default_learns(problem, history, tmp_path):
    out = tmp_path / "p.forestall"
    result = invoke("fit", problem, history, "-o", out, "--jobs", 2, "--json")
    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout)["records"] == N


def test_processes_that_could_share_nothing_are_refused(problem, history, tmp_path):
    out = tmp_path / "p.forestall"
    result = invoke(
        *("fit", problem, history, "-o", out, "--method", "nested", "--jobs", 2)
    )
    assert result.exit_code == 2
    assert (
        "Expected --jobs with --method staged only; got it with 'nested'"
        in " ".join(result.stderr.split())
    )
    assert not out.exists()


def test_at_more_than_full_rank_all_records_are_used_as_the_warning_says(
    problem, history, tmp_path
):
    told = []
    for size in (N, 99_999):
        out = tmp_path / f"{size}.forestall"
        command = "fit", problem, history, "-o", out, "--method", "nested"
        result = invoke(*command, "--approximation", f"nystrom:{size}")
        told.append(forestall.load(out).recommend({"score": [0.5], "debt": [0.5]}))
    assert "asks for 99,999 records" in result.stderr
    assert f"all {N} were used" in result.stderr
    np.testing.assert_array_equal(told[0].actions, told[1].actions)
    np.testing.assert_array_equal(told[0].probability, told[1].probability)


VALUES = st.one_of(
    st.floats(),
    st.floats(min_value=1e100, max_value=1e308).map(lambda v: f"{v!r}"),
    st.integers(),
    st.sampled_from([None, "", "0,5", "old", "1e400", 10**400]),
)


@given(value=VALUES, mean=st.floats(-9, 9), scale=st.sampled_from([1.0, 1e-30, 1e30]))
def test_what_is_said_of_a_number_that_cannot_be_read_is_true(value, mean, scale):
    column = Numeric("age", mean, scale)
    cells = from_objects("age", [value])
    if not column.unreadable(cells)[0]:
        return
    text, (read,) = column.fault(value), cells.readings()
    assert "'age'" in text
    assert ("too large" in text) == (LARGEST < abs(read) < math.inf)
    assert ("too far" in text) == (abs(read) <= LARGEST)
    assert ("finite number" in text) == (not math.isfinite(read))
    assert ("with a point: 0.5." in text) == (value == "0,5")


@pytest.mark.parametrize("name", ["score", "stability", "rate", "roi"])
@pytest.mark.parametrize("command", ["check", "fit"])
def test_a_number_too_large_is_told_with_column_and_row(
    problem, tmp_path, command, name
):
    columns = lending(N)
    columns[name][7] = -1e200
    result = invoke(command, problem, write_csv(tmp_path / "h.csv", columns))
    assert result.exit_code == 2
    expected = f"column '{name}'; got -1e+200 in row 7, which is too large to be worked"
    assert expected in " ".join(result.stderr.split())


def test_a_context_too_large_costs_its_row_and_says_why(problem, history, tmp_path):
    policy = tmp_path / "p.forestall"
    invoke("fit", problem, history, "-o", policy, "--method", "nested")
    given = {"score": [0.5, 1e200, "0,5"], "debt": [0.5, 0.5, 0.5]}
    contexts = write_csv(tmp_path / "contexts.csv", given)
    result = invoke("recommend", policy, contexts)
    _, first, second, third = csv.reader(result.stdout.splitlines())
    assert first[1] != ""
    assert "'score'; got '1e+200', which is too large to be worked" in second[-1]
    assert third[-1].endswith("got '0,5'. Write decimals with a point: 0.5.")


@pytest.mark.parametrize("name", ROLES)
@pytest.mark.parametrize("command", ["check", "fit"])
def test_decimal_commas_are_recognised_in_every_role(problem, tmp_path, command, name):
    columns = lending(N)
    columns[name] = with_commas(columns[name])
    result = invoke(command, problem, write_csv(tmp_path / "h.csv", columns))
    assert result.exit_code == 2
    text = " ".join(result.stderr.split())
    first = columns[name][0]
    assert (
        f"Expected numbers with decimal points in the column '{name}'; got text with a "
        f"comma, first '{first}' in row 0." in text
    )
    assert "pandas.read_csv(path, decimal=',')" in text
    may_be_categories = ROLES[name] in ("context", "covariate")
    assert (f"categorical=['{name}']" in text) == may_be_categories


def test_codes_with_commas_may_be_declared_as_categories(tmp_path):
    history = dosing(N)
    history["age"] = np.where(history["age"] < 50, "3,1", "3,2")
    words = DOSING.to_dict() | {"categorical": ["age"]}
    problem = Problem.from_dict(words).to_file(tmp_path / "problem.toml")
    result = invoke("check", problem, write_csv(tmp_path / "h.csv", history))
    assert result.exit_code == 0, result.output
    assert "3,1 (" in result.stdout


@pytest.mark.parametrize("command", ["check", "fit"])
def test_a_table_with_semicolons_and_decimal_commas_is_told_both(
    problem, tmp_path, command
):
    columns = {name: with_commas(values) for name, values in lending(N).items()}
    table = write_csv(tmp_path / "h.csv", columns, ";")
    result = invoke(command, problem, table)
    assert result.exit_code == 2
    text = " ".join(result.stderr.split())
    assert "looks like several, separated by ';'" in text
    assert "pandas.read_csv(path, sep=';', decimal=',')" in text


def test_no_screen_takes_the_words_of_insiders(problem, history, tmp_path):
    commands = [
        ("check", problem, history),
        ("fit", problem, history, "-o", tmp_path / "p.forestall", "--method=nested"),
        *((name, "--help") for name in ("init", "check", "fit", "recommend", "serve")),
    ]
    for command in commands:
        result = invoke(*command)
        assert result.exit_code == 0, result.output
        assert INSIDERS.search(result.output) is None, command


def test_the_page_takes_no_words_of_insiders():
    text = re.sub(
        r"<[^>]*>", " ", (page_folder() / "index.html").read_text(encoding="utf-8")
    )
    assert "Recommendation" in text
    assert INSIDERS.search(text) is None


GRAPHS = {
    "valid": ("digraph { {x u} -> a -> y; u -> y }", True),
    "biased": ("digraph { x -> a -> y; u -> y; h -> a; h -> y }", False),
    "assumed": (None, None),
}


@pytest.mark.parametrize(("graph", "valid"), GRAPHS.values(), ids=GRAPHS)
def test_what_it_rests_on_is_said_with_every_name_and_the_right_verdict(graph, valid):
    problem = Problem(
        context=["x"],
        covariates=["u"],
        actions={"a": (0, 1)},
        outcomes=["y"],
        desired=["y >= 0"],
        graph=graph,
        order=None if graph else ["x", "u", "a", "y"],
    )
    found = problem.identification()
    for criterion in (None, found.sequential, found.nested):
        lines = dict(grounds(found, criterion))
        told = " ".join(f"{name}: {text}" for name, text in lines.items())
        verdict = {True: "By the graph, yes.", False: "No: biased.", None: "Assumed;"}
        assert verdict[valid] in told
        assert found.assumes in told
        assert INSIDERS.search(told) is None
        for name in (*found.adjusted, *found.staged, *found.integrated_out):
            assert re.search(rf"\b{name}\b", told)


def test_where_methods_differ_each_is_named_with_its_verdict():
    problem = Problem(
        context=["x"],
        covariates=["u"],
        actions={"a": (0, 1), "b": (0, 1)},
        outcomes=["y"],
        desired=["y >= 0"],
        graph="digraph { x -> a -> u -> b -> y; u -> y; a -> y; h -> u; h -> y }",
    )
    found = problem.identification()
    assert found.sequential.valid is not found.nested.valid
    names = [name for name, _ in grounds(found) if name.startswith("Cause")]
    assert names == [
        "Cause and effect by the default method, staged",
        "Cause and effect by the method nested",
    ]
