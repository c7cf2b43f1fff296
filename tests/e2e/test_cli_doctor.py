"""The doctor, with the troubles it is for."""

from __future__ import annotations

import shutil
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from support.broker import Broker


def findings(outcome: Any) -> dict[str, list[dict[str, str]]]:
    """By check; whatever is not ok says what to do."""
    found: dict[str, list[dict[str, str]]] = {}
    for each in outcome.json:
        assert (each["status"] == "ok") == (each["advice"] == ""), each
        found.setdefault(each["check"], []).append(each)
    problems = any(each["status"] == "problem" for each in outcome.json)
    assert outcome.code == (1 if problems else 0)
    return found


def test_a_sound_broker(broker: Broker, cli: Any) -> None:
    outcome = cli("doctor", "--output", "json")
    found = findings(outcome)
    assert found["connection"][0]["status"] == "ok"
    assert broker.bootstrap in found["advertised listener"][0]["text"]
    assert found["leaders"][0]["status"] == "ok"
    table = cli("doctor").succeeded()
    assert "ok       connection" in table.out
    assert table.lines[-1].endswith("warnings") or table.lines[-1].endswith("warning")


def test_its_data_directory(broker: Broker, cli: Any) -> None:
    if broker.is_kafka:
        pytest.skip("the other broker's directory layout is not at hand")
    found = findings(cli("doctor", "--data", str(broker.data_dir), "--bootstrap", broker.bootstrap, "--output", "json"))
    assert f"process {broker.process.pid}" in found["in use"][0]["text"]
    assert found["identity"][0]["status"] == "ok"
    assert "in use" in found["open files"][0]["text"]
    assert found["settings"][0]["status"] == "ok"


def test_nobody_answers(cli_of: Callable[[None], Any]) -> None:
    found = findings(cli_of(None)("doctor", "--bootstrap", "127.0.0.1:1", "--output", "json"))
    assert found["connection"][0]["status"] == "problem"


def test_an_advertised_listener_that_leads_nowhere(
    start_broker: Callable[..., Broker], cli_of: Callable[[Broker], Any], target_kind: str
) -> None:
    if target_kind != "braidlog":
        pytest.skip("its other tools need the advertised listener to start it")
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))
        nowhere = f"127.0.0.1:{nobody.getsockname()[1]}"
        # The line that says it is ready names what is advertised, so the real port is given beforehand.
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        broker = start_broker(
            {"listeners": f"PLAINTEXT://127.0.0.1:{port}", "advertised.listeners": f"PLAINTEXT://{nowhere}"}
        )
        cli = cli_of(broker)
        found = findings(cli("doctor", "--bootstrap", f"127.0.0.1:{port}", "--output", "json"))
        (advertised,) = found["advertised listener"]
        assert advertised["status"] == "problem"
        assert nowhere in advertised["text"]
        assert "advertised.listeners" in advertised["advice"]
        cli("consume", "x", "--bootstrap", f"127.0.0.1:{port}").failed("x")


def test_a_port_that_is_taken(tmp_path: Path, cli_of: Callable[[None], Any]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        listener = f"listeners=PLAINTEXT://127.0.0.1:{taken.getsockname()[1]}"
        outcome = cli_of(None)("doctor", "--data", str(tmp_path / "new"), "--set", listener, "--output", "json")
    (port,) = findings(outcome)["port"]
    assert port["status"] == "problem"
    assert "is taken by" in port["text"]


def test_the_directory_of_another_cluster_and_an_unclean_stop(
    topic: str, start_broker: Callable[..., Broker], cli_of: Callable[[Broker | None], Any], target_kind: str
) -> None:
    if target_kind != "braidlog":
        pytest.skip("it is about our own store")
    brokers = [start_broker({}), start_broker({})]
    for broker in brokers:
        cli_of(broker)("topics", "create", topic).succeeded()
        broker.kill()
    first, second = (broker.data_dir for broker in brokers)
    cli = cli_of(None)
    port = "listeners=PLAINTEXT://127.0.0.1:0"
    found = findings(cli("doctor", "--data", str(first), "--set", port, "--output", "json"))
    assert found["last stop"][0]["status"] == "warning"
    assert found["identity"][0]["status"] == "ok"
    (identity,) = findings(cli("doctor", "--data", f"{first},{second}", "--set", port, "--output", "json"))["identity"]
    assert identity["status"] == "problem"
    assert "belongs to cluster" in identity["text"]
    shutil.copy(second / "meta.properties", first / "meta.properties")
    (identity,) = findings(cli("doctor", "--data", str(first), "--set", port, "--output", "json"))["identity"]
    assert identity["status"] == "problem"
    assert "the coordination store belongs to cluster" in identity["text"]


def test_settings_that_lose_records(
    topic: str, start_broker: Callable[..., Broker], cli_of: Callable[[Broker], Any]
) -> None:
    broker = start_broker({})
    cli = cli_of(broker)
    settings = ("--config", "min.insync.replicas=2", "--config", "unclean.leader.election.enable=true")
    cli("topics", "create", topic, *settings).succeeded()
    found = findings(cli("doctor", "--output", "json"))
    assert found["replication"][0]["status"] == "warning"
    assert topic in found["replication"][0]["text"]
    assert found["unclean election"][0]["status"] == "warning"


def test_settings_that_are_wrong(tmp_path: Path, cli_of: Callable[[None], Any]) -> None:
    file = tmp_path / "server.properties"
    file.write_text(f"log.dirs={tmp_path}/data\nnum.partitions=none\n")
    (finding,) = findings(cli_of(None)("doctor", "--config", str(file), "--output", "json"))["settings"]
    assert finding["status"] == "problem"
    assert f"{file}:2" in finding["text"]
    file.write_text(f"log.dirs={tmp_path}/data\nlisteners=PLAINTEXT://127.0.0.1:0\nlog.retention.hour=1\n")
    (finding,) = findings(cli_of(None)("doctor", "--config", str(file), "--output", "json"))["settings"]
    assert finding["status"] == "warning"
    assert "log.retention.hours" in finding["text"]


@pytest.mark.parametrize(
    ("text", "environment"),
    [
        ("principal.builder.class=a.B\nquota.producer.default=5\n", {"KAFKA_ZOOKEEPER_CONNECT": "z:2181"}),
        ("listeners=SSL://127.0.0.1:0\nsecurity.inter.broker.protocol=SSL\nssl.keystore.key=x\n", {}),
        ("listeners=SASL_PLAINTEXT://127.0.0.1:0\nsecurity.inter.broker.protocol=SASL_PLAINTEXT\n", {}),
        ("listeners=PLAINTEXT://127.0.0.1:0\ncreate.topic.policy.class.name=no_such_module:policy\n", {}),
    ],
)
def test_what_a_broker_does_not_start_with(
    text: str, environment: dict[str, str], tmp_path: Path, cli_of: Callable[[None], Any]
) -> None:
    """`doctor` has a problem in the same words for each line with which `serve` ends."""
    file = tmp_path / "server.properties"
    file.write_text(f"log.dirs={tmp_path}/data\n{text}")
    cli = cli_of(None)
    cli.environment.update(environment)
    served = cli("serve", "--config", str(file))
    assert served.code == 1
    found = findings(cli("doctor", "--config", str(file), "--output", "json"))
    reported = [f"braidlog: {each['text']}; {each['advice']}" for each in found["settings"]]
    assert reported == [line for line in served.err.splitlines() if line.startswith("braidlog: ")]
    assert {each["status"] for each in found["settings"]} == {"problem"}
    assert not (tmp_path / "data").exists()
    # The rest is looked at all the same.
    assert "open files" in found


@pytest.mark.parametrize(
    ("listeners", "reported"),
    [
        ("FOO://127.0.0.1:0", "which protocol the listener FOO speaks"),
        ("PLAINTEXT://0.0.0.0:0", "clients cannot connect to 0.0.0.0"),
    ],
)
def test_listeners_that_make_no_sense(
    listeners: str, reported: str, tmp_path: Path, cli_of: Callable[[None], Any]
) -> None:
    settings = ("--data", str(tmp_path / "data"), "--set", f"listeners={listeners}")
    served = cli_of(None)("serve", *settings).failed(reported)
    (finding,) = findings(cli_of(None)("doctor", *settings, "--output", "json"))["settings"]
    assert finding["status"] == "problem"
    assert served.err == f"braidlog: {finding['text']}\n"


def test_settings_without_effect(
    start_broker: Callable[..., Broker], cli_of: Callable[[Broker], Any], target_kind: str
) -> None:
    if target_kind != "braidlog":
        pytest.skip("they have their effect there")
    broker = start_broker(
        {"broker.id": "1", "num.io.threads": "4", "num.network.threads": "2", "super.users": "User:a",
         "braidlog.allow.settings.without.effect": "super.users"}
    )  # fmt: skip
    lines = [line for line in broker.log().splitlines() if "effect" in line]
    (allowed,) = (line for line in lines if "WARNING" in line)
    assert "super.users has no effect" in allowed
    (listed,) = (line for line in lines if "INFO" in line)
    assert listed.endswith("(docs/SETTINGS.md says why): num.io.threads, num.network.threads")
    change = "listener.name.plaintext.principal.builder.class=a.B"
    cli_of(broker)("configs", "alter", "--broker", "1", "--set", change).failed("principal.builder.class has no effect")
