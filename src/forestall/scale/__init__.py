"""More rows than fit in memory: streams of records in, streams of decisions out."""

from forestall.scale.census import Census
from forestall.scale.cluster import Clustered, Spread, on
from forestall.scale.decide import Written, recommend_stream
from forestall.scale.reservoir import Reservoir
from forestall.scale.sink import Sink
from forestall.scale.source import Batch, Source
from forestall.scale.stream import Records, Survey, batches, survey
from forestall.scale.supply import Held, Streamed, Supply, supplied

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
