"""Incremental fetch sessions (KIP-227): a reader names its partitions once and is then sent only what changed.

    request id  epoch    meaning
    0           -1       no session, every partition is in the request and in the response
    any         0        full request; end the session `id`, try to begin a new one
    id          -1       full request; end the session `id`
    id          n > 0    the partitions in the request are changes to the session; n must be the next epoch

A session costs memory, so there are only so many (`max.incremental.fetch.session.cache.slots`): a new one takes the
place of one unused for two minutes, or of a smaller one; followers go before consumers. Who gets none is served
without one and asks again.

A consumer's fetch looks at every partition of its session, a follower's at those that it names and those that changed
(`replication/follower_session.py`).
"""

from __future__ import annotations

from random import Random
from typing import Final

from braidlog.core.ids import ZERO_ID
from braidlog.core.protocol_errors import (
    FetchSessionIdNotFoundError,
    FetchSessionTopicIdError,
    InvalidFetchSessionEpochError,
)
from braidlog.replication.follower_session import FollowerSession, FollowerTarget
from braidlog.replication.progress import NO_BROKER_EPOCH
from braidlog.wire.generated.fetch import FetchPartition

NO_SESSION: Final = 0
FINAL_EPOCH: Final = -1
INITIAL_EPOCH: Final = 0
_MAX_EPOCH: Final = 2**31 - 1
_EVICTION_AGE_S: Final = 120.0

# Topic name (empty where the topic is known by id), topic id, partition.
TargetKey = tuple[str, bytes, int]


class FetchTarget(FollowerTarget):
    """One partition a reader wants, and, inside a session, what it was last sent of it."""

    __slots__ = (
        "current_leader_epoch",
        "fetch_offset",
        "index",
        "last_fetched_epoch",
        "log_start_offset",
        "max_bytes",
        "sent_high_watermark",
        "sent_log_start",
        "topic",
        "topic_id",
    )

    def __init__(
        self,
        topic: str,
        topic_id: bytes,
        index: int,
        fetch_offset: int,
        max_bytes: int,
        current_leader_epoch: int,
        last_fetched_epoch: int,
        log_start_offset: int,
    ) -> None:
        super().__init__()
        self.topic = topic
        self.topic_id = topic_id
        self.index = index
        self.fetch_offset = fetch_offset
        self.max_bytes = max_bytes
        self.current_leader_epoch = current_leader_epoch
        self.last_fetched_epoch = last_fetched_epoch
        self.log_start_offset = log_start_offset
        self.sent_high_watermark = -1
        self.sent_log_start = -1

    def update(self, wanted: FetchPartition) -> None:
        self.fetch_offset = wanted.fetch_offset
        self.max_bytes = wanted.partition_max_bytes
        self.current_leader_epoch = wanted.current_leader_epoch
        self.last_fetched_epoch = wanted.last_fetched_epoch
        self.log_start_offset = wanted.log_start_offset

    @property
    def key(self) -> TargetKey:
        """By id where the request speaks of ids: the name may not be known yet, or no longer."""
        return "" if self.topic_id != ZERO_ID else self.topic, self.topic_id, self.index

    def has_changed(self, error_code: int, size: int, high_watermark: int, log_start_offset: int) -> bool:
        """Whether an incremental response must name this partition; remembers what it is then sent."""
        if error_code:
            # Whatever follows the error is news again.
            self.sent_high_watermark = -1
            return True
        news = size > 0 or high_watermark != self.sent_high_watermark or log_start_offset != self.sent_log_start
        self.sent_high_watermark = high_watermark
        self.sent_log_start = log_start_offset
        return news

    def settle(self) -> None:
        """A follower's, visited: it is dirty no longer if the follower has, and knows, all there is."""
        partition = self.partition
        follower = self.follower
        if not self.dirty or self.overruled or follower is None or partition is None:
            return
        log = partition.log
        if (
            log is not None
            and self.fetch_offset >= log.log_end_offset
            and self.sent_high_watermark == log.high_watermark
            and self.sent_log_start == log.log_start_offset
        ):
            self.dirty = False
            follower.dirty.pop(self, None)


class FetchSession:
    def __init__(self, session_id: int, replica_id: int, uses_ids: bool, created: float) -> None:
        self.id = session_id
        self.replica_id = replica_id
        self.follower = FollowerSession(replica_id) if replica_id >= 0 else None
        self.uses_ids = uses_ids
        self.created = created
        self.last_used = created
        self.epoch = 1
        self.targets: dict[TargetKey, FetchTarget] = {}

    def forget(self, forgotten: list[TargetKey]) -> None:
        for key in forgotten:
            gone = self.targets.pop(key, None)
            if gone is not None and self.follower is not None:
                gone.leave()

    def close(self) -> None:
        if self.follower is not None:
            self.follower.parked = None
            for target in self.targets.values():
                target.leave()

    def had_data(self, served: list[FetchTarget]) -> None:
        """Partitions that just had data go last, so that a size limit starves none of the others."""
        follower = self.follower
        if follower is None:
            for target in served:
                if self.targets.pop(target.key, None) is not None:
                    self.targets[target.key] = target
        elif follower.starved:
            follower.starved = False
            for target in served:
                follower.served(target)

    def advance(self) -> None:
        self.epoch = self.epoch + 1 if self.epoch < _MAX_EPOCH else 1


class FetchContext:
    """What one fetch request asks for, whether through a session or not."""

    __slots__ = (
        "follower",
        "incremental",
        "is_applied",
        "is_authorized",
        "reads_nothing",
        "session",
        "targets",
        "unauthorized",
    )

    def __init__(
        self,
        targets: list[FetchTarget],
        session: FetchSession | None,
        incremental: bool,
        follower: FollowerSession | None = None,
    ) -> None:
        self.targets = targets
        self.session = session
        self.incremental = incremental
        # Of a follower, with a session or not.
        self.follower = follower
        # Whether partitions know how far the follower is that sent this.
        self.is_applied = False
        # Whether an authorizer has decided; a topic whose name was not known then is not looked up any more.
        self.is_authorized = False
        # Topics that a consumer may not read; none where it may read all that it names.
        self.unauthorized: frozenset[str] | None = None
        # A follower that may not be one, or a consumer that may read none of the topics.
        self.reads_nothing = False

    @property
    def session_id(self) -> int:
        return self.session.id if self.session is not None else NO_SESSION

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to wait for."""
        if self.session is not None and self.follower is not None:
            return not self.session.targets
        return not self.targets

    def look_again(self) -> None:
        """Before what changed is read once more."""
        follower = self.follower
        if follower is not None:
            follower.grown = False
            if self.incremental:
                self.targets = dirty_targets(follower)

    def end(self) -> None:
        """It is answered, or its connection is closed: what has no session is watched no more."""
        if self.follower is not None and self.session is None:
            for target in self.targets:
                target.leave()


def name_partitions(
    named: dict[TargetKey, FetchTarget],
    topic: str,
    topic_id: bytes,
    wanted: list[FetchPartition],
    follower: FollowerSession | None,
) -> None:
    """Add what is wanted of a topic; what is there, in a session or named before in the request, is asked as said here.

    `follower` is that of the session whose partitions `named` are.
    """
    name = topic if topic_id == ZERO_ID else ""
    for partition in wanted:
        key = (name, topic_id, partition.partition)
        target = named.get(key)
        if target is None:
            target = named[key] = FetchTarget(
                topic,
                topic_id,
                partition.partition,
                partition.fetch_offset,
                partition.partition_max_bytes,
                partition.current_leader_epoch,
                partition.last_fetched_epoch,
                partition.log_start_offset,
            )
            target.follower = follower
        else:
            target.update(partition)
        if follower is not None:
            target.mark()


def dirty_targets(follower: FollowerSession) -> list[FetchTarget]:
    return [target for target in follower.dirty if isinstance(target, FetchTarget)]


def _without_session(targets: list[FetchTarget], replica_id: int, now: float, broker_epoch: int) -> FetchContext:
    """A follower's partitions are watched as long as its fetch lasts."""
    if replica_id < 0:
        return FetchContext(targets, None, False)
    follower = FollowerSession(replica_id)
    follower.last_fetch_s = now
    follower.broker_epoch = broker_epoch
    for target in targets:
        target.follower = follower
        target.mark()
    return FetchContext(targets, None, False, follower)


class FetchSessionCache:
    def __init__(self, slots: int, random: Random) -> None:
        self._slots = slots
        self._random = random
        # Least recently used first.
        self._sessions: dict[int, FetchSession] = {}
        self.evicted = 0

    def __len__(self) -> int:
        return len(self._sessions)

    @property
    def partitions(self) -> int:
        return sum(len(session.targets) for session in self._sessions.values())

    def new_context(
        self,
        session_id: int,
        epoch: int,
        named: dict[TargetKey, FetchTarget],
        uses_ids: bool,
        replica_id: int,
        now: float,
        broker_epoch: int = NO_BROKER_EPOCH,
    ) -> FetchContext:
        """Of a full request; `replica_id` is -1 for consumers, `broker_epoch` is that of a follower."""
        ended = self._sessions.pop(session_id, None)
        if ended is not None:
            ended.close()
        session = None
        if epoch == INITIAL_EPOCH and named:
            session = self._begin(named, uses_ids, replica_id, now, broker_epoch)
        targets = list(named.values())
        if session is None:
            return _without_session(targets, replica_id, now, broker_epoch)
        return FetchContext(targets, session, False, session.follower)

    def resume(self, session_id: int, epoch: int, uses_ids: bool, replica_id: int) -> FetchSession:
        """The session that an incremental request goes on with: it names changes to the targets of that."""
        session = self._sessions.get(session_id)
        if session is None or session.replica_id != replica_id:
            raise FetchSessionIdNotFoundError
        if session.epoch != epoch:
            raise InvalidFetchSessionEpochError
        if session.uses_ids != uses_ids:
            raise FetchSessionTopicIdError
        session.advance()
        return session

    def next_context(
        self, session: FetchSession, forgotten: list[TargetKey], now: float, broker_epoch: int = NO_BROKER_EPOCH
    ) -> FetchContext:
        """Of an incremental request, whose changes are made."""
        if self._sessions.get(session.id) is not session:
            # Another took its place meanwhile.
            session.close()
            raise FetchSessionIdNotFoundError
        session.forget(forgotten)
        session.last_used = now
        if len(self._sessions) > 1 or not session.targets:
            del self._sessions[session.id]
        if session.targets:
            # Else there is nothing left to fetch: the session ends with this response.
            self._sessions[session.id] = session
        follower = session.follower
        if follower is None:
            return FetchContext(list(session.targets.values()), session, True)
        follower.last_fetch_s = now
        follower.grown = False
        if follower.broker_epoch != broker_epoch:
            # It has registered anew, and every partition is to know: it cannot join an ISR with an epoch from before.
            follower.broker_epoch = broker_epoch
            for target in session.targets.values():
                target.mark()
        return FetchContext(dirty_targets(follower), session, True, follower)

    def drop(self, session: FetchSession) -> None:
        """Its client does not know of it."""
        if self._sessions.pop(session.id, None) is not None:
            session.close()

    def _begin(
        self, named: dict[TargetKey, FetchTarget], uses_ids: bool, replica_id: int, now: float, broker_epoch: int
    ) -> FetchSession | None:
        if len(self._sessions) >= self._slots and not self._evict(len(named), replica_id >= 0, now):
            return None
        session = FetchSession(self._new_id(), replica_id, uses_ids, now)
        session.targets = named
        follower = session.follower
        if follower is not None:
            follower.last_fetch_s = now
            follower.broker_epoch = broker_epoch
            for target in named.values():
                target.follower = follower
                target.mark()
        self._sessions[session.id] = session
        return session

    def _new_id(self) -> int:
        while True:
            candidate = self._random.randrange(1, 2**31)
            if candidate not in self._sessions:
                return candidate

    def _evict(self, size: int, privileged: bool, now: float) -> bool:
        if not self._sessions:
            return False
        oldest = next(iter(self._sessions.values()))
        victim: FetchSession | None = None
        if now - oldest.last_used > _EVICTION_AGE_S:
            victim = oldest
        else:
            candidates = [
                session
                for session in self._sessions.values()
                if (privileged and session.follower is None)
                or (privileged == (session.follower is not None) and now - session.created > _EVICTION_AGE_S)
            ]
            smallest = min(candidates, key=lambda session: len(session.targets), default=None)
            if smallest is not None and (len(smallest.targets) < size or (privileged and smallest.follower is None)):
                victim = smallest
        if victim is None:
            return False
        del self._sessions[victim.id]
        victim.close()
        self.evicted += 1
        return True
