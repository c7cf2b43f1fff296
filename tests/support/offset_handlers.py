"""Handlers of offsets before a driven offset store, without a broker."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from braidlog.broker.authorization.authorizer import Authorizer
from braidlog.broker.handlers.groups.offset_commit import OffsetCommitHandler, OffsetDeleteHandler
from braidlog.broker.handlers.groups.offset_fetch import OffsetFetchHandler
from braidlog.broker.handlers.groups.txn_offset_commit import TxnOffsetCommitHandler
from braidlog.cluster.embedded import EmbeddedStore
from braidlog.cluster.legacy_offsets import LegacyOffsets
from braidlog.coordinator.effects import Effects, Moment, Responder
from braidlog.core.clock import ManualClock
from braidlog.core.protocol_errors import (
    ProtocolError,
)
from braidlog.core.tasks import Tasks
from braidlog.core.types import TopicPartition
from braidlog.net.channel import Channel, FrameHandler
from braidlog.net.exchange import Exchange, Part
from braidlog.net.memory import MemoryBudget
from braidlog.net.round import Round
from braidlog.storage.producers.verification import VerificationGuard
from braidlog.wire.apis import api_by_name, decode_response
from braidlog.wire.generated.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from braidlog.wire.message import Message
from support.memory_journal import MemoryJournalFiles
from support.offsets_shard import OffsetsDriver

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


class FakeProducers:
    """The producers of an offsets partition: a marker that comes ends what is held."""

    def __init__(self) -> None:
        self._held: VerificationGuard | None = None

    def begin_verification(self, producer_id: int, epoch: int, sequence: int, now_ms: int) -> VerificationGuard | None:
        self._held = VerificationGuard(epoch, sequence, now_ms)
        return self._held

    def marker_comes(self) -> None:
        self._held = None

    def may_write(self, producer_id: int, epoch: int, verification: VerificationGuard | None) -> bool:
        return verification is not None and verification is self._held


class OffsetHandlers:
    def __init__(self) -> None:
        self.driver = OffsetsDriver("t", "u")
        self.groups = OneShard(self.driver)
        self.marker_manager = FakeMarkerManager()
        self.verifies = True
        self.authorizer: Authorizer = Authorizer()
        self.producers = FakeProducers()
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
            return OffsetCommitHandler(groups, topics, legacy, self.tasks, lambda: 10, self.authorizer)
        if name == "OffsetFetch":
            return OffsetFetchHandler(groups, topics, legacy, self.tasks, self.authorizer)
        if name == "OffsetDelete":
            return OffsetDeleteHandler(groups, topics, self.authorizer)
        return TxnOffsetCommitHandler(
            groups,
            marker_manager,
            topics,
            lambda: self.verifies,
            lambda partition: self.producers,
            ManualClock(),
            self.authorizer,
        )

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


def codes_and_offsets(group: Any) -> list[tuple[int, int]]:
    return [(p.error_code, p.committed_offset) for topic in group.topics for p in topic.partitions]
