"""The few requests that the benchmark itself sends, by hand: no broker's own code answers for them."""

from __future__ import annotations

import socket
import ssl
import struct
import threading
import time
from collections.abc import Mapping, Sequence
from typing import NamedTuple, Self

PRODUCE, METADATA, API_VERSIONS, LIST_OFFSETS, CREATE_TOPICS, DELETE_TOPICS = 0, 3, 18, 2, 19, 20
SASL_HANDSHAKE, SASL_AUTHENTICATE = 17, 36
NONE, UNKNOWN_TOPIC, LEADER_NOT_AVAILABLE, NOT_LEADER = 0, 3, 5, 6
EARLIEST = -2
TIMEOUT_S = 180.0
PRODUCE_TIMEOUT_MS = 30_000


class RequestFailed(Exception):
    """The broker refused, or the connection broke, where a benchmark cannot go on."""


def receive(source: socket.socket, count: int) -> bytes:
    parts = bytearray()
    while len(parts) < count:
        part = source.recv(min(count - len(parts), 1 << 20))
        if not part:
            raise RequestFailed("the broker closed the connection")
        parts += part
    return bytes(parts)


def text(value: str) -> bytes:
    encoded = value.encode()
    return struct.pack(">h", len(encoded)) + encoded


class Reply:
    def __init__(self, body: bytes) -> None:
        self._body = body
        self._at = 0

    def number(self, form: str) -> int:
        value: int
        (value,) = struct.unpack_from(">" + form, self._body, self._at)
        self._at += struct.calcsize(">" + form)
        return value

    def text(self) -> str | None:
        length = self.number("h")
        if length < 0:
            return None
        return self.take(length).decode()

    def take(self, length: int) -> bytes:
        self._at += length
        return self._body[self._at - length : self._at]

    def skip(self, length: int) -> None:
        self._at += length

    def numbers(self) -> int:
        """How many there are in an array of int32, which is passed over."""
        count = self.number("i")
        self._at += 4 * count
        return count


class View(NamedTuple):
    """A cluster as one of its brokers describes it."""

    brokers: frozenset[int]
    controller: int
    # By topic and partition; -1 where there is none.
    leaders: Mapping[tuple[str, int], int]
    # Those that lack a replica in sync.
    under_replicated: int = 0


class Requester:
    """One connection, one request at a time."""

    def __init__(
        self,
        port: int,
        host: str = "127.0.0.1",
        timeout_s: float = TIMEOUT_S,
        tls: ssl.SSLContext | None = None,
        *,
        client_id: str = "bench",
        source: str | None = None,
    ) -> None:
        """`source` is the address that the connection comes from."""
        self._client_id = client_id
        plain = socket.create_connection(
            (host, port), timeout=timeout_s, source_address=None if source is None else (source, 0)
        )
        self._socket = plain if tls is None else tls.wrap_socket(plain, server_hostname=host)
        self._correlation = 0

    def log_in(self, user: str, password: str) -> None:
        """With PLAIN."""
        code = self.ask(SASL_HANDSHAKE, 1, text("PLAIN")).number("h")
        token = f"\0{user}\0{password}".encode()
        code = code or self.ask(SASL_AUTHENTICATE, 1, struct.pack(">i", len(token)) + token).number("h")
        if code != NONE:
            raise RequestFailed(f"the login was answered with error code {code}")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()

    def ask(self, key: int, version: int, body: bytes) -> Reply:
        self._correlation += 1
        head = struct.pack(">hhi", key, version, self._correlation) + text(self._client_id)
        self._socket.sendall(struct.pack(">i", len(head) + len(body)) + head + body)
        (size,) = struct.unpack(">i", receive(self._socket, 4))
        reply = Reply(receive(self._socket, size))
        if reply.number("i") != self._correlation:
            raise RequestFailed("a reply carried the wrong correlation id")
        return reply

    def api_versions(self) -> None:
        code = self.ask(API_VERSIONS, 0, b"").number("h")
        if code != NONE:
            raise RequestFailed(f"ApiVersions answered with error code {code}")

    def create_topic(self, name: str, partitions: int, settings: Mapping[str, str] | None = None) -> None:
        """Create a topic of one replica and return when each of its partitions serves."""
        configs = b"".join(text(key) + text(value) for key, value in (settings or {}).items())
        body = struct.pack(">i", 1) + text(name) + struct.pack(">ihi", partitions, 1, 0)
        body += struct.pack(">i", len(settings or {})) + configs + struct.pack(">i?", 120_000, False)
        self._check_topics("CreateTopics", self.ask(CREATE_TOPICS, 2, body))
        self.await_leaders(name, partitions)

    def create_topics(self, names: Sequence[str], partitions: int, replicas: int = 1) -> None:
        """Returns when the controller has decided, not when they serve."""
        body = struct.pack(">i", len(names))
        body += b"".join(text(name) + struct.pack(">ihii", partitions, replicas, 0, 0) for name in names)
        self._check_topics("CreateTopics", self.ask(CREATE_TOPICS, 2, body + struct.pack(">i?", 120_000, False)))

    def create_topic_on(self, name: str, partitions: int, brokers: Sequence[int]) -> None:
        """Each partition has its replicas on `brokers`, and the first of them as its leader."""
        replicas = struct.pack(f">i{len(brokers)}i", len(brokers), *brokers)
        body = struct.pack(">i", 1) + text(name) + struct.pack(">ihi", -1, -1, partitions)
        body += b"".join(struct.pack(">i", index) + replicas for index in range(partitions))
        body += struct.pack(">ii?", 0, 120_000, False)
        self._check_topics("CreateTopics", self.ask(CREATE_TOPICS, 2, body))

    def produce(self, topic: str, partitions: Sequence[int], records: bytes, acks: int) -> set[int]:
        """The same batch to each partition; gives the error codes of the answer, none where all went well."""
        body = struct.pack(">hhii", -1, acks, PRODUCE_TIMEOUT_MS, 1) + text(topic) + struct.pack(">i", len(partitions))
        size = struct.pack(">i", len(records))
        body += b"".join(struct.pack(">i", index) + size + records for index in partitions)
        reply = self.ask(PRODUCE, 7, body)
        errors = set()
        for _ in range(reply.number("i")):
            reply.text()
            for _ in range(reply.number("i")):
                reply.number("i")  # partition
                errors.add(reply.number("h"))
                reply.skip(24)  # base offset, append time, log start
        return errors - {NONE}

    def view(self, topics: bool = True) -> View:
        """With all topics, or with none, which costs the broker next to nothing."""
        reply = self.ask(METADATA, 1, struct.pack(">i", -1 if topics else 0))
        brokers = []
        for _ in range(reply.number("i")):
            brokers.append(reply.number("i"))
            reply.text()  # host
            reply.number("i")  # port
            reply.text()  # rack
        controller = reply.number("i")
        leaders: dict[tuple[str, int], int] = {}
        under_replicated = 0
        for _ in range(reply.number("i")):
            reply.number("h")  # error
            name = reply.text() or ""
            reply.number("b")  # whether it is internal
            for _ in range(reply.number("i")):
                reply.number("h")  # error
                index = reply.number("i")
                leaders[name, index] = reply.number("i")
                replicas, in_sync = reply.numbers(), reply.numbers()
                under_replicated += in_sync < replicas
        return View(frozenset(brokers), controller, leaders, under_replicated)

    def await_leaders(self, name: str, partitions: int) -> None:
        deadline = time.monotonic() + TIMEOUT_S
        while self._led_partitions(name, partitions) < partitions:
            if time.monotonic() > deadline:
                raise RequestFailed(f"topic {name} has partitions without a leader after {TIMEOUT_S:.0f} s")
            time.sleep(0.01)

    def delete_topic(self, name: str) -> None:
        body = struct.pack(">i", 1) + text(name) + struct.pack(">i", 120_000)
        self._check_topics("DeleteTopics", self.ask(DELETE_TOPICS, 1, body), message=False)

    def _check_topics(self, api: str, reply: Reply, message: bool = True) -> None:
        reply.number("i")  # throttle time
        for _ in range(reply.number("i")):
            name, code = reply.text(), reply.number("h")
            said = reply.text() if message else None
            if code != NONE:
                raise RequestFailed(f"{api} for {name} answered with error code {code} {said or ''}")

    def _led_partitions(self, topic: str, partitions: int) -> int:
        """How many partitions answer as their leader; Metadata may name one before it serves."""
        asked = b"".join(struct.pack(">iiq", partition, -1, EARLIEST) for partition in range(partitions))
        body = struct.pack(">ibi", -1, 0, 1) + text(topic) + struct.pack(">i", partitions) + asked
        reply = self.ask(LIST_OFFSETS, 5, body)
        reply.number("i")  # throttle time
        led = 0
        for _ in range(reply.number("i")):
            reply.text()
            for _ in range(reply.number("i")):
                reply.number("i")  # partition
                code = reply.number("h")
                if code not in (NONE, UNKNOWN_TOPIC, LEADER_NOT_AVAILABLE, NOT_LEADER):
                    raise RequestFailed(f"ListOffsets for {topic} answered with error code {code}")
                led += code == NONE
                reply.number("q")  # timestamp
                reply.number("q")  # offset
                reply.number("i")  # leader epoch
        return led


def wait_for_answer(port: int, give_up: threading.Event, pause_s: float = 0.002) -> float:
    """Ask ApiVersions until it is answered; the moment it was, on the boot-time clock."""
    while not give_up.is_set():
        try:
            with Requester(port, timeout_s=5.0) as requester:
                requester.api_versions()
                return time.clock_gettime(time.CLOCK_BOOTTIME)
        except (OSError, RequestFailed):
            give_up.wait(pause_s)
    raise RequestFailed(f"nothing answered on port {port}")
