"""`braidlog cluster up` and `cluster status` as a person runs them."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any, Protocol

import pytest
from tools.peers.process import LoggedProcess

from braidlog import Consumer, Producer
from braidlog.cli.program import main
from support import confluent
from support.eventually import eventually

BRAIDLOG = [sys.executable, "-m", "braidlog"]
RECORDS = 60
# What is left of a killed run ends by itself.
GONE_WITHIN_S = 60.0


class Up:
    """`braidlog cluster up` that is ready; `said` is what it printed then."""

    def __init__(self, data: Path, *arguments: str) -> None:
        words = ["cluster", "up", "--data", str(data), "--listen", "127.0.0.1:0", "--output", "json", *arguments]
        self.process = LoggedProcess("cluster up", [*BRAIDLOG, *words])
        self.said: dict[str, Any] = json.loads(self.process.wait_for_line(r"^\{.*\}$")[0])

    @property
    def bootstrap(self) -> str:
        return str(self.said["bootstrap_servers"])

    @property
    def pids(self) -> list[int]:
        return [self.said["zookeeper"]["pid"], *(broker["pid"] for broker in self.said["brokers"])]

    def __enter__(self) -> Up:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.__exit__()

    def create_topic(self, name: str, partitions: int) -> None:
        """With as many replicas as the cluster gives it."""
        words = ["topics", "create", name, "--partitions", str(partitions), "--bootstrap", self.bootstrap]
        subprocess.run([*BRAIDLOG, *words], capture_output=True, timeout=120, check=True)

    def status(self) -> tuple[int, dict[str, Any]]:
        words = ["cluster", "status", "--bootstrap", self.bootstrap, "--output", "json"]
        done = subprocess.run([*BRAIDLOG, *words], capture_output=True, text=True, timeout=120, check=False)
        return done.returncode, json.loads(done.stdout) if done.stdout else {}


def are_gone(pids: list[int]) -> bool:
    return not any(Path(f"/proc/{pid}").exists() for pid in pids)


class Refused(Protocol):
    def __call__(self, *arguments: str, code: int = 1) -> str: ...


@pytest.fixture
def refused(capfd: pytest.CaptureFixture[str]) -> Refused:
    """The last line on standard error of a start that fails, in this process."""

    def run(*arguments: str, code: int = 1) -> str:
        try:
            ended = main(["cluster", "up", *arguments])
        except SystemExit as misunderstood:
            ended = int(str(misunderstood.code))
        said = capfd.readouterr()
        assert (ended, said.out) == (code, ""), said.err
        return said.err.splitlines()[-1]

    return run


def send(bootstrap: str, topic: str) -> None:
    with Producer(bootstrap_servers=bootstrap) as producer:
        for number in range(RECORDS):
            producer.send(topic, f"record {number}", partition=number % 6)
        producer.flush()


def received(bootstrap: str, topic: str) -> list[str]:
    found: list[str] = []
    with Consumer(bootstrap_servers=bootstrap, auto_offset_reset="earliest") as consumer:
        consumer.assign([(topic, partition) for partition in range(6)])

        def read() -> bool:
            found.extend((record.value or b"").decode() for record in consumer.poll(1.0))
            return len(found) >= RECORDS

        eventually(read, 60)
    return sorted(found)


def test_it_is_started_seen_and_stopped(tmp_path: Path, refused: Refused) -> None:
    with Up(tmp_path / "data") as up:
        assert [broker["broker"] for broker in up.said["brokers"]] == [0, 1, 2]
        for broker in up.said["brokers"]:
            assert Path(broker["log"]).is_file()
            assert re.fullmatch(r"http://127\.0\.0\.1:\d+/metrics", broker["metrics"])
        up.create_topic("orders", 6)
        send(up.bootstrap, "orders")
        # Each broker hears of what the controller decides in its own time.
        eventually(lambda: up.status()[0] == 0, 60)
        code, status = up.status()
        assert code == 0
        assert status["cluster_id"] == up.said["cluster_id"]
        assert status["controller"] in (0, 1, 2)
        assert status["counts"] == {"partitions": 6, "offline": 0, "under_replicated": 0}
        assert [(each["state"], each["leads"]) for each in status["brokers"]] == [("up", 2)] * 3
        everywhere = [{"broker": broker, "state": "online"} for broker in (0, 1, 2)]
        for each in status["partitions"]:
            assert sorted(each["replicas"], key=lambda replica: int(replica["broker"])) == everywhere
        # A second one on its data has nothing to say but that.
        line = refused("--data", str(tmp_path / "data"), "--listen", "127.0.0.1:0")
        assert f"is in use by another `braidlog cluster up`, pid {up.process.pid}" in line
        assert up.process.terminate() == 0
        assert are_gone(up.pids)
        for broker in up.said["brokers"]:
            assert "stopped cleanly" in Path(broker["log"]).read_text()


@pytest.mark.long
def test_its_data_outlives_it_and_it_says_what_happened(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with Up(data) as up:
        confluent.create_topic(up.bootstrap, "orders", 6)
        send(up.bootstrap, "orders")
        up.process.signal(signal.SIGINT)
        assert up.process.wait() == 0
    cluster_id = up.said["cluster_id"]

    with Up(data) as up:
        assert up.said["cluster_id"] == cluster_id
        # A broker dies: the others go on, and everybody is told.
        os.kill(up.said["brokers"][1]["pid"], signal.SIGKILL)
        up.process.wait_for_line(r"broker 1 \(pid \d+\) has ended: killed by SIGKILL. Its last lines:")
        again = up.process.wait_for_line(r"to start it again: braidlog (serve --config .*broker-1.properties)")[1]
        eventually(lambda: up.status()[1].get("counts", {}).get("offline") == 2, 60)
        code, status = up.status()
        assert code == 1
        assert [each["state"] for each in status["brokers"]] == ["up", "down", "up"]
        offline = [each for each in status["partitions"] if each["state"] == "offline"]
        assert [each["replicas"] for each in offline] == [[{"broker": 1, "state": "offline"}]] * 2
        # It comes back as the terminal says.
        with LoggedProcess("broker 1", [*BRAIDLOG, *again.split()]) as broker:
            broker.wait_for_line("is ready on")
            eventually(lambda: up.status()[0] == 0, 60)
            assert broker.terminate() == 0
        # The parent is killed: nothing of it is left, and the next one says what it waits for.
        up.process.kill()
        eventually(lambda: are_gone(up.pids), GONE_WITHIN_S)

    # Long enough that the next ones find their names taken, however slowly they start.
    slow = ("--set", "zookeeper.session.timeout.ms=20000")
    with Up(data, *slow) as up:
        assert received(up.bootstrap, "orders") == sorted(f"record {number}" for number in range(RECORDS))
        for broker in up.said["brokers"]:
            os.kill(broker["pid"], signal.SIGKILL)
        assert up.process.wait() == 1
        assert "not everything ended as it should: broker 0 (killed by SIGKILL)" in up.process.lines[-1]
    with Up(data, *slow) as up:
        assert any("was killed, and waits up to" in line for line in up.process.lines)
        assert up.status()[0] == 0
        assert up.process.terminate() == 0


def test_what_cannot_start_is_told_in_a_line(tmp_path: Path, refused: Refused, monkeypatch: pytest.MonkeyPatch) -> None:
    data = ("--data", str(tmp_path / "data"))
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        line = refused(*data, "--brokers", "1", "--listen", f"127.0.0.1:{port}")
        assert f"broker 0 cannot listen on 127.0.0.1:{port}: port {port} on 127.0.0.1 is taken" in line
    assert "would end above 65535" in refused(*data, "--listen", "127.0.0.1:65534")
    assert "is not a number of brokers" in refused(*data, "--brokers", "0", code=2)
    assert "--set broker.id: each broker has its own" in refused(*data, "--set", "broker.id=7")
    with monkeypatch.context() as without_java:
        without_java.setenv("JAVA_HOME", str(tmp_path))
        without_java.setenv("PATH", str(tmp_path))
        line = refused(*data, "--listen", "127.0.0.1:0")
        assert f"there is no Java in JAVA_HOME ({tmp_path}) nor anywhere else, and ZooKeeper needs 17 or newer" in line
    # A broker that does not start says why, through the one line of the whole.
    wrong = ("--zookeeper", "127.0.0.1:1", "--brokers", "1", "--set", "log.retention.hours=soon")
    line = refused("--data", str(tmp_path / "elsewhere"), "--listen", "127.0.0.1:0", *wrong)
    assert "broker 0 did not start (exit code 1): " in line
    assert "log.retention.hours" in line
    assert "its log is" in line
    # Its directory belongs to that ZooKeeper now.
    line = refused("--data", str(tmp_path / "elsewhere"), "--zookeeper", "127.0.0.1:2")
    assert "belongs to a cluster on the ZooKeeper at 127.0.0.1:1, not to one at 127.0.0.1:2" in line
