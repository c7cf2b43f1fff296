"""The runtime against a log that a test commits, or fails, when it likes."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from braidlog.coordinator.effects import Effects, Moment, Responder, SendMarkers
from braidlog.coordinator.loader import Chunk
from braidlog.coordinator.responders import AppendCallback
from braidlog.coordinator.runtime import CoordinatorRuntime
from braidlog.coordinator.shard import ReplayedRecord, UnknownRecordTypeError
from braidlog.core.clock import ManualClock
from braidlog.core.protocol_errors import (
    CoordinatorLoadInProgressError,
    CoordinatorNotAvailableError,
    GroupIdNotFoundError,
    KafkaStorageError,
    NotCoordinatorError,
    NotLeaderOrFollowerError,
    ProtocolError,
    RequestTimedOutError,
)
from braidlog.core.tasks import Tasks
from braidlog.wire.errors import EncodeError, MalformedError
from braidlog.wire.generated.heartbeat import HeartbeatResponse
from braidlog.wire.message import Message
from braidlog.wire.records.batch import iterate_headers
from support.responders import RecordingResponder

# In real time, of which little passes: tests move the coordinator's own clock.
COMMIT_TIMEOUT_S = 0.001
MARKER_TIMEOUT_S = 0.002


class CounterShard:
    """Counts by name: `a` -> how often `a` was written."""

    def __init__(self, leader_epoch: int) -> None:
        self.leader_epoch = leader_epoch
        self.counts: dict[bytes, int] = {}
        self.pending: dict[int, list[bytes]] = {}
        self.deadline: float | None = None
        self.waiting: list[Responder] = []
        self.was_loaded = False

    def count(self, name: bytes, responder: Responder) -> Effects:
        effects = Effects()
        effects.write(name, b"+1")
        effects.reply(responder, HeartbeatResponse(throttle_time_ms=self.counts.get(name, 0) + 1))
        return effects

    def read(self, name: bytes, responder: Responder) -> Effects:
        effects = Effects()
        effects.reply(responder, HeartbeatResponse(throttle_time_ms=self.counts.get(name, 0)))
        return effects

    def replay(self, record: ReplayedRecord) -> None:
        if record.key == b"unknown":
            raise UnknownRecordTypeError(99)
        if record.key == b"nonsense":
            raise MalformedError("nonsense")
        if record.producer_id >= 0:
            self.pending.setdefault(record.producer_id, []).append(record.key)
            return
        self.counts[record.key] = self.counts.get(record.key, 0) + 1

    def replay_end_transaction_marker(self, producer_id: int, producer_epoch: int, commits: bool) -> None:
        for name in self.pending.pop(producer_id, []):
            if commits:
                self.counts[name] = self.counts.get(name, 0) + 1

    def on_loaded(self, now: Moment) -> Effects:
        self.was_loaded = True
        return Effects()

    def next_deadline(self) -> float | None:
        return self.deadline

    def expire(self, now: Moment) -> Effects:
        self.deadline = None
        effects = Effects()
        effects.write(b"expired", b"+1")
        return effects

    def on_unloaded(self, error: ProtocolError) -> Effects:
        effects = Effects()
        for responder in self.waiting:
            effects.reply(responder, error)
        return effects


class FakeLogs:
    """One batch after another per partition; `commit` confirms what is staged, `fail` takes it back."""

    def __init__(self) -> None:
        self.batches: dict[int, list[bytes]] = {}
        self.ends: dict[int, int] = {}
        self.staged: list[tuple[int, bytes, int, AppendCallback]] = []
        self.refuse_with: ProtocolError | None = None
        # Below it everything is committed; None: what is written is.
        self.high_watermark: int | None = None
        self._waiting: list[tuple[int, Callable[[], None]]] = []

    def append(self, partition: int, batch: bytes, done: AppendCallback) -> int:
        if self.refuse_with is not None:
            raise self.refuse_with
        offset = self.ends.get(partition, 0) + sum(count for at, _, count, _ in self.staged if at == partition)
        (header,) = iterate_headers(batch, 0, len(batch))
        placed = offset.to_bytes(8, "big") + batch[8:]
        self.staged.append((partition, placed, header.count, done))
        return offset

    def commit(self) -> None:
        staged, self.staged = self.staged, []
        for partition, batch, count, _ in staged:
            self.batches.setdefault(partition, []).append(batch)
            self.ends[partition] = self.ends.get(partition, 0) + count
        for _, _, _, done in staged:
            done(None)

    def fail(self, error: ProtocolError | None = None) -> None:
        staged, self.staged = self.staged, []
        for _, _, _, done in staged:
            done(error or KafkaStorageError("the disk is full"))

    def when_committed(self, partition: int, offset: int, done: Callable[[], None]) -> None:
        if self.high_watermark is None or self.high_watermark >= offset:
            done()
        else:
            self._waiting.append((offset, done))

    def advance_high_watermark(self, offset: int) -> None:
        self.high_watermark = offset
        waiting, self._waiting = self._waiting, []
        for wanted, done in waiting:
            self.when_committed(0, wanted, done)

    def bounds(self, partition: int) -> tuple[int, int]:
        return 0, self.ends.get(partition, 0)

    async def read(self, partition: int, offset: int) -> Chunk:
        return Chunk(b"".join(self.batches.get(partition, [])), self.ends.get(partition, 0))

    def where(self, partition: int, offset: int) -> str:
        return f"topic-{partition}/00000000000000000000.log"


class World:
    def __init__(self) -> None:
        self.logs = FakeLogs()
        self.clock = ManualClock()
        self.tasks = Tasks("test")
        self.shards: list[CounterShard] = []
        self.performed: list[SendMarkers] = []
        self.perform: Callable[[SendMarkers], None] = self.performed.append
        self.coordinator = self.start()

    def start(self) -> CoordinatorRuntime[CounterShard]:
        self.coordinator = CoordinatorRuntime(
            "topic",
            self.logs,
            self._make,
            lambda: 4,
            self.clock,
            self.tasks,
            perform=lambda action: self.perform(action),
            commit_timeout_s=lambda: COMMIT_TIMEOUT_S,
            marker_timeout_s=lambda: MARKER_TIMEOUT_S,
        )
        return self.coordinator

    def _make(self, leader_epoch: int) -> CounterShard:
        self.shards.append(CounterShard(leader_epoch))
        return self.shards[-1]

    @property
    def shard(self) -> CounterShard:
        return self.shards[-1]

    def count(self, name: bytes) -> RecordingResponder:
        responder = RecordingResponder()
        self.coordinator.submit(0, responder, lambda shard, now: shard.count(name, responder))
        return responder

    def read(self, name: bytes) -> RecordingResponder:
        responder = RecordingResponder()
        self.coordinator.submit(0, responder, lambda shard, now: shard.read(name, responder))
        return responder

    async def time_out(self, seconds: float) -> None:
        """Until a timer that was set for so long has fired."""
        self.clock.advance(seconds)
        fired = asyncio.Event()
        asyncio.get_running_loop().call_later(seconds, fired.set)
        await fired.wait()

    async def settle(self) -> None:
        """Enough turns of the loop for whatever it has to do."""
        for _ in range(50):
            await asyncio.sleep(0)
        assert not self.coordinator.loading_partitions()


def in_loop(test: Callable[[World], Awaitable[None]]) -> Callable[[], None]:
    def run() -> None:
        async def main() -> None:
            await test(World())

        asyncio.run(main())

    run.__name__ = getattr(test, "__name__", "run")
    return run


def number(response: Message | None) -> Any:
    assert isinstance(response, HeartbeatResponse)
    return response.throttle_time_ms


@in_loop
async def test_a_reply_waits_for_its_records(world: World) -> None:
    world.coordinator.on_election(0, 5)
    first, second = world.count(b"a"), world.count(b"a")
    assert not first.answered
    assert not second.answered
    world.logs.commit()
    assert (number(first.response), number(second.response)) == (1, 2)


@in_loop
async def test_a_read_waits_for_what_it_saw(world: World) -> None:
    world.coordinator.on_election(0, 5)
    assert number(world.read(b"a").response) == 0
    world.count(b"a")
    read = world.read(b"a")
    assert not read.answered
    world.logs.commit()
    assert number(read.response) == 1


@in_loop
async def test_an_error_of_the_operation_is_told_and_changes_nothing(world: World) -> None:
    world.coordinator.on_election(0, 5)
    responder = RecordingResponder()

    def operation(shard: CounterShard, now: Moment) -> Effects:
        raise GroupIdNotFoundError

    world.coordinator.submit(0, responder, operation)
    assert isinstance(responder.error, GroupIdNotFoundError)
    assert not world.logs.staged


@in_loop
async def test_a_bug_is_told_as_such_and_the_next_operation_works(world: World) -> None:
    world.coordinator.on_election(0, 5)
    responder = RecordingResponder()

    def operation(shard: CounterShard, now: Moment) -> Effects:
        raise ZeroDivisionError

    world.coordinator.submit(0, responder, operation)
    assert responder.error is not None
    assert responder.error.code == -1
    world.count(b"a")
    world.logs.commit()
    assert world.shard.counts == {b"a": 1}


@in_loop
async def test_a_failed_append_rebuilds_the_shard_from_its_log(world: World) -> None:
    world.coordinator.on_election(0, 5)
    world.count(b"a")
    world.logs.commit()
    lost, also_lost, waiting = world.count(b"a"), world.count(b"b"), RecordingResponder()
    world.shard.waiting.append(waiting)
    world.logs.fail()
    for responder in (lost, also_lost, waiting):
        assert isinstance(responder.error, CoordinatorNotAvailableError)
    assert isinstance(world.count(b"a").error, CoordinatorLoadInProgressError)
    await world.settle()
    assert len(world.shards) == 2
    assert world.shard.counts == {b"a": 1}


@in_loop
async def test_a_refused_append_fails_that_request_alone(world: World) -> None:
    world.coordinator.on_election(0, 5)
    world.logs.refuse_with = KafkaStorageError("offline")
    assert isinstance(world.count(b"a").error, NotCoordinatorError)
    world.logs.refuse_with = None
    assert number(world.read(b"a").response) == 0
    assert len(world.shards) == 1


@in_loop
async def test_a_refused_append_of_what_the_shard_believes_rebuilds_it(world: World) -> None:
    world.coordinator.on_election(0, 5)
    responder = RecordingResponder()

    def operation(shard: CounterShard, now: Moment) -> Effects:
        shard.counts[b"a"] = 1
        effects = Effects()
        effects.write(b"a", b"+1", applied=True)
        effects.reply(responder, HeartbeatResponse())
        return effects

    world.logs.refuse_with = KafkaStorageError("offline")
    world.coordinator.submit(0, responder, operation)
    assert isinstance(responder.error, NotCoordinatorError)
    await world.settle()
    assert world.shard.counts == {}
    assert len(world.shards) == 2


@in_loop
async def test_records_that_are_applied_are_not_replayed(world: World) -> None:
    world.coordinator.on_election(0, 5)

    def operation(shard: CounterShard, now: Moment) -> Effects:
        shard.counts[b"a"] = 1
        effects = Effects()
        effects.write(b"a", b"+1", applied=True)
        return effects

    world.coordinator.submit(0, RecordingResponder(), operation)
    assert world.shard.counts == {b"a": 1}


@in_loop
async def test_actions_follow_the_commit(world: World) -> None:
    world.coordinator.on_election(0, 5)
    action = SendMarkers("t", 7, 0, True, [], 3)

    def operation(shard: CounterShard, now: Moment) -> Effects:
        effects = Effects()
        effects.write(b"a", b"+1")
        effects.act(action)
        return effects

    world.coordinator.submit(0, RecordingResponder(), operation)
    assert world.performed == []
    world.logs.commit()
    assert world.performed == [action]


@pytest.mark.parametrize("commits", [True, False])
def test_a_transactions_records_wait_for_its_marker(commits: bool) -> None:
    @in_loop
    async def run(world: World) -> None:
        world.coordinator.on_election(0, 5)

        def operation(shard: CounterShard, now: Moment) -> Effects:
            effects = Effects()
            effects.producer_id, effects.producer_epoch = 7, 1
            effects.write(b"a", b"+1")
            return effects

        world.coordinator.submit(0, RecordingResponder(), operation)
        assert world.shard.counts == {}
        reported: list[ProtocolError | None] = []
        world.coordinator.complete_transaction(0, 7, 1, commits, 3, reported.append)
        expected = {b"a": 1} if commits else {}
        assert world.shard.counts == expected
        assert reported == []
        world.logs.commit()
        assert reported == [None]
        world.start().on_election(0, 6)
        await world.settle()
        assert world.shard.counts == expected

    run()


@in_loop
async def test_a_marker_is_refused_while_loading(world: World) -> None:
    world.coordinator.on_election(0, 5)
    world.count(b"a")
    world.logs.commit()
    world.start().on_election(0, 6)
    reported: list[ProtocolError | None] = []
    world.coordinator.complete_transaction(0, 7, 1, True, 3, reported.append)
    assert isinstance(reported[0], NotLeaderOrFollowerError)


@in_loop
async def test_a_marker_on_its_way_to_the_disk_is_refused_when_the_partition_moves(world: World) -> None:
    world.coordinator.on_election(0, 5)
    reported: list[ProtocolError | None] = []
    world.coordinator.complete_transaction(0, 7, 1, True, 3, reported.append)
    world.coordinator.on_resignation(0)
    assert [type(error) for error in reported] == [NotLeaderOrFollowerError]
    world.logs.commit()
    assert len(reported) == 1
    await world.settle()


@in_loop
async def test_a_restart_replays_everything(world: World) -> None:
    world.coordinator.on_election(0, 5)
    for name in (b"a", b"b", b"a"):
        world.count(name)
    world.logs.commit()
    world.start().on_election(0, 6)
    assert isinstance(world.read(b"a").error, CoordinatorLoadInProgressError)
    await world.settle()
    assert world.shard.leader_epoch == 6
    assert world.shard.was_loaded
    assert number(world.read(b"a").response) == 2


@in_loop
async def test_an_unknown_kind_is_skipped_nonsense_is_not(world: World) -> None:
    world.coordinator.on_election(0, 5)

    def operation(*names: bytes) -> Callable[[CounterShard, Moment], Effects]:
        def operate(shard: CounterShard, now: Moment) -> Effects:
            effects = Effects()
            for name in names:
                effects.write(name, b"", applied=True)
            return effects

        return operate

    world.coordinator.submit(0, RecordingResponder(), operation(b"a", b"unknown", b"b"))
    world.coordinator.on_election(1, 5)
    world.coordinator.submit(1, RecordingResponder(), operation(b"a", b"nonsense"))
    world.logs.commit()
    world.start().on_election(0, 6)
    world.coordinator.on_election(1, 6)
    await world.settle()
    assert world.coordinator.active_partitions() == [0]
    assert world.shards[-2].counts == {b"a": 1, b"b": 1}
    responder = RecordingResponder()
    world.coordinator.submit(1, responder, lambda shard, now: shard.read(b"a", responder))
    assert isinstance(responder.error, CoordinatorNotAvailableError)


@in_loop
async def test_an_unreadable_partition_names_file_and_offset(world: World) -> None:
    from braidlog.coordinator.loader import UnreadableLogError, load

    world.coordinator.on_election(0, 5)
    world.count(b"a")
    world.logs.commit()

    def operation(shard: CounterShard, now: Moment) -> Effects:
        effects = Effects()
        effects.write(b"nonsense", b"", applied=True)
        return effects

    world.coordinator.submit(0, RecordingResponder(), operation)
    world.logs.commit()
    with pytest.raises(UnreadableLogError, match=r"offset 1 in topic-0/0{20}\.log"):
        await load(CounterShard(0), "topic", 0, world.logs)


@in_loop
async def test_who_waits_is_told_when_the_partition_moves(world: World) -> None:
    world.coordinator.on_election(0, 5)
    staged, waiting = world.count(b"a"), RecordingResponder()
    world.shard.waiting.append(waiting)
    world.coordinator.on_resignation(0)
    assert isinstance(staged.error, NotCoordinatorError)
    assert isinstance(waiting.error, NotCoordinatorError)
    assert isinstance(world.count(b"a").error, NotCoordinatorError)
    # The disk's late answer finds nobody.
    world.logs.commit()


@in_loop
async def test_the_next_deadline_is_minded(world: World) -> None:
    world.coordinator.on_election(0, 5)
    world.shard.deadline = world.clock.monotonic()
    world.read(b"a")
    await world.settle()
    world.logs.commit()
    assert world.shard.counts == {b"expired": 1}


@in_loop
async def test_ask_awaits_the_reply(world: World) -> None:
    world.coordinator.on_election(0, 5)
    answer = await world.coordinator.ask(0, lambda shard, responder, now: shard.read(b"a", responder))
    assert number(answer) == 0
    with pytest.raises(NotCoordinatorError):
        await world.coordinator.ask(3, lambda shard, responder, now: shard.read(b"a", responder))


class SpeechlessResponder(RecordingResponder):
    """Its client's version cannot carry the answer, nor perhaps any."""

    def __init__(self, *, says_errors: bool) -> None:
        super().__init__()
        self._says_errors = says_errors

    def answer(self, response: Message) -> None:
        raise EncodeError("a text is too long")

    def fail(self, error: ProtocolError) -> None:
        if not self._says_errors:
            raise EncodeError("a text is too long")
        super().fail(error)


@in_loop
async def test_a_reply_that_cannot_be_encoded_keeps_no_other_back(world: World) -> None:
    world.coordinator.on_election(0, 5)
    failing, silent = SpeechlessResponder(says_errors=True), SpeechlessResponder(says_errors=False)
    for responder in (failing, silent):
        world.coordinator.submit(0, responder, lambda shard, now, responder=responder: shard.count(b"a", responder))
    after = world.count(b"a")
    world.logs.commit()
    assert failing.error_code == -1
    assert number(after.response) == 3
    # Nor where every request is refused.
    world.coordinator.submit(0, silent, lambda shard, now: shard.count(b"a", silent))
    refused = world.count(b"a")
    world.coordinator.on_resignation(0)
    assert isinstance(refused.error, NotCoordinatorError)


@in_loop
async def test_an_action_that_fails_keeps_no_reply_back(world: World) -> None:
    world.coordinator.on_election(0, 5)

    def perform(action: SendMarkers) -> None:
        raise ZeroDivisionError

    world.perform = perform

    def operation(shard: CounterShard, now: Moment) -> Effects:
        effects = Effects()
        effects.write(b"a", b"+1")
        effects.act(SendMarkers("t", 7, 0, True, [], 3))
        return effects

    world.coordinator.submit(0, RecordingResponder(), operation)
    after = world.count(b"a")
    world.logs.commit()
    assert number(after.response) == 2


@in_loop
async def test_a_shard_is_rebuilt_with_what_was_on_its_way_to_the_disk(world: World) -> None:
    world.coordinator.on_election(0, 5)
    world.count(b"before")

    def operation(shard: CounterShard, now: Moment) -> Effects:
        effects = Effects()
        effects.write(b"a", b"+1", applied=True)
        return effects

    world.logs.refuse_with = KafkaStorageError("offline")
    world.coordinator.submit(0, RecordingResponder(), operation)
    for _ in range(50):
        await asyncio.sleep(0)
    # The log does not have it yet, but will.
    assert world.coordinator.loading_partitions() == [0]
    world.logs.commit()
    await world.settle()
    assert world.shard.counts == {b"before": 1}


@in_loop
async def test_a_batch_that_cannot_be_built_is_refused(world: World) -> None:
    world.coordinator = CoordinatorRuntime(
        "topic", world.logs, world._make, lambda: 4, world.clock, world.tasks, codec=lambda: 7
    )
    world.coordinator.on_election(0, 5)
    responder = world.count(b"a")
    assert responder.error is not None
    assert world.shard.counts == {}


@in_loop
async def test_a_record_that_makes_no_sense_to_the_shard_itself_does_not_reach_the_caller(world: World) -> None:
    world.coordinator.on_election(0, 5)
    responder = world.count(b"nonsense")
    assert isinstance(responder.error, CoordinatorNotAvailableError)


@in_loop
async def test_what_is_due_is_minded_after_a_refusal_too(world: World) -> None:
    world.coordinator.on_election(0, 5)

    def operation(shard: CounterShard, now: Moment) -> Effects:
        shard.deadline = world.clock.monotonic()
        raise GroupIdNotFoundError

    world.coordinator.submit(0, RecordingResponder(), operation)
    await world.settle()
    world.logs.commit()
    assert world.shard.counts == {b"expired": 1}


@in_loop
async def test_a_client_does_not_wait_for_ever_and_the_shard_stays(world: World) -> None:
    world.coordinator.on_election(0, 5)
    late, read = world.count(b"a"), world.read(b"a")
    await world.time_out(COMMIT_TIMEOUT_S)
    assert isinstance(late.error, CoordinatorNotAvailableError)
    assert isinstance(read.error, CoordinatorNotAvailableError)
    assert len(world.shards) == 1, "nothing is rebuilt"
    # It is in the log, and counts once it is committed.
    after = world.count(b"a")
    world.logs.commit()
    assert number(after.response) == 2
    assert late.response is None


@in_loop
async def test_actions_follow_a_commit_that_came_too_late_for_its_client(world: World) -> None:
    world.coordinator.on_election(0, 5)
    action = SendMarkers("tx", 7, 0, True, [], 0)

    def operation(shard: CounterShard, now: Moment) -> Effects:
        effects = Effects()
        effects.write(b"a", b"+1")
        effects.act(action)
        return effects

    world.coordinator.submit(0, RecordingResponder(), operation)
    await world.time_out(COMMIT_TIMEOUT_S)
    assert world.performed == []
    world.logs.commit()
    assert world.performed == [action]


@in_loop
async def test_a_marker_waits_with_a_time_out_of_its_own(world: World) -> None:
    world.coordinator.on_election(0, 5)
    told: list[ProtocolError | None] = []
    world.coordinator.complete_transaction(0, 7, 0, True, 3, told.append)
    await world.time_out(COMMIT_TIMEOUT_S)
    assert told == []
    await world.time_out(MARKER_TIMEOUT_S)
    assert [type(error) for error in told] == [RequestTimedOutError]
    world.logs.commit()
    assert len(told) == 1


@in_loop
async def test_a_shard_waits_for_the_high_watermark(world: World) -> None:
    world.coordinator.on_election(0, 5)
    world.count(b"a")
    world.count(b"a")
    world.logs.commit()
    world.logs.high_watermark = 1
    world.start().on_election(0, 6)
    for _ in range(50):
        await asyncio.sleep(0)
    assert world.coordinator.loading_partitions() == [0]
    assert isinstance(world.read(b"a").error, CoordinatorLoadInProgressError)
    assert not world.shard.was_loaded
    world.logs.advance_high_watermark(2)
    assert number(world.read(b"a").response) == 2


@in_loop
async def test_a_high_watermark_that_comes_after_the_next_election_activates_nothing(world: World) -> None:
    world.coordinator.on_election(0, 5)
    world.count(b"a")
    world.logs.commit()
    world.logs.high_watermark = 0
    world.start().on_election(0, 6)
    for _ in range(50):
        await asyncio.sleep(0)
    first = world.shard
    world.coordinator.on_resignation(0)
    world.logs.advance_high_watermark(1)
    assert not first.was_loaded
    assert world.coordinator.active_partitions() == []


@in_loop
async def test_deposed_and_elected_again_with_an_append_under_way(world: World) -> None:
    world.coordinator.on_election(0, 5)
    under_way = world.count(b"a")
    world.coordinator.on_resignation(0)
    world.coordinator.on_election(0, 6)
    assert isinstance(under_way.error, NotCoordinatorError)
    assert isinstance(world.read(b"a").error, CoordinatorLoadInProgressError)
    # It reaches the log all the same.
    world.logs.commit()
    await world.settle()
    assert number(world.read(b"a").response) == 1


@in_loop
async def test_of_two_loads_the_later_epoch_s_counts(world: World) -> None:
    world.coordinator.on_election(0, 5)
    world.count(b"a")
    world.logs.commit()
    world.start()
    for epoch in (6, 7, 8):
        world.coordinator.on_election(0, epoch)
        await asyncio.sleep(0)
    await world.settle()
    assert world.shard.leader_epoch == 8
    assert [shard.leader_epoch for shard in world.shards if shard.was_loaded] == [5, 8]
    assert number(world.read(b"a").response) == 1


@in_loop
async def test_an_append_that_another_leader_has_to_decide_on_ends_the_shard(world: World) -> None:
    world.coordinator.on_election(0, 5)
    lost = world.count(b"a")
    world.logs.fail(NotLeaderOrFollowerError())
    assert isinstance(lost.error, NotCoordinatorError)
    assert isinstance(world.read(b"a").error, NotCoordinatorError)
    assert len(world.shards) == 1
