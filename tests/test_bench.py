"""Benchmarks: numbers that stay put, runs that go on, tables that add up."""

from __future__ import annotations

import csv
import io
import json
import math
import os
import signal
import subprocess
import sys
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.console import Console

from forestall import Ascent, MissingExtraError, NestedRehearsal, PlanError
from forestall.baselines import NoAction
from forestall.bench import (
    Plan,
    Row,
    pool,
    read_rows,
    run,
    score,
    summarise,
    to_markdown,
    to_rich,
)
from forestall.bench import run as run_function
from forestall.bench.progress import Progress
from forestall.bench.results import append, complete_units, to_csv
from forestall.bench.score import Trial
from forestall.bench.summary import clustered_error, summarise_rows
from forestall.method import Method

PLAN: dict[str, Any] = {
    "name": "tiny",
    "tasks": ["bank", "non-syn1"],
    "seeds": 2,
    "n": 60,
    "contexts": 2,
    "draws": 100,
    "methods": {
        "nested": {"method": "NestedRehearsal", "ascent": {"n_steps": 5}},
        "none": {"method": "NoAction"},
    },
}
TIMINGS = {"fit_seconds": 0.0, "decide_seconds": 0.0}


def plan_of(**changes: Any) -> Plan:
    return Plan.from_dict({**PLAN, **changes})


def timeless(path: Path, chosen: Callable[[Row], bool] = lambda _: True) -> list[str]:
    """The rows without their timings, as text, so that NaN equals NaN."""
    rows = (replace(row, **TIMINGS) for row in read_rows(path) if chosen(row))
    return [to_csv([row], header=False) for row in rows]


def of_seed(path: Path, seed: int) -> list[str]:
    return timeless(path, lambda row: row.seed == seed)


@pytest.fixture
def quick_oracles(monkeypatch: pytest.MonkeyPatch) -> None:
    """Oracles by a guess; the search itself is tested with the tasks."""

    def guess(trial: Trial, context: int) -> score.Yardstick:
        none = trial.success(context, None)
        return score.Yardstick(none, min(1.0, none + 0.5), min(1.0, none + 0.25))

    monkeypatch.setattr(score, "_yardstick", guess)


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tiny plan, run without interruption, with the true oracles."""
    out = tmp_path_factory.mktemp("bench") / "tiny.csv"
    return run(plan_of(), out, progress=False)


@dataclass(frozen=True, kw_only=True)
class Broken(Method):
    """Fails in its own way."""

    def fit(self, problem: Any, history: Any) -> Any:
        del problem, history
        raise RuntimeError("no luck,\nnone at all")


@dataclass(frozen=True, kw_only=True)
class Unequipped(Method):
    """Needs a package that is not there."""

    def fit(self, problem: Any, history: Any) -> Any:
        del problem, history
        raise MissingExtraError("abacus", "beads")


@dataclass(frozen=True, kw_only=True)
class Astray(Method):
    """Leaves the box in its first decision, and warns."""

    def fit(self, problem: Any, history: Any) -> Any:
        policy = NoAction().fit(problem, history)

        class Led:
            def recommend(self, contexts: Any) -> Any:
                warnings.warn("mind the box", UserWarning, stacklevel=1)
                decisions = policy.recommend(contexts)
                actions = decisions.actions.copy()
                actions[0] = 99.0
                return replace(decisions, actions=actions)

        return Led()


@dataclass(frozen=True, kw_only=True)
class Spoiler(Method):
    """Overwrites the history it is given, and keeps what it was told."""

    def fit(self, problem: Any, history: Any) -> Any:
        assert set(history) == set(problem.variables)
        policy = NoAction().fit(problem, {k: v.copy() for k, v in history.items()})
        for values in history.values():
            values[:] = 0.0
        return policy


# Plans


def test_a_plan_reads_methods_and_nested_hyperparameters() -> None:
    table = {
        "method": "NestedRehearsal",
        "sharpness": 10,
        "bandwidth": {"context": 1, "actions": 0.5},
        "ascent": {"n_steps": 7},
    }
    plan = plan_of(methods={"ours": table})
    expected = NestedRehearsal(
        sharpness=10.0,
        bandwidth={"context": 1.0, "actions": 0.5},
        ascent=Ascent(n_steps=7),
    )
    assert plan.methods["ours"] == expected
    assert isinstance(plan.methods["ours"].sharpness, float)  # type: ignore[attr-defined]


def test_a_number_of_seeds_counts_them_and_a_list_names_them() -> None:
    assert plan_of(seeds=3).seeds == (0, 1, 2)
    assert plan_of(seeds=[7, 3]).seeds == (7, 3)


def test_a_range_of_random_tasks_is_written_out() -> None:
    plan = plan_of(tasks=["bank", "random-8..11", "random-3"])
    tasks = ("bank", "random-8", "random-9", "random-10", "random-11", "random-3")
    assert plan.tasks == tasks
    assert plan.to_dict()["tasks"] == list(tasks)


def nested(**values: Any) -> dict[str, Any]:
    return {"methods": {"ours": {"method": "NestedRehearsal", **values}}}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"drawz": 3}, "got 'drawz'. Did you mean 'draws'?"),
        ({"tasks": ["bonk"]}, "got 'bonk'. Did you mean 'bank'?"),
        ({"tasks": "bank"}, "Expected tasks as a list of names"),
        ({"tasks": ["bank", "bank"]}, "every one of tasks once; got 'bank' again"),
        ({"tasks": ["random-x"]}, "random-0, random-1 and so on; got 'random-x'"),
        ({"tasks": ["random-4..2"]}, "got 'random-4..2'. Write it like 'random-0..19'"),
        (
            {"tasks": ["random-0..3", "random-2"]},
            "every one of tasks once; got 'random-2' again",
        ),
        ({"seeds": [1, 1]}, "every one of seeds once; got 1 again"),
        ({"seeds": 0}, "Expected seeds as a number of them or as a list"),
        ({"n": 2.5}, "Expected n as a whole number of 1 or more; got 2.5"),
        ({"draws": True}, "Expected draws as a whole number of 1 or more; got True"),
        ({"wider": -0.5}, "Expected wider as a number of 0 or more; got -0.5"),
        ({"seed": -1}, "Expected seed as a whole number of 0 or more; got -1"),
        ({"problem": "tree"}, "Expected problem = 'order' or 'graph'; got 'tree'"),
        ({"name": "a/b"}, "Expected a name of letters"),
        ({"methods": {}}, "Expected at least one table [methods.label]"),
        ({"methods": {"x": {}}}, "Expected method = '...' in [methods.x]"),
        (
            {"methods": {"x": {"method": "NestedRehersal"}}},
            "got 'NestedRehersal'. Did you mean 'NestedRehearsal'?",
        ),
        (nested(sharpnes=3.0), "got 'sharpnes'. Did you mean 'sharpness'?"),
        (nested(ascent={"steps": 3}), "in 'ascent' of [methods.ours]"),
        (
            nested(sharpness=-1.0),
            "In [methods.ours]: Expected sharpness above zero; got -1.0.",
        ),
    ],
)
def test_a_plan_that_makes_no_sense_says_what_to_change(
    changes: dict[str, Any], message: str
) -> None:
    with pytest.raises(PlanError) as caught:
        plan_of(**changes)
    assert message in str(caught.value)


def test_a_plan_says_which_keys_are_missing() -> None:
    with pytest.raises(PlanError, match="missing: seeds, draws"):
        Plan.from_dict({k: v for k, v in PLAN.items() if k not in ("seeds", "draws")})


def test_a_file_that_is_no_plan_is_named(tmp_path: Path) -> None:
    with pytest.raises(PlanError, match=r"could not read '.*absent\.toml'"):
        Plan.from_file(tmp_path / "absent.toml")
    (tmp_path / "bad.toml").write_text("name = ")
    with pytest.raises(PlanError, match=r"Expected TOML in '.*bad\.toml'"):
        Plan.from_file(tmp_path / "bad.toml")


@pytest.mark.parametrize("name", ["smoke", "foundation"])
def test_the_plans_of_the_repository_can_be_read(name: str) -> None:
    folder = Path(__file__).parents[1] / "benchmarks"
    plan = Plan.from_file(folder / "plans" / f"{name}.toml")
    assert plan.default_out == folder / "results" / f"{name}.csv"
    assert len(plan.tasks) == 5
    assert list(plan.methods) == ["nested", "conditional", "none"]


@pytest.mark.parametrize(("name", "n_tasks"), [("decisions", 8), ("unseen", 30)])
def test_the_plans_for_the_default_method_can_be_read(name: str, n_tasks: int) -> None:
    folder = Path(__file__).parents[1] / "benchmarks"
    plan = Plan.from_file(folder / "plans" / f"{name}.toml")
    assert len(plan.tasks) == n_tasks
    assert list(plan.methods)[:2] == ["staged", "nested"]
    assert (plan.n, plan.contexts) == (1000, 16)


def test_results_of_a_plan_elsewhere_go_to_the_current_folder() -> None:
    assert plan_of().default_out == Path("tiny.csv")


def test_the_fingerprint_knows_every_hyperparameter_but_not_the_name() -> None:
    same = plan_of(name="other").fingerprint
    assert plan_of().fingerprint == same
    changes: list[dict[str, Any]] = [{"n": 61}, {"seed": 1}, nested(sharpness=3.0)]
    changes.append({"wider": 1.0})
    others = {plan_of(**change).fingerprint for change in changes}
    assert len(others | {same}) == 5
    # Results of before there was such a thing stand.
    assert plan_of(wider=0.0).fingerprint == same


def test_methods_are_told_the_graph_only_when_the_plan_says_so() -> None:
    (order,) = plan_of(tasks=["bank"], seeds=1).trials()
    (graph,) = plan_of(tasks=["bank"], seeds=1, problem="graph").trials()
    assert order.question().graph is None
    assert ("interest_rate", "roi") in graph.question().graph.edges
    assert order.success(0, None) == graph.success(0, None)


# Running


def test_a_plan_may_let_more_be_feasible() -> None:
    (usual,) = plan_of(tasks=["bank"], seeds=1).trials()
    (wider,) = plan_of(tasks=["bank"], seeds=1, wider=0.5).trials()
    assert wider.question().actions == {"interest_rate": (-0.5, 1.5)}
    assert wider.question().order == usual.question().order
    assert wider.success(0, {"interest_rate": 1.4}) < usual.success(0, None)
    for name, values in usual.history().items():
        np.testing.assert_array_equal(values, wider.history()[name])


def test_rows_come_in_the_order_of_the_plan(finished: Path) -> None:
    keys = [(r.task, r.seed, r.method, r.context) for r in read_rows(finished)]
    assert keys == [
        (task, seed, method, context)
        for task in ("bank", "non-syn1")
        for seed in (0, 1)
        for method in ("nested", "none")
        for context in (0, 1)
    ]


def test_truths_are_probabilities_and_shared_by_the_methods(finished: Path) -> None:
    rows = read_rows(finished)
    truth = {}
    for row in rows:
        told = (row.no_action, row.oracle, row.supported_oracle)
        assert all(0.0 <= p <= 1.0 for p in (*told, row.success))
        assert truth.setdefault((row.task, row.seed, row.context), told) == told
    assert len(set(truth.values())) > 1


def test_doing_nothing_is_judged_as_doing_nothing(finished: Path) -> None:
    rows = [row for row in read_rows(finished) if row.method == "none"]
    for row in rows:
        assert row.success == row.verdict_success == row.no_action
        assert (row.verdict, row.actions) == ("leave", "{}")


def test_a_verdict_other_than_act_is_judged_as_no_action(finished: Path) -> None:
    for row in read_rows(finished):
        does = row.success if row.verdict == "act" else row.no_action
        assert row.verdict_success == does


def test_a_success_is_the_truth_of_the_action_on_record(finished: Path) -> None:
    plan = plan_of()
    trials = {(trial.task, trial.seed): trial for trial in plan.trials()}
    for row in read_rows(finished):
        trial = trials[row.task, row.seed]
        action = json.loads(row.actions)
        assert trial.success(row.context, action) == row.success
        assert set(action) <= set(trial.truth.problem.actions)


def test_the_record_tells_plan_code_machine_and_time(finished: Path) -> None:
    told = json.loads(finished.with_suffix(".json").read_text())
    assert told["fingerprint"] == plan_of().fingerprint
    assert told["complete"] is True
    (only,) = told["runs"]
    assert only["units"] == 8
    assert only["seconds"] == told["seconds"] > 0
    assert {"python", "numpy", "forestall"} <= set(only["versions"])
    assert only["machine"]["cpus"] == os.cpu_count()


@pytest.mark.usefixtures("quick_oracles")
def test_the_same_plan_gives_the_same_numbers_twice(tmp_path: Path) -> None:
    one = run(plan_of(), tmp_path / "one.csv", progress=False)
    two = run(plan_of(), tmp_path / "two.csv", progress=False)
    assert timeless(one) == timeless(two)


@pytest.mark.usefixtures("quick_oracles")
def test_another_method_task_or_seed_moves_no_number(tmp_path: Path) -> None:
    small = plan_of(
        tasks=["non-syn1"], seeds=[1], methods={"none": {"method": "NoAction"}}
    )
    alone = timeless(run(small, tmp_path / "a.csv", progress=False))
    among = timeless(run(plan_of(), tmp_path / "b.csv", progress=False))
    assert len(alone) == 2
    assert set(alone) < set(among)


@pytest.mark.usefixtures("quick_oracles")
def test_another_plan_seed_moves_every_history(tmp_path: Path) -> None:
    one = run(plan_of(), tmp_path / "one.csv", progress=False)
    two = run(plan_of(seed=1), tmp_path / "two.csv", progress=False)
    pairs = zip(read_rows(one), read_rows(two), strict=True)
    assert all(a.probability != b.probability for a, b in pairs)


@pytest.mark.usefixtures("quick_oracles")
def test_random_tasks_run_like_any_other(tmp_path: Path) -> None:
    plan = plan_of(tasks=["random-0..2"], n=100, seeds=1)
    rows = read_rows(run(plan, tmp_path / "a.csv", progress=False))
    assert [row.error for row in rows] == [""] * 12
    assert {row.task for row in rows} == {"random-0", "random-1", "random-2"}


def test_two_processes_give_the_numbers_of_one(finished: Path, tmp_path: Path) -> None:
    out = run(plan_of(seeds=[1]), tmp_path / "two.csv", jobs=2, progress=False)
    assert timeless(out) == of_seed(finished, 1)


@pytest.mark.usefixtures("quick_oracles")
def test_a_method_cannot_spoil_the_history_of_the_next(tmp_path: Path) -> None:
    plan = replace(plan_of(), methods={"bad": Spoiler(), "none": NoAction()})
    rows = read_rows(run(plan, tmp_path / "a.csv", progress=False))
    told = {
        label: [r.probability for r in rows if r.method == label]
        for label in ("bad", "none")
    }
    assert told["bad"] == told["none"]


@pytest.mark.usefixtures("quick_oracles")
def test_a_method_that_fails_is_rows_with_its_error(tmp_path: Path) -> None:
    plan = replace(plan_of(), methods={"broken": Broken(), "none": NoAction()})
    rows = read_rows(run(plan, tmp_path / "a.csv", progress=False))
    broken = [row for row in rows if row.method == "broken"]
    assert len(broken) == 8
    for row in broken:
        assert row.error == "RuntimeError: no luck, none at all"
        assert math.isnan(row.success)
        assert 0.0 <= row.oracle <= 1.0
    assert not any(row.error for row in rows if row.method == "none")


@pytest.mark.usefixtures("quick_oracles")
@pytest.mark.parametrize("jobs", [1, 2])
def test_a_package_that_is_missing_stops_the_run_and_is_no_result(
    tmp_path: Path, jobs: int
) -> None:
    plan = replace(plan_of(), methods={"none": NoAction(), "lame": Unequipped()})
    with pytest.raises(MissingExtraError, match=r"pip install 'forestall\[beads\]'"):
        run(plan, tmp_path / "a.csv", progress=False, jobs=jobs)
    assert not [row for row in read_rows(tmp_path / "a.csv") if row.error]


@pytest.mark.usefixtures("quick_oracles")
def test_too_few_records_are_an_error_of_each_method_not_a_crash(
    tmp_path: Path,
) -> None:
    rows = read_rows(run(plan_of(n=3), tmp_path / "a.csv", progress=False))
    assert all(row.error.startswith("DataError: Expected") for row in rows)


@pytest.mark.usefixtures("quick_oracles")
def test_an_action_outside_the_box_is_an_error_of_its_row_alone(
    tmp_path: Path,
) -> None:
    plan = replace(plan_of(tasks=["bank"], seeds=1), methods={"astray": Astray()})
    first, second = read_rows(run(plan, tmp_path / "a.csv", progress=False))
    assert "Expected the action 'interest_rate' in [0, 1]; got 99" in first.error
    assert second.error == ""
    assert "UserWarning: mind the box" in second.warnings


# Going on


def interrupted_after(units: int, monkeypatch: pytest.MonkeyPatch) -> None:
    done = []

    def counted(path: Path, rows: list[Row]) -> None:
        if len(done) == units:
            raise KeyboardInterrupt
        append(path, rows)
        done.append(rows)

    module = sys.modules[run_function.__module__]
    monkeypatch.setattr(module, "append", counted)


@pytest.mark.usefixtures("quick_oracles")
@pytest.mark.parametrize("units", [0, 1, 5])
def test_an_interrupted_run_goes_on_where_it_was(
    units: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = timeless(run(plan_of(), tmp_path / "whole.csv", progress=False))
    out = tmp_path / "part.csv"
    with monkeypatch.context() as patch:
        interrupted_after(units, patch)
        with pytest.raises(KeyboardInterrupt):
            run(plan_of(), out, progress=False)
    before = read_rows(out)
    assert len(before) == 2 * units
    run(plan_of(), out, progress=False)
    assert timeless(out) == whole
    kept = [to_csv([row], header=False) for row in before]
    assert out.read_text().startswith(to_csv([], header=True) + "".join(kept))
    told = json.loads(out.with_suffix(".json").read_text())
    assert [each["units"] for each in told["runs"]] == [units, 8 - units]


@pytest.mark.usefixtures("quick_oracles")
@pytest.mark.parametrize("cut", [1, 40, 400, 900])
def test_a_file_torn_anywhere_is_made_whole(cut: int, tmp_path: Path) -> None:
    out = run(plan_of(), tmp_path / "a.csv", progress=False)
    whole = timeless(out)
    out.write_bytes(out.read_bytes()[:-cut])
    run(plan_of(), out, progress=False)
    assert timeless(out) == whole


def test_going_on_reads_the_oracles_of_finished_rows(
    finished: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "tiny.csv"
    lines = finished.read_text().splitlines(keepends=True)
    out.write_text("".join(line for line in lines if ",none," not in line))
    record = finished.with_suffix(".json").read_text()
    out.with_suffix(".json").write_text(record)
    monkeypatch.setattr(score, "_yardstick", lambda *_: pytest.fail("searched again"))
    run(plan_of(), out, progress=False)
    assert timeless(out) == timeless(finished)


def test_a_finished_run_is_left_as_it_is(finished: Path) -> None:
    files = (finished, finished.with_suffix(".json"))
    before = [(f.read_bytes(), f.stat().st_mtime_ns) for f in files]
    run(plan_of(), finished, progress=False)
    assert [(f.read_bytes(), f.stat().st_mtime_ns) for f in files] == before


def wait_until(condition: Callable[[], bool], process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert process.poll() is None, "it ended by itself"
        assert time.monotonic() < deadline, "nothing was written"
        time.sleep(0.005)


KILLED = """
import sys
from forestall.bench import Plan, run
if __name__ == "__main__":
    run(Plan.from_file(sys.argv[1]), sys.argv[2], jobs=int(sys.argv[3]))
"""


@pytest.mark.parametrize("jobs", [1, 2])
def test_a_killed_run_goes_on_and_loses_nothing(
    jobs: int, finished: Path, tmp_path: Path
) -> None:
    out, plan, script = (tmp_path / n for n in ("a.csv", "tiny.toml", "script.py"))
    plan.write_text(toml({**PLAN, "seeds": [0]}))
    script.write_text(KILLED)
    command = [sys.executable, str(script), str(plan), str(out), str(jobs)]
    with subprocess.Popen(command, stderr=subprocess.DEVNULL) as process:
        wait_until(lambda: out.exists() and out.read_text().count("\n") > 2, process)
        workers = children(process.pid)
        process.send_signal(signal.SIGKILL)
    kept = read_rows(out)
    assert 2 <= len(kept) < 8
    with out.open("a") as file:
        file.write("non-syn1,nested,0,0,60,10")
    run(Plan.from_file(plan), out, progress=False)
    assert timeless(out) == of_seed(finished, 0)
    timings = {row.fit_seconds for row in read_rows(out)}
    assert {row.fit_seconds for row in kept} <= timings
    assert not any(is_running(pid) for pid in workers)


def children(pid: int) -> list[int]:
    """The processes of a pool, where the system tells."""
    told = Path(f"/proc/{pid}/task/{pid}/children")
    return [int(each) for each in told.read_text().split()] if told.exists() else []


def is_running(pid: int) -> bool:
    # A process that has ended may wait there, as a zombie, for somebody to notice.
    told = Path(f"/proc/{pid}/stat")
    return told.exists() and told.read_text().rpartition(")")[2].split()[0] != "Z"


def toml(plan: dict[str, Any]) -> str:
    head = [f"{k} = {json.dumps(v)}" for k, v in plan.items() if k != "methods"]
    tables = [
        "\n".join(
            [f"[methods.{label}]", f"method = {json.dumps(table['method'])}"]
            + ["ascent = {n_steps = 5}"] * ("ascent" in table)
        )
        for label, table in plan["methods"].items()
    ]
    return "\n".join(head + tables) + "\n"


# Whose file it is


@pytest.mark.usefixtures("quick_oracles")
def test_results_of_another_plan_are_refused_until_asked_to_begin_anew(
    tmp_path: Path,
) -> None:
    out = run(plan_of(), tmp_path / "a.csv", progress=False)
    before = out.read_bytes()
    with pytest.raises(PlanError) as caught:
        run(plan_of(n=70, draws=50), out, progress=False)
    assert "another plan, which differs in n, draws" in str(caught.value)
    assert "Use --fresh to begin anew, or another --out" in str(caught.value)
    assert out.read_bytes() == before
    run(plan_of(n=70), out, fresh=True, progress=False)
    assert {row.n for row in read_rows(out)} == {70}
    told = json.loads(out.with_suffix(".json").read_text())
    assert len(told["runs"]) == 1


def test_results_without_their_record_are_refused(
    finished: Path, tmp_path: Path
) -> None:
    out = tmp_path / "a.csv"
    out.write_bytes(finished.read_bytes())
    with pytest.raises(PlanError, match=r"Expected the record '.*a\.json'"):
        run(plan_of(), out, progress=False)


@pytest.mark.parametrize("fresh", [True, False])
def test_files_that_no_benchmark_wrote_are_never_overwritten(
    fresh: bool, tmp_path: Path
) -> None:
    out = tmp_path / "mine.csv"
    out.with_suffix(".json").write_text('{"mine": true}')
    with pytest.raises(PlanError, match=r"Expected '.*mine\.json' to be the record"):
        run(plan_of(), out, fresh=fresh, progress=False)
    out.with_suffix(".json").unlink()
    out.write_text("age,sex\n1,2\n")
    with pytest.raises(PlanError, match="Expected"):
        run(plan_of(), out, fresh=fresh, progress=False)
    assert out.read_text() == "age,sex\n1,2\n"
    assert sorted(p.name for p in tmp_path.iterdir()) == ["mine.csv"]


def test_results_end_in_csv_and_jobs_are_positive(tmp_path: Path) -> None:
    with pytest.raises(PlanError, match=r"ends in \.csv; got"):
        run(plan_of(), tmp_path / "a.json", progress=False)
    with pytest.raises(PlanError, match="Expected jobs of 1 or more; got 0"):
        run(plan_of(), tmp_path / "a.csv", jobs=0, progress=False)


# Rows

PROBABILITY = st.floats(0.0, 1.0)
TEXT = st.text(st.characters(codec="utf-8"), max_size=20)
ROWS = st.builds(
    Row,
    task=st.sampled_from(["bank", "non-syn1"]),
    method=st.sampled_from(["a", 'b "c", d']),
    seed=st.integers(0, 9),
    context=st.integers(0, 9),
    n=st.just(10),
    draws=st.just(100),
    success=PROBABILITY | st.just(math.nan),
    no_action=PROBABILITY,
    oracle=PROBABILITY,
    supported_oracle=PROBABILITY,
    extrapolates=st.booleans(),
    error=TEXT,
)


@settings(max_examples=50)
@given(rows=st.lists(ROWS, max_size=3))
def test_rows_survive_writing_and_reading(
    rows: list[Row], tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.mktemp("rows") / "a.csv"
    path.write_text(to_csv(rows, header=True), encoding="utf-8", newline="")
    tidy = [replace(row, error=" ".join(row.error.split())) for row in rows]
    again = read_rows(path)
    assert to_csv(again, header=True) == to_csv(tidy, header=True)
    assert [row.success for row in again] == pytest.approx(
        [row.success for row in rows], abs=0.0, nan_ok=True
    )


def test_a_damaged_line_is_named(finished: Path, tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    lines = finished.read_text().splitlines(keepends=True)
    path.write_text(lines[0] + lines[1].replace("bank,nested,0", "bank,nested,zero"))
    with pytest.raises(PlanError, match=r"line 2 of .*zero"):
        read_rows(path)


def test_only_units_with_all_their_contexts_count_as_done() -> None:
    rows = [a_row(seed=0, context=0), a_row(seed=0, context=1), a_row(seed=1)]
    assert list(complete_units(rows, 2)) == [("bank", 0, "m")]


# Tables


def a_row(**changes: Any) -> Row:
    plain: dict[str, Any] = {
        "task": "bank",
        "method": "m",
        "seed": 0,
        "context": 0,
        "n": 10,
        "draws": 1000,
        "success": 0.5,
        "verdict_success": 0.5,
        "no_action": 0.2,
        "oracle": 0.8,
        "supported_oracle": 0.6,
        "verdict": "act",
        **TIMINGS,
    }
    return Row(**{**plain, **changes})


def made_up(rng: np.random.Generator, success: str | None = None) -> list[Row]:
    """Rows of 3 seeds and 4 contexts; the success copied from another column."""
    rows = []
    for seed in range(3):
        for context in range(4):
            p, none, best, supported, told = rng.uniform(size=5)
            row = a_row(
                seed=seed,
                context=context,
                success=p,
                no_action=none * 0.3,
                oracle=0.7 + best * 0.3,
                supported_oracle=0.4 + supported * 0.3,
                probability=told,
                predicted_no_action=none * 0.3,
                lower=max(0.0, told - 0.2),
                upper=min(1.0, told + 0.2),
                verdict=("act", "leave", "abstain")[rng.integers(3)],
                fit_seconds=1.0 + seed,
            )
            rows.append(replace(row, success=getattr(row, success or "success")))
    return rows


def test_the_oracle_has_all_of_the_lift_and_no_action_none(
    rng: np.random.Generator,
) -> None:
    oracle = summarise_rows(made_up(rng, "oracle"))
    assert oracle.lift_share == pytest.approx(1.0)
    assert oracle.lift_share_se == pytest.approx(0.0, abs=1e-12)
    assert not oracle.above_oracle
    nothing = summarise_rows(made_up(rng, "no_action"))
    assert nothing.lift_share == nothing.supported_lift_share == 0.0
    supported = summarise_rows(made_up(rng, "supported_oracle"))
    assert supported.supported_lift_share == pytest.approx(1.0)


def test_a_summary_equals_a_slow_and_obvious_one(rng: np.random.Generator) -> None:
    rows = made_up(rng)
    told = summarise_rows(rows)
    mean = lambda values: sum(values) / len(values)  # noqa: E731
    p = mean([row.success for row in rows])
    p0 = mean([row.no_action for row in rows])
    p1 = mean([row.oracle for row in rows])
    assert told.success == pytest.approx(p)
    assert told.lift_share == pytest.approx((p - p0) / (p1 - p0))
    by_seed = [mean([r.success for r in rows if r.seed == s]) for s in range(3)]
    se = np.std(by_seed, ddof=1) / math.sqrt(3)
    assert told.success_se == pytest.approx(se)
    acted = [row for row in rows if row.verdict == "act"]
    held = [row for row in acted if row.lower <= row.success <= row.upper]
    assert told.coverage == pytest.approx(len(held) / len(acted))
    off = [
        sum((row in held) - told.coverage for row in acted if row.seed == s)
        for s in {row.seed for row in acted}
    ]
    square = len(off) / (len(off) - 1) * sum(e**2 for e in off)
    assert told.coverage_se == pytest.approx(math.sqrt(square) / len(acted))
    assert told.width == pytest.approx(mean([r.upper - r.lower for r in acted]))
    assert told.bias == pytest.approx(mean([r.probability - r.success for r in acted]))
    claims = [row.probability - row.predicted_no_action for row in acted]
    assert told.claimed == pytest.approx(sum(claims) / len(rows))
    p_verdict = mean([row.verdict_success for row in rows])
    assert told.regret_of_verdict == pytest.approx(p0 - p_verdict)
    assert told.act == pytest.approx(len(acted) / len(rows))
    assert told.act + told.leave + told.abstain == pytest.approx(1.0)
    assert (told.n_rows, told.n_seeds, told.fit_seconds) == (12, 3, 2.0)


def test_the_error_of_a_lift_share_shrinks_to_that_of_its_gain() -> None:
    gains = [0.1, 0.3, 0.5]
    rows = [
        a_row(seed=i, success=0.2 + gain, no_action=0.2, oracle=0.8)
        for i, gain in enumerate(gains)
    ]
    told = summarise_rows(rows)
    assert told.lift_share_se == pytest.approx(told.success_se / 0.6)


@given(values=st.lists(PROBABILITY, min_size=2, max_size=6))
def test_rows_that_only_repeat_their_seed_do_not_sharpen_the_error(
    values: list[float],
) -> None:
    e = np.array(values) - np.mean(values)
    seeds = np.arange(len(values))
    once = clustered_error(e, seeds)
    thrice = clustered_error(np.tile(e, 3), np.tile(seeds, 3))
    assert thrice == pytest.approx(once)


def test_one_seed_has_no_standard_error() -> None:
    told = summarise_rows([a_row(context=0), a_row(context=1, success=0.7)])
    assert math.isnan(told.success_se)
    assert math.isnan(told.lift_share_se)


def test_failed_rows_are_left_out_and_counted() -> None:
    bad = a_row(context=1, success=math.nan, no_action=0.9, error="RuntimeError: no")
    told = summarise_rows([a_row(), bad])
    assert (told.n_rows, told.n_failed) == (2, 1)
    assert told.success == 0.5
    assert told.no_action == 0.2
    assert "† m failed in 1 of 2 rows of bank" in to_markdown([told])


def test_a_method_that_always_fails_has_no_figures_but_a_line() -> None:
    told = summarise_rows([a_row(success=math.nan, verdict="", error="no")])
    assert math.isnan(told.success)
    assert math.isnan(told.lift_share)
    assert not told.above_oracle
    assert "| bank | m | – |" in to_markdown([told])


@pytest.mark.parametrize("oracle", [0.195, 0.2, 0.209])
def test_where_hardly_anything_can_be_gained_there_is_no_share_of_it(
    oracle: float,
) -> None:
    rows = [
        a_row(seed=i, oracle=oracle, supported_oracle=oracle, success=0.2 + i / 100)
        for i in range(2)
    ]
    told = summarise_rows(rows)
    assert math.isnan(told.lift_share)
    assert math.isnan(told.lift_share_se)
    assert math.isnan(told.supported_lift_share)
    assert "–" in to_markdown([told], ["lift share"])


def test_a_method_that_does_not_act_claims_nothing() -> None:
    quiet = {"probability": 0.9, "predicted_no_action": 0.1}
    rows = [
        a_row(verdict=v, context=i, **quiet) for i, v in enumerate(("leave", "act"))
    ]
    assert summarise_rows(rows[:1]).claimed == 0.0
    assert summarise_rows(rows).claimed == pytest.approx(0.4)


def test_what_is_not_told_is_no_claim() -> None:
    told = summarise_rows([a_row(probability=0.9, predicted_no_action=math.nan)])
    assert math.isnan(told.claimed)


def test_a_pool_averages_shares_over_tasks_and_intervals_over_acted_rows(
    rng: np.random.Generator,
) -> None:
    one = made_up(rng)
    two = [replace(row, task="non-syn1") for row in made_up(rng)[:6]]
    nothing = [replace(row, task="placebo", oracle=row.no_action) for row in two]
    summaries = [summarise_rows(rows) for rows in (one, two, nothing)]
    (pooled,) = pool(summaries)
    shares = [summaries[0].lift_share, summaries[1].lift_share]
    assert (pooled.method, pooled.n_tasks) == ("m", 3)
    assert pooled.lift_share == pytest.approx(np.mean(shares))
    assert pooled.lowest_lift_share.value == min(shares)
    assert pooled.lowest_lift_share.task in ("bank", "non-syn1")
    together = summarise_rows([*one, *two, *nothing])
    assert pooled.coverage == pytest.approx(together.coverage)
    assert pooled.width == pytest.approx(together.width)
    assert pooled.bias == pytest.approx(together.bias)


def test_the_most_harm_of_a_pool_names_its_task() -> None:
    harmful = a_row(task="non-syn1", verdict_success=0.15)
    (pooled,) = pool([summarise_rows([a_row()]), summarise_rows([harmful])])
    assert pooled.regret_of_verdict.task == "non-syn1"
    assert pooled.regret_of_verdict.value == pytest.approx(0.05)
    assert "| .050 (non-syn1) |" in to_markdown(
        [summarise_rows([a_row()]), summarise_rows([harmful])]
    )


def test_a_method_that_always_fails_has_a_pool_without_figures() -> None:
    failed = {"success": math.nan, "verdict": "", "error": "no"}
    both = [summarise_rows([a_row(task=t, **failed)]) for t in ("bank", "non-syn1")]
    (pooled,) = pool(both)
    assert math.isnan(pooled.lift_share)
    assert (pooled.lowest_lift_share.task, pooled.regret_of_verdict.task) == ("", "")


def test_one_task_alone_is_not_pooled() -> None:
    assert "Over all tasks" not in to_markdown([summarise_rows([a_row()])])


def test_a_success_above_the_oracle_is_flagged_beyond_chance_only() -> None:
    by_chance = summarise_rows([a_row(success=0.82, oracle=0.8)])
    assert "*" not in to_markdown([by_chance])
    for_sure = summarise_rows([a_row(success=0.9, oracle=0.8)])
    text = to_markdown([for_sure])
    assert ".900*" in text
    assert "above the oracle by more than Monte Carlo error" in text


def test_tables_show_every_task_and_method(finished: Path) -> None:
    summaries = summarise(finished)
    assert [(s.task, s.method) for s in summaries] == [
        ("bank", "nested"),
        ("bank", "none"),
        ("non-syn1", "nested"),
        ("non-syn1", "none"),
    ]
    heads, rule, *lines = to_markdown(summaries).splitlines()[:6]
    assert len({line.count("|") for line in (heads, rule, *lines)}) == 1
    assert [line.split(" | ")[1] for line in lines] == ["nested", "none"] * 2
    console = Console(width=80, file=io.StringIO())
    console.print(to_rich(summaries))
    shown = console.file.getvalue()  # type: ignore[attr-defined]
    assert shown.count("\nnon-syn1") == 3
    assert "…" not in shown
    assert f"{summaries[0].oracle:.3f}".lstrip("0") in shown
    assert "claimed" in shown


def test_a_run_cut_short_can_be_summarised(finished: Path, tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_bytes(finished.read_bytes()[:-30])
    assert summarise(path)[-1].n_rows == 3


def test_results_of_other_columns_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("task,method\nbank,m\n")
    with pytest.raises(PlanError, match=r"has task, method\. Make it anew"):
        summarise(path)


def test_the_file_is_plain_csv(finished: Path) -> None:
    with finished.open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 16
    assert json.loads(rows[0]["actions"]).keys() == {"interest_rate"}


# Progress


def test_progress_is_a_line_for_each_unit_where_there_is_no_terminal() -> None:
    console = Console(file=io.StringIO(), force_terminal=False, width=60)
    with Progress(2, shown=True, console=console) as progress:
        progress.finished([a_row(success=0.25), a_row(success=0.75)])
        progress.finished([a_row(error="ValueError: [odd] text", success=math.nan)])
    lines = console.file.getvalue().splitlines()  # type: ignore[attr-defined]
    assert lines[0].startswith("bank seed 0: m, success 0.500 (1/2, 0:0")
    assert lines[1].startswith("bank seed 0: m, failed: ValueError: [odd] text (2/2")


def test_progress_is_a_bar_on_a_terminal() -> None:
    console = Console(file=io.StringIO(), force_terminal=True, width=100)
    with Progress(2, shown=True, console=console) as progress:
        progress.finished([a_row()])
    shown = console.file.getvalue()  # type: ignore[attr-defined]
    assert "1/2" in shown
    assert "left)" not in shown


@pytest.mark.usefixtures("quick_oracles")
def test_a_quiet_run_says_nothing(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    run(plan_of(), tmp_path / "a.csv", progress=False)
    assert capfd.readouterr() == ("", "")
