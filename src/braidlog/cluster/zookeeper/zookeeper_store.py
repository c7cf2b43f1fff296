"""Opens sessions with a ZooKeeper ensemble, one after the other, for a `StoreClient`; the first imports kazoo."""

from __future__ import annotations

from typing import TYPE_CHECKING

from braidlog.cluster.zookeeper.connection_settings import ConnectionSettings
from braidlog.cluster.zookeeper.session_metrics import SessionMetrics
from braidlog.core.clock import Clock
from braidlog.core.errors import UserError
from braidlog.metrics import MetricsRegistry

if TYPE_CHECKING:
    from braidlog.cluster.zookeeper.session import ZooKeeperSession


class ZooKeeperStore:
    def __init__(self, settings: ConnectionSettings, clock: Clock, metrics: MetricsRegistry) -> None:
        self._settings = settings
        self._clock = clock
        self._metrics = SessionMetrics(metrics)

    async def open_session(self) -> ZooKeeperSession:
        """A new session, connected; the chroot is created where it is missing, as Kafka does.

        Raises StoreUnavailableError if no server answers in time, FatalError if ZooKeeper refuses our credentials.
        """
        try:
            import puresasl  # noqa: F401

            from braidlog.cluster.zookeeper.session import ZooKeeperSession
        except ImportError as missing:
            raise UserError(
                f"ZooKeeper takes a package that is not installed ({missing.name}): pip install 'braidlog[cluster]'"
            ) from None
        session = ZooKeeperSession(self._settings, self._clock, self._metrics)
        await session.open()
        return session
