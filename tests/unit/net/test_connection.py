"""Frames in and replies out of a real socket pair, cut and joined in every way a network may."""

from __future__ import annotations

import contextlib
import itertools
import socket
import struct
from collections.abc import Iterator
from pathlib import Path

import pytest

from braidlog.core.slices import FileSlice
from braidlog.net.channel import Channel
from braidlog.net.connection import (
    GATHER_SIZE,
    SENDFILE_FROM,
    Connection,
    ConnectionLimits,
)
from braidlog.net.exchange import Exchange, Part
from braidlog.net.fair_queue import TURN_S, FairQueue
from braidlog.net.memory import MemoryBudget
from braidlog.net.round import Round
from support.connections import Recorder, World, frame
from support.exchanges import reply


@pytest.fixture
def world() -> Iterator[World]:
    made = World()
    yield made
    made.close()


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
    assert world.receive() == body + b"after"
    assert world.handler.frames == [body, b"after"]


@pytest.mark.parametrize("size", [0, -1, -(2**31), (8 << 20) + 1, 2**31 - 1])
def test_an_impossible_size_closes_only_this_connection(world: World, size: int) -> None:
    world.send(struct.pack(">i", size) + b"x" * 10)
    assert world.connection.closed
    assert world.limits.malformed == 1
    assert world.handler.closed == [world.connection]
    assert str(size) in world.reasons[0]


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
    reply(exchange, parts)
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
    reply(exchange, [FileSlice(SimulatedFile(), 0, SENDFILE_FROM * 2)])
    world.turn()
    assert world.receive() == bytes(SENDFILE_FROM * 2)


def test_a_peer_that_does_not_read_is_not_read_from(world: World) -> None:
    world.handler.hold = True
    world.send(frame(b"big"))
    world.handler.hold = False
    reply(world.handler.pending[0], [bytes(16 << 20)])
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


def test_unread_file_ranges_are_not_read_into_memory(world: World) -> None:
    class Counting(SimulatedFile):
        read = 0

        def pread(self, size: int, position: int) -> bytes:
            Counting.read += size
            return bytes(size)

    file = Counting()
    exchange = Exchange(world.connection, 1, 0, 1, None, 0.0)
    world.connection.begin(exchange)
    reply(exchange, [FileSlice(file, 0, SENDFILE_FROM - 1) for _ in range(1000)])
    world.turn()
    assert Counting.read < 8 << 20
    assert world.connection.unsent_memory <= GATHER_SIZE + SENDFILE_FROM
    assert len(world.receive()) == 1000 * (SENDFILE_FROM - 1)
    assert world.connection.unsent_memory == world.memory.answers.used == 0


def test_a_file_that_lost_its_end_closes_the_connection(world: World) -> None:
    class Short(SimulatedFile):
        def pread(self, size: int, position: int) -> bytes:
            return bytes(size - 1)

    exchange = Exchange(world.connection, 1, 0, 1, None, 0.0)
    world.connection.begin(exchange)
    reply(exchange, [b"head", FileSlice(Short(), 0, 100)])
    world.turn()
    assert world.reasons == ["a log file is shorter than its index says"]


def test_many_requests_at_once_are_handled_a_turn_at_a_time(world: World) -> None:
    world.handler.takes_s = TURN_S / 4
    world.far.send(b"".join(frame(b"%d" % number) for number in range(40)))
    seen = []
    for _ in range(60):
        world.turn(1)
        seen.append(len(world.handler.frames))
    steps = [after - before for before, after in itertools.pairwise([0, *seen])]
    assert sum(steps) == 40
    assert max(steps) <= 2 * 6
    assert world.receive() == b"".join(b"%d" % number for number in range(40))


def test_what_waits_for_a_turn_is_dropped_with_its_connection(world: World) -> None:
    world.handler.takes_s = TURN_S * 2
    world.far.send(frame(b"x") * 10)
    world.turn(1)
    world.connection.close("test")
    world.turn()
    assert len(world.handler.frames) < 10
    assert world.memory.requests.used == 0


def large_produce(size: int) -> bytes:
    """A frame whose first bytes say Produce: records are not decoded, so it takes no more than its size."""
    return frame(bytes(2) + bytes(size - 2))


def test_a_large_request_is_received_when_there_is_memory_for_it(world: World) -> None:
    requests = world.memory.requests
    requests.charge(requests.limit - 1000)
    world.send(large_produce(1 << 20)[: 1 << 17])
    assert requests.waiting == 1
    assert world.connection.fd not in readers(world)
    requests.charge(-(requests.limit - 1000))
    world.send(large_produce(1 << 20)[1 << 17 :])
    assert len(world.handler.frames) == 1
    assert requests.used == 0


def test_the_beginning_of_a_large_request_claims_nothing(world: World) -> None:
    world.limits.max_frame = 100 << 20
    world.send(large_produce(100 << 20)[: 1 << 16])
    assert world.memory.requests.used <= 1 << 16


def test_memory_for_what_does_not_come_goes_back_and_is_asked_for_again(world: World) -> None:
    whole = large_produce(1 << 20)
    requests = world.memory.requests
    world.send(whole[: 1 << 19])
    assert requests.used == len(whole)
    world.connection.give_back_unused()
    assert requests.used == 1 << 19
    world.send(whole[1 << 19 :])
    assert len(world.handler.frames) == 1
    assert requests.used == 0


def test_a_large_produce_may_begin_with_its_size_alone(world: World) -> None:
    world.memory.requests.limit = 4 << 20
    whole = large_produce(1 << 20)
    world.send(whole[:4])
    world.send(whole[4:])
    assert len(world.handler.frames) == 1


def test_what_a_request_is_decoded_to_waits_for_memory_too(world: World) -> None:
    requests = world.memory.requests
    requests.limit = 4 << 20
    requests.charge(3 << 20)
    world.send(frame(b"\x00\x03" + bytes(1 << 17)) + frame(b"after"))
    assert requests.waiting == 1
    assert world.handler.frames == []
    requests.charge(-(3 << 20))
    world.turn()
    assert [len(each) for each in world.handler.frames] == [(1 << 17) + 2, 5]
    assert requests.used == 0


def test_one_that_is_gone_does_not_stand_in_the_way(world: World) -> None:
    requests = world.memory.requests
    requests.charge(requests.limit - 1000)
    world.send(large_produce(1 << 20)[: 1 << 17])
    granted: list[bool] = []
    assert not requests.reserve(500, lambda: granted.append(True))
    world.connection.close("gone")
    assert granted == [True]
    assert requests.waiting == 0


def readers(world: World) -> list[int]:
    selector = world.loop._selector  # type: ignore[attr-defined]
    return [key.fd for key in selector.get_map().values() if key.data[0] is not None]


def test_a_request_that_never_fits_is_refused_with_the_reason(world: World) -> None:
    world.memory.requests.limit = 1 << 20
    world.send(large_produce(2 << 20)[: 1 << 17])
    assert "braidlog.memory.max" in world.reasons[0]
    assert world.memory.requests.used == 0


def test_requests_that_become_objects_take_more_memory_than_their_bytes(world: World) -> None:
    world.memory.requests.limit = 4 << 20
    world.send(frame(b"\x00\x03" + bytes(1 << 20))[: 1 << 17])
    assert "braidlog.memory.max" in world.reasons[0]


def test_a_peer_that_does_not_send_the_rest_gives_way_when_others_need_the_memory(world: World) -> None:
    requests = world.memory.requests
    world.send(large_produce(1 << 20)[: 1 << 19])
    now = world.connection.last_active
    requests.close_stalled(now + 1000)
    assert not world.connection.closed, "nobody needs the memory"
    granted: list[bool] = []
    assert not requests.reserve(requests.limit, lambda: granted.append(True))
    requests.close_stalled(now + 3)
    assert requests.used == 1 << 19, "what has arrived is kept for now"
    requests.close_stalled(now + 4)
    assert world.connection.closed
    assert granted == [True]


def test_when_answers_fill_the_memory_the_largest_unread_one_goes(world: World) -> None:
    world.memory.answers.limit = 4 << 20
    exchange = Exchange(world.connection, 0, 0, 1, None, 0.0)
    world.connection.begin(exchange)
    reply(exchange, [bytes(16 << 20)])
    world.turn()
    assert world.reasons == ["its answers are not read and memory is short"]
    assert world.memory.answers.used == 0


def test_a_failure_while_handling_requests_closes_the_connection(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(*_: object) -> None:
        raise MemoryError

    world.handler.handle_frame = fail  # type: ignore[method-assign]
    world.send(frame(b"x"))
    assert world.connection.closed
    assert world.reasons == ["receiving failed"]
    assert "please report" in caplog.text


def test_a_failing_callback_at_close_still_closes_the_socket(world: World) -> None:
    def fail(channel: Channel) -> None:
        raise RuntimeError("a bug")

    world.handler.channel_closed = fail  # type: ignore[method-assign]
    with pytest.raises(RuntimeError):
        world.connection.close("test")
    assert world.near.fileno() == -1
    assert world.reasons == ["test"]


def test_a_peer_that_reads_slowly_is_active(world: World) -> None:
    exchange = Exchange(world.connection, 0, 0, 1, None, 0.0)
    world.connection.begin(exchange)
    reply(exchange, [bytes(16 << 20)])
    world.turn()
    world.connection.last_active = 0.0
    world.far.recv(1 << 20)
    world.turn()
    assert world.connection.last_active > 0.0


def test_a_reset_in_the_middle_of_a_large_request_is_noticed() -> None:
    """libuv tells of an error once; what had arrived before it takes several calls to read."""
    uvloop = pytest.importorskip("uvloop")
    loop = uvloop.new_event_loop()
    listening = socket.create_server(("127.0.0.1", 0))
    far = socket.create_connection(listening.getsockname())
    near, _ = listening.accept()
    near.setblocking(False)
    reasons: list[str] = []
    memory = MemoryBudget(256 << 20)
    connection = Connection(
        near,
        Recorder(),
        Round(loop),
        loop,
        ConnectionLimits(64 << 20, memory, FairQueue(loop)),
        lambda part, done: None,
        "PLAINTEXT",
        "127.0.0.1",
        lambda connection, reason: (reasons.append(reason), loop.stop()),  # type: ignore[func-returns-value]
    )
    far.setblocking(False)
    rest = memoryview(large_produce(32 << 20))
    with contextlib.suppress(BlockingIOError):
        while True:
            rest = rest[far.send(rest) :]
    # An unread answer makes the peer's close a reset.
    near.send(b"unread")
    far.close()
    connection.start()
    loop.call_later(20.0, loop.stop)
    loop.run_forever()
    assert connection.closed
    assert len(reasons) == 1
    assert memory.requests.used == 0
    loop.close()
    listening.close()
