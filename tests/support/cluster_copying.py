"""Exactly-once copies on three brokers, while these and the workers are killed, stopped and paused."""

from __future__ import annotations

import random
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from typing import Final

from braidlog.testing import Cluster
from support.broker_faults import BrokerFaults
from support.copy_loop import Copied, CopyLoop, WorkerKind
from support.open_transactions import check_nothing_is_open

SETTINGS: Final = {
    "offsets.topic.num.partitions": "6",
    "transaction.state.log.num.partitions": "6",
    # With so many processes on one machine ZooKeeper may be silent for seconds, which is no fault that was drawn.
    "zookeeper.session.timeout.ms": "6000",
    "group.min.session.timeout.ms": "500",
    # The partitions of a member of the newer protocol that died are others' when its session is over.
    "group.consumer.min.session.timeout.ms": "500",
    "group.consumer.session.timeout.ms": "6000",
    "group.consumer.min.heartbeat.interval.ms": "100",
    "group.consumer.heartbeat.interval.ms": "300",
}
# Slow enough for workers to keep up, so that they have little left to do in the end.
_WRITE_EVERY_S: Final = 0.05
_SAY_EVERY: Final = 10


class ClusterCopying:
    """Several loops at once, each by its name with the kinds of its workers; one series of faults hits all of them."""

    def __init__(
        self, cluster: Cluster, seed: int, loops: Mapping[str, Sequence[WorkerKind]], *, moves: bool = False
    ) -> None:
        self._cluster = cluster
        self._random = random.Random(seed)
        self.loops = {
            name: CopyLoop(lambda: cluster.bootstrap_servers, kinds, name=f"{name}-") for name, kinds in loops.items()
        }
        self.faults = BrokerFaults(
            cluster,
            self._random,
            topics=[topic for loop in self.loops.values() for topic in (loop.source, loop.sink)],
            groups=[loop.group for loop in self.loops.values()],
            transactional_ids=[name for loop in self.loops.values() for name in loop.names],
            moves=moves,
        )
        self.worker_kills = 0
        self.copied: dict[str, Copied] = {}

    @property
    def kills(self) -> int:
        return self.faults.kills + self.worker_kills

    def run(self, kills: int) -> None:
        """Until brokers and workers were killed so often; then everything is copied, once, and no transaction open."""
        began = time.monotonic()
        with ExitStack() as running:
            writers = {}
            for name, loop in self.loops.items():
                running.callback(loop.end)
                writers[name] = loop.create()
            with ExitStack() as writing:
                for writer in writers.values():
                    writing.enter_context(writer.running(at_once=1, every_s=_WRITE_EVERY_S))
                self._await_progress()
                number = 0
                while self.kills < kills:
                    number += 1
                    self._one_fault()
                    if number % _SAY_EVERY == 0:
                        minutes = (time.monotonic() - began) / 60
                        done = sum(loop.copied() for loop in self.loops.values())
                        print(f"{minutes:.0f} min: {self}, {done} transactions", flush=True)
                self._await_progress()
            for name, loop in self.loops.items():
                self.copied[name] = loop.finish(writers[name], self.tell)
            check_nothing_is_open(self._cluster.bootstrap_servers)
        print(f"{(time.monotonic() - began) / 60:.0f} min: {self}\n{self.faults.by_role()}", flush=True)
        for name, copied in self.copied.items():
            print(f"{name}: {copied}", flush=True)

    def __str__(self) -> str:
        return f"{self.faults}, {self.worker_kills} kills of workers"

    def _one_fault(self) -> None:
        """Of a broker, or of a worker; seldom before anybody got on after the one before."""
        for loop in self.loops.values():
            loop.supervise()
        if self._random.random() < 0.8:
            self._await_progress()
        # The moment is the point of it: no event leads to a random one.
        time.sleep(self._random.uniform(0, 0.3))
        self._check_commits_only_advance()
        if self._random.random() < 0.3:
            loop = self._random.choice(list(self.loops.values()))
            loop.kill(self._random.choice(loop.names))
            self.worker_kills += 1
            return
        print(self.faults.strike(), flush=True)
        self._check_commits_only_advance()

    def _await_progress(self) -> None:
        for loop in self.loops.values():
            loop.await_progress(tell=self.tell)

    def _check_commits_only_advance(self) -> None:
        for loop in self.loops.values():
            loop.check_commits_only_advance(self.tell)

    def tell(self) -> str:
        return f"{self}\n{self.faults.by_role()}\n{self._cluster.log()}"
