from __future__ import annotations

import pytest

from braidlog.core.types import Endpoint, TopicPartition, address_text, by_topic


def test_a_partition_is_written_as_its_directory_is_called() -> None:
    assert str(TopicPartition("orders", 3)) == "orders-3"


def test_partitions_by_topic_keep_their_order() -> None:
    pairs = [TopicPartition("b", 2), TopicPartition("a", 0), TopicPartition("b", 1)]
    assert list(by_topic(pairs).items()) == [("b", [2, 1]), ("a", [0])]


@pytest.mark.parametrize(
    ("host", "text"), [("localhost", "localhost:9092"), ("10.0.0.1", "10.0.0.1:9092"), ("::1", "[::1]:9092")]
)
def test_addresses(host: str, text: str) -> None:
    assert address_text(host, 9092) == text
    assert str(Endpoint("CONTROLLER", host, 9092)) == f"CONTROLLER://{text}"
