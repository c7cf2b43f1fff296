"""Range and round-robin share exactly as kafka-clients 3.9.1 does; what sticky members tell each other, too."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from braidlog.client.consumer.assignors.interface import Assignment, Subscriber, TopicMetadata
from braidlog.client.consumer.assignors.sticky import read_claim
from braidlog.client.consumer.assignors.strategies import assignors_of
from braidlog.core.types import TopicPartition

GOLDEN = Path(__file__).parent / "kafka39" / "assignments.txt"


class Case:
    def __init__(self) -> None:
        self.counts: dict[str, int] = {}
        self.racks: dict[str, list[frozenset[str]]] = {}
        self.members: list[Subscriber] = []
        self.order: list[str] = []
        self.answer = ""

    def take(self, words: list[str]) -> None:
        if words[0] == "topic":
            self.counts[words[1]] = int(words[2])
            if words[3] != "-":
                self.racks[words[1]] = [frozenset(each.split("+")) for each in words[3].split(";")]
        elif words[0] == "member":
            instance, rack = [None if word == "-" else word for word in words[2:4]]
            self.members.append(Subscriber(words[1], tuple(words[4].split(",")), instance, rack=rack))
        else:
            self.order = words

    @property
    def expected(self) -> dict[str, list[str]]:
        shares = [part.split("=") for part in self.answer.split(" ")]
        return {member: share.split(",") if share else [] for member, share in shares}


def cases(kind: str) -> Iterator[Case]:
    case = Case()
    for line in GOLDEN.read_text().splitlines():
        words = line.split(" ")
        if words[0] == "=":
            case.answer = line[2:]
            if case.order[0] == kind:
                yield case
            case = Case()
        else:
            case.take(words)


def text(partitions: list[TopicPartition]) -> list[str]:
    return sorted(f"{each.topic}:{each.partition}" for each in partitions)


@pytest.mark.parametrize("name", ["range", "roundrobin"])
def test_assignments_are_those_of_kafka(name: str) -> None:
    reported = [case for case in cases("assign") if case.order[1] == name]
    assert len(reported) > 20
    for case in reported:
        [assignor] = assignors_of(name)
        shares = assignor.assign(case.members, TopicMetadata(case.counts, case.racks))
        assert {member: text(share.partitions) for member, share in shares.items()} == case.expected, vars(case)


def test_some_cases_depend_on_racks() -> None:
    [assignor] = assignors_of("range")
    differing = 0
    for case in cases("assign"):
        if case.order[1] == "range":
            plain = assignor.assign(case.members, TopicMetadata(case.counts))
            differing += {member: text(share.partitions) for member, share in plain.items()} != case.expected
    assert differing > 20


def test_user_data_is_that_of_kafka() -> None:
    reported = list(cases("userdata"))
    assert len(reported) == 4
    for case in reported:
        _, name, generation, listed = case.order
        partitions = [TopicPartition(each.split(":")[0], int(each.split(":")[1])) for each in listed.split(",")]
        [assignor] = assignors_of(name)
        assignor.on_assignment(Assignment(partitions), int(generation))
        data = assignor.user_data(["t"])
        assert data is not None
        if name == "sticky":
            theirs = read_claim(bytes.fromhex(case.answer))
            assert (list(theirs.partitions), theirs.generation) == (partitions, int(generation))
            assert read_claim(data) == theirs
        else:
            assert data.hex() == case.answer


def test_a_sticky_claim_of_the_first_version_has_no_generation() -> None:
    [assignor] = assignors_of("sticky")
    assignor.on_assignment(Assignment([TopicPartition("a", 3)]), 9)
    data = assignor.user_data(["a"])
    assert data is not None
    old = read_claim(data[:-4])
    assert (list(old.partitions), old.generation) == ([TopicPartition("a", 3)], -1)
    assert read_claim(data[:-7]).partitions == ()
    assert read_claim(None).partitions == ()
