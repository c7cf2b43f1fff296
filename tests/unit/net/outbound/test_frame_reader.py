import struct
import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from braidlog.net.outbound.frame_reader import FrameReader, InvalidFrameSize, PeerClosed
from braidlog.net.outbound.transport import ENDED, WOULD_BLOCK


class Pieces:
    """A transport that hands out given pieces; None stands for a pause."""

    def __init__(self, pieces: list[bytes | None]) -> None:
        self.pieces = pieces
        self.expected = 1

    def expect(self, size: int) -> None:
        self.expected = size

    def receive_into(self, view: memoryview) -> int:
        if not self.pieces:
            return WOULD_BLOCK
        piece = self.pieces.pop(0)
        if piece is None:
            return WOULD_BLOCK
        if not piece:
            return ENDED
        taken = piece[: len(view)]
        view[: len(taken)] = taken
        if len(taken) < len(piece):
            self.pieces.insert(0, piece[len(taken) :])
        return len(taken)


def _framed(*bodies: bytes) -> bytes:
    return b"".join(struct.pack(">i", len(body)) + body for body in bodies)


def _read(pieces: list[bytes | None], *, by_one: bool = False) -> list[bytes]:
    reader = FrameReader()
    transport = Pieces(pieces)
    frames: list[bytes] = []
    while transport.pieces:
        only = reader.only_frame(transport) if by_one else None
        if only is None:
            frames += reader.frames(transport)
        elif only:
            frames.append(only)
    return frames


SIZES = st.sampled_from([1, 2, 100, 65_531, 65_532, 65_533, 65_536, 200_000])


@given(st.lists(SIZES, max_size=6), st.lists(st.integers(1, 90_000), max_size=20), st.booleans())
def test_frames_come_out_however_the_bytes_come_in(sizes: list[int], cuts: list[int], pauses: bool) -> None:
    bodies = [bytes([at + 1]) * size for at, size in enumerate(sizes)]
    data = _framed(*bodies)
    pieces: list[bytes | None] = []
    at = 0
    for cut in cuts:
        if at < len(data):
            pieces.append(data[at : at + cut])
            at += cut
            if pauses:
                pieces.append(None)
    if at < len(data):
        pieces.append(data[at:])
    assert _read(list(pieces), by_one=True) == bodies
    assert _read(pieces) == bodies


def test_byte_by_byte() -> None:
    data = _framed(b"one", b"two", b"x" * 10)
    assert _read([bytes([byte]) for byte in data]) == [b"one", b"two", b"x" * 10]
    assert _read([bytes([byte]) for byte in data], by_one=True) == [b"one", b"two", b"x" * 10]


@pytest.mark.parametrize("size", [0, -1, (1 << 30) + 1, 0x48545450])
def test_an_impossible_size_is_no_frame(size: int) -> None:
    with pytest.raises(InvalidFrameSize):
        _read([struct.pack(">i", size) + b"whatever"])
    with pytest.raises(InvalidFrameSize):
        _read([struct.pack(">i", size) + b"whatever"], by_one=True)


def test_frames_before_the_end_are_not_lost() -> None:
    reader = FrameReader()
    transport = Pieces([_framed(b"last"), b""])
    assert list(reader.frames(transport)) == [b"last"]
    with pytest.raises(PeerClosed):
        list(reader.frames(transport))


def test_a_size_alone_takes_no_memory() -> None:
    reader = FrameReader()
    transport = Pieces([struct.pack(">i", 1 << 30) + b"x" * 65_532, b"x" * 100_000, None])
    tracemalloc.start()
    try:
        assert list(reader.frames(transport)) == []
        assert list(reader.frames(transport)) == []
        assert tracemalloc.get_traced_memory()[1] < 16 << 20
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("size", [(4 << 20) - 1, 4 << 20, (4 << 20) + 1, (11 << 20) + 3])
def test_large_frames_grow_as_they_arrive(size: int) -> None:
    body = bytes(range(251)) * (size // 251 + 1)
    data = _framed(body[:size], b"next")
    assert _read([data]) == [body[:size], b"next"]
    assert _read([data[at : at + 300_000] for at in range(0, len(data), 300_000)]) == [body[:size], b"next"]


def test_the_transport_knows_what_a_large_frame_waits_for() -> None:
    reader = FrameReader()
    data = _framed(b"x" * 200_000, b"small", b"y" * 100_000)
    transport = Pieces([data[:70_000], data[70_000:150_000], data[150_000:]])
    assert list(reader.frames(transport)) == []
    assert transport.expected == 200_004 - 70_000
    assert list(reader.frames(transport)) == []
    assert transport.expected == 200_004 - 150_000
    assert list(reader.frames(transport)) == [b"x" * 200_000, b"small", b"y" * 100_000]
    assert transport.expected == 1


def test_a_very_large_frame_is_received_in_pieces() -> None:
    reader = FrameReader()
    transport = Pieces([_framed(b"x" * (3 << 20))[:70_000]])
    assert list(reader.frames(transport)) == []
    assert transport.expected == 512 * 1024


def test_a_buffer_used_again_leaves_nothing_behind() -> None:
    bodies = [b"a" * 300_000, b"b" * 100_000, b"c" * 299_999, b"d" * 5_000_000, b"e" * 70_000]
    assert _read([_framed(*bodies)]) == bodies
