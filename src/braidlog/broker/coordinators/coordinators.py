"""Puts the two coordinators into a broker: their logs, their settings, and what they need of the cluster's image."""

from __future__ import annotations

import asyncio
import dataclasses
import logging
import uuid
from collections.abc import Callable, Iterable, Mapping
from random import Random
from typing import TYPE_CHECKING, Final

from braidlog.broker.auto_topic_creation import AutoTopicCreation
from braidlog.broker.coordinators.add_partitions_manager import AddPartitionsToTxnManager
from braidlog.broker.coordinators.coordinator_logs import CoordinatorLogs
from braidlog.broker.coordinators.deleted_partitions import DeletedPartitions
from braidlog.broker.coordinators.early_requests import EarlyRequests
from braidlog.broker.coordinators.internal_topics import InternalTopics
from braidlog.broker.coordinators.marker_writer import MarkerDone, MarkerWriter
from braidlog.broker.coordinators.transaction_markers import TransactionMarkerManager
from braidlog.broker.dynamic_settings import DynamicBrokerSettings
from braidlog.broker.environment import Environment
from braidlog.broker.metadata_cache import MetadataCache
from braidlog.cluster.features import (
    ABORTS_TRANSACTIONS,
    DOWNGRADE,
    GROUP_VERSION,
    NEWEST,
    TRANSACTION_VERSION,
)
from braidlog.cluster.image import ClusterImage, ImageDelta, group_of
from braidlog.cluster.producer_id_manager import ProducerIdManager
from braidlog.cluster.store import CoordinationStore
from braidlog.config.broker import BrokerSettings
from braidlog.config.topic_names import OFFSETS_TOPIC, TRANSACTIONS_TOPIC
from braidlog.coordinator.effects import SendMarkers
from braidlog.coordinator.group.settings import GroupOverrides, GroupSettings
from braidlog.coordinator.group.topics import TopicFacts
from braidlog.coordinator.runtime import CoordinatorRuntime
from braidlog.coordinator.txn.transaction_metadata import TxnSettings
from braidlog.core.tasks import Tasks
from braidlog.core.timeout_queue import TimeoutQueue
from braidlog.core.types import BrokerId
from braidlog.replication.group_commit import Committer
from braidlog.replication.partition import Partition
from braidlog.replication.partition_registry import PartitionRegistry
from braidlog.storage.producers.producer_state_manager import ProducerStateManager

if TYPE_CHECKING:
    # Imported with the first shard: a broker without groups and transactions starts without them.
    from braidlog.coordinator.group.shard import GroupCoordinatorShard
    from braidlog.coordinator.txn.shard import TransactionCoordinatorShard

log = logging.getLogger("braidlog.settings")

_NOTHING: Final[Mapping[str, str]] = {}
_NO_OVERRIDES: Final[Mapping[str, GroupOverrides]] = {}


class ImageTopics:
    """The cluster's topics as groups see them."""

    def __init__(self, cache: MetadataCache) -> None:
        self._cache = cache

    def get(self, name: str) -> TopicFacts | None:
        topic = self._cache.image.topic(name)
        return None if topic is None else TopicFacts(topic.topic_id, len(topic.partitions))

    def name_of(self, topic_id: bytes) -> str | None:
        topic = self._cache.image.topic_by_id(topic_id)
        return None if topic is None else topic.name

    def names(self) -> Iterable[str]:
        return list(self._cache.image.topics)

    def racks_of(self, name: str, partition: int) -> frozenset[str]:
        topic = self._cache.image.topic(name)
        if topic is None or partition >= len(topic.partitions):
            return frozenset()
        brokers = self._cache.image.brokers
        racks = (brokers[replica].rack for replica in topic.partitions[partition].replicas if replica in brokers)
        return frozenset(rack for rack in racks if rack)


class Coordinators:
    """Both coordinators: their shards follow the leadership of partitions, and groups the topics of the cluster."""

    def __init__(
        self,
        broker_id: BrokerId,
        registry: PartitionRegistry,
        committer: Committer,
        creation: AutoTopicCreation,
        cache: MetadataCache,
        settings: DynamicBrokerSettings,
        environment: Environment,
        tasks: Tasks,
        directory_of: Callable[[Partition], str],
        producer_ids: ProducerIdManager,
        store: CoordinationStore,
        is_cluster: bool,
        is_read_by_others: Callable[[], bool],
        features: Mapping[str, int],
    ) -> None:
        """`is_read_by_others`: Kafka's brokers are in the cluster, too, or were and may come back. `features`: the
        finalised levels of now; `features_changed` tells of others."""
        self._features = features
        self._is_read_by_others = is_read_by_others
        self._broker_id = broker_id
        self._new_member_id = new_member_ids(environment.random)
        self._group_settings = group_settings(settings.current, features=features)
        self._txn_settings = txn_settings(settings.current)
        settings.on_change(self._settings_changed)
        self._registry = registry
        self._cache = cache
        # What was read before this listens.
        self._take_overrides(ImageDelta(configs_changed=dict(cache.image.configs.items())))
        self._image_topics = ImageTopics(cache)
        self.topics = InternalTopics(creation, cache, settings, tasks, is_cluster)

        def seconds(key: str) -> Callable[[], float]:
            return lambda: settings.current.get_int(key) / 1000

        request_timeout_s = seconds("request.timeout.ms")

        def logs(topic: str, read_size: str) -> CoordinatorLogs:
            return CoordinatorLogs(
                topic,
                registry,
                committer,
                environment.clock,
                environment.executors,
                directory_of,
                lambda: settings.current.get_int(read_size),
            )

        self.groups: CoordinatorRuntime[GroupCoordinatorShard] = CoordinatorRuntime(
            OFFSETS_TOPIC,
            logs(OFFSETS_TOPIC, "offsets.load.buffer.size"),
            self._make_group_shard,
            lambda: self.topics.partition_count(OFFSETS_TOPIC),
            environment.clock,
            tasks,
            lambda: settings.current.get_int("offsets.topic.compression.codec"),
            commit_timeout_s=seconds("offsets.commit.timeout.ms"),
            marker_timeout_s=request_timeout_s,
        )
        self._producer_ids = producer_ids
        self.transactions: CoordinatorRuntime[TransactionCoordinatorShard] = CoordinatorRuntime(
            TRANSACTIONS_TOPIC,
            logs(TRANSACTIONS_TOPIC, "transaction.state.log.load.buffer.size"),
            self._make_txn_shard,
            lambda: self.topics.partition_count(TRANSACTIONS_TOPIC),
            environment.clock,
            tasks,
            perform=lambda action: self.send_markers(action, self.marker_manager.track(action)),
            commit_timeout_s=request_timeout_s,
        )
        call_later = asyncio.get_running_loop().call_later
        marker_timeouts = TimeoutQueue(call_later, environment.clock.monotonic, request_timeout_s)
        self.markers = MarkerWriter(registry, committer, environment.clock, self.groups, marker_timeouts)
        # To the partitions of this broker; in a cluster also to those of others.
        self.send_markers: Callable[[SendMarkers, MarkerDone], None] = self.markers.write
        deleted = DeletedPartitions(store, tasks)
        self.marker_manager = TransactionMarkerManager(self.transactions, call_later, deleted.is_gone)
        self.add_partitions_manager = AddPartitionsToTxnManager(self.transactions, call_later)
        self.early_requests = EarlyRequests(self.transactions, call_later)

    def _make_group_shard(self, leader_epoch: int) -> GroupCoordinatorShard:
        from braidlog.coordinator.group.shard import GroupCoordinatorShard

        return GroupCoordinatorShard(lambda: self._group_settings, self._image_topics, self._new_member_id)

    def _make_txn_shard(self, leader_epoch: int) -> TransactionCoordinatorShard:
        from braidlog.coordinator.txn.records import OLDEST_VALUE_VERSION, VALUE_VERSION
        from braidlog.coordinator.txn.shard import TransactionCoordinatorShard

        return TransactionCoordinatorShard(
            lambda: self._txn_settings,
            self._producer_ids.take,
            leader_epoch,
            lambda: VALUE_VERSION if self._writes_newest_records() else OLDEST_VALUE_VERSION,
        )

    def _writes_newest_records(self) -> bool:
        return self._features.get(TRANSACTION_VERSION, 0) > 0 and not self._is_read_by_others()

    def features_changed(self, features: Mapping[str, int]) -> None:
        """What a level that went down leaves behind is written anew, so that brokers without it can read it."""
        before, self._features = self._features, features
        group_version = features.get(GROUP_VERSION, 0)
        self._group_settings = dataclasses.replace(self._group_settings, group_version=group_version)
        if group_version < before.get(GROUP_VERSION, 0):
            self.groups.submit_to_all(lambda shard, now: shard.end_consumer_protocol(now))
        if features.get(TRANSACTION_VERSION, 0) < before.get(TRANSACTION_VERSION, 0):
            self.transactions.submit_to_all(lambda shard, now: shard.write_all_again(now))
        if features.get(DOWNGRADE, 0) >= ABORTS_TRANSACTIONS > before.get(DOWNGRADE, 0):
            self.transactions.submit_to_all(lambda shard, now: shard.abort_all(now))

    def _settings_changed(self, settings: BrokerSettings, keys: list[str]) -> None:
        self._group_settings = group_settings(settings, self._group_settings.overrides, self._features)
        self._txn_settings = txn_settings(settings)

    async def image_changed(self, image: ClusterImage, delta: ImageDelta) -> None:
        """Tell groups of topics that came, grew or went."""
        # First, as a shard that is loaded gives members the sessions that their group sets.
        self._take_overrides(delta)
        for topic in delta.topics_created:
            if topic.internal:
                for partition in self._registry.partitions_of(topic.name):
                    self.leadership_changed(partition)
        if delta.topics_deleted:
            deleted = [topic.name for topic in delta.topics_deleted]
            self.groups.submit_to_all(lambda shard, now: shard.topics_deleted(deleted, now))
        if delta.topics_created or delta.topics_changed or delta.topics_deleted:
            self.groups.submit_to_all(lambda shard, now: shard.topics_changed(now))

    def _take_overrides(self, delta: ImageDelta) -> None:
        """What groups set for themselves; it counts from each member's next heartbeat on, as in Kafka."""
        changes = {**delta.configs_changed, **dict.fromkeys(delta.configs_deleted, _NOTHING)}
        found = {group_id: changes[entity] for entity in changes if (group_id := group_of(entity)) is not None}
        if not found:
            return
        overrides = {**self._group_settings.overrides}
        for group_id, texts in found.items():
            overrides.pop(group_id, None)
            if texts:
                overrides[group_id] = group_overrides(group_id, texts)
        self._group_settings = dataclasses.replace(self._group_settings, overrides=overrides)

    def leadership_changed(self, partition: Partition) -> None:
        """Load the shard of a partition that is led here now, or let go of one that is not."""
        coordinator = self._coordinator_of(partition.topic)
        if coordinator is None:
            return
        if partition.leader != self._broker_id:
            coordinator.on_resignation(partition.index)
        elif self._cache.image.topic(partition.topic) is not None:
            coordinator.on_election(partition.index, partition.leader_epoch)
        else:
            # Without the topic's partition count no name can be assigned to a shard: the cache has it in a moment.
            coordinator.on_resignation(partition.index)

    def offsets_producers(self, partition: int) -> ProducerStateManager | None:
        """Of the log of a partition of `__consumer_offsets`, where there is one."""
        held = self._registry.get(OFFSETS_TOPIC, partition)
        return None if held is None or held.log is None else held.log.producer_state

    def _coordinator_of(
        self, topic: str
    ) -> CoordinatorRuntime[GroupCoordinatorShard] | CoordinatorRuntime[TransactionCoordinatorShard] | None:
        if topic == OFFSETS_TOPIC:
            return self.groups
        return self.transactions if topic == TRANSACTIONS_TOPIC else None

    def stop(self) -> None:
        """Before the broker drains: members that wait for a rebalance are sent to look up the coordinator again."""
        self.groups.stop()
        self.transactions.stop()


def new_member_ids(random: Random) -> Callable[[], str]:
    return lambda: str(uuid.UUID(bytes=random.randbytes(16), version=4))


def group_overrides(group_id: str, texts: Mapping[str, str]) -> GroupOverrides:
    # Imported with the first group that sets something, as few do.
    from braidlog.config.group import HEARTBEAT_INTERVAL, SESSION_TIMEOUT, usable_overrides

    usable, complaints = usable_overrides(texts)
    for complaint in complaints:
        log.warning("settings of group %r: %s", group_id, complaint)
    return GroupOverrides(usable.get(SESSION_TIMEOUT), usable.get(HEARTBEAT_INTERVAL))


def assignor_names(listed: Iterable[str]) -> tuple[str, ...]:
    """What members call them; a Java class stands for the one that does the same here."""
    short = (name.rpartition(".")[2].removesuffix("Assignor").lower() for name in listed)
    return tuple(dict.fromkeys(short))


def group_settings(
    settings: BrokerSettings,
    overrides: Mapping[str, GroupOverrides] = _NO_OVERRIDES,
    features: Mapping[str, int] = NEWEST,
) -> GroupSettings:
    protocols = settings.get_list("group.coordinator.rebalance.protocols")
    policy = settings.get_str("group.consumer.migration.policy").lower()
    return GroupSettings(
        min_session_timeout_ms=settings.get_int("group.min.session.timeout.ms"),
        max_session_timeout_ms=settings.get_int("group.max.session.timeout.ms"),
        initial_rebalance_delay_ms=settings.get_int("group.initial.rebalance.delay.ms"),
        max_size=settings.get_int("group.max.size"),
        offset_metadata_max_bytes=settings.get_int("offset.metadata.max.bytes"),
        offsets_retention_ms=settings.get_int("offsets.retention.minutes") * 60_000,
        offsets_check_interval_ms=settings.get_int("offsets.retention.check.interval.ms"),
        max_batch_bytes=settings.get_int("message.max.bytes"),
        consumer_protocol="consumer" in protocols,
        group_version=features.get(GROUP_VERSION, 0),
        consumer_session_timeout_ms=settings.get_int("group.consumer.session.timeout.ms"),
        consumer_heartbeat_interval_ms=settings.get_int("group.consumer.heartbeat.interval.ms"),
        consumer_max_size=settings.get_int("group.consumer.max.size"),
        consumer_assignors=assignor_names(settings.get_list("group.consumer.assignors")),
        upgrade_allowed=policy in ("upgrade", "bidirectional"),
        downgrade_allowed=policy in ("downgrade", "bidirectional"),
        overrides=overrides,
    )


def txn_settings(settings: BrokerSettings) -> TxnSettings:
    return TxnSettings(
        max_timeout_ms=settings.get_int("transaction.max.timeout.ms"),
        id_expiration_ms=settings.get_int("transactional.id.expiration.ms"),
    )
