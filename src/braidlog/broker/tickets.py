"""The reply to a request as a ticket that a coordinator's shard can keep."""

from __future__ import annotations

from typing import Any

from braidlog.broker.dispatch import Refuse
from braidlog.broker.faults import log_refusal
from braidlog.coordinator.effects import Caller
from braidlog.core.protocol_errors import ProtocolError
from braidlog.net.exchange import Exchange
from braidlog.wire.apis import encode_response
from braidlog.wire.message import Message


class ExchangeTicket:
    __slots__ = ("_exchange", "_refuse", "_request")

    def __init__(self, exchange: Exchange, request: Any, refuse: Refuse) -> None:
        self._exchange = exchange
        self._request = request
        self._refuse = refuse

    def answer(self, response: Message) -> None:
        exchange = self._exchange
        exchange.reply(encode_response(exchange.api_key, exchange.version, exchange.correlation_id, response).parts())

    def fail(self, error: ProtocolError) -> None:
        log_refusal(self._exchange, error)
        response = self._refuse(self._request, self._exchange.version, error)
        if response is None:
            self._exchange.finish_silently()
            self._exchange.channel.close(f"{error.name} cannot be told in this version")
        else:
            self.answer(response)


def caller_of(exchange: Exchange) -> Caller:
    return Caller(exchange.version, exchange.client_id or "", f"/{exchange.channel.peer_host}")
