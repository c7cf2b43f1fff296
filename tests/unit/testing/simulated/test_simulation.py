from __future__ import annotations

import asyncio

import pytest

from braidlog.testing.simulated.loop import Process
from braidlog.testing.simulated.simulation import ADDRESS, BrokerEnded, Simulation, Trace
from support.asked_broker import AskedBroker


def life(seed: int) -> tuple[str, int]:
    with Simulation(seed) as simulation:
        simulation.trace.keep_all()

        async def run() -> None:
            await simulation.broker.start()
            await AskedBroker(simulation).create("t", 3)
            await simulation.broker.stop()

        simulation.run(run())
        return simulation.trace.digest(), simulation.trace.count


def test_a_seed_decides_everything() -> None:
    assert life(7) == life(7)
    assert life(7) != life(8)


def test_only_the_last_lines_are_kept() -> None:
    trace = Trace(lambda: 0.0, kept=2)
    for line in "abc":
        trace.note(line)
    trace.detail("write", "/data/x", 12)
    assert trace.last == ["0.000000 c", "0.000000 write /data/x 12"]
    assert trace.story == ["0.000000 b", "0.000000 c"]
    assert trace.count == 4
    with pytest.raises(ValueError, match="keep_all"):
        trace.digest()


def test_the_digest_is_of_all_lines_where_all_are_kept() -> None:
    one, two = Trace(lambda: 0.0, kept=2), Trace(lambda: 0.0, kept=2)
    for trace, first in ((one, "a"), (two, "b")):
        trace.keep_all()
        for line in (first, "c", "d"):
            trace.note(line)
    assert one.last == ["0.000000 a", "0.000000 c", "0.000000 d"]
    assert one.digest() != two.digest()
    assert one.digest() == one.digest()


def test_a_line_says_whose_it_is_and_when_it_came() -> None:
    now = iter([1.5, 2.0])
    trace = Trace(lambda: next(now))
    process = Process("broker 1.1")
    process.context.run(trace.note, "began")
    process.end()
    trace.note("ended")
    assert trace.last == ["1.500000 broker 1.1: began", "2.000000 ended"]


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
