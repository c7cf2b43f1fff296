"""Incremental fetch sessions (KIP-227): a reader names its partitions once and is then sent only what changed.

    request id  epoch    meaning
    0           -1       no session, every partition is in the request and in the response
    any         0        full request; end the session `id`, try to begin a new one
    id          -1       full request; end the session `id`
    id          n > 0    the partitions in the request are changes to the session; n must be the next epoch

A session costs memory, so there are only so many (`max.incremental.fetch.session.cache.slots`): a new one takes the
place of one unused for two minutes, or of a smaller one; followers go before consumers. Who gets none is served
without one and asks again.
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

NO_SESSION: Final = 0
FINAL_EPOCH: Final = -1
INITIAL_EPOCH: Final = 0
_MAX_EPOCH: Final = 2**31 - 1
_EVICTION_AGE_S: Final = 120.0

# Topic name (empty where the topic is known by id), topic id, partition.
TargetKey = tuple[str, bytes, int]


class FetchTarget:
    """One partition a reader wants, and, inside a session, what it was last sent of it."""

    __slots__ = (
        "current_leader_epoch",
        "fetch_offset",
        "index",
        "key",
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
        self.topic = topic
        self.topic_id = topic_id
        self.index = index
        # By id where the request speaks of ids: the name may not be known yet, or no longer.
        self.key: TargetKey = ("" if topic_id != ZERO_ID else topic, topic_id, index)
        self.fetch_offset = fetch_offset
        self.max_bytes = max_bytes
        self.current_leader_epoch = current_leader_epoch
        self.last_fetched_epoch = last_fetched_epoch
        self.log_start_offset = log_start_offset
        self.sent_high_watermark = -1
        self.sent_log_start = -1

    def update(self, request: FetchTarget) -> None:
        self.fetch_offset = request.fetch_offset
        self.max_bytes = request.max_bytes
        self.current_leader_epoch = request.current_leader_epoch
        self.last_fetched_epoch = request.last_fetched_epoch
        self.log_start_offset = request.log_start_offset

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


class FetchSession:
    def __init__(self, session_id: int, privileged: bool, uses_ids: bool, created: float) -> None:
        self.id = session_id
        self.privileged = privileged
        self.uses_ids = uses_ids
        self.created = created
        self.last_used = created
        self.epoch = 1
        self.targets: dict[TargetKey, FetchTarget] = {}

    def apply(self, changes: list[FetchTarget], forgotten: list[TargetKey]) -> None:
        for change in changes:
            known = self.targets.get(change.key)
            if known is None:
                self.targets[change.key] = change
            else:
                known.update(change)
        for key in forgotten:
            self.targets.pop(key, None)

    def had_data(self, served: list[FetchTarget]) -> None:
        """Partitions that just had data go last, so that a size limit starves none of the others."""
        for target in served:
            if self.targets.pop(target.key, None) is not None:
                self.targets[target.key] = target

    def advance(self) -> None:
        self.epoch = self.epoch + 1 if self.epoch < _MAX_EPOCH else 1


class FetchContext:
    """What one fetch request asks for, whether through a session or not."""

    __slots__ = ("incremental", "session", "targets")

    def __init__(self, targets: list[FetchTarget], session: FetchSession | None, incremental: bool) -> None:
        self.targets = targets
        self.session = session
        self.incremental = incremental

    @property
    def session_id(self) -> int:
        return self.session.id if self.session is not None else NO_SESSION


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
        targets: list[FetchTarget],
        forgotten: list[TargetKey],
        uses_ids: bool,
        privileged: bool,
        now: float,
    ) -> FetchContext:
        if epoch == FINAL_EPOCH or epoch == INITIAL_EPOCH:
            self._sessions.pop(session_id, None)
            if epoch == FINAL_EPOCH or not targets:
                return FetchContext(targets, None, False)
            return FetchContext(targets, self._begin(targets, uses_ids, privileged, now), False)
        session = self._sessions.get(session_id)
        if session is None:
            raise FetchSessionIdNotFoundError
        if session.epoch != epoch:
            raise InvalidFetchSessionEpochError
        if session.uses_ids != uses_ids:
            raise FetchSessionTopicIdError
        session.apply(targets, forgotten)
        session.advance()
        session.last_used = now
        if session.targets:
            del self._sessions[session_id]
            self._sessions[session_id] = session
        else:
            # Nothing left to fetch: the session ends with this response.
            del self._sessions[session_id]
        return FetchContext(list(session.targets.values()), session, True)

    def _begin(self, targets: list[FetchTarget], uses_ids: bool, privileged: bool, now: float) -> FetchSession | None:
        if len(self._sessions) >= self._slots and not self._evict(len(targets), privileged, now):
            return None
        session = FetchSession(self._new_id(), privileged, uses_ids, now)
        session.apply(targets, [])
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
                if (privileged and not session.privileged)
                or (privileged == session.privileged and now - session.created > _EVICTION_AGE_S)
            ]
            smallest = min(candidates, key=lambda session: len(session.targets), default=None)
            if smallest is not None and (len(smallest.targets) < size or (privileged and not smallest.privileged)):
                victim = smallest
        if victim is None:
            return False
        del self._sessions[victim.id]
        self.evicted += 1
        return True
