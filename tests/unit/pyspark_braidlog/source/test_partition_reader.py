"""A task's range from fetched bytes to Spark's Arrow batches, and on where the log has lost something."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import Future
from typing import Any, cast

import pyarrow as pa
import pytest
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from braidlog.client.arrow.reading import FetchedRange, RangeRead, RangeReader, RangeSpec, TopicReplacedError
from braidlog.client.arrow.shape import TableShape
from braidlog.client.consumer.fetch.completed_fetch import CompletedFetch
from braidlog.client.consumer.partition_state import PartitionState
from braidlog.client.errors import NoOffsetError, PoisonRecordError, RequestTimeout
from braidlog.core.errors import UserError
from braidlog.core.types import TopicPartition
from braidlog.wire.records.builder import build_batch
from braidlog.wire.records.reading import Record
from pyspark_braidlog.client_pool import ClientPool
from pyspark_braidlog.source.data_loss import DataLoss, LogRange
from pyspark_braidlog.source.offset_range import OffsetRange
from pyspark_braidlog.source.partition_reader import RowConverter, read_range
from pyspark_braidlog.source.schema import record_schema

TOPIC_ID = "AAECAwQFBgcICQoLDA0ODw"
OTHER_ID = "DwECAwQFBgcICQoLDA0ODw"


class Options:
    def __init__(self, *, fail_on_data_loss: bool = True) -> None:
        self.client = {"bootstrap.servers": "localhost:1"}
        self.fail_on_data_loss = fail_on_data_loss


class LogReader:
    """Stands in for a RangeReader: a log of batches, by the offset of their first record, with what goes wrong."""

    def __init__(self, batches: Mapping[int, bytes], problems: Mapping[int, Exception] | None = None) -> None:
        self.batches = dict(sorted(batches.items()))
        self.problems = dict(problems or {})
        self.wishes: list[RangeSpec] = []
        self.closed = 0

    def read(self, topic: str, partition: int, start: int, end: int, **options: Any) -> RangeRead:
        shape = TableShape(options["columns"], timestamp_unit="us")
        where = TopicPartition(topic, partition)
        spec = RangeSpec(where, start, end, options["topic_id"], shape, 1 << 62, options["max_bytes"], True)
        self.wishes.append(spec)
        return RangeRead(cast(RangeReader, self), spec)

    def begin(self, spec: RangeSpec, offset: int) -> Future[FetchedRange]:
        answer: Future[FetchedRange] = Future()
        if offset in self.problems:
            answer.set_exception(self.problems[offset])
            return answer
        following = [first for first in self.batches if first > offset]
        first = max((each for each in self.batches if each <= offset), default=0)
        data = self.batches[first]
        fetch = CompletedFetch(PartitionState(spec.where), data, 0, len(data), offset, [])
        answer.set_result(FetchedRange(fetch, following[0] if following else 1 << 40))
        return answer

    def close(self) -> None:
        self.closed += 1


def batch(first: int, count: int) -> bytes:
    return build_batch([Record(value=b"%d" % (first + each)) for each in range(count)], base_offset=first)


def values(
    reader: LogReader,
    work: OffsetRange,
    *,
    now: LogRange | Exception | None = None,
    fail_on_data_loss: bool = True,
) -> list[int]:
    def look(client: Mapping[str, str], work: OffsetRange) -> LogRange | None:
        if isinstance(now, Exception):
            raise now
        return now

    pool = ClientPool(lambda settings: reader)  # type: ignore[arg-type, return-value]
    schema = StructType().add("value", "binary")
    read = read_range(Options(fail_on_data_loss=fail_on_data_loss), schema, work, pool=pool, find_log_range=look)
    return [int(each) for some in read for each in some.column("value").to_pylist()]


def test_the_schema_is_the_one_that_spark_computes() -> None:
    full = build_batch(
        [
            Record(key=b"k", value=b"v", headers=(("a", b"1"), ("b", None)), timestamp=1234),
            Record(timestamp=1235),
        ],
        base_offset=7,
    )
    schema = record_schema(with_headers=True)
    pool = ClientPool(lambda settings: LogReader({7: full}))  # type: ignore[arg-type, return-value]
    [found] = read_range(Options(), schema, OffsetRange("t", 3, 7, 9), pool=pool)
    found.validate(full=True)
    assert found.schema.equals(to_arrow_schema(schema, timezone="UTC"), check_metadata=True)
    first, second = found.to_pylist()
    assert first.pop("timestamp").timestamp() == 1.234
    assert first == {
        "key": b"k",
        "value": b"v",
        "topic": "t",
        "partition": 3,
        "offset": 7,
        "timestampType": 0,
        "headers": [{"key": "a", "value": b"1"}, {"key": "b", "value": None}],
    }
    # As with Spark's own connector, which has null there, not an empty array.
    assert second["headers"] is None
    assert second["key"] is None
    assert second["value"] is None


def test_a_range_in_several_fetches() -> None:
    reader = LogReader({0: batch(0, 5), 5: batch(5, 5), 10: batch(10, 5)})
    assert values(reader, OffsetRange("t", 0, 2, 12, TOPIC_ID)) == list(range(2, 12))
    assert reader.wishes[0].topic_id == bytes(range(16))


def test_a_range_of_nothing_needs_no_reader() -> None:
    assert values(LogReader({}), OffsetRange("t", 0, 5, 5)) == []


def test_tiny_records_by_the_million_come_in_pieces() -> None:
    count = 300_000
    rows = RowConverter(StructType().add("offset", "long"))
    found = list(rows.of(pa.record_batch({"offset": pa.array(range(count), pa.int64())})))
    assert max(each.num_rows for each in found) <= 131_072
    assert pa.Table.from_batches(found).column("offset").to_pylist() == list(range(count))


GONE = NoOffsetError("t-0 has no offset 5", TopicPartition("t", 0), 5)
RANGE = OffsetRange("t", 0, 0, 15, TOPIC_ID)


def log_without(*problems: int, problem: Exception = GONE) -> LogReader:
    batches = {0: batch(0, 5), 5: batch(5, 5), 10: batch(10, 5)}
    return LogReader(batches, dict.fromkeys(problems, problem))


def test_retention_is_told() -> None:
    with pytest.raises(DataLoss, match=r"t-0: retention deleted 5 offsets .*\(5 to 9\); the log begins at offset 10"):
        values(log_without(5), RANGE, now=LogRange(TOPIC_ID, 10, 20))


def test_what_retention_left_is_read(capsys: pytest.CaptureFixture[str]) -> None:
    assert values(log_without(5), RANGE, now=LogRange(TOPIC_ID, 10, 20), fail_on_data_loss=False) == [
        *range(5),
        *range(10, 15),
    ]
    reported = capsys.readouterr().err
    assert reported.count("\n") == 1
    assert "retention deleted 5 offsets" in reported
    assert "the 5 offsets from 10 on are read" in reported


@pytest.mark.parametrize(
    ("now", "reported"),
    [
        (None, "the topic was deleted, and with it 10 offsets"),
        (LogRange(OTHER_ID, 0, 20), f"its id was {TOPIC_ID} and is {OTHER_ID}"),
        (LogRange(TOPIC_ID, 0, 8), "the log was cut: it ends at offset 8 now"),
        (LogRange(TOPIC_ID, 40, 50), "the log begins at offset 40"),
    ],
)
def test_where_nothing_is_left_the_range_ends(
    now: LogRange | None, reported: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(DataLoss, match="5 to 14") as caught:
        values(log_without(5), RANGE, now=now)
    assert reported in str(caught.value)
    assert values(log_without(5), RANGE, now=now, fail_on_data_loss=False) == list(range(5))
    assert reported in capsys.readouterr().err


def test_a_replaced_topic_is_told_without_having_read_of_it() -> None:
    problem = TopicReplacedError("another")
    with pytest.raises(DataLoss, match="deleted and created again"):
        values(log_without(0, problem=problem), RANGE, now=LogRange(OTHER_ID, 0, 20))


def test_a_timeout_is_no_loss_where_the_log_is_whole() -> None:
    slow = RequestTimeout("nothing could be read of t-0 at offset 5 for 60 s: its leader did not answer")
    for now in (LogRange(TOPIC_ID, 0, 20), UserError("no answer")):
        with pytest.raises(UserError, match=r"its leader did not answer; .*kafka\.default\.api\.timeout\.ms"):
            values(log_without(5, problem=slow), RANGE, now=now, fail_on_data_loss=False)


def test_a_log_that_stays_short_is_one_that_was_cut() -> None:
    slow = RequestTimeout("nothing could be read of t-0 at offset 10 for 60 s: the log ends at offset 10")
    reader = log_without(10, problem=slow)
    assert values(reader, RANGE, now=LogRange(TOPIC_ID, 0, 10), fail_on_data_loss=False) == list(range(10))


def test_damage_is_never_passed_over() -> None:
    broken = PoisonRecordError("t-0 cannot be read at offset 5")
    with pytest.raises(PoisonRecordError):
        values(log_without(5, problem=broken), RANGE, now=LogRange(TOPIC_ID, 0, 20), fail_on_data_loss=False)


def test_a_reader_that_failed_is_not_used_again() -> None:
    reader = log_without(5)
    values(reader, RANGE, now=LogRange(TOPIC_ID, 10, 20), fail_on_data_loss=False)
    assert reader.closed == 1
