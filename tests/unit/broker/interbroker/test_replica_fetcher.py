"""A fetcher over a real socket, behind a leader whose answers are written down here."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from concurrent.futures import Executor
from contextlib import contextmanager
from pathlib import Path
from random import Random

from braidlog.broker.environment import Executors
from braidlog.broker.interbroker.network import InterBrokerNetwork
from braidlog.broker.interbroker.replica_fetcher import FetcherContext, ReplicaFetcher
from braidlog.cluster.image import BrokerInfo
from braidlog.config.broker import BrokerSettings
from braidlog.core.clock import SystemClock
from braidlog.core.errors import StorageFault
from braidlog.core.protocol_errors import (
    FetchSessionIdNotFoundError,
    OffsetOutOfRangeError,
    UnknownLeaderEpochError,
)
from braidlog.core.types import BrokerId, Endpoint, TopicPartition
from braidlog.replication.follower import PartitionFetchState
from braidlog.replication.partition import Partition
from braidlog.replication.topic_metrics import TopicMetrics
from braidlog.storage.dirs.offset_checkpoint_file import HIGH_WATERMARKS
from braidlog.storage.jobs import InlineExecutor
from braidlog.storage.log.unified_log import UnifiedLog
from braidlog.wire.generated.fetch import (
    EpochEndOffset,
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    PartitionData,
)
from braidlog.wire.generated.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from braidlog.wire.generated.offset_for_leader_epoch import (
    EpochEndOffset as LeaderEpochEnd,
)
from braidlog.wire.generated.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderTopicResult,
)
from braidlog.wire.message import Message
from support.log_kit import as_slice, batch
from support.manager_fixture import TOPIC_ID, Broker
from support.scripted_broker import SILENCE, Answer, ScriptedBroker

ME, LEADER = BrokerId(1), BrokerId(2)
EPOCH, BROKER_EPOCH = 5, 99
SESSION = 77
ORDERS = TopicPartition("orders", 0)
SETTINGS = BrokerSettings({"replica.fetch.backoff.ms": "20", "replica.fetch.max.bytes": "1234"})


def data(offset: int, *values: bytes, leader_epoch: int = EPOCH) -> bytes:
    return batch(*values, base_offset=offset, leader_epoch=leader_epoch)


def answer(
    records: bytes = b"",
    *,
    high_watermark: int = 0,
    error: int = 0,
    diverging: EpochEndOffset | None = None,
    log_start: int = 0,
    session: int = SESSION,
) -> FetchResponse:
    partition = PartitionData(
        partition_index=0,
        error_code=error,
        high_watermark=high_watermark,
        log_start_offset=log_start,
        diverging_epoch=diverging,
        records=records,
    )
    return FetchResponse(
        session_id=session,
        responses=[FetchableTopicResponse(topic="orders", topic_id=TOPIC_ID, partitions=[partition])],
    )


class Leader:
    """Answers in the order written down, and then no more."""

    def __init__(self, *answers: FetchResponse, offsets: tuple[int, int] = (0, 0)) -> None:
        self._answers = list(answers)
        self._offsets = offsets
        self.fetches: list[FetchRequest] = []
        self.others: list[Message] = []
        self.epoch_end = LeaderEpochEnd(partition=0, leader_epoch=-1, end_offset=-1)
        self.done = asyncio.Event()

    def __call__(self, key: int, request: Message) -> Answer:
        if isinstance(request, FetchRequest):
            self.fetches.append(request)
            if self._answers:
                return self._answers.pop(0)
            self.done.set()
            return SILENCE
        self.others.append(request)
        if isinstance(request, ListOffsetsRequest):
            (topic,) = request.topics
            start, end = self._offsets
            found = start if topic.partitions[0].timestamp == -2 else end
            partitions = [ListOffsetsPartitionResponse(partition_index=0, offset=found)]
            return ListOffsetsResponse(topics=[ListOffsetsTopicResponse(name="orders", partitions=partitions)])
        assert isinstance(request, OffsetForLeaderEpochRequest)
        ends = [self.epoch_end]
        return OffsetForLeaderEpochResponse(topics=[OffsetForLeaderTopicResult(topic="orders", partitions=ends)])

    @property
    def asked(self) -> list[tuple[int, int, int, int] | None]:
        """Of each fetch: session epoch, offset, last epoch, log start; None where the partition is not named."""
        return [
            (
                each.session_epoch,
                (named := each.topics[0].partitions[0]).fetch_offset,
                named.last_fetched_epoch,
                named.log_start_offset,
            )
            if each.topics
            else None
            for each in self.fetches
        ]


class Follower:
    def __init__(self, path: Path) -> None:
        self.broker = Broker(path).start()
        self.manager = self.broker.manager
        self.manager.create(ORDERS, topic_id=TOPIC_ID)
        self.faults: list[StorageFault] = []
        self.rolled: list[int] = []
        self.executors: list[str] = []
        self.in_isr = False
        self.partition = Partition("orders", 0, TOPIC_ID, ME, TopicMetrics())
        self.partition.log = self.manager.log(ORDERS)

    @property
    def log(self) -> UnifiedLog:
        assert self.partition.log is not None
        return self.partition.log

    def append(self, records: bytes) -> None:
        self.log.append_as_follower(as_slice(records), now_ms=0)
        self.log.write_staged()

    def add_second_partition(self) -> None:
        """From the same leader."""
        key = TopicPartition("orders", 1)
        self.manager.create(key, topic_id=TOPIC_ID)
        second = Partition(key.topic, key.partition, TOPIC_ID, ME, TopicMetrics())
        second.log = self.manager.log(key)
        second.update_leader_and_isr(LEADER, EPOCH, (LEADER, ME), (LEADER, ME))
        self.fetcher.add(PartitionFetchState(second))

    def _executor(self, directory: str) -> Executor:
        self.executors.append(directory)
        return InlineExecutor()

    def context(self) -> FetcherContext:
        return FetcherContext(
            broker_id=ME,
            broker_epoch=lambda: BROKER_EPOCH,
            settings=lambda: SETTINGS,
            clock=SystemClock(),
            executors=Executors(self._executor),
            logs=self.manager,
            sync_rolled=lambda partition, offset: self.rolled.append(offset),
            on_fault=self.faults.append,
            quota=self.partition.context.follower_quota,
            is_in_isr=lambda key: self.in_isr,
        )

    def follow(
        self, leader: Leader, *, newest_fetch: int | None = None, until: Callable[[], bool] | None = None
    ) -> None:
        self.partition.update_leader_and_isr(LEADER, EPOCH, (LEADER, ME), (LEADER, ME))

        async def run() -> None:
            async with ScriptedBroker(leader, offered=(1, 2, 18, 23)) as there:
                with fetch_versions_up_to(there, newest_fetch):
                    at = BrokerInfo(LEADER, 1, (Endpoint("PLAINTEXT", "127.0.0.1", there.port),))
                    network = InterBrokerNetwork(ME, "PLAINTEXT", lambda: SETTINGS, Random(1))
                    fetcher = self.fetcher = ReplicaFetcher(LEADER, network.connect(at, "fetcher"), self.context())
                    fetcher.add(PartitionFetchState(self.partition))
                    running = asyncio.ensure_future(fetcher.run())
                    await asyncio.wait_for(leader.done.wait(), 20)
                    running.cancel()
                    fetcher.close()
                    self.versions = {key: version for key, version, _ in there.requests}

        asyncio.run(run())


@contextmanager
def fetch_versions_up_to(broker: ScriptedBroker, newest: int | None) -> Iterator[None]:
    """An older peer."""
    offered = broker._versions

    def versions() -> Message:
        response = offered()
        for each in response.api_keys:
            if each.api_key == 1 and newest is not None:
                each.max_version = newest
        return response

    broker._versions = versions  # type: ignore[method-assign,assignment]
    yield


def test_records_are_copied_and_the_next_fetch_says_so(tmp_path: Path) -> None:
    follower = Follower(tmp_path)
    leader = Leader(
        answer(data(0, b"a", b"b"), high_watermark=0),
        answer(data(2, b"c"), high_watermark=2, log_start=1),
        FetchResponse(session_id=SESSION, responses=[]),
    )
    follower.follow(leader)
    log = follower.log
    assert (log.log_start_offset, log.high_watermark, log.log_end_offset) == (1, 2, 3)
    assert follower.partition.context.bytes_in == log.size
    assert leader.asked == [(0, 0, -1, 0), (1, 2, EPOCH, 0), (2, 3, EPOCH, 1), None]
    first, last = leader.fetches[0], leader.fetches[-1]
    assert (last.session_id, last.session_epoch) == (SESSION, 3)
    assert first.replica_state is not None
    assert (first.replica_state.replica_id, first.replica_state.replica_epoch) == (ME, BROKER_EPOCH)
    assert (first.max_wait_ms, first.min_bytes, first.max_bytes) == (500, 1, 10_485_760)
    asked = first.topics[0].partitions[0]
    assert (asked.current_leader_epoch, asked.partition_max_bytes) == (EPOCH, 1234)
    assert follower.versions[1] == 17


def test_an_answer_about_very_many_partitions_is_taken_as_one_about_few(tmp_path: Path) -> None:
    follower = Follower(tmp_path)
    many = answer(data(0, b"a"), high_watermark=0)
    many.responses[0].partitions += [PartitionData(partition_index=1 + index, records=b"") for index in range(100)]
    leader = Leader(many, answer(data(1, b"b"), high_watermark=1))
    follower.follow(leader)
    assert follower.log.log_end_offset == 2
    assert leader.asked == [(0, 0, -1, 0), (1, 1, EPOCH, 0), (2, 2, EPOCH, 0)]


def test_a_partition_that_is_new_is_fetched_with_the_next_request(tmp_path: Path) -> None:
    follower = Follower(tmp_path)

    class Growing(Leader):
        """The second partition comes while the first request is under way."""

        def __call__(self, key: int, request: Message) -> Answer:
            if not self.fetches:
                follower.add_second_partition()
            return super().__call__(key, request)

    leader = Growing(answer(data(0, b"a")))
    follower.follow(leader)
    assert [sorted(each.partition for each in request.topics[0].partitions) for request in leader.fetches] == [
        [0],
        [0, 1],
    ]


def test_logs_that_have_parted_are_truncated_where_the_leader_says(tmp_path: Path) -> None:
    follower = Follower(tmp_path)
    follower.append(data(0, b"a", leader_epoch=1) + data(1, b"b", leader_epoch=2) + data(2, b"c", leader_epoch=4))
    leader = Leader(
        answer(diverging=EpochEndOffset(epoch=2, end_offset=9)),
        answer(data(2, b"x"), high_watermark=1),
    )
    follower.follow(leader)
    assert leader.asked == [(0, 3, 4, 0), (1, 2, 2, 0), (2, 3, EPOCH, 0)]
    assert follower.log.leader_epochs.entries == [(1, 0), (2, 1), (EPOCH, 2)]


def test_an_older_leader_is_asked_for_the_end_of_the_last_epoch(tmp_path: Path) -> None:
    follower = Follower(tmp_path)
    follower.append(data(0, b"a", leader_epoch=1) + data(1, b"b", leader_epoch=2))
    leader = Leader(answer(data(1, b"x")))
    leader.epoch_end = LeaderEpochEnd(partition=0, leader_epoch=1, end_offset=5)
    follower.follow(leader, newest_fetch=11)
    (asked,) = leader.others
    assert isinstance(asked, OffsetForLeaderEpochRequest)
    wanted = asked.topics[0].partitions[0]
    assert (asked.replica_id, wanted.current_leader_epoch, wanted.leader_epoch) == (ME, EPOCH, 2)
    assert leader.asked == [(0, 1, -1, 0), (1, 2, -1, 0)]
    assert leader.fetches[0].replica_id == ME
    assert (follower.versions[1], follower.versions[23]) == (11, 4)


def test_what_the_leader_has_deleted_is_skipped(tmp_path: Path) -> None:
    follower = Follower(tmp_path)
    follower.append(data(0, b"a", leader_epoch=1))
    leader = Leader(answer(error=OffsetOutOfRangeError.code), answer(data(50, b"x")), offsets=(50, 60))
    follower.follow(leader)
    assert leader.asked == [(0, 1, 1, 0), (1, 50, -1, 50), (2, 51, EPOCH, 50)]
    assert [each.replica_id for each in leader.others if isinstance(each, ListOffsetsRequest)] == [ME, ME]


def test_checkpoints_forget_what_was_truncated_before_more_is_appended(tmp_path: Path) -> None:
    follower = Follower(tmp_path)
    follower.append(data(0, b"a", leader_epoch=1) + data(1, b"b", leader_epoch=1))
    follower.log.advance_high_watermark(2)
    directory = follower.manager.registry.directory_of(ORDERS)
    directory.write_checkpoint(HIGH_WATERMARKS, {ORDERS: 2})
    leader = Leader(answer(error=OffsetOutOfRangeError.code), offsets=(0, 1))
    follower.follow(leader)
    assert leader.asked == [(0, 2, 1, 0), (1, 1, 1, 0)]
    assert directory.read_checkpoint(HIGH_WATERMARKS) == {ORDERS: 1}


def test_a_leader_that_does_not_know_of_its_election_is_asked_again(tmp_path: Path) -> None:
    follower = Follower(tmp_path)
    leader = Leader(answer(error=UnknownLeaderEpochError.code), answer(data(0, b"a")))
    follower.follow(leader)
    # With its only partition delayed the session had ended.
    assert leader.asked == [(0, 0, -1, 0), (0, 0, -1, 0), (1, 1, EPOCH, 0)]


def test_damaged_records_are_fetched_again(tmp_path: Path) -> None:
    follower = Follower(tmp_path)
    damaged = bytearray(data(0, b"value"))
    damaged[-2] ^= 1
    leader = Leader(answer(bytes(damaged)), answer(data(0, b"value")))
    follower.follow(leader)
    assert follower.log.log_end_offset == 1
    assert leader.asked[1] == (0, 0, -1, 0)


def test_a_session_that_the_leader_lost_begins_anew(tmp_path: Path) -> None:
    follower = Follower(tmp_path)
    lost = FetchResponse(error_code=FetchSessionIdNotFoundError.code, session_id=0)
    leader = Leader(answer(data(0, b"a")), lost, answer(data(1, b"b")))
    follower.follow(leader)
    assert [(each.session_id, each.session_epoch) for each in leader.fetches] == [(0, 0), (77, 1), (0, 0), (77, 1)]
    assert follower.log.log_end_offset == 2


def test_in_fsync_mode_the_leader_hears_of_what_is_synced(tmp_path: Path) -> None:
    follower = Follower(tmp_path)
    follower.log.update_settings(follower.log.settings._replace(flush_messages=1))
    recovery_points: list[int] = []

    class Watching(Leader):
        def __call__(self, key: int, request: Message) -> Answer:
            recovery_points.append(follower.log.recovery_point)
            return super().__call__(key, request)

    leader = Watching(answer(data(0, b"a", b"b")), answer(data(2, b"c")))
    follower.follow(leader)
    assert recovery_points == [0, 2, 3]
    assert follower.executors == [str(tmp_path)]


def test_in_fsync_mode_what_an_earlier_role_left_is_synced_before_the_leader_hears_of_it(tmp_path: Path) -> None:
    follower = Follower(tmp_path)
    follower.log.update_settings(follower.log.settings._replace(flush_messages=1))
    follower.append(data(0, b"a"))
    recovery_points: list[int] = []

    class Watching(Leader):
        def __call__(self, key: int, request: Message) -> Answer:
            recovery_points.append(follower.log.recovery_point)
            return super().__call__(key, request)

    follower.follow(Watching(answer(data(1, b"b"))))
    assert recovery_points == [1, 2]


def test_what_comes_after_the_role_has_ended_is_not_appended(tmp_path: Path) -> None:
    follower = Follower(tmp_path)

    class Deposed(Leader):
        def __call__(self, key: int, request: Message) -> Answer:
            answered = super().__call__(key, request)
            follower.partition.update_leader_and_isr(ME, EPOCH + 1, (ME,), (LEADER, ME))
            self.done.set()
            return answered

    follower.follow(Deposed(answer(data(0, b"a"))))
    assert follower.log.log_end_offset == 0


def test_a_throttled_follower_asks_for_what_the_rate_allows_and_waits_for_the_rest(tmp_path: Path) -> None:
    follower = Follower(tmp_path)
    follower.partition.follower_throttled = True
    quota = follower.partition.context.follower_quota
    quota.limit = 1000
    records = data(0, b"x" * 1200)
    leader = Leader(answer(records, high_watermark=3), answer(data(1, b"y"), high_watermark=2), answer())
    follower.follow(leader)
    asked = [each.topics[0].partitions[0].partition_max_bytes for each in leader.fetches if each.topics]
    # A second's worth at first; the debt of the first answer is paid before the next; in sync it asks as ever.
    assert asked[0] == 1000
    assert 100 <= asked[1] <= 1000
    assert asked[2] == 1234
    assert [each.session_epoch for each in leader.fetches][:2] == [0, 0], "held, it had left the session"
    assert quota.byte_rate() > 1200
    assert follower.log.log_end_offset == 2


def test_who_is_in_sync_is_not_throttled(tmp_path: Path) -> None:
    follower = Follower(tmp_path)
    follower.partition.follower_throttled = True
    follower.in_isr = True
    quota = follower.partition.context.follower_quota
    quota.limit = 1
    leader = Leader(answer(data(0, b"x" * 100), high_watermark=3), answer(data(1, b"y"), high_watermark=3))
    follower.follow(leader)
    assert follower.log.log_end_offset == 2
    assert quota.byte_rate() == 0
