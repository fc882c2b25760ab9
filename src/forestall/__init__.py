"""forestall: which feasible action makes the desired outcome most likely?

A model predicts that something undesired is about to happen; forestall learns from
historical records which action, chosen now, makes the desired outcome most likely.

Names are loaded when they are first asked for, so that the import itself costs nothing.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from forestall.ascent import Ascent
    from forestall.comparison import Comparison, compare
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
        StoreError,
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
    from forestall.store import load

__version__ = "0.1.0"

__all__ = [
    "fit",
    "load",
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
    "store",
    "ForestallError",
    "SpecError",
    "RegionError",
    "GraphError",
    "DataError",
    "FitError",
    "TaskError",
    "PlanError",
    "StoreError",
    "MissingExtraError",
    "ForestallWarning",
    "ExtrapolationWarning",
]

WHERE = {
    "load": "store",
    "Problem": "problem",
    "Polytope": "region",
    "ProbitDesirability": "region",
    "RehearsalGraph": "graph",
    "Identification": "identify",
    "Method": "method",
    "Policy": "method",
    "StagedRehearsal": "staged",
    "NestedRehearsal": "nested",
    "ConditionalRehearsal": "conditional",
    "Nystrom": "lowrank",
    "RandomFourier": "lowrank",
    "Search": "search",
    "Ascent": "ascent",
    "Decision": "decisions",
    "Decisions": "decisions",
    "Comparison": "comparison",
    "compare": "comparison",
    "ForestallError": "errors",
    "SpecError": "errors",
    "RegionError": "errors",
    "GraphError": "errors",
    "DataError": "errors",
    "FitError": "errors",
    "TaskError": "errors",
    "PlanError": "errors",
    "StoreError": "errors",
    "MissingExtraError": "errors",
    "ForestallWarning": "errors",
    "ExtrapolationWarning": "errors",
}
MODULES = ("baselines", "tasks", "store", "scale", "data")


def fit(problem: Problem, history: Any, *, jobs: int = 1) -> Policy:
    """Learn a policy from historical records with the best default method.

    Args:
        problem: The question.
        history: A pandas, polars or pyarrow table, a dict of arrays, the path of a
            CSV or Parquet file, or what is larger than memory: a folder of such files,
            a pyarrow dataset, a Dask DataFrame.
        jobs: How many processes share the work; the policy is the same. Worth it from
            some seconds on.
    """
    from forestall.staged import StagedRehearsal

    return StagedRehearsal().fit(problem, history, jobs=jobs)


def __getattr__(name: str) -> Any:
    """Load the module that has a name."""
    if name in MODULES:
        return importlib.import_module(f"forestall.{name}")
    if name not in WHERE:
        raise AttributeError(f"module 'forestall' has no attribute {name!r}")
    value = getattr(importlib.import_module(f"forestall.{WHERE[name]}"), name)
    # Python asks only for what it does not find.
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    """List every public name, loaded or not."""
    return sorted({*globals(), *__all__, *MODULES})
