from __future__ import annotations

from pathlib import Path

import pytest

from braidlog.storage.log.log_segment import LogSegment
from braidlog.storage.log.segment_recovery import recover_segment, replay_producers
from braidlog.storage.producers.producer_state_manager import ProducerStateManager
from support.log_kit import Kit, batch

SOUND = [batch(b"a", b"b", base_offset=5), batch(b"c", base_offset=7), batch(b"d", base_offset=8)]


def segment(kit: Kit, data: bytes) -> LogSegment:
    kit.path.mkdir(parents=True, exist_ok=True)
    kit.name(5, ".log").write_bytes(data)
    return LogSegment.open(kit.files, kit.handles, kit.directory, 5, created_ms=0, interval_bytes=1)


@pytest.fixture
def kit(tmp_path: Path) -> Kit:
    return Kit(tmp_path)


def test_a_sound_segment_is_indexed_to_its_end(kit: Kit) -> None:
    found = segment(kit, b"".join(SOUND))
    result = recover_segment(found, None, None)
    assert (result.valid_bytes, result.next_offset, result.reason, result.torn) == (found.size, 9, None, False)
    assert [found.offset_index.entry(number) for number in range(found.offset_index.count)] == [
        (7, len(SOUND[0])),
        (8, len(SOUND[0] + SOUND[1])),
    ]


@pytest.mark.parametrize(
    ("tail", "reason", "torn"),
    [
        (SOUND[2][:10], "cut short in its header", True),
        (SOUND[2][:-1], "of its", False),
        (bytes(300), "", True),
        (SOUND[2][:-1] + b"\xff", "", False),
        (batch(b"x", base_offset=6), "where 8 is due", False),
        (batch(b"x", base_offset=5 + 2**31), "where 8 is due", False),
    ],
    ids=["header", "short", "zeros", "crc", "backwards", "too far"],
)
def test_what_is_not_sound_ends_it_and_says_why(kit: Kit, tail: bytes, reason: str, torn: bool) -> None:
    result = recover_segment(segment(kit, SOUND[0] + SOUND[1] + tail), None, None)
    assert result.valid_bytes == len(SOUND[0] + SOUND[1])
    assert result.next_offset == 8
    assert result.reason is not None
    assert reason in result.reason
    assert result.torn is torn


def test_a_batch_larger_than_the_window_is_read_whole(kit: Kit) -> None:
    data = SOUND[0] + batch(bytes(3 << 20), base_offset=7) + SOUND[2]
    assert recover_segment(segment(kit, data), None, None).valid_bytes == len(data)


def test_producers_are_replayed_up_to_an_offset(kit: Kit) -> None:
    data = [batch(b"v", base_offset=5 + n, producer_id=9, epoch=0, sequence=n) for n in range(4)]
    found = segment(kit, b"".join(data))
    producers = ProducerStateManager("orders-0", 1 << 40)
    producers.end_offset = 5
    replay_producers(producers, [found], 7)
    assert producers.end_offset == 7
    assert producers.producers[9].batches[-1].last_sequence == 1
    replay_producers(producers, [found], 9)
    assert producers.producers[9].batches[-1].last_sequence == 3
