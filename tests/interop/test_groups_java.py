"""Groups and transactions by the Java clients 3.9 and 4.1, in both group protocols."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import ExitStack
from functools import cache
from pathlib import Path

import pytest
from tools.peers.process import LoggedProcess

from support import confluent
from support.broker import Broker
from support.confluent import create_topic
from support.eventually import eventually
from support.groups import LastingBroker
from support.java_programs import NEWER, OLDER, client_programs
from support.samples import Sample, plain_samples
from support.scenario_lines import outcomes

pytestmark = [pytest.mark.peer, pytest.mark.usefixtures("apache_kafka")]

CLASSIC = "classic"
CONSUMER = "consumer"
CLIENTS = (OLDER, NEWER)
PROTOCOLS = (CLASSIC, CONSUMER)

GROUP_SCENARIOS = (
    "join-and-leave", "twelve-at-once", "commits", "auto-commit", "large-metadata", "simple-commit", "static-return",
    "static-fenced", "stalled", "new-partitions", "pattern", "two-topics", "range", "admin-groups", "admin-offsets",
)  # fmt: skip
OF_PROTOCOL = {CLASSIC: ("cooperative", "remove-members"), CONSUMER: ("upgrade", "downgrade")}
TRANSACTION_SCENARIOS = (
    "commit-and-abort", "many-transactions", "last-stable-offset", "empty-transaction", "offsets-in-transaction",
    "pending-offsets", "exactly-once-loop", "zombie-producer", "zombie-member", "takeover-aborts", "timeout-aborts",
    "timeout-too-long", "epochs", "admin-describes", "admin-aborts", "admin-fences",
)  # fmt: skip
SETTLES_WITHIN_S = 60.0


@pytest.fixture(scope="module")
def both_protocols(target_kind: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """A broker whose groups settle quickly and may move from one protocol to the other."""
    settings = {"group.consumer.migration.policy": "bidirectional"}
    with LastingBroker(target_kind, tmp_path_factory.mktemp("java") / "data", settings).life() as running:
        yield running
        assert running.process.returncode is None, f"the broker died:\n{running.log()}"


@cache
def run(bootstrap: str, client: str, main_class: str, *arguments: str) -> dict[str, str]:
    return outcomes(client_programs(client).command(main_class, bootstrap, *arguments))


@pytest.mark.parametrize(
    ("protocol", "scenario"),
    [(protocol, scenario) for protocol in PROTOCOLS for scenario in (*GROUP_SCENARIOS, *OF_PROTOCOL[protocol])],
)
@pytest.mark.parametrize("client", CLIENTS)
def test_group(both_protocols: Broker, client: str, protocol: str, scenario: str) -> None:
    if both_protocols.is_kafka and (client, protocol, scenario) == (NEWER, CONSUMER, "pattern"):
        pytest.skip("Apache Kafka 3.9 does not understand the 4.1 client's first heartbeat with a pattern")
    said = run(both_protocols.bootstrap, client, "GroupScenarios", protocol)
    assert said.get(scenario) == "PASS"


@pytest.mark.parametrize("scenario", ["regex", "bad-regex"])
def test_regex_of_the_broker(both_protocols: Broker, scenario: str) -> None:
    if both_protocols.is_kafka:
        pytest.skip("Apache Kafka 3.9 does not serve ConsumerGroupHeartbeat v1")
    assert run(both_protocols.bootstrap, NEWER, "RegexScenarios").get(scenario) == "PASS"


@pytest.mark.parametrize("scenario", TRANSACTION_SCENARIOS)
@pytest.mark.parametrize(("client", "protocol"), [(OLDER, CLASSIC), (OLDER, CONSUMER), (NEWER, CONSUMER)])
def test_transaction(both_protocols: Broker, client: str, protocol: str, scenario: str) -> None:
    said = run(both_protocols.bootstrap, client, "TransactionScenarios", protocol)
    assert said.get(scenario) == "PASS"


class JavaMember:
    """A member's process, and what it said of its partitions."""

    def __init__(self, bootstrap: str, topic: str, protocol: str, client: str = OLDER, **settings: str) -> None:
        if protocol == CLASSIC:
            settings = {"session_timeout_ms": "3000", "heartbeat_interval_ms": "300", **settings}
        options = [f"{key.replace('_', '.')}={value}" for key, value in settings.items()]
        command = client_programs(client).command(
            "GroupMember", bootstrap, topic, f"{topic}-group", f"group.protocol={protocol}", *options
        )
        self.process = LoggedProcess("member", command)

    def owned(self) -> set[int]:
        held: set[int] = set()
        for line in self.process.lines:
            what, _, numbers = line.partition(" ")
            if what in ("assigned", "revoked", "lost"):
                named = {int(number) for number in numbers.split(",") if number}
                held = held | named if what == "assigned" else held - named
        return held

    def offsets(self, what: str) -> dict[int, list[int]]:
        """The offsets that it read or committed, by partition."""
        found: dict[int, list[int]] = {}
        for line in self.process.lines:
            words = line.split(" ")
            if words[0] == what and len(words) == 3:
                found.setdefault(int(words[1]), []).append(int(words[2]))
        return found


def shared_by(members: list[JavaMember], partitions: int) -> bool:
    shares = [member.owned() for member in members]
    return all(shares) and sum(map(len, shares)) == partitions and set().union(*shares) == set(range(partitions))


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_members_killed_and_stalled(both_protocols: Broker, topic: str, protocol: str) -> None:
    """A killed member's partitions go to the others, a stalled one's too, and it comes back when it wakes."""
    create_topic(both_protocols.bootstrap, topic, 6)
    with ExitStack() as running:
        first, second, third = (JavaMember(both_protocols.bootstrap, topic, protocol) for _ in range(3))
        for member in (first, second, third):
            running.enter_context(member.process)
        eventually(lambda: shared_by([first, second, third], 6), SETTLES_WITHIN_S)
        second.process.kill()
        eventually(lambda: shared_by([first, third], 6), SETTLES_WITHIN_S)
        third.process.signal(signal.SIGSTOP)
        eventually(lambda: shared_by([first], 6), SETTLES_WITHIN_S)
        third.process.signal(signal.SIGCONT)
        eventually(lambda: shared_by([first, third], 6), SETTLES_WITHIN_S)


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_broker_killed_under_a_group(target_kind: str, tmp_path: Path, topic: str, protocol: str) -> None:
    """Members live on through a broker's crash; no acknowledged commit is lost, and none is read again."""
    broker = LastingBroker(target_kind, tmp_path)
    with ExitStack() as members:
        with broker.life() as running:
            create_topic(broker.bootstrap, topic, 2)
            confluent.send(confluent.producer(broker.bootstrap), topic, plain_samples(20), partition=0)
            member = JavaMember(broker.bootstrap, topic, protocol)
            members.enter_context(member.process)
            eventually(lambda: member.offsets("committed").get(0, [0])[-1] == 20, SETTLES_WITHIN_S)
            running.kill()
        with broker.life():
            confluent.send(confluent.producer(broker.bootstrap), topic, plain_samples(20), partition=1)
            eventually(lambda: member.offsets("committed").get(1, [0])[-1] == 20, SETTLES_WITHIN_S)
            assert member.offsets("read")[0] == list(range(20))
            member.process.kill()
            follower = JavaMember(broker.bootstrap, topic, protocol)
            members.enter_context(follower.process)
            eventually(lambda: follower.owned() == {0, 1}, SETTLES_WITHIN_S)
            confluent.send(confluent.producer(broker.bootstrap), topic, plain_samples(1), partition=0)
            eventually(lambda: follower.offsets("committed").get(0) == [21], SETTLES_WITHIN_S)
            assert follower.offsets("read") == {0: [20]}


class Transform:
    """An exactly-once loop from one topic of two partitions to another, and what its output must be."""

    def __init__(self, bootstrap: str, topic: str, client: str, protocol: str, count: int) -> None:
        self.bootstrap = bootstrap
        self.output = f"{topic}-out"
        create_topic(bootstrap, topic, 2)
        create_topic(bootstrap, self.output, 2)
        values = [f"{number}".encode() for number in range(count)]
        self.expected = [b"out " + value for value in values]
        for partition in (0, 1):
            samples = [Sample(b"k", value) for value in values]
            confluent.send(confluent.producer(bootstrap), topic, samples, partition=partition)
        programs = client_programs(client)
        self.command = programs.command("TransformLoop", bootstrap, topic, self.output, f"{topic}-group", protocol)

    def finish(self, loop: LoggedProcess) -> None:
        """Wait until the output is complete; it must be the input, once and in order."""

        def complete() -> bool:
            assert loop.returncode is None, loop.log()
            return all(len(committed(self.bootstrap, self.output, n)) >= len(self.expected) for n in (0, 1))

        eventually(complete, SETTLES_WITHIN_S)
        for partition in (0, 1):
            assert committed(self.bootstrap, self.output, partition) == self.expected


LOOPS = [(OLDER, CLASSIC), (NEWER, CONSUMER)]


@pytest.mark.parametrize(("client", "protocol"), LOOPS)
def test_exactly_once_loop_killed(both_protocols: Broker, topic: str, client: str, protocol: str) -> None:
    """Read, transform, write, killed anywhere in between."""
    transform = Transform(both_protocols.bootstrap, topic, client, protocol, 600)
    for kill_after in (1, 3, 7):
        with LoggedProcess("loop", transform.command) as loop:
            eventually(lambda: transactions_of(loop) >= kill_after, SETTLES_WITHIN_S)  # noqa: B023
            loop.kill()
    with LoggedProcess("loop", transform.command) as loop:
        transform.finish(loop)


@pytest.mark.parametrize(("client", "protocol"), LOOPS)
def test_broker_killed_under_an_exactly_once_loop(
    target_kind: str, tmp_path: Path, topic: str, client: str, protocol: str
) -> None:
    """The loop lives on through the broker's crashes, whatever transaction they cut in two."""
    broker = LastingBroker(target_kind, tmp_path)
    with ExitStack() as loops:
        with broker.life() as running:
            transform = Transform(broker.bootstrap, topic, client, protocol, 1500)
            loop = loops.enter_context(LoggedProcess("loop", transform.command))
            eventually(lambda: transactions_of(loop) >= 2, SETTLES_WITHIN_S)
            running.kill()
        for _ in range(2):
            done = transactions_of(loop)
            with broker.life() as running:
                eventually(lambda: transactions_of(loop) >= done + 3, SETTLES_WITHIN_S)  # noqa: B023
                running.kill()
        with broker.life():
            transform.finish(loop)


def transactions_of(loop: LoggedProcess) -> int:
    assert loop.returncode is None, loop.log()
    return sum(line.startswith("done ") for line in loop.lines)


def committed(bootstrap: str, topic: str, partition: int) -> list[bytes]:
    read = confluent.read_all(bootstrap, topic, partition, isolation_level="read_committed")
    return [message.value() for message in read]
