"""Conditional flows are laws: they integrate, they sample, they leave torch alone."""

import sys
from itertools import pairwise

import numpy as np
import pytest
from scipy.integrate import trapezoid

from extras import flows_or_skip
from forestall import SpecError
from forestall.baselines.flow import ConditionalFlow, Training, learn, own_torch
from forestall.errors import FitError, MissingExtraError


@pytest.fixture
def torch():
    return flows_or_skip()[0]


SMALL = Training(n_hidden=16, n_epochs=40, patience=10, step_size=5e-3)


def bent(n, seed=0):
    rng = np.random.default_rng(seed)
    h = rng.normal(size=(n, 2))
    v = 0.8 * h[:, :1] + 0.3 * np.exp(0.5 * rng.normal(size=(n, 1)))
    return h, v


@pytest.fixture(scope="module")
def flow():
    flows_or_skip()
    return learn(*bent(600), SMALL, 0)


@pytest.mark.heavy
def test_a_one_dimensional_flow_integrates_to_one(flow):
    v = np.linspace(-12.0, 12.0, 20001)[:, None]
    for h in ([0.0, 0.0], [1.5, -2.0], [4.0, 4.0]):
        density = np.exp(flow.log_density(v, np.tile(h, (len(v), 1))))
        assert trapezoid(density, v[:, 0]) == pytest.approx(1.0, abs=1e-3)


@pytest.mark.heavy
def test_samples_have_the_moments_of_the_records(flow):
    h, v = bent(4000, seed=1)
    e = np.random.default_rng(2).normal(size=v.shape)
    drawn, trend = flow.sample(h, e), 0.8 * h[:, :1]
    assert (drawn - trend).mean() == pytest.approx((v - trend).mean(), abs=0.02)
    assert (drawn - trend).std() == pytest.approx((v - trend).std(), rel=0.12)
    assert np.corrcoef(drawn[:, 0], h[:, 0])[0, 1] == pytest.approx(
        np.corrcoef(v[:, 0], h[:, 0])[0, 1], abs=0.02
    )


@pytest.mark.heavy
def test_the_samples_have_the_density_that_the_flow_says(flow):
    h = np.tile([0.5, -0.5], (40000, 1))
    drawn = flow.sample(h, np.random.default_rng(3).normal(size=(40000, 1)))
    edges = np.quantile(drawn, [0.1, 0.3, 0.5, 0.7, 0.9])
    for low, high in pairwise(edges):
        v = np.linspace(low, high, 2001)[:, None]
        density = np.exp(flow.log_density(v, h[:2001]))
        assert trapezoid(density, v[:, 0]) == pytest.approx(0.2, abs=0.01)


@pytest.mark.heavy
def test_several_variables_keep_their_dependence_without_any_input(torch):
    rng = np.random.default_rng(0)
    first = rng.normal(size=800)
    v = np.column_stack([first, -0.9 * first + 0.4 * rng.normal(size=800)])
    flow = learn(np.empty((800, 0)), v, SMALL, 0)
    e = rng.normal(size=(4000, 2))
    drawn = flow.sample(np.empty((4000, 0)), e)
    assert np.corrcoef(drawn.T)[0, 1] == pytest.approx(np.corrcoef(v.T)[0, 1], abs=0.04)


@pytest.mark.heavy
def test_a_linear_trend_goes_on_where_there_are_no_records(torch):
    rng = np.random.default_rng(0)
    h = rng.normal(size=(400, 1))
    flow = learn(h, 2.0 * h + 0.2 * rng.normal(size=(400, 1)), SMALL, 0)
    drawn = flow.sample(np.full((500, 1), 6.0), rng.normal(size=(500, 1)))
    assert drawn.mean() == pytest.approx(12.0, abs=0.5)


@pytest.mark.heavy
def test_equal_seeds_give_equal_flows_whatever_the_state_of_torch(flow, torch):
    before = torch.get_default_dtype(), torch.random.get_rng_state()
    try:
        torch.set_default_dtype(torch.float64)
        torch.manual_seed(7)
        again = learn(*bent(600), SMALL, 0)
    finally:
        torch.set_default_dtype(before[0])
        torch.random.set_rng_state(before[1])
    assert set(again.weights) == set(flow.weights)
    for name, value in flow.weights.items():
        assert np.array_equal(value, again.weights[name])
    other = learn(*bent(600), SMALL, 1)
    assert not np.array_equal(other.curve, flow.curve)


@pytest.mark.heavy
def test_the_state_of_torch_is_left_as_it_was(torch):
    threads = torch.get_num_threads()
    try:
        torch.set_num_threads(2)
        state = torch.random.get_rng_state()
        with own_torch(5), torch.no_grad():
            assert torch.get_num_threads() == 1
            assert torch.rand(1).dtype == torch.float64
        with pytest.raises(ZeroDivisionError), own_torch(5):
            1 / 0  # noqa: B018
        assert torch.get_num_threads() == 2
        assert torch.get_default_dtype() == torch.float32
        assert torch.equal(torch.random.get_rng_state(), state)
    finally:
        torch.set_num_threads(threads)


@pytest.mark.heavy
def test_a_flow_is_rebuilt_from_its_arrays(flow):
    assert all(isinstance(value, np.ndarray) for value in flow.weights.values())
    copies = {name: value.copy() for name, value in flow.weights.items()}
    arrays = flow.slopes.copy(), flow.intercepts.copy(), flow.scales.copy()
    again = ConditionalFlow(flow.training, *arrays, copies, flow.curve)
    h, v = bent(20, seed=4)
    assert np.array_equal(again.log_density(v, h), flow.log_density(v, h))


@pytest.mark.heavy
def test_training_stops_early_and_keeps_the_best_epoch(torch):
    seen = []
    h, v = bent(60)
    training = Training(n_hidden=32, n_epochs=300, patience=5, step_size=0.02)
    flow = learn(h, v, training, 0, "v", seen.append)
    assert len(seen) == len(flow.curve) < 300
    assert flow.best_epoch == len(flow.curve) - 5
    assert [epoch.number for epoch in seen] == list(range(1, len(seen) + 1))
    assert seen[-1].best == min(epoch.held_out for epoch in seen)
    rows = np.random.default_rng([0, 0]).permutation(60)[:12]
    kept = -flow.log_density(v[rows], h[rows]).mean()
    assert kept == pytest.approx(flow.curve[:, 1].min(), abs=1e-9)


@pytest.mark.heavy
def test_a_value_that_never_varies_is_drawn_as_it_is(torch):
    h = np.random.default_rng(0).normal(size=(50, 1))
    flow = learn(h, np.full((50, 1), 0.25), replace_epochs(5), 0)
    drawn = flow.sample(h, np.random.default_rng(1).normal(size=(50, 1)))
    np.testing.assert_allclose(drawn, 0.25, atol=1e-4)


def replace_epochs(n):
    return Training(n_hidden=8, n_epochs=n, patience=n)


@pytest.mark.heavy
def test_a_likelihood_that_is_not_finite_is_an_error_with_the_name(torch):
    h, v = bent(40)
    v[3] = np.nan
    with pytest.raises(FitError, match="finite likelihood of roi; got none in epoch 1"):
        learn(h, v, SMALL, 0, "roi")


@pytest.mark.parametrize("package", ["torch", "zuko"])
def test_a_missing_package_says_which_extra_to_install(monkeypatch, package):
    if package == "zuko":
        flows_or_skip()
    monkeypatch.setitem(sys.modules, package, None)
    expected = rf"'{package}'.*pip install 'forestall\[flows\]'"
    with pytest.raises(MissingExtraError, match=expected):
        learn(*bent(40), SMALL, 0)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"n_bins": 0}, "n_bins above zero and whole; got 0"),
        ({"held_out": 1.0}, "held_out as a share between 0 and 1; got 1.0"),
        ({"step_size": -1.0}, "positive and finite step_size; got -1.0"),
    ],
)
def test_training_that_makes_no_sense_is_an_error(fields, message):
    with pytest.raises(SpecError, match=message):
        Training(**fields)
