"""Everything the README shows is run."""

import contextlib
import io
import itertools
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest
from pyarrow import csv

from forestall import tasks
from forestall.bench import read_rows

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```(\w*)\n(.*?)^```", README, re.MULTILINE | re.DOTALL)
NUMBER = re.compile(r"\d+\.?\d*")
# What the smoke plan shows is that everything runs; its results are not kept.
PLANS = sorted(
    plan.stem
    for plan in (ROOT / "benchmarks" / "plans").glob("*.toml")
    if plan.stem != "smoke"
)
FORESTALL = [sys.executable, "-m", "forestall"]


def run(command, cwd, *extra):
    words = shlex.split(command, comments=True)
    if words[0] == "forestall":
        words = FORESTALL + words[1:]
    return subprocess.run(
        [*words, *extra], cwd=cwd, check=True, capture_output=True, text=True
    ).stdout


def test_the_python_runs_and_prints_what_the_readme_says():
    names = {}
    printed = []
    for (kind, code), (next_kind, shown) in itertools.pairwise(BLOCKS):
        if kind != "python":
            continue
        out = io.StringIO()
        with contextlib.redirect_stdout(out):
            exec(code, names)
        if out.getvalue():
            assert next_kind == ""
            printed.append((out.getvalue().strip(), shown.strip()))
    assert len(printed) == 3
    for real, shown in printed:
        assert NUMBER.split(real) == NUMBER.split(shown)
        for ours, theirs in zip(*map(NUMBER.findall, (real, shown)), strict=True):
            # Other processors round otherwise, and a search may then turn elsewhere.
            assert float(ours) == pytest.approx(float(theirs), rel=0.1)


def test_the_first_screen_is_a_sentence_two_commands_a_picture_and_few_lines():
    opening = README.split("```")[0]
    assert len(re.findall(r"[.?!](?:\W|$)", opening)) == 1
    commands = next(code for kind, code in BLOCKS if kind == "")
    assert [line.split()[:2] for line in commands.splitlines()] == [
        ["make", "demo"],
        ["make", "test"],
    ]
    assert README.index("make test") < README.index("![") < README.index("```python")
    first = next(code for kind, code in BLOCKS if kind == "python")
    assert len(first.splitlines()) <= 15


def test_the_problem_file_and_its_check_work(tmp_path):
    text = next(code for kind, code in BLOCKS if kind == "toml")
    (tmp_path / "problem.toml").write_text(text, encoding="utf-8")
    csv.write_csv(pa.table(tasks.get("bank").history(300, 0)), tmp_path / "history.csv")
    out = run("forestall check problem.toml history.csv", tmp_path)
    assert "alike in the context and industry_stability." in " ".join(out.split())


def test_the_commands_lead_from_records_to_a_report(tmp_path):
    bank = tasks.get("bank")
    csv.write_csv(pa.table(bank.history(300, 0)), tmp_path / "history.csv")
    csv.write_csv(pa.table(bank.contexts(5, 0)), tmp_path / "applicants.csv")
    commands = next(code for kind, code in BLOCKS if kind == "console")
    for line in commands.splitlines():
        run(line.removeprefix("$ "), tmp_path)
    assert len((tmp_path / "decisions.csv").read_text("utf-8").splitlines()) == 6
    report = (tmp_path / "report.html").read_text("utf-8")
    assert report.lower().startswith("<!doctype html>")


def test_make_demo_runs():
    if not (ROOT / ".venv" / ".installed").exists():
        pytest.skip("not installed by make; run `make test`")
    out = run("make demo", ROOT)
    assert "lending.png" in out


def test_the_tasks_command_lists_every_task_that_the_readme_names(tmp_path):
    out = run("forestall tasks", tmp_path)
    for name in tasks.names():
        assert name in out
        assert f"| `{name}` |" in README


@pytest.mark.parametrize("name", PLANS)
def test_the_results_of_every_plan_are_complete(name, tmp_path):
    for suffix in ("csv", "json"):
        results = ROOT / "benchmarks" / "results" / f"{name}.{suffix}"
        shutil.copy(results, tmp_path / f"copy.{suffix}")
    before = (tmp_path / "copy.csv").read_bytes()
    plan = f"forestall bench benchmarks/plans/{name}.toml"
    run(plan, ROOT, "--out", str(tmp_path / "copy.csv"))
    assert (tmp_path / "copy.csv").read_bytes() == before


@pytest.mark.parametrize("name", PLANS)
def test_no_method_fails_in_the_results_of_any_plan(name):
    rows = read_rows(ROOT / "benchmarks" / "results" / f"{name}.csv")
    assert not {(row.task, row.method, row.error) for row in rows if row.error}


@pytest.mark.parametrize("page", ["README.md", "docs/methods.md"])
def test_the_tables_of_a_page_are_fresh(page, tmp_path):
    shutil.copytree(ROOT / "benchmarks", tmp_path / "benchmarks")
    copy = tmp_path / page
    copy.parent.mkdir(exist_ok=True)
    shutil.copy(ROOT / page, copy)
    command = [sys.executable, "benchmarks/readme.py"]
    subprocess.run(command, cwd=tmp_path, check=True)
    fresh = copy.read_text(encoding="utf-8")
    assert fresh == (ROOT / page).read_text("utf-8"), (
        "run `python benchmarks/readme.py`"
    )


def test_how_often_intervals_hold_is_told_as_in_the_tables():
    command = [sys.executable, "benchmarks/intervals.py"]
    out = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True)
    told = dict(re.findall(r"^\| ([\w-]+) \| 0(\.\d+) ±", out.stdout, re.MULTILINE))
    shown = re.findall(
        r"^\| ([\w-]+) \| staged .*\| (\.\d+) ±[^|]*\|$", README, re.MULTILINE
    )
    shown = {task: cover for task, cover in shown if task in told}
    assert len(shown) == len(told) == 8
    for task, cover in shown.items():
        assert float(told[task]) == pytest.approx(float(cover), abs=0.0051)


def test_every_link_to_a_file_leads_somewhere():
    for target in re.findall(r"\]\(([^)#:]+)\)", README):
        assert (ROOT / target).exists(), target
