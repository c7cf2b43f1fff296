"""What a broker of ours tells of itself; tests/cluster/test_kraft_walk_peer.py asks Apache Kafka."""

from __future__ import annotations

from pathlib import Path

from braidlog import Admin, Producer
from braidlog.broker.authorization.acl_records import decode_acls
from braidlog.cli.described_cluster import ask_cluster
from braidlog.client.admin.configs import ConfigResource
from braidlog.client.admin.quotas import DEFAULT, QuotaEntity
from braidlog.client.admin.scram import ScramMechanism, ScramUpsertion
from braidlog.client.admin.topics import NewTopic
from braidlog.cluster.backup.described_cluster import DescribedPartition
from braidlog.security.acls import Acl, AclOperation, AclResourceType
from braidlog.testing import Broker

ACL = Acl(AclResourceType.TOPIC, "orders", "User:alice", AclOperation.READ)
SETTINGS = {
    "broker.id": "7",
    "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
    "super.users": "User:ANONYMOUS",
}


def test_all_that_brokers_tell(tmp_path: Path) -> None:
    with (
        Broker(settings=SETTINGS, data_dir=tmp_path / "data") as broker,
        Admin(bootstrap_servers=broker.bootstrap_servers) as admin,
    ):
        admin.create_topics([NewTopic("orders", partitions=2, config={"retention.ms": "5000"})]).raise_for_errors()
        admin.alter_configs(
            {
                ConfigResource.all_brokers(): {"log.cleaner.threads": "2"},
                ConfigResource.broker(7): {"log.cleaner.threads": "3"},
            }
        ).raise_for_errors()
        admin.alter_client_quotas(
            {
                QuotaEntity(user="a/b", client_id=DEFAULT): {"producer_byte_rate": 1e7},
                QuotaEntity(ip="10.0.0.1"): {"connection_creation_rate": 5.0},
            }
        ).raise_for_errors()
        admin.create_acls([ACL]).raise_for_errors()
        admin.alter_scram_users([ScramUpsertion("alice", "a secret", ScramMechanism.SCRAM_SHA_256)]).raise_for_errors()
        with Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
            producer.send("orders", b"value").result(30)
        told = ask_cluster(admin)
        (known,) = {
            each.producer_id
            for some in admin.describe_producers([("orders", 0), ("orders", 1)]).values()
            for each in some
        }
        topic_id = admin.describe_topics(["orders"])["orders"].topic_id

    cluster = told.cluster
    assert told.secrets == 1
    (orders,) = cluster.topics
    assert (orders.name, orders.topic_id, orders.configs) == ("orders", topic_id, {"retention.ms": "5000"})
    assert orders.partitions == [DescribedPartition(7, 0, (7,), (7,))] * 2
    assert cluster.overrides == {
        "brokers/7": {"log.cleaner.threads": "3"},
        "brokers/<default>": {"log.cleaner.threads": "2"},
        "users/a%2Fb/clients/<default>": {"producer_byte_rate": "10000000.0"},
        "ips/10.0.0.1": {"connection_creation_rate": "5.0"},
    }
    assert {path: decode_acls(ACL.pattern, data) for path, data in cluster.acls.items()} == {
        "/kafka-acl/Topic/orders": {ACL}
    }
    assert cluster.max_producer_id == known


def test_a_cluster_without_an_authorizer_has_no_rules(tmp_path: Path) -> None:
    with Broker(data_dir=tmp_path / "data") as broker, Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
        told = ask_cluster(admin)
    assert (told.cluster.topics, told.cluster.acls, told.cluster.max_producer_id) == ([], {}, -1)
