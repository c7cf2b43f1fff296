"""Moves as they are read from a cluster, asked for, cancelled and verified."""

from __future__ import annotations

from braidlog.cli.reassignment.moves import Move, ask_for, cancel, read_cluster, still_under_way, verify
from braidlog.core.types import TopicPartition
from support.fake_admin import FakeCluster

A0, A1, B0 = TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("b", 0)


def test_a_move_knows_what_it_copies() -> None:
    move = Move(A0, (0, 1), (2, 3, 1), 100)
    assert (move.adding, move.removing, move.bytes) == ((2, 3), (0,), 200)


def test_the_state_is_that_after_what_is_under_way() -> None:
    cluster = FakeCluster({A0: (0, 1), A1: (1,), B0: (0,)}, range(3))
    cluster.sizes = {(A0, 0): 10, (A0, 1): 12, (A1, 1): 5, (B0, 0): 7}
    cluster.admin.alter_partition_reassignments({A0: [2, 1], B0: [1]})
    state = read_cluster(cluster.admin, ["a"])
    assert state.replicas == {A0: (2, 1), A1: (1,)}
    assert state.sizes == {A0: 12, A1: 5}
    assert {each: place.host for each, place in state.brokers.items()} == {0: "host0", 1: "host1", 2: "host2"}
    assert state.moves_under_way == [Move(A0, (1, 0), (2, 1), 12)]
    assert state.moves_to({A0: (2, 1), A1: (0,)}) == [Move(A1, (1,), (0,), 5)]
    assert read_cluster(cluster.admin, None).replicas.keys() == {A0, A1, B0}


def test_moves_are_asked_for_and_cancelled_and_refusals_told() -> None:
    cluster = FakeCluster({A0: (0,), A1: (1,)}, range(2))
    good, bad = Move(A0, (0,), (1,)), Move(A1, (1,), (9,))
    assert list(ask_for(cluster.admin, [good, bad])) == [A1]
    assert still_under_way(cluster.admin, [good, bad]) == [good]
    assert cancel(cluster.admin, [good]) == {}
    assert still_under_way(cluster.admin, [good]) == []
    assert still_under_way(cluster.admin, []) == []


def test_a_verdict_says_what_is_wrong() -> None:
    cluster = FakeCluster({A0: (0,), A1: (1,)}, range(3))
    moves = [Move(A0, (0,), (1,)), Move(A1, (1,), (2,)), Move(B0, (0,), (1,))]
    ask_for(cluster.admin, moves[:2])
    assert [each.problem for each in verify(cluster.admin, moves)] == ["under way", "under way", "the topic is gone"]
    cluster.finish(A0)
    cancel(cluster.admin, [moves[1]])
    done, cancelled = (each.problem for each in verify(cluster.admin, moves[:2]))
    assert done is None
    assert cancelled == "on 1 instead of 2; somebody else may have moved or cancelled it"
    assert verify(cluster.admin, []) == []
