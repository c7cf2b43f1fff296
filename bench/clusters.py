"""Three brokers of one kind on one ZooKeeper, under a path of their own."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

from kazoo.client import KazooClient

from bench.brokers import Braidlog, KafkaWithZooKeeper, OtherCheckout
from bench.measures import BEFORE, BRAIDLOG
from bench.requests import Requester, View
from bench.session import Session
from braidlog.local_cluster.zookeeper import ZooKeeper

BROKERS = 3
SESSION_TIMEOUT_MS = 6_000
ASK_AGAIN_S = 0.1
# A small question may be asked more often.
ASK_SMALL_AGAIN_S = 0.005
TIMEOUT_S = 600.0

ClusterBroker = Braidlog | KafkaWithZooKeeper


@dataclass(frozen=True, slots=True)
class Cluster:
    """`brokers` in the order of their ids."""

    zookeeper: ZooKeeper
    chroot: str
    brokers: list[ClusterBroker]

    @property
    def name(self) -> str:
        return self.brokers[0].name

    @property
    def bootstrap(self) -> str:
        return ",".join(f"127.0.0.1:{broker.port}" for broker in self.brokers)

    def view(self, number: int) -> View:
        with Requester(self.brokers[number].port) as requester:
            return requester.view()

    def agreed(self, right: Callable[[View], bool], among: Iterable[int] | None = None, topics: bool = True) -> View:
        """Asks each broker until what it describes is right."""
        deadline = time.monotonic() + TIMEOUT_S
        for number in range(len(self.brokers)) if among is None else among:
            with Requester(self.brokers[number].port) as requester:
                while not right(view := requester.view(topics)):
                    if time.monotonic() > deadline:
                        raise TimeoutError(f"broker {number} does not say what is right; {view.controller=}")
                    time.sleep(ASK_AGAIN_S if topics else ASK_SMALL_AGAIN_S)
        return view

    def complete(self) -> View:
        """Waits until every broker knows all brokers and a controller."""
        return self.agreed(lambda view: len(view.brokers) == len(self.brokers) and view.controller >= 0)

    @contextmanager
    def expiry(self, broker: int) -> Iterator[Callable[[], float]]:
        """Gives a function that waits for the registration to end, and says when it did."""
        over = threading.Event()
        at: list[float] = []

        def changed(_: object) -> None:
            at.append(time.monotonic())
            over.set()

        def wait() -> float:
            if not over.wait(TIMEOUT_S):
                raise TimeoutError(f"broker {broker} was killed and is registered still")
            return at[0]

        with self.store() as client:
            client.exists(f"/brokers/ids/{broker}", watch=changed)
            yield wait

    @contextmanager
    def store(self) -> Iterator[KazooClient]:
        """A client of the cluster's own part of ZooKeeper."""
        client = KazooClient(f"{self.zookeeper.connect}{self.chroot}")
        client.start()
        try:
            yield client
        finally:
            client.stop()
            client.close()


@contextmanager
def running(
    session: Session,
    name: str,
    zookeeper: ZooKeeper,
    path: str,
    settings: Mapping[str, str] | None = None,
    count: int = BROKERS,
) -> Iterator[Cluster]:
    """`path` is the cluster's own in ZooKeeper; no two clusters of a run share one."""
    brokers: list[ClusterBroker] = []
    with ExitStack() as stack:
        for number in range(count):
            data = session.work / f"cluster-{path}-{number}"
            own = {
                "broker.id": str(number),
                "zookeeper.connect": f"{zookeeper.connect}/{path}",
                "zookeeper.session.timeout.ms": str(SESSION_TIMEOUT_MS),
                **(settings or {}),
            }
            ours = {**own, "braidlog.http.listen": "127.0.0.1:0"}
            broker: ClusterBroker
            if name == BRAIDLOG:
                broker = Braidlog(data, ours)
            elif name == BEFORE:
                assert session.plan.checkout is not None
                broker = OtherCheckout(session.plan.checkout, data, ours)
            else:
                broker = KafkaWithZooKeeper(data, own)
            stack.callback(session.discard, broker)
            stack.callback(broker.kill)
            broker.start()
            brokers.append(broker)
        yield Cluster(zookeeper, f"/{path}", brokers)
