"""The same requests to the transaction coordinators of Apache Kafka 3.9 and of braidlog, in each shared version."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable
from typing import Any

import pytest
from tools.peers.kafka import run_tool

from braidlog.wire.generated.add_offsets_to_txn import AddOffsetsToTxnRequest
from braidlog.wire.generated.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from braidlog.wire.generated.describe_transactions import DescribeTransactionsRequest
from braidlog.wire.generated.end_txn import EndTxnRequest
from braidlog.wire.generated.find_coordinator import FindCoordinatorRequest
from braidlog.wire.generated.init_producer_id import InitProducerIdRequest
from braidlog.wire.generated.list_transactions import ListTransactionsRequest
from braidlog.wire.message import Message
from support.eventually import eventually
from support.oracle import Pair, Side, unlike

pytestmark = pytest.mark.peer

TRANSACTION = 1
# COORDINATOR_LOAD_IN_PROGRESS, COORDINATOR_NOT_AVAILABLE, NOT_COORDINATOR, CONCURRENT_TRANSACTIONS
PASSING = (14, 15, 16, 51)
TOPIC = "oracle-txn"

_numbers = itertools.count()


@pytest.fixture(scope="module")
def both(pair: Pair) -> Pair:
    """Both with a topic and their transaction topic."""
    pair.create(TOPIC, 2)
    find = FindCoordinatorRequest(key_type=TRANSACTION, coordinator_keys=["any"])
    probe = DescribeTransactionsRequest(transactional_ids=["any"])
    for side in pair.sides:

        def serves(side: Side = side) -> bool:
            found: Any = side.ask("FindCoordinator", 4, find)
            if found.coordinators[0].error_code != 0:
                return False
            described: Any = side.ask("DescribeTransactions", 0, probe)
            return described.transaction_states[0].error_code not in PASSING

        eventually(serves)
        # The first producer id is fetched while the first request for one is told to come back.
        settled(side, "InitProducerId", 4, InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1))
    return pair


class Producer:
    """One transactional id on both sides, with the producer id and epoch it has on each."""

    def __init__(self, pair: Pair) -> None:
        self.pair = pair
        self.name = f"oracle-{next(_numbers)}"
        self.producer_id: dict[Side, int] = {}
        self.epoch = -1
        self.start()

    def start(self) -> None:
        request = InitProducerIdRequest(transactional_id=self.name, transaction_timeout_ms=60_000)
        for side in self.pair.sides:
            answer = settled(side, "InitProducerId", 4, request)
            self.producer_id[side] = answer.producer_id
            self.epoch = answer.producer_epoch

    # Requests, each side's own

    def init(self, epoch: int | None = None, **fields: Any) -> Callable[[Side], Message]:
        """Without an epoch nothing is claimed."""

        def make(side: Side) -> Message:
            claim = {} if epoch is None else {"producer_id": self.producer_id[side], "producer_epoch": epoch}
            return InitProducerIdRequest(transactional_id=self.name, transaction_timeout_ms=60_000, **claim, **fields)

        return make

    def add(
        self, version: int, *, off: int = 0, epoch: int | None = None, verify: bool = False, **topics: list[int]
    ) -> Callable[[Side], Message]:
        return lambda side: adding(
            version, self.name, self.producer_id[side] + off, self.epoch if epoch is None else epoch, verify, topics
        )

    def offsets(self, *, off: int = 0, epoch: int | None = None) -> Callable[[Side], Message]:
        return lambda side: AddOffsetsToTxnRequest(
            transactional_id=self.name,
            producer_id=self.producer_id[side] + off,
            producer_epoch=self.epoch if epoch is None else epoch,
            group_id="some-group",
        )

    def end(self, commits: bool, *, off: int = 0, epoch: int | None = None) -> Callable[[Side], Message]:
        return lambda side: EndTxnRequest(
            transactional_id=self.name,
            producer_id=self.producer_id[side] + off,
            producer_epoch=self.epoch if epoch is None else epoch,
            committed=commits,
        )

    # Steps that must succeed on both

    def begin(self) -> None:
        for side in self.pair.sides:
            settled(side, "AddPartitionsToTxn", 3, self.add(3, **{TOPIC: [0]})(side))

    def finish(self, commits: bool) -> None:
        for side in self.pair.sides:
            settled(side, "EndTxn", 4, self.end(commits)(side))
        self.wait_for("Complete")

    def wait_for(self, state: str) -> None:
        request = DescribeTransactionsRequest(transactional_ids=[self.name])
        for side in self.pair.sides:

            def reached(side: Side = side) -> bool:
                answer: Any = side.ask("DescribeTransactions", 0, request)
                return str(answer.transaction_states[0].transaction_state).startswith(state)

            eventually(reached)


def adding(
    version: int, name: str, producer_id: int, epoch: int, verify: bool, topics: dict[str, list[int]]
) -> AddPartitionsToTxnRequest:
    wanted = [AddPartitionsToTxnTopic(name=topic, partitions=indexes) for topic, indexes in topics.items()]
    if version >= 4:
        transaction = AddPartitionsToTxnTransaction(
            transactional_id=name, producer_id=producer_id, producer_epoch=epoch, verify_only=verify, topics=wanted
        )
        return AddPartitionsToTxnRequest(transactions=[transaction])
    return AddPartitionsToTxnRequest(
        v3_and_below_transactional_id=name,
        v3_and_below_producer_id=producer_id,
        v3_and_below_producer_epoch=epoch,
        v3_and_below_topics=wanted,
    )


def codes_of(answer: Any) -> list[int]:
    if hasattr(answer, "results_by_transaction"):
        topics = list(answer.results_by_topic_v3_and_below)
        for transaction in answer.results_by_transaction:
            topics += transaction.topic_results
        return [result.partition_error_code for topic in topics for result in topic.results_by_partition]
    return [answer.error_code]


def settled(side: Side, name: str, version: int, request: Message) -> Any:
    """The answer, which must be without error, once what passes has passed."""
    answers: list[Any] = []

    def final() -> bool:
        answers.append(side.ask(name, version, request))
        return not any(code in PASSING for code in codes_of(answers[-1]))

    eventually(final)
    assert not any(codes_of(answers[-1])), answers[-1]
    return answers[-1]


INIT = range(6)
ADD = range(6)
ADD_OFFSETS = range(5)
END = range(5)


# InitProducerId


@pytest.mark.parametrize("version", INIT)
def test_init_without_a_transactional_id(both: Pair, version: int) -> None:
    both.compare("InitProducerId", version, InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=5))
    both.compare("InitProducerId", version, InitProducerIdRequest(transactional_id="", transaction_timeout_ms=5))
    if version >= 3:
        for claim in ((7, -1), (-1, 7), (7, 7)):
            request = InitProducerIdRequest(
                transactional_id=None, transaction_timeout_ms=5, producer_id=claim[0], producer_epoch=claim[1]
            )
            both.compare("InitProducerId", version, request, f"claim {claim}")


@pytest.mark.parametrize("version", INIT)
def test_init_again_and_again(both: Pair, version: int) -> None:
    producer = Producer(both)
    for number in range(3):
        answer = both.compare("InitProducerId", version, producer.init(), f"start {number}")
        assert answer["producer_epoch"] == number + 1


@pytest.mark.parametrize("timeout_ms", [-1, 0, 1, 900_000, 900_001, 2**31 - 1])
def test_the_timeout_is_checked(both: Pair, timeout_ms: int) -> None:
    for version in INIT:
        name = f"timeout-{timeout_ms}-{version}"
        request = InitProducerIdRequest(transactional_id=name, transaction_timeout_ms=timeout_ms)
        both.compare("InitProducerId", version, request, f"timeout {timeout_ms}")


@pytest.mark.parametrize("version", [3, 4, 5])
def test_a_producer_that_says_who_it_was(both: Pair, version: int) -> None:
    producer = Producer(both)
    for what, request in {
        "its epoch": producer.init(0),
        "the epoch before: its answer was lost": producer.init(0),
        "the present one": producer.init(1),
        "one that is long over": producer.init(0),
        "one from the future": producer.init(9),
        "a new start": producer.init(),
        "the epoch before a new start": producer.init(2),
    }.items():
        both.compare("InitProducerId", version, request, what)
    unknown = InitProducerIdRequest(
        transactional_id=f"{producer.name}-new", transaction_timeout_ms=1, producer_id=4711, producer_epoch=3
    )
    both.compare("InitProducerId", version, unknown, "an id that nobody knows")
    for claim in ((1 << 40, 0), (5, -1), (-1, 5)):
        request = InitProducerIdRequest(
            transactional_id=producer.name, transaction_timeout_ms=1, producer_id=claim[0], producer_epoch=claim[1]
        )
        both.compare("InitProducerId", version, request, f"claim {claim}")


@pytest.mark.parametrize("version", INIT)
def test_init_aborts_what_is_open(both: Pair, version: int) -> None:
    producer = Producer(both)
    producer.begin()
    answer = both.compare("InitProducerId", version, producer.init(), "while a transaction is open")
    assert answer["error_code"] == 51
    producer.wait_for("CompleteAbort")
    described = DescribeTransactionsRequest(transactional_ids=[producer.name])
    compare_states(both, "DescribeTransactions", 0, lambda side: described, [producer.name])
    answer = both.compare("InitProducerId", version, producer.init(), "tried again")
    assert answer["producer_epoch"] == 2


# Partitions


@pytest.mark.parametrize("version", ADD)
def test_add_partitions(both: Pair, version: int) -> None:
    producer = Producer(both)
    known, unknown = {TOPIC: [0, 1]}, {TOPIC: [0, 7], "oracle-no-such": [0]}
    for what, request in {
        "another producer id": producer.add(version, off=1000, **known),
        "an epoch from the future": producer.add(version, epoch=5, **known),
        "some that do not exist": producer.add(version, **unknown),
        "none at all": producer.add(version),
        "two": producer.add(version, **known),
        "the same again": producer.add(version, **known),
        "some that do not exist, to an open one": producer.add(version, **unknown),
    }.items():
        both.compare("AddPartitionsToTxn", version, request, what)
    for name in ("oracle-unknown-id", ""):
        request = adding(version, name, 1, 0, False, known)
        both.compare("AddPartitionsToTxn", version, request, f"transactional id {name!r}")
    producer.finish(commits=True)
    producer.start()
    both.compare("AddPartitionsToTxn", version, producer.add(version, epoch=0, **known), "an epoch that is over")


@pytest.mark.parametrize("version", [4, 5])
def test_verify_partitions(both: Pair, version: int) -> None:
    producer = Producer(both)
    known = {TOPIC: [0, 1]}
    both.compare("AddPartitionsToTxn", version, producer.add(version, verify=True, **known), "in none")
    producer.begin()
    for what, request in {
        "one of two": producer.add(version, verify=True, **known),
        "one that is in it": producer.add(version, verify=True, **{TOPIC: [0]}),
        "another producer id": producer.add(version, verify=True, off=1000, **known),
        "another epoch": producer.add(version, verify=True, epoch=3, **known),
        "one that does not exist": producer.add(version, verify=True, **{TOPIC: [0, 9]}),
    }.items():
        both.compare("AddPartitionsToTxn", version, request, what)
    producer.finish(commits=False)
    both.compare("AddPartitionsToTxn", version, producer.add(version, verify=True, **known), "after the end")
    for name in ("oracle-unknown-id", ""):
        both.compare("AddPartitionsToTxn", version, adding(version, name, 1, 0, True, known), f"id {name!r}")


@pytest.mark.parametrize("version", [4, 5])
def test_many_transactions_at_once(both: Pair, version: int) -> None:
    one, other = Producer(both), Producer(both)

    def request(side: Side) -> Message:
        parts = [one.add(version, **{TOPIC: [0]})(side), other.add(version, epoch=4, **{TOPIC: [1]})(side)]
        return AddPartitionsToTxnRequest(transactions=[part.transactions[0] for part in parts])  # type: ignore[attr-defined]

    both.compare("AddPartitionsToTxn", version, request)


@pytest.mark.parametrize("version", ADD_OFFSETS)
def test_add_offsets(both: Pair, version: int) -> None:
    producer = Producer(both)
    for what, request in {
        "another producer id": producer.offsets(off=1000),
        "an epoch from the future": producer.offsets(epoch=5),
        "fine": producer.offsets(),
        "again": producer.offsets(),
    }.items():
        both.compare("AddOffsetsToTxn", version, request, what)
    for name in ("oracle-unknown-id", ""):
        request = AddOffsetsToTxnRequest(transactional_id=name, producer_id=1, producer_epoch=0, group_id="g")
        both.compare("AddOffsetsToTxn", version, request, f"transactional id {name!r}")
    producer.finish(commits=False)
    producer.start()
    both.compare("AddOffsetsToTxn", version, producer.offsets(epoch=0), "an epoch that is over")


# EndTxn


@pytest.mark.parametrize("commits", [True, False])
@pytest.mark.parametrize("version", END)
def test_end(both: Pair, version: int, commits: bool) -> None:
    producer = Producer(both)
    both.compare("EndTxn", version, producer.end(True), "commit of nothing")
    both.compare("EndTxn", version, producer.end(False), "abort of nothing")
    producer.begin()
    both.compare("EndTxn", version, producer.end(commits, off=1000), "another producer id")
    both.compare("EndTxn", version, producer.end(commits, epoch=5), "an epoch from the future")
    both.compare("EndTxn", version, producer.end(commits), "the end")
    producer.wait_for("Complete")
    both.compare("EndTxn", version, producer.end(commits), "repeated")
    both.compare("EndTxn", version, producer.end(not commits), "the contrary")
    producer.start()
    both.compare("EndTxn", version, producer.end(commits, epoch=0), "an epoch that is over")
    for name in ("oracle-unknown-id", ""):
        request = EndTxnRequest(transactional_id=name, producer_id=1, producer_epoch=0, committed=commits)
        both.compare("EndTxn", version, request, f"transactional id {name!r}")


# Questions


def test_describe_and_list(both: Pair) -> None:
    idle, opened, committed, aborted = (Producer(both) for _ in range(4))
    for producer in (opened, committed, aborted):
        producer.begin()
    committed.finish(commits=True)
    aborted.finish(commits=False)
    names = [producer.name for producer in (idle, opened, committed, aborted)]
    asked = DescribeTransactionsRequest(transactional_ids=[*names, "oracle-unknown-id", ""])
    compare_states(both, "DescribeTransactions", 0, lambda side: asked, names)
    for version in (0, 1):
        for states in ([], ["Ongoing"], ["Empty", "CompleteCommit"], ["Nonsense"], ["Nonsense", "Ongoing"], ["Dead"]):
            wanted = ListTransactionsRequest(state_filters=states)
            compare_states(both, "ListTransactions", version, lambda side, wanted=wanted: wanted, names)
        compare_states(
            both,
            "ListTransactions",
            version,
            lambda side: ListTransactionsRequest(
                producer_id_filters=[opened.producer_id[side], idle.producer_id[side], 1 << 40]
            ),
            names,
        )
    for duration_ms in (0, 3_600_000):
        wanted = ListTransactionsRequest(duration_filter=duration_ms)
        compare_states(both, "ListTransactions", 1, lambda side, wanted=wanted: wanted, names)


def compare_states(both: Pair, name: str, version: int, request: Callable[[Side], Message], names: list[str]) -> None:
    """Only the ids of this test, in their order, without when they began."""
    answers = []
    for side in both.sides:
        answer = side.normal(side.ask(name, version, request(side)))
        kept = [s for s in answer["transaction_states"] if s["transactional_id"] in names or s.get("error_code")]
        for state in kept:
            began = state.get("transaction_start_time_ms")
            state["transaction_start_time_ms"] = began if began is None or began <= 0 else "some time"
        answer["transaction_states"] = sorted(kept, key=lambda state: str(state["transactional_id"]))
        answers.append(answer)
    assert not unlike(*answers), (name, version, unlike(*answers))


# The log


def test_kafkas_own_formatter_prints_the_records(both: Pair) -> None:
    producer = Producer(both)
    producer.begin()
    producer.finish(commits=True)
    printed = [told_by_formatter(side, producer.name) for side in both.sides]
    assert [state["transactionStatus"] for state in printed[0]] == [0, 1, 2, 4]
    assert not unlike(*([{**state, **OWN} for state in states] for states in printed))


# What differs from one run to the next.
OWN = {"producerId": 0, "transactionLastUpdateTimestampMs": 0, "transactionStartTimestampMs": 0}


def told_by_formatter(side: Side, name: str) -> list[dict[str, Any]]:
    done = run_tool(
        "kafka-console-consumer",
        ["--bootstrap-server", side.broker.bootstrap, "--topic", "__transaction_state", "--from-beginning",
         "--formatter", "org.apache.kafka.tools.consumer.TransactionLogMessageFormatter", "--timeout-ms", "20000"],
    )  # fmt: skip
    decoder, text, found = json.JSONDecoder(), done.stdout, []
    while text := text.lstrip():
        entry, end = decoder.raw_decode(text)
        text = text[end:]
        if entry["key"]["data"]["transactionalId"] == name:
            found.append(entry["value"]["data"])
    assert found, done.stdout + done.stderr
    return found
