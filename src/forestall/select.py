r"""Hyperparameters from the records alone, by marginal likelihood.

A mechanism is a Gaussian process whose kernel continues what the data say:

.. math:: k(z, z') = 1 + \sum_g s_g z_g^\top z'_g + s_q (z^\top z')^2
    + s_f \exp\Big(-\tfrac12 \sum_g |z_g - z'_g|^2 / \rho_g^2\Big) + s_e \delta

The linear and the quadratic part are a trend that goes on where there are no data; the
Gaussian part bends it where there are. A variable whose :math:`s_g` vanishes and whose
width :math:`\rho_g` is large against its spread does not matter.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from jaxtyping import Float, Int
from scipy.linalg import LinAlgError, cho_factor, cho_solve
from scipy.linalg.lapack import dpotri
from scipy.optimize import OptimizeResult, minimize
from threadpoolctl import threadpool_limits

from forestall.arrays import Array
from forestall.kernels import gram

# The likelihood is cubic in the number of records: few show which of two hills is the
# higher, more of them where its top is, and yet more would move it little.
FEW, MANY = 240, 640
STEPS, LAST_STEPS = 60, 12
# Weak beliefs about the log variance of the noise and about log widths, for
# standardised data: without them a parameter that does not matter would run away.
BELIEF, BELIEF_WIDTH, DOUBT, DOUBT_WIDTH = np.log(0.1), np.log(2.0), 2.0, 1.2
# Slopes, curves and bends have to earn their place: a penalty on their deviations that
# is nothing beside data and everything without (a penalised-complexity prior).
SIMPLICITY = 3.0
# What a parameter gains in log probability by luck, and the log variance of nothing.
LUCK, NOTHING = 0.5, -30.0
START = np.log([0.05, 0.5, 0.2])
START_SLOPE, START_WIDTHS = np.log(0.5), (1.0, 3.0)
VARIANCE, NOISE = (-12.0, 5.0), (-9.0, 2.0)
WIDTH = (np.log(0.15), np.log(30.0))


@dataclass(frozen=True, eq=False)
class Choice:
    r"""The hyperparameters of one mechanism, for a standardised output.

    Args:
        linear: The prior variance :math:`s_g` of the slope of each input column.
        quadratic: The prior variance :math:`s_q` of the quadratic trend.
        smooth: The variance :math:`s_f` of the Gaussian part.
        noise: The variance :math:`s_e` of the noise.
        widths: The width :math:`\rho` of each input column.
    """

    linear: Float[Array, " d"]
    quadratic: float
    smooth: float
    noise: float
    widths: Float[Array, " d"]


def choose(
    z: Float[Array, "n d"],
    y: Float[Array, " n"],
    groups: Int[Array, " d"],
    *,
    alike: bool = False,
) -> Choice:
    """Maximise the marginal likelihood, on subsamples where there are many records.

    Args:
        z: The inputs, standardised.
        y: The output, standardised.
        groups: The variable behind each input column; a variable has one width.
        alike: Treat all variables as one, with the same width and slope variance.
    """
    if not z.shape[1]:
        return Choice(np.empty(0), 1e-12, 1e-12, 1.0, np.empty(0))
    if alike:
        groups = np.zeros_like(groups)
    few, many = (Likelihood.among(z, y, groups, n) for n in (FEW, MANY))
    # Small matrices gain nothing from threads and lose much on a busy machine.
    with threadpool_limits(limits=1, user_api="blas"):
        theta = few.maximised()
        if len(many.y) > len(few.y):
            theta = many.climbed(theta, LAST_STEPS).x
        theta = many.simplified(theta)
    quadratic, smooth, noise = np.exp(theta[:3]).tolist()
    slopes, widths = np.split(np.exp(theta[3:]), 2)
    return Choice(slopes[groups], quadratic, smooth, noise, widths[groups])


@dataclass(frozen=True, eq=False)
class Likelihood:
    """The negative log posterior of the hyperparameters, with its gradient.

    Args:
        z: The inputs.
        y: The output.
        groups: The variable behind each input column.
    """

    z: Float[Array, "n d"]
    y: Float[Array, " n"]
    groups: Int[Array, " d"]

    @classmethod
    def among(
        cls,
        z: Float[Array, "n d"],
        y: Float[Array, " n"],
        groups: Int[Array, " d"],
        most: int,
    ) -> Likelihood:
        """Take records evenly, at most so many."""
        every = np.linspace(0, len(y) - 1, min(len(y), most)).astype(int)
        return cls(z[every], y[every], groups)

    @cached_property
    def curves(self) -> Float[Array, "n n"]:
        """The kernel of the quadratic trend."""
        return (self.z @ self.z.T) ** 2

    def maximised(self) -> Float[Array, " k"]:
        """Descend from a wiggly and from a smooth start; keep the better end."""
        g = self.groups.max() + 1
        slopes = np.full(g, START_SLOPE)
        ends = [
            self.climbed(np.concatenate([START, slopes, np.full(g, np.log(w))]), STEPS)
            for w in START_WIDTHS
        ]
        return min(ends, key=lambda end: end.fun).x

    def climbed(self, theta: Float[Array, " k"], n_steps: int) -> OptimizeResult:
        """Go to where the records are likelier, from one start."""
        g = self.groups.max() + 1
        return minimize(
            self,
            theta,
            jac=True,
            method="L-BFGS-B",
            bounds=[VARIANCE, VARIANCE, NOISE, *[VARIANCE] * g, *[WIDTH] * g],
            options={"maxiter": n_steps},
        )

    def simplified(self, theta: Float[Array, " k"]) -> Float[Array, " k"]:
        """Let bends, and then curves, go where the records do not ask for them.

        Curves stay where bends do: bends could stand in for them among the records, and
        would then take the trend away from where there are none.
        """
        lowest, _ = self(theta)
        # Bends come with a width for each variable.
        for part, n_parameters in ((1, 2 + self.groups.max()), (0, 1)):
            without = theta.copy()
            without[part] = NOTHING
            value, _ = self(without)
            if value > lowest + LUCK * n_parameters:
                break
            theta, lowest = without, value
        return theta

    def __call__(self, theta: Float[Array, " k"]) -> tuple[float, Float[Array, " k"]]:
        r"""Evaluate at :math:`\theta = \log(s_q, s_f, s_e, s_1 .. s_g, \rho)`."""
        z = self.z
        quadratic, smooth, noise = np.exp(theta[:3])
        slopes, widths = (v[self.groups] for v in np.split(np.exp(theta[3:]), 2))
        bends = gram(z / widths, z / widths)
        K = quadratic * self.curves
        K += smooth * bends
        K += (z * slopes) @ z.T
        K += 1.0
        K[np.diag_indices(len(K))] += noise + 1e-8
        try:
            factor = cho_factor(K, lower=True, overwrite_a=True, check_finite=False)
        except LinAlgError:
            return 1e10, np.zeros_like(theta)
        alpha = cho_solve(factor, self.y)
        # The gradient is half the trace of this matrix times dK.
        inverse, _ = dpotri(factor[0], lower=1)
        M = np.tril(inverse) + np.tril(inverse, -1).T - np.outer(alpha, alpha)
        M_bends = M * bends
        by_slope = slopes * np.einsum("nd,nd->d", z, M @ z)
        # The sum of M_ij (z_i - z_j)^2, without forming the differences.
        spread = M_bends.sum(axis=1) @ z**2 - np.einsum("nd,nd->d", z, M_bends @ z)
        by_width = 2.0 * smooth * spread / widths**2
        gradient = 0.5 * np.concatenate(
            [
                [
                    quadratic * np.vdot(M, self.curves),
                    smooth * M_bends.sum(),
                    noise * np.trace(M),
                ],
                np.bincount(self.groups, by_slope),
                np.bincount(self.groups, by_width),
            ]
        )
        value = 0.5 * self.y @ alpha + np.log(np.diag(factor[0])).sum()
        return self._believed(theta, value, gradient)

    def _believed(
        self, theta: Float[Array, " k"], value: float, gradient: Float[Array, " k"]
    ) -> tuple[float, Float[Array, " k"]]:
        """Add what is believed beforehand."""
        g = self.groups.max() + 1
        believed = np.r_[2, 3 + g : 3 + 2 * g]
        off = theta[believed] - np.r_[BELIEF, np.full(g, BELIEF_WIDTH)]
        doubt = np.r_[DOUBT, np.full(g, DOUBT_WIDTH)]
        simple = np.r_[0, 1, 3 : 3 + g]
        deviations = np.exp(0.5 * theta[simple])
        gradient = gradient.copy()
        gradient[believed] += off / doubt**2
        gradient[simple] += 0.5 * SIMPLICITY * deviations
        penalty = 0.5 * np.sum((off / doubt) ** 2) + SIMPLICITY * deviations.sum()
        return float(value + penalty), gradient
