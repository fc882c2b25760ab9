"""Looking for the best action where ignorance must not pay."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float

from forestall.arrays import Array
from forestall.rehearsal import Noise, Rehearsal


@dataclass(frozen=True, kw_only=True)
class Search:
    """Screen the whole box by the mean, then climb a lower quantile over draws.

    Args:
        n_screened: Actions screened with the mean functions.
        n_kept: How many of them are judged over the draws.
        n_starts: How many of these climb.
        n_steps: How often they do.
        n_draws: Functions drawn to choose with.
        n_paths: Residuals drawn for each covariate to choose with.
        caution: The quantile over the draws by which actions are ranked.
        seed: What screening points and residuals come from.
    """

    n_screened: int = 256
    n_kept: int = 24
    n_starts: int = 4
    n_steps: int = 8
    n_draws: int = 24
    n_paths: int = 16
    caution: float = 0.25
    seed: int = 0

    def best(
        self,
        system: Rehearsal,
        x: Float[Array, "q d_x"],
        altered: Bool[Array, " d_a"],
        lower: Float[Array, " d_a"],
        upper: Float[Array, " d_a"],
    ) -> Float[Array, "q d_a"]:
        """Find the best action of each context."""
        rng = np.random.default_rng(self.seed)
        noise = Noise.drawn(system.n_noises, self.n_paths, self.n_draws, rng)
        draws = np.arange(1, 1 + self.n_draws)
        q, d = len(x), len(lower)
        if q == 0:
            return np.empty((0, d))

        def judged(a: Array, gradient: bool = False) -> tuple[Array, Array]:
            """Score actions (q, k, d) and give the direction in which scores rise."""
            k = a.shape[1]
            told = system.success(
                np.repeat(x, k, axis=0),
                a.reshape(-1, d),
                altered,
                draws,
                noise,
                gradient=gradient,
            )
            score = np.quantile(told.value, self.caution, axis=1).reshape(q, k)
            if told.gradient is None:
                return score, np.empty(0)
            return score, _cautious(told.value, told.gradient).reshape(q, k, d)

        screened = lower + (upper - lower) * _spread(self.n_screened, d, rng)
        rough = system.success(
            np.repeat(x, self.n_screened, axis=0),
            np.tile(screened, (q, 1)),
            altered,
            np.array([0]),
            noise,
        ).value.reshape(q, -1)
        kept = np.argsort(-rough, axis=1)[:, : self.n_kept]
        a = screened[kept]
        score, _ = judged(a)
        top = np.argsort(-score, axis=1)[:, : self.n_starts]
        a = np.take_along_axis(a, top[..., None], axis=1)
        return self._climb(a, judged, lower, upper)

    def _climb(self, a: Array, judged: object, lower: Array, upper: Array) -> Array:
        score, rise = judged(a, True)  # type: ignore[operator]
        reach = np.full(a.shape[:2], 0.12)
        for _ in range(self.n_steps):
            length = np.abs(rise * (upper - lower)).max(axis=2, keepdims=True)
            heading = rise * (upper - lower) / np.maximum(length, 1e-12)
            step = reach[..., None] * heading * (upper - lower)
            tried = np.clip(a + step, lower, upper)
            new, slope = judged(tried, True)  # type: ignore[operator]
            better = new > score
            a = np.where(better[..., None], tried, a)
            rise = np.where(better[..., None], slope, rise)
            score = np.maximum(new, score)
            reach = np.where(better, 1.3 * reach, 0.4 * reach)
        winner = score.argmax(axis=1)
        return a[np.arange(len(a)), winner]


def _cautious(value: Float[Array, "p s"], gradient: Float[Array, "p s d"]) -> Array:
    """Differentiate the mean less two thirds of the deviation over draws."""
    off = value - value.mean(axis=1, keepdims=True)
    deviation = np.sqrt((off**2).mean(axis=1)) + 1e-9
    spread = np.einsum("ps,psd->pd", off, gradient) / value.shape[1]
    return gradient.mean(axis=1) - 0.67 * spread / deviation[:, None]


def _spread(n: int, d: int, rng: np.random.Generator) -> Float[Array, "n d"]:
    """Spread points evenly over the unit cube, one in each slice of each axis."""
    slices = np.stack([rng.permutation(n) for _ in range(d)], axis=1)
    return (slices + rng.random((n, d))) / n
