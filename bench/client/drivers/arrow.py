"""braidlog's client with tables: `send_arrow` and `poll_arrow`, every usual column decoded."""

from __future__ import annotations

import pyarrow as pa

from bench.client.task import (
    BATCH_BYTES,
    BUFFER_BYTES,
    FETCH_MAX_BYTES,
    FETCH_WAIT_MS,
    LINGER_MS,
    PARTITION_FETCH_BYTES,
    WARM_RECORDS,
    Stopwatch,
    Task,
)
from braidlog.client import Consumer, Producer

# Rows of a table that one call sends: a table is handed over whole, so it is as large as programs make them.
TABLE_ROWS = 500_000
CHUNK_ROWS = 100_000


def table_of(task: Task, rows: int) -> pa.Table:
    """Different values, in chunks that are too large to stay in a processor's cache."""
    payloads = pa.array(task.payloads(), pa.binary())
    chunk = pa.concat_arrays([payloads] * (CHUNK_ROWS // len(payloads)))
    chunks = [chunk] * (rows // CHUNK_ROWS) + [chunk.slice(0, rows % CHUNK_ROWS)]
    return pa.table({"value": pa.chunked_array(chunks, pa.binary())})


def produce(task: Task, watch: Stopwatch) -> None:
    table = table_of(task, min(TABLE_ROWS, task.count))
    with Producer(
        bootstrap_servers=task.bootstrap,
        acks="all",
        batch_size=BATCH_BYTES,
        linger_ms=LINGER_MS,
        buffer_memory=BUFFER_BYTES,
    ) as producer:
        producer.send_arrow(table.slice(0, WARM_RECORDS), task.topic).result()
        watch.start()
        left = task.count
        deliveries = []
        while left > 0:
            deliveries.append(producer.send_arrow(table.slice(0, left), task.topic))
            left -= min(left, table.num_rows)
        written = sum(delivery.result().written for delivery in deliveries)
        watch.stop(written)


def consume(task: Task, watch: Stopwatch) -> None:
    with Consumer(
        bootstrap_servers=task.bootstrap,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        fetch_max_bytes=FETCH_MAX_BYTES,
        max_partition_fetch_bytes=PARTITION_FETCH_BYTES,
        fetch_max_wait_ms=FETCH_WAIT_MS,
    ) as consumer:
        consumer.assign([(task.topic, partition) for partition in range(task.partitions)])
        # The first table comes when connections and positions are there.
        read: int = consumer.poll_arrow(30.0, max_records=WARM_RECORDS).num_rows
        warm = read
        watch.start()
        while read < task.count:
            table = consumer.poll_arrow(30.0)
            if table.num_rows == 0:
                break
            read += table.num_rows
        watch.stop(read - warm)
