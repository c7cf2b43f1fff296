"""Hostile bytes end in MalformedError, and never in a large allocation."""

from __future__ import annotations

import tracemalloc
from contextlib import suppress
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from braidlog.wire.errors import MalformedError
from braidlog.wire.headers import read_request_header
from braidlog.wire.reader import Reader
from support.wire_golden import golden, messages

NAMES = sorted(messages())
HUGE = (b"\x7f\xff\xff\xff", b"\xff\xff\xff\xff\x0f", b"\xff\xff\xff\xff\x07", b"\x80\x80\x80\x80\x08", b"\xff\x7f")


def decode(name: str, version: int, content: bytes) -> None:
    """Decode; anything but MalformedError is a failure of the test."""
    with suppress(MalformedError):
        messages()[name][0].decode(Reader(content), version)


@pytest.mark.parametrize("name", NAMES)
def test_cut_at_every_byte(name: str) -> None:
    message_class, versions = messages()[name]
    for version in versions:
        samples = [content for at, content, _ in golden()[name] if at == version and len(content) < 600]
        content = max(samples, key=len)
        for end in range(len(content)):
            # The rest of the message stays in the buffer: only `end` may stop the reader.
            with pytest.raises(MalformedError):
                message_class.decode(Reader(content, 0, end), version)


@given(st.data())
@settings(max_examples=400, deadline=None)
def test_random_bytes(data: st.DataObject) -> None:
    name = data.draw(st.sampled_from(NAMES))
    version = data.draw(st.sampled_from(messages()[name][1]))
    decode(name, version, data.draw(st.binary(max_size=300)))


@given(st.data())
@settings(max_examples=600, deadline=None)
def test_changed_messages(data: st.DataObject) -> None:
    name = data.draw(st.sampled_from(NAMES))
    version, content, _ = data.draw(st.sampled_from(golden()[name]))
    changed = bytearray(content)
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, len(changed)))
        piece = data.draw(st.sampled_from(HUGE) | st.binary(min_size=1, max_size=4))
        if data.draw(st.booleans()):
            changed[at : at + len(piece)] = piece
        else:
            changed[at:at] = piece
    decode(name, version, bytes(changed))


@given(st.binary(max_size=60))
def test_random_headers(content: bytes) -> None:
    with suppress(MalformedError):
        read_request_header(Reader(content))


def test_huge_lengths_allocate_little() -> None:
    random = Random(7)
    frames = []
    for name in NAMES:
        for version, content, _ in golden()[name][1::3]:
            for _ in range(3):
                at = random.randrange(len(content) + 1)
                huge = random.choice(HUGE)
                frames.append((name, version, content[:at] + huge + content[at + len(huge) :]))
    tracemalloc.start()
    try:
        for name, version, frame in frames:
            before = tracemalloc.get_traced_memory()[0]
            tracemalloc.reset_peak()
            decode(name, version, frame)
            grown = tracemalloc.get_traced_memory()[1] - before
            assert grown < 64 * 1024 + 200 * len(frame), f"{name} v{version}: {grown} bytes for {len(frame)}"
    finally:
        tracemalloc.stop()
