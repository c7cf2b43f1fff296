"""Transactions request by request against a broker process: epochs of version 2, crashes, transactions that hang."""

from __future__ import annotations

import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from tools.peers.kafka import run_tool

from braidlog.wire.generated.create_topics import CreatableTopic, CreateTopicsRequest
from braidlog.wire.generated.describe_producers import DescribeProducersRequest, TopicRequest
from braidlog.wire.generated.end_txn import EndTxnRequest
from braidlog.wire.generated.fetch import FetchPartition, FetchRequest, FetchTopic
from braidlog.wire.generated.find_coordinator import FindCoordinatorRequest
from braidlog.wire.generated.init_producer_id import InitProducerIdRequest
from braidlog.wire.generated.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from braidlog.wire.generated.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)
from braidlog.wire.records.batch import iterate_headers
from braidlog.wire.records.builder import build_batch
from braidlog.wire.records.reading import Record, read_batch
from support.broker import Broker, start_braidlog
from support.eventually import eventually
from support.metrics import total
from support.raw import RawConnection

ADDS = 12
NOT_ENOUGH_REPLICAS = 19
INVALID_PRODUCER_EPOCH = 47
# COORDINATOR_LOAD_IN_PROGRESS, COORDINATOR_NOT_AVAILABLE, NOT_COORDINATOR, CONCURRENT_TRANSACTIONS
NOT_YET = (14, 15, 16, 51)
TOPIC = "orders"


class Client:
    """One connection that does what a producer of transaction version 2 does, and reads back."""

    def __init__(self, port: int, name: str = "t") -> None:
        self.connection = RawConnection(port)
        self.name = name
        self.producer_id = -1
        self.epoch = -1
        self.sequence = 0

    def ask(self, name: str, version: int, request: Any) -> Any:
        return self.connection.ask(name, version, request)

    def create(self) -> None:
        topic = CreatableTopic(name=TOPIC, num_partitions=1, replication_factor=1)
        assert (
            self.ask("CreateTopics", 7, CreateTopicsRequest(topics=[topic], timeout_ms=30_000)).topics[0].error_code
            == 0
        )

    def init(self) -> None:
        find = FindCoordinatorRequest(key_type=1, coordinator_keys=[self.name])
        eventually(lambda: self.ask("FindCoordinator", 4, find).coordinators[0].error_code == 0)
        request = InitProducerIdRequest(transactional_id=self.name, transaction_timeout_ms=60_000)
        answers: list[Any] = []

        def begun() -> bool:
            answers.append(self.ask("InitProducerId", 5, request))
            return answers[-1].error_code not in NOT_YET

        eventually(begun)
        assert answers[-1].error_code == 0
        self.producer_id, self.epoch, self.sequence = answers[-1].producer_id, answers[-1].producer_epoch, 0

    def batch(self, *values: bytes, epoch: int | None = None, timestamp: int | None = None) -> bytes:
        when = int(time.time() * 1000) if timestamp is None else timestamp
        return build_batch(
            [Record(timestamp=when, key=b"k", value=value) for value in values],
            producer_id=self.producer_id,
            producer_epoch=self.epoch if epoch is None else epoch,
            base_sequence=self.sequence,
            transactional=True,
        )

    def produce(self, batch: bytes, version: int = ADDS) -> int:
        data = TopicProduceData(name=TOPIC, partition_data=[PartitionProduceData(index=0, records=batch)])
        request = ProduceRequest(transactional_id=self.name, acks=-1, timeout_ms=30_000, topic_data=[data])
        code: int = self.ask("Produce", version, request).responses[0].partition_responses[0].error_code
        return code

    def send(self, *values: bytes, version: int = ADDS) -> None:
        """As a client does it: again while the broker says that it will pass."""
        batch = self.batch(*values)
        eventually(lambda: self.produce(batch, version) != NOT_ENOUGH_REPLICAS)
        self.sequence += len(values)

    def end(self, *, commits: bool) -> None:
        request = EndTxnRequest(
            transactional_id=self.name, producer_id=self.producer_id, producer_epoch=self.epoch, committed=commits
        )
        answer = self.ask("EndTxn", 5, request)
        assert answer.error_code == 0
        self.producer_id, self.epoch, self.sequence = answer.producer_id, answer.producer_epoch, 0

    def read(self) -> tuple[list[bytes | None], int, list[int]]:
        """What a reader of committed data sees from 0 on, the last stable offset, where aborted transactions begin."""
        found: list[bytes | None] = []
        begins: set[int] = set()
        offset = 0
        while True:
            answer = self._fetch(offset)
            data = answer.records.tobytes() if answer.records else b""
            if not data:
                return found, answer.last_stable_offset, sorted(begins)
            aborted = sorted((txn.first_offset, txn.producer_id) for txn in answer.aborted_transactions)
            begins |= {first for first, _ in aborted}
            skipped: set[int] = set()
            for header in iterate_headers(data, 0, len(data)):
                while aborted and aborted[0][0] <= header.last_offset:
                    skipped.add(aborted.pop(0)[1])
                if header.is_control:
                    skipped.discard(header.producer_id)
                elif header.producer_id not in skipped:
                    found += [record.value for record in read_batch(data, header)]
                offset = header.last_offset + 1

    def _fetch(self, offset: int) -> Any:
        wanted = FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=1 << 20)
        request = FetchRequest(
            max_wait_ms=0,
            min_bytes=0,
            isolation_level=1,
            session_epoch=-1,
            topics=[FetchTopic(topic=TOPIC, partitions=[wanted])],
        )
        return self.ask("Fetch", 12, request).responses[0].partitions[0]

    def open_since(self) -> list[int]:
        """Where the open transactions of the partition begin."""
        request = DescribeProducersRequest(topics=[TopicRequest(name=TOPIC, partition_indexes=[0])])
        producers = self.ask("DescribeProducers", 0, request).topics[0].partitions[0].active_producers
        return [each.current_txn_start_offset for each in producers if each.current_txn_start_offset >= 0]


def client_of(broker: Broker, held: ExitStack) -> Client:
    client = Client(broker.port)
    held.callback(client.connection.close)
    return client


def test_epochs_rise_and_nothing_late_slips_into_the_next_transaction(tmp_path: Path) -> None:
    with start_braidlog(tmp_path) as broker, ExitStack() as held:
        client = client_of(broker, held)
        client.create()
        client.init()
        expected = []
        for number in range(12):
            value = b"value %d" % number
            client.send(value)
            late = client.batch(b"late")
            before = client.epoch
            client.end(commits=number % 3 != 0)
            assert client.epoch == before + 1
            if number % 3:
                expected.append(value)
            assert client.produce(late) == INVALID_PRODUCER_EPOCH
        eventually(lambda: client.read()[1] == 24)
        found, _, aborted = client.read()
        assert found == expected
        assert aborted == [0, 6, 12, 18]


@pytest.mark.parametrize("commits_before", [0, 3])
def test_an_open_transaction_outlives_a_crash_and_is_aborted_by_the_next_of_its_name(
    tmp_path: Path, commits_before: int
) -> None:
    settings = {"log.segment.bytes": "200"}
    with start_braidlog(tmp_path, settings) as broker, ExitStack() as held:
        client = client_of(broker, held)
        client.create()
        client.init()
        for number in range(commits_before):
            client.send(b"%d" % number)
            client.end(commits=True)
        for number in range(4):
            client.send(b"open %d" % number)
        broker.kill()
    committed = [b"%d" % number for number in range(commits_before)]
    first = 2 * commits_before
    with start_braidlog(tmp_path, settings) as broker, ExitStack() as held:
        client = client_of(broker, held)
        assert client.read()[:2] == (committed, first)
        assert client.open_since() == [first]
        client.init()
        eventually(lambda: client.read()[1] == first + 5)
        assert client.open_since() == []
        client.send(b"next")
        client.end(commits=True)
        eventually(lambda: client.read()[1] == first + 7)
        broker.kill()
    with start_braidlog(tmp_path, settings) as broker, ExitStack() as held:
        assert client_of(broker, held).read() == ([*committed, b"next"], first + 7, [first])


def hang(client: Client) -> None:
    """A batch of a transaction that no coordinator knows, an hour old."""
    client.create()
    client.init()
    hour_ago = int(time.time() * 1000) - 3_600_000
    assert client.produce(client.batch(b"hanging", timestamp=hour_ago), version=11) == 0
    assert client.open_since() == [0]


HANGS = {"transaction.partition.verification.enable": "false"}


def test_a_hanging_transaction_is_counted_and_can_be_aborted(tmp_path: Path) -> None:
    with start_braidlog(tmp_path, HANGS) as broker, ExitStack() as held:
        client = client_of(broker, held)
        hang(client)
        late = "kafka_server_replicamanager_partitionswithlatetransactionscount"
        assert total(broker, late) == 1
        marker = WritableTxnMarker(
            producer_id=client.producer_id,
            producer_epoch=client.epoch,
            transaction_result=False,
            topics=[WritableTxnMarkerTopic(name=TOPIC, partition_indexes=[0])],
            coordinator_epoch=-1,
        )
        answer = client.ask("WriteTxnMarkers", 1, WriteTxnMarkersRequest(markers=[marker]))
        assert answer.markers[0].topics[0].partitions[0].error_code == 0
        assert client.read() == ([], 2, [0])
        assert total(broker, late) == 0


@pytest.mark.peer
@pytest.mark.usefixtures("apache_kafka")
def test_kafkas_own_tool_aborts_a_hanging_transaction(tmp_path: Path) -> None:
    with start_braidlog(tmp_path, HANGS) as broker, ExitStack() as held:
        client = client_of(broker, held)
        hang(client)
        common = ["--bootstrap-server", broker.bootstrap]
        where = ["--topic", TOPIC, "--partition", "0"]
        described = run_tool("kafka-transactions", [*common, "describe-producers", *where])
        assert described.returncode == 0, described.stderr
        assert str(client.producer_id) in described.stdout
        done = run_tool("kafka-transactions", [*common, "abort", *where, "--start-offset", "0"])
        assert done.returncode == 0, f"{done.stdout}{done.stderr}"
        assert client.read() == ([], 2, [0])
