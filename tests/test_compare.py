"""Which method when: the comparison, its table, its advice, its command."""

import csv
import json
import re
import shlex
import warnings
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from typer.testing import CliRunner

from forestall import (
    ForestallWarning,
    MissingExtraError,
    NestedRehearsal,
    Problem,
    RehearsalGraph,
    SpecError,
    baselines,
)
from forestall.cli import app
from forestall.comparison import compare
from forestall.method import Method
from forestall.nuisance import LinearFit
from forestall.standing import ASSUMES, Comparison, Row
from forestall.value import TOO_FEW, UNJUDGED, refusal

QUICK = ["NoAction", "LinearOptimal", "NestedRehearsal"]
PAGE = (Path(__file__).parent.parent / "docs" / "methods.md").read_text("utf-8")

PROBLEM = Problem(
    context=["need"],
    covariates=["trust"],
    actions={"help": (-2.0, 4.0)},
    outcomes=["score"],
    desired=["score >= 1"],
    order=["need", "trust", "help", "score"],
)


def linear_world(n, seed=0):
    rng = np.random.default_rng(seed)
    need, trust = rng.normal(size=(2, n))
    action = 0.5 + 0.3 * need + 0.5 * trust + rng.normal(size=n)
    score = 0.8 * action + 0.5 * trust - 0.3 * need + 0.7 * rng.normal(size=n)
    return {"need": need, "trust": trust, "help": action, "score": score}


class Nearby(Method):
    """A little more help than usual, and a word of caution."""

    def fit(self, problem, history):
        warnings.warn("Careful.", ForestallWarning, stacklevel=2)
        box = {"help": (1.0, 1.6)}
        narrow = Problem.from_dict({**problem.to_dict(), "actions": box})
        return baselines.LinearOptimal(n_draws=8).fit(narrow, history)


class Broken(Method):
    """Fails like a method whose extra is missing."""

    def fit(self, problem, history):  # noqa: ARG002
        raise MissingExtraError("torch", "flows")


class Careless(Method):
    """Fails like a method with a bug."""

    def fit(self, problem, history):  # noqa: ARG002
        raise ZeroDivisionError("oh")


METHODS = {
    "NoAction": baselines.NoAction(),
    "nearby": Nearby(),
    "broken": Broken(),
    "careless": Careless(),
}


@pytest.fixture(scope="module")
def told():
    return compare(PROBLEM, linear_world(400), METHODS, folds=3)


def by_label(told):
    return {row.label: row for row in told.rows}


def test_no_action_is_worth_the_share_of_good_records(told):
    row = by_label(told)["NoAction"]
    assert row.value.value == told.good
    assert row.value.acted == 0.0
    assert (row.gain.value, row.gain.lower, row.gain.upper) == (0.0, 0.0, 0.0)
    assert row.always is None


def test_a_policy_near_history_is_valued_near_its_truth(told):
    rng = np.random.default_rng(9)
    n = 200_000
    need, trust, e = rng.normal(size=(3, n))
    true = float((0.8 * 1.6 + 0.5 * trust - 0.3 * need + 0.7 * e >= 1).mean())
    row = by_label(told)["nearby"]
    assert row.value.acted > 0.9
    assert row.value.effective > 30
    assert row.always.lower <= true + 0.02
    assert row.always.upper >= true - 0.02
    assert row.gain.lower > 0
    assert row.folds == 3
    assert row.remarks == ("Careful.",)
    assert row.fit_seconds > 0
    assert row.decision_seconds > 0


def test_a_method_that_cannot_be_fitted_is_a_row_with_its_reason(told):
    rows = by_label(told)
    assert "pip install 'forestall[flows]'" in rows["broken"].refused
    assert rows["careless"].refused == "ZeroDivisionError: oh"
    assert rows["broken"].value is None


def test_the_advice_names_the_best_that_could_be_judged(told):
    assert told.best.label == "nearby"
    assert told.advice.startswith("Use nearby (")
    assert str(told).endswith(told.advice)
    assert "nothing" in str(told).splitlines()[1]


def test_the_same_seed_gives_the_same_table(told):
    again = compare(PROBLEM, linear_world(400), METHODS, folds=3)
    for one, other in zip(told.rows, again.rows, strict=True):
        if one.value is not None:
            np.testing.assert_array_equal(one.value.psi, other.value.psi)


def test_the_table_comes_in_the_kind_of_the_history():
    records = linear_world(80)
    for kind, expected in [
        (dict, dict),
        (pd.DataFrame, pd.DataFrame),
        (pa.table, pa.Table),
    ]:
        frame = compare(PROBLEM, kind(records), "NoAction", folds=2).to_frame()
        assert isinstance(frame, expected)
        assert [str(name) for name in frame["method"]] == ["NoAction"]


def test_actions_far_from_history_are_refused_and_said_to_be():
    far = Problem.from_dict({**PROBLEM.to_dict(), "actions": {"help": (6.0, 9.0)}})
    told = compare(far, linear_world(150), ["NoAction", "LinearOptimal"], folds=2)
    row = by_label(told)["LinearOptimal"]
    assert row.always.refused == TOO_FEW
    assert np.isnan(row.always.value)


def test_a_biased_graph_gets_no_estimate():
    edge = [("help", "score")]
    graph = RehearsalGraph(edge, edge, ["need", "trust"], bidirected="latent")
    fields = {k: v for k, v in PROBLEM.to_dict().items() if k not in ("order", "graph")}
    problem = Problem(**fields, graph=graph)
    told = compare(problem, linear_world(100), ["LinearOptimal"], folds=2)
    assert told.rows[0].always.refused.startswith("no adjustment is enough")


def test_an_impatient_comparison_says_on_how_many_records_it_rests():
    told = compare(PROBLEM, linear_world(100), ["NoAction"], folds=2, patience=0.0)
    assert told.rows[0].folds == 1
    assert told.rows[0].value.records == 8
    assert told.rows[0].remarks[0].startswith("Costly: judged on 8 of 100 records")


def test_what_was_judged_on_too_few_records_gets_no_estimate():
    told = compare(PROBLEM, linear_world(100), ["NoAction"], folds=2, patience=0.0)
    assert told.rows[0].value.effective == 8
    assert told.rows[0].refused == UNJUDGED
    assert np.isnan(told.rows[0].value.value)
    assert told.choice is None
    assert told.advice.endswith("Nothing can be said of NoAction: " + UNJUDGED + ".")


def test_gaps_are_left_out_where_the_problem_says_so():
    records = linear_world(90)
    records["score"][3] = np.nan
    dropping = Problem.from_dict({**PROBLEM.to_dict(), "missing": "drop"})
    assert compare(dropping, records, "NoAction", folds=2).records == 89


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"folds": 1}, "Expected folds as a whole number of 2 or more; got 1"),
        ({"methods": ["LinearOptimum"]}, "Did you mean 'LinearOptimal'"),
        ({"methods": []}, "Expected at least one method to judge; got none"),
        ({"methods": ["NoAction"] * 2}, "Expected every method once; got NoAction"),
        ({"methods": {"mine": 3}}, "Expected a method for 'mine'; got 3"),
        ({"methods": ["?"]}, "got '?'. Use some of these, or none for all."),
        ({"patience": -1.0}, "Expected patience in seconds, zero or more; got -1"),
        ({"patience": float("nan")}, "in seconds, zero or more; got nan"),
    ],
)
def test_what_cannot_be_compared_is_refused_with_a_remedy(change, message):
    with pytest.raises(SpecError, match=re.escape(message)):
        compare(PROBLEM, linear_world(60), **change)


def test_too_few_records_are_refused():
    with pytest.raises(SpecError, match="Expected at least 50 complete records"):
        compare(PROBLEM, linear_world(40), ["NoAction"])


def row_of(kind, psi):
    n = len(psi)
    base = refusal("", n)
    mean = float(psi.mean())
    value = replace(base, value=mean, lower=mean, upper=mean, psi=psi)
    return Row(label=kind, kind=kind, assumes="", value=value)


def standing(*rows, fine=True):
    return Comparison(
        rows=rows,
        records=200,
        left_out=0,
        folds=5,
        good=0.5,
        linear=LinearFit(0.0 if fine else 0.5, 0.0, 0.0),
        steps=1,
    )


def test_the_simplest_that_cannot_be_told_from_the_best_is_advised():
    rng = np.random.default_rng(0)
    best = 0.8 + rng.normal(0, 0.3, 200)
    tied = best - 0.005
    worse = best - 0.2
    told = standing(
        row_of("NoAction", worse),
        row_of("StagedRehearsal", best),
        row_of("LinearOptimal", tied),
    )
    assert told.choice.kind == "LinearOptimal"
    assert "simplest that cannot be told from the best (StagedRehearsal)" in told.advice
    assert "and the outcomes look linear, with Gaussian noise" in told.advice
    bent = standing(
        row_of("LinearOptimal", tied), row_of("NoAction", worse), fine=False
    )
    assert "but a linear fit of the outcomes misses by 50% more" in bent.advice
    idle = standing(row_of("NoAction", best), row_of("LinearOptimal", tied))
    assert idle.advice.startswith("Leave things as they are")


def test_what_could_not_be_judged_is_never_advised():
    psi = np.full(50, 0.4)
    silent = Row(label="CARE", kind="CARE", assumes="", value=refusal(TOO_FEW, 50))
    told = standing(row_of("NoAction", psi), silent)
    assert told.advice.startswith("Nothing but no action (40% good")
    assert f"Nothing can be said of CARE: {TOO_FEW}." in told.advice
    assert "none could be judged" in standing(silent).advice
    biased = replace(silent, label="MICNS", value=refusal("it is biased.", 50))
    assert "Nothing can be said of MICNS: it is biased." in standing(biased).advice


@pytest.fixture
def files(tmp_path):
    problem = PROBLEM.to_file(tmp_path / "problem.toml")
    records, path = linear_world(120), tmp_path / "history.csv"
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(records)
        writer.writerows(zip(*records.values(), strict=True))
    return problem, path


def invoke(*args):
    return CliRunner().invoke(app, [str(a) for a in args])


def test_the_command_prints_the_table_and_the_advice(files):
    result = invoke("compare", *files, "--methods", ",".join(QUICK), "--folds", 2)
    assert result.exit_code == 0, result.output
    for text in (*QUICK, "against no action", "assumes", "linear, with Gaussian noise"):
        assert text in result.stdout
    assert "120 records in 2 parts" in result.stdout
    assert "\x1b" not in result.stdout


def test_the_command_speaks_json(files):
    result = invoke("compare", *files, "--methods", "NoAction", "--folds", 2, "--json")
    told = json.loads(result.stdout)
    assert told["choice"] == "NoAction"
    assert told["methods"][0]["value"] == told["good"]


def test_the_command_refuses_bad_input_with_exit_code_two(files):
    result = invoke("compare", *files, "--methods", "Oracle")
    assert result.exit_code == 2
    assert "Expected methods from NoAction" in result.stderr
    assert invoke("compare", files[0], "nowhere.csv").exit_code == 2
    assert "Example: forestall compare" in invoke("compare", "--help").output


BLOCKS = re.findall(r"^```(\w*)\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)


def test_the_page_runs_and_names_every_method():
    assert {kind for kind, _ in BLOCKS} == {"console", "python"}
    for kind, code in BLOCKS:
        if kind == "python":
            exec(compile(code, "docs/methods.md", "exec"), {})
    for name in ASSUMES:
        assert f"`{name}`" in PAGE


def test_the_command_on_the_page_runs_as_it_stands(files, monkeypatch):
    monkeypatch.chdir(files[0].parent)
    (line,) = [code for kind, code in BLOCKS if kind == "console"]
    name, *words = shlex.split(line.removeprefix("$ "))
    assert name == "forestall"
    # All nine would take minutes: networks are among them.
    result = invoke(*words, "--methods", ",".join(QUICK), "--folds", 2, "--json")
    assert result.exit_code == 0, result.output
    told = json.loads(result.stdout)
    assert [row["method"] for row in told["methods"]] == QUICK
    assert told["records"] == 120


def test_labels_may_differ_from_classes():
    told = compare(
        PROBLEM, linear_world(80), {"mine": NestedRehearsal(bandwidth=2.0)}, folds=2
    )
    assert told.rows[0].assumes == ASSUMES["NestedRehearsal"]
