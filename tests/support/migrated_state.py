"""What a cluster holds that is to outlive a change of all its brokers, beside the topics that are written meanwhile."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer
from confluent_kafka import TopicPartition as ConfluentPartition
from confluent_kafka.admin import NewTopic

from braidlog import Admin, TopicPartition
from braidlog.client.admin.configs import ConfigResource, ConfigSource
from braidlog.client.admin.groups import GroupState
from braidlog.client.admin.quotas import DEFAULT, QuotaEntity
from braidlog.client.admin.scram import ScramMechanism, ScramUpsertion
from braidlog.security.acls import Acl, AclOperation, AclResourceType, PatternType, Permission
from support import confluent
from support.eventually import eventually
from support.migrating_cluster import IDS, SCRAM, MigratingBroker, MigratingCluster
from support.samples import Sample, plain_samples

USER: Final = "alice"
PASSWORD: Final = "of alice"
GROUP: Final = "billing"
STATIC_GROUP: Final = "with static members"
GUARDED: Final = "guarded"
MOVING: Final = TopicPartition("moving", 0)
OPEN: Final = "in-a-transaction"
# The format that the records of a topic have on disk: a setting of Kafka with an older inter.broker.protocol.version.
OLD_FORMATS: Final = {"old-v0": ("0.9.0", 0), "old-v1": ("0.10.2", 1)}
# With which Kafka writes them, and without which it would not any more.
OLD_SETTINGS: Final = {"inter.broker.protocol.version": "2.8"}
NEW_SETTINGS: Final = {"inter.broker.protocol.version": "3.9"}
_MOVING_RECORDS: Final = 3000
_DYNAMIC: Final = (
    ConfigSource.DYNAMIC_TOPIC, ConfigSource.DYNAMIC_BROKER, ConfigSource.DYNAMIC_DEFAULT_BROKER,
)  # fmt: skip
ACLS: Final = (
    Acl(AclResourceType.TOPIC, GUARDED, f"User:{USER}", AclOperation.READ),
    Acl(AclResourceType.GROUP, "b", f"User:{USER}", AclOperation.READ, pattern_type=PatternType.PREFIXED),
    Acl(AclResourceType.TOPIC, "*", "User:eve", AclOperation.ALL, Permission.DENY),
)
QUOTAS: Final = {
    QuotaEntity(user=USER): {"producer_byte_rate": 1048576.0},
    QuotaEntity(client_id=DEFAULT): {"request_percentage": 150.0},
    QuotaEntity(user=USER, client_id="import"): {"consumer_byte_rate": 2097152.0},
    QuotaEntity(ip="127.0.0.2"): {"connection_creation_rate": 100.0},
}
CONFIGS: Final = {
    ConfigResource.all_brokers(): {"message.max.bytes": "1500000"},
    ConfigResource.broker(2): {"num.replica.fetchers": "2"},
    ConfigResource.topic(GUARDED): {"retention.ms": "123456789"},
}


@dataclass(frozen=True, slots=True)
class Record:
    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: object


def create(cluster: MigratingCluster, topics: Iterable[NewTopic]) -> None:
    new = list(topics)
    client = confluent.admin(cluster.bootstrap_servers)
    for created in client.create_topics(new).values():
        created.result(60)
    cluster.agreed(lambda view: all(min(view.leaders.get(each.topic, (-1,))) >= 0 for each in new))


def write_old_formats(cluster: MigratingCluster) -> None:
    """By brokers with OLD_SETTINGS."""
    create(
        cluster,
        (
            NewTopic(topic, 1, 3, config={"message.format.version": version})
            for topic, (version, _) in OLD_FORMATS.items()
        ),
    )
    for topic in OLD_FORMATS:
        for codec in ("none", "gzip", "lz4"):
            sender = confluent.producer(cluster.bootstrap_servers, compression_type=codec)
            confluent.send(sender, topic, plain_samples(40))


def magic_of(path: Path) -> set[int]:
    """The formats of the batches, or message sets, of a segment."""
    content = path.read_bytes()
    found, position = set(), 0
    while position + 17 <= len(content):
        found.add(content[position + 16])
        position += 12 + int.from_bytes(content[position + 8 : position + 12], "big")
    return found


class StaticMembers:
    """Two of a group: one stays, and one is away while a broker is replaced, without a rebalance."""

    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = bootstrap
        self._rebalances = 0
        self._stays = self._member("stays")
        self._leaves: Consumer | None = self._member("leaves")
        eventually(self._are_stable)
        self._rebalances = 0

    def _member(self, name: str) -> Consumer:
        consumer = Consumer(
            {
                "bootstrap.servers": self._bootstrap,
                "group.id": STATIC_GROUP,
                "group.instance.id": name,
                "session.timeout.ms": 600_000,
                "max.poll.interval.ms": 900_000,
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
                "log_level": 2,
            }
        )
        on_assign = self._noted if name == "stays" else None
        consumer.subscribe([GUARDED], **({"on_assign": on_assign, "on_revoke": on_assign} if on_assign else {}))
        return consumer

    def _noted(self, consumer: Consumer, partitions: list[ConfluentPartition]) -> None:
        self._rebalances += 1

    def _are_stable(self) -> bool:
        """Both have a partition each, and know it."""
        members = [each for each in (self._stays, self._leaves) if each is not None]
        for member in members:
            member.poll(0.1)
        return all(len(member.assignment()) == 1 for member in members)

    def away(self) -> None:
        assert self._leaves is not None
        self._leaves.close()
        self._leaves = None

    def back(self) -> None:
        self._leaves = self._member("leaves")
        eventually(self._are_stable)
        assert self._rebalances == 0, "the group has been rebalanced"
        with Admin(bootstrap_servers=self._bootstrap) as admin:
            (group,) = admin.describe_groups([STATIC_GROUP]).succeeded.values()
        assert group.state is GroupState.STABLE
        assert sorted(str(each.instance_id) for each in group.members) == ["leaves", "stays"]

    def close(self) -> None:
        for member in (self._stays, self._leaves):
            if member is not None:
                member.close()


class OpenTransaction:
    """One that is open while brokers are replaced: nobody reads its records before it is committed."""

    def __init__(self, bootstrap: str, number: int) -> None:
        self._bootstrap = bootstrap
        self._values = [f"transaction {number}, record {each}".encode() for each in range(4)]
        self._producer: Producer = confluent.producer(
            bootstrap, transactional_id=f"open-{number}", transaction_timeout_ms=900_000, log_level=2
        )
        self._producer.init_transactions(60)
        self._producer.begin_transaction()
        self._send(self._values[:2])

    def _send(self, values: list[bytes]) -> None:
        for value in values:
            self._producer.produce(OPEN, value, partition=0)
        assert self._producer.flush(60) == 0

    def _committed(self) -> list[bytes | None]:
        found = confluent.read_all(self._bootstrap, OPEN, isolation_level="read_committed")
        return [message.value() for message in found if message.value() in self._values]

    def check_open(self) -> None:
        assert self._committed() == []
        found = confluent.read_all(self._bootstrap, OPEN, isolation_level="read_uncommitted")
        assert {message.value() for message in found} >= set(self._values[:2])

    def commit(self) -> None:
        self._send(self._values[2:])
        self._producer.commit_transaction(60)
        eventually(lambda: self._committed() == self._values)


class ClusterState:
    """Topics, groups, users, rules of access, quotas and configs, and whether all of it is as it was."""

    def __init__(self, cluster: MigratingCluster, lone_replica: int | None = None) -> None:
        """With a topic of one replica on that broker, if there is to be one."""
        self.cluster = cluster
        self._fixed = [*OLD_FORMATS, GUARDED, MOVING.topic]
        create(
            cluster,
            [
                NewTopic(GUARDED, 2, 3),
                NewTopic(OPEN, 1, 3),
                NewTopic(MOVING.topic, 1, replica_assignment=[[1, 2]], config={"min.insync.replicas": "1"}),
            ],
        )
        if lone_replica is not None:
            self._fixed.append("of-one-replica")
            config = {"min.insync.replicas": "1"}
            create(cluster, [NewTopic("of-one-replica", 1, replica_assignment=[[lone_replica]], config=config)])
            confluent.send(confluent.producer(cluster.bootstrap_servers), "of-one-replica", plain_samples(50))
        sender = confluent.producer(cluster.bootstrap_servers, compression_type="zstd", batch_size=8192)
        confluent.send(sender, GUARDED, plain_samples(50))
        confluent.send(sender, GUARDED, plain_samples(50), partition=1)
        # What does not shrink when it is compressed.
        sender = confluent.producer(cluster.bootstrap_servers, batch_size=8192)
        confluent.send(sender, MOVING.topic, (Sample(None, b"%d" % number * 150) for number in range(_MOVING_RECORDS)))
        with self._admin() as admin:
            admin.alter_scram_users([ScramUpsertion(USER, PASSWORD, ScramMechanism.SCRAM_SHA_512)]).raise_for_errors()
            admin.create_acls(ACLS).raise_for_errors()
            admin.alter_client_quotas(QUOTAS).raise_for_errors()
            admin.alter_configs(CONFIGS).raise_for_errors()
        self._commit_offsets()
        self.before = self.records()

    def _admin(self, broker: MigratingBroker | None = None) -> Admin:
        return Admin(bootstrap_servers=(broker or self.cluster).bootstrap_servers)

    def _commit_offsets(self) -> None:
        with confluent.assigned(self.cluster.bootstrap_servers, GUARDED, group_id=GROUP) as consumer:
            offsets = [ConfluentPartition(GUARDED, 0, 17, metadata="a note"), ConfluentPartition(GUARDED, 1, 5)]

            def committed() -> bool:
                try:
                    consumer.commit(offsets=offsets, asynchronous=False)
                except KafkaException as refusal:
                    if not refusal.args[0].retriable():
                        raise
                    return False
                return True

            eventually(committed)

    def records(self) -> dict[str, list[Record]]:
        """Of the topics that nobody writes any more."""
        found: dict[str, list[Record]] = {}
        for topic in self._fixed:
            for partition in range(2 if topic == GUARDED else 1):
                found[f"{topic}-{partition}"] = [
                    Record(int(each.offset() or 0), each.timestamp()[1], each.key(), each.value(), each.headers())
                    for each in confluent.read_all(self.cluster.bootstrap_servers, topic, partition)
                ]
        return found

    def facts(self, broker: MigratingBroker) -> dict[str, Any]:
        """What this broker says of the cluster, as far as it has to stay."""
        with self._admin(broker) as admin:
            topics = admin.describe_topics().succeeded
            resources = [*CONFIGS, *(ConfigResource.broker(each) for each in IDS if each != 2)]
            up = {each.id for each in self.cluster.running}
            asked = [*(ConfigResource.topic(name) for name in topics)]
            asked += [each for each in resources if not each.name or (each.name.isdigit() and int(each.name) in up)]
            configs = admin.describe_configs(asked).raise_for_errors().succeeded
            (offsets,) = admin.list_group_offsets([GROUP]).succeeded.values()
            return {
                "cluster id": admin.describe_cluster().cluster_id,
                "topic ids": {name: each.topic_id for name, each in topics.items()},
                "partitions": {name: len(each.partitions) for name, each in topics.items()},
                "configs": {
                    str(resource): {name: entry.value for name, entry in entries.items() if entry.source in _DYNAMIC}
                    for resource, entries in configs.items()
                },
                "offsets": {place: (each.offset, each.metadata) for place, each in offsets.items()},
                "acls": admin.describe_acls(),
                "users": admin.describe_scram_users().succeeded,
                "quotas": admin.describe_client_quotas(),
            }

    def check_logins(self, broker: MigratingBroker) -> None:
        """The user is let in there, may read the one topic, and may not write it."""
        login = {
            "security_protocol": "SASL_PLAINTEXT",
            "sasl_mechanism": SCRAM,
            "sasl_username": USER,
            "sasl_password": PASSWORD,
        }
        at = f"127.0.0.1:{broker.clients_port}"
        assert len(confluent.read_all(at, GUARDED, group_id="b", **login)) == 50
        with_errors: list[KafkaError | None] = []
        producer = confluent.producer(at, **login)
        producer.produce(GUARDED, b"refused", on_delivery=lambda error, _: with_errors.append(error))
        assert producer.flush(60) == 0
        assert [error.code() for error in with_errors if error] == [KafkaError.TOPIC_AUTHORIZATION_FAILED]

    def formats(self, broker: MigratingBroker) -> dict[str, set[int]]:
        """Of the topics in old formats, as they lie on its disk."""
        return {
            topic: set().union(*(magic_of(path) for path in (broker.data_dir / f"{topic}-0").glob("*.log")))
            for topic in OLD_FORMATS
        }
