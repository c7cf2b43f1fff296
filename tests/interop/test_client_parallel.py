"""ParallelConsumer against a broker: every record at least once, each key in order, whoever is killed when."""

from __future__ import annotations

import json
import re
import sys
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from tools.peers.process import LoggedProcess

from braidlog.client import Producer
from support.broker import Broker
from support.confluent import create_topic
from support.eventually import eventually

TESTS = Path(__file__).parent.parent
KEYS = 40
PARTITIONS = 6
WITHIN_S = 60.0

PROTOCOLS: list[dict[str, Any]] = [
    {"partition.assignment.strategy": "range"},
    {"partition.assignment.strategy": "cooperative-sticky"},
]
# Where somebody dies, the others wait for the end of the session; where nobody does, one that a busy machine ends would
# have work done twice, so that members have long ones.
KILLED = {"session.timeout.ms": 6_000}


class Member:
    """One life of a member, and what its handlers said."""

    def __init__(self, process: LoggedProcess) -> None:
        self.process = process

    def numbers(self, word: str = "begin") -> dict[str, list[int]]:
        """By key the numbers of the records, in the order in which they were begun (or done)."""
        found: dict[str, list[int]] = defaultdict(list)
        for line in self.process.lines:
            match = re.fullmatch(rf"{word} (\S+) (\d+)", line)
            if match:
                found[match[1]].append(int(match[2]))
        return found

    @property
    def handled(self) -> int:
        return sum(map(len, self.numbers("done").values()))

    def check_order(self) -> None:
        """A key's records rise, each begun after the one before it was done."""
        for key, numbers in self.numbers().items():
            assert all(later > earlier for earlier, later in pairwise(numbers)), f"{key}: {numbers}"
        under_way: set[str] = set()
        for line in self.process.lines:
            word, _, rest = line.partition(" ")
            key = rest.partition(" ")[0]
            if word == "begin":
                assert key not in under_way, f"two of {key} at once"
                under_way.add(key)
            elif word == "done":
                under_way.remove(key)


@contextmanager
def member(broker: Broker, topic: str, **plan: Any) -> Iterator[Member]:
    wanted = {"bootstrap": broker.bootstrap, "topic": topic, "group": f"g-{topic}", **plan}
    command = [sys.executable, "-m", "support.parallel_member", json.dumps(wanted)]
    with LoggedProcess("member", command, cwd=TESTS) as process:
        yield Member(process)


def write(broker: Broker, topic: str, first: int, count: int) -> None:
    """Records of KEYS keys in turn; a key's numbers rise."""
    with Producer(bootstrap_servers=broker.bootstrap) as producer:
        for number in range(first, first + count):
            producer.send(topic, str(number), key=f"k{number % KEYS}")


def stop(one: Member) -> None:
    assert one.process.terminate() == 0, one.process.log()
    assert one.process.lines[-1] == "ended"


def expected(count: int) -> dict[str, list[int]]:
    return {f"k{key}": list(range(key, count, KEYS)) for key in range(KEYS)}


def check_at_least_once(lives: list[Member], count: int) -> None:
    """Lives one after the other: each goes on at most where the one before had come, and leaves nothing out."""
    for key, numbers in expected(count).items():
        done: set[int] = set()
        for life in lives:
            life.check_order()
            done |= set(life.numbers("done")[key])
        assert done == set(numbers), f"{key}: lost {sorted(set(numbers) - done)}"


def test_all_is_handled_once_and_in_order(quick_broker: Broker, topic: str) -> None:
    create_topic(quick_broker.bootstrap, topic, PARTITIONS)
    write(quick_broker, topic, 0, 1000)
    with member(quick_broker, topic) as one:
        eventually(lambda: one.handled == 1000, WITHIN_S)
        stop(one)
        assert one.numbers("done") == expected(1000)
        one.check_order()
    with member(quick_broker, topic) as again:
        write(quick_broker, topic, 1000, 100)
        eventually(lambda: again.handled == 100, WITHIN_S)
        stop(again)
        assert min(min(numbers) for numbers in again.numbers().values()) == 1000, "all before was committed"


@pytest.mark.parametrize("settings", PROTOCOLS, ids=["eager", "cooperative"])
def test_a_member_that_comes_and_goes_makes_nobody_do_work_twice(
    quick_broker: Broker, topic: str, settings: dict[str, Any]
) -> None:
    create_topic(quick_broker.bootstrap, topic, PARTITIONS)
    written = 0

    def is_enough(reader: Member) -> bool:
        """There is always something to do for who asks for more."""
        nonlocal written
        write(quick_broker, topic, written, 2 * KEYS)
        written += 2 * KEYS
        return reader.handled > 200

    with member(quick_broker, topic, settings=settings) as one:
        eventually(lambda: is_enough(one), WITHIN_S)
        with member(quick_broker, topic, settings=settings) as other:
            eventually(lambda: is_enough(other), WITHIN_S)
            stop(other)
            eventually(lambda: one.handled + other.handled >= written, WITHIN_S)
            stop(one)
            for each in (one, other):
                each.check_order()
            for key, numbers in expected(written).items():
                both = one.numbers("done")[key] + other.numbers("done")[key]
                assert sorted(both) == numbers, f"{key}: not exactly once"


def test_a_member_that_is_killed_again_and_again_loses_nothing(quick_broker: Broker, topic: str) -> None:
    create_topic(quick_broker.bootstrap, topic, PARTITIONS)
    write(quick_broker, topic, 0, 2000)
    everything = expected(2000).items()
    lives: list[Member] = []
    for _ in range(2):
        with member(quick_broker, topic, settings=KILLED) as one:
            lives.append(one)
            eventually(lambda one=one: one.handled > 150, WITHIN_S)
            one.process.kill()
    with member(quick_broker, topic, settings=KILLED) as last:
        lives.append(last)
        # Where this process was slow to kill them, one of the earlier has come to the end.
        eventually(
            lambda: all(any(each[-1] in life.numbers("done")[key] for life in lives) for key, each in everything),
            WITHIN_S,
        )
        stop(last)
    check_at_least_once(lives, 2000)
    for earlier, later in pairwise(lives):
        for key, numbers in later.numbers().items():
            came_to = max(earlier.numbers("done")[key], default=key_start(key) - KEYS)
            assert numbers[0] <= came_to + KEYS, f"{key}: {came_to} was done, {numbers[0]} comes next"
    assert sum(life.handled for life in lives) < 2 * 2000, "it goes on where it was, not from the start"


def key_start(key: str) -> int:
    return int(key[1:])


def test_another_member_takes_over_from_one_that_is_killed(quick_broker: Broker, topic: str) -> None:
    create_topic(quick_broker.bootstrap, topic, PARTITIONS)
    written = 0

    def are_busy(*readers: Member) -> bool:
        """The first may be done with all that there is before the second has started: there is more then."""
        nonlocal written
        if sum(each.handled for each in readers) >= written - 1000:
            write(quick_broker, topic, written, 2000)
            written += 2000
        return all(each.handled > 100 for each in readers)

    with (
        member(quick_broker, topic, settings=KILLED) as one,
        member(quick_broker, topic, settings=KILLED) as other,
    ):
        eventually(lambda: are_busy(one, other), WITHIN_S)
        one.process.kill()
        eventually(
            lambda: all(
                set(one.numbers("done")[key]) | set(other.numbers("done")[key]) == set(numbers)
                for key, numbers in expected(written).items()
            ),
            WITHIN_S,
        )
        stop(other)
        one.check_order()
        for key, numbers in other.numbers().items():
            # What comes again when partitions come back starts a new rise; within each, order holds.
            assert sum(later <= earlier for earlier, later in pairwise(numbers)) <= 1, f"{key}: {numbers}"
