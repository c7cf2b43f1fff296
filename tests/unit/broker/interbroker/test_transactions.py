"""Markers go to the leaders of partitions, and questions to coordinators, wherever they are."""

from __future__ import annotations

import asyncio
from random import Random
from typing import cast

from braidlog.broker.coordinators.add_partitions_manager import PartitionErrors
from braidlog.broker.coordinators.marker_writer import MarkerDone, MarkerWriter
from braidlog.broker.interbroker.network import InterBrokerNetwork
from braidlog.broker.interbroker.transactions import RemoteTransactions
from braidlog.cluster.image import BrokerInfo, ClusterImage, ImageDelta, PartitionInfo, TopicImage
from braidlog.config.broker import BrokerSettings
from braidlog.coordinator.effects import SendMarkers
from braidlog.core.protocol_errors import InvalidProducerEpochError, NotLeaderOrFollowerError, ProtocolError
from braidlog.core.tasks import Tasks
from braidlog.core.types import BrokerId, Endpoint, LeaderEpoch, TopicPartition
from braidlog.wire.generated.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopicResult,
    AddPartitionsToTxnTransaction,
)
from braidlog.wire.generated.write_txn_markers import (
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from braidlog.wire.message import Message
from support.scripted_broker import HANG_UP, Answer, ScriptedBroker

HERE, THERE = TopicPartition("orders", 0), TopicPartition("orders", 1)


class LocalMarkers:
    def __init__(self) -> None:
        self.written: list[TopicPartition] = []

    def write(self, markers: SendMarkers, done: MarkerDone) -> None:
        self.written += markers.partitions
        for target in markers.partitions:
            done(target, None)


def led_by(*leaders: int) -> tuple[PartitionInfo, ...]:
    ids = [BrokerId(leader) for leader in leaders]
    return tuple(PartitionInfo(leader, LeaderEpoch(1), (leader,), (leader,)) for leader in ids)


def image_with(port: int, coordinator: int) -> ClusterImage:
    brokers = {
        BrokerId(each): BrokerInfo(BrokerId(each), -1, (Endpoint("PLAINTEXT", "127.0.0.1", port),)) for each in (0, 1)
    }
    topics = (
        TopicImage("orders", bytes(16), led_by(0, 1)),
        TopicImage("__transaction_state", bytes(15) + b"1", led_by(coordinator)),
    )
    return ClusterImage().apply(ImageDelta(topics_created=topics, brokers=brokers))


def remote(port: int, local: LocalMarkers, coordinator: int = 1) -> RemoteTransactions:
    network = InterBrokerNetwork(BrokerId(0), "PLAINTEXT", lambda: BrokerSettings({}), Random(1))
    image = image_with(port, coordinator)
    return RemoteTransactions(BrokerId(0), network, lambda: image, cast("MarkerWriter", local), Tasks("test"))


async def marked(transactions: RemoteTransactions) -> dict[TopicPartition, ProtocolError | None]:
    results: dict[TopicPartition, ProtocolError | None] = {}
    all_done = asyncio.Event()

    def done(target: TopicPartition, error: ProtocolError | None) -> None:
        results[target] = error
        if len(results) == 2:
            all_done.set()

    transactions.write_markers(SendMarkers("x", 7, 1, True, [HERE, THERE], 3), done)
    await asyncio.wait_for(all_done.wait(), 30)
    return results


def test_markers_go_to_the_leader_of_each_partition() -> None:
    asked: list[WriteTxnMarkersRequest] = []

    def script(key: int, request: Message) -> Answer:
        assert isinstance(request, WriteTxnMarkersRequest)
        asked.append(request)
        if len(asked) == 2:
            return HANG_UP
        result = WritableTxnMarkerPartitionResult(partition_index=1, error_code=0)
        topic = WritableTxnMarkerTopicResult(name="orders", partitions=[result])
        return WriteTxnMarkersResponse(markers=[WritableTxnMarkerResult(producer_id=7, topics=[topic])])

    async def run() -> None:
        async with ScriptedBroker(script, offered=(18, 27)) as broker:
            local = LocalMarkers()
            transactions = remote(broker.port, local)
            assert await marked(transactions) == {HERE: None, THERE: None}
            assert local.written == [HERE]
            marker = asked[0].markers[0]
            assert (marker.producer_id, marker.producer_epoch, marker.coordinator_epoch) == (7, 1, 3)
            assert marker.transaction_result
            assert [(topic.name, topic.partition_indexes) for topic in marker.topics] == [("orders", [1])]
            # Whoever is told of a broker that went away tries again.
            lost = await marked(transactions)
            assert lost[HERE] is None
            assert isinstance(lost[THERE], NotLeaderOrFollowerError)

    asyncio.run(run())


def test_a_coordinator_elsewhere_is_asked() -> None:
    def script(key: int, request: Message) -> Answer:
        assert isinstance(request, AddPartitionsToTxnRequest)
        assert request.transactions[0].verify_only
        result = AddPartitionsToTxnPartitionResult(partition_index=0, partition_error_code=90)
        topic = AddPartitionsToTxnTopicResult(name="orders", results_by_partition=[result])
        answer = AddPartitionsToTxnResult(transactional_id="x", topic_results=[topic])
        return AddPartitionsToTxnResponse(results_by_transaction=[answer])

    async def run() -> None:
        async with ScriptedBroker(script, offered=(18, 24)) as broker:
            wanted = AddPartitionsToTxnTransaction(transactional_id="x", producer_id=7, verify_only=True)
            answered: asyncio.Future[PartitionErrors] = asyncio.get_running_loop().create_future()
            assert remote(broker.port, LocalMarkers()).ask_coordinator(wanted, [HERE], answered.set_result)
            # A fenced producer is told as a partition tells it.
            assert isinstance((await asyncio.wait_for(answered, 30))[HERE], InvalidProducerEpochError)
            # The coordinator of this broker is asked without a request.
            here = remote(broker.port, LocalMarkers(), coordinator=0)
            assert not here.ask_coordinator(wanted, [HERE], lambda answers: None)

    asyncio.run(run())
