"""A random life of one broker: producers and readers at work, topics coming and going, and whatever may go wrong."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Awaitable, Callable
from typing import Final

from braidlog.core.errors import BraidlogError
from braidlog.core.protocol_errors import OffsetOutOfRangeError, ProtocolError
from braidlog.testing.simulated.connection import ConnectionLost, SimulatedConnection
from braidlog.testing.simulated.disk import SYNC, WRITE
from braidlog.testing.simulated.scripted_client import EARLIEST, LATEST, NoAnswer, ScriptedAdmin, ScriptedClient
from braidlog.testing.simulated.scripted_consumer import PartitionRead, ScriptedConsumer, read_once
from braidlog.testing.simulated.scripted_producer import ALL, PartitionTarget, ScriptedProducer
from braidlog.testing.simulated.simulation import BrokerEnded, Simulation
from braidlog.wire.records.reading import Record
from support.simulation.history import NAME_HEADER, History, PartitionHistory
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
from support.simulation.settings import CHANGES, DIRECTORIES, KINDS

CODECS: Final = (0, 0, 0, 1, 2, 3, 4)
MOST_TOPICS: Final = 4
MOST_PARTITIONS: Final = 4
VERIFIER: Final = "verifier"


class Gate:
    """The network as clients see it: after a power cut closed to all but the verifier, until it has looked."""

    def __init__(self, simulation: Simulation) -> None:
        self.closed = False
        self._simulation = simulation

    def connect(self, name: str) -> SimulatedConnection:
        if self.closed and name != VERIFIER:
            raise ConnectionLost("connection refused")
        return self._simulation.connect(name)

    def unanswered(self, who: str, what: str) -> None:
        self._simulation.unanswered(who, what)


class Workload:
    def __init__(self, simulation: Simulation, steps: int) -> None:
        self.history = History()
        self._simulation = simulation
        self._random = simulation.random
        self._steps = steps
        self._gate = Gate(simulation)
        self._admin = ScriptedAdmin(ScriptedClient(self._gate, "admin"))
        self._verifier = ScriptedClient(self._gate, VERIFIER)
        self._producers: list[ScriptedProducer] = []
        self._clients: list[ScriptedClient] = []
        self._names = 0
        self._running = True

    async def run(self) -> None:
        await self._restart()
        while not self.history.topics:
            await self._create_topic()
        workers = [
            asyncio.create_task(self._produce("keen", ALL, True), name="keen"),
            asyncio.create_task(self._produce("able", ALL, True), name="able"),
            asyncio.create_task(self._produce("once", 1, False), name="once"),
            asyncio.create_task(self._produce("mute", 0, False), name="mute"),
            asyncio.create_task(self._consume("reader"), name="reader"),
            asyncio.create_task(self._consume("sipper"), name="sipper"),
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
        every_request_was_answered(self._simulation)
        no_bug_was_met(self._simulation)

    # Clients at work

    async def _produce(self, name: str, acks: int, idempotent: bool) -> None:
        client = ScriptedClient(self._gate, name)
        producer = ScriptedProducer(client, self.history, acks=acks, idempotent=idempotent)
        self._producers.append(producer)
        self._clients.append(client)
        number = 0
        while self._running:
            await asyncio.sleep(self._random.random() * 0.7)
            targets = [target for topic in self.history.topics.values() for target in topic.targets]
            if not targets:
                continue
            batches: list[tuple[PartitionTarget, list[Record], int]] = []
            for target in self._random.choices(targets, k=self._random.randint(1, 5)):
                count = self._random.randint(1, 4)
                batches.append((target, self._records(name, number, count), self._random.choice(CODECS)))
                number += count
            await producer.send(batches)

    def _records(self, producer: str, number: int, count: int) -> list[Record]:
        random = self._random
        return [
            Record(
                timestamp=self._simulation.clock.wall_ms() - random.randint(0, 50),
                key=b"key%d" % random.randrange(6),
                value=None if random.randrange(12) == 0 else random.randbytes(random.randint(0, 60)),
                headers=((NAME_HEADER, f"{producer}:{number + index}".encode()),),
            )
            for index in range(count)
        ]

    async def _consume(self, name: str) -> None:
        client = ScriptedClient(self._gate, name)
        self._clients.append(client)
        consumer = ScriptedConsumer(client, max_bytes=self._random.choice([300, 2000, 65536]))
        while self._running:
            self._follow(consumer)
            if not consumer.positions:
                await asyncio.sleep(0.5)
                continue
            reported = {partition.target: partition.high_watermark for partition in self.history.partitions}
            try:
                reads = await consumer.poll(self._random.choice([0, 100, 2000]), self._random.choice([1, 1, 500]))
            except NoAnswer:
                await asyncio.sleep(0.3)
                # Its place may have been lost with the tail: begin where it wants to look again.
                consumer.positions.clear()
                continue
            for read in reads:
                partition = self.history.of(read.target)
                if read.error_code == 0 and partition is not None and not partition.unsettled:
                    observe(partition, read._replace(told_before=reported.get(read.target, 0)))
            await asyncio.sleep(self._random.random() * 0.2)

    def _follow(self, consumer: ScriptedConsumer) -> None:
        """New partitions from a place between the start and the end as they were last seen."""
        known = self.history.topics
        for target in [target for target in consumer.positions if target.topic_id not in known]:
            del consumer.positions[target]
        for partition in self.history.partitions:
            if partition.target not in consumer.positions and not partition.unsettled:
                start = min(partition.log_start, partition.high_watermark)
                consumer.positions[partition.target] = self._random.randint(start, partition.high_watermark)

    # Steps

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
            topic_id = await self._admin.create_topic(name, partitions, kind.configs)
        except NoAnswer:
            # It may have come to be: then it is nobody's, and goes.
            await self._revive()
            for topic in await self._admin.topics():
                if topic.topic_id not in self.history.topics:
                    await self._admin.delete_topic(topic.topic_id)
            return
        self.history.add_topic(name, topic_id, kind, partitions)

    async def _delete_topic(self) -> None:
        if len(self.history.topics) < 2:
            return
        topic_id = self._random.choice(list(self.history.topics))
        # From the question on nothing can be expected of it.
        self.history.topic_deleted(topic_id)
        try:
            await self._admin.delete_topic(topic_id)
        except NoAnswer:
            await self._revive()
            if topic_id in {topic.topic_id for topic in await self._admin.topics()}:
                await self._admin.delete_topic(topic_id)

    async def _add_partition(self) -> None:
        topic = self._random.choice(list(self.history.topics.values()))
        count = len(topic.partitions) + 1
        if count > MOST_PARTITIONS:
            return
        # It may be there from now on, and must be once that is acknowledged.
        topic.may_grow_to = count
        await self._admin.create_partitions(topic.name, count)
        self.history.add_partition(topic)

    async def _move_replica(self) -> None:
        target = self._random.choice(self.history.partitions).target
        await self._admin.move_replica(target.topic, target.partition, self._random.choice(DIRECTORIES))

    async def _change_config(self) -> None:
        topic = self._random.choice(list(self.history.topics.values()))
        key, values = self._random.choice(CHANGES)
        await self._admin.set_topic_config(topic.name, key, self._random.choice(values))

    async def _delete_records(self) -> None:
        partition = self._random.choice(self.history.partitions)
        if partition.kind.compacted or partition.high_watermark == 0:
            return
        before = self._random.randint(0, partition.high_watermark)
        start = await self._admin.delete_records(partition.target.topic, partition.target.partition, before)
        check(start >= before, f"{partition.target}: asked to delete below {before}, the log starts at {start}")

    async def _verify(self) -> None:
        await self._read_whole(self._random.choice(self.history.partitions))

    async def _hang_up(self) -> None:
        self._random.choice(self._clients).hang_up()

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
        self._gate.closed = True
        self._simulation.broker.cut_power()
        self.history.power_was_cut([producer.producer_id for producer in self._producers])

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
        self._gate.closed = False

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
        known = {topic.topic_id: topic for topic in await ScriptedAdmin(self._verifier).topics()}
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
        admin = ScriptedAdmin(self._verifier)
        offset = await admin.offset_at(target.topic, target.partition, EARLIEST)
        reads: list[PartitionRead] = []
        promised = 0 if partition.unsettled else max(partition.acknowledged, default=-1) + 1
        while True:
            reported = 0 if partition.unsettled else partition.high_watermark
            read = await read_once(self._verifier, target, offset, self._random.choice([200, 1000, 100_000]))
            if read.error_code == OffsetOutOfRangeError.code:
                # Retention, or a request to delete records, was faster.
                offset = await admin.offset_at(target.topic, target.partition, EARLIEST)
                reads.clear()
                continue
            check(read.error_code == 0, f"{target}: reading at {offset} failed with code {read.error_code}")
            read = read._replace(told_before=reported)
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
        latest = await admin.offset_at(target.topic, target.partition, LATEST)
        check(latest >= end, f"{target}: the latest offset is {latest}, it was {end}")


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
