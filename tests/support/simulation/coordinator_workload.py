"""Members of groups and transactional producers at work on a broker that falls over."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import closing
from functools import partial
from typing import Final

from braidlog.client import Consumer, Producer
from braidlog.client.admin import Admin, NewTopic
from braidlog.client.consumer.fetch.completed_fetch import AbortedRange
from braidlog.client.errors import AbortableError, ClientError
from braidlog.core.errors import BraidlogError
from braidlog.core.protocol_errors import ProtocolError
from braidlog.core.types import TopicPartition
from braidlog.testing.simulated.program import SimulatedProgram
from braidlog.testing.simulated.simulation import SERVERS, BrokerEnded, Simulation
from support.simulation.coordinator_frames import END_TXN, EndTxnFrames, group_observers
from support.simulation.coordinator_history import GroupHistory, TransactionHistory
from support.simulation.frames import REQUEST_TIMEOUT_MS, Frames
from support.simulation.history import PartitionTarget
from support.simulation.invariants import check, every_request_was_answered, no_bug_was_met
from support.simulation.partition_frames import bytes_of
from support.simulation.raw_client import RawClient
from support.visible import visible_records

TOPIC: Final = "work"
PARTITIONS: Final = 4
READ_COMMITTED: Final = 1
SESSION_MS: Final = 3_000
GROUPS: Final = ("group-0", "group-1")
GROUP_ASSIGNORS: Final = {"group-0": "range", "group-1": "cooperative-sticky"}

SETTINGS: Final = {
    "offsets.topic.num.partitions": "3",
    "transaction.state.log.num.partitions": "2",
    "group.initial.rebalance.delay.ms": "200",
    "group.min.session.timeout.ms": "1000",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "500",
}
# Every append is synced before it is acknowledged: not even a power cut may take anything.
SYNCED: Final = {"log.flush.interval.messages": "1"}


def is_synced(seed: int) -> bool:
    return seed % 3 == 0


def settings_for(seed: int) -> dict[str, str]:
    return {**SETTINGS, **(SYNCED if is_synced(seed) else {})}


class CoordinatorWorkload:
    def __init__(self, simulation: Simulation, steps: int, synced: bool) -> None:
        self.groups = GroupHistory()
        self.transactions = TransactionHistory()
        self._simulation = simulation
        self._random = simulation.random
        self._steps = steps
        self._synced = synced
        self._frames = Frames(
            simulation, {**group_observers(self.groups, GROUPS), END_TXN: EndTxnFrames(self.transactions)}
        )
        self._operator = SimulatedProgram(simulation, "operator")
        self._judging = RawClient(self._operator)
        # Those that run now, by name.
        self._programs: dict[str, SimulatedProgram] = {}
        self._running = True
        self._targets: list[PartitionTarget] = []

    async def run(self) -> None:
        await self._restart()
        topic_id = await self._operator.call(self._create_topic)
        self._targets = [PartitionTarget(TOPIC, topic_id, index) for index in range(PARTITIONS)]
        workers = [
            *(asyncio.create_task(self._member(f"member-{n}", GROUPS[n % 2])) for n in range(5)),
            *(asyncio.create_task(self._teller(f"teller-{n}")) for n in range(3)),
        ]
        steps = [step for step, _, power in STEPS if self._synced or not power]
        weights = [weight for _, weight, power in STEPS if self._synced or not power]
        for _ in range(self._steps):
            await asyncio.sleep(self._random.random() * 2)
            step = self._random.choices(steps, weights)[0]
            self._simulation.trace.note(f"STEP {step.__name__}")
            await step(self)
            await self._revive()
            self._check(workers)
        self._running = False
        await asyncio.gather(*workers)
        await self._judge()
        await self._simulation.broker.stop()
        await self._restart()
        await self._judge()
        self._check(workers)

    def _check(self, workers: list[asyncio.Task[None]]) -> None:
        for worker in workers:
            if worker.done():
                worker.result()
        every_request_was_answered(self._frames)
        no_bug_was_met(self._simulation)

    def _create_topic(self) -> bytes:
        with Admin(bootstrap_servers=SERVERS) as admin:
            topic_id = admin.create_topics([NewTopic(TOPIC, PARTITIONS, 1)])[TOPIC].topic_id
        assert topic_id is not None
        return bytes(topic_id)

    def _start_program(self, name: str) -> SimulatedProgram:
        program = self._programs[name] = SimulatedProgram(self._simulation, name)
        return program

    def _sleep(self, longest_s: float) -> None:
        self._simulation.threads.sleep(self._random.random() * longest_s)

    # Members of groups

    async def _member(self, name: str, group: str) -> None:
        """In, at work for a while, and out: by leaving, by a kill that the session outlives, or to join again."""
        consumer: Consumer | None = None
        while self._running:
            await asyncio.sleep(self._random.random() * 0.5)
            if consumer is None:
                program = self._start_program(name)
                consumer = await program.call(partial(self._new_member, group))
            await program.call(partial(self._work, consumer, self._random.randint(1, 8)))
            manner = self._random.randrange(3)
            if manner == 0:
                await program.call(consumer.close, 3.0)
            elif manner == 1:
                program.kill()
                await asyncio.sleep(SESSION_MS / 1000 * self._random.choice([0.0, 1.5]))
            else:
                await program.call(consumer.enforce_rebalance)
                continue
            consumer = None
        if consumer is not None:
            await program.call(consumer.close, 3.0)

    def _new_member(self, group: str) -> Consumer:
        consumer = Consumer(
            bootstrap_servers=SERVERS,
            group_id=group,
            partition_assignment_strategy=GROUP_ASSIGNORS[group],
            enable_auto_commit=False,
            auto_offset_reset="earliest",
            session_timeout_ms=SESSION_MS,
            heartbeat_interval_ms=700,
            max_poll_interval_ms=4_000,
            default_api_timeout_ms=5_000,
            request_timeout_ms=REQUEST_TIMEOUT_MS,
            # Its records do not matter here.
            fetch_min_bytes=100_000,
            fetch_max_wait_ms=5_000,
        )
        consumer.subscribe([TOPIC])
        return consumer

    def _work(self, consumer: Consumer, times: int) -> None:
        for _ in range(times):
            try:
                consumer.poll(self._random.random() * 1.5)
                owned = sorted(consumer.assignment())
                if owned and self._random.random() < 0.7:
                    partition = self._random.choice(owned)
                    found = consumer.committed([partition]).get(partition)
                    offset = (0 if found is None else found.offset) + self._random.randint(1, 5)
                    consumer.commit({partition: offset})
            except (ClientError, ProtocolError) as problem:
                self._simulation.trace.note(f"a member failed: {problem!r}")
                self._sleep(0.2)

    # Transactions

    async def _teller(self, name: str) -> None:
        program = self._start_program(name)
        # Both manners of the protocol: with partitions added by request, and by the produce itself (KIP-890).
        is_explicit = self._random.random() < 0.5
        while self._running:
            await asyncio.sleep(self._random.random() * 0.3)
            await program.call(partial(self._transact, name, is_explicit))

    def _transact(self, name: str, is_explicit: bool) -> None:
        """Transactions of one producer, until something goes wrong: the next producer of this name clears it up."""
        producer = Producer(
            bootstrap_servers=SERVERS,
            transactional_id=name,
            transaction_timeout_ms=4_000,
            max_block_ms=10_000,
            request_timeout_ms=REQUEST_TIMEOUT_MS,
            delivery_timeout_ms=REQUEST_TIMEOUT_MS + 1000,
        )
        if is_explicit:
            speak_explicitly(producer)
        try:
            producer.init_transactions()
            while self._running and self._transaction(producer, name):
                self._sleep(0.3)
        except (ClientError, ProtocolError) as problem:
            self._simulation.trace.note(f"{name} failed: {problem!r}")
        finally:
            producer.close(0)

    def _transaction(self, producer: Producer, name: str) -> bool:
        """Whether it came to an end."""
        transaction = self.transactions.begin(name)
        producer.begin_transaction()
        try:
            for step in range(self._random.randint(1, 4)):
                target = self._random.choice(self._targets)
                names = [f"{transaction}/{step}.{number}" for number in range(self._random.randint(1, 3))]
                self.transactions.wrote(transaction, target, names)
                sent = [producer.send(TOPIC, b"", each, partition=target.partition) for each in names]
                for each in sent:
                    each.result()
                self.transactions.acknowledged(transaction, target, names)
                self._sleep(0.2)
            if self._random.random() < 0.6:
                offset = int(transaction.partition("/")[2])
                self.transactions.offset_sent(transaction, f"of-{name}", offset)
                producer.send_offsets_to_transaction({TopicPartition(TOPIC, 0): offset}, f"of-{name}")
            manner = self._random.random()
            if manner < 0.1:
                # Walks away; its time runs out, or the next producer's start ends it.
                self._sleep(8.0)
                return False
            if manner < 0.75:
                producer.commit_transaction()
                self.transactions.ended(transaction, True)
            else:
                producer.abort_transaction()
                self.transactions.ended(transaction, False)
        except AbortableError as problem:
            self._simulation.trace.note(f"{transaction} is aborted: {problem!r}")
            producer.abort_transaction()
        return True

    # Steps

    async def _wait(self) -> None:
        await asyncio.sleep(self._random.random() * self._random.choice([0.5, 5.0]))

    async def _hang_up(self) -> None:
        self._random.choice(list(self._programs.values())).cut()

    async def _kill(self) -> None:
        self._simulation.broker.kill()

    async def _stop(self) -> None:
        await self._simulation.broker.stop()

    async def _end_within_an_operation(self) -> None:
        self._simulation.disk.end_process_after(self._random.randrange(60))
        for _ in range(20):
            await asyncio.sleep(0.2)
            if not self._simulation.broker.is_up:
                return
        self._simulation.broker.kill()

    async def _fill_disk(self) -> None:
        disk = self._simulation.disk
        disk.capacity = disk.used + self._random.randint(0, 2000)
        await asyncio.sleep(self._random.random() * 3)
        disk.repair()

    async def _cut_power(self) -> None:
        self._simulation.broker.cut_power()

    # Falling and rising

    async def _revive(self) -> None:
        broker = self._simulation.broker
        if broker.is_up and len(broker.parts.logs.online_directories) < len(broker.parts.logs.directories):
            broker.kill()
        if not broker.is_up:
            self._simulation.disk.repair()
            await self._restart()

    async def _restart(self) -> None:
        while self._simulation.broker.is_down:
            if self._random.randrange(5) == 0:
                self._simulation.disk.end_process_after(self._random.randrange(100))
            try:
                await self._simulation.broker.start()
            except BrokerEnded:
                continue
            except BraidlogError as problem:
                raise AssertionError(f"the broker does not start: {problem}") from problem
            finally:
                self._simulation.disk.repair()

    # The judge

    async def _judge(self) -> None:
        """Once everything has come to rest: what can be read is what was promised."""
        # Whatever was left lying is aborted by then.
        await asyncio.sleep(20)
        visible = {target: await self._read(target) for target in self._targets}
        offsets: dict[str, int] = {}
        for group in dict.fromkeys(
            transaction.offset[0]
            for transaction in self.transactions.transactions.values()
            if transaction.offset is not None
        ):
            offsets[group] = (await self._operator.call(partial(self._committed, group, [0])))[0]
        self.transactions.check_visible(visible, offsets)
        await self._operator.call(partial(self._compare, visible))
        for group in GROUPS:
            promised = {index: self.groups.promised(group, index) for index in range(PARTITIONS)}
            if max(promised.values()) < 0:
                continue
            found = await self._operator.call(partial(self._committed, group, range(PARTITIONS)))
            for index, offset in found.items():
                self.groups.fetched(group, index, offset, promised[index])

    def _committed(self, group: str, partitions: Sequence[int]) -> dict[int, int]:
        with closing(Consumer(bootstrap_servers=SERVERS, group_id=group, default_api_timeout_ms=20_000)) as consumer:
            wanted = [TopicPartition(TOPIC, index) for index in partitions]
            found = consumer.committed(wanted)
        return {each.partition: -1 if (at := found.get(each)) is None else at.offset for each in wanted}

    def _compare(self, visible: Mapping[PartitionTarget, list[str]]) -> None:
        """A read_committed consumer gives a program the same."""
        given: dict[int, list[str]] = {target.partition: [] for target in visible}
        left = sum(map(len, visible.values()))
        with closing(Consumer(bootstrap_servers=SERVERS, isolation_level="read_committed")) as consumer:
            consumer.assign([TopicPartition(TOPIC, index) for index in given])
            consumer.seek_to_beginning()
            while left > 0 and (records := consumer.poll(10.0)):
                left -= len(records)
                for record in records:
                    given[record.partition].append((record.key or b"").decode())
        for target, names in visible.items():
            check(given[target.partition] == names, f"{target}: {names} are visible, a program got {given}")

    async def _read(self, target: PartitionTarget) -> list[str]:
        """What a read_committed reader gets, and that it gets to the end."""
        names: list[str] = []
        offset = 0
        while True:
            data = await self._judging.fetch(target, offset, 3_000, READ_COMMITTED)
            check(data.error_code == 0, f"{target}: reading at {offset} failed with code {data.error_code}")
            check(
                data.last_stable_offset == data.high_watermark,
                f"{target}: a transaction hangs: stable up to {data.last_stable_offset} of {data.high_watermark}",
            )
            aborted = [AbortedRange(each.producer_id, each.first_offset) for each in data.aborted_transactions or []]
            seen = visible_records(bytes_of(data.records), offset, aborted)
            names += [(record.key or b"").decode() for record in seen.records]
            if seen.next_offset >= data.high_watermark:
                return names
            check(seen.next_offset > offset, f"{target}: no progress at {offset} of {data.high_watermark}")
            offset = seen.next_offset


def speak_explicitly(producer: Producer) -> None:
    """As with a coordinator whose transaction.version is 1."""
    assert producer._transactions is not None
    producer._transactions.manager._coordinator.settle_version = lambda: None  # type: ignore[method-assign]


Step = Callable[[CoordinatorWorkload], Awaitable[None]]

# (what happens, how often, whether it takes a power cut)
STEPS: Final[list[tuple[Step, int, bool]]] = [
    (CoordinatorWorkload._wait, 8, False),
    (CoordinatorWorkload._hang_up, 3, False),
    (CoordinatorWorkload._kill, 4, False),
    (CoordinatorWorkload._stop, 2, False),
    (CoordinatorWorkload._end_within_an_operation, 5, False),
    (CoordinatorWorkload._fill_disk, 3, False),
    (CoordinatorWorkload._cut_power, 4, True),
]
