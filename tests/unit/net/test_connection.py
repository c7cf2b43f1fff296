"""Frames in and replies out of a real socket pair, cut and joined in every way a network may."""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from braidlog.core.slices import FileSlice
from braidlog.net.channel import Channel, FrameHandler
from braidlog.net.connection import SENDFILE_FROM, Connection, ConnectionLimits
from braidlog.net.exchange import Exchange, Part
from braidlog.net.round import Round


class Recorder(FrameHandler):
    """Keeps what it is given; answers with an echo, at once or when told to."""

    def __init__(self) -> None:
        self.frames: list[bytes] = []
        self.pending: list[Exchange] = []
        self.hold = False
        self.closed: list[Channel] = []

    def handle_frame(self, channel: Channel, buffer: bytes, start: int, end: int) -> None:
        frame = buffer[start:end]
        self.frames.append(frame)
        exchange = Exchange(channel, 0, 0, len(self.frames), None, 0.0)
        channel.begin(exchange)
        if self.hold:
            channel.mute()
            self.pending.append(exchange)
        else:
            exchange.reply([frame])

    def channel_closed(self, channel: Channel) -> None:
        self.closed.append(channel)


class World:
    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self.near, self.far = socket.socketpair()
        self.near.setblocking(False)
        self.far.setblocking(False)
        self.handler = Recorder()
        self.limits = ConnectionLimits(max_frame=8 << 20)
        self.reasons: list[str] = []
        self.warmed: list[FileSlice] = []
        self.connection = Connection(
            self.near,
            self.handler,
            Round(self.loop),
            self.loop,
            self.limits,
            self._warm,
            "PLAINTEXT",
            "127.0.0.1",
            lambda connection, reason: self.reasons.append(reason),
        )
        self.connection.start()

    def _warm(self, part: FileSlice, done: Callable[[], None]) -> None:
        self.warmed.append(part)
        self.loop.call_soon(done)

    def turn(self, rounds: int = 4) -> None:
        for _ in range(rounds):
            self.loop.call_soon(self.loop.stop)
            self.loop.run_forever()

    def send(self, data: bytes) -> None:
        view = memoryview(data)
        while view:
            try:
                view = view[self.far.send(view) :]
            except BlockingIOError:
                self.turn()
        self.turn()

    def receive(self) -> bytes:
        got = b""
        while True:
            try:
                piece = self.far.recv(1 << 20)
            except BlockingIOError:
                self.turn()
                try:
                    piece = self.far.recv(1 << 20)
                except BlockingIOError:
                    return got
            if not piece:
                return got
            got += piece

    def close(self) -> None:
        self.connection.close("test over")
        self.far.close()
        self.loop.close()


@pytest.fixture
def world() -> Iterator[World]:
    made = World()
    yield made
    made.close()


def frame(body: bytes) -> bytes:
    return struct.pack(">i", len(body)) + body


def test_a_whole_frame_is_handled_and_answered(world: World) -> None:
    world.send(frame(b"hello"))
    assert world.handler.frames == [b"hello"]
    assert world.receive() == b"hello"


def test_frames_arrive_byte_by_byte(world: World) -> None:
    for byte in frame(b"hello") + frame(b"world"):
        world.send(bytes([byte]))
    assert world.handler.frames == [b"hello", b"world"]


def test_several_frames_and_the_start_of_the_next_in_one_piece(world: World) -> None:
    third = frame(b"three")
    world.send(frame(b"one") + frame(b"two") + third[:6])
    assert world.handler.frames == [b"one", b"two"]
    world.send(third[6:])
    assert world.handler.frames == [b"one", b"two", b"three"]


def test_a_frame_larger_than_any_receive_call(world: World) -> None:
    body = bytes(range(256)) * 16384
    world.send(frame(body) + frame(b"after"))
    assert world.handler.frames == [body, b"after"]


@pytest.mark.parametrize("size", [0, -1, -(2**31), (8 << 20) + 1, 2**31 - 1])
def test_an_impossible_size_closes_only_this_connection(world: World, size: int) -> None:
    world.send(struct.pack(">i", size) + b"x" * 10)
    assert world.connection.closed
    assert world.limits.malformed == 1
    assert world.handler.closed == [world.connection]
    assert str(size) in world.reasons[0]


def test_while_muted_no_further_frame_is_handled(world: World) -> None:
    world.handler.hold = True
    world.send(frame(b"slow") + frame(b"next"))
    world.send(frame(b"last"))
    assert world.handler.frames == [b"slow"]
    world.handler.hold = False
    world.handler.pending[0].reply([b"done"])
    world.turn()
    assert world.handler.frames == [b"slow", b"next", b"last"]
    assert world.receive() == b"donenextlast"


def test_replies_keep_the_order_of_requests(world: World) -> None:
    channel = world.connection
    first, second = (Exchange(channel, 0, 0, number, None, 0.0) for number in (1, 2))
    channel.begin(first)
    channel.begin(second)
    second.reply([b"2"])
    world.turn()
    assert world.receive() == b""
    first.reply([b"1"])
    world.turn()
    assert world.receive() == b"12"


def test_answering_twice_is_a_bug_that_shows(world: World) -> None:
    exchange = Exchange(world.connection, 0, 0, 1, None, 0.0)
    world.connection.begin(exchange)
    exchange.reply([b"1"])
    with pytest.raises(RuntimeError, match="answered twice"):
        exchange.reply([b"1"])


def test_a_silent_finish_sends_nothing_but_keeps_the_order(world: World) -> None:
    channel = world.connection
    first, second = (Exchange(channel, 0, 0, number, None, 0.0) for number in (1, 2))
    channel.begin(first)
    channel.begin(second)
    second.reply([b"2"])
    first.finish_silently()
    world.turn()
    assert world.receive() == b"2"


class OsReadable:
    def __init__(self, path: Path) -> None:
        self._file = path.open("rb")

    def fileno(self) -> int:
        return self._file.fileno()

    def pread(self, size: int, position: int) -> bytes:
        self._file.seek(position)
        return self._file.read(size)

    def close(self) -> None:
        self._file.close()


@pytest.mark.parametrize("size", [10, SENDFILE_FROM - 1, SENDFILE_FROM, 3 << 20])
def test_file_slices_go_out_between_their_neighbours(world: World, tmp_path: Path, size: int) -> None:
    content = (bytes(range(251)) * (size // 251 + 1))[: size + 100].ljust(size + 100, b"x")
    path = tmp_path / "segment"
    path.write_bytes(content)
    file = OsReadable(path)
    parts: list[Part] = [b"head", FileSlice(file, 50, size), memoryview(b"middle"), FileSlice(file, 0, 5), b"tail"]
    exchange = Exchange(world.connection, 1, 0, 1, None, 0.0)
    world.connection.begin(exchange)
    exchange.reply(parts)
    world.turn()
    assert world.receive() == b"head" + content[50 : 50 + size] + b"middle" + content[:5] + b"tail"
    file.close()


class SimulatedFile:
    def fileno(self) -> int:
        raise OSError("no descriptor")

    def pread(self, size: int, position: int) -> bytes:
        return bytes(size)


def test_a_slice_of_a_file_without_descriptor_is_read(world: World) -> None:
    exchange = Exchange(world.connection, 1, 0, 1, None, 0.0)
    world.connection.begin(exchange)
    exchange.reply([FileSlice(SimulatedFile(), 0, SENDFILE_FROM * 2)])
    world.turn()
    assert world.receive() == bytes(SENDFILE_FROM * 2)


def test_a_peer_that_does_not_read_is_not_read_from(world: World) -> None:
    world.handler.hold = True
    world.send(frame(b"big"))
    world.handler.hold = False
    world.handler.pending[0].reply([bytes(16 << 20)])
    world.turn()
    world.far.send(frame(b"more"))
    world.turn()
    assert world.handler.frames == [b"big"]
    assert len(world.receive()) == (16 << 20) + 4
    world.turn()
    assert world.handler.frames == [b"big", b"more"]


def test_the_peer_closing_is_noticed(world: World) -> None:
    world.far.shutdown(socket.SHUT_WR)
    world.turn()
    assert world.connection.closed
    assert world.reasons == ["the peer closed"]


def test_a_reply_to_a_closed_connection_is_dropped(world: World) -> None:
    exchange = Exchange(world.connection, 0, 0, 1, None, 0.0)
    world.connection.begin(exchange)
    world.connection.close("gone")
    exchange.reply([b"too late"])
    world.turn()
    assert world.receive() == b""
