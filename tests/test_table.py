"""Any table in, checked arrays inside, the same kind out."""

from __future__ import annotations

import copy
import datetime
import re
import subprocess
import sys
from decimal import Decimal

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from pyarrow import csv, feather, parquet

from forestall.encoding import Block, Categorical, Numeric
from forestall.errors import DataError
from forestall.observations import Observations, good_records
from forestall.problem import Problem
from forestall.table import Table, like, read_table

N = 40
REALS = st.floats(-1e6, 1e6, allow_subnormal=False)


def make_problem(**changes):
    fields = {
        "context": ["income", "sector", "owner"],
        "covariates": ["grade", "risk"],
        "actions": {"rate": (0.0, 1.0), "term": (12.0, 60.0)},
        "outcomes": ["roi", "paid"],
        "desired": ["roi >= 0.3"],
        "order": [
            ["income", "sector", "owner"],
            ["grade", "risk"],
            ["rate", "term"],
            ["roi", "paid"],
        ],
        "categorical": ["grade"],
    }
    return Problem(**{**fields, **changes})


def make_history(n=N):
    rng = np.random.default_rng(3)
    return {
        "income": rng.normal(50.0, 10.0, n),
        "sector": rng.choice(["steel", "farm", "retail"], n),
        "owner": rng.random(n) > 0.5,
        "grade": rng.integers(1, 4, n),
        "risk": rng.normal(size=n),
        "rate": rng.normal(0.5, 0.3, n),
        "term": rng.integers(12, 61, n),
        "roi": np.linspace(-1.0, 1.0, n),
        "paid": rng.random(n) > 0.3,
    }


def with_cell(name, row, value):
    column = make_history()[name].astype(object)
    column[row] = value
    return {**make_history(), name: list(column)}


def pandas_nullable(h):
    types = {
        "income": "Float64",
        "sector": "category",
        "owner": "boolean",
        "grade": "Int64",
        "term": "Int16",
        "paid": "boolean",
    }
    return pd.DataFrame(h).astype(types)


def polars_typed(h):
    return pl.DataFrame(h).with_columns(
        pl.col("sector").cast(pl.Enum(["steel", "retail", "farm", "unused"])),
        pl.col("grade").cast(pl.UInt8),
    )


def arrow_typed(h):
    table = pa.table(h)
    k = table.column_names.index("sector")
    return table.set_column(k, "sector", table["sector"].dictionary_encode())


KINDS = {
    "dict of arrays": dict,
    "dict of lists": lambda h: {k: v.tolist() for k, v in h.items()},
    "dict of series": lambda h: {k: pd.Series(v) for k, v in h.items()},
    "dict of arrow arrays": lambda h: {k: pa.array(v) for k, v in h.items()},
    "dict of objects": lambda h: {k: v.astype(object) for k, v in h.items()},
    "pandas": lambda h: pd.DataFrame(h, index=np.arange(100, 100 + N)),
    "pandas nullable": pandas_nullable,
    "pandas objects": lambda h: pd.DataFrame(h).astype(object),
    "polars": pl.DataFrame,
    "polars typed": polars_typed,
    "polars lazy": pl.LazyFrame,
    "pyarrow": pa.table,
    "pyarrow dictionary": arrow_typed,
    "pyarrow batch": pa.RecordBatch.from_pydict,
}


@pytest.fixture(scope="module")
def observations():
    return Observations.read(make_problem(), make_history())


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_table_gives_the_same_arrays(kind, observations):
    read = Observations.read(make_problem(), KINDS[kind](make_history()))
    for name in ("x", "u", "a", "y", "y_raw", "good"):
        np.testing.assert_array_equal(getattr(read, name), getattr(observations, name))
    assert read.schema.context == observations.schema.context
    assert read.schema.covariates == observations.schema.covariates


@pytest.mark.parametrize("suffix", ["csv", "parquet", "feather", "arrow"])
def test_files_give_the_same_arrays(suffix, tmp_path, observations):
    path = tmp_path / f"history.{suffix}"
    writers = {"csv": csv.write_csv, "parquet": parquet.write_table}
    writers.get(suffix, feather.write_feather)(pa.table(make_history()), str(path))
    read = Observations.read(make_problem(), path)
    np.testing.assert_allclose(read.x, observations.x, rtol=1e-12)
    np.testing.assert_array_equal(read.good, observations.good)


def test_a_stream_of_arrow_batches_is_an_arrow_file_too(tmp_path, observations):
    table = pa.table(make_history())
    with pa.ipc.new_stream(str(tmp_path / "h.arrow"), table.schema) as sink:
        sink.write_table(table)
    read = Observations.read(make_problem(), str(tmp_path / "h.arrow"))
    np.testing.assert_array_equal(read.a, observations.a)


def test_arrays_are_standard_readonly_float64_rows(observations):
    for name in ("x", "u", "a", "y", "y_raw"):
        array = getattr(observations, name)
        assert array.dtype == np.float64
        assert array.shape[0] == observations.n == N
        assert array.flags.c_contiguous
        assert not array.flags.writeable
    for numbers in (observations.x[:, 0], *observations.a.T, *observations.y.T):
        assert numbers.mean() == pytest.approx(0.0, abs=1e-12)
        assert numbers.std() == pytest.approx(1.0)


def test_two_levels_are_at_squared_distance_two(observations):
    sector = observations.x[:, observations.schema.context.slices["sector"]]
    gaps = ((sector[:, None] - sector[None]) ** 2).sum(axis=-1)
    assert set(np.unique(gaps)) == {0.0, 2.0}


def test_levels_are_the_users_values_sorted(observations):
    context, covariates = observations.schema.context, observations.schema.covariates
    assert context.columns[1] == Categorical("sector", ("farm", "retail", "steel"))
    assert context.columns[2] == Categorical("owner", (False, True))
    assert covariates.columns[0] == Categorical("grade", (1, 2, 3))
    assert context.width == observations.x.shape[1] == 6


def test_covariates_can_be_selected_by_name(observations):
    both = observations.covariate_columns(["risk", "grade"])
    np.testing.assert_array_equal(both, np.roll(observations.u, 1, axis=1))
    assert observations.covariate_columns([]).shape == (N, 0)


def test_without_covariates_u_has_no_columns():
    problem = make_problem(covariates=[], order=None, categorical=[])
    assert Observations.read(problem, make_history()).u.shape == (N, 0)


def test_good_records_are_judged_in_the_users_units(observations):
    expected = make_history()["roi"] >= 0.3
    np.testing.assert_array_equal(observations.good, expected)


def test_another_region_judges_the_same_records(observations):
    other = good_records(make_problem(desired=["roi < 0"]).region, observations.y_raw)
    np.testing.assert_array_equal(other, make_history()["roi"] < 0)


def test_strict_constraints_exclude_the_boundary():
    history = {**make_history(), "roi": np.repeat([1.0, 2.0], N // 2)}
    strict = Observations.read(make_problem(desired=["roi > 1"]), history)
    loose = Observations.read(make_problem(desired=["roi >= 1"]), history)
    assert strict.good.sum() == N // 2
    assert loose.good.all()


def test_inputs_stay_untouched():
    frame = pd.DataFrame(make_history(), index=np.arange(N) * 2)
    before = frame.copy(deep=True)
    Observations.read(make_problem(missing="drop"), frame)
    pd.testing.assert_frame_equal(frame, before)
    columns = make_history()
    kept = copy.deepcopy(columns)
    observations = Observations.read(make_problem(), columns)
    observations.schema.encode_contexts(columns)
    observations.schema.actions_from_table(columns, N)
    for name, column in columns.items():
        np.testing.assert_array_equal(column, kept[name])
        assert column.flags.writeable


def test_a_constant_context_has_scale_one():
    history = {**make_history(), "income": np.full(N, 0.1)}
    observations = Observations.read(make_problem(), history)
    assert observations.schema.context.columns[0] == Numeric("income", 0.1, 1.0)
    assert not observations.x[:, 0].any()


@pytest.mark.parametrize("unit", [1e-200, 1e-9, 1e9, 1e90])
def test_standard_units_do_not_depend_on_the_users_unit(unit, observations):
    history = {**make_history(), "rate": make_history()["rate"] * unit}
    problem = make_problem(actions={"rate": (0.0, unit), "term": (12, 60)})
    np.testing.assert_allclose(
        Observations.read(problem, history).a, observations.a, rtol=1e-9
    )


@pytest.mark.parametrize(
    "convert",
    [
        lambda v: pa.table({"v": [Decimal(str(x)) for x in v]})["v"],
        lambda v: [Decimal(str(x)) for x in v],
        lambda v: np.ma.masked_array(v, mask=np.zeros(N, bool)),
        lambda v: v.astype(np.float32),
        lambda v: v.astype(np.uint64) * np.uint64(2**58),
        lambda v: pa.chunked_array([v.astype(np.int64) * 2**56 + 1]),
        lambda v: pl.Series(v.astype(np.int64)).cast(pl.Int128),
    ],
    ids=["arrow decimal", "decimal", "masked", "float32", "uint64", "int64", "int128"],
)
def test_numbers_of_any_type_are_read(convert, observations):
    column = convert(make_history()["term"])
    read = Observations.read(make_problem(), {**make_history(), "term": column})
    assert read.a.dtype == np.float64
    np.testing.assert_allclose(read.a, observations.a, rtol=1e-12)


def test_intervals_of_pandas_are_categories():
    frame = pd.DataFrame(make_history())
    frame["sector"] = pd.cut(frame["income"], 3)
    schema = Observations.read(make_problem(), frame).schema
    assert schema.context.columns[1].width == 3
    assert schema.encode_contexts(frame).faults == (None,) * N


TEMPLATES = {
    "pandas": (pd.DataFrame, pd.DataFrame),
    "polars": (pl.DataFrame, pl.DataFrame),
    "polars lazy": (pl.LazyFrame, pl.DataFrame),
    "pyarrow": (pa.table, pa.Table),
    "batch": (pa.RecordBatch.from_pydict, pa.RecordBatch),
    "dict": (dict, dict),
}


@pytest.mark.parametrize("kind", TEMPLATES)
def test_the_same_kind_comes_out(kind):
    make, expected = TEMPLATES[kind]
    out = like(make({"x": [1.0, 2.0]}), {"p": np.array([0.1, 0.2]), "v": ["act", "go"]})
    assert isinstance(out, expected)
    assert [float(p) for p in Table.read(out).cells("p").values] == [0.1, 0.2]
    assert list(Table.read(out).cells("v").values) == ["act", "go"]


def test_pandas_keeps_its_index():
    frame = pd.DataFrame({"x": [1.0, 2.0]}, index=pd.Index(["b", "b"], name="who"))
    out = like(frame, {"p": np.array([0.1, 0.2])})
    pd.testing.assert_index_equal(out.index, frame.index)
    assert out["p"].tolist() == [0.1, 0.2]


def test_one_mapping_answers_as_arrays_of_length_one():
    out = like({"x": 1.0, "s": "farm"}, {"p": np.array([0.5])})
    assert out["p"].shape == (1,)


def test_a_path_answers_as_a_pyarrow_table(tmp_path):
    csv.write_csv(pa.table({"x": [1.0]}), str(tmp_path / "x.csv"))
    assert isinstance(like(tmp_path / "x.csv", {"p": np.array([0.5])}), pa.Table)


def test_importing_the_package_imports_neither_pandas_nor_polars():
    code = (
        "import sys, forestall.table as t; t.Table.read({'x': [1]}).cells('x'); "
        "assert not {'pandas', 'polars'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


# Contexts


def contexts(**changes):
    return {"income": [50.0], "sector": ["farm"], "owner": [True], **changes}


def test_contexts_are_encoded_as_the_history_was(observations):
    rows = observations.schema.encode_contexts(make_history())
    np.testing.assert_array_equal(rows.x, observations.x)
    assert rows.faults == (None,) * N


def test_a_faulty_context_says_why_and_spares_the_others(observations):
    rows = observations.schema.encode_contexts(
        {
            "income": [50.0, np.nan, np.inf, 1e200, 50.0, 50.0],
            "sector": ["farm", "farm", "farm", "farm", "mining", None],
            "owner": [True, False, True, True, True, True],
        }
    )
    assert rows.faults[0] is None
    assert rows.faults[1].startswith("Expected a finite number for 'income'; got nan.")
    assert "got inf" in rows.faults[2]
    assert "got 1e+200" in rows.faults[3]
    assert rows.faults[4] == (
        "Expected a known category for 'sector' ('farm', 'retail', 'steel'); got "
        "'mining', which no record has. Map it to a known one, or add records."
    )
    assert "got none. Give its value" in rows.faults[5]
    assert rows.n == 6
    assert np.isfinite(rows.x).all()
    np.testing.assert_array_equal(rows.x[1:4, 0], 0.0)
    np.testing.assert_array_equal(rows.x[4], rows.x[0])


@given(
    income=st.lists(
        st.floats() | st.none() | st.integers() | st.booleans().map(float),
        min_size=3,
        max_size=3,
    ),
    sector=st.lists(st.text() | st.none(), min_size=3, max_size=3),
    owner=st.lists(st.booleans() | st.none(), min_size=3, max_size=3),
)
def test_no_value_of_the_right_kind_raises(observations, income, sector, owner):
    rows = observations.schema.encode_contexts(
        {"income": income, "sector": sector, "owner": owner}
    )
    assert np.isfinite(rows.x).all()
    assert [fault is None for fault in rows.faults] == [
        i is not None
        and np.isfinite(float(i) if abs(i) < 1e300 else np.inf)
        and abs(i) <= 1e100
        and s in ("farm", "retail", "steel")
        and o is not None
        for i, s, o in zip(income, sector, owner, strict=True)
    ]


def test_several_faults_of_a_row_are_all_told(observations):
    rows = observations.schema.encode_contexts(contexts(income=[None], sector=["frm"]))
    assert "'income'" in rows.faults[0]
    assert "Did you mean 'farm'?" in rows.faults[0]


def test_one_mapping_is_one_context(observations):
    one = {"income": 50, "sector": "farm", "owner": np.True_}
    rows = observations.schema.encode_contexts(one)
    expected = observations.schema.encode_contexts(contexts())
    np.testing.assert_array_equal(rows.x, expected.x)


def test_whole_floats_and_numpy_integers_are_the_same_category():
    problem = make_problem(context=["income", "grade"], covariates=[], order=None)
    schema = Observations.read(problem, make_history()).schema
    for grade in (2, 2.0, np.int8(2), Decimal(2)):
        rows = schema.encode_contexts({"income": 1.0, "grade": grade})
        assert rows.x[0, 1:].tolist() == [0.0, 1.0, 0.0]
    assert "got 7" in schema.encode_contexts({"income": 1.0, "grade": 7.0}).faults[0]


def test_no_contexts_are_no_rows(observations):
    rows = observations.schema.encode_contexts(pd.DataFrame(make_history()).iloc[:0])
    assert rows.x.shape == (0, 6)
    assert rows.faults == ()


ODD = [
    "low",
    "",
    "nan",
    "1_0",
    datetime.date(2020, 1, 1),
    b"50",
    [1.0, 2.0],
    {},
    1 + 2j,
    np.datetime64("2020-01-01"),
    pd.Interval(0, 1),
]


@pytest.mark.parametrize("odd", ODD, ids=repr)
def test_an_odd_cell_costs_its_row_only(observations, odd):
    rows = observations.schema.encode_contexts(
        {
            "income": [50.0, odd, odd, "50", " 5e1 "],
            "sector": ["farm", "farm", "farm", odd, "farm"],
            "owner": [True, True, odd, True, True],
        }
    )
    assert [fault is None for fault in rows.faults] == [True, False, False, False, True]
    assert rows.faults[1].startswith("Expected a finite number for 'income'; got ")
    assert rows.faults[1].endswith("Give its value.")
    assert "a known category for 'owner' (False, True); got " in rows.faults[2]
    assert "a known category for 'sector' ('farm', 'retail'," in rows.faults[3]
    np.testing.assert_array_equal(rows.x[[0, 0, 0]], rows.x[[0, 4, 4]])


def test_a_fault_names_the_column_and_the_value(observations):
    rows = observations.schema.encode_contexts(contexts(income=["abc"]))
    assert rows.faults == (
        "Expected a finite number for 'income'; got 'abc'. Give its value.",
    )


@pytest.mark.parametrize("make", [dict, pd.DataFrame, lambda h: pl.DataFrame(h)])
def test_a_wrong_column_makes_every_row_faulty(observations, make):
    table = make({"income": ["a", "b"], "sector": ["farm"] * 2, "owner": [True] * 2})
    faults = observations.schema.encode_contexts(table).faults
    assert ["got 'a'" in faults[0], "got 'b'" in faults[1]] == [True, True]


@given(
    st.permutations([50.0, 50, "50", True, None, "low", b"x", np.nan, Decimal(50)]),
    st.integers(0, 8),
)
def test_what_is_made_of_a_row_does_not_depend_on_the_others(observations, income, cut):
    def encoded(values):
        table = {"income": values, "sector": ["farm"], "owner": [True]}
        return observations.schema.encode_contexts(
            {k: v if k == "income" else v * len(values) for k, v in table.items()}
        )

    whole, part = encoded(income), encoded(income[: cut + 1])
    np.testing.assert_array_equal(whole.x[: cut + 1], part.x)
    assert whole.faults[: cut + 1] == part.faults


@pytest.mark.parametrize(
    ("levels", "value", "told"),
    [
        (
            (False, True),
            "True",
            "got the text 'True', not the boolean True. Convert it.",
        ),
        ((False, True), "true", "got the text 'true', not the boolean True."),
        ((1, 2), "2", "got the text '2', not the number 2."),
        (("1", "2"), 2.0, "got the number 2, not the text '2'."),
        (("a", "b"), "A", "got 'A', which no record has."),
        ((1, "farm"), "frm", "Did you mean 'farm'?"),
    ],
)
def test_a_category_of_another_type_says_the_type(levels, value, told):
    assert told in Categorical("k", levels).fault(value)


def test_the_text_columns_of_an_empty_answer_are_text():
    empty = {"p": np.empty(0), "v": []}
    one = {"p": np.ones(1), "v": ["act"]}
    for make in (pd.DataFrame, pl.DataFrame):
        none, some = (like(make({"x": [0.0] * len(c["v"])}), c) for c in (empty, one))
        assert none["v"].dtype == some["v"].dtype
    for make in (pa.table, pa.RecordBatch.from_pydict):
        out = like(make({"x": pa.array([], pa.float64())}), empty)
        assert out.schema.types == [pa.float64(), pa.string()]
    assert like({"x": []}, empty)["v"].dtype.kind == "U"


def test_a_missing_context_column_is_an_error_with_the_nearest_name(observations):
    with pytest.raises(DataError, match=r"'sector' in the contexts.*Did you mean 'sec"):
        observations.schema.encode_contexts({"income": 1, "sectr": "farm", "owner": 1})


# Actions


@given(a=arrays(float, (5, 2), elements=REALS))
def test_actions_survive_the_round_trip(observations, a):
    schema = observations.schema
    back = schema.actions_to_units(schema.actions_from_table(a, 5))
    np.testing.assert_allclose(back, a, rtol=1e-9, atol=1e-9)


@given(
    share=arrays(float, (6, 1), elements=st.floats(0, 1)),
    mean=REALS,
    scale=st.floats(1e-6, 1e6),
    low=REALS,
    length=st.floats(1e-3, 1e6),
)
def test_what_is_inside_the_box_decodes_inside(
    observations, share, mean, scale, low, length
):
    schema = copy.copy(observations.schema)
    object.__setattr__(schema, "actions", Block((Numeric("rate", mean, scale),)))
    object.__setattr__(schema, "bounds", np.array([[low, low + length]]))
    a = schema.lower + share * (schema.upper - schema.lower)
    units = schema.actions_to_units(np.clip(a, schema.lower, schema.upper))
    assert (units >= low).all()
    assert (units <= low + length).all()
    ends = schema.actions_to_units(np.stack([schema.lower, schema.upper]))
    assert ends[:, 0].tolist() == [low, low + length]


def test_the_box_is_in_standard_units(observations):
    schema = observations.schema
    ends = schema.actions_from_table([[0.0, 12.0], [1.0, 60.0]], 2)
    np.testing.assert_allclose(ends, [schema.lower, schema.upper])
    np.testing.assert_allclose(schema.actions.scales[1], make_history()["term"].std())


@pytest.mark.parametrize(
    "actions",
    [
        np.array([[0.2, 24], [0.2, 24]]),
        {"rate": 0.2, "term": 24},
        {"term": [24, 24], "rate": [0.2, 0.2], "other": ["x", "y"]},
        pd.DataFrame({"term": [24, 24], "rate": [0.2, 0.2]}),
        pl.DataFrame({"term": [24, 24], "rate": [0.2, 0.2]}),
    ],
    ids=["array", "one mapping", "dict", "pandas", "polars"],
)
def test_given_actions_may_come_in_any_form(observations, actions):
    a = observations.schema.actions_from_table(actions, 2)
    np.testing.assert_allclose(
        observations.schema.actions_to_units(a), [[0.2, 24.0], [0.2, 24.0]]
    )


@pytest.mark.parametrize(
    ("actions", "text"),
    [
        ({"rate": [0.1], "term": [12]}, "each of 2 contexts; got 1 rows of actions"),
        ({"rate": 0.1}, r"the column 'term' in the actions; got the columns 'rate'"),
        ({"rate": 0.1, "terms": 12}, "Did you mean 'terms'?"),
        (
            {"rate": [0.1, np.nan], "term": [12, 12]},
            "'rate' in the actions; got nan in",
        ),
        ({"rate": [0.1, None], "term": [12, 12]}, "got nan in row 1"),
        ({"rate": "low", "term": 12}, "numbers in the column 'rate'; got text"),
        ({"rate": True, "term": 12}, "a continuous action in the column 'rate'"),
        ({"rate": 1e200, "term": 12}, r"numbers up to 1e\+100"),
        (np.ones(2), r"2 columns \('rate', 'term'\); got shape \(2,\)"),
        (np.ones((2, 3)), r"got shape \(2, 3\). Reshape it"),
        (np.ones((3, 2)), "got 3 rows of actions"),
        ([[1.0], [1.0, 2.0]], "got shape"),
        (0.3, "got float"),
    ],
)
def test_bad_actions_are_errors(observations, actions, text):
    with pytest.raises(DataError, match=text):
        observations.schema.actions_from_table(actions, 2)


# Bad history


def without(name):
    return {k: v for k, v in make_history().items() if k != name}


def renamed(old, new):
    return {new if k == old else k: v for k, v in make_history().items()}


def days():
    return [datetime.date(2020, 1, 1) + datetime.timedelta(k) for k in range(N)]


BAD = {
    "missing column": (without("risk"), "the column 'risk' in the history; got the"),
    "misspelt column": (renamed("income", "Incomes"), "Did you mean 'Incomes'?"),
    "text in action": (
        with_cell("rate", 7, "high"),
        "numbers in the column 'rate'; got text, first 'high' in row 7",
    ),
    "text in outcome": (
        {**make_history(), "roi": ["0.5"] * N},
        "'roi'; got text, first '0.5' in row 0. Convert",
    ),
    "category as action": (
        pd.DataFrame(make_history()).astype({"rate": "category"}),
        "'rate'; got text",
    ),
    "numbers as text": (
        with_cell("income", 17, "n/a"),
        r"'income'; got text, of which 39 of 40 values read as numbers. First other "
        r"value: 'n/a' in row 17.*Problem\(categorical=\['income'\]\)",
    ),
    "quoted numbers": (
        {**make_history(), "income": [str(k) for k in range(N)]},
        "40 of 40 values read as numbers. First value: '0' in row 0",
    ),
    "boolean action": (
        {**make_history(), "rate": make_history()["owner"]},
        "column 'rate'; got booleans. Yes-or-no actions are not supported; give "
        "the amount that was set",
    ),
    "booleans among numbers": (
        with_cell("risk", 3, True),
        "got booleans among numbers",
    ),
    "dates": (
        {**make_history(), "income": days()},
        r"'income'; got dates or times, first datetime.date\(2020, 1, 1\) in row 0",
    ),
    "numpy dates": (
        {**make_history(), "rate": np.array(days(), dtype="datetime64[ns]")},
        "'rate'; got dates or times",
    ),
    "pandas dates": (
        pd.DataFrame(make_history()).assign(income=pd.to_datetime(days())),
        "'income'; got dates or times",
    ),
    "polars durations": (
        pl.DataFrame(make_history()).with_columns(income=pl.lit(datetime.timedelta(1))),
        "'income'; got dates or times",
    ),
    "nested": (
        pl.DataFrame(make_history()).with_columns(
            income=pl.concat_list("risk", "rate")
        ),
        "'income'; got nested values",
    ),
    "objects": (
        {**make_history(), "income": [object()] * N},
        "'income'; got values of type object",
    ),
    "bytes": (
        {**make_history(), "sector": [b"x"] * N},
        "got bytes instead of text, first b'x' in row 0. Save the file as UTF-8",
    ),
    "booleans among categories": (
        {**make_history(), "sector": [1, "a", True, "b"] * (N // 4)},
        "one kind of value in the column 'sector'; got booleans among numbers",
    ),
    "integer names": (
        pd.DataFrame(np.ones((3, 2))),
        r"'income' in the history; got only column names that are no text, first 0 "
        r"\(int\). Rename the columns",
    ),
    "two levels of names": (
        pd.DataFrame({("a", "income"): [1.0]}),
        r"no text, first \('a', 'income'\) \(tuple\)",
    ),
    "one integer name": (
        {**without("risk"), 0: np.ones(N)},
        r"'risk' in the history; got the columns 'income', .* and column names that "
        r"are no text, first 0",
    ),
    "many columns": (
        {**{f"column {k}": [1.0] for k in range(50)}, "Income ": [1.0]},
        r"got the columns 'Income ', .* and 41 more. Did you mean 'Income '\?",
    ),
    "complex": (
        {**make_history(), "rate": make_history()["rate"] + 1j},
        "'rate'; got complex numbers",
    ),
    "gaps": (
        {**with_cell("income", 4, None), "roi": [np.inf] + [1.0] * (N - 1)},
        r"gaps in 2 of 40 rows: 'income' has 1 missing \(first in row 4\); 'roi' has 1 "
        r"infinite \(first in row 0\).*Problem\(missing='drop'\)",
    ),
    "gap in text": (with_cell("sector", 2, np.nan), "'sector' has 1 missing"),
    "gap in nullable": (
        pandas_nullable(make_history()).assign(
            owner=pd.array([True, None] * (N // 2), dtype="boolean")
        ),
        r"'owner' has 20 missing \(first in row 1\)",
    ),
    "empty column": (
        {**make_history(), "sector": [None] * N},
        "'sector' has 40 missing",
    ),
    "constant action": (
        {**make_history(), "rate": np.full(N, 0.1)},
        "varies in the history; got 0.1 in all 40 records of 'rate'",
    ),
    "few records": (make_history(5), "records as variables, 9; got 5. Add records"),
    "no records": (make_history(0), "historical records; got an empty table"),
    "no columns": ({}, "'income' in the history; got the columns none"),
    "identifier": (
        {**make_history(), "sector": [f"id{k}" for k in range(N)]},
        "40 different values in 40 records, e.g. 'id0', 'id1', 'id10' and 37 more, "
        "which looks like an identifier",
    ),
    "huge": (
        with_cell("income", 9, 1e308),
        r"up to 1e\+100 in the column 'income'; got 1e\+308 in row 9",
    ),
    "beyond floats": (with_cell("income", 9, 10**400), "'income' has 1 infinite"),
    "ragged": (
        {**make_history(), "risk": np.ones(3)},
        "columns of one length; got 40 rows in 'income' and 3 in 'risk'",
    ),
    "matrix": (
        {**make_history(), "risk": np.ones((N, 2))},
        "one dimension for the column 'risk'; got 2 dimensions",
    ),
    "0-d array": ({**make_history(), "risk": np.array(1.0)}, "got 0 dimensions"),
    "set": ({**make_history(), "risk": {1, 2}}, "column 'risk'; got set"),
    "scalar among columns": (
        {**make_history(), "risk": 1.5},
        "the single value 1.5 for 'risk' among columns. Repeat it",
    ),
    "duplicate columns": (
        pd.DataFrame(np.ones((3, 2)), columns=["rate", "rate"]),
        "every column name once; got 'rate' 2 times",
    ),
    "duplicate arrow columns": (
        pa.Table.from_arrays([pa.array([1]), pa.array([2])], names=["a", "a"]),
        "every column name once; got 'a' 2 times",
    ),
    "no good record": (
        {**make_history(), "roi": np.linspace(-1, 0.25, N)},
        "got none in 40: 'roi >= 0.3' is never met, most nearly by roi = 0.25",
    ),
    "array": (np.ones((3, 2)), "a dict of columns.*got ndarray"),
    "series": (pd.Series([1.0]), "Expected a pandas or polars DataFrame.*got Series"),
    "nothing": (None, "got NoneType"),
    "unknown suffix": ("history.xlsx", r"\.arrow file; got 'history.xlsx'. Convert it"),
    "missing file": ("no/such.csv", "a file at 'no/such.csv'; there is none"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_history_is_an_error_that_names_it(case):
    history, text = BAD[case]
    with pytest.raises(DataError, match=text):
        Observations.read(make_problem(), history)


def test_each_constraint_tells_how_many_records_meet_it():
    problem = make_problem(desired=["0.5 <= roi <= 0.9", "paid >= 2", "roi <= 0.7"])
    text = (
        "'0.5 <= roi <= 0.9' is met by 8; 'paid >= 2' is never met.*0.7' is met by 34"
    )
    with pytest.raises(DataError, match=text):
        Observations.read(problem, make_history())


@pytest.mark.parametrize("suffix", ["csv", "parquet", "feather", "arrow"])
def test_a_broken_file_is_an_error(suffix, tmp_path):
    path = tmp_path / f"broken.{suffix}"
    path.write_bytes(b"a,b\n1\n2,3,4\n")
    with pytest.raises(DataError, match=r"a file that cannot be read"):
        Table.read(path)


@pytest.mark.parametrize("mark", [";", "\t", "|"])
def test_a_csv_with_another_separator_is_recognised(mark, tmp_path):
    path = tmp_path / "history.csv"
    path.write_text(f"income{mark}rate\n1{mark}2\n")
    with pytest.raises(DataError, match=f"separated by {re.escape(repr(mark))}"):
        Observations.read(make_problem(), path)
    path.write_text(f"income{mark}rate\n1,5{mark}2,5\n")
    with pytest.raises(DataError, match=f"sep={re.escape(repr(mark))}"):
        Observations.read(make_problem(), path)


@pytest.mark.parametrize("header", ["sector", "Präfix"])
def test_a_csv_that_is_no_utf8_says_so(header, tmp_path):
    path = tmp_path / "history.csv"
    rows = {**make_history(), "sector": ["Müller"] * N}
    names = [header if name == "sector" else name for name in rows]
    lines = [names, *zip(*rows.values(), strict=True)]
    text = "\n".join(",".join(map(str, line)) for line in lines)
    path.write_bytes(text.encode("latin-1"))
    with pytest.raises(DataError, match="UTF-8"):
        Observations.read(make_problem(), path)


def test_an_empty_field_of_a_csv_is_a_gap(tmp_path):
    path = tmp_path / "gaps.csv"
    path.write_text('s,v\nfarm,1\n,\n"",3\n')
    table = Table.read(path)
    assert table.cells("s").values.tolist() == ["farm", None, ""]
    assert table.cells("v").gaps.tolist() == [False, True, False]


def test_dropping_leaves_out_and_counts_incomplete_records():
    history = with_cell("sector", 3, None)
    history["income"] = make_history()["income"].copy()
    history["income"][[3, 5]] = [np.nan, np.inf]
    observations = Observations.read(make_problem(missing="drop"), history)
    assert observations.dropped == 2
    assert observations.n == N - 2
    expected = np.delete(make_history()["roi"], [3, 5])
    np.testing.assert_array_equal(observations.y_raw[:, 0], expected)


def test_dropping_everything_is_an_error():
    history = {**make_history(), "risk": [None] * N}
    with pytest.raises(DataError, match="empty table after dropping 40 with gaps"):
        Observations.read(make_problem(missing="drop"), history)


def test_declared_categories_may_read_as_numbers():
    history = with_cell("grade", 17, "n/a")
    history["grade"] = [str(v) for v in history["grade"]]
    schema = Observations.read(make_problem(), history).schema
    assert schema.covariates.columns[0].levels == ("1", "2", "3", "n/a")


def test_few_numbers_among_categories_are_categories():
    schema = Observations.read(make_problem(), with_cell("sector", 0, 7)).schema
    assert schema.context.columns[1].levels == (7, "farm", "retail", "steel")


def test_a_folder_and_a_path_to_nothing_are_told_apart(tmp_path):
    with pytest.raises(DataError, match=r"it is a folder\. Name a file in it"):
        read_table(tmp_path)
    with pytest.raises(DataError, match=r"there is none\. Check the path"):
        read_table(tmp_path / "histry")
