"""Finding a coordinator, and finding it again."""

from __future__ import annotations

import asyncio
import logging
from random import Random
from typing import Any, cast

import pytest

from braidlog.client.consumer.group.coordinator_client import CoordinatorClient
from braidlog.client.errors import NoConnection
from braidlog.client.network.nodes import Nodes
from braidlog.client.problem_log import ProblemLog
from braidlog.client.settings import CONSUMER, Settings
from braidlog.core import protocol_errors as errors
from braidlog.core.clock import ManualClock
from braidlog.wire.generated.find_coordinator import Coordinator, FindCoordinatorRequest, FindCoordinatorResponse
from braidlog.wire.generated.heartbeat import HeartbeatRequest, HeartbeatResponse
from support.membership_harness import BEAT, FIND, GROUP, CoordinatorScript, FakeNodes


def link(script: CoordinatorScript) -> tuple[CoordinatorClient, FakeNodes]:
    nodes = FakeNodes(script)
    settings = Settings.of(
        CONSUMER, None, {"retry_backoff_ms": 1, "retry_backoff_max_ms": 2, "bootstrap_servers": "host:1"}
    )
    return CoordinatorClient(cast(Nodes, nodes), settings, GROUP, Random(1)), nodes


async def beat(one: CoordinatorClient) -> HeartbeatResponse:
    return await one.ask(BEAT, lambda version: HeartbeatRequest(), HeartbeatResponse, at_most=4)


async def test_many_who_ask_make_one_look_up() -> None:
    script = CoordinatorScript()
    one, _ = link(script)
    await asyncio.gather(*(beat(one) for _ in range(5)))
    assert (script.count(FIND), script.count(BEAT)) == (1, 5)
    assert one.node_id == 1


async def test_a_look_up_goes_on_until_there_is_a_coordinator() -> None:
    script = CoordinatorScript()
    one, _ = link(script)
    not_yet = Coordinator(key=GROUP, error_code=errors.CoordinatorNotAvailableError.code)
    script.then(FIND, FindCoordinatorResponse(coordinators=[not_yet]), NoConnection("cut"))
    await beat(one)
    assert script.count(FIND) == 3


async def test_a_coordinator_that_stays_away_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "braidlog.client")
    script = CoordinatorScript()
    one, nodes = link(script)
    clock = ManualClock()
    nodes.problems = ProblemLog("consumer", clock.monotonic)
    not_yet = Coordinator(key=GROUP, error_code=errors.CoordinatorNotAvailableError.code)

    def away(_request: object, _version: int) -> FindCoordinatorResponse:
        clock.advance(0.7)
        return FindCoordinatorResponse(coordinators=[not_yet])

    script.then(FIND, *[away] * 60)
    await beat(one)
    warnings = [each.message for each in caplog.records if each.levelname == "WARNING"]
    assert [each.split(",")[0] for each in warnings] == ["consumer: failing for 2 s", "consumer: failing for 32 s"]
    assert f"group {GROUP}: its coordinator is not available" in warnings[0]
    # An answer is no proof that the membership works again; the talk says so.
    one.recovered()
    assert caplog.records[-1].message == f"consumer: works again after 42 s: group {GROUP}"


async def test_a_refusal_for_good_is_raised() -> None:
    script = CoordinatorScript()
    one, _ = link(script)
    refused = Coordinator(key=GROUP, error_code=errors.GroupAuthorizationFailedError.code)
    script.then(FIND, FindCoordinatorResponse(coordinators=[refused]))
    with pytest.raises(errors.GroupAuthorizationFailedError, match=GROUP):
        await beat(one)
    await beat(one)


async def test_one_who_gives_up_does_not_end_the_look_up_of_others() -> None:
    script = CoordinatorScript()
    one, _ = link(script)
    script.then(FIND, None)
    first, second = asyncio.create_task(beat(one)), asyncio.create_task(beat(one))
    for _ in range(10):
        await asyncio.sleep(0)
    first.cancel()
    await asyncio.sleep(0)
    script.parked[0].set_result(CoordinatorScript._found(None, 4))
    await second
    assert first.cancelled()


async def test_a_broker_that_metadata_does_not_know_yet_is_learnt() -> None:
    script = CoordinatorScript()
    one, nodes = link(script)
    far = Coordinator(key=GROUP, node_id=9, host="far", port=9)
    script.then(FIND, FindCoordinatorResponse(coordinators=[far]))
    await beat(one)
    assert nodes.addresses == {1: ("host", 1), 9: ("far", 9)}


async def test_older_brokers_are_asked_for_one_group() -> None:
    script = CoordinatorScript()
    script.versions = {FIND: 1}
    one, _ = link(script)
    await beat(one)
    [request] = script.asked(FIND, FindCoordinatorRequest)
    assert (request.key, request.coordinator_keys) == (GROUP, [])


@pytest.mark.parametrize(
    ("error", "passes", "looks_again"),
    [
        (errors.NotCoordinatorError, True, True),
        (errors.CoordinatorNotAvailableError, True, True),
        (errors.CoordinatorLoadInProgressError, True, False),
        (errors.UnknownMemberIdError, False, False),
    ],
)
async def test_answers_that_mean_to_look_again(error: Any, passes: bool, looks_again: bool) -> None:
    script = CoordinatorScript()
    one, _ = link(script)
    await beat(one)
    assert one.handle_error(error.code) is passes
    await beat(one)
    assert script.count(FIND) == 1 + looks_again
