from __future__ import annotations

from pathlib import Path

import pytest

from braidlog.core.protocol_errors import (
    KafkaStorageError,
)
from braidlog.storage.dirs.offset_checkpoint_file import RECOVERY_POINTS, START_OFFSETS
from support.manager_fixture import Broker, append, content, crashed_without_room, tp


def test_a_deleted_log_is_gone_at_once_and_removed_later(tmp_path: Path) -> None:
    broker = Broker(tmp_path).start()
    manager = broker.manager
    log = manager.create(tp("x"))
    append(log, ("k", "v"))
    piece = log.read(0, 100, 1).slice
    assert piece is not None
    manager.delete(tp("x"))
    assert manager.get(tp("x")) is None
    assert len(list(tmp_path.glob("x-0.*-delete"))) == 1
    assert len(piece.read()) > 0
    broker.clock.advance(59)
    assert broker.run(list(manager.deletion.due())) == 0
    broker.clock.advance(1)
    assert broker.run(list(manager.deletion.due())) == 1
    assert not list(tmp_path.glob("x-0*"))
    manager.close()


def test_what_was_to_be_deleted_before_a_stop_is_deleted_after_it(tmp_path: Path) -> None:
    first = Broker(tmp_path).start()
    first.manager.create(tp("x"))
    first.manager.delete(tp("x"))
    first.manager.close()
    again = Broker(tmp_path).start()
    assert len(again.manager) == 0
    again.run(list(again.manager.deletion.due()))
    assert not list(tmp_path.glob("x-0*"))
    again.manager.close()


def test_a_topic_made_again_starts_from_nothing(tmp_path: Path) -> None:
    broker = Broker(tmp_path).start()
    log = broker.manager.create(tp("x"))
    append(log, *[("k", "v")] * 10)
    log.increment_log_start_offset(5)
    log.sync_to(10)
    broker.run(broker.manager.checkpoints.writes(RECOVERY_POINTS))
    broker.run(broker.manager.checkpoints.writes(START_OFFSETS))
    assert "x 0 5" in (tmp_path / START_OFFSETS).read_text()
    broker.manager.delete(tp("x"))
    append(broker.manager.create(tp("x")), ("k", "new"))
    broker.crash()
    again = Broker(tmp_path).start()
    log = again.manager.log(tp("x"))
    assert (log.log_start_offset, log.log_end_offset) == (0, 1)
    again.manager.close()


def test_a_log_that_could_not_be_opened_can_be_deleted(tmp_path: Path) -> None:
    broker = crashed_without_room(tmp_path)
    broker.manager.delete(tp("x"))
    broker.files.full.clear()
    assert content(broker.manager.create(tp("x"))) == []
    broker.clock.advance(120)
    broker.run(broker.manager.deletion.due())
    assert sorted(path.name for path in tmp_path.iterdir() if path.is_dir()) == ["x-0", "y-0"]
    broker.manager.close()


def test_a_deleted_log_that_there_is_no_room_to_rename_does_not_come_back(tmp_path: Path) -> None:
    broker = Broker(tmp_path).start()
    append(broker.manager.create(tp("x")), ("k", "old"))
    broker.files.no_room_for_names = True
    broker.manager.delete(tp("x"))
    assert broker.manager.online_directories
    with pytest.raises(KafkaStorageError, match="No space left"):
        broker.manager.create(tp("x"))
    broker.files.no_room_for_names = False
    assert content(broker.manager.create(tp("x"))) == []
    broker.manager.close()


def test_a_deleted_log_is_renamed_as_soon_as_there_is_room(tmp_path: Path) -> None:
    broker = Broker(tmp_path).start()
    append(broker.manager.create(tp("x")), ("k", "old"))
    broker.files.no_room_for_names = True
    broker.manager.delete(tp("x"))
    broker.run(broker.manager.deletion.due())
    assert (tmp_path / "x-0").exists()
    broker.files.no_room_for_names = False
    broker.run(broker.manager.deletion.due())
    assert not (tmp_path / "x-0").exists()
    broker.clock.advance(120)
    broker.run(broker.manager.deletion.due())
    assert [path.name for path in tmp_path.iterdir() if path.is_dir()] == []
    broker.manager.close()
