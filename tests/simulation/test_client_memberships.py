"""Groups of our own consumers under seeds: calm ones that never share a partition, and ones with every fault at once.

one owner     in one generation a partition is given to one member; in calm groups no two have it at the same time
no setback    an acknowledged commit is never followed by a lower one, whoever sends it how late
kept          whoever gets a partition begins at or after what was acknowledged before
converges     once everybody is well, every partition has one owner, and nobody has anything left to do
"""

from __future__ import annotations

from typing import Any

import pytest

from braidlog.core.types import TopicPartition
from support.simulation.client_groups import Program, World

FLAVOURS: dict[str, dict[str, Any]] = {
    "range": {"partition_assignment_strategy": "range"},
    "sticky": {"partition_assignment_strategy": "sticky"},
    "cooperative-sticky": {"partition_assignment_strategy": "cooperative-sticky"},
    "consumer": {"group_protocol": "consumer"},
}
SEEDS = range(6)
TOPICS = {"t": 5, "u": 3}


class Story:
    """A group whose members come, go and misbehave as the seed says."""

    def __init__(self, seed: int, settings: dict[str, Any]) -> None:
        self.world = World(seed, TOPICS)
        self.random = self.world.random
        self.settings = settings
        self.count = 0

    @property
    def alive(self) -> list[Program]:
        return [member for member in self.world.members if member.is_alive]

    def enter(self) -> None:
        self.count += 1
        Program(self.world, f"member {self.count}", TOPICS, self.settings)

    def turn(self) -> None:
        """Everybody may poll, then a little time passes."""
        for member in self.alive:
            if self.random.random() < 0.7:
                member.poll()
                self.world.catch_up()
        self.world.run(self.random.random() * 0.2)

    def change(self) -> None:
        """Members come and go in good order."""
        if len(self.alive) < 2 or (len(self.alive) < 5 and self.random.random() < 0.6):
            self.enter()
        else:
            self.random.choice(self.alive).leave()

    def trouble(self) -> None:
        one = self.random.choice(self.alive)
        happening = self.random.choice(["cut", "cut", "stall", "rest", "die", "crash", "change", "grow"])
        if happening == "cut":
            one.cut()
        elif happening == "stall":
            one.stall(self.random.choice([0.5, 3.0, 7.0, 7.0, 9.0]))
        elif happening == "rest":
            one.rests_until = self.world.loop.time() + self.random.choice([2.0, 10.0, 10.0])
        elif happening == "die" and len(self.alive) > 1:
            one.die()
        elif happening == "crash":
            self.world.crash_coordinator()
        elif happening == "grow":
            self.world.grow("u", self.world.view_counts["u"] + 1)
        else:
            self.change()

    def check_no_two_have_the_same(self) -> None:
        owners: dict[TopicPartition, str] = {}
        for member in self.alive:
            for partition in member.owned:
                other = owners.setdefault(partition, member.name)
                assert other == member.name, f"{partition} is with {other} and {member.name}"

    def settle(self) -> None:
        for member in self.alive:
            member.rests_until = 0.0
        for _ in range(600):
            self.turn()
            have = [partition for member in self.alive for partition in member.owned]
            is_settled = all(each.membership.is_settled for each in self.alive)
            if is_settled and sorted(have) == sorted(self.world.partitions()):
                break
        else:
            reported = [(member.name, member.owned, member.reported[-3:]) for member in self.alive]
            raise AssertionError(f"the group does not settle: {reported}")


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("flavour", FLAVOURS)
def test_a_calm_group_never_shares_a_partition(flavour: str, seed: int) -> None:
    story = Story(seed, FLAVOURS[flavour])
    for _ in range(8):
        story.change()
        for _ in range(story.random.randint(1, 25)):
            story.turn()
            story.check_no_two_have_the_same()
    story.settle()
    assert not any(what == "lost" for member in story.world.members for _, what, _ in member.reported)
    assert len(story.world.acknowledged) > 1, "they got to read and commit"


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("flavour", FLAVOURS)
def test_a_group_under_faults_keeps_what_was_committed(flavour: str, seed: int) -> None:
    story = Story(seed + 1_000, FLAVOURS[flavour])
    for _ in range(3):
        story.enter()
    for _ in range(25):
        for _ in range(story.random.randint(1, 20)):
            story.turn()
        story.trouble()
    story.settle()
    story.check_no_two_have_the_same()
