"""How an attacker sends: bursts whose answers it reads, requests whose answers it never reads, frames that never end.

Requests are encoded before, so that an attacker costs its machine little more than the system calls.
"""

from __future__ import annotations

import select
import socket
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack, suppress
from typing import Protocol

SEND_SIZE = 1 << 18
SCRATCH = 1 << 20
# What does not move for so long is at a stand: the broker has stopped reading.
STANDSTILL_S = 2.0
TICK_MS = 50
CONNECT_TIMEOUT_S = 30.0
# So small that what is unread piles up at the broker and not in the kernel.
SMALL_BUFFER = 4096


class Control:
    """The way back to whoever started the attack: when to stop, when it has had its effect, and what happened."""

    def __init__(self, stopped: Callable[[], bool], landed: Callable[[], None]) -> None:
        self.stopped = stopped
        self.counts: Counter[str] = Counter()
        self._landed = landed
        self._has_landed = False

    def landed(self) -> None:
        """All of the attack was sent, and answered if it reads answers; or the broker takes no more of it."""
        if not self._has_landed:
            self._has_landed = True
            self._landed()


class Sender(Protocol):
    def run(self, port: int, control: Control) -> None:
        """Attack until told to stop, or until there is nothing left to do."""
        ...


def connect(port: int, receive_buffer: int | None = None) -> socket.socket:
    line = socket.socket()
    if receive_buffer is not None:
        line.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
    line.settimeout(CONNECT_TIMEOUT_S)
    line.connect(("127.0.0.1", port))
    line.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    line.setblocking(False)
    return line


class _Answers:
    """Counts whole frames in what is received, without keeping any of it."""

    def __init__(self) -> None:
        self.count = 0
        self._left = 0
        self._head = b""
        self._buffer = bytearray(SCRATCH)

    def receive(self, line: socket.socket) -> int:
        """How many bytes came; none where the broker closed."""
        size = line.recv_into(self._buffer)
        view, at = self._buffer, 0
        while at < size:
            if self._left:
                step = min(self._left, size - at)
                self._left -= step
                at += step
                self.count += self._left == 0
            else:
                step = min(4 - len(self._head), size - at)
                self._head += bytes(view[at : at + step])
                at += step
                if len(self._head) == 4:
                    self._left = int.from_bytes(self._head, "big")
                    self._head = b""
        return size


class Bursts:
    """Pipelines the burst on one connection, reads all its answers, and begins again; `once` leaves it at one.

    Several bursts are sent one after the other, each after the answers to the one before.
    """

    def __init__(self, bursts: Sequence[tuple[bytes, int]], *, once: bool = False) -> None:
        self._bursts = bursts
        self._once = once

    def run(self, port: int, control: Control) -> None:
        line = connect(port)
        try:
            while not control.stopped():
                for payload, answers in self._bursts:
                    if not self._exchange(line, payload, answers, control):
                        if control.stopped():
                            return
                        control.counts["closed"] += 1
                        control.landed()
                        line.close()
                        line = connect(port)
                        break
                else:
                    control.counts["rounds"] += 1
                    control.landed()
                    if self._once:
                        return
        finally:
            line.close()

    def _exchange(self, line: socket.socket, payload: bytes, answers: int, control: Control) -> bool:
        """False where it did not come to its end: closed by the broker, or told to stop."""
        waiting, received = memoryview(payload), _Answers()
        poll = select.poll()
        poll.register(line, select.POLLIN | select.POLLOUT)
        while received.count < answers:
            if control.stopped():
                return False
            for _, event in poll.poll(TICK_MS):
                try:
                    if event & select.POLLOUT and waiting:
                        waiting = waiting[line.send(waiting[:SEND_SIZE]) :]
                        if not waiting:
                            poll.modify(line, select.POLLIN)
                    if event & ~select.POLLOUT and received.receive(line) == 0:
                        return False
                except BlockingIOError:
                    pass
                except OSError:
                    return False
        control.counts["answers"] += received.count
        return True


class Unread:
    """Sends the payload again and again, `total` bytes on each connection, and reads nothing, ever.

    With `trickle` it reads a few megabytes a second once it has sent all it can.
    """

    def __init__(self, payload: bytes, total: int, connections: int = 1, *, trickle: bool = False) -> None:
        self._payload = payload * max(1, SEND_SIZE // len(payload))
        self._total = total
        self._connections = connections
        self._trickle = trickle

    def run(self, port: int, control: Control) -> None:
        with ExitStack() as opened:
            poll = select.poll()
            lines: dict[int, socket.socket] = {}
            left: dict[int, int] = {}
            at: dict[int, int] = {}
            for _ in range(self._connections):
                line = opened.enter_context(connect(port, SMALL_BUFFER))
                number = line.fileno()
                lines[number], left[number], at[number] = line, self._total, 0
                poll.register(line, select.POLLOUT)
            view = memoryview(self._payload)
            moved = time.monotonic()
            while left and not control.stopped():
                if time.monotonic() - moved > STANDSTILL_S:
                    control.landed()
                    self._read_little(lines.values())
                for number, _ in poll.poll(TICK_MS):
                    try:
                        sent = lines[number].send(view[at[number] :][: left[number]])
                    except BlockingIOError:
                        continue
                    except (ConnectionResetError, BrokenPipeError):
                        control.counts["closed"] += 1
                        sent = left[number]
                    else:
                        control.counts["sent"] += sent
                        moved = time.monotonic()
                    at[number] = (at[number] + sent) % len(view)
                    left[number] -= sent
                    if left[number] <= 0:
                        poll.unregister(number)
                        del left[number]
            control.counts["stuck"] += len(left)
            control.landed()
            while not control.stopped():
                self._read_little(lines.values())
                select.select([], [], [], TICK_MS / 1000)

    def _read_little(self, lines: Iterable[socket.socket]) -> None:
        if self._trickle:
            for line in lines:
                with suppress(OSError):  # nothing to read, or closed
                    line.recv(SEND_SIZE)


class Stalled:
    """Many connections that begin the same large frame, and then let one more byte come every second."""

    def __init__(self, beginning: bytes, connections: int) -> None:
        self._beginning = beginning
        self._connections = connections

    def run(self, port: int, control: Control) -> None:
        with ExitStack() as opened:
            lines = [opened.enter_context(connect(port)) for _ in range(self._connections)]
            waiting = {line.fileno(): (line, memoryview(self._beginning)) for line in lines}
            poll = select.poll()
            for line in lines:
                poll.register(line, select.POLLOUT)
            moved = time.monotonic()
            while waiting and not control.stopped():
                if time.monotonic() - moved > STANDSTILL_S:
                    control.landed()
                for number, _ in poll.poll(TICK_MS):
                    line, rest = waiting[number]
                    try:
                        rest = rest[line.send(rest[:SEND_SIZE]) :]
                        moved = time.monotonic()
                    except BlockingIOError:
                        continue
                    except OSError:
                        control.counts["closed"] += 1
                        rest = rest[:0]
                    waiting[number] = line, rest
                    if not rest:
                        poll.unregister(number)
                        del waiting[number]
            control.counts["stuck"] += len(waiting)
            control.landed()
            while not control.stopped():
                for line in lines:
                    with suppress(OSError):  # its buffer is full, or the broker has closed it
                        line.send(b"\x00")
                select.select([], [], [], STANDSTILL_S / 2)


class ByteByByte:
    """Small requests on many connections, each byte of them a segment of its own."""

    def __init__(self, request: bytes, connections: int) -> None:
        self._request = request
        self._connections = connections

    def run(self, port: int, control: Control) -> None:
        with ExitStack() as opened:
            lines = [opened.enter_context(connect(port)) for _ in range(self._connections)]
            received = [_Answers() for _ in lines]
            while not control.stopped():
                for at in range(len(self._request)):
                    for line in lines:
                        line.send(self._request[at : at + 1])
                for line, answers in zip(lines, received, strict=True):
                    wanted = answers.count + 1
                    while answers.count < wanted and not control.stopped():
                        if select.select([line], [], [], TICK_MS / 1000)[0]:
                            assert answers.receive(line), "the broker closed"
                control.counts["rounds"] += 1
                control.landed()


class Churn:
    """Connections that ask one thing and are closed when it is answered, one after another."""

    def __init__(self, request: bytes, at_once: int) -> None:
        self._request = request
        self._at_once = at_once

    def run(self, port: int, control: Control) -> None:
        while not control.stopped():
            with ExitStack() as opened:
                lines = [opened.enter_context(connect(port)) for _ in range(self._at_once)]
                for line in lines:
                    line.send(self._request)
                for line in lines:
                    while not control.stopped() and not select.select([line], [], [], TICK_MS / 1000)[0]:
                        pass
            control.counts["rounds"] += 1
            control.landed()
