"""`braidlog consume --schema-registry`: what Confluent's serializers wrote, from a broker, printed as JSON."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from braidlog import Producer
from support.broker import Broker
from support.certificates import Authority
from support.registry_records import captured
from support.schema_registry import RunningRegistry, running_registry

CAPTURED = captured()
START = ("--offset", "earliest", "--exit-at-end")


def filled(running: RunningRegistry) -> RunningRegistry:
    running.contents.schemas.update(CAPTURED.schemas)
    running.contents.subjects.update(CAPTURED.subjects)
    return running


@pytest.fixture
def registry() -> Iterator[RunningRegistry]:
    with running_registry() as running:
        yield filled(running)


def produce(broker: Broker, topic: str, *values: bytes | None, key: bytes | None = None) -> None:
    with Producer(bootstrap_servers=broker.bootstrap) as producer:
        for value in values:
            producer.send(topic, value, key, partition=0).result(30)


def test_values_of_every_kind_are_printed_as_json(
    cli: Any, topic: str, broker: Broker, registry: RunningRegistry
) -> None:
    cli("topics", "create", topic).succeeded()
    produce(broker, topic, *(each.data for each in CAPTURED.records), None, key=b"plain")
    asked = ("consume", topic, *START, "--schema-registry", registry.url)
    printed = cli(*asked).succeeded()
    assert [json.loads(line) for line in printed.lines] == [*(each.means for each in CAPTURED.records), None]
    assert "Ångström" in printed.out
    objects = cli(*asked, "--output", "json").succeeded().json_lines
    assert [each["value"] for each in objects] == [*({"json": each.means} for each in CAPTURED.records), None]
    assert {each["key"] for each in objects} == {"plain"}
    assert cli(*asked, "--format", "%k %p", "--max-messages", "1").succeeded().lines == ["plain 0"]


def test_keys_too(cli: Any, topic: str, broker: Broker, registry: RunningRegistry) -> None:
    cli("topics", "create", topic).succeeded()
    produce(broker, topic, CAPTURED.records[1].data, key=CAPTURED.records[3].data)
    asked = ("consume", topic, *START, "--format", "%k|%v", "--schema-registry", registry.url)
    means = [json.dumps(CAPTURED.records[at].means, ensure_ascii=False, separators=(",", ":")) for at in (3, 1)]
    assert cli(*asked, "--decode", "both").succeeded().lines == ["|".join(means)]
    only_key = cli(*asked, "--decode", "key", "--value-format", "hex").succeeded().lines
    assert only_key == [f"{means[0]}|{CAPTURED.records[1].data.hex()}"]


def test_what_cannot_be_decoded(cli: Any, topic: str, broker: Broker, registry: RunningRegistry) -> None:
    cli("topics", "create", topic).succeeded()
    good = CAPTURED.records[1]
    produce(broker, topic, good.data, b'{"id": 1}', good.data)
    asked = ("consume", topic, *START, "--schema-registry", registry.url)
    stopped = cli(*asked).failed(
        f"{topic}-0, offset 1: the value does not begin with a schema id: 7b 22 69 64 22; "
        "--undecodable skip leaves such records out, raw prints their bytes"
    )
    assert [json.loads(line) for line in stopped.lines] == [good.means]
    skipped = cli(*asked, "--undecodable", "skip").succeeded()
    assert [json.loads(line) for line in skipped.lines] == [good.means] * 2
    assert "left out, since not decodable: 1 record\n" in skipped.err
    raw = cli(*asked, "--undecodable", "raw").succeeded()
    assert [json.loads(line) for line in raw.lines] == [good.means, {"id": 1}, good.means]


def test_a_group_goes_on_at_the_record_that_stopped_it(
    cli: Any, topic: str, broker: Broker, registry: RunningRegistry
) -> None:
    cli("topics", "create", topic).succeeded()
    good = CAPTURED.records[1]
    produce(broker, topic, good.data, b"bad", good.data)
    asked = ("consume", topic, "--group", f"g-{topic}", "--offset", "earliest", "--timeout", "30")
    registered = (*asked, "--schema-registry", registry.url)
    cli(*registered, "--max-messages", "2").failed(f"{topic}-0, offset 1: ")
    assert cli(*asked, "--max-messages", "1").succeeded().out == "bad\n"


def test_logins_come_from_files_and_the_environment(cli: Any, topic: str, broker: Broker, tmp_path: Path) -> None:
    cli("topics", "create", topic).succeeded()
    good = CAPTURED.records[1]
    produce(broker, topic, good.data)
    authority = Authority(tmp_path)
    server = authority.issue("registry", "127.0.0.1")
    with running_registry(user="ann", password="s3:cret", tls=(server.certificate, server.key)) as running:
        filled(running)
        file = tmp_path / "client.properties"
        file.write_text(
            f"schema.registry.url={running.url}\nbasic.auth.credentials.source=USER_INFO\n"
            f"basic.auth.user.info=ann:s3:cret\nschema.registry.ssl.ca.location={authority.certificate}\n"
        )
        reported = cli("consume", topic, *START, "--decode", "value", "--config", str(file)).succeeded()
        assert [json.loads(line) for line in reported.lines] == [good.means]
        assert "no client knows" not in reported.err
        untrusted = cli("consume", topic, *START, "--schema-registry", running.url)
        untrusted.failed("is not trusted")
        assert "-X schema.registry.ssl.ca.location=FILE" in untrusted.err
        trust = ("-X", f"schema.registry.ssl.ca.location={authority.certificate}")
        refused = cli("consume", topic, *START, "--schema-registry", running.url, *trust)
        refused.failed("the registry refuses access to")
        cli.environment["BRAIDLOG_SCHEMA_REGISTRY"] = running.url
        cli.environment["BRAIDLOG_SCHEMA_REGISTRY_USER_INFO"] = "ann:wr0ng"
        refused = cli("consume", topic, *START, "--decode", "value", *trust).failed("refuses access")
        assert "wr0ng" not in refused.err
        cli.environment["BRAIDLOG_SCHEMA_REGISTRY_USER_INFO"] = "ann:s3:cret"
        assert cli("consume", topic, *START, "--decode", "value", *trust).succeeded().lines == reported.lines
        # Nothing is asked of a registry unless it is asked for.
        assert cli.bytes("consume", topic, *START).stdout == good.data + b"\n"


def test_mistakes_are_told(cli: Any, topic: str, broker: Broker) -> None:
    cli("topics", "create", topic).succeeded()
    produce(broker, topic, CAPTURED.records[1].data)
    cli("consume", topic, *START, "--decode", "value").failed("give --schema-registry URL")
    cli("consume", topic, *START, "--schema-registry", "host:1").failed("http://host:port")
    refused = cli("consume", topic, *START, "--schema-registry", "http://ann:s3cret@host").failed(
        "give the registry's user and password apart from its address, in $BRAIDLOG_SCHEMA_REGISTRY_USER_INFO"
    )
    assert "s3cret" not in refused.err
    cli("consume", topic, *START, "--schema-registry", "http://h:1", "--value-format", "hex").failed(
        "leave out --value-format"
    )
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        closed = f"http://127.0.0.1:{unused.getsockname()[1]}"
        cli("consume", topic, *START, "--schema-registry", closed).failed(
            f"the schema registry does not answer at {closed}"
        )
