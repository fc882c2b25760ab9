"""A stranger's path, as one story: from a table of records to a page in a browser."""

import csv
import json

import pytest

from browsing import assert_shows, browsing, shown
from forestall import load
from stranger import ROLES, curl_or_skip, run, serving, write_contexts, write_history

pytestmark = pytest.mark.heavy


@pytest.fixture(scope="module")
def chromium():
    with browsing() as browser:
        yield browser


@pytest.fixture
def ask(tmp_path):
    """What curl gets for a body."""
    curl = curl_or_skip()

    def asked(address, body):
        kind = "content-type: application/json"
        words = curl, "-sS", "--fail", "-H", kind, "-d", json.dumps(body), address
        (decision,) = json.loads(run(*words, cwd=tmp_path))["decisions"]
        return decision

    return asked


def test_a_table_of_records_becomes_advice_on_a_page(chromium, ask, tmp_path):
    write_history(tmp_path / "history.csv", n=300)
    write_contexts(tmp_path / "contexts.csv", n=2)
    for words in (
        ("init", "history.csv", *ROLES, "-o", "problem.toml"),
        ("check", "problem.toml", "history.csv"),
        ("fit", "problem.toml", "history.csv", "-o", "loans.forestall"),
        ("recommend", "loans.forestall", "contexts.csv", "-o", "decisions.csv"),
        ("report", "loans.forestall", "contexts.csv", "--figures=1"),
    ):
        run(*words, cwd=tmp_path)
    assert type(load(tmp_path / "loans.forestall").method).__name__ == "StagedRehearsal"
    case, decision = (
        first_row(tmp_path / f"{n}.csv") for n in ("contexts", "decisions")
    )
    context = {"age": float(case["age"]), "sector": case["sector"]}

    with serving("loans.forestall", cwd=tmp_path) as url:
        told = ask(f"{url}/v1/recommend", {"contexts": [context]})
        assert_agree(decision, told)
        report = (tmp_path / "report.html").read_text(encoding="utf-8")
        assert told["explanation"] in report
        question = {"contexts": [context], "actions": told["actions"]}
        same = ask(f"{url}/v1/whatif", question)
        with shown(chromium, url) as watched:
            paste(watched, case)
            assert watched.text("sentence") == told["explanation"]
            assert_shows(watched, same)
            rate = float(watched.box("rate").input_value())
            assert rate == pytest.approx(told["actions"]["rate"], rel=1e-3)


def first_row(path):
    with path.open(encoding="utf-8") as file:
        return next(csv.DictReader(file))


def assert_agree(decision, told):
    """Check that the file says of a case what the service does."""
    assert decision["verdict"] == told["verdict"]
    assert float(decision["rate"]) == pytest.approx(told["actions"]["rate"], abs=1e-6)
    for name in ("probability", "lower", "upper", "no_action", "support"):
        assert float(decision[name]) == pytest.approx(told[name], abs=1e-6)


def paste(watched, case):
    """Hand the page a row as it stands in the file."""
    watched.page.click("summary")
    watched.page.fill("#pasted", ",".join(case) + "\n" + ",".join(case.values()))
    watched.page.click("#use")
    watched.quiet()
