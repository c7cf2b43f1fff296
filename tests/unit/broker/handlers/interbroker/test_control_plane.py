from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from braidlog.broker.handlers.interbroker.control_plane import (
    AllocateProducerIdsHandler,
    AlterPartitionHandler,
    ControlledShutdownHandler,
)
from braidlog.cluster.image import ClusterImage, ImageDelta, PartitionInfo, TopicImage
from braidlog.cluster.records import ProducerIdBlock
from braidlog.controller.requests import AlterPartitionResult, PartitionChange
from braidlog.core.protocol_errors import FencedLeaderEpochError, NotControllerError, UnknownTopicIdError
from braidlog.core.types import BrokerId, LeaderEpoch, TopicPartition
from braidlog.wire.generated.allocate_producer_ids import AllocateProducerIdsRequest
from braidlog.wire.generated.alter_partition import (
    AlterPartitionRequest,
    BrokerState,
    RequestPartitionData,
    RequestTopicData,
)
from braidlog.wire.generated.controlled_shutdown import ControlledShutdownRequest
from support.controller_cluster import Cluster, create, in_cluster, state

TOPIC_ID = bytes(range(16))
INFO = PartitionInfo(
    BrokerId(1), LeaderEpoch(5), (BrokerId(1), BrokerId(2)), (BrokerId(1), BrokerId(2)), partition_epoch=8
)


class Controller:
    def __init__(self) -> None:
        self.changes: Sequence[PartitionChange] = ()
        self.image = ClusterImage().apply(ImageDelta(topics_created=(TopicImage("orders", TOPIC_ID, (INFO,)),)))

    async def controlled_shutdown(self, broker_id: BrokerId, broker_epoch: int) -> list[TopicPartition]:
        assert (broker_id, broker_epoch) == (1, 77)
        return [TopicPartition("orders", 3)]

    async def allocate_producer_ids(self, broker_id: BrokerId, broker_epoch: int) -> ProducerIdBlock:
        return ProducerIdBlock(broker_id, 2000, 2999)

    async def alter_partition(
        self, broker_id: BrokerId, broker_epoch: int, changes: Sequence[PartitionChange]
    ) -> list[AlterPartitionResult]:
        self.changes = changes
        return [
            AlterPartitionResult(each.partition, None, INFO)
            if each.partition.partition == 0
            else AlterPartitionResult(each.partition, FencedLeaderEpochError())
            for each in changes
        ]


class ExchangeOfVersion:
    def __init__(self, version: int) -> None:
        self.version = version


def handled(handler: Any, request: Any, version: int) -> Any:
    return asyncio.run(handler.handle(request, ExchangeOfVersion(version)))


def test_what_a_stopping_broker_still_leads_is_named() -> None:
    request = ControlledShutdownRequest(broker_id=1, broker_epoch=77)
    response = handled(ControlledShutdownHandler(Controller()), request, 3)
    assert [(each.topic_name, each.partition_index) for each in response.remaining_partitions] == [("orders", 3)]
    assert ControlledShutdownHandler.error_response(request, 3, NotControllerError()).error_code == 41


def test_a_block_of_producer_ids_is_its_start_and_length() -> None:
    request = AllocateProducerIdsRequest(broker_id=1, broker_epoch=77)
    response = handled(AllocateProducerIdsHandler(Controller()), request, 0)
    assert (response.producer_id_start, response.producer_id_len) == (2000, 1000)
    assert AllocateProducerIdsHandler.error_response(request, 0, NotControllerError()).error_code == 41


def test_isr_changes_come_by_name_or_id_with_epochs_or_without() -> None:
    for version in range(4):
        controller = Controller()
        handler = AlterPartitionHandler(controller)
        proposal: dict[str, Any] = {"new_isr": [1, 2]}
        if version >= 3:
            proposal = {"new_isr_with_epochs": [BrokerState(broker_id=1, broker_epoch=7), BrokerState(broker_id=2)]}
        partitions = [
            RequestPartitionData(partition_index=index, leader_epoch=5, partition_epoch=7, **proposal)
            for index in (0, 1)
        ]
        topics = [RequestTopicData(topic_name="orders", topic_id=TOPIC_ID, partitions=partitions)]
        if version >= 2:
            topics.append(RequestTopicData(topic_id=bytes(16), partitions=partitions[:1]))
        response = handled(handler, AlterPartitionRequest(broker_id=1, broker_epoch=77, topics=topics), version)
        assert [change.partition for change in controller.changes] == [("orders", 0), ("orders", 1)]
        assert controller.changes[0].isr == (((1, 7), (2, -1)) if version >= 3 else ((1, -1), (2, -1)))
        changed, fenced = response.topics[0].partitions
        assert (changed.error_code, changed.leader_id, changed.isr, changed.partition_epoch) == (0, 1, [1, 2], 8)
        assert fenced.error_code == FencedLeaderEpochError.code
        if version >= 2:
            assert response.topics[1].partitions[0].error_code == UnknownTopicIdError.code
        assert handler.error_response(AlterPartitionRequest(), version, NotControllerError()).error_code == 41


@in_cluster(1, 2)
async def test_a_controller_knows_topics_by_their_ids_before_its_broker_is_told_of_them(cluster: Cluster) -> None:
    """A leader would take its topic for deleted, and never ask again."""
    await create(cluster, "t", (1, 2))
    topic = cluster.controller.image.topics["t"]
    shrunk = RequestPartitionData(
        partition_index=0, new_isr_with_epochs=[BrokerState(broker_id=1)], partition_epoch=0, leader_epoch=0
    )
    request = AlterPartitionRequest(
        broker_id=1, broker_epoch=-1, topics=[RequestTopicData(topic_id=topic.topic_id, partitions=[shrunk])]
    )
    handler: Any = AlterPartitionHandler(cluster.controller)
    response = await handler.handle(request, ExchangeOfVersion(3))
    (answer,) = response.topics[0].partitions
    assert (answer.error_code, answer.isr) == (0, [1])
    assert state(cluster) == (1, 0, (1,))
