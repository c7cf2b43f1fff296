from __future__ import annotations

import pytest

from braidlog.client.errors import NoConnection
from braidlog.core.protocol_errors import (
    LeaderNotAvailableError,
    NotLeaderOrFollowerError,
)
from braidlog.wire.generated.list_offsets import ListOffsetsRequest
from support.fake_read_cluster import P0, P1, ReadSideScene


@pytest.mark.parametrize(("policy", "expected"), [("earliest", 4), ("latest", 9)])
async def test_without_a_group_the_policy_says(policy: str, expected: int) -> None:
    scene = ReadSideScene({"auto.offset.reset": policy})
    scene.cluster.logs[P0].start, scene.cluster.logs[P0].end = 4, 9
    await scene.assign(P0)
    assert scene.position() == expected
    await scene.close()


async def test_by_duration_and_past_the_last_record() -> None:
    scene = ReadSideScene({"auto.offset.reset": "by_duration:PT1S"})
    wanted = scene.clock.wall_ms() - 1000
    scene.cluster.logs[P0].end = 9
    scene.cluster.logs[P0].times[wanted] = 6
    scene.cluster.logs[P1].end = 5
    await scene.assign(P0, P1)
    assert scene.position(P0) == 6
    # Nothing of the last second: what comes from now on.
    assert scene.position(P1) == 5
    await scene.close()


async def test_resets_are_tried_again() -> None:
    scene = ReadSideScene({"auto.offset.reset": "earliest"})
    log = scene.cluster.logs[P0]
    log.end = 2
    log.refusals = [NotLeaderOrFollowerError.code, LeaderNotAvailableError.code]
    scene.cluster.lost = [NoConnection("gone")]
    await scene.assign(P0)
    assert len(scene.asked(ListOffsetsRequest)) == 4
    assert scene.cluster.updates >= 3
    assert scene.position() == 0
    await scene.close()
