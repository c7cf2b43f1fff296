"""A program's thread that reads and writes in the engine's place, with several brokers about it."""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Iterator
from contextlib import suppress
from queue import SimpleQueue
from typing import Any

import pytest

from braidlog.client.errors import ClientError
from braidlog.client.network.engine import Engine
from braidlog.client.producer.accumulator.batch_encoder import BatchEncoder
from braidlog.client.producer.accumulator.producer_batch import ProducerBatch, notify_waiters
from braidlog.client.producer.accumulator.producer_id_state import ProducerIdState
from braidlog.client.producer.accumulator.record_accumulator import AccumulatorLimits, RecordAccumulator
from braidlog.client.producer.delivery import Delivery
from braidlog.client.producer.direct_path import DirectPath
from braidlog.client.producer.produce_requests import InFlightRequest, ProduceRequests, responses_by_batch
from braidlog.client.producer.send_path import SendPath
from braidlog.core.clock import SystemClock
from braidlog.net.outbound.pipelined_connection import PipelinedConnection
from braidlog.net.outbound.transport import PlainTransport
from braidlog.wire.apis import PRODUCE, encode_response
from braidlog.wire.generated.produce import PartitionProduceResponse, ProduceResponse, TopicProduceResponse
from support.eventually import eventually

TOPIC = "orders"
VERSION = 9
TIMEOUT_S = 30.0
PATIENCE_S = 60.0


class OneBroker:
    """Leads one partition, and takes every record."""

    def __init__(self, engine: Engine, partition: int) -> None:
        ours, self.peer = socket.socketpair()
        ours.setblocking(False)
        answer = PartitionProduceResponse(index=partition, base_offset=0)
        self._response = ProduceResponse(responses=[TopicProduceResponse(name=TOPIC, partition_responses=[answer])])
        self.connection = engine.run(self._connect(engine, ours))
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    async def _connect(self, engine: Engine, ours: socket.socket) -> PipelinedConnection:
        connection = PipelinedConnection(engine.loop, PlainTransport(engine.loop, ours), "broker:9092", "tester")
        connection._offered = {PRODUCE: (VERSION, VERSION)}
        # As after the first request of any connection: the timer that looks for late answers is set.
        connection._set_timer(engine.loop.time() + TIMEOUT_S)
        return connection

    def close(self) -> None:
        with suppress(OSError):
            self.peer.shutdown(socket.SHUT_RDWR)
        self._thread.join(PATIENCE_S)
        self.peer.close()

    def _serve(self) -> None:
        with self.peer.makefile("rb") as requests:
            while size := requests.read(4):
                frame = requests.read(struct.unpack(">i", size)[0])
                (correlation,) = struct.unpack_from(">i", frame, 4)
                parts = encode_response(PRODUCE, VERSION, correlation, self._response).parts()
                self.peer.sendall(b"".join(bytes(piece) for piece in parts))  # type: ignore[arg-type]


class Scene:
    """A direct path with two brokers, and nothing else of a producer."""

    def __init__(self) -> None:
        self.engine = Engine("tester")
        self.brokers = [OneBroker(self.engine, partition) for partition in (0, 1)]
        clock = SystemClock()
        self.accumulator = RecordAccumulator(
            AccumulatorLimits(), ProducerIdState(False, False), clock, _any(None), self._wake
        )
        self.accumulator.update_topic(TOPIC, None, bytes(16), [0, 1])
        requests = ProduceRequests(BatchEncoder(0, None), None, -1, TIMEOUT_S)
        self.direct = DirectPath(self.engine.busy, self.engine.loop, self.accumulator, requests, self, self)
        self.direct.has_timer = True
        self.direct.wanted[TOPIC] = clock.monotonic() + 1_000.0
        self.accumulator.guard.direct = self.direct
        self.problems = False
        self.recoveries: SimpleQueue[tuple[threading.Thread, int]] = SimpleQueue()
        self._send_path = SendPath(self.accumulator, _any(None), None)

    def close(self) -> None:
        for broker in self.brokers:
            self.engine.soon(broker.connection.close)
            broker.close()
        self.engine.close()

    def send(self, partition: int) -> Delivery:
        return self._send_path.send(TOPIC, b"value", partition=partition)

    def _wake(self) -> None:
        # There is no sender that would do it otherwise.
        while not self.direct.send():
            pass

    # The sender and the connections, as the path knows them

    def ready(self, node: int) -> PipelinedConnection:
        return self.brokers[node].connection

    def answered(self, sent: InFlightRequest, response: Any, problem: ClientError | None) -> None:
        assert problem is None
        self.direct.over(sent)
        for batch, each in responses_by_batch(response, sent):
            assert each is not None
            notify_waiters(self.accumulator.acknowledge(batch, each.base_offset, -1))

    def not_sent(self, batches: list[ProducerBatch], problem: Exception) -> None:
        raise AssertionError(problem)

    def wake_engine(self) -> None: ...

    def has_problems(self) -> bool:
        return self.problems

    def recovered(self, batches: list[ProducerBatch]) -> None:
        self.recoveries.put((threading.current_thread(), len(batches)))


def _any(value: object) -> Any:
    return value


@pytest.fixture
def scene() -> Iterator[Scene]:
    made = Scene()
    yield made
    made.close()


def test_no_broker_is_left_unread_for_the_sake_of_another(scene: Scene) -> None:
    """The engine takes back the reading of both, also of the one that the program turned away from."""
    for _ in range(10):
        for partition in (0, 0, 0, 0, 1, 1, 1, 1):
            scene.send(partition).result(PATIENCE_S)
        eventually(lambda: not scene.direct._is_watched)
        for partition in (0, 1):
            reported = threading.Event()
            scene.send(partition).add_done_callback(lambda _, reported=reported: reported.set())  # type: ignore[misc]
            assert reported.wait(PATIENCE_S), f"no thread reads what broker {partition} answers"


def test_a_written_record_ends_a_problem_in_whichever_thread_reads_the_response(scene: Scene) -> None:
    """Else the next failure would be logged as the old one going on."""
    scene.problems = True
    for _ in range(100):
        scene.send(0).result(PATIENCE_S)
        if scene.direct.answers_taken:
            break
    assert scene.direct.answers_taken, "the engine was always faster"
    thread, count = scene.recoveries.get(timeout=PATIENCE_S)
    assert thread.name == "braidlog tester"
    assert count == 1
