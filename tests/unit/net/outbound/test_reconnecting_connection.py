from __future__ import annotations

import asyncio
from random import Random
from typing import cast

import pytest

from braidlog.net.outbound.backoff import ExponentialBackoff
from braidlog.net.outbound.errors import ClientError, ClosedError, NoConnection
from braidlog.net.outbound.pipelined_connection import PipelinedConnection
from braidlog.net.outbound.reconnecting_connection import ReconnectingConnection


class FakeConnection:
    def __init__(self) -> None:
        self.is_open = True
        self.problem: ClientError | None = None
        self.on_closed: object = None

    def close(self) -> None:
        self.end(None)

    def end(self, problem: ClientError | None) -> None:
        self.is_open = False
        self.problem = problem
        assert callable(self.on_closed)
        self.on_closed(self)


class Peer:
    def __init__(self) -> None:
        self.refusals = 0
        self.made: list[FakeConnection] = []
        self.opened_at: list[float] = []
        self.answers = asyncio.Event()
        self.answers.set()

    async def open(self) -> PipelinedConnection:
        self.opened_at.append(asyncio.get_running_loop().time())
        await self.answers.wait()
        if self.refusals:
            self.refusals -= 1
            raise NoConnection("no broker answers")
        self.made.append(FakeConnection())
        return cast("PipelinedConnection", self.made[-1])

    def connection(self) -> ReconnectingConnection:
        return ReconnectingConnection("broker 1", self.open, ExponentialBackoff(0.01, 0.1, Random(1)))


def test_callers_share_one_connection_and_a_broken_one_is_made_again_after_a_pause() -> None:
    async def run() -> None:
        peer = Peer()
        link = peer.connection()
        first, second = await asyncio.gather(link.get(), link.get())
        assert first is second is link.ready
        peer.made[0].end(NoConnection("it broke"))
        assert link.ready is None
        assert link.failures == 1
        assert await link.get() is not first
        assert peer.opened_at[1] - peer.opened_at[0] >= 0.008
        assert link.failures == 0

    asyncio.run(run())


def test_a_failure_to_connect_is_raised_and_the_next_try_waits() -> None:
    async def run() -> None:
        peer = Peer()
        peer.refusals = 2
        link = peer.connection()
        for _ in range(2):
            with pytest.raises(NoConnection):
                await link.get()
        assert link.failures == 2
        await link.get()
        assert len(peer.opened_at) == 3
        assert peer.opened_at[2] - peer.opened_at[1] >= 0.016

    asyncio.run(run())


def test_one_that_was_closed_while_being_made_is_a_failure_to_its_callers() -> None:
    async def run() -> None:
        peer = Peer()
        peer.answers.clear()
        link = peer.connection()
        waiting = asyncio.ensure_future(link.get())
        await asyncio.sleep(0)
        link.close()
        with pytest.raises(ClosedError):
            await waiting
        with pytest.raises(ClosedError):
            await link.get()

    asyncio.run(run())
