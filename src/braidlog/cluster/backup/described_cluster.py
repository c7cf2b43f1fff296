"""A cluster as its brokers describe it to clients, as the nodes that it would have in a coordination store.

So a cluster without ZooKeeper gets a tree of its own, to be put back where brokers are to go on with its data
directories. Its topics keep their ids, replicas and settings.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from braidlog.cluster import paths, records
from braidlog.cluster.backup.dump_contents import parent_of
from braidlog.cluster.image import topic_entity
from braidlog.cluster.records import PRODUCER_ID_BLOCK_SIZE, PartitionStateRecord, ProducerIdBlock, TopicRecord
from braidlog.core.errors import UserError

# What leaders begin with after those that the brokers themselves elect until they have stopped: a leader whose epoch
# its followers' logs are ahead of could not tell them where these part.
EPOCHS_AHEAD: Final = 1000
_NOBODY: Final = -1
_FIRST_CONTROLLER_EPOCH: Final = 1


class DescribedPartition(NamedTuple):
    leader: int | None
    leader_epoch: int
    replicas: tuple[int, ...]
    in_sync: tuple[int, ...]


class DescribedTopic(NamedTuple):
    name: str
    topic_id: bytes
    partitions: Sequence[DescribedPartition]
    configs: Mapping[str, str]


class DescribedCluster(NamedTuple):
    cluster_id: str
    topics: Sequence[DescribedTopic]
    # By path below /config, `brokers/1` or `users/U`: what was changed at run time, and quotas.
    overrides: Mapping[str, Mapping[str, str]]
    # By path.
    acls: Mapping[str, bytes]
    # The largest that a log knows of; -1 without any.
    max_producer_id: int


def check_described(cluster: DescribedCluster) -> None:
    """UserError unless every replica has all that its partition has: nobody could tell later which of them does."""
    behind = [
        f"{topic.name}-{index}"
        for topic in cluster.topics
        for index, partition in enumerate(topic.partitions)
        if partition.leader is None or set(partition.in_sync) != set(partition.replicas)
    ]
    if behind:
        more = f" and {len(behind) - 5} more" if len(behind) > 5 else ""
        raise UserError(
            f"{', '.join(behind[:5])}{more} have replicas that are not in sync: wait until all of them are, or finish "
            "the reassignment, and take the dump then"
        )


def described_nodes(cluster: DescribedCluster) -> Iterator[tuple[str, bytes]]:
    """Path and data, parents first, siblings by name."""
    nodes = dict.fromkeys(paths.PERSISTENT_PATHS, b"")
    nodes[paths.CLUSTER_ID] = records.encode_cluster_id(cluster.cluster_id)
    for topic in cluster.topics:
        record = TopicRecord(topic.topic_id, tuple(each.replicas for each in topic.partitions))
        nodes[paths.topic(topic.name)] = records.encode_topic(record)
        nodes[paths.config(topic_entity(topic.name))] = records.encode_config(topic.configs)
        for index, each in enumerate(topic.partitions):
            leader = _NOBODY if each.leader is None else each.leader
            epoch = each.leader_epoch + EPOCHS_AHEAD
            state = PartitionStateRecord(leader, epoch, each.in_sync, _FIRST_CONTROLLER_EPOCH)
            nodes[paths.partition_state(topic.name, index)] = records.encode_partition_state(state)
    for entity, overrides in cluster.overrides.items():
        nodes[paths.config(entity)] = records.encode_config(overrides)
    nodes.update(cluster.acls)
    if cluster.max_producer_id >= 0:
        first = cluster.max_producer_id // PRODUCER_ID_BLOCK_SIZE * PRODUCER_ID_BLOCK_SIZE
        block = ProducerIdBlock(_NOBODY, first, first + PRODUCER_ID_BLOCK_SIZE - 1)
        nodes[paths.PRODUCER_ID_BLOCK] = records.encode_producer_id_block(block)
    for path in list(nodes):
        while (path := parent_of(path)) != "/":
            nodes.setdefault(path, b"")
    for path in sorted(nodes, key=lambda path: path.split("/")):
        yield path, nodes[path]
