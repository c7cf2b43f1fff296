"""The order of a task's steps; and a seeded run of attempts that crash, overlap and come late."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pyarrow as pa
import pytest

from braidlog import TopicPartition
from braidlog.client.consumer.offsets.offset_and_metadata import OffsetAndMetadata
from braidlog.core.errors import UserError
from pyspark_braidlog.sink.columns import Columns
from pyspark_braidlog.sink.row_writers import ExactlyOnceWriter, TaskResult, write_at_least_once
from pyspark_braidlog.sink.task_identity import TaskIdentity

COLUMNS = Columns("out", key=False, headers=False, partition=False)
PLACE = TopicPartition("out", 0)
NAME = "the task's"


class Crash(Exception):
    """The attempt is gone; the cluster is not."""


class Fenced(Exception):
    """Another attempt has taken over."""


class Cluster:
    """One transactional id, one topic, one group."""

    def __init__(self) -> None:
        self.epoch = 0
        self.rows: list[str] = []
        self.markers: dict[TopicPartition, OffsetAndMetadata] = {}
        # Of the open transaction.
        self.pending_rows: list[str] = []
        self.pending_markers: dict[TopicPartition, OffsetAndMetadata] = {}

    def abort(self) -> None:
        self.pending_rows, self.pending_markers = [], {}


class FakeDelivery:
    def __init__(self, error: Exception | None = None) -> None:
        self._error = error

    def done(self) -> bool:
        return True

    def result(self, timeout: float | None = None) -> object:
        if self._error is not None:
            raise self._error
        return None


class FakeProducer:
    """Fenced like a real one; `at` is called before and after each step and may raise."""

    def __init__(self, cluster: Cluster, at: Callable[[str], None] = lambda step: None) -> None:
        self._cluster = cluster
        self._at = at
        self._epoch = -1
        self.steps: list[str] = []
        self.fails: Exception | None = None

    def _step(self, name: str) -> None:
        self.steps.append(name)
        self._at(f"before {name}")
        if self._epoch != self._cluster.epoch:
            raise Fenced

    def init_transactions(self, timeout: float | None = None) -> None:
        self._at("before init")
        self.steps.append("init")
        self._cluster.epoch += 1
        self._epoch = self._cluster.epoch
        self._cluster.abort()
        self._at("after init")

    def begin_transaction(self) -> None:
        self.steps.append("begin")

    def send_arrow(self, data: pa.RecordBatch, topic: str | None = None, **options: Any) -> FakeDelivery:
        self._step("rows")
        self._cluster.pending_rows += data.column("value").to_pylist()
        self._at("after rows")
        return FakeDelivery(self.fails)

    def flush(self, timeout: float | None = None) -> None:
        self._at("flush")

    def send_offsets_to_transaction(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata], group_metadata: str, timeout: float | None = None
    ) -> None:
        assert group_metadata == NAME
        self._step("marker")
        self._cluster.pending_markers.update(offsets)

    def commit_transaction(self, timeout: float | None = None) -> None:
        self._step("commit")
        self._cluster.rows += self._cluster.pending_rows
        self._cluster.markers.update(self._cluster.pending_markers)
        self._cluster.abort()
        self._at("after commit")


def batches(*rows: list[str]) -> Iterator[pa.RecordBatch]:
    for some in rows:
        yield pa.RecordBatch.from_arrays([pa.array(some, pa.string())], ["value"])


def attempt(
    cluster: Cluster,
    batch: int,
    *rows: list[str],
    run: str = "run 1",
    at: Callable[[str], None] = lambda step: None,
    check_complete: Callable[[], None] = lambda: None,
    columns: Columns = COLUMNS,
    keep: bool = False,
) -> tuple[TaskResult, list[str]]:
    producer = FakeProducer(cluster, at)
    task = TaskIdentity("q", batch, 0, run)
    once = ExactlyOnceWriter(
        producer, lambda group: dict(cluster.markers), check_complete, task, NAME, columns, keep_recomputed=keep
    )
    return once.write(batches(*rows)), producer.steps


def test_rows_and_marker_in_one_transaction_begun_with_the_first_row() -> None:
    cluster = Cluster()
    written, steps = attempt(cluster, 0, [], ["a", "b"], ["c"])
    assert steps == ["init", "begin", "rows", "rows", "marker", "commit"]
    assert cluster.rows == ["a", "b", "c"]
    assert cluster.markers[PLACE].offset == 0
    assert (written.rows.rows, written.skipped) == (3, False)


def test_what_was_committed_is_skipped_in_whatever_order_it_comes() -> None:
    cluster = Cluster()
    attempt(cluster, 4, ["a", "b"], ["c"])
    written, steps = attempt(cluster, 4, ["c", "b", "a"])
    assert steps == ["init"]
    assert written.skipped
    assert cluster.rows == ["a", "b", "c"]


def test_a_batch_recomputed_differently_is_refused_unless_the_old_rows_are_to_be_kept() -> None:
    cluster = Cluster()
    attempt(cluster, 4, ["a", "b"])
    with pytest.raises(UserError, match="recomputed differently"):
        attempt(cluster, 4, ["a", "c"])
    written, _ = attempt(cluster, 4, ["a", "c"], keep=True)
    assert written.skipped
    assert cluster.rows == ["a", "b"]


def test_a_task_without_rows_has_none_again() -> None:
    cluster = Cluster()
    _, steps = attempt(cluster, 2)
    assert steps == ["init", "begin", "marker", "commit"]
    with pytest.raises(UserError, match="wrote 0 rows"):
        attempt(cluster, 2, ["moved here"])


def test_an_old_checkpoint_is_refused_before_any_row() -> None:
    cluster = Cluster()
    attempt(cluster, 5, ["a"])
    with pytest.raises(UserError, match="an old checkpoint"):
        attempt(cluster, 4, ["b"])
    assert cluster.rows == ["a"]


def test_rows_that_were_cut_are_not_committed() -> None:
    cluster = Cluster()

    def cut() -> None:
        raise Crash

    with pytest.raises(Crash):
        attempt(cluster, 0, ["a"], check_complete=cut)
    with pytest.raises(Crash):
        attempt(cluster, 0, check_complete=cut)
    assert (cluster.rows, cluster.markers) == ([], {})


def test_a_row_that_failed_fails_the_task() -> None:
    cluster = Cluster()
    producer = FakeProducer(cluster)
    producer.fails = UserError("too large")
    task = TaskIdentity("q", 0, 0, "run")
    once = ExactlyOnceWriter(producer, lambda group: {}, lambda: None, task, NAME, COLUMNS)
    with pytest.raises(UserError, match="too large"):
        once.write(batches(["a"]))
    assert "commit" not in producer.steps
    with pytest.raises(UserError, match="too large"):
        write_at_least_once(producer, COLUMNS, batches(["a"]))


def test_topics_of_a_column_the_marker_stays_where_it_was_first() -> None:
    by_column = Columns(None, key=False, headers=False, partition=False)

    def rows(*topics: str) -> Iterator[pa.RecordBatch]:
        yield pa.RecordBatch.from_pydict({"value": ["v"] * len(topics), "topic": list(topics)})

    cluster = Cluster()
    for batch, topics in enumerate((["x", "y"], ["y"])):
        once = ExactlyOnceWriter(
            FakeProducer(cluster),
            lambda group: dict(cluster.markers),
            lambda: None,
            TaskIdentity("q", batch, 0, "r"),
            NAME,
            by_column,
        )
        once.write(rows(*topics))
    assert {place: each.offset for place, each in cluster.markers.items()} == {TopicPartition("x", 0): 1}
    # Nothing to write, nowhere to mark.
    assert attempt(Cluster(), 0, columns=by_column)[1] == ["init"]


def test_only_a_batch_after_another_of_the_same_run_is_surely_new() -> None:
    cluster = Cluster()
    assert not attempt(cluster, 0, ["a"])[0].continues_run
    assert attempt(cluster, 1, ["b"])[0].continues_run
    assert not attempt(cluster, 2, ["c"], run="run 2")[0].continues_run
    assert not attempt(cluster, 2, ["c"], run="run 2")[0].continues_run
    assert not attempt(Cluster(), 3, ["d"], run="")[0].continues_run


def test_at_least_once_just_writes() -> None:
    cluster = Cluster()
    producer = FakeProducer(cluster)
    producer.init_transactions()
    assert write_at_least_once(producer, COLUMNS, batches(["a"], [], ["b"])) == 2
    assert cluster.pending_rows == ["a", "b"]


@pytest.mark.parametrize("seed", range(30))
def test_attempts_that_crash_overlap_and_come_late_write_every_batch_once(seed: int) -> None:
    """Spark's part: a batch is run again until an attempt succeeds; attempts of any batch so far may still be alive."""
    draw = random.Random(seed)
    cluster = Cluster()
    rows_of: list[list[list[str]]] = []
    nested = 0

    def disturb(step: str) -> None:
        """Something else happens between two steps: a crash, or a whole other attempt."""
        nonlocal nested
        if draw.random() < 0.05:
            raise Crash
        if nested < 2 and draw.random() < 0.08:
            nested += 1
            try:
                run(draw.randrange(max(0, len(rows_of) - 2), len(rows_of)))
            finally:
                nested -= 1

    def run(batch: int) -> bool:
        rows = list(rows_of[batch])
        draw.shuffle(rows)
        try:
            attempt(cluster, batch, *rows, at=disturb)
        except (Crash, Fenced):
            return False
        except UserError:
            # A zombie of a batch that is over ("an old checkpoint"); Spark's own attempts never are.
            return batch == len(rows_of) - 1 and pytest.fail("an attempt of the last batch was refused")
        return True

    for batch in range(25):
        count = draw.randrange(4)
        rows_of.append([[f"{batch}.{part}.{row}" for row in range(3)] for part in range(count)])
        while not run(batch):
            pass
    expected = Counter(row for rows in rows_of for part in rows for row in part)
    assert Counter(cluster.rows) == expected
