"""Apache Kafka's command line tools say of our brokers, alone or beside one of Kafka's, what they say of Kafka's alone.

A scenario is a number of calls. What the tools print in it, with names for ports, ids and directories, is compared
with what they print in the same scenario on three brokers of Kafka 3.9 on ZooKeeper.
"""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final

import pytest
from confluent_kafka import Consumer as ConfluentConsumer
from confluent_kafka import TopicPartition as ConfluentPartition
from confluent_kafka.admin import NewTopic
from tools.peers.kafka import TOOL_JVM, TOOLS, java_command, run_tool
from tools.peers.process import LoggedProcess

from braidlog.coordinator.partitioning import partition_for
from braidlog.local_cluster.zookeeper import ZooKeeper
from support import confluent
from support.broker import BRAIDLOG, KAFKA
from support.dynamic_state import dynamic_state
from support.ensemble import Ensemble, start_ensemble
from support.eventually import eventually
from support.kafka_tools import KafkaTools
from support.migrating_cluster import KNOWN_WITHIN_S
from support.mixed_cluster import zookeeper_client
from support.replica_logs import differing_replicas
from support.samples import Sample

pytestmark = [pytest.mark.peer, pytest.mark.long, pytest.mark.usefixtures("apache_kafka"), pytest.mark.timeout(900)]

TOPICS, CONFIGS, REASSIGN, ELECTION = (
    "kafka-topics",
    "kafka-configs",
    "kafka-reassign-partitions",
    "kafka-leader-election",
)
GROUPS, TRANSACTIONS, ACLS = "kafka-consumer-groups", "kafka-transactions", "kafka-acls"
MB: Final = 1_000_000
STACK_OR_LOG: Final = re.compile(r"\s+at \S+\(.*\)|\s+\.\.\. \d+ more|\[\d{4}-\d\d-\d\d .*")


_numbers = itertools.count(1)


class World:
    """A cluster, and what the tools say of it in a form that does not depend on which cluster it is."""

    def __init__(self, ensemble: Ensemble, tools: KafkaTools, place: Path) -> None:
        self.ensemble = ensemble
        self.tools = tools
        self._place = place
        self._transcript: list[str] = []
        self._told: dict[str, list[str]] = {}

    @property
    def bootstrap(self) -> str:
        return self.ensemble.bootstrap_servers

    @property
    def directories(self) -> dict[int, Path]:
        return {broker.id: broker.data_dir for broker in self.ensemble.brokers}

    @property
    def is_ours(self) -> bool:
        return all(broker.kind == BRAIDLOG for broker in self.ensemble.brokers)

    def told(self, scenario: Callable[[World], None]) -> list[str]:
        """What the tools say in it; once more, what they said."""
        name = scenario.__name__
        if name not in self._told:
            self._clear()
            self._transcript = []
            scenario(self)
            self._told[name] = self._transcript
        return self._told[name]

    def begin(self, controller: int) -> None:
        """Once more, with this controller."""
        self._told.clear()
        self.ensemble.hand_over_to(controller)

    def _clear(self) -> None:
        """What other tests have left behind: topics of those that failed, and groups."""
        admin = confluent.admin(self.bootstrap)
        names = [each.group_id for each in admin.list_consumer_groups().result(60).valid]
        for deleted in admin.delete_consumer_groups(names).values() if names else ():
            deleted.result(60)
        found = self.ensemble.agreed().leaders
        left = [topic for topic in found if not topic.startswith("__")]
        if left:
            self.delete(*left)

    def ask(self, tool: str, *arguments: str) -> str:
        """What a tool says, in comparable form; not noted."""
        server = ("--bootstrap-server", self.bootstrap)
        words = (*arguments, *server) if tool == "kafka-cluster" else (*server, *arguments)
        ended = self.tools.run(tool, *words)
        said = [*ended.out.splitlines(), *ended.err.splitlines(), f"exit code {ended.code}"]
        return "\n".join(line for line in map(self._comparable, said) if line)

    def tool(self, tool: str, *arguments: str) -> str:
        """What a tool says, noted."""
        said = self.ask(tool, *arguments)
        self.note(self._comparable(" ".join(["$", tool, *arguments])), *said.splitlines())
        return said

    def until(self, right: Callable[[str], bool], tool: str, *arguments: str) -> str:
        """Asked until it says this; only that is noted."""
        said = ""

        def asked() -> bool:
            nonlocal said
            said = self.ask(tool, *arguments)
            return right(said)

        try:
            eventually(asked, KNOWN_WITHIN_S)
        except AssertionError:
            raise AssertionError(f"{tool} {' '.join(arguments)} goes on saying:\n{said}") from None
        self.await_agreement()
        self.note(self._comparable(" ".join(["$", tool, *arguments])), *said.splitlines())
        return said

    def await_agreement(self) -> None:
        """What one broker knows all know: a tool asks any of them."""
        states: list[dict[str, Any]] = []

        def agreed() -> bool:
            topics = sorted(self.ensemble.agreed().leaders)
            states[:] = [dynamic_state(broker.port, topics) for broker in self.ensemble.running]
            return all(state == states[0] for state in states)

        try:
            eventually(agreed, KNOWN_WITHIN_S)
        except AssertionError:
            raise AssertionError(f"the brokers do not agree: {states}") from None

    def note(self, *lines: str) -> None:
        self._transcript += lines

    def file(self, name: str, content: Any) -> str:
        path = self._place / name
        path.write_text(json.dumps(content))
        return str(path)

    def create(self, topic: str, *replicas: list[int], **configs: str) -> None:
        new = NewTopic(topic, len(replicas), replica_assignment=list(replicas), config=configs)
        admin = confluent.admin(self.bootstrap)
        admin.create_topics([new])[topic].result(60)
        self.await_topic(topic, len(replicas))

    def await_topic(self, topic: str, partitions: int) -> None:
        """Until all brokers know its leaders; 0 is for a topic that is gone."""

        def known(leaders: tuple[int, ...]) -> bool:
            return len(leaders) == partitions and -1 not in leaders

        self.ensemble.agreed(lambda view: known(view.leaders.get(topic, ())))

    def delete(self, *topics: str) -> None:
        admin = confluent.admin(self.bootstrap)
        for deleted in admin.delete_topics(list(topics)).values():
            deleted.result(60)
        self.await_deletion(*topics)

    def await_deletion(self, *topics: str) -> None:
        """From the store: only then a new one may have the name."""
        with zookeeper_client(self.ensemble.connect) as client:
            for topic in topics:
                for path in (f"/brokers/topics/{topic}", f"/admin/delete_topics/{topic}"):
                    eventually(lambda path=path: client.exists(path) is None, KNOWN_WITHIN_S)  # type: ignore[misc]
        for topic in topics:
            self.await_topic(topic, 0)

    def send(self, topic: str, partition: int, count: int, size: int = 10) -> None:
        samples = [Sample(f"key {n}".encode(), str(n).encode().ljust(size, b".")) for n in range(count)]
        confluent.send(confluent.producer(self.bootstrap), topic, samples, partition)

    def _comparable(self, line: str) -> str:
        """With names for what differs from cluster to cluster. Of an error its kind: its wording is each make's own."""
        if STACK_OR_LOG.fullmatch(line):
            # Standard error has it as well.
            return ""
        for broker in self.ensemble.brokers:
            line = line.replace(f"127.0.0.1:{broker.port}", f"broker-{broker.id}")
            line = line.replace(str(broker.data_dir), f"directory-{broker.id}")
        line = line.replace(f"{self._place}/", "")
        line = re.sub(r"TopicId: [\w-]{22}", "TopicId: ID", line)
        line = re.sub(r"reader-[0-9a-f-]{36}", "reader-ID", line)
        line = re.sub(r"(Error while executing [\w ]+ command) : .*", r"\1", line)
        line = re.sub(r"(errors\.\w+): .*", r"\1", line)
        # Sets, in any order.
        line = re.sub(r"(?<=Isr: )[\d,]+", lambda found: _sorted(found[0]), line)
        line = re.sub(r"(?<=Configs: ).+", lambda found: _sorted(found[0]), line)
        # There are none of these; a broker that serves DescribeTopicPartitions says so, one that does not says nothing.
        line = line.replace("Elr: N/A", "Elr:").replace("Elr: ", "Elr:")
        return re.sub(r"(?<=\S) {2,}", " ", line.rstrip())


def _sorted(listed: str) -> str:
    return ",".join(sorted(listed.split(",")))


@pytest.fixture(scope="module")
def kafka_tools() -> Iterator[KafkaTools]:
    with KafkaTools() as running:
        yield running


@pytest.fixture(scope="module")
def start_world(
    zookeeper: ZooKeeper,
    new_connect: Callable[[], str],
    kafka_tools: KafkaTools,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Callable[..., World]]:
    with ExitStack() as running:

        def start(*kinds: str) -> World:
            place = tmp_path_factory.mktemp("tools")
            started = start_ensemble(place, new_connect(), kinds)
            return World(running.enter_context(started), kafka_tools, place)

        yield start


@pytest.fixture(scope="module")
def oracle(start_world: Callable[..., World]) -> World:
    """Kafka alone."""
    return start_world(KAFKA, KAFKA, KAFKA)


@pytest.fixture(scope="module")
def mixed(start_world: Callable[..., World]) -> World:
    return start_world(BRAIDLOG, BRAIDLOG, KAFKA)


@pytest.fixture(scope="module", params=["ours alone", "mixed, controlled by Kafka's", "mixed, controlled by ours"])
def world(request: pytest.FixtureRequest) -> World:
    if request.param == "ours alone":
        made: World = request.getfixturevalue("start_world")(BRAIDLOG, BRAIDLOG, BRAIDLOG)
        return made
    made = request.getfixturevalue("mixed")
    made.begin(controller=3 if request.param.endswith("Kafka's") else 1)
    return made


def topics(world: World) -> None:
    create = (TOPICS, "--create", "--topic")
    assignment = ("--replica-assignment", "1:2:3,2:3:1,3:1:2")
    world.tool(*create, "orders", *assignment, "--config", "retention.ms=600000", "--config", "segment.bytes=1000000")
    world.await_topic("orders", 3)
    world.tool(TOPICS, "--describe", "--topic", "orders")
    world.tool(*create, "orders")
    world.tool(*create, "orders", "--if-not-exists")
    world.tool(*create, "more", "--replication-factor", "4")
    world.tool(*create, "more", "--partitions", "0")
    world.tool(*create, "more", "--replica-assignment", "1:1")
    world.tool(*create, "more", "--replica-assignment", "1:2,1")
    world.tool(*create, "more", "--config", "retention.ms=never")
    world.tool(*create, "more", "--config", "no.such.config=1")
    world.tool(*create, "two words")
    world.tool(*create, "..")
    world.tool(*create, "a.b", "--replica-assignment", "1:2:3")
    world.await_topic("a.b", 1)
    world.tool(*create, "a_b", "--replica-assignment", "1:2:3")
    world.tool(TOPICS, "--list", "--exclude-internal")
    world.tool(TOPICS, "--describe", "--topics-with-overrides", "--exclude-internal")
    world.tool(TOPICS, "--describe", "--topic", "none")
    world.tool(TOPICS, "--describe", "--topic", "none", "--if-exists")
    alter = (TOPICS, "--alter", "--topic", "orders", "--partitions")
    world.tool(*alter, "4", "--replica-assignment", "1:2:3,2:3:1,3:1:2,1:2:3")
    world.await_topic("orders", 4)
    world.tool(*alter, "2")
    world.tool(*alter, "4")
    world.tool(TOPICS, "--alter", "--topic", "none", "--partitions", "2")
    world.ensemble.await_whole()
    world.tool(TOPICS, "--describe", "--topic", "orders")
    for problem in PROBLEMS:
        world.tool(TOPICS, "--describe", problem)
    world.tool(TOPICS, "--delete", "--topic", "none")
    world.tool(TOPICS, "--delete", "--topic", "a.b")
    world.await_deletion("a.b")
    world.delete("orders")


PROBLEMS: Final = (
    "--under-replicated-partitions",
    "--unavailable-partitions",
    "--under-min-isr-partitions",
    "--at-min-isr-partitions",
)


def a_broker_is_down(world: World) -> None:
    world.create("orders", [1, 2, 3], [2, 3, 1], [3, 1, 2], **{"min.insync.replicas": "2"})
    world.create("single", [2], [1])
    world.create("strict", [1, 2, 3], **{"min.insync.replicas": "3"})
    world.send("single", 0, 10)
    down = world.ensemble.broker(2)
    down.stop()
    world.ensemble.agreed(lambda view: view.leaders.get("single") == (-1, 1))
    try:
        for topic in ("orders", "single", "strict"):
            world.tool(TOPICS, "--describe", "--topic", topic)
            for problem in PROBLEMS:
                world.tool(TOPICS, "--describe", "--topic", topic, problem)
        world.tool(ELECTION, "--election-type", "preferred", "--topic", "single", "--partition", "0")
        world.tool(ELECTION, "--election-type", "unclean", "--topic", "single", "--partition", "0")
        world.tool("kafka-log-dirs", "--describe", "--topic-list", "single", "--broker-list", "2")
    finally:
        down.start(down.kind)
    world.ensemble.await_whole()
    world.tool(TOPICS, "--describe", "--topic", "orders")
    world.tool(ELECTION, "--election-type", "preferred", "--topic", "orders", "--partition", "1")
    world.ensemble.agreed(lambda view: view.leaders.get("orders") == (1, 2, 3))
    world.tool(ELECTION, "--election-type", "preferred", "--topic", "orders", "--partition", "1")
    world.tool(ELECTION, "--election-type", "unclean", "--topic", "orders", "--partition", "1")
    world.tool(ELECTION, "--election-type", "preferred", "--topic", "none", "--partition", "0")
    listed = {"partitions": [{"topic": "orders", "partition": number} for number in (0, 7)]}
    path = world.file("elected.json", listed)
    world.tool(ELECTION, "--election-type", "preferred", "--path-to-json-file", path)
    world.delete("orders", "single", "strict")


def configs(world: World) -> None:
    world.create("orders", [1, 2, 3])
    topic = (CONFIGS, "--entity-type", "topics", "--entity-name", "orders")
    world.tool(*topic, "--alter", "--add-config", "cleanup.policy=[compact,delete],retention.ms=600000")
    world.until(lambda said: "retention.ms=600000" in said, *topic, "--describe")
    world.tool(*topic, "--describe", "--all")
    world.tool(*topic, "--alter", "--delete-config", "retention.ms")
    world.until(lambda said: "retention.ms" not in said, *topic, "--describe")
    world.tool(*topic, "--alter", "--delete-config", "retention.ms")
    world.tool(*topic, "--alter", "--add-config", "retention.ms=never")
    world.tool(*topic, "--alter", "--add-config", "no.such.config=1")
    world.tool(CONFIGS, "--entity-type", "topics", "--entity-name", "none", "--describe")
    world.tool(CONFIGS, "--entity-type", "topics", "--entity-name", "none", "--alter", "--add-config", "retention.ms=1")
    one = (CONFIGS, "--entity-type", "brokers", "--entity-name", "1")
    world.tool(*one, "--describe")
    world.tool(*one, "--alter", "--add-config", "log.cleaner.threads=2,log.retention.ms=7200000")
    world.until(lambda said: "log.cleaner.threads=2" in said, *one, "--describe")
    default = (CONFIGS, "--entity-type", "brokers", "--entity-default")
    world.tool(*default, "--alter", "--add-config", "log.retention.ms=3600000")
    world.until(lambda said: "log.retention.ms=3600000" in said, *default, "--describe")
    world.until(lambda said: "DYNAMIC_DEFAULT_BROKER_CONFIG" in said, *one, "--describe")
    world.tool(CONFIGS, "--entity-type", "brokers", "--describe")
    world.tool(*one, "--alter", "--delete-config", "log.cleaner.threads,log.retention.ms")
    world.tool(*default, "--alter", "--delete-config", "log.retention.ms")
    world.until(lambda said: "log." not in said, *one, "--describe")
    world.tool(*one, "--alter", "--add-config", "log.dirs=/elsewhere")
    world.tool(*one, "--alter", "--add-config", "log.cleaner.threads=many")
    world.tool(*one, "--alter", "--add-config", "log.cleaner.threads=-1")
    world.tool(*one, "--alter", "--add-config", "no.such.config=1")
    world.tool(*one, "--alter", "--delete-config", "log.cleaner.threads")
    world.tool(*one, "--alter", "--delete-config", "no.such.config")
    world.delete("orders")


def quotas_and_users(world: World) -> None:
    alter, describe = ("--alter", "--add-config"), (CONFIGS, "--describe")
    entities = {
        "user": ("--entity-type", "users", "--entity-name", "alice"),
        "any user": ("--entity-type", "users", "--entity-default"),
        "client": ("--entity-type", "clients", "--entity-name", "app one"),
        "any client": ("--entity-type", "clients", "--entity-default"),
        "user and client": ("--user", "alice", "--client", "app one"),
        "user and any client": ("--user", "alice", "--client-defaults"),
    }
    for rate, entity in enumerate(entities.values(), 1000):
        world.tool(CONFIGS, *entity, *alter, f"producer_byte_rate={rate},consumer_byte_rate={2 * rate}")
        world.until(lambda said, rate=rate: f"={rate}.0" in said, *describe, *entity)  # type: ignore[misc]
    world.tool(CONFIGS, *entities["user"], *alter, "request_percentage=12.5,controller_mutation_rate=3")
    world.until(lambda said: "12.5" in said, *describe, *entities["user"])
    world.tool(CONFIGS, "--entity-type", "ips", "--entity-name", "10.0.0.1", *alter, "connection_creation_rate=5")
    world.until(lambda said: "=5" in said, *describe, "--entity-type", "ips")
    world.tool(*describe, "--entity-type", "ips", "--entity-name", "10.0.0.1")
    world.note(*sorted(world.ask(*describe, "--entity-type", "clients").splitlines()))
    world.tool(CONFIGS, *entities["user"], *alter, "no_such_quota=1")
    world.tool(CONFIGS, *entities["user"], *alter, "producer_byte_rate=fast")
    world.tool(CONFIGS, "--entity-type", "ips", "--entity-name", "not an address", *alter, "connection_creation_rate=5")
    world.tool(CONFIGS, *entities["user"], *alter, "SCRAM-SHA-256=[iterations=4096,password=secret]")
    world.until(lambda said: "SCRAM-SHA-256" in said, *describe, *entities["user"])
    world.tool(CONFIGS, *entities["user"], *alter, "SCRAM-SHA-512=[iterations=1,password=secret]")
    world.tool(CONFIGS, *entities["user"], "--alter", "--delete-config", "SCRAM-SHA-512")
    world.tool(CONFIGS, *entities["user"], "--alter", "--delete-config", "SCRAM-SHA-256")
    world.until(lambda said: "SCRAM" not in said, *describe, *entities["user"])
    names = "producer_byte_rate,consumer_byte_rate"
    for entity in entities.values():
        world.tool(CONFIGS, *entity, "--alter", "--delete-config", names)
    delete = ("--alter", "--delete-config")
    world.tool(CONFIGS, *entities["user"], *delete, "request_percentage,controller_mutation_rate")
    world.tool(CONFIGS, "--entity-type", "ips", "--entity-name", "10.0.0.1", *delete, "connection_creation_rate")
    for kind in ("users", "clients", "ips"):
        world.until(lambda said: "=" not in said, *describe, "--entity-type", kind)


def reassignment(world: World) -> None:
    world.create("moved", [1], [2])
    for partition in (0, 1):
        world.send("moved", partition, 200, MB // 100)
    topics_to_move = world.file("topics.json", {"version": 1, "topics": [{"topic": "moved"}]})
    generated = world.ask(REASSIGN, "--generate", "--broker-list", "3,1", "--topics-to-move-json-file", topics_to_move)
    current, proposed = generated.split("\n")[1], generated.split("\n")[3]
    world.note(current)
    # Where it starts is by chance.
    parts = json.loads(proposed)["partitions"]
    assert {tuple(part["replicas"]) for part in parts} <= {(1,), (3,)}, generated
    world.note(*(str({key: part[key] for key in part if key != "replicas"}) for part in parts))

    def plan(name: str, *replicas: list[int]) -> tuple[str, str]:
        moves = [{"topic": "moved", "partition": number, "replicas": each} for number, each in enumerate(replicas)]
        return "--reassignment-json-file", world.file(f"{name}.json", {"version": 1, "partitions": moves})

    move = plan("move", [2, 3], [3, 1])
    world.tool(REASSIGN, "--execute", *move, "--throttle", "200000")
    world.tool(REASSIGN, "--list")
    world.tool(REASSIGN, "--verify", *move, "--preserve-throttles")
    # What is under way already.
    eventually(
        lambda: {"2,3,1", "3,1,2"} <= set(re.findall(r"Replicas: (\S+)", world.ask(TOPICS, "--describe"))),
        KNOWN_WITHIN_S,
    )
    world.tool(REASSIGN, "--execute", *move)
    for kind, name in (("topics", "moved"), ("brokers", "1")):
        described = (CONFIGS, "--entity-type", kind, "--entity-name", name, "--describe")
        world.until(lambda said: "throttled" in said, *described)
    world.tool(REASSIGN, "--execute", "--additional", *move, "--throttle", "50000000")
    finished = "Reassignment of partition moved-{} is completed.".format
    world.until(lambda said: finished(0) in said and finished(1) in said, REASSIGN, "--verify", *move)
    world.ensemble.await_whole()
    world.tool(TOPICS, "--describe", "--topic", "moved")
    world.until(
        lambda said: "throttled" not in said, CONFIGS, "--entity-type", "topics", "--entity-name", "moved", "--describe"
    )
    back = plan("back", [1], [2])
    world.tool(REASSIGN, "--execute", *back, "--throttle", "1000")
    world.tool(REASSIGN, "--cancel", *back)
    world.until(lambda said: "No partition reassignments found." in said, REASSIGN, "--list")
    world.tool(REASSIGN, "--verify", *back)
    world.tool(REASSIGN, "--cancel", *back)
    world.tool(REASSIGN, "--execute", *plan("nowhere", [9], [1]))
    world.tool(REASSIGN, "--execute", *plan("twice", [1, 1], [1]))
    world.tool(REASSIGN, "--execute", *plan("empty", [], [1]))
    unknown = {"version": 1, "partitions": [{"topic": "none", "partition": 0, "replicas": [1]}]}
    world.tool(REASSIGN, "--execute", "--reassignment-json-file", world.file("unknown.json", unknown))
    world.delete("moved")


def groups(world: World) -> None:
    world.create("orders", [1, 2, 3], [2, 3, 1])
    for partition in (0, 1):
        world.send("orders", partition, 20)
    named = ("--group", "billing")
    reader = ConfluentConsumer(
        {"bootstrap.servers": world.bootstrap, "group.id": "billing", "client.id": "reader",
         "auto.offset.reset": "earliest"}
    )  # fmt: skip
    reader.subscribe(["orders"])
    read = 0
    while read < 40:
        read += reader.poll(1.0) is not None
    reader.commit(asynchronous=False)
    world.tool(GROUPS, "--list")
    world.tool(GROUPS, "--list", "--state")
    world.tool(GROUPS, "--list", "--type", "classic")
    world.tool(GROUPS, "--describe", *named)
    world.tool(GROUPS, "--describe", *named, "--members", "--verbose")
    state = world.ask(GROUPS, "--describe", *named, "--state")
    # The coordinator is where the offsets topic's partition is led.
    world.note(re.sub(r"broker-\d \(\d\)", "coordinator", state))
    world.tool(GROUPS, "--delete", *named)
    world.tool(GROUPS, "--reset-offsets", *named, "--topic", "orders", "--to-earliest", "--execute")
    world.tool(GROUPS, "--delete-offsets", *named, "--topic", "orders")
    reader.close()
    world.until(lambda said: "Empty" in said, GROUPS, "--list", "--state", "empty")
    world.tool(GROUPS, "--describe", *named)
    world.tool(GROUPS, "--describe", *named, "--members")
    for target in (("--to-offset", "3"), ("--shift-by", "-2"), ("--to-latest",), ("--to-current",)):
        world.tool(GROUPS, "--reset-offsets", *named, "--topic", "orders:1", *target, "--execute")
    world.tool(GROUPS, "--reset-offsets", *named, "--all-topics", "--to-earliest", "--dry-run")
    world.tool(GROUPS, "--reset-offsets", *named, "--all-topics", "--to-earliest", "--export")
    world.tool(GROUPS, "--delete-offsets", *named, "--topic", "orders:0")
    world.tool(GROUPS, "--describe", *named)
    world.tool(GROUPS, "--describe", "--group", "none")
    world.tool(GROUPS, "--delete", "--group", "none")
    world.tool(GROUPS, "--delete", *named)
    world.tool(GROUPS, "--list")
    world.delete("orders")


def records(world: World) -> None:
    world.create("orders", [1, 2, 3], [2, 3, 1])
    world.send("orders", 0, 30)
    world.send("orders", 1, 7)
    for time in ("latest", "earliest", "max-timestamp", "-1", "-2", "earliest-local", "latest-tiered"):
        world.tool("kafka-get-offsets", "--topic", "orders", "--time", time)
    world.tool("kafka-get-offsets", "--topic-partitions", "orders:1-3")
    world.tool("kafka-get-offsets", "--topic", "none")
    deletion = {"version": 1, "partitions": [{"topic": "orders", "partition": 0, "offset": 12}]}
    path = world.file("deletion.json", deletion)
    world.tool("kafka-delete-records", "--offset-json-file", path)
    world.tool("kafka-get-offsets", "--topic", "orders", "--time", "earliest")
    deletion["partitions"] = [{"topic": "orders", "partition": 0, "offset": 100}]
    world.tool("kafka-delete-records", "--offset-json-file", world.file("deletion.json", deletion))
    described = world.ask("kafka-log-dirs", "--describe", "--topic-list", "orders")
    said, answer = described.split("\n{")
    world.note(said)
    directories = json.loads("{" + answer.splitlines()[0])
    for broker in directories["brokers"]:
        for directory in broker["logDirs"]:
            # Files differ where clients' batches do.
            for partition in directory["partitions"]:
                assert partition.pop("size") > 0
            directory["partitions"].sort(key=lambda each: each["partition"])
    directories["brokers"].sort(key=lambda each: each["broker"])
    world.note(json.dumps(directories))
    world.tool("kafka-log-dirs", "--describe", "--broker-list", "9")
    world.delete("orders")


def transactions(world: World) -> None:
    world.create("payments", [1, 2, 3])
    # Transactional ids stay: each time has its own.
    name = f"payer-{next(_numbers)}"
    producer = confluent.producer(world.bootstrap, transactional_id=name)

    def noted(*arguments: str) -> str:
        said = world.ask(TRANSACTIONS, *arguments)
        lines = said.splitlines()
        if arguments == ("list",):
            lines = [line for line in lines if name in line or line.startswith(("TransactionalId", "exit code"))]
        # Ids, epochs of coordinators and times are another number each time.
        world.note("$ " + " ".join(arguments).replace(name, "payer"))
        titles: list[str] = []
        for line in lines:
            words = line.replace(name, "payer").split("\t")
            words = [word.strip() for word in words]
            if set(words) & CHANGING:
                titles = words
            elif titles and not line.startswith("exit code"):
                words += [""] * (len(titles) - len(words))
                words = [word if title not in CHANGING else "_" for title, word in zip(titles, words, strict=True)]
            world.note("\t".join(words))
        return said

    producer.init_transactions(60)
    noted("describe", "--transactional-id", name)
    producer.begin_transaction()
    confluent.send(producer, "payments", [Sample(b"k", b"v")] * 3)
    noted("list")
    noted("describe", "--transactional-id", name)
    place = ("--topic", "payments", "--partition", "0")
    noted("describe-producers", *place)
    noted("find-hanging", *place)
    noted("find-hanging", "--broker-id", "1")
    noted("abort", *place, "--start-offset", "2")
    noted("abort", *place, "--start-offset", "0")
    noted("describe-producers", *place)
    noted("describe", "--transactional-id", "none")
    noted("describe", "--transactional-id", name)
    world.delete("payments")


CHANGING: Final = {
    "CoordinatorId", "Coordinator", "ProducerId", "ProducerEpoch", "LatestCoordinatorEpoch", "LastTimestamp",
    "CurrentTransactionStartTimeMs", "TransactionDurationMs",
}  # fmt: skip


def acls(world: World) -> None:
    alice = ("--allow-principal", "User:alice")

    def noted(*arguments: str) -> str:
        """Resources, and the rules of each, come in any order."""
        said = world.ask(ACLS, *arguments)
        lines = said.replace("Current ACLs", "\nCurrent ACLs").splitlines()
        world.note(f"$ {' '.join(arguments)}", *sorted(line.strip() for line in lines if line.strip()))
        return said

    def known(rule: str, *resource: str) -> None:
        eventually(lambda: rule in world.ask(ACLS, "--list", *resource), KNOWN_WITHIN_S)
        world.await_agreement()

    noted("--add", *alice, "--operation", "Read", "--operation", "Write", "--topic", "orders")
    noted("--add", *alice, "--producer", "--topic", "or", "--resource-pattern-type", "prefixed")
    noted("--add", *alice, "--consumer", "--topic", "orders", "--group", "billing")
    noted(
        "--add", "--deny-principal", "User:*", "--deny-host", "10.0.0.1", "--operation", "All",
        "--cluster", "--transactional-id", "*",
    )  # fmt: skip
    for rule, *resource in (
        ("READ", "--group", "billing"),
        ("CREATE", "--topic", "or", "--resource-pattern-type", "prefixed"),
        ("DENY", "--cluster"),
        ("DENY", "--transactional-id", "*"),
    ):
        known(rule, *resource)
    noted("--list")
    noted("--list", "--topic", "orders", "--resource-pattern-type", "match")
    noted("--list", "--principal", "User:alice")
    noted("--remove", "--force", *alice, "--operation", "Write", "--topic", "orders")
    eventually(lambda: "WRITE" not in world.ask(ACLS, "--list", "--topic", "orders"), KNOWN_WITHIN_S)
    world.await_agreement()
    noted("--list", "--topic", "orders")
    noted("--add", "--allow-principal", "alice", "--operation", "Read", "--topic", "orders")
    noted("--add", *alice, "--operation", "IdempotentWrite", "--topic", "orders")
    noted("--add", *alice, "--operation", "Read", "--cluster")
    for resource in (
        ("--topic", "orders"),
        ("--topic", "or", "--resource-pattern-type", "prefixed"),
        ("--group", "billing"),
        ("--cluster",),
        ("--transactional-id", "*"),
    ):
        noted("--remove", "--force", *resource)
    eventually(lambda: "User:" not in world.ask(ACLS, "--list"), KNOWN_WITHIN_S)


def others(world: World) -> None:
    """What takes KRaft, or a login, is refused."""
    world.note(re.sub(r"ID: \S+", "ID: X", world.ask("kafka-cluster", "cluster-id")))
    world.tool("kafka-cluster", "unregister", "--id", "1")
    world.tool("kafka-metadata-quorum", "describe", "--status")
    world.tool("kafka-client-metrics", "--alter", "--name", "n", "--interval", "1000")
    config = world.file("empty.properties", "")
    Path(config).write_text("")
    tokens = ("kafka-delegation-tokens", "--command-config", config)
    world.tool(*tokens, "--create", "--max-life-time-period", "-1")
    world.tool(*tokens, "--describe")


SCENARIOS: Final = [
    topics, a_broker_is_down, configs, quotas_and_users, reassignment, groups, records, transactions, acls, others
]  # fmt: skip


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.__name__)
def test_the_tools_say_the_same(oracle: World, world: World, scenario: Callable[[World], None]) -> None:
    expected = oracle.told(scenario)
    controller = world.ensemble.controller()
    assert world.told(scenario) == expected
    assert world.ensemble.controller() is controller


@pytest.fixture
def topic(world: World) -> Iterator[str]:
    """On all brokers, with a leader on each."""
    name = f"filled-{next(_numbers)}"
    world.create(name, [1, 2, 3], [2, 3, 1], [3, 1, 2], **{"segment.bytes": "200000", "index.interval.bytes": "1000"})
    yield name
    world.delete(name)


def own_process(tool: str, *arguments: str) -> LoggedProcess:
    return LoggedProcess(tool, java_command(TOOLS[tool], arguments, TOOL_JVM, "WARN"))


def events(process: LoggedProcess, name: str) -> list[dict[str, Any]]:
    found = [json.loads(line) for line in process.lines if line.startswith("{")]
    return [event for event in found if event["name"] == name]


def test_verifiable_producer_and_consumer(world: World, topic: str) -> None:
    """What the one says was acknowledged is what the other says it has read; a second member shares the partitions."""
    server = ("--bootstrap-server", world.bootstrap, "--topic", topic)
    count = 3000
    with ExitStack() as running:

        def begin(tool: str, *arguments: str) -> LoggedProcess:
            return running.enter_context(own_process(tool, *server, *arguments))

        group = ("--group-id", f"{topic}-verified", "--reset-policy", "earliest", "--enable-autocommit")
        consumers = [begin("kafka-verifiable-consumer", *group) for _ in range(2)]
        for consumer in consumers:
            consumer.wait_for_line('"name":"partitions_assigned"')
        producer = begin("kafka-verifiable-producer", "--max-messages", str(count), "--throughput", "1000")
        assert producer.wait(120) == 0, producer.log()
        (summary,) = events(producer, "tool_data")
        assert (summary["sent"], summary["acked"]) == (count, count)
        acknowledged = {(event["partition"], event["offset"]) for event in events(producer, "producer_send_success")}
        assert len(acknowledged) == count
        assert events(producer, "producer_send_error") == []

        def read() -> int:
            return sum(event["count"] for each in consumers for event in events(each, "records_consumed"))

        eventually(lambda: read() >= count, 90)
        for consumer in consumers:
            consumer.terminate()
            assert len(events(consumer, "shutdown_complete")) == 1, consumer.log()
        assert read() == count


def test_console_producer_and_consumer(world: World, topic: str) -> None:
    lines = [f"key {number}\tvalue {number}" for number in range(50)]
    server = ["--bootstrap-server", world.bootstrap, "--topic", topic]
    wrote = run_tool("kafka-console-producer", [*server, "--property", "parse.key=true"], input_text="\n".join(lines))
    assert wrote.returncode == 0, wrote.stderr
    group = ["--group", f"{topic}-console", "--from-beginning", "--max-messages", "50"]
    read = run_tool("kafka-console-consumer", [*server, *group, "--property", "print.key=true"])
    assert read.returncode == 0, read.stderr
    assert sorted(read.stdout.splitlines()) == sorted(lines)
    described = world.ask(GROUPS, "--describe", "--group", f"{topic}-console")
    assert [line.split()[5] for line in described.splitlines() if f" {topic} " in line] == ["0"] * 3, described


def test_replica_verification(world: World, topic: str) -> None:
    """It reads all replicas, as a consumer of its own kind that also followers answer, and compares them."""
    for partition in range(3):
        world.send(topic, partition, 500, 200)
    arguments = ("--broker-list", world.bootstrap, "--topics-include", topic, "--time", "-2")
    reports = ("--report-interval-ms", "200", "--max-wait-ms", "100")
    with own_process("kafka-replica-verification", *arguments, *reports) as tool:
        tool.wait_for_line("verification process is started")
        tool.wait_for_line(rf"max lag is 0 for partition {topic}-\d at offset 500 among 3 partitions")
        for partition in range(3):
            world.send(topic, partition, 100, 200)
        tool.wait_for_line(rf"max lag is 0 for partition {topic}-\d at offset 600 among 3 partitions")
        said = [line for line in tool.lines if "verification" not in line and "WARN" not in line]
    assert all(": max lag is " in line for line in said), tool.log()


def dump(world: World, files: list[Path], *arguments: str) -> list[str]:
    names = ",".join(map(str, files))
    ended = world.tools.run("kafka-dump-log", "--files", names, *arguments)
    assert ended.code == 0, ended.out + ended.err
    return [line for line in ended.out.splitlines() if not line.startswith("Dumping ")]


@pytest.mark.parametrize("codec", ["none", "zstd"])
def test_dump_log_reads_the_same_on_every_broker(world: World, topic: str, codec: str) -> None:
    producer = confluent.producer(
        world.bootstrap, compression_type=codec, enable_idempotence=True, batch_num_messages=100
    )
    for partition in range(3):
        samples = [Sample(b"key", f"{n:0100}".encode(), (("h", b"x"),)) for n in range(3000)]
        confluent.send(producer, topic, samples, partition)
    assert differing_replicas(world.directories, {f"{topic}-{n}": 3 for n in range(3)}) == []
    for partition in range(3):
        dumped = []
        for directory in world.directories.values():
            segments = sorted((directory / f"{topic}-{partition}").glob("*.log"))
            if codec == "none":
                assert len(segments) > 1
            dumped.append(dump(world, segments, "--deep-iteration", "--print-data-log"))
            # Not of the last: the index that a running Kafka writes, full of zeros, is corrupt to its own tool.
            for kind in ("index", "timeindex") if len(segments) > 1 else ():
                indexes = [segment.with_suffix(f".{kind}") for segment in segments[:-1]]
                sane = dump(world, indexes, "--index-sanity-check")
                # That of a small last segment may have no entry yet.
                assert len([line for line in sane if line.endswith(("passed sanity check.", " is empty."))]) == len(
                    indexes
                )
                verified = dump(world, indexes, "--verify-index-only")
                assert [line for line in verified if "ismatch" in line or "Non-" in line] == []
            snapshots = sorted((directory / f"{topic}-{partition}").glob("*.snapshot"))
            assert all("producerId: " in line for path in snapshots for line in dump(world, [path]))
        records = [line for line in dumped[0] if line.startswith("| offset: ")]
        assert len(records) == 3000
        # Sizes of files and times of their making aside.
        assert dumped[0] == dumped[1] == dumped[2]


@pytest.mark.parametrize(
    ("internal", "decoder"),
    [("__consumer_offsets", "--offsets-decoder"), ("__transaction_state", "--transaction-log-decoder")],
)
def test_dump_log_decodes_internal_topics_on_every_broker(
    world: World, topic: str, internal: str, decoder: str
) -> None:
    name = f"dumped-{topic}"
    producer = confluent.producer(world.bootstrap, transactional_id=name)
    producer.init_transactions(60)
    producer.begin_transaction()
    confluent.send(producer, topic, [Sample(b"k", b"v")])
    reader = ConfluentConsumer({"bootstrap.servers": world.bootstrap, "group.id": name})
    reader.subscribe([topic])
    eventually(lambda: reader.poll(0.1) is None and len(reader.assignment()) == 3, KNOWN_WITHIN_S)
    offsets = [ConfluentPartition(topic, 0, 1)]
    producer.send_offsets_to_transaction(offsets, reader.consumer_group_metadata(), 60)
    producer.commit_transaction(60)
    reader.close()
    completed = (TRANSACTIONS, "describe", "--transactional-id", name)
    eventually(lambda: "CompleteCommit" in world.ask(*completed), KNOWN_WITHIN_S)
    partition = f"{internal}-{partition_for(name, 3)}"
    assert differing_replicas(world.directories, {partition: 3}) == []
    dumped = [
        dump(world, sorted((directory / partition).glob("*.log")), decoder) for directory in world.directories.values()
    ]
    mine = [line for line in dumped[0] if name in line]
    if internal == "__consumer_offsets":
        assert any('"type":"1"' in line and '"offset":1' in line for line in mine), mine
        assert any('"type":"2"' in line for line in mine), mine
    else:
        states = [state for line in mine for state in re.findall(r"state=(\w+)", line)]
        assert states[0] == "Empty"
        assert states[-2:] == ["PrepareCommit", "CompleteCommit"]
    assert dumped[0] == dumped[1] == dumped[2]


def test_performance_tools(world: World, topic: str) -> None:
    count = 20_000
    produced = world.tools.run(
        "kafka-producer-perf-test", "--topic", topic, "--num-records", str(count), "--record-size", "100",
        "--throughput", "-1", "--producer-props", f"bootstrap.servers={world.bootstrap}", "acks=all",
    )  # fmt: skip
    assert re.search(rf"^{count} records sent, [\d.]+ records/sec", produced.out, re.MULTILINE), produced
    consumed = world.tools.run(
        "kafka-consumer-perf-test", "--bootstrap-server", world.bootstrap, "--topic", topic, "--messages", str(count),
        "--group", f"{topic}-perf", "--timeout", "60000",
    )  # fmt: skip
    titles, figures = (line.split(", ") for line in consumed.out.strip().splitlines()[-2:])
    assert dict(zip(titles, figures, strict=True))["data.consumed.in.nMsg"] == str(count), consumed
    latency = world.tools.run("kafka-e2e-latency", world.bootstrap, topic, "100", "all", "100")
    assert re.search(r"^Avg latency: [\d.]+ ms", latency.out, re.MULTILINE), latency


def test_an_application_is_reset(world: World, topic: str) -> None:
    """The topics that Streams keeps for an application go, and its input is read from the start again."""
    name = f"{topic}-app"
    changelog = f"{name}-counts-changelog"
    world.create(changelog, [1, 2, 3])
    world.send(topic, 0, 10)
    with confluent.assigned(world.bootstrap, topic, group_id=name) as consumer:
        consumer.commit(offsets=[ConfluentPartition(topic, 0, 7)], asynchronous=False)
    reset = ("--application-id", name, "--input-topics", topic)
    said = world.ask("kafka-streams-application-reset", *reset)
    assert said.endswith("exit code 0"), said
    assert f"Topic: {topic} Partition: 0 Offset: 0" in said
    assert changelog in said
    world.await_deletion(changelog)


def test_versions_and_features(world: World) -> None:
    """Versions are each broker's own; in a cluster with Kafka's no features are finalised."""
    said = world.ask("kafka-broker-api-versions")
    of_brokers = dict(re.findall(r"^broker-(\d) \(id: \d rack: null\) -> \(\n(.*?)^\)", said, re.MULTILINE | re.DOTALL))
    assert sorted(of_brokers) == ["1", "2", "3"]
    for listed in of_brokers.values():
        for usable in ("Produce(0): 0 to 1", "Fetch(1): 0 to 1", "Metadata(3): 0 to 1"):
            assert usable in listed
        assert "[usable: 17]" in listed.split("Fetch(1)")[1].splitlines()[0]
    features = world.ask("kafka-features", "describe")
    finalised = re.findall(r"^Feature: (\S+)\t.*FinalizedVersionLevel: (\S+)\t", features, re.MULTILINE)
    expected = [("group.version", "1"), ("transaction.version", "2")] if world.is_ours else []
    assert [each for each in finalised if each[1] != "0"] == expected, features
