"""How much memory clients' requests and answers may take, all connections together (`braidlog.memory.max`).

    half       requests that are being received or worked on     a large one is received when there is room for it
    a quarter  records being decompressed or converted           the request waits until there is room
    a quarter  answers that peers do not read                    the connection with the most of it is closed

Three pools, so that what waits for one never holds what another waits for. Requests small enough to arrive with one
receive call are always taken: a broker short of memory still answers heartbeats.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable
from typing import Final, Protocol

log = logging.getLogger("braidlog.net")

_MUCH: Final = 32 << 20
# A peer that sends nothing of its large request for so long is not waited for when others need the memory.
_PATIENCE_S: Final = 0.5


# The default of braidlog.memory.max: half of what there is, and no more than this.
_MOST_BY_DEFAULT: Final = 1 << 30


def default_memory_max(memory_bytes: int) -> int:
    """The budget of a process that may use `memory_bytes`."""
    return min(memory_bytes // 2, _MOST_BY_DEFAULT)


class MemoryPool:
    """So many bytes, handed out first come, first served."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.used = 0
        # The most since it was last looked at.
        self.peak = 0
        # How many requests had to wait, and how many of them were then granted.
        self.waits = 0
        self.grants = 0
        # How often some was given back.
        self.releases = 0
        self._waiting: deque[tuple[int, Callable[[], None], object]] = deque()

    @property
    def waiting(self) -> int:
        return len(self._waiting)

    def reserve(self, size: int, when_granted: Callable[[], None], owner: object = None) -> bool:
        """True where `size` bytes are reserved now; else they will be, and then `when_granted` is called.

        More than the whole pool never fits: ask `fits` first. An `owner` that does not want them any more cancels.
        """
        if not self._waiting and self.used + size <= self.limit:
            self.charge(size)
            return True
        self.waits += 1
        self._waiting.append((size, when_granted, owner))
        return False

    def cancel(self, owner: object) -> None:
        """Who is gone must not stand in the way of those behind it."""
        self._waiting = deque(waiter for waiter in self._waiting if waiter[2] is not owner)
        self._grant()

    def fits(self, size: int) -> bool:
        return size <= self.limit

    def charge(self, size: int) -> None:
        """Count bytes that are there already, whether they fit or not; negative ones are gone."""
        self.used += size
        if self.used > self.peak:
            self.peak = self.used
        if size < 0:
            self.releases += 1
            self._grant()

    def release(self, size: int) -> None:
        self.charge(-size)

    def _grant(self) -> None:
        while self._waiting and self.used + self._waiting[0][0] <= self.limit:
            size, when_granted, _ = self._waiting.popleft()
            self.charge(size)
            self.grants += 1
            when_granted()


class Receiver(Protocol):
    """A connection in the middle of a request."""

    last_active: float
    waits_for_memory: bool

    def give_back_unused(self) -> None: ...

    def close(self, reason: str) -> None: ...


class RequestMemory(MemoryPool):
    """The pool of requests.

    A large one asks for all of its memory when more than its beginning has arrived, and keeps what has not arrived only
    while its peer sends: a claimed size holds up no other. So many may have begun that none of them can end; then
    some are closed for the others to go on.
    """

    def __init__(self, limit: int) -> None:
        super().__init__(limit)
        # A dict as an ordered set, the oldest request first.
        self._receiving: dict[Receiver, None] = {}
        # Grants and releases at the last look, if anybody waited then.
        self._moved_before = -1
        self.closed = 0

    def began(self, receiver: Receiver) -> None:
        self._receiving[receiver] = None

    def ended(self, receiver: Receiver) -> None:
        self._receiving.pop(receiver, None)

    def close_stalled(self, now: float) -> None:
        """Called every second or so: where some wait for memory, take it from those that do not use it."""
        if not self.waiting:
            self._moved_before = -1
            return
        sending = [receiver for receiver in self._receiving if not receiver.waits_for_memory]
        stalled = [receiver for receiver in sending if now - receiver.last_active > _PATIENCE_S]
        for receiver in stalled:
            receiver.give_back_unused()
        moved = self.grants + self.releases
        stuck = moved == self._moved_before and len(stalled) == len(sending)
        self._moved_before = moved
        if not stuck:
            # Memory comes back by itself, from requests that are worked on or still arrive.
            return
        # Nothing has moved since the last time. Who would go on if it could gives way last, the newest first.
        for receiver in stalled or list(self._receiving)[-1:]:
            receiver.close("the rest of its request did not come while others needed the memory")
            self.closed += 1


class Backlogged(Protocol):
    """A connection whose peer does not read its answers."""

    peer_host: str
    unsent_memory: int

    def close(self, reason: str) -> None: ...


class ResponseMemory:
    """What unsent answers take in all connections together."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.used = 0
        self.peak = 0
        self.closed = 0
        self._backlogged: dict[Backlogged, None] = {}

    @property
    def tight(self) -> bool:
        """Nearly used up: a peer with unread answers gets no more until it reads them."""
        return self.used > self.limit // 2

    def changed(self, connection: Backlogged, before: int) -> None:
        """`connection.unsent_memory` is another than before."""
        now = connection.unsent_memory
        self.used += now - before
        if self.used > self.peak:
            self.peak = self.used
        if now == 0:
            self._backlogged.pop(connection, None)
            return
        self._backlogged[connection] = None
        while self.used > self.limit and self._backlogged:
            largest = max(self._backlogged, key=_unsent_memory)
            self.closed += 1
            log.warning(
                "closed the connection from %s: %d bytes of answers that it does not read, and all connections "
                "together have %d of the %d that braidlog.memory.max allows",
                largest.peer_host,
                largest.unsent_memory,
                self.used,
                self.limit,
            )
            largest.close("its answers are not read and memory is short")


def _unsent_memory(connection: Backlogged) -> int:
    return connection.unsent_memory


class MemoryBudget:
    def __init__(self, limit: int, request_limit: int = 0) -> None:
        """`request_limit` is queued.max.request.bytes, 0 or less where that is not set."""
        self.limit = limit
        half = limit // 2
        self.requests = RequestMemory(min(half, request_limit) if request_limit > 0 else half)
        self.conversions = MemoryPool(limit // 4)
        self.answers = ResponseMemory(limit // 4)

    def has_emptied(self) -> bool:
        """Whether much was in use since this was last asked, and hardly anything is now."""
        used = self.requests.used + self.conversions.used + self.answers.used
        peak = self.requests.peak + self.conversions.peak + self.answers.peak
        if peak < _MUCH or used > peak // 4:
            return False
        self.requests.peak = self.requests.used
        self.conversions.peak = self.conversions.used
        self.answers.peak = self.answers.used
        return True
