"""A listener that wants a login, in memory: frames in, answers out, and time as the test has it."""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any

from braidlog.broker.authentication.sasl_authenticator import Mechanisms, SaslListener
from braidlog.broker.handlers.cluster.api_versions import ApiVersionsHandler
from braidlog.broker.handlers.security.sasl import SaslAuthenticateHandler, SaslHandshakeHandler
from braidlog.broker.requests.dispatch import Dispatch, responding, returning
from braidlog.core.clock import ManualClock
from braidlog.core.tasks import Tasks
from braidlog.net.channel import Channel
from braidlog.net.exchange import Part
from braidlog.net.memory import MemoryBudget
from braidlog.net.round import Round
from braidlog.wire.apis import api_by_name, decode_response, encode_request
from braidlog.wire.generated.api_keys import ApiKey
from braidlog.wire.message import Message

MAX_FRAME = 1 << 20
MAX_RECEIVE = 1000


class Timer:
    def __init__(self, at: float, callback: Callable[[], None]) -> None:
        self.at = at
        self.callback = callback
        self.cancelled = False

    def cancel(self) -> None:
        self.cancelled = True


class Loop:
    """What a round and an authenticator need of one, on the test's clock."""

    def __init__(self, clock: ManualClock) -> None:
        self._clock = clock
        self._soon: list[Callable[[], object]] = []
        self.timers: list[Timer] = []

    def call_soon(self, callback: Callable[[], object]) -> None:
        self._soon.append(callback)

    def call_later(self, delay: float, callback: Callable[[], None]) -> Any:
        timer = Timer(self._clock.monotonic() + delay, callback)
        self.timers.append(timer)
        return timer

    def turn(self) -> None:
        while self._soon:
            self._soon.pop(0)()

    def advance(self, seconds: float) -> None:
        self._clock.advance(seconds)
        for timer in [each for each in self.timers if each.at <= self._clock.monotonic()]:
            self.timers.remove(timer)
            if not timer.cancelled:
                timer.callback()
        self.turn()


class LoginChannel(Channel):
    def __init__(self, dispatch: Dispatch, round_: Round) -> None:
        super().__init__(dispatch, round_, MemoryBudget(1 << 30), "CLIENTS", "192.0.2.1")
        self.max_frame = MAX_FRAME
        self.sent = b""
        self.reason: str | None = None

    def send(self, parts: list[Part]) -> None:
        self.sent += b"".join(bytes(part) for part in parts if isinstance(part, (bytes, memoryview)))

    def resume(self) -> None: ...

    def close(self, reason: str) -> None:
        if not self.closed:
            self.closed = True
            self.reason = reason
            self.handler.channel_closed(self)


class LoginWorld:
    def __init__(self, mechanisms: Mechanisms) -> None:
        self.clock = ManualClock()
        self.loop = Loop(self.clock)
        self.dispatch = Dispatch(self.clock, Tasks("test"))
        self.dispatch.add(returning(ApiKey.API_VERSIONS, lambda: ApiVersionsHandler(self.dispatch.routes)))
        self.dispatch.add(responding(ApiKey.SASL_HANDSHAKE, SaslHandshakeHandler))
        self.dispatch.add(responding(ApiKey.SASL_AUTHENTICATE, SaslAuthenticateHandler))
        self.listener = SaslListener("CLIENTS", mechanisms, self.dispatch, self.clock, self.loop)
        self._round = Round(self.loop)
        self.channel = self.connect()

    def connect(self) -> LoginChannel:
        self.channel = LoginChannel(self.dispatch, self._round)
        self.listener.begin(self.channel)
        return self.channel

    def frame(self, body: bytes) -> None:
        self.channel.handler.handle_frame(self.channel, body, 0, len(body))
        self.loop.turn()

    def request(self, request: Message, version: int) -> None:
        api = api_by_name(type(request).__name__.removesuffix("Request"))
        self.frame(encode_request(api.key, version, 7, "test", request).getvalue()[4:])

    def ask(self, request: Message, version: int) -> Any:
        """The answer that comes at once."""
        self.request(request, version)
        return self.answer(request, version)

    def answer(self, request: Message, version: int) -> Any:
        api = api_by_name(type(request).__name__.removesuffix("Request"))
        sent = self.taken()
        assert sent is not None, f"no answer; closed: {self.channel.reason}"
        return decode_response(api.key, version, sent)[1]

    def taken(self) -> bytes | None:
        """The next frame that was sent."""
        if not self.channel.sent:
            return None
        (size,) = struct.unpack(">i", self.channel.sent[:4])
        frame, self.channel.sent = self.channel.sent[4 : 4 + size], self.channel.sent[4 + size :]
        return frame
