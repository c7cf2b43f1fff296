"""Produce (api 0): append record batches to partitions.

    v0–v2   message sets, converted up to batches         v8    errors name the records at fault
    v3      record batches, transactional id              v10   the current leader with NOT_LEADER_OR_FOLLOWER
    v7      zstd                                          v13   topic ids instead of names

acks=0 has no response; an error then closes the connection, the only way left to tell the producer.
"""

from __future__ import annotations

import logging
from typing import Final

from braidlog.broker.commit import Committer, PendingAck
from braidlog.broker.faults import error_of
from braidlog.core.clock import Clock
from braidlog.core.errors import StorageFault
from braidlog.core.protocol_errors import (
    CorruptMessageError,
    InvalidRequiredAcksError,
    InvalidTxnStateError,
    KafkaStorageError,
    MessageTooLargeError,
    NotLeaderOrFollowerError,
    ProtocolError,
    RecordListTooLargeError,
    TransactionalIdAuthorizationFailedError,
    UnknownTopicIdError,
    UnknownTopicOrPartitionError,
)
from braidlog.core.slices import ByteSlice
from braidlog.net.exchange import Exchange
from braidlog.replication.partition import ACKS_ALL, Partition
from braidlog.replication.registry import Registry
from braidlog.wire.apis import encode_response
from braidlog.wire.generated.produce import (
    BatchIndexAndErrorMessage,
    LeaderIdAndEpoch,
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)
from braidlog.wire.records.batch import ATTRIBUTES_AT, MAGIC_AT, TRANSACTIONAL
from braidlog.wire.records.rejection import is_unfit, record_errors_of
from braidlog.wire.records.validation import ORIGIN_CLIENT

log = logging.getLogger("braidlog.produce")

# From here on a client is told who leads instead (KIP-951).
_HINTS_FROM: Final = 10
# Errors that say nothing of the log they were meant for; the others carry its start.
_WITHOUT_LOG_START: Final = (
    CorruptMessageError.code,
    UnknownTopicOrPartitionError.code,
    NotLeaderOrFollowerError.code,
    MessageTooLargeError.code,
    RecordListTooLargeError.code,
    KafkaStorageError.code,
)


class ProduceAck(PendingAck):
    """A produce request on its way to its answer."""

    def __init__(self, exchange: Exchange, acks: int) -> None:
        super().__init__()
        self.exchange = exchange
        self.acks = acks
        self.topics: list[TopicProduceResponse] = []
        self.rejected = False
        self.nameless_transaction = False

    def on_durable(self) -> None:
        if self.failures:
            self._report_failures()
        if self.acks == 0:
            self.exchange.finish_silently()
            if self.rejected:
                self.exchange.channel.close("a produce with acks=0 was rejected")
            return
        response = ProduceResponse(responses=self.topics)
        exchange = self.exchange
        exchange.reply(encode_response(0, exchange.version, exchange.correlation_id, response).parts())

    def _report_failures(self) -> None:
        self.rejected = True
        for topic in self.topics:
            for partition in topic.partition_responses:
                fault = self.failures.get((topic.name, partition.index))
                if fault is not None and partition.error_code == 0:
                    partition.error_code = KafkaStorageError.code
                    partition.error_message = str(fault)
                    partition.base_offset = -1


class ProduceHandler:
    def __init__(self, registry: Registry, committer: Committer, clock: Clock) -> None:
        self._registry = registry
        self._committer = committer
        self._clock = clock

    def handle(self, request: ProduceRequest, exchange: Exchange) -> None:
        ack = ProduceAck(exchange, request.acks)
        by_id = exchange.version >= 13
        now_ms = self._clock.wall_ms()
        # Kafka looks at a request as a whole: one transactional batch without the id that it belongs to refuses all.
        ack.nameless_transaction = request.transactional_id is None and _has_transaction(request)
        for topic in request.topic_data:
            name: str | None = topic.name
            if by_id:
                name = self._registry.name_of(topic.topic_id)
            answers: list[PartitionProduceResponse] = []
            for data in topic.partition_data:
                answers.append(self._append(name, by_id, data, ack, exchange.version, now_ms))
            ack.topics.append(
                TopicProduceResponse(name=name or "", topic_id=topic.topic_id, partition_responses=answers)
            )
        ack.release()

    def _append(
        self,
        topic: str | None,
        by_id: bool,
        data: PartitionProduceData,
        ack: ProduceAck,
        version: int,
        now_ms: int,
    ) -> PartitionProduceResponse:
        partition: Partition | None = None
        try:
            if ack.acks != 1 and ack.acks != ACKS_ALL and ack.acks != 0:
                raise InvalidRequiredAcksError(f"acks is {ack.acks}; use 0, 1 or -1 (all)")
            if ack.nameless_transaction:
                raise TransactionalIdAuthorizationFailedError("transactional records need a transactional id")
            if topic is not None:
                partition = self._registry.get(topic, data.index)
            if partition is None:
                raise UnknownTopicIdError if by_id and topic is None else UnknownTopicOrPartitionError
            records = data.records
            if not isinstance(records, ByteSlice):
                records = ByteSlice(b"", 0, 0)
            partition.meter.produces += 1
            if _is_transactional(records):
                raise InvalidTxnStateError("the partition was not added to a transaction that is under way")
            info = partition.append(records, ack.acks, version, now_ms, ORIGIN_CLIENT)
            # A duplicate, too, is acknowledged only when the batch that it repeats is safe.
            self._committer.staged(partition, ack)
            if info.rolled:
                self._committer.rolled(partition, info.first_offset)
            partition.meter.messages_in += info.count
            if info.converted:
                partition.meter.produce_conversions += info.count
            partition.meter.bytes_in += records.end - records.start
            return PartitionProduceResponse(
                index=data.index,
                base_offset=info.first_offset,
                log_append_time_ms=info.log_append_time,
                log_start_offset=info.log_start_offset,
            )
        except Exception as problem:
            ack.rejected = True
            if partition is not None:
                partition.meter.failed_produces += 1
            if isinstance(problem, StorageFault):
                self._committer.failed(problem)
                return _refusal(data.index, KafkaStorageError(str(problem)), partition, version)
            error = error_of(problem, f"produce to {topic}-{data.index}")
            return _refusal(data.index, error, partition, version)


def _has_transaction(request: ProduceRequest) -> bool:
    for topic in request.topic_data:
        for data in topic.partition_data:
            records = data.records
            if isinstance(records, ByteSlice) and _is_transactional(records):
                return True
    return False


def _is_transactional(records: ByteSlice) -> bool:
    """By a look at the first batch's attributes; whether they are sound is for the validation to say."""
    start = records.start
    if records.end - start <= ATTRIBUTES_AT + 1 or records.buffer[start + MAGIC_AT] != 2:
        return False
    return records.buffer[start + ATTRIBUTES_AT + 1] & TRANSACTIONAL != 0


def _refusal(
    index: int, error: ProtocolError, partition: Partition | None, version: int
) -> PartitionProduceResponse:
    log_start = -1
    reached = error.code not in _WITHOUT_LOG_START and not is_unfit(error)
    if partition is not None and partition.log is not None and reached:
        log_start = partition.log.log_start_offset
    response = PartitionProduceResponse(
        index=index,
        error_code=error.code,
        base_offset=-1,
        log_start_offset=log_start,
        error_message=error.message,
        record_errors=[
            BatchIndexAndErrorMessage(batch_index=record, batch_index_error_message=message)
            for record, message in record_errors_of(error)
        ],
    )
    if version >= _HINTS_FROM and partition is not None and error.code == NotLeaderOrFollowerError.code:
        response.current_leader = LeaderIdAndEpoch(leader_id=partition.leader, leader_epoch=partition.leader_epoch)
    return response
