"""Proposing a problem file: options, a conversation, and what the file says."""

import os
import pty
import shlex
import subprocess
import sys
import tomllib

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyarrow import parquet
from typer.testing import CliRunner

from forestall import DataError, Problem, SpecError, cli
from forestall.check import check
from forestall.cli import starting
from forestall.init import (
    Draft,
    Records,
    read_desired,
    read_interval,
    read_names,
    read_order,
    rounded,
)
from forestall.problem_file import proposed, value
from stranger import COLUMNS, ROLES, write_history


def invoke(*args, **kwargs):
    return CliRunner().invoke(cli.app, [str(arg) for arg in args], **kwargs)


@pytest.fixture
def history(tmp_path):
    return write_history(tmp_path / "history.csv")


@pytest.fixture
def out(tmp_path):
    return tmp_path / "problem.toml"


def test_the_options_make_a_file_that_is_read_and_passes_the_check(history, out):
    result = invoke("init", history, *ROLES, "-o", out)
    assert result.exit_code == 0, result.output
    assert f"Written: {out}" in result.stdout
    assert f"Next: forestall check {out} {history}" in result.stdout
    assert "Left out: id, visits" in result.stderr
    problem = Problem.from_file(out)
    assert problem.context == ("age", "sector")
    assert dict(problem.actions) == {"rate": (0.0, 1.0)}
    assert problem.order == (("age", "sector"), ("stability",), ("rate",), ("roi",))
    assert problem.identification().adjusted == ("stability",)
    assert invoke("check", out, history).exit_code == 0


def test_names_may_be_repeated_or_written_with_commas(history, tmp_path):
    rest = ["--action=rate", "--outcome=roi", "--desired=roi >= 0.4"]
    one, other = tmp_path / "one.toml", tmp_path / "other.toml"
    invoke("init", history, "--context=age, sector", *rest, "-o", one)
    invoke("init", history, "--context=age", "--context=sector", *rest, "-o", other)
    assert Problem.from_file(one) == Problem.from_file(other)


def test_an_interval_is_proposed_where_98_percent_of_the_records_are(history, out):
    roles = [role for role in ROLES if "interval" not in role]
    assert invoke("init", history, *roles, "-o", out).exit_code == 0
    low, high = Problem.from_file(out).actions["rate"]
    rates = Records.read(history).table.cells("rate").numbers()
    assert (low, high) == pytest.approx(np.quantile(rates, [0.01, 0.99]), abs=0.005)
    assert "98 % of the records lie within" in out.read_text()


def test_every_part_of_the_file_is_explained(history, out):
    invoke("init", history, *ROLES, "-o", out)
    text = out.read_text()
    for part in (
        "context = ",
        "covariates = ",
        "outcomes = ",
        "desired = ",
        "order = ",
    ):
        line = text.split(part)[0].rstrip().splitlines()[-1]
        assert line.startswith("# "), part
    assert 'Columns without a role, left out: "id", "visits".' in text
    assert '"roi": 10 % of the records are below' in text
    assert max(map(len, text.splitlines())) <= 80


def test_whole_numbers_of_few_values_are_suspected_but_not_declared(history, out):
    roles = ["--context=age,visits", *(r for r in ROLES if "context" not in r)]
    result = invoke("init", history, *roles, "-o", out)
    assert "Taken as amounts: visits" in result.stderr
    assert '# categorical = ["visits"]' in out.read_text()
    assert Problem.from_file(out).categorical == ()
    invoke("init", history, *roles, "--categorical=visits", "-o", out, "--force")
    assert Problem.from_file(out).categorical == ("visits",)


def test_records_with_gaps_are_dropped_and_the_file_says_so(history, out):
    lines = history.read_text().splitlines()
    lines[3] = lines[3].replace(lines[3].split(",")[1], "", 1)
    history.write_text("\n".join(lines) + "\n")
    assert invoke("init", history, *ROLES, "-o", out).exit_code == 0
    assert Problem.from_file(out).missing == "drop"
    assert 'Records with gaps ("age") are left out' in out.read_text()
    assert invoke("check", out, history).exit_code == 0


def test_parquet_is_read_too(tmp_path, out):
    rng = np.random.default_rng(0)
    table = pa.table({name: rng.normal(size=50) for name in "xay"})
    parquet.write_table(table, tmp_path / "history.parquet")
    roles = ["--context=x", "--action=a", "--outcome=y", "--desired=y >= 0"]
    result = invoke("init", tmp_path / "history.parquet", *roles, "-o", out, "--json")
    assert result.exit_code == 0, result.output
    assert Problem.from_file(out).outcomes == ("y",)
    assert '"context": [' in result.stdout


def test_without_roles_and_terminal_the_columns_are_listed(history, out):
    result = invoke("init", history, "-o", out)
    assert result.exit_code == 2
    assert "missing: --context, --action, --outcome, --desired." in result.stderr
    for name in COLUMNS:
        assert repr(name) in result.stderr
    assert not out.exists()


def test_without_a_region_the_spread_of_the_outcome_is_told(history, out):
    roles = [role for role in ROLES if "desired" not in role]
    result = invoke("init", history, *roles, "-o", out)
    assert result.exit_code == 2
    assert "missing: --desired. Of 'roi' 10 % of the records are below" in result.stderr


def test_the_order_of_covariates_is_never_guessed(history, out):
    roles = [role for role in ROLES if "order" not in role]
    result = invoke("init", history, *roles, "-o", out)
    assert result.exit_code == 2
    assert "not placed: stability, rate." in result.stderr
    assert "--order 'stability < rate'" in result.stderr
    assert not out.exists()


def test_a_file_that_is_there_is_kept_unless_forced(history, out):
    out.write_text("mine")
    result = invoke("init", history, *ROLES, "-o", out)
    assert result.exit_code == 2
    assert "overwrite it with --force" in result.stderr
    assert out.read_text() == "mine"
    assert invoke("init", history, *ROLES, "-o", out, "--force").exit_code == 0
    assert Problem.from_file(out).outcomes == ("roi",)
    assert sorted(os.listdir(out.parent)) == ["history.csv", "problem.toml"]


@pytest.mark.parametrize(
    ("extra", "message"),
    [
        ("--context=agee", "Did you mean 'age'?"),
        (
            "--interval=rat=0..1",
            "Expected --interval for an action ('rate'); got 'rat'",
        ),
        ("--interval=rate=0-1", "NAME=LOWEST..HIGHEST"),
        ("--interval=rate=1..0", "lowest < highest"),
        ("--desired=roi = 0.4 and roi <= 0.2", "Expected"),
        ("--desired=age >= 3", "The outcomes are"),
        ("--desired=roi >= 99", "Expected at least one record with a desired outcome"),
        ("--context=rate", "Expected every variable in one role"),
        ("--categorical=roi", "Expected categories among context and covariates"),
        ("--order=rate < stabilty", "not placed: stability"),
    ],
)
def test_a_bad_option_is_a_message_and_nothing_is_written(history, out, extra, message):
    result = invoke("init", history, *ROLES, extra, "-o", out)
    assert result.exit_code == 2, result.output
    assert message in result.stderr
    assert not out.exists()


ASKED = "--context=x", "--action=a", "--outcome=y", "--desired=y >= 3"


@pytest.mark.parametrize("column", ["x", "a", "y"])
def test_decimal_commas_are_told_and_never_taken_for_categories(tmp_path, out, column):
    cells = {"x": "1.5", "a": "{0}.5", "y": "{1}.25"} | {column: '"{0},5"'}
    rows = (",".join(cells.values()).format(i % 3, i % 7) for i in range(200))
    history = tmp_path / "history.csv"
    history.write_text("\n".join(["x,a,y", *rows]))
    result = invoke("init", history, *ASKED, "-o", out)
    assert result.exit_code == 2, result.output
    expected = f"Expected numbers with decimal points in the column '{column}'; got "
    assert f"{expected}text such as '0,5'" in result.stderr
    assert not out.exists()


def test_codes_with_commas_may_be_declared_as_categories(tmp_path, out):
    rows = (f'"{i % 3},5",{i % 5},{i % 7}' for i in range(200))
    history = tmp_path / "history.csv"
    history.write_text("\n".join(["x,a,y", *rows]))
    result = invoke("init", history, *ASKED, "--categorical=x", "-o", out)
    assert result.exit_code == 0, result.output
    assert Problem.from_file(out).categorical == ("x",)


def test_dates_are_called_dates(tmp_path, out):
    rows = (f"{i},2024-01-{i % 28 + 1:02},{i % 7}" for i in range(200))
    history = tmp_path / "history.csv"
    history.write_text("\n".join(["x,a,y", *rows]))
    result = invoke("init", history, *ASKED, "-o", out)
    assert result.exit_code == 2
    assert "because it is an action; got dates or times." in result.stderr


def test_an_action_that_is_no_amount_is_asked_for_again(history, out, monkeypatch):
    monkeypatch.setattr(starting, "can_ask", lambda: True)
    roles = "--context=age", "--outcome=roi", "--desired=roi >= 0.4"
    answers = "sector\nrate\n\n\n"
    result = invoke("init", history, *roles, "-o", out, input=answers)
    assert result.exit_code == 0, result.output
    assert "Expected numbers in the column 'sector', because it is" in result.stderr
    assert tuple(Problem.from_file(out).actions) == ("rate",)


def test_what_comes_next_can_be_copied_to_a_shell(history, tmp_path):
    table, out = tmp_path / "my loans.csv", tmp_path / "my question.toml"
    table.write_bytes(history.read_bytes())
    result = invoke("init", table, *ROLES, "-o", out)
    assert result.exit_code == 0, result.output
    (line,) = (x for x in result.stdout.splitlines() if x.startswith("Next: "))
    asked = shlex.split(line.removeprefix("Next: "))
    assert asked == ["forestall", "check", str(out), str(table)]


def test_the_example_of_a_region_can_be_read(tmp_path, out, monkeypatch):
    monkeypatch.setattr(starting, "can_ask", lambda: True)
    rows = (f"{i},{i % 5},{i % 7}" for i in range(200))
    history = tmp_path / "history.csv"
    history.write_text("\n".join(["x,a,net profit", *rows]))
    roles = "--context=x", "--action=a", "--outcome=net profit", "--interval=a=0..4"
    result = invoke("init", history, *roles, "-o", out, input="\n`net profit` >= 1\n")
    assert "(e.g. `net profit` >= 1)" in result.stderr
    assert result.exit_code == 0, result.output


def test_an_action_that_hardly_varies_needs_an_interval(tmp_path, out):
    rows = ["x,a,y", *(f"{i},5,{i % 7}" for i in range(200)), "3,6,1"]
    history = tmp_path / "history.csv"
    history.write_text("\n".join(rows))
    roles = ["--context=x", "--action=a", "--outcome=y", "--desired=y >= 3"]
    result = invoke("init", history, *roles, "-o", out)
    assert result.exit_code == 2
    assert "--interval a=0..1" in result.stderr
    given = invoke("init", history, *roles, "--interval=a=4..6", "-o", out)
    assert given.exit_code == 0, given.output


ANSWERS = (
    "rate",
    "roi",
    "age, nonsense",
    "age, sector, visits",
    "stability",
    "perhaps",
    "before",
    "1..0.5..2",
    "",
    "roi",
    "roi >= 0.4",
    "y",
)


def test_a_conversation_asks_again_until_it_understands(history, out, monkeypatch):
    monkeypatch.setattr(starting, "can_ask", lambda: True)
    result = invoke("init", history, "-o", out, input="\n".join(ANSWERS) + "\n")
    assert result.exit_code == 0, result.output
    for said in (
        "Expected a column of the history for a role; got 'nonsense'",
        "Expected before or after; got 'perhaps'",
        "NAME=LOWEST..HIGHEST",
        "Expected a comparison",
        "10 % of the records are below",
    ):
        assert said in result.stderr
    problem = Problem.from_file(out)
    assert problem.context == ("age", "sector", "visits")
    assert problem.categorical == ("visits",)
    assert problem.identification().adjusted == ("stability",)


def test_the_order_of_several_actions_is_asked_for(history, out, monkeypatch):
    monkeypatch.setattr(starting, "can_ask", lambda: True)
    options = [
        "--context=age",
        "--action=rate,visits",
        "--outcome=roi",
        "--covariate=stability",
        "--desired=roi >= 0.4",
        "--interval=rate=0..1",
        "--interval=visits=0..4",
    ]
    answers = "before\nrate < stability < visits\n"
    result = invoke("init", history, *options, "-o", out, input=answers)
    assert result.exit_code == 0, result.output
    assert Problem.from_file(out).identification().staged == ("stability",)


def test_a_conversation_that_is_broken_off_writes_nothing(history, out, monkeypatch):
    monkeypatch.setattr(starting, "can_ask", lambda: True)
    result = invoke("init", history, "-o", out, input="rate\n")
    assert result.exit_code == 130
    assert "Interrupted." in result.stderr
    assert not out.exists()


def test_a_real_terminal_is_asked(history, out):
    master, slave = pty.openpty()
    command = [sys.executable, "-m", "forestall", "init", str(history), "-o", str(out)]
    given = ["--context=age", "--action=rate", "--outcome=roi"]
    with subprocess.Popen(
        [*command, *given], stdin=slave, stdout=slave, stderr=slave, close_fds=True
    ) as process:
        os.close(slave)
        os.write(master, b"\n\nroi >= 0.4\n")
        said = b""
        while chunk := _read(master):
            said += chunk
        assert process.wait(timeout=60) == 0, said
    os.close(master)
    assert b"Where may rate be set?" in said
    assert Problem.from_file(out).context == ("age",)


def _read(handle):
    try:
        return os.read(handle, 65536)
    except OSError:
        return b""


ENDS = st.floats(-1e12, 1e12).map(lambda v: v + 0.0)


@given(ENDS, ENDS)
def test_rounded_ends_stay_within_a_twentieth_of_the_distance(one, other):
    low, high = sorted((one, other))
    a, b = rounded(low, high)
    assert max(abs(a - low), abs(b - high)) <= 0.05 * (high - low) + 1e-300
    assert a < b or low == high


NAMES = st.text(min_size=1, max_size=8).filter(lambda s: s.strip())


@settings(max_examples=40)
@given(st.lists(NAMES, min_size=4, max_size=5, unique=True))
def test_whatever_columns_are_called_the_file_says_the_same_problem(names):
    x, u, a, y, *rest = names
    try:
        for name in names:
            name.encode("utf-8")
    except UnicodeEncodeError:
        return
    rng = np.random.default_rng(0)
    records = Records.read({name: rng.normal(size=30) for name in names})
    quoted = y.replace("`", "``")
    draft = Draft(
        context=(x,),
        covariates=(u,),
        actions=(a,),
        outcomes=(y,),
        desired=(f"`{quoted}` >= 0",),
        order=((u,), (a,)),
    )
    text = proposed(draft, records, "a\nb = 1")
    problem = Problem.from_dict(tomllib.loads(text))
    assert problem.variables == (x, u, a, y)
    assert set(rest) == set(records.summaries) - set(problem.variables)
    assert check(problem, records.table).records == 30


@given(st.text())
def test_a_value_survives_being_written(text):
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return
    assert tomllib.loads(f"of = {value([text])}")["of"] == [text]


def test_texts_are_read_as_people_write_them():
    assert read_names(["a,b", "c"], ["a,b", "c"]) == ("a,b", "c")
    assert read_interval("a=b=-1e3..2") == ("a=b", (-1000.0, 2.0))
    assert read_desired(["`this and that` >= 1 AND y <= 2"]) == (
        "`this and that` >= 1",
        "y <= 2",
    )
    assert read_order("x < u, v < a", ()) == (("x",), ("u", "v"), ("a",))
    with pytest.raises(SpecError, match="NAME=LOWEST"):
        read_interval("rate")
    with pytest.raises(DataError, match="a table without rows"):
        Records.read({"x": []})
