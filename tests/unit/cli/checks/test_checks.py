"""The doctor's checks, each with the trouble it is for."""

from __future__ import annotations

import fcntl
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from braidlog.cli.checks import data_directories, listening, live_cluster, processes
from braidlog.cli.checks.data_directories import (
    DataDirectory,
    check_clock,
    check_identity,
    judge_disk,
    stored_cluster_id,
    survey,
)
from braidlog.cli.checks.finding import OK, PROBLEM, WARNING, Finding, listing
from braidlog.cli.checks.listening import check_advertised, check_listeners, check_port, judge_open_files
from braidlog.cli.checks.live_cluster import TopicSafety, check_partitions, check_safety
from braidlog.cluster.journal_files import PREFIX
from braidlog.config.broker import BrokerSettings
from braidlog.core.types import Endpoint
from braidlog.storage.dirs.meta_properties import MetaProperties, encode_meta_properties
from braidlog.wire.generated.metadata import MetadataResponsePartition, MetadataResponseTopic

GIB = 1 << 30


def status(finding: Finding) -> str:
    assert (finding.status == OK) == (finding.advice == ""), "what is not ok comes with advice"
    return finding.status


def meta(path: Path, cluster: str, node: int) -> None:
    path.mkdir(exist_ok=True)
    text = encode_meta_properties(MetaProperties(0, cluster, node), 1_700_000_000_000)
    (path / "meta.properties").write_text(text)


# Data directories


def test_a_survey_of_a_directory(tmp_path: Path) -> None:
    meta(tmp_path, "c1", 7)
    (tmp_path / "orders-0").mkdir()
    (tmp_path / "orders-0" / "00000000000000000000.log").write_bytes(b"")
    (tmp_path / "orders-0" / "lost-00000000000000000009.tail").write_bytes(b"x")
    (tmp_path / "orders-1.0af1-stray").mkdir()
    (tmp_path / "orders-2.0af1-delete").mkdir()
    (tmp_path / "other").mkdir()
    found = survey(str(tmp_path))
    assert found.partitions == ["orders-0"]
    assert found.strays == ["orders-1.0af1-stray"]
    assert [Path(path).name for path in found.lost_tails] == ["lost-00000000000000000009.tail"]
    assert found.properties == MetaProperties(0, "c1", 7)
    assert not found.stopped_cleanly
    assert found.holder is None
    assert status(data_directories.check_last_stop(found)) == WARNING
    assert [status(each) for each in data_directories.check_leftovers(found)] == [WARNING, WARNING]
    (tmp_path / ".kafka_cleanshutdown").write_text("")
    assert status(data_directories.check_last_stop(survey(str(tmp_path)))) == OK


def test_directories_that_are_not_there(tmp_path: Path) -> None:
    found, (finding,) = data_directories.check_directory(str(tmp_path / "new" / "deep"))
    assert found is None
    assert status(finding) == OK
    (tmp_path / "file").write_text("")
    _, (finding,) = data_directories.check_directory(str(tmp_path / "file"))
    assert status(finding) == PROBLEM


def test_a_directory_in_use_is_seen_without_taking_its_lock(tmp_path: Path) -> None:
    lock = tmp_path / ".lock"
    lock.touch()
    code = (
        "import fcntl, sys; file = open(sys.argv[1], 'r+'); fcntl.lockf(file, fcntl.LOCK_EX);"
        "print('held', flush=True); sys.stdin.read()"
    )
    command = [sys.executable, "-c", code, str(lock)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"held\n"
        found = survey(str(tmp_path))
        assert found.holder == holder.pid
        assert str(holder.pid) in data_directories.check_use(found).text
        holder.communicate()
    assert survey(str(tmp_path)).holder is None
    with lock.open("r+") as mine:
        fcntl.lockf(mine, fcntl.LOCK_EX | fcntl.LOCK_NB)


@pytest.mark.parametrize(
    ("total", "free", "expected"),
    [
        (1000 * GIB, 500 * GIB, OK),
        (1000 * GIB, 90 * GIB, WARNING),
        (10 * GIB, GIB + 1, WARNING),
        (1000 * GIB, 10 * GIB, PROBLEM),
        (4 * GIB, 100 << 20, PROBLEM),
        (0, 0, OK),
    ],
)
def test_room_on_the_disk(total: int, free: int, expected: str) -> None:
    assert status(judge_disk("/data", total, free)) == expected


def test_no_inodes_left() -> None:
    assert status(judge_disk("/data", 1000 * GIB, 500 * GIB, 1000, 3)) == PROBLEM


def directory(path: str, cluster: str | None = None, node: int | None = None) -> DataDirectory:
    return DataDirectory(path, properties=MetaProperties(0, cluster, node))


@pytest.mark.parametrize(
    ("found", "broker_id", "stored", "in_reach", "expected", "reported"),
    [
        ([directory("/a", "c1", 1)], 1, "c1", "c1", OK, "cluster c1, broker 1"),
        ([DataDirectory("/a")], -1, None, None, OK, "no cluster yet"),
        ([directory("/a", "c1", 1), directory("/b", "c2", 1)], -1, None, None, PROBLEM, "/b belongs to cluster c2"),
        ([directory("/a", "c1", 1), directory("/b", "c1", 2)], -1, None, None, PROBLEM, "/b belongs to broker 2"),
        ([directory("/a", "c1", 1)], 5, None, None, PROBLEM, r"broker\.id=5"),
        ([directory("/a", "c1", 1)], -1, "c2", None, PROBLEM, "the coordination store belongs to cluster c2"),
        ([directory("/a", "c1", 1)], -1, "c1", "c9", PROBLEM, "--bootstrap to cluster c9"),
        ([DataDirectory("/a", bad_properties="/a/meta.properties: bad")], -1, None, None, PROBLEM, "bad"),
    ],
)
def test_whose_data_it_is(
    found: list[DataDirectory], broker_id: int, stored: str | None, in_reach: str | None, expected: str, reported: str
) -> None:
    import re

    finding = check_identity(found, broker_id, stored, in_reach)
    assert status(finding) == expected
    assert re.search(reported, finding.text)


def test_files_from_the_future() -> None:
    assert status(check_clock([DataDirectory("/a", newest_change=1000.0)], now=990.0)) == OK
    assert status(check_clock([DataDirectory("/a", newest_change=2000.0)], now=990.0)) == WARNING
    assert status(check_clock([])) == OK


def test_the_stores_cluster_is_read_without_changing_it(tmp_path: Path) -> None:
    assert stored_cluster_id(str(tmp_path / "none")) is None
    assert stored_cluster_id(str(tmp_path)) is None
    torn = tmp_path / f"{PREFIX}journal-00000000000000000001"
    torn.write_bytes(b"\0" * 5)
    assert stored_cluster_id(str(tmp_path)) is None
    assert torn.read_bytes() == b"\0" * 5
    assert os.listdir(tmp_path) == [torn.name]


# Listeners and limits


def test_a_free_and_a_taken_port() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        finding = check_port(Endpoint("PLAINTEXT", "127.0.0.1", port))
        assert status(finding) == PROBLEM
        if os.path.exists("/proc/net/tcp") and processes.listener_on(port) is not None:
            assert f"process {os.getpid()}" in finding.text
        assert status(check_port(Endpoint("PLAINTEXT", "127.0.0.1", port), broker=1)) == OK
    assert status(check_port(Endpoint("PLAINTEXT", "127.0.0.1", 0))) == OK
    assert status(check_port(Endpoint("PLAINTEXT", "192.0.2.1", 9092))) == PROBLEM


def test_who_listens_by_proc(tmp_path: Path) -> None:
    (tmp_path / "net").mkdir()
    (tmp_path / "net" / "tcp").write_text(
        "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n"
        "   0: 0100007F:2384 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 4711 1 0\n"
        "   1: 0100007F:2385 00000000:0000 01 00000000:00000000 00:00000000 00000000     0        0 4712 1 0\n"
    )
    (tmp_path / "77" / "fd").mkdir(parents=True)
    (tmp_path / "77" / "fd" / "3").symlink_to("socket:[4711]")
    (tmp_path / "77" / "cmdline").write_bytes(b"nginx\0-g\0daemon off\0")
    (tmp_path / "77" / "limits").write_text("Limit           Soft  Hard  Units\nMax open files  1024  4096  files\n")
    proc = str(tmp_path)
    assert processes.listener_on(9092, proc) == 77
    assert processes.listener_on(9093, proc) is None, "a connection is not a listener"
    assert processes.command_of(77, proc) == "process 77 (nginx -g daemon off)"
    assert processes.command_of(78, proc) == "process 78"
    assert processes.open_files_limit(77, proc) == 1024
    assert processes.open_files_count(77, proc) == 1
    assert processes.open_files_limit(78, proc) is None


def test_advertised_names_must_resolve() -> None:
    def unknown(host: str, port: int) -> object:
        raise socket.gaierror(-2, "Name or service not known")

    endpoint = Endpoint("PLAINTEXT", "broker.example", 9092)
    finding = check_advertised(endpoint, unknown)
    assert status(finding) == PROBLEM
    assert "advertised.listeners" in finding.advice
    assert status(check_advertised(endpoint, lambda host, port: [])) == OK


def test_listeners_that_cannot_be() -> None:
    settings = BrokerSettings({"listeners": "PLAINTEXT://0.0.0.0:9092"})
    (finding,) = check_listeners(settings, None)
    assert status(finding) == PROBLEM
    assert "0.0.0.0" in finding.text


@pytest.mark.parametrize(
    ("limit", "partitions", "used", "expected"),
    [
        (65536, 100, None, OK),
        (1024, 100, None, WARNING),
        (4096, 5000, None, WARNING),
        (100, 0, None, PROBLEM),
        (65536, 100, 65000, PROBLEM),
    ],
)
def test_how_many_files_may_be_open(limit: int, partitions: int, used: int | None, expected: str) -> None:
    assert status(judge_open_files(limit, partitions, used)) == expected


# A running cluster


def topic(name: str, *partitions: tuple[int, list[int], list[int]]) -> MetadataResponseTopic:
    return MetadataResponseTopic(
        name=name,
        partitions=[
            MetadataResponsePartition(partition_index=index, leader_id=leader, replica_nodes=replicas, isr_nodes=isr)
            for index, (leader, replicas, isr) in enumerate(partitions)
        ],
    )


def test_partitions_without_leader_or_behind() -> None:
    (sound,) = check_partitions([topic("a", (1, [1], [1]))])
    assert status(sound) == OK
    dead, behind = check_partitions([topic("a", (-1, [1], [1]), (1, [1, 2], [1]))])
    assert (status(dead), status(behind)) == (PROBLEM, WARNING)
    assert "a-0" in dead.text
    assert "a-1" in behind.text


@pytest.mark.parametrize(
    ("safety", "brokers", "statuses"),
    [
        ([TopicSafety("t", 1, 1, False)], 1, [OK, OK]),
        ([TopicSafety("t", 1, 2, False)], 1, [WARNING, OK]),
        ([TopicSafety("t", 3, 2, False)], 3, [OK, OK]),
        ([TopicSafety("t", 2, 2, False)], 3, [WARNING, OK, OK]),
        ([TopicSafety("t", 3, 1, False)], 3, [WARNING, OK]),
        ([TopicSafety("t", 1, 1, False)], 3, [WARNING, OK]),
        ([TopicSafety("t", 3, 2, True)], 3, [OK, WARNING]),
        ([], 1, [OK, OK]),
    ],
)
def test_what_survives(safety: list[TopicSafety], brokers: int, statuses: list[str]) -> None:
    assert [status(finding) for finding in check_safety(safety, brokers)] == statuses


def test_long_lists_are_cut() -> None:
    assert listing("abc") == "a, b, c"
    assert listing("abcdefgh", 3) == "a, b, c and 5 more"


def test_loopback_addresses() -> None:
    assert live_cluster._is_loopback("127.0.0.1")
    assert live_cluster._is_loopback("::1")
    assert not live_cluster._is_loopback("10.0.0.1")
    assert not live_cluster._is_loopback("fe80::1%eth0")
    assert listening.check_open_files(0, None).check == "open files"
