"""A broker in memory that a test asks, request by request, without a socket or a client."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from braidlog.net.channel import ANONYMOUS
from braidlog.net.outbound.transport import ENDED
from braidlog.testing.simulated.loop import Process
from braidlog.testing.simulated.simulation import ADDRESS, Simulation
from braidlog.wire.apis import APIS, api_by_name, decode_response, encode_request
from braidlog.wire.generated.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from braidlog.wire.generated.find_coordinator import FindCoordinatorRequest
from braidlog.wire.message import Message

_ANSWER_WITHIN_S = 60.0


class AskedBroker:
    """One connection to one broker; `parts` are those of the running broker."""

    def __init__(self, simulation: Simulation, principal: str = ANONYMOUS) -> None:
        self._simulation = simulation
        connection = simulation.network.connect(Process("test"), ADDRESS)
        assert connection is not None, "the broker is not running"
        self._connection = connection
        # There are no logins here: the broker is told who it is.
        connection._channel.principal = principal
        self._connection.start(self._on_readable, self._on_lost)
        self._received = b""
        self._waiting: deque[asyncio.Future[bytes]] = deque()
        self._correlation = 0

    def connect_as(self, principal: str) -> AskedBroker:
        """Another connection to the same broker."""
        return AskedBroker(self._simulation, principal)

    @property
    def host(self) -> str:
        """Where the broker thinks that this client is."""
        return self._connection._channel.peer_host

    @property
    def parts(self) -> Any:
        return self._simulation.broker.parts

    async def ask(self, request: Message, version: int | None = None) -> Any:
        """The response to a request, in the newest version unless another is named."""
        api = api_by_name(type(request).__name__.removesuffix("Request"))
        spoken = APIS[api.key].stable_max if version is None else version
        self._correlation += 1
        frame = encode_request(api.key, spoken, self._correlation, "test", request).getvalue()
        answer: asyncio.Future[bytes] = self._simulation.loop.create_future()
        self._waiting.append(answer)
        self._connection.send([frame])
        return decode_response(api.key, spoken, await asyncio.wait_for(answer, _ANSWER_WITHIN_S))[1]

    def _on_readable(self) -> None:
        view = memoryview(bytearray(4096))
        while (count := self._connection.receive_into(view)) > 0:
            self._received += view[:count]
        while len(self._received) >= 4:
            end = 4 + int.from_bytes(self._received[:4], "big")
            if len(self._received) < end:
                break
            self._waiting.popleft().set_result(self._received[4:end])
            self._received = self._received[end:]
        if count == ENDED:
            self._on_lost(ConnectionResetError(self._connection.lost))

    def _on_lost(self, problem: OSError) -> None:
        while self._waiting:
            self._waiting.popleft().set_exception(problem)

    async def create(self, topic: str, partitions: int = 1, **configs: str) -> bytes:
        """The id of the new topic; underscores in the names of its settings stand for dots."""
        entries = [CreatableTopicConfig(name=key.replace("_", "."), value=value) for key, value in configs.items()]
        wanted = CreatableTopic(name=topic, num_partitions=partitions, replication_factor=1, configs=entries)
        (result,) = (await self.ask(CreateTopicsRequest(topics=[wanted], timeout_ms=1000))).topics
        assert result.error_code == 0, result
        return bytes(result.topic_id)

    async def await_coordinator(self, key: str, kind: int = 0) -> None:
        """Its internal topic is made by the first question."""
        found = await self.ask(FindCoordinatorRequest(key=key, key_type=kind), 3)
        assert found.error_code == 0, found


Body = Callable[[AskedBroker], Awaitable[None]]


def on_broker(body: Body) -> Callable[[], None]:
    """Run an async test against a fresh broker."""
    return on_broker_with({})(body)


def on_broker_with(settings: Mapping[str, str]) -> Callable[[Body], Callable[[], None]]:
    def decorate(body: Body) -> Callable[[], None]:
        def test() -> None:
            with Simulation(1, settings) as simulation:

                async def run() -> None:
                    await simulation.broker.start()
                    await body(AskedBroker(simulation))
                    await simulation.broker.stop()

                simulation.run(run())
                assert simulation.errors == []

        test.__name__ = body.__name__
        test.__doc__ = body.__doc__
        return test

    return decorate
