from __future__ import annotations

from braidlog.client import Producer
from braidlog.client.admin import Admin, NewTopic
from braidlog.testing.simulated.cluster import SimulatedCluster
from braidlog.testing.simulated.program import SimulatedProgram


def test_three_brokers() -> None:
    with SimulatedCluster(1) as cluster:
        program = SimulatedProgram(cluster.simulation, "program")

        def create() -> None:
            with Admin(bootstrap_servers=cluster.servers) as admin:
                admin.create_topics([NewTopic("orders", 6, 1)]).raise_for_errors()
            with Producer(bootstrap_servers=cluster.servers) as producer:
                for number in range(12):
                    producer.send("orders", str(number), partition=number % 6).result()

        async def work() -> None:
            await cluster.start()
            await program.call(create)

        cluster.run(work())
        images = [broker.parts.metadata_cache.image for broker in cluster.brokers]
        assert images[0].topics["orders"] == images[1].topics["orders"]
        assert not cluster.simulation.errors
