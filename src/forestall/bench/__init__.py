"""Benchmarks: every method on every task, judged by the truth.

Example:
    >>> from forestall.bench import Plan
    >>> plan = Plan.from_dict({
    ...     "name": "tiny", "tasks": ["bank"], "seeds": 2, "n": 200,
    ...     "contexts": 4, "draws": 500,
    ...     "methods": {"none": {"method": "NoAction"}},
    ... })
    >>> plan.seeds
    (0, 1)
"""

from forestall.bench.plan import Plan
from forestall.bench.pool import Pooled, pool
from forestall.bench.results import Row, read_rows
from forestall.bench.run import run
from forestall.bench.summary import Summary, summarise
from forestall.bench.table import pooled_markdown, to_markdown, to_rich

__all__ = [
    "Plan",
    "run",
    "Row",
    "read_rows",
    "Summary",
    "summarise",
    "Pooled",
    "pool",
    "to_markdown",
    "pooled_markdown",
    "to_rich",
]
