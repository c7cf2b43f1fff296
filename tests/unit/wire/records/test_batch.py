from __future__ import annotations

import pytest

from braidlog.core.protocol_errors import CorruptMessageError
from braidlog.wire.records.batch import (
    HEADER_SIZE,
    check_crc,
    iterate_headers,
    read_header,
    sequence_after,
)
from braidlog.wire.records.builder import build_batch, build_message_set
from braidlog.wire.records.reading import Record
from support.record_cases import NOW, golden

BATCH = build_batch(
    [Record(timestamp=NOW + i, value=b"v") for i in range(3)],
    base_offset=7,
    leader_epoch=4,
    producer_id=9,
    producer_epoch=1,
    base_sequence=5,
    transactional=True,
)


def test_a_header_is_read_wherever_it_lies_and_without_its_body() -> None:
    buffer = b"junk" + BATCH[:HEADER_SIZE]
    header = read_header(buffer, 4, len(buffer))
    assert (header.position, header.size, header.base_offset, header.last_offset) == (4, len(BATCH), 7, 9)
    assert (header.next_offset, header.leader_epoch, header.magic, header.count) == (10, 4, 2, 3)
    assert (header.base_timestamp, header.max_timestamp) == (NOW, NOW + 2)
    assert (header.producer_id, header.producer_epoch, header.base_sequence, header.last_sequence) == (9, 1, 5, 7)
    assert (header.has_producer_id, header.is_transactional, header.is_control) == (True, True, False)
    assert header.end == 4 + len(BATCH)


@pytest.mark.parametrize("cut", range(HEADER_SIZE))
def test_a_cut_header_is_corrupt(cut: int) -> None:
    with pytest.raises(CorruptMessageError):
        read_header(BATCH[:cut], 0, cut)
    with pytest.raises(CorruptMessageError):
        read_header(BATCH, 0, cut)


def test_iteration_stops_at_an_incomplete_tail() -> None:
    buffer = BATCH + BATCH
    for end in range(len(buffer) + 1):
        assert len(iterate_headers(buffer, 0, end)) == end // len(BATCH)
    assert [header.position for header in iterate_headers(buffer, 0, len(buffer))] == [0, len(BATCH)]


def test_iteration_refuses_what_cannot_be_a_batch() -> None:
    with pytest.raises(CorruptMessageError, match="impossibly small"):
        iterate_headers(bytes(200), 0, 200)
    with pytest.raises(CorruptMessageError, match="impossibly small"):
        iterate_headers(BATCH[:8] + b"\xff\xff\xff\x00" + BATCH[12:], 0, len(BATCH))
    with pytest.raises(CorruptMessageError, match="magic 3"):
        iterate_headers(BATCH[:16] + b"\x03" + BATCH[17:], 0, len(BATCH))
    with pytest.raises(CorruptMessageError, match="smaller than"):
        iterate_headers(BATCH[:8] + (40).to_bytes(4, "big") + BATCH[12:], 0, len(BATCH))


def test_old_messages_have_only_what_they_carry() -> None:
    data = build_message_set([Record(timestamp=NOW, key=b"k")], magic=1, base_offset=3)
    header = read_header(data, 0, len(data))
    assert (header.magic, header.base_offset, header.last_offset, header.base_timestamp) == (1, 3, 3, NOW)
    assert (header.count, header.producer_id, header.leader_epoch, header.last_sequence) == (1, -1, -1, -1)
    data = build_message_set([Record(timestamp=NOW), Record()], magic=0, codec=1, base_offset=3)
    header = read_header(data, 0, len(data))
    assert (header.magic, header.last_offset, header.max_timestamp, header.codec, header.count) == (0, 4, -1, 1, -1)


@pytest.mark.parametrize("case", golden("batch")[:3] + golden("batch")[-3:], ids=lambda case: case[0])
def test_every_flipped_bit_breaks_the_checksum(case: list[str]) -> None:
    batch = bytes.fromhex(case[1])
    header = iterate_headers(batch, 0, len(batch))[0]
    check_crc(batch, header)
    covered = 21 if header.magic == 2 else 16
    for position in range(covered, header.size, 7):
        flipped = bytearray(batch)
        flipped[position] ^= 0x10
        with pytest.raises(CorruptMessageError, match="crc"):
            check_crc(bytes(flipped), header)
    with pytest.raises(CorruptMessageError, match="cut short"):
        check_crc(batch[: header.size - 1], header)


@pytest.mark.parametrize(
    ("sequence", "increment", "after"),
    [(0, 0, 0), (5, 3, 8), (2**31 - 1, 0, 2**31 - 1), (2**31 - 1, 1, 0), (2**31 - 3, 4, 1), (-1, 7, -1)],
)
def test_sequences_wrap_as_int32(sequence: int, increment: int, after: int) -> None:
    assert sequence_after(sequence, increment) == after
