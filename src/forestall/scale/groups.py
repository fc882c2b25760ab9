r"""The density of all records, by groups of them: it adds up over batches.

A density of kernels as narrow as many records allow is no combination of a few kernel
functions: between landmarks these fall to nothing, waves never do, and support is told
in the tails. So every landmark speaks for the records nearest to it, by what a density
of kernels keeps of them: how many they are, their mean and their scatter. With a
landmark for every record it is the density of all kernels.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import Float, Int

from forestall.arrays import Array
from forestall.landmarks import chosen
from forestall.observations import Observations
from forestall.support import BLOCK, Density, log_sum, whitened

# Nothing is further from its landmark than this, in widths of the kernel: an absurd
# record must cost the others no digits.
FARTHEST = 1e4
# Distances that differ by rounding only are the same.
DECIMALS = 9


@dataclass(frozen=True, eq=False)
class Groups:
    """How many records each landmark speaks for, and where these are around it.

    Args:
        counts: Their number.
        first: The sum of their offsets from the landmark.
        second: The sum of the products of these.
    """

    counts: Float[Array, " m"]
    first: Float[Array, "m d"]
    second: Float[Array, "m d d"]

    def __add__(self, other: Groups) -> Groups:
        """Count both."""
        return Groups(
            self.counts + other.counts,
            self.first + other.first,
            self.second + other.second,
        )


@dataclass(frozen=True, eq=False)
class Gathering:
    """Gathers records around landmarks.

    Args:
        whitening: The metric of the density.
        landmarks: The whitened landmarks, no two alike.
    """

    whitening: Float[Array, "d d"]
    landmarks: Float[Array, "m d"]

    @classmethod
    def of(cls, v: Float[Array, "k d"], n: int, rank: int, seed: int) -> Gathering:
        """Choose landmarks for the density of ``n`` records among some of them.

        They are spread out: what is rare needs them as much as what is common.
        """
        whitening = whitened(v, n)
        points = v @ whitening
        rows = chosen(points, rank, "kmeans", 1.0 / n, seed)
        return cls(whitening, np.unique(points[rows], axis=0))

    def __call__(self, data: Observations) -> Groups:
        """Gather the contexts and actions of some records."""
        return self.count(joint(data))

    def count(self, v: Float[Array, "n d"]) -> Groups:
        """Gather some records."""
        m, d = self.landmarks.shape
        points = v @ self.whitening
        own = self._nearest(points)
        order = np.argsort(own, kind="stable")
        offsets = self._offsets(points, own)[order]
        counts = np.bincount(own, minlength=m)
        first, second = np.zeros((m, d)), np.zeros((m, d, d))
        ends = np.cumsum(counts)
        for k in np.flatnonzero(counts):
            part = offsets[ends[k] - counts[k] : ends[k]]
            first[k], second[k] = part.sum(axis=0), part.T @ part
        return Groups(counts.astype(float), first, second)

    def density(self, groups: Groups, v: Float[Array, "k d"]) -> Grouped:
        """Make the density of what was gathered, and rank it by some records."""
        points = v @ self.whitening
        own = self._nearest(points)
        laws = Laws.of(groups, self.landmarks)
        left = laws.left_out(own, self._offsets(points, own))
        told = Grouped(self.whitening, laws.roots, laws.shifts, laws.heights, left)
        return replace(told, levels=np.sort(told.evaluated(points, own, left)))

    def _offsets(
        self, points: Float[Array, "n d"], own: Int[Array, " n"]
    ) -> Float[Array, "n d"]:
        return np.clip(points - self.landmarks[own], -FARTHEST, FARTHEST)

    def _nearest(self, points: Float[Array, "n d"]) -> Int[Array, " n"]:
        own = np.empty(len(points), dtype=int)
        marks = self.landmarks
        half = 0.5 * np.einsum("md,md->m", marks, marks)
        step = max(1, BLOCK // len(marks))
        for i in range(0, len(points), step):
            part = np.clip(points[i : i + step], -FARTHEST, FARTHEST)
            apart = np.round(half - part @ marks.T, DECIMALS)
            own[i : i + step] = apart.argmin(axis=1)
        return own


@dataclass(frozen=True, eq=False)
class Grouped(Density):
    r"""A density of a few normal laws, each in the place of the kernels of a group.

    Args:
        whitening: The metric of the density.
        roots: For each group the matrix that whitens its law.
        shifts: What that makes of its mean.
        heights: The logarithm of the group's size over its law's volume.
        levels: The log density of some records given all others, sorted.
    """

    whitening: Float[Array, "d d"]
    roots: Float[Array, "m d d"]
    shifts: Float[Array, "m d"]
    heights: Float[Array, " m"]
    levels: Float[Array, " n"]

    def log_density(self, v: Float[Array, "q d"]) -> Float[Array, " q"]:
        """Evaluate the log density, up to a constant."""
        return self.evaluated(v @ self.whitening)

    def evaluated(
        self,
        points: Float[Array, "q d"],
        own: Int[Array, " q"] | None = None,
        left: Float[Array, " q"] | None = None,
    ) -> Float[Array, " q"]:
        """Add up the laws at whitened points.

        Args:
            points: The points.
            own: The group that each belongs to; ``None`` where they are no records.
            left: What the rest of this group says of the point.
        """
        (m, d), out = self.shifts.shape, np.empty(len(points))
        roots = self.roots.reshape(m * d, d).T
        step = max(1, BLOCK // (m * d))
        for i in range(0, len(points), step):
            part = np.clip(points[i : i + step], -FARTHEST, FARTHEST)
            away = (part @ roots).reshape(-1, m, d)
            away -= self.shifts
            logs = -0.5 * np.einsum("qmd,qmd->qm", away, away)
            logs += self.heights
            if own is not None and left is not None:
                rows = np.arange(len(part))
                logs[rows, own[i : i + step]] = left[i : i + step]
            out[i : i + step] = log_sum(logs)
        return out


@dataclass(frozen=True, eq=False)
class Laws:
    """The normal law of each group: that of the kernels of its records.

    Args:
        counts: The number of records.
        middles: Their mean, from the landmark.
        scatter: Their covariance.
        roots: The matrix that whitens the law, which is wider by the kernel.
        shifts: What that makes of its mean.
        heights: The logarithm of the size over the law's volume.
    """

    counts: Float[Array, " m"]
    middles: Float[Array, "m d"]
    scatter: Float[Array, "m d d"]
    roots: Float[Array, "m d d"]
    shifts: Float[Array, "m d"]
    heights: Float[Array, " m"]

    @classmethod
    def of(cls, groups: Groups, landmarks: Float[Array, "m d"]) -> Laws:
        """Make them of what was gathered."""
        n = np.maximum(groups.counts, 1.0)[:, None]
        middles = groups.first / n
        scatter = groups.second / n[:, None]
        scatter -= middles[:, :, None] * middles[:, None, :]
        roots, volumes = _rooted(scatter)
        shifts = np.einsum("mij,mj->mi", roots, landmarks + middles)
        heights = np.log(np.maximum(groups.counts, 1e-300)) - volumes
        return cls(groups.counts, middles, scatter, roots, shifts, heights)

    def left_out(
        self, own: Int[Array, " n"], offsets: Float[Array, "n d"]
    ) -> Float[Array, " n"]:
        """What the others of its group say of each record, in closed form.

        Without it a group of ``n`` has another mean and scatter, both by a rank-one
        change: the record is further from them by ``n / (n - 1)``.
        """
        n = np.maximum(self.counts, 2.0)
        more = n / (n - 1.0)
        roots, volumes = _rooted(more[:, None, None] * self.scatter)
        away = np.einsum("nij,nj->ni", roots[own], offsets - self.middles[own])
        squares = np.einsum("ni,ni->n", away, away)
        n, more, volumes = n[own], more[own], volumes[own]
        rest = np.maximum(1.0 - squares * more / (n - 1.0), 1e-12)
        told = np.log(n - 1.0) - volumes - 0.5 * np.log(rest)
        told -= 0.5 * more**2 * squares / rest
        return np.where(self.counts[own] > 1.5, told, -np.inf)


def _rooted(
    scatter: Float[Array, "m d d"],
) -> tuple[Float[Array, "m d d"], Float[Array, " m"]]:
    """Whiten scatter and kernel together; give the logarithm of their volume, too."""
    factors = np.linalg.cholesky(scatter + np.eye(scatter.shape[1]))
    volumes = np.log(np.diagonal(factors, axis1=1, axis2=2)).sum(axis=1)
    return np.linalg.inv(factors), volumes


def joint(data: Observations) -> Float[Array, "n d"]:
    """Contexts and actions side by side."""
    return np.concatenate([data.x, data.a], axis=1)
