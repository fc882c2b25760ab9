r"""Hyperparameters from the records alone, by marginal likelihood.

A mechanism is a Gaussian process whose kernel continues what the data say:

.. math:: k(z, z') = s_l (1 + z^\top z') + s_q (z^\top z')^2
    + s_f \exp\Big(-\tfrac12 \sum_g |z_g - z'_g|^2 / \rho_g^2\Big) + s_e \delta

The linear and the quadratic part are a trend that goes on where there are no data; the
Gaussian part bends it where there are; and a variable whose width :math:`\rho_g` is
large against its spread does not matter to the bends.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int
from scipy.linalg import LinAlgError, cho_factor, cho_solve
from scipy.optimize import minimize

from forestall.arrays import Array

# The likelihood of more records than this is sharp enough, and cubic in their number.
RECORDS = 400
STEPS = 60
# Weak beliefs about the log variances of trend and noise and about log widths, for
# standardised data: without them a parameter that does not matter would run away.
BELIEF, BELIEF_WIDTH, DOUBT, DOUBT_WIDTH = np.log([1.0, 0.1]), np.log(2.0), 2.0, 1.2
# Curves and bends have to earn their place: a penalty on their deviations that is
# nothing beside data and everything without (a penalised-complexity prior).
SIMPLICITY = 3.0
START = np.log([0.5, 0.05, 0.5, 0.2])
START_WIDTHS = (1.0, 3.0)
VARIANCES = ((-12.0, 5.0),) * 3 + ((-9.0, 2.0),)
WIDTHS = (np.log(0.15), np.log(30.0))


@dataclass(frozen=True, eq=False)
class Choice:
    r"""The hyperparameters of one mechanism, for a standardised output.

    Args:
        linear: The prior variance :math:`s_l` of the linear trend.
        quadratic: The prior variance :math:`s_q` of the quadratic trend.
        smooth: The variance :math:`s_f` of the Gaussian part.
        noise: The variance :math:`s_e` of the noise.
        widths: The width :math:`\rho` of each input column.
    """

    linear: float
    quadratic: float
    smooth: float
    noise: float
    widths: Float[Array, " d"]


def choose(
    z: Float[Array, "n d"],
    y: Float[Array, " n"],
    groups: Int[Array, " d"],
    *,
    share_widths: bool = False,
) -> Choice:
    """Maximise the marginal likelihood, on a subsample where there are many records.

    Args:
        z: The inputs, standardised.
        y: The output, standardised.
        groups: The variable behind each input column; a variable has one width.
        share_widths: Give all variables the same width.
    """
    if share_widths:
        groups = np.zeros_like(groups)
    every = np.linspace(0, len(y) - 1, min(len(y), RECORDS)).astype(int)
    likelihood = Likelihood.of(z[every], y[every], groups)
    theta = likelihood.maximised()
    linear, quadratic, smooth, noise = np.exp(theta[:4]).tolist()
    return Choice(linear, quadratic, smooth, noise, np.exp(theta[4:])[groups])


@dataclass(frozen=True, eq=False)
class Likelihood:
    """The negative log posterior of the hyperparameters, with its gradient.

    Args:
        y: The output.
        dot: The products of all pairs of inputs.
        squares: The squared distances of all pairs, for each variable.
    """

    y: Float[Array, " n"]
    dot: Float[Array, "n n"]
    squares: Float[Array, "g n n"]

    @classmethod
    def of(
        cls,
        z: Float[Array, "n d"],
        y: Float[Array, " n"],
        groups: Int[Array, " d"],
    ) -> Likelihood:
        """Compute once what every evaluation needs."""
        parts = [z[:, groups == g] for g in range(groups.max() + 1)]
        squares = [((p[:, None] - p[None]) ** 2).sum(axis=2) for p in parts]
        return cls(y, z @ z.T, np.stack(squares))

    def maximised(self) -> Float[Array, " k"]:
        """Descend from a wiggly and from a smooth start; keep the better end."""
        n_widths = len(self.squares)
        ends = [
            minimize(
                self,
                np.concatenate([START, np.full(n_widths, np.log(width))]),
                jac=True,
                method="L-BFGS-B",
                bounds=[*VARIANCES, *[WIDTHS] * n_widths],
                options={"maxiter": STEPS},
            )
            for width in START_WIDTHS
        ]
        return min(ends, key=lambda end: end.fun).x

    def __call__(self, theta: Float[Array, " k"]) -> tuple[float, Float[Array, " k"]]:
        r"""Evaluate at :math:`\theta = \log(s_l, s_q, s_f, s_e, \rho)`."""
        linear, quadratic, smooth, noise = np.exp(theta[:4])
        precision = np.exp(-2.0 * theta[4:])
        bends = np.exp(-0.5 * np.tensordot(precision, self.squares, 1))
        K = linear * (1.0 + self.dot) + quadratic * self.dot**2 + smooth * bends
        K[np.diag_indices(len(K))] += noise + 1e-8
        try:
            factor = cho_factor(K, lower=True, overwrite_a=True, check_finite=False)
        except LinAlgError:
            return 1e10, np.zeros_like(theta)
        alpha = cho_solve(factor, self.y)
        # The gradient is half the trace of this matrix times dK.
        M = cho_solve(factor, np.eye(len(K)), overwrite_b=True) - np.outer(alpha, alpha)
        M_bends = M * bends
        gradient = np.concatenate(
            [
                [
                    linear * (M.sum() + np.sum(M * self.dot)),
                    quadratic * np.sum(M * self.dot**2),
                    smooth * M_bends.sum(),
                    noise * np.trace(M),
                ],
                smooth * precision * np.tensordot(self.squares, M_bends, 2),
            ]
        )
        value = 0.5 * self.y @ alpha + np.log(np.diag(factor[0])).sum()
        return self._believed(theta, value, 0.5 * gradient)

    def _believed(
        self, theta: Float[Array, " k"], value: float, gradient: Float[Array, " k"]
    ) -> tuple[float, Float[Array, " k"]]:
        n_widths = len(theta) - 4
        mean = np.concatenate([BELIEF, np.full(n_widths, BELIEF_WIDTH)])
        doubt = np.concatenate([np.full(2, DOUBT), np.full(n_widths, DOUBT_WIDTH)])
        believed = np.r_[0, 3, 4 : len(theta)]
        off = (theta[believed] - mean) / doubt
        deviations = np.exp(0.5 * theta[1:3])
        gradient[believed] += off / doubt
        gradient[1:3] += 0.5 * SIMPLICITY * deviations
        penalty = 0.5 * off @ off + SIMPLICITY * deviations.sum()
        return float(value + penalty), gradient
