"""The fast ascent beside the paper's plain one, and the surfaces it climbs."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from forestall.ascent import Ascent
from forestall.errors import SpecError
from forestall.expansion import Expansion, Surface
from forestall.kernels import Gaussian

PLAIN = Ascent(halve_every=None, stride=1)
SEEDS = st.integers(0, 10_000)


def landscape(seed, d=2, contexts=6):
    """Functions of the height of a probability, and starts where they are high."""
    rng = np.random.default_rng(seed)
    centres, sigma = rng.normal(size=(60, d)), rng.uniform(0.8, 1.6, size=d)
    weights = rng.normal(0.2, 1.0, size=(contexts, 60))
    f = Expansion(Gaussian(sigma), centres, weights)
    top = np.abs(f(np.tile(centres, (contexts, 1, 1)))).max(axis=1)
    f = Expansion(Gaussian(sigma), centres, weights / top[:, None])
    starts = centres[np.argsort(-f.weights, axis=1)[:, :20]]
    return f, starts, np.full(d, -1.5), np.full(d, 1.5)


def heights(ascent, f, starts, lower, upper):
    return f(ascent.climb(f, starts, lower, upper)[:, None])[:, 0]


class Parabola:
    """Something to climb that is no expansion."""

    def value_and_gradient(self, a):
        return -0.5 * ((a - 0.3) ** 2).sum(axis=2), 0.3 - a


@settings(max_examples=60)
@given(seed=SEEDS, d=st.sampled_from([1, 2, 3]))
def test_few_evaluations_climb_as_high_as_the_plain_ascent(seed, d):
    place = landscape(seed, d)
    fast, plain = heights(Ascent(), *place), heights(PLAIN, *place)
    assert fast.mean() >= plain.mean() - 0.02
    assert (fast >= plain - 0.1).all()


@settings(max_examples=40)
@given(seed=SEEDS, d=st.sampled_from([1, 2, 3]))
def test_strides_follow_the_path_of_the_plain_steps(seed, d):
    f, starts, lower, upper = landscape(seed, d)
    one = starts[:, :1]
    strides = Ascent(halve_every=None).climb(f, one, lower, upper)
    plain = PLAIN.climb(f, one, lower, upper)
    moved = np.abs(plain - np.clip(one[:, 0], lower, upper)).max()
    # A ridge parts paths that run close together: one of six may end elsewhere.
    off = np.sort(np.abs(strides - plain).max(axis=1))
    assert off[-2] <= 0.15 * max(1.0, moved)


@settings(max_examples=40)
@given(seed=SEEDS, rate=st.sampled_from([0.05, 0.2, 1.0, 20.0]))
def test_the_fast_ascent_stays_in_the_box_and_never_ends_below_its_starts(seed, rate):
    f, starts, lower, upper = landscape(seed)
    best = Ascent(step_size=rate, halve_every=None).climb(f, starts, lower, upper)
    assert ((best >= lower) & (best <= upper)).all()
    begun = f(np.clip(starts, lower, upper)).max(axis=1)
    assert (f(best[:, None])[:, 0] >= begun - 1e-8).all()


def test_the_fast_ascent_gives_the_same_answer_twice():
    place = landscape(3)
    assert np.array_equal(Ascent().climb(*place), Ascent().climb(*place))


def test_a_context_climbs_alone_as_it_does_in_company():
    f, starts, lower, upper = landscape(5)
    together = Ascent().climb(f, starts, lower, upper)
    for i in range(len(starts)):
        alone = Expansion(f.kernel, f.centres, f.weights[i : i + 1])
        one = Ascent().climb(alone, starts[i : i + 1], lower, upper)
        np.testing.assert_allclose(one[0], together[i], atol=1e-9)


def test_whatever_has_values_and_gradients_can_be_climbed():
    starts, ends = np.zeros((4, 3, 2)), np.ones(2)
    best = Ascent().climb(Parabola(), starts, -ends, ends)
    np.testing.assert_allclose(best, 0.3, atol=1e-3)
    np.testing.assert_allclose(Ascent().climb(Parabola(), starts, -ends, 0 * ends), 0.0)


def test_steps_that_are_too_long_are_taken_back():
    starts, ends = np.full((1, 1, 2), -1.0), np.full(2, 9.0)
    long = Ascent(step_size=0.9, n_steps=200)
    np.testing.assert_allclose(
        long.climb(Parabola(), starts, -ends, ends), 0.3, atol=1e-6
    )


def test_short_climbs_are_plain_ones():
    place = landscape(7)
    short = Ascent(n_steps=15, halve_every=None)
    plain = Ascent(n_steps=15, halve_every=None, stride=1)
    assert np.array_equal(short.climb(*place), plain.climb(*place))


@settings(max_examples=40)
@given(seed=SEEDS, d=st.sampled_from([1, 2]), side=st.floats(0.0, 3.0))
def test_a_surface_equals_the_expansion_inside_the_box(seed, d, side):
    rng = np.random.default_rng(seed)
    f = Expansion(
        Gaussian(rng.uniform(0.5, 3.0, size=d)),
        rng.normal(size=(500, d)),
        rng.normal(size=(3, 500)),
    )
    middle = rng.normal(size=d)
    lower, upper = middle - side, middle + side
    surface = f.within(lower, upper)
    assert isinstance(surface, Surface)
    a = rng.uniform(lower, upper, size=(3, 40, d))
    for told, wanted in zip(
        surface.value_and_gradient(a), f.value_and_gradient(a), strict=True
    ):
        np.testing.assert_allclose(told, wanted, atol=1e-7)


@pytest.mark.parametrize(
    ("d", "side"), [(3, 1.0), (2, 50.0), (1, np.inf)], ids=["cube", "wide", "endless"]
)
def test_where_a_surface_would_not_pay_the_expansion_stays(d, side):
    f = landscape(1, d)[0]
    assert f.within(np.full(d, -side), np.full(d, side)) is f


@pytest.mark.parametrize("stride", [0, -1])
def test_an_ascent_without_a_stride_is_refused(stride):
    with pytest.raises(SpecError, match="Expected stride above zero and whole; got"):
        Ascent(stride=stride)
