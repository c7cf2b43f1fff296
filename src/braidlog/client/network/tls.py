"""TLS over a transport: `ssl` works on buffers in memory, and the plain transport moves what is in them.

    pieces ─▶ SSLObject ─▶ outgoing ─▶ PlainTransport.send ─▶ socket
    view  ◀─ SSLObject ◀─ incoming ◀─ PlainTransport.receive_into ◀─ socket

So whatever TLS itself has to say (keys renewed, an alert) goes out with the next turn, in whichever direction the
program happened to use it.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Callable, Sequence
from typing import Final

from braidlog.client.errors import AuthenticationFailed, ClientError, NoConnection
from braidlog.client.network.transport import ENDED, WOULD_BLOCK, Piece, PlainTransport

_CIPHERTEXT: Final = 256 * 1024
# Small pieces are joined: every piece makes a TLS record of its own, with a header and a checksum.
_JOIN_BELOW: Final = 16 * 1024


class TlsTransport:
    """Has the face of `transport.Transport`; made by `secured`, when the handshake is done."""

    def __init__(
        self,
        below: PlainTransport,
        tls: ssl.SSLObject,
        incoming: ssl.MemoryBIO,
        outgoing: ssl.MemoryBIO,
        address: str,
    ) -> None:
        self._below = below
        self._tls = tls
        self._incoming = incoming
        self._outgoing = outgoing
        self._address = address
        self._received = memoryview(bytearray(_CIPHERTEXT))
        self._on_readable: Callable[[], None] | None = None

    @property
    def unsent(self) -> int:
        return self._below.unsent + self._outgoing.pending

    @property
    def peer(self) -> str:
        return self._below.peer

    @property
    def version(self) -> str:
        """Such as TLSv1.3."""
        return self._tls.version() or ""

    def start(self, on_readable: Callable[[], None], on_lost: Callable[[OSError], None]) -> None:
        self._on_readable = on_readable
        self._below.start(on_readable, on_lost)

    def receive_into(self, view: memoryview) -> int:
        """As many records as there are and fit: every return costs the caller a turn."""
        filled = 0
        while filled < len(view):
            try:
                count = int(self._tls.read(len(view) - filled, view[filled:]))
            except ssl.SSLWantReadError:
                self._flush()
                received = self._below.receive_into(self._received)
                if received == WOULD_BLOCK:
                    return filled or WOULD_BLOCK
                if received == ENDED:
                    return filled or ENDED
                self._incoming.write(self._received[:received])
                continue
            except ssl.SSLZeroReturnError:
                return filled or ENDED
            except ssl.SSLError as problem:
                if filled:
                    return filled
                raise explained(problem, self._address) from problem
            if count == 0:
                return filled or ENDED
            filled += count
        return filled

    def send(self, pieces: Sequence[Piece]) -> None:
        small: list[Piece] = []
        for piece in pieces:
            if len(piece) < _JOIN_BELOW:
                small.append(piece)
                continue
            self._encrypt_joined(small)
            self._encrypt(piece)
        self._encrypt_joined(small)
        self._flush()

    def _encrypt_joined(self, small: list[Piece]) -> None:
        if small:
            self._encrypt(small[0] if len(small) == 1 else b"".join(small))
            small.clear()

    def _encrypt(self, piece: Piece) -> None:
        # Memory takes everything, so that a write never waits.
        view = memoryview(piece)
        while len(view):
            view = view[self._tls.write(view) :]

    def _flush(self) -> None:
        if self._outgoing.pending:
            self._below.send([self._outgoing.read()])

    def close(self) -> None:
        self._below.close()


async def secured(
    loop: asyncio.AbstractEventLoop,
    connected: socket.socket,
    context: ssl.SSLContext,
    host: str,
    timeout_s: float,
) -> TlsTransport:
    """Shake hands; raises AuthenticationFailed for a certificate that is not to be trusted."""
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    address = _address(connected, host)
    tls = context.wrap_bio(incoming, outgoing, server_hostname=host)
    try:
        async with asyncio.timeout(timeout_s):
            await _shake_hands(loop, connected, tls, incoming, outgoing)
    except TimeoutError as problem:
        raise NoConnection(
            f"{address} did not answer the TLS handshake within {timeout_s:g} s; is it a TLS listener? "
            "security.protocol=PLAINTEXT (or SASL_PLAINTEXT) speaks clear text"
        ) from problem
    except ssl.SSLError as problem:
        raise explained(problem, address) from problem
    except OSError as problem:
        raise _not_tls(address, problem.strerror or str(problem)) from problem
    return TlsTransport(PlainTransport(loop, connected), tls, incoming, outgoing, address)


async def _shake_hands(
    loop: asyncio.AbstractEventLoop,
    connected: socket.socket,
    tls: ssl.SSLObject,
    incoming: ssl.MemoryBIO,
    outgoing: ssl.MemoryBIO,
) -> None:
    while True:
        try:
            tls.do_handshake()
        except ssl.SSLWantReadError:
            await loop.sock_sendall(connected, outgoing.read())
            received = await loop.sock_recv(connected, _CIPHERTEXT)
            if not received:
                raise ConnectionResetError("it closed the connection") from None
            incoming.write(received)
            continue
        except ssl.SSLError:
            # The alert tells the broker why.
            if outgoing.pending:
                await loop.sock_sendall(connected, outgoing.read())
            raise
        if outgoing.pending:
            await loop.sock_sendall(connected, outgoing.read())
        return


def _address(connected: socket.socket, host: str) -> str:
    port = connected.getpeername()[1]
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


# What went wrong, for people


def explained(problem: ssl.SSLError, address: str) -> ClientError:
    """Why TLS failed and what to change."""
    if isinstance(problem, ssl.SSLCertVerificationError):
        return AuthenticationFailed(_distrust(problem, address))
    reason = problem.reason or ""
    if "WRONG_VERSION_NUMBER" in reason or "HTTP_REQUEST" in reason or "PACKET_LENGTH" in reason:
        return _not_tls(address, "it answered in clear text")
    if "EOF" in reason:
        return NoConnection(f"the connection to {address} broke (it ended without TLS's farewell)")
    words = reason.lower().replace("_", " ") or str(problem)
    if "CERTIFICATE_REQUIRED" in reason or "HANDSHAKE_FAILURE" in reason:
        return AuthenticationFailed(
            f"the broker at {address} ended the TLS handshake ({words}); if it wants clients to have a certificate, "
            "set ssl.keystore.location (or ssl.keystore.key and ssl.keystore.certificate.chain); else versions or "
            "ciphers do not meet: see ssl.enabled.protocols, ssl.cipher.suites"
        )
    if "ALERT" in reason and ("CERTIFICATE" in reason or "UNKNOWN_CA" in reason or "ACCESS_DENIED" in reason):
        return AuthenticationFailed(
            f"the broker at {address} does not accept this client's certificate ({words}); "
            "use one that its ssl.truststore trusts (ssl.keystore.location)"
        )
    if "PROTOCOL" in reason or "NO_SHARED_CIPHER" in reason or "NO_CIPHERS" in reason:
        return AuthenticationFailed(
            f"the broker at {address} and this client have no TLS version or cipher in common ({words}); "
            "see ssl.enabled.protocols, ssl.cipher.suites"
        )
    return AuthenticationFailed(f"TLS with the broker at {address} failed ({words})")


def _distrust(problem: ssl.SSLCertVerificationError, address: str) -> str:
    message = problem.verify_message
    if "mismatch" in message.lower():
        return (
            f"the certificate of {address} is for another host ({message}); connect by a name that it holds, or set "
            'ssl.endpoint.identification.algorithm="" to not check names'
        )
    if "expired" in message or "not yet valid" in message:
        return f"the certificate of {address} is not valid now ({message}); renew it, or see the clocks"
    return (
        f"the certificate of {address} is not to be trusted ({message}); "
        "set ssl.truststore.location (or ssl.truststore.certificates) to the certificate of who issued it"
    )


def _not_tls(address: str, happened: str) -> NoConnection:
    return NoConnection(
        f"{address} does not speak TLS ({happened}); if it is a clear text listener, set security.protocol=PLAINTEXT "
        "(or SASL_PLAINTEXT), else use the port of a TLS listener"
    )
