from __future__ import annotations

import logging

import pytest

from braidlog.coordinator.effects import Effects, Moment
from braidlog.coordinator.loader import Chunk, UnreadableLogError, load
from braidlog.coordinator.shard import ReplayedRecord, UnknownRecordTypeError
from braidlog.core.protocol_errors import ProtocolError
from braidlog.wire.errors import MalformedError
from braidlog.wire.records.builder import build_batch
from braidlog.wire.records.control_records import build_end_txn_marker
from braidlog.wire.records.reading import Record


class Shard:
    """Notes what it is given."""

    def __init__(self) -> None:
        self.seen: list[object] = []

    def replay(self, record: ReplayedRecord) -> None:
        if record.key == b"newer":
            raise UnknownRecordTypeError(42)
        if record.key == b"nonsense":
            raise MalformedError("no such thing")
        self.seen.append((record.offset, record.key, record.value, record.producer_id))

    def replay_end_transaction_marker(self, producer_id: int, producer_epoch: int, commits: bool) -> None:
        self.seen.append(("end", producer_id, producer_epoch, commits))

    def on_loaded(self, now: Moment) -> Effects:
        return Effects()

    def next_deadline(self) -> float | None:
        return None

    def expire(self, now: Moment) -> Effects:
        return Effects()

    def on_unloaded(self, error: ProtocolError) -> Effects:
        return Effects()


class Logs:
    """A partition of some batches, each read by itself."""

    def __init__(self, *batches: bytes, start: int = 0, end: int | None = None) -> None:
        self.chunks: dict[int, Chunk] = {}
        offset = start
        for batch in batches:
            count = int.from_bytes(batch[57:61], "big")
            self.chunks[offset] = Chunk(batch, offset + count)
            offset += count
        self.range = (start, offset if end is None else end)
        self.reads = 0

    def bounds(self, partition: int) -> tuple[int, int]:
        return self.range

    async def read(self, partition: int, offset: int) -> Chunk:
        self.reads += 1
        return self.chunks.get(offset, Chunk(b"", offset))

    def where(self, partition: int, offset: int) -> str:
        return f"file-of-{offset}"


def batch(offset: int, *keys: bytes | None, **fields: int | bool) -> bytes:
    return build_batch([Record(key=key, value=b"v", timestamp=1) for key in keys], base_offset=offset, **fields)  # type: ignore[arg-type]


async def test_every_record_is_replayed_in_order() -> None:
    shard = Shard()
    logs = Logs(batch(5, b"a", b"b"), batch(7, b"c"), start=5)
    assert await load(shard, "t", 0, logs) == (3, 8)
    assert shard.seen == [(5, b"a", b"v", -1), (6, b"b", b"v", -1), (7, b"c", b"v", -1)]


async def test_records_of_a_transaction_have_their_producer_and_its_marker_follows() -> None:
    shard = Shard()
    transactional = batch(0, b"a", producer_id=9, producer_epoch=2, base_sequence=0, transactional=True)
    idempotent = batch(1, b"b", producer_id=9, producer_epoch=2, base_sequence=1)
    marker = build_end_txn_marker(commit=True, producer_id=9, producer_epoch=2, timestamp=1)
    await load(shard, "t", 0, Logs(transactional, idempotent, marker))
    assert shard.seen == [(0, b"a", b"v", 9), (1, b"b", b"v", -1), ("end", 9, 2, True)]


async def test_kinds_of_a_newer_version_are_skipped_and_counted(caplog: pytest.LogCaptureFixture) -> None:
    shard = Shard()
    with caplog.at_level(logging.WARNING):
        await load(shard, "t", 3, Logs(batch(0, b"newer", b"a", b"newer")))
    assert [entry[1] for entry in shard.seen] == [b"a"]  # type: ignore[index]
    assert caplog.messages == ["t-3: skipped 2 records of the unknown kind 42"]


@pytest.mark.parametrize("key", [b"nonsense", None])
async def test_what_makes_no_sense_names_file_and_offset(key: bytes | None) -> None:
    with pytest.raises(UnreadableLogError, match=r"t-0 .*offset 1 in file-of-1 .*braidlog log dump"):
        await load(Shard(), "t", 0, Logs(batch(0, b"a"), batch(1, key)))


async def test_a_log_that_ends_early_ends_the_load() -> None:
    logs = Logs(batch(0, b"a"), end=10)
    assert await load(Shard(), "t", 0, logs) == (1, 10)
    assert logs.reads == 2
