"""Another thread writes and reads a connection in the loop's place, and hands it back whatever happens."""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Iterator
from queue import SimpleQueue
from typing import Any

import pytest

from braidlog.client.errors import ClientError, NoConnection
from braidlog.client.network.engine import Engine
from braidlog.net.outbound.pipelined_connection import PipelinedConnection
from braidlog.net.outbound.transport import PlainTransport
from braidlog.wire.apis import encode_response
from braidlog.wire.generated.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse

METADATA = 3
VERSION = 9
TIMEOUT_S = 30.0


class Scene:
    """A connection on an engine of its own; the test is the broker."""

    def __init__(self) -> None:
        self.engine = Engine("tester")
        ours, self.peer = socket.socketpair()
        ours.setblocking(False)
        ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
        self.peer.settimeout(TIMEOUT_S)
        self.connection = self.engine.run(self._make(ours))
        # Told on the loop's thread, and on this one.
        self.reported: SimpleQueue[tuple[threading.Thread, Any, ClientError | None]] = SimpleQueue()
        self.taken: list[Any] = []
        self.takes = True

    async def _make(self, ours: socket.socket) -> PipelinedConnection:
        return PipelinedConnection(self.engine.loop, PlainTransport(self.engine.loop, ours), "broker:9092", "tester")

    def close(self) -> None:
        self.engine.soon(self.connection.close)
        self.engine.close()
        self.peer.close()

    def post_by_loop(self) -> None:
        self.engine.run(self._post_by_loop())

    async def _post_by_loop(self) -> None:
        self._post(MetadataRequest(topics=[]), directly=False)

    def post(self, topics: int = 0) -> None:
        with self.engine.busy:
            assert self.connection.may_post_directly(TIMEOUT_S)
            names = [MetadataRequestTopic(name=f"{number:08d}" + "x" * 200) for number in range(topics)]
            self._post(MetadataRequest(topics=names), directly=True)

    def _post(self, request: MetadataRequest, *, directly: bool) -> None:
        self.connection.post_with(METADATA, VERSION, request, TIMEOUT_S, self._on_answer, self._take, directly=directly)

    def _on_answer(self, response: Any, problem: ClientError | None) -> None:
        self.reported.put((threading.current_thread(), response, problem))

    def _take(self, response: Any) -> bool:
        if self.takes:
            self.taken.append((threading.current_thread(), response))
        return self.takes

    def take_reading(self) -> bool:
        with self.engine.busy:
            return self.connection.take_reading()

    def read(self) -> bool:
        self.connection.wait_readable(TIMEOUT_S)
        with self.engine.busy:
            return self.connection.read_directly()

    def leave(self, *, keep: bool) -> None:
        with self.engine.busy:
            self.connection.leave_reading(keep)

    # The broker's side

    def receive(self) -> bytes:
        (size,) = struct.unpack(">i", self._exactly(4))
        return self._exactly(size)

    def _exactly(self, size: int) -> bytes:
        parts = bytearray()
        while len(parts) < size:
            piece = self.peer.recv(min(size - len(parts), 3000))
            assert piece, "the client hung up"
            parts += piece
        return bytes(parts)

    def answer(self, request: bytes) -> None:
        (correlation,) = struct.unpack_from(">i", request, 4)
        parts = encode_response(METADATA, VERSION, correlation, MetadataResponse(cluster_id="c")).parts()
        self.peer.sendall(b"".join(bytes(piece) for piece in parts))  # type: ignore[arg-type]

    def exchange_by_loop(self) -> None:
        """As every connection begins: the timer that looks for late answers is set."""
        self.post_by_loop()
        self.answer(self.receive())
        thread, response, _ = self.reported.get(timeout=TIMEOUT_S)
        assert thread.name == "braidlog tester"
        assert response.cluster_id == "c"


@pytest.fixture
def scene() -> Iterator[Scene]:
    made = Scene()
    made.exchange_by_loop()
    yield made
    made.close()


def test_a_request_and_its_answer_need_no_other_thread(scene: Scene) -> None:
    scene.post()
    assert scene.take_reading()
    scene.answer(scene.receive())
    assert scene.read()
    scene.leave(keep=False)
    ((thread, response),) = scene.taken
    assert thread is threading.current_thread()
    assert response.cluster_id == "c"
    scene.exchange_by_loop()


def test_the_loop_reads_what_nobody_else_does(scene: Scene) -> None:
    scene.post()
    scene.answer(scene.receive())
    assert scene.reported.get(timeout=TIMEOUT_S)[0].name == "braidlog tester"
    assert scene.taken == []
    assert not scene.take_reading()


def test_one_thread_reads_at_a_time_and_only_what_is_under_way(scene: Scene) -> None:
    assert not scene.take_reading()
    scene.post()
    assert scene.take_reading()
    assert not scene.take_reading()


def test_who_has_no_time_left_does_not_wait(scene: Scene) -> None:
    """`result(deadline - now)` may come to less than nothing."""
    scene.post()
    assert scene.take_reading()
    waits = threading.Thread(target=scene.connection.wait_readable, args=(-0.5,), daemon=True)
    waits.start()
    waits.join(TIMEOUT_S / 3)
    assert not waits.is_alive()
    scene.leave(keep=False)


def test_what_the_socket_does_not_take_is_written_by_the_loop(scene: Scene) -> None:
    """A full socket in the middle of a request: not a byte is lost, and nothing is written behind its back."""
    scene.post(topics=2_000)
    with scene.engine.busy:
        assert scene.connection.unsent > 0
        assert not scene.connection.may_post_directly(TIMEOUT_S)
    assert scene.take_reading()
    request = scene.receive()
    assert len(request) > 400_000
    assert request.count(b"x" * 200) == 2_000
    scene.answer(request)
    assert scene.read()
    scene.leave(keep=False)
    assert len(scene.taken) == 1


def test_an_answer_with_consequences_is_left_to_the_loop(scene: Scene) -> None:
    scene.takes = False
    scene.post()
    assert scene.take_reading()
    scene.answer(scene.receive())
    assert not scene.read()
    scene.leave(keep=False)
    thread, response, _ = scene.reported.get(timeout=TIMEOUT_S)
    assert thread.name == "braidlog tester"
    assert response.cluster_id == "c"
    scene.exchange_by_loop()


def test_a_broker_that_hangs_up_is_told_of_by_the_loop(scene: Scene) -> None:
    scene.post()
    assert scene.take_reading()
    scene.peer.close()
    assert not scene.read()
    scene.leave(keep=False)
    thread, _, problem = scene.reported.get(timeout=TIMEOUT_S)
    assert thread.name == "braidlog tester"
    assert isinstance(problem, NoConnection)


def test_garbage_is_told_of_by_the_loop(scene: Scene) -> None:
    scene.post()
    assert scene.take_reading()
    scene.peer.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")
    assert not scene.read()
    scene.leave(keep=False)
    assert "does not speak the Kafka protocol" in str(scene.reported.get(timeout=TIMEOUT_S)[2])


def test_a_socket_that_breaks_while_it_is_written_is_told_of_by_the_loop(scene: Scene) -> None:
    with scene.engine.busy:
        # The loop must not see it first.
        scene.peer.close()
        scene.connection.post_with(
            METADATA, VERSION, MetadataRequest(topics=[]), TIMEOUT_S, scene._on_answer, scene._take, directly=True
        )
    thread, _, problem = scene.reported.get(timeout=TIMEOUT_S)
    assert thread.name == "braidlog tester"
    assert isinstance(problem, NoConnection)


def test_kept_reading_goes_back_to_the_loop_when_the_loop_needs_it(scene: Scene) -> None:
    scene.post()
    assert scene.take_reading()
    scene.answer(scene.receive())
    assert scene.read()
    scene.leave(keep=True)
    # Nobody looks at the socket now. A request of the loop's own has it look again.
    scene.exchange_by_loop()
    scene.post()
    scene.answer(scene.receive())
    assert scene.reported.get(timeout=TIMEOUT_S)[1].cluster_id == "c"


def test_a_thread_that_leaves_others_answers_behind_does_not_keep_the_reading(scene: Scene) -> None:
    scene.post()
    assert scene.take_reading()
    scene.post_by_loop()
    scene.answer(scene.receive())
    assert scene.read()
    scene.leave(keep=True)
    scene.answer(scene.receive())
    assert scene.reported.get(timeout=TIMEOUT_S)[1].cluster_id == "c"


def test_who_closes_does_not_ask_who_reads(scene: Scene) -> None:
    scene.post()
    assert scene.take_reading()
    scene.engine.soon(scene.connection.close)
    assert isinstance(scene.reported.get(timeout=TIMEOUT_S)[2], NoConnection)
    with scene.engine.busy:
        assert not scene.connection.read_directly()
    scene.leave(keep=True)
