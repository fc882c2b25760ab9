r"""The task ``non-syn2``: a covariate between two actions.

.. math::

    X_1 &:= U(0, 1) \qquad X_2 := U(0, 1) \\
    A_1 &:= X_1 - X_2 + 0.2 X_1^2 - 0.2 X_2^2 + 0.1 X_1 X_2 + N(0, 0.1) \\
    U_1 &:= - X_1 + 2 X_2 + 3 A_1 - 0.2 X_1^2 + 0.4 X_2^2 + 0.6 A_1^2
        + 0.1 (X_1 X_2 + X_1 A_1 + X_2 A_1) + N(0, 0.1) \\
    U_2 &:= - X_1 + 4 U_1 - 0.2 X_1^2 + 0.8 U_1^2 + 0.1 X_1 U_1 + N(0, 0.1) \\
    A_2 &:= - X_1 - 0.5 X_2 + 0.3 U_1 - 0.2 X_1^2 - 0.1 X_2^2 + 0.06 U_1^2
        + 0.1 (X_1 X_2 + X_1 U_1 + X_2 U_1) + N(0, 0.1) \\
    Y_1 &:= 0.5 + \tfrac{1}{60} \bigl( 0.2 (X_1 + X_1^2) - 5 (U_1 + U_1^2)
        - (U_2 + U_2^2) + 5 (A_2 + A_2^2) \bigr)
        + 0.5 \textstyle\sum_{i<j} p_i p_j + N(0, 0.1)

Actions :math:`A_1, A_2 \in [-1, 1]`; desired :math:`0.9 \le Y_1 \le 1.5`.

What the paper leaves open: s in :math:`N(0, s)` is read as the **standard deviation**,
and :math:`p = \mathrm{Pa}(Y_1) = (X_1, U_1, U_2, A_2)`. The sum over their pairs stands
outside of the factor 1/60, as printed; inside of it the oracle would average .01.
:math:`U_1` comes after :math:`A_1`, before :math:`A_2`, and influences both
:math:`A_2` and :math:`Y_1`: no single adjustment set identifies :math:`do(A_1, A_2)`.

Measured over the distribution of contexts: no action .131, oracle .83, supported
oracle .67.
"""

from __future__ import annotations

from forestall.arrays import Array
from forestall.problem import Problem
from forestall.tasks.scm import Node, StructuralModel, normal, uniform
from forestall.tasks.task import Task

NOISE = normal(sd=0.1)


def first_action(x1: Array, x2: Array, e: Array) -> Array:
    """The natural mechanism of A1."""
    return x1 - x2 + 0.2 * x1**2 - 0.2 * x2**2 + 0.1 * x1 * x2 + e


def first_covariate(x1: Array, x2: Array, a1: Array, e: Array) -> Array:
    """The mechanism of U1."""
    squares = -0.2 * x1**2 + 0.4 * x2**2 + 0.6 * a1**2
    pairs = x1 * x2 + x1 * a1 + x2 * a1
    return -x1 + 2.0 * x2 + 3.0 * a1 + squares + 0.1 * pairs + e


def second_covariate(x1: Array, u1: Array, e: Array) -> Array:
    """The mechanism of U2."""
    return -x1 + 4.0 * u1 - 0.2 * x1**2 + 0.8 * u1**2 + 0.1 * x1 * u1 + e


def second_action(x1: Array, x2: Array, u1: Array, e: Array) -> Array:
    """The natural mechanism of A2."""
    squares = -0.2 * x1**2 - 0.1 * x2**2 + 0.06 * u1**2
    pairs = x1 * x2 + x1 * u1 + x2 * u1
    return -x1 - 0.5 * x2 + 0.3 * u1 + squares + 0.1 * pairs + e


def outcome(x1: Array, u1: Array, u2: Array, a2: Array, e: Array) -> Array:
    """The mechanism of Y1."""
    own = 0.2 * (x1 + x1**2) + 5.0 * (a2 + a2**2) - 5.0 * (u1 + u1**2) - (u2 + u2**2)
    pairs = x1 * (u1 + u2 + a2) + u1 * (u2 + a2) + u2 * a2
    return 0.5 + own / 60.0 + 0.5 * pairs + e


MODEL = StructuralModel(
    (
        Node("X1", uniform(0.0, 1.0)),
        Node("X2", uniform(0.0, 1.0)),
        Node("A1", NOISE, ("X1", "X2"), first_action),
        Node("U1", NOISE, ("X1", "X2", "A1"), first_covariate),
        Node("U2", NOISE, ("X1", "U1"), second_covariate),
        Node("A2", NOISE, ("X1", "X2", "U1"), second_action),
        Node("Y1", NOISE, ("X1", "U1", "U2", "A2"), outcome),
    )
)

TASK = Task(
    name="non-syn2",
    model=MODEL,
    problem=Problem(
        context=["X1", "X2"],
        covariates=["U1", "U2"],
        actions={"A1": (-1.0, 1.0), "A2": (-1.0, 1.0)},
        outcomes=["Y1"],
        desired=["0.9 <= Y1 <= 1.5"],
        order=[["X1", "X2"], "A1", "U1", "U2", "A2", "Y1"],
    ),
)
