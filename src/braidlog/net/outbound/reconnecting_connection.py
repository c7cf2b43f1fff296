"""One connection to one peer for one purpose: made when it is needed, and again after a pause when it broke."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from braidlog.core.types import address_text
from braidlog.net.outbound.backoff import ExponentialBackoff
from braidlog.net.outbound.connector import Address, Connector
from braidlog.net.outbound.errors import ClientError, ClosedError, NoConnection
from braidlog.net.outbound.pipelined_connection import PipelinedConnection

Open = Callable[[], Awaitable[PipelinedConnection]]


class ReconnectingConnection:
    def __init__(self, name: str, open_connection: Open, backoff: ExponentialBackoff) -> None:
        """`open_connection` is called after the pause that the last failure asks for."""
        self._name = name
        self._open = open_connection
        self._backoff = backoff
        self._opening: asyncio.Task[PipelinedConnection] | None = None
        self._not_before = 0.0
        self._closed = False
        # Since the last success.
        self.failures = 0
        # Why the last attempt to open it failed.
        self.problem: ClientError | None = None
        self.connection: PipelinedConnection | None = None
        # Called with a connection that broke, not with one that was closed on purpose.
        self.on_broken: Callable[[PipelinedConnection], None] | None = None

    @property
    def ready(self) -> PipelinedConnection | None:
        """The connection where there is one already."""
        connection = self.connection
        return connection if connection is not None and connection.is_open else None

    async def get(self) -> PipelinedConnection:
        """Raises what opening raises, and ClosedError where `close` was called meanwhile."""
        connection = self.ready
        if connection is not None:
            return connection
        if self._closed:
            raise ClosedError(f"the connection to {self._name} was closed")
        if self._opening is None:
            self._opening = asyncio.get_running_loop().create_task(self._establish(), name=f"connect to {self._name}")
            self._opening.add_done_callback(self._opened)
        opening = self._opening
        # A caller that gives up waiting must not take the connection from the others.
        await asyncio.wait([opening])
        if opening.cancelled():
            # To the caller that is a failure as any other: the caller was not cancelled.
            raise ClosedError(f"the connection to {self._name} was closed")
        return opening.result()

    async def _establish(self) -> PipelinedConnection:
        loop = asyncio.get_running_loop()
        if self._not_before > loop.time():
            await asyncio.sleep(self._not_before - loop.time())
        try:
            connection = await self._open()
        except Exception as problem:
            self._failed()
            self.problem = problem if isinstance(problem, ClientError) else None
            raise
        self.failures = 0
        self.problem = None
        self._not_before = 0.0
        self.connection = connection
        connection.on_closed = self._on_closed
        return connection

    def _opened(self, task: asyncio.Task[PipelinedConnection]) -> None:
        self._opening = None
        # The callers may have given up; the failure is counted either way.
        if not task.cancelled():
            task.exception()

    def _failed(self) -> None:
        self._not_before = asyncio.get_running_loop().time() + self._backoff.pause_s(self.failures)
        self.failures += 1

    def _on_closed(self, closed: PipelinedConnection) -> None:
        # One that broke is called again after a pause; one that was idle or not needed any more at once.
        if self.connection is closed and closed.problem is not None:
            self._failed()
            if self.on_broken is not None:
                self.on_broken(closed)

    def close(self) -> None:
        self._closed = True
        if self._opening is not None:
            self._opening.cancel()
        if self.connection is not None:
            self.connection.close()


async def open_connection(
    connector: Connector,
    address: Address,
    client_id: str,
    prepare: Callable[[PipelinedConnection], Awaitable[None]],
) -> PipelinedConnection:
    """Connect, then have `prepare` ask for versions and authenticate."""
    transport = await connector.connect(address)
    connection = PipelinedConnection(asyncio.get_running_loop(), transport, address_text(*address), client_id)
    try:
        await prepare(connection)
    except NoConnection as problem:
        connection.close()
        raise await connector.explain(address, problem) from problem
    except BaseException:
        connection.close()
        raise
    return connection
