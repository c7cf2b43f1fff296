from __future__ import annotations

from pathlib import Path

import pytest

from braidlog.core.errors import FatalError, StorageFault
from braidlog.core.protocol_errors import KafkaStorageError, LogDirNotFoundError, UnknownTopicOrPartitionError
from braidlog.storage.dirs.log_registry import FoundLog, LogRegistry
from support.manager_fixture import Broker, append, tp


@pytest.fixture
def broker(tmp_path: Path) -> Broker:
    """Two directories with one partition each."""
    broker = Broker(tmp_path / "a", tmp_path / "b").start()
    broker.manager.create(tp("x"))
    broker.manager.create(tp("y"))
    return broker


@pytest.fixture
def registry(broker: Broker) -> LogRegistry:
    return broker.manager.registry


def test_directories_are_found_by_name_and_by_what_they_hold(registry: LogRegistry, tmp_path: Path) -> None:
    first = registry.directories[0]
    assert registry.directory_named(f"{tmp_path}/a/") is first
    assert registry.directory_at(f"{tmp_path}/a/x-0") is first
    assert registry.directory_of(tp("x")) is first
    for path in (f"{tmp_path}/c", f"{tmp_path}/ab"):
        with pytest.raises(LogDirNotFoundError, match=r"not in log.dirs"):
            registry.directory_named(path)
        with pytest.raises(LogDirNotFoundError):
            registry.directory_at(path)


def test_a_partition_is_here_or_unknown(registry: LogRegistry) -> None:
    assert registry.require(tp("x")) is registry.logs[tp("x")]
    with pytest.raises(UnknownTopicOrPartitionError):
        registry.require(tp("z"))


def test_the_emptiest_directory_follows_what_is_added_and_removed(registry: LogRegistry) -> None:
    first, second = registry.directories
    removed = registry.remove(tp("y"))
    assert registry.emptiest_directory() is second
    registry.add(tp("y"), removed, second)
    registry.remove(tp("x"))
    assert registry.emptiest_directory() is first


def test_what_a_failed_directory_held_is_offline(registry: LogRegistry) -> None:
    first, second = registry.directories
    log = registry.logs[tp("x")]
    registry.unopened[tp("w")] = FoundLog(f"{first.path}/w-0", tp("w"), 0, 0, 0)
    lost, futures = registry.take_offline(first, StorageFault(first.path, "disk on fire"))
    assert lost == {tp("x"): log}
    assert futures == []
    assert registry.online_directories == [second]
    assert registry.emptiest_directory() is second
    for name in ("x", "w"):
        with pytest.raises(KafkaStorageError, match="disk on fire"):
            registry.require(tp(name))
    assert registry.require(tp("y"))
    registry.require_one_directory()
    registry.take_offline(second, StorageFault(second.path, "flooded"))
    with pytest.raises(FatalError, match=r"disk on fire.*flooded"):
        registry.require_one_directory()


def test_replicas_are_described_with_their_lag(registry: LogRegistry) -> None:
    first, second = registry.directories
    append(registry.logs[tp("x")], ("k", "v"), ("k", "v"))
    (current,) = registry.replicas_in(first)
    assert (current.partition, current.size, current.is_future) == (tp("x"), registry.logs[tp("x")].size, False)
    assert list(registry.replicas_in(first, {tp("y")})) == []
    # As if y's log were the copy of x that is being made in the other directory.
    registry.add_future(tp("x"), registry.remove(tp("y")))
    (future,) = registry.replicas_in(second)
    assert (future.partition, future.offset_lag, future.is_future) == (tp("x"), 2, True)
    assert second.partition_count == 1
    assert registry.remove_future(tp("x")) is not None
    assert registry.remove_future(tp("x")) is None
    assert second.partition_count == 0


def test_listeners_hear_of_a_removal(registry: LogRegistry) -> None:
    heard: list[object] = []
    registry.on_log_removal.append(heard.append)
    registry.notify_log_removal(tp("x"))
    assert heard == [tp("x")]
