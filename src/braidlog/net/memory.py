"""How much memory clients' requests and answers may take, all connections together (`braidlog.memory.max`).

    half       requests that are being received or worked on     a large one is received only when there is room
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

# A peer that holds memory for a large request, while others wait for some, must send it: this long at least, and at
# this rate.
_PATIENCE_S: Final = 10.0
_SLOWEST_BYTES_PER_S: Final = 1 << 20


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
        # How often somebody had to wait.
        self.waits = 0
        self._waiting: deque[tuple[int, Callable[[], None]]] = deque()

    @property
    def waiting(self) -> int:
        return len(self._waiting)

    def reserve(self, size: int, when_granted: Callable[[], None]) -> bool:
        """True where `size` bytes are reserved now; else they will be, and then `when_granted` is called.

        More than the whole pool never fits: ask `fits` first.
        """
        if not self._waiting and self.used + size <= self.limit:
            self.used += size
            return True
        self.waits += 1
        self._waiting.append((size, when_granted))
        return False

    def fits(self, size: int) -> bool:
        return size <= self.limit

    def charge(self, size: int) -> None:
        """Count bytes that are there already, whether they fit or not; negative ones are gone."""
        self.used += size
        if size < 0:
            self._grant()

    def release(self, size: int) -> None:
        self.used -= size
        self._grant()

    def _grant(self) -> None:
        waiting = self._waiting
        while waiting and self.used + waiting[0][0] <= self.limit:
            size, when_granted = waiting.popleft()
            self.used += size
            when_granted()


class LargeReceiver(Protocol):
    """A connection that holds memory for a request whose rest has not come."""

    receiving_since: float
    receiving_size: int

    def close(self, reason: str) -> None: ...


class RequestMemory(MemoryPool):
    """The pool of requests; a peer that claims memory and then does not send is not waited for when others need it."""

    def __init__(self, limit: int) -> None:
        super().__init__(limit)
        # A dict as an ordered set.
        self._receiving: dict[LargeReceiver, None] = {}

    def began(self, receiver: LargeReceiver) -> None:
        self._receiving[receiver] = None

    def ended(self, receiver: LargeReceiver) -> None:
        self._receiving.pop(receiver, None)

    def close_stalled(self, now: float) -> None:
        """Called every second or so."""
        if not self.waiting:
            return
        for receiver in list(self._receiving):
            allowed = _PATIENCE_S + receiver.receiving_size / _SLOWEST_BYTES_PER_S
            if now - receiver.receiving_since > allowed:
                receiver.close(f"its large request did not arrive within {allowed:.0f} s while others need the memory")


class Backlogged(Protocol):
    """A connection whose peer does not read its answers."""

    peer_host: str
    unsent_memory: int

    def close(self, reason: str) -> None: ...


class AnswerMemory:
    """What unsent answers take in all connections together."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.used = 0
        self.closed = 0
        self._backlogged: dict[Backlogged, None] = {}

    @property
    def tight(self) -> bool:
        """Nearly used up: whoever has unread answers gets no more until it reads them."""
        return self.used > self.limit // 2

    def changed(self, connection: Backlogged, before: int) -> None:
        """`connection.unsent_memory` is another than before."""
        now = connection.unsent_memory
        self.used += now - before
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
        self.answers = AnswerMemory(limit // 4)
