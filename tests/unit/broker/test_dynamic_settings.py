"""Settings that change at run time, on a broker that is open: whoever obeys one obeys its new value."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Callable
from pathlib import Path

import pytest
from tools.peers.kafka import free_port

from braidlog.broker.dynamic_settings import DynamicBrokerSettings
from braidlog.broker.server import Server
from braidlog.config import known
from braidlog.config.broker import BrokerSettings
from braidlog.config.setting import READ_ONLY
from braidlog.controller.partitions import unclean_allowed
from braidlog.core.slices import ByteSlice
from braidlog.core.types import TopicPartition
from braidlog.replication.partition import ReplicationContext
from braidlog.storage.dirs.log_dir_loader import LoadReport, ReportProgress
from braidlog.storage.dirs.log_manager import LogManager
from braidlog.storage.settings import StorageSettings
from braidlog.wire.generated.create_topics import CreatableTopic, CreateTopicsRequest
from braidlog.wire.generated.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from braidlog.wire.generated.metadata import MetadataRequest
from braidlog.wire.records.builder import build_batch
from braidlog.wire.records.reading import Record
from support.in_process_server import answer, on_server, until
from support.raw import ask


def change(server: Server, **texts: str) -> None:
    """For this broker, as its image would tell it."""
    server.broker.settings.apply_dynamic({}, {key.replace("_", "."): text for key, text in texts.items()})


async def connect(server: Server, listener: int = 0) -> asyncio.StreamWriter:
    _, writer = await asyncio.open_connection("127.0.0.1", server.listeners[listener].port)
    return writer


async def hang_up(*writers: asyncio.StreamWriter) -> None:
    for writer in writers:
        writer.close()
        with contextlib.suppress(ConnectionError):
            await writer.wait_closed()


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
        await hang_up(*writers)

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
        await hang_up(*writers)

    on_server(
        tmp_path,
        check,
        listeners="OUTSIDE://127.0.0.1:0,INSIDE://127.0.0.1:0",
        listener_security_protocol_map="OUTSIDE:PLAINTEXT,INSIDE:PLAINTEXT",
        inter_broker_listener_name="INSIDE",
        listener_name_outside_max_connections="1",
    )


def test_listeners_open_and_close(tmp_path: Path) -> None:
    async def check(server: Server) -> None:
        (first,) = server.listeners
        writer = await connect(server)
        change(
            server,
            listeners="PLAINTEXT://127.0.0.1:0,SECOND://127.0.0.1:0",
            listener_security_protocol_map="PLAINTEXT:PLAINTEXT,SECOND:PLAINTEXT",
        )
        await until(lambda: len(server.advertised) == 2)
        assert server.listeners[0] is first, "what stays is left alone"
        second = server.listeners[1]
        second_port = second.port
        metadata = await asyncio.to_thread(ask, second.port, "Metadata", 12, MetadataRequest(topics=[]))
        assert [(broker.host, broker.port) for broker in metadata.brokers] == [("127.0.0.1", second.port)]
        change(server)
        await until(lambda: len(server.advertised) == 1)
        assert server.listeners == [first]
        with pytest.raises(ConnectionRefusedError):
            await asyncio.open_connection("127.0.0.1", second_port)
        await hang_up(writer)

    on_server(tmp_path, check)


def test_a_listener_that_moves_closes_the_connections_of_its_old_place(tmp_path: Path) -> None:
    async def check(server: Server) -> None:
        (before,) = server.listeners
        reader, writer = await asyncio.open_connection("127.0.0.1", before.port)
        await until(lambda: before.connections == 1)
        change(server, listeners=f"PLAINTEXT://127.0.0.1:{free_port()}")
        await until(lambda: server.listeners != [before] and server.advertised[0].port == server.listeners[0].port)
        assert await reader.read(1) == b""
        assert server.quotas.open == 0
        await answer(server, "Metadata", 12, MetadataRequest(topics=[]))
        await hang_up(writer)

    on_server(tmp_path, check)


def test_other_addresses_are_advertised(tmp_path: Path) -> None:
    async def reported(server: Server) -> list[tuple[str, int]]:
        metadata = await answer(server, "Metadata", 12, MetadataRequest(topics=[]))
        return [(broker.host, broker.port) for broker in metadata.brokers]

    async def first(server: Server) -> None:
        configs = [AlterableConfig(name="advertised.listeners", config_operation=0, value="PLAINTEXT://outside:7777")]
        resource = AlterConfigsResource(resource_type=4, resource_name="1", configs=configs)
        request = IncrementalAlterConfigsRequest(resources=[resource])
        altered = await answer(server, "IncrementalAlterConfigs", 1, request)
        assert altered.responses[0].error_code == 0
        await until(lambda: server.advertised[0].host == "outside")
        assert await reported(server) == [("outside", 7777)]

    async def second(server: Server) -> None:
        assert await reported(server) == [("outside", 7777)]

    on_server(tmp_path, first, broker_id="1")
    on_server(tmp_path, second, broker_id="1")


def test_a_port_that_is_taken_leaves_the_others_open(tmp_path: Path) -> None:
    async def check(server: Server) -> None:
        (first,) = server.listeners
        with socket.create_server(("127.0.0.1", 0)) as taken:
            change(
                server,
                listeners=f"PLAINTEXT://127.0.0.1:0,SECOND://127.0.0.1:{taken.getsockname()[1]}",
                listener_security_protocol_map="PLAINTEXT:PLAINTEXT,SECOND:PLAINTEXT",
            )
            await answer(server, "Metadata", 12, MetadataRequest(topics=[]))
            assert server.listeners == [first]
            assert [endpoint.listener for endpoint in server.advertised] == ["PLAINTEXT"]

    on_server(tmp_path, check)


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
        now = server.environment.clock.wall_ms()
        data = build_batch([Record(timestamp=now, value=b"v")], producer_id=7, producer_epoch=0, base_sequence=0)
        log.append_as_leader(ByteSlice(data, 0, len(data)), 0, now_ms=now)
        log.write_staged()
        assert log.producer_state.remove_expired(now + 5000) == 0
        change(server, producer_id_expiration_ms="4000")
        assert log.producer_state.remove_expired(now + 5000) == 1
        added = CreatableTopic(name="later", num_partitions=1, replication_factor=1)
        await answer(server, "CreateTopics", 7, CreateTopicsRequest(topics=[added], timeout_ms=30_000))
        later = server.broker.logs.log(TopicPartition("later", 0))
        later.append_as_leader(ByteSlice(data, 0, len(data)), 0, now_ms=now)
        later.write_staged()
        assert later.producer_state.remove_expired(now + 5000) == 1

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
    live = DynamicBrokerSettings(BrokerSettings({"num.io.threads": "4"}))
    stored = {"background.threads": "3", "log.retention.ms": "5"}
    with caplog.at_level("INFO"):
        live.apply_dynamic(stored, {"principal.builder.class": "com.example.Principals"})
    warnings = [each.getMessage() for each in caplog.records if each.levelname == "WARNING"]
    (warning,) = warnings
    assert "principal.builder.class has no effect (" in warning
    assert caplog.messages[-1].endswith("without effect here (docs/SETTINGS.md says why): background.threads")
    assert live.current.get("log.retention.ms") == 5
    caplog.clear()
    with caplog.at_level("INFO"):
        live.apply_dynamic({**stored, "log.retention.ms": "6"}, {"principal.builder.class": "com.example.Principals"})
    assert caplog.messages == ["settings changed at run time: log.retention.ms"]


# Every setting that may change at run time and has an effect, with a value that is not its default.

Probe = Callable[[Server], object]
RECORDS = TopicPartition("records", 0)


def _log_field(name: str) -> Probe:
    """What the topic's log works with, which has no override of its own."""
    return lambda server: getattr(server.broker.logs.log(RECORDS).settings, name)


def _storage(read: Callable[[StorageSettings], object]) -> Probe:
    return lambda server: read(server.broker.logs.settings)


def _replication(read: Callable[[ReplicationContext], object]) -> Probe:
    return lambda server: read(server.broker.replica_manager.replication_context)


def _rate(server: Server) -> bool:
    """Whether a second connection has to wait."""
    quotas = server.quotas
    assert quotas.admit("PLAINTEXT", "10.9.9.9")
    quotas.release("PLAINTEXT", "10.9.9.9")
    return quotas.delay_s("PLAINTEXT") > 0


# Setting -> (text, how its effect is seen, what is seen).
LIVE: dict[str, tuple[str, Probe, object]] = {
    "advertised.listeners": ("PLAINTEXT://outside:7777", lambda server: server.advertised[0].host, "outside"),
    # Alone it only allows what `test_listeners_open_and_close` shows.
    "listener.security.protocol.map": (
        "PLAINTEXT:PLAINTEXT,MORE:PLAINTEXT",
        lambda server: sorted(server.broker.settings.current.get_str("listener.security.protocol.map").split(",")),
        ["MORE:PLAINTEXT", "PLAINTEXT:PLAINTEXT"],
    ),
    "listeners": ("PLAINTEXT://localhost:0", lambda server: server.advertised[0].host, "localhost"),
    "max.connections": ("7", lambda server: server.quotas.most, 7),
    "max.connections.per.ip": ("7", lambda server: server.quotas.most_per_host, 7),
    "max.connections.per.ip.overrides": ("10.0.0.1:3", lambda server: server.quotas.overrides, {"10.0.0.1": 3}),
    "max.connection.creation.rate": ("1", _rate, True),
    "log.cleaner.threads": ("3", _storage(lambda settings: settings.log_cleaner_threads), 3),
    "log.cleaner.backoff.ms": ("77", _storage(lambda settings: settings.log_cleaner_backoff_ms), 77),
    "log.cleaner.dedupe.buffer.size": (
        "7000000", _storage(lambda settings: settings.cleaner_config.dedupe_bytes), 7_000_000,
    ),
    "log.cleaner.io.buffer.size": ("7000", _storage(lambda settings: settings.cleaner_config.io_buffer_bytes), 7000),
    "log.cleaner.io.buffer.load.factor": ("0.7", _storage(lambda settings: settings.cleaner_config.load_factor), 0.7),
    "log.cleaner.io.max.bytes.per.second": (
        "7000", _storage(lambda settings: settings.cleaner_config.max_io_bytes_per_second), 7000.0,
    ),
    "num.recovery.threads.per.data.dir": (
        "3", _storage(lambda settings: settings.num_recovery_threads_per_data_dir), 3,
    ),
    "producer.id.expiration.ms": ("77", _storage(lambda settings: settings.producer_id_expiration_ms), 77),
    "replica.alter.log.dirs.io.max.bytes.per.second": (
        "77", _storage(lambda settings: settings.replica_alter_log_dirs_io_max_bytes_per_second), 77,
    ),
    "leader.replication.throttled.rate": ("77", _replication(lambda context: context.leader_quota.limit), 77),
    "follower.replication.throttled.rate": ("77", _replication(lambda context: context.follower_quota.limit), 77),
    "transaction.partition.verification.enable": ("false", lambda server: server.broker.produce.verifies(), False),
    "log.segment.delete.delay.ms": ("77", _storage(lambda settings: settings.log_segment_delete_delay_ms), 77),
    "compression.gzip.level": ("7", _log_field("compression_gzip_level"), 7),
    "compression.lz4.level": ("7", _log_field("compression_lz4_level"), 7),
    "compression.type": ("gzip", _log_field("compression_type"), "gzip"),
    "compression.zstd.level": ("7", _log_field("compression_zstd_level"), 7),
    "log.cleaner.delete.retention.ms": ("77", _log_field("delete_retention_ms"), 77),
    "log.cleaner.max.compaction.lag.ms": ("77", _log_field("max_compaction_lag_ms"), 77),
    "log.cleaner.min.cleanable.ratio": ("0.7", _log_field("min_cleanable_dirty_ratio"), 0.7),
    "log.cleaner.min.compaction.lag.ms": ("77", _log_field("min_compaction_lag_ms"), 77),
    "log.cleanup.policy": ("compact", _log_field("cleanup_policy"), ("compact",)),
    "log.flush.interval.messages": ("77", _log_field("flush_messages"), 77),
    "log.flush.interval.ms": ("77", _log_field("flush_ms"), 77),
    "log.index.interval.bytes": ("77", _log_field("index_interval_bytes"), 77),
    "log.index.size.max.bytes": ("777", _log_field("segment_index_bytes"), 777),
    "log.message.downconversion.enable": ("false", _log_field("message_downconversion_enable"), False),
    "log.message.timestamp.after.max.ms": ("77", _log_field("message_timestamp_after_max_ms"), 77),
    "log.message.timestamp.before.max.ms": ("77", _log_field("message_timestamp_before_max_ms"), 77),
    "log.message.timestamp.difference.max.ms": ("77", _log_field("message_timestamp_before_max_ms"), 77),
    "log.message.timestamp.type": ("LogAppendTime", _log_field("uses_log_append_time"), True),
    "log.preallocate": ("true", _log_field("preallocate"), True),
    "log.retention.bytes": ("77", _log_field("retention_bytes"), 77),
    "log.retention.ms": ("77", _log_field("retention_ms"), 77),
    "log.roll.jitter.ms": ("77", _log_field("segment_jitter_ms"), 77),
    "log.roll.ms": ("77", _log_field("segment_ms"), 77),
    "log.segment.bytes": ("777", _log_field("segment_bytes"), 777),
    "message.max.bytes": ("777", _log_field("max_message_bytes"), 777),
    "min.insync.replicas": ("7", _log_field("min_insync_replicas"), 7),
    "unclean.leader.election.enable": (
        "true", lambda server: unclean_allowed(server.broker.controller._require().context, "records"), True,
    ),
}  # fmt: skip


# Followed live where there are other brokers: see `interbroker/test_replica_fetcher_manager.py`.
IN_A_CLUSTER = {"num.replica.fetchers"}
# Followed by listeners with TLS and logins: see `tests/interop/test_tls.py` and `test_logins.py`.
SECURED = ("ssl.", "sasl.")


def test_the_table_has_every_setting_that_may_change_and_has_an_effect() -> None:
    settings = [*known.broker_settings(), *known.dynamic_only_settings().values()]
    changing = {each.key for each in settings if each.mode != READ_ONLY and each.no_effect is None}
    on_secured_listeners = {key for key in changing if key.startswith(SECURED)}
    assert LIVE.keys() | IN_A_CLUSTER | on_secured_listeners == changing


def test_every_setting_takes_effect_while_the_broker_runs(tmp_path: Path) -> None:
    async def check(server: Server) -> None:
        topic = CreatableTopic(name="records", num_partitions=1, replication_factor=1)
        await answer(server, "CreateTopics", 7, CreateTopicsRequest(topics=[topic], timeout_ms=30_000))
        for key, (text, probe, expected) in LIVE.items():
            assert probe(server) != expected, f"{key} has that effect already"
            server.broker.settings.apply_dynamic({}, {key: text})
            async with asyncio.timeout(10):
                await until(lambda probe=probe, expected=expected: probe(server) == expected)  # type: ignore[misc]
            server.broker.settings.apply_dynamic({}, {})

    on_server(tmp_path, check)


def test_where_something_listens_that_was_to_pick_a_port() -> None:
    settings = DynamicBrokerSettings(BrokerSettings({"braidlog.http.listen": "127.0.0.1:0", "broker.rack": "a"}))
    settings.note_bound("braidlog.http.listen", "127.0.0.1:4711")
    assert settings.current.get_str("braidlog.http.listen") == "127.0.0.1:4711"
    settings.apply_dynamic({}, {"log.cleaner.threads": "2"})
    assert settings.current.get_str("braidlog.http.listen") == "127.0.0.1:4711"
    assert settings.current.get_str("broker.rack") == "a"
