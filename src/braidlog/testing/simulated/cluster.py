"""Several simulated brokers on one simulated ZooKeeper: how they are made, and what can be done to them.

Each has its own disk, session and host; the network between them, the one to ZooKeeper and each process can fail apart
from the others. `heal` ends all of that.

    with SimulatedCluster(seed) as cluster:
        cluster.run(work(cluster))      # starts, uses and breaks cluster.brokers
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Awaitable, Mapping
from typing import Final

from braidlog.testing.simulated.connection import Link
from braidlog.testing.simulated.simulation import SimulatedBroker, Simulation

# A stream between hosts whose link is slow takes up to so long, instead of a millisecond.
SLOW_S: Final = 4.0

_SETTINGS: Final = {
    "zookeeper.connect": "simulated:2181",
    "offsets.topic.replication.factor": "1",
    "offsets.topic.num.partitions": "2",
    "controller.socket.timeout.ms": "4000",
    "request.timeout.ms": "4000",
    "controlled.shutdown.max.retries": "1",
    "controlled.shutdown.retry.backoff.ms": "500",
}
_PORT: Final = 9092


class SimulatedCluster:
    """`brokers` have the ids 1 … count; they have to be started."""

    def __init__(self, seed: int, count: int = 3, settings: Mapping[str, str] | None = None) -> None:
        given = {**_SETTINGS, **(settings or {})}
        self.simulation = Simulation(seed, {**given, "broker.id": "1"}, (_host(1), _PORT))
        others = [
            self.simulation.add_broker({**given, "broker.id": str(number)}, (_host(number), _PORT))
            for number in range(2, count + 1)
        ]
        self.brokers = [self.simulation.broker, *others]
        self.zookeeper = self.simulation.zookeeper
        self.servers = ",".join(f"{host}:{port}" for host, port in (broker.address for broker in self.brokers))
        self._usual_latency_s = Link().latency_s

    def __enter__(self) -> SimulatedCluster:
        self.simulation.__enter__()
        return self

    def __exit__(self, *problem: object) -> None:
        self.simulation.__exit__(*problem)

    def run(self, work: Awaitable[None]) -> None:
        self.simulation.run(work)

    async def start(self) -> None:
        """All brokers that are down, at the same time."""
        await asyncio.gather(*(broker.start() for broker in self.brokers if broker.is_down))

    # Faults between hosts

    def partition(self, one: SimulatedBroker, other: SimulatedBroker, *, both_ways: bool = True) -> None:
        """Nothing gets from one to the other until they are healed; what was sent then arrives late."""
        network = self.simulation.network
        way = "or back" if both_ways else "but back"
        self.simulation.trace.note(f"network: nothing gets from {one.name} to {other.name}, {way}")
        network.block(one.address[0], other.address[0])
        if both_ways:
            network.block(other.address[0], one.address[0])

    def slow_down(self, one: SimulatedBroker, other: SimulatedBroker) -> None:
        self.simulation.trace.note(f"network: {one.name} is slow to reach {other.name}")
        self.simulation.network.link(one.address[0], other.address[0]).latency_s = SLOW_S

    def cut_connections(self, broker: SimulatedBroker) -> None:
        """Those that others have to it are lost, with requests and answers under way."""
        self.simulation.trace.note(f"network: connections to {broker.name} are lost")
        self.simulation.network.cut_to(broker.address)

    def reconnect(self, one: SimulatedBroker, other: SimulatedBroker) -> None:
        """The link from one to the other is as it was made."""
        network = self.simulation.network
        link = network.link(one.address[0], other.address[0])
        link.latency_s = self._usual_latency_s
        if link.blocked:
            self.simulation.trace.note(f"network: {one.name} reaches {other.name} again")
            link.unblock()

    def heal(self) -> None:
        """All links are as they were made, and ZooKeeper is up and reached by all."""
        for one, other in itertools.permutations(self.brokers, 2):
            self.reconnect(one, other)
        for broker in self.brokers:
            self.zookeeper.restore(broker.name)
        self.zookeeper.lose_answer_one_in = 0
        if not self.zookeeper.is_up:
            self.zookeeper.come_up()


def _host(number: int) -> str:
    return f"host{number}"
