"""Control requests on the wire: the values of `control_requests` as messages of any version, and back.

LeaderAndIsr    0-7    partitions by topic from 2, topic ids from 5, the recovery state from 6
UpdateMetadata  0-8    partitions by topic from 5, listener names from 3, offline replicas from 4, topic ids from 7
StopReplica     0-4    one delete flag for all partitions before 3, a leader epoch and a flag for each from 3

What an old version cannot say is left out, as Kafka's controller does.
"""

from __future__ import annotations

import struct
from collections.abc import Generator, Iterable, Iterator, Sequence
from itertools import groupby, islice
from typing import Final

from braidlog.cluster.control_requests import (
    ControlResponse,
    LeaderAndIsr,
    LeaderAndIsrPartition,
    MetadataPartition,
    StopReplica,
    StopReplicaPartition,
    UpdateMetadata,
)
from braidlog.cluster.image import BrokerInfo, PartitionInfo
from braidlog.core.protocol_errors import InvalidRequestError
from braidlog.core.types import BrokerId, Endpoint, LeaderEpoch, TopicPartition
from braidlog.wire.generated.leader_and_isr import (
    LeaderAndIsrLiveLeader,
    LeaderAndIsrPartitionError,
    LeaderAndIsrPartitionState,
    LeaderAndIsrRequest,
    LeaderAndIsrResponse,
    LeaderAndIsrTopicError,
    LeaderAndIsrTopicState,
)
from braidlog.wire.generated.stop_replica import (
    StopReplicaPartitionError,
    StopReplicaPartitionState,
    StopReplicaPartitionV0,
    StopReplicaRequest,
    StopReplicaResponse,
    StopReplicaTopicState,
    StopReplicaTopicV1,
)
from braidlog.wire.generated.update_metadata import (
    UpdateMetadataBroker,
    UpdateMetadataEndpoint,
    UpdateMetadataPartitionState,
    UpdateMetadataRequest,
    UpdateMetadataTopicState,
)
from braidlog.wire.message import ZERO_ID, Message
from braidlog.wire.writer import Writer

# By their numbers on the wire.
SECURITY_PROTOCOLS: Final = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
# A stop without an epoch, from a controller that is too old to send one: it is obeyed.
NO_LEADER_EPOCH: Final = -1

_BY_TOPIC_LEADER_AND_ISR: Final = 2
_TOPIC_IDS_LEADER_AND_ISR: Final = 5
_RECOVERY_STATE: Final = 6
_LISTENER_NAMES: Final = 3
_BY_TOPIC_UPDATE_METADATA: Final = 5
_KRAFT_FLAG_UPDATE_METADATA: Final = 8
_FLEXIBLE_UPDATE_METADATA: Final = 6
_BY_TOPIC_STOP_REPLICA: Final = 1
_STATES_STOP_REPLICA: Final = 3

# Partitions of a topic that are encoded, and by the receiver taken apart, in one go.
_PARTITIONS_TOGETHER: Final = 500


def _refuse_kraft(is_kraft_controller: bool) -> None:
    if is_kraft_controller:
        raise InvalidRequestError("this cluster has its controller in ZooKeeper, and no migration to KRaft goes on")


# LeaderAndIsr


def leader_and_isr_message(request: LeaderAndIsr, version: int, listener: str) -> LeaderAndIsrRequest:
    """`listener` is the one between brokers: leaders are named by their address there."""
    message = LeaderAndIsrRequest(
        controller_id=request.controller_id,
        controller_epoch=request.controller_epoch,
        broker_epoch=request.broker_epoch,
        live_leaders=[
            LeaderAndIsrLiveLeader(broker_id=leader.id, host_name=at.host, port=at.port)
            for leader in request.leaders.values()
            if (at := leader.endpoint(listener)) is not None
        ],
    )
    if version < _BY_TOPIC_LEADER_AND_ISR:
        message.ungrouped_partition_states = [_leader_state(each, version) for each in request.partitions]
    else:
        message.topic_states = [
            LeaderAndIsrTopicState(
                topic_name=topic, topic_id=topic_id, partition_states=[_leader_state(each, version) for each in some]
            )
            for (topic, topic_id), some in _whole_topics(request.partitions).items()
        ]
    return message


def _whole_topics(
    partitions: Iterable[LeaderAndIsrPartition],
) -> dict[tuple[str, bytes], list[LeaderAndIsrPartition]]:
    """Kafka's brokers fail on a LeaderAndIsr that names a topic twice."""
    topics: dict[tuple[str, bytes], list[LeaderAndIsrPartition]] = {}
    for each in partitions:
        topics.setdefault((each.topic, each.topic_id), []).append(each)
    return topics


def _leader_state(partition: LeaderAndIsrPartition, version: int) -> LeaderAndIsrPartitionState:
    info = partition.info
    return LeaderAndIsrPartitionState(
        topic_name=partition.topic,
        partition_index=partition.partition,
        controller_epoch=info.controller_epoch,
        leader=info.leader,
        leader_epoch=info.leader_epoch,
        isr=list(info.isr),
        partition_epoch=info.partition_epoch,
        replicas=list(info.replicas),
        adding_replicas=list(info.adding),
        removing_replicas=list(info.removing),
        is_new=partition.is_new,
        leader_recovery_state=info.leader_recovery_state if version >= _RECOVERY_STATE else 0,
    )


def read_leader_and_isr(message: LeaderAndIsrRequest, listener: str) -> LeaderAndIsr:
    _refuse_kraft(message.is_kraft_controller)
    partitions = [_leader_partition(state.topic_name, ZERO_ID, state) for state in message.ungrouped_partition_states]
    for topic in message.topic_states:
        partitions += [_leader_partition(topic.topic_name, topic.topic_id, state) for state in topic.partition_states]
    return LeaderAndIsr(
        BrokerId(message.controller_id),
        message.controller_epoch,
        message.broker_epoch,
        partitions,
        {
            BrokerId(leader.broker_id): BrokerInfo(
                BrokerId(leader.broker_id), -1, (Endpoint(listener, leader.host_name, leader.port),)
            )
            for leader in message.live_leaders
        },
    )


def _leader_partition(topic: str, topic_id: bytes, state: LeaderAndIsrPartitionState) -> LeaderAndIsrPartition:
    info = PartitionInfo(
        leader=BrokerId(state.leader),
        leader_epoch=LeaderEpoch(state.leader_epoch),
        isr=_ids(state.isr),
        replicas=_ids(state.replicas),
        adding=_ids(state.adding_replicas),
        removing=_ids(state.removing_replicas),
        controller_epoch=state.controller_epoch,
        partition_epoch=state.partition_epoch,
        leader_recovery_state=state.leader_recovery_state,
    )
    return LeaderAndIsrPartition(topic, topic_id, state.partition_index, info, state.is_new)


def _ids(ids: Sequence[int]) -> tuple[BrokerId, ...]:
    return tuple(map(BrokerId, ids))


def leader_and_isr_response(
    request: LeaderAndIsrRequest, response: ControlResponse, version: int
) -> LeaderAndIsrResponse:
    """From version 5 topics are named by their ids, which `request` has."""
    message = LeaderAndIsrResponse(error_code=response.error)
    if version < _TOPIC_IDS_LEADER_AND_ISR:
        message.partition_errors = [
            LeaderAndIsrPartitionError(topic_name=topic, partition_index=partition, error_code=error)
            for (topic, partition), error in response.partitions.items()
        ]
        return message
    topic_ids = {topic.topic_name: topic.topic_id for topic in request.topic_states}
    for topic, some in groupby(response.partitions.items(), key=lambda each: each[0].topic):
        errors = [LeaderAndIsrPartitionError(partition_index=at.partition, error_code=error) for at, error in some]
        message.topics.append(LeaderAndIsrTopicError(topic_id=topic_ids[topic], partition_errors=errors))
    return message


def read_leader_and_isr_response(request: LeaderAndIsr, message: LeaderAndIsrResponse) -> ControlResponse:
    partitions = {
        TopicPartition(each.topic_name, each.partition_index): each.error_code for each in message.partition_errors
    }
    names = {each.topic_id: each.topic for each in request.partitions}
    for topic in message.topics:
        name = names.get(topic.topic_id)
        if name is not None:
            for each in topic.partition_errors:
                partitions[TopicPartition(name, each.partition_index)] = each.error_code
    return ControlResponse(message.error_code, partitions)


# UpdateMetadata


class EncodedUpdateMetadata(Message):
    """The body of an UpdateMetadata in one version, for any broker: only the broker epoch in it differs."""

    __slots__ = ("_after", "_before", "broker_epoch", "version")

    def __init__(self, version: int, before: bytes, after: bytes, broker_epoch: int) -> None:
        self.version = version
        self._before = before
        # None of it is copied for another broker.
        self._after = after
        self.broker_epoch = broker_epoch

    def for_broker(self, broker_epoch: int) -> EncodedUpdateMetadata:
        return EncodedUpdateMetadata(self.version, self._before, self._after, broker_epoch)

    def encode(self, w: Writer, version: int) -> None:
        assert version == self.version
        w.out.write(self._before)
        if version >= _BY_TOPIC_UPDATE_METADATA:
            w.int64(self.broker_epoch)
        w.out.write(self._after)


def encode_update_metadata(request: UpdateMetadata, version: int) -> Generator[None, None, EncodedUpdateMetadata]:
    """Yields between topics, as a cluster may have very many; the layout is that of `UpdateMetadataRequest`."""
    flexible = version >= _FLEXIBLE_UPDATE_METADATA
    before = struct.pack(">i", request.controller_id)
    if version >= _KRAFT_FLAG_UPDATE_METADATA:
        before += b"\0"
    before += struct.pack(">i", request.controller_epoch)
    w = Writer()
    if version < _BY_TOPIC_UPDATE_METADATA:
        w.count(len(request.partitions), flexible)
        for partition in request.partitions:
            _metadata_state(partition).encode(w, version)
            yield
    else:
        topics = list(_by_topic(request.partitions))
        w.count(len(topics), flexible)
        for name, topic_id, some in topics:
            states = [_metadata_state(each) for each in some]
            UpdateMetadataTopicState(topic_name=name, topic_id=topic_id, partition_states=states).encode(w, version)
            yield
    w.count(len(request.brokers), flexible)
    for broker in request.brokers.values():
        _live_broker(broker).encode(w, version)
    if flexible:
        w.uvarint(0)
    return EncodedUpdateMetadata(version, before, w.getvalue(), request.broker_epoch)


def _by_topic(partitions: Iterable[MetadataPartition]) -> Iterator[tuple[str, bytes, list[MetadataPartition]]]:
    """Neighbours of the same topic together. One that comes back later is named again, and so is a large one: here
    that is valid, and both sides have a rest in between."""
    for (topic, topic_id), all_of_it in groupby(partitions, key=lambda each: (each.topic, each.topic_id)):
        while some := list(islice(all_of_it, _PARTITIONS_TOGETHER)):
            yield topic, topic_id, some


def _metadata_state(partition: MetadataPartition) -> UpdateMetadataPartitionState:
    info = partition.info
    return UpdateMetadataPartitionState(
        topic_name=partition.topic,
        partition_index=partition.partition,
        controller_epoch=info.controller_epoch,
        leader=info.leader,
        leader_epoch=info.leader_epoch,
        isr=list(info.isr),
        zk_version=info.partition_epoch,
        replicas=list(info.replicas),
        offline_replicas=list(info.offline),
    )


def _live_broker(broker: BrokerInfo) -> UpdateMetadataBroker:
    endpoints = [
        UpdateMetadataEndpoint(
            port=endpoint.port,
            host=endpoint.host,
            listener=endpoint.listener,
            security_protocol=SECURITY_PROTOCOLS.index(broker.security_protocols.get(endpoint.listener, "PLAINTEXT")),
        )
        for endpoint in broker.endpoints
    ]
    # The oldest version knows one address, in clear text.
    plain = next((each for each in endpoints if each.security_protocol == 0), None)
    return UpdateMetadataBroker(
        id=broker.id,
        v0_host="" if plain is None else plain.host,
        v0_port=-1 if plain is None else plain.port,
        endpoints=endpoints,
        rack=broker.rack,
    )


def read_update_metadata(message: UpdateMetadataRequest, version: int) -> Generator[None, None, UpdateMetadata]:
    """Yields between topics."""
    _refuse_kraft(message.is_kraft_controller)
    partitions = [_metadata_partition(state.topic_name, ZERO_ID, state) for state in message.ungrouped_partition_states]
    for topic in message.topic_states:
        partitions += [_metadata_partition(topic.topic_name, topic.topic_id, state) for state in topic.partition_states]
        yield
    brokers = {BrokerId(each.id): _broker_info(each, version) for each in message.live_brokers}
    return UpdateMetadata(
        BrokerId(message.controller_id), message.controller_epoch, message.broker_epoch, brokers, partitions
    )


def _metadata_partition(topic: str, topic_id: bytes, state: UpdateMetadataPartitionState) -> MetadataPartition:
    info = PartitionInfo(
        leader=BrokerId(state.leader),
        leader_epoch=LeaderEpoch(state.leader_epoch),
        isr=_ids(state.isr),
        replicas=_ids(state.replicas),
        controller_epoch=state.controller_epoch,
        partition_epoch=state.zk_version,
        offline=_ids(state.offline_replicas),
    )
    return MetadataPartition(topic, topic_id, state.partition_index, info)


def _broker_info(broker: UpdateMetadataBroker, version: int) -> BrokerInfo:
    if version == 0:
        plaintext = SECURITY_PROTOCOLS[0]
        endpoints: tuple[Endpoint, ...] = (Endpoint(plaintext, broker.v0_host, broker.v0_port),)
        return BrokerInfo(BrokerId(broker.id), -1, endpoints, {plaintext: plaintext})
    named: list[Endpoint] = []
    protocols: dict[str, str] = {}
    for each in broker.endpoints:
        if not 0 <= each.security_protocol < len(SECURITY_PROTOCOLS):
            raise InvalidRequestError(f"broker {broker.id} has a listener of an unknown security protocol")
        protocol = SECURITY_PROTOCOLS[each.security_protocol]
        # Before listeners had names they were told apart by their protocols.
        listener = each.listener if version >= _LISTENER_NAMES else protocol
        named.append(Endpoint(listener, each.host, each.port))
        protocols[listener] = protocol
    return BrokerInfo(BrokerId(broker.id), -1, tuple(named), protocols, broker.rack or None)


# StopReplica


def stop_replica_messages(request: StopReplica, version: int) -> list[StopReplicaRequest]:
    """One message, but before version 3 one for the replicas to delete and one for the others."""
    if version >= _STATES_STOP_REPLICA:
        message = _stop_replica(request)
        message.topic_states = [
            StopReplicaTopicState(
                topic_name=topic,
                partition_states=[
                    StopReplicaPartitionState(
                        partition_index=each.partition, leader_epoch=each.leader_epoch, delete_partition=each.delete
                    )
                    for each in some
                ],
            )
            for topic, some in groupby(request.partitions, key=lambda each: each.topic)
        ]
        return [message]
    messages = []
    for delete in (False, True):
        wanted = [each for each in request.partitions if each.delete is delete]
        if not wanted:
            continue
        message = _stop_replica(request)
        message.delete_partitions = delete
        if version < _BY_TOPIC_STOP_REPLICA:
            message.ungrouped_partitions = [
                StopReplicaPartitionV0(topic_name=each.topic, partition_index=each.partition) for each in wanted
            ]
        else:
            message.topics = [
                StopReplicaTopicV1(name=topic, partition_indexes=[each.partition for each in some])
                for topic, some in groupby(wanted, key=lambda each: each.topic)
            ]
        messages.append(message)
    return messages


def _stop_replica(request: StopReplica) -> StopReplicaRequest:
    return StopReplicaRequest(
        controller_id=request.controller_id,
        controller_epoch=request.controller_epoch,
        broker_epoch=request.broker_epoch,
    )


def read_stop_replica(message: StopReplicaRequest) -> StopReplica:
    _refuse_kraft(message.is_kraft_controller)
    delete = message.delete_partitions
    partitions = [
        StopReplicaPartition(each.topic_name, each.partition_index, NO_LEADER_EPOCH, delete)
        for each in message.ungrouped_partitions
    ]
    for old in message.topics:
        partitions += [
            StopReplicaPartition(old.name, index, NO_LEADER_EPOCH, delete) for index in old.partition_indexes
        ]
    for topic in message.topic_states:
        partitions += [
            StopReplicaPartition(topic.topic_name, each.partition_index, each.leader_epoch, each.delete_partition)
            for each in topic.partition_states
        ]
    return StopReplica(BrokerId(message.controller_id), message.controller_epoch, message.broker_epoch, partitions)


def stop_replica_response(response: ControlResponse) -> StopReplicaResponse:
    return StopReplicaResponse(
        error_code=response.error,
        partition_errors=[
            StopReplicaPartitionError(topic_name=topic, partition_index=partition, error_code=error)
            for (topic, partition), error in response.partitions.items()
        ],
    )


def read_stop_replica_response(message: StopReplicaResponse) -> ControlResponse:
    return ControlResponse(
        message.error_code,
        {TopicPartition(each.topic_name, each.partition_index): each.error_code for each in message.partition_errors},
    )


def merged(responses: Sequence[ControlResponse]) -> ControlResponse:
    """Of one request that went as several messages."""
    partitions: dict[TopicPartition, int] = {}
    error = 0
    for response in responses:
        error = error or response.error
        partitions.update(response.partitions)
    return ControlResponse(error, partitions)
