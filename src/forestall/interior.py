r"""Whether a set of linear constraints leaves room, and which of them contradict.

A constraint is a row of coefficients and, last, its bound: :math:`m^\top y \le b`.
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Float
from scipy.optimize import linprog

from forestall.arrays import Array

# A region thinner than this, relative to the numbers that bound it, has no interior.
_THIN = 1e-9


def has_interior(rows: Float[Array, "l c"]) -> bool:
    """Whether a ball fits in; exact when each row bounds a single outcome."""
    M, b = rows[:, :-1], rows[:, -1]
    alone = np.count_nonzero(M, axis=1, keepdims=True) == 1
    upper = np.where(alone & (M > 0), b[:, None], np.inf).min(axis=0)
    lower = np.where(alone & (M < 0), -b[:, None], -np.inf).max(axis=0)
    if alone.all() or (lower >= upper).any():
        return not (lower >= upper).any()
    centre = _middle(np.stack([lower, upper]))
    return _radius(_equilibrated(np.column_stack([M, b - M @ centre]))) > _THIN


def _middle(ends: Float[Array, "2 d"]) -> Float[Array, " d"]:
    finite = np.isfinite(ends)
    return np.where(finite, ends, 0.0).sum(axis=0) / np.maximum(finite.sum(axis=0), 1)


def _equilibrated(rows: Float[Array, "l c"]) -> Float[Array, "l c"]:
    """Bring rows and columns to size one: no unit of measurement decides."""
    for axis in (0, 1) * 10:
        size = np.abs(rows).max(axis=axis, keepdims=True)
        rows = rows / np.sqrt(np.where(size > 0, size, 1.0))
    return rows


def _radius(rows: Float[Array, "l c"]) -> float:
    r"""Solve :math:`\max r \le 1` subject to :math:`m_k^\top y + r \le b_k`."""
    d = rows.shape[1] - 1
    solution = linprog(
        np.append(np.zeros(d), -1.0),
        A_ub=np.column_stack([rows[:, :-1], np.ones(len(rows))]),
        b_ub=rows[:, -1],
        bounds=[(None, None)] * d + [(None, 1.0)],
        options={
            "primal_feasibility_tolerance": _THIN / 10,
            "dual_feasibility_tolerance": _THIN / 10,
        },
    )
    # A solver that gives up has shown no contradiction.
    return float(solution.x[-1]) if solution.status == 0 else 1.0


def contradiction(rows: Float[Array, "l c"]) -> list[int]:
    """Drop rows as long as the rest contradicts itself: what stays is minimal."""
    kept = list(range(len(rows)))
    for k in reversed(range(len(rows))):
        rest = [i for i in kept if i != k]
        if not has_interior(rows[rest]):
            kept = rest
    return kept
