"""Policies decide for streams of contexts as they do for tables."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from forestall import baselines, method
from forestall.errors import ForestallWarning
from forestall.scale import recommend_stream
from forestall.table import read_table
from worlds import LENDING, contexts_of, lending


def test_a_policy_writes_the_decisions_it_would_have_made(tmp_path):
    policy = baselines.NoAction().fit(LENDING, lending(80))
    contexts = contexts_of(LENDING, lending(80), slice(0, 20))
    path = tmp_path / "contexts.parquet"
    table = pa.table({k: np.asarray(v) for k, v in contexts.items()})
    pq.write_table(table, path)
    written = policy.recommend_to(tmp_path / "out", path)
    assert written.rows == table.num_rows
    (part,) = (tmp_path / "out").glob("*.parquet")
    told = read_table(part)
    direct = policy.recommend(table)
    assert told["verdict"].to_pylist() == direct.verdict
    assert told["probability"].to_numpy() == pytest.approx(direct.probability)


def test_progress_within_a_batch_moves_no_decision_and_places_warnings(
    tmp_path, monkeypatch
):
    policy = baselines.NoAction().fit(LENDING, lending(80))
    monkeypatch.setattr(method, "FEWEST", 8)
    monkeypatch.setattr(method, "MOST", 8)
    contexts = contexts_of(LENDING, lending(80), slice(0, 20))
    table = pa.table({k: np.asarray(v) for k, v in contexts.items()})
    gap = [None if i == 13 else v for i, v in enumerate(table["score"].to_pylist())]
    path, seen = tmp_path / "contexts.parquet", []
    pq.write_table(table.set_column(0, "score", pa.array(gap)), path)
    with pytest.warns(ForestallWarning, match="from row 8 of .* in row 5: "):
        recommend_stream(
            policy, path, tmp_path / "told", progress=lambda *now: seen.append(now)
        )
    with pytest.warns(ForestallWarning, match="from row 0 of .* in row 13: "):
        recommend_stream(policy, path, tmp_path / "untold")
    assert seen == [(8, 20), (16, 20), (20, 20)]
    told, untold = (
        pq.read_table(tmp_path / name).to_pydict() for name in ("told", "untold")
    )
    assert told["verdict"].count("abstain") == 1
    for name, column in told.items():
        if name in ("verdict", "reason", "extrapolates"):
            assert column == untold[name]
        else:
            np.testing.assert_allclose(column, untold[name], atol=1e-12)
