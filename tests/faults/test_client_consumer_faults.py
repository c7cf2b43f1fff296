"""Our consumer while brokers die, stand still, cut answers short, lose topics, and logs are damaged.

Whatever happens, every record that is there is returned once and in order, or the program is told.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from braidlog.client.consumer.consumer import Consumer
from braidlog.client.consumer.record import ConsumerRecord
from braidlog.client.errors import NoOffsetError, PoisonRecordError
from braidlog.core.types import TopicPartition
from support import confluent
from support.broker import Broker, start_braidlog
from support.cutting_proxy import CuttingProxy
from support.eventually import eventually
from support.ports import lasting_port
from support.samples import Sample, plain_samples

TOPIC = "ledger"
WHERE = TopicPartition(TOPIC, 0)
DEADLINE_S = 90.0
SETTINGS = {"braidlog.http.listen": ""}


@contextmanager
def reading(bootstrap: str, **settings: Any) -> Iterator[Consumer]:
    given = {"auto_offset_reset": "earliest", "reconnect_backoff_max_ms": 200, "retry_backoff_max_ms": 200, **settings}
    with Consumer(bootstrap_servers=bootstrap, **given) as consumer:
        consumer.assign([WHERE])
        yield consumer


def read(consumer: Consumer, count: int, **options: Any) -> list[ConsumerRecord]:
    records: list[ConsumerRecord] = []
    deadline = time.monotonic() + DEADLINE_S
    while len(records) < count:
        records += consumer.poll(0.5, **options)
        assert time.monotonic() < deadline, f"only {len(records)} of {count} records came"
    return records


def produce(broker: Broker, samples: list[Sample], **settings: Any) -> None:
    confluent.send(confluent.producer(broker.bootstrap, **settings), TOPIC, samples)


def numbers(records: list[ConsumerRecord]) -> list[int]:
    return [int(each.value) for each in records]


def numbered(count: int, first: int = 0, size: int = 0) -> list[Sample]:
    return [Sample(None, b"%0*d" % (size, first + at)) for at in range(count)]


def test_a_broker_killed_and_started_again_while_it_is_read(tmp_path: Path) -> None:
    port = lasting_port()
    seen: list[int] = []
    with start_braidlog(tmp_path / "data", SETTINGS, port=port) as first:
        produce(first, numbered(20_000, size=200))
        with reading(first.bootstrap, max_partition_fetch_bytes=50_000) as consumer:
            seen += numbers(read(consumer, 5_000))
            first.kill()
            # What was fetched before is returned; then there is nothing, and that is no error.
            quiet = 0
            while quiet < 3:
                records = consumer.poll(0.1)
                seen += numbers(records)
                quiet = 0 if records else quiet + 1
            with start_braidlog(tmp_path / "data", SETTINGS, port=port) as second:
                seen += numbers(read(consumer, 20_000 - len(seen)))
                produce(second, numbered(10, first=20_000))
                seen += numbers(read(consumer, 10))
    assert seen == list(range(20_010))


def test_connections_cut_in_the_middle_of_answers(tmp_path: Path) -> None:
    with (
        CuttingProxy() as proxy,
        start_braidlog(tmp_path / "data", {**SETTINGS, **proxy.settings()}, port=proxy.broker_port),
    ):
        confluent.create_topic(proxy.bootstrap, TOPIC)
        confluent.send(confluent.producer(proxy.bootstrap), TOPIC, numbered(30_000, size=300))
        with reading(
            proxy.bootstrap, max_partition_fetch_bytes=200_000, reconnect_backoff_ms=5, retry_backoff_ms=5
        ) as consumer:
            end = proxy.misbehave(seed=4, pause_s=0.02)
            try:
                # A fast reader is through before enough was cut: then it reads everything again.
                while proxy.cuts <= 3:
                    consumer.seek_to_beginning()
                    assert numbers(read(consumer, 30_000, max_records=100)) == list(range(30_000))
            finally:
                end()


def test_a_broker_that_stands_still_is_waited_for(tmp_path: Path) -> None:
    with start_braidlog(tmp_path / "data", SETTINGS) as broker:
        produce(broker, numbered(10_000, size=100))
        with reading(
            broker.bootstrap, request_timeout_ms=1000, fetch_max_wait_ms=200, max_partition_fetch_bytes=30_000
        ) as consumer:
            seen = numbers(read(consumer, 1_000))
            os.kill(broker.process.pid, signal.SIGSTOP)
            try:
                # Longer than a request may take, so that connections are given up.
                until = time.monotonic() + 3.0
                while time.monotonic() < until:
                    seen += numbers(consumer.poll(0.2))
            finally:
                os.kill(broker.process.pid, signal.SIGCONT)
            seen += numbers(read(consumer, 10_000 - len(seen)))
    assert seen == list(range(10_000))


def remake(bootstrap: str) -> None:
    client = confluent.admin(bootstrap)
    client.delete_topics([TOPIC])[TOPIC].result(DEADLINE_S)
    eventually(lambda: TOPIC not in client.list_topics(timeout=DEADLINE_S).topics)
    confluent.create_topic(bootstrap, TOPIC)


def test_a_topic_deleted_and_made_again_is_read_by_the_policy(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    settings = {**SETTINGS, "auto.create.topics.enable": "false"}
    with start_braidlog(tmp_path / "data", settings) as broker:
        confluent.create_topic(broker.bootstrap, TOPIC)
        produce(broker, numbered(100))
        with reading(broker.bootstrap, allow_auto_create_topics=False) as consumer:
            assert numbers(read(consumer, 50, max_records=50)) == list(range(50))
            remake(broker.bootstrap)
            # More than the position: a reader that only looked at offsets would go on in the midst of them.
            produce(broker, numbered(200, first=1000))
            seen: list[int] = []
            deadline = time.monotonic() + DEADLINE_S
            while not seen or seen[-1] != 1199:
                seen += numbers(consumer.poll(0.5))
                assert time.monotonic() < deadline
    # Records of the old topic that were fetched before may come; those of the new one all do, from its start.
    assert [each for each in seen if each >= 1000] == list(range(1000, 1200))
    assert f"topic {TOPIC} was deleted and made again" in caplog.text


def test_a_topic_deleted_and_made_again_is_told_where_there_is_no_policy(tmp_path: Path) -> None:
    settings = {**SETTINGS, "auto.create.topics.enable": "false"}
    with start_braidlog(tmp_path / "data", settings) as broker:
        confluent.create_topic(broker.bootstrap, TOPIC)
        produce(broker, numbered(10))
        with reading(broker.bootstrap, auto_offset_reset="none", allow_auto_create_topics=False) as consumer:
            consumer.seek(WHERE, 0)
            assert len(read(consumer, 10)) == 10
            remake(broker.bootstrap)
            produce(broker, numbered(20))
            with pytest.raises(NoOffsetError, match=r"ledger-0: .*deleted.*seek"):
                read(consumer, 1)
            consumer.seek_to_beginning()
            assert numbers(read(consumer, 20)) == list(range(20))


def test_a_damaged_batch_is_told_and_can_be_passed_over(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with start_braidlog(data, SETTINGS) as broker:
        for first in range(0, 30, 10):
            # One batch each: nothing is sent before the flush.
            produce(broker, numbered(10, first=first, size=50), linger_ms=60_000)
        # The second is damaged behind the broker's back.
        (segment,) = (data / f"{TOPIC}-0").glob("*.log")
        content = bytearray(segment.read_bytes())
        damaged = len(content) // 2
        with segment.open("r+b") as file:
            file.seek(damaged)
            file.write(bytes([content[damaged] ^ 0xFF]))
        with reading(broker.bootstrap) as consumer:
            assert numbers(read(consumer, 10)) == list(range(10))
            for _ in range(3):
                with pytest.raises(PoisonRecordError, match=r"ledger-0 .*offset 10.*crc.*seek past it") as caught:
                    consumer.poll(10.0)
                assert consumer.position(WHERE) == 10
            assert (caught.value.partition, caught.value.offset, caught.value.resume_at) == (WHERE, 10, 20)
            consumer.seek(WHERE, caught.value.resume_at)
            assert numbers(read(consumer, 10)) == list(range(20, 30))
        with reading(broker.bootstrap, check_crcs=False) as consumer:
            assert len(read(consumer, 30)) == 30


def read_until_told(consumer: Consumer) -> int:
    seen = 0
    with pytest.raises(NoOffsetError, match="the log does not have offset"):  # noqa: PT012 (any of the polls may tell)
        while seen < 5000:
            seen += len(consumer.poll(1.0))
    return seen


def test_what_retention_took_is_told_or_passed_over(tmp_path: Path) -> None:
    with start_braidlog(tmp_path / "data", SETTINGS) as broker:
        produce(broker, numbered(5000, size=500))
        with (
            reading(broker.bootstrap, max_partition_fetch_bytes=10_000) as lenient,
            reading(broker.bootstrap, max_partition_fetch_bytes=10_000, auto_offset_reset="none") as strict,
        ):
            strict.seek(WHERE, 0)
            for consumer in (lenient, strict):
                assert numbers(read(consumer, 10, max_records=10)) == list(range(10))
            where = confluent.TopicPartition(TOPIC, 0, 4000)
            client = confluent.admin(broker.bootstrap)  # a name for it: its answers come only while it lives
            client.delete_records([where])[where].result(DEADLINE_S)
            assert lenient.beginning_offsets([WHERE]) == {WHERE: 4000}
            before = read_until_told(strict)
            # Only what had been fetched before.
            assert strict.position(WHERE) == 10 + before < 4000
            rest = numbers(read(lenient, 1000))
            while rest[-1] != 4999:
                rest += numbers(read(lenient, 1))
            assert rest == [*range(10, 10 + len(rest) - 1000), *range(4000, 5000)]


def test_closing_while_the_broker_is_gone_does_not_take_for_ever(tmp_path: Path) -> None:
    with start_braidlog(tmp_path / "data", SETTINGS) as broker:
        produce(broker, numbered(10))
        with reading(broker.bootstrap, group_id="g") as consumer:
            read(consumer, 10)
            broker.kill()
            before = threading.active_count()
            started = time.monotonic()
            consumer.close(2.0)
            # A request has 30 s by default.
            assert time.monotonic() - started < 25
            assert threading.active_count() < before


def test_every_codec_through_a_kill(tmp_path: Path) -> None:
    port = lasting_port()
    with start_braidlog(tmp_path / "data", SETTINGS, port=port) as first:
        samples = plain_samples(2000, size=300)
        for codec in ("gzip", "snappy", "lz4", "zstd"):
            produce(first, samples, compression_type=codec)
        with reading(first.bootstrap, max_partition_fetch_bytes=20_000) as consumer:
            values = [each.value for each in read(consumer, 1000)]
            first.kill()
            with start_braidlog(tmp_path / "data", SETTINGS, port=port):
                values += [each.value for each in read(consumer, 8000 - len(values))]
    assert values == [each.value for each in samples] * 4


def test_a_subscription_without_a_group_outlives_its_broker(tmp_path: Path) -> None:
    """Metadata without the topic, as while a broker starts, must not cost it its positions."""
    port = lasting_port()
    with start_braidlog(tmp_path / "data", SETTINGS, port=port) as first:
        produce(first, numbered(2_000))
        with Consumer(TOPIC, bootstrap_servers=first.bootstrap, auto_offset_reset="earliest") as consumer:
            seen = numbers(read(consumer, 500))
            first.kill()
            while records := consumer.poll(0.2):
                seen += numbers(records)
            with start_braidlog(tmp_path / "data", SETTINGS, port=port) as second:
                produce(second, numbered(500, first=2_000))
                seen += numbers(read(consumer, 2_500 - len(seen)))
    assert seen == list(range(2_500))
