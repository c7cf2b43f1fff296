"""All cores: one and two workers (`braidlog serve --workers`) beside one Kafka, with as many clients for each of them.

Two load generators run at a time, whatever they measure: with two workers each has its own, whose partitions it leads;
with one worker, and with Kafka, both have the same. On a machine of two cores the generators take what the brokers
could have, so that the processor time of the brokers, which is a row of its own, tells more of a larger machine than
the rates do.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager

from bench import programs
from bench.brokers import Braidlog, Broker, Workers
from bench.machine import cpu_seconds, proportional_bytes
from bench.measures import BRAIDLOG, KAFKA, Better
from bench.requests import Requester
from bench.session import LARGE_PARTITIONS, SMALL_PARTITIONS, Session, readable, warm_up

GROUP = "workers"
CLIENTS = 2
COUNTS = (1, 2)
# Each generator has half of these.
CONNECTIONS = 50
IN_FLIGHT = 5
RECORD_BYTES = 1024
BATCH_BYTES = 16384


class Target:
    """What is measured: where its clients connect, and which processes it has."""

    def __init__(self, broker: Broker) -> None:
        self.broker = broker
        self.workers = broker.workers if isinstance(broker, Workers) else 0
        self.ports = broker.ports if isinstance(broker, Workers) else [broker.port]

    def cpu_seconds(self) -> float:
        return sum(map(cpu_seconds, self.pids))

    @property
    def pids(self) -> list[int]:
        return self.broker.pids if isinstance(self.broker, Workers) else [self.broker.pid]

    def port(self, client: int) -> int:
        return self.ports[client % len(self.ports)]

    def controller_port(self) -> int:
        """Where topics are created; a worker's number is its broker id."""
        if not self.workers:
            return self.broker.port
        with Requester(self.broker.port) as requester:
            return self.ports[requester.view(topics=False).controller]


def measure(session: Session) -> None:
    with ExitStack() as stack:
        targets = [Target(each) for each in _started(session, stack)]
        for number in range(session.plan.rounds):
            for target in targets:
                what = f"{target.workers} workers" if target.workers else target.broker.name
                session.progress.show(f"workers: round {number + 1} of {session.plan.rounds}, {what}")
                _tiny(session, target, f"workers-tiny-{number}")
                _throughput(session, target, f"workers-load-{number}")
                _memory(session, target)


def _started(session: Session, stack: ExitStack) -> Iterator[Broker]:
    for name in session.names:
        if name == KAFKA:
            broker: Broker = session.fresh(name)
            yield _start(session, stack, broker)
        elif name == BRAIDLOG:
            for count in COUNTS:
                data = session.work / f"workers-{count}"
                yield _start(session, stack, Workers(data, count, {"braidlog.http.listen": "127.0.0.1:0"}))


def _start(session: Session, stack: ExitStack, broker: Broker) -> Broker:
    session.progress.show(f"workers: starting {broker.name}")
    stack.callback(session.discard, broker)
    stack.callback(broker.kill)
    broker.start()
    if not isinstance(broker, Braidlog):
        # Only what compiles while it runs gains by it; a topic of the warm-up may lie on any worker.
        warm_up(broker, session.plan.scaled(6, 2))
    return broker


@contextmanager
def _topics(target: Target, name: str, partitions: int) -> Iterator[list[str]]:
    """One for each client, led by the worker that the client talks to."""
    names = [f"{name}-{client}" for client in range(CLIENTS)]
    with Requester(target.controller_port()) as controller:
        for client, each in enumerate(names):
            if not target.workers:
                controller.create_topic(each, partitions)
                continue
            controller.create_topic_on(each, partitions, [client % target.workers])
            with Requester(target.port(client)) as worker:
                worker.await_leaders(each, partitions)
    yield names
    with Requester(target.controller_port()) as controller:
        for each in names:
            controller.delete_topic(each)


def _together(runs: Sequence[tuple[str, str, dict[str, programs.Option]]]) -> list[programs.Result]:
    """All at the same time."""
    with ExitStack() as stack:
        children = [stack.enter_context(programs.started(program, mode, **options)) for program, mode, options in runs]
        return [programs.finish(child) for child in children]


def _tiny(session: Session, target: Target, name: str) -> None:
    seconds = session.plan.scaled(4, 2)
    with _topics(target, name, SMALL_PARTITIONS) as names:
        common: list[dict[str, programs.Option]] = [
            {
                "port": target.port(client),
                "topic": each,
                "partitions": SMALL_PARTITIONS,
                "connections": CONNECTIONS // CLIENTS,
                "seconds": seconds,
            }
            for client, each in enumerate(names)
        ]
        before = target.cpu_seconds()
        written = _together([("tiny", "produce", {**each, "in_flight": IN_FLIGHT}) for each in common])
        cpu = target.cpu_seconds() - before
        requests = sum(each["requests"] for each in written)
        _add(session, target, f"tiny produce, {CONNECTIONS} connections", _rate(written), "requests/s", Better.HIGHER)
        _add(session, target, "tiny produce, processor", cpu / requests * 1e6, "CPU µs/request", Better.LOWER)
        records = min(map(readable, written))
        before = target.cpu_seconds()
        read = _together([("tiny", "fetch", {**each, "records": records}) for each in common])
        cpu = target.cpu_seconds() - before
        requests = sum(each["requests"] for each in read)
        _add(session, target, f"tiny fetch, {CONNECTIONS} connections", _rate(read), "requests/s", Better.HIGHER)
        _add(session, target, "tiny fetch, processor", cpu / requests * 1e6, "CPU µs/request", Better.LOWER)


def _rate(results: Sequence[programs.Result]) -> float:
    return sum(each["requests"] / each["seconds"] for each in results)


def _throughput(session: Session, target: Target, name: str) -> None:
    count = session.plan.scaled(200, 60) * 1_000_000 // RECORD_BYTES
    gigabytes = CLIENTS * count * RECORD_BYTES / 1e9
    with _topics(target, name, LARGE_PARTITIONS) as names:
        common: list[dict[str, programs.Option]] = [
            {"brokers": f"127.0.0.1:{target.port(client)}", "topic": each, "partitions": LARGE_PARTITIONS}
            for client, each in enumerate(names)
        ]
        produced: dict[str, programs.Option] = {"size": RECORD_BYTES, "batch_bytes": BATCH_BYTES, "acks": -1}
        for mode, more in (("produce", produced), ("consume", {})):
            before = target.cpu_seconds()
            results = _together([("load", mode, {**each, **more, "count": count}) for each in common])
            cpu = target.cpu_seconds() - before
            rate = sum(each["bytes"] / 1e6 / each["seconds"] for each in results)
            _add(session, target, f"{mode}, {CLIENTS} clients", rate, "MB/s", Better.HIGHER)
            _add(session, target, f"{mode}, processor", cpu / gigabytes, "CPU s/GB", Better.LOWER)


def _memory(session: Session, target: Target) -> None:
    megabytes = sum(map(proportional_bytes, target.pids)) / 1e6
    _add(session, target, "memory", megabytes, "MB", Better.LOWER)


def _add(session: Session, target: Target, title: str, value: float, unit: str, better: Better) -> None:
    """Kafka's value stands beside that of either number of workers."""
    counts = (target.workers,) if target.workers else COUNTS
    for count in counts:
        name = f"{title}; {count} worker{'s' if count > 1 else ''}"
        session.measures.add(target.broker.name, GROUP, name, value, unit, better)
