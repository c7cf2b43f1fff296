"""Records what real clients and Apache Kafka 3.9 say to each other: `python -m tools.capture`.

A proxy stands between them: the broker advertises the proxy's address, so every connection goes through it. Of each
client, api and version the smallest few distinct exchanges are kept. The file is gzip of

    exchange := client: u8 length + UTF-8 | request: i32 size + frame | response: i32 size (-1: none) + frame

where a frame is what follows the size on the wire. Tests decode every one of them, and mutate them into hostile ones.
"""

from __future__ import annotations

import gzip
import socket
import struct
import threading
from collections import deque
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

CAPTURES = Path(__file__).parent.parent / "tests" / "interop" / "captures" / "exchanges.bin.gz"
KEPT_PER_VERSION = 3
LARGEST_FRAME = 20_000


class Exchange(NamedTuple):
    client: str
    request: bytes
    response: bytes | None

    @property
    def api(self) -> tuple[int, int]:
        """Api key and version: the first four bytes of every request."""
        key, version = struct.unpack_from(">hh", self.request)
        return key, version


class Recorder:
    """The proxy. `label` is the client that speaks now; exchanges collect in `exchanges`."""

    def __init__(self, broker_port: int) -> None:
        self.label = ""
        self.exchanges: list[Exchange] = []
        self._broker_port = broker_port
        self._lock = threading.Lock()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, name="proxy", daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            try:
                broker = socket.create_connection(("127.0.0.1", self._broker_port))
            except OSError:
                # It is down: whoever asked sees a connection that ends.
                client.close()
                continue
            waiting: deque[tuple[str, bytes]] = deque()
            for source, target, from_client in ((client, broker, True), (broker, client, False)):
                threading.Thread(
                    target=self._pump, args=(source, target, waiting, from_client), name="pump", daemon=True
                ).start()

    def _pump(
        self,
        source: socket.socket,
        target: socket.socket,
        waiting: deque[tuple[str, bytes]],
        from_client: bool,
    ) -> None:
        """Pass frames on, whole."""
        try:
            for frame in frames(source):
                if from_client:
                    self._asked(frame, waiting)
                else:
                    self._answered(frame, waiting)
                target.sendall(struct.pack(">i", len(frame)) + frame)
        except OSError:
            pass
        finally:
            for end in (source, target):
                end.close()
            with self._lock:
                self.exchanges += [Exchange(*waiting.popleft(), None) for _ in range(len(waiting))]

    def _asked(self, frame: bytes, waiting: deque[tuple[str, bytes]]) -> None:
        with self._lock:
            waiting.append((self.label, frame))

    def _answered(self, frame: bytes, waiting: deque[tuple[str, bytes]]) -> None:
        """Answers come in the order of the requests; one that is passed over (acks=0) gets none."""
        with self._lock:
            while waiting:
                label, request = waiting.popleft()
                if request[4:8] == frame[:4]:
                    self.exchanges.append(Exchange(label, request, frame))
                    return
                self.exchanges.append(Exchange(label, request, None))

    def close(self) -> None:
        self._listener.close()


def frames(source: socket.socket) -> Iterator[bytes]:
    """The frames that arrive, until the other side closes."""
    received = bytearray()
    while True:
        while len(received) >= 4 and len(received) >= 4 + struct.unpack_from(">i", received)[0]:
            end = 4 + struct.unpack_from(">i", received)[0]
            yield bytes(received[4:end])
            del received[:end]
        more = source.recv(1 << 16)
        if not more:
            return
        received += more


def chosen(exchanges: list[Exchange]) -> list[Exchange]:
    """The smallest distinct exchanges of each client, api and version."""
    by_kind: dict[tuple[str, tuple[int, int], bool], list[Exchange]] = {}
    for exchange in exchanges:
        if len(exchange.request) + len(exchange.response or b"") <= LARGEST_FRAME:
            answered = exchange.response is not None
            by_kind.setdefault((exchange.client, exchange.api, answered), []).append(exchange)
    kept: list[Exchange] = []
    for kind in sorted(by_kind):
        sizes: dict[tuple[int, int], Exchange] = {}
        for exchange in by_kind[kind]:
            sizes.setdefault((len(exchange.request), len(exchange.response or b"")), exchange)
        ordered = sorted(sizes.items())
        # The smallest, the largest and one between: most kinds of content in few exchanges.
        places = sorted({0, len(ordered) // 2, len(ordered) - 1})[:KEPT_PER_VERSION]
        kept.extend(ordered[place][1] for place in places)
    return kept


def save(exchanges: list[Exchange], path: Path = CAPTURES) -> None:
    out = bytearray()
    for client, request, response in exchanges:
        name = client.encode()
        out += struct.pack(">B", len(name)) + name + struct.pack(">i", len(request)) + request
        out += struct.pack(">i", -1 if response is None else len(response)) + (response or b"")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(gzip.compress(bytes(out), mtime=0))


def load(path: Path = CAPTURES) -> list[Exchange]:
    data = gzip.decompress(path.read_bytes())
    exchanges = []
    at = 0

    def take(size: int) -> bytes:
        nonlocal at
        at += size
        return data[at - size : at]

    while at < len(data):
        client = take(take(1)[0]).decode()
        request = take(struct.unpack(">i", take(4))[0])
        size = struct.unpack(">i", take(4))[0]
        exchanges.append(Exchange(client, request, None if size < 0 else take(size)))
    return exchanges


def main() -> None:
    from tools.capture_clients import record_all

    exchanges = chosen(record_all())
    save(exchanges)
    kinds = {(exchange.client, exchange.api) for exchange in exchanges}
    print(f"{len(exchanges)} exchanges of {len(kinds)} kinds, {CAPTURES.stat().st_size} bytes in {CAPTURES}")


if __name__ == "__main__":
    main()
