"""ParallelConsumer over a consumer whose logs, group and time are in the test's hands."""

from __future__ import annotations

import asyncio
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from typing import Any, cast

import pytest

from braidlog.client.consumer.offsets.offset_and_metadata import OffsetAndMetadata
from braidlog.client.consumer.parallel.parallel_consumer import ParallelConsumer
from braidlog.client.consumer.rebalance_listener import RebalanceListener
from braidlog.client.consumer.record import ConsumerRecord
from braidlog.client.errors import ClosedError, CommitFailedError, HandlerFailedError
from braidlog.client.settings import CONSUMER, Settings
from braidlog.core.clock import SystemClock
from braidlog.core.errors import UserError
from braidlog.core.protocol_errors import RebalanceInProgressError
from braidlog.core.types import TopicPartition

ZERO, ONE = TopicPartition("t", 0), TopicPartition("t", 1)
WAIT_S = 20.0


class FakeConsumer:
    """Hands out what is in its logs; commits only rise, and stay within what was handed out."""

    def __init__(self, logs: Mapping[TopicPartition, Iterable[bytes | None]]) -> None:
        self.logs = {
            partition: [
                ConsumerRecord(partition.topic, partition.partition, offset, 0, key, b"%d" % offset, (), 0, 3)
                for offset, key in enumerate(keys)
            ]
            for partition, keys in logs.items()
        }
        self._settings = Settings.of(CONSUMER, {}, {"enable_auto_commit": False, "group_id": "g"})
        self._clock = SystemClock()
        self.positions = dict.fromkeys(self.logs, 0)
        self.committed: dict[TopicPartition, int] = {}
        self.paused: set[TopicPartition] = set()
        self.was_paused = threading.Event()
        self.refuse_commits: list[Exception] = []
        self.listener: RebalanceListener = RebalanceListener()
        # Called inside the next poll, where a group calls its listeners.
        self.events: list[Callable[[], None]] = []

    def subscribe(self, topics: Any, listener: RebalanceListener) -> None:
        self.listener = listener

    def assignment(self) -> set[TopicPartition]:
        return set(self.positions)

    def pause(self, partitions: Iterable[TopicPartition]) -> None:
        self.paused |= set(partitions)
        self.was_paused.set()

    def resume(self, partitions: Iterable[TopicPartition]) -> None:
        self.paused -= set(partitions)

    def poll(self, timeout_s: float = 0, max_records: int = 500) -> list[ConsumerRecord]:
        while self.events:
            self.events.pop(0)()
        found: list[ConsumerRecord] = []
        for partition in sorted(set(self.positions) - self.paused):
            start = self.positions[partition]
            part = self.logs[partition][start : start + max_records - len(found)]
            self.positions[partition] += len(part)
            found += part
        if not found and timeout_s:
            threading.Event().wait(0.002)
        return found

    def commit(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        if self.refuse_commits:
            raise self.refuse_commits.pop(0)
        for partition, reported in offsets.items():
            assert self.committed.get(partition, 0) < reported.offset <= self.positions[partition]
            assert reported.leader_epoch == 3
            self.committed[partition] = reported.offset

    def revoke(self, partition: TopicPartition) -> None:
        self.listener.on_partitions_revoked([partition])
        del self.positions[partition]

    def lose(self, partition: TopicPartition) -> None:
        self.listener.on_partitions_lost([partition])
        del self.positions[partition]

    def assign(self, partition: TopicPartition) -> None:
        self.positions[partition] = self.committed.get(partition, 0)
        self.listener.on_partitions_assigned([partition])


def parallel(fake: FakeConsumer, handler: Callable[[ConsumerRecord], Any], **options: Any) -> ParallelConsumer:
    options = {"commit_interval": 0.0, "workers": 4, **options}
    return ParallelConsumer(cast(Any, fake), handler, **options).subscribe("t")


def keys(count: int, different: int) -> list[bytes | None]:
    return [b"k%d" % (number * 7 % different) for number in range(count)]


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


class Notes:
    """What was handled, by key and in order; never two of a key at once."""

    def __init__(self) -> None:
        self.by_key: dict[tuple[int, bytes | None], list[int]] = defaultdict(list)
        self.most_at_once = 0
        self._in_progress: dict[tuple[int, bytes | None], int] = defaultdict(int)
        self._lock = threading.Lock()

    def begin(self, record: ConsumerRecord) -> None:
        where = (record.partition, record.key)
        with self._lock:
            self._in_progress[where] += 1
            assert record.key is None or self._in_progress[where] == 1, f"two of {where} at once"
            self.most_at_once = max(self.most_at_once, sum(self._in_progress.values()))
            self.by_key[where].append(record.offset)

    def end(self, record: ConsumerRecord) -> None:
        with self._lock:
            self._in_progress[record.partition, record.key] -= 1

    def handle(self, record: ConsumerRecord) -> None:
        self.begin(record)
        # Lets another thread in, now and then.
        if record.offset % 5 == 0:
            threading.Event().wait(0.0001)
        self.end(record)

    async def handle_async(self, record: ConsumerRecord) -> None:
        self.begin(record)
        await asyncio.sleep(0)
        self.end(record)

    def check(self, fake: FakeConsumer) -> None:
        for partition, log in fake.logs.items():
            expected = defaultdict(list)
            for record in log:
                expected[record.key].append(record.offset)
            for key, offsets in expected.items():
                assert self.by_key[partition.partition, key] == offsets
            assert fake.committed[partition] == len(log)


@pytest.mark.parametrize("is_async", [False, True])
def test_every_key_keeps_its_order_and_all_is_committed(is_async: bool) -> None:
    fake, notes = FakeConsumer({ZERO: keys(600, 11), ONE: keys(400, 3)}), Notes()
    handler = notes.handle_async if is_async else notes.handle
    parallel(fake, handler, max_in_flight=100).run(idle_timeout=0.05)
    notes.check(fake)
    assert notes.most_at_once > 1


@pytest.mark.parametrize("is_async", [False, True])
def test_the_order_of_partitions(is_async: bool) -> None:
    fake = FakeConsumer({ZERO: keys(200, 11), ONE: keys(200, 3)})
    seen: dict[int, list[int]] = defaultdict(list)

    def note(record: ConsumerRecord) -> None:
        seen[record.partition].append(record.offset)

    async def note_async(record: ConsumerRecord) -> None:
        await asyncio.sleep(0)
        note(record)

    parallel(fake, note_async if is_async else note, ordering="partition").run(idle_timeout=0.05)
    assert seen == {0: list(range(200)), 1: list(range(200))}


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
def test_a_failing_record_is_tried_again_before_those_behind_it(is_async: bool) -> None:
    fake = FakeConsumer({ZERO: [b"a", b"a", b"b", b"a"]})
    seen: list[int] = []

    def handler(record: ConsumerRecord) -> None:
        seen.append(record.offset)
        if seen.count(0) < 3 and record.offset == 0:
            raise OSError("not now")

    async def handler_async(record: ConsumerRecord) -> None:
        handler(record)

    consumer = parallel(fake, handler_async if is_async else handler, retries=2, retry_backoff=0.001)
    consumer.run(idle_timeout=0.05)
    assert [offset for offset in seen if offset != 2] == [0, 0, 0, 1, 3]
    assert fake.committed[ZERO] == 4
    assert consumer.metrics()["retries-total"] == 2


@pytest.mark.parametrize("is_async", [False, True])
def test_a_failure_stops_the_run_with_everything_before_it_committed(is_async: bool) -> None:
    fake = FakeConsumer({ZERO: keys(30, 1)})

    def handler(record: ConsumerRecord) -> None:
        if record.offset == 20:
            raise LookupError("no such order")

    async def handler_async(record: ConsumerRecord) -> None:
        handler(record)

    with pytest.raises(HandlerFailedError, match=r"t-0 at offset 20: LookupError: no such order") as caught:
        parallel(fake, handler_async if is_async else handler).run()
    assert isinstance(caught.value.__cause__, LookupError)
    assert caught.value.record is fake.logs[ZERO][20]
    assert fake.committed[ZERO] == 20


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


def test_no_thread_stays_behind() -> None:
    before = set(threading.enumerate())
    fake = FakeConsumer({ZERO: keys(20, 4)})
    parallel(fake, Notes().handle, workers=16).run(idle_timeout=0.01)

    async def handler(record: ConsumerRecord) -> None:
        return None

    parallel(FakeConsumer({ZERO: keys(20, 4)}), handler, workers=16).run(idle_timeout=0.01)
    assert set(threading.enumerate()) == before


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
