"""Everything that the page on scale shows is run."""

import contextlib
import csv
import io
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "docs" / "scale.md"
BLOCKS = re.findall(r"^```python\n(.*?)^```", PAGE.read_text("utf-8"), re.M | re.S)


@pytest.mark.filterwarnings("ignore::ResourceWarning")
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.filterwarnings("ignore::forestall.ExtrapolationWarning")
def test_the_blocks_run_one_after_the_other(tmp_path, monkeypatch):
    pytest.importorskip("distributed")
    monkeypatch.chdir(tmp_path)
    names, out = {}, io.StringIO()
    with contextlib.redirect_stdout(out):
        for code in BLOCKS:
            exec(code, names)
    verdicts, first, resumed, same = out.getvalue().splitlines()
    assert "act" in verdicts
    assert (first, resumed, same) == ("3000 0", "3000 2000", "True")


def filled(folder):
    """The page, with its tables made anew from the results in a folder."""
    (folder / "docs").mkdir()
    shutil.copy(PAGE, folder / "docs")
    command = [sys.executable, "benchmarks/readme.py"]
    subprocess.run(command, cwd=folder, check=True)
    return (folder / "docs" / "scale.md").read_text("utf-8")


@pytest.fixture
def folder(tmp_path):
    old = shutil.ignore_patterns("__pycache__", "plans", "reproduce")
    shutil.copytree(ROOT / "benchmarks", tmp_path / "benchmarks", ignore=old)
    return tmp_path


def test_the_tables_are_fresh(folder):
    told = filled(folder)
    assert told == PAGE.read_text("utf-8"), "run `python benchmarks/readme.py`"


def test_the_tables_are_made_of_the_results(folder):
    results = folder / "benchmarks" / "results" / "speed" / "exact.csv"
    with results.open(encoding="utf-8") as file:
        head, *rows = csv.reader(file)
    named = dict(zip(head, rows[0], strict=True)) | {"task": "other", "ratio": "7.891"}
    with results.open("w", encoding="utf-8") as file:
        csv.writer(file).writerows([head, list(named.values())])
    (line,) = [s for s in filled(folder).splitlines() if s.startswith("| `other` |")]
    assert " | 7.89 | " in line


def test_no_row_of_numbers_is_typed_by_hand():
    marked = r"^<!-- (\w+): begin -->\n.*?^<!-- \1: end -->"
    typed = re.sub(marked, "", PAGE.read_text("utf-8"), flags=re.M | re.S)
    tables = [line for line in typed.splitlines() if line.startswith("|")]
    assert tables
    assert not [line for line in tables if re.search(r"\| *[\d.,]+ *\|", line)]


def test_every_link_to_a_file_leads_somewhere():
    for target in re.findall(r"\]\(([^)#:]+)\)", PAGE.read_text("utf-8")):
        assert (PAGE.parent / target).exists(), target
