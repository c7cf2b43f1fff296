"""One session with ZooKeeper for a command that needs no broker."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from braidlog.cluster.store import CoordinationStore
from braidlog.cluster.zookeeper.connection_settings import connection_settings
from braidlog.cluster.zookeeper.zookeeper_store import ZooKeeperStore
from braidlog.config.broker import BrokerSettings
from braidlog.config.sources import load_settings
from braidlog.core.clock import SystemClock
from braidlog.metrics import MetricsRegistry

T = TypeVar("T")


def zookeeper_settings(config: str | None) -> BrokerSettings:
    """`config` is a broker's file, for how to reach a ZooKeeper that is secured."""
    # Variables are those of a broker, which this is not.
    return load_settings(config, {}).settings


def zookeeper_session(connect: str, settings: BrokerSettings, call: Callable[[CoordinationStore], Awaitable[T]]) -> T:
    """What `call` returns; `connect` is zookeeper.connect, whose chroot is made where it is missing."""

    async def session() -> T:
        store = await ZooKeeperStore(
            connection_settings(connect, settings), SystemClock(), MetricsRegistry()
        ).open_session()
        try:
            return await call(store)
        finally:
            await store.close()

    return asyncio.run(session())
