"""`python -m tools.golden.capture` records what real clients send, as test data of the codec.

A stub that knows one topic and keeps nothing answers confluent-kafka, kafka-python and aiokafka while each of them
produces to and reads from it. Of each client the first request per API and version is kept: a line is the client's
name and the frame without its size in hex.
"""

from __future__ import annotations

import asyncio
import socket
import threading
from pathlib import Path

from braidlog.wire.apis import APIS, decode_request, encode_response
from braidlog.wire.generated.api_versions import ApiVersion, ApiVersionsResponse
from braidlog.wire.generated.fetch import FetchableTopicResponse, FetchRequest, FetchResponse, PartitionData
from braidlog.wire.generated.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from braidlog.wire.generated.metadata import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from braidlog.wire.generated.produce import (
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)
from braidlog.wire.headers import read_request_header
from braidlog.wire.message import Message
from braidlog.wire.reader import Reader

CAPTURES = Path(__file__).parent.parent.parent / "tests" / "unit" / "wire" / "golden" / "captures.txt"
TOPIC = "captured"
TOPIC_ID = bytes(range(16))


class Stub:
    """Answers what producing and reading needs, on one thread per connection."""

    def __init__(self) -> None:
        self.client = ""
        self.seen: dict[tuple[str, int, int], bytes] = {}
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self.listener.getsockname()[1]
        threading.Thread(target=self.accept, name="capture-accept", daemon=True).start()

    def accept(self) -> None:
        while True:
            connection, _ = self.listener.accept()
            threading.Thread(target=self.serve, args=(connection,), name="capture-serve", daemon=True).start()

    def serve(self, connection: socket.socket) -> None:
        stream = connection.makefile("rb")
        with connection:
            while len(size := stream.read(4)) == 4:
                frame = stream.read(int.from_bytes(size, "big"))
                reader = Reader(frame)
                header = read_request_header(reader)
                key, version = header.request_api_key, header.request_api_version
                if not APIS[key].speaks(version):
                    error = ApiVersionsResponse(error_code=35, api_keys=self.versions())
                    connection.sendall(encode_response(18, 0, header.correlation_id, error).getvalue())
                    continue
                self.seen.setdefault((self.client, key, version), frame)
                answer = self.answer(key, version, decode_request(key, version, reader))
                connection.sendall(encode_response(key, version, header.correlation_id, answer).getvalue())

    def versions(self) -> list[ApiVersion]:
        keys = (0, 1, 2, 3, 18, 22)
        return [ApiVersion(api_key=key, max_version=APIS[key].stable_max) for key in keys]

    def answer(self, key: int, version: int, request: Message) -> Message:
        if key == 18:
            return ApiVersionsResponse(api_keys=self.versions())
        if key == 3:
            partition = MetadataResponsePartition(leader_id=1, leader_epoch=0, replica_nodes=[1], isr_nodes=[1])
            topic = MetadataResponseTopic(name=TOPIC, topic_id=TOPIC_ID, partitions=[partition])
            broker = MetadataResponseBroker(node_id=1, host="127.0.0.1", port=self.port)
            return MetadataResponse(brokers=[broker], controller_id=1, cluster_id="stub", topics=[topic])
        if isinstance(request, ProduceRequest):
            done = TopicProduceResponse(name=TOPIC, partition_responses=[PartitionProduceResponse()])
            return ProduceResponse(responses=[done])
        if isinstance(request, ListOffsetsRequest):
            if version == 0:
                place = ListOffsetsPartitionResponse(old_style_offsets=[0])
            else:
                place = ListOffsetsPartitionResponse(timestamp=-1, offset=0, leader_epoch=0 if version >= 4 else -1)
            return ListOffsetsResponse(topics=[ListOffsetsTopicResponse(name=TOPIC, partitions=[place])])
        if isinstance(request, FetchRequest):
            threading.Event().wait(0.05)
            empty = PartitionData(last_stable_offset=0, log_start_offset=0, records=b"")
            topic_answer = FetchableTopicResponse(topic=TOPIC, topic_id=TOPIC_ID, partitions=[empty])
            return FetchResponse(responses=[topic_answer] if request.session_epoch <= 0 else [])
        return APIS[key].response()


def run_confluent(address: str) -> None:
    from confluent_kafka import Consumer, Producer, TopicPartition

    producer = Producer({"bootstrap.servers": address, "enable.idempotence": False})
    producer.produce(TOPIC, b"value", b"key", headers={"h": b"1"})
    producer.flush(10)
    consumer = Consumer({"bootstrap.servers": address, "group.id": "g", "enable.auto.commit": False})
    consumer.assign([TopicPartition(TOPIC, 0, 0)])
    for _ in range(4):
        consumer.poll(0.5)
    consumer.get_watermark_offsets(TopicPartition(TOPIC, 0), timeout=5)
    consumer.close()


def run_kafka_python(address: str) -> None:
    from kafka import (  # type: ignore[import-untyped,import-not-found,unused-ignore]
        KafkaConsumer,
        KafkaProducer,
        TopicPartition,
    )

    producer = KafkaProducer(bootstrap_servers=address, enable_idempotence=False)
    producer.send(TOPIC, b"value", b"key").get(10)
    producer.close(timeout=5)
    consumer = KafkaConsumer(bootstrap_servers=address, enable_auto_commit=False, group_id=None)
    consumer.assign([TopicPartition(TOPIC, 0)])
    consumer.seek(TopicPartition(TOPIC, 0), 0)
    consumer.poll(500)
    consumer.end_offsets([TopicPartition(TOPIC, 0)])
    consumer.close()


async def run_aiokafka(address: str) -> None:
    from aiokafka import (  # type: ignore[import-untyped,import-not-found,unused-ignore]
        AIOKafkaConsumer,
        AIOKafkaProducer,
        TopicPartition,
    )

    producer = AIOKafkaProducer(bootstrap_servers=address)
    await producer.start()
    await producer.send_and_wait(TOPIC, b"value", b"key")
    await producer.stop()
    consumer = AIOKafkaConsumer(bootstrap_servers=address, enable_auto_commit=False)
    await consumer.start()
    consumer.assign([TopicPartition(TOPIC, 0)])
    consumer.seek(TopicPartition(TOPIC, 0), 0)
    await consumer.getmany(timeout_ms=500)
    await consumer.end_offsets([TopicPartition(TOPIC, 0)])
    await consumer.stop()


def main() -> None:
    stub = Stub()
    address = f"127.0.0.1:{stub.port}"
    stub.client = "confluent-kafka"
    run_confluent(address)
    stub.client = "kafka-python"
    run_kafka_python(address)
    stub.client = "aiokafka"
    asyncio.run(run_aiokafka(address))
    lines = [f"{client}\t{frame.hex()}" for (client, _, _), frame in sorted(stub.seen.items())]
    CAPTURES.write_text("\n".join(lines) + "\n", encoding="utf-8")
    for client, key, version in sorted(stub.seen):
        print(f"{client}: {APIS[key].name} v{version}")


if __name__ == "__main__":
    main()
