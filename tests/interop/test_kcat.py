"""kcat: the command line client that many people reach for first."""

from __future__ import annotations

import json
import subprocess

import pytest
from tools.peers.kcat import run_kcat

from support import confluent
from support.broker import Broker
from support.samples import BASE_TIMESTAMP_MS, CODECS, Sample

pytestmark = [pytest.mark.peer, pytest.mark.usefixtures("kcat")]


def run(broker: Broker, *arguments: str, lines: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    done = run_kcat(["-b", broker.bootstrap, *arguments], input_bytes=lines)
    assert done.returncode == 0, done.stderr.decode()
    return done


@pytest.mark.parametrize("codec", CODECS)
def test_produce_and_consume(broker: Broker, topic: str, codec: str) -> None:
    lines = b"".join(b"k%d:value %d\n" % (number % 3, number) for number in range(200))
    run(broker, "-P", "-t", topic, "-p", "0", "-K:", "-z", codec, lines=lines)
    read = run(broker, "-C", "-t", topic, "-p", "0", "-o", "beginning", "-e", "-q", "-f", "%k:%s\n")
    assert read.stdout == lines


def test_idempotence_null_values_and_headers(broker: Broker, topic: str) -> None:
    run(
        broker, "-P", "-t", topic, "-p", "0", "-Z", "-K:", "-H", "trace=abc", "-X", "enable.idempotence=true",
        lines=b"a:1\nb:\n",
    )  # fmt: skip
    read = run(broker, "-C", "-t", topic, "-p", "0", "-o", "beginning", "-e", "-q", "-J")
    records = [json.loads(line) for line in read.stdout.splitlines()]
    assert [(r["offset"], r["key"], r["payload"], r["headers"]) for r in records] == [
        (0, "a", "1", ["trace", "abc"]),
        (1, "b", None, ["trace", "abc"]),
    ]


def test_offsets_from_either_end_and_by_time(broker: Broker, topic: str) -> None:
    samples = [Sample(None, b"%d" % n, timestamp_ms=BASE_TIMESTAMP_MS + n) for n in range(20)]
    confluent.send(confluent.producer(broker.bootstrap), topic, samples)

    def consume(*arguments: str) -> list[bytes]:
        return run(broker, "-C", "-t", topic, "-p", "0", "-e", "-q", *arguments).stdout.split()

    assert consume("-o", "17") == [b"17", b"18", b"19"]
    assert consume("-o", "-2") == [b"18", b"19"]
    assert consume("-o", f"s@{BASE_TIMESTAMP_MS + 15}") == [b"15", b"16", b"17", b"18", b"19"]
    assert consume("-o", "beginning", "-c", "2") == [b"0", b"1"]
    query = run(broker, "-Q", "-t", f"{topic}:0:{BASE_TIMESTAMP_MS + 7}")
    assert query.stdout.split()[-1] == b"7"


def test_metadata_listing(broker: Broker, topic: str) -> None:
    confluent.create_topic(broker.bootstrap, topic, partitions=2)
    listing = json.loads(run(broker, "-L", "-J", "-t", topic).stdout)
    assert [node["name"] for node in listing["brokers"]] == [broker.bootstrap]
    assert [p["partition"] for p in listing["topics"][0]["partitions"]] == [0, 1]


@pytest.mark.parametrize("release", ["0.8.2", "0.9.0", "0.10.0"])
def test_old_releases(broker: Broker, topic: str, release: str) -> None:
    confluent.create_topic(broker.bootstrap, topic)
    old = ("-X", "api.version.request=false", "-X", f"broker.version.fallback={release}")
    run(broker, "-P", "-t", topic, "-p", "0", "-z", "gzip", *old, lines=b"one\ntwo\n")
    read = run(broker, "-C", "-t", topic, "-p", "0", "-o", "beginning", "-e", "-q", *old)
    assert read.stdout == b"one\ntwo\n"
