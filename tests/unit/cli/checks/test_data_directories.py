"""The doctor's checks, each with the trouble it is for."""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
from pathlib import Path

import pytest

from braidlog.cli.checks import data_directories
from braidlog.cli.checks.data_directories import (
    DataDirectory,
    check_clock,
    check_identity,
    judge_disk,
    stored_cluster_id,
    survey,
)
from braidlog.cli.checks.finding import OK, PROBLEM, WARNING
from braidlog.cluster.journal_files import PREFIX
from braidlog.storage.dirs.meta_properties import MetaProperties, encode_meta_properties
from support.findings import status

GIB = 1 << 30


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
