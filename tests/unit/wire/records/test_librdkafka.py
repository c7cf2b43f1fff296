"""What we write, read by librdkafka: a consumer fetches it from a socket that answers just enough."""

from __future__ import annotations

import random
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import confluent_kafka
import pytest

from braidlog.wire.apis import APIS, decode_request, encode_response
from braidlog.wire.generated.api_versions import ApiVersion, ApiVersionsResponse
from braidlog.wire.generated.fetch import FetchableTopicResponse, FetchRequest, FetchResponse, PartitionData
from braidlog.wire.generated.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from braidlog.wire.generated.metadata import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from braidlog.wire.headers import read_request_header
from braidlog.wire.message import Message
from braidlog.wire.reader import Reader
from braidlog.wire.records.builder import build_batch, build_message_set
from braidlog.wire.records.reading import Record, read_records
from support.record_cases import NOW

# Produce and FindCoordinator are never sent, but librdkafka derives what the broker can do from them.
SPOKEN = {0: (0, 8), 1: (4, 11), 2: (1, 4), 3: (0, 8), 10: (0, 2), 18: (0, 3)}
TOPIC = "records"


class Shelf:
    """Serves one partition that holds the given bytes."""

    def __init__(self, log: bytes) -> None:
        self.log = log
        self.end = read_records(log)[-1].offset + 1
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.serving: list[threading.Thread] = []
        self.port: int = self.listener.getsockname()[1]

    def accept(self) -> None:
        while True:
            try:
                connection, _ = self.listener.accept()
            except OSError:
                return
            serving = threading.Thread(target=self.serve, args=(connection,))
            serving.start()
            self.serving.append(serving)

    def serve(self, connection: socket.socket) -> None:
        # The consumer hangs up with fetches under way.
        with suppress(OSError), connection, connection.makefile("rb") as incoming:
            while len(size := incoming.read(4)) == 4:
                frame = incoming.read(int.from_bytes(size, "big"))
                reader = Reader(frame, 0, len(frame))
                header = read_request_header(reader)
                key, version = header.request_api_key, header.request_api_version
                answer = self.answer(key, decode_request(key, version, reader))
                connection.sendall(encode_response(key, version, header.correlation_id, answer).getvalue())

    def answer(self, key: int, request: Message) -> Message:
        if key == 18:
            keys = [ApiVersion(api_key=k, min_version=low, max_version=high) for k, (low, high) in SPOKEN.items()]
            return ApiVersionsResponse(api_keys=keys)
        if key == 3:
            partition = MetadataResponsePartition(leader_id=1, replica_nodes=[1], isr_nodes=[1])
            return MetadataResponse(
                brokers=[MetadataResponseBroker(node_id=1, host="127.0.0.1", port=self.port)],
                controller_id=1,
                topics=[MetadataResponseTopic(name=TOPIC, partitions=[partition])],
            )
        if key == 2:
            found = ListOffsetsPartitionResponse(offset=self.end)
            return ListOffsetsResponse(topics=[ListOffsetsTopicResponse(name=TOPIC, partitions=[found])])
        if key == 10:
            return APIS[10].response()
        assert isinstance(request, FetchRequest)
        data = PartitionData(high_watermark=self.end, last_stable_offset=self.end, log_start_offset=0, records=b"")
        if request.topics and request.topics[0].partitions[0].fetch_offset < self.end:
            data.records = self.log
        return FetchResponse(responses=[FetchableTopicResponse(topic=TOPIC, partitions=[data])])


@contextmanager
def served(log: bytes) -> Iterator[int]:
    shelf = Shelf(log)
    accepting = threading.Thread(target=shelf.accept)
    accepting.start()
    try:
        yield shelf.port
    finally:
        shelf.listener.shutdown(socket.SHUT_RDWR)
        shelf.listener.close()
        accepting.join()
        for serving in shelf.serving:
            serving.join()


def consumed(log: bytes, count: int) -> list[tuple[object, ...]]:
    with served(log) as port:
        consumer = confluent_kafka.Consumer(
            {
                "bootstrap.servers": f"127.0.0.1:{port}",
                "group.id": "unused",
                "enable.auto.commit": False,
                "check.crcs": True,
                "fetch.wait.max.ms": 10,
            }
        )
        consumer.assign([confluent_kafka.TopicPartition(TOPIC, 0, 0)])
        try:
            messages = consumer.consume(count, timeout=20)
        finally:
            consumer.close()
    assert not [message.error() for message in messages if message.error()]
    return [(m.offset(), m.timestamp()[1], m.key(), m.value(), tuple(m.headers() or ())) for m in messages]


def samples(with_headers: bool) -> list[Record]:
    values = [None, b"", b"x" * 50, b"%d, " * 40_000, random.Random(7).randbytes(70_000)]
    headers = (("name", b"1"), ("null", None)) if with_headers else ()
    return [
        Record(timestamp=NOW + 977 * index, key=b"key" if index % 2 else None, value=value, headers=headers)
        for index, value in enumerate(values)
    ]


@pytest.mark.parametrize("magic", [1, 2])
def test_librdkafka_reads_what_we_write(magic: int) -> None:
    log = b""
    for codec, level in ((0, None), (1, None), (2, None), (3, None), (3, 12), (4, None)):
        offset = len(read_records(log))
        if magic == 2:
            log += build_batch(samples(True), codec=codec, level=level, base_offset=offset)
        elif codec != 4:
            log += build_message_set(samples(False), magic=magic, codec=codec, level=level, base_offset=offset)
    written = read_records(log)
    assert consumed(log, len(written)) == [(r.offset, r.timestamp, r.key, r.value, r.headers) for r in written]
