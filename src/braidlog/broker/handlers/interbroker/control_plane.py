"""What a controller asks of brokers, and brokers of the controller.

LeaderAndIsr (api 4), StopReplica (5), UpdateMetadata (6)                   from the controller of another broker;
                                                                            they go the way of this broker's own
ControlledShutdown (7), AlterPartition (56), AllocateProducerIds (67)       from brokers; NOT_CONTROLLER elsewhere
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from braidlog.broker.local_control_channel import ControllerConnection
from braidlog.cluster import control_wire
from braidlog.cluster.control_requests import ANY_BROKER_EPOCH, ControlRequest, ControlResponse, UpdateMetadata
from braidlog.cluster.image import ClusterImage
from braidlog.cluster.records import ProducerIdBlock
from braidlog.controller.requests import AlterPartitionResult, PartitionChange
from braidlog.core.protocol_errors import NONE, ProtocolError, UnknownTopicIdError
from braidlog.core.time_slice import run_in_slices
from braidlog.core.types import BrokerId, LeaderEpoch, TopicPartition
from braidlog.net.exchange import Exchange
from braidlog.wire.generated.allocate_producer_ids import AllocateProducerIdsRequest, AllocateProducerIdsResponse
from braidlog.wire.generated.alter_partition import (
    AlterPartitionRequest,
    AlterPartitionResponse,
    RequestPartitionData,
    ResponsePartitionData,
    ResponseTopicData,
)
from braidlog.wire.generated.controlled_shutdown import (
    ControlledShutdownRequest,
    ControlledShutdownResponse,
    RemainingPartition,
)
from braidlog.wire.generated.leader_and_isr import LeaderAndIsrRequest, LeaderAndIsrResponse
from braidlog.wire.generated.stop_replica import StopReplicaRequest, StopReplicaResponse
from braidlog.wire.generated.update_metadata import UpdateMetadataRequest, UpdateMetadataResponse


class ControlReceiver(Protocol):
    async def receive(self, request: ControlRequest, connection: ControllerConnection) -> ControlResponse: ...


class LeaderAndIsrHandler:
    def __init__(self, receiver: ControlReceiver, listener: str) -> None:
        self._receiver = receiver
        self._listener = listener

    async def handle(self, request: LeaderAndIsrRequest, exchange: Exchange) -> LeaderAndIsrResponse:
        wanted = control_wire.read_leader_and_isr(request, self._listener)
        response = await self._receiver.receive(wanted, exchange.channel)
        return control_wire.leader_and_isr_response(request, response, exchange.version)

    @staticmethod
    def error_response(request: LeaderAndIsrRequest, version: int, error: ProtocolError) -> LeaderAndIsrResponse:
        named = [(state.topic_name, state.partition_index) for state in request.ungrouped_partition_states]
        for topic in request.topic_states:
            named += [(topic.topic_name, state.partition_index) for state in topic.partition_states]
        return control_wire.leader_and_isr_response(request, _refused_control_request(named, error), version)


class StopReplicaHandler:
    def __init__(self, receiver: ControlReceiver) -> None:
        self._receiver = receiver

    async def handle(self, request: StopReplicaRequest, exchange: Exchange) -> StopReplicaResponse:
        wanted = control_wire.read_stop_replica(request)
        return control_wire.stop_replica_response(await self._receiver.receive(wanted, exchange.channel))

    @staticmethod
    def error_response(request: StopReplicaRequest, version: int, error: ProtocolError) -> StopReplicaResponse:
        named = [(each.topic_name, each.partition_index) for each in request.ungrouped_partitions]
        for old in request.topics:
            named += [(old.name, index) for index in old.partition_indexes]
        for topic in request.topic_states:
            named += [(topic.topic_name, state.partition_index) for state in topic.partition_states]
        return control_wire.stop_replica_response(_refused_control_request(named, error))


class UpdateMetadataHandler:
    def __init__(self, receiver: ControlReceiver) -> None:
        self._receiver = receiver

    async def handle(self, request: UpdateMetadataRequest, exchange: Exchange) -> UpdateMetadataResponse:
        update = await run_in_slices(control_wire.read_update_metadata(request, exchange.version))
        assert isinstance(update, UpdateMetadata)
        return UpdateMetadataResponse(error_code=(await self._receiver.receive(update, exchange.channel)).error)

    @staticmethod
    def error_response(request: UpdateMetadataRequest, version: int, error: ProtocolError) -> UpdateMetadataResponse:
        return UpdateMetadataResponse(error_code=error.code)


def _refused_control_request(named: list[tuple[str, int]], error: ProtocolError) -> ControlResponse:
    return ControlResponse(error.code, {TopicPartition(*each): error.code for each in named})


class ShutdownController(Protocol):
    async def controlled_shutdown(self, broker_id: BrokerId, broker_epoch: int) -> Sequence[TopicPartition]:
        """Move the leaders of a broker that stops; returns those that could not be moved."""
        ...


class ProducerIdController(Protocol):
    async def allocate_producer_ids(self, broker_id: BrokerId, broker_epoch: int) -> ProducerIdBlock: ...


class IsrController(Protocol):
    @property
    def image(self) -> ClusterImage: ...

    async def alter_partition(
        self, broker_id: BrokerId, broker_epoch: int, changes: Sequence[PartitionChange]
    ) -> Sequence[AlterPartitionResult]: ...


class ControlledShutdownHandler:
    def __init__(self, controller: ShutdownController) -> None:
        self._controller = controller

    async def handle(self, request: ControlledShutdownRequest, exchange: Exchange) -> ControlledShutdownResponse:
        left = await self._controller.controlled_shutdown(BrokerId(request.broker_id), request.broker_epoch)
        return ControlledShutdownResponse(
            error_code=NONE,
            remaining_partitions=[
                RemainingPartition(topic_name=topic, partition_index=partition) for topic, partition in left
            ],
        )

    @staticmethod
    def error_response(
        request: ControlledShutdownRequest, version: int, error: ProtocolError
    ) -> ControlledShutdownResponse:
        return ControlledShutdownResponse(error_code=error.code)


class AllocateProducerIdsHandler:
    def __init__(self, controller: ProducerIdController) -> None:
        self._controller = controller

    async def handle(self, request: AllocateProducerIdsRequest, exchange: Exchange) -> AllocateProducerIdsResponse:
        block = await self._controller.allocate_producer_ids(BrokerId(request.broker_id), request.broker_epoch)
        return AllocateProducerIdsResponse(producer_id_start=block.first, producer_id_len=block.last - block.first + 1)

    @staticmethod
    def error_response(
        request: AllocateProducerIdsRequest, version: int, error: ProtocolError
    ) -> AllocateProducerIdsResponse:
        return AllocateProducerIdsResponse(error_code=error.code)


class AlterPartitionHandler:
    """Topics are named before version 2, and known by their ids from then on.

    The controller knows the names of ids; what this broker was told of topics may be older. A leader that hears of an
    unknown id takes its topic for deleted, and does not ask again.
    """

    def __init__(self, controller: IsrController) -> None:
        self._controller = controller

    async def handle(self, request: AlterPartitionRequest, exchange: Exchange) -> AlterPartitionResponse:
        by_id = exchange.version >= 2
        known = self._controller.image.topic_names
        names = [(known.get(topic.topic_id) if by_id else topic.topic_name) for topic in request.topics]
        changes = [
            _change(TopicPartition(name, data.partition_index), data)
            for name, topic in zip(names, request.topics, strict=True)
            if name is not None
            for data in topic.partitions
        ]
        results = await self._controller.alter_partition(BrokerId(request.broker_id), request.broker_epoch, changes)
        by_partition = {result.partition: result for result in results}
        topics = []
        for name, topic in zip(names, request.topics, strict=True):
            answers = [
                _refused(data.partition_index, UnknownTopicIdError.code)
                if name is None
                else _answer(by_partition[TopicPartition(name, data.partition_index)])
                for data in topic.partitions
            ]
            topics.append(ResponseTopicData(topic_name=topic.topic_name, topic_id=topic.topic_id, partitions=answers))
        return AlterPartitionResponse(topics=topics)

    @staticmethod
    def error_response(request: AlterPartitionRequest, version: int, error: ProtocolError) -> AlterPartitionResponse:
        return AlterPartitionResponse(error_code=error.code)


def _change(partition: TopicPartition, data: RequestPartitionData) -> PartitionChange:
    """Epochs of the proposed replicas are there from version 3 on (KIP-903)."""
    isr = [(BrokerId(each.broker_id), each.broker_epoch) for each in data.new_isr_with_epochs]
    isr += [(BrokerId(each), ANY_BROKER_EPOCH) for each in data.new_isr]
    return PartitionChange(
        partition, LeaderEpoch(data.leader_epoch), tuple(isr), data.partition_epoch, data.leader_recovery_state
    )


def _answer(result: AlterPartitionResult) -> ResponsePartitionData:
    index, info = result.partition.partition, result.info
    if result.error is not None or info is None:
        return _refused(index, NONE if result.error is None else result.error.code)
    return ResponsePartitionData(
        partition_index=index,
        leader_id=info.leader,
        leader_epoch=info.leader_epoch,
        isr=list(info.isr),
        leader_recovery_state=info.leader_recovery_state,
        partition_epoch=info.partition_epoch,
    )


def _refused(index: int, code: int) -> ResponsePartitionData:
    return ResponsePartitionData(partition_index=index, error_code=code)
