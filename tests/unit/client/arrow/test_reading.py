"""A range of a partition against scripted answers: what is tried again, what is raised, what is read ahead."""

from __future__ import annotations

from typing import Any

import pytest

from braidlog.client.arrow.reading import RangeReader, RangeSpec, TopicReplacedError
from braidlog.client.cluster_view import TopicView
from braidlog.client.errors import ClosedError, NoConnection, NoOffsetError, PoisonRecordError, RequestTimeout
from braidlog.core.errors import UserError
from braidlog.core.protocol_errors import (
    LeaderNotAvailableError,
    NotLeaderOrFollowerError,
    OffsetNotAvailableError,
    OffsetOutOfRangeError,
    TopicAuthorizationFailedError,
)
from braidlog.core.slices import ByteSlice
from braidlog.core.types import TopicPartition
from braidlog.wire.generated.fetch import PartitionData
from braidlog.wire.records.builder import build_batch
from braidlog.wire.records.reading import Record

Answer = PartitionData | Exception


class ScriptedReader(RangeReader):
    """One whose brokers give these answers, and the last of them for ever."""

    def __init__(self, *answers: Answer, **settings: Any) -> None:
        super().__init__(bootstrap_servers="localhost:1", retry_backoff_ms=1, **settings)
        self._metadata.request_update = lambda: self.refreshes.append(1)  # type: ignore[method-assign]
        self.refreshes: list[int] = []
        self.asked: list[int] = []
        self.sizes: list[int] = []
        self._answers = list(answers)

    async def _ask(self, spec: RangeSpec, offset: int, timeout_s: float) -> PartitionData:
        self.asked.append(offset)
        self.sizes.append(self.bytes_for(spec.where, spec.end - offset))
        answer = self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]
        if isinstance(answer, Exception):
            raise answer
        return answer


def holding(data: bytes, **fields: Any) -> PartitionData:
    return PartitionData(records=ByteSlice(data, 0, len(data)), **fields)


def batch(first: int, count: int) -> bytes:
    return build_batch([Record(value=b"%d" % (first + each)) for each in range(count)], base_offset=first)


def offsets(reader: RangeReader, start: int, end: int) -> list[int]:
    read = reader.read("t", 0, start, end, columns=["offset"])
    return [offset for each in read for offset in each.column("offset").to_pylist()]


def test_fetches_follow_one_another_to_the_end_of_the_range() -> None:
    with ScriptedReader(holding(batch(0, 5)), holding(batch(5, 5) + batch(10, 5))) as reader:
        assert offsets(reader, 2, 12) == list(range(2, 12))
        assert reader.asked == [2, 5]


def test_what_passes_is_tried_again() -> None:
    troubles: list[Answer] = [
        NoConnection("no answer"),
        PartitionData(error_code=NotLeaderOrFollowerError.code),
        PartitionData(error_code=OffsetNotAvailableError.code),
        PartitionData(high_watermark=0),
    ]
    with ScriptedReader(*troubles, holding(batch(0, 3))) as reader:
        assert offsets(reader, 0, 3) == [0, 1, 2]
        # Who is not there and who leads no more are asked about.
        assert len(reader.refreshes) == 2


def test_what_does_not_pass_is_raised() -> None:
    with (
        ScriptedReader(PartitionData(error_code=OffsetOutOfRangeError.code)) as reader,
        pytest.raises(NoOffsetError, match="t-0 has no offset 7"),
    ):
        offsets(reader, 7, 9)
    with (
        ScriptedReader(PartitionData(error_code=TopicAuthorizationFailedError.code)) as reader,
        pytest.raises(TopicAuthorizationFailedError, match="t-0"),
    ):
        offsets(reader, 7, 9)


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (PartitionData(high_watermark=4, last_stable_offset=4), "the log ends at offset 4, and the range at 9"),
        (PartitionData(high_watermark=9, last_stable_offset=4), "a transaction that began at offset 4 is still open"),
        (PartitionData(error_code=NotLeaderOrFollowerError.code), "NOT_LEADER_OR_FOLLOWER"),
        (NoConnection("no answer"), "no answer"),
    ],
)
def test_patience_ends(answer: Answer, why: str) -> None:
    with (
        ScriptedReader(answer, default_api_timeout_ms=30, isolation_level="read_committed") as reader,
        pytest.raises(RequestTimeout, match=f"at offset 4 for 0.03 s: {why}"),
    ):
        offsets(reader, 4, 9)


def test_damage_is_raised_after_what_came_before_it() -> None:
    damaged = bytearray(batch(2, 3))
    damaged[-1] ^= 1
    with ScriptedReader(holding(batch(0, 2) + bytes(damaged))) as reader:
        read = reader.read("t", 0, 0, 5, columns=["offset"])
        assert next(read).num_rows == 2
        with pytest.raises(PoisonRecordError, match=r"t-0 cannot be read at offset 2.*read on at offset 5") as caught:
            next(read)
        assert (caught.value.offset, caught.value.resume_at) == (2, 5)


def test_a_header_that_cannot_be_read_does_not_hide_what_came_before_it() -> None:
    damaged = bytearray(batch(2, 3))
    damaged[16] = 9
    with ScriptedReader(holding(batch(0, 2) + bytes(damaged)), holding(bytes(damaged))) as reader:
        read = reader.read("t", 0, 0, 5, columns=["offset"])
        assert next(read).num_rows == 2
        with pytest.raises(PoisonRecordError, match="t-0 cannot be read at offset 2"):
            next(read)


def test_bytes_without_a_whole_batch() -> None:
    with (
        ScriptedReader(holding(batch(0, 5)[:-1])) as reader,
        pytest.raises(PoisonRecordError, match=r"raise fetch\.max\.bytes"),
    ):
        offsets(reader, 0, 5)


def test_wrong_arguments_raise_at_once() -> None:
    with ScriptedReader(holding(batch(0, 5))) as reader:
        with pytest.raises(UserError, match="no range"):
            reader.read("t", 0, 5, 4)
        with pytest.raises(UserError, match="at least one"):
            reader.read("t", 0, 0, 5, max_records=0)


def test_a_closed_reader_raises() -> None:
    reader = ScriptedReader(holding(batch(0, 5)))
    reader.close()
    reader.close()
    with pytest.raises(ClosedError):
        reader.read("t", 0, 0, 5)


def test_batches_end_where_they_hold_enough() -> None:
    data = b"".join(batch(first, 5) for first in range(0, 20, 5))
    with ScriptedReader(holding(data)) as reader:
        assert [each.num_rows for each in reader.read("t", 0, 0, 20, columns=["offset"], max_bytes=50)] == [10, 10]
        assert [each.num_rows for each in reader.read("t", 0, 3, 20, columns=["offset"], max_records=7)] == [7, 7, 3]


def test_the_position_is_behind_what_was_returned() -> None:
    with ScriptedReader(holding(batch(0, 5)), PartitionData(error_code=OffsetOutOfRangeError.code)) as reader:
        read = reader.read("t", 0, 2, 12, columns=["value"])
        assert read.position == 2
        next(read)
        assert read.position == 5
        with pytest.raises(NoOffsetError):
            next(read)
        assert read.position == 5


class RenewedReader(ScriptedReader):
    """One whose brokers come to know of these ids of the topic, one a refresh."""

    def __init__(self, *ids: bytes, answer: Answer) -> None:
        super().__init__(answer)
        self._ids = list(ids)
        # Of the first refreshes.
        self.failures: list[Exception] = []
        self._metadata.refreshed = self._refreshed  # type: ignore[method-assign, assignment]

    async def _topic(self, name: str, timeout_s: float) -> TopicView:
        return TopicView(name, self._ids[0], 0, False, ())

    async def _refreshed(self) -> None:
        if self.failures:
            raise self.failures.pop(0)
        if len(self._ids) > 1:
            self._ids.pop(0)


OLD, NEW, NONE_AT_ALL = b"o" * 16, b"n" * 16, bytes(16)


@pytest.mark.parametrize("ids", [(NEW,), (OLD, NEW), (OLD, OLD, NEW), (NONE_AT_ALL,)])
def test_a_topic_of_the_right_id_is_read(ids: tuple[bytes, ...]) -> None:
    with RenewedReader(*ids, answer=holding(batch(0, 5))) as reader:
        assert [each.num_rows for each in reader.read("t", 0, 0, 5, topic_id=NEW)] == [5]


def test_a_broker_that_is_still_starting_is_asked_again() -> None:
    reader = RenewedReader(OLD, NEW, answer=holding(batch(0, 5)))
    reader.failures = [LeaderNotAvailableError("it knows of no broker yet"), NoConnection("no answer")]
    with reader:
        assert [each.num_rows for each in reader.read("t", 0, 0, 5, topic_id=NEW)] == [5]


def test_a_topic_that_was_made_anew_is_not_read() -> None:
    with (
        RenewedReader(NEW, answer=holding(batch(0, 5))) as reader,
        pytest.raises(TopicReplacedError, match=r"topic t was deleted and made anew: .*the offsets are those of b29v"),
    ):
        list(reader.read("t", 0, 0, 5, topic_id=OLD))


def test_an_id_has_sixteen_bytes() -> None:
    with ScriptedReader(holding(batch(0, 5))) as reader, pytest.raises(UserError, match="no topic id"):
        reader.read("t", 0, 0, 5, topic_id=b"short")


def test_no_more_is_asked_for_than_the_range_may_take() -> None:
    large = build_batch([Record(value=b"x" * 100_000) for _ in range(5)])
    reader = ScriptedReader(holding(large), holding(batch(5, 5)))
    with reader:
        list(reader.read("t", 0, 0, 10, columns=["offset"]))
        list(reader.read("t", 0, 5, 6, columns=["offset"]))
    first, second, third = reader.sizes
    assert first < 200_000
    # Records turned out to be large, and then small.
    assert 600_000 < second < 800_000
    assert third < 140_000
    assert reader.bytes_for(TopicPartition("t", 0), 10_000_000) == 8 * 1024 * 1024


def test_samples_say_how_dense_and_how_old_the_log_is() -> None:
    where = TopicPartition("t", 0)
    first = build_batch([Record(value=b"x" * 100, timestamp=1000 + each) for each in range(10)], base_offset=20)
    second = build_batch([Record(value=b"y" * 300, timestamp=2000)], base_offset=30)
    with ScriptedReader(holding(first + second + second[:50])) as reader:
        dense = reader.samples({where: 24})[where]
        assert dense.bytes_per_offset == (len(first) + len(second)) / 11
        assert dense.timestamp_ms == 1004
        # Ten offsets before the first record were removed by compaction.
        assert reader.samples({where: 10})[where] == ((len(first) + len(second)) / 21, 1000)
        assert max(reader.sizes) < 256 * 1024
    with ScriptedReader(PartitionData(error_code=OffsetOutOfRangeError.code)) as reader:
        assert reader.samples({where: 5}) == {}
