"""`braidlog certs init`: what it prints is pasted into a broker's file and a client's, and they trust each other."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient

from support.broker import start_braidlog


@pytest.fixture
def cli(cli_of: Any) -> Any:
    return cli_of(None)


def test_what_is_printed_works(cli: Any, tmp_path: Path) -> None:
    certs = tmp_path / "new" / "tls"
    made = cli("certs", "init", str(certs), "--host", "localhost", "--client", "alice").succeeded()
    broker, client, librdkafka = re.split(r"\n\n# .*\n", made.out)[1:]
    (tmp_path / "broker.properties").write_text(broker)
    arguments = ("--config", str(tmp_path / "broker.properties"))
    # Only the port is another.
    settings = {"listeners": "SSL://localhost:0"}
    assert "listeners=SSL://localhost:9093" in broker
    with start_braidlog(tmp_path / "data", settings, arguments=arguments) as running:
        address = f"localhost:{running.port}"
        (tmp_path / "client.properties").write_text(client.replace("localhost:9093", address))
        cli("topics", "create", "t", "--config", str(tmp_path / "client.properties")).succeeded()
        properties = dict(line.split("=", 1) for line in librdkafka.splitlines())
        found = AdminClient({**properties, "bootstrap.servers": address}).list_topics(timeout=30)
        assert "t" in found.topics
        without = ("-X", "security.protocol=SSL", "-X", f"ssl.truststore.location={certs / 'ca.crt'}")
        asked = cli("topics", "list", "--bootstrap", address, *without)
        asked.failed("wants clients to have a certificate")
        assert running.stop() == 0


def test_nobody_else_reads_the_keys_and_nothing_is_overwritten(cli: Any, tmp_path: Path) -> None:
    certs = tmp_path / "tls"
    made = cli("certs", "init", str(certs)).succeeded()
    modes = {path.name: oct(path.stat().st_mode & 0o777) for path in certs.iterdir()}
    assert modes == {"ca.crt": "0o644", "ca.key": "0o600", "broker.pem": "0o600", "client.pem": "0o600"}
    assert "PRIVATE KEY" not in made.out
    before = {path: path.read_bytes() for path in certs.iterdir()}
    cli("certs", "init", str(certs)).failed("exists, and nothing is overwritten")
    assert {path: path.read_bytes() for path in certs.iterdir()} == before


def test_for_scripts(cli: Any, tmp_path: Path) -> None:
    shown = cli("certs", "init", str(tmp_path / "tls"), "--output", "json").succeeded().json
    assert shown["files"]["ca.crt"] == str(tmp_path / "tls" / "ca.crt")
    assert shown["broker"]["ssl.keystore.location"] == str(tmp_path / "tls" / "broker.pem")
    assert shown["client"]["security.protocol"] == "SSL"


def test_what_cannot_be(cli: Any, tmp_path: Path) -> None:
    place = str(tmp_path / "file" / "tls")
    (tmp_path / "file").write_text("")
    cli("certs", "init", place).failed("Not a directory")
    cli("certs", "init", place, "--host", "naïve.example").failed("--host: ")
    cli("certs", "init", place, "--days", "0").failed("a number of days", 2)
    cli("certs", "init", place, "--client", "").failed("1 to 64 characters", 2)
