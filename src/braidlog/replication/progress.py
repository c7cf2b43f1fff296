"""How far the replicas of a partition have got, as its leader knows it, and what follows from that; pure.

    high watermark   the least log end over the maximal in-sync replicas, and over live replicas outside of them that
                     caught up not long ago and are about to join; while fewer than min.insync.replicas are in sync it
                     stands still
    maximal ISR      those that are in sync if the change that is proposed is made, or if it is not: whichever of the
                     two counts for the controller, what is committed is on all of them
    join             a follower has all that is committed, and all from before this leader epoch
    leave            a follower has not caught up for replica.lag.time.max.ms

Times are seconds of one monotonic clock.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

UNKNOWN_OFFSET: Final = -1
NO_BROKER_EPOCH: Final = -1
NEVER: Final = float("-inf")


class RemoteReplica:
    """What the leader knows of one follower. Its log ends where its last fetch began."""

    __slots__ = (
        "broker_epoch",
        "broker_id",
        "caught_up_s",
        "fetched_s",
        "leader_end_then",
        "log_end_offset",
        "log_start_offset",
    )

    def __init__(self, broker_id: int, caught_up_s: float) -> None:
        self.broker_id = broker_id
        self.broker_epoch = NO_BROKER_EPOCH
        self.log_start_offset = UNKNOWN_OFFSET
        self.log_end_offset = UNKNOWN_OFFSET
        # When it last fetched, and where the leader's log ended then.
        self.fetched_s = NEVER
        self.leader_end_then = UNKNOWN_OFFSET
        # When it last had all that the leader had.
        self.caught_up_s = caught_up_s

    def fetched(self, offset: int, log_start: int, leader_end: int, now: float, broker_epoch: int) -> None:
        if offset >= leader_end:
            self.caught_up_s = now
        elif offset >= self.leader_end_then and self.fetched_s > self.caught_up_s:
            # It has now what the leader had then.
            self.caught_up_s = self.fetched_s
        self.log_end_offset = offset
        self.log_start_offset = log_start
        self.fetched_s = now
        self.leader_end_then = leader_end
        self.broker_epoch = broker_epoch

    def fetched_nothing(self, at_s: float) -> None:
        """Until `at_s` its session asked for more of this partition, of which it had everything."""
        if at_s > self.caught_up_s:
            self.caught_up_s = at_s
        if at_s > self.fetched_s:
            self.fetched_s = at_s

    def is_caught_up(self, leader_end: int, now: float, lag_s: float) -> bool:
        return self.log_end_offset >= leader_end or now - self.caught_up_s <= lag_s


class ReplicaProgress:
    """One leader epoch of a partition with other replicas: nothing of an earlier epoch is known of them."""

    __slots__ = ("began_s", "epoch_start_offset", "isr", "local", "maximal_isr", "proposed", "remotes")

    def __init__(
        self, local: int, replicas: tuple[int, ...], isr: tuple[int, ...], epoch_start_offset: int, now: float
    ) -> None:
        self.local = local
        self.epoch_start_offset = epoch_start_offset
        self.began_s = now
        # Those in sync get the time of a lag to fetch for the first time.
        self.remotes: dict[int, RemoteReplica] = {}
        for broker_id in replicas:
            if broker_id != local:
                self.remotes[broker_id] = RemoteReplica(broker_id, now if broker_id in isr else NEVER)
        # As the controller has stored it.
        self.isr = isr
        # What the controller is asked to store instead; it may have done so.
        self.proposed: tuple[int, ...] | None = None
        self.maximal_isr = isr

    @property
    def is_whole(self) -> bool:
        """Whether every replica is in the maximal ISR."""
        return len(self.maximal_isr) > len(self.remotes)

    def high_watermark(
        self, vouched: int, log_end: int, min_isr: int, now: float, lag_s: float, is_live: Callable[[int], bool]
    ) -> int:
        """What is committed, given that the leader's own log counts up to `vouched`; UNKNOWN_OFFSET: it stands still.

        `log_end` is where the log ends that followers copy.
        """
        if len(self.isr) < min_isr:
            return UNKNOWN_OFFSET
        lowest = vouched
        for replica in self.remotes.values():
            if replica.log_end_offset < lowest and self.waits_for(replica, log_end, now, lag_s, is_live):
                lowest = replica.log_end_offset
        return lowest

    def waits_for(
        self, replica: RemoteReplica, log_end: int, now: float, lag_s: float, is_live: Callable[[int], bool]
    ) -> bool:
        """Whether the high watermark does not pass it: it is in sync, or about to be."""
        return replica.broker_id in self.maximal_isr or (
            replica.is_caught_up(log_end, now, lag_s) and is_live(replica.broker_id)
        )

    def may_join(self, replica: RemoteReplica, high_watermark: int) -> bool:
        return (
            # In most partitions all are in sync.
            len(self.isr) <= len(self.remotes)
            and self.proposed is None
            and replica.broker_id not in self.isr
            and replica.log_end_offset >= high_watermark
            and replica.log_end_offset >= self.epoch_start_offset
        )

    def lagging(self, log_end: int, now: float, lag_s: float) -> list[int]:
        """Those that are to leave; none while a change is under way."""
        found: list[int] = []
        if self.proposed is None:
            for broker_id in self.isr:
                if broker_id != self.local:
                    replica = self.remotes.get(broker_id)
                    if replica is None or not replica.is_caught_up(log_end, now, lag_s):
                        found.append(broker_id)
        return found

    def behind_s(self, replica: RemoteReplica, now: float) -> float:
        """For how long a replica lacks something; at least, where it never had everything in this leader epoch."""
        return now - max(replica.caught_up_s, self.began_s)

    def propose(self, isr: tuple[int, ...]) -> None:
        self.proposed = isr
        self.maximal_isr = self.isr + tuple([each for each in isr if each not in self.isr])

    def commit(self, isr: tuple[int, ...]) -> None:
        """The controller has stored this."""
        self.isr = self.maximal_isr = isr
        self.proposed = None

    def withdraw(self) -> None:
        """What was proposed is not stored, and never will be."""
        self.maximal_isr = self.isr
        self.proposed = None

    def low_watermark(self, log_start: int, is_live: Callable[[int], bool]) -> int:
        """The least log start over this replica and those that are alive."""
        lowest = log_start
        for replica in self.remotes.values():
            if replica.log_start_offset < lowest and is_live(replica.broker_id):
                lowest = replica.log_start_offset
        return lowest

    def nearest_replica(self, rack: str, offset: int, rack_of: Callable[[int], str | None]) -> int:
        """The broker that a consumer in `rack` should read from instead of this leader, or -1 (KIP-392).

        It is in sync and has the offset; `rack_of` tells the rack of a live broker.
        """
        if rack_of(self.local) == rack:
            return -1
        best: RemoteReplica | None = None
        for replica in self.remotes.values():
            if (
                replica.broker_id in self.isr
                and replica.log_start_offset <= offset <= replica.log_end_offset
                and rack_of(replica.broker_id) == rack
                and (best is None or replica.log_end_offset > best.log_end_offset)
            ):
                best = replica
        return -1 if best is None else best.broker_id
