"""Kafka Streams, Connect and MirrorMaker 2 go on while brokers of Kafka are replaced by ours, one by one, and back.

The brokers keep their ids, ports and log directories. The programs run all the time, and records are written before
each replacement, while the broker is away and after it has come back.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Final

import pytest
from confluent_kafka import Consumer as ConfluentConsumer
from confluent_kafka import KafkaException
from confluent_kafka import TopicPartition as ConfluentPartition
from tools.peers.java import mirror_libs
from tools.peers.kafka import TOOL_JVM, java_command
from tools.peers.maven import PeerMissing
from tools.peers.process import LoggedProcess

from braidlog.local_cluster.zookeeper import ZooKeeper
from braidlog.testing import Broker
from support import confluent
from support.broker import BRAIDLOG, KAFKA
from support.connect import READY_WITHIN_S, Worker
from support.ensemble import start_ensemble
from support.eventually import eventually
from support.ports import lasting_port
from support.samples import Sample
from support.word_count import EXACTLY_ONCE, WordCountApp

pytestmark = [
    pytest.mark.peer,
    pytest.mark.long,
    pytest.mark.never_repeated,
    pytest.mark.usefixtures("apache_kafka"),
    pytest.mark.timeout(2400),
]

# The applications' sessions are short.
SETTINGS: Final = {"group.min.session.timeout.ms": "1000"}
REPLICAS: Final = 3
LINES: Final = 40
COMES_WITHIN_S: Final = 180.0


class Program(ABC):
    """Runs all the time; what is written into it comes out of it."""

    name: str

    @abstractmethod
    def write(self, count: int) -> None:
        """As much into it, and wait until the brokers have it."""

    @abstractmethod
    def has_all(self) -> bool:
        """Whether everything that was written has come out."""

    @abstractmethod
    def check(self) -> str:
        """What came out, exactly; the summary is for who reads the test's output."""

    @property
    @abstractmethod
    def process(self) -> LoggedProcess: ...

    def await_all(self) -> None:
        def done() -> bool:
            assert self.process.returncode is None, self.process.log()
            return self.has_all()

        try:
            eventually(done, COMES_WITHIN_S)
        except AssertionError as late:
            raise AssertionError(f"{self.name}: {late}\n{self.process.log()}") from None


class Words(Program):
    """Kafka Streams counts words, exactly once."""

    name = "streams"

    def __init__(self, bootstrap: str, place: Path) -> None:
        self._app = WordCountApp(bootstrap, "words", EXACTLY_ONCE, place, REPLICAS)
        self._process = self._app.start("num.standby.replicas=0")

    @property
    def process(self) -> LoggedProcess:
        return self._process

    def write(self, count: int) -> None:
        self._app.write(count)

    def has_all(self) -> bool:
        return self._app.counts() == self._app.expected

    def check(self) -> str:
        self._app.check_counted_once()
        return f"{sum(self._app.expected.values())} words, each counted once"


class Lines(Program):
    """Connect carries the lines of a file to a topic, exactly once, and from there to another file, at least once."""

    name = "connect"
    topic: Final = "lines"

    def __init__(self, bootstrap: str, place: Path) -> None:
        self._bootstrap = bootstrap
        self._source, self._sink = place / "source.txt", place / "sink.txt"
        self._source.touch()
        self._written = 0
        confluent.create_topic(bootstrap, self.topic, 1, REPLICAS)
        self._worker = Worker(bootstrap, "connectors", place, REPLICAS)

    def connect(self) -> None:
        connectors = {
            "source": {
                "connector.class": "FileStreamSource",
                "file": str(self._source),
                "topic": self.topic,
                "exactly.once.support": "required",
            },
            "sink": {
                "connector.class": "FileStreamSink",
                "file": str(self._sink),
                "topics": self.topic,
                "consumer.override.isolation.level": "read_committed",
            },
        }
        eventually(lambda: self._worker.answers("connectors") == [], READY_WITHIN_S)
        for name, config in connectors.items():
            wanted = {"name": name, "config": {**config, "tasks.max": "1"}}
            eventually(lambda wanted=wanted: self._worker.answers("connectors", wanted) is not None, READY_WITHIN_S)  # type: ignore[misc]

    @property
    def process(self) -> LoggedProcess:
        return self._worker.process

    @property
    def _expected(self) -> list[str]:
        return [f"line {number}" for number in range(self._written)]

    def write(self, count: int) -> None:
        with self._source.open("a") as more:
            more.writelines(f"line {number}\n" for number in range(self._written, self._written + count))
        self._written += count

    def _arrived(self) -> list[str]:
        return self._sink.read_text().splitlines() if self._sink.exists() else []

    def has_all(self) -> bool:
        return set(self._arrived()) == set(self._expected)

    def check(self) -> str:
        records = confluent.read_all(self._bootstrap, self.topic, isolation_level="read_committed")
        assert [message.value().decode() for message in records] == self._expected
        arrived = self._arrived()
        assert list(dict.fromkeys(arrived)) == self._expected
        return f"{self._written} lines, once each in the topic; {len(arrived) - self._written} again in the sink's file"


class Mirror(Program):
    """MirrorMaker 2 copies a topic to another cluster, exactly once, and the offsets of a group."""

    name = "mirrormaker 2"
    topic: Final = "orders"
    copy: Final = "walked.orders"
    group: Final = "readers"
    partitions: Final = 2

    def __init__(self, bootstrap: str, target: str, place: Path) -> None:
        self._bootstrap = bootstrap
        self._target = target
        self._written = 0
        self._read: set[str] = set()
        confluent.create_topic(bootstrap, self.topic, self.partitions, REPLICAS)
        settings = {
            "clusters": "walked, kept",
            "walked.bootstrap.servers": bootstrap,
            "kept.bootstrap.servers": target,
            "walked->kept.enabled": "true",
            "walked->kept.topics": self.topic,
            "walked->kept.groups": self.group,
            "walked->kept.sync.group.offsets.enabled": "true",
            "kept->walked.emit.heartbeats.enabled": "false",
            "kept.exactly.once.source.support": "enabled",
            "dedicated.mode.enable.internal.rest": "true",
            "listeners": f"http://127.0.0.1:{lasting_port()}",
            "replication.factor": "1",
            "checkpoints.topic.replication.factor": "1",
            "heartbeats.topic.replication.factor": "1",
            "offset-syncs.topic.replication.factor": str(REPLICAS),
            "kept.offset.storage.replication.factor": "1",
            "kept.config.storage.replication.factor": "1",
            "kept.status.storage.replication.factor": "1",
            "walked.offset.storage.replication.factor": str(REPLICAS),
            "walked.config.storage.replication.factor": str(REPLICAS),
            "walked.status.storage.replication.factor": str(REPLICAS),
            "sync.topic.acls.enabled": "false",
            "offset.lag.max": "5",
            "refresh.topics.interval.seconds": "3",
            "refresh.groups.interval.seconds": "3",
            "emit.checkpoints.interval.seconds": "1",
            "sync.group.offsets.interval.seconds": "1",
            "offset.flush.interval.ms": "500",
        }
        path = place / "mm2.properties"
        path.write_text("".join(f"{key} = {value}\n" for key, value in settings.items()))
        main = "org.apache.kafka.connect.mirror.MirrorMaker"
        try:
            classpath = f"{mirror_libs()}/*"
        except PeerMissing as missing:
            pytest.skip(str(missing))
        self._process = LoggedProcess("mm2", java_command(main, [str(path)], TOOL_JVM, "WARN", classpath))

    @property
    def process(self) -> LoggedProcess:
        return self._process

    def write(self, count: int) -> None:
        producer = confluent.producer(self._bootstrap, enable_idempotence=True)
        for partition in range(self.partitions):
            samples = [
                Sample(b"key", f"{partition}/{number}".encode())
                for number in range(self._written, self._written + count)
            ]
            confluent.send(producer, self.topic, samples, partition)
        self._written += count
        self._read_half()

    def _read_half(self) -> None:
        """Half of what was written is read in the group and committed; the other half is for a reader of the copy."""
        half = self._written // 2
        consumer = ConfluentConsumer(
            {"bootstrap.servers": self._bootstrap, "group.id": self.group, "enable.auto.commit": False}
        )
        try:
            places = [ConfluentPartition(self.topic, partition) for partition in range(self.partitions)]
            for place in consumer.committed(places, timeout=60):
                place.offset = max(place.offset, 0)
                consumer.assign([place])
                values = confluent.read(consumer, half - place.offset)
                self._read.update(message.value().decode() for message in values)
            consumer.commit(
                offsets=[ConfluentPartition(self.topic, partition, half) for partition in range(self.partitions)],
                asynchronous=False,
            )
        finally:
            consumer.close()

    def _copied(self, partition: int) -> list[str]:
        read = confluent.read_all(self._target, self.copy, partition, isolation_level="read_committed")
        return [message.value().decode() for message in read]

    def has_all(self) -> bool:
        try:
            return all(len(self._copied(partition)) >= self._written for partition in range(self.partitions))
        except KafkaException:
            # The copy is not there yet.
            return False

    def _translated(self) -> list[int]:
        consumer = ConfluentConsumer({"bootstrap.servers": self._target, "group.id": self.group})
        try:
            places = [ConfluentPartition(self.copy, partition) for partition in range(self.partitions)]
            return [place.offset for place in consumer.committed(places, timeout=60)]
        finally:
            consumer.close()

    def check(self) -> str:
        for partition in range(self.partitions):
            assert self._copied(partition) == [f"{partition}/{number}" for number in range(self._written)]
        # The group goes on with the copy where it was, or a little before: nothing is left out.
        half = self._written // 2
        eventually(lambda: min(self._translated()) > half // 2, COMES_WITHIN_S)
        rest: set[str] = set()
        for partition, offset in enumerate(self._translated()):
            with confluent.assigned(
                self._target, self.copy, offset, partition, isolation_level="read_committed"
            ) as consumer:
                rest.update(message.value().decode() for message in confluent.read(consumer))
        everything = {f"{each}/{number}" for each in range(self.partitions) for number in range(self._written)}
        assert self._read | rest == everything
        again = len(self._read & rest)
        return f"{self._written * self.partitions} records copied once each; {again} are read again after the switch"


@pytest.fixture
def target(tmp_path: Path) -> Iterator[str]:
    """Another cluster, of one broker of ours."""
    with Broker("process", data_dir=tmp_path / "target") as running:
        yield running.bootstrap_servers


def test_programs_go_on_while_brokers_are_replaced_and_back(
    zookeeper: ZooKeeper, new_connect: Callable[[], str], target: str, tmp_path: Path
) -> None:
    with start_ensemble(tmp_path, new_connect(), [KAFKA] * 3, SETTINGS) as ensemble, ExitStack() as running:
        bootstrap = ensemble.bootstrap_servers
        lines = Lines(bootstrap, tmp_path)
        running.enter_context(lines.process)
        programs: list[Program] = [lines, Words(bootstrap, tmp_path / "state"), Mirror(bootstrap, target, tmp_path)]
        for program in programs[1:]:
            running.enter_context(program.process)
        lines.connect()

        def write() -> None:
            for program in programs:
                program.write(LINES)

        def await_all() -> None:
            for program in programs:
                program.await_all()

        write()
        await_all()
        for kind in (BRAIDLOG, KAFKA):
            for broker in ensemble.brokers:
                write()
                broker.stop()
                write()
                broker.start(kind)
                write()
                ensemble.await_whole()
                await_all()
                print(f"broker {broker.id} is now {kind}", flush=True)
        for program in programs:
            print(f"{program.name}: {program.check()}", flush=True)
            assert program.process.returncode is None
