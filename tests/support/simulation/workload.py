"""A random life of one broker: producers and readers at work, topics coming and going, and whatever may go wrong."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from typing import Any, Final, TypeVar

from braidlog.client import Consumer, ConsumerRecord, Delivery, Producer
from braidlog.client.admin import Admin, ConfigResource, NewTopic, Replica, TopicId
from braidlog.client.errors import ClientError
from braidlog.core.errors import BraidlogError
from braidlog.core.protocol_errors import OffsetOutOfRangeError, ProtocolError, TopicAlreadyExistsError
from braidlog.core.types import TopicPartition
from braidlog.testing.simulated.disk import SYNC, WRITE
from braidlog.testing.simulated.program import SimulatedProgram
from braidlog.testing.simulated.simulation import SERVERS, BrokerEnded, Simulation
from support.simulation.frames import REQUEST_TIMEOUT_MS, Frames
from support.simulation.history import NAME_HEADER, History, PartitionHistory, PartitionRead, PartitionTarget, Stored
from support.simulation.invariants import (
    InvariantBroken,
    check,
    every_request_was_answered,
    examine,
    idempotence_is_never_lost,
    no_bug_was_met,
    observe,
    watermarks_are_ordered,
    what_survived_is_what_was_written,
)
from support.simulation.partition_frames import FETCH, PRODUCE, FetchFrames, ProduceFrames
from support.simulation.raw_client import EARLIEST, LATEST, NoAnswer, RawClient
from support.simulation.settings import CHANGES, DIRECTORIES, KINDS

T = TypeVar("T")

CODECS: Final = ("none", "none", "none", "gzip", "snappy", "lz4", "zstd")
MOST_TOPICS: Final = 4
MOST_PARTITIONS: Final = 4
# How long an admin asks again while the broker is away.
ADMIN_S: Final = 8.0
# A producer does not wait longer than this before it sends more.
ROUND_S: Final = 3.0

KEEN: Final[Mapping[str, Any]] = {"acks": "all", "enable_idempotence": True}
ONCE: Final[Mapping[str, Any]] = {"acks": "1", "enable_idempotence": False, "retries": 0}
MUTE: Final[Mapping[str, Any]] = {"acks": "0", "enable_idempotence": False, "retries": 0}


class Workload:
    def __init__(self, simulation: Simulation, steps: int) -> None:
        self.history = History()
        self._simulation = simulation
        self._random = simulation.random
        self._steps = steps
        self._produced = ProduceFrames(self.history)
        self._operator = SimulatedProgram(simulation, "operator")
        # After a power cut the network is closed to all others until it has looked.
        self._verifying = SimulatedProgram(simulation, "verifier")
        self._verifier = RawClient(self._verifying)
        fetched = FetchFrames(self.history, self._verifying.process)
        self._frames = Frames(simulation, {PRODUCE: self._produced, FETCH: fetched})
        self._programs: list[SimulatedProgram] = []
        self._names = 0
        self._running = True

    async def run(self) -> None:
        await self._restart()
        self._admin = await self._operator.call(self._new_admin)
        while not self.history.topics:
            await self._create_topic()
        workers = [
            self._start_program("keen", self._produce, KEEN),
            self._start_program("able", self._produce, KEEN),
            self._start_program("once", self._produce, ONCE),
            self._start_program("mute", self._produce, MUTE),
            self._start_program("reader", self._consume, {}),
            self._start_program("sipper", self._consume, {}),
        ]
        for _ in range(self._steps):
            await asyncio.sleep(self._random.random())
            step = self._random.choices([step for step, _ in STEPS], [weight for _, weight in STEPS])[0]
            self._simulation.trace.note(f"STEP {step.__name__}")
            try:
                await step(self)
            except NoAnswer:
                pass
            except ProtocolError as refused:
                self._simulation.trace.note(f"refused: {refused!r}")
            await self._revive()
            self._check(workers)
        self._running = False
        await asyncio.gather(*workers)
        await self._verify_all()
        await self._simulation.broker.stop()
        await self._restart()
        await self._verify_all()
        self._check(workers)

    def _check(self, workers: list[asyncio.Task[None]]) -> None:
        for worker in workers:
            if worker.done():
                worker.result()
        if self._simulation.broker.is_up:
            watermarks_are_ordered(self._simulation.broker.parts)
        idempotence_is_never_lost(self.history)
        every_request_was_answered(self._frames)
        no_bug_was_met(self._simulation)

    # Clients at work

    def _start_program(self, name: str, work: Work, settings: Mapping[str, Any]) -> asyncio.Task[None]:
        program = SimulatedProgram(self._simulation, name)
        self._programs.append(program)
        return program.spawn(work(program, name, settings))

    async def _produce(self, program: SimulatedProgram, name: str, settings: Mapping[str, Any]) -> None:
        producer = Producer(
            bootstrap_servers=SERVERS,
            compression_type=self._random.choice(CODECS),
            # Small ones, so that several of a partition are under way.
            batch_size=self._random.choice([1, 150, 16384]),
            max_block_ms=5000,
            request_timeout_ms=REQUEST_TIMEOUT_MS,
            delivery_timeout_ms=REQUEST_TIMEOUT_MS + 5000,
            **settings,
        )
        rounds: list[asyncio.Future[list[None]]] = []
        number = 0
        while self._running:
            await asyncio.sleep(self._random.random() * 0.7)
            targets = [target for topic in self.history.topics.values() for target in topic.targets]
            if not targets:
                continue
            sent: list[Coroutine[Any, Any, None]] = []
            for target in self._random.choices(targets, k=self._random.randint(1, 5)):
                for _ in range(self._random.randint(1, 4)):
                    sent.append(self._delivered(f"{name}:{number}", self._send(producer, target, f"{name}:{number}")))
                    number += 1
            rounds.append(asyncio.gather(*sent))
            await asyncio.wait(rounds[-1:], timeout=ROUND_S)
        await asyncio.gather(*rounds)
        await program.call(producer.close)

    def _send(self, producer: Producer, target: PartitionTarget, name: str) -> Delivery:
        random = self._random
        return producer.send(
            target.topic,
            None if random.randrange(12) == 0 else random.randbytes(random.randint(0, 60)),
            b"key%d" % random.randrange(6),
            partition=target.partition,
            timestamp_ms=self._simulation.clock.wall_ms() - random.randint(0, 50),
            headers=[(NAME_HEADER, name)],
        )

    async def _delivered(self, name: str, delivery: Delivery) -> None:
        try:
            written = await delivery
        except (ClientError, ProtocolError) as problem:
            self._simulation.trace.note(f"{name} failed: {problem!r}")
            return
        # Without acknowledgements no offset is known.
        check(
            written.offset < 0 or name in self.history.acknowledged_names,
            f"{name} was delivered, says its producer; no broker said so",
        )

    async def _consume(self, program: SimulatedProgram, name: str, settings: Mapping[str, Any]) -> None:
        most = self._random.choice([300, 2000, 65536])
        consumer = await program.call(
            lambda: Consumer(
                bootstrap_servers=SERVERS,
                auto_offset_reset="earliest",
                fetch_max_bytes=most,
                max_partition_fetch_bytes=most,
                fetch_max_wait_ms=self._random.choice([300, 2000]),
                fetch_min_bytes=self._random.choice([1, 1, 500]),
                request_timeout_ms=REQUEST_TIMEOUT_MS,
            )
        )
        while self._running:
            try:
                await program.call(self._poll, consumer)
            except (ClientError, ProtocolError) as problem:
                self._simulation.trace.note(f"{name}: {problem!r}")
            await asyncio.sleep(self._random.random() * 0.2)
        await program.call(consumer.close)

    def _poll(self, consumer: Consumer) -> None:
        """New partitions from a place between the start and the end as they were last seen; now and then the others."""
        places = {
            TopicPartition(each.target.topic, each.target.partition): each
            for each in self.history.partitions
            if not each.unsettled
        }
        before = consumer.assignment()
        consumer.assign(list(places))
        for partition, known in places.items():
            if partition not in before or self._random.randrange(20) == 0:
                start = min(known.log_start, known.high_watermark)
                consumer.seek(partition, self._random.randint(start, known.high_watermark))
        if not places:
            self._simulation.threads.sleep(0.5)
            return
        last: dict[TopicPartition, int] = {}
        for record in consumer.poll(self._random.choice([0.05, 0.5, 2.0])):
            partition = TopicPartition(record.topic, record.partition)
            check(record.offset > last.get(partition, -1), f"{partition}: {record.offset} after {last.get(partition)}")
            last[partition] = record.offset
            self._compare(places.get(partition), record)

    def _compare(self, partition: PartitionHistory | None, record: ConsumerRecord) -> None:
        """What a program gets is what the broker sent; what was fetched before a power cut may since be gone."""
        if partition is None or partition.may_have_holes or self.history.find(*partition.target[1:]) is None:
            return
        names = [value.decode() for header, value in record.headers if header == NAME_HEADER and value is not None]
        given = Stored(names[0], record.key, record.value, record.timestamp)
        seen = partition.seen.get(record.offset)
        check(
            seen == given or partition.target.topic in self.history.deleted.values(),
            f"{partition.target}: a program got {given} at {record.offset}, where the broker sent {seen}",
        )

    # Steps

    def _new_admin(self) -> Admin:
        return Admin(bootstrap_servers=SERVERS).within(ADMIN_S)

    async def _ask(self, question: Callable[[], T]) -> T:
        try:
            return await self._operator.call(question)
        except ClientError as problem:
            raise NoAnswer(str(problem)) from problem

    async def _delete_unknown_topics(self) -> None:
        """Those whose creation was not acknowledged."""
        unknown = [each.topic_id for each in await self._verifier.topics() if each.topic_id not in self.history.topics]
        if unknown:
            await self._ask(lambda: self._admin.delete_topics(list(map(TopicId, unknown))).raise_for_errors())

    async def _wait(self) -> None:
        await asyncio.sleep(self._random.random() * self._random.choice([0.2, 2.0, 6.0]))

    async def _create_topic(self) -> None:
        if len(self.history.topics) >= MOST_TOPICS:
            return
        kind = self._random.choice(KINDS)
        name = self._random.choice(["alpha", "beta", "gamma"])
        if name in {topic.name for topic in self.history.topics.values()}:
            self._names += 1
            name = f"{name}-{self._names}"
        partitions = self._random.randint(1, 3)
        try:
            topic = NewTopic(name, partitions, 1, config=kind.configs)
            created = (await self._ask(lambda: self._admin.create_topics([topic])))[name]
        except (NoAnswer, TopicAlreadyExistsError):
            # It may have come to be, also by a request whose answer was lost: then it goes.
            await self._revive()
            await self._delete_unknown_topics()
            return
        assert created.topic_id is not None
        self.history.add_topic(name, bytes(created.topic_id), kind, partitions)

    async def _delete_topic(self) -> None:
        if len(self.history.topics) < 2:
            return
        topic_id = self._random.choice(list(self.history.topics))
        # From the question on nothing can be expected of it.
        self.history.topic_deleted(topic_id)
        try:
            await self._ask(lambda: self._admin.delete_topics([TopicId(topic_id)]).raise_for_errors())
        except NoAnswer:
            await self._revive()
            await self._delete_unknown_topics()

    async def _add_partition(self) -> None:
        topic = self._random.choice(list(self.history.topics.values()))
        count = len(topic.partitions) + 1
        if count > MOST_PARTITIONS:
            return
        # It may be there from now on, and must be once that is acknowledged.
        topic.may_grow_to = count
        await self._ask(lambda: self._admin.create_partitions({topic.name: count}).raise_for_errors())
        self.history.add_partition(topic)

    async def _move_replica(self) -> None:
        target = self._random.choice(self.history.partitions).target
        moves = {Replica(target.topic, target.partition, 1): self._random.choice(DIRECTORIES)}
        await self._ask(lambda: self._admin.alter_replica_log_dirs(moves).raise_for_errors())

    async def _change_config(self) -> None:
        topic = self._random.choice(list(self.history.topics.values()))
        key, values = self._random.choice(CHANGES)
        change = {ConfigResource.topic(topic.name): {key: self._random.choice(values)}}
        await self._ask(lambda: self._admin.alter_configs(change).raise_for_errors())

    async def _delete_records(self) -> None:
        partition = self._random.choice(self.history.partitions)
        if partition.kind.compacted or partition.high_watermark == 0:
            return
        before = self._random.randint(0, partition.high_watermark)
        where = TopicPartition(partition.target.topic, partition.target.partition)
        start = (await self._ask(lambda: self._admin.delete_records({where: before})))[where]
        check(start >= before, f"{partition.target}: asked to delete below {before}, the log starts at {start}")

    async def _verify(self) -> None:
        await self._read_whole(self._random.choice(self.history.partitions))

    async def _hang_up(self) -> None:
        self._random.choice(self._programs).cut()

    async def _kill(self) -> None:
        self._simulation.broker.kill()

    async def _cut_power(self) -> None:
        self._lose_power()

    async def _end_within_an_operation(self) -> None:
        """Kill, or cut the power, in the middle of whatever the disk is asked to do."""
        self._simulation.disk.end_process_after(self._random.choice([3, 30, 300]) + self._random.randrange(30))
        for _ in range(20):
            await asyncio.sleep(0.5)
            if not self._simulation.broker.is_up:
                break
        else:
            self._simulation.broker.kill()
        if self._random.random() < 0.5:
            self._lose_power()

    async def _stop(self) -> None:
        await self._simulation.broker.stop()

    async def _fill_disk(self) -> None:
        disk = self._simulation.disk
        disk.capacity = disk.used + self._random.randint(0, 4000)
        await asyncio.sleep(self._random.random() * 4)
        disk.repair()

    async def _break_disk(self) -> None:
        kind = self._random.choice([WRITE, SYNC])
        under = self._random.choice(DIRECTORIES)
        self._simulation.disk.fail(kind, code=errno.EIO, under=under, after=self._random.randrange(20))
        await asyncio.sleep(self._random.random() * 4)
        self._simulation.disk.repair()

    # Falling and rising

    def _lose_power(self) -> None:
        self._simulation.network.only_client = self._verifying.process
        self._simulation.broker.cut_power()
        self.history.power_was_cut(list(self._produced.producers))

    async def _revive(self) -> None:
        """Whatever is broken is repaired, and the broker started again."""
        broker = self._simulation.broker
        if broker.is_up and len(broker.parts.logs.online_directories) < len(broker.parts.logs.directories):
            broker.kill()
        if not broker.is_up:
            self._simulation.disk.repair()
            await self._restart()

    async def _restart(self) -> None:
        """Start until it stays up; now and then it falls over while it recovers."""
        while True:
            if self._simulation.broker.is_down and not await self._start():
                continue
            try:
                await self._verify_topics()
                for partition in self.history.partitions:
                    if partition.unsettled:
                        await self._read_whole(partition)
                break
            except NoAnswer:
                # It fell over again, or the verifier had not heard yet of its connection's end.
                await asyncio.sleep(0.1)
        self._simulation.network.only_client = None

    async def _start(self) -> bool:
        disk = self._simulation.disk
        if self._random.randrange(4) == 0:
            disk.end_process_after(self._random.randrange(120))
        try:
            await self._simulation.broker.start()
        except BrokerEnded:
            if self._random.random() < 0.3:
                self._lose_power()
            return False
        except BraidlogError as problem:
            raise InvariantBroken(f"the broker does not start: {problem}") from problem
        finally:
            disk.repair()
        return True

    # Verifying

    async def _verify_topics(self) -> None:
        known = {topic.topic_id: topic for topic in await self._verifier.topics()}
        for topic_id, expected in self.history.topics.items():
            check(topic_id in known, f"topic {expected.name}, whose creation was acknowledged, is gone")
            count = len(known[topic_id].partitions)
            if count == expected.may_grow_to == len(expected.partitions) + 1:
                self.history.add_partition(expected)
            check(count == len(expected.partitions), f"topic {expected.name} has {count} partitions")

    async def _verify_all(self) -> None:
        await self._verify_topics()
        for partition in self.history.partitions:
            await self._read_whole(partition)

    async def _read_whole(self, partition: PartitionHistory) -> None:
        target = partition.target
        offset = await self._verifier.offset_at(target, EARLIEST)
        reads: list[PartitionRead] = []
        promised = 0 if partition.unsettled else max(partition.acknowledged, default=-1) + 1
        while True:
            reported = 0 if partition.unsettled else partition.high_watermark
            read = await self._verifier.read(target, offset, self._random.choice([200, 1000, 100_000]), reported)
            if read.error_code == OffsetOutOfRangeError.code:
                # Retention, or a request to delete records, was faster.
                offset = await self._verifier.offset_at(target, EARLIEST)
                reads.clear()
                continue
            check(read.error_code == 0, f"{target}: reading at {offset} failed with code {read.error_code}")
            reads.append(read)
            if not partition.unsettled:
                observe(partition, read)
            if read.next_offset >= read.high_watermark:
                break
            if read.next_offset == offset:
                check(partition.may_have_holes, f"{target}: no batch at {offset}, below {read.high_watermark}")
                break
            offset = read.next_offset
        if partition.unsettled:
            what_survived_is_what_was_written(partition, reads)
        examine(partition, reads)
        end = reads[-1].high_watermark
        check(end >= promised, f"{target}: the log ends at {end}, {promised - 1} had been acknowledged")
        latest = await self._verifier.offset_at(target, LATEST)
        check(latest >= end, f"{target}: the latest offset is {latest}, it was {end}")


Work = Callable[[SimulatedProgram, str, Mapping[str, Any]], Coroutine[Any, Any, None]]
Step = Callable[[Workload], Awaitable[None]]

STEPS: Final[list[tuple[Step, int]]] = [
    (Workload._wait, 12),
    (Workload._verify, 6),
    (Workload._create_topic, 5),
    (Workload._delete_topic, 2),
    (Workload._add_partition, 2),
    (Workload._move_replica, 3),
    (Workload._change_config, 3),
    (Workload._delete_records, 3),
    (Workload._hang_up, 2),
    (Workload._kill, 3),
    (Workload._cut_power, 3),
    (Workload._end_within_an_operation, 5),
    (Workload._stop, 2),
    (Workload._fill_disk, 3),
    (Workload._break_disk, 2),
]
