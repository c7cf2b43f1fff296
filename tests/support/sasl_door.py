"""A broker that asks for SASL, and what a client needs to enter."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from braidlog.client.network.nodes import Nodes
from braidlog.client.settings import ADMIN, Settings
from braidlog.net.outbound.pipelined_connection import PipelinedConnection
from braidlog.net.outbound.sasl import SASL_AUTHENTICATE, SASL_HANDSHAKE
from braidlog.wire.generated.metadata import MetadataRequest, MetadataResponse
from braidlog.wire.generated.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from braidlog.wire.generated.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from braidlog.wire.message import Message
from support.scripted_broker import Answer, ScriptedBroker

METADATA = 3
OFFERED = (METADATA, SASL_HANDSHAKE, 18, SASL_AUTHENTICATE)
PLAIN = {
    "security_protocol": "SASL_PLAINTEXT",
    "sasl_mechanism": "PLAIN",
    "sasl_username": "alice",
    "sasl_password": "s3cret",
}
REFUSED = 58


class Door:
    """The SASL side of a broker: takes what `verify` takes, for sessions of `lifetime_ms`."""

    def __init__(self, verify: Callable[[bytes], SaslAuthenticateResponse] | None = None, lifetime_ms: int = 0) -> None:
        self.mechanisms: list[str] = []
        self.messages: list[bytes] = []
        self.handshake_error = 0
        self.lifetime_ms = lifetime_ms
        self.refuse_from = 1_000_000
        self._verify = verify

    def __call__(self, _: int, request: Message) -> Answer:
        if isinstance(request, SaslHandshakeRequest):
            self.mechanisms.append(request.mechanism)
            return SaslHandshakeResponse(error_code=self.handshake_error, mechanisms=["PLAIN", "SCRAM-SHA-256"])
        if isinstance(request, SaslAuthenticateRequest):
            self.messages.append(bytes(request.auth_bytes))
            if len(self.messages) >= self.refuse_from:
                return SaslAuthenticateResponse(error_code=REFUSED, error_message="no longer welcome")
            if self._verify is not None:
                return self._verify(self.messages[-1])
            return SaslAuthenticateResponse(session_lifetime_ms=self.lifetime_ms)
        assert isinstance(request, MetadataRequest)
        return MetadataResponse(cluster_id="c")


def nodes_of(broker: ScriptedBroker, **settings: Any) -> Nodes:
    given = {"bootstrap_servers": broker.address, "request_timeout_ms": 50_000, **settings}
    return Nodes(Settings.of(ADMIN, None, given))


async def ask(connection: PipelinedConnection) -> str | None:
    answer = await connection.call(METADATA, MetadataRequest(), MetadataResponse, timeout_s=50.0)
    return answer.cluster_id


async def enter(broker: ScriptedBroker, **settings: Any) -> None:
    nodes = nodes_of(broker, **settings)
    try:
        assert await ask(await nodes.any()) == "c"
    finally:
        nodes.close()
