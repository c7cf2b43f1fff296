"""How members are missed.

session    no heartbeat for that long, and the member is out
rebalance  a member that must give up partitions has that long to say it did
join       a member of the classic protocol has to join again, and has that long
sync       …has joined, and has that long to fetch its assignment
conversion of a whole group: the cluster goes on without this protocol
"""

from __future__ import annotations

from typing import Final

from braidlog.coordinator.deadlines import Deadlines, GroupDeadline
from braidlog.coordinator.effects import Moment
from braidlog.coordinator.group.consumer.member import AWAY, UNREVOKED, ConsumerGroupMember

# Kind, group, member.

SESSION: Final = "consumer.session"
REBALANCE: Final = "consumer.rebalance"
JOIN: Final = "consumer.join"
SYNC: Final = "consumer.sync"
CONVERSION: Final = "consumer.conversion"
KINDS: Final = (SESSION, REBALANCE, JOIN, SYNC)

RETRY_MS: Final = 1_000


class MemberTimeouts:
    def __init__(self, deadlines: Deadlines[GroupDeadline]) -> None:
        self._deadlines = deadlines

    def touch(self, group_id: str, member: ConsumerGroupMember, timeout_ms: int, now: Moment) -> None:
        """The member is alive; one of the classic protocol has its own timeout."""
        classic = member.profile.classic
        lasts = timeout_ms if classic is None else classic.session_timeout_ms
        self.set(SESSION, group_id, member.member_id, lasts, now)

    def reschedule_rebalance_timeout(self, group_id: str, member: ConsumerGroupMember, now: Moment) -> None:
        """The member took a step: it may have to give something up, or has done so."""
        if member.is_classic:
            return
        if member.progress.state == UNREVOKED and member.epoch != AWAY:
            self.set(REBALANCE, group_id, member.member_id, member.profile.rebalance_timeout_ms, now)
        else:
            self.cancel(REBALANCE, group_id, member.member_id)

    def set(self, kind: str, group_id: str, member_id: str, timeout_ms: int, now: Moment) -> None:
        self._deadlines.set((kind, group_id, member_id), now.monotonic + max(timeout_ms, 0) / 1000)

    def set_if_none(self, kind: str, group_id: str, member_id: str, timeout_ms: int, now: Moment) -> None:
        if (kind, group_id, member_id) not in self._deadlines:
            self.set(kind, group_id, member_id, timeout_ms, now)

    def cancel(self, kind: str, group_id: str, member_id: str) -> None:
        self._deadlines.cancel((kind, group_id, member_id))

    def end(self, group_id: str, member_id: str) -> None:
        for kind in KINDS:
            self._deadlines.cancel((kind, group_id, member_id))
