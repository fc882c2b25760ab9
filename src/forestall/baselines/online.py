"""Rounds of deciding and learning: which feasible action would teach the most?"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float, Int

from forestall.arrays import Array
from forestall.baselines.bayes import Belief
from forestall.baselines.cuts import Cuts
from forestall.baselines.linear_gaussian import LinearGaussian
from forestall.errors import DataError
from forestall.history import checked_cells, complete_rows
from forestall.observations import Schema
from forestall.problem import Problem
from forestall.table import Table

# Rays from the best action to the sides of the box, and places on each.
RAYS = 128
PLACES = 16


@dataclass(frozen=True, eq=False)
class Inquiry:
    r"""What a record of one context would teach, whatever the action.

    .. math:: \sum_e \tfrac12 \log\bigl(1 + E[s_e(\varphi_e)]\bigr)

    over the equations that are not cut, :math:`s_e` the uncertainty of the mean at the
    inputs :math:`\varphi_e`; by Jensen's inequality no less than the information gain,
    and close to it where one record teaches little.

    Args:
        beliefs: What is believed of the equations that are not cut.
        inputs: The columns of the state that each looks at.
        base: The mean of the state in this context, at the usual action.
        by_action: How the state follows the action.
        covariance: The covariance of the state.
    """

    beliefs: tuple[Belief, ...]
    inputs: tuple[Int[Array, " _"], ...]
    base: Float[Array, " w"]
    by_action: Float[Array, "w d_a"]
    covariance: Float[Array, "w w"]

    @classmethod
    def of(
        cls,
        model: LinearGaussian,
        beliefs: tuple[Belief, ...],
        x: Float[Array, " d_x"],
    ) -> Inquiry:
        """Rehearse every variable of one context."""
        law = model.law(np.arange(model.state.shape[1]), altered=True)
        pairs = zip(model.equations, beliefs, strict=True)
        kept = [(e, belief) for e, belief in pairs if e.action is None]
        return cls(
            tuple(belief for _, belief in kept),
            tuple(equation.inputs for equation, _ in kept),
            law.base(x[None])[0],
            law.by_action,
            law.covariance,
        )

    def information(self, a: Float[Array, "m d_a"]) -> Float[Array, " m"]:
        """What a record with each action would teach, in nats."""
        state = self.base + a @ self.by_action.T
        total = np.zeros(len(a))
        for belief, inputs in zip(self.beliefs, self.inputs, strict=True):
            noise = belief.covariance @ self.covariance[np.ix_(inputs, inputs)]
            spread = np.trace(noise) / belief.sd**2
            total += 0.5 * np.log1p(belief.surprise(state[:, inputs]) + spread)
        return total

    def most_informative(
        self, cuts: Cuts, best: Float[Array, " d_a"], threshold: float
    ) -> Float[Array, " d_a"]:
        """Look along rays from the best action for one that still succeeds.

        Args:
            cuts: Where each draw succeeds.
            best: The action that succeeds most often.
            threshold: The share of draws that must succeed.
        """
        a = _rays(cuts, best)
        a = a[cuts.counts(a) >= threshold * len(cuts.room)]
        a = np.concatenate([best[None], a])
        return a[int(self.information(a).argmax())]


def _rays(cuts: Cuts, start: Float[Array, " d_a"]) -> Float[Array, "m d_a"]:
    # Not drawn anew for each context: each is answered as if it were alone.
    rng = np.random.default_rng(0)
    d = len(start)
    ends = rng.random((RAYS, d))
    side = rng.integers(d, size=RAYS)
    ends[np.arange(RAYS), side] = np.arange(RAYS) % 2
    ends = cuts.lower + (cuts.upper - cuts.lower) * ends
    steps = np.arange(1, PLACES + 1) / PLACES
    return (start + steps[:, None, None] * (ends - start)).reshape(-1, d)


def encoded(problem: Problem, schema: Schema, records: Any) -> Float[Array, "m w"]:
    """Encode new records as the history was."""
    table = Table.read(records)
    cells = checked_cells(problem, table)
    keep = complete_rows(problem, cells, table.n)
    cells = {name: each.keep(keep) for name, each in cells.items()}
    n = int(keep.sum())
    blocks = (schema.context, schema.covariates, schema.actions, schema.outcomes)
    for block in blocks:
        fault = next((text for text in block.faults(cells, n) if text), None)
        if fault is not None:
            raise DataError(f"Expected records like those of the history; got: {fault}")
    return np.concatenate([block.encode(cells, n) for block in blocks], axis=1)
