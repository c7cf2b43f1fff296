from __future__ import annotations

import errno
from collections.abc import Iterator
from pathlib import Path

import pytest

from braidlog.core.ids import parse_id
from braidlog.core.protocol_errors import InvalidRequestError, KafkaStorageError, LogDirNotFoundError
from braidlog.core.slices import ByteSlice
from braidlog.core.types import TopicPartition
from braidlog.storage.dirs.replica_alter_log_dirs import CHUNK_BYTES, ReplicaAlterLogDirs
from braidlog.storage.log.unified_log import UnifiedLog
from braidlog.storage.settings import StorageSettings
from braidlog.wire.records.builder import build_batch
from braidlog.wire.records.reading import Record
from support.manager_fixture import Broker, append, content, tp

ID = parse_id("AAECAwQFBgcICQoLDA0ODw")
X = tp("x")


class Move:
    def __init__(self, root: Path, settings: StorageSettings | None = None) -> None:
        self.a, self.b = root / "a", root / "b"
        self.broker = Broker(self.a, self.b, settings=settings).start()
        self.manager = self.broker.manager
        self.moves = ReplicaAlterLogDirs(self.manager)
        self.log = self.manager.create(X, topic_id=ID, directory=str(self.a))

    def run(self) -> int:
        return self.broker.run(self.moves.run())


@pytest.fixture
def move(tmp_path: Path) -> Iterator[Move]:
    move = Move(tmp_path)
    yield move
    move.manager.release()


def test_a_replica_moves_and_keeps_everything(move: Move, tmp_path: Path) -> None:
    for number in range(5):
        append(move.log, ("k", f"v{number}"))
    before = content(move.log)
    reported: list[tuple[TopicPartition, UnifiedLog]] = []
    move.manager.registry.on_log_moved.append(lambda partition, log: reported.append((partition, log)))
    move.moves.start(X, str(move.b))
    (future,) = move.manager.registry.replicas_in(move.manager.directories[1])
    assert (future.is_future, future.offset_lag) == (True, 5)
    move.run()
    log = move.manager.log(X)
    assert log is not move.log
    assert reported == [(X, log)]
    assert content(log) == before
    assert log.high_watermark == 5
    assert log.recovery_point == 5
    assert move.moves.partitions == []
    assert (move.b / "x-0" / "partition.metadata").exists()
    assert not (move.a / "x-0").exists()
    assert [directory.partition_count for directory in move.manager.directories] == [0, 1]
    move.broker.clock.advance(60)
    move.broker.run(list(move.manager.deletion.due()))
    assert not list(move.a.glob("x-0*"))
    append(log, ("k", "after"))
    move.manager.close()
    again = Broker(move.a, move.b).start()
    assert content(again.manager.log(X)) == [*before, (5, b"after")]
    assert again.manager.topic_id(X) == ID
    again.manager.close()


def test_appends_during_the_move_are_not_lost(move: Move) -> None:
    for _ in range(40):
        append(move.log, ("k", "x" * (CHUNK_BYTES // 8)))
    move.moves.start(X, str(move.b))
    steps = 0
    for work in move.moves.run():
        if move.manager.get(X) is move.log:
            append(move.log, ("k", f"meanwhile {steps}"))
        finish = work.act()
        assert finish is not None
        finish()
        steps += 1
    assert steps > 4
    log = move.manager.log(X)
    assert log is not move.log
    assert log.log_end_offset == 40 + steps
    assert log.log_end_offset == move.log.log_end_offset


def test_a_log_that_does_not_start_at_zero_moves_with_its_start(move: Move) -> None:
    for number in range(6):
        append(move.log, ("k", f"v{number}"))
    move.log.roll()
    move.log.increment_log_start_offset(4)
    move.moves.start(X, str(move.b))
    move.run()
    log = move.manager.log(X)
    assert (log.log_start_offset, log.log_end_offset) == (4, 6)
    assert content(log) == [(4, b"v4"), (5, b"v5")]


def test_the_original_may_be_cut_while_it_is_copied(move: Move) -> None:
    for number in range(4):
        append(move.log, ("k", f"v{number}"))
    move.moves.start(X, str(move.b))
    work = next(move.moves.run())
    finish = work.act()
    move.log.truncate_to(2)
    append(move.log, ("k", "another 2"))
    assert finish is not None
    finish()
    move.run()
    assert content(move.manager.log(X)) == [(0, b"v0"), (1, b"v1"), (2, b"another 2")]


def test_nothing_is_promoted_over_staged_records(move: Move) -> None:
    append(move.log, ("k", "v"))
    move.moves.start(X, str(move.b))
    work = next(move.moves.run())
    finish = work.act()
    data = build_batch([Record(key=b"k", value=b"staged", timestamp=1)])
    move.log.append_as_leader(ByteSlice(data, 0, len(data)), 0, now_ms=1)
    assert finish is not None
    finish()
    assert move.manager.get(X) is move.log
    move.log.write_staged()
    move.run()
    assert content(move.manager.log(X)) == [(0, b"v"), (1, b"staged")]


def test_asking_again_changes_or_gives_up_the_move(move: Move) -> None:
    move.moves.start(X, str(move.b))
    future = move.manager.registry.future_logs[X]
    move.moves.start(X, str(move.b))
    assert move.manager.registry.future_logs[X] is future
    move.moves.start(X, str(move.a))
    assert move.moves.partitions == []
    assert move.run() == 0
    assert move.manager.log(X) is move.log


def test_without_a_replica_the_wish_is_remembered(move: Move) -> None:
    move.moves.start(tp("later"), str(move.b))
    move.manager.create(tp("other"))
    move.manager.create(tp("later"))
    assert (move.b / "later-0").is_dir()


def test_impossible_moves_are_refused(move: Move) -> None:
    with pytest.raises(LogDirNotFoundError):
        move.moves.start(X, "/elsewhere")
    long = tp("t" * 249)
    move.manager.create(long, directory=str(move.a))
    with pytest.raises(InvalidRequestError):
        move.moves.start(long, str(move.b))
    move.broker.files.broken.append(str(move.b))
    with pytest.raises(KafkaStorageError):
        move.moves.start(X, str(move.b))
    with pytest.raises(KafkaStorageError, match="is offline"):
        move.moves.start(X, str(move.b))
    assert move.manager.log(X) is move.log


def test_deleting_the_topic_ends_the_move(move: Move) -> None:
    append(move.log, ("k", "v"))
    move.moves.start(X, str(move.b))
    move.manager.delete(X)
    assert move.moves.partitions == []
    assert len(list(move.b.glob("x-0.*-delete"))) == 1
    assert move.run() == 0


def test_a_target_that_fails_leaves_the_original(move: Move) -> None:
    append(move.log, ("k", "v"))
    move.moves.start(X, str(move.b))
    move.broker.files.broken.append(str(move.b))
    move.run()
    assert move.moves.partitions == []
    assert content(move.manager.log(X)) == [(0, b"v")]


def test_a_target_without_room_ends_the_move(move: Move) -> None:
    append(move.log, ("k", "v"))
    move.moves.start(X, str(move.b))
    for segment in move.manager.registry.future_logs[X].segments:
        segment.release()
    move.broker.files.full.append(str(move.b))
    move.run()
    assert move.moves.partitions == []
    assert len(move.manager.online_directories) == 2
    assert content(move.manager.log(X)) == [(0, b"v")]


def test_a_move_that_is_refused_for_want_of_room_leaves_nothing_behind(
    move: Move, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(path: str, data: bytes, *, sync: bool = True) -> None:
        raise OSError(errno.ENOSPC, "No space left on device", path)

    monkeypatch.setattr(move.broker.files, "write_atomic", refuse)
    with pytest.raises(KafkaStorageError, match="No space left"):
        move.moves.start(X, str(move.b))
    assert len(move.manager.online_directories) == 2
    assert not [path for path in move.b.iterdir() if path.is_dir()]


def test_a_move_goes_on_after_a_restart(move: Move) -> None:
    append(move.log, ("k", "v"))
    move.moves.start(X, str(move.b))
    move.manager.close()
    again = Broker(move.a, move.b).start()
    moves = ReplicaAlterLogDirs(again.manager)
    assert moves.partitions == [X]
    again.run(moves.run())
    assert again.manager.registry.directory_of(X).path == str(move.b)
    assert content(again.manager.log(X)) == [(0, b"v")]
    again.manager.close()


def moved_after(move: Move) -> float:
    """Seconds until the replica has moved, looked at twice a second as the broker does."""
    seconds = 0.0
    while move.manager.log(X) is move.log:
        assert seconds < 60, "it never arrives"
        move.run()
        move.broker.clock.advance(0.5)
        seconds += 0.5
    return seconds


def limited(bytes_per_second: int) -> StorageSettings:
    return StorageSettings(replica_alter_log_dirs_io_max_bytes_per_second=bytes_per_second)


def test_the_rate_of_moving_is_bounded(tmp_path: Path) -> None:
    move = Move(tmp_path, limited(CHUNK_BYTES // 2))
    for _ in range(32):
        append(move.log, ("k", "x" * (CHUNK_BYTES // 8)))
    move.moves.start(X, str(move.b))
    # Four chunks at half a chunk a second, of which the first second and what has begun are not waited for.
    assert 5 <= moved_after(move) <= 9
    move.manager.release()


def test_a_new_rate_counts_for_a_move_under_way(tmp_path: Path) -> None:
    move = Move(tmp_path, limited(0))
    for _ in range(32):
        append(move.log, ("k", "x" * (CHUNK_BYTES // 8)))
    move.moves.start(X, str(move.b))
    move.broker.clock.advance(60)
    assert move.run() == 0, "a rate of nothing moves nothing"
    move.manager.apply_settings(limited(CHUNK_BYTES))
    assert move.run() > 0
    assert move.manager.log(X) is move.log
    move.manager.apply_settings(StorageSettings())
    assert moved_after(move) <= 2
    move.manager.release()
