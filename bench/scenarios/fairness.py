"""How long one client waits while another does its worst: a record every 5 ms beside each of the attacks."""

from __future__ import annotations

import sys
import time
from pathlib import Path

from bench.brokers import Broker
from bench.measures import BRAIDLOG, Better
from bench.session import Session

# The attacks belong to the fault tests, which hold the broker to bounds; here they are only measured.
sys.path.append(str(Path(__file__).parents[2] / "tests"))

from support.attacks.catalog import ATTACKS, Attack, Harm
from support.attacks.processes import (
    ClientFailed,
    Latencies,
    MemoryWatch,
    RunningAttack,
    Victim,
    memory_of,
)
from support.attacks.target import Target
from support.attacks.victim import TOPIC as VICTIM_TOPIC

MIB = 2**20
GROUP = "fairness"
ALONE = "no attack"
SETTLE_SECONDS = 1.0
# An attack that a broker takes slowly, or that it stops taking, is watched for so long.
LONGEST_SECONDS = 30.0
# A broker that keeps more than this of what an attack took is replaced, so that the next peak is the next attack's own.
# Not so Kafka, whose heap has a fixed size and fills up however little is needed.
KEPT_BYTES = 32 * MIB


def measure(session: Session) -> None:
    """Each attack against both brokers in turn; attacks on memory come last, as a broker may not live through them."""
    running: dict[str, Broker] = {}
    at_start: dict[str, int] = {}
    chosen = [ATTACKS[name] for name in session.plan.attacks] or sorted(
        ATTACKS.values(), key=lambda attack: attack.harm is Harm.MEMORY
    )
    try:
        for attack in chosen:
            for name in session.names:
                session.progress.show(f"fairness: {attack.title}, {name}")
                if name not in running:
                    running[name] = _started(session, name)
                    at_start[name] = memory_of(running[name].pid)
                lives = _measured(session, running[name], attack)
                if not lives or (name == BRAIDLOG and memory_of(running[name].pid) > at_start[name] + KEPT_BYTES):
                    _end(session, running.pop(name))
    finally:
        for broker in running.values():
            _end(session, broker)


def _started(session: Session, name: str) -> Broker:
    broker = session.fresh(name)
    broker.start()
    with Victim(broker.port) as victim:
        # Long enough for a just-in-time compiler to have seen the victim's requests.
        time.sleep(session.plan.scaled(10, 3))
        begin = time.monotonic()
        _add(session, broker, ALONE, _watched(victim, begin, session.plan.scaled(5, 2)))
    return broker


def _end(session: Session, broker: Broker) -> None:
    broker.kill()
    session.discard(broker)


def _watched(victim: Victim, begin: float, seconds: float) -> Latencies:
    end = begin + seconds
    victim.await_report_after(end)
    return victim.between(begin, end)


def _measured(session: Session, broker: Broker, attack: Attack) -> bool:
    """Whether the broker came through it, and can take the next one."""
    try:
        scale = session.plan.scaled(100, 20) / 100
        with RunningAttack(attack.name, broker.port, scale) as running, Victim(broker.port) as victim:
            time.sleep(SETTLE_SECONDS)
            memory = MemoryWatch(broker.pid)
            begin = time.monotonic()
            running.begin()
            running.has_landed_within(LONGEST_SECONDS)
            seconds = max(session.plan.scaled(5, 2), time.monotonic() - begin)
            seen = _watched(victim, begin, seconds)
            peak = memory.peak
            counts = running.finish()
        if seen.broken:
            session.notes.append(f"{broker.name}, {attack.title}: the victim lost its connection: {seen.broken[0]}")
        if counts.get("closed"):
            session.notes.append(f"{broker.name}, {attack.title}: {counts['closed']} connections were closed")
        _add(session, broker, attack.title, seen)
        session.add(broker, GROUP, f"{attack.title}: memory", peak / MIB, "MiB", Better.LOWER)
        _clear(broker)
        return True
    except (AssertionError, ClientFailed, OSError) as problem:
        session.notes.append(f"{broker.name}, {attack.title}: {type(problem).__name__}: {str(problem)[:200]}")
        return False


def _add(session: Session, broker: Broker, title: str, seen: Latencies) -> None:
    if not seen.values:
        session.notes.append(f"{broker.name}, {title}: the victim was not answered at all")
        return
    for what, value in (("p50", seen.p50), ("p99", seen.p99), ("max", seen.max)):
        session.add(broker, GROUP, f"{title}: {what}", value, "ms", Better.LOWER)


def _clear(broker: Broker) -> None:
    """Delete what the attack has made."""
    target = Target(broker.port)
    try:
        target.delete_topics_but({VICTIM_TOPIC})
    finally:
        target.close()
