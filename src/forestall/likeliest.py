"""Hyperparameters from the records alone, by marginal likelihood."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import Float, Int
from scipy.optimize import OptimizeResult, minimize
from scipy.special import expit

from forestall.arrays import Array
from forestall.likelihood import LEAST, NOTHING, Likelihood
from forestall.select import Alternatives, Choice
from forestall.threads import one_thread

# The likelihood is cubic in the number of records: few show which of several peaks is
# the highest, more of them where its top is, and yet more would move it little.
FEW, MANY = 240, 640
# Which peak that is shows after some steps.
FIRST_STEPS, STEPS, LAST_STEPS, UNBENT_STEPS = 20, 40, 12, 60
# What a parameter gains in log probability by luck.
LUCK = 0.5
# The log variance with which slopes, curves and hills set out again.
REVIVED = np.log(0.01)
START = np.log([0.05, 0.5, 0.2])
START_SLOPE, START_WIDTHS, START_HILLS = np.log(0.5), (1.0, 3.0), np.log(0.05)
START_BENDS, START_BEND_WIDTH = np.log(0.05), 1.5
# A structure that is at least as likely as this, of two, is taken for the only one.
SURE = 0.95
VARIANCE, NOISE = (-12.0, 5.0), (-9.0, 2.0)
# Where the noise is known, few that are rare may still stray by more; what they do must
# not be taken for bends.
DISPERSION = (0.0, np.log(30.0))
WIDTH = (np.log(0.15), np.log(30.0))


def guessed(
    z: Float[Array, "n d"],
    y: Float[Array, " n"],
    groups: Int[Array, " d"],
    noise: Float[Array, " n"] | None = None,
) -> Choice:
    """Find by few records which of several peaks is the highest.

    Args:
        z: The inputs, standardised.
        y: The output, standardised.
        groups: The variable behind each input column; a variable has one width.
        noise: The variance of each record's noise, where that is known.
    """
    if not z.shape[1]:
        return Choice(np.empty(0), 0.0, 0.0, 1.0, np.empty(0))
    few = Selection.among(z, y, groups, FEW, noise, known=noise is not None)
    # Small matrices gain nothing from threads and lose much on a busy machine.
    with one_thread():
        return few.choice(few.maximised())


def refined(
    guess: Choice,
    z: Float[Array, "n d"],
    y: Float[Array, " n"],
    groups: Int[Array, " d"],
    loudness: Float[Array, " n"] | None = None,
    *,
    known: bool = False,
) -> Alternatives:
    """Go on from a guess to the top, by more records.

    Bends that the guess has left out, being of few records, get a second chance.

    Args:
        guess: Where to begin.
        z: The inputs, standardised.
        y: The output, standardised.
        groups: The variable behind each input column.
        loudness: The variance of each record's noise, on any scale; ``None`` where all
            are alike. What is noise must not be taken for bends.
        known: Whether that is the noise itself.
    """
    if not z.shape[1]:
        return Alternatives((guess,))
    many = Selection.among(z, y, groups, MANY, loudness, known=known)
    theta = _theta(guess, groups)
    with one_thread():
        starts = [theta, *many.bent(theta)]
        return many.alternatives([many.climbed(v, LAST_STEPS).x for v in starts])


def everything(choice: Choice, curved: Int[Array, " h"]) -> Choice:
    """Lay out all that more records may ask for, around what few of them did."""
    heights = np.maximum(choice.heights[curved], np.exp(REVIVED))
    return replace(
        choice,
        linear=np.maximum(choice.linear, np.exp(REVIVED)),
        quadratic=max(choice.quadratic, float(np.exp(REVIVED))),
        smooth=max(choice.smooth, float(np.exp(START_BENDS))),
        hilly=curved,
        hills=heights,
    )


def _theta(choice: Choice, groups: Int[Array, " d"]) -> Float[Array, " k"]:
    """Read the logarithms back, one for each variable."""
    _, first = np.unique(groups, return_index=True)
    # Of the columns of a variable some may have hills.
    highest = np.zeros(len(first))
    np.maximum.at(highest, groups, choice.heights)
    common = [choice.quadratic, choice.smooth, choice.noise]
    each = [choice.linear[first], choice.widths[first], highest]
    return np.log(np.maximum(np.concatenate([common, *each]), np.exp(NOTHING)))


@dataclass(frozen=True, eq=False)
class Selection:
    """Climbs to where the records are likeliest, and keeps what they ask for."""

    likelihood: Likelihood

    @classmethod
    def among(
        cls,
        z: Float[Array, "n d"],
        y: Float[Array, " n"],
        groups: Int[Array, " d"],
        most: int,
        loudness: Float[Array, " n"] | None = None,
        *,
        known: bool = False,
    ) -> Selection:
        """Take records evenly, at most so many."""
        every = np.linspace(0, len(y) - 1, min(len(y), most)).astype(int)
        if loudness is None:
            return cls(Likelihood(z[every], y[every], groups))
        louder = loudness[every] / (1.0 if known else loudness.mean())
        return cls(Likelihood(z[every], y[every], groups, louder, known))

    @property
    def n_variables(self) -> int:
        """The number of variables behind the input columns."""
        return int(self.likelihood.groups.max()) + 1

    def maximised(self) -> Float[Array, " k"]:
        """Descend some way from several starts, and from the best of them to the end.

        A wiggly and a smooth start without hills, then hills on the better one, and
        hills from the outset: either may hide the other way to explain the records.
        """
        g = self.n_variables
        slopes, flat = np.full(g, START_SLOPE), np.full(g, VARIANCE[0])
        common = [*START[:2], 0.0] if self.likelihood.known else START
        starts = [
            np.concatenate([common, slopes, np.full(g, np.log(w))])
            for w in START_WIDTHS
        ]
        ends = [self._tried(np.concatenate([start, flat])) for start in starts]
        if len(self.likelihood.curved):
            found = _best(ends).x[: 3 + 2 * g]
            hilly = np.where(self.likelihood.able, START_HILLS, VARIANCE[0])
            ends += [
                self._tried(np.concatenate([start, hilly]))
                for start in (found, starts[-1])
            ]
        return self.climbed(_best(ends).x, STEPS).x

    def _tried(self, theta: Float[Array, " k"]) -> OptimizeResult:
        return self.climbed(theta, FIRST_STEPS)

    def climbed(
        self, theta: Float[Array, " k"], n_steps: int, *, bent: bool = True
    ) -> OptimizeResult:
        """Go to where the records are likelier, from one start, with bends or not."""
        g = self.n_variables
        each = np.repeat([VARIANCE, WIDTH, VARIANCE], g, axis=0)
        bends = VARIANCE if bent else (NOTHING, NOTHING)
        noise = DISPERSION if self.likelihood.known else NOISE
        return minimize(
            self.likelihood,
            theta,
            jac=True,
            method="L-BFGS-B",
            bounds=[VARIANCE, bends, noise, *each],
            options={"maxiter": n_steps},
        )

    def bent(self, theta: Float[Array, " k"]) -> list[Float[Array, " k"]]:
        """Begin with bends where there are none."""
        if self._is_bent(theta):
            return []
        g = self.n_variables
        theta = theta.copy()
        theta[1], theta[3 + g : 3 + 2 * g] = START_BENDS, np.log(START_BEND_WIDTH)
        return [theta]

    def alternatives(self, ends: Sequence[Float[Array, " k"]]) -> Alternatives:
        """Let bends, and then curves, go where the records do not ask for them.

        Where they can be had with and without bends, both are kept. Curves stay where
        bends do: bends could stand in for them among the records, and would then take
        the trend away from where there are none.
        """
        theta = min(ends, key=self.likelihood.value)
        unbent = min(map(self._unbent, ends), key=self.likelihood.value)
        value = self.likelihood.value(unbent)
        flat = unbent.copy()
        flat[0] = NOTHING
        simple = flat if self.likelihood.value(flat) <= value + LUCK else unbent
        # More records may ask for bends, and then as wide as these.
        widths = slice(3 + self.n_variables, 3 + 2 * self.n_variables)
        simple[widths] = max(ends, key=lambda end: float(end[1]))[widths]
        # Bends come with a width for each variable.
        gain = value - self.likelihood.value(theta) - LUCK * (1 + self.n_variables)
        share = float(expit(gain)) if self._is_bent(theta) else 0.0
        choices = self.choice(theta), self.choice(simple)
        if share <= 0.5:
            choices, share = choices[::-1], 1.0 - share
        if share >= SURE:
            return Alternatives(choices[:1])
        return Alternatives(choices, (share, 1.0 - share))

    def _unbent(self, theta: Float[Array, " k"]) -> Float[Array, " k"]:
        """Go to where the records are likeliest without bends.

        Bends so narrow that no two records share one are noise by another name, and
        what slopes and hills have left to them must be given back first.
        """
        if self._is_bent(theta):
            g = self.n_variables
            theta = theta.copy()
            theta[2] = np.logaddexp(theta[1], theta[2])
            theta[1] = NOTHING
            theta[3 : 3 + g] = np.maximum(theta[3 : 3 + g], REVIVED)
            low = np.where(self.likelihood.able, REVIVED, NOTHING)
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
        told = self.likelihood
        quadratic, smooth = np.where(
            theta[:2] > NOTHING, np.exp(theta[:2]), 0.0
        ).tolist()
        noise = float(np.exp(theta[2]))
        each = np.split(np.exp(theta[3:]), 3)
        slopes, widths, heights = (v[told.groups] for v in each)
        hilly = told.curved[heights[told.curved] > LEAST * noise]
        return Choice(slopes, quadratic, smooth, noise, widths, hilly, heights[hilly])


def _best(ends: Sequence[OptimizeResult]) -> OptimizeResult:
    return min(ends, key=lambda end: float(end.fun))
