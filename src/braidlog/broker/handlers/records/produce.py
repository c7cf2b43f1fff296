"""Produce (api 0): append record batches to partitions.

    v0–v2   message sets, converted up to batches         v8    errors name the records at fault
    v3      record batches, transactional id              v10   the current leader with NOT_LEADER_OR_FOLLOWER
    v7      zstd                                          v11   TRANSACTION_ABORTABLE instead of INVALID_TXN_STATE
                                                          v12   producing adds a partition to the transaction
                                                          v13   topic ids instead of names

In a cluster a request may wait a moment for this broker to hear that it leads (see `awaited_roles`).
A request with transactional batches waits, and its connection with it, until the coordinator has confirmed those that
would be the first of their transaction in a partition (see `transaction_verification`). One whose records take long
to unpack, or that names very many partitions, is worked on piece by piece while others are served; its connection
waits too.
acks=all waits until the records are on all in-sync replicas, or the request's time-out is over; its connection goes on
with further produces meanwhile, and answers them in their order.
acks=0 has no response; an error then closes the connection, the only way left to tell the producer.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final

from braidlog.broker.authorization.authorizer import Authorizer
from braidlog.broker.handlers.records.transaction_verification import (
    AddOrVerify,
    PartitionErrors,
    TransactionVerification,
    has_transaction,
)
from braidlog.broker.requests.error_mapping import to_protocol_error
from braidlog.broker.requests.handler_pool import RequestHandlerPool
from braidlog.core.clock import Clock
from braidlog.core.protocol_errors import (
    CoordinatorNotAvailableError,
    CorruptMessageError,
    InvalidRequiredAcksError,
    InvalidTopicError,
    KafkaStorageError,
    MessageTooLargeError,
    NotLeaderOrFollowerError,
    ProtocolError,
    RecordListTooLargeError,
    RequestTimedOutError,
    TopicAuthorizationFailedError,
    TransactionalIdAuthorizationFailedError,
    UnknownTopicIdError,
    UnknownTopicOrPartitionError,
)
from braidlog.core.slices import ByteSlice
from braidlog.core.timeout_queue import TimeoutQueues
from braidlog.core.types import TopicPartition
from braidlog.net.exchange import Exchange
from braidlog.net.fair_queue import FairQueue
from braidlog.replication.group_commit import Committer
from braidlog.replication.partition import ACKS_ALL, Partition
from braidlog.replication.partition_registry import PartitionRegistry
from braidlog.replication.pending_ack import PendingAck
from braidlog.security.acls import AclOperation, AclResourceType
from braidlog.wire.generated.produce import (
    BatchIndexAndErrorMessage,
    LeaderIdAndEpoch,
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)
from braidlog.wire.records.append_policy import ValidatedRecords
from braidlog.wire.records.record_errors import is_unfit, record_errors_of
from braidlog.wire.records.validation import ORIGIN_CLIENT, validate_for_append, work_to_validate

log = logging.getLogger("braidlog.produce")

_ACKS: Final = (1, ACKS_ALL, 0)
# Bytes that may be unpacked on the loop for one request, about a millisecond's work; the rest is left to threads.
MOST_WORK: Final = 1 << 20
# Partitions of one request that are appended before the other connections get their turn.
_AT_A_TIME: Final = 100
# Questions to a coordinator about one request.
_MOST_TRIES: Final = 5

# From here on the response names the current leader (KIP-951).
_HINTS_FROM: Final = 10
# Errors that say nothing of the log they were meant for; the others carry its start.
_WITHOUT_LOG_START: Final = (
    CorruptMessageError.code,
    UnknownTopicOrPartitionError.code,
    NotLeaderOrFollowerError.code,
    MessageTooLargeError.code,
    RecordListTooLargeError.code,
    KafkaStorageError.code,
    InvalidTopicError.code,
)


class ProduceAck(PendingAck):
    """A produce request on its way to its answer."""

    def __init__(self, exchange: Exchange, acks: int) -> None:
        super().__init__()
        self.exchange = exchange
        self.acks = acks
        self.topics: list[TopicProduceResponse] = []
        self.rejected = False
        # Why all of the request is refused.
        self.refused: ProtocolError | None = None
        # Topics that the producer may write to; none where nobody asks.
        self.authorized: frozenset[str] | None = None
        # Where some of its batches are transactional.
        self.verification: TransactionVerification | None = None
        # How far the request is appended: the next topic, and the next partition of it.
        self.topic_at = 0
        self.partition_at = 0
        # What may still be unpacked on the loop.
        self.work_left = MOST_WORK
        # Answered, in time or not.
        self.done = False

    def on_failure(self) -> None:
        self.exchange.channel.close("internal error")

    def time_out(self) -> None:
        """The records stay: they are committed later, or never."""
        late = RequestTimedOutError("the records are written, but not enough replicas have them yet")
        for wait in self.waits or ():
            if not wait.done:
                wait.partition.context.expired_produces += 1
            wait.finish(late)
            wait.partition.forget_ended_waits()

    def on_durable(self) -> None:
        self.done = True
        if self.failures:
            self._report_failures()
        if self.acks == 0:
            self.exchange.finish_silently()
            if self.rejected:
                self.exchange.channel.close("a produce with acks=0 was rejected")
            return
        self.exchange.answer(ProduceResponse(responses=self.topics))

    def _report_failures(self) -> None:
        self.rejected = True
        for topic in self.topics:
            for partition in topic.partition_responses:
                failure = self.failures.get((topic.name, partition.index))
                if failure is None or partition.error_code != 0:
                    continue
                partition.error_code = failure.code
                partition.error_message = failure.message
                if failure.code == KafkaStorageError.code:
                    partition.base_offset = -1
                elif failure.code == NotLeaderOrFollowerError.code and self.exchange.version >= _HINTS_FROM:
                    for wait in self.waits or ():
                        where = wait.partition
                        if where.topic == topic.name and where.index == partition.index:
                            partition.current_leader = _leader_of(where)


class PendingVerification:
    """A produce whose coordinator is asked before it is appended."""

    def __init__(
        self,
        handler: ProduceHandler,
        request: ProduceRequest,
        transactional_id: str,
        ack: ProduceAck,
        verification: TransactionVerification,
    ) -> None:
        self.handler = handler
        self.request = request
        self.transactional_id = transactional_id
        self.ack = ack
        self.verification = verification
        self.tries = 0

    def ask(self) -> None:
        verification = self.verification
        self.tries += 1
        try:
            self.handler.prepare(self.request, self.ack, verification)
        except ProtocolError as error:
            self.ack.refused = error
        if self.ack.refused is not None or not verification.guards:
            verification.answered = True
            self.handler.append(self.request, self.ack)
        else:
            self.handler.ask_coordinator(self.transactional_id, verification, self.checked)
        if not verification.answered:
            # The producer's next batches must not overtake these.
            self.ack.exchange.channel.mute()

    def checked(self, answers: PartitionErrors) -> None:
        if self.tries < _MOST_TRIES and self.handler.must_verify_again(self.verification, answers):
            self.ask()
            return
        self.verification.take(answers)
        self.handler.append(self.request, self.ack)


class ProduceHandler:
    def __init__(
        self,
        registry: PartitionRegistry,
        committer: Committer,
        clock: Clock,
        fair_queue: FairQueue,
        handler_pool: RequestHandlerPool,
        timeouts: TimeoutQueues,
        authorizer: Authorizer,
    ) -> None:
        """`timeouts` ends the waits of acks=all for other replicas."""
        self.authorizer = authorizer
        self._registry = registry
        self._committer = committer
        self._timeouts = timeouts
        self._clock = clock
        self._fair_queue = fair_queue
        self._handler_pool = handler_pool
        # Of the transaction coordinators; set where there are any.
        self.add_or_verify: AddOrVerify | None = None
        # transaction.partition.verification.enable
        self.verifies: Callable[[], bool] | None = None
        # Whether the cluster still counts on this broker; set where braidlog.session.loss=refuse.
        self.has_session: Callable[[], bool] | None = None
        # Keeps a request that is ahead of the controller's word; set in a cluster (see `awaited_roles`).
        self.hold: Callable[[ProduceRequest, Exchange], bool] | None = None

    def handle(self, request: ProduceRequest, exchange: Exchange) -> None:
        if self.hold is None or not self.hold(request, exchange):
            self.begin(request, exchange)

    def begin(self, request: ProduceRequest, exchange: Exchange) -> None:
        ack = ProduceAck(exchange, request.acks)
        if self.has_session is not None and request.acks != ACKS_ALL and not self.has_session():
            ack.refused = NotLeaderOrFollowerError("this broker has lost its session, and another may lead by now")
        if self.authorizer.enabled:
            self._authorize(request, ack)
        if has_transaction(request):
            if request.transactional_id is not None and ack.refused is None:
                required = self.verifies is None or self.verifies()
                verification = ack.verification = TransactionVerification(exchange.version, required)
                PendingVerification(self, request, request.transactional_id, ack, verification).ask()
                return
            # A request is looked at as a whole: one transactional batch without the id that it belongs to refuses all.
            if request.transactional_id is None:
                ack.refused = TransactionalIdAuthorizationFailedError("transactional records need a transactional id")
        self.append(request, ack)

    def _authorize(self, request: ProduceRequest, ack: ProduceAck) -> None:
        authorizer, exchange = self.authorizer, ack.exchange
        transactional_id = request.transactional_id
        if transactional_id is not None and has_transaction(request):
            try:
                authorizer.check(exchange, AclOperation.WRITE, AclResourceType.TRANSACTIONAL_ID, transactional_id)
            except TransactionalIdAuthorizationFailedError as error:
                ack.refused = error
                return
        names: dict[str, None] = {}
        for topic in request.topic_data:
            # What an id stands for that nobody knows is not known either.
            name = topic.name if exchange.version < 13 else self._registry.name_of(topic.topic_id)
            if name is not None:
                names[name] = None
        ack.authorized = authorizer.allowed(exchange, AclOperation.WRITE, AclResourceType.TOPIC, names)

    def prepare(self, request: ProduceRequest, ack: ProduceAck, verification: TransactionVerification) -> None:
        verification.prepare(request, self._registry, self._clock.wall_ms(), ack.authorized)

    def must_verify_again(self, verification: TransactionVerification, answers: PartitionErrors) -> bool:
        return verification.must_verify_again(answers, self._registry)

    def ask_coordinator(
        self, transactional_id: str, verification: TransactionVerification, done: Callable[[PartitionErrors], None]
    ) -> None:
        targets = list(verification.guards)
        if self.add_or_verify is None:
            missing = CoordinatorNotAvailableError("this broker has no transaction coordinator")
            done(dict.fromkeys(targets, missing))
            return
        self.add_or_verify(
            transactional_id, verification.producer_id, verification.producer_epoch, targets, verification.adds, done
        )

    def append(self, request: ProduceRequest, ack: ProduceAck) -> None:
        """Stage every batch that may be; the acknowledgement follows when they are durable."""
        version = ack.exchange.version
        by_id = version >= 13
        now_ms = self._clock.wall_ms()
        authorized = ack.authorized if ack.refused is None else None
        done = 0
        while ack.topic_at < len(request.topic_data):
            topic = request.topic_data[ack.topic_at]
            name: str | None = topic.name
            if by_id:
                name = self._registry.name_of(topic.topic_id)
            if len(ack.topics) == ack.topic_at:
                answer = TopicProduceResponse(name=name or "", topic_id=topic.topic_id, partition_responses=[])
                ack.topics.append(answer)
            answers = ack.topics[-1].partition_responses
            if authorized is not None and name is not None and name not in authorized:
                ack.rejected = True
                forbidden = TopicAuthorizationFailedError(f"not allowed to write to {name}")
                answers += [_refusal(data.index, forbidden, None, version) for data in topic.partition_data]
                ack.topic_at += 1
                continue
            while ack.partition_at < len(topic.partition_data):
                data = topic.partition_data[ack.partition_at]
                long = self._long_work(name, data, ack)
                if long is not None:
                    long.begin(request)
                    return
                if done == _AT_A_TIME:
                    ack.exchange.channel.mute()
                    self._fair_queue.add(_RemainingPartitions(self, request, ack))
                    return
                done += 1
                ack.partition_at += 1
                answers.append(self._append(name, data, ack, version, now_ms, None))
            ack.topic_at += 1
            ack.partition_at = 0
        ack.release()
        if ack.waits is not None and not ack.done:
            self._timeouts.add(ack, max(request.timeout_ms, 0))

    def _long_work(
        self, topic: str | None, data: PartitionProduceData, ack: ProduceAck
    ) -> _BackgroundValidation | None:
        """What is to be done in a thread before this partition's records can be appended; none for most."""
        records = data.records
        if topic is None or not isinstance(records, ByteSlice) or ack.refused is not None or ack.acks not in _ACKS:
            return None
        if ack.verification is not None and TopicPartition(topic, data.index) in ack.verification.refused:
            return None
        partition = self._registry.get(topic, data.index)
        if partition is None or partition.log is None or partition.internal:
            return None
        work = work_to_validate(records, partition.log.append_policy, ack.work_left)
        if work < ack.work_left:
            ack.work_left -= work
            return None
        return _BackgroundValidation(
            self, self._handler_pool, partition, data, records, ack, self._clock.wall_ms(), work
        )

    def append_validated(self, request: ProduceRequest, long: _BackgroundValidation) -> None:
        """The records were validated: append them, then go on with the partitions after them."""
        ack = long.ack
        version = ack.exchange.version
        if long.problem is not None:
            answer = self._refused(long.problem, long.data, ack, long.partition.topic, long.partition, version)
        else:
            answer = self._append(long.partition.topic, long.data, ack, version, long.now_ms, long.validated)
        ack.topics[-1].partition_responses.append(answer)
        ack.partition_at += 1
        self.append(request, ack)

    def _append(
        self,
        topic: str | None,
        data: PartitionProduceData,
        ack: ProduceAck,
        version: int,
        now_ms: int,
        validated: ValidatedRecords | None,
    ) -> PartitionProduceResponse:
        partition: Partition | None = None
        try:
            if ack.acks not in _ACKS:
                raise InvalidRequiredAcksError(f"acks is {ack.acks}; use 0, 1 or -1 (all)")
            if ack.refused is not None:
                raise ack.refused
            if ack.verification is not None and topic is not None:
                refusal = ack.verification.refused.get(TopicPartition(topic, data.index))
                if refusal is not None:
                    raise refusal
            if topic is not None:
                partition = self._registry.get(topic, data.index)
            if partition is None:
                raise UnknownTopicIdError() if topic is None else self._registry.missing(topic, data.index)
            if partition.internal:
                raise InvalidTopicError(f"{topic} is written by the broker alone")
            records = data.records
            if not isinstance(records, ByteSlice):
                records = ByteSlice(b"", 0, 0)
            partition.meter.produces += 1
            if ack.acks == ACKS_ALL:
                partition.meter.acks_all_produces += 1
            if ack.verification is not None:
                ack.verification.admit(TopicPartition(partition.topic, data.index), records, partition.require_log())
            info = self._committer.append(partition, records, ack, ack.acks, version, now_ms, ORIGIN_CLIENT, validated)
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
            return self._refused(problem, data, ack, topic, partition, version)

    def _refused(
        self,
        problem: Exception,
        data: PartitionProduceData,
        ack: ProduceAck,
        topic: str | None,
        partition: Partition | None,
        version: int,
    ) -> PartitionProduceResponse:
        ack.rejected = True
        if partition is not None:
            partition.meter.failed_produces += 1
        error = to_protocol_error(problem, f"produce to {topic}-{data.index}")
        return _refusal(data.index, error, partition, version)

    @staticmethod
    def error_response(request: ProduceRequest, version: int, error: ProtocolError) -> None:
        """There is no such response: the connection is closed."""


class _RemainingPartitions:
    """The partitions of a large request that wait for their turn."""

    def __init__(self, handler: ProduceHandler, request: ProduceRequest, ack: ProduceAck) -> None:
        self.handler = handler
        self.request = request
        self.ack = ack

    def take_turn(self) -> None:
        try:
            self.handler.append(self.request, self.ack)
        except Exception as problem:
            log.error("a produce failed, a bug in braidlog, please report it", exc_info=problem)
            self.ack.on_failure()


class _BackgroundValidation:
    """Records of one partition that take long to unpack: validated in a thread, then appended."""

    def __init__(
        self,
        handler: ProduceHandler,
        handler_pool: RequestHandlerPool,
        partition: Partition,
        data: PartitionProduceData,
        records: ByteSlice,
        ack: ProduceAck,
        now_ms: int,
        work: int,
    ) -> None:
        self.handler = handler
        self.handler_pool = handler_pool
        self.partition = partition
        self.data = data
        self.records = records
        self.ack = ack
        self.now_ms = now_ms
        self.work = work
        self.policy = partition.require_log().append_policy
        self.validated: ValidatedRecords | None = None
        self.problem: Exception | None = None

    def begin(self, request: ProduceRequest) -> None:
        # The producer's next batches must not overtake these.
        self.ack.exchange.channel.mute()
        size = min(self.work, self.policy.max_decompressed_bytes)
        self.handler_pool.run(size, self.validate, lambda problem: self.finished(request, problem))

    def validate(self) -> None:
        """In a thread."""
        self.validated = validate_for_append(
            self.records,
            first_offset=0,
            leader_epoch=-1,
            now_ms=self.now_ms,
            policy=self.policy,
            origin=ORIGIN_CLIENT,
            produce_version=self.ack.exchange.version,
            most_bytes=self.handler_pool.most_bytes,
        )

    def finished(self, request: ProduceRequest, problem: Exception | None) -> None:
        self.problem = problem
        try:
            # Also where the producer has gone: with acks=0 it need not wait.
            self.handler.append_validated(request, self)
        except Exception as bug:
            log.error("a produce failed, a bug in braidlog, please report it", exc_info=bug)
            self.ack.on_failure()


def _refusal(index: int, error: ProtocolError, partition: Partition | None, version: int) -> PartitionProduceResponse:
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
        response.current_leader = _leader_of(partition)
    return response


def _leader_of(partition: Partition) -> LeaderIdAndEpoch:
    return LeaderIdAndEpoch(leader_id=partition.leader, leader_epoch=partition.leader_epoch)
