"""Quotas: the rate that a client with one is held to, and what another client beside it keeps of its own.

For producers, consumers, the time of requests and new connections: the client without a quota runs alone, then beside
the one with a quota, which does all it can. Both brokers measure over windows of eleven seconds, whose worth a client
may have at once before it waits for the next: its rate is what it got in whole windows, from its first request on.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from bench import programs
from bench.brokers import Broker, topic
from bench.measures import Better
from bench.requests import Requester, RequestFailed
from bench.session import Session
from braidlog.client import Consumer, TopicPartition
from braidlog.client.admin import Admin, QuotaEntity
from braidlog.wire.records.builder import Record, build_batch

GROUP = "quotas"
LIMITED, FREE = "limited", "free"
WINDOW_S = 11.0
RATE = 1_000_000
RECORD_BYTES = 10_000
# What the other client writes and reads: so that the processor is its limit, never the disk.
OTHER_RECORDS, OTHER_RECORD_BYTES, OTHER_BATCH_BYTES = 50_000, 1_000, 16_384
PERCENTAGE = 1.0
CONNECTIONS = 10
# Where the connections without a quota come from, and how many come a second: each leaves a port that is not free for a
# minute.
OTHER_ADDRESS = "127.0.0.2"
OTHERS = 100
# How far off its quota a rate may be, in percent.
MOST_OFF = 10.0
# What another client must keep of its rate beside one that is held, in percent.
LEAST_SHARE = 90.0

Work = Callable[[Callable[[int], None], Callable[[], bool]], None]


def measure(session: Session) -> None:
    for number, broker in session.interleaved(GROUP):
        with Admin(bootstrap_servers=f"127.0.0.1:{broker.port}", client_id="bench-admin") as admin:
            # Later it may not be able to connect.
            admin.describe_client_quotas()
            _bytes(session, broker, admin, f"quotas-{number}", "produce", "producer_byte_rate")
            _bytes(session, broker, admin, f"quotas-{number}", "consume", "consumer_byte_rate")
            _requests(session, broker, admin)
            _connections(session, broker, admin)


def _bytes(session: Session, broker: Broker, admin: Admin, name: str, action: str, quota: str) -> None:
    seconds = _measured_s(session)
    with topic(broker, f"{name}-{LIMITED}", 1) as limited_topic, topic(broker, f"{name}-{FREE}", 1) as free_topic:
        work: Work
        if action == "produce":
            work = _producer(broker, limited_topic)
        else:
            # More than it can read meanwhile.
            _fill(broker, limited_topic, round(RATE * 2 * seconds) // RECORD_BYTES, RECORD_BYTES)
            work = _consumer(broker, limited_topic)
            _fill(broker, free_topic, OTHER_RECORDS, OTHER_RECORD_BYTES)
        other = _load(broker, free_topic, action)
        with _quota(admin, QuotaEntity(client_id=LIMITED), quota, RATE):
            held, alone, beside = _compared(work, other, seconds)
    what = f"{action}, limited to {RATE / 1e6:g} MB/s"
    session.add(broker, GROUP, what, held / 1e6, "MB/s", Better.HIGHER)
    session.add(broker, GROUP, f"{what}: off its quota", _off(held, RATE), "%", Better.LOWER, limit=MOST_OFF)
    _add_other(session, broker, action, "MB/s", alone / 1e6, beside / 1e6)


def _requests(session: Session, broker: Broker, admin: Admin) -> None:
    def asking(client_id: str) -> Work:
        def work(count: Callable[[int], None], stopped: Callable[[], bool]) -> None:
            with Requester(broker.port, client_id=client_id) as requester:
                while not stopped():
                    requester.view()
                    count(1)

        return work

    with _quota(admin, QuotaEntity(client_id=LIMITED), "request_percentage", PERCENTAGE):
        held, alone, beside = _compared(asking(LIMITED), asking(FREE), _measured_s(session))
    session.add(broker, GROUP, f"requests, limited to {PERCENTAGE:g} % of a thread", held, "a second", Better.HIGHER)
    _add_other(session, broker, "requests", "a second", alone, beside)


def _connections(session: Session, broker: Broker, admin: Admin) -> None:
    def connecting(source: str, most: int) -> Work:
        def work(count: Callable[[int], None], stopped: Callable[[], bool]) -> None:
            due = time.monotonic()
            while not stopped():
                due = max(due + 1 / most, time.monotonic() - 1)
                time.sleep(max(0.0, due - time.monotonic()))
                try:
                    with Requester(broker.port, source=source) as requester:
                        requester.api_versions()
                        count(1)
                except (RequestFailed, ConnectionError):
                    # Closed by the broker: the address had too many.
                    continue

        return work

    with _quota(admin, QuotaEntity(ip="127.0.0.1"), "connection_creation_rate", CONNECTIONS):
        held, alone, beside = _compared(
            connecting("127.0.0.1", 10 * CONNECTIONS), connecting(OTHER_ADDRESS, OTHERS), _measured_s(session)
        )
    what = f"connections, limited to {CONNECTIONS} a second"
    session.add(broker, GROUP, what, held, "a second", Better.HIGHER)
    # Whoever tries one after the other waits for a second with each that is refused, and so stays below it.
    session.add(
        broker, GROUP, f"{what}: above its quota", max(0.0, held / CONNECTIONS - 1) * 100, "%", Better.LOWER,
        limit=MOST_OFF,
    )  # fmt: skip
    _add_other(session, broker, "connections", "a second", alone, beside)


def _add_other(session: Session, broker: Broker, what: str, unit: str, alone: float, beside: float) -> None:
    session.add(broker, GROUP, f"{what}, another client alone", alone, unit, Better.HIGHER)
    session.add(broker, GROUP, f"{what}, another client beside it", beside, unit, Better.HIGHER)
    share = 100 * beside / alone
    session.add(broker, GROUP, f"{what}, another client: share of alone", share, "%", Better.HIGHER, limit=LEAST_SHARE)


def _off(held: float, quota: float) -> float:
    return abs(held / quota - 1) * 100


def _measured_s(session: Session) -> float:
    return WINDOW_S * session.plan.scaled(4, 2)


@contextmanager
def _quota(admin: Admin, entity: QuotaEntity, key: str, value: float) -> Iterator[None]:
    admin.alter_client_quotas({entity: {key: value}}).raise_for_errors()
    # A broker of Kafka has it a moment after its controller.
    while entity not in admin.describe_client_quotas():
        time.sleep(0.01)
    try:
        yield
    finally:
        admin.alter_client_quotas({entity: {key: None}}).raise_for_errors()


class _Running:
    """Work in a thread of its own, counted until it is stopped."""

    def __init__(self, work: Work) -> None:
        self.count = 0
        self._stopped = threading.Event()
        self._problem: Exception | None = None
        self._thread = threading.Thread(target=self._run, args=(work,))
        self._thread.start()

    def _run(self, work: Work) -> None:
        try:
            work(self._add, self._stopped.is_set)
        except Exception as problem:
            self._problem = problem

    def _add(self, count: int) -> None:
        self.count += count

    def stop(self) -> None:
        self._stopped.set()
        self._thread.join()
        if self._problem is not None:
            raise self._problem


def _rate(work: Work, seconds: float) -> float:
    """Of work that runs alone, a second."""
    began = time.monotonic()
    running = _Running(work)
    time.sleep(seconds)
    running.stop()
    return running.count / (time.monotonic() - began)


def _compared(limited: Work, other: Work, seconds: float) -> tuple[float, float, float]:
    """The rate of the client with a quota; the other's alone, which is half before and half after, and beside it."""
    before = _rate(other, seconds / 2)
    held, beside = _side_by_side(limited, other, seconds)
    return held, (before + _rate(other, seconds / 2)) / 2, beside


def _side_by_side(limited: Work, other: Work, seconds: float) -> tuple[float, float]:
    held, beside = _Running(limited), _Running(other)
    try:
        # Short of where the next window's worth would come.
        time.sleep(seconds - 0.5)
        counts = held.count, beside.count
    finally:
        try:
            held.stop()
        finally:
            beside.stop()
    return counts[0] / seconds, counts[1] / (seconds - 0.5)


def _producer(broker: Broker, name: str) -> Work:
    records = build_batch([Record(timestamp=0, value=bytes(RECORD_BYTES)) for _ in range(5)])

    def work(count: Callable[[int], None], stopped: Callable[[], bool]) -> None:
        with Requester(broker.port, client_id=LIMITED) as requester:
            while not stopped():
                errors = requester.produce(name, [0], records, -1)
                if errors:
                    raise RequestFailed(f"Produce answered with error codes {errors}")
                count(len(records))

    return work


def _consumer(broker: Broker, name: str) -> Work:
    def work(count: Callable[[int], None], stopped: Callable[[], bool]) -> None:
        with Consumer(bootstrap_servers=f"127.0.0.1:{broker.port}", client_id=LIMITED) as consumer:
            consumer.assign([TopicPartition(name, 0)])
            consumer.seek_to_beginning()
            while not stopped():
                for record in consumer.poll(0.5):
                    count(len(record.value or b""))

    return work


def _fill(broker: Broker, name: str, records: int, size: int) -> None:
    programs.run("load", "produce", count=records, size=size, **_where(broker, name))


def _load(broker: Broker, name: str, action: str) -> Work:
    """librdkafka, as fast as it can, again and again."""
    options: dict[str, programs.Option] = {}
    if action == "produce":
        options = {"size": OTHER_RECORD_BYTES, "batch_bytes": OTHER_BATCH_BYTES, "acks": -1}

    def work(count: Callable[[int], None], stopped: Callable[[], bool]) -> None:
        while not stopped():
            programs.run("load", action, count=OTHER_RECORDS, **options, **_where(broker, name))
            count(OTHER_RECORDS * OTHER_RECORD_BYTES)

    return work


def _where(broker: Broker, name: str) -> dict[str, programs.Option]:
    properties = f"client.id={FREE}"
    return {"brokers": f"127.0.0.1:{broker.port}", "topic": name, "partitions": 1, "properties": properties}
