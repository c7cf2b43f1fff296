"""A topic whose logs were put into a broker's data directory: how the store comes to know it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final, NamedTuple

from braidlog.cluster import paths, records
from braidlog.cluster.backup.restoring import apply_whole
from braidlog.cluster.image import topic_entity
from braidlog.cluster.records import PRODUCER_ID_BLOCK_SIZE, PartitionStateRecord, ProducerIdBlock, TopicRecord
from braidlog.cluster.store import CoordinationStore, Create, NoNodeError, Operation, SetData
from braidlog.config.topic_names import collisions
from braidlog.core.errors import UserError
from braidlog.core.ids import random_id

_NOBODY: Final = -1


class StoredTopic(NamedTuple):
    configs: Mapping[str, str]
    partitions: int
    leader_epochs: Mapping[int, int]


class ImportedTopic(NamedTuple):
    """`leader_epochs[p]` is the newest that the log of partition p has; `max_producer_id` -1 without any."""

    name: str
    topic_id: bytes | None
    leader_epochs: Sequence[int]
    max_producer_id: int
    configs: Mapping[str, str]


async def stored_topic(store: CoordinationStore, name: str) -> StoredTopic | None:
    """None where the store has no such topic."""
    (topic, config) = await store.get_many([paths.topic(name), paths.config(topic_entity(name))])
    if topic is None:
        return None
    count = len(records.decode_topic(paths.topic(name), topic.data).partitions)
    at = [paths.partition_state(name, index) for index in range(count)]
    states = await store.get_many(at)
    epochs = {
        index: records.decode_partition_state(path, node.data).leader_epoch
        for index, (path, node) in enumerate(zip(at, states, strict=True))
        if node is not None
    }
    configs = {} if config is None else records.decode_config(paths.config(topic_entity(name)), config.data)
    return StoredTopic(configs, count, epochs)


async def check_new_topic(
    store: CoordinationStore,
    cluster_id: str,
    name: str,
    topic_id: bytes | None,
    new_id: Callable[[], bytes] = random_id,
) -> bytes:
    """The id that the topic gets: its own, unless the cluster has that. UserError where there can be no such topic."""
    try:
        found = records.decode_cluster_id(paths.CLUSTER_ID, (await store.get(paths.CLUSTER_ID)).data)
    except NoNodeError:
        raise UserError("the store has no cluster yet: start and stop its broker once") from None
    if found != cluster_id:
        raise UserError(f"the store is of cluster {found}, and the data directory of cluster {cluster_id}")
    try:
        brokers = await store.children(paths.BROKER_IDS)
        topics = await store.children(paths.TOPICS)
        deleted = await store.children(paths.DELETE_TOPICS)
    except NoNodeError as missing:
        raise UserError(f"{missing.path} is missing in the store: start and stop its broker once") from None
    if brokers:
        raise UserError(f"brokers {', '.join(brokers)} are registered: stop all of the cluster before a topic comes in")
    if name in topics:
        raise UserError(f"topic {name} exists: import it under another name (--as)")
    if name in deleted:
        raise UserError(f"topic {name} is still being deleted: start the cluster until it is gone")
    if others := collisions(name, topics):
        raise UserError(
            f"topic {name} collides with {others[0]}: metrics show '.' and '_' alike; import it --as another"
        )
    nodes = await store.get_many([paths.topic(each) for each in topics])
    known = {
        records.decode_topic(paths.topic(each), node.data).topic_id
        for each, node in zip(topics, nodes, strict=True)
        if node is not None
    }
    return topic_id if topic_id is not None and topic_id not in known else new_id()


async def register_topic(store: CoordinationStore, topic: ImportedTopic, broker_id: int) -> None:
    """Make it known, led by this broker alone, as one transaction.

    Its leader epochs go on after those in the log. Producer ids of the log are not given out again: its records would
    be taken for earlier ones of that producer.
    """
    assert topic.topic_id is not None
    name = topic.name
    (epoch, config, block) = await store.get_many(
        [paths.CONTROLLER_EPOCH, paths.config(topic_entity(name)), paths.PRODUCER_ID_BLOCK]
    )
    controller_epoch = 0 if epoch is None else records.decode_controller_epoch(paths.CONTROLLER_EPOCH, epoch.data)
    overrides = records.encode_config(topic.configs)
    at = paths.config(topic_entity(name))
    steps: list[Operation] = [Create(at, overrides) if config is None else SetData(at, overrides)]
    record = TopicRecord(topic.topic_id, ((broker_id,),) * len(topic.leader_epochs))
    steps += [Create(paths.topic(name), records.encode_topic(record)), Create(paths.partitions(name))]
    for index, newest in enumerate(topic.leader_epochs):
        state = PartitionStateRecord(broker_id, newest + 1, (broker_id,), controller_epoch)
        steps.append(Create(paths.partition(name, index)))
        steps.append(Create(paths.partition_state(name, index), records.encode_partition_state(state)))
    data = b"" if block is None else block.data
    last = records.decode_producer_id_block(paths.PRODUCER_ID_BLOCK, data).last if data else -1
    if topic.max_producer_id > last:
        first = topic.max_producer_id // PRODUCER_ID_BLOCK_SIZE * PRODUCER_ID_BLOCK_SIZE
        used = records.encode_producer_id_block(ProducerIdBlock(_NOBODY, first, first + PRODUCER_ID_BLOCK_SIZE - 1))
        steps.append(Create(paths.PRODUCER_ID_BLOCK, used) if block is None else SetData(paths.PRODUCER_ID_BLOCK, used))
    # Its first step need not create anything.
    await apply_whole(store, sorted(steps, key=lambda step: step.path != paths.topic(name)))
