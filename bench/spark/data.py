"""What is read and what is written: topics filled by braidlog's client, Parquet files filled by Arrow."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any, Final

from bench.brokers import Braidlog
from bench.requests import Requester

PARTITIONS: Final = 4
# Distinct records; the rows of a topic are drawn from them.
_DISTINCT: Final = 20_000
_CHUNK: Final = 100_000
_FILES: Final = 4
_WORDS: Final = (
    *("GET", "POST", "200", "404", "500", "/index.html", "/cart", "/login", "/search?q=", "user=", "session=", "took"),
    *("INFO", "WARN", "ERROR", "connection", "opened", "closed", "retry", "order", "payment", "customer", "warehouse"),
)


def values(size: int) -> list[bytes]:
    """Text like that of a log, which lz4 brings to about half; the same in every run."""
    chooser = random.Random(size)
    made = []
    for _ in range(_DISTINCT):
        words: list[str] = []
        length = 0
        while length < size:
            word = f"{chooser.getrandbits(40):010x}" if chooser.random() < 0.35 else chooser.choice(_WORDS)
            words.append(word)
            length += len(word) + 1
        made.append(" ".join(words).encode()[:size])
    return made


def _tables(size: int, count: int) -> Any:
    import pyarrow as pa

    distinct = pa.array(values(size), pa.binary())
    chooser = random.Random(count)
    indices = pa.array(chooser.choices(range(_DISTINCT), k=min(_CHUNK, count)), pa.int32())
    chunk = pa.table({"value": distinct.take(indices)})
    left = count
    while left > 0:
        yield chunk.slice(0, min(left, chunk.num_rows))
        left -= chunk.num_rows


def fill_topic(broker: Braidlog, name: str, size: int, count: int, codec: str, partitions: int = PARTITIONS) -> None:
    from braidlog import Producer

    with Requester(broker.port) as requester:
        requester.create_topic(name, partitions)
    with Producer(bootstrap_servers=f"127.0.0.1:{broker.port}", compression_type=codec) as producer:
        deliveries = [
            producer.send_arrow(table, name, partition_by=number % partitions)
            for number, table in enumerate(_spread(size, count, partitions))
        ]
        written = sum(delivery.result(120.0).written for delivery in deliveries)
    if written != count:
        raise RuntimeError(f"{count} records were sent to {name}, {written} were written")


def _spread(size: int, count: int, partitions: int) -> Any:
    """In pieces that the partitions take turns with, so that they end up equally long."""
    for table in _tables(size, count):
        rows, share = table.num_rows, -(-table.num_rows // partitions)
        for first in range(0, rows, share):
            yield table.slice(first, share)


def write_files(place: Path, size: int, count: int) -> None:
    """Parquet without compression or dictionary, so that reading it costs as little as it can."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    place.mkdir(parents=True)
    table = pa.concat_tables(_tables(size, count))
    share = -(-count // _FILES)
    for number in range(_FILES):
        pq.write_table(
            table.slice(number * share, share), place / f"{number}.parquet", compression="none", use_dictionary=False
        )
