"""The reply to a request as a responder that a coordinator's shard can keep."""

from __future__ import annotations

from typing import Any

from braidlog.broker.requests.dispatch import MakeErrorResponse
from braidlog.broker.requests.error_mapping import log_error_response
from braidlog.coordinator.effects import Caller
from braidlog.core.protocol_errors import ProtocolError
from braidlog.net.exchange import Exchange
from braidlog.wire.apis import encode_response
from braidlog.wire.message import Message


class ExchangeResponder:
    __slots__ = ("_exchange", "_make_error_response", "_request")

    def __init__(self, exchange: Exchange, request: Any, error_response: MakeErrorResponse) -> None:
        self._exchange = exchange
        self._request = request
        self._make_error_response = error_response

    def answer(self, response: Message) -> None:
        exchange = self._exchange
        exchange.reply(encode_response(exchange.api_key, exchange.version, exchange.correlation_id, response).parts())

    def fail(self, error: ProtocolError) -> None:
        log_error_response(self._exchange, error)
        response = self._make_error_response(self._request, self._exchange.version, error)
        if response is None:
            self._exchange.finish_silently()
            self._exchange.channel.close(f"{error.name} cannot be told in this version")
        else:
            self.answer(response)


def caller_of(exchange: Exchange) -> Caller:
    return Caller(exchange.version, exchange.client_id or "", f"/{exchange.channel.peer_host}")
