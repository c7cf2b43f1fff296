"""Groups: how long until many members, or many groups, have settled, and the memory that they take."""

from __future__ import annotations

import asyncio
import time

from bench import group_members
from bench.brokers import Broker, make
from bench.machine import resident_bytes
from bench.measures import Better
from bench.requests import Requester
from bench.session import Session

MEMBERS = 300
GROUPS = 1_000
BUSY = 20
ROUNDS = 3
# Both with the delay that a new group waits for more members by default, and without it: the broker's own work.
DELAYS = {"3 s delay (default)": "3000", "no delay": "0"}
SETTLE_SECONDS = 1.0
MIB = 2**20


def measure(session: Session) -> None:
    crowd, alone = session.plan.scaled(MEMBERS, 100), session.plan.scaled(GROUPS, 200)
    for number in range(min(session.plan.rounds, session.plan.scaled(ROUNDS, 1))):
        for title, delay in DELAYS.items():
            for name in session.names:
                session.progress.show(f"groups, {title}: round {number + 1}, {name}")
                fresh = session.fresh(name)
                broker = make(name, fresh.data, session.plan.checkout, {"group.initial.rebalance.delay.ms": delay})
                try:
                    broker.start()
                    asyncio.run(_measure(session, broker, title, crowd, alone))
                    broker.stop()
                finally:
                    broker.kill()
                    session.discard(broker)


async def _measure(session: Session, broker: Broker, delay: str, crowd: int, alone: int) -> None:
    def add(title: str, value: float, unit: str) -> None:
        session.add(broker, "groups", f"{title}, {delay}", value, unit, Better.LOWER)

    await asyncio.to_thread(time.sleep, SETTLE_SECONDS)
    idle = resident_bytes(broker.pid)
    add("first FindCoordinator to first assignment", await group_members.first_join(broker.port) * 1e3, "ms")
    add(f"{crowd} members join one group", await group_members.one_group(broker.port, crowd), "s")
    add(f"{crowd} members: memory gained", (resident_bytes(broker.pid) - idle) / MIB, "MiB")
    before = resident_bytes(broker.pid)
    seconds, connections = await group_members.many_groups(broker.port, alone)
    add(f"{alone:,} groups of one member", seconds, "s")
    add(f"{alone:,} groups: memory gained", (resident_bytes(broker.pid) - before) / MIB, "MiB")
    add(f"{alone:,} groups: memory in all", resident_bytes(broker.pid) / MIB, "MiB")
    for connection in connections:
        await connection.close()
    with Requester(broker.port) as requester:
        requester.create_topic("bench", 1)
    heartbeats, commits = await group_members.rates(broker.port, BUSY, session.plan.scaled(4, 2))
    for title, value in (("heartbeats", heartbeats), ("commits", commits)):
        session.add(broker, "groups", f"{title} of {BUSY} members, {delay}", value, "requests/s", Better.HIGHER)
