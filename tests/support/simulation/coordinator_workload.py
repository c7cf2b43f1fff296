"""Members of groups and transactional producers at work on a broker that falls over."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from contextlib import closing
from functools import partial
from typing import Final

from braidlog.client import Consumer
from braidlog.client.consumer.fetch.completed_fetch import AbortedRange
from braidlog.core.errors import BraidlogError
from braidlog.core.types import TopicPartition
from braidlog.testing.simulated.program import SimulatedProgram
from braidlog.testing.simulated.simulation import SERVERS, BrokerEnded, Simulation
from support.simulation.coordinator_clients import CLASSIC_GROUPS, PARTITIONS, TOPIC, CoordinatorClients
from support.simulation.history import PartitionTarget
from support.simulation.invariants import check, every_request_was_answered, no_bug_was_met
from support.simulation.partition_frames import bytes_of
from support.simulation.raw_client import RawClient
from support.visible import visible_records

READ_COMMITTED: Final = 1

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
        self._clients = CoordinatorClients(simulation, SERVERS)
        self.groups = self._clients.groups
        self.transactions = self._clients.transactions
        self._simulation = simulation
        self._random = simulation.random
        self._steps = steps
        self._synced = synced
        self._operator = SimulatedProgram(simulation, "operator")
        self._judging = RawClient(self._operator)

    async def run(self) -> None:
        await self._restart()
        await self._operator.call(self._clients.create_topic)
        workers = self._clients.start()
        steps = [step for step, _, power in STEPS if self._synced or not power]
        weights = [weight for _, weight, power in STEPS if self._synced or not power]
        for _ in range(self._steps):
            await asyncio.sleep(self._random.random() * 2)
            step = self._random.choices(steps, weights)[0]
            self._simulation.trace.note(f"STEP {step.__name__}")
            await step(self)
            await self._revive()
            self._check(workers)
        self._clients.running = False
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
        every_request_was_answered(self._clients.frames)
        no_bug_was_met(self._simulation)

    # Steps

    async def _wait(self) -> None:
        await asyncio.sleep(self._random.random() * self._random.choice([0.5, 5.0]))

    async def _hang_up(self) -> None:
        self._random.choice(list(self._clients.programs.values())).cut()

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
        visible = {target: await self._read(target) for target in self._clients.targets}
        offsets: dict[str, int] = {}
        for group in self._clients.groups_of_transactions():
            offsets[group] = (await self._operator.call(partial(self._clients.committed, group, [0])))[0]
        self.transactions.check_visible(visible, offsets)
        await self._operator.call(partial(self._compare, visible))
        for group in CLASSIC_GROUPS:
            promised = {index: self.groups.promised(group, index) for index in range(PARTITIONS)}
            if max(promised.values()) < 0:
                continue
            found = await self._operator.call(partial(self._clients.committed, group, range(PARTITIONS)))
            for index, offset in found.items():
                self.groups.fetched(group, index, offset, promised[index])

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
