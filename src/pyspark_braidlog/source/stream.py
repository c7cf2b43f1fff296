"""A topic as a stream: what Spark asks a source for, from the first offset to the last."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadLimit, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

from braidlog.core.errors import UserError
from pyspark_braidlog.source.admission import Admission
from pyspark_braidlog.source.offset_committer import OffsetCommitter, group_admin
from pyspark_braidlog.source.offset_range import RangePartition, split
from pyspark_braidlog.source.options import ReadOptions
from pyspark_braidlog.source.schema import check_schema
from pyspark_braidlog.source.stream_offset import StreamOffset, ranges
from pyspark_braidlog.source.stream_planning import StreamPlanner
from pyspark_braidlog.worker_process import SentToWorkers, end_planner_if_hung_up

if TYPE_CHECKING:
    import pyarrow as pa


def new_stream_reader(options: Mapping[str, str], schema: StructType) -> StreamReader:
    check_schema(schema)
    return StreamReader(ReadOptions.for_stream(options), schema)


class FailedStreamReader(DataSourceStreamReader):
    """Instead of a reader that cannot be made: says why with the first question.

    What is raised while PySpark makes a reader is buried under an error of its own, about a variable of its own.
    """

    def __init__(self, problem: UserError) -> None:
        self._problem = problem

    def initialOffset(self) -> dict[str, Any]:
        raise self._problem

    def getDefaultReadLimit(self) -> ReadLimit:
        raise self._problem

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        raise self._problem

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        raise self._problem

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        raise self._problem


class StreamReader(SentToWorkers, DataSourceStreamReader, SupportsTriggerAvailableNow):
    """One of these lives as long as the query, in a process beside the driver, and plans; another is sent to the
    tasks, and reads. Neither may count on `stop`: Spark ends the planning process the hard way.

    Of a batch that is done Spark tells the source only with the next question for an offset, whose `start` is then
    where that batch ended: so it is there that progress is shown.
    """

    def __init__(self, options: ReadOptions, schema: StructType) -> None:
        self._options = options
        self._schema = schema
        self._planner: StreamPlanner | None = None
        self._progress: OffsetCommitter | None = None
        # The end of the batch that was planned last.
        self._end: StreamOffset | None = None

    # The driver's

    def initialOffset(self) -> dict[str, Any]:
        return self._planning().initial().written()

    def prepareForTriggerAvailableNow(self) -> None:
        self._planning().prepare_for_available_now()

    def getDefaultReadLimit(self) -> ReadLimit:
        options = self._options
        return Admission(most=options.max_offsets, most_bytes=options.max_bytes, least=options.min_offsets).own_limit

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        planner = self._planning()
        begin = StreamOffset.of(start)
        self._show(begin)
        end = planner.next_end(begin, limit)
        if end == begin and planner.is_available_now:
            # The query ends with this answer.
            self._show(begin, is_last_chance=True)
        self._end = end
        return end.written()

    def reportLatestOffset(self) -> dict[str, Any] | None:
        """Also how far the query is behind, which Spark has no other place for of a source in Python."""
        if self._end is None:
            return None
        try:
            return self._planning().report(self._end.offsets)
        except UserError:
            # The cluster does not answer: a report is not worth a query.
            return None

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """Sends no request: a batch that is retried, perhaps by another process, must be the same batch."""
        self._end = StreamOffset.of(end)
        work = split(
            ranges(StreamOffset.of(start), self._end),
            self._options.min_partitions,
            self._options.max_records_per_partition,
        )
        return [RangePartition(each) for each in work]

    def commit(self, end: dict[str, Any]) -> None:
        self._show(StreamOffset.of(end))

    def stop(self) -> None:
        if self._planner is not None:
            self._planner.close()
        if self._progress is not None:
            self._progress.close()
        self._planner = self._progress = None
        end_planner_if_hung_up()

    def _planning(self) -> StreamPlanner:
        if self._planner is None:
            self._planner = StreamPlanner(self._options)
            if self._options.group_id is not None:
                self._progress = OffsetCommitter(group_admin(self._options.client), self._options.group_id)
                self._progress.check()
        return self._planner

    def _show(self, position: StreamOffset, *, is_last_chance: bool = False) -> None:
        if self._progress is not None:
            self._progress.show(position.offsets, is_last_chance=is_last_chance)

    # The tasks'

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        from pyspark_braidlog.source.partition_reader import read_range

        assert isinstance(partition, RangePartition)
        return read_range(self._options, self._schema, partition.work)
