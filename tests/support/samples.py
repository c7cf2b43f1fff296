"""Records that have made brokers and clients disagree before."""

from __future__ import annotations

import hashlib
import time
from dataclasses import dataclass, field

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
# An hour ago: not "now", and younger than any retention, so that no broker deletes it under a test.
BASE_TIMESTAMP_MS = int(time.time() * 1000) - 3_600_000

Headers = tuple[tuple[str, bytes | None], ...]
ODD_HEADERS: Headers = (("a", b"1"), ("a", b"2"), ("empty", b""), ("null", None), ("ключ", b"\xff"))


@dataclass(frozen=True)
class Sample:
    key: bytes | None
    value: bytes | None
    headers: Headers = field(default=())
    timestamp_ms: int = BASE_TIMESTAMP_MS


def odd_samples() -> list[Sample]:
    """Null and empty keys and values, headers of all kinds, every byte value."""
    every_byte = bytes(range(256))
    return [
        Sample(None, b"no key"),
        Sample(b"", b"empty key"),
        Sample(b"empty value", b""),
        Sample(b"null value", None),
        Sample(None, None),
        Sample(every_byte, every_byte[::-1], timestamp_ms=BASE_TIMESTAMP_MS + 5),
        Sample(b"h", b"one header", (("trace", b"abc"),)),
        Sample(
            b"h",
            b"odd headers",
            ODD_HEADERS,
        ),
        Sample("ключ".encode(), "значение".encode(), timestamp_ms=BASE_TIMESTAMP_MS + 1),
    ]


def plain_samples(count: int, size: int = 100) -> list[Sample]:
    """Many compressible records whose values differ."""
    return [
        Sample(
            b"key-%d" % (number % 7),
            (b"%d:" % number + hashlib.sha256(b"%d" % number).digest()[:8] * (size // 8 + 1))[:size],
            timestamp_ms=BASE_TIMESTAMP_MS + number,
        )
        for number in range(count)
    ]
