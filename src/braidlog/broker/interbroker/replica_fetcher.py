"""One fetcher: copies the partitions that this broker follows on one other broker, over a connection of its own.

    Fetch → answer → each partition: append and write, or truncate → sync where flush.messages asks → next Fetch

The next request tells the leader that what came with the last answer is written here, so it goes out as soon as it is:
an answer about few partitions is dealt with where it is received, without a turn of the loop in between. What takes
longer, or has to wait for something, is left to the fetcher's task.
One request is under way at a time; the leader holds it while there is nothing new (`replica.fetch.wait.max.ms`).
(Hot: compiled by mypyc.)
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from braidlog.broker.environment import Executors
from braidlog.config.broker import BrokerSettings
from braidlog.core.clock import Clock
from braidlog.core.errors import BraidlogError, StorageFault
from braidlog.core.protocol_errors import (
    NONE,
    FencedLeaderEpochError,
    NotLeaderOrFollowerError,
    OffsetOutOfRangeError,
    ProtocolError,
    UnknownLeaderEpochError,
    UnknownTopicIdError,
    UnknownTopicOrPartitionError,
    UnsupportedVersionError,
    from_code,
)
from braidlog.core.replication_quota import ReplicationQuota
from braidlog.core.slices import ByteSlice
from braidlog.core.time_slice import TimeSlice
from braidlog.core.types import BrokerId, TopicPartition, by_topic
from braidlog.net.outbound.errors import ClientError
from braidlog.net.outbound.pipelined_connection import PipelinedConnection
from braidlog.net.outbound.reconnecting_connection import ReconnectingConnection
from braidlog.replication.fetcher import Fetcher, FetchPlan
from braidlog.replication.follower import PartitionFetchState
from braidlog.replication.partition import Partition
from braidlog.storage.dirs.log_manager import LogManager
from braidlog.storage.log.unified_log import UnifiedLog
from braidlog.wire.generated.api_keys import ApiKey
from braidlog.wire.generated.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    ForgottenTopic,
    PartitionData,
    ReplicaState,
)
from braidlog.wire.generated.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from braidlog.wire.generated.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)

log = logging.getLogger("braidlog.fetcher")

_NEWEST_FETCH: Final = 17
_NEWEST_BY_NAME: Final = 12
# From here on a leader says in its answer where the logs part.
_FINDS_DIVERGENCE_FROM: Final = 12
_REPLICA_STATE_FROM: Final = 15
# An answer about more partitions, or more bytes of several, is dealt with in slices.
_FEW: Final = 64
_FEW_BYTES: Final = 1 << 18
_LATEST: Final = -1
_EARLIEST: Final = -2

# The leader, or this broker, will hear of an election soon.
_SOON_WELL: Final = frozenset(
    error.code
    for error in (
        NotLeaderOrFollowerError,
        FencedLeaderEpochError,
        UnknownLeaderEpochError,
        UnknownTopicIdError,
        UnknownTopicOrPartitionError,
    )
)


@dataclass(frozen=True)
class FetcherContext:
    """What fetchers need of their broker."""

    broker_id: BrokerId
    broker_epoch: Callable[[], int]
    settings: Callable[[], BrokerSettings]
    clock: Clock
    executors: Executors
    logs: LogManager
    # Syncs what lies before the first offset of a new segment, behind the scenes.
    sync_rolled: Callable[[Partition, int], None]
    on_fault: Callable[[StorageFault], None]
    # What throttled followers here receive.
    quota: ReplicationQuota
    # Whether this broker is in the ISR of a partition, as far as it knows.
    is_in_isr: Callable[[TopicPartition], bool]


class _FetchSettings:
    """What the broker's settings say of fetches."""

    __slots__ = ("max_bytes", "min_bytes", "partition_bytes", "settings", "timeout_s", "wait_ms")

    def __init__(self, settings: BrokerSettings) -> None:
        # Others take their place when one is changed.
        self.settings = settings
        self.partition_bytes = settings.get_int("replica.fetch.max.bytes")
        self.wait_ms = settings.get_int("replica.fetch.wait.max.ms")
        self.min_bytes = settings.get_int("replica.fetch.min.bytes")
        self.max_bytes = settings.get_int("replica.fetch.response.max.bytes")
        self.timeout_s = settings.get_int("replica.socket.timeout.ms") / 1000


class ReplicaFetcher:
    def __init__(self, leader: BrokerId, connection: ReconnectingConnection, context: FetcherContext) -> None:
        self._leader = leader
        self._connection = connection
        self._context = context
        self._clock = context.clock
        self._fetcher = Fetcher()
        self._settings = _FetchSettings(context.settings())
        # What is left to the task of the answer that comes.
        self._left: asyncio.Future[_Remainder] | None = None
        # Set when there is something new to ask for.
        self._changed = asyncio.Event()
        # What was last said of the connection.
        self._problem: str | None = None
        self.requests = 0
        self.bytes = 0
        # Seconds that were spent waiting for answers, and on what they brought: disks, and this broker's own turn.
        self.wait_s = 0.0
        self.append_s = 0.0
        self._asked_at = 0.0
        # Since when the leader has not answered, on the broker's clock; None while it does.
        self.unreachable_since: float | None = None

    @property
    def is_idle(self) -> bool:
        return not self._fetcher.partitions

    @property
    def partitions(self) -> list[PartitionFetchState]:
        return list(self._fetcher.partitions.values())

    def add(self, state: PartitionFetchState) -> None:
        self._fetcher.add(state)
        self._changed.set()

    def remove(self, key: TopicPartition) -> None:
        self._fetcher.remove(key)

    def throttle_changed(self, key: TopicPartition) -> None:
        self._fetcher.throttle_changed(key)
        self._changed.set()

    def close(self) -> None:
        self._connection.close()

    async def run(self) -> None:
        """Until it is cancelled."""
        try:
            while True:
                await self._fetch_once()
        finally:
            self.close()

    async def _fetch_once(self) -> None:
        try:
            await self._fetch()
        except (ClientError, UnsupportedVersionError) as problem:
            self._fetcher.on_no_response()
            if self.unreachable_since is None:
                self.unreachable_since = self._clock.monotonic()
            self._say(f"cannot fetch from broker {self._leader}, it is tried again: {problem}")
            if isinstance(problem, UnsupportedVersionError):
                # It may be replaced by a newer one at the same address.
                await asyncio.sleep(self._backoff_s)
        except Exception:
            # Whatever it was, followers must go on.
            self._fetcher.on_no_response()
            log.exception("fetching from broker %d failed, a bug in braidlog, please report it", self._leader)
            await asyncio.sleep(self._backoff_s)

    def _say(self, problem: str) -> None:
        if problem != self._problem:
            self._problem = problem
            log.warning("%s", problem)

    @property
    def _backoff_s(self) -> float:
        settings = self._context.settings()
        return settings.get_int("replica.fetch.backoff.ms") / 1000

    def _current_settings(self) -> _FetchSettings:
        current = self._context.settings()
        if current is not self._settings.settings:
            self._settings = _FetchSettings(current)
        return self._settings

    # Asking

    async def _fetch(self) -> None:
        self._changed.clear()
        connection = await self._connection.get()
        version = self._version(connection)
        await self._find_positions(connection, version)
        self._left = asyncio.get_running_loop().create_future()
        if not self._ask(connection, version):
            await self._wait()
            return
        left = await self._left
        began = self._clock.monotonic()
        if left.response is not None:
            await self._take(left.response, left)
        if left.out_of_range:
            await self._resolve_out_of_range(connection, left)
        await self._finish(left)
        self.append_s += self._clock.monotonic() - began

    def _version(self, connection: PipelinedConnection) -> int:
        return connection.version_for(ApiKey.FETCH, _NEWEST_FETCH if self._fetcher.has_ids else _NEWEST_BY_NAME)

    def _ask(self, connection: PipelinedConnection, version: int) -> bool:
        """Post the next request; false where there is nothing to ask for."""
        settings = self._current_settings()
        if self._fetcher.has_throttled:
            self._fetcher.share_out(self._context.quota.allowance(), settings.partition_bytes, self._is_in_sync)
        plan = self._fetcher.next_request(self._clock.monotonic(), uses_ids=version > _NEWEST_BY_NAME)
        if plan is None:
            return False
        request = self._request(plan, version, settings)
        self.requests += 1

        def on_answer(response: Any, problem: ClientError | None) -> None:
            self._on_answer(connection, response, problem)

        self._asked_at = self._clock.monotonic()
        connection.post_with(ApiKey.FETCH, version, request, settings.timeout_s, on_answer)
        return True

    def _on_answer(self, connection: PipelinedConnection, response: Any, problem: ClientError | None) -> None:
        left = self._left
        if left is None or left.done():
            # The fetcher has ended.
            return
        if problem is not None:
            left.set_exception(problem)
            return
        try:
            assert isinstance(response, FetchResponse)
            answered_at = self._clock.monotonic()
            self.wait_s += answered_at - self._asked_at
            remainder = self._take_at_once(response)
            self.append_s += self._clock.monotonic() - answered_at
            if (
                remainder is None
                # What is new here is looked at first.
                and not self._fetcher.has_truncating
                and connection.is_open
                and self._ask(connection, self._version(connection))
            ):
                return
            left.set_result(_Remainder() if remainder is None else remainder)
        except Exception as failure:
            left.set_exception(failure)

    async def _wait(self) -> None:
        """Until there is something to ask for."""
        at = self._fetcher.retries_at
        waits = [] if at is None else [at - self._clock.monotonic()]
        if self._fetcher.has_held:
            waits.append(self._context.quota.wait_s())
        try:
            async with asyncio.timeout(max(min(waits), 0.001) if waits else None):
                await self._changed.wait()
        except TimeoutError:
            pass

    def _is_in_sync(self, state: PartitionFetchState) -> bool:
        """Such a replica is not throttled: it would leave the ISR."""
        return state.has_caught_up or self._context.is_in_isr(state.key)

    def _request(self, plan: FetchPlan, version: int, settings: _FetchSettings) -> FetchRequest:
        most = settings.partition_bytes
        topics: dict[str, FetchTopic] = {}
        for state in plan.asked:
            end, last_epoch, start = state.position()
            state.asked_offset = end
            name = state.partition.topic
            topic = topics.get(name)
            if topic is None:
                topic = topics[name] = FetchTopic(topic=name, topic_id=state.topic_id)
            topic.partitions.append(
                FetchPartition(
                    partition=state.partition.index,
                    current_leader_epoch=state.leader_epoch,
                    fetch_offset=end,
                    last_fetched_epoch=last_epoch if version >= _FINDS_DIVERGENCE_FROM else -1,
                    log_start_offset=start,
                    partition_max_bytes=min(most, state.max_bytes),
                )
            )
        forgotten: dict[tuple[str, bytes], ForgottenTopic] = {}
        for key, topic_id in plan.forgotten.items():
            gone = forgotten.get((key.topic, topic_id))
            if gone is None:
                gone = forgotten[key.topic, topic_id] = ForgottenTopic(topic=key.topic, topic_id=topic_id)
            gone.partitions.append(key.partition)
        request = FetchRequest(
            max_wait_ms=0 if plan.has_more else settings.wait_ms,
            min_bytes=settings.min_bytes,
            max_bytes=settings.max_bytes,
            session_id=plan.session_id,
            session_epoch=plan.epoch,
            topics=list(topics.values()),
            forgotten_topics_data=list(forgotten.values()),
        )
        if version >= _REPLICA_STATE_FROM:
            request.replica_state = ReplicaState(
                replica_id=self._context.broker_id, replica_epoch=self._context.broker_epoch()
            )
        else:
            request.replica_id = self._context.broker_id
        return request

    # Answers

    def _take_at_once(self, response: FetchResponse) -> _Remainder | None:
        """What is left to do; None where the next request may go out."""
        self._problem = self.unreachable_since = None
        self._fetcher.on_response(response.error_code, response.session_id)
        if response.error_code != NONE:
            log.debug("broker %d refused a fetch: %s", self._leader, from_code(response.error_code).name)
            return None
        remainder = _Remainder()
        if _takes_long(response):
            remainder.response = response
            return remainder
        for topic in response.responses:
            followed = self._fetcher.of_topic(topic.topic, topic.topic_id)
            for data in topic.partitions:
                self._on_partition(followed, data, remainder)
        return remainder if remainder.out_of_range or remainder.syncs or remainder.truncated else None

    async def _take(self, response: FetchResponse, remainder: _Remainder) -> None:
        """Each partition is dealt with in one go; between two of them roles may change."""
        time_slice = TimeSlice()
        for topic in response.responses:
            for data in topic.partitions:
                self._on_partition(self._fetcher.of_topic(topic.topic, topic.topic_id), data, remainder)
                if time_slice.is_over():
                    await time_slice.pause()

    def _on_partition(
        self, followed: dict[int, PartitionFetchState], data: PartitionData, remainder: _Remainder
    ) -> None:
        state = followed.get(data.partition_index)
        if state is None or state.retry_at != 0.0 or not self._fetcher.follows(state):
            return
        if data.error_code == NONE:
            self._on_data(state, data, remainder)
        elif data.error_code == OffsetOutOfRangeError.code:
            remainder.out_of_range.append(state)
        else:
            self._on_error(state, data.error_code)

    def _on_data(self, state: PartitionFetchState, data: PartitionData, work: _Remainder) -> None:
        came = data.records
        records = came if isinstance(came, ByteSlice) and came.size > 0 else None
        if records is not None and state.partition.follower_throttled and not self._is_in_sync(state):
            self._context.quota.record(records.size)
        if not state.is_answered_by(records):
            self._fetcher.moved(state)
            return
        state.failures = 0
        try:
            if data.diverging_epoch is not None:
                state.truncate_to_epoch_end(data.diverging_epoch.epoch, data.diverging_epoch.end_offset)
                self._truncated(state, work)
                return
            now_ms = self._clock.wall_ms()
            appended = state.append(records, data.high_watermark, data.log_start_offset, now_ms)
        except StorageFault as fault:
            self._context.on_fault(fault)
            self._fetcher.delay(state, self._clock.monotonic(), self._backoff_s)
            return
        except (BraidlogError, ProtocolError) as problem:
            self._refuse(state, problem)
            return
        self.bytes += appended.size
        if appended.moved:
            self._fetcher.moved(state)
        if appended.rolled_at >= 0:
            self._context.sync_rolled(state.partition, appended.rolled_at)
        if appended.sync_is_due:
            work.syncs[state] = state.log

    def _refuse(self, state: PartitionFetchState, problem: Exception) -> None:
        """What came is not what a log may hold: damaged on the way, or on the leader's disk."""
        log.error(
            "%s: what broker %d sent for offset %d is not appended, it is fetched again: %s",
            state.key,
            self._leader,
            state.asked_offset,
            problem,
        )
        self._fetcher.delay(state, self._clock.monotonic(), self._backoff_s)

    def _on_error(self, state: PartitionFetchState, code: int) -> None:
        soon_well = code in _SOON_WELL
        level = logging.DEBUG if soon_well else logging.WARNING
        log.log(level, "%s cannot be fetched from broker %d now: %s", state.key, self._leader, from_code(code).name)
        self._fetcher.delay(state, self._clock.monotonic(), self._backoff_s, briefly=soon_well)

    # Truncating

    async def _find_positions(self, connection: PipelinedConnection, version: int) -> None:
        """Of partitions that are new here: from where on to fetch."""
        work = _Remainder()
        asked: list[PartitionFetchState] = []
        time_slice = TimeSlice()
        for state in self._fetcher.truncating(self._clock.monotonic()):
            if time_slice.is_over():
                await time_slice.pause()
            if not self._fetcher.follows(state):
                continue
            if state.log.sync_is_due():
                # An earlier role ended before it had synced all; the first request tells that it is here.
                work.syncs[state] = state.log
            if state.log.leader_epochs.latest < 0:
                self._truncate(state, state.truncate_to_high_watermark, work)
            elif version >= _FINDS_DIVERGENCE_FROM:
                # The leader says so in its first answer, where it has to be truncated.
                state.skip_truncation()
                self._fetcher.truncated(state)
            else:
                asked.append(state)
        if asked:
            await self._ask_epoch_ends(connection, asked, work)
        await self._finish(work)

    async def _ask_epoch_ends(
        self, connection: PipelinedConnection, asked: list[PartitionFetchState], work: _Remainder
    ) -> None:
        by_key = {state.key: state for state in asked}
        request = OffsetForLeaderEpochRequest(
            replica_id=self._context.broker_id,
            topics=[
                OffsetForLeaderTopic(
                    topic=topic,
                    partitions=[
                        OffsetForLeaderPartition(
                            partition=index,
                            current_leader_epoch=by_key[TopicPartition(topic, index)].leader_epoch,
                            leader_epoch=by_key[TopicPartition(topic, index)].log.leader_epochs.latest,
                        )
                        for index in indexes
                    ],
                )
                for topic, indexes in by_topic(by_key).items()
            ],
        )
        response = await connection.call(
            ApiKey.OFFSET_FOR_LEADER_EPOCH,
            request,
            OffsetForLeaderEpochResponse,
            timeout_s=self._current_settings().timeout_s,
        )
        time_slice = TimeSlice()
        for topic in response.topics:
            for end in topic.partitions:
                # A log that is cut is synced, which takes as long as the disk does.
                await time_slice.yield_if_over()
                state = by_key.get(TopicPartition(topic.topic, end.partition))
                if state is None or not self._fetcher.follows(state):
                    continue
                if end.error_code != NONE:
                    self._on_error(state, end.error_code)
                else:
                    self._truncate(state, _to_epoch_end(state, end.leader_epoch, end.end_offset), work)

    async def _resolve_out_of_range(self, connection: PipelinedConnection, work: _Remainder) -> None:
        """The leader has deleted, or never had, what was asked for: go where its log is."""
        by_key = {state.key: state for state in work.out_of_range}
        ends = await self._list_offsets(connection, by_key, _LATEST)
        starts = await self._list_offsets(connection, by_key, _EARLIEST)
        time_slice = TimeSlice()
        for key, state in by_key.items():
            await time_slice.yield_if_over()
            if not self._fetcher.follows(state):
                continue
            if key not in ends or key not in starts:
                self._fetcher.delay(state, self._clock.monotonic(), self._backoff_s, briefly=True)
            else:
                self._truncate(state, _into(state, starts[key], ends[key]), work)

    async def _list_offsets(
        self, connection: PipelinedConnection, states: Mapping[TopicPartition, PartitionFetchState], timestamp: int
    ) -> dict[TopicPartition, int]:
        request = ListOffsetsRequest(
            # To a replica the latest offset is the log's end, not what is committed.
            replica_id=self._context.broker_id,
            topics=[
                ListOffsetsTopic(
                    name=topic,
                    partitions=[
                        ListOffsetsPartition(
                            partition_index=index,
                            current_leader_epoch=states[TopicPartition(topic, index)].leader_epoch,
                            timestamp=timestamp,
                        )
                        for index in indexes
                    ],
                )
                for topic, indexes in by_topic(states).items()
            ],
        )
        response = await connection.call(
            ApiKey.LIST_OFFSETS, request, ListOffsetsResponse, timeout_s=self._current_settings().timeout_s
        )
        return {
            TopicPartition(topic.name, each.partition_index): each.offset
            for topic in response.topics
            for each in topic.partitions
            if each.error_code == NONE and each.offset >= 0
        }

    def _truncate(self, state: PartitionFetchState, act: Callable[[], object], work: _Remainder) -> None:
        try:
            done = act()
        except StorageFault as fault:
            self._context.on_fault(fault)
            self._fetcher.delay(state, self._clock.monotonic(), self._backoff_s)
            return
        if done is False:
            # It is within the leader's log by now; should the leader still refuse, there is no hurry.
            self._fetcher.delay(state, self._clock.monotonic(), self._backoff_s, briefly=True)
        self._truncated(state, work)

    def _truncated(self, state: PartitionFetchState, work: _Remainder) -> None:
        if state.truncated_below_checkpoint:
            state.truncated_below_checkpoint = False
            work.truncated.add(self._context.logs.registry.directory_at(state.log.directory).path)
        self._fetcher.truncated(state)

    # Disks

    async def _finish(self, work: _Remainder) -> None:
        """What has to be on disk before the leader hears of it, or more is appended."""
        loop = asyncio.get_running_loop()
        executors = self._context.executors
        waited: list[asyncio.Future[StorageFault | None]] = []
        registry = self._context.logs.registry
        by_directory: dict[str, list[UnifiedLog]] = {}
        for state, synced in work.syncs.items():
            if state.partition.log is synced:
                by_directory.setdefault(registry.directory_at(synced.directory).path, []).append(synced)
        for path, logs in by_directory.items():
            ends = [(each, each.log_end_offset) for each in logs]
            waited.append(loop.run_in_executor(executors.of(path), _sync, ends))
        if work.truncated:
            for each in self._context.logs.checkpoints.writes_after_truncation(work.truncated):
                waited.append(loop.run_in_executor(executors.of(each.directory), _write, each.act))
        for done in waited:
            fault = await done
            if fault is not None:
                self._context.on_fault(fault)


class _Remainder:
    """What is left to do before the next request: of one answer, or of partitions that are new here."""

    def __init__(self) -> None:
        # An answer of which nothing is done yet.
        self.response: FetchResponse | None = None
        # The leader does not have what was asked for.
        self.out_of_range: list[PartitionFetchState] = []
        # For the executors of data directories.
        self.syncs: dict[PartitionFetchState, UnifiedLog] = {}
        # Directories whose checkpoints speak of offsets that were truncated.
        self.truncated: set[str] = set()


def _takes_long(response: FetchResponse) -> bool:
    count = size = 0
    for topic in response.responses:
        for data in topic.partitions:
            count += 1
            records = data.records
            if isinstance(records, ByteSlice):
                size += records.size
        if count > _FEW:
            return True
    # One partition is dealt with in one go, whatever came of it.
    return count > 1 and size > _FEW_BYTES


def _sync(logs: list[tuple[UnifiedLog, int]]) -> StorageFault | None:
    try:
        for each, end in logs:
            each.sync_to(end)
    except StorageFault as fault:
        return fault
    return None


def _write(act: Callable[[], object]) -> StorageFault | None:
    try:
        act()
    except StorageFault as fault:
        return fault
    return None


def _to_epoch_end(state: PartitionFetchState, epoch: int, end_offset: int) -> Callable[[], None]:
    return lambda: state.truncate_to_epoch_end(epoch, end_offset)


def _into(state: PartitionFetchState, start: int, end: int) -> Callable[[], bool]:
    return lambda: state.move_into(start, end)
