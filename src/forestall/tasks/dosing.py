r"""The task ``dosing``: a good dose that history shows, and one that a fit invents.

.. math::

    X &:= U(-2, 2) \quad\text{severity} \\
    U &:= N(0, 1) \quad\text{frailty} \\
    A &:= 0.8 X + 0.2 U + N(0, 0.3) \quad\text{dose} \\
    Y &:= 1.8 X + 0.6 \sin(2 X) + 0.5 U - 1.5 A - 0.6 \sin(2 A) + N(0, 0.2)
        \quad\text{marker}

Action :math:`A \in [-3, 3]`; desired :math:`-0.5 \le Y \le 0.5`. All are in standard
units: 0 is the usual severity, dose and marker. s in :math:`N(0, s)` is the standard
deviation.

Not from the paper: a trap. The indication confounds, because the sicker get more. They
do not get enough: the best dose lies at most 3.0 conditional standard deviations of the
dose (0.36) beyond the usual one, where records still speak. Nobody severely ill was
ever given little. Out there a kernel fit of the marker returns to the mean of its
records, the middle of the window, and forgets what frailty does: it promises more than
at the right dose. In truth the marker is several windows away. Kernel ridge regression
with widths by marginal likelihood, maximised over the box, chooses a dose more than
four conditional standard deviations from the usual one in half of the contexts or more,
promises .72 to .80 and has .10 to .33: a lift share of -1.1 to -.2 (600 records, 16
contexts, two seeds). A fit that continues its trend and counts its own ignorance has
.88 to .97.

Measured over the distribution of contexts: no action .399, oracle .647 (the same in
every context, because frailty is not seen), supported oracle .647.
"""

from __future__ import annotations

import numpy as np

from forestall.arrays import Array
from forestall.problem import Problem
from forestall.tasks.scm import Node, StructuralModel, linear, normal, uniform
from forestall.tasks.task import Task


def marker(x: Array, u: Array, a: Array, e: Array) -> Array:
    """The mechanism of the outcome."""
    need = 1.8 * x + 0.6 * np.sin(2.0 * x)
    return need - (1.5 * a + 0.6 * np.sin(2.0 * a)) + 0.5 * u + e


MODEL = StructuralModel(
    (
        Node("severity", uniform(-2.0, 2.0)),
        Node("frailty", normal(sd=1.0)),
        linear("dose", normal(sd=0.3), {"severity": 0.8, "frailty": 0.2}),
        Node("marker", normal(sd=0.2), ("severity", "frailty", "dose"), marker),
    )
)

TASK = Task(
    name="dosing",
    model=MODEL,
    problem=Problem(
        context=["severity"],
        covariates=["frailty"],
        actions={"dose": (-3.0, 3.0)},
        outcomes=["marker"],
        desired=["-0.5 <= marker <= 0.5"],
        order=["severity", "frailty", "dose", "marker"],
    ),
)
