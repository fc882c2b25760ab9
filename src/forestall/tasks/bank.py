r"""The task ``bank``: an interest rate that must be repaid and must pay.

.. math::

    X_1 &:= U(0, 1) \quad\text{credit\_score} \\
    X_2 &:= U(0, 1) \quad\text{debt\_to\_income} \\
    U_1 &\sim \mathrm{Beta}(2, 2) \quad\text{industry\_stability} \\
    A_2 &:= U_1 + 0.5 X_1 + 0.5 X_2 - 0.5 + N(0, 0.2) \quad\text{interest\_rate} \\
    Y_1 &:= \mathrm{Sigmoid}(2 U_1^{1.1} - 1.5 A_2 + 0.2 X_2 + 0.4) + N(0, 0.05)
        \quad\text{repayment\_rate} \\
    Y_2 &:= 0.8 A_2 + 0.5 U_1 + N(0, 0.05) \quad\text{roi}

Action :math:`A_2 \in [0, 1]`; desired :math:`Y_1 \ge 0.6, Y_2 \ge 0.3`.

What the paper leaves open: s in :math:`N(0, s)` is read as the **standard deviation**.
The loan amount :math:`A_1` is left out, as in the paper's own implementation. The
historical rate is not clipped to [0, 1]: only alterations are confined to it.

Measured over the distribution of contexts: no action .561, oracle .851, supported
oracle .851.
"""

from __future__ import annotations

from scipy.special import expit as sigmoid

from forestall.problem import Problem
from forestall.tasks.scm import Node, StructuralModel, beta, normal, uniform
from forestall.tasks.task import Task

MODEL = StructuralModel(
    (
        Node("credit_score", uniform(0.0, 1.0)),
        Node("debt_to_income", uniform(0.0, 1.0)),
        Node("industry_stability", beta(2.0, 2.0)),
        Node(
            "interest_rate",
            normal(sd=0.2),
            ("credit_score", "debt_to_income", "industry_stability"),
            lambda x1, x2, u1, e: u1 + 0.5 * x1 + 0.5 * x2 - 0.5 + e,
        ),
        Node(
            "repayment_rate",
            normal(sd=0.05),
            ("debt_to_income", "industry_stability", "interest_rate"),
            lambda x2, u1, a2, e: (
                sigmoid(2.0 * u1**1.1 - 1.5 * a2 + 0.2 * x2 + 0.4) + e
            ),
        ),
        Node(
            "roi",
            normal(sd=0.05),
            ("industry_stability", "interest_rate"),
            lambda u1, a2, e: 0.8 * a2 + 0.5 * u1 + e,
        ),
    )
)

TASK = Task(
    name="bank",
    model=MODEL,
    problem=Problem(
        context=["credit_score", "debt_to_income"],
        covariates=["industry_stability"],
        actions={"interest_rate": (0.0, 1.0)},
        outcomes=["repayment_rate", "roi"],
        desired=["repayment_rate >= 0.6", "roi >= 0.3"],
        order=[
            ["credit_score", "debt_to_income"],
            "industry_stability",
            "interest_rate",
            ["repayment_rate", "roi"],
        ],
    ),
)
