"""Exactly once, end to end: workers that copy one topic into another in transactions, and the deaths they live through.

A worker is a process: `python -m support.exactly_once <plan as JSON>`. It reads committed records, writes each to the
same partition of the other topic, and commits its offsets in the same transaction. Whatever it cannot go on from, it
ends with `GAVE_UP`, and is started again, as a supervisor would.
"""

from __future__ import annotations

import faulthandler
import json
import os
import random
import signal
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition
from tools.peers.process import LoggedProcess, ProcessFailed

from support.broker import KAFKA, Broker
from support.confluent import create_topic
from support.eventually import eventually
from support.group_members import generation_of
from support.group_scenarios import committed
from support.groups import TESTS, LastingBroker
from support.numbered import NumberedWriter, read_numbers

SOURCE, SINK, GROUP = "source", "sink", "copiers"
PARTITIONS = 4
GAVE_UP = 3
ONCE_S = 10.0
# A static member's session outlasts every death, its heir takes its place; a dynamic one's ends soon after its own.
SESSIONS_MS = {True: 30_000, False: 1_500}
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


@dataclass(frozen=True)
class Plan:
    name: str
    bootstrap: str
    static: bool
    # Whose client it is: "confluent", or "braidlog" (`support.exactly_once_ours`).
    client: str = "confluent"


class Copier:
    """One worker: a member of the group, with its own transactional id."""

    def __init__(self, plan: Plan) -> None:
        common = {
            "bootstrap.servers": plan.bootstrap,
            "reconnect.backoff.ms": 10,
            "reconnect.backoff.max.ms": 100,
            "retry.backoff.ms": 20,
            # librdkafka 2.16 forgets its brokers when the only one is gone, but not that one of them was the group's
            # coordinator: it would wait for a broker that it has put away.
            "metadata.recovery.strategy": "none",
            "log_level": 2,
        }
        self._producer = Producer(
            {**common, "transactional.id": plan.name, "transaction.timeout.ms": 20_000, "linger.ms": 1}
        )
        self._consumer = Consumer(
            {
                **common,
                "group.id": GROUP,
                **({"group.instance.id": plan.name} if plan.static else {}),
                "session.timeout.ms": SESSIONS_MS[plan.static],
                "heartbeat.interval.ms": 200,
                "isolation.level": "read_committed",
                "enable.auto.commit": False,
                # Every partition has a committed offset from the start on: whoever finds none, or one that is not
                # there, has found a loss.
                "auto.offset.reset": "error",
                "fetch.wait.max.ms": 50,
            }
        )

    def run(self) -> None:
        _insist(lambda: self._producer.init_transactions(ONCE_S))
        self._consumer.subscribe([SOURCE])
        while True:
            # Taken before the records: were a rebalance to come between, the coordinator would refuse their offsets.
            membership = self._consumer.consumer_group_metadata()
            messages = self._consumer.consume(50, 0.05)
            records = [message for message in messages if message.error() is None]
            for message in messages:
                error = message.error()
                assert error is None or error.code() != KafkaError._AUTO_OFFSET_RESET, error
            if not records:
                continue
            if generation_of(membership) > 0 and self._copy(records, membership):
                print(f"copied {len(records)}", flush=True)
            else:
                self._rewind()

    def _copy(self, records: Sequence[Message], membership: bytes) -> bool:
        """Whether the records are copied; if not, nothing of them is."""
        ends: dict[tuple[str, int], int] = {}
        self._producer.begin_transaction()
        try:
            for record in records:
                partition = int(record.partition() or 0)
                self._producer.produce(SINK, value=record.value(), key=record.key(), partition=partition)
                ends[SOURCE, partition] = int(record.offset() or 0) + 1
            self._dawdle()
            offsets = [TopicPartition(topic, index, end) for (topic, index), end in ends.items()]
            _insist(lambda: self._producer.send_offsets_to_transaction(offsets, membership, ONCE_S))
            self._dawdle()
            _insist(lambda: self._producer.commit_transaction(ONCE_S))
        except KafkaException as failure:
            if not failure.args[0].txn_requires_abort():
                raise
            print(f"aborts: {failure}", flush=True)
            _insist(lambda: self._producer.abort_transaction(ONCE_S))
            return False
        return True

    def _dawdle(self) -> None:
        """With its records sent: so that a death is likely to find a transaction open."""
        self._producer.flush(ONCE_S)
        time.sleep(random.uniform(0, 0.02))

    def _rewind(self) -> None:
        """Back to what the group has committed."""
        owned = self._consumer.assignment()
        for place in self._consumer.committed(owned, timeout=ONCE_S):
            assert place.offset >= 0, f"the group has committed nothing for {place}"
            self._consumer.seek(TopicPartition(place.topic, place.partition, place.offset))


def _insist(call: Callable[[], object]) -> None:
    """Repeat a call that may be repeated until it succeeds."""
    while True:
        try:
            call()
            return
        except KafkaException as failure:
            if not failure.args[0].retriable():
                raise
            print(f"again: {failure}", flush=True)


class CopyScenario:
    """A broker, a writer, workers, and somebody who kills them all by turns; `seed` decides whom and when."""

    def __init__(
        self, kind: str, place: Path, seed: int, *, static: bool = True, workers: int = 2, client: str = "confluent"
    ) -> None:
        self.random = random.Random(seed)
        self.lasting = LastingBroker(kind, place, SETTINGS)
        self.static = static
        self.client = client
        self.names = [f"copier-{number}" for number in range(workers)]
        self.deaths: list[str] = []
        # Records of transactions that a death cut short: there, but nobody who reads committed ones sees them.
        self.aborted = 0
        self._broker: Broker
        self._workers: dict[str, LoggedProcess] = {}
        self._committed: dict[tuple[str, int], int] = {}
        self._copied_before = dict.fromkeys(self.names, 0)

    def run(self, kills: int) -> None:
        with ExitStack() as processes:
            self._start_broker(processes)
            for topic in (SOURCE, SINK):
                create_topic(self.lasting.bootstrap, topic, PARTITIONS)
            self._commit_the_beginning()
            writer = NumberedWriter(self.lasting.bootstrap, {SOURCE: PARTITIONS})
            with writer.running(at_once=1):
                while len(self.deaths) < kills:
                    self._one_death(processes)
                self._await_progress()
            writer.flush()
            written = {books.partition: books.sent for books in writer.books}
            found = self._read_when_done(written)
            for partition, count in written.items():
                numbers = [number for _, number in found[SINK, partition]]
                assert numbers == list(range(count)), _difference(partition, numbers, count)
            everything = read_numbers(self.lasting.bootstrap, list(found), isolation_level="read_uncommitted")
            self.aborted = sum(map(len, everything.values())) - sum(written.values())
            for name in self.names:
                self._workers[name].kill()

    def _commit_the_beginning(self) -> None:
        first = Consumer({"bootstrap.servers": self.lasting.bootstrap, "group.id": GROUP, "enable.auto.commit": False})
        beginning = [TopicPartition(SOURCE, partition, 0) for partition in range(PARTITIONS)]
        first.commit(offsets=beginning, asynchronous=False)
        first.close()

    def _start_broker(self, processes: ExitStack, crash_at: str | None = None) -> None:
        env = None if crash_at is None else {"BRAIDLOG_CRASH_AT": crash_at}
        self._broker = processes.enter_context(self.lasting.life(env))

    def _one_death(self, processes: ExitStack) -> None:
        """Somebody dies and comes back; seldom before it could do anything in its new life."""
        self._supervise()
        victim = self.random.choice([*self.names, "broker"])
        if self.random.random() < 0.8:
            self._await_progress(victim)
        # The moment is the point of it: no event leads to a random one.
        time.sleep(self.random.uniform(0, 0.3))
        self._check_commits_only_advance()
        self.deaths.append(victim)
        if victim != "broker":
            self._workers[victim].kill()
            return
        self._broker.kill()
        if self.lasting.kind != KAFKA and self.random.random() < 0.5:
            self._die_by_itself(processes)
        self._start_broker(processes)
        self._check_commits_only_advance()

    def _check_commits_only_advance(self) -> None:
        places = dict.fromkeys((SOURCE, partition) for partition in range(PARTITIONS))
        now = {place: offset for place, (offset, _) in committed(self.lasting.bootstrap, GROUP, places).items()}
        for place, offset in now.items():
            assert offset >= self._committed.get(place, -1), (
                f"{place}: {self._committed[place]} was committed, now {offset} is\n{self.tell()}"
            )
        self._committed = now

    def _die_by_itself(self, processes: ExitStack) -> None:
        """A life that ends at a named point, such as right after a write, before anybody is told of it."""
        point = self.random.choice(list(POINTS))
        crash_at = f"{point}:{self.random.randint(1, POINTS[point])}"
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
        self._supervise()
        return self._broker.process.returncode is not None

    def _supervise(self) -> None:
        """Start the workers that are not there; anything but a kill or giving up is a failure."""
        for name in self.names:
            worker = self._workers.get(name)
            if worker is not None:
                if worker.returncode is None:
                    continue
                assert worker.returncode in (-9, GAVE_UP), f"{name} ended with {worker.returncode}:\n{worker.log()}"
                self._copied_before[name] += _copied(worker)
            plan = json.dumps(asdict(Plan(name, self.lasting.bootstrap, self.static, self.client)))
            environment = {**os.environ, "PYTHONPATH": f"{TESTS}:{TESTS.parent}", "PYTHONUNBUFFERED": "1"}
            command = [sys.executable, "-m", "support.exactly_once", plan]
            self._workers[name] = LoggedProcess(name, command, env=environment)

    def _copied(self, whose: str) -> int:
        if whose in self._workers:
            return self._copied_before[whose] + _copied(self._workers[whose])
        return sum(map(self._copied, self._workers))

    def _await_progress(self, whose: str = "all") -> None:
        """Until a worker, or any of them, has copied more than it has by now."""
        before = self._copied(whose)

        def progressed() -> bool:
            self._supervise()
            return self._copied(whose) > before

        try:
            eventually(progressed, 60)
        except AssertionError as stuck:
            raise AssertionError(f"{stuck}\n{self.tell()}") from None

    def tell(self) -> str:
        """What everybody said last, and where the workers stand."""
        for worker in self._workers.values():
            said = len(worker.lines)
            worker.signal(signal.SIGUSR1)
            worker.wait_for_line(r"in main$", after=said)
        logs = "\n".join(f"--- {name}\n{worker.log(25)}" for name, worker in self._workers.items())
        return f"deaths: {self.deaths}\n{logs}\n--- broker\n{self._broker.log()}"

    def _read_when_done(self, written: dict[int, int]) -> dict[tuple[str, int], list[tuple[int, int]]]:
        places = [(SINK, partition) for partition in written]
        found: dict[tuple[str, int], list[tuple[int, int]]] = {}

        def done() -> bool:
            self._supervise()
            found.update(read_numbers(self.lasting.bootstrap, places, isolation_level="read_committed"))
            return all(len(found[SINK, partition]) >= count for partition, count in written.items())

        try:
            eventually(done, 60)
        except AssertionError as stuck:
            counts = {partition: (len(found[SINK, partition]), count) for partition, count in written.items()}
            raise AssertionError(f"copied and written: {counts}\n{stuck}\n{self.tell()}") from None
        return found


def _copied(worker: LoggedProcess) -> int:
    return sum(line.startswith("copied ") for line in worker.lines)


def _difference(partition: int, numbers: list[int], count: int) -> str:
    twice = sorted({number for number in numbers if numbers.count(number) > 1})
    missing = sorted(set(range(count)) - set(numbers))
    return f"partition {partition}: twice {twice[:10]}, missing {missing[:10]}, of {count}"


def main(arguments: Sequence[str]) -> None:
    faulthandler.register(signal.SIGUSR1)  # says where it stands, when it does not get on
    plan = Plan(**json.loads(arguments[0]))
    if plan.client == "braidlog":
        from support.exactly_once_ours import run

        run(plan.name, plan.bootstrap, plan.static)
        return
    try:
        Copier(plan).run()
    except KafkaException as failure:
        print(f"gives up: {failure}", flush=True)
        os._exit(GAVE_UP)  # not even a goodbye to the group, as a crash would


if __name__ == "__main__":
    main(sys.argv[1:])
