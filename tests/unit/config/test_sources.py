from __future__ import annotations

import re
from pathlib import Path

import pytest

from braidlog.config.sources import load_settings
from braidlog.core.errors import UserError


def written(directory: Path, text: str) -> str:
    path = directory / "server.properties"
    path.write_text(text)
    return str(path)


def test_the_command_line_goes_before_the_environment_before_the_file_before_defaults(tmp_path: Path) -> None:
    file = written(tmp_path, "num.partitions=2\nlog.segment.bytes=1000\nlog.retention.ms=5\n")
    settings = load_settings(
        file, {"BRAIDLOG_NUM_PARTITIONS": "3", "BRAIDLOG_LOG_SEGMENT_BYTES": "2000"}, ["num.partitions=4"]
    ).settings
    assert settings.get("num.partitions") == 4
    assert settings.get("log.segment.bytes") == 2000
    assert settings.get("log.retention.ms") == 5
    assert settings.get("log.index.interval.bytes") == 4096


def test_environment_names() -> None:
    loaded = load_settings(
        None,
        {
            "KAFKA_LOG_RETENTION_HOURS": "1",
            "KAFKA_NUM_PARTITIONS": "7",
            "BRAIDLOG_NUM_PARTITIONS": "8",
            "BRAIDLOG_HTTP_LISTEN": "0.0.0.0:1",
            "KAFKA_ZOOKEEPER_CLIENTCNXNSOCKET": "x",
            "KAFKA_LISTENER_NAME_OUT__SIDE_MAX_CONNECTIONS": "9",
            "KAFKA_HEAP_OPTS": "-Xmx1G",
            "BRAIDLOG_PURE": "1",
            "PATH": "/bin",
        },
        [
            "listeners=OUT_SIDE://127.0.0.1:9092",
            "listener.security.protocol.map=OUT_SIDE:PLAINTEXT",
            "inter.broker.listener.name=OUT_SIDE",
        ],
    )
    settings = loaded.settings
    assert settings.log_retention_ms == 3_600_000
    assert settings.get("num.partitions") == 8
    assert settings.get("braidlog.http.listen") == "0.0.0.0:1"
    assert settings.get("zookeeper.clientCnxnSocket") == "x"
    assert settings.get_for_listener("OUT_SIDE", "max.connections") == 9
    assert settings.get_for_listener("PLAINTEXT", "max.connections") == 2**31 - 1
    assert loaded.warnings == []


def test_a_variable_that_names_no_setting_is_warned_about_and_ignored() -> None:
    loaded = load_settings(None, {"BRAIDLOG_NUM_PARTITION": "8"})
    assert loaded.warnings == ["environment variable BRAIDLOG_NUM_PARTITION sets nothing: no setting has that name"]
    assert loaded.settings.unknown == []


@pytest.mark.parametrize(
    "name", ["BOOTSTRAP", "PROFILE", "SCHEMA_REGISTRY", "SCHEMA_REGISTRY_USER_INFO", "SCHEMA_REGISTRY_TOKEN"]
)
def test_variables_of_the_command_line_are_not_the_brokers(name: str) -> None:
    assert load_settings(None, {f"BRAIDLOG_{name}": "x"}).warnings == []


def test_names_of_an_older_kafka_are_told_with_what_took_their_place(tmp_path: Path) -> None:
    file = written(tmp_path, "port=9093\n")
    loaded = load_settings(file, {"KAFKA_ADVERTISED_HOST_NAME": "h"})
    assert loaded.warnings == [
        "environment variable KAFKA_ADVERTISED_HOST_NAME sets nothing: Kafka no longer has advertised.host.name; "
        "set advertised.listeners to PLAINTEXT://<host>:<port>",
        f"{file}:1: Kafka no longer has port, and it has no effect; set listeners to PLAINTEXT://<host>:<port>",
    ]


@pytest.mark.parametrize(
    ("key", "reason"),
    [
        ("listener.name.external.max.connections", "there is no listener of that name"),
        ("listener.name.PLAINTEXT.max.connections", "no listener of that name .write the listener's name in lower"),
        ("listener.name.plaintext.connections.max.idle.ms", "connections.max.idle.ms is the same for all listeners"),
        ("listener.name.plaintext.num.network.threads", "one event loop serves every connection"),
    ],
)
def test_an_override_for_a_listener_that_does_nothing_is_told(key: str, reason: str) -> None:
    (warning,) = load_settings(None, {}, [f"{key}=7"]).warnings
    assert re.match(f"--set {re.escape(key)}: {re.escape(key)} has no effect: .*{reason}", warning)


def test_an_override_for_a_listener_that_acts_is_not_warned_about() -> None:
    overrides = ["listener.name.plaintext.max.connections=7", "listener.name.plaintext.max.connection.creation.rate=7"]
    assert load_settings(None, {}, overrides).warnings == []


def test_unknown_keys_of_a_file_are_warned_about_and_kept(tmp_path: Path) -> None:
    file = written(tmp_path, "num.partition=2\nmy.plugin.x=1\nretention.ms=5\n")
    loaded = load_settings(file)
    assert loaded.warnings == [
        f"{file}:1: unknown setting num.partition (did you mean num.partitions?)",
        f"{file}:2: unknown setting my.plugin.x",
        f"{file}:3: unknown setting retention.ms (for topics; the broker's is log.retention.ms)",
    ]
    assert loaded.settings.get("my.plugin.x") == "1"


@pytest.mark.parametrize(
    ("text", "environment", "assignments", "message"),
    [
        ("a=1\nnum.partitions=0\n", {}, [], r"server.properties:2: .*num.partitions: expected 1 or more"),
        ("", {"KAFKA_NUM_PARTITIONS": "x"}, [], r"environment variable KAFKA_NUM_PARTITIONS: .*whole number"),
        ("", {}, ["num.partitions=x"], r"--set num.partitions: .*whole number"),
        ("", {}, ["num.partitions"], r"write it as --set key=value"),
        ("x=\\u1", {}, [], r"server.properties:1: .*four hexadecimal digits"),
        ("broker.id=1\nnode.id=2", {}, [], r"broker.id \(1\) and node.id \(2\) are the same thing"),
    ],
)
def test_a_mistake_is_told_with_its_place(
    tmp_path: Path, text: str, environment: dict[str, str], assignments: list[str], message: str
) -> None:
    with pytest.raises(UserError, match=message) as problem:
        load_settings(written(tmp_path, text), environment, assignments)
    assert "\n" not in str(problem.value)


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"cannot read the settings file .*: No such file"):
        load_settings(str(tmp_path / "none"))


def test_a_file_in_latin_1_or_with_a_byte_order_mark(tmp_path: Path) -> None:
    path = tmp_path / "server.properties"
    path.write_bytes("broker.rack=Zürich".encode("latin-1"))
    assert load_settings(str(path)).settings.get("broker.rack") == "Zürich"
    path.write_bytes(b"\xef\xbb\xbfbroker.rack=" + "Zürich".encode())
    assert load_settings(str(path)).settings.get("broker.rack") == "Zürich"


def test_the_files_that_come_with_kafka_load(tmp_path: Path) -> None:
    zookeeper_kind = """
    broker.id=0
    num.network.threads=3
    log.dirs=/tmp/kafka-logs
    offsets.topic.replication.factor=1
    zookeeper.connection.timeout.ms=18000
    group.initial.rebalance.delay.ms=0
    """
    kraft_kind = """
    process.roles=broker,controller
    node.id=1
    controller.quorum.voters=1@localhost:9093
    listeners=PLAINTEXT://:9092,CONTROLLER://:9093
    inter.broker.listener.name=PLAINTEXT
    controller.listener.names=CONTROLLER
    listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT
    """
    file = written(tmp_path, zookeeper_kind + "zookeeper.connect=localhost:2181\n")
    loaded = load_settings(file)
    assert (loaded.settings.broker_id, loaded.warnings) == (0, [])
    loaded = load_settings(written(tmp_path, kraft_kind))
    assert loaded.settings.broker_id == 1
    assert loaded.warnings == []
