"""Approximations of low rank: which functions stand for those of all records."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from forestall.arrays import Array
from forestall.errors import SpecError, nearest
from forestall.kernels import Gaussian
from forestall.landmarks import CANDIDATES, STRATEGIES, TIMES, Landmarks, chosen
from forestall.setting import Records, Setting, even
from forestall.waves import features, frequencies

# Directions of a kernel matrix below this, beside the ridge, change nothing that is
# reported. Normal equations have an error of rounding over the tolerance, which has to
# stay below the ridge, too.
NEGLIGIBLE = 3e-9
ROUNDING = 5e-17
# Functions that are made orthonormal before they are summed have an error of rounding
# over the tolerance's root only, so that a fit by all records equals the exact one. Up
# to so many records for each landmark that takes a quarter longer, with more of them it
# would take twice as long.
EARLY, CLOSE = 2, 1e-12
# The ascent starts at the best of so many records; of more if there are landmarks more.
STARTS = 300
# The records on which it is measured what the landmarks leave out of the covariates.
MEASURED = 1_000


class Approximation(ABC):
    """How a fit is approximated. ``None`` in its place is the exact fit."""

    @property
    @abstractmethod
    def candidates(self) -> int:
        """How many records the landmarks are best chosen among."""

    @property
    @abstractmethod
    def n_landmarks(self) -> int:
        """How many landmarks there are at most."""

    @abstractmethod
    def plan(self, setting: Setting, sample: Records, n: int) -> Plan:
        """Choose landmarks or features.

        Args:
            setting: Kernels and penalties.
            sample: All records, or some of them drawn at random.
            n: The number :math:`N` of all records.
        """


@dataclass(frozen=True, kw_only=True)
class Nystrom(Approximation):
    """Let a few records, the landmarks, speak for all: the Nystrom approximation.

    A decision costs as much as with ``rank`` records. The intervals include what the
    landmarks leave out.

    Args:
        rank: The number of landmarks; all records where there are no more.
        landmarks: How they are chosen: ``"uniform"``, at random; ``"kmeans"``, spread
            out; ``"leverage"``, by approximate ridge leverage.
        seed: Of the choice.
    """

    rank: int = 200
    landmarks: str = "uniform"
    seed: int = 0

    def __post_init__(self) -> None:
        """Check every field once."""
        _check_count("rank", self.rank, 1)
        _check_seed(self.seed)
        if self.landmarks not in STRATEGIES:
            known = ", ".join(map(repr, STRATEGIES))
            raise SpecError(
                f"Expected landmarks as one of {known}; got {self.landmarks!r}."
                f"{nearest(str(self.landmarks), STRATEGIES) or ' Use one of these.'}"
            )

    @property
    def candidates(self) -> int:
        """How many records the landmarks are best chosen among."""
        return max(CANDIDATES, TIMES * self.rank)

    @property
    def n_landmarks(self) -> int:
        """How many landmarks there are at most."""
        return self.rank

    def plan(self, setting: Setting, sample: Records, n: int) -> Plan:
        """Choose the landmarks."""
        anchors = anchored(setting, sample, self.rank, self.landmarks, self.seed)
        return Plan.on(setting, anchors, sample, n, self.seed)


@dataclass(frozen=True, kw_only=True)
class RandomFourier(Approximation):
    """Random Fourier features in place of the kernel of stage 1.

    Stage 2 and the regression without action use landmarks, half as many as there are
    features: waves reach everywhere, so they cannot tell how far from history a context
    is, and intervals have to know.

    Args:
        n_features: The number of features, half of them cosines and half sines.
        orthogonal: Draw the frequencies in orthogonal blocks, for a smaller error.
        seed: Of the draws.
    """

    n_features: int = 500
    orthogonal: bool = True
    seed: int = 0

    def __post_init__(self) -> None:
        """Check every field once."""
        _check_count("n_features", self.n_features, 2)
        _check_seed(self.seed)
        if self.n_features % 2:
            raise SpecError(
                f"Expected n_features even, as many cosines as sines; got "
                f"{self.n_features}. Use {self.n_features + 1}."
            )
        if not isinstance(self.orthogonal, bool):
            raise SpecError(
                f"Expected orthogonal as True or False; got {self.orthogonal!r}. "
                f"Leave it out for True."
            )

    @property
    def candidates(self) -> int:
        """How many records the landmarks are best chosen among."""
        return max(CANDIDATES, TIMES * self.n_landmarks)

    @property
    def n_landmarks(self) -> int:
        """How many landmarks there are at most."""
        return self.n_features // 2

    def plan(self, setting: Setting, sample: Records, n: int) -> Plan:
        """Draw the frequencies."""
        half, rng = self.n_landmarks, np.random.default_rng(self.seed)
        widths = setting.k_h.bandwidth
        drawn = frequencies(half, widths, self.orthogonal, rng)
        anchors = anchored(setting, sample, half, "uniform", self.seed)
        return Plan.on(setting, anchors, sample, n, self.seed, drawn)


@dataclass(frozen=True, eq=False)
class Plan:
    r"""What is fixed before all records are read: functions, kernels, penalties.

    Args:
        setting: Kernels, penalties and sharpness.
        starters: Records drawn at random; the ascent starts at the best of them.
        inner: Landmarks of stage 1, on :math:`h`.
        outer: Landmarks of stage 2, on :math:`x`.
        natural: Landmarks of the regression without action; the same object where
            their kernel is the same.
        covariates: Landmarks on :math:`u`; ``None`` when there is nothing to adjust
            for.
        residue: How much of the covariates' kernel its landmarks leave out, on average.
        frequencies: The frequencies of stage 1 where it uses waves.
    """

    setting: Setting
    starters: Records
    inner: Landmarks
    outer: Landmarks
    natural: Landmarks
    covariates: Landmarks | None
    residue: float
    frequencies: Float[Array, "f d_h"] | None = None

    @classmethod
    def on(
        cls,
        setting: Setting,
        anchors: Records,
        sample: Records,
        n: int,
        seed: int,
        frequencies: Float[Array, "f d_h"] | None = None,
    ) -> Plan:
        """Find out which landmarks repeat each other, block by block."""
        m, x = anchors.data.n, anchors.data.x
        early = n <= EARLY * m

        def marks(kernel: Gaussian, points: Array, penalty: float) -> Landmarks:
            small = NEGLIGIBLE * min(1.0, n * penalty)
            small = min(max(small, ROUNDING * m / penalty), 1e-3)
            return Landmarks.of(kernel, points, CLOSE if early else small, early)

        natural = on_x = marks(setting.k_e, x, setting.context_penalty)
        if setting.k_n is not setting.k_e:
            natural = marks(setting.k_n, x, setting.natural_penalty)
        covariates, residue = None, 0.0
        if anchors.u.shape[1]:
            # Nothing is divided by a ridge here, so that rounding is the only limit.
            covariates = Landmarks.of(setting.k_u, anchors.u, 1e-10)
            residue = float(covariates.residue(even(sample.u, MEASURED)).mean())
        return cls(
            setting,
            anchored(setting, sample, max(m, STARTS), "uniform", seed),
            marks(setting.k_h, anchors.h, setting.outcome_penalty),
            on_x,
            natural,
            covariates,
            residue,
            frequencies,
        )

    def functions(self, h: Float[Array, "n d_h"]) -> Float[Array, "n m"]:
        """Evaluate the functions of stage 1."""
        if self.frequencies is None:
            return self.inner.rows(h)
        return features(h, self.frequencies)

    def embedded(self, u: Float[Array, "n d_u"]) -> Float[Array, "n t"]:
        """Evaluate what stage 2 takes the mean of, given the context.

        The landmarks' functions of the covariates, the covariates' part of the waves
        where there are any, and last the constant one.
        """
        assert self.covariates is not None
        parts = [self.covariates.rows(u), np.ones((len(u), 1))]
        if self.frequencies is not None:
            d_x = self.starters.data.x.shape[1]
            own = self.frequencies[:, d_x : d_x + u.shape[1]]
            parts.insert(1, features(u, own) * np.sqrt(len(own)))
        return np.concatenate(parts, axis=1)


def anchored(
    setting: Setting, sample: Records, rank: int, strategy: str, seed: int
) -> Records:
    """Choose the landmarks among the records of a sample."""
    points, penalty = sample.h / setting.k_h.bandwidth, setting.outcome_penalty
    return sample.taken(chosen(points, rank, strategy, penalty, seed))


def check_approximation(value: object) -> None:
    """Refuse what is no approximation."""
    if not isinstance(value, Approximation | None):
        raise SpecError(
            f"Expected approximation as None, a Nystrom or a RandomFourier; got "
            f"{value!r}. Use e.g. Nystrom(rank=200)."
        )


def _check_count(name: str, value: object, least: int) -> None:
    whole = isinstance(value, int | np.integer) and not isinstance(value, bool)
    if not whole or value < least:  # type: ignore[operator]
        raise SpecError(
            f"Expected {name} whole and at least {least}; got {value!r}. Use e.g. 200."
        )


def _check_seed(seed: object) -> None:
    if not isinstance(seed, int | np.integer) or isinstance(seed, bool) or seed < 0:
        raise SpecError(
            f"Expected seed whole and not below zero; got {seed!r}. Use e.g. 0."
        )
