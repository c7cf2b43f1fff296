"""A transaction that was decided, and whose markers did not all get through: it ends as decided, whatever happens."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from braidlog.wire.generated.create_topics import CreatableTopic, CreateTopicsRequest
from braidlog.wire.generated.delete_topics import DeleteTopicsRequest, DeleteTopicState
from braidlog.wire.generated.describe_transactions import DescribeTransactionsRequest
from braidlog.wire.generated.end_txn import EndTxnRequest
from braidlog.wire.generated.find_coordinator import FindCoordinatorRequest
from braidlog.wire.generated.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from braidlog.wire.generated.init_producer_id import InitProducerIdRequest
from braidlog.wire.generated.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from braidlog.wire.generated.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from braidlog.wire.records.builder import build_batch
from braidlog.wire.records.reading import Record
from support.broker import start_braidlog
from support.eventually import eventually
from support.raw import RawConnection

NAME = "orders-writer"
READY, STUCK = "ready", "stuck"
CONCURRENT_TRANSACTIONS = 51
NOT_YET = (14, 15, 16, CONCURRENT_TRANSACTIONS)


class Client:
    """One producer of transaction version 2, request by request."""

    def __init__(self, connection: RawConnection) -> None:
        self._connection = connection
        self.producer = (-1, -1)

    def ask(self, name: str, version: int, request: Any) -> Any:
        return self._connection.ask(name, version, request)

    def start(self) -> None:
        topics = [CreatableTopic(name=name, num_partitions=1, replication_factor=1) for name in (READY, STUCK)]
        created = self.ask("CreateTopics", 7, CreateTopicsRequest(topics=topics, timeout_ms=30_000))
        assert [topic.error_code for topic in created.topics] == [0, 0]
        self.ask("FindCoordinator", 4, FindCoordinatorRequest(key_type=1, coordinator_keys=[NAME]))
        request = InitProducerIdRequest(transactional_id=NAME, transaction_timeout_ms=60_000)
        answer = self.ask("InitProducerId", 5, request)
        assert answer.error_code == 0
        self.producer = (answer.producer_id, answer.producer_epoch)

    def produce(self) -> None:
        record = Record(timestamp=int(time.time() * 1000), key=b"k", value=b"v")
        batch = build_batch(
            [record], producer_id=self.producer[0], producer_epoch=self.producer[1], base_sequence=0, transactional=True
        )
        data = [
            TopicProduceData(name=name, partition_data=[PartitionProduceData(index=0, records=batch)])
            for name in (READY, STUCK)
        ]
        request = ProduceRequest(transactional_id=NAME, acks=-1, timeout_ms=30_000, topic_data=data)
        answer = self.ask("Produce", 12, request)
        assert [topic.partition_responses[0].error_code for topic in answer.responses] == [0, 0]

    def end(self, commits: bool) -> Any:
        request = EndTxnRequest(
            transactional_id=NAME, producer_id=self.producer[0], producer_epoch=self.producer[1], committed=commits
        )
        return self.ask("EndTxn", 5, request)

    def state(self) -> str:
        """Once it is loaded."""
        found: list[Any] = []

        def loaded() -> bool:
            answer = self.ask("DescribeTransactions", 0, DescribeTransactionsRequest(transactional_ids=[NAME]))
            found.append(answer.transaction_states[0])
            return found[-1].error_code not in NOT_YET

        eventually(loaded)
        assert found[-1].error_code == 0
        return str(found[-1].transaction_state)

    def let_in(self, topic: str, size: int) -> None:
        """A partition that takes no batch of more than a few bytes takes no marker."""
        config = AlterableConfig(name="max.message.bytes", config_operation=0, value=str(size))
        resource = AlterConfigsResource(resource_type=2, resource_name=topic, configs=[config])
        answer = self.ask("IncrementalAlterConfigs", 1, IncrementalAlterConfigsRequest(resources=[resource]))
        assert answer.responses[0].error_code == 0

    def stable_end(self, topic: str) -> int:
        """What a reader of committed data can reach."""
        partition = ListOffsetsPartition(partition_index=0, timestamp=-1)
        request = ListOffsetsRequest(
            replica_id=-1, isolation_level=1, topics=[ListOffsetsTopic(name=topic, partitions=[partition])]
        )
        end: int = self.ask("ListOffsets", 7, request).topics[0].partitions[0].offset
        return end


@contextmanager
def client(data_dir: Path) -> Iterator[tuple[Any, Client]]:
    with start_braidlog(data_dir) as broker, RawConnection(broker.port) as connection:
        yield broker, Client(connection)


@pytest.mark.parametrize("commits", [True, False])
def test_a_kill_between_the_decision_and_its_markers(tmp_path: Path, commits: bool) -> None:
    outcome = "Commit" if commits else "Abort"
    with client(tmp_path) as (broker, before):
        before.start()
        before.produce()
        before.let_in(STUCK, 10)
        reported = before.end(commits)
        assert (reported.error_code, reported.producer_epoch) == (0, 1)
        eventually(lambda: before.stable_end(READY) == 2)
        assert before.state() == f"Prepare{outcome}"
        assert before.stable_end(STUCK) == 0
        assert before.end(commits).error_code == CONCURRENT_TRANSACTIONS
        broker.kill()
        producer = before.producer
    with client(tmp_path) as (_, after):
        after.producer = producer
        assert after.state() == f"Prepare{outcome}"
        assert after.stable_end(STUCK) == 0
        after.let_in(STUCK, 1000)
        eventually(lambda: after.state() == f"Complete{outcome}")
        assert after.stable_end(STUCK) == 2
        again = after.end(commits)
        assert (again.error_code, again.producer_id, again.producer_epoch) == (0, producer[0], 1)


def test_a_topic_that_is_deleted_meanwhile_needs_no_marker(tmp_path: Path) -> None:
    with client(tmp_path) as (_, producer):
        producer.start()
        producer.produce()
        producer.let_in(STUCK, 10)
        assert producer.end(True).error_code == 0
        assert producer.state() == "PrepareCommit"
        wanted = DeleteTopicsRequest(topics=[DeleteTopicState(name=STUCK)], timeout_ms=30_000)
        assert producer.ask("DeleteTopics", 6, wanted).responses[0].error_code == 0
        eventually(lambda: producer.state() == "CompleteCommit")
