"""A range of one partition as Arrow batches, where the offsets are known and no consumer is needed: Spark tasks, tools.

    with RangeReader(bootstrap_servers="localhost:9092") as reader:
        for batch in reader.read("events", 0, 1000, 2000):
            ...

The next fetch is under way while a batch is decoded and used.
"""

from __future__ import annotations

import asyncio
from collections.abc import Generator, Iterator, Mapping
from concurrent.futures import Future
from contextlib import suppress
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Unpack

import pyarrow as pa

from braidlog.client.arguments import Many
from braidlog.client.arrow.decoding import to_record_batch
from braidlog.client.arrow.shape import BytesLayout, TableShape, TimeUnit
from braidlog.client.broker_errors import broker_error
from braidlog.client.cluster_view import TopicView
from braidlog.client.consumer.fetch.completed_fetch import CompletedFetch
from braidlog.client.consumer.fetch.fetch_requests import (
    FetchedRange,
    FetchErrorKind,
    FetchRequests,
    completed_fetch,
    error_kind,
)
from braidlog.client.consumer.fetch.fetch_session_handler import (
    FINAL,
    NO_SESSION,
    FetchRequestData,
    RequestedPartition,
)
from braidlog.client.consumer.partition_state import PartitionState
from braidlog.client.errors import ClientError, NoOffsetError, PoisonRecordError, RequestTimeout
from braidlog.client.metadata import Metadata
from braidlog.client.runtime import current_runtime
from braidlog.client.settings import CONSUMER, Settings
from braidlog.core.errors import UserError
from braidlog.core.ids import has_topic_id, id_text
from braidlog.core.protocol_errors import NONE, ProtocolError, from_code
from braidlog.core.types import TopicPartition
from braidlog.wire.generated.fetch import PartitionData
from braidlog.wire.records.batch import LENGTH_AT, LOG_OVERHEAD
from braidlog.wire.records.columns_slice import FULL
from braidlog.wire.records.varint import INT64_MAX

if TYPE_CHECKING:
    from braidlog.client.typed_settings import ConsumerSettings

# One partition is read in bulk here, where a consumer shares `fetch.max.bytes` among many.
_BULK_BYTES: Final = 8 * 1024 * 1024
# Bytes that a record takes in the log, until some were seen; a guess too low costs one more request.
_DENSITY: Final = 1024.0
_MARGIN: Final = 1.25
_LEAST_BYTES: Final = 128 * 1024
# A topic whose offsets are known did exist: it is waited for so long only.
_MISSED_S: Final = 5.0
# A broker may be the last to learn of a new topic: it is asked so often before it is believed.
_ASKED: Final = 5
_ID_SIZE: Final = 16


_SAMPLE: Final = TableShape(("timestamp",), timestamp_unit="ms")


class LogSample(NamedTuple):
    """A log at some offset."""

    # As it is stored, compressed; offsets that compaction removed count.
    bytes_per_offset: float
    # Of the first record from there on, in milliseconds; None where what was fetched has none.
    timestamp_ms: int | None


class TopicReplacedError(ClientError):
    """The topic was deleted and made anew since the offsets were found out: they mean other records now."""


class NoPartitionError(UserError):
    """The topic has no partition of that number."""


class RangeSpec(NamedTuple):
    """What is read, and how."""

    where: TopicPartition
    start: int
    end: int
    # The topic must have it, where one is given and the cluster has ids.
    topic_id: bytes | None
    shape: TableShape
    max_records: int
    max_bytes: int
    checks_crcs: bool


class RangeRead(Iterator[pa.RecordBatch]):
    """The batches of one range; `position` is the offset behind what was returned."""

    def __init__(self, reader: RangeReader, spec: RangeSpec) -> None:
        self.position = spec.start
        self._reader = reader
        self._spec = spec
        self._batches = self._read()

    def __next__(self) -> pa.RecordBatch:
        return next(self._batches)

    def close(self) -> None:
        """Let go of what was fetched ahead."""
        self._batches.close()

    def _read(self) -> Generator[pa.RecordBatch]:
        spec = self._spec
        ahead: Future[FetchedRange] | None = None
        try:
            while self.position < spec.end:
                ahead = ahead or self._reader.begin(spec, self.position)
                fetched = ahead.result()
                ahead = None
                if self.position < fetched.next_offset < spec.end:
                    ahead = self._reader.begin(spec, fetched.next_offset)
                before = self.position
                yield from self._batches_of(fetched.fetch)
                self.position = max(self.position, fetched.next_offset)
                if self.position == before:
                    raise fetched.fetch.unreadable()
        finally:
            if ahead is not None:
                ahead.cancel()

    def _batches_of(self, fetch: CompletedFetch) -> Generator[pa.RecordBatch]:
        spec = self._spec
        where = spec.where
        fetch.rewind(self.position)
        reader = fetch.column_reader(until=spec.end, full=spec.max_bytes)
        while not reader.is_done:
            columns = spec.shape.new_columns()
            fetch.read_columns(reader, columns, spec.max_records)
            self.position = reader.position
            if columns.count:
                yield to_record_batch(columns, spec.shape, where.topic, where.partition)


class RangeReader:
    """Reads ranges of partitions over one set of connections; takes the settings of a consumer.

    `isolation.level` read_committed leaves out what was aborted. Used by one thread at a time.
    """

    def __init__(self, config: Mapping[str, Any] | None = None, /, **settings: Unpack[ConsumerSettings]) -> None:
        self._settings = chosen = Settings.of(CONSUMER, config, settings)
        self._read_committed = bool(chosen.isolation_level())
        # No rack: a reader that follows no replica must be answered by the leader.
        self._requests = FetchRequests(chosen, min_bytes=1, rack="")
        self._max_bytes = min(
            chosen.number("fetch.max.bytes"),
            chosen.number("max.partition.fetch.bytes") if chosen.is_given("max.partition.fetch.bytes") else _BULK_BYTES,
        )
        self._checks_crcs = chosen.flag("check.crcs")
        self._api_timeout_s = chosen.seconds("default.api.timeout.ms")
        self._request_s = chosen.seconds("request.timeout.ms")
        self._pause_s = chosen.seconds("retry.backoff.ms")
        # Bytes an offset takes, as the last fetch of a partition had it.
        self._density: dict[TopicPartition, float] = {}
        runtime = current_runtime()
        self._engine = runtime.new_engine("range reader")
        try:
            self._nodes = runtime.nodes(chosen)
            self._metadata = Metadata(self._nodes, chosen, create_topics=False)
        except BaseException:
            self._engine.close()
            raise

    def read(
        self,
        topic: str,
        partition: int,
        start_offset: int,
        end_offset: int,
        *,
        columns: Many[str] | None = None,
        timestamp_unit: TimeUnit = "us",
        bytes_layout: BytesLayout = "binary",
        max_records: int | None = None,
        max_bytes: int = FULL,
        topic_id: bytes | None = None,
    ) -> RangeRead:
        """The records with offsets in [start_offset, end_offset), in batches of about one fetch each.

        A batch ends after `max_records`, and with the record batch that takes it past `max_bytes` uncompressed.
        Compacted and aborted records are simply not there. Raises NoOffsetError when the log no longer has, or does
        not yet have, an offset of the range; TopicReplacedError when the topic has not the id that is given;
        PoisonRecordError, after what came before it, at a broken batch.
        """
        if not 0 <= start_offset <= end_offset:
            raise UserError(f"[{start_offset}, {end_offset}) is no range of offsets")
        if max_records is not None and max_records < 1:
            raise UserError(f"max_records={max_records}: a batch has at least one")
        if topic_id is not None and len(topic_id) != _ID_SIZE:
            raise UserError(f"{topic_id!r} is no topic id, which has {_ID_SIZE} bytes")
        shape = TableShape(columns, timestamp_unit=timestamp_unit, bytes_layout=bytes_layout)
        self._engine.check_usable()
        where = TopicPartition(topic, partition)
        most = INT64_MAX if max_records is None else max_records
        return RangeRead(
            self, RangeSpec(where, start_offset, end_offset, topic_id, shape, most, max_bytes, self._checks_crcs)
        )

    def samples(self, at: Mapping[TopicPartition, int]) -> dict[TopicPartition, LogSample]:
        """What the log is like at each place, by one small fetch each; places that it no longer has are left out."""
        self._engine.check_usable()
        fetches = {
            where: self.begin(RangeSpec(where, offset, offset + 1, None, _SAMPLE, 1, FULL, True), offset)
            for where, offset in at.items()
        }
        found: dict[TopicPartition, LogSample] = {}
        for where, fetch in fetches.items():
            with suppress(NoOffsetError):
                fetched = fetch.result()
                found[where] = LogSample(_bytes_per_offset(fetched), _first_timestamp(fetched.fetch))
        return found

    # On the engine's thread

    def begin(self, spec: RangeSpec, offset: int) -> Future[FetchedRange]:
        return self._engine.begin(self._fetch(spec, offset))

    async def _fetch(self, spec: RangeSpec, offset: int) -> FetchedRange:
        """Whole batches at the offset, waited for while there are none and the broker may still get them."""
        where = spec.where
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self._api_timeout_s
        problem = "its leader did not answer"
        while loop.time() < deadline:
            try:
                await self._check_identity(spec, deadline - loop.time())
                answer = await self._ask(spec, offset, deadline - loop.time())
            except ClientError as failed:
                if not failed.retriable:
                    raise
                problem = str(failed)
                self._metadata.request_update()
                await asyncio.sleep(self._pause_s)
                continue
            if answer.error_code == NONE:
                fetched = completed_fetch(PartitionState(where), offset, answer, check_crcs=spec.checks_crcs)
                if fetched is not None:
                    self._note_density(where, fetched)
                    return fetched
                problem = self._why_nothing(answer, spec.end)
                if not self._requests.max_wait_ms:
                    await asyncio.sleep(self._pause_s)
                continue
            match error_kind(answer.error_code):
                case FetchErrorKind.OUT_OF_RANGE:
                    raise NoOffsetError(
                        f"{where} has no offset {offset}: it was deleted by retention, or the log was cut or made "
                        "anew; look what is there (`braidlog topics offsets`) and start there",
                        where,
                        offset,
                    )
                case FetchErrorKind.FATAL:
                    raise broker_error(answer.error_code, str(where))
                case FetchErrorKind.STALE_METADATA:
                    self._metadata.request_update()
                case FetchErrorKind.RETRIABLE:
                    pass
            problem = from_code(answer.error_code).name
            await asyncio.sleep(self._pause_s)
        raise RequestTimeout(
            f"nothing could be read of {where} at offset {offset} for {self._api_timeout_s:g} s: {problem}"
        )

    def _why_nothing(self, answer: PartitionData, end: int) -> str:
        stable = answer.last_stable_offset
        if self._read_committed and 0 <= stable < answer.high_watermark:
            return f"a transaction that began at offset {stable} is still open"
        if answer.high_watermark >= end:
            return f"the broker sends nothing, though the log goes on to offset {answer.high_watermark}"
        return f"the log ends at offset {answer.high_watermark}, and the range at {end}"

    async def _check_identity(self, spec: RangeSpec, timeout_s: float) -> None:
        if spec.topic_id is None:
            return
        for asked in range(_ASKED):
            topic = await self._topic(spec.where.topic, timeout_s)
            if topic.topic_id == spec.topic_id or not has_topic_id(topic.topic_id):
                return
            if asked:
                await asyncio.sleep(self._pause_s)
            await self._refresh()
        raise TopicReplacedError(
            f"topic {spec.where.topic} was deleted and made anew: it has the id {id_text(topic.topic_id)} now, "
            f"and the offsets are those of {id_text(spec.topic_id)}"
        )

    async def _refresh(self) -> None:
        try:
            await self._metadata.refreshed()
        except ProtocolError as problem:
            if not problem.retriable:
                raise
            raise RequestTimeout(f"no metadata now: {problem}") from problem

    async def _topic(self, name: str, timeout_s: float) -> TopicView:
        return await self._metadata.topic(name, min(timeout_s, _MISSED_S))

    async def _ask(self, spec: RangeSpec, offset: int, timeout_s: float) -> PartitionData:
        where = spec.where
        topic = await self._topic(where.topic, timeout_s)
        if where.partition >= len(topic.partitions):
            # It may have got more since it was last looked at.
            await self._refresh()
            topic = await self._topic(where.topic, timeout_s)
        if where.partition >= len(topic.partitions):
            raise NoPartitionError(f"{where.topic} has no partition {where.partition}; it has {len(topic.partitions)}")
        leader = topic.partitions[where.partition]
        if leader.leader < 0:
            self._metadata.request_update()
            raise RequestTimeout(f"{where} has no leader now")
        connection = await self._nodes.connection(leader.leader)
        max_bytes = self.bytes_for(where, spec.end - offset)
        asked = RequestedPartition(topic.topic_id, offset, leader.leader_epoch, max_bytes)
        response = await self._requests.send(
            connection,
            lambda uses_ids: FetchRequestData(NO_SESSION, FINAL, {where: asked}, {}, uses_ids),
            max_bytes,
            self._request_s + self._requests.max_wait_ms / 1000,
            by_id=has_topic_id(topic.topic_id),
        )
        if response.error_code != NONE:
            raise broker_error(response.error_code, str(where))
        for answer in response.responses:
            for partition in answer.partitions:
                return partition
        raise RequestTimeout(f"the broker said nothing of {where}")

    def bytes_for(self, where: TopicPartition, offsets: int) -> int:
        """How much to fetch for so many offsets: what lies behind a short range would be fetched in vain."""
        wanted = int(offsets * self._density.get(where, _DENSITY) * _MARGIN) + _LEAST_BYTES
        return min(wanted, self._max_bytes)

    def _note_density(self, where: TopicPartition, fetched: FetchedRange) -> None:
        offsets = fetched.next_offset - int(fetched.fetch.position)
        if offsets > 0:
            self._density[where] = fetched.fetch.size / offsets

    # End

    def close(self) -> None:
        if self._engine.is_closed:
            return
        self._engine.soon(self._metadata.close)
        self._engine.soon(self._nodes.close)
        self._engine.close()

    def __enter__(self) -> RangeReader:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _bytes_per_offset(fetched: FetchedRange) -> float:
    """Of whole batches: the last one is often cut short."""
    data, start, end = fetched.fetch.data, fetched.fetch.start, int(fetched.fetch.end)
    first = min(int.from_bytes(data[start : start + LENGTH_AT], "big"), int(fetched.fetch.position))
    at = start
    while end - at >= LOG_OVERHEAD:
        size = LOG_OVERHEAD + int.from_bytes(data[at + LENGTH_AT : at + LOG_OVERHEAD], "big")
        if size > end - at:
            break
        at += size
    return (at - start) / max(fetched.next_offset - first, 1)


def _first_timestamp(fetch: CompletedFetch) -> int | None:
    reader = fetch.column_reader()
    where = fetch.state.topic_partition
    while not reader.is_done:
        columns = _SAMPLE.new_columns()
        try:
            fetch.read_columns(reader, columns, 1)
        except PoisonRecordError:
            # Reading the range raises it.
            return None
        if columns.count:
            batch = to_record_batch(columns, _SAMPLE, where.topic, where.partition)
            return int(batch.column(0).cast(pa.int64())[0].as_py())
    return None


def read_range(
    config: Mapping[str, Any],
    topic: str,
    partition: int,
    start_offset: int,
    end_offset: int,
    **options: Any,
) -> Iterator[pa.RecordBatch]:
    """One range with a reader of its own; see `RangeReader.read` for the options."""
    with RangeReader(config) as reader:
        yield from reader.read(topic, partition, start_offset, end_offset, **options)
