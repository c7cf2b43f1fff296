"""What this broker knows of the cluster, and what its handlers answer from.

    UpdateMetadata     topics, leaders, offline replicas, live brokers, the controller
    config changes     overrides of topics, brokers, groups, users, clients and ips (`broker/config_changes`)

The controller's own image is another one: it may be ahead of this, or on another broker.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Final

from braidlog.broker.control_epochs import ControlEpochs
from braidlog.cluster.control_requests import (
    LEADER_DURING_DELETE,
    ControlResponse,
    MetadataPartition,
    UpdateMetadata,
)
from braidlog.cluster.image import (
    ClusterImage,
    ImageDelta,
    ImageListener,
    PartitionInfo,
    TopicImage,
    no_leader,
    topic_entity,
)
from braidlog.core.ids import ZERO_ID
from braidlog.core.protocol_errors import NONE
from braidlog.core.time_slice import TimeSlice

log = logging.getLogger("braidlog.metadata")

# Stands for a partition below one that is known, until a request names it.
_UNKNOWN: Final = no_leader(())


async def _nothing_to_read(topics: Sequence[str]) -> None:
    pass


class MetadataCache:
    def __init__(self, cluster_id: str, epochs: ControlEpochs) -> None:
        self._image = ClusterImage(cluster_id=cluster_id)
        self._epochs = epochs
        self._listeners: list[ImageListener] = []
        # Reads the overrides of topics into this cache.
        self.read_topic_configs: Callable[[Sequence[str]], Awaitable[None]] = _nothing_to_read
        # By name, the ids of topics whose overrides are here, or being read, before the topics are.
        self._prepared: dict[str, bytes] = {}
        # Whether all overrides were read once.
        self._loaded = False

    @property
    def image(self) -> ClusterImage:
        return self._image

    def add_listener(self, listener: ImageListener) -> None:
        self._listeners.append(listener)

    def has_partition(self, topic: str, index: int) -> bool:
        known = self._image.topics.get(topic)
        return known is not None and 0 <= index < len(known.partitions) and bool(known.partitions[index].replicas)

    def is_live(self, broker_id: int) -> bool:
        return broker_id in self._image.brokers

    def name_of(self, topic_id: bytes) -> str | None:
        return self._image.topic_names.get(topic_id)

    async def update(self, request: UpdateMetadata) -> ControlResponse:
        error = self._epochs.check(request)
        if error != NONE:
            return ControlResponse(error)
        topics = {each.topic: each.topic_id for each in request.partitions if each.info.leader != LEADER_DURING_DELETE}
        await self.prepare_topics(topics)
        await self._apply(await self._difference(request))
        for each in request.partitions:
            self._prepared.pop(each.topic, None)
        return ControlResponse(NONE)

    async def forget(self, topics: Sequence[TopicImage], overrides: Sequence[str]) -> None:
        """They, and these overrides, are not in the store any more. A topic of the same name that was made since stays,
        and so do overrides that the topic they are for has now."""
        images = [self._image.topic(topic.name) for topic in topics]
        gone = [now for now, topic in zip(images, topics, strict=True) if now and now.topic_id == topic.topic_id]
        stale = {topic_entity(topic.name) for topic in gone}
        stale.update(entity for entity in overrides if not self._follows(entity))
        await self._apply(
            ImageDelta(
                topics_deleted=tuple(gone),
                configs_deleted=tuple(entity for entity in sorted(stale) if entity in self._image.configs),
            )
        )

    async def prepare_topics(self, topics: Mapping[str, bytes]) -> None:
        """Have the overrides of topics, given with their ids, before their logs or they themselves are known here.

        A topic is created with its overrides in the store, and no notification tells of them.
        """
        new = {
            name: topic_id
            for name, topic_id in topics.items()
            if self._is_new(name, topic_id) and self._prepared.get(name) != topic_id
        }
        if new:
            self._prepared.update(new)
            try:
                await self.read_topic_configs(list(new))
            except BaseException:
                # Also when it is cancelled: whoever comes next reads them.
                for name in new:
                    self._prepared.pop(name, None)
                raise

    async def load_configs(self, loaded: Mapping[str, Mapping[str, str]]) -> None:
        """All overrides there are. At the start those of every topic count: logs are opened before topics are known."""
        gone: dict[str, Mapping[str, str]] = {entity: {} for entity in self._image.configs if entity not in loaded}
        if self._loaded:
            await self.update_configs({**gone, **loaded})
        else:
            self._loaded = True
            await self._apply(ImageDelta(configs_changed=loaded))

    async def update_configs(self, changed: Mapping[str, Mapping[str, str]]) -> None:
        """Each entity has these overrides now, and no others.

        Those of topics that are not known are left out: one that is deleted has them in the store for a while, and of
        one that comes they are read then.
        """
        image = self._image
        different = {
            entity: overrides
            for entity, overrides in changed.items()
            if image.config(entity) != overrides and (entity in image.configs or self._follows(entity))
        }
        await self._apply(ImageDelta(configs_changed=different))

    def _follows(self, entity: str) -> bool:
        """Whether the overrides of this entity are to be here, should it have some."""
        kind, _, name = entity.partition("/")
        return kind != "topics" or name in self._image.topics or name in self._prepared

    def _is_new(self, name: str, topic_id: bytes) -> bool:
        known = self._image.topics.get(name)
        return known is None or _is_another(known, topic_id)

    async def _apply(self, delta: ImageDelta) -> None:
        """Logs have followed LeaderAndIsr by now: a topic may be seen before the listeners are done."""
        if delta.empty:
            return
        image = self._image = self._image.apply(delta)
        for listener in self._listeners:
            try:
                await listener.image_changed(image, delta)
            except Exception:
                log.exception("a listener could not apply a change of the cluster")

    async def _difference(self, request: UpdateMetadata) -> ImageDelta:
        """The topics stay as they are meanwhile, since requests come one at a time; overrides may change."""
        image = self._image
        time_slice = TimeSlice()
        created: list[TopicImage] = []
        changed: list[tuple[TopicImage, TopicImage]] = []
        deleted: list[TopicImage] = []
        # Deleted ones whose overrides may be here though they themselves are not: this broker started meanwhile.
        unknown: list[str] = []
        for name, (topic_id, states) in _by_topic(request.partitions).items():
            before = image.topics.get(name)
            if before is not None and _is_another(before, topic_id):
                deleted.append(before)
                before = None
            after = _updated(name, topic_id, before, states)
            if before is None:
                if after is not None:
                    created.append(after)
                else:
                    unknown.append(name)
            elif after is None:
                deleted.append(before)
            elif after != before:
                changed.append((before, after))
            await time_slice.yield_if_over()
        gone = {*unknown, *(topic.name for topic in deleted)}.difference(topic.name for topic in created)
        return ImageDelta(
            topics_created=tuple(created),
            topics_changed=tuple(changed),
            topics_deleted=tuple(deleted),
            configs_deleted=tuple(
                entity for name in sorted(gone) if (entity := topic_entity(name)) in self._image.configs
            ),
            brokers=None if request.brokers == image.brokers else dict(request.brokers),
            controller_id=None if request.controller_id == image.controller_id else request.controller_id,
        )


def _by_topic(partitions: Sequence[MetadataPartition]) -> dict[str, tuple[bytes, dict[int, PartitionInfo]]]:
    topics: dict[str, tuple[bytes, dict[int, PartitionInfo]]] = {}
    for each in partitions:
        found = topics.get(each.topic)
        if found is None:
            found = topics[each.topic] = (each.topic_id, {})
        found[1][each.partition] = each.info
    return topics


def _is_another(known: TopicImage, topic_id: bytes) -> bool:
    """A topic of the same name that was made after the known one was deleted; old peers know no ids."""
    return topic_id != ZERO_ID and known.topic_id != ZERO_ID and topic_id != known.topic_id


def _updated(
    name: str, topic_id: bytes, before: TopicImage | None, states: Mapping[int, PartitionInfo]
) -> TopicImage | None:
    """The topic with its partitions as they are now; None once the last of them is gone."""
    partitions: list[PartitionInfo] = [] if before is None else list(before.partitions)
    missing = max(states) + 1 - len(partitions)
    if missing > 0:
        partitions += [_UNKNOWN] * missing
    for index, info in states.items():
        partitions[index] = _UNKNOWN if info.leader == LEADER_DURING_DELETE else info
    while partitions and partitions[-1] is _UNKNOWN:
        partitions.pop()
    if not partitions:
        return None
    if before is not None and topic_id == ZERO_ID:
        topic_id = before.topic_id
    return TopicImage(name, topic_id, tuple(partitions))
