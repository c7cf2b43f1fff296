"""What a consumer knows of one partition that it reads (hot: compiled by mypyc).

    INITIALISING --> AWAITING_RESET --> FETCHING <--> AWAITING_VALIDATION
         |                ^               |
         +----------------|-------------->+     a committed offset was found, or the program sought

Written by the program's thread and by the engine's, always under the subscription's lock, except for what a field's
comment gives to one thread alone.
"""

from __future__ import annotations

from typing import Final

from mypy_extensions import i64

from braidlog.core.types import TopicPartition

# Where to start is not known yet: the group is asked, if there is one.
INITIALISING: Final = 0
# The log is asked for its start, its end or the offset of a time.
AWAITING_RESET: Final = 1
# The leader changed: it is asked whether its log still has what was read from the last one (KIP-320).
AWAITING_VALIDATION: Final = 2
FETCHING: Final = 3

PHASE_NAMES: Final = ("initialising", "awaiting reset", "awaiting validation", "fetching")

_MOVES: Final[dict[int, tuple[int, ...]]] = {
    INITIALISING: (AWAITING_RESET, AWAITING_VALIDATION, FETCHING),
    AWAITING_RESET: (INITIALISING, AWAITING_RESET, AWAITING_VALIDATION, FETCHING),
    AWAITING_VALIDATION: (AWAITING_RESET, AWAITING_VALIDATION, FETCHING),
    FETCHING: (AWAITING_RESET, AWAITING_VALIDATION, FETCHING),
}

UNKNOWN: Final = -1


class PartitionState:
    __slots__ = (
        "drained",
        "failure",
        "fetch_from",
        "fetched",
        "high_watermark",
        "is_current",
        "is_paused",
        "is_pending_revocation",
        "last_stable",
        "leader_epoch",
        "partition",
        "pause_s",
        "phase",
        "position",
        "position_epoch",
        "read_replica",
        "read_replica_until",
        "reset_to",
        "retry_at",
        "served",
        "topic",
        "topic_id",
        "topic_partition",
        "version",
    )

    def __init__(self, topic_partition: TopicPartition) -> None:
        self.topic_partition = topic_partition
        self.topic: str = topic_partition.topic
        self.partition: int = topic_partition.partition
        self.phase: int = INITIALISING
        # False once the partition is no longer assigned: holders of this object must drop it.
        self.is_current: bool = True
        # Rises with every seek and reset: responses to earlier requests, and data fetched before, do not count.
        self.version: i64 = 0
        # The next record that `poll` returns; the program's thread moves it on, a seek sets it.
        self.position: i64 = UNKNOWN
        # Leader epoch of the record before the position, -1 where that is not known.
        self.position_epoch: i64 = UNKNOWN
        # Where the next fetch reads on: position <= fetch_from, what lies between is fetched already.
        self.fetch_from: i64 = UNKNOWN
        # Epoch of the leader that the position was last found valid with.
        self.leader_epoch: int = UNKNOWN
        # Of the topic that the position belongs to; a topic that was made anew has another. Empty: not known.
        self.topic_id: bytes = b""
        self.is_paused: bool = False
        self.is_pending_revocation: bool = False
        # A timestamp, EARLIEST or LATEST: what a reset asks for.
        self.reset_to: int = 0
        self.retry_at: float = 0.0
        # The last pause between two tries; none after a success.
        self.pause_s: float = 0.0
        # What a poll has to raise before anything more is tried for this partition.
        self.failure: BaseException | None = None
        self.high_watermark: i64 = UNKNOWN
        self.last_stable: i64 = UNKNOWN
        # A replica near us that the leader named, and until when to use it (KIP-392).
        self.read_replica: int = UNKNOWN
        self.read_replica_until: float = 0.0
        # Fetches that arrived (the engine counts) and that are used up (the program's thread counts).
        self.fetched: i64 = 0
        self.drained: i64 = 0
        # Rises over all partitions with every fetch: the partition that was served last is asked for last.
        self.served: i64 = 0

    def __repr__(self) -> str:
        return f"<{self.topic_partition} {PHASE_NAMES[self.phase]} at {self.position}>"

    def move(self, phase: int) -> None:
        if phase not in _MOVES[self.phase]:
            raise RuntimeError(f"{self!r} cannot become {PHASE_NAMES[phase]}")
        self.phase = phase

    def has_position(self) -> bool:
        return self.phase >= AWAITING_VALIDATION

    def seek(self, offset: int, epoch: int = UNKNOWN) -> None:
        """Read from here; what was fetched ahead no longer counts."""
        self.move(FETCHING)
        self.version += 1
        self.position = offset
        self.position_epoch = epoch
        self.fetch_from = offset
        # Not checked against any leader yet.
        self.leader_epoch = UNKNOWN
        self.failure = None
        self.retry_at = 0.0
        self.pause_s = 0.0

    def request_reset(self, reset_to: int) -> None:
        self.move(AWAITING_RESET)
        self.version += 1
        self.reset_to = reset_to
        self.failure = None
        self.retry_at = 0.0
        self.pause_s = 0.0

    def back_off(self, now: float, first_s: float, longest_s: float) -> None:
        """Try again after a pause, which doubles for as long as nothing succeeds."""
        pause = self.pause_s * 2 if self.pause_s > first_s / 2 else first_s
        self.pause_s = pause if pause < longest_s else longest_s
        self.retry_at = now + self.pause_s

    def is_fetchable(self) -> bool:
        return (
            self.phase == FETCHING
            and self.is_current
            and not self.is_paused
            and not self.is_pending_revocation
            and self.failure is None
        )

    def is_readable(self) -> bool:
        """Whether `poll` may return what is fetched of it."""
        return self.phase == FETCHING and self.is_current and not self.is_paused and not self.is_pending_revocation

    def end_for(self, read_committed: bool) -> int:
        """The end of what can be read, by the last response; -1 before the first."""
        return int(self.last_stable if read_committed else self.high_watermark)

    def known_lag(self) -> int:
        """By the last response, without asking."""
        if self.phase < AWAITING_VALIDATION or self.high_watermark < self.position:
            return 0
        return int(self.high_watermark - self.position)
