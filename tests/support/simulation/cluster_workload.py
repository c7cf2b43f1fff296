"""A random life of a cluster: topics come, change and go, records are written and read, ids are given out, while
brokers, their network and ZooKeeper fail in every way that a seed can draw; then all is healed, and looked at."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from typing import Any, Final, TypeAlias, TypeVar

from braidlog import __version__
from braidlog.client import Consumer, Delivery, Producer, TopicPartition
from braidlog.client.admin import Admin, ConfigResource, NewTopic
from braidlog.client.errors import ClientError
from braidlog.cluster import loading, paths, records
from braidlog.cluster.store import Delete, NoNodeError
from braidlog.cluster.tree import Transaction
from braidlog.core.errors import BraidlogError
from braidlog.core.protocol_errors import ProtocolError
from braidlog.net.outbound.pipelined_connection import PipelinedConnection
from braidlog.net.outbound.reconnecting_connection import open_connection
from braidlog.testing.simulated.cluster import SimulatedCluster
from braidlog.testing.simulated.network import SimulatedConnector
from braidlog.testing.simulated.program import SimulatedProgram
from braidlog.testing.simulated.simulation import BrokerEnded, SimulatedBroker
from braidlog.wire.generated.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from support.simulation.cluster_invariants import (
    Acknowledged,
    ClusterHistory,
    difference,
    first,
    leaders_are_known_to_the_store,
    nothing_acknowledged_is_lost,
)
from support.simulation.invariants import InvariantBroken, check
from support.simulation.store_history import StoreHistory

T = TypeVar("T")
# Called as a method of a workload, with the broker that was drawn; and each with its weight.
Fault: TypeAlias = Callable[[Any, SimulatedBroker], None]
Faults: TypeAlias = tuple[tuple[Fault, int], ...]

# Within this time after the last fault every broker knows what the store says: a session that has to end (6 s, and a
# tick), a request to one that is gone (4 s), the longest pause between two elections (10 s), and what follows.
CONVERGED_S: Final = 40.0
# How long brokers that were killed may take to be back, their old sessions included.
RESTARTED_S: Final = 120.0
READ_S: Final = 120.0
FIRST_ACKNOWLEDGED_S: Final = 30

# Between two faults; a life has one of these: in some each fault meets what the last ones are still doing, in others
# mostly a cluster that has dealt with them.
LONGEST_PAUSES_S: Final = (1.0, 2.0, 4.0)

NAMES: Final = ("alpha", "beta", "gamma")
MOST_PARTITIONS: Final = 4
ADMIN_S: Final = 6.0
SYNCED: Final = {"flush.messages": "1"}
CHANGES: Final = (("segment.bytes", ("2000", "4000", "8000")), ("index.interval.bytes", ("100", "4096")))

SETTINGS: Final = {
    # Housekeeping is the one-broker simulation's.
    "log.retention.check.interval.ms": "60000",
    "log.flush.scheduler.interval.ms": "60000",
    "log.flush.offset.checkpoint.interval.ms": "10000",
    "log.flush.start.offset.checkpoint.interval.ms": "10000",
    "replica.high.watermark.checkpoint.interval.ms": "10000",
    "log.cleaner.enable": "false",
    "log.segment.delete.delay.ms": "500",
}


class ClusterWorkload:
    # Settings of topics that the operator changes, each with its values.
    changes = CHANGES

    def __init__(self, cluster: SimulatedCluster, steps: int, faults: Faults | None = None) -> None:
        """`faults` are those that may happen, each with its weight; all of them where none are given."""
        self._faults_drawn = FAULTS if faults is None else faults
        self.store = StoreHistory(cluster.zookeeper)
        self.history = ClusterHistory(self.store)
        self._cluster = cluster
        self._simulation = cluster.simulation
        self._random = cluster.simulation.random
        self._steps = steps
        # In half of the lives every record is synced before it is acknowledged, and the power may be cut.
        self._synced = self._random.random() < 0.5
        self._pause_s = self._random.choice(LONGEST_PAUSES_S)
        self._running = True
        self._faulty = True
        self._tasks: list[asyncio.Task[None]] = []
        # Ends of faults that last.
        self._faults: list[asyncio.Task[None]] = []
        # The broker that is to be paused after the next write of its controller to the store, and for how long.
        self._pause_after_write: float | None = None
        cluster.zookeeper.on_transaction.append(self._written)
        # Virtual seconds until all brokers agreed with the store.
        self.converged_s = 0.0
        self.admin_answers = 0

    async def run(self) -> None:
        await self._cluster.start()
        for broker in self._cluster.brokers:
            self._spawn(self._keep_up(broker), f"supervisor of {broker.name}")
        await self._start_clients()
        for _ in range(2 * FIRST_ACKNOWLEDGED_S):
            await self._check_after(0.5)
            if self._are_at_work():
                break
        for _ in range(self._steps):
            await self._check_after(self._random.random() * self._pause_s)
            drawn = self._faults_drawn
            fault = self._random.choices([each for each, _ in drawn], [weight for _, weight in drawn])[0]
            self._note(f"FAULT {fault.__name__.strip('_')}")
            fault(self, self._random.choice(self._cluster.brokers))
        await self._check_after(self._random.random() * self._pause_s)
        await self._end_faults()
        await self._until_converged()
        await self._read_all()
        self._check()

    async def _start_clients(self) -> None:
        self._start("operator", self._operate)
        self._start("first", self._produce)
        self._start("second", self._produce)
        self._start("reader", self._consume)
        self._start("ids", self._allocate_ids)

    def _are_at_work(self) -> bool:
        return bool(self.history.acknowledged)

    def _stop_clients(self) -> None:
        """Soon: what they asked before may still come."""
        self._running = False

    # Looking

    async def _check_after(self, seconds: float) -> None:
        await asyncio.sleep(seconds)
        self._check()

    def _check(self) -> None:
        self.store.check()
        for task in self._tasks:
            if task.done():
                task.result()
        leaders_are_known_to_the_store(self._cluster, self.store)
        for problem in self._simulation.loop.problems:
            raise InvariantBroken(f"a callback failed: {problem}") from problem.get("exception")
        for line, cause in self._simulation.errors:
            if (cause is not None and not isinstance(cause, BraidlogError)) or "bug in braidlog" in line:
                raise InvariantBroken(f"a broker logged: {line}") from cause

    async def _end_faults(self) -> None:
        self._note("ALL FAULTS END")
        self._faulty = False
        for each in self._faults:
            each.cancel()
        self._pause_after_write = None
        self._cluster.heal()
        # One that is being stopped is still up.
        await asyncio.gather(*(task for task in self._tasks if task.get_name() == "stop"), return_exceptions=True)
        loop = self._simulation.loop
        deadline = loop.time() + RESTARTED_S
        while not all(broker.is_up and not broker.is_paused for broker in self._cluster.brokers):
            down = [broker.name for broker in self._cluster.brokers if not broker.is_up]
            check(loop.time() < deadline, f"{down} did not start within {RESTARTED_S} s")
            await self._check_after(0.5)

    async def _until_converged(self) -> None:
        """Clients stop changing things first: only what they asked before may still come."""
        self._stop_clients()
        loop = self._simulation.loop
        began = loop.time()
        problem: str | None = "nothing was looked at"
        session = await self._cluster.zookeeper.open_session("verifier")
        while problem is not None:
            check(loop.time() - began < CONVERGED_S, f"{problem} ({CONVERGED_S} s after the last fault)")
            await self._check_after(0.5)
            loaded = await loading.load(session)
            if loaded.deleting:
                problem = f"metadata converges: {[topic.name for topic in loaded.deleting]} are not deleted yet"
                continue
            problem = first(
                f"{found} ({broker.name})" if (found := difference(loaded.image, broker.parts, self.store)) else None
                for broker in self._cluster.brokers
            )
        self.converged_s = loop.time() - began
        self._note(f"CONVERGED after {self.converged_s:.1f} s")
        await session.close()

    async def _read_all(self) -> None:
        """By a client, of all that the store says there is."""
        await self._until_quiet()
        ids = {name: topic_id for name, topic_id in self.store.topics.items() if name in NAMES}
        verifier = SimulatedProgram(self._simulation, "verifier")
        read = await verifier.call(self._read, self._partitions())
        nothing_acknowledged_is_lost(self.history, read, ids)

    async def _until_quiet(self) -> None:
        """A request of the operator may have come after the brokers were compared."""
        for task in self._tasks:
            if task.get_name().startswith("supervisor"):
                task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._tasks = [task for task in self._tasks if not task.cancelled()]
        self._check()
        await asyncio.sleep(2.0)

    def _read(self, partitions: list[TopicPartition]) -> dict[TopicPartition, dict[int, bytes]]:
        found: dict[TopicPartition, dict[int, bytes]] = {partition: {} for partition in partitions}
        if not partitions:
            return found
        consumer = Consumer(bootstrap_servers=self._cluster.servers, auto_offset_reset="earliest")
        ends = consumer.end_offsets(partitions)
        consumer.assign(partitions)
        consumer.seek_to_beginning(partitions)
        deadline = self._simulation.loop.time() + READ_S
        while any(max(found[each], default=-1) < end - 1 for each, end in ends.items()):
            check(self._simulation.loop.time() < deadline, f"{ends} cannot be read within {READ_S} s")
            for record in consumer.poll(1.0):
                found[TopicPartition(record.topic, record.partition)][record.offset] = record.value or b""
        consumer.close()
        return found

    def _partitions(self) -> list[TopicPartition]:
        """What the store says that there is, without those that are being deleted."""
        return [
            TopicPartition(name, index)
            for name, topic_id in self.store.topics.items()
            if name in NAMES and topic_id not in self.store.deleting
            for index in range(self.store.partition_counts.get(topic_id, 0))
        ]

    # Clients

    def _start(self, name: str, work: Callable[[SimulatedProgram, str], Coroutine[Any, Any, None]]) -> None:
        program = SimulatedProgram(self._simulation, name)
        self._tasks.append(program.spawn(work(program, name)))

    def _spawn(self, work: Coroutine[Any, Any, None], name: str) -> None:
        self._tasks.append(self._simulation.loop.create_task(work, name=name))

    async def _operate(self, program: SimulatedProgram, name: str) -> None:
        admin = await program.call(lambda: Admin(bootstrap_servers=self._cluster.servers).within(ADMIN_S))
        operations = self._operations()
        while self._running:
            await asyncio.sleep(self._random.random() * 1.5)
            topic = self._random.choice(NAMES)
            # Without a topic there is nothing to do for anybody.
            has_topics = any(each in self.store.topics for each in NAMES)
            operation = self._random.choice(operations) if has_topics else self._create
            try:
                await operation(program, admin, topic)
                self.admin_answers += 1
            except (BraidlogError, ProtocolError) as problem:
                self._note(f"operator: {operation.__name__.strip('_')} {topic}: {problem!r}")
        await program.call(admin.close)

    def _operations(self) -> tuple[Step, ...]:
        """Each as often as it is named."""
        return (self._create, self._create, self._create, self._delete, self._recreate, self._grow, self._alter)

    async def _create(self, program: SimulatedProgram, admin: Admin, name: str) -> None:
        topic = NewTopic(name, self._random.randint(1, 3), 1, config=SYNCED if self._synced else {})
        created = (await program.call(admin.create_topics, [topic]))[name]
        assert created.topic_id is not None
        self._note(f"operator: {name} is created")
        self.history.was_answered(bytes(created.topic_id) in self.store.ids, f"the creation of {name}")

    async def _delete(self, program: SimulatedProgram, admin: Admin, name: str) -> None:
        before = self.store.topics.get(name)
        (await program.call(admin.delete_topics, [name])).raise_for_errors()
        self._note(f"operator: {name} is deleted")
        # One that came after the question may be the one that was deleted.
        ended = self.store.deleting | self.store.deleted
        self.history.was_answered(
            before is None or before in ended or self.store.topics.get(name) in ended, f"the deletion of {name}"
        )

    async def _recreate(self, program: SimulatedProgram, admin: Admin, name: str) -> None:
        await self._delete(program, admin, name)
        await self._create(program, admin, name)

    async def _grow(self, program: SimulatedProgram, admin: Admin, name: str) -> None:
        topic_id = self.store.topics.get(name)
        count = self.store.partition_counts.get(topic_id or b"", MOST_PARTITIONS) + 1
        if topic_id is None or count > MOST_PARTITIONS:
            return
        (await program.call(admin.create_partitions, {name: count})).raise_for_errors()
        self._note(f"operator: {name} has {count} partitions")
        self.history.was_answered(
            self.store.topics.get(name) != topic_id or self.store.partition_counts[topic_id] >= count,
            f"partition {count - 1} of {name}",
        )

    async def _alter(self, program: SimulatedProgram, admin: Admin, name: str) -> None:
        if name not in self.store.topics:
            return
        key, values = self._random.choice(self.changes)
        value = self._random.choice(values)
        change = {ConfigResource.topic(name): {key: value}}
        (await program.call(admin.alter_configs, change)).raise_for_errors()
        self._note(f"operator: {name} has {key}={value}")
        written = (
            records.decode_config(paths.config(f"topics/{topic}"), data)
            for topic, data in self.store.configs
            if topic == name
        )
        self.history.was_answered(any(each.get(key) == value for each in written), f"{key} of {name}")

    async def _produce(self, program: SimulatedProgram, name: str) -> None:
        producer = Producer(
            bootstrap_servers=self._cluster.servers,
            acks="all",
            max_block_ms=2000,
            request_timeout_ms=2000,
            delivery_timeout_ms=8000,
            retry_backoff_ms=200,
        )
        sent: list[Coroutine[Any, Any, None]] = []
        number = 0
        while self._running:
            await asyncio.sleep(self._random.random() * 1.5)
            partitions = self._partitions()
            if not partitions:
                continue
            sent = []
            for partition in self._random.choices(partitions, k=3):
                value = f"{partition} {name} {number}".encode()
                number += 1
                topic_id = self.store.topics[partition.topic]
                delivery = producer.send(partition.topic, value, partition=partition.partition)
                sent.append(self._delivered(delivery, partition, topic_id, value))
            await asyncio.gather(*sent)
        await program.call(producer.close)

    async def _delivered(self, delivery: Delivery, to: TopicPartition, topic_id: bytes, value: bytes) -> None:
        try:
            written = await delivery
        except (ClientError, ProtocolError) as problem:
            self._note(f"{value.decode()} failed: {problem!r}")
            return
        self.history.deliveries += 1
        if self.store.topics.get(to.topic) == topic_id:
            self.history.acknowledged.append(Acknowledged(to.topic, topic_id, to.partition, written.offset, value))

    async def _consume(self, program: SimulatedProgram, name: str) -> None:
        consumer = await program.call(
            lambda: Consumer(
                bootstrap_servers=self._cluster.servers,
                group_id="readers",
                auto_offset_reset="earliest",
                request_timeout_ms=3000,
                fetch_max_wait_ms=2000,
                heartbeat_interval_ms=2000,
            )
        )
        await program.call(consumer.subscribe, list(NAMES))
        while self._running:
            try:
                for record in await program.call(consumer.poll, 2.0):
                    where = TopicPartition(record.topic, record.partition)
                    value = (record.value or b"").decode()
                    check(value.startswith(f"{where} "), f"{value!r} is read from {where}")
            except (ClientError, ProtocolError) as problem:
                self._note(f"{name}: {problem!r}")
            await asyncio.sleep(self._random.random())
        with suppress(ClientError, ProtocolError):
            await program.call(consumer.close, 5.0)

    async def _allocate_ids(self, program: SimulatedProgram, name: str) -> None:
        """Of every broker in turn, not only of the one that a producer happens to ask."""
        connector = SimulatedConnector(self._simulation.network, program.process)
        request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=60_000)

        async def negotiate(connection: PipelinedConnection) -> None:
            await connection.negotiate(__version__, 2.0)

        while self._running:
            await asyncio.sleep(self._random.random() * 1.5)
            broker = self._random.choice(self._cluster.brokers)
            try:
                connection = await open_connection(connector, broker.address, name, negotiate)
                try:
                    answer = await connection.call(22, request, InitProducerIdResponse, timeout_s=2.0)
                finally:
                    connection.close()
            except (ClientError, ProtocolError):
                continue
            if answer.error_code == 0:
                self.history.got_producer_id(answer.producer_id, broker.name)

    # Faults

    async def _keep_up(self, broker: SimulatedBroker) -> None:
        """Starts it again whenever it is down, soon or late."""
        while True:
            await broker.wait_until_down()
            await asyncio.sleep(self._random.random() * 0.1)
            if self._faulty:
                await asyncio.sleep(self._random.random() * self._random.choice([0.2, 2.0, 10.0]))
            try:
                await broker.start()
            except (BraidlogError, BrokerEnded) as problem:
                self._note(f"{broker.name} did not start: {problem}")

    def _note(self, line: str) -> None:
        self._simulation.trace.note(line)

    def _later(self, seconds: float, end: Callable[[], None]) -> None:
        async def wait() -> None:
            await asyncio.sleep(seconds)
            end()

        self._faults.append(self._simulation.loop.create_task(wait(), name="end of a fault"))

    def _duration(self) -> float:
        """Mostly shorter than a session, now and then longer."""
        return self._random.random() * self._random.choice([1.0, 4.0, 4.0, 14.0])

    def _other(self, broker: SimulatedBroker) -> SimulatedBroker:
        return self._random.choice([each for each in self._cluster.brokers if each is not broker])

    def _controller(self) -> SimulatedBroker | None:
        return next((each for each in self._cluster.brokers if each.is_up and each.parts.controller.active), None)

    def _kill(self, broker: SimulatedBroker) -> None:
        broker.kill()

    def _kill_controller(self, broker: SimulatedBroker) -> None:
        (self._controller() or broker).kill()

    def _lose_power(self, broker: SimulatedBroker) -> None:
        if self._synced:
            broker.cut_power()
        else:
            broker.kill()

    def _restart(self, broker: SimulatedBroker) -> None:
        """Cleanly; its session ends before the process does."""
        if broker.is_up and not broker.is_stopping:
            self._spawn(self._stop(broker), "stop")

    async def _stop(self, broker: SimulatedBroker) -> None:
        with suppress(BrokerEnded):
            await broker.stop()

    def _pause(self, broker: SimulatedBroker) -> None:
        broker.pause(self._duration())

    def _pause_controller(self, broker: SimulatedBroker) -> None:
        (self._controller() or broker).pause(self._duration())

    def _pause_after_next_write(self, broker: SimulatedBroker) -> None:
        """Between a write of the controller to the store and what it tells the brokers of it."""
        self._pause_after_write = self._duration()

    def _written(self, session: int, transaction: Transaction) -> None:
        if self._pause_after_write is None or session != self.store.controllers.get(self.store.epoch):
            return
        controller = self._controller()
        if controller is not None and controller.parts.session.session_id == session:
            seconds, self._pause_after_write = self._pause_after_write, None
            controller.pause(seconds)

    def _partition(self, broker: SimulatedBroker) -> None:
        other = self._other(broker)
        self._cluster.partition(broker, other, both_ways=self._random.random() < 0.7)

        def end() -> None:
            self._cluster.reconnect(broker, other)
            self._cluster.reconnect(other, broker)

        self._later(self._duration(), end)

    def _isolate(self, broker: SimulatedBroker) -> None:
        """From all brokers, not from ZooKeeper."""
        others = [each for each in self._cluster.brokers if each is not broker]
        for other in others:
            self._cluster.partition(broker, other)

        def end() -> None:
            for other in others:
                self._cluster.reconnect(broker, other)
                self._cluster.reconnect(other, broker)

        self._later(self._duration(), end)

    def _slow_link(self, broker: SimulatedBroker) -> None:
        other = self._other(broker)
        self._cluster.slow_down(broker, other)
        self._later(self._duration(), lambda: self._cluster.reconnect(broker, other))

    def _cut_connections(self, broker: SimulatedBroker) -> None:
        self._cluster.cut_connections(broker)

    def _cut_from_zookeeper(self, broker: SimulatedBroker) -> None:
        self._cluster.zookeeper.cut(broker.name)
        self._later(self._duration(), lambda: self._cluster.zookeeper.restore(broker.name))

    def _break_session_link(self, broker: SimulatedBroker) -> None:
        self._cluster.zookeeper.break_link(broker.name)

    def _expire(self, broker: SimulatedBroker) -> None:
        if broker.is_up:
            self._cluster.zookeeper.expire(broker.parts.session.session_id)

    def _expire_controller(self, broker: SimulatedBroker) -> None:
        self._expire(self._controller() or broker)

    def _depose_controller(self, broker: SimulatedBroker) -> None:
        """An operator removes /controller: its session lives, and its process hears of it late."""
        (self._controller() or broker).pause(self._random.random() * 2.0)
        with suppress(NoNodeError):
            self._cluster.zookeeper.transact([Delete(paths.CONTROLLER)], session_id=0)

    def _lose_answers(self, broker: SimulatedBroker) -> None:
        zookeeper = self._cluster.zookeeper
        zookeeper.lose_answer_one_in = self._random.choice([3, 8])

        def end() -> None:
            zookeeper.lose_answer_one_in = 0

        self._later(self._duration(), end)

    def _ensemble_down(self, broker: SimulatedBroker) -> None:
        zookeeper = self._cluster.zookeeper
        if zookeeper.is_up:
            zookeeper.go_down()
            self._later(self._duration(), lambda: None if zookeeper.is_up else zookeeper.come_up())


Step = Callable[[SimulatedProgram, Admin, str], Awaitable[None]]

FAULTS: Final[Faults] = (
    (ClusterWorkload._kill, 3),
    (ClusterWorkload._kill_controller, 2),
    (ClusterWorkload._lose_power, 2),
    (ClusterWorkload._restart, 2),
    (ClusterWorkload._pause, 2),
    (ClusterWorkload._pause_controller, 2),
    (ClusterWorkload._pause_after_next_write, 4),
    (ClusterWorkload._partition, 3),
    (ClusterWorkload._isolate, 2),
    (ClusterWorkload._slow_link, 3),
    (ClusterWorkload._cut_connections, 2),
    (ClusterWorkload._cut_from_zookeeper, 3),
    (ClusterWorkload._break_session_link, 1),
    (ClusterWorkload._expire, 2),
    (ClusterWorkload._expire_controller, 2),
    (ClusterWorkload._depose_controller, 2),
    (ClusterWorkload._lose_answers, 2),
    (ClusterWorkload._ensemble_down, 1),
)
