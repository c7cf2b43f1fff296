"""What happened in the store of a simulated cluster: every transaction is looked at as it takes effect.

Breaches are kept and not raised, as they are met inside the ensemble: `check` raises the first.
"""

from __future__ import annotations

from typing import Final

from braidlog.cluster import paths, records
from braidlog.cluster.records import PartitionStateRecord, TopicRecord
from braidlog.cluster.tree import CREATE, DELETE, SET, Change, Transaction
from braidlog.core.ids import ZERO_ID
from braidlog.testing.simulated.zookeeper import SimulatedZooKeeper
from support.simulation.invariants import InvariantBroken

ONE_CONTROLLER: Final = "one controller an epoch"
FENCED: Final = "no store write by an old controller"
ONE_LEADER: Final = "one leader an epoch"
NEVER_FALL: Final = "epochs never fall"
NO_INHERITANCE: Final = "recreated topics inherit nothing"
ISR_ASSIGNED: Final = "in-sync replicas are assigned"

_TOPIC_PARTS: Final = 4
_PARTITION_PARTS: Final = 6
_STATE_PARTS: Final = 7


class StoreHistory:
    def __init__(self, zookeeper: SimulatedZooKeeper) -> None:
        self._tree = zookeeper.tree
        self._breaches: list[str] = []
        # By epoch, the session of the controller.
        self.controllers: dict[int, int] = {}
        self.epoch = 0
        # The topics there are, by name; every id that a topic had, and those of topics that are gone or go.
        self.topics: dict[str, bytes] = {}
        self.ids: set[bytes] = set()
        self.deleted: set[bytes] = set()
        self.deleting: set[bytes] = set()
        # By topic id and partition: the newest leader epoch, and who led in each.
        self.leader_epochs: dict[tuple[bytes, int], int] = {}
        self.leaders: dict[tuple[bytes, int, int], int] = {}
        self.states: dict[tuple[bytes, int], PartitionStateRecord] = {}
        # Everything that was ever written to a config node.
        self.configs: set[tuple[str, bytes]] = set()
        # Topics and how many partitions were assigned to them.
        self.partition_counts: dict[bytes, int] = {}
        self.assigned: dict[bytes, TopicRecord] = {}
        # Partitions, and brokers from which a replica of theirs was moved away.
        self.left: set[tuple[bytes, int, int]] = set()
        # Partitions that were led by a replica that was not in sync.
        self.unclean: set[tuple[bytes, int]] = set()
        # What the transaction that is being looked at says of replicas: name and id of the topic, partition.
        self._touched: list[tuple[str, bytes, int]] = []
        zookeeper.on_transaction.append(self._observe)

    def check(self) -> None:
        if self._breaches:
            raise InvariantBroken(self._breaches[0])

    def _breach(self, invariant: str, what: str) -> None:
        self._breaches.append(f"{invariant}: {what}")

    def _observe(self, session: int, transaction: Transaction) -> None:
        # First: a new controller may do more in the same transaction.
        for change in transaction.changes:
            if change.path == paths.CONTROLLER_EPOCH and change.kind != DELETE:
                self._epoch_changed(session, change)
        for change in transaction.changes:
            self._changed(session, change)
        while self._touched:
            self._check_isr(*self._touched.pop())

    def _epoch_changed(self, session: int, change: Change) -> None:
        epoch = records.decode_controller_epoch(change.path, change.data)
        if epoch in self.controllers:
            before = self.controllers[epoch]
            self._breach(ONE_CONTROLLER, f"session {session} begins epoch {epoch}, which was that of session {before}")
        if epoch < self.epoch:
            self._breach(NEVER_FALL, f"the controller epoch falls from {self.epoch} to {epoch}")
        self.controllers[epoch] = session
        self.epoch = epoch
        claimed = self._tree.find(paths.CONTROLLER)
        if claimed is None or claimed.owner != session:
            self._breach(ONE_CONTROLLER, f"session {session} begins epoch {epoch} without {paths.CONTROLLER}")

    def _changed(self, session: int, change: Change) -> None:
        path = change.path
        parts = path.split("/")
        if path.startswith(f"{paths.TOPICS}/"):
            if len(parts) == _TOPIC_PARTS:
                self._topic_changed(session, parts[3], change)
            elif len(parts) == _STATE_PARTS and change.kind != DELETE:
                self._fence(session, change)
                self._state_changed(parts[3], int(parts[5]), change)
            elif len(parts) >= _PARTITION_PARTS:
                self._fence(session, change)
        elif path.startswith(f"{paths.DELETE_TOPICS}/"):
            if change.kind == DELETE:
                self._fence(session, change)
            elif parts[3] in self.topics:
                self.deleting.add(self.topics[parts[3]])
        elif path.startswith(f"{paths.CONFIG}/topics/") and change.kind != DELETE:
            self.configs.add((parts[3], change.data))

    def _fence(self, session: int, change: Change) -> None:
        """What only a controller writes is written by the one of the newest epoch."""
        holder = self.controllers.get(self.epoch)
        if session != holder:
            self._breach(FENCED, f"session {session} changes {change.path} in epoch {self.epoch} of session {holder}")

    def _topic_changed(self, session: int, name: str, change: Change) -> None:
        if change.kind == DELETE:
            self._fence(session, change)
            self.deleted.add(self.topics.pop(name))
            return
        record = records.decode_topic(change.path, change.data)
        before = self.topics.get(name, ZERO_ID)
        if change.kind == CREATE and record.topic_id in self.ids:
            self._breach(NO_INHERITANCE, f"topic {name} is made with the id of an earlier topic")
        if change.kind == SET and before not in (ZERO_ID, record.topic_id):
            self._breach(NO_INHERITANCE, f"topic {name} changes its id")
        self._remember(name, record)

    def _remember(self, name: str, record: TopicRecord) -> None:
        self.topics[name] = record.topic_id
        if record.topic_id != ZERO_ID:
            self.ids.add(record.topic_id)
            self.partition_counts[record.topic_id] = len(record.partitions)
            before = self.assigned.get(record.topic_id)
            self.assigned[record.topic_id] = record
            for index, replicas in enumerate(() if before is None else before.partitions):
                gone = (each for each in replicas if each not in record.partitions[index])
                self.left.update((record.topic_id, index, each) for each in gone)
                self._touched.append((name, record.topic_id, index))

    def _state_changed(self, name: str, index: int, change: Change) -> None:
        state = records.decode_partition_state(change.path, change.data)
        where = f"{name}-{index}"
        if state.controller_epoch != self.epoch:
            self._breach(FENCED, f"{where} is written for epoch {state.controller_epoch} in epoch {self.epoch}")
        key = (self.topics[name], index)
        before = self.leader_epochs.get(key)
        stays = before == state.leader_epoch and self._is_isr_change(key, state)
        if before is not None and state.leader_epoch <= before and not stays:
            # Also one that stays: peers ignore a state whose leader epoch they know. A leader that changes its ISR does
            # know of it.
            self._breach(NEVER_FALL, f"the leader epoch of {where} goes from {before} to {state.leader_epoch}")
        if state.leader_recovery_state:
            self.unclean.add(key)
        self.leader_epochs[key] = state.leader_epoch
        self.states[key] = state
        self._touched.append((name, *key))
        self.led(where, (*key, state.leader_epoch), state.leader)

    def _check_isr(self, name: str, topic_id: bytes, index: int) -> None:
        state = self.states.get((topic_id, index))
        replicas = self.assigned[topic_id].partitions[index]
        if state is not None and not set(replicas).issuperset(state.isr):
            self._breach(ISR_ASSIGNED, f"{name}-{index} has {state.isr} in sync, assigned are {replicas}")

    def _is_isr_change(self, key: tuple[bytes, int], state: PartitionStateRecord) -> bool:
        before = self.states[key]
        return state.leader == before.leader and state.isr != before.isr and state.leader in state.isr

    def led(self, where: str, key: tuple[bytes, int, int], leader: int) -> None:
        """This broker leads in this epoch, says the store or the broker itself."""
        other = self.leaders.setdefault(key, leader)
        if other != leader:
            self._breach(ONE_LEADER, f"{where} has the leaders {other} and {leader} in epoch {key[2]}")
