"""Policies decide for streams of contexts as they do for tables."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from forestall import baselines
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
