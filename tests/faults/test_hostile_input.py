"""A hundred thousand frames that no honest client sends, while honest ones are served beside them."""

from __future__ import annotations

import socket
import struct
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from itertools import cycle
from pathlib import Path

import pytest
from confluent_kafka import KafkaException

from braidlog.wire.generated.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from braidlog.wire.generated.create_topics import CreatableTopic, CreateTopicsRequest
from braidlog.wire.records.batch import CODEC_GZIP, CODEC_LZ4, CODEC_SNAPPY, CODEC_ZSTD
from support.broker import Broker, start_braidlog
from support.confluent import create_topic, read_all
from support.hostile import TOPICS, HostileFrames, Sender, bomb, framed, header, seed_of_the_day, served
from support.metrics import total
from support.numbered import NumberedWriter
from support.raw import RawConnection, as_plain, ask
from support.soak import scaled

MB = 1 << 20
MOST_RSS = 300 * MB
MOST_GROWTH = 150 * MB
# The frames alone take about half a minute on two quiet cores.
DEADLINE_S = 200.0
BURSTS_AT_A_TIME = 1000
A_BUG = "a bug"
POLICY_VIOLATION = 44


class Loiterers:
    """Connections that cost a broker something just by being there: idle, half sent, or slow but honest."""

    def __init__(self, port: int, idle: int = 300, half_sent: int = 100, slow: int = 30) -> None:
        self._port = port
        self._question = framed(header(18, 0, 1))
        self._idle = [self._connected() for _ in range(idle)]
        self._half_sent = [self._connected() for _ in range(half_sent)]
        for number, line in enumerate(self._half_sent):
            # It claims as much as may be claimed, sends a little, and then nothing for ever.
            line.sendall(struct.pack(">i", 100 * MB) + bytes(number * 10))
        self._slow = [self._connected() for _ in range(slow)]
        self._position = 0

    def _connected(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self._port), timeout=30)

    def drip(self) -> None:
        """One more byte from each of the slow ones."""
        if self._position < len(self._question):
            for line in self._slow:
                line.sendall(self._question[self._position : self._position + 1])
            self._position += 1

    def finish(self) -> None:
        """The slow ones are answered like everyone else, and the idle ones were let alone."""
        while self._position < len(self._question):
            self.drip()
        for line in self._slow:
            size, correlation = struct.unpack(">ii", _exactly(line, 8))
            assert correlation == 1
            assert len(_exactly(line, size - 4)) == size - 4
        for line in self._idle:
            line.sendall(self._question)
        for line in self._idle:
            assert struct.unpack(">ii", _exactly(line, 8))[1] == 1

    def close(self) -> None:
        for line in [*self._idle, *self._half_sent, *self._slow]:
            line.close()


def _exactly(line: socket.socket, count: int) -> bytes:
    got = b""
    while len(got) < count:
        piece = line.recv(count - len(got))
        assert piece, "the broker closed an honest connection"
        got += piece
    return got


def seen(broker: Broker) -> float:
    """Frames that the broker has handled or refused to read."""
    requests = total(broker, "kafka_network_requestmetrics_requests_total")
    return requests + total(broker, "braidlog_malformed_requests_total")


def peak_rss(broker: Broker) -> int:
    for line in Path(f"/proc/{broker.process.pid}/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    return broker.rss_bytes()


@contextmanager
def besieged(place: Path) -> Iterator[tuple[Broker, NumberedWriter]]:
    """A broker, and a writer on it that nobody may disturb."""
    with ExitStack() as stack:
        broker = stack.enter_context(start_braidlog(place / "data"))
        for topic in TOPICS:
            create_topic(broker.bootstrap, topic)
        create_topic(broker.bootstrap, "honest", 2)
        writer = NumberedWriter(broker.bootstrap, {"honest": 2})
        stack.enter_context(writer.running())
        yield broker, writer


def besiege(place: Path, frames: int, seed: int) -> str:
    """The whole story; returns a line that sums it up."""
    with besieged(place) as (broker, writer):
        sender = Sender(broker.port, HostileFrames(seed, served(broker.port)))
        bombs = cycle([bomb(codec) for codec in (CODEC_GZIP, CODEC_SNAPPY, CODEC_LZ4, CODEC_ZSTD)])
        loiterers = Loiterers(broker.port)
        before = broker.rss_bytes()
        began, at_first, honest = time.monotonic(), seen(broker), writer.requests
        handled = 0.0
        while handled < frames:
            acknowledged = writer.acknowledged
            sender.run(BURSTS_AT_A_TIME)
            with RawConnection(broker.port) as connection:
                connection.send_bytes(next(bombs))
                assert connection.receive_frame() is not None
            loiterers.drip()
            # Whoever behaves is served all the while.
            writer.check(broker.bootstrap)
            assert writer.acknowledged > acknowledged
            handled = seen(broker) - at_first - sender.probed - (writer.requests - honest)
            took = time.monotonic() - began
            assert took < DEADLINE_S, f"only {handled:.0f} hostile frames were handled in {took:.0f} s"
        loiterers.finish()
        loiterers.close()
        writer.flush()
        writer.check(broker.bootstrap)
        peak = peak_rss(broker)
        assert peak < MOST_RSS, f"{peak // MB} MB resident"
        assert peak - before < MOST_GROWTH, f"grew from {before // MB} to {peak // MB} MB"
        bugs = [line for line in broker.process.lines if A_BUG in line or line.startswith("Traceback")]
        assert not bugs, broker.process.log(200)
        _readable(broker)
        assert broker.stop() == 0, broker.log()
        return (
            f"{handled:.0f} hostile frames over {sender.connections} connections in {took:.0f} s "
            f"({handled / took:.0f} a second), {sender.closed_by_broker} connections closed by the broker; "
            f"{writer.acknowledged} honest records meanwhile; memory {before // MB} MB before, {peak // MB} MB at most"
        )


def _readable(broker: Broker) -> None:
    """What got past validation must not choke a reader."""
    for topic in TOPICS:
        try:
            read_all(broker.bootstrap, topic, check_crcs=True)
        except KafkaException as problem:
            pytest.fail(f"what was appended to {topic} cannot be read: {problem}")


@pytest.mark.timeout(400)
@pytest.mark.parametrize("frames", [10_000, pytest.param(100_000, marks=pytest.mark.long)])
def test_hostile_frames_disturb_nobody(tmp_path: Path, frames: int) -> None:
    print(besiege(tmp_path, frames, seed=1))


@pytest.mark.soak
def test_many_more_hostile_frames_disturb_nobody(tmp_path: Path) -> None:
    for part in range(scaled(3)):
        seed = seed_of_the_day()
        print(f"seed {seed}:", besiege(tmp_path / str(part), 100_000, seed))


def test_two_billion_partitions_are_refused(tmp_path: Path) -> None:
    with start_braidlog(tmp_path / "data") as broker:
        create_topic(broker.bootstrap, "t")
        wanted = CreateTopicsRequest(
            topics=[CreatableTopic(name="u", num_partitions=2**31 - 1, replication_factor=1)], timeout_ms=1000
        )
        answer = as_plain(ask(broker.port, "CreateTopics", 5, wanted))
        assert answer["topics"][0]["error_code"] == POLICY_VIOLATION
        more = CreatePartitionsRequest(topics=[CreatePartitionsTopic(name="t", count=2**31 - 1)], timeout_ms=1000)
        answer = as_plain(ask(broker.port, "CreatePartitions", 2, more))
        assert answer["results"][0]["error_code"] == POLICY_VIOLATION
        assert broker.rss_bytes() < MOST_RSS
