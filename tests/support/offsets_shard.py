"""The offset store as a shard of its own, with groups that say what a test wants them to."""

from __future__ import annotations

from collections.abc import Iterable

from braidlog.coordinator.deadlines import Deadlines, GroupDeadline
from braidlog.coordinator.effects import Caller, Effects, Moment, Responder
from braidlog.coordinator.group.group import Group, Kind
from braidlog.coordinator.group.offset_metadata_manager import OffsetMetadataManager
from braidlog.coordinator.group.settings import GroupSettings
from braidlog.coordinator.group.topics import TopicFacts
from braidlog.coordinator.shard import ReplayedRecord
from braidlog.core.protocol_errors import ProtocolError
from braidlog.wire.generated.group_records import GroupMetadataKey
from braidlog.wire.generated.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from braidlog.wire.generated.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from braidlog.wire.generated.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from braidlog.wire.generated.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from braidlog.wire.version_prefix import read_version_prefix, reader_after_version, version_prefixed_bytes
from support.responders import RecordingResponder, ShardDriver

GROUP_KEY_VERSION = 2
LATEST_COMMIT = 9


class PlainGroup:
    """Agrees to everything, unless a test gave it something to raise."""

    def __init__(self, group_id: str) -> None:
        self.group_id = group_id
        self.empty = True
        self.subscribed: set[str] = set()
        self.ageless = False
        self.age_from_ms: int | None = None
        self.refuses: ProtocolError | None = None
        self.asked: list[tuple[object, ...]] = []

    @property
    def kind(self) -> Kind:
        return "classic"

    def state_name(self) -> str:
        return "Empty" if self.empty else "Stable"

    def is_empty(self) -> bool:
        return self.empty

    def _asked(self, *question: object) -> None:
        self.asked.append(question)
        if self.refuses is not None:
            raise self.refuses

    def validate_offset_commit(
        self, member_id: str, instance_id: str | None, generation: int, transactional: bool, version: int
    ) -> None:
        self._asked("commit", member_id, instance_id, generation, transactional, version)

    def validate_offset_fetch(self, member_id: str | None, member_epoch: int) -> None:
        self._asked("fetch", member_id, member_epoch)

    def validate_offset_delete(self) -> None:
        self._asked("delete")

    def validate_delete(self) -> None:
        self._asked("delete group")

    def is_subscribed_to(self, topic: str) -> bool:
        return topic in self.subscribed

    def offsets_age_from(self, commit_timestamp_ms: int) -> int | None:
        if self.ageless:
            return None
        return commit_timestamp_ms if self.age_from_ms is None else self.age_from_ms

    def write_tombstones(self, effects: Effects) -> None:
        effects.write(version_prefixed_bytes(GroupMetadataKey(group=self.group_id), GROUP_KEY_VERSION), None)


class FewTopics:
    """The topics that a test names, each with three partitions."""

    def __init__(self, *names: str) -> None:
        self.there = dict.fromkeys(names)

    def get(self, name: str) -> TopicFacts | None:
        return TopicFacts(self.id_of(name), 3) if name in self.there else None

    def id_of(self, name: str) -> bytes:
        return name.encode()[:16].ljust(16, b".")

    def name_of(self, topic_id: bytes) -> str | None:
        return next((name for name in self.there if self.id_of(name) == topic_id), None)

    def names(self) -> Iterable[str]:
        return list(self.there)

    def racks_of(self, name: str, partition: int) -> frozenset[str]:
        return frozenset()


class OffsetsShard:
    def __init__(self, settings: GroupSettings, topics: FewTopics) -> None:
        self.groups: dict[str, Group] = {}
        self.deadlines: Deadlines[GroupDeadline] = Deadlines()
        self.heard: list[tuple[str, str]] = []
        self.offsets = OffsetMetadataManager(
            self.groups, self.deadlines, lambda: settings, topics, PlainGroup, self._heard_from
        )

    def _heard_from(self, group: Group, member_id: str, now: Moment) -> None:
        self.heard.append((group.group_id, member_id))

    def group(self, group_id: str) -> PlainGroup:
        """A group that is there whether or not anything was committed."""
        group = self.groups.setdefault(group_id, PlainGroup(group_id))
        assert isinstance(group, PlainGroup)
        return group

    def delete_group(self, group_id: str, responder: Responder, now: Moment) -> Effects:
        effects = Effects()
        self.offsets.tombstone_all(group_id, effects)
        self.groups[group_id].write_tombstones(effects)
        return effects

    def replay(self, record: ReplayedRecord) -> None:
        version = read_version_prefix(record.key)
        key = reader_after_version(record.key)
        if version == GROUP_KEY_VERSION:
            assert record.value is None
            self.groups.pop(GroupMetadataKey.decode(key, version).group, None)
        else:
            self.offsets.replay(version, key, record.value, record)

    def replay_end_transaction_marker(self, producer_id: int, producer_epoch: int, commits: bool) -> None:
        self.offsets.replay_end_transaction_marker(producer_id, producer_epoch, commits)

    def on_loaded(self, now: Moment) -> Effects:
        effects = Effects()
        self.offsets.on_loaded(now, effects)
        return effects

    def next_deadline(self) -> float | None:
        return self.deadlines.next()

    def expire(self, now: Moment) -> Effects:
        effects = Effects()
        for key in self.deadlines.pop_due(now.monotonic):
            self.offsets.on_deadline(key, now, effects)
        return effects

    def on_unloaded(self, error: ProtocolError) -> Effects:
        return Effects()

    def durable_state(self) -> object:
        return {"groups": sorted(self.groups), "offsets": self.offsets.durable_state()}


class OffsetsDriver(ShardDriver[OffsetsShard]):
    """Requests in few words."""

    def __init__(self, *topics: str, settings: GroupSettings | None = None) -> None:
        self.topics = FewTopics(*topics)
        chosen = settings or GroupSettings()
        super().__init__(lambda: OffsetsShard(chosen, self.topics))

    def commit(
        self,
        group_id: str,
        topic: str,
        partition: int,
        offset: int,
        *,
        metadata: str | None = "",
        version: int = LATEST_COMMIT,
        generation: int = -1,
        member_id: str = "",
        leader_epoch: int = -1,
        retention_ms: int = -1,
        timestamp_ms: int = -1,
    ) -> RecordingResponder:
        wanted = OffsetCommitRequestPartition(
            partition_index=partition,
            committed_offset=offset,
            committed_metadata=metadata,
            committed_leader_epoch=leader_epoch,
            commit_timestamp=timestamp_ms,
        )
        request = OffsetCommitRequest(
            group_id=group_id,
            generation_id_or_member_epoch=generation,
            member_id=member_id,
            retention_time_ms=retention_ms,
            topics=[OffsetCommitRequestTopic(name=topic, partitions=[wanted])],
        )
        caller = Caller(version, "test", "/127.0.0.1")
        return self.submit(lambda shard, responder, now: shard.offsets.commit_offsets(request, caller, responder, now))

    def commit_txn(
        self,
        producer_id: int,
        group_id: str,
        offsets: dict[tuple[str, int], int],
        *,
        metadata: str | None = "",
        generation: int = -1,
        member_id: str = "",
        producer_epoch: int = 0,
    ) -> RecordingResponder:
        request = TxnOffsetCommitRequest(
            transactional_id=f"txn-{producer_id}",
            group_id=group_id,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            generation_id=generation,
            member_id=member_id,
            topics=[
                TxnOffsetCommitRequestTopic(
                    name=topic,
                    partitions=[
                        TxnOffsetCommitRequestPartition(
                            partition_index=partition, committed_offset=offset, committed_metadata=metadata
                        )
                    ],
                )
                for (topic, partition), offset in offsets.items()
            ],
        )
        caller = Caller(3, "test", "/127.0.0.1")
        return self.submit(
            lambda shard, responder, now: shard.offsets.commit_txn_offsets(request, caller, responder, now)
        )

    def fetch(
        self,
        group_id: str,
        wanted: dict[str, list[int]] | None = None,
        *,
        stable: bool = False,
        member_id: str | None = None,
        member_epoch: int = -1,
    ) -> RecordingResponder:
        topics = None
        if wanted is not None:
            topics = [
                OffsetFetchRequestTopics(name=topic, partition_indexes=indexes) for topic, indexes in wanted.items()
            ]
        group = OffsetFetchRequestGroup(
            group_id=group_id, member_id=member_id, member_epoch=member_epoch, topics=topics
        )
        request = OffsetFetchRequest(groups=[group], require_stable=stable)
        caller = Caller(9, "test", "/127.0.0.1")
        return self.submit(lambda shard, responder, now: shard.offsets.fetch_offsets(request, caller, responder, now))

    def offsets_of(self, group_id: str) -> dict[tuple[str, int], int]:
        """Everything that is committed for the group."""
        answer = self.fetch(group_id).response.groups[0]
        return {(t.name, p.partition_index): p.committed_offset for t in answer.topics for p in t.partitions}

    def delete(self, group_id: str, wanted: dict[str, list[int]]) -> RecordingResponder:
        request = OffsetDeleteRequest(
            group_id=group_id,
            topics=[
                OffsetDeleteRequestTopic(
                    name=topic, partitions=[OffsetDeleteRequestPartition(partition_index=index) for index in indexes]
                )
                for topic, indexes in wanted.items()
            ],
        )
        caller = Caller(0, "test", "/127.0.0.1")
        return self.submit(lambda shard, responder, now: shard.offsets.delete_offsets(request, caller, responder, now))

    def delete_group(self, group_id: str) -> None:
        self.submit(lambda shard, responder, now: shard.delete_group(group_id, responder, now))

    def delete_topic(self, name: str) -> None:
        self.topics.there.pop(name, None)
        self.apply(self.shard.offsets.topics_deleted([name], self.now))
