"""A batch read: the driver resolves its bounds once and plans ranges, each read by a task."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Final, Protocol

from pyspark.sql.datasource import DataSourceReader, Filter, InputPartition
from pyspark.sql.types import StructType

from braidlog import TopicPartition
from braidlog.core.errors import UserError
from pyspark_braidlog.source.filters import NOTHING_PUSHED, Narrowing, pushed
from pyspark_braidlog.source.offset_range import OffsetRange, RangePartition, split
from pyspark_braidlog.source.offset_range_limit import AtOffsets, Committed
from pyspark_braidlog.source.offset_reader import OffsetReader
from pyspark_braidlog.source.offset_resolution import OffsetLookup, ending_offsets, starting_offsets
from pyspark_braidlog.source.options import ReadOptions
from pyspark_braidlog.source.schema import check_schema
from pyspark_braidlog.source.topics import ConsumerStrategy, TopicFacts, topic_partitions
from pyspark_braidlog.worker_process import SentToWorkers

if TYPE_CHECKING:
    from pyarrow import RecordBatch

log = logging.getLogger("pyspark_braidlog")

# Spark wants at least one task.
_NOTHING: Final = OffsetRange("", 0, 0, 0)
_OF_STREAMS: Final = ("maxOffsetsPerTrigger", "maxBytesPerTrigger", "minOffsetsPerTrigger", "maxTriggerDelay")


class PlanningView(OffsetLookup, Protocol):
    def topics(self, consumer_strategy: ConsumerStrategy) -> dict[str, TopicFacts]: ...


def new_batch_reader(options: Mapping[str, str], schema: StructType) -> DataSourceReader:
    check_schema(schema)
    chosen = ReadOptions.for_batch(options)
    given = {name.lower() for name in options}
    for name in _OF_STREAMS:
        if name.lower() in given:
            log.warning("option %s has no effect in a batch query", name)
    # Spark refuses to plan with a reader that takes filters where none are to be pushed.
    return FilteredBatchReader(chosen, schema) if chosen.push_filters else BatchReader(chosen, schema)


class BatchReader(SentToWorkers, DataSourceReader):
    """Goes to the tasks pickled, so it holds what was asked for and no connection."""

    def __init__(self, options: ReadOptions, schema: StructType) -> None:
        self._options = options
        self._schema = schema
        self._narrowing = NOTHING_PUSHED

    def partitions(self) -> list[InputPartition]:
        try:
            with OffsetReader(self._options.client) as view:
                ranges = planned(view, self._options, self._narrowing)
        except UserError as problem:
            # The way to it through the client says nothing to who wrote the query.
            raise problem.with_traceback(None) from None
        return [RangePartition(each) for each in ranges or [_NOTHING]]

    def read(self, partition: InputPartition) -> Iterator[RecordBatch]:
        from pyspark_braidlog.source.partition_reader import read_range

        assert isinstance(partition, RangePartition)
        return read_range(self._options, self._schema, partition.work)


class FilteredBatchReader(BatchReader):
    """The same, for a Spark that pushes filters down."""

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:
        self._narrowing, left = pushed(filters)
        return left


def planned(view: PlanningView, options: ReadOptions, narrowing: Narrowing = NOTHING_PUSHED) -> list[OffsetRange]:
    """The ranges of all tasks; empty when there is nothing to read."""
    facts = view.topics(options.consumer_strategy)
    starts = starting_offsets(view, options, facts)
    ends = ending_offsets(view, options, facts)
    ranges = [
        OffsetRange(place.topic, place.partition, starts[place], ends[place], facts[place.topic].topic_id)
        for place in topic_partitions(facts)
    ]
    if isinstance(options.starting, (AtOffsets, Committed)) or isinstance(options.ending, AtOffsets):
        ranges = _available(view, options, ranges)
    for each in ranges:
        if each.start > each.end:
            raise UserError(
                f"{each.topic}-{each.partition} would be read from offset {each.start} to {each.end}: the start is "
                "after the end; choose an earlier start, and see whether the topic was deleted and created again"
            )
    kept = [narrowing.narrowed(each) for each in ranges if narrowing.keeps(each.topic, each.partition)]
    return split(_from_time(view, narrowing, kept), options.min_partitions, options.max_records_per_partition)


def _available(view: PlanningView, options: ReadOptions, ranges: list[OffsetRange]) -> list[OffsetRange]:
    """Offsets that were given, or that a group committed, are compared with what the logs have."""
    places = [TopicPartition(each.topic, each.partition) for each in ranges]
    first, end = view.earliest(places), view.latest(places)
    found: list[OffsetRange] = []
    for place, asked in zip(places, ranges, strict=True):
        problem = _lack(asked, first[place], end[place])
        if problem and options.fail_on_data_loss:
            raise UserError(f"{place}: {problem}; correct the options, or read what is there with failOnDataLoss=false")
        if problem:
            log.warning("%s: %s; failOnDataLoss=false: what is there is read", place, problem)
            stop = max(min(asked.end, end[place]), first[place])
            asked = asked._replace(start=min(max(asked.start, first[place]), stop), end=stop)
        found.append(asked)
    return found


def _lack(asked: OffsetRange, first: int, end: int) -> str:
    if asked.start < min(first, asked.end):
        lost = min(first, asked.end) - asked.start
        return f"offsets from {asked.start} are asked for, but the log begins at {first} ({lost} were deleted)"
    if asked.end > end:
        return f"offsets up to {asked.end} are asked for, but the log ends at {end}"
    return ""


def _from_time(view: PlanningView, narrowing: Narrowing, ranges: list[OffsetRange]) -> list[OffsetRange]:
    """Without what lies before the first record of the time that filters ask for.

    The ends are known by now, so a record that comes meanwhile cannot be missed: it lies after them.
    """
    if narrowing.from_ms is None:
        return ranges
    asked = {TopicPartition(each.topic, each.partition): narrowing.from_ms for each in ranges if each.size > 0}
    firsts = view.at_time(asked)
    found: list[OffsetRange] = []
    for each in ranges:
        first = firsts.get(TopicPartition(each.topic, each.partition))
        start = each.end if first is None else min(max(each.start, first), each.end)
        found.append(each._replace(start=start))
    return found
