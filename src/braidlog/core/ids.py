"""Identifiers in the forms Kafka writes them: a 16-byte id on the wire, 22 characters of base64 for people."""

from __future__ import annotations

import binascii
import os
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Callable

ZERO_ID = bytes(16)
# Kafka reserves the ids that only differ from zero in the last byte, for directory states and the metadata topic.
_RESERVED = {bytes(15) + bytes([low]) for low in range(100)}


def random_id(randbytes: Callable[[int], bytes] = os.urandom) -> bytes:
    """A fresh topic, cluster or directory id; as in Kafka its text never starts with a dash."""
    while True:
        bits = bytearray(randbytes(16))
        # Version 4, variant 1 of RFC 4122, as Kafka's random ids are.
        bits[6] = bits[6] & 0x0F | 0x40
        bits[8] = bits[8] & 0x3F | 0x80
        candidate = bytes(bits)
        if candidate not in _RESERVED and not id_text(candidate).startswith("-"):
            return candidate


def has_topic_id(topic_id: bytes) -> bool:
    """Topics of clusters before Kafka 2.8 have none."""
    return topic_id != ZERO_ID and topic_id != b""


def id_text(identifier: bytes) -> str:
    return urlsafe_b64encode(identifier).rstrip(b"=").decode("ascii")


def parse_id(text: str) -> bytes:
    """The 16 bytes behind a text form; raises ValueError for anything else."""
    try:
        identifier = urlsafe_b64decode(text + "=" * (-len(text) % 4))
    except (binascii.Error, ValueError) as problem:
        raise ValueError(f"{text!r} is not an id: expected 22 characters of URL-safe base64") from problem
    if len(identifier) != 16:
        raise ValueError(f"{text!r} is not an id: expected 22 characters of URL-safe base64")
    return identifier
