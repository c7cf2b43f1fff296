"""What connections that do nothing cost: a client that works, alone and beside 10,000 idle and 200 half-open ones.

Half of the half-open ones have sent a part of a request, half of them a part of a TLS handshake. A round measures the
client alone, beside them and alone again, on the same broker; the share is of that round. Kafka's own share stands
beside ours.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import NamedTuple

from tools.peers.kafka import free_port

from bench import programs
from bench.brokers import Broker, CpuWatch, make, topic
from bench.held_connections import allow_handles
from bench.machine import cpu_nanoseconds, resident_bytes
from bench.measures import KAFKA, Better
from bench.scenarios.security import certificates
from bench.session import SMALL_PARTITIONS, Session, readable, warm_up

GROUP = "idle_connections"
IDLE, QUICK_IDLE = 10_000, 2_000
HALF_OPEN = 200
# Of what the client does alone, in %.
LEAST_SHARE = 90.0
SETTLE_SECONDS = 1.0


def measure(session: Session) -> None:
    idle = session.plan.scaled(IDLE, QUICK_IDLE)
    # Also of the brokers, which inherit it.
    allow_handles(idle + HALF_OPEN)
    _, own = certificates(session.work)
    with ExitStack() as stack:
        brokers = [stack.enter_context(_running(session, name, own)) for name in session.names]
        for number in range(session.plan.rounds):
            for broker, tls_port in brokers:
                session.progress.show(f"{GROUP}: round {number + 1} of {session.plan.rounds}, {broker.name}")
                _one_round(session, broker, tls_port, number, idle)


@contextmanager
def _running(session: Session, name: str, own: Path) -> Iterator[tuple[Broker, int]]:
    port, tls_port = free_port(), free_port()
    broker = make(name, session.fresh(name).data, session.plan.checkout, _settings(name, port, tls_port, own))
    broker.port_of_settings = port
    try:
        session.progress.show(f"{GROUP}: starting {name}")
        broker.start()
        warm_up(broker, session.plan.scaled(6, 1))
        yield broker, tls_port
        broker.stop()
    finally:
        broker.kill()
        session.discard(broker)


def _settings(name: str, port: int, tls_port: int, own: Path) -> dict[str, str]:
    listeners = f"PLAINTEXT://127.0.0.1:{port},SSL://127.0.0.1:{tls_port}"
    settings = {
        "listeners": listeners,
        "advertised.listeners": listeners,
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(own),
    }
    if name == KAFKA:
        controller = free_port()
        settings |= {
            "listeners": f"{listeners},CONTROLLER://127.0.0.1:{controller}",
            "controller.quorum.voters": f"1@127.0.0.1:{controller}",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,SSL:SSL,CONTROLLER:PLAINTEXT",
        }
    return settings


def _one_round(session: Session, broker: Broker, tls_port: int, number: int, idle: int) -> None:
    title = f"{idle:,} idle and {HALF_OPEN} half-open"
    with topic(broker, f"idle-{number}", SMALL_PARTITIONS) as name:
        time.sleep(SETTLE_SECONDS)
        alone = _worked(session, broker, name)
        before = resident_bytes(broker.pid)
        with _held(broker, tls_port, idle) as (holder, opened):
            time.sleep(SETTLE_SECONDS)
            if number == 0:
                # Later rounds use again what this one has left.
                memory = max(0, resident_bytes(broker.pid) - before)
                session.add(broker, GROUP, "memory, each", memory / (idle + HALF_OPEN) / 1024, "KiB", Better.LOWER)
            session.add(broker, GROUP, "open and ask, each", opened / idle * 1e3, "ms", Better.LOWER)
            watch, seconds = CpuWatch(broker), session.plan.scaled(5, 2)
            time.sleep(seconds)
            session.add(broker, GROUP, f"{title}: processor", 100 * watch.seconds() / seconds, "%", Better.LOWER)
            beside = _worked(session, broker, name)
            _check(session, broker, holder, idle)
        time.sleep(SETTLE_SECONDS)
        again = _worked(session, broker, name)
    for what in alone:
        # Before and after: what the machine does meanwhile should not count as theirs.
        rate = (alone[what].rate + again[what].rate) / 2
        session.add(broker, GROUP, f"{what}, alone", rate, "requests/s", Better.HIGHER)
        session.add(broker, GROUP, f"{what}, beside {title}", beside[what].rate, "requests/s", Better.HIGHER)
        share = 100 * beside[what].rate / rate
        session.add(broker, GROUP, f"{what}: share of alone", share, "%", Better.HIGHER, limit=LEAST_SHARE)
        for where, worked in (("alone", alone[what]), (f"beside {title}", beside[what])):
            session.add(broker, GROUP, f"{what}, {where}: p99", worked.p99_ms, "ms", Better.LOWER)
            session.add(broker, GROUP, f"{what}, {where}: processor", worked.cpu_us, "µs/request", Better.LOWER)


class Worked(NamedTuple):
    # Requests a second.
    rate: float
    p99_ms: float
    # The broker's, for each request: of use also where the machine is not quiet.
    cpu_us: float


def _worked(session: Session, broker: Broker, name: str) -> dict[str, Worked]:
    """One client, one request at a time, by what it did."""
    common: dict[str, programs.Option] = {
        "port": broker.port,
        "topic": name,
        "partitions": SMALL_PARTITIONS,
        "connections": 1,
        "seconds": session.plan.scaled(5, 1),
    }
    found: dict[str, Worked] = {}
    records = 1
    for what in ("produce", "fetch"):
        before = cpu_nanoseconds(broker.pid)
        options = {"records": records} if what == "fetch" else {}
        done = programs.run("tiny", what, **common, **options)
        spent = cpu_nanoseconds(broker.pid) - before
        found[what] = Worked(
            done["requests"] / done["seconds"], done["p99_us"] / 1e3, spent / 1e3 / max(1, done["requests"])
        )
        if what == "produce":
            records = readable(done)
    return found


@contextmanager
def _held(broker: Broker, tls_port: int, idle: int) -> Iterator[tuple[subprocess.Popen[str], float]]:
    """The connections are there within the block; also how long it took to open the idle ones."""
    options = {"port": broker.port, "tls-port": tls_port, "idle": idle}
    options |= {"half-frames": HALF_OPEN // 2, "half-handshakes": HALF_OPEN // 2}
    command = [sys.executable, "-m", "bench.held_connections"]
    for option, value in options.items():
        command += [f"--{option}", str(value)]
    with subprocess.Popen(
        command, cwd=Path(__file__).parents[2], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as holder:
        try:
            yield holder, float(_line(holder)["seconds"])
        finally:
            assert holder.stdin is not None
            holder.stdin.close()
            holder.wait(timeout=120)


def _line(holder: subprocess.Popen[str]) -> dict[str, float]:
    assert holder.stdout is not None
    line = holder.stdout.readline()
    if not line:
        raise programs.ProgramFailed("the program that holds connections has ended")
    said: dict[str, float] = json.loads(line)
    return said


def _check(session: Session, broker: Broker, holder: subprocess.Popen[str], idle: int) -> None:
    """Whoever was idle is served, however long it was."""
    assert holder.stdin is not None
    holder.stdin.write("\n")
    holder.stdin.flush()
    said = _line(holder)
    if said["answered"] != idle:
        raise programs.ProgramFailed(f"{broker.name} answered {said['answered']} of {idle} idle connections")
    if said["half_open"] != HALF_OPEN:
        session.notes.append(
            f"{broker.name}: {HALF_OPEN - said['half_open']:.0f} of {HALF_OPEN} half-open connections were closed"
        )
