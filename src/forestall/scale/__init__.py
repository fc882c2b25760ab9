"""More rows than fit in memory: streams of records in, streams of decisions out.

Everything is loaded when it is first asked for: tables in memory need none of it.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from forestall.scale.census import Census
    from forestall.scale.cluster import Clustered, Spread, on
    from forestall.scale.decide import Written, recommend_stream
    from forestall.scale.reservoir import Reservoir
    from forestall.scale.sink import Sink
    from forestall.scale.source import Batch, Source
    from forestall.scale.stream import Records, Survey, batches, survey
    from forestall.scale.streamed import Streamed
    from forestall.scale.supply import Held, Supply, supplied

__all__ = [
    "Source",
    "Batch",
    "Reservoir",
    "Census",
    "Survey",
    "survey",
    "Records",
    "batches",
    "Supply",
    "Held",
    "Streamed",
    "Clustered",
    "supplied",
    "Spread",
    "on",
    "Sink",
    "Written",
    "recommend_stream",
]

WHERE = {
    "Census": "census",
    "Clustered": "cluster",
    "Spread": "cluster",
    "on": "cluster",
    "Written": "decide",
    "recommend_stream": "decide",
    "Reservoir": "reservoir",
    "Sink": "sink",
    "Source": "source",
    "Batch": "source",
    "Survey": "stream",
    "survey": "stream",
    "Records": "stream",
    "batches": "stream",
    "Streamed": "streamed",
    "Supply": "supply",
    "Held": "supply",
    "supplied": "supply",
}


def __getattr__(name: str) -> Any:
    """Load the module that has a name."""
    if name in WHERE:
        module = importlib.import_module(f"forestall.scale.{WHERE[name]}")
        return getattr(module, name)
    raise AttributeError(f"module 'forestall.scale' has no attribute {name!r}")
