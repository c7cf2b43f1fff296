"""Reads a topic's partitions from chosen offsets on, each from its leader."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

from braidlog.client.cluster import EARLIEST, MOVED_LEADER, Cluster
from braidlog.client.node import NoConnection
from braidlog.client.refusals import check
from braidlog.client.retrying import Retry
from braidlog.client.visibility import AbortedRange, visible_records
from braidlog.core.protocol_errors import (
    NONE,
    CorruptMessageError,
    OffsetOutOfRangeError,
    ProtocolError,
)
from braidlog.core.slices import ByteSlice
from braidlog.wire.generated.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic, PartitionData
from braidlog.wire.records.reading import Record

FETCH: Final = 1
# The newest version that names topics; later ones give their ids instead.
_NEWEST: Final = 12
_MAX_BYTES: Final = 16 * 1024 * 1024
_PARTITION_BYTES: Final = 1024 * 1024


class Fetched(NamedTuple):
    partition: int
    records: list[Record]


class TopicReader:
    """`positions` has by partition the offset to read next; `poll` moves it on.

    Retention may overtake a slow reader: it then goes on where the log now starts, and `on_gap` is told the
    partition, the offset that is gone and the one that it goes on with.
    """

    def __init__(
        self,
        cluster: Cluster,
        topic: str,
        positions: dict[int, int],
        *,
        committed: bool = False,
        on_gap: Callable[[int, int, int], None] | None = None,
        new_retry: Callable[[float], Retry] = Retry,
    ) -> None:
        self.topic = topic
        self.positions = positions
        self._cluster = cluster
        self._committed = committed
        self._on_gap = on_gap
        self._new_retry = new_retry
        self._found = cluster.topic(topic)
        self._retry: Retry | None = None
        self._is_stale = False
        # Turns with every poll: brokers fill an answer in the order asked, and the first must not starve the rest.
        self._order = sorted(positions)

    def poll(self, max_wait_s: float, partitions: set[int] | None = None) -> list[Fetched]:
        """Records of the partitions (all, unless some are named), waiting for the first so long at most.

        A leader that moves or restarts is waited for; what stays refused is raised.
        """
        try:
            fetched = self._poll(max_wait_s, partitions)
        except (ProtocolError, NoConnection) as problem:
            if isinstance(problem, ProtocolError) and problem.code not in MOVED_LEADER:
                raise
            if self._retry is None:
                self._retry = self._new_retry(self._cluster.timeout_s)
            if not self._retry.again():
                raise
            self._is_stale = True
            return []
        self._retry = None
        return fetched

    def _poll(self, max_wait_s: float, partitions: set[int] | None) -> list[Fetched]:
        if self._is_stale:
            self._found = self._cluster.topic(self.topic)
            self._is_stale = False
        by_leader: dict[int, list[FetchPartition]] = {}
        for partition in self._order:
            if partitions is None or partition in partitions:
                asked = FetchPartition(
                    partition=partition,
                    fetch_offset=self.positions[partition],
                    partition_max_bytes=_PARTITION_BYTES,
                )
                by_leader.setdefault(self._cluster.leader_of(self._found, partition), []).append(asked)
        fetched: list[Fetched] = []
        for leader, wanted in by_leader.items():
            # Leaders are asked in turn, so each gets its share of the wait; none once there is something to show.
            wait_s = max_wait_s / len(by_leader) if not fetched else 0.0
            for answer in self._fetch(leader, wanted, wait_s):
                fetched += self._take(answer)
        self._order = self._order[1:] + self._order[:1]
        return fetched

    def _fetch(self, leader: int, wanted: list[FetchPartition], wait_s: float) -> list[PartitionData]:
        request = FetchRequest(
            max_wait_ms=int(wait_s * 1000),
            min_bytes=1,
            max_bytes=_MAX_BYTES,
            isolation_level=int(self._committed),
            topics=[FetchTopic(topic=self.topic, partitions=wanted)],
        )
        try:
            response = self._cluster.node(leader).call(FETCH, request, FetchResponse, at_most=_NEWEST)
        except NoConnection:
            self._cluster.forget(leader)
            raise
        check(response.error_code, f"topic {self.topic}")
        return [partition for topic in response.responses for partition in topic.partitions]

    def _take(self, answer: PartitionData) -> list[Fetched]:
        partition = answer.partition_index
        name = f"{self.topic}-{partition}"
        if answer.error_code == OffsetOutOfRangeError.code:
            self._jump(partition)
            return []
        if answer.error_code != NONE:
            check(answer.error_code, name)
        data = answer.records.tobytes() if isinstance(answer.records, ByteSlice) else b""
        if not data:
            return []
        aborted = [AbortedRange(each.producer_id, each.first_offset) for each in answer.aborted_transactions or ()]
        position = self.positions[partition]
        try:
            records, self.positions[partition] = visible_records(data, position, aborted)
        except CorruptMessageError as problem:
            raise CorruptMessageError(f"{name} at offset {position} or after: {problem.message}") from problem
        if self.positions[partition] == position:
            raise CorruptMessageError(f"{name}: no whole batch at offset {position} in {len(data)} bytes")
        return [Fetched(partition, records)] if records else []

    def _jump(self, partition: int) -> None:
        """The log no longer, or not yet, has our position; only the first is nobody's mistake."""
        position = self.positions[partition]
        start = self._cluster.offsets(self.topic, {partition: EARLIEST})[partition]
        if position >= start:
            raise OffsetOutOfRangeError(
                f"{self.topic}-{partition} has no offset {position} yet; use --offset latest to wait for what comes"
            )
        if self._on_gap is not None:
            self._on_gap(partition, position, start)
        self.positions[partition] = start
