from __future__ import annotations

import pytest

from braidlog.controller.replicas import LEGAL_MOVES, IllegalMoveError, ReplicaState, move
from braidlog.core.types import BrokerId, TopicPartition

WHERE = TopicPartition("t", 0)


def test_every_state_can_be_reached_and_left() -> None:
    assert set(LEGAL_MOVES) == set(ReplicaState)
    assert set().union(*LEGAL_MOVES.values()) == set(ReplicaState)


def test_a_replica_is_deleted_step_by_step() -> None:
    path = (
        ReplicaState.ONLINE,
        ReplicaState.OFFLINE,
        ReplicaState.DELETION_STARTED,
        ReplicaState.DELETION_INELIGIBLE,
        ReplicaState.OFFLINE,
        ReplicaState.DELETION_STARTED,
        ReplicaState.DELETION_SUCCESSFUL,
        ReplicaState.NON_EXISTENT,
    )
    assert move(WHERE, BrokerId(1), *path) is ReplicaState.NON_EXISTENT


def test_an_illegal_move_names_the_replica_and_its_history() -> None:
    with pytest.raises(IllegalMoveError, match=r"t-0 on broker 1 .*OnlineReplica -> ReplicaDeletionStarted"):
        move(WHERE, BrokerId(1), ReplicaState.ONLINE, ReplicaState.DELETION_STARTED)
