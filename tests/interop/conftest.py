"""The two brokers of the oracle tests."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tools.peers.kafka import SHIPPED_SETTINGS

from support.broker import KAFKA, start_target
from support.oracle import Pair, Side


@pytest.fixture(scope="session")
def pair(target_kind: str, apache_kafka: object, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    """Apache Kafka and the broker under test, as the same node, with equal settings and empty."""
    place = tmp_path_factory.mktemp("oracle")
    # The node ids must agree, and so must what config/kraft/server.properties sets over the defaults.
    own = {} if target_kind == KAFKA else {"broker.id": "1", **SHIPPED_SETTINGS}
    with (
        start_target(KAFKA, place / "kafka") as kafka,
        start_target(target_kind, place / "ours", own) as ours,
    ):
        yield Pair(Side(kafka), Side(ours))
