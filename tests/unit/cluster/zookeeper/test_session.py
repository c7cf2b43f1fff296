"""The contract of a coordination store against a real ZooKeeper, and what only a store behind a network has."""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager

import pytest
from kazoo.client import KazooClient

from braidlog.cluster.store import CoordinationStore
from braidlog.cluster.zookeeper.connection_settings import ConnectionSettings, parse_connect
from braidlog.cluster.zookeeper.session import ZooKeeperSession
from braidlog.cluster.zookeeper.zookeeper_store import ZooKeeperStore
from braidlog.core.clock import SystemClock
from braidlog.metrics import MetricsRegistry
from braidlog.testing.zookeeper import ZooKeeper, zookeeper_missing
from support.store_contract import Connect, StoreContract

MISSING = zookeeper_missing()
pytestmark = pytest.mark.skipif(bool(MISSING), reason=MISSING)

QUIET = logging.getLogger("quiet")
QUIET.setLevel(logging.CRITICAL)
_chroots = (f"/test-{number}" for number in itertools.count())


@pytest.fixture(scope="module")
def zookeeper() -> Iterator[ZooKeeper]:
    with ZooKeeper() as running:
        yield running


def settings_for(connect: str, chroot: str = "", **changed: object) -> ConnectionSettings:
    servers, _ = parse_connect(connect)
    values: dict[str, object] = {"session_timeout_ms": 6_000, "connection_timeout_ms": 20_000, **changed}
    return ConnectionSettings(servers, chroot, **values)  # type: ignore[arg-type]


class TestContract(StoreContract):
    @pytest.fixture(autouse=True)
    def server(self, zookeeper: ZooKeeper) -> None:
        self.zookeeper = zookeeper

    @asynccontextmanager
    async def cluster(self) -> AsyncIterator[Connect]:
        store = ZooKeeperStore(settings_for(self.zookeeper.connect, next(_chroots)), SystemClock(), MetricsRegistry())
        sessions: list[CoordinationStore] = []

        async def connect() -> CoordinationStore:
            session = await store.open_session()
            sessions.append(session)
            return session

        yield connect
        await asyncio.gather(*(session.close() for session in sessions))

    async def expire(self, session: CoordinationStore) -> None:
        assert isinstance(session, ZooKeeperSession)
        await expire(session, self.zookeeper)


async def expire(session: ZooKeeperSession, zookeeper: ZooKeeper) -> None:
    """Close the session from another connection, and wait until it has noticed."""
    client = session._connection._client
    told = asyncio.Event()
    session.on_expiry(told.set)
    thief = KazooClient(zookeeper.connect, client_id=(client._session_id, client._session_passwd), logger=QUIET)
    await asyncio.to_thread(thief.start)
    await asyncio.to_thread(thief.stop)
    await asyncio.to_thread(thief.close)
    await told.wait()
