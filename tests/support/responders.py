"""Responders that remember their answer, and a driver that treats a pure shard as the runtime does."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, NamedTuple, TypeVar

from braidlog.coordinator.effects import Effects, Moment, Responder, SendMarkers
from braidlog.coordinator.shard import CoordinatorShard, ReplayedRecord
from braidlog.core.protocol_errors import ProtocolError
from braidlog.wire.message import Message

START_MS = 1_700_000_000_000

S = TypeVar("S", bound=CoordinatorShard)


class RecordingResponder:
    """Answered at most once: a second answer fails the test at once."""

    def __init__(self, name: str = "") -> None:
        self.name = name
        self.response: Any = None
        self.error: ProtocolError | None = None

    def answer(self, response: Message) -> None:
        assert not self.answered, f"responder {self.name!r} was answered twice: {response}"
        self.response = response

    def fail(self, error: ProtocolError) -> None:
        assert not self.answered, f"responder {self.name!r} was answered twice: {error}"
        self.error = error

    @property
    def answered(self) -> bool:
        return self.response is not None or self.error is not None

    @property
    def error_code(self) -> int | None:
        """Of the answer, however it was given; None while there is none, 0 where the response has no such field."""
        if self.error is not None:
            return self.error.code
        return None if self.response is None else getattr(self.response, "error_code", 0)

    def __repr__(self) -> str:
        return f"RecordingResponder({self.name!r}, {self.response or self.error})"


class Marker(NamedTuple):
    """The end of a transaction, as it lies in the log."""

    producer_id: int
    producer_epoch: int
    commits: bool


class ShardDriver(Generic[S]):
    """Applies what a shard decides the way the runtime does, with a list as the log and a clock set by hand."""

    def __init__(self, make: Callable[[], S]) -> None:
        self._make = make
        self.log: list[ReplayedRecord | Marker] = []
        self.responders: list[RecordingResponder] = []
        self.actions: list[SendMarkers] = []
        self.seconds = 1_000.0
        self.shard = make()
        self.apply(self.shard.on_loaded(self.now))

    @property
    def now(self) -> Moment:
        return Moment(START_MS + int(self.seconds * 1000), self.seconds)

    def submit(self, operation: Callable[[S, Responder, Moment], Effects], name: str = "") -> RecordingResponder:
        """Run an operation; a refusal fails its responder, as the runtime does it."""
        responder = RecordingResponder(name)
        self.responders.append(responder)
        try:
            effects = operation(self.shard, responder, self.now)
        except ProtocolError as error:
            responder.fail(error)
        else:
            self.apply(effects)
        return responder

    def apply(self, effects: Effects) -> None:
        for pending in effects.records:
            record = ReplayedRecord(
                len(self.log),
                self.now.wall_ms,
                pending.key,
                pending.value,
                effects.producer_id,
                effects.producer_epoch,
            )
            self.log.append(record)
            if not pending.applied:
                self.shard.replay(record)
        for responder, outcome in effects.replies:
            if isinstance(outcome, ProtocolError):
                responder.fail(outcome)
            else:
                responder.answer(outcome)
        self.actions += effects.actions

    def end_transaction(self, producer_id: int, producer_epoch: int, commits: bool) -> None:
        self.log.append(Marker(producer_id, producer_epoch, commits))
        self.shard.replay_end_transaction_marker(producer_id, producer_epoch, commits)

    def advance(self, seconds: float) -> None:
        """Let time pass; deadlines come up in their order, each at its own time."""
        until = self.seconds + seconds
        while (due := self.shard.next_deadline()) is not None and due <= until:
            self.seconds = max(self.seconds, due)
            self.apply(self.shard.expire(self.now))
        self.seconds = until

    def stall(self, seconds: float) -> None:
        """Let time pass in which nothing was looked at: whatever came due is late, and comes at once."""
        self.seconds += seconds
        while (due := self.shard.next_deadline()) is not None and due <= self.seconds:
            self.apply(self.shard.expire(self.now))

    def rebuilt(self) -> S:
        """What a replay of the log gives, without its deadlines armed."""
        shard = self._make()
        for entry in self.log:
            if isinstance(entry, Marker):
                shard.replay_end_transaction_marker(entry.producer_id, entry.producer_epoch, entry.commits)
            else:
                shard.replay(entry)
        return shard

    def crash(self) -> None:
        """The process dies and comes back: only the log is left. Nobody hears of what was waiting."""
        self.shard = self.rebuilt()
        self.apply(self.shard.on_loaded(self.now))
