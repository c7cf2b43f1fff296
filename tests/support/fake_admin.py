"""A cluster in memory behind the calls of `Admin` with which replicas are moved."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any, cast

from braidlog.client.admin import (
    Admin,
    BrokerDescription,
    ClusterDescription,
    ConfigEntry,
    ConfigResource,
    ConfigSource,
    ConfigType,
    ListedTopic,
    LogDir,
    PartitionDescription,
    Reassignment,
    Replica,
    ReplicaInfo,
    ResourceType,
    Results,
    TopicDescription,
)
from braidlog.core.protocol_errors import (
    BrokerNotAvailableError,
    ElectionNotNeededError,
    InvalidReplicaAssignmentError,
    UnknownTopicOrPartitionError,
)
from braidlog.core.types import TopicPartition


class FakeCluster:
    def __init__(self, replicas: Mapping[TopicPartition, tuple[int, ...]], brokers: Iterable[int]) -> None:
        self.brokers = set(brokers)
        self.replicas = dict(replicas)
        self.leaders = {each: brokers[0] for each, brokers in self.replicas.items()}
        self.moving: dict[TopicPartition, Reassignment] = {}
        self.sizes: dict[tuple[TopicPartition, int], int] = {}
        self.configs: dict[ConfigResource, dict[str, str]] = {}
        self.directories: dict[Replica, str] = {}
        # In the order in which they were done.
        self.calls: list[str] = []

    @property
    def admin(self) -> Admin:
        return cast("Admin", self)

    @property
    def brokers_by_id(self) -> dict[int, None]:
        return dict.fromkeys(sorted(self.brokers))

    def finish(self, partition: TopicPartition) -> None:
        """The brokers have copied it."""
        moving = self.moving.pop(partition)
        self.replicas[partition] = tuple(each for each in moving.replicas if each not in moving.removing)
        if self.leaders[partition] not in self.replicas[partition]:
            self.leaders[partition] = self.replicas[partition][0]

    def finish_all(self) -> None:
        for each in list(self.moving):
            self.finish(each)

    def throttles(self) -> dict[str, dict[str, str]]:
        return {str(resource): each for resource, each in self.configs.items() if each}

    # The calls of Admin

    def list_topics(self) -> list[ListedTopic]:
        return [ListedTopic(name, None, False, 1, 1) for name in sorted({each.topic for each in self.replicas})]

    def describe_topics(self, topics: Collection[str] | None = None) -> Results[Any, TopicDescription]:
        names = sorted({each.topic for each in self.replicas}) if topics is None else topics
        return Results({name: self._topic(name) for name in names})

    def _topic(self, name: str) -> TopicDescription | UnknownTopicOrPartitionError:
        found = [
            PartitionDescription(each.partition, self.leaders[each], 0, brokers, brokers, ())
            for each, brokers in sorted(self.replicas.items())
            if each.topic == name
        ]
        return TopicDescription(name, None, False, tuple(found)) if found else UnknownTopicOrPartitionError(name)

    def list_partition_reassignments(self) -> dict[TopicPartition, Reassignment]:
        return dict(sorted(self.moving.items()))

    def alter_partition_reassignments(
        self, targets: Mapping[TopicPartition, list[int] | None]
    ) -> Results[TopicPartition, None]:
        outcomes: dict[TopicPartition, Any] = {}
        for each, wanted in targets.items():
            outcomes[each] = None
            before = self.replicas[each]
            if wanted is None:
                self.calls.append(f"cancel {each}")
                self.moving.pop(each, None)
            elif not self.brokers.issuperset(wanted):
                outcomes[each] = InvalidReplicaAssignmentError(f"{each}: unknown brokers")
            else:
                self.calls.append(f"move {each}")
                adding = tuple(broker for broker in wanted if broker not in before)
                removing = tuple(broker for broker in before if broker not in wanted)
                self.moving[each] = Reassignment((*wanted, *removing), adding, removing)
        return Results(outcomes)

    def describe_cluster(self) -> ClusterDescription:
        brokers = [BrokerDescription(each, f"host{each}", 9092, None) for each in sorted(self.brokers)]
        return ClusterDescription("id", min(self.brokers), tuple(brokers), None)

    def describe_log_dirs(
        self, broker_ids: Collection[int] | None = None, *, partitions: Collection[TopicPartition] | None = None
    ) -> Results[int, tuple[LogDir, ...]]:
        outcomes: dict[int, Any] = {}
        for broker in self.brokers if broker_ids is None else broker_ids:
            held = {
                each: ReplicaInfo(size, 0, False)
                for (each, at), size in self.sizes.items()
                if at == broker and (partitions is None or each in partitions)
            }
            alive = broker in self.brokers
            outcomes[broker] = (LogDir("/d", None, held, None, None),) if alive else BrokerNotAvailableError("down")
        return Results(outcomes)

    def describe_configs(
        self, resources: Collection[ConfigResource], *, names: Collection[str], synonyms: bool = True
    ) -> Results[ConfigResource, dict[str, ConfigEntry]]:
        return Results({each: self._entries(each, names) for each in resources})

    def _entries(self, resource: ConfigResource, names: Collection[str]) -> dict[str, ConfigEntry]:
        own = ConfigSource.DYNAMIC_TOPIC if resource.type == ResourceType.TOPIC else ConfigSource.DYNAMIC_BROKER
        set_ = self.configs.get(resource, {})
        return {
            name: ConfigEntry(
                name,
                set_.get(name, ""),
                own if name in set_ else ConfigSource.DEFAULT,
                False,
                False,
                ConfigType.LIST,
                (),
                None,
            )
            for name in names
        }

    def alter_configs(
        self, changes: Mapping[ConfigResource, Mapping[str, str | None]]
    ) -> Results[ConfigResource, None]:
        for resource, values in changes.items():
            self.calls.append(f"configure {resource}")
            own = self.configs.setdefault(resource, {})
            for name, value in values.items():
                if value is None:
                    own.pop(name, None)
                else:
                    own[name] = value
        return Results(dict.fromkeys(changes))

    def elect_leaders(self, partitions: Collection[TopicPartition]) -> Results[TopicPartition, None]:
        outcomes: dict[TopicPartition, Any] = {}
        for each in partitions:
            preferred = self.replicas[each][0]
            outcomes[each] = ElectionNotNeededError("") if self.leaders[each] == preferred else None
            self.leaders[each] = preferred
        return Results(outcomes)

    def alter_replica_log_dirs(self, targets: Mapping[Replica, str]) -> Results[Replica, None]:
        outcomes: dict[Replica, Any] = {}
        for each, path in targets.items():
            self.directories[each] = path
            is_there = each.broker_id in self.replicas[each.place]
            outcomes[each] = None if is_there else UnknownTopicOrPartitionError("not here yet")
        return Results(outcomes)
