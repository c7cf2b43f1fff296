"""The shard of transactions, driven with requests in few words."""

from __future__ import annotations

from typing import Any

from braidlog.coordinator.effects import Effects, SendMarkers
from braidlog.coordinator.shard import ReplayedRecord
from braidlog.coordinator.txn import records
from braidlog.coordinator.txn.shard import TransactionCoordinatorShard
from braidlog.coordinator.txn.transaction_metadata import (
    TransactionMetadata,
    TransactionState,
    TxnSettings,
)
from braidlog.core.protocol_errors import (
    CoordinatorLoadInProgressError,
    ProtocolError,
)
from braidlog.core.types import TopicPartition
from braidlog.wire.generated.add_partitions_to_txn import AddPartitionsToTxnTopic, AddPartitionsToTxnTransaction
from braidlog.wire.generated.end_txn import EndTxnRequest
from braidlog.wire.generated.init_producer_id import InitProducerIdRequest
from support.responders import START_MS, RecordingResponder, ShardDriver

Producer = tuple[int, int]


P0, P1 = TopicPartition("t", 0), TopicPartition("t", 1)


FRESH_ID = 101


class World(ShardDriver[TransactionCoordinatorShard]):
    """A shard under the id "tx", with the requests in few words."""

    def __init__(self) -> None:
        self.settings = TxnSettings(id_expiration_ms=3_600_000)
        self.next_id = FRESH_ID
        self.no_ids = False
        super().__init__(lambda: TransactionCoordinatorShard(lambda: self.settings, self.take_id, 9))

    def take_id(self) -> int:
        if self.no_ids:
            raise CoordinatorLoadInProgressError
        self.next_id += 1
        return self.next_id - 1

    @property
    def transaction(self) -> TransactionMetadata:
        return self.shard.transactions["tx"]

    def init(self, claim: Producer = (-1, -1), **fields: Any) -> RecordingResponder:
        timeout_ms = fields.pop("timeout_ms", 60_000)
        name = fields.pop("name", "tx")
        request = InitProducerIdRequest(
            transactional_id=name,
            transaction_timeout_ms=timeout_ms,
            producer_id=claim[0],
            producer_epoch=claim[1],
            **fields,
        )
        return self.submit(lambda shard, responder, now: shard.init_producer_id(request, responder, now))

    def started(self) -> Producer:
        response = self.init().response
        return response.producer_id, response.producer_epoch

    def add(self, producer: Producer, *partitions: TopicPartition, version: int = 0) -> RecordingResponder:
        wanted = wanted_of(producer, partitions or (P0, P1))
        return self.submit(lambda shard, responder, now: shard.add_partitions(wanted, version, responder, now))

    def verify(self, producer: Producer, *partitions: TopicPartition) -> RecordingResponder:
        wanted = wanted_of(producer, partitions)
        return self.submit(lambda shard, responder, now: shard.verify_partitions(wanted, responder, now))

    def end(self, producer: Producer, commits: bool = True, version: int = 0) -> RecordingResponder:
        request = EndTxnRequest(
            transactional_id="tx", producer_id=producer[0], producer_epoch=producer[1], committed=commits
        )
        return self.submit(lambda shard, responder, now: shard.end_txn(request, version == 2, responder, now))

    def sent(self) -> SendMarkers:
        """The one attempt that was asked for since the last look."""
        (action,) = self.actions
        self.actions = []
        assert isinstance(action, SendMarkers)
        return action

    def confirm(self, action: SendMarkers, *partitions: TopicPartition) -> None:
        done = list(partitions or action.partitions)
        self.apply(self.shard.markers_written(action, done, self.now))

    def preset(self, **fields: Any) -> Producer:
        """Begin with a record of another time."""
        given: dict[str, Any] = {
            "producer_id": 50,
            "producer_epoch": 0,
            "timeout_ms": 60_000,
            "state": TransactionState.Empty,
            "partitions": frozenset(),
            "updated_ms": START_MS + 1_000_000,
            **fields,
        }
        transaction = TransactionMetadata("tx", **given)
        record = ReplayedRecord(0, START_MS, records.encode_key("tx"), records.encode_value(transaction))
        self.log.append(record)
        self.crash()
        return transaction.producer_id, transaction.producer_epoch

    def preset_open(self, *transactions: frozenset[TopicPartition]) -> None:
        """Begin with open transactions over these partitions, all of them too old."""
        for number, partitions in enumerate(transactions):
            name = f"tx-{number}"
            value = TransactionMetadata(
                name, number, 0, 60_000, TransactionState.Ongoing, partitions, START_MS, started_ms=START_MS
            )
            self.log.append(ReplayedRecord(0, START_MS, records.encode_key(name), records.encode_value(value)))
        self.crash()


def large(count: int) -> frozenset[TopicPartition]:
    """Partitions whose names take up 20 KB each."""
    return frozenset(TopicPartition(f"{number}".rjust(20_000, "t"), 0) for number in range(count))


def wanted_of(producer: Producer, partitions: tuple[TopicPartition, ...]) -> AddPartitionsToTxnTransaction:
    return AddPartitionsToTxnTransaction(
        transactional_id="tx",
        producer_id=producer[0],
        producer_epoch=producer[1],
        topics=[AddPartitionsToTxnTopic(name=p.topic, partitions=[p.partition]) for p in partitions],
    )


def size_of(effects: Effects) -> int:
    return sum(len(record.key) + len(record.value or b"") for record in effects.records)


def refusal(responder: RecordingResponder) -> type[ProtocolError] | None:
    return None if responder.error is None else type(responder.error)


def reported(responder: RecordingResponder) -> Producer:
    assert responder.error is None, responder.error
    return responder.response.producer_id, responder.response.producer_epoch


def codes(responder: RecordingResponder) -> list[int]:
    topics = responder.response.topic_results
    return [result.partition_error_code for topic in topics for result in topic.results_by_partition]
