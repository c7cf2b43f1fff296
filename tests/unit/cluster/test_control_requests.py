from __future__ import annotations

from braidlog.cluster.control_requests import (
    ANY_BROKER_EPOCH,
    EPOCH_DURING_DELETE,
    LEADER_DURING_DELETE,
    ControlResponse,
    LeaderAndIsr,
    LeaderAndIsrPartition,
    UpdateMetadata,
)
from braidlog.core.types import NO_BROKER, BrokerId
from support.controller_harness import partition


def test_numbers_that_stand_for_something_else_are_kafkas() -> None:
    assert (LEADER_DURING_DELETE, EPOCH_DURING_DELETE, ANY_BROKER_EPOCH) == (-2, -2, -1)
    assert LEADER_DURING_DELETE != NO_BROKER


def test_what_need_not_be_said() -> None:
    role = LeaderAndIsrPartition("t", bytes(16), 0, partition(1, (1,), (1,)))
    assert not role.is_new
    assert LeaderAndIsr(BrokerId(1), 5, ANY_BROKER_EPOCH, [role]).leaders == {}
    assert UpdateMetadata(BrokerId(1), 5, ANY_BROKER_EPOCH, {}).partitions == ()
    assert ControlResponse(0).partitions == {}
