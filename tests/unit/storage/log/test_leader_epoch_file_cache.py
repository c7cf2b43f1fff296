from __future__ import annotations

from pathlib import Path

import pytest

from braidlog.core.errors import CorruptLogError
from braidlog.storage.files import OsFiles
from braidlog.storage.log.leader_epoch_file_cache import LeaderEpochFileCache, decode_epochs, encode_epochs


@pytest.fixture
def epochs(tmp_path: Path) -> LeaderEpochFileCache:
    return LeaderEpochFileCache(OsFiles(), str(tmp_path))


def filled(epochs: LeaderEpochFileCache) -> LeaderEpochFileCache:
    for epoch, start in [(2, 0), (3, 10), (7, 25)]:
        assert epochs.assign(epoch, start)
    return epochs


@pytest.mark.parametrize(
    ("epoch", "answer"),
    [
        (-1, None),
        (1, (1, 0)),  # older than all that is known: where the first known one starts
        (2, (2, 10)),
        (3, (3, 25)),
        (5, (3, 25)),  # a gap: the epoch below it
        (7, (7, 40)),
        (8, None),
    ],
)
def test_where_an_epoch_ended(epochs: LeaderEpochFileCache, epoch: int, answer: tuple[int, int] | None) -> None:
    assert filled(epochs).end_offset_for(epoch, 40) == answer


def test_an_empty_cache_knows_no_epoch(epochs: LeaderEpochFileCache) -> None:
    assert epochs.end_offset_for(0, 40) is None
    assert epochs.latest == -1
    assert epochs.epoch_for_offset(3) == -1


def test_which_epoch_wrote_an_offset(epochs: LeaderEpochFileCache) -> None:
    filled(epochs)
    assert [epochs.epoch_for_offset(offset) for offset in (0, 9, 10, 24, 25, 99)] == [2, 2, 3, 3, 7, 7]


def test_an_epoch_that_is_known_is_not_assigned_again(epochs: LeaderEpochFileCache) -> None:
    filled(epochs)
    assert not epochs.assign(7, 30)
    assert epochs.entries == [(2, 0), (3, 10), (7, 25)]


def test_entries_that_contradict_a_new_one_go(epochs: LeaderEpochFileCache) -> None:
    filled(epochs)
    assert epochs.assign(8, 10)
    assert epochs.entries == [(2, 0), (8, 10)]
    assert epochs.assign(4, 30)
    assert epochs.entries == [(2, 0), (4, 30)]


def test_truncation_from_either_side(epochs: LeaderEpochFileCache) -> None:
    filled(epochs).truncate_from_end(25)
    assert epochs.entries == [(2, 0), (3, 10)]
    filled(epochs).truncate_from_start(12)
    assert epochs.entries == [(3, 12), (7, 25)]
    epochs.truncate_from_start(25)
    assert epochs.entries == [(7, 25)]
    epochs.truncate_from_start(5)
    assert epochs.entries == [(7, 25)]
    epochs.truncate_from_start(99)
    assert epochs.entries == [(7, 99)]


def test_the_checkpoint_reads_as_kafka_writes_it(epochs: LeaderEpochFileCache, tmp_path: Path) -> None:
    filled(epochs).save()
    assert (tmp_path / "leader-epoch-checkpoint").read_bytes() == b"0\n3\n2 0\n3 10\n7 25\n"
    again = LeaderEpochFileCache(OsFiles(), str(tmp_path))
    assert again.load()
    assert again.entries == epochs.entries
    assert not LeaderEpochFileCache(OsFiles(), str(tmp_path / "elsewhere")).load()


def test_saving_twice_writes_once_and_a_synced_save_makes_up_for_an_unsynced_one(
    epochs: LeaderEpochFileCache, tmp_path: Path
) -> None:
    filled(epochs).save()
    path = tmp_path / "leader-epoch-checkpoint"
    path.write_bytes(b"touched")
    epochs.save()
    assert path.read_bytes() == b"touched"
    epochs.save(sync=True)
    assert path.read_bytes() == encode_epochs(epochs.entries)
    assert not epochs.unsynced


def test_one_that_kafka_has_made_and_not_written_is_none(epochs: LeaderEpochFileCache, tmp_path: Path) -> None:
    (tmp_path / "leader-epoch-checkpoint").touch()
    assert not epochs.load()
    assert epochs.entries == []


@pytest.mark.parametrize(
    "text", [b"", b"1\n0\n", b"0\n2\n1 1\n", b"0\n1\n1\n", b"0\n1\nx 1\n", b"0\n2\n2 1\n1 5\n", b"\xff"]
)
def test_a_broken_checkpoint_is_named(text: bytes) -> None:
    with pytest.raises(CorruptLogError, match="/d/leader-epoch"):
        decode_epochs(text, "/d/leader-epoch-checkpoint")


def test_a_checkpoint_that_a_power_cut_left_a_part_of_is_broken() -> None:
    """Also where it ends within the digits of the last offset."""
    whole = encode_epochs([(0, 0), (1, 14)])
    assert decode_epochs(whole, "/d/leader-epoch-checkpoint") == [(0, 0), (1, 14)]
    for size in range(len(whole)):
        with pytest.raises(CorruptLogError):
            decode_epochs(whole[:size], "/d/leader-epoch-checkpoint")


def test_none_are_kept_where_the_format_carries_none(epochs: LeaderEpochFileCache) -> None:
    epochs.assign(3, 10)
    epochs.keep(False)
    assert (epochs.entries, epochs.changed) == ([], True)
    assert not epochs.assign(9, 100)
    assert epochs.latest == -1
    epochs.keep(True)
    assert epochs.assign(9, 100)
