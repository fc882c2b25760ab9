"""The command line by its real entry points: messages, exit codes, files, JSON."""

import csv
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import typer
from typer.testing import CliRunner

import forestall
from forestall import cli, demo, screen, tasks
from forestall.check import check
from forestall.cli import studying
from forestall.overlap import left_out_residuals
from forestall.problem import Problem

ESCAPE = "\x1b["
SEEDS = range(10)


def invoke(*args):
    return CliRunner().invoke(cli.app, [str(arg) for arg in args])


def run(*args, cwd=None, module="forestall.cli"):
    """Run the command line in a process of its own."""
    return subprocess.run(
        [sys.executable, "-m", module, *map(str, args)],
        capture_output=True,
        text=True,
        cwd=cwd,
        timeout=120,
        check=False,
    )


def write_csv(path, columns):
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(columns)
        writer.writerows(zip(*columns.values(), strict=True))
    return path


@pytest.fixture(scope="module")
def history():
    return tasks.get("bank").history(300, seed=0)


@pytest.fixture
def files(tmp_path, history):
    problem = tasks.get("bank").problem.to_file(tmp_path / "problem.toml")
    return problem, write_csv(tmp_path / "history.csv", history)


@pytest.fixture(scope="module")
def told(tmp_path_factory):
    folder = tmp_path_factory.mktemp("demo")
    result = invoke("demo", "--out", folder, "--json")
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def test_the_console_script_and_both_modules_say_the_version():
    script = shutil.which("forestall", path=str(Path(sys.executable).parent))
    if script is None:
        pytest.skip("forestall is not installed as a script")
    said = subprocess.run(
        [script, "--version"], capture_output=True, text=True, check=True, timeout=120
    )
    assert said.stdout == f"forestall {forestall.__version__}\n"
    for module in ("forestall", "forestall.cli"):
        assert run("--version", module=module).stdout == said.stdout


def commands(group, *names):
    """Every command and group below one, by its names, with what it takes."""
    for name, command in group.commands.items():
        yield (*names, name), command
        if hasattr(command, "commands"):
            yield from commands(command, *names, name)


def test_every_command_has_help_with_an_example_and_json():
    seen = []
    for names, command in commands(typer.main.get_command(cli.app)):
        result = invoke(*names, "--help")
        assert result.exit_code == 0
        seen.append(" ".join(names))
        assert f"Example: forestall {seen[-1]} " in result.output
        if not hasattr(command, "commands"):
            assert "--json" in result.output, seen[-1]
    assert {"data fetch", "data check", "serve", "recommend", "init"} <= set(seen)


def test_tasks_lists_every_task_with_its_structure():
    result = invoke("tasks")
    assert result.exit_code == 0
    for name in tasks.names():
        assert name in result.stdout
    assert "interest_rate in [0, 1]" in result.stdout
    assert "an interest rate that must be repaid" in result.stdout


def test_tasks_as_json_can_be_made_into_problems_again():
    listed = json.loads(invoke("tasks", "--json").stdout)
    assert [each["name"] for each in listed] == list(tasks.names())
    for each in listed:
        fields = {k: v for k, v in each.items() if k not in ("name", "about")}
        assert Problem.from_dict(fields) == tasks.get(each["name"]).problem


def test_check_prints_roles_identification_shares_ranges_and_overlap(files):
    result = run("check", *files)
    assert result.returncode == 0, result.stderr
    for expected in (
        "Choose      interest_rate in [0, 1]",
        "Compared: records that are alike in the context and industry_stability.",
        "300 complete records",
        "repayment_rate >= 0.6",
        "industry_stability   covariates",
        "of its spread",
        "Usable.",
    ):
        assert expected in result.stdout
    assert ESCAPE not in result.stdout + result.stderr
    assert result.stderr == ""


def test_check_as_json_holds_what_the_records_say(files, history):
    report = json.loads(invoke("check", *files, "--json").stdout)
    y1, y2 = history["repayment_rate"], history["roi"]
    assert report["usable"] is True
    assert report["records"] == 300
    assert report["good"] == pytest.approx(((y1 >= 0.6) & (y2 >= 0.3)).mean())
    shares = {each["constraint"]: each["share"] for each in report["constraints"]}
    assert shares["roi >= 0.3"] == pytest.approx((y2 >= 0.3).mean())
    ranges = {each["name"]: each for each in report["variables"]}
    assert ranges["roi"]["median"] == pytest.approx(np.median(y2))
    assert ranges["roi"]["role"] == "outcomes"
    a = history["interest_rate"]
    assert report["inside"] == pytest.approx(((a >= 0) & (a <= 1)).mean())
    assert report["identification"]["adjusted"] == ["industry_stability"]


def test_a_deep_check_adds_mechanisms_contexts_and_what_would_help(tmp_path, history):
    problem = tasks.get("bank").problem.to_file(tmp_path / "problem.toml")
    some = {name: column[:120] for name, column in history.items()}
    table = write_csv(tmp_path / "some.csv", some)
    result = invoke("check", problem, table, "--deep")
    assert result.exit_code == 0, result.output
    for expected in (
        "120 complete records",
        "How well each variable is predicted, by records left out",
        "interest_rate        action",
        "By how much each moves the probability of a good outcome",
        "What would help most",
        "Usable",
    ):
        assert expected in result.stdout
    told = json.loads(invoke("check", problem, table, "--deep", "--json").stdout)
    assert told["records"] == told["diagnostics"]["records"] == 120
    names = [each["name"] for each in told["diagnostics"]["mechanisms"]]
    assert names == ["industry_stability", "interest_rate", "repayment_rate", "roi"]
    assert told["diagnostics"]["advice"]


def test_a_quick_check_does_not_fit(files):
    assert "diagnostics" not in json.loads(invoke("check", *files, "--json").stdout)


def test_check_counts_levels_and_dropped_records(tmp_path, history):
    sector = np.where(history["credit_score"] < 0.3, "farm", "shop")
    columns = {**history, "sector": sector}
    columns["roi"] = [*columns["roi"][:-2], "", ""]
    problem = Problem(
        context=["credit_score", "sector"],
        actions={"interest_rate": (0.0, 1.0)},
        outcomes=["roi"],
        desired=["roi >= 0.3"],
        missing="drop",
    )
    path = problem.to_file(tmp_path / "problem.toml")
    table = write_csv(tmp_path / "history.csv", columns)
    report = json.loads(invoke("check", path, table, "--json").stdout)
    assert (report["records"], report["dropped"]) == (298, 2)
    ranges = {each["name"]: each for each in report["variables"]}
    assert ranges["sector"]["levels"] == {
        "farm": int((sector[:-2] == "farm").sum()),
        "shop": int((sector[:-2] == "shop").sum()),
    }
    assert ranges["sector"]["minimum"] is None
    assert "2 dropped because of gaps" in invoke("check", path, table).stdout


def bad_toml(problem, table):
    problem.write_text("context = [")
    return problem, table


def misspelt_column(problem, table):
    table.write_text(table.read_text().replace("credit_score", "credit_scor", 1))
    return problem, table


def missing_problem(problem, table):
    return problem.with_name("nowhere.toml"), table


def missing_history(problem, table):
    return problem, table.with_name("nowhere.csv")


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (missing_problem, "Expected a problem file in TOML; could not read"),
        (missing_history, "Expected a file at"),
        (bad_toml, "Expected TOML in"),
        (misspelt_column, "Did you mean 'credit_scor'?"),
    ],
)
def test_bad_input_is_a_message_and_exit_code_2(files, spoil, message):
    result = invoke("check", *spoil(*files))
    assert result.exit_code == 2
    assert result.stderr.startswith("Error: Expected")
    assert message in result.stderr
    assert result.stdout == ""


def test_bad_input_shows_no_traceback_in_a_real_process(files):
    result = run("check", *misspelt_column(*files))
    assert result.returncode == 2
    assert "Traceback" not in result.stderr
    assert result.stderr.count("\n") == 1


@pytest.mark.parametrize("command", ["check", "fit", "compare"])
def test_a_table_in_the_place_of_the_problem_is_told(files, command):
    problem, table = files
    result = invoke(command, table, problem)
    assert result.exit_code == 2, result.output
    assert "Expected a problem file first and the history second" in result.stderr
    assert f"forestall init {table}" in result.stderr


@pytest.mark.parametrize("width", range(20, 121, 20))
def test_however_narrow_the_terminal_every_number_is_whole(width, monkeypatch, capsys):
    table = screen.table_of("row", "dose", "90 % interval", "verdict", figures=3)
    cells = [("0", "83.125", "12% to 87%", "abstain"), ("1", "7.5", "1% to 2%", "act")]
    for row in cells:
        table.add_row(*row)
    monkeypatch.setattr(screen, "WIDTH", width)
    screen.show(table)
    said = capsys.readouterr().out
    assert max(map(len, said.splitlines())) <= width
    words = said.split()
    for row in cells:
        assert all(word in words for cell in row for word in cell.split())


def test_a_graph_for_each_time_step_needs_a_step(files):
    problem, table = files
    given = Problem.from_file(problem).to_dict()
    edges = "industry_stability -> interest_rate -> {repayment_rate; roi}"
    given["graph"] = [f"digraph {{ credit_score; debt_to_income; {edges} }}"] * 2
    given.pop("order")
    Problem.from_dict(given).to_file(problem)
    result = invoke("check", problem, table)
    assert result.exit_code == 2
    assert "one for each of 2 time steps" in result.stderr
    assert invoke("check", problem, table, "--step", 1).exit_code == 0


def test_interrupting_a_command_exits_with_130(monkeypatch, tmp_path):
    def stop(*args):
        raise KeyboardInterrupt

    monkeypatch.setattr(demo, "tell", stop)
    result = invoke("demo", "--out", tmp_path)
    assert result.exit_code == 130
    assert "Interrupted" in result.stderr


def test_an_output_folder_that_is_a_file_is_refused(tmp_path):
    (tmp_path / "taken").write_text("mine")
    result = invoke("demo", "--out", tmp_path / "taken")
    assert result.exit_code == 2
    assert "Expected a folder to write to" in result.stderr
    assert (tmp_path / "taken").read_text() == "mine"


def test_an_unknown_command_exits_with_2():
    assert invoke("forstall").exit_code == 2


def test_bench_runs_a_plan_and_says_where_the_results_are(tmp_path):
    plan = tmp_path / "tiny.toml"
    plan.write_text(
        'name = "tiny"\ntasks = ["bank"]\nseeds = 1\nn = 60\ncontexts = 2\n'
        'draws = 50\n[methods.none]\nmethod = "NoAction"\n'
    )
    out = tmp_path / "tiny.csv"
    result = invoke("bench", plan, "--out", out)
    assert result.exit_code == 0, result.output
    assert f"Written: {out}" in result.stdout
    assert "bank" in result.stdout
    assert len(out.read_text().splitlines()) == 3
    told = json.loads(invoke("bench", plan, "--out", out, "--json").stdout)
    assert told["files"] == [str(out)]
    assert [row["task"] for row in told["summary"]] == ["bank"]


def test_reproduce_hands_everything_on(monkeypatch, tmp_path):
    asked = {}

    def note(what, **given):
        asked.update(given, what=what)
        return [tmp_path / "results.md"]

    monkeypatch.setattr("forestall.reproduce.run", note)
    options = "--quick", "--jobs", 2, "--out", tmp_path
    done = invoke("reproduce", "eta", "theory", *options)
    assert done.exit_code == 0, done.output
    assert asked["what"] == ["eta", "theory"]
    assert (asked["quick"], asked["jobs"], asked["fresh"]) == (True, 2, False)
    assert f"Written: {tmp_path / 'results.md'}" in done.output


def test_bench_with_a_missing_plan_exits_with_2(tmp_path):
    result = invoke("bench", tmp_path / "nowhere.toml")
    assert result.exit_code == 2
    assert result.stderr.startswith("Error: Expected")


def test_the_demo_writes_its_files_and_says_where(told):
    names = [Path(path).name for path in told["files"]]
    assert names == ["lending.png", "lending.json", "applicants.csv", "landscape.csv"]
    assert Path(told["files"][0]).read_bytes().startswith(b"\x89PNG")
    written = json.loads(Path(told["files"][1]).read_text())
    assert written == {k: v for k, v in told.items() if k != "files"}
    with Path(told["files"][2]).open() as file:
        rows = list(csv.DictReader(file))
    assert [float(row["success"]) for row in rows] == [
        each["success"] for each in told["applicants"]
    ]


def test_the_demo_tells_true_probabilities(told):
    bank = tasks.get("bank")
    for option in told["options"]:
        rate = option["action"]
        action = None if rate is None else {"interest_rate": rate}
        true = bank.success(told["applicant"], action, demo.DRAWS, 1)
        assert option["success"] == true
    without, single, nested, best = (each["success"] for each in told["options"])
    assert without == pytest.approx(0.664, abs=0.01)
    assert nested > max(without, single)
    # The oracle is the best on other draws than these.
    assert best >= nested - 0.01


def test_the_demo_recommends_what_the_nested_estimator_recommends(told):
    bank = tasks.get("bank")
    history = bank.history(demo.RECORDS, told["seed"])
    method = forestall.NestedRehearsal(ascent=demo.PLAIN)
    policy = method.fit(bank.problem, history)
    decision = policy.recommend(told["applicant"])[0]
    assert decision.actions["interest_rate"] == told["options"][2]["action"]
    assert str(decision) == told["sentence"]


def test_the_landscape_is_highest_where_the_marks_are(told):
    with Path(told["files"][3]).open() as file:
        rows = [{k: float(v) for k, v in row.items()} for row in csv.DictReader(file)]
    best = max(rows, key=lambda row: row["nested"])
    assert best["rate"] == pytest.approx(told["options"][2]["action"], abs=0.02)
    truest = max(rows, key=lambda row: row["truth"])
    assert truest["truth"] == pytest.approx(told["options"][3]["success"], abs=0.01)


def test_the_demo_in_a_process_prints_its_tables_without_colour(tmp_path):
    result = run("demo", "--no-figure", "--seed", 3, cwd=tmp_path)
    assert result.returncode == 0, result.stderr
    assert ESCAPE not in result.stdout
    for expected in (
        "single estimator (confounded)",
        "best attainable",
        "Set interest_rate to",
        "Over 10 histories",
        "truly without",
        f"Written: {Path('forestall-demo') / 'lending.json'}",
    ):
        assert expected in result.stdout
    assert sorted(os.listdir(tmp_path / "forestall-demo")) == [
        "applicants.csv",
        "landscape.csv",
        "lending.json",
    ]


@pytest.fixture(scope="module")
def studied():
    return demo.lending_study(SEEDS, (5.0, 10.0, 20.0), (1.0, 4.0))


def test_the_nested_estimator_reaches_80_percent_and_beats_the_single_one(studied):
    usual = [row for row in studied if row.bandwidth == 1.0]
    assert [row.sharpness for row in usual] == [5.0, 10.0, 20.0]
    assert min(row.nested for row in usual) >= 0.80
    assert all(row.nested > row.single for row in studied)


def test_the_numbers_that_the_demo_quotes_are_still_true(studied):
    assert len(studied) == len(demo.STUDIED)
    for now, quoted in zip(studied, demo.STUDIED, strict=True):
        assert now.below == quoted.below
        assert (now.bandwidth, now.sharpness) == (quoted.bandwidth, quoted.sharpness)
        for name in ("nested", "single", "no_action"):
            assert getattr(now, name) == pytest.approx(getattr(quoted, name), abs=0.005)


def test_strong_smoothing_takes_the_single_estimator_below_no_action(studied):
    by_width = {w: [r.below for r in studied if r.bandwidth == w] for w in (1.0, 4.0)}
    assert min(by_width[4.0]) > max(by_width[1.0])
    assert max(by_width[1.0]) < 0.5


def test_asking_with_another_eta_is_fitting_with_it():
    bank, x = tasks.get("bank"), demo.applicant()
    records = bank.history(200, seed=0)
    fitted = forestall.NestedRehearsal(sharpness=5.0).fit(bank.problem, records)
    anew = forestall.NestedRehearsal(sharpness=20.0).fit(bank.problem, records)
    asked = demo.sharpened(fitted, 20.0).recommend(x)
    np.testing.assert_allclose(asked.actions, anew.recommend(x).actions, atol=1e-8)


def test_the_study_prints_a_row_for_each_smoothing_and_saves_them(
    monkeypatch, tmp_path
):
    monkeypatch.setattr(studying, "STUDY_SEEDS", range(2))
    monkeypatch.setattr(studying, "STUDY_SHARPNESS", (5.0,))
    monkeypatch.setattr(studying, "STUDY_BANDWIDTH", (1.0,))
    result = invoke("demo", "--study", "--out", tmp_path)
    assert result.exit_code == 0, result.output
    assert "True probabilities over 2 histories" in result.stdout
    assert " of 2 " in result.stdout
    with (tmp_path / "study.csv").open() as file:
        (row,) = csv.DictReader(file)
    assert float(row["sharpness"]) == 5.0
    assert row["histories"] == "2"


def test_residuals_left_out_find_the_deviation_that_the_rest_leaves(rng):
    z = rng.normal(size=(400, 2))
    noise = rng.normal(size=(400, 3))
    a = np.column_stack(
        [
            z[:, 0] + 0.1 * noise[:, 0],
            np.sin(2 * z[:, 1]) + 0.2 * noise[:, 1],
            noise[:, 2],
        ]
    )
    found = np.sqrt((left_out_residuals(z, a) ** 2).mean(axis=0))
    np.testing.assert_allclose(found, [0.1, 0.2, 1.0], rtol=0.15)


def test_a_thin_overlap_is_a_warning(rng):
    x = rng.uniform(size=200)
    records = {
        "x": x,
        "a": x + 0.01 * rng.normal(size=200),
        "y": x + rng.normal(size=200),
    }
    problem = Problem(
        context=["x"], actions={"a": (0.0, 1.0)}, outcomes=["y"], desired=["y >= 0"]
    )
    report = check(problem, records)
    (overlap,) = report.overlaps
    assert overlap.deviation == pytest.approx(0.01, rel=0.2)
    assert overlap.reach == pytest.approx(0.06, rel=0.25)
    (text,) = report.warnings
    assert text.startswith("Thin overlap: given what is known beforehand, 'a' varied")


def test_an_interval_wider_than_history_is_a_warning_that_blames_the_interval(rng):
    records = {name: rng.normal(size=200) for name in "xay"}
    problem = Problem(
        context=["x"], actions={"a": (-50.0, 50.0)}, outcomes=["y"], desired=["y >= 0"]
    )
    report = check(problem, records)
    (overlap,) = report.overlaps
    assert overlap.breadth == pytest.approx(0.06, rel=0.2)
    (text,) = report.warnings
    assert text.startswith(
        "Wide interval: 'a' may be set in [-50, 50], but history has"
    )
    assert "Narrow the interval" in text
    assert "given what is known" not in text


def test_actions_without_effect_in_the_graph_are_a_warning(rng):
    records = {name: rng.normal(size=200) for name in "xay"}
    problem = Problem(
        context=["x"],
        actions={"a": (-1.0, 1.0)},
        outcomes=["y"],
        desired=["y >= 0"],
        graph="digraph { x -> {a y} }",
    )
    (text,) = check(problem, records).warnings
    assert text.startswith("By this graph the actions (a) influence no outcome (y)")


def test_check_refuses_what_is_no_problem():
    with pytest.raises(forestall.SpecError, match="Expected a Problem, then a history"):
        check({"context": ["x"]}, {})


def test_an_interval_that_history_hardly_touches_is_a_warning(rng):
    records = {name: rng.normal(size=100) for name in "xay"}
    problem = Problem(
        context=["x"], actions={"a": (9.0, 10.0)}, outcomes=["y"], desired=["y >= 0"]
    )
    (text,) = check(problem, records).warnings
    assert text.startswith("Only 0.0% of the records have 'a' in its feasible interval")


def test_rare_good_records_are_a_warning(rng):
    records = {name: rng.normal(size=400) for name in "xay"}
    problem = Problem(
        context=["x"], actions={"a": (-1.0, 1.0)}, outcomes=["y"], desired=["y >= 2"]
    )
    report = check(problem, records)
    assert 0 < report.good < 0.05
    assert any("records are good: little to learn" in text for text in report.warnings)
