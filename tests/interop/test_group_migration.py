"""A live group of confluent-kafka consumers goes over to the consumer protocol member by member, and back."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from confluent_kafka import Consumer, ConsumerGroupType, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient

from support.broker import KAFKA, StartBroker
from support.confluent import create_topic, producer
from support.eventually import eventually

SETTINGS = {
    "group.initial.rebalance.delay.ms": "0",
    "group.consumer.heartbeat.interval.ms": "300",
    "group.consumer.min.heartbeat.interval.ms": "300",
    "group.consumer.migration.policy": "bidirectional",
}
PARTITIONS = 6
MOVED_ON = (KafkaError.ILLEGAL_GENERATION, KafkaError.REBALANCE_IN_PROGRESS, KafkaError.STALE_MEMBER_EPOCH)


class Crew:
    """Consumers of one group. Who has which partition is noted in their callbacks, and nobody may have another's."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self.bootstrap = bootstrap
        self._topic = topic
        self.group = f"{topic}-group"
        self.members: dict[str, Consumer] = {}
        self.owners: dict[int, str] = {}
        self.seen: set[int] = set()

    def join(self, name: str, newer: bool) -> None:
        settings: dict[str, Any] = {
            "bootstrap.servers": self.bootstrap,
            "group.id": self.group,
            "client.id": name,
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
        }
        if newer:
            settings["group.protocol"] = "consumer"
        else:
            settings |= {"partition.assignment.strategy": "cooperative-sticky", "heartbeat.interval.ms": 300}

        def gained(_: Consumer, places: list[TopicPartition]) -> None:
            for place in places:
                assert self.owners.setdefault(place.partition, name) == name, f"{name} and {self.owners}"

        def lost(_: Consumer, places: list[TopicPartition]) -> None:
            for place in places:
                assert self.owners.pop(place.partition) == name

        member = self.members[name] = Consumer(settings)
        member.subscribe([self._topic], on_assign=gained, on_revoke=lost)

    def leave(self, name: str) -> None:
        self.members.pop(name).close()

    def poll(self) -> None:
        for member in list(self.members.values()):
            message = member.poll(0.02)
            if message is not None and message.error() is None:
                self.seen.add(int(message.value() or b""))
                try:
                    member.commit(message=message, asynchronous=False)
                except KafkaException as problem:
                    # The group may have moved on meanwhile: the member hears of that with its next heartbeat.
                    if problem.args[0].code() not in MOVED_ON:
                        raise

    def until(self, condition: Callable[[], bool]) -> None:
        def polled() -> bool:
            self.poll()
            return condition()

        eventually(polled)

    def shares(self) -> dict[str, int]:
        """How many partitions each has."""
        return {name: sum(owner == name for owner in self.owners.values()) for name in self.members}

    def settle(self) -> None:
        share = PARTITIONS // len(self.members)
        self.until(lambda: self.shares() == dict.fromkeys(self.members, share))

    def kind(self) -> ConsumerGroupType:
        client = AdminClient({"bootstrap.servers": self.bootstrap})  # its answers come only while it lives
        listed = client.list_consumer_groups().result().valid
        found: ConsumerGroupType = next(group.type for group in listed if group.group_id == self.group)
        return found


@pytest.fixture
def crew(start_broker: StartBroker, target_kind: str, topic: str) -> Iterator[Crew]:
    if target_kind == KAFKA:
        pytest.skip("librdkafka chooses its member ids, which Kafka 3.9 does not know (ConsumerGroupHeartbeat v1)")
    broker = start_broker(SETTINGS)
    create_topic(broker.bootstrap, topic, PARTITIONS)
    made = Crew(broker.bootstrap, topic)
    yield made
    for member in made.members.values():
        member.close()


def test_a_group_goes_over_and_back_under_way(crew: Crew, topic: str) -> None:
    sender = producer(crew.bootstrap)
    sent = 0

    def write() -> None:
        nonlocal sent
        for partition in range(PARTITIONS):
            sender.produce(topic, value=b"%d" % sent, partition=partition)
            sent += 1
        sender.flush()

    crew.join("a", newer=False)
    crew.join("b", newer=False)
    crew.settle()
    assert crew.kind() == ConsumerGroupType.CLASSIC
    # The first member of the consumer protocol takes the group along; the others follow one by one.
    for gone, came, newer in (
        (None, "c", True),
        ("a", "a-over", True),
        ("b", "b-over", True),
        ("a-over", "a-back", False),
        ("b-over", "b-back", False),
    ):
        write()
        if gone is not None:
            crew.leave(gone)
        crew.join(came, newer)
        crew.settle()
        assert crew.kind() == ConsumerGroupType.CONSUMER
        write()
    crew.leave("c")
    crew.settle()
    assert crew.kind() == ConsumerGroupType.CLASSIC
    crew.until(lambda: crew.seen == set(range(sent)))
