"""The matrix of a cluster of Kafka's brokers and ours: a role × who holds it × what hits the holder.

One broker of the cluster is of the kind that is hit, two are of the other: whatever role it loses goes to the other
kind, and in the end, still under load, back to it.
"""

from __future__ import annotations

import itertools
import json
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Final

from braidlog.client.admin import Admin
from braidlog.core.types import TopicPartition
from braidlog.local_cluster.child_processes import Machine
from braidlog.local_cluster.zookeeper import ZooKeeper
from braidlog.testing.cluster import CLUSTER_SETTINGS
from braidlog.wire.generated.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from braidlog.wire.generated.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from support.broker import BRAIDLOG, KAFKA
from support.eventually import eventually
from support.mixed_cluster import Member, MixedCluster, kind_of, start_mixed_cluster
from support.raw import ask
from support.replicated_traffic import Kind, Traffic
from support.replication_matrix import (
    FAULTS,
    REPLICAS,
    SETTINGS,
    WHOLE_WITHIN_S,
    Cell,
    CellResult,
    Fault,
    Node,
    ReplicatedCluster,
    judge_cell,
    network_of,
    new_topics,
)

CONTROLLER: Final = "controller"
LEADER: Final = "leader"
FOLLOWER: Final = "follower"
GROUP_COORDINATOR: Final = "group coordinator"
TRANSACTION_COORDINATOR: Final = "transaction coordinator"
ROLES: Final = (CONTROLLER, LEADER, FOLLOWER, GROUP_COORDINATOR, TRANSACTION_COORDINATOR)
HOLDERS: Final = (KAFKA, BRAIDLOG)
MIXED_FAULTS: Final = ("clean stop", "SIGKILL", "SIGSTOP past the session", "cut off both ways")
# A transactional producer of librdkafka waits for a broker that is silent for 60 s, then begins anew, and may wait for
# its next connection for another 30 s.
GOES_ON_WITHIN_S: Final = 180.0
# Roles are moved by the test alone.
MIXED_SETTINGS: Final = {**SETTINGS, "auto.leader.rebalance.enable": "false"}

_OFFSETS: Final = "__consumer_offsets"
_TRANSACTIONS: Final = "__transaction_state"
_PARTITION_COUNTS: Final = {
    _OFFSETS: "offsets.topic.num.partitions",
    _TRANSACTIONS: "transaction.state.log.num.partitions",
}


def members(holder: str) -> dict[str, int]:
    """How many brokers of each kind a cluster has in which one of this kind is hit."""
    return {"kafkas": 1, "ours": 2} if holder == KAFKA else {"kafkas": 2, "ours": 1}


def all_cells(holder: str) -> list[Cell]:
    return [(f"{holder} {role}", fault) for role in ROLES for fault in MIXED_FAULTS]


@contextmanager
def mixed_matrix_cluster(
    zookeeper: ZooKeeper, directory: Path, connect: str, holder: str, libs: Path
) -> Iterator[ReplicatedCluster]:
    """Without networks of their own."""
    with start_mixed_cluster(zookeeper, directory, connect, MIXED_SETTINGS, libs, **members(holder)) as cluster:
        servers = [Node(server) for server in zookeeper.servers]
        yield ReplicatedCluster(cluster, [Node(broker) for broker in cluster.brokers], servers, None)


@contextmanager
def isolated_mixed_cluster(directory: Path, holder: str, libs: Path) -> Iterator[ReplicatedCluster]:
    """Every broker, and the ZooKeeper server, on a host of its own; skips the test where that cannot be."""
    with ExitStack() as made:
        network = network_of(REPLICAS + 1, made)
        machines = [Machine(host.address, host.prefix) for host in network.hosts]
        zookeeper = made.enter_context(ZooKeeper(directory=directory / "zookeeper", machines=machines[REPLICAS:]))
        cluster = made.enter_context(
            start_mixed_cluster(
                zookeeper,
                directory,
                zookeeper.connect,
                MIXED_SETTINGS,
                libs,
                **members(holder),
                machines=machines[:REPLICAS],
            )
        )
        yield ReplicatedCluster(
            cluster,
            [Node(broker, host) for broker, host in zip(cluster.brokers, network.hosts, strict=False)],
            [Node(server, network.hosts[-1]) for server in zookeeper.servers],
            network,
        )


class Role:
    """A role that one broker holds, loses to the other kind, and gets back."""

    def __init__(self, cluster: MixedCluster, name: str, victim: Member, topics: Iterable[str]) -> None:
        self._cluster = cluster
        self._name = name
        self._victim = victim
        self._topics = list(topics)
        self._others = [each for each in self._cluster.brokers if each is not self._victim]

    def replicas(self) -> list[tuple[int, ...]]:
        """Of the two partitions of a topic. The victim leads only where that is its role."""
        first, second = (each.id for each in self._others)
        victim = self._victim.id
        if self._name == LEADER:
            return [(victim, first, second), (first, victim, second)]
        if self._name == FOLLOWER:
            return [(first, victim, second), (second, first, victim)]
        return [(first, second, victim), (second, victim, first)]

    def take(self) -> None:
        """The victim holds this role and no other, but for the leadership of topics that are yet to be created."""
        first, second = self._others
        wanted = self._victim if self._name == CONTROLLER else first
        if (self._cluster.controller() is self._victim) != (wanted is self._victim):
            self._cluster.elect_controller(wanted)
        with Admin(bootstrap_servers=self._cluster.bootstrap_servers) as admin:
            for topic, name in ((_OFFSETS, GROUP_COORDINATOR), (_TRANSACTIONS, TRANSACTION_COORDINATOR)):
                partitions = _partitions(topic)
                order = [self._victim, first, second] if self._name == name else [first, second, self._victim]
                ids = [each.id for each in order]
                admin.alter_partition_reassignments(dict.fromkeys(partitions, ids)).raise_for_errors()
                self._elect(admin, partitions, ids[0])

    def give_back(self) -> None:
        """To the victim, which is back."""
        if self._name == CONTROLLER:
            self._cluster.elect_controller(self._victim)
        elif self._name != FOLLOWER:
            with Admin(bootstrap_servers=self._cluster.bootstrap_servers) as admin:
                self._elect(admin, self._led(), self._victim.id)

    def await_held(self) -> str:
        """Until all brokers say that the victim has the role; who it is."""

        def right(brokers: frozenset[int], holders: frozenset[int]) -> bool:
            others = frozenset() if self._name == FOLLOWER else holders - {self._victim.id}
            return len(brokers) == REPLICAS and self._victim.id in holders and not others

        self._await(self._cluster.brokers, right)
        return self._tell([self._victim.id])

    def await_moved(self) -> str:
        """Until the others say that the victim is gone, and agree on who has its role; who that is."""

        def right(brokers: frozenset[int], holders: frozenset[int]) -> bool:
            return self._victim.id not in brokers and bool(holders) and holders.isdisjoint({self._victim.id, -1})

        return self._tell(self._await(self._others, right))

    def _await(
        self, asked: Sequence[Member], right: Callable[[frozenset[int], frozenset[int]], bool]
    ) -> frozenset[int]:
        """Who holds the role, once all who are asked say the same, and that is right."""
        told: list[tuple[frozenset[int], frozenset[int]] | None] = []

        def agreed() -> bool:
            told[:] = [self._told_by(broker) for broker in asked]
            first = told[0]
            return first is not None and all(each == first for each in told) and right(*first)

        try:
            eventually(agreed, WHOLE_WITHIN_S)
        except AssertionError:
            text = f"of brokers and of the {self._name} (the victim is {self._victim.id}) is said: {told}"
            raise AssertionError(f"{text}\n{self._cluster.logs()}") from None
        assert told[0] is not None
        return told[0][1]

    def _told_by(self, broker: Member) -> tuple[frozenset[int], frozenset[int]] | None:
        """The brokers, and those that have the role; None where this one does not answer."""
        names = [MetadataRequestTopic(name=name) for name in (*self._topics, _OFFSETS, _TRANSACTIONS)]
        request = MetadataRequest(topics=names, allow_auto_topic_creation=False)
        try:
            answer = ask(broker.port, "Metadata", 9, request, broker.host)
        except OSError:
            return None
        assert isinstance(answer, MetadataResponse)
        found = {str(topic.name): {each.partition_index: each for each in topic.partitions} for topic in answer.topics}
        brokers = frozenset(each.node_id for each in answer.brokers)
        if self._name == CONTROLLER:
            return brokers, frozenset([answer.controller_id])
        if self._name == FOLLOWER:
            first = [found[topic][0] for topic in self._topics if found[topic]]
            return brokers, frozenset(each for one in first for each in one.isr_nodes if each != one.leader_id)
        led = [found[topic].get(number) for topic, number in self._led()]
        return brokers, frozenset(-1 if each is None else each.leader_id for each in led)

    def _led(self) -> list[TopicPartition]:
        """Whoever leads these has the role."""
        if self._name == LEADER:
            return [TopicPartition(topic, 0) for topic in self._topics]
        return _partitions(_OFFSETS if self._name == GROUP_COORDINATOR else _TRANSACTIONS)

    def _elect(self, admin: Admin, partitions: Sequence[TopicPartition], leader: int) -> None:
        """Until the preferred replica leads them, which this one is."""
        errors: dict[TopicPartition, object] = {}

        def led() -> bool:
            leaders = self._cluster.agreed().leaders
            if all(leaders[each.topic][each.partition] == leader for each in partitions):
                return True
            errors.clear()
            errors.update(admin.elect_leaders(partitions).errors)
            return False

        try:
            eventually(led, WHOLE_WITHIN_S)
        except AssertionError:
            raise AssertionError(f"{leader} was not elected: {errors}\n{self._cluster.logs()}") from None

    def _tell(self, brokers: Iterable[int]) -> str:
        return " and ".join(f"{kind_of(self._cluster.broker(each))} {each}" for each in sorted(brokers))


def _partitions(topic: str) -> list[TopicPartition]:
    return [TopicPartition(topic, number) for number in range(int(CLUSTER_SETTINGS[_PARTITION_COUNTS[topic]]))]


def create_internal_topics(cluster: MixedCluster) -> None:
    """Whoever looks for a coordinator first has its topic created."""
    for key_type, topic in enumerate((_OFFSETS, _TRANSACTIONS)):
        request = FindCoordinatorRequest(key_type=key_type, coordinator_keys=["anybody"])

        def is_there(request: FindCoordinatorRequest = request) -> bool:
            # Kafka before 3.0 does not know this version.
            answer = ask(cluster.ours[0].port, "FindCoordinator", 4, request, cluster.ours[0].host)
            assert isinstance(answer, FindCoordinatorResponse)
            return answer.coordinators[0].error_code == 0

        eventually(is_there, WHOLE_WITHIN_S)
        cluster.agreed(lambda view, topic=topic: min(view.leaders.get(topic, (-1,))) >= 0)  # type: ignore[misc]


def run_mixed_cell(cluster: ReplicatedCluster, victim: str, fault: str, kinds: Sequence[Kind]) -> CellResult:
    """One fault of the broker that holds a role, which then gets it back, under all these writers."""
    began = time.monotonic()
    result = CellResult(victim, fault, len(cluster.brokers))
    holder, _, name = victim.partition(" ")
    assert isinstance(cluster.cluster, MixedCluster)
    member = next(each for each in cluster.cluster.brokers if kind_of(each) == holder)
    node = next(each for each in cluster.brokers if each.process is member)
    topics = new_topics(kinds)
    create_internal_topics(cluster.cluster)
    role = Role(cluster.cluster, name, member, topics)
    role.take()
    cluster.create(topics, role.replicas())
    traffic = Traffic(cluster.bootstrap, topics)

    def go_on() -> None:
        result.acknowledged_again_s.append(round(traffic.await_progress(GOES_ON_WITHIN_S), 1))
        traffic.await_commit(GOES_ON_WITHIN_S)

    def go_on_elsewhere() -> None:
        result.held_by.append(role.await_moved())
        go_on()

    try:
        with traffic.running():
            result.held_by.append(role.await_held())
            FAULTS[fault](Fault(cluster, [node], go_on_elsewhere))
            result.whole_again_s = round(cluster.await_whole(topics), 1)
            go_on()
            role.give_back()
            result.held_by.append(role.await_held())
            go_on()
    except AssertionError as late:
        result.problems.append(str(late))
    judge_cell(cluster, traffic, result)
    result.seconds = round(time.monotonic() - began, 1)
    return result


def table(results: Mapping[str, Path]) -> str:
    """For the document: a row for each cell that all these versions of Kafka have been run with."""
    runs = {version: _by_cell(path) for version, path in results.items()}
    heads = ["role", "held by", "hit by"]
    for version in runs:
        heads += [f"{version}: operations", "acknowledged", "transactions"]
    heads += ["lost", "doubled", "other"]
    rows = [heads, ["---"] * len(heads)]
    for role, holder, fault in itertools.product(ROLES, HOLDERS, MIXED_FAULTS):
        lines = [run.get((f"{holder} {role}", fault)) for run in runs.values()]
        row = [role, holder, fault]
        bad = Counter[str]()
        for line in lines:
            if line is None:
                break
            counts: Counter[str] = Counter()
            for of_kind in line["kinds"].values():
                counts.update(of_kind)
            operations = counts["sent"] + counts["acknowledged"] + line["read"] + line["offsets_committed"]
            row += [f"{each:,}" for each in (operations, counts["acknowledged"], line["transactions"]["committed"])]
            bad += Counter(lost=counts["lost"], doubled=counts["doubled"])
            # Also what concerns no single record, as replicas that differ.
            bad["other"] += len(line["findings"]) - counts["lost"] - counts["doubled"]
        else:
            rows.append([*row, *(str(bad[each]) for each in ("lost", "doubled", "other"))])
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def _by_cell(results: Path) -> dict[Cell, dict[str, Any]]:
    lines = map(json.loads, results.read_text().splitlines())
    return {(line["victim"], line["fault"]): line for line in lines}
