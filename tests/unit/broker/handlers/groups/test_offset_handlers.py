"""The handlers of offsets: what never reaches the coordinator, and how its answers are told in each version."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from braidlog.broker.handlers.groups.offset_commit import OffsetCommitHandler, OffsetDeleteHandler
from braidlog.broker.handlers.groups.offset_fetch import OffsetFetchHandler
from braidlog.broker.handlers.groups.txn_offset_commit import TxnOffsetCommitHandler
from braidlog.cluster.embedded import EmbeddedStore
from braidlog.cluster.legacy_offsets import LegacyOffsets
from braidlog.coordinator.effects import Effects, Moment, Responder
from braidlog.core.clock import ManualClock
from braidlog.core.protocol_errors import (
    CoordinatorLoadInProgressError,
    CoordinatorNotAvailableError,
    GroupIdNotFoundError,
    InvalidGroupIdError,
    InvalidTxnStateError,
    NotCoordinatorError,
    OffsetMetadataTooLargeError,
    ProtocolError,
    TransactionAbortableError,
    UnknownTopicIdError,
    UnknownTopicOrPartitionError,
    UnstableOffsetCommitError,
)
from braidlog.core.tasks import Tasks
from braidlog.core.types import TopicPartition
from braidlog.net.channel import Channel, FrameHandler
from braidlog.net.exchange import Exchange, Part
from braidlog.net.memory import MemoryBudget
from braidlog.net.round import Round
from braidlog.wire.apis import api_by_name, decode_response
from braidlog.wire.generated.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
)
from braidlog.wire.generated.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from braidlog.wire.message import Message
from support.memory_journal import MemoryJournalFiles
from support.offset_requests import commit_request, delete_request, fetch_request
from support.offsets_shard import OffsetsDriver

UNKNOWN = UnknownTopicOrPartitionError.code
OFFSETS_PARTITION = 17


class Soon:
    def call_soon(self, callback: Callable[[], object]) -> None:
        """Nothing is sent here: what a test wants to see is in the exchange."""


class Line(Channel):
    def __init__(self) -> None:
        super().__init__(FrameHandler(), Round(Soon()), MemoryBudget(1 << 30), "PLAINTEXT", "192.0.2.1")

    def send(self, parts: list[Part]) -> None: ...

    def resume(self) -> None: ...


class OneShard:
    """A coordinator whose only shard is a driven offset store; with `error`, one that cannot serve."""

    def __init__(self, driver: OffsetsDriver) -> None:
        self.driver = driver
        self.error: ProtocolError | None = None
        self.asked = 0

    def partition_of(self, name: str) -> int:
        return OFFSETS_PARTITION

    def submit(self, name: str, responder: Responder, operation: Callable[[Any, Moment], Effects]) -> None:
        self.asked += 1
        if self.error is not None:
            responder.fail(self.error)
            return
        try:
            effects = operation(self.driver.shard.offsets, self.driver.now)
        except ProtocolError as error:
            responder.fail(error)
        else:
            self.driver.apply(effects)

    def submit_to(self, partition: int, responder: Responder, operation: Callable[[Any, Moment], Effects]) -> None:
        assert partition == OFFSETS_PARTITION
        self.submit("", responder, operation)


class FakeMarkerManager:
    """A transaction coordinator that answers when told to."""

    def __init__(self) -> None:
        self.asked: list[tuple[Any, ...]] = []
        self.done: Callable[[dict[TopicPartition, ProtocolError | None]], None] | None = None

    def add_or_verify(self, *question: Any) -> None:
        self.asked.append(question[:-1])
        self.done = question[-1]

    def say(self, error: ProtocolError | None) -> None:
        assert self.done is not None
        self.done({TopicPartition("__consumer_offsets", OFFSETS_PARTITION): error})


class World:
    def __init__(self) -> None:
        self.driver = OffsetsDriver("t", "u")
        self.groups = OneShard(self.driver)
        self.marker_manager = FakeMarkerManager()
        self.verifies = True
        self.store = EmbeddedStore.open(MemoryJournalFiles(), ManualClock())
        self.tasks = Tasks("test")

    def exchange(self, name: str, version: int) -> Exchange:
        line = Line()
        exchange = Exchange(line, api_by_name(name).key, version, 1, "test", 0.0)
        line.begin(exchange)
        return exchange

    def _handler(self, name: str) -> Any:
        groups: Any = self.groups
        marker_manager: Any = self.marker_manager
        topics = self.driver.topics
        legacy = LegacyOffsets(self.store.connect())
        if name == "OffsetCommit":
            return OffsetCommitHandler(groups, topics, legacy, self.tasks, lambda: 10)
        if name == "OffsetFetch":
            return OffsetFetchHandler(groups, topics, legacy, self.tasks)
        if name == "OffsetDelete":
            return OffsetDeleteHandler(groups, topics)
        return TxnOffsetCommitHandler(groups, marker_manager, topics, lambda: self.verifies)

    def begin(self, name: str, version: int, request: Message) -> Exchange:
        exchange = self.exchange(name, version)
        handler = self._handler(name)
        exchange.request, exchange.error_response = request, handler.error_response
        handler.handle(request, exchange)
        return exchange

    def ask(self, name: str, version: int, request: Message) -> Any:
        return answer_of(self.begin(name, version, request))

    def ask_store(self, name: str, request: Message) -> Any:
        """Version 0 answers a moment later; the connection waits meanwhile."""
        return self.ask_much(name, 0, request)

    def ask_much(self, name: str, version: int, request: Message) -> Any:
        async def run() -> Any:
            exchange = self.begin(name, version, request)
            assert exchange.channel.muted
            assert not exchange.finished
            await asyncio.gather(*(task for task in asyncio.all_tasks() if task is not asyncio.current_task()))
            return answer_of(exchange)

        return asyncio.run(run())


def answer_of(exchange: Exchange) -> Any:
    assert exchange.finished
    assert exchange.parts is not None
    frame = b"".join(bytes(part) for part in exchange.parts if isinstance(part, bytes | memoryview))
    return decode_response(exchange.api_key, exchange.version, frame[4:])[1]


def codes(answer: Any) -> dict[tuple[str, int], int]:
    topics = answer.groups[0].topics if getattr(answer, "groups", None) else answer.topics
    return {(topic.name, p.partition_index): p.error_code for topic in topics for p in topic.partitions}


def txn_request(offsets: dict[tuple[str, int], int], group: str = "g") -> TxnOffsetCommitRequest:
    return TxnOffsetCommitRequest(
        transactional_id="txn",
        group_id=group,
        producer_id=7,
        producer_epoch=1,
        topics=[
            TxnOffsetCommitRequestTopic(
                name=topic,
                partitions=[
                    TxnOffsetCommitRequestPartition(
                        partition_index=partition, committed_offset=offset, committed_metadata=""
                    )
                ],
            )
            for (topic, partition), offset in offsets.items()
        ],
    )


# Commit


def test_what_is_not_there_is_answered_beside_what_is() -> None:
    world = World()
    request = commit_request(8, "g", {("t", 0): 1, ("t", 9): 2, ("none", 0): 3, ("u", 2): 4})
    reported = codes(world.ask("OffsetCommit", 8, request))
    assert reported == {("t", 0): 0, ("t", 9): UNKNOWN, ("none", 0): UNKNOWN, ("u", 2): 0}
    assert world.driver.offsets_of("g") == {("t", 0): 1, ("u", 2): 4}


def test_the_coordinator_is_not_asked_about_nothing() -> None:
    world = World()
    assert codes(world.ask("OffsetCommit", 8, commit_request(8, "g", {("none", 0): 1}))) == {("none", 0): UNKNOWN}
    assert codes(world.ask("OffsetCommit", 8, commit_request(8, "g", {}))) == {}
    assert world.groups.asked == 0


def test_a_refusal_is_told_for_each_partition_that_is_there() -> None:
    world = World()
    world.groups.error = NotCoordinatorError()
    reported = codes(world.ask("OffsetCommit", 8, commit_request(8, "g", {("t", 0): 1, ("none", 0): 2})))
    assert reported == {("t", 0): NotCoordinatorError.code, ("none", 0): UNKNOWN}


def test_commit_by_topic_id() -> None:
    world = World()
    topics = world.driver.topics
    ids = {"t": topics.id_of("t"), "none": b"\x01" * 16}
    request = commit_request(10, "g", {("t", 0): 1, ("t", 9): 2, ("none", 0): 3}, topic_ids=ids)
    answer = world.ask("OffsetCommit", 10, request)
    reported = {(topic.topic_id, p.partition_index): p.error_code for topic in answer.topics for p in topic.partitions}
    assert reported == {(ids["t"], 0): 0, (ids["t"], 9): UNKNOWN, (ids["none"], 0): UnknownTopicIdError.code}
    assert world.driver.offsets_of("g") == {("t", 0): 1}


# Fetch


@pytest.mark.parametrize("version", range(1, 10))
def test_fetch_in_the_form_of_each_version(version: int) -> None:
    world = World()
    world.driver.commit("g", "t", 1, 5, metadata="m", leader_epoch=3)
    answer = world.ask("OffsetFetch", version, fetch_request(version, "g", {"t": [0, 1], "none": [0]}))
    topics = answer.groups[0].topics if version >= 8 else answer.topics
    found = {(t.name, p.partition_index): (p.committed_offset, p.metadata) for t in topics for p in t.partitions}
    assert found == {("t", 0): (-1, ""), ("t", 1): (5, "m"), ("none", 0): (-1, "")}
    assert topics[0].partitions[1].committed_leader_epoch == (3 if version >= 5 else -1)


@pytest.mark.parametrize("version", range(1, 11))
def test_a_failed_fetch_in_the_form_of_each_version(version: int) -> None:
    world = World()
    world.groups.error = NotCoordinatorError()
    request = fetch_request(version, "g", {"t": [0]})
    answer = world.ask("OffsetFetch", version, request)
    assert codes(answer) == ({("t", 0): NotCoordinatorError.code} if version < 2 else {})
    assert answer.error_code == (NotCoordinatorError.code if 2 <= version < 8 else 0)
    if version >= 8:
        assert [(group.group_id, group.error_code) for group in answer.groups] == [("g", NotCoordinatorError.code)]
    refused: Any = OffsetFetchHandler.error_response(
        fetch_request(version, "g", {"t": [0]}), version, NotCoordinatorError()
    )
    assert codes(refused) == codes(answer)


def test_groups_are_answered_in_their_order_whatever_each_gets() -> None:
    world = World()
    world.driver.commit("g", "t", 0, 5)
    world.driver.commit_txn(7, "g", {("t", 0): 6})
    world.driver.shard.group("h").refuses = InvalidGroupIdError()
    groups = [OffsetFetchRequestGroup(group_id=name, topics=None) for name in ("h", "g", "i")]
    answer = world.ask("OffsetFetch", 8, OffsetFetchRequest(groups=groups, require_stable=True))
    assert [(g.group_id, g.error_code) for g in answer.groups] == [("h", InvalidGroupIdError.code), ("g", 0), ("i", 0)]
    assert answer.groups[1].topics[0].partitions[0].error_code == UnstableOffsetCommitError.code
    assert world.ask("OffsetFetch", 8, OffsetFetchRequest(groups=[])).groups == []


def test_fetch_by_topic_id() -> None:
    world = World()
    topics = world.driver.topics
    world.driver.commit("g", "t", 0, 5)
    world.driver.commit("g", "u", 0, 6)
    asked = [
        OffsetFetchRequestTopics(topic_id=topics.id_of("t"), partition_indexes=[0, 1]),
        OffsetFetchRequestTopics(topic_id=b"\x01" * 16, partition_indexes=[2]),
    ]
    group = OffsetFetchRequestGroup(group_id="g", topics=asked)
    answer = world.ask("OffsetFetch", 10, OffsetFetchRequest(groups=[group])).groups[0]
    found = {
        (topic.topic_id, p.partition_index): (p.committed_offset, p.error_code)
        for topic in answer.topics
        for p in topic.partitions
    }
    assert found == {
        (topics.id_of("t"), 0): (5, 0),
        (topics.id_of("t"), 1): (-1, 0),
        (b"\x01" * 16, 2): (-1, UnknownTopicIdError.code),
    }
    # All offsets: those of a topic that is gone, and so has no id, are left out.
    del topics.there["u"]
    everything = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id="g", topics=None)])
    answer = world.ask("OffsetFetch", 10, everything).groups[0]
    assert [topic.topic_id for topic in answer.topics] == [topics.id_of("t")]


MANY = [*range(2, 700), 0, 1, 0, *range(2, 700)]


@pytest.mark.parametrize("version", range(1, 11))
def test_very_many_partitions_are_fetched_piece_by_piece(version: int) -> None:
    world = World()
    world.driver.commit("g", "t", 1, 5)
    world.driver.commit("g", "u", 0, 6)
    ids = {name: world.driver.topics.id_of(name) for name in ("t", "u")}
    asked: list[tuple[str, list[int]]] = [("u", [0]), ("t", MANY), ("u", [1, 0]), ("t", []), ("t", MANY[:499])]
    request = fetch_request(version, "g", {})
    topics: Any = OffsetFetchRequestTopic if version < 8 else OffsetFetchRequestTopics
    named = [topics(name=name, partition_indexes=indexes) for name, indexes in asked]
    if version >= 10:
        named = [topics(topic_id=ids[name], partition_indexes=indexes) for name, indexes in asked]
    if version < 8:
        request.topics = named
    else:
        request.groups[0].topics = named
    answer = world.ask_much("OffsetFetch", version, request)
    assert world.groups.asked > 3
    found = answer.groups[0].topics if version >= 8 else answer.topics
    names = [topic.topic_id if version >= 10 else topic.name for topic in found]
    assert names == [ids[name] if version >= 10 else name for name, _ in asked]
    assert [[p.partition_index for p in topic.partitions] for topic in found] == [indexes for _, indexes in asked]
    offsets = {"t": {1: 5}, "u": {0: 6}}
    assert [[p.committed_offset for p in topic.partitions] for topic in found] == [
        [offsets[name].get(index, -1) for index in indexes] for name, indexes in asked
    ]


@pytest.mark.parametrize("version", range(1, 10))
def test_a_failed_fetch_of_very_many_partitions_is_told_as_any(version: int) -> None:
    world = World()
    world.groups.error = NotCoordinatorError()
    answer = world.ask_much("OffsetFetch", version, fetch_request(version, "g", {"t": MANY}))
    assert answer == OffsetFetchHandler.error_response(
        fetch_request(version, "g", {"t": MANY}), version, NotCoordinatorError()
    )


def test_very_many_groups_are_answered_in_their_order() -> None:
    world = World()
    world.driver.commit("g500", "t", 0, 5)
    world.driver.shard.group("g3").refuses = InvalidGroupIdError()
    named = [OffsetFetchRequestTopics(name="t", partition_indexes=[0])]
    groups = [OffsetFetchRequestGroup(group_id=f"g{number}", topics=named) for number in range(1000)]
    groups.append(OffsetFetchRequestGroup(group_id="g500", topics=None))
    answer = world.ask_much("OffsetFetch", 8, OffsetFetchRequest(groups=groups))
    assert [group.group_id for group in answer.groups] == [group.group_id for group in groups]
    assert [group.group_id for group in answer.groups if group.error_code] == ["g3"]
    found = [place for place, group in enumerate(answer.groups) if codes_and_offsets(group) == [(0, 5)]]
    assert found == [500, 1000]


def codes_and_offsets(group: Any) -> list[tuple[int, int]]:
    return [(p.error_code, p.committed_offset) for topic in group.topics for p in topic.partitions]


# Version 0


def test_version_0_is_kept_in_the_store() -> None:
    world = World()
    request = commit_request(0, "g", {("t", 0): (4, "lost"), ("t", 1): (5, "x" * 11), ("none", 0): 6})
    reported = codes(world.ask_store("OffsetCommit", request))
    assert reported == {("t", 0): 0, ("t", 1): OffsetMetadataTooLargeError.code, ("none", 0): UNKNOWN}
    answer = world.ask_store("OffsetFetch", fetch_request(0, "g", {"t": [0, 1, 9, -1], "none": [0], "..": [0]}))
    partitions = answer.topics[0].partitions
    assert [(p.committed_offset, p.error_code) for p in partitions] == [(4, 0)] + [(-1, UNKNOWN)] * 3
    assert [p.error_code for topic in answer.topics[1:] for p in topic.partitions] == [UNKNOWN, UNKNOWN]
    assert world.groups.asked == 0


def test_version_0_refuses_what_is_no_name() -> None:
    world = World()
    assert codes(world.ask_store("OffsetCommit", commit_request(0, "a/b", {("t", 0): 4}))) == {
        ("t", 0): InvalidGroupIdError.code
    }
    assert codes(world.ask_store("OffsetFetch", fetch_request(0, "a/b", {"t": [0]}))) == {
        ("t", 0): InvalidGroupIdError.code
    }


# Delete


def test_delete() -> None:
    world = World()
    wanted = {"t": [0, 9], "none": [0]}
    answer = world.ask("OffsetDelete", 0, delete_request("g", wanted))
    assert (answer.error_code, answer.topics) == (GroupIdNotFoundError.code, [])
    world.driver.commit("g", "t", 0, 5)
    answer = world.ask("OffsetDelete", 0, delete_request("g", wanted))
    assert answer.error_code == 0
    assert codes(answer) == {("t", 0): 0, ("t", 9): UNKNOWN, ("none", 0): UNKNOWN}
    assert world.driver.offsets_of("g") == {}


# Transactions


@pytest.mark.parametrize(("version", "joins"), [(0, False), (4, False), (5, True)])
def test_the_transaction_is_asked_first(version: int, joins: bool) -> None:
    world = World()
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
    world = World()
    exchange = world.begin("TxnOffsetCommit", version, txn_request({("t", 0): 5, ("none", 0): 6}))
    world.marker_manager.say(error)
    assert codes(answer_of(exchange)) == {("t", 0): reported.code, ("none", 0): UNKNOWN}
    assert world.groups.asked == 0


def test_nobody_is_asked_about_nothing() -> None:
    world = World()
    assert codes(world.ask("TxnOffsetCommit", 3, txn_request({("none", 0): 1}))) == {("none", 0): UNKNOWN}
    refused = codes(world.ask("TxnOffsetCommit", 3, txn_request({("t", 0): 1}, group="")))
    assert refused == {("t", 0): InvalidGroupIdError.code}
    assert world.marker_manager.asked == []


def test_without_verification_only_joining_asks() -> None:
    world = World()
    world.verifies = False
    assert codes(world.ask("TxnOffsetCommit", 3, txn_request({("t", 0): 1}))) == {("t", 0): 0}
    assert world.marker_manager.asked == []
    world.begin("TxnOffsetCommit", 5, txn_request({("t", 0): 1}))
    assert len(world.marker_manager.asked) == 1


def test_a_refused_commit_names_every_partition() -> None:
    request = commit_request(3, "g", {("t", 0): 1, ("u", 1): 2})
    reported = codes(OffsetCommitHandler.error_response(request, 3, NotCoordinatorError()))
    assert reported == {("t", 0): NotCoordinatorError.code, ("u", 1): NotCoordinatorError.code}
