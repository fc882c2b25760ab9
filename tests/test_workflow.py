"""A stranger's path on the command line: fit, recommend, whatif, and what breaks it."""

import csv
import json
import os
import pty
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet
from typer.testing import CliRunner

import forestall
from forestall import NestedRehearsal, Problem, cli, method, screen
from forestall.cli import batch, guard, tables
from forestall.cli.methods import METHODS, class_named, method_named
from stranger import ROLES, write_contexts, write_history
from worlds import DOSING, dosing

COLUMNS = [
    "row",
    "rate",
    "probability",
    "lower",
    "upper",
    "no_action",
    "support",
    "extrapolates",
    "verdict",
    "reason",
]
FORESTALL = [sys.executable, "-m", "forestall"]


def invoke(*args, **kwargs):
    return CliRunner().invoke(cli.app, [str(arg) for arg in args], **kwargs)


def run(*args, **kwargs):
    command = [*FORESTALL, *map(str, args)]
    return subprocess.run(
        command, capture_output=True, text=True, timeout=120, check=False, **kwargs
    )


def rows_of(path):
    with path.open(encoding="utf-8") as file:
        return list(csv.DictReader(file))


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A folder with all that a stranger has after the first three commands."""
    folder = tmp_path_factory.mktemp("stranger")
    history = write_history(folder / "history.csv")
    write_contexts(folder / "contexts.csv")
    question, policy = folder / "problem.toml", folder / "lending.forestall"
    for command in (
        ("init", history, *ROLES, "-o", question),
        ("check", question, history),
        ("fit", question, history, "--method", "nested", "-o", policy),
    ):
        result = invoke(*command)
        assert result.exit_code == 0, result.output
    return folder


@pytest.fixture(scope="module")
def policy(place):
    return place / "lending.forestall"


@pytest.fixture(scope="module")
def contexts(place):
    return place / "contexts.csv"


@pytest.fixture(scope="module")
def expected(place, contexts):
    """What the library decides for the same contexts."""
    problem = Problem.from_file(place / "problem.toml")
    fitted = NestedRehearsal().fit(problem, place / "history.csv")
    return fitted.recommend(contexts)


@pytest.fixture(scope="module")
def staged(tmp_path_factory):
    """A small staged policy with two actions, saved."""
    small = forestall.Search(
        n_screened=16, n_kept=4, n_starts=1, n_steps=2, n_draws=4, n_paths=4
    )
    fitted = forestall.StagedRehearsal(n_draws=8, n_paths=8, search=small).fit(
        DOSING, dosing(100)
    )
    return fitted.save(tmp_path_factory.mktemp("staged") / "dosing.forestall")


def test_fit_tells_what_was_learned_and_where_it_is(place, tmp_path):
    out = tmp_path / "nested.forestall"
    files = place / "problem.toml", place / "history.csv"
    result = invoke("fit", *files, "--method", "nested", "-o", out)
    assert result.exit_code == 0, result.output
    assert "NestedRehearsal from 150 records" in result.stdout
    assert "alike in the context and stability." in result.stdout
    assert f"Written: {out}" in result.stdout
    assert forestall.load(out).problem == Problem.from_file(files[0])


def test_fit_as_json_and_beside_the_question_by_default(place, tmp_path):
    shutil.copy(place / "problem.toml", tmp_path / "question.toml")
    files = tmp_path / "question.toml", place / "history.csv"
    result = invoke("fit", *files, "--method", "no_action", "--json")
    told = json.loads(result.stdout)
    assert (told["method"], told["records"]) == ("NoAction", 150)
    assert told["identification"]["adjusted"] == ["stability"]
    assert told["files"] == [str(tmp_path / "question.forestall")]


def test_fit_of_low_rank_from_a_folder_of_parquet(place, tmp_path):
    rows = rows_of(place / "history.csv")
    names = ("age", "sector", "stability", "rate", "roi")
    for k in range(2):
        part = rows[75 * k : 75 * (k + 1)]
        columns = {n: [r[n] for r in part] for n in names}
        for name in set(names) - {"sector"}:
            columns[name] = [float(v) for v in columns[name]]
        (tmp_path / "many").mkdir(exist_ok=True)
        parquet.write_table(pa.table(columns), tmp_path / "many" / f"{k}.parquet")
    out = tmp_path / "low.forestall"
    command = "fit", place / "problem.toml", tmp_path / "many", "-o", out
    result = invoke(*command, "--method=nested", "--approximation=nystrom:40")
    assert result.exit_code == 0, result.output
    assert "from 150 records" in result.stdout
    assert forestall.load(out).method.approximation.rank == 40


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--method", "nestd"], "Did you mean 'nested'?"),
        (["--approximation", "nystrom"], "nystrom:500 or fourier:500"),
        (["--approximation", "nystrom:0"], "Expected rank"),
        (["--approximation", "fourier:²"], "nystrom:500 or fourier:500"),
        (
            ["--method", "no_action", "--approximation", "nystrom:9"],
            "got it with 'no_action', which has none",
        ),
        (["--step", "3"], "Expected a time step from 0 to 0"),
    ],
)
def test_a_fit_that_cannot_be_is_a_message(place, tmp_path, options, message):
    files = place / "problem.toml", place / "history.csv"
    result = invoke("fit", *files, "-o", tmp_path / "p.forestall", *options)
    assert result.exit_code == 2
    assert message in result.stderr
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("name", METHODS)
def test_a_method_may_be_called_as_the_command_line_or_as_python_does(name):
    label = class_named(name)
    assert type(method_named(name)).__name__ == label
    assert method_named(label) == method_named(name)
    assert class_named(label) == label


def test_compare_takes_the_names_that_fit_takes(place, tmp_path):
    problem, history = place / "problem.toml", place / "history.csv"
    options = "--methods", "no_action, LinearOptimal", "--folds", 2, "--json"
    result = invoke("compare", problem, history, *options)
    assert result.exit_code == 0, result.output
    labels = {row["method"] for row in json.loads(result.stdout)["methods"]}
    assert labels == {"NoAction", "LinearOptimal"}


def test_a_warning_of_a_fit_is_a_sentence_on_the_error_stream(place, tmp_path):
    text = (place / "problem.toml").read_text()
    few = tmp_path / "few.toml"
    few.write_text(text.replace("roi >= 0.4", "roi >= 0.68"))
    out = tmp_path / "p.forestall"
    result = invoke(
        "fit", few, place / "history.csv", "--method", "nested", "-o", out, "--json"
    )
    assert result.exit_code == 0, result.output
    assert result.stderr.startswith("Warning: ")
    assert "warn(" not in result.stderr
    json.loads(result.stdout)


@pytest.mark.parametrize("suffix", ["csv", "parquet", "jsonl"])
def test_recommend_writes_what_the_library_decides(
    policy, contexts, expected, tmp_path, suffix
):
    out = tmp_path / f"decisions.{suffix}"
    result = invoke("recommend", policy, contexts, "-o", out)
    assert result.exit_code == 0, result.output
    assert f"Written: {out}" in result.stdout
    read = {
        "csv": rows_of,
        "parquet": lambda path: parquet.read_table(path).to_pylist(),
        "jsonl": lambda path: [json.loads(s) for s in path.read_text().splitlines()],
    }
    rows = read[suffix](out)
    assert list(rows[0]) == COLUMNS
    assert [row["verdict"] for row in rows] == expected.verdict
    assert [int(row["row"]) for row in rows] == list(range(5))
    for name in ("probability", "lower", "upper", "no_action", "support"):
        told = [float(row[name]) for row in rows]
        np.testing.assert_allclose(told, getattr(expected, name), atol=1e-12)
    rates = [float(row["rate"]) for row in rows]
    np.testing.assert_allclose(rates, expected.actions[:, 0], atol=1e-12)


def test_recommend_as_json_explains_each_decision(policy, contexts, expected):
    said = invoke("recommend", policy, contexts, "--json").stdout
    assert invoke("recommend", policy, contexts, "-o", "-", "--json").stdout == said
    told = json.loads(said)
    assert [each["explanation"] for each in told["decisions"]] == [
        str(each) for each in expected
    ]
    assert set(told["decisions"][0]["actions"]) == {"rate"}


def test_an_identifier_is_kept_beside_its_decision(policy, contexts, tmp_path):
    out = tmp_path / "decisions.csv"
    assert invoke("recommend", policy, contexts, "-o", out, "--keep=id").exit_code == 0
    assert [row["id"] for row in rows_of(out)] == [f"c{i}" for i in range(5)]
    assert "row" not in rows_of(out)[0]
    result = invoke("recommend", policy, contexts, "-o", out, "--keep=number")
    assert result.exit_code == 2
    assert "Expected the column 'number' of --keep" in result.stderr


@pytest.mark.parametrize("kind", ["csv", "jsonl", "parquet"])
def test_standard_input_to_standard_output(policy, contexts, expected, kind):
    rows = rows_of(contexts)
    columns = {
        "id": [row["id"] for row in rows],
        "age": [float(row["age"]) for row in rows],
        "sector": [row["sector"] for row in rows],
    }
    table, sink = pa.table(columns), pa.BufferOutputStream()
    parquet.write_table(table, sink)
    given = {
        "csv": contexts.read_bytes(),
        "jsonl": "\n".join(map(json.dumps, table.to_pylist())).encode(),
        "parquet": sink.getvalue().to_pybytes(),
    }
    result = invoke(
        "recommend", policy, "-", "-o", "-", "--format", kind, input=given[kind]
    )
    assert result.exit_code == 0, result.output
    if kind == "parquet":
        told = parquet.read_table(pa.BufferReader(result.stdout_bytes)).to_pylist()
    elif kind == "jsonl":
        told = [json.loads(line) for line in result.stdout.splitlines()]
    else:
        told = list(csv.DictReader(result.stdout.splitlines()))
    assert [row["verdict"] for row in told] == expected.verdict


def test_an_odd_row_of_json_lines_abstains_and_the_rest_is_decided(policy, expected):
    lines = (
        '{"age": 33, "sector": "farm"}\n\n{"age": [1], "sector": "farm"}\n'
        '{"sector": null}\n'
    )
    result = invoke("recommend", policy, "-", "--format=jsonl", input=lines)
    assert result.exit_code == 0, result.output
    told = [json.loads(line) for line in result.stdout.splitlines()]
    assert [row["verdict"] for row in told][1:] == ["abstain", "abstain"]
    assert told[1]["probability"] is None
    assert "2 of 3 contexts cannot be read" in result.stderr


@pytest.mark.parametrize(
    ("given", "kind", "message"),
    [
        (b"", "csv", "Expected a table on standard input; got nothing"),
        (b" \n", "jsonl", "Expected a table on standard input; got nothing"),
        (b"[1]\n", "jsonl", "Expected a JSON object in each line"),
        (b'{"age": 1', "jsonl", "in line 1"),
        (b"\xff\xfe", "jsonl", "in line 1"),
        (b"[" * 100_000, "jsonl", "in line 1"),
        (b"PAR1", "parquet", "Expected a readable parquet table on standard input"),
        (b"a,b\n1\n", "csv", "Expected a readable csv table on standard input"),
        (b"age\n1\n", "csv", "Expected the column 'sector' in the contexts"),
        (b"\xff\n1\n", "csv", "Expected"),
        (b"age,sector\n1,farm\n", "xls", "Expected --format as one of"),
    ],
)
def test_bad_standard_input_is_a_message(policy, given, kind, message):
    result = invoke("recommend", policy, "-", "--format", kind, input=given)
    assert result.exit_code == 2, result.output
    assert message in result.stderr
    assert result.stdout == ""


def test_files_that_cannot_be_used_are_messages(policy, contexts, tmp_path):
    (tmp_path / "folder.csv").mkdir()
    for command, message in (
        (("recommend", tmp_path / "no.forestall", contexts), "Expected"),
        (("recommend", contexts, contexts), "Expected"),
        (("recommend", policy, tmp_path / "no.csv"), "Expected a file at"),
        (("recommend", policy, tmp_path / "no.jsonl"), "No such file"),
        (("recommend", policy, contexts, "-o", tmp_path / "a.xls"), "that ends in"),
        (("recommend", policy, contexts, "-o", tmp_path / "folder.csv"), "Expected"),
        (("recommend", policy, contexts.with_suffix(".json")), ".jsonl, .ndjson file"),
        (("report", policy, contexts.with_suffix(".json")), ".jsonl, .ndjson file"),
        (("recommend", policy, "-", "--cluster", "tcp://a:1"), "read in parts"),
        (("recommend", policy, "a.jsonl", "--cluster", "tcp://a:1"), "read in parts"),
        (("recommend", policy, "a.ndjson", "-o", tmp_path / "d"), "read in parts"),
        (("recommend", policy, contexts, "-o", "/dev/null/a.csv"), "Expected"),
        (("whatif", tmp_path / "no.forestall"), "Expected"),
        (("serve", tmp_path / "no.forestall", "--port", 0), "Expected"),
    ):
        result = invoke(*command)
        assert result.exit_code == 2, (command, result.output, result.exception)
        assert result.stderr.startswith("Error: ")
        assert message in result.stderr
    assert sorted(os.listdir(tmp_path)) == ["folder.csv"]


OVERWRITING = [
    "fit problem.toml history.csv -o history.csv",
    "fit problem.toml history.csv -o problem.toml",
    "fit problem.toml . -o history.csv",
    "fit problem.toml hist*.csv -o history.csv",
    "init history.csv -o history.csv --force",
    "recommend lending.forestall contexts.csv -o contexts.csv",
    "recommend lending.forestall contexts.csv -o lending.forestall",
    "recommend lending.forestall . -o ./contexts.csv",
    "report lending.forestall contexts.csv -o contexts.csv",
    "report lending.forestall contexts.csv -o lending.forestall",
    "bench problem.toml --out problem.toml --fresh",
]


@pytest.mark.parametrize("command", OVERWRITING)
def test_what_is_read_is_never_overwritten(place, tmp_path, monkeypatch, command):
    monkeypatch.chdir(shutil.copytree(place, tmp_path / "place"))
    before = {path: path.read_bytes() for path in Path().iterdir()}
    result = invoke(*command.split())
    assert result.exit_code == 2, result.output
    assert "Expected another file to write than those that are read" in result.stderr
    assert {path: path.read_bytes() for path in Path().iterdir()} == before


def test_a_folder_of_contexts_is_streamed_and_goes_on(policy, contexts, tmp_path):
    (tmp_path / "many").mkdir()
    for name in "ab":
        shutil.copy(contexts, tmp_path / "many" / f"{name}.csv")
    out = tmp_path / "decisions"
    command = "recommend", policy, tmp_path / "many", "-o", out, "--keep=id"
    assert "10 contexts: " in invoke(*command).stdout
    table = parquet.read_table(out)
    assert table["id"].to_pylist() == 2 * [f"c{i}" for i in range(5)]
    next(out.glob("part-*5-*")).unlink()
    assert "10 contexts (5 of them decided before)" in invoke(*command).stdout
    assert parquet.read_table(out).equals(table)
    told = json.loads(invoke(*command, "--json").stdout)
    assert (told["rows"], told["resumed"], told["files"]) == (10, 10, [str(out)])


def test_a_stream_becomes_one_file_where_one_is_named(
    policy, contexts, expected, tmp_path
):
    (tmp_path / "many").mkdir()
    for name in "ab":
        shutil.copy(contexts, tmp_path / "many" / f"{name}.csv")
    out = tmp_path / "decisions.csv"
    result = invoke("recommend", policy, tmp_path / "many", "-o", out)
    assert result.exit_code == 0, result.output
    rows = rows_of(out)
    assert list(rows[0]) == COLUMNS
    assert [int(row["row"]) for row in rows] == list(range(10))
    assert [row["verdict"] for row in rows] == 2 * expected.verdict
    assert sorted(os.listdir(tmp_path)) == ["decisions.csv", "many"]


def test_a_stream_needs_somewhere_to_go_and_one_identifier(policy, contexts, tmp_path):
    pattern = contexts.with_name("context*.csv")
    result = invoke("recommend", policy, pattern)
    assert result.exit_code == 2
    assert "Expected -o with a file or a folder" in result.stderr
    two = invoke("recommend", policy, pattern, "-o", tmp_path / "d", "--keep=id,age")
    assert two.exit_code == 2
    assert "Expected one column for --keep" in two.stderr
    clash = invoke("recommend", policy, contexts, "--keep=id", "--keep=verdict")
    assert "Expected the column 'verdict' of --keep" in clash.stderr


def test_a_long_stream_says_how_far_it_is(policy, contexts, tmp_path, monkeypatch):
    monkeypatch.setattr(batch, "PATIENCE", 0.0)
    monkeypatch.setattr(method, "FEWEST", 2)
    monkeypatch.setattr(method, "MOST", 2)
    shown = shows(monkeypatch)
    command = "recommend", policy, contexts, "-o"
    result = invoke(*command, tmp_path / "d")
    lines = [f"{n} contexts decided" for n in (2, 4, 5)]
    assert result.stderr.splitlines() == lines
    assert shown == ["Loading", "-", "Deciding", *lines, "-"]
    result = invoke(*command, tmp_path / "e", "--jobs", 2)
    assert result.stderr.splitlines() == lines[2:]
    assert parquet.read_table(tmp_path / "e").equals(parquet.read_table(tmp_path / "d"))


def shows(monkeypatch):
    """Gather what is shown on a terminal, with a dash where it goes again."""
    shown = []

    @contextmanager
    def status(first):
        shown.append(first)
        yield shown.append
        shown.append("-")

    monkeypatch.setattr(screen, "status", status)
    return shown


def test_loading_is_shown_until_the_service_is_ready(policy, monkeypatch):
    pytest.importorskip("fastapi")
    shown = shows(monkeypatch)

    def run(path, *, ready, **options):
        shown.append("starting")
        ready("Serving")
        shown.append("serving")

    monkeypatch.setattr("forestall.serve.run", run)
    assert invoke("serve", policy).exit_code == 0
    assert shown == ["Loading", "starting", "-", "serving"]
    shown.clear()
    assert invoke("serve", policy, "--json").exit_code == 0
    assert shown == ["starting", "serving"]


def test_parts_decided_one_after_the_other_are_the_whole(
    policy, contexts, expected, monkeypatch
):
    monkeypatch.setattr(method, "FEWEST", 2)
    monkeypatch.setattr(method, "MOST", 2)
    text = contexts.read_text() + "c9,x,farm\n"
    result = invoke("recommend", policy, "-", "-o", "-", input=text)
    rows = list(csv.DictReader(result.stdout.splitlines()))
    assert [row["verdict"] for row in rows] == [*expected.verdict, "abstain"]
    told = [float(row["probability"]) for row in rows[:5]]
    np.testing.assert_allclose(told, expected.probability, atol=1e-12)
    assert result.stderr.startswith("Warning: In 1 batch, first in that from row 4")


def test_only_some_actions_are_altered_where_the_policy_can(staged, policy, contexts):
    problem = forestall.load(staged).problem
    records = dosing(100)
    given = {name: np.asarray(records[name])[:3].tolist() for name in problem.context}
    lines = "\n".join(json.dumps({k: v[i] for k, v in given.items()}) for i in range(3))
    first, *rest = problem.actions
    command = ["recommend", staged, "-", "--format=jsonl"]
    result = invoke(*command, f"--only={first}", input=lines)
    assert result.exit_code == 0, result.output
    for line in result.stdout.splitlines():
        assert all(json.loads(line)[name] is None for name in rest)
    assert invoke(*command, "--at-most=1", input=lines).exit_code == 0
    assert "Expected only= to name actions" in (
        invoke(*command, "--only=nothing", input=lines).stderr
    )
    refused = invoke("recommend", policy, contexts, "--only=rate")
    assert refused.exit_code == 2
    assert "Fit one with --method staged" in refused.stderr


def test_processes_share_the_work(policy, contexts, expected):
    result = invoke("recommend", policy, contexts, "--jobs", 2)
    rows = list(csv.DictReader(result.stdout.splitlines()))
    assert [row["verdict"] for row in rows] == expected.verdict
    assert invoke("recommend", policy, contexts, "--jobs", 0).exit_code == 2


def test_what_the_system_refuses_is_said_as_the_library_would():
    refused = guard.message(PermissionError(13, "Permission denied", "out.csv"))
    assert refused.startswith("Expected a file or a connection that can be used at ")
    assert "'out.csv'; got: Permission denied." in refused
    assert "Expected the work to fit into memory" in guard.message(MemoryError())


CASE = ("--context", "age=33.5", "--context", "sector=farm")


def test_whatif_shows_the_action_beside_no_action_and_the_advice(policy):
    result = invoke("whatif", policy, *CASE, "--action", "rate=0.4")
    assert result.exit_code == 0, result.output
    for expected in ("no action", "this action", "0.4", "advice", "90 % interval"):
        assert expected in result.stdout
    told = json.loads(
        invoke("whatif", policy, *CASE, "--action", "rate=0.4", "--json").stdout
    )
    case = {"age": 33.5, "sector": "farm"}
    assert told["context"] == case
    fitted = forestall.load(policy)
    asked = fitted.evaluate(case, {"rate": 0.4})[0]
    assert told["whatif"]["probability"] == asked.probability
    assert told["whatif"]["lower"] == asked.lower
    advice = fitted.recommend(case)[0]
    assert told["recommendation"]["actions"] == advice.actions
    assert told["recommendation"]["no_action"] == advice.no_action


def test_whatif_reads_a_case_from_a_file_and_may_ask_of_nothing(policy, tmp_path):
    case = tmp_path / "case.json"
    case.write_text('{"age": 33.5, "sector": "shop", "id": "c1"}')
    result = invoke("whatif", policy, "--context-file", case, "--json")
    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout)["whatif"] is None
    command = "whatif", policy, "--context-file", "-", "--context", "sector=mill"
    result = invoke(*command, "--json", input=case.read_bytes())
    assert json.loads(result.stdout)["context"] == {"age": 33.5, "sector": "mill"}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ((), "Expected --context for each of age, sector; missing: age, sector."),
        (CASE[:2], "missing: sector. Write, e.g., --context 'sector=...'"),
        ((*CASE, "--context", "age=4"), "Expected --context once for each name; got"),
        (("--context", "age=3,5"), "Write decimals with a point: 3.5."),
        ((*CASE, "--action", "rate=0,4"), "Write decimals with a point: 0.4."),
        (("--context", "age"), "Expected --context as NAME=VALUE, e.g. age=0.3"),
        (("--context", "agee=3"), "Did you mean 'age'?"),
        (("--context", "age=old", *CASE[2:]), "Expected a finite number for 'age'"),
        ((*CASE[:2], "--context", "sector=frm"), "Did you mean 'farm'?"),
        ((*CASE, "--action", "rate"), "Expected --action as NAME=VALUE"),
        ((*CASE, "--action", "rate=high"), "Expected a number for the action 'rate'"),
        ((*CASE, "--action", "rate=nan"), "Expected finite numbers for 'rate'"),
        ((*CASE, "--action", "rat=1"), "Did you mean 'rate'?"),
        (
            ("--context-file", "-"),
            "Expected one JSON object with the contexts in standard input",
        ),
    ],
)
def test_a_question_that_makes_no_sense_is_a_message(policy, options, message):
    result = invoke("whatif", policy, *options)
    assert result.exit_code == 2, result.output
    assert message in result.stderr


def test_every_action_must_be_said_or_none(staged):
    problem = forestall.load(staged).problem
    case = [f"--context={name}=0.1" for name in problem.context]
    first, *rest = problem.actions
    if not rest:
        pytest.skip("one action only")
    result = invoke("whatif", staged, *case, f"--action={first}=0.1")
    assert result.exit_code == 2
    assert f"missing: {rest[0]}" in result.stderr


def test_on_a_terminal_decisions_are_a_table_with_colour(policy, contexts):
    master, slave = pty.openpty()
    environment = {**os.environ, "TERM": "xterm", "COLUMNS": "120"}
    environment.pop("NO_COLOR", None)
    command = [*FORESTALL, "recommend", str(policy), str(contexts)]
    with subprocess.Popen(
        command, stdin=slave, stdout=slave, stderr=slave, env=environment
    ) as process:
        os.close(slave)
        said = b""
        while chunk := _read(master):
            said += chunk
        assert process.wait(timeout=60) == 0, said
    os.close(master)
    assert b"90 % interval" in said
    assert b"5 contexts: " in said
    assert b"\x1b[" in said


def _read(handle):
    try:
        return os.read(handle, 65536)
    except OSError:
        return b""


def test_a_pipe_that_nobody_reads_is_no_error(policy, contexts):
    command = [*FORESTALL, "recommend", str(policy), str(contexts)]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        process.stdout.close()
        assert process.wait(timeout=60) == 141
        assert process.stderr.read() == b""


def test_a_run_that_is_interrupted_leaves_no_file(
    policy, contexts, tmp_path, monkeypatch
):
    def stop(parts, file):
        file.write(b"half of a table")
        raise KeyboardInterrupt

    monkeypatch.setitem(tables.WRITERS, "csv", stop)
    result = invoke("recommend", policy, contexts, "-o", tmp_path / "decisions.csv")
    assert result.exit_code == 130
    assert result.stderr == "Interrupted.\n"
    assert os.listdir(tmp_path) == []


@pytest.mark.skipif(shutil.which("bash") is None, reason="there is no bash")
def test_bash_completes_commands_and_options():
    script = subprocess.run(
        [*FORESTALL, "--show-completion", "bash"],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION": "1"},
    ).stdout
    assert "complete -o default -F" in script
    home = os.path.dirname(sys.executable)
    assert _completed(script, home, "forestall re") == {
        "recommend",
        "report",
        "reproduce",
    }
    assert "--method" in _completed(script, home, "forestall fit --me")


@pytest.mark.skipif(shutil.which("bash") is None, reason="there is no bash")
def test_completion_is_installed_for_bash(tmp_path):
    switch = {"_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION": "1"}
    environment = {**os.environ, **switch, "HOME": str(tmp_path)}
    result = run("--install-completion", "bash", env=environment)
    assert result.returncode == 0, result.stderr
    script = tmp_path / ".bash_completions" / "forestall.sh"
    assert "_forestall_completion" in script.read_text()
    assert str(script) in (tmp_path / ".bashrc").read_text()


def _completed(script, home, typed):
    """Let a real shell complete a line."""
    words = typed.split()
    code = (
        f"{script}\nPATH={home}:$PATH\n"
        f"COMP_WORDS=({' '.join(words)}); COMP_CWORD={len(words) - 1}\n"
        "_forestall_completion forestall\n"
        'printf "%s\\n" "${COMPREPLY[@]}"'
    )
    told = subprocess.run(
        ["bash", "-c", code], capture_output=True, text=True, check=True, timeout=60
    )
    return set(told.stdout.split())


def test_a_cluster_reads_what_is_given(place, contexts, tmp_path):
    distributed = pytest.importorskip("distributed")
    settings = {"processes": False, "dashboard_address": ":0", "n_workers": 1}
    files = place / "problem.toml", place / "history.csv"
    with distributed.LocalCluster(protocol="tcp", **settings) as cluster:
        out = tmp_path / "spread.forestall"
        command = "fit", *files, "--method", "nested", "-o", out
        result = invoke(*command, "--cluster", cluster.scheduler_address)
        assert result.exit_code == 0, result.output
        decided = tmp_path / "decisions"
        result = invoke(
            "recommend",
            out,
            contexts,
            "-o",
            decided,
            "--cluster",
            cluster.scheduler_address,
        )
        assert result.exit_code == 0, result.output
    assert parquet.read_table(decided).num_rows == 5


def test_a_cluster_that_does_not_answer_is_a_message(place, tmp_path, monkeypatch):
    pytest.importorskip("distributed")
    monkeypatch.setattr("forestall.cli.cluster.PATIENCE", 0.5)
    files = place / "problem.toml", place / "history.csv"
    result = invoke("fit", *files, "-o", tmp_path / "p", "--cluster", "tcp://[::1]:9")
    assert result.exit_code == 2
    assert "Expected a Dask scheduler at 'tcp://[::1]:9'" in result.stderr


def test_report_and_serve_hand_everything_on(policy, contexts, tmp_path, monkeypatch):
    import types

    told = {}

    def write(policy, contexts, out, *, figures, identifier):
        told["report"] = (len(contexts), figures, identifier)
        return out

    def run(path, *, ready, **options):
        ready("Serving")
        told["serve"] = (path, options)

    report, service = types.ModuleType("report"), types.ModuleType("serve")
    report.write, service.run = write, run
    monkeypatch.setitem(sys.modules, "forestall.report", report)
    monkeypatch.setitem(sys.modules, "forestall.serve", service)
    monkeypatch.setattr(forestall, "report", report, raising=False)
    monkeypatch.setattr(forestall, "serve", service, raising=False)
    out = tmp_path / "report.html"
    asked = "report", policy, contexts, "-o", out, "--figures", 2
    result = invoke(*asked, "--identifier", "id")
    assert result.exit_code == 0, result.output
    assert told["report"] == (5, 2, "id")
    assert f"Written: {out}" in result.stdout
    monkeypatch.setenv("FORESTALL_TOKEN", "secret")
    assert invoke("serve", policy, "--port", 9001).exit_code == 0
    expected = {"host": "127.0.0.1", "port": 9001, "token": "secret", "workers": 1}
    assert told["serve"] == (policy, expected)
    assert "secret" not in invoke("serve", "--help").output


def test_a_stranger_ends_with_a_report(policy, contexts, tmp_path):
    if find_spec("forestall.report") is None:
        pytest.skip("there are no reports yet")
    out = tmp_path / "report.html"
    result = invoke("report", policy, contexts, "-o", out, "--figures", 1)
    assert result.exit_code == 0, result.output
    assert "<html" in out.read_text(encoding="utf-8")


def test_a_stranger_asks_the_service(policy, expected, contexts):
    pytest.importorskip("fastapi")
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    command = [*FORESTALL, "serve", str(policy), "--port", str(port)]
    address = f"http://127.0.0.1:{port}"
    with subprocess.Popen(
        command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    ) as process:
        try:
            _wait_for(f"{address}/healthz", process)
            rows = rows_of(contexts)
            cases = [{"age": float(r["age"]), "sector": r["sector"]} for r in rows]
            told = _post(f"{address}/v1/recommend", {"contexts": cases})
        finally:
            process.send_signal(signal.SIGTERM)
    assert process.returncode == 0
    assert [each["verdict"] for each in told["decisions"]] == expected.verdict


def _wait_for(address, process):
    for _ in range(600):
        assert process.poll() is None
        try:
            with urllib.request.urlopen(address, timeout=5):
                return
        except OSError:
            time.sleep(0.1)
    raise AssertionError("the service did not start")


def _post(address, body):
    data, kind = json.dumps(body).encode(), {"Content-Type": "application/json"}
    request = urllib.request.Request(address, data=data, headers=kind)
    with urllib.request.urlopen(request, timeout=30) as answer:
        return json.load(answer)
