"""One broker as a command sees it: a call waits for its answer, on a connection that the cluster's engine keeps."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, Final, TypeVar

from braidlog.client.errors import NoConnection, RequestTimeout
from braidlog.client.network.engine import Engine
from braidlog.net.outbound.pipelined_connection import PipelinedConnection
from braidlog.wire.message import Message

__all__ = ["NoConnection", "BrokerConnection", "on_engine"]

Response = TypeVar("Response", bound=Message)
T = TypeVar("T")

_LOOK_AGAIN_S: Final = 0.001


class BrokerConnection:
    """`time_left_s` says how long the next request may take."""

    def __init__(self, engine: Engine, connection: PipelinedConnection, time_left_s: Callable[[], float]) -> None:
        self.address = connection.address
        self._engine = engine
        self._connection = connection
        self._time_left_s = time_left_s

    @property
    def is_open(self) -> bool:
        return self._connection.is_open

    @property
    def peer(self) -> str:
        """The address that the name stood for."""
        return self._connection.peer

    def close(self) -> None:
        if not self._engine.is_closed:
            self._engine.soon(self._connection.close)

    def offers(self, api_key: int) -> bool:
        return self._connection.offers(api_key)

    def version_for(self, api_key: int, at_most: int | None = None) -> int:
        """The newest version that both sides speak."""
        return self._connection.version_for(api_key, at_most)

    def call(self, api_key: int, request: Message, answer: type[Response], *, at_most: int | None = None) -> Response:
        called = self._connection.call(api_key, request, answer, at_most=at_most, timeout_s=self._time_left_s())
        return on_engine(self._engine, called)

    def run(self, work: Callable[[PipelinedConnection, float], Coroutine[Any, Any, T]]) -> T:
        """Wait for `work` on this connection, which is given how long each of its requests may take."""
        return on_engine(self._engine, work(self._connection, self._time_left_s()))

    def send_only(self, api_key: int, request: Message, *, at_most: int | None = None) -> None:
        """For what has no answer: a produce with acks=0; waits until the socket has taken it."""
        version = self._connection.version_for(api_key, at_most)
        on_engine(self._engine, self._send_only(api_key, version, request))

    async def _send_only(self, api_key: int, version: int, request: Message) -> None:
        self._connection.post_only(api_key, version, request)
        async with asyncio.timeout(self._time_left_s()):
            # Rare and short: an event for it would have no other use.
            while self._connection.unsent:  # noqa: ASYNC110
                await asyncio.sleep(_LOOK_AGAIN_S)
        if self._connection.problem is not None:
            raise self._connection.problem


def on_engine(engine: Engine, work: Coroutine[Any, Any, T]) -> T:
    """Wait for the engine's work."""
    try:
        return engine.run(work)
    except RequestTimeout as problem:
        # Callers do the same after either: the connection is not used any more.
        raise NoConnection(str(problem)) from problem
    except TimeoutError as problem:
        raise NoConnection("the broker takes no more data (request.timeout.ms)") from problem
