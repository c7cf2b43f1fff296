from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable

from braidlog.cluster.control_requests import ControlRequest, ControlResponse, UpdateMetadata
from braidlog.cluster.image import BrokerInfo
from braidlog.cluster.store import SessionLease
from braidlog.controller.queues import BrokerQueues
from braidlog.core.protocol_errors import StaleControllerEpochError, UnknownServerError
from braidlog.core.types import BrokerId
from braidlog.net.outbound.errors import ConnectionRefused, NoConnection
from braidlog.testing.simulated.loop import SimulatedLoop

ONE = BrokerId(1)


def request(number: int) -> UpdateMetadata:
    return UpdateMetadata(ONE, number, -1, {})


class Channel:
    def __init__(self, broker: BrokerInfo) -> None:
        self.broker = broker
        self.sent: list[int] = []
        self.answers: list[ControlResponse | Exception] = []
        self.reached = 0
        self.problem: Exception | None = None
        self.broken: Callable[[], None] = lambda: None
        self.closed = False

    async def reach(self) -> None:
        self.reached += 1
        if self.problem is not None:
            raise self.problem

    def when_broken(self, callback: Callable[[], None]) -> None:
        self.broken = callback

    async def send(self, request: ControlRequest) -> ControlResponse:
        self.sent.append(request.controller_epoch)
        await asyncio.sleep(0.01)
        answer = self.answers.pop(0) if self.answers else ControlResponse(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    async def close(self) -> None:
        self.closed = True


class Scene:
    """Queues over a channel that a test scripts, and what comes back to the controller."""

    def __init__(self, loop: SimulatedLoop) -> None:
        self.lease = SessionLease(loop.time, timeout_s=10.0)
        self.channels: list[Channel] = []
        self.answers: list[tuple[int, int]] = []
        self.was_fenced = False
        self.refusals: list[BrokerInfo] = []
        self.queues = BrokerQueues(self.connect, self.lease, self)
        self.queues.follow({ONE: BrokerInfo(ONE, 5, ())})

    def connect(self, broker: BrokerInfo) -> Channel:
        self.channels.append(Channel(broker))
        return self.channels[-1]

    def answered(self, broker: BrokerInfo, request: ControlRequest, response: ControlResponse) -> None:
        self.answers.append((request.controller_epoch, response.error))

    def fenced(self) -> None:
        self.was_fenced = True

    def refused(self, broker: BrokerInfo) -> None:
        self.refusals.append(broker)

    def send(self, *numbers: int) -> None:
        self.queues.send((ONE, request(number)) for number in numbers)


def in_virtual_time(body: Callable[[Scene], Awaitable[None]]) -> Callable[[], None]:
    def test() -> None:
        loop = SimulatedLoop(random.Random(1))  # type: ignore[abstract]

        async def run() -> None:
            scene = Scene(loop)
            await body(scene)
            await scene.queues.close()

        loop.run_until_complete(run())
        assert not loop.problems

    return test


@in_virtual_time
async def test_requests_go_in_order_and_again_until_they_are_answered(scene: Scene) -> None:
    (channel,) = scene.channels
    channel.answers = [ControlResponse(0), NoConnection("gone"), NoConnection("gone")]
    applied: list[int] = []
    scene.send(1, 2)
    scene.queues.when_applied(ONE, lambda: applied.append(2))
    scene.send(3)
    await asyncio.sleep(0.05)
    assert (channel.sent, applied) == ([1, 2], [])
    await asyncio.sleep(5)
    assert channel.sent == [1, 2, 2, 2, 3]
    assert scene.answers == [(1, 0), (2, 0), (3, 0)]
    assert applied == [2]
    assert scene.queues.size(ONE) == 0


@in_virtual_time
async def test_nothing_is_sent_without_a_lease(scene: Scene) -> None:
    await asyncio.sleep(11)
    scene.send(1)
    await asyncio.sleep(5)
    assert scene.channels[0].sent == []
    scene.lease.answered(asyncio.get_running_loop().time())
    await asyncio.sleep(5)
    assert scene.channels[0].sent == [1]


@in_virtual_time
async def test_a_broker_that_knows_a_newer_controller_gets_nothing_more(scene: Scene) -> None:
    scene.channels[0].answers = [ControlResponse(StaleControllerEpochError.code)]
    scene.send(1, 2)
    await asyncio.sleep(5)
    assert scene.was_fenced
    assert (scene.channels[0].sent, scene.answers) == ([1], [])


@in_virtual_time
async def test_a_bug_in_applying_a_request_does_not_hold_up_the_next(scene: Scene) -> None:
    scene.channels[0].answers = [ValueError("a bug")]
    scene.send(1, 2)
    await asyncio.sleep(5)
    assert scene.answers == [(1, UnknownServerError.code), (2, 0)]


@in_virtual_time
async def test_a_connection_that_breaks_is_made_again_with_nothing_to_say(scene: Scene) -> None:
    (channel,) = scene.channels
    channel.broken()
    await asyncio.sleep(1)
    assert (channel.reached, scene.refusals) == (1, [])
    channel.problem = NoConnection("silence")
    channel.broken()
    await asyncio.sleep(1)
    assert (channel.reached, scene.refusals) == (2, [])
    channel.problem = ConnectionRefused("gone")
    channel.broken()
    await asyncio.sleep(1)
    assert (channel.reached, scene.refusals) == (3, [channel.broker])
    # It is sent what is to be said all the same.
    scene.send(1)
    await asyncio.sleep(1)
    assert channel.sent == [1]


@in_virtual_time
async def test_a_broker_that_refuses_a_request_is_named_once(scene: Scene) -> None:
    (channel,) = scene.channels
    channel.answers = [NoConnection("broke"), *[ConnectionRefused("gone")] * 5]
    scene.send(1)
    await asyncio.sleep(10)
    assert scene.refusals == [channel.broker]
    assert scene.answers == [(1, 0)]


@in_virtual_time
async def test_a_queue_ends_with_the_registration_of_its_broker(scene: Scene) -> None:
    scene.channels[0].answers = [NoConnection("gone")] * 100
    released: list[bool] = []
    scene.send(1, 2)
    scene.queues.when_applied(ONE, lambda: released.append(True))
    await asyncio.sleep(1)
    scene.queues.follow({ONE: BrokerInfo(ONE, 6, ())})
    # Nothing waits for a broker that is gone.
    assert released == [True]
    scene.send(3)
    await asyncio.sleep(5)
    first, second = scene.channels
    assert first.closed
    assert second.sent == [3]


@in_virtual_time
async def test_another_address_is_another_channel_for_the_same_requests(scene: Scene) -> None:
    scene.channels[0].answers = [NoConnection("moved")] * 100
    scene.send(1, 2)
    await asyncio.sleep(1)
    scene.queues.follow({ONE: BrokerInfo(ONE, 5, (), rack="r")})
    await asyncio.sleep(5)
    assert scene.channels[0].closed
    assert scene.channels[1].sent == [1, 2]


@in_virtual_time
async def test_an_unknown_broker_has_nothing_to_apply(scene: Scene) -> None:
    applied: list[bool] = []
    scene.queues.send([(BrokerId(9), request(1))])
    scene.queues.when_applied(BrokerId(9), lambda: applied.append(True))
    assert applied == [True]


@in_virtual_time
async def test_it_is_known_for_how_long_a_broker_is_not_reached(scene: Scene) -> None:
    (channel,) = scene.channels
    assert scene.queues.unreachable_s() == {ONE: 0.0}
    channel.answers = [NoConnection("gone")] * 3
    scene.send(1, 2)
    await asyncio.sleep(0.2)
    assert scene.queues.sizes() == {ONE: 2}
    assert 0.1 < scene.queues.unreachable_s()[ONE] < 0.2
    await asyncio.sleep(5)
    assert (scene.queues.sizes(), scene.queues.unreachable_s()) == ({ONE: 0}, {ONE: 0.0})
    # Also where nothing is to be said.
    channel.problem = ConnectionRefused("gone")
    channel.broken()
    await asyncio.sleep(1)
    assert scene.queues.unreachable_s()[ONE] == 1.0
