"""Clients that write and read the topics of a replicated cluster through faults, and note all of it in a history.

One topic for each kind of writing; each is written by our own client and by confluent-kafka, and read by both: by one
as a member of a group that commits, by the other from the start without a group.
"""

from __future__ import annotations

import itertools
import logging
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final, NamedTuple

from confluent_kafka import Consumer as ConfluentConsumer
from confluent_kafka import KafkaError, KafkaException, Message
from confluent_kafka import Producer as ConfluentProducer
from confluent_kafka import TopicPartition as ConfluentPartition

from braidlog import Consumer, Producer
from braidlog.client.errors import AbortableError, ClientError
from braidlog.core.protocol_errors import ProtocolError
from braidlog.core.types import TopicPartition
from support import confluent
from support.client_history import (
    Acknowledged,
    CommittedOffset,
    CommittingOffset,
    Ended,
    Ending,
    FetchedOffset,
    FetchingOffset,
    GaveUp,
    HistoryRecorder,
    Operation,
    Read,
    Scanned,
    Sent,
    TopicRules,
)
from support.eventually import eventually
from support.history_checker import Anomaly, Finding, Verdict, judge

PARTITIONS: Final = 2
# So long after the last fault everything has been answered: by default our client tries for two minutes.
ANSWERED_WITHIN_S: Final = 150.0
SCANNED_WITHIN_S: Final = 60.0
_PAUSE_S: Final = 0.1
_POLL_S: Final = 0.2
_CALL_S: Final = 5.0
_COMMIT_EVERY_S: Final = 1.0
_KEYS: Final = 7
_RECORDS_OF_A_TRANSACTION: Final = 2
# Smaller than the segments of a compacted topic, however much has gathered while a leader was away.
_BATCH_BYTES: Final = 8192
_NOT_YET: Final = (Anomaly.LOST, Anomaly.TORN)
_OF_NEW_EPOCHS: Final = (Anomaly.DOUBLED, Anomaly.REORDERED)


class Kind(NamedTuple):
    """A way to write a topic."""

    name: str
    configs: Mapping[str, str]
    rules: TopicRules = TopicRules()
    transactional: bool = False
    compression: str = "none"


_COMPACTED: Final = {
    "cleanup.policy": "compact",
    "segment.bytes": str(4 * _BATCH_BYTES),
    "min.cleanable.dirty.ratio": "0.01",
    "max.compaction.lag.ms": "1000",
}
KINDS: Final = {
    kind.name: kind
    for kind in (
        Kind("idempotent", {}),
        Kind("transactional", {}, transactional=True),
        Kind("compacted", _COMPACTED, TopicRules(compacted=True)),
        Kind("compressed", {}, compression="lz4"),
    )
}


class Client(ABC):
    """A thread that goes on through faults; what it cannot live through is one of its `problems`."""

    def __init__(self, name: str, history: HistoryRecorder) -> None:
        self.name = name
        self.history = history
        self.problems: list[str] = []
        # What made a transactional producer abort, or begin anew.
        self.setbacks: list[str] = []
        self.ends = threading.Event()
        self._thread = threading.Thread(target=self._work, name=name, daemon=True)

    @abstractmethod
    def run(self) -> None:
        """Until `ends`, and then to a good end."""

    def _work(self) -> None:
        try:
            self.run()
        except BaseException as problem:
            self.problems.append(f"{self.name}: {problem!r}")

    def start(self) -> None:
        self._thread.start()

    def join(self, timeout_s: float) -> None:
        self._thread.join(timeout_s)
        if self._thread.is_alive():
            self.problems.append(f"{self.name}: still busy {timeout_s:.0f} s after it was to end")


class Writer(Client):
    def __init__(self, name: str, history: HistoryRecorder, bootstrap: str, topic: str, kind: Kind) -> None:
        super().__init__(f"{name}-{kind.name}", history)
        self.bootstrap = bootstrap
        self.topic = topic
        self.kind = kind
        self.acknowledged = 0
        self._numbers = itertools.count(1)

    def records(self, transaction: str | None = None) -> Iterator[Sent]:
        """One for each partition, noted as sent."""
        for partition in range(PARTITIONS):
            number = next(self._numbers)
            # Of a length that lets batches differ.
            value = f"{self.topic}/{self.name}/{number} ".encode().ljust(120 + number % 200, b".")
            key = f"{self.name}-{number % _KEYS}".encode() if self.kind.rules.compacted else None
            record = Sent(self.name, TopicPartition(self.topic, partition), value, key, transaction)
            self.history.note(record)
            yield record

    def answered(self, record: Sent, offset: int, problem: object) -> None:
        if problem is None:
            self.acknowledged += 1
            self.history.note(Acknowledged(record.partition, record.value, offset))
        else:
            self.history.note(GaveUp(record.value, str(problem)))


class OurWriter(Writer):
    def run(self) -> None:
        with Producer(
            bootstrap_servers=self.bootstrap, compression_type=self.kind.compression, batch_size=_BATCH_BYTES
        ) as producer:
            while not self.ends.wait(_PAUSE_S):
                self.send(producer)
            producer.flush(ANSWERED_WITHIN_S)

    def send(self, producer: Producer, transaction: str | None = None) -> None:
        for record in self.records(transaction):
            future = producer.send(self.topic, record.value, record.key, partition=record.partition.partition)
            future.add_done_callback(self._noting(record))

    def _noting(self, record: Sent) -> Callable[[Any], None]:
        def done(future: Any) -> None:
            problem = future.exception()
            self.answered(record, -1 if problem is not None else future.result().offset, problem)

        return done


class OurTransactions(OurWriter):
    def run(self) -> None:
        for life in _names(self.name, self.topic):
            # One life of the producer: whoever was fenced, or failed for good, begins anew with the same id.
            try:
                with Producer(
                    bootstrap_servers=self.bootstrap,
                    transactional_id=f"{self.topic}-{self.name}",
                ) as producer:
                    _insist(producer.init_transactions, self.ends)
                    self._transact(producer, life)
            except (ClientError, ProtocolError) as problem:
                self.setbacks.append(f"{life} began anew: {problem!r}")
            if self.ends.wait(_PAUSE_S):
                return

    def _transact(self, producer: Producer, life: str) -> None:
        for number in itertools.count(1):
            if self.ends.wait(_PAUSE_S):
                return
            name = f"{life}.{number}"
            producer.begin_transaction()
            try:
                for _ in range(_RECORDS_OF_A_TRANSACTION):
                    self.send(producer, name)
                if number % 5:
                    self.history.note(Ending(name, True))
                    _insist(producer.commit_transaction)
                    self.history.note(Ended(name, True))
                    continue
            except AbortableError as failure:
                self.setbacks.append(f"{name} was aborted: {failure}")
            self.history.note(Ending(name, False))
            _insist(producer.abort_transaction)
            self.history.note(Ended(name, False))


class _EpochMoves(logging.Handler):
    """Told of what librdkafka logs: that it moves the producer's epoch, for which it has no callback."""

    def __init__(self, moved: Callable[[str], None]) -> None:
        super().__init__()
        self._moved = moved

    def emit(self, record: logging.LogRecord) -> None:
        text = record.getMessage()
        if "epoch bump for" in text:
            self._moved(text)


class ConfluentWriter(Writer):
    """After a request that was refused, and one that is out of order behind it, librdkafka moves its epoch and sends
    again what it is not sure of, also to other partitions (its issue 4953): no broker can tell that from new records.
    `moved_epoch` says that it did.
    """

    moved_epoch = False

    def run(self) -> None:
        producer = self.producer({"enable.idempotence": True})
        while not self.ends.is_set():
            self.send(producer)
            producer.poll(_PAUSE_S)
        producer.flush(ANSWERED_WITHIN_S)

    def producer(self, settings: Mapping[str, Any]) -> ConfluentProducer:
        common = {
            "bootstrap.servers": self.bootstrap,
            "compression.type": self.kind.compression,
            "batch.size": _BATCH_BYTES,
            "debug": "eos",
            "log_level": 7,
        }
        return ConfluentProducer({**common, **settings}, logger=self._logger())

    def _logger(self) -> logging.Logger:
        logger = logging.Logger(self.name)
        logger.addHandler(_EpochMoves(self._note_epoch))
        return logger

    def _note_epoch(self, text: str) -> None:
        self.moved_epoch = True
        self.setbacks.append(f"{self.name}: {text}")

    def send(self, producer: ConfluentProducer, transaction: str | None = None) -> None:
        for record in self.records(transaction):
            producer.produce(
                self.topic,
                record.value,
                record.key,
                partition=record.partition.partition,
                on_delivery=self._noting(record),
            )

    def _noting(self, record: Sent) -> Callable[[KafkaError | None, Message], None]:
        def delivered(error: KafkaError | None, message: Message) -> None:
            offset = message.offset()
            self.answered(record, -1 if offset is None else offset, error)

        return delivered


class ConfluentTransactions(ConfluentWriter):
    def run(self) -> None:
        settings = {
            "transactional.id": f"{self.topic}-{self.name}",
            "linger.ms": 5,
        }
        for life in _names(self.name, self.topic):
            producer = self.producer(settings)
            try:
                _insist(producer.init_transactions, self.ends)
                self._transact(producer, life)
            except KafkaException as problem:
                self.setbacks.append(f"{life} began anew: {problem}")
            if self.ends.wait(_PAUSE_S):
                return

    def _transact(self, producer: ConfluentProducer, life: str) -> None:
        for number in itertools.count(1):
            producer.poll(_PAUSE_S)
            if self.ends.is_set():
                return
            name = f"{life}.{number}"
            producer.begin_transaction()
            for _ in range(_RECORDS_OF_A_TRANSACTION):
                self.send(producer, name)
            if number % 5:
                self.history.note(Ending(name, True))
                try:
                    _insist(producer.commit_transaction)
                    self.history.note(Ended(name, True))
                    continue
                except KafkaException as failure:
                    if not failure.args[0].txn_requires_abort():
                        raise
                    self.setbacks.append(f"{name} was aborted: {failure}")
            self.history.note(Ending(name, False))
            _insist(producer.abort_transaction)
            self.history.note(Ended(name, False))


class GroupReader(Client):
    """A member of a group of its own: reads, commits, and asks what is committed."""

    def __init__(self, history: HistoryRecorder, bootstrap: str, topics: Sequence[str], group: str) -> None:
        super().__init__(group, history)
        self._topics = list(topics)
        self._session = 0
        self._positions: dict[TopicPartition, int] = {}
        self._committed: dict[TopicPartition, int] = {}
        # Offsets whose commit was acknowledged.
        self.commits = 0
        self._consumer = ConfluentConsumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": group,
                "session.timeout.ms": 10_000,
                "isolation.level": "read_committed",
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
                "log_level": 2,
            }
        )

    def run(self) -> None:
        self._consumer.subscribe(self._topics, on_assign=self._assigned)
        due = time.monotonic()
        try:
            while not self.ends.is_set():
                for message in self._consumer.consume(500, _POLL_S):
                    self._take(message)
                if time.monotonic() > due:
                    self._commit()
                    self._ask()
                    due = time.monotonic() + _COMMIT_EVERY_S
        finally:
            self._consumer.close()

    def _assigned(self, consumer: ConfluentConsumer, partitions: list[ConfluentPartition]) -> None:
        self._session += 1
        self._positions.clear()

    def _take(self, message: Message) -> None:
        error = message.error()
        if error is not None:
            if error.fatal():
                raise KafkaException(error)
            return
        partition = TopicPartition(str(message.topic()), int(message.partition() or 0))
        offset = int(message.offset() or 0)
        self._positions[partition] = offset + 1
        self.history.note(Read(self.name, self._session, partition, offset, message.value() or b""))

    def _commit(self) -> None:
        ahead = {p: offset for p, offset in self._positions.items() if offset > self._committed.get(p, -1)}
        if not ahead:
            return
        self.history.note(*(CommittingOffset(self.name, p, offset) for p, offset in ahead.items()))
        offsets = [ConfluentPartition(p.topic, p.partition, offset) for p, offset in ahead.items()]
        try:
            answers = self._consumer.commit(offsets=offsets, asynchronous=False)
        except KafkaException:
            return
        for answer in answers or ():
            if answer.error is None:
                partition = TopicPartition(answer.topic, answer.partition)
                self._committed[partition] = answer.offset
                self.commits += 1
                self.history.note(CommittedOffset(self.name, partition, answer.offset))

    def _ask(self) -> None:
        partitions = list(self._committed)
        if not partitions:
            return
        self.history.note(*(FetchingOffset(self.name, partition) for partition in partitions))
        try:
            asked = [ConfluentPartition(p.topic, p.partition) for p in partitions]
            answers = self._consumer.committed(asked, timeout=_CALL_S)
        except KafkaException:
            return
        for answer in answers:
            if answer.error is None:
                partition = TopicPartition(answer.topic, answer.partition)
                self.history.note(FetchedOffset(self.name, partition, max(-1, answer.offset)))


class OurReader(Client):
    """Reads all partitions from the start, without a group."""

    def __init__(self, history: HistoryRecorder, bootstrap: str, topics: Sequence[str]) -> None:
        super().__init__("our-reader", history)
        self._bootstrap = bootstrap
        self._partitions = [TopicPartition(topic, number) for topic in topics for number in range(PARTITIONS)]

    def run(self) -> None:
        with Consumer(
            bootstrap_servers=self._bootstrap, isolation_level="read_committed", auto_offset_reset="earliest"
        ) as consumer:
            consumer.assign(self._partitions)
            while not self.ends.is_set():
                for record in consumer.poll(_POLL_S):
                    partition = TopicPartition(record.topic, record.partition)
                    self.history.note(Read(self.name, 0, partition, record.offset, record.value or b""))


class Traffic:
    """Both clients on a topic of each kind; use `running`."""

    def __init__(self, bootstrap: str, topics: Mapping[str, Kind]) -> None:
        self.bootstrap = bootstrap
        self.topics = dict(topics)
        self.history = HistoryRecorder({topic: kind.rules for topic, kind in topics.items()})
        self.writers: list[Writer] = []
        self.resent: list[Finding] = []
        for topic, kind in topics.items():
            ours = OurTransactions if kind.transactional else OurWriter
            theirs = ConfluentTransactions if kind.transactional else ConfluentWriter
            self.writers.append(ours("ours", self.history, bootstrap, topic, kind))
            self.writers.append(theirs("confluent", self.history, bootstrap, topic, kind))
        names = list(topics)
        self.group = GroupReader(self.history, bootstrap, names, f"group-{names[0]}")
        self.readers: list[Client] = [self.group, OurReader(self.history, bootstrap, names)]

    @property
    def problems(self) -> list[str]:
        return [problem for client in [*self.writers, *self.readers] for problem in client.problems]

    @contextmanager
    def running(self) -> Iterator[None]:
        """All write before the block begins; at its end all that was sent is answered."""
        for client in [*self.writers, *self.readers]:
            client.start()
        try:
            self.await_progress()
            yield
        finally:
            for writer in self.writers:
                writer.ends.set()
            for writer in self.writers:
                writer.join(ANSWERED_WITHIN_S)
            for reader in self.readers:
                reader.ends.set()
            for reader in self.readers:
                reader.join(60)

    def await_progress(self, within_s: float = 60.0) -> float:
        """Until every writer was acknowledged more than it is by now; how long that took."""
        began = time.monotonic()
        before = [writer.acknowledged for writer in self.writers]

        def all_on() -> bool:
            return bool(self.problems) or all(w.acknowledged > b for w, b in zip(self.writers, before, strict=True))

        try:
            eventually(all_on, within_s)
        except AssertionError:
            late = [w.name for w, b in zip(self.writers, before, strict=True) if w.acknowledged <= b]
            raise AssertionError(f"nothing was acknowledged for {within_s:.0f} s: {', '.join(late)}") from None
        return time.monotonic() - began

    def await_commit(self, within_s: float = 60.0) -> None:
        """Until the group has committed more than it has by now."""
        before = self.group.commits
        try:
            eventually(lambda: bool(self.problems) or self.group.commits > before, within_s)
        except AssertionError:
            raise AssertionError(f"the group committed nothing for {within_s:.0f} s") from None

    def verdict(self) -> Verdict:
        """Read everything; what is not there yet may be so for a while after a fault, and is then lost."""
        deadline = time.monotonic() + SCANNED_WITHIN_S
        operations = list(self.history.operations)
        while True:
            verdict = self._without_resent(judge([*operations, *self._scan()], self.history.rules))
            if time.monotonic() > deadline or not any(verdict.anomalies[each] for each in _NOT_YET):
                return verdict

    def _without_resent(self, verdict: Verdict) -> Verdict:
        """Leave out what a producer of librdkafka wrote twice under two epochs, and keep it in `resent`."""
        # Transactional ones have no such excuse: what they did not commit is not read.
        idempotent = (
            each for each in self.writers if isinstance(each, ConfluentWriter) and not each.kind.transactional
        )
        moved = {writer.name for writer in idempotent if writer.moved_epoch}
        self.resent = [each for each in verdict.findings if each.writer in moved and each.anomaly in _OF_NEW_EPOCHS]
        return verdict._replace(findings=tuple(each for each in verdict.findings if each not in self.resent))

    def _scan(self) -> list[Operation]:
        scans: list[Operation] = []
        for topic in self.topics:
            for partition in range(PARTITIONS):
                found = confluent.read_all(
                    self.bootstrap, topic, partition, isolation_level="read_committed", fetch_wait_max_ms=10
                )
                records = tuple((int(each.offset() or 0), each.value() or b"") for each in found)
                scans.append(Scanned(TopicPartition(topic, partition), records))
        return scans


def _names(writer: str, topic: str) -> Iterator[str]:
    return (f"{topic}/{writer}/{life}" for life in itertools.count(1))


def _insist(call: Callable[[float], object], gives_up: threading.Event | None = None) -> None:
    """Repeat a call that may be repeated until it succeeds."""
    deadline = time.monotonic() + ANSWERED_WITHIN_S
    while True:
        try:
            call(_CALL_S)
            return
        except (KafkaException, ClientError) as failure:
            reason = failure.args[0]
            retriable = reason.retriable() if isinstance(reason, KafkaError) else getattr(failure, "retriable", False)
            if not retriable or time.monotonic() > deadline or (gives_up is not None and gives_up.is_set()):
                raise
