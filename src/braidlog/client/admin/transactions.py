"""Transactions as coordinators and partitions know them, and the ways to end one from outside."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from braidlog.client.admin.api_driver import AdminApiDriver
from braidlog.client.admin.cluster_call import BrokerConnection
from braidlog.client.admin.lookup_strategies import BrokerStrategy, PartitionLeaderStrategy
from braidlog.client.admin.results import Results
from braidlog.client.arguments import Many, Partitions, listed, names_of, partitions_of
from braidlog.client.broker_errors import broker_error, check
from braidlog.client.requests.init_producer_id import INIT_PRODUCER_ID, init_producer_id_request
from braidlog.core.errors import UserError
from braidlog.core.protocol_errors import NONE, ProtocolError
from braidlog.core.types import TopicPartition, by_topic
from braidlog.wire.generated import describe_transactions as layout
from braidlog.wire.generated.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    ProducerState,
    TopicRequest,
)
from braidlog.wire.generated.init_producer_id import InitProducerIdResponse
from braidlog.wire.generated.list_transactions import ListTransactionsRequest, ListTransactionsResponse
from braidlog.wire.generated.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)

WRITE_TXN_MARKERS: Final = 27
DESCRIBE_PRODUCERS: Final = 61
DESCRIBE_TRANSACTIONS: Final = 65
LIST_TRANSACTIONS: Final = 66


class TransactionState(StrEnum):
    UNKNOWN = "Unknown"
    EMPTY = "Empty"
    ONGOING = "Ongoing"
    PREPARE_COMMIT = "PrepareCommit"
    PREPARE_ABORT = "PrepareAbort"
    COMPLETE_COMMIT = "CompleteCommit"
    COMPLETE_ABORT = "CompleteAbort"
    PREPARE_EPOCH_FENCE = "PrepareEpochFence"
    DEAD = "Dead"

    @classmethod
    def _missing_(cls, value: object) -> TransactionState:
        return cls.UNKNOWN

    @property
    def is_ending(self) -> bool:
        """The outcome is decided, and markers are on their way."""
        return self in (
            TransactionState.PREPARE_COMMIT,
            TransactionState.PREPARE_ABORT,
            TransactionState.PREPARE_EPOCH_FENCE,
        )

    @property
    def is_open(self) -> bool:
        return self == TransactionState.ONGOING or self.is_ending


@dataclass(frozen=True, slots=True)
class ListedTransaction:
    transactional_id: str
    coordinator: int
    producer_id: int
    state: TransactionState


@dataclass(frozen=True, slots=True)
class TransactionDescription:
    transactional_id: str
    coordinator: int
    producer_id: int
    producer_epoch: int
    state: TransactionState
    timeout_ms: int
    # -1 when none is open.
    start_ms: int
    partitions: tuple[TopicPartition, ...]


@dataclass(frozen=True, slots=True)
class ActiveProducer:
    """A producer as a partition's leader knows it; -1 stands for none."""

    place: TopicPartition
    producer_id: int
    producer_epoch: int
    coordinator_epoch: int
    last_sequence: int
    last_timestamp_ms: int
    # The first offset of its open transaction.
    transaction_start: int


@dataclass(frozen=True, slots=True)
class FencedProducer:
    """The producer id and epoch that the coordinator gave; every producer before has a lower epoch."""

    producer_id: int
    producer_epoch: int


def list_transactions(
    driver: AdminApiDriver,
    *,
    states: Many[TransactionState | str] = (),
    producer_ids: Many[int] = (),
    longer_than_ms: int | None = None,
) -> list[ListedTransaction]:
    ids = listed(producer_ids, "producer_ids")
    request = ListTransactionsRequest(
        state_filters=names_of(states, "states"),
        producer_id_filters=ids,
        duration_filter=-1 if longer_than_ms is None else longer_than_ms,
    )

    async def list_of(node: BrokerConnection, some: list[int]) -> dict[int, ListTransactionsResponse]:
        answer = await node.call(LIST_TRANSACTIONS, request, ListTransactionsResponse)
        check(answer.error_code, f"transactions of broker {some[0]}")
        if answer.unknown_state_filters:
            unknown = ", ".join(answer.unknown_state_filters)
            raise UserError(f"broker {some[0]} knows no state {unknown}; TransactionState has those that there are")
        return {some[0]: answer}

    broker_ids = driver.broker_ids()
    answers = driver.ask(broker_ids, BrokerStrategy(lambda broker_id: broker_id), list_of).raise_for_errors()
    found = {
        each.transactional_id: ListedTransaction(
            each.transactional_id, broker_id, each.producer_id, TransactionState(each.transaction_state)
        )
        for broker_id, answer in answers.items()
        for each in answer.transaction_states
    }
    return [found[name] for name in sorted(found)]


def describe_transactions(driver: AdminApiDriver, transactional_ids: Many[str]) -> Results[str, TransactionDescription]:
    async def describe(node: BrokerConnection, names: list[str]) -> dict[str, TransactionDescription | ProtocolError]:
        request = layout.DescribeTransactionsRequest(transactional_ids=names)
        answer = await node.call(DESCRIBE_TRANSACTIONS, request, layout.DescribeTransactionsResponse)
        return {each.transactional_id: _described(driver, each) for each in answer.transaction_states}

    return driver.ask(names_of(transactional_ids, "transactional_ids"), driver.transactions, describe)


def _described(driver: AdminApiDriver, answer: layout.TransactionState) -> TransactionDescription | ProtocolError:
    name = answer.transactional_id
    if answer.error_code != NONE:
        return broker_error(answer.error_code, driver.transactions.named(name))
    return TransactionDescription(
        transactional_id=name,
        coordinator=driver.transactions.place_of(name).broker_id,
        producer_id=answer.producer_id,
        producer_epoch=answer.producer_epoch,
        state=TransactionState(answer.transaction_state),
        timeout_ms=answer.transaction_timeout_ms,
        start_ms=answer.transaction_start_time_ms,
        partitions=tuple(
            sorted(TopicPartition(topic.topic, number) for topic in answer.topics for number in topic.partitions)
        ),
    )


def fence_producers(
    driver: AdminApiDriver, transactional_ids: Many[str], *, timeout_ms: int
) -> Results[str, FencedProducer]:
    async def fence(node: BrokerConnection, names: list[str]) -> dict[str, FencedProducer | ProtocolError]:
        found: dict[str, FencedProducer | ProtocolError] = {}
        for name in names:
            request = init_producer_id_request(name, timeout_ms)
            answer = await node.call(INIT_PRODUCER_ID, request, InitProducerIdResponse)
            if answer.error_code != NONE:
                found[name] = broker_error(answer.error_code, driver.transactions.named(name))
            else:
                found[name] = FencedProducer(answer.producer_id, answer.producer_epoch)
        return found

    return driver.ask(names_of(transactional_ids, "transactional_ids"), driver.transactions, fence)


def describe_producers(
    driver: AdminApiDriver, partitions: Partitions
) -> Results[TopicPartition, tuple[ActiveProducer, ...]]:
    async def describe(
        node: BrokerConnection, some: list[TopicPartition]
    ) -> dict[TopicPartition, tuple[ActiveProducer, ...] | ProtocolError]:
        topics = [TopicRequest(name=name, partition_indexes=each) for name, each in by_topic(sorted(some)).items()]
        answer = await node.call(DESCRIBE_PRODUCERS, DescribeProducersRequest(topics=topics), DescribeProducersResponse)
        found: dict[TopicPartition, tuple[ActiveProducer, ...] | ProtocolError] = {}
        for topic in answer.topics:
            for each in topic.partitions:
                place = TopicPartition(topic.name, each.partition_index)
                if each.error_code != NONE:
                    found[place] = broker_error(each.error_code, str(place), each.error_message)
                else:
                    producers = sorted(each.active_producers, key=lambda state: state.producer_id)
                    found[place] = tuple(_active(place, state) for state in producers)
        return found

    return driver.ask(partitions_of(partitions), PartitionLeaderStrategy(), describe)


def coordinated(driver: AdminApiDriver, producers: Many[ActiveProducer]) -> dict[ActiveProducer, str]:
    wanted = [each for each in listed(producers, "producers") if each.transaction_start >= 0]
    if not wanted:
        return {}
    ids = sorted({each.producer_id for each in wanted})
    open_ids = [each.transactional_id for each in list_transactions(driver, producer_ids=ids) if each.state.is_open]
    found: dict[ActiveProducer, str] = {}
    for transaction in describe_transactions(driver, open_ids).values():
        for each in wanted:
            if each.producer_id == transaction.producer_id and each.place in transaction.partitions:
                found[each] = transaction.transactional_id
    return found


def abort_transaction(driver: AdminApiDriver, producer: ActiveProducer) -> None:
    marker = WritableTxnMarker(
        producer_id=producer.producer_id,
        producer_epoch=producer.producer_epoch,
        transaction_result=False,
        topics=[WritableTxnMarkerTopic(name=producer.place.topic, partition_indexes=[producer.place.partition])],
        # A partition that never saw a marker has none; the first coordinator had 0.
        coordinator_epoch=max(producer.coordinator_epoch, 0),
    )

    async def write(node: BrokerConnection, some: list[TopicPartition]) -> dict[TopicPartition, None]:
        answer = await node.call(WRITE_TXN_MARKERS, WriteTxnMarkersRequest(markers=[marker]), WriteTxnMarkersResponse)
        for result in answer.markers:
            for topic in result.topics:
                for each in topic.partitions:
                    check(each.error_code, str(producer.place))
        return dict.fromkeys(some)

    driver.ask([producer.place], PartitionLeaderStrategy(), write).raise_for_errors()


def _active(place: TopicPartition, state: ProducerState) -> ActiveProducer:
    return ActiveProducer(
        place,
        state.producer_id,
        state.producer_epoch,
        state.coordinator_epoch,
        state.last_sequence,
        state.last_timestamp,
        state.current_txn_start_offset,
    )
