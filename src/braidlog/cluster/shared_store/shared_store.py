"""Opens sessions with the store that a process of this machine serves, one after the other, for a `StoreClient`."""

from __future__ import annotations

from typing import NamedTuple

from braidlog.cluster.shared_store.store_connection import StoreConnection
from braidlog.cluster.zookeeper.session import SessionSettings, ZooKeeperSession
from braidlog.cluster.zookeeper.session_metrics import SessionMetrics
from braidlog.config.broker import BrokerSettings
from braidlog.core.clock import Clock
from braidlog.metrics import MetricsRegistry


class SharedStoreSettings(NamedTuple):
    """`owner` names this process among those that use the store: its new session ends the one that it had before."""

    path: str
    owner: str
    session_timeout_ms: int = 18_000
    connection_timeout_ms: int = 18_000
    max_in_flight: int = 10


def shared_store_settings(settings: BrokerSettings, owner: str) -> SharedStoreSettings:
    session_timeout_ms = settings.get_int("zookeeper.session.timeout.ms")
    given = settings.get("zookeeper.connection.timeout.ms")
    return SharedStoreSettings(
        settings.get_str("braidlog.store.socket"),
        owner,
        session_timeout_ms,
        given if isinstance(given, int) else session_timeout_ms,
        settings.get_int("zookeeper.max.in.flight.requests"),
    )


class SharedStore:
    def __init__(self, settings: SharedStoreSettings, clock: Clock, metrics: MetricsRegistry) -> None:
        self._settings = settings
        self._clock = clock
        self._metrics = SessionMetrics(metrics)

    async def open_session(self) -> ZooKeeperSession:
        """A new session, connected; raises StoreUnavailableError if nobody serves the store in time."""
        settings = self._settings
        session = ZooKeeperSession(
            lambda listener: StoreConnection(
                settings.path, settings.owner, settings.session_timeout_ms, listener, self._clock.monotonic
            ),
            SessionSettings(
                settings.path,
                settings.connection_timeout_ms,
                settings.max_in_flight,
                store="the shared store",
                advice="it is served by `braidlog serve --workers`, which must be running; see its log",
            ),
            self._clock,
            self._metrics,
        )
        await session.open()
        return session
