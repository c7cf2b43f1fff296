"""The brokers of the interop tests beside the shared one: two for the oracle, one whose groups settle quickly."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tools.peers.kafka import SHIPPED_SETTINGS

from support.broker import KAFKA, Broker, start_target
from support.groups import LastingBroker
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


@pytest.fixture(scope="session")
def quick_broker(target_kind: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """A broker with short timeouts for groups and transactions, shared by the tests of both."""
    with LastingBroker(target_kind, tmp_path_factory.mktemp("quick") / "data").life() as running:
        yield running
        assert running.process.returncode is None, f"the broker died:\n{running.log()}"
