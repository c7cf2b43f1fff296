"""A client's TCP connection on the event loop: raw non-blocking socket, no buffer while idle.

A frame is four bytes of size, big-endian, then that many bytes:

    | size i32 | request … |

Frames that arrive whole are handled where they lie in the received `bytes`; one that comes in pieces is joined once,
and where it is large it is received only as far as there is memory for it (`net/memory`).

A peer's requests are handled for a turn's length at most; what remains waits for the next turn (`fair_queue`), and the
peer is not read from meanwhile. File ranges are read, or handed to the kernel, when the socket takes them.
"""

from __future__ import annotations

import asyncio
import logging
import os
import select
import socket
import time
from collections.abc import Callable
from typing import Final, Protocol

from librt.strings import read_i16_be, read_i32_be

from braidlog.core.slices import FileSlice
from braidlog.net.channel import Channel, FrameHandler
from braidlog.net.exchange import Part
from braidlog.net.fair_queue import TURN_S, FairQueue
from braidlog.net.memory import MemoryBudget
from braidlog.net.round import Round
from braidlog.wire.generated.api_keys import ApiKey

log = logging.getLogger("braidlog.net")

RECEIVE_SIZE: Final = 65536
# A frame in pieces is received with calls of at most this size.
LARGE_RECEIVE_SIZE: Final = 1 << 20
# Below this, reading a file range and sending it with its head is cheaper than sendfile (bench: the crossover).
SENDFILE_FROM: Final = 32768
SENDFILE_CHUNK: Final = 1 << 20
# Small parts are gathered into sends of about this size: what a peer that reads slowly makes us keep.
GATHER_SIZE: Final = 1 << 18
# One connection sends at most about this much before the others get their turn.
FAIR_SHARE: Final = 8 << 20
# Requests up to this size are received without asking for memory first.
SMALL_REQUEST: Final = RECEIVE_SIZE
# What a request takes once it is decoded, in multiples of its size: records stay as they are, all else becomes objects.
_DECODED_WEIGHT: Final = 12
_PRODUCE: Final = int(ApiKey.PRODUCE)

_RWF_NOWAIT: Final = getattr(os, "RWF_NOWAIT", 0)
_MSG_MORE: Final = getattr(socket, "MSG_MORE", 0)
# Where there is none, the peer's end is seen when its host resets the connection.
_POLLRDHUP: Final = getattr(select, "POLLRDHUP", 0)

# Reads a cold file range into the page cache off the loop, then calls back on it.
Warm = Callable[[FileSlice, Callable[[], None]], None]


class StreamSocket(Protocol):
    """What a connection needs of its socket: the kernel's own, or TLS over it (`tls_socket`)."""

    def fileno(self) -> int: ...

    def recv(self, size: int, /) -> bytes: ...

    def send(self, data: bytes | memoryview, flags: int = 0, /) -> int: ...

    def getsockopt(self, level: int, option: int, /) -> int: ...

    def close(self) -> None: ...


class ConnectionLimits:
    """What every connection of a listener obeys and counts into."""

    def __init__(self, max_frame: int, memory: MemoryBudget, fair_queue: FairQueue) -> None:
        self.max_frame = max_frame
        self.memory = memory
        self.fair_queue = fair_queue
        self.bytes_in = 0
        self.bytes_out = 0
        self.malformed = 0


class Connection(Channel):
    def __init__(
        self,
        sock: StreamSocket,
        handler: FrameHandler,
        round_: Round,
        loop: asyncio.AbstractEventLoop,
        limits: ConnectionLimits,
        warm: Warm,
        listener: str,
        peer_host: str,
        on_close: Callable[[Connection, str], None],
        encrypts: bool = False,
    ) -> None:
        """`encrypts` where the kernel cannot send files by itself, since their bytes change on the way."""
        super().__init__(handler, round_, limits.memory, listener, peer_host)
        self.max_frame = limits.max_frame
        self.sock = sock
        self.fd = sock.fileno()
        self.last_active = time.monotonic()
        self._loop = loop
        self._limits = limits
        self._warm = warm
        self._on_close = on_close
        self._encrypts = encrypts
        self._reading = False
        self._writing = False
        # Whether the peer has reset the connection, so that only what has arrived can still be read.
        self._reset = False
        self._warming = False
        self._unsent: list[Part] = []
        # What `_unsent` takes of our memory, where the peer does not take it at once; file ranges take none.
        self.unsent_memory = 0
        # Of the large request that is being received: what is reserved for it, and what it waits for.
        self._receiving_memory = 0
        self._asked_memory = 0
        self.waits_for_memory = False
        # Of small requests in pieces, and of held ones: counted, never waited for.
        self._charged = 0
        # Whether further requests wait for this connection's next turn.
        self._in_turns = False
        # The beginning of a frame whose rest has not come: its pieces, their size, and the size that completes it.
        self._pieces: list[bytes] = []
        self._pieces_size = 0
        self._needed = 0
        # Whole frames received and not handled yet, from `_held_at` on.
        self._held: bytes | None = None
        self._held_at = 0

    def start(self) -> None:
        self._reading = True
        self._loop.add_reader(self.fd, self.on_readable)

    # Receiving

    def on_readable(self) -> None:
        try:
            if self.closed:
                return
            if self.muted or self.backlogged or self._in_turns or self.waits_for_memory:
                # Leave the rest in the kernel, whose full buffer then slows the peer down.
                self._stop_reading()
                return
            want = RECEIVE_SIZE
            if self._needed > 0:
                want = min(max(self._needed - self._pieces_size, RECEIVE_SIZE), LARGE_RECEIVE_SIZE)
                if self._needed > SMALL_REQUEST and not self._reserve():
                    return
            try:
                data = self.sock.recv(want)
            except (BlockingIOError, InterruptedError):
                return
            except OSError as error:
                self.close(f"receiving failed: {error.strerror}")
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
                    self._look_for_reset()
                    return
                data = b"".join(self._pieces)
                self._pieces = []
                if not self._complete(data):
                    return
            self.round.before_read(self.last_active)
            try:
                self._cut(data, 0)
            finally:
                self.round.after_read()
                self.round.last_read = time.monotonic()
        except Exception as problem:
            self._fail("receiving", problem)

    def _cut(self, data: bytes, position: int) -> None:
        """Handle the whole frames in `data` from `position`, for one turn; keep what remains."""
        end = len(data)
        needed = 4
        # When the turn's first request was taken up.
        began = 0.0
        while end - position >= 4:
            if self.muted or self.backlogged:
                self._hold(data, position)
                return
            if began > 0.0 and self.last_began - began > TURN_S:
                # The others first.
                self._hold(data, position)
                self._wait_for_turn()
                return
            size = int(read_i32_be(data, position))
            if size <= 0 or size > self.max_frame:
                self._refuse_size(size)
                return
            frame_end = position + 4 + size
            if frame_end > end:
                needed = 4 + size
                break
            self.handler.handle_frame(self, data, position + 4, frame_end)
            if self.closed:
                return
            if began == 0.0:
                began = self.last_began
            position = frame_end
        if position < end:
            if self.muted or self.backlogged:
                self._hold(data, position)
                return
            self._pieces = [data[position:]] if position else [data]
            self._pieces_size = end - position
            self._needed = needed
            self._charge(self._pieces_size)
            self.memory.requests.began(self)
            if needed <= SMALL_REQUEST or self._can_ever_fit():
                self._look_for_reset()
        else:
            self._charge(0)

    def _refuse_size(self, size: int) -> None:
        self._limits.malformed += 1
        is_limited = self.max_frame < self._limits.max_frame
        setting = "sasl.server.max.receive.size before a login" if is_limited else "socket.request.max.bytes"
        self.close(f"a request of {size} bytes (at most {self.max_frame}: {setting})")

    def _look_for_reset(self) -> None:
        """Go on by ourselves where the peer has reset the connection: libuv tells of an error once and then no more.

        Only asked in the middle of a request. After a whole one the answer tells, which cannot be sent.
        """
        if not self._reset and self.sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR) != 0:
            self._reset = True
        if self._reset:
            self._loop.call_soon(self.on_readable)

    def _hold(self, data: bytes, position: int) -> None:
        if position > len(data) // 2:
            # What was handled may be large; it should not live as long as this.
            data = data[position:]
            position = 0
        self._held = data
        self._held_at = position
        self._charge(len(data))

    def _charge(self, size: int) -> None:
        """Count what is received and not handled."""
        if size != self._charged:
            self.memory.requests.charge(size - self._charged)
            self._charged = size

    def _can_ever_fit(self) -> bool:
        """Whether all the memory that there is for requests would do for this one; else it is refused."""
        requests = self.memory.requests
        needed = _decoded_size(self._pieces[0], self._needed)
        if requests.fits(needed):
            return True
        self._limits.malformed += 1
        message = (
            f"a request of {self._needed} bytes takes {needed} bytes of memory, more than the {requests.limit} that "
            "braidlog.memory.max and queued.max.request.bytes leave for requests"
        )
        log.warning("closed the connection from %s: %s", self.peer_host, message)
        self.close(message)
        return False

    def _reserve(self) -> bool:
        """Whether there is memory for the rest of a large request, of which some has arrived; else nothing is read."""
        self._charge(0)
        short = self._needed - self._receiving_memory
        if short <= 0:
            return True
        if self.memory.requests.reserve(short, self._on_memory, self):
            self._receiving_memory += short
            return True
        self._wait_for_memory(short)
        return False

    def _wait_for_memory(self, size: int) -> None:
        self._asked_memory = size
        self.waits_for_memory = True
        self._stop_reading()

    def _complete(self, data: bytes) -> bool:
        """All of a request has arrived: whether there is memory for what it is decoded to; else it waits for some."""
        extra = 0
        if self._needed > SMALL_REQUEST:
            extra = _decoded_size(data, self._needed) - self._needed
        self._needed = 0
        if extra > 0 and not self.memory.requests.reserve(extra, self._on_decoding_memory, self):
            self._held = data
            self._held_at = 0
            self._wait_for_memory(extra)
            return False
        self._hand_over(extra)
        return True

    def _hand_over(self, extra: int) -> None:
        """From here on the request's exchange holds the memory."""
        self.memory.requests.ended(self)
        self.reserved = self._receiving_memory + extra
        self._receiving_memory = 0

    def _on_decoding_memory(self) -> None:
        """The memory for what a large request is decoded to is granted."""
        self.waits_for_memory = False
        self._hand_over(self._asked_memory)
        self._wait_for_turn()

    def give_back_unused(self) -> None:
        """Keep memory only for what has arrived: the peer does not send, and others could."""
        unused = self._receiving_memory - self._pieces_size
        if unused > 0:
            self._receiving_memory -= unused
            self.memory.requests.release(unused)

    def _on_memory(self) -> None:
        """The memory for the rest of a large request is granted."""
        self.waits_for_memory = False
        self._receiving_memory += self._asked_memory
        self.last_active = time.monotonic()
        self._start_reading()

    @property
    def waits_for_broker(self) -> bool:
        """Whether the peer has asked for something that this side has not done yet."""
        return len(self._open) > 0 or self._in_turns or self.waits_for_memory or self.throttled

    def was_left_while_throttled(self) -> bool:
        """Whether the peer has closed its end; reading would tell, but not before the throttle is over."""
        if not self.throttled:
            return False
        poll = select.poll()
        poll.register(self.fd, _POLLRDHUP)
        return bool(poll.poll(0))

    def end_throttle(self) -> None:
        # It could not send meanwhile, so it was not idle.
        self.last_active = time.monotonic()
        super().end_throttle()

    def _wait_for_turn(self) -> None:
        if not self._in_turns:
            self._in_turns = True
            self._limits.fair_queue.add(self)

    def take_turn(self) -> None:
        """It is this connection's turn again; called by `FairQueue`."""
        self._in_turns = False
        if self.closed or self.muted or self.backlogged or self.waits_for_memory:
            return
        try:
            held = self._held
            if held is not None:
                self._held = None
                self._cut(held, self._held_at)
            if not (self.closed or self.muted or self.backlogged or self._in_turns or self.waits_for_memory):
                self._start_reading()
        except Exception as problem:
            self._fail("handling requests", problem)

    def resume(self) -> None:
        if self.waits_for_memory:
            return
        if self._held is not None:
            self._wait_for_turn()
        else:
            self._start_reading()

    def _start_reading(self) -> None:
        if not self._reading:
            self._reading = True
            self._loop.add_reader(self.fd, self.on_readable)

    def _stop_reading(self) -> None:
        if self._reading:
            self._reading = False
            self._loop.remove_reader(self.fd)

    # Sending

    def on_writable(self) -> None:
        if self.closed or self._warming:
            return
        try:
            self.send([])
            # The peer takes its replies again: take up what it asked meanwhile.
            self.resume_if_ready()
        except Exception as problem:
            self._fail("sending", problem)

    def send(self, parts: list[Part]) -> None:
        """Send until everything is gone, the kernel takes no more, or it is the others' turn."""
        if parts:
            if self._unsent:
                # The kernel takes no more now; `on_writable` goes on.
                self._unsent.extend(parts)
                self._count_unsent()
                return
            self._unsent = parts
        limits = self._limits
        sent_before = limits.bytes_out
        stop_at = sent_before + FAIR_SHARE
        try:
            while self._unsent and limits.bytes_out < stop_at:
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
        if self.closed:
            return
        if limits.bytes_out != sent_before:
            self.unsent -= limits.bytes_out - sent_before
            if self._unsent:
                # A peer that reads slowly is not idle.
                self.last_active = time.monotonic()
        if self._warming or not self._unsent:
            self._stop_writing()
        elif not self._writing:
            self._writing = True
            self._loop.add_writer(self.fd, self.on_writable)
        if self._unsent or self.unsent_memory:
            self._count_unsent()

    def _count_unsent(self) -> None:
        """Tell the memory budget what the peer has not taken."""
        before = self.unsent_memory
        taken = 0
        for part in self._unsent:
            if not isinstance(part, FileSlice):
                taken += len(part)
        self.unsent_memory = taken
        answers = self.memory.answers
        answers.changed(self, before)
        if taken and answers.tight:
            self.backlogged = True

    def _send_gathered(self) -> bool:
        """Send the next small parts with one call; False when the kernel took only some."""
        small: list[bytes | memoryview] = []
        taken = 0
        gathered = 0
        more = False
        for part in self._unsent:
            if gathered >= GATHER_SIZE:
                break
            if isinstance(part, FileSlice):
                if part.size >= SENDFILE_FROM:
                    more = True
                    break
                content = part.read()
                if len(content) != part.size:
                    self.close("a log file is shorter than its index says")
                    return False
                small.append(content)
                gathered += part.size
            else:
                small.append(part)
                gathered += len(part)
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
            # Not a file of the operating system.
            fd = -1
        size = min(part.size, SENDFILE_CHUNK)
        if fd >= 0 and not _in_page_cache(fd, part.position, size):
            self._warming = True
            self._warm(FileSlice(file, part.position, size), self._on_warm)
            return False
        if fd < 0 or self._encrypts:
            return self._take_up(part)
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

    def _take_up(self, part: FileSlice) -> bool:
        """Read the beginning of a file range, which then goes the ordinary way."""
        size = min(part.size, GATHER_SIZE)
        content = FileSlice(part.file, part.position, size).read()
        if len(content) != size:
            self.close("a log file is shorter than its index says")
            return False
        self._unsent[0] = content
        if part.size > size:
            self._unsent.insert(1, FileSlice(part.file, part.position + size, part.size - size))
        return True

    def _on_warm(self) -> None:
        self._warming = False
        if not self.closed:
            self.on_writable()

    def _stop_writing(self) -> None:
        if self._writing:
            self._writing = False
            self._loop.remove_writer(self.fd)

    # Closing

    def _fail(self, doing: str, problem: Exception) -> None:
        """What goes wrong with one connection ends that connection."""
        log.error(
            "closed the connection from %s: %s failed, a bug in braidlog, please report it",
            self.peer_host,
            doing,
            exc_info=problem,
        )
        self.close(f"{doing} failed")

    def close(self, reason: str) -> None:
        if self.closed:
            return
        self.closed = True
        try:
            self._let_go()
        finally:
            try:
                self.handler.channel_closed(self)
            finally:
                try:
                    self._on_close(self, reason)
                finally:
                    self.sock.close()

    def _let_go(self) -> None:
        self._stop_reading()
        self._stop_writing()
        self._unsent = []
        self._pieces = []
        self._held = None
        self._charge(0)
        requests = self.memory.requests
        requests.ended(self)
        if self.waits_for_memory:
            self.waits_for_memory = False
            requests.cancel(self)
        if self._receiving_memory:
            requests.release(self._receiving_memory)
            self._receiving_memory = 0
        before = self.unsent_memory
        self.unsent_memory = 0
        if before:
            self.memory.answers.changed(self, before)
        self.forget()


def _decoded_size(beginning: bytes, size: int) -> int:
    """What a request of that size takes in all, by the api key at its beginning, as far as that has come."""
    if len(beginning) < 6 or int(read_i16_be(beginning, 4)) == _PRODUCE:
        return size
    return size * _DECODED_WEIGHT


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
