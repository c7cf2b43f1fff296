"""Apache Kafka in ZooKeeper mode and our brokers in one cluster: each kind in turn is the controller of both.

Kafka 3.9 is the one that znodes are compared with; 3.4 and 2.8, which speak their own versions, are for long runs.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer as ConfluentConsumer
from confluent_kafka.admin import NewTopic
from tools.peers.kafka import VERSION, VERSION_2_8, VERSION_3_4, run_tool

from braidlog import Consumer, Producer
from braidlog.client.admin import Admin
from braidlog.client.admin.topics import NewPartitions
from braidlog.local_cluster.zookeeper import ZooKeeper
from braidlog.testing import ClusterBroker
from braidlog.wire.generated.api_versions import ApiVersionsRequest, ApiVersionsResponse
from braidlog.wire.generated.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from braidlog.wire.generated.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from braidlog.wire.generated.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from support import confluent
from support.broker import BRAIDLOG, KAFKA
from support.cluster import start_cluster
from support.eventually import eventually
from support.mixed_cluster import (
    KAFKA_ID,
    KNOWN_WITHIN_S,
    KafkaMember,
    MixedCluster,
    Znode,
    kind_of,
    read_node,
    read_tree,
    start_mixed_cluster,
    zookeeper_client,
)
from support.raw import as_plain, ask

pytestmark = [pytest.mark.peer, pytest.mark.usefixtures("apache_kafka"), pytest.mark.timeout(900)]

# One replica each: the first two on ours, the third on Kafka.
ON_ALL = [[0], [1], [KAFKA_ID]]
LEADERS = (0, 1, KAFKA_ID)
SET, DELETE, OF_TOPIC = 0, 1, 2
_numbers = itertools.count(1)


@pytest.fixture(
    scope="module",
    params=[
        VERSION,
        pytest.param(VERSION_3_4, marks=pytest.mark.long),
        pytest.param(VERSION_2_8, marks=pytest.mark.long),
    ],
)
def version(request: pytest.FixtureRequest) -> str:
    """Of Kafka."""
    return str(request.param)


@pytest.fixture(scope="module")
def cluster(
    version: str,
    kafka_libs_of: Callable[[str], Path],
    zookeeper: ZooKeeper,
    new_connect: Callable[[], str],
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[MixedCluster]:
    place = tmp_path_factory.mktemp("mixed")
    with start_mixed_cluster(zookeeper, place, new_connect(), libs=kafka_libs_of(version)) as running:
        yield running


@pytest.fixture(scope="module", params=[KAFKA, BRAIDLOG])
def controller(cluster: MixedCluster, request: pytest.FixtureRequest) -> str:
    """The kind of the controller, which the other kind obeys."""
    cluster.hand_over_to(request.param, lambda broker: broker.stop())
    return str(request.param)


@pytest.fixture
def topic(cluster: MixedCluster, controller: str) -> str:
    name = f"{controller}-{next(_numbers)}"
    create(cluster, name)
    return name


def create(cluster: MixedCluster, name: str, assignment: list[list[int]] = ON_ALL, **config: str) -> None:
    new = NewTopic(name, num_partitions=len(assignment), replica_assignment=assignment, config=config)
    client = confluent.admin(cluster.bootstrap_servers)
    client.create_topics([new])[name].result(60)
    cluster.agreed(lambda view: view.leaders.get(name) == tuple(replicas[0] for replicas in assignment))


def send_to_all(cluster: MixedCluster, topic: str, name: str) -> None:
    """Half of the records by confluent-kafka, half by our producer, to every partition."""
    producer = confluent.producer(cluster.bootstrap_servers)
    for partition in range(3):
        producer.produce(topic, f"{name} confluent {partition}", partition=partition)
    assert producer.flush(60) == 0
    with Producer(bootstrap_servers=cluster.bootstrap_servers) as ours:
        for partition in range(3):
            ours.send(topic, f"{name} ours {partition}".encode(), partition=partition)
        ours.flush()


def sent(*names: str) -> list[str]:
    return sorted(
        f"{name} {by} {partition}" for name in names for by in ("confluent", "ours") for partition in range(3)
    )


def read_by_confluent(cluster: MixedCluster, topic: str) -> list[str]:
    found = []
    for partition in range(3):
        found += [
            message.value().decode() for message in confluent.read_all(cluster.bootstrap_servers, topic, partition)
        ]
    return sorted(found)


def read_by_ours(cluster: MixedCluster, topic: str, group: str, count: int) -> list[str]:
    found: list[str] = []
    with Consumer(
        bootstrap_servers=cluster.bootstrap_servers, group_id=group, auto_offset_reset="earliest"
    ) as consumer:
        consumer.subscribe([topic])

        def enough() -> bool:
            found.extend(record.value.decode() for record in consumer.poll(1.0))
            return len(found) >= count

        eventually(enough, 60)
        consumer.commit()
    return sorted(found)


def described(broker: ClusterBroker | KafkaMember) -> dict[str, Any]:
    """All that a broker says of the cluster."""
    answer = ask(broker.port, "Metadata", 11, MetadataRequest(topics=None, allow_auto_topic_creation=False))
    assert isinstance(answer, MetadataResponse)
    answer.brokers.sort(key=lambda each: each.node_id)
    answer.topics.sort(key=lambda each: str(each.name))
    for topic in answer.topics:
        topic.partitions.sort(key=lambda each: each.partition_index)
    plain = as_plain(answer)
    assert isinstance(plain, dict)
    return plain


def logs_of(cluster: MixedCluster, topic: str) -> list[str]:
    pattern = re.compile(rf"{re.escape(topic)}-\d+")
    return sorted(
        path.name for broker in cluster.brokers for path in broker.data_dir.iterdir() if pattern.fullmatch(path.name)
    )


def deleted(cluster: MixedCluster, topic: str) -> None:
    """Wait until it is gone: from metadata, from the directories, and last from the store."""
    cluster.agreed(lambda view: topic not in view.leaders)
    eventually(lambda: logs_of(cluster, topic) == [], KNOWN_WITHIN_S)
    with zookeeper_client(cluster.connect) as client:
        for path in (f"/brokers/topics/{topic}", f"/config/topics/{topic}", f"/admin/delete_topics/{topic}"):
            eventually(lambda path=path: client.exists(path) is None, KNOWN_WITHIN_S)  # type: ignore[misc]


def test_both_are_registered_and_nothing_is_finalised(cluster: MixedCluster, controller: str, version: str) -> None:
    cluster.agreed()
    with zookeeper_client(cluster.connect) as client:
        layout = 1 if version == VERSION_2_8 else 2
        assert read_node(client, "/feature").data == {"features": {}, "version": layout, "status": 1}
        assert client.get("/feature")[1].version == 0
        assert sorted(client.get_children("/brokers/ids")) == ["0", "1", str(KAFKA_ID)]
    for broker in cluster.brokers:
        answer = ask(
            broker.port, "ApiVersions", 3, ApiVersionsRequest(client_software_name="a", client_software_version="1")
        )
        assert isinstance(answer, ApiVersionsResponse)
        assert as_plain(answer.finalized_features) == []


def test_topics_are_led_by_both_and_all_say_the_same(cluster: MixedCluster, topic: str) -> None:
    send_to_all(cluster, topic, "first")
    assert read_by_confluent(cluster, topic) == sent("first")
    assert read_by_ours(cluster, topic, f"readers of {topic}", 6) == sent("first")
    cluster.agreed()
    first, *others = [described(broker) for broker in cluster.brokers]
    for other in others:
        assert other == first


def test_groups_are_coordinated_by_both(cluster: MixedCluster, topic: str) -> None:
    """The offsets topic has one partition on each broker."""
    send_to_all(cluster, topic, "grouped")
    admin = confluent.admin(cluster.bootstrap_servers)
    for number in range(3):
        group = f"{topic} group {number}"
        assert read_by_ours(cluster, topic, group, 6) == sent("grouped")
        consumer = ConfluentConsumer(
            {"bootstrap.servers": cluster.bootstrap_servers, "group.id": group, "auto.offset.reset": "earliest"}
        )
        consumer.close()
    assert {f"{topic} group {number}" for number in range(3)} <= {
        each.group_id for each in admin.list_consumer_groups().result(60).valid
    }
    leaders = cluster.agreed().leaders["__consumer_offsets"]
    assert KAFKA_ID in leaders
    assert min(leaders) < KAFKA_ID


def test_more_partitions_and_deletion(cluster: MixedCluster, topic: str) -> None:
    with Admin(bootstrap_servers=cluster.bootstrap_servers) as admin:
        admin.create_partitions({topic: NewPartitions(5, [[KAFKA_ID], [1]])})
        cluster.agreed(lambda view: view.leaders.get(topic) == (*LEADERS, KAFKA_ID, 1))
        producer = confluent.producer(cluster.bootstrap_servers)
        for partition in range(5):
            producer.produce(topic, str(partition), partition=partition)
        assert producer.flush(60) == 0
        assert len(logs_of(cluster, topic)) == 5
        admin.delete_topics([topic])
    deleted(cluster, topic)
    # A new one by this name is another topic.
    create(cluster, topic)
    send_to_all(cluster, topic, "again")
    assert read_by_confluent(cluster, topic) == sent("again")


def test_producer_ids_are_unique_over_both(cluster: MixedCluster, controller: str) -> None:
    ids = []
    for broker in [*cluster.brokers, *cluster.brokers]:
        request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1000)

        def given(port: int = broker.port, request: InitProducerIdRequest = request) -> bool:
            answer = ask(port, "InitProducerId", 2, request)
            assert isinstance(answer, InitProducerIdResponse)
            if answer.error_code == 0:
                ids.append(answer.producer_id)
            return answer.error_code == 0

        eventually(given, KNOWN_WITHIN_S)
    assert len(set(ids)) == len(ids)


def test_a_topic_is_created_on_first_use_by_either(cluster: MixedCluster, controller: str) -> None:
    for broker in cluster.brokers:
        name = f"first-use-{controller}-{broker.id}"
        wanted = MetadataRequest(topics=[MetadataRequestTopic(name=name)], allow_auto_topic_creation=True)
        ask(broker.port, "Metadata", 8, wanted)
        cluster.agreed(lambda view, name=name: min(view.leaders.get(name, (-1,))) >= 0)  # type: ignore[misc]


def test_a_transaction_spans_both(cluster: MixedCluster, topic: str) -> None:
    """Three coordinators, of both kinds, each write their markers to the leaders of both kinds."""
    for number in range(3):
        producer = confluent.producer(cluster.bootstrap_servers, transactional_id=f"{topic} transaction {number}")
        producer.init_transactions(60)
        for outcome in ("aborted", "committed"):
            producer.begin_transaction()
            for partition in range(3):
                producer.produce(topic, f"{outcome} {number}", partition=partition)
            if outcome == "aborted":
                assert producer.flush(60) == 0
                producer.abort_transaction(60)
            else:
                producer.commit_transaction(60)
    for partition in range(3):
        found = confluent.read_all(cluster.bootstrap_servers, topic, partition, isolation_level="read_committed")
        assert sorted(message.value().decode() for message in found) == [f"committed {each}" for each in range(3)]
    leaders = cluster.agreed().leaders["__transaction_state"]
    assert KAFKA_ID in leaders
    assert min(leaders) < KAFKA_ID


def tool(bootstrap: str, name: str, *arguments: str) -> str:
    done = run_tool(name, ["--bootstrap-server", bootstrap, *arguments])
    assert done.returncode == 0, f"{name} {' '.join(arguments)}\n{done.stdout}{done.stderr}"
    return done.stdout


def test_kafkas_own_tools(cluster: MixedCluster, controller: str) -> None:
    name = f"tools-{controller}"
    ours, kafka = cluster.ours[0].bootstrap_servers, cluster.kafka.bootstrap_servers
    assignment = ",".join(str(each[0]) for each in ON_ALL)
    tool(ours, "kafka-topics", "--create", "--topic", name, "--replica-assignment", assignment)
    cluster.agreed(lambda view: view.leaders.get(name) == LEADERS)
    told = [tool(bootstrap, "kafka-topics", "--describe", "--topic", name) for bootstrap in (ours, kafka)]
    leaders = [re.findall(r"Partition: (\d+)\tLeader: (\d+)\tReplicas: (\d+)\tIsr: (\d+)", text) for text in told]
    assert leaders[0] == leaders[1] == [(str(i), str(at), str(at), str(at)) for i, at in enumerate(LEADERS)]
    # Written by the broker that is asked, read by the other.
    of_topic = ("--entity-type", "topics", "--entity-name", name)
    for asked, other, value in ((ours, kafka, "600000"), (kafka, ours, "700000")):
        tool(asked, "kafka-configs", *of_topic, "--alter", "--add-config", f"retention.ms={value}")
        eventually(
            lambda other=other, value=value: (
                f"retention.ms={value}" in tool(other, "kafka-configs", *of_topic, "--describe")
            ),  # type: ignore[misc]
            KNOWN_WITHIN_S,
        )
    tool(kafka, "kafka-topics", "--alter", "--topic", name, "--partitions", "4")
    cluster.agreed(lambda view: len(view.leaders.get(name, ())) == 4)
    versions = tool(ours, "kafka-broker-api-versions")
    for broker in cluster.brokers:
        assert f"127.0.0.1:{broker.port} (id: {broker.id} " in versions
    tool(ours, "kafka-topics", "--delete", "--topic", name)
    deleted(cluster, name)


@pytest.mark.parametrize("end", ["stopped", "killed"])
def test_each_kind_takes_over_from_the_other(cluster: MixedCluster, end: str) -> None:
    name = f"taken-over-{end}"
    create(cluster, name)
    names = ["first"]
    send_to_all(cluster, name, "first")

    def finish(broker: ClusterBroker | KafkaMember) -> None:
        if end == "stopped":
            broker.stop()
        else:
            broker.kill()

    start = kind_of(cluster.controller())
    for kind in (KAFKA if start == BRAIDLOG else BRAIDLOG, start):
        with zookeeper_client(cluster.connect) as client:
            before = int(client.get("/controller_epoch")[0])
        cluster.hand_over_to(kind, finish)
        with zookeeper_client(cluster.connect) as client:
            assert int(client.get("/controller_epoch")[0]) > before
        cluster.agreed(lambda view: view.leaders.get(name) == LEADERS)
        names.append(kind)
        send_to_all(cluster, name, kind)
        assert read_by_confluent(cluster, name) == sent(*names)
        create(cluster, f"{name}-by-{kind}")
        first, *others = [described(broker) for broker in cluster.brokers]
        for other in others:
            assert other == first


def alter_config(broker: ClusterBroker | KafkaMember, topic: str, changes: dict[str, str | None]) -> None:
    """Asked of this very broker, which writes the nodes itself, whoever is the controller."""
    altered = [
        AlterableConfig(name=name, config_operation=SET if value is not None else DELETE, value=value)
        for name, value in changes.items()
    ]
    resource = AlterConfigsResource(resource_type=OF_TOPIC, resource_name=topic, configs=altered)
    answer = ask(broker.port, "IncrementalAlterConfigs", 1, IncrementalAlterConfigsRequest(resources=[resource]))
    assert isinstance(answer, IncrementalAlterConfigsResponse)
    assert answer.responses[0].error_code == 0, answer.responses[0].error_message


def written_by(cluster: MixedCluster, kind: str) -> dict[str, Znode]:
    """The nodes that the same actions leave under a controller of this kind, in comparable form."""
    cluster.hand_over_to(kind, lambda broker: broker.stop())
    controller = cluster.controller()
    other = cluster.kafka if kind == BRAIDLOG else cluster.ours[1]
    topic = f"compared-{kind}"
    at = f"/brokers/topics/{topic}"
    found: dict[str, Znode] = {}
    with zookeeper_client(cluster.connect) as client, Admin(bootstrap_servers=cluster.bootstrap_servers) as admin:

        def keep(action: str, path: str) -> None:
            found.update({f"{action}: {below or 'itself'}": node for below, node in read_tree(client, path).items()})

        notices = set(client.get_children("/config/changes"))
        epoch = int(client.get("/controller_epoch")[0])
        config = {"retention.ms": "600000", "cleanup.policy": "compact"}
        create(cluster, topic, [[controller.id], [other.id]], **config)
        keep("topic created", at)
        keep("config of a new topic", f"/config/topics/{topic}")
        admin.create_partitions({topic: NewPartitions(3, [[controller.id]])})
        cluster.agreed(lambda view: len(view.leaders.get(topic, ())) == 3)
        keep("more partitions", at)
        alter_config(controller, topic, {"retention.ms": "700000"})
        keep("config altered", f"/config/topics/{topic}")
        alter_config(controller, topic, {"retention.ms": None, "cleanup.policy": None})
        keep("config without overrides", f"/config/topics/{topic}")
        for number, notice in enumerate(sorted(set(client.get_children("/config/changes")) - notices)):
            keep(f"config change {number}", f"/config/changes/{notice}")
        # A replica that is down suspends a deletion, so that its node stays to be looked at.
        other.stop()
        cluster.agreed(lambda view: view.leaders.get(topic) == (controller.id, -1, controller.id))
        keep("broker down", at)
        admin.delete_topics([topic])
        keep("topic to be deleted", f"/admin/delete_topics/{topic}")
        other.start()
        deleted(cluster, topic)
        keep("controller", "/controller")
        keep("controller epoch", "/controller_epoch")
        keep("registration", f"/brokers/ids/{controller.id}")
    names = {controller.id: "controller", other.id: "other"}
    return {what: comparable(node, names, topic, controller.port, epoch) for what, node in found.items()}


def comparable(node: Znode, names: dict[int, str], topic: str, port: int, epoch: int) -> Znode:
    """With names for what is another number in each run; numbers of brokers are those in lists and of leaders."""

    def walk(key: str, value: Any) -> Any:
        if isinstance(value, dict):
            return {each: walk(each, item) for each, item in value.items()}
        if isinstance(value, list):
            return [names.get(item, item) if isinstance(item, int) else walk(key, item) for item in value]
        if key in ("leader", "brokerid"):
            return names.get(value, value)
        if key == "controller_epoch":
            return value - epoch
        if key == "timestamp":
            return "digits" if value.isdigit() else value
        if key == "topic_id":
            return f"{len(value)} characters"
        if isinstance(value, str):
            return value.replace(topic, "TOPIC").replace(str(port), "PORT")
        return "PORT" if value == port else value

    if node.data == epoch:
        # The node of the epoch is written once by each controller.
        return node._replace(data="epoch", version=node.version - epoch)
    return node._replace(data=walk("", node.data))


def test_znodes_are_as_kafka_writes_them(cluster: MixedCluster, version: str) -> None:
    if version != VERSION:
        pytest.skip("ours are as 3.9 writes them")
    theirs = written_by(cluster, KAFKA)
    ours = written_by(cluster, BRAIDLOG)
    registration = "registration: itself"
    # Of no effect, it tells the kinds apart.
    assert ours[registration].data.pop("features") == {"braidlog.version": {"min_version": 1, "max_version": 1}}
    assert theirs[registration].data.pop("features") == {}
    # Kafka writes its registration once more when it has started. Nobody looks at the version.
    theirs[registration] = theirs[registration]._replace(version=0)
    assert ours == theirs


def test_a_cluster_of_our_own_has_the_same_nodes(
    cluster: MixedCluster, version: str, zookeeper: ZooKeeper, new_connect: Callable[[], str], tmp_path: Path
) -> None:
    """Of those that are there before any topic is. Features are finalised in it, which keeps Kafka out."""
    if version != VERSION:
        pytest.skip("ours are as 3.9 writes them")
    by_use = re.compile(
        r"/(brokers/(ids|topics)|config/(topics|changes)|admin/delete_topics)/.+|/latest_producer_id_block"
    )
    changing = ("/controller", "/controller_epoch", "/cluster/id", "/brokers/seqid", "/feature")

    def standing(connect: str) -> dict[str, Any]:
        with zookeeper_client(connect) as client:
            tree = read_tree(client, "/")
        return {
            path: (None if path in changing else node.data, node.is_ephemeral, node.acl)
            for path, node in tree.items()
            if not by_use.fullmatch(path)
        }

    connect = new_connect()
    with start_cluster(zookeeper, tmp_path, 1, {"zookeeper.connect": connect}):
        assert standing(connect) == standing(cluster.connect)
