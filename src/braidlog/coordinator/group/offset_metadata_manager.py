"""The offsets that groups committed: commit, fetch, delete, inside of transactions and outside.

A commit only decides what is written; `replay` is where an offset comes to count, at once or, inside of a transaction,
when its marker says so.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from braidlog.coordinator.deadlines import Deadlines, GroupDeadline
from braidlog.coordinator.effects import Caller, Effects, Moment, Responder
from braidlog.coordinator.group.group import Group
from braidlog.coordinator.group.offset_cleanup import OffsetCleanup
from braidlog.coordinator.group.offset_records import (
    NO_EXPIRY,
    OffsetAndMetadata,
    offset_key,
    offset_value,
    read_offset_value,
    text_units,
)
from braidlog.coordinator.group.offset_table import OffsetTable, PendingOffsets
from braidlog.coordinator.group.settings import GroupSettings
from braidlog.coordinator.group.topics import Topics
from braidlog.coordinator.shard import ReplayedRecord
from braidlog.core.protocol_errors import (
    NONE,
    GroupIdNotFoundError,
    GroupSubscribedToTopicError,
    IllegalGenerationError,
    InvalidGroupIdError,
    OffsetMetadataTooLargeError,
    StaleMemberEpochError,
    UnstableOffsetCommitError,
)
from braidlog.wire.generated.group_records import OffsetCommitKey
from braidlog.wire.generated.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from braidlog.wire.generated.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestTopic,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)
from braidlog.wire.generated.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopics,
)
from braidlog.wire.generated.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)
from braidlog.wire.reader import Reader

# From here on clients know GROUP_ID_NOT_FOUND as the answer to a commit (KIP-848).
_COMMIT_MAY_SAY_NO_GROUP: Final = 9
NO_OFFSET: Final = -1
# The last time that fits into a record.
_END_OF_TIME_MS: Final = 2**63 - 1

# A member of a group committed, which proves that it is alive as a heartbeat does.
ExtendSession = Callable[[Group, str, Moment], None]


def _ignore(group: Group, member_id: str, now: Moment) -> None:
    pass


class OffsetMetadataManager:
    """The offsets of one shard. `make_simple_group` gives the empty group of a consumer that only commits."""

    def __init__(
        self,
        groups: dict[str, Group],
        deadlines: Deadlines[GroupDeadline],
        settings: Callable[[], GroupSettings],
        topics: Topics,
        make_simple_group: Callable[[str], Group],
        extend_session: ExtendSession = _ignore,
    ) -> None:
        self._groups = groups
        self._settings = settings
        self._make_simple_group = make_simple_group
        self._extend_session = extend_session
        self._committed = OffsetTable()
        self._pending = PendingOffsets()
        self._cleanup = OffsetCleanup(groups, self._committed, self._pending, deadlines, settings, topics)
        # The offset of the newest record that was replayed.
        self._newest_record = -1

    @property
    def count(self) -> int:
        """Committed offsets, for the metrics page."""
        return self._committed.count

    # Requests

    def commit_offsets(
        self, request: OffsetCommitRequest, caller: Caller, responder: Responder, now: Moment
    ) -> Effects:
        group_id = request.group_id
        generation = request.generation_id_or_member_epoch
        group = self._groups.get(group_id)
        if group is not None:
            group.validate_offset_commit(
                request.member_id, request.group_instance_id, generation, False, caller.version
            )
            self._extend_session(group, request.member_id, now)
        elif generation >= 0:
            if caller.version >= _COMMIT_MAY_SAY_NO_GROUP:
                raise GroupIdNotFoundError(f"there is no group {group_id!r}")
            raise IllegalGenerationError(f"there is no group {group_id!r}, so no generation {generation} of it")
        effects = Effects()
        expires = NO_EXPIRY
        if request.retention_time_ms != -1:
            expires = min(now.wall_ms + request.retention_time_ms, _END_OF_TIME_MS)
        topics: list[OffsetCommitResponseTopic] = []
        for topic in request.topics:
            answers: list[OffsetCommitResponsePartition] = []
            for wanted in topic.partitions:
                code = self._check_metadata(wanted.committed_metadata)
                if code == NONE:
                    effects.write(
                        offset_key(group_id, topic.name, wanted.partition_index),
                        offset_value(
                            wanted.committed_offset,
                            wanted.committed_leader_epoch,
                            wanted.committed_metadata or "",
                            _committed_at(wanted, now),
                            expires,
                        ),
                    )
                answers.append(OffsetCommitResponsePartition(partition_index=wanted.partition_index, error_code=code))
            topics.append(OffsetCommitResponseTopic(name=topic.name, topic_id=topic.topic_id, partitions=answers))
        effects.reply(responder, OffsetCommitResponse(topics=topics))
        return effects

    def commit_txn_offsets(
        self, request: TxnOffsetCommitRequest, caller: Caller, responder: Responder, now: Moment
    ) -> Effects:
        """The transaction itself was checked by its coordinator; here the group is (KIP-447)."""
        group_id = request.group_id
        if not group_id:
            raise InvalidGroupIdError("offsets are committed for a group; its id is empty")
        group = self._groups.get(group_id)
        if group is not None:
            try:
                group.validate_offset_commit(
                    request.member_id, request.group_instance_id, request.generation_id, True, caller.version
                )
            except StaleMemberEpochError as error:
                # Producers know generations only.
                raise IllegalGenerationError(error.message) from error
        elif request.generation_id >= 0:
            raise IllegalGenerationError(f"there is no group {group_id!r}")
        effects = Effects()
        effects.producer_id = request.producer_id
        effects.producer_epoch = request.producer_epoch
        topics: list[TxnOffsetCommitResponseTopic] = []
        for topic in request.topics:
            answers: list[TxnOffsetCommitResponsePartition] = []
            for wanted in topic.partitions:
                index = wanted.partition_index
                code = self._check_metadata(wanted.committed_metadata)
                if code == NONE:
                    value = offset_value(
                        wanted.committed_offset,
                        wanted.committed_leader_epoch,
                        wanted.committed_metadata or "",
                        now.wall_ms,
                        NO_EXPIRY,
                    )
                    effects.write(offset_key(group_id, topic.name, index), value)
                answers.append(TxnOffsetCommitResponsePartition(partition_index=index, error_code=code))
            topics.append(TxnOffsetCommitResponseTopic(name=topic.name, partitions=answers))
        effects.reply(responder, TxnOffsetCommitResponse(topics=topics))
        return effects

    def fetch_offsets(self, request: OffsetFetchRequest, caller: Caller, responder: Responder, now: Moment) -> Effects:
        """One group, in the form that version 8 gave to request and response."""
        effects = Effects()
        answers = [self._fetch_group(group, request.require_stable) for group in request.groups]
        effects.reply(responder, OffsetFetchResponse(groups=answers))
        return effects

    def _fetch_group(self, wanted: OffsetFetchRequestGroup, require_stable: bool) -> OffsetFetchResponseGroup:
        """A group that is not there has no offsets, which is no error; a member that is not raises."""
        if not self._has_member(wanted):
            partitions = [] if wanted.topics is None else [(t.name, t.partition_indexes) for t in wanted.topics]
            return OffsetFetchResponseGroup(
                group_id=wanted.group_id,
                topics=[
                    OffsetFetchResponseTopics(name=name, partitions=[_partition(index, None) for index in indexes])
                    for name, indexes in partitions
                ],
            )
        if wanted.topics is None:
            asked = [(topic, list(offsets)) for topic, offsets in self._committed.of_group(wanted.group_id).items()]
        else:
            asked = [(topic.name, topic.partition_indexes) for topic in wanted.topics]
        return OffsetFetchResponseGroup(
            group_id=wanted.group_id,
            topics=[self._fetch_topic(wanted.group_id, topic, indexes, require_stable) for topic, indexes in asked],
        )

    def _has_member(self, wanted: OffsetFetchRequestGroup) -> bool:
        group = self._groups.get(wanted.group_id)
        if group is None:
            return False
        try:
            group.validate_offset_fetch(wanted.member_id, wanted.member_epoch)
        except GroupIdNotFoundError:
            return False
        return True

    def _fetch_topic(
        self, group_id: str, topic: str, indexes: list[int], require_stable: bool
    ) -> OffsetFetchResponseTopics:
        offsets = self._committed.of_topic(group_id, topic)
        partitions = [
            _unstable(index)
            if require_stable and self._pending.has(group_id, topic, index)
            else _partition(index, offsets.get(index))
            for index in indexes
        ]
        return OffsetFetchResponseTopics(name=topic, partitions=partitions)

    def delete_offsets(
        self, request: OffsetDeleteRequest, caller: Caller, responder: Responder, now: Moment
    ) -> Effects:
        group_id = request.group_id
        if not group_id:
            raise InvalidGroupIdError("offsets are deleted of a group; its id is empty")
        group = self._groups.get(group_id)
        if group is None:
            raise GroupIdNotFoundError(f"there is no group {group_id!r}")
        group.validate_offset_delete()
        effects = Effects()
        effects.reply(
            responder,
            OffsetDeleteResponse(topics=[self._delete(group, topic, effects) for topic in request.topics]),
        )
        return effects

    def _delete(self, group: Group, topic: OffsetDeleteRequestTopic, effects: Effects) -> OffsetDeleteResponseTopic:
        code = GroupSubscribedToTopicError.code if group.is_subscribed_to(topic.name) else NONE
        answers: dict[int, OffsetDeleteResponsePartition] = {}
        for wanted in topic.partitions:
            index = wanted.partition_index
            if index not in answers and code == NONE and self._has_any(group.group_id, topic.name, index):
                effects.write(offset_key(group.group_id, topic.name, index), None)
            answers[index] = OffsetDeleteResponsePartition(partition_index=index, error_code=code)
        return OffsetDeleteResponseTopic(name=topic.name, partitions=list(answers.values()))

    def _has_any(self, group_id: str, topic: str, partition: int) -> bool:
        return self._committed.get(group_id, topic, partition) is not None or self._pending.has(
            group_id, topic, partition
        )

    def _check_metadata(self, metadata: str | None) -> int:
        if metadata is not None and text_units(metadata) > self._settings().offset_metadata_max_bytes:
            return OffsetMetadataTooLargeError.code
        return NONE

    # What else makes offsets go

    def topics_deleted(self, names: list[str], now: Moment) -> Effects:
        effects = Effects()
        self._cleanup.topics_deleted(names, self._newest_record, now, effects)
        return effects

    def tombstone_all(self, group_id: str, effects: Effects) -> None:
        """The group is deleted: with it go its offsets, those of open transactions too."""
        for topic, partitions in self._committed.of_group(group_id).items():
            for partition in partitions:
                effects.write(offset_key(group_id, topic, partition), None)
        for topic, partition in self._pending.of_group(group_id):
            if self._committed.get(group_id, topic, partition) is None:
                effects.write(offset_key(group_id, topic, partition), None)

    # The part of a shard

    def replay(self, key_version: int, key: Reader, value: bytes | None, record: ReplayedRecord) -> None:
        place = OffsetCommitKey.decode(key, key_version)
        partition = int(place.partition)
        self._newest_record = max(self._newest_record, record.offset)
        if value is None:
            self._committed.remove(place.group, place.topic, partition)
            self._pending.drop(place.group, place.topic, partition)
            return
        offset = read_offset_value(value, record.offset)
        self._require_group(place.group)
        if record.producer_id < 0:
            self._committed.put(place.group, place.topic, partition, offset)
        else:
            self._pending.put(record.producer_id, place.group, place.topic, partition, offset)

    def replay_end_transaction_marker(self, producer_id: int, producer_epoch: int, commits: bool) -> None:
        for (group_id, topic, partition), offset in self._pending.take(producer_id):
            if not commits:
                continue
            before = self._committed.get(group_id, topic, partition)
            # A commit outside of the transaction that was written after this one is the newer word.
            if before is None or before.record_offset < offset.record_offset:
                self._require_group(group_id)
                self._committed.put(group_id, topic, partition, offset)

    def on_loaded(self, now: Moment, effects: Effects) -> None:
        self._cleanup.on_loaded(self._newest_record, now, effects)

    def on_deadline(self, key: GroupDeadline, now: Moment, effects: Effects) -> None:
        self._cleanup.on_deadline(key, now, effects)

    def durable_state(self) -> object:
        return {"committed": self._committed.durable_state(), "pending": self._pending.durable_state()}

    def _require_group(self, group_id: str) -> None:
        """What has offsets is a group, be it only one without members."""
        if group_id not in self._groups:
            self._groups[group_id] = self._make_simple_group(group_id)


def _committed_at(wanted: OffsetCommitRequestPartition, now: Moment) -> int:
    """Version 1 of OffsetCommit lets the client say when."""
    return now.wall_ms if wanted.commit_timestamp == -1 else wanted.commit_timestamp


def _partition(index: int, committed: OffsetAndMetadata | None) -> OffsetFetchResponsePartitions:
    if committed is None:
        return OffsetFetchResponsePartitions(
            partition_index=index, committed_offset=NO_OFFSET, committed_leader_epoch=-1, metadata=""
        )
    return OffsetFetchResponsePartitions(
        partition_index=index,
        committed_offset=committed.offset,
        committed_leader_epoch=committed.leader_epoch,
        metadata=committed.metadata,
    )


def _unstable(index: int) -> OffsetFetchResponsePartitions:
    """A transaction is about to change it: clients that read exactly once wait and ask again (KIP-447)."""
    return OffsetFetchResponsePartitions(
        partition_index=index,
        committed_offset=NO_OFFSET,
        committed_leader_epoch=-1,
        metadata="",
        error_code=UnstableOffsetCommitError.code,
    )
