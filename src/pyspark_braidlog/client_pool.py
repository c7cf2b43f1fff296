"""A pool of clients per process: Spark reuses its Python workers, so that later tasks reuse the connections."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from threading import Lock, Timer
from typing import Final, Generic, NamedTuple, Protocol, TypeVar

# A client that rested for so long is closed. It is well below the age at which clients refresh their metadata: one that
# no task uses must not complain of a broker that was stopped after the query.
_IDLE_S: Final = 60.0

_Settings = tuple[tuple[str, str], ...]


class Closable(Protocol):
    def close(self) -> None: ...


Client = TypeVar("Client", bound=Closable)


def _start_timer(delay_s: float, action: Callable[[], None]) -> None:
    timer = Timer(delay_s, action)
    timer.daemon = True
    timer.start()


class _IdleClient(NamedTuple, Generic[Client]):
    client: Client
    since: float


class ClientPool(Generic[Client]):
    """Hands out a client for the settings, to one user at a time; takes it back unless it failed."""

    def __init__(
        self,
        new: Callable[[Mapping[str, str]], Client],
        close: Callable[[Client], None] = lambda client: client.close(),
        now: Callable[[], float] = time.monotonic,
        process: Callable[[], int] = os.getpid,
        call_later: Callable[[float, Callable[[], None]], None] = _start_timer,
    ) -> None:
        self._new = new
        self._close = close
        self._now = now
        self._process_now = process
        self._call_later = call_later
        self._forget()

    def _forget(self) -> None:
        self._process = self._process_now()
        self._lock = Lock()
        self._resting: dict[_Settings, list[_IdleClient[Client]]] = {}
        # Whether a timer is running; none is while nothing rests.
        self._is_timed = False

    @contextmanager
    def use(self, settings: Mapping[str, str]) -> Iterator[Client]:
        chosen = tuple(sorted(settings.items()))
        client = self._taken(chosen) or self._new(settings)
        try:
            yield client
        except GeneratorExit:
            # The consumer of the rows had enough: the client is as good as before.
            self._give_back(chosen, client)
            raise
        except BaseException:
            self._close(client)
            raise
        self._give_back(chosen, client)

    def _taken(self, chosen: _Settings) -> Client | None:
        if self._process_now() != self._process:
            # After a fork: the clients' threads stayed behind, and the connections are the parent's.
            self._forget()
        with self._lock:
            resting = self._resting.get(chosen)
            return resting.pop().client if resting else None

    def _give_back(self, chosen: _Settings, client: Client) -> None:
        if self._process_now() != self._process:
            return
        with self._lock:
            self._resting.setdefault(chosen, []).append(_IdleClient(client, self._now()))
            starts_timer = not self._is_timed
            self._is_timed = True
        if starts_timer:
            self._call_later(_IDLE_S, self._close_idle)

    def _close_idle(self) -> None:
        with self._lock:
            idle = self._without_idle()
            oldest = min((each.since for some in self._resting.values() for each in some), default=None)
            self._is_timed = oldest is not None
        if oldest is not None:
            self._call_later(max(oldest + _IDLE_S - self._now(), 0.0), self._close_idle)
        for each in idle:
            self._close(each)

    def _without_idle(self) -> list[Client]:
        """Those to close, of whatever settings: a worker may serve another query next."""
        latest = self._now() - _IDLE_S
        idle = [each.client for some in self._resting.values() for each in some if each.since <= latest]
        kept = {chosen: [each for each in some if each.since > latest] for chosen, some in self._resting.items()}
        self._resting = {chosen: some for chosen, some in kept.items() if some}
        return idle
