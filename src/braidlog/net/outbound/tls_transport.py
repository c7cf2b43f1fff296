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
from typing import Any, Final

from braidlog.core.types import address_text
from braidlog.net.outbound.errors import AuthenticationFailed, ClientError, NoConnection
from braidlog.net.outbound.listener_probe import answers_in_plaintext
from braidlog.net.outbound.transport import ENDED, WOULD_BLOCK, Piece, PlainTransport
from braidlog.net.tls_context import TlsContext

_CIPHERTEXT: Final = 256 * 1024
# Small pieces are joined: every piece makes a TLS record of its own, with a header and a checksum.
_JOIN_BELOW: Final = 16 * 1024
_ABOUT_CERTIFICATES: Final = ("CERTIFICATE", "UNKNOWN_CA", "ACCESS_DENIED")


class TlsTransport:
    """A `Transport`; made by `secured`, when the handshake is done."""

    def __init__(
        self,
        below: PlainTransport,
        tls: ssl.SSLObject,
        incoming: ssl.MemoryBIO,
        outgoing: ssl.MemoryBIO,
        address: str,
        has_identity: bool,
    ) -> None:
        self._below = below
        self._tls = tls
        self._incoming = incoming
        self._outgoing = outgoing
        self._address = address
        self._has_identity = has_identity
        self._received = memoryview(bytearray(_CIPHERTEXT))
        self._on_readable: Callable[[], None] | None = None
        self._on_lost: Callable[[OSError], None] | None = None
        # How it ended, kept until all that was received before is read.
        self._last: int | ClientError | None = None

    @property
    def unsent(self) -> int:
        return self._below.unsent + self._outgoing.pending

    @property
    def is_direct(self) -> bool:
        # What is read and written has a state of its own, which the loop alone keeps.
        return False

    @property
    def peer(self) -> str:
        return self._below.peer

    @property
    def version(self) -> str:
        """Such as TLSv1.3."""
        return self._tls.version() or ""

    def start(self, on_readable: Callable[[], None], on_lost: Callable[[OSError], None]) -> None:
        self._on_readable = on_readable
        self._on_lost = on_lost
        self._below.start(on_readable, on_lost)

    def expect(self, size: int) -> None:
        """The size of the ciphertext is not known."""

    def receive_into(self, view: memoryview) -> int:
        """As much as is there and fits: every return costs the caller a turn."""
        filled = 0
        drained = False
        while filled < len(view):
            if self._last is None:
                try:
                    count = int(self._tls.read(len(view) - filled, view[filled:]))
                    filled += count
                    if count == 0:
                        self._last = ENDED
                except ssl.SSLWantReadError:
                    if not drained:
                        drained = self._feed()
                        continue
                    # TLS may have messages of its own.
                    self._flush()
                    return filled or WOULD_BLOCK
                except (ssl.SSLZeroReturnError, ssl.SSLEOFError):
                    # With a close_notify or without: frames have their size, so a part is not taken for a whole.
                    self._last = ENDED
                except ssl.SSLError as problem:
                    self._last = explained(problem, self._address, self._has_identity)
                continue
            if filled:
                # The next call says how it ended; perhaps no more bytes come to cause one.
                self._again()
                return filled
            if isinstance(self._last, int):
                return self._last
            raise self._last
        return filled

    def _feed(self) -> bool:
        """Take from the socket what is there; whether there is no more now."""
        try:
            received = self._below.receive_into(self._received)
        except OSError as problem:
            self._last = NoConnection(f"the connection to {self._address} broke ({problem.strerror or problem})")
            return True
        if received == WOULD_BLOCK:
            return True
        if received == ENDED:
            self._incoming.write_eof()
            return True
        self._incoming.write(self._received[:received])
        return received < len(self._received)

    def _again(self) -> None:
        if self._on_readable is not None:
            asyncio.get_running_loop().call_soon(self._on_readable)

    def send(self, pieces: Sequence[Piece]) -> None:
        try:
            self._encrypt_all(pieces)
        except ssl.SSLError as problem:
            # The peer has ended TLS, which reading is yet to find.
            if self._on_lost is not None:
                self._on_lost(ConnectionResetError((problem.reason or "TLS ended").lower().replace("_", " ")))
            return
        self._flush()

    def _encrypt_all(self, pieces: Sequence[Piece]) -> None:
        small: list[Piece] = []
        for piece in pieces:
            if len(piece) < _JOIN_BELOW:
                small.append(piece)
                continue
            self._encrypt_joined(small)
            self._encrypt(piece)
        self._encrypt_joined(small)

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
    ours: TlsContext,
    host: str,
    timeout_s: float,
) -> TlsTransport:
    """Shake hands; raises AuthenticationFailed for a certificate that is not to be trusted."""
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    peer = connected.getpeername()
    address = address_text(host, peer[1])
    tls = ours.context.wrap_bio(incoming, outgoing, server_hostname=host)
    try:
        async with asyncio.timeout(timeout_s):
            await _shake_hands(loop, connected, tls, incoming, outgoing)
    except ssl.SSLError as problem:
        raise explained(problem, address, ours.has_identity) from problem
    except OSError as problem:
        # A TimeoutError is one, too.
        happened = problem.strerror or str(problem) or f"no answer within {timeout_s:g} s"
        raise await _no_handshake(peer, address, happened) from problem
    return TlsTransport(PlainTransport(loop, connected), tls, incoming, outgoing, address, ours.has_identity)


async def _no_handshake(peer: tuple[Any, ...], address: str, happened: str) -> ClientError:
    if await answers_in_plaintext(peer):
        return clear_text(address, happened)
    return NoConnection(
        f"the TLS handshake with the broker at {address} failed ({happened}); its log says why: it may want clients to "
        "have a certificate (ssl.keystore.location), or have no version or cipher in common (ssl.enabled.protocols)"
    )


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
            # The alert says why.
            if outgoing.pending:
                await loop.sock_sendall(connected, outgoing.read())
            raise
        if outgoing.pending:
            await loop.sock_sendall(connected, outgoing.read())
        return


# What went wrong, for people


def explained(problem: ssl.SSLError, address: str, has_identity: bool) -> ClientError:
    """Why TLS failed and what to change."""
    if isinstance(problem, ssl.SSLCertVerificationError):
        return AuthenticationFailed(_distrust(problem, address))
    reason = problem.reason or ""
    if "WRONG_VERSION_NUMBER" in reason or "HTTP_REQUEST" in reason or "PACKET_LENGTH" in reason:
        return clear_text(address, "it answered in clear text")
    words = reason.lower().replace("_", " ") or str(problem)
    is_about_us = "ALERT" in reason and any(word in reason for word in _ABOUT_CERTIFICATES)
    if is_about_us and not has_identity:
        return AuthenticationFailed(
            f"the broker at {address} wants clients to have a certificate ({words}); set ssl.keystore.location, "
            "or ssl.keystore.key and ssl.keystore.certificate.chain"
        )
    if "HANDSHAKE_FAILURE" in reason:
        return AuthenticationFailed(
            f"the broker at {address} ended the TLS handshake ({words}); if it wants clients to have a certificate, "
            "set ssl.keystore.location (or ssl.keystore.key and ssl.keystore.certificate.chain); else versions or "
            "ciphers do not meet: see ssl.enabled.protocols, ssl.cipher.suites"
        )
    if is_about_us:
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


def clear_text(address: str, happened: str) -> AuthenticationFailed:
    return AuthenticationFailed(
        f"the broker at {address} speaks clear text here, not TLS ({happened}); "
        "set security.protocol=PLAINTEXT (or SASL_PLAINTEXT), or use the port of a TLS listener"
    )
