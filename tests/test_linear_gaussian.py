"""The linear-Gaussian model: its law is that of the world it was fitted to."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from forestall import Problem, RehearsalGraph, SpecError, tasks
from forestall.baselines.chain import chain
from forestall.baselines.linear_gaussian import LinearGaussian
from forestall.observations import Observations

ORDER = ("x1", "x2", "u1", "a1", "u2", "a2", "y1", "y2")
ROLES = {
    "context": ["x1", "x2"],
    "covariates": ["u1", "u2"],
    "actions": {"a1": (-9.0, 9.0), "a2": (-9.0, 9.0)},
    "outcomes": ["y1", "y2"],
    "desired": ["y1 <= 100", "y2 <= 100"],
}
CLIQUES = [(), ("y1", "y2"), ("u1", "a1"), ("x2", "u1"), ("u2", "a1", "a2")]


class World:
    """A random linear world over ``ORDER``, with one clique of correlated noise."""

    def __init__(self, seed, clique):
        rng = np.random.default_rng(seed)
        self.clique, self.rng = clique, rng
        d = len(ORDER)
        # A clique takes the place of its first member.
        first = min((ORDER.index(v) for v in clique), default=0)
        place = {v: first + 0.5 if v in clique else k for k, v in enumerate(ORDER)}
        self.place = place
        self.edges = [
            (u, v)
            for u in ORDER
            for v in ORDER
            if place[u] < place[v] and rng.random() < 0.6
        ]
        # Contexts follow from contexts only, and cliques are entered whole.
        into = {u for u, v in self.edges if v in clique}
        self.edges = sorted(
            {(u, v) for u, v in self.edges if v not in clique}
            | {(u, v) for u in into for v in clique}
        )
        self.edges = [
            (u, v) for u, v in self.edges if not (v[0] == "x" and u[0] != "x")
        ]
        self.L, self.c = np.zeros((d, d)), rng.normal(size=d)
        for u, v in self.edges:
            self.L[ORDER.index(v), ORDER.index(u)] = rng.normal()
        A = np.diag(rng.uniform(0.3, 1.0, d))
        inside = [ORDER.index(v) for v in clique]
        A[np.ix_(inside, inside)] = rng.normal(size=(len(inside), len(inside)))
        A[inside, inside] += 1.0
        self.cov = A @ A.T

    @property
    def graph(self):
        pairs = [(u, v) for u in self.clique for v in self.clique if u < v]
        return RehearsalGraph(self.edges, pairs, ORDER)

    def history(self, n):
        e = self.rng.multivariate_normal(np.zeros(len(ORDER)), self.cov, n)
        v = (e + self.c) @ np.linalg.inv(np.eye(len(ORDER)) - self.L).T
        return dict(zip(ORDER, v.T, strict=True))

    def draws(self, x, a, n):
        """Simulate variable by variable; ``a`` is None for the natural course."""
        out = np.zeros((n, len(ORDER)))
        known = {"x1": x[0], "x2": x[1]}
        if a is not None:
            known |= {"a1": a[0], "a2": a[1]}
        e = np.zeros((n, len(ORDER)))
        # Members of the clique that are known tell of the noise of the others.
        turn = sorted(ORDER, key=lambda v: (self.place[v], v not in known))
        done = []
        for v in turn:
            k = ORDER.index(v)
            level = self.c[k] + out @ self.L[k]
            if v in known:
                out[:, k] = known[v]
                e[:, k] = known[v] - level
            else:
                mates = [ORDER.index(m) for m in done if m in self.clique]
                mates = mates if v in self.clique else []
                S = self.cov
                w = np.linalg.solve(S[np.ix_(mates, mates)], S[mates, k])
                sd = np.sqrt(S[k, k] - w @ S[mates, k])
                e[:, k] = e[:, mates] @ w + sd * self.rng.normal(size=n)
                out[:, k] = level + e[:, k]
            done.append(v)
        return out[:, [ORDER.index("y1"), ORDER.index("y2")]]


def fitted(problem, history):
    data = Observations.read(problem, history)
    return data, LinearGaussian.fit(problem, data)


def in_units(law, data, x, a):
    """The mean and covariance of a law in the user's units, at one point."""
    s = data.schema
    x = (np.array([x]) - s.context.means) / s.context.scales
    a = (np.array([a]) - s.actions.means) / s.actions.scales
    scale = s.outcomes.scales
    mean = s.outcomes.means + scale * law.mean(x, a)[0]
    return mean, law.covariance * np.outer(scale, scale)


def assert_same_law(law, data, y, x, a):
    mean, cov = in_units(law, data, x, a)
    sd = np.sqrt(np.diag(np.cov(y.T)))
    assert np.abs((mean - y.mean(axis=0)) / sd).max() < 0.12
    assert np.abs((cov - np.cov(y.T)) / np.outer(sd, sd)).max() < 0.12


@settings(max_examples=20)
@given(
    seed=st.integers(0, 10**6),
    clique=st.sampled_from(CLIQUES),
    act=st.booleans(),
)
def test_the_law_equals_simulation_of_the_world_on_random_graphs(seed, clique, act):
    world = World(seed, clique)
    problem = Problem(**ROLES, graph=world.graph)
    data, model = fitted(problem, world.history(20_000))
    x, a = data.schema.context.means + 0.3, data.schema.actions.means - 0.5
    y = world.draws(x, a if act else None, 20_000)
    assert_same_law(model.rehearsed() if act else model.natural(), data, y, x, a)


@settings(max_examples=5)
@given(seed=st.integers(0, 10**6))
def test_everything_earlier_gives_the_same_law_as_the_parents(seed):
    world = World(seed, ())
    history = world.history(20_000)
    data, by_order = fitted(Problem(**ROLES, order=list(ORDER)), history)
    _, by_graph = fitted(Problem(**ROLES, graph=world.graph), history)
    for law in ("rehearsed", "natural"):
        one, other = getattr(by_order, law)(), getattr(by_graph, law)()
        np.testing.assert_allclose(one.covariance, other.covariance, atol=0.05)
        x = data.x[:50]
        a = one.mean(x, data.a[:50]) - other.mean(x, data.a[:50])
        assert np.abs(a).max() < 0.3


@given(seed=st.integers(0, 10**6), clique=st.sampled_from(CLIQUES[:2]))
@settings(max_examples=20)
def test_the_law_is_the_matrix_formula(seed, clique):
    """Cut the rows of contexts and actions, and solve for the rest."""
    world = World(seed, clique)
    _, model = fitted(Problem(**ROLES, graph=world.graph), world.history(300))
    w = model.state.shape[1]
    L, c, sd = np.zeros((w, w)), np.zeros(w), np.zeros(w)
    for k, equation in enumerate(model.equations):
        if equation.action is None:
            L[equation.target] = model.point.slopes[k]
            c[equation.target] = model.point.intercepts[k]
            sd[equation.target] = model.point.sds[k]
    T = np.linalg.inv(np.eye(w) - L)[model.outcome_columns]
    law = model.rehearsed()
    np.testing.assert_allclose(law.by_context, T[:, model.context_columns], atol=1e-12)
    np.testing.assert_allclose(law.by_action, T[:, model.action_columns], atol=1e-12)
    np.testing.assert_allclose(law.mean_const, T @ c, atol=1e-12)
    np.testing.assert_allclose(law.covariance, (T * sd**2) @ T.T, atol=1e-12)


def test_edges_among_contexts_are_not_counted_twice():
    task = tasks.get("bermuda")
    problem = task.problem_with_graph()
    data, model = fitted(problem, task.history(20_000, seed=0))
    a = np.zeros(len(problem.actions))
    mean, cov = in_units(model.rehearsed(), data, [1.0, 0.0, 0.0], a)
    # The truth, by its printed coefficients: Light acts on NEC directly, by 0.03225.
    expected = -0.54022 + 0.03225
    assert abs(mean[0] - expected) < 0.02
    spread = 0.21 * np.sqrt(1 + 2.04926**2 + 2.51464**2)
    assert abs(np.sqrt(cov[0, 0]) - spread) < 0.02


def test_a_covariate_that_precedes_a_context_is_told_by_it():
    rng = np.random.default_rng(0)
    n = 20_000
    u = rng.normal(size=n)
    x = u + rng.normal(size=n)
    a = u + rng.normal(size=n)
    y = u + a + rng.normal(size=n)
    problem = Problem(
        context=["x"],
        covariates=["u"],
        actions={"a": (-1.0, 1.0)},
        outcomes=["y"],
        desired=["y <= 1"],
        graph=RehearsalGraph([("u", "x"), ("u", "a"), ("u", "y"), ("a", "y")]),
    )
    data, model = fitted(problem, {"x": x, "u": u, "a": a, "y": y})
    mean, cov = in_units(model.rehearsed(), data, [1.0], [2.0])
    assert abs(mean[0] - 2.5) < 0.05
    assert abs(cov[0, 0] - 1.5) < 0.05


def test_nothing_follows_from_an_action_of_its_own_tier():
    roles = {k: v for k, v in ROLES.items() if k != "covariates"}
    problem = Problem(
        **roles,
        covariates=["u1", "u2"],
        order=[["x1", "x2"], ["a1", "u1"], ["u2", "a2"], ["y1", "y2"]],
    )
    inputs = {place.name: set(place.inputs) for place in chain(problem)}
    assert inputs["u1"] == {"x1", "x2"}
    assert inputs["a1"] == {"x1", "x2", "u1"}
    assert inputs["u2"] == {"x1", "x2", "u1", "a1"}
    assert inputs["y2"] == set(ORDER) - {"y2"}


def test_an_altered_member_of_a_clique_is_a_parent_of_the_rest():
    pairs = [("u2", "a1"), ("u2", "a2"), ("a1", "a2")]
    graph = RehearsalGraph([("u2", "y1"), ("x1", "y1")], pairs, ORDER)
    places = chain(Problem(**ROLES, graph=graph))
    inputs = {place.name: place.inputs for place in places}
    assert inputs["u2"] == ("a1", "a2")
    assert inputs["a1"] == ()
    assert inputs["y1"] == ("u2", "x1")


def test_hidden_causes_call_for_everything_earlier():
    edges = [("x1", "a1"), ("a1", "y1")]
    hidden = RehearsalGraph(edges, [("u1", "y1")], ORDER, bidirected="latent")
    inputs = {p.name: set(p.inputs) for p in chain(Problem(**ROLES, graph=hidden))}
    assert {"x1", "x2", "u1", "a1"} <= inputs["y1"]


def test_one_graph_for_each_time_step_is_refused():
    graph = World(0, ()).graph
    problem = Problem(**ROLES, graph=[graph, graph])
    with pytest.raises(SpecError, match="Expected one graph; got one for each of 2"):
        chain(problem)


def test_posterior_draws_spread_as_the_standard_errors_say():
    world = World(3, ())
    problem = Problem(**ROLES, graph=world.graph)
    _, model = fitted(problem, world.history(200))
    draws = model.posterior(4000, np.random.default_rng(0))
    for k, equation in enumerate(model.equations):
        if not len(equation.inputs):
            continue
        Z = np.column_stack([np.ones(200), model.inputs_of(equation)])
        beta, rss = np.linalg.lstsq(Z, model.targets_of(equation), rcond=None)[:2]
        error = np.sqrt(np.diag(np.linalg.inv(Z.T @ Z)) * rss / (200 - Z.shape[1]))
        drawn = np.column_stack(
            [draws.intercepts[:, k], draws.slopes[:, k, equation.inputs]]
        )
        np.testing.assert_allclose(drawn.mean(axis=0), beta, atol=0.1 * error.max())
        np.testing.assert_allclose(drawn.std(axis=0), error, rtol=0.1)


def test_the_law_of_many_draws_is_the_law_of_each():
    world = World(4, ("y1", "y2"))
    data, model = fitted(Problem(**ROLES, graph=world.graph), world.history(100))
    draws = model.posterior(3, np.random.default_rng(0))
    laws = model.rehearsed(draws)
    one = model.coefficients(
        list(draws.intercepts[1]),
        [draws.slopes[1, k, e.inputs] for k, e in enumerate(model.equations)],
        list(draws.sds[1]),
    )
    x, a = data.x[:5], data.a[:5]
    np.testing.assert_allclose(laws.mean(x, a)[:, 1], model.rehearsed(one).mean(x, a))
    np.testing.assert_allclose(laws.covariance[1], model.rehearsed(one).covariance)


def test_samples_have_the_mean_and_covariance_of_the_law(rng):
    world = World(5, ())
    data, model = fitted(Problem(**ROLES, graph=world.graph), world.history(500))
    law = model.rehearsed()
    y = law.sample(data.x[:2], data.a[:2], 50_000, rng)
    sd = np.sqrt(np.diag(law.covariance))
    assert np.abs((y.mean(axis=1) - law.mean(data.x[:2], data.a[:2])) / sd).max() < 0.03
    gap = np.cov(y[1].T) - law.covariance
    assert np.abs(gap / np.outer(sd, sd)).max() < 0.03


def test_categories_keep_the_means_of_their_groups(rng):
    n = 5000
    kind = rng.choice(["low", "mid", "high"], n)
    level = np.select([kind == "low", kind == "mid"], [0.0, 1.0], 3.0)
    odds = np.clip(0.2 + 0.2 * level, 0, 1)
    ill = np.where(rng.random(n) < odds, "yes", "no")
    a = rng.normal(size=n)
    y = 2.0 * (ill == "yes") + level + a + 0.1 * rng.normal(size=n)
    problem = Problem(
        context=["kind"],
        covariates=["ill"],
        actions={"a": (-1.0, 1.0)},
        outcomes=["y"],
        desired=["y <= 1"],
        order=["kind", "ill", "a", "y"],
    )
    data, model = fitted(problem, {"kind": kind, "ill": ill, "a": a, "y": y})
    x = data.schema.encode_contexts({"kind": ["low", "mid", "high"]}).x
    z = -data.schema.actions.means / data.schema.actions.scales
    told = model.rehearsed().mean(x, np.tile(z, (3, 1)))[:, 0]
    told = data.schema.outcomes.means + data.schema.outcomes.scales * told
    np.testing.assert_allclose(told, [0.4, 1.8, 4.6], atol=0.1)
