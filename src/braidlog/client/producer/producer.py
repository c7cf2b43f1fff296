"""The producer that programs use.

interceptors → serializers → partitioner → accumulator ── the caller's thread
                                               │
futures, callbacks ◀── responses ◀── brokers ◀── sender ── the engine's thread

with Producer(bootstrap_servers="localhost:9092") as producer:
    producer.send("topic", "value", key="key").result()       waits for the acknowledgement
    producer.send("topic", b"value", on_delivery=print)       calls back later
    await producer.send("topic", b"value")                    in an event loop
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Literal, Self, Unpack

from braidlog.client.cluster_view import PartitionView
from braidlog.client.errors import ClosedError, TransactionStateError
from braidlog.client.metadata import Metadata
from braidlog.client.producer.accumulator.batch_encoder import BatchEncoder, keep_freed_memory
from braidlog.client.producer.accumulator.producer_id_state import ProducerIdState
from braidlog.client.producer.accumulator.record_accumulator import AccumulatorLimits, RecordAccumulator
from braidlog.client.producer.delivery import Delivery
from braidlog.client.producer.guarantees import Guarantees, guarantees_of
from braidlog.client.producer.lifetime import ProducerLifetime
from braidlog.client.producer.partitioners import built_in_partitioner_of
from braidlog.client.producer.produce_response_handler import IncompleteBatches, ProduceResponseHandler
from braidlog.client.producer.send_path import SendPath
from braidlog.client.producer.send_pipeline import FAILS_TRANSACTION, SendPipeline, TransactionalSendPipeline
from braidlog.client.producer.sender import EngineMetadataWait, Sender
from braidlog.client.producer.transactions.blocking import BlockingTransactions, TransactionScope
from braidlog.client.producer.transactions.coordinator_client import TransactionCoordinatorClient
from braidlog.client.producer.transactions.transaction_manager import TransactionManager
from braidlog.client.runtime import ClientRuntime, current_runtime
from braidlog.client.settings import PRODUCER, Settings
from braidlog.wire.records.compression import codec_named

if TYPE_CHECKING:
    from braidlog.client.arrow.table_delivery import TableDelivery
    from braidlog.client.consumer.offsets.offset_and_metadata import ConsumerGroupMetadata, OffsetAndMetadata
    from braidlog.client.typed_settings import ProducerSettings
    from braidlog.core.types import TopicPartition

# Codecs whose level can be chosen.
_LEVELS: Final = ("gzip", "lz4", "zstd")


class Producer(SendPath):
    """Sends records; many threads may share one.

        with Producer(bootstrap_servers="localhost:9092") as producer:
            producer.send("orders", "3 apples", key="ann").result()

    Settings are Kafka's, in snake case or as a mapping with dotted names (docs/CLIENT_SETTINGS.md).
    """

    def __init__(self, config: Mapping[str, Any] | None = None, /, **settings: Unpack[ProducerSettings]) -> None:
        runtime = current_runtime()
        chosen = Settings.of(PRODUCER, config, settings)
        guarantees = guarantees_of(chosen)
        self._settings = chosen
        self._limits = _limits(chosen, guarantees)
        metadata_wait = EngineMetadataWait(self._limits.max_block_s)
        pipeline = SendPipeline.of(chosen, metadata_wait.find_topic)
        partitioner = pipeline.partitioner if pipeline is not None else None
        producer_id_state = ProducerIdState(guarantees.idempotent, guarantees.transactional_id is not None)
        accumulator = RecordAccumulator(
            self._limits,
            producer_id_state,
            runtime.clock,
            built_in_partitioner_of(chosen, runtime.random),
            metadata_wait.wake,
            ignore_keys=partitioner is not None,
        )
        accumulator.partitioner = partitioner
        self._transactional_pipeline: TransactionalSendPipeline | None = None
        if guarantees.transactional_id is not None:
            self._transactional_pipeline = TransactionalSendPipeline(
                pipeline or SendPipeline.plain(metadata_wait.find_topic)
            )
        super().__init__(accumulator, metadata_wait, self._transactional_pipeline or pipeline)
        self._send_pipeline = pipeline
        self._batch_encoder = BatchEncoder(*_codec(chosen))
        keep_freed_memory(self._limits.batch_size)
        self._engine = runtime.new_engine(PRODUCER)
        try:
            self._start(runtime, chosen, guarantees, metadata_wait, producer_id_state, accumulator)
        except BaseException:
            self._engine.close()
            raise

    def _start(
        self,
        runtime: ClientRuntime,
        chosen: Settings,
        guarantees: Guarantees,
        metadata_wait: EngineMetadataWait,
        producer_id_state: ProducerIdState,
        accumulator: RecordAccumulator,
    ) -> None:
        engine = self._engine
        backoff_s = chosen.seconds("retry.backoff.ms")
        self._nodes = nodes = runtime.nodes(chosen)
        self._metadata = metadata = Metadata(
            nodes, chosen, topic_idle_s=chosen.seconds("metadata.max.idle.ms"), random=runtime.random
        )
        self._response_handler = response_handler = ProduceResponseHandler(
            accumulator,
            metadata,
            retries=guarantees.retries,
            backoff_s=backoff_s,
            longest_backoff_s=chosen.seconds("retry.backoff.max.ms"),
            random=runtime.random,
        )
        self._incomplete_batches = incomplete_batches = IncompleteBatches(accumulator, response_handler)
        self._sender = sender = Sender(
            accumulator,
            self._batch_encoder,
            guarantees,
            engine,
            nodes,
            metadata,
            response_handler,
            incomplete_batches,
            request_timeout_s=chosen.seconds("request.timeout.ms"),
            backoff_s=backoff_s,
        )
        metadata_wait.connect(engine, sender, metadata)
        manager: TransactionManager | None = None
        self._transactions: BlockingTransactions | None = None
        if guarantees.transactional_id is not None:
            manager = TransactionManager(
                guarantees.transactional_id,
                engine,
                TransactionCoordinatorClient.of(chosen, nodes, runtime.random),
                producer_id_state,
                accumulator,
                incomplete_batches,
                sender.wake,
            )
            accumulator.transactions = response_handler.transactions = sender.transactions = manager
            assert self._transactional_pipeline is not None
            self._transactional_pipeline.on_refused = manager.on_send_refused
            self._transactions = BlockingTransactions(manager, engine, self._limits.max_block_s)
        accumulator.guard.engine_thread = engine.thread_id
        accumulator.guard.acquire = runtime.acquire
        accumulator.guard.direct = sender.direct
        self._lifetime = ProducerLifetime(
            engine, accumulator, incomplete_batches, sender, metadata, nodes, manager, self._send_pipeline
        )

    def __repr__(self) -> str:
        servers = ",".join(map(str, self._settings.items("bootstrap.servers")))
        return f"<Producer of {servers}{', closed' if self._closed else ''}>"

    @property
    def _closed(self) -> bool:
        return self._lifetime.is_closed

    def __reduce__(self) -> str | tuple[Any, ...]:
        raise TypeError("a Producer cannot be copied or pickled; make one where it is used")

    # Waiting for what was sent

    def flush(self, timeout: float | None = None) -> None:
        """Send at once what lingers, and wait until all sent before is done; TimeoutError after `timeout` seconds.

        In a thread that runs an event loop (a notebook's) it works as well, and keeps the loop; `flush_async` does not.
        """
        if not self._incomplete_batches.wait(timeout):
            raise TimeoutError(f"not everything was acknowledged within {timeout:g} s; it still may be")

    async def flush_async(self) -> None:
        """As `flush`, awaited."""
        await self._incomplete_batches.drained()

    def close(self, timeout: float | None = None) -> None:
        """Send what is left, for `timeout` seconds at most (none: as long as delivery.timeout.ms allows), then end.

        What is not acknowledged by then fails with ClosedError. An open transaction is aborted. A producer that is
        not closed is ended with the program, see `docs/client/producer.md`.
        """
        self._lifetime.close(timeout)

    async def close_async(self, timeout: float | None = None) -> None:  # noqa: ASYNC109
        """As `close`, awaited."""
        await asyncio.to_thread(self.close, timeout)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close_async()

    def __del__(self) -> None:
        # None where the constructor failed.
        lifetime = getattr(self, "_lifetime", None)
        if lifetime is not None:
            lifetime.abandon()

    # The cluster

    def partitions_for(self, topic: str) -> list[PartitionView]:
        """The topic's partitions (`index`, `leader`, `replicas`, `isr`), waited for up to max.block.ms."""
        self._check_open()
        found = self._metadata.view.topic(topic)
        if found is None:
            self._metadata_wait.await_topic(topic, -1, self._limits.max_block_s)
            found = self._metadata.view.topics[topic]
        return list(found.partitions)

    async def partitions_for_async(self, topic: str) -> list[PartitionView]:
        """As `partitions_for`, awaited."""
        return await asyncio.to_thread(self.partitions_for, topic)

    def _check_open(self) -> None:
        if self._closed:
            raise ClosedError("this producer is closed; make a new one")

    def metrics(self) -> dict[str, int]:
        """Counts since the start, and what is under way."""
        accumulator, response_handler, batch_encoder = self._accumulator, self._response_handler, self._batch_encoder
        return {
            "records-acknowledged": int(accumulator.records_written),
            "records-failed": response_handler.records_failed,
            "batches-retried": response_handler.batches_retried,
            "batches-split": response_handler.batches_split,
            "batches-in-progress": len(accumulator.incomplete),
            "requests-sent": self._sender.requests_sent,
            "bytes-raw": int(batch_encoder.raw_bytes),
            "bytes-sent": int(batch_encoder.encoded_bytes),
            "buffer-total-bytes": int(self._limits.memory),
            "buffer-available-bytes": int(accumulator.pool.available),
            "buffer-waits": int(accumulator.pool.exhausted),
        }

    # Transactions

    def _transacting(self) -> BlockingTransactions:
        self._check_open()
        if self._transactions is None:
            raise TransactionStateError("transactions need transactional.id: Producer(transactional_id=…)")
        return self._transactions

    def init_transactions(self, timeout: float | None = None) -> None:
        """Before the first transaction: take over the transactional id, and fence a producer that had it."""
        self._transacting().init_transactions(timeout)

    def begin_transaction(self) -> None:
        """Begin a transaction: what is sent from now on belongs to it, until it is committed or aborted."""
        self._transacting().begin_transaction()

    def send_offsets_to_transaction(
        self,
        offsets: Mapping[TopicPartition, OffsetAndMetadata | int],
        group_metadata: ConsumerGroupMetadata | str,
        timeout: float | None = None,
    ) -> None:
        """Commit a consumer's offsets with the transaction; `consumer.group_metadata()` says whose."""
        self._transacting().send_offsets_to_transaction(offsets, group_metadata, timeout)

    def commit_transaction(self, timeout: float | None = None) -> None:
        """Send what is left, and make all of the transaction visible to readers of committed records."""
        self._transacting().commit_transaction(timeout)

    def abort_transaction(self, timeout: float | None = None) -> None:
        """Give up the transaction: readers of committed records never see any of it."""
        self._transacting().abort_transaction(timeout)

    def transaction(self) -> TransactionScope:
        """`with producer.transaction():` begins, and commits at the end or aborts when something is raised."""
        return self._transacting().scope()

    async def init_transactions_async(self) -> None:
        """As `init_transactions`, awaited."""
        await self._transacting().init_transactions_async()

    async def send_offsets_to_transaction_async(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata | int], group_metadata: ConsumerGroupMetadata | str
    ) -> None:
        """As `send_offsets_to_transaction`, awaited."""
        await self._transacting().send_offsets_to_transaction_async(offsets, group_metadata)

    async def commit_transaction_async(self) -> None:
        """As `commit_transaction`, awaited."""
        await self._transacting().commit_transaction_async()

    async def abort_transaction_async(self) -> None:
        """As `abort_transaction`, awaited."""
        await self._transacting().abort_transaction_async()

    # Arrow

    def _append_batch(
        self, topic: str, partition: int, body: bytes, count: int, base_timestamp: int, max_timestamp: int
    ) -> Delivery:
        try:
            return super()._append_batch(topic, partition, body, count, base_timestamp, max_timestamp)
        except FAILS_TRANSACTION as problem:
            if self._transactional_pipeline is not None:
                self._transactional_pipeline.report(problem)
            raise

    def send_arrow(
        self,
        data: Any,
        topic: str | None = None,
        *,
        key: str | None = "key",
        value: str | None = "value",
        headers: str | None = "headers",
        timestamp: str | None = None,
        partition_by: str | int | None = None,
        keyless: Literal["sticky", "round-robin"] = "sticky",
        batch_size: int | None = None,
    ) -> TableDelivery:
        """Send the rows of an Arrow table or batch as records; `docs/client/arrow.md` explains the options."""
        from braidlog.client.arrow.producing import send_arrow

        return send_arrow(
            self,
            data,
            topic,
            key=key,
            value=value,
            headers=headers,
            timestamp=timestamp,
            partition_by=partition_by,
            keyless=keyless,
            batch_size=batch_size,
        )


def _limits(settings: Settings, guarantees: Guarantees) -> AccumulatorLimits:
    return AccumulatorLimits(
        # A batch larger than a request cannot be sent.
        batch_size=min(settings.number("batch.size"), settings.number("max.request.size")),
        linger_s=settings.seconds("linger.ms"),
        max_request=settings.number("max.request.size"),
        memory=settings.number("buffer.memory"),
        delivery_timeout_s=settings.seconds("delivery.timeout.ms"),
        max_block_s=settings.seconds("max.block.ms"),
        max_in_flight=guarantees.max_in_flight,
    )


def _codec(settings: Settings) -> tuple[int, int | None]:
    name = settings.text("compression.type")
    level = settings.number(f"compression.{name}.level") if name in _LEVELS else None
    return codec_named(name), level
