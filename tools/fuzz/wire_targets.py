"""Frames, requests and responses: what a peer can send before anything is known about it."""

from __future__ import annotations

import asyncio
import lzma
import socket
import struct
from collections.abc import Sequence
from functools import cache

from braidlog.broker.requests.dispatch import FEW_ELEMENTS
from braidlog.core.slices import FileSlice
from braidlog.net.channel import Channel, FrameHandler
from braidlog.net.connection import Connection, ConnectionLimits
from braidlog.net.exchange import Exchange
from braidlog.net.fair_queue import FairQueue
from braidlog.net.memory import MemoryBudget
from braidlog.net.outbound.frame_reader import FrameReader, InvalidFrameSize, PeerClosed
from braidlog.net.outbound.transport import ENDED, WOULD_BLOCK
from braidlog.net.round import Round
from braidlog.wire.apis import (
    APIS,
    encode_request,
    encode_response,
    request_header_version,
    response_header_version,
)
from braidlog.wire.errors import MalformedError
from braidlog.wire.generated.headers import RequestHeader, ResponseHeader
from braidlog.wire.headers import read_request_header
from braidlog.wire.message import Message
from braidlog.wire.reader import Reader
from braidlog.wire.writer import Writer
from tools.fuzz.target import KIB, MIB, ROOT, Target

_GOLDEN = ROOT / "tests" / "unit" / "wire" / "golden"
_LARGEST_FRAME = 64 * KIB


@cache
def golden_messages() -> dict[str, list[tuple[int, bytes]]]:
    """What kafka-clients writes: version and bytes of every message, by its class."""
    found: dict[str, list[tuple[int, bytes]]] = {}
    for line in lzma.decompress((_GOLDEN / "messages.txt.xz").read_bytes()).decode("utf-8").splitlines():
        name, version, content, _ = line.split("\t")
        found.setdefault(name, []).append((int(version), bytes.fromhex(content)))
    return found


@cache
def captured_requests() -> list[bytes]:
    lines = (_GOLDEN / "captures.txt").read_text(encoding="utf-8").splitlines()
    return [bytes.fromhex(line.split("\t")[1]) for line in lines]


# Requests


@cache
def request_frames() -> Sequence[bytes]:
    """A frame without its size, of every api in every version, and those of real clients."""
    frames = list(captured_requests())
    for api in APIS.values():
        for version in range(api.min_version, api.max_version + 1):
            writer = Writer()
            header = RequestHeader(
                request_api_key=api.key, request_api_version=version, correlation_id=7, client_id="fuzz"
            )
            header.encode(writer, request_header_version(api.key, version))
            head = writer.getvalue()
            bodies = [body for at, body in golden_messages().get(f"{api.name}Request", ()) if at == version]
            frames += [head + body for body in bodies or [b""]]
    return frames


def decode_request_frame(data: bytes) -> None:
    reader = Reader(data)
    header = read_request_header(reader)
    api = APIS[header.request_api_key]
    version = header.request_api_version
    if not api.speaks(version):
        return
    reader.elements_left = FEW_ELEMENTS
    message = api.request.decode(reader, version)
    frame = encode_request(api.key, version, header.correlation_id, header.client_id, message)
    again = Reader(_content(frame))
    read_request_header(again)
    _require_same(message, api.request.decode(again, version), version)


# Responses


@cache
def response_frames() -> Sequence[bytes]:
    frames: list[bytes] = []
    for number, api in enumerate(APIS.values()):
        for version, body in golden_messages().get(f"{api.name}Response", ()):
            if api.speaks(version):
                head = b"\0\0\0\7\0" if response_header_version(api.key, version) else b"\0\0\0\7"
                frames.append(bytes((number, version)) + head + body)
    return frames


def decode_response_frame(data: bytes) -> None:
    """The first two bytes say of which api and version."""
    if len(data) < 2:
        return
    apis = list(APIS.values())
    api = apis[data[0] % len(apis)]
    version = api.min_version + data[1] % (api.max_version - api.min_version + 1)
    reader = Reader(data, 2)
    ResponseHeader.decode(reader, response_header_version(api.key, version))
    message = api.response.decode(reader, version)
    again = Reader(_content(encode_response(api.key, version, 7, message)))
    ResponseHeader.decode(again, response_header_version(api.key, version))
    _require_same(message, api.response.decode(again, version), version)


def _content(frame: Writer) -> bytes:
    return frame.getvalue()[4:]


def _require_same(message: Message, again: Message, version: int) -> None:
    """By their bytes: a number that is none is not equal to itself."""
    first, second = Writer(), Writer()
    message.encode(first, version)
    again.encode(second, version)
    if first.getvalue() != second.getvalue():
        raise AssertionError(f"{message!r} is not the same after another round: {again!r}")


# Frames


def frame_streams() -> Sequence[bytes]:
    frames = [struct.pack(">i", len(each)) + each for each in (b"a", b"bc" * 20, bytes(300), bytes(5000))]
    # The first byte says how the stream is cut into pieces.
    return [
        b"\x07" + b"".join(frames),
        b"\x01" + frames[0] * 30,
        b"\xff" + frames[3] * 2,
        b"\x40" + frames[1] + b"\0\0",
        b"\x40" + struct.pack(">i", _LARGEST_FRAME + 1) + bytes(50),
        b"\x40" + struct.pack(">i", -1),
    ]


def _pieces(data: bytes) -> list[bytes]:
    # No more pieces than a run has time for.
    size = max(data[0] + 1 if data else 1, len(data) // 64)
    return [data[at : at + size] for at in range(1, len(data), size)]


def _expected_frames(stream: bytes, largest: int) -> tuple[list[bytes], bool]:
    """The frames of a stream, and whether it goes on with a size that cannot be."""
    frames: list[bytes] = []
    at = 0
    while len(stream) - at >= 4:
        (size,) = struct.unpack_from(">i", stream, at)
        if not 0 < size <= largest:
            return frames, True
        if at + 4 + size > len(stream):
            break
        frames.append(stream[at + 4 : at + 4 + size])
        at += 4 + size
    return frames, False


class _Recorder(FrameHandler):
    def __init__(self) -> None:
        self.frames: list[bytes] = []

    def handle_frame(self, channel: Channel, buffer: bytes, start: int, end: int) -> None:
        self.frames.append(buffer[start:end])
        exchange = Exchange(channel, 0, 0, len(self.frames), None, 0.0)
        channel.begin(exchange)
        exchange.finish_silently()

    def channel_closed(self, channel: Channel) -> None:
        pass


class _QuietLoop(asyncio.SelectorEventLoop):
    """Runs nothing by itself: the pieces are handed over one by one."""


@cache
def _loop() -> asyncio.AbstractEventLoop:
    return _QuietLoop()


def receive_frames(data: bytes) -> None:
    """The broker's side of a connection."""
    loop = _loop()
    near, far = socket.socketpair()
    near.setblocking(False)
    handler = _Recorder()
    memory = MemoryBudget(64 * MIB)
    reasons: list[str] = []

    def warm(part: FileSlice, done: object) -> None:
        raise AssertionError("nothing is sent from files")

    connection = Connection(
        near,
        handler,
        Round(loop),
        loop,
        ConnectionLimits(_LARGEST_FRAME, memory, FairQueue(loop)),
        warm,
        "PLAINTEXT",
        "127.0.0.1",
        lambda closed, reason: reasons.append(reason),
    )
    try:
        for piece in _pieces(data):
            if connection.closed:
                break
            far.sendall(piece)
            connection.on_readable()
        expected, broken = _expected_frames(b"".join(_pieces(data)), _LARGEST_FRAME)
        if handler.frames != expected:
            raise AssertionError(f"{len(handler.frames)} frames of {len(expected)} were handled")
        if connection.closed != broken:
            raise AssertionError(f"closed: {connection.closed}, because of {reasons}; expected: {broken}")
    finally:
        connection.close("the run is over")
        near.close()
        far.close()
        # What was left for later: nothing of it may fail, or pile up from run to run.
        loop.call_soon(loop.stop)
        loop.run_forever()
    if memory.requests.used:
        raise AssertionError(f"{memory.requests.used} bytes are still charged")


class _Pieces:
    """A transport from which the pieces come one at a time."""

    def __init__(self, pieces: list[bytes]) -> None:
        self._pieces = pieces
        self._waits = False

    def receive_into(self, view: memoryview) -> int:
        self._waits = not self._waits
        if self._waits and self._pieces:
            return WOULD_BLOCK
        if not self._pieces:
            return ENDED
        piece = self._pieces[0][: len(view)]
        view[: len(piece)] = piece
        self._pieces[0] = self._pieces[0][len(piece) :]
        if not self._pieces[0]:
            del self._pieces[0]
        return len(piece)

    def expect(self, count: int) -> None:
        pass


def read_frames(data: bytes) -> None:
    """The client's side of a connection."""
    pieces = _pieces(data)
    stream = b"".join(pieces)
    transport = _Pieces(pieces)
    reader = FrameReader()
    found: list[bytes] = []
    expected, broken = _expected_frames(stream, 1 << 30)
    try:
        while True:
            found += reader.frames(transport)  # type: ignore[arg-type]
    except PeerClosed:
        if broken:
            raise AssertionError("an impossible size was not noticed") from None
    except InvalidFrameSize:
        if not broken:
            raise AssertionError("a sound size was refused") from None
        return
    if found != expected:
        raise AssertionError(f"{len(found)} frames of {len(expected)} were read")


TARGETS = (
    Target("requests", decode_request_frame, (MalformedError,), request_frames),
    Target("responses", decode_response_frame, (MalformedError,), response_frames),
    Target("frames", receive_frames, (), frame_streams, bytes_per_byte=50),
    Target("client_frames", read_frames, (), frame_streams, fixed_bytes=6 * MIB, bytes_per_byte=50),
)
