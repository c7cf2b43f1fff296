"""Any interleaving of producers, zombies, timeouts, markers, crashes: a transaction is all or nothing.

Producers of both transaction versions share transactional ids, of which one starts close to the end of its epochs;
partitions keep what was written to them. Named invariants:

    one outcome      all data of a transaction gets the outcome that its Prepare record says, in every partition, once
    fenced           a request under an epoch that is over changes nothing
    late             a request repeated after its transaction ended never reaches the next one (transaction version 2)
    told             who is told that a transaction was committed finds it committed
    legal            states follow each other as the table says
    durable          what a replay of the log gives is what the shard holds
    in the end       nothing decided stays without its markers
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from braidlog.coordinator.effects import SendMarkers
from braidlog.coordinator.shard import ReplayedRecord
from braidlog.coordinator.txn import records
from braidlog.coordinator.txn.shard import TransactionCoordinatorShard
from braidlog.coordinator.txn.transaction_metadata import (
    LAST_EPOCH,
    TRANSITIONS,
    TransactionMetadata,
    TransactionState,
    TxnSettings,
)
from braidlog.core.types import TopicPartition
from braidlog.wire.generated.add_partitions_to_txn import AddPartitionsToTxnTopic, AddPartitionsToTxnTransaction
from braidlog.wire.generated.end_txn import EndTxnRequest
from braidlog.wire.generated.init_producer_id import InitProducerIdRequest
from support.responders import START_MS, RecordingResponder, ShardDriver

IDS = ("a", "worn", "b")
PARTITIONS = [TopicPartition("t", 0), TopicPartition("t", 1), TopicPartition("u", 0)]
TIMEOUT_MS = 60_000


@dataclass
class Batch:
    producer_id: int
    epoch: int
    # Which transaction of which id: (transactional id, how many were decided before).
    label: tuple[str, int]
    outcome: bool | None = None


@dataclass
class Instance:
    """A producer that may have been replaced without knowing it."""

    transactional_id: str
    version: int
    producer_id: int = -1
    epoch: int = -1
    ready: bool = False
    # Somebody else has started under the same id since.
    fenced: bool = False
    open: bool = False
    adds: list[AddPartitionsToTxnTransaction] = field(default_factory=list)
    ended: list[tuple[EndTxnRequest, Any, int]] = field(default_factory=list)


class Transactions(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.next_id = 100
        self.driver: ShardDriver[TransactionCoordinatorShard] = ShardDriver(self.make_shard)
        self.partitions: dict[TopicPartition, list[Batch]] = {partition: [] for partition in PARTITIONS}
        # Markers that are in a partition, or failed to get there, and whose attempt has not heard of it yet.
        self.unconfirmed: list[tuple[SendMarkers, TopicPartition, bool]] = []
        self.instances: list[Instance] = []
        self.failing: set[TopicPartition] = set()
        self.decided: dict[str, list[bool]] = {name: [] for name in IDS}
        self.seen_records = 0
        self.last_state: dict[str, TransactionState] = {}

    def make_shard(self) -> TransactionCoordinatorShard:
        return TransactionCoordinatorShard(lambda: TxnSettings(id_expiration_ms=3_600_000), self.take_id, 7)

    def take_id(self) -> int:
        self.next_id += 1
        return self.next_id

    @initialize()
    def start(self) -> None:
        """One id has nearly used up its epochs; two of five producers are zombies from the beginning."""
        worn = TransactionMetadata(
            "worn", 50, LAST_EPOCH - 2, TIMEOUT_MS, TransactionState.Empty, frozenset(), START_MS
        )
        key, value = records.encode_key("worn"), records.encode_value(worn)
        self.driver.log.append(ReplayedRecord(0, START_MS, key, value))
        self.driver.crash()
        self.settle()
        for name, version in (("a", 0), ("a", 2), ("worn", 0), ("worn", 2), ("b", 2)):
            self.instances.append(Instance(name, version))
            self.initialise(len(self.instances) - 1, claims=False)
            assert self.instances[-1].ready

    # What the broker does with what the shard decides

    def settle(self) -> None:
        """Look at the new records, then append the markers that were asked for."""
        while self.seen_records < len(self.driver.log):
            self.look_at(self.driver.log[self.seen_records])
            self.seen_records += 1
        actions, self.driver.actions = self.driver.actions, []
        for action in actions:
            self.append_markers(action)

    def look_at(self, record: Any) -> None:
        name, transaction = records.decode(record)
        if transaction is None:
            assert self.last_state.pop(name) in (
                TransactionState.Empty,
                TransactionState.CompleteAbort,
                TransactionState.CompleteCommit,
            )
            return
        before = self.last_state.get(name)
        if before is not None:
            assert transaction.state in TRANSITIONS[before], f"legal: {before.name} -> {transaction.state.name}"
        self.last_state[name] = transaction.state
        if transaction.prepared:
            self.decided[name].append(transaction.commits)

    def append_markers(self, action: SendMarkers) -> None:
        assert action.coordinator_epoch == 7
        label = (action.transactional_id, len(self.decided[action.transactional_id]) - 1)
        assert self.decided[label[0]][label[1]] == action.commits, "one outcome: the marker says otherwise"
        for partition in action.partitions:
            failed = partition in self.failing
            if not failed:
                for batch in self.partitions[partition]:
                    if batch.producer_id == action.producer_id and batch.outcome is None:
                        assert batch.label == label, "one outcome: the marker of another transaction"
                        assert batch.epoch <= action.producer_epoch
                        batch.outcome = action.commits
            self.unconfirmed.append((action, partition, failed))

    def state_of(self, instance: Instance) -> TransactionMetadata | None:
        return self.driver.shard.transactions.get(instance.transactional_id)

    def is_stale(self, instance: Instance) -> bool:
        transaction = self.state_of(instance)
        if transaction is None:
            return True
        return (transaction.producer_id, transaction.producer_epoch) != (instance.producer_id, instance.epoch)

    def instance(self, number: int) -> Instance:
        return self.instances[number % len(self.instances)]

    # Producers

    @rule(number=st.integers(0, 4), claims=st.booleans())
    def initialise(self, number: int, claims: bool) -> None:
        instance = self.instance(number)
        request = InitProducerIdRequest(transactional_id=instance.transactional_id, transaction_timeout_ms=TIMEOUT_MS)
        claims = claims and instance.ready
        if claims:
            request.producer_id, request.producer_epoch = instance.producer_id, instance.epoch
        before = self.state_of(instance)
        if before is None:
            claims = False  # forgotten by the coordinator: whoever comes first starts anew
        durable = self.driver.shard.durable_state()
        responder = self.driver.submit(lambda shard, responder, now: shard.init_producer_id(request, responder, now))
        self.settle()
        if responder.response is not None:
            assert not (claims and instance.fenced), "fenced: a zombie recovered"
            assert responder.response.producer_epoch <= LAST_EPOCH, "the epoch for fencing was given away"
            if not claims:
                for other in self.instances:
                    other.fenced = other.fenced or other.transactional_id == instance.transactional_id
                instance.fenced = False
            instance.producer_id = responder.response.producer_id
            instance.epoch = responder.response.producer_epoch
            instance.ready, instance.open = True, False
            instance.adds.clear()
            instance.ended.clear()
        elif claims and before is not None:
            mine = (instance.producer_id, instance.epoch) == (before.producer_id, before.producer_epoch)
            assert mine or self.driver.shard.durable_state() == durable, "fenced: a stale claim changed something"
        if claims and instance.fenced:
            assert self.driver.shard.durable_state() == durable, "fenced: a zombie changed something"

    def wanted(self, instance: Instance, partitions: list[TopicPartition]) -> AddPartitionsToTxnTransaction:
        topics = [AddPartitionsToTxnTopic(name=p.topic, partitions=[p.partition]) for p in partitions]
        return AddPartitionsToTxnTransaction(
            transactional_id=instance.transactional_id,
            producer_id=instance.producer_id,
            producer_epoch=instance.epoch,
            topics=topics,
        )

    def add(self, instance: Instance, wanted: AddPartitionsToTxnTransaction) -> RecordingResponder:
        version = instance.version
        responder = self.driver.submit(
            lambda shard, responder, now: shard.add_partitions(wanted, version, responder, now)
        )
        self.settle()
        return responder

    @rule(number=st.integers(0, 4), chosen=st.sets(st.sampled_from(PARTITIONS), min_size=1))
    def produce(self, number: int, chosen: set[TopicPartition]) -> None:
        """Add partitions, then write to those that the coordinator vouches for."""
        instance = self.instance(number)
        if not instance.ready:
            return
        partitions = sorted(chosen)
        stale = self.is_stale(instance)
        durable = self.driver.shard.durable_state()
        wanted = self.wanted(instance, partitions)
        responder = self.add(instance, wanted)
        if stale or instance.fenced:
            assert responder.error is not None
            assert self.driver.shard.durable_state() == durable, "fenced: an add changed something"
        if responder.response is None:
            return
        instance.open = True
        instance.adds.append(wanted)
        verified = self.driver.submit(lambda shard, responder, now: shard.verify_partitions(wanted, responder, now))
        assert verified.error is None
        label = (instance.transactional_id, len(self.decided[instance.transactional_id]))
        for topic in verified.response.topic_results:
            for result in topic.results_by_partition:
                assert result.partition_error_code == 0
                written = self.partitions[TopicPartition(topic.name, result.partition_index)]
                written.append(Batch(instance.producer_id, instance.epoch, label))

    @rule(number=st.integers(0, 4), commits=st.booleans())
    def end(self, number: int, commits: bool) -> None:
        instance = self.instance(number)
        if not instance.ready:
            return
        request = EndTxnRequest(
            transactional_id=instance.transactional_id,
            producer_id=instance.producer_id,
            producer_epoch=instance.epoch,
            committed=commits,
        )
        stale = self.is_stale(instance)
        durable = self.driver.shard.durable_state()
        responder = self.ask_end(request, instance)
        if stale:
            assert self.driver.shard.durable_state() == durable, "fenced: an end changed something"
        if responder.response is None:
            return
        assert not instance.fenced, "fenced: a zombie was told of success"
        # That is how it was decided, be it by an earlier request.
        assert self.decided[instance.transactional_id][-1] == commits, "told: decided otherwise"
        instance.open = False
        instance.ended.append((request, responder.response, len(self.decided[instance.transactional_id])))
        if instance.version == 2:
            instance.producer_id = responder.response.producer_id
            instance.epoch = responder.response.producer_epoch
            assert instance.epoch <= LAST_EPOCH, "the epoch for fencing was given away"

    def ask_end(self, request: EndTxnRequest, instance: Instance) -> RecordingResponder:
        moves = instance.version == 2
        responder = self.driver.submit(lambda shard, responder, now: shard.end_txn(request, moves, responder, now))
        self.settle()
        return responder

    @precondition(lambda self: any(i.version == 2 and i.ended for i in self.instances))
    @rule(number=st.integers(0, 4), which=st.integers(0, 3))
    def repeat_end(self, number: int, which: int) -> None:
        able = [instance for instance in self.instances if instance.version == 2 and instance.ended]
        self.repeat_end_of(able[number % len(able)], which)

    def repeat_end_of(self, instance: Instance, which: int) -> None:
        request, reported, decided = instance.ended[which % len(instance.ended)]
        durable = self.driver.shard.durable_state()
        transaction = self.state_of(instance)
        responder = self.ask_end(request, instance)
        assert self.driver.shard.durable_state() == durable, "late: a repeated EndTxn changed something"
        if responder.response is not None:
            assert responder.response == reported
        settled = transaction is not None and not transaction.prepared and transaction.state != TransactionState.Ongoing
        if settled and transaction is not None and transaction.state != TransactionState.Empty:
            last = len(self.decided[instance.transactional_id]) == decided and not self.is_stale(instance)
            assert not last or responder.response == reported, "a repeated EndTxn is told something else"

    @precondition(lambda self: any(i.version == 2 and i.adds and i.ended for i in self.instances))
    @rule(number=st.integers(0, 4), which=st.integers(0, 3))
    def late_add(self, number: int, which: int) -> None:
        able = [i for i in self.instances if i.version == 2 and i.adds and i.ended]
        self.late_add_of(able[number % len(able)], which)

    def late_add_of(self, instance: Instance, which: int) -> None:
        wanted = instance.adds[which % len(instance.adds)]
        if (wanted.producer_id, wanted.producer_epoch) == (instance.producer_id, instance.epoch):
            return  # of the present transaction: a plain repetition
        durable = self.driver.shard.durable_state()
        self.add(instance, wanted)
        assert self.driver.shard.durable_state() == durable, "late: an add reached the next transaction"

    @rule(
        number=st.integers(0, 4),
        chosen=st.sets(st.sampled_from(PARTITIONS), min_size=1, max_size=2),
        commits=st.booleans(),
        again=st.sampled_from(["", "end", "add", "end while open", "add while open"]),
    )
    def whole_transaction(self, number: int, chosen: set[TopicPartition], commits: bool, again: str) -> None:
        """From the first batch to the last marker, and something late behind it, so that the deep states are met."""
        self.confirm_all()
        instance = self.instance(number)
        if not instance.ready or self.is_stale(instance):
            self.initialise(number, claims=False)
            self.confirm_all()
            self.initialise(number, claims=False)
        unhindered = not self.failing
        assert not unhindered or not self.is_stale(instance), "a producer cannot start"
        self.produce(number, chosen)
        assert not unhindered or instance.open, "a producer cannot begin"
        self.end(number, commits)
        assert not unhindered or not instance.open, "a producer cannot end"
        self.confirm_all()
        transaction = self.state_of(instance)
        if unhindered and instance.version == 2:
            assert transaction is not None
            current = (transaction.producer_id, transaction.producer_epoch)
            assert current == (instance.producer_id, instance.epoch), "told another id or epoch than came to be"
        if again.endswith("while open"):
            self.produce(number, chosen)
        if "end" in again and instance.version == 2 and instance.ended:
            self.repeat_end_of(instance, len(instance.ended) - 1)
        if "add" in again and instance.version == 2 and instance.adds:
            self.late_add_of(instance, 0)

    # Markers

    @rule()
    def confirm_all(self) -> None:
        for _ in range(10):
            for _ in range(len(self.unconfirmed)):
                self.confirm(0, False)

    @rule(failing=st.sets(st.sampled_from(PARTITIONS), max_size=2))
    def break_partitions(self, failing: set[TopicPartition]) -> None:
        self.failing = failing

    @precondition(lambda self: self.unconfirmed)
    @rule(which=st.integers(0, 20), twice=st.booleans())
    def confirm(self, which: int, twice: bool) -> None:
        action, partition, failed = self.unconfirmed.pop(which % len(self.unconfirmed))
        for _ in range(2 if twice else 1):
            if failed:
                self.driver.apply(self.driver.shard.retry_markers(action, self.driver.now))
            else:
                self.driver.apply(self.driver.shard.markers_written(action, [partition], self.driver.now))
            self.settle()

    # Time and failures

    @rule(seconds=st.sampled_from([1.0, 30.0, 61.0, 4_000.0]))
    def let_time_pass(self, seconds: float) -> None:
        self.driver.advance(seconds)
        self.settle()

    @rule()
    def crash(self) -> None:
        """Whatever was under way is gone; what is in partitions stays."""
        self.unconfirmed.clear()
        self.driver.actions.clear()
        self.driver.crash()
        self.settle()

    @rule()
    def rebuild(self) -> None:
        """The shard is made anew while appends of the old one are still being confirmed."""
        self.driver.crash()
        self.settle()

    @invariant()
    def holds(self) -> None:
        assert self.driver.rebuilt().durable_state() == self.driver.shard.durable_state(), "durable"
        for batches in self.partitions.values():
            for batch in batches:
                name, number = batch.label
                if batch.outcome is not None:
                    assert self.decided[name][number] == batch.outcome, "one outcome"

    def teardown(self) -> None:
        """Let everything finish: what was decided reaches every partition, what was left open is aborted in time."""
        self.failing = set()
        for _ in range(200):
            while self.unconfirmed:
                self.confirm(0, False)
            self.driver.advance(61.0)
            self.settle()
            if not self.unconfirmed:
                break
        for name, transaction in self.driver.shard.transactions.items():
            assert transaction.idle, f"in the end: {name} is still {transaction.state.name}"
        for partition, batches in self.partitions.items():
            for batch in batches:
                name, number = batch.label
                assert batch.outcome is not None, f"in the end: {partition} has data without an outcome"
                assert self.decided[name][number] == batch.outcome


TestTransactions = Transactions.TestCase
TestTransactions.settings = settings(
    max_examples=100, stateful_step_count=40, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
