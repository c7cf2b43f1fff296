"""What a consumer reads, said in the fewest words: topics where it is made, with a group or without one."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any

import pytest

from braidlog import Admin, AsyncConsumer, Consumer, ParallelConsumer, Producer, RebalanceListener, TopicPartition
from braidlog.client.admin.topics import NewPartitions, NewTopic
from braidlog.client.consumer.record import ConsumerRecord
from braidlog.core.errors import UserError
from support.broker import Broker

WITHIN_S = 60.0


@pytest.fixture
def settings(quick_broker: Broker) -> dict[str, Any]:
    return {"bootstrap_servers": quick_broker.bootstrap, "auto_offset_reset": "earliest"}


@pytest.fixture
def create(quick_broker: Broker, topic: str) -> Callable[..., str]:
    def create(suffix: str = "", partitions: int = 1) -> str:
        name = f"{topic}{suffix}"
        with Admin(bootstrap_servers=quick_broker.bootstrap) as admin:
            admin.create_topics([NewTopic(name, partitions=partitions)]).raise_for_errors()
        return name

    return create


@pytest.fixture
def write(quick_broker: Broker) -> Callable[..., None]:
    def write(*places: tuple[str, int]) -> None:
        """One record at each place, with the place as its value."""
        with Producer(bootstrap_servers=quick_broker.bootstrap) as producer:
            for topic, partition in places:
                producer.send(topic, f"{topic} {partition}", partition=partition).result(WITHIN_S)

    return write


def read(consumer: Consumer, count: int) -> list[ConsumerRecord]:
    records: list[ConsumerRecord] = []
    deadline = time.monotonic() + WITHIN_S
    while len(records) < count:
        records += consumer.poll(1.0)
        assert time.monotonic() < deadline, f"only {len(records)} of {count} records came"
    return records


def places(records: list[ConsumerRecord]) -> list[tuple[str, int]]:
    return sorted((each.topic, each.partition) for each in records)


def test_topics_where_it_is_made(settings: dict[str, Any], create: Any, write: Any) -> None:
    one, two = create("-1", 2), create("-2")
    written = [(one, 0), (one, 1), (two, 0)]
    write(*written)
    with Consumer(one, two, group_id=one, **settings) as consumer:
        assert consumer.subscription() == {one, two}
        assert places(read(consumer, 3)) == written
    with Consumer({"group.id": f"{one}-other"}, one, two, **settings) as consumer:
        assert places(read(consumer, 3)) == written
    with Consumer(f"^{one}|{two}$", group_id=f"{one}-pattern", **settings) as consumer:
        assert places(read(consumer, 3)) == written


def test_without_a_group_all_partitions_are_read(settings: dict[str, Any], create: Any, write: Any) -> None:
    """By each consumer that subscribes so: they share nothing, and commit nothing."""
    one, two = create("-1", 2), create("-2")
    written = [(one, 0), (one, 1), (two, 0)]
    write(*written)
    with Consumer(one, two, **settings) as consumer, Consumer(**settings) as other:
        other.subscribe([one, two])
        assert places(read(consumer, 3)) == places(read(other, 3)) == written
        assert consumer.assignment() == {TopicPartition(*each) for each in written}
        other.unsubscribe()
        assert other.assignment() == frozenset()
        with pytest.raises(UserError, match="has no group and cannot commit"):
            consumer.commit()


def test_without_a_group_new_topics_and_partitions_are_found(
    quick_broker: Broker, settings: dict[str, Any], create: Any, write: Any
) -> None:
    one = create("-1")
    reported: list[list[TopicPartition]] = []

    class Told(RebalanceListener):
        def on_partitions_assigned(self, partitions: list[TopicPartition]) -> None:
            reported.append(partitions)

    with Consumer(metadata_max_age_ms=200, **settings) as consumer:
        consumer.subscribe(f"^{one}.*", listener=Told())
        write((one, 0))
        assert places(read(consumer, 1)) == [(one, 0)]
        with Admin(bootstrap_servers=quick_broker.bootstrap) as admin:
            admin.create_partitions({one: NewPartitions(3)}).raise_for_errors()
        write((one, 0), (one, 2))
        # What was read stays read.
        assert sorted((each.partition, each.offset) for each in read(consumer, 2)) == [(0, 1), (2, 0)]
        two = create("-1-more")
        write((two, 0))
        assert places(read(consumer, 1)) == [(two, 0)]
    assert [each for share in reported for each in share] == [
        TopicPartition(one, 0),
        TopicPartition(one, 1),
        TopicPartition(one, 2),
        TopicPartition(two, 0),
    ]


def test_the_async_and_the_parallel_consumer_take_topics_as_well(
    settings: dict[str, Any], create: Any, write: Any
) -> None:
    one = create("-1", 2)
    write((one, 0), (one, 1))

    async def first() -> str:
        async with AsyncConsumer(one, group_id=f"{one}-async", **settings) as consumer, asyncio.timeout(WITHIN_S):
            return (await anext(consumer)).topic

    assert asyncio.run(first()) == one
    handled: list[ConsumerRecord] = []
    given = {**settings, "group_id": f"{one}-parallel", "enable_auto_commit": False}
    with Consumer(one, **given) as consumer:

        def handle(record: ConsumerRecord) -> None:
            handled.append(record)
            if len(handled) == 2:
                parallel.stop()

        parallel = ParallelConsumer(consumer, handle)
        parallel.run(idle_timeout=WITHIN_S)
        assert places(handled) == [(one, 0), (one, 1)]
        # Its own listener is in place, so that rebalances wait for work under way.
        assert consumer._listener is not None
    with Consumer(**given) as consumer:
        committed = consumer.committed([(one, 0), (one, 1)])
        assert [None if each is None else each.offset for each in committed.values()] == [1, 1]


@pytest.mark.parametrize(
    ("first", "said"),
    [
        ("localhost:9092", r"Write bootstrap_servers='localhost:9092'"),
        (["orders", "payments"], r"write Consumer\('orders', 'payments', bootstrap_servers='HOST:PORT'\)"),
        (" ", "is no topic"),
    ],
)
def test_what_is_no_topic_is_told(first: Any, said: str) -> None:
    with pytest.raises(UserError, match=said):
        Consumer(first, bootstrap_servers="localhost:1")
    with pytest.raises(UserError, match=said):
        AsyncConsumer(first, bootstrap_servers="localhost:1")
