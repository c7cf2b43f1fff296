"""Markers go to the leaders of partitions, and questions to coordinators, wherever they are."""

from __future__ import annotations

import asyncio
from random import Random
from typing import cast

import pytest

from braidlog.broker.coordinators.marker_writer import MarkerDone, MarkerWriter
from braidlog.broker.interbroker.network import InterBrokerNetwork
from braidlog.broker.interbroker.transactions import RemoteTransactions
from braidlog.cluster.image import BrokerInfo, ClusterImage, ImageDelta, PartitionInfo, TopicImage
from braidlog.config.broker import BrokerSettings
from braidlog.coordinator.effects import SendMarkers
from braidlog.coordinator.runtime import FutureResponder
from braidlog.core.protocol_errors import (
    CoordinatorNotAvailableError,
    NetworkError,
    NotLeaderOrFollowerError,
    ProtocolError,
)
from braidlog.core.tasks import Tasks
from braidlog.core.types import BrokerId, Endpoint, LeaderEpoch, TopicPartition
from braidlog.net.outbound.reconnecting_connection import ReconnectingConnection
from braidlog.wire.generated.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopic,
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
from support.scripted_broker import HANG_UP, SILENCE, Answer, ScriptedBroker

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


class Transactions(RemoteTransactions):
    """With an image that a test may replace."""

    def __init__(self, port: int, local: LocalMarkers, coordinator: int) -> None:
        self.image = image_with(port, coordinator)
        network = InterBrokerNetwork(BrokerId(0), "PLAINTEXT", lambda: BrokerSettings({}), Random(1))
        super().__init__(
            BrokerId(0), network, lambda: self.image, cast("MarkerWriter", local), lambda name: 0, Tasks("test")
        )


def remote(port: int, local: LocalMarkers, coordinator: int = 1) -> Transactions:
    return Transactions(port, local, coordinator)


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


def test_a_marker_follows_its_partition_to_another_leader() -> None:
    """Each try goes where the leader is by then, with the coordinator's epoch."""
    asked: list[WriteTxnMarkersRequest] = []

    def script(key: int, request: Message) -> Answer:
        assert isinstance(request, WriteTxnMarkersRequest)
        asked.append(request)
        (topic,) = request.markers[0].topics
        code = 0 if topic.partition_indexes == [0] else NotLeaderOrFollowerError.code
        results = [
            WritableTxnMarkerPartitionResult(partition_index=i, error_code=code) for i in topic.partition_indexes
        ]
        answer = WritableTxnMarkerTopicResult(name="orders", partitions=results)
        return WriteTxnMarkersResponse(markers=[WritableTxnMarkerResult(producer_id=7, topics=[answer])])

    async def run() -> None:
        async with ScriptedBroker(script, offered=(18, 27)) as broker:
            local = LocalMarkers()
            transactions = remote(broker.port, local)
            first = await marked(transactions)
            assert isinstance(first[THERE], NotLeaderOrFollowerError)
            moved = TopicImage("orders", bytes(16), led_by(1, 0))
            before = transactions.image.topics["orders"]
            transactions.image = transactions.image.apply(ImageDelta(topics_changed=((before, moved),)))
            assert await marked(transactions) == {HERE: None, THERE: None}
            assert local.written == [HERE, THERE]
            assert [marker.coordinator_epoch for request in asked for marker in request.markers] == [3, 3]

    asyncio.run(run())


def verified(transactional_id: str, code: int = 0) -> AddPartitionsToTxnResult:
    result = AddPartitionsToTxnPartitionResult(partition_index=0, partition_error_code=code)
    topic = AddPartitionsToTxnTopicResult(name="orders", results_by_partition=[result])
    return AddPartitionsToTxnResult(transactional_id=transactional_id, topic_results=[topic])


def question(transactional_id: str, *, verify_only: bool = True) -> AddPartitionsToTxnTransaction:
    topics = [AddPartitionsToTxnTopic(name="orders", partitions=[0])]
    return AddPartitionsToTxnTransaction(
        transactional_id=transactional_id, producer_id=7, verify_only=verify_only, topics=topics
    )


def ask(transactions: RemoteTransactions, *questions: AddPartitionsToTxnTransaction) -> list[FutureResponder]:
    responders = [FutureResponder() for _ in questions]
    for wanted, responder in zip(questions, responders, strict=True):
        assert transactions.ask_coordinator(wanted, responder)
    return responders


async def code_of(responder: FutureResponder) -> int:
    answer = await asyncio.wait_for(responder.future, 30)
    assert isinstance(answer, AddPartitionsToTxnResult)
    return answer.topic_results[0].results_by_partition[0].partition_error_code


def test_a_coordinator_elsewhere_is_asked() -> None:
    def script(key: int, request: Message) -> Answer:
        assert isinstance(request, AddPartitionsToTxnRequest)
        assert request.transactions[0].verify_only
        return AddPartitionsToTxnResponse(results_by_transaction=[verified("x", 90)])

    async def run() -> None:
        async with ScriptedBroker(script, offered=(18, 24)) as broker:
            (asked,) = ask(remote(broker.port, LocalMarkers()), question("x"))
            assert await code_of(asked) == 90
            # The coordinator of this broker is asked without a request.
            here = remote(broker.port, LocalMarkers(), coordinator=0)
            assert not here.ask_coordinator(question("x"), FutureResponder())

    asyncio.run(run())


def test_questions_that_come_while_one_is_under_way_share_the_next_request() -> None:
    requests: list[list[str]] = []

    def script(key: int, request: Message) -> Answer:
        assert isinstance(request, AddPartitionsToTxnRequest)
        names = [each.transactional_id for each in request.transactions]
        requests.append(names)
        return AddPartitionsToTxnResponse(results_by_transaction=[verified(name) for name in names])

    async def run() -> None:
        async with ScriptedBroker(script, offered=(18, 24)) as broker:
            transactions = remote(broker.port, LocalMarkers())
            first = ask(transactions, question("a"))
            await asyncio.sleep(0)
            asked = [*first, *ask(transactions, *map(question, ["b", "c", "b", "d"]))]
            assert [await code_of(each) for each in asked] == [0] * 5
            # An answer names a transactional id, so that no request names one twice.
            assert requests == [["a"], ["b", "c", "d"], ["b"]]

    asyncio.run(run())


def test_a_coordinator_that_is_lost_or_not_known_is_an_error_that_passes() -> None:
    async def run() -> None:
        async with ScriptedBroker(lambda key, request: HANG_UP, offered=(18, 24)) as broker:
            asked = ask(remote(broker.port, LocalMarkers()), question("x"), question("y"))
            for each in asked:
                with pytest.raises(NetworkError):
                    await asyncio.wait_for(each.future, 30)
            (unknown,) = ask(remote(broker.port, LocalMarkers(), coordinator=-1), question("x"))
            with pytest.raises(CoordinatorNotAvailableError):
                await unknown.future

    asyncio.run(run())


def test_a_broker_too_old_to_verify_keeps_nobody_out() -> None:
    async def run() -> None:
        async with ScriptedBroker(lambda key, request: HANG_UP, offered=(18,)) as broker:
            transactions = remote(broker.port, LocalMarkers())
            verifies, adds = ask(transactions, question("x"), question("y", verify_only=False))
            assert await code_of(verifies) == 0
            with pytest.raises(NetworkError):
                await adds.future

    asyncio.run(run())


def test_a_broker_that_stops_hangs_up() -> None:
    async def run() -> None:
        heard = asyncio.Event()

        def script(key: int, request: Message) -> Answer:
            heard.set()
            return SILENCE

        async with ScriptedBroker(script, offered=(18, 24)) as broker:
            transactions = remote(broker.port, LocalMarkers())
            (asked,) = ask(transactions, question("x"))
            await asyncio.wait_for(heard.wait(), 30)
            transactions.close()
            with pytest.raises(NetworkError):
                await asyncio.wait_for(asked.future, 30)

    asyncio.run(run())


class BrokenNetwork(InterBrokerNetwork):
    def connect(self, broker: BrokerInfo, purpose: str) -> ReconnectingConnection:
        raise RuntimeError("broken")


def test_whoever_waits_is_answered_when_asking_fails_unexpectedly(caplog: pytest.LogCaptureFixture) -> None:
    async def run() -> None:
        transactions = remote(1, LocalMarkers())
        transactions._network = BrokenNetwork(BrokerId(0), "PLAINTEXT", lambda: BrokerSettings({}), Random(1))
        assert isinstance((await marked(transactions))[THERE], NotLeaderOrFollowerError)
        (responder,) = ask(transactions, question("x"))
        with pytest.raises(NetworkError, match="broken"):
            await asyncio.wait_for(responder.future, 30)

    asyncio.run(run())
    assert caplog.text.count("a bug in braidlog") == 2
