"""A broker that dies under its groups, and internal topics that a disk damaged.

What was acknowledged is back after a crash, members included; what is damaged is named by file and offset, answers an
error, and takes nothing else with it.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from braidlog.coordinator.partitioning import partition_for
from braidlog.core.protocol_errors import CoordinatorLoadInProgressError, CoordinatorNotAvailableError
from braidlog.wire.generated.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from braidlog.wire.generated.offset_fetch import OffsetFetchRequest, OffsetFetchRequestTopic, OffsetFetchResponse
from braidlog.wire.records.batch import iterate_headers
from braidlog.wire.records.builder import build_batch
from braidlog.wire.records.reading import Record
from support.broker import KAFKA, Broker
from support.confluent import create_topic
from support.eventually import eventually
from support.group_scenarios import committed
from support.groups import GroupUnderTest, LastingBroker, at_rest, group_under_test
from support.raw import ask
from support.repetitions import some

PATIENT = {"session.timeout.ms": 120_000}
FLAVOURS: dict[str, dict[str, Any]] = {
    "range": {"partition.assignment.strategy": "range", **PATIENT},
    "cooperative-sticky": {"partition.assignment.strategy": "cooperative-sticky", **PATIENT},
    "consumer": {"group.protocol": "consumer"},
}


# --- a broker that dies under its groups


@pytest.mark.parametrize("flavour", some(FLAVOURS, "cooperative-sticky", "consumer"))
def test_members_go_on_in_their_generation_after_a_crash(target_kind: str, tmp_path: Path, flavour: str) -> None:
    if (target_kind, flavour) == (KAFKA, "consumer"):
        pytest.skip(
            "librdkafka speaks the consumer protocol from ConsumerGroupHeartbeat v1 on, which Kafka 3.9 has not"
        )
    lasting = LastingBroker(target_kind, tmp_path / "data", {"group.consumer.session.timeout.ms": "60000"})
    with lasting.life() as broker, group_under_test(lasting.bootstrap, "records", "confluent", 10) as group:
        group.settings.update(FLAVOURS[flavour])
        members = [group.start(f"member-{number}") for number in range(5)]
        with group.writing():
            group.settle(*members)
            group.read_all()
            eventually(lambda: at_rest(members, 10))
            before = _standing(group)
            broker.kill()
        acknowledged = group.history().committed()
        with lasting.life():
            known = committed(lasting.bootstrap, group.group, acknowledged)
            for place, offset in acknowledged.items():
                assert known[place][0] >= offset, f"{place}: {offset} was acknowledged, {known[place][0]} is known"
            with group.writing():
                group.read_all()
            group.read_all()
            assert _standing(group) == before, f"a crash is no reason to rebalance:\n{group.tell()}"
            group.history().check(group.written())
            group.end()


def _standing(group: GroupUnderTest) -> dict[str, tuple[int, list[tuple[str, int]], int]]:
    """Each member's generation and partitions, and how often either was told to it."""
    return {
        name: (
            member.generation(),
            sorted(member.owned()),
            sum(note.kind in ("assigned", "revoked", "lost") and bool(note.partitions) for note in member.notes),
        )
        for name, member in group.members.items()
    }


# --- internal topics that a disk damaged

PARTITIONS = 4
OFFSET = 5


def names_of_all_partitions(prefix: str) -> list[str]:
    """A name for each partition of an internal topic, in order."""
    names: dict[int, str] = {}
    number = 0
    while len(names) < PARTITIONS:
        name = f"{prefix}-{number}"
        names.setdefault(partition_for(name, PARTITIONS), name)
        number += 1
    return [names[partition] for partition in range(PARTITIONS)]


GROUPS = names_of_all_partitions("group")
IDS = names_of_all_partitions("transactional-id")


class Damaged:
    """A data directory in which each partition of both internal topics holds a group and a transactional id."""

    def __init__(self, tmp_path: Path) -> None:
        settings = {
            "offsets.topic.num.partitions": str(PARTITIONS),
            "transaction.state.log.num.partitions": str(PARTITIONS),
        }
        self.lasting = LastingBroker("braidlog", tmp_path / "data", settings)

    def life(self) -> AbstractContextManager[Broker]:
        return self.lasting.life()

    def fill(self) -> None:
        create_topic(self.lasting.bootstrap, "records")
        for group in GROUPS:
            commit(self.lasting.bootstrap, group, OFFSET - 1)
            commit(self.lasting.bootstrap, group, OFFSET)
        for name in IDS:
            producer = Producer({"bootstrap.servers": self.lasting.bootstrap, "transactional.id": name})
            producer.init_transactions(30)
            producer.begin_transaction()
            producer.produce("records", value=name.encode(), partition=0)
            producer.commit_transaction(30)

    def segment(self, topic: str, partition: int) -> Path:
        return max((self.lasting.data_dir / f"{topic}-{partition}").glob("*.log"))

    def offset_of(self, group: str) -> int:
        """What the group has committed, or the negative error code."""
        wanted = [OffsetFetchRequestTopic(name="records", partition_indexes=[0])]
        request = OffsetFetchRequest(group_id=group, topics=wanted)
        response = _when_loaded(lambda: ask(self.lasting.port, "OffsetFetch", 5, request))
        assert isinstance(response, OffsetFetchResponse)
        return response.topics[0].partitions[0].committed_offset if response.error_code == 0 else -response.error_code

    def epoch_of(self, transactional_id: str) -> int:
        """The epoch that taking over the id gives, or the negative error code."""
        request = InitProducerIdRequest(transactional_id=transactional_id, transaction_timeout_ms=10_000)
        response = _when_loaded(lambda: ask(self.lasting.port, "InitProducerId", 2, request))
        assert isinstance(response, InitProducerIdResponse)
        return response.producer_epoch if response.error_code == 0 else -response.error_code

    def check_only_broken(self, broker: Broker, groups: int, ids: int) -> None:
        """The partition `groups` of the offsets' topic and `ids` of the other's are unavailable, and nothing else."""
        for partition, group in enumerate(GROUPS):
            expected = -CoordinatorNotAvailableError.code if partition == groups else OFFSET
            assert self.offset_of(group) == expected, broker.log()
        for partition, name in enumerate(IDS):
            epoch = self.epoch_of(name)
            assert (epoch == -CoordinatorNotAvailableError.code) == (partition == ids), (epoch, broker.log())
        commit(self.lasting.bootstrap, GROUPS[(groups + 1) % PARTITIONS], OFFSET)  # the others go on


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Such a directory, whole, of a broker that was stopped."""
    place = tmp_path_factory.mktemp("filled")
    whole = Damaged(place)
    with whole.life():
        whole.fill()
    return place


@pytest.fixture
def damaged(filled: Path, tmp_path: Path) -> Damaged:
    """A copy of it, to be damaged."""
    shutil.copytree(filled, tmp_path, dirs_exist_ok=True)
    return Damaged(tmp_path)


def commit(bootstrap: str, group: str, offset: int) -> None:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group, "enable.auto.commit": False})
    consumer.commit(offsets=[TopicPartition("records", 0, offset)], asynchronous=False)
    consumer.close()


def _when_loaded(question: Callable[[], Any]) -> Any:
    answers: list[Any] = []

    def loaded() -> bool:
        answers.append(question())
        return bool(answers[-1].error_code != CoordinatorLoadInProgressError.code)

    eventually(loaded)
    return answers[-1]


def batches_of(path: Path) -> list[tuple[int, int, int]]:
    """(base offset, position, size) of a segment's batches."""
    content = path.read_bytes()
    return [(each.base_offset, each.position, each.size) for each in iterate_headers(content, 0, len(content))]


def _flip(path: Path, position: int) -> None:
    content = bytearray(path.read_bytes())
    content[position] ^= 0x10
    path.write_bytes(content)


def _append_nonsense(path: Path, key: bytes, value: bytes) -> int:
    """A batch that is whole by its checksum; returns its offset."""
    content = path.read_bytes()
    *_, last = iterate_headers(content, 0, len(content))
    offset = last.base_offset + last.last_offset_delta + 1
    with path.open("ab") as file:
        file.write(build_batch([Record(0, 1, key, value)], base_offset=offset, leader_epoch=0))
    return offset


def _told(broker: Broker, path: Path, offset: int) -> None:
    """The log names file and offset in one line."""
    broker.process.wait_for_line(rf"offset {offset} in {re.escape(str(path))}", timeout_s=10)


# In the first batch: the end of its records, and its header. A checksum tells of the former two only when the batch is
# read; the latter two keep the log from being opened at all.
PLACES = {"records": -3, "checksum": 18, "magic": 16, "length": 11}


@pytest.mark.parametrize("where", PLACES)
def test_a_flipped_bit_makes_one_shard_unavailable(damaged: Damaged, where: str) -> None:
    broken = [damaged.segment("__consumer_offsets", 1), damaged.segment("__transaction_state", 2)]
    offsets = []
    for path in broken:
        base, position, size = batches_of(path)[0]
        _flip(path, position + (PLACES[where] % size))
        offsets.append(base)
    with damaged.life() as broker:
        damaged.check_only_broken(broker, groups=1, ids=2)
        for path, offset in zip(broken, offsets, strict=True):
            if where in ("records", "checksum"):
                _told(broker, path, offset)
            else:
                broker.process.wait_for_line(rf"{re.escape(str(path))}: no record batch at position \d+", timeout_s=10)
    with damaged.life() as broker:
        damaged.check_only_broken(broker, groups=1, ids=2)  # it is no better for a restart, and no worse


NONSENSE = {
    "a key of one byte": (b"\x00", b""),
    "a key cut short": (b"\x00\x01\x00\x05gr", b""),
    "a value cut short": (b"\x00\x01\x00\x01g\x00\x01t\x00\x00\x00\x00", b"\x00\x03\x00\x00"),
    "a value of noise": (b"\x00\x02\x00\x01g", bytes(range(200, 256)) * 3),
}
TRANSACTIONAL_NONSENSE = {
    "a key of one byte": (b"\x00", b""),
    "a key cut short": (b"\x00\x00\x00\x09id", b""),
    "a value cut short": (b"\x00\x00\x00\x02id", b"\x00\x00\x00\x00\x00"),
    "a value of noise": (b"\x00\x00\x00\x02id", bytes(range(200, 256)) * 3),
}


@pytest.mark.parametrize("nonsense", NONSENSE)
def test_a_record_that_makes_no_sense_makes_one_shard_unavailable(damaged: Damaged, nonsense: str) -> None:
    offsets, ids = damaged.segment("__consumer_offsets", 3), damaged.segment("__transaction_state", 0)
    in_offsets = _append_nonsense(offsets, *NONSENSE[nonsense])
    in_ids = _append_nonsense(ids, *TRANSACTIONAL_NONSENSE[nonsense])
    with damaged.life() as broker:
        damaged.check_only_broken(broker, groups=3, ids=0)
        _told(broker, offsets, in_offsets)
        _told(broker, ids, in_ids)


def test_a_record_of_a_kind_to_come_is_skipped(damaged: Damaged) -> None:
    """As Kafka does: a newer version wrote it, and has gone back since."""
    for topic in ("__consumer_offsets", "__transaction_state"):
        _append_nonsense(damaged.segment(topic, 1), b"\x00\x63from tomorrow", b"")
    with damaged.life() as broker:
        damaged.check_only_broken(broker, groups=-1, ids=-1)
        for topic in ("__consumer_offsets", "__transaction_state"):
            broker.process.wait_for_line(rf"{topic}-1: skipped 1 records of the unknown kind 99", timeout_s=10)


def test_a_torn_tail_after_a_crash_costs_only_what_was_torn(tmp_path: Path) -> None:
    damaged = Damaged(tmp_path)
    with damaged.life() as broker:
        damaged.fill()
        broker.kill()
    path = damaged.segment("__consumer_offsets", 2)
    _, position, size = batches_of(path)[-1]
    with path.open("r+b") as file:
        file.truncate(position + size // 2)
    with damaged.life() as broker:
        assert "are lost" in broker.log()
        found = [damaged.offset_of(group) for group in GROUPS]
        assert found == [OFFSET, OFFSET, OFFSET - 1, OFFSET], "the commit that was torn, and no other"
        commit(damaged.lasting.bootstrap, GROUPS[2], OFFSET + 1)
        assert damaged.offset_of(GROUPS[2]) == OFFSET + 1
