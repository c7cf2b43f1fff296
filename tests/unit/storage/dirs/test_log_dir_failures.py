from __future__ import annotations

from pathlib import Path

import pytest

from braidlog.core.errors import FatalError, StorageFault
from braidlog.core.protocol_errors import (
    KafkaStorageError,
)
from braidlog.storage.dirs.log_dir_failures import LogDirFailure
from braidlog.storage.dirs.log_directory import CLEAN_SHUTDOWN
from braidlog.storage.dirs.offset_checkpoint_file import RECOVERY_POINTS
from support.manager_fixture import Broker, append, content, tp


def test_a_failed_directory_takes_only_its_own_logs(tmp_path: Path) -> None:
    broker = Broker(tmp_path / "a", tmp_path / "b").start()
    manager = broker.manager
    manager.create(tp("here"), directory=str(tmp_path / "a"))
    lost = manager.create(tp("gone"), directory=str(tmp_path / "b"))
    reported: list[LogDirFailure] = []
    left: list[object] = []
    manager.failures.on_directory_failed.append(reported.append)
    manager.registry.on_log_removal.append(left.append)

    broker.files.broken.append(str(tmp_path / "b"))
    with pytest.raises(StorageFault) as caught:
        append(lost, ("k", "v"))
    manager.failures.fail(caught.value)
    assert [(failure.path, failure.partitions) for failure in reported] == [(str(tmp_path / "b"), (tp("gone"),))]
    assert left == [tp("gone")]
    append(manager.log(tp("here")), ("k", "v"))
    with pytest.raises(KafkaStorageError, match="gone-0 is offline"):
        manager.log(tp("gone"))
    with pytest.raises(KafkaStorageError, match="offline"):
        manager.create(tp("gone"))
    assert set(manager.registry.offline) == {tp("gone")}

    # New partitions avoid it, partitions that may lie there are not made anew.
    manager.create(tp("new"))
    assert manager.registry.directory_of(tp("new")).path == str(tmp_path / "a")
    manager.create(tp("newer"), directory=str(tmp_path / "b"))
    assert manager.registry.directory_of(tp("newer")).path == str(tmp_path / "a")
    with pytest.raises(KafkaStorageError, match="may lie in a data directory that is offline"):
        manager.create(tp("unsure"), is_new=False)
    facts = [directory.describe() for directory in manager.directories]
    assert [(fact.path, fact.failure is None) for fact in facts] == [
        (str(tmp_path / "a"), True),
        (str(tmp_path / "b"), False),
    ]
    # A second fault of the same directory is not reported again.
    manager.failures.fail(caught.value)
    assert len(reported) == 1
    manager.close()
    assert (tmp_path / "a" / CLEAN_SHUTDOWN).exists()
    assert not (tmp_path / "b" / CLEAN_SHUTDOWN).exists()


def test_a_full_disk_is_not_a_failed_one(tmp_path: Path) -> None:
    broker = Broker(tmp_path).start()
    log = broker.manager.create(tp("x"))
    append(log, ("k", "v"))
    broker.files.full.append(str(tmp_path))
    broker.run(broker.manager.checkpoints.writes(RECOVERY_POINTS))
    with pytest.raises(KafkaStorageError, match="No space left"):
        broker.manager.create(tp("y"))
    assert broker.manager.online_directories
    assert content(broker.manager.log(tp("x"))) == [(0, b"v")]
    broker.files.full.clear()
    broker.manager.create(tp("y"))
    broker.manager.close()
    assert (tmp_path / CLEAN_SHUTDOWN).exists()


def test_the_last_directory_gone_is_fatal(tmp_path: Path) -> None:
    broker = Broker(tmp_path / "a", tmp_path / "b").start()
    broker.manager.failures.fail(StorageFault(str(tmp_path / "a"), "it smokes"))
    with pytest.raises(FatalError, match=r"it smokes.*it burns"):
        broker.manager.failures.fail(StorageFault(str(tmp_path / "b" / "x-0"), "it burns"))
    broker.crash()


def test_a_directory_that_fails_at_start_is_left_out(tmp_path: Path) -> None:
    broker = Broker(tmp_path / "a", tmp_path / "b").start()
    broker.manager.create(tp("here"), directory=str(tmp_path / "a"))
    broker.manager.create(tp("gone"), directory=str(tmp_path / "b"))
    broker.manager.close()
    for place in ("b", "b/gone-0"):
        again = Broker(tmp_path / "a", tmp_path / "b")
        if place == "b":
            again.files.broken.append(str(tmp_path / place))
            again.manager.open()
        else:
            again.manager.open()
            again.files.broken.append(str(tmp_path / place))
        again.manager.claim("cluster", 1)
        again.manager.load()
        assert again.manager.partitions == [tp("here")]
        assert [directory.path for directory in again.manager.online_directories] == [str(tmp_path / "a")]
        again.manager.close()


def test_no_directory_at_start_is_fatal(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(FatalError, match="nothing is left to serve"):
        Broker(tmp_path / "file").manager.open()
