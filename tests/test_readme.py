"""Everything the README shows is run."""

import contextlib
import io
import itertools
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest
from pyarrow import csv

from forestall import tasks
from forestall.bench import pooled_markdown, summarise, to_markdown

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```(\w*)\n(.*?)^```", README, re.MULTILINE | re.DOTALL)
NUMBER = re.compile(r"\d+\.?\d*")
FORESTALL = [sys.executable, "-m", "forestall"]


def run(command, cwd, *extra):
    words = command.split("#")[0].split()
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


def test_the_problem_file_and_its_check_work(tmp_path):
    text = next(code for kind, code in BLOCKS if kind == "toml")
    (tmp_path / "problem.toml").write_text(text, encoding="utf-8")
    csv.write_csv(pa.table(tasks.get("bank").history(300, 0)), tmp_path / "history.csv")
    command = "forestall check problem.toml history.csv"
    assert command in README
    out = run(command, tmp_path)
    assert "Adjusted for, before the first action: industry_stability" in out


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


@pytest.mark.parametrize("name", ["foundation", "decisions", "unseen", "ablations"])
def test_the_results_of_every_plan_are_complete(name, tmp_path):
    for suffix in ("csv", "json"):
        results = ROOT / "benchmarks" / "results" / f"{name}.{suffix}"
        shutil.copy(results, tmp_path / f"copy.{suffix}")
    before = (tmp_path / "copy.csv").read_bytes()
    plan = f"forestall bench benchmarks/plans/{name}.toml"
    run(plan, ROOT, "--out", str(tmp_path / "copy.csv"))
    assert (tmp_path / "copy.csv").read_bytes() == before


def between(marker):
    begin, end = f"<!-- {marker}: begin -->", f"<!-- {marker}: end -->"
    return README.split(begin)[1].split(end)[0].strip()


def test_the_tables_of_the_readme_are_fresh():
    results = ROOT / "benchmarks" / "results"
    columns = ["success", "no action", "oracle", "lift share", "by verdict", "cover"]
    table = to_markdown(summarise(results / "decisions.csv"), columns).strip()
    assert between("results") == table, f"put this into the README:\n{table}"
    pooled = pooled_markdown(summarise(results / "unseen.csv")).strip()
    assert between("unseen") == pooled, f"put this into the README:\n{pooled}"


def test_every_link_to_a_file_leads_somewhere():
    for target in re.findall(r"\]\(([^)#:]+)\)", README):
        assert (ROOT / target).exists(), target
