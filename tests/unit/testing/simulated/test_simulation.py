from __future__ import annotations

import asyncio

import pytest

from braidlog.testing.simulated.loop import Process
from braidlog.testing.simulated.simulation import ADDRESS, BrokerEnded, Simulation, Trace
from support.asked_broker import AskedBroker


def life(seed: int) -> tuple[str, int]:
    with Simulation(seed) as simulation:

        async def run() -> None:
            await simulation.broker.start()
            await AskedBroker(simulation).create("t", 3)
            await simulation.broker.stop()

        simulation.run(run())
        return simulation.trace.digest(), simulation.trace.count


def test_a_seed_decides_everything() -> None:
    assert life(7) == life(7)
    assert life(7) != life(8)


def test_the_digest_is_of_all_lines_and_only_the_last_are_kept() -> None:
    one, two = Trace(lambda: 0.0, kept=2), Trace(lambda: 0.0, kept=2)
    for trace, first in ((one, "a"), (two, "b")):
        for line in (first, "c", "d"):
            trace.note(line)
    assert list(one.last) == list(two.last) == ["0.000000 c", "0.000000 d"]
    assert one.digest() != two.digest()
    assert one.count == 3


def test_nothing_connects_to_a_broker_that_is_down() -> None:
    with Simulation(1) as simulation:
        assert simulation.broker.is_down
        assert simulation.network.connect(Process("test"), ADDRESS) is None


def test_a_broker_may_be_killed_in_the_turn_in_which_it_is_to_stop() -> None:
    """Without a coroutine that nobody awaits: that would be a warning, and so a failure of whatever test runs then."""
    with Simulation(3) as simulation:

        async def run() -> None:
            await simulation.broker.start()
            stopping = asyncio.ensure_future(simulation.broker.stop())
            asyncio.get_running_loop().call_soon(simulation.broker.kill)
            with pytest.raises(BrokerEnded):
                await stopping

        simulation.run(run())


def test_what_was_not_synced_may_be_lost_and_what_was_answered_is_not() -> None:
    with Simulation(5) as simulation:

        async def run() -> None:
            await simulation.broker.start()
            topic_id = await AskedBroker(simulation).create("t")
            simulation.broker.cut_power()
            await simulation.broker.start()
            assert simulation.broker.lives == 2
            assert simulation.broker.parts.registry.name_of(topic_id) == "t"
            await simulation.broker.stop()

        simulation.run(run())


def test_who_waits_for_a_broker_to_be_down_learns_of_it_at_once() -> None:
    with Simulation(4) as simulation:

        async def run() -> None:
            await simulation.broker.wait_until_down()
            await simulation.broker.start()
            down = asyncio.ensure_future(simulation.broker.wait_until_down())
            await asyncio.sleep(1.0)
            assert not down.done()
            simulation.broker.kill()
            killed = simulation.loop.time()
            await down
            assert simulation.loop.time() == killed

        simulation.run(run())


def test_the_digest_does_not_depend_on_when_it_is_asked_for() -> None:
    one, two = Trace(lambda: 0.0), Trace(lambda: 0.0)
    for line in map(str, range(1200)):
        one.detail(line)
        two.detail(line)
        two.digest()
    assert one.digest() == two.digest()
