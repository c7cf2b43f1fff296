"""DescribeClientQuotas and AlterClientQuotas on a whole broker in virtual time, and what quotas do to its clients."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import pytest

from braidlog.core.protocol_errors import (
    NONE,
    ClusterAuthorizationFailedError,
    InvalidRequestError,
    UnsupportedVersionError,
)
from braidlog.wire.generated.alter_client_quotas import (
    AlterClientQuotasRequest,
    OpData,
    RequestEntityData,
    RequestEntryData,
)
from braidlog.wire.generated.describe_client_quotas import ComponentData, DescribeClientQuotasRequest
from braidlog.wire.generated.fetch import FetchPartition, FetchRequest, FetchTopic
from braidlog.wire.generated.metadata import MetadataRequest
from braidlog.wire.generated.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from support.asked_broker import AskedBroker, on_broker, on_broker_with
from support.authorized_broker import authorizer_of
from support.log_kit import batch

Entity = Mapping[str, str | None]
EXACT, DEFAULT, ANY = 0, 1, 2


def entry(entity: Entity, **quotas: float | None) -> RequestEntryData:
    return RequestEntryData(
        entity=[RequestEntityData(entity_type=kind, entity_name=name) for kind, name in entity.items()],
        ops=[OpData(key=key, value=value or 0.0, remove=value is None) for key, value in quotas.items()],
    )


async def alter(broker: AskedBroker, *entries: RequestEntryData, validate_only: bool = False) -> list[int]:
    request = AlterClientQuotasRequest(entries=list(entries), validate_only=validate_only)
    return [each.error_code for each in (await broker.ask(request)).entries]


async def describe(broker: AskedBroker, *components: tuple[str, int, str | None], strict: bool = False) -> Any:
    request = DescribeClientQuotasRequest(
        components=[ComponentData(entity_type=kind, match_type=how, match=name) for kind, how, name in components],
        strict=strict,
    )
    answer = await broker.ask(request)
    if answer.error_code != NONE:
        assert answer.entries is None
        return answer.error_code
    return {
        tuple((part.entity_type, part.entity_name) for part in each.entity): {
            value.key: value.value for value in each.values
        }
        for each in answer.entries
    }


U: Entity = {"user": "ann"}
UC: Entity = {"user": "ann", "client-id": "app"}
UD: Entity = {"user": "ann", "client-id": None}
D: Entity = {"user": None}
C: Entity = {"client-id": "app"}
I: Entity = {"ip": "10.0.0.1"}  # noqa: E741
ALL = [U, UC, UD, D, C, I]


async def fill(broker: AskedBroker) -> None:
    clients = [entry(each, producer_byte_rate=100.0) for each in ALL if each is not I]
    assert await alter(broker, *clients, entry(I, connection_creation_rate=5)) == [NONE] * len(ALL)


def matched(found: Any) -> list[Entity]:
    return [each for each in ALL if tuple(each.items()) in found]


@pytest.mark.parametrize(
    ("components", "strict", "expected"),
    [
        ((), False, ALL),
        ((), True, []),
        ((("user", ANY, None),), False, [U, UC, UD, D]),
        ((("user", ANY, None),), True, [U, D]),
        ((("user", EXACT, "ann"),), False, [U, UC, UD]),
        ((("user", EXACT, "ann"),), True, [U]),
        ((("user", EXACT, "an"),), False, []),
        ((("user", DEFAULT, None),), False, [D]),
        ((("client-id", EXACT, "app"),), False, [UC, C]),
        ((("client-id", ANY, None),), True, [C]),
        ((("user", EXACT, "ann"), ("client-id", DEFAULT, None)), False, [UD]),
        ((("user", ANY, None), ("client-id", ANY, None)), True, [UC, UD]),
        ((("ip", ANY, None),), False, [I]),
        ((("ip", DEFAULT, None),), False, []),
        ((("ip", EXACT, "10.0.0.1"),), True, [I]),
        ((("team", EXACT, "x"),), False, UnsupportedVersionError.code),
        ((("", EXACT, "x"),), False, InvalidRequestError.code),
        ((("user", EXACT, "x"), ("user", EXACT, "y")), False, InvalidRequestError.code),
        ((("user", EXACT, "x"), ("ip", ANY, None)), False, InvalidRequestError.code),
        ((("user", 3, "x"),), False, InvalidRequestError.code),
        ((("user", EXACT, None),), False, InvalidRequestError.code),
        ((("user", ANY, "ann"),), False, InvalidRequestError.code),
    ],
)
def test_filters(components: Any, strict: bool, expected: Any) -> None:
    @on_broker
    async def check(broker: AskedBroker) -> None:
        await fill(broker)
        found = await describe(broker, *components, strict=strict)
        assert (found if isinstance(found, int) else matched(found)) == expected

    check()


@on_broker
async def test_quotas_are_changed_in_place(broker: AskedBroker) -> None:
    assert await alter(broker, entry(UC, producer_byte_rate=1000, request_percentage=12.5)) == [NONE]
    assert await alter(broker, entry(UC, producer_byte_rate=None, consumer_byte_rate=7)) == [NONE]
    key = tuple(UC.items())
    assert await describe(broker) == {key: {"consumer_byte_rate": 7.0, "request_percentage": 12.5}}
    assert await alter(broker, entry(UC, consumer_byte_rate=8), validate_only=True) == [NONE]
    assert await describe(broker) == {key: {"consumer_byte_rate": 7.0, "request_percentage": 12.5}}
    assert await alter(broker, entry(UC, consumer_byte_rate=None, request_percentage=None)) == [NONE]
    assert await describe(broker) == {}


@on_broker
async def test_names_may_be_anything(broker: AskedBroker) -> None:
    odd: Entity = {"user": "CN=a/b, ü", "client-id": "<default>"}
    assert await alter(broker, entry(odd, producer_byte_rate=1000)) == [NONE]
    assert await describe(broker) == {tuple(odd.items()): {"producer_byte_rate": 1000.0}}


@on_broker
async def test_each_entity_is_answered_for(broker: AskedBroker) -> None:
    answers = await alter(
        broker,
        entry(U, producer_byte_rate=1),
        entry({}, producer_byte_rate=1),
        entry({"ip": "no such host.invalid"}, connection_creation_rate=1),
        entry({"ip": "::1"}, connection_creation_rate=1),
    )
    assert sorted(answers) == [NONE, NONE, InvalidRequestError.code, InvalidRequestError.code]


@on_broker
async def test_without_the_right_nothing_is_shown_or_changed(broker: AskedBroker) -> None:
    broker.parts.authorizer = authorizer_of()
    assert await describe(broker) == ClusterAuthorizationFailedError.code
    assert await alter(broker, entry(U, producer_byte_rate=1)) == [ClusterAuthorizationFailedError.code]


def produce_of(topic: str, size: int, acks: int = 1) -> ProduceRequest:
    data = PartitionProduceData(index=0, records=batch(bytes(size)))
    return ProduceRequest(acks=acks, timeout_ms=1000, topic_data=[TopicProduceData(name=topic, partition_data=[data])])


def fetch_of(topic: str, offset: int = 0, **more: Any) -> FetchRequest:
    wanted = FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=1 << 20)
    return FetchRequest(max_wait_ms=0, min_bytes=1, topics=[FetchTopic(topic=topic, partitions=[wanted])], **more)


async def passed(broker: AskedBroker, request: Any, version: int) -> tuple[Any, float]:
    """The answer, and how long it took by the broker's clock."""
    began = asyncio.get_running_loop().time()
    answer = await broker.ask(request, version)
    return answer, asyncio.get_running_loop().time() - began


@pytest.mark.parametrize("version", [3, 9])
def test_a_producer_is_answered_at_once_and_held_afterwards(version: int) -> None:
    @on_broker
    async def check(broker: AskedBroker) -> None:
        await broker.create("t")
        await alter(broker, entry({"client-id": "test"}, producer_byte_rate=10_000))
        first, took = await passed(broker, produce_of("t", 50_000), version)
        assert (first.throttle_time_ms, first.responses[0].partition_responses[0].error_code) == (0, 0)
        second, took = await passed(broker, produce_of("t", 100_000), version)
        assert second.responses[0].partition_responses[0].error_code == 0
        assert 4_900 < second.throttle_time_ms < 5_200
        assert took < 1
        _, took = await passed(broker, MetadataRequest(topics=[]), 12)
        assert second.throttle_time_ms / 1000 - 0.5 < took < second.throttle_time_ms / 1000 + 0.5

    check()


@on_broker
async def test_a_consumer_gets_nothing_while_it_is_held_and_its_session_goes_on(broker: AskedBroker) -> None:
    await broker.create("t")
    for _ in range(3):
        await broker.ask(produce_of("t", 60_000), 9)
    await alter(broker, entry({"user": "ANONYMOUS"}, consumer_byte_rate=10_000))
    # No more than what a window allows is read at once.
    first = await broker.ask(fetch_of("t", session_epoch=0, max_bytes=1 << 20), 12)
    assert first.throttle_time_ms == 0
    assert first.session_id > 0
    assert len(first.responses[0].partitions[0].records.tobytes()) < 100_000
    more = fetch_of("t", 1, session_id=first.session_id, session_epoch=1, max_bytes=1 << 20)
    held, took = await passed(broker, more, 12)
    assert held.throttle_time_ms > 1_000
    assert (held.error_code, held.session_id, held.responses) == (0, first.session_id, [])
    assert took < 1
    follows = fetch_of("t", 1, session_id=first.session_id, session_epoch=2, max_bytes=1 << 20)
    _, took = await passed(broker, follows, 12)
    assert took > held.throttle_time_ms / 1000 - 0.5


@on_broker
async def test_a_first_fetch_that_is_held_leaves_no_session(broker: AskedBroker) -> None:
    await broker.create("t")
    await broker.ask(produce_of("t", 60_000), 9)
    await alter(broker, entry({"user": "ANONYMOUS"}, consumer_byte_rate=1_000))
    assert (await broker.ask(fetch_of("t", session_epoch=-1), 12)).throttle_time_ms > 0
    held = await broker.ask(fetch_of("t", session_epoch=0), 12)
    assert held.throttle_time_ms > 0
    assert (held.session_id, held.responses) == (0, [])
    assert len(broker.parts.sessions) == 0


@on_broker
async def test_a_followers_fetch_is_not_held(broker: AskedBroker) -> None:
    await broker.create("t")
    await broker.ask(produce_of("t", 60_000), 9)
    await alter(broker, entry({"user": "ANONYMOUS"}, consumer_byte_rate=1, request_percentage=0.000001))
    for _ in range(3):
        assert (await broker.ask(fetch_of("t", replica_id=7), 12)).throttle_time_ms == 0
    assert (await broker.ask(fetch_of("t"), 12)).throttle_time_ms > 0


@on_broker
async def test_what_was_not_sent_is_not_shown_as_fetched(broker: AskedBroker) -> None:
    await broker.create("t")
    await broker.ask(produce_of("t", 60_000), 9)
    await alter(broker, entry({"user": "ANONYMOUS"}, consumer_byte_rate=1))
    assert (await broker.ask(fetch_of("t"), 12)).throttle_time_ms > 0
    assert broker.parts.replica_manager.meters["t"].bytes_out == 0


@on_broker
async def test_a_produce_without_an_answer_is_held(broker: AskedBroker) -> None:
    await broker.create("t")
    await alter(broker, entry({"client-id": "test"}, producer_byte_rate=10_000))
    silent = asyncio.ensure_future(broker.ask(produce_of("t", 150_000, acks=0), 9))
    await asyncio.sleep(0.1)
    assert broker.parts.client_quotas.throttled == 1
    began = asyncio.get_running_loop().time()
    # The answer that this test takes for the produce's is that of the next request.
    following = asyncio.ensure_future(broker.ask(MetadataRequest(topics=[]), 9))
    await asyncio.wait([silent, following], return_when=asyncio.FIRST_COMPLETED)
    assert asyncio.get_running_loop().time() - began > 4
    following.cancel()
    await asyncio.gather(silent, following, return_exceptions=True)


@on_broker_with({"quota.window.num": "3", "quota.window.size.seconds": "2"})
async def test_the_window_is_a_setting(broker: AskedBroker) -> None:
    await broker.create("t")
    await alter(broker, entry({"client-id": "test"}, producer_byte_rate=10_000))
    answer = await broker.ask(produce_of("t", 60_000), 9)
    # 60 KB over 4 s.
    assert 1_900 < answer.throttle_time_ms < 2_200


@on_broker
async def test_without_quotas_nothing_is_counted(broker: AskedBroker) -> None:
    assert broker.parts.dispatch.quotas is None
    await alter(broker, entry(I, connection_creation_rate=5))
    assert broker.parts.dispatch.quotas is None
    await alter(broker, entry(U, producer_byte_rate=5))
    assert broker.parts.dispatch.quotas is broker.parts.client_quotas
    await alter(broker, entry(U, producer_byte_rate=None))
    assert broker.parts.dispatch.quotas is None
