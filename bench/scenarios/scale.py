"""As it grows: memory and time per partition and per connection, handles held, start-up after either kind of stop."""

from __future__ import annotations

import json
import time

from bench import programs
from bench.brokers import Broker
from bench.machine import handle_limit, open_handles, resident_bytes
from bench.measures import BRAIDLOG, Better
from bench.requests import Requester
from bench.session import Session

PARTITIONS = (1, 100, 1_000, 10_000)
CONNECTIONS = (1, 1_000, 5_000)
TOPIC_PARTITIONS = 1_000
SETTLE_SECONDS = 1.0


def measure(session: Session) -> None:
    session.notes.append(f"a process may hold {handle_limit():,} handles on this machine")
    for name in session.names:
        largest = session.plan.scaled(PARTITIONS[-1], 1_000)
        if name != BRAIDLOG:
            # Kafka takes minutes to make, close and recover thousands of partitions; asked for, it is measured too.
            largest = min(largest, session.plan.scale_peer_partitions)
            if largest == 0:
                continue
        for count in [count for count in PARTITIONS if count <= largest]:
            session.progress.show(f"scale: {count:,} partitions, {name}")
            broker = session.fresh(name)
            try:
                _grow_partitions(session, broker, count)
            finally:
                broker.kill()
                session.discard(broker)
        broker = session.fresh(name)
        try:
            broker.start()
            for count in CONNECTIONS[: session.plan.scaled(3, 2)]:
                session.progress.show(f"scale: {count:,} connections, {name}")
                _grow_connections(session, broker, count)
            broker.stop()
        finally:
            broker.kill()
            session.discard(broker)


def _topics(count: int) -> list[tuple[str, int]]:
    """Kafka's controller refuses 10,000 partitions in one request, so they come as topics of a thousand."""
    return [(f"wide-{first}", min(TOPIC_PARTITIONS, count - first)) for first in range(0, count, TOPIC_PARTITIONS)]


def _grow_partitions(session: Session, broker: Broker, count: int) -> None:
    title = f"{count:,} partition{'s' if count > 1 else ''}"
    broker.start()
    time.sleep(SETTLE_SECONDS)
    empty = resident_bytes(broker.pid)
    began = time.monotonic()
    with Requester(broker.port) as requester:
        for name, partitions in _topics(count):
            requester.create_topic(name, partitions)
    created = time.monotonic()
    _touch(broker, count)
    touched = time.monotonic()
    time.sleep(SETTLE_SECONDS)
    memory = max(0, resident_bytes(broker.pid) - empty)
    _add(session, broker, f"{title}: create, each", (created - began) / count * 1e3, "ms")
    _add(session, broker, f"{title}: first record, each", (touched - created) / count * 1e3, "ms")
    if count > 1:
        _add(session, broker, f"{title}: memory, each", memory / count / 1024, "KiB")
    _add(session, broker, f"{title}: memory in all", resident_bytes(broker.pid) / 2**20, "MiB")
    _add(session, broker, f"{title}: open handles", open_handles(broker.pid), "")
    began = time.monotonic()
    broker.stop()
    _add(session, broker, f"{title}: clean stop", time.monotonic() - began, "s")
    _restart(session, broker, count, f"{title}: start after a clean stop")
    _touch(broker, count)
    broker.kill()
    _restart(session, broker, count, f"{title}: start after kill -9")
    broker.stop()


def _touch(broker: Broker, count: int) -> None:
    for name, partitions in _topics(count):
        programs.run("tiny", "touch", port=broker.port, topic=name, partitions=partitions)


def _restart(session: Session, broker: Broker, count: int, title: str) -> None:
    broker.start()
    with Requester(broker.port) as requester:
        for name, partitions in _topics(count):
            requester.await_leaders(name, partitions)
    led = time.clock_gettime(time.CLOCK_BOOTTIME) - broker.born
    _add(session, broker, f"{title}, first answer", broker.start_seconds, "s")
    _add(session, broker, f"{title}, every partition led", led, "s")


def _grow_connections(session: Session, broker: Broker, count: int) -> None:
    title = f"{count:,} connection{'s' if count > 1 else ''}"
    time.sleep(SETTLE_SECONDS)
    before = resident_bytes(broker.pid)
    with programs.started("tiny", "hold", port=broker.port, connections=count) as holder:
        assert holder.stdout is not None
        line = holder.stdout.readline()
        if not line:
            programs.finish(holder)
        opened = json.loads(line)
        memory = max(0, resident_bytes(broker.pid) - before)
        handles = open_handles(broker.pid)
        holder.communicate(timeout=60)
    _add(session, broker, f"{title}: open and ask, each", opened["seconds"] / count * 1e3, "ms")
    if count > 1:
        _add(session, broker, f"{title}: memory, each", memory / count / 1024, "KiB")
    _add(session, broker, f"{title}: open handles", handles, "")
    name = f"connections-{count}"
    with Requester(broker.port) as requester:
        requester.create_topic(name, 10)
    result = programs.run(
        "tiny",
        "produce",
        port=broker.port,
        topic=name,
        partitions=10,
        connections=count,
        seconds=session.plan.scaled(3, 1),
        warm_seconds=1,
    )
    _add(
        session,
        broker,
        f"{title}: produce",
        result["requests"] / result["seconds"],
        "requests/s",
        Better.HIGHER,
    )
    _add(session, broker, f"{title}: produce p99", result["p99_us"] / 1e3, "ms")


def _add(session: Session, broker: Broker, title: str, value: float, unit: str, better: Better = Better.LOWER) -> None:
    session.add(broker, "scale", title, value, unit, better)
