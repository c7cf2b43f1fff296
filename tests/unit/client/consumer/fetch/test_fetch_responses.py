from __future__ import annotations

import logging
from itertools import count

import pytest

from braidlog.client.errors import AuthenticationFailed, NoOffsetError, PoisonRecordError
from braidlog.core.protocol_errors import (
    KafkaStorageError,
    NotLeaderOrFollowerError,
    TopicAuthorizationFailedError,
    UnknownLeaderEpochError,
    UnknownServerError,
)
from support.fake_read_cluster import P0, ReadSideScene


async def scene_at_start(**given: object) -> ReadSideScene:
    return ReadSideScene({"auto.offset.reset": "earliest", **given})


async def test_a_leader_that_moved_is_followed() -> None:
    scene = await scene_at_start()
    scene.cluster.logs[P0].end = 10
    await scene.assign(P0)
    await scene.offsets()
    scene.cluster.logs[P0].refusals = [NotLeaderOrFollowerError.code]
    scene.cluster.leaders[P0] = 2
    scene.cluster.epoch = 4
    scene.cluster.logs[P0].end = 20
    await scene.news()
    assert [offset for _, offset in await scene.offsets()] == list(range(10, 20))
    assert scene.cluster.requests[-1][0] == 2
    await scene.close()


async def test_a_broker_that_is_behind_is_asked_again() -> None:
    scene = await scene_at_start()
    await scene.assign(P0)
    scene.cluster.logs[P0].refusals = [UnknownLeaderEpochError.code]
    scene.cluster.logs[P0].end = 2
    await scene.news()
    assert await scene.offsets() == [(0, 0), (0, 1)]
    await scene.close()


async def test_a_disk_that_refuses_to_read_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "braidlog.client")
    scene = await scene_at_start()
    # Each look at the clock finds it a second later.
    seconds = count(100.0)
    scene.cluster.problems.now = lambda: next(seconds)
    scene.cluster.logs[P0].refusals = [KafkaStorageError.code] * 4
    scene.cluster.logs[P0].end = 3
    await scene.assign(P0)
    assert len(await scene.offsets()) == 3
    warning, recovery = [line for line in caplog.messages if line.startswith("consumer: ")]
    assert "trying again: t-0: the disk under it failed" in warning
    assert "works again after" in recovery
    await scene.close()


async def test_an_offset_that_the_log_lost_means_a_reset() -> None:
    scene = await scene_at_start()
    log = scene.cluster.logs[P0]
    log.end = 10
    await scene.assign(P0)
    await scene.offsets()
    log.start, log.end = 50, 60
    await scene.news()
    assert [offset for _, offset in await scene.offsets()] == list(range(50, 60))
    await scene.close()


async def test_an_offset_that_the_log_lost_is_raised_without_a_policy() -> None:
    scene = await scene_at_start(**{"auto.offset.reset": "none"})
    log = scene.cluster.logs[P0]
    log.start, log.end = 50, 60
    scene.subscription.assign([P0])
    scene.subscription.state(P0).seek(7)
    scene.fetcher.schedule()
    await scene.settle()
    with pytest.raises(NoOffsetError, match=r"t-0: the log does not have offset 7.*seek") as caught:
        scene.poll()
    assert caught.value.offset == 7
    await scene.close()


@pytest.mark.parametrize("error", [TopicAuthorizationFailedError, UnknownServerError])
async def test_what_does_not_pass_is_raised(error: type[Exception]) -> None:
    scene = await scene_at_start()
    await scene.assign(P0)
    scene.cluster.logs[P0].refusals = [error.code]  # type: ignore[attr-defined]
    await scene.news()
    with pytest.raises(error, match="t-0"):
        scene.poll()
    scene.cluster.logs[P0].end = 1
    await scene.settle()
    await scene.news()
    assert scene.poll() == [(0, 0)]
    await scene.close()


async def test_refused_credentials_are_raised() -> None:
    scene = await scene_at_start()
    await scene.assign(P0)
    scene.cluster.lost = [AuthenticationFailed("wrong password")]
    scene.cluster.logs[P0].end = 1
    await scene.news()
    with pytest.raises(AuthenticationFailed):
        scene.poll()
    await scene.close()


async def test_bytes_without_a_whole_batch_are_raised() -> None:
    scene = await scene_at_start()
    log = scene.cluster.logs[P0]
    log.end = 1
    whole = log.read(0)
    log.read = lambda offset: whole[:40]  # type: ignore[method-assign]
    await scene.assign(P0)
    with pytest.raises(PoisonRecordError, match=r"t-0 at offset 0: .*max\.partition\.fetch\.bytes"):
        scene.poll()
    assert scene.position() == 0
    await scene.close()
