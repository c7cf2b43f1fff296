"""The life of a cluster whose topics have three replicas: as `cluster_workload`, with what must hold of replicas.

Disks get full or are replaced by empty ones, all brokers go down at once, followers come and go at the limit of
`replica.lag.time.max.ms`, replicas are moved, and the clocks of brokers, unlike those of ZooKeeper, tell different
times. In some lives one topic allows unclean elections.

Budget: a disk is wiped only where each partition that its broker has in sync is in sync elsewhere, too, and the last
one that was wiped is whole again. What only an empty disk is in sync with at the end (its leader had asked to be alone
in the ISR and died before the answer) is led by an unclean election, on request.

One more producer waits for the leader alone (acks=1): what it writes may be lost, and makes logs part.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Final

from braidlog.client import Delivery, Producer
from braidlog.client.admin import Admin, ElectionType, NewTopic
from braidlog.client.errors import ClientError
from braidlog.core.protocol_errors import ProtocolError
from braidlog.core.types import NO_BROKER, TopicPartition
from braidlog.testing.simulated.cluster import SimulatedCluster
from braidlog.testing.simulated.program import SimulatedProgram
from braidlog.testing.simulated.simulation import SimulatedBroker
from support.simulation import cluster_workload
from support.simulation.cluster_workload import FAULTS, SYNCED, ClusterWorkload, Faults, Step
from support.simulation.invariants import check
from support.simulation.replication_invariants import ReplicationHistory

REPLICAS: Final = 3
# After the last fault all replicas are in sync again: a fetch, and a proposal to the controller.
IN_SYNC_S: Final = 20.0
# How long a partition may stay without a leader before the operator takes it for lost.
RECOVERED_S: Final = 15.0
LAG_S: Final = 4.0
# How often a follower that flaps is cut off and back.
FLAPS: Final = 4
# Of lives that have it, the topic that allows unclean elections.
UNCLEAN_TOPIC: Final = "gamma"
UNCLEAN: Final = {"unclean.leader.election.enable": "true"}
# Clocks that are off by more are the operator's to set.
LONGEST_SKEW_MS: Final = 60_000
SETTINGS: Final = {
    **cluster_workload.SETTINGS,
    "offsets.topic.replication.factor": "3",
    "transaction.state.log.replication.factor": "3",
    "replica.lag.time.max.ms": str(int(LAG_S * 1000)),
    "replica.socket.timeout.ms": "4000",
    "replica.fetch.backoff.ms": "500",
}


def is_synced(seed: int) -> bool:
    """In half of the lives every record is synced before it is acknowledged, and the power may be cut."""
    return seed % 2 == 0


def settings_for(seed: int) -> dict[str, str]:
    """Where the power may be cut internal topics are synced, too: what the last replica in sync loses is lost.

    In half of the lives an idle follower is answered late: it hears of the high watermark when others lead already.
    """
    settings = {**SETTINGS, "replica.fetch.wait.max.ms": "2000" if seed % 8 > 3 else "1000"}
    if is_synced(seed):
        settings["log.flush.interval.messages"] = "1"
    return settings


def has_unclean_topic(seed: int) -> bool:
    return seed % 4 > 1


class ReplicatedWorkload(ClusterWorkload):
    changes = (
        *cluster_workload.CHANGES,
        ("min.insync.replicas", ("1", "2", "2")),
        ("retention.ms", ("86400000", "604800000")),
    )

    def __init__(
        self,
        cluster: SimulatedCluster,
        steps: int,
        faults: Faults | None = None,
        *,
        synced: bool = False,
        unclean: bool = False,
    ) -> None:
        """`synced` where the brokers have `settings_for` a seed that is; `unclean` for a topic that allows that."""
        super().__init__(cluster, steps, ALL_FAULTS if faults is None else faults)
        self._synced = synced
        self._unclean = unclean
        # The last broker whose disk was replaced, until it is whole again.
        self._wiped: SimulatedBroker | None = None
        self.wipes = 0
        self.moves = 0
        for broker in cluster.brokers:
            broker.skew_ms = self._random.randint(-LONGEST_SKEW_MS, LONGEST_SKEW_MS)
        self.replication = ReplicationHistory(cluster, self.store)

    def _fill_disk(self, broker: SimulatedBroker) -> None:
        disk = broker.disk
        disk.capacity = disk.used + self._random.randint(0, 2000)
        self._later(self._duration(), disk.repair)

    def _wipe_disk(self, broker: SimulatedBroker) -> None:
        number = self._number(broker)
        states = [state for (topic_id, _), state in self.store.states.items() if topic_id not in self.store.deleted]
        if not self._is_whole(self._wiped) or any(state.isr == (number,) for state in states):
            return
        self._wiped = broker
        self.wipes += 1
        if self._unclean:
            self.replication.may_begin_anew = frozenset([UNCLEAN_TOPIC])
        broker.wipe_disk()
        if self._random.random() < 0.4:
            self._outage(broker)

    def _is_whole(self, broker: SimulatedBroker | None) -> bool:
        """Whether it is in sync wherever it has a replica. The last one in sync is so without its log, too."""
        if broker is None:
            return True
        if not broker.is_up:
            return False
        number = self._number(broker)
        held = {(each.topic_id, each.index) for each in broker.parts.registry.partitions() if each.log is not None}
        return all(
            number in state.isr and (key in held or key[0] in self.store.deleting)
            for key, state in self.store.states.items()
            if key[0] not in self.store.deleted and number in self.store.assigned[key[0]].partitions[key[1]]
        )

    def _number(self, broker: SimulatedBroker) -> int:
        return self._cluster.brokers.index(broker) + 1

    def _outage(self, broker: SimulatedBroker) -> None:
        for each in self._cluster.brokers:
            each.kill()

    def _flap(self, broker: SimulatedBroker) -> None:
        """Its fetches stand still for about as long as a follower may lag behind, over and over."""
        other = self._other(broker)

        async def flap() -> None:
            for _ in range(FLAPS):
                self._cluster.partition(broker, other)
                await asyncio.sleep(LAG_S * (0.7 + 0.6 * self._random.random()))
                self._cluster.reconnect(broker, other)
                self._cluster.reconnect(other, broker)
                await asyncio.sleep(self._random.random() * 2)

        self._faults.append(self._simulation.loop.create_task(flap(), name="flapping"))

    def _leave_alone(self, broker: SimulatedBroker) -> None:
        """It hears nothing of the others: no fetches, and no answer of the controller to what it makes of that. Then it
        is gone, the last one in sync."""
        others = [each for each in self._cluster.brokers if each is not broker]
        for other in others:
            self._cluster.partition(other, broker, both_ways=False)

        def end() -> None:
            broker.kill()
            for other in others:
                self._cluster.reconnect(other, broker)

        self._later(LAG_S * (1 + self._random.random()), end)

    async def _end_faults(self) -> None:
        for broker in self._cluster.brokers:
            broker.disk.repair()
        await super()._end_faults()

    def _check(self) -> None:
        super()._check()
        self.replication.check()

    async def _start_clients(self) -> None:
        await super()._start_clients()
        self._start("careless", self._produce_carelessly)

    async def _produce_carelessly(self, program: SimulatedProgram, name: str) -> None:
        producer = Producer(
            bootstrap_servers=self._cluster.servers,
            acks=1,
            enable_idempotence=False,
            max_block_ms=1000,
            request_timeout_ms=1000,
            delivery_timeout_ms=2000,
            retry_backoff_ms=200,
        )
        number = 0
        while self._running:
            await asyncio.sleep(self._random.random())
            partitions = self._partitions()
            sent = []
            for partition in self._random.choices(partitions, k=4) if partitions else []:
                number += 1
                value = f"{partition} {name} {number}".encode()
                sent.append(_ended(producer.send(partition.topic, value, partition=partition.partition)))
            await asyncio.gather(*sent)
        await program.call(producer.close)

    def _operations(self) -> tuple[Step, ...]:
        return (*super()._operations(), self._reassign, self._reassign, self._elect)

    async def _reassign(self, program: SimulatedProgram, admin: Admin, name: str) -> None:
        """To two or three brokers in any order, or back."""
        partitions = [each for each in self._partitions() if each.topic == name]
        if not partitions:
            return
        where = self._random.choice(partitions)
        cancels = self._random.random() < 0.25
        target = None if cancels else self._random.sample([1, 2, 3], self._random.choice([2, 3, 3]))
        (await program.call(admin.alter_partition_reassignments, {where: target})).raise_for_errors()
        self.moves += 1
        self._note(f"operator: {where} goes to {target}")

    async def _elect(self, program: SimulatedProgram, admin: Admin, name: str) -> None:
        """The preferred leaders."""
        await program.call(lambda: admin.elect_leaders().raise_for_errors())

    async def _create(self, program: SimulatedProgram, admin: Admin, name: str) -> None:
        config = {**(SYNCED if self._synced else {}), "min.insync.replicas": self._random.choice(["1", "2", "2"])}
        if self._unclean and name == UNCLEAN_TOPIC:
            config |= UNCLEAN
        topic = NewTopic(name, self._random.randint(1, 3), REPLICAS, config=config)
        created = (await program.call(admin.create_topics, [topic]))[name]
        assert created.topic_id is not None
        self._note(f"operator: {name} is created with {config}")
        self.history.was_answered(bytes(created.topic_id) in self.store.ids, f"the creation of {name}")

    async def _read_all(self) -> None:
        """Of what an unclean election lost nothing is known."""
        self.history.acknowledged = [
            each
            for each in self.history.acknowledged
            if not self.replication.is_unclean(each.topic, each.topic_id, each.partition)
        ]
        await super()._read_all()

    async def _elect_lost(self) -> None:
        """What only an empty disk is in sync with, and still is once everything else had its time."""
        if self._wiped is None:
            return
        number = self._number(self._wiped)
        deadline = self._simulation.loop.time() + RECOVERED_S
        while self._simulation.loop.time() < deadline:
            await self._check_after(0.5)
            if self._is_whole(self._wiped) and not self._without_leader():
                return
        lost = [where for where, isr in self._without_leader().items() if isr == (number,)]
        if lost:
            self._note(f"operator: {lost} are lost with the disk of {self._wiped.name}")
            program = SimulatedProgram(self._simulation, "last resort")
            admin = await program.call(lambda: Admin(bootstrap_servers=self._cluster.servers))
            await program.call(lambda: admin.elect_leaders(lost, ElectionType.UNCLEAN).raise_for_errors())
            await program.call(admin.close)

    def _without_leader(self) -> dict[TopicPartition, tuple[int, ...]]:
        """Partitions that nobody leads, with their ISR; of topics that are deleted those that are on their way to other
        brokers, as the deletion waits for that."""
        found: dict[TopicPartition, tuple[int, ...]] = {}
        for name, topic_id in self.store.topics.items():
            for index in range(self.store.partition_counts.get(topic_id, 0)):
                state = self.store.states.get((topic_id, index))
                record = self.store.assigned[topic_id]
                stays = topic_id not in self.store.deleting or index in record.adding or index in record.removing
                if stays and state is not None and state.leader == NO_BROKER:
                    found[TopicPartition(name, index)] = state.isr
        return found

    async def _until_converged(self) -> None:
        await self._elect_lost()
        await super()._until_converged()
        loop = self._simulation.loop
        deadline = loop.time() + IN_SYNC_S
        while out_of_sync := self.replication.out_of_sync():
            check(loop.time() < deadline, f"{out_of_sync} are not all in sync {IN_SYNC_S} s after the last fault")
            await self._check_after(0.5)


ALL_FAULTS: Final[Faults] = (
    *FAULTS,
    (ReplicatedWorkload._fill_disk, 3),
    (ReplicatedWorkload._wipe_disk, 3),
    (ReplicatedWorkload._outage, 1),
    (ReplicatedWorkload._flap, 2),
    (ReplicatedWorkload._leave_alone, 3),
)


async def _ended(delivery: Delivery) -> None:
    with suppress(ClientError, ProtocolError):
        await delivery
