"""Offsets of a transaction and its markers, on real coordinators whose logs take their time.

Where both coordinators are on one broker, answers come in the order of decisions: what was allowed is staged before the
markers of a later end. An answer of another broker may come later than those.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from itertools import count

import pytest

from braidlog.broker.authorization.authorizer import Authorizer
from braidlog.broker.coordinators.add_partitions_manager import AddPartitionsToTxnManager
from braidlog.broker.coordinators.marker_writer import MarkerDone
from braidlog.broker.coordinators.transaction_markers import TransactionMarkerManager
from braidlog.broker.handlers.groups.offset_commit import OffsetCommitHandler
from braidlog.broker.handlers.groups.txn_offset_commit import TxnOffsetCommitHandler
from braidlog.coordinator.effects import SendMarkers
from braidlog.coordinator.group.settings import GroupSettings
from braidlog.coordinator.group.shard import GroupCoordinatorShard
from braidlog.coordinator.loader import Chunk
from braidlog.coordinator.responders import AppendCallback
from braidlog.coordinator.runtime import CoordinatorRuntime
from braidlog.coordinator.txn.shard import TransactionCoordinatorShard
from braidlog.coordinator.txn.transaction_metadata import TxnSettings
from braidlog.core.clock import ManualClock
from braidlog.core.protocol_errors import (
    CoordinatorLoadInProgressError,
    CoordinatorNotAvailableError,
    GroupAuthorizationFailedError,
    InvalidGroupIdError,
    InvalidTxnStateError,
    NotCoordinatorError,
    ProtocolError,
    TopicAuthorizationFailedError,
    TransactionAbortableError,
    TransactionalIdAuthorizationFailedError,
    UnknownTopicOrPartitionError,
)
from braidlog.core.tasks import Tasks
from braidlog.core.types import TopicPartition
from braidlog.net.channel import ANONYMOUS, Channel, FrameHandler
from braidlog.net.exchange import Exchange, Part
from braidlog.net.memory import MemoryBudget
from braidlog.net.round import Round
from braidlog.security.acls import AclOperation, AclResourceType
from braidlog.wire.apis import api_by_name, decode_response
from braidlog.wire.generated.add_offsets_to_txn import AddOffsetsToTxnRequest
from braidlog.wire.generated.end_txn import EndTxnRequest
from braidlog.wire.generated.init_producer_id import InitProducerIdRequest
from braidlog.wire.generated.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
)
from braidlog.wire.records.batch import iterate_headers
from support.authorized_broker import allow, authorizer_of
from support.classic_groups import AnyTopics
from support.offset_handlers import (
    OFFSETS_PARTITION,
    OffsetHandlers,
    answer_of,
    codes,
    txn_request,
)
from support.offset_requests import commit_request
from support.responders import RecordingResponder

PRODUCER = 7


class SlowLog:
    """One partition; what is staged becomes durable when the test says so."""

    def __init__(self) -> None:
        self.batches: list[str] = []
        self._staged: list[AppendCallback] = []
        self._end = 0

    def append(self, partition: int, batch: bytes, done: AppendCallback) -> int:
        (header,) = iterate_headers(batch, 0, len(batch))
        self.batches.append("marker" if header.is_control else "offsets" if header.is_transactional else "record")
        self._staged.append(done)
        self._end += header.count
        return self._end - header.count

    def commit_one(self) -> bool:
        if not self._staged:
            return False
        self._staged.pop(0)(None)
        return True

    def bounds(self, partition: int) -> tuple[int, int]:
        return 0, 0

    async def read(self, partition: int, offset: int) -> Chunk:
        raise NotImplementedError

    def when_committed(self, partition: int, offset: int, done: Callable[[], None]) -> None:
        raise NotImplementedError

    def where(self, partition: int, offset: int) -> str:
        raise NotImplementedError


class Line(Channel):
    def send(self, parts: list[Part]) -> None: ...

    def resume(self) -> None: ...


class Soon:
    def call_soon(self, callback: Callable[[], object]) -> None: ...


class World:
    """A group and a transaction, each with a log of its own."""

    def __init__(self) -> None:
        clock, tasks = ManualClock(), Tasks("test")
        self.offsets, self.decisions = SlowLog(), SlowLog()
        topics = AnyTopics()
        self.groups: CoordinatorRuntime[GroupCoordinatorShard] = CoordinatorRuntime(
            "__consumer_offsets",
            self.offsets,
            lambda _: GroupCoordinatorShard(GroupSettings, topics, lambda: "m"),
            lambda: 1,
            clock,
            tasks,
        )
        self.transactions: CoordinatorRuntime[TransactionCoordinatorShard] = CoordinatorRuntime(
            "__transaction_state",
            self.decisions,
            lambda epoch: TransactionCoordinatorShard(TxnSettings, count(PRODUCER).__next__, epoch),
            lambda: 1,
            clock,
            tasks,
            perform=lambda action: self.write(action, self.marker_manager.track(action)),
        )
        self.marker_manager = TransactionMarkerManager(
            self.transactions, lambda delay, work: None, lambda partition, done: done(True)
        )
        add_partitions = AddPartitionsToTxnManager(self.transactions, lambda delay, work: None)
        self.handler = TxnOffsetCommitHandler(
            self.groups, add_partitions, topics, lambda: True, lambda partition: None, clock, Authorizer()
        )
        self.groups.on_election(0, 0)
        self.transactions.on_election(0, 0)
        self.init("tx")
        self.settle()

    def write(self, markers: SendMarkers, done: MarkerDone) -> None:
        (target,) = markers.partitions
        self.groups.complete_transaction(
            0,
            markers.producer_id,
            markers.producer_epoch,
            markers.commits,
            markers.coordinator_epoch,
            lambda error: done(target, error),
        )

    def init(self, name: str) -> None:
        request = InitProducerIdRequest(transactional_id=name, transaction_timeout_ms=60_000)
        responder = RecordingResponder()
        self.transactions.submit(name, responder, lambda shard, now: shard.init_producer_id(request, responder, now))

    def add_offsets(self) -> None:
        request = AddOffsetsToTxnRequest(transactional_id="tx", producer_id=PRODUCER, producer_epoch=0, group_id="g")
        responder = RecordingResponder()
        self.transactions.submit("tx", responder, lambda shard, now: shard.add_offsets(request, 0, responder, now))

    def end(self, moves_epoch: bool) -> RecordingResponder:
        request = EndTxnRequest(transactional_id="tx", producer_id=PRODUCER, producer_epoch=0, committed=True)
        responder = RecordingResponder()
        self.transactions.submit(
            "tx", responder, lambda shard, now: shard.end_txn(request, moves_epoch, responder, now)
        )
        return responder

    def commit_offsets(self, version: int) -> Exchange:
        line = Line(FrameHandler(), Round(Soon()), MemoryBudget(1 << 30), "PLAINTEXT", "192.0.2.1")
        exchange = Exchange(line, api_by_name("TxnOffsetCommit").key, version, 1, "test", 0.0)
        line.begin(exchange)
        partition = TxnOffsetCommitRequestPartition(partition_index=0, committed_offset=5, committed_metadata="")
        topic = TxnOffsetCommitRequestTopic(name="t", partitions=[partition])
        request = TxnOffsetCommitRequest(
            transactional_id="tx", group_id="g", producer_id=PRODUCER, producer_epoch=0, topics=[topic]
        )
        exchange.request, exchange.error_response = request, self.handler.error_response
        self.handler.handle(request, exchange)
        return exchange

    def settle(self) -> None:
        while self.decisions.commit_one() or self.offsets.commit_one():
            pass


def code(exchange: Exchange) -> int:
    assert exchange.finished
    assert exchange.parts is not None
    frame = b"".join(bytes(part) for part in exchange.parts if isinstance(part, bytes | memoryview))
    response = decode_response(exchange.api_key, exchange.version, frame[4:])[1]
    assert isinstance(response, TxnOffsetCommitResponse)
    return response.topics[0].partitions[0].error_code


@pytest.mark.parametrize("version", [3, 5])
@pytest.mark.parametrize("committed_before_the_end", range(3))
def test_what_was_allowed_lies_before_the_marker(version: int, committed_before_the_end: int) -> None:
    async def run() -> None:
        world = World()
        if version < 5:
            world.add_offsets()
            world.settle()
        # Something of another producer is on its way to the disk, so the answer takes its time.
        world.init("other")
        exchange = world.commit_offsets(version)
        assert not exchange.finished
        assert world.offsets.batches == []
        for _ in range(committed_before_the_end):
            world.decisions.commit_one()
        ended = world.end(moves_epoch=version >= 5)
        world.settle()
        assert code(exchange) == 0
        assert ended.error_code == 0
        assert world.offsets.batches == ["offsets", "marker"]

    asyncio.run(run())


@pytest.mark.parametrize("version", [3, 5])
def test_what_comes_after_the_end_was_decided_is_refused(version: int) -> None:
    async def run() -> None:
        world = World()
        world.add_offsets()
        world.settle()
        world.end(moves_epoch=version >= 5)
        exchange = world.commit_offsets(version)
        world.settle()
        # Version 5 with the epoch that is over; version 3 while the markers are under way.
        assert code(exchange) == (47 if version >= 5 else 51)
        assert world.offsets.batches == ["marker"]

    asyncio.run(run())


UNKNOWN = UnknownTopicOrPartitionError.code


@pytest.mark.parametrize(("version", "joins"), [(0, False), (4, False), (5, True)])
def test_the_transaction_is_asked_first(version: int, joins: bool) -> None:
    world = OffsetHandlers()
    exchange = world.begin("TxnOffsetCommit", version, txn_request({("t", 0): 5, ("none", 0): 6}))
    place = TopicPartition("__consumer_offsets", OFFSETS_PARTITION)
    assert world.marker_manager.asked == [("txn", 7, 1, [place], joins)]
    assert exchange.channel.muted
    assert world.groups.asked == 0
    world.marker_manager.say(None)
    assert codes(answer_of(exchange)) == {("t", 0): 0, ("none", 0): UNKNOWN}
    world.driver.end_transaction(7, 1, commits=True)
    assert world.driver.offsets_of("g") == {("t", 0): 5}


@pytest.mark.parametrize(
    ("version", "error", "reported"),
    [
        (1, CoordinatorLoadInProgressError(), CoordinatorNotAvailableError),
        (2, CoordinatorLoadInProgressError(), CoordinatorLoadInProgressError),
        (3, TransactionAbortableError(), InvalidTxnStateError),
        (4, TransactionAbortableError(), TransactionAbortableError),
    ],
)
def test_a_transaction_that_may_not(version: int, error: ProtocolError, reported: type[ProtocolError]) -> None:
    world = OffsetHandlers()
    exchange = world.begin("TxnOffsetCommit", version, txn_request({("t", 0): 5, ("none", 0): 6}))
    world.marker_manager.say(error)
    assert codes(answer_of(exchange)) == {("t", 0): reported.code, ("none", 0): UNKNOWN}
    assert world.groups.asked == 0


def test_offsets_whose_transaction_ended_before_the_answer_came_are_refused() -> None:
    world = OffsetHandlers()
    exchange = world.begin("TxnOffsetCommit", 3, txn_request({("t", 0): 5}))
    world.producers.marker_comes()
    world.marker_manager.say(None)
    assert codes(answer_of(exchange)) == {("t", 0): InvalidTxnStateError.code}
    assert world.groups.asked == 0, "they would wait for a marker for ever"


def test_where_each_transaction_has_its_epoch_the_question_is_put_again() -> None:
    world = OffsetHandlers()
    exchange = world.begin("TxnOffsetCommit", 5, txn_request({("t", 0): 5}))
    world.producers.marker_comes()
    world.marker_manager.say(None)
    assert len(world.marker_manager.asked) == 2
    assert not exchange.finished
    world.marker_manager.say(None)
    assert codes(answer_of(exchange)) == {("t", 0): 0}


def test_the_question_is_not_put_for_ever() -> None:
    world = OffsetHandlers()
    exchange = world.begin("TxnOffsetCommit", 5, txn_request({("t", 0): 5}))
    while not exchange.finished:
        world.producers.marker_comes()
        world.marker_manager.say(None)
    assert 1 < len(world.marker_manager.asked) < 10
    assert codes(answer_of(exchange)) == {("t", 0): InvalidTxnStateError.code}


def test_nobody_is_asked_about_nothing() -> None:
    world = OffsetHandlers()
    assert codes(world.ask("TxnOffsetCommit", 3, txn_request({("none", 0): 1}))) == {("none", 0): UNKNOWN}
    refused = codes(world.ask("TxnOffsetCommit", 3, txn_request({("t", 0): 1}, group="")))
    assert refused == {("t", 0): InvalidGroupIdError.code}
    assert world.marker_manager.asked == []


def test_without_verification_only_joining_asks() -> None:
    world = OffsetHandlers()
    world.verifies = False
    assert codes(world.ask("TxnOffsetCommit", 3, txn_request({("t", 0): 1}))) == {("t", 0): 0}
    assert world.marker_manager.asked == []
    world.begin("TxnOffsetCommit", 5, txn_request({("t", 0): 1}))
    assert len(world.marker_manager.asked) == 1


def test_a_refused_commit_names_every_partition() -> None:
    request = commit_request(3, "g", {("t", 0): 1, ("u", 1): 2})
    reported = codes(OffsetCommitHandler.error_response(request, 3, NotCoordinatorError()))
    assert reported == {("t", 0): NotCoordinatorError.code, ("u", 1): NotCoordinatorError.code}


# Access


def test_an_offset_takes_a_right_to_the_id_the_group_and_the_topic() -> None:
    rules = [
        allow(AclResourceType.TRANSACTIONAL_ID, "tx", AclOperation.WRITE, ANONYMOUS),
        allow(AclResourceType.GROUP, "g", AclOperation.READ, ANONYMOUS),
        allow(AclResourceType.TOPIC, "t", AclOperation.READ, ANONYMOUS),
    ]
    world = OffsetHandlers()
    world.verifies = False
    request = txn_request({("t", 0): 1, ("u", 0): 2})
    request.transactional_id = "tx"
    world.authorizer = authorizer_of(*rules[1:])
    with pytest.raises(TransactionalIdAuthorizationFailedError):
        world.begin("TxnOffsetCommit", 3, request)
    world.authorizer = authorizer_of(rules[0], rules[2])
    with pytest.raises(GroupAuthorizationFailedError):
        world.begin("TxnOffsetCommit", 3, request)
    world.authorizer = authorizer_of(*rules)
    reported = codes(world.ask("TxnOffsetCommit", 3, request))
    assert reported == {("t", 0): 0, ("u", 0): TopicAuthorizationFailedError.code}
