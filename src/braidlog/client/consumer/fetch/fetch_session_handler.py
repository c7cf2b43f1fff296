"""The client's half of a fetch session (KIP-227): after one full request only changes are sent. Pure.

epoch 0     a full request: everything is named; the broker may open a session for it (and closes the one named)
epoch n     only what was added, changed or is no longer wanted since epoch n - 1
epoch -1    a full request without a session, which closes the one named
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from braidlog.core.protocol_errors import NONE, FetchSessionIdNotFoundError
from braidlog.core.types import TopicPartition

NO_SESSION: Final = 0
FULL: Final = 0
FINAL: Final = -1
_LAST_EPOCH: Final = 0x7FFFFFFF


class RequestedPartition(NamedTuple):
    """What is wanted of one partition; a change of any field is sent."""

    topic_id: bytes
    offset: int
    leader_epoch: int
    max_bytes: int
    log_start: int = -1


class FetchRequestData(NamedTuple):
    session_id: int
    epoch: int
    # In the order to be read: brokers fill an answer in it.
    asked: dict[TopicPartition, RequestedPartition]
    # With the ids they were asked for by.
    forgotten: dict[TopicPartition, bytes]
    uses_ids: bool

    @property
    def is_full(self) -> bool:
        return self.epoch <= FULL


class FetchSessionHandler:
    def __init__(self) -> None:
        self.session_id = NO_SESSION
        self.epoch = FULL
        self._known: dict[TopicPartition, RequestedPartition] = {}
        self._uses_ids = False

    def plan(self, wanted: Mapping[TopicPartition, RequestedPartition], *, uses_ids: bool) -> FetchRequestData:
        """The next request, given everything that is wanted of this broker now."""
        if self.epoch > FULL and uses_ids != self._uses_ids:
            # A session names topics either by name or by id.
            self.epoch = FULL
        self._uses_ids = uses_ids
        if self.epoch == FULL:
            self._known = dict(wanted)
            return FetchRequestData(self.session_id, FULL, dict(wanted), {}, uses_ids)
        forgotten: dict[TopicPartition, bytes] = {}
        for each, before in self._known.items():
            now = wanted.get(each)
            # A topic that was made anew is another one.
            if now is None or now.topic_id != before.topic_id:
                forgotten[each] = before.topic_id
        asked = {each: now for each, now in wanted.items() if self._known.get(each) != now}
        self._known = dict(wanted)
        return FetchRequestData(self.session_id, self.epoch, asked, forgotten, uses_ids)

    def closing(self) -> FetchRequestData | None:
        """The request that ends the session; none where there is none to end."""
        if self.session_id == NO_SESSION:
            return None
        return FetchRequestData(self.session_id, FINAL, {}, {}, self._uses_ids)

    def handle_response(self, error_code: int, session_id: int) -> None:
        """What the broker made of the last request."""
        if error_code != NONE:
            # One that the broker lost cannot be closed; any other is, by the full request that follows.
            if error_code == FetchSessionIdNotFoundError.code:
                self.session_id = NO_SESSION
            self.epoch = FULL
        elif self.epoch == FULL:
            self.session_id = session_id
            self.epoch = FULL if session_id == NO_SESSION else 1
        elif session_id == NO_SESSION:
            # The broker gave the session up but answered what was asked.
            self.session_id = NO_SESSION
            self.epoch = FULL
        else:
            self.epoch = self.epoch + 1 if self.epoch < _LAST_EPOCH else 1

    def handle_error(self) -> None:
        """No answer: whether the broker took the request is not known, so the next one starts over."""
        self.epoch = FULL
