"""What the doctor says of a broker whose disk is slow, and of one whose clock is wrong."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Final

import pytest

from braidlog.local_cluster.child_processes import THIS_MACHINE, Machine
from braidlog.local_cluster.zookeeper import ZooKeeper
from braidlog.testing.cluster import Cluster
from support.cluster import BASE_SETTINGS
from support.cluster_commands import Commands
from support.disks import FAILING_CALLS, FailingCalls
from support.eventually import eventually
from support.preloaded import preloaded_library

pytestmark = pytest.mark.long

AHEAD_S: Final = 120
# A fetch of all partitions takes longer than a follower may lag behind, and less than its session.
PARTITIONS: Final = 6
LAG_MS, SLOW_MS, SESSION_MS = 3_000, 1_000, 18_000
VICTIM: Final = 2


@pytest.fixture(scope="module")
def disk(tmp_path_factory: pytest.TempPathFactory) -> FailingCalls:
    """Of the broker whose clock is wrong."""
    place = tmp_path_factory.mktemp("doctor")
    return FailingCalls(preloaded_library(FAILING_CALLS, place), place / "calls", place / f"broker-{VICTIM}")


@pytest.fixture(scope="module")
def cluster(zookeeper: ZooKeeper, new_connect: Callable[[], str], disk: FailingCalls) -> Iterator[Cluster]:
    place = disk.path.parent
    both = f"{disk.env['LD_PRELOAD']}:{preloaded_library('shifted_clock.c', place)}"
    environment = {**disk.env, "LD_PRELOAD": both, "CLOCK_AHEAD_S": str(AHEAD_S)}
    machines = [THIS_MACHINE] * 3
    machines[VICTIM] = Machine(prefix=("env", *(f"{key}={value}" for key, value in environment.items())))
    settings = {
        **BASE_SETTINGS,
        "zookeeper.connect": new_connect(),
        "zookeeper.session.timeout.ms": str(SESSION_MS),
        "braidlog.http.listen": "127.0.0.1:0",
        "replica.lag.time.max.ms": str(LAG_MS),
    }
    with Cluster(settings=settings, directory=place, zookeeper=zookeeper, machines=machines) as running:
        yield running


@pytest.fixture
def commands(cluster: Cluster, capsys: pytest.CaptureFixture[str]) -> Commands:
    return Commands(cluster, capsys)


def test_a_clock_is_ahead(commands: Commands) -> None:
    (found,) = commands.findings()["clocks"]
    assert found["status"] == "problem"
    assert f"that of broker {VICTIM} is {AHEAD_S}." in found["text"]
    assert "ahead of that of broker" in found["text"]
    assert "NTP" in found["advice"]


def test_a_disk_is_slow(commands: Commands, cluster: Cluster, disk: FailingCalls) -> None:
    assignment = ",".join(f"{number % 2}:{1 - number % 2}:{VICTIM}" for number in range(PARTITIONS))
    commands("topics", "create", "copied", "--replica-assignment", assignment)
    eventually(lambda: commands("topics", "describe", "--under-replicated") == [], 60)

    def slow_to_write() -> bool:
        found = commands.findings().get("lagging replicas", [])
        return any(
            each["text"].startswith(f"broker {VICTIM} is behind with copied-")
            and "it is slow to write what it fetches" in each["text"]
            and "iostat" in each["advice"]
            for each in found
        )

    command = ("perf", "produce", "copied", "--records", "1000000", "--rate", "200", "-X", "acks=1")
    writer = subprocess.Popen(
        [sys.executable, "-m", "braidlog", *command, "--bootstrap", cluster.bootstrap_servers],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    disk.slow("w", SLOW_MS)
    try:
        eventually(slow_to_write, 120)
    finally:
        disk.heal()
        writer.kill()
        writer.wait()
    eventually(lambda: commands("topics", "describe", "--under-replicated") == [], 60)
