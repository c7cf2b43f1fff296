"""What a single broker's cluster agrees on, and a topic's segments, as files: `cluster dump|restore`, `log
export|import`."""

from __future__ import annotations

import json
import os
import shutil
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from braidlog.client.admin.scram import ScramMechanism, ScramUpsertion
from braidlog.security.acls import Acl, AclOperation, AclResourceType
from braidlog.testing import Broker

RECORDS = 40
ACL = Acl(AclResourceType.TOPIC, "kept", "User:alice", AclOperation.READ)


@pytest.fixture
def cli(cli_of: Callable[[None], Any]) -> Any:
    return cli_of(None)


def send(broker: Broker, topic: str, first: int, count: int, **settings: Any) -> None:
    with broker.producer(linger_ms=0, **settings) as producer:
        for number in range(first, first + count):
            producer.send(topic, b"%d" % number + b"." * 80, partition=number % 2).result(30)


def read(broker: Broker, topic: str, count: int) -> list[tuple[int, int, int]]:
    """Partition, offset and number of so many records."""
    found: list[tuple[int, int, int]] = []
    with broker.consumer(topic, isolation_level="read_committed") as consumer:
        while len(found) < count:
            records = consumer.poll(10.0)
            assert records, f"{len(found)} of {count} records"
            found += [(each.partition, each.offset, int(bytes(each.value).rstrip(b"."))) for each in records]
    return sorted(found)


def expected(count: int) -> list[tuple[int, int, int]]:
    return sorted((number % 2, number // 2, number) for number in range(count))


def test_a_tree_is_dumped_while_it_is_in_use_and_put_back(tmp_path: Path, cli: Any) -> None:
    data, dump, secret = tmp_path / "data", tmp_path / "dump.jsonl", tmp_path / "secret.jsonl"
    settings = {"authorizer.class.name": "kafka.security.authorizer.AclAuthorizer", "super.users": "User:ANONYMOUS"}
    with Broker("thread", data_dir=data, settings=settings) as broker:
        broker.create_topic("kept", partitions=2, retention_ms=-1)
        admin = broker.admin()
        user = ScramUpsertion("alice", "secret-of-alice", ScramMechanism.SCRAM_SHA_256)
        admin.alter_scram_users([user]).raise_for_errors()
        admin.create_acls([ACL]).raise_for_errors()
        send(broker, "kept", 0, RECORDS)
        live = cli("cluster", "dump", str(dump), "--data", str(data), "--output", "json").succeeded()
        assert (live.json["topics"], live.json["partitions"], live.json["users"]) == (1, 2, 1)
        assert live.json["left_out"]["secrets"] == 1
        assert live.json["left_out"]["ephemerals"] >= 1
        assert "--include-secrets" in live.err
        cli("cluster", "restore", str(dump), "--data", str(data), "--replace").failed("in use by another broker")
        broker.stop()
        cli("cluster", "dump", str(secret), "--data", str(data), "--include-secrets").succeeded()
        assert stat.S_IMODE(secret.stat().st_mode) == 0o600
        assert "SCRAM" in secret.read_text()
        assert "SCRAM" not in dump.read_text()

        torn = tmp_path / "torn.jsonl"
        torn.write_bytes(secret.read_bytes()[:-20])
        cli("cluster", "restore", str(torn), "--data", str(data), "--replace").failed("it is torn")
        cli("cluster", "restore", str(secret), "--data", str(data)).failed("--replace removes them")
        for file in data.glob("braidlog-store.*"):
            file.unlink()
        done = cli("cluster", "restore", str(secret), "--data", str(data)).succeeded()
        assert "1 topics with 2 partitions" in done.out
        broker.start()
        assert read(broker, "kept", RECORDS) == expected(RECORDS)
        send(broker, "kept", RECORDS, 2)
        admin = broker.admin()
        (described,) = admin.describe_topics(["kept"]).succeeded.values()
        assert len(described.partitions) == 2
        assert admin.describe_acls() == [ACL]
        assert admin.describe_scram_users(["alice"]).succeeded["alice"][0].mechanism is ScramMechanism.SCRAM_SHA_256


def test_a_topic_goes_from_one_broker_to_another(tmp_path: Path, cli: Any) -> None:
    source, target, archive = tmp_path / "source", tmp_path / "target", tmp_path / "orders.archive"
    with Broker("thread", data_dir=source) as broker:
        broker.create_topic("orders", partitions=2, segment_bytes=1024, retention_ms=-1)
        send(broker, "orders", 0, RECORDS, enable_idempotence=True)
        cli("log", "export", "orders", str(archive), "--data", str(source)).failed("in use by")
        broker.stop()
        exported = cli("log", "export", "orders", str(archive), "--data", str(source), "--output", "json").succeeded()
    assert [each["end_offset"] for each in exported.json["partitions"]] == [RECORDS // 2] * 2
    assert exported.json["partitions"][0]["files"] > 6
    assert exported.json["configs"] == {"segment.bytes": "1024", "retention.ms": "-1"}
    cli("log", "verify", str(archive)).succeeded()

    with Broker("thread", data_dir=target) as other:
        other.create_topic("there-before", partitions=2)
        send(other, "there-before", 0, 4, enable_idempotence=True)
        other.stop()
        before = sorted(os.listdir(target))
        _refuse_doctored(archive, tmp_path, target, cli)
        assert sorted(os.listdir(target)) == before

        cli("log", "import", str(archive), "--data", str(target)).succeeded()
        cli("log", "import", str(archive), "--data", str(target)).failed("topic orders exists")
        cli("log", "import", str(archive), "--data", str(target), "--as", "orders-again").succeeded()
        other.start()
        assert read(other, "there-before", 4) == expected(4)
        for name in ("orders", "orders-again"):
            assert read(other, name, RECORDS) == expected(RECORDS)
            # Ids of the first cluster are not given out again, nor taken for producers of this one.
            send(other, name, RECORDS, 10, enable_idempotence=True)
            assert read(other, name, RECORDS + 10) == expected(RECORDS + 10)
        topics = other.admin().describe_topics(["orders", "orders-again"]).succeeded
        assert len({each.topic_id for each in topics.values()}) == 2
        other.stop()
        cli("log", "verify", str(target)).succeeded()
        other.start()
        assert read(other, "orders", RECORDS + 10) == expected(RECORDS + 10)


def _refuse_doctored(archive: Path, tmp_path: Path, target: Path, cli: Any) -> None:
    """Torn, changed, with more in it, with a manifest that leads elsewhere: nothing is imported."""
    segment = sorted((archive / "orders-1").glob("*.log"))[0].name

    def flip(copy: Path) -> None:
        content = bytearray((copy / "orders-1" / segment).read_bytes())
        content[len(content) // 2] ^= 1
        (copy / "orders-1" / segment).write_bytes(content)

    def elsewhere(copy: Path) -> None:
        manifest = json.loads((copy / "manifest.json").read_text())
        manifest["topic"] = "../elsewhere"
        (copy / "manifest.json").write_text(json.dumps(manifest))

    cases: list[tuple[str, Callable[[Path], object]]] = [
        ("does not match its checksum", flip),
        ("has other files than the manifest", lambda copy: (copy / "orders-1" / segment).unlink()),
        ("has other files than the manifest", lambda copy: (copy / "orders-0" / "more").touch()),
        ("bytes, and the manifest says", lambda copy: os.truncate(copy / "orders-1" / segment, 10)),
        ("manifest.json cannot be read", lambda copy: (copy / "manifest.json").unlink()),
        ("is no manifest", lambda copy: os.truncate(copy / "manifest.json", 200)),
        ("its checksum does not match", elsewhere),
    ]
    for number, (problem, doctor) in enumerate(cases):
        copy = tmp_path / f"doctored-{number}"
        shutil.copytree(archive, copy)
        doctor(copy)
        cli("log", "import", str(copy), "--data", str(target)).failed(problem)


def test_a_broker_does_not_start_on_a_store_of_a_newer_braidlog(tmp_path: Path, cli: Any) -> None:
    note, journal = tmp_path / "braidlog-store.format", tmp_path / "braidlog-store.journal-00000000000000000001"
    note.write_text('{"version":2,"braidlog":"7.1.0"}')
    journal.write_bytes(b"BLj2 what nobody here can read")
    refusal = "format 2 was written by braidlog 7.1.0, and this one reads up to 1; start that one again"
    cli("serve", "--data", str(tmp_path), "--listen", "127.0.0.1:0").failed(refusal)
    cli("cluster", "dump", str(tmp_path / "dump"), "--data", str(tmp_path)).failed(refusal)
    assert "7.1.0" in cli("doctor", "--data", str(tmp_path)).out
    assert journal.read_bytes() == b"BLj2 what nobody here can read"
