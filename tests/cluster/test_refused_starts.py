"""A broker that cannot join says why in one line, ends with 1, and leaves the store and its directories alone."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

from kazoo.client import KazooClient

from braidlog.local_cluster.zookeeper import ZooKeeper
from support.broker import serve_command
from support.cluster import BASE_SETTINGS, start_cluster
from support.ports import lasting_port

SETTINGS = {**BASE_SETTINGS, "zookeeper.connection.timeout.ms": "60000"}


def refused(data_dir: Path, **settings: str) -> str:
    """The one line on standard error of a start that fails; dots in names are written as underscores."""
    data_dir.mkdir(parents=True, exist_ok=True)
    given = {**SETTINGS, **{key.replace("_", "."): value for key, value in settings.items()}}
    done = subprocess.run(serve_command(data_dir, 0, given), capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 1, done.stderr
    lines = [line for line in done.stderr.splitlines() if line.startswith("braidlog: ")]
    assert len(lines) == 1, done.stderr
    assert "Traceback" not in done.stderr
    return lines[0]


def nodes(connect: str) -> list[str]:
    """Every path below a chroot."""
    client = KazooClient(connect)
    client.start()
    try:
        found = [] if client.exists("/") is None else ["/"]
        for path in found:
            found += [f"{path.rstrip('/')}/{child}" for child in client.get_children(path)]
        return sorted(found)
    finally:
        client.stop()
        client.close()


def test_settings_that_would_protect_nothing(tmp_path: Path) -> None:
    line = refused(tmp_path, zookeeper_connect="localhost:1", control_plane_listener_name="CONTROLLER")
    assert "control.plane.listener.name has no effect" in line
    line = refused(tmp_path, zookeeper_connect="localhost:1", zookeeper_metadata_migration_enable="true")
    assert "zookeeper.metadata.migration.enable has no effect" in line
    assert list(tmp_path.iterdir()) == []


def test_an_ensemble_that_does_not_answer(tmp_path: Path) -> None:
    address = f"127.0.0.1:{lasting_port()}"
    line = refused(tmp_path, zookeeper_connect=address, zookeeper_connection_timeout_ms="2000")
    assert f"cannot reach ZooKeeper at {address} within 2000 ms" in line
    assert "zookeeper.connect" in line
    line = refused(tmp_path, zookeeper_connect=f"{address}//wrong", zookeeper_connection_timeout_ms="2000")
    assert "zookeeper.connect" in line
    assert not (tmp_path / "meta.properties").exists()


def test_a_cluster_refuses_whom_it_does_not_know(
    zookeeper: ZooKeeper, new_connect: Callable[[], str], tmp_path: Path
) -> None:
    connect, elsewhere = new_connect(), new_connect()
    with start_cluster(zookeeper, tmp_path / "one", 1, {"zookeeper.connect": connect}) as cluster:
        broker = cluster.brokers[0]
        # Another process with its id: waited for as if it were its last life, then refused.
        line = refused(tmp_path / "duplicate", zookeeper_connect=connect, broker_id="0")
        assert "broker id 0 is registered by another broker that is alive" in line
        assert broker.is_running
        # Directories of this cluster at a path without one: nothing is created there.
        broker.stop()
        before = (broker.data_dir / "meta.properties").read_text()
        line = refused(broker.data_dir, zookeeper_connect=elsewhere)
        assert "there is none at zookeeper.connect" in line
        assert [path for path in nodes(elsewhere) if path != "/"] == []
        # At the path of another cluster.
        with start_cluster(zookeeper, tmp_path / "two", 1, {"zookeeper.connect": elsewhere}):
            line = refused(broker.data_dir, zookeeper_connect=elsewhere)
            assert "the data directories belong to cluster" in line
            assert "correct zookeeper.connect or log.dirs" in line
        assert (broker.data_dir / "meta.properties").read_text() == before
        # Another id than the directories have.
        line = refused(broker.data_dir, zookeeper_connect=connect, broker_id="7")
        assert "broker.id" in line
        # And it still starts as itself.
        broker.start()
