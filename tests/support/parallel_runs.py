"""A consumer and handlers that note what they were given, for runs of the parallel consumer."""

from __future__ import annotations

import asyncio
import threading
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from braidlog.client.consumer.offsets.offset_and_metadata import OffsetAndMetadata
from braidlog.client.consumer.rebalance_listener import RebalanceListener
from braidlog.client.consumer.record import ConsumerRecord
from braidlog.client.settings import CONSUMER, Settings
from braidlog.core.clock import SystemClock
from braidlog.core.types import TopicPartition


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


def keys(count: int, different: int) -> list[bytes | None]:
    return [b"k%d" % (number * 7 % different) for number in range(count)]


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
