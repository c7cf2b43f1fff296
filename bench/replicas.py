"""What both replication scenarios do to a cluster: let one replica catch up, and produce while leaders come and go."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from bench import programs
from bench.clusters import Cluster
from bench.requests import Requester, RequestFailed
from braidlog.wire.records.builder import build_batch
from braidlog.wire.records.reading import Record

CATCH_UP_RECORD: Final = 1024
POLL_S: Final = 0.002
TIMEOUT_S: Final = 120.0
ACKS_ALL: Final = -1


def one_record(size: int = 100) -> bytes:
    """A batch of one record."""
    return build_batch([Record(timestamp=int(time.time() * 1000), value=b"x" * size)])


def catch_up(cluster: Cluster, topic: str, megabytes: int) -> float:
    """MB/s at which a follower copies what was written to its one partition while it was stopped.

    The clock runs from the first byte that the follower writes to the last: what a start takes is another figure.
    """
    leader, follower = cluster.brokers[:2]
    view = cluster.complete()
    with Requester(cluster.brokers[view.controller].port) as controller:
        controller.create_topic_on(topic, 1, (0, 1))
    with Requester(leader.port) as requester:
        requester.await_leaders(topic, 1)
    cluster.agreed(lambda view: not view.under_replicated)
    follower.stop()
    programs.run(
        "load",
        "produce",
        brokers=f"127.0.0.1:{leader.port}",
        topic=topic,
        size=CATCH_UP_RECORD,
        count=megabytes * 1_000_000 // CATCH_UP_RECORD,
        acks=1,
    )
    growth = _Growth(follower.data, topic, _log_bytes(leader.data, topic))
    # Not the other way round: a process ends with the thread that started it.
    with ThreadOf(growth.watch):
        follower.start()
    rate = growth.rate()
    cluster.agreed(lambda view: not view.under_replicated)
    with Requester(cluster.brokers[cluster.complete().controller].port) as controller:
        controller.delete_topic(topic)
    return rate


class _Growth:
    """How the log of a replica grows, from its first byte to the last that is wanted."""

    def __init__(self, data: Path, topic: str, wanted: int) -> None:
        self._data = data
        self._topic = topic
        self._wanted = wanted
        self._sizes: list[tuple[float, int]] = []

    def watch(self) -> None:
        before = size = _log_bytes(self._data, self._topic)
        deadline = time.monotonic() + TIMEOUT_S
        while size < self._wanted:
            time.sleep(POLL_S)
            size, at = _log_bytes(self._data, self._topic), time.monotonic()
            if size > before:
                self._sizes.append((at, size))
            if at > deadline:
                raise TimeoutError(f"a follower has {size:,} of {self._wanted:,} bytes")

    def rate(self) -> float:
        """MB/s; what was there at the first look was written before it."""
        (began, first), (ended, last) = self._sizes[0], self._sizes[-1]
        return (last - first) / 1e6 / (ended - began)


def _log_bytes(data: Path, topic: str) -> int:
    return sum(path.stat().st_size for path in data.glob(f"**/{topic}-0/*.log"))


class ThreadOf:
    """Something that blocks, beside the block of a `with`; what it raises is raised at the end of that."""

    def __init__(self, work: Callable[[], None]) -> None:
        self._work = work
        self._problem: BaseException | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)

    def _run(self) -> None:
        try:
            self._work()
        except BaseException as problem:
            self._problem = problem

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, *_: object) -> None:
        self._thread.join()
        if self._problem is not None:
            raise self._problem


class ProduceProbe:
    """One record at a time to one partition, acks=all, to whoever leads it; tells when each was acknowledged.

    It asks every broker that answers who leads, so that no client's idea of when to ask again is measured.
    """

    def __init__(self, cluster: Cluster, topic: str) -> None:
        self._ports = [broker.port for broker in cluster.brokers]
        self._topic = topic
        self._records = one_record()
        self._stop = threading.Event()
        # When each acknowledgement came, and from whom.
        self.acknowledged: list[tuple[float, int]] = []
        self._connections: dict[int, Requester] = {}

    def run(self) -> None:
        leader = -1
        while not self._stop.is_set():
            if leader < 0:
                leader = self._find_leader()
            if leader < 0 or not self._produce(leader):
                leader = -1
                self._stop.wait(POLL_S)
        for connection in self._connections.values():
            connection.__exit__()

    def end(self) -> None:
        self._stop.set()

    def _find_leader(self) -> int:
        for number in range(len(self._ports)):
            try:
                leader = self._connection(number).view().leaders.get((self._topic, 0), -1)
            except (OSError, RequestFailed):
                self._forget(number)
                continue
            if leader >= 0 and self._is_reachable(leader):
                return leader
        return -1

    def _is_reachable(self, number: int) -> bool:
        try:
            self._connection(number)
        except OSError:
            return False
        return True

    def _produce(self, leader: int) -> bool:
        try:
            errors = self._connection(leader).produce(self._topic, [0], self._records, ACKS_ALL)
        except (OSError, RequestFailed):
            self._forget(leader)
            return False
        if not errors:
            self.acknowledged.append((time.monotonic(), leader))
            self._stop.wait(POLL_S)
        return not errors

    def _connection(self, number: int) -> Requester:
        if number not in self._connections:
            self._connections[number] = Requester(self._ports[number])
        return self._connections[number]

    def _forget(self, number: int) -> None:
        connection = self._connections.pop(number, None)
        if connection is not None:
            connection.__exit__()

    def first_after(self, at: float, other_than: int) -> float:
        """When the first record after `at` was acknowledged by another broker; waits for it."""
        deadline = time.monotonic() + TIMEOUT_S
        while time.monotonic() < deadline:
            for acknowledged, leader in reversed(self.acknowledged):
                if acknowledged <= at:
                    break
                if leader != other_than:
                    return min(when for when, who in self.acknowledged if when > at and who != other_than)
            time.sleep(POLL_S)
        raise TimeoutError(f"nothing is acknowledged any more for {self._topic}")

    def longest_gap(self, after: float, until: float) -> float:
        """Between two acknowledgements."""
        times = [after, *(at for at, _ in self.acknowledged if after < at < until), until]
        return max(later - earlier for earlier, later in itertools.pairwise(times))


@contextmanager
def producing(cluster: Cluster, topic: str) -> Iterator[ProduceProbe]:
    """From the first acknowledgement on."""
    probe = ProduceProbe(cluster, topic)
    with ThreadOf(probe.run):
        try:
            probe.first_after(0.0, other_than=-1)
            yield probe
        finally:
            probe.end()
