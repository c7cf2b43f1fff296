"""Cuts what a transport receives into frames: a 4-byte size, then so many bytes (hot: compiled by mypyc).

Small frames come out of one inbox; a frame larger than what is there gets a buffer of its own, which the transport
then fills in large pieces: every wake-up costs a turn at the interpreter's lock. That buffer grows with what arrives,
so that a size alone takes no memory.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Final

from braidlog.net.outbound.transport import ENDED, WOULD_BLOCK, PlainTransport, Transport

_INBOX: Final = 64 * 1024
_SIZE: Final = 4
# No answer of a sane broker is larger, and no other protocol's first bytes are smaller.
LARGEST_FRAME: Final = 1 << 30
# A buffer of its own begins with this and doubles: most answers fit.
_FIRST_ROOM: Final = 4 << 20
# Large enough that waking up for it costs little, small enough that the peer still sends while we receive.
_PIECE: Final = 512 * 1024


class InvalidFrameSize(Exception):
    """The size of a frame is impossible: the peer speaks something else."""


class PeerClosed(Exception):
    """The peer closed the connection."""


class FrameReader:
    def __init__(self) -> None:
        self._inbox = bytearray(_INBOX)
        self._view = memoryview(self._inbox)
        self._have = 0
        # Bytes that `wait` left in the empty inbox.
        self._came = WOULD_BLOCK
        self._large: bytearray | None = None
        self._large_size = 0
        self._filled = 0
        # The buffer of the last large frame: the next is likely as large.
        self._spare = bytearray()

    def only_frame(self, transport: Transport) -> bytes | None:
        """The frame that came whole and alone, as most answers do; empty when nothing came, none: see `frames`."""
        if self._large is not None or self._have > 0:
            return None
        received = self._came
        self._came = WOULD_BLOCK
        if received == WOULD_BLOCK:
            received = transport.receive_into(self._view)
        if received == WOULD_BLOCK:
            return b""
        if received == ENDED:
            raise PeerClosed
        self._have = received
        if received <= _SIZE:
            return None
        came = bytes(self._view[:received])
        if received != _SIZE + ((came[0] << 24) | (came[1] << 16) | (came[2] << 8) | came[3]):
            return None
        self._have = 0
        return came[_SIZE:]

    def wait(self, transport: PlainTransport) -> bool:
        """Wait for bytes, and leave them to `only_frame` or `frames`; false where there is something already."""
        if self._large is not None or self._have > 0 or self._came != WOULD_BLOCK:
            return False
        self._came = transport.wait_into(self._view)
        return True

    @property
    def has_unread(self) -> bool:
        return self._came != WOULD_BLOCK

    def frames(self, transport: Transport) -> Iterator[bytes]:
        """The frames that are whole by now; raises when there can be no more."""
        if self._came != WOULD_BLOCK:
            self._have = max(self._came, 0)
            self._came = WOULD_BLOCK
        if self._have > 0:
            yield from self._cut()
        drained = False
        while not drained:
            large = self._large
            if large is not None:
                room = memoryview(large)[self._filled : self._large_size]
            else:
                room = self._view[self._have :]
            received = transport.receive_into(room)
            if received == WOULD_BLOCK:
                return
            if received == ENDED:
                raise PeerClosed
            # Asking once more only to hear that there is nothing would cost another turn at the lock.
            drained = received < len(room)
            if large is not None:
                self._filled += received
                if self._filled == self._large_size:
                    transport.expect(1)
                    del room
                    yield self._end_large(large)
                    continue
                if self._filled == len(large):
                    del room
                    large.extend(bytes(min(len(large), self._large_size - len(large))))
            else:
                self._have += received
                yield from self._cut()
            if self._large is not None:
                transport.expect(min(self._large_size - self._filled, _PIECE))

    def _cut(self) -> Iterator[bytes]:
        at = 0
        while self._have - at >= _SIZE:
            (size,) = struct.unpack_from(">i", self._inbox, at)
            if not 0 < size <= LARGEST_FRAME:
                raise InvalidFrameSize
            end = at + _SIZE + size
            if end > self._have:
                if size > _INBOX - _SIZE:
                    self._begin_large(at + _SIZE, size)
                    return
                break
            yield bytes(self._view[at + _SIZE : end])
            at = end
        if at:
            rest = self._have - at
            self._inbox[:rest] = self._inbox[at : self._have]
            self._have = rest

    def _begin_large(self, start: int, size: int) -> None:
        self._filled = self._have - start
        self._large_size = size
        room = min(size, _FIRST_ROOM)
        self._large = self._spare if len(self._spare) >= room else bytearray(room)
        self._spare = bytearray()
        self._large[: self._filled] = self._view[start : self._have]
        self._have = 0

    def _end_large(self, large: bytearray) -> bytes:
        self._large = None
        with memoryview(large) as view, view[: self._large_size] as frame:
            whole = bytes(frame)
        if len(large) <= _FIRST_ROOM:
            self._spare = large
        return whole
