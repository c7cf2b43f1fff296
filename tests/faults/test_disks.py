"""A data directory that runs full, is or turns read-only, or breaks, beside one that works.

Whatever happens to one, the partitions of the other are written and read on; what was acknowledged is never lost, and
the broker's log names the directory and says what to do.
"""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import pytest
from confluent_kafka import KafkaError, KafkaException

from braidlog.wire.generated.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from braidlog.wire.records.builder import build_batch
from braidlog.wire.records.reading import Record
from support.broker import Broker, start_braidlog
from support.confluent import DEADLINE_S, admin, create_topic
from support.disks import FailingCalls, SmallDisk, failing_calls, small_disk
from support.eventually import eventually
from support.numbered import NumberedWriter, read_numbers
from support.ports import lasting_port
from support.raw import as_plain, ask

KAFKA_STORAGE_ERROR = 56
TOPIC = "records"
PARTITIONS = 4
MB = 1 << 20


class TwoDisks:
    """A broker's lives on two data directories, `good` and `bad`, and the writer that goes on through all of them."""

    def __init__(self, place: Path, prefix: list[str], env: dict[str, str]) -> None:
        self.good = place / "good"
        self.bad = place / "bad"
        self.port = lasting_port()
        self.bootstrap = f"127.0.0.1:{self.port}"
        self._prefix = prefix
        self._env = env
        self.writer: NumberedWriter | None = None

    @contextmanager
    def life(self) -> Iterator[Broker]:
        settings = {
            "log.dirs": f"{self.good},{self.bad}",
            "braidlog.http.listen": "",
            "log.segment.bytes": "65536",
            "log.initial.task.delay.ms": "100",
            "log.flush.offset.checkpoint.interval.ms": "200",
            "replica.high.watermark.checkpoint.interval.ms": "200",
        }
        with start_braidlog(self.good, settings, port=self.port, prefix=self._prefix, env=self._env) as broker:
            if self.writer is None:
                create_topic(self.bootstrap, TOPIC, PARTITIONS)
                self.writer = NumberedWriter(self.bootstrap, {TOPIC: PARTITIONS})
            yield broker

    @property
    def books(self) -> NumberedWriter:
        assert self.writer is not None
        return self.writer

    def partitions_in(self, directory: Path) -> list[int]:
        return [index for index in range(PARTITIONS) if (directory / f"{TOPIC}-{index}").is_dir()]

    def acknowledged(self, partitions: list[int]) -> list[int]:
        return [len(self.books.books[index].acknowledged) for index in partitions]

    def await_more(self, partitions: list[int]) -> None:
        """Each of the partitions acknowledges something that it had not before."""
        before = self.acknowledged(partitions)
        eventually(lambda: all(new > old for new, old in zip(self.acknowledged(partitions), before, strict=True)))

    def readable(self, partitions: list[int]) -> None:
        """All that these partitions acknowledged is there."""
        wanted = [set(self.books.books[index].acknowledged) for index in partitions]
        found = read_numbers(self.bootstrap, [(TOPIC, index) for index in partitions])
        for index, acknowledged in zip(partitions, wanted, strict=True):
            missing = acknowledged - {number for _, number in found[TOPIC, index]}
            assert not missing, f"{TOPIC}-{index}: {sorted(missing)[:5]} are lost"

    def produce(self, index: int, size: int = 1000) -> int:
        return produce(self.port, TOPIC, index, size)


def produce(port: int, topic: str, index: int, size: int) -> int:
    """The error code of one produce request that nobody repeats."""
    batch = build_batch([Record(value=b"9999999 " + bytes(size))])
    data = TopicProduceData(name=topic, partition_data=[PartitionProduceData(index=index, records=batch)])
    request = ProduceRequest(acks=-1, timeout_ms=5000, topic_data=[data])
    answer = as_plain(ask(port, "Produce", 9, request))
    return int(answer["responses"][0]["partition_responses"][0]["error_code"])


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[SmallDisk]:
    with small_disk(tmp_path / "bad", 8 * MB) as mounted:
        yield mounted


@pytest.fixture
def small(tmp_path: Path, disk: SmallDisk) -> TwoDisks:
    return TwoDisks(tmp_path, disk.prefix, {})


def _fill(disks: TwoDisks, disk: SmallDisk, broker: Broker) -> tuple[list[int], list[int]]:
    """Let the small disk run full under the writer; returns the partitions of the good one and of the full one."""
    on_good, on_full = disks.partitions_in(disks.good), disks.partitions_in(disk.inside)
    assert sorted(on_good + on_full) == list(range(PARTITIONS))
    assert on_good
    assert on_full
    disks.await_more([*on_good, *on_full])
    disk.fill(leave=20_000)
    reported = broker.process.wait_for_line(r"No space left.*free some space")
    assert str(disks.bad) in reported.string
    return on_good, on_full


def test_a_full_disk_refuses_records_until_there_is_room(small: TwoDisks, disk: SmallDisk) -> None:
    with small.life() as broker:
        # The writer ends before the broker does: it would fill the disk again.
        with small.books.running():
            on_good, on_full = _fill(small, disk, broker)
            small.await_more(on_good)
            assert small.produce(on_full[0], size=60_000) == KAFKA_STORAGE_ERROR
            assert small.produce(on_good[0], size=60_000) == 0
            small.readable([*on_good, *on_full])
            assert "offline" not in broker.log(), broker.log()
            disk.free()
            small.await_more([*on_good, *on_full])
        small.books.flush()
        small.readable([*on_good, *on_full])
        assert broker.stop() == 0, broker.log()
    with small.life() as broker:
        assert "a clean stop" in broker.log(), broker.log()
        small.readable([*on_good, *on_full])


def test_a_broker_stops_and_starts_on_a_full_disk(small: TwoDisks, disk: SmallDisk) -> None:
    with small.life() as broker, small.books.running():
        on_good, on_full = _fill(small, disk, broker)
        disk.fill()
        # There is no room for the checkpoints: that may cost time at the next start, but no record.
        assert broker.stop() == 0, broker.log()
    with small.life() as broker, small.books.running():
        small.readable([*on_good, *on_full])
        small.await_more(on_good)
    disk.free()
    with small.life() as broker:
        small.books.flush()
        small.readable([*on_good, *on_full])


def test_a_crash_on_a_full_disk_loses_nothing(small: TwoDisks, disk: SmallDisk) -> None:
    with small.life() as broker, small.books.running():
        on_good, on_full = _fill(small, disk, broker)
        disk.fill()
        broker.kill()
    with small.life() as broker, small.books.running():
        small.readable([*on_good, *on_full])
        small.await_more(on_good)
        broker.kill()
    disk.free()
    with small.life() as broker:
        small.books.flush()
        small.readable([*on_good, *on_full])


def test_a_disk_that_is_read_only_at_the_start_is_left_out(small: TwoDisks, disk: SmallDisk) -> None:
    with small.life() as broker, small.books.running():
        on_good, on_bad = small.partitions_in(small.good), small.partitions_in(disk.inside)
        small.await_more([*on_good, *on_bad])
        assert broker.stop() == 0, broker.log()
    disk.remount("ro")
    with small.life() as broker, small.books.running():
        reported = broker.process.wait_for_line(r"Read-only file system.*offline until it is repaired")
        assert str(small.bad) in reported.string
        assert small.produce(on_bad[0]) == KAFKA_STORAGE_ERROR
        small.await_more(on_good)
        small.readable(on_good)
        assert broker.stop() == 0, broker.log()
    disk.remount("rw")
    with small.life() as broker:
        small.books.flush()
        small.readable([*on_good, *on_bad])


def _create_until_refused(bootstrap: str) -> str:
    """A topic takes few bytes, so some still fit; returns the first that does not."""
    for number in range(50):
        try:
            create_topic(bootstrap, f"more-{number}")
        except KafkaException as refusal:
            if refusal.args[0].code() != KafkaError.KAFKA_STORAGE_ERROR:
                raise
            return f"more-{number}"
    pytest.fail("fifty topics fit on a full disk")


def test_the_only_disk_running_full(tmp_path: Path) -> None:
    with small_disk(tmp_path / "data", 8 * MB) as disk:
        port = lasting_port()
        bootstrap = f"127.0.0.1:{port}"
        with start_braidlog(disk.path, {"log.segment.bytes": "65536"}, port=port, prefix=disk.prefix) as broker:
            create_topic(bootstrap, TOPIC, 2)
            writer = NumberedWriter(bootstrap, {TOPIC: 2})
            with writer.running():
                eventually(lambda: writer.acknowledged > 0)
                disk.fill()
                broker.process.wait_for_line(r"No space left.*free some space")
                refused = _create_until_refused(bootstrap)
                before = writer.acknowledged
                writer.check(bootstrap)
                disk.free()
                eventually(lambda: writer.acknowledged > before)
            create_topic(bootstrap, refused)
            # Also what was created while there was no room for records.
            late = NumberedWriter(bootstrap, {"more-0": 1, refused: 1})
            late.send(10)
            late.flush()
            writer.flush()
            assert broker.stop() == 0, broker.log()
        with start_braidlog(disk.path, port=port, prefix=disk.prefix) as broker:
            assert "a clean stop" in broker.log()
            writer.check(bootstrap)
            late.check(bootstrap)


@pytest.mark.parametrize("end", ["killed", "stopped"])
def test_a_broker_starts_on_its_only_disk_while_that_is_full(tmp_path: Path, end: str) -> None:
    """Also with partitions that never had a record, and without room for their new leader epochs in the store."""
    with small_disk(tmp_path / "data", 8 * MB) as disk:
        port = lasting_port()
        bootstrap = f"127.0.0.1:{port}"

        def life() -> AbstractContextManager[Broker]:
            return start_braidlog(disk.path, {"log.segment.bytes": "65536"}, port=port, prefix=disk.prefix)

        with life() as broker:
            create_topic(bootstrap, "empty", 60)
            create_topic(bootstrap, TOPIC, 1)
            writer = NumberedWriter(bootstrap, {TOPIC: 1})
            writer.send(200)
            writer.flush()
            disk.fill()
            if end == "killed":
                broker.kill()
            else:
                assert broker.stop() == 0, broker.log()
        refused = NumberedWriter(bootstrap, {"empty": 60})
        # Twice: what a start could not write, the next one finds undone.
        for _ in range(2):
            with life() as broker:
                assert "offline" not in broker.log(), broker.log()
                writer.check(bootstrap)
                assert produce(port, "empty", 0, 5000) == KAFKA_STORAGE_ERROR
                assert produce(port, TOPIC, 0, 60_000) == KAFKA_STORAGE_ERROR
                broker.kill()
        with life() as broker:
            writer.check(bootstrap)
            disk.free()
            refused.send(30)
            refused.flush()
            writer.send(50)
            writer.flush()
            create_topic(bootstrap, "created")
            assert broker.stop() == 0, broker.log()
        with life() as broker:
            assert "a clean stop" in broker.log()
            writer.check(bootstrap)
            refused.check(bootstrap)


def test_a_topic_deleted_on_a_full_disk_can_be_created_again(tmp_path: Path) -> None:
    with small_disk(tmp_path / "data", 8 * MB) as disk:
        port = lasting_port()
        bootstrap = f"127.0.0.1:{port}"
        with start_braidlog(disk.path, port=port, prefix=disk.prefix) as broker:
            create_topic(bootstrap, TOPIC, 200)
            # Room for the mark that says that the topic is deleted, but not for the removal of two hundred partitions.
            disk.fill(leave=4096)
            client = admin(bootstrap)
            client.delete_topics([TOPIC])[TOPIC].result(DEADLINE_S)
            broker.process.wait_for_line("deleted topics stay in the store for now")
            with pytest.raises(KafkaException) as refusal:
                create_topic(bootstrap, TOPIC, 1)
            assert refusal.value.args[0].code() == KafkaError.KAFKA_STORAGE_ERROR
            disk.free()
            create_topic(bootstrap, TOPIC, 1)
            writer = NumberedWriter(bootstrap, {TOPIC: 1})
            writer.send(10)
            writer.flush()
            writer.check(bootstrap)


# --- disks that break while they are used


@pytest.fixture
def calls(tmp_path: Path) -> FailingCalls:
    return failing_calls(tmp_path, tmp_path / "bad")


@pytest.fixture
def breaking(tmp_path: Path, calls: FailingCalls) -> TwoDisks:
    return TwoDisks(tmp_path, [], calls.env)


@pytest.mark.parametrize(
    ("kinds", "number", "message"),
    [
        ("wsc", errno.EROFS, "Read-only file system"),
        ("w", errno.EIO, "Input/output error"),
        ("c", errno.EIO, "Input/output error"),
    ],
    ids=["turns read-only", "refuses writes", "refuses new files"],
)
def test_a_disk_that_breaks_takes_only_its_own_partitions_along(
    breaking: TwoDisks, calls: FailingCalls, kinds: str, number: int, message: str
) -> None:
    with breaking.life() as broker, breaking.books.running():
        on_good, on_bad = breaking.partitions_in(breaking.good), breaking.partitions_in(breaking.bad)
        assert on_good
        assert on_bad
        breaking.await_more([*on_good, *on_bad])
        calls.fail(kinds, number)
        reported = broker.process.wait_for_line(rf"{message}.*offline until it is repaired")
        assert str(breaking.bad) in reported.string
        assert breaking.produce(on_bad[0]) == KAFKA_STORAGE_ERROR
        breaking.await_more(on_good)
        breaking.readable(on_good)
        assert broker.process.returncode is None
        assert broker.stop() == 0, broker.log()
    calls.heal()
    with breaking.life():
        breaking.books.flush()
        breaking.readable([*on_good, *on_bad])


@pytest.mark.parametrize("number", [errno.EIO, errno.ENOSPC])
def test_a_failed_sync_is_never_acknowledged_and_takes_the_directory_offline(
    tmp_path: Path, calls: FailingCalls, number: int
) -> None:
    disks = TwoDisks(tmp_path, [], calls.env)
    with disks.life() as broker:
        create_topic(disks.bootstrap, "synced", 2, flush_messages="1")
        [index] = [index for index in range(2) if (disks.bad / f"synced-{index}").is_dir()]
        writer = NumberedWriter(disks.bootstrap, {"synced": 2})
        writer.send(10)
        writer.flush()
        calls.fail("s", number)
        writer.send(10)
        # Most likely while the log is synced, but a checkpoint that happens to be due may be first.
        reported = broker.process.wait_for_line(r"(while syncing|-checkpoint:).*offline until it is repaired")
        assert str(disks.bad) in reported.string
        # Neither flush nor a background writer is wanted here, so the answers have to be fetched.
        eventually(lambda: writer.polled() and len(writer.books[1 - index].acknowledged) == 20)
        assert len(writer.books[index].acknowledged) == 10
        broker.kill()
    calls.heal()
    with disks.life():
        writer.flush()
        writer.check(disks.bootstrap)
