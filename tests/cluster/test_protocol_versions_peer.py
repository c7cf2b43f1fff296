"""Which versions brokers of Kafka and ours send each other, by inter.broker.protocol.version: recorded on the wire.

Each broker advertises a proxy, through which all others reach it. The table in docs/MIGRATING.md is what was seen.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import pytest
from confluent_kafka import TopicPartition as ConfluentPartition
from confluent_kafka.admin import NewTopic
from tools.capture import Recorder

from braidlog.cluster.inter_broker_protocol import NOT_SENT, newest_versions
from braidlog.local_cluster.zookeeper import ZooKeeper
from braidlog.wire.generated.api_keys import ApiKey
from braidlog.wire.generated.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from support import confluent
from support.broker import BRAIDLOG, KAFKA
from support.eventually import eventually
from support.mixed_cluster import KAFKA_ID, Member, MixedCluster, kind_of
from support.mixed_replication import REPLICATED_SETTINGS
from support.raw import ask

pytestmark = [
    pytest.mark.peer,
    pytest.mark.long,
    pytest.mark.usefixtures("apache_kafka"),
    pytest.mark.timeout(900),
]

DOCUMENT: Final = Path(__file__).parents[2] / "docs" / "MIGRATING.md"
VERSIONS: Final = ("2.8", "3.0", "3.1", "3.2", "3.3", "3.4", "3.5", "3.6", "3.7", "3.8", "3.9")
# In the order of the columns.
BETWEEN_BROKERS: Final = (
    ApiKey.FETCH, ApiKey.LIST_OFFSETS, ApiKey.LEADER_AND_ISR, ApiKey.UPDATE_METADATA, ApiKey.STOP_REPLICA,
    ApiKey.ALTER_PARTITION, ApiKey.CONTROLLED_SHUTDOWN, ApiKey.ALLOCATE_PRODUCER_IDS, ApiKey.WRITE_TXN_MARKERS,
    ApiKey.ADD_PARTITIONS_TO_TXN,
)  # fmt: skip
# What a client may send, too: a broker is told by its client id.
ALSO_OF_CLIENTS: Final = (ApiKey.FETCH, ApiKey.LIST_OFFSETS, ApiKey.ADD_PARTITIONS_TO_TXN)
TOPIC: Final = "recorded"


class Wire:
    """What reached each kind of broker from the other."""

    def __init__(self) -> None:
        self.recorders: dict[str, Recorder] = {}

    def seen(self, sender: str) -> dict[ApiKey, set[int]]:
        """By api the versions that brokers of this kind have sent to the other."""
        versions: dict[ApiKey, set[int]] = {}
        for exchange in list(self.recorders[KAFKA if sender == BRAIDLOG else BRAIDLOG].exchanges):
            key, version = exchange.api
            if key not in BETWEEN_BROKERS or (key in ALSO_OF_CLIENTS and not is_of_a_broker(exchange.request)):
                continue
            versions.setdefault(ApiKey(key), set()).add(version)
        return versions

    def row(self, sender: str) -> list[str]:
        seen = self.seen(sender)
        return ["/".join(map(str, sorted(seen[api]))) if api in seen else "-" for api in BETWEEN_BROKERS]


def is_of_a_broker(request: bytes) -> bool:
    """`broker-10-fetcher-0` and `AddPartitionsToTxnSenderThread-10` are Kafka's names, `broker-0-fetch` is ours."""
    (length,) = struct.unpack_from(">h", request, 8)
    client_id = request[10 : 10 + max(length, 0)].decode()
    return client_id.startswith(("broker-", "AddPartitionsToTxn"))


@contextmanager
def recorded_cluster(
    zookeeper: ZooKeeper, place: Path, connect: str, version: str
) -> Iterator[tuple[MixedCluster, Wire]]:
    """One broker of each kind, with this inter.broker.protocol.version."""
    settings = {
        **REPLICATED_SETTINGS,
        **dict.fromkeys(
            (
                "default.replication.factor",
                "offsets.topic.replication.factor",
                "transaction.state.log.replication.factor",
            ),
            "2",
        ),
        "min.insync.replicas": "1",
        "transaction.state.log.min.isr": "1",
        "inter.broker.protocol.version": version,
    }
    cluster = MixedCluster(zookeeper, place, connect, settings)
    # One of ours is enough.
    del cluster.ours[1:]
    wire = Wire()
    try:
        for broker in cluster.brokers:
            recorder = wire.recorders[kind_of(broker)] = Recorder(broker.port)
            broker.settings["advertised.listeners"] = f"PLAINTEXT://127.0.0.1:{recorder.port}"
        cluster.kafka.start()
        cluster.ours[0].start()
        yield cluster, wire
    finally:
        cluster.end()
        for recorder in wire.recorders.values():
            recorder.close()


def send(cluster: MixedCluster, partitions: int = 2) -> None:
    producer = confluent.producer(cluster.bootstrap_servers)
    for partition in range(partitions):
        producer.produce(TOPIC, b"value", partition=partition)
    assert producer.flush(60) == 0


def in_sync(cluster: MixedCluster) -> bool:
    topics = confluent.admin(cluster.bootstrap_servers).list_topics(timeout=30).topics
    return all(len(each.isrs) == 2 for topic in topics.values() for each in topic.partitions.values())


def use_all(cluster: MixedCluster) -> None:
    """Everything for which brokers talk to each other, with each kind in each role."""
    client = confluent.admin(cluster.bootstrap_servers)
    both = [[0, KAFKA_ID], [KAFKA_ID, 0]]
    client.create_topics([NewTopic(TOPIC, 2, replica_assignment=both)])[TOPIC].result(60)
    cluster.agreed(lambda view: view.leaders.get(TOPIC) == (0, KAFKA_ID))
    send(cluster)
    for number in range(6):
        producer = confluent.producer(cluster.bootstrap_servers, transactional_id=f"id {number}")
        producer.init_transactions(60)
        producer.begin_transaction()
        for partition in range(2):
            producer.produce(TOPIC, b"in a transaction", partition=partition)
        producer.commit_transaction(60)
    for kind in (KAFKA, BRAIDLOG, KAFKA):
        cluster.hand_over_to(kind, comes_back_behind(cluster))
        eventually(lambda: in_sync(cluster), 60)
        for broker in cluster.brokers:
            eventually(lambda port=broker.port: gets_producer_id(port), 60)  # type: ignore[misc]
        # A new one: connections of the first ended with the broker that was stopped.
        client = confluent.admin(cluster.bootstrap_servers)
        name = f"deleted-{kind}"
        client.create_topics([NewTopic(name, 2, replica_assignment=both)])[name].result(60)
        cluster.agreed(lambda view, name=name: view.leaders.get(name) == (0, KAFKA_ID))  # type: ignore[misc]
        client.delete_topics([name])[name].result(60)
        cluster.agreed(lambda view, name=name: name not in view.leaders)  # type: ignore[misc]


def comes_back_behind(cluster: MixedCluster) -> Callable[[Member], None]:
    """Stop a broker; what it has missed is deleted meanwhile, so that it has to ask where the log begins."""

    def stop(broker: Member) -> None:
        broker.stop()
        send(cluster)
        client = confluent.admin(cluster.bootstrap_servers)
        ends = [ConfluentPartition(TOPIC, partition, -1) for partition in range(2)]
        for deleted in client.delete_records(ends).values():
            deleted.result(60)

    return stop


def gets_producer_id(port: int) -> bool:
    request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1000)
    answer = ask(port, "InitProducerId", 2, request)
    assert isinstance(answer, InitProducerIdResponse)
    return answer.error_code == 0


def documented(version: str, sender: str) -> list[str] | None:
    """The row of the table in the document; None where it has none yet."""
    start = f"| {version} | {sender} |"
    for line in DOCUMENT.read_text().splitlines():
        if line.startswith(start):
            return [cell.strip() for cell in line.removeprefix(start).strip(" |").split("|")]
    return None


@pytest.mark.parametrize("version", VERSIONS)
def test_what_brokers_send_each_other(
    version: str, zookeeper: ZooKeeper, new_connect: Callable[[], str], tmp_path: Path
) -> None:
    with recorded_cluster(zookeeper, tmp_path, new_connect(), version) as (cluster, wire):
        use_all(cluster)
        rows = {sender: wire.row(sender) for sender in (KAFKA, BRAIDLOG)}
        seen = wire.seen(BRAIDLOG)
    for sender, row in rows.items():
        print(f"| {version} | {sender} | {' | '.join(row)} |")
    for api, newest in newest_versions(version).items():
        if ApiKey(api) in seen:
            assert max(seen[ApiKey(api)]) == newest, f"{ApiKey(api).name} in {seen}"
        else:
            assert newest == NOT_SENT or api not in BETWEEN_BROKERS or api == ApiKey.LIST_OFFSETS
    for sender, row in rows.items():
        assert documented(version, sender) in (row, None)
