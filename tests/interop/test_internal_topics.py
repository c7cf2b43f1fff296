"""The topics that coordinators keep their records in: made by the first question, closed to others."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from braidlog.wire.generated.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from braidlog.wire.generated.find_coordinator import FindCoordinatorRequest
from braidlog.wire.generated.metadata import MetadataRequest, MetadataRequestTopic
from braidlog.wire.generated.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from braidlog.wire.records.builder import build_batch
from braidlog.wire.records.reading import Record
from support.broker import Broker, start_target
from support.eventually import eventually
from support.raw import ask, versions_of

TOPICS = {0: "__consumer_offsets", 1: "__transaction_state"}
INVALID_REQUEST = 42
INVALID_TOPIC = 17


def find(broker: Broker, key_type: int, *keys: str) -> list[tuple[str, int]]:
    """(key, port) of each coordinator, once all are there."""
    found: list[tuple[str, int]] = []

    def look() -> bool:
        request = FindCoordinatorRequest(key_type=key_type, coordinator_keys=list(keys))
        answer: Any = ask(broker.port, "FindCoordinator", 4, request)
        found[:] = [(each.key, each.port) for each in answer.coordinators if each.error_code == 0]
        return len(found) == len(keys)

    eventually(look)
    return found


def metadata(broker: Broker, name: str) -> Any:
    request = MetadataRequest(topics=[MetadataRequestTopic(name=name)], allow_auto_topic_creation=False)
    answer: Any = ask(broker.port, "Metadata", 12, request)
    return answer.topics[0]


@pytest.mark.parametrize("key_type", TOPICS)
def test_the_first_question_makes_the_topic(target_kind: str, tmp_path: Path, key_type: int) -> None:
    with start_target(target_kind, tmp_path / "data") as broker:
        assert metadata(broker, TOPICS[key_type]).error_code == 3
        assert find(broker, key_type, "a", "b") == [("a", broker.port), ("b", broker.port)]
        topic = metadata(broker, TOPICS[key_type])
        assert topic.is_internal
        assert len(topic.partitions) == 50
        resource = DescribeConfigsResource(resource_type=2, resource_name=TOPICS[key_type], configuration_keys=None)
        answer: Any = ask(broker.port, "DescribeConfigs", 4, DescribeConfigsRequest(resources=[resource]))
        configs = {entry.name: entry.value for entry in answer.results[0].configs}
        assert configs["cleanup.policy"] == "compact"
        assert configs["segment.bytes"] == "104857600"


@pytest.mark.parametrize("version", versions_of("FindCoordinator")[:4])
def test_one_key(broker: Broker, version: int) -> None:
    find(broker, 0, "somebody")
    answer: Any = ask(broker.port, "FindCoordinator", version, FindCoordinatorRequest(key="somebody"))
    assert (answer.error_code, answer.port) == (0, broker.port)
    if version >= 1:
        assert answer.error_message == "NONE"


@pytest.mark.parametrize("version", versions_of("FindCoordinator")[4:])
def test_many_keys(broker: Broker, version: int) -> None:
    find(broker, 0, "a")
    request = FindCoordinatorRequest(key_type=0, coordinator_keys=["a", "b"])
    answer: Any = ask(broker.port, "FindCoordinator", version, request)
    assert [each.key for each in answer.coordinators] == ["a", "b"]
    for each in answer.coordinators:
        assert (each.error_code, each.error_message, each.port) == (0, "", broker.port)


def test_an_unknown_kind_of_coordinator(broker: Broker) -> None:
    request = FindCoordinatorRequest(key_type=9, coordinator_keys=["a"])
    answer: Any = ask(broker.port, "FindCoordinator", 4, request)
    assert answer.coordinators[0].error_code == INVALID_REQUEST


@pytest.mark.parametrize("key_type", TOPICS)
def test_clients_may_not_write_to_it(broker: Broker, key_type: int) -> None:
    find(broker, key_type, "a")
    batch = build_batch([Record(timestamp=1, key=b"\x00\x02", value=b"")])
    data = TopicProduceData(name=TOPICS[key_type], partition_data=[PartitionProduceData(index=0, records=batch)])
    answer: Any = ask(broker.port, "Produce", 9, ProduceRequest(acks=-1, timeout_ms=10_000, topic_data=[data]))
    assert answer.responses[0].partition_responses[0].error_code == INVALID_TOPIC
