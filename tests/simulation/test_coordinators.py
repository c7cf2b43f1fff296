"""Groups and transactions on a broker that falls over, from a seed.

    BRAIDLOG_SIM_SEED=123 .venv/bin/pytest tests/simulation/test_coordinators.py -k replay

Members join, commit, leave and fall silent; transactions are committed, aborted and left lying; meanwhile the broker is
killed, stopped, runs out of disk, and (where every append is synced) loses power. What must hold: one owner a partition
and generation; a committed offset never goes back; a transaction is all or nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final, NamedTuple

import pytest

from braidlog.client.consumer.fetch.completed_fetch import AbortedRange
from braidlog.core.errors import BraidlogError
from braidlog.testing.simulated.scripted_client import ScriptedAdmin, ScriptedClient
from braidlog.testing.simulated.scripted_consumer import bytes_of
from braidlog.testing.simulated.scripted_member import ScriptedMember, fetch_offsets
from braidlog.testing.simulated.scripted_producer import PartitionTarget
from braidlog.testing.simulated.scripted_transactor import ScriptedTransactor
from braidlog.testing.simulated.simulation import BrokerEnded, Simulation
from braidlog.wire.generated.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from support.simulation.coordinator_history import GroupHistory, TransactionHistory
from support.simulation.invariants import check, every_request_was_answered, no_bug_was_met
from support.simulation.seeds import replayed_seed, run_workload, seeds, unless_replaying, when_replaying
from support.soak import scaled
from support.visible import visible_records

QUICK_SEEDS = 25
QUICK_STEPS = 12
SOAK_SEEDS = scaled(50)
SOAK_STEPS = 60
TOPIC: Final = "work"
PARTITIONS: Final = 4
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


class Life(NamedTuple):
    digest: str
    lives: int
    generations: int
    commits: int
    transactions: int
    committed: int


class CoordinatorWorkload:
    def __init__(self, simulation: Simulation, steps: int, synced: bool) -> None:
        self.groups = GroupHistory()
        self.transactions = TransactionHistory()
        self._simulation = simulation
        self._random = simulation.random
        self._steps = steps
        self._synced = synced
        self._clients: list[ScriptedClient] = []
        self._running = True
        self._targets: list[PartitionTarget] = []

    async def run(self) -> None:
        await self._restart()
        topic_id = await ScriptedAdmin(ScriptedClient(self._simulation, "admin")).create_topic(TOPIC, PARTITIONS, {})
        self._targets = [PartitionTarget(TOPIC, topic_id, index) for index in range(PARTITIONS)]
        workers = [
            *(asyncio.create_task(self._member(f"member-{n}", f"group-{n % 2}")) for n in range(5)),
            *(asyncio.create_task(self._transactor(f"teller-{n}")) for n in range(3)),
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
        every_request_was_answered(self._simulation)
        no_bug_was_met(self._simulation)

    def _client(self, name: str) -> ScriptedClient:
        self._clients.append(ScriptedClient(self._simulation, name))
        return self._clients[-1]

    async def _member(self, name: str, group: str) -> None:
        member = ScriptedMember(self._client(name), group, TOPIC, PARTITIONS, self.groups, self._random)
        while self._running:
            await asyncio.sleep(self._random.random() * 0.5)
            await member.live()

    async def _transactor(self, name: str) -> None:
        client = self._client(name)
        transactor = ScriptedTransactor(client, name, f"of-{name}", TOPIC, self.transactions, self._random)
        while self._running:
            await asyncio.sleep(self._random.random() * 0.3)
            await transactor.transact(self._targets, self._simulation.clock.wall_ms())

    # Steps

    async def _wait(self) -> None:
        await asyncio.sleep(self._random.random() * self._random.choice([0.5, 5.0]))

    async def _hang_up(self) -> None:
        self._random.choice(self._clients).hang_up()

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
        client = ScriptedClient(self._simulation, "judge")
        # Whatever was left lying is aborted by then.
        await asyncio.sleep(20)
        visible = {target: await self._read(client, target) for target in self._targets}
        offsets: dict[str, int] = {}
        for group in dict.fromkeys(
            transaction.offset[0]
            for transaction in self.transactions.transactions.values()
            if transaction.offset is not None
        ):
            offsets[group] = (await self._committed(client, group, [0]))[0]
        self.transactions.check_visible(visible, offsets)
        for group in ("group-0", "group-1"):
            promised = {index: self.groups.promised(group, index) for index in range(PARTITIONS)}
            if max(promised.values()) < 0:
                continue
            for index, offset in (await self._committed(client, group, range(PARTITIONS))).items():
                self.groups.fetched(group, index, offset, promised[index])

    async def _committed(self, client: ScriptedClient, group: str, partitions: range | list[int]) -> dict[int, int]:
        for _ in range(100):
            found = await fetch_offsets(client, group, TOPIC, list(partitions))
            if found is not None:
                return found
            await asyncio.sleep(0.1)
        raise AssertionError(f"the offsets of {group} are not to be had")

    async def _read(self, client: ScriptedClient, target: PartitionTarget) -> list[str]:
        """What a read_committed reader gets, and that it gets to the end."""
        names: list[str] = []
        offset = 0
        while True:
            partition = FetchPartition(partition=target.partition, fetch_offset=offset, partition_max_bytes=3_000)
            request = FetchRequest(
                max_wait_ms=0,
                min_bytes=0,
                max_bytes=3_000,
                isolation_level=READ_COMMITTED,
                topics=[FetchTopic(topic_id=target.topic_id, partitions=[partition])],
            )
            response = await client.call(1, request, 17, FetchResponse)
            data = response.responses[0].partitions[0]
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


def live(seed: int, steps: int = QUICK_STEPS) -> Life:
    synced = seed % 3 == 0
    with Simulation(seed, {**SETTINGS, **(SYNCED if synced else {})}) as simulation:
        workload = CoordinatorWorkload(simulation, steps, synced)
        run_workload(simulation, workload, seed, steps, __file__)
        return Life(
            simulation.trace.digest(),
            simulation.broker.lives,
            workload.groups.generations,
            workload.groups.commits,
            len(workload.transactions.transactions),
            workload.transactions.committed,
        )


@unless_replaying
@pytest.mark.parametrize("seed", seeds(QUICK_SEEDS))
def test_what_must_hold_holds(seed: int) -> None:
    life = live(seed)
    assert life.generations > 0
    assert life.committed > 0


@when_replaying
def test_replay() -> None:
    live(*replayed_seed(QUICK_STEPS))


def test_a_seed_replays_exactly() -> None:
    first = live(7)
    assert first.lives > 1
    assert first.commits > 0
    assert live(7) == first


@pytest.mark.soak
@pytest.mark.parametrize("seed", seeds(SOAK_SEEDS))
def test_long_lives(seed: int) -> None:
    live(2_000_000 + seed, SOAK_STEPS)
