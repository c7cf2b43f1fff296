"""A client's TCP connection on the event loop: raw non-blocking socket, no buffer while idle.

A frame is four bytes of size, big-endian, then that many bytes:

    | size i32 | request … |

Frames that arrive whole are handled where they lie in the received `bytes`; one that comes in pieces is joined once.
Memory follows what was really received, never what a size claims.
"""

from __future__ import annotations

import asyncio
import os
import socket
import time
from collections.abc import Callable
from typing import Final

from librt.strings import read_i32_be

from braidlog.core.slices import FileSlice
from braidlog.net.channel import Channel, FrameHandler
from braidlog.net.exchange import Part
from braidlog.net.round import Round

RECEIVE_SIZE: Final = 65536
# A frame in pieces is received with calls of at most this size.
LARGE_RECEIVE_SIZE: Final = 1 << 20
# Below this, reading a file range and sending it with its head is cheaper than sendfile (bench: the crossover).
SENDFILE_FROM: Final = 32768
SENDFILE_CHUNK: Final = 1 << 20
# One connection sends at most about this much before the others get their turn.
FAIR_SHARE: Final = 8 << 20

_RWF_NOWAIT: Final = getattr(os, "RWF_NOWAIT", 0)
_MSG_MORE: Final = getattr(socket, "MSG_MORE", 0)

# Reads a cold file range into the page cache off the loop, then calls back on it.
Warm = Callable[[FileSlice, Callable[[], None]], None]


class ConnectionLimits:
    """What every connection of a listener obeys and counts into."""

    def __init__(self, max_frame: int) -> None:
        self.max_frame = max_frame
        self.bytes_in = 0
        self.bytes_out = 0
        self.malformed = 0


class Connection(Channel):
    def __init__(
        self,
        sock: socket.socket,
        handler: FrameHandler,
        round_: Round,
        loop: asyncio.AbstractEventLoop,
        limits: ConnectionLimits,
        warm: Warm,
        listener: str,
        peer_host: str,
        on_close: Callable[[Connection, str], None],
    ) -> None:
        super().__init__(handler, round_, listener, peer_host)
        self.sock = sock
        self.fd = sock.fileno()
        self.last_active = time.monotonic()
        self._loop = loop
        self._limits = limits
        self._warm = warm
        self._on_close = on_close
        self._reading = False
        self._writing = False
        self._warming = False
        self._unsent: list[Part] = []
        # The beginning of a frame whose rest has not come: its pieces, their size, and the size that completes it.
        self._pieces: list[bytes] = []
        self._pieces_size = 0
        self._needed = 0
        # Whole frames received while muted, from `_held_at` on.
        self._held: bytes | None = None
        self._held_at = 0

    def start(self) -> None:
        self._reading = True
        self._loop.add_reader(self.fd, self.on_readable)

    # Receiving

    def on_readable(self) -> None:
        if self.closed:
            return
        if self.muted:
            # Leave the rest in the kernel, whose full buffer then slows the peer down.
            self._reading = False
            self._loop.remove_reader(self.fd)
            return
        want = RECEIVE_SIZE
        if self._needed > 0:
            want = min(max(self._needed - self._pieces_size, RECEIVE_SIZE), LARGE_RECEIVE_SIZE)
        try:
            data = self.sock.recv(want)
        except (BlockingIOError, InterruptedError):
            return
        except OSError as problem:
            self.close(f"receiving failed: {problem.strerror}")
            return
        if not data:
            self.close("the peer closed")
            return
        self.last_active = time.monotonic()
        self._limits.bytes_in += len(data)
        if self._needed > 0:
            self._pieces.append(data)
            self._pieces_size += len(data)
            if self._pieces_size < self._needed:
                return
            data = b"".join(self._pieces)
            self._pieces = []
            self._needed = 0
        self._cut(data, 0)
        self.round.after_read()

    def _cut(self, data: bytes, position: int) -> None:
        """Handle every whole frame in `data` from `position`; keep what remains."""
        end = len(data)
        needed = 4
        while end - position >= 4:
            if self.muted:
                self._held = data
                self._held_at = position
                return
            size = int(read_i32_be(data, position))
            if size <= 0 or size > self._limits.max_frame:
                self._limits.malformed += 1
                self.close(f"a request of {size} bytes (at most {self._limits.max_frame}: socket.request.max.bytes)")
                return
            frame_end = position + 4 + size
            if frame_end > end:
                needed = 4 + size
                break
            self.handler.handle_frame(self, data, position + 4, frame_end)
            if self.closed:
                return
            position = frame_end
        if position < end:
            if self.muted:
                self._held = data
                self._held_at = position
                return
            self._pieces = [data[position:]]
            self._pieces_size = end - position
            self._needed = needed

    def resume(self) -> None:
        held = self._held
        if held is not None:
            self._held = None
            self._cut(held, self._held_at)
            if self.closed or self.muted:
                return
        if not self._reading:
            self._reading = True
            self._loop.add_reader(self.fd, self.on_readable)

    # Sending

    def can_resume(self) -> bool:
        return not self._unsent

    def send(self, parts: list[Part]) -> None:
        if self._unsent:
            self._unsent.extend(parts)
            return
        self._unsent = parts
        self._push()

    def on_writable(self) -> None:
        if not self.closed and not self._warming:
            self._push()
            if not self._unsent and not self.closed:
                # The peer takes its replies again: take up what it asked meanwhile.
                self.flush()

    def _push(self) -> None:
        """Send until everything is gone, the kernel takes no more, or it is the others' turn."""
        stop_at = self._limits.bytes_out + FAIR_SHARE
        try:
            while self._unsent and self._limits.bytes_out < stop_at:
                first = self._unsent[0]
                if isinstance(first, FileSlice) and first.size >= SENDFILE_FROM:
                    if not self._send_slice(first):
                        break
                elif not self._send_gathered():
                    break
        except (BlockingIOError, InterruptedError):
            pass
        except OSError as problem:
            self.close(f"sending failed: {problem.strerror}")
            return
        if self._warming or not self._unsent:
            self._stop_writing()
        elif not self._writing:
            self._writing = True
            self._loop.add_writer(self.fd, self.on_writable)

    def _send_gathered(self) -> bool:
        """Send the parts before the next large file range with one call; False when the kernel took only some."""
        small: list[bytes | memoryview] = []
        taken = 0
        more = False
        for part in self._unsent:
            if isinstance(part, FileSlice):
                if part.size >= SENDFILE_FROM:
                    more = True
                    break
                small.append(part.read())
            else:
                small.append(part)
            taken += 1
        data: bytes | memoryview = small[0] if len(small) == 1 else b"".join(small)
        sent = self.sock.send(data, _MSG_MORE) if more else self.sock.send(data)
        self._limits.bytes_out += sent
        rest = len(data) - sent
        if rest == 0:
            del self._unsent[:taken]
            return True
        self._unsent[:taken] = [memoryview(data)[sent:]]
        return False

    def _send_slice(self, part: FileSlice) -> bool:
        file = part.file
        try:
            fd = file.fileno()
        except OSError:
            # Not a file of the operating system: its bytes go the ordinary way.
            self._unsent[0] = part.read()
            return True
        size = min(part.size, SENDFILE_CHUNK)
        if not _in_page_cache(fd, part.position, size):
            self._warming = True
            self._warm(FileSlice(file, part.position, size), self._on_warm)
            return False
        sent = os.sendfile(self.fd, fd, part.position, size)
        if sent == 0:
            self.close("a log file is shorter than its index says")
            return False
        self._limits.bytes_out += sent
        if sent == part.size:
            del self._unsent[0]
        else:
            self._unsent[0] = FileSlice(file, part.position + sent, part.size - sent)
        return sent == size

    def _on_warm(self) -> None:
        self._warming = False
        if not self.closed:
            self.on_writable()

    def _stop_writing(self) -> None:
        if self._writing:
            self._writing = False
            self._loop.remove_writer(self.fd)

    # Closing

    def close(self, reason: str) -> None:
        if self.closed:
            return
        self.closed = True
        if self._reading:
            self._loop.remove_reader(self.fd)
        self._stop_writing()
        self._unsent = []
        self._out = []
        self._pieces = []
        self._held = None
        self.handler.channel_closed(self)
        self._on_close(self, reason)
        self.sock.close()


def _in_page_cache(fd: int, position: int, size: int) -> bool:
    """Whether both ends of a range can be read without waiting for the disk (the kernel reads ahead between them)."""
    if not _RWF_NOWAIT:
        return True
    probe = bytearray(1)
    try:
        os.preadv(fd, [probe], position, _RWF_NOWAIT)
        os.preadv(fd, [probe], position + size - 1, _RWF_NOWAIT)
    except BlockingIOError:
        return False
    except OSError:
        # The file system knows no such probe: send and see.
        return True
    return True
