"""The connections and the metadata of real clients against a simulated broker, which is killed meanwhile."""

from __future__ import annotations

import asyncio

import pytest

from braidlog.client.metadata import Metadata
from braidlog.client.network.lookups import find_coordinators, list_offsets
from braidlog.client.network.nodes import Nodes
from braidlog.client.requests.find_coordinator import GROUP
from braidlog.client.requests.list_offsets import IsolationLevel, ListedOffset, OffsetQuery, OffsetSpec
from braidlog.client.settings import ADMIN, Settings
from braidlog.core.types import TopicPartition
from braidlog.net.outbound.errors import NoConnection
from braidlog.testing.simulated.program import SimulatedProgram
from braidlog.testing.simulated.simulation import Simulation
from braidlog.wire.generated.create_topics import CreatableTopic, CreateTopicsRequest, CreateTopicsResponse

CREATE_TOPICS = 19
ORDERS = TopicPartition("orders", 1)


def nodes_in(simulation: Simulation) -> Nodes:
    given = {"bootstrap.servers": "simulated:9092", "request.timeout.ms": 2000, "reconnect.backoff.ms": 20}
    return SimulatedProgram(simulation, "program").runtime.nodes(Settings.of(ADMIN, given))


async def use(simulation: Simulation) -> None:
    await simulation.broker.start()
    nodes = nodes_in(simulation)
    settings = Settings.of(ADMIN, {"bootstrap.servers": "simulated:9092"})
    metadata = Metadata(nodes, settings, create_topics=False, random=simulation.random)
    request = CreateTopicsRequest(topics=[CreatableTopic(name="orders", num_partitions=2, replication_factor=1)])
    connection = await nodes.any()
    await connection.call(CREATE_TOPICS, request, CreateTopicsResponse, timeout_s=5.0)
    assert len((await metadata.topic("orders", 30.0)).partitions) == 2

    leader = await nodes.connection(metadata.view.topics["orders"].leader_of(1))
    found = await list_offsets(leader, {ORDERS: OffsetQuery(OffsetSpec.LATEST)}, IsolationLevel.READ_UNCOMMITTED, 5.0)
    assert isinstance(found[ORDERS], ListedOffset)
    assert [each.key for each in await find_coordinators(leader, GROUP, ["shop"], 5.0)] == ["shop"]

    asked = asyncio.ensure_future(list_offsets(leader, {}, IsolationLevel.READ_UNCOMMITTED, 5.0))
    await asyncio.sleep(0)
    simulation.broker.kill()
    with pytest.raises(NoConnection):
        await asked
    assert not leader.is_open
    # Until every connection has learned of it.
    await asyncio.sleep(0.1)
    with pytest.raises(NoConnection, match="is it running"):
        await nodes.any()

    await simulation.broker.start()
    metadata.request_update()
    assert (await metadata.refreshed()).topics["orders"].error_code == 0
    metadata.close()
    nodes.close()
    await simulation.broker.stop()


@pytest.mark.parametrize("seed", range(20))
def test_connections_break_and_come_back_in_virtual_time(seed: int) -> None:
    with Simulation(seed) as simulation:
        simulation.run(asyncio.wait_for(use(simulation), 120.0))
        assert simulation.errors == []


def test_a_seed_replays_the_same_requests() -> None:
    digests = set()
    for _ in range(2):
        with Simulation(7) as simulation:
            simulation.trace.keep_all()
            simulation.run(asyncio.wait_for(use(simulation), 120.0))
            digests.add(simulation.trace.digest())
    assert len(digests) == 1
