"""A real Admin administers a simulated broker that is killed and started again between its calls."""

from __future__ import annotations

import pytest

from braidlog.client.admin import Admin, NewTopic, OffsetSpec
from braidlog.client.errors import NoConnection
from braidlog.client.runtime import clients_in
from braidlog.core.types import TopicPartition
from braidlog.testing.simulated.program import SimulatedProgram
from braidlog.testing.simulated.simulation import SERVERS, Simulation

ORDERS = TopicPartition("orders", 1)


def administer(simulation: Simulation) -> None:
    simulation.run(simulation.broker.start())
    with clients_in(SimulatedProgram(simulation, "program").runtime), Admin(bootstrap_servers=SERVERS) as admin:
        admin.create_topics([NewTopic("orders", partitions=2, replication_factor=1)]).raise_for_errors()
        assert admin.alter_group_offsets("shop", {ORDERS: 0})[ORDERS] is None

        simulation.broker.kill()
        began = simulation.clock.monotonic()
        with pytest.raises(NoConnection, match=r"is it running|did not answer within"):
            admin.within(5.0).list_topics()
        assert 5.0 <= simulation.clock.monotonic() - began < 8.0

        simulation.run(simulation.broker.start())
        assert "orders" in [topic.name for topic in admin.list_topics()]
        assert admin.list_offsets({ORDERS: OffsetSpec.LATEST})[ORDERS].offset == 0
        # What was acknowledged is there after the crash, once its coordinator has loaded.
        assert admin.list_group_offsets(["shop"])["shop"][ORDERS].offset == 0
        assert admin.describe_cluster().controller_id == 1
    simulation.run(simulation.broker.stop())


@pytest.mark.parametrize("seed", range(20))
def test_an_admin_outlives_the_broker(seed: int) -> None:
    with Simulation(seed) as simulation:
        administer(simulation)
        assert simulation.errors == []


def test_a_seed_replays_the_same_calls() -> None:
    digests = set()
    for _ in range(2):
        with Simulation(3) as simulation:
            simulation.trace.keep_all()
            administer(simulation)
            digests.add(simulation.trace.digest())
    assert len(digests) == 1
