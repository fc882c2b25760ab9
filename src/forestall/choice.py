"""What the records chose, and why, in a form to be read."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float

from forestall.arrays import Array
from forestall.leaving import DECIMALS
from forestall.tuning import Tuned


@dataclass(frozen=True)
class Sharpness:
    r"""The chosen :math:`\eta`, and how well each candidate tells good from bad.

    Args:
        value: The :math:`\eta` with the lowest score.
        scores: For each candidate, the Brier score of predicting the indicator of a
            good outcome from the smoothed fit, each record left out.
    """

    value: float
    scores: dict[float, float]

    @classmethod
    def of(
        cls,
        etas: tuple[float, ...],
        predictions: Float[Array, "n k"],
        good: Bool[Array, " n"],
    ) -> Sharpness:
        r"""Score the leave-one-out predictions of :math:`w_\eta`, a column each."""
        scores = [recalibrated_brier(column, good) for column in predictions.T]
        told = np.round(scores, DECIMALS)
        return cls(etas[int(told.argmin())], dict(zip(etas, scores, strict=True)))

    def __str__(self) -> str:
        """List the candidates."""
        if len(self.scores) == 1:
            return f"sharpness {self.value:g}, as given"
        each = ", ".join(
            f"{score:.4g} at {eta:g}" for eta, score in self.scores.items()
        )
        return f"sharpness {self.value:g}: Brier score {each}"


def recalibrated_brier(p: Float[Array, " n"], good: Bool[Array, " n"]) -> float:
    """Give the Brier score of the best rising affine map of ``p``.

    Smoothing shrinks a probability towards one half, and neither the height nor the
    scale of what is climbed matters to where its top is; so both are forgiven.
    """
    q, hard = p - p.mean(), good - good.mean()
    covariance, variance = float(np.mean(q * hard)), float(np.mean(q**2))
    explained = covariance**2 / variance if covariance > 0.0 else 0.0
    return float(np.mean(hard**2)) - explained


@dataclass(frozen=True, eq=False)
class Choice:
    r"""What was chosen from the records, and why.

    Args:
        outcome: Stage 1: the desirability given contexts, covariates and actions.
        embedding: Stage 2: the covariates given contexts; ``None`` without any.
        natural: The indicator of a good outcome given contexts: no action.
        n: The number of records.
        n_used: How many of them the choice is made on.
        sharpness: The choice of :math:`\eta`, made last.
    """

    outcome: Tuned
    embedding: Tuned | None
    natural: Tuned
    n: int
    n_used: int
    sharpness: Sharpness | None = None

    def __str__(self) -> str:
        """Tell all of it, a line for each variable."""
        parts = {
            "Outcome (stage 1)": self.outcome,
            "Covariates (stage 2)": self.embedding,
            "No action": self.natural,
        }
        return "\n".join(
            [
                f"Chosen by leave-one-out error on {self.n_used} of {self.n} records",
                *(self._part(title, part) for title, part in parts.items() if part),
                f"{self.sharpness}",
            ]
        )

    def _part(self, title: str, part: Tuned) -> str:
        return f"{title}: penalty {part.penalty(self.n):.2g}, {part}"
