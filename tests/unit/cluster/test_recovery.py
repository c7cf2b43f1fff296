from __future__ import annotations

from pathlib import Path
from struct import pack
from zlib import crc32

import pytest

from braidlog.cluster.journal import (
    CorruptStoreError,
)
from braidlog.cluster.journal_files import JournalFiles, OsJournalFiles, StoredFiles
from braidlog.cluster.recovery import journal_name, look, recover, replace_by, snapshot_name, take_snapshot
from braidlog.core.errors import NewerFormatError
from support.journal_steps import build, dump, frames
from support.memory_journal import MemoryJournalFiles


def test_a_tail_cut_at_every_byte_loses_the_last_frame_only() -> None:
    _, done = build()
    whole = frames(done)
    for cut in range(len(whole[2])):
        files = MemoryJournalFiles()
        name = journal_name(1)
        files.append(name, whole[0] + whole[1] + whole[2][:cut])
        recovered = recover(files)
        assert recovered.tree.zxid == 2
        assert recovered.journal_size == len(whole[0]) + len(whole[1])
        assert files.read(name) == whole[0] + whole[1]
        if cut:
            assert files.read(name + ".torn") == whole[2][:cut]


def test_a_flipped_bit_before_sound_frames_is_corruption_not_a_tail() -> None:
    _, done = build()
    whole = frames(done)
    for position in range(len(whole[0])):
        bad = bytearray(whole[0])
        bad[position] ^= 0x10
        files = MemoryJournalFiles()
        files.append(journal_name(1), bytes(bad) + whole[1] + whole[2])
        with pytest.raises(CorruptStoreError, match="damaged at byte 0"):
            recover(files)
        assert len(files.read(journal_name(1))) == sum(map(len, whole))


def test_a_journal_without_its_snapshot_is_refused() -> None:
    files = MemoryJournalFiles()
    files.append(journal_name(2), frames(build()[1])[1])
    with pytest.raises(CorruptStoreError, match="missing"):
        recover(files)


@pytest.mark.parametrize("kind", ["memory", "disk"])
def test_folding_keeps_the_contents_and_may_die_after_the_snapshot(kind: str, tmp_path: Path) -> None:
    files: JournalFiles = MemoryJournalFiles() if kind == "memory" else OsJournalFiles(str(tmp_path))
    tree, done = build()
    for frame in frames(done):
        files.append(journal_name(1), frame)
    files.sync(journal_name(1))
    journal = files.read(journal_name(1))
    take_snapshot(files)
    assert files.names() == [snapshot_name(3)]
    assert dump(recover(files).tree.root) == dump(tree.root)
    files.append(journal_name(1), journal)  # as if it had died before removing the journal
    recovered = recover(files)
    assert dump(recovered.tree.root) == dump(tree.root)
    take_snapshot(files)
    take_snapshot(files)
    assert files.names() == [snapshot_name(3)]
    files.close()


def later_frame(body: bytes) -> bytes:
    """As a later version's: the crc covers the head, too."""
    head = pack(">4sI", b"BLj2", len(body))
    return head + pack(">I", crc32(body, crc32(head))) + body


def test_a_frame_of_a_later_version_is_refused_and_not_cut_off() -> None:
    whole = frames(build()[1])
    for before in (b"", whole[0]):
        files = MemoryJournalFiles()
        files.append(journal_name(1), before + later_frame(b"what nobody knows yet"))
        with pytest.raises(NewerFormatError, match="format 2 was written by a newer braidlog"):
            recover(files)
        assert files.read(journal_name(1)) == before + later_frame(b"what nobody knows yet")
        assert files.names() == [journal_name(1)]


def test_a_torn_frame_with_a_flipped_bit_in_its_version_is_a_tail_all_the_same() -> None:
    whole = frames(build()[1])
    files = MemoryJournalFiles()
    files.append(journal_name(1), whole[0] + b"BLj3" + whole[1][4:])
    assert recover(files).tree.zxid == 1


def test_a_snapshot_of_a_later_version_is_refused() -> None:
    files = MemoryJournalFiles()
    rest = b"what nobody knows yet"
    files.write_whole(snapshot_name(7), b"BLsnap02" + pack(">I", crc32(rest, crc32(b"BLsnap02"))) + rest)
    with pytest.raises(NewerFormatError, match="format 2"):
        recover(files)


def test_looking_changes_nothing_also_while_a_broker_has_the_files(tmp_path: Path) -> None:
    whole = frames(build()[1])
    held = OsJournalFiles(str(tmp_path))
    held.append(journal_name(1), whole[0] + whole[1] + whole[2][:-1])
    assert look(StoredFiles(str(tmp_path))).zxid == 2
    assert held.names() == [journal_name(1)]
    assert held.read(journal_name(1)) == whole[0] + whole[1] + whole[2][:-1]
    held.close()


def test_files_that_are_replaced_say_the_new_alone() -> None:
    tree, done = build()
    files = MemoryJournalFiles()
    for frame in frames(done)[:2]:
        files.append(journal_name(1), frame)
    replace_by(files, tree)
    assert files.names() == [snapshot_name(tree.zxid)]
    assert dump(recover(files).tree.root) == dump(tree.root)
