"""Single requests to a simulated broker, for what a program cannot see: the error of a fetch, a log that has holes.

They go over the client's own connections. Nothing is sent twice: `NoAnswer` says that the outcome is unknown.
"""

from __future__ import annotations

from typing import Final, TypeVar

from braidlog.client.settings import ADMIN, Settings
from braidlog.core.protocol_errors import from_code
from braidlog.net.outbound.errors import ClientError
from braidlog.testing.simulated.program import SimulatedProgram
from braidlog.testing.simulated.simulation import SERVERS
from braidlog.wire.generated.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic, PartitionData
from braidlog.wire.generated.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from braidlog.wire.generated.metadata import MetadataRequest, MetadataResponse, MetadataResponseTopic
from braidlog.wire.message import Message
from support.simulation.frames import REQUEST_TIMEOUT_MS
from support.simulation.history import PartitionRead, PartitionTarget
from support.simulation.partition_frames import partition_read

FETCH: Final = 1
LIST_OFFSETS: Final = 2
METADATA: Final = 3
EARLIEST: Final = -2
LATEST: Final = -1

Response = TypeVar("Response", bound=Message)


class NoAnswer(Exception):
    """The broker was gone before it answered: what was asked may have happened or not."""


class RawClient:
    def __init__(self, program: SimulatedProgram) -> None:
        given = {"bootstrap.servers": SERVERS, "request.timeout.ms": REQUEST_TIMEOUT_MS, "reconnect.backoff.ms": 20}
        self._nodes = program.runtime.nodes(Settings.of(ADMIN, given))

    async def call(self, api_key: int, request: Message, answer: type[Response]) -> Response:
        try:
            connection = await self._nodes.any()
            return await connection.call(api_key, request, answer, timeout_s=REQUEST_TIMEOUT_MS / 1000)
        except ClientError as problem:
            raise NoAnswer(str(problem)) from problem

    async def topics(self) -> list[MetadataResponseTopic]:
        return (await self.call(METADATA, MetadataRequest(topics=None), MetadataResponse)).topics

    async def offset_at(self, target: PartitionTarget, timestamp: int) -> int:
        partition = ListOffsetsPartition(partition_index=target.partition, timestamp=timestamp)
        topics = [ListOffsetsTopic(name=target.topic, partitions=[partition])]
        response = await self.call(LIST_OFFSETS, ListOffsetsRequest(replica_id=-1, topics=topics), ListOffsetsResponse)
        result = response.topics[0].partitions[0]
        if result.error_code != 0:
            raise from_code(result.error_code)
        return result.offset

    async def fetch(self, target: PartitionTarget, offset: int, max_bytes: int, isolation: int = 0) -> PartitionData:
        """One fetch without a session that waits for nothing."""
        partition = FetchPartition(partition=target.partition, fetch_offset=offset, partition_max_bytes=max_bytes)
        request = FetchRequest(
            max_wait_ms=0,
            min_bytes=0,
            max_bytes=max_bytes,
            isolation_level=isolation,
            session_epoch=-1,
            topics=[FetchTopic(topic_id=target.topic_id, partitions=[partition])],
        )
        response = await self.call(FETCH, request, FetchResponse)
        return response.responses[0].partitions[0]

    async def read(self, target: PartitionTarget, offset: int, max_bytes: int, told_before: int = 0) -> PartitionRead:
        return partition_read(target, offset, await self.fetch(target, offset, max_bytes), told_before)
