"""Logins where there is nothing to log in to; the others are in test_sasl_authenticator."""

from __future__ import annotations

from pathlib import Path

from braidlog.broker.server import Server
from braidlog.core.protocol_errors import IllegalSaslStateError
from braidlog.wire.generated.sasl_authenticate import SaslAuthenticateRequest
from braidlog.wire.generated.sasl_handshake import SaslHandshakeRequest
from support.in_process_server import answer, on_server


def test_a_listener_without_sasl_says_so(tmp_path: Path) -> None:
    async def check(server: Server) -> None:
        for version in (0, 1):
            refused = await answer(server, "SaslHandshake", version, SaslHandshakeRequest(mechanism="PLAIN"))
            assert (refused.error_code, refused.mechanisms) == (IllegalSaslStateError.code, [])
        for version in (0, 1, 2):
            refused = await answer(server, "SaslAuthenticate", version, SaslAuthenticateRequest(auth_bytes=b"x"))
            assert refused.error_code == IllegalSaslStateError.code

    on_server(tmp_path, check)
