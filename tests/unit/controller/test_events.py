from __future__ import annotations

import asyncio

from braidlog.controller.events import Decision, StoreEvent
from braidlog.controller.gauges import ControllerState
from braidlog.controller.plan import ControllerContext, Plan
from braidlog.core.protocol_errors import NotControllerError


def decide(context: ControllerContext) -> tuple[Plan, None]:
    return Plan(), None


async def read() -> None: ...


async def test_a_decision_is_answered_once() -> None:
    answer: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    decision = Decision(decide, ControllerState.IDLE, answer)
    assert not decision.done
    decision.succeed("done")
    decision.fail(NotControllerError("too late"))
    assert decision.done
    assert await answer == "done"


async def test_a_decision_that_nobody_waits_for_may_end_either_way() -> None:
    decision = Decision(decide, ControllerState.IDLE, None)
    decision.succeed("done")
    decision.fail(NotControllerError("or not"))
    assert not decision.done


async def test_all_who_wait_for_an_event_hear_of_its_end() -> None:
    loop = asyncio.get_running_loop()
    event = StoreEvent("topics", read, ControllerState.TOPIC_CHANGE)
    event.answers += [loop.create_future(), loop.create_future()]
    event.answers[0].cancel()
    event.finish()
    event.fail(NotControllerError("too late"))
    await event.answers[1]
