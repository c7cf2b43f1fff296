from __future__ import annotations

import socket
from pathlib import Path

import pytest

from braidlog.core.errors import UserError
from braidlog.local_cluster.zookeeper import (
    ZooKeeper,
    ZooKeeperFailed,
    lasting_ports,
    zookeeper_classpath,
    zookeeper_missing,
)

MISSING = zookeeper_missing()
needs_zookeeper = pytest.mark.skipif(bool(MISSING), reason=MISSING)


@needs_zookeeper
def test_a_server_is_paused_resumed_killed_and_started_again(tmp_path: Path) -> None:
    with ZooKeeper(directory=tmp_path) as zookeeper:
        (server,) = zookeeper.servers
        assert zookeeper.connect == server.address
        assert server.mode() == "standalone"
        assert server.ask("ruok") == "imok"
        server.pause()
        with socket.create_connection(("127.0.0.1", server.port), 5) as silent:
            silent.sendall(b"ruok")
            silent.settimeout(0.2)
            with pytest.raises(TimeoutError):
                silent.recv(4)
            server.resume()
            silent.settimeout(20)
            assert silent.recv(4) == b"imok"
        server.kill()
        assert not server.is_running
        assert not server.serves()
        with pytest.raises(ZooKeeperFailed, match="no ZooKeeper server leads"):
            zookeeper.leader()
        with pytest.raises(ZooKeeperFailed, match="is not running"):
            server.pause()
        server.start()
        server.wait_until_ready()
    assert not server.is_running
    assert tmp_path.exists()


def test_debians_jars_are_taken_where_there_is_no_pyspark(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("braidlog.local_cluster.zookeeper.find_spec", lambda name: None)
    environment = tmp_path / "environment"
    with pytest.raises(
        UserError, match=r"pip install 'braidlog\[spark\]'.*apt install zookeeper.*--zookeeper HOST:PORT"
    ):
        zookeeper_classpath(environment)
    environment.write_text(
        'NAME=zookeeper\nCLASSPATH="$ZOOCFGDIR:/usr/share/java/zookeeper.jar:/usr/share/java/netty.jar"\n'
    )
    assert zookeeper_classpath(environment) == "/usr/share/java/zookeeper.jar:/usr/share/java/netty.jar"


@needs_zookeeper
def test_a_server_that_does_not_start_says_why() -> None:
    with pytest.raises(ZooKeeperFailed, match="tickTime"):
        ZooKeeper(properties={"tickTime": "tickTime is no number"}).__enter__()


def test_ports_differ() -> None:
    assert len(set(lasting_ports(50))) == 50
