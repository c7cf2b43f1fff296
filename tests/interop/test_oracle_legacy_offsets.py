"""The same requests to Apache Kafka 3.9 with ZooKeeper and to us: offsets of version 0, which lie in the store."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tools.peers.kafka import SHIPPED_SETTINGS, start_kafka_with_zookeeper, start_zookeeper

from support.broker import KAFKA, Broker, start_braidlog
from support.offset_requests import commit_request, fetch_request
from support.oracle import Pair, Side

pytestmark = pytest.mark.peer


@pytest.fixture(scope="module")
def legacy(apache_kafka: object, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    place = tmp_path_factory.mktemp("legacy")
    for name in ("zookeeper", "kafka"):
        (place / name).mkdir()
    with (
        start_zookeeper(place / "zookeeper") as zookeeper,
        start_kafka_with_zookeeper(place / "kafka", zookeeper) as kafka,
        start_braidlog(place / "ours", {"broker.id": "1", **SHIPPED_SETTINGS}) as ours,
    ):
        theirs = Broker(KAFKA, kafka.process, kafka.port, place / "kafka")
        both = Pair(Side(theirs), Side(ours))
        both.create("t", partitions=3)
        yield both


def test_commit_and_fetch(legacy: Pair) -> None:
    wanted = {"t": [0, 1, 2, 9], "none": [0]}
    legacy.compare("OffsetFetch", 0, fetch_request(0, "g", wanted))
    offsets = {
        ("t", 0): (10, "not kept"),
        ("t", 1): (11, None),
        ("t", 2): (12, "x" * 4097),
        ("t", 9): (13, ""),
        ("none", 0): (14, ""),
    }
    legacy.compare("OffsetCommit", 0, commit_request(0, "g", offsets))
    legacy.compare("OffsetFetch", 0, fetch_request(0, "g", wanted))
    legacy.compare("OffsetCommit", 0, commit_request(0, "g", {("t", 0): 3, ("t", 2): -1}))
    legacy.compare("OffsetFetch", 0, fetch_request(0, "g", wanted))
    legacy.compare("OffsetCommit", 0, commit_request(0, "g", {}))
    legacy.compare("OffsetFetch", 0, fetch_request(0, "g", {}))
    legacy.compare("OffsetFetch", 0, fetch_request(0, "other", wanted))
