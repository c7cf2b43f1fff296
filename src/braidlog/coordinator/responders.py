"""A responder for code that awaits its reply."""

from __future__ import annotations

import asyncio

from braidlog.core.protocol_errors import ProtocolError
from braidlog.wire.message import Message


class FutureResponder:
    def __init__(self) -> None:
        self.future: asyncio.Future[Message] = asyncio.get_running_loop().create_future()

    def answer(self, response: Message) -> None:
        if not self.future.done():
            self.future.set_result(response)

    def fail(self, error: ProtocolError) -> None:
        if not self.future.done():
            self.future.set_exception(error)
