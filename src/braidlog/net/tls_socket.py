"""TLS on an accepted socket: the handshake, then a socket that `Connection` uses like any other.

    send ─▶ SSLObject ─▶ outgoing ─▶ socket              recv ◀─ SSLObject ◀─ incoming ◀─ socket

`ssl` works on buffers in memory, so that many records cost one system call. (The kernel's own TLS would let sendfile
work, but most kernels come without it.) The costly part of a handshake is done in a thread.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import socket
import ssl
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, Final

from braidlog.core.errors import BraidlogError

log = logging.getLogger("braidlog.net")

_RECEIVE_SIZE: Final = 65536
# What one record of TLS holds at most.
_RECORD: Final = 16384
# What is encrypted before the kernel is asked to take it.
_CHUNK: Final = 8 * _RECORD
# More than any handshake sends: a long chain of certificates on each side.
_MOST_HANDSHAKE_BYTES: Final = 256 * 1024

# Kafka has no such limit but connections.max.idle.ms; whoever does not get this far has no reason to be waited for.
HANDSHAKE_TIMEOUT_S: Final = 30.0
_LOG_EVERY_S: Final = 1.0

# Does some work in a thread, then calls back on the loop with what it raised.
RunInThread = Callable[[Callable[[], None], Callable[[Exception | None], None]], None]


class TlsSocket:
    """What a connection needs of a socket, once the handshake is done."""

    def __init__(self, sock: socket.socket, context: ssl.SSLContext) -> None:
        self._sock = sock
        self._incoming = ssl.MemoryBIO()
        self._outgoing = ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._incoming, self._outgoing, server_side=True)
        # Ciphertext that the kernel has not taken yet.
        self._pending = memoryview(b"")
        # How many of the next bytes to send are encrypted already, in `_pending`.
        self._encrypted = 0
        # Whether requests came together with the end of the handshake.
        self._has_unread = False

    def fileno(self) -> int:
        return self._sock.fileno()

    def getsockopt(self, level: int, option: int, /) -> int:
        return self._sock.getsockopt(level, option)

    @property
    def peer_certificate(self) -> dict[str, Any]:
        """Empty where the client showed none."""
        return dict(self._tls.getpeercert() or {})

    # The handshake

    def feed(self) -> int:
        """Take from the socket what is there; 0 where the peer closed, BlockingIOError where there is nothing."""
        data = self._sock.recv(_RECEIVE_SIZE)
        self._incoming.write(data)
        return len(data)

    def shake_hands(self) -> bool:
        """Whether that is done; may take a while, and raises ssl.SSLError. What is to be sent waits for `flush`."""
        try:
            self._tls.do_handshake()
        except ssl.SSLWantReadError:
            return False
        self._has_unread = self._incoming.pending > 0
        return True

    # Afterwards

    def recv(self, size: int, /) -> bytes:
        """What has arrived, of about that size; BlockingIOError where there is nothing whole."""
        if self._has_unread:
            self._has_unread = False
        else:
            data = self._sock.recv(size)
            if not data:
                return b""
            self._incoming.write(data)
        pieces: list[bytes] = []
        try:
            while piece := self._tls.read(_RECORD):
                pieces.append(piece)
            return b"".join(pieces)
        except ssl.SSLWantReadError:
            # TLS may have messages of its own.
            self.flush()
        except (ssl.SSLZeroReturnError, ssl.SSLEOFError):
            return b"".join(pieces)
        except ssl.SSLError as problem:
            raise OSError(errno.EPROTO, reason_of(problem)) from problem
        if not pieces:
            raise BlockingIOError
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    def send(self, data: bytes | memoryview, flags: int = 0, /) -> int:
        """How many bytes left. Those that did not are given again, as they are: some may be encrypted already."""
        view = memoryview(data)
        if not self.flush():
            return 0
        done = self._encrypted
        self._encrypted = 0
        try:
            while done < len(view):
                end = min(done + _CHUNK, len(view))
                at = done
                while at < end:
                    at += self._tls.write(view[at:end])
                if not self.flush():
                    self._encrypted = end - done
                    return done
                done = end
        except ssl.SSLError as problem:
            raise OSError(errno.EPROTO, reason_of(problem)) from problem
        return done

    def flush(self) -> bool:
        """Whether the kernel has taken all that TLS has to send."""
        while True:
            if not len(self._pending):
                if not self._outgoing.pending:
                    return True
                self._pending = memoryview(self._outgoing.read())
            try:
                sent = self._sock.send(self._pending)
            except (BlockingIOError, InterruptedError):
                return False
            self._pending = self._pending[sent:]

    def close(self) -> None:
        """The peer is told that no more comes, if it takes that at once."""
        # It waits for the peer's word, or the handshake was never done.
        with suppress(ssl.SSLError, ValueError):
            self._tls.unwrap()
        with suppress(OSError):
            self.flush()
        self._sock.close()


class TlsHandshake:
    """One handshake on the loop; `on_end` is called once: with nothing when it is done, else with why it is not.

    An OSError is the peer's leave or its silence, an ssl.SSLError what TLS found.
    """

    def __init__(
        self,
        sock: TlsSocket,
        loop: asyncio.AbstractEventLoop,
        run_in_thread: RunInThread,
        timeout_s: float,
        on_end: Callable[[OSError | None], None],
    ) -> None:
        self.sock = sock
        self._fd = sock.fileno()
        self._loop = loop
        self._run_in_thread = run_in_thread
        self._on_end = on_end
        self._received = 0
        self._done = False
        self._ended = False
        self._reading = False
        self._writing = False
        # Whether a thread works on it, so that nobody else may touch it.
        self._in_thread = False
        self._problem: OSError | None = None
        self._timer = loop.call_later(timeout_s, self._time_out)

    def start(self) -> None:
        self._reading = True
        self._loop.add_reader(self._fd, self._on_readable)

    def _on_readable(self) -> None:
        try:
            size = self.sock.feed()
        except (BlockingIOError, InterruptedError):
            return
        except OSError as problem:
            self._end(problem)
            return
        self._received += size
        if size == 0:
            self._end(ConnectionResetError("the peer closed"))
        elif self._received > _MOST_HANDSHAKE_BYTES:
            self._end(ConnectionAbortedError("the handshake does not come to an end"))
        else:
            self._stop_reading()
            self._in_thread = True
            self._run_in_thread(self._work, self._worked)

    def _work(self) -> None:
        """In a thread."""
        self._done = self.sock.shake_hands()

    def _worked(self, problem: Exception | None) -> None:
        self._in_thread = False
        if self._ended:
            # It was given up meanwhile.
            self.sock.close()
            return
        if problem is not None:
            self._problem = problem if isinstance(problem, OSError) else OSError(str(problem))
        self._send()

    def _send(self) -> None:
        """What TLS answers, an alert included; then go on."""
        try:
            is_sent = self.sock.flush()
        except OSError as problem:
            self._end(self._problem or problem)
            return
        if not is_sent:
            if not self._writing:
                self._writing = True
                self._loop.add_writer(self._fd, self._send)
            return
        self._stop_writing()
        if self._done or self._problem is not None:
            self._end(self._problem)
        else:
            self.start()

    def _time_out(self) -> None:
        self._end(TimeoutError("the handshake took too long"))

    def cancel(self) -> None:
        """The listener is closing."""
        self._end(ConnectionAbortedError("the broker is stopping"))

    def _end(self, problem: OSError | None) -> None:
        if self._ended:
            return
        self._ended = True
        self._timer.cancel()
        self._stop_reading()
        self._stop_writing()
        self._on_end(problem)

    @property
    def in_thread(self) -> bool:
        """Whether closing the socket has to wait: the thread's end does it."""
        return self._in_thread

    def _stop_reading(self) -> None:
        if self._reading:
            self._reading = False
            self._loop.remove_reader(self._fd)

    def _stop_writing(self) -> None:
        if self._writing:
            self._writing = False
            self._loop.remove_writer(self._fd)


class TlsAcceptor:
    """What the handshakes of one listener share. `context` is replaced when certificates or settings change."""

    def __init__(
        self,
        listener: str,
        context: ssl.SSLContext,
        principal_of: Callable[[Mapping[str, Any]], str],
        run_in_thread: RunInThread,
        failure_delay_s: float,
        timeout_s: float = HANDSHAKE_TIMEOUT_S,
    ) -> None:
        """`principal_of` names who showed a certificate, which may be empty; raises BraidlogError for nobody."""
        self._listener = listener
        self.context = context
        self.principal_of = principal_of
        self._run_in_thread = run_in_thread
        self.failure_delay_s = failure_delay_s
        self._timeout_s = timeout_s
        self.succeeded = 0
        self.failed = 0
        # A certificate is shown once a connection.
        self.reauthenticated = 0
        self.failed_reauthentications = 0
        self._log_at = 0.0
        self._unlogged = 0

    def shake_hands(
        self, sock: socket.socket, loop: asyncio.AbstractEventLoop, on_end: Callable[[OSError | None], None]
    ) -> TlsHandshake:
        handshake = TlsHandshake(TlsSocket(sock, self.context), loop, self._run_in_thread, self._timeout_s, on_end)
        handshake.start()
        return handshake

    def identify(self, sock: TlsSocket, host: str) -> str | None:
        """The principal of a client whose handshake is done; none where it is let in by no name."""
        try:
            principal = self.principal_of(sock.peer_certificate)
        except BraidlogError as problem:
            self._refused(host, str(problem))
            return None
        self.succeeded += 1
        return principal

    def delay_s(self, host: str, problem: OSError) -> float:
        """How long to keep a connection whose handshake failed: who is refused is not to try again at once."""
        if isinstance(problem, ssl.SSLError):
            self._refused(host, reason_of(problem))
            return self.failure_delay_s
        log.debug("no TLS with %s on %s: %s", host, self._listener, problem)
        return 0.0

    def _refused(self, host: str, why: str) -> None:
        self.failed += 1
        self._unlogged += 1
        now = time.monotonic()
        if now >= self._log_at:
            message = "failed authentication from %s on %s: the TLS handshake failed (%s; %d since the last such line)"
            log.info(message, host, self._listener, why, self._unlogged)
            self._log_at = now + _LOG_EVERY_S
            self._unlogged = 0


def reason_of(problem: OSError) -> str:
    """In words: OpenSSL's reasons are written like constants."""
    reason = getattr(problem, "reason", None)
    if isinstance(problem, ssl.SSLCertVerificationError):
        return f"certificate verify failed: {problem.verify_message}"
    return str(reason).lower().replace("_", " ") if reason else problem.strerror or str(problem)
