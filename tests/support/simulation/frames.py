"""What clients and brokers say to each other, decoded: whatever a client is, here is what it asked and was answered.

Requests are judged, too: replies come in the order of the requests, and each within a while as long as its broker runs.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import Any, Final, NamedTuple, Protocol

from braidlog.testing.simulated.connection import SimulatedConnection
from braidlog.testing.simulated.simulation import Simulation
from braidlog.wire.apis import APIS, decode_request, decode_response
from braidlog.wire.generated.produce import ProduceRequest
from braidlog.wire.headers import read_request_header
from braidlog.wire.message import Message
from braidlog.wire.reader import Reader

PRODUCE: Final = 0
# Clients have to be more patient, or a request that they give up is not missed.
ANSWER_WITHIN_S: Final = 30.0
REQUEST_TIMEOUT_MS: Final = 35_000


class Exchange(NamedTuple):
    """A request under way."""

    connection: SimulatedConnection
    api_key: int
    version: int
    correlation_id: int
    sent_at: float
    # Decoded only for an observer.
    request: Any
    # What the observer made of it.
    note: Any


class Observer(Protocol):
    def requested(self, connection: SimulatedConnection, request: Any) -> object:
        """The result comes back as the note of the exchange."""
        ...

    def answered(self, exchange: Exchange, response: Any) -> None: ...

    def lost(self, exchange: Exchange) -> None:
        """The connection ended before an answer."""
        ...


class Frames:
    """The tap of a simulated network; `observers` by api key."""

    def __init__(self, simulation: Simulation, observers: Mapping[int, Observer]) -> None:
        self._simulation = simulation
        self._observers = observers
        self._under_way: dict[SimulatedConnection, deque[Exchange]] = {}
        self._forgotten: list[str] = []
        simulation.network.tap = self

    def on_request(self, connection: SimulatedConnection, frame: bytes) -> None:
        reader = Reader(frame)
        header = read_request_header(reader)
        key, version = header.request_api_key, header.request_api_version
        observer = self._observers.get(key)
        request: Message | None = None
        note: object = None
        if observer is not None or key == PRODUCE:
            request = decode_request(key, version, reader)
        if observer is not None:
            note = observer.requested(connection, request)
        if isinstance(request, ProduceRequest) and request.acks == 0:
            return
        now = self._simulation.loop.time()
        exchange = Exchange(connection, key, version, header.correlation_id, now, request, note)
        self._under_way.setdefault(connection, deque()).append(exchange)

    def on_response(self, connection: SimulatedConnection, frame: bytes) -> None:
        exchange = self._under_way[connection].popleft()
        correlation_id = int.from_bytes(frame[:4], "big")
        if correlation_id != exchange.correlation_id:
            raise AssertionError(
                f"{connection.name}: the reply to {correlation_id} came before that to {exchange.correlation_id}"
            )
        observer = self._observers.get(exchange.api_key)
        if observer is not None:
            observer.answered(exchange, decode_response(exchange.api_key, exchange.version, frame)[1])

    def on_end(self, connection: SimulatedConnection) -> None:
        under_way = self._under_way.pop(connection, ())
        self._note_late(connection, under_way)
        for exchange in under_way:
            observer = self._observers.get(exchange.api_key)
            if observer is not None:
                observer.lost(exchange)

    def unanswered(self) -> list[str]:
        """Requests that a running broker has left without an answer for too long."""
        for connection, under_way in self._under_way.items():
            self._note_late(connection, under_way)
        return self._forgotten

    def _note_late(self, connection: SimulatedConnection, under_way: deque[Exchange] | tuple[()]) -> None:
        for exchange in under_way:
            age = self._simulation.loop.time() - exchange.sent_at
            if age > ANSWER_WITHIN_S:
                api = APIS[exchange.api_key].name
                self._forgotten.append(f"{connection.name}: {api} v{exchange.version}, {age:.1f} s ago")
