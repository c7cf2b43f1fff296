"""Finds out what a listener speaks, when it hung up on what we spoke: a second, short call in the other protocol.

Brokers close a connection that they do not understand without a word, and the error says nothing of what to change.
"""

from __future__ import annotations

import asyncio
import socket
import struct
from contextlib import suppress
from typing import Any, Final

from braidlog.core.protocol_errors import UnsupportedSaslMechanismError
from braidlog.core.types import address_text
from braidlog.net.outbound.errors import AuthenticationFailed, ClientError, NoConnection
from braidlog.net.outbound.pipelined_connection import PipelinedConnection
from braidlog.net.outbound.sasl import SASL_HANDSHAKE, sasl_handshake_request
from braidlog.wire.generated.sasl_handshake import SaslHandshakeResponse

_PATIENCE_S: Final = 3.0
# The first bytes of a TLS record: a handshake message, or an alert; then the version's first byte.
_TLS_RECORDS: Final = (b"\x16\x03", b"\x15\x03")
# ApiVersions v0, correlation 7, no client id: every broker answers it.
_API_VERSIONS: Final = struct.pack(">ihhih", 10, 18, 0, 7, -1)


async def explain_plaintext_failure(problem: NoConnection, address: tuple[str, int]) -> ClientError:
    """The same problem, or what it really is: a listener that speaks TLS."""
    import ssl

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    # Nothing is sent on this connection: only the kind of answer matters.
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    with suppress(ssl.SSLWantReadError):
        context.wrap_bio(incoming, outgoing).do_handshake()
    if not (await _answer(address, outgoing.read())).startswith(_TLS_RECORDS):
        return problem
    return AuthenticationFailed(
        f"the broker at {address_text(*address)} speaks TLS here; set security.protocol=SSL (or SASL_SSL), "
        "and ssl.truststore.location to the certificate of who issued its own"
    )


async def answers_in_plaintext(address: tuple[Any, ...]) -> bool:
    """Whether a broker answers ApiVersions without TLS."""
    answer = await _answer((str(address[0]), int(address[1])), _API_VERSIONS)
    return len(answer) >= 8 and answer[4:8] == _API_VERSIONS[8:12]


async def check_sasl_not_required(connection: PipelinedConnection, timeout_s: float) -> None:
    """Raises where the listener is one of SASL: a listener without it refuses to speak of mechanisms at all."""
    if not connection.offers(SASL_HANDSHAKE):
        return
    request = sasl_handshake_request("")
    answer = await connection.call(SASL_HANDSHAKE, request, SaslHandshakeResponse, timeout_s=timeout_s)
    if answer.error_code == UnsupportedSaslMechanismError.code:
        raise AuthenticationFailed(
            f"the broker at {connection.address} wants clients to log in here ({', '.join(answer.mechanisms)}); set "
            "security.protocol=SASL_PLAINTEXT (or SASL_SSL), sasl.mechanism, and the credentials"
        )


async def _answer(address: tuple[str, int], message: bytes) -> bytes:
    """The first bytes that come back; none where there is no answer in time."""
    loop = asyncio.get_running_loop()
    try:
        async with asyncio.timeout(_PATIENCE_S):
            for family, kind, protocol, _, where in await loop.getaddrinfo(*address, type=socket.SOCK_STREAM):
                with socket.socket(family, kind, protocol) as made:
                    made.setblocking(False)
                    try:
                        await loop.sock_connect(made, where)
                        await loop.sock_sendall(made, message)
                        return await loop.sock_recv(made, 4096)
                    except OSError:
                        continue
    except (TimeoutError, OSError):
        pass
    return b""
