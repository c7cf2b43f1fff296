"""The clients of this process: Spark reuses its Python workers, and tasks that follow reuse the connections."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from threading import Lock
from typing import Final, Generic, NamedTuple, Protocol, TypeVar

# One that nobody used for so long is closed when the next is asked for, before brokers hang up by themselves.
_IDLE_S: Final = 300.0

_Settings = tuple[tuple[str, str], ...]


class Closable(Protocol):
    def close(self) -> None: ...


Client = TypeVar("Client", bound=Closable)


class _Resting(NamedTuple, Generic[Client]):
    client: Client
    since: float


class Kept(Generic[Client]):
    """Hands out a client for the settings, to one user at a time; takes it back unless it failed."""

    def __init__(
        self,
        new: Callable[[Mapping[str, str]], Client],
        close: Callable[[Client], None] = lambda client: client.close(),
        now: Callable[[], float] = time.monotonic,
        process: Callable[[], int] = os.getpid,
    ) -> None:
        self._new = new
        self._close = close
        self._now = now
        self._process_now = process
        self._forget()

    def _forget(self) -> None:
        self._process = self._process_now()
        self._lock = Lock()
        self._resting: dict[_Settings, list[_Resting[Client]]] = {}

    @contextmanager
    def use(self, settings: Mapping[str, str]) -> Iterator[Client]:
        chosen = tuple(sorted(settings.items()))
        client = self._taken(chosen) or self._new(settings)
        try:
            yield client
        except GeneratorExit:
            # Somebody had enough of the rows: the client is as good as before.
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
            stale = self._without_stale()
            resting = self._resting.get(chosen)
            found = resting.pop().client if resting else None
        for each in stale:
            self._close(each)
        return found

    def _without_stale(self) -> list[Client]:
        """Of whatever settings: a worker may serve another query next."""
        oldest = self._now() - _IDLE_S
        stale = [each.client for some in self._resting.values() for each in some if each.since < oldest]
        kept = {chosen: [each for each in some if each.since >= oldest] for chosen, some in self._resting.items()}
        self._resting = {chosen: some for chosen, some in kept.items() if some}
        return stale

    def _give_back(self, chosen: _Settings, client: Client) -> None:
        if self._process_now() != self._process:
            return
        with self._lock:
            self._resting.setdefault(chosen, []).append(_Resting(client, self._now()))
