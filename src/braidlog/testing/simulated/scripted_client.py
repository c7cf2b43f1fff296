"""A client as a simulation scripts it: asks in given versions, over a connection it opens again when it is lost."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol, TypeVar

from braidlog.core.protocol_errors import from_code
from braidlog.testing.simulated.connection import ConnectionLost, SimulatedConnection
from braidlog.wire.apis import APIS, decode_response, encode_request
from braidlog.wire.generated.alter_replica_log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirTopic,
)
from braidlog.wire.generated.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
)
from braidlog.wire.generated.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from braidlog.wire.generated.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopic,
)
from braidlog.wire.generated.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse, DeleteTopicState
from braidlog.wire.generated.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from braidlog.wire.generated.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from braidlog.wire.generated.metadata import MetadataRequest, MetadataResponse, MetadataResponseTopic
from braidlog.wire.message import Message

Response = TypeVar("Response", bound=Message)

ANSWER_WITHIN_S = 60.0
EARLIEST = -2
LATEST = -1
_TOPIC = 2
_SET = 0


class NoAnswer(Exception):
    """The broker went away before it answered: what was asked may have happened or not."""


class Network(Protocol):
    """Where clients find the broker."""

    def connect(self, name: str) -> SimulatedConnection:
        """Raises ConnectionLost while there is none."""
        ...

    def unanswered(self, who: str, what: str) -> None:
        """A broker that runs let a request go unanswered."""
        ...


class ScriptedClient:
    def __init__(self, network: Network, name: str) -> None:
        self.name = name
        self._network = network
        self._wire: SimulatedConnection | None = None
        self._correlation = 0

    def hang_up(self) -> None:
        wire, self._wire = self._wire, None
        if wire is not None:
            wire.hang_up()

    async def call(self, api_key: int, request: Message, version: int, answer: type[Response]) -> Response:
        wire = self._connected()
        frame = self._frame(api_key, request, version)
        try:
            reply = await wire.ask(frame, self._correlation, ANSWER_WITHIN_S)
        except TimeoutError:
            self._network.unanswered(self.name, f"{APIS[api_key].name} v{version}")
            wire.hang_up()
            raise NoAnswer(f"{APIS[api_key].name}: none within {ANSWER_WITHIN_S:g} s") from None
        except ConnectionLost as lost:
            raise NoAnswer(str(lost)) from None
        _, response = decode_response(api_key, version, reply)
        assert isinstance(response, answer)
        return response

    def send_only(self, api_key: int, request: Message, version: int) -> None:
        """For what has no answer."""
        try:
            self._connected().send(self._frame(api_key, request, version))
        except ConnectionLost as lost:
            raise NoAnswer(str(lost)) from None

    def _frame(self, api_key: int, request: Message, version: int) -> bytes:
        self._correlation += 1
        return encode_request(api_key, version, self._correlation, self.name, request).getvalue()

    def _connected(self) -> SimulatedConnection:
        if self._wire is None or self._wire.lost is not None:
            try:
                self._wire = self._network.connect(self.name)
            except ConnectionLost as lost:
                raise NoAnswer(str(lost)) from None
        return self._wire


class ScriptedAdmin:
    """Topics, settings, offsets; raises the protocol's errors, and NoAnswer where the outcome is unknown."""

    def __init__(self, client: ScriptedClient) -> None:
        self._client = client

    async def create_topic(self, name: str, partitions: int, configs: Mapping[str, str]) -> bytes:
        """The new topic's id."""
        topic = CreatableTopic(
            name=name,
            num_partitions=partitions,
            replication_factor=1,
            configs=[CreatableTopicConfig(name=key, value=value) for key, value in configs.items()],
        )
        request = CreateTopicsRequest(topics=[topic], timeout_ms=10_000)
        response = await self._client.call(19, request, 7, CreateTopicsResponse)
        _raise_for(response.topics[0].error_code)
        return response.topics[0].topic_id

    async def delete_topic(self, topic_id: bytes) -> None:
        request = DeleteTopicsRequest(topics=[DeleteTopicState(name=None, topic_id=topic_id)], timeout_ms=10_000)
        response = await self._client.call(20, request, 6, DeleteTopicsResponse)
        _raise_for(response.responses[0].error_code)

    async def topics(self) -> list[MetadataResponseTopic]:
        response = await self._client.call(3, MetadataRequest(topics=None), 12, MetadataResponse)
        return response.topics

    async def set_topic_config(self, name: str, key: str, value: str) -> None:
        change = AlterableConfig(name=key, config_operation=_SET, value=value)
        resource = AlterConfigsResource(resource_type=_TOPIC, resource_name=name, configs=[change])
        request = IncrementalAlterConfigsRequest(resources=[resource])
        response = await self._client.call(44, request, 1, IncrementalAlterConfigsResponse)
        _raise_for(response.responses[0].error_code)

    async def create_partitions(self, name: str, count: int) -> None:
        topic = CreatePartitionsTopic(name=name, count=count, assignments=None)
        request = CreatePartitionsRequest(topics=[topic], timeout_ms=10_000)
        response = await self._client.call(37, request, 3, CreatePartitionsResponse)
        _raise_for(response.results[0].error_code)

    async def move_replica(self, name: str, index: int, directory: str) -> None:
        """Ask for the partition to be moved; it happens later."""
        topic = AlterReplicaLogDirTopic(name=name, partitions=[index])
        request = AlterReplicaLogDirsRequest(dirs=[AlterReplicaLogDir(path=directory, topics=[topic])])
        response = await self._client.call(34, request, 2, AlterReplicaLogDirsResponse)
        _raise_for(response.results[0].partitions[0].error_code)

    async def delete_records(self, name: str, index: int, before: int) -> int:
        """The new start of the log."""
        partition = DeleteRecordsPartition(partition_index=index, offset=before)
        topic = DeleteRecordsTopic(name=name, partitions=[partition])
        request = DeleteRecordsRequest(topics=[topic], timeout_ms=10_000)
        response = await self._client.call(21, request, 2, DeleteRecordsResponse)
        result = response.topics[0].partitions[0]
        _raise_for(result.error_code)
        return result.low_watermark

    async def offset_at(self, name: str, index: int, timestamp: int) -> int:
        partition = ListOffsetsPartition(partition_index=index, timestamp=timestamp)
        request = ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name=name, partitions=[partition])])
        response = await self._client.call(2, request, 7, ListOffsetsResponse)
        result = response.topics[0].partitions[0]
        _raise_for(result.error_code)
        return result.offset


def _raise_for(code: int) -> None:
    if code != 0:
        raise from_code(code)
