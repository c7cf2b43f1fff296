"""Three broker processes on a real ZooKeeper, topics of one replica over all of them, and clients of every kind."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from confluent_kafka import Consumer as ConfluentConsumer
from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType
from kafka import KafkaConsumer
from kafka import KafkaProducer as KafkaPythonProducer
from kazoo.client import KazooClient

from braidlog import Consumer, Producer
from braidlog.controller.requests import ResourceType as ConfigKind
from braidlog.testing import Cluster
from braidlog.wire.generated.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResponse,
)
from braidlog.wire.generated.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from braidlog.wire.generated.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from braidlog.wire.generated.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from support import confluent
from support.cluster import agreed_view
from support.eventually import eventually
from support.raw import ask

# How soon all brokers know of a change, on a machine that is busy with other tests.
KNOWN_WITHIN_S = 60.0
RECORDS = 60


def create(cluster: Cluster, topic: str, partitions: int = 6) -> None:
    confluent.create_topic(cluster.bootstrap_servers, topic, partitions)
    agreed_view(cluster.brokers, lambda view: len(view.leaders.get(topic, ())) == partitions, KNOWN_WITHIN_S)


def values(name: str) -> list[bytes]:
    return [f"{name} {number}".encode() for number in range(RECORDS)]


def test_partitions_are_led_by_all_brokers_and_all_brokers_say_so(cluster: Cluster) -> None:
    create(cluster, "spread")
    view = agreed_view(cluster.brokers, lambda view: "spread" in view.leaders, KNOWN_WITHIN_S)
    assert view.brokers == {0, 1, 2}
    assert sorted(view.leaders["spread"]) == [0, 0, 1, 1, 2, 2]
    assert view.controller in view.brokers


def test_confluent_kafka(cluster: Cluster) -> None:
    create(cluster, "confluent")
    producer = confluent.producer(cluster.bootstrap_servers)
    for number, value in enumerate(values("confluent")):
        producer.produce("confluent", value, partition=number % 6)
    assert producer.flush(60) == 0
    consumer = ConfluentConsumer(
        {"bootstrap.servers": cluster.bootstrap_servers, "group.id": "confluent", "auto.offset.reset": "earliest"}
    )
    consumer.subscribe(["confluent"])
    found: list[bytes] = []

    def read() -> bool:
        message = consumer.poll(1.0)
        if message is not None and message.error() is None:
            found.append(message.value() or b"")
        return len(found) == RECORDS

    eventually(read, 60)
    consumer.close()
    assert sorted(found) == sorted(values("confluent"))


def test_kafka_python(cluster: Cluster) -> None:
    create(cluster, "kafka-python")
    producer = KafkaPythonProducer(bootstrap_servers=cluster.bootstrap_servers)
    for number, value in enumerate(values("kafka-python")):
        producer.send("kafka-python", value, partition=number % 6)
    producer.flush(60)
    producer.close()
    consumer = KafkaConsumer(
        "kafka-python",
        bootstrap_servers=cluster.bootstrap_servers,
        group_id="kafka-python",
        auto_offset_reset="earliest",
        consumer_timeout_ms=30_000,
    )
    found = [next(consumer).value for _ in range(RECORDS)]
    consumer.close()
    assert sorted(found) == sorted(values("kafka-python"))


def test_aiokafka(cluster: Cluster) -> None:
    create(cluster, "aiokafka")

    async def run() -> list[bytes]:
        producer = AIOKafkaProducer(bootstrap_servers=cluster.bootstrap_servers)
        await producer.start()
        for number, value in enumerate(values("aiokafka")):
            await producer.send("aiokafka", value, partition=number % 6)
        await producer.stop()
        consumer = AIOKafkaConsumer(
            "aiokafka", bootstrap_servers=cluster.bootstrap_servers, group_id="aiokafka", auto_offset_reset="earliest"
        )
        await consumer.start()
        async with asyncio.timeout(60):
            found = [(await consumer.getone()).value for _ in range(RECORDS)]
        await consumer.stop()
        return found

    assert sorted(asyncio.run(run())) == sorted(values("aiokafka"))


def test_our_client(cluster: Cluster) -> None:
    create(cluster, "ours")
    with Producer(bootstrap_servers=cluster.bootstrap_servers) as producer:
        for number, value in enumerate(values("ours")):
            producer.send("ours", value, partition=number % 6)
        producer.flush()
    found: list[bytes] = []
    with Consumer(
        bootstrap_servers=cluster.bootstrap_servers, group_id="ours", auto_offset_reset="earliest"
    ) as consumer:
        consumer.subscribe(["ours"])

        def read() -> bool:
            found.extend(record.value for record in consumer.poll(1.0))
            return len(found) >= RECORDS

        eventually(read, 60)
    assert sorted(found) == sorted(values("ours"))


def test_transactions_span_brokers(cluster: Cluster) -> None:
    create(cluster, "transactions")
    producer = confluent.producer(cluster.bootstrap_servers, transactional_id="spanning")
    producer.init_transactions(60)
    for name in ("committed", "aborted"):
        producer.begin_transaction()
        for partition in range(6):
            producer.produce("transactions", f"{name} {partition}", partition=partition)
        assert producer.flush(60) == 0
        if name == "committed":
            producer.commit_transaction(60)
        else:
            producer.abort_transaction(60)
    for partition in range(6):
        messages = confluent.read_all(
            cluster.bootstrap_servers, "transactions", partition, **{"isolation.level": "read_committed"}
        )
        assert [message.value() for message in messages] == [f"committed {partition}".encode()]


def test_a_topic_is_created_on_first_use_by_any_broker(cluster: Cluster) -> None:
    for broker in cluster.brokers:
        name = f"first-use-{broker.id}"
        wanted = MetadataRequest(topics=[MetadataRequestTopic(name=name)], allow_auto_topic_creation=True)

        def led(port: int = broker.port, wanted: MetadataRequest = wanted) -> bool:
            answer = ask(port, "Metadata", 8, wanted)
            assert isinstance(answer, MetadataResponse)
            return answer.topics[0].error_code == 0 and answer.topics[0].partitions[0].leader_id >= 0

        eventually(led, KNOWN_WITHIN_S)
        agreed_view(cluster.brokers, lambda view, name=name: name in view.leaders, KNOWN_WITHIN_S)  # type: ignore[misc]


def test_overrides_changed_at_any_broker_reach_all(cluster: Cluster) -> None:
    create(cluster, "overrides", 1)
    for number, broker in enumerate(cluster.brokers):
        value = str(60_000 + number)
        client = confluent.admin(broker.bootstrap_servers)
        entry = ConfigEntry("retention.ms", value, incremental_operation=AlterConfigOpType.SET)
        resource = ConfigResource(ResourceType.TOPIC, "overrides", incremental_configs=[entry])
        client.incremental_alter_configs([resource])[resource].result(30)
        for other in cluster.brokers:
            eventually(
                lambda port=other.port, value=value: (  # type: ignore[misc]
                    _described(port, ConfigKind.TOPIC, "overrides", "retention.ms") == value
                ),
                KNOWN_WITHIN_S,
            )


def _described(port: int, kind: ConfigKind, name: str, key: str) -> str | None:
    resource = DescribeConfigsResource(resource_type=kind, resource_name=name, configuration_keys=[key])
    answer = ask(port, "DescribeConfigs", 4, DescribeConfigsRequest(resources=[resource]))
    assert isinstance(answer, DescribeConfigsResponse)
    return next((each.value for each in answer.results[0].configs if each.name == key), None)


def _set(port: int, kind: ConfigKind, name: str, key: str, value: str | None) -> None:
    """None takes the override back."""
    change = AlterableConfig(name=key, config_operation=0 if value is not None else 1, value=value)
    resource = AlterConfigsResource(resource_type=kind, resource_name=name, configs=[change])
    answer = ask(port, "IncrementalAlterConfigs", 1, IncrementalAlterConfigsRequest(resources=[resource]))
    assert isinstance(answer, IncrementalAlterConfigsResponse)
    assert answer.responses[0].error_code == 0, answer.responses[0].error_message


def test_a_throttled_replica_list_changes_everywhere(cluster: Cluster) -> None:
    create(cluster, "throttled", 1)
    key = "leader.replication.throttled.replicas"
    for value in ("0:1,0:2", None):
        _set(cluster.brokers[1].port, ConfigKind.TOPIC, "throttled", key, value)
        for broker in cluster.brokers:
            eventually(
                lambda port=broker.port, value=value: (  # type: ignore[misc]
                    _described(port, ConfigKind.TOPIC, "throttled", key) == (value or "")
                ),
                KNOWN_WITHIN_S,
            )


def test_a_limit_of_connections_holds_on_every_broker_at_once(cluster: Cluster) -> None:
    most = 30
    key = "max.connections.per.ip"
    _set(cluster.brokers[0].port, ConfigKind.BROKER, "", key, str(most))
    try:
        for broker in cluster.brokers:
            name = str(broker.id)
            eventually(
                lambda port=broker.port, name=name: (  # type: ignore[misc]
                    _described(port, ConfigKind.BROKER, name, key) == str(most)
                ),
                KNOWN_WITHIN_S,
            )
            with ExitStack() as stack:
                opened = [
                    stack.enter_context(socket.create_connection(("127.0.0.1", broker.port))) for _ in range(most + 10)
                ]
                # Other brokers are connected from the same address.
                eventually(lambda opened=opened: sum(map(_is_closed, opened)) >= 10, KNOWN_WITHIN_S)  # type: ignore[misc]
    finally:
        eventually(lambda: _takes(cluster.brokers[0].port, key), KNOWN_WITHIN_S)


def _takes(port: int, key: str) -> bool:
    """Whether the limit could be taken back: the connections of the test are gone by then."""
    try:
        _set(port, ConfigKind.BROKER, "", key, None)
    except (OSError, AssertionError):
        return False
    return True


def _is_closed(connection: socket.socket) -> bool:
    connection.setblocking(False)
    try:
        return connection.recv(1) == b""
    except BlockingIOError:
        return False
    except ConnectionError:
        return True


def test_a_log_level_changes_while_the_broker_runs(cluster: Cluster) -> None:
    for broker in cluster.brokers:
        for level in ("DEBUG", "INFO"):
            _set(broker.port, ConfigKind.BROKER_LOGGER, str(broker.id), "braidlog.controller", level)
            found = _described(broker.port, ConfigKind.BROKER_LOGGER, str(broker.id), "braidlog.controller")
            assert found == level


def test_quotas_that_an_operator_writes_reach_every_broker_s_metadata(cluster: Cluster) -> None:
    """Written as Kafka's tools write them; what they limit comes with quotas, but no notification may do harm."""
    zookeeper = KazooClient(cluster.brokers[0].settings["zookeeper.connect"])
    zookeeper.start(30)
    try:
        for entity in ("users/alice", "users/alice/clients/app", "clients/app", "ips/192.0.2.7"):
            content = {"version": 1, "config": {"consumer_byte_rate": "1000000"}}
            zookeeper.create(f"/config/{entity}", json.dumps(content).encode(), makepath=True)
            change = {"version": 2, "entity_path": entity}
            zookeeper.create("/config/changes/config_change_", json.dumps(change).encode(), sequence=True)
    finally:
        zookeeper.stop()
        zookeeper.close()
    create(cluster, "after-quotas", 1)
    _set(cluster.brokers[2].port, ConfigKind.TOPIC, "after-quotas", "retention.ms", "70000")
    for broker in cluster.brokers:
        eventually(
            lambda port=broker.port: (  # type: ignore[misc]
                _described(port, ConfigKind.TOPIC, "after-quotas", "retention.ms") == "70000"
            ),
            KNOWN_WITHIN_S,
        )


def test_producer_ids_are_unique_over_brokers(cluster: Cluster) -> None:
    ids = []
    for _ in range(3):
        for broker in cluster.brokers:
            request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1000)
            answer = ask(broker.port, "InitProducerId", 2, request)
            assert isinstance(answer, InitProducerIdResponse)
            assert answer.error_code == 0
            ids.append(answer.producer_id)
    assert len(set(ids)) == len(ids)


def test_a_deleted_topic_is_gone_everywhere_and_can_be_made_again(cluster: Cluster) -> None:
    create(cluster, "short-lived")
    client = confluent.admin(cluster.bootstrap_servers)
    client.delete_topics(["short-lived"])["short-lived"].result(30)
    agreed_view(cluster.brokers, lambda view: "short-lived" not in view.leaders, KNOWN_WITHIN_S)

    def logs() -> list[str]:
        return [
            path.name for broker in cluster.brokers for path in broker.data_dir.glob("short-lived-?") if path.is_dir()
        ]

    eventually(lambda: logs() == [], KNOWN_WITHIN_S)
    create(cluster, "short-lived")
    assert len(logs()) == 6


def test_registrations_are_as_kafka_writes_them(cluster: Cluster) -> None:
    connect = cluster.brokers[0].settings["zookeeper.connect"]
    client = KazooClient(connect)
    client.start()
    try:
        registered: dict[str, Any] = {
            each: json.loads(client.get(f"/brokers/ids/{each}")[0]) for each in client.get_children("/brokers/ids")
        }
        assert sorted(registered) == ["0", "1", "2"]
        for broker in cluster.brokers:
            record = registered[str(broker.id)]
            assert record["version"] == 5
            assert record["endpoints"] == [f"PLAINTEXT://127.0.0.1:{broker.port}"]
            assert (record["host"], record["port"]) == ("127.0.0.1", broker.port)
            assert record["listener_security_protocol_map"] == {"PLAINTEXT": "PLAINTEXT"}
            assert record["features"] == {"braidlog.version": {"min_version": 1, "max_version": 1}}
        # An ensemble that is ours from the beginning.
        finalized = {"group.version": {"max_version_level": 1}, "transaction.version": {"max_version_level": 2}}
        assert json.loads(client.get("/feature")[0]) == {"version": 2, "status": 1, "features": finalized}
    finally:
        client.stop()
        client.close()


@pytest.fixture(autouse=True)
def brokers_live(cluster: Cluster) -> Iterator[None]:
    yield
    assert all(broker.is_running for broker in cluster.brokers)
