"""Produce and consume: in one end, out of the other."""

from __future__ import annotations

import os
import pty
import signal
import subprocess
from collections.abc import Callable
from typing import Any

import pytest

from support.broker import Broker
from support.eventually import eventually

START = ("--offset", "earliest", "--exit-at-end")
# For records of years ago, which the broker would otherwise delete when it next looks at its logs.
FOREVER = ("--topic-config", "retention.ms=-1")


def test_lines_go_in_and_come_out(cli: Any, topic: str) -> None:
    cli("topics", "create", topic).succeeded()
    written = cli("produce", topic, stdin="one\ntwo\n\nthree").succeeded()
    assert written.out == f"4 records written to {topic}\n"
    assert cli("consume", topic, *START).succeeded().out == "one\ntwo\n\nthree\n"


def test_keys_headers_and_everything_else(cli: Any, topic: str) -> None:
    cli("topics", "create", topic, "--partitions", "7", *FOREVER).succeeded()
    written = cli(
        "produce", topic, "--key-separator", ":", "--null", "NULL", "--header", "a=1", "--header", "b=",
        "--timestamp", "2023-11-14T22:13:20Z", "--output", "json", stdin="foobar:x\n21:NULL\n",
    ).succeeded()  # fmt: skip
    assert written.json == {
        "topic": topic,
        "records": 2,
        "partitions": [
            {"partition": 0, "first_offset": 0, "last_offset": 0},
            {"partition": 3, "first_offset": 0, "last_offset": 0},
        ],
    }, "the partitions that the Java client chooses"
    shaped = cli("consume", topic, *START, "--format", r"%n %p %o %k=%v %K %V\t%t %T %h").succeeded()
    stamp = "1700000000000 2023-11-14T22:13:20.000Z a=1,b="
    assert sorted(shaped.lines) == [
        f"{topic} 0 0 foobar=x 6 1\t{stamp}",
        f"{topic} 3 0 21=null 2 -1\t{stamp}",
    ]
    records = cli("consume", topic, *START, "--output", "json").succeeded().json_lines
    assert max(records, key=lambda record: record["partition"]) == {
        "topic": topic,
        "partition": 3,
        "offset": 0,
        "timestamp": 1_700_000_000_000,
        "key": "21",
        "value": None,
        "headers": [{"key": "a", "value": "1"}, {"key": "b", "value": ""}],
    }


def test_json_lines_copy_a_topic(cli: Any, topic: str) -> None:
    copy = f"{topic}-copy"
    # The records are of 1970: retention would find them.
    for name in (topic, copy):
        cli("topics", "create", name, "--partitions", "2", *FOREVER).succeeded()
    line = '{"key": {"base64": "/wA="}, "value": "ü", "partition": 1, "timestamp": 5, "headers": {"h": null}}'
    cli("produce", topic, "--input", "json", stdin=f"{line}\n" * 3).succeeded()
    dumped = cli("consume", topic, *START, "--output", "json").succeeded()
    cli("produce", copy, "--input", "json", stdin=dumped.out).succeeded()
    copied = cli("consume", copy, *START, "--output", "json").succeeded()
    assert [{**each, "topic": copy} for each in dumped.json_lines] == copied.json_lines
    assert [each["partition"] for each in copied.json_lines] == [1, 1, 1]


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_codecs(cli: Any, topic: str, codec: str) -> None:
    lines = "".join(f"record number {number}\n" for number in range(5_000))
    cli("produce", topic, "--compression", codec, stdin=lines).succeeded()
    assert cli("consume", topic, *START).succeeded().out == lines


def test_where_to_start(cli: Any, topic: str) -> None:
    lines = "".join(f"record number {number}\n" for number in range(20_000))
    cli("produce", topic, "--compression", "lz4", stdin=lines).succeeded()
    assert cli("consume", topic, *START).succeeded().out == lines
    assert cli("consume", topic, "--offset", "-2", "--exit-at-end").succeeded().lines == [
        "record number 19998",
        "record number 19999",
    ]
    middle = cli("consume", topic, "--offset", "12345", "--max-messages", "2").succeeded()
    assert middle.lines == ["record number 12345", "record number 12346"]


def test_bytes_stay_bytes(cli: Any, topic: str) -> None:
    cli("topics", "create", topic).succeeded()
    assert cli.bytes("produce", topic, "--value", "\udcff\udcfe").returncode == 0
    done = cli.bytes("consume", topic, *START, "--delimiter", "")
    assert done.stdout == b"\xff\xfe"


def test_one_record_of_the_command_line(cli: Any, topic: str) -> None:
    cli("topics", "create", topic, "--partitions", "3").succeeded()
    cli("produce", topic, "--key", "k", "--value", "a:b", "--partition", "2", "--acks", "1").succeeded()
    assert cli("consume", topic, "--partition", "2", *START, "--format", "%k=%v").succeeded().out == "k=a:b\n"
    assert cli("consume", topic, "--partition", "0", "--partition", "1", *START).succeeded().out == ""


def test_without_acks(cli: Any, topic: str) -> None:
    cli("topics", "create", topic).succeeded()
    sent = cli("produce", topic, "--acks", "0", stdin="a\nb\n").succeeded()
    assert sent.out == f"2 records sent without waiting for the broker to {topic}\n"
    read = ("consume", topic, "--offset", "earliest", "--max-messages", "2", "--timeout", "20")
    assert cli(*read).succeeded().lines == ["a", "b"]


def test_from_a_time_on(cli: Any, topic: str) -> None:
    cli("topics", "create", topic, *FOREVER).succeeded()
    for time in ("2024-01-01T00:00:00Z", "2024-01-02T00:00:00Z", "2024-01-03T00:00:00Z"):
        cli("produce", topic, "--value", time, "--timestamp", time).succeeded()
    assert cli("consume", topic, "--offset", "@2024-01-01T12:00:00Z", "--exit-at-end").succeeded().lines == [
        "2024-01-02T00:00:00Z",
        "2024-01-03T00:00:00Z",
    ]
    assert cli("consume", topic, "--offset", "@2030-01-01T00:00:00Z", "--exit-at-end").succeeded().out == ""


def test_ranges_end_by_themselves(cli: Any, topic: str) -> None:
    cli("topics", "create", topic, "--partitions", "2", *FOREVER).succeeded()
    for partition in "01":
        lines = "".join(f"{partition}-{number}\n" for number in range(10))
        cli("produce", topic, "--partition", partition, "--timestamp", "2024-01-01T00:00:00Z", stdin=lines).succeeded()
    cli("produce", topic, "--partition", "0", "--value", "later", "--timestamp", "2024-01-02T00:00:00Z").succeeded()

    def read(offset: str, *options: str) -> list[str]:
        return sorted(cli("consume", topic, "--offset", offset, *options).succeeded().lines)

    assert read("3:5") == ["0-3", "0-4", "1-3", "1-4"]
    assert read("3:5", "--partition", "1") == ["1-3", "1-4"]
    assert read("3:9", "--partition", "1", "--max-messages", "2") == ["1-3", "1-4"]
    assert read("3:3") == []
    assert read(":1") == ["0-0", "1-0"]
    assert read("-2:-1") == ["0-9", "1-8"]
    assert read("-1:", "--exit-at-end") == ["1-9", "later"]
    assert len(read("earliest:latest")) == 21
    assert read("8:99", "--exit-at-end") == ["0-8", "0-9", "1-8", "1-9", "later"]
    assert read("@2024-01-01T12:00:00Z:@2024-01-03T00:00:00Z") == ["later"]
    assert read("9:@2024-01-01T12:00:00Z", "--partition", "0") == ["0-9"]


@pytest.mark.parametrize("isolation", ["read_committed", "read_uncommitted"])
def test_a_range_ends_in_markers_and_aborted_records(cli: Any, topic: str, isolation: str) -> None:
    """0, 1 committed, 2 marker, 3 aborted, 4 marker, 5 plain: a range may end at any of them."""
    cli("topics", "create", topic).succeeded()
    identity = ("--transactional-id", f"id-{topic}")
    cli("produce", topic, *identity, stdin="a\nb\n").succeeded()
    cli("produce", topic, *identity, "--input", "json", stdin='{"value": "x"}\nnot json\n').failed("line 2: not JSON")
    cli("produce", topic, "--value", "c").succeeded()
    shows = {0: "a", 1: "b", 5: "c", **({3: "x"} if isolation == "read_uncommitted" else {})}
    for end in range(7):
        done = cli("consume", topic, "--offset", f"0:{end}", "--isolation", isolation).succeeded()
        assert done.lines == [shows[offset] for offset in sorted(shows) if offset < end]


def test_who_waits_on_a_terminal_is_told_so(cli: Any, topic: str) -> None:
    cli("topics", "create", topic).succeeded()
    cli("produce", topic, "--value", "old").succeeded()
    own, theirs = pty.openpty()
    command = [*cli.program, "consume", topic]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=theirs, env=cli.environment) as waiting:
        os.close(theirs)
        said = b""
        while b"\n" not in said:
            said += os.read(own, 4096)
        assert said == b"braidlog: waiting for new records; --offset earliest for old ones\r\n"
        waiting.send_signal(signal.SIGTERM)
        assert waiting.wait(30) == 143
    os.close(own)


def test_follows_what_comes_until_told_to_stop(cli: Any, topic: str) -> None:
    cli("topics", "create", topic).succeeded()
    command = [*cli.program, "consume", topic, "--offset", "earliest"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, env=cli.environment) as following:
        assert following.stdout is not None
        for value in ("first", "second"):
            cli("produce", topic, "--value", value).succeeded()
            assert following.stdout.readline() == f"{value}\n".encode()
        following.send_signal(signal.SIGINT)
        assert following.wait(30) == 130
    assert cli("consume", topic, "--timeout", "0.2").succeeded().out == "", "latest, and nothing came"


def test_a_line_is_sent_when_it_is_typed(cli: Any, topic: str) -> None:
    cli("topics", "create", topic).succeeded()
    command = [*cli.program, "produce", topic]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=cli.environment) as typing:
        assert typing.stdin is not None
        typing.stdin.write(b"hello\n")
        typing.stdin.flush()
        read = ("consume", topic, "--offset", "earliest", "--max-messages", "1", "--timeout", "30")
        assert cli(*read).succeeded().out == "hello\n"
        typing.communicate()
    assert typing.returncode == 0


def test_a_reader_that_has_seen_enough(cli: Any, topic: str) -> None:
    cli("produce", topic, stdin="x" * 100 + "\n" + "line\n" * 50_000).succeeded()
    words = " ".join([*cli.program, "consume", topic, *START])
    done = subprocess.run(
        ["bash", "-c", f"set -o pipefail; {words} | head -n 1"],
        capture_output=True,
        env=cli.environment,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, b"x" * 100 + b"\n", b"")


def test_a_record_of_a_megabyte_and_one_too_large(cli: Any, topic: str) -> None:
    cli("topics", "create", topic).succeeded()
    cli("produce", topic, stdin="y" * 1_000_000 + "\n").succeeded()
    refused = cli("produce", topic, stdin="small\n" + "z" * 1_100_000 + "\n").failed("[MESSAGE_TOO_LARGE]")
    assert "; 1 records were written [" in refused.err
    sizes = cli("consume", topic, *START, "--format", "%V").succeeded()
    assert sizes.lines == ["1000000", "5"]


def test_topics_come_into_being_where_the_broker_allows_it(
    cli: Any, topic: str, start_broker: Callable[..., Broker], cli_of: Callable[[Broker], Any]
) -> None:
    cli("produce", topic, "--value", "x").succeeded()
    assert cli("consume", topic, *START).succeeded().out == "x\n"
    strict = cli_of(start_broker({"auto.create.topics.enable": "false"}))
    strict("produce", topic, "--value", "x").failed("[UNKNOWN_TOPIC_OR_PARTITION]")


def test_mistakes_of_producers(cli: Any, topic: str) -> None:
    cli("topics", "create", topic, "--config", "cleanup.policy=compact").succeeded()
    cli("produce", topic, "--value", "no key").failed("[INVALID_RECORD]")
    cli("produce", topic, "--key-separator", ":", stdin="a:b\nplain\n").failed("line 2: no ':' between")
    cli("produce", topic, "--input", "json", stdin="{}\n[]\n").failed("line 2: not a JSON object")
    cli("produce", topic, "--key", "k", "--key-separator", ":").failed("not both")
    cli("produce", topic, "--input", "json", "--key", "k").failed("--input json says key and value itself")
    cli("produce", topic, "--header", "x", "--value", "v").failed("give NAME=VALUE")
    cli("produce", topic, "--key", "k", "--value", "v", "--partition", "9").failed("no partition 9; it has 1")
    cli("produce", "bad name", "--value", "v").failed("[INVALID_TOPIC_EXCEPTION]")


def test_mistakes_of_consumers(cli: Any, topic: str) -> None:
    cli("topics", "create", topic).succeeded()
    cli("produce", topic, "--value", "x").succeeded()
    cli("consume", f"{topic}-missing").failed("[UNKNOWN_TOPIC_OR_PARTITION]")
    cli("consume", topic, "--partition", "1").failed("no partition 1; it has 1")
    cli("consume", topic, "--offset", "50").failed("ends at offset 1 and has no offset 50 yet")
    cli("consume", topic, "--offset", "50", "--exit-at-end").failed("ends at offset 1 and has no offset 50 yet")
    cli("consume", topic, "--offset", "50:60").failed("ends at offset 1 and has no offset 50 yet")
    cli("consume", topic, "--offset", "12345678901234567890123").failed("a whole number from 0 up to", code=2)
    cli("consume", topic, "--offset", "5:3").failed("ends before it begins", code=2)
    cli("consume", topic, "--offset", "0:1", "--group", "g").failed("ranges are read without --group")
    cli("consume", topic, "--output", "json", "--format", "%v").failed("leave out --format")
    cli("consume", topic, "--offset", "-x").failed("--offset", code=2)


def test_a_consumer_survives_a_restart_of_the_broker(
    topic: str, start_broker: Callable[..., Broker], cli_of: Callable[[Broker], Any], target_kind: str
) -> None:
    if target_kind != "braidlog":
        pytest.skip("the restart on the same port is tried with braidlog only")
    from support.broker import start_braidlog

    first = start_broker({})
    cli = cli_of(first)
    cli("topics", "create", topic).succeeded()
    cli("produce", topic, "--value", "before").succeeded()
    command = [*cli.program, "consume", topic, "--offset", "earliest", "--max-messages", "2"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, env=cli.environment) as following:
        assert following.stdout is not None
        assert following.stdout.readline() == b"before\n"
        assert first.stop() == 0
        with start_braidlog(first.data_dir, port=first.port) as second:
            eventually(lambda: second.process.returncode is None)
            cli("produce", topic, "--value", "after").succeeded()
            assert following.stdout.readline() == b"after\n"
            assert following.wait(30) == 0
            assert second.stop() == 0
    assert os.path.isdir(first.data_dir)
