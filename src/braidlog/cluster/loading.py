"""Reads the whole cluster image from the store: at start, and when another broker takes the controller over.

Nodes are read and parsed some at a time, and others run in between. What is read is no snapshot in any case: whoever
wants to hear of what changes meanwhile sets watches first.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from itertools import islice
from typing import Final, NamedTuple, TypeAlias, TypeVar

from braidlog.cluster import paths, records
from braidlog.cluster.image import BrokerInfo, ClusterImage, PartitionInfo, TopicImage, no_leader
from braidlog.cluster.layered_map import LayeredMap
from braidlog.cluster.records import TopicRecord
from braidlog.cluster.store import CoordinationStore, Node, NoNodeError, Watch
from braidlog.config.topic_names import has_collision_characters
from braidlog.core.time_slice import TimeSlice
from braidlog.core.types import NO_BROKER, BrokerId, LeaderEpoch, TopicPartition

K = TypeVar("K")

# What a topic without overrides has in its node: most of them.
_NO_OVERRIDES: Final = records.encode_config({})
# Nodes that are asked for together: enough to keep the store busy, few enough to be asked for within a slice or two.
_NODES_AT_A_TIME: Final = 2_000
# State as written, its version, replicas, adding, removing.
_PartitionKey: TypeAlias = tuple[bytes, int, tuple[int, ...], tuple[int, ...], tuple[int, ...]]


class _FoundTopic(NamedTuple):
    name: str
    record: TopicRecord
    version: int
    # Filled one after the other.
    partitions: list[PartitionInfo]


class Loaded(NamedTuple):
    image: ClusterImage
    # Topics whose deletion was decided but not finished; they are not in the image any more.
    deleting: tuple[TopicImage, ...]
    # Partitions whose leader has registered since their state was written: it may have started anew meanwhile.
    restarted: frozenset[TopicPartition] = frozenset()


async def load(
    store: CoordinationStore, brokers_watch: Watch | None = None, broker_data_watch: Watch | None = None
) -> Loaded:
    """Call it with the paths prepared (`registration.prepare_store`). The watches hear of brokers that come, go or
    change what they registered."""
    cluster_node, controller_node = await store.get_many([paths.CLUSTER_ID, paths.CONTROLLER])
    cluster_id = records.decode_cluster_id(paths.CLUSTER_ID, cluster_node.data) if cluster_node else ""
    controller = records.decode_controller(paths.CONTROLLER, controller_node.data) if controller_node else NO_BROKER
    deleting = frozenset(await _children(store, paths.DELETE_TOPICS))
    written: dict[TopicPartition, int] = {}
    topics = await load_topics(store, await _children(store, paths.TOPICS), written)
    kept = [topic for topic in topics if topic.name not in deleting]
    brokers = await load_brokers(store, brokers_watch, broker_data_watch)
    image = ClusterImage(
        cluster_id=cluster_id,
        controller_id=BrokerId(controller),
        brokers=brokers,
        topics=LayeredMap({topic.name: topic for topic in kept}),
        topic_names=LayeredMap({topic.topic_id: topic.name for topic in kept}),
        metric_names=LayeredMap(
            {topic.name.replace(".", "_"): topic.name for topic in kept if has_collision_characters(topic.name)}
        ),
        configs=LayeredMap(await load_configs(store, deleting)),
        partition_count=sum(len(topic.partitions) for topic in kept),
    )
    # Also of topics that are to be deleted: those that are being reassigned are served until that is done.
    restarted = frozenset(
        where
        for topic in topics
        for index, info in enumerate(topic.partitions)
        if (leader := brokers.get(info.leader)) is not None
        and leader.epoch > written.get(where := TopicPartition(topic.name, index), leader.epoch)
    )
    return Loaded(image, tuple(topic for topic in topics if topic.name in deleting), restarted)


async def load_brokers(
    store: CoordinationStore, watch: Watch | None = None, data_watch: Watch | None = None
) -> dict[BrokerId, BrokerInfo]:
    """`data_watch` hears of brokers that change what they registered."""
    ids = sorted(int(name) for name in await store.children(paths.BROKER_IDS, watch))
    if data_watch is not None:
        await asyncio.gather(*(store.exists(paths.broker(each), data_watch) for each in ids))
    nodes = await store.get_many([paths.broker(each) for each in ids])
    brokers: dict[BrokerId, BrokerInfo] = {}
    for each, node in zip(ids, nodes, strict=True):
        if node is None:
            continue  # it left between the two reads; the watch says so
        record = records.decode_broker(paths.broker(each), node.data)
        brokers[BrokerId(each)] = BrokerInfo(
            id=BrokerId(each),
            epoch=node.stat.czxid,
            endpoints=record.endpoints,
            security_protocols=record.security_protocols,
            rack=record.rack,
            features=record.features,
            placement_host=record.placement_host,
        )
    return brokers


async def load_topics(
    store: CoordinationStore, names: Sequence[str], written: dict[TopicPartition, int] | None = None
) -> list[TopicImage]:
    """`written` gets the transaction in which each partition's state was written."""
    # Ten thousand partitions have a handful of different states: each is parsed and kept once.
    parsed: dict[_PartitionKey, PartitionInfo] = {}
    found: list[_FoundTopic] = []
    async for name, node in _nodes(store, names, paths.topic):
        if node is not None:
            record = records.decode_topic(paths.topic(name), node.data)
            found.append(_FoundTopic(name, record, node.stat.version, []))
    every = ((topic, index) for topic in found for index in range(len(topic.record.partitions)))
    async for (topic, index), node in _nodes(store, every, lambda at: paths.partition_state(at[0].name, at[1])):
        topic.partitions.append(_partition(topic, index, node, parsed))
        if written is not None and node is not None:
            written[TopicPartition(topic.name, index)] = node.stat.mzxid
    return [
        TopicImage(topic.name, topic.record.topic_id, tuple(topic.partitions), version=topic.version) for topic in found
    ]


class InSyncReplica(NamedTuple):
    partition: TopicPartition
    topic_id: bytes
    isr: tuple[BrokerId, ...]


async def load_in_sync(store: CoordinationStore, broker: BrokerId) -> list[InSyncReplica]:
    """The replicas of this broker that are in sync, of partitions that have others.

    Not of topics that are being deleted: their states stay as they were until all replicas are gone. One whose
    deletion waits for the end of a reassignment is served until then.
    """
    await store.sync()
    deleting = frozenset(await _children(store, paths.DELETE_TOPICS))
    return [
        InSyncReplica(TopicPartition(topic.name, index), topic.topic_id, info.isr)
        for topic in await load_topics(store, await _children(store, paths.TOPICS))
        if topic.name not in deleting or topic.reassigning
        for index, info in enumerate(topic.partitions)
        if broker in info.isr and len(info.replicas) > 1 and info.partition_epoch >= 0
    ]


async def _nodes(
    store: CoordinationStore, keys: Iterable[K], path_of: Callable[[K], str]
) -> AsyncIterator[tuple[K, Node | None]]:
    """Each key with its node, in their order."""
    time_slice = TimeSlice()
    left = iter(keys)
    while some := list(islice(left, _NODES_AT_A_TIME)):
        for key, node in zip(some, await store.get_many([path_of(key) for key in some]), strict=True):
            yield key, node
            await time_slice.yield_if_over()


def _partition(
    topic: _FoundTopic, index: int, node: Node | None, parsed: dict[_PartitionKey, PartitionInfo]
) -> PartitionInfo:
    record = topic.record
    replicas, adding, removing = record.partitions[index], record.adding.get(index, ()), record.removing.get(index, ())
    if node is None:
        return no_leader(_broker_ids(replicas))._replace(adding=_broker_ids(adding), removing=_broker_ids(removing))
    key = (node.data, node.stat.version, replicas, adding, removing)
    found = parsed.get(key)
    if found is None:
        state = records.decode_partition_state(paths.partition_state(topic.name, index), node.data)
        found = parsed[key] = PartitionInfo(
            leader=BrokerId(state.leader),
            leader_epoch=LeaderEpoch(state.leader_epoch),
            isr=_broker_ids(state.isr),
            replicas=_broker_ids(replicas),
            adding=_broker_ids(adding),
            removing=_broker_ids(removing),
            controller_epoch=state.controller_epoch,
            partition_epoch=node.stat.version,
            leader_recovery_state=state.leader_recovery_state,
        )
    return found


def _broker_ids(ids: Sequence[int]) -> tuple[BrokerId, ...]:
    return tuple(BrokerId(each) for each in ids)


async def load_configs(store: CoordinationStore, deleting: frozenset[str]) -> dict[str, Mapping[str, str]]:
    """All overrides by entity path: of topics, brokers, groups, users, clients and ips."""
    entities: list[str] = []
    for kind in paths.CONFIG_KINDS:
        entities += [f"{kind}/{name}" for name in await _children(store, f"{paths.CONFIG}/{kind}")]
    entities = [entity for entity in entities if entity.removeprefix("topics/") not in deleting]
    entities += await _clients_of_users(store, [entity for entity in entities if entity.startswith("users/")])
    configs: dict[str, Mapping[str, str]] = {}
    async for entity, node in _nodes(store, entities, paths.config):
        if node is None or node.data == _NO_OVERRIDES:
            continue
        overrides = records.decode_config(paths.config(entity), node.data)
        if overrides:
            configs[entity] = overrides
    return configs


async def _clients_of_users(store: CoordinationStore, users: Sequence[str]) -> list[str]:
    """`users/NAME/clients/NAME`: what one user's client has, which goes before what either has by itself."""
    parents = [f"{user}/clients" for user in users]
    found = await asyncio.gather(*(_children(store, paths.config(parent)) for parent in parents))
    return [f"{parent}/{name}" for parent, names in zip(parents, found, strict=True) for name in names]


async def _children(store: CoordinationStore, path: str) -> list[str]:
    try:
        return await store.children(path)
    except NoNodeError:
        return []
