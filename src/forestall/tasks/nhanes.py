"""The task ``nhanes``: blood sugar of American adults, generated from a survey.

Not written down but fitted, when it is asked for, to the 7,465 participants of NHANES
2011-2018 that :mod:`forestall.data.nhanes` selects: the typed structural generator of
:mod:`forestall.tasks.typed` along the paper's influence relations. Context: Age, Sex,
Race, FamilyHx_Diabetes, Education, Income_Ratio (sex, race and family history are
categories, education is ordered). Actions: BMI, CalIntake, CarbIntake, FiberIntake and
Sedentary_min, any subset of them, between the 1 % and 99 % quantiles of the
participants. SBP, DBP, TotalCholesterol and HDL are covariates; desired is a normal
glycaemia, HbA1c < 5.7 (%) and FPG < 100 (mg/dL).

What the paper leaves open: its text names no influence among the contexts, so they are
independent roots, and none between the two outcomes, so they share their parents and
nothing else, although their measured correlation is .84. CarbIntake and DBP influence
nothing: the text names no child of theirs. Race is RIDRETH3. Generated values are not
rounded as measured ones are. Trees have eight leaves, 32 trees a mechanism; residuals
are those of records left out of the fit.

As the paper says of its own: survey weights, strata and sampling units are not
modelled; keeping complete cases may select; and the generator is fitted to
cross-sectional observations, so that what it says of an alteration is the truth of this
benchmark and no clinical finding.

Measured: over the distribution of contexts no action .297 (of the participants
themselves .362 lie in the desired region: the outcomes, drawn apart, agree less often);
in 16 contexts no action .269, oracle .475, supported oracle .476. The mean absolute
error of the correlations, ``forestall data check nhanes``, is .0467 (the paper's
generator: .0483). A judge tells generated from real records with an AUC of .888.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache

from forestall.arrays import Array
from forestall.data.nhanes import read_cohort
from forestall.graph import RehearsalGraph
from forestall.problem import Problem
from forestall.tasks.task import Task
from forestall.tasks.typed import TypedGenerator, from_data

CONTEXT = ("Age", "Sex", "Race", "FamilyHx_Diabetes", "Education", "Income_Ratio")
ACTIONS = ("BMI", "CalIntake", "CarbIntake", "FiberIntake", "Sedentary_min")
COVARIATES = ("SBP", "DBP", "TotalCholesterol", "HDL")
OUTCOMES = ("HbA1c", "FPG")

LIPIDS = ("TotalCholesterol", "HDL")
# Beside the contexts, which influence whatever is no context.
INFLUENCES: Mapping[str, tuple[str, ...]] = {
    "BMI": ("CalIntake", "CarbIntake", "FiberIntake", "SBP", "DBP", *LIPIDS, *OUTCOMES),
    "CalIntake": ("CarbIntake", "FiberIntake", *LIPIDS, *OUTCOMES),
    "FiberIntake": OUTCOMES,
    "Sedentary_min": OUTCOMES,
    "SBP": OUTCOMES,
    "TotalCholesterol": OUTCOMES,
    "HDL": OUTCOMES,
}
EDGES = (
    *((x, v) for x in CONTEXT for v in (*ACTIONS, *COVARIATES, *OUTCOMES)),
    *((u, v) for u, children in INFLUENCES.items() for v in children),
)
GENERATOR = TypedGenerator(discrete=("Education",))


def problem_on(columns: Mapping[str, Array]) -> Problem:
    """State the problem, with its graph, for participants."""
    return Problem(
        context=CONTEXT,
        covariates=COVARIATES,
        # From_data confines them further, to what all but a few participants have.
        actions={
            v: (float(columns[v].min()), float(columns[v].max())) for v in ACTIONS
        },
        outcomes=OUTCOMES,
        desired=["HbA1c < 5.7", "FPG < 100"],
        order=[
            list(CONTEXT),
            "BMI",
            "CalIntake",
            ["CarbIntake", "FiberIntake", "Sedentary_min"],
            ["SBP", "DBP", "TotalCholesterol", "HDL"],
            list(OUTCOMES),
        ],
        graph=RehearsalGraph(edges=EDGES),
        categorical=["Sex", "Race", "FamilyHx_Diabetes"],
    )


def task_on(columns: Mapping[str, Array]) -> Task:
    """Fit the task to participants."""
    problem = problem_on(columns)
    return from_data(problem, dict(columns), name="nhanes", generator=GENERATOR)


@cache
def load() -> Task:
    """Read the participants of the benchmark and fit the task, once."""
    cohort = read_cohort()
    cohort.require_the_benchmarks()
    return task_on(cohort.columns)
