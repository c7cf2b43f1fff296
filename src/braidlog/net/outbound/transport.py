"""Bytes to and from one broker on a non-blocking socket (hot: compiled by mypyc).

What the socket does not take at once waits for it.

A transport moves bytes and knows nothing of frames; `TlsTransport` (tls_transport.py) has the same interface.
"""

from __future__ import annotations

import asyncio
import os
import select
import socket
import struct
import sys
from collections import deque
from collections.abc import Callable, Sequence
from typing import Final, Protocol

WOULD_BLOCK: Final = -1
ENDED: Final = 0

# The kernel takes no more pieces in one call (IOV_MAX is 1024 on Linux).
_MOST_PIECES: Final = 512
# How much has to be there before the system calls a socket readable; 0 where it cannot be set.
_LOW_WATER: Final[int] = getattr(socket, "SO_RCVLOWAT", 0) if sys.platform == "linux" else 0

Piece = bytes | memoryview


# Another thread waits in `recv` itself: the socket then blocks by default, and the loop says each time that it may not.
_IS_DIRECT: Final[bool] = sys.platform == "linux"
_DONT_WAIT: Final[int] = socket.MSG_DONTWAIT if sys.platform == "linux" else 0
# How long another thread may wait so: the loop may close the socket meanwhile.
WAIT_S: Final = 0.02


class Transport(Protocol):
    def start(self, on_readable: Callable[[], None], on_lost: Callable[[OSError], None]) -> None:
        """Tell when there may be something to receive, and when sending failed."""
        ...

    def receive_into(self, view: memoryview) -> int:
        """Bytes received; ENDED when the peer closed, WOULD_BLOCK when there are none now.

        Fewer than there is room for only when no more are there.
        """
        ...

    def expect(self, size: int) -> None:
        """A hint: nothing can be done before so many bytes have come, so that fewer need no callback."""
        ...

    def send(self, pieces: Sequence[Piece]) -> None:
        """Send in order, keeping what the socket does not take now."""
        ...

    @property
    def unsent(self) -> int:
        """Bytes that still wait for the socket."""
        ...

    @property
    def is_direct(self) -> bool:
        """Whether another thread may write and read in the loop's place, while the loop's thread is held."""
        ...

    @property
    def peer(self) -> str: ...

    def close(self) -> None: ...


class PlainTransport:
    """A connected socket as it is."""

    def __init__(self, loop: asyncio.AbstractEventLoop, connected: socket.socket) -> None:
        self._loop = loop
        self._socket = connected
        self._waiting: deque[memoryview] = deque()
        self._unsent = 0
        self._on_readable: Callable[[], None] | None = None
        self._on_lost: Callable[[OSError], None] | None = None
        # None until another thread reads.
        self._poll: select.poll | None = None
        self._closed = False
        self._expected = 1

    @property
    def unsent(self) -> int:
        return self._unsent

    @property
    def is_direct(self) -> bool:
        return _IS_DIRECT

    @property
    def peer(self) -> str:
        return str(self._socket.getpeername()[0])

    def start(self, on_readable: Callable[[], None], on_lost: Callable[[OSError], None]) -> None:
        self._on_readable = on_readable
        self._on_lost = on_lost
        self._loop.add_reader(self._socket, on_readable)

    def pause_reader(self) -> None:
        """Another thread reads from now on: the loop does not look."""
        self._loop.remove_reader(self._socket)
        if self._poll is None:
            self._poll = select.poll()
            self._poll.register(self._socket, select.POLLIN)
            seconds, rest = divmod(WAIT_S, 1.0)
            self._socket.setsockopt(
                socket.SOL_SOCKET, socket.SO_RCVTIMEO, struct.pack("@ll", int(seconds), int(rest * 1e6))
            )
            os.set_blocking(self._socket.fileno(), True)

    def resume_reader(self) -> None:
        if not self._closed and self._on_readable is not None:
            self._loop.add_reader(self._socket, self._on_readable)

    def wait_readable(self, timeout_s: float) -> None:
        """In the thread that reads, if it may wait for less than WAIT_S."""
        if self._poll is not None:
            # To the system, less than nothing is without end; it is what is left to who computes it too late.
            self._poll.poll(max(timeout_s, 0.0) * 1000.0)

    def receive_into(self, view: memoryview) -> int:
        try:
            return self._socket.recv_into(view, 0, _DONT_WAIT)
        except (BlockingIOError, InterruptedError):
            return WOULD_BLOCK

    def wait_into(self, view: memoryview) -> int:
        """As `receive_into`, in the thread that reads, and waiting for WAIT_S at most."""
        try:
            return self._socket.recv_into(view)
        except OSError:
            # Nothing came; or the socket broke, and will say so again to who asks next.
            return WOULD_BLOCK

    def expect(self, size: int) -> None:
        # The system wakes us all the same when the peer ends, or when its buffer has no room for so much.
        if size != self._expected and _LOW_WATER:
            self._expected = size
            self._socket.setsockopt(socket.SOL_SOCKET, _LOW_WATER, size)

    def send(self, pieces: Sequence[Piece]) -> None:
        if len(pieces) == 1 and not self._waiting:
            self._send_one(pieces[0])
            return
        for piece in pieces:
            if len(piece):
                self._waiting.append(memoryview(piece))
                self._unsent += len(piece)
        # Something waits already: the socket is full, and order must be kept.
        if len(self._waiting) > len(pieces):
            return
        self._write()
        if self._waiting and not self._closed:
            self._loop.add_writer(self._socket, self._on_writable)

    def _send_one(self, piece: Piece) -> None:
        """As most requests are, and as most sockets take them: at once."""
        try:
            sent = self._socket.send(piece, _DONT_WAIT)
        except (BlockingIOError, InterruptedError):
            sent = 0
        except OSError as problem:
            self._lose(problem)
            return
        if sent < len(piece):
            self._waiting.append(memoryview(piece)[sent:])
            self._unsent += len(piece) - sent
            if not self._closed:
                self._loop.add_writer(self._socket, self._on_writable)

    def _on_writable(self) -> None:
        self._write()
        if not self._waiting and not self._closed:
            self._loop.remove_writer(self._socket)

    def _write(self) -> None:
        while self._waiting:
            pieces = [self._waiting[at] for at in range(min(len(self._waiting), _MOST_PIECES))]
            try:
                sent = self._socket.sendmsg(pieces, (), _DONT_WAIT)
            except (BlockingIOError, InterruptedError):
                return
            except OSError as problem:
                self._lose(problem)
                return
            self._unsent -= sent
            while sent:
                first = self._waiting[0]
                if sent < len(first):
                    self._waiting[0] = first[sent:]
                    break
                sent -= len(first)
                self._waiting.popleft()

    def _lose(self, problem: OSError) -> None:
        self._waiting.clear()
        self._unsent = 0
        if self._on_lost is not None:
            # The sender is in the middle of something, and may not be on the loop's thread at all.
            self._loop.call_soon_threadsafe(self._on_lost, problem)

    def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        self._waiting.clear()
        self._loop.remove_reader(self._socket)
        self._loop.remove_writer(self._socket)
        self._socket.close()
