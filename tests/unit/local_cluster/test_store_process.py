"""The process that serves a store, as `Workers` starts it."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from pathlib import Path

from braidlog.cluster.shared_store.store_connection import SharedStore, SharedStoreSettings
from braidlog.core.clock import SystemClock
from braidlog.local_cluster import store_process
from braidlog.metrics import MetricsRegistry


def start(directory: Path) -> subprocess.Popen[bytes]:
    path = str(directory / "store.sock")
    child = subprocess.Popen(
        [sys.executable, "-m", store_process.__name__, str(directory), path, "text", "INFO"],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    return child


def test_a_process_serves_until_its_input_ends_and_nobody_is_connected(tmp_path: Path) -> None:
    child = start(tmp_path)
    assert child.stdout is not None
    assert child.stdin is not None
    assert child.stdout.readline() == b"ready\n"

    async def use() -> None:
        settings = SharedStoreSettings(str(tmp_path / "store.sock"), "me")
        session = await SharedStore(settings, SystemClock(), MetricsRegistry()).open_session()
        await session.create("/a", b"kept")
        assert child.stdin is not None
        child.stdin.close()
        # Whoever stops needs it still.
        assert (await session.get("/a")).data == b"kept"
        assert child.poll() is None
        await session.close()

    asyncio.run(use())
    assert child.wait(30) == 0
    assert not (tmp_path / "store.sock").exists()
    child.stdout.close()
    assert child.stderr is not None
    child.stderr.close()


def test_it_ends_at_once_when_it_is_asked_twice(tmp_path: Path) -> None:
    child = start(tmp_path)
    assert child.stdout is not None
    assert child.stdout.readline() == b"ready\n"

    async def use() -> None:
        settings = SharedStoreSettings(str(tmp_path / "store.sock"), "me")
        session = await SharedStore(settings, SystemClock(), MetricsRegistry()).open_session()
        await session.create("/e", ephemeral=True)
        child.terminate()
        await session.sync()
        assert child.poll() is None
        child.terminate()
        assert await asyncio.to_thread(child.wait, 30) == 0
        # Its session is not over, should somebody serve it again.
        again = start(tmp_path)
        assert await session.exists("/e") is not None
        await session.close()
        again.terminate()
        await asyncio.to_thread(again.communicate, timeout=30)
        assert again.returncode == 0

    asyncio.run(use())
    child.communicate()


def test_a_store_in_use_is_refused_in_a_line(tmp_path: Path) -> None:
    first = start(tmp_path)
    assert first.stdout is not None
    assert first.stdout.readline() == b"ready\n"
    second = start(tmp_path)
    _, said = second.communicate(timeout=30)
    assert second.returncode == 1
    assert b"braidlog: store: " in said
    assert b"is in use by another broker; stop it first" in said
    # The socket is still the first one's.
    assert (tmp_path / "store.sock").is_socket()
    first.terminate()
    first.communicate(timeout=30)
    assert first.returncode == 0
