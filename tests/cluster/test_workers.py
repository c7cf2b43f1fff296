"""`braidlog serve --workers`: real clients, and processes that die."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path

import pytest
from confluent_kafka.admin import NewTopic

from braidlog.cli.commands.serve import main as serve
from braidlog.local_cluster.zookeeper import ZooKeeper
from support import confluent
from support.eventually import eventually
from support.replicated_traffic import KINDS, Traffic
from support.workers import BRAIDLOG, WorkersRun, are_gone, await_gone

WHOLE_WITHIN_S = 120.0


def create(run: WorkersRun, *names: str) -> None:
    client = confluent.admin(run.bootstrap)
    new = [NewTopic(name, 2, replica_assignment=[run.broker_ids, run.broker_ids[::-1]]) for name in names]
    for made in client.create_topics(new).values():
        made.result(60)
    await_whole(run, *names)


def await_whole(run: WorkersRun, *names: str) -> None:
    """Until every replica is in sync, as each of the workers tells it."""

    def is_whole() -> bool:
        for address in run.addresses:
            told = confluent.admin(address).list_topics(timeout=30).topics
            for name in names:
                partitions = told[name].partitions.values() if name in told else []
                if not partitions or any(len(each.isrs) < run.count or each.leader < 0 for each in partitions):
                    return False
        return True

    eventually(is_whole, WHOLE_WITHIN_S)


def nothing_is_lost(traffic: Traffic) -> None:
    """Nor was anything given up, but with a transaction that was aborted."""
    verdict = traffic.verdict()
    assert (traffic.problems, verdict.findings, verdict.gave_up) == ([], (), 0)


@pytest.mark.timeout(600)
def test_workers_and_the_store_die_under_load_and_ctrl_c_stops_all(tmp_path: Path) -> None:
    topics = {"orders": KINDS["idempotent"]}
    with WorkersRun(tmp_path / "data", 2) as run:
        assert run.broker_ids == [0, 1]
        assert sorted(each.name for each in (tmp_path / "data").iterdir() if each.is_dir()) == [
            "store", "worker-0", "worker-1",
        ]  # fmt: skip
        create(run, *topics)
        traffic = Traffic(run.bootstrap, topics)
        with traffic.running():
            for number in range(2):
                run.kill_worker(number)
                await_whole(run, *topics)
                traffic.await_progress()
            # Its sessions go on: nobody has to register again.
            seen = len(run.process.lines)
            run.kill_store()
            for number in range(2):
                again = rf"worker-{number} .*connected to the shared store again; session 0x\w+ goes on"
                run.process.wait_for_line(again, after=seen)
            traffic.await_progress()
            assert not any("has expired" in line for line in run.process.lines_after(seen))
        nothing_is_lost(traffic)
        pids = run.pids()
        assert run.interrupt() == 0
        assert are_gone(pids)
    said = [line for line in run.process.lines if "stopped cleanly" in line]
    assert ["worker-1" in said[-2], "worker-0" in said[-1]] == [True, True]
    assert "braidlog.workers: stopped" in run.process.lines[-1]

    # What was written is there, under the same ids and addresses.
    with WorkersRun(tmp_path / "data", 2, listen=run.addresses[0]) as again:
        assert (again.broker_ids, again.addresses) == (run.broker_ids, run.addresses)
        await_whole(again, *topics)
        nothing_is_lost(traffic)


@pytest.mark.long
@pytest.mark.timeout(600)
def test_sessions_that_end_and_a_store_that_is_away_for_longer_than_the_leases(tmp_path: Path) -> None:
    topics = {kind.name: kind for kind in KINDS.values()}
    with WorkersRun(tmp_path / "data", 2, "--set", "transaction.state.log.min.isr=1") as run:
        create(run, *topics)
        traffic = Traffic(run.bootstrap, topics)
        with traffic.running():
            store = run.store_pid()
            os.kill(store, signal.SIGSTOP)
            try:
                seen = len(run.process.lines)
                run.process.wait_for_line("has not answered within the session timeout", after=seen)
                traffic.await_progress()
            finally:
                os.kill(store, signal.SIGCONT)
            await_whole(run, *topics)
            traffic.await_progress()
            # A worker that stands still past its session registers again.
            worker = run.worker_pid(1)
            os.kill(worker, signal.SIGSTOP)
            try:
                seen = len(run.process.lines)
                run.process.wait_for_line(r"store .*session .*worker-1\) has expired", after=seen)
                traffic.await_progress()
            finally:
                os.kill(worker, signal.SIGCONT)
            run.process.wait_for_line(r"worker-1 .*broker 1 is registered again, in a new session", after=seen)
            await_whole(run, *topics)
            traffic.await_progress()
            # Both at once, and the supervisor brings both back.
            seen = len(run.process.lines)
            os.kill(run.worker_pid(1), signal.SIGKILL)
            run.kill_store()
            run.process.wait_for_line(r"worker-1 is broker 1, pid", after=seen)
            await_whole(run, *topics)
            traffic.await_progress()
        nothing_is_lost(traffic)
        assert run.interrupt() == 0


@pytest.mark.long
@pytest.mark.timeout(600)
def test_the_supervisor_is_killed(tmp_path: Path) -> None:
    """Its processes stop by themselves, cleanly; a second one meanwhile waits for them."""
    with WorkersRun(tmp_path / "data", 2) as run:
        create(run, "orders")
        pids = run.pids()
        refused = subprocess.run(
            [*BRAIDLOG, "serve", "--workers", "2", "--data", str(tmp_path / "data"), "--listen", "127.0.0.1:0"],
            capture_output=True, text=True, timeout=120, check=False,
        )  # fmt: skip
        assert refused.returncode == 1
        assert f"is in use by another `braidlog serve --workers`, pid {run.process.pid}" in refused.stderr
        os.kill(run.process.pid, signal.SIGKILL)
        with WorkersRun(tmp_path / "data", 2, listen=run.addresses[0]) as again:
            await_gone(pids)
            await_whole(again, "orders")
            assert again.interrupt() == 0
    assert sum("stopped cleanly" in line for line in run.process.lines) == 2


@pytest.mark.long
@pytest.mark.timeout(600)
def test_on_zookeeper(zookeeper: ZooKeeper, new_connect: object, tmp_path: Path) -> None:
    assert callable(new_connect)
    connect = ("--set", f"zookeeper.connect={new_connect()}")
    replicas = ("--set", "offsets.topic.replication.factor=2")
    with WorkersRun(tmp_path / "a", 2, *connect, *replicas) as run:
        assert not (tmp_path / "a" / "store").exists()
        ids = run.broker_ids
        assert min(ids) > 1000
        create(run, "orders")
        topics = {"orders": KINDS["idempotent"]}
        traffic = Traffic(run.bootstrap, topics)
        with traffic.running():
            run.kill_worker(1)
            await_whole(run, "orders")
            traffic.await_progress()
        nothing_is_lost(traffic)
        # Another machine of the same cluster: no partition has both replicas on one.
        with WorkersRun(tmp_path / "b", 2, *connect, *replicas, "--set", "braidlog.host=elsewhere") as other:
            client = confluent.admin(run.bootstrap)
            client.create_topics([NewTopic("spread", 12, 2)])["spread"].result(60)
            here = set(ids)
            found = client.list_topics("spread", timeout=60).topics["spread"].partitions.values()
            assert {len(here & set(each.replicas)) for each in found} == {1}
            assert other.interrupt() == 0
        assert run.interrupt() == 0
    with WorkersRun(tmp_path / "a", 2, *connect, *replicas) as run:
        assert run.broker_ids == ids
        assert run.interrupt() == 0


def test_what_workers_cannot_start_on_is_told_in_a_line(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    def refused(*arguments: str) -> str:
        assert serve([*arguments, "--listen", "127.0.0.1:0"]) == 1
        return capfd.readouterr().err.splitlines()[-1]

    single = tmp_path / "single"
    single.mkdir()
    (single / "meta.properties").write_text("version=0\n")
    assert "holds the data of a single broker" in refused("--workers", "2", "--data", str(single))
    data = tmp_path / "data"
    data.mkdir()
    (data / "workers.json").write_text('{"version": 1, "workers": 2, "store": "embedded", "broker_ids": [0, 1]}')
    assert "say --workers 2" in refused("--data", str(data))
    assert "has 2 workers, not 3: say --workers 2, or add --resize" in refused("--workers", "3", "--data", str(data))
    assert "would be offline: say --workers 2" in refused("--workers", "1", "--data", str(data))
    assert "leave out zookeeper.connect" in refused(
        "--workers", "2", "--data", str(data), "--set", "zookeeper.connect=127.0.0.1:1"
    )
    assert "--resize goes with --workers" in refused("--resize", "--data", str(tmp_path / "none"))
