"""Frames that no honest client sends, and a sender that gets through very many of them.

Bases are what Java, librdkafka and two Python clients really send (tests/unit/wire/golden); on these come changed
bytes, lying lengths, garbage after a sound header, and record batches whose checksum is right and nothing else.
"""

from __future__ import annotations

import os
import selectors
import socket
import struct
import time
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from random import Random
from typing import Any

from braidlog.wire.apis import APIS, encode_request, request_header_version
from braidlog.wire.errors import EncodeError
from braidlog.wire.generated.headers import RequestHeader
from braidlog.wire.generated.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from braidlog.wire.message import Message, field_names
from braidlog.wire.reader import Reader
from braidlog.wire.records.batch import CODEC_GZIP, CODEC_LZ4, CODEC_SNAPPY, CODEC_ZSTD, CRC_AT
from braidlog.wire.records.builder import build_batch
from braidlog.wire.records.checksum import crc32c
from braidlog.wire.records.compression import compress
from braidlog.wire.records.reading import Record
from braidlog.wire.writer import Writer
from support.raw import ask

CAPTURES = Path(__file__).parent.parent / "unit" / "wire" / "golden" / "captures.txt"
# Where hostile batches go: topics that exist, so that they get as far as a batch can.
TOPICS = ("captured", "hostile")
PRODUCE_VERSION = 9
# What would take the ground away: deleting the topics, or letting them grow to thousands of partitions.
UNAIMED = (20, 37)
PROBE = 0x50524F42
HUGE = (b"\x7f\xff\xff\xff", b"\xff\xff\xff\xff", b"\x80\x00\x00\x00", b"\xff\xff\xff\xff\x0f", b"\xff\xff\xff\xff\x07")
BOMB_SIZE = 256 * 1024 * 1024


def framed(body: bytes) -> bytes:
    return struct.pack(">i", len(body)) + body


@cache
def captured() -> list[bytes]:
    """Request frames, without their size, of real clients."""
    lines = CAPTURES.read_text(encoding="utf-8").splitlines()
    return [bytes.fromhex(line.split("\t")[1]) for line in lines]


@cache
def bodies() -> list[tuple[int, int, bytes]]:
    """(api key, version, body) of every request that kafka-clients can write, in every version."""
    from support.wire_golden import golden

    keys = {f"{api.name}Request": api.key for api in APIS.values()}
    found = golden()
    return [(keys[name], version, body) for name in keys if name in found for version, body, _ in found[name]]


def header(api_key: int, version: int, correlation_id: int = 7, client_id: str | None = "hostile") -> bytes:
    writer = Writer()
    written = RequestHeader(
        request_api_key=api_key, request_api_version=version, correlation_id=correlation_id, client_id=client_id
    )
    written.encode(writer, request_header_version(api_key, version))
    return writer.getvalue()


def served(port: int) -> dict[int, tuple[int, int]]:
    """What the broker offers."""
    from braidlog.wire.generated.api_versions import ApiVersionsRequest

    answer: Any = ask(port, "ApiVersions", 0, ApiVersionsRequest())
    return {api.api_key: (api.min_version, api.max_version) for api in answer.api_keys}


def probe() -> bytes:
    """An honest question, whose answer says that all before it was handled."""
    return framed(header(18, 0, PROBE))


@cache
def every_version() -> list[tuple[int, int]]:
    return [(api.key, version) for api in APIS.values() for version in range(api.min_version, api.max_version + 1)]


def produce(topic: str, records: bytes, acks: int = 1) -> bytes:
    request = ProduceRequest(
        acks=acks,
        timeout_ms=1000,
        topic_data=[
            TopicProduceData(name=topic, partition_data=[PartitionProduceData(index=0, records=records)]),
        ],
    )
    frame = encode_request(0, PRODUCE_VERSION, 7, "hostile", request)
    return b"".join(bytes(part) for part in frame.parts())


def with_right_checksum(batch: bytearray) -> bytes:
    """The batch's CRC made to fit its contents; a batch cut before its end stays as it is."""
    if len(batch) >= CRC_AT + 4:
        batch[CRC_AT : CRC_AT + 4] = struct.pack(">I", crc32c(bytes(batch[CRC_AT + 4 :]), 0))
    return bytes(batch)


def bomb(codec: int) -> bytes:
    """A produce of a small batch that decompresses to a quarter of a gigabyte of zeros."""
    base = bytearray(build_batch([Record(value=b"v")]))
    base[21:23] = struct.pack(">h", codec)
    packed = _bomb_contents(codec)
    base[61:] = packed
    base[8:12] = struct.pack(">i", len(base) - 12)
    return produce("hostile", with_right_checksum(base))


@cache
def _bomb_contents(codec: int) -> bytes:
    return compress(codec, bytes(BOMB_SIZE if codec in (CODEC_GZIP, CODEC_ZSTD) else BOMB_SIZE // 8))


class HostileFrames:
    """Draws frames of every kind from a seed; `served` has the versions that the broker offers, by api key."""

    def __init__(self, seed: int, served: dict[int, tuple[int, int]]) -> None:
        self.random = Random(seed)
        self._spoken = [
            (key, version, body)
            for key, version, body in bodies()
            if key in served and served[key][0] <= version <= served[key][1]
        ]
        self._answered = (self.spoken, self.aimed, self.lying_batch)
        # Most of these end their connection.
        self._endings = {
            self.captured_and_changed: 22,
            self.spoken_and_changed: 30,
            self.garbage_body: 24,
            self.random_frame: 8,
            self.random_bytes: 4,
            self.impossible_length: 4,
            self.unknown_api: 4,
        }

    def burst(self, answered: int = 8, endings: int = 3) -> list[tuple[str, bytes]]:
        """Frames for one connection: some that the broker will refuse politely, then some that it cannot read."""
        random = self.random
        kinds = random.choices(self._answered, (2, 3, 5), k=random.randint(0, answered))
        kinds += random.choices(list(self._endings), list(self._endings.values()), k=random.randint(1, endings))
        return [(kind.__name__, kind()) for kind in kinds]

    def changed(self, content: bytes) -> bytes:
        """A few bytes replaced, inserted or cut off."""
        random = self.random
        result = bytearray(content)
        for _ in range(random.randint(1, 3)):
            at = random.randrange(len(result) + 1)
            piece = random.choice(HUGE) if random.random() < 0.3 else random.randbytes(random.randint(1, 4))
            way = random.random()
            if way < 0.6:
                result[at : at + len(piece)] = piece
            elif way < 0.8:
                result[at:at] = piece
            else:
                del result[at:]
        return bytes(result)

    def captured_and_changed(self) -> bytes:
        return framed(self.changed(self.random.choice(captured())))

    def spoken(self) -> bytes:
        """Sound bytes of any api and version; what they ask for is whatever filled the fields."""
        key, version, body = self.random.choice(self._spoken)
        return framed(header(key, version) + body)

    def aimed(self) -> bytes:
        """A sound request about topics that exist, with numbers at their edges."""
        key, version, body = self.random.choice(self._spoken)
        if key in UNAIMED:
            return self.spoken()
        message = APIS[key].request.decode(Reader(body), version)
        self._aim(message)
        try:
            frame = encode_request(key, version, 7, "hostile", message)
        except (EncodeError, ValueError, OverflowError, TypeError):  # the last: compiled code, of a large number
            return framed(header(key, version) + body)
        return b"".join(bytes(part) for part in frame.parts())

    def _aim(self, message: Message) -> None:
        random = self.random
        for name in field_names(type(message)):
            value = getattr(message, name)
            if isinstance(value, Message):
                self._aim(value)
            elif isinstance(value, list):
                for item in value:
                    if isinstance(item, Message):
                        self._aim(item)
            elif isinstance(value, str) and name in ("name", "topic", "topic_name", "resource_name"):
                setattr(message, name, random.choice(TOPICS))
            elif isinstance(value, int) and not isinstance(value, bool) and random.random() < 0.5:
                setattr(message, name, random.choice((-2, -1, 0, 0, 1, 2, 5, 127, 2**31 - 1, -(2**31), 2**63 - 1)))

    def spoken_and_changed(self) -> bytes:
        key, version, body = self.random.choice(self._spoken)
        return framed(header(key, version) + self.changed(body))

    def garbage_body(self) -> bytes:
        """A sound header of any api and version, then noise."""
        key, version = self.random.choice(every_version())
        return framed(header(key, version) + self.random.randbytes(self.random.randrange(120)))

    def lying_batch(self) -> bytes:
        """A batch with wrong counts, lengths, offsets or codec under a right checksum."""
        random = self.random
        codec = random.choice((0, 0, CODEC_GZIP, CODEC_SNAPPY, CODEC_LZ4, CODEC_ZSTD))
        records = [Record(key=b"k%d" % n, value=random.randbytes(random.randrange(40))) for n in range(3)]
        batch = bytearray(build_batch(records, codec=codec))
        for _ in range(random.randint(1, 2)):
            at, size = random.choice(((0, 8), (8, 4), (16, 1), (21, 2), (23, 4), (27, 8), (35, 8), (43, 14), (57, 4)))
            if random.random() < 0.5:
                at, size = random.randrange(61, len(batch)), random.randint(1, 5)
            batch[at : at + size] = random.choice((random.randbytes(size), bytes(size), b"\xff" * size))
        if random.random() < 0.1:
            del batch[random.randrange(len(batch)) :]
        topic = random.choice(TOPICS)
        return produce(topic, with_right_checksum(batch), random.choice((0, *[1, -1] * 10)))

    def random_frame(self) -> bytes:
        return framed(self.random.randbytes(self.random.randint(1, 200)))

    def random_bytes(self) -> bytes:
        return self.random.randbytes(self.random.randint(1, 64))

    def impossible_length(self) -> bytes:
        length = self.random.choice((-1, 0, -(2**31), 2**31 - 1, 104_857_601, 104_857_600))
        return struct.pack(">i", length) + self.random.randbytes(8)

    def unknown_api(self) -> bytes:
        key = self.random.choice((-1, 70, 999, 32767, -32768))
        version = self.random.choice((0, -1, 99, 32767))
        return framed(struct.pack(">hhi", key, version, 7) + b"\xff\xff")


@dataclass
class _Line:
    """One connection of the sender and what came back on it."""

    socket: socket.socket
    deadline: float
    received: bytearray = field(default_factory=bytearray)

    def probed(self) -> bool:
        """Whether the probe is answered, and so everything before it."""
        at = 0
        data = self.received
        while len(data) - at >= 8:
            size, correlation = struct.unpack_from(">ii", data, at)
            if correlation == PROBE:
                return True
            at += 4 + size
        return False


class Sender:
    """Sends bursts over short-lived connections, many at a time."""

    def __init__(
        self,
        port: int,
        hostility: HostileFrames,
        lines: int = 12,
        patience_s: float = 0.5,
        greeting: bytes = b"",
    ) -> None:
        """`greeting` goes before each burst: a login."""
        self._port = port
        self._greeting = greeting
        self._hostility = hostility
        self._most_lines = lines
        self._patience_s = patience_s
        self._selector = selectors.DefaultSelector()
        self._hosts = [f"127.0.0.{number}" for number in range(2, 10)]
        self.sent: Counter[str] = Counter()
        self.connections = 0
        self.probed = 0
        self.closed_by_broker = 0
        self.given_up = 0

    def run(self, bursts: int) -> None:
        """So many connections, each with its frames and, at the end, an honest question."""
        end = self.connections + bursts
        lines = self._selector.get_map()
        while self.connections < end or lines:
            now = time.monotonic()
            while len(lines) < self._most_lines and self.connections < end:
                self._begin(now)
            for key, _ in self._selector.select(0.05):
                self._receive(key.data)
            for key in [key for key in lines.values() if key.data.deadline < now]:
                self.given_up += 1
                self._end(key.data)

    def _begin(self, now: float) -> None:
        frames = self._hostility.burst()
        self.sent.update(kind for kind, _ in frames)
        line = socket.socket()
        # Many addresses of this machine, and no waiting states: thousands of connections a second need ports.
        line.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        line.bind((self._hosts[self.connections % len(self._hosts)], 0))
        line.connect(("127.0.0.1", self._port))
        self.connections += 1
        with suppress(ConnectionResetError, BrokenPipeError):
            line.sendall(self._greeting + b"".join(frame for _, frame in frames) + probe())
        line.setblocking(False)
        self._selector.register(line, selectors.EVENT_READ, _Line(line, now + self._patience_s))

    def _receive(self, line: _Line) -> None:
        try:
            data = line.socket.recv(1 << 18)
        except BlockingIOError:
            return
        except ConnectionResetError:
            data = b""
        if not data:
            self.closed_by_broker += 1
            self._end(line)
            return
        line.received += data
        if line.probed():
            self.probed += 1
            self._end(line)

    def _end(self, line: _Line) -> None:
        self._selector.unregister(line.socket)
        line.socket.close()


def seed_of_the_day() -> int:
    """A soak draws new frames each time; the number is printed so that a failure can be repeated."""
    return int(os.environ.get("BRAIDLOG_SEED", "0")) or int.from_bytes(os.urandom(4), "big")
