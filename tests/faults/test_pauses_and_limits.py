"""A broker that is stopped for a while, ended under load, or asked for more than it gives."""

from __future__ import annotations

import signal
import socket
import struct
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from braidlog.storage.files import OsFiles
from braidlog.storage.inspection.verify import partition_directories, verify
from braidlog.wire.apis import encode_request
from braidlog.wire.generated.api_versions import ApiVersionsRequest
from braidlog.wire.generated.fetch import FetchPartition, FetchRequest, FetchTopic
from braidlog.wire.records.batch import CODEC_GZIP
from support.attacks.target import batch_of, frame, produce_request, tiny_records
from support.broker import Broker, start_braidlog
from support.confluent import create_topic
from support.eventually import eventually
from support.hostile import framed, header
from support.metrics import total
from support.numbered import NumberedWriter
from support.ports import lasting_port
from support.raw import RawConnection

PARTITIONS = {"records": 4}
QUESTION = framed(header(18, 0, 1))


def _await_more(writer: NumberedWriter, count: int = 1) -> None:
    before = writer.acknowledged
    eventually(lambda: writer.acknowledged >= before + count)


def _is_answered(line: socket.socket) -> bool:
    """Whether the broker answers on this connection; false where it has closed it."""
    try:
        line.sendall(QUESTION)
        size = line.recv(4, socket.MSG_WAITALL)
        answer = line.recv(struct.unpack(">i", size)[0], socket.MSG_WAITALL) if len(size) == 4 else b""
    except (ConnectionResetError, BrokenPipeError):
        return False
    return answer.startswith(struct.pack(">i", 1))


Connect = Callable[..., socket.socket]


@pytest.fixture
def connect() -> Iterator[Connect]:
    """Connections of a test, closed with it however it ends."""
    with ExitStack() as opened:

        def to(broker: Broker, host: str = "127.0.0.1") -> socket.socket:
            address = ("127.0.0.1", broker.port)
            return opened.enter_context(socket.create_connection(address, timeout=30, source_address=(host, 0)))

        yield to


def test_a_broker_that_was_paused_goes_on(tmp_path: Path, connect: Connect) -> None:
    with start_braidlog(tmp_path / "data") as broker:
        create_topic(broker.bootstrap, "records", 4)
        # Requests time out during the pause and are repeated: what arrived anyway must not be there twice.
        writer = NumberedWriter(broker.bootstrap, PARTITIONS, request_timeout_ms=1000, socket_timeout_ms=1000)
        with writer.running():
            for _ in range(2):
                _await_more(writer, 50)
                broker.process.signal(signal.SIGSTOP)
                # Longer than the clients' patience; nothing announces that.
                line = connect(broker)
                line.settimeout(2.5)
                line.sendall(QUESTION)
                with pytest.raises(TimeoutError):
                    line.recv(1)
                broker.process.signal(signal.SIGCONT)
                line.settimeout(30)
                assert line.recv(1), "what was asked during the pause is answered after it"
            _await_more(writer, 50)
        writer.flush()
        writer.check(broker.bootstrap)
        sent = sum(books.sent for books in writer.books)
        assert writer.acknowledged == sent
        assert broker.stop() == 0, broker.log()


def test_ending_under_load_drains_and_the_next_start_finds_it_clean(tmp_path: Path) -> None:
    port = lasting_port()
    bootstrap = f"127.0.0.1:{port}"
    writer: NumberedWriter | None = None
    for life in range(3):
        with start_braidlog(tmp_path / "data", {"braidlog.http.listen": ""}, port=port) as broker:
            if writer is None:
                create_topic(bootstrap, "records", 4)
                create_topic(bootstrap, "synced", 1, flush_messages="1")
                writer = NumberedWriter(bootstrap, {**PARTITIONS, "synced": 1})
            else:
                assert "after a clean stop" in broker.log(), broker.log()
                writer.check(bootstrap)
            with writer.running(), RawConnection(port) as waiting:
                waiting.send_frame(_long_fetch())
                _await_more(writer, 200)
                assert broker.stop() == 0, broker.log()
                # A fetch that would have waited a minute is answered before the connection closes.
                assert waiting.receive_frame() is not None
            print(broker.process.wait_for_line("stopped cleanly in .*")[0])
            assert (tmp_path / "data" / ".kafka_cleanshutdown").exists(), f"life {life}"
    with start_braidlog(tmp_path / "data", {"braidlog.http.listen": ""}, port=port) as broker:
        assert writer is not None
        writer.flush()
        writer.check(bootstrap)


def test_ending_while_records_are_unpacked_leaves_sound_logs(tmp_path: Path) -> None:
    """More than the drain waits for: what is not unpacked by then is refused, not written behind a closed log."""
    settings = {"braidlog.http.listen": ""}
    with start_braidlog(tmp_path / "data", settings) as broker, ExitStack() as opened:
        create_topic(broker.bootstrap, "packed", 4, max_message_bytes=str(8 << 20))
        count = 200_000
        records = batch_of(tiny_records(count), count, CODEC_GZIP)
        request = frame("Produce", 9, produce_request("packed", [(index % 4, records) for index in range(60)]))
        for _ in range(8):
            opened.enter_context(RawConnection(broker.port)).send_bytes(request)
        with RawConnection(broker.port) as line:
            line.ask("ApiVersions", 0, ApiVersionsRequest())
        assert broker.stop() == 0, broker.log()
        assert "bug" not in broker.log(), broker.log()
    files = OsFiles()
    for directory in partition_directories(files, str(tmp_path / "data")):
        report = verify(files, directory)
        assert report.is_sound, report.findings
    with start_braidlog(tmp_path / "data", settings) as broker:
        assert "after a clean stop" in broker.log(), broker.log()


def _long_fetch() -> bytes:
    """A fetch from the end of a partition that is ready to wait a minute for a gigabyte."""
    request = FetchRequest(
        max_wait_ms=60_000,
        min_bytes=1 << 30,
        session_epoch=-1,
        topics=[FetchTopic(topic="records", partitions=[FetchPartition(partition=0, partition_max_bytes=1000)])],
    )
    frame = encode_request(1, 11, 7, "waiting", request)
    return b"".join(bytes(part) for part in frame.parts())[4:]


def _await_own_visit(broker: Broker) -> None:
    """A broker first connects to itself, to see whether it can be reached: that one counts, too, until it is gone."""
    eventually(lambda: total(broker, "kafka_server_socket_server_metrics_connection_close_total") >= 1)


def test_idle_connections_are_closed_and_busy_ones_are_not(tmp_path: Path, connect: Connect) -> None:
    with start_braidlog(tmp_path / "data", {"connections.max.idle.ms": "5000"}) as broker:
        create_topic(broker.bootstrap, "records")
        idle, busy = connect(broker), connect(broker)
        waiting = connect(broker)
        waiting.sendall(framed(_long_fetch()))
        closed = "kafka_network_socketserver_expiredconnectionskilledcount"

        def swept() -> bool:
            assert _is_answered(busy)
            return total(broker, closed) >= 1

        eventually(swept)
        assert idle.recv(1) == b"", "the idle one was closed by the broker"
        # A waiting fetch is no idle connection, however long nothing moves on it.
        assert _is_answered(busy)
        assert total(broker, "kafka_server_delayedoperationpurgatory_purgatorysize") == 1


def test_connections_over_the_limit_wait_until_others_leave(tmp_path: Path, connect: Connect) -> None:
    limit = 5
    with start_braidlog(tmp_path / "data", {"max.connections": str(limit)}) as broker:
        _await_own_visit(broker)
        lines = [connect(broker) for _ in range(limit)]
        assert all(_is_answered(line) for line in lines)
        waiting = connect(broker)
        # Those that are in are served as before, and one after the other: the one that waits had its chance.
        assert all(_is_answered(line) for line in lines)
        assert total(broker, "kafka_server_socket_server_metrics_connection_count") == limit
        lines.pop().close()
        assert _is_answered(waiting)
        assert all(_is_answered(line) for line in lines)
        assert total(broker, "braidlog_connections_refused_total") == 0, broker.log()


def test_connections_of_one_address_are_limited(tmp_path: Path, connect: Connect) -> None:
    settings = {"max.connections.per.ip": "2", "max.connections.per.ip.overrides": "127.0.0.3:1"}
    with start_braidlog(tmp_path / "data", settings) as broker:
        _await_own_visit(broker)
        expected = {"127.0.0.2": [True, True, False], "127.0.0.3": [True, False], "127.0.0.1": [True, True]}
        for host, answers in expected.items():
            lines = [connect(broker, host) for _ in answers]
            assert [_is_answered(line) for line in lines] == answers, host


def test_a_request_over_the_limit_closes_only_its_connection(tmp_path: Path, connect: Connect) -> None:
    with start_braidlog(tmp_path / "data", {"socket.request.max.bytes": "10000"}) as broker:
        other, large, at_limit = (connect(broker) for _ in range(3))
        large.sendall(struct.pack(">i", 10_001) + bytes(100))
        assert _closed(large)
        assert _is_answered(other)
        padded = header(18, 0, 1) + bytes(10_000 - len(header(18, 0, 1)))
        at_limit.sendall(framed(padded))
        assert at_limit.recv(8, socket.MSG_WAITALL), "a request as large as allowed is answered"
        assert total(broker, "braidlog_malformed_requests_total") == 1


def _closed(line: socket.socket) -> bool:
    try:
        return line.recv(1) == b""
    except ConnectionResetError:
        return True
