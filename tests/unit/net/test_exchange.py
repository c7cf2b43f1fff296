"""A request that is answered, or fails as a whole."""

from __future__ import annotations

import pytest

from braidlog.broker.handlers.cluster.find_coordinator import FindCoordinatorHandler
from braidlog.core.protocol_errors import InvalidRequestError
from braidlog.core.slices import FileSlice
from braidlog.net.channel import Channel, FrameHandler
from braidlog.net.exchange import Exchange, Part, RequestQuotas
from braidlog.net.memory import MemoryBudget
from braidlog.net.round import Round
from braidlog.wire.generated.api_keys import ApiKey
from braidlog.wire.generated.find_coordinator import FindCoordinatorRequest
from braidlog.wire.generated.produce import ProduceResponse
from braidlog.wire.message import Message


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


class Counted(RequestQuotas):
    def __init__(self) -> None:
        self.seen: list[tuple[str, int]] = []

    def charge(self, exchange: Exchange, response: Message) -> None:
        assert isinstance(response, ProduceResponse)
        assert not exchange.finished
        self.seen.append(("answered", exchange.size))
        response.throttle_time_ms = 1234

    def charge_unanswered(self, exchange: Exchange) -> None:
        self.seen.append(("silent", exchange.size))


def test_requests_are_counted_before_they_are_answered() -> None:
    quotas = Counted()
    exchange = Exchange(SilentChannel(), ApiKey.PRODUCE, 3, 7, "shop", 0.0, None, quotas, 500)
    exchange.channel.begin(exchange)
    exchange.answer(ProduceResponse())
    assert exchange.parts is not None
    # The throttle time is the last field of the response.
    assert b"".join(bytes(part) for part in exchange.parts if not isinstance(part, FileSlice)).endswith(
        (1234).to_bytes(4, "big")
    )
    silent = Exchange(SilentChannel(), ApiKey.PRODUCE, 3, 7, "shop", 0.0, None, quotas, 600)
    silent.channel.begin(silent)
    silent.finish_silently()
    assert quotas.seen == [("answered", 500), ("silent", 600)]
