"""Deliveries in event loops: many tasks await one batch, and each ends by itself."""

from __future__ import annotations

import asyncio
from collections import deque

import pytest

from braidlog.client.producer.delivery import RecordMetadata
from braidlog.core.protocol_errors import TopicAuthorizationFailedError
from support.producer_simulation import TOPIC, ProducerSimulation


@pytest.fixture
def world() -> ProducerSimulation:
    made = ProducerSimulation()
    made.learn()
    made.run(1.0)
    return made


def test_all_tasks_that_await_a_batch_are_woken(world: ProducerSimulation) -> None:
    async def program() -> list[RecordMetadata]:
        return await asyncio.gather(*[world.send(b"%d" % number) for number in range(10)])

    places = world.loop.run_until_complete(program())
    assert [place.offset for place in places] == list(range(10))
    assert len(world.requests) == 1


def test_a_cancelled_task_does_not_cancel_others(world: ProducerSimulation) -> None:
    async def program() -> tuple[asyncio.Task[RecordMetadata], RecordMetadata]:
        async def wait(number: int) -> RecordMetadata:
            return await world.send(b"%d" % number)

        first, second = asyncio.create_task(wait(0)), asyncio.create_task(wait(1))
        await asyncio.sleep(0)
        first.cancel()
        return first, await second

    first, place = world.loop.run_until_complete(program())
    assert first.cancelled()
    assert place.offset == 1
    assert world.logs[(TOPIC, 0)].values == [b"0", b"1"]


def test_a_task_may_stop_waiting(world: ProducerSimulation) -> None:
    world.unreachable.add(1)

    async def program() -> None:
        async with asyncio.timeout(0.5):
            await world.send(b"late")

    with pytest.raises(TimeoutError):
        world.loop.run_until_complete(program())
    world.unreachable.clear()
    world.run(5.0)
    assert world.logs[(TOPIC, 0)].values == [b"late"]


def test_what_failed_is_raised(world: ProducerSimulation) -> None:
    world.refusals[0] = deque([29])

    async def program() -> None:
        await world.send(b"refused")

    with pytest.raises(TopicAuthorizationFailedError):
        world.loop.run_until_complete(program())


def test_a_batch_that_is_split_is_awaited_to_its_end(world: ProducerSimulation) -> None:
    world.logs[(TOPIC, 0)].largest = 250

    async def program() -> list[int]:
        places = await asyncio.gather(*[world.send(b"%02d" % number + bytes(18)) for number in range(40)])
        return [place.offset for place in places]

    assert world.loop.run_until_complete(program()) == list(range(40))
