"""The shard of one partition of `__transaction_state`."""

from __future__ import annotations

from collections.abc import Callable

from braidlog.coordinator.effects import Caller, Effects, Moment, Ticket
from braidlog.coordinator.shard import ReplayedRecord
from braidlog.coordinator.txn.settings import TxnSettings
from braidlog.core.protocol_errors import ProtocolError
from braidlog.core.types import TopicPartition
from braidlog.wire.generated.add_offsets_to_txn import AddOffsetsToTxnRequest
from braidlog.wire.generated.add_partitions_to_txn import AddPartitionsToTxnTransaction
from braidlog.wire.generated.end_txn import EndTxnRequest
from braidlog.wire.generated.init_producer_id import InitProducerIdRequest
from braidlog.wire.generated.list_transactions import ListTransactionsRequest


class TxnShard:
    """Implements `coordinator.shard.Shard`; `coordinator_epoch` is the leader epoch of its partition."""

    def __init__(self, settings: Callable[[], TxnSettings], coordinator_epoch: int) -> None:
        self._settings = settings
        self.coordinator_epoch = coordinator_epoch

    def init_producer_id(
        self, request: InitProducerIdRequest, reserved_id: int, caller: Caller, ticket: Ticket, now: Moment
    ) -> Effects:
        raise NotImplementedError

    def add_partitions(
        self, wanted: AddPartitionsToTxnTransaction, caller: Caller, ticket: Ticket, now: Moment
    ) -> Effects:
        raise NotImplementedError

    def add_offsets(
        self, request: AddOffsetsToTxnRequest, offsets_partition: int, caller: Caller, ticket: Ticket, now: Moment
    ) -> Effects:
        raise NotImplementedError

    def end_txn(
        self, request: EndTxnRequest, reserved_id: int, caller: Caller, ticket: Ticket, now: Moment
    ) -> Effects:
        raise NotImplementedError

    def describe(self, transactional_id: str, ticket: Ticket, now: Moment) -> Effects:
        raise NotImplementedError

    def list(self, request: ListTransactionsRequest, ticket: Ticket, now: Moment) -> Effects:
        raise NotImplementedError

    def markers_written(
        self, transactional_id: str, producer_id: int, producer_epoch: int, partitions: list[TopicPartition], now: Moment
    ) -> Effects:
        raise NotImplementedError

    # Shard

    def replay(self, record: ReplayedRecord) -> None:
        raise NotImplementedError

    def replay_marker(self, producer_id: int, producer_epoch: int, commits: bool) -> None:
        """Nobody writes to this topic in transactions."""

    def loaded(self, now: Moment) -> Effects:
        raise NotImplementedError

    def next_deadline(self) -> float | None:
        raise NotImplementedError

    def expire(self, now: Moment) -> Effects:
        raise NotImplementedError

    def abandon(self, error: ProtocolError) -> Effects:
        raise NotImplementedError

    def durable_state(self) -> object:
        raise NotImplementedError
