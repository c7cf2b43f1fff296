"""Exactly once through kill -9: of tasks before and after their commit, of the driver before Spark's commit log."""

from __future__ import annotations

import os
import random
import uuid
from collections.abc import Iterable, Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from braidlog import Admin, TopicPartition
from braidlog.client.admin.records import IsolationLevel, OffsetSpec
from braidlog.client.admin.topics import NewTopic
from braidlog.client.arrow.reading import RangeReader
from braidlog.client.arrow.table_delivery import TableDeliveryError
from braidlog.client.errors import AbortableError, FencedProducerError
from braidlog.core.errors import UserError
from pyspark_braidlog.sink.clients import committed_offsets, transactional_producer
from pyspark_braidlog.sink.columns import Columns
from pyspark_braidlog.sink.options import Delivery, WriteOptions
from pyspark_braidlog.sink.row_writers import ExactlyOnceWriter, TaskResult
from pyspark_braidlog.sink.target_topics import TargetTopics
from pyspark_braidlog.sink.task_identity import TaskIdentity
from support.broker import start_target
from support.soak import scaled
from support.spark_sink_faults import AFTER_COMMIT, BEFORE_COMMIT, BOTH, DRIVER, DRIVER_COMMIT, FIRST_ROWS, WORKER
from support.spark_sink_kills import KilledCopyJob

SOAK_LIVES = scaled(8)
SOAK_SEED = int(os.environ.get("BRAIDLOG_SOAK_SEED", "9"))


@pytest.fixture(scope="module", params=["braidlog", pytest.param("kafka", marks=pytest.mark.peer)])
def bootstrap(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with start_target(request.param, tmp_path_factory.mktemp(request.param) / "data") as broker:
        yield broker.bootstrap


class Attempts:
    """Attempts of one task without Spark, on a real cluster."""

    def __init__(self, bootstrap: str, **options: str) -> None:
        self.query = uuid.uuid4().hex
        self.topic = f"once-{self.query}"
        self._options = WriteOptions.checked(
            {"kafka.bootstrap.servers": bootstrap, "topic": self.topic, **options}, Delivery.EXACTLY_ONCE
        )
        self._bootstrap = bootstrap
        with Admin(bootstrap_servers=bootstrap) as admin:
            admin.create_topics([NewTopic(self.topic, 1, 1)]).raise_for_errors()

    def write(self, batch: int, rows: Iterable[str]) -> TaskResult:
        task = TaskIdentity(self.query, batch, 0, "run")
        columns = Columns(self.topic, key=False, headers=False, partition=False)
        name = task.name("")
        with transactional_producer(self._options, name) as producer:
            once = ExactlyOnceWriter(
                producer, lambda group: committed_offsets(self._options, group), lambda: None, task, name, columns
            )
            return once.write(pa.RecordBatch.from_pydict({"value": [each]}) for each in rows)

    def committed(self) -> list[str]:
        with Admin(bootstrap_servers=self._bootstrap) as admin:
            end = admin.list_offsets({TopicPartition(self.topic, 0): OffsetSpec.LATEST})[TopicPartition(self.topic, 0)]
        with RangeReader(bootstrap_servers=self._bootstrap, isolation_level="read_committed") as reader:
            read = reader.read(self.topic, 0, 0, end.offset, columns=["value"])
            return [value.decode() for batch in read for value in batch.column("value").to_pylist()]


def test_attempts_that_overlap_write_once(bootstrap: str) -> None:
    attempts = Attempts(bootstrap)
    attempts.write(0, ["a"])

    def overtaken() -> Iterator[str]:
        """While this attempt has written half of its rows, another one does all."""
        yield "b"
        assert not attempts.write(1, ["b", "c"]).skipped
        yield "c"

    with pytest.raises((FencedProducerError, AbortableError, TableDeliveryError)):
        attempts.write(1, overtaken())
    assert attempts.write(1, ["c", "b"]).skipped
    with pytest.raises(UserError, match="recomputed differently"):
        attempts.write(1, ["b", "d"])
    with pytest.raises(UserError, match="an old checkpoint"):
        attempts.write(0, ["a"])
    assert not attempts.write(3, []).skipped
    assert attempts.write(3, []).skipped
    assert attempts.committed() == ["a", "b", "c"]


def test_a_transaction_longer_than_the_brokers_allow_is_explained(bootstrap: str) -> None:
    attempts = Attempts(bootstrap, **{"kafka.transaction.timeout.ms": "99999999"})
    with pytest.raises(UserError, match="the brokers allow no transactions of 99999999 ms: set the option"):
        attempts.write(0, ["a"])


def test_a_topic_that_does_not_exist_is_created_by_the_brokers_or_as_the_options_say(bootstrap: str) -> None:
    names = [f"made-{uuid.uuid4().hex}" for _ in range(2)]
    for name, more in zip(names, ({}, {"topic.creation.default.partitions": "3"}), strict=True):
        options = {"kafka.bootstrap.servers": bootstrap, "topic": name, **more}
        TargetTopics().check(WriteOptions.checked(options, Delivery.AT_LEAST_ONCE))
    with Admin(bootstrap_servers=bootstrap) as admin:
        described = admin.describe_topics(names)
        assert [len(described[name].partitions) for name in names] == [1, 3]


@pytest.mark.timeout(1200)
def test_kills_double_nothing_and_lose_nothing(bootstrap: str, tmp_path: Path) -> None:
    copying = KilledCopyJob(bootstrap, tmp_path / "once")
    copying.add_rows(180)
    # Workers die with rows in an open transaction, before and after their commit; then the driver, when all are done.
    of_workers = [(FIRST_ROWS, 1, WORKER), (BEFORE_COMMIT, 1, WORKER), (AFTER_COMMIT, 0, WORKER)]
    assert not copying.live(copying.plan([*of_workers, (DRIVER_COMMIT, 0, DRIVER)]))
    # The driver dies under a task that has rows still to come, and another task lives on.
    assert not copying.live(copying.plan([(FIRST_ROWS, 1, DRIVER)]))
    # The second task to flush rows dies with its driver: nobody is left who could abort what it has written.
    assert not copying.live(copying.plan([(FIRST_ROWS, 1, BOTH)]))
    flushed = copying.seen(IsolationLevel.READ_UNCOMMITTED)
    committed = copying.seen(IsolationLevel.READ_COMMITTED)
    assert flushed.total() > committed.total()
    copying.finish()
    assert len(copying.deaths()) == 6
    copying.check_exactly_once()
    # What the dead tasks had flushed is still in the log, for readers who want all there is; none other sees it.
    assert copying.seen(IsolationLevel.READ_UNCOMMITTED).total() > copying.copied().total()


@pytest.mark.soak
@pytest.mark.timeout(1200)
def test_at_least_once_may_double_what_a_kill_interrupted(bootstrap: str, tmp_path: Path) -> None:
    copying = KilledCopyJob(bootstrap, tmp_path / "least", delivery="at-least-once")
    copying.add_rows(40)
    assert not copying.live(copying.plan([(DRIVER_COMMIT, 0, DRIVER)]))
    copying.finish()
    found = copying.copied()
    assert set(found) == {f"row {number}" for number in range(40)}
    assert set(found.values()) == {2}


@pytest.mark.soak
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("shuffle", ["", "2"], ids=["as read", "shuffled"])
def test_many_kills_double_nothing_and_lose_nothing(bootstrap: str, tmp_path: Path, shuffle: str) -> None:
    draw = random.Random(SOAK_SEED)
    copying = KilledCopyJob(bootstrap, tmp_path / f"soak{shuffle}", shuffle=shuffle)
    for _ in range(SOAK_LIVES):
        copying.add_rows()
        copying.live(copying.drawn_plan(draw))
    copying.finish()
    print(f"seed {SOAK_SEED}: {len(copying.deaths())} deaths in {copying.lives} lives")
    copying.check_exactly_once()
    assert {BOTH, DRIVER, WORKER} == {each.split()[1] for each in copying.deaths()}
