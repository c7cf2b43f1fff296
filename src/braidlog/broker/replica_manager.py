"""Makes this broker's partitions what the controller asks for: logs created and deleted, roles taken and ended.

LeaderAndIsr and StopReplica say what to do; the metadata cache says which overrides the logs have.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final, Protocol

from braidlog.broker.control_epochs import ControlEpochs
from braidlog.broker.dynamic_settings import DynamicBrokerSettings
from braidlog.broker.metadata_cache import MetadataCache
from braidlog.cluster.control_requests import (
    ControlResponse,
    LeaderAndIsr,
    LeaderAndIsrPartition,
    StopReplica,
    StopReplicaPartition,
)
from braidlog.cluster.image import BrokerInfo, ClusterImage, ImageDelta
from braidlog.config.broker import BrokerSettings
from braidlog.config.log_settings import LogSettings
from braidlog.config.message_format import format_without_effect
from braidlog.config.topic import early_expiry, log_settings
from braidlog.core.errors import FatalError, StorageFault, is_disk_full
from braidlog.core.ids import ZERO_ID
from braidlog.core.protocol_errors import (
    NONE,
    FencedLeaderEpochError,
    InconsistentTopicIdError,
    KafkaStorageError,
    StaleControllerEpochError,
    UnknownTopicOrPartitionError,
)
from braidlog.core.time_slice import TimeSlice
from braidlog.core.types import NO_BROKER, NO_EPOCH, BrokerId, TopicPartition
from braidlog.replication.partition import Partition, ReplicationContext
from braidlog.replication.partition_registry import PartitionRegistry
from braidlog.replication.topic_metrics import TopicMetrics
from braidlog.storage.dirs.log_dir_failures import LogDirFailure
from braidlog.storage.dirs.log_manager import LogManager
from braidlog.storage.jobs import Finish, Job, Work
from braidlog.storage.log.unified_log import UnifiedLog

log = logging.getLogger("braidlog.partitions")

# A topic that sets one of these is logged by name where its retention does not suit its timestamps.
_RETENTION_KEYS: Final = frozenset((
    "cleanup.policy", "message.timestamp.before.max.ms", "message.timestamp.difference.max.ms",
    "message.timestamp.type", "retention.ms",
))  # fmt: skip
# They concern no log.
_RATES: Final = frozenset((
    "follower.replication.throttled.rate", "leader.replication.throttled.rate",
    "replica.alter.log.dirs.io.max.bytes.per.second",
))  # fmt: skip
# How often to look whether a log that could not be made or opened now can be.
_OPEN_POLL: Final = 1.0
# Of new partitions: their logs are made together, and others wait no longer for the executor.
_ROLES_AT_A_TIME: Final = 50


class Followers(Protocol):
    """What copies partitions from their leaders."""

    def leaders_named(self, leaders: Mapping[BrokerId, BrokerInfo]) -> None: ...

    def follow(self, partition: Partition, *, unclean: bool = False) -> None: ...

    def unfollow(self, key: TopicPartition) -> None: ...

    def throttle_changed(self, key: TopicPartition) -> None: ...

    def end_idle(self) -> None: ...


def _raise(problem: Exception) -> None:
    raise problem


def _act(works: Sequence[Work]) -> list[Finish | None]:
    return [work.act() for work in works]


class ReplicaManager:
    """Obeys the controller, follows the overrides in the metadata cache, and hears of directories that fail."""

    def __init__(
        self,
        broker_id: BrokerId,
        registry: PartitionRegistry,
        settings: DynamicBrokerSettings,
        cache: MetadataCache,
        epochs: ControlEpochs,
    ) -> None:
        self._broker_id = broker_id
        self._registry = registry
        self._settings = settings
        self._cache = cache
        self._epochs = epochs
        self._manager: LogManager | None = None
        self.on_fatal: Callable[[Exception], None] = _raise
        self._meters: dict[str, TopicMetrics] = {}
        self._inherited: tuple[BrokerSettings, LogSettings] | None = None
        # What was last said of each topic's retention; under the empty name, of those that only inherit.
        self._retention_warnings: dict[str, str | None] = {}
        # What was last said of the old format that a topic asks for.
        self._format_warnings: dict[str, str] = {}
        # Partitions without a log because the disk has no room for it.
        self._unopened: dict[TopicPartition, Partition] = {}
        # Partitions without a log because the disk that had it was replaced, until others have made up for it.
        self._lost: set[TopicPartition] = set()
        # Ids of topics that are announced as deleted, of which there are partitions here still.
        self._deleted_ids: set[bytes] = set()
        # Whether the leader epochs that this start asked for are not durable.
        self.epochs_lag: Callable[[], bool] = lambda: False
        # Of all partitions here.
        self.replication_context = ReplicationContext()
        # Called when this broker began or ceased to lead a partition, or leads one that has its log only now.
        self.on_leadership_change: list[Callable[[Partition], None]] = []
        # Called with the partitions whose roles the controller has named.
        self.on_roles_named: list[Callable[[Sequence[TopicPartition]], None]] = []
        # None on a broker that is alone.
        self.followers: Followers | None = None
        settings.on_change(self._broker_settings_changed)

    @property
    def meters(self) -> dict[str, TopicMetrics]:
        return self._meters

    def attach(self, manager: LogManager) -> None:
        self._manager = manager
        manager.failures.on_directory_failed.append(self._directory_failed)
        manager.registry.on_log_moved.append(self._log_moved)
        manager.registry.on_log_start_moved.append(self._log_start_moved)

    def settings_of(self, topic: str) -> LogSettings:
        """Effective settings; logs that are opened before the cache has their topic get theirs with it."""
        overrides = self._cache.image.topic_config(topic)
        current = self._settings.current
        if overrides:
            return log_settings(overrides, current)
        # Most topics have none: they share one value for as long as the broker's settings stay.
        if self._inherited is None or self._inherited[0] is not current:
            self._inherited = current, log_settings({}, current)
        return self._inherited[1]

    def apply_rates(self, settings: BrokerSettings) -> None:
        """Of throttled replicas, in bytes a second."""
        context = self.replication_context
        context.leader_quota.limit = settings.get_int("leader.replication.throttled.rate")
        context.follower_quota.limit = settings.get_int("follower.replication.throttled.rate")

    # What the controller asks for

    async def become_leader_or_follower(self, request: LeaderAndIsr) -> ControlResponse:
        error = self._epochs.check(request)
        if error != NONE:
            return ControlResponse(error)
        await self._cache.prepare_topics({state.topic: state.topic_id for state in request.partitions})
        # What is not reached below has no directory to be in any more.
        errors = {TopicPartition(state.topic, state.partition): KafkaStorageError.code for state in request.partitions}
        if self.followers is not None:
            self.followers.leaders_named(request.leaders)
        time_slice = TimeSlice()
        try:
            for first in range(0, len(request.partitions), _ROLES_AT_A_TIME):
                some = request.partitions[first : first + _ROLES_AT_A_TIME]
                await self._make_logs(some)
                for state in some:
                    errors[TopicPartition(state.topic, state.partition)] = self._take_role(state)
                    await time_slice.yield_if_over()
                named = [TopicPartition(state.topic, state.partition) for state in some]
                for tell in self.on_roles_named:
                    tell(named)
        except FatalError as problem:
            # The last data directory failed: that ends the broker, which the controller cannot know.
            self.on_fatal(problem)
        if self.followers is not None:
            self.followers.end_idle()
        return ControlResponse(NONE, errors)

    async def _make_logs(self, states: Sequence[LeaderAndIsrPartition]) -> None:
        """Those of new partitions, in the threads of their directories: a disk may take its time.

        Roles are given by one request at a time, so that nobody else makes or deletes these logs meanwhile.
        """
        manager = self._require_manager()
        new = {
            TopicPartition(state.topic, state.partition): state
            for state in states
            if state.is_new and state.topic_id != ZERO_ID and self._broker_id in state.info.replicas
        }
        by_directory: dict[str, list[Work]] = {}
        for key, state in new.items():
            if self._registry.get(key.topic, key.partition) is None:
                leads = state.info.leader == self._broker_id
                work = manager.creation(key, state.topic_id, state.info.leader_epoch if leads else NO_EPOCH)
                if work is not None:
                    by_directory.setdefault(work.directory, []).append(work)
        loop = asyncio.get_running_loop()
        for directory, works in by_directory.items():
            for finish in await loop.run_in_executor(manager.executor_of(directory), _act, works):
                if finish is not None:
                    finish()

    def _take_role(self, state: LeaderAndIsrPartition) -> int:
        """Lead or follow one partition; the error that the controller is told, which is none for what is known."""
        info = state.info
        partition = self._registry.get(state.topic, state.partition)
        if partition is not None and self._is_left_behind(partition, state.topic_id):
            self._end_role(partition)
            self._remove(partition)
            partition = None
        if partition is not None:
            if state.topic_id not in (ZERO_ID, partition.topic_id):
                if partition.topic_id != ZERO_ID:
                    return InconsistentTopicIdError.code
                self._assign_topic_id(partition, state.topic_id)
            if info.leader_epoch < partition.leader_epoch:
                return StaleControllerEpochError.code
            if info.leader_epoch == partition.leader_epoch:
                return self._storage_error(partition)
        if self._broker_id not in info.replicas:
            if partition is not None:
                self._end_role(partition)
            return UnknownTopicOrPartitionError.code
        if partition is None:
            meter = self._meters.setdefault(state.topic, TopicMetrics())
            key = TopicPartition(state.topic, state.partition)
            # An older controller knows of no ids, and the log may have one from a newer one.
            known = self._require_manager().topic_id(key)
            if known is not None and ZERO_ID not in (known, state.topic_id) and known != state.topic_id:
                # Its replica was moved away while nobody could tell this broker, and then the topic was deleted.
                log.warning("%s: the log of an earlier topic of this name is set aside", key)
                try:
                    self._require_manager().mark_stray(key)
                except KafkaStorageError as problem:
                    log.error("%s is not served: %s", key, problem.message)
                    return problem.code
                known = None
            topic_id = known if known is not None and state.topic_id == ZERO_ID else state.topic_id
            partition = Partition(
                state.topic, state.partition, topic_id, self._broker_id, meter, self.replication_context
            )
            partition.epoch_unwritten = not state.is_new and self.epochs_lag()
            try:
                self._open_unless_lost(partition, state)
            except InconsistentTopicIdError as problem:
                log.error("%s is not served: %s", key, problem.message)
                return problem.code
            self._registry.add(partition)
        elif TopicPartition(state.topic, state.partition) in self._lost:
            self._open_unless_lost(partition, state)
        partition.is_reassigning = info.reassigning
        partition.is_adding = self._broker_id in info.adding
        role = info.leader, info.leader_epoch, info.isr, info.replicas, info.partition_epoch
        try:
            partition.update_leader_and_isr(*role)
        except StorageFault as fault:
            # Its directory is offline now, and the partition without a log.
            self._require_manager().failures.fail(fault)
            partition.update_leader_and_isr(*role)
        if info.leader_recovery_state and info.leader == self._broker_id:
            # As in Kafka 3.9 there is nothing to recover: the state ends with the next change of the ISR.
            log.warning(
                "%s was elected though it was not in sync (unclean.leader.election.enable): records that only other "
                "replicas had are lost",
                TopicPartition(state.topic, state.partition),
            )
        self._leadership_changed(partition)
        self._follow(partition, unclean=bool(info.leader_recovery_state))
        return self._storage_error(partition)

    def _is_left_behind(self, partition: Partition, topic_id: bytes) -> bool:
        """Of an earlier topic of this name: its replica was moved away while nobody could tell this broker, and then
        the topic was deleted. Not before that is announced: a request that names another id may be a late one."""
        return partition.topic_id in self._deleted_ids and topic_id not in (ZERO_ID, partition.topic_id)

    def _assign_topic_id(self, partition: Partition, topic_id: bytes) -> None:
        """A newer controller has taken over from one that knew of no ids; the leader epoch may be as before."""
        try:
            if partition.log is not None:
                self._require_manager().assign_topic_id(TopicPartition(partition.topic, partition.index), topic_id)
        except KafkaStorageError as problem:
            log.error("%s-%d stays without its topic id: %s", partition.topic, partition.index, problem.message)
            return
        self._registry.assign_topic_id(partition, topic_id)
        # Its fetches name the id from now on.
        self._follow(partition)

    def _follow(self, partition: Partition, *, unclean: bool = False) -> None:
        """Copy the partition from its leader, where there is another one; else no more."""
        if self.followers is None:
            return
        if partition.log is None or partition.leader in (self._broker_id, NO_BROKER):
            self.followers.unfollow(TopicPartition(partition.topic, partition.index))
        else:
            self.followers.follow(partition, unclean=unclean)

    def _storage_error(self, partition: Partition) -> int:
        """None where the log comes once there is room on the disk: to the controller the replica is not lost."""
        is_lost = partition.log is None and TopicPartition(partition.topic, partition.index) not in self._unopened
        return KafkaStorageError.code if is_lost else NONE

    async def stop_replicas(self, request: StopReplica) -> ControlResponse:
        error = self._epochs.check(request)
        if error != NONE:
            return ControlResponse(error)
        time_slice = TimeSlice()
        errors: dict[TopicPartition, int] = {}
        for each in request.partitions:
            key = TopicPartition(each.topic, each.partition)
            try:
                errors[key] = self._stop_replica(key, each)
            except FatalError as problem:
                self.on_fatal(problem)
                errors[key] = KafkaStorageError.code
            await time_slice.yield_if_over()
        if self.followers is not None:
            self.followers.end_idle()
        return ControlResponse(NONE, errors)

    def _stop_replica(self, key: TopicPartition, wanted: StopReplicaPartition) -> int:
        partition = self._registry.get(key.topic, key.partition)
        if partition is not None:
            if 0 <= wanted.leader_epoch < partition.leader_epoch:
                return FencedLeaderEpochError.code
            self._end_role(partition)
        if wanted.delete:
            return self._delete(key, partition)
        return KafkaStorageError.code if partition is not None and partition.log is None else NONE

    def _delete(self, key: TopicPartition, partition: Partition | None) -> int:
        """Also of a partition that is not held: its deletion may have been decided while this broker was down."""
        self._lost.discard(key)
        if partition is not None:
            self._remove(partition)
        try:
            self._require_manager().delete(key)
        except KafkaStorageError as problem:
            log.warning("deleting %s: %s", key, problem.message)
            return problem.code
        return NONE

    def _remove(self, partition: Partition) -> None:
        self._registry.remove(partition.topic, partition.index)
        # What a thread still unpacks for it is refused.
        partition.lose_log()
        if not self._registry.partitions_of(partition.topic):
            self._meters.pop(partition.topic, None)
            self._retention_warnings.pop(partition.topic, None)
            self._deleted_ids.discard(partition.topic_id)

    def _end_role(self, partition: Partition) -> None:
        partition.stop()
        self._leadership_changed(partition)
        self._follow(partition)

    def _leadership_changed(self, partition: Partition) -> None:
        for listener in self.on_leadership_change:
            listener(partition)

    # Logs

    def _open_unless_lost(self, partition: Partition, state: LeaderAndIsrPartition) -> None:
        """An empty log must not stand for one that is counted on as in sync, and that is gone with its disk.

        Out of the ISR it copies the leader's, and an unclean election says that whatever is lost is lost.
        """
        key = TopicPartition(partition.topic, partition.index)
        info = state.info
        lost = (
            not state.is_new
            and len(info.replicas) > 1
            and self._broker_id in info.isr
            and self._require_manager().is_lost(key, partition.topic_id)
        )
        if not lost or info.leader_recovery_state or self.settings_of(partition.topic).unclean_leader_election_enable:
            if lost:
                log.warning("%s begins with an empty log, as unclean elections are allowed: its records are lost", key)
            self._lost.discard(key)
            self._open(partition, state.is_new)
            return
        if key not in self._lost:
            others = [each for each in info.replicas if each != self._broker_id]
            log.error(
                "%s stays offline here: this broker is in its ISR %s, but its log was lost when a data directory was "
                "replaced. Start those of the brokers %s that have its records; if none has all of them, accept the "
                "loss with an unclean election (`kafka-leader-election.sh --election-type unclean`, or "
                "`Admin.elect_leaders`)",
                key,
                list(info.isr),
                others,
            )
        self._lost.add(key)

    def _open(self, partition: Partition, is_new: bool) -> None:
        manager = self._require_manager()
        key = TopicPartition(partition.topic, partition.index)
        try:
            # An old partition without a log may lie in a directory that is offline: an empty log must not replace it.
            partition.log = manager.create(key, topic_id=partition.topic_id, is_new=is_new)
        except KafkaStorageError as problem:
            fault = problem.__cause__
            if isinstance(fault, StorageFault) and is_disk_full(fault):
                self._unopened[key] = partition
            log.error("%s stays offline: %s", key, problem.message)
            return
        settings = self.settings_of(partition.topic)
        if partition.log.settings != settings:
            # They have changed since it was opened.
            partition.log.update_settings(settings)
        partition.update_throttles()
        if not self._sync_if_asked(partition.log, partition.topic):
            partition.log = None

    def retry_unopened_logs(self) -> Job:
        """Tries again to make or open the logs for which there was no room."""
        return Job("open-logs", lambda: _OPEN_POLL, _OPEN_POLL, self._retry_unopened_logs)

    def _retry_unopened_logs(self) -> Iterator[None]:
        waiting = list(self._unopened.items())
        for key, partition in waiting:
            del self._unopened[key]
            if self._registry.get(key.topic, key.partition) is not partition:
                continue
            # It is known to be in no directory that is offline: there was just no room.
            self._open(partition, is_new=True)
            if partition.log is not None:
                log.info("%s is back: there is room for its log", key)
                if partition.leader == self._broker_id:
                    partition.log.begin_leader_epoch(partition.leader_epoch)
                    partition.begin_leading()
                    self._leadership_changed(partition)
                self._follow(partition)
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

    # Settings

    async def image_changed(self, image: ClusterImage, delta: ImageDelta) -> None:
        time_slice = TimeSlice()
        for entity in [*delta.configs_changed, *delta.configs_deleted]:
            self._config_changed(entity)
            await time_slice.yield_if_over()
        self._deleted_ids.update(
            topic.topic_id
            for topic in delta.topics_deleted
            if topic.topic_id != ZERO_ID and self._registry.partitions_of(topic.name)
        )
        held = [topic.name for topic in delta.topics_created if self._registry.partitions_of(topic.name)]
        # One of those without settings of its own stands for all of them.
        plain = next((name for name in held if not image.topic_config(name)), None)
        for name in held:
            if name is plain or image.topic_config(name):
                self._check_settings(name, self.settings_of(name))

    def _config_changed(self, entity: str) -> None:
        kind, _, name = entity.partition("/")
        if kind == "topics":
            self._update_logs(name)
        elif kind == "brokers":
            image = self._cache.image
            self._settings.apply_dynamic(image.default_broker_config(), image.broker_config(self._broker_id))

    def _broker_settings_changed(self, settings: BrokerSettings, keys: list[str]) -> None:
        """Topics inherit broker settings: every log gets its effective ones anew."""
        self.apply_rates(settings)
        if all(key in _RATES for key in keys):
            return
        for topic in self._registry.topics():
            self._update_logs(topic)

    def _update_logs(self, topic: str) -> None:
        held = self._registry.partitions_of(topic)
        if not held:
            return
        settings = self.settings_of(topic)
        for partition in held:
            if partition.log is not None:
                partition.log.update_settings(settings)
                self._update_throttles(partition)
        self._check_settings(topic, settings)

    def _update_throttles(self, partition: Partition) -> None:
        before = partition.follower_throttled
        partition.update_throttles()
        if partition.follower_throttled != before and self.followers is not None:
            self.followers.throttle_changed(TopicPartition(partition.topic, partition.index))

    def _check_settings(self, topic: str, settings: LogSettings) -> None:
        self._check_retention(topic, settings)
        own = self._cache.image.topic_config(topic).get("message.format.version")
        problem = None if own is None else format_without_effect(own, self._settings.current)
        if problem is None:
            self._format_warnings.pop(topic, None)
        elif self._format_warnings.get(topic) != problem:
            self._format_warnings[topic] = problem
            log.warning("topic %s: %s", topic, problem)

    def _check_retention(self, topic: str, settings: LogSettings) -> None:
        """Once for each topic and each change; ten thousand topics that only inherit are worth one line."""
        inherits = _RETENTION_KEYS.isdisjoint(self._cache.image.topic_config(topic))
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
                partition.lose_log()
                self._follow(partition)

    def _log_moved(self, key: TopicPartition, moved: UnifiedLog) -> None:
        partition = self._registry.get(key.topic, key.partition)
        if partition is not None:
            # A copy that was found at start was opened before anybody knew the topic's settings.
            moved.update_settings(self.settings_of(key.topic))
            partition.replace_log(moved)

    def _log_start_moved(self, key: TopicPartition) -> None:
        partition = self._registry.get(key.topic, key.partition)
        if partition is not None:
            partition.log_start_moved()

    def _require_manager(self) -> LogManager:
        if self._manager is None:
            raise RuntimeError("the log manager is attached before the first image arrives")
        return self._manager
