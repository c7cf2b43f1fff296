"""Readers as a simulation scripts them: one that follows partitions in a fetch session, one that reads a log whole."""

from __future__ import annotations

from typing import Final, NamedTuple

from braidlog.core.protocol_errors import (
    FetchSessionIdNotFoundError,
    InvalidFetchSessionEpochError,
    OffsetOutOfRangeError,
)
from braidlog.core.slices import ByteSlice
from braidlog.testing.simulated.scripted_client import NoAnswer, ScriptedClient
from braidlog.testing.simulated.scripted_producer import PartitionTarget
from braidlog.wire.generated.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    ForgottenTopic,
    PartitionData,
)
from braidlog.wire.records.batch import iterate_headers
from braidlog.wire.records.reading import Record, read_records
from braidlog.wire.writer import Records

_VERSION: Final = 17
_SESSION_IS_GONE: Final = (FetchSessionIdNotFoundError.code, InvalidFetchSessionEpochError.code)


class PartitionRead(NamedTuple):
    """What one response said of one partition; `records` are those from `asked_from` on."""

    target: PartitionTarget
    asked_from: int
    error_code: int
    high_watermark: int
    log_start: int
    records: list[Record]
    # Past the last batch; compaction leaves batches whose records are all gone.
    next_offset: int
    # For the caller's use: the high watermark that any client had seen when this was asked.
    told_before: int = 0


class ScriptedConsumer:
    """Follows `positions`, which the caller may change between polls."""

    def __init__(self, client: ScriptedClient, *, max_bytes: int = 65536) -> None:
        self.positions: dict[PartitionTarget, int] = {}
        self._client = client
        self._max_bytes = max_bytes
        self._session = 0
        self._epoch = 0
        # What the session was sent last.
        self._known: dict[PartitionTarget, int] = {}

    async def poll(self, max_wait_ms: int, min_bytes: int = 1) -> list[PartitionRead]:
        """What came; empty also where the session had to begin anew."""
        changed = {target: at for target, at in self.positions.items() if self._known.get(target) != at}
        gone = [
            ForgottenTopic(topic_id=target.topic_id, partitions=[target.partition])
            for target in self._known
            if target not in self.positions
        ]
        request = FetchRequest(
            max_wait_ms=max_wait_ms,
            min_bytes=min_bytes,
            max_bytes=self._max_bytes,
            session_id=self._session,
            session_epoch=self._epoch,
            topics=_topics(changed, self._max_bytes),
            forgotten_topics_data=gone,
        )
        self._known = dict(self.positions)
        try:
            response = await self._client.call(1, request, _VERSION, FetchResponse)
        except NoAnswer:
            self._begin_anew()
            raise
        if response.error_code in _SESSION_IS_GONE:
            self._begin_anew()
            return []
        self._session = response.session_id
        self._epoch = self._epoch + 1 if self._session != 0 else 0
        if self._session == 0:
            self._known = {}
        reads = _reads(response, self._asked())
        for read in reads:
            if read.error_code == OffsetOutOfRangeError.code:
                self.positions.pop(read.target, None)
            elif read.target in self.positions:
                self.positions[read.target] = read.next_offset
        return reads

    def _asked(self) -> dict[tuple[bytes, int], tuple[PartitionTarget, int]]:
        return {(target.topic_id, target.partition): (target, at) for target, at in self.positions.items()}

    def _begin_anew(self) -> None:
        self._session = 0
        self._epoch = 0
        self._known = {}


async def read_once(client: ScriptedClient, target: PartitionTarget, offset: int, max_bytes: int) -> PartitionRead:
    """One fetch without a session that waits for nothing."""
    request = FetchRequest(max_wait_ms=0, min_bytes=0, max_bytes=max_bytes, topics=_topics({target: offset}, max_bytes))
    response = await client.call(1, request, _VERSION, FetchResponse)
    (read,) = _reads(response, {(target.topic_id, target.partition): (target, offset)})
    return read


def _topics(positions: dict[PartitionTarget, int], max_bytes: int) -> list[FetchTopic]:
    topics: dict[bytes, FetchTopic] = {}
    for target, offset in positions.items():
        topic = topics.setdefault(target.topic_id, FetchTopic(topic_id=target.topic_id))
        topic.partitions.append(
            FetchPartition(partition=target.partition, fetch_offset=offset, partition_max_bytes=max_bytes)
        )
    return list(topics.values())


def _reads(response: FetchResponse, asked: dict[tuple[bytes, int], tuple[PartitionTarget, int]]) -> list[PartitionRead]:
    reads: list[PartitionRead] = []
    for topic in response.responses:
        for data in topic.partitions:
            target, offset = asked[topic.topic_id, data.partition_index]
            reads.append(_read(target, offset, data))
    return reads


def _read(target: PartitionTarget, offset: int, data: PartitionData) -> PartitionRead:
    content = bytes_of(data.records) if data.error_code == 0 else b""
    records = [record for record in read_records(content) if record.offset >= offset]
    next_offset = offset
    for header in iterate_headers(content, 0, len(content)):
        next_offset = max(next_offset, header.last_offset + 1)
    return PartitionRead(
        target, offset, data.error_code, data.high_watermark, data.log_start_offset, records, next_offset
    )


def bytes_of(records: Records) -> bytes:
    if records is None:
        return b""
    if isinstance(records, ByteSlice):
        return records.tobytes()
    assert isinstance(records, bytes | memoryview)
    return bytes(records)
