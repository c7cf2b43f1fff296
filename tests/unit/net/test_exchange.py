"""A request that is answered, or fails as a whole."""

from __future__ import annotations

import pytest

from braidlog.broker.handlers.cluster.find_coordinator import FindCoordinatorHandler
from braidlog.core.protocol_errors import InvalidRequestError
from braidlog.net.channel import Channel, FrameHandler
from braidlog.net.exchange import Exchange, Part
from braidlog.net.memory import MemoryBudget
from braidlog.net.round import Round
from braidlog.wire.generated.api_keys import ApiKey
from braidlog.wire.generated.find_coordinator import FindCoordinatorRequest


class SilentChannel(Channel):
    """A channel that sends nothing."""

    def __init__(self) -> None:
        super().__init__(FrameHandler(), Round(self), MemoryBudget(1 << 20), "PLAINTEXT", "192.0.2.1")

    def call_soon(self, callback: object) -> None:
        pass

    def send(self, parts: list[Part]) -> None:
        pass


def test_a_refused_request_leaves_a_line_at_debug_level(caplog: pytest.LogCaptureFixture) -> None:
    def refuse_one() -> None:
        exchange = Exchange(SilentChannel(), ApiKey.FIND_COORDINATOR, 4, 7, "shop", 0.0)
        exchange.channel.begin(exchange)
        exchange.request = FindCoordinatorRequest()
        exchange.error_response = FindCoordinatorHandler.error_response
        exchange.fail(InvalidRequestError("no such thing"))
        assert exchange.finished

    with caplog.at_level("INFO"):
        refuse_one()
    assert caplog.messages == []
    with caplog.at_level("DEBUG"):
        refuse_one()
    expected = "refused FindCoordinator v4 of client shop at 192.0.2.1: INVALID_REQUEST: no such thing"
    assert caplog.messages == [expected]
