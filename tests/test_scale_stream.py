"""A stream of records is encoded as the same records in memory are."""

from __future__ import annotations

import pickle
import re
from functools import reduce

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from pyarrow import parquet

from forestall.cells import Cells
from forestall.encoding import Categorical, Numeric
from forestall.errors import DataError, ForestallError
from forestall.observations import Observations
from forestall.problem import Problem
from forestall.scale import Source, batches, survey
from forestall.scale.moments import Moments

N = 120
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
    return pd.DataFrame(
        {
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
    )


def with_gaps(n=N):
    history = make_history(n).astype({"grade": float})
    history.loc[3, "income"] = np.nan
    history.loc[40:90, "sector"] = None
    history.loc[5, "rate"] = np.inf
    history.loc[5, "grade"] = np.nan
    return history


def written(history, path, pieces=3, suffix="parquet"):
    path.mkdir()
    for k, rows in enumerate(np.array_split(np.arange(len(history)), pieces)):
        part, file = history.iloc[rows], path / f"{k}.{suffix}"
        if suffix == "csv":
            part.to_csv(file, index=False)
        else:
            parquet.write_table(pa.Table.from_pandas(part), file)
    return path


def assert_same_schema(one, other):
    for role in ("context", "covariates", "actions", "outcomes"):
        for a, b in zip(
            getattr(one, role).columns, getattr(other, role).columns, strict=True
        ):
            if isinstance(b, Categorical):
                assert a == b
            else:
                assert a.name == b.name
                assert a.mean == pytest.approx(b.mean, rel=1e-12, abs=1e-12 * b.scale)
                assert a.scale == pytest.approx(b.scale, rel=1e-12)
    assert np.array_equal(one.bounds, other.bounds)


def assert_same_records(parts, whole):
    for name in ("x", "u", "a", "y", "y_raw", "good"):
        joined = np.concatenate([getattr(part, name) for part in parts])
        np.testing.assert_allclose(joined, getattr(whole, name), rtol=1e-11, atol=1e-11)
    assert sum(part.dropped for part in parts) == whole.dropped


@pytest.mark.parametrize("suffix", ["parquet", "csv"])
@pytest.mark.parametrize("rows", [7, 1000])
@pytest.mark.parametrize("gaps", [False, True], ids=["whole", "gaps"])
def test_a_stream_is_encoded_as_in_memory(tmp_path, suffix, rows, gaps):
    history = with_gaps() if gaps else make_history()
    problem = make_problem(missing="drop" if gaps else "error")
    whole = Observations.read(problem, history)
    source = written(history, tmp_path / "history", suffix=suffix)
    schema = survey(problem, source, batch_rows=rows).schema(problem)
    assert_same_schema(schema, whole.schema)
    found = list(batches(problem, schema, source, batch_rows=rows))
    assert_same_records([each.data for each in found], whole)
    kept = np.concatenate([each.rows for each in found])
    complete = np.isfinite(history[["income", "rate", "grade"]]).all(axis=1)
    assert (
        kept.tolist() == np.flatnonzero(complete & history["sector"].notna()).tolist()
    )


def test_surveys_of_the_parts_add_up_in_any_order(tmp_path):
    problem = make_problem(missing="drop")
    source = Source.read(written(with_gaps(), tmp_path / "history", pieces=5))
    whole = survey(problem, source, size=20, seed=4)
    parts = [survey(problem, part, size=20, seed=4) for part in source.split()]
    for order in (parts, parts[::-1]):
        joined = reduce(
            lambda one, other: one + other, pickle.loads(pickle.dumps(order))
        )
        assert_same_schema(joined.schema(problem), whole.schema(problem))
        assert joined.reservoir.rows.tolist() == whole.reservoir.rows.tolist()
        assert joined.census.dropped == whole.census.dropped == 53
        assert joined.census.good == whole.census.good
        tally = joined.census.tallies["sector"]
        assert tally == whole.census.tallies["sector"]
        assert sum(tally.levels.values()) == joined.census.n


def test_the_sample_holds_the_records_of_its_rows(tmp_path):
    problem = make_problem()
    source = written(make_history(), tmp_path / "history")
    found = survey(problem, source, size=30, seed=1, batch_rows=13)
    sample = found.sample(problem, found.schema(problem))
    whole = Observations.read(problem, make_history())
    assert sample.n == 30
    for name in ("x", "u", "a", "y", "y_raw", "good"):
        expected = getattr(whole, name)[found.reservoir.rows]
        np.testing.assert_allclose(getattr(sample, name), expected, atol=1e-11)


def test_a_column_of_nothing_but_gaps_in_one_file_is_of_the_kind_of_the_others(
    tmp_path,
):
    history = make_history()
    history.loc[:39, "sector"] = None
    source = written(history, tmp_path / "history")
    problem = make_problem(missing="drop")
    schema = survey(problem, source).schema(problem)
    assert schema.context.columns[1].levels == ("farm", "retail", "steel")


@given(
    values=arrays(float, st.integers(1, 40), elements=REALS),
    shift=st.sampled_from([0.0, 1e9]),
    unit=st.sampled_from([1.0, 1e-170, 1e90]),
    cuts=st.lists(st.integers(0, 40), max_size=4),
)
def test_moments_add_up_to_those_of_all_the_numbers(values, shift, unit, cuts):
    values = (values + shift) * unit
    parts = [Moments.of(part) for part in np.split(values, sorted(cuts))]
    total = reduce(lambda one, other: one + other, parts, Moments())
    expected = Numeric.fit(Cells("v", "number", values))
    found = total.numeric("v")
    size = np.abs(values).max()
    assert total.n == len(values)
    assert found.mean == pytest.approx(expected.mean, rel=1e-12, abs=1e-14 * size)
    # A mean that is off by rounding is, squared, part of the spread.
    assert found.scale == pytest.approx(expected.scale, rel=1e-9, abs=1e-14 * size)


def memory_error(problem, history):
    with pytest.raises(ForestallError) as caught:
        Observations.read(problem, history)
    return str(caught.value)


def stream_error(problem, source):
    with pytest.raises(ForestallError) as caught:
        survey(problem, source, batch_rows=16).schema(problem)
    return str(caught.value)


def without_files(text):
    return re.sub(r" of '[^']*parquet'", "", re.sub(r"^In '[^']*': ", "", text))


def changed(**columns):
    return make_history().assign(**columns)


ODD = {
    "gaps": (make_problem(), with_gaps()),
    "few": (make_problem(), make_history().head(4)),
    "none": (make_problem(), make_history().head(0)),
    "none left": (make_problem(missing="drop"), changed(risk=np.nan)),
    "constant": (make_problem(), changed(rate=0.5)),
    "identifier": (make_problem(), changed(sector=[f"s{k:03d}" for k in range(N)])),
    "numbers as text": (make_problem(), changed(sector=[f"{k}" for k in range(N)])),
    "mostly numbers": (make_problem(), changed(sector=["n/k", *["7"] * (N - 1)])),
    "never good": (make_problem(desired=["roi >= 9", "paid >= 0.5"]), make_history()),
    "boolean action": (make_problem(), changed(rate=make_history()["paid"])),
    "huge": (make_problem(), changed(risk=[1.0, 1e200, *[2.0] * (N - 2)])),
    "dates": (make_problem(), changed(sector=pd.Timestamp("2020-01-01"))),
}


@pytest.mark.parametrize("case", ODD)
def test_a_stream_that_is_no_history_is_refused_in_the_same_words(tmp_path, case):
    problem, history = ODD[case]
    source = written(history, tmp_path / "history", pieces=1)
    expected = memory_error(problem, pa.Table.from_pandas(history))
    assert without_files(stream_error(problem, source)) == expected


def test_text_among_numbers_names_file_and_row(tmp_path):
    history = make_history().astype({"roi": object})
    source = written(make_history(), tmp_path / "history")
    history["roi"] = ["high" if k == 33 else None for k in range(N)]
    parquet.write_table(pa.Table.from_pandas(history), source / "7.parquet")
    text = stream_error(make_problem(), source)
    where = f"got text, first 'high' in row 33 of {str(source / '7.parquet')!r}."
    assert text.startswith("Expected numbers in the column 'roi'; " + where)


def test_decimal_commas_are_no_categories(tmp_path):
    history = changed(income=[f"0,{k % 9 + 1}" for k in range(N)])
    text = stream_error(make_problem(), written(history, tmp_path / "history"))
    assert (
        "Expected numbers with decimal points in the column 'income'; got text with a "
        "comma, e.g. '0,1'. Save the table with points" in text
    )


def test_two_kinds_in_two_files_name_both(tmp_path):
    source = written(make_history(), tmp_path / "history", pieces=1)
    parquet.write_table(
        pa.Table.from_pandas(changed(income="much")), source / "7.parquet"
    )
    assert stream_error(make_problem(), source).startswith(
        f"Expected one kind of value in the column 'income' of every file; got "
        f"numbers, first in row 0 of {str(source / '0.parquet')!r}, and texts, first "
        f"in row 0 of {str(source / '7.parquet')!r}. Write them all alike."
    )


def test_an_endless_column_of_identifiers_is_refused_early(tmp_path, monkeypatch):
    monkeypatch.setattr("forestall.scale.moments.MOST_LEVELS", 50)
    history = changed(sector=[f"s{k:03d}" for k in range(N)])
    source = written(history, tmp_path / "history")
    text = stream_error(make_problem(), source)
    assert "got more than 50 different values, e.g. 's000', 's001', 's002'" in text


def test_records_that_the_encoding_does_not_know_are_an_error(tmp_path):
    problem = make_problem()
    schema = Observations.read(problem, make_history()).schema
    sector = ["steel"] * 50 + ["mining"] + ["farm"] * (N - 51)
    source = written(changed(sector=sector), tmp_path / "history", pieces=1)
    place = f"That is row 50 of {str(source / '0.parquet')!r}."
    with pytest.raises(DataError, match=f"got 'mining', .*{re.escape(place)}"):
        list(batches(problem, schema, source, batch_rows=16))


def test_a_gap_that_the_survey_did_not_see_is_an_error(tmp_path):
    problem = make_problem()
    schema = Observations.read(problem, make_history()).schema
    source = written(with_gaps(), tmp_path / "history", pieces=1)
    with pytest.raises(DataError, match=r"got a gap in row 3 of .*missing='drop'"):
        list(batches(problem, schema, source))


def test_swapped_arguments_are_told_apart(tmp_path):
    with pytest.raises(ForestallError, match="Swap the two"):
        survey(str(tmp_path), make_problem())
