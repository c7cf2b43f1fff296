"""LeaderAndIsr (api 4), StopReplica (5) and UpdateMetadata (6): what the controller of another broker asks of this one.

Each is read into its value and goes the way that those of this broker's own controller go.
"""

from __future__ import annotations

from braidlog.broker.requests.time_slicing import run_in_slices
from braidlog.cluster import control_wire
from braidlog.cluster.control_requests import ControlChannel, ControlResponse, UpdateMetadata
from braidlog.core.protocol_errors import ProtocolError
from braidlog.core.types import TopicPartition
from braidlog.net.exchange import Exchange
from braidlog.wire.generated.leader_and_isr import LeaderAndIsrRequest, LeaderAndIsrResponse
from braidlog.wire.generated.stop_replica import StopReplicaRequest, StopReplicaResponse
from braidlog.wire.generated.update_metadata import UpdateMetadataRequest, UpdateMetadataResponse


class LeaderAndIsrHandler:
    def __init__(self, channel: ControlChannel, listener: str) -> None:
        self._channel = channel
        self._listener = listener

    async def handle(self, request: LeaderAndIsrRequest, exchange: Exchange) -> LeaderAndIsrResponse:
        response = await self._channel.send(control_wire.read_leader_and_isr(request, self._listener))
        return control_wire.leader_and_isr_response(request, response, exchange.version)

    @staticmethod
    def error_response(request: LeaderAndIsrRequest, version: int, error: ProtocolError) -> LeaderAndIsrResponse:
        named = [(state.topic_name, state.partition_index) for state in request.ungrouped_partition_states]
        for topic in request.topic_states:
            named += [(topic.topic_name, state.partition_index) for state in topic.partition_states]
        return control_wire.leader_and_isr_response(request, _refused(named, error), version)


class StopReplicaHandler:
    def __init__(self, channel: ControlChannel) -> None:
        self._channel = channel

    async def handle(self, request: StopReplicaRequest, exchange: Exchange) -> StopReplicaResponse:
        return control_wire.stop_replica_response(await self._channel.send(control_wire.read_stop_replica(request)))

    @staticmethod
    def error_response(request: StopReplicaRequest, version: int, error: ProtocolError) -> StopReplicaResponse:
        named = [(each.topic_name, each.partition_index) for each in request.ungrouped_partitions]
        for old in request.topics:
            named += [(old.name, index) for index in old.partition_indexes]
        for topic in request.topic_states:
            named += [(topic.topic_name, state.partition_index) for state in topic.partition_states]
        return control_wire.stop_replica_response(_refused(named, error))


class UpdateMetadataHandler:
    def __init__(self, channel: ControlChannel) -> None:
        self._channel = channel

    async def handle(self, request: UpdateMetadataRequest, exchange: Exchange) -> UpdateMetadataResponse:
        update = await run_in_slices(control_wire.read_update_metadata(request, exchange.version))
        assert isinstance(update, UpdateMetadata)
        return UpdateMetadataResponse(error_code=(await self._channel.send(update)).error)

    @staticmethod
    def error_response(request: UpdateMetadataRequest, version: int, error: ProtocolError) -> UpdateMetadataResponse:
        return UpdateMetadataResponse(error_code=error.code)


def _refused(named: list[tuple[str, int]], error: ProtocolError) -> ControlResponse:
    return ControlResponse(error.code, {TopicPartition(*each): error.code for each in named})
