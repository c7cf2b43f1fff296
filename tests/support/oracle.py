"""Two brokers that get the same requests: Apache Kafka 3.9, and the one under test."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from braidlog.core.ids import ZERO_ID
from braidlog.wire.generated.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from braidlog.wire.generated.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from braidlog.wire.generated.metadata import MetadataRequest, MetadataRequestTopic
from braidlog.wire.generated.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from braidlog.wire.message import Message
from support.broker import Broker
from support.raw import as_plain, ask
from support.samples import BASE_TIMESTAMP_MS

# Fields that say where a broker runs or what it drew at random, not how it behaves.
OWN_FIELDS = {
    "port": "a port",
    "cluster_id": "a cluster id",
    "log_dir": "a directory",
    "total_bytes": "some bytes",
    "usable_bytes": "some bytes",
    "producer_id": "a producer id",
    "throttle_time_ms": "some time",
}


class Side:
    """One of the two, and the ids it gave to topics."""

    def __init__(self, broker: Broker) -> None:
        self.broker = broker
        self.topic_ids: dict[str, bytes] = {}

    def ask(self, name: str, version: int, request: Message) -> Message:
        return ask(self.broker.port, name, version, request)

    def create(self, name: str, partitions: int, config: dict[str, str]) -> None:
        topic = CreatableTopic(
            name=name,
            num_partitions=partitions,
            replication_factor=1,
            configs=[CreatableTopicConfig(name=key, value=value) for key, value in config.items()],
        )
        answer: Any = self.ask("CreateTopics", 7, CreateTopicsRequest(topics=[topic], timeout_ms=30_000))
        assert answer.topics[0].error_code == 0, answer
        self.topic_ids[name] = answer.topics[0].topic_id
        while not self._serves(name, partitions):
            pass  # a broker of KRaft learns of the topic a moment after the controller

    def _serves(self, name: str, partitions: int) -> bool:
        request = MetadataRequest(topics=[MetadataRequestTopic(name=name)], allow_auto_topic_creation=False)
        answer: Any = self.ask("Metadata", 12, request)
        topic = answer.topics[0]
        if topic.error_code != 0 or any(p.error_code != 0 for p in topic.partitions):
            return False
        # Metadata may name a leader that does not know of it yet: its own answer counts.
        wanted = [ListOffsetsPartition(partition_index=index, timestamp=-1) for index in range(partitions)]
        offsets = ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name=name, partitions=wanted)])
        led: Any = self.ask("ListOffsets", 7, offsets)
        return all(p.error_code == 0 for p in led.topics[0].partitions)

    def produce(self, topic: str, records: bytes, version: int = 9, acks: int = -1) -> Any:
        partition = PartitionProduceData(index=0, records=records)
        data = TopicProduceData(name=topic, partition_data=[partition])
        request = ProduceRequest(acks=acks, timeout_ms=30_000, topic_data=[data])
        return self.ask("Produce", version, request)

    def normal(self, message: Message) -> Any:
        """The answer without what must differ."""
        return self._normal(as_plain(message), "")

    def _normal(self, value: Any, name: str) -> Any:
        if isinstance(value, dict):
            return {key: self._normal(item, key) for key, item in value.items()}
        if isinstance(value, list):
            return sorted((self._normal(item, name) for item in value), key=_order)
        if name in OWN_FIELDS and value not in (None, -1):
            return OWN_FIELDS[name]
        if name == "session_id" and value != 0:
            return "a session"
        if name in ("error_message", "batch_index_error_message"):
            return bool(value)
        if name == "topic_id" and value != ZERO_ID:
            known = {topic_id: topic for topic, topic_id in self.topic_ids.items()}
            return known.get(value, "an id")
        return value


def _order(item: Any) -> str:
    """Lists are compared in the order of the names, then the numbers, of what is in them."""
    if not isinstance(item, dict):
        return repr(item)
    names = ("name", "topic", "topic_name", "partition_index", "partition", "index", "partition_id", "api_key")
    return repr([item.get(name) for name in names]) + repr(item)


def unlike(expected: Any, actual: Any, path: str = "") -> list[str]:
    """Where two normal answers differ, one line each."""
    if isinstance(expected, dict) and isinstance(actual, dict):
        label = expected.get("name") or expected.get("topic") or expected.get("topic_name") or ""
        at = f"{path}[{label}]" if label else path
        return [line for key in expected for line in unlike(expected[key], actual.get(key), f"{at}.{key}")]
    if isinstance(expected, list) and isinstance(actual, list) and len(expected) == len(actual):
        pairs = enumerate(zip(expected, actual, strict=True))
        return [line for number, (e, a) in pairs for line in unlike(e, a, f"{path}#{number}")]
    if path.endswith("error_message") and expected is False:
        return []  # saying more than Kafka does is no difference
    if isinstance(expected, bytes) and isinstance(actual, bytes) and expected != actual:
        pairs = enumerate(zip(expected, actual, strict=False))
        same = next((place for place, (e, a) in pairs if e != a), min(len(expected), len(actual)))
        return [f"{path}: Kafka {len(expected)} bytes, here {len(actual)}, unlike from byte {same} on"]
    return [] if expected == actual else [f"{path}: Kafka {expected!r}, here {actual!r}"]


class Pair:
    """Asks both and compares."""

    def __init__(self, kafka: Side, ours: Side) -> None:
        self.kafka = kafka
        self.ours = ours

    @property
    def sides(self) -> tuple[Side, Side]:
        return self.kafka, self.ours

    def compare(self, name: str, version: int, request: Message | Callable[[Side], Message], what: str = "") -> Any:
        """Both get the request (or the one made for them); the answers must be alike. Returns Kafka's."""
        expected, actual = (
            side.normal(side.ask(name, version, request if isinstance(request, Message) else request(side)))
            for side in self.sides
        )
        different = unlike(expected, actual)
        if different:
            raise AssertionError("\n".join([f"{name} v{version} {what}", *different]))
        return expected

    def create(self, name: str, partitions: int = 1, **config: str) -> None:
        for side in self.sides:
            side.create(name, partitions, {key.replace("_", "."): value for key, value in config.items()})


TIMESTAMP_MS = BASE_TIMESTAMP_MS
