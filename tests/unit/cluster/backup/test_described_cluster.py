from __future__ import annotations

from pathlib import Path

import pytest

from braidlog.cluster import paths, records
from braidlog.cluster.backup.described_cluster import (
    EPOCHS_AHEAD,
    DescribedCluster,
    DescribedPartition,
    DescribedTopic,
    check_described,
    described_nodes,
)
from braidlog.cluster.backup.dump_contents import parent_of
from braidlog.cluster.backup.dump_file import check_dump
from braidlog.cluster.backup.dumping import dump_described
from braidlog.cluster.records import PartitionStateRecord, TopicRecord
from braidlog.core.errors import UserError

ID = bytes(range(16))
PARTITION = DescribedPartition(2, 7, (1, 2), (2, 1))
CLUSTER = DescribedCluster(
    "abcdefghijklmnopqrstuA",
    [DescribedTopic("orders", ID, [PARTITION, PARTITION._replace(leader=1)], {"retention.ms": "5"})],
    {"brokers/<default>": {"log.cleaner.threads": "2"}, "users/alice/clients/app": {"producer_byte_rate": "1.0"}},
    {"/kafka-acl/Topic/orders": b'{"version":1,"acls":[]}'},
    4321,
)


def test_every_node_comes_after_its_parent() -> None:
    seen = {"/"}
    for path, _ in described_nodes(CLUSTER):
        assert parent_of(path) in seen, path
        seen.add(path)
    assert {paths.BROKER_IDS, "/config/users/alice", "/kafka-acl"} <= seen


def test_topics_keep_what_they_are_and_leaders_begin_later() -> None:
    nodes = dict(described_nodes(CLUSTER))
    assert records.decode_topic("", nodes[paths.topic("orders")]) == TopicRecord(ID, ((1, 2), (1, 2)))
    assert records.decode_config("", nodes["/config/topics/orders"]) == {"retention.ms": "5"}
    state = records.decode_partition_state("", nodes[paths.partition_state("orders", 1)])
    assert state == PartitionStateRecord(1, 7 + EPOCHS_AHEAD, (2, 1), 1)
    assert records.decode_cluster_id("", nodes[paths.CLUSTER_ID]) == CLUSTER.cluster_id
    assert records.decode_config("", nodes["/config/brokers/<default>"]) == {"log.cleaner.threads": "2"}
    assert nodes["/kafka-acl/Topic/orders"] == b'{"version":1,"acls":[]}'


def test_producer_ids_that_were_given_out_are_not_given_again() -> None:
    block = records.decode_producer_id_block("", dict(described_nodes(CLUSTER))[paths.PRODUCER_ID_BLOCK])
    assert block.last == 4999
    assert dict(described_nodes(CLUSTER._replace(max_producer_id=-1)))[paths.PRODUCER_ID_BLOCK] == b""


@pytest.mark.parametrize("partition", [PARTITION._replace(in_sync=(2,)), PARTITION._replace(leader=None)])
def test_a_replica_that_is_behind_is_waited_for(partition: DescribedPartition) -> None:
    topic = CLUSTER.topics[0]._replace(partitions=[PARTITION, partition])
    with pytest.raises(UserError, match="orders-1 have replicas that are not in sync"):
        check_described(CLUSTER._replace(topics=[topic]))
    check_described(CLUSTER)


def test_a_dump_of_it_is_sound(tmp_path: Path) -> None:
    path = tmp_path / "dump"
    dumped = dump_described(CLUSTER, 3, path)
    with path.open("rb") as file:
        checked = check_dump(file, "dump")
    assert (checked.header.store, checked.cluster_id) == ("brokers", CLUSTER.cluster_id)
    assert (checked.contents.topics, checked.contents.partitions, checked.left_out.secrets) == (1, 2, 3)
    assert dumped.contents == checked.contents
