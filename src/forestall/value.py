r"""The value of a policy by records alone: doubly robust, smoothed by a kernel.

Had the policy :math:`\pi` been followed, how often would the outcome have been good?

.. math:: \psi_i = m(h_i, \pi(x_i)) + \frac{K_\sigma(a_i - \pi(x_i))}{f(a_i \mid h_i)}
    \left(1[y_i \in S] - m(h_i, a_i)\right)

averages to it if either the outcome regression :math:`m` or the density :math:`f` of
history's actions is right; both are learned from other records than those they judge.
A record for which the policy leaves things alone counts as it came out. With covariates
between actions the same is done action by action, the last one first, with the product
of the weights (Robins's sequential form).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float, Int

from forestall.arrays import Array

# Below this many effective records an estimate is refused.
FEWEST = 30.0
# So is one of which history reaches less than this share of the actions: what it says
# of the rest is the outcome regression's guess.
REACHED = 0.8
# The standard normal's 95 % point: intervals are 90 % ones.
TWO_SIDED = 1.6448536269514722
TOO_FEW = "history has too few records near these actions"
UNJUDGED = "judged on too few records"


@dataclass(frozen=True, eq=False)
class Step:
    """Actions that are chosen on the same knowledge.

    Args:
        covariates: The covariates known by then.
        before: The actions set earlier, by their position.
        now: The actions set in this step.
    """

    covariates: tuple[str, ...]
    before: tuple[int, ...]
    now: tuple[int, ...]


@dataclass(frozen=True, eq=False, kw_only=True)
class Scores:
    """All it takes to estimate a policy's value on some records.

    Args:
        rows: The records.
        under: What the regression of each step expects under the policy.
        taken: What it expects under the actions that were taken.
        distance: From what the policy does to what was done, standardised.
        density: How likely what was done was.
        sd: How far each action typically strayed from what was usual.
        near: Whether history reaches what the policy does.
    """

    rows: Int[Array, " q"]
    under: Float[Array, "q k"]
    taken: Float[Array, "q k"]
    distance: Float[Array, "q d_a"]
    density: Float[Array, "q d_a"]
    sd: Float[Array, " d_a"]
    near: Bool[Array, " q"]

    @staticmethod
    def joined(parts: Sequence[Scores]) -> Scores:
        """Put folds together."""
        names = ("rows", "under", "taken", "distance", "density", "near")
        columns = {k: np.concatenate([getattr(p, k) for p in parts]) for k in names}
        return Scores(sd=np.mean([p.sd for p in parts], axis=0), **columns)

    def weights(
        self, steps: Sequence[Step], n: int, factor: float = 1.0
    ) -> Float[Array, "q k"]:
        """The product of the kernel weights up to each step.

        Args:
            steps: Which actions are set when.
            n: How many records are acted on, for the width.
            factor: What to multiply the width by.
        """
        d = len(self.sd)
        # Scott's rule, by how far actions strayed and not by how far they ranged.
        width = factor * self.sd * max(n, 1) ** (-1.0 / (d + 4))
        t = self.distance / width
        K = np.exp(-0.5 * t**2) / (np.sqrt(2.0 * np.pi) * width)
        ratio = K / self.density
        parts = [ratio[:, list(step.now)].prod(axis=1) for step in steps]
        return np.cumprod(np.column_stack(parts), axis=1)


@dataclass(frozen=True, eq=False, kw_only=True)
class Estimate:
    """The value of a policy: how often the outcome would be good.

    Args:
        value: The estimate; NaN where it is refused.
        lower: The lower end of its 90 % interval.
        upper: The upper end.
        effective: How many records near the policy's actions it rests on.
        records: On how many records the policy was judged.
        acted: For which share of them it acts.
        reached: The share of its actions within history's reach.
        shift: How far half or twice the kernel's width moves the estimate.
        refused: Why there is no estimate; empty where there is one.
        psi: What each record says, NaN for the records it was not judged on.
    """

    value: float
    lower: float
    upper: float
    effective: float
    records: int
    acted: float
    reached: float
    shift: float
    refused: str
    psi: Float[Array, " n"]


@dataclass(frozen=True)
class Difference:
    """How much better one policy is than another, record by record."""

    value: float
    lower: float
    upper: float


def estimate(
    scores: Scores, steps: Sequence[Step], acted: Bool[Array, " q"], good: Array
) -> Estimate:
    """Estimate the value of acting where ``acted``, and leaving things alone elsewhere.

    Args:
        scores: What the policy does, judged.
        steps: Which actions are set when.
        acted: For which of the scored records it acts.
        good: Which of all records came out well.
    """
    hit, n = good[scores.rows].astype(float), int(acted.sum())
    psi = np.full(len(good), np.nan)
    if not n:
        psi[scores.rows] = hit
        few = "" if len(hit) >= FEWEST else UNJUDGED
        return _told(psi, float(len(hit)), 0.0, 1.0, 0.0, few)
    drawn = [
        _scored(scores, scores.weights(steps, n, factor), acted, hit)
        for factor in (1.0, 0.5, 2.0)
    ]
    psi[scores.rows] = drawn[0]
    effective = effective_size(scores.weights(steps, n)[acted])
    reached = float(scores.near[acted].mean())
    shift = max(abs(float(d.mean() - drawn[0].mean())) for d in drawn[1:])
    refused = ""
    if not effective >= FEWEST:
        refused = TOO_FEW
    elif reached < REACHED:
        refused = f"history reaches only {reached:.0%} of these actions"
    return _told(psi, effective, float(acted.mean()), reached, shift, refused)


def _scored(
    scores: Scores, W: Float[Array, "q k"], acted: Bool[Array, " q"], hit: Array
) -> Float[Array, " q"]:
    """What each record says, with weights that average to one where it acts."""
    told = scores.under[:, 0].copy()
    # What a step was expected to lead to, against what the next step makes of it.
    reached = np.column_stack([scores.under[:, 1:], hit])
    for k in range(W.shape[1]):
        missed = reached[:, k] - scores.taken[:, k]
        told[acted] += corrections(W[acted, k], missed[acted])
    return np.where(acted, told, hit)


def corrections(
    w: Float[Array, " q"], missed: Float[Array, " q"]
) -> Float[Array, " q"]:
    """Self-normalised corrections, whose spread is that of their weighted mean."""
    total = w.sum()
    if not total > 0.0:
        return np.zeros(len(w))
    centre = float(w @ missed) / total
    return centre + len(w) * w / total * (missed - centre)


def effective_size(W: Float[Array, "q k"]) -> float:
    """How many equal weights would say as much, in the step that has the fewest."""
    squares = (W**2).sum(axis=0)
    sizes = W.sum(axis=0) ** 2 / np.where(squares > 0.0, squares, np.inf)
    return float(sizes.min())


def _told(
    psi: Float[Array, " n"],
    effective: float,
    acted: float,
    reached: float,
    shift: float,
    refused: str,
) -> Estimate:
    found = psi[~np.isnan(psi)]
    told = mean_of(found)
    nan = Difference(np.nan, np.nan, np.nan)
    told = nan if refused else told
    low, value, high = np.clip([told.lower, told.value, told.upper], 0.0, 1.0).tolist()
    return Estimate(
        value=value,
        lower=low,
        upper=high,
        effective=effective,
        records=len(found),
        acted=acted,
        reached=reached,
        shift=np.nan if refused else shift,
        refused=refused,
        psi=psi,
    )


def mean_of(psi: Float[Array, " q"]) -> Difference:
    """The mean with its 90 % interval, by the spread of what is averaged."""
    if len(psi) < 2:
        return Difference(np.nan, np.nan, np.nan)
    value = float(psi.mean())
    half = TWO_SIDED * float(psi.std(ddof=1)) / len(psi) ** 0.5
    return Difference(value, value - half, value + half)


def refusal(why: str, n: int) -> Estimate:
    """No estimate, and why."""
    return _told(np.full(n, np.nan), np.nan, np.nan, np.nan, np.nan, why)


def difference(one: Float[Array, " n"], other: Float[Array, " n"]) -> Difference:
    """Compare what two policies score on the records that both were judged on."""
    d = one - other
    return mean_of(d[~np.isnan(d)])
