"""From a frame to a handler and back: versions, failures, order and muting, without a socket."""

from __future__ import annotations

import asyncio
import inspect
import struct
from collections.abc import Callable, Coroutine, Generator
from typing import Any

import pytest

from braidlog.broker.handlers.cluster.api_versions import ApiVersionsHandler
from braidlog.broker.requests.dispatch import FEW_ELEMENTS, MOST_ELEMENTS, RESPONDS, RETURNS, Dispatch, Route, returning
from braidlog.broker.requests.handler_pool import RequestHandlerPool
from braidlog.broker.requests.time_slicing import TimeSlicer
from braidlog.core.clock import ManualClock
from braidlog.core.protocol_errors import InvalidRequestError, ProtocolError
from braidlog.core.tasks import Tasks
from braidlog.net.channel import Channel
from braidlog.net.exchange import Exchange, MakeErrorResponse, Part
from braidlog.net.fair_queue import FairQueue
from braidlog.net.memory import MemoryBudget, MemoryPool
from braidlog.net.round import Round
from braidlog.wire.apis import decode_response, encode_request
from braidlog.wire.generated.api_keys import ApiKey
from braidlog.wire.generated.api_versions import ApiVersionsRequest, ApiVersionsResponse
from braidlog.wire.generated.list_offsets import ListOffsetsRequest, ListOffsetsResponse
from braidlog.wire.generated.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from braidlog.wire.generated.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from braidlog.wire.message import Message

API_VERSIONS = ApiKey.API_VERSIONS
METADATA = ApiKey.METADATA
LIST_OFFSETS = ApiKey.LIST_OFFSETS
PRODUCE = ApiKey.PRODUCE


class Loop:
    def __init__(self) -> None:
        self.soon: list[Callable[[], object]] = []

    def call_soon(self, callback: Callable[[], object]) -> None:
        self.soon.append(callback)

    def turn(self) -> None:
        while self.soon:
            self.soon.pop(0)()


class MemoryChannel(Channel):
    def __init__(self, dispatch: Dispatch, round_: Round) -> None:
        super().__init__(dispatch, round_, MemoryBudget(1 << 30), "PLAINTEXT", "192.0.2.1")
        self.sent = b""
        self.reason: str | None = None
        self.resumed = 0

    def send(self, parts: list[Part]) -> None:
        self.sent += b"".join(part.read() if not isinstance(part, (bytes, memoryview)) else part for part in parts)

    def resume(self) -> None:
        self.resumed += 1

    def close(self, reason: str) -> None:
        self.closed = True
        self.reason = reason
        self.handler.channel_closed(self)


def no_error_response(request: Any, version: int, error: ProtocolError) -> None:
    return None


class FunctionHandler:
    def __init__(self, handle: Callable[[Any, Exchange], Any], error_response: MakeErrorResponse) -> None:
        self.handle = handle
        self.error_response = error_response


class World:
    def __init__(self) -> None:
        self.loop = Loop()
        self.round = Round(self.loop)
        self.tasks = Tasks("test")
        self.clock = ManualClock()
        self.dispatch = Dispatch(self.clock, self.tasks)
        self.channel = MemoryChannel(self.dispatch, self.round)
        self.dispatch.add(returning(API_VERSIONS, lambda: ApiVersionsHandler(self.dispatch.routes)))

    def returns(
        self,
        api_key: ApiKey,
        handle: Callable[[Any, Exchange], Any],
        error_response: MakeErrorResponse = no_error_response,
    ) -> Route:
        route = Route(api_key, RETURNS, lambda: FunctionHandler(handle, error_response))
        self.dispatch.add(route)
        return route

    def responds(
        self,
        api_key: ApiKey,
        handle: Callable[[Any, Exchange], Any],
        error_response: MakeErrorResponse = no_error_response,
    ) -> None:
        self.dispatch.add(Route(api_key, RESPONDS, lambda: FunctionHandler(handle, error_response)))

    def frame(self, body: bytes) -> None:
        self.dispatch.handle_frame(self.channel, body, 0, len(body))

    def ask(self, api_key: int, version: int, request: Message, correlation: int = 7) -> None:
        self.frame(encode_request(api_key, version, correlation, "test", request).getvalue()[4:])

    def answer(self, api_key: int, version: int) -> tuple[int, Message]:
        self.loop.turn()
        (size,) = struct.unpack(">i", self.channel.sent[:4])
        frame, self.channel.sent = self.channel.sent[4 : 4 + size], self.channel.sent[4 + size :]
        return decode_response(api_key, version, frame)


@pytest.fixture
def world() -> World:
    return World()


def metadata_error(request: MetadataRequest, version: int, error: ProtocolError) -> MetadataResponse:
    return MetadataResponse(cluster_id=error.name)


def test_a_request_reaches_its_handler_and_its_answer_the_peer(world: World) -> None:
    seen: list[tuple[MetadataRequest, Exchange]] = []

    def handle(request: MetadataRequest, exchange: Exchange) -> MetadataResponse:
        seen.append((request, exchange))
        return MetadataResponse(cluster_id="here", controller_id=5)

    world.returns(METADATA, handle)
    world.ask(METADATA, 12, MetadataRequest(topics=None), correlation=99)
    correlation, response = world.answer(METADATA, 12)
    assert correlation == 99
    assert isinstance(response, MetadataResponse)
    assert (response.cluster_id, response.controller_id) == ("here", 5)
    assert seen[0][0].topics is None
    assert seen[0][1].client_id == "test"
    assert world.dispatch.routes[METADATA].requests == 1


@pytest.mark.parametrize("failure", [InvalidRequestError("no"), RuntimeError("bug")])
def test_a_handlers_failure_becomes_an_answer(world: World, failure: Exception) -> None:
    def handle(request: MetadataRequest, exchange: Exchange) -> MetadataResponse:
        raise failure

    world.returns(METADATA, handle, metadata_error)
    world.ask(METADATA, 12, MetadataRequest())
    _, response = world.answer(METADATA, 12)
    expected = "INVALID_REQUEST" if isinstance(failure, InvalidRequestError) else "UNKNOWN_SERVER_ERROR"
    assert isinstance(response, MetadataResponse)
    assert response.cluster_id == expected
    assert not world.channel.closed
    assert sum(world.dispatch.errors.values()) == 1


@pytest.mark.parametrize("failure", [InvalidRequestError("no"), RuntimeError("bug")])
def test_a_failure_of_a_handler_that_responds_itself_becomes_an_answer(world: World, failure: Exception) -> None:
    def handle(request: MetadataRequest, exchange: Exchange) -> None:
        raise failure

    world.responds(METADATA, handle, metadata_error)
    world.ask(METADATA, 12, MetadataRequest())
    _, response = world.answer(METADATA, 12)
    assert isinstance(response, MetadataResponse)
    assert response.cluster_id in ("INVALID_REQUEST", "UNKNOWN_SERVER_ERROR")
    assert not world.channel.closed


def test_a_handler_is_made_for_the_first_request(world: World) -> None:
    made: list[FunctionHandler] = []

    def make() -> FunctionHandler:
        made.append(FunctionHandler(lambda request, exchange: MetadataResponse(), no_error_response))
        return made[-1]

    world.dispatch.add(Route(METADATA, RETURNS, make))
    assert made == []
    for _ in range(2):
        world.ask(METADATA, 12, MetadataRequest())
        world.answer(METADATA, 12)
    assert len(made) == 1


def test_a_failure_without_a_protocol_form_closes_the_connection(world: World) -> None:
    def handle(request: ListOffsetsRequest, exchange: Exchange) -> ListOffsetsResponse:
        raise RuntimeError("bug")

    world.returns(LIST_OFFSETS, handle)
    world.ask(LIST_OFFSETS, 7, ListOffsetsRequest())
    assert world.channel.closed


def test_api_versions_from_the_future_are_answered_in_version_0(world: World) -> None:
    world.frame(struct.pack(">hhih", 18, 99, 4711, -1) + b"whatever comes in version 99")
    correlation, response = world.answer(API_VERSIONS, 0)
    assert correlation == 4711
    assert isinstance(response, ApiVersionsResponse)
    assert response.error_code == 35
    assert [(key.api_key, key.min_version, key.max_version) for key in response.api_keys] == [(18, 0, 4)]
    assert not world.channel.closed


def test_api_versions_lists_what_is_served(world: World) -> None:
    world.returns(METADATA, lambda request, exchange: MetadataResponse()).max_version = 9
    request = ApiVersionsRequest(client_software_name="some-client", client_software_version="1.2.3")
    world.ask(API_VERSIONS, 3, request)
    _, response = world.answer(API_VERSIONS, 3)
    assert isinstance(response, ApiVersionsResponse)
    assert [(key.api_key, key.min_version, key.max_version) for key in response.api_keys] == [(3, 0, 9), (18, 0, 4)]
    assert world.channel.client_software == "some-client"


@pytest.mark.parametrize("name", ["", "-x", "with space", "ü"])
def test_clients_that_call_themselves_something_odd_are_refused(world: World, name: str) -> None:
    world.ask(API_VERSIONS, 3, ApiVersionsRequest(client_software_name=name, client_software_version="1"))
    _, response = world.answer(API_VERSIONS, 3)
    assert isinstance(response, ApiVersionsResponse)
    assert response.error_code == InvalidRequestError.code


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"\x00",
        struct.pack(">hhi", 3, 0, 1),
        struct.pack(">hhih", 999, 0, 1, -1),
        struct.pack(">hhih", 3, 0, 1, -1),
        struct.pack(">hhih", 18, 3, 1, -1) + b"\xff\xff\xff\xff\xff\xff",
    ],
    ids=["empty", "one byte", "no client id", "unknown api", "api not served", "garbage"],
)
def test_what_cannot_be_read_closes_that_connection_only(world: World, body: bytes) -> None:
    other = MemoryChannel(world.dispatch, world.round)
    world.frame(body)
    assert world.channel.closed
    assert world.dispatch.malformed == 1
    assert not other.closed


def test_a_handler_that_takes_time_mutes_the_connection_until_it_is_done(world: World) -> None:
    async def main() -> None:
        gate = asyncio.Event()

        async def wait() -> MetadataResponse:
            await gate.wait()
            return MetadataResponse(cluster_id="late")

        def handle(request: MetadataRequest, exchange: Exchange) -> Coroutine[Any, Any, MetadataResponse]:
            return wait()

        world.returns(METADATA, handle, metadata_error)
        world.ask(METADATA, 12, MetadataRequest())
        await asyncio.sleep(0)
        assert world.channel.muted
        gate.set()
        await asyncio.gather(*[task for task in asyncio.all_tasks() if task is not asyncio.current_task()])

    asyncio.run(main())
    _, response = world.answer(METADATA, 12)
    assert isinstance(response, MetadataResponse)
    assert response.cluster_id == "late"
    assert not world.channel.muted
    assert world.channel.resumed == 1


def test_a_handler_that_had_not_begun_when_the_broker_stops_is_ended(world: World) -> None:
    begun: list[Coroutine[Any, Any, MetadataResponse]] = []

    async def answer() -> MetadataResponse:
        return MetadataResponse()

    def handle(request: MetadataRequest, exchange: Exchange) -> Coroutine[Any, Any, MetadataResponse]:
        begun.append(answer())
        return begun[0]

    async def main() -> None:
        world.returns(METADATA, handle, metadata_error)
        world.ask(METADATA, 12, MetadataRequest())
        await world.tasks.close()

    asyncio.run(main())
    # Else Python complains of it, whenever it is forgotten.
    assert inspect.getcoroutinestate(begun[0]) == inspect.CORO_CLOSED


def test_what_a_peer_produced_is_committed_before_its_next_request(world: World) -> None:
    order: list[str] = []
    world.dispatch.commit = lambda: order.append("commit")
    world.responds(PRODUCE, lambda request, exchange: order.append("produce"))

    def handle(request: MetadataRequest, exchange: Exchange) -> MetadataResponse:
        order.append("metadata")
        return MetadataResponse()

    world.returns(METADATA, handle)
    from braidlog.wire.generated.produce import ProduceRequest

    world.ask(PRODUCE, 9, ProduceRequest(acks=1))
    world.ask(PRODUCE, 9, ProduceRequest(acks=1))
    world.ask(METADATA, 12, MetadataRequest())
    assert order == ["produce", "produce", "commit", "metadata"]


def test_a_stopping_broker_takes_no_more_requests(world: World) -> None:
    world.dispatch.stopping = True
    world.ask(API_VERSIONS, 0, ApiVersionsRequest())
    assert world.channel.closed
    assert world.channel.reason == "the broker is stopping"


class Threads:
    """Work for threads, done when the test says so."""

    def __init__(self) -> None:
        self.waiting: list[tuple[Callable[[], None], Callable[[Exception | None], None]]] = []

    def run(self, lane: str, work: Callable[[], None], done: Callable[[Exception | None], None]) -> None:
        self.waiting.append((work, done))

    def finish(self) -> None:
        work, done = self.waiting.pop(0)
        problem: Exception | None = None
        try:
            work()
        except Exception as raised:
            problem = raised
        done(problem)


def many_names() -> MetadataRequest:
    return MetadataRequest(topics=[MetadataRequestTopic(name=f"topic-{number:06}") for number in range(6000)])


def test_a_long_request_is_decoded_elsewhere_while_its_peer_waits(world: World) -> None:
    threads = Threads()
    world.dispatch.handler_pool = RequestHandlerPool(threads.run, MemoryPool(1 << 20))
    seen: list[int] = []

    def handle(request: MetadataRequest, exchange: Exchange) -> MetadataResponse:
        assert request.topics is not None
        seen.append(len(request.topics))
        return MetadataResponse(cluster_id="here")

    world.returns(METADATA, handle)
    world.ask(METADATA, 8, many_names(), correlation=5)
    assert world.channel.muted
    assert seen == []
    threads.finish()
    assert seen == [6000]
    correlation, _ = world.answer(METADATA, 8)
    assert correlation == 5
    assert not world.channel.muted
    world.ask(METADATA, 8, MetadataRequest(topics=None))
    assert threads.waiting == []


def test_a_long_request_that_makes_no_sense_closes_its_connection(world: World) -> None:
    threads = Threads()
    world.dispatch.handler_pool = RequestHandlerPool(threads.run, MemoryPool(1 << 20))
    world.returns(METADATA, lambda request, exchange: MetadataResponse())
    whole = encode_request(METADATA, 8, 7, "test", many_names()).getvalue()[4:]
    world.frame(whole[:-3])
    threads.finish()
    assert world.channel.reason == "malformed request"
    assert world.dispatch.malformed == 1


def test_a_produce_to_very_many_partitions_is_decoded_elsewhere(world: World) -> None:
    threads = Threads()
    world.dispatch.handler_pool = RequestHandlerPool(threads.run, MemoryPool(1 << 20))
    seen: list[int] = []
    world.responds(PRODUCE, lambda request, exchange: seen.append(len(request.topic_data)))

    def produce(topics: int, records: bytes) -> ProduceRequest:
        data = [PartitionProduceData(index=0, records=records)]
        return ProduceRequest(acks=1, topic_data=[TopicProduceData(name="t", partition_data=data)] * topics)

    world.ask(PRODUCE, 8, produce(1, bytes(1 << 20)))
    assert seen == [1], "records are not decoded, however many"
    world.ask(PRODUCE, 8, produce(FEW_ELEMENTS, b""))
    assert seen == [1]
    threads.finish()
    assert seen == [1, FEW_ELEMENTS]


def test_a_request_of_too_many_elements_is_refused(world: World) -> None:
    threads = Threads()
    world.dispatch.handler_pool = RequestHandlerPool(threads.run, MemoryPool(1 << 20))
    world.returns(METADATA, lambda request, exchange: MetadataResponse())
    names = MetadataRequest(topics=[MetadataRequestTopic(name="t")] * (MOST_ELEMENTS + 1))
    world.ask(METADATA, 8, names)
    threads.finish()
    assert world.channel.reason == "malformed request"


def test_a_handler_that_yields_is_answered_in_slices(world: World) -> None:
    world.dispatch.time_slicer = TimeSlicer(FairQueue(world.loop), world.clock)

    def handle(request: MetadataRequest, exchange: Exchange) -> Generator[None, None, MetadataResponse]:
        for _ in range(3):
            world.clock.advance(1.0)
            yield
        return MetadataResponse(cluster_id="slowly")

    def fail(request: ListOffsetsRequest, exchange: Exchange) -> Generator[None, None, ListOffsetsResponse]:
        world.clock.advance(1.0)
        yield
        raise InvalidRequestError("no")

    world.returns(METADATA, handle)
    world.ask(METADATA, 8, MetadataRequest(topics=None))
    assert world.channel.muted
    _, response = world.answer(METADATA, 8)
    assert isinstance(response, MetadataResponse)
    assert response.cluster_id == "slowly"
    world.returns(METADATA, fail, metadata_error)
    world.ask(METADATA, 8, MetadataRequest(topics=None))
    _, response = world.answer(METADATA, 8)
    assert isinstance(response, MetadataResponse)
    assert response.cluster_id == "INVALID_REQUEST"
