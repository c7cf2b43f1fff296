"""Tables through a broker: written and read by our client, and the same records as other clients write and read."""

from __future__ import annotations

import asyncio
from typing import Any

import pyarrow as pa
import pytest

from braidlog import Consumer, Producer
from braidlog.client.arrow.reading import RangeReader, read_range
from braidlog.client.errors import NoOffsetError, RecordTooLargeError, RequestTimeout
from braidlog.core.errors import UserError
from braidlog.core.types import TopicPartition
from support import confluent
from support.broker import Broker
from support.samples import BASE_TIMESTAMP_MS, CODECS

SECONDS = 30.0


def table_of(rows: int, first: int = 0) -> pa.Table:
    numbers = range(first, first + rows)
    return pa.table(
        {
            "key": pa.array([None if number % 7 == 0 else f"key {number % 50}" for number in numbers], pa.string()),
            "value": pa.array([None if number % 11 == 3 else b"value %d" % number * 6 for number in numbers]),
            "headers": pa.array(
                [[("number", b"%d" % number), ("none", None)] if number % 5 == 0 else [] for number in numbers],
                pa.map_(pa.string(), pa.binary()),
            ),
            "at": pa.array([BASE_TIMESTAMP_MS + number for number in numbers], pa.timestamp("ms", "UTC")),
        }
    )


def rows_of(table: pa.Table) -> list[tuple[Any, ...]]:
    """What went in and what comes out, in one notation."""
    names = table.schema.names
    rows = []
    for row in table.to_pylist():
        headers = tuple(
            tuple(pair.values()) if isinstance(pair, dict) else tuple(pair) for pair in row["headers"] or ()
        )
        key = row["key"].encode() if isinstance(row["key"], str) else row["key"]
        time = row["timestamp" if "timestamp" in names else "at"]
        rows.append((key, row["value"], headers, round(time.timestamp() * 1000)))
    return rows


def read_tables(broker: Broker, topic: str, rows: int, partitions: int = 1, **options: Any) -> pa.Table:
    with Consumer(bootstrap_servers=broker.bootstrap, auto_offset_reset="earliest") as consumer:
        consumer.assign([(topic, number) for number in range(partitions)])
        return poll_rows(consumer, rows, **options)


def poll_rows(consumer: Consumer, rows: int, **options: Any) -> pa.Table:
    tables = []
    while rows > 0:
        table = consumer.poll_arrow(SECONDS, **options)
        assert table.num_rows > 0
        rows -= table.num_rows
        tables.append(table)
    return pa.concat_tables(tables)


@pytest.mark.parametrize("codec", CODECS)
def test_what_goes_in_comes_out(broker: Broker, topic: str, codec: str) -> None:
    table = table_of(3000)
    with Producer(bootstrap_servers=broker.bootstrap, compression_type=codec) as producer:
        outcome = producer.send_arrow(table, topic, timestamp="at", batch_size=20_000).result(SECONDS)
    assert outcome.partitions[TopicPartition(topic, 0)].ranges == [(0, 2999)]
    got = read_tables(broker, topic, 3000)
    assert rows_of(got) == rows_of(table)
    assert got.column("offset").to_pylist() == list(range(3000))
    assert set(got.column("topic").to_pylist()) == {topic}


def test_other_clients_read_what_tables_wrote(broker: Broker, topic: str) -> None:
    table = table_of(500)
    with Producer(bootstrap_servers=broker.bootstrap, compression_type="lz4") as producer:
        producer.send_arrow(table, topic, timestamp="at").result(SECONDS)
    messages = confluent.read_all(broker.bootstrap, topic)
    got = [(each.key(), each.value(), tuple(each.headers() or ()), each.timestamp()[1]) for each in messages]
    assert got == rows_of(table)


@pytest.mark.parametrize("codec", CODECS)
def test_tables_hold_what_other_clients_wrote(broker: Broker, topic: str, codec: str) -> None:
    table = table_of(300)
    rows = rows_of(table)
    theirs = confluent.producer(broker.bootstrap, compression_type=codec)
    for key, value, headers, time in rows:
        theirs.produce(topic, value, key, headers=list(headers), timestamp=time)
    assert theirs.flush(SECONDS) == 0
    assert rows_of(read_tables(broker, topic, 300)) == rows


def test_keys_meet_those_of_other_clients(broker: Broker, topic: str) -> None:
    confluent.create_topic(broker.bootstrap, topic, 5)
    keys = [b"key %d" % number * (1 + number % 4) for number in range(200)]
    theirs = confluent.producer(broker.bootstrap, partitioner="murmur2_random")
    for key in keys:
        theirs.produce(topic, b"theirs", key)
    assert theirs.flush(SECONDS) == 0
    with Producer(bootstrap_servers=broker.bootstrap) as producer:
        outcome = producer.send_arrow(pa.table({"key": keys, "value": ["ours"] * 200}), topic).result(SECONDS)
    assert outcome.written == 200
    got = read_tables(broker, topic, 400, 5, columns=["partition", "key", "value"]).to_pylist()
    places: dict[bytes, dict[bytes, int]] = {b"ours": {}, b"theirs": {}}
    for row in got:
        places[row["value"]][row["key"]] = row["partition"]
    assert places[b"ours"] == places[b"theirs"]
    assert len(set(places[b"ours"].values())) == 5


def test_transactions(broker: Broker, topic: str) -> None:
    with Producer(bootstrap_servers=broker.bootstrap, transactional_id=f"id of {topic}") as producer:
        producer.init_transactions()
        for first, commits in ((0, True), (1000, False), (2000, True)):
            producer.begin_transaction()
            delivery = producer.send_arrow(table_of(1000, first), topic, batch_size=10_000)
            if commits:
                producer.commit_transaction()
                assert delivery.result(SECONDS).written == 1000
            else:
                assert delivery.result(SECONDS).written == 1000
                producer.abort_transaction()
    with Consumer(
        bootstrap_servers=broker.bootstrap, auto_offset_reset="earliest", isolation_level="read_committed"
    ) as consumer:
        consumer.assign([(topic, 0)])
        got = poll_rows(consumer, 2000, max_records=300)
        assert consumer.poll_arrow(0.2).num_rows == 0
        # Past the last marker.
        assert consumer.position((topic, 0)) == 3003
    expected = [row[1] for first in (0, 2000) for row in rows_of(table_of(1000, first))]
    assert got.column("value").to_pylist() == expected
    assert read_tables(broker, topic, 3000, columns=["value"]).num_rows == 3000
    with RangeReader(bootstrap_servers=broker.bootstrap, isolation_level="read_committed") as reader:
        batches = list(reader.read(topic, 0, 500, 2500, columns=["offset"]))
        found = [offset for batch in batches for offset in batch.column("offset").to_pylist()]
    # The aborted ones are at 1001 … 2000, between two markers.
    assert found == [*range(500, 1000), *range(2002, 2500)]


def test_a_group_goes_on_where_tables_were_committed(broker: Broker, topic: str) -> None:
    with Producer(bootstrap_servers=broker.bootstrap) as producer:
        producer.send_arrow(table_of(1000), topic, key=None).result(SECONDS)
    settings = {
        "bootstrap_servers": broker.bootstrap,
        "group_id": f"group of {topic}",
        "auto_offset_reset": "earliest",
        "enable_auto_commit": False,
    }
    with Consumer(**settings) as consumer:
        consumer.subscribe([topic])
        first = poll_rows(consumer, 400, max_records=400)
        assert first.num_rows == 400
        consumer.commit()
    with Consumer(**settings) as consumer:
        consumer.subscribe([topic])
        # A poll of records and one of tables take turns.
        middle = consumer.poll(SECONDS, 100)
        rest = poll_rows(consumer, 600 - len(middle), columns=["offset"])
    assert [*(record.offset for record in middle), *rest.column("offset").to_pylist()] == list(range(400, 1000))


def test_awaiting_a_table(broker: Broker, topic: str) -> None:
    async def main() -> int:
        async with Producer(bootstrap_servers=broker.bootstrap) as producer:
            delivery = await asyncio.to_thread(producer.send_arrow, table_of(100), topic)
            return (await delivery).written

    assert asyncio.run(main()) == 100


def test_a_batch_that_the_topic_does_not_take_is_split(broker: Broker, topic: str) -> None:
    confluent.create_topic(broker.bootstrap, topic, **{"max.message.bytes": "5000"})
    table = pa.table({"value": [b"v%04d" % number * 20 for number in range(500)]})
    with Producer(bootstrap_servers=broker.bootstrap) as producer:
        outcome = producer.send_arrow(table, topic, batch_size=40_000).result(SECONDS)
        assert outcome.written == 500
    assert read_tables(broker, topic, 500).column("value").to_pylist() == table.column("value").to_pylist()


def test_a_row_too_large_is_refused_before_anything_is_sent(broker: Broker, topic: str) -> None:
    table = pa.table({"value": [b"small", b"x" * 2_000_000]})
    with (
        Producer(bootstrap_servers=broker.bootstrap) as producer,
        pytest.raises(RecordTooLargeError, match="row 1 makes a batch of 2000"),
    ):
        producer.send_arrow(table, topic)


def test_ranges(broker: Broker, topic: str) -> None:
    with Producer(bootstrap_servers=broker.bootstrap) as producer:
        producer.send_arrow(table_of(3000), topic, timestamp="at", batch_size=10_000).result(SECONDS)
    # Small fetches, so that many are needed and the next is always under way.
    with RangeReader(bootstrap_servers=broker.bootstrap, max_partition_fetch_bytes=30_000) as reader:
        for start, end in ((0, 3000), (7, 2991), (1500, 1501), (3000, 3000)):
            batches = list(reader.read(topic, 0, start, end))
            offsets = [offset for batch in batches for offset in batch.column("offset").to_pylist()]
            assert offsets == list(range(start, end))
        whole = list(reader.read(topic, 0, 0, 3000))
        assert len(whole) > 3
        assert rows_of(pa.Table.from_batches(whole)) == rows_of(table_of(3000))
        limited = reader.read(topic, 0, 0, 3000, max_records=100, columns=["offset"])
        assert [next(limited).num_rows for _ in range(3)] == [100, 100, 100]
        limited.close()  # type: ignore[attr-defined]
        with pytest.raises(UserError, match="no partition 5; it has 1"):
            next(iter(reader.read(topic, 5, 0, 1)))
        with pytest.raises(UserError, match="no range"):
            reader.read(topic, 0, 5, 4)


def test_ranges_that_are_not_there(broker: Broker, topic: str) -> None:
    with Producer(bootstrap_servers=broker.bootstrap) as producer:
        producer.send_arrow(table_of(10), topic).result(SECONDS)
    config = {"bootstrap.servers": broker.bootstrap, "default.api.timeout.ms": 500, "fetch.max.wait.ms": 50}
    with pytest.raises(NoOffsetError, match="has no offset 50") as caught:
        list(read_range(config, topic, 0, 50, 60))
    assert (caught.value.partition, caught.value.offset) == (TopicPartition(topic, 0), 50)
    batches = read_range(config, topic, 0, 5, 20)
    assert next(batches).num_rows == 5
    with pytest.raises(RequestTimeout, match="the log ends at offset 10, and the range at 20"):
        next(batches)
