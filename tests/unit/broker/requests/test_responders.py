from __future__ import annotations

import pytest

from braidlog.broker.handlers.cluster import find_coordinator
from braidlog.broker.requests.responders import ExchangeResponder
from braidlog.core.protocol_errors import InvalidRequestError
from braidlog.net.channel import Channel, FrameHandler
from braidlog.net.exchange import Exchange, Part
from braidlog.net.memory import MemoryBudget
from braidlog.net.round import Round
from braidlog.wire.generated.find_coordinator import FindCoordinatorRequest

FIND_COORDINATOR = 10


class SilentChannel(Channel):
    """Nobody reads it."""

    def __init__(self) -> None:
        super().__init__(FrameHandler(), Round(self), MemoryBudget(1 << 20), "PLAINTEXT", "192.0.2.1")

    def call_soon(self, callback: object) -> None:
        pass

    def send(self, parts: list[Part]) -> None:
        pass


def test_a_refused_request_leaves_a_line_at_debug_level(caplog: pytest.LogCaptureFixture) -> None:
    def refuse_one() -> None:
        exchange = Exchange(SilentChannel(), FIND_COORDINATOR, 4, 7, "shop", 0.0)
        exchange.channel.begin(exchange)
        responder = ExchangeResponder(exchange, FindCoordinatorRequest(), find_coordinator.error_response)
        responder.fail(InvalidRequestError("no such thing"))
        assert exchange.finished

    with caplog.at_level("INFO"):
        refuse_one()
    assert caplog.messages == []
    with caplog.at_level("DEBUG"):
        refuse_one()
    expected = "refused FindCoordinator v4 of client shop at 192.0.2.1: INVALID_REQUEST: no such thing"
    assert caplog.messages == [expected]
