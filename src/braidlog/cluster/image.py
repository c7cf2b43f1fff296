"""The cluster as one immutable value: who is registered, which topics exist, who leads, which configs override.

A change is an `ImageDelta`; `ClusterImage.apply` gives the next image at a cost that follows the change, and
listeners get both. Handlers keep no copy: they ask the metadata cache for the current image at every request.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple, Protocol

from braidlog.cluster.layered_map import LayeredMap
from braidlog.config.topic_names import has_collision_characters, is_internal
from braidlog.core.types import NO_BROKER, NO_EPOCH, BrokerId, Endpoint, LeaderEpoch, TopicPartition

DEFAULT_ENTITY: Final = "<default>"

_GROUPS: Final = "groups/"
_USERS: Final = "users/"

_NO_CONFIG: Final[Mapping[str, str]] = {}


class BrokerInfo(NamedTuple):
    """A registered broker; `epoch` is the zxid that created its znode, so a restarted broker is a newer one."""

    id: BrokerId
    epoch: int
    endpoints: tuple[Endpoint, ...]
    security_protocols: Mapping[str, str] = {}
    rack: str | None = None
    features: Mapping[str, tuple[int, int]] = {}
    # The machine; known to the controller alone, which places replicas.
    placement_host: str | None = None

    def endpoint(self, listener: str) -> Endpoint | None:
        for endpoint in self.endpoints:
            if endpoint.listener == listener:
                return endpoint
        return None


class PartitionInfo(NamedTuple):
    """One partition: leader in isr, isr within replicas; `replicas` = target + removing while reassigned."""

    leader: BrokerId
    leader_epoch: LeaderEpoch
    isr: tuple[BrokerId, ...]
    replicas: tuple[BrokerId, ...]
    adding: tuple[BrokerId, ...] = ()
    removing: tuple[BrokerId, ...] = ()
    controller_epoch: int = 0
    # Version of the state znode (the "partition epoch" of AlterPartition); -1: the state is not written yet.
    partition_epoch: int = -1
    # 1 after an unclean election, until the leader has recovered from it (KIP-704).
    leader_recovery_state: int = 0
    # Replicas on dead brokers or in failed data directories, as the controller announced them.
    offline: tuple[BrokerId, ...] = ()

    @property
    def reassigning(self) -> bool:
        return bool(self.adding or self.removing)


class TopicImage(NamedTuple):
    """A topic; its partitions are numbered from 0 without gaps. `version` is that of its assignment znode."""

    name: str
    topic_id: bytes
    partitions: tuple[PartitionInfo, ...]
    version: int = 0

    @property
    def internal(self) -> bool:
        return is_internal(self.name)

    @property
    def replication_factor(self) -> int:
        return len(self.partitions[0].replicas) if self.partitions else 0

    @property
    def reassigning(self) -> bool:
        return any(info.reassigning for info in self.partitions)


class ImageDelta(NamedTuple):
    """What one change did. A topic that got more partitions or new leaders is in `topics_changed` as (old, new)."""

    topics_created: tuple[TopicImage, ...] = ()
    topics_changed: tuple[tuple[TopicImage, TopicImage], ...] = ()
    topics_deleted: tuple[TopicImage, ...] = ()
    # Entity path ("topics/orders", "brokers/1", "brokers/<default>", "groups/billing") -> all overrides it has now.
    configs_changed: Mapping[str, Mapping[str, str]] = {}
    configs_deleted: tuple[str, ...] = ()
    brokers: Mapping[BrokerId, BrokerInfo] | None = None
    controller_id: BrokerId | None = None

    @property
    def empty(self) -> bool:
        return self == _NOTHING


_NOTHING: Final = ImageDelta()


class ClusterImage(NamedTuple):
    cluster_id: str = ""
    controller_id: BrokerId = NO_BROKER
    brokers: Mapping[BrokerId, BrokerInfo] = {}
    topics: LayeredMap[str, TopicImage] = LayeredMap()
    topic_names: LayeredMap[bytes, str] = LayeredMap()
    # Names with '.' or '_' as metrics show them (orders_eu) -> the topic that has it (orders.eu).
    metric_names: LayeredMap[str, str] = LayeredMap()
    configs: LayeredMap[str, Mapping[str, str]] = LayeredMap()
    partition_count: int = 0

    def topic(self, name: str) -> TopicImage | None:
        return self.topics.get(name)

    def topic_by_id(self, topic_id: bytes) -> TopicImage | None:
        name = self.topic_names.get(topic_id)
        return None if name is None else self.topics.get(name)

    def colliding_topic(self, name: str) -> str | None:
        """The topic whose name differs from this one only in '.' against '_', so that their metrics would mix."""
        other = self.metric_names.get(_metric_name(name)) if has_collision_characters(name) else None
        return None if other == name else other

    def partition(self, partition: TopicPartition) -> PartitionInfo | None:
        topic = self.topics.get(partition.topic)
        if topic is None or not 0 <= partition.partition < len(topic.partitions):
            return None
        return topic.partitions[partition.partition]

    def topic_config(self, name: str) -> Mapping[str, str]:
        return self.configs.get(topic_entity(name)) or _NO_CONFIG

    def broker_config(self, broker_id: BrokerId) -> Mapping[str, str]:
        return self.configs.get(broker_entity(broker_id)) or _NO_CONFIG

    def default_broker_config(self) -> Mapping[str, str]:
        """Overrides for every broker of the cluster, weaker than a broker's own."""
        return self.configs.get(broker_entity(None)) or _NO_CONFIG

    def group_config(self, group_id: str) -> Mapping[str, str]:
        return self.configs.get(group_entity(group_id)) or _NO_CONFIG

    def config(self, entity: str) -> Mapping[str, str]:
        return self.configs.get(entity) or _NO_CONFIG

    def apply(self, delta: ImageDelta) -> ClusterImage:
        topics, names, count = self.topics, self.topic_names, self.partition_count
        metric_names = self.metric_names
        if delta.topics_created or delta.topics_changed or delta.topics_deleted:
            created = {topic.name: topic for topic in delta.topics_created}
            deleted = [topic.name for topic in delta.topics_deleted]
            updates = {new.name: new for _, new in delta.topics_changed} | created
            topics = topics.changed(updates, deleted)
            renumbered = [(old, new) for old, new in delta.topics_changed if old.topic_id != new.topic_id]
            if created or deleted or renumbered:
                ids = {topic.topic_id: topic.name for topic in delta.topics_created}
                ids |= {new.topic_id: new.name for _, new in renumbered}
                gone_ids = [topic.topic_id for topic in delta.topics_deleted] + [old.topic_id for old, _ in renumbered]
                names = names.changed(ids, gone_ids)
                shown = {_metric_name(name): name for name in created if has_collision_characters(name)}
                metric_names = metric_names.changed(shown, [_metric_name(name) for name in deleted])
            count += sum(len(topic.partitions) for topic in delta.topics_created)
            count += sum(len(new.partitions) - len(old.partitions) for old, new in delta.topics_changed)
            count -= sum(len(topic.partitions) for topic in delta.topics_deleted)
        configs = self.configs
        if delta.configs_changed or delta.configs_deleted:
            kept = {entity: overrides for entity, overrides in delta.configs_changed.items() if overrides}
            gone = [*delta.configs_deleted, *(entity for entity in delta.configs_changed if entity not in kept)]
            configs = configs.changed(kept, gone)
        return ClusterImage(
            cluster_id=self.cluster_id,
            controller_id=self.controller_id if delta.controller_id is None else delta.controller_id,
            brokers=self.brokers if delta.brokers is None else delta.brokers,
            topics=topics,
            topic_names=names,
            metric_names=metric_names,
            configs=configs,
            partition_count=count,
        )

    def difference(self, newer: ClusterImage) -> ImageDelta:
        """What leads from this image to a newer one; for images that were read, not derived by a delta."""
        changed = [(self.topics.get(topic.name), topic) for topic in newer.topics.values()]
        configs = {entity: overrides for entity, overrides in newer.configs.items() if self.config(entity) != overrides}
        return ImageDelta(
            topics_created=tuple(new for old, new in changed if old is None or old.topic_id != new.topic_id),
            topics_changed=tuple(
                (old, new) for old, new in changed if old is not None and old != new and old.topic_id == new.topic_id
            ),
            topics_deleted=tuple(
                old
                for old in self.topics.values()
                if (new := newer.topics.get(old.name)) is None or new.topic_id != old.topic_id
            ),
            configs_changed=configs,
            configs_deleted=tuple(entity for entity in self.configs if entity not in newer.configs),
            brokers=newer.brokers if newer.brokers != self.brokers else None,
            controller_id=newer.controller_id if newer.controller_id != self.controller_id else None,
        )


class ImageListener(Protocol):
    """Applies what changed (a broker creates and deletes logs). Called in order, one change at a time; the request
    that asked for the change is answered once every listener returned."""

    async def image_changed(self, image: ClusterImage, delta: ImageDelta) -> None: ...


def _metric_name(topic: str) -> str:
    return topic.replace(".", "_")


def topic_entity(name: str) -> str:
    return f"topics/{name}"


def broker_entity(broker_id: BrokerId | None) -> str:
    """The entity path of one broker's overrides, or, for None, of those for every broker."""
    return f"brokers/{DEFAULT_ENTITY if broker_id is None else broker_id}"


def group_entity(group_id: str) -> str:
    return _GROUPS + sanitized(group_id)


def group_of(entity: str) -> str | None:
    """The group whose overrides the entity path names; None where it is not a group's."""
    return _named(entity, _GROUPS)


def user_entity(user: str) -> str:
    return _USERS + sanitized(user)


def user_of(entity: str) -> str | None:
    """The user whose overrides the entity path names; None where it is not a user's, nor for all of them."""
    if entity.removeprefix(_USERS) == DEFAULT_ENTITY:
        return None
    return _named(entity, _USERS)


def sanitized(name: str) -> str:
    """A group or user may have any name, a path may not: what is special is percent-encoded, as in Kafka."""
    from urllib.parse import quote

    quoted = quote(name, safe="").replace("~", "%7E")
    # The only names made of dots that no path may contain.
    return quoted.replace(".", "%2E") if quoted in (".", "..") else quoted


def desanitized(name: str) -> str:
    from urllib.parse import unquote

    return unquote(name)


def _named(entity: str, kind: str) -> str | None:
    name = entity.removeprefix(kind)
    return None if name == entity or "/" in name else desanitized(name)


def no_leader(replicas: tuple[BrokerId, ...]) -> PartitionInfo:
    """A partition that is assigned but has no state yet."""
    return PartitionInfo(NO_BROKER, NO_EPOCH, (), replicas)
