"""Members of groups and transactional producers, real clients, that go on whatever becomes of their brokers."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import closing
from functools import partial
from typing import Any, Final

from braidlog.client import Consumer, Producer
from braidlog.client.admin import Admin, NewTopic
from braidlog.client.errors import AbortableError, ClientError
from braidlog.core.protocol_errors import ProtocolError
from braidlog.core.types import TopicPartition
from braidlog.testing.simulated.program import SimulatedProgram
from braidlog.testing.simulated.simulation import Simulation
from support.simulation.coordinator_frames import END_TXN, EndTxnFrames, group_observers
from support.simulation.coordinator_history import GroupHistory, TransactionHistory
from support.simulation.frames import REQUEST_TIMEOUT_MS, Frames
from support.simulation.history import PartitionTarget

TOPIC: Final = "work"
PARTITIONS: Final = 4
SESSION_MS: Final = 3_000
# What the members of a group speak: the newer protocol, either, or the classic one with an assignor.
NEWER: Final = "consumer"
MIXED: Final = "mixed"
CLASSIC_GROUPS: Final = {"group-0": "range", "group-1": "cooperative-sticky"}
ALL_GROUPS: Final = {**CLASSIC_GROUPS, "group-2": NEWER, "group-3": MIXED}
MEMBERS: Final = 5
TELLERS: Final = 3


class CoordinatorClients:
    """`servers` are their bootstrap servers; the histories see the frames of all of them."""

    def __init__(
        self,
        simulation: Simulation,
        servers: str,
        spoken: Mapping[str, str] = CLASSIC_GROUPS,
        request_timeout_ms: int = REQUEST_TIMEOUT_MS,
    ) -> None:
        self._spoken = spoken
        self.groups = GroupHistory()
        self.transactions = TransactionHistory()
        self.frames = Frames(
            simulation,
            {
                **group_observers(self.groups, list(spoken), list(CLASSIC_GROUPS)),
                END_TXN: EndTxnFrames(self.transactions),
            },
        )
        # Those that run now, by name.
        self.programs: dict[str, SimulatedProgram] = {}
        self.targets: list[PartitionTarget] = []
        self.running = True
        self._simulation = simulation
        self._random = simulation.random
        self._servers = servers
        self._request_timeout_ms = request_timeout_ms

    def create_topic(self) -> None:
        """In a program's thread; before the clients start."""
        with Admin(bootstrap_servers=self._servers) as admin:
            topic_id = admin.create_topics([NewTopic(TOPIC, PARTITIONS, 1)])[TOPIC].topic_id
        assert topic_id is not None
        self.targets = [PartitionTarget(TOPIC, bytes(topic_id), index) for index in range(PARTITIONS)]

    def start(self) -> list[asyncio.Task[None]]:
        create_task = self._simulation.loop.create_task
        groups = list(self._spoken)
        members = MEMBERS + 2 * (len(groups) - len(CLASSIC_GROUPS))
        return [
            *(
                create_task(self._member(f"member-{n}", groups[n % len(groups)]), name=f"member-{n}")
                for n in range(members)
            ),
            *(create_task(self._teller(f"teller-{n}"), name=f"teller-{n}") for n in range(TELLERS)),
        ]

    def groups_of_transactions(self) -> list[str]:
        """Those whose offsets were sent within transactions."""
        sent = (transaction.offset for transaction in self.transactions.transactions.values())
        return list(dict.fromkeys(offset[0] for offset in sent if offset is not None))

    def committed(self, group: str, partitions: Sequence[int]) -> dict[int, int]:
        with closing(
            Consumer(bootstrap_servers=self._servers, group_id=group, default_api_timeout_ms=20_000)
        ) as consumer:
            wanted = [TopicPartition(TOPIC, index) for index in partitions]
            found = consumer.committed(wanted)
        return {each.partition: -1 if (at := found.get(each)) is None else at.offset for each in wanted}

    def _start_program(self, name: str) -> SimulatedProgram:
        program = self.programs[name] = SimulatedProgram(self._simulation, name)
        return program

    def _sleep(self, longest_s: float) -> None:
        self._simulation.threads.sleep(self._random.random() * longest_s)

    # Members of groups

    async def _member(self, name: str, group: str) -> None:
        """In, at work for a while, and out: by leaving, by a kill that the session outlives, or to join again."""
        consumer: Consumer | None = None
        while self.running:
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
        spoken = self._spoken[group]
        if spoken == MIXED:
            spoken = self._random.choice([NEWER, "cooperative-sticky"])
        protocol: dict[str, Any] = {"group_protocol": NEWER}
        if spoken != NEWER:
            protocol = {
                "partition_assignment_strategy": spoken,
                "session_timeout_ms": SESSION_MS,
                "heartbeat_interval_ms": 700,
            }
        consumer = Consumer(
            bootstrap_servers=self._servers,
            group_id=group,
            **protocol,
            enable_auto_commit=False,
            auto_offset_reset="earliest",
            max_poll_interval_ms=4_000,
            default_api_timeout_ms=5_000,
            request_timeout_ms=self._request_timeout_ms,
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
        while self.running:
            await asyncio.sleep(self._random.random() * 0.3)
            await program.call(partial(self._transact, name, is_explicit))

    def _transact(self, name: str, is_explicit: bool) -> None:
        """Transactions of one producer, until something goes wrong: the next producer of this name clears it up."""
        producer = Producer(
            bootstrap_servers=self._servers,
            transactional_id=name,
            transaction_timeout_ms=4_000,
            max_block_ms=10_000,
            request_timeout_ms=self._request_timeout_ms,
            delivery_timeout_ms=self._request_timeout_ms + 1000,
        )
        if is_explicit:
            speak_explicitly(producer)
        try:
            producer.init_transactions()
            while self.running and self._transaction(producer, name):
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
                target = self._random.choice(self.targets)
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


def speak_explicitly(producer: Producer) -> None:
    """As with a coordinator whose transaction.version is 1."""
    assert producer._transactions is not None
    producer._transactions.manager._coordinator.settle_version = lambda: None  # type: ignore[method-assign]
