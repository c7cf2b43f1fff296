"""Opens sessions with a ZooKeeper ensemble, one after the other, for a `StoreClient`; the first imports kazoo."""

from __future__ import annotations

import asyncio
import dataclasses
import logging

from braidlog.cluster.store import ensure_path
from braidlog.cluster.zookeeper.connection_settings import ConnectionSettings
from braidlog.cluster.zookeeper.session import SessionSettings, ZooKeeperSession
from braidlog.cluster.zookeeper.session_metrics import SessionMetrics
from braidlog.core.clock import Clock
from braidlog.core.errors import UserError
from braidlog.metrics import MetricsRegistry

_log = logging.getLogger("braidlog.cluster.zookeeper")


class ZooKeeperStore:
    def __init__(self, settings: ConnectionSettings, clock: Clock, metrics: MetricsRegistry) -> None:
        self._settings = settings
        self._clock = clock
        self._metrics = SessionMetrics(metrics)

    async def open_session(self) -> ZooKeeperSession:
        """A new session, connected; the chroot is created where it is missing, as Kafka does.

        Raises StoreUnavailableError if no server answers in time, FatalError if ZooKeeper refuses our credentials.
        """
        session = await self._connect(self._settings, self._metrics)
        if not self._settings.chroot:
            return session
        try:
            if await session.exists("/") is None:
                await self._create_chroot()
                await session.sync()
        except (Exception, asyncio.CancelledError):
            await session.close()
            raise
        return session

    async def _create_chroot(self) -> None:
        chroot = self._settings.chroot
        # Its own metrics: the others show the state of the broker's session.
        above = await self._connect(dataclasses.replace(self._settings, chroot=""), SessionMetrics(MetricsRegistry()))
        try:
            await ensure_path(above, chroot)
        finally:
            await above.close()
        _log.info("created %s in ZooKeeper, where zookeeper.connect puts the cluster", chroot)

    async def _connect(self, settings: ConnectionSettings, metrics: SessionMetrics) -> ZooKeeperSession:
        try:
            import puresasl  # noqa: F401

            from braidlog.cluster.zookeeper.kazoo_connection import KazooConnection
        except ImportError as missing:
            raise UserError(
                f"ZooKeeper takes a package that is not installed ({missing.name}): pip install 'braidlog[cluster]'"
            ) from None
        session = ZooKeeperSession(
            lambda listener: KazooConnection(settings, listener, self._clock.monotonic),
            SessionSettings(
                settings.servers_text,
                settings.connection_timeout_ms,
                settings.max_in_flight,
                bool(settings.sasl_username),
            ),
            self._clock,
            metrics,
        )
        await session.open()
        return session
