r"""The task ``lin-syn1``: two actions along a linear chain.

.. math::

    X_1 &:= N(0, 0.1) \qquad X_2 := N(0, 0.1) \\
    U_2 &:= 10 X_2 + N(0, 0.1) \\
    A_1 &:= 10 X_1 + N(0, 0.1) \\
    U_1 &:= 0.5 A_1 + 1.3 U_2 + N(0, 0.1) \\
    A_2 &:= 2 A_1 + 0.4 U_2 + N(0, 0.1) \\
    Y_1 &:= - A_1 + 0.9 A_2 + N(0, 0.1) \\
    Y_2 &:= 1.6 A_1 - 0.9 A_2 + N(0, 0.1)

Actions :math:`A_1, A_2 \in [-3, 3]`; desired :math:`0 \le Y_1, Y_2 \le 2`.

What the paper leaves open: 0.1 in :math:`N(0, 0.1)` is read as the **variance**. The
variables come in the order in which the equations are printed, so :math:`U_1` lies
between the two actions; it influences nothing, which the graph says and the order
cannot.

Measured over the distribution of contexts: no action .089, oracle .953 (the same in
every context, because both actions are set), supported oracle .28. In a third of the
contexts the natural actions lie so far outside the box that no action is supported.
"""

from __future__ import annotations

from math import sqrt

from forestall.problem import Problem
from forestall.tasks.scm import Node, StructuralModel, normal
from forestall.tasks.task import Task

NOISE = normal(sd=sqrt(0.1))

MODEL = StructuralModel(
    (
        Node("X1", NOISE),
        Node("X2", NOISE),
        Node("U2", NOISE, ("X2",), lambda x2, e: 10.0 * x2 + e),
        Node("A1", NOISE, ("X1",), lambda x1, e: 10.0 * x1 + e),
        Node("U1", NOISE, ("A1", "U2"), lambda a1, u2, e: 0.5 * a1 + 1.3 * u2 + e),
        Node("A2", NOISE, ("A1", "U2"), lambda a1, u2, e: 2.0 * a1 + 0.4 * u2 + e),
        Node("Y1", NOISE, ("A1", "A2"), lambda a1, a2, e: -a1 + 0.9 * a2 + e),
        Node("Y2", NOISE, ("A1", "A2"), lambda a1, a2, e: 1.6 * a1 - 0.9 * a2 + e),
    )
)

TASK = Task(
    name="lin-syn1",
    model=MODEL,
    problem=Problem(
        context=["X1", "X2"],
        covariates=["U1", "U2"],
        actions={"A1": (-3.0, 3.0), "A2": (-3.0, 3.0)},
        outcomes=["Y1", "Y2"],
        desired=["0 <= Y1 <= 2", "0 <= Y2 <= 2"],
        order=[["X1", "X2"], "U2", "A1", "U1", "A2", ["Y1", "Y2"]],
    ),
)
