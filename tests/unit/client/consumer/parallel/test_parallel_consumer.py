"""ParallelConsumer over a consumer whose logs, group and time are in the test's hands."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any, cast

import pytest

from braidlog.client.consumer.parallel.parallel_consumer import ParallelConsumer
from braidlog.client.consumer.rebalance_listener import RebalanceListener
from braidlog.client.consumer.record import ConsumerRecord
from braidlog.client.errors import ClosedError, CommitFailedError, HandlerFailedError
from braidlog.client.settings import CONSUMER, Settings
from braidlog.core.errors import UserError
from braidlog.core.protocol_errors import RebalanceInProgressError
from braidlog.core.types import TopicPartition
from support.parallel_runs import FakeConsumer, Notes, keys

ZERO, ONE = TopicPartition("t", 0), TopicPartition("t", 1)
WAIT_S = 20.0


def parallel(fake: FakeConsumer, handler: Callable[[ConsumerRecord], Any], **options: Any) -> ParallelConsumer:
    options = {"commit_interval": 0.0, "workers": 4, **options}
    return ParallelConsumer(cast(Any, fake), handler, **options).subscribe("t")


class Running:
    """`run` in a thread, for tests that act meanwhile."""

    def __init__(self, consumer: ParallelConsumer, **options: Any) -> None:
        self.error: BaseException | None = None
        self._consumer = consumer
        self._thread = threading.Thread(target=self._run, kwargs=options)
        self._thread.start()

    def _run(self, **options: Any) -> None:
        try:
            self._consumer.run(**options)
        except BaseException as problem:
            self.error = problem

    def stop(self) -> None:
        self._consumer.stop()
        self.join()

    def join(self) -> None:
        self._thread.join(WAIT_S)
        assert not self._thread.is_alive()


def test_nothing_is_committed_past_a_record_that_is_not_done() -> None:
    fake = FakeConsumer({ZERO: keys(50, 50)})
    release, reached = threading.Event(), threading.Event()
    handled: list[int] = []

    def handler(record: ConsumerRecord) -> None:
        if record.offset == 10:
            assert release.wait(WAIT_S)
        handled.append(record.offset)
        if len(handled) == 49:
            reached.set()

    running = Running(parallel(fake, handler))
    assert reached.wait(WAIT_S)
    assert fake.committed.get(ZERO, 0) <= 10
    release.set()
    running.stop()
    assert running.error is None
    assert fake.committed[ZERO] == 50


def test_what_is_in_flight_is_bounded_and_partitions_rest_meanwhile() -> None:
    fake = FakeConsumer({ZERO: keys(100, 100), ONE: keys(100, 100)})
    release = threading.Event()
    consumer = parallel(fake, lambda record: release.wait(WAIT_S), max_in_flight=10)
    running = Running(consumer)
    assert fake.was_paused.wait(WAIT_S)
    assert consumer.in_flight == 10
    assert fake.positions[ZERO] + fake.positions[ONE] == 10
    assert fake.paused == {ZERO, ONE}
    release.set()
    while fake.committed != {ZERO: 100, ONE: 100}:
        assert running.error is None
        threading.Event().wait(0.001)
    running.stop()
    assert fake.paused == set()


@pytest.mark.parametrize("is_async", [False, True])
def test_dead_letters_count_as_done(is_async: bool) -> None:
    fake = FakeConsumer({ZERO: keys(30, 3)})
    letters: list[tuple[int, str]] = []

    def handler(record: ConsumerRecord) -> None:
        if record.offset % 10 == 0:
            raise ValueError("bad")

    def bury(record: ConsumerRecord, error: Exception) -> None:
        letters.append((record.offset, str(error)))

    async def handler_async(record: ConsumerRecord) -> None:
        handler(record)

    async def bury_async(record: ConsumerRecord, error: Exception) -> None:
        bury(record, error)

    consumer = parallel(
        fake, handler_async if is_async else handler, on_failure=bury_async if is_async else bury, retries=1,
        retry_backoff=0.0,
    )  # fmt: skip
    consumer.run(idle_timeout=0.05)
    assert sorted(letters) == [(0, "bad"), (10, "bad"), (20, "bad")]
    assert fake.committed[ZERO] == 30
    assert consumer.metrics()["records-given-up-total"] == 3


def test_a_dead_letter_that_fails_stops_the_run() -> None:
    fake = FakeConsumer({ZERO: keys(3, 1)})

    def handler(record: ConsumerRecord) -> None:
        raise ValueError("bad")

    def bury(record: ConsumerRecord, error: Exception) -> None:
        raise OSError("nowhere to put it")

    with pytest.raises(HandlerFailedError, match="nowhere to put it"):
        parallel(fake, handler, on_failure=bury).run()
    assert fake.committed == {}


def test_skipped_records_count_as_done() -> None:
    fake = FakeConsumer({ZERO: keys(10, 2)})

    def handler(record: ConsumerRecord) -> None:
        raise ValueError("bad")

    parallel(fake, handler, on_failure="skip").run(idle_timeout=0.05)
    assert fake.committed[ZERO] == 10


def test_a_revoked_partition_is_drained_and_committed_first() -> None:
    fake, notes = FakeConsumer({ZERO: keys(200, 20), ONE: keys(50, 5)}), Notes()
    consumer = parallel(fake, notes.handle, commit_interval=60.0)
    seen_by_user: list[str] = []

    class Listener(RebalanceListener):
        def on_partitions_revoked(self, partitions: list[TopicPartition]) -> None:
            seen_by_user.append(f"revoked with {fake.committed[ZERO]} committed")

        def on_partitions_assigned(self, partitions: list[TopicPartition]) -> None:
            seen_by_user.append("assigned")

    consumer.subscribe(["t"], Listener())
    running = Running(consumer)
    while fake.positions[ZERO] < 200:
        threading.Event().wait(0.001)
    fake.events += [lambda: fake.revoke(ZERO), lambda: fake.assign(ZERO)]
    while fake.events:
        threading.Event().wait(0.001)
    running.stop()
    assert running.error is None
    assert seen_by_user == ["revoked with 200 committed", "assigned"]
    notes.check(fake)


def test_work_that_takes_too_long_is_given_up_and_comes_again_in_order() -> None:
    fake, notes = FakeConsumer({ZERO: keys(40, 4)}), Notes()
    release, stuck = threading.Event(), threading.Event()

    def handler(record: ConsumerRecord) -> None:
        notes.begin(record)
        if record.offset == 8 and not release.is_set():
            stuck.set()
            assert release.wait(WAIT_S)
        notes.end(record)

    running = Running(parallel(fake, handler, drain_timeout=0.01))
    assert stuck.wait(WAIT_S)
    fake.events += [lambda: fake.revoke(ZERO), lambda: fake.assign(ZERO)]
    while fake.events:
        threading.Event().wait(0.001)
    assert fake.committed.get(ZERO, 0) <= 8
    release.set()
    while fake.committed.get(ZERO) != 40:
        assert running.error is None
        threading.Event().wait(0.001)
    running.stop()
    assert running.error is None
    # At least once, and in order except for starting again: what comes after a step back is what came before it.
    for (_, key), offsets in notes.by_key.items():
        again = [at for at in range(1, len(offsets)) if offsets[at] <= offsets[at - 1]]
        assert len(again) <= 1
        assert set(offsets) == {record.offset for record in fake.logs[ZERO] if record.key == key}


def test_a_lost_partition_is_dropped_without_a_commit() -> None:
    fake = FakeConsumer({ZERO: keys(20, 20)})
    release, stuck = threading.Event(), threading.Event()

    def handler(record: ConsumerRecord) -> None:
        stuck.set()
        assert release.wait(WAIT_S)

    consumer = parallel(fake, handler)
    running = Running(consumer)
    assert stuck.wait(WAIT_S)
    fake.events.append(lambda: fake.lose(ZERO))
    while fake.events or consumer.in_flight:
        threading.Event().wait(0.001)
    release.set()
    running.stop()
    assert running.error is None
    assert fake.committed == {}


def test_a_commit_that_the_group_refuses_is_made_again() -> None:
    fake, notes = FakeConsumer({ZERO: keys(20, 4)}), Notes()
    fake.refuse_commits = [CommitFailedError("the group went on"), RebalanceInProgressError("it is settling")]
    parallel(fake, notes.handle).run(idle_timeout=0.05)
    notes.check(fake)


def test_partitions_that_go_after_the_run_are_not_waited_for() -> None:
    fake = FakeConsumer({ZERO: keys(20, 1)})

    def handler(record: ConsumerRecord) -> None:
        if record.offset == 3:
            raise ValueError("bad")

    with pytest.raises(HandlerFailedError):
        parallel(fake, handler).run()
    began = time.monotonic()
    fake.revoke(ZERO)
    assert time.monotonic() - began < WAIT_S, "the default drain_timeout is longer"
    assert fake.committed[ZERO] == 3


def test_a_handler_may_stop_the_run() -> None:
    fake = FakeConsumer({ZERO: keys(20, 1)})
    handled: list[int] = []

    def handler(record: ConsumerRecord) -> None:
        handled.append(record.offset)
        consumer.stop()

    consumer = parallel(fake, handler)
    consumer.run()
    # What was taken on is finished.
    assert fake.committed[ZERO] == len(handled) == fake.positions[ZERO]


def test_misuse_raises() -> None:
    fake = FakeConsumer({ZERO: []})
    consumer = parallel(fake, print)
    consumer.run(idle_timeout=0.0)
    with pytest.raises(ClosedError, match="runs once"):
        consumer.run()
    with pytest.raises(ValueError, match="at least 1"):
        parallel(fake, print, workers=0)
    with pytest.raises(ValueError, match="on_failure"):
        parallel(fake, print, on_failure="explode")
    with pytest.raises(ValueError, match="retries"):
        parallel(fake, print, retries=-1)
    fake._settings = Settings.of(CONSUMER, {}, {"enable_auto_commit": False})
    with pytest.raises(UserError, match="give it group_id"):
        parallel(fake, print)
    fake._settings = Settings.of(CONSUMER, {}, {"group_id": "g"})
    with pytest.raises(UserError, match="enable_auto_commit=False"):
        parallel(fake, print)


class SharedOutLate(FakeConsumer):
    """A group that takes many times as long to share out as `idle_timeout` is."""

    polls_before = 200

    def poll(self, timeout_s: float = 0, max_records: int = 500) -> list[ConsumerRecord]:
        self.polls_before -= 1
        if self.polls_before == 0:
            self.assign(ZERO)
        return super().poll(timeout_s, max_records)


def test_idleness_counts_from_the_first_assignment() -> None:
    fake = SharedOutLate({ZERO: keys(20, 5)})
    fake.positions.clear()
    done: list[int] = []
    parallel(fake, lambda record: done.append(record.offset)).run(idle_timeout=0.02)
    assert sorted(done) == list(range(20))


def test_a_member_that_gets_nothing_becomes_idle() -> None:
    fake = FakeConsumer({ZERO: []})
    fake.positions.clear()
    fake.events.append(lambda: fake.listener.on_partitions_assigned([]))
    parallel(fake, lambda record: None).run(idle_timeout=0.05)
