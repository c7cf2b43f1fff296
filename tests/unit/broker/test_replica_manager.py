"""A topic whose retention.ms is below the age that its records may have is told of, once."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path

import pytest

from braidlog.broker.server import Server
from braidlog.wire.generated.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from braidlog.wire.generated.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from support.in_process_server import answer, on_server

SHORT = {"retention.ms": "1000", "message.timestamp.before.max.ms": "5000"}


async def create(server: Server, name: str, configs: dict[str, str]) -> None:
    topic = CreatableTopic(
        name=name,
        num_partitions=3,
        replication_factor=1,
        configs=[CreatableTopicConfig(name=key, value=value) for key, value in configs.items()],
    )
    created = await answer(server, "CreateTopics", 7, CreateTopicsRequest(topics=[topic], timeout_ms=30_000))
    assert created.topics[0].error_code == 0


async def alter(server: Server, kind: int, name: str, key: str, value: str) -> None:
    configs = [AlterableConfig(name=key, config_operation=0, value=value)]
    resource = AlterConfigsResource(resource_type=kind, resource_name=name, configs=configs)
    altered = await answer(server, "IncrementalAlterConfigs", 1, IncrementalAlterConfigsRequest(resources=[resource]))
    assert altered.responses[0].error_code == 0, altered.responses[0].error_message


@pytest.fixture
def warnings() -> Iterator[list[str]]:
    """Grows as the broker speaks: its lines about retention."""
    lines: list[str] = []

    class Keep(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            if "retention.ms" in record.getMessage() and record.levelno >= logging.WARNING:
                lines.append(record.getMessage())

    partitions = logging.getLogger("braidlog.partitions")
    handler = Keep()
    partitions.addHandler(handler)
    yield lines
    partitions.removeHandler(handler)


def test_at_creation_at_a_change_and_at_a_start(tmp_path: Path, warnings: list[str]) -> None:
    async def first(server: Server) -> None:
        await create(server, "fine", {"retention.ms": "5000", "message.timestamp.before.max.ms": "5000"})
        await create(server, "unbounded", {"retention.ms": "1000"})
        assert warnings == []
        await create(server, "short", SHORT)
        (reported,) = warnings
        assert reported.startswith("topic short: retention.ms (1000) is below message.timestamp.before.max.ms (5000)")
        await alter(server, 2, "short", "flush.ms", "77")
        assert len(warnings) == 1, "nothing has changed that matters"
        await alter(server, 2, "short", "retention.ms", "2000")
        assert "retention.ms (2000)" in warnings[1]
        await alter(server, 2, "fine", "message.timestamp.difference.max.ms", "9000")
        assert len(warnings) == 2, "the newer setting of the two counts"

    async def second(server: Server) -> None:
        assert len(warnings) == 3
        assert "topic short: retention.ms (2000)" in warnings[2]

    on_server(tmp_path, first)
    on_server(tmp_path, second)


def test_topics_that_only_inherit_are_told_of_together(tmp_path: Path, warnings: list[str]) -> None:
    async def check(server: Server) -> None:
        for name in ("a", "b", "c"):
            await create(server, name, {})
        await alter(server, 4, "", "log.message.timestamp.before.max.ms", "700000000")
        (reported,) = warnings
        assert reported.startswith("topics with the broker's defaults: retention.ms (604800000) is below")
        await alter(server, 4, "", "log.message.timestamp.before.max.ms", "600000000")
        assert len(warnings) == 1

    on_server(tmp_path, check)
