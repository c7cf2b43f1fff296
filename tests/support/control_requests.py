"""Control requests as a controller of one broker would send them, with defaults that pass every check."""

from __future__ import annotations

from collections.abc import Mapping

from braidlog.cluster.control_requests import (
    ANY_BROKER_EPOCH,
    LEADER_DURING_DELETE,
    LeaderAndIsr,
    LeaderAndIsrPartition,
    MetadataPartition,
    StopReplica,
    StopReplicaPartition,
    UpdateMetadata,
)
from braidlog.cluster.image import BrokerInfo, PartitionInfo
from braidlog.core.types import BrokerId, Endpoint, LeaderEpoch

CONTROLLER = BrokerId(9)


def topic_id(topic: str, made: int = 0) -> bytes:
    """Of the topic as it was made for the n-th time."""
    return f"{topic}#{made}".encode().ljust(16, b"-")


def led_by(leader: int, *others: int, epoch: int = 0) -> PartitionInfo:
    replicas = tuple(BrokerId(each) for each in (leader, *others))
    return PartitionInfo(replicas[0], LeaderEpoch(epoch), replicas, replicas)


DELETED = led_by(1)._replace(leader=LEADER_DURING_DELETE)


def broker(number: int, *listeners: str) -> BrokerInfo:
    endpoints = tuple(Endpoint(listener, f"host{number}", 9092) for listener in listeners or ("PLAINTEXT",))
    return BrokerInfo(BrokerId(number), number, endpoints)


def brokers(*numbers: int) -> dict[BrokerId, BrokerInfo]:
    return {BrokerId(number): broker(number) for number in numbers}


def leader_and_isr(
    topic: str,
    partitions: Mapping[int, PartitionInfo],
    *,
    made: int = 0,
    is_new: bool = True,
    controller_epoch: int = 1,
    broker_epoch: int = ANY_BROKER_EPOCH,
) -> LeaderAndIsr:
    states = [
        LeaderAndIsrPartition(topic, topic_id(topic, made), index, info, is_new) for index, info in partitions.items()
    ]
    return LeaderAndIsr(CONTROLLER, controller_epoch, broker_epoch, states)


def update_metadata(
    topic: str = "",
    partitions: Mapping[int, PartitionInfo] | None = None,
    *,
    made: int = 0,
    live: Mapping[BrokerId, BrokerInfo] | None = None,
    controller: BrokerId = CONTROLLER,
    controller_epoch: int = 1,
    broker_epoch: int = ANY_BROKER_EPOCH,
) -> UpdateMetadata:
    named = [MetadataPartition(topic, topic_id(topic, made), index, info) for index, info in (partitions or {}).items()]
    return UpdateMetadata(controller, controller_epoch, broker_epoch, brokers(1) if live is None else live, named)


def stop_replica(
    topic: str,
    *partitions: int,
    leader_epoch: int = 0,
    delete: bool = False,
    controller_epoch: int = 1,
    broker_epoch: int = ANY_BROKER_EPOCH,
) -> StopReplica:
    named = [StopReplicaPartition(topic, index, leader_epoch, delete) for index in partitions]
    return StopReplica(CONTROLLER, controller_epoch, broker_epoch, named)
