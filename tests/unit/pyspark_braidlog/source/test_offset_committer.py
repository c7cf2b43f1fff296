"""Progress in a consumer group: each position once, refused at the start or never in the way."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import SimpleNamespace
from typing import Any

import pytest

from braidlog import TopicPartition
from braidlog.client.admin.results import Results
from braidlog.client.errors import NoConnection, RequestTimeout
from braidlog.core.errors import UserError
from braidlog.core.protocol_errors import (
    CoordinatorNotAvailableError,
    GroupAuthorizationFailedError,
    GroupIdNotFoundError,
    TopicAuthorizationFailedError,
    UnknownMemberIdError,
    UnknownTopicOrPartitionError,
)
from pyspark_braidlog.source.offset_committer import OffsetCommitter

T0, T1 = (TopicPartition("t", each) for each in range(2))


class FakeGroup:
    """A coordinator that answers what it is told to."""

    def __init__(self) -> None:
        self.members: tuple[str, ...] = ()
        self.exists = True
        self.describing: Exception | None = None
        self.failing: Exception | None = None
        self.refusing: dict[TopicPartition, Exception] = {}
        self.commits: list[dict[TopicPartition, int]] = []
        self.closed = False

    def describe_groups(self, groups: Iterable[str]) -> Any:
        (group,) = groups
        outcome: Any = SimpleNamespace(members=self.members) if self.exists else GroupIdNotFoundError()
        return Results({group: self.describing or outcome})

    def alter_group_offsets(self, group: str, offsets: Mapping[TopicPartition, int]) -> Any:
        assert group == "job"
        if self.failing:
            raise self.failing
        self.commits.append({place: each for place, each in offsets.items() if place not in self.refusing})
        return Results({place: self.refusing.get(place) for place in offsets})

    def close(self) -> None:
        self.closed = True


class World:
    def __init__(self) -> None:
        self.group = FakeGroup()
        self.now = 100.0
        self.said: list[str] = []
        self.progress = OffsetCommitter(self.group, "job", tell=self.said.append, now=lambda: self.now)


@pytest.fixture
def world() -> World:
    return World()


@pytest.mark.parametrize("exists", [True, False])
def test_a_group_without_members_may_be_used(world: World, exists: bool) -> None:
    world.group.exists = exists
    world.progress.check()


def test_a_group_with_members_is_refused(world: World) -> None:
    world.group.members = ("consumer-1",)
    with pytest.raises(UserError, match=r"group job.*another groupId"):
        world.progress.check()


def test_a_group_without_permission_is_refused(world: World) -> None:
    world.group.describing = GroupAuthorizationFailedError()
    with pytest.raises(UserError, match=r"no permission.*allow Read"):
        world.progress.check()


@pytest.mark.parametrize("problem", [NoConnection("gone"), RequestTimeout("late"), CoordinatorNotAvailableError()])
def test_a_coordinator_that_is_away_does_not_keep_a_query_from_starting(world: World, problem: Exception) -> None:
    world.group.describing = world.group.failing = problem
    world.progress.check()
    world.progress.show({T0: 5})
    assert len(world.said) == 1
    world.group.failing = None
    world.now += 60
    world.progress.show({T0: 5})
    assert world.group.commits == [{T0: 5}]


def test_a_position_is_committed_once(world: World) -> None:
    for position in (5, 5, 6, 6):
        world.progress.show({T0: position, T1: 1})
    assert world.group.commits == [{T0: 5, T1: 1}, {T0: 6}]


def test_positions_that_go_back_are_committed_too(world: World) -> None:
    world.progress.show({T0: 5})
    world.progress.show({T0: 2})
    assert world.group.commits[-1] == {T0: 2}


def test_what_stays_true_is_committed_again_before_brokers_forget_it(world: World) -> None:
    world.progress.show({T0: 5, T1: 1})
    world.now += 3600
    world.progress.show({T0: 5, T1: 1})
    assert world.group.commits == [{T0: 5, T1: 1}] * 2


@pytest.mark.parametrize("problem", [GroupAuthorizationFailedError(), TopicAuthorizationFailedError()])
def test_the_first_commit_refuses_what_will_never_work(world: World, problem: Exception) -> None:
    world.group.refusing = {T0: problem}
    with pytest.raises(UserError, match="no permission"):
        world.progress.show({T0: 5})


def test_members_that_came_before_the_first_commit_are_refused(world: World) -> None:
    world.group.refusing = {T0: UnknownMemberIdError()}
    with pytest.raises(UserError, match="consumers are at work"):
        world.progress.show({T0: 5})


@pytest.mark.parametrize(
    "problem", [NoConnection("gone"), CoordinatorNotAvailableError(), GroupAuthorizationFailedError()]
)
def test_a_later_failure_is_said_once_and_tried_again(world: World, problem: Exception) -> None:
    world.progress.show({T0: 5})
    world.group.failing = problem
    for position in (6, 7, 8):
        world.now += 60
        world.progress.show({T0: position})
    assert len(world.said) == 1
    assert "group job" in world.said[0]
    world.group.failing = None
    world.now += 60
    world.progress.show({T0: 8})
    assert world.group.commits[-1] == {T0: 8}
    assert len(world.said) == 2
    assert "again" in world.said[1]


def test_members_that_come_later_do_not_stop_the_query(world: World) -> None:
    world.progress.show({T0: 5})
    world.group.refusing = {T0: UnknownMemberIdError()}
    world.progress.show({T0: 6})
    assert len(world.said) == 1


def test_while_commits_fail_triggers_do_not_wait_for_each(world: World) -> None:
    world.progress.show({T0: 5})
    world.group.failing = NoConnection("gone")
    world.progress.show({T0: 6})
    world.group.failing = None
    world.progress.show({T0: 7})
    assert world.group.commits == [{T0: 5}]
    world.progress.show({T0: 7}, is_last_chance=True)
    assert world.group.commits == [{T0: 5}, {T0: 7}]


def test_what_one_partition_refused_is_tried_again_alone(world: World) -> None:
    world.progress.show({T0: 5, T1: 5})
    world.group.refusing = {T0: CoordinatorNotAvailableError()}
    world.progress.show({T0: 6, T1: 6})
    world.group.refusing = {}
    world.now += 60
    world.progress.show({T0: 6, T1: 6})
    assert world.group.commits[1:] == [{T1: 6}, {T0: 6}]


def test_deleted_topics_are_passed_over(world: World) -> None:
    world.group.refusing = {T0: UnknownTopicOrPartitionError()}
    world.progress.show({T0: 5, T1: 5})
    assert world.group.commits == [{T1: 5}]
    assert world.said == []


def test_it_closes_its_connections(world: World) -> None:
    world.progress.close()
    assert world.group.closed
