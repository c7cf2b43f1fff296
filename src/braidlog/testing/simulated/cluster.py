"""Several simulated brokers on one simulated ZooKeeper: how they are made, and what can be done to them.

Each has its own disk, session and host; the network between them, the one to ZooKeeper and each process can fail apart
from the others. `heal` ends all of that.

    with SimulatedCluster(seed) as cluster:
        cluster.run(work(cluster))      # starts, uses and breaks cluster.brokers

As long as brokers do not copy records to each other, a partition gets another leader only by `move_partition`: its log
is on another disk from one moment to the next.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Awaitable, Mapping
from typing import Final

from braidlog.cluster import paths
from braidlog.cluster.records import (
    decode_controller_epoch,
    decode_partition_state,
    decode_topic,
    encode_partition_state,
    encode_topic,
)
from braidlog.cluster.store import Operation, SetData
from braidlog.core.types import NO_BROKER, TopicPartition
from braidlog.storage.dirs.offset_checkpoint_file import (
    HIGH_WATERMARKS,
    RECOVERY_POINTS,
    START_OFFSETS,
    OffsetCheckpointFile,
)
from braidlog.testing.simulated.connection import Link
from braidlog.testing.simulated.memory_files import MemoryFiles
from braidlog.testing.simulated.simulation import SimulatedBroker, Simulation

# A stream between hosts whose link is slow takes up to so long, instead of a millisecond.
SLOW_S: Final = 4.0

_SETTINGS: Final = {
    "zookeeper.connect": "simulated:2181",
    "offsets.topic.replication.factor": "1",
    "offsets.topic.num.partitions": "2",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.num.partitions": "2",
    "controller.socket.timeout.ms": "4000",
    "request.timeout.ms": "4000",
    "controlled.shutdown.max.retries": "1",
    "controlled.shutdown.retry.backoff.ms": "500",
}
_PORT: Final = 9092
_DATA: Final = "/data"


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

    # Moves

    def only_replica(self, partition: TopicPartition) -> SimulatedBroker | None:
        """The broker whose disk has it, as the store says; None where there is no such partition."""
        topic = self.zookeeper.tree.find(paths.topic(partition.topic))
        if topic is None:
            return None
        assigned = decode_topic(partition.topic, topic.data).partitions
        if partition.partition >= len(assigned):
            return None
        (replica,) = assigned[partition.partition]
        return self.brokers[replica - 1]

    def move_partition(self, partition: TopicPartition, to: SimulatedBroker) -> bool:
        """At this moment, to a broker that runs: both are killed, and the controller's session ends, so that the next
        controller finds it moved. False where that is not possible now: nobody is the controller, say.
        """
        tree = self.zookeeper.tree
        source = self.only_replica(partition)
        state_path = paths.partition_state(partition.topic, partition.partition)
        state_node, claim = tree.find(state_path), tree.find(paths.CONTROLLER)
        if source is None or source is to or to.is_down or state_node is None or claim is None:
            return False
        if not self.zookeeper.is_up:
            return False
        self.simulation.trace.note(f"MOVE {partition} from {source.name} to {to.name}")
        source.kill()
        to.kill()
        _move_log(partition, MemoryFiles(source.disk), MemoryFiles(to.disk))
        topic_path = paths.topic(partition.topic)
        topic = decode_topic(topic_path, tree.node(topic_path).data)
        number = self.brokers.index(to) + 1
        replicas = [*topic.partitions]
        replicas[partition.partition] = (number,)
        state = decode_partition_state(state_path, state_node.data)
        moved = state._replace(
            leader=NO_BROKER,
            leader_epoch=state.leader_epoch + 1,
            isr=(number,),
            controller_epoch=decode_controller_epoch(paths.CONTROLLER_EPOCH, tree.node(paths.CONTROLLER_EPOCH).data),
        )
        changes: list[Operation] = [
            SetData(topic_path, encode_topic(topic._replace(partitions=tuple(replicas)))),
            SetData(state_path, encode_partition_state(moved)),
        ]
        self.zookeeper.transact(changes, claim.owner)
        self.zookeeper.expire(claim.owner)
        return True

    def heal(self) -> None:
        """All links are as they were made, and ZooKeeper is up and reached by all."""
        for one, other in itertools.permutations(self.brokers, 2):
            self.reconnect(one, other)
        for broker in self.brokers:
            self.zookeeper.restore(broker.name)
        self.zookeeper.lose_answer_one_in = 0
        if not self.zookeeper.is_up:
            self.zookeeper.come_up()


def _move_log(partition: TopicPartition, here: MemoryFiles, there: MemoryFiles) -> None:
    """All of it is synced there, and to be checked as after any unclean stop: no checkpoint vouches for it."""
    path = f"{_DATA}/{partition}"
    if there.exists(path):
        there.rmtree(path)
    there.mkdir(path)
    for name in here.listdir(path):
        copy = there.open_append(f"{path}/{name}")
        copy.writev([here.read_bytes(f"{path}/{name}")])
        copy.sync()
        copy.close()
    here.rmtree(path)
    there.sync_dir(path)
    for files in (here, there):
        files.sync_dir(_DATA)
        for name in (RECOVERY_POINTS, START_OFFSETS, HIGH_WATERMARKS):
            checkpoint = OffsetCheckpointFile(files, _DATA, name)
            offsets = dict(checkpoint.read())
            if offsets.pop(partition, None) is not None:
                checkpoint.write(offsets)


def _host(number: int) -> str:
    return f"host{number}"
