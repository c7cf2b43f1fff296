from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from braidlog.config.sources import from_file
from braidlog.core.errors import UserError
from braidlog.local_cluster.cluster_directory import ClusterDirectory


def opened(path: Path, zookeeper: str | None = None) -> ClusterDirectory:
    said: list[str] = []
    directory = ClusterDirectory(path, zookeeper, said.append)
    assert said == []
    return directory


def refused(path: Path, zookeeper: str | None = None) -> str:
    with pytest.raises(UserError) as refusal:
        ClusterDirectory(path, zookeeper, lambda line: None)
    return str(refusal.value)


def test_a_new_one_remembers_what_it_is(tmp_path: Path) -> None:
    path = tmp_path / "a" / "b"
    new = opened(path)
    assert (new.zookeeper, new.brokers) == (None, 0)
    new.record(3)
    new.close()
    again = opened(path)
    assert (again.zookeeper, again.brokers) == (None, 3)
    # Fewer this time: the others have their data still.
    again.record(1)
    again.close()
    last = opened(path)
    assert last.brokers == 3
    last.close()


def test_it_belongs_to_one_zookeeper(tmp_path: Path) -> None:
    own, others = tmp_path / "own", tmp_path / "others"
    for path, zookeeper in ((own, None), (others, "z1:2181/kafka")):
        directory = opened(path, zookeeper)
        directory.record(3)
        directory.close()
    assert "belongs to a cluster with a ZooKeeper of its own in it, not to one at z2:2181" in refused(own, "z2:2181")
    assert "belongs to a cluster on the ZooKeeper at z1:2181/kafka" in refused(others, "z2:2181")
    directory = opened(others)
    assert directory.zookeeper == "z1:2181/kafka"
    directory.close()


def test_what_is_something_else_is_left_alone(tmp_path: Path) -> None:
    file, broker, other, broken = (tmp_path / name for name in ("file", "broker", "other", "broken"))
    file.write_text("")
    for path in (broker, other, broken):
        path.mkdir()
    (broker / "meta.properties").write_text("version=0\n")
    (other / "thesis.tex").write_text("")
    (broken / "cluster.json").write_text('{"zookeeper": 3}')
    assert "is no directory" in refused(file)
    assert "is the data directory of a broker" in refused(broker)
    assert "has files that are not a cluster's" in refused(other)
    assert [each.name for each in other.iterdir()] == ["thesis.tex"]
    assert "cluster.json cannot be read" in refused(broken)


def test_one_at_a_time(tmp_path: Path) -> None:
    first = opened(tmp_path)
    assert f"is in use by another `braidlog cluster up`, pid {os.getpid()}" in refused(tmp_path)
    first.close()
    opened(tmp_path).close()


def test_brokers_of_a_killed_run_are_waited_for(tmp_path: Path) -> None:
    """As after a kill -9: the lock is held by a child, and its owner is gone."""
    first = opened(tmp_path)
    child = subprocess.Popen(
        [sys.executable, "-c", "import sys; sys.stdin.read()"], stdin=subprocess.PIPE, pass_fds=[first.lock]
    )
    assert child.stdin is not None
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    os.pwrite(first.lock, f"{ended.pid}\n".encode().ljust(16), 0)
    first.close()
    said: list[str] = []

    def say(line: str) -> None:
        said.append(line)
        assert child.stdin is not None
        child.stdin.close()

    ClusterDirectory(tmp_path, None, say).close()
    assert child.wait() == 0
    assert said == ["brokers of an earlier run, which was killed, are still stopping: waiting for them"]


def test_settings_are_read_as_they_were_written(tmp_path: Path) -> None:
    directory = opened(tmp_path)
    settings = {
        "log.dirs": "/a\\b c/ü",
        "listeners": "PLAINTEXT://[::1]:9092",
        "x": " blank ",
        "empty": "",
        "n": "a\nb",
    }
    directory.write_properties(1, settings)
    directory.close()
    assert from_file(str(directory.properties_path(1))).texts == settings


def test_settings_are_for_the_eyes_of_this_user_alone(tmp_path: Path) -> None:
    """A password may be among them."""
    directory = opened(tmp_path / "data")
    file = directory.properties_path(0)
    file.write_text("what=was here")
    file.chmod(0o644)
    directory.write_properties(0, {"braidlog.zookeeper.sasl.password": "secret"})
    directory.close()
    assert file.read_text() == "braidlog.zookeeper.sasl.password=secret\n"
    assert file.stat().st_mode & 0o777 == 0o600


def test_a_directory_of_a_newer_braidlog_is_refused(tmp_path: Path) -> None:
    state = tmp_path / "cluster.json"
    state.write_text('{"version": 2, "braidlog": "7.1.0", "zookeeper": {}}')
    assert "format 2 was written by braidlog 7.1.0, and this one reads up to 1" in refused(tmp_path)
    # From before there were versions.
    state.write_text('{"zookeeper": null, "brokers": 2}')
    directory = opened(tmp_path)
    assert directory.brokers == 2
    directory.record(2)
    directory.close()
    assert '"version": 1' in state.read_text()
