"""Offsets that go without a request: those older than the retention, and those of topics that are gone.

Both may concern very many offsets, so they are deleted in slices: each is one batch of records well below the limit on
a message, and between two slices the shard serves requests.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from typing import Final

from braidlog.coordinator.deadlines import Deadlines, GroupDeadline
from braidlog.coordinator.effects import MAX_PORTION_BYTES, CoordinatorRecord, Effects, Moment
from braidlog.coordinator.group.group import Group
from braidlog.coordinator.group.offset_records import NO_EXPIRY, OffsetAndMetadata, offset_key
from braidlog.coordinator.group.offset_table import OffsetTable, PendingOffsets
from braidlog.coordinator.group.settings import GroupSettings
from braidlog.coordinator.group.topics import Topics

EXPIRY_DUE: Final[GroupDeadline] = ("offsets.expiry", "", "")
TOPICS_GONE: Final[GroupDeadline] = ("offsets.topics", "", "")

# Offsets looked at before the shard serves others; a single group is never cut for it.
_SLICE_OFFSETS: Final = 5_000
_PAUSE_S: Final = 0.02
_LOOK_AGAIN_S: Final = 1.0


class _Slice:
    """Tombstones for one batch."""

    __slots__ = ("bytes_left", "effects")

    def __init__(self, effects: Effects) -> None:
        self.effects = effects
        self.bytes_left = MAX_PORTION_BYTES

    @property
    def is_full(self) -> bool:
        return self.bytes_left <= 0

    @property
    def is_empty(self) -> bool:
        return self.bytes_left == MAX_PORTION_BYTES

    def delete(self, group_id: str, topic: str, partition: int) -> None:
        tombstone = CoordinatorRecord(offset_key(group_id, topic, partition), None)
        self.bytes_left -= tombstone.size
        self.effects.records.append(tombstone)


class OffsetCleanup:
    def __init__(
        self,
        groups: dict[str, Group],
        committed: OffsetTable,
        pending: PendingOffsets,
        deadlines: Deadlines[GroupDeadline],
        settings: Callable[[], GroupSettings],
        topics: Topics,
    ) -> None:
        self._groups = groups
        self._committed = committed
        self._pending = pending
        self._deadlines = deadlines
        self._settings = settings
        self._topics = topics
        # Groups that the check of old offsets has yet to look at.
        self._to_check: deque[str] = deque()
        # Topics that are gone, each with the newest record at that time: a topic of the same name that is made while
        # the slices go on keeps its offsets.
        self._gone: dict[str, int] = {}

    def on_loaded(self, newest_record: int, now: Moment, effects: Effects) -> None:
        """Topics deleted while this partition was not loaded left offsets, which a new topic must not inherit."""
        self._arm(now)
        known: dict[str, bool] = {}
        for group_id in self._committed.group_ids():
            for topic in self._committed.of_group(group_id):
                if topic not in known:
                    known[topic] = self._topics.get(topic) is not None
        self.topics_deleted([topic for topic, there in known.items() if not there], newest_record, now, effects)

    def on_deadline(self, key: GroupDeadline, now: Moment, effects: Effects) -> None:
        if key == TOPICS_GONE:
            self._delete_gone(now, effects)
        elif key == EXPIRY_DUE:
            self._expire_some(now, effects)

    # Topics that are gone

    def topics_deleted(self, names: list[str], newest_record: int, now: Moment, effects: Effects) -> None:
        if names:
            for name in names:
                self._gone[name] = newest_record
            self._delete_gone(now, effects)

    def _delete_gone(self, now: Moment, effects: Effects) -> None:
        tombstones = _Slice(effects)
        for group_id, topic, partition in self._of_gone_topics():
            if tombstones.is_full:
                self._deadlines.set(TOPICS_GONE, now.monotonic + _PAUSE_S)
                return
            tombstones.delete(group_id, topic, partition)
        if tombstones.is_empty:
            self._gone.clear()
        else:
            # The log may refuse them: done is what a later look finds done.
            self._deadlines.set(TOPICS_GONE, now.monotonic + _LOOK_AGAIN_S)

    def _of_gone_topics(self) -> Iterator[tuple[str, str, int]]:
        for group_id in self._committed.group_ids():
            for topic, partitions in self._committed.of_group(group_id).items():
                newest_record = self._gone.get(topic)
                if newest_record is None:
                    continue
                for partition, offset in partitions.items():
                    newest = max(offset.record_offset, self._pending.newest_record(group_id, topic, partition))
                    if newest <= newest_record:
                        yield group_id, topic, partition
        for group_id in self._pending.group_ids():
            for topic, partition in self._pending.of_group(group_id):
                newest_record = self._gone.get(topic)
                if newest_record is None or self._committed.get(group_id, topic, partition) is not None:
                    continue
                if self._pending.newest_record(group_id, topic, partition) <= newest_record:
                    yield group_id, topic, partition

    # Old offsets

    def _arm(self, now: Moment) -> None:
        self._deadlines.set(EXPIRY_DUE, now.monotonic + self._settings().offsets_check_interval_ms / 1000.0)

    def _expire_some(self, now: Moment, effects: Effects) -> None:
        if not self._to_check:
            self._to_check.extend(self._groups)
        tombstones = _Slice(effects)
        looked_at = 0
        while self._to_check:
            if tombstones.is_full or looked_at >= _SLICE_OFFSETS:
                self._deadlines.set(EXPIRY_DUE, now.monotonic + _PAUSE_S)
                return
            group_id = self._to_check.popleft()
            group = self._groups.get(group_id)
            if group is None:
                continue
            looked_at += 1 + sum(map(len, self._committed.of_group(group_id).values()))
            if not self._expire_group(group, now, tombstones):
                self._to_check.appendleft(group_id)
        self._arm(now)

    def _expire_group(self, group: Group, now: Moment, tombstones: _Slice) -> bool:
        """Whether all that is old found room. A group that nothing is left of goes, too."""
        group_id = group.group_id
        anything_left = self._pending.has_group(group_id)
        for topic, partitions in self._committed.of_group(group_id).items():
            subscribed = group.is_subscribed_to(topic)
            for partition, offset in partitions.items():
                if subscribed or self._pending.has(group_id, topic, partition) or not self._is_old(group, offset, now):
                    anything_left = True
                elif tombstones.is_full:
                    return False
                else:
                    tombstones.delete(group_id, topic, partition)
        if not anything_left and group.is_empty():
            group.write_tombstones(tombstones.effects)
        return True

    def _is_old(self, group: Group, offset: OffsetAndMetadata, now: Moment) -> bool:
        since = group.offsets_age_from(offset.commit_timestamp_ms)
        if since is None:
            return False
        if offset.expire_timestamp_ms != NO_EXPIRY:
            return now.wall_ms >= offset.expire_timestamp_ms
        return now.wall_ms - since >= self._settings().offsets_retention_ms
