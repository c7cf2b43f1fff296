"""A consumer group under test: a topic that is written all the while, members as processes, and what they noted."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

from tools.peers.kafka import start_kafka
from tools.peers.process import LoggedProcess

from support.broker import KAFKA, Broker, start_braidlog
from support.confluent import create_topic
from support.eventually import eventually
from support.group_members import Plan
from support.numbered import NumberedWriter, PartitionLedger
from support.ownership import History, Note, Partition, owned, read_notes
from support.ports import lasting_port

TESTS = Path(__file__).parent.parent
SESSION_MS = 3_000
HEARTBEAT_MS = 300
SETTLES_WITHIN_S = 45.0
# Every record is read, committed and noted by a process: more of them would only occupy the machine.
WRITES_EVERY_S = 0.05

# A broker whose groups settle in moments: what takes Kafka's defaults seconds says nothing more about right or wrong.
QUICK_SETTINGS = {
    "group.initial.rebalance.delay.ms": "0",
    "group.min.session.timeout.ms": "500",
    "group.consumer.min.session.timeout.ms": "500",
    "group.consumer.session.timeout.ms": str(SESSION_MS),
    "group.consumer.min.heartbeat.interval.ms": "100",
    "group.consumer.heartbeat.interval.ms": str(HEARTBEAT_MS),
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "100",
}
# What Apache Kafka 3.9 needs on top, to serve the consumer group protocol.
KAFKA_SETTINGS = {"group.coordinator.rebalance.protocols": "classic,consumer"}

TIMEOUTS: Mapping[str, Mapping[str, Any]] = {
    "braidlog": {"session.timeout.ms": SESSION_MS, "heartbeat.interval.ms": HEARTBEAT_MS},
    "confluent": {"session.timeout.ms": SESSION_MS, "heartbeat.interval.ms": HEARTBEAT_MS},
    "kafka-python": {"session_timeout_ms": SESSION_MS, "heartbeat_interval_ms": HEARTBEAT_MS},
    "aiokafka": {"session_timeout_ms": SESSION_MS, "heartbeat_interval_ms": HEARTBEAT_MS},
}


class LastingBroker:
    """One data directory and one port that a broker of either kind comes back to."""

    def __init__(self, kind: str, place: Path, settings: Mapping[str, str] | None = None) -> None:
        self.kind = kind
        self.data_dir = place
        self.port = lasting_port()
        self.bootstrap = f"127.0.0.1:{self.port}"
        self.settings = {**QUICK_SETTINGS, **(settings or {})}

    @contextmanager
    def life(self, env: Mapping[str, str] | None = None) -> Iterator[Broker]:
        """From a start to whatever end the test makes of it; the default is a clean one."""
        self.data_dir.mkdir(parents=True, exist_ok=True)
        if self.kind == KAFKA:
            with start_kafka(self.data_dir, self.port, {**self.settings, **KAFKA_SETTINGS}) as kafka:
                yield Broker(KAFKA, kafka.process, kafka.port, self.data_dir)
            return
        settings = {"braidlog.http.listen": "", **self.settings}
        with start_braidlog(self.data_dir, settings, port=self.port, env=env) as broker:
            yield broker
            if broker.process.returncode is None:
                assert broker.stop() == 0, f"braidlog did not stop cleanly:\n{broker.log()}"


class Member:
    """A member's process."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.name = plan.name
        command = [sys.executable, "-m", "support.group_members", plan.to_json()]
        environment = {**os.environ, "PYTHONPATH": str(TESTS), "PYTHONUNBUFFERED": "1"}
        self.process = LoggedProcess(plan.name, command, env=environment)
        self._lines_read = 0
        self._notes: list[Note] = []

    @property
    def notes(self) -> list[Note]:
        """All notes so far. Whoever waits asks often, so a line is parsed only once."""
        lines = self.process.lines_after(self._lines_read)
        self._lines_read += len(lines)
        self._notes += read_notes(lines)
        return list(self._notes)

    def owned(self) -> set[Partition]:
        return owned(self.notes)

    def generation(self) -> int:
        return max((note.generation for note in self.notes), default=-1)

    def leave(self) -> None:
        assert self.process.terminate() == 0, f"{self.name} did not leave in order:\n{self.process.log()}"

    def kill(self) -> None:
        self.process.kill()

    def stall(self) -> None:
        self.process.signal(signal.SIGSTOP)

    def wake(self) -> None:
        self.process.signal(signal.SIGCONT)


class GroupUnderTest:
    """Topics with a writer, and the members that read them."""

    def __init__(self, bootstrap: str, group: str, topics: Mapping[str, int], client: str, settings: Mapping[str, Any]):
        self.bootstrap = bootstrap
        self.group = group
        self.client = client
        self.settings = dict(settings)
        self.counts = dict(topics)
        self.topics = sorted(topics)
        self.writer = NumberedWriter(bootstrap, topics)
        self.members: dict[str, Member] = {}

    def start(self, name: str, client: str | None = None, **plan: Any) -> Member:
        """A new member; `plan` may say what differs from its fellows. A name that comes again is a static member's."""
        client = client or self.client
        settings = {**TIMEOUTS[client], **(self.settings if client == self.client else {}), **plan.pop("settings", {})}
        if settings.get("group.protocol") == "consumer":
            # The broker says these in the consumer protocol, and librdkafka will not be told otherwise.
            settings = {key: value for key, value in settings.items() if key not in TIMEOUTS["confluent"]}
        if "pattern" not in plan:
            plan.setdefault("topics", self.topics)
        member = Member(Plan(client, name, self.bootstrap, self.group, settings=settings, **plan))
        self.members[f"{name}, life {sum(each.name == name for each in self.members.values()) + 1}"] = member
        return member

    def writing(self) -> AbstractContextManager[None]:
        """A record to every partition again and again, until the block ends."""
        return self.writer.running(at_once=1, every_s=WRITES_EVERY_S)

    @property
    def partitions(self) -> set[Partition]:
        return {(topic, index) for topic, count in self.counts.items() for index in range(count)}

    def watch_also(self, topics: Mapping[str, int]) -> None:
        """These exist by now, too, or have more partitions: they are written, and expected of the members."""
        known = {(books.topic, books.partition): books for books in self.writer.books}
        self.counts.update(topics)
        for topic in topics:
            self.writer.learn(topic)
        self.writer.books = [known.get(place) or PartitionLedger(*place) for place in sorted(self.partitions)]

    def settle(self, *members: Member, within_s: float = SETTLES_WITHIN_S) -> None:
        """Wait until exactly these members have everything among them, each at least something."""
        partitions = self.partitions

        def shared() -> bool:
            self._check_alive(members)
            shares = [member.owned() for member in members]
            return all(shares) and sum(map(len, shares)) == len(partitions) and set().union(*shares) == partitions

        try:
            eventually(shared, within_s)
        except AssertionError as late:
            raise AssertionError(f"{late}\n{self.tell()}") from None

    def _check_alive(self, members: tuple[Member, ...]) -> None:
        for member in members:
            code = member.process.returncode
            assert code is None, f"{member.name} ended with {code}:\n{member.process.log()}"

    def tell(self) -> str:
        """What everybody said last, for a failure's message."""
        return "\n".join(f"--- {name}\n{member.process.log(15)}" for name, member in self.members.items())

    def read_all(self, within_s: float = SETTLES_WITHIN_S) -> None:
        """Wait until everything that was written so far is read and its commits are acknowledged."""
        self.writer.flush()
        written = self.written()

        def done() -> bool:
            committed = self.history().committed()
            return all(committed.get(partition, 0) >= count for partition, count in written.items())

        try:
            eventually(done, within_s)
        except AssertionError as late:
            raise AssertionError(f"{late}\n{written}\n{self.history().committed()}\n{self.tell()}") from None

    def written(self) -> dict[Partition, int]:
        return {(books.topic, books.partition): books.sent for books in self.writer.books if books.sent}

    def end(self) -> None:
        """End what is left of the members."""
        for member in self.members.values():
            member.wake()
            member.process.__exit__()

    def history(self) -> History:
        return History({name: member.notes for name, member in self.members.items()})


@contextmanager
def group_under_test(
    bootstrap: str, topic: str, client: str, partitions: int = 6, create: bool = True, **settings: Any
) -> Iterator[GroupUnderTest]:
    """A topic of `partitions`, and the group that reads it; all members are ended on leaving."""
    if create:
        create_topic(bootstrap, topic, partitions)
    group = GroupUnderTest(bootstrap, f"{topic}-group", {topic: partitions}, client, settings)
    try:
        yield group
    finally:
        group.end()


def at_rest(members: Iterable[Member], partitions: int) -> bool:
    """All are in one generation, and none of the partitions is on its way from one to another."""
    everyone = list(members)
    return (
        len({member.generation() for member in everyone}) == 1
        and sum(len(member.owned()) for member in everyone) == partitions
    )
