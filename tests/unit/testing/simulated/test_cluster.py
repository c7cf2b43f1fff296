"""What can be done to simulated brokers and the network between them."""

from __future__ import annotations

import asyncio
import contextvars

import pytest

from braidlog.testing.simulated.cluster import SimulatedCluster
from braidlog.testing.simulated.loop import Process
from braidlog.testing.simulated.network import SimulatedConnector
from braidlog.testing.simulated.simulation import BrokerEnded


def test_what_is_sent_over_a_blocked_link_comes_late_and_in_order() -> None:
    with SimulatedCluster(1, count=2) as cluster:
        one, other = cluster.brokers
        got: list[bytes] = []

        async def work() -> None:
            await cluster.start()
            network = cluster.simulation.network
            client = Process("client")
            connection = network.connect(client, other.address, one.address[0])
            assert connection is not None
            connection.start(lambda: got.append(b"readable"), lambda problem: None)
            cluster.partition(one, other)
            # ApiVersions 0, twice.
            request = b"\x00\x00\x00\x0a\x00\x12\x00\x00\x00\x00\x00\x01\xff\xff"
            connection.send([request])
            connection.send([request.replace(b"\x01", b"\x02")])
            await asyncio.sleep(10)
            assert not got
            cluster.heal()
            await asyncio.sleep(1)
            assert got
            answer = bytearray(8)
            connection.receive_into(memoryview(answer))
            assert answer[4:] == b"\x00\x00\x00\x01"

        cluster.run(work())


def test_a_host_that_is_not_reached_refuses_nothing_at_once() -> None:
    with SimulatedCluster(2, count=2) as cluster:
        one, other = cluster.brokers

        async def work() -> None:
            await cluster.start()
            connector = SimulatedConnector(cluster.simulation.network, Process("client"), one.address[0])
            await connector.connect(other.address)
            cluster.partition(one, other, both_ways=False)
            assert not await cluster.simulation.network.reached(*(each.address[0] for each in (other, one)))
            cluster.heal()
            await connector.connect(other.address)

        cluster.run(work())


def test_a_paused_process_does_later_what_came_meanwhile() -> None:
    with SimulatedCluster(3, count=1) as cluster:
        loop = cluster.simulation.loop
        paused = Process("paused")
        did: list[tuple[str, float]] = []

        def note(what: str) -> None:
            did.append((what, loop.time()))

        async def work() -> None:
            loop.call_later(1, note, "first", context=paused.context.copy())
            loop.call_later(2, note, "second", context=paused.context.copy())
            loop.call_later(1.5, note, "other", context=contextvars.Context())
            loop.pause(paused, 5)
            await asyncio.sleep(10)

        cluster.run(work())
        assert did == [("other", 1.5), ("first", 5.0), ("second", 5.0)]


def test_a_paused_broker_loses_its_session_and_registers_again() -> None:
    with SimulatedCluster(4, count=2) as cluster:

        async def work() -> None:
            await cluster.start()
            paused = cluster.brokers[1].parts
            before = paused.broker_epoch
            cluster.brokers[1].pause(12)
            await asyncio.sleep(30)
            assert paused.broker_epoch > before
            assert set(cluster.brokers[0].parts.metadata_cache.image.brokers) == {1, 2}

        cluster.run(work())


@pytest.mark.parametrize("after_ms", range(0, 40, 4))
def test_a_broker_may_be_killed_while_it_connects_to_zookeeper(after_ms: int) -> None:
    """What it would do at an orderly end, and await, is left."""
    with SimulatedCluster(5, count=1) as cluster:

        async def work() -> None:
            (broker,) = cluster.brokers
            cluster.zookeeper.cut(broker.name)
            starting = asyncio.ensure_future(broker.start())
            await asyncio.sleep(2)
            cluster.zookeeper.restore(broker.name)
            await asyncio.sleep(after_ms / 1000)
            broker.kill()
            with pytest.raises(BrokerEnded):
                await starting

        cluster.run(work())
