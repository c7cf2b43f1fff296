"""A broker that dies, at named points and at random moments, while an idempotent producer writes on.

Every round is one death. The producer lives through all of them and repeats what was not acknowledged; after each
restart a reader finds every acknowledged record, once, in order. Small segments make rolls frequent, a compacted topic
makes the cleaner swap segments, short intervals make checkpoints frequent.
"""

from __future__ import annotations

import random
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tools.peers.process import ProcessFailed

from support.broker import Broker, start_braidlog
from support.confluent import create_topic
from support.eventually import eventually
from support.numbered import NumberedWriter
from support.ports import lasting_port
from support.soak import scaled

# Passages of each point that a round may let go by, so that deaths fall early and late in a broker's life.
POINTS = {"after-write": 120, "mid-roll": 8, "mid-swap": 3, "mid-checkpoint": 12}
PARTITIONS = {"plain": 3, "compacted": 1}
SETTINGS = {
    "braidlog.http.listen": "",
    "log.initial.task.delay.ms": "100",
    "log.cleaner.backoff.ms": "100",
    "replica.high.watermark.checkpoint.interval.ms": "150",
    "log.flush.offset.checkpoint.interval.ms": "200",
    "log.retention.check.interval.ms": "500",
}
DIES_WITHIN_S = 60.0


class CrashingBroker:
    """One data directory and one port, over many lives of a broker."""

    def __init__(self, place: Path, seed: int) -> None:
        self.data_dir = place / "data"
        self.port = lasting_port()
        self.random = random.Random(seed)
        self.bootstrap = f"127.0.0.1:{self.port}"

    @contextmanager
    def life(self, crash_at: str | None = None) -> Iterator[Broker]:
        env = {} if crash_at is None else {"BRAIDLOG_CRASH_AT": crash_at}
        with start_braidlog(self.data_dir, SETTINGS, port=self.port, env=env) as broker:
            yield broker

    def die_at(self, point: str) -> str:
        """Live until the point is reached; returns how it was asked for."""
        crash_at = f"{point}:{self.random.randint(1, POINTS[point])}"
        try:
            with self.life(crash_at) as broker:
                code = broker.process.wait(DIES_WITHIN_S)
        except ProcessFailed as failure:
            # It may die before it is ready, too: starting writes checkpoints.
            if "ended with -9" not in str(failure):
                raise
            return f"{crash_at} while starting"
        assert code == -9, f"{crash_at}: ended with {code}:\n{broker.log()}"
        return crash_at


def crash_for(place: Path, rounds: int, seed: int) -> None:
    """`rounds` deaths: by turns at a named point, and after a life that was checked, at any moment."""
    crashing = CrashingBroker(place, seed)
    deaths: list[str] = []
    with crashing.life():
        small = {"segment_bytes": "4096", "index_interval_bytes": "256"}
        create_topic(crashing.bootstrap, "plain", 3, **small)
        create_topic(
            crashing.bootstrap, "compacted", 1, cleanup_policy="compact", min_cleanable_dirty_ratio="0.01", **small
        )
    writer = NumberedWriter(crashing.bootstrap, PARTITIONS, compacted=["compacted"])
    points = list(POINTS)
    with writer.running():
        while len(deaths) < rounds:
            deaths.append(crashing.die_at(points[len(deaths) // 2 % len(points)]))
            with crashing.life() as broker:
                assert "unclean stop" in broker.log(), broker.log()
                assert "are lost" not in broker.log() or _lost_only_torn(broker), broker.log()
                writer.check(crashing.bootstrap)
                _let_it_write(writer, broker)
                # The moment is the point of it: no event leads to a random one.
                time.sleep(crashing.random.uniform(0, 0.25))
                broker.kill()
                deaths.append("kill -9")
    with crashing.life():
        writer.flush()
        count = writer.check(crashing.bootstrap)
    sent = sum(books.sent for books in writer.books)
    acknowledged = sum(len(books.acknowledged) for books in writer.books)
    assert acknowledged == sent, f"{sent - acknowledged} of {sent} records were never acknowledged"
    assert count > 0
    assert not writer.failures


def _lost_only_torn(broker: Broker) -> bool:
    """A write that the kill cut short may leave part of a batch, which nobody was told of."""
    return all("torn" in line or "cut short" in line for line in broker.process.lines if "are lost" in line)


def _let_it_write(writer: NumberedWriter, broker: Broker) -> None:
    """Wait until this life of the broker has acknowledged something."""
    before = sum(len(books.acknowledged) for books in writer.books)
    eventually(lambda: sum(len(books.acknowledged) for books in writer.books) > before)
    assert broker.process.returncode is None


@pytest.mark.timeout(600)
@pytest.mark.parametrize("crashes", [4 * len(POINTS), pytest.param(50, marks=pytest.mark.long)])
def test_crashes_lose_nothing_acknowledged(tmp_path: Path, crashes: int) -> None:
    crash_for(tmp_path, crashes, seed=20)


def _children(pid: int) -> set[int]:
    tasks = Path(f"/proc/{pid}/task")
    return {int(child) for task in tasks.iterdir() for child in (task / "children").read_text().split()}


def _runs(pid: int) -> bool:
    try:
        return "State:\tZ" not in Path(f"/proc/{pid}/status").read_text()
    except FileNotFoundError:
        return False


def test_a_compaction_does_not_outlive_its_broker(tmp_path: Path) -> None:
    """Else it would write into the files of the next broker's compaction."""
    settings = {**SETTINGS, "log.cleaner.io.max.bytes.per.second": "20000"}
    port = lasting_port()
    bootstrap = f"127.0.0.1:{port}"
    with start_braidlog(tmp_path / "data", settings, port=port) as broker:
        create_topic(
            bootstrap,
            "compacted",
            cleanup_policy="compact",
            min_cleanable_dirty_ratio="0.01",
            segment_bytes="20000",
        )
        writer = NumberedWriter(bootstrap, {"compacted": 1}, compacted=["compacted"], batch_size=15_000)
        for _ in range(10):
            writer.send(2000)
            writer.flush()
        eventually(lambda: bool(_children(broker.process.pid)))
        [worker] = _children(broker.process.pid)
        broker.process.signal(signal.SIGKILL)
        # Throttled as it is, the pass would have taken a minute.
        eventually(lambda: not _runs(worker))
    with start_braidlog(tmp_path / "data", {"braidlog.http.listen": ""}, port=port):
        writer.check(bootstrap)


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(scaled(3)))
def test_hundreds_of_crashes_lose_nothing_acknowledged(tmp_path: Path, seed: int) -> None:
    crash_for(tmp_path, 60, seed)
