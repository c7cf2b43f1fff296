from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from braidlog.core.errors import CorruptLogError
from braidlog.storage.files import OsFiles
from braidlog.storage.log.batch_walk import BatchWalk
from braidlog.wire.records.batch import HEADER_SIZE
from braidlog.wire.records.builder import build_message_set
from braidlog.wire.records.reading import Record
from support.log_kit import START_MS, batch

FIRST = batch(b"a", b"b", base_offset=10, leader_epoch=3)
SECOND = batch(bytes(20_000), base_offset=12, leader_epoch=4, timestamp=START_MS + 5)
THIRD = batch(b"c", base_offset=13, leader_epoch=4)
WHOLE = FIRST + SECOND + THIRD


@pytest.fixture
def walk(tmp_path: Path) -> Callable[..., BatchWalk]:
    def over(data: bytes, position: int = 0, end: int | None = None, chunk_size: int = 8192) -> BatchWalk:
        path = tmp_path / "log"
        path.write_bytes(data)
        return BatchWalk(
            OsFiles().open_read(str(path)), str(path), position, len(data) if end is None else end, chunk_size
        )

    return over


@pytest.mark.parametrize("chunk_size", [HEADER_SIZE, 100, 8192, 1 << 20])
def test_every_batch_is_passed_with_its_facts(walk: Callable[..., BatchWalk], chunk_size: int) -> None:
    found = []
    stepping = walk(WHOLE, chunk_size=chunk_size)
    while stepping.advance():
        found.append((stepping.base_offset, stepping.last_offset, stepping.leader_epoch, stepping.max_timestamp))
        assert stepping.read() == WHOLE[stepping.position : stepping.end]
        assert stepping.header().position == stepping.position
        assert stepping.header().base_offset == stepping.base_offset
    assert found == [(10, 11, 3, START_MS + 1), (12, 12, 4, START_MS + 5), (13, 13, 4, START_MS)]
    assert stepping.end == len(WHOLE)
    assert not stepping.advance()


def test_a_walk_starts_and_ends_where_it_is_asked_to(walk: Callable[..., BatchWalk]) -> None:
    stepping = walk(WHOLE, len(FIRST), len(FIRST + SECOND))
    assert stepping.advance()
    assert stepping.base_offset == 12
    assert not stepping.advance()


@pytest.mark.parametrize(("magic", "timestamp"), [(0, -1), (1, 77)])
def test_old_messages_have_one_offset_and_no_epoch(walk: Callable[..., BatchWalk], magic: int, timestamp: int) -> None:
    stepping = walk(build_message_set([Record(timestamp=77, value=b"old")], magic=magic, base_offset=5))
    assert stepping.advance()
    assert (stepping.base_offset, stepping.last_offset, stepping.magic) == (5, 5, magic)
    assert (stepping.leader_epoch, stepping.max_timestamp) == (-1, timestamp)


def test_too_few_bytes_for_a_batch_are_named(walk: Callable[..., BatchWalk]) -> None:
    stepping = walk(FIRST + b"torn")
    assert stepping.advance()
    with pytest.raises(CorruptLogError, match=f"4 bytes at position {len(FIRST)}"):
        stepping.advance()


@pytest.mark.parametrize(("field", "value"), [(8, 0x7F), (8, 0xFF), (16, 9)])
def test_what_is_no_batch_is_named(walk: Callable[..., BatchWalk], field: int, value: int) -> None:
    data = bytearray(FIRST)
    data[field] = value
    with pytest.raises(CorruptLogError, match="no record batch at position 0"):
        walk(bytes(data)).advance()


def test_a_file_that_is_shorter_than_it_should_be_is_named(walk: Callable[..., BatchWalk]) -> None:
    stepping = walk(FIRST[:30], end=len(FIRST))
    with pytest.raises(CorruptLogError, match="the file ends at 30"):
        stepping.advance()
