"""How loud the residuals of a variable are, as a function of its inputs."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int

from forestall.arrays import Array
from forestall.evidence import Evidence
from forestall.expansion import pivoted_cholesky
from forestall.hills import TOPS, hills
from forestall.kernels import median_bandwidth, quick_gram

CENTRES = 40
# Beyond what this share of the records has, the loudness stays as it is.
USUAL = 0.98
# A residual that happens to be tiny says little; the share of these.
TINY = 0.02
# Fewer records than this show slopes at most.
FEW = 100


@dataclass(frozen=True, eq=False)
class Terms:
    """Slopes and hills along some inputs, and bumps on centres among all of them.

    Args:
        lower: Where each input is cut off.
        upper: Likewise.
        sloped: The inputs that have a slope.
        hilly: Those that have hills.
        bandwidth: The width of the bumps along each input.
        centres: Their centres, in units of the widths.
    """

    lower: Float[Array, " d"]
    upper: Float[Array, " d"]
    sloped: Int[Array, " s"]
    hilly: Int[Array, " h"]
    bandwidth: Float[Array, " d"]
    centres: Float[Array, "m d"]

    @classmethod
    def of(cls, z: Float[Array, "n d"]) -> Terms:
        """Give every input a slope; hills and bumps, too, where records are many."""
        lower, upper = np.quantile(z, [0.5 - USUAL / 2, 0.5 + USUAL / 2], axis=0)
        every, (bandwidth, centres) = np.arange(z.shape[1]), laid(z)
        if len(z) < FEW:
            return cls(lower, upper, every, every[:0], bandwidth, centres[:0])
        # Two values make a slope.
        steps = (np.diff(np.sort(z, axis=0), axis=0) > 0.0).sum(axis=0)
        return cls(lower, upper, every, np.flatnonzero(steps > 1), bandwidth, centres)

    @property
    def groups(self) -> Int[Array, " q"]:
        """Which functions stand and fall together: those along one input, the bumps."""
        s, h = len(self.sloped), len(self.hilly)
        each = np.arange(s + h + 1)
        return np.repeat(each, [*[1] * s, *[TOPS] * h, len(self.centres)])

    def some(self, groups: Int[Array, " g"]) -> Terms:
        """Keep some groups."""
        s, h = len(self.sloped), len(self.hilly)
        of_hills = groups[(groups >= s) & (groups < s + h)] - s
        return Terms(
            self.lower,
            self.upper,
            self.sloped[groups[groups < s]],
            self.hilly[of_hills],
            self.bandwidth,
            self.centres if s + h in groups else self.centres[:0],
        )

    def __call__(self, z: Float[Array, "n d"]) -> Float[Array, "n q"]:
        """Evaluate them."""
        t = np.clip(z, self.lower, self.upper)
        parts = [t[:, self.sloped], hills(t[:, self.hilly])]
        if len(self.centres):
            parts.append(quick_gram(z / self.bandwidth, self.centres))
        return np.concatenate(parts, axis=1)


@dataclass(frozen=True, eq=False)
class Loudness:
    """The spread of the residuals at each input, in units of the common one.

    Args:
        terms: The functions that it follows from.
        mean: The mean of each over the records.
        weights: What each adds to the log variance: the estimate, then posterior draws.
        ends: The range of the fitted values, which is not left.
    """

    terms: Terms
    mean: Float[Array, " q"]
    weights: Float[Array, "s q"]
    ends: tuple[float, float]

    @classmethod
    def of(
        cls,
        z: Float[Array, "n d"],
        residuals: Float[Array, " n"],
        n_draws: int,
        rng: np.random.Generator,
    ) -> Loudness | None:
        """Regress log squares; ``None`` where that does not help."""
        loud = np.log(residuals**2 + 1e-6 * residuals.var() + 1e-300)
        loud = np.maximum(loud, np.quantile(loud, TINY))
        terms = Terms.of(z)
        groups, rows = terms.groups, terms(z)
        rows -= rows.mean(axis=0)
        # Groups differ in size and in how much their functions move.
        scale = np.sqrt(np.bincount(groups, rows.var(axis=0)))[groups]
        rows /= np.where(scale > 0.0, scale, 1.0)
        found = Evidence.of(rows, loud - loud.mean(), groups).posterior()
        if found is None:
            return None
        kept = found.kept
        drawn = found.root @ rng.normal(size=(len(found.root), n_draws))
        weights = np.concatenate([np.zeros((len(drawn), 1)), drawn], axis=1)
        weights += found.weights[:, None]
        fitted = rows[:, kept] @ found.weights
        terms = terms.some(np.unique(groups[kept]))
        return cls(
            terms,
            terms(z).mean(axis=0),
            (weights / scale[kept, None]).T,
            (float(fitted.min()), float(fitted.max())),
        )

    def __call__(self, z: Float[Array, "n d"], draw: int) -> Float[Array, " n"]:
        """Give the spread at each input."""
        rows = self.terms(z) - self.mean
        return np.exp(0.5 * np.clip(rows @ self.weights[draw], *self.ends))


def laid(z: Float[Array, "n d"]) -> tuple[Float[Array, " d"], Float[Array, "m d"]]:
    """Choose widths for bumps, and centres among the records, in units of these."""
    bandwidth = median_bandwidth(z, 1.0)
    points = z / bandwidth
    pivots, _ = pivoted_cholesky(points, min(CENTRES, len(z)), 1e-3)
    return bandwidth, points[pivots]
