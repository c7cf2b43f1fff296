"""Every write of a start, a stop, a roll, a deletion and so on fails once, by its position, each in a life of its own.

    EIO         that one write fails: its data directory may go offline, no other; or the broker says why it ends
    ENOSPC      that one write fails: nothing goes offline, and a moment later all is as if nothing had happened
    full        no room from that write on: nothing goes offline, all that was acknowledged is read; room makes all well
    alone       EIO in the only data directory: the broker may also end, and says so

A sync that fails is the exception: nobody knows what the kernel has dropped, so ENOSPC counts as EIO there.

Each scenario is run once without a fault, which counts the writes below each data directory. `make test` tries some of
the positions, chosen by a seed; all of them are tried by `make soak`.

    BRAIDLOG_FAULT=start-after-kill:full:/data:7 .venv/bin/pytest tests/simulation -k replay_fault
"""

from __future__ import annotations

import asyncio
import errno
import itertools
import os
from collections.abc import Awaitable, Callable, Mapping
from functools import cache
from random import Random
from typing import Final, NamedTuple, TypeVar

import pytest

from braidlog.client import Producer
from braidlog.client.admin import Admin, NewTopic, Replica, TopicId
from braidlog.client.errors import ClientError
from braidlog.core.errors import FatalError, UserError
from braidlog.core.protocol_errors import (
    KafkaStorageError,
    NotLeaderOrFollowerError,
    OffsetOutOfRangeError,
    ProtocolError,
)
from braidlog.core.types import TopicPartition
from braidlog.testing.simulated.disk import CHANGES, GROWTH, SYNC
from braidlog.testing.simulated.program import SimulatedProgram
from braidlog.testing.simulated.simulation import SERVERS, BrokerEnded, Simulation
from support.simulation.frames import REQUEST_TIMEOUT_MS, Frames
from support.simulation.history import PartitionTarget
from support.simulation.invariants import every_request_was_answered, no_bug_was_met
from support.simulation.raw_client import EARLIEST, NoAnswer, RawClient

SEED: Final = 11
# The store's journal lies in the first.
DIRECTORIES: Final = ("/data", "/more")
TOPICS: Final[Mapping[str, Mapping[str, str]]] = {
    "plain": {"segment.bytes": "1500", "index.interval.bytes": "200", "retention.ms": "-1"},
    "compacted": {
        "cleanup.policy": "compact",
        "segment.bytes": "900",
        "min.cleanable.dirty.ratio": "0.01",
        "file.delete.delay.ms": "500",
    },
    "retained": {"retention.bytes": "2000", "segment.bytes": "700", "file.delete.delay.ms": "500"},
    "empty": {},
    "doomed": {},
}
PARTITIONS: Final = 2
# Simulated seconds: enough for every job that tries again.
PATIENCE_S: Final = 60.0
QUICK_POSITIONS: Final = 3
# How long an admin asks again.
ADMIN_S: Final = 8.0

T = TypeVar("T")


class Lost(AssertionError):
    """Something that must hold does not."""


class ProduceHistory:
    """What was sent and what was acknowledged, by topic and partition; a topic that is created again starts anew."""

    def __init__(self) -> None:
        self.ids: dict[str, bytes] = {}
        self.acknowledged: dict[PartitionTarget, dict[int, bytes]] = {}
        self.sent: dict[PartitionTarget, set[bytes]] = {}

    def targets(self) -> list[PartitionTarget]:
        return [PartitionTarget(name, self.ids[name], index) for name in self.ids for index in range(PARTITIONS)]


class FaultWorld:
    def __init__(self, simulation: Simulation) -> None:
        self.simulation = simulation
        self.broker = simulation.broker
        self.history = ProduceHistory()
        self.frames = Frames(simulation, {})
        self._program = SimulatedProgram(simulation, "program")
        self._reader = RawClient(self._program)
        self._numbers = itertools.count()

    async def prepare(self) -> None:
        await self.broker.start()
        await self._program.call(self._make_clients)
        for name in TOPICS:
            await self.create(name)
        for _ in range(6):
            for target in self.history.targets():
                if target.topic != "empty":
                    await self.produce(target, must=True)
        await asyncio.sleep(4)

    def _make_clients(self) -> None:
        self._admin = Admin(bootstrap_servers=SERVERS).within(ADMIN_S)
        # Each record by itself and once: what becomes of it is known at once.
        self._producer = Producer(
            bootstrap_servers=SERVERS,
            acks="all",
            enable_idempotence=False,
            retries=0,
            max_block_ms=int(PATIENCE_S * 1000),
            request_timeout_ms=REQUEST_TIMEOUT_MS,
            delivery_timeout_ms=REQUEST_TIMEOUT_MS + 1000,
        )

    async def ask(self, question: Callable[[Admin], T]) -> T:
        try:
            return await self._program.call(lambda: question(self._admin))
        except ClientError as problem:
            raise NoAnswer(str(problem)) from problem

    async def create(self, name: str) -> None:
        topic = NewTopic(name, PARTITIONS, 1, config=TOPICS.get(name, {}))
        created = (await self.ask(lambda admin: admin.create_topics([topic])))[name]
        assert created.topic_id is not None
        self.history.ids[name] = bytes(created.topic_id)

    async def produce(self, target: PartitionTarget, *, must: bool = False, size: int = 150) -> bool:
        """One batch; whether it was acknowledged."""
        number = next(self._numbers)
        value = b"%d " % number + bytes(size)
        self.history.sent.setdefault(target, set()).add(value)

        def send() -> int:
            sent = self._producer.send(target.topic, value, b"key %d" % (number % 3), partition=target.partition)
            return sent.result().offset

        try:
            offset = await self._program.call(send)
        except (KafkaStorageError, NotLeaderOrFollowerError, ClientError):
            assert not must
            return False
        except ProtocolError as refused:
            raise Lost(f"{target}: a produce was answered with {refused!r}") from refused
        self.history.acknowledged.setdefault(target, {})[offset] = value
        return True

    async def read(self, target: PartitionTarget) -> dict[int, bytes]:
        """All that is in the partition, by offset; raises KafkaStorageError while it is offline."""
        found: dict[int, bytes] = {}
        offset = 0
        while True:
            got = await self._reader.read(target, offset, 1 << 20)
            if got.error_code == OffsetOutOfRangeError.code and offset == 0:
                offset = await self._reader.offset_at(target, EARLIEST)
                continue
            if got.error_code != 0:
                raise KafkaStorageError(f"{target}: {got.error_code}")
            for record in got.records:
                if record.offset in found or record.offset < offset:
                    raise Lost(f"{target}: offset {record.offset} comes twice")
                found[record.offset] = record.value or b""
            if got.next_offset <= offset:
                if offset < got.high_watermark and target.topic != "compacted":
                    raise Lost(f"{target}: the log ends at {offset}, before its high watermark {got.high_watermark}")
                return found
            offset = got.next_offset

    async def check(self, target: PartitionTarget) -> None:
        """Nothing acknowledged is missing, nothing is there that was not sent."""
        found = await self.read(target)
        for value in found.values():
            if value not in self.history.sent.get(target, set()):
                raise Lost(f"{target}: nobody sent {value[:20]!r}")
        known = self.history.acknowledged.get(target, {})
        last = max(known, default=-1)
        for offset, value in known.items():
            # Retention and compaction may have taken all but the last of them.
            if found.get(offset) != value and (offset == last or target.topic not in ("compacted", "retained")):
                raise Lost(f"{target}: offset {offset} was acknowledged and now holds {found.get(offset)!r}")

    async def create_in_time(self, name: str) -> None:
        deadline = asyncio.get_running_loop().time() + PATIENCE_S
        while True:
            try:
                await self.create(name)
                return
            except KafkaStorageError:
                if asyncio.get_running_loop().time() > deadline:
                    raise
                await asyncio.sleep(1)

    def directory_of(self, target: PartitionTarget) -> str:
        registry = self.broker.parts.logs.registry
        return registry.directory_of(TopicPartition(target.topic, target.partition)).path

    async def offline(self) -> list[PartitionTarget]:
        """Partitions that are not served; all others are checked."""
        missing: list[PartitionTarget] = []
        for target in self.history.targets():
            try:
                await self.check(target)
            except KafkaStorageError:
                missing.append(target)
        return missing

    async def eventually_serves(self) -> None:
        """Within a while every partition is read and written."""
        deadline = asyncio.get_running_loop().time() + PATIENCE_S
        waiting = self.history.targets()
        while waiting:
            waiting = [target for target in waiting if not await self.produce(target)]
            if waiting and asyncio.get_running_loop().time() > deadline:
                raise Lost(f"{', '.join(map(str, waiting))}: nothing can be written any more")
            await asyncio.sleep(1)
        left = await self.offline()
        if left:
            raise Lost(f"{', '.join(map(str, left))} cannot be read")


# What is done while a write fails.


async def start_after_kill(world: FaultWorld) -> None:
    world.broker.kill()
    await world.broker.start()
    await asyncio.sleep(3)


async def stop_and_start(world: FaultWorld) -> None:
    await world.broker.stop()
    await world.broker.start()
    await asyncio.sleep(3)


async def roll(world: FaultWorld) -> None:
    for _ in range(12):
        for target in world.history.targets():
            if target.topic == "plain":
                await world.produce(target, size=400)
    await asyncio.sleep(2)


async def delete(world: FaultWorld) -> None:
    topic_id = world.history.ids.pop("doomed")
    try:
        await world.ask(lambda admin: admin.delete_topics([TopicId(topic_id)]).raise_for_errors())
    except ProtocolError:
        world.history.ids["doomed"] = topic_id
        raise
    await asyncio.sleep(5)


async def create(world: FaultWorld) -> None:
    await world.create("new")
    await asyncio.sleep(2)


async def compact_and_retain(world: FaultWorld) -> None:
    for _ in range(10):
        for target in world.history.targets():
            if target.topic in ("compacted", "retained"):
                await world.produce(target)
    await asyncio.sleep(8)


async def checkpoint(world: FaultWorld) -> None:
    for target in world.history.targets():
        await world.produce(target)
    await asyncio.sleep(5)


async def move(world: FaultWorld) -> None:
    for name, index in (("plain", 0), ("plain", 1), ("retained", 0)):
        here = world.directory_of(PartitionTarget(name, b"", index))
        moves = {Replica(name, index, 1): DIRECTORIES[1 - DIRECTORIES.index(here)]}
        await world.ask(lambda admin, moves=moves: admin.alter_replica_log_dirs(moves).raise_for_errors())  # type: ignore[misc]
    await asyncio.sleep(3)


SCENARIOS: Final[Mapping[str, Callable[[FaultWorld], Awaitable[None]]]] = {
    "start-after-kill": start_after_kill,
    "stop-and-start": stop_and_start,
    "roll": roll,
    "delete": delete,
    "create": create,
    "compact-and-retain": compact_and_retain,
    "checkpoint": checkpoint,
    "move": move,
}
MODES: Final = ("EIO", "ENOSPC", "full", "alone")


class Fault(NamedTuple):
    scenario: str
    mode: str
    directory: str
    position: int

    @property
    def write(self) -> tuple[str, str]:
        """Kind and path of the write that fails first."""
        return possible_writes(self.scenario, self.mode, self.directory)[self.position]

    @property
    def is_lack_of_room(self) -> bool:
        return self.mode == "full" or (self.mode == "ENOSPC" and self.write[0] != SYNC)

    def __str__(self) -> str:
        return ":".join(map(str, self))


def directories_of(mode: str) -> tuple[str, ...]:
    return DIRECTORIES[:1] if mode == "alone" else DIRECTORIES


def kinds_of(mode: str) -> tuple[str, ...]:
    return GROWTH if mode == "full" else CHANGES


def simulation_with(directories: tuple[str, ...]) -> Simulation:
    return Simulation(SEED, {"log.dirs": ",".join(directories)})


@cache
def undisturbed_writes(scenario: str, directories: tuple[str, ...]) -> list[tuple[str, str]]:
    """Kind and path of each write that the scenario does when nothing fails."""
    with simulation_with(directories) as simulation:

        async def run() -> None:
            world = FaultWorld(simulation)
            await world.prepare()
            simulation.disk.changes = []
            await SCENARIOS[scenario](world)

        simulation.run(run())
        return simulation.disk.changes or []


def possible_writes(scenario: str, mode: str, directory: str) -> list[tuple[str, str]]:
    """Those that the mode lets fail, below the directory."""
    writes = undisturbed_writes(scenario, directories_of(mode))
    return [(kind, path) for kind, path in writes if kind in kinds_of(mode) and path.startswith(directory)]


async def suffer(world: FaultWorld, fault: Fault) -> None:
    """The scenario with its fault, and all that must hold then and afterwards."""
    simulation, broker = world.simulation, world.broker
    await world.prepare()
    simulation.disk.fail(
        *kinds_of(fault.mode),
        code=errno.ENOSPC if fault.mode in ("ENOSPC", "full") else errno.EIO,
        under=fault.directory,
        after=fault.position,
        lasting=fault.mode == "full",
    )
    try:
        await SCENARIOS[fault.scenario](world)
    except KafkaStorageError:
        pass
    except (NoAnswer, BrokerEnded, FatalError, UserError) as problem:
        if fault.is_lack_of_room or fault.directory != DIRECTORIES[0]:
            raise Lost(f"the broker ended: {problem}") from problem
    if fault.is_lack_of_room:
        await bear_lack_of_room(world, fault)
    else:
        await bear_a_broken_disk(world, fault)
    await world.eventually_serves()
    if fault.scenario == "delete" and "doomed" not in world.history.ids:
        await world.create_in_time("doomed")
        await world.eventually_serves()
    await broker.stop()
    await broker.start()
    if not broker.parts.load_report.clean:
        raise Lost("after all was well the broker did not stop cleanly")
    await world.eventually_serves()
    every_request_was_answered(world.frames)
    no_bug_was_met(simulation)


async def bear_lack_of_room(world: FaultWorld, fault: Fault) -> None:
    failed = [directory.path for directory in world.broker.parts.logs.directories if not directory.is_online]
    if failed:
        raise Lost(f"{failed} went offline for want of room")
    unread = [target for target in await world.offline() if target.topic != "new"]
    if unread and fault.mode == "full":
        raise Lost(f"{', '.join(map(str, unread))} cannot be read on a full disk")
    world.simulation.disk.repair()


async def bear_a_broken_disk(world: FaultWorld, fault: Fault) -> None:
    if world.broker.is_up:
        failed = [directory.path for directory in world.broker.parts.logs.directories if not directory.is_online]
        if fault.mode == "alone" and failed:
            raise Lost("the broker goes on without any data directory")
        if set(failed) - {fault.directory}:
            raise Lost(f"{failed} went offline though {fault.directory} failed")
        for target in await world.offline():
            if not failed:
                raise Lost(f"{target} is offline, its directory is not")
        world.simulation.disk.repair()
        if failed:
            world.broker.kill()
            await world.broker.start()
    else:
        world.simulation.disk.repair()
        world.broker.kill()
        await world.broker.start()


def live(fault: Fault) -> None:
    with simulation_with(directories_of(fault.mode)) as simulation:
        try:
            simulation.run(suffer(FaultWorld(simulation), fault))
        except Exception as problem:
            kind, path = fault.write
            last = "\n".join(simulation.trace.last[-60:])
            replay = f"BRAIDLOG_FAULT={fault} .venv/bin/pytest tests/simulation -k replay_fault"
            what = f"{type(problem).__name__} {problem}"
            reported = f"{fault} ({kind} {path}) failed: {what}\nreplay: {replay}\nit ended with:\n{last}"
            raise AssertionError(reported) from problem


def faults(scenario: str, mode: str) -> list[Fault]:
    return [
        Fault(scenario, mode, directory, position)
        for directory in directories_of(mode)
        for position in range(len(possible_writes(scenario, mode, directory)))
    ]


# A replica cannot be moved where there is but one directory.
CASES: Final = [
    pytest.param(scenario, mode, id=f"{scenario}-{mode}")
    for scenario in SCENARIOS
    for mode in MODES
    if (scenario, mode) != ("move", "alone")
]


@pytest.mark.parametrize(("scenario", "mode"), CASES)
def test_some_writes_fail(scenario: str, mode: str) -> None:
    possible = faults(scenario, mode)
    assert len(possible) > QUICK_POSITIONS
    seed = os.environ.get("BRAIDLOG_SIM_FIRST", "0")
    for fault in Random(f"{seed} {scenario} {mode}").sample(possible, QUICK_POSITIONS):
        live(fault)


@pytest.mark.parametrize(("scenario", "path"), [("create", "/data/new-0"), ("delete", "/data/doomed-0")])
def test_the_only_directory_failing_while_topics_change_ends_the_broker(scenario: str, path: str) -> None:
    writes = possible_writes(scenario, "alone", "/data")
    position = next(number for number, (_, touched) in enumerate(writes) if touched.startswith(path))
    live(Fault(scenario, "alone", "/data", position))


@pytest.mark.soak
@pytest.mark.parametrize(("scenario", "mode"), CASES)
def test_each_write_fails(scenario: str, mode: str) -> None:
    for fault in faults(scenario, mode):
        live(fault)


@pytest.mark.skipif("BRAIDLOG_FAULT" not in os.environ, reason="BRAIDLOG_FAULT names no fault to replay")
def test_replay_fault() -> None:
    scenario, mode, directory, position = os.environ["BRAIDLOG_FAULT"].split(":")
    live(Fault(scenario, mode, directory, int(position)))
