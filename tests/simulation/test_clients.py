"""The real Producer and Consumer against a simulated broker that is killed while they work.

Every record is acknowledged in the end, stands in its partition once, in the order sent, and a group reads it there.
"""

from __future__ import annotations

import asyncio

import pytest

from braidlog.client import Consumer, Producer
from braidlog.client.admin import Admin, NewTopic
from braidlog.client.errors import ClientError
from braidlog.testing.simulated.program import SimulatedProgram
from braidlog.testing.simulated.simulation import SERVERS, Simulation
from support.simulation.shop import PARTITIONS, Shop, run_shop


@pytest.mark.parametrize("seed", range(10))
def test_records_survive_a_broker_that_is_killed(seed: int) -> None:
    with Simulation(seed) as simulation:
        simulation.run(run_shop(simulation))
        assert simulation.errors == []


def test_brokers_are_found_by_their_addresses() -> None:
    """Two brokers that know nothing of each other, on one clock and network."""
    with Simulation(1) as simulation:
        other = simulation.add_broker({"broker.id": "2"}, ("other", 9093))
        program = SimulatedProgram(simulation, "program")

        def topics(servers: str) -> list[str]:
            with Admin(bootstrap_servers=servers) as admin:
                return [topic.name for topic in admin.list_topics()]

        def create(servers: str, name: str) -> None:
            with Admin(bootstrap_servers=servers) as admin:
                admin.create_topics([NewTopic(name, 1, 1)]).raise_for_errors()
            with Producer(bootstrap_servers=servers) as producer:
                producer.send(name, "value").result()

        async def use_both() -> None:
            await asyncio.gather(simulation.broker.start(), other.start())
            await asyncio.gather(program.call(create, SERVERS, "here"), program.call(create, "other:9093", "there"))
            assert await program.call(topics, SERVERS) == ["here"]
            simulation.broker.kill()
            assert await program.call(topics, "other:9093") == ["there"]
            await other.stop()

        simulation.run(use_both())


def test_in_an_event_loop_a_partition_that_does_not_exist_fails_in_time() -> None:
    with Simulation(3) as simulation:
        program = SimulatedProgram(simulation, "program")

        async def send() -> None:
            await simulation.broker.start()
            await program.call(Shop(simulation).open)
            producer = Producer(bootstrap_servers=SERVERS, max_block_ms=2000)
            await producer.send("orders", "there", partition=0)
            began = simulation.clock.monotonic()
            missing = producer.send("orders", "nowhere", partition=PARTITIONS)
            behind = producer.send("orders", "there", partition=1)
            with pytest.raises(ClientError, match="has 2 partitions"):
                await missing
            assert 2.0 <= round(simulation.clock.monotonic() - began, 6) < 3.0
            assert (await behind).partition == 1
            await program.call(producer.close)

        simulation.run(program.spawn(send()))


def test_a_killed_program_leaves_its_group_to_the_session_timeout() -> None:
    with Simulation(2) as simulation:
        first, second = SimulatedProgram(simulation, "first"), SimulatedProgram(simulation, "second")

        def read(patience_s: float) -> int:
            consumer = Consumer(bootstrap_servers=SERVERS, group_id="shop", session_timeout_ms=7000)
            consumer.subscribe(["orders"])
            deadline = simulation.clock.monotonic() + patience_s
            while not consumer.assignment() and simulation.clock.monotonic() < deadline:
                consumer.poll(0.1)
            return len(consumer.assignment())

        async def work() -> None:
            await simulation.broker.start()
            await first.call(Shop(simulation).open)
            assert await first.call(read, 60.0) > 0
            first.kill()
            began = simulation.clock.monotonic()
            assert await second.call(read, 60.0) == PARTITIONS
            assert simulation.clock.monotonic() - began > 3.0
            await simulation.broker.stop()

        simulation.run(work())
        assert simulation.errors == []
