"""The classic group protocol over the groups of one shard."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from braidlog.coordinator.deadlines import Deadlines
from braidlog.coordinator.effects import Effects, Moment
from braidlog.coordinator.group.classic.group import KEY_VERSION, ClassicGroup
from braidlog.coordinator.group.classic.records import restore
from braidlog.coordinator.group.group import Group
from braidlog.coordinator.group.settings import GroupSettings
from braidlog.coordinator.shard import ReplayedRecord
from braidlog.core.protocol_errors import ProtocolError
from braidlog.wire.generated.group_records import GroupMetadataKey
from braidlog.wire.reader import Reader

# Kind, group, member.
DeadlineKey = tuple[str, str, str]

SESSION: Final = "classic.session"
JOIN: Final = "classic.join"
SYNC: Final = "classic.sync"


class ClassicProtocol:
    def __init__(
        self,
        groups: dict[str, Group],
        deadlines: Deadlines[DeadlineKey],
        settings: Callable[[], GroupSettings],
        new_member_id: Callable[[], str],
    ) -> None:
        self._groups = groups
        self._deadlines = deadlines
        self._settings = settings
        self._new_member_id = new_member_id

    def simple_group(self, group_id: str) -> Group:
        """A group that only has offsets: no members, no protocol type."""
        group = self._groups.get(group_id)
        if group is None:
            group = self._groups[group_id] = ClassicGroup(group_id)
        return group

    def replay(self, version: int, key: Reader, value: bytes | None, record: ReplayedRecord) -> None:
        group_id = GroupMetadataKey.decode(key, version).group
        if value is not None:
            self._groups[group_id] = restore(group_id, value)
            return
        group = self._groups.get(group_id)
        if isinstance(group, ClassicGroup):
            del self._groups[group_id]

    def loaded(self, now: Moment, effects: Effects) -> None:
        pass

    def on_deadline(self, key: DeadlineKey, now: Moment, effects: Effects) -> None:
        pass

    def abandon(self, error: ProtocolError, effects: Effects) -> None:
        pass

    def durable_state(self) -> object:
        return {}


__all__ = ["KEY_VERSION", "ClassicProtocol", "DeadlineKey"]
