"""A member of a consumer group as a process: `python -m support.group_members <client> <plan as JSON>`.

It subscribes, reads, commits after every run of records, and notes all of it (support.ownership). SIGTERM makes it
leave as a well-behaved member does; SIGKILL and SIGSTOP do what they do.
"""

from __future__ import annotations

import asyncio
import json
import signal
import struct
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from support.ownership import Partition, runs, write_note

POLL_S = 0.1
ABOUT_THIS = "read up to here"


@dataclass(frozen=True)
class Plan:
    """What a member is to do; `settings` are the client's own, spelled its own way."""

    client: str
    name: str
    bootstrap: str
    group: str
    topics: list[str] = field(default_factory=list)
    pattern: str | None = None
    commits: bool = True
    settings: dict[str, Any] = field(default_factory=dict)

    def to_json(self) -> str:
        return json.dumps(asdict(self))


class Stop:
    """Becomes true on SIGTERM."""

    def __init__(self) -> None:
        self.wanted = False
        signal.signal(signal.SIGTERM, self._want)

    def _want(self, *_: object) -> None:
        self.wanted = True


class Notebook:
    """Notes of one member, each with the generation it belongs to."""

    def __init__(self, plan: Plan, current: Callable[[], int]) -> None:
        self._name = plan.name
        self._current = current
        self._generation = -1
        # Read, but not yet committed: a commit is refused while a cooperative group hands out its next assignment.
        self.pending: dict[Partition, tuple[int, int]] = {}

    def generation(self) -> int:
        """The client's own word; while it is between two generations, the last one in which it was given anything."""
        current = self._current()
        if current > 0:
            self._generation = current
        return self._generation

    def assigned(self, partitions: Iterable[Partition]) -> None:
        write_note("assigned", self._name, self.generation(), partitions)

    def revoked(self, partitions: Iterable[Partition]) -> None:
        """What is pending has been committed if it could be."""
        self.pending.clear()
        write_note("revoked", self._name, self._generation, partitions)

    def lost(self, partitions: Iterable[Partition]) -> None:
        self.pending.clear()
        write_note("lost", self._name, self._generation, partitions)

    def read(self, records: Iterable[tuple[str, int, int]]) -> None:
        found = runs(records)
        write_note("read", self._name, self.generation(), offsets=found)
        for topic, index, first, end in found:
            self.pending[topic, index] = (self.pending.get((topic, index), (first, 0))[0], end)

    def committed(self) -> None:
        offsets = [(topic, index, first, end) for (topic, index), (first, end) in self.pending.items()]
        write_note("committed", self._name, self._generation, offsets=offsets)
        self.pending.clear()

    def refused(self, error: object) -> None:
        write_note("refused", self._name, self._generation, error=str(error))

    def left(self) -> None:
        write_note("left", self._name, self._generation)


def generation_of(metadata: bytes) -> int:
    """librdkafka's group metadata: "CGMDv2:", the generation, the group, the member."""
    assert metadata.startswith(b"CGMDv2:"), metadata
    return int(struct.unpack_from("=i", metadata, 7)[0])


def run_confluent(plan: Plan, stop: Stop) -> None:
    from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

    own = {
        "bootstrap.servers": plan.bootstrap,
        "group.id": plan.group,
        "client.id": plan.name,
        "enable.auto.commit": False,
        "auto.offset.reset": "earliest",
        "fetch.wait.max.ms": 100,
        "reconnect.backoff.ms": 10,
        "reconnect.backoff.max.ms": 100,
        "retry.backoff.ms": 20,
        "topic.metadata.refresh.interval.ms": 500,
        # The newer protocol notices a new assignment's topics by this.
        "metadata.max.age.ms": 1500,
        "log_level": 3,
        **plan.settings,
    }
    consumer = Consumer(own)
    book = Notebook(plan, lambda: generation_of(consumer.consumer_group_metadata()))

    def pairs(partitions: list[TopicPartition]) -> list[Partition]:
        return [(each.topic, each.partition) for each in partitions]

    def commit() -> None:
        if not (plan.commits and book.pending):
            return
        offsets = [TopicPartition(topic, index, end, ABOUT_THIS) for (topic, index), (_, end) in book.pending.items()]
        try:
            answers = consumer.commit(offsets=offsets, asynchronous=False) or []
        except KafkaException as refused:
            book.refused(refused.args[0])
            return
        bad = [answer.error for answer in answers if answer.error is not None]
        book.refused(bad[0]) if bad else book.committed()

    def revoked(_: Consumer, partitions: list[TopicPartition]) -> None:
        commit()
        book.revoked(pairs(partitions))

    consumer.subscribe(
        [plan.pattern] if plan.pattern else plan.topics,
        on_assign=lambda _, partitions: book.assigned(pairs(partitions)),
        on_revoke=revoked,
        on_lost=lambda _, partitions: book.lost(pairs(partitions)),
    )

    def take(messages: list[Message]) -> None:
        records = []
        for message in messages:
            error = message.error()
            if error is None:
                records.append((str(message.topic()), int(message.partition() or 0), int(message.offset() or 0)))
            elif error.code() not in (KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._MAX_POLL_EXCEEDED):
                book.refused(error)
        if records:
            book.read(records)

    while not stop.wanted:
        take(consumer.consume(200, POLL_S))
        commit()
    consumer.close()
    book.left()


def run_kafka_python(plan: Plan, stop: Stop) -> None:
    from kafka import ConsumerRebalanceListener, KafkaConsumer, OffsetAndMetadata, TopicPartition
    from kafka.coordinator.assignors.cooperative_sticky import CooperativeStickyAssignor
    from kafka.coordinator.assignors.range import RangePartitionAssignor
    from kafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
    from kafka.errors import KafkaError

    kinds = {
        "range": RangePartitionAssignor,
        "roundrobin": RoundRobinPartitionAssignor,
        "cooperative-sticky": CooperativeStickyAssignor,
    }
    given = dict(plan.settings)
    consumer = KafkaConsumer(
        bootstrap_servers=plan.bootstrap,
        group_id=plan.group,
        client_id=plan.name,
        enable_auto_commit=False,
        auto_offset_reset="earliest",
        reconnect_backoff_ms=10,
        reconnect_backoff_max_ms=100,
        retry_backoff_ms=20,
        partition_assignment_strategy=[kinds[name] for name in given.pop("assignors", ["range"])],
        **given,
    )
    book = Notebook(plan, lambda: int(consumer.group_metadata().generation_id))

    def commit() -> None:
        if plan.commits and book.pending:
            ends = {TopicPartition(*at): end for at, (_, end) in book.pending.items()}
            offsets = {at: OffsetAndMetadata(end, ABOUT_THIS, -1) for at, end in ends.items()}
            try:
                consumer.commit(offsets)
                book.committed()
            except KafkaError as refused:
                book.refused(repr(refused))

    class Listener(ConsumerRebalanceListener):  # type: ignore[misc]
        def on_partitions_revoked(self, revoked: Iterable[TopicPartition]) -> None:
            commit()
            book.revoked((each.topic, each.partition) for each in revoked)

        def on_partitions_assigned(self, assigned: Iterable[TopicPartition]) -> None:
            book.assigned((each.topic, each.partition) for each in assigned)

        def on_partitions_lost(self, lost: Iterable[TopicPartition]) -> None:
            book.lost((each.topic, each.partition) for each in lost)

    consumer.subscribe(topics=plan.topics or (), pattern=plan.pattern, listener=Listener())
    # A member that does not know its topics joins for nothing, and this client may spin in the rebalance that follows.
    for topic in plan.topics:
        while not consumer.partitions_for_topic(topic):
            pass
    while not stop.wanted:
        batches = consumer.poll(timeout_ms=int(POLL_S * 1000), max_records=200)
        records = [(at.topic, at.partition, record.offset) for at, batch in batches.items() for record in batch]
        if records:
            book.read(records)
        commit()
    consumer.close(autocommit=False)
    book.left()


async def run_aiokafka(plan: Plan, stop: Stop) -> None:
    from aiokafka import AIOKafkaConsumer, ConsumerRebalanceListener, TopicPartition
    from aiokafka.coordinator.assignors.range import RangePartitionAssignor
    from aiokafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
    from aiokafka.coordinator.assignors.sticky.sticky_assignor import StickyPartitionAssignor
    from aiokafka.errors import KafkaError

    kinds = {
        "range": RangePartitionAssignor,
        "roundrobin": RoundRobinPartitionAssignor,
        "sticky": StickyPartitionAssignor,
    }
    given = dict(plan.settings)
    consumer = AIOKafkaConsumer(
        bootstrap_servers=plan.bootstrap,
        group_id=plan.group,
        client_id=plan.name,
        enable_auto_commit=False,
        auto_offset_reset="earliest",
        retry_backoff_ms=20,
        metadata_max_age_ms=500,
        partition_assignment_strategy=[kinds[name] for name in given.pop("assignors", ["range"])],
        **given,
    )
    book = Notebook(plan, lambda: int(consumer._coordinator.generation))

    async def commit() -> None:
        if plan.commits and book.pending:
            offsets = {TopicPartition(*at): (end, ABOUT_THIS) for at, (_, end) in book.pending.items()}
            try:
                await consumer.commit(offsets)
                book.committed()
            except KafkaError as refused:
                book.refused(repr(refused))

    class Listener(ConsumerRebalanceListener):  # type: ignore[misc]
        async def on_partitions_revoked(self, revoked: Iterable[TopicPartition]) -> None:
            await commit()
            book.revoked((each.topic, each.partition) for each in revoked)

        def on_partitions_assigned(self, assigned: Iterable[TopicPartition]) -> None:
            book.assigned((each.topic, each.partition) for each in assigned)

    consumer.subscribe(topics=plan.topics or (), pattern=plan.pattern, listener=Listener())
    await consumer.start()
    while not stop.wanted:
        batches = await consumer.getmany(timeout_ms=int(POLL_S * 1000), max_records=200)
        records = [(at.topic, at.partition, record.offset) for at, batch in batches.items() for record in batch]
        if records:
            book.read(records)
        await commit()
    await consumer.stop()
    book.left()


def run_braidlog(plan: Plan, stop: Stop) -> None:
    import logging
    import re

    from braidlog.client.consumer.consumer import Consumer
    from braidlog.client.consumer.offsets.offset_and_metadata import OffsetAndMetadata
    from braidlog.client.consumer.rebalance_listener import RebalanceListener
    from braidlog.client.errors import ClientError
    from braidlog.core.protocol_errors import FencedInstanceIdError, ProtocolError
    from braidlog.core.types import TopicPartition

    logging.basicConfig(level=logging.INFO, format="%(relativeCreated)d %(name)s %(message)s")
    own = {
        "bootstrap.servers": plan.bootstrap,
        "group.id": plan.group,
        "client.id": plan.name,
        "enable.auto.commit": False,
        "auto.offset.reset": "earliest",
        "fetch.max.wait.ms": 100,
        "reconnect.backoff.ms": 10,
        "reconnect.backoff.max.ms": 100,
        "retry.backoff.ms": 20,
        "metadata.max.age.ms": 500,
        **plan.settings,
    }
    consumer = Consumer(own)
    book = Notebook(plan, lambda: consumer.group_metadata().generation_id)

    def commit() -> None:
        if plan.commits and book.pending:
            ends = {TopicPartition(*at): OffsetAndMetadata(end, ABOUT_THIS) for at, (_, end) in book.pending.items()}
            try:
                consumer.commit(ends)
                book.committed()
            except (ClientError, ProtocolError) as refused:
                book.refused(repr(refused))

    class Listener(RebalanceListener):
        def on_partitions_revoked(self, partitions: list[TopicPartition]) -> None:
            commit()
            book.revoked(partitions)

        def on_partitions_assigned(self, partitions: list[TopicPartition]) -> None:
            book.assigned(partitions)

        def on_partitions_lost(self, partitions: list[TopicPartition]) -> None:
            book.lost(partitions)

    consumer.subscribe(re.compile(plan.pattern) if plan.pattern else plan.topics, listener=Listener())
    while not stop.wanted:
        try:
            records = consumer.poll(POLL_S, max_records=200)
        except FencedInstanceIdError as fenced:
            book.refused(fenced)
            break
        if records:
            book.read((record.topic, record.partition, record.offset) for record in records)
        commit()
    while not stop.wanted:
        signal.pause()
    consumer.close()
    book.left()


def main(arguments: Sequence[str]) -> None:
    plan = Plan(**json.loads(arguments[0]))
    stop = Stop()
    if plan.client == "braidlog":
        run_braidlog(plan, stop)
    elif plan.client == "confluent":
        run_confluent(plan, stop)
    elif plan.client == "kafka-python":
        run_kafka_python(plan, stop)
    else:
        asyncio.run(run_aiokafka(plan, stop))


if __name__ == "__main__":
    main(sys.argv[1:])
