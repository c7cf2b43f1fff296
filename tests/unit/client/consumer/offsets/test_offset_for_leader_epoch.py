from __future__ import annotations

import pytest

from braidlog.client.consumer.offsets.offset_for_leader_epoch import EpochEnd, TruncationCheck, check_truncation
from braidlog.client.consumer.partition_state import FETCHING
from braidlog.client.errors import LogTruncatedError
from braidlog.core.protocol_errors import (
    FencedLeaderEpochError,
)
from braidlog.wire.generated.offset_for_leader_epoch import OffsetForLeaderEpochRequest
from support.fake_read_cluster import P0, ReadSideScene


async def moved(scene: ReadSideScene) -> None:
    """Some records are read, then another broker leads."""
    scene.cluster.logs[P0].end = 8
    await scene.assign(P0)
    assert scene.poll(5) == [(0, at) for at in range(5)]
    scene.cluster.epoch = 4
    scene.cluster.leaders[P0] = 2
    scene.fetcher.schedule()
    await scene.settle()


async def test_a_new_leader_that_has_what_was_read() -> None:
    scene = ReadSideScene({"auto.offset.reset": "earliest"})
    await moved(scene)
    (question,) = scene.asked(OffsetForLeaderEpochRequest)
    (partition,) = question.topics[0].partitions
    assert (partition.leader_epoch, partition.current_leader_epoch) == (3, 4)
    assert scene.subscription.state(P0).phase == FETCHING
    assert await scene.offsets() == [(0, 5), (0, 6), (0, 7)]
    await scene.close()


async def test_a_new_leader_whose_log_was_cut_goes_on_there() -> None:
    scene = ReadSideScene({"auto.offset.reset": "latest"})
    scene.cluster.logs[P0].epoch_end = (3, 2)
    scene.cluster.logs[P0].end = 8
    await scene.assign(P0)
    scene.subscription.state(P0).seek(0)
    await scene.news()
    assert scene.poll(5) == [(0, at) for at in range(5)]
    scene.cluster.epoch = 4
    scene.fetcher.schedule()
    await scene.settle()
    assert scene.position() == 2
    await scene.news()
    assert (await scene.offsets())[0] == (0, 2)
    await scene.close()


async def test_without_a_policy_a_cut_log_is_raised() -> None:
    scene = ReadSideScene({"auto.offset.reset": "none"})
    scene.cluster.logs[P0].end = 8
    scene.cluster.logs[P0].epoch_end = (3, 2)
    scene.subscription.assign([P0])
    scene.subscription.state(P0).seek(0)
    scene.fetcher.schedule()
    await scene.settle()
    assert len(scene.poll(5)) == 5
    scene.cluster.epoch = 4
    scene.fetcher.schedule()
    await scene.settle()
    with pytest.raises(LogTruncatedError, match=r"t-0 was cut below position 5 .*offset 2.*seek to 2") as caught:
        scene.poll()
    assert (caught.value.partition, caught.value.position, caught.value.diverging_offset) == (P0, 5, 2)
    assert scene.position() == 5
    await scene.close()


async def test_a_leader_that_knows_nothing_so_old_means_a_reset() -> None:
    scene = ReadSideScene({"auto.offset.reset": "earliest"})
    scene.cluster.logs[P0].epoch_end = (-1, -1)
    await moved(scene)
    assert scene.position() == 0
    await scene.close()


async def test_checks_are_tried_again_and_left_out_where_brokers_are_too_old() -> None:
    scene = ReadSideScene({"auto.offset.reset": "earliest"})
    scene.cluster.logs[P0].end = 8
    await scene.assign(P0)
    assert len(scene.poll(5)) == 5
    scene.cluster.logs[P0].refusals = [FencedLeaderEpochError.code]
    scene.cluster.epoch = 4
    scene.fetcher.schedule()
    await scene.settle()
    assert len(scene.asked(OffsetForLeaderEpochRequest)) == 2
    scene.cluster.epoch_version = 2
    scene.cluster.epoch = 5
    scene.fetcher.schedule()
    await scene.settle()
    assert len(scene.asked(OffsetForLeaderEpochRequest)) == 2
    assert await scene.offsets() == [(0, 5), (0, 6), (0, 7)]
    await scene.close()


@pytest.mark.parametrize(
    ("position", "answer", "result"),
    [
        (5, EpochEnd(3, 5), TruncationCheck(False)),
        (5, EpochEnd(3, 9), TruncationCheck(False)),
        (5, EpochEnd(2, 4), TruncationCheck(True, 4, 2)),
        (5, EpochEnd(-1, -1), TruncationCheck(True)),
    ],
)
def test_truncation_checks(position: int, answer: EpochEnd, result: TruncationCheck) -> None:
    assert check_truncation(position, answer) == result
