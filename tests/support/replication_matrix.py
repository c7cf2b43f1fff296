"""The matrix of a replicated cluster: who is hit × what hits it, under writers of every kind, judged by the checker.

`ReplicatedCluster` runs brokers and ZooKeeper servers on this machine; `isolated_cluster` gives each of them a network
and a disk of its own, which the faults of networks and disks need.
"""

from __future__ import annotations

import itertools
import json
import os
import shutil
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final, TypeAlias

import pytest
from confluent_kafka import KafkaError
from confluent_kafka.admin import NewTopic

from braidlog.local_cluster.child_processes import Machine
from braidlog.local_cluster.zookeeper import ZooKeeper, ZooKeeperServer
from braidlog.testing import Cluster
from braidlog.wire.generated.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from support import confluent
from support.client_history import Acknowledged, GaveUp, Sent
from support.disks import FAILING_CALLS, FailingCalls, SmallDisk, small_disk
from support.eventually import eventually
from support.history_checker import Anomaly, abandoned_transactions
from support.mixed_cluster import Member, MixedCluster
from support.network_namespaces import Host, Network, NetworkUnavailable
from support.preloaded import preloaded_library
from support.raw import RawConnection
from support.replica_logs import differing_replicas
from support.replicated_traffic import PARTITIONS, Kind, Traffic

REPLICAS: Final = 3
SESSION_S: Final = 6.0
SETTINGS: Final = {
    "default.replication.factor": str(REPLICAS),
    "min.insync.replicas": "2",
    "offsets.topic.replication.factor": str(REPLICAS),
    "transaction.state.log.replication.factor": str(REPLICAS),
    "transaction.state.log.min.isr": "2",
    "zookeeper.session.timeout.ms": str(int(SESSION_S * 1000)),
    # A replica that is stuck is waited for so long.
    "replica.lag.time.max.ms": "10000",
    "log.cleaner.backoff.ms": "1000",
}
# So long after a fault all replicas are in sync again, on a machine that is busy with other things.
WHOLE_WITHIN_S: Final = 120.0
GOES_ON_WITHIN_S: Final = 90.0
_DISK_BYTES: Final = 256 * 1024 * 1024
_SLOW_MS: Final = 100

VICTIMS: Final = ("leader", "controller", "follower", "zookeeper node", "ensemble")
_cells = itertools.count(1)
# Who is hit, and by what.
Cell: TypeAlias = tuple[str, str]


@dataclass
class Node:
    """A broker or a ZooKeeper server with what can be done to it."""

    process: Member | ZooKeeperServer
    host: Host | None = None
    disk: SmallDisk | None = None
    calls: FailingCalls | None = None
    # What a lost disk takes, beside what is on `disk`.
    data: Path | None = None

    def start(self) -> None:
        self.process.start()

    def wait_until_ready(self) -> None:
        if isinstance(self.process, ZooKeeperServer):
            eventually(self.process.serves, WHOLE_WITHIN_S)

    def wipe(self) -> None:
        for place in (self.data, None if self.disk is None else self.disk.inside):
            if place is not None:
                for path in place.iterdir():
                    shutil.rmtree(path) if path.is_dir() else path.unlink()


class ReplicatedCluster:
    """Brokers and ZooKeeper servers as nodes."""

    def __init__(
        self,
        cluster: Cluster | MixedCluster,
        brokers: Sequence[Node],
        servers: Sequence[Node],
        network: Network | None,
    ) -> None:
        self.cluster = cluster
        self.brokers = list(brokers)
        self.servers = list(servers)
        self.network = network

    @classmethod
    def of(cls, cluster: Cluster) -> ReplicatedCluster:
        """Without networks and disks of their own."""
        servers = [Node(server) for server in cluster.zookeeper.servers]
        return cls(cluster, [Node(broker) for broker in cluster.brokers], servers, None)

    @property
    def bootstrap(self) -> str:
        return self.cluster.bootstrap_servers

    def controller(self) -> int:
        found: list[int] = []

        def known() -> bool:
            found[:] = [answer.controller_id for answer in self.metadata([]) if answer is not None]
            return len(found) == len(self.brokers) and len(set(found)) == 1 and found[0] >= 0

        eventually(known, WHOLE_WITHIN_S)
        return found[0]

    def metadata(self, topics: Iterable[str]) -> list[MetadataResponse | None]:
        """As each broker tells it; None where one does not answer."""
        wanted = [MetadataRequestTopic(name=topic) for topic in topics]
        answers: list[MetadataResponse | None] = []
        for broker in self.cluster.brokers:
            try:
                with RawConnection(broker.port, broker.host) as connection:
                    request = MetadataRequest(topics=wanted, allow_auto_topic_creation=False)
                    answer = connection.ask("Metadata", 9, request)
                assert isinstance(answer, MetadataResponse)
                answers.append(answer)
            except (OSError, AssertionError):
                answers.append(None)
        return answers

    def create(self, topics: Mapping[str, Kind], replicas: Sequence[Sequence[int]]) -> None:
        assignment = [list(each) for each in replicas]
        new = [
            NewTopic(topic, len(assignment), replica_assignment=assignment, config=dict(kind.configs))
            for topic, kind in topics.items()
        ]
        client = confluent.admin(self.bootstrap)

        def created() -> bool:
            """The fault before may have left no controller yet, which librdkafka does not wait for."""
            refusals = [each.exception(60) for each in client.create_topics(new).values()]
            codes = {refusal.args[0].code() for refusal in refusals if refusal is not None}
            assert codes <= {KafkaError.NOT_CONTROLLER, KafkaError.TOPIC_ALREADY_EXISTS}, refusals
            return KafkaError.NOT_CONTROLLER not in codes

        eventually(created)
        self.await_whole(topics)

    def await_whole(self, topics: Iterable[str], within_s: float = WHOLE_WITHIN_S) -> float:
        """Until all brokers say that all are there and all replicas in sync; how long that took."""
        began = time.monotonic()
        names = list(topics)
        seen: list[str] = []

        def whole() -> bool:
            seen[:] = [text for answer in self.metadata(names) if (text := self._missing(answer, len(names)))]
            return not seen

        try:
            eventually(whole, within_s)
        except AssertionError:
            raise AssertionError(f"the cluster is not whole {within_s:.0f} s after the fault: {seen[:3]}") from None
        return time.monotonic() - began

    def _missing(self, answer: MetadataResponse | None, topics: int) -> str:
        if answer is None:
            return "a broker does not answer"
        if len(answer.brokers) < len(self.brokers) or len(answer.topics) < topics:
            return f"brokers {[each.node_id for each in answer.brokers]}, {len(answer.topics)} topics"
        for topic in answer.topics:
            if len(topic.partitions) < PARTITIONS:
                return f"{topic.name} has {len(topic.partitions)} partitions"
            for each in topic.partitions:
                if len(each.isr_nodes) < REPLICAS or each.leader_id < 0:
                    return f"{topic.name}-{each.partition_index}: leader {each.leader_id}, ISR {list(each.isr_nodes)}"
        return ""

    def differing_replicas(self, topics: Iterable[str]) -> list[str]:
        """Partitions whose replicas do not hold the same batches, once nobody writes any more."""
        directories = {}
        for node in self.brokers:
            assert not isinstance(node.process, ZooKeeperServer)
            directories[node.process.id] = node.process.data_dir if node.disk is None else node.disk.inside
        partitions = {f"{topic}-{number}": REPLICAS for topic in topics for number in range(PARTITIONS)}
        return differing_replicas(directories, partitions)


def network_of(hosts: int, made: ExitStack) -> Network:
    """Skips the test, with the reason, where that cannot be."""
    try:
        return made.enter_context(Network(hosts))
    except NetworkUnavailable as problem:
        pytest.skip(f"no network namespaces here: {problem}")


@contextmanager
def isolated_cluster(directory: Path, brokers: int = 3, servers: int = 3) -> Iterator[ReplicatedCluster]:
    """Every node on a host and a disk of its own; skips the test, with the reason, where that cannot be."""
    with ExitStack() as made:
        network = network_of(brokers + servers, made)
        library = preloaded_library(FAILING_CALLS, directory)
        # Each server has its own disk there.
        zookeeper_log = directory / "zookeeper-log"
        paths = [directory / f"broker-{number}" for number in range(brokers)] + [zookeeper_log] * servers
        nodes: list[tuple[Host, SmallDisk, FailingCalls]] = []
        machines: list[Machine] = []
        for number, (host, path) in enumerate(zip(network.hosts, paths, strict=True)):
            disk = made.enter_context(small_disk(path, _DISK_BYTES))
            calls = FailingCalls(library, directory / f"calls-{number}", path)
            environment = [f"{key}={value}" for key, value in calls.env.items()]
            machines.append(Machine(host.address, (*disk.prefix, *host.prefix, "env", *environment)))
            nodes.append((host, disk, calls))
        zookeeper = made.enter_context(
            ZooKeeper(
                directory=directory / "zookeeper",
                machines=machines[brokers:],
                properties={"dataLogDir": str(zookeeper_log)},
            )
        )
        cluster = made.enter_context(
            Cluster(settings=SETTINGS, directory=directory, zookeeper=zookeeper, machines=machines[:brokers])
        )
        yield ReplicatedCluster(
            cluster,
            [Node(broker, *of) for broker, of in zip(cluster.brokers, nodes, strict=False)],
            [
                Node(server, *of, directory / "zookeeper" / str(server.number) / "data" / "version-2")
                for server, of in zip(zookeeper.servers, nodes[brokers:], strict=True)
            ],
            network,
        )


# Faults


class Fault:
    """What happens to the nodes of a victim; `during` is called while it lasts, as often as it has parts."""

    def __init__(self, cluster: ReplicatedCluster, victims: Sequence[Node], during: Callable[[], object]) -> None:
        self.cluster = cluster
        self.victims = victims
        self.during = during

    def clean_stop(self) -> None:
        self._each(lambda node: node.process.stop())
        self.during()
        self._start()

    def kill(self) -> None:
        self._each(lambda node: node.process.kill())
        self.during()
        self._start()

    def five_bounces(self) -> None:
        for number in range(5):
            self._each(lambda node: node.process.kill() if number % 2 else node.process.stop())  # noqa: B023
            self._start()
        self.during()

    def pause_past_session(self) -> None:
        self._each(lambda node: node.process.pause())
        try:
            self._hold(SESSION_S + 3)
        finally:
            self._each(lambda node: node.process.resume())

    def cut_both_ways(self) -> None:
        network = self._network()
        hosts = self._hosts(self.victims)
        others = [network.this_machine, *(host for host in network.hosts if host not in hosts)]
        # The servers of an ensemble do not see each other, either.
        with self._cut(lambda: network.cut_both_ways(hosts, [*others, *hosts])):
            self._hold(SESSION_S + 3)

    def cut_one_way(self) -> None:
        """First nothing reaches it, then nothing comes from it; of the other nodes, clients reach it all the time."""
        network = self._network()
        hosts = self._hosts(self.victims)
        others = [host for host in network.hosts if host not in hosts]
        with self._cut(lambda: network.cut(others, hosts)):
            self._hold(SESSION_S + 3)
        with self._cut(lambda: network.cut(hosts, others)):
            self._hold(SESSION_S + 3)

    def cut_from_zookeeper(self) -> None:
        """A ZooKeeper server from the other ones; the ensemble from all brokers."""
        network = self._network()
        hosts = self._hosts(self.victims)
        servers = self._hosts(self.cluster.servers)
        others = [host for host in servers if host not in hosts] or self._hosts(self.cluster.brokers)
        with self._cut(lambda: network.cut_both_ways(hosts, others)):
            self._hold(SESSION_S + 3)

    def slow_disk(self) -> None:
        calls = [node.calls for node in self.victims if node.calls is not None]
        for each in calls:
            each.slow("wsc", _SLOW_MS)
        try:
            self._hold(SESSION_S + 3)
        finally:
            for each in calls:
                each.heal()

    def full_disk(self) -> None:
        disks = [node.disk for node in self.victims if node.disk is not None]
        for disk in disks:
            disk.fill()
        try:
            self._hold(SESSION_S + 3)
        finally:
            for disk in disks:
                disk.free()
        # ZooKeeper ends when it cannot write; a broker does not.
        self._start()

    def wiped_disk(self) -> None:
        self._each(lambda node: node.process.kill())
        self._each(Node.wipe)
        self.during()
        self._start()

    def _each(self, act: Callable[[Node], object]) -> None:
        for node in self.victims:
            act(node)

    def _start(self) -> None:
        self._each(Node.start)
        self._each(Node.wait_until_ready)

    def _hold(self, seconds: float) -> None:
        ends = time.monotonic() + seconds
        self.during()
        # Past the session: nothing else tells that it is over.
        time.sleep(max(0.0, ends - time.monotonic()))

    def _network(self) -> Network:
        assert self.cluster.network is not None, "this fault needs nodes with networks of their own"
        return self.cluster.network

    def _hosts(self, nodes: Iterable[Node]) -> list[Host]:
        return [node.host for node in nodes if node.host is not None]

    @contextmanager
    def _cut(self, cut: Callable[[], None]) -> Iterator[None]:
        cut()
        try:
            yield
        finally:
            self._network().heal()


FAULTS: Final[Mapping[str, Callable[[Fault], None]]] = {
    "clean stop": Fault.clean_stop,
    "SIGKILL": Fault.kill,
    "five bounces": Fault.five_bounces,
    "SIGSTOP past the session": Fault.pause_past_session,
    "cut off both ways": Fault.cut_both_ways,
    "cut off one way": Fault.cut_one_way,
    "cut off from ZooKeeper": Fault.cut_from_zookeeper,
    "slow disk": Fault.slow_disk,
    "full disk": Fault.full_disk,
    "wiped disk": Fault.wiped_disk,
}
# All that the cluster knows of itself is gone, in Kafka as here.
NOT_SURVIVABLE: Final = frozenset({("ensemble", "wiped disk")})


@dataclass
class CellResult:
    victim: str
    fault: str
    brokers: int
    # By kind of writing: sent, acknowledged, given up, lost, doubled, other findings.
    kinds: dict[str, dict[str, int]] = field(default_factory=dict)
    transactions: dict[str, int] = field(default_factory=dict)
    read: int = 0
    offsets_committed: int = 0
    # Until every writer was acknowledged again, in each part of the fault; and until all replicas were in sync.
    acknowledged_again_s: list[float] = field(default_factory=list)
    whole_again_s: float = 0.0
    seconds: float = 0.0
    # Who had the victim's role one after the other, where the cell is about one.
    held_by: list[str] = field(default_factory=list)
    findings: list[str] = field(default_factory=list)
    # Written twice by librdkafka itself, under two epochs.
    resent: list[str] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    # Why records were given up, and why transactional producers aborted or had to begin anew.
    given_up: list[str] = field(default_factory=list)
    setbacks: list[str] = field(default_factory=list)

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)

    def check(self) -> None:
        """Nothing lost, doubled or otherwise wrong; nothing given up; all in sync in the end."""
        assert (self.findings, self.problems) == ([], []), f"{self.fault} of the {self.victim}: {self}"
        given_up = {kind: counts["given up"] for kind, counts in self.kinds.items() if counts["given up"]}
        assert given_up == {}, f"{self.fault} of the {self.victim}: {self}"


def new_topics(kinds: Iterable[Kind]) -> dict[str, Kind]:
    """Names for the topics of a cell."""
    number = next(_cells)
    return {f"{kind.name}{os.getpid()}x{number}": kind for kind in kinds}


def run_cell(cluster: ReplicatedCluster, victim: str, fault: str, kinds: Sequence[Kind]) -> CellResult:
    """One fault under all these writers, each with a topic of its own."""
    began = time.monotonic()
    result = CellResult(victim, fault, len(cluster.brokers))
    topics = new_topics(kinds)
    controller = cluster.controller()
    leader, follower, *_ = (each for each in range(len(cluster.brokers)) if each != controller)
    # The controller leads, too, and is asked for more than its decisions.
    cluster.create(topics, [(leader, follower, controller), (controller, leader, follower)])
    nodes = {
        "leader": [cluster.brokers[leader]],
        "controller": [cluster.brokers[controller]],
        "follower": [cluster.brokers[follower]],
        "zookeeper node": cluster.servers[:1],
        "ensemble": cluster.servers,
    }
    traffic = Traffic(cluster.bootstrap, topics)

    def go_on() -> None:
        result.acknowledged_again_s.append(round(traffic.await_progress(GOES_ON_WITHIN_S), 1))

    try:
        with traffic.running():
            FAULTS[fault](Fault(cluster, nodes[victim], go_on))
            result.whole_again_s = round(cluster.await_whole(topics), 1)
            go_on()
    except AssertionError as late:
        result.problems.append(str(late))
    judge_cell(cluster, traffic, result)
    result.seconds = round(time.monotonic() - began, 1)
    return result


def judge_cell(cluster: ReplicatedCluster, traffic: Traffic, result: CellResult) -> None:
    verdict = traffic.verdict()
    result.problems += traffic.problems
    result.setbacks = [text for writer in traffic.writers for text in writer.setbacks]
    result.findings = [str(finding) for finding in verdict.findings]
    result.resent = [str(finding) for finding in traffic.resent]
    kept = [topic for topic, kind in traffic.topics.items() if not kind.rules.compacted]
    result.findings += [f"replicas differ: {text}" for text in cluster.differing_replicas(kept)]
    result.read = verdict.read
    result.offsets_committed = verdict.offsets_committed
    result.transactions = {
        "committed": verdict.committed,
        "aborted": verdict.aborted,
        "in doubt": verdict.in_doubt,
    }
    aborted = abandoned_transactions(traffic.history.operations)
    topic_of = {}
    counts = {topic: dict.fromkeys(("sent", "acknowledged", "given up"), 0) for topic in traffic.topics}
    for operation in traffic.history.operations:
        if isinstance(operation, Sent):
            if operation.transaction not in aborted:
                topic_of[operation.value] = operation.partition.topic
            counts[operation.partition.topic]["sent"] += 1
        elif isinstance(operation, Acknowledged):
            counts[operation.partition.topic]["acknowledged"] += 1
        elif isinstance(operation, GaveUp) and operation.value in topic_of:
            counts[topic_of[operation.value]]["given up"] += 1
            result.given_up.append(f"{topic_of[operation.value]}: {operation.problem}")
    # One of each.
    result.given_up = list(dict.fromkeys(result.given_up))[:20]
    for topic, kind in traffic.topics.items():
        found = [finding.anomaly for finding in verdict.findings if finding.partition.topic == topic]
        lost, doubled = found.count(Anomaly.LOST), found.count(Anomaly.DOUBLED)
        result.kinds[kind.name] = {
            **counts[topic],
            "lost": lost,
            "doubled": doubled,
            "other": len(found) - lost - doubled,
        }


# All cells of a matrix


def known_cells(results: Path | None, brokers: int) -> set[Cell]:
    """Those that have been run with so many brokers."""
    if results is None or not results.exists():
        return set()
    lines = map(json.loads, results.read_text().splitlines())
    return {(line["victim"], line["fault"]) for line in lines if line["brokers"] == brokers}


def run_cells(
    left: list[Cell],
    results: Path | None,
    place: Path,
    start: Callable[[Path], AbstractContextManager[ReplicatedCluster]],
    run: Callable[[ReplicatedCluster, str, str], CellResult],
) -> list[CellResult]:
    """Each result is appended to the file; those that failed are returned.

    A cluster is used until a cell fails on it, so that one failure does not make the next.
    """
    failed: list[CellResult] = []
    lives = itertools.count()
    while left:
        life = place / str(next(lives))
        life.mkdir(parents=True)
        with start(life) as cluster:
            while left:
                result = run(cluster, *left.pop(0))
                print(json.dumps(result.as_dict()), flush=True)
                if results is not None:
                    with results.open("a") as file:
                        file.write(json.dumps({**result.as_dict(), "place": str(life)}) + "\n")
                if result.findings or result.problems:
                    failed.append(result)
                    break
    return failed
