"""Requests of a producer that come while markers of its last transaction are still being written.

A client that is told CONCURRENT_TRANSACTIONS asks again after a backoff of its own, 20 ms or 100; markers
between brokers take a few. So such a request waits here, and is refused only after that. One that begins a transaction
waits for longer than a produce does, as markers take while a follower is slow or gone: librdkafka ends with a fatal
error if it aborts a transaction whose partitions were refused so far.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from braidlog.coordinator.effects import Effects, Moment, Responder
from braidlog.coordinator.runtime import CoordinatorRuntime
from braidlog.core.protocol_errors import ConcurrentTransactionsError, ProtocolError
from braidlog.wire.message import Message

if TYPE_CHECKING:
    # Imported with the first shard: a broker without transactions starts without them.
    from braidlog.coordinator.txn.shard import TransactionCoordinatorShard

CallLater = Callable[[float, Callable[[], None]], Any]
Operation = Callable[["TransactionCoordinatorShard", Responder, Moment], Effects]

_PAUSE_S: Final = 0.002
# As long as Kafka 4 keeps a produce.
_A_PRODUCE_S: Final = 0.1
# Of clients, which give a request 30 s or more.
_A_BEGINNING_S: Final = 5.0
# Between tries once it has taken longer than it mostly does.
_LONG_PAUSE_S: Final = 0.02


class EarlyRequestBackoff:
    """How often one request is tried again, and when."""

    __slots__ = ("_call_later", "_longest_s", "_waited_s")

    def __init__(self, call_later: CallLater, longest_s: float = _A_PRODUCE_S) -> None:
        self._call_later = call_later
        self._longest_s = longest_s
        self._waited_s = 0.0

    def tries_again(self, error: ProtocolError, send: Callable[[], None]) -> bool:
        if not isinstance(error, ConcurrentTransactionsError) or self._waited_s >= self._longest_s:
            return False
        pause_s = _PAUSE_S if self._waited_s < _A_PRODUCE_S else _LONG_PAUSE_S
        self._waited_s += pause_s
        self._call_later(pause_s, send)
        return True


class EarlyRequests:
    """The way to the transaction coordinator for what a client sends at the beginning of a transaction."""

    def __init__(self, transactions: CoordinatorRuntime[TransactionCoordinatorShard], call_later: CallLater) -> None:
        self._transactions = transactions
        self._call_later = call_later

    def submit(self, transactional_id: str, responder: Responder, operation: Operation) -> None:
        """The responder is answered, or failed, exactly once."""
        backoff = EarlyRequestBackoff(self._call_later, _A_BEGINNING_S)
        _EarlyRequest(self._transactions, transactional_id, responder, operation, backoff).send()


class _EarlyRequest:
    __slots__ = ("_backoff", "_operation", "_responder", "_transactional_id", "_transactions")

    def __init__(
        self,
        transactions: CoordinatorRuntime[TransactionCoordinatorShard],
        transactional_id: str,
        responder: Responder,
        operation: Operation,
        backoff: EarlyRequestBackoff,
    ) -> None:
        self._transactions = transactions
        self._transactional_id = transactional_id
        self._responder = responder
        self._operation = operation
        self._backoff = backoff

    def send(self) -> None:
        """Decided anew each time: the producer may have been fenced meanwhile, or the coordinator have moved."""
        operation = self._operation
        self._transactions.submit(self._transactional_id, self, lambda shard, now: operation(shard, self, now))

    def answer(self, response: Message) -> None:
        self._responder.answer(response)

    def fail(self, error: ProtocolError) -> None:
        if not self._backoff.tries_again(error, self.send):
            self._responder.fail(error)
