"""Synthetic load, and settings under a name, through the program itself."""

from __future__ import annotations

import signal
import subprocess
from pathlib import Path
from typing import Any

from support.broker import Broker

LATENCIES = [f"latency_{name}_ms" for name in ("avg", "p50", "p95", "p99", "p999", "max")]


def test_a_load_is_written_and_read(cli: Any, topic: str) -> None:
    load = ("--records", "2000", "--size", "50", "--compression", "lz4")
    written = cli("perf", "produce", topic, *load, "--output", "json").succeeded()
    assert written.err == ""
    row = written.json
    assert (row["topic"], row["records"], row["bytes"]) == (topic, 2000, 100_000)
    assert row["records_per_s"] > 0
    assert all(row[name] > 0 for name in LATENCIES)
    assert row["latency_p50_ms"] <= row["latency_p99_ms"] <= row["latency_max_ms"]
    assert sum(each["records"] for each in cli("topics", "offsets", topic, "--output", "json").json) == 2000

    read = cli("perf", "consume", topic, "--output", "json").succeeded().json
    assert (read["records"], read["bytes"]) == (2000, 100_000)
    assert read["first_record_ms"] > 0
    assert cli("perf", "consume", topic, "--records", "7", "--output", "json").succeeded().json["records"] == 7
    lines = cli("perf", "consume", topic).succeeded().lines
    assert lines[1].split() == ["records", "2000"]


def test_a_rate_is_kept(cli: Any, topic: str) -> None:
    row = cli("perf", "produce", topic, "--records", "100", "--rate", "100", "--output", "json").succeeded().json
    assert row["seconds"] >= 0.99
    assert row["records"] == 100


def test_live_records_have_a_latency(cli: Any, topic: str) -> None:
    cli("topics", "create", topic).succeeded()
    words = ("perf", "consume", topic, "--offset", "latest", "--records", "50", "--timeout", "60", "--output", "json")
    with subprocess.Popen([*cli.program, *words], stdout=subprocess.PIPE, text=True, env=cli.environment) as consume:
        # Enough that some come after the consumer has found the end.
        while consume.poll() is None:
            cli("perf", "produce", topic, "--records", "200", "--rate", "200").succeeded()
        assert consume.stdout is not None
        read = consume.stdout.read()
    assert '"records": 50' in read
    assert '"latency_p50_ms": null' not in read


def test_what_a_load_is_refused_for(cli: Any, topic: str) -> None:
    cli("perf", "consume", topic).failed("[UNKNOWN_TOPIC_OR_PARTITION]")
    cli("topics", "create", topic, "--topic-config", "max.message.bytes=1000").succeeded()
    cli("perf", "produce", topic, "--size", "5000", "--records", "10").failed("[MESSAGE_TOO_LARGE]")
    cli("perf", "produce", topic, "--partition", "5").failed("has no partition 5")
    cli("perf", "produce", topic, "--size", "-1").failed("is not a size in bytes", code=2)
    cli("perf").failed("ACTION", code=2)


def test_an_interrupted_load_says_what_was_measured(cli: Any, topic: str) -> None:
    cli("topics", "create", topic).succeeded()
    words = ("perf", "produce", topic, "--records", "1000000", "--rate", "200", "--output", "json")
    with subprocess.Popen(
        [*cli.program, *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=cli.environment
    ) as produce:
        cli("consume", topic, "--offset", "earliest", "--max-messages", "1", "--timeout", "60").succeeded()
        produce.send_signal(signal.SIGINT)
        out, err = produce.communicate(timeout=60)
    assert produce.returncode == 130
    assert "Traceback" not in err
    assert '"records": ' in out


def test_a_profile_names_the_cluster(cli_of: Any, broker: Broker, tmp_path: Path) -> None:
    cli = cli_of(None)
    cli.environment["XDG_CONFIG_HOME"] = str(tmp_path)
    file = tmp_path / "braidlog" / "profiles.toml"
    file.parent.mkdir()
    file.write_text(f'[here]\nbootstrap.servers = "{broker.bootstrap}"\n[away]\nbootstrap.servers = "127.0.0.1:1"\n')
    cli("brokers", "--profile", "here").succeeded()
    cli("brokers", "--profile", "away").failed("no broker answers at 127.0.0.1:1")
    cli("brokers", "--profile", "nowhere").failed("it has away, here")
    cli.environment["BRAIDLOG_PROFILE"] = "here"
    cli("brokers").succeeded()
    cli("doctor").succeeded()
    assert [row["chosen"] for row in cli("profiles", "list", "--output", "json").succeeded().json] == [False, True]
