"""The shard of one partition of `__consumer_offsets`: which part answers what.

    classic     join, sync, heartbeat and leave of groups that assign among themselves   record keys 2
    consumer    the newer protocol, where the coordinator assigns                         record keys 3 and up
    offsets     what groups committed, whichever protocol they speak                      record keys 0, 1

The parts share the groups and the deadlines, and nothing else.
"""

from __future__ import annotations

from collections.abc import Callable

from braidlog.coordinator.deadlines import Deadlines
from braidlog.coordinator.effects import Effects, Moment
from braidlog.coordinator.group.classic.protocol import KEY_VERSION, ClassicProtocol, DeadlineKey
from braidlog.coordinator.group.group import Group
from braidlog.coordinator.group.settings import GroupSettings
from braidlog.coordinator.group.topics import Topics
from braidlog.coordinator.shard import ReplayedRecord
from braidlog.core.protocol_errors import ProtocolError
from braidlog.wire.layouts import layout_reader, layout_version


class GroupShard:
    def __init__(self, settings: Callable[[], GroupSettings], topics: Topics, new_member_id: Callable[[], str]) -> None:
        self.groups: dict[str, Group] = {}
        self.deadlines: Deadlines[DeadlineKey] = Deadlines()
        self.classic = ClassicProtocol(self.groups, self.deadlines, settings, new_member_id)

    # What the cluster tells

    def topics_changed(self, now: Moment) -> Effects:
        return Effects()

    def topics_deleted(self, names: list[str], now: Moment) -> Effects:
        return Effects()

    # What the runtime asks

    def replay(self, record: ReplayedRecord) -> None:
        version = layout_version(record.key)
        key = layout_reader(record.key)
        if version == KEY_VERSION:
            self.classic.replay(version, key, record.value, record)

    def replay_marker(self, producer_id: int, producer_epoch: int, commits: bool) -> None:
        pass

    def loaded(self, now: Moment) -> Effects:
        effects = Effects()
        self.classic.loaded(now, effects)
        return effects

    def next_deadline(self) -> float | None:
        return self.deadlines.next()

    def expire(self, now: Moment) -> Effects:
        effects = Effects()
        for key in self.deadlines.pop_due(now.monotonic):
            if key[0].startswith("classic."):
                self.classic.on_deadline(key, now, effects)
        return effects

    def abandon(self, error: ProtocolError) -> Effects:
        effects = Effects()
        self.classic.abandon(error, effects)
        return effects

    def durable_state(self) -> object:
        return {"classic": self.classic.durable_state()}
