"""Settings that change at run time, on a broker that is open: whoever obeys one obeys its new value."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from braidlog.broker.live_settings import LiveSettings
from braidlog.broker.server import Server
from braidlog.config.broker import BrokerSettings
from braidlog.core.slices import ByteSlice
from braidlog.core.types import TopicPartition
from braidlog.storage.loading import LoadReport, ReportProgress
from braidlog.storage.manager import LogManager
from braidlog.wire.generated.create_topics import CreatableTopic, CreateTopicsRequest
from braidlog.wire.generated.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from braidlog.wire.records.builder import build_batch
from braidlog.wire.records.reading import Record
from support.open_server import answer, on_server, until


def change(server: Server, **texts: str) -> None:
    """For this broker, as its image would tell it."""
    server.broker.settings.apply_dynamic({}, {key.replace("_", "."): text for key, text in texts.items()})


async def connect(server: Server, listener: int = 0) -> asyncio.StreamWriter:
    _, writer = await asyncio.open_connection("127.0.0.1", server.listeners[listener].port)
    return writer


def test_connections_are_let_in_when_the_limit_rises_and_closed_when_it_falls(tmp_path: Path) -> None:
    async def check(server: Server) -> None:
        (listener,) = server.listeners
        writers = [await connect(server) for _ in range(3)]
        await until(lambda: server.quotas.delay_s("PLAINTEXT") > 0)
        assert listener.connections == 1
        change(server, max_connections="3")
        await until(lambda: listener.connections == 3)
        change(server, max_connections="2")
        assert listener.connections == 2
        for writer in writers:
            writer.close()

    on_server(tmp_path, check, max_connections="1")


def test_a_listeners_own_limits_bind_it_and_change_alone(tmp_path: Path) -> None:
    async def check(server: Server) -> None:
        outside, inside = server.listeners
        writers = [await connect(server, 0) for _ in range(2)] + [await connect(server, 1) for _ in range(2)]
        await until(lambda: inside.connections == 2 and server.quotas.delay_s("OUTSIDE") > 0)
        assert outside.connections == 1
        server.broker.settings.apply_dynamic({}, {"listener.name.outside.max.connections": "2"})
        await until(lambda: outside.connections == 2)
        server.broker.settings.apply_dynamic(
            {},
            {"listener.name.outside.max.connection.creation.rate": "1", "listener.name.outside.max.connections": "9"},
        )
        assert server.quotas.admit("OUTSIDE", "10.0.0.1")
        assert 0 < server.quotas.delay_s("OUTSIDE") <= 1
        assert server.quotas.delay_s("INSIDE") == 0
        server.quotas.release("OUTSIDE", "10.0.0.1")
        for writer in writers:
            writer.close()

    on_server(
        tmp_path,
        check,
        listeners="OUTSIDE://127.0.0.1:0,INSIDE://127.0.0.1:0",
        listener_security_protocol_map="OUTSIDE:PLAINTEXT,INSIDE:PLAINTEXT",
        inter_broker_listener_name="INSIDE",
        listener_name_outside_max_connections="1",
    )


def test_the_rate_and_the_shares_of_addresses_change(tmp_path: Path) -> None:
    async def check(server: Server) -> None:
        quotas = server.quotas
        change(server, max_connection_creation_rate="1")
        assert quotas.delay_s("PLAINTEXT") == 0
        assert quotas.admit("PLAINTEXT", "10.0.0.1")
        assert 0 < quotas.delay_s("PLAINTEXT") <= 1
        change(server, max_connections_per_ip="1", max_connections_per_ip_overrides="10.0.0.2:2")
        await until(lambda: quotas.most_per_host == 1)
        assert [quotas.admit("PLAINTEXT", host) for host in ("10.0.0.1", "10.0.0.2", "10.0.0.2")] == [False, True, True]
        for host in ("10.0.0.1", "10.0.0.2", "10.0.0.2"):
            quotas.release("PLAINTEXT", host)

    on_server(tmp_path, check)


def test_more_cleaner_threads_get_their_jobs(tmp_path: Path) -> None:
    async def check(server: Server) -> None:
        names = {task.get_name() for task in asyncio.all_tasks()}
        assert {name for name in names if "log-cleaner" in name} == {"broker: log-cleaner-0"}
        for count in ("3", "1", "3"):
            change(server, log_cleaner_threads=count)
        cleaners = sorted(task.get_name() for task in asyncio.all_tasks() if "log-cleaner" in task.get_name())
        assert cleaners == [f"broker: log-cleaner-{number}" for number in range(3)]

    on_server(tmp_path, check)


def test_producers_expire_by_the_new_time(tmp_path: Path) -> None:
    async def check(server: Server) -> None:
        topic = CreatableTopic(name="records", num_partitions=1, replication_factor=1)
        await answer(server, "CreateTopics", 7, CreateTopicsRequest(topics=[topic], timeout_ms=30_000))
        log = server.broker.logs.log(TopicPartition("records", 0))
        now = server.seams.clock.wall_ms()
        data = build_batch([Record(timestamp=now, value=b"v")], producer_id=7, producer_epoch=0, base_sequence=0)
        log.append_as_leader(ByteSlice(data, 0, len(data)), 0, now_ms=now)
        log.write_staged()
        assert log.remove_expired_producers(now + 5000) == 0
        change(server, producer_id_expiration_ms="4000")
        assert log.remove_expired_producers(now + 5000) == 1
        added = CreatableTopic(name="later", num_partitions=1, replication_factor=1)
        await answer(server, "CreateTopics", 7, CreateTopicsRequest(topics=[added], timeout_ms=30_000))
        later = server.broker.logs.log(TopicPartition("later", 0))
        later.append_as_leader(ByteSlice(data, 0, len(data)), 0, now_ms=now)
        later.write_staged()
        assert later.remove_expired_producers(now + 5000) == 1

    on_server(tmp_path, check)


def test_what_was_changed_before_a_start_counts_for_the_start(tmp_path: Path) -> None:
    async def first(server: Server) -> None:
        configs = [AlterableConfig(name="num.recovery.threads.per.data.dir", config_operation=0, value="3")]
        resource = AlterConfigsResource(resource_type=4, resource_name="", configs=configs)
        request = IncrementalAlterConfigsRequest(resources=[resource])
        altered = await answer(server, "IncrementalAlterConfigs", 1, request)
        assert altered.responses[0].error_code == 0

    seen: list[int] = []

    class Watched(LogManager):
        def load(self, report: ReportProgress | None = None) -> LoadReport:
            seen.append(self.settings.num_recovery_threads_per_data_dir)
            return super().load(report)

    async def second(server: Server) -> None:
        assert server.broker.settings.current.get_int("num.recovery.threads.per.data.dir") == 3

    on_server(tmp_path, first)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("braidlog.broker.broker.LogManager", Watched)
        on_server(tmp_path, second)
    assert seen == [3]


def test_what_a_change_does_not_do_is_said_once(caplog: pytest.LogCaptureFixture) -> None:
    live = LiveSettings(BrokerSettings({"num.io.threads": "4"}))
    stored = {"background.threads": "3", "log.retention.ms": "5"}
    with caplog.at_level("INFO"):
        live.apply_dynamic(stored, {"listener.name.plaintext.ssl.client.auth": "required"})
    warnings = [each.getMessage() for each in caplog.records if each.levelname == "WARNING"]
    (warning,) = warnings
    assert "listener.name.plaintext.ssl.client.auth has no effect (" in warning
    assert caplog.messages[-1].endswith("without effect here (docs/SETTINGS.md says why): background.threads")
    assert live.current.get("log.retention.ms") == 5
    caplog.clear()
    with caplog.at_level("INFO"):
        live.apply_dynamic(
            {**stored, "log.retention.ms": "6"}, {"listener.name.plaintext.ssl.client.auth": "required"}
        )
    assert caplog.messages == ["settings changed at run time: log.retention.ms"]
