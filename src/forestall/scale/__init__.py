"""More rows than fit in memory: streams of records in, streams of decisions out."""

from forestall.scale.census import Census
from forestall.scale.decide import Written, recommend_stream
from forestall.scale.reservoir import Reservoir
from forestall.scale.sink import Sink
from forestall.scale.source import Batch, Source
from forestall.scale.stream import Records, Survey, batches, survey

__all__ = [
    "Source",
    "Batch",
    "Reservoir",
    "Census",
    "Survey",
    "survey",
    "Records",
    "batches",
    "Sink",
    "Written",
    "recommend_stream",
]
