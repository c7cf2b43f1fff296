"""What a client needs of the world: time, chance, a thread with a loop, a network.

    with clients_in(runtime):
        producer = Producer(bootstrap_servers="broker:9092")

Programs never say so, and their clients have the system's own. A simulation gives clients its clock, its seeded
random numbers and its network; whatever a client makes for itself inside (an AsyncConsumer its Consumer) has the same.
"""

from __future__ import annotations

from _thread import LockType
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from random import Random
from typing import Final

from braidlog.client.backoff import FIRST_PAUSE_S, LONGEST_PAUSE_S, Retry
from braidlog.client.network.engine import Engine
from braidlog.client.network.nodes import Nodes
from braidlog.client.settings import Settings
from braidlog.core.clock import Clock, SystemClock
from braidlog.net.outbound.connector import Connector


@dataclass(frozen=True, slots=True)
class ClientRuntime:
    clock: Clock = field(default_factory=SystemClock)
    random: Random = field(default_factory=Random)
    # By name of the client; the loop's time has to be that of `clock`.
    new_engine: Callable[[str], Engine] = Engine
    # None: sockets, as the settings ask for them.
    connector: Connector | None = None
    # How a program's thread waits for a lock that the engine releases. None: it takes the lock.
    acquire: Callable[[LockType, float], bool] | None = None

    def nodes(self, settings: Settings) -> Nodes:
        return Nodes(settings, random=self.random, connector=self.connector, clock=self.clock)

    def retry(
        self, for_s: float, first_pause_s: float = FIRST_PAUSE_S, longest_pause_s: float = LONGEST_PAUSE_S
    ) -> Retry:
        return Retry(for_s, self.clock.monotonic, first_pause_s=first_pause_s, longest_pause_s=longest_pause_s)


_current: Final[ContextVar[ClientRuntime | None]] = ContextVar("braidlog client runtime", default=None)


def current_runtime() -> ClientRuntime:
    """For a client that is being made."""
    return _current.get() or ClientRuntime()


def use_runtime(runtime: ClientRuntime) -> None:
    """Clients that are made in this context (a process of a simulation) run there."""
    _current.set(runtime)


@contextmanager
def clients_in(runtime: ClientRuntime) -> Iterator[None]:
    """Clients that are made inside run there."""
    token = _current.set(runtime)
    try:
        yield
    finally:
        _current.reset(token)
