"""An exactly-once copy on one broker, and somebody who kills the workers and the broker by turns."""

from __future__ import annotations

import random
import time
from contextlib import ExitStack
from pathlib import Path

from tools.peers.process import ProcessFailed

from support.broker import KAFKA, Broker
from support.copy_loop import CopyLoop, WorkerKind
from support.copy_plan import CONFLUENT
from support.eventually import eventually
from support.groups import LastingBroker

# Internal topics roll and are compacted while all this goes on.
SETTINGS = {
    "offsets.topic.num.partitions": "5",
    "offsets.topic.segment.bytes": "16384",
    "transaction.state.log.num.partitions": "5",
    "transaction.state.log.segment.bytes": "16384",
    "log.cleaner.backoff.ms": "200",
    "log.initial.task.delay.ms": "100",
}
# Where a life may end by itself, and how many passages it may let go by.
POINTS = {"after-write": 60, "mid-roll": 2, "mid-swap": 2, "mid-checkpoint": 4}
DIES_WITHIN_S = 5.0
WORKERS = 2


class CopyScenario:
    """`seed` decides who dies, and when."""

    def __init__(self, kind: str, place: Path, seed: int, *, static: bool = True, client: str = CONFLUENT) -> None:
        self.lasting = LastingBroker(kind, place, SETTINGS)
        self._broker: Broker
        self._random = random.Random(seed)
        self._loop = CopyLoop(lambda: self.lasting.bootstrap, [WorkerKind(client)] * WORKERS, static=static)
        self.deaths: list[str] = []
        # Records of transactions that a death cut short: there, but nobody who reads committed ones sees them.
        self.aborted = 0

    @property
    def names(self) -> list[str]:
        return self._loop.names

    def run(self, kills: int) -> None:
        with ExitStack() as processes:
            self._start_broker(processes)
            processes.callback(self._loop.end)
            writer = self._loop.create()
            with writer.running(at_once=1):
                while len(self.deaths) < kills:
                    self._one_death(processes)
                self._loop.await_progress(tell=self._tell)
            self.aborted = self._loop.finish(writer, self._tell).aborted_records

    def _start_broker(self, processes: ExitStack, crash_at: str | None = None) -> None:
        env = None if crash_at is None else {"BRAIDLOG_CRASH_AT": crash_at}
        self._broker = processes.enter_context(self.lasting.life(env))

    def _one_death(self, processes: ExitStack) -> None:
        """Somebody dies and comes back; seldom before it could do anything in its new life."""
        self._loop.supervise()
        victim = self._random.choice([*self.names, "broker"])
        if self._random.random() < 0.8:
            self._loop.await_progress(None if victim == "broker" else victim, self._tell)
        # The moment is the point of it: no event leads to a random one.
        time.sleep(self._random.uniform(0, 0.3))
        self._loop.check_commits_only_advance(self._tell)
        if victim != "broker":
            self.deaths.append(victim)
            self._loop.kill(victim)
            return
        self._broker_dies(processes)
        self._loop.check_commits_only_advance(self._tell)

    def _broker_dies(self, processes: ExitStack) -> None:
        """And comes back."""
        self.deaths.append("broker")
        self._broker.kill()
        if self.lasting.kind != KAFKA and self._random.random() < 0.5:
            self._die_by_itself(processes)
        self._start_broker(processes)

    def _die_by_itself(self, processes: ExitStack) -> None:
        """A life that ends at a named point, such as right after a write, before anybody is told of it."""
        point = self._random.choice(list(POINTS))
        crash_at = f"{point}:{self._random.randint(1, POINTS[point])}"
        try:
            self._start_broker(processes, crash_at)
            deadline = time.monotonic() + DIES_WITHIN_S
            eventually(lambda: self._broker_is_dead() or time.monotonic() > deadline)
            if self._broker.process.returncode is None:
                self._broker.kill()
                crash_at = "broker"
        except ProcessFailed as failure:
            # It may die before it is ready, too: starting writes.
            if "ended with -9" not in str(failure):
                raise
        self.deaths.append(crash_at)

    def _broker_is_dead(self) -> bool:
        self._loop.supervise()
        return self._broker.process.returncode is not None

    def _tell(self) -> str:
        return f"deaths: {self.deaths}\n--- broker\n{self._broker.log()}"
