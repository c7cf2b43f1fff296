"""A follower by hand: fetches as a broker does, in one session, and writes nothing.

It is registered in ZooKeeper under an address where nobody listens, so that a leader has it among its in-sync replicas;
what its fetches cost the leader is not mixed with what a real follower does of its own accord.
"""

from __future__ import annotations

import json
import socket
import struct
from collections.abc import Iterable
from typing import Final, Self

from kazoo.client import KazooClient

from bench.requests import TIMEOUT_S, RequestFailed, receive
from braidlog.core.slices import ByteSlice
from braidlog.wire.apis import decode_response, encode_request
from braidlog.wire.generated.api_keys import ApiKey
from braidlog.wire.generated.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic, ReplicaState
from braidlog.wire.generated.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from braidlog.wire.message import Message

FETCH_VERSION: Final = 17
METADATA_VERSION: Final = 12
# As `replica.fetch.max.bytes` and `replica.fetch.response.max.bytes` have it.
PARTITION_BYTES: Final = 1 << 20
RESPONSE_BYTES: Final = 10 << 20


def register(store: KazooClient, broker_id: int) -> int:
    """For as long as the store's client lives; gives the broker epoch."""
    content = {
        "features": {},
        "listener_security_protocol_map": {"PLAINTEXT": "PLAINTEXT"},
        "endpoints": ["PLAINTEXT://127.0.0.1:1"],
        "jmx_port": -1,
        "port": 1,
        "host": "127.0.0.1",
        "version": 5,
        "timestamp": "0",
    }
    _, stat = store.create(f"/brokers/ids/{broker_id}", json.dumps(content).encode(), ephemeral=True, include_data=True)
    return int(stat.czxid)


class HandFollower:
    """One topic, of which every partition is in the session; one request at a time."""

    def __init__(self, port: int, broker_id: int, broker_epoch: int, topic: str) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), timeout=TIMEOUT_S)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._state = ReplicaState(replica_id=broker_id, replica_epoch=broker_epoch)
        self._topic = topic
        self._session_id = 0
        self._epoch = 0
        self._topic_id, self._leader_epoch = self._describe()
        # Where the next fetch of each partition begins.
        self.ends: dict[int, int] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()

    def _describe(self) -> tuple[bytes, int]:
        asked = MetadataRequest(topics=[MetadataRequestTopic(name=self._topic)], allow_auto_topic_creation=False)
        answer = self._ask(ApiKey.METADATA, METADATA_VERSION, asked)
        assert isinstance(answer, MetadataResponse)
        (topic,) = answer.topics
        return topic.topic_id, topic.partitions[0].leader_epoch

    def fetch(self, partitions: Iterable[int] = (), wait_ms: int = 0) -> int:
        """Names these; gives how many partitions the answer has. What came is taken as appended."""
        named = [
            FetchPartition(
                partition=index,
                current_leader_epoch=self._leader_epoch,
                fetch_offset=self.ends.setdefault(index, 0),
                last_fetched_epoch=self._leader_epoch if self.ends[index] else -1,
                log_start_offset=0,
                partition_max_bytes=PARTITION_BYTES,
            )
            for index in partitions
        ]
        request = FetchRequest(
            max_wait_ms=wait_ms,
            min_bytes=1,
            max_bytes=RESPONSE_BYTES,
            session_id=self._session_id,
            session_epoch=self._epoch,
            topics=[FetchTopic(topic_id=self._topic_id, partitions=named)] if named else [],
            replica_state=self._state,
        )
        answer = self._ask(ApiKey.FETCH, FETCH_VERSION, request)
        assert isinstance(answer, FetchResponse)
        if answer.error_code:
            raise RequestFailed(f"Fetch answered with error code {answer.error_code}")
        self._session_id = answer.session_id
        self._epoch += 1
        told = 0
        for topic in answer.responses:
            for data in topic.partitions:
                if data.error_code:
                    raise RequestFailed(f"Fetch of partition {data.partition_index}: error code {data.error_code}")
                told += 1
                if isinstance(data.records, ByteSlice) and data.records.size:
                    self.ends[data.partition_index] += _records(data.records)
        return told

    def _ask(self, api_key: ApiKey, version: int, request: Message) -> Message:
        frame = b"".join(bytes(part) for part in encode_request(api_key, version, 1, "follower", request).parts())  # type: ignore[arg-type]
        self._socket.sendall(frame)
        (size,) = struct.unpack(">i", receive(self._socket, 4))
        return decode_response(api_key, version, receive(self._socket, size))[1]


def _records(records: ByteSlice) -> int:
    """Of whole batches, by the count that the header of each has."""
    buffer = records.tobytes()
    at = count = 0
    while at + 61 <= len(buffer):
        (size,) = struct.unpack_from(">i", buffer, at + 8)
        count += struct.unpack_from(">i", buffer, at + 57)[0]
        at += 12 + size
    return count
