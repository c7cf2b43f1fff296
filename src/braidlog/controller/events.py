"""What waits in the controller's queue: decisions, and changes of the store that are to be read."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from braidlog.controller.gauges import ControllerState
from braidlog.controller.plan import ControllerContext, Plan


class Decision:
    """A request or a response: decided on what is known, without reading the store."""

    __slots__ = ("answer", "decide", "partitions", "patient", "queued_s", "state")

    def __init__(
        self,
        decide: Callable[[ControllerContext], tuple[Plan, Any]],
        state: ControllerState,
        answer: asyncio.Future[Any] | None,
        partitions: int = 0,
    ) -> None:
        self.decide = decide
        # How many it is about, where they may be very many.
        self.partitions = partitions
        self.state = state
        self.answer = answer
        self.patient = True
        # When it was queued first.
        self.queued_s: float | None = None

    @property
    def done(self) -> bool:
        return self.answer is not None and self.answer.done()

    def succeed(self, result: object) -> None:
        if self.answer is not None and not self.answer.done():
            self.answer.set_result(result)

    def fail(self, error: BaseException) -> None:
        if self.answer is not None and not self.answer.done():
            self.answer.set_exception(error)


class StoreEvent:
    """Something in the store changed: read it, then decide. Queued once, however often it is heard of."""

    __slots__ = ("answers", "attempts", "name", "queued_s", "read", "state")

    def __init__(self, name: str, read: Callable[[], Awaitable[None]], state: ControllerState) -> None:
        self.name = name
        self.read = read
        self.state = state
        self.attempts = 0
        self.answers: list[asyncio.Future[None]] = []
        self.queued_s: float | None = None

    def finish(self) -> None:
        for answer in self.answers:
            if not answer.done():
                answer.set_result(None)

    def fail(self, error: BaseException) -> None:
        for answer in self.answers:
            if not answer.done():
                answer.set_exception(error)
