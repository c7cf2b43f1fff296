"""`braidlog perf produce|consume`: how fast a topic can be written and read from here, and with what latency."""

from __future__ import annotations

import argparse
import random
import string
import time
from array import array
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from braidlog.cli.interrupts import exit_code_of
from braidlog.cli.options import (
    add_connection,
    add_output,
    connect,
    partition_number,
    positive,
    seconds,
    whole_number,
)
from braidlog.cli.output import show_one
from braidlog.cli.program import EXIT_OK
from braidlog.cli.records.client_options import client_settings, remark_on_logs
from braidlog.cli.records.progress import RecordProgress
from braidlog.cli.records.record_reader import Chunk, RecordReader
from braidlog.client.consumer.consumer import Consumer
from braidlog.client.consumer.record import ConsumerRecord
from braidlog.client.producer.delivery import Delivery
from braidlog.client.producer.producer import Producer
from braidlog.core.errors import UserError
from braidlog.core.types import TopicPartition
from braidlog.wire.records.compression import CODEC_NAMES
from braidlog.wire.records.varint import INT64_MAX

# Latencies are taken of so many records at most, spread evenly: a callback for each would be what is measured.
_SAMPLES: Final = 100_000
# Payloads differ, so that compression has something to do, and are made before the clock runs.
_PAYLOADS: Final = 256
_PAYLOAD_BYTES: Final = 8 << 20
_BLOCK: Final = 1 << 16
_LARGEST: Final = 1 << 30
_LOOK_EVERY: Final = 1000
_GRACE_S: Final = 10.0
# Records a poll.
_POLLED: Final = 2000
_PERCENTILES: Final = (("p50", 0.5), ("p95", 0.95), ("p99", 0.99), ("p999", 0.999), ("max", 1.0))

_PRODUCE_DESCRIPTION: Final = """\
Write synthetic records with braidlog's own client, as fast as it can or at a rate, and say how fast that was.
The latency of a record is the time from send to its acknowledgement.
"""
_PRODUCE_EPILOG: Final = """\
The records stay in the topic: use one without readers. At full speed the latency is mostly the time in the
producer's own buffer; --rate shows what a record takes when nothing waits before it.

examples:
  braidlog perf produce load --records 1000000 --size 1024 --compression lz4
  braidlog perf produce load --records 10000 --rate 1000 --acks all -X linger.ms=0
"""
_CONSUME_DESCRIPTION: Final = """\
Read a topic with braidlog's own client, commit nothing, and say how fast that was.
With --offset latest the latency is the time from a record's timestamp until it was read here: clocks must agree.
"""
_CONSUME_EPILOG: Final = """\
examples:
  braidlog perf consume load
  braidlog perf consume load --offset latest --records 10000       while something writes
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    verbs = parser.add_subparsers(metavar="ACTION", required=True, title="actions")

    produce = verbs.add_parser("produce", help="write synthetic records")
    produce.description, produce.epilog = _PRODUCE_DESCRIPTION, _PRODUCE_EPILOG
    produce.add_argument("topic", metavar="TOPIC", help="created first where the broker allows it")
    produce.add_argument("--records", metavar="N", type=positive, default=100_000, help="how many (default 100000)")
    produce.add_argument("--size", metavar="N", type=_size, default=100, help="bytes of each value (default 100)")
    produce.add_argument("--rate", metavar="N", type=positive, help="records per second (default: as many as can be)")
    produce.add_argument("--partition", metavar="N", type=partition_number, help="write to this partition alone")
    produce.add_argument("--acks", choices=("all", "1", "0", "-1"), help="who must have a record (default all)")
    produce.add_argument("--compression", choices=tuple(CODEC_NAMES.values()), help="default none")
    produce.set_defaults(run=run_produce)

    consume = verbs.add_parser("consume", help="read records")
    consume.description, consume.epilog = _CONSUME_DESCRIPTION, _CONSUME_EPILOG
    consume.add_argument("topic", metavar="TOPIC")
    consume.add_argument("--records", metavar="N", type=positive, help="stop after so many (default: at the end)")
    consume.add_argument(
        "--offset", choices=("earliest", "latest"), default="earliest", help="where to begin (default earliest)"
    )
    consume.add_argument(
        "--timeout", metavar="SECONDS", type=seconds, default=10.0, help="stop when no record came for so long (10)"
    )
    consume.set_defaults(run=run_consume)

    for verb in (produce, consume):
        add_connection(verb)
        add_output(verb)


def _size(text: str) -> int:
    """The type of --size; a record has to fit a request."""
    return whole_number(text, 0, _LARGEST, "a size in bytes: a whole number from 0")


class Latencies:
    """Times in seconds, some of many."""

    def __init__(self) -> None:
        self._taken = array("d")

    def add(self, latency_s: float) -> None:
        self._taken.append(latency_s)

    def row(self) -> dict[str, Any]:
        """In milliseconds; None where nothing was measured."""
        taken = sorted(self._taken)
        row: dict[str, Any] = {"latency_avg_ms": _ms(sum(taken) / len(taken)) if taken else None}
        for name, share in _PERCENTILES:
            row[f"latency_{name}_ms"] = _ms(percentile(taken, share)) if taken else None
        return row


def percentile(ordered: Sequence[float], share: float) -> float:
    """The least value that so large a share of all do not exceed."""
    return ordered[max(-(-int(share * 1000) * len(ordered) // 1000), 1) - 1]


def _ms(latency_s: float) -> float:
    return round(latency_s * 1000, 3)


# Produce


class _Load:
    """Sends records, and takes the latency of every `every`-th."""

    def __init__(self, producer: Producer, options: argparse.Namespace, progress: RecordProgress) -> None:
        self.latencies = Latencies()
        self.sent = 0
        self._producer = producer
        self._options = options
        self._progress = progress
        self._every = max(1, -(-options.records // _SAMPLES))
        self._failure: Exception | None = None

    def run(self) -> None:
        producer, topic, partition = self._producer, self._options.topic, self._options.partition
        payloads = synthetic(self._options.size)
        rate: int | None = self._options.rate
        began = time.perf_counter()
        for number in range(self._options.records):
            if rate is not None:
                ahead = began + number / rate - time.perf_counter()
                if ahead > 0:
                    time.sleep(ahead)
            delivery = producer.send(topic, payloads[number % len(payloads)], partition=partition)
            self.sent += 1
            if number % self._every == 0:
                self._sample(delivery, time.perf_counter())
            if number % _LOOK_EVERY == 0 or rate is not None:
                self.check()
                self._tell()

    def _sample(self, delivery: Delivery, began: float) -> None:
        def done(delivered: Delivery) -> None:
            problem = delivered.outcome()[1]
            if problem is None:
                self.latencies.add(time.perf_counter() - began)
            elif self._failure is None:
                self._failure = problem

        delivery.add_done_callback(done)

    def check(self) -> None:
        """Raises what a record failed with: numbers of a load that was refused mean nothing."""
        if self._failure is not None:
            raise self._failure
        failed = self._producer.metrics()["records-failed"]
        if failed:
            raise UserError(f"{failed} records were not acknowledged")

    def _tell(self) -> None:
        written = self.acknowledged
        self._progress.add(written - self._progress.records, (written - self._progress.records) * self._options.size)
        self._progress.show()

    @property
    def acknowledged(self) -> int:
        return self._producer.metrics()["records-acknowledged"]


def synthetic(size: int) -> list[bytes]:
    """Values of random letters, the same in every run, as kafka-producer-perf-test has them."""
    chooser = random.Random(0)
    letters = string.ascii_uppercase.encode()

    def value() -> bytes:
        block = bytes(chooser.choices(letters, k=min(size, _BLOCK)))
        return (block * (-(-size // max(len(block), 1))))[:size]

    # Fewer of large ones, so that they take neither the memory nor the time that the load is to have.
    count = min(_PAYLOADS, max(1, _PAYLOAD_BYTES // (size + 1)))
    return [value() for _ in range(count)]


def run_produce(options: argparse.Namespace) -> int:
    remark_on_logs()
    with connect(options) as cluster:
        topic = cluster.topic(options.topic, create=True)
        if options.partition is not None:
            cluster.leader_of(topic, options.partition)
        settings = client_settings(options, cluster.settings)
    if options.acks is not None:
        settings["acks"] = options.acks
    if options.compression is not None:
        settings["compression.type"] = options.compression
    progress = RecordProgress("written")
    code = EXIT_OK
    with Producer(settings) as producer:
        load = _Load(producer, options, progress)
        began = time.perf_counter()
        try:
            load.run()
            producer.flush()
        except KeyboardInterrupt as interruption:
            code = exit_code_of(interruption)
            _flush_what_is_left(producer)
        took_s = time.perf_counter() - began
        progress.clear()
        load.check()
        records = load.sent if str(settings.get("acks")) == "0" else load.acknowledged
    row = _speed(options.topic, records, records * options.size, took_s)
    show_one({**row, **load.latencies.row()}, options.output)
    return code


def _flush_what_is_left(producer: Producer) -> None:
    try:
        producer.flush(_GRACE_S)
    except TimeoutError:
        # What is known by now is what can be reported.
        return


# Consume


def run_consume(options: argparse.Namespace) -> int:
    remark_on_logs()
    with connect(options) as cluster:
        topic = cluster.topic(options.topic)
        partitions = [TopicPartition(options.topic, each.index) for each in topic.partitions]
        settings = client_settings(options, cluster.settings)
    settings |= {"enable.auto.commit": False, "auto.offset.reset": "none"}
    settings.pop("group.id", None)
    is_live = options.offset == "latest"
    latencies, progress = Latencies(), RecordProgress("read")
    first: float | None = None
    last = 0.0

    def count(records: list[ConsumerRecord]) -> None:
        nonlocal first, last
        last = time.perf_counter()
        if first is None:
            first = last
        progress.add(len(records), sum([len(each.value or b"") + len(each.key or b"") for each in records]))
        if is_live:
            now = time.time()
            for each in records[:: max(1, len(records) // 100)]:
                latencies.add(max(now - each.timestamp / 1000, 0.0))

    code = EXIT_OK
    with Consumer(settings) as consumer:
        until_end = not is_live and options.records is None
        reader = RecordReader(
            consumer,
            _Counted(consumer, count),
            lambda chunk: progress.show(),
            until_end=until_end,
            most=options.records,
            idle_s=options.timeout,
        )
        began = time.perf_counter()
        try:
            consumer.assign(partitions)
            positions = consumer.end_offsets(partitions) if is_live else consumer.beginning_offsets(partitions)
            for place, offset in positions.items():
                consumer.seek(place, offset)
            reader.run()
        except KeyboardInterrupt as interruption:
            code = exit_code_of(interruption)
    progress.clear()
    # What was waited for in vain at the end is no part of it, nor at the start where records had to come first.
    took_s = last - (first if is_live and first is not None else began) if first is not None else 0.0
    row = _speed(options.topic, progress.records, progress.bytes, took_s)
    row["first_record_ms"] = None if first is None else _ms(first - began)
    show_one({**row, **(latencies.row() if is_live else {})}, options.output)
    return code


class _Counted:
    """Records as a program would get them, which are counted and not printed."""

    def __init__(self, consumer: Consumer, count: Callable[[list[ConsumerRecord]], None]) -> None:
        self._consumer = consumer
        self._count = count

    def poll(self, timeout_s: float, most: int, ends: Mapping[TopicPartition, int]) -> list[Chunk]:
        records = self._consumer.poll(timeout_s, min(most, _POLLED))
        kept = [each for each in records if each.offset < ends.get(each.topic_partition, INT64_MAX)]
        if not kept:
            return []
        self._count(kept)
        last = kept[-1]
        return [Chunk(last.topic_partition, len(kept), b"", last.offset + 1, -1)]


def _speed(topic: str, records: int, size: int, took_s: float) -> dict[str, Any]:
    took_s = max(took_s, 1e-6)
    return {
        "topic": topic,
        "records": records,
        "bytes": size,
        "seconds": round(took_s, 3),
        "records_per_s": round(records / took_s, 1),
        "mb_per_s": round(size / took_s / 1e6, 3),
    }
