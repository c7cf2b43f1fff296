"""What OffsetFetch tells of a group's offsets."""

from __future__ import annotations

from typing import Final

from braidlog.coordinator.group.group import Group
from braidlog.coordinator.group.offset_records import OffsetAndMetadata
from braidlog.coordinator.group.offset_table import OffsetTable
from braidlog.coordinator.group.pending_offsets import PendingOffsets
from braidlog.core.protocol_errors import GroupIdNotFoundError, UnstableOffsetCommitError
from braidlog.wire.generated.offset_fetch import (
    OffsetFetchRequestGroup,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopics,
)

NO_OFFSET: Final = -1


class OffsetReads:
    def __init__(self, groups: dict[str, Group], committed: OffsetTable, pending: PendingOffsets) -> None:
        self._groups = groups
        self._committed = committed
        self._pending = pending

    def fetch(self, wanted: OffsetFetchRequestGroup, require_stable: bool) -> OffsetFetchResponseGroup:
        """A group that is not there has no offsets, which is no error; a member that is not raises."""
        if not self._is_there(wanted):
            partitions = [] if wanted.topics is None else [(t.name, t.partition_indexes) for t in wanted.topics]
            return OffsetFetchResponseGroup(
                group_id=wanted.group_id,
                topics=[
                    OffsetFetchResponseTopics(name=name, partitions=[_answer(index, None) for index in indexes])
                    for name, indexes in partitions
                ],
            )
        if wanted.topics is None:
            asked = [(topic, list(offsets)) for topic, offsets in self._committed.of_group(wanted.group_id).items()]
        else:
            asked = [(topic.name, topic.partition_indexes) for topic in wanted.topics]
        return OffsetFetchResponseGroup(
            group_id=wanted.group_id,
            topics=[self._topic(wanted.group_id, topic, indexes, require_stable) for topic, indexes in asked],
        )

    def _is_there(self, wanted: OffsetFetchRequestGroup) -> bool:
        group = self._groups.get(wanted.group_id)
        if group is None:
            return False
        try:
            group.validate_offset_fetch(wanted.member_id, wanted.member_epoch)
        except GroupIdNotFoundError:
            return False
        return True

    def _topic(self, group_id: str, topic: str, indexes: list[int], require_stable: bool) -> OffsetFetchResponseTopics:
        offsets = self._committed.of_topic(group_id, topic)
        partitions = [
            _unstable(index)
            if require_stable and self._pending.has(group_id, topic, index)
            else _answer(index, offsets.get(index))
            for index in indexes
        ]
        return OffsetFetchResponseTopics(name=topic, partitions=partitions)


def _answer(index: int, committed: OffsetAndMetadata | None) -> OffsetFetchResponsePartitions:
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
    """A transaction is about to change it: whoever wants exactly-once reads waits and asks again (KIP-447)."""
    return OffsetFetchResponsePartitions(
        partition_index=index,
        committed_offset=NO_OFFSET,
        committed_leader_epoch=-1,
        metadata="",
        error_code=UnstableOffsetCommitError.code,
    )
