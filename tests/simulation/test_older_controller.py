"""Under a controller that is too old for AlterPartition leaders store their ISRs by themselves, and tell it so."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

import pytest

from braidlog import Producer
from braidlog.broker.broker import Broker
from braidlog.broker.interbroker.controller_channel import ControllerClient
from braidlog.client.admin import Admin, NewTopic
from braidlog.cluster import paths, records
from braidlog.cluster.image import ClusterImage
from braidlog.cluster.records import ProducerIdBlock
from braidlog.controller.requests import AlterPartitionResult, PartitionChange
from braidlog.core.protocol_errors import UnsupportedVersionError
from braidlog.core.types import BrokerId, TopicPartition
from braidlog.testing.simulated.cluster import SimulatedCluster
from braidlog.testing.simulated.program import SimulatedProgram

WHERE = TopicPartition("orders", 0)


class OlderControllerClient(ControllerClient):
    """What a broker hears from Kafka 2.6 as the controller."""

    async def alter_partition(
        self, broker_id: BrokerId, broker_epoch: int, changes: Sequence[PartitionChange]
    ) -> list[AlterPartitionResult]:
        raise UnsupportedVersionError("the broker does not offer AlterPartition")

    async def allocate_producer_ids(self, broker_id: BrokerId, broker_epoch: int) -> ProducerIdBlock:
        raise UnsupportedVersionError("the broker does not offer AllocateProducerIds")


def image_of(parts: Broker) -> Callable[[], ClusterImage]:
    return lambda: parts.metadata_cache.image


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not condition():  # noqa: ASYNC110 - simulated time has to pass
            await asyncio.sleep(0.1)


@pytest.mark.parametrize("seed", range(5))
def test_the_isr_shrinks_and_grows_without_the_controller(seed: int) -> None:
    with SimulatedCluster(seed, settings={"replica.lag.time.max.ms": "2000"}) as cluster:

        def isrs() -> list[tuple[int, ...]]:
            """As the store has it, and every broker."""
            path = paths.partition_state(*WHERE)
            images = [broker.parts.metadata_cache.image.partition(WHERE) for broker in cluster.brokers]
            stored = records.decode_partition_state(path, cluster.zookeeper.tree.node(path).data).isr
            return [stored, *(tuple(image.isr) if image is not None else () for image in images)]

        async def work() -> None:
            await cluster.start()
            for broker in cluster.brokers:
                parts = broker.parts
                parts.controller_client = OlderControllerClient(parts.network, image_of(parts))
            controller = cluster.brokers[0].parts.metadata_cache.image.controller_id
            leader, follower = (each for each in cluster.brokers if each.parts.broker_id != controller)
            numbers = [leader.parts.broker_id, follower.parts.broker_id, controller]
            program = SimulatedProgram(cluster.simulation, "client")

            async def create() -> None:
                admin = Admin(bootstrap_servers=cluster.servers)
                await program.call(admin.create_topics, [NewTopic("orders", assignment=[numbers])])

            async def write() -> None:
                # Its id is from a block that its broker claimed in the store.
                await Producer(bootstrap_servers=cluster.servers).send("orders", b"a record")

            await program.spawn(create())
            await until(lambda: isrs() == [tuple(numbers)] * 4)
            cluster.partition(leader, follower)
            # Committed once nobody waits for the follower any more.
            await program.spawn(write())
            await until(lambda: isrs() == [(numbers[0], controller)] * 4)
            await until(lambda: not cluster.zookeeper.tree.node(paths.ISR_CHANGES).children)
            cluster.heal()
            await until(lambda: {frozenset(each) for each in isrs()} == {frozenset(numbers)})

        cluster.run(work())
