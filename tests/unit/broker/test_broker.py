from __future__ import annotations

from braidlog.testing.simulated.simulation import Simulation
from support.asked_broker import AskedBroker


def test_a_broker_that_starts_again_is_the_same_one() -> None:
    with Simulation(1) as simulation:

        async def run() -> None:
            await simulation.broker.start()
            asked = AskedBroker(simulation)
            topic_id = await asked.create("t", 3)
            first = asked.parts
            assert first.ready
            before = (first.cluster_id, first.broker_id, first.broker_epoch)
            await simulation.broker.stop()
            assert not first.ready
            await simulation.broker.start()
            second = simulation.broker.parts
            assert second is not first
            assert (second.cluster_id, second.broker_id) == before[:2]
            assert second.broker_epoch > before[2]
            assert second.registry.name_of(topic_id) == "t"
            assert len(second.registry) == 3
            await simulation.broker.stop()

        simulation.run(run())
        assert simulation.errors == []


def test_a_crash_costs_a_recovery_and_a_clean_stop_does_not() -> None:
    with Simulation(2) as simulation:

        async def run() -> None:
            await simulation.broker.start()
            await AskedBroker(simulation).create("t")
            await simulation.broker.stop()
            await simulation.broker.start()
            assert simulation.broker.parts.logs.directories[0].stopped_cleanly
            simulation.broker.kill()
            await simulation.broker.start()
            assert not simulation.broker.parts.logs.directories[0].stopped_cleanly
            await simulation.broker.stop()

        simulation.run(run())


def test_a_broker_without_an_id_is_given_one_above_the_reserved() -> None:
    with Simulation(3, {"broker.id": "-1"}) as simulation:

        async def run() -> None:
            await simulation.broker.start()
            first = simulation.broker.parts.broker_id
            assert first > 1000
            await simulation.broker.stop()
            await simulation.broker.start()
            assert simulation.broker.parts.broker_id == first
            await simulation.broker.stop()

        simulation.run(run())
