r"""The task ``readmission``: what matters is a yes or a no, and so is what leads there.

.. math::

    X &:= U(-2, 2) \quad\text{severity} \\
    A &:= 0.5 X + N(0, 0.8) \quad\text{visits} \\
    M &:= [\, U(0, 1) < \sigma(0.5 + 1.2 A - 0.4 X) \,] \quad\text{medicated} \\
    Y &:= [\, U(0, 1) < \sigma(0.2 + 0.9 X - 1.6 M + 0.45 (A - 1)^2) \,]
        \quad\text{readmitted}

Action :math:`A \in [-2, 3]`; desired :math:`Y = 0`. Severity and visits are in standard
units, :math:`\sigma` is the logistic function, and s in :math:`N(0, s)` is the standard
deviation.

Not from the paper. Visits make it likelier that medicine is taken, which helps, and too
many of them harm. A record says yes or no, twice; what is wanted is how often.
"""

from __future__ import annotations

import numpy as np
from scipy.special import expit

from forestall.arrays import Array
from forestall.problem import Problem
from forestall.tasks.scm import Node, StructuralModel, linear, normal, uniform
from forestall.tasks.task import Task


def medicated(x: Array, a: Array, u: Array) -> Array:
    """The mechanism of the covariate."""
    return np.asarray(u < expit(0.5 + 1.2 * a - 0.4 * x), dtype=float)


def readmitted(x: Array, a: Array, m: Array, u: Array) -> Array:
    """The mechanism of the outcome."""
    odds = 0.2 + 0.9 * x - 1.6 * m + 0.45 * (a - 1.0) ** 2
    return np.asarray(u < expit(odds), dtype=float)


MODEL = StructuralModel(
    (
        Node("severity", uniform(-2.0, 2.0)),
        linear("visits", normal(sd=0.8), {"severity": 0.5}),
        Node("medicated", uniform(0.0, 1.0), ("severity", "visits"), medicated),
        Node(
            "readmitted",
            uniform(0.0, 1.0),
            ("severity", "visits", "medicated"),
            readmitted,
        ),
    )
)

TASK = Task(
    name="readmission",
    model=MODEL,
    problem=Problem(
        context=["severity"],
        covariates=["medicated"],
        actions={"visits": (-2.0, 3.0)},
        outcomes=["readmitted"],
        desired=["readmitted <= 0"],
        order=["severity", "visits", "medicated", "readmitted"],
    ),
)
