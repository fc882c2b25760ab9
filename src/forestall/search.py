"""Looking for the best action where ignorance must not pay."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float, Int

from forestall.arrays import Array
from forestall.errors import SpecError
from forestall.rehearsal import Noise, Rehearsal

# The first step of a climb, as a share of the box; longer after a success, shorter
# after a failure.
REACH, LONGER, SHORTER = 0.12, 1.3, 0.4


@dataclass(frozen=True, eq=False)
class Chosen:
    """The best action of each context, and which of its parts are altered at all."""

    a: Float[Array, "q d_a"]
    altered: Bool[Array, "q d_a"]
    score: Float[Array, " q"]


@dataclass(frozen=True, kw_only=True)
class Search:
    """Screen the whole box by the mean, then climb a lower quantile over draws.

    Args:
        n_screened: Actions screened with the mean functions.
        n_kept: How many of them are judged over the draws.
        n_starts: How many of these climb.
        n_steps: How often they do.
        n_draws: Functions drawn to choose with.
        n_paths: Residuals drawn for each variable to choose with; a power of two.
        caution: The quantile over the draws by which actions are ranked.
    """

    n_screened: int = 256
    n_kept: int = 24
    n_starts: int = 4
    n_steps: int = 8
    n_draws: int = 24
    n_paths: int = 64
    caution: float = 0.25

    def __post_init__(self) -> None:
        """Check the counts and the quantile."""
        for name, value in vars(self).items():
            if name != "caution" and not (isinstance(value, int) and value > 0):
                raise SpecError(f"Expected {name} above zero and whole; got {value!r}.")
        if not 0.0 < self.caution < 1.0:
            raise SpecError(
                f"Expected caution as a quantile between 0 and 1; got {self.caution!r}."
            )

    def best(
        self,
        system: Rehearsal,
        x: Float[Array, "q d_x"],
        subsets: Sequence[Bool[Array, " d_a"]],
        box: Box,
        taken: Float[Array, "m d_a"],
        draws: Int[Array, " s"],
        rng: np.random.Generator,
    ) -> Chosen:
        """Find the best action of each context, altering one of the subsets.

        Args:
            system: The fitted mechanisms.
            x: The contexts, standardised.
            subsets: Which actions may be altered together.
            box: The feasible actions.
            taken: Some actions of history, which are screened too: in a box that is
                very wide, points spread over it might all lie beyond history.
            draws: The drawn worlds to choose with.
            rng: What the points and the residuals come from.
        """
        noise = Noise.drawn(system.n_noises, self.n_paths, len(draws), rng)
        nearby = np.clip(taken, box.lower, box.upper)
        screened = np.concatenate([box.spread(self.n_screened, rng), nearby])
        found = [
            self._within(
                _Trial(system, x, altered, draws, noise, self.caution), screened, box
            )
            for altered in subsets
        ]
        winner = np.argmax([chosen.score for chosen in found], axis=0)
        rows = np.arange(len(x))
        return Chosen(
            *(
                np.stack([getattr(chosen, name) for chosen in found])[winner, rows]
                for name in ("a", "altered", "score")
            )
        )

    def _within(self, trial: _Trial, screened: Float[Array, "m d"], box: Box) -> Chosen:
        rough = trial.roughly(screened)
        a = screened[np.argsort(-rough, axis=1)[:, : self.n_kept]]
        top = np.argsort(-trial.score(a), axis=1)[:, : self.n_starts]
        a = np.take_along_axis(a, top[..., None], axis=1)
        score, rise = trial.score_and_rise(a)
        reach = np.full(a.shape[:2], REACH)
        for _ in range(self.n_steps):
            tried = box.step(a, rise, reach)
            new, slope = trial.score_and_rise(tried)
            better = new > score
            a = np.where(better[..., None], tried, a)
            rise = np.where(better[..., None], slope, rise)
            score = np.maximum(new, score)
            reach = np.where(better, LONGER * reach, SHORTER * reach)
        winner = score.argmax(axis=1)
        rows = np.arange(len(a))
        altered = np.tile(trial.altered, (len(a), 1))
        best = np.where(altered, a[rows, winner], box.usual)
        return Chosen(best, altered, score[rows, winner])


@dataclass(frozen=True, eq=False)
class Box:
    """The feasible actions, standardised."""

    lower: Float[Array, " d"]
    upper: Float[Array, " d"]

    @property
    def usual(self) -> Float[Array, " d"]:
        """The feasible action nearest to the mean of history."""
        return np.clip(0.0, self.lower, self.upper)

    def spread(self, n: int, rng: np.random.Generator) -> Float[Array, "n d"]:
        """Spread points evenly, one in each slice of each axis."""
        d = len(self.lower)
        slices = np.stack([rng.permutation(n) for _ in range(d)], axis=1)
        return (
            self.lower + (self.upper - self.lower) * (slices + rng.random((n, d))) / n
        )

    def step(
        self,
        a: Float[Array, "q s d"],
        rise: Float[Array, "q s d"],
        reach: Float[Array, "q s"],
    ) -> Float[Array, "q s d"]:
        """Go where the score rises, so far that one side of the box is ``reach``."""
        side = self.upper - self.lower
        heading = rise * side
        length = np.abs(heading).max(axis=2, keepdims=True)
        heading = heading / np.maximum(length, 1e-12)
        return np.clip(a + reach[..., None] * heading * side, self.lower, self.upper)


@dataclass(frozen=True, eq=False)
class _Trial:
    """Judges actions (q, k, d) for q contexts, with common draws and residuals."""

    system: Rehearsal
    x: Float[Array, "q d_x"]
    altered: Bool[Array, " d"]
    draws: Int[Array, " s"]
    noise: Noise
    caution: float

    def roughly(self, screened: Float[Array, "m d"]) -> Float[Array, "q m"]:
        """Judge the same actions for all contexts by the mean functions alone."""
        a = np.broadcast_to(screened, (len(self.x), *screened.shape))
        return self._success(a, np.array([0]), False)[0][..., 0]

    def score(self, a: Float[Array, "q k d"]) -> Float[Array, "q k"]:
        """Rank by a lower quantile, so that ignorance never pays."""
        value, _ = self._success(a, self.draws, False)
        return np.quantile(value, self.caution, axis=2)

    def score_and_rise(
        self, a: Float[Array, "q k d"]
    ) -> tuple[Float[Array, "q k"], Float[Array, "q k d"]]:
        """Also say in which direction the mean less some deviation rises."""
        value, gradient = self._success(a, self.draws, True)
        off = value - value.mean(axis=2, keepdims=True)
        deviation = np.sqrt((off**2).mean(axis=2)) + 1e-9
        widening = (off[..., None] * gradient).mean(axis=2) / deviation[..., None]
        # For a normal law the quartile lies two thirds of a deviation below the mean.
        rise = gradient.mean(axis=2) - 0.67 * widening
        return np.quantile(value, self.caution, axis=2), rise

    def _success(
        self, a: Float[Array, "q k d"], draws: Array, gradient: bool
    ) -> tuple[Array, Array]:
        q, k, d = a.shape
        told = self.system.success(
            np.repeat(self.x, k, axis=0),
            a.reshape(-1, d),
            self.altered,
            draws,
            self.noise,
            gradient=gradient,
        )
        slopes = np.empty(0) if told.gradient is None else told.gradient
        shape = (q, k, len(draws))
        return told.value.reshape(shape), slopes.reshape(
            (*shape, d) if gradient else (0,)
        )
