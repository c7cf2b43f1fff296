"""What TLS and a login cost: throughput and connections a second, and their share of plain text in the same round.

Each broker has three listeners: plain text, TLS, and TLS with a login by PLAIN. The shares are what to compare: Kafka's
own share stands beside ours. A connection is opened, logged in where that is wanted, asked for ApiVersions and closed,
by a few threads of this process, whose own work is in the figures of both brokers alike.
"""

from __future__ import annotations

import ssl
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from tools.peers.kafka import free_port

from bench import programs
from bench.brokers import Broker, CpuWatch, make, topic
from bench.measures import KAFKA, Better
from bench.requests import Requester
from bench.session import LARGE_PARTITIONS, Session, warm_up
from braidlog.security.certificate_authority import CertificateAuthority

GROUP = "security"
PLAIN_TEXT, TLS, LOGIN = "plain text", "TLS", "TLS and a login"
PROTOCOLS = {PLAIN_TEXT: "PLAINTEXT", TLS: "SSL", LOGIN: "SASL_SSL"}
USER, PASSWORD = "bench", "bench-secret"
RECORD_BYTES = 1024
THREADS = 4
# Beside Kafka's share: as much of it must be left.
TARGET = 1.0


@dataclass(slots=True)
class Secured:
    broker: Broker
    ports: dict[str, int]
    trusted: Path
    context: ssl.SSLContext

    def properties(self, way: str) -> str:
        """Of librdkafka."""
        settings = {"security.protocol": PROTOCOLS[way]}
        if way != PLAIN_TEXT:
            settings["ssl.ca.location"] = str(self.trusted)
        if way == LOGIN:
            settings |= {"sasl.mechanism": "PLAIN", "sasl.username": USER, "sasl.password": PASSWORD}
        return "\n".join(f"{name}={value}" for name, value in settings.items())

    def connect(self, way: str) -> None:
        context = None if way == PLAIN_TEXT else self.context
        with Requester(self.ports[way], tls=context) as requester:
            if way == LOGIN:
                requester.log_in(USER, PASSWORD)
            requester.api_versions()


def measure(session: Session) -> None:
    trusted, own = certificates(session.work)
    for number in range(session.plan.rounds):
        for name in session.names:
            session.progress.show(f"{GROUP}: round {number + 1} of {session.plan.rounds}, {name}")
            with running(session, name, trusted, own) as secured:
                _one_round(session, secured, number)


def certificates(work: Path) -> tuple[Path, Path]:
    authority = CertificateAuthority("bench", datetime.now(UTC), timedelta(days=2))
    trusted, own = work / "ca.crt", work / "broker.pem"
    trusted.write_text(authority.own.certificate)
    own.write_text(authority.issue("broker", ["127.0.0.1"]).bundle)
    return trusted, own


@contextmanager
def running(
    session: Session, name: str, trusted: Path, own: Path, settings: Mapping[str, str] | None = None
) -> Iterator[Secured]:
    ports = {way: free_port() for way in PROTOCOLS}
    all_settings = {**_settings(name, ports, own), **(settings or {})}
    broker = make(name, session.fresh(name).data, session.plan.checkout, all_settings)
    broker.port_of_settings = ports[PLAIN_TEXT]
    try:
        broker.start()
        warm_up(broker, session.plan.scaled(6, 1))
        yield Secured(broker, ports, trusted, ssl.create_default_context(cafile=str(trusted)))
        broker.stop()
    finally:
        broker.kill()
        session.discard(broker)


def _settings(name: str, ports: dict[str, int], own: Path) -> dict[str, str]:
    protocols = {protocol: ports[way] for way, protocol in PROTOCOLS.items()}
    listeners = ",".join(f"{protocol}://127.0.0.1:{port}" for protocol, port in protocols.items())
    settings = {
        "listeners": listeners,
        "advertised.listeners": listeners,
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(own),
        "sasl.enabled.mechanisms": "PLAIN",
        "listener.name.sasl_ssl.plain.sasl.jaas.config": (
            f'org.apache.kafka.common.security.plain.PlainLoginModule required user_{USER}="{PASSWORD}";'
        ),
    }
    if name == KAFKA:
        controller = free_port()
        settings |= {
            "listeners": f"{listeners},CONTROLLER://127.0.0.1:{controller}",
            "controller.quorum.voters": f"1@127.0.0.1:{controller}",
            "listener.security.protocol.map": ",".join(f"{each}:{each}" for each in PROTOCOLS.values())
            + ",CONTROLLER:PLAINTEXT",
        }
    return settings


def _one_round(session: Session, secured: Secured, number: int) -> None:
    broker = secured.broker
    count = session.plan.scaled(500, 60) * 1_000_000 // RECORD_BYTES
    rates: dict[tuple[str, str], float] = {}
    for way in PROTOCOLS:
        common: dict[str, programs.Option] = {
            "brokers": f"127.0.0.1:{secured.ports[way]}",
            "topic": f"secured-{number}",
            "partitions": LARGE_PARTITIONS,
            "properties": secured.properties(way),
        }
        with topic(broker, f"secured-{number}", LARGE_PARTITIONS):
            for action, options in (("produce", {"size": RECORD_BYTES, "acks": -1}), ("consume", {})):
                watch = CpuWatch(broker)
                done = programs.run("load", action, count=count, **options, **common)
                rates[action, way] = rate = done["bytes"] / 1e6 / done["seconds"]
                cost = watch.seconds() / (count * RECORD_BYTES / 1e9)
                session.add(broker, GROUP, f"{action}, {way}", rate, "MB/s", Better.HIGHER)
                session.add(broker, GROUP, f"{action}, {way}: processor time", cost, "CPU s/GB", Better.LOWER)
        rates["connections", way] = rate = _connections(secured, way, session.plan.scaled(5, 1))
        session.add(broker, GROUP, f"connections, {way}", rate, "a second", Better.HIGHER)
    for action in ("produce", "consume", "connections"):
        for way in (TLS, LOGIN):
            share = 100 * rates[action, way] / rates[action, PLAIN_TEXT]
            session.add(broker, GROUP, f"{action}, {way}: share of plain text", share, "%", Better.HIGHER, TARGET)


def _connections(secured: Secured, way: str, seconds: float) -> float:
    """Opened, answered and closed a second."""
    until = time.monotonic() + seconds
    counts = [0] * THREADS
    problems: list[Exception] = []

    def work(place: int) -> None:
        try:
            while time.monotonic() < until:
                secured.connect(way)
                counts[place] += 1
        except Exception as problem:
            problems.append(problem)

    began = time.monotonic()
    threads = [threading.Thread(target=work, args=(place,)) for place in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if problems:
        raise problems[0]
    return sum(counts) / (time.monotonic() - began)
