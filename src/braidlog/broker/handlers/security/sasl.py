"""SaslHandshake (api 17) and SaslAuthenticate (api 36): the login of a connection, done by its authenticator.

A listener without SASL has none: there both are answered with ILLEGAL_SASL_STATE, as by Kafka.
"""

from __future__ import annotations

from braidlog.broker.authentication.sasl_authenticator import SaslServerAuthenticator
from braidlog.core.protocol_errors import IllegalSaslStateError, ProtocolError
from braidlog.net.exchange import Exchange
from braidlog.wire.generated.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from braidlog.wire.generated.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse


class SaslHandshakeHandler:
    def handle(self, request: SaslHandshakeRequest, exchange: Exchange) -> None:
        _authenticator(exchange).handshake(request, exchange)

    @staticmethod
    def error_response(request: SaslHandshakeRequest, version: int, error: ProtocolError) -> SaslHandshakeResponse:
        return SaslHandshakeResponse(error_code=error.code, mechanisms=[])


class SaslAuthenticateHandler:
    def handle(self, request: SaslAuthenticateRequest, exchange: Exchange) -> None:
        _authenticator(exchange).authenticate(request, exchange)

    @staticmethod
    def error_response(
        request: SaslAuthenticateRequest, version: int, error: ProtocolError
    ) -> SaslAuthenticateResponse:
        return SaslAuthenticateResponse(error_code=error.code, error_message=error.message)


def _authenticator(exchange: Exchange) -> SaslServerAuthenticator:
    found = exchange.channel.authenticator
    if not isinstance(found, SaslServerAuthenticator):
        raise IllegalSaslStateError(f"the listener {exchange.channel.listener} asks for no login")
    return found
