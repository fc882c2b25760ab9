r"""The linear-Gaussian structural rehearsal model, which the linear methods share.

.. math:: v_i = c_i + L_i v + s_i e_i, \qquad e_i \sim N(0, 1)

There is one equation for each encoded column that is no context, in an order in which
every equation follows from contexts and earlier columns. Contexts are inputs and never
targets: they are known, so edges among them count once, and their own law is not
needed. Members of a bi-directed clique follow from the members before them, which
gives any correlation of their noise; altered members stand first and so become parents
of the rest, by observational regression. A category is its indicators, each regressed
linearly: a rough law, but its mean is right.

Everything is in the standard units of :class:`~forestall.observations.Observations`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int
from scipy.linalg import cho_factor, cho_solve, solve_triangular

from forestall.arrays import Array
from forestall.baselines.chain import chain
from forestall.observations import Observations
from forestall.problem import Problem

# The precision of a coefficient before any record is seen: only where columns are
# collinear does it decide, and there it leaves the coefficient as good as unknown.
PRIOR = 1e-6
# The least spread of an equation, so that every law has a density.
LEAST = 1e-6


@dataclass(frozen=True, eq=False)
class Equation:
    """One column, and the columns it is regressed on.

    Args:
        name: The variable that the column belongs to.
        target: The column, in a row of the state.
        inputs: The columns that it follows from.
        action: Its place among the actions; ``None`` for another variable.
    """

    name: str
    target: int
    inputs: Int[Array, " p"]
    action: int | None


@dataclass(frozen=True, eq=False)
class Coefficients:
    """The numbers in the equations, once or for many draws.

    Args:
        intercepts: The vector :math:`c`, one for each equation.
        slopes: The matrix :math:`L`, a row for each equation, a column for each column
            of the state; zero where an equation does not look.
        sds: The standard deviations of the noise, one for each equation.
    """

    intercepts: Float[Array, "*s e"]
    slopes: Float[Array, "*s e w"]
    sds: Float[Array, "*s e"]


@dataclass(frozen=True, eq=False)
class Rehearsed:
    r"""A Gaussian law whose mean is affine in context and action.

    .. math:: N(m_0 + C x + B a,\ F F^\top)

    With a leading axis where there are many draws of the coefficients.

    Args:
        mean_const: The vector :math:`m_0`.
        by_context: The matrix :math:`C`.
        by_action: The matrix :math:`B`; zero where nothing is altered.
        by_noise: The matrix :math:`F`, of the independent standard noises.
    """

    mean_const: Float[Array, "*s d"]
    by_context: Float[Array, "*s d d_x"]
    by_action: Float[Array, "*s d d_a"]
    by_noise: Float[Array, "*s d e"]

    @property
    def covariance(self) -> Float[Array, "*s d d"]:
        """The covariance, the same for every context and action."""
        return self.by_noise @ np.swapaxes(self.by_noise, -1, -2)

    def base(self, x: Float[Array, "q d_x"]) -> Float[Array, "q *s d"]:
        """The mean of each context at the action zero, that is, at the usual one."""
        return self.mean_const + np.einsum("...dk,qk->q...d", self.by_context, x)

    def mean(
        self, x: Float[Array, "q d_x"], a: Float[Array, "q d_a"]
    ) -> Float[Array, "q *s d"]:
        """The mean of each pair of context and action."""
        return self.base(x) + np.einsum("...dk,qk->q...d", self.by_action, a)

    def sample(
        self,
        x: Float[Array, "q d_x"],
        a: Float[Array, "q d_a"],
        n: int,
        rng: np.random.Generator,
    ) -> Float[Array, "q n d"]:
        """Draw ``n`` times for each pair; for one set of coefficients only."""
        e = rng.standard_normal((len(x), n, self.by_noise.shape[-1]))
        return self.mean(x, a)[:, None] + e @ self.by_noise.T


@dataclass(frozen=True, eq=False)
class LinearGaussian:
    """The fitted model.

    Args:
        state: The records: contexts, covariates, actions, outcomes, side by side.
        equations: One for each column that is no context, in order.
        point: The least-squares coefficients.
        widths: How many columns contexts, covariates, actions and outcomes have.
    """

    state: Float[Array, "n w"]
    equations: tuple[Equation, ...]
    point: Coefficients
    widths: tuple[int, int, int, int]

    @classmethod
    def fit(cls, problem: Problem, data: Observations) -> LinearGaussian:
        """Regress every column on what it follows from."""
        state = np.concatenate([data.x, data.u, data.a, data.y], axis=1)
        equations = _equations(problem, data)
        fits = [
            _Regression.of(state[:, e.inputs], state[:, e.target]) for e in equations
        ]
        point = gathered(
            equations,
            state.shape[1],
            [fit.intercept(fit.slopes) for fit in fits],
            [fit.slopes for fit in fits],
            [fit.sd for fit in fits],
        )
        widths = tuple(v.shape[1] for v in (data.x, data.u, data.a, data.y))
        return cls(state, equations, point, widths)

    @property
    def context_columns(self) -> Int[Array, " d_x"]:
        """Where the contexts stand in the state."""
        return np.arange(self.widths[0])

    @property
    def action_columns(self) -> Int[Array, " d_a"]:
        """Where the actions stand in the state."""
        return np.arange(self.widths[2]) + sum(self.widths[:2])

    @property
    def outcome_columns(self) -> Int[Array, " d_y"]:
        """Where the outcomes stand in the state."""
        return np.arange(self.widths[3]) + sum(self.widths[:3])

    def inputs_of(self, equation: Equation) -> Float[Array, "n p"]:
        """The recorded inputs of an equation."""
        return self.state[:, equation.inputs]

    def targets_of(self, equation: Equation) -> Float[Array, " n"]:
        """The recorded targets of an equation."""
        return self.state[:, equation.target]

    def coefficients(
        self,
        intercepts: Sequence[Array | float],
        slopes: Sequence[Array],
        sds: Sequence[Array | float],
    ) -> Coefficients:
        """Gather coefficients, equation by equation, with or without a draws axis.

        Args:
            intercepts: For each equation, of shape () or (s,).
            slopes: For each equation, of shape (p,) or (s, p), as its inputs.
            sds: For each equation, of shape () or (s,).
        """
        width = self.state.shape[1]
        return gathered(self.equations, width, intercepts, slopes, sds)

    def posterior(self, n_draws: int, rng: np.random.Generator) -> Coefficients:
        """Draw coefficients and spreads, given the records and flat priors."""
        intercepts, slopes, sds = [], [], []
        for equation in self.equations:
            z, v = self.inputs_of(equation), self.targets_of(equation)
            draw = _Regression.of(z, v).drawn(n_draws, rng)
            intercepts.append(draw.intercepts)
            slopes.append(draw.slopes)
            sds.append(draw.sds)
        return self.coefficients(intercepts, slopes, sds)

    def rehearsed(self, coefficients: Coefficients | None = None) -> Rehearsed:
        """The law of the outcomes given the context when all actions are set."""
        return self.law(self.outcome_columns, coefficients, altered=True)

    def natural(self, coefficients: Coefficients | None = None) -> Rehearsed:
        """The law of the outcomes given the context when nothing is altered."""
        return self.law(self.outcome_columns, coefficients, altered=False)

    def natural_actions(self, coefficients: Coefficients | None = None) -> Rehearsed:
        """The law of the actions given the context when nothing is altered."""
        return self.law(self.action_columns, coefficients, altered=False)

    def law(
        self,
        columns: Int[Array, " d"],
        coefficients: Coefficients | None = None,
        *,
        altered: bool,
    ) -> Rehearsed:
        """The joint law of some columns given the context.

        Args:
            columns: Which columns of the state.
            coefficients: Draws of them; the least-squares ones by default.
            altered: Whether the actions are set, or follow from their equations.
        """
        c = self.point if coefficients is None else coefficients
        d_x, _, d_a, _ = self.widths
        noise = 1 + d_x + d_a
        draws = c.intercepts.shape[:-1]
        rows = np.zeros((*draws, self.state.shape[1], noise + len(self.equations)))
        rows[..., self.context_columns, 1 + np.arange(d_x)] = 1.0
        for k, equation in enumerate(self.equations):
            row = rows[..., equation.target, :]
            if altered and equation.action is not None:
                row[..., 1 + d_x + equation.action] = 1.0
                continue
            slopes = c.slopes[..., k, equation.inputs]
            row += np.einsum("...p,...pk->...k", slopes, rows[..., equation.inputs, :])
            row[..., 0] += c.intercepts[..., k]
            row[..., noise + k] += c.sds[..., k]
        told = rows[..., columns, :]
        parts = np.split(told[..., 1:], [d_x, d_x + d_a], axis=-1)
        return Rehearsed(told[..., 0], *parts)


def gathered(
    equations: Sequence[Equation],
    width: int,
    intercepts: Sequence[Array | float],
    slopes: Sequence[Array],
    sds: Sequence[Array | float],
) -> Coefficients:
    """Put the coefficients of all equations into one matrix."""
    draws = np.shape(intercepts[0])
    L = np.zeros((*draws, len(equations), width))
    for k, (equation, each) in enumerate(zip(equations, slopes, strict=True)):
        L[..., k, equation.inputs] = each
    return Coefficients(np.stack(intercepts, axis=-1), L, np.stack(sds, axis=-1))


def _equations(problem: Problem, data: Observations) -> tuple[Equation, ...]:
    columns: dict[str, list[int]] = {}
    start = 0
    schema = data.schema
    for block in (schema.context, schema.covariates, schema.actions, schema.outcomes):
        for name, part in block.slices.items():
            columns[name] = list(range(start + part.start, start + part.stop))
        start += block.width
    actions = tuple(problem.actions)
    equations = []
    for place in chain(problem):
        inputs = [j for name in dict.fromkeys(place.inputs) for j in columns[name]]
        action = actions.index(place.name) if place.name in actions else None
        for target in columns[place.name]:
            known = np.array(inputs, dtype=int)
            equations.append(Equation(place.name, target, known, action))
            # A level of a category follows from the levels before it.
            inputs = [*inputs, target]
    return tuple(equations)


@dataclass(frozen=True, eq=False)
class _Drawn:
    intercepts: Float[Array, " s"]
    slopes: Float[Array, "s p"]
    sds: Float[Array, " s"]


@dataclass(frozen=True, eq=False)
class _Regression:
    """Least squares of one column, around the means of its inputs."""

    slopes: Float[Array, " p"]
    sd: float
    factor: Float[Array, "p p"]
    z_mean: Float[Array, " p"]
    v_mean: float
    n: int

    @classmethod
    def of(cls, z: Float[Array, "n p"], v: Float[Array, " n"]) -> _Regression:
        n, p = z.shape
        z_mean, v_mean = z.mean(axis=0), float(v.mean())
        zc, vc = z - z_mean, v - v_mean
        factor, _ = cho_factor(zc.T @ zc + PRIOR * np.eye(p), lower=True)
        slopes = cho_solve((factor, True), zc.T @ vc)
        left = vc - zc @ slopes
        sd = np.sqrt(float(left @ left) / _freedom(n, p))
        return cls(slopes, max(sd, LEAST), np.tril(factor), z_mean, v_mean, n)

    def intercept(self, slopes: Float[Array, "*s p"]) -> Float[Array, "*s"]:
        return np.asarray(self.v_mean - slopes @ self.z_mean)

    def drawn(self, n_draws: int, rng: np.random.Generator) -> _Drawn:
        """Draw from the posterior under the flat prior."""
        p = len(self.slopes)
        freedom = _freedom(self.n, p)
        sds = self.sd * np.sqrt(freedom / rng.chisquare(freedom, n_draws))
        e = rng.standard_normal((p, n_draws))
        off = solve_triangular(self.factor, e, lower=True, trans="T").T
        slopes = self.slopes + sds[:, None] * off
        level = sds * rng.standard_normal(n_draws) / np.sqrt(self.n)
        return _Drawn(self.intercept(slopes) + level, slopes, sds)


def _freedom(n: int, p: int) -> int:
    return max(n - p - 1, 1)
