"""How a connection becomes one that the broker trusts: in clear text or TLS, anonymous or with a login.

What only secured clients need (ssl, SASL mechanisms, tokens) is imported when the settings ask for it.
"""

from __future__ import annotations

import asyncio
import inspect
import socket
import time
from random import Random
from typing import TYPE_CHECKING, Any, Final, Protocol

from braidlog.client.errors import AuthenticationFailed, ClientError, NoConnection
from braidlog.client.settings import Settings
from braidlog.core.errors import BraidlogError
from braidlog.net.outbound.connector import Address, in_own_thread
from braidlog.net.outbound.pipelined_connection import PipelinedConnection
from braidlog.net.outbound.transport import PlainTransport, Transport

if TYPE_CHECKING:
    from braidlog.net.tls_context import TlsContext, TlsOptions
    from braidlog.security.login import Login
    from braidlog.security.sasl_client import SaslClient

# A broker says nothing to who should have authenticated first.
WANTS_SASL: Final = (
    " on the first request; if its listener wants clients to log in, set security.protocol=SASL_PLAINTEXT "
    "(or SASL_SSL), sasl.mechanism, and the credentials"
)


class ChannelBuilder(Protocol):
    """How a fresh socket becomes a connection that the broker trusts."""

    async def secure(self, loop: asyncio.AbstractEventLoop, connected: socket.socket, host: str) -> Transport: ...

    async def authenticate(self, connection: PipelinedConnection) -> None:
        """After the versions are known and before anything else is posted."""
        ...

    async def explained(self, problem: NoConnection, address: Address) -> ClientError:
        """What stands behind a broker that hangs up at the first request."""
        ...


class PlaintextChannelBuilder:
    """Clear text, anonymous."""

    async def secure(self, loop: asyncio.AbstractEventLoop, connected: socket.socket, host: str) -> Transport:
        return PlainTransport(loop, connected)

    async def authenticate(self, connection: PipelinedConnection) -> None:
        connection.hint = WANTS_SASL

    async def explained(self, problem: NoConnection, address: Address) -> ClientError:
        from braidlog.net.outbound.listener_probe import explain_plaintext_failure

        return await explain_plaintext_failure(problem, address)


def channel_builder_for(settings: Settings, random: Random | None = None) -> ChannelBuilder:
    """What `security.protocol` asks for; raises UserError where the settings cannot be followed."""
    protocol = settings.text("security.protocol").upper()
    if protocol == "PLAINTEXT":
        return PlaintextChannelBuilder()
    login = _login(settings) if protocol.startswith("SASL_") else None
    return SecureChannelBuilder(settings, with_tls=protocol.endswith("SSL"), login=login, random=random)


def _login(settings: Settings) -> Login:
    from braidlog.security.login import login_of

    endpoint = None
    url = settings.optional_text("sasl.oauthbearer.token.endpoint.url")
    if url:
        from braidlog.client.network.token_endpoint import endpoint_for

        endpoint = endpoint_for(settings, url)
    return login_of(
        settings.text("sasl.mechanism").upper(),
        jaas_config=settings.optional_text("sasl.jaas.config"),
        username=settings.optional_text("sasl.username"),
        password=settings.optional_text("sasl.password"),
        token_provider=settings.object("sasl.oauth.token.provider"),
        token_endpoint=endpoint,
        now_ms=lambda: time.time_ns() // 1_000_000,
    )


class SecureChannelBuilder:
    """TLS, SASL or both."""

    def __init__(
        self, settings: Settings, *, with_tls: bool, login: Login | None, random: Random | None = None
    ) -> None:
        self._timeout_s = min(
            settings.seconds("request.timeout.ms"), settings.seconds("socket.connection.setup.timeout.ms")
        )
        self._login = login
        self._random = random or Random()
        self._context: TlsContext | None = None
        if with_tls:
            # Who authenticates in clear text does not pay for this.
            from braidlog.net.tls_context import tls_context

            self._context = tls_context(tls_options(settings))

    async def secure(self, loop: asyncio.AbstractEventLoop, connected: socket.socket, host: str) -> Transport:
        if self._context is None:
            return PlainTransport(loop, connected)
        from braidlog.net.outbound.tls_transport import secured

        return await secured(loop, connected, self._context, host, self._timeout_s)

    async def authenticate(self, connection: PipelinedConnection) -> None:
        if self._login is None:
            connection.hint = WANTS_SASL
            return
        from braidlog.net.outbound.sasl import SaslSession, authenticate

        lifetime_ms = await authenticate(connection, await self._new_exchange(), self._timeout_s)
        if lifetime_ms > 0:
            session = SaslSession(connection, self._new_exchange, self._timeout_s, self._random)
            session.begin(lifetime_ms)

    async def explained(self, problem: NoConnection, address: Address) -> ClientError:
        if self._context is not None:
            return problem
        from braidlog.net.outbound.listener_probe import explain_plaintext_failure

        return await explain_plaintext_failure(problem, address)

    async def _new_exchange(self) -> SaslClient:
        """With credentials of now: a token may have been renewed since the last time."""
        login = self._login
        assert login is not None
        try:
            if login.is_blocking:
                who: Any = await asyncio.wait_for(in_own_thread("token", login.credentials), self._timeout_s)
            else:
                who = login.credentials()
            if inspect.isawaitable(who):
                who = await asyncio.wait_for(who, self._timeout_s)
            return login.sasl_client(who)
        except BraidlogError:
            raise
        except TimeoutError as problem:
            raise NoConnection(f"the token provider returned nothing within {self._timeout_s:g} s") from problem
        except OSError as problem:
            # It asks another server, which may answer a moment later.
            raise NoConnection(
                f"the token provider failed ({type(problem).__name__}); without a token there is no login"
            ) from problem
        except Exception as problem:
            raise AuthenticationFailed(
                f"the token provider failed ({type(problem).__name__}); without a token there is no login"
            ) from problem


def tls_options(settings: Settings) -> TlsOptions:
    from braidlog.net.tls_context import TlsOptions

    return TlsOptions(
        protocols=tuple(str(name) for name in settings.items("ssl.enabled.protocols")),
        newest_protocol=settings.text("ssl.protocol"),
        is_newest_given=settings.is_given("ssl.protocol"),
        cipher_suites=tuple(str(suite) for suite in settings.items("ssl.cipher.suites")),
        endpoint_identification=settings.text("ssl.endpoint.identification.algorithm"),
        truststore_certificates=settings.optional_text("ssl.truststore.certificates"),
        truststore_location=settings.optional_text("ssl.truststore.location"),
        truststore_password=settings.optional_text("ssl.truststore.password"),
        keystore_key=settings.optional_text("ssl.keystore.key"),
        keystore_certificate_chain=settings.optional_text("ssl.keystore.certificate.chain"),
        keystore_location=settings.optional_text("ssl.keystore.location"),
        keystore_password=settings.optional_text("ssl.keystore.password"),
        key_password=settings.optional_text("ssl.key.password"),
    )
