"""Makes this broker's partitions what the cluster's image says: logs created, deleted, reconfigured, roles taken."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from typing import Final

from braidlog.broker.dynamic_settings import DynamicBrokerSettings
from braidlog.broker.requests.time_slicing import TimeSlice
from braidlog.cluster.image import ClusterImage, ImageDelta, TopicImage
from braidlog.config.broker import BrokerSettings
from braidlog.config.log_settings import LogSettings
from braidlog.config.topic import early_expiry, log_settings
from braidlog.core.errors import FatalError, StorageFault, is_disk_full
from braidlog.core.protocol_errors import KafkaStorageError
from braidlog.core.types import BrokerId, TopicPartition
from braidlog.replication.partition import Partition
from braidlog.replication.partition_registry import PartitionRegistry
from braidlog.replication.topic_metrics import TopicMetrics
from braidlog.storage.dirs.log_dir_failures import LogDirFailure
from braidlog.storage.dirs.log_manager import LogManager
from braidlog.storage.jobs import Job
from braidlog.storage.log.unified_log import UnifiedLog

log = logging.getLogger("braidlog.partitions")

# A topic that sets one of these is logged by name where its retention does not suit its timestamps.
_RETENTION_KEYS: Final = frozenset((
    "cleanup.policy", "message.timestamp.before.max.ms", "message.timestamp.difference.max.ms",
    "message.timestamp.type", "retention.ms",
))  # fmt: skip
# How often to look whether a log that could not be made or opened now can be.
_OPEN_POLL: Final = 1.0


def _raise(problem: Exception) -> None:
    raise problem


class ReplicaManager:
    """Listens to the controller's image, and to directories that fail."""

    def __init__(self, broker_id: BrokerId, registry: PartitionRegistry, settings: DynamicBrokerSettings) -> None:
        self._broker_id = broker_id
        self._registry = registry
        self._settings = settings
        self._image = ClusterImage()
        self._manager: LogManager | None = None
        self.on_fatal: Callable[[Exception], None] = _raise
        self._meters: dict[str, TopicMetrics] = {}
        # The first image has the partitions of the time before this start; what comes later is new.
        self._first_image_applied = False
        # What was last said of each topic's retention; under the empty name, of those that only inherit.
        self._retention_warnings: dict[str, str | None] = {}
        # Partitions without a log because the disk has no room for it.
        self._unopened: dict[TopicPartition, Partition] = {}
        # Whether the leader epochs of the first image are not durable; asked once, when it comes.
        self.epochs_lag: Callable[[], bool] = lambda: False
        # Called when such a partition has its log at last.
        self.on_log_opened: list[Callable[[Partition], None]] = []
        settings.on_change(self._broker_settings_changed)

    @property
    def meters(self) -> dict[str, TopicMetrics]:
        return self._meters

    def attach(self, manager: LogManager) -> None:
        self._manager = manager
        manager.failures.on_directory_failed.append(self._directory_failed)
        manager.registry.on_log_moved.append(self._log_moved)

    def settings_of(self, topic: str) -> LogSettings:
        """Effective settings; logs that are opened before the first image get theirs with it."""
        return log_settings(self._image.topic_config(topic), self._settings.current)

    async def image_changed(self, image: ClusterImage, delta: ImageDelta) -> None:
        try:
            await self._follow(image, delta)
        except FatalError as problem:
            # The last data directory failed: that ends the broker, which the publisher of the image cannot know.
            self.on_fatal(problem)

    async def _follow(self, image: ClusterImage, delta: ImageDelta) -> None:
        self._image = image
        # Making and deleting logs takes system calls: others are served in between.
        time_slice = TimeSlice()
        for topic in delta.topics_deleted:
            await self._delete(topic, time_slice)
        changed = [*delta.topics_created, *(new for _, new in delta.topics_changed)]
        for topic in changed:
            for index in range(len(topic.partitions)):
                self._apply(topic, index)
                await time_slice.yield_if_over()
        self._first_image_applied = True
        for entity in [*delta.configs_changed, *delta.configs_deleted]:
            self._config_changed(entity)
            await time_slice.yield_if_over()
        # One of those without settings of its own stands for all of them.
        plain = next((topic for topic in delta.topics_created if not image.topic_config(topic.name)), None)
        for topic in delta.topics_created:
            if topic is plain or image.topic_config(topic.name):
                self._check_retention(topic.name, self.settings_of(topic.name))

    def _apply(self, topic: TopicImage, index: int) -> None:
        """Take the role in one partition."""
        info = topic.partitions[index]
        if self._broker_id not in info.replicas:
            return
        partition = self._registry.get(topic.name, index)
        if partition is None:
            meter = self._meters.setdefault(topic.name, TopicMetrics())
            partition = Partition(topic.name, index, topic.topic_id, self._broker_id, meter)
            partition.epoch_unwritten = not self._first_image_applied and self.epochs_lag()
            self._open(partition)
            self._registry.add(partition)
        try:
            partition.update_leader_and_isr(info.leader, info.leader_epoch, info.isr, info.replicas)
        except StorageFault as fault:
            # Its directory is offline now, and the partition without a log.
            self._require_manager().failures.fail(fault)
            partition.update_leader_and_isr(info.leader, info.leader_epoch, info.isr, info.replicas)

    def _open(self, partition: Partition) -> None:
        manager = self._require_manager()
        key = TopicPartition(partition.topic, partition.index)
        try:
            # An old partition without a log may lie in a directory that is offline: an empty log must not replace it.
            partition.log = manager.create(key, topic_id=partition.topic_id, is_new=self._first_image_applied)
        except KafkaStorageError as problem:
            fault = problem.__cause__
            if isinstance(fault, StorageFault) and is_disk_full(fault):
                self._unopened[key] = partition
            log.error("%s stays offline: %s", key, problem.message)
            return
        if not self._sync_if_asked(partition.log, partition.topic):
            partition.log = None
            return
        # With no follower to ask, all that survived is committed.
        partition.log.advance_high_watermark(partition.log.log_end_offset)

    def retry_unopened_logs(self) -> Job:
        """Tries again to make or open the logs for which there was no room."""
        return Job("open-logs", lambda: _OPEN_POLL, _OPEN_POLL, self._retry_unopened_logs)

    def _retry_unopened_logs(self) -> Iterator[None]:
        waiting = list(self._unopened.items())
        for key, partition in waiting:
            del self._unopened[key]
            if self._registry.get(key.topic, key.partition) is not partition:
                continue
            self._open(partition)
            if partition.log is not None:
                log.info("%s is back: there is room for its log", key)
                partition.log.update_settings(self.settings_of(key.topic))
                if partition.leader == self._broker_id:
                    partition.log.begin_leader_epoch(partition.leader_epoch)
                for listener in self.on_log_opened:
                    listener(partition)
            yield None

    def leader_epochs_written(self) -> None:
        for partition in self._registry.partitions():
            partition.epoch_unwritten = False

    def _sync_if_asked(self, opened: UnifiedLog, topic: str) -> bool:
        """In fsync mode, what a killed broker had written but not synced is synced before anybody sees it."""
        unflushed = opened.unflushed_messages
        if unflushed > 0 and unflushed >= self.settings_of(topic).flush_messages:
            try:
                opened.sync_to(opened.log_end_offset)
            except StorageFault as fault:
                self._require_manager().failures.fail(fault)
                return False
        return True

    async def _delete(self, topic: TopicImage, time_slice: TimeSlice) -> None:
        manager = self._require_manager()
        self._meters.pop(topic.name, None)
        self._retention_warnings.pop(topic.name, None)
        for partition in self._registry.remove_topic(topic.name):
            partition.log = None
            try:
                manager.delete(TopicPartition(partition.topic, partition.index))
            except KafkaStorageError as problem:
                log.warning("deleting %s-%d: %s", partition.topic, partition.index, problem.message)
            await time_slice.yield_if_over()

    # Settings

    def _config_changed(self, entity: str) -> None:
        kind, _, name = entity.partition("/")
        if kind == "topics":
            self._update_logs(name)
        elif kind == "brokers":
            image = self._image
            self._settings.apply_dynamic(image.default_broker_config(), image.broker_config(self._broker_id))

    def _broker_settings_changed(self, settings: BrokerSettings, keys: list[str]) -> None:
        """Topics inherit broker settings: every log gets its effective ones anew."""
        for topic in self._registry.topics():
            self._update_logs(topic)

    def _update_logs(self, topic: str) -> None:
        settings = self.settings_of(topic)
        for partition in self._registry.partitions_of(topic):
            if partition.log is not None:
                partition.log.update_settings(settings)
        self._check_retention(topic, settings)

    def _check_retention(self, topic: str, settings: LogSettings) -> None:
        """Once for each topic and each change; ten thousand topics that only inherit are worth one line."""
        inherits = _RETENTION_KEYS.isdisjoint(self._image.topic_config(topic))
        problem = early_expiry(settings)
        name = "" if inherits else topic
        if self._retention_warnings.get(name) != problem:
            self._retention_warnings[name] = problem
            if problem is not None:
                log.warning("%s: %s", "topics with the broker's defaults" if inherits else f"topic {topic}", problem)

    # Failures

    def _directory_failed(self, failure: LogDirFailure) -> None:
        for key in failure.partitions:
            partition = self._registry.get(key.topic, key.partition)
            if partition is not None:
                partition.log = None
                partition.wake_readers()

    def _log_moved(self, key: TopicPartition, moved: UnifiedLog) -> None:
        partition = self._registry.get(key.topic, key.partition)
        if partition is not None:
            partition.log = moved
            # A copy that was found at start was opened before anybody knew the topic's settings.
            moved.update_settings(self.settings_of(key.topic))
            moved.advance_high_watermark(moved.log_end_offset)
            partition.wake_readers()

    def _require_manager(self) -> LogManager:
        if self._manager is None:
            raise RuntimeError("the log manager is attached before the first image arrives")
        return self._manager
