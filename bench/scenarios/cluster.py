"""Three brokers on one ZooKeeper with many topics: creating them, and the controller's death until everyone knows.

From the moment at which ZooKeeper ended the session of the killed controller, which is the same for both kinds, it is
measured when each broker left names the new controller, and when all of them describe every partition rightly: led as
before, or by nobody where the dead broker was its only replica. Meanwhile a process for each broker asks it a small
question every few milliseconds: the longest wait is how long that broker served nobody.
"""

from __future__ import annotations

import multiprocessing
import os
import re
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from multiprocessing.connection import Connection
from typing import NamedTuple

from kazoo.client import KazooClient

from bench.brokers import Braidlog, KafkaWithZooKeeper
from bench.machine import resident_bytes
from bench.measures import BRAIDLOG, KAFKA, Better
from bench.requests import Requester, View
from bench.session import Session
from braidlog.testing.zookeeper import ZooKeeper

BROKERS = 3
TOPIC_PARTITIONS = 10
PARTITIONS = (1_000, 10_000)
# Kafka's controller refuses 10,000 partitions in one request.
TOPICS_IN_A_REQUEST = 100
SESSION_TIMEOUT_MS = 6_000
# One failover a controller: the killed one comes back before the next.
QUICK_FAILOVERS, FAILOVERS = 1, 3
PROBE_EVERY_S = 0.005
# Of the process that asks, so that it is not what waits.
PROBE_NICENESS = -5
ASK_AGAIN_S = 0.1
TIMEOUT_S = 600.0
SETTLE_S = 2.0

ClusterBroker = Braidlog | KafkaWithZooKeeper


class Probe(NamedTuple):
    """What one broker answered: when each answer came, after how long, and who the controller is."""

    answers: list[tuple[float, float, int]]

    def longest_wait(self) -> float:
        return max(waited for _, waited, _ in self.answers)

    def first_names_other_than(self, controller: int) -> float:
        return next(at for at, _, named in self.answers if named not in (controller, -1))


def measure(session: Session) -> None:
    session.notes.append(f"cluster: load average before it {os.getloadavg()[0]:.1f}")
    with ZooKeeper(properties={"preAllocSize": "16384"}) as zookeeper:
        for count in PARTITIONS[: session.plan.scaled(2, 1)]:
            for name in session.names:
                if name == KAFKA and count > max(session.plan.scale_peer_partitions, PARTITIONS[0]):
                    session.notes.append(f"cluster: Kafka is not measured with {count:,} partitions")
                    continue
                session.progress.show(f"cluster: {count:,} partitions, {name}")
                with _cluster(session, name, f"{zookeeper.connect}/{name}{count}") as brokers:
                    _Run(session, zookeeper, f"/{name}{count}", brokers, count).measure()
    session.notes.append(f"cluster: load average after it {os.getloadavg()[0]:.1f}")


@contextmanager
def _cluster(session: Session, name: str, connect: str) -> Iterator[list[ClusterBroker]]:
    brokers: list[ClusterBroker] = []
    with ExitStack() as stack:
        for number in range(BROKERS):
            data = session.work / f"cluster-{name}-{connect.rpartition('/')[2]}-{number}"
            settings = {
                "broker.id": str(number),
                "zookeeper.connect": connect,
                "zookeeper.session.timeout.ms": str(SESSION_TIMEOUT_MS),
            }
            broker: ClusterBroker
            if name == BRAIDLOG:
                broker = Braidlog(data, {**settings, "braidlog.http.listen": "127.0.0.1:0"})
            else:
                broker = KafkaWithZooKeeper(data, settings)
            stack.callback(session.discard, broker)
            stack.callback(broker.kill)
            broker.start()
            brokers.append(broker)
        yield brokers


class _Run:
    """One cluster of one kind with one number of partitions."""

    def __init__(
        self, session: Session, zookeeper: ZooKeeper, chroot: str, brokers: list[ClusterBroker], count: int
    ) -> None:
        self._session = session
        self._zookeeper = zookeeper
        self._chroot = chroot
        self._brokers = brokers
        self._count = count

    def measure(self) -> None:
        view = self._agreed(range(BROKERS), lambda view: len(view.brokers) == BROKERS and view.controller >= 0)
        began = time.monotonic()
        topics = [f"topic-{number:04}" for number in range(self._count // TOPIC_PARTITIONS)]
        with Requester(self._brokers[view.controller].port) as controller:
            for first in range(0, len(topics), TOPICS_IN_A_REQUEST):
                controller.create_topics(topics[first : first + TOPICS_IN_A_REQUEST], TOPIC_PARTITIONS)
        self._agreed(range(BROKERS), lambda view: self._led(view) == self._count)
        self._add("create", time.monotonic() - began, "s")
        time.sleep(SETTLE_S)
        for broker in self._brokers:
            self._add("memory of a broker", resident_bytes(broker.pid) / 2**20, "MiB")
        for number in range(self._session.plan.scaled(FAILOVERS, QUICK_FAILOVERS)):
            rest = self._fail_over()
            # Once, as the scrape is itself work that the next figure would contain.
            lags = [lag for broker in rest if number == 0 and (lag := _exported_lag(broker)) is not None]
            if lags:
                self._add("longest stall of the last two minutes, as exported", 1e3 * max(lags), "ms")

    def _fail_over(self) -> list[ClusterBroker]:
        """Gives those that it left running."""
        before = self._agreed(range(BROKERS), lambda view: self._led(view) == self._count)
        killed = before.controller
        rest = [number for number in range(BROKERS) if number != killed]
        orphans = sum(leader == killed for leader in before.leaders.values())
        settled: dict[int, float] = {}

        def right(view: View) -> bool:
            alone = sum(leader == -1 for leader in view.leaders.values())
            return len(view.leaders) == self._count and view.controller in rest and alone == orphans

        with self._gone(killed) as expired, _probing([self._brokers[number].port for number in rest]) as probes:
            self._brokers[killed].kill()
            at = expired()
            # First the small question: to describe all partitions is work that the takeover would wait for.
            self._agreed(rest, lambda view: view.controller in rest, topics=False)
            for number in rest:
                self._agreed([number], right)
                settled[number] = time.monotonic()
            time.sleep(SETTLE_S)
        self._add(
            "controller killed: every broker names another, after expiry",
            max(probe.first_names_other_than(killed) for probe in probes) - at,
            "s",
        )
        self._add("controller killed: every partition is right, after expiry", max(settled.values()) - at, "s")
        self._add("controller killed: longest wait for an answer", 1e3 * max(p.longest_wait() for p in probes), "ms")
        self._add(
            "controller killed: memory of the next",
            resident_bytes(self._brokers[self._view(rest[0]).controller].pid) / 2**20,
            "MiB",
        )
        self._brokers[killed].start()
        return [self._brokers[number] for number in rest]

    @contextmanager
    def _gone(self, broker: int) -> Iterator[Callable[[], float]]:
        """Gives a function that waits for the registration to end, and says when it did."""
        client = KazooClient(f"{self._zookeeper.connect}{self._chroot}")
        client.start()
        over = threading.Event()
        at: list[float] = []

        def changed(_: object) -> None:
            at.append(time.monotonic())
            over.set()

        def wait() -> float:
            if not over.wait(TIMEOUT_S):
                raise TimeoutError(f"broker {broker} was killed and is registered still")
            return at[0]

        try:
            client.exists(f"/brokers/ids/{broker}", watch=changed)
            yield wait
        finally:
            client.stop()
            client.close()

    def _led(self, view: View) -> int:
        return sum(leader >= 0 for leader in view.leaders.values())

    def _view(self, number: int) -> View:
        with Requester(self._brokers[number].port) as requester:
            return requester.view()

    def _agreed(self, numbers: list[int] | range, right: Callable[[View], bool], topics: bool = True) -> View:
        """Asks each until it is right."""
        deadline = time.monotonic() + TIMEOUT_S
        for number in numbers:
            with Requester(self._brokers[number].port) as requester:
                while not right(view := requester.view(topics)):
                    if time.monotonic() > deadline:
                        raise TimeoutError(f"broker {number} does not say what is right; {view.controller=}")
                    time.sleep(ASK_AGAIN_S if topics else PROBE_EVERY_S)
        return view

    def _add(self, what: str, value: float, unit: str) -> None:
        title = f"{self._count:,} partitions: {what}"
        self._session.add(self._brokers[0], "cluster", title, value, unit, Better.LOWER)


@contextmanager
def _probing(ports: list[int]) -> Iterator[list[Probe]]:
    """The list is filled when the block ends."""
    context = multiprocessing.get_context("spawn")
    probes: list[Probe] = []
    children = []
    for port in ports:
        here, there = context.Pipe()
        child = context.Process(target=_probe, args=(port, there), daemon=True)
        child.start()
        children.append((child, here))
    try:
        for _, here in children:
            here.recv()  # it has its first answer
        yield probes
        for _, here in children:
            here.send(None)
        probes += [Probe(here.recv()) for _, here in children]
    finally:
        for child, _ in children:
            child.kill()
            child.join()


def _probe(port: int, parent: Connection) -> None:
    with suppress(PermissionError):  # then it waits its turn as others do
        os.nice(PROBE_NICENESS)
    answers: list[tuple[float, float, int]] = []
    with Requester(port) as requester:
        while not parent.poll():
            asked = time.monotonic()
            controller = requester.view(topics=False).controller
            answered = time.monotonic()
            answers.append((answered, answered - asked, controller))
            if len(answers) == 1:
                parent.send(None)
            time.sleep(PROBE_EVERY_S)
    parent.send(answers)


def _exported_lag(broker: ClusterBroker) -> float | None:
    if not isinstance(broker, Braidlog):
        return None
    with urllib.request.urlopen(f"http://127.0.0.1:{broker.http_port}/metrics", timeout=30) as answer:
        page = answer.read().decode()
    found = re.search(r"^braidlog_event_loop_lag_max_seconds (\S+)", page, re.MULTILINE)
    return float(found[1]) if found is not None else None
