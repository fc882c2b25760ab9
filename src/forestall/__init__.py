"""forestall: which feasible action makes the desired outcome most likely?

A model predicts that something undesired is about to happen; forestall learns from
historical records which action, chosen now, makes the desired outcome most likely.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from forestall.ascent import Ascent
from forestall.conditional import ConditionalRehearsal
from forestall.decisions import Decision, Decisions
from forestall.errors import (
    DataError,
    ExtrapolationWarning,
    FitError,
    ForestallError,
    ForestallWarning,
    GraphError,
    MissingExtraError,
    PlanError,
    RegionError,
    SpecError,
    TaskError,
)
from forestall.graph import RehearsalGraph
from forestall.identify import Identification
from forestall.lowrank import Nystrom, RandomFourier
from forestall.method import Method, Policy
from forestall.nested import NestedRehearsal
from forestall.problem import Problem
from forestall.region import Polytope, ProbitDesirability
from forestall.search import Search
from forestall.staged import StagedRehearsal

if TYPE_CHECKING:
    from forestall.comparison import Comparison, compare

__version__ = "0.1.0"

__all__ = [
    "fit",
    "Problem",
    "Polytope",
    "ProbitDesirability",
    "RehearsalGraph",
    "Identification",
    "Method",
    "Policy",
    "StagedRehearsal",
    "NestedRehearsal",
    "ConditionalRehearsal",
    "Nystrom",
    "RandomFourier",
    "Search",
    "Ascent",
    "Decision",
    "Decisions",
    "Comparison",
    "compare",
    "baselines",
    "tasks",
    "ForestallError",
    "SpecError",
    "RegionError",
    "GraphError",
    "DataError",
    "FitError",
    "TaskError",
    "PlanError",
    "MissingExtraError",
    "ForestallWarning",
    "ExtrapolationWarning",
]


def fit(problem: Problem, history: Any) -> Policy:
    """Learn a policy from historical records with the best default method.

    Args:
        problem: The question.
        history: A pandas, polars or pyarrow table, a dict of arrays, the path of a
            CSV or Parquet file, or what is larger than memory: a folder of such files,
            a pyarrow dataset, a Dask DataFrame.
    """
    return StagedRehearsal().fit(problem, history)


def __getattr__(name: str) -> Any:
    """Load what not everybody needs when it is first asked for."""
    if name in ("baselines", "tasks", "scale", "data"):
        return importlib.import_module(f"forestall.{name}")
    if name in ("Comparison", "compare"):
        return getattr(importlib.import_module("forestall.comparison"), name)
    raise AttributeError(f"module 'forestall' has no attribute {name!r}")
