"""Reads the whole cluster image from the store: at start, and when another broker takes the controller over."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple, TypeAlias

from braidlog.cluster import paths, records
from braidlog.cluster.image import BrokerInfo, ClusterImage, PartitionInfo, TopicImage, no_leader
from braidlog.cluster.layered_map import LayeredMap
from braidlog.cluster.records import TopicRecord
from braidlog.cluster.store import CoordinationStore, Node, NoNodeError, Watch
from braidlog.config.topic_names import has_collision_characters
from braidlog.core.types import NO_BROKER, BrokerId, LeaderEpoch

# What a topic without overrides has in its node: most of them.
_NO_OVERRIDES: Final = records.encode_config({})
# State as written, its version, replicas, adding, removing.
_PartitionKey: TypeAlias = tuple[bytes, int, tuple[int, ...], tuple[int, ...], tuple[int, ...]]


class Loaded(NamedTuple):
    image: ClusterImage
    # Topics whose deletion was decided but not finished; they are not in the image any more.
    deleting: tuple[TopicImage, ...]


async def load(
    store: CoordinationStore, brokers_watch: Watch | None = None, broker_data_watch: Watch | None = None
) -> Loaded:
    """Call it with the paths prepared (`registration.prepare_store`). The watches hear of brokers that come, go or
    change what they registered."""
    cluster_node, controller_node = await store.get_many([paths.CLUSTER_ID, paths.CONTROLLER])
    cluster_id = records.decode_cluster_id(paths.CLUSTER_ID, cluster_node.data) if cluster_node else ""
    controller = records.decode_controller(paths.CONTROLLER, controller_node.data) if controller_node else NO_BROKER
    deleting = frozenset(await _children(store, paths.DELETE_TOPICS))
    topics = await load_topics(store, await _children(store, paths.TOPICS))
    kept = [topic for topic in topics if topic.name not in deleting]
    image = ClusterImage(
        cluster_id=cluster_id,
        controller_id=BrokerId(controller),
        brokers=await load_brokers(store, brokers_watch, broker_data_watch),
        topics=LayeredMap({topic.name: topic for topic in kept}),
        topic_names=LayeredMap({topic.topic_id: topic.name for topic in kept}),
        metric_names=LayeredMap(
            {topic.name.replace(".", "_"): topic.name for topic in kept if has_collision_characters(topic.name)}
        ),
        configs=LayeredMap(await load_configs(store, deleting)),
        partition_count=sum(len(topic.partitions) for topic in kept),
    )
    return Loaded(image, tuple(topic for topic in topics if topic.name in deleting))


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
        )
    return brokers


async def load_topics(store: CoordinationStore, names: Sequence[str]) -> list[TopicImage]:
    # Ten thousand partitions have a handful of different states: each is parsed and kept once.
    parsed: dict[_PartitionKey, PartitionInfo] = {}
    found: list[tuple[str, TopicRecord, int]] = []
    for name, node in zip(names, await store.get_many([paths.topic(name) for name in names]), strict=True):
        if node is not None:
            found.append((name, records.decode_topic(paths.topic(name), node.data), node.stat.version))
    state_paths = [
        paths.partition_state(name, index) for name, record, _ in found for index in range(len(record.partitions))
    ]
    states = iter(zip(state_paths, await store.get_many(state_paths), strict=True))
    return [
        TopicImage(
            name=name,
            topic_id=record.topic_id,
            partitions=tuple(
                _partition(record, index, *next(states), parsed) for index in range(len(record.partitions))
            ),
            version=version,
        )
        for name, record, version in found
    ]


def _partition(
    record: TopicRecord, index: int, path: str, node: Node | None, parsed: dict[_PartitionKey, PartitionInfo]
) -> PartitionInfo:
    replicas, adding, removing = record.partitions[index], record.adding.get(index, ()), record.removing.get(index, ())
    if node is None:
        return no_leader(_broker_ids(replicas))._replace(adding=_broker_ids(adding), removing=_broker_ids(removing))
    key = (node.data, node.stat.version, replicas, adding, removing)
    found = parsed.get(key)
    if found is None:
        state = records.decode_partition_state(path, node.data)
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
    """Overrides of topics, brokers and groups by entity path; those of users, clients and ips belong to the quotas."""
    entities = [f"topics/{name}" for name in await _children(store, f"{paths.CONFIG}/topics") if name not in deleting]
    for kind in ("brokers", "groups"):
        entities += [f"{kind}/{name}" for name in await _children(store, f"{paths.CONFIG}/{kind}")]
    configs: dict[str, Mapping[str, str]] = {}
    nodes = await store.get_many([paths.config(entity) for entity in entities])
    for entity, node in zip(entities, nodes, strict=True):
        if node is None or node.data == _NO_OVERRIDES:
            continue
        overrides = records.decode_config(paths.config(entity), node.data)
        if overrides:
            configs[entity] = overrides
    return configs


async def _children(store: CoordinationStore, path: str) -> list[str]:
    try:
        return await store.children(path)
    except NoNodeError:
        return []
