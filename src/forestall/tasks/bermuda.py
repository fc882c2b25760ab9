"""The task ``bermuda``: calcification of a coral reef, refitted from measurements.

Eleven variables measured at Bermuda (Courtney et al. 2017), each standardised with its
own mean and standard deviation (ddof 0): Light, Temp, Sal are the context; DIC, TA,
Omega, Chla, Nut are actions in [-1, 1]; pHsw, CO2 are covariates; the outcome NEC (net
ecosystem calcification) is desired between 0.5 and 2.

The paper takes the graph from the literature and fits linear models, but prints no
coefficient. Those below are least squares on the published measurements (95 rows; NEC
on its 46), given the parents of the published graph.

What the paper leaves open: every node's noise has standard deviation 0.21; the
intercept of NEC, which differs from zero because NEC was measured in fewer rows than
its parents, is kept; the roots, Light and Nut, are uniform over the range of their
standardised measurements. The historical values of the actions are not clipped to
[-1, 1]: only alterations are confined to it.

Measured over the distribution of contexts: no action .149, oracle .707 (the most that
the noise allows: the region's centre can be reached), supported oracle .707.
"""

from __future__ import annotations

from forestall.problem import Problem
from forestall.tasks.scm import Node, StructuralModel, linear, normal, uniform
from forestall.tasks.task import Task

NOISE = normal(sd=0.21)

WEIGHTS = {
    "Temp": {"Light": 0.08337},
    "Sal": {"Temp": -0.48098},
    "DIC": {"Sal": 0.47772},
    "TA": {"Sal": 0.54577},
    "Omega": {"Sal": 0.03507, "DIC": -1.10567, "Temp": 0.51823, "TA": 1.61042},
    "pHsw": {"Sal": 0.01300, "DIC": -0.58796, "Temp": -0.74828, "TA": 0.76763},
    "CO2": {"Sal": 0.04052, "TA": -0.59625, "DIC": 0.57005, "Temp": 0.86133},
    "Chla": {"Nut": -0.07690, "Light": -0.15107, "Temp": -0.04452},
    "NEC": {
        "Nut": 0.09882,
        "Light": 0.03225,
        "pHsw": 2.04926,
        "Omega": -2.34363,
        "Chla": 0.13183,
        "CO2": -2.51464,
        "Temp": 5.22766,
    },
}
INTERCEPT = {"NEC": -0.54022}

MODEL = StructuralModel(
    (
        Node("Light", uniform(-1.472, 3.314)),
        linear("Temp", NOISE, WEIGHTS["Temp"]),
        linear("Sal", NOISE, WEIGHTS["Sal"]),
        Node("Nut", uniform(-1.519, 2.710)),
        *(
            linear(name, NOISE, WEIGHTS[name], INTERCEPT.get(name, 0.0))
            for name in ("DIC", "TA", "Omega", "pHsw", "CO2", "Chla", "NEC")
        ),
    )
)

TASK = Task(
    name="bermuda",
    model=MODEL,
    problem=Problem(
        context=["Light", "Temp", "Sal"],
        covariates=["pHsw", "CO2"],
        actions=dict.fromkeys(("DIC", "TA", "Omega", "Chla", "Nut"), (-1.0, 1.0)),
        outcomes=["NEC"],
        desired=["0.5 <= NEC <= 2"],
        order=[
            "Light",
            "Temp",
            "Sal",
            ["Nut", "DIC", "TA"],
            ["Omega", "Chla", "pHsw", "CO2"],
            "NEC",
        ],
    ),
)
