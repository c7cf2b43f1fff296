from __future__ import annotations

import asyncio
from collections.abc import Callable

from braidlog.broker.control_epochs import ControlEpochs
from braidlog.broker.local_control_channel import LocalControlChannel
from braidlog.cluster.control_requests import ControlRequest, ControlResponse
from braidlog.core.protocol_errors import NONE, StaleControllerEpochError
from support.control_requests import leader_and_isr, led_by, stop_replica, update_metadata


class SlowParts:
    """Both the replica manager and the cache: each request takes a few turns of the loop."""

    def __init__(self) -> None:
        self._epochs = ControlEpochs(lambda: 1)
        self.at_work: list[ControlRequest] = []
        self.done: list[tuple[str, ControlRequest]] = []
        self.on_turn: Callable[[], None] = lambda: None

    async def _obey(self, name: str, request: ControlRequest) -> ControlResponse:
        error = self._epochs.check(request)
        if error == NONE:
            self.at_work.append(request)
            for _ in range(3):
                assert self.at_work == [request]
                await asyncio.sleep(0)
            self.at_work.remove(request)
            self.done.append((name, request))
        return ControlResponse(error)

    async def become_leader_or_follower(self, request: ControlRequest) -> ControlResponse:
        return await self._obey("become", request)

    async def stop_replicas(self, request: ControlRequest) -> ControlResponse:
        return await self._obey("stop", request)

    async def update(self, request: ControlRequest) -> ControlResponse:
        return await self._obey("update", request)


async def test_each_request_reaches_its_part_one_at_a_time() -> None:
    parts = SlowParts()
    channel = LocalControlChannel(parts, parts)  # type: ignore[arg-type]
    requests = [leader_and_isr("orders", {0: led_by(1)}), update_metadata(), stop_replica("orders", 0)]
    responses = await asyncio.gather(*(channel.send(request) for request in requests))
    assert parts.done == list(zip(["become", "update", "stop"], requests, strict=True))
    assert [response.error for response in responses] == [NONE] * 3


async def test_an_old_controller_that_waited_for_a_newer_one_is_refused() -> None:
    parts = SlowParts()
    channel = LocalControlChannel(parts, parts)  # type: ignore[arg-type]
    newer, older = update_metadata(controller_epoch=2), stop_replica("orders", 0, controller_epoch=1)
    responses = await asyncio.gather(channel.send(newer), channel.send(older))
    assert [response.error for response in responses] == [NONE, StaleControllerEpochError.code]
