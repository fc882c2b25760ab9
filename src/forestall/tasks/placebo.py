r"""The task ``placebo``: an action that does nothing and looks as if it did.

.. math::

    X &:= U(-1, 1) \quad\text{age} \\
    U &:= N(0, 1) \quad\text{vigour} \\
    A &:= 0.5 X + 0.8 U + N(0, 0.4) \quad\text{visits} \\
    Y &:= 0.6 X + 0.8 U + N(0, 0.5) \quad\text{recovery}

Action :math:`A \in [-2, 2]`; desired :math:`Y \ge 0.5`. All are in standard units. s in
:math:`N(0, s)` is the standard deviation.

Not from the paper: a test of honesty. The vigorous come more often and recover more
often, so that among people of one age visits and recovery correlate at .76; the visits
influence nothing. Given vigour, the records say so. A method should leave things as
they are, or at least claim no improvement.

Measured over the distribution of contexts: no action .311; every action, and so either
oracle, has the same.
"""

from __future__ import annotations

from forestall.problem import Problem
from forestall.tasks.scm import Node, StructuralModel, linear, normal, uniform
from forestall.tasks.task import Task

MODEL = StructuralModel(
    (
        Node("age", uniform(-1.0, 1.0)),
        Node("vigour", normal(sd=1.0)),
        linear("visits", normal(sd=0.4), {"age": 0.5, "vigour": 0.8}),
        linear("recovery", normal(sd=0.5), {"age": 0.6, "vigour": 0.8}),
    )
)

TASK = Task(
    name="placebo",
    model=MODEL,
    problem=Problem(
        context=["age"],
        covariates=["vigour"],
        actions={"visits": (-2.0, 2.0)},
        outcomes=["recovery"],
        desired=["recovery >= 0.5"],
        order=["age", "vigour", "visits", "recovery"],
    ),
)
