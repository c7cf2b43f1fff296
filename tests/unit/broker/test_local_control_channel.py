from __future__ import annotations

import asyncio

from braidlog.broker.control_epochs import ControlEpochs
from braidlog.broker.local_control_channel import LocalControlChannel
from braidlog.cluster.control_requests import ControlRequest, ControlResponse
from braidlog.core.protocol_errors import NONE, StaleBrokerEpochError, StaleControllerEpochError
from support.control_requests import leader_and_isr, led_by, stop_replica, update_metadata


class SlowParts:
    """Both the replica manager and the cache: each request takes a few turns of the loop."""

    def __init__(self) -> None:
        self._epochs = ControlEpochs(lambda: 1)
        self.at_work: list[ControlRequest] = []
        self.done: list[tuple[str, ControlRequest]] = []
        self.began = asyncio.Event()

    async def _obey(self, name: str, request: ControlRequest) -> ControlResponse:
        error = self._epochs.check(request)
        if error == NONE:
            self.at_work.append(request)
            self.began.set()
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


class Connection:
    def __init__(self, number: int) -> None:
        self.number = number
        self.closed = ""

    def close(self, reason: str) -> None:
        self.closed = reason


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


async def test_what_comes_over_a_connection_that_the_controller_gave_up_is_late() -> None:
    parts = SlowParts()
    channel = LocalControlChannel(parts, parts)  # type: ignore[arg-type]
    earlier, later = Connection(3), Connection(4)
    first, second = leader_and_isr("orders", {0: led_by(1)}), stop_replica("orders", 0, delete=True)
    assert (await channel.receive(first, earlier)).error == NONE
    assert (await channel.receive(second, later)).error == NONE
    assert (await channel.receive(first, earlier)).error == StaleControllerEpochError.code
    assert (earlier.closed, later.closed) == ("the controller has a later connection", "")
    assert parts.done == [("become", first), ("stop", second)]
    # As does one that was read for longer than what came after it.
    both = await asyncio.gather(channel.receive(second, later), channel.receive(first, Connection(2)))
    assert [each.error for each in both] == [NONE, StaleControllerEpochError.code]


async def test_the_next_controller_may_have_the_earlier_connection() -> None:
    """The broker connected before its predecessor, whose connections tell nothing of it."""
    parts = SlowParts()
    channel = LocalControlChannel(parts, parts)  # type: ignore[arg-type]
    earlier, later = Connection(3), Connection(4)
    assert (await channel.receive(update_metadata(controller_epoch=1), later)).error == NONE
    assert (await channel.receive(update_metadata(controller_epoch=2), earlier)).error == NONE
    refused = await channel.receive(update_metadata(controller_epoch=1), later)
    assert refused.error == StaleControllerEpochError.code
    assert (await channel.receive(update_metadata(controller_epoch=2), earlier)).error == NONE
    assert (earlier.closed, later.closed) == ("", "")


async def test_a_refused_request_makes_no_connection_the_latest() -> None:
    parts = SlowParts()
    channel = LocalControlChannel(parts, parts)  # type: ignore[arg-type]
    earlier, later = Connection(3), Connection(4)
    assert (await channel.receive(update_metadata(broker_epoch=0), later)).error == StaleBrokerEpochError.code
    assert (await channel.receive(update_metadata(), earlier)).error == NONE


async def test_what_a_controller_began_is_done_though_the_controller_is_dropped() -> None:
    parts = SlowParts()
    channel = LocalControlChannel(parts, parts)  # type: ignore[arg-type]
    request = leader_and_isr("orders", {0: led_by(1)})
    sending = asyncio.ensure_future(channel.send(request))
    await parts.began.wait()
    sending.cancel()
    # The next one waits for it.
    assert (await channel.send(update_metadata(controller_epoch=2))).error == NONE
    assert sending.cancelled()
    assert [name for name, _ in parts.done] == ["become", "update"]
    await channel.stop()
