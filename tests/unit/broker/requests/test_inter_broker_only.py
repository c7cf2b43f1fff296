from __future__ import annotations

from typing import Any

import pytest

from braidlog.broker.authorization.authorizer import Authorizer
from braidlog.broker.requests.inter_broker_only import ClusterActionOnly, InterBrokerGate, InterBrokerOnly
from braidlog.core.clock import ManualClock
from braidlog.core.protocol_errors import ClusterAuthorizationFailedError
from braidlog.security.acls import AclOperation
from support.authorized_broker import allow_cluster, authorizer_of, exchange_of


class FakeChannel:
    peer_host = "192.0.2.1"

    def __init__(self, listener: str) -> None:
        self.listener = listener


class FakeExchange:
    api_key = 5

    def __init__(self, listener: str) -> None:
        self.channel = FakeChannel(listener)


class Handler:
    def handle(self, request: Any, exchange: Any) -> str:
        return "handled"

    def error_response(self, request: Any, version: int, error: Any) -> None:
        return None


def test_only_the_listener_between_brokers_is_served(caplog: pytest.LogCaptureFixture) -> None:
    clock = ManualClock()
    gate = InterBrokerGate("INTERNAL", clock)
    handler = InterBrokerOnly(Handler(), gate)
    request: Any = object()
    inside: Any = FakeExchange("INTERNAL")
    outside: Any = FakeExchange("PLAINTEXT")
    assert handler.handle(request, inside) == "handled"
    for _ in range(5):
        with pytest.raises(ClusterAuthorizationFailedError):
            handler.handle(request, outside)
    assert len(caplog.records) == 1
    assert "StopReplica from 192.0.2.1 on the listener PLAINTEXT" in caplog.text
    clock.advance(61)
    with pytest.raises(ClusterAuthorizationFailedError):
        handler.handle(request, outside)
    assert "refused 5 requests" in caplog.records[1].getMessage()


def test_only_who_may_act_for_the_cluster_is_served() -> None:
    request: Any = object()
    brokers = ClusterActionOnly(Handler(), authorizer_of(allow_cluster(AclOperation.CLUSTER_ACTION)))
    assert brokers.handle(request, exchange_of("alice")) == "handled"
    assert brokers.handle(request, exchange_of("admin")) == "handled"
    with pytest.raises(ClusterAuthorizationFailedError, match="User:bob may not CLUSTER_ACTION the cluster"):
        brokers.handle(request, exchange_of("bob"))
    assert ClusterActionOnly(Handler(), Authorizer()).handle(request, exchange_of("bob")) == "handled"
