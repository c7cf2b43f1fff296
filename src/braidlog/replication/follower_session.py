"""What the fetches of one follower have in common: a fetch visits what changed since the last, never every partition.

A target is dirty as long as its follower lacks something of it: records, the high watermark, the log start, or an
answer other than an error. Only an append, or a new leader epoch, wakes a fetch that waits; a high watermark goes along
with the next answer. What is not dirty its follower has whole, as of the last fetch.

A target that is held lacks records that the throttle of leaders keeps back: appends to it wake nobody, and the next
fetch looks again.

A full request that comes late, over a connection that its follower has given up, begins a session that nobody goes on
with, and takes back what the follower has said since. So the targets of its other sessions are overruled: their next
fetch visits them, though nothing has changed for them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from braidlog.core.replication_quota import ReplicationQuota
from braidlog.replication.delayed_operation import DelayedOperation
from braidlog.replication.progress import NEVER, NO_BROKER_EPOCH, RemoteReplica, ReplicaProgress

if TYPE_CHECKING:
    from braidlog.replication.partition import Partition


class FollowerSession:
    def __init__(self, replica_id: int) -> None:
        self.replica_id = replica_id
        # Of the registration that the last fetch came from.
        self.broker_epoch = NO_BROKER_EPOCH
        self.last_fetch_s = NEVER
        # Those that were served go last once a size limit has kept something from others, so that it starves none.
        self.dirty: dict[FollowerTarget, None] = {}
        # Whether it has: since the fetch that is being answered began, there were records that did not fit.
        self.starved = False
        # The fetch that waits for an append.
        self.parked: DelayedOperation | None = None
        # Whether anything was appended since the fetch that is being read began.
        self.grown = False
        # Bytes of throttled replicas in the answer that is being made, and what they count against.
        self.throttled_bytes = 0
        self._quota: ReplicationQuota | None = None

    def begin_reading(self) -> None:
        self.throttled_bytes = 0

    def allowance(self, quota: ReplicationQuota) -> int:
        """Bytes that this answer may still have of throttled replicas."""
        return quota.allowance() - self.throttled_bytes

    def add_throttled(self, size: int, quota: ReplicationQuota) -> None:
        self.throttled_bytes += size
        self._quota = quota

    def charge(self) -> None:
        """The answer is sent."""
        if self.throttled_bytes > 0 and self._quota is not None:
            self._quota.record(self.throttled_bytes)
            self.throttled_bytes = 0

    def served(self, target: FollowerTarget) -> None:
        if target in self.dirty:
            del self.dirty[target]
            self.dirty[target] = None

    def wake(self) -> None:
        self.grown = True
        parked = self.parked
        if parked is not None:
            parked.wake()


class FollowerTarget:
    """One partition in a follower's session; `FetchTarget` is one, also for consumers, who have no session here."""

    __slots__ = ("dirty", "follower", "held", "overruled", "partition", "progress", "replica")

    def __init__(self) -> None:
        self.follower: FollowerSession | None = None
        # Set while the partition tells this target of changes.
        self.partition: Partition | None = None
        # What the partition knows of the follower, in the leader epoch of `progress`.
        self.replica: RemoteReplica | None = None
        self.progress: ReplicaProgress | None = None
        self.dirty = False
        self.held = False
        # Another session of its follower has told the partition something else since.
        self.overruled = False

    def link(self, partition: Partition, replica: RemoteReplica) -> None:
        self.replica = replica
        self.progress = partition.progress
        if self.partition is not partition:
            self.unlink()
            self.partition = partition
            for other in partition.followers:
                if other.replica is replica:
                    other.overrule()
            partition.followers.append(self)

    def unlink(self) -> None:
        partition = self.partition
        if partition is not None:
            self.partition = None
            partition.followers.remove(self)

    def leave(self) -> None:
        """The session, or the fetch that had none, does not want it any more."""
        self.unlink()
        follower = self.follower
        if follower is not None:
            self.follower = None
            self.dirty = False
            follower.dirty.pop(self, None)

    def mark(self) -> None:
        """The follower is to be told something with its next answer."""
        follower = self.follower
        if not self.dirty and follower is not None:
            self.dirty = True
            follower.dirty[self] = None

    def overrule(self) -> None:
        """With the next fetch of its session what that last said counts again."""
        self.overruled = True
        self.mark()

    def appended(self, size: int) -> None:
        follower = self.follower
        if follower is None or self.held:
            return
        if not self.dirty:
            # It had everything up to here.
            if self.replica is not None:
                self.replica.fetched_nothing(follower.last_fetch_s)
            self.mark()
        follower.grown = True
        parked = follower.parked
        if parked is not None:
            parked.grown(size)

    def wake(self) -> None:
        """Its answer is another one now."""
        self.mark()
        if self.follower is not None:
            self.follower.wake()
