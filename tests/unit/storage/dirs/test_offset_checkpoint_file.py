from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from braidlog.core.errors import CorruptLogError, StorageFault
from braidlog.core.types import TopicPartition
from braidlog.storage.dirs.offset_checkpoint_file import (
    HIGH_WATERMARKS,
    RECOVERY_POINTS,
    OffsetCheckpointFile,
    decode_offsets,
    encode_offsets,
)
from braidlog.storage.files import OsFiles

topics = st.text("abcXYZ019._-", min_size=1, max_size=20)
offsets = st.dictionaries(st.builds(TopicPartition, topics, st.integers(0, 9999)), st.integers(-1, 2**63 - 1))


def test_the_text_is_what_kafka_writes() -> None:
    assert encode_offsets({TopicPartition("orders", 3): 42, TopicPartition("a.b_c", 0): 0}) == (
        "0\n2\norders 3 42\na.b_c 0 0\n"
    )


@given(offsets)
def test_round_trip(entries: dict[TopicPartition, int]) -> None:
    assert decode_offsets(encode_offsets(entries), "f") == entries


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("\n", "unrecognized checkpoint version"),
        ("1\n0\n", "unrecognized checkpoint version"),
        ("0\n", "number of entries"),
        ("0\nmany\n", "number of entries"),
        ("0\n2\na 0 1\n", "expected 2 entries but found 1"),
        ("0\n0\na 0 1\n", "expected 0 entries but found 1"),
        ("0\n1\na 0\n", "line 3"),
        ("0\n2\na 0 1\nb x 1\n", "line 4"),
        ("\0\0\0\0", "unrecognized"),
    ],
)
def test_a_broken_one_says_where(text: str, complaint: str) -> None:
    with pytest.raises(CorruptLogError, match=complaint):
        decode_offsets(text, "/data/x")


def test_one_that_kafka_has_made_and_not_written_is_no_problem(tmp_path: Path) -> None:
    checkpoint = OffsetCheckpointFile(OsFiles(), str(tmp_path), HIGH_WATERMARKS)
    Path(checkpoint.path).touch()
    assert checkpoint.read() == {}
    assert checkpoint.problem is None


def test_missing_is_empty_and_broken_is_empty_but_reported(tmp_path: Path) -> None:
    checkpoint = OffsetCheckpointFile(OsFiles(), str(tmp_path), RECOVERY_POINTS)
    assert checkpoint.read() == {}
    assert checkpoint.problem is None
    Path(checkpoint.path).write_bytes(b"\xff\xfe\x00garbage")
    assert checkpoint.read() == {}
    assert checkpoint.problem is not None
    assert RECOVERY_POINTS in checkpoint.problem


def test_written_as_a_whole(tmp_path: Path) -> None:
    checkpoint = OffsetCheckpointFile(OsFiles(), str(tmp_path), HIGH_WATERMARKS)
    checkpoint.write({TopicPartition("t", 1): 7})
    assert checkpoint.read() == {TopicPartition("t", 1): 7}
    assert [path.name for path in tmp_path.iterdir()] == [HIGH_WATERMARKS]


def test_a_disk_that_refuses_is_the_directorys_fault(tmp_path: Path) -> None:
    directory = str(tmp_path / "gone")
    with pytest.raises(StorageFault, match="cannot write") as caught:
        OffsetCheckpointFile(OsFiles(), directory, HIGH_WATERMARKS).write({})
    assert caught.value.directory == directory
