from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from braidlog.cluster.shared_store.shared_store import SharedStore, SharedStoreSettings, shared_store_settings
from braidlog.cluster.store import StoreUnavailableError
from braidlog.config.broker import BrokerSettings
from braidlog.core.clock import SystemClock
from braidlog.metrics import MetricsRegistry
from support.served_store import Served, run


def test_nobody_serves(tmp_path: Path) -> None:
    async def body() -> None:
        settings = SharedStoreSettings(str(tmp_path / "no.sock"), "a", 1_000, 100)
        with pytest.raises(StoreUnavailableError, match=r"no\.sock within 100 ms .*braidlog serve --workers"):
            await SharedStore(settings, SystemClock(), MetricsRegistry()).open_session()

    asyncio.run(body())


def test_settings_are_those_of_zookeeper() -> None:
    given = BrokerSettings({"braidlog.store.socket": "/s", "zookeeper.session.timeout.ms": "6000"})
    assert shared_store_settings(given, "me") == SharedStoreSettings("/s", "me", 6_000, 6_000, 10)
    given = BrokerSettings({"braidlog.store.socket": "/s", "zookeeper.connection.timeout.ms": "100"})
    assert shared_store_settings(given, "me") == SharedStoreSettings("/s", "me", 18_000, 100, 10)


def test_the_timeout_is_what_the_store_allows(tmp_path: Path) -> None:
    async def body(served: Served) -> None:
        assert (await served.open(timeout_ms=10)).session_timeout_s == 1.0
        assert (await served.open(timeout_ms=10_000_000)).session_timeout_s == 120.0
        assert (await served.open(timeout_ms=6_000)).session_timeout_s == 6.0

    run(tmp_path, body)
