"""Fetch (api 1): read record batches, waiting for them if asked to.

v0–v3   old message formats: batches are converted down      v9    leader epoch checked (KIP-320)
v3      response size limit, the first batch always fits     v12   divergence found by the last fetched epoch
v4      isolation level, last stable offset                  v13   topic ids instead of names
v5      log start offset                                     v15   replica state
v7      sessions (KIP-227)                                   v18   the follower's high watermark
v11     the consumer's rack: it may be sent to a follower, which shows it what is committed (KIP-392)

A follower fetches as a consumer does, but to the end of the log. Where its fetch begins its log ends: that moves the
high watermark before the answer is made, so that the answer carries it. While it waits it watches no partitions, its
session is told of appends; fetches of followers that the appends of a round woke are answered after its writes.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any, Final, Protocol

from braidlog.broker.authorization.authorizer import Authorizer
from braidlog.broker.handlers.records.fetch_session import (
    FINAL_EPOCH,
    INITIAL_EPOCH,
    FetchContext,
    FetchSession,
    FetchSessionCache,
    FetchTarget,
    TargetKey,
    name_partitions,
)
from braidlog.broker.handlers.records.partition_read import WITHOUT_CONVERSION_FROM, PartitionReader
from braidlog.broker.requests.error_mapping import to_protocol_error
from braidlog.broker.requests.handler_pool import RequestHandlerPool
from braidlog.broker.requests.time_slicing import TimeSlicer
from braidlog.core.clock import Clock
from braidlog.core.protocol_errors import (
    ProtocolError,
    TopicAuthorizationFailedError,
    UnsupportedCompressionTypeError,
)
from braidlog.core.slices import ByteSlice, FileSlice
from braidlog.core.time_slice import SlicedWork
from braidlog.net.channel import Channel
from braidlog.net.exchange import Exchange, RequestQuotas
from braidlog.net.round import Round
from braidlog.replication.delayed_operation import DelayedOperation
from braidlog.replication.follower_session import FollowerSession
from braidlog.replication.partition import READ_COMMITTED
from braidlog.replication.partition_registry import PartitionRegistry
from braidlog.replication.progress import NO_BROKER_EPOCH
from braidlog.security.acls import AclOperation, AclResourceType
from braidlog.wire.generated.fetch import (
    FetchableTopicResponse,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
)
from braidlog.wire.writer import Records

log = logging.getLogger("braidlog.fetch")


class Timer(Protocol):
    def cancel(self) -> object: ...


# More partitions than this are read in slices, so many before the clock is looked at.
_MANY: Final = 100
_STRIDE: Final = 8
# More are named in slices as well.
_MANY_NAMED: Final = 1000
_REPLICA_STATE_FROM: Final = 15
# What converting down takes, in multiples of what is read: an object for every record.
_CONVERSION_TAKES: Final = 8

CallLater = Callable[[float, Callable[[], None]], Timer]


class FetchReadResult:
    """One pass over the partitions of a request: what was read, and whether it may be answered."""

    __slots__ = ("budget", "data", "failed", "min_one", "size")

    def __init__(self, budget: int, version: int) -> None:
        self.data: list[PartitionData] = []
        self.size = 0
        # Bytes that may still be read.
        self.budget = budget
        # Before v3 the limit is hard: a batch that does not fit is not returned.
        self.min_one = version >= 3
        # An error, a divergence or a better replica is answered at once, however long the reader is ready to wait.
        self.failed = False

    def add(self, data: PartitionData) -> None:
        self.data.append(data)
        size = _size(data.records)
        if data.error_code or data.diverging_epoch is not None or data.preferred_read_replica >= 0:
            self.failed = True
        if size:
            self.min_one = False
            self.size += size
            self.budget = max(0, self.budget - size)

    def add_forbidden(self, target: FetchTarget) -> None:
        """As in Kafka this alone does not end the wait for the other partitions."""
        self.data.append(
            PartitionData(
                partition_index=target.index,
                error_code=TopicAuthorizationFailedError.code,
                high_watermark=-1,
                records=b"",
            )
        )


class DelayedFetch(DelayedOperation):
    """A fetch that found too little; it reads once more when enough was appended, or its time is over."""

    def __init__(self, handler: FetchHandler, request: FetchRequest, context: FetchContext, exchange: Exchange) -> None:
        super().__init__(0)
        self.handler = handler
        self.request = request
        self.context = context
        self.exchange = exchange
        self.deadline = 0.0
        self.timer: Timer | None = None
        self.fired = False

    def on_complete(self) -> None:
        if self.context.follower is not None and not self.fired:
            self.handler.follower_due(self)
        else:
            self.handler.woken(self)

    def unpark(self) -> None:
        """A follower's session may have gone on over another connection: then another fetch waits there."""
        follower = self.context.follower
        if follower is not None and follower.parked is self:
            follower.parked = None

    def on_timeout(self) -> None:
        self.timer = None
        self.fired = True
        if self.context.follower is not None:
            self.handler.expired_followers += 1
        else:
            self.handler.expired_consumers += 1
        self.wake()


class FetchHandler:
    def __init__(
        self,
        registry: PartitionRegistry,
        sessions: FetchSessionCache,
        round_: Round,
        clock: Clock,
        call_later: CallLater,
        max_bytes: int,
        time_slicer: TimeSlicer,
        handler_pool: RequestHandlerPool,
        authorizer: Authorizer,
    ) -> None:
        self.authorizer = authorizer
        self._registry = registry
        self._sessions = sessions
        self._round = round_
        self._clock = clock
        self._call_later = call_later
        self._max_bytes = max_bytes
        self._time_slicer = time_slicer
        self._handler_pool = handler_pool
        self._waiting: dict[Channel, DelayedFetch] = {}
        # Of followers, woken by what the round writes.
        self._due: list[DelayedFetch] = []
        self._stopping = False
        # Fetches that waited until their time was over.
        self.expired_followers = 0
        self.expired_consumers = 0
        self.reader = PartitionReader(registry)

    @property
    def waiting(self) -> int:
        return len(self._waiting)

    def handle(self, request: FetchRequest, exchange: Exchange) -> None:
        version = exchange.version
        if exchange.quotas is not None and _replica_id(request, version) < 0:
            most = exchange.quotas.most_fetch_bytes(exchange)
            request.max_bytes = min(request.max_bytes, most)
            request.min_bytes = min(request.min_bytes, most)
        try:
            session = self._resumed_session(request, version)
        except ProtocolError as error:
            exchange.answer(FetchResponse(error_code=error.code, session_id=0))
            return
        named: dict[TargetKey, FetchTarget] = {} if session is None else session.targets
        count = 0
        for topic in request.topics:
            count += len(topic.partitions)
        if count > _MANY_NAMED:
            work = self._name_in_slices(request, version, session, named)
            self._run(work, exchange, lambda nothing: self._handle(request, exchange, session, named))
            return
        for topic in request.topics:
            self._name(topic, topic.partitions, version, session, named)
        self._handle(request, exchange, session, named)

    def _handle(
        self,
        request: FetchRequest,
        exchange: Exchange,
        session: FetchSession | None,
        named: dict[TargetKey, FetchTarget],
    ) -> None:
        try:
            context = self._context(request, exchange.version, session, named)
        except ProtocolError as error:
            exchange.answer(FetchResponse(error_code=error.code, session_id=0))
            return
        if self.authorizer.enabled:
            work = self._authorizing(context, exchange)
            if len(context.targets) > _MANY:
                self._run(work, exchange, lambda nothing: self._begin_reading(request, context, exchange))
                return
            for _ in work:
                pass
        self._begin_reading(request, context, exchange)

    def _begin_reading(self, request: FetchRequest, context: FetchContext, exchange: Exchange) -> None:
        if len(context.targets) > _MANY:
            self._read_many(
                request, context, exchange, lambda result: self._first_read(request, context, result, exchange)
            )
        else:
            self._first_read(request, context, self._read(request, context, exchange.version), exchange)

    def _authorizing(self, context: FetchContext, exchange: Exchange) -> SlicedWork:
        """Decided once, for as long as the fetch waits. An id that nobody knows is answered as such to a consumer."""
        context.is_authorized = True
        for target in context.targets:
            if not target.topic:
                # Inside a session the topic may have become known since.
                target.topic = self._registry.name_of(target.topic_id) or ""
        if context.follower is not None:
            context.reads_nothing = not self.authorizer.authorize_cluster(exchange, AclOperation.CLUSTER_ACTION)
            return
        yield
        topics = {target.topic: None for target in context.targets}
        refused: set[str] = set()
        for topic in topics:
            if topic and not self.authorizer.authorize(exchange, AclOperation.READ, AclResourceType.TOPIC, topic):
                refused.add(topic)
            yield
        if refused:
            context.unauthorized = frozenset(refused)
            context.reads_nothing = len(refused) == len(topics)

    def _run(self, work: SlicedWork, exchange: Exchange, done: Callable[[Any], None]) -> None:
        self._time_slicer.run(work, exchange.channel, done, lambda problem: self._failed(exchange, problem))

    def _first_read(
        self, request: FetchRequest, context: FetchContext, result: FetchReadResult, exchange: Exchange
    ) -> None:
        if (
            request.max_wait_ms <= 0
            or result.size >= request.min_bytes
            or result.failed
            or context.is_empty
            or context.reads_nothing
            or exchange.channel.closed
            or self._stopping
        ):
            self._finish(context, result, exchange)
            return
        waiter = DelayedFetch(self, request, context, exchange)
        waiter.deadline = self._clock.monotonic() + request.max_wait_ms / 1000
        exchange.channel.mute()
        self._wait(waiter, result)

    def channel_closed(self, channel: Channel) -> None:
        waiter = self._waiting.pop(channel, None)
        if waiter is not None:
            waiter.cancel()
            waiter.unpark()
            waiter.context.end()
            if waiter.timer is not None:
                waiter.timer.cancel()

    def finish_all(self) -> None:
        """The broker stops: every waiting fetch is answered now."""
        self._stopping = True
        for waiter in list(self._waiting.values()):
            waiter.deadline = 0.0
            waiter.wake()

    # Waiting

    def _wait(self, waiter: DelayedFetch, result: FetchReadResult) -> None:
        follower = waiter.context.follower
        if follower is not None:
            self._park(waiter, result, follower)
            return
        if len(waiter.context.targets) > _MANY and self._has_grown(waiter, result):
            # Others were served while this was read: what they appended would wake no reader.
            self._waiting[waiter.exchange.channel] = waiter
            self.woken(waiter)
            return
        waiter.missing = waiter.request.min_bytes - result.size
        waiter.woken = False
        unauthorized = waiter.context.unauthorized
        for target in waiter.context.targets:
            partition = self._registry.get(target.topic, target.index)
            if partition is not None and (unauthorized is None or target.topic not in unauthorized):
                waiter.watch(partition)
        self._waiting[waiter.exchange.channel] = waiter
        self._set_timer(waiter)

    def _park(self, waiter: DelayedFetch, result: FetchReadResult, follower: FollowerSession) -> None:
        """A follower's fetch: its session hears of appends, whatever number of partitions it has."""
        self._waiting[waiter.exchange.channel] = waiter
        if follower.grown:
            # Others were served while this was read.
            self.woken(waiter)
            return
        for target in waiter.context.targets:
            target.settle()
        waiter.missing = waiter.request.min_bytes - result.size
        waiter.woken = False
        follower.parked = waiter
        self._set_timer(waiter)

    def follower_due(self, waiter: DelayedFetch) -> None:
        self._due.append(waiter)
        self._round.touch()

    def answer_followers(self) -> None:
        """The logs of a round are written: one answer for each follower has something of all of them."""
        while self._due:
            due, self._due = self._due, []
            for waiter in due:
                if self._waiting.get(waiter.exchange.channel) is waiter:
                    self.woken(waiter)

    def _set_timer(self, waiter: DelayedFetch) -> None:
        if waiter.timer is None:
            waiter.timer = self._call_later(waiter.deadline - self._clock.monotonic(), waiter.on_timeout)

    def _has_grown(self, waiter: DelayedFetch, result: FetchReadResult) -> bool:
        """Whether a partition has more to read than when it was looked at."""
        committed = waiter.request.isolation_level == READ_COMMITTED
        for target, data in zip(waiter.context.targets, result.data, strict=True):
            partition = self._registry.get(target.topic, target.index)
            if partition is not None and partition.log is not None and not data.error_code:
                log_ = partition.log
                if (
                    log_.last_stable_offset > data.last_stable_offset
                    if committed
                    else log_.high_watermark > data.high_watermark
                ):
                    return True
        return False

    def woken(self, waiter: DelayedFetch) -> None:
        exchange = waiter.exchange
        del self._waiting[exchange.channel]
        waiter.unpark()
        waiter.context.look_again()
        try:
            if len(waiter.context.targets) > _MANY:
                self._read_many(
                    waiter.request, waiter.context, exchange, lambda result: self._read_again(waiter, result)
                )
            else:
                self._read_again(waiter, self._read(waiter.request, waiter.context, exchange.version))
        except Exception as problem:
            # Others wait for the same append: what goes wrong here is this reader's alone.
            self._failed(exchange, problem)

    def _failed(self, exchange: Exchange, problem: Exception) -> None:
        message = "closed the connection from %s: a fetch failed, a bug in braidlog, please report it"
        log.error(message, exchange.channel.peer_host, exc_info=problem)
        exchange.channel.close("internal error")

    def _read_again(self, waiter: DelayedFetch, result: FetchReadResult) -> None:
        request = waiter.request
        # The timer is set when it first waits, and gone when it has fired.
        over = waiter.fired or self._stopping or self._clock.monotonic() >= waiter.deadline
        if result.size < request.min_bytes and not result.failed and not over:
            # Bytes came that this reader may not see yet (an open transaction): go on waiting.
            self._wait(waiter, result)
            return
        if waiter.timer is not None:
            waiter.timer.cancel()
        self._finish(waiter.context, result, waiter.exchange)

    # What is asked

    def _resumed_session(self, request: FetchRequest, version: int) -> FetchSession | None:
        """The one that an incremental request goes on with; raises where there is no such session."""
        epoch = request.session_epoch
        if epoch == FINAL_EPOCH or epoch == INITIAL_EPOCH:
            return None
        return self._sessions.resume(request.session_id, epoch, version >= 13, max(_replica_id(request, version), -1))

    def _name(
        self,
        topic: FetchTopic,
        wanted: list[FetchPartition],
        version: int,
        session: FetchSession | None,
        named: dict[TargetKey, FetchTarget],
    ) -> None:
        name = (self._registry.name_of(topic.topic_id) or "") if version >= 13 else topic.topic
        name_partitions(named, name, topic.topic_id, wanted, None if session is None else session.follower)

    def _name_in_slices(
        self,
        request: FetchRequest,
        version: int,
        session: FetchSession | None,
        named: dict[TargetKey, FetchTarget],
    ) -> SlicedWork:
        for topic in request.topics:
            for start in range(0, len(topic.partitions), _MANY):
                self._name(topic, topic.partitions[start : start + _MANY], version, session, named)
                yield

    def _context(
        self,
        request: FetchRequest,
        version: int,
        session: FetchSession | None,
        named: dict[TargetKey, FetchTarget],
    ) -> FetchContext:
        by_id = version >= 13
        if session is not None:
            forgotten: list[TargetKey] = []
            for gone in request.forgotten_topics_data:
                for index in gone.partitions:
                    forgotten.append(("" if by_id else gone.topic, gone.topic_id, index))
            return self._sessions.next_context(session, forgotten, self._clock.monotonic(), _broker_epoch(request))
        replica_id = _replica_id(request, version)
        if request.session_id == 0 and request.session_epoch == FINAL_EPOCH and replica_id < 0:
            return FetchContext(list(named.values()), None, False)
        return self._sessions.new_context(
            request.session_id,
            request.session_epoch,
            named,
            by_id,
            max(replica_id, -1),
            self._clock.monotonic(),
            _broker_epoch(request),
        )

    # Reading

    def _read(self, request: FetchRequest, context: FetchContext, version: int) -> FetchReadResult:
        result = FetchReadResult(self._budget(request, version), version)
        if context.follower is not None:
            context.follower.begin_reading()
        reader = self.reader
        unauthorized, reads_nothing = context.unauthorized, context.reads_nothing
        for target in context.targets:
            if reads_nothing or (unauthorized is not None and target.topic in unauthorized):
                result.add_forbidden(target)
                continue
            result.add(reader.read(request, context, target, version, result.budget, result.min_one))
        context.is_applied = True
        return result

    def _read_many(
        self, request: FetchRequest, context: FetchContext, exchange: Exchange, done: Callable[[FetchReadResult], None]
    ) -> None:
        """Read so many partitions that others must be served in between."""
        self._run(self._read_in_slices(request, context, exchange.version), exchange, done)

    def _read_in_slices(self, request: FetchRequest, context: FetchContext, version: int) -> SlicedWork:
        result = FetchReadResult(self._budget(request, version), version)
        if context.follower is not None:
            context.follower.begin_reading()
        reader = self.reader
        unauthorized, reads_nothing = context.unauthorized, context.reads_nothing
        for count, target in enumerate(context.targets, 1):
            if reads_nothing or (unauthorized is not None and target.topic in unauthorized):
                result.add_forbidden(target)
            else:
                result.add(reader.read(request, context, target, version, result.budget, result.min_one))
            if count % _STRIDE == 0:
                yield
        context.is_applied = True
        return result

    def _budget(self, request: FetchRequest, version: int) -> int:
        budget = min(request.max_bytes, self._max_bytes)
        if version < WITHOUT_CONVERSION_FROM:
            # All of it is converted in one piece, which takes a multiple of it.
            budget = min(budget, self._handler_pool.most_bytes // _CONVERSION_TAKES)
        return budget

    # Answering

    def _finish(self, context: FetchContext, result: FetchReadResult, exchange: Exchange) -> None:
        if exchange.quotas is not None and self._throttled(exchange.quotas, context, result, exchange):
            return
        if exchange.version < WITHOUT_CONVERSION_FROM and result.size:
            exchange.channel.mute()
            conversion = _DownConversion(context.targets, result, exchange.version)
            self._handler_pool.run(
                result.size * _CONVERSION_TAKES,
                conversion.run,
                lambda problem: self._converted(context, result, exchange, conversion, problem),
            )
            return
        self._finish_converted(context, result, exchange)

    def _throttled(
        self, quotas: RequestQuotas, context: FetchContext, result: FetchReadResult, exchange: Exchange
    ) -> bool:
        """Whether the fetch was answered without data, since its client is over a quota; followers never are."""
        if context.follower is not None:
            quotas.charge_exempt(exchange)
            return False
        throttle_ms = quotas.charge_fetch(exchange, result.size)
        if throttle_ms <= 0:
            return False
        for target, data in zip(context.targets, result.data, strict=True):
            partition = self._registry.get(target.topic, target.index)
            if partition is not None:
                # It was read, but will not be sent.
                partition.meter.bytes_out -= _size(data.records)
        session_id = context.session_id
        if context.session is not None and not context.incremental:
            # The client takes an answer without partitions for the beginning of no session, and begins another.
            self._sessions.drop(context.session)
            session_id = 0
        exchange.answer(FetchResponse(throttle_time_ms=throttle_ms, session_id=session_id))
        return True

    def _converted(
        self,
        context: FetchContext,
        result: FetchReadResult,
        exchange: Exchange,
        conversion: _DownConversion,
        problem: Exception | None,
    ) -> None:
        try:
            if problem is not None:
                raise problem
            self._take_converted(context, result, conversion)
            self._finish_converted(context, result, exchange)
        except Exception as failure:
            self._failed(exchange, failure)

    def _take_converted(self, context: FetchContext, result: FetchReadResult, conversion: _DownConversion) -> None:
        for target, data in zip(context.targets, result.data, strict=True):
            partition = self._registry.get(target.topic, target.index)
            failure = conversion.failures.get(target.key)
            if failure is not None:
                error = to_protocol_error(failure, f"fetch from {target.topic}-{target.index}")
                data.error_code = error.code
                data.high_watermark = -1
                # As Kafka has it: none where old clients cannot be given what is there, else empty.
                data.records = None if error.code == UnsupportedCompressionTypeError.code else b""
                if partition is not None:
                    partition.meter.failed_fetches += 1
            elif partition is not None:
                partition.meter.fetch_conversions += conversion.counts.get(target.key, 0)

    def _finish_converted(self, context: FetchContext, result: FetchReadResult, exchange: Exchange) -> None:
        answer = _FetchResponseBuilder(context)
        if len(context.targets) > _MANY:
            self._run(answer.add_in_slices(result), exchange, lambda nothing: self._reply(answer, exchange))
        else:
            answer.add(result, 0, len(context.targets))
            self._reply(answer, exchange)

    def _reply(self, answer: _FetchResponseBuilder, exchange: Exchange) -> None:
        context = answer.context
        session = context.session
        if session is not None and answer.served:
            session.had_data(answer.served)
        if context.follower is not None:
            context.follower.charge()
        context.end()
        exchange.answer(FetchResponse(session_id=context.session_id, responses=answer.topics))

    @staticmethod
    def error_response(request: FetchRequest, version: int, error: ProtocolError) -> None:
        """There is no such response: the connection is closed."""


class _FetchResponseBuilder:
    """The response about the partitions that were read, topic by topic."""

    __slots__ = ("context", "served", "topics")

    def __init__(self, context: FetchContext) -> None:
        self.context = context
        self.topics: list[FetchableTopicResponse] = []
        # Those with data; a session serves them last the next time.
        self.served: list[FetchTarget] = []

    def add_in_slices(self, result: FetchReadResult) -> SlicedWork:
        for start in range(0, len(self.context.targets), _MANY):
            self.add(result, start, min(start + _MANY, len(self.context.targets)))
            yield

    def add(self, result: FetchReadResult, start: int, end: int) -> None:
        context = self.context
        has_session = context.session is not None
        is_follower = context.follower is not None
        current = self.topics[-1] if self.topics else None
        for place in range(start, end):
            target = context.targets[place]
            data = result.data[place]
            news = True
            if has_session:
                # A divergence, or a better replica, is news even without data.
                news_anyway = data.diverging_epoch is not None or data.preferred_read_replica >= 0
                size = 1 if news_anyway else _size(data.records)
                news = target.has_changed(data.error_code, size, data.high_watermark, data.log_start_offset)
                if size:
                    self.served.append(target)
                news = news or not context.incremental
            if is_follower:
                target.settle()
            if not news:
                continue
            if current is None or current.topic != target.topic or current.topic_id != target.topic_id:
                current = FetchableTopicResponse(topic=target.topic, topic_id=target.topic_id, partitions=[])
                self.topics.append(current)
            current.partitions.append(data)


class _DownConversion:
    """Batches as the message sets that clients from before 0.11 read (v1 from Fetch v2 on, else v0)."""

    def __init__(self, targets: list[FetchTarget], result: FetchReadResult, version: int) -> None:
        self.targets = targets
        self.result = result
        self.magic = 1 if version >= 2 else 0
        # Records converted, and what failed, by partition.
        self.counts: dict[TargetKey, int] = {}
        self.failures: dict[TargetKey, Exception] = {}

    def run(self) -> None:
        """In a thread."""
        # Imported here: no client of today needs it.
        from braidlog.wire.records.batch import iterate_headers
        from braidlog.wire.records.conversion import down_convert

        for target, data in zip(self.targets, self.result.data, strict=True):
            records = data.records
            if not isinstance(records, FileSlice):
                continue
            try:
                buffer = records.read()
                end = len(buffer)
                data.records = down_convert(buffer, 0, end, magic=self.magic, first_offset=target.fetch_offset)
                self.counts[target.key] = sum(header.count for header in iterate_headers(buffer, 0, end))
            except Exception as problem:
                self.failures[target.key] = problem


def _replica_id(request: FetchRequest, version: int) -> int:
    if version < _REPLICA_STATE_FROM:
        return request.replica_id
    return -1 if request.replica_state is None else request.replica_state.replica_id


def _broker_epoch(request: FetchRequest) -> int:
    """Of the registration of the follower that asks; not known before v15."""
    return NO_BROKER_EPOCH if request.replica_state is None else request.replica_state.replica_epoch


def _size(records: Records) -> int:
    if records is None:
        return 0
    return records.size if isinstance(records, (FileSlice, ByteSlice)) else len(records)
