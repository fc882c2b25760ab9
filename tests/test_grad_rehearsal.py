"""Grad-Rh: flows along the graph or the order, gradients on the actions."""

import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest

from extras import flows_or_skip
from forestall import ForestallWarning, Problem, SpecError
from forestall.baselines.descent import Descent
from forestall.baselines.flow import Training
from forestall.baselines.flow_system import plan
from forestall.baselines.grad_rehearsal import GradRehearsal
from forestall.baselines.losses import LOSSES, Goal, inscribed_ball
from forestall.errors import DataError, FitError, MissingExtraError
from forestall.region import Polytope, ProbitDesirability
from worlds import DOSING, LENDING, contexts_of, dosing, lending

TRAINING = Training(
    n_transforms=1, n_hidden=8, n_bins=4, n_epochs=10, batch_size=32, step_size=0.01
)
SMALL = GradRehearsal(
    n_draws=32, n_starts=2, n_steps=5, n_reported=256, training=TRAINING
)
FIELDS = ("actions", "probability", "no_action", "support")
heavy = pytest.mark.heavy


def small(**fields):
    return replace(SMALL, **fields)


@pytest.fixture(scope="module")
def lender():
    flows_or_skip()
    return SMALL.fit(LENDING, lending(200))


@pytest.fixture(scope="module")
def doser():
    flows_or_skip()
    return SMALL.fit(DOSING, dosing(200))


def some(problem, history, n=5):
    return contexts_of(problem, history(200), slice(0, n))


def descent_of(policy, loss):
    return Descent(
        system=policy.systems[0],
        goal=policy.goal,
        lower=policy.schema.lower,
        upper=policy.schema.upper,
        starts=policy._starts,
        loss=loss,
        select="loss",
        n_starts=2,
        n_steps=20,
        step_size=0.1,
    )


@heavy
@pytest.mark.parametrize("loss", LOSSES)
def test_the_gradient_of_every_loss_equals_finite_differences(lender, doser, loss):
    rng = np.random.default_rng(0)
    for policy in (lender, doser):
        descent = descent_of(policy, loss)
        x, d_a = policy.data.x[:4], policy.data.a.shape[1]
        a = rng.uniform(-0.5, 0.5, size=(4, d_a))
        noise = rng.normal(size=(50, policy.systems[0].n_noises))
        _, slope = descent.value(x, a, noise)
        for j, step in enumerate(1e-5 * np.eye(d_a)):
            up, _ = descent.value(x, a + step, noise)
            down, _ = descent.value(x, a - step, noise)
            np.testing.assert_allclose(
                slope[:, j], (up - down) / 2e-5, rtol=1e-4, atol=1e-6
            )


@heavy
def test_the_probit_loss_is_minus_the_log_of_the_smoothed_success(lender):
    torch, _ = flows_or_skip()
    y = np.random.default_rng(0).normal(size=(3, 40, 2))
    loss = lender.goal.loss("probit", torch.tensor(y)).numpy()
    w = ProbitDesirability(lender.goal.region, sharpness=10.0)
    np.testing.assert_allclose(loss, -np.log(w(y).mean(axis=1)), rtol=1e-9)


@heavy
def test_the_distances_are_those_to_the_centre_of_the_ball():
    torch, _ = flows_or_skip()
    region = Polytope.parse(["0 <= a <= 2", "0 <= b <= 2"], ["a", "b"])
    goal = Goal(region, inscribed_ball(region, np.zeros((1, 2))), 10.0)
    y = torch.tensor([[[1.0, 3.0]], [[1.0, 1.5]]], dtype=torch.float64)
    told = {name: goal.loss(name, y).tolist() for name in LOSSES}
    assert told["squared"] == pytest.approx([4.0, 0.25])
    assert told["absolute"] == pytest.approx([2.0, 0.5])
    assert told["insensitive"] == pytest.approx([1.0, 0.0])
    assert told["huber"] == pytest.approx([1.5, 0.125])
    assert goal.success(y).tolist() == [0.0, 1.0]


@pytest.mark.parametrize(
    ("desired", "centre", "radius"),
    [
        (["0 <= a <= 2", "0 <= b <= 2"], [1.0, 1.0], 1.0),
        # As large a ball fits anywhere along the longer side: the middle is taken.
        (["0 <= a <= 2", "0 <= b <= 6"], [1.0, 3.0], 1.0),
        # Unbounded: within the range of history, which is -4 to 4.
        (["a >= 2", "b >= 0"], [3.0, 2.0], 1.0),
        (["a >= 2"], [3.0, 0.0], 1.0),
        (["a + b <= 0", "a >= 0", "b >= -1"], None, 1 / (2 + 2**0.5)),
    ],
)
def test_the_largest_ball_is_in_the_middle_of_the_region(desired, centre, radius):
    y = np.array([[-4.0, -4.0], [4.0, 4.0]])
    region = Polytope.parse(desired, ["a", "b"])
    ball = inscribed_ball(region, y)
    assert ball.radius == pytest.approx(radius)
    assert region.slack(ball.centre).min() == pytest.approx(radius, abs=1e-6)
    if centre is not None:
        np.testing.assert_allclose(ball.centre, centre, atol=1e-6)


@heavy
@pytest.mark.parametrize(
    "desired",
    [
        ["repaid >= 0.6", "roi >= 0.3"],
        ["0.5 <= repaid <= 0.9", "0.2 <= roi <= 1.0"],
        ["roi >= 0.3"],
        ["repaid + roi <= 1.5"],
        ["repaid + roi <= 1.5", "repaid >= 0.4", "roi > 0.2"],
    ],
)
def test_every_region_is_accepted_without_fitting_anew(lender, desired):
    policy = lender.for_region(desired)
    assert policy.systems is lender.systems
    told = policy.recommend(some(LENDING, lending))
    assert ((told.probability >= 0) & (told.probability <= 1)).all()
    good = policy.goal.region.contains(policy.data.y)
    assert np.array_equal(good, policy.data.good)


@heavy
def test_another_region_is_answered_as_if_it_had_been_fitted(lender):
    problem = Problem.from_dict(LENDING.to_dict() | {"desired": ["roi >= 0.5"]})
    told = lender.for_region(["roi >= 0.5"]).recommend(some(LENDING, lending))
    again = SMALL.fit(problem, lending(200)).recommend(some(LENDING, lending))
    for name in FIELDS:
        assert np.array_equal(getattr(told, name), getattr(again, name))


@heavy
def test_a_region_that_no_record_has_seen_is_an_error(lender):
    with pytest.raises(DataError, match="'roi >= 90' is never met"):
        lender.for_region(["roi >= 90"])


@pytest.fixture(scope="module")
def titrator():
    flows_or_skip()
    rng = np.random.default_rng(0)
    x, a = rng.normal(size=(2, 400))
    history = {"x": x, "a": a, "y": a - x + 0.2 * rng.normal(size=400)}
    problem = Problem(
        context=["x"],
        actions={"a": (-4.0, 4.0)},
        outcomes=["y"],
        desired=["0.5 <= y <= 1.5"],
    )
    return small(n_steps=40).fit(problem, history)


@heavy
@pytest.mark.parametrize("select", ["success", "loss"])
@pytest.mark.parametrize("loss", LOSSES)
def test_every_loss_finds_the_effective_dose(titrator, loss, select):
    method = replace(titrator.method, loss=loss, select=select)
    policy = replace(titrator, method=method)
    told = policy.recommend({"x": np.array([-1.0, 0.0, 1.0])})
    np.testing.assert_allclose(told.actions[:, 0], [0.0, 1.0, 2.0], atol=0.25)
    assert (told.probability > 0.9).all()
    assert (told.no_action < 0.7).all()


@heavy
def test_the_chosen_iterate_is_the_best_by_what_selects_it(lender):
    noise = np.random.default_rng(1).normal(size=(64, lender.systems[0].n_noises))
    x = lender.data.x[:6]
    by_loss = descent_of(lender, "squared")
    by_success = Descent(**{**vars(by_loss), "select": "success"})
    torch, _ = flows_or_skip()

    def success(a):
        e = torch.tensor(noise)
        system = lender.systems[0]
        settled = system.settled(torch.tensor(x), e)
        y = system.altered(settled, torch.tensor(a), e)
        return lender.goal.success(y).numpy()

    one, other = by_loss(x, noise), by_success(x, noise)
    assert (success(other) >= success(one)).all()
    lower, upper = by_loss.value(x, one, noise)[0], by_loss.value(x, other, noise)[0]
    assert (lower <= upper + 1e-12).all()


@heavy
def test_a_descent_never_ends_above_its_start(lender):
    noise = np.random.default_rng(1).normal(size=(64, lender.systems[0].n_noises))
    x = lender.data.x[:6]
    descent = descent_of(lender, "squared")
    end = descent.value(x, descent(x, noise), noise)[0]
    inner = (descent.upper - descent.lower) * 0.475
    middle = 0.5 * (descent.upper + descent.lower)
    starts = np.clip(descent.starts, middle - inner, middle + inner)
    torch, _ = flows_or_skip()
    taken = descent._screened(torch, torch.tensor(x), torch.tensor(noise)).numpy()
    for k in range(taken.shape[1]):
        start = np.clip(taken[:, k], starts.min(axis=0), starts.max(axis=0))
        assert (end <= descent.value(x, start, noise)[0] + 1e-9).all()


@heavy
def test_fitting_twice_gives_equal_answers_whatever_the_order_of_records(lender):
    records = lending(200)
    shuffle = np.random.default_rng(5).permutation(200)
    again = SMALL.fit(LENDING, {k: v[shuffle] for k, v in records.items()})
    contexts = some(LENDING, lending)
    one, other = lender.recommend(contexts), again.recommend(contexts)
    for name in FIELDS:
        np.testing.assert_allclose(getattr(one, name), getattr(other, name), atol=1e-9)


@heavy
def test_each_context_is_answered_as_if_it_were_alone(doser):
    contexts = some(DOSING, dosing)
    together = doser.recommend(contexts)
    for i in range(5):
        alone = doser.recommend({k: float(v[i]) for k, v in contexts.items()})
        for name in FIELDS:
            np.testing.assert_allclose(
                getattr(alone, name)[0], getattr(together, name)[i], atol=1e-7
            )


@heavy
def test_evaluating_the_recommendation_says_the_same(lender):
    contexts = some(LENDING, lending)
    told = lender.recommend(contexts)
    again = lender.evaluate(contexts, told.actions)
    for name in FIELDS:
        np.testing.assert_allclose(getattr(told, name), getattr(again, name), atol=1e-9)


@heavy
def test_no_contexts_give_no_decisions(lender):
    assert len(lender.recommend({"score": [], "debt": []})) == 0


@heavy
def test_a_faulty_context_abstains_alone(lender):
    with pytest.warns(ForestallWarning, match="1 of 2 contexts cannot be read"):
        told = lender.recommend({"score": [0.5, np.nan], "debt": [0.5, 0.5]})
    assert told.verdict == ["leave", "abstain"]


@heavy
def test_without_refits_there_is_no_interval_and_nothing_is_claimed(lender):
    told = lender.recommend(some(LENDING, lending))
    assert np.isnan(told.lower).all()
    assert np.isnan(told.upper).all()
    assert set(told.verdict) == {"leave"}


@heavy
def test_refits_give_an_interval_that_contains_the_estimate():
    flows_or_skip()
    policy = small(n_refits=2).fit(DOSING, dosing(200))
    told = policy.recommend(some(DOSING, dosing))
    assert ((told.lower >= 0) & (told.lower <= told.probability)).all()
    assert ((told.upper <= 1) & (told.upper >= told.probability)).all()
    assert (told.upper > told.lower).any()


@heavy
def test_the_natural_course_is_as_good_as_history(lender, doser):
    for policy, history in ((lender, lending), (doser, dosing)):
        rows = slice(0, 200, 4)
        told = policy.recommend(contexts_of(policy.problem, history(200), rows))
        assert told.no_action.mean() == pytest.approx(policy.data.good.mean(), abs=0.1)


@heavy
def test_unusual_actions_are_called_extrapolation(lender):
    contexts = some(LENDING, lending, 1)
    far = lender.evaluate(contexts, {"rate": 40.0})
    assert far.extrapolates[0]
    assert far.support[0] == 0.0
    near = lender.evaluate(contexts, {"rate": float(lending(200)["rate"][0])})
    assert not near.extrapolates[0]


@heavy
def test_a_categorical_context_is_an_input_and_a_covariate_is_refused():
    flows_or_skip()
    rng = np.random.default_rng(0)
    sector = rng.choice(["farm", "shop"], 300)
    a = rng.normal(size=300)
    y = np.where(sector == "farm", a, -a) + 0.2 * rng.normal(size=300)
    history = {"sector": sector, "a": a, "y": y}
    fields = {"actions": {"a": (-2.0, 2.0)}, "outcomes": ["y"], "desired": ["y >= 0.8"]}
    problem = Problem(context=["sector"], **fields)
    policy = small(n_steps=40).fit(problem, history)
    told = policy.recommend({"sector": ["farm", "shop"]})
    assert told.actions[0, 0] > 0.5 > -0.5 > told.actions[1, 0]
    history["x"] = rng.normal(size=300)
    problem = Problem(
        context=["x"], covariates=["sector"], order=["x", "sector", "a", "y"], **fields
    )
    expected = "numbers, because a flow has a density; got the category 'sector'"
    with pytest.raises(FitError, match=expected):
        SMALL.fit(problem, history)


@heavy
def test_the_inputs_and_the_state_of_torch_stay_untouched():
    torch, _ = flows_or_skip()
    state, threads = torch.random.get_rng_state(), torch.get_num_threads()
    records = dosing(60)
    before = {k: v.copy() for k, v in records.items()}
    SMALL.fit(DOSING, records).recommend(some(DOSING, dosing))
    assert all(np.array_equal(records[k], before[k]) for k in records)
    assert torch.equal(torch.random.get_rng_state(), state)
    assert torch.get_num_threads() == threads
    assert torch.get_default_dtype() == torch.float32


@heavy
def test_progress_is_told_on_standard_error_and_only_when_asked(capsys):
    flows_or_skip()
    SMALL.fit(DOSING, dosing(60))
    assert capsys.readouterr() == ("", "")
    small(progress=True).fit(DOSING, dosing(60))
    out, err = capsys.readouterr()
    assert out == ""
    assert "effect without action" in err
    assert "epoch 10" in err
    assert "best" in err


GRAPH = "digraph { {score debt} -> rate; stability -> rate -> {repaid roi};"


def stages_of(graph, **fields):
    plain = {k: v for k, v in LENDING.to_dict().items() if k != "order"}
    return plan(Problem.from_dict(plain | {"graph": graph} | fields))


def test_a_graph_names_the_parents_and_what_need_not_be_learned():
    told = stages_of(GRAPH + " stability -> roi }")
    assert told == [
        (("repaid",), ("rate",)),
        (("stability",), ()),
        (("roi",), ("stability", "rate")),
    ]
    assert stages_of(GRAPH + "}") == [(("repaid",), ("rate",)), (("roi",), ("rate",))]


def test_outcomes_that_influence_each_other_share_a_flow():
    told = stages_of(GRAPH + " repaid -> roi [dir=both] }")
    assert told == [(("repaid", "roi"), ("rate",))]


def test_an_altered_member_of_a_clique_becomes_a_parent_of_the_rest():
    graph = "digraph { score; debt; rate -> stability [dir=both];"
    told = stages_of(graph + " stability -> {repaid roi} }")
    assert told[0] == (("stability",), ("rate",))


def test_a_hidden_cause_makes_everything_earlier_an_input():
    graph = GRAPH + " hidden -> {stability roi} }"
    told = dict(stages_of(graph))
    assert told["stability",] == ("score", "debt")
    assert told["repaid", "roi"] == ("score", "debt", "stability", "rate")


def test_an_order_makes_everything_earlier_an_input():
    assert plan(LENDING) == [
        (("stability",), ("score", "debt")),
        (("repaid", "roi"), ("score", "debt", "stability", "rate")),
    ]


def test_without_covariates_the_roles_are_the_order():
    assert plan(DOSING) == [(("effect",), ("age", "dose", "time"))]


def test_covariates_without_an_order_or_a_graph_are_refused():
    fields = {k: v for k, v in LENDING.to_dict().items() if k != "order"}
    with pytest.raises(SpecError, match="Expected an order or a graph"):
        Problem.from_dict(fields)


def test_a_covariate_that_comes_last_is_left_out():
    fields = LENDING.to_dict()
    order = [["score", "debt"], "rate", ["repaid", "roi", "stability"]]
    told = plan(Problem.from_dict(fields | {"order": order}))
    assert told == [(("repaid", "roi"), ("score", "debt", "rate"))]


def test_several_graphs_are_refused():
    graph = GRAPH + "}"
    problem = Problem.from_dict(LENDING.to_dict() | {"graph": [graph, graph]})
    with pytest.raises(SpecError, match="Expected one graph; got one for each of 2"):
        plan(problem)


def test_without_torch_the_error_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)
    expected = r"'torch'.*pip install 'forestall\[flows\]'"
    with pytest.raises(MissingExtraError, match=expected):
        GradRehearsal().fit(LENDING, lending(60))


def test_importing_the_method_does_not_import_torch():
    code = "import sys; from forestall.baselines.grad_rehearsal import GradRehearsal;"
    code += "GradRehearsal(); print('torch' in sys.modules, 'zuko' in sys.modules)"
    told = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert told.stdout.split() == ["False", "False"]


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"loss": "hubber"}, "loss to be one of .*'probit'; got 'hubber'. Did you mea"),
        ({"select": "best"}, "select to be one of 'success', 'loss'; got 'best'"),
        ({"n_draws": 0}, "n_draws above zero and whole; got 0"),
        ({"n_refits": -1}, "n_refits of zero or more; got -1"),
        ({"sharpness": 0.0}, "positive and finite sharpness; got 0.0"),
    ],
)
def test_a_method_that_makes_no_sense_is_an_error(fields, message):
    with pytest.raises(SpecError, match=message):
        GradRehearsal(**fields)
