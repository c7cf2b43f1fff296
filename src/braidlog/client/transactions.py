"""What coordinators and partitions know of transactions, and the two ways to end one from outside."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Final, NamedTuple

from braidlog.client.cluster import MOVED_LEADER, Cluster
from braidlog.client.coordinators import TRANSACTION, Coordinators
from braidlog.client.groups import by_topic
from braidlog.client.node import Node
from braidlog.client.refusals import check, refusal
from braidlog.client.retrying import Retry
from braidlog.core.errors import UserError
from braidlog.core.protocol_errors import NONE, CoordinatorLoadInProgressError, ProtocolError
from braidlog.core.types import TopicPartition
from braidlog.wire.generated import describe_transactions
from braidlog.wire.generated.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    PartitionResponse,
    ProducerState,
    TopicRequest,
)
from braidlog.wire.generated.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from braidlog.wire.generated.list_transactions import ListTransactionsRequest, ListTransactionsResponse
from braidlog.wire.generated.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)

INIT_PRODUCER_ID: Final = 22
WRITE_TXN_MARKERS: Final = 27
DESCRIBE_PRODUCERS: Final = 61
DESCRIBE_TRANSACTIONS: Final = 65
LIST_TRANSACTIONS: Final = 66

STATES: Final = (
    "Empty",
    "Ongoing",
    "PrepareCommit",
    "PrepareAbort",
    "CompleteCommit",
    "CompleteAbort",
    "PrepareEpochFence",
    "Dead",
)
ONGOING: Final = "Ongoing"
# The outcome is decided, and markers are on their way.
ENDING: Final = ("PrepareCommit", "PrepareAbort", "PrepareEpochFence")


class Listed(NamedTuple):
    transactional_id: str
    coordinator: int
    producer_id: int
    state: str


class Transaction(NamedTuple):
    transactional_id: str
    coordinator: int
    producer_id: int
    producer_epoch: int
    state: str
    timeout_ms: int
    # -1 when none is open.
    start_ms: int
    partitions: list[TopicPartition]


class ActiveProducer(NamedTuple):
    """A producer as a partition's leader knows it; -1 stands for none."""

    place: TopicPartition
    producer_id: int
    producer_epoch: int
    coordinator_epoch: int
    last_sequence: int
    last_timestamp_ms: int
    transaction_start: int


class Transactions:
    def __init__(self, cluster: Cluster, new_retry: Callable[[float], Retry] = Retry) -> None:
        self._cluster = cluster
        self._new_retry = new_retry
        self._coordinators = Coordinators(cluster, TRANSACTION, new_retry)

    # At the coordinators

    def listed(
        self, states: Sequence[str] = (), producer_ids: Sequence[int] = (), longer_than_ms: int = -1
    ) -> list[Listed]:
        """All transactional ids, from every broker, by name."""
        request = ListTransactionsRequest(
            state_filters=list(states), producer_id_filters=list(producer_ids), duration_filter=longer_than_ms
        )
        found: dict[str, Listed] = {}
        for broker_id in self._cluster.broker_ids:
            answer = self._list_of(broker_id, request)
            if answer.unknown_state_filters:
                raise UserError(f"broker {broker_id} knows no state {', '.join(answer.unknown_state_filters)}")
            for each in answer.transaction_states:
                row = Listed(each.transactional_id, broker_id, each.producer_id, each.transaction_state)
                found[each.transactional_id] = row
        return sorted(found.values())

    def _list_of(self, broker_id: int, request: ListTransactionsRequest) -> ListTransactionsResponse:
        retry = self._new_retry(self._cluster.timeout_s)
        while True:
            answer = self._cluster.node(broker_id).call(LIST_TRANSACTIONS, request, ListTransactionsResponse)
            if answer.error_code != CoordinatorLoadInProgressError.code or not retry.again():
                check(answer.error_code, f"transactions of broker {broker_id}")
                return answer

    def describe(self, names: Iterable[str]) -> dict[str, Transaction | ProtocolError]:
        """Each transactional id, or why it cannot be told of."""
        answers = self._coordinators.ask(names, _describe, lambda each: each.error_code)
        found: dict[str, Transaction | ProtocolError] = {}
        for name, answer in answers.items():
            if answer.error_code != NONE:
                found[name] = refusal(answer.error_code, self._coordinators.named(name))
            else:
                found[name] = self._described(answer)
        return found

    def _described(self, answer: describe_transactions.TransactionState) -> Transaction:
        return Transaction(
            transactional_id=answer.transactional_id,
            coordinator=self._coordinators.place_of(answer.transactional_id).broker_id,
            producer_id=answer.producer_id,
            producer_epoch=answer.producer_epoch,
            state=answer.transaction_state,
            timeout_ms=answer.transaction_timeout_ms,
            start_ms=answer.transaction_start_time_ms,
            partitions=sorted(
                TopicPartition(topic.topic, number) for topic in answer.topics for number in topic.partitions
            ),
        )

    def fence(self, transaction: Transaction) -> tuple[int, int]:
        """Take the id over, as a new producer would: the open transaction is aborted, the old producer fenced.

        The producer id and epoch that the coordinator gave to us, and that nobody uses.
        """
        name = transaction.transactional_id

        def take_over(node: Node, names: list[str]) -> dict[str, InitProducerIdResponse]:
            request = InitProducerIdRequest(transactional_id=name, transaction_timeout_ms=transaction.timeout_ms)
            return {name: node.call(INIT_PRODUCER_ID, request, InitProducerIdResponse)}

        answer = self._coordinators.ask([name], take_over, lambda each: each.error_code)[name]
        check(answer.error_code, self._coordinators.named(name))
        return answer.producer_id, answer.producer_epoch

    # At the partitions

    def producers(self, partitions: Iterable[TopicPartition]) -> list[ActiveProducer]:
        """The producers that the leaders of partitions know."""
        found: list[ActiveProducer] = []
        waiting = sorted(set(partitions))
        retry = self._new_retry(self._cluster.timeout_s)
        is_last = False
        while waiting:
            moved: list[TopicPartition] = []
            for leader, some in self._by_leader(waiting).items():
                for place, answer in self._ask_leader(leader, some).items():
                    if answer.error_code in MOVED_LEADER and not is_last:
                        moved.append(place)
                        continue
                    check(answer.error_code, str(place), answer.error_message)
                    found += (_active(place, each) for each in answer.active_producers)
            waiting = moved
            is_last = bool(moved) and not retry.again()
        return sorted(found)

    def _ask_leader(
        self, leader: int, partitions: Iterable[TopicPartition]
    ) -> dict[TopicPartition, PartitionResponse]:
        topics = [TopicRequest(name=name, partition_indexes=each) for name, each in by_topic(partitions).items()]
        request = DescribeProducersRequest(topics=topics)
        answer = self._cluster.node(leader).call(DESCRIBE_PRODUCERS, request, DescribeProducersResponse)
        return {
            TopicPartition(topic.name, partition.partition_index): partition
            for topic in answer.topics
            for partition in topic.partitions
        }

    def _by_leader(self, partitions: Iterable[TopicPartition]) -> dict[int, list[TopicPartition]]:
        wanted = list(partitions)
        topics = {topic.name: topic for topic in self._cluster.metadata(sorted({each.topic for each in wanted}))}
        found: dict[int, list[TopicPartition]] = {}
        for each in wanted:
            topic = topics[each.topic]
            check(topic.error_code, f"topic {each.topic}")
            found.setdefault(self._cluster.leader_of(topic, each.partition), []).append(each)
        return found

    def known_open(self, producers: Iterable[ActiveProducer]) -> dict[ActiveProducer, str]:
        """Of open transactions those that a coordinator will still end, with their transactional ids.

        The others hang: no coordinator knows that they touched the partition, and nobody will write their markers.
        """
        wanted = [each for each in producers if each.transaction_start >= 0]
        if not wanted:
            return {}
        ids = sorted({each.producer_id for each in wanted})
        open_ids = [
            each.transactional_id
            for each in self.listed(producer_ids=ids)
            if each.state == ONGOING or each.state in ENDING
        ]
        found: dict[ActiveProducer, str] = {}
        for transaction in self.describe(open_ids).values():
            if isinstance(transaction, ProtocolError):
                raise transaction
            for each in wanted:
                if each.producer_id == transaction.producer_id and each.place in transaction.partitions:
                    found[each] = transaction.transactional_id
        return found

    def write_abort_marker(self, producer: ActiveProducer) -> None:
        """End a transaction in one partition, as its coordinator would have done."""
        topic, partition = producer.place
        marker = WritableTxnMarker(
            producer_id=producer.producer_id,
            producer_epoch=producer.producer_epoch,
            transaction_result=False,
            topics=[WritableTxnMarkerTopic(name=topic, partition_indexes=[partition])],
            # A partition that never saw a marker has none; the first coordinator had 0.
            coordinator_epoch=max(producer.coordinator_epoch, 0),
        )
        (leader,) = self._by_leader([producer.place])
        request = WriteTxnMarkersRequest(markers=[marker])
        answer = self._cluster.node(leader).call(WRITE_TXN_MARKERS, request, WriteTxnMarkersResponse)
        for result in answer.markers:
            for written in result.topics:
                for each in written.partitions:
                    check(each.error_code, str(producer.place))


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


def _describe(node: Node, names: list[str]) -> dict[str, describe_transactions.TransactionState]:
    request = describe_transactions.DescribeTransactionsRequest(transactional_ids=names)
    response = node.call(DESCRIBE_TRANSACTIONS, request, describe_transactions.DescribeTransactionsResponse)
    return {each.transactional_id: each for each in response.transaction_states}
