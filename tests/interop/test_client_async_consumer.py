"""The consumer in an event loop, against a broker process."""

from __future__ import annotations

import asyncio
import itertools

import pytest

from braidlog import AsyncConsumer, Producer, TopicPartition
from braidlog.client.errors import ClosedError
from support.broker import Broker

NAMES = (f"async-{number}" for number in itertools.count())


def _write(broker: Broker, topic: str, values: list[bytes], partition: int | None = 0) -> None:
    with Producer(bootstrap_servers=broker.bootstrap) as producer:
        for value in values:
            producer.send(topic, value, partition=partition)


def _consumer(broker: Broker, **settings: object) -> AsyncConsumer:
    return AsyncConsumer(bootstrap_servers=broker.bootstrap, auto_offset_reset="earliest", **settings)


@pytest.fixture
def topic() -> str:
    return next(NAMES)


def test_records_come_by_poll_and_by_iteration(broker: Broker, topic: str) -> None:
    values = [b"%d" % number for number in range(1000)]
    _write(broker, topic, values)

    async def read() -> tuple[list[object], list[object]]:
        async with _consumer(broker) as consumer:
            await consumer.assign([(topic, 0)])
            polled = await consumer.poll(30.0, max_records=10)
            assert await consumer.position((topic, 0)) == 10
            iterated = []
            async for record in consumer:
                iterated.append(record.value)
                if record.offset == 999:
                    break
            assert await consumer.lag((topic, 0)) == 0
            return [record.value for record in polled], iterated

    polled, iterated = asyncio.run(read())
    assert polled == values[:10]
    assert iterated == values[10:]


def test_the_loop_goes_on_while_a_poll_waits_and_a_cancelled_one_loses_nothing(broker: Broker, topic: str) -> None:
    _write(broker, topic, [b"first"])

    async def read() -> list[object]:
        async with _consumer(broker) as consumer:
            await consumer.assign([(topic, 0)])
            found = [record.value for record in await consumer.poll(30.0)]
            for _ in range(5):
                with pytest.raises(TimeoutError):
                    await asyncio.wait_for(consumer.poll(60.0), 0.05)
            waiting = asyncio.ensure_future(consumer.poll(60.0))
            await asyncio.to_thread(_write, broker, topic, [b"second"])
            found += [record.value for record in await waiting]
            return found

    assert asyncio.run(read()) == [b"first", b"second"]


def test_other_calls_need_not_wait_for_a_poll(broker: Broker, topic: str) -> None:
    _write(broker, topic, [b"one"])

    async def read() -> None:
        async with _consumer(broker, group_id=topic) as consumer:
            await consumer.assign([(topic, 0)])
            await consumer.poll(30.0)
            waiting = asyncio.ensure_future(consumer.poll(60.0))
            await asyncio.sleep(0)
            async with asyncio.timeout(20):
                await consumer.commit()
                committed = await consumer.committed([(topic, 0)])
            assert not waiting.done()
            stored = committed[TopicPartition(topic, 0)]
            assert stored is not None
            assert stored.offset == 1
            waiting.cancel()

    asyncio.run(read())


def test_iteration_in_a_group_commits_only_what_was_handed_out(broker: Broker, topic: str) -> None:
    _write(broker, topic, [b"%d" % number for number in range(100)])

    async def read(count: int) -> list[int]:
        async with _consumer(broker, group_id=topic) as consumer:
            await consumer.subscribe([topic])
            offsets: list[int] = []
            async for record in consumer:
                offsets.append(record.offset)
                if len(offsets) == count:
                    break
            return offsets

    assert asyncio.run(read(30)) == list(range(30))
    assert asyncio.run(read(5)) == list(range(30, 35))


def test_a_closed_consumer_says_so_and_ends_its_iteration(broker: Broker, topic: str) -> None:
    async def use() -> None:
        consumer = _consumer(broker)
        await consumer.assign([(topic, 0)])
        await consumer.close()
        await consumer.close()
        assert [record async for record in consumer] == []
        with pytest.raises(ClosedError):
            await consumer.poll(1.0)

    asyncio.run(use())


def test_tasks_that_poll_and_tasks_that_ask_do_not_meet_in_the_consumer(broker: Broker, topic: str) -> None:
    count = 3_000

    async def read() -> list[int]:
        async with _consumer(broker, group_id=topic) as consumer:
            await consumer.assign([(topic, 0)])
            found: list[int] = []

            async def poll() -> None:
                while len(found) < count:
                    found.extend(int(record.value or b"") for record in await consumer.poll(0.05, max_records=7))

            async def ask() -> None:
                while len(found) < count:
                    await consumer.assignment()
                    await consumer.position((topic, 0))
                    await consumer.commit()

            writing = asyncio.to_thread(_write, broker, topic, [b"%d" % number for number in range(count)])
            async with asyncio.timeout(60):
                await asyncio.gather(writing, poll(), poll(), ask(), ask())
            return found

    assert sorted(asyncio.run(read())) == list(range(count))


def test_a_close_ends_the_iteration_of_another_task(broker: Broker, topic: str) -> None:
    _write(broker, topic, [b"one"])

    async def use() -> list[object]:
        consumer = _consumer(broker)
        await consumer.assign([(topic, 0)])
        seen: list[object] = []
        first = asyncio.Event()

        async def iterate() -> None:
            async for record in consumer:
                seen.append(record.value)
                first.set()

        iterating = asyncio.ensure_future(iterate())
        async with asyncio.timeout(30):
            await first.wait()
            await consumer.close()
            await iterating
        return seen

    assert asyncio.run(use()) == [b"one"]
