r"""Hyperparameters from the records alone, by marginal likelihood.

A mechanism is a Gaussian process whose kernel continues what the data say:

.. math:: k(z, z') = 1 + \sum_g s_g z_g^\top z'_g + s_q (z^\top z')^2
    + \sum_g h_g b(z_g)^\top b(z'_g)
    + s_f \exp\Big(-\tfrac12 \sum_g |z_g - z'_g|^2 / \rho_g^2\Big) + s_e \delta

The linear and the quadratic part are a trend that goes on where there are no data; the
hills :math:`b` bend it along one variable alone, and the Gaussian part bends it along
all of them together. A variable whose :math:`s_g` and :math:`h_g` vanish, and whose
width :math:`\rho_g` is large against its spread, does not matter.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from jaxtyping import Bool, Float, Int
from scipy.linalg import LinAlgError, cho_factor, cho_solve
from scipy.linalg.lapack import dpotri
from scipy.optimize import OptimizeResult, minimize
from scipy.special import expit

from forestall.alternatives import Alternatives
from forestall.arrays import Array
from forestall.hills import TOPS, hills
from forestall.kernels import gram
from forestall.polynomials import polynomials
from forestall.threads import one_thread
from forestall.unbent import Unbent

# The likelihood is cubic in the number of records: few show which of several peaks is
# the highest, more of them where its top is, and yet more would move it little.
FEW, MANY = 240, 640
STEPS, LAST_STEPS, UNBENT_STEPS = 60, 12, 60
# Weak beliefs about the log variance of the noise and about log widths, for
# standardised data: without them a parameter that does not matter would run away.
BELIEF, BELIEF_WIDTH, DOUBT, DOUBT_WIDTH = np.log(0.1), np.log(2.0), 2.0, 1.2
# Slopes, curves and bends have to earn their place: a penalty on their deviations that
# is nothing beside data and everything without (a penalised-complexity prior).
SIMPLICITY = 3.0
# What a parameter gains in log probability by luck, and what hills do, of which there
# are many to choose from; the log variance of nothing.
LUCK, HILL_LUCK, NOTHING = 0.5, 1.5, -30.0
# The log variance with which slopes, curves and hills set out again.
REVIVED = np.log(0.01)
START = np.log([0.05, 0.5, 0.2])
START_SLOPE, START_WIDTHS, START_HILLS = np.log(0.5), (1.0, 3.0), np.log(0.05)
START_BENDS, START_BEND_WIDTH = np.log(0.05), 1.5
# A structure that is at least as likely as this, of two, is taken for the only one.
SURE = 0.95
VARIANCE, NOISE = (-12.0, 5.0), (-9.0, 2.0)
# Bends and hills that are less than this beside the noise are left out.
LEAST = 0.002
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
        hilly: The input columns that have hills.
        hills: The prior variance :math:`h_g` of the hills of each of these.
    """

    linear: Float[Array, " d"]
    quadratic: float
    smooth: float
    noise: float
    widths: Float[Array, " d"]
    hilly: Int[Array, " h"] = field(default_factory=lambda: np.empty(0, dtype=int))
    hills: Float[Array, " h"] = field(default_factory=lambda: np.empty(0))


def choose(
    z: Float[Array, "n d"],
    y: Float[Array, " n"],
    groups: Int[Array, " d"],
) -> Choice:
    """Maximise the marginal likelihood, on subsamples where there are many records.

    Args:
        z: The inputs, standardised.
        y: The output, standardised.
        groups: The variable behind each input column; a variable has one width.
    """
    return refined(guessed(z, y, groups), z, y, groups).choices[0]


def guessed(
    z: Float[Array, "n d"], y: Float[Array, " n"], groups: Int[Array, " d"]
) -> Choice:
    """Find by few records which of several peaks is the highest, as for `choose`."""
    if not z.shape[1]:
        return Choice(np.empty(0), 1e-12, 1e-12, 1.0, np.empty(0))
    few = Likelihood.among(z, y, groups, FEW)
    # Small matrices gain nothing from threads and lose much on a busy machine.
    with one_thread():
        return few.choice(few.maximised())


def refined(
    guess: Choice,
    z: Float[Array, "n d"],
    y: Float[Array, " n"],
    groups: Int[Array, " d"],
    loudness: Float[Array, " n"] | None = None,
) -> Alternatives:
    """Go on from a guess to the top, by more records, as for `choose`.

    What the guess has left out, being of few records, gets a second chance.

    Args:
        guess: Where to begin.
        z: The inputs.
        y: The output.
        groups: The variable behind each input column.
        loudness: The variance of each record's noise, on any scale; ``None`` where all
            are alike. What is noise must not be taken for bends.
    """
    if not z.shape[1]:
        return Alternatives((guess,))
    many = Likelihood.among(z, y, groups, MANY, loudness)
    theta = _theta(guess, groups)
    with one_thread():
        starts = [theta, *many.bent(theta)]
        ends = [many.climbed(start, LAST_STEPS) for start in starts]
        return many.alternatives(min(ends, key=lambda end: end.fun).x)


def _theta(choice: Choice, groups: Int[Array, " d"]) -> Float[Array, " k"]:
    """Read the logarithms back, one for each variable."""
    _, first = np.unique(groups, return_index=True)
    heights = np.zeros(len(groups))
    heights[choice.hilly] = choice.hills
    # Of the columns of a variable some may have hills.
    highest = np.zeros(len(first))
    np.maximum.at(highest, groups, heights)
    common = [choice.quadratic, choice.smooth, choice.noise]
    each = [choice.linear[first], choice.widths[first], highest]
    return np.log(np.maximum(np.concatenate([common, *each]), np.exp(NOTHING)))


@dataclass(frozen=True, eq=False)
class Likelihood:
    """The negative log posterior of the hyperparameters, with its gradient.

    Args:
        z: The inputs.
        y: The output.
        groups: The variable behind each input column.
        loudness: The variance of each record's noise, relative to the common one.
    """

    z: Float[Array, "n d"]
    y: Float[Array, " n"]
    groups: Int[Array, " d"]
    loudness: Float[Array, " n"] | float = 1.0

    @classmethod
    def among(
        cls,
        z: Float[Array, "n d"],
        y: Float[Array, " n"],
        groups: Int[Array, " d"],
        most: int,
        loudness: Float[Array, " n"] | None = None,
    ) -> Likelihood:
        """Take records evenly, at most so many."""
        every = np.linspace(0, len(y) - 1, min(len(y), most)).astype(int)
        if loudness is None:
            return cls(z[every], y[every], groups)
        return cls(z[every], y[every], groups, loudness[every] / loudness.mean())

    @cached_property
    def curves(self) -> Float[Array, "n n"]:
        """The kernel of the quadratic trend."""
        return (self.z @ self.z.T) ** 2

    @cached_property
    def curved(self) -> Int[Array, " h"]:
        """The columns along which there may be hills; two values make a slope."""
        columns = np.sort(self.z, axis=0)
        steps = (np.diff(columns, axis=0) > 0.0).sum(axis=0)
        return np.flatnonzero(steps > 1)

    @cached_property
    def able(self) -> Bool[Array, " g"]:
        """The variables that may have hills."""
        return np.isin(np.arange(self.groups.max() + 1), self.groups[self.curved])

    @cached_property
    def hills(self) -> Float[Array, "n b"]:
        """The hills along these columns."""
        return hills(self.z[:, self.curved])

    @cached_property
    def unbent(self) -> Unbent | None:
        """The sums for all but bends; ``None`` where they would save nothing."""
        if 2 * len(self.owners) > len(self.y):
            return None
        products = polynomials(self.z, 2)
        Phi = np.concatenate([products, self.hills], axis=1)
        return Unbent.of(Phi, self.y, np.broadcast_to(self.loudness, self.y.shape))

    @cached_property
    def owners(self) -> Int[Array, " q"]:
        """The parameter that is the variance of each function; none for the first."""
        d, g = len(self.groups), self.groups.max() + 1
        hilly = np.repeat(self.groups[self.curved], TOPS)
        curves = np.zeros(d * (d + 1) // 2, dtype=int)
        return np.concatenate([[-1], 3 + self.groups, curves, 3 + 2 * g + hilly])

    def maximised(self) -> Float[Array, " k"]:
        """Descend from several starts; keep the best end.

        A wiggly and a smooth start without hills, then hills on the better one, and
        hills from the outset: either may hide the other way to explain the records.
        """
        g = self.groups.max() + 1
        slopes, flat = np.full(g, START_SLOPE), np.full(g, VARIANCE[0])
        starts = [
            np.concatenate([START, slopes, np.full(g, np.log(w))]) for w in START_WIDTHS
        ]
        ends = [self.climbed(np.concatenate([start, flat]), STEPS) for start in starts]
        if len(self.curved):
            found = min(ends, key=lambda end: end.fun).x[: 3 + 2 * g]
            hilly = np.where(self.able, START_HILLS, VARIANCE[0])
            ends += [
                self.climbed(np.concatenate([start, hilly]), STEPS)
                for start in (found, starts[-1])
            ]
        return min(ends, key=lambda end: end.fun).x

    def climbed(
        self, theta: Float[Array, " k"], n_steps: int, *, bent: bool = True
    ) -> OptimizeResult:
        """Go to where the records are likelier, from one start, with bends or not."""
        g = self.groups.max() + 1
        each = np.repeat([VARIANCE, WIDTH, VARIANCE], g, axis=0)
        bends = VARIANCE if bent else (NOTHING, NOTHING)
        return minimize(
            self,
            theta,
            jac=True,
            method="L-BFGS-B",
            bounds=[VARIANCE, bends, NOISE, *each],
            options={"maxiter": n_steps},
        )

    def bent(self, theta: Float[Array, " k"]) -> list[Float[Array, " k"]]:
        """Begin with bends where there are none."""
        if self._is_bent(theta):
            return []
        g = self.groups.max() + 1
        theta = theta.copy()
        theta[1], theta[3 + g : 3 + 2 * g] = START_BENDS, np.log(START_BEND_WIDTH)
        return [theta]

    def alternatives(self, theta: Float[Array, " k"]) -> Alternatives:
        """Let bends, and then curves, go where the records do not ask for them.

        Where they can be had with and without bends, both are kept. Curves stay where
        bends do: bends could stand in for them among the records, and would then take
        the trend away from where there are none.
        """
        theta = self._levelled(theta)
        unbent = self._levelled(self._unbent(theta))
        value = self.value(unbent)
        flat = unbent.copy()
        flat[0] = NOTHING
        simple = flat if self.value(flat) <= value + LUCK else unbent
        # Bends come with a width for each variable.
        gain = value - self.value(theta) - LUCK * (2 + self.groups.max())
        share = float(expit(gain)) if self._is_bent(theta) else 0.0
        choices = self.choice(theta), self.choice(simple)
        if share <= 0.5:
            choices, share = choices[::-1], 1.0 - share
        if share >= SURE:
            return Alternatives(choices[:1])
        return Alternatives(choices, (share, 1.0 - share))

    def _levelled(self, theta: Float[Array, " k"]) -> Float[Array, " k"]:
        """Let the hills of each variable go where a slope does nearly as well."""
        g = self.groups.max() + 1
        lowest = self.value(theta)
        for k in np.argsort(theta[3 + 2 * g :]).tolist():
            slope, hill = 3 + k, 3 + 2 * g + k
            # The least that a climb gives is not nothing beside little noise.
            if theta[hill] > NOTHING:
                level = theta.copy()
                level[slope] = max(theta[slope], theta[hill])
                level[hill] = NOTHING
                value = self.value(level)
                if value <= lowest + HILL_LUCK:
                    theta, lowest = level, value
        return theta

    def _unbent(self, theta: Float[Array, " k"]) -> Float[Array, " k"]:
        """Go to where the records are likeliest without bends.

        Bends so narrow that no two records share one are noise by another name, and
        what slopes and hills have left to them must be given back first.
        """
        if self._is_bent(theta):
            g = self.groups.max() + 1
            theta = theta.copy()
            theta[2] = np.logaddexp(theta[1], theta[2])
            theta[1] = NOTHING
            theta[3 : 3 + g] = np.maximum(theta[3 : 3 + g], REVIVED)
            low = np.where(self.able, REVIVED, NOTHING)
            theta[3 + 2 * g :] = np.maximum(theta[3 + 2 * g :], low)
            theta[0] = max(theta[0], REVIVED)
            return self.climbed(theta, UNBENT_STEPS, bent=False).x
        without = theta.copy()
        without[1] = NOTHING
        return without

    def _is_bent(self, theta: Float[Array, " k"]) -> bool:
        return bool(np.exp(theta[1]) > LEAST * np.exp(theta[2]))

    def choice(self, theta: Float[Array, " k"]) -> Choice:
        """Give each column the hyperparameters of its variable."""
        quadratic, smooth, noise = np.exp(theta[:3]).tolist()
        each = np.split(np.exp(theta[3:]), 3)
        slopes, widths, heights = (v[self.groups] for v in each)
        # Records cannot tell a slope from none that is as small as their error.
        slopes = np.maximum(slopes, noise / len(self.y))
        hilly = self.curved[heights[self.curved] > LEAST * noise]
        return Choice(slopes, quadratic, smooth, noise, widths, hilly, heights[hilly])

    def __call__(self, theta: Float[Array, " k"]) -> tuple[float, Float[Array, " k"]]:
        r"""Evaluate at :math:`\theta = \log(s_q, s_f, s_e, s_1 .. s_g, \rho, h)`."""
        z, B = self.z, self.hills
        quadratic, smooth, noise = np.exp(theta[:3])
        slopes, widths, heights = self._each(theta)
        if theta[1] <= NOTHING and self.unbent is not None:
            return self._without_bends(self.unbent, theta)
        solved = self._solved(theta)
        if solved is None:
            return 1e10, np.zeros_like(theta)
        factor, alpha, bends = solved
        # The gradient is half the trace of this matrix times dK.
        inverse, _ = dpotri(factor, lower=1)
        M = np.tril(inverse) + np.tril(inverse, -1).T - np.outer(alpha, alpha)
        M_bends = M * bends
        by_slope = slopes * np.einsum("nd,nd->d", z, M @ z)
        # The sum of M_ij (z_i - z_j)^2, without forming the differences.
        spread = M_bends.sum(axis=1) @ z**2 - np.einsum("nd,nd->d", z, M_bends @ z)
        by_width = 2.0 * smooth * spread / widths**2
        by_height = heights * np.einsum("nb,nb->b", B, M @ B)
        hilly = np.repeat(self.groups[self.curved], TOPS)
        gradient = 0.5 * np.concatenate(
            [
                [
                    quadratic * np.vdot(M, self.curves),
                    smooth * M_bends.sum(),
                    noise * np.sum(self.loudness * np.diag(M)),
                ],
                np.bincount(self.groups, by_slope),
                np.bincount(self.groups, by_width),
                np.bincount(hilly, by_height, minlength=self.groups.max() + 1),
            ]
        )
        return self._believed(theta, self._fit(factor, alpha), gradient)

    def value(self, theta: Float[Array, " k"]) -> float:
        """Evaluate without the gradient, which is most of the work."""
        if theta[1] <= NOTHING and self.unbent is not None:
            return self._without_bends(self.unbent, theta)[0]
        solved = self._solved(theta)
        if solved is None:
            return 1e10
        fit = self._fit(*solved[:2])
        return self._believed(theta, fit, np.zeros_like(theta))[0]

    def _without_bends(
        self, unbent: Unbent, theta: Float[Array, " k"]
    ) -> tuple[float, Float[Array, " k"]]:
        variances = np.exp(theta)[self.owners]
        variances[0] = 1.0
        told = unbent(variances, float(np.exp(theta[2])))
        if told is None:
            return 1e10, np.zeros_like(theta)
        value, by_variance, by_noise = told
        gradient = np.bincount(self.owners[1:], by_variance[1:], len(theta))
        gradient[2] = by_noise
        return self._believed(theta, value, gradient)

    def _each(self, theta: Float[Array, " k"]) -> list[Float[Array, " b"]]:
        """The slope variance and width of each column, and the height of each hill."""
        slopes, widths, heights = (
            v[self.groups] for v in np.split(np.exp(theta[3:]), 3)
        )
        return [slopes, widths, np.repeat(heights[self.curved], TOPS)]

    def _solved(
        self, theta: Float[Array, " k"]
    ) -> tuple[Float[Array, "n n"], Float[Array, " n"], Float[Array, "n n"]] | None:
        """The factor of the covariance, its solution for the output, and the bends."""
        z, B = self.z, self.hills
        quadratic, smooth, noise = np.exp(theta[:3])
        slopes, widths, heights = self._each(theta)
        bends = gram(z / widths, z / widths)
        K = quadratic * self.curves
        K += smooth * bends
        K += (z * slopes) @ z.T
        K += (B * heights) @ B.T
        K += 1.0
        K[np.diag_indices(len(K))] += noise * self.loudness
        try:
            factor = cho_factor(K, lower=True, overwrite_a=True, check_finite=False)
        except LinAlgError:
            return None
        return factor[0], cho_solve(factor, self.y), bends

    def _fit(self, factor: Float[Array, "n n"], alpha: Float[Array, " n"]) -> float:
        return float(0.5 * self.y @ alpha + np.log(np.diag(factor)).sum())

    def _believed(
        self, theta: Float[Array, " k"], value: float, gradient: Float[Array, " k"]
    ) -> tuple[float, Float[Array, " k"]]:
        """Add what is believed beforehand."""
        g = self.groups.max() + 1
        believed = np.r_[2, 3 + g : 3 + 2 * g]
        off = theta[believed] - np.r_[BELIEF, np.full(g, BELIEF_WIDTH)]
        doubt = np.r_[DOUBT, np.full(g, DOUBT_WIDTH)]
        simple = np.r_[0, 1, 3 : 3 + g, 3 + 2 * g : 3 + 3 * g]
        deviations = np.exp(0.5 * theta[simple])
        gradient = gradient.copy()
        gradient[believed] += off / doubt**2
        gradient[simple] += 0.5 * SIMPLICITY * deviations
        penalty = 0.5 * np.sum((off / doubt) ** 2) + SIMPLICITY * deviations.sum()
        return float(value + penalty), gradient
