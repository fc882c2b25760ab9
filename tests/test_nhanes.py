"""The survey: from files to a cohort to a task, on made-up and on the real files."""

from __future__ import annotations

import hashlib
import json
from dataclasses import replace

import numpy as np
import pytest
import typer
from typer.testing import CliRunner

from forestall import data, data_cli, tasks
from forestall.data import likeness, nhanes
from forestall.data.nhanes_files import PUBLISHED
from forestall.errors import DataError, TaskError
from forestall.tasks import nhanes as benchmark
from transport import made_up_survey, published, write_xpt

N = 300


@pytest.fixture(scope="module")
def survey(tmp_path_factory):
    folder = tmp_path_factory.mktemp("survey") / "nhanes"
    return folder, made_up_survey(folder, N)


@pytest.fixture
def copy(tmp_path):
    folder = tmp_path / "nhanes"
    return folder, made_up_survey(folder, 40)


@pytest.fixture(scope="module")
def cohort(survey):
    return nhanes.read_cohort(*survey)


@pytest.fixture(scope="module")
def task(cohort):
    return benchmark.task_on(cohort.columns)


def row_by_row(folder, files):
    """Merge and select as slowly and plainly as can be."""
    people = {}
    for file in files:
        table = file.read(folder)
        for i, seqn in enumerate(table["SEQN"]):
            person = people.setdefault(int(seqn), {})
            person.update({k.replace("BPXO", "BPX"): v[i] for k, v in table.items()})
    columns = [names[0] for names in nhanes.COLUMNS.values()]
    return {
        seqn: [p[c] for c in columns]
        for seqn, p in sorted(people.items())
        if p["RIDAGEYR"] >= 20
        and p["MCQ300C"] in (1, 2)
        and p["DMDEDUC2"] in (1, 2, 3, 4, 5)
        and p["PAD680"] < 7777
        and not any(np.isnan(p[c]) for c in columns)
    }


def test_the_cohort_is_the_one_found_row_by_row(survey, cohort):
    expected = row_by_row(*survey)
    assert 100 < cohort.n == len(expected) < 4 * N
    assert cohort.seqn.tolist() == list(expected)
    np.testing.assert_array_equal(
        np.column_stack(list(cohort.columns.values())), list(expected.values())
    )


def test_every_rule_says_how_many_it_removes(survey, cohort):
    first, *rest = cohort.attrition
    assert (first.left, first.removed) == (4 * N, 0)
    left = first.left
    for step in rest:
        left -= step.removed
        assert step.left == left
    assert left == cohort.n
    removed = {step.rule: step.removed for step in rest}
    assert removed["Age >= 20"] > 0
    assert removed["Education known"] > 0
    assert removed["Sedentary_min known"] > 0
    assert removed["Sex known"] == 0


def test_the_fingerprint_is_the_digest_of_the_sorted_identifiers(cohort):
    text = ",".join(str(s) for s in sorted(cohort.seqn.tolist()))
    assert cohort.fingerprint == hashlib.sha256(text.encode()).hexdigest()
    assert sum(cohort.by_cycle.values()) == cohort.n
    assert list(cohort.by_cycle) == ["G", "H", "I", "J"]


def test_blood_pressure_of_the_last_cycle_is_the_oscillometric(survey, cohort):
    folder, files = survey
    table = next(f for f in files if f.file == "BPXO_J.XPT").read(folder)
    known = dict(zip(table["SEQN"], table["BPXOSY1"], strict=True))
    last = cohort.cycle == "J"
    expected = [known[s] for s in cohort.seqn[last]]
    np.testing.assert_array_equal(cohort.columns["SBP"][last], expected)


def test_the_smallest_number_of_the_format_is_zero(tmp_path):
    table = {"SEQN": np.array([1.0, 2.0]), "PAD680": np.array([0.0, 60.0])}
    file = published("PAQ_J.XPT", "", table)
    write_xpt(tmp_path / "PAQ_J.XPT", {"SEQN": [1.0, 2.0], "PAD680": [5.4e-79, 60.0]})
    np.testing.assert_array_equal(file.read(tmp_path)["PAD680"], [0.0, 60.0])


def test_files_are_found_in_capitals_or_not(copy):
    folder, files = copy
    (folder / "GLU_H.XPT").rename(folder / "GLU_H.xpt")
    assert nhanes.read_cohort(folder, files).n > 0


def test_a_missing_file_is_named_with_both_remedies(copy):
    folder, files = copy
    (folder / "GLU_H.XPT").unlink()
    message = r"file GLU_H\.XPT in .*`forestall data fetch nhanes`.*FORESTALL_DATA"
    with pytest.raises(DataError, match=message):
        nhanes.read_cohort(folder, files)


def test_a_damaged_file_is_named(copy):
    folder, files = copy
    path = folder / "DEMO_I.XPT"
    path.write_bytes(path.read_bytes()[:-80])
    with pytest.raises(DataError, match=r"DEMO_I\.XPT"):
        nhanes.read_cohort(folder, files)


def rewritten(folder, files, file, change):
    """Change a file, and the manifest with it."""
    one = next(f for f in files if f.file == file)
    table = change(one.read(folder))
    write_xpt(folder / file, {k: v.tolist() for k, v in table.items()})
    anew = published(file, "", table)
    return tuple(replace(anew, columns=f.columns) if f is one else f for f in files)


def test_a_changed_value_is_named_with_file_and_columns(copy):
    folder, files = copy
    rewritten(folder, files, "GHB_G.XPT", lambda t: {**t, "LBXGH": t["LBXGH"] + 0.1})
    with pytest.raises(DataError, match=r"values in GHB_G\.XPT, columns SEQN, LBXGH"):
        nhanes.read_cohort(folder, files)


def test_an_absent_column_is_named_with_its_file(copy):
    folder, files = copy
    files = rewritten(folder, files, "PAQ_I.XPT", lambda t: {"SEQN": t["SEQN"]})
    with pytest.raises(DataError, match=r"column 'PAD680' in PAQ_I\.XPT; got SEQN"):
        nhanes.read_cohort(folder, files)


def test_the_file_of_another_cycle_is_named_with_the_column(copy):
    folder, files = copy
    shift = lambda t: {**t, "SEQN": t["SEQN"] + 1000.0}  # noqa: E731
    files = rewritten(folder, files, "BMX_G.XPT", shift)
    message = r"participants of DEMO_G\.XPT in BMX_G\.XPT, column 'SEQN'; got 2\d+.*39"
    with pytest.raises(DataError, match=message):
        nhanes.read_cohort(folder, files)


@pytest.mark.parametrize(
    ("seqn", "message"),
    [(5.0, r"each SEQN once in BMX_G\.XPT; got 5 twice"), (0.5, r"'SEQN'; got others")],
)
def test_identifiers_that_are_none_are_named(copy, seqn, message):
    folder, files = copy
    same = lambda t: {**t, "SEQN": np.full_like(t["SEQN"], seqn)}  # noqa: E731
    files = rewritten(folder, files, "BMX_G.XPT", same)
    with pytest.raises(DataError, match=message):
        nhanes.read_cohort(folder, files)


def test_text_where_numbers_belong_is_named(copy):
    folder, files = copy
    write_xpt(folder / "GHB_G.XPT", {"SEQN": [1.0], "LBXGH": ["high"]})
    with pytest.raises(DataError, match=r"numbers in GHB_G\.XPT, column 'LBXGH'.*high"):
        nhanes.read_cohort(folder, files)


def test_another_cohort_is_not_that_of_the_benchmark(cohort):
    with pytest.raises(
        DataError, match=r"7465 participants .* 947c069b643f.*; got \d+"
    ):
        cohort.require_the_benchmarks()


def test_the_manifest_names_every_module_of_every_cycle_at_the_publishers_site():
    assert len(PUBLISHED) == 40
    assert {f.file[-5] for f in PUBLISHED} == set("GHIJ")
    assert all(f.address.startswith("https://wwwn.cdc.gov/") for f in PUBLISHED)
    assert all(f.columns[0] == "SEQN" and len(f.sha256) == 64 for f in PUBLISHED)
    names = {f.file for f in PUBLISHED}
    assert "BPXO_J.XPT" in names
    assert "BPX_J.XPT" not in names


def test_the_folder_is_the_one_named_or_a_cache(monkeypatch, tmp_path):
    monkeypatch.setenv("FORESTALL_DATA", str(tmp_path))
    assert data.folder() == tmp_path
    monkeypatch.delenv("FORESTALL_DATA")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert data.folder() == tmp_path / "forestall"


def test_without_the_data_the_task_says_how_to_get_them(monkeypatch, tmp_path):
    monkeypatch.setenv("FORESTALL_DATA", str(tmp_path))
    assert not nhanes.available()
    tasks.get.cache_clear()
    message = r"data that the task 'nhanes' is made of.*`forestall data fetch nhanes`"
    with pytest.raises(TaskError, match=message):
        tasks.get("nhanes")


def test_the_task_has_the_roles_of_the_paper(task):
    problem = task.problem
    assert problem.context == benchmark.CONTEXT
    assert tuple(problem.actions) == benchmark.ACTIONS
    assert problem.graph is None
    assert set(problem.categorical) == {"Sex", "Race", "FamilyHx_Diabetes"}
    assert [len(tier) for tier in problem.tiers] == [6, 1, 1, 3, 4, 2]


def test_the_graph_has_the_influences_of_the_paper(task):
    graph = task.graph
    assert graph.children(["CarbIntake", "DBP"]) == frozenset()
    assert graph.parents(["BMI"]) == frozenset(benchmark.CONTEXT)
    for outcome in ("HbA1c", "FPG"):
        beside = graph.parents([outcome]) - frozenset(benchmark.CONTEXT)
        chain = {"BMI", "CalIntake", "FiberIntake", "Sedentary_min"}
        assert beside == chain | {"SBP", "TotalCholesterol", "HDL"}
    assert not graph.parents(benchmark.CONTEXT)


def test_what_an_alteration_does_is_identified_by_the_contexts(task):
    found = task.problem_with_graph().identification()
    assert found.nested.valid
    assert found.sequential.valid
    assert found.adjusted == ()


def test_alterations_lie_between_the_quantiles(task, cohort):
    for name, interval in task.problem.actions.items():
        expected = np.quantile(cohort.columns[name], [0.01, 0.99])
        np.testing.assert_allclose(interval, expected)


def test_any_subset_of_the_actions_may_be_set(task):
    x = {name: v[0] for name, v in task.contexts(1, seed=0).items()}
    low = {name: interval[0] for name, interval in task.problem.actions.items()}
    light = task.success(x, {"BMI": low["BMI"]}, 4_000, seed=0)
    assert light > task.success(x, None, 4_000, seed=0) - 0.02
    assert task.success(x, {"CarbIntake": low["CarbIntake"]}, 4_000, seed=0) == (
        task.success(x, None, 4_000, seed=0)
    )


def test_generated_records_are_like_the_cohort(task, cohort):
    made = task.history(2_000, seed=1)
    assert likeness.correlation_mae(cohort.columns, made) < 0.06
    for name, values in cohort.columns.items():
        assert values.min() <= made[name].min() <= made[name].max() <= values.max()
    for name in ("Sex", "Race", "FamilyHx_Diabetes", "Education"):
        assert set(made[name]) == set(cohort.columns[name])


def test_correlation_error_is_zero_for_the_same_and_known_for_shuffled_records(rng):
    z = rng.normal(size=(3, 4_000))
    table = {"a": z[0], "b": z[0] + z[1], "c": z[2]}
    assert likeness.correlation_mae(table, table) == 0.0
    mixed = likeness.shuffled(table, rng)
    # Of three pairs only one is correlated, by one over the root of two.
    assert likeness.correlation_mae(table, mixed) == pytest.approx(0.7071 / 3, abs=0.04)


def test_a_judge_guesses_on_like_records_and_sees_a_difference(rng):
    draw = lambda n: dict(zip("ab", rng.normal(size=(2, n)).round(1), strict=True))  # noqa: E731
    real, like = draw(1_500), draw(1_500)
    assert likeness.told_apart(real, like, rng) == pytest.approx(0.5, abs=0.06)
    unrounded = {k: v + rng.uniform(-0.04, 0.04, 1_500) for k, v in like.items()}
    assert likeness.told_apart(real, unrounded, rng) == pytest.approx(0.5, abs=0.06)
    far = {**like, "b": like["a"]}
    assert likeness.told_apart(real, far, rng) > 0.9


def test_the_picture_has_every_marginal_and_three_heat_maps(task, cohort):
    pytest.importorskip("matplotlib")
    from forestall.data.pictures import validation

    figure = validation(cohort.columns, task.history(500, seed=0))
    shown = [axes for axes in figure.axes if axes.axison]
    maps = [axes for axes in shown if axes.images]
    assert [axes.get_title() for axes in maps] == [
        "real",
        "generated",
        "generated minus real",
    ]
    titles = [axes.get_title() for axes in shown if axes.patches]
    assert titles == [name.replace("_", " ") for name in cohort.columns]
    np.testing.assert_allclose(np.diag(maps[2].images[0].get_array()), 0.0, atol=1e-12)


def app():
    whole = typer.Typer()
    whole.add_typer(data_cli.make_app(lambda command: command), name="data")
    whole.command("other")(lambda: None)
    return whole


def test_the_command_checks_files_and_prints_json(survey, task, monkeypatch, tmp_path):
    pytest.importorskip("matplotlib")
    folder, files = survey
    read = nhanes.read_cohort
    monkeypatch.setattr(nhanes, "read_cohort", lambda: read(folder, files))
    # It was fitted once already, to the same participants.
    monkeypatch.setattr(benchmark, "task_on", lambda _: task)
    arguments = ["data", "check", "nhanes", "--figure", str(tmp_path / "a" / "v.png")]
    result = CliRunner().invoke(app(), [*arguments, "--json"])
    told = json.loads(result.stdout)
    assert {"rows", "fingerprint", "by_cycle", "correlation_mae"} <= set(told)
    assert told["rows"] == told["attrition"][-1]["left"]
    assert told["matches"] is False
    assert 0.0 < told["correlation_mae"] < 0.08
    assert isinstance(result.exception, DataError)
    assert (tmp_path / "a" / "v.png").stat().st_size > 10_000


def test_the_command_prints_the_rules_for_people(cohort, task, monkeypatch):
    monkeypatch.setattr(benchmark, "task_on", lambda _: task)
    monkeypatch.setattr(nhanes, "read_cohort", lambda: cohort)
    monkeypatch.setattr(nhanes, "FINGERPRINT", cohort.fingerprint)
    result = CliRunner().invoke(app(), ["data", "check", "nhanes"])
    assert result.exit_code == 0
    assert "Sedentary_min known" in result.stdout
    assert f"fingerprint {cohort.fingerprint}" in result.stdout


def test_the_command_fetches_what_is_missing(survey, monkeypatch, tmp_path):
    folder, files = survey
    monkeypatch.setattr("forestall.data.nhanes_files.PUBLISHED", files)
    result = CliRunner().invoke(
        app(), ["data", "fetch", "nhanes", "--to", str(folder.parent)]
    )
    assert result.exit_code == 0
    assert f"All 40 files are in {folder}" in result.stdout.replace("\n", "")


needs_data = pytest.mark.skipif(
    not nhanes.available(),
    reason="FORESTALL_DATA names no folder with the files of nhanes",
)


@pytest.fixture(scope="module")
def participants():
    return nhanes.read_cohort()


@needs_data
def test_the_published_files_give_the_cohort_of_the_paper(participants):
    assert participants.n == nhanes.ROWS == 7465
    assert participants.fingerprint == nhanes.FINGERPRINT
    assert participants.by_cycle == {"G": 1869, "H": 1979, "I": 1898, "J": 1719}
    steps = {step.rule: step.removed for step in participants.attrition}
    assert steps["FPG known"] == 10_710
    assert steps["Age >= 20"] == 16_539


@needs_data
def test_the_share_of_participants_in_the_desired_region_is_the_known_one(participants):
    y = np.column_stack([participants.columns[v] for v in ("HbA1c", "FPG")])
    share = benchmark.problem_on(participants.columns).region.contains(y).mean()
    assert share == pytest.approx(0.362, abs=0.0005)


@needs_data
def test_the_generator_is_as_like_the_data_as_the_papers(participants):
    task = tasks.get("nhanes")
    made = [task.history(7465, seed) for seed in range(5)]
    errors = [likeness.correlation_mae(participants.columns, m) for m in made]
    assert np.mean(errors) <= 0.0483


@needs_data
def test_success_without_action_is_the_figure_measured():
    history = tasks.get("nhanes").history(50_000, seed=0)
    y = np.column_stack([history[v] for v in ("HbA1c", "FPG")])
    share = tasks.get("nhanes").problem.region.contains(y).mean()
    assert share == pytest.approx(0.297, abs=0.01)
