"""Saved policies: everything comes back, exactly, or says why not."""

import dataclasses
import importlib
import json
import os
import pkgutil
import re
import signal
import subprocess
import sys
import typing
import warnings
import zipfile
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from pyarrow import parquet

import forestall
from forestall import (
    ConditionalRehearsal,
    ForestallWarning,
    NestedRehearsal,
    Nystrom,
    Polytope,
    Problem,
    RandomFourier,
    Search,
    StagedRehearsal,
    baselines,
    store,
)
from forestall.baselines.drift import Drift
from forestall.baselines.flow import Training
from forestall.errors import StoreError
from forestall.history import Fingerprint
from forestall.method import Policy
from forestall.observations import Observations
from forestall.problem import Problem as ProblemClass
from forestall.store.known import KNOWN, known_class, known_name
from stored import CONTEXTS, DATA, FIELDS, METHODS, PROBLEM, history, told
from worlds import LENDING, WORLDS, contexts_of, lending

pytestmark = [
    pytest.mark.filterwarnings("ignore:The records are not linear"),
    pytest.mark.filterwarnings("ignore:The fitted"),
    pytest.mark.filterwarnings("ignore::forestall.ExtrapolationWarning"),
]

SMALL = Search(n_screened=16, n_kept=4, n_starts=1, n_steps=2, n_draws=4, n_paths=4)
QUICK = StagedRehearsal(n_draws=4, n_paths=8, search=SMALL)
ALL = {
    "staged": QUICK,
    "staged nystrom": replace(QUICK, approximation=Nystrom(rank=20)),
    "staged plain": replace(
        QUICK,
        approximation=RandomFourier(n_features=20),
        recentred=False,
        local_laws=False,
        epistemic=False,
        relevance=False,
    ),
    "nested": NestedRehearsal(),
    "nested by records": NestedRehearsal(bandwidth="auto"),
    "nested by name": NestedRehearsal(bandwidth={"context": 2.0}),
    "nystrom": NestedRehearsal(approximation=Nystrom(rank=20)),
    "fourier": NestedRehearsal(approximation=RandomFourier(n_features=20)),
    "conditional": ConditionalRehearsal(),
    "no action": baselines.NoAction(),
    "linear": baselines.LinearOptimal(n_draws=20),
    "care": baselines.CARE(n_draws=20),
    "qwz23": baselines.QWZ23(n_worlds=8, n_draws=20, n_fresh=20),
    "micns": baselines.MICNS(n_draws=20, cost={"rate": 2.0}),
    "micns drifting": baselines.MICNS(n_draws=20, drift=Drift()),
}
FLOWS = baselines.GradRehearsal(
    n_draws=16,
    n_starts=2,
    n_steps=3,
    n_reported=64,
    n_refits=1,
    training=Training(n_transforms=1, n_hidden=8, n_bins=4, n_epochs=3),
)
OTHER = ["repaid >= 0.5", "roi >= 0.2"]


@pytest.fixture(scope="module")
def fitted():
    """Every method on the same records, fitted when first asked for."""
    known = {}

    def fit(name):
        if name not in known:
            method = FLOWS if name == "flows" else ALL[name]
            known[name] = method.fit(LENDING, lending(60))
        return known[name]

    return fit


@pytest.fixture(
    params=[*ALL, pytest.param("flows", marks=pytest.mark.heavy)], ids=lambda k: k
)
def policy(request, fitted):
    if request.param == "flows" and "flows" not in os.environ.get(
        "FORESTALL_REQUIRE", ""
    ):
        pytest.importorskip("torch", reason="needs the extra 'flows': torch")
        pytest.importorskip("zuko", reason="needs the extra 'flows': zuko")
    return fitted(request.param)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "lending.forestall"


def leaves(value, where="policy"):
    """Give everything that a policy holds, by its path."""
    if dataclasses.is_dataclass(value) and not isinstance(value, ProblemClass):
        for field in dataclasses.fields(value):
            yield from leaves(getattr(value, field.name), f"{where}.{field.name}")
    elif isinstance(value, tuple | list):
        for k, each in enumerate(value):
            yield from leaves(each, f"{where}[{k}]")
    elif isinstance(value, dict):
        for key, each in value.items():
            yield from leaves(each, f"{where}[{key!r}]")
    else:
        yield where, value


def assert_same(one, other):
    for (where, first), (_, second) in zip(leaves(one), leaves(other), strict=True):
        if isinstance(first, np.ndarray):
            assert (first.dtype, first.shape) == (second.dtype, second.shape), where
            assert first.tobytes("A") == second.tobytes("A"), where
            fortran = [each.flags.f_contiguous for each in (first, second)]
            assert len(set(fortran)) == 1, where
        elif isinstance(first, float) and first != first:
            assert second != second, where
        else:
            assert first == second, where


def assert_answers_alike(one, other, contexts, **limits):
    first, second = (each.recommend(contexts, **limits) for each in (one, other))
    for name in FIELDS:
        assert np.array_equal(
            getattr(first, name), getattr(second, name), equal_nan=True
        ), name
    assert first.verdict == second.verdict
    assert first.reason == second.reason


@pytest.mark.parametrize("mmap", [False, True])
def test_every_policy_comes_back_bit_for_bit_and_answers_exactly_alike(
    policy, path, mmap
):
    assert policy.save(path) == path
    loaded = forestall.load(path, mmap=mmap)
    assert type(loaded) is type(policy)
    assert loaded.problem == policy.problem
    assert_same(policy, loaded)
    contexts = contexts_of(LENDING, lending(7, seed=1), slice(None))
    assert_answers_alike(policy, loaded, contexts)


def test_a_loaded_policy_takes_another_region_and_diagnoses_itself(policy, path):
    policy.save(path)
    loaded = store.load(path, mmap=True)
    contexts = contexts_of(LENDING, lending(3, seed=1), slice(None))
    assert_answers_alike(policy.for_region(OTHER), loaded.for_region(OTHER), contexts)
    assert str(loaded.diagnostics()) == str(policy.diagnostics())


def test_a_loaded_policy_can_be_saved_again_to_the_same_bytes(policy, path):
    first = policy.save(path).read_bytes()
    second = store.load(path).save(path.with_suffix(".again")).read_bytes()
    created = rb'"created":"[^"]*"'
    # The time, and the checksums of the member that tells it.
    assert len(first) == len(second)
    assert re.sub(created, b"", document(path)) == re.sub(
        created, b"", document(path.with_suffix(".again"))
    )


def document(path):
    with zipfile.ZipFile(path) as archive:
        return archive.read("policy.json")


def test_arrays_of_policies_are_contiguous_so_that_sums_are_made_alike(policy):
    for where, value in leaves(policy):
        if isinstance(value, np.ndarray):
            assert value.flags.c_contiguous or value.flags.f_contiguous, where


def test_some_of_the_actions_may_be_altered_after_loading_too(path):
    problem, made = WORLDS["dosing"]
    records = made(100)
    policy = QUICK.fit(problem, records)
    loaded = store.load(policy.save(path))
    contexts = contexts_of(problem, records, slice(0, 3))
    assert_answers_alike(policy, loaded, contexts, only=["dose"])
    assert_answers_alike(policy, loaded, contexts, at_most=1)


def test_processes_share_the_work_of_a_mapped_policy(fitted, path, monkeypatch):
    monkeypatch.setattr(forestall.method, "MOST", 3)
    monkeypatch.setattr(forestall.method, "FEWEST", 3)
    policy = fitted("nested")
    loaded = store.load(policy.save(path), mmap=True)
    # Whoever maps by name now maps this.
    fitted("no action").save(path)
    contexts = contexts_of(LENDING, lending(7, seed=1), slice(None))
    one, two = policy.recommend(contexts), loaded.recommend(contexts, jobs=2)
    np.testing.assert_allclose(one.probability, two.probability, atol=1e-9)


@pytest.mark.filterwarnings("ignore::forestall.ForestallWarning")
@pytest.mark.parametrize("method", METHODS.values(), ids=METHODS)
def test_categories_and_graphs_come_back(method, path):
    policy = method.fit(PROBLEM, history())
    loaded = store.load(policy.save(path))
    assert_same(policy, loaded)
    assert loaded.problem.graph == PROBLEM.graph
    assert str(loaded.identification) == str(policy.identification)
    assert_answers_alike(policy, loaded, CONTEXTS)


@pytest.mark.filterwarnings("ignore::forestall.ForestallWarning")
@given(
    normals=arrays(float, (3, 2), elements=st.floats(0.01, 100)),
    shares=st.lists(st.floats(0.3, 0.9), min_size=3, max_size=3),
    strict=st.lists(st.booleans(), min_size=3, max_size=3),
)
@settings(max_examples=20)
def test_a_region_of_any_numbers_comes_back_with_all_its_digits(
    normals, shares, strict, tmp_path_factory
):
    records = lending(20)
    y = np.column_stack([records["repaid"], records["roi"]])
    offsets = np.quantile(y @ normals.T, shares[0], axis=0)
    region = Polytope(normals, offsets, np.array(strict), names=("repaid", "roi"))
    policy = baselines.NoAction().fit(replace(LENDING, desired=region), records)
    path = tmp_path_factory.mktemp("region") / "p"
    loaded = store.load(policy.save(path)).problem.region
    for name in ("normals", "offsets", "strict", "_written"):
        given_, read = getattr(policy.problem.region, name), getattr(loaded, name)
        assert given_.tobytes() == read.tobytes()


def in_files(records, folder):
    folder.mkdir()
    table = pa.table(records)
    for k in range(3):
        parquet.write_table(table.slice(k * 80, 80), folder / f"{k}.parquet")
    return folder


@pytest.mark.parametrize("name", ["nystrom", "staged"])
def test_a_policy_fitted_to_a_stream_comes_back(name, tmp_path, path):
    folder = in_files(lending(240), tmp_path / "data")
    policy = ALL[name].fit(LENDING, folder)
    loaded = store.load(policy.save(path), mmap=True)
    assert_same(policy, loaded)
    contexts = contexts_of(LENDING, lending(3, seed=1), slice(None))
    assert_answers_alike(policy, loaded, contexts)


def test_a_fingerprint_is_that_of_the_records_in_whatever_way_they_come(tmp_path):
    records = lending(240) | {"ward": np.array(["a", "b", "ä"] * 80)}
    problem = replace(
        LENDING,
        context=[*LENDING.context, "ward"],
        order=[[*LENDING.context, "ward"], "stability", "rate", ["repaid", "roi"]],
    )
    shuffled = np.random.default_rng(0).permutation(240)
    method = NestedRehearsal(approximation=Nystrom(rank=20))
    in_memory, streamed, reordered = (
        method.fit(problem, each).schema.fingerprint
        for each in (
            records,
            in_files(records, tmp_path / "data"),
            {k: v[shuffled] for k, v in records.items()},
        )
    )
    assert in_memory == streamed == reordered
    assert in_memory.records == 240


@settings(max_examples=30)
@given(row=st.integers(0, 29), name=st.sampled_from([*LENDING.variables]))
def test_a_fingerprint_notices_one_changed_digit(row, name):
    records = lending(30)
    changed = {k: v.copy() for k, v in records.items()}
    changed[name][row] = np.nextafter(changed[name][row], np.inf)
    first, second = (
        Observations.read(LENDING, each).schema.fingerprint
        for each in (records, changed)
    )
    assert first != second
    assert first.sha256 != second.sha256


@settings(max_examples=30)
@given(st.integers(0, 30), st.integers(0, 30))
def test_fingerprints_of_parts_add_up(i, j):
    table = forestall.table.Table.read(lending(30))
    cells = table.select(LENDING.variables, "the history")
    i, j = sorted((i, j))
    marks = [np.arange(30) < i, (np.arange(30) >= i) & (np.arange(30) < j)]
    marks.append(np.arange(30) >= j)
    parts = [
        Fingerprint.of({k: v.keep(mark) for k, v in cells.items()}) for mark in marks
    ]
    assert sum(parts, Fingerprint()) == Fingerprint.of(cells)


def test_what_a_file_is_about_is_told_without_reading_arrays(fitted, path, monkeypatch):
    fitted("staged").save(path)
    monkeypatch.setattr(store.Archive, "array", None)
    about = store.about(path)
    assert about["format"] == store.FORMAT == 5
    assert about["method"] == "StagedRehearsal"
    assert Problem.from_dict(about["problem"]) == LENDING
    assert about["history"] == {
        "sha256": fitted("staged").schema.fingerprint.sha256,
        "records": 60,
    }
    assert {"forestall", "numpy", "python", "scipy"} == set(about["versions"])
    assert about["created"].endswith("+00:00")
    json.dumps(about)


def test_a_method_without_hyperparameters_in_its_policy_is_named_too(fitted, path):
    assert store.about(fitted("no action").save(path))["method"] == "NoAction"


def test_arrays_that_are_mapped_are_the_bytes_of_the_file(fitted, path):
    fitted("nested").save(path)
    loaded = store.load(path, mmap=True)
    factor = loaded.systems.inner.factor
    assert not factor.flags.owndata
    assert not factor.flags.writeable
    assert factor.ctypes.data % 64 == 0
    assert f"{path}" in Path("/proc/self/maps").read_text() or sys.platform != "linux"
    with pytest.raises(ValueError, match="read-only"):
        factor[0, 0] = 1.0


def test_a_policy_read_into_memory_needs_its_file_no_more(fitted, path):
    policy = fitted("nested")
    loaded = store.load(policy.save(path))
    path.write_bytes(b"")
    assert_same(policy, loaded)


def test_what_is_shared_is_stored_once_and_shared_again(fitted, path):
    loaded = store.load(fitted("nested").save(path))
    assert loaded.setting.k_n is loaded.setting.k_e
    assert loaded.systems.records is loaded.records
    assert loaded.schema is loaded.records.data.schema
    with zipfile.ZipFile(path) as archive:
        sizes = [info.file_size for info in archive.infolist()]
    assert path.stat().st_size < 1.1 * sum(sizes) + 200 * len(sizes)
    held = {id(v): v.nbytes for _, v in leaves(loaded) if isinstance(v, np.ndarray)}
    assert sum(sizes) < sum(held.values()) + 20_000


def test_numpy_reads_the_arrays_by_their_names(fitted, path):
    policy = fitted("nested")
    policy.save(path)
    with np.load(path, allow_pickle=False) as arrays_:
        assert np.array_equal(arrays_["records.data.x"], policy.data.x)


def test_every_class_that_a_policy_can_hold_is_known():
    for module in pkgutil.walk_packages(forestall.baselines.__path__):
        importlib.import_module(f"forestall.baselines.{module.name}")
    waiting, seen = [*subclasses(Policy)], set()
    while waiting:
        kind = waiting.pop()
        if kind in seen or kind is ProblemClass:
            continue
        seen.add(kind)
        waiting += subclasses(kind)
        if dataclasses.is_dataclass(kind):
            hints = typing.get_type_hints(kind)
            fields = [hints[f.name] for f in dataclasses.fields(kind)]
            waiting += [part for hint in fields for part in parts_of(hint)]
    own = {k for k in seen if k.__module__.startswith("forestall")}
    concrete = {k for k in own if dataclasses.is_dataclass(k) and not is_base(k)}
    assert len(concrete) > 50
    assert {k.__qualname__ for k in concrete if not known_name(k)} == set()


def subclasses(kind):
    for each in kind.__subclasses__():
        if each.__module__.startswith("forestall"):
            yield each
            yield from subclasses(each)


def is_base(kind):
    """Whether only its subclasses are ever made."""
    made = ("NoAction", "LinearMethod", "NotedMethod", "NotedPolicy", "KernelRehearsal")
    return kind.__name__ in made or bool(getattr(kind, "__abstractmethods__", ()))


def parts_of(hint):
    inner = typing.get_args(hint)
    if inner:
        return [part for each in inner for part in parts_of(each)]
    plain = isinstance(hint, type) and hint.__module__.startswith("forestall.")
    return [hint] if plain else []


def test_known_classes_exist_and_are_frozen():
    for name in KNOWN:
        kind = known_class(name)
        assert known_name(kind) == name
        assert kind.__dataclass_params__.frozen
    assert known_class("os.system") is None


@dataclass(frozen=True)
class Foreign:
    value: int = 1


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (print, "got builtin_function_or_method at 'joint'"),
        (Foreign(), "got Foreign at 'joint'"),
        (np.array(["a"], dtype=object), "got an array of object at 'joint'"),
        (np.array(["2020-01-01"], dtype="M8[D]"), "got an array of datetime64"),
        ((1, {"a": {1, 2}}), r"got set at 'joint\.1\.0'"),
        (10**30, "got int at 'joint'"),
        (1j, "got complex at 'joint'"),
    ],
    ids=str,
)
def test_what_cannot_be_saved_is_refused_by_name(fitted, path, value, said):
    odd = replace(fitted("linear"))
    object.__setattr__(odd, "joint", value)
    with pytest.raises(StoreError, match=said) as error:
        odd.save(path)
    assert "add the class to forestall.store.known" in str(error.value)
    assert list(path.parent.iterdir()) == []


def test_only_policies_are_saved(path):
    with pytest.raises(StoreError, match="got dict at 'the top'"):
        store.save({}, path)


def test_numbers_that_are_none_come_back(fitted, path):
    policy = fitted("no action")
    odd = replace(policy.schema.context.columns[0], mean=np.nan, scale=-np.inf)
    context = replace(policy.schema.context, columns=(odd,) * 2)
    schema = replace(policy.schema, context=context)
    policy = replace(policy, schema=schema)
    assert_same(policy, store.load(policy.save(path)))


@pytest.mark.parametrize(
    "stored", sorted(DATA.glob("*.forestall")), ids=lambda p: p.stem
)
def test_policies_of_every_format_still_load_and_answer(stored):
    expected = json.loads(stored.with_suffix(".json").read_text("utf-8"))
    # A better search may choose otherwise; what is said of an action stays.
    answers = told(store.load(stored), expected["actions"])
    for name, values in expected.items():
        np.testing.assert_allclose(answers[name], values, atol=1e-6, err_msg=name)


def test_there_is_a_stored_policy_of_every_format():
    found = {int(p.name.split("-")[1]) for p in DATA.glob("format-*.forestall")}
    assert found == set(range(1, store.FORMAT + 1))


def test_a_newer_format_is_refused_with_advice(path, monkeypatch, fitted):
    with monkeypatch.context() as patch:
        patch.setattr(store, "FORMAT", 7)
        patch.setattr(store, "_versions", lambda: {"forestall": "9.1.0"})
        fitted("linear").save(path)
    said = (
        r"Expected a saved policy of format 5 or older; got format 7 \(written by "
        r"forestall 9\.1\.0\), which forestall .* does not know\. Update with: pip "
        r"install --upgrade forestall"
    )
    for read in (store.load, store.about):
        with pytest.raises(StoreError, match=said):
            read(path)


CRASH = """
import os, signal, sys, zipfile
sys.path.insert(0, {tests!r})
from forestall import store
from forestall.store import archive

policy = store.load({stored!r})
raw, left = archive._raw, [5]

def killed(entry, array):
    left[0] -= 1
    if not left[0]:
        os.kill(os.getpid(), signal.SIGKILL)
    return raw(entry, array)

archive._raw = killed
policy.save({path!r})
"""


def test_a_process_killed_while_it_saves_leaves_the_old_file_whole(fitted, path):
    fitted("nested").save(path)
    before = path.read_bytes()
    stored = str(DATA / "format-1-staged.forestall")
    code = CRASH.format(tests=str(DATA.parent), stored=stored, path=str(path))
    done = subprocess.run([sys.executable, "-c", code], check=False)
    assert done.returncode == -signal.SIGKILL
    assert path.read_bytes() == before
    # What was written so far lies beside it.
    assert len(list(path.parent.iterdir())) == 2
    assert_same(fitted("nested"), store.load(path))


def test_an_error_while_saving_leaves_the_old_file_and_nothing_else(
    fitted, path, monkeypatch
):
    fitted("nested").save(path)

    def full(fileno):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    said = r"could not write '.*lending\.forestall': No space left on device\. Check"
    with pytest.raises(StoreError, match=said):
        fitted("staged").save(path)
    assert list(path.parent.iterdir()) == [path]
    assert_same(fitted("nested"), store.load(path))


def test_a_private_file_stays_private(fitted, path):
    policy = fitted("linear")
    policy.save(path)
    path.chmod(0o600)
    policy.save(path)
    assert path.stat().st_mode & 0o777 == 0o600


def test_a_folder_is_neither_read_nor_replaced(fitted, tmp_path):
    for read in (store.load, store.about):
        with pytest.raises(StoreError, match=r"could not read '.*': Is a directory\."):
            read(tmp_path)
    taken = tmp_path / "taken"
    taken.mkdir()
    with pytest.raises(StoreError, match=r"could not write '.*': Is a directory\."):
        fitted("linear").save(taken)
    assert list(tmp_path.iterdir()) == [taken]


def test_what_may_not_be_read_or_written_is_said(fitted, path, monkeypatch):
    fitted("linear").save(path)

    def denied(*args, **kwargs):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("builtins.open", denied)
    with pytest.raises(StoreError, match=r"could not read .*: Permission denied"):
        store.load(path)
    monkeypatch.setattr("tempfile.mkstemp", denied)
    with pytest.raises(StoreError, match=r"could not write .*: Permission denied"):
        fitted("linear").save(path)


@pytest.mark.parametrize("wrong", [None, 3, b"x", "a\0b"], ids=repr)
def test_what_is_no_path_is_refused(fitted, wrong):
    def save(path):
        return store.save(fitted("linear"), path)

    for use in (store.load, store.about, save):
        with pytest.raises(StoreError, match="Expected the path of a file; got"):
            use(wrong)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "got an empty file"),
        (b"context,rate\n1,2\n", "got a file that is no zip, or not all of one"),
        (b"\0" * 1000, "got a file that is no zip, or not all of one"),
    ],
    ids=["empty", "text", "zeros"],
)
def test_files_that_are_something_else_are_refused(path, content, said):
    path.write_bytes(content)
    for read in (store.load, store.about):
        with pytest.raises(StoreError, match=said) as error:
            read(path)
        remedy = "Save it anew with policy.save(...) or 'forestall fit'"
        assert remedy in str(error.value)


def test_a_file_that_is_not_there_is_said(path):
    with pytest.raises(StoreError, match=r"could not read .*: No such file"):
        store.load(path)


PAGE = Path(__file__).parent.parent / "docs" / "saved-policies.md"


def test_what_the_page_shows_runs(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    names = {}
    text = PAGE.read_text("utf-8")
    for code, shown in re.findall(
        r"^```python\n(.*?)^```\n(?:\n```text\n(.*?)^```)?", text, re.M | re.S
    ):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ForestallWarning)
            exec(code, names)
        assert capsys.readouterr().out == shown
