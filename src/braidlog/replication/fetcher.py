"""What one fetcher asks one leader broker for: the partitions it follows there, and its fetch session (KIP-227). Pure.

    add → truncating → fetching ⇄ delayed           `remove` and a new leader epoch end each of these

    session epoch 0     a full request: every partition is named
    session epoch n     only those whose position has changed since, and those that are no longer fetched

A request costs what has changed, not what is followed. Replicas that are throttled (KIP-73) take turns with what the
rate allows, unless they are in sync: the others are held, which is to be left out of the session.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable, Hashable
from typing import Final, TypeVar

from braidlog.core.ids import ZERO_ID
from braidlog.core.protocol_errors import NONE, FetchSessionIdNotFoundError
from braidlog.core.replication_quota import UNLIMITED
from braidlog.core.types import TopicPartition
from braidlog.replication.follower import PartitionFetchState

NO_SESSION: Final = 0
FULL: Final = 0
_LAST_EPOCH: Final = 0x7FFFFFFF
# Of very many partitions, so that neither side is held up: the session gets them over several requests.
_NAMED_AT_A_TIME: Final = 1000
# A leader that does not know of its election yet soon does.
_FIRST_PAUSE_S: Final = 0.05
_NOTHING: Final[dict[int, PartitionFetchState]] = {}

_Topic = TypeVar("_Topic", bound=Hashable)


class FetchPlan:
    """What the next request says."""

    __slots__ = ("asked", "epoch", "forgotten", "has_more", "session_id")

    def __init__(
        self,
        session_id: int,
        epoch: int,
        asked: list[PartitionFetchState],
        forgotten: dict[TopicPartition, bytes],
        has_more: bool,
    ) -> None:
        self.session_id = session_id
        self.epoch = epoch
        self.asked = asked
        # With the ids they were asked for by.
        self.forgotten = forgotten
        # The next request is to name others, so that the leader must not hold this one.
        self.has_more = has_more


class Fetcher:
    def __init__(self) -> None:
        self.partitions: dict[TopicPartition, PartitionFetchState] = {}
        # The same by topic and partition number, for what answers speak of.
        self._by_name: dict[str, dict[int, PartitionFetchState]] = {}
        self._by_id: dict[bytes, dict[int, PartitionFetchState]] = {}
        # Those for which it is not known yet from where on to fetch.
        self._truncating: dict[TopicPartition, PartitionFetchState] = {}
        # To be named in the next request of a session.
        self._changed: dict[PartitionFetchState, None] = {}
        self._delayed: list[tuple[float, int, PartitionFetchState]] = []
        # Those that the topic's settings say are throttled, in the order of their turns.
        self._throttled: dict[TopicPartition, PartitionFetchState] = {}
        self._numbers = itertools.count()
        # Topics that came from a controller which gives none.
        self._without_id = 0
        self._session_id = NO_SESSION
        self._epoch = FULL
        self._uses_ids = False
        # Whether the leader had room for a session when it was last asked for one.
        self._gets_sessions = True
        # Counts the sessions that were begun.
        self._session_number = 1
        # What the leader's session has, with topic ids; and what of it is to go.
        self._in_session: dict[TopicPartition, bytes] = {}
        self._forgotten: dict[TopicPartition, bytes] = {}

    @property
    def has_ids(self) -> bool:
        """Whether all topics can be asked for by their ids."""
        return self._without_id == 0

    # What is followed

    @property
    def has_truncating(self) -> bool:
        """Whether there is a partition for which it is not known yet from where on to fetch."""
        return bool(self._truncating)

    def add(self, state: PartitionFetchState) -> None:
        self.remove(state.key)
        state.is_followed = True
        self.partitions[state.key] = state
        self._by_name.setdefault(state.key.topic, {})[state.key.partition] = state
        if state.topic_id == ZERO_ID:
            self._without_id += 1
        else:
            self._by_id.setdefault(state.topic_id, {})[state.key.partition] = state
        self._truncating[state.key] = state
        if state.partition.follower_throttled:
            self._throttled[state.key] = state

    def remove(self, key: TopicPartition) -> PartitionFetchState | None:
        state = self.partitions.pop(key, None)
        if state is None:
            return None
        state.is_followed = False
        _remove_from(self._by_name, key.topic, key.partition)
        if state.topic_id == ZERO_ID:
            self._without_id -= 1
        else:
            _remove_from(self._by_id, state.topic_id, key.partition)
        self._truncating.pop(key, None)
        self._throttled.pop(key, None)
        self._leave_session(state)
        return state

    def of_topic(self, topic: str, topic_id: bytes) -> dict[int, PartitionFetchState]:
        """What an answer speaks of, by partition number."""
        return self._by_id.get(topic_id, _NOTHING) if self._uses_ids else self._by_name.get(topic, _NOTHING)

    def follows(self, state: PartitionFetchState) -> bool:
        """Whether it is followed still: role, epoch and log may have changed while the leader was asked."""
        return state.is_followed and state.is_current

    def truncating(self, now: float) -> list[PartitionFetchState]:
        """Those that may be asked about now."""
        self._end_delays(now)
        return [state for state in self._truncating.values() if state.retry_at == 0.0]

    def truncated(self, state: PartitionFetchState) -> None:
        """From where it fetches may have changed; it is fetched unless it `is_truncating` still."""
        if not state.is_followed:
            return
        if state.is_truncating:
            self._truncating[state.key] = state
        else:
            self._truncating.pop(state.key, None)
            self.moved(state)

    def moved(self, state: PartitionFetchState) -> None:
        """Its position is another one than the leader was told."""
        if state.is_followed and state.retry_at == 0.0 and not state.is_held:
            self._changed[state] = None

    # Throttles

    def throttle_changed(self, key: TopicPartition) -> None:
        """The topic's settings say of this replica whether it is throttled."""
        state = self.partitions.get(key)
        if state is None:
            return
        if state.partition.follower_throttled:
            self._throttled.setdefault(key, state)
        elif self._throttled.pop(key, None) is not None:
            self._release(state, UNLIMITED)

    @property
    def has_throttled(self) -> bool:
        return bool(self._throttled)

    @property
    def has_held(self) -> bool:
        return any(state.is_held for state in self._throttled.values())

    def share_out(self, allowance: int, most: int, is_in_sync: Callable[[PartitionFetchState], bool]) -> None:
        """Before a request: throttled replicas ask for `most` each until the allowance is used up, the rest is held."""
        for state in list(self._throttled.values()):
            if is_in_sync(state):
                self._release(state, UNLIMITED)
            elif allowance > 0:
                share = min(allowance, most)
                allowance -= share
                self._release(state, share)
                # The next time the others come first.
                del self._throttled[state.key]
                self._throttled[state.key] = state
            elif not state.is_held:
                state.is_held = True
                self._leave_session(state)

    def _release(self, state: PartitionFetchState, max_bytes: int) -> None:
        if not state.is_held and state.max_bytes == max_bytes:
            return
        state.is_held = False
        state.max_bytes = max_bytes
        if not state.is_truncating:
            self.moved(state)

    # Failures

    def delay(self, state: PartitionFetchState, now: float, longest_s: float, *, briefly: bool = False) -> None:
        """Leave it alone for `longest_s`; `briefly` for less at first, where it is likely to be well soon."""
        if not state.is_followed:
            return
        pause = min(longest_s, _FIRST_PAUSE_S * 2.0 ** min(state.failures, 10)) if briefly else longest_s
        state.failures += 1
        state.retry_at = now + max(pause, 0.001)
        heapq.heappush(self._delayed, (state.retry_at, next(self._numbers), state))
        self._leave_session(state)

    def _end_delays(self, now: float) -> None:
        while self._delayed and self._delayed[0][0] <= now:
            at, _, state = heapq.heappop(self._delayed)
            if state.is_followed and state.retry_at == at:
                state.retry_at = 0.0
                if not state.is_truncating:
                    self.moved(state)

    @property
    def retries_at(self) -> float | None:
        """When the next delay ends."""
        return self._delayed[0][0] if self._delayed else None

    def _leave_session(self, state: PartitionFetchState) -> None:
        self._changed.pop(state, None)
        state.session_number = 0
        topic_id = self._in_session.pop(state.key, None)
        if topic_id is not None:
            self._forgotten[state.key] = topic_id

    def _join_session(self, state: PartitionFetchState) -> None:
        state.session_number = self._session_number
        self._in_session[state.key] = state.topic_id
        if self._forgotten.get(state.key) == state.topic_id:
            del self._forgotten[state.key]

    # The session

    def next_request(self, now: float, *, uses_ids: bool) -> FetchPlan | None:
        """None while there is nothing to ask for."""
        self._end_delays(now)
        if uses_ids != self._uses_ids:
            # A session names topics either by name or by id.
            self._uses_ids = uses_ids
            self._epoch = FULL
        if self._epoch == FULL:
            self._changed = {
                each: None
                for each in self.partitions.values()
                if not each.is_truncating and each.retry_at == 0.0 and not each.is_held
            }
            self._session_number += 1
            self._in_session = {}
            self._forgotten = {}
        changed = self._changed
        # Without a session each request has to name them all.
        most = len(changed) if self._epoch == FULL and not self._gets_sessions else _NAMED_AT_A_TIME
        named = list(changed) if len(changed) <= most else list(itertools.islice(changed, most))
        if len(named) == len(changed):
            self._changed = {}
        else:
            for state in named:
                del changed[state]
        asked: list[PartitionFetchState] = []
        for state in named:
            if state.is_current:
                asked.append(state)
                if state.session_number != self._session_number:
                    self._join_session(state)
        if not self._in_session:
            self._epoch = FULL
            return None
        forgotten, self._forgotten = self._forgotten, {}
        return FetchPlan(self._session_id, self._epoch, asked, forgotten, bool(self._changed))

    def on_response(self, error_code: int, session_id: int) -> None:
        """What the leader made of the last request."""
        if error_code != NONE:
            # One that the leader lost cannot be closed; any other is, by the full request that follows.
            if error_code == FetchSessionIdNotFoundError.code:
                self._session_id = NO_SESSION
            self._epoch = FULL
        elif session_id == NO_SESSION:
            # The leader has no room for a session, or gave this one up but answered what was asked.
            self._session_id = NO_SESSION
            self._gets_sessions = self._epoch != FULL
            self._epoch = FULL
        elif self._epoch == FULL:
            self._session_id = session_id
            self._gets_sessions = True
            self._epoch = 1
        else:
            self._epoch = self._epoch + 1 if self._epoch < _LAST_EPOCH else 1

    def on_no_response(self) -> None:
        """Whether the leader took the request is not known, so the next one starts over."""
        self._epoch = FULL


def _remove_from(topics: dict[_Topic, dict[int, PartitionFetchState]], topic: _Topic, index: int) -> None:
    partitions = topics[topic]
    del partitions[index]
    if not partitions:
        del topics[topic]
