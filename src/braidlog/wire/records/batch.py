"""The header of a record batch, and of the old messages that share its first bytes (hot: compiled by mypyc).

Record batch, magic 2 (all big-endian; CRC32C covers everything from `attributes` on):

     0        8      12      16  17     21    23       27        35        43        51     53      57     61
     +--------+-------+-------+---+------+-----+--------+---------+---------+---------+------+-------+------+
     | base   | length| leader| m | crc  | at- | last   | base    | max     | producer| pro- | base  | re-  |
     | offset |       | epoch | a | 32c  | tri-| offset | time-   | time-   | id      | ducer| se-   | cord |
     |        |       |       | g |      | bu- | delta  | stamp   | stamp   |         | epoch| quence| count|
     |        |       |       | ic|      | tes |        |         |         |         |      |       |      |
     +--------+-------+-------+---+------+-----+--------+---------+---------+---------+------+-------+------+
     `length` counts what follows it: the batch takes 12 + length bytes.

     attributes: bits 0-2 codec, 3 log append time, 4 transactional, 5 control, 6 base timestamp is a delete horizon

Message, magic 0 and 1 (CRC32 of everything from `magic` on; magic 0 has no timestamp):

     0        8      12      16  17  18          26
     +--------+-------+-------+---+---+-----------+---------+-----+-----------+-------+
     | offset | length| crc32 | m | at| timestamp | key     | key | value     | value |
     |        |       |       |   |   | (magic 1) | length  |     | length    |       |
     +--------+-------+-------+---+---+-----------+---------+-----+-----------+-------+

     attributes: bits 0-2 codec, 3 log append time (magic 1)
"""

from __future__ import annotations

from typing import Final

from librt.strings import read_i16_be, read_i32_be, read_i64_be
from mypy_extensions import i64, mypyc_attr

from braidlog.core.gil import yield_gil
from braidlog.core.protocol_errors import CorruptMessageError
from braidlog.wire.records.checksum import crc32c

LOG_OVERHEAD: Final = 12
HEADER_SIZE: Final = 61
# The smallest that a message of each old format can be: null key and null value.
MESSAGE_V0_SIZE: Final = 26
MESSAGE_V1_SIZE: Final = 34

LENGTH_AT: Final = 8
LEADER_EPOCH_AT: Final = 12
MAGIC_AT: Final = 16
CRC_AT: Final = 17
ATTRIBUTES_AT: Final = 21
LAST_OFFSET_DELTA_AT: Final = 23
BASE_TIMESTAMP_AT: Final = 27
MAX_TIMESTAMP_AT: Final = 35
PRODUCER_ID_AT: Final = 43
PRODUCER_EPOCH_AT: Final = 51
BASE_SEQUENCE_AT: Final = 53
COUNT_AT: Final = 57

CODEC_NONE: Final = 0
CODEC_GZIP: Final = 1
CODEC_SNAPPY: Final = 2
CODEC_LZ4: Final = 3
CODEC_ZSTD: Final = 4

CODEC_MASK: Final = 0x07
LOG_APPEND_TIME_BIT: Final = 0x08
TRANSACTIONAL: Final = 0x10
CONTROL: Final = 0x20
DELETE_HORIZON: Final = 0x40

NO_TIMESTAMP: Final = -1
# What the timestamp of a record is, as clients number it.
CREATE_TIME: Final = 0
LOG_APPEND_TIME: Final = 1
NO_TIMESTAMP_TYPE: Final = -1
NO_SEQUENCE: Final = -1
NO_PRODUCER: Final = -1
NO_LEADER_EPOCH: Final = -1
_INT32_MAX: Final = 0x7FFFFFFF


@mypyc_attr(acyclic=True)
class BatchHeader:
    """What the first bytes of a batch say; for an old message the fields that it lacks hold their "none" value.

    `position` is where the batch starts in the buffer it was read from, `size` all its bytes, log overhead included.
    """

    __slots__ = (
        "attributes",
        "base_offset",
        "base_sequence",
        "base_timestamp",
        "count",
        "crc",
        "last_offset_delta",
        "leader_epoch",
        "magic",
        "max_timestamp",
        "position",
        "producer_epoch",
        "producer_id",
        "size",
    )

    def __init__(
        self,
        position: int,
        size: int,
        base_offset: int,
        leader_epoch: int,
        magic: int,
        crc: int,
        attributes: int,
        last_offset_delta: int,
        base_timestamp: int,
        max_timestamp: int,
        producer_id: int,
        producer_epoch: int,
        base_sequence: int,
        count: int,
    ) -> None:
        self.position = position
        self.size = size
        self.base_offset = base_offset
        self.leader_epoch = leader_epoch
        self.magic = magic
        self.crc = crc
        self.attributes = attributes
        self.last_offset_delta = last_offset_delta
        self.base_timestamp = base_timestamp
        self.max_timestamp = max_timestamp
        self.producer_id = producer_id
        self.producer_epoch = producer_epoch
        self.base_sequence = base_sequence
        # Of a compressed old message the number of inner messages is not known: -1.
        self.count = count

    @property
    def end(self) -> int:
        """The position after the batch's last byte."""
        return self.position + self.size

    @property
    def last_offset(self) -> int:
        """For a compressed old message the wrapper's offset, which is that of its last inner message."""
        return self.base_offset + self.last_offset_delta

    @property
    def next_offset(self) -> int:
        return self.base_offset + self.last_offset_delta + 1

    @property
    def codec(self) -> int:
        return self.attributes & CODEC_MASK

    @property
    def is_log_append_time(self) -> bool:
        return self.attributes & LOG_APPEND_TIME_BIT != 0

    @property
    def is_transactional(self) -> bool:
        return self.attributes & TRANSACTIONAL != 0

    @property
    def is_control(self) -> bool:
        return self.attributes & CONTROL != 0

    @property
    def has_delete_horizon(self) -> bool:
        return self.attributes & DELETE_HORIZON != 0

    @property
    def delete_horizon_ms(self) -> int:
        """When tombstones and markers of this batch may go (KIP-534), or -1 when the cleaner has not yet set it."""
        return self.base_timestamp if self.attributes & DELETE_HORIZON != 0 else NO_TIMESTAMP

    @property
    def has_producer_id(self) -> bool:
        return self.producer_id > NO_PRODUCER

    @property
    def last_sequence(self) -> int:
        """Sequences count 0 … 2^31 - 1 and then from 0 again."""
        return sequence_after(self.base_sequence, self.last_offset_delta)


def sequence_after(sequence: int, increment: int) -> int:
    """`sequence` moved on by `increment`, wrapping from 2^31 - 1 to 0; no sequence stays none."""
    if sequence == NO_SEQUENCE:
        return NO_SEQUENCE
    if sequence > _INT32_MAX - increment:
        return increment - (_INT32_MAX - sequence) - 1
    return sequence + increment


def read_header(buffer: bytes, position: int, end: int) -> BatchHeader:
    """The header at `position`; only the header need lie before `end`, not the body.

    Raises CorruptMessageError when there is no whole header, the length is impossible or the magic unknown.
    """
    at: i64 = position
    stop: i64 = min(end, len(buffer))
    if at < 0 or stop - at < MESSAGE_V0_SIZE:
        raise CorruptMessageError(f"only {max(stop - at, 0)} bytes where a record batch should start")
    size: i64 = i64(read_i32_be(buffer, at + LENGTH_AT)) + LOG_OVERHEAD
    magic = buffer[at + MAGIC_AT]
    if magic == 2:
        if size < HEADER_SIZE:
            raise CorruptMessageError(f"a record batch of {size} bytes is smaller than its {HEADER_SIZE}-byte header")
        if stop - at < HEADER_SIZE:
            raise CorruptMessageError(f"only {stop - at} of the {HEADER_SIZE} bytes of a record batch's header")
        return BatchHeader(
            position,
            size,
            read_i64_be(buffer, at),
            read_i32_be(buffer, at + LEADER_EPOCH_AT),
            2,
            i64(read_i32_be(buffer, at + CRC_AT)) & 0xFFFFFFFF,
            read_i16_be(buffer, at + ATTRIBUTES_AT),
            read_i32_be(buffer, at + LAST_OFFSET_DELTA_AT),
            read_i64_be(buffer, at + BASE_TIMESTAMP_AT),
            read_i64_be(buffer, at + MAX_TIMESTAMP_AT),
            read_i64_be(buffer, at + PRODUCER_ID_AT),
            read_i16_be(buffer, at + PRODUCER_EPOCH_AT),
            read_i32_be(buffer, at + BASE_SEQUENCE_AT),
            read_i32_be(buffer, at + COUNT_AT),
        )
    if magic > 2:
        raise CorruptMessageError(f"unknown magic {magic} in a record batch")
    if size < (MESSAGE_V0_SIZE if magic == 0 else MESSAGE_V1_SIZE):
        raise CorruptMessageError(f"a message of {size} bytes is smaller than magic {magic} allows")
    return _message_header(buffer, at, size, magic)


def _message_header(buffer: bytes, at: i64, size: i64, magic: int) -> BatchHeader:
    attributes = buffer[at + 17]
    timestamp: i64 = NO_TIMESTAMP
    if magic == 1:
        timestamp = read_i64_be(buffer, at + 18)
    return BatchHeader(
        at,
        size,
        read_i64_be(buffer, at),
        NO_LEADER_EPOCH,
        magic,
        i64(read_i32_be(buffer, at + 12)) & 0xFFFFFFFF,
        # The bits that magic 2 gave a meaning must not be read out of an old message.
        attributes & (CODEC_MASK | LOG_APPEND_TIME_BIT) if magic == 1 else attributes & CODEC_MASK,
        0,
        timestamp,
        timestamp,
        NO_PRODUCER,
        -1,
        NO_SEQUENCE,
        1 if attributes & CODEC_MASK == CODEC_NONE else -1,
    )


def iterate_headers(buffer: bytes, start: int, end: int) -> list[BatchHeader]:
    """The headers of the batches that lie whole in `buffer[start:end]`; an incomplete last one is left out.

    Raises CorruptMessageError at a header that is there but cannot be one.
    """
    headers: list[BatchHeader] = []
    at: i64 = start
    stop: i64 = min(end, len(buffer))
    while stop - at >= LOG_OVERHEAD:
        size: i64 = i64(read_i32_be(buffer, at + LENGTH_AT)) + LOG_OVERHEAD
        if size < MESSAGE_V0_SIZE:
            raise CorruptMessageError(f"a record batch of {size} bytes at position {at} is impossibly small")
        if size > stop - at:
            break
        headers.append(read_header(buffer, at, stop))
        if len(headers) & 0x7FF == 0:
            yield_gil()
        at += size
    return headers


def first_whole_batch(buffer: bytes, start: int, end: int) -> BatchHeader | None:
    """The header at `start`, if the whole batch lies before `end`."""
    at: i64 = start
    stop: i64 = min(end, len(buffer))
    if stop - at < LOG_OVERHEAD or i64(read_i32_be(buffer, at + LENGTH_AT)) + LOG_OVERHEAD > stop - at:
        return None
    return read_header(buffer, start, end)


def computed_crc(buffer: bytes, header: BatchHeader) -> int:
    """The checksum that the batch's bytes give: CRC32C from the attributes on, or CRC32 of an old message."""
    view = memoryview(buffer)
    if header.magic == 2:
        return crc32c(view[header.position + ATTRIBUTES_AT : header.position + header.size], 0)
    import zlib

    return zlib.crc32(view[header.position + MAGIC_AT : header.position + header.size])


def check_crc(buffer: bytes, header: BatchHeader) -> None:
    """Raises CorruptMessageError unless the whole batch is in the buffer and matches its checksum."""
    if header.position + header.size > len(buffer):
        raise CorruptMessageError(f"a record batch of {header.size} bytes is cut short")
    computed = computed_crc(buffer, header)
    if computed != header.crc:
        raise CorruptMessageError(f"record batch is corrupt (stored crc = {header.crc}, computed crc = {computed})")
