"""Whatever comes in, the commands end with 0 or 2 and a sentence, never a traceback.

``FORESTALL_FUZZ=10000 pytest -o addopts= tests/test_fuzz_cli.py`` tries so many of each
kind, without the checks of types, which take most of the time.
"""

import json
import tempfile
import warnings
from pathlib import Path

import pytest
import tomli_w
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from forestall import NestedRehearsal, cli
from forestall.cli import tables
from forestall.errors import ForestallError
from fuzzing import tries
from stranger import ROLES, write_history
from worlds import LENDING, lending

tried = settings(
    max_examples=tries(25),
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)


def invoke(*args, given=None):
    """Run a command; it must end in one of two ways."""
    with warnings.catch_warnings():
        # Rounding errors in made-up numbers are not what is looked for here.
        warnings.simplefilter("ignore")
        result = CliRunner().invoke(cli.app, [str(arg) for arg in args], input=given)
    if result.exit_code not in (0, 2):
        raise AssertionError(result.output) from result.exception
    if result.exit_code == 2:
        assert "Error" in result.stderr
        assert "Traceback" not in result.output
    return result


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("fuzz")


@pytest.fixture(scope="module")
def history(folder):
    return write_history(folder / "good.csv", n=40)


@pytest.fixture(scope="module")
def question(folder, history):
    out = folder / "good.toml"
    assert invoke("init", history, *ROLES, "-o", out).exit_code == 0
    return out


@pytest.fixture(scope="module")
def policy(folder):
    fitted = NestedRehearsal().fit(LENDING, lending(60))
    return fitted.save(folder / "good.forestall")


SCALARS = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=6)
    | st.sampled_from(["age", "sector", "stability", "rate", "roi", "drop", "error"])
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.text(max_size=4), inner, max_size=3)
    ),
    max_leaves=8,
)
FIELDS = {
    "context": ["age", "sector"],
    "covariates": ["stability"],
    "outcomes": ["roi"],
    "desired": ["roi >= 0.4"],
    "order": [["age", "sector"], "stability", "rate", "roi"],
    "actions": {"rate": [0.0, 1.0]},
}
KEYS = st.sampled_from([*FIELDS, "graph", "categorical", "missing", "graf"])
CONSTRAINTS = st.lists(
    st.sampled_from(
        "roi rate >= <= < > == 0.4 1e999 - + * / ( ) ` and 3 _ . ≥ nan".split()
    ),
    max_size=8,
).map(" ".join)
GRAPHS = st.lists(
    st.sampled_from(
        'digraph graph { } -> -- ; age sector stability rate roi "x" [ ] = <-> , \n'
        "strict subgraph /* */ // # dag bidirected".split(" ")
    ),
    max_size=14,
).map(" ".join)


@tried
@given(
    changes=st.dictionaries(KEYS, VALUES, min_size=1, max_size=3),
    desired=CONSTRAINTS,
    graph=st.none() | GRAPHS,
)
def test_problem_files_with_odd_fields(folder, history, changes, desired, graph):
    # Types are checked in tests before we can say it in our own words.
    assume(isinstance(changes.get("missing", ""), str))
    fields = {**FIELDS, **changes}
    if desired:
        fields["desired"] = [desired]
    if graph is not None:
        fields["graph"] = graph
    try:
        text = tomli_w.dumps(fields)
        (folder / "odd.toml").write_text(text, encoding="utf-8")
    except (TypeError, ValueError, AttributeError):
        assume(False)
    invoke("check", folder / "odd.toml", history)


MANGLES = st.lists(
    st.tuples(st.floats(0, 1), st.integers(0, 3), st.binary(max_size=4)),
    min_size=1,
    max_size=6,
)


def mangled(data, mangles):
    """Some bytes of a file deleted, overwritten or added."""
    for where, gone, new in mangles:
        k = int(where * len(data))
        data = data[:k] + new + data[k + gone :]
    return data


@tried
@given(mangles=MANGLES)
def test_problem_files_with_odd_bytes(folder, history, question, mangles):
    path = folder / "mangled.toml"
    path.write_bytes(mangled(question.read_bytes(), mangles))
    invoke("check", path, history)


@tried
@given(mangles=MANGLES, method=st.sampled_from(["check", "nested", "no_action"]))
def test_histories_with_odd_bytes(folder, history, question, mangles, method):
    path = folder / "mangled.csv"
    path.write_bytes(mangled(history.read_bytes(), mangles))
    if method == "check":
        invoke("check", question, path)
    else:
        out = folder / "odd.forestall"
        invoke("fit", question, path, "--method", method, "-o", out)


ODD = (
    "",
    "0",
    "-0.0",
    "nan",
    "inf",
    "1e308",
    "-1e-320",
    "1e101",
    "true",
    "False",
    "2024-01-01",
    "12:30",
    "NULL",
    '"a,b"',
    '"',
    "farm",
    "0x10",
    "１２",
    "99999999999999999999",
    "\x00",
    " ",
)
CELLS = st.sampled_from(ODD) | st.floats().map(repr) | st.text(max_size=3)
NAMES = st.sampled_from(
    ["age", "sector", "stability", "rate", "roi", "", " age", "Age", "id", "\ufeffage"]
)


@st.composite
def csv_tables(draw, names=NAMES):
    heads = draw(st.lists(names, min_size=1, max_size=7))
    rows = draw(st.lists(st.lists(CELLS, min_size=1, max_size=7), max_size=12))
    lines = [heads, *rows]
    mark = draw(st.sampled_from([",", ",", ",", ";", "\t"]))
    end = draw(st.sampled_from(["\n", "\r\n", "\r"]))
    text = end.join(mark.join(line) for line in lines)
    return text.encode(draw(st.sampled_from(["utf-8", "utf-16"])), "surrogatepass")


@tried
@given(data=csv_tables(), repeat=st.sampled_from([1, 30]))
def test_histories_with_odd_columns(folder, question, data, repeat):
    path = folder / "odd.csv"
    first, mark, rest = data.partition(b"\n")
    path.write_bytes(first + mark + rest * repeat)
    invoke("check", question, path)
    out = folder / "odd-made.toml"
    invoke("init", path, *ROLES, "-o", out, "--force")
    invoke("init", path, "-o", out, "--force")


CONTEXTS = st.sampled_from(["score", "debt", "id", "", "Score"])


@tried
@given(data=csv_tables(CONTEXTS), kind=st.sampled_from(["csv", "jsonl", "parquet"]))
def test_contexts_with_odd_columns(policy, data, kind):
    invoke("recommend", policy, "-", "--format", kind, given=data)


@tried
@given(rows=st.lists(st.dictionaries(CONTEXTS, VALUES, max_size=4), max_size=5))
def test_contexts_as_odd_json(policy, rows):
    text = "\n".join(json.dumps(row) for row in rows)
    try:
        data = text.encode("utf-8")
    except UnicodeEncodeError:
        assume(False)
    invoke("recommend", policy, "-", "--format=jsonl", given=data)
    invoke(
        "recommend", policy, "-", "--format=jsonl", "--json", "--keep=id", given=data
    )


@tried
@given(data=st.binary(max_size=60))
def test_lines_are_read_or_refused(data):
    try:
        found = tables.read_lines(data, "a test")
    except ForestallError:
        return
    assert len({len(column) for column in found.values()}) <= 1


PAIRS = st.sampled_from(["score=", "debt=", "score", "=", "rate=", "x="])


@tried
@given(
    contexts=st.lists(st.tuples(PAIRS, CELLS), max_size=3),
    actions=st.lists(st.tuples(PAIRS, CELLS), max_size=2),
)
def test_odd_questions(policy, contexts, actions):
    given = [f"--context={name}{value}" for name, value in contexts]
    given += [f"--action={name}{value}" for name, value in actions]
    invoke("whatif", policy, *given)


TEXTS = st.text(max_size=12) | st.sampled_from(
    ["age", "rate", "roi", "roi >= 0.4", "rate=0..1", "stability < rate", "a < < b"]
)
OPTIONS = st.sampled_from(
    [
        "--context",
        "--action",
        "--outcome",
        "--covariate",
        "--desired",
        "--interval",
        "--order",
        "--categorical",
    ]
)


@tried
@given(options=st.lists(st.tuples(OPTIONS, TEXTS), max_size=5), base=st.booleans())
def test_odd_options_of_init(history, options, base):
    given = [f"{name}={value}" for name, value in options]
    with tempfile.TemporaryDirectory() as place:
        out = Path(place) / "problem.toml"
        result = invoke("init", history, *(ROLES * base), *given, "-o", out)
        assert out.exists() == (result.exit_code == 0)
        if out.exists():
            assert invoke("check", out, history).exit_code == 0
