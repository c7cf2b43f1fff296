"""Two topics and the workers that copy one into the other exactly once; what came of it, against what was written.

Every worker is a process. One that was killed, or gave up, is started again, as a supervisor would.
"""

from __future__ import annotations

import os
import signal
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from typing import NamedTuple

from confluent_kafka import Consumer, TopicPartition
from tools.peers.process import LoggedProcess

from support.confluent import create_topic
from support.copy_plan import CLASSIC, CONFLUENT, GAVE_UP, JAVA_NEWER, JAVA_OLDER, Plan
from support.eventually import eventually
from support.group_scenarios import committed
from support.groups import TESTS
from support.java_programs import NEWER, OLDER, client_programs
from support.numbered import NumberedWriter, read_numbers

PARTITIONS = 4
# Without a transaction for so long nobody gets on; a busy machine needs some of that to start a worker.
PROGRESS_WITHIN_S = 120.0
JAVA_VERSIONS = {JAVA_OLDER: OLDER, JAVA_NEWER: NEWER}


class WorkerKind(NamedTuple):
    client: str = CONFLUENT
    protocol: str = CLASSIC


class Copied(NamedTuple):
    """What a loop has done."""

    records: int
    transactions: int
    # By the workers themselves, after an error.
    aborted: int
    # Records of transactions that were aborted or cut short by a death: nobody who reads committed ones sees them.
    aborted_records: int

    def __str__(self) -> str:
        return (
            f"{self.records} records in {self.transactions} transactions, {self.aborted} aborted by their worker, "
            f"{self.aborted_records} records of transactions that were not committed"
        )


class _Worker:
    """One worker through all of its lives."""

    def __init__(self, name: str, kind: WorkerKind) -> None:
        self.name = name
        self.kind = kind
        self.process: LoggedProcess | None = None
        self.copied = 0
        self.aborted = 0
        self._seen = 0

    def start(self, plan: Plan) -> None:
        self._seen = 0
        self.process = LoggedProcess(self.name, _command(plan), env=_environment())

    def count(self) -> None:
        """Take in what it has said since this was last asked."""
        if self.process is None:
            return
        said = self.process.lines_after(self._seen)
        self._seen += len(said)
        self.copied += sum(line.startswith("copied ") for line in said)
        self.aborted += sum(line.startswith("aborts") for line in said)


class CopyLoop:
    """`bootstrap` is asked anew for each worker: brokers may move."""

    def __init__(
        self, bootstrap: Callable[[], str], kinds: Sequence[WorkerKind], *, static: bool = True, name: str = ""
    ) -> None:
        self._bootstrap = bootstrap
        self._static = static
        self.source, self.sink, self.group = (f"{name}{each}" for each in ("source", "sink", "copiers"))
        self._workers = {
            f"{name}copier-{number}": _Worker(f"{name}copier-{number}", kind) for number, kind in enumerate(kinds)
        }
        self._committed: dict[tuple[str, int], int] = {}

    @property
    def names(self) -> list[str]:
        """Of the workers, which are their transactional ids."""
        return list(self._workers)

    @property
    def sink_partitions(self) -> list[tuple[str, int]]:
        return [(self.sink, partition) for partition in range(PARTITIONS)]

    def create(self) -> NumberedWriter:
        """The topics, the group's first offsets, and who writes what is to be copied."""
        bootstrap = self._bootstrap()
        for topic in (self.source, self.sink):
            create_topic(bootstrap, topic, PARTITIONS)
        first = Consumer({"bootstrap.servers": bootstrap, "group.id": self.group, "enable.auto.commit": False})
        beginning = [TopicPartition(self.source, partition, 0) for partition in range(PARTITIONS)]
        first.commit(offsets=beginning, asynchronous=False)
        first.close()
        return NumberedWriter(bootstrap, {self.source: PARTITIONS})

    # Workers

    def supervise(self) -> None:
        """Start the workers that are not there; anything but a kill or giving up is a failure."""
        for worker in self._workers.values():
            worker.count()
            process = worker.process
            if process is not None:
                if process.returncode is None:
                    continue
                process.wait()
                worker.count()
                code = process.returncode
                assert code in (-signal.SIGKILL, GAVE_UP), f"{worker.name} ended with {code}:\n{process.log()}"
            client, protocol = worker.kind
            worker.start(
                Plan(
                    worker.name,
                    self._bootstrap(),
                    # In the newer protocol the heir of a static member that died is refused until its session is over,
                    # which clients take for the end.
                    self._static and protocol == CLASSIC,
                    client,
                    protocol,
                    self.source,
                    self.sink,
                    self.group,
                )
            )

    def kill(self, name: str) -> None:
        process = self._workers[name].process
        assert process is not None
        process.kill()

    def copied(self, name: str | None = None) -> int:
        """Transactions that a worker, or all of them, have committed."""
        counted = self._workers.values() if name is None else [self._workers[name]]
        for worker in counted:
            worker.count()
        return sum(worker.copied for worker in counted)

    def await_progress(self, name: str | None = None, tell: Callable[[], str] = str) -> None:
        """Until a worker, or any of them, has copied more than it has by now."""
        before = self.copied(name)

        def progressed() -> bool:
            self.supervise()
            return self.copied(name) > before

        try:
            eventually(progressed, PROGRESS_WITHIN_S)
        except AssertionError as stuck:
            whom = "no worker" if name is None else name
            raise AssertionError(f"{whom} gets on: {stuck}\n{self.tell()}\n{tell()}") from None

    def tell(self) -> str:
        """What everybody said last, and where the workers stand."""
        running = {worker.name: worker.process for worker in self._workers.values() if worker.process is not None}
        for name, process in running.items():
            said = len(process.lines)
            java = self._workers[name].kind.client in JAVA_VERSIONS
            process.signal(signal.SIGQUIT if java else signal.SIGUSR1)
            process.wait_for_line(r"Heap$|JNI global refs" if java else r"in main$", after=said)
        return "\n".join(f"--- {name}\n{process.log(40)}" for name, process in running.items())

    def end(self) -> None:
        for worker in self._workers.values():
            if worker.process is not None:
                worker.process.__exit__()

    # What came of it

    def check_commits_only_advance(self, tell: Callable[[], str] = str) -> None:
        places = dict.fromkeys((self.source, partition) for partition in range(PARTITIONS))
        try:
            found = committed(self._bootstrap(), self.group, places, PROGRESS_WITHIN_S)
        except AssertionError as silent:
            raise AssertionError(f"no coordinator of {self.group}: {silent}\n{self.tell()}\n{tell()}") from None
        now = {place: offset for place, (offset, _) in found.items()}
        for place, offset in now.items():
            assert offset >= self._committed.get(place, -1), (
                f"{place}: {self._committed[place]} was committed, now {offset} is\n{self.tell()}\n{tell()}"
            )
        self._committed = now

    def finish(self, writer: NumberedWriter, tell: Callable[[], str] = str) -> Copied:
        """Wait until everything is copied: each record once, in order, and the group at the end of its topic."""
        writer.flush()
        written = {books.partition: books.sent for books in writer.books}
        found: dict[tuple[str, int], list[tuple[int, int]]] = {}

        def done() -> bool:
            self.supervise()
            found.update(read_numbers(self._bootstrap(), self.sink_partitions, isolation_level="read_committed"))
            return all(len(found[self.sink, partition]) >= count for partition, count in written.items())

        try:
            eventually(done, PROGRESS_WITHIN_S)
        except AssertionError as stuck:
            counts = {partition: (len(found[self.sink, partition]), count) for partition, count in written.items()}
            raise AssertionError(f"copied and written: {counts}\n{stuck}\n{self.tell()}\n{tell()}") from None
        for partition, count in written.items():
            numbers = [number for _, number in found[self.sink, partition]]
            assert numbers == list(range(count)), _difference(partition, numbers, count)
        self.check_commits_only_advance(tell)
        assert self._committed == {(self.source, partition): count for partition, count in written.items()}
        everything = read_numbers(self._bootstrap(), self.sink_partitions, isolation_level="read_uncommitted")
        records = sum(written.values())
        return Copied(
            records,
            self.copied(),
            sum(worker.aborted for worker in self._workers.values()),
            sum(map(len, everything.values())) - records,
        )


def _command(plan: Plan) -> list[str]:
    version = JAVA_VERSIONS.get(plan.client)
    if version is None:
        return [sys.executable, "-m", "support.exactly_once", plan.to_json()]
    settings = [f"{key}={value}" for key, value in plan.member_settings().items()]
    return client_programs(version).command("CopyWorker", plan.bootstrap, plan.name, plan.source, plan.sink, *settings)


def _environment() -> dict[str, str]:
    own = [str(TESTS), str(TESTS.parent)]
    inherited = os.environ.get("PYTHONPATH")
    return {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([*own, inherited] if inherited else own),
        "PYTHONUNBUFFERED": "1",
    }


def _difference(partition: int, numbers: list[int], count: int) -> str:
    found = Counter(numbers)
    twice = sorted(number for number, times in found.items() if times > 1)
    missing = sorted(set(range(count)) - found.keys())
    return (
        f"partition {partition}: {len(twice)} twice {twice[:10]}, {len(missing)} missing {missing[:10]}, of {count}, "
        f"{'in order' if numbers == sorted(numbers) else 'not in order'}"
    )
