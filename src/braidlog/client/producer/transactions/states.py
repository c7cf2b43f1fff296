"""The states of a transactional producer, the calls that each allows, and the error for any other."""

from __future__ import annotations

from collections import deque
from enum import Enum
from threading import Lock
from typing import Final

from braidlog.client.errors import TransactionStateError

_REMEMBERED: Final = 8


class State(Enum):
    # Nothing was asked of the coordinator yet: only init_transactions.
    UNINITIALIZED = "not initialised"
    # An id and epoch are being asked for: at first, or for another epoch after an abort.
    INITIALIZING = "being initialised"
    # Between transactions: begin_transaction.
    READY = "between transactions"
    # Records and offsets may be sent.
    IN_TRANSACTION = "in a transaction"
    # Everything is being flushed, then the transaction is ended; nothing more may be added.
    COMMITTING = "committing"
    # What was not sent is dropped, then the transaction is ended.
    ABORTING = "aborting"
    # Something of the transaction was lost: it can only be aborted.
    ABORTABLE_ERROR = "failed, to be aborted"
    # There is no way on; the producer can only be closed.
    FATAL_ERROR = "failed for good"


_U, _I, _R, _T = State.UNINITIALIZED, State.INITIALIZING, State.READY, State.IN_TRANSACTION
_C, _A, _E, _F = State.COMMITTING, State.ABORTING, State.ABORTABLE_ERROR, State.FATAL_ERROR

TRANSITIONS: Final[dict[State, frozenset[State]]] = {
    _U: frozenset({_I, _F}),
    _I: frozenset({_R, _F}),
    _R: frozenset({_T, _F}),
    _T: frozenset({_C, _A, _E, _F}),
    _C: frozenset({_R, _E, _F}),
    _E: frozenset({_A, _F}),
    # An abort after lost records takes a new epoch along, so that no late one of them can count (KIP-360).
    _A: frozenset({_R, _I, _F}),
    _F: frozenset(),
}

# The calls, each with the states it is right in; one that did not end in time may be called again meanwhile.
INIT: Final = "init_transactions"
BEGIN: Final = "begin_transaction"
SEND_OFFSETS: Final = "send_offsets_to_transaction"
COMMIT: Final = "commit_transaction"
ABORT: Final = "abort_transaction"
ALLOWED: Final[dict[str, frozenset[State]]] = {
    INIT: frozenset({_U}),
    BEGIN: frozenset({_R}),
    SEND_OFFSETS: frozenset({_T}),
    COMMIT: frozenset({_T}),
    ABORT: frozenset({_T, _E}),
}

_ADVICE: Final[dict[State, str]] = {
    _U: "call init_transactions() first, once for each producer",
    _I: "wait until init_transactions() has returned; if it timed out, call it again",
    _R: "no transaction is open; call begin_transaction() first",
    _T: "a transaction is open; end it with commit_transaction() or abort_transaction() first",
    _C: "the transaction is being committed; if commit_transaction() timed out, call it again",
    _A: "the transaction is being aborted; if abort_transaction() timed out, call it again",
    _E: "the transaction has failed; call abort_transaction(), then begin another",
    _F: "the producer has failed; close it and make a new one",
}


class StateMachine:
    """The state, moved by the program's thread and the engine's."""

    def __init__(self, transactional_id: str) -> None:
        self._transactional_id = transactional_id
        self._state = State.UNINITIALIZED
        self._history: deque[State] = deque([self._state], _REMEMBERED)
        self._lock = Lock()

    @property
    def now(self) -> State:
        return self._state

    def move(self, target: State) -> None:
        with self._lock:
            if target not in TRANSITIONS[self._state]:
                raise self._illegal(target)
            self._take(target)

    def move_from(self, origins: frozenset[State], target: State) -> bool:
        """Move if it stands in one of these; whether it did."""
        with self._lock:
            if self._state not in origins:
                return False
            if target not in TRANSITIONS[self._state]:
                raise self._illegal(target)
            self._take(target)
            return True

    def check(self, call: str) -> None:
        """Raise unless the call is right now."""
        state = self._state
        if state not in ALLOWED[call]:
            raise TransactionStateError(f"{call}() is not possible now: {_advice(call, state)}")

    def _take(self, target: State) -> None:
        self._state = target
        self._history.append(target)

    def _illegal(self, target: State) -> TransactionStateError:
        steps = " → ".join(state.name for state in self._history)
        return TransactionStateError(
            f"transactional id {self._transactional_id}: no way from {self._state.name} to {target.name} "
            f"(came by {steps})"
        )


def _advice(call: str, state: State) -> str:
    if call == INIT and state is State.READY:
        return "it was called before, and once is enough; go on with begin_transaction()"
    return _ADVICE[state]
