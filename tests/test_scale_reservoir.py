"""A sample that is uniform, and the same however the stream is cut."""

from __future__ import annotations

from functools import reduce

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import chisquare

from forestall.errors import DataError
from forestall.scale import Reservoir
from forestall.scale.reservoir import row_keys

N = 300


def sample(size, seed, rows):
    return Reservoir.of(size, seed, rows, {"value": 10.0 * rows})


def cut(bounds, n=N):
    return np.split(np.arange(n), sorted(bounds))


@given(
    size=st.integers(1, 2 * N),
    seed=st.integers(0, 2**63),
    bounds=st.lists(st.integers(0, N), max_size=6),
    shuffled=st.randoms(use_true_random=False),
)
def test_parts_in_any_order_add_up_to_the_sample_of_the_whole(
    size, seed, bounds, shuffled
):
    parts = [sample(size, seed, rows) for rows in cut(bounds)]
    shuffled.shuffle(parts)
    joined = reduce(lambda one, other: one + other, parts, Reservoir.empty(size, seed))
    whole = sample(size, seed, np.arange(N))
    assert joined.rows.tolist() == whole.rows.tolist()
    assert joined.columns["value"].tolist() == (10.0 * whole.rows).tolist()
    assert len(whole.rows) == min(size, N)


def test_the_sample_is_that_of_the_smallest_keys():
    keys = row_keys(5, np.arange(N))
    assert sample(7, 5, np.arange(N)).rows.tolist() == sorted(np.argsort(keys)[:7])


def test_every_row_is_as_likely_as_every_other():
    counts = np.zeros(50)
    for seed in range(2000):
        counts[sample(10, seed, np.arange(50)).rows] += 1
    # Draws without replacement vary less than the statistic supposes.
    assert chisquare(counts).pvalue > 1e-3


def test_every_pair_of_neighbours_is_as_likely_as_chance_has_it():
    pairs = 0
    for seed in range(2000):
        pairs += (np.diff(sample(10, seed, np.arange(50)).rows) == 1).sum()
    expected = 2000 * 49 * (10 / 50) * (9 / 49)
    assert abs(pairs - expected) < 4.0 * np.sqrt(expected)


def test_keys_differ_from_row_to_row_and_fill_their_range():
    keys = row_keys(0, np.arange(100_000))
    assert len(np.unique(keys)) == len(keys)
    shares = np.histogram(keys / 2.0**64, bins=64, range=(0.0, 1.0))[0]
    assert chisquare(shares).pvalue > 1e-3


def test_another_seed_gives_another_sample():
    one, other = (sample(20, seed, np.arange(N)).rows for seed in (0, 1))
    assert one.tolist() != other.tolist()


def test_samples_drawn_unlike_do_not_add_up():
    with pytest.raises(DataError, match=r"got 5 by seed 0 and 5 by seed 1\. Draw both"):
        sample(5, 0, np.arange(9)) + sample(5, 1, np.arange(9))


def test_a_sample_has_at_least_one_record():
    with pytest.raises(DataError, match="at least 1 record; got 0"):
        Reservoir.empty(0, 0)
