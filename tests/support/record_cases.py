"""What the record tests share: golden cases that Kafka 3.9.1 wrote, generated records, descriptions to compare."""

from __future__ import annotations

import hashlib
import lzma
from functools import cache
from pathlib import Path

from hypothesis import settings
from hypothesis import strategies as st

from braidlog.core.protocol_errors import (
    CorruptMessageError,
    InvalidRecordError,
    InvalidTimestampError,
    MessageTooLargeError,
    UnsupportedCompressionTypeError,
    UnsupportedForMessageFormatError,
)
from braidlog.wire.records.batch import BatchHeader, computed_crc, read_header
from braidlog.wire.records.reading import Record

GOLDEN = Path(__file__).parent.parent / "unit" / "wire" / "records" / "golden" / "records.txt.xz"
NOW = 1_700_000_000_000

# Many codecs and formats are tried with each example, so that few examples are many tests.
quick = settings(max_examples=40, deadline=None)
thorough = settings(max_examples=250, deadline=None)

# Whatever bytes come in, these are the only ways out.
NAMED_ERRORS = (
    CorruptMessageError,
    InvalidRecordError,
    InvalidTimestampError,
    MessageTooLargeError,
    UnsupportedCompressionTypeError,
    UnsupportedForMessageFormatError,
)


@cache
def golden(kind: str) -> list[list[str]]:
    """The golden lines of a kind, as lists of fields after it; made by tools/golden/Records.java."""
    lines = lzma.decompress(GOLDEN.read_bytes()).decode().splitlines()
    return [line.split("\t")[1:] for line in lines if line.split("\t")[0] == kind]


def names(kind: str) -> list[str]:
    return [case[0] for case in golden(kind)]


def _text(data: bytes | None) -> str:
    if data is None:
        return "-"
    return data.hex() if len(data) <= 40 else "sha256:" + hashlib.sha256(data).hexdigest()


def describe(records: list[Record]) -> str:
    """Records in the notation of the golden file."""
    return ";".join(
        f"{r.offset}/{r.timestamp}/{_text(r.key)}/{_text(r.value)}/"
        + ",".join(f"{name.encode().hex()}={'-' if value is None else value.hex()}" for name, value in r.headers)
        for r in records
    )


def describe_headers(headers: list[BatchHeader]) -> str:
    """Batch headers in the notation of the golden file."""
    return ";".join(
        f"{h.base_offset}/{h.last_offset}/{h.size}/{h.magic}/{h.max_timestamp}/{h.producer_id}/{h.producer_epoch}/"
        f"{h.base_sequence}/{h.last_sequence}/{h.leader_epoch}/{h.codec}/{_flag(h.is_log_append_time)}/"
        f"{_flag(h.is_transactional)}/{_flag(h.is_control)}/{h.delete_horizon_ms}/{h.count}"
        for h in headers
    )


def _flag(value: bool) -> str:
    return "true" if value else "false"


field = st.none() | st.binary(max_size=40) | st.binary(min_size=60, max_size=80) | st.just(b"0123456789" * 900)
headers = st.lists(st.tuples(st.text(max_size=8), st.none() | st.binary(max_size=8)), max_size=3)


@st.composite
def record_lists(draw: st.DrawFn, *, with_headers: bool = True, max_size: int = 8) -> list[Record]:
    count = draw(st.integers(1, max_size))
    start = draw(st.sampled_from([0, NOW, 1 << 40]))
    return [
        Record(
            offset=index,
            timestamp=max(start + draw(st.integers(-5000, 5000)), -1),
            key=draw(field),
            value=draw(field),
            headers=tuple(draw(headers)) if with_headers else (),
        )
        for index in range(count)
    ]


@st.composite
def mutations(draw: st.DrawFn, data: bytes) -> bytes:
    """The data with a few bytes changed, or cut, or with something added."""
    mutated = bytearray(data)
    for _ in range(draw(st.integers(1, 4))):
        kind = draw(st.sampled_from(["set", "set", "set", "cut", "insert", "grow"]))
        at = draw(st.integers(0, max(len(mutated) - 1, 0)))
        if kind == "set" and mutated:
            mutated[at] = draw(st.sampled_from([0, 1, 0x7F, 0x80, 0xFF]) | st.integers(0, 255))
        elif kind == "cut":
            del mutated[at:]
        elif kind == "insert":
            mutated[at:at] = draw(st.binary(min_size=1, max_size=4))
        else:
            mutated += draw(st.binary(max_size=20))
    return bytes(mutated)


def resigned(data: bytes) -> bytes:
    """The data with length and checksum of its first batch or message put right, if it still has a header."""
    if len(data) < 26 or data[16] > 2:
        return data
    data = data[:8] + (len(data) - 12).to_bytes(4, "big") + data[12:]
    try:
        header = read_header(data, 0, len(data))
    except CorruptMessageError:
        return data
    at = 17 if header.magic == 2 else 12
    return data[:at] + computed_crc(data, header).to_bytes(4, "big") + data[at + 4 :]


def encoded_varint(value: int) -> bytes:
    """Zigzag and base 128 by the book, on integers without a width."""
    rest = (value << 1) ^ (value >> 63) if value >= 0 else ((-value - 1) << 1) | 1
    out = bytearray()
    while rest > 127:
        out.append(rest & 0x7F | 0x80)
        rest >>= 7
    out.append(rest)
    return bytes(out)
