"""Keeps requests that only brokers send to the listener between brokers, and to who may act for the cluster.

Without an authorizer, whoever reaches a port could otherwise delete logs with a StopReplica. Kafka answers callers that
may not do this with CLUSTER_AUTHORIZATION_FAILED, and so does this.
"""

from __future__ import annotations

import logging
from typing import Any, Final

from braidlog.broker.authorization.authorizer import Authorizer
from braidlog.core.clock import Clock
from braidlog.core.protocol_errors import ClusterAuthorizationFailedError, ProtocolError
from braidlog.net.exchange import Exchange
from braidlog.security.acls import AclOperation
from braidlog.wire.apis import APIS
from braidlog.wire.message import Message

log = logging.getLogger("braidlog.dispatch")

ANY_LISTENER: Final = "braidlog.inter.broker.requests.on.any.listener"
_LOG_EVERY_S: Final = 60.0


class InterBrokerGate:
    """Counts what it refuses, and says so once a minute at most."""

    def __init__(self, listener: str, clock: Clock) -> None:
        self._listener = listener
        self._clock = clock
        self._log_at = 0.0
        self._unlogged = 0

    def check(self, exchange: Exchange) -> None:
        channel = exchange.channel
        if channel.listener == self._listener:
            return
        self._unlogged += 1
        now = self._clock.monotonic()
        if now >= self._log_at:
            log.warning(
                "refused %d requests that only brokers send, the last %s from %s on the listener %s; brokers send them "
                "over %s (%s=true allows them everywhere)",
                self._unlogged,
                APIS[exchange.api_key].name,
                channel.peer_host,
                channel.listener,
                self._listener,
                ANY_LISTENER,
            )
            self._log_at = now + _LOG_EVERY_S
            self._unlogged = 0
        raise ClusterAuthorizationFailedError("only brokers send this, over the inter-broker listener")


class InterBrokerOnly:
    """A handler behind the gate."""

    def __init__(self, handler: Any, gate: InterBrokerGate) -> None:
        self._handler = handler
        self._gate = gate

    def handle(self, request: Message, exchange: Exchange) -> Any:
        self._gate.check(exchange)
        return self._handler.handle(request, exchange)

    def error_response(self, request: Message, version: int, error: ProtocolError) -> Message | None:
        response: Message | None = self._handler.error_response(request, version, error)
        return response


class ClusterActionOnly:
    """A handler for who may act for the cluster, as brokers may."""

    def __init__(self, handler: Any, authorizer: Authorizer) -> None:
        self._handler = handler
        self._authorizer = authorizer

    def handle(self, request: Message, exchange: Exchange) -> Any:
        self._authorizer.check_cluster(exchange, AclOperation.CLUSTER_ACTION)
        return self._handler.handle(request, exchange)

    def error_response(self, request: Message, version: int, error: ProtocolError) -> Message | None:
        response: Message | None = self._handler.error_response(request, version, error)
        return response
