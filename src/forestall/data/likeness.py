"""How like the data generated records are: correlations, and a judge to tell them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from jaxtyping import Float
from threadpoolctl import threadpool_limits

from forestall.arrays import Array

Columns = Mapping[str, Array]


def correlations(table: Columns, names: Sequence[str]) -> Float[Array, "d d"]:
    """Pearson correlations of columns, categories as their codes."""
    return np.corrcoef(np.stack([table[name] for name in names]))


def correlation_mae(real: Columns, generated: Columns) -> float:
    """The mean absolute difference of the correlations of all pairs of columns."""
    apart = correlations(generated, list(real)) - correlations(real, list(real))
    return float(np.abs(apart[np.triu_indices(len(apart), k=1)]).mean())


def told_apart(real: Columns, generated: Columns, rng: np.random.Generator) -> float:
    """How well boosted trees tell real from generated records they have not seen.

    Half of the records teach the judge and half test it. What is returned is the area
    under its curve: .5 when it can only guess, 1 when it is never wrong. Generated
    values are first moved to the nearest real one, because measurements are rounded
    and a judge who sees that need not look at anything else.
    """
    from sklearn.ensemble import HistGradientBoostingClassifier
    from sklearn.metrics import roc_auc_score

    seen = {name: nearest_of(real[name], generated[name]) for name in real}
    z = np.concatenate([_rows(real), _rows(seen)])
    is_real = np.repeat([1, 0], [len(z) - _n(generated), _n(generated)])
    taught = rng.permutation(len(z)) < len(z) // 2
    # Two threads that wait for each other make a short job a long one.
    with threadpool_limits(1):
        judge = HistGradientBoostingClassifier(early_stopping=False, random_state=0)
        judge.fit(z[taught], is_real[taught])
        chance = judge.predict_proba(z[~taught])[:, 1]
    return float(roc_auc_score(is_real[~taught], chance))


def shuffled(real: Columns, rng: np.random.Generator) -> dict[str, Array]:
    """Each column in an order of its own: right alone, wrong together."""
    return {name: rng.permutation(values) for name, values in real.items()}


def nearest_of(real: Array, values: Array) -> Array:
    """Move each value to the nearest real one."""
    known = np.unique(real)
    between = (known[:-1] + known[1:]) / 2
    return known[np.searchsorted(between, values)]


def _rows(table: Columns) -> Float[Array, "n d"]:
    return np.column_stack(list(table.values()))


def _n(table: Columns) -> int:
    return len(next(iter(table.values())))
